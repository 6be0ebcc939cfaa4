//! The files of the cache: [`Disk`].
//!
//! `NUMBER.entry` is an entry, as [`Record`] has it; `NUMBER.part` is one that is still coming. Nothing is synced: what a power cut takes is fetched again. A file whose record is missing or
//! damaged is removed when the relay begins, and a body is checked, block by block, as it is read.

use super::entry::{Body, Entry, read_block};
use super::index::OnDisk;
use super::key::{Digest, Selector};
use super::record::{BLOCK, RECORD_MAX, Record, TAIL};
use crate::server::places::{Counted, Place, PlacedFile};
use crate::server::reserve::{Promise, Reserve};
use bytes::{Bytes, BytesMut};
use hoop_endpoint::DeviceId;
use parking_lot::Mutex;
use std::fs::{self, File};
use std::io::{self, ErrorKind};
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use tokio::runtime::Handle;

/// File systems give whole blocks.
const FILE_BLOCK: u64 = 4 << 10;

/// The file that one process locks.
const LOCK: &str = "lock";

/// The folder of the cache.
#[derive(Debug)]
pub(super) struct Disk {
    folder: PathBuf,
    /// What others need of the file system.
    reserve: Arc<Reserve>,
    /// What is kept is of a relay that connects to the same places: another may not go where it came from.
    pub place: Digest,
    next: AtomicU64,
    /// A record is read whole or written whole.
    records: Mutex<()>,
    _lock: File,
}

/// An entry that is still coming. Its file goes with it, unless it becomes whole.
#[derive(Debug)]
pub(super) struct Part {
    pub number: u64,
    path: PathBuf,
    pub file: Arc<PlacedFile>,
    /// What the file system could not set aside for it.
    pub to_come: Vec<Promise>,
    is_whole: bool,
}

impl Drop for Part {
    fn drop(&mut self) {
        if !self.is_whole {
            let path = std::mem::take(&mut self.path);
            let remove = move || drop(fs::remove_file(path));
            // A large file takes a disk its time.
            match Handle::try_current() {
                Ok(runtime) => drop(runtime.spawn_blocking(remove)),
                Err(_) => remove(),
            }
        }
    }
}

impl Disk {
    /// Opens the folder, or makes it. Returns what an earlier process has left, the longest unused first: entries of the same place, and those of one device alone if it is known still.
    /// All other files are removed.
    ///
    /// # Errors
    /// If the folder cannot be used, or another process uses it.
    pub(super) fn open(
        folder: &Path,
        reserve: Arc<Reserve>,
        place: Digest,
        is_known: impl Fn(DeviceId) -> bool,
    ) -> io::Result<(Self, Vec<(OnDisk, Selector)>)> {
        hoop_files::folder(folder)?;
        let lock = hoop_files::lock(&folder.join(LOCK)).map_err(io::Error::other)?;
        let next = AtomicU64::new(0);
        let disk = Self { folder: folder.to_owned(), reserve, place, next, records: Mutex::new(()), _lock: lock };
        let mut left = Vec::new();
        for file in fs::read_dir(folder)? {
            let file = file?;
            if file.file_name() == LOCK || file.file_type()?.is_dir() {
                continue;
            }
            let number = file.file_name().to_str().and_then(number);
            match number.and_then(|number| Some((number, disk.find(number, &is_known)?))) {
                Some((number, found)) => {
                    disk.next.fetch_max(number + 1, Ordering::Relaxed);
                    left.push((file.metadata().and_then(|is| is.modified()).ok(), found));
                }
                None => drop(fs::remove_file(file.path())),
            }
        }
        left.sort_by_key(|(modified, _)| *modified);
        Ok((disk, left.into_iter().map(|(_, found)| found).collect()))
    }

    fn find(&self, number: u64, is_known: impl Fn(DeviceId) -> bool) -> Option<(OnDisk, Selector)> {
        let (record, file) = self.record(number).ok()?;
        let is_usable = record.place == self.place && record.selector.owner.is_none_or(|owner| is_known(owner.device));
        let bytes = on_disk(file.metadata().ok()?.len());
        is_usable.then_some((OnDisk { number, bytes }, record.selector))
    }

    fn path(&self, number: u64, kind: &str) -> PathBuf {
        self.folder.join(format!("{number:016x}.{kind}"))
    }

