//! What there is once in a process: the runtime, the sockets, the links to the server of flows that are opened, the server of flows that are accepted ([`Library`]).

use crate::backlog::{Backlog, Ports};
use crate::descriptor::Key;
use crate::errors::{introduction_number, io_number, link_number};
use crate::lock::lock;
use crate::socket::Socket;
use hoop_carrier::{Listener, server_tls};
use hoop_endpoint::{Device, Server, ServerConfig, ServerLimits, Status};
use hoop_relay::{Devices, Introduction, Link, NetworkPath, OFFLINE_MAX, diagnostics};
use nix::errno::Errno;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use serde::Deserialize;
use std::collections::{HashMap, HashSet};
use std::io::{self, Write as _};
use std::net::{IpAddr, SocketAddr, ToSocketAddrs as _};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock};
use std::thread::sleep;
use std::time::{Duration, Instant};
use tokio::runtime::{Builder, Runtime};
use tokio::sync::watch;

/// Names the file about the server (an introduction), unless the program does.
const DEVICE_VARIABLE: &str = "D2TP_DEVICE";

/// Names the file about this server, unless the program does.
const SERVER_VARIABLE: &str = "D2TP_SERVER";

/// Says that the server is a relay, so that every destination is a TCP server that it is to connect to.
const RELAY_VARIABLE: &str = "D2TP_RELAY";

/// Says that what connections wait for is written to the standard error stream.
const LOG_VARIABLE: &str = "D2TP_LOG";

/// Threads of the runtime: one for each of the two ends that a busy process has.
const THREADS: usize = 2;

/// How long the end of the process waits until what was written is delivered. The kernel tries a TCP connection's last bytes for longer, but nobody waits for that.
const EXIT_MAX: Duration = Duration::from_secs(60);

/// How long it waits after that until the other end has said its last, too, and knows what was given up: the other end asks for its acknowledgement as long as it runs.
const EXIT_GRACE: Duration = Duration::from_secs(1);

/// How often the end of the process looks. It cannot wait otherwise: the thread's own variables are gone by then.
const EXIT_TICK: Duration = Duration::from_millis(5);

/// Ports that are given to sockets which ask for none, where carriers have an address of their own: those that IANA leaves to such use.
const FREE_PORTS: std::ops::RangeInclusive<u16> = 49_152..=65_535;

/// A server's file (TOML). Paths are relative to its folder.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct ServerFile {
    /// Its chain of certificates, in PEM.
    certificate: PathBuf,
    /// Their key, in PEM.
    key: PathBuf,
    /// Its devices.
    devices: PathBuf,
    /// Where carriers arrive, UDP and TCP; without it, where the first socket listens, and each other.
    listen: Option<SocketAddr>,
}

/// The server of flows that are accepted.
struct Hosting {
    server: Arc<Server>,
    tls: rustls::ServerConfig,
    listen: Option<SocketAddr>,
    /// Where carriers arrive. They go on when a socket is closed: flows that it accepted live on them.
    arrivals: HashSet<SocketAddr>,
    ports: Arc<Ports>,
}

/// Links by the interface that they leave by; None: as the system finds.
#[derive(Default)]
struct Links {
    file: Option<PathBuf>,
    introduction: Option<(Introduction, Vec<IpAddr>)>,
    links: HashMap<Option<String>, Link>,
}

#[derive(Default)]
struct Host {
    file: Option<PathBuf>,
    hosting: Option<Hosting>,
}

/// What there is once in a process.
pub struct Library {
    runtime: Runtime,
    sockets: Mutex<HashMap<Key, Arc<Socket>>>,
    links: Mutex<Links>,
    host: Mutex<Host>,
    /// How the flows are whose sockets may be closed already.
    carried: Mutex<HashMap<Key, watch::Receiver<Status>>>,
}

static LIBRARY: OnceLock<Result<Library, Errno>> = OnceLock::new();

