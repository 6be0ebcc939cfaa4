//! What services say of themselves at `/.well-known/hoop`, kept for a while: [`WellKnownCache`].

use crate::destination::Dest;
use hoop_http::Origin;
use serde::Deserialize;
use serde_json::error::Category;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use url::Url;

/// Origins that are remembered; beyond it the oldest is forgotten. A home talks to a handful of services.
const ORIGINS_MAX: usize = 256;

/// How long a good answer holds: a service that moved its post URL is noticed within ten minutes.
const GOOD: Duration = Duration::from_secs(10 * 60);

/// How long a bad one does: an operator who has just set a service up should not have to wait.
const BAD: Duration = Duration::from_secs(60);

/// The longest document that is read.
pub const DOCUMENT_MAX: usize = 64 * 1024;

/// What a gateway needs to know of a service.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct WellKnown {
    /// The post URL, without a slash at the end.
    pub post: String,
    /// Where uploads are asked after, without a slash at the end.
    pub uploads: Url,
}

#[derive(Deserialize)]
struct Document {
    hoop: u32,
    origin: String,
    post: String,
    uploads: String,
    record_size: u32,
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
        let uploads =
            Url::parse(document.uploads.trim_end_matches('/')).map_err(|error| format!("`uploads`: {error}"))?;
        if Origin::of(&uploads).ok().as_ref() != Some(origin) {
            return Err("its `uploads` lies at another origin".to_owned());
        }
        let post = Url::parse(&document.post).map_err(|error| format!("`post`: {error}"))?;
        Ok(Self { post: post.as_str().trim_end_matches('/').to_owned(), uploads })
    }

    /// Why an upload for `dest` cannot go to this service, if so.
    fn refusal(&self, dest: &Dest) -> Option<String> {
        let other = self.post != dest.url;
        other.then(|| format!("its post URL is another than {}", dest.url))
    }
}

#[derive(Debug)]
struct Known {
    at: Instant,
    /// The document, or why there is none.
    word: Result<Arc<WellKnown>, String>,
}

impl Known {
    fn holds(&self) -> bool {
        self.at.elapsed() < if self.word.is_ok() { GOOD } else { BAD }
    }
}

/// What services said, by origin.
#[derive(Debug, Default)]
pub struct WellKnownCache {
    known: Mutex<BTreeMap<Origin, Known>>,
}

impl WellKnownCache {
    /// Why `dest` is known not to take sealed uploads; `None` if it takes them or nothing is known.
    pub fn refusal(&self, dest: &Dest) -> Option<String> {
        self.get(&dest.origin)?.map_or_else(Some, |document| document.refusal(dest))
    }

    /// What is known of an origin and still holds.
    pub fn get(&self, origin: &Origin) -> Option<Result<Arc<WellKnown>, String>> {
        self.lock().get(origin).filter(|known| known.holds()).map(|known| known.word.clone())
    }

    /// Remembers what an origin said.
    pub fn put(&self, origin: &Origin, word: Result<WellKnown, String>) -> Result<Arc<WellKnown>, String> {
        let mut known = self.lock();
        if known.len() >= ORIGINS_MAX && !known.contains_key(origin) {
            let oldest = known.iter().min_by_key(|(_, known)| known.at).map(|(origin, _)| origin.clone());
            oldest.iter().for_each(|origin| {
                known.remove(origin);
            });
        }
        let word = word.map(Arc::new);
        known.insert(origin.clone(), Known { at: Instant::now(), word: word.clone() });
        word
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<Origin, Known>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::destination::Destinations;

    const GOOD_DOCUMENT: &str = r#"{"hoop":1,"origin":"https://photos.example","post":"https://photos.example/hoop/post",
        "tickets":"https://photos.example/hoop/tickets","uploads":"https://photos.example/hoop/uploads",
        "suites":["aes256gcm"],"record_size":65536,"max_bytes":1}"#;

    fn dest(url: &str) -> Dest {
        Destinations::default().check(url).unwrap()
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
        let why = known.refusal(&right).unwrap();
        assert!(!why.contains("call"), "{why}");
    }

    #[test]
    fn a_dest_that_is_not_the_post_url_named_is_refused() {
        let cache = WellKnownCache::default();
        let right = dest("https://photos.example/hoop/post");
        assert_eq!(cache.refusal(&right), None, "nothing is known yet");
        cache.put(&right.origin, WellKnown::parse(GOOD_DOCUMENT.as_bytes(), &right.origin)).unwrap();
        assert_eq!(cache.refusal(&right), None);
        assert!(cache.refusal(&dest("https://photos.example/elsewhere")).is_some());
        cache.put(&right.origin, Err("404".to_owned())).unwrap_err();
        assert_eq!(cache.refusal(&right).as_deref(), Some("404"));
    }

    #[test]
    fn the_cache_forgets_the_oldest_rather_than_grow() {
        let cache = WellKnownCache::default();
        for i in 0..2 * ORIGINS_MAX {
            let _ = cache.put(&format!("https://s{i}.example").parse().unwrap(), Err(String::new()));
        }
        assert_eq!(cache.lock().len(), ORIGINS_MAX);
        assert!(cache.get(&"https://s0.example".parse().unwrap()).is_none());
    }
}
