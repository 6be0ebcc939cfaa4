//! What the relay leaves to others of the file system that its folder is on: [`Reserve`].
//!
//! Asking a file system and taking room of it are two steps, and several may ask before one of them takes. So whoever
//! has room gets a [`Promise`] of it. What is promised counts as taken until the file system counts it itself.

use hoop_files::{Space, space};
use parking_lot::Mutex;
use rustix::fs::{FallocateFlags, fallocate};
use rustix::io::Errno;
use std::fmt;
use std::fs::{File, metadata};
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Where a file system has less left than this, in bytes, nothing more is put there: others need it, too.
pub(super) const RESERVE: u64 = 256 << 20;

/// The same of files.
const RESERVE_FILES: u64 = 1_024;

/// What is promised, and what the file system does not count yet. Pure.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
struct Promised {
    bytes: u64,
    files: u64,
}

impl Promised {
    /// Whether a file system that has this much left has room for `more` beside all of this.
    const fn leaves_room(self, left: Space, more: Self) -> bool {
        let all = self.and(more);
        left.bytes >= RESERVE.saturating_add(all.bytes) && left.files >= RESERVE_FILES.saturating_add(all.files)
    }

    const fn and(self, more: Self) -> Self {
        Self { bytes: self.bytes.saturating_add(more.bytes), files: self.files.saturating_add(more.files) }
    }

    const fn without(self, less: Self) -> Self {
        Self { bytes: self.bytes.saturating_sub(less.bytes), files: self.files.saturating_sub(less.files) }
    }
}

/// What says how much a file system has left.
type Ask = dyn Fn(&Path) -> io::Result<Space> + Send + Sync;

/// The one account of a file system: all who put something under the same folder share it.
pub(crate) struct Reserve {
    folder: PathBuf,
    space: Box<Ask>,
    /// One asks at a time. Giving a promise back waits for nobody: a file system may take long to answer.
    asking: Mutex<()>,
    promised: Mutex<Promised>,
}

impl fmt::Debug for Reserve {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reserve").field("promised", &self.promised).finish_non_exhaustive()
    }
}

impl Reserve {
    /// That of the file system which this folder is on.
    pub(super) fn of(folder: &Path) -> Arc<Self> {
        Self::with(folder, space)
    }

    /// The same, of which `space` says what it has left.
    pub(super) fn with(folder: &Path, space: impl Fn(&Path) -> io::Result<Space> + Send + Sync + 'static) -> Arc<Self> {
        let (asking, promised) = (Mutex::default(), Mutex::default());
        Arc::new(Self { folder: folder.to_owned(), space: Box::new(space), asking, promised })
    }

    /// That of a folder in this one: another, if somebody has mounted another file system there.
    pub(super) fn here(self: Arc<Self>, folder: &Path) -> Arc<Self> {
        let is_other =
            metadata(folder).is_ok_and(|inner| metadata(&self.folder).is_ok_and(|outer| outer.dev() != inner.dev()));
        if is_other { Self::of(folder) } else { self }
    }

    /// Promises so many bytes, in so many new files. None: there is no room. It asks the file system.
    pub(super) fn promise(self: &Arc<Self>, bytes: u64, files: u64) -> Option<Promise> {
        let more = Promised { bytes, files };
        let _one = self.asking.lock();
        // What is given back from here on counts twice for this one, and never not at all.
        let promised = *self.promised.lock();
        let left = (self.space)(&self.folder).ok()?;
        promised.leaves_room(left, more).then(|| self.add(more))
    }

    /// Promises bytes that were somebody's before, whatever is left. Who asks just now has the answer first, since bytes may
    /// be given back to the file system after this.
    pub(super) fn promise_again(self: &Arc<Self>, bytes: u64) -> Promise {
        let _one = self.asking.lock();
        self.add(Promised { bytes, files: 0 })
    }

    fn add(self: &Arc<Self>, more: Promised) -> Promise {
        let mut promised = self.promised.lock();
        *promised = promised.and(more);
        Promise { reserve: self.clone(), of: more }
    }
}

/// Room that somebody may take. It is given back when this is dropped: it was taken by then, or is not needed.
#[derive(Debug)]
pub(crate) struct Promise {
    reserve: Arc<Reserve>,
    of: Promised,
}

impl Promise {
    /// So many of its bytes were taken.
    pub(super) fn took(&mut self, bytes: u64) {
        self.give_back(Promised { bytes: bytes.min(self.of.bytes), files: 0 });
    }

    fn give_back(&mut self, taken: Promised) {
        self.of = self.of.without(taken);
        let mut promised = self.reserve.promised.lock();
        *promised = promised.without(taken);
    }

