//! The store on disk: [`Store`].

use crate::byte_log::ByteLog;
use crate::flows::{Flows, Known, MEMORY_FULL};
use crate::log::{self, Damage, Kind, OpenError};
use crate::settings::Settings;
use crate::sync::{Mark, Shared};
use crate::{ByteStore, Due, FlowStore, Found, Kept, Life, StoreError, When};
use hoop_clock::Clock;
use hoop_files::{Lock, LockError};
use hoop_flow::FlowName;
use hoop_units::ByteRange;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::path::Path;

/// Segments that one tick tidies at most: some tenths of a second.
const TIDIED_AT_ONCE: usize = 8;

/// What a store holds.
#[derive(Clone, Copy, Default, Debug)]
pub struct Usage {
    /// Flows in all.
    pub flows: usize,
    /// Of these in memory.
    pub resident: usize,
    /// Devices that have any.
    pub hosts: usize,
    /// Bytes of memory for all that.
    pub memory: usize,
    /// Bytes on disk of the flows.
    pub disk: u64,
    /// What counts against [`Settings::bytes`].
    pub bytes: u64,
    /// Bytes on disk of these.
    pub bytes_disk: u64,
}

/// What [`check`] found.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Report {
    /// Entries that are as they were written.
    pub entries: u64,
    /// What is not.
    pub damages: Vec<Damage>,
}

/// Both stores on a disk. It may be shared by any number of threads.
#[derive(Debug)]
pub struct Store {
    flows: Shared<Flows>,
    bytes: Shared<ByteLog>,
    /// Whose bytes are needed no more, which is told once the log of flows is synced: a flow that a restart brought back without them would be lost.
    leaving: Mutex<Leaving>,
    ticking: Mutex<()>,
    damages: Vec<Damage>,
    clock: Clock,
    _lock: Lock,
}

/// Why bytes of a flow are needed no more.
#[derive(Clone, Copy, Debug)]
enum Why {
    /// It is removed.
    Removed,
    /// Its record says all that they do, if there are none beyond this.
    Settled(u64),
}

/// See [`Store`]. Each entry has a number of its own: a name may be here again.
#[derive(Default, Debug)]
struct Leaving {
    of: HashMap<FlowName, (u64, Why)>,
    next: u64,
}

impl Leaving {
    fn put(&mut self, name: FlowName, why: Why) {
        self.of.insert(name, (self.next, why));
        self.next += 1;
    }

    /// Takes an entry, if it is the one that is meant.
    fn take(&mut self, name: FlowName, number: u64) -> Option<Why> {
        let (_, why) = *self.of.get(&name).filter(|(known, _)| *known == number)?;
        self.of.remove(&name);
        Some(why)
    }
}

impl Store {
    /// Opens a store, or makes it. All flows are parked, those that were attached from now on.
    ///
    /// # Errors
    /// See [`OpenError`]. What is damaged is no error: see [`Store::damages`].
    pub fn open(settings: &Settings) -> Result<Self, OpenError> {
        let folder = &settings.folder;
        hoop_files::folder(folder).map_err(io::Error::from).map_err(OpenError::at(folder))?;
        let path = folder.join("lock");
        let lock = Lock::take(&path).map_err(|error| match error {
            LockError::Held => OpenError::Locked(folder.into()),
            LockError::File(source) => OpenError::Folder { path, source },
        })?;
        let path = folder.join("clock");
        let clock = settings.clock.clone().keep(&path).map_err(OpenError::at(&path))?;
        let (flows, mut damages) = Flows::open(&folder.join("flows"), settings, clock.clone())?;
        let (mut bytes, more) = ByteLog::open(&folder.join("octets"), settings)?;
        damages.extend(more);
        // The names of the two folders, and that of this one.
        for folder in
            [Some(folder.as_path()), folder.parent().filter(|parent| *parent != Path::new(""))].into_iter().flatten()
        {
            File::open(folder).and_then(|opened| opened.sync_all()).map_err(OpenError::at(folder))?;
        }
        bytes.keep_only(|name| !matches!(flows.find(name), Ok(None)));
        let (flows, bytes) = (Shared::new(flows), Shared::new(bytes));
        Ok(Self { flows, bytes, leaving: Mutex::default(), ticking: Mutex::default(), damages, clock, _lock: lock })
    }

    /// What was found damaged when it was opened. A flow whose record is damaged is not known any more, or is as an older record says.
    pub fn damages(&self) -> &[Damage] {
        &self.damages
    }

