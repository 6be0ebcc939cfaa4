//! Connections of programs that know no proxy, and of other machines, which routing leads here: [`Tun`].
//!
//! ```text
//! program ── connect ──▶ rules of routing ──▶ hoop0 ──▶ redirected to loopback ─┐
//!                                                                              ├──▶ Intake ──▶ a flow to where it wanted to go
//! LAN ─────────────────▶ prerouting ───────────────────▶ given to a socket ────┘
//! ```
//!
//! The kernel's own TCP ends the connections: the interface is there so that routes lead to something whose address never goes, with a network and without, and which is gone when this process
//! is. No packet ever comes out of it, unless somebody has taken the redirection away (`nft flush ruleset`): then it is made again.
//!
//! A connection is made before anything is known of its destination. What fails later is a reset.
//!
//! Files, each importing only those before it: `error`, `kernel`, `rules`, `commands`, `intake`.

mod commands;
mod error;
mod intake;
mod kernel;
mod rules;

pub use error::TunError;
pub(crate) use rules::CARRIER_MARK;

use self::intake::{Intake, Source};
use self::rules::{Family, INTERFACE, Ports, Rules};
use crate::destination::Destination;
use crate::guests::{CONNECTIONS_MAX, Guests};
use crate::shares::{Share, Shares};
use crate::socket::ProgramSocket;
use crate::tunnel::Dialer;
use hoop_endpoint::FLOWS_OF_DEVICE;
use hoop_http::Lines;
use hoop_relay::Link;
use hoop_units::plain;
use parking_lot::Mutex;
use rustix::net::{AddressFamily, SocketType, netdevice, socket};
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::fmt;
use std::future::pending;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::io::AsyncReadExt as _;
use tokio::net::TcpStream;
use tokio::net::unix::pipe;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::{JoinSet, spawn_blocking};
use tokio::time::{Instant, sleep};

/// Connections of other machines at once, at most: of a device's flows a quarter is left to the device itself. More wait as well.
const LAN_MAX: usize = FLOWS_OF_DEVICE / 4 * 3;

/// Connections of one other machine at once, at most: a browser has less than that. More are reset.
const MACHINE_MAX: usize = FLOWS_OF_DEVICE / 4;

/// How often what somebody took away is made again, at most: it is not ours to fight over.
const MENDS_EVERY: Duration = Duration::from_secs(10);

/// Addresses of the relay's that are led past the interface, at most: a name has some of them at a time, and may have others later.
const RELAY_ADDRESSES_MAX: usize = 64;

/// Most of a packet: what the interface has room for.
const PACKET: usize = 65_535;

/// What is taken in.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct TunConfig {
    /// Besides this machine's programs, what comes in by these interfaces from other machines.
    pub lans: Vec<String>,
}

/// What an agent says of it.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct TunReport {
    /// The interface.
    pub interface: String,
    /// Whose programs are taken in, by their users' numbers.
    pub users: Vec<u32>,
    /// By which interfaces other machines are.
    pub lans: Vec<String>,
}

/// What follows an agent's address: ` and TUN hoop0, lan0`.
impl fmt::Display for TunReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, " and TUN {}", plain::line(&self.interface))?;
        self.lans.iter().try_for_each(|lan| write!(f, ", LAN {}", plain::line(lan)))
    }
}

/// All that leads here. It is taken out again when this is dropped.
#[derive(Debug)]
pub(crate) struct Tun {
    rules: Rules,
    /// Where the relay is.
    relay: Mutex<BTreeSet<IpAddr>>,
    is_undone: AtomicBool,
}

/// What comes of it.
#[derive(Debug)]
pub(crate) struct Intakes {
    interface: pipe::Receiver,
    intakes: Vec<Intake>,
}

/// Who carries what was taken in.
pub(crate) struct Carrying {
    pub(crate) dialer: Arc<Dialer>,
    pub(crate) guests: Arc<Guests>,
    pub(crate) link: Arc<Link>,
}

