//! What services say of themselves at `/.well-known/hoop`, kept for a while: [`WellKnownCache`].
//!
//! A good answer holds for ten minutes, a bad one for one minute, and silence for half a minute. The last good answer is kept beyond that, also on disk
//! (`services.json` in the spool). Whether a service demands permits, and by which keys they are checked, must be known while the line is down.

use super::destination::{DEST_MAX, Dest};
use hoop_http::{Clock, Code, Origin, Problem};
use hoop_seal::KwsId;
use hoop_seal::signing::PublicKey;
use hoop_units::{Timestamp, UnixTime};
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use serde_json::error::Category;
use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use url::{Host, Url};

/// Origins that are remembered. Beyond it, the oldest origin of the site that has most is forgotten. A home talks to a handful of services.
const ORIGINS_MAX: usize = 256;

/// How long a good answer holds: a service that moved its post URL is noticed within ten minutes.
const GOOD: Duration = Duration::from_secs(10 * 60);

/// How long a bad one does: an operator who has just set a service up should not have to wait.
const BAD: Duration = Duration::from_secs(60);

/// After no answer came, nobody is asked again for so long: while the line is down, uploads are taken without waiting for it.
const SILENT: Duration = Duration::from_secs(30);

/// While a service cannot be asked, permits are checked for so long by what it said last: as long as a ticket lasts by default.
const KEYS_SECS: u64 = 7 * 24 * 60 * 60;

/// A crash loses no more run time than this, in seconds: run time is written down every five minutes.
const LOST_SECS: u64 = 60 * 60;

/// An unchanged answer is written down again after so long, for the time at which it was heard.
const KEEP_ANEW_SECS: u64 = 24 * 60 * 60;

/// The file is written anew no more often than this: it may have a megabyte, and services may say something else each time they are asked.
const KEEP_REST: Duration = Duration::from_secs(60);

/// Public keys of a service that are kept: the present one, and some that rotate out.
const KEYS_MAX: usize = 16;

/// The longest document that is read.
pub const DOCUMENT_MAX: usize = 64 * 1024;

/// What a gateway needs to know of a service.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct WellKnown {
    /// The post URL, without a slash at the end.
    pub post: String,
    /// Where uploads are asked after, without a slash at the end.
    pub uploads: Url,
    /// Whether a gateway may take an upload for it only with its permit.
    pub permits_required: bool,
    /// By which it signs.
    pub keys: BTreeMap<KwsId, PublicKey>,
}

/// Why nothing can be delivered to an origin. The words are ours: pages show them, and whoever wrote the document must not speak there.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Refusal {
    /// `dest-not-hoop`, or `dest-forbidden` where its name leads to an address that is not permitted.
    pub code: Code,
    pub why: String,
}

impl Refusal {
    pub fn not_hoop(why: impl Into<String>) -> Self {
        Self { code: Code::DestNotHoop, why: why.into() }
    }

    /// The address is not told: a name may lead to one that only this network knows.
    pub fn forbidden() -> Self {
        let why = "its name leads to an address that is not public, or is this gateway's own, and this gateway's operator has not listed it";
        Self { code: Code::DestForbidden, why: why.to_owned() }
    }

    pub fn problem(self) -> Problem {
        Problem::new(self.code, self.why).field("dest")
    }
}

/// What an origin is known to be.
pub type LearnedWord = Result<Arc<WellKnown>, Refusal>;

#[derive(Deserialize)]
struct Document {
    hoop: u32,
    origin: String,
    post: String,
    uploads: String,
    record_size: u32,
    #[serde(default)]
    permits: String,
    #[serde(default)]
    signing_keys: BTreeMap<String, String>,
}