    /// What it holds.
    pub fn usage(&self) -> Usage {
        let (flows, disk) = self.flows.with(|flows| (flows.usage(), flows.disk()));
        let (bytes, bytes_disk) = self.bytes.with(|bytes| bytes.usage());
        Usage {
            flows: flows.flows,
            resident: flows.resident,
            hosts: flows.hosts,
            memory: flows.allocated,
            disk,
            bytes,
            bytes_disk,
        }
    }

    /// Spills every parked flow; their number in memory is what is left.
    ///
    /// # Errors
    /// If the disk fails. What is not on disk stays in memory.
    pub fn spill(&self) -> Result<usize, StoreError> {
        self.sync_flows()?;
        Ok(self.flows.with(|flows| {
            flows.spill_all();
            flows.usage().resident
        }))
    }

    /// What is in memory of flows only where the disk could not take it; what is on disk and needed no more.
    fn tidy(&self) -> Result<(), StoreError> {
        let known: Vec<_> = self.leaving.lock().of.iter().map(|(name, (number, _))| (*name, *number)).collect();
        self.sync_flows()?;
        let mut outcome = Ok(());
        for (name, number) in known {
            outcome = outcome.and(self.bytes.with(|bytes| match self.leaving.lock().take(name, number) {
                Some(Why::Removed) => bytes.tell_forgotten(name),
                Some(Why::Settled(end)) => bytes.settle(name, end),
                None => Ok(()),
            }));
        }
        outcome?;
        self.sync_bytes()?;
        for _ in 0..TIDIED_AT_ONCE {
            let more = (self.flows.with(Flows::tidy)?, self.bytes.with(ByteLog::tidy)?);
            if more == (false, false) {
                break;
            }
            self.sync_flows()?;
            self.sync_bytes()?;
        }
        Ok(())
    }

    /// Syncs the log of flows, and with it what could not be written before.
    fn sync_flows(&self) -> Result<(), StoreError> {
        let (written, mark) = self.flows.with_mark(Flows::write_dirty);
        written?;
        Ok(self.flows.sync_since(mark)?)
    }

    /// The same of bytes: what the log does not say of them, and could not be written or was lost, is appended before.
    fn sync_bytes(&self) -> Result<(), StoreError> {
        let (written, mark) = self.bytes.with_mark(ByteLog::write_marks);
        written?;
        Ok(self.bytes.sync_since(mark)?)
    }

    /// What there is of bytes of an earlier flow by this name are not those of the next.
    fn forget_earlier(&self, name: FlowName) -> Result<(), StoreError> {
        let known = self.leaving.lock().of.get(&name).copied();
        if let Some((number, Why::Removed)) = known {
            self.sync_flows()?;
            self.bytes.with(|bytes| match self.leaving.lock().take(name, number) {
                Some(_) => bytes.tell_forgotten(name),
                None => Ok(()),
            })?;
        }
        if self.bytes.with(|bytes| bytes.may_return(name)) {
            self.sync_bytes()?;
        }
        Ok(())
    }

    /// A flow is gone, and its bytes with it; the log is told of them later.
    fn bytes_leave(&self, name: FlowName) {
        if self.bytes.with(|bytes| bytes.drop_stream(name)) {
            self.leaving.lock().put(name, Why::Removed);
        }
    }

    /// Puts a flow; if memory is full of what is not synced, after a sync.
    fn put_in(&self, kept: &Kept, life: Life) -> (Result<bool, StoreError>, Mark) {
        let put = || self.flows.with_mark(|flows| flows.put(kept, life));
        match put() {
            (Err(StoreError::Full(MEMORY_FULL)), mark) => match self.flows.sync() {
                Ok(()) => put(),
                Err(error) => (Err(error.into()), mark),
            },
            done => done,
        }
    }
}

impl Drop for Store {
    /// What was to be written later is written now, as far as the disk takes it.
    fn drop(&mut self) {
        let _ = (self.sync_flows(), self.sync_bytes());
        self.clock.look(true);
    }
}

impl FlowStore for Store {
    fn put(&self, kept: &Kept, life: Life, when: When) -> Result<(), StoreError> {
        let name = kept.record.name;
        self.forget_earlier(name)?;
        let (is_new, mark) = self.put_in(kept, life);
        let is_new = is_new?;
        let (end, is_spent) = (kept.record.kept, kept.record.kept == kept.record.consumed);
        if life == Life::Parked && kept.spools && is_spent && self.bytes.with(|bytes| bytes.held(name)).is_some() {
            self.leaving.lock().put(name, Why::Settled(end));
        }
        if when == When::Later {
            return Ok(());
        }
        let synced = self.flows.sync_since(mark);
        if synced.is_err() && is_new {
            self.flows.with(|flows| flows.take_back(name));
        }
        Ok(synced?)
    }

