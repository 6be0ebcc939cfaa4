//! The gateway's name on the LAN, announced by a process of its own: [`Announcer`].
//!
//! Whoever speaks multicast DNS listens to everybody on the LAN, and the library that does keeps what it hears, without a bound. So it has a process with so much memory and no more. A flood
//! ends that process, which is begun again, and not the gateway.
//!
//! ```text
//!  gateway ──pipe──▶ keeper ──fork──▶ announcer
//!     its name and port,      begins it again, at longer and longer intervals;
//!     and that it has gone    ends it when the gateway has gone
//! ```

use crate::base::exit::{Exit, Failure};
use hoop_gateway::Announcement;
use nix::sys::signal::{SigSet, Signal, kill};
use nix::sys::wait::waitpid;
use nix::unistd::{ForkResult, Pid, fork};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::pipe::PipeFlags;
use rustix::process::{PidfdFlags, Resource, Rlimit, getrlimit, pidfd_open, setrlimit};
use std::fs::File;
use std::io::{self, Read as _, Write as _};
use std::os::fd::{AsFd, OwnedFd};
use std::process::exit;
use std::time::Duration;

/// What an announcer may have beyond what it is born with, in bytes: some 50,000 names, of which a LAN has a hundred.
const MORE_BYTES: u64 = 32 << 20;

/// The wait until it is begun again, the first time; it doubles up to [`REST_MAX`].
const REST_FIRST: Duration = Duration::from_secs(1);

const REST_MAX: Duration = Duration::from_secs(60);

/// What it ends with where multicast DNS cannot be spoken: it is not tried again.
const CANNOT: i32 = 3;

/// A keeper that waits to be told what to announce. What is announced is until this is dropped.
#[derive(Debug)]
pub struct Announcer {
    told: File,
}

impl Announcer {
    /// Makes the keeper. To be called while there is one thread, and before anything is opened that it is not to have.
    ///
    /// # Errors
    /// If there can be no process or pipe more.
    pub fn new() -> Result<Self, Failure> {
        let fail = |error: io::Error| Failure::new(Exit::Unexpected, "cannot start the announcement", error);
        let (hears, told) = rustix::pipe::pipe_with(PipeFlags::CLOEXEC).map_err(|error| fail(error.into()))?;
        match fork_here().map_err(fail)? {
            Some(_) => Ok(Self { told: told.into() }),
            None => {
                drop(told);
                keep(hears.into());
                exit(0)
            }
        }
    }

    /// Has a gateway of that name announced at that port.
    pub fn announce(&mut self, name: &str, port: u16) {
        // Without a keeper devices need the address; the keeper has said why it ended.
        let _ = self.told.write_all(format!("{port} {}\n", name.replace('\n', " ")).as_bytes());
    }
}

/// The child's process; none: this is the child.
fn fork_here() -> io::Result<Option<Pid>> {
    // SAFETY: there is one thread, so nobody holds a lock that the child would wait for.
    #[allow(unsafe_code, reason = "there is no other way to have a process without a program")]
    match unsafe { fork() }? {
        ForkResult::Parent { child } => Ok(Some(child)),
        ForkResult::Child => Ok(None),
    }
}

/// Keeps an announcer until the gateway has gone.
fn keep(mut hears: File) {
    let Some((port, name)) = heard(&mut hears) else { return };
    let mut rest = REST_FIRST;
    loop {
        let announcer = match fork_here() {
            Ok(Some(announcer)) => announcer,
            Ok(None) => exit(announce(&name, port)),
            Err(error) => return tracing::warn!(%error, "cannot start the announcement"),
        };
        let began = std::time::Instant::now();
        let alive = rustix::process::Pid::from_raw(announcer.as_raw())
            .and_then(|pid| pidfd_open(pid, PidfdFlags::empty()).ok());
        let Some(alive) = alive else { return };
        let has_gone = wait(&hears, Some(&alive), None);
        if has_gone {
            // It may have ended by itself.
            let _ = kill(announcer, Signal::SIGTERM);
        }
        let ended = waitpid(announcer, None);
        if has_gone || matches!(ended, Ok(nix::sys::wait::WaitStatus::Exited(_, CANNOT))) {
            return;
        }
        if began.elapsed() > REST_MAX {
            rest = REST_FIRST;
        }
        let secs = rest.as_secs();
        tracing::warn!(ended = ?ended, "the announcement ended, perhaps because of too much traffic on this network; it starts again in {secs} s");
        if wait(&hears, None, Some(rest)) {
            return;
        }
        rest = (rest * 2).min(REST_MAX);
    }
}

/// What the gateway is called and where it listens, once that is known. None: it has gone.
fn heard(hears: &mut File) -> Option<(u16, String)> {
    let (mut line, mut byte) = (Vec::new(), [0; 1]);
    while hears.read(&mut byte).is_ok_and(|read| read > 0) {
        match byte[0] {
            b'\n' => {
                let line = String::from_utf8(line).ok()?;
                let (port, name) = line.split_once(' ')?;
                return Some((port.parse().ok()?, name.to_owned()));
            }
            byte => line.push(byte),
        }
    }
    None
}

/// Waits until the gateway has gone (true), the process has ended, or so long.
fn wait(hears: &File, alive: Option<&OwnedFd>, most: Option<Duration>) -> bool {
    let gateway = PollFd::new(hears, PollFlags::HUP);
    let mut polled: Vec<_> =
        [gateway].into_iter().chain(alive.map(|fd| PollFd::from_borrowed_fd(fd.as_fd(), PollFlags::IN))).collect();
    let most = most.and_then(|most| Timespec::try_from(most).ok());
    // An interrupted wait is as good as one that is over.
    let _ = poll(&mut polled, most.as_ref());
    !polled[0].revents().is_empty()
}

/// Announces until it is told to end. Returns what the process ends with.
fn announce(name: &str, port: u16) -> i32 {
    // Whoever looks after it may be killed.
    let _ = rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::TERM));
    let mut ends = SigSet::empty();
    [Signal::SIGTERM, Signal::SIGINT].into_iter().for_each(|signal| ends.add(signal));
    // Before there are threads, which take it over.
    let _ = ends.thread_block();
    bound_memory();
    // What it hears costs others no time.
    let _ = rustix::process::nice(19);
    match Announcement::begin(name, port) {
        Ok(_announcement) => {
            let _ = ends.wait();
            0
        }
        Err(error) => {
            tracing::warn!(%error, "cannot announce hoop.local; devices need this gateway's address");
            CANNOT
        }
    }
}

/// What it may have; who asks for more ends.
fn bound_memory() {
    const PAGE_BYTES: u64 = 4096;
    // The sixth number is data and stack, in pages (proc(5)).
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let has =
        statm.split_ascii_whitespace().nth(5).and_then(|pages| pages.parse::<u64>().ok()).unwrap_or(4096) * PAGE_BYTES;
    let Rlimit { maximum, .. } = getrlimit(Resource::Data);
    let most = maximum.map_or(has + MORE_BYTES, |most| most.min(has + MORE_BYTES));
    let _ = setrlimit(Resource::Data, Rlimit { current: Some(most), maximum: Some(most) });
    let _ = setrlimit(Resource::Core, Rlimit { current: Some(0), maximum: Some(0) });
}
