//! What is kept, on disk and in memory: [`Library`].
//!
//! Bounds: bytes on disk and in memory ([`CacheConfig`]), and of one entry a part of that ([`ENTRY_PART`]). The index of what is on disk is in memory ([`ENTRIES_MAX`]). A small body that was
//! read from disk is in memory from then on, and is answered from there.

use super::disk::{Disk, Part};
use super::draft::Draft;
use super::entry::{Body, Entry};
use super::index::{ENTRIES_MAX, Found, Index, Limits};
use super::key::{Asker, Digest};
use super::record::{BLOCK, Record};
use super::status::Forward;
use crate::server::places::{Counted, Place, Places};
use crate::server::reserve::Reserve;
use hoop_endpoint::DeviceId;
use hoop_http::Lines;
use http::HeaderMap;
use parking_lot::Mutex;
use std::io;
use std::path::Path;
use std::sync::Arc;
use tokio::task::spawn_blocking;

/// One entry takes at most one part in so many of the whole: a few large ones do not have all others go.
const ENTRY_PART: u64 = 8;

/// The most bytes of one entry, however large the whole is: a record has room for the sums of so many.
const ENTRY_MAX: u64 = 4 << 30;

/// Room for a body whose length is not known is taken in steps of at least and at most so many bytes.
pub(super) const STEP_MIN: u64 = 64 << 10;
pub(super) const STEP_MAX: u64 = 4 << 20;

/// Where answers are kept, and how much they may take. 0: none are kept there.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CacheConfig {
    /// On disk, in the folder of [`StoreConfig`](crate::StoreConfig), in bytes. Default 1 GiB.
    pub disk: u64,
    /// In memory, in bytes. Default 32 MiB.
    pub memory: u64,
}

impl Default for CacheConfig {
    fn default() -> Self {
        Self { disk: 1 << 30, memory: 32 << 20 }
    }
}

/// What is kept.
#[derive(Debug)]
pub(super) struct Library {
    limits: Limits,
    index: Arc<Mutex<Index<Arc<Entry>>>>,
    disk: Option<Arc<Disk>>,
    /// Of files that are open.
    files: Arc<Places>,
}

/// Room for a body that comes. It is given back when this is dropped.
#[derive(Debug)]
pub(super) struct Room {
    index: Arc<Mutex<Index<Arc<Entry>>>>,
    device: DeviceId,
    pub bytes: u64,
    pub part: Option<Part>,
    /// The number of its file, as soon as there was one.
    number: Option<u64>,
    /// Of its file, which a small body has for a moment only.
    place: Option<Place>,
}

impl Drop for Room {
    fn drop(&mut self) {
        let mut index = self.index.lock();
        match self.number {
            // Others may read it still.
            Some(number) => index.leave(self.device, number, self.bytes),
            None => index.release(self.device, self.bytes),
        }
    }
}

/// A file that is read for a device counts as long as this is there.
#[derive(Debug)]
struct Hold {
    index: Arc<Mutex<Index<Arc<Entry>>>>,
    number: u64,
    device: DeviceId,
}

impl Drop for Hold {
    fn drop(&mut self) {
        self.index.lock().let_go(self.number, self.device);
    }
}

/// What there is for a request.
pub(super) struct Look {
    pub entry: Option<Arc<Entry>>,
    pub why: Forward,
    /// As [`Library::latest`] was then.
    pub latest: u64,
}

fn warn(error: &io::Error) {
    static LINES: Lines = Lines::new();
    LINES.warn("an answer cannot be kept, or not be read again", error);
}

impl Library {
    /// Opens it, with what an earlier process has left in `folder`.
    ///
    /// # Errors
    /// If the folder cannot be used.
    pub(super) fn open(
        config: CacheConfig,
        folder: Option<(&Path, Arc<Reserve>)>,
        place: Digest,
        files: Arc<Places>,
        is_known: impl Fn(DeviceId) -> bool,
    ) -> io::Result<Self> {
        let folder = folder.filter(|_| config.disk > 0);
        let limits =
            Limits { disk: folder.as_ref().map_or(0, |_| config.disk), memory: config.memory, entries: ENTRIES_MAX };
        let mut index = Index::new(limits);
        let disk = folder.map(|(folder, reserve)| Disk::open(folder, reserve, place, is_known)).transpose()?;
        let disk = disk.map(|(disk, left)| {
            for (on_disk, selector) in left {
                disk.remove(&index.insert(selector, Some(on_disk), None));
            }
            Arc::new(disk)
        });
        Ok(Self { limits, index: Arc::new(Mutex::new(index)), disk, files })
    }

