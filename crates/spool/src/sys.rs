//! The system calls that the standard library lacks.
#![allow(unsafe_code)]

use std::ffi::CString;
use std::fs::File;
use std::io;
use std::mem::MaybeUninit;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

// On 32-bit glibc the plain call cannot express the size of today's disks.
#[cfg(not(all(target_os = "linux", target_env = "gnu")))]
use libc::statvfs as statvfs_call;
#[cfg(all(target_os = "linux", target_env = "gnu"))]
use libc::statvfs64 as statvfs_call;

/// Bytes of the file system at `path` that an ordinary user may still fill.
pub fn free_bytes(path: &Path) -> io::Result<u64> {
    let path = CString::new(path.as_os_str().as_bytes())?;
    let mut stat = MaybeUninit::zeroed();
    // SAFETY: `path` is a C string and `stat` has room for the structure that the call fills.
    if unsafe { statvfs_call(path.as_ptr(), stat.as_mut_ptr()) } != 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the call succeeded, and zeroes are valid in every field it leaves alone.
    let stat = unsafe { stat.assume_init() };
    #[allow(clippy::unnecessary_cast, reason = "the fields' types differ between targets")]
    Ok(stat.f_bavail as u64 * stat.f_frsize as u64)
}

/// Asks the kernel to begin writing dirty pages out, so that the sync at the end is short. Only a hint: what it
/// reports is of no use, since the sync reports it again.
#[cfg(target_os = "linux")]
pub fn start_writeback(file: &File, offset: u64, len: u64) {
    use std::os::fd::AsRawFd as _;
    let (Ok(offset), Ok(len)) = (i64::try_from(offset), i64::try_from(len)) else { return };
    // SAFETY: the descriptor is open as long as `file` is borrowed; the call touches no memory of ours.
    let _ = unsafe { libc::sync_file_range(file.as_raw_fd(), offset, len, libc::SYNC_FILE_RANGE_WRITE) };
}

/// Lets the kernel forget pages that are on disk. Only a hint.
#[cfg(target_os = "linux")]
pub fn drop_cache(file: &File, offset: u64, len: u64) {
    use std::os::fd::AsRawFd as _;
    let (Ok(offset), Ok(len)) = (offset.try_into(), len.try_into()) else { return };
    // SAFETY: the descriptor is open as long as `file` is borrowed; the call touches no memory of ours.
    let _ = unsafe { libc::posix_fadvise(file.as_raw_fd(), offset, len, libc::POSIX_FADV_DONTNEED) };
}

/// Elsewhere the kernel decides alone.
#[cfg(not(target_os = "linux"))]
pub fn drop_cache(_file: &File, _offset: u64, _len: u64) {}

/// Elsewhere the kernel decides alone.
#[cfg(not(target_os = "linux"))]
pub fn start_writeback(_file: &File, _offset: u64, _len: u64) {}
