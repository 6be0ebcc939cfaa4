//! One sender's pen on one upload: [`Intake`].
//!
//! Several senders may write the same upload at once. Every byte is written once: whoever comes second with it is taken at
//! its word and skipped, so that what was acknowledged to one is never overwritten by another. A `pwrite` happens under
//! the upload's lock, so that a byte counts as written only when it is in the file.

use crate::disk::checksums::{self, Checksums, Running};
use crate::disk::segments::Body;
use crate::disk::sys::{self, Disk, Source};
use crate::index::Held;
use crate::index::operation::Stored;
use crate::model::error::{CommitError, StoreError, WriteError};
use crate::model::limits::SPANS_MAX;
use crate::model::state::State;
use crate::receive::live::{Live, LiveState};
use crate::receive::shared::Shared;
use hoop_units::{AddressKey, ByteRange, RangeSet, UnixTime, UploadId};
use std::fmt;
use std::io;
use std::sync::Arc;

/// After so many bytes a sender is to wait until the disk has them ([`Intake::behind`]): large enough for sequential writes, small enough that
/// whoever else has something synced does not wait for long. What a sender leaves in the page cache, their syncs would wait for.
const BEHIND_BYTES: u64 = 1 << 20;

/// Pages so far behind are dropped from the cache: they are on disk by then, and nobody needs them before the slow uplink
/// comes to them. What is not yet written out stays; nothing waits here. So an upload of any size leaves a router, and
/// whatever else runs there, its memory.
const CACHED_BYTES: u64 = 16 << 20;

/// Room is promised to a sender that does not tell its length, or is past [`PROMISED_MAX`], in steps of this size: what such a sender keeps
/// from others at most.
const PROMISE_STEP: u64 = 4 << 20;

/// The most that an upload is promised before it comes: to name a length costs a sender nothing. Photos are sure of their room from their
/// first byte on; what is longer may find the spool full in the middle, if others fill it meanwhile.
pub const PROMISED_MAX: u64 = 64 << 20;

/// One sender's pen on one upload. Dropped without [`Intake::commit`], what it wrote is as if it had never come.
pub struct Intake {
    // Before `shared`, whose lock keeps other processes out: the last to go may give an extent back.
    pub(crate) live: Arc<Live>,
    pub(crate) shared: Arc<Shared>,
    /// What this sender has written and not waited for.
    unsettled: Option<ByteRange>,
    running: Running,
}

impl Intake {
    /// The caller has counted it among the senders.
    pub(crate) fn new(shared: Arc<Shared>, live: Arc<Live>) -> Self {
        Self { shared, live, unsettled: None, running: Running::default() }
    }

    /// Another pen on the same upload, for whoever commits while this one writes.
    #[must_use]
    pub fn another(&self) -> Self {
        // This pen is counted, so that the last of them cannot leave meanwhile.
        self.live.state().senders += 1;
        Self::new(self.shared.clone(), self.live.clone())
    }

    /// Writes `bytes` at `offset` of Z; bytes that somebody has written already are skipped. Does not wait for the disk
    /// as long as the page cache has room.
    ///
    /// # Errors
    /// If the spool is full, or the bytes lie past the total.
    pub fn write_at(&mut self, offset: u64, bytes: &[u8]) -> Result<(), WriteError> {
        let range = ByteRange::new(offset, offset.saturating_add(bytes.len() as u64));
        let live = self.live.clone();
        let mut state = live.state();
        for gap in gaps(&state, range)? {
            let part = &bytes[(gap.start - offset) as usize..(gap.end - offset) as usize];
            self.fill(&mut state, gap, |disk, body| disk.write(body.file(), part, body.at(gap.start)))?;
            let total = state.total;
            self.running.feed(self.shared.grid, total, gap.start, part, &mut state.sums);
        }
        drop(state);
        self.wrote(range);
        Ok(())
    }