    /// Makes the file of an entry that is to come. `bytes`: how long it will be, as far as that is known. `place`: none, if it is open for a moment. `counted`: what counts it by its number until it is closed. None: there is no room.
    ///
    /// # Errors
    /// If the disk fails.
    pub(super) fn create(
        &self,
        bytes: u64,
        place: Option<Place>,
        counted: impl FnOnce(u64) -> Option<Counted>,
    ) -> io::Result<Option<Part>> {
        let Some(promise) = self.reserve.promise(bytes, 1) else { return Ok(None) };
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let path = self.path(number, "part");
        let file = Arc::new(PlacedFile::new(hoop_files::create(&path)?, place).counted(counted(number)));
        let mut part = Part { number, path, file, to_come: Vec::new(), is_whole: false };
        // A disk that is full is so at once, and not in the middle. Where a file system sets nothing aside, it may be.
        let Ok(to_come) = promise.set_aside(&part.file, 0, bytes) else { return Ok(None) };
        part.to_come.extend(to_come);
        Ok(Some(part))
    }

    /// Has room for so many bytes more in an entry's file, from `from` on. What is returned is to be kept until they are written.
    ///
    /// # Errors
    /// If there is none.
    pub(super) fn extend(&self, file: &File, from: u64, bytes: u64) -> io::Result<Option<Promise>> {
        let promise = self.reserve.promise(bytes, 0).ok_or(ErrorKind::StorageFull)?;
        promise.set_aside(file, from, bytes)
    }

    /// All of its body is there: it becomes an entry.
    ///
    /// # Errors
    /// If the disk fails. The file is removed then.
    pub(super) fn finish(&self, mut part: Part, record: &Record) -> io::Result<OnDisk> {
        let encoded = record.encode();
        if encoded.len() > RECORD_MAX {
            return Err(ErrorKind::InvalidData.into());
        }
        let len = record.length + encoded.len() as u64;
        part.file.write_all_at(&encoded, record.length)?;
        // What was set aside beyond its end is given back.
        part.file.set_len(len)?;
        fs::rename(&part.path, self.path(part.number, "entry"))?;
        part.is_whole = true;
        Ok(OnDisk { number: part.number, bytes: on_disk(len) })
    }

    /// Reads an entry. A body of at most `small` bytes is read with it; otherwise its file stays open, in this place.
    ///
    /// # Errors
    /// If the disk fails, or it is damaged.
    pub(super) fn load(
        &self,
        number: u64,
        small: u64,
        place: Option<Place>,
        counted: Option<Counted>,
    ) -> io::Result<Entry> {
        let (record, file) = self.record(number)?;
        let body = match record.length <= small {
            true => Body::Memory(read_whole(&file, &record)?),
            false => Body::Disk(Arc::new(PlacedFile::new(file, place).counted(counted))),
        };
        Entry::new(record, body).ok_or_else(|| ErrorKind::InvalidData.into())
    }

    /// Writes an entry's record anew.
    ///
    /// # Errors
    /// If the disk fails. The entry is damaged then.
    pub(super) fn update(&self, number: u64, record: &Record) -> io::Result<OnDisk> {
        let encoded = record.encode();
        if encoded.len() > RECORD_MAX {
            return Err(ErrorKind::InvalidData.into());
        }
        let _one = self.records.lock();
        let file = hoop_files::open(&self.path(number, "entry"))?;
        file.set_len(record.length)?;
        file.write_all_at(&encoded, record.length)?;
        Ok(OnDisk { number, bytes: on_disk(record.length + encoded.len() as u64) })
    }

    /// Removes files of entries.
    pub(super) fn remove(&self, numbers: &[u64]) {
        numbers.iter().for_each(|number| drop(fs::remove_file(self.path(*number, "entry"))));
    }

    fn record(&self, number: u64) -> io::Result<(Record, File)> {
        let damaged = || io::Error::new(ErrorKind::InvalidData, "an entry of the cache is damaged");
        let _one = self.records.lock();
        let file = hoop_files::open(&self.path(number, "entry"))?;
        let len = file.metadata()?.len();
        let mut tail = [0; TAIL];
        file.read_exact_at(&mut tail, len.checked_sub(TAIL as u64).ok_or_else(damaged)?)?;
        let of_record = Record::len(&tail).ok_or_else(damaged)?;
        let at = len.checked_sub(of_record as u64).ok_or_else(damaged)?;
        let mut encoded = vec![0; of_record];
        file.read_exact_at(&mut encoded, at)?;
        let record = Record::decode(&encoded).filter(|record| record.length == at).ok_or_else(damaged)?;
        Ok((record, file))
    }
}