    /// What an entry's place is ([`Disk::place`]).
    pub(super) fn place(&self) -> Digest {
        self.disk.as_ref().map(|disk| disk.place).unwrap_or_default()
    }

    /// The most bytes of one body.
    pub(super) fn entry_max(&self) -> u64 {
        let all = if self.disk.is_some() { self.limits.disk } else { self.limits.memory };
        (all / ENTRY_PART).min(ENTRY_MAX)
    }

    /// The most bytes of a body that is kept in memory, too.
    pub(super) fn small(&self) -> u64 {
        let most = self.limits.memory / ENTRY_PART;
        if self.disk.is_some() { most.min(BLOCK as u64) } else { most }
    }

    pub(super) fn has_disk(&self) -> bool {
        self.disk.is_some()
    }

    /// Bytes on disk and in memory, and entries.
    pub(super) fn usage(&self) -> (u64, u64, usize) {
        self.index.lock().usage()
    }

    /// Changes when an entry of this URI comes.
    pub(super) fn latest(&self, target: Digest) -> u64 {
        self.index.lock().latest(target)
    }

    /// What there is for a request. The disk is asked only for what is not in memory.
    pub(super) async fn find(&self, asker: &Asker, request: &HeaderMap) -> Look {
        let (device, small) = (asker.owner.device, self.small());
        let (found, latest, hold) = {
            let mut index = self.index.lock();
            let latest = index.latest(asker.target);
            let found = index.find(asker, request);
            let hold = match found {
                Found::OnDisk(_, on_disk) if on_disk.bytes > small && index.may_hold(device, on_disk.bytes) => {
                    index.hold(on_disk.number, device, Some(on_disk.bytes));
                    Some(Hold { index: self.index.clone(), number: on_disk.number, device })
                }
                _ => None,
            };
            (found, latest, hold)
        };
        let look = |entry, why| Look { entry, why, latest };
        let (id, on_disk) = match found {
            Found::InMemory(entry) => return look(Some(entry), Forward::Stale),
            Found::OnDisk(id, on_disk) => (id, on_disk),
            Found::Variant => return look(None, Forward::VaryMiss),
            Found::Nothing => return look(None, Forward::UriMiss),
        };
        let Some(disk) = self.disk.clone() else { return look(None, Forward::UriMiss) };
        let (index, place) = (self.index.clone(), self.files.take_now(device));
        if (place.is_none() || hold.is_none()) && on_disk.bytes > small {
            return look(None, Forward::UriMiss);
        }
        let counted = hold.map(|hold| Box::new(hold) as Counted);
        let loaded = spawn_blocking(move || match disk.load(on_disk.number, small, place, counted) {
            Ok(entry) => {
                let entry = Arc::new(entry);
                if matches!(entry.body, Body::Memory(_)) {
                    let gone = index.lock().promote(id, on_disk, entry.bytes(), entry.clone());
                    disk.remove(&gone);
                }
                Some(entry)
            }
            Err(error) => {
                let damaged = index.lock().remove_damaged(id, on_disk);
                // One that has just made way is no failure.
                damaged.inspect(|_| warn(&error));
                disk.remove(damaged.as_slice());
                None
            }
        });
        let entry = loaded.await.ok().flatten();
        let why = if entry.is_some() { Forward::Stale } else { Forward::UriMiss };
        look(entry, why)
    }

    /// Room for a body that this device has asked for. It grows with what comes.
    pub(super) fn room(&self, device: DeviceId) -> Room {
        let place = self.disk.as_ref().and_then(|_| self.files.take_now(device));
        Room { index: self.index.clone(), device, bytes: 0, part: None, number: None, place }
    }

    /// Whether a body of this length may be kept, as far as is known.
    pub(super) fn may_keep(&self, room: &Room, length: Option<u64>) -> bool {
        let needs_file = self.has_disk() && length.is_some_and(|length| length > self.small());
        !needs_file || (room.place.is_some() && self.index.lock().may_hold(room.device, length.unwrap_or(0)))
    }

