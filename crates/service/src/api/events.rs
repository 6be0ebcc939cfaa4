//! A user's uploads as they change: server-sent events (`docs/protocol.md` §6, "Events").
//!
//! Promises: an event `uploads` with the whole list comes at once. Then an event `upload` comes for each change, at
//! most one a second for each upload.
//!
//! Bounds: 256 readers (`crowd`), and as many that make way; eight of one owner (`streams`). A stream keeps
//! [`SHOWN_MAX`] fingerprints of what it has told, and a document only until it is text. So a reader who has stopped
//! reading holds one list as text ([`LIST_BYTES_MAX`](listing::LIST_BYTES_MAX), 512 KiB), later at most three events of
//! 74 KiB, and 1,024 fingerprints in 64 KiB: less than 0.6 MiB. Eight of one owner hold less than 5 MiB, and all 512 less than 300 MiB, whatever their
//! notes are made of. Of all streams, four look at the store at once ([`Streams`](crate::api::streams::Streams)). One
//! that has missed changes looks at its whole list, once in [`ALL_EVERY`] at most, and one stream does so at a time.

use crate::api::Api;
use crate::api::caller::Caller;
use crate::api::crowd::{self, Use};
use crate::api::guard;
use crate::api::listing::{self, Entry};
use crate::model::{State, Tag};
use crate::store::News;
use hoop_http::{Body, Code, Event, Events, Place, Problem, Shutdown};
use hoop_units::UploadId;
use http::{HeaderMap, Response};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::hash::{DefaultHasher, Hasher as _};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::broadcast::{self, error::TryRecvError};
use tokio::time::{Instant, MissedTickBehavior};

/// Uploads whose last event a stream remembers: ten lists. It may repeat the event of one that it has forgotten.
const SHOWN_MAX: usize = 1_024;

/// How often a stream looks for changes.
const PACE: Duration = Duration::from_secs(1);

/// How often it looks at its whole list at most.
const ALL_EVERY: Duration = Duration::from_secs(5);

/// `GET /hoop/uploads` as a stream of events, for whoever asks. Once it is known who that is, the connection has a place for
/// a list, and one for a stream when the list is there.
///
/// # Errors
/// `origin-forbidden`, `sign-in-required`, `upstream-unreachable`, `too-many-requests`, or the store's.
pub async fn uploads(
    api: &Arc<Api>,
    headers: &HeaderMap,
    (address, place): (IpAddr, Option<&Place>),
    shutdown: Shutdown,
) -> Result<Response<Body>, Problem> {
    guard::own_page(headers, &api.context.origin)?;
    let caller = Caller::of(api, headers, address).await?;
    let tags = caller.user()?.to_vec();
    let slot = api.streams.enter(tags[0])?;
    crowd::enter(place, Use::List, address).await?;
    // Subscribed before the first look, so that no change falls in between.
    let news = api.context.store.news();
    let entries = listing::all(api, &tags).await?;
    let mut shown = Shown::default();
    for entry in &entries {
        shown.is_news(entry);
    }
    let list = Event::new("uploads", &listing::document(&entries));
    drop(entries);
    crowd::enter(place, Use::Events, address).await?;
    let api = api.clone();
    Ok(hoop_http::events(shutdown, |events| async move {
        let _slot = slot;
        events.write(list).await;
        let watch = Watch { api, tags, news, shown, has_missed: false, looked: Instant::now() };
        if let Err(problem) = watch.run(&events).await {
            tracing::debug!(code = %problem.code, "a stream of events ended early");
        }
    }))
}

/// Fingerprints of what a reader has seen last of each upload. So long events cost no memory.
#[derive(Default)]
struct Shown(BTreeMap<UploadId, u64>);

impl Shown {
    /// Whether it differs from what was told last.
    fn would_be_news(&self, entry: &Entry) -> bool {
        self.0.get(&entry.id()) != Some(&fingerprint(entry))
    }

    /// Whether it differs from what was told last. It counts as told from now on.
    fn is_news(&mut self, entry: &Entry) -> bool {
        let fingerprint = fingerprint(entry);
        let is_news = self.0.insert(entry.id(), fingerprint) != Some(fingerprint);
        if self.0.len() > SHOWN_MAX {
            self.0.pop_first();
        }
        is_news
    }
}

/// Whether a change may concern a reader with these tags who was shown these uploads. Other changes are not looked at,
/// since many readers would look at each: so, too, where nobody knows whose it is, since anybody can bring that about.
/// Once it is known, there is another change.
fn concerns(news: News, tags: &[Tag], shown: &Shown) -> bool {
    news.owner.is_some_and(|owner| tags.contains(&owner)) || shown.0.contains_key(&news.id)
}