fn read_whole(file: &File, record: &Record) -> io::Result<Bytes> {
    let mut whole = BytesMut::new();
    for (block, sum) in record.sums.iter().enumerate() {
        let start = (block * BLOCK) as u64;
        let len = (record.length - start).min(BLOCK as u64) as usize;
        let bytes = read_block(file, start, len, Some(*sum))?;
        if len as u64 == record.length {
            return Ok(bytes);
        }
        whole.extend_from_slice(&bytes);
    }
    Ok(whole.freeze())
}

/// The number of `NUMBER.entry`.
fn number(name: &str) -> Option<u64> {
    let number = name.strip_suffix(".entry").filter(|number| number.len() == 16)?;
    u64::from_str_radix(number, 16).ok().filter(|number| *number < u64::MAX)
}

/// What a file of this length takes.
fn on_disk(len: u64) -> u64 {
    len.next_multiple_of(FILE_BLOCK)
}

#[cfg(test)]
mod tests {
    use super::super::entry;
    use super::super::key::Asker;
    use super::super::policy::Times;
    use super::super::record::Sums;
    use super::*;
    use crate::server::reserve::tests::small;
    use http::{HeaderMap, Request, StatusCode};
    use std::os::unix::fs::PermissionsExt as _;
    use std::thread;
    use std::time::SystemTime;

    const PLACE: Digest = Digest([7; 16]);

    fn open(folder: &Path) -> (Disk, Vec<(OnDisk, Selector)>) {
        Disk::open(folder, Reserve::of(folder), PLACE, |device| device == DeviceId([1; 20])).unwrap()
    }

    /// An entry of this URI, for all or for one device alone.
    fn put(disk: &Disk, uri: &str, body: &[u8], owner: Option<u8>) -> OnDisk {
        let (request, ()) = Request::get(uri).body(()).unwrap().into_parts();
        let asker = Asker::of(&request, DeviceId([owner.unwrap_or(0); 20]));
        let answer = HeaderMap::new();
        let selector = Selector::of(&asker, &request.headers, &answer, owner.is_some(), false).unwrap();
        let times = Times { asked: SystemTime::now(), came: SystemTime::now() };
        let mut record = entry::record(selector, false, (StatusCode::OK, &answer), times, disk.place).unwrap();
        let mut sums = Sums::default();
        sums.push(body);
        (record.length, record.sums) = (body.len() as u64, sums.finish());
        let part = disk.create(record.length, None, |_| None).unwrap().unwrap();
        part.file.write_all_at(body, 0).unwrap();
        disk.finish(part, &record).unwrap()
    }

    fn files(folder: &Path) -> Vec<String> {
        let files = fs::read_dir(folder).unwrap().map(|file| file.unwrap().file_name().into_string().unwrap());
        let mut files: Vec<_> = files.filter(|name| name != LOCK).collect();
        files.sort();
        files
    }

    #[test]
    fn entries_survive_their_process_and_what_is_no_entry_goes() {
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path().join("cache");
        let kept = {
            let (disk, left) = open(&folder);
            assert!(left.is_empty());
            let kept = [put(&disk, "http://a/1", b"one", None), put(&disk, "http://a/2", &[7; 600_000], Some(1))];
            put(&disk, "http://a/3", b"of a device that is gone", Some(2));
            std::mem::forget(disk.create(10, None, |_| None).unwrap().unwrap());
            fs::write(folder.join("0000000000000077.entry"), "no entry").unwrap();
            fs::write(folder.join("other"), "x").unwrap();
            kept
        };
        let (disk, left) = open(&folder);
        assert_eq!(left.iter().map(|(on_disk, _)| *on_disk).collect::<Vec<_>>(), kept);
        assert_eq!(files(&folder), ["0000000000000000.entry", "0000000000000001.entry"]);
        let small = disk.load(kept[0].number, 1_000, None, None).unwrap();
        assert!(matches!(&small.body, Body::Memory(body) if body == "one"));
        assert!(matches!(disk.load(kept[1].number, 1_000, None, None).unwrap().body, Body::Disk(_)));
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!((mode(&folder), mode(&folder.join("0000000000000000.entry"))), (0o700, 0o600));
        drop(disk);
        let (_, left) = Disk::open(&folder, Reserve::of(&folder), Digest::default(), |_| true).unwrap();
        assert!(left.is_empty() && files(&folder).is_empty(), "another relay's places are not this one's");
    }

