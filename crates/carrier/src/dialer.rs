//! A device's way to a server, by whichever kind of carrier gets there first: [`Dialer`].

use crate::quic::is_answer;
use crate::race::{Attempt, Failure, Memory, Race};
use crate::reachability::{Answer, Probes};
use crate::{Carrier, Kind, QuicDevice, WebSocketDevice};
use hoop_units::Timestamp;
use parking_lot::{Mutex, MutexGuard};
use ring::rand::{SecureRandom as _, SystemRandom};
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::net::lookup_host;
use tokio::sync::watch;
use tokio::task::{AbortHandle, JoinSet};
use tokio::time::{sleep_until, timeout};

/// How long one attempt may take: QUIC's handshake with three lost packets, or TCP's with two.
const ATTEMPT_MAX: Duration = Duration::from_secs(10);

/// So long QUIC waits until the name of a web server in front is looked up: as long as WebSocket waits for QUIC.
const NAME_MAX: Duration = Duration::from_millis(250);

/// A probe of whether the network carries is forgotten after so long, before the system repeats it.
const PROBE_MAX: Duration = Duration::from_millis(950);

/// A server, as a device was told of it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ServerAddress {
    /// What its certificate is for.
    pub name: String,
    /// Where it is; without any, its name is looked up.
    pub addresses: Vec<IpAddr>,
    /// The port of QUIC.
    pub quic_port: u16,
    /// The port of WebSocket.
    pub websocket_port: u16,
    /// The web server in front of it whose address is used for WebSocket instead; None: there is none.
    pub front: Option<FrontAddress>,
}

/// A web server that ends TLS in front of a server, and passes its WebSockets on.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FrontAddress {
    /// What its certificate is for. It is looked up, unless it is the server's name.
    pub name: String,
    /// Its port.
    pub port: u16,
}

/// A web server in front gave no carrier.
#[derive(Debug, thiserror::Error)]
#[error("the web server in front ({name}:{port}): {source}")]
pub struct FrontFailed {
    /// What it is called.
    pub name: String,
    /// Its port.
    pub port: u16,
    /// Why.
    pub source: io::Error,
}

impl ServerAddress {
    /// What is asked for a WebSocket: a name, and a port.
    fn websocket(&self) -> (&str, u16) {
        self.front.as_ref().map_or((&self.name, self.websocket_port), |front| (&front.name, front.port))
    }
}

/// Where a server's addresses are, by kind of carrier.
#[derive(Clone, Default, Debug)]
struct Found {
    quic: Vec<IpAddr>,
    websocket: Vec<IpAddr>,
}

/// What attempts by QUIC came to.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum ByQuic {
    /// There were none.
    Nothing,
    /// Nothing came of them.
    Tried,
    /// A server said something, if only that it has no room.
    Answered,
}

/// Makes carriers by QUIC or WebSocket, whichever is up first: QUIC begins, and WebSocket follows a quarter of a second later (RFC 8305 in spirit), or at once where QUIC lost a
/// short while ago. Whoever loses is closed.
///
/// There is one for each interface, like [`QuicDevice`]. What worked is remembered for each network by the key that the caller gives: the name of the Wi-Fi, say. QUIC is tried first again
/// a minute after it lost, then two, at last every hour. Where a server has answered by QUIC it passes, whatever the answer was: one that has no room has it later.
///
/// # UDP that is shut in mid-transfer
///
/// Whoever has bytes under way awaits [`Carrier::silent`] with [`SILENCE`](crate::SILENCE) beside its lanes. Then it says [`Dialer::quic_is_silent`] and dials again: WebSocket is tried at
/// once, and flows go on over it after two round trips and the resumption's one; altogether within three seconds on any way that is worth it. The silent carrier may be kept,
/// and is closed once flows have moved.
#[derive(Debug)]
pub struct Dialer {
    quic: Option<Arc<QuicDevice>>,
    websocket: Option<WebSocketDevice>,
    memory: Mutex<Memory>,
    /// How often a server has ended a carrier by QUIC.
    answers: watch::Sender<u64>,
    /// Where the server was when it was dialled last: in the dark nobody answers for its name.
    found: Arc<Mutex<Found>>,
    /// The origin of its timestamps.
    origin: Instant,
}