    /// Writes the next `len` bytes of a source at `offset` of Z; those that somebody has written already are dropped.
    ///
    /// # Errors
    /// As [`Intake::write_at`]. Then the source may hold some that are lost.
    pub fn write_from(&mut self, offset: u64, len: u64, source: &mut impl Source) -> Result<(), WriteError> {
        let range = ByteRange::new(offset, offset.saturating_add(len));
        let live = self.live.clone();
        let mut state = live.state();
        let mut at = offset;
        for gap in gaps(&state, range)? {
            source.skip(gap.start - at)?;
            let (grid, total) = (self.shared.grid, state.total);
            let (mut seen, mut running, mut sums) = (gap.start, self.running.clone(), Checksums::default());
            self.fill(&mut state, gap, |disk, body| {
                let at = ByteRange::new(body.at(gap.start), body.at(gap.end));
                disk.write_from(source, body.file(), at, &mut |bytes| {
                    running.feed(grid, total, seen, bytes, &mut sums);
                    seen += bytes.len() as u64;
                })
            })?;
            self.running = running;
            state.sums.add(sums);
            at = gap.end;
        }
        drop(state);
        source.skip(range.end - at)?;
        self.wrote(range);
        Ok(())
    }

    /// Writes what nobody has written yet.
    fn fill(
        &self,
        state: &mut LiveState,
        gap: ByteRange,
        write: impl FnOnce(&Disk, &Body) -> io::Result<()>,
    ) -> Result<(), WriteError> {
        self.promise(state, gap.len())?;
        write(&self.shared.disk, &self.live.body)?;
        state.written.insert(gap);
        state.promised -= gap.len();
        let mut room = self.shared.room();
        room.promised -= gap.len();
        room.written += gap.len();
        Ok(())
    }

    /// What this sender has written since it waited last, if that is so much that it should wait again. Without, it would fill the page cache as
    /// fast as the network brings bytes, and then each write and each sync of others would wait until the disk has caught up.
    ///
    /// Of a segment there is none: an error of the disk that is told here would not be told to the sync that others wait for.
    pub fn behind(&mut self) -> Option<Behind> {
        // Who does not sync leaves it to the kernel.
        let waits = self.shared.sync && self.live.body.segment().is_none();
        let range = self.unsettled.filter(|range| range.len() >= BEHIND_BYTES && waits)?;
        self.unsettled = Some(ByteRange::new(range.end, range.end));
        Some(Behind { shared: self.shared.clone(), live: self.live.clone(), range })
    }

    fn wrote(&mut self, range: ByteRange) {
        let start = self.unsettled.map_or(range.start, |before| before.start.min(range.start));
        self.unsettled = Some(ByteRange::new(start, range.end));
    }

    /// Makes sure that room for `bytes` is promised: beforehand up to [`PROMISED_MAX`] where the total is known, in steps otherwise.
    fn promise(&self, live: &mut LiveState, bytes: u64) -> Result<(), WriteError> {
        if live.promised >= bytes {
            return Ok(());
        }
        let more = bytes.max(PROMISE_STEP);
        let disk = sys::free(&self.shared.folder)?;
        let mut room = self.shared.room();
        // The last step may be shorter than a whole one.
        let more = more.min(room.free(disk));
        if live.promised + more < bytes {
            return Err(WriteError::Full);
        }
        room.promised += more;
        live.promised += more;
        Ok(())
    }

    /// Promises room for the next bytes of a sender that does not tell its length: as many as `allow` makes of what the upload's device has
    /// here, this upload included, but no more than the next step. Returns how many it may write now. Nobody begins anything
    /// meanwhile, so `allow` must not wait.
    ///
    /// # Errors
    /// If the index or the file system fails, and those of `allow`.
    pub fn promise_next(
        &self,
        allow: impl FnOnce(AddressKey, Held) -> Result<u64, StoreError>,
    ) -> Result<u64, StoreError> {
        let lives = self.shared.lives();
        let device = self.live.state().offer.device;
        let allowed = allow(device, self.shared.held_of(&lives, device, None)?)?;
        let disk = sys::free(&self.shared.folder)?;
        let mut live = self.live.state();
        let mut room = self.shared.room();
        let more = PROMISE_STEP.saturating_sub(live.promised).min(allowed).min(room.free(disk));
        room.promised += more;
        live.promised += more;
        // Another sender, who told a length, may have had more promised than the device has left.
        Ok(if allowed == 0 { 0 } else { live.promised })
    }

