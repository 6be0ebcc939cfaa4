//! The server's end of carried connections: [`Relay`].

use super::lookups::Lookups;
use super::metered::Metered;
use super::metrics::Counters;
use super::rate_limit::{ShareLimits, Shares};
use crate::codes;
use crate::copy::copy_both;
use crate::diagnostics;
use crate::introduction::{Devices, Rule};
use crate::wire::{CONNECT, MADE, NEVER_PORTS, TCP};
use hoop_carrier::{Listener, ResetKey, server_tls};
use hoop_endpoint::{DeviceId, FlowError, FlowStream, Server, ServerConfig, ServerLimits, Status, ended};
use hoop_http::tls::Renewed;
use hoop_units::{Here, Prefix};
use if_addrs::IfAddr;
use parking_lot::Mutex;
use rustls::pki_types::pem::{self, PemObject as _};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use std::collections::{BTreeSet, HashMap};
use std::io;
use std::net::{SocketAddr, ToSocketAddrs as _};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};
use tokio::io::AsyncWriteExt as _;
use tokio::net::{TcpSocket, TcpStream};
use tokio::sync::{AcquireError, OwnedSemaphorePermit, Semaphore, mpsc, oneshot, watch};
use tokio::task::JoinSet;
use tokio::time::timeout;

/// How long a destination has to take a connection.
const CONNECT_MAX: Duration = Duration::from_secs(20);

/// A device that is away for longer finds its connections ended: few servers wait so long for the other half, and a program that was killed never comes back.
pub const OFFLINE_MAX: hoop_units::Duration = hoop_units::Duration::from_secs(12 * 3_600);

/// How long a destination has to take the rest of what a device wrote who has gone: at most a window, and what the kernel holds.
const OUTLIVES_MAX: Duration = Duration::from_secs(3_600);

/// How often it is looked whether certificate and key were renewed: they are, weeks before the old ones expire.
const RENEW_EVERY: Duration = Duration::from_secs(60);

/// How often it is looked who is shut out.
const REVOKE_EVERY: Duration = Duration::from_secs(5);

/// Why there is no connection, as who waits for it is told.
fn code_of(error: &io::Error) -> u64 {
    match error.kind() {
        io::ErrorKind::ConnectionRefused => codes::REFUSED,
        io::ErrorKind::TimedOut => codes::TIMED_OUT,
        io::ErrorKind::HostUnreachable => codes::NO_HOST,
        io::ErrorKind::NetworkUnreachable => codes::NO_NETWORK,
        _ => codes::UNREACHABLE,
    }
}

/// Where a relay connects to.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Allowed {
    /// Anywhere at all.
    pub any: bool,
    /// These, though they are not public.
    pub addresses: BTreeSet<Prefix>,
    /// These ports, though they are among [`NEVER_PORTS`].
    pub ports: BTreeSet<u16>,
}

impl Allowed {
    /// Public addresses that are not this machine's, nor its neighbours', and those that are listed: a device that was introduced is not let into the server's network by that.
    fn allows(&self, to: SocketAddr, here: &Here, own_port: Option<u16>) -> bool {
        let address = to.ip();
        // Not to itself, whatever is listed: such a connection would hold two of its own places. Linux takes the unspecified address for loopback.
        let canonical = address.to_canonical();
        let is_own = canonical.is_loopback() || canonical.is_unspecified() || here.is_own(address);
        let is_itself = own_port == Some(to.port()) && is_own;
        if is_itself || (NEVER_PORTS.contains(&to.port()) && !self.ports.contains(&to.port())) {
            return false;
        }
        self.any
            || self.addresses.iter().any(|listed| listed.contains(address))
            || (hoop_units::is_public(address) && !here.is_near(address))
    }
}

/// Where the relay is, as its interfaces are now: they come and go.
fn look() -> io::Result<Here> {
    let bits = |interface: &if_addrs::Interface| match &interface.addr {
        IfAddr::V4(v4) => v4.prefixlen.into(),
        IfAddr::V6(v6) => v6.prefixlen.into(),
    };
    Ok(Here::of(if_addrs::get_if_addrs()?.iter().map(|interface| (interface.ip(), bits(interface)))))
}

/// What a relay is given.
#[derive(Clone, Debug)]
pub struct RelayConfig {
    /// Where it listens: UDP for QUIC, TCP for WebSocket.
    pub listen: SocketAddr,
    /// Its chain of certificates, in PEM.
    pub certificate: PathBuf,
    /// Their key, in PEM.
    pub key: PathBuf,
    /// Its devices: see [`Devices`].
    pub devices: PathBuf,
    /// Where it connects to.
    pub allowed: Allowed,
    /// What each device may use.
    pub shares: ShareLimits,
    /// Where `/metrics` are told: an address of this machine alone. None: nowhere.
    pub admin: Option<SocketAddr>,
}

