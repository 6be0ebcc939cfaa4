//! A device's carriers to its server, kept while flows want them: [`Link`].

use crate::introduction::{Introduction, IntroductionError};
use crate::netlink::Changes;
use hoop_carrier::{
    Carrier, Dialer, Kind, Local, Pending, QuicDevice, QuicOptions, SILENCE, Server, WebSocketDevice, WebSocketOptions,
    device_tls,
};
use hoop_endpoint::{CarrierId, Device, DeviceConfig, Use};
use hoop_units::Backoff;
use ring::rand::{SecureRandom as _, SystemRandom};
use std::io;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until};

/// Waits between attempts to reach the server. A network that changes is tried at once.
const RETRY: Backoff = Backoff { base: Duration::from_millis(250), cap: Duration::from_secs(15) };

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
    /// A socket.
    #[error("way {way}: {source}")]
    Way {
        /// Which.
        way: String,
        /// Why.
        source: io::Error,
    },
}

/// A device's end towards its server, with carriers over each of its ways. Each is dialled when a flow wants one, QUIC and WebSocket against each other; dialled again when it is
/// gone or silent; and told when the machine's networks change. Without flows nothing is sent. All ends when this is dropped.
#[derive(Debug)]
pub struct Link {
    device: Device,
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
        let mut keepers = JoinSet::new();
        for way in ways {
            let fail = |source| LinkError::Way { way: way.name.clone(), source };
            let quic = QuicDevice::new(way.local.clone(), &tls, &QuicOptions::device()).map_err(fail)?;
            let websocket = WebSocketDevice::new(way.local.clone(), &tls, WebSocketOptions::default(), None);
            let keeper = Keeper {
                // From before the first flow.
                wants: device.wants(),
                device: device.clone(),
                dialer: Dialer::new(Some(quic), Some(websocket)),
                server: server.clone(),
                changes: Changes::listen().map_err(fail)?,
                way,
            };
            keepers.spawn(keeper.run());
        }
        Ok(Self { device, _keepers: keepers })
    }

    /// Where flows are opened.
    pub const fn device(&self) -> &Device {
        &self.device
    }
}

/// Who keeps the carriers of one way.
struct Keeper {
    device: Device,
    wants: watch::Receiver<u64>,
    dialer: Dialer,
    server: Server,
    changes: Changes,
    way: Way,
}

/// A carrier that is being dialled.
type Dialling<'a> = Pending<'a, io::Result<Arc<dyn Carrier>>>;

/// The carrier that there is.
struct Here {
    id: CarrierId,
    carrier: Arc<dyn Carrier>,
    /// Another was dialled because it is silent.
    is_silent: bool,
}

impl Keeper {
    async fn run(self) {
        let mut wants = self.wants.clone();
        let (mut here, mut attempt): (Option<Here>, _) = (None, 0);
        // When to dial next, and what is being dialled.
        let (mut due, mut dialling): (Option<Instant>, Option<Dialling<'_>>) = (None, None);
        loop {
            if due.is_some_and(|at| at <= Instant::now()) {
                due = None;
                dialling = Some(Box::pin(self.dialer.dial(&self.way.name, &self.server)));
            }
            let (gone, silent) = here.as_ref().map_or_else(never, Here::watch);
            tokio::select! {
                _ = gone => {
                    here = None;
                    if dialling.is_none() && due.is_none() && self.device.is_busy() {
                        due = Some(Instant::now());
                    }
                }
                () = silent => {
                    let Some(here) = &mut here else { continue };
                    tracing::debug!(way = self.way.name, kind = ?here.carrier.kind(), "a carrier is silent");
                    if here.carrier.kind() == Kind::Quic {
                        self.dialer.quic_is_silent(&self.way.name);
                    }
                    here.is_silent = true;
                    (due, dialling) = (Some(Instant::now()), None);
                }
                wanted = wants.changed() => {
                    if wanted.is_err() {
                        return;
                    }
                    let is_served = here.as_ref().is_some_and(|here| !here.is_silent);
                    if !is_served && dialling.is_none() && due.is_none() {
                        due = Some(Instant::now());
                    }
                }
                changed = self.changes.next() => {
                    if changed.is_err() {
                        // The kernel tells no more: what flows want is left.
                        tokio::time::sleep(RETRY.cap).await;
                    }
                    if let Err(error) = self.dialer.link_is_up() {
                        tracing::debug!(way = self.way.name, %error, "no fresh socket");
                    }
                    // What is under way may have begun where there was no way.
                    if dialling.take().is_some() || due.is_some() {
                        (attempt, due) = (0, Some(Instant::now()));
                    }
                }
                () = until(due) => {}
                dialled = done(&mut dialling) => {
                    dialling = None;
                    match dialled {
                        Ok(carrier) => {
                            tracing::debug!(way = self.way.name, kind = ?carrier.kind(), "a carrier is up");
                            let (network, carrier_use) = (self.way.name.as_str(), self.way.carrier_use);
                            let id = self.device.add_carrier(carrier.clone(), carrier_use, network);
                            if let Some(old) = here.replace(Here { id, carrier, is_silent: false }) {
                                self.device.remove_carrier(old.id);
                            }
                            attempt = 0;
                        }
                        Err(error) => {
                            tracing::debug!(way = self.way.name, %error, "the server is not reached");
                            due = Some(Instant::now() + RETRY.delay(attempt, roll()));
                            attempt = attempt.saturating_add(1);
                        }
                    }
                }
            }
        }
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

async fn done<T>(work: &mut Option<Pending<'_, T>>) -> T {
    match work {
        Some(work) => work.await,
        None => std::future::pending().await,
    }
}

impl Here {
    fn watch(&self) -> (Pending<'_, io::Error>, Pending<'_, ()>) {
        let silent = match self.is_silent {
            true => Box::pin(std::future::pending()) as Pending<'_, ()>,
            false => self.carrier.silent(SILENCE),
        };
        (self.carrier.closed(), silent)
    }
}

fn never<'a>() -> (Pending<'a, io::Error>, Pending<'a, ()>) {
    (Box::pin(std::future::pending()), Box::pin(std::future::pending()))
}