    /// Has a file for a body that is too large for memory. False: there is no room.
    pub(super) async fn make_file(&self, room: &mut Room) -> bool {
        let (Some(disk), Some(place)) = (self.disk.clone(), room.place.take()) else { return false };
        let (bytes, device, index) = (room.bytes, room.device, self.index.clone());
        let hold = move |number| {
            index.lock().hold(number, device, None);
            Some(Box::new(Hold { index, number, device }) as Counted)
        };
        let made = spawn_blocking(move || disk.create(bytes, Some(place), hold)).await;
        room.part = made.map_err(io::Error::other).flatten().inspect_err(warn).ok().flatten();
        room.number = room.part.as_ref().map(|part| part.number);
        room.part.is_some()
    }

    /// Has more room for a body than it had. Whether there is any.
    pub(super) async fn grow(&self, room: &mut Room, bytes: u64) -> bool {
        let Some(gone) = self.index.lock().reserve(room.device, bytes) else { return false };
        let from = room.bytes;
        room.bytes += bytes;
        let Some(disk) = self.disk.clone() else { return true };
        let Some(part) = &mut room.part else {
            self.remove_files(gone).await;
            return true;
        };
        let file = part.file.clone();
        let extended = spawn_blocking(move || {
            disk.remove(&gone);
            disk.extend(&file, from, bytes)
        });
        let Ok(Ok(to_come)) = extended.await else { return false };
        part.to_come.extend(to_come);
        true
    }

    /// Keeps an entry whose body is whole, unless `is_kept` says at last that it is not to be. Where it is kept in memory, `is_there` is called before it is on disk.
    ///
    /// # Errors
    /// If the disk fails.
    pub(super) async fn keep(
        &self,
        mut record: Record,
        draft: &Draft,
        mut room: Room,
        is_kept: impl Fn() -> bool + Send + 'static,
        is_there: impl FnOnce(),
    ) -> io::Result<()> {
        (record.length, record.sums) = (draft.len(), draft.sums());
        let mut part = room.part.take();
        if let Some(part) = &part {
            draft.store(&part.file, true).await?;
        }
        let body = draft.in_memory().filter(|body| body.len() as u64 <= self.small() || self.disk.is_none());
        let (disk, index) = (self.disk.clone(), self.index.clone());
        let whole = if part.is_none() { draft.in_memory() } else { None };
        let entry = body.and_then(|body| Entry::new(record.clone(), Body::Memory(body))).map(Arc::new);
        let in_memory = entry.clone().filter(|entry| entry.bytes() <= self.limits.memory);
        let is_in_memory = in_memory.is_some();
        let (begun, before) = {
            let mut index = index.lock();
            let kept = in_memory.filter(|_| is_kept()).map(|entry| (entry.bytes(), entry));
            let gone = kept.map(|kept| index.insert(record.selector.clone(), None, Some(kept)));
            (index.begin(record.selector.target), gone.unwrap_or_default())
        };
        // From here on nothing waits, so that what was begun is finished.
        if is_in_memory {
            is_there();
        }
        let keeping = spawn_blocking(move || {
            let on_disk = disk.as_ref().map(|disk| {
                if let Some(whole) = &whole {
                    part = disk.create(whole.len() as u64, None, |_| None)?;
                    if let Some(part) = &part {
                        std::os::unix::fs::FileExt::write_all_at(&**part.file, whole, 0)?;
                    }
                }
                part.map(|part| disk.finish(part, &record)).transpose()
            });
            // What cannot be on disk may be in memory.
            let on_disk = on_disk.transpose().inspect_err(warn).ok().flatten().flatten();
            let selector = record.selector.clone();
            drop(room);
            let mut index = index.lock();
            // A later answer may have come meanwhile.
            let is_latest = index.came(selector.id()).is_none_or(|came| came < begun);
            let gone = match index.finish(begun) && is_latest && is_kept() {
                true => index.insert(selector, on_disk, entry.map(|entry| (entry.bytes(), entry))),
                false => on_disk.map(|on_disk| on_disk.number).into_iter().collect(),
            };
            drop(index);
            disk.inspect(|disk| disk.remove(&[before, gone].concat()));
        });
        keeping.await.map_err(io::Error::other)
    }