impl WellKnown {
    /// Reads the document that `origin` gave.
    ///
    /// # Errors
    /// In words, if it is none that this version can use. They are all ours: pages show them, and whoever wrote the document must not
    /// speak there.
    pub fn parse(bytes: &[u8], origin: &Origin) -> Result<Self, String> {
        let document: Document = serde_json::from_slice(bytes).map_err(|error| match error.classify() {
            Category::Data => "/.well-known/hoop lacks a member, or has one of another form".to_owned(),
            Category::Io | Category::Syntax | Category::Eof => "/.well-known/hoop is no JSON".to_owned(),
        })?;
        if document.hoop != 1 {
            return Err(format!("it speaks version {} of the protocol, and this gateway version 1", document.hoop));
        }
        if document.origin != origin.as_str() {
            return Err("it says that it is another origin".to_owned());
        }
        if document.record_size != hoop_seal::RECORD_SIZE {
            return Err(format!("it takes records of {} bytes", document.record_size));
        }
        if document.post.len().max(document.uploads.len()) > DEST_MAX {
            return Err(format!("a URL in it is longer than {DEST_MAX} bytes"));
        }
        let uploads =
            Url::parse(document.uploads.trim_end_matches('/')).map_err(|error| format!("`uploads`: {error}"))?;
        if Origin::of(&uploads).ok().as_ref() != Some(origin) {
            return Err("its `uploads` lies at another origin".to_owned());
        }
        let post = Url::parse(&document.post).map_err(|error| format!("`post`: {error}"))?;
        let post = post.as_str().trim_end_matches('/').to_owned();
        // Keys in forms that this version does not know are not its to use.
        let key = |(id, key): (&String, &String)| Some((kws_id(id)?, key.parse().ok()?));
        let keys = document.signing_keys.iter().filter_map(key).take(KEYS_MAX).collect();
        Ok(Self { post, uploads, permits_required: document.permits == "required", keys })
    }

    /// Why an upload for `dest` cannot go to this service, if so.
    fn refusal(&self, dest: &Dest) -> Option<Refusal> {
        let other = self.post != dest.url;
        other.then(|| Refusal::not_hoop(format!("its post URL is another than {}", dest.url)))
    }
}

/// Eight hexadecimal digits.
fn kws_id(text: &str) -> Option<KwsId> {
    let digits = text.len() == 8 && text.bytes().all(|digit| matches!(digit, b'0'..=b'9' | b'a'..=b'f'));
    let number = digits.then(|| u32::from_str_radix(text, 16).ok()).flatten()?;
    Some(KwsId(number.to_be_bytes()))
}

/// What was learned when an origin was asked last.
#[derive(Clone, Debug)]
enum Learned {
    Word(LearnedWord),
    /// Nobody answered.
    Silence,
    /// In an earlier run of this gateway.
    Read,
}

#[derive(Debug)]
struct Known {
    at: Instant,
    learned: Learned,
    /// What it said when it last spoke well, and when that was.
    last_good: Option<(When, Arc<WellKnown>)>,
}

/// A moment by both times: one that goes on while this gateway is off, and one that goes on while its clock is behind.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct When {
    pub unix: UnixTime,
    /// Seconds of run time.
    pub run: u64,
}

impl When {
    /// By that clock, now.
    pub fn now(clock: &Clock) -> Self {
        Self { unix: clock.unix(), run: clock.run().as_secs() }
    }

    /// The seconds since then, by whichever time says more. None if then is later by more run time than a crash loses: it was counted anew.
    fn since(self, then: Self) -> Option<u64> {
        let (run, lost) = (self.run.saturating_sub(then.run), then.run.saturating_sub(self.run));
        (lost <= LOST_SECS).then(|| run.max(self.unix.since(then.unix).into()))
    }
}

impl Known {
    fn holds(&self) -> bool {
        let holds = match &self.learned {
            Learned::Word(Ok(_)) => GOOD,
            Learned::Word(Err(_)) => BAD,
            Learned::Silence => SILENT,
            Learned::Read => Duration::ZERO,
        };
        self.at.elapsed() < holds
    }
}

/// What is known of an origin for whoever offers an upload for it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Acquaintance {
    /// This, and it holds.
    Known(LearnedWord),
    /// Nothing that helps, and nobody should be asked now.
    Silent,
    /// It is to be asked. Only if nothing but a refusal, or nothing, is known of it is the answer worth waiting for.
    Ask { worth_waiting: bool },
}

/// What services said, by origin.
#[derive(Debug, Default)]
pub struct WellKnownCache {
    known: Mutex<BTreeMap<Origin, Known>>,
    /// Where good words are kept.
    file: Option<PathBuf>,
    /// Something is known that the file does not have.
    news: AtomicBool,
    /// When it was written last.
    kept: Mutex<Option<Timestamp>>,
}

/// A line of `services.json`.
#[derive(Serialize, Deserialize)]
struct Kept {
    origin: String,
    post: String,
    uploads: String,
    permits_required: bool,
    keys: BTreeMap<String, String>,
    seen: u32,
    /// Files of earlier versions do not say; what is in them is to be asked for again.
    #[serde(default = "never")]
    seen_run: u64,
}

