//! Lists a user's uploads: [`Entry`], from the index, the notes, and what is coming in now.
//!
//! Bounds: [`LIST_MAX`] entries, and [`LIST_BYTES_MAX`] of JSON. No more notes are read than a list has room for.
//! [`LISTS_MAX`](crate::api::crowd::LISTS_MAX) lists are made at once; a client that waits for longer than [`WAIT`] has
//! to come again.

use crate::api::Api;
use crate::api::crowd::WAIT;
use crate::api::status;
use crate::model::{Marked, Note, State, Tag, Upload};
use crate::store::store_problem;
use hoop_http::{Code, Problem};
use hoop_units::{UnixTime, UploadId};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::time::Duration;
use tokio::sync::OwnedSemaphorePermit;

/// The most uploads that a list has (`docs/protocol.md` §7).
pub const LIST_MAX: usize = 100;

/// The longest list as JSON. With 20 names of files an upload takes 3 KiB, so that 100 fit, unless names and captions
/// have kilobytes. One upload has at most 64 KiB of note, 8 KiB of path and 2 KiB of the rest, so that one always fits.
pub const LIST_BYTES_MAX: usize = 512 * 1024;

/// One upload of a list.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Entry {
    /// What has come of it; none: nothing.
    pub upload: Option<Upload>,
    /// What its device or owner has said of it.
    pub marked: Option<Marked>,
    id: UploadId,
}

impl Entry {
    /// An upload of which something has come, with what was said of it.
    pub fn of(upload: Upload, marked: Option<Marked>) -> Self {
        Self { id: upload.id, upload: Some(upload), marked }
    }

    /// An upload of which nothing has come.
    pub fn announced(marked: Marked) -> Self {
        Self { id: marked.id, upload: None, marked: Some(marked) }
    }

    /// The upload's name.
    pub const fn id(&self) -> UploadId {
        self.id
    }

    /// Its state on the wire.
    pub fn state(&self) -> &'static str {
        match (&self.upload, &self.marked) {
            (Some(upload), _) => upload.state.shown(),
            (None, Some(Marked { stopped: true, .. })) => State::Stopped.name(),
            (None, _) => "announced",
        }
    }

    /// Whether its owner has paused it.
    pub fn is_paused(&self) -> bool {
        match (&self.upload, &self.marked) {
            (Some(upload), _) => upload.paused,
            (None, marked) => marked.as_ref().is_some_and(|marked| marked.paused && !marked.stopped),
        }
    }

    /// What its device has said.
    pub fn note(&self) -> Option<&Note> {
        self.marked.as_ref()?.note.as_ref()
    }

    /// When it was first heard of.
    pub fn created(&self) -> UnixTime {
        let times =
            [self.upload.as_ref().map(|upload| upload.created), self.marked.as_ref().map(|marked| marked.created)];
        times.into_iter().flatten().min().unwrap_or(UnixTime(0))
    }

    /// The status of `docs/protocol.md` §8.
    pub fn status(&self) -> Value {
        match (&self.upload, &self.marked) {
            (Some(upload), _) => status::document(upload),
            (None, Some(marked)) => status::announced(marked, self.state()),
            (None, None) => Value::Null,
        }
    }

    /// The status, with the members that only a list has, and without the answer, which only the device can open.
    pub fn document(&self) -> Value {
        let mut document = self.status();
        document.as_object_mut().map(|members| members.remove("answer"));
        let note = self.note();
        document["created"] = self.created().0.into();
        document["path"] = self.path().into();
        document["paused"] = self.is_paused().into();
        document["files"] = json!(note.map(|note| &note.files));
        document["file_count"] = json!(note.map(|note| note.file_count));
        document["caption"] = json!(note.and_then(|note| note.caption.as_ref()));
        document["monitor"] = json!(note.and_then(|note| note.monitor.as_ref()));
        document
    }

    /// The path that it is for, once that is known.
    pub fn path(&self) -> Option<&str> {
        let path = self.upload.as_ref()?.facts.as_ref()?.path.as_str();
        // An empty path was shortened (`store::sqlite::ended`).
        Some(path).filter(|path| !path.is_empty())
    }

    /// The ticket's end.
    pub fn expires(&self) -> UnixTime {
        let noted = self.marked.as_ref().map(|marked| marked.expires);
        self.upload.as_ref().map(|upload| upload.expires).or(noted).unwrap_or(UnixTime(0))
    }

    /// Whose it is. None: that is not known yet.
    pub fn owner(&self) -> Option<Tag> {
        // Record 0 decides, or a later release. Before record 0 has come, the note's token does.
        let told = self.upload.as_ref().and_then(|upload| upload.facts.as_ref()).map(|facts| facts.owner);
        told.or(self.marked.as_ref().map(|marked| marked.owner))
    }

    fn is_of(&self, tags: &[Tag]) -> bool {
        self.owner().is_some_and(|owner| tags.contains(&owner))
    }
}