impl Library {
    /// The process's own; begins it at first use, and then has `attend_process` make the end of the process wait for it.
    ///
    /// # Errors
    /// `ENOMEM` or `EAGAIN` if there can be no threads.
    pub fn get(attend_process: fn()) -> Result<&'static Self, Errno> {
        LIBRARY.get_or_init(|| Self::begin(attend_process)).as_ref().map_err(|error| *error)
    }

    /// The process's own, if it was begun.
    pub fn begun() -> Option<&'static Self> {
        LIBRARY.get()?.as_ref().ok()
    }

    fn begin(attend_process: fn()) -> Result<Self, Errno> {
        // The program's signals are for its own threads; these inherit that they take none.
        let before = nix::sys::signal::SigSet::all().thread_swap_mask(nix::sys::signal::SigmaskHow::SIG_BLOCK)?;
        let runtime = Builder::new_multi_thread().worker_threads(THREADS).thread_name("d2tp").enable_all().build();
        before.thread_set_mask()?;
        let runtime = runtime.map_err(|error| io_number(&error, Errno::EAGAIN))?;
        attend_process();
        Ok(Self {
            runtime,
            sockets: Mutex::default(),
            links: Mutex::default(),
            host: Mutex::default(),
            carried: Mutex::default(),
        })
    }

    /// Within it, tasks can be begun.
    pub const fn runtime(&self) -> &Runtime {
        &self.runtime
    }

    /// The sockets that there are.
    pub fn sockets(&self) -> MutexGuard<'_, HashMap<Key, Arc<Socket>>> {
        lock(&self.sockets)
    }

    /// The library's ends of all pairs, in a child of the process. If another thread was in the table as it forked they stay open.
    pub fn each_local(&self, close: impl Fn(libc::c_int)) {
        if let Ok(sockets) = self.sockets.try_lock() {
            sockets.values().filter_map(|socket| socket.take_local()).for_each(close);
        }
    }

    /// The socket of a descriptor.
    ///
    /// # Errors
    /// `EBADF` if it is none, `ENOTSOCK` if it is none of ours.
    pub fn find(&self, fd: libc::c_int) -> Result<Arc<Socket>, Errno> {
        self.sockets().get(&Key::of(fd)?).cloned().ok_or(Errno::ENOTSOCK)
    }

    /// Nobody has the socket's descriptor any more.
    pub fn forget(&self, socket: &Socket) {
        socket.over();
        self.sockets().remove(&socket.key());
    }

    /// Remembers how a flow is, for the end of the process.
    pub fn carries(&self, key: Key, status: watch::Receiver<Status>) {
        lock(&self.carried).insert(key, status);
    }

    /// A flow's end is reached.
    pub fn carried(&self, key: Key) {
        lock(&self.carried).remove(&key);
    }

    /// Names the introduction.
    ///
    /// # Errors
    /// `EBUSY` once a link was begun; what the file's being unreadable (its own number) or malformed (`EINVAL`) makes.
    pub fn set_device(&self, file: &Path) -> Result<(), Errno> {
        let mut links = lock(&self.links);
        if !links.links.is_empty() {
            return Err(Errno::EBUSY);
        }
        links.introduction = Some(introduction(file)?);
        links.file = Some(file.to_owned());
        Ok(())
    }

    /// Names the server's file.
    ///
    /// # Errors
    /// `EBUSY` once something listens.
    pub fn set_server(&self, file: &Path) -> Result<(), Errno> {
        let mut host = lock(&self.host);
        if host.hosting.is_some() {
            return Err(Errno::EBUSY);
        }
        server_file(file)?;
        host.file = Some(file.to_owned());
        Ok(())
    }

    /// Where flows to `address` are opened, and for which service; over `interface` alone, if there is one.
    ///
    /// # Errors
    /// `ENETUNREACH` if no server is known, or the interface cannot be used; as [`Library::set_device`].
    pub fn way_to(&self, address: SocketAddr, interface: Option<String>) -> Result<(Device, String), Errno> {
        let mut links = lock(&self.links);
        if links.introduction.is_none() {
            let file = std::env::var_os(DEVICE_VARIABLE).ok_or(Errno::ENETUNREACH)?;
            links.introduction = Some(introduction(Path::new(&file))?);
        }
        let Links { introduction, links, .. } = &mut *links;
        let (introduction, addresses) = introduction.as_ref().ok_or(Errno::ENETUNREACH)?;
        let device = match links.get(&interface) {
            Some(link) => link.device().clone(),
            None => {
                let way = interface.as_deref().map_or_else(NetworkPath::any, NetworkPath::interface);
                let _within = self.runtime.enter();
                let link = Link::start(introduction, vec![way]).map_err(|error| link_number(&error))?;
                if is_on(LOG_VARIABLE) {
                    // A program's own standard error stream may be gone; that is no fault.
                    let say = |words: &str| drop(writeln!(io::stderr(), "d2tp: {words}"));
                    tokio::spawn(diagnostics::tell(link.troubles(), introduction.server.clone(), say));
                }
                links.entry(interface).or_insert(link).device().clone()
            }
        };
        let is_relay = is_on(RELAY_VARIABLE);
        let is_server = !is_relay && addresses.contains(&address.ip().to_canonical());
        let service = if is_server { format!("d2tp:{}", address.port()) } else { format!("tcp:{address}") };
        Ok((device, service))
    }

    /// Has flows to the port of `address` put into `backlog`, and carriers arrive there if the server's file names no other place. Returns the address with its port.
    ///
    /// # Errors
    /// `EADDRINUSE` and others of `bind`; `EINVAL` for a malformed file; `ENETDOWN` if none is named.
    pub fn listen(&'static self, address: SocketAddr, backlog: &Arc<Backlog>) -> Result<SocketAddr, Errno> {
        let mut host = lock(&self.host);
        if host.hosting.is_none() {
            let file = host.file.clone().or_else(|| std::env::var_os(SERVER_VARIABLE).map(PathBuf::from));
            host.hosting = Some(self.host(&file.ok_or(Errno::ENETDOWN)?)?);
        }
        let hosting = host.hosting.as_mut().ok_or(Errno::ENETDOWN)?;
        let address = match hosting.listen {
            Some(listen) => {
                self.arrive(hosting, listen)?;
                let mut free = FREE_PORTS.filter(|port| !hosting.ports.is_taken(*port));
                let port = if address.port() == 0 { free.next().ok_or(Errno::EADDRINUSE)? } else { address.port() };
                SocketAddr::new(address.ip(), port)
            }
            None if hosting.ports.is_taken(address.port()) => return Err(Errno::EADDRINUSE),
            None => self.arrive(hosting, address)?,
        };
        hosting.ports.add(address.port(), backlog)?;
        Ok(address)
    }

    /// Has flows to a port put there no more.
    pub fn unlisten(&self, port: u16, backlog: &Arc<Backlog>) {
        if let Some(hosting) = &lock(&self.host).hosting {
            hosting.ports.remove(port, backlog);
        }
    }

    fn host(&'static self, file: &Path) -> Result<Hosting, Errno> {
        let (file, tls) = server_file(file)?;
        let devices = Devices::open(&file.devices).map_err(|error| introduction_number(&error))?;
        let _within = self.runtime.enter();
        let ports = Arc::new(Ports::new(devices));
        // A client that is killed says nothing.
        let limits = ServerLimits { offline: OFFLINE_MAX, ..ServerLimits::default() };
        let server = Arc::new(Server::new(ServerConfig { limits, ..ServerConfig::new(ports.clone()) }));
        let (taking, giving) = (server.clone(), ports.clone());
        self.runtime.spawn(async move {
            while let Some(flow) = taking.accept().await {
                giving.give(flow);
            }
        });
        Ok(Hosting { server, tls, listen: file.listen, arrivals: HashSet::new(), ports })
    }

    /// Takes carriers at an address, unless they are taken there already.
    fn arrive(&self, hosting: &mut Hosting, address: SocketAddr) -> Result<SocketAddr, Errno> {
        if hosting.arrivals.contains(&address) {
            return Ok(address);
        }
        let bound = self.runtime.block_on(Listener::bind(address, &hosting.tls));
        let arrivals = bound.map_err(|error| io_number(&error, Errno::EADDRNOTAVAIL))?;
        let address = arrivals.local_address();
        hosting.arrivals.insert(address);
        let server = hosting.server.clone();
        self.runtime.spawn(async move {
            while let Ok(carrier) = arrivals.accept().await {
                server.serve(carrier, "device");
            }
        });
        Ok(address)
    }

    /// The process ends: what was written is still delivered, within [`EXIT_MAX`].
    pub fn finish(&self) {
        // What ends by itself ends here: the program writes no more.
        self.sockets().values().for_each(|socket| socket.write_no_more());
        let mut deadline = Instant::now() + EXIT_MAX;
        let mut is_delivered = false;
        while Instant::now() < deadline {
            let (mut all_over, mut all_delivered) = (true, true);
            for status in lock(&self.carried).values() {
                let status = status.borrow();
                all_over &= status.over.is_some();
                all_delivered &= status.over.is_some() || status.is_delivered;
            }
            // One that was given up here is over at once, and there once the server knows.
            if all_over && lock(&self.links).links.values().all(|link| link.device().flows() == 0) {
                return;
            }
            if all_delivered && !is_delivered {
                (is_delivered, deadline) = (true, Instant::now() + EXIT_GRACE);
            }
            sleep(EXIT_TICK);
        }
    }
}