impl Dialer {
    /// One that has either or both.
    pub fn new(quic: Option<QuicDevice>, websocket: Option<WebSocketDevice>) -> Self {
        Self {
            quic: quic.map(Arc::new),
            websocket,
            memory: Mutex::default(),
            answers: watch::Sender::new(0),
            found: Arc::default(),
            origin: Instant::now(),
        }
    }

    /// A carrier to `server` over the network that `network` stands for. Dropping it while it waits gives up all attempts.
    ///
    /// # Errors
    /// The last attempt's, once all have failed; or why the name cannot be looked up.
    pub async fn dial(&self, network: &str, server: &ServerAddress) -> io::Result<Arc<dyn Carrier>> {
        let (found, no_front) = self.find(server).await?;
        let with = |addresses: &[IpAddr], port: u16, is_there: bool| -> Vec<SocketAddr> {
            addresses.iter().filter(|_| is_there).map(|address| SocketAddr::new(*address, port)).collect()
        };
        let websocket_port = server.websocket().1;
        let mut websocket = with(&found.websocket, websocket_port, self.websocket.is_some());
        if self.has_proxy() {
            // It finds the server by its name.
            websocket = vec![SocketAddr::new(Ipv4Addr::UNSPECIFIED.into(), websocket_port)];
        }
        let quic = with(&found.quic, server.quic_port, self.quic.is_some());
        let known = self.memory().known(network, self.now());
        let mut race = Race::new(self.now(), known, &quic, &websocket);
        // That the front has no address says more than what QUIC came to.
        let (carrier, by_quic) = self.run(&mut race, server).await.map_err(|error| no_front.unwrap_or(error))?;
        match by_quic {
            ByQuic::Answered => self.memory().quic_passed(network, self.now()),
            ByQuic::Tried => self.memory().quic_lost(network, self.now()),
            ByQuic::Nothing => self.memory().websocket_passed(network),
        }
        Ok(carrier)
    }

    /// A carrier of QUIC fell silent while it carried: on this network WebSocket is tried at once from now on, beside QUIC, until either passes, for as long as if QUIC had lost a race; or until the
    /// [link is up](Self::link_is_up), if until then nothing else has passed either.
    pub fn quic_is_silent(&self, network: &str) {
        self.memory().quic_is_silent(network, self.now());
    }

    /// The server has ended a carrier of QUIC, as one that was restarted does at the next packet ([`is_answer`]): on this network QUIC passes. What is dialled now, or already, tries WebSocket only after
    /// five seconds, or twenty while the server refuses QUIC for want of places: all its devices come back together, and each handshake costs it a millisecond or two.
    pub fn quic_answered(&self, network: &str) {
        self.memory().quic_answered(network, self.now());
        self.answers.send_modify(|answers| *answers += 1);
    }

    /// The server ended a carrier of WebSocket as soon as it was up, as one without places does: on this network QUIC is tried first from now on.
    pub fn websocket_is_ended(&self, network: &str) {
        self.memory().websocket_is_ended(network);
    }

    /// The interface has come up, with the same address or another: carriers of QUIC move to a fresh socket ([`QuicDevice::rebind`]), and where they were silent for want of
    /// a link QUIC is tried first again.
    ///
    /// # Errors
    /// If the socket cannot be made; the old one stays.
    pub fn link_is_up(&self) -> io::Result<()> {
        self.memory().link_is_up();
        self.quic.as_ref().map_or(Ok(()), |quic| quic.rebind())
    }