/// A relay cannot begin.
#[derive(Debug, thiserror::Error)]
pub enum RelayError {
    /// Its devices.
    #[error(transparent)]
    Devices(#[from] crate::IntroductionError),
    /// A certificate or its key.
    #[error("{path}: {why}")]
    Certificate {
        /// Which.
        path: PathBuf,
        /// Why.
        why: String,
    },
    /// A socket, or metrics would be told to others than this machine.
    #[error(transparent)]
    Listen(#[from] hoop_http::ServeError),
}

/// Takes devices' flows, and connects each to where its service says.
#[derive(Debug)]
pub struct Relay {
    listener: Listener,
    certificate: Arc<Renewed>,
    metrics: Option<hoop_http::Server>,
    reload: (mpsc::Sender<Answer>, mpsc::Receiver<Answer>),
    carrying: Arc<Carrying>,
}

/// Has a running relay look at its files at once.
#[derive(Clone, Debug)]
pub struct Reload(mpsc::Sender<Answer>);

/// Where it is told how that went.
type Answer = oneshot::Sender<Result<(), ReloadError>>;

/// Of a relay's files one was changed, and cannot be used. The log says why.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum ReloadError {
    /// The file of devices: who was known stays known.
    #[error("the devices' file is not taken; the certificate is looked at all the same")]
    Devices,
    /// The certificate or its key: what was shown is shown.
    #[error("the certificate is not taken; the devices' file is")]
    Certificate,
    /// Both.
    #[error("neither the devices' file nor the certificate is taken")]
    Both,
}

impl Reload {
    /// Looks, and returns when what was taken holds. A relay that has ended has nothing to look at.
    ///
    /// # Errors
    /// If a file was changed and cannot be used. The other is taken all the same.
    pub async fn look(&self) -> Result<(), ReloadError> {
        let (answer, told) = oneshot::channel();
        let _ = self.0.send(answer).await;
        told.await.unwrap_or(Ok(()))
    }
}

/// What each flow is carried with.
#[derive(Debug)]
struct Carrying {
    server: Server,
    devices: Arc<Devices>,
    allowed: Allowed,
    /// The relay's own.
    port: u16,
    /// Names that are looked up.
    lookups: Arc<Lookups>,
    /// Connections to destinations.
    connections: Arc<Places>,
    shares: Shares,
    refusals: Refusals,
    counters: Arc<Counters>,
}

impl Relay {
    /// Listens; within a tokio runtime.
    ///
    /// # Errors
    /// If a file is missing or malformed, or a socket cannot be had.
    pub async fn bind(config: &RelayConfig) -> Result<Self, RelayError> {
        let devices = Arc::new(Devices::open(&config.devices)?);
        let (certificate, tls) = Renewed::open(&config.certificate, &config.key, tls)?;
        let listen = |source| hoop_http::ServeError { address: config.listen, source };
        let listener = Listener::bind_again(config.listen, &tls, reset_key(config)?).await.map_err(listen)?;
        let metrics = hoop_http::metrics::bind(config.admin).await?;
        let defaults = ServerLimits::default();
        // Half of the descriptors are for destinations; a flow that waits for its device holds one.
        let flows = defaults.flows.min(hoop_carrier::descriptors() / 2);
        // The listener takes a quarter of them: before it is full, strangers make way. Carriers of QUIC take none.
        let websockets = defaults.websockets.min(hoop_carrier::descriptors() / 5);
        let carriers_of_device = defaults.carriers_of_device.min(websockets / 4);
        let flows_of_device = defaults.flows_of_device.min(flows / 2);
        let limits =
            ServerLimits { flows, flows_of_device, websockets, carriers_of_device, offline: OFFLINE_MAX, ..defaults };
        let carrying = Carrying {
            server: Server::new(ServerConfig { limits, ..ServerConfig::new(devices.clone()) }),
            devices,
            allowed: config.allowed.clone(),
            port: listener.local_address().port(),
            lookups: Lookups::new(LOOKUPS, LOOKUPS_OF_DEVICE),
            connections: Places::new(flows, flows_of_device),
            shares: Shares::new(config.shares),
            refusals: Refusals::default(),
            counters: Arc::default(),
        };
        Ok(Self { listener, certificate, metrics, reload: mpsc::channel(1), carrying: Arc::new(carrying) })
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.listener.local_address()
    }

    /// Where `/metrics` are told.
    pub fn admin_address(&self) -> Option<SocketAddr> {
        self.metrics.as_ref().map(hoop_http::Server::address)
    }

    /// What makes it look at its files at once; it looks by itself every few seconds.
    pub fn reload(&self) -> Reload {
        Reload(self.reload.0.clone())
    }

