//! Answers requests from what is kept, or has them made and keeps what comes: [`Cache`].
//!
//! Bounds: [`DRAFTS_MAX`] bodies are kept at once while they come, each with [`BLOCK`] twice in memory at most. Where there is no disk, they take half of the memory at most.

use super::directives::Directives;
use super::draft::{Draft, End, Next};
use super::entry::{self, Entry};
use super::flight::{Boarded, Came, Coming, Flight, Flights, Head, PATIENCE, Seat};
use super::key::{Asker, Digest, target};
use super::library::{CacheConfig, Library, Look, Room, STEP_MAX, STEP_MIN};
use super::policy::{Policy, Times};
use super::record::Record;
use super::reply::{Reply, is_conditional};
use super::status::{Forward, Outcome};
use crate::codes;
use crate::continuation::Version;
use crate::exchange::via;
use crate::server::egress::Allowed;
use crate::server::fetch::{Source, bring, encode, fetch, pass_on, settle, split};
use crate::server::metrics::{CacheCounters, CacheFigures};
use crate::server::objects::Object;
use crate::server::origins::{Origins, asks_for_connection};
use crate::server::places::Places;
use crate::server::reserve::Reserve;
use bytes::Bytes;
use hoop_endpoint::DeviceId;
use hoop_http::{Clock, Lines, empty};
use http::header::{
    CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_LOCATION, CONTENT_RANGE, DATE, ETAG, HOST, IF_MODIFIED_SINCE,
    IF_NONE_MATCH, LAST_MODIFIED, LOCATION, SET_COOKIE, VIA,
};
use http::uri::Uri;
use http::{HeaderMap, HeaderName, Method, Request, Response, StatusCode, Version as HttpVersion, request, response};
use parking_lot::Mutex;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, SystemTime};
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout, timeout_at};

/// So many bodies are kept at once while they come, a quarter of those that are free for one device: 32 MiB of memory. Others are passed on without being kept.
const DRAFTS_MAX: usize = 64;

/// How often an answer is looked for again that was not what one waited for.
const LOOKS: usize = 4;

/// What an answer to a validation does not say anew, since the body is as it was (RFC 9111 §3.2).
const OF_BODY: [HeaderName; 3] = [CONTENT_LENGTH, CONTENT_ENCODING, CONTENT_RANGE];

static LINES: Lines = Lines::new();

/// Answers that are kept for the next who asks.
#[derive(Debug)]
pub(crate) struct Cache {
    library: Library,
    flights: Flights,
    drafts: Arc<Places>,
    /// Requests that are made.
    tasks: Mutex<JoinSet<()>>,
    counters: CacheCounters,
    clock: Clock,
}

/// What a request is made for.
struct Errand {
    request: request::Parts,
    asker: Asker,
    stale: Option<Arc<Entry>>,
    device: DeviceId,
    origins: Arc<Origins>,
    /// The answer came over a connection that has brought another before: it is for this device alone, since it may begin with what its web server sent too much of that.
    was_used: bool,
}

impl Errand {
    /// The request as the origin gets it: whether what is there is still as it was.
    fn request(&self) -> request::Parts {
        let mut request = self.request.clone();
        let Some(stale) = &self.stale else { return request };
        for (condition, validator) in [(IF_NONE_MATCH, ETAG), (IF_MODIFIED_SINCE, LAST_MODIFIED)] {
            if let Some(value) = stale.headers.get(validator) {
                request.headers.insert(condition, value.clone());
            }
        }
        request
    }

    /// Whether an answer that nothing has changed is about what is there.
    fn validates(&self, answer: &HeaderMap) -> bool {
        let weak = |headers: &HeaderMap| {
            let etag = headers.get(ETAG)?.to_str().ok()?;
            Some(etag.trim_start_matches("W/").to_owned())
        };
        let stale = self.stale.as_ref().filter(|stale| has_validator(&stale.headers));
        stale.is_some_and(|stale| weak(answer).is_none_or(|etag| weak(&stale.headers) == Some(etag)))
    }

    /// Whether what is there is others', too, and this answer is not.
    fn spares(&self, stale: &Entry) -> bool {
        self.was_used && stale.record.selector.owner.is_none()
    }

