//! A host: a network namespace and a mount namespace without names, held by file descriptors.
//!
//! When the last descriptor is closed and the last program inside has ended, the kernel removes them; there is nothing
//! to clean up, even after `SIGKILL`. The mount namespace differs from the machine's in one file, `/etc/hosts`.

use nix::mount::{MntFlags, MsFlags, mount, umount2};
use nix::sched::{CloneFlags, setns, unshare};
use nix::sys::prctl::set_pdeathsig;
use nix::sys::signal::Signal;
use nix::unistd::{getpid, getppid};
use std::ffi::{CStr, CString, OsStr};
use std::fs::{self, File};
use std::io;
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::sync::Arc;
use std::thread;

const NONE: Option<&str> = None;

/// The number of a namespace's file: device and inode.
pub(crate) type Identity = (u64, u64);

/// The two namespaces of a host.
#[derive(Debug)]
pub(crate) struct Namespace {
    net: File,
    mounts: File,
}

impl Namespace {
    /// Makes the namespaces, with loopback still down. `hosts_file` is what programs in there find at `/etc/hosts`.
    pub(crate) fn create(hosts_file: &str, forwarding: bool) -> io::Result<Self> {
        on_own_thread(|| {
            unshare(CloneFlags::CLONE_NEWNET | CloneFlags::CLONE_NEWNS)?;
            replace_hosts_file(hosts_file).map_err(while_doing("mounting over /etc/hosts"))?;
            set_parameters(forwarding).map_err(while_doing("writing below /proc/sys/net"))?;
            Ok(Self { net: File::open("/proc/thread-self/ns/net")?, mounts: File::open("/proc/thread-self/ns/mnt")? })
        })
    }

    /// Runs a closure on a thread of its own inside.
    pub(crate) fn run<T: Send>(&self, closure: impl FnOnce() -> T + Send) -> io::Result<T> {
        let folder = current_folder()?;
        on_own_thread(|| {
            // Threads share their working folder and root until told otherwise, and a mount namespace needs its own.
            unshare(CloneFlags::CLONE_FS)?;
            self.enter(folder.as_deref())?;
            Ok(closure())
        })
    }

    /// A command whose program runs inside.
    pub(crate) fn command(self: &Arc<Self>, program: &OsStr) -> Command {
        let inside = Arc::clone(self);
        let parent = getpid();
        let mut command = Command::new(program);
        // SAFETY: between fork and exec only system calls; the closure's memory was allocated before, and the buffer
        // of `current_folder_raw` is on the stack.
        #[allow(unsafe_code)]
        unsafe {
            command.pre_exec(move || {
                // Until it is inside, the guard does not see the child, so it dies with its parent by itself.
                set_pdeathsig(Signal::SIGKILL)?;
                if getppid() != parent {
                    return Err(io::ErrorKind::BrokenPipe.into());
                }
                let mut buffer = [0; libc::PATH_MAX as usize];
                inside.enter(current_folder_raw(&mut buffer))?;
                // From here on it may outlive the thread that started it.
                Ok(set_pdeathsig(None)?)
            });
        }
        command
    }

    /// Which network namespace it is: equal for all that are inside.
    pub(crate) fn identity(&self) -> io::Result<Identity> {
        let metadata = self.net.metadata()?;
        Ok((metadata.dev(), metadata.ino()))
    }

    pub(crate) fn raw_fd(&self) -> RawFd {
        self.net.as_raw_fd()
    }

    /// Puts the calling thread inside, in the same working folder, if it is there too.
    fn enter(&self, folder: Option<&CStr>) -> io::Result<()> {
        setns(&self.net, CloneFlags::CLONE_NEWNET)?;
        setns(&self.mounts, CloneFlags::CLONE_NEWNS)?;
        if let Some(folder) = folder {
            // A folder on a mount that came later is not there; then the root must do.
            let _ = nix::unistd::chdir(folder);
        }
        Ok(())
    }
}

/// Mounts a file over `/etc/hosts` that lives in memory and has no other name.
fn replace_hosts_file(content: &str) -> io::Result<()> {
    // What the machine mounts later shows here; what is mounted here shows nowhere else.
    mount(NONE, "/", NONE, MsFlags::MS_REC | MsFlags::MS_SLAVE, NONE)?;
    mount(Some("hoop-lab"), "/tmp", Some("tmpfs"), MsFlags::empty(), Some("size=1m,mode=0755"))?;
    fs::write("/tmp/hosts", content)?;
    mount(Some("/tmp/hosts"), "/etc/hosts", NONE, MsFlags::MS_BIND, NONE)?;
    umount2("/tmp", MntFlags::MNT_DETACH)?;
    Ok(())
}

fn set_parameters(forwarding: bool) -> io::Result<()> {
    let flag = |on| if on { "1" } else { "0" };
    parameter("ipv4/ip_forward", flag(forwarding))?;
    // A host with two uplinks may be answered on the other one (RFC 1122's weak model).
    parameter("ipv4/conf/all/rp_filter", "0")?;
    parameter("ipv4/conf/default/rp_filter", "0")?;
    // A route by each of two uplinks must not be taken for a detour.
    parameter("ipv4/conf/all/send_redirects", "0")?;
    parameter("ipv4/conf/default/send_redirects", "0")?;
    // Links carry IPv4 only: router solicitations and the like would be counted, and would use up the dice.
    match parameter("ipv6/conf/default/disable_ipv6", "1") {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        result => result,
    }
}

/// Below `/proc/sys/net` each thread finds the parameters of its own namespace.
fn parameter(name: &str, value: &str) -> io::Result<()> {
    fs::write(format!("/proc/sys/net/{name}"), value)
}

fn current_folder() -> io::Result<Option<CString>> {
    let folder = std::env::current_dir().ok();
    folder.map(|folder| CString::new(folder.as_os_str().as_bytes()).map_err(Into::into)).transpose()
}

/// As [`current_folder`], without allocating: for a child between fork and exec.
fn current_folder_raw(buffer: &mut [u8]) -> Option<&CStr> {
    // SAFETY: the pointer and the length are the buffer's.
    #[allow(unsafe_code)]
    let folder = unsafe { libc::getcwd(buffer.as_mut_ptr().cast(), buffer.len()) };
    if folder.is_null() {
        return None;
    }
    CStr::from_bytes_until_nul(buffer).ok()
}

fn while_doing(what: &'static str) -> impl FnOnce(io::Error) -> io::Error {
    move |error| io::Error::new(error.kind(), format!("{what}: {error}"))
}

fn on_own_thread<T: Send>(closure: impl FnOnce() -> io::Result<T> + Send) -> io::Result<T> {
    thread::scope(|scope| match scope.spawn(closure).join() {
        Ok(result) => result,
        Err(panic) => std::panic::resume_unwind(panic),
    })
}