/// What tells one event from the next. An upload that comes in has another time at each look; that is no change. A
/// collision would leave out one event, of the user's own.
fn fingerprint(entry: &Entry) -> u64 {
    let mut document = entry.document();
    if entry.state() == State::Receiving.name() {
        document["updated"] = Value::Null;
    }
    let mut hasher = DefaultHasher::new();
    hasher.write(document.to_string().as_bytes());
    hasher.finish()
}

/// One reader's view.
struct Watch {
    api: Arc<Api>,
    tags: Vec<Tag>,
    news: broadcast::Receiver<News>,
    shown: Shown,
    /// It does not know of some changes.
    has_missed: bool,
    /// When it has looked at its whole list last.
    looked: Instant,
}

impl Watch {
    async fn run(mut self, events: &Events) -> Result<(), Problem> {
        let mut pace = tokio::time::interval(PACE);
        pace.set_missed_tick_behavior(MissedTickBehavior::Delay);
        pace.tick().await;
        loop {
            pace.tick().await;
            let mut ids = self.changed().await;
            let is_due = self.has_missed && self.looked.elapsed() >= ALL_EVERY;
            if let Some(turn) = is_due.then(|| self.api.streams.look_at_all()).flatten() {
                (self.has_missed, self.looked) = (false, Instant::now());
                let entries = listing::all(&self.api, &self.tags).await;
                drop(turn);
                match entries {
                    Ok(entries) => {
                        ids.extend(entries.iter().filter(|entry| self.shown.would_be_news(entry)).map(Entry::id));
                    }
                    // Ended, it would come again and ask for its list at once.
                    Err(problem) if problem.code == Code::TooManyRequests => self.has_missed = true,
                    Err(problem) => return Err(problem),
                }
            }
            for id in ids {
                let turn = self.api.streams.look().await;
                let entry = listing::one(&self.api, &self.tags, id, turn).await?;
                let news = entry.filter(|entry| self.shown.is_news(entry));
                // While it waits for a slow reader, it holds the event alone.
                let Some(event) = news.map(|entry| Event::new("upload", &entry.document())) else { continue };
                events.write(event).await;
            }
        }
    }

    /// What may have changed, as far as it knows.
    async fn changed(&mut self) -> BTreeSet<UploadId> {
        let mut ids: BTreeSet<UploadId> = BTreeSet::new();
        loop {
            match self.news.try_recv() {
                Ok(news) if concerns(news, &self.tags, &self.shown) => drop(ids.insert(news.id)),
                Ok(_) => {}
                Err(TryRecvError::Lagged(_)) => self.has_missed = true,
                Err(TryRecvError::Empty | TryRecvError::Closed) => break,
            }
        }
        let is_wanted = |id: UploadId, owner: Option<Tag>| {
            owner.is_some_and(|owner| self.tags.contains(&owner)) || self.shown.0.contains_key(&id)
        };
        let coming = self.api.receive.in_flight.coming(self.api.context.clock.unix(), is_wanted).await;
        ids.extend(coming.iter().map(|upload| upload.id));
        ids
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{Marked, Payer};
    use hoop_units::UnixTime;

    #[test]
    fn a_stream_tells_each_change_once_and_remembers_a_bounded_number() {
        let entry = |n: u32, at: u32| {
            let mut id = [0; 16];
            id[..4].copy_from_slice(&n.to_be_bytes());
            Entry::announced(Marked::new(UploadId(id), [1; 16], Payer::Owner([1; 16]), UnixTime(at), UnixTime(9)))
        };
        let mut shown = Shown::default();
        assert!(shown.would_be_news(&entry(1, 1)) && shown.is_news(&entry(1, 1)));
        assert!(!shown.would_be_news(&entry(1, 1)) && !shown.is_news(&entry(1, 1)) && shown.is_news(&entry(1, 2)));
        for n in 0..10_000 {
            assert!(n == 1 || shown.is_news(&entry(n, 2)), "{n}");
            assert!(!shown.is_news(&entry(n, 2)), "{n}");
        }
        assert_eq!(shown.0.len(), SHOWN_MAX);
    }

    #[test]
    fn a_stream_ignores_news_of_other_owners_uploads() {
        let news = |n: u8, owner| News { id: UploadId([n; 16]), owner };
        let mut shown = Shown::default();
        shown.0.insert(UploadId([9; 16]), 1);
        let concerns = |news| concerns(news, &[[1; 16], [2; 16]], &shown);
        assert!(!concerns(news(1, Some([3; 16]))));
        assert!(concerns(news(1, Some([2; 16]))));
        assert!(!concerns(news(1, None)), "nobody knows whose it is");
        assert!(concerns(news(9, None)), "it was shown");
        assert!(concerns(news(9, Some([3; 16]))), "it was shown, and is another's now");
    }
}