impl Tun {
    /// Has connections of these users' programs led here, in a tokio runtime; not those to the `relay`.
    ///
    /// # Errors
    /// If that cannot be. Nothing is left then.
    pub(crate) fn start(
        config: &TunConfig,
        users: &[u32],
        relay: BTreeSet<IpAddr>,
    ) -> Result<(Arc<Self>, Intakes), TunError> {
        if let Some(none) = config.lans.iter().find(|lan| !rules::is_plain(lan) || !is_interface(lan)) {
            return Err(TunError::NoLan(none.clone()));
        }
        let interface = pipe::Receiver::from_file_unchecked(kernel::interface(INTERFACE)?)?;
        // What another has left that was killed.
        commands::undo();
        let families: &[_] = if has_ipv6() { &[Family::V4, Family::V6] } else { &[Family::V4] };
        let (mut intakes, mut ports) = (Vec::new(), Vec::new());
        for family in families.iter().copied() {
            let mut bind = |source| {
                let intake = Intake::bind(source, family)?;
                let port = intake.port();
                intakes.push(intake);
                Ok::<_, io::Error>(port)
            };
            let programs = bind(Source::Programs)?;
            let lan = if config.lans.is_empty() { None } else { Some(bind(Source::Lan)?) };
            ports.push(Ports { family, programs, lan });
        }
        let mut users = users.to_vec();
        users.sort_unstable();
        users.dedup();
        let rules = Rules { users, lans: config.lans.clone(), ports };
        let tun = Arc::new(Self { rules, relay: Mutex::new(relay), is_undone: AtomicBool::new(false) });
        tun.redirect()?;
        for family in families {
            commands::ip(*family, &tun.rules.routing(*family))?;
        }
        tun.lead_past_relay()?;
        Ok((tun, Intakes { interface, intakes }))
    }

    pub(crate) fn report(&self) -> TunReport {
        let Rules { users, lans, .. } = &self.rules;
        TunReport { interface: INTERFACE.to_owned(), users: users.clone(), lans: lans.clone() }
    }

    /// Takes it out: whatever begins from now on goes past the agent.
    pub(crate) fn undo(&self) {
        if !self.is_undone.swap(true, Ordering::Relaxed) {
            commands::undo();
        }
    }

    fn redirect(&self) -> Result<(), TunError> {
        let relay = self.relay.lock().clone();
        commands::nft(&self.rules.redirection(&relay))
    }

    fn lead_past_relay(&self) -> Result<(), TunError> {
        let relay = self.relay.lock().clone();
        for Ports { family, .. } in &self.rules.ports {
            commands::ip(*family, &rules::relay_routes(*family, &relay))?;
        }
        Ok(())
    }

    /// Notes where the relay is, which may be found out late: its name is looked up when it is dialled.
    async fn note_relay(self: &Arc<Self>, found: BTreeSet<IpAddr>) {
        let is_new = {
            let mut relay = self.relay.lock();
            let before = relay.len();
            let room = RELAY_ADDRESSES_MAX.saturating_sub(before);
            let new: Vec<_> = found.difference(&relay).take(room).copied().collect();
            relay.extend(new);
            relay.len() > before
        };
        if is_new {
            let tun = self.clone();
            let led = spawn_blocking(move || tun.lead_past_relay().and_then(|()| tun.redirect())).await;
            let _ = led.map(|led| {
                led.inspect_err(|error| tracing::warn!(%error, "programs do not reach the relay's machine"))
            });
        }
    }

    /// Carries what comes, for ever. Dropped, it resets what is under way.
    pub(crate) async fn run(self: Arc<Self>, intakes: Intakes, carrying: Arc<Carrying>) {
        let Intakes { interface, intakes } = intakes;
        let [programs, lan] = [CONNECTIONS_MAX, LAN_MAX].map(|most| Arc::new(Semaphore::new(most)));
        let machines = Shares::new(MACHINE_MAX);
        let mut working = JoinSet::new();
        for intake in intakes {
            let places = if intake.source == Source::Lan { lan.clone() } else { programs.clone() };
            working.spawn(take(self.clone(), intake, places, machines.clone(), carrying.clone()));
        }
        working.spawn(mend(self, interface, carrying));
        while working.join_next().await.is_some() {}
        pending().await
    }
}

impl Drop for Tun {
    fn drop(&mut self) {
        self.undo();
    }
}

fn is_interface(name: &str) -> bool {
    let asked = socket(AddressFamily::INET, SocketType::DGRAM, None);
    asked.is_ok_and(|asked| netdevice::name_to_index(&asked, name).is_ok())
}