    /// Serves until this is dropped, or until the listener fails. Connections to destinations end with it, and so do their flows.
    pub async fn run(self) {
        let Self { listener, certificate, metrics, reload: (_again, reload), carrying } = self;
        let mut tasks = JoinSet::new();
        let (_stop, stopped) = hoop_http::shutdown();
        if let Some(metrics) = metrics {
            tasks.spawn(hoop_http::metrics::serve(metrics, text_of(carrying.clone()), stopped));
        }
        // A file may take its time, and carriers wait for none.
        tasks.spawn(follow_files(certificate, reload, carrying.clone()));
        loop {
            let carrier = tokio::select! {
                carrier = listener.accept() => carrier,
                Some(flow) = carrying.server.accept() => {
                    tasks.spawn(relay(flow, carrying.clone()));
                    continue;
                }
                Some(_) = tasks.join_next() => continue,
            };
            match carrier {
                Ok(carrier) => carrying.server.serve(carrier, "relay"),
                Err(error) => {
                    tracing::error!(%error, "a listener is gone");
                    return;
                }
            }
        }
    }
}

/// Takes over what the files say: who is known, and what clients are shown.
async fn follow_files(certificate: Arc<Renewed>, mut reload: mpsc::Receiver<Answer>, carrying: Arc<Carrying>) {
    let mut renew = tokio::time::interval(RENEW_EVERY);
    let mut revoke = tokio::time::interval(REVOKE_EVERY);
    let mut revocation = Revocation::new(&carrying.devices);
    loop {
        tokio::select! {
            _ = renew.tick() => drop(certificate.look_apart()),
            _ = revoke.tick() => {
                carrying.devices.look().await;
                carrying.revoke(revocation.gone(&carrying.devices, false));
            }
            Some(answer) = reload.recv() => {
                let shown = certificate.look_apart();
                carrying.devices.look().await;
                carrying.revoke(revocation.gone(&carrying.devices, true));
                let is_shown = shown.await.is_ok_and(|shown| shown.is_ok());
                tracing::info!(devices = carrying.devices.known().len(), "devices and certificate were looked at again");
                // Who has asked may have gone.
                let _ = answer.send(match (carrying.devices.are_taken(), is_shown) {
                    (true, true) => Ok(()),
                    (false, true) => Err(ReloadError::Devices),
                    (true, false) => Err(ReloadError::Certificate),
                    (false, false) => Err(ReloadError::Both),
                });
            }
        }
    }
}

fn text_of(
    carrying: Arc<Carrying>,
) -> impl Fn() -> std::future::Ready<Result<String, hoop_http::Problem>> + Clone + Send + Sync + 'static {
    move || std::future::ready(Ok(carrying.counters.text(&carrying.server, carrying.devices.known().len())))
}

impl Carrying {
    /// Ends what devices have here that were shut out.
    fn revoke(&self, devices: Vec<DeviceId>) {
        for device in devices {
            let flows = self.server.revoke(device, codes::REVOKED);
            self.counters.revoked(flows);
            tracing::info!(target: "audit", act = "shut-out", device = hex::encode(device.0), flows, "a device was shut out");
        }
    }
}

/// Who was shut out: a device that is in the file no more, or with another key, or that may no longer go to all the places that it might. Its connections end, and those that it still may have it begins anew.
struct Revocation {
    /// Who was known when it was last looked, and may be still.
    known: Known,
    /// Who is missing since then. An editor may empty a file before it writes it anew.
    missing: BTreeSet<DeviceId>,
}

type Known = std::collections::BTreeMap<DeviceId, Rule>;

impl Revocation {
    fn new(devices: &Devices) -> Self {
        Self { known: devices.known(), missing: BTreeSet::new() }
    }

    /// Those to be shut out: who is missing at the second look, or at once if the operator has said that the file is as it is meant to be.
    fn gone(&mut self, devices: &Devices, is_sure: bool) -> Vec<DeviceId> {
        let now = devices.known();
        let is_kept = |host: &DeviceId, rule: &Rule| now.get(host).is_some_and(|other| other.covers(rule));
        let missing = self.known.iter().filter(|(host, rule)| !is_kept(host, rule)).map(|(host, _)| *host);
        let missing: BTreeSet<_> = missing.collect();
        let (gone, waiting): (Vec<_>, Vec<_>) =
            missing.into_iter().partition(|host| is_sure || self.missing.contains(host));
        let waits = |host: &DeviceId| self.known.get(host).map(|rule| (*host, rule.clone()));
        let mut known = now.clone();
        known.extend(waiting.iter().filter_map(waits));
        (self.known, self.missing) = (known, waiting.into_iter().collect());
        gone
    }
}

fn tls(certificate: &Path, key: &Path) -> Result<rustls::ServerConfig, RelayError> {
    let fail = |path: &Path, why: String| RelayError::Certificate { path: path.to_owned(), why };
    if std::fs::metadata(key).is_ok_and(|key| key.permissions().mode() & 0o002 != 0) {
        return Err(fail(key, "can be written by anybody on this machine: `chmod o-w` it".to_owned()));
    }
    let chain: Result<Vec<_>, _> = CertificateDer::pem_file_iter(certificate).and_then(Iterator::collect);
    let chain = chain.map_err(|error| fail(certificate, error.to_string()))?;
    if chain.is_empty() {
        return Err(lacks(certificate, "certificate"));
    }
    let private = private_key(key)?;
    if let Some(wrong) = doubt(&chain) {
        tracing::warn!("{}: no device will take it: {wrong}", certificate.display());
    }
    server_tls(chain, private).map_err(|error| match error {
        rustls::Error::InconsistentKeys(_) => {
            fail(key, format!("is not the key of the first certificate in {}", certificate.display()))
        }
        error => fail(certificate, error.to_string()),
    })
}

fn lacks(path: &Path, what: &str) -> RelayError {
    let why = format!("holds no {what} (PEM); --cert and --key may be swapped");
    RelayError::Certificate { path: path.to_owned(), why }
}

fn private_key(path: &Path) -> Result<PrivateKeyDer<'static>, RelayError> {
    PrivateKeyDer::from_pem_file(path).map_err(|error| match error {
        pem::Error::NoItemsFound => lacks(path, "private key"),
        error => RelayError::Certificate { path: path.to_owned(), why: error.to_string() },
    })
}

