//! What reaches the disk: [`Disk`], and the system calls that the standard library lacks.
#![allow(unsafe_code)]

use hoop_units::ByteRange;
use std::ffi::CString;
use std::fs::File;
use std::io;
use std::mem::MaybeUninit;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::FileExt as _;
use std::path::Path;

// On 32-bit glibc the plain call cannot express the size of today's disks.
#[cfg(not(all(target_os = "linux", target_env = "gnu")))]
use libc::statvfs as statvfs_call;
#[cfg(all(target_os = "linux", target_env = "gnu"))]
use libc::statvfs64 as statvfs_call;

/// Where bytes come from that are not in memory.
pub trait Source {
    /// Moves the next `len` bytes to `offset` of a file, and shows them to `look`, in order.
    ///
    /// # Errors
    /// If the file does not take all of them.
    fn put(&mut self, file: &File, offset: u64, len: u64, look: &mut dyn FnMut(&[u8])) -> io::Result<()>;

    /// Drops the next `len` bytes.
    ///
    /// # Errors
    /// If they cannot be had.
    fn skip(&mut self, len: u64) -> io::Result<()>;
}

/// What acknowledgement rests on. `kill -9` leaves the page cache as it is, so a test that kills notices no missing sync; in
/// this crate's own tests each act is noted down, and they assert the order.
#[derive(Default)]
pub struct Disk {
    #[cfg(test)]
    acts: parking_lot::Mutex<Vec<Act>>,
    /// Done once before something is given back, or removed.
    #[cfg(test)]
    pub before_going: parking_lot::Mutex<Option<Box<dyn FnOnce() + Send>>>,
    /// Done once instead of a write-out, which fails.
    #[cfg(test)]
    pub failing_write_out: parking_lot::Mutex<Option<Box<dyn FnOnce() + Send>>>,
}

/// What was done, in the tests' notes.
#[derive(Clone, PartialEq, Eq, Debug)]
#[cfg_attr(not(test), allow(dead_code, reason = "noted in tests only"))]
pub enum Act {
    /// Bytes were written into a payload.
    Write,
    /// A payload was synced.
    SyncPayload,
    /// A folder's names were synced.
    SyncFolder(std::path::PathBuf),
    /// Bytes of a payload were waited for.
    WriteOut(ByteRange),
    /// The index has committed.
    Record,
}

impl Disk {
    /// Writes bytes into a payload.
    pub fn write(&self, file: &File, bytes: &[u8], offset: u64) -> io::Result<()> {
        file.write_all_at(bytes, offset)?;
        self.note(|| Act::Write);
        Ok(())
    }

    /// Has somebody else write bytes into a payload.
    pub fn write_from(
        &self,
        source: &mut impl Source,
        file: &File,
        at: ByteRange,
        look: &mut dyn FnMut(&[u8]),
    ) -> io::Result<()> {
        source.put(file, at.start, at.len(), look)?;
        self.note(|| Act::Write);
        Ok(())
    }

    /// Has the kernel write out what a payload has there, and waits until it has.
    pub fn write_out(&self, file: &File, range: ByteRange) -> io::Result<()> {
        #[cfg(test)]
        if let Some(meanwhile) = self.failing_write_out.lock().take() {
            meanwhile();
            return Err(io::Error::other("the disk does not take it"));
        }
        write_out(file, range.start, range.len())?;
        self.note(|| Act::WriteOut(range));
        Ok(())
    }

    /// Waits until a payload's bytes are on disk.
    pub fn sync_payload(&self, file: &File) -> io::Result<()> {
        file.sync_data()?;
        self.note(|| Act::SyncPayload);
        Ok(())
    }

    /// Waits until the names in a folder are on disk.
    pub fn sync_folder(&self, folder: &Path) -> io::Result<()> {
        File::open(folder)?.sync_all()?;
        self.note(|| Act::SyncFolder(folder.to_owned()));
        Ok(())
    }

    /// Gives back what a payload has there. A file system may write it out first, and wait for that.
    pub fn punch(&self, file: &File, range: ByteRange) {
        self.goes();
        punch(file, range.start, range.len());
    }

    /// Removes a file, if it is there and can be.
    pub fn remove(&self, path: &Path) {
        self.goes();
        let _ = std::fs::remove_file(path);
    }

    /// Something goes otherwise.
    #[cfg(test)]
    pub fn goes(&self) {
        if let Some(act) = self.before_going.lock().take() {
            act();
        }
    }

    #[cfg(not(test))]
    #[allow(clippy::unused_self, reason = "as in the tests")]
    pub fn goes(&self) {}

    /// The index has committed, and returned.
    pub fn recorded(&self) {
        self.note(|| Act::Record);
    }

    #[cfg(test)]
    fn note(&self, act: impl FnOnce() -> Act) {
        self.acts.lock().push(act());
    }

    #[cfg(not(test))]
    #[allow(clippy::unused_self, reason = "as in the tests")]
    fn note(&self, _act: impl FnOnce() -> Act) {}