    /// What an answer is kept as, if it is.
    fn record(&self, status: StatusCode, headers: &HeaderMap, times: Times, place: Digest) -> Option<(Record, Policy)> {
        entry::kept(&self.asker, &self.request.headers, self.was_used, (status, headers), times, place)
    }
}

fn has_validator(headers: &HeaderMap) -> bool {
    headers.contains_key(ETAG) || headers.contains_key(LAST_MODIFIED)
}

/// Sees to it that a request that ends has landed, and that whoever waits for it learns that.
struct Landing<'a> {
    cache: &'a Cache,
    flight: &'a Arc<Flight>,
}

impl Drop for Landing<'_> {
    fn drop(&mut self) {
        self.cache.flights.land(self.flight);
        self.flight.came.send_if_modified(|came| {
            let is_lost = came.is_none();
            if is_lost {
                *came = Some(Came::Failed(codes::BROKEN));
            }
            is_lost
        });
    }
}

impl Cache {
    /// Opens it. None: it is switched off. `folder`: where its files are, if there are any.
    ///
    /// # Errors
    /// If the folder cannot be used.
    pub(crate) fn open(
        config: CacheConfig,
        folder: Option<(&Path, Arc<Reserve>)>,
        allowed: &Allowed,
        files: Arc<Places>,
        clock: Clock,
        is_known: impl Fn(DeviceId) -> bool,
    ) -> io::Result<Option<Arc<Self>>> {
        if config.memory == 0 && (config.disk == 0 || folder.is_none()) {
            return Ok(None);
        }
        let place = Digest::of([format!("{allowed:?}").as_bytes()]);
        let library = Library::open(config, folder, place, files, is_known)?;
        let drafts = Places::new(DRAFTS_MAX, DRAFTS_MAX);
        let (flights, tasks, counters) = (Flights::default(), Mutex::default(), CacheCounters::default());
        Ok(Some(Arc::new(Self { library, flights, drafts, tasks, counters, clock })))
    }

    /// What time it is, as it is judged: else an answer would be fresh for longer by as much as the wall clock is set back.
    fn now(&self) -> SystemTime {
        SystemTime::UNIX_EPOCH + Duration::from_secs(self.clock.unix().0.into())
    }

    /// Its clock, which somebody has to look at now and then.
    pub(crate) const fn clock(&self) -> &Clock {
        &self.clock
    }

