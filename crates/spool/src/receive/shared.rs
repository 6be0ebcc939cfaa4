//! What a spool and its intakes share: [`Shared`].

use crate::disk::checksums::{Grid, Part};
use crate::disk::lock::Lock;
use crate::disk::sys::Disk;
use crate::index::committer::Committer;
use crate::index::{self, Changed, Held, Index, Outcome, Rules, Stored};
use crate::model::error::StoreError;
use crate::model::upload::Change;
use crate::receive::live::Live;
use crate::receive::lives::Lives;
use crate::receive::payload::Sealed;
use crate::receive::room::Room;
use hoop_units::{ByteRange, DeviceId, UnixTime, UploadId};
use rusqlite::Connection;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

/// What the spool and its intakes share. Locks are taken in this order: `lives`, an upload's own, `index`, `room`, `early`.
pub struct Shared {
    pub folder: PathBuf,
    pub sync: bool,
    pub disk: Disk,
    pub grid: Grid,
    pub lives: Mutex<Lives>,
    /// Something is not leaving any more.
    pub left: Condvar,
    pub index: Mutex<Index>,
    pub committer: Committer,
    pub room: Mutex<Room>,
    /// Uploads whose prelude has not been recorded: at most [`EARLY_MAX`](crate::EARLY_MAX).
    pub early: Mutex<BTreeMap<UploadId, DeviceId>>,
    /// Counts what is recorded.
    pub revision: AtomicU64,
    /// The folder is ours as long as this is open.
    pub _lock: Lock,
}

impl Sealed for Shared {
    fn grid(&self) -> Grid {
        self.grid
    }

    fn sums(&self, seq: i64, part: u64) -> Result<Part, StoreError> {
        self.index().sums(seq, part)
    }
}

impl Shared {
    pub fn index(&self) -> MutexGuard<'_, Index> {
        self.index.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Records bytes that are on disk and synced, together with what others have that waits.
    pub fn record(&self, stored: &Arc<Stored>) -> Outcome {
        let stored = stored.clone();
        self.commit(move |tx, rules| index::record(tx, rules, &stored))
    }

    /// Makes a change, together with what others have that waits.
    pub fn change(&self, id: UploadId, change: &Change, now: UnixTime) -> Result<Option<Changed>, StoreError> {
        let change = change.clone();
        self.commit(move |tx, rules| index::change(tx, rules, id, &change, now))
    }

    /// Commits what `work` does, together with what others have that waits.
    pub fn commit<T: Send + 'static>(
        &self,
        work: impl Fn(&Connection, &Rules) -> Result<T, StoreError> + Send + Sync + 'static,
    ) -> Result<T, StoreError> {
        self.committer.commit(&self.index, work, || self.disk.recorded())
    }

    pub fn room(&self) -> MutexGuard<'_, Room> {
        self.room.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn early(&self) -> MutexGuard<'_, BTreeMap<UploadId, DeviceId>> {
        self.early.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What `device` has here, early uploads other than `but` counted.
    pub fn held_of(&self, lives: &Lives, device: DeviceId, but: Option<UploadId>) -> Result<Held, StoreError> {
        let mut held = self.index().held_by(device)?;
        for live in lives.receiving.values() {
            let state = live.state();
            if state.offer.device == device {
                held.uploads += u64::from(!state.recorded);
                held.bytes += state.written.len() - state.stored.len() + state.promised;
            }
        }
        let early = self.early();
        held.early = early.iter().filter(|(id, other)| **other == device && Some(**id) != but).count();
        Ok(held)
    }

    /// Something was recorded.
    pub fn changed(&self) {
        self.revision.fetch_add(1, Ordering::Relaxed);
    }

    /// The folder that an upload's file is in.
    pub fn shard(&self, id: UploadId) -> PathBuf {
        self.folder.join("uploads").join(&id.to_hex()[..2])
    }

    pub fn file(&self, id: UploadId) -> PathBuf {
        self.shard(id).join(format!("{id}.z"))
    }

    /// Removes an upload's file. Should that fail, or never come about, the sweep finds it.
    pub fn remove(&self, id: UploadId) {
        self.disk.remove(&self.file(id));
    }

    /// One sender has gone; after the last, what it wrote and did not commit no longer counts, and is not to stay, either. It may take as long
    /// as the disk does to write that much: who begins with this upload waits meanwhile, and nobody else.
    pub fn release(&self, live: &Live) {
        let Some(_leaving) = self.leave_after(live) else { return };
        let is_recorded = self.give_back(live);
        let mut lives = self.lives();
        lives.receiving.remove(&live.id);
        let state = live.state();
        if !is_recorded {
            self.early().remove(&live.id);
        }
        let mut room = self.room();
        room.promised -= state.promised;
        room.written -= state.written.len() - state.stored.len();
    }

    /// Removes what nobody recorded of an upload that nobody sends any more; the file, too, if it is not recorded. Whether it is.
    fn give_back(&self, live: &Live) -> bool {
        let state = live.state();
        if !state.recorded {
            drop(state);
            self.remove(live.id);
            return false;
        }
        if state.written.len() > state.stored.len() {
            // Gaps that nobody wrote are holes already.
            let end = state.written.iter().last().map_or(0, |span| span.end);
            let gaps: Vec<ByteRange> = state.stored.missing(end).collect();
            drop(state);
            gaps.into_iter().for_each(|gap| self.disk.punch(&live.file, gap));
        }
        true
    }
}