    fn take(&self, name: FlowName) -> Result<Found, StoreError> {
        let known = match self.flows.with(|flows| flows.take(name)) {
            Err(StoreError::Full(MEMORY_FULL)) => {
                self.flows.sync()?;
                self.flows.with(|flows| flows.take(name))
            }
            known => known,
        };
        let mut kept = match known? {
            Known::Kept(kept) => kept,
            Known::Ended(code) => return Ok(Found::Ended(code)),
            Known::Unknown => return Ok(Found::Unknown),
        };
        let held = self.bytes.with(|bytes| bytes.held(name));
        // Bytes may have been kept for it since its record was written; then what it says to be consumed was read, and not kept.
        if !kept.spools && held.is_some() {
            (kept.spools, kept.record.consumed) = (true, kept.record.kept);
        }
        if kept.spools {
            let held = held.unwrap_or(ByteRange::new(kept.record.consumed, kept.record.consumed));
            kept.record.consumed = kept.record.consumed.max(held.start);
            // The bytes themselves say what is kept: where the disk has spoilt some, they are asked for again.
            kept.record.kept = held.end.max(kept.record.consumed);
            self.bytes.with(|bytes| bytes.go_on(name, kept.record.consumed))?;
        }
        Ok(Found::Kept(kept))
    }

    fn remove(&self, name: FlowName, code: u64) -> Result<(), StoreError> {
        let removed = self.flows.with(|flows| flows.remove(name, code));
        // One that cannot be read may still be there.
        if self.flows.with(|flows| matches!(flows.find(name), Ok(None))) {
            self.bytes_leave(name);
        }
        removed
    }

    fn tick(&self) -> Result<Vec<Due>, StoreError> {
        // What one tick has not told yet another must not take away with a segment.
        let _alone = self.ticking.lock();
        self.clock.look(false);
        let tidied = self.tidy();
        let (due, outcome) = self.flows.with(Flows::due);
        let outcome = tidied.and(outcome);
        for due in &due {
            if let Due::Expired(kept) = due {
                self.bytes_leave(kept.record.name);
            }
        }
        // What is due is told once; a disk that fails goes on failing.
        if due.is_empty() { outcome.map(|()| due) } else { Ok(due) }
    }
}

impl ByteStore for Store {
    fn append(&self, name: FlowName, offset: u64, bytes: &[u8]) -> Result<u64, StoreError> {
        self.bytes.with(|store| store.append(name, offset, bytes))
    }

    fn sync(&self) -> Result<(), StoreError> {
        self.sync_bytes()
    }

    fn read(&self, name: FlowName, offset: u64, into: &mut [u8]) -> Result<usize, StoreError> {
        self.bytes.with(|bytes| bytes.read(name, offset, into))
    }

    fn consume(&self, name: FlowName, offset: u64) -> Result<(), StoreError> {
        self.bytes.with(|bytes| bytes.consume(name, offset))
    }

    fn held(&self, name: FlowName) -> Option<ByteRange> {
        self.bytes.with(|bytes| bytes.held(name))
    }
}

/// Says what is damaged in a store's folder, and changes nothing. Of a store that is in use the last entries may be torn, which is not told.
///
/// # Errors
/// If it cannot be read, or was made by a later version.
pub fn check(folder: &Path) -> Result<Report, OpenError> {
    let (flows, mut damages) = log::check(&folder.join("flows"), Kind::Flows)?;
    let (bytes, more) = log::check(&folder.join("octets"), Kind::Bytes)?;
    damages.extend(more);
    Ok(Report { entries: flows + bytes, damages })
}

