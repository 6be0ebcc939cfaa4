//! A socket: [`Socket`], from `socket` to the end of its flow.
//!
//! ```text
//!           connect            attached             both ends have said all, or it failed
//!   Idle ───────────▶ Connecting ────▶ Connected ─────────────────────────▶ Over
//!    │ listen                            ▲ accept
//!    └──────▶ Listening ─ ─ ─ ─ ─ ─ ─ ─ ─┘ (another socket)
//! ```

use crate::address;
use crate::carry::{self, Held};
use crate::library::{Library, lock, now};
use crate::listener::Listener;
use crate::options::{Change, Options, number};
use hoop_endpoint::{FlowError, FlowName, FlowStream, ended};
use hoop_relay::codes;
use libc::c_int;
use nix::errno::Errno;
use nix::fcntl::{FcntlArg, OFlag, fcntl};
use nix::sys::socket::{AddressFamily, MsgFlags, Shutdown, SockFlag, SockType, send, shutdown, socketpair};
use std::net::SocketAddr;
use std::os::fd::{AsRawFd as _, IntoRawFd as _, OwnedFd, RawFd};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;
use tokio::sync::Notify;

/// How long `connect` waits by default, as BSD does.
const CONNECT_MAX: Duration = Duration::from_secs(75);

/// What a pair is filled with at once.
const FILL_BYTES: usize = 32 * 1024;

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
        let stat = nix::sys::stat::fstat(crate::ffi::borrow(fd))?;
        Ok(Self(stat.st_dev as u64, stat.st_ino as u64))
    }
}

enum Phase {
    /// With the library's end of the pair.
    Idle(OwnedFd),
    Connecting,
    Connected(Held),
    Listening(Arc<Listener>),
    Over,
}

struct State {
    phase: Phase,
    options: Options,
    local: Option<SocketAddr>,
    peer: Option<SocketAddr>,
    name: Option<FlowName>,
    /// Options were set while it connected, of which its flow was not told.
    is_behind: bool,
}

/// A socket.
pub struct Socket {
    key: Key,
    /// The number that its descriptor had first.
    fd: RawFd,
    /// The library's end, for a child of the process; -1: there is none.
    local: AtomicI32,
    family: c_int,
    state: Mutex<State>,
    error: AtomicI32,
    /// The program writes no more (`shutdown`).
    pub is_shut: AtomicBool,
    /// The program has closed it before it was connected.
    pub is_closed: AtomicBool,
    /// The program has been given all that the other end said.
    pub is_at_end: AtomicBool,
    /// One of these has changed.
    pub changed: Notify,
}

/// The number that an application's reset makes, or the end of a flow.
pub fn meaning(error: FlowError) -> Errno {
    match error {
        FlowError::Ended(ended::FINISHED) => Errno::EPIPE,
        FlowError::Ended(ended::EXPIRED) => Errno::ETIMEDOUT,
        FlowError::Ended(codes::FORBIDDEN) => Errno::EACCES,
        FlowError::Ended(codes::UNKNOWN_NAME) => Errno::EHOSTUNREACH,
        FlowError::Ended(codes::UNREACHABLE | codes::MALFORMED) | FlowError::Refused(_) => Errno::ECONNREFUSED,
        FlowError::Ended(_) => Errno::ECONNRESET,
        FlowError::Reset(_) => Errno::ECONNABORTED,
        FlowError::Gone => Errno::ENETDOWN,
    }
}

