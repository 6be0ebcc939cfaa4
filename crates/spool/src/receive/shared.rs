//! What a spool and its intakes share: [`Shared`].

use crate::disk::checksums::{Grid, Part};
use crate::disk::lock::Lock;
use crate::disk::segments::{BLOCK_BYTES, Extent, Segment, Segments};
use crate::disk::sys::Disk;
use crate::index::committer::{Committer, Ground};
use crate::index::operation::{self, Stored};
use crate::index::{self, Changed, Durable, Freed, Health, Held, Index, Outcome, Rules, Terms};
use crate::model::error::StoreError;
use crate::model::upload::Change;
use crate::receive::live::Live;
use crate::receive::lives::Lives;
use crate::receive::payload::Sealed;
use crate::receive::room::Room;
use hoop_units::{AddressKey, ByteRange, RangeSet, UnixTime, UploadId};
use parking_lot::{Condvar, Mutex, MutexGuard};
use rusqlite::Connection;
use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};

/// What the spool and its intakes share. Locks are taken in this order: `lives`, an upload's own, `index`, `room`, `early`.
pub struct Shared {
    pub folder: PathBuf,
    /// Which folder that is: another may get its name.
    pub identity: (u64, u64),
    pub sync: bool,
    pub disk: Disk,
    pub grid: Grid,
    pub lives: Mutex<Lives>,
    /// Something is not leaving any more.
    pub left: Condvar,
    pub index: Mutex<Index>,
    /// The index's own.
    pub health: Arc<Health>,
    pub committer: Committer,
    pub segments: Segments,
    /// What is to be removed once it is on disk that it does not count: as much as the open transaction of the index has at most.
    pub going: Mutex<Going>,
    pub room: Mutex<Room>,
    /// Uploads whose prelude has not been recorded: at most [`EARLY_MAX`](crate::EARLY_MAX).
    pub early: Mutex<BTreeMap<UploadId, AddressKey>>,
    /// Counts what is recorded.
    pub revision: AtomicU64,
    /// The folder is ours as long as this is open.
    pub _lock: Lock,
}

/// Payloads that no longer count.
#[derive(Default)]
pub struct Going {
    /// Since changes that are not on disk yet.
    waiting: Vec<Gone>,
    /// Since changes that are.
    ready: Vec<Gone>,
}

/// A payload that no longer counts.
struct Gone {
    id: UploadId,
    freed: Freed,
    /// Who was receiving it then, if anybody. An upload that was begun anew since is another one.
    live: Weak<Live>,
}

impl Ground for Shared {
    fn sync(&self, segment: &Segment) -> io::Result<()> {
        if !self.sync {
            return Ok(());
        }
        self.disk.sync_payload(segment.file())?;
        if !segment.is_named() {
            self.disk.sync_folder(self.segments.folder())?;
            segment.set_named();
        }
        Ok(())
    }