    /// What metrics tell.
    pub(crate) fn figures(&self) -> CacheFigures<'_> {
        let (disk, memory, entries) = self.library.usage();
        CacheFigures { counters: &self.counters, disk, memory, entries: entries as u64 }
    }

    /// Ends all requests that it makes.
    pub(crate) fn shut_down(&self) {
        self.tasks.lock().abort_all();
    }

    /// Removes what is of these devices alone.
    pub(crate) fn forget(&self, is_gone: impl Fn(DeviceId) -> bool) {
        self.library.forget(is_gone);
    }

    /// Has a request without a body answered into an object.
    pub(crate) async fn fetch(
        self: &Arc<Self>,
        object: &Object,
        request: request::Parts,
        device: DeviceId,
        origins: &Arc<Origins>,
    ) {
        let Some(asker) = asker(&request, device, origins) else {
            return self.pass(object, request, device, origins, Forward::Bypass).await;
        };
        let asked = Directives::of_request(&request.headers);
        let mut is_alone = !asked.is_empty();
        let mut why = Forward::UriMiss;
        for _ in 0..LOOKS {
            let look = self.library.find(&asker, &request.headers).await;
            let now = self.now();
            why = look.why;
            if let Some(entry) = &look.entry {
                if entry.policy.answers(&request.headers, now) {
                    let Some(reply) = Reply::of(entry, &request, now) else {
                        return self.pass(object, request, device, origins, Forward::Request).await;
                    };
                    let outcome = Outcome::Hit { left: entry.policy.left(now) };
                    return self.give(object, request, entry, reply, outcome, device, origins).await;
                }
                why = if entry.policy.is_fresh(now) { Forward::Request } else { Forward::Stale };
            }
            if asked.has("only-if-cached") {
                return refuse(object).await;
            }
            if is_conditional(&request.headers) || asked.has("no-store") {
                break;
            }
            let Look { entry: stale, latest, .. } = look;
            let has_changed = || self.library.latest(asker.target) != latest;
            let seat = match self.flights.board(&asker, is_alone, has_changed) {
                Boarded::Changed => continue,
                Boarded::Full => break,
                Boarded::Joins(seat) => seat,
                Boarded::Leads(flight, seat) => {
                    let (request, asker, origins) = (request.clone(), asker.clone(), origins.clone());
                    self.begin(flight, Errand { request, asker, stale, device, origins, was_used: false });
                    seat
                }
            };
            if self.ride(seat, object, &request, &asker, why, device, origins).await {
                return;
            }
            is_alone = true;
        }
        self.pass(object, request, device, origins, why).await;
    }

    /// The head that answers a request for it (`HEAD`), if it is there.
    pub(crate) async fn head(&self, request: &request::Parts, device: DeviceId, origins: &Origins) -> Option<Vec<u8>> {
        let asker = asker(request, device, origins)?;
        let entry = self.library.find(&asker, &request.headers).await.entry;
        let now = self.now();
        let asked = Directives::of_request(&request.headers);
        match entry.filter(|entry| entry.policy.answers(&request.headers, now)) {
            Some(entry) => {
                let mut reply = Reply::of(&entry, request, now)?;
                Outcome::Hit { left: entry.policy.left(now) }.mark(&mut reply.head.headers);
                self.counters.hits.fetch_add(1, Ordering::Relaxed);
                encode(&reply.head).ok()
            }
            None if asked.has("only-if-cached") => encode(&only_if_cached()).ok(),
            None => None,
        }
    }

    /// A request that the cache cannot answer was answered so: what it may have changed is forgotten (RFC 9111 §4.4), and the answer says that it was forwarded.
    pub(crate) async fn passed(&self, method: &Method, uri: &Uri, head: &mut response::Parts) {
        if !method.is_safe() && (head.status.is_success() || head.status.is_redirection()) {
            let named = [LOCATION, CONTENT_LOCATION]
                .map(|name| head.headers.get(name).and_then(|to| on_origin(uri, to.to_str().ok()?)));
            for target in named.into_iter().flatten().chain([target(uri)]) {
                self.flights.invalidate(target);
                self.library.remove_target(target).await;
            }
        }
        let why = match *method {
            Method::HEAD => Forward::Miss,
            // It has a body.
            Method::GET => Forward::Bypass,
            _ => Forward::Method,
        };
        Outcome::Forwarded { why, status: None, is_stored: false }.mark(&mut head.headers);
    }

    // ---- who asks ----

    /// Has the origin answer, and keeps nothing.
    async fn pass(&self, object: &Object, request: request::Parts, device: DeviceId, origins: &Origins, why: Forward) {
        self.counters.passed.fetch_add(1, Ordering::Relaxed);
        let outcome = Outcome::Forwarded { why, status: None, is_stored: false };
        fetch(object, request, device, origins, |headers| outcome.mark(headers)).await;
    }

    /// Answers from an entry.
    #[expect(clippy::too_many_arguments, reason = "what a request has, and what answers it")]
    async fn give(
        &self,
        object: &Object,
        request: request::Parts,
        entry: &Entry,
        mut reply: Reply,
        outcome: Outcome,
        device: DeviceId,
        origins: &Origins,
    ) {
        let counter = match outcome {
            Outcome::Hit { .. } => &self.counters.hits,
            _ => &self.counters.validated,
        };
        counter.fetch_add(1, Ordering::Relaxed);
        outcome.mark(&mut reply.head.headers);
        let section = match encode(&reply.head) {
            Ok(section) => section,
            Err(code) => return object.end(Err(code)).await,
        };
        object.begin(section.into());
        let mut at = reply.range.start;
        while at < reply.range.end {
            match entry.read(at).await {
                Ok(mut bytes) if !bytes.is_empty() => {
                    bytes.truncate(usize::try_from(reply.range.end - at).unwrap_or(usize::MAX));
                    at += bytes.len() as u64;
                    object.push(bytes).await;
                }
                read => {
                    let error = read.err().unwrap_or_else(|| io::ErrorKind::UnexpectedEof.into());
                    LINES.warn("an answer that was kept cannot be read, and is asked for again", &error);
                    self.library.remove(entry.record.selector.id()).await;
                    let version = Version::of(&request, &reply.head);
                    return bring(object, version.map(|version| (version, request)), None, device, origins).await;
                }
            }
        }
        object.end(Ok(())).await;
    }

    /// Waits for an answer, and passes it on. False: it is not for whoever waits, who has to ask again.
    #[expect(clippy::too_many_arguments, reason = "what a request has, and where its answer goes")]
    async fn ride(
        &self,
        mut seat: Seat,
        object: &Object,
        request: &request::Parts,
        asker: &Asker,
        why: Forward,
        device: DeviceId,
        origins: &Origins,
    ) -> bool {
        let is_first = seat.is_first();
        match seat.came(|leader| leader != device && origins.egress.is_behind(leader)).await {
            None if is_first => object.end(Err(codes::BROKEN)).await,
            None => {
                self.has_waited_for(seat.waited_for(), device);
                return false;
            }
            Some(Came::Failed(code)) if is_first => object.end(Err(code)).await,
            // It may have failed by what the device of the first may do.
            Some(Came::Failed(_)) => return false,
            Some(Came::Passed(answer)) => {
                let answer = if is_first { answer.lock().take() } else { None };
                let Some((mut head, source)) = answer else { return false };
                self.counters.misses.fetch_add(1, Ordering::Relaxed);
                Outcome::Forwarded { why, status: None, is_stored: false }.mark(&mut head.headers);
                pass_on(object, request.clone(), head, source, device, origins).await;
            }
            Some(Came::Answered { entry, outcome, is_for_all, cookies }) => {
                let is_theirs = is_for_all
                    && entry.record.selector.selects(asker, &request.headers)
                    && (entry.policy.answers(&request.headers, self.now())
                        || matches!(outcome, Outcome::StaleIfError { .. }));
                if !is_first && !is_theirs {
                    return false;
                }
                let Some(mut reply) = Reply::of(&entry, request, self.now()) else { return false };
                if is_first {
                    reply.head.headers.extend(cookies.into_iter().map(|cookie| (SET_COOKIE, cookie)));
                }
                self.give(object, request.clone(), &entry, reply, outcome, device, origins).await;
            }
            Some(Came::Comes(coming)) => {
                if !is_first && !self.awaits(&coming, request, asker, seat.until()).await {
                    self.has_waited_for(seat.waited_for(), device);
                    return false;
                }
                let outcome = match is_first {
                    true => Outcome::Forwarded { why, status: coming.status, is_stored: true },
                    false => Outcome::Collapsed { why },
                };
                let counter = if is_first { &self.counters.misses } else { &self.counters.collapsed };
                counter.fetch_add(1, Ordering::Relaxed);
                self.follow(&coming, is_first, outcome, object, request, device, origins).await;
            }
        }
        true
    }

    /// Whether what comes for another is for this request, too. What has no length might not be kept in the end, and of what has no version nobody can have the rest: whoever asked first could hold it
    /// by reading nothing. It is waited for.
    async fn awaits(&self, coming: &Coming, request: &request::Parts, asker: &Asker, until: Instant) -> bool {
        let can_go_on = || coming.length.is_some() && Version::of(request, &parts(&coming.head)).is_some();
        coming.record.selector.selects(asker, &request.headers)
            && coming.policy.answers(&request.headers, self.now())
            && (can_go_on() || timeout_at(until, coming.draft.ended()).await == Ok(End::Whole))
    }

    /// A device has waited for this one's request for as long as one waits, if for any.
    fn has_waited_for(&self, leader: Option<DeviceId>, device: DeviceId) {
        leader.filter(|leader| *leader != device).into_iter().for_each(|leader| self.flights.is_slow(leader));
    }

    /// Passes on what comes, as it comes.
    #[expect(clippy::too_many_arguments, reason = "what comes, and where it goes")]
    async fn follow(
        &self,
        coming: &Coming,
        is_first: bool,
        outcome: Outcome,
        object: &Object,
        request: &request::Parts,
        device: DeviceId,
        origins: &Origins,
    ) {
        let mut head = parts(&coming.head);
        outcome.mark(&mut head.headers);
        let section = match encode(&head) {
            Ok(section) => section,
            Err(code) => return object.end(Err(code)).await,
        };
        object.begin(section.into());
        let again = Version::of(request, &head).map(|version| (version, request.clone()));
        let mut at = 0;
        // Whoever could go on alone waits for another only as long as something comes.
        let may_leave = !is_first && again.is_some();
        let end = loop {
            let next = match may_leave {
                true => timeout(PATIENCE, coming.draft.next(at)).await.unwrap_or_else(|_| {
                    self.has_waited_for(Some(coming.leader), device);
                    Ok(Next::End(End::NotKept))
                }),
                false => coming.draft.next(at).await,
            };
            match next {
                Ok(Next::Bytes(bytes)) => {
                    at += bytes.len() as u64;
                    object.push(bytes).await;
                }
                Ok(Next::End(end)) => break end,
                Err(error) => {
                    LINES.warn("an answer that is to be kept cannot be read", &error);
                    break End::Broken(codes::BROKEN);
                }
            }
        };
        let rest = coming.rest.lock().take_if(|_| is_first);
        match end {
            End::Whole => object.end(Ok(())).await,
            End::Broken(code) if again.is_none() => object.end(Err(code)).await,
            End::Broken(_) | End::NotKept => bring(object, again, rest, device, origins).await,
        }
    }

    // ---- who makes the request ----

    fn begin(self: &Arc<Self>, flight: Arc<Flight>, errand: Errand) {
        let cache = self.clone();
        let mut tasks = self.tasks.lock();
        while tasks.try_join_next().is_some() {}
        tasks.spawn(async move {
            let _landing = Landing { cache: &cache, flight: &flight };
            tokio::select! {
                () = cache.make(&flight, errand) => {}
                // It goes with the last who waits for it.
                () = cache.flights.abandoned(&flight) => {}
            }
        });
    }

    async fn make(&self, flight: &Arc<Flight>, mut errand: Errand) {
        let tell = |came| drop(flight.came.send_replace(Some(came)));
        loop {
            let asked = self.now();
            let sent = Request::from_parts(errand.request(), empty());
            let answered = errand.origins.send(errand.device, sent).await;
            let times = Times { asked, came: self.now() };
            errand.was_used = answered.as_ref().is_ok_and(|answered| answered.was_used);
            let is_error = answered.as_ref().map_or(true, |answered| is_trouble(answered.response.status()));
            let stands_in = |stale: &&Arc<Entry>| is_error && stale.policy.answers_errors(times.came);
            if let Some(entry) = errand.stale.as_ref().filter(stands_in).cloned() {
                let status = answered.ok().map(|answered| answered.response.status().as_u16());
                let outcome = Outcome::StaleIfError { status };
                return tell(Came::Answered { entry, outcome, is_for_all: true, cookies: Vec::new() });
            }
            let (mut head, source) = match answered.map(|answered| split(answered, 0)) {
                Ok(answered) => answered,
                Err(code) => return tell(Came::Failed(code)),
            };
            if let Err(code) = settle(&mut head) {
                return tell(Came::Failed(code));
            }
            let stale = errand.stale.clone().filter(|stale| has_validator(&stale.headers));
            if let Some(stale) = stale.filter(|_| head.status == StatusCode::NOT_MODIFIED) {
                if !errand.validates(&head.headers) {
                    // It is about something else. What is there is of no use any more.
                    if !errand.spares(&stale) {
                        self.library.remove(stale.record.selector.id()).await;
                    }
                    errand.stale = None;
                    continue;
                }
                return tell(self.validated(flight, &errand, &stale, &head.headers, times).await);
            }
            return self.take(flight, &errand, head, source, times).await;
        }
    }

    /// What is there is as it was: its head is made anew (RFC 9111 §3.2).
    async fn validated(
        &self,
        flight: &Arc<Flight>,
        errand: &Errand,
        stale: &Entry,
        answer: &HeaderMap,
        times: Times,
    ) -> Came {
        let mut headers = stale.headers.clone();
        let is_anew = |name: &&HeaderName| !OF_BODY.contains(name) && **name != SET_COOKIE && **name != VIA;
        for name in answer.keys().filter(is_anew) {
            headers.remove(name);
            for value in answer.get_all(name) {
                headers.append(name, value.clone());
            }
        }
        let cookies = answer.get_all(SET_COOKIE).iter().cloned().collect();
        let kept = errand.record(stale.status, &headers, times, self.library.place());
        let is_kept = kept.is_some();
        let id = stale.record.selector.id();
        let record = kept
            .map(|(record, _)| record)
            .unwrap_or_else(|| Record { section: encoded(stale.status, &headers), ..stale.record.clone() });
        let (length, sums) = (stale.record.length, stale.record.sums.clone());
        let is_same = is_kept && record.selector.id() == id;
        let entry = Entry::new(Record { length, sums, ..record }, stale.body.clone());
        let Some(entry) = entry.map(Arc::new) else { return Came::Failed(codes::NO_HTTP) };
        match is_same {
            true => self.library.refresh(&entry, flight.is_kept()).await,
            false if errand.spares(stale) => {}
            false => self.library.remove(id).await,
        }
        let outcome = Outcome::Forwarded { why: Forward::Stale, status: Some(304), is_stored: is_same };
        Came::Answered { entry, outcome, is_for_all: is_kept, cookies }
    }

    /// Keeps an answer as it comes, or hands it to whoever asked first.
    async fn take(
        &self,
        flight: &Arc<Flight>,
        errand: &Errand,
        mut head: response::Parts,
        source: Source,
        times: Times,
    ) {
        // RFC 9110 §6.6.1.
        if !head.headers.contains_key(DATE)
            && let Ok(date) = httpdate::fmt_http_date(times.came).parse()
        {
            head.headers.insert(DATE, date);
        }
        let record = errand.record(head.status, &head.headers, times, self.library.place());
        let length = match head.status {
            StatusCode::NO_CONTENT => Some(0),
            _ => head.headers.get(CONTENT_LENGTH).and_then(|length| length.to_str().ok()?.parse().ok()),
        };
        let is_right = length.is_none_or(|length| length <= self.library.entry_max());
        if record.is_none() || !is_right {
            self.flights.pass(&errand.asker);
        }
        let draft = self.drafts.take_now(errand.asker.owner.device);
        let room = self.library.room(errand.asker.owner.device);
        let may_keep = is_right && self.library.may_keep(&room, length);
        let kept = record.filter(|_| may_keep).zip(draft);
        let Some(((record, policy), _draft)) = kept else {
            let is_gone = |stale: &&Arc<Entry>| !head.status.is_server_error() && !errand.spares(stale);
            if let Some(stale) = errand.stale.as_ref().filter(is_gone) {
                // The origin has another answer now.
                self.library.remove(stale.record.selector.id()).await;
            }
            let answer = Arc::new(Mutex::new(Some((head, source))));
            return drop(flight.came.send_replace(Some(Came::Passed(answer))));
        };
        if record.selector.owner.is_some() && !errand.asker.has_credentials() {
            self.flights.pass(&errand.asker);
        } else {
            self.flights.pass_no_more(&errand.asker);
        }
        let status = errand.stale.as_ref().map(|_| head.status.as_u16());
        let head = Head { status: head.status, headers: head.headers };
        let (draft, rest) = (Draft::new(), Mutex::new(None));
        let coming = Arc::new(Coming { leader: errand.device, head, record, policy, length, draft, rest, status });
        flight.came.send_replace(Some(Came::Comes(coming.clone())));
        let end = self.bring(flight, &coming, source, room).await;
        self.flights.land(flight);
        coming.draft.end(end);
    }

    /// Brings a body into its draft, and keeps it once it is whole.
    async fn bring(&self, flight: &Arc<Flight>, coming: &Coming, mut source: Source, mut room: Room) -> End {
        let draft = &coming.draft;
        loop {
            let data = match source.next().await {
                Ok(Some(data)) => data,
                Ok(None) => break,
                Err(code) => return End::Broken(code),
            };
            let is_last = coming.length == Some(draft.len() + data.len() as u64);
            draft.push(data, is_last);
            if !self.has_room(coming, &mut room).await {
                *coming.rest.lock() = Some(source);
                return End::NotKept;
            }
        }
        if coming.length.is_some_and(|length| length != draft.len()) {
            return End::Broken(codes::BROKEN);
        }
        let mut record = coming.record.clone();
        if coming.length.is_none() {
            let mut headers = coming.head.headers.clone();
            headers.insert(CONTENT_LENGTH, draft.len().into());
            record.section = encoded(coming.head.status, &headers);
        }
        let is_there = || {
            self.flights.land(flight);
            draft.end(End::Whole);
        };
        let kept = self.library.keep(record, draft, room, flight.is_kept(), is_there).await;
        let _ = kept.inspect_err(|error| LINES.warn("an answer cannot be kept", error));
        source.close().await;
        End::Whole
    }

    /// Sees to it that what has come has room, and puts it on disk if it is large. False: it has none.
    async fn has_room(&self, coming: &Coming, room: &mut Room) -> bool {
        let (draft, len) = (&coming.draft, coming.draft.len());
        if len > room.bytes {
            // As much again as there is, and no more than is to come: a body has nothing make way for what never comes.
            let left = coming.length.map_or(u64::MAX, |length| length.saturating_sub(room.bytes));
            let step = room.bytes.clamp(STEP_MIN, STEP_MAX).min(left).max(len - room.bytes);
            if len > self.library.entry_max() || !self.library.grow(room, step).await {
                return false;
            }
        }
        let needs_file = self.library.has_disk() && len > self.library.small() && room.part.is_none();
        if needs_file && !self.library.make_file(room).await {
            return false;
        }
        let Some(part) = &room.part else { return true };
        let stored = draft.store(&part.file, false).await;
        stored.inspect_err(|error| LINES.warn("an answer cannot be kept", error)).is_ok()
    }
}

