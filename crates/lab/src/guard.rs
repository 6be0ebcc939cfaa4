//! The end of all programs in a lab's hosts, whatever ends the lab: [`Guard`].
//!
//! A namespace lives as long as a program in it, so a lab must not leave one running, not even a background job of a
//! script of a command, and not even when its process is killed and can do nothing any more. Hence a second process, the
//! guard, which holds one end of a socket and sleeps. When the other end closes, by [`Drop`] or by the death of the lab's
//! process, it kills whatever is inside the namespaces, again and again until nothing is, and ends.
//!
//! It is a fork without an exec, so it makes system calls and nothing else: no allocation, no locks.

use crate::namespace::{Identity, Namespace};
use nix::errno::Errno;
use nix::sys::signal::{Signal, kill};
use nix::sys::wait::waitpid;
use nix::unistd::{ForkResult, Pid, chdir, fork, setsid};
use std::ffi::CStr;
use std::io::{self, Read};
use std::mem::MaybeUninit;
use std::net::Shutdown;
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::net::UnixStream;
use std::time::Duration;

/// How often the guard looks for programs: one that is killed while it starts another leaves one behind, seldom two.
/// With [`ROUND`], a second for one that hangs in the kernel.
const ROUNDS_MAX: usize = 200;

/// How long the killed have to be gone before the guard looks again.
const ROUND: Duration = Duration::from_millis(5);

/// The guard of a lab: the lab's end of the socket, and the process at the other.
#[derive(Debug)]
pub(crate) struct Guard {
    socket: UnixStream,
    process: Pid,
}

impl Guard {
    /// Starts a guard over these namespaces.
    pub(crate) fn start<'a>(namespaces: impl Iterator<Item = &'a Namespace> + Clone) -> io::Result<Self> {
        let (socket, theirs) = UnixStream::pair()?;
        let identities = namespaces.clone().map(Namespace::identity).collect::<io::Result<Vec<_>>>()?;
        // The namespaces stay open, so that their numbers cannot be given to others while the guard goes by them.
        let mut keep: Vec<RawFd> = namespaces.map(Namespace::raw_fd).collect();
        keep.push(theirs.as_raw_fd());
        keep.sort_unstable();
        // SAFETY: the child makes system calls on memory that is allocated by now, and exits by itself.
        #[allow(unsafe_code)]
        match unsafe { fork() }? {
            ForkResult::Child => guard(&theirs, &keep, &identities),
            ForkResult::Parent { child } => Ok(Self { socket, process: child }),
        }
    }
}

impl Drop for Guard {
    /// Lets the guard do its work, and waits until it has.
    fn drop(&mut self) {
        let _ = self.socket.shutdown(Shutdown::Write);
        while waitpid(self.process, None) == Err(Errno::EINTR) {}
    }
}

/// What the guard does with its life.
fn guard(mut socket: &UnixStream, keep: &[RawFd], identities: &[Identity]) -> ! {
    let _ = nix::sys::prctl::set_name(c"hoop-lab-guard");
    // Out of reach of the terminal's signals, and in nobody's way.
    let _ = setsid();
    let _ = chdir(c"/");
    close_all_but(keep);
    while socket.read(&mut [0]).is_err_and(|error| error.kind() == io::ErrorKind::Interrupted) {}
    kill_all(identities);
    // SAFETY: ends the process at once, without what belongs to the process that it was forked from.
    #[allow(unsafe_code)]
    unsafe {
        libc::_exit(0)
    }
}

/// Closes every descriptor but these, which are in order: pipes that others wait on must not stay open here.
fn close_all_but(keep: &[RawFd]) {
    let mut from = 0;
    let close = |from: libc::c_uint, to: libc::c_uint| {
        if from <= to {
            // SAFETY: the guard uses none of the descriptors it closes.
            #[allow(unsafe_code)]
            unsafe {
                libc::syscall(libc::SYS_close_range, from, to, 0);
            }
        }
    };
    for fd in keep.iter().map(|fd| *fd as libc::c_uint) {
        if fd > 0 {
            close(from, fd - 1);
        }
        from = fd + 1;
    }
    close(from, libc::c_uint::MAX);
}

fn kill_all(identities: &[Identity]) {
    for _ in 0..ROUNDS_MAX {
        let mut found = false;
        each_process(|process| {
            if is_inside(process, identities) {
                found = true;
                let _ = kill(Pid::from_raw(process), Signal::SIGKILL);
            }
        });
        if !found {
            return;
        }
        std::thread::sleep(ROUND);
    }
}

/// Calls `visit` with the id of every process. The standard library's way to list a folder allocates.
fn each_process(mut visit: impl FnMut(i32)) {
    let Ok(folder) = nix::fcntl::open(c"/proc", nix::fcntl::OFlag::O_RDONLY, nix::sys::stat::Mode::empty()) else {
        return;
    };
    let mut buffer = [0u8; 4_096];
    loop {
        // SAFETY: the pointer and the length are the buffer's.
        #[allow(unsafe_code)]
        let length =
            unsafe { libc::syscall(libc::SYS_getdents64, folder.as_raw_fd(), buffer.as_mut_ptr(), buffer.len()) };
        let Ok(length @ 1..) = usize::try_from(length) else { return };
        let mut entries = &buffer[..length];
        // linux_dirent64: inode(8) | offset(8) | length of the entry(2) | type(1) | name, with a final zero.
        while let [_, _, _, _, _, _, _, _, _, _, _, _, _, _, _, _, low, high, _, name @ ..] = entries {
            if let Some(process) = parse_id(name) {
                visit(process);
            }
            entries = entries.get(usize::from(u16::from_ne_bytes([*low, *high]))..).unwrap_or(&[]);
        }
    }
}

/// A name of digits only, up to its final zero.
fn parse_id(name: &[u8]) -> Option<i32> {
    CStr::from_bytes_until_nul(name).ok()?.to_str().ok()?.parse().ok()
}

/// Whether the process's network namespace is one of these. A zombie has none any more.
fn is_inside(process: i32, identities: &[Identity]) -> bool {
    let mut path = [0u8; 32];
    let written = {
        use std::io::Write as _;
        write!(&mut path[..31], "/proc/{process}/ns/net")
    };
    let (Ok(()), Ok(path)) = (written, CStr::from_bytes_until_nul(&path)) else { return false };
    let mut stat = MaybeUninit::<libc::stat>::uninit();
    // SAFETY: the path ends with a zero, and the structure is written if the call succeeds, and only read then.
    #[allow(unsafe_code)]
    let stat = unsafe {
        if libc::stat(path.as_ptr(), stat.as_mut_ptr()) != 0 {
            return false;
        }
        stat.assume_init()
    };
    identities.contains(&(stat.st_dev, stat.st_ino))
}
