//! The calls that begin and end a socket's work: open, listen, accept, connect and close. They start the tasks that copy.

use crate::address;
use crate::backlog::Backlog;
use crate::copy;
use crate::descriptor::{Key, pair};
use crate::errors::io_number;
use crate::held::Held;
use crate::library::Library;
use crate::options::{Change, Options};
use crate::socket::{Phase, Socket, State, tell};
use hoop_endpoint::FlowStream;
use hoop_relay::codes;
use libc::c_int;
use nix::errno::Errno;
use nix::sys::socket::{MsgFlags, send};
use std::net::SocketAddr;
use std::os::fd::{AsRawFd as _, IntoRawFd as _, OwnedFd, RawFd};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::sync::Notify;

/// How long `connect` waits by default, as BSD does.
const CONNECT_MAX: Duration = Duration::from_secs(75);

/// What a pair is filled with at once.
const FILL_BYTES: usize = 32 * 1024;

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
        let backlog = Arc::new(Backlog::new(local, backlog));
        match library.listen(address, &backlog) {
            Ok(address) => {
                state.local = Some(address);
                state.phase = Phase::Listening(backlog);
                Ok(())
            }
            Err(error) => {
                // Nobody else has seen it.
                let local = Arc::into_inner(backlog).map(Backlog::into_local);
                state.phase = local.map_or(Phase::Over, Phase::Idle);
                Err(error)
            }
        }
    }

    /// The flow that a byte of this listening socket stood for, as a new socket: its descriptor, and who is there.
    ///
    /// # Errors
    /// `EINVAL` if it does not listen, and those of `socket`.
    pub fn accept(&self, library: &'static Library, flags: c_int) -> Result<c_int, Errno> {
        let (backlog, address) = {
            let state = self.state();
            let Phase::Listening(backlog) = &state.phase else { return Err(Errno::EINVAL) };
            (backlog.clone(), state.local)
        };
        let flow = backlog.take().ok_or(Errno::EAGAIN)?;
        let (socket, local) = match Self::add(library, flags, self.family) {
            Ok(added) => added,
            Err(error) => {
                backlog.put_back(flow);
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
        library.runtime().spawn(copy::copy(library, socket.clone(), local, held));
        Ok(socket.fd)
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
        library.runtime().spawn(copy::connect(library, self.clone(), local, flow, filled, within));
        Ok(())
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
            Phase::Listening(backlog) => {
                let port = state.local.map_or(0, |local| local.port());
                library.unlisten(port, backlog);
                backlog.refuse_all();
            }
        }
        // Its end closes with it.
        self.local.store(-1, Ordering::Relaxed);
        state.phase = Phase::Over;
        drop(state);
        library.sockets().remove(&self.key);
        None
    }
}

fn tokio_end(local: OwnedFd) -> Result<tokio::net::UnixStream, Errno> {
    let failed = |error: std::io::Error| io_number(&error, Errno::ENOBUFS);
    tokio::net::UnixStream::from_std(UnixStream::from(local)).map_err(failed)
}

/// Fills a pair from the program's end, so that it is not writable; with how many bytes.
fn fill(fd: RawFd) -> Result<usize, Errno> {
    let (bytes, mut filled) = (vec![0; FILL_BYTES], 0);
    // A pair has a limit.
    loop {
        match send(fd, &bytes, MsgFlags::MSG_DONTWAIT | MsgFlags::MSG_NOSIGNAL) {
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