const fn never() -> u64 {
    u64::MAX
}

impl WellKnownCache {
    /// With what an earlier run kept in that file. What cannot be read is forgotten: it can be asked for again.
    pub fn open(file: PathBuf) -> Self {
        let read = std::fs::read(&file).ok().and_then(|bytes| serde_json::from_slice::<Vec<Kept>>(&bytes).ok());
        let known = read.into_iter().flatten().take(ORIGINS_MAX).filter_map(Kept::known).collect();
        Self { known: Mutex::new(known), file: Some(file), news: AtomicBool::new(false), kept: Mutex::default() }
    }

    /// Why `dest` is known not to take sealed uploads; `None` if it takes them or nothing is known.
    pub fn refusal(&self, dest: &Dest) -> Option<Refusal> {
        self.get(&dest.origin)?.map_or_else(Some, |document| document.refusal(dest))
    }

    /// What is known of an origin and still holds.
    pub fn get(&self, origin: &Origin) -> Option<LearnedWord> {
        match &self.known.lock().get(origin).filter(|known| known.holds())?.learned {
            Learned::Word(word) => Some(word.clone()),
            Learned::Silence | Learned::Read => None,
        }
    }

    /// What is known of an origin for whoever offers an upload for it.
    pub fn acquaintance(&self, origin: &Origin) -> Acquaintance {
        match self.known.lock().get(origin) {
            None => Acquaintance::Ask { worth_waiting: true },
            Some(known) => match (&known.learned, known.holds()) {
                (Learned::Word(word), true) => Acquaintance::Known(word.clone()),
                (Learned::Silence, true) => Acquaintance::Silent,
                (Learned::Word(Err(_)), false) => Acquaintance::Ask { worth_waiting: true },
                (Learned::Word(Ok(_)) | Learned::Silence, false) | (Learned::Read, _) => {
                    Acquaintance::Ask { worth_waiting: false }
                }
            },
        }
    }

    /// What the origin said when it last spoke well, unless that is too long ago to check permits by.
    pub fn last_good(&self, origin: &Origin, now: When) -> Option<Arc<WellKnown>> {
        let known = self.known.lock();
        let (seen, document) = known.get(origin)?.last_good.as_ref()?;
        now.since(*seen).is_some_and(|age| age <= KEYS_SECS).then(|| document.clone())
    }

    /// Remembers what an origin said.
    pub fn put(&self, origin: &Origin, word: Result<WellKnown, Refusal>, now: When) -> LearnedWord {
        let word = word.map(Arc::new);
        let mut known = self.known.lock();
        let before = known.get(origin).and_then(|known| known.last_good.clone());
        let is_news = |document: &Arc<WellKnown>| {
            let is_old = |seen| now.since(seen).is_none_or(|age| age > KEEP_ANEW_SECS);
            let stale = |(seen, old): &(When, Arc<WellKnown>)| old != document || is_old(*seen);
            before.as_ref().is_none_or(stale)
        };
        if word.as_ref().is_ok_and(is_news) {
            self.news.store(true, Ordering::Relaxed);
        }
        let last_good = word.as_ref().ok().map(|document| (now, document.clone())).or(before);
        insert(&mut known, origin, Known { at: Instant::now(), learned: Learned::Word(word.clone()), last_good });
        word
    }

    /// Whether the file is to be written: something is known that it does not have, and it has not been written lately.
    pub fn is_due(&self, now: Timestamp) -> bool {
        let rests = self.kept.lock().is_some_and(|kept| now.since(kept) < KEEP_REST);
        self.file.is_some() && self.news.load(Ordering::Relaxed) && !rests
    }

    /// How long ago an origin was asked last, in this run.
    pub fn age(&self, origin: &Origin) -> Option<Duration> {
        self.known
            .lock()
            .get(origin)
            .filter(|known| !matches!(known.learned, Learned::Read))
            .map(|known| known.at.elapsed())
    }

    /// Remembers that an origin gave no answer.
    pub fn silent(&self, origin: &Origin) {
        let mut known = self.known.lock();
        let last_good = known.get(origin).and_then(|known| known.last_good.clone());
        insert(&mut known, origin, Known { at: Instant::now(), learned: Learned::Silence, last_good });
    }