    /// Tells the upload's length, for a sender that could not at the beginning.
    ///
    /// # Errors
    /// If another sender told another.
    pub fn set_total(&self, total: u64) -> Result<(), CommitError> {
        let mut live = self.live.state();
        if live.total.is_some_and(|known| known != total) || live.written.iter().any(|span| span.end > total) {
            return Err(CommitError::Conflict("total"));
        }
        live.total = Some(total);
        Ok(())
    }

    /// Waits until `range` is on disk and records it. When this returns, the range is stored, whatever happens next.
    /// The prelude's own bytes, if it has come, are recorded with it.
    ///
    /// # Errors
    /// If it could not be made sure. Then nothing of it counts as stored.
    pub fn commit(&self, range: ByteRange, now: UnixTime) -> Result<State, CommitError> {
        let live = &*self.live;
        let _commit = live.one_at_a_time();
        let (mut record, unknown, named) = self.to_record(range, now)?;
        if let Some(known) = self.recorded(&record)? {
            return known.map_err(CommitError::Ended);
        }
        if record.stored.spans() > SPANS_MAX {
            return Err(CommitError::TooManySpans(record.stored.spans()));
        }
        self.sum_up(&unknown, &mut record)?;
        if let Err(error) = self.sync(named) {
            live.state().broken = true;
            return Err(error.into());
        }
        live.state().named = true;
        // The upload's state is not locked meanwhile: other senders go on writing while this waits for the disk.
        let record = Arc::new(record);
        let recorded = self.shared.record(&record, live.body.segment().cloned());
        let recorded = recorded.map_err(|error| match error.is_full() {
            true => CommitError::Full,
            false => CommitError::Store(error),
        })?;
        let whole = recorded.map_err(CommitError::Ended)?;
        self.shared.changed();
        if !record.offer.is_early() {
            self.shared.early().remove(&live.id);
        }
        let mut state = live.state();
        state.sums.forget(&record.sums);
        state.stored = record.stored.clone();
        let is_new = !std::mem::replace(&mut state.recorded, true);
        let mut room = self.shared.room();
        room.uploads += i64::from(is_new);
        room.written -= record.added;
        room.kept += record.added;
        Ok(whole)
    }

    /// The upload's state, or its end, if all that is to be recorded is recorded already: whoever brings it again costs the disk nothing.
    fn recorded(&self, record: &Stored) -> Result<Option<Result<State, State>>, StoreError> {
        if record.added > 0 {
            return Ok(None);
        }
        let known = self.shared.index().get(self.live.id)?;
        let deadline = record.offer.deadline;
        let known = known.filter(|known| deadline.is_none() || known.deadline == deadline);
        Ok(known.map(|known| if known.takes_more() { Ok(known.state) } else { Err(known.state) }))
    }

    /// What is to be recorded of `range`, with the checksums that are known; the records whose are not; and whether the file's name is
    /// on disk.
    fn to_record(&self, range: ByteRange, now: UnixTime) -> Result<(Stored, Vec<u64>, bool), CommitError> {
        let state = self.live.state();
        if state.broken || self.live.body.is_broken() {
            return Err(broken().into());
        }
        let total = state.total.ok_or(CommitError::NotWritten)?;
        if !state.written.contains(range) {
            return Err(CommitError::NotWritten);
        }
        let mut stored = state.stored.clone();
        stored.insert(range);
        stored.insert(ByteRange::new(0, state.offer.prelude.len() as u64));
        let added = stored.len() - state.stored.len();
        let (mut sums, mut unknown) = (Checksums::default(), Vec::new());
        for record in checksums::newly_whole(self.shared.grid, total, &state.stored, &stored, range) {
            match state.sums.get(record) {
                Some(sum) => sums.insert(record, sum),
                None => unknown.push(record),
            }
        }
        let (offer, extent) = (state.offer.clone(), self.live.body.extent());
        let record = Stored { offer, extent, total, stored, added, sums, now };
        Ok((record, unknown, state.named))
    }

