//! The flows, in memory and on disk: [`Flows`].

use crate::log::{Damage, Entry, Kind, Log, OpenError, entry_len, name_of};
use crate::sync::Logged;
use crate::{Due, Kept, Life, Lifetimes, Settings, StoreError};
use hoop_clock::{Clock, Over};
use hoop_flow::{DeviceId, FlowId, FlowName, ended};
use hoop_flow_table::{self as table, Full, Id, Image, Table, Times};
use hoop_units::UnixTime;
use std::collections::VecDeque;
use std::hash::RandomState;
use std::io;
use std::path::Path;
use std::time::{Duration, Instant};

/// A flow as it stands: an image.
const RECORD: u8 = 2;

/// How a flow ended: host(20), flow(8), code(8), when(8), 0 if that is not to be remembered.
const GONE: u8 = 3;

/// How long that is.
const GONE_LEN: usize = 44;

/// What one tick says at most.
const DUE_MAX: usize = 4_096;

/// Flows that were parked while the clock was far ahead are looked for so often: for that all flows are looked at.
const LOOK_LATER: Duration = Duration::from_secs(60);

/// Memory is full of flows that are attached, or not synced.
pub const MEMORY_FULL: &str = "as many flows in memory as it may, and none that can be spilled";

/// What was written is not there.
const LOST: &str = "a flow's record is not what was written";

#[derive(Debug)]
pub struct Flows {
    table: Table<RandomState>,
    log: Log,
    clock: Clock,
    /// How long a parked flow is kept, and what is known of how one ended.
    lifetimes: Lifetimes,
    /// When flows were looked for last that were parked while the clock was far ahead.
    looked: Option<Instant>,
    /// Records that were copied out of the oldest segment, which is there as long as the copies are not synced: of whom, from where, to where.
    moved: Vec<(FlowName, u32, u32)>,
    /// Of the image that is being written.
    bytes: Vec<u8>,
    /// How flows ended, the oldest first, as far as that may not be synced: where it was appended; `None` if it is still to be, as are those that follow.
    gone: VecDeque<(Option<u64>, [u8; GONE_LEN])>,
}

/// What was found of a name.
pub enum Known {
    Kept(Box<Kept>),
    Ended(u64),
    Unknown,
}

impl Flows {
    pub fn open(folder: &Path, settings: &Settings, clock: Clock) -> Result<(Self, Vec<Damage>), OpenError> {
        let mut table = Table::new(settings.limits, settings.lifetimes, RandomState::new());
        let now = clock.unix();
        let visit = |log: &mut Log, entry: &Entry<'_>| recover(&mut table, log, entry, now);
        let (log, damages) = Log::open(folder, Kind::Flows, settings.segment_len, settings.salt, visit)?;
        Ok((
            Self {
                table,
                log,
                clock,
                lifetimes: settings.lifetimes,
                looked: None,
                moved: Vec::new(),
                bytes: Vec::new(),
                gone: VecDeque::new(),
            },
            damages,
        ))
    }

    pub fn usage(&self) -> table::Usage {
        self.table.usage()
    }

    /// Bytes on disk.
    pub fn disk(&self) -> u64 {
        self.log.total()
    }

    /// Puts a flow and appends it to the log; whether it is a new one. An error after `Ok(Some)` is the disk's: the flow is in memory.
    pub fn put(&mut self, kept: &Kept, life: Life) -> Result<bool, StoreError> {
        let Kept { record, attachment, spools } = kept;
        let life = match life {
            Life::Live => table::Life::Live,
            Life::Quiet => table::Life::Quiet,
            Life::Parked => table::Life::Parked,
        };
        let image = Image::new(record, attachment, *spools, life != table::Life::Parked, self.clock.unix())
            .map_err(|_| StoreError::Attachment(attachment.len()))?;
        let known = self.find(record.name)?;
        let log = &self.log;
        let id = self.table.put(known, &image, life, |place| log.position(place) < log.synced())?;
        if let Err(error) = self.write(id, &image) {
            // Nobody has heard of a new one.
            if known.is_none() {
                self.table.remove(id, record.name, None);
            }
            return Err(error.into());
        }
        Ok(known.is_none())
    }

    /// Takes back a new flow that could not be synced.
    pub fn take_back(&mut self, name: FlowName) {
        if let Ok(Some(id)) = self.find(name) {
            let _ = self.drop_flow(id, name, None);
        }
    }

    pub fn take(&mut self, name: FlowName) -> Result<Known, StoreError> {
        let (id, read) = self.find_and_read(name)?;
        let Some(id) = id else {
            return Ok(self.table.ended(name).map_or(Known::Unknown, Known::Ended));
        };
        let read = read.map(|bytes| Image::parse(&bytes).map_err(|error| StoreError::Damaged(error.to_string())));
        let read = read.transpose()?;
        let log = &self.log;
        self.table.take(id, read.as_ref(), |place| log.position(place) < log.synced())?;
        let image = read.or_else(|| self.table.image(id)).expect("it is in memory now");
        kept(&image).map(Known::Kept)
    }

