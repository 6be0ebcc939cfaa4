//! A socket: [`Socket`], from `socket` to the end of its flow.
//!
//! ```text
//!           connect            attached             both ends have said all, or it failed
//!   Idle ───────────▶ Connecting ────▶ Connected ─────────────────────────▶ Over
//!    │ listen                            ▲ accept
//!    └──────▶ Listening ─ ─ ─ ─ ─ ─ ─ ─ ─┘ (another socket)
//! ```

use crate::address;
use crate::backlog::Backlog;
use crate::descriptor::{Key, borrow, own};
use crate::held::Held;
use crate::lock::lock;
use crate::options::{Change, Options, number};
use hoop_endpoint::{FlowName, FlowStream};
use hoop_units::UnixTime;
use libc::c_int;
use nix::errno::Errno;
use nix::fcntl::{FcntlArg, fcntl};
use nix::sys::socket::{MsgFlags, Shutdown, send, shutdown};
use std::net::SocketAddr;
use std::os::fd::{AsRawFd as _, OwnedFd, RawFd};
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{SystemTime, UNIX_EPOCH};
use tokio::sync::Notify;

/// How far it is.
pub enum Phase {
    /// With the library's end of the pair.
    Idle(OwnedFd),
    Connecting,
    Connected(Held),
    Listening(Arc<Backlog>),
    Over,
}

/// What its calls read and change.
pub struct State {
    pub phase: Phase,
    pub options: Options,
    pub local: Option<SocketAddr>,
    pub peer: Option<SocketAddr>,
    pub name: Option<FlowName>,
    /// Options were set while it connected, of which its flow was not told.
    pub is_behind: bool,
}

/// A socket.
pub struct Socket {
    pub key: Key,
    /// The number that its descriptor had first.
    pub fd: RawFd,
    /// The library's end, for a child of the process; -1: there is none.
    pub local: AtomicI32,
    pub family: c_int,
    pub state: Mutex<State>,
    pub error: AtomicI32,
    /// The program writes no more (`shutdown`).
    pub is_shut: AtomicBool,
    /// The program has closed it before it was connected.
    pub is_closed: AtomicBool,
    /// The program has been given all that the other end said.
    pub is_at_end: AtomicBool,
    /// One of these has changed.
    pub changed: Notify,
}

impl Socket {
    /// Its state, for a call.
    pub fn state(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }

    /// What its descriptor leads to.
    pub const fn key(&self) -> Key {
        self.key
    }

    /// The library's end, for a child of the process.
    pub fn take_local(&self) -> Option<RawFd> {
        Some(self.local.swap(-1, Ordering::Relaxed)).filter(|fd| *fd >= 0)
    }

    /// Another descriptor of the program's end; None if the program has closed it, or calls it otherwise.
    pub fn program_end(&self) -> Option<OwnedFd> {
        let again = fcntl(borrow(self.fd), FcntlArg::F_DUPFD_CLOEXEC(0)).ok()?;
        let again = own(again);
        // The number may be another's by now.
        Key::of(again.as_raw_fd()).is_ok_and(|key| key == self.key).then_some(again)
    }

    /// Says where it is.
    ///
    /// # Errors
    /// Those of `bind`.
    pub fn bind(&self, address: SocketAddr) -> Result<(), Errno> {
        if address::family(&address) != self.family {
            return Err(Errno::EAFNOSUPPORT);
        }
        let mut state = self.state();
        if !matches!(state.phase, Phase::Idle(_)) || state.local.is_some() {
            return Err(Errno::EINVAL);
        }
        state.local = Some(address);
        Ok(())
    }

    /// Whether it listens.
    pub fn is_listening(&self) -> bool {
        matches!(self.state().phase, Phase::Listening(_))
    }

    /// How connecting ended; None: it goes on.
    pub fn is_connected(&self) -> Option<Result<(), Errno>> {
        match self.state().phase {
            Phase::Connecting => None,
            Phase::Connected(_) => Some(Ok(())),
            _ => Some(Err(self.take_error().unwrap_or(Errno::ECONNABORTED))),
        }
    }

    /// Its flow is attached.
    pub fn attached(&self, flow: &Held) {
        let mut state = self.state();
        if std::mem::take(&mut state.is_behind) {
            flow.with(|flow| tell_all(flow, &state.options));
        }
        state.phase = Phase::Connected(flow.clone());
    }

    /// It goes on no more: what the program is told, natively too. The library's end is closed after this.
    pub fn fail(&self, error: Errno) {
        let _ = self.error.compare_exchange(0, error as i32, Ordering::Relaxed, Ordering::Relaxed);
        // A byte that is there when the pair is closed makes the kernel report a reset. If nothing fits, there are some.
        // What is read whole has ended well.
        if !self.is_at_end.load(Ordering::Acquire)
            && let Some(program) = self.program_end()
        {
            let _ = send(program.as_raw_fd(), &[0], MsgFlags::MSG_DONTWAIT | MsgFlags::MSG_NOSIGNAL);
        }
        self.over();
    }

    /// Whether the program still has its descriptor, under the number that it had first.
    pub fn is_held(&self) -> bool {
        self.program_end().is_some()
    }

    /// Its flow is gone, or nobody has its descriptor any more.
    pub fn over(&self) {
        self.state().phase = Phase::Over;
        self.local.store(-1, Ordering::Relaxed);
    }

