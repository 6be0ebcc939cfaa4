//! A device's carriers to its server, kept while flows want them: [`Link`].

use super::netlink::Changes;
use super::upkeep::{Action, End, Event, Upkeep};
use crate::diagnostics::{Trouble, cause};
use crate::introduction::{Introduction, IntroductionError};
use hoop_carrier::{
    BoundBy, Carrier, Dialer, Kind, Local, Pending, QuicDevice, QuicOptions, Refused, SILENCE, ServerAddress,
    WebSocketDevice, WebSocketOptions, device_tls, front_tls, is_answer,
};
use hoop_endpoint::{CarrierId, Device, DeviceConfig, Use, ended};
use hoop_units::Timestamp;
use parking_lot::Mutex;
use ring::rand::{SecureRandom as _, SystemRandom};
use std::collections::BTreeSet;
use std::io;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{Instant, Interval, interval, sleep_until, timeout};

/// How often an idle carrier sends a keep-alive. Routers forget a UDP flow after 30 s, though RFC 4787 §4.3 asks for two minutes. It also detects a dead carrier, and costs less
/// than to dial again.
const KEEP_ALIVE: Duration = Duration::from_secs(20);

/// So often it is looked whether any flow needs the carrier.
const NEEDED_EVERY: Duration = Duration::from_secs(30);

/// Somebody who waits for so long wants to know what for. QUIC cannot tell a port where nobody listens from a slow network, and goes on trying; TCP can.
const EXPLAIN_AFTER: Duration = Duration::from_secs(2);

/// How long TCP has to find that out.
const EXPLAIN_MAX: Duration = Duration::from_secs(3);

/// How long the relay has to hear that connections have ended: without a network it finds that out by itself, much later.
const LEAVE_MAX: Duration = Duration::from_secs(2);

/// How often it is looked whether it has.
const LEAVE_TICK: Duration = Duration::from_millis(10);

/// A way out of the machine.
#[derive(Clone, Debug)]
pub struct NetworkPath {
    /// Its name, which flows prefer or demand and statistics count under: an interface, mostly.
    pub name: String,
    /// Where its carriers leave from.
    pub local: Local,
    /// Whether it carries flows that another could carry.
    pub carrier_use: Use,
}

impl NetworkPath {
    /// The way that the system finds.
    pub fn any() -> Self {
        Self { name: "any".into(), local: Local::default(), carrier_use: Use::Normal }
    }

    /// One interface.
    pub fn interface(name: &str) -> Self {
        let local = Local { interface: Some(name.to_owned()), ..Local::default() };
        Self { name: name.to_owned(), local, carrier_use: Use::Normal }
    }
}