    pub fn remove(&mut self, name: FlowName, code: u64) -> Result<(), StoreError> {
        let ended = Some((code, self.clock.unix()));
        match self.find(name)? {
            Some(id) => self.drop_flow(id, name, ended),
            None => Ok(()),
        }
    }

    fn drop_flow(&mut self, id: Id, name: FlowName, ended: Option<(u64, UnixTime)>) -> Result<(), StoreError> {
        let place = self.table.remove(id, name, ended);
        let Some(place) = place else { return Ok(()) };
        self.release(place);
        let (code, at) = ended.unwrap_or((ended::GIVEN_UP, UnixTime(0)));
        let mut entry = [0; GONE_LEN];
        entry[..20].copy_from_slice(&name.device.0);
        entry[20..28].copy_from_slice(&name.flow.0.to_be_bytes());
        entry[28..36].copy_from_slice(&code.to_be_bytes());
        entry[36..].copy_from_slice(&u64::from(at.as_secs()).to_be_bytes());
        self.gone.push_back((None, entry));
        Ok(self.write_gone()?)
    }

    /// Appends how flows ended, where that could not be done before, or was lost.
    fn write_gone(&mut self) -> io::Result<()> {
        let synced = self.log.synced();
        while self.gone.front().is_some_and(|(position, _)| position.is_some_and(|position| position < synced)) {
            self.gone.pop_front();
        }
        let written = self.gone.partition_point(|(position, _)| position.is_some());
        for (position, entry) in self.gone.range_mut(written..) {
            *position = Some(self.log.append(GONE, &[entry.as_slice()])?);
            self.log.release(entry_len(GONE_LEN));
        }
        Ok(())
    }

    /// Whether memory is full of what is not synced: a sync helps.
    pub fn spill_all(&mut self) {
        let log = &self.log;
        while self.table.spill(|place| log.position(place) < log.synced()) {}
    }

    /// Writes what could not be written before.
    pub fn write_dirty(&mut self) -> io::Result<()> {
        self.write_gone()?;
        while let Some(id) = self.table.first_dirty() {
            let image = self.table.image(id).expect("what is to be written is in memory");
            self.write(id, &image)?;
        }
        Ok(())
    }

    /// What is due now; the names of those that are gone come with it.
    pub fn due(&mut self) -> (Vec<Due>, Result<(), StoreError>) {
        let life = |secs: u32| Duration::from_secs(secs.into());
        // Nothing that is parked lives for longer than its age, and it gets that in run time, too, whatever the clock does.
        let over = self.clock.over(life(self.lifetimes.age)).unwrap_or(Over::NOTHING);
        let ended = self.clock.past(life(self.lifetimes.ends));
        let times = Times { now: self.clock.unix(), past: over.before, ended };
        let (mut found, mut outcome) = (Vec::new(), Ok(()));
        while found.len() < DUE_MAX
            && let Some(due) = self.table.due(times)
        {
            match due {
                table::Due::Park(name) => found.push(Due::Park(name)),
                table::Due::Expired(id) => self.expire(id, &mut found, &mut outcome),
            }
        }
        let is_set_back = over.after < Over::NOTHING.after;
        if is_set_back && self.looked.is_none_or(|at| at.elapsed() >= LOOK_LATER) {
            self.looked = Some(Instant::now());
            while found.len() < DUE_MAX
                && let Some(id) = self.table.later(over.after)
            {
                self.expire(id, &mut found, &mut outcome);
            }
        }
        (found, outcome)
    }

    fn expire(&mut self, id: Id, found: &mut Vec<Due>, outcome: &mut Result<(), StoreError>) {
        let image = self.table.image(id).map_or_else(|| self.read(id), Ok);
        let image = image.and_then(|image| Ok((image.name, kept(&image)?)));
        // Of one that cannot be read the name is not known any more.
        let nobody = FlowName { device: DeviceId([0; 20]), flow: FlowId(0) };
        let name = image.as_ref().map_or(nobody, |(name, _)| *name);
        let dropped = self.drop_flow(id, name, Some((ended::EXPIRED, self.clock.unix())));
        if outcome.is_ok() {
            *outcome = dropped;
        }
        match image {
            Ok((_, kept)) => found.push(Due::Expired(kept)),
            Err(error) => *outcome = Err(error),
        }
    }

    /// Copies what is needed of the oldest segment, if that is worth it; whether it was.
    pub fn tidy(&mut self) -> io::Result<bool> {
        if self.log.tidied()? {
            self.moved.clear();
        }
        // The older record of a flow that is still to be written is needed, and nobody knows it.
        let ends = self.table.usage().ends as u64 * entry_len(GONE_LEN);
        if !self.log.is_untidy(ends) || self.table.first_dirty().is_some() {
            return Ok(false);
        }
        let oldest = self.log.oldest()?;
        for entry in oldest.entries() {
            if entry.kind == GONE
                && entry.bytes.first_chunk().is_some_and(|name| self.table.ended(name_of(name)).is_some())
            {
                self.log.append(GONE, &[entry.bytes])?;
                self.log.release(entry.len());
            }
            if entry.kind != RECORD {
                continue;
            }
            let Ok(image) = Image::parse(entry.bytes) else { continue };
            let before = Log::place(entry.position);
            let Some(id) = self.table.find_at(image.name, before) else { continue };
            let place = Log::place(self.log.append(RECORD, &[entry.bytes])?);
            self.table.moved(id, place);
            self.moved.push((image.name, before, place));
            self.log.release(entry.len());
        }
        self.log.copied(&oldest);
        Ok(true)
    }