    /// Returns once the network carries again, after it carried nothing: to be awaited beside [`Dialer::dial`], which waits longer the longer it is dark. Then
    /// [`link_is_up`](Self::link_is_up) is true, and dialling is begun anew. It never returns where the network carries all along and something else is wrong.
    ///
    /// It asks for a TCP connection to the server's port of WebSocket, or to the web server in front or the proxy, and says nothing on it: by each family of addresses, some five times a second for ten minutes, and
    /// then every six seconds. Without WebSocket there is nothing to ask, and it never returns.
    pub async fn until_reachable(&self, server: &ServerAddress, mut jitter: impl FnMut() -> u32) {
        let Some(websocket) = &self.websocket else { return std::future::pending().await };
        let mut probes = Probes::new(self.now());
        let mut sent = JoinSet::new();
        loop {
            if let Some(number) = probes.poll(self.now(), jitter()) {
                for address in self.probed(server, websocket) {
                    let answered = websocket.is_there(address);
                    sent.spawn(async move { timeout(PROBE_MAX, answered).await.unwrap_or(false).then_some(number) });
                }
            }
            let due = self.origin + probes.due().since(Timestamp::ZERO);
            tokio::select! {
                Some(Ok(Some(number))) = sent.join_next() => match probes.answered(number) {
                    Answer::Reachable => return,
                    Answer::NotDark => return std::future::pending().await,
                },
                () = sleep_until(due.into()) => {}
            }
        }
    }

    /// One address of each family, or the proxy's.
    fn probed(&self, server: &ServerAddress, websocket: &WebSocketDevice) -> Vec<SocketAddr> {
        if let Some(proxy) = websocket.proxy_address() {
            return vec![proxy];
        }
        let found = self.found();
        let first = |is_v6| found.websocket.iter().find(|address| address.is_ipv6() == is_v6);
        let addresses = [first(true), first(false)].into_iter().flatten();
        addresses.map(|address| SocketAddr::new(*address, server.websocket().1)).collect()
    }