/// A list cannot be had now.
pub fn too_many() -> Problem {
    Problem::new(Code::TooManyRequests, "too many lists at once").retry_after(Duration::from_secs(5))
}

/// The document of a list: [`documents`].
pub fn document(entries: &[Entry]) -> Value {
    json!({"uploads": documents(entries)})
}

/// The first entries of a list, as many as [`LIST_BYTES_MAX`] has room for.
pub fn documents(entries: &[Entry]) -> Vec<Value> {
    let mut left = LIST_BYTES_MAX;
    let fits = |document: &Value| {
        let len = document.to_string().len();
        let fits = len <= left;
        left = left.saturating_sub(len);
        fits
    };
    entries.iter().map(Entry::document).take_while(fits).collect()
}

/// The uploads with these tags, newest first, as far as a list has room.
///
/// # Errors
/// `too-many-requests` while too many others want a list, or the store's.
pub async fn all(api: &Api, tags: &[Tag]) -> Result<Vec<Entry>, Problem> {
    let turn = tokio::time::timeout(WAIT, api.lists.clone().acquire_owned()).await.ok();
    let turn = turn.and_then(Result::ok).ok_or_else(too_many)?;
    // A note may say whose an upload without record 0 is.
    let is_wanted = |_, owner: Option<Tag>| owner.is_none_or(|owner| tags.contains(&owner));
    let coming = api.receive.in_flight.coming(api.context.clock.unix(), is_wanted).await;
    let own = tags.to_vec();
    let known = api.context.store.with(move |index| {
        // Held until the list is made, even if the client goes away.
        let _turn = turn;
        let mut entries: BTreeMap<UploadId, Entry> = BTreeMap::new();
        let mut left = LIST_BYTES_MAX;
        for upload in index.owned(&own, LIST_MAX)? {
            let marked = index.marked(upload.id)?;
            let len = marked.as_ref().and_then(|marked| marked.note.as_ref()).map_or(0, Note::text_len);
            entries.insert(upload.id, Entry::of(upload, marked));
            // Older ones have no room after these.
            match left.checked_sub(len) {
                Some(rest) => left = rest,
                None => break,
            }
        }
        for marked in index.noted(&own, LIST_MAX, LIST_BYTES_MAX)? {
            if !entries.contains_key(&marked.id) {
                let entry = match index.load(marked.id)? {
                    Some(upload) => Entry::of(upload, Some(marked)),
                    None => Entry::announced(marked),
                };
                entries.insert(entry.id, entry);
            }
        }
        // What comes in now and has not been noted yet.
        for upload in coming {
            let known = entries.remove(&upload.id);
            let upload = Entry::live(known.as_ref(), upload);
            entries.insert(upload.id, Entry::of(upload, known.and_then(|known| known.marked)));
        }
        Ok(entries)
    });
    let mut entries: Vec<Entry> = known.await.map_err(store_problem)?.into_values().collect();
    entries.retain(|entry| entry.is_of(tags));
    entries.sort_by_key(|entry| std::cmp::Reverse(entry.created()));
    entries.truncate(LIST_MAX);
    Ok(entries)
}

/// One upload, if it has one of these tags. `turn` is given back once the store has been looked at, even if nobody waits
/// for that any more.
///
/// # Errors
/// The store's.
pub async fn one(api: &Api, tags: &[Tag], id: UploadId, turn: OwnedSemaphorePermit) -> Result<Option<Entry>, Problem> {
    Ok(known_in(api, id, turn).await?.filter(|entry| entry.is_of(tags)))
}

/// One upload, whoever's it is, as it comes in.
///
/// # Errors
/// The store's.
pub async fn known(api: &Api, id: UploadId) -> Result<Option<Entry>, Problem> {
    known_in(api, id, ()).await
}

/// The same; `held` is dropped once the store has been looked at.
async fn known_in(api: &Api, id: UploadId, held: impl Send + 'static) -> Result<Option<Entry>, Problem> {
    let coming = api.receive.in_flight.coming_of(id, api.context.clock.unix()).await;
    let entry = api.context.store.with(move |index| {
        let _held = held;
        let marked = index.marked(id)?;
        Ok(match index.load(id)? {
            Some(upload) => Some(Entry::of(upload, marked)),
            None => marked.map(Entry::announced),
        })
    });
    let entry = entry.await.map_err(store_problem)?;
    let Some(coming) = coming else { return Ok(entry) };
    let upload = Entry::live(entry.as_ref(), coming);
    Ok(Some(Entry::of(upload, entry.and_then(|entry| entry.marked))))
}

impl Entry {
    /// An upload with what has come by now. While it is being received, that includes what is not on disk yet.
    fn live(known: Option<&Self>, coming: Upload) -> Upload {
        match known.and_then(|known| known.upload.as_ref()) {
            Some(upload) if upload.state != State::Receiving => upload.clone(),
            Some(upload) => Upload { received: coming.received, facts: coming.facts, ..upload.clone() },
            None => {
                let paused = known.is_some_and(Self::is_paused);
                Upload { paused, ..coming }
            }
        }
    }
}