    pub fn find(&self, name: FlowName) -> Result<Option<Id>, StoreError> {
        self.find_and_read(name).map(|(id, _)| id)
    }

    /// A flow, and its record as it was read if it is spilled.
    fn find_and_read(&self, name: FlowName) -> Result<(Option<Id>, Option<Vec<u8>>), StoreError> {
        let (log, mut found) = (&self.log, None);
        let id = self.table.find(name, |place| {
            found = read_of(log, place, name)?;
            Ok::<_, io::Error>(found.is_some())
        });
        Ok((id?, found))
    }

    fn read(&self, id: Id) -> Result<Image, StoreError> {
        let damaged = || StoreError::Damaged(LOST.into());
        let place = self.table.place(id).ok_or_else(damaged)?;
        let (_, bytes) = self.log.read(self.log.position(place))?.ok_or_else(damaged)?;
        Image::parse(&bytes).map_err(|error| StoreError::Damaged(error.to_string()))
    }

    /// Appends a flow that is in memory, as it is there.
    fn write(&mut self, id: Id, image: &Image) -> io::Result<()> {
        // That of an earlier flow of this name comes first.
        self.write_gone()?;
        self.bytes.clear();
        image.put(&mut self.bytes);
        let position = self.log.append(RECORD, &[&self.bytes])?;
        if let Some(before) = self.table.written(id, Log::place(position)) {
            self.release(before);
        }
        Ok(())
    }

    fn release(&mut self, place: u32) {
        let len = self.log.len_at(self.log.position(place));
        self.log.release(len);
    }
}

impl Logged for Flows {
    fn log(&mut self) -> &mut Log {
        &mut self.log
    }

    fn lost(&mut self, from: u64) {
        for (name, before, after) in std::mem::take(&mut self.moved) {
            if let Some(id) = self.table.find_at(name, after) {
                self.table.moved(id, before);
            }
        }
        let first = self.gone.partition_point(|(position, _)| position.is_some_and(|position| position < from));
        self.gone.range_mut(first..).for_each(|(position, _)| *position = None);
        let log = &self.log;
        self.table.lost(|place| log.position(place) >= from);
    }
}

fn kept(image: &Image) -> Result<Box<Kept>, StoreError> {
    let (record, attachment, spools) = image.record().map_err(|error| StoreError::Damaged(error.to_string()))?;
    Ok(Box::new(Kept { record, attachment, spools }))
}

/// The record at a place, if it is of this flow.
fn read_of(log: &Log, place: u32, name: FlowName) -> io::Result<Option<Vec<u8>>> {
    let read = log.read(log.position(place))?;
    Ok(read.filter(|(kind, bytes)| *kind == RECORD && Image::is_of(bytes, name)).map(|(_, bytes)| bytes))
}

/// Takes in an entry of the log, at the start.
fn recover(table: &mut Table<RandomState>, log: &mut Log, entry: &Entry<'_>, now: UnixTime) {
    let image = if entry.kind == RECORD { Image::parse(entry.bytes).ok() } else { None };
    let name = match entry.kind {
        GONE => entry.bytes.first_chunk().map(name_of),
        _ => image.as_ref().map(|image| image.name),
    };
    let Some(name) = name else { return };
    let known = table.find(name, |place| read_of(log, place, name).map(|read| read.is_some()));
    let known = known.ok().flatten();
    if let Some(place) = known.and_then(|id| table.place(id)) {
        let len = log.len_at(log.position(place));
        log.release(len);
    }
    match image {
        Some(image) => {
            table.recovered(known, &image, Log::place(entry.position), now);
            log.needs(entry.len());
        }
        None => {
            if let Some(id) = known {
                table.remove(id, name, None);
            }
            let (code, at) = (number(entry.bytes, 28), number(entry.bytes, 36));
            if at != 0 {
                table.remember(name, code, UnixTime(at.try_into().unwrap_or(u32::MAX)));
            }
        }
    }
}

/// Eight bytes of an entry, or 0.
fn number(bytes: &[u8], at: usize) -> u64 {
    bytes.get(at..).and_then(|bytes| bytes.first_chunk()).map_or(0, |bytes| u64::from_be_bytes(*bytes))
}

impl From<Full> for StoreError {
    fn from(full: Full) -> Self {
        match full {
            Full::Flows => Self::Full("as many flows as it may"),
            Full::Memory => Self::Full(MEMORY_FULL),
            Full::Host => Self::DeviceFull("flows"),
        }
    }
}
