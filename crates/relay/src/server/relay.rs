//! The server's end of what devices open: [`Relay`].

use super::access_log::{AccessLog, Kind};
use super::cache::Cache;
use super::certificate::{reset_key, tls};
use super::config::{PlainListen, RelayConfig, RelayError};
use super::egress::{Egress, LOOKUPS, LOOKUPS_OF_DEVICE};
use super::exchange;
use super::lookups::Lookups;
use super::objects::ObjectStore;
use super::origins::Origins;
use super::places::Places;
use super::rate_limit::Shares;
use super::refusals::Refusals;
use super::reserve::Reserve;
use super::revocation::Revocation;
use super::tunnel;
use super::upload;
use super::uploads::{Stores, UploadStore};
use crate::codes;
use crate::introduction::Devices;
use crate::wire::{HTTP, UPLOAD, resumed, resumed_upload};
use hoop_carrier::Listener;
use hoop_endpoint::{DeviceId, FlowStream, Server, ServerConfig, ServerLimits};
use hoop_http::tls::{Renewed, client_config};
use hoop_http::{Clock, apart};
use std::collections::BTreeSet;
use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinSet;

/// A device that is away for longer finds its connections ended: few servers wait so long for the other half, and a program that was killed never comes back.
pub const OFFLINE_MAX: hoop_units::Duration = hoop_units::Duration::from_secs(12 * 3_600);

/// How often it is looked what was left for too long.
const FORGET_EVERY: Duration = Duration::from_secs(60);

/// How often it is looked who is shut out.
const REVOKE_EVERY: Duration = Duration::from_secs(5);

/// Takes devices' flows, and connects each to where its service says.
#[derive(Debug)]
pub struct Relay {
    listener: Listener,
    plain_address: Option<SocketAddr>,
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
    #[error("the devices' file is not taken; certificates are looked at all the same")]
    Devices,
    /// A certificate or its key, or whom it believes: what held holds.
    #[error("a certificate is not taken; the devices' file is")]
    Certificate,
    /// Both.
    #[error("neither the devices' file nor a certificate is taken")]
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
    egress: Arc<Egress>,
    origins: Arc<Origins>,
    /// The files of authorities that it believes.
    ca: Vec<PathBuf>,
    stores: Option<Stores>,
    cache: Option<Arc<Cache>>,
    access_log: AccessLog,
}

impl Relay {
    /// Listens; within a tokio runtime.
    ///
    /// # Errors
    /// If a file is missing or malformed, or a socket cannot be had.
    pub async fn bind(config: &RelayConfig) -> Result<Self, RelayError> {
        let devices = Arc::new(Devices::open(&config.devices)?);
        let defaults = ServerLimits::default();
        let flows_of_device = defaults.flows_of_device;
        let files = Places::new((hoop_carrier::descriptors() / 5).min(defaults.flows), flows_of_device);
        let reserve = config.store.as_ref().map(|store| Reserve::of(&store.folder));
        let stores = open_stores(config, reserve.as_ref(), files.clone(), &devices)?;
        let cache = open_cache(config, reserve, files, &devices)?;
        let (certificate, tls) = Renewed::open(&config.certificate, &config.key, tls)?;
        let fail = |address| move |source| hoop_http::ServeError { address, source };
        let resets = reset_key(&config.key, config.listen)?;
        let mut listener = Listener::bind_again(config.listen, &tls, resets).await.map_err(fail(config.listen))?;
        let mut own_ports = BTreeSet::from([listener.local_address().port()]);
        let plain_address = match &config.plain_listen {
            Some(PlainListen { address, proxies }) => {
                let listened = listener.listen_behind(*address, proxies.clone()).await;
                let listened = listened.map_err(fail(*address))?;
                own_ports.insert(listened.port());
                Some(listened)
            }
            None => None,
        };
        let metrics = hoop_http::metrics::bind(config.admin).await?;
        // Half of the descriptors are for destinations, and a fifth is for files; a flow that waits for its device may hold some, in turns.
        let connections = Places::new((hoop_carrier::descriptors() / 2).min(defaults.flows), flows_of_device);
        // The listener takes a quarter of them: before it is full, strangers make way. Carriers of QUIC take none.
        let websockets = defaults.websockets.min(hoop_carrier::descriptors() / 5);
        let carriers_of_device = defaults.carriers_of_device.min(websockets / 4);
        let limits = ServerLimits { websockets, carriers_of_device, offline: OFFLINE_MAX, ..defaults };
        let server = Server::new(ServerConfig { limits, ..ServerConfig::new(devices.clone()) });
        let egress = Arc::new(Egress {
            devices,
            allowed: config.allowed.clone(),
            own_ports,
            lookups: Lookups::new(LOOKUPS, LOOKUPS_OF_DEVICE),
            connections,
            shares: Shares::new(config.shares),
            refusals: Refusals::default(),
            counters: Arc::default(),
        });
        let origins = Arc::new(Origins::new(egress.clone(), client_config(&config.ca)?));
        let access_log = AccessLog::new(config.access_log);
        let ca = config.ca.clone();
        let carrying = Arc::new(Carrying { server, origins, ca, egress, stores, cache, access_log });
        Ok(Self { listener, plain_address, certificate, metrics, reload: mpsc::channel(1), carrying })
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.listener.local_address()
    }