/// Whether a variable is 1: what else stands there means nothing.
fn is_on(variable: &str) -> bool {
    std::env::var_os(variable).is_some_and(|value| value == "1")
}

/// The introduction in a file, and the server's addresses as they are now.
fn introduction(file: &Path) -> Result<(Introduction, Vec<IpAddr>), Errno> {
    let introduction = Introduction::read(file).map_err(|error| introduction_number(&error))?;
    let server = introduction.server().map_err(|error| introduction_number(&error))?;
    let mut addresses = server.addresses;
    if addresses.is_empty() {
        // A name that is not found now has no address that a program could have asked for.
        let found = (server.name.as_str(), server.quic_port).to_socket_addrs();
        addresses.extend(found.into_iter().flatten().map(|address| address.ip()));
    }
    Ok((introduction, addresses.into_iter().map(|address| address.to_canonical()).collect()))
}

fn server_file(path: &Path) -> Result<(ServerFile, rustls::ServerConfig), Errno> {
    let text = std::fs::read_to_string(path).map_err(|error| io_number(&error, Errno::EINVAL))?;
    let mut file: ServerFile = toml::from_str(&text).map_err(|_| Errno::EINVAL)?;
    let folder = path.parent().unwrap_or(Path::new(""));
    for path in [&mut file.certificate, &mut file.key, &mut file.devices] {
        *path = folder.join(&path);
    }
    let malformed = |error| match error {
        rustls::pki_types::pem::Error::Io(error) => io_number(&error, Errno::EINVAL),
        _ => Errno::EINVAL,
    };
    let chain: Result<Vec<_>, _> = CertificateDer::pem_file_iter(&file.certificate).and_then(Iterator::collect);
    let key = PrivateKeyDer::from_pem_file(&file.key).map_err(malformed)?;
    let tls = server_tls(chain.map_err(malformed)?, key).map_err(|_| Errno::EINVAL)?;
    Ok((file, tls))
}