    /// The error that waits to be told, once.
    pub fn take_error(&self) -> Option<Errno> {
        Some(self.error.swap(0, Ordering::Relaxed)).filter(|error| *error != 0).map(Errno::from_raw)
    }

    /// Whether bytes may be read and written: it is, or was, connected, or will be.
    ///
    /// # Errors
    /// The error that waits; `ENOTCONN`.
    pub fn check_data(&self) -> Result<(), Errno> {
        match self.state().phase {
            Phase::Idle(_) | Phase::Listening(_) => Err(Errno::ENOTCONN),
            _ => Ok(()),
        }
    }

    /// Shuts down one or both directions.
    ///
    /// # Errors
    /// `ENOTCONN`, `EINVAL`.
    pub fn shutdown(&self, fd: c_int, how: c_int) -> Result<(), Errno> {
        let (read, write) = match how {
            libc::SHUT_RD => (true, false),
            libc::SHUT_WR => (false, true),
            libc::SHUT_RDWR => (true, true),
            _ => return Err(Errno::EINVAL),
        };
        if !matches!(self.state().phase, Phase::Connected(_) | Phase::Over) {
            return Err(Errno::ENOTCONN);
        }
        if read {
            shutdown(fd, Shutdown::Read)?;
        }
        if write {
            // Not by the kernel: a failure could not be told that way.
            self.is_shut.store(true, Ordering::Release);
            self.changed.notify_one();
        }
        Ok(())
    }

    /// The process ends, and nothing can be told to tasks but by the kernel.
    pub fn write_no_more(&self) {
        if matches!(self.state().phase, Phase::Connected(_))
            && let Some(program) = self.program_end()
        {
            let _ = shutdown(program.as_raw_fd(), Shutdown::Write);
        }
    }

    /// The addresses of the two ends.
    pub fn addresses(&self) -> (SocketAddr, Option<SocketAddr>) {
        let state = self.state();
        let is_connected = matches!(state.phase, Phase::Connected(_));
        (state.local.unwrap_or_else(|| address::unspecified(self.family)), state.peer.filter(|_| is_connected))
    }

    /// Its flow's name.
    ///
    /// # Errors
    /// `ENOTCONN` if it never had one.
    pub fn name(&self) -> Result<FlowName, Errno> {
        self.state().name.ok_or(Errno::ENOTCONN)
    }

    /// Its flow's [delivery](FlowStream::finished): how the flow is.
    pub fn flow(&self) -> Option<Held> {
        match &self.state().phase {
            Phase::Connected(flow) => Some(flow.clone()),
            _ => None,
        }
    }

    /// Sets an option.
    ///
    /// # Errors
    /// See [`Options::set`]; `ENODEV` for an interface that is nowhere, `EISCONN` for the way of a flow that is opened.
    pub fn set_option(&self, level: c_int, name: c_int, value: &[u8]) -> Result<(), Errno> {
        let mut state = self.state();
        let mut options = state.options.clone();
        let change = options.set(level, name, value, now())?;
        let is_nowhere = |name: &String| nix::net::if_::if_nametoindex(name.as_str()).is_err();
        if options.interface != state.options.interface && options.interface.as_ref().is_some_and(is_nowhere) {
            return Err(Errno::ENODEV);
        }
        match &state.phase {
            Phase::Connected(_) | Phase::Connecting if change == Change::NetworkPath => return Err(Errno::EISCONN),
            Phase::Connected(flow) => drop(flow.with(|flow| tell(flow, &options, change))),
            _ => {}
        }
        state.is_behind |= matches!(state.phase, Phase::Connecting);
        state.options = options;
        Ok(())
    }

    /// What an option is.
    ///
    /// # Errors
    /// See [`Options::get`].
    pub fn option(&self, level: c_int, name: c_int) -> Result<Vec<u8>, Errno> {
        let state = self.state();
        let value = match (level, name) {
            (libc::SOL_SOCKET, libc::SO_ERROR) => self.take_error().map_or(0, |error| error as c_int),
            (libc::SOL_SOCKET, libc::SO_ACCEPTCONN) => c_int::from(matches!(state.phase, Phase::Listening(_))),
            (libc::SOL_SOCKET, libc::SO_DOMAIN) => self.family,
            (libc::SOL_SOCKET, libc::SO_PROTOCOL) => libc::IPPROTO_TCP,
            (libc::SOL_SOCKET, number::DEADLINE) => {
                let mut options = state.options.clone();
                if let Phase::Connected(flow) = &state.phase {
                    // At the accepting end that is what the other has said.
                    options.deadline = flow.with(FlowStream::deadline).unwrap_or(options.deadline);
                }
                return options.get(level, name, now());
            }
            _ => return state.options.get(level, name, now()),
        };
        Ok(value.to_ne_bytes().into())
    }
}

/// Tells a flow what has changed in the options.
pub fn tell(flow: &FlowStream, options: &Options, change: Change) {
    match change {
        Change::Nothing | Change::NetworkPath => {}
        Change::Deadline => flow.set_deadline(options.deadline),
        Change::Size => flow.set_size(Some(options.size).filter(|size| *size > 0)),
        Change::Window => flow.set_window(options.high.into(), options.low.map(u64::from)),
    }
}

fn tell_all(flow: &FlowStream, options: &Options) {
    for change in [Change::Deadline, Change::Size, Change::Window] {
        tell(flow, options, change);
    }
}

/// The wall clock.
fn now() -> UnixTime {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    UnixTime(u32::try_from(since.as_secs()).unwrap_or(u32::MAX))
}
