//! Whether this machine allows a lab ([`available`]), and how to get one without root ([`enter`]).

use nix::fcntl::{OFlag, open};
use nix::sched::{CloneFlags, unshare};
use nix::sys::prctl::set_pdeathsig;
use nix::sys::signal::Signal;
use nix::sys::stat::Mode;
use nix::unistd::{getegid, geteuid, write};
use std::ffi::CStr;
use std::io;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Command, ExitStatus, exit};
use std::sync::Mutex;

/// Set in the process that [`enter`] started, so that it does not start another.
const ENTERED: &str = "HOOP_LAB_ENTERED";

/// The device from which TAP devices come.
pub(crate) const TUN_DEVICE: &str = "/dev/net/tun";

/// Why there can be no lab here.
#[derive(Debug, thiserror::Error)]
pub enum WhyNot {
    /// No TAP devices: the kernel was built without, or the container hides them.
    #[error("{TUN_DEVICE} cannot be opened ({0}); load the module `tun`, or let this container have the device")]
    NoTun(#[source] io::Error),
    /// This process may not make namespaces; [`enter`] may help.
    #[error("this process may not make network namespaces ({0}); run it as root, or allow user namespaces")]
    NoNamespaces(#[source] io::Error),
    /// There are no user namespaces to make up for root.
    #[error("not root, and user namespaces are not allowed here ({0}); run as root, or see user_namespaces(7)")]
    NoUserNamespaces(#[source] io::Error),
}

/// Whether this process can build a lab as it is.
///
/// # Errors
/// The first thing that is missing.
pub fn available() -> Result<(), WhyNot> {
    has_tun()?;
    // In a thread of its own, which takes the namespaces with it when it ends.
    std::thread::spawn(|| unshare(CloneFlags::CLONE_NEWNET | CloneFlags::CLONE_NEWNS))
        .join()
        .expect("the probing thread does not panic")
        .map_err(|errno| WhyNot::NoNamespaces(errno.into()))
}

/// Makes sure that this process can build a lab: call it first in `main`, or first in each test.
///
/// If it can as it is, nothing happens. Otherwise the program starts over, with the same arguments, in a user
/// namespace of its own in which it is root; this process waits, and then **exits with the other's code**. A test
/// program, too, starts over as a whole, and its tests run in there.
///
/// # Errors
/// If the machine allows neither.
pub fn enter() -> Result<(), WhyNot> {
    static ONCE: Mutex<()> = Mutex::new(());
    // Of a test program's threads, the first starts over for all; the others wait here until the process exits.
    let _turn = ONCE.lock();
    match available() {
        Err(WhyNot::NoNamespaces(_)) if std::env::var_os(ENTERED).is_none() => {
            let status = start_over().map_err(WhyNot::NoUserNamespaces)?;
            exit(exit_code(status))
        }
        result => result,
    }
}

/// The code by which a shell would tell how a program ended: its own, or 128 and the signal's number.
pub(crate) fn exit_code(status: ExitStatus) -> i32 {
    status.code().or_else(|| Some(128 + status.signal()?)).unwrap_or(1)
}

fn has_tun() -> Result<(), WhyNot> {
    let opened = std::fs::OpenOptions::new().read(true).write(true).open(TUN_DEVICE);
    opened.map(drop).map_err(WhyNot::NoTun)
}

fn start_over() -> io::Result<ExitStatus> {
    let mut arguments = std::env::args_os();
    let mut command = Command::new("/proc/self/exe");
    if let Some(name) = arguments.next() {
        command.arg0(name);
    }
    command.args(arguments).env(ENTERED, "1");
    let uid_map = format!("0 {} 1", geteuid());
    let gid_map = format!("0 {} 1", getegid());
    // SAFETY: between fork and exec only system calls on memory that was allocated before.
    #[allow(unsafe_code)]
    unsafe {
        command.pre_exec(move || {
            set_pdeathsig(Signal::SIGKILL)?;
            unshare(CloneFlags::CLONE_NEWUSER | CloneFlags::CLONE_NEWNET | CloneFlags::CLONE_NEWNS)?;
            // Without root outside, groups must be given up before they can be mapped: user_namespaces(7).
            write_file(c"/proc/self/setgroups", b"deny")?;
            write_file(c"/proc/self/uid_map", uid_map.as_bytes())?;
            write_file(c"/proc/self/gid_map", gid_map.as_bytes())?;
            Ok(())
        });
    }
    command.status()
}

fn write_file(path: &CStr, content: &[u8]) -> io::Result<()> {
    let file = open(path, OFlag::O_WRONLY | OFlag::O_CLOEXEC, Mode::empty())?;
    write(&file, content)?;
    Ok(())
}