impl From<StoreError> for io::Error {
    fn from(error: StoreError) -> Self {
        match error {
            StoreError::Disk(error) => error,
            other => Self::other(other),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sync::Logged as _;
    use hoop_flow::{DeviceId, FlowId, FlowKey, Record};
    use std::fs;

    fn kept(number: u64, written: u64) -> Kept {
        let name = FlowName { device: DeviceId([1; 20]), flow: FlowId(number) };
        let record = Record { written, ..Record::of_server(name, FlowKey([2; 32])) };
        Kept { record, attachment: vec![3; 900], spools: true }
    }

    /// As if `fdatasync` had failed, and the kernel had dropped what was to be written.
    fn fail_sync<T: crate::sync::Logged>(shared: &Shared<T>) {
        shared.with(|content| {
            content.log().flush().unwrap();
            content.log().fail();
        });
    }

    fn written(store: &Store, number: u64) -> u64 {
        match store.take(kept(number, 0).record.name).unwrap() {
            Found::Kept(kept) => kept.record.written,
            other => panic!("flow {number} is {other:?}"),
        }
    }

    #[test]
    fn after_a_failed_sync_flows_are_rewritten_and_unsynced_bytes_are_dropped() {
        let folder = tempfile::tempdir().unwrap();
        let settings = Settings { segment_len: 1, ..Settings::new(folder.path()) };
        let store = Store::open(&settings).unwrap();
        let name = kept(0, 0).record.name;
        // Segments enough that some are tidied, and then a tidying whose copies are lost.
        for round in 0..20 {
            (0..100).for_each(|number| store.put(&kept(number, round), Life::Parked, When::Later).unwrap());
            store.spill().unwrap();
            store.append(name, round * 20_000, &vec![round as u8; 20_000]).unwrap();
            store.sync().unwrap();
            if round % 10 == 4 {
                store.consume(name, round * 20_000 - 30_000).unwrap();
            }
        }
        let is_tidied = (store.flows.with(Flows::tidy).unwrap(), store.bytes.with(ByteLog::tidy).unwrap());
        assert!(is_tidied.0, "there is something to tidy");
        store.put(&kept(7, 777), Life::Parked, When::Later).unwrap();
        store.put(&kept(200, 5), Life::Live, When::Later).unwrap();
        store.append(name, 400_000, b"lost").unwrap();
        store.remove(kept(50, 0).record.name, 9).unwrap();
        fail_sync(&store.flows);
        fail_sync(&store.bytes);
        assert_eq!(store.held(name), Some(ByteRange::new(250_000, 400_000)));
        store.append(name, 400_000, b"again").unwrap();
        assert_eq!([written(&store, 7), written(&store, 200), written(&store, 99)], [777, 5, 19]);
        for _ in 0..3 {
            store.tick().unwrap();
        }
        drop(store);
        let store = Store::open(&settings).unwrap();
        assert_eq!(store.damages(), []);
        assert_eq!([written(&store, 7), written(&store, 200)], [777, 5]);
        let ended = store.take(kept(50, 0).record.name).unwrap();
        assert!(matches!(ended, Found::Ended(9)), "its end was written anew, and it is {ended:?}");
        assert!((0..100).filter(|number| ![7, 50].contains(number)).all(|number| written(&store, number) == 19));
        let mut bytes = vec![0; 150_005];
        assert_eq!(store.read(name, 250_000, &mut bytes).unwrap(), 150_005);
        assert!(bytes.ends_with(b"again") && bytes[149_999] == 19);
    }
    #[test]
    fn a_failed_sync_at_a_segments_end_drops_bytes_though_the_next_succeeds() {
        let folder = tempfile::tempdir().unwrap();
        let settings = Settings { segment_len: 1, ..Settings::new(folder.path()) };
        let store = Store::open(&settings).unwrap();
        let (name, block) = (kept(0, 0).record.name, vec![9; 50_000]);
        store.put(&kept(0, 0), Life::Live, When::Synced).unwrap();
        store.append(name, 0, &block).unwrap();
        store.sync().unwrap();
        store.append(name, 50_000, &block).unwrap();
        store.bytes.with(|bytes| {
            bytes.log().sync_at_the_end(Path::new("/dev/null"));
            assert!(matches!(bytes.append(name, 100_000, &block), Err(StoreError::Disk(_))));
            // A kernel tells it once.
            bytes.log().sync_at_the_end(&folder.path().join("lock"));
            assert!(matches!(bytes.append(name, 100_000, &block), Err(StoreError::Disk(_))));
        });
        store.sync().unwrap();
        assert_eq!(store.held(name), Some(ByteRange::new(0, 50_000)), "what the first sync has brought");
        store.append(name, 50_000, b"again").unwrap();
        store.sync().unwrap();
        drop(store);
        let store = Store::open(&settings).unwrap();
        assert_eq!((store.damages(), store.held(name)), (&[][..], Some(ByteRange::new(0, 50_005))));
    }

    #[test]
    fn what_was_appended_before_anothers_sync_failed_is_not_said_to_be_synced() {
        let folder = tempfile::tempdir().unwrap();
        let store = Store::open(&Settings::new(folder.path())).unwrap();
        let (put, mark) = store.put_in(&kept(1, 5), Life::Live);
        put.unwrap();
        fail_sync(&store.flows);
        assert!(store.flows.sync_since(mark).is_err());
        store.flows.sync().unwrap();
    }

    /// As after the process was killed: without what waits in its memory.
    fn killed(folder: &Path) -> (tempfile::TempDir, Store) {
        let copy = tempfile::tempdir().unwrap();
        for part in ["flows", "octets"] {
            fs::create_dir(copy.path().join(part)).unwrap();
            for file in fs::read_dir(folder.join(part)).unwrap().map(Result::unwrap) {
                fs::copy(file.path(), copy.path().join(part).join(file.file_name())).unwrap();
            }
        }
        let store = Store::open(&Settings::new(copy.path())).unwrap();
        (copy, store)
    }

    #[test]
    fn bytes_consumed_before_a_failed_sync_count_as_kept_once_that_is_on_disk() {
        let folder = tempfile::tempdir().unwrap();
        let store = Store::open(&Settings::new(folder.path())).unwrap();
        let name = kept(0, 0).record.name;
        store.put(&kept(0, 0), Life::Live, When::Synced).unwrap();
        store.append(name, 0, &[9; 100]).unwrap();
        store.consume(name, 100).unwrap();
        fail_sync(&store.bytes);
        store.sync().unwrap();
        let held = store.held(name);
        let (_copy, after) = killed(folder.path());
        assert_eq!((held, after.held(name)), (Some(ByteRange::new(100, 100)), held));
    }

    #[test]
    fn a_new_flow_gets_no_bytes_of_its_namesake_whose_removal_was_lost() {
        let folder = tempfile::tempdir().unwrap();
        let store = Store::open(&Settings::new(folder.path())).unwrap();
        let name = kept(0, 0).record.name;
        store.put(&kept(0, 0), Life::Live, When::Synced).unwrap();
        store.append(name, 0, &[9; 100]).unwrap();
        store.sync().unwrap();
        store.remove(name, 9).unwrap();
        store.sync_flows().unwrap();
        let Leaving { of, .. } = std::mem::take(&mut *store.leaving.lock());
        assert!(of.contains_key(&name));
        store.bytes.with(|bytes| bytes.tell_forgotten(name)).unwrap();
        fail_sync(&store.bytes);
        store.put(&kept(0, 1), Life::Live, When::Synced).unwrap();
        store.append(name, 0, b"new").unwrap();
        store.sync().unwrap();
        let (_copy, after) = killed(folder.path());
        let mut bytes = [0; 3];
        assert_eq!((after.held(name), after.read(name, 0, &mut bytes).unwrap()), (Some(ByteRange::new(0, 3)), 3));
        assert_eq!(&bytes, b"new");
    }

    #[test]
    fn bytes_that_come_after_a_forgetting_that_was_lost_are_not_forgotten() {
        let folder = tempfile::tempdir().unwrap();
        let store = Store::open(&Settings::new(folder.path())).unwrap();
        let name = kept(0, 0).record.name;
        let mut spent = kept(0, 0);
        store.put(&spent, Life::Live, When::Synced).unwrap();
        store.append(name, 0, &[9; 100]).unwrap();
        store.consume(name, 100).unwrap();
        (spent.record.kept, spent.record.consumed) = (100, 100);
        store.put(&spent, Life::Parked, When::Synced).unwrap();
        assert!(matches!(store.take(name).unwrap(), Found::Kept(_)));
        store.bytes.with(|bytes| bytes.settle(name, 100)).unwrap();
        fail_sync(&store.bytes);
        store.append(name, 100, &[9; 50]).unwrap();
        store.sync().unwrap();
        let (_copy, after) = killed(folder.path());
        assert_eq!(after.held(name), Some(ByteRange::new(100, 150)));
    }

    #[test]
    fn bytes_that_were_kept_count_though_the_record_does_not_know_of_any() {
        let folder = tempfile::tempdir().unwrap();
        let store = Store::open(&Settings::new(folder.path())).unwrap();
        let mut first = Kept { spools: false, ..kept(0, 0) };
        (first.record.kept, first.record.consumed) = (100, 500);
        store.put(&first, Life::Live, When::Synced).unwrap();
        store.put(&kept(0, 1), Life::Live, When::Later).unwrap();
        store.append(first.record.name, 100, &[9; 100]).unwrap();
        store.sync().unwrap();
        let (_copy, after) = killed(folder.path());
        let Found::Kept(found) = after.take(first.record.name).unwrap() else { panic!("it is there") };
        let Record { written, kept, consumed, .. } = found.record;
        assert_eq!((written, found.spools, kept, consumed), (0, true, 200, 100));
    }
}