    #[tokio::test]
    async fn a_damaged_body_is_never_read_and_a_damaged_record_is_no_entry() {
        let folder = tempfile::tempdir().unwrap();
        let (disk, _) = open(folder.path());
        let body: Vec<u8> = (0..600_000).map(|at| (at / 9) as u8).collect();
        let on_disk = put(&disk, "http://a/1", &body, None);
        let path = disk.path(on_disk.number, "entry");
        let whole = fs::read(&path).unwrap();
        let mut damaged = whole.clone();
        damaged[300_000] ^= 1;
        fs::write(&path, &damaged).unwrap();
        assert!(disk.load(on_disk.number, 1 << 20, None, None).is_err());
        let entry = disk.load(on_disk.number, 0, None, None).unwrap();
        assert_eq!(entry.read(70).await.unwrap(), body[70..BLOCK]);
        assert!(entry.read(BLOCK as u64).await.is_err());
        assert_eq!(entry.read(BLOCK as u64 * 2).await.unwrap(), body[BLOCK * 2..]);
        for len in [0, 5, 600_000, whole.len() - 1] {
            fs::write(&path, &whole[..len]).unwrap();
            assert!(disk.load(on_disk.number, 0, None, None).is_err(), "{len} bytes");
        }
        fs::write(&path, [&whole[1..]].concat()).unwrap();
        assert!(disk.load(on_disk.number, 0, None, None).is_err(), "its body is shorter");
    }

    #[test]
    fn a_record_that_is_written_anew_keeps_its_body() {
        let folder = tempfile::tempdir().unwrap();
        let (disk, _) = open(folder.path());
        let on_disk = put(&disk, "http://a/1", b"one", None);
        let mut entry = disk.load(on_disk.number, 0, None, None).unwrap();
        entry.record.came += 1_000;
        let again = disk.update(on_disk.number, &entry.record).unwrap();
        let read = disk.load(again.number, 10, None, None).unwrap();
        assert_eq!(read.record, entry.record);
        assert!(matches!(&read.body, Body::Memory(body) if body == "one"));
    }

    #[test]
    fn what_the_file_system_has_no_room_for_is_not_begun() {
        let folder = tempfile::tempdir().unwrap();
        let (disk, _) = open(folder.path());
        assert!(disk.create(u64::MAX >> 2, None, |_| None).unwrap().is_none());
        assert!(files(folder.path()).is_empty());
    }

    /// Each had asked before the others took anything.
    #[test]
    fn entries_that_come_together_leave_the_reserve() {
        let folder = tempfile::tempdir().unwrap();
        let reserve = small(folder.path(), 5 << 19);
        let (disk, _) = Disk::open(folder.path(), reserve.clone(), PLACE, |_| true).unwrap();
        let parts: Vec<_> = thread::scope(|scope| {
            let made: Vec<_> = (0..4).map(|_| scope.spawn(|| disk.create(1 << 19, None, |_| None).unwrap())).collect();
            made.into_iter().filter_map(|part| part.join().unwrap()).collect()
        });
        assert_eq!(parts.len(), 4);
        let extended: Vec<_> = thread::scope(|scope| {
            let extend = |part: &Part| disk.extend(&part.file, 1 << 19, 1 << 18);
            let extended: Vec<_> = parts.iter().map(|part| scope.spawn(move || extend(part))).collect();
            extended.into_iter().filter_map(|part| part.join().unwrap().ok()).collect()
        });
        assert_eq!(extended.len(), 2);
        assert!(disk.create(1, None, |_| None).unwrap().is_none() && reserve.promise(0, 0).is_some());
        drop((parts, extended));
        assert!(reserve.promise(5 << 19, 1).is_some());
    }
}