    /// Writes the file anew, if it does not have all that is known. What a crash leaves is the old one or the new one.
    pub fn keep(&self, now: Timestamp) {
        let Some(file) = self.file.as_ref().filter(|_| self.news.load(Ordering::Relaxed)) else { return };
        *self.kept.lock() = Some(now);
        self.news.store(false, Ordering::Relaxed);
        let kept: Vec<Kept> = self.known.lock().iter().filter_map(|(origin, known)| Kept::of(origin, known)).collect();
        let bytes = serde_json::to_vec(&kept).expect("texts and numbers have a JSON form");
        if let Err(error) = hoop_files::replace(file, &bytes) {
            tracing::warn!(%error, "cannot keep what services say; they are asked again after a restart");
        }
    }
}

fn insert(known: &mut BTreeMap<Origin, Known>, origin: &Origin, fresh: Known) {
    if known.len() >= ORIGINS_MAX && !known.contains_key(origin) {
        // Whoever names made-up origins drives out what came of such, before what has ever spoken well; and whoever has many that speak well, one of his own: ports of a host, and hosts of a
        // domain, cost nothing.
        let (mut of_site, mut of_host) = (BTreeMap::<_, usize>::new(), BTreeMap::<_, usize>::new());
        for origin in known.keys() {
            *of_site.entry(site(origin)).or_default() += 1;
            *of_host.entry(origin.host()).or_default() += 1;
        }
        let oldest = known.iter().min_by_key(|(origin, known)| {
            // Many share a domain like duckdns.org: of those, whose host has most.
            let most = (Reverse(of_site[&site(origin)]), Reverse(of_host[&origin.host()]));
            (known.last_good.is_some(), most, known.at)
        });
        if let Some(oldest) = oldest.map(|(origin, _)| origin.clone()) {
            known.remove(&oldest);
        }
    }
    known.insert(origin.clone(), fresh);
}

/// Whose an origin is, as far as it shows: the last two labels of its name, or its address.
fn site(origin: &Origin) -> String {
    match origin.host() {
        Host::Domain(name) => {
            let name = name.trim_end_matches('.');
            let from = name.rmatch_indices('.').nth(1).map_or(0, |(dot, _)| dot + 1);
            name[from..].to_owned()
        }
        address => address.to_string(),
    }
}

impl Kept {
    fn of(origin: &Origin, known: &Known) -> Option<Self> {
        let (seen, document) = known.last_good.as_ref()?;
        let keys = document.keys.iter().map(|(id, key)| (id.to_string(), key.to_string())).collect();
        let (post, uploads) = (document.post.clone(), document.uploads.to_string());
        Some(Self {
            origin: origin.to_string(),
            post,
            uploads,
            permits_required: document.permits_required,
            keys,
            seen: seen.unix.0,
            seen_run: seen.run,
        })
    }

