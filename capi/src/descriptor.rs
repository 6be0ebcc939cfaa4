//! Descriptors: [`Key`] names what one leads to, [`pair`] makes the two ends of a socket.

#![allow(unsafe_code, reason = "a program's descriptors are numbers")]

use libc::c_int;
use nix::errno::Errno;
use nix::fcntl::{FcntlArg, OFlag, fcntl};
use nix::sys::socket::{AddressFamily, SockFlag, SockType, socketpair};
use std::os::fd::{BorrowedFd, FromRawFd as _, OwnedFd, RawFd};

/// What a descriptor leads to, though others may have its number later: device and inode.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Key(u64, u64);

impl Key {
    /// Of a descriptor.
    ///
    /// # Errors
    /// `EBADF` if it is none.
    #[allow(clippy::unnecessary_cast, reason = "their types differ between machines")]
    pub fn of(fd: RawFd) -> Result<Self, Errno> {
        if fd < 0 {
            return Err(Errno::EBADF);
        }
        let stat = nix::sys::stat::fstat(borrow(fd))?;
        Ok(Self(stat.st_dev as u64, stat.st_ino as u64))
    }
}

/// A descriptor for one call.
pub(crate) fn borrow(fd: RawFd) -> BorrowedFd<'static> {
    // SAFETY: it is used for one system call, which says EBADF if it is not open; the caller has checked that it is not -1.
    unsafe { BorrowedFd::borrow_raw(fd) }
}

/// A descriptor that was just made.
pub(crate) fn own(fd: RawFd) -> OwnedFd {
    // SAFETY: the caller got it from `fcntl` and gave it to nobody.
    unsafe { OwnedFd::from_raw_fd(fd) }
}

/// A pair: the program's end with these flags, and the library's.
///
/// # Errors
/// Those of `socketpair`.
pub fn pair(flags: c_int) -> Result<(OwnedFd, OwnedFd), Errno> {
    let flag = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
    let (program, library) = socketpair(AddressFamily::Unix, SockType::Stream, None, flag)?;
    let mut status = OFlag::from_bits_truncate(fcntl(&program, FcntlArg::F_GETFL)?);
    status.set(OFlag::O_NONBLOCK, flags & libc::SOCK_NONBLOCK != 0);
    fcntl(&program, FcntlArg::F_SETFL(status))?;
    if flags & libc::SOCK_CLOEXEC == 0 {
        fcntl(&program, FcntlArg::F_SETFD(nix::fcntl::FdFlag::empty()))?;
    }
    Ok((program, library))
}