/// A link cannot begin.
#[derive(Debug, thiserror::Error)]
pub enum LinkError {
    /// What the device was told of its server.
    #[error(transparent)]
    Introduction(#[from] IntroductionError),
    /// TLS.
    #[error("TLS: {0}")]
    Tls(#[from] rustls::Error),
    /// An interface.
    #[error("there is no network interface {0}")]
    NoInterface(String),
    /// A socket.
    #[error("way {way}: {source}")]
    NetworkPath {
        /// Which.
        way: String,
        /// Why.
        source: io::Error,
    },
}

/// Since when no way has led to the server; None: one does.
#[derive(Debug)]
struct Absence {
    ways: Mutex<usize>,
    since: watch::Sender<Option<Instant>>,
}

impl Absence {
    /// A way leads there now, or no longer.
    fn change(&self, is_there: bool) {
        let mut ways = self.ways.lock();
        *ways = if is_there { *ways + 1 } else { ways.saturating_sub(1) };
        let since = (*ways == 0).then(Instant::now);
        self.since.send_if_modified(|was| {
            let is_new = was.is_some() != since.is_some();
            if is_new {
                *was = since;
            }
            is_new
        });
    }
}

/// A device's end towards its server, with carriers over each of its ways. Each is dialled when a flow wants one, QUIC and WebSocket against each other; dialled again when it is
/// gone or silent; and told when the machine's networks change. Without flows nothing is sent. All ends when this is dropped.
#[derive(Debug)]
pub struct Link {
    device: Device,
    server: Arc<ServerAddress>,
    dialers: Vec<Arc<Dialer>>,
    troubles: watch::Receiver<Option<Trouble>>,
    reached: Arc<AtomicBool>,
    absence: watch::Receiver<Option<Instant>>,
    _keepers: JoinSet<()>,
}

impl Link {
    /// Begins, in a tokio runtime. Nothing is sent until a flow is opened.
    ///
    /// # Errors
    /// If the introduction is malformed, or a way cannot be had.
    pub fn start(introduction: &Introduction, ways: Vec<NetworkPath>) -> Result<Self, LinkError> {
        let device = Device::new(DeviceConfig::new(introduction.host()?, introduction.key()?));
        let (server, tls) = (Arc::new(introduction.server()?), device_tls(introduction.roots()?)?);
        let quic_options = QuicOptions { keep_alive: Some(KEEP_ALIVE), ..QuicOptions::device() };
        let mut websocket_options = WebSocketOptions { keep_alive: Some(KEEP_ALIVE), ..WebSocketOptions::default() };
        let mut websocket_tls = tls.clone();
        if let Some(front) = introduction.front()? {
            websocket_options = WebSocketOptions { path: front.path, bound_by: BoundBy::Nonces, ..websocket_options };
            websocket_tls = front_tls(introduction.front_roots()?)?;
        }
        let (mut keepers, mut dialers) = (JoinSet::new(), Vec::new());
        let ((trouble, troubles), reached) = (watch::channel(None), Arc::new(AtomicBool::new(false)));
        let (since, absent) = watch::channel(Some(Instant::now()));
        let absence = Arc::new(Absence { ways: Mutex::new(0), since });
        for way in ways {
            if let Some(name) = way.local.interface.as_deref().filter(|name| !is_interface(name)) {
                return Err(LinkError::NoInterface(name.to_owned()));
            }
            let fail = |source| LinkError::NetworkPath { way: way.name.clone(), source };
            let quic = QuicDevice::new(way.local.clone(), &tls, &quic_options).map_err(fail)?;
            let websocket = || WebSocketDevice::new(way.local.clone(), &websocket_tls, websocket_options.clone(), None);
            let dialer = Arc::new(Dialer::new(Some(quic), Some(websocket())));
            dialers.push(dialer.clone());
            let keeper = Keeper {
                // From before the first flow.
                wants: device.wants(),
                device: device.clone(),
                dialer,
                explainer: Arc::new(Dialer::new(None, Some(websocket()))),
                trouble: trouble.clone(),
                reached: reached.clone(),
                absence: absence.clone(),
                server: server.clone(),
                changes: Some(Changes::listen().map_err(fail)?),
                way: Arc::new(way),
                upkeep: Upkeep::default(),
                work: Work::default(),
                origin: Instant::now(),
            };
            keepers.spawn(keeper.run());
        }
        Ok(Self { device, server, dialers, troubles, reached, absence: absent, _keepers: keepers })
    }

    /// Where flows are opened.
    pub const fn device(&self) -> &Device {
        &self.device
    }

    /// Where the server is, and what stands in front of it, as far as that is known: its addresses, or those that names had when they were looked up last.
    pub fn server_addresses(&self) -> BTreeSet<IpAddr> {
        let found = self.dialers.iter().flat_map(|dialer| dialer.found_addresses());
        self.server.addresses.iter().copied().chain(found).collect()
    }

    /// Why the server is not reached: the last cause of any way. It stays when the server is reached after all.
    pub fn troubles(&self) -> watch::Receiver<Option<Trouble>> {
        self.troubles.clone()
    }

    /// Since when there has been no carrier that is not silent; None: there is one. Without flows there is none.
    pub(crate) fn absence(&self) -> watch::Receiver<Option<Instant>> {
        self.absence.clone()
    }

    /// Gives up what is under way, and waits until the relay knows, if it can be reached.
    pub async fn give_up(&self) {
        self.device.reset_all(ended::GIVEN_UP);
        self.leave().await;
    }

    /// Waits until the relay knows what has ended, if it can be reached.
    pub(crate) async fn leave(&self) {
        let told = async {
            while self.device.flows() > 0 {
                tokio::time::sleep(LEAVE_TICK).await;
            }
        };
        let _ = timeout(LEAVE_MAX, told).await;
    }

    /// Whether any carrier has ever come up.
    pub fn was_reached(&self) -> bool {
        self.reached.load(Ordering::Relaxed)
    }
}

fn is_interface(name: &str) -> bool {
    nix::net::if_::if_nametoindex(name).is_ok()
}

/// Who keeps the carriers of one way: gives [`Upkeep`] what has happened, and does what it says.
struct Keeper {
    upkeep: Upkeep,
    work: Work,
    device: Device,
    wants: watch::Receiver<u64>,
    dialer: Arc<Dialer>,
    /// Finds out why dialling takes so long.
    explainer: Arc<Dialer>,
    trouble: watch::Sender<Option<Trouble>>,
    reached: Arc<AtomicBool>,
    absence: Arc<Absence>,
    server: Arc<ServerAddress>,
    /// None: the kernel tells no more; what flows want is left.
    changes: Option<Changes>,
    way: Arc<NetworkPath>,
    /// The origin of its timestamps.
    origin: Instant,
}

/// What is under way. All of it goes on through whatever happens beside.
#[derive(Default)]
struct Work {
    here: Option<Here>,
    dialling: Option<Dialling>,
    /// It ends when the server can be reached again: from when a carrier is dialled until one is up.
    reachability_probe: Option<Pending<'static, ()>>,
}

/// A carrier that is being dialled.
struct Dialling {
    carrier: Pending<'static, io::Result<Arc<dyn Carrier>>>,
    /// Why that takes long.
    explaining: Option<Pending<'static, io::Error>>,
}

/// The carrier that there is.
struct Here {
    id: CarrierId,
    carrier: Arc<dyn Carrier>,
    /// It ends when the carrier is gone. What the carrier owes counts from when it began to.
    gone: Pending<'static, io::Error>,
    /// It ends when the carrier is silent; then the silence is not asked after again.
    silent: Option<Pending<'static, ()>>,
}

/// What has happened, and what it brings.
enum Happened {
    Alone(Event),
    With(Event, io::Error),
    Up(Arc<dyn Carrier>),
    /// The device is gone.
    Over,
}

impl Keeper {
    async fn run(mut self) {
        let mut needed = interval(NEEDED_EVERY);
        loop {
            let (event, error, carrier) = match self.next(&mut needed).await {
                Happened::Alone(event) => (event, None, None),
                Happened::With(event, error) => (event, Some(error), None),
                Happened::Up(carrier) => (Event::Up, None, Some(carrier)),
                Happened::Over => return,
            };
            self.log(event, error.as_ref(), carrier.as_ref());
            let now = Timestamp::ZERO + self.origin.elapsed();
            for action in self.upkeep.handle(event, now, jitter()) {
                self.act(action, error.as_ref(), carrier.as_ref());
            }
        }
    }

    fn log(&self, event: Event, error: Option<&io::Error>, up: Option<&Arc<dyn Carrier>>) {
        let (way, here) = (self.way.name.as_str(), self.work.here.as_ref());
        let kind = up.or(here.map(|here| &here.carrier)).map(|carrier| carrier.kind());
        match event {
            Event::Up => tracing::debug!(way, ?kind, "a carrier is up"),
            Event::Silent { .. } => tracing::debug!(way, ?kind, "a carrier is silent"),
            Event::Gone { end, .. } => tracing::debug!(way, ?end, ?error, "a carrier is gone"),
            Event::NotReached { .. } => tracing::debug!(way, ?error, "the server is not reached"),
            Event::NetworkUp => tracing::debug!(way, "the network carries again"),
            _ => {}
        }
    }

    /// Waits for the next thing to happen. What has ended is taken out of the work.
    async fn next(&mut self, needed: &mut Interval) -> Happened {
        let Work { here, dialling, reachability_probe } = &mut self.work;
        let due = self.upkeep.poll_timeout().map(|due| self.origin + due.since(Timestamp::ZERO));
        let (gone, silent) = here.as_mut().map(|here| (&mut here.gone, here.silent.as_mut())).unzip();
        let dials = dialling.as_mut().map(|dialling| (&mut dialling.carrier, dialling.explaining.as_mut()));
        let (dialled, explained) = dials.unzip();
        tokio::select! {
            error = done(gone) => {
                let kind = here.take().map(|here| here.carrier.kind());
                Happened::With(Event::Gone { end: end_of(kind, &error), is_needed: self.device.is_busy() }, error)
            }
            error = done(explained.flatten()) => {
                dialling.iter_mut().for_each(|dialling| dialling.explaining = None);
                Happened::With(Event::Explained, error)
            }
            () = done(silent.flatten()) => {
                here.iter_mut().for_each(|here| here.silent = None);
                let is_quic = here.as_ref().is_some_and(|here| here.carrier.kind() == Kind::Quic);
                Happened::Alone(Event::Silent { is_quic })
            }
            wanted = self.wants.changed() => match wanted {
                Ok(()) => Happened::Alone(Event::Wanted),
                Err(_) => Happened::Over,
            },
            () = unneeded(needed, &self.device) => Happened::Alone(Event::Unneeded),
            () = changed(&mut self.changes) => Happened::Alone(Event::NetworkUp),
            () = done(reachability_probe.as_mut()) => Happened::Alone(Event::NetworkUp),
            () = until(due) => Happened::Alone(Event::Due),
            dialled = done(dialled) => {
                *dialling = None;
                match dialled {
                    Ok(carrier) => Happened::Up(carrier),
                    Err(error) => {
                        let is_silence = error.kind() == io::ErrorKind::TimedOut;
                        Happened::With(Event::NotReached { is_silence }, error)
                    }
                }
            }
        }
    }

    fn act(&mut self, action: Action, error: Option<&io::Error>, up: Option<&Arc<dyn Carrier>>) {
        let Work { here, dialling, reachability_probe } = &mut self.work;
        match action {
            Action::Dial { explains } => {
                let (dialer, explainer) = (self.dialer.clone(), self.explainer.clone());
                let (way, server) = (self.way.clone(), self.server.clone());
                let explaining = explains.then(|| Box::pin(explain(explainer, way.clone(), server.clone())) as _);
                let carrier = Box::pin(async move { dialer.dial(&way.name, &server).await });
                *dialling = Some(Dialling { carrier, explaining });
                let (dialer, server) = (self.dialer.clone(), self.server.clone());
                reachability_probe
                    .get_or_insert_with(|| Box::pin(async move { dialer.until_reachable(&server, jitter).await }));
            }
            Action::Use => {
                let Some(carrier) = up else { return };
                let id = self.device.add_carrier(carrier.clone(), self.way.carrier_use, self.way.name.as_str());
                here.replace(Here::new(id, carrier.clone())).inspect(|old| self.device.remove_carrier(old.id));
            }
            Action::Close => drop(here.take().inspect(|here| self.device.remove_carrier(here.id))),
            Action::Probe => here.iter().for_each(|here| here.carrier.probe()),
            Action::Leads(leads) => self.absence.change(leads),
            Action::Reached(reached) => self.reached.store(reached, Ordering::Relaxed),
            Action::Tell => drop(error.map(|error| self.trouble.send_replace(Some(trouble(&self.way, error))))),
            Action::QuicIsSilent => self.dialer.quic_is_silent(&self.way.name),
            Action::QuicAnswered => self.dialer.quic_answered(&self.way.name),
            Action::WebSocketIsEnded => self.dialer.websocket_is_ended(&self.way.name),
            Action::LinkIsUp => {
                let moved = self.dialer.link_is_up();
                let _ = moved.inspect_err(|error| tracing::debug!(way = self.way.name, %error, "no fresh socket"));
            }
            Action::StopProbe => *reachability_probe = None,
        }
    }
}

/// How a carrier has ended, of which kind it was.
fn end_of(kind: Option<Kind>, error: &io::Error) -> End {
    match kind {
        _ if error.get_ref().is_some_and(|error| error.is::<Refused>()) => End::ByAnother,
        Some(Kind::WebSocket) => End::ByWebSocket,
        Some(Kind::Quic) if is_answer(error) => End::ByQuic,
        Some(Kind::Quic | Kind::Memory) | None => End::Silent,
    }
}

/// Waits until no flow needs a carrier, which is looked after now and then.
async fn unneeded(needed: &mut Interval, device: &Device) {
    loop {
        needed.tick().await;
        if !device.is_busy() {
            return;
        }
    }
}

/// Waits until the machine's networks change.
async fn changed(changes: &mut Option<Changes>) {
    if let Some(listening) = changes {
        if listening.next().await.is_ok() {
            return;
        }
        *changes = None;
    }
    std::future::pending().await
}

fn trouble(way: &NetworkPath, error: &io::Error) -> Trouble {
    Trouble { way: way.name.clone(), cause: cause(error) }
}

/// Why the server is not reached, once that takes long.
async fn explain(explainer: Arc<Dialer>, way: Arc<NetworkPath>, server: Arc<ServerAddress>) -> io::Error {
    tokio::time::sleep(EXPLAIN_AFTER).await;
    match timeout(EXPLAIN_MAX, explainer.dial(&way.name, &server)).await {
        Ok(Err(error)) => error,
        Err(_) => io::ErrorKind::TimedOut.into(),
        // There is nothing to explain.
        Ok(Ok(_)) => std::future::pending().await,
    }
}

/// Devices that lost their server together do not come back together.
fn jitter() -> u32 {
    let mut jitter = [0; 4];
    // Without dice they do.
    let _ = SystemRandom::new().fill(&mut jitter);
    u32::from_ne_bytes(jitter)
}

async fn until(due: Option<Instant>) {
    match due {
        Some(at) => sleep_until(at).await,
        None => std::future::pending().await,
    }
}

/// What a future gives, if there is one.
async fn done<T>(work: Option<&mut Pending<'_, T>>) -> T {
    match work {
        Some(work) => work.await,
        None => std::future::pending().await,
    }
}

impl Here {
    fn new(id: CarrierId, carrier: Arc<dyn Carrier>) -> Self {
        let (ends, falls_silent) = (carrier.clone(), carrier.clone());
        Self {
            id,
            carrier,
            gone: Box::pin(async move { ends.closed().await }),
            silent: Some(Box::pin(async move { falls_silent.silent(SILENCE).await })),
        }
    }
}