    /// Where it takes WebSockets from web servers in front.
    pub const fn plain_address(&self) -> Option<SocketAddr> {
        self.plain_address
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
        let Self { listener, plain_address: _, certificate, metrics, reload: (_again, reload), carrying } = self;
        let mut tasks = JoinSet::new();
        let (_stop, stopped) = hoop_http::shutdown();
        if let Some(cache) = carrying.cache.clone() {
            let stopped = stopped.clone();
            tasks.spawn(async move { hoop_http::keep_time(cache.clock(), stopped).await });
        }
        if let Some(metrics) = metrics {
            tasks.spawn(hoop_http::metrics::serve(metrics, text_of(carrying.clone()), stopped.clone()));
        }
        // Dropped before the tasks: what they carry is not given up, and goes on at the next relay as far as that can.
        let _shuts_down = ShutsDown(carrying.clone());
        // A file may take its time, and carriers wait for none.
        tasks.spawn(certificate.clone().follow(stopped));
        tasks.spawn(follow_files(certificate, reload, carrying.clone()));
        loop {
            let carrier = tokio::select! {
                carrier = listener.accept() => carrier,
                Some(flow) = carrying.server.accept() => {
                    tasks.spawn(carrying.clone().carry(flow));
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

/// Shuts the server down when it is dropped.
struct ShutsDown(Arc<Carrying>);

impl Drop for ShutsDown {
    fn drop(&mut self) {
        self.0.server.shutdown();
        if let Some(cache) = &self.0.cache {
            cache.shut_down();
            // What time it is stands on disk for the next.
            cache.clock().look(true);
        }
    }
}

/// The stores of uploads and answers, if there are to be any.
fn open_stores(
    config: &RelayConfig,
    reserve: Option<&Arc<Reserve>>,
    files: Arc<Places>,
    devices: &Devices,
) -> Result<Option<Stores>, RelayError> {
    let (Some(store), Some(reserve)) = (&config.store, reserve) else { return Ok(None) };
    let known = devices.known();
    let is_known = |device| known.contains_key(&device);
    let opened = ObjectStore::open(store, reserve.clone(), files, is_known).and_then(|answers| {
        let uploads = UploadStore::open(&store.folder, &answers, is_known)?;
        Ok(Some(Stores { answers, uploads }))
    });
    opened.map_err(|source| RelayError::Store { path: store.folder.clone(), source })
}

/// The cache, unless it is switched off.
fn open_cache(
    config: &RelayConfig,
    reserve: Option<Arc<Reserve>>,
    files: Arc<Places>,
    devices: &Devices,
) -> Result<Option<Arc<Cache>>, RelayError> {
    let folder = config.store.as_ref().map(|store| store.folder.join("cache"));
    let reserve = folder.as_deref().zip(reserve).map(|(folder, reserve)| reserve.here(folder));
    let known = devices.known();
    let is_known = |device| known.contains_key(&device);
    let clock = match &config.store {
        Some(store) => {
            let path = store.folder.join("clock");
            Clock::system().keep(&path).map_err(|source| RelayError::Store { path, source })?
        }
        None => Clock::system().judge(),
    };
    let opened = Cache::open(config.cache, folder.as_deref().zip(reserve), &config.allowed, files, clock, is_known);
    opened.map_err(|source| RelayError::Store { path: folder.unwrap_or_default(), source })
}

/// Takes over what the files say: who is known, and, if the operator asks for it, what clients are shown. One look at a time, each on a thread of its own.
async fn follow_files(certificate: Arc<Renewed>, mut reload: mpsc::Receiver<Answer>, carrying: Arc<Carrying>) {
    let mut forget = tokio::time::interval(FORGET_EVERY);
    let mut revoke = tokio::time::interval(REVOKE_EVERY);
    let devices = &carrying.egress.devices;
    let mut revocation = Revocation::new(devices);
    loop {
        tokio::select! {
            _ = forget.tick() => carrying.forget_left(Vec::new()),
            _ = revoke.tick() => {
                devices.look().await;
                carrying.revoke(revocation.gone(devices, false));
            }
            Some(answer) = reload.recv() => {
                let shown = certificate.look_apart();
                devices.look().await;
                carrying.revoke(revocation.gone(devices, true));
                let is_shown = shown.await.is_ok() & carrying.trust().await;
                tracing::info!(devices = devices.known().len(), "devices and certificate were looked at again");
                // Who has asked may have gone.
                let _ = answer.send(match (devices.are_taken(), is_shown) {
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
    move || {
        let stored = carrying.stores.as_ref().map(|stores| stores.answers.usage());
        let known = carrying.egress.devices.known().len();
        let cache = carrying.cache.as_ref().map(|cache| cache.figures());
        std::future::ready(Ok(carrying.egress.counters.text(&carrying.server, known, stored, cache)))
    }
}

impl Carrying {
    /// Carries a flow to its end.
    async fn carry(self: Arc<Self>, flow: FlowStream) {
        let (origins, stores, cache) = (&self.origins, self.stores.as_ref(), self.cache.as_ref());
        let log = self.access_log.clone();
        match flow.service() {
            service if service == HTTP || resumed(service).is_some() => {
                log.note(flow, Kind::Exchange, |flow| exchange::carry(flow, origins, stores, cache)).await;
            }
            service if service == UPLOAD || resumed_upload(service).is_some() => {
                log.note(flow, Kind::Upload, |flow| upload::carry(flow, origins, stores, cache)).await;
            }
            _ => log.note(flow, Kind::Connection, |flow| tunnel::carry(flow, &self.egress)).await,
        }
    }

    /// Reads again whom it believes. False: it cannot, and believes those whom it did.
    async fn trust(&self) -> bool {
        let ca = self.ca.clone();
        match apart(move || client_config(&ca)).await.and_then(|trust| trust.map_err(io::Error::other)) {
            Ok(trust) => {
                self.origins.trust(trust);
                true
            }
            Err(error) => {
                tracing::warn!(%error, "authorities are not taken");
                false
            }
        }
    }

    /// Removes what an earlier relay has left of these devices, and what has been left for too long.
    fn forget_left(&self, devices: Vec<DeviceId>) {
        let (stores, cache) = (self.stores.clone(), self.cache.clone());
        tokio::task::spawn_blocking(move || {
            if let Some(Stores { answers, uploads }) = stores {
                answers.forget(|device| devices.contains(&device));
                uploads.forget(|device| devices.contains(&device));
            }
            cache.inspect(|cache| cache.forget(|device| devices.contains(&device)));
        });
    }

    /// Ends what devices have here that were shut out.
    fn revoke(&self, devices: Vec<DeviceId>) {
        if !devices.is_empty() {
            self.forget_left(devices.clone());
        }
        for device in devices {
            let flows = self.server.revoke(device, codes::REVOKED);
            self.origins.forget(device);
            self.egress.counters.revoked(flows);
            tracing::info!(target: "audit", act = "shut-out", device = hex::encode(device.0), flows, "a device was shut out");
        }
    }
}