    fn recorded(&self, durable: Durable) {
        self.disk.recorded();
        if durable == Durable::Yes {
            self.durable();
        }
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        // What fails here is left to whoever opens the folder next.
        let _ = self.settle();
        self.segments.close();
        let _ = self.sweep_segments();
    }
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
        let mut index = self.index.lock();
        index.recover();
        index
    }

    /// Records bytes that are in a file that is synced, or in a segment, together with what others have that waits.
    pub fn record(&self, stored: &Arc<Stored>, segment: Option<Arc<Segment>>) -> Outcome {
        let terms = Terms { news: Some(operation::encode_record(stored)), segment, is_urgent: true };
        let stored = stored.clone();
        self.committer.commit(&self.index, self, terms, move |tx, rules| index::record(tx, rules, &stored))
    }

    /// Makes a change, together with what others have that waits. One that is not urgent is on disk after the next that is, or
    /// [`Shared::settle`].
    pub fn change(
        &self,
        id: UploadId,
        change: &Change,
        now: UnixTime,
        is_urgent: bool,
    ) -> Result<Option<Changed>, StoreError> {
        let terms = Terms { news: Some(operation::encode_change(id, change, now)), segment: None, is_urgent };
        let change = change.clone();
        self.committer.commit(&self.index, self, terms, move |tx, rules| index::change(tx, rules, id, &change, now))
    }

    /// Commits what `work` does, together with what others have that waits.
    pub fn commit<T: Send + 'static>(
        &self,
        work: impl Fn(&Connection, &Rules) -> Result<T, StoreError> + Send + Sync + 'static,
    ) -> Result<T, StoreError> {
        let terms = Terms { news: None, segment: None, is_urgent: true };
        self.committer.commit(&self.index, self, terms, work)
    }

    /// Waits until all that is recorded is on disk, and removes what does not count since.
    pub fn settle(&self) -> Result<(), StoreError> {
        self.settle_since(self.health.failures())
    }

    /// The same, unless more commits than so many have failed by the time that the index is free: what whoever had it was told holds for all who waited.
    /// Each would keep it from others for as long again.
    pub fn settle_since(&self, failures: u64) -> Result<(), StoreError> {
        let mut index = self.index();
        if self.health.failures() > failures && self.health.is_doubtful() {
            return Err(io::Error::other("the disk has just failed").into());
        }
        index.settle()?;
        // Before anybody records more.
        self.durable();
        drop(index);
        self.remove_ready();
        Ok(())
    }

    /// Removes segments that have no upload. Returns how many they were.
    pub fn sweep_segments(&self) -> Result<usize, StoreError> {
        let mut removed = 0;
        for number in self.segments.resting()? {
            // Nobody puts an upload into a segment that rests, so it stays empty. What is not on disk yet may need it again.
            if !self.index().has_segment(number)? {
                self.settle()?;
                fs::remove_file(self.segments.path(number))?;
                removed += 1;
            }
        }
        Ok(removed)
    }

    /// Lets the payload of an upload go, once it is on disk that it does not count.
    pub fn let_go(&self, id: UploadId, freed: Freed, is_durable: bool) {
        let live = self.lives().receiving.get(&id).cloned().filter(|live| {
            // Not of one that was begun anew in between.
            live.state().recorded && self.index().kept_file(id).is_ok_and(|kept| kept.is_none())
        });
        live.iter().for_each(|live| live.state().ended = true);
        let gone = Gone { id, freed, live: live.as_ref().map_or_else(Weak::new, Arc::downgrade) };
        match is_durable {
            true => self.going().ready.push(gone),
            false => self.going().waiting.push(gone),
        }
        self.remove_ready();
    }

    /// All that is recorded is on disk.
    fn durable(&self) {
        let going = &mut *self.going();
        going.ready.append(&mut going.waiting);
    }

    /// Removes the payloads of which it is on disk that they do not count.
    pub fn remove_ready(&self) {
        let ready = std::mem::take(&mut self.going().ready);
        for Gone { id, freed, live } in ready {
            // Somebody may have begun it anew meanwhile, if its row has gone. What stays is left to the sweep.
            let leaving = freed.extent.is_none().then(|| self.leave([id]));
            if let Some(leaving) = &leaving
                && (leaving.ids().is_empty() || self.index().has_own_file(id).unwrap_or(true))
            {
                // It counts no more, and its senders may take their time.
                live.upgrade().iter().for_each(|live| self.empty(live));
                continue;
            }
            self.remove(id, freed.extent, freed.total);
        }
    }

    fn going(&self) -> MutexGuard<'_, Going> {
        self.going.lock()
    }

    pub fn room(&self) -> MutexGuard<'_, Room> {
        self.room.lock()
    }

    pub fn early(&self) -> MutexGuard<'_, BTreeMap<UploadId, AddressKey>> {
        self.early.lock()
    }

    /// What `device` has here, as it counts where it is asked for one of its uploads.
    pub fn held_of(&self, lives: &Lives, device: AddressKey, asked: Option<UploadId>) -> Result<Held, StoreError> {
        let mut held = self.index().held_by(device)?;
        for live in lives.receiving.values() {
            let state = live.state();
            if state.offer.device == device {
                held.uploads += u64::from(!state.recorded);
                held.bytes += state.written.len() - state.stored.len() + state.promised;
            }
            if Some(live.id) == asked {
                held.own = state.written.len() - state.stored.len() + state.promised;
            }
        }
        let early = self.early();
        held.early = early.iter().filter(|(id, other)| **other == device && Some(**id) != asked).count();
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

    /// Removes an upload's file, or gives back its extent. Should that fail, or never come about, the sweep finds the file, and the extent goes with
    /// its segment.
    pub fn remove(&self, id: UploadId, extent: Option<Extent>, total: u64) {
        let Some(extent) = extent else { return self.disk.remove(&self.file(id)) };
        self.disk.goes();
        self.segments.give_back(extent, total);
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

    /// Gives back all that an upload which is over has in its file, which somebody may have open.
    fn empty(&self, live: &Live) {
        let end = live.state().written.iter().last().map_or(0, |span| span.end);
        self.disk.punch(live.body.file(), live.body.whole_blocks(ByteRange::new(0, end), &RangeSet::new()));
    }

    /// Whether what is not recorded now is not for whoever opens the index next, either. Otherwise its bytes stay, and are left to the sweep.
    fn is_certain(&self) -> bool {
        !self.health.is_doubtful() || self.settle().is_ok()
    }

    /// Removes what nobody recorded of an upload that nobody sends any more; all of it if it is not recorded, or ended while they were at
    /// it. Whether it is recorded.
    fn give_back(&self, live: &Live) -> bool {
        let state = live.state();
        if !state.recorded {
            let total = state.total.unwrap_or(0);
            drop(state);
            if self.is_certain() {
                self.remove(live.id, live.body.extent(), total);
            }
            return false;
        }
        let end = state.written.iter().last().map_or(0, |span| span.end);
        let (has_ended, is_partly_recorded) = (state.ended, state.written.len() > state.stored.len());
        // Gaps that nobody wrote are holes already. The last one takes its whole block with it.
        let gaps: Vec<ByteRange> = state.stored.missing(end.next_multiple_of(BLOCK_BYTES)).collect();
        drop(state);
        let at = |gap: ByteRange| ByteRange::new(live.body.at(gap.start), live.body.at(gap.end));
        let has_ended = has_ended && self.index().kept_file(live.id).is_ok_and(|kept| kept.is_none());
        // Whoever let the payload go left it to them. Should it not be on disk yet that it ended, it stays for the sweep.
        match has_ended && self.settle().is_ok() {
            true if live.body.extent().is_none() => self.disk.remove(&self.file(live.id)),
            true => self.empty(live),
            false if is_partly_recorded && self.is_certain() => {
                gaps.into_iter().for_each(|gap| self.disk.punch(live.body.file(), at(gap)))
            }
            false => {}
        }
        true
    }
}