    /// Keeps an entry whose head is another now, instead of what it was. Its body is the same.
    pub(super) async fn refresh(&self, entry: &Entry, is_kept: impl Fn() -> bool + Send + 'static) {
        let (record, body) = (entry.record.clone(), entry.body.clone());
        let (disk, index) = (self.disk.clone(), self.index.clone());
        let refreshing = spawn_blocking(move || {
            let id = record.selector.id();
            let (begun, before) = {
                let mut index = index.lock();
                (index.begin(record.selector.target), index.on_disk(id))
            };
            let updated = disk.as_ref().zip(before).map(|(disk, before)| disk.update(before.number, &record));
            let on_disk = updated.transpose().inspect_err(warn).ok().flatten();
            let selector = record.selector.clone();
            let is_small = matches!(body, Body::Memory(_));
            let entry = is_small.then(|| Entry::new(record, body)).flatten().map(Arc::new);
            let mut index = index.lock();
            // It may have made way meanwhile, with its file.
            let is_there = index.on_disk(id) == before;
            let gone = match index.finish(begun) && is_there && is_kept() {
                true => index.insert(selector, on_disk, entry.map(|entry| (entry.bytes(), entry))),
                false => Vec::new(),
            };
            drop(index);
            disk.inspect(|disk| disk.remove(&gone));
        });
        let _ = refreshing.await;
    }

    /// Removes an entry.
    pub(super) async fn remove(&self, id: Digest) {
        let gone = self.index.lock().remove(id);
        self.remove_files(gone.into_iter().collect()).await;
    }

    /// Removes all entries of a URI.
    pub(super) async fn remove_target(&self, target: Digest) {
        let gone = self.index.lock().remove_target(target);
        self.remove_files(gone).await;
    }

    /// Removes what is of these devices alone.
    pub(super) fn forget(&self, is_gone: impl Fn(DeviceId) -> bool) {
        let gone = self.index.lock().forget(is_gone);
        self.disk.iter().for_each(|disk| disk.remove(&gone));
    }