    /// What was done since this was asked last.
    #[cfg(test)]
    pub fn acts(&self) -> Vec<Act> {
        std::mem::take(&mut self.acts.lock())
    }
}

/// What an ordinary user may still put into a file system.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Free {
    /// Bytes.
    pub bytes: u64,
    /// Files (inodes). A file system that does not count them has as many as anybody wants.
    pub files: u64,
}

/// What the file system at `path` has left.
pub fn free(path: &Path) -> io::Result<Free> {
    let path = CString::new(path.as_os_str().as_bytes())?;
    let mut stat = MaybeUninit::zeroed();
    // SAFETY: `path` is a C string and `stat` has room for the structure that the call fills.
    if unsafe { statvfs_call(path.as_ptr(), stat.as_mut_ptr()) } != 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the call succeeded, and zeroes are valid in every field it leaves alone.
    let stat = unsafe { stat.assume_init() };
    #[allow(clippy::unnecessary_cast, reason = "the fields' types differ between targets")]
    let (files, free_files) = (stat.f_files as u64, stat.f_favail as u64);
    #[allow(clippy::unnecessary_cast, reason = "the fields' types differ between targets")]
    let bytes = stat.f_bavail as u64 * stat.f_frsize as u64;
    Ok(Free { bytes, files: if files == 0 { u64::MAX } else { free_files } })
}

/// Has the kernel write dirty pages out, and waits for them. A kernel that cannot leaves it to the sync.
#[cfg(target_os = "linux")]
fn write_out(file: &File, offset: u64, len: u64) -> io::Result<()> {
    use std::os::fd::AsRawFd as _;
    let (Ok(offset), Ok(len)) = (offset.try_into(), len.try_into()) else { return Ok(()) };
    let flags = libc::SYNC_FILE_RANGE_WAIT_BEFORE | libc::SYNC_FILE_RANGE_WRITE | libc::SYNC_FILE_RANGE_WAIT_AFTER;
    // SAFETY: the descriptor is open as long as `file` is borrowed; the call touches no memory of ours.
    if unsafe { libc::sync_file_range(file.as_raw_fd(), offset, len, flags) } == 0 {
        return Ok(());
    }
    let error = io::Error::last_os_error();
    match error.raw_os_error() {
        Some(libc::ENOSYS | libc::EINVAL | libc::EPERM) => Ok(()),
        _ => Err(error),
    }
}

/// Lets the kernel forget pages that are on disk. Only a hint.
#[cfg(target_os = "linux")]
pub fn drop_cache(file: &File, offset: u64, len: u64) {
    use std::os::fd::AsRawFd as _;
    let (Ok(offset), Ok(len)) = (offset.try_into(), len.try_into()) else { return };
    // SAFETY: the descriptor is open as long as `file` is borrowed; the call touches no memory of ours.
    let _ = unsafe { libc::posix_fadvise(file.as_raw_fd(), offset, len, libc::POSIX_FADV_DONTNEED) };
}

/// Gives the disk back what a file has at `offset`, which reads as zeroes then. Only a hint: nobody counts on it, and a file system that cannot
/// keeps it until the file goes.
pub fn punch(file: &File, offset: u64, len: u64) {
    let _ = try_punch(file, offset, len);
}

/// Whether files in `folder` give back what is punched. FAT and UBIFS keep it, and so does ramfs.
pub fn makes_holes(folder: &Path) -> bool {
    let path = folder.join("probe");
    // Nobody knows if there cannot even be a file. Most do.
    let punched = hoop_files::create(&path).and_then(|probe| try_punch(&probe, 0, 4096));
    let _ = std::fs::remove_file(&path);
    punched.map_or_else(|error| error.kind() != io::ErrorKind::Unsupported, |()| true)
}

#[cfg(target_os = "linux")]
fn try_punch(file: &File, offset: u64, len: u64) -> io::Result<()> {
    use std::os::fd::AsRawFd as _;
    let (Ok(offset), Ok(len)) = (offset.try_into(), len.try_into()) else { return Ok(()) };
    let mode = libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE;
    // SAFETY: the descriptor is open as long as `file` is borrowed; the call touches no memory of ours.
    match unsafe { libc::fallocate(file.as_raw_fd(), mode, offset, len) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Elsewhere it stays until the file goes.
#[cfg(not(target_os = "linux"))]
fn try_punch(_file: &File, _offset: u64, _len: u64) -> io::Result<()> {
    Err(io::ErrorKind::Unsupported.into())
}

/// Elsewhere the kernel decides alone.
#[cfg(not(target_os = "linux"))]
pub fn drop_cache(_file: &File, _offset: u64, _len: u64) {}

/// Elsewhere the kernel decides alone.
#[cfg(not(target_os = "linux"))]
#[allow(clippy::unnecessary_wraps, reason = "as on Linux")]
fn write_out(_file: &File, _offset: u64, _len: u64) -> io::Result<()> {
    Ok(())
}