    /// Reads records again of which no one sender wrote everything. They are in the page cache, mostly.
    fn sum_up(&self, records: &[u64], record: &mut Stored) -> io::Result<()> {
        let mut buffer = Vec::new();
        for number in records {
            let bytes = self.shared.grid.record(*number, record.total);
            buffer.resize(bytes.len() as usize, 0);
            self.live.body.read_exact_at(&mut buffer, bytes.start)?;
            record.sums.insert(*number, checksums::sum_of(&buffer));
        }
        Ok(())
    }

    /// First the payload, then the name it goes by. A segment is synced for all who wait, when they are recorded.
    fn sync(&self, named: bool) -> Result<(), io::Error> {
        let Body::Own(file) = &self.live.body else { return Ok(()) };
        if !self.shared.sync {
            return Ok(());
        }
        self.shared.disk.sync_payload(file)?;
        if !named {
            self.shared.disk.sync_folder(&self.shared.shard(self.live.id))?;
        }
        Ok(())
    }

    /// Fills `buffer` with bytes that have been written, recorded or not, at `offset` of Z.
    ///
    /// # Errors
    /// If the disk fails, or so many bytes are not there.
    pub fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        self.live.body.read_exact_at(buffer, offset)
    }

    /// The upload's name.
    pub fn id(&self) -> UploadId {
        self.live.id
    }

    /// The length of Z, once a sender has told it.
    pub fn total(&self) -> Option<u64> {
        self.live.state().total
    }

    /// What is on disk, synced and recorded.
    pub fn stored(&self) -> RangeSet {
        self.live.state().stored.clone()
    }
}

impl Drop for Intake {
    fn drop(&mut self) {
        self.shared.release(&self.live);
    }
}

impl fmt::Debug for Intake {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Intake").field("id", &self.live.id).finish_non_exhaustive()
    }
}

/// What a sender has written and the disk may not have: [`Behind::settle`].
#[must_use]
pub struct Behind {
    live: Arc<Live>,
    shared: Arc<Shared>,
    range: ByteRange,
}

impl Behind {
    /// Waits until the disk has it, and for a commit of the same upload that is under way. It is not safe by that: only a commit makes it so.
    ///
    /// # Errors
    /// If the disk does not take it.
    pub fn settle(self) -> Result<(), WriteError> {
        let Self { shared, live, range } = self;
        let file = live.body.file();
        // The kernel tells an error once for each open file, to whoever asks first. A commit's sync must not succeed since this one took it.
        let _no_commit = live.one_at_a_time();
        if let Err(error) = shared.disk.write_out(file, range) {
            live.state().broken = true;
            return Err(error.into());
        }
        if let Some(old) = range.start.checked_sub(CACHED_BYTES) {
            sys::drop_cache(file, old, range.len());
        }
        Ok(())
    }
}

impl fmt::Debug for Behind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Behind").field("id", &self.live.id).field("range", &self.range).finish_non_exhaustive()
    }
}

/// What of `range` nobody has written yet.
fn gaps(state: &LiveState, range: ByteRange) -> Result<Vec<ByteRange>, WriteError> {
    if state.broken {
        return Err(broken().into());
    }
    if let Some(total) = state.total.filter(|total| range.end > *total) {
        return Err(WriteError::PastTotal { last: range.end - 1, total });
    }
    Ok(state.written.missing(range.end).map(|gap| gap.intersect(range)).filter(|gap| !gap.is_empty()).collect())
}

fn broken() -> io::Error {
    io::Error::other("an earlier sync of this upload failed")
}

/// Damage that a row without its file is.
pub const PAYLOAD_GONE: StoreError = StoreError::Damaged("an upload's file is missing");

/// What is in the place of an upload's file is none: a link, say. It is left alone.
pub const PAYLOAD_NOT_PLAIN: StoreError =
    StoreError::Damaged("what is in the place of an upload's file is no plain file");