    fn found(&self) -> MutexGuard<'_, Found> {
        self.found.lock()
    }

    /// Where the server was, and what is in front of it, when it was dialled last; none, if it never was.
    pub fn found_addresses(&self) -> Vec<IpAddr> {
        let Found { quic, websocket } = self.found().clone();
        [quic, websocket].concat()
    }

    /// Waits until carriers of QUIC that were closed, and attempts that lost, have said so to their servers: for three round trips or so.
    pub async fn drained(&self) {
        if let Some(quic) = &self.quic {
            quic.drained().await;
        }
    }

    fn now(&self) -> Timestamp {
        Timestamp::ZERO + self.origin.elapsed()
    }

    fn memory(&self) -> MutexGuard<'_, Memory> {
        self.memory.lock()
    }

    fn has_proxy(&self) -> bool {
        self.websocket.as_ref().is_some_and(WebSocketDevice::has_proxy)
    }

    /// Looks up what it has to. One of the two names may be missing: the second value says why it is the front's.
    async fn find(&self, server: &ServerAddress) -> io::Result<(Found, Option<io::Error>)> {
        let Some(FrontAddress { name, port }) = server.front.clone().filter(|front| front.name != server.name) else {
            return match self.addresses(server).await {
                Ok(found) => {
                    *self.found() = Found { quic: found.clone(), websocket: found };
                    Ok((self.found().clone(), None))
                }
                // Behind a proxy there may be no names but its own.
                Err(_) if self.has_proxy() => Ok((Found::default(), None)),
                Err(error) => Err(error),
            };
        };
        let (found, of_front) = (self.found.clone(), name.clone());
        let mut looking = tokio::spawn(async move {
            let addresses = addresses_of(&of_front).await?;
            found.lock().websocket = addresses;
            Ok(())
        });
        let quic = self.addresses(server).await;
        quic.as_ref().ok().inspect(|addresses| self.found().quic.clone_from(addresses));
        // QUIC does not wait for the name of something else. What is found later is there for the next attempt.
        let looked = match self.quic.is_some() && quic.is_ok() {
            true => timeout(NAME_MAX, &mut looking).await.unwrap_or(Ok(Ok(()))),
            false => looking.await,
        };
        // A proxy looks it up by itself.
        let failed = looked.map_err(io::Error::other).flatten().err().filter(|_| !self.has_proxy());
        let failed = failed.map(|source| io::Error::new(source.kind(), FrontFailed { name, port, source }));
        match (quic, failed) {
            (Err(_), Some(error)) => Err(error),
            (quic, failed) => {
                let websocket = if failed.is_none() { self.found().websocket.clone() } else { Vec::new() };
                Ok((Found { quic: quic.unwrap_or_default(), websocket }, failed))
            }
        }
    }

    async fn addresses(&self, server: &ServerAddress) -> io::Result<Vec<IpAddr>> {
        match server.addresses.is_empty() {
            true => addresses_of(&server.name).await,
            false => Ok(server.addresses.clone()),
        }
    }

    /// The first carrier that is up, and what QUIC came to.
    async fn run(&self, race: &mut Race, server: &ServerAddress) -> io::Result<(Arc<dyn Carrier>, ByQuic)> {
        // Dropping it gives up what is under way, and closes what was up too late.
        let mut running = JoinSet::new();
        let (mut by_quic, mut answers) = (ByQuic::Nothing, self.answers.subscribe());
        let mut websockets: Vec<AbortHandle> = Vec::new();
        let mut last = io::Error::new(io::ErrorKind::AddrNotAvailable, "there is no address to try");
        loop {
            while let Some(attempt) = race.poll(self.now()) {
                if attempt.kind == Kind::Quic {
                    by_quic = by_quic.max(ByQuic::Tried);
                }
                let begun = running.spawn(self.attempt(attempt, server));
                websockets.extend((attempt.kind == Kind::WebSocket).then_some(begun));
            }
            if race.is_lost() {
                return Err(last);
            }
            let due = race.poll_timeout().map(|due| self.origin + due.since(Timestamp::ZERO));
            tokio::select! {
                Some(ended) = running.join_next() => match ended {
                    // It was given up.
                    Err(_) => {}
                    Ok((_, Ok(carrier))) if carrier.kind() == Kind::Quic => return Ok((carrier, ByQuic::Answered)),
                    Ok((_, Ok(carrier))) => return Ok((carrier, by_quic)),
                    Ok((attempt, Err(error))) => {
                        let failure = if is_answer(&error) { Failure::Answer } else { Failure::Nothing };
                        if (attempt.kind, failure) == (Kind::Quic, Failure::Answer) {
                            by_quic = ByQuic::Answered;
                        }
                        last = error;
                        race.failed(attempt, failure, self.now(), jitter());
                    }
                },
                Ok(()) = answers.changed() => {
                    race.answered(self.now());
                    websockets.drain(..).for_each(|websocket| websocket.abort());
                }
                () = sleep_until(due.unwrap_or_else(|| Instant::now() + ATTEMPT_MAX).into()) => {}
            }
        }
    }

    fn attempt(
        &self,
        attempt: Attempt,
        server: &ServerAddress,
    ) -> impl Future<Output = (Attempt, io::Result<Arc<dyn Carrier>>)> + Send + use<> {
        let (quic, websocket) = (self.quic.clone(), self.websocket.clone());
        let front = server.front.clone().filter(|_| attempt.kind == Kind::WebSocket);
        let name = front.as_ref().map_or(&server.name, |front| &front.name).clone();
        async move {
            let connecting = async {
                let carrier: Arc<dyn Carrier> = match (attempt.kind, &quic, &websocket) {
                    (Kind::Quic, Some(quic), _) => Arc::new(quic.connect(attempt.address, &name).await?),
                    (Kind::WebSocket, _, Some(websocket)) => Arc::new(websocket.connect(attempt.address, &name).await?),
                    _ => return Err(io::ErrorKind::Unsupported.into()),
                };
                Ok(carrier)
            };
            let done = timeout(ATTEMPT_MAX, connecting).await.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()));
            let Some(FrontAddress { name, port }) = front else { return (attempt, done) };
            (
                attempt,
                done.map_err(|source: io::Error| io::Error::new(source.kind(), FrontFailed { name, port, source })),
            )
        }
    }
}

async fn addresses_of(name: &str) -> io::Result<Vec<IpAddr>> {
    Ok(lookup_host((name, 0)).await?.map(|address| address.ip()).collect())
}

/// Devices that were refused together do not come again together.
fn jitter() -> u32 {
    let mut jitter = [0; 4];
    // Without dice they do.
    let _ = SystemRandom::new().fill(&mut jitter);
    u32::from_ne_bytes(jitter)
}