/// Who asks, if the cache may take part in it. A device that may go to some addresses alone gets nothing of what others have fetched, and so does a request for another host than its URI's, or
/// one that signs on for its whole connection.
fn asker(request: &request::Parts, device: DeviceId, origins: &Origins) -> Option<Asker> {
    let is_plain = request.uri.authority().is_some_and(|authority| !authority.as_str().contains('@'))
        && !request.headers.contains_key(HOST)
        && !asks_for_connection(&request.headers);
    (is_plain && origins.egress.devices.only(device).is_none()).then(|| Asker::of(request, device))
}

/// An origin that is in trouble says so with one of these.
const fn is_trouble(status: StatusCode) -> bool {
    matches!(status.as_u16(), 500 | 502 | 503 | 504)
}

/// The target of a field's value, if it is on the same origin (RFC 9111 §4.4).
fn on_origin(base: &Uri, to: &str) -> Option<Digest> {
    let base = url::Url::parse(&base.to_string()).ok()?;
    let to = base.join(to).ok()?;
    (to.origin() == base.origin())
        .then(|| to.as_str().split('#').next()?.parse().ok().map(|uri| target(&uri)))
        .flatten()
}

fn parts(head: &Head) -> response::Parts {
    let (mut parts, ()) = Response::new(()).into_parts();
    (parts.status, parts.headers) = (head.status, head.headers.clone());
    parts
}

/// A head as it is kept. One that has come can be written.
fn encoded(status: StatusCode, headers: &HeaderMap) -> Bytes {
    encode(&parts(&Head { status, headers: headers.clone() })).unwrap_or_default().into()
}

/// Nobody is asked, as the request wants (RFC 9111 §5.2.1.7).
fn only_if_cached() -> response::Parts {
    let (mut head, ()) = Response::new(()).into_parts();
    head.status = StatusCode::GATEWAY_TIMEOUT;
    head.headers.insert(CONTENT_LENGTH, 0.into());
    head.headers.insert(VIA, via(HttpVersion::HTTP_11));
    Outcome::OnlyIfCached.mark(&mut head.headers);
    head
}

async fn refuse(object: &Object) {
    match encode(&only_if_cached()) {
        Ok(section) => {
            object.begin(section.into());
            object.end(Ok(())).await;
        }
        Err(code) => object.end(Err(code)).await,
    }
}