/// The same as long as the certificate's key, the address and the machine are. None where the machine has no name: relays of several machines may have one certificate, and must
/// not end each other's connections.
fn reset_key(config: &RelayConfig) -> Result<Option<ResetKey>, RelayError> {
    let private = private_key(&config.key)?;
    let machine = std::fs::read_to_string("/etc/machine-id").unwrap_or_default();
    let place = format!("{} {}", config.listen, machine.trim());
    Ok((!machine.trim().is_empty()).then(|| ResetKey::derive(private.secret_der(), place.as_bytes())))
}

/// What is wrong with a certificate whoever signed it, and whatever its name: it has expired, or is an authority's.
fn doubt(chain: &[CertificateDer<'static>]) -> Option<String> {
    let error = diagnostics::verify(chain, chain.last().map(std::slice::from_ref)?, "relay.invalid")?;
    let is_for_all = diagnostics::is_of_time(&error) || diagnostics::is_of_authority(&error);
    is_for_all.then(|| diagnostics::certificate(&error))
}

async fn relay(mut flow: FlowStream, carrying: Arc<Carrying>) {
    let name = flow.name();
    let mut status = flow.status();
    let connecting = async {
        let share = carrying.shares.begin(name.device, Instant::now()).ok_or(codes::TOO_MANY)?;
        // A connection may outlive its flow, where the destination takes nothing of what is left: it counts until it has ended.
        let place = carrying.connections.take(name.device).await.map_err(|_| codes::UNREACHABLE)?;
        let connection = connect(flow.service(), &carrying, name.device, place.is_wide).await?;
        Ok((Metered::new(connection, share, carrying.counters.clone()), place))
    };
    let connected = tokio::select! {
        connected = connecting => connected,
        // Nobody waits for it any more.
        _ = status.wait_for(|status| status.over.is_some()) => return,
    };
    let code = match connected {
        Ok((mut connection, _place)) => {
            let _open = carrying.counters.open();
            // What is said of a flow that is over reaches nobody.
            if flow.service().starts_with(CONNECT) && flow.write_all(&[MADE]).await.is_err() {
                return;
            }
            let copied = tokio::select! {
                copied = copy_both(&mut flow, &mut connection) => copied,
                // Where the connection takes nothing and gives nothing, nobody would look at the flow.
                () = is_given_up(&mut status) => {
                    connection.abort();
                    return;
                }
            };
            match copied {
                Ok(_) => {
                    // Both ends have said all; the device may be away, and is waited for.
                    let _ = flow.finished().await;
                    return;
                }
                Err(error) => {
                    tracing::debug!(?name, %error, "a carried connection broke off");
                    codes::BROKEN
                }
            }
        }
        Err(code) => code,
    };
    carrying.counters.ended(code);
    if code == codes::TOO_MANY && carrying.refusals.are_written(name.device, Instant::now()) {
        tracing::info!(host = hex::encode(name.device.0), "a device begins more connections than its share");
    }
    flow.reset(code);
}

/// How often each device's refusals were written down since its minute began: so one device does not fill the log. An entry a device of the file.
#[derive(Debug, Default)]
struct Refusals(Mutex<HashMap<DeviceId, (Instant, u32)>>);

impl Refusals {
    /// Lines a minute for one device: more than one needs to see what is wrong.
    const OF_DEVICE: u32 = 20;

    /// Whether one more is written down.
    fn are_written(&self, host: DeviceId, now: Instant) -> bool {
        const MINUTE: Duration = Duration::from_secs(60);
        let mut devices = self.0.lock();
        if !devices.contains_key(&host) {
            devices.retain(|_, (began, _)| now.saturating_duration_since(*began) < MINUTE);
        }
        let (began, lines) = devices.entry(host).or_insert((now, 0));
        if now.saturating_duration_since(*began) >= MINUTE {
            (*began, *lines) = (now, 0);
        }
        *lines = lines.saturating_add(1);
        if *lines == Self::OF_DEVICE + 1 {
            let device = hex::encode(host.0);
            tracing::warn!(device, "more of a device's connections are refused than are written down in this minute");
        }
        *lines <= Self::OF_DEVICE
    }
}

/// Returns when a flow is over before both ends have said all, or has been over for as long as its connection may go on without it.
async fn is_given_up(status: &mut watch::Receiver<Status>) {
    let over = status.wait_for(|status| status.over.is_some()).await.ok().and_then(|status| status.over);
    if over == Some(FlowError::Ended(ended::FINISHED)) {
        tokio::time::sleep(OUTLIVES_MAX).await;
    }
}

/// Names that are looked up at once, of all devices and of each: a lookup takes a thread, for as long as the resolver takes.
const LOOKUPS: usize = 256;
const LOOKUPS_OF_DEVICE: usize = 16;

/// So many of a device's connections may have the kernel's buffers grow as it likes, to some megabytes each. What a destination sends and the
/// device does not take lies there, and counts for nobody.
const WIDE: usize = 32;

/// The most that the kernel keeps for another, in bytes: at 50 ms to its destination it carries 20 Mbit/s. Linux takes it twice.
const NARROW_BYTES: u32 = 128 << 10;

/// So many at once, of all devices and of each.
#[derive(Debug)]
struct Places {
    all: Arc<Semaphore>,
    of_device: usize,
    /// Of those that have any.
    devices: Mutex<HashMap<DeviceId, Weak<Semaphore>>>,
}

impl Places {
    fn new(all: usize, of_device: usize) -> Arc<Self> {
        Arc::new(Self { all: Arc::new(Semaphore::new(all)), of_device, devices: Mutex::default() })
    }

    /// Waits for one of this device's. It is given back when what is returned is dropped.
    async fn take(&self, host: DeviceId) -> Result<Place, AcquireError> {
        let own = {
            let mut devices = self.devices.lock();
            let known = devices.get(&host).and_then(Weak::upgrade);
            known.unwrap_or_else(|| {
                devices.retain(|_, own| own.strong_count() > 0);
                let own = Arc::new(Semaphore::new(self.of_device));
                devices.insert(host, Arc::downgrade(&own));
                own
            })
        };
        let free = own.clone();
        let own = own.acquire_owned().await?;
        let is_wide = self.of_device - free.available_permits() <= WIDE;
        Ok(Place { is_wide, _permits: [own, self.all.clone().acquire_owned().await?] })
    }
}

/// A connection's place.
#[derive(Debug)]
struct Place {
    /// Whether it is one of the first [`WIDE`].
    is_wide: bool,
    _permits: [OwnedSemaphorePermit; 2],
}

/// The addresses of `HOST:PORT`. A lookup that nobody waits for any more keeps its place until the resolver has answered.
async fn look_up(destination: &str, host: DeviceId, lookups: &Arc<Lookups>) -> Result<Vec<SocketAddr>, u64> {
    let place = lookups.take(host).await.ok_or(codes::UNKNOWN_NAME)?;
    let destination = destination.to_owned();
    let found = tokio::task::spawn_blocking(move || {
        let _place = place;
        destination.to_socket_addrs().map(Vec::from_iter)
    });
    found.await.ok().and_then(Result::ok).ok_or(codes::UNKNOWN_NAME)
}

async fn connect(service: &str, carrying: &Carrying, host: DeviceId, is_wide: bool) -> Result<TcpStream, u64> {
    let (destination, is_awaited) = match (service.strip_prefix(CONNECT), service.strip_prefix(TCP)) {
        (Some(destination), _) => (destination, true),
        (None, Some(destination)) => (destination, false),
        (None, None) => return Err(codes::MALFORMED),
    };
    if destination.rsplit_once(':').is_none_or(|(host, port)| host.is_empty() || port.parse::<u16>().is_err()) {
        return Err(codes::MALFORMED);
    }
    let addresses = match destination.parse() {
        Ok(address) => vec![address],
        Err(_) => timeout(CONNECT_MAX, look_up(destination, host, &carrying.lookups))
            .await
            .map_err(|_| codes::UNKNOWN_NAME)??,
    };
    // They come and go; without knowing them nothing is public.
    let unknown = || Here::of(addresses.iter().map(|address| (address.ip(), u32::MAX)));
    let here = look().unwrap_or_else(|_| unknown());
    let only = carrying.devices.only(host);
    let is_its = |to: &SocketAddr| only.as_ref().is_none_or(|only| only.iter().any(|own| own.contains(to.ip())));
    let (may, may_not): (Vec<_>, Vec<_>) =
        addresses.into_iter().partition(|to| is_its(to) && carrying.allowed.allows(*to, &here, Some(carrying.port)));
    if may.is_empty() {
        let Some(to) = may_not.first() else { return Err(codes::UNKNOWN_NAME) };
        let device = hex::encode(host.0);
        match is_its(to) {
            _ if !carrying.refusals.are_written(host, Instant::now()) => {}
            false => tracing::info!(device, %to, "a device may not go there: it is not in its `only`"),
            true if NEVER_PORTS.contains(&to.port()) => {
                tracing::info!(device, %to, "a device may not go to this port: --allow-port would let all");
            }
            true if carrying.allowed.addresses.iter().any(|listed| listed.contains(to.ip()))
                || carrying.allowed.any =>
            {
                tracing::info!(device, %to, "a device may not go to the relay itself");
            }
            true => tracing::info!(device, %to, "a device may not go there: --allow {} would let it", to.ip()),
        }
        return Err(codes::FORBIDDEN);
    }
    let connection = timeout(CONNECT_MAX, connect_to(&may, &carrying.shares, host, is_wide)).await;
    let connection = connection.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()));
    let connection = connection.map_err(|error| if is_awaited { code_of(&error) } else { codes::UNREACHABLE })?;
    // What a flow brings is as large as it will be.
    let _ = connection.set_nodelay(true);
    Ok(connection)
}