/// A pair: the program's end with these flags, and the library's.
fn pair(flags: c_int) -> Result<(OwnedFd, OwnedFd), Errno> {
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

impl Socket {
    fn add(library: &Library, flags: c_int, family: c_int) -> Result<(Arc<Self>, OwnedFd), Errno> {
        let (program, local) = pair(flags)?;
        let key = Key::of(program.as_raw_fd())?;
        let state = State {
            phase: Phase::Over,
            options: Options::default(),
            local: None,
            peer: None,
            name: None,
            is_behind: false,
        };
        let socket = Arc::new(Self {
            key,
            // The program's from here on.
            fd: program.into_raw_fd(),
            local: AtomicI32::new(local.as_raw_fd()),
            family,
            state: Mutex::new(state),
            error: AtomicI32::new(0),
            is_shut: AtomicBool::new(false),
            is_closed: AtomicBool::new(false),
            is_at_end: AtomicBool::new(false),
            changed: Notify::new(),
        });
        library.sockets().insert(key, socket.clone());
        Ok((socket, local))
    }

    /// A new socket's descriptor.
    ///
    /// # Errors
    /// Those of `socket`.
    pub fn open(library: &Library, family: c_int, kind: c_int, protocol: c_int) -> Result<c_int, Errno> {
        if family != libc::AF_INET && family != libc::AF_INET6 {
            return Err(Errno::EAFNOSUPPORT);
        }
        let flags = libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC;
        if kind & !flags != libc::SOCK_STREAM {
            return Err(Errno::EPROTOTYPE);
        }
        if protocol != 0 && protocol != libc::IPPROTO_TCP {
            return Err(Errno::EPROTONOSUPPORT);
        }
        let (socket, local) = Self::add(library, kind & flags, family)?;
        socket.state().phase = Phase::Idle(local);
        Ok(socket.fd)
    }

    fn state(&self) -> MutexGuard<'_, State> {
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
        let again = fcntl(crate::ffi::borrow(self.fd), FcntlArg::F_DUPFD_CLOEXEC(0)).ok()?;
        let again = crate::ffi::own(again);
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

    /// Begins to listen.
    ///
    /// # Errors
    /// Those of `listen` and `bind`, and of [`Library::listen`].
    pub fn listen(&self, library: &'static Library, backlog: c_int) -> Result<(), Errno> {
        let mut state = self.state();
        let local = match std::mem::replace(&mut state.phase, Phase::Over) {
            Phase::Idle(local) => local,
            other => {
                let is_listening = matches!(other, Phase::Listening(_));
                state.phase = other;
                return if is_listening { Ok(()) } else { Err(Errno::EINVAL) };
            }
        };
        let address = state.local.unwrap_or_else(|| address::unspecified(self.family));
        let listener = Arc::new(Listener::new(local, backlog));
        match library.listen(address, &listener) {
            Ok(address) => {
                state.local = Some(address);
                state.phase = Phase::Listening(listener);
                Ok(())
            }
            Err(error) => {
                // Nobody else has seen it.
                let local = Arc::into_inner(listener).map(Listener::into_local);
                state.phase = local.map_or(Phase::Over, Phase::Idle);
                Err(error)
            }
        }
    }

    /// The flow that an octet of this listening socket stood for, as a new socket: its descriptor, and who is there.
    ///
    /// # Errors
    /// `EINVAL` if it does not listen, and those of `socket`.
    pub fn accept(&self, library: &'static Library, flags: c_int) -> Result<c_int, Errno> {
        let (listener, address) = {
            let state = self.state();
            let Phase::Listening(listener) = &state.phase else { return Err(Errno::EINVAL) };
            (listener.clone(), state.local)
        };
        let flow = listener.take().ok_or(Errno::EAGAIN)?;
        let (socket, local) = match Self::add(library, flags, self.family) {
            Ok(added) => added,
            Err(error) => {
                listener.put_back(flow);
                return Err(error);
            }
        };
        let held = Held::new(flow);
        {
            let mut state = socket.state();
            state.local = address;
            // Where a device is changes; who it is, `getflowid` and `gethostid` tell.
            state.peer = Some(address::unspecified(self.family));
            state.name = held.with(FlowStream::name);
            state.options = self.state().options.clone();
            held.with(|flow| tell(flow, &state.options, Change::Window));
            state.phase = Phase::Connected(held.clone());
        }
        let _within = library.runtime().enter();
        let local = tokio_end(local)?;
        library.runtime().spawn(carry::carry(library, socket.clone(), local, held));
        Ok(socket.fd)
    }

    /// Whether it listens.
    pub fn is_listening(&self) -> bool {
        matches!(self.state().phase, Phase::Listening(_))
    }

    /// Begins to connect: once that is done the descriptor is writable.
    ///
    /// # Errors
    /// Those of `connect`, but for how it ends.
    pub fn connect(self: &Arc<Self>, library: &'static Library, address: SocketAddr) -> Result<(), Errno> {
        if address::family(&address) != self.family {
            return Err(Errno::EAFNOSUPPORT);
        }
        let mut state = self.state();
        match state.phase {
            Phase::Idle(_) => {}
            Phase::Connecting => return Err(Errno::EALREADY),
            Phase::Connected(_) | Phase::Listening(_) => return Err(Errno::EISCONN),
            Phase::Over => return Err(self.take_error().unwrap_or(Errno::ECONNABORTED)),
        }
        let interface = match state.options.wifi_only {
            true => Some(wifi().ok_or(Errno::ENETUNREACH)?),
            false => state.options.interface.clone(),
        };
        let (device, service) = library.way_to(address, interface)?;
        let _within = library.runtime().enter();
        let flow = device.open(&service, state.options.flow()).map_err(|_| Errno::ENOBUFS)?;
        let Phase::Idle(local) = std::mem::replace(&mut state.phase, Phase::Connecting) else {
            return Err(Errno::EINVAL);
        };
        let (filled, local) = (fill(self.fd)?, tokio_end(local)?);
        state.peer = Some(address);
        state.name = Some(flow.name());
        let within = match state.options.user_timeout_ms {
            0 => CONNECT_MAX,
            ms => Duration::from_millis(ms.into()),
        };
        drop(state);
        library.runtime().spawn(carry::connect(library, self.clone(), local, flow, filled, within));
        Ok(())
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
        // An octet that is there when the pair is closed makes the kernel report a reset. If nothing fits, there are some.
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

    /// Whether octets may be read and written: it is, or was, connected, or will be.
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

    /// The descriptor is about to be closed. How long to wait for delivery after that; `Some(0)`: what is under way is given up.
    pub fn close(&self, library: &Library) -> Option<u32> {
        let mut state = self.state();
        match &state.phase {
            Phase::Connected(flow) => {
                let linger = state.options.linger();
                if linger == Some(0) {
                    flow.reset(codes::BROKEN);
                }
                return linger;
            }
            Phase::Connecting => {
                self.is_closed.store(true, Ordering::Release);
                self.changed.notify_one();
                return None;
            }
            Phase::Idle(_) | Phase::Over => {}
            Phase::Listening(listener) => {
                let port = state.local.map_or(0, |local| local.port());
                library.unlisten(port, listener);
                listener.refuse_all();
            }
        }
        // Its end closes with it.
        self.local.store(-1, Ordering::Relaxed);
        state.phase = Phase::Over;
        drop(state);
        library.sockets().remove(&self.key);
        None
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
            Phase::Connected(_) | Phase::Connecting if change == Change::Way => return Err(Errno::EISCONN),
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

fn tell(flow: &FlowStream, options: &Options, change: Change) {
    match change {
        Change::Nothing | Change::Way => {}
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

fn tokio_end(local: OwnedFd) -> Result<tokio::net::UnixStream, Errno> {
    let failed = |error: std::io::Error| crate::library::number(&error, Errno::ENOBUFS);
    tokio::net::UnixStream::from_std(UnixStream::from(local)).map_err(failed)
}

/// Fills a pair from the program's end, so that it is not writable; with how many octets.
fn fill(fd: RawFd) -> Result<usize, Errno> {
    let (octets, mut filled) = (vec![0; FILL_BYTES], 0);
    // A pair has a limit.
    loop {
        match send(fd, &octets, MsgFlags::MSG_DONTWAIT | MsgFlags::MSG_NOSIGNAL) {
            Ok(sent) => filled += sent,
            Err(Errno::EAGAIN) => return Ok(filled),
            Err(Errno::EINTR) => {}
            Err(error) => return Err(error),
        }
    }
}

/// The first interface that is Wi-Fi and up, as Linux tells.
fn wifi() -> Option<String> {
    let mut names: Vec<_> =
        std::fs::read_dir("/sys/class/net").ok()?.flatten().map(|entry| (entry.path(), entry.file_name())).collect();
    names.sort();
    let is_wifi = |path: &Path| path.join("phy80211").exists() || path.join("wireless").exists();
    let is_up = |path: &Path| std::fs::read_to_string(path.join("operstate")).is_ok_and(|state| state.trim() == "up");
    let (_, name) = names.into_iter().find(|(path, _)| is_wifi(path) && is_up(path))?;
    name.into_string().ok()
}