    async fn remove_files(&self, gone: Vec<u64>) {
        if let Some(disk) = self.disk.clone().filter(|_| !gone.is_empty()) {
            let _ = spawn_blocking(move || disk.remove(&gone)).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::draft::End;
    use super::super::entry;
    use super::super::key::Selector;
    use super::super::policy::Times;
    use super::*;
    use bytes::Bytes;
    use http::{Request, StatusCode, request};
    use std::time::SystemTime;

    fn open(config: CacheConfig, folder: &Path) -> Library {
        Library::open(config, Some((folder, Reserve::of(folder))), Digest::default(), Places::new(100, 100), |_| true)
            .unwrap()
    }

    const DEVICE: DeviceId = DeviceId([1; 20]);

    fn request(number: usize) -> (request::Parts, Asker) {
        let (request, ()) = Request::get(format!("http://a.example/{number}")).body(()).unwrap().into_parts();
        let asker = Asker::of(&request, DEVICE);
        (request, asker)
    }

    /// Keeps this body under this number.
    async fn keep(library: &Library, number: usize, body: &[u8], has_file: bool) -> io::Result<()> {
        let (request, asker) = request(number);
        let answer: HeaderMap = [(http::header::CACHE_CONTROL, "max-age=60".parse().unwrap())].into_iter().collect();
        let selector = Selector::of(&asker, &request.headers, &answer, false, false).unwrap();
        let times = Times { asked: SystemTime::now(), came: SystemTime::now() };
        let record = entry::record(selector, false, (StatusCode::OK, &answer), times, library.place()).unwrap();
        let draft = Draft::new();
        draft.push(Bytes::copy_from_slice(body), true);
        let mut room = library.room(asker.owner.device);
        if !library.grow(&mut room, body.len() as u64).await || (has_file && !library.make_file(&mut room).await) {
            return Err(io::ErrorKind::StorageFull.into());
        }
        let kept = library.keep(record, &draft, room, || true, || {}).await;
        draft.end(End::Whole);
        kept
    }

    async fn find(library: &Library, number: usize) -> Option<Arc<Entry>> {
        let (request, asker) = request(number);
        library.find(&asker, &request.headers).await.entry
    }

    fn files(folder: &Path) -> usize {
        std::fs::read_dir(folder).unwrap().flatten().filter(|file| file.file_name() != "lock").count()
    }

    #[tokio::test]
    async fn ten_thousand_entries_stay_within_the_bounds_also_through_a_restart() {
        let folder = tempfile::tempdir().unwrap();
        let config = CacheConfig { disk: 8 << 20, memory: 1 << 20 };
        let library = open(config, folder.path());
        for number in 0..10_000 {
            keep(&library, number, &[number as u8; 1_000], false).await.unwrap();
            let (disk, memory, _) = library.usage();
            assert!(disk <= config.disk && memory <= config.memory);
        }
        assert_eq!((library.usage().2, files(folder.path())), (2_048, 2_048));
        assert!(find(&library, 0).await.is_none());
        let last = find(&library, 9_999).await.unwrap();
        assert!(matches!(&last.body, Body::Memory(body) if body[..] == [9_999_usize as u8; 1_000]));
        drop((library, last));
        let half = CacheConfig { disk: 4 << 20, ..config };
        let library = open(half, folder.path());
        assert_eq!(library.usage(), (4 << 20, 0, 1_024));
        assert_eq!(files(folder.path()), 1_024);
        assert!(find(&library, 9_999).await.is_some() && find(&library, 8_000).await.is_none());
        assert!(library.usage().1 > 0, "what was read is in memory");
    }

    #[tokio::test]
    async fn a_disk_that_takes_nothing_leaves_what_fits_into_memory() {
        let folder = tempfile::tempdir().unwrap();
        let (config, cache) = (CacheConfig::default(), folder.path().join("cache"));
        let library = open(config, &cache);
        keep(&library, 1, b"on disk", false).await.unwrap();
        std::fs::remove_dir_all(&cache).unwrap();
        keep(&library, 2, b"in memory", false).await.unwrap();
        assert_eq!(library.usage().2, 2);
        assert!(matches!(&find(&library, 2).await.unwrap().body, Body::Memory(body) if body == "in memory"));
        assert!(!library.make_file(&mut library.room(DEVICE)).await, "and nothing that does not");
    }

    /// A device that took nothing had files stay that counted for nobody: any number, one after the other.
    #[test]
    fn files_that_are_read_count_though_their_entries_make_way() {
        // One thread closes files in turn with what else it does.
        let runtime = tokio::runtime::Builder::new_current_thread().max_blocking_threads(1).enable_all().build();
        runtime.unwrap().block_on(files_that_are_read());
    }

    async fn files_that_are_read() {
        let are_closed = async || spawn_blocking(|| ()).await.unwrap();
        let folder = tempfile::tempdir().unwrap();
        let library = open(CacheConfig { disk: 8 << 20, memory: 0 }, folder.path());
        let (body, mut read) = (vec![7; 900_000], Vec::new());
        for number in 0..40 {
            let is_kept = keep(&library, number, &body, true).await.is_ok();
            are_closed().await;
            if is_kept {
                read.extend(find(&library, number).await);
            }
            let held: u64 = read.iter().map(|entry| entry.record.length).sum();
            let (disk, ..) = library.usage();
            assert!(held <= 2 << 20, "a device has {held} bytes read for it");
            assert!(disk >= held && disk <= 8 << 20, "{held} of {disk}");
        }
        assert_eq!(read.len(), 2);
        library.remove_target(request(0).1.target).await;
        let counts = library.usage().0;
        read.clear();
        are_closed().await;
        assert_eq!(library.usage().0, counts - 901_120, "with its record, in whole blocks");
        assert!(keep(&library, 41, &body, true).await.is_ok() && find(&library, 41).await.is_some());
    }

    #[tokio::test]
    async fn what_comes_takes_half_at_most_and_gives_it_back() {
        for config in [CacheConfig { disk: 8 << 20, memory: 0 }, CacheConfig { disk: 0, memory: 8 << 20 }] {
            let folder = tempfile::tempdir().unwrap();
            let library = open(config, folder.path());
            let mut rooms: Vec<_> = (0..4).map(|id| library.room(DeviceId([id; 20]))).collect();
            for room in &mut rooms {
                assert!(library.grow(room, 1 << 20).await);
            }
            assert!(!library.grow(&mut rooms[0], 1).await);
            rooms.pop();
            assert!(library.grow(&mut library.room(DeviceId([4; 20])), 1 << 20).await);
            rooms.clear();
            assert!(library.grow(&mut library.room(DEVICE), 2 << 20).await);
        }
    }
}
