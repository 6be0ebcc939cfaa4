//! A user's uploads as they change: server-sent events (`docs/protocol.md` §6, "Events").
//!
//! Promises: an event `uploads` with the whole list at once; then an event `upload` for each that changes, at most one a
//! second for each.
//!
//! Bounds: [`STREAMS_MAX`] readers, [`STREAMS_OF_ONE_MAX`] of one owner.

use crate::core::Core;
use crate::guard;
use crate::listing::{self, Entry};
use crate::owner::{Caller, Tag};
use crate::state::State;
use hoop_http::{Body, Code, Events, Problem, Shutdown};
use hoop_units::UploadId;
use http::{HeaderMap, Response};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::sync::broadcast::{self, error::TryRecvError};
use tokio::time::MissedTickBehavior;

/// Readers at once: half of the connections that the server takes.
const STREAMS_MAX: usize = 256;

/// Readers of one owner: as many open tabs.
const STREAMS_OF_ONE_MAX: usize = 8;

/// How often it is looked for changes.
const PACE: Duration = Duration::from_secs(1);

/// Who reads: how many streams each owner has.
#[derive(Default)]
pub struct Streams(Mutex<BTreeMap<Tag, usize>>);

/// A reader's place.
struct Slot {
    streams: Arc<Streams>,
    tag: Tag,
}

impl Streams {
    fn enter(self: &Arc<Self>, tag: Tag) -> Result<Slot, Problem> {
        let mut open = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let own = open.get(&tag).copied().unwrap_or_default();
        if own >= STREAMS_OF_ONE_MAX || open.values().sum::<usize>() >= STREAMS_MAX {
            let problem = Problem::new(Code::TooManyRequests, "too many streams of events");
            return Err(problem.retry_after(Duration::from_secs(30)));
        }
        open.insert(tag, own + 1);
        Ok(Slot { streams: self.clone(), tag })
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        let mut open = self.streams.0.lock().unwrap_or_else(PoisonError::into_inner);
        match open.get_mut(&self.tag) {
            Some(count) if *count > 1 => *count -= 1,
            _ => drop(open.remove(&self.tag)),
        }
    }
}

/// `GET /hoop/uploads` as a stream of events, for whoever asks.
///
/// # Errors
/// `origin-forbidden`, `sign-in-required`, `upstream-unreachable`, `too-many-requests`, or the store's.
pub async fn uploads(
    core: &Arc<Core>,
    headers: &HeaderMap,
    address: IpAddr,
    shutdown: Shutdown,
) -> Result<Response<Body>, Problem> {
    guard::own_page(headers, &core.origin)?;
    let caller = Caller::of(core, headers, address).await?;
    let tags = caller.signed_in()?.to_vec();
    let slot = core.streams.enter(tags[0])?;
    // Listening begins before looking, so that no change falls in between.
    let news = core.store.news();
    let entries = listing::all(core, &tags).await?;
    let core = core.clone();
    Ok(hoop_http::events(shutdown, |events| async move {
        let _slot = slot;
        events.send("uploads", &listing::document(&entries)).await;
        let shown = entries.iter().map(|entry| (entry.id(), likeness(entry))).collect();
        if let Err(problem) = (Watch { core, tags, news, shown }).run(&events).await {
            tracing::debug!(code = %problem.code, "a stream of events ended early");
        }
    }))
}

/// What tells one event from the next. Each look at what is coming in has another time; that is no change.
fn likeness(entry: &Entry) -> Value {
    let mut document = entry.document();
    if entry.state() == State::Receiving.name() {
        document["updated"] = Value::Null;
    }
    document
}

/// One reader's view.
struct Watch {
    core: Arc<Core>,
    tags: Vec<Tag>,
    news: broadcast::Receiver<UploadId>,
    /// What the reader has seen last of each.
    shown: BTreeMap<UploadId, Value>,
}

impl Watch {
    async fn run(&mut self, events: &Events) -> Result<(), Problem> {
        let mut pace = tokio::time::interval(PACE);
        pace.set_missed_tick_behavior(MissedTickBehavior::Delay);
        pace.tick().await;
        loop {
            pace.tick().await;
            for entry in self.changed().await? {
                let likeness = likeness(&entry);
                if self.shown.get(&entry.id()) != Some(&likeness) {
                    events.send("upload", &entry.document()).await;
                    self.shown.insert(entry.id(), likeness);
                }
            }
        }
    }

    /// What may have changed.
    async fn changed(&mut self) -> Result<Vec<Entry>, Problem> {
        let mut ids: BTreeSet<UploadId> = BTreeSet::new();
        loop {
            match self.news.try_recv() {
                Ok(id) => drop(ids.insert(id)),
                // So much has changed that all is looked at. What is long over is not, and is let go of.
                Err(TryRecvError::Lagged(_)) => {
                    let entries = listing::all(&self.core, &self.tags).await?;
                    self.shown.retain(|id, _| entries.iter().any(|entry| entry.id() == *id));
                    return Ok(entries);
                }
                Err(TryRecvError::Empty | TryRecvError::Closed) => break,
            }
        }
        for upload in self.core.live.coming(self.core.clock.unix()).await {
            let told = upload.facts.as_ref().is_some_and(|facts| self.tags.contains(&facts.owner));
            if told || self.shown.contains_key(&upload.id) {
                ids.insert(upload.id);
            }
        }
        let mut entries = Vec::new();
        for id in ids {
            entries.extend(listing::one(&self.core, &self.tags, id).await?);
        }
        Ok(entries)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_owner_has_eight_streams_and_all_together_256_and_each_is_given_back() {
        let streams = Arc::new(Streams::default());
        let own: Vec<_> = (0..8).map(|_| streams.enter([1; 16]).unwrap()).collect();
        assert_eq!(streams.enter([1; 16]).err().unwrap().code, Code::TooManyRequests);
        let others: Vec<_> = (2..33).flat_map(|n| [n; 8]).map(|n| streams.enter([n; 16]).unwrap()).collect();
        assert!(streams.enter([99; 16]).is_err(), "256 in all");
        drop(own);
        assert!(streams.enter([99; 16]).is_ok());
        drop(others);
        assert!(streams.0.lock().unwrap().is_empty());
    }
}