    /// Has the file system set aside `length` bytes of a file from `from` on, which this promises. Returns the promise if
    /// the file system cannot: it is then to be kept until the bytes are written.
    ///
    /// # Errors
    /// If the disk is full.
    pub(super) fn set_aside(self, file: &File, from: u64, length: u64) -> io::Result<Option<Self>> {
        if length == 0 {
            return Ok(None);
        }
        match fallocate(file, FallocateFlags::KEEP_SIZE, from, length) {
            Ok(()) => Ok(None),
            Err(full @ (Errno::NOSPC | Errno::DQUOT | Errno::FBIG)) => Err(full.into()),
            Err(_) => Ok(Some(self)),
        }
    }
}

impl Drop for Promise {
    fn drop(&mut self) {
        self.give_back(self.of);
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use std::fs::read_dir;
    use std::thread::sleep;
    use std::time::Duration;

    /// That of a file system with so many bytes besides the reserve, of which what is in this folder has a part.
    /// Whoever asks gets the answer late, so that others ask meanwhile.
    pub(in crate::server) fn small(folder: &Path, bytes: u64) -> Arc<Reserve> {
        fn taken(folder: &Path) -> u64 {
            let files = read_dir(folder).into_iter().flatten().flatten();
            let taken = files.map(|file| match file.metadata() {
                Ok(is) if is.is_dir() => taken(&file.path()),
                is => is.map_or(0, |is| is.blocks() * 512),
            });
            taken.sum()
        }
        Reserve::with(folder, move |folder| {
            let bytes = (RESERVE + bytes).saturating_sub(taken(folder));
            sleep(Duration::from_millis(50));
            Ok(Space { bytes, files: u64::MAX })
        })
    }

    #[test]
    fn what_is_promised_counts_until_it_is_given_back() {
        let left = |bytes, files| Space { bytes: RESERVE + bytes, files: RESERVE_FILES + files };
        let some = |bytes, files| Promised { bytes, files };
        let promised = some(60, 1);
        assert!(promised.leaves_room(left(100, 3), some(40, 2)));
        assert!(!promised.leaves_room(left(100, 3), some(41, 0)), "bytes");
        assert!(!promised.leaves_room(left(100, 3), some(0, 3)), "files");
        assert!(!promised.leaves_room(left(1 << 50, 3), some(u64::MAX, 0)));
        assert!(!Promised::default().leaves_room(Space { bytes: RESERVE - 1, files: u64::MAX }, some(0, 0)));
        assert_eq!(promised.and(some(40, 2)).without(some(60, 1)), some(40, 2));

        let reserve = Reserve::with(Path::new("."), move |_| Ok(left(100, 3)));
        let mut first = reserve.promise(60, 1).unwrap();
        assert!(reserve.promise(41, 1).is_none() && reserve.promise(1, 3).is_none());
        first.took(50);
        let second = reserve.promise(90, 2).unwrap();
        assert!(reserve.promise(1, 0).is_none());
        drop(first);
        assert!(reserve.promise(10, 1).is_some());
        let _again = reserve.promise_again(1_000);
        drop(second);
        assert!(reserve.promise(0, 0).is_none(), "it was somebody's before");
    }

    #[test]
    fn a_promise_ends_once_the_file_system_counts_its_bytes() {
        let reserve = Reserve::with(Path::new("."), |_| Ok(Space { bytes: RESERVE + 100_000, files: u64::MAX }));
        let file = tempfile::tempfile().unwrap();
        let to_come = reserve.promise(100_000, 1).unwrap().set_aside(&file, 0, 100_000).unwrap();
        // Some file systems set nothing aside.
        let is_set_aside = file.metadata().unwrap().blocks() * 512 >= 100_000;
        assert_eq!(to_come.is_none(), is_set_aside);
        assert_eq!(reserve.promise(1, 0).is_some(), is_set_aside);
        drop(to_come);
        assert!(reserve.promise(100_000, 0).is_some());
        assert!(reserve.promise(0, 0).unwrap().set_aside(&file, 0, u64::MAX >> 2).is_err(), "it is full");
    }

    #[test]
    fn a_file_system_that_is_mounted_inside_has_its_own() {
        let reserve = Reserve::of(Path::new("/"));
        assert!(Arc::ptr_eq(&reserve.clone().here(Path::new("/")), &reserve));
        assert!(Arc::ptr_eq(&reserve.clone().here(Path::new("/missing")), &reserve));
        assert!(!Arc::ptr_eq(&reserve.clone().here(Path::new("/proc")), &reserve));
    }
}
