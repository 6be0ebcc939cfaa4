//! A device's carriers to its server, kept while flows want them: [`Link`].

use crate::introduction::{Introduction, IntroductionError};
use crate::netlink::Changes;
use crate::trouble::{Trouble, cause};
use hoop_carrier::{
    Carrier, Dialer, Kind, Local, Pending, QuicDevice, QuicOptions, Refused, SILENCE, Server, WebSocketDevice,
    WebSocketOptions, device_tls,
};
use hoop_endpoint::{CarrierId, Device, DeviceConfig, Use};
use hoop_units::Backoff;
use ring::rand::{SecureRandom as _, SystemRandom};
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{Instant, interval, sleep_until, timeout};

/// Waits between attempts to reach the server. A network that changes is tried at once.
const RETRY: Backoff = Backoff { base: Duration::from_millis(250), cap: Duration::from_secs(15) };

/// A carrier that lived so long was up. One that is closed sooner is dialled again as if it had not been reached: the server may close each, for want of room.
const STEADY: Duration = Duration::from_secs(10);

/// Where nothing else is said, a carrier says something so often: routers forget a UDP flow after 30 s (RFC 4787 §4.3 has them wait for two minutes), and a carrier that
/// is thought to be there and is not is noticed by it. It costs less than a carrier that ends for want of traffic, and is dialled again.
const KEEP_ALIVE: Duration = Duration::from_secs(20);

/// So often it is looked whether any flow needs the carrier.
const NEEDED_EVERY: Duration = Duration::from_secs(30);

/// Somebody who waits for so long wants to know what for. QUIC cannot tell a port where nobody listens from a slow network, and goes on trying; TCP can.
const EXPLAIN_AFTER: Duration = Duration::from_secs(2);

/// How long TCP has to find that out.
const EXPLAIN_MAX: Duration = Duration::from_secs(3);

/// A way out of the machine.
#[derive(Clone, Debug)]
pub struct Way {
    /// Its name, which flows prefer or demand and statistics count under: an interface, mostly.
    pub name: String,
    /// Where its carriers leave from.
    pub local: Local,
    /// Whether it carries flows that another could carry.
    pub carrier_use: Use,
}