    fn known(self) -> Option<(Origin, Known)> {
        let keys = self.keys.iter().filter_map(|(id, key)| Some((kws_id(id)?, key.parse().ok()?))).collect();
        let uploads = Url::parse(&self.uploads).ok()?;
        let document = WellKnown { post: self.post, uploads, permits_required: self.permits_required, keys };
        let seen = When { unix: UnixTime(self.seen), run: self.seen_run };
        let last_good = Some((seen, Arc::new(document)));
        Some((self.origin.parse().ok()?, Known { at: Instant::now(), learned: Learned::Read, last_good }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::peer::destination::Destinations;

    const GOOD_DOCUMENT: &str = r#"{"hoop":1,"origin":"https://photos.example","post":"https://photos.example/hoop/post",
        "tickets":"https://photos.example/hoop/tickets","uploads":"https://photos.example/hoop/uploads",
        "suites":["aes256gcm"],"record_size":65536,"max_bytes":1,"permits":"required",
        "signing_keys":{"01020304":"AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA","of-tomorrow":"?"}}"#;

    fn good(dest: &Dest) -> WellKnown {
        WellKnown::parse(GOOD_DOCUMENT.as_bytes(), &dest.origin).unwrap()
    }

    fn dest(url: &str) -> Dest {
        Destinations::new(Vec::new(), &[]).check(url).unwrap()
    }

    /// So many seconds after a gateway began, at that time.
    fn at(secs: u64) -> When {
        When { unix: UnixTime(secs as u32), run: secs }
    }

    #[test]
    fn a_document_of_another_service_or_version_is_refused() {
        let origin = "https://photos.example".parse().unwrap();
        assert!(WellKnown::parse(GOOD_DOCUMENT.as_bytes(), &origin).is_ok());
        for (from, to) in [
            ("\"hoop\":1", "\"hoop\":2"),
            ("\"origin\":\"https://photos.example\"", "\"origin\":\"https://other.example\""),
            ("https://photos.example/hoop/uploads", "https://192.168.1.1/hoop/uploads"),
            ("https://photos.example/hoop/uploads", "uploads"),
            ("65536", "4096"),
            ("{", "<"),
        ] {
            assert!(WellKnown::parse(GOOD_DOCUMENT.replace(from, to).as_bytes(), &origin).is_err(), "{to}");
        }
    }

    #[test]
    fn nothing_that_a_site_writes_stands_in_the_reason() {
        let right = dest("https://photos.example/hoop/post");
        for (from, to) in [
            ("\"hoop\":1", "\"hoop\":\"call 555\""),
            ("\"hoop\":1", "\"hoop\":1,\"hoop\":\"call 555\""),
            ("65536", "\"call 555\""),
            ("\"https://photos.example\"", "\"https://call.555.example\""),
            ("https://photos.example/hoop/uploads", "call 555"),
            ("https://photos.example/hoop/uploads", "https://[call 555]/"),
            ("https://photos.example/hoop/post", "call 555"),
            ("{", "call 555"),
            ("{", ""),
        ] {
            let why = WellKnown::parse(GOOD_DOCUMENT.replace(from, to).as_bytes(), &right.origin).unwrap_err();
            assert!(!why.contains("call") && !why.contains("555"), "{to}: {why}");
        }
        let elsewhere = GOOD_DOCUMENT.replace("/hoop/post", "/call-555");
        let known = WellKnown::parse(elsewhere.as_bytes(), &right.origin).unwrap();
        let why = known.refusal(&right).unwrap().why;
        assert!(!why.contains("call"), "{why}");
    }

    #[test]
    fn a_dest_that_is_not_the_post_url_named_is_refused() {
        let cache = WellKnownCache::default();
        let right = dest("https://photos.example/hoop/post");
        assert_eq!(cache.refusal(&right), None, "nothing is known yet");
        cache.put(&right.origin, Ok(good(&right)), at(1)).unwrap();
        assert_eq!(cache.refusal(&right), None);
        assert!(cache.refusal(&dest("https://photos.example/elsewhere")).is_some());
        cache.put(&right.origin, Err(Refusal::not_hoop("404")), at(2)).unwrap_err();
        assert_eq!(cache.refusal(&right), Some(Refusal::not_hoop("404")));
        assert!(cache.last_good(&right.origin, at(3)).is_some(), "permits can still be checked");
        assert!(cache.last_good(&right.origin, at(2 + KEYS_SECS)).is_none(), "not for ever");
    }

    #[test]
    fn what_was_heard_under_a_fast_clock_expires_after_a_week_of_run_time() {
        let cache = WellKnownCache::default();
        let right = dest("https://photos.example/hoop/post");
        let ahead = When { unix: UnixTime(4_000_000_000), run: 1 };
        cache.put(&right.origin, Ok(good(&right)), ahead).unwrap();
        assert!(cache.last_good(&right.origin, at(1 + KEYS_SECS)).is_some());
        assert!(cache.last_good(&right.origin, at(2 + KEYS_SECS)).is_none());
        // Off for a week, which run time does not count; and run time that is counted anew.
        cache.put(&right.origin, Ok(good(&right)), at(9)).unwrap();
        assert!(cache.last_good(&right.origin, When { run: 10, ..at(10 + KEYS_SECS) }).is_none());
        cache.put(&right.origin, Ok(good(&right)), at(2 * LOST_SECS)).unwrap();
        let later = |run| When { run, ..at(1 + 2 * LOST_SECS) };
        assert!(cache.last_good(&right.origin, later(LOST_SECS)).is_some(), "a crash has lost some of it");
        assert!(cache.last_good(&right.origin, later(0)).is_none());
    }

    #[test]
    fn the_cache_forgets_the_oldest_rather_than_grow() {
        let cache = WellKnownCache::default();
        for i in 0..2 * ORIGINS_MAX {
            let _ = cache.put(&format!("https://s{i}.example").parse().unwrap(), Err(Refusal::forbidden()), at(1));
        }
        assert_eq!(cache.known.lock().len(), ORIGINS_MAX);
        assert!(cache.get(&"https://s0.example".parse().unwrap()).is_none());
    }

    #[test]
    fn made_up_origins_never_evict_a_known_service() {
        let cache = WellKnownCache::default();
        let right = dest("https://photos.example/hoop/post");
        cache.put(&right.origin, Ok(good(&right)), at(1)).unwrap();
        for i in 0..2 * ORIGINS_MAX {
            cache.silent(&format!("https://s{i}.example").parse().unwrap());
        }
        assert!(cache.last_good(&right.origin, at(2)).is_some());
    }

    #[test]
    fn many_ports_or_hosts_of_one_site_never_evict_another_service() {
        for (right, evil) in [
            ("photos.example", (|i| format!("https://evil.example:{}", 1_000 + i)) as fn(usize) -> String),
            ("photos.example", |i| format!("https://s{i}.evil.example")),
            ("photos.example", |i| format!("https://203.0.113.7:{}", 1_000 + i)),
            ("photos.shared.example", |i| format!("https://evil.shared.example:{}", 1_000 + i)),
        ] {
            let cache = WellKnownCache::default();
            let (right, says) = (format!("https://{right}").parse().unwrap(), dest("https://photos.example/hoop/post"));
            cache.put(&right, Ok(good(&says)), at(1)).unwrap();
            for i in 0..2 * ORIGINS_MAX {
                cache.put(&evil(i).parse().unwrap(), Ok(good(&says)), at(1)).unwrap();
            }
            assert!(cache.last_good(&right, at(2)).is_some(), "{}", evil(0));
            assert_eq!(cache.known.lock().len(), ORIGINS_MAX);
        }
        let of = |origin: &str| site(&origin.parse().unwrap());
        assert_eq!(of("https://a.b.example:1"), of("https://b.example"));
        assert_ne!(of("https://a.example"), of("https://b.example"));
        assert_eq!(of("https://localhost:2"), "localhost");
    }

    #[test]
    fn only_what_is_not_known_is_worth_waiting_for() {
        let cache = WellKnownCache::default();
        let right = dest("https://photos.example/hoop/post");
        assert_eq!(cache.acquaintance(&right.origin), Acquaintance::Ask { worth_waiting: true });
        cache.silent(&right.origin);
        assert_eq!(cache.acquaintance(&right.origin), Acquaintance::Silent, "the line is down: nobody waits for it");
        cache.put(&right.origin, Ok(good(&right)), at(1)).unwrap();
        assert!(matches!(cache.acquaintance(&right.origin), Acquaintance::Known(Ok(_))));
    }

    #[test]
    fn services_whose_words_change_have_the_file_written_once_a_minute() {
        let folder = tempfile::tempdir().unwrap();
        let cache = WellKnownCache::open(folder.path().join("services.json"));
        let right = dest("https://photos.example/hoop/post");
        let mut writes = 0;
        for second in 0..120 {
            let post = format!("https://photos.example/{second}");
            cache.put(&right.origin, Ok(WellKnown { post, ..good(&right) }), at(second)).unwrap();
            let now = Timestamp::from_secs(second);
            if cache.is_due(now) {
                cache.keep(now);
                writes += 1;
            }
        }
        assert_eq!(writes, 2);
        assert!(cache.is_due(Timestamp::from_secs(120)), "what came last is written, too");
    }

    #[test]
    fn what_services_said_survives_a_restart_and_garbage_is_forgotten() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("services.json");
        let right = dest("https://photos.example/hoop/post");
        let cache = WellKnownCache::open(file.clone());
        let word = cache.put(&right.origin, Ok(good(&right)), at(100)).unwrap();
        assert!(word.permits_required && word.keys.len() == 1, "{word:?}");
        assert!(cache.is_due(Timestamp::ZERO));
        cache.keep(Timestamp::ZERO);
        assert!(!cache.is_due(Timestamp::from_secs(100)), "the file has it");
        let reopened = WellKnownCache::open(file.clone());
        assert_eq!(reopened.last_good(&right.origin, at(200)), Some(word));
        assert_eq!(reopened.acquaintance(&right.origin), Acquaintance::Ask { worth_waiting: false });
        std::fs::write(&file, "[{").unwrap();
        assert!(WellKnownCache::open(file).last_good(&right.origin, at(200)).is_none());
    }
}