/// Whether the interface may have addresses of IPv6.
fn has_ipv6() -> bool {
    let off = std::fs::read_to_string(format!("/proc/sys/net/ipv6/conf/{INTERFACE}/disable_ipv6"));
    off.is_ok_and(|off| off.trim() == "0") && Intake::bind(Source::Programs, Family::V6).is_ok()
}

/// Takes what comes to one listener.
async fn take(
    tun: Arc<Tun>,
    intake: Intake,
    places: Arc<Semaphore>,
    machines: Arc<Shares<IpAddr>>,
    carrying: Arc<Carrying>,
) {
    static LINES: Lines = Lines::new();
    let mut connections = JoinSet::new();
    loop {
        let accepted = async {
            let place = places.clone().acquire_owned().await.map_err(io::Error::other)?;
            Ok((intake.accept().await?, place))
        };
        tokio::select! {
            Some(_) = connections.join_next() => {}
            accepted = accepted => match accepted {
                Ok(((stream, peer), place)) => {
                    let destination = intake.destination(&stream);
                    tun.note_relay(carrying.link.server_addresses()).await;
                    let origin = match intake.source {
                        Source::Programs => Some(Origin::Program),
                        Source::Lan => machines.take(peer.ip().to_canonical()).map(Origin::Machine),
                    };
                    match destination.zip(origin) {
                        Some((destination, origin)) => {
                            let ends = [peer, destination];
                            connections.spawn(carry(stream, place, ends, origin, carrying.clone()));
                        }
                        None => drop(stream.set_zero_linger()),
                    }
                }
                Err::<_, io::Error>(error) => {
                    LINES.warn("cannot accept a connection", &error);
                    sleep(Duration::from_millis(50)).await;
                }
            },
        }
    }
}

/// Whose a connection is.
enum Origin {
    /// A program's of this machine.
    Program,
    /// Another machine's, which has its share.
    Machine(#[allow(dead_code, reason = "it goes with the connection")] Share<IpAddr>),
}

/// Carries a connection, whose ends are these for whoever began it.
async fn carry(
    stream: TcpStream,
    place: OwnedSemaphorePermit,
    ends: [SocketAddr; 2],
    origin: Origin,
    carrying: Arc<Carrying>,
) {
    let Carrying { dialer, guests, .. } = &*carrying;
    let [peer, to] = ends;
    let (program, from) = match &origin {
        Origin::Program => {
            // The rules lead nobody else here. Who is served does not depend on them.
            let admitted = match guests.admit(peer, to).await {
                Ok(admitted) => admitted,
                Err(why) => {
                    why.into_iter().for_each(|why| dialer.connector.say(why));
                    return drop(stream.set_zero_linger());
                }
            };
            (ProgramSocket::new(stream, ends, guests.owners.clone(), admitted, place), INTERFACE.to_owned())
        }
        Origin::Machine(_) => (ProgramSocket::of_machine(stream, place), peer.ip().to_canonical().to_string()),
    };
    let (under_way, destination) = (program.under_way(), Destination::address(to.ip().to_canonical(), to.port()));
    // It is connected, as far as it knows. If it is not, it reads a reset.
    under_way.begins();
    if let Ok(dialled) = dialer.open_from(&destination, Some(&from)) {
        dialer.carry(program, &under_way, &destination, dialled).await;
    }
}

/// Makes the redirection again that somebody has taken away: then packets of TCP come out of the interface. Others do in any case, such as those by which the kernel looks for routers.
async fn mend(tun: Arc<Tun>, mut interface: pipe::Receiver, carrying: Arc<Carrying>) {
    let mut packet = vec![0; PACKET];
    let mut mended = None::<Instant>;
    loop {
        let read = match interface.read(&mut packet).await {
            Ok(read @ 1..) => read,
            _ => {
                return carrying
                    .dialer
                    .connector
                    .say(format!("the interface {INTERFACE} is gone, and programs are not taken in any more"));
            }
        };
        let is_due = mended.is_none_or(|at| at.elapsed() >= MENDS_EVERY);
        if rules::is_tcp(&packet[..read]) && is_due {
            let mending = tun.clone();
            let made = spawn_blocking(move || mending.redirect()).await;
            carrying.dialer.connector.say(match made {
                Ok(Err(error)) => format!("what leads programs here was removed, and cannot be made again: {error}"),
                _ => {
                    "what leads programs here was removed, and is made again: such as by `nft flush ruleset`".to_owned()
                }
            });
            mended = Some(Instant::now());
        }
    }
}