impl Way {
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
    Way {
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
        let mut ways = self.ways.lock().unwrap_or_else(PoisonError::into_inner);
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
    pub fn start(introduction: &Introduction, ways: Vec<Way>) -> Result<Self, LinkError> {
        let device = Device::new(DeviceConfig::new(introduction.host()?, introduction.key()?));
        let (server, tls) = (introduction.server()?, device_tls(introduction.roots()?)?);
        let quic_options = QuicOptions { keep_alive: Some(KEEP_ALIVE), ..QuicOptions::device() };
        let websocket_options = WebSocketOptions { keep_alive: Some(KEEP_ALIVE), ..WebSocketOptions::default() };
        let mut keepers = JoinSet::new();
        let ((trouble, troubles), reached) = (watch::channel(None), Arc::new(AtomicBool::new(false)));
        let (since, absent) = watch::channel(Some(Instant::now()));
        let absence = Arc::new(Absence { ways: Mutex::new(0), since });
        for way in ways {
            if let Some(name) = way.local.interface.as_deref().filter(|name| !is_interface(name)) {
                return Err(LinkError::NoInterface(name.to_owned()));
            }
            let fail = |source| LinkError::Way { way: way.name.clone(), source };
            let quic = QuicDevice::new(way.local.clone(), &tls, &quic_options).map_err(fail)?;
            let websocket = || WebSocketDevice::new(way.local.clone(), &tls, websocket_options.clone(), None);
            let keeper = Keeper {
                // From before the first flow.
                wants: device.wants(),
                device: device.clone(),
                dialer: Dialer::new(Some(quic), Some(websocket())),
                explainer: Dialer::new(None, Some(websocket())),
                trouble: trouble.clone(),
                reached: reached.clone(),
                absence: absence.clone(),
                server: server.clone(),
                changes: Changes::listen().map_err(fail)?,
                way,
            };
            keepers.spawn(keeper.run());
        }
        Ok(Self { device, troubles, reached, absence: absent, _keepers: keepers })
    }

    /// Where flows are opened.
    pub const fn device(&self) -> &Device {
        &self.device
    }

    /// Why the server is not reached: the last cause of any way. It stays when the server is reached after all.
    pub fn troubles(&self) -> watch::Receiver<Option<Trouble>> {
        self.troubles.clone()
    }

    /// Since when there has been no carrier that is not silent; None: there is one. Without flows there is none.
    pub(crate) fn absence(&self) -> watch::Receiver<Option<Instant>> {
        self.absence.clone()
    }

    /// Whether any carrier has ever come up.
    pub fn was_reached(&self) -> bool {
        self.reached.load(Ordering::Relaxed)
    }
}

fn is_interface(name: &str) -> bool {
    nix::net::if_::if_nametoindex(name).is_ok()
}

/// Who keeps the carriers of one way.
struct Keeper {
    device: Device,
    wants: watch::Receiver<u64>,
    dialer: Dialer,
    /// Finds out why dialling takes so long.
    explainer: Dialer,
    trouble: watch::Sender<Option<Trouble>>,
    reached: Arc<AtomicBool>,
    absence: Arc<Absence>,
    server: Server,
    changes: Changes,
    way: Way,
}

/// What came up: the kernel says so of interfaces, and a network that carried nothing carries again.
enum Up {
    Interface(io::Result<()>),
    Network,
}

/// A carrier that is being dialled.
type Dialling<'a> = Pending<'a, io::Result<Arc<dyn Carrier>>>;

/// The carrier that there is.
struct Here {
    id: CarrierId,
    carrier: Arc<dyn Carrier>,
    since: Instant,
    /// It ends when the carrier is gone. Both go on through all that happens beside: what the carrier owes counts from when it began to.
    gone: Pending<'static, io::Error>,
    /// It ends when the carrier is silent; then another is dialled, and the silence is not asked after again.
    silent: Option<Pending<'static, ()>>,
}

impl Keeper {
    async fn run(mut self) {
        let mut wants = self.wants.clone();
        let (mut here, mut attempt): (Option<Here>, _) = (None, 0);
        // How many carriers in a row were closed as soon as they were up.
        let mut closed_soon = 0_u32;
        // When to dial next, and what is being dialled.
        let (mut due, mut dialling): (Option<Instant>, Option<Dialling<'_>>) = (None, None);
        // Why that takes long, once until a carrier is up.
        let (mut explaining, mut is_explained): (Option<Pending<'_, io::Error>>, _) = (None, false);
        // When it is light again, while a carrier is being dialled and until it is up.
        let mut light: Option<Pending<'_, ()>> = None;
        let mut needed = interval(NEEDED_EVERY);
        let (mut tells, mut was_there) = (true, false);
        loop {
            let is_there = here.as_ref().is_some_and(|here| here.silent.is_some());
            if is_there != was_there {
                self.absence.change(is_there);
                was_there = is_there;
            }
            if due.is_some_and(|at| at <= Instant::now()) {
                due = None;
                dialling = Some(Box::pin(self.dialer.dial(&self.way.name, &self.server)));
                light.get_or_insert_with(|| Box::pin(self.dialer.light(&self.server, roll)));
                explaining = (!is_explained).then(|| Box::pin(explain(&self.explainer, &self.way, &self.server)) as _);
            }
            if dialling.is_none() {
                explaining = None;
            }
            let up = async {
                tokio::select! {
                    changed = self.changes.next(), if tells => Up::Interface(changed),
                    () = done(light.as_mut()) => Up::Network,
                }
            };
            let (gone, silent) = match &mut here {
                Some(here) => (Some(&mut here.gone), here.silent.as_mut()),
                None => (None, None),
            };
            tokio::select! {
                error = done(gone) => {
                    let gone = here.take();
                    let lived = gone.as_ref().map(|here| here.since.elapsed());
                    // What answers is no relay: it will not be one at once.
                    let is_other = error.get_ref().is_some_and(|error| error.is::<Refused>());
                    if is_other {
                        self.reached.store(false, Ordering::Relaxed);
                        self.trouble.send_replace(Some(trouble(&self.way, &error)));
                    }
                    if lived.is_some_and(|lived| lived >= STEADY) {
                        closed_soon = 0;
                    } else if gone.is_some_and(|here| here.carrier.kind() == Kind::WebSocket) {
                        self.dialer.websocket_is_ended(&self.way.name);
                    }
                    if dialling.is_none() && due.is_none() && self.device.is_busy() {
                        let again = closed_soon.checked_sub(1).map_or(Duration::ZERO, |times| RETRY.delay(times, roll()));
                        due = Some(Instant::now() + if is_other { RETRY.cap } else { again });
                        closed_soon = closed_soon.saturating_add(1);
                    }
                }
                error = done(explaining.as_mut()) => {
                    (explaining, is_explained) = (None, true);
                    self.trouble.send_replace(Some(trouble(&self.way, &error)));
                }
                () = done(silent) => {
                    let Some(here) = &mut here else { continue };
                    tracing::debug!(way = self.way.name, kind = ?here.carrier.kind(), "a carrier is silent");
                    if here.carrier.kind() == Kind::Quic {
                        self.dialer.quic_is_silent(&self.way.name);
                    }
                    here.silent = None;
                    (due, dialling) = (Some(Instant::now()), None);
                }
                wanted = wants.changed() => {
                    if wanted.is_err() {
                        return;
                    }
                    let is_served = here.as_ref().is_some_and(|here| here.silent.is_some());
                    if !is_served && dialling.is_none() && due.is_none() {
                        due = Some(Instant::now());
                    }
                }
                _ = needed.tick() => {
                    if !self.device.is_busy() {
                        tracing::debug!(way = self.way.name, "no flow needs a carrier");
                        here.take().inspect(|here| self.device.remove_carrier(here.id));
                        light = None;
                    }
                }
                up = up => {
                    if let Up::Interface(Err(_)) = up {
                        // The kernel tells no more: what flows want is left.
                        tells = false;
                        continue;
                    }
                    if let Up::Network = up {
                        tracing::debug!(way = self.way.name, "the network carries again");
                    }
                    // It is looked for anew with the next that is dialled.
                    light = None;
                    if let Err(error) = self.dialer.link_is_up() {
                        tracing::debug!(way = self.way.name, %error, "no fresh socket");
                    }
                    if let Some(here) = &here {
                        here.carrier.probe();
                    }
                    // What is under way may have begun where there was no way.
                    if dialling.take().is_some() || due.is_some() {
                        (attempt, closed_soon, due) = (0, 0, Some(Instant::now()));
                    }
                }
                () = until(due) => {}
                dialled = done(dialling.as_mut()) => {
                    dialling = None;
                    match dialled {
                        Ok(carrier) => {
                            tracing::debug!(way = self.way.name, kind = ?carrier.kind(), "a carrier is up");
                            let (network, carrier_use) = (self.way.name.as_str(), self.way.carrier_use);
                            let id = self.device.add_carrier(carrier.clone(), carrier_use, network);
                            if let Some(old) = here.replace(Here::new(id, carrier)) {
                                self.device.remove_carrier(old.id);
                            }
                            (attempt, is_explained, light) = (0, false, None);
                            self.reached.store(true, Ordering::Relaxed);
                        }
                        Err(error) => {
                            tracing::debug!(way = self.way.name, %error, "the server is not reached");
                            // QUIC knows nothing else, and TCP did.
                            if !(is_explained && error.kind() == io::ErrorKind::TimedOut) {
                                self.trouble.send_replace(Some(trouble(&self.way, &error)));
                            }
                            due = Some(Instant::now() + RETRY.delay(attempt, roll()));
                            attempt = attempt.saturating_add(1);
                        }
                    }
                }
            }
        }
    }
}

fn trouble(way: &Way, error: &io::Error) -> Trouble {
    Trouble { way: way.name.clone(), cause: cause(error) }
}

/// Why the server is not reached, once that takes long.
async fn explain(explainer: &Dialer, way: &Way, server: &Server) -> io::Error {
    tokio::time::sleep(EXPLAIN_AFTER).await;
    match timeout(EXPLAIN_MAX, explainer.dial(&way.name, server)).await {
        Ok(Err(error)) => error,
        Err(_) => io::ErrorKind::TimedOut.into(),
        // There is nothing to explain.
        Ok(Ok(_)) => std::future::pending().await,
    }
}

/// Devices that lost their server together do not come back together.
fn roll() -> u32 {
    let mut roll = [0; 4];
    // Without dice they do.
    let _ = SystemRandom::new().fill(&mut roll);
    u32::from_ne_bytes(roll)
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
            since: Instant::now(),
            gone: Box::pin(async move { ends.closed().await }),
            silent: Some(Box::pin(async move { falls_silent.silent(SILENCE).await })),
        }
    }
}