/// Connects to the first that takes it, as [`TcpStream::connect`] does. Each after the first counts as one more connection that the device begins: a name of its own may have thousands of addresses.
async fn connect_to(addresses: &[SocketAddr], shares: &Shares, host: DeviceId, is_wide: bool) -> io::Result<TcpStream> {
    let mut tried = Err(io::ErrorKind::AddrNotAvailable.into());
    for (at, address) in addresses.iter().enumerate() {
        if at > 0 && shares.begin(host, Instant::now()).is_none() {
            break;
        }
        tried = connect_socket(*address, is_wide).await;
        if tried.is_ok() {
            break;
        }
    }
    tried
}

async fn connect_socket(address: SocketAddr, is_wide: bool) -> io::Result<TcpStream> {
    let socket = if address.is_ipv4() { TcpSocket::new_v4()? } else { TcpSocket::new_v6()? };
    if !is_wide {
        // Before it connects, so that the window fits.
        socket.set_recv_buffer_size(NARROW_BYTES)?;
    }
    socket.connect(address).await
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::IpAddr;
    use tokio::io::AsyncReadExt as _;

    /// What a relay at this port has that knows one device.
    fn carrying(folder: &Path, port: u16) -> impl Fn() -> Carrying {
        let path = folder.join("devices.toml");
        std::fs::write(&path, format!("[devices]\n{} = \"{}\"\n", "01".repeat(20), "09".repeat(32))).unwrap();
        move || {
            let devices = Arc::new(Devices::open(&path).unwrap());
            Carrying {
                server: Server::new(ServerConfig::new(devices.clone())),
                devices,
                allowed: Allowed::default(),
                port,
                lookups: Lookups::new(1, 1),
                connections: Places::new(1, 1),
                shares: Shares::new(ShareLimits::default()),
                refusals: Refusals::default(),
                counters: Arc::default(),
            }
        }
    }

    #[tokio::test]
    async fn a_device_gets_to_public_addresses_and_to_those_that_are_listed() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let here = format!("tcp:{}", listener.local_addr().unwrap());
        let none = Allowed::default();
        let folder = tempfile::tempdir().unwrap();
        let carrying = carrying(folder.path(), listener.local_addr().unwrap().port() ^ 1);
        let connect = async |service: &str, allowed: &Allowed| {
            connect(service, &Carrying { allowed: allowed.clone(), ..carrying() }, DeviceId([1; 20]), true).await
        };
        assert_eq!(connect(&here, &none).await.unwrap_err(), codes::FORBIDDEN);
        assert_eq!(connect("tcp:[::ffff:127.0.0.1]:1", &none).await.unwrap_err(), codes::FORBIDDEN);
        assert_eq!(connect("tcp:10.0.0.1:22", &none).await.unwrap_err(), codes::FORBIDDEN);
        let listed = Allowed { addresses: [IpAddr::from([127, 0, 0, 1]).into()].into(), ..none.clone() };
        assert!(connect(&here, &listed).await.is_ok());
        assert_eq!(connect("tcp:127.0.0.2:1", &listed).await.unwrap_err(), codes::FORBIDDEN);
        assert_eq!(connect("tcp:127.0.0.1:1", &listed).await.unwrap_err(), codes::UNREACHABLE);
        for malformed in ["", "udp:127.0.0.1:1", "tcp:127.0.0.1", "tcp::1", "tcp:127.0.0.1:99999", "tcp:x:"] {
            assert_eq!(connect(malformed, &listed).await.unwrap_err(), codes::MALFORMED, "{malformed}");
        }
    }

    #[test]
    fn a_neighbour_with_a_public_address_is_in_the_relays_network() {
        let ip = |text: &str| text.parse::<IpAddr>().unwrap();
        let here = Here::of([(ip("2a02:2454::5"), 64), (ip("93.184.216.5"), 29)]);
        let at = |address: &str| SocketAddr::new(ip(address), 443);
        for (address, may) in [
            ("2a02:2454::5", false),
            ("2a02:2454::17", false),
            ("2a02:2454:0:1::17", true),
            ("93.184.216.5", false),
            ("93.184.216.7", false),
            ("::ffff:93.184.216.7", false),
            ("93.184.216.8", true),
        ] {
            assert_eq!(Allowed::default().allows(at(address), &here, Some(4669)), may, "{address}");
            let listed = Allowed { addresses: ["2a02:2454::/64".parse().unwrap()].into(), ..Allowed::default() };
            assert_eq!(
                listed.allows(at(address), &here, Some(4669)),
                may || address.starts_with("2a02:2454::"),
                "{address}"
            );
        }
        assert!(look().unwrap().is_near(ip("127.9.9.9")), "loopback's");
    }

    #[test]
    fn no_device_gets_to_port_25_or_to_the_relay_itself_whatever_is_listed() {
        let here = Here::default().known_as(&[IpAddr::from([192, 0, 2, 5])]);
        let any = Allowed { any: true, ..Allowed::default() };
        let mail = Allowed { ports: [25].into(), ..any.clone() };
        for (to, by_default, with_any, with_mail) in [
            ("93.184.216.8:25", false, false, true),
            ("93.184.216.8:587", true, true, true),
            ("[2606:2800::8]:25", false, false, true),
            ("192.0.2.5:4669", false, false, false),
            ("127.0.0.1:4669", false, false, false),
            ("[::ffff:127.0.0.1]:4669", false, false, false),
            ("0.0.0.0:4669", false, false, false),
            ("[::]:4669", false, false, false),
            ("[::ffff:0.0.0.0]:4669", false, false, false),
            ("127.0.0.1:4670", false, true, true),
            ("93.184.216.8:4669", true, true, true),
        ] {
            let to = to.parse().unwrap();
            let may = [&Allowed::default(), &any, &mail].map(|allowed| allowed.allows(to, &here, Some(4669)));
            assert_eq!(may, [by_default, with_any, with_mail], "{to}");
        }
    }

    #[tokio::test]
    async fn a_device_is_shut_out_at_the_second_look_or_when_the_operator_says_so() {
        let folder = tempfile::tempdir().unwrap();
        let (path, carrying) = (folder.path().join("devices.toml"), carrying(folder.path(), 1)());
        let (devices, whole) = (&carrying.devices, std::fs::read_to_string(&path).unwrap());
        let write = async |text: &str| {
            // Another file each time, as by an editor: what is seen does not hang on the clock's steps.
            std::fs::write(path.with_extension("new"), text).unwrap();
            std::fs::rename(path.with_extension("new"), &path).unwrap();
            devices.look().await;
        };
        let (host, mut revocation) = (DeviceId([1; 20]), Revocation::new(devices));
        write("").await;
        assert_eq!(revocation.gone(devices, false), [], "an editor may have emptied it");
        write(&whole).await;
        assert_eq!(revocation.gone(devices, false), []);
        write("").await;
        assert_eq!(revocation.gone(devices, false), []);
        assert_eq!(revocation.gone(devices, false), [host]);
        assert_eq!(revocation.gone(devices, false), [], "once");
        write(&whole).await;
        assert_eq!(revocation.gone(devices, true), []);
        write(&whole.replace("0909", "0808")).await;
        assert_eq!(revocation.gone(devices, true), [host], "it has another key");
        let only = |networks: &str| format!("{whole}\n[only]\n{} = [{networks}]\n", "01".repeat(20));
        write(&whole).await;
        assert_eq!(revocation.gone(devices, true), [host]);
        for (networks, gone) in [
            ("\"10.0.0.0/8\", \"192.0.2.1\"", true),
            ("\"192.0.2.1\", \"10.0.0.0/8\", \"192.0.2.2\"", false),
            ("\"192.0.2.1\"", true),
        ] {
            write(&only(networks)).await;
            assert_eq!(!revocation.gone(devices, true).is_empty(), gone, "{networks}");
        }
        write(&whole).await;
        assert_eq!(revocation.gone(devices, true), [], "it may go to more");
    }

    #[test]
    fn what_a_device_is_refused_is_written_down_so_often_a_minute() {
        let (refusals, now) = (Refusals::default(), Instant::now());
        let [one, two] = [1, 2].map(|n| DeviceId([n; 20]));
        let written = (0..1_000).filter(|_| refusals.are_written(one, now)).count();
        assert_eq!(written, Refusals::OF_DEVICE as usize);
        assert!(refusals.are_written(two, now), "another's are");
        assert!(refusals.are_written(one, now + Duration::from_secs(60)));
    }

    #[tokio::test]
    async fn a_device_with_networks_of_its_own_goes_nowhere_else() {
        let folder = tempfile::tempdir().unwrap();
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let carrying = carrying(folder.path(), 1);
        let path = folder.path().join("devices.toml");
        let listed = std::fs::read_to_string(&path).unwrap();
        for (only, may) in [("127.0.0.0/8", true), ("10.9.2.0/24", false)] {
            std::fs::write(&path, format!("{listed}[only]\n{} = [\"{only}\"]\n", "01".repeat(20))).unwrap();
            let carrying = Carrying { allowed: Allowed { any: true, ..Allowed::default() }, ..carrying() };
            let to = format!("tcp:{}", listener.local_addr().unwrap());
            let connected = connect(&to, &carrying, DeviceId([1; 20]), true).await;
            assert_eq!(connected.map(drop).err(), (!may).then_some(codes::FORBIDDEN), "{only}");
        }
        std::fs::write(&path, format!("[only]\n{} = [\"everywhere\"]\n", "01".repeat(20))).unwrap();
        let error = Devices::open(&path).unwrap_err().to_string();
        assert!(error.contains("`only` has `everywhere`: an address is wanted"), "{error}");
    }

    /// A name of a device's own may have thousands.
    #[tokio::test]
    async fn each_address_of_a_name_counts_as_a_connection_that_a_device_begins() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        // Nobody listens at the first ones.
        let addresses: Vec<_> = (0..9).map(|at| SocketAddr::from(([127, 0, 0, 9 - at], port))).collect();
        let host = DeviceId([1; 20]);
        for (begun_per_minute, is_reached) in [(0, true), (9, true), (5, false)] {
            let shares = Shares::new(ShareLimits { begun_per_minute, rate: None });
            let _begun = shares.begin(host, Instant::now()).unwrap();
            let connection = connect_to(&addresses, &shares, host, true).await;
            assert_eq!(connection.is_ok(), is_reached, "{begun_per_minute}");
            assert_eq!(shares.begin(host, Instant::now()).is_none(), begun_per_minute > 0, "all of it is used up");
        }
    }

    #[tokio::test]
    async fn a_device_has_so_many_places_and_leaves_others_theirs() {
        let places = Places::new(3, 2);
        let [one, two] = [1, 2].map(|id| DeviceId([id; 20]));
        let take = async |host| timeout(Duration::from_millis(1), places.take(host)).await.ok().and_then(Result::ok);
        let (first, second) = (take(one).await, take(one).await);
        assert!(first.is_some() && second.is_some() && take(one).await.is_none());
        let other = take(two).await;
        assert!(other.is_some() && take(two).await.is_none(), "all are taken");
        drop(first);
        assert!(take(two).await.is_some());
        drop((second, other));
        let (first, second) = (take(one).await, take(one).await);
        assert!(first.is_some() && second.is_some() && take(one).await.is_none());
        assert_eq!(places.devices.lock().len(), 1, "who has none is forgotten");
    }

    #[tokio::test]
    async fn the_kernel_keeps_little_for_what_a_device_has_many_of() {
        let places = Places::new(100, 100);
        let mut held = Vec::new();
        for number in 0..2 * WIDE {
            held.push(places.take(DeviceId([1; 20])).await.unwrap());
            assert_eq!(held.last().unwrap().is_wide, number < WIDE);
        }
        assert!(places.take(DeviceId([2; 20])).await.unwrap().is_wide, "another device has its own");
        let unread = unread_of_narrow().await;
        assert!(unread <= 2 * NARROW_BYTES as usize, "{unread} bytes lie in the kernel");
    }

    /// How much of what a destination sends lies in the kernel, when a reader who had his window grow takes nothing more.
    async fn unread_of_narrow() -> usize {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let mut reader = connect_socket(listener.local_addr().unwrap(), false).await.unwrap();
        let (mut writer, _) = listener.accept().await.unwrap();
        let writing = tokio::spawn(async move {
            let bytes = vec![0; 1 << 20];
            while writer.write_all(&bytes).await.is_ok() {}
        });
        let mut buffer = vec![0; 32 << 20];
        for _ in 0..64 {
            reader.read_exact(&mut buffer[..1 << 20]).await.unwrap();
        }
        let (mut before, mut unread) = (0, 1);
        while unread > before {
            tokio::time::sleep(Duration::from_millis(100)).await;
            (before, unread) = (unread, reader.peek(&mut buffer).await.unwrap());
        }
        writing.abort();
        unread
    }

    /// The certificate that a device is shown which takes any of these.
    fn shown(tls: &rustls::ServerConfig, any: [&CertificateDer<'static>; 2]) -> CertificateDer<'static> {
        let mut roots = rustls::RootCertStore::empty();
        any.into_iter().for_each(|certificate| roots.add(certificate.clone()).unwrap());
        let device = hoop_carrier::device_tls(roots).unwrap();
        let mut device = rustls::ClientConnection::new(Arc::new(device), "localhost".try_into().unwrap()).unwrap();
        let mut relay = rustls::ServerConnection::new(Arc::new(tls.clone())).unwrap();
        let (mut there, mut back) = (Vec::new(), Vec::new());
        device.write_tls(&mut there).unwrap();
        relay.read_tls(&mut &there[..]).unwrap();
        relay.process_new_packets().unwrap();
        while relay.wants_write() {
            relay.write_tls(&mut back).unwrap();
        }
        device.read_tls(&mut &back[..]).unwrap();
        device.process_new_packets().unwrap();
        device.peer_certificates().expect("it was shown one")[0].clone().into_owned()
    }

    #[test]
    fn a_renewed_certificate_is_shown_once_its_key_is_there() {
        let folder = tempfile::tempdir().unwrap();
        let (certificate, key) = (folder.path().join("cert.pem"), folder.path().join("key.pem"));
        let make = || rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).unwrap();
        let (first, second) = (make(), make());
        let shown = |tls| shown(tls, [first.cert.der(), second.cert.der()]);
        std::fs::write(&certificate, first.cert.pem()).unwrap();
        std::fs::write(&key, first.signing_key.serialize_pem()).unwrap();
        let (files, tls) = Renewed::open(&certificate, &key, super::tls).unwrap();
        assert_eq!(shown(&tls), *first.cert.der());
        // A name is moved to another file, as is done for a renewal: its length may be the same.
        let renew = |path: &Path, pem: String| {
            let new = folder.path().join("new.pem");
            std::fs::write(&new, pem).unwrap();
            std::fs::rename(new, path).unwrap();
            files.look()
        };
        assert!(renew(&certificate, second.cert.pem()).is_err());
        assert_eq!(shown(&tls), *first.cert.der(), "its key is not there yet");
        assert!(renew(&key, second.signing_key.serialize_pem()).is_ok());
        assert_eq!(shown(&tls), *second.cert.der());
        assert!(renew(&certificate, String::new()).is_err());
        assert_eq!(shown(&tls), *second.cert.der(), "a file that holds none takes none away");
    }

    #[test]
    fn a_certificate_of_no_use_is_doubted_and_a_wrong_pair_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        let make = |name: &str, change: &dyn Fn(&mut rcgen::CertificateParams)| {
            let mut params = rcgen::CertificateParams::new(vec!["localhost".to_owned()]).unwrap();
            change(&mut params);
            let key = rcgen::KeyPair::generate().unwrap();
            let signed = params.self_signed(&key).unwrap();
            std::fs::write(path(name), signed.pem()).unwrap();
            std::fs::write(path(&format!("{name}.key")), key.serialize_pem()).unwrap();
            doubt(&[signed.der().clone()])
        };
        assert_eq!(make("good", &|_| {}), None);
        assert_eq!(make("other", &|_| {}), None);
        let old = make("old", &|params| {
            (params.not_before, params.not_after) =
                (rcgen::date_time_ymd(2019, 1, 1), rcgen::date_time_ymd(2020, 1, 1));
        });
        assert_eq!(old.unwrap(), "its certificate has expired");
        let authority = make("ca", &|params| params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained));
        assert!(authority.unwrap().contains("CA:TRUE"));
        let wrong = |certificate, key| tls(&path(certificate), &path(key)).unwrap_err().to_string();
        assert!(tls(&path("good"), &path("good.key")).is_ok());
        assert!(
            wrong("good.key", "good").contains("good.key: holds no certificate (PEM); --cert and --key may be swapped")
        );
        assert!(wrong("good", "other").contains("other: holds no private key (PEM); --cert and --key may be swapped"));
        assert!(wrong("good", "other.key").contains("is not the key of the first certificate in"));
    }
}
