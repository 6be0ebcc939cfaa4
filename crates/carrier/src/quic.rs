//! Carriers on QUIC (RFC 9000): [`QuicDevice`] and [`QuicListener`].
//!
//! A lane is a bidirectional stream that the device opens. There are no unidirectional streams, no datagrams, and no 0-RTT: the binding is exported from the
//! complete handshake. A lane that is broken off is reset (RFC 9000 §3.2), one that nobody reads is stopped (§3.5).
//!
//! **MTU.** Up to ten packets go to the system in one call (segmentation offload), and a call takes at most 65,507 bytes; what is larger is lost without an error. So
//! packets have at most [`MTU_MAX`] bytes, however large the path's are; discovery (RFC 8899) finds what the path takes, from 1,200 up.
//!
//! **Floods.** A first packet costs its sender nothing. Once [`QuicLimits::retry_from`] handshakes are under way, a device must show by a Retry (RFC 9000 §8.1.2)
//! that it receives what is sent to its address; that costs the server one packet and no memory. A handshake that fails at once counts for three seconds. What is kept is bounded by [`QuicLimits`],
//! and so is what QUIC keeps of connections that are over: a server forgets those after three seconds.

use crate::congestion::congestion;
use crate::datagrams::FIRST_PACKET_MAX;
use crate::effort::{SHUNNED, Shunned, is_fair, is_flood};
use crate::lingering::{Drivers, Lingering, OfUse, There};
use crate::peers::{Peers, Place};
use crate::resets::ResetKey;
use crate::sending::{CODE, EXCESSIVE, QuicSender, Sending, gone};
use crate::silence::{Sample, until_silent};
use crate::socket::{Local, udp_socket};
use crate::turns::Turns;
use crate::{Carrier, Kind, LANES_MAX, Lane, LaneReceiver, Pending, STRANGER_WINDOW, broken_off};
use bytes::Bytes;
use hoop_flow::{Binding, EXPORTER_LABEL};
use quinn::congestion::{Controller, ControllerFactory};
use quinn::crypto::rustls::{QuicClientConfig, QuicServerConfig};
use quinn::{
    ConnectionError, ConnectionStats, EndpointConfig, IdleTimeout, Incoming, MtuDiscoveryConfig, ReadError,
    TransportConfig, VarInt,
};
use std::fmt;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};
use tokio::sync::{Mutex, mpsc};
use tokio::task::{JoinHandle, yield_now};

/// The protocol that both ends name in TLS (ALPN).
pub const QUIC_ALPN: &[u8] = b"hoop-flow/1";

/// The largest packet, in bytes of UDP payload: ten of them fit into one call of the system.
pub const MTU_MAX: u16 = 6_500;

/// First packets that wait for [`QuicListener`] to look at them, a few kilobytes each; it does so at once.
const INCOMING_MAX: usize = 1_024;

/// What is kept of a device's packets between its first one and the look at it, in bytes: the rest of a ClientHello with a post-quantum key. quinn reads them with the endpoint's lock held,
/// and where frames have a byte each, it sorts them for a time that grows with the square of their number.
const INCOMING_BYTES: u64 = FIRST_PACKET_MAX as u64;

/// A server's buffer for handshake messages that come in pieces, in bytes: those of a device are small, even with a certificate.
const SERVER_CRYPTO_BYTES: usize = 8 * 1024;

/// First packets that get a Retry, or are refused, before others have their turn: some microseconds each.
const PASSED_ON: u32 = 32;

/// Lanes that a device is allowed at once before it has opened any: more than most ever have. A carrier without lanes holds 4 KB for them.
const LANES_FIRST: u32 = 64;

/// How connections are run, at either end.
#[derive(Clone, Debug)]
pub struct QuicOptions {
    /// The largest packet that is tried, in bytes of UDP payload, 1,200 to [`MTU_MAX`]; default: [`MTU_MAX`]. What is too large for the path costs
    /// a few probes.
    pub mtu: u16,
    /// Lanes that a device may have open at once on one carrier; default: [`LANES_MAX`]. It is allowed 64 at first, and twice as many whenever it has half of them: quinn has some
    /// 70 bytes ready for each that is allowed.
    pub lanes: u32,
    /// What may be sent and not acknowledged by QUIC, in bytes, at most; less while its congestion window is small. Default: a device's 8 MiB (640 Mbit/s at 100 ms), a server's
    /// 1 MiB, so that a thousand devices that read nothing hold 1 GiB. A server sends a stranger, and a device's carriers after its first 32, at most 128 KiB ahead.
    pub send_window: u64,
    /// What the other end may send of one lane before it is read, in bytes; default: 1.25 MiB (100 Mbit/s at 100 ms).
    pub lane_window: u32,
    /// The same for a carrier's lanes together; default: twice that.
    pub receive_window: u32,
    /// A carrier is gone once nothing has come for so long, while something is expected or not; default: 25 s. The lower one of both ends holds.
    pub idle: Duration,
    /// Something is sent whenever nothing came for so long; default: never, since that keeps a radio awake.
    pub keep_alive: Option<Duration>,
    /// Of a server: what it tells devices by that it has forgotten their connections, so that they come again at once; default: one that ends with it.
    pub resets: Option<ResetKey>,
}

impl QuicOptions {
    /// A device's defaults.
    pub fn device() -> Self {
        Self {
            mtu: MTU_MAX,
            lanes: LANES_MAX,
            send_window: 8 << 20,
            lane_window: 1_280 << 10,
            receive_window: 2_560 << 10,
            idle: Duration::from_secs(25),
            keep_alive: None,
            resets: None,
        }
    }

    /// A server's defaults.
    pub fn server() -> Self {
        Self { send_window: 1 << 20, ..Self::device() }
    }

    /// What a server gives a stranger.
    fn stranger(&self) -> io::Result<TransportConfig> {
        let mut transport = self.transport()?;
        transport
            .max_concurrent_bidi_streams(VarInt::from_u32(self.lanes.min(LANES_FIRST)))
            .receive_window(VarInt::from_u32(self.receive_window.min(STRANGER_WINDOW)))
            .crypto_buffer_size(SERVER_CRYPTO_BYTES);
        Ok(transport)
    }

    fn transport(&self) -> io::Result<TransportConfig> {
        let mut discovery = MtuDiscoveryConfig::default();
        discovery.upper_bound(self.mtu.clamp(1_200, MTU_MAX));
        let mut transport = TransportConfig::default();
        transport
            .congestion_controller_factory(congestion())
            .mtu_discovery_config(Some(discovery))
            .max_concurrent_uni_streams(VarInt::from_u32(0))
            .datagram_receive_buffer_size(None)
            .send_window(self.send_window)
            .stream_receive_window(VarInt::from_u32(self.lane_window))
            .receive_window(VarInt::from_u32(self.receive_window))
            .max_idle_timeout(Some(IdleTimeout::try_from(self.idle).map_err(io::Error::other)?))
            .keep_alive_interval(self.keep_alive);
        Ok(transport)
    }

    /// An endpoint takes packets as large as those it sends.
    fn endpoint(&self) -> io::Result<EndpointConfig> {
        let mut endpoint = self.resets.as_ref().map_or_else(EndpointConfig::default, ResetKey::endpoint);
        endpoint.max_udp_payload_size(self.mtu.clamp(1_472, MTU_MAX)).map_err(io::Error::other)?;
        Ok(endpoint)
    }
}

/// A device's endpoint: one for each interface. All its carriers share one socket.
pub struct QuicDevice {
    endpoint: quinn::Endpoint,
    turns: Arc<Turns>,
    local: Local,
    config: quinn::ClientConfig,
    send_window: u64,
}

impl fmt::Debug for QuicDevice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("QuicDevice").field("local", &self.local).finish_non_exhaustive()
    }
}

impl QuicDevice {
    /// An endpoint that leaves by `local`; within a tokio runtime.
    ///
    /// # Errors
    /// If the socket cannot be made, or the TLS is not fit for QUIC.
    pub fn new(local: Local, tls: &rustls::ClientConfig, options: &QuicOptions) -> io::Result<Self> {
        let mut tls = tls.clone();
        tls.alpn_protocols = vec![QUIC_ALPN.to_vec()];
        tls.enable_early_data = false;
        let mut transport = options.transport()?;
        transport.max_concurrent_bidi_streams(VarInt::from_u32(0));
        let mut config = quinn::ClientConfig::new(Arc::new(QuicClientConfig::try_from(tls).map_err(io::Error::other)?));
        config.transport_config(Arc::new(transport));
        let turns = Turns::begin();
        let endpoint = quinn::Endpoint::new(options.endpoint()?, None, local.udp()?, turns.clone())?;
        Ok(Self { endpoint, turns, local, config, send_window: options.send_window })
    }

    /// A carrier to a server whose certificate is for `name`. It is tried until [`QuicOptions::idle`]; whoever drops it gives it up.
    ///
    /// # Errors
    /// If there is no way to that address, nobody answers, or the two do not agree.
    pub async fn connect(&self, server: SocketAddr, name: &str) -> io::Result<QuicCarrier> {
        let connecting = self.endpoint.connect_with(self.config.clone(), server, name);
        let connection = connecting.map_err(io::Error::other)?.await.map_err(gone)?;
        let peer = connection.remote_address().ip();
        QuicCarrier::new(connection, peer, self.send_window, 0)
    }

    /// Moves all carriers to a fresh socket. To be called whenever the link comes up, even with the same address: a sender that was left alone backs off, for ten
    /// seconds or more after an outage of thirty; this way its carriers are alive again after one or two round trips.
    ///
    /// # Errors
    /// If the socket cannot be made; the old one stays.
    pub fn rebind(&self) -> io::Result<()> {
        let socket = self.local.udp()?;
        let _nothing_runs = self.turns.pause();
        self.endpoint.rebind(socket)
    }

    /// Where it sends from.
    ///
    /// # Errors
    /// If the system does not say.
    pub fn local_address(&self) -> io::Result<SocketAddr> {
        self.endpoint.local_addr()
    }

    /// Waits until carriers that were closed have said so to their servers.
    pub async fn drained(&self) {
        self.endpoint.wait_idle().await;
    }
}

/// What a server spends on devices that it does not know yet, and on all of them.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct QuicLimits {
    /// With so many handshakes under way, and connections that linger, a device's address must be shown to be its own first; default: 64, some 2 MB and 30 ms of one core.
    pub retry_from: usize,
    /// Handshakes under way at once, with carriers that wait to be accepted; then the oldest of whoever has most makes way for who has fewer. Default: 512.
    pub handshakes: usize,
    /// The same of one address that was shown to be the device's own; default: 32.
    pub handshakes_per_peer: usize,
    /// How long a handshake may take; default: 10 s.
    pub handshake_time: Duration,
    /// Connections at once; more are refused. Default: 20,000, some 40 KB each.
    pub connections: usize,
    /// Connections that have ended and are remembered for their late packets, for three seconds at most, some 45 KB each. A handshake that fails with its first packet counts as one of them for as long.
    /// When there are as many, an address that has any begins no more. Default: 1,024.
    pub lingering: usize,
    /// The same of one address; more are refused. Default: 128, which is 40 handshakes a second that come to nothing.
    pub lingering_per_peer: usize,
}

impl Default for QuicLimits {
    fn default() -> Self {
        Self {
            retry_from: 64,
            handshakes: 512,
            handshakes_per_peer: 32,
            handshake_time: Duration::from_secs(10),
            connections: 20_000,
            lingering: 1_024,
            lingering_per_peer: 128,
        }
    }
}

/// What is done with a first packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Admission {
    /// Its handshake begins.
    Accept,
    /// Its sender must come again with a token.
    Retry,
    /// It is told that there is no room.
    Refuse,
}

impl QuicLimits {
    fn admission(&self, handshakes: usize, connections: usize, validated: bool) -> Admission {
        let full = connections >= self.connections;
        match validated {
            true if full => Admission::Refuse,
            true => Admission::Accept,
            // Nothing but a Retry goes to an address that may be another's.
            false if full || handshakes >= self.retry_from.min(self.handshakes) => Admission::Retry,
            false => Admission::Accept,
        }
    }
}

/// A server's end: carriers that devices open. Dropping it takes no more; those that are open stay.
pub struct QuicListener {
    endpoint: quinn::Endpoint,
    accepted: Mutex<mpsc::Receiver<QuicCarrier>>,
    peers: Peers,
    limits: QuicLimits,
    task: JoinHandle<()>,
}

impl fmt::Debug for QuicListener {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("QuicListener").field("limits", &self.limits).finish_non_exhaustive()
    }
}

impl Drop for QuicListener {
    fn drop(&mut self) {
        self.task.abort();
        self.endpoint.set_server_config(None);
    }
}

impl QuicListener {
    /// Listens on `address` (`[::]` is of both families); within a tokio runtime.
    ///
    /// # Errors
    /// If the socket cannot be had, or the TLS is not fit for QUIC.
    pub fn bind(
        address: SocketAddr,
        tls: &rustls::ServerConfig,
        options: &QuicOptions,
        limits: QuicLimits,
    ) -> io::Result<Self> {
        let mut tls = tls.clone();
        tls.alpn_protocols = vec![QUIC_ALPN.to_vec()];
        tls.max_early_data_size = 0;
        let tls = QuicServerConfig::try_from(tls).map_err(io::Error::other)?;
        let mut config = quinn::ServerConfig::with_crypto(Arc::new(tls));
        config
            .transport_config(Arc::new(options.stranger()?))
            .max_incoming(INCOMING_MAX)
            .incoming_buffer_size(INCOMING_BYTES)
            .incoming_buffer_size_total(INCOMING_BYTES * INCOMING_MAX as u64);
        let socket = udp_socket(address)?;
        socket.bind(&address.into())?;
        let drivers = Arc::<Drivers>::default();
        let endpoint = quinn::Endpoint::new(options.endpoint()?, Some(config.clone()), socket.into(), drivers.clone())?;
        let (hand_over, accepted) = mpsc::channel(1);
        let peers = Peers::new(limits.handshakes, limits.handshakes_per_peer);
        let admitting = Admitting {
            endpoint: endpoint.clone(),
            limits: limits.clone(),
            peers: peers.clone(),
            lingering: Lingering::new(limits.lingering, limits.lingering_per_peer),
            shunned: Shunned::default(),
            drivers,
            hand_over,
            config,
            options: options.clone(),
        };
        let task = tokio::spawn(admitting.run());
        Ok(Self { endpoint, accepted: Mutex::new(accepted), peers, limits, task })
    }

    /// The next carrier. Dropping it while it waits loses none.
    ///
    /// # Errors
    /// If the socket is gone.
    pub async fn accept(&self) -> io::Result<QuicCarrier> {
        self.accepted.lock().await.recv().await.ok_or_else(|| io::Error::other("the listener is gone"))
    }

    /// Where it listens.
    ///
    /// # Errors
    /// If the system does not say.
    pub fn local_address(&self) -> io::Result<SocketAddr> {
        self.endpoint.local_addr()
    }

    /// Handshakes under way, and carriers that wait to be accepted: at most [`QuicLimits::handshakes`].
    pub fn handshakes(&self) -> usize {
        self.peers.taken()
    }

    /// Connections at once, with those whose handshake is under way: at most [`QuicLimits::connections`].
    pub fn connections(&self) -> usize {
        self.endpoint.open_connections()
    }

    /// Closes all carriers, and waits until they have said so to their devices, for a few round trips at most.
    pub async fn close(self) {
        self.endpoint.close(CODE, b"");
        self.endpoint.wait_idle().await;
    }
}

/// The task of a listener.
struct Admitting {
    endpoint: quinn::Endpoint,
    limits: QuicLimits,
    peers: Peers,
    lingering: Lingering,
    shunned: Shunned,
    drivers: Arc<Drivers>,
    hand_over: mpsc::Sender<QuicCarrier>,
    config: quinn::ServerConfig,
    options: QuicOptions,
}

/// Makes what any other makes, and tells that a connection is there: it lives as long as what quinn keeps of that.
struct Telling {
    makes: Arc<dyn ControllerFactory + Send + Sync>,
    _there: There,
}

impl ControllerFactory for Telling {
    fn build(self: Arc<Self>, now: Instant, mtu: u16) -> Box<dyn Controller> {
        self.makes.clone().build(now, mtu)
    }
}

impl Admitting {
    async fn run(self) {
        let mut passed_on = 0;
        while let Some(incoming) = self.endpoint.accept().await {
            // What this has begun runs on this thread alone while this goes on, and first packets may come without end. A Retry costs little, and most of them have one.
            passed_on += 1;
            if self.admit(incoming) || passed_on >= PASSED_ON {
                passed_on = 0;
                yield_now().await;
            }
        }
    }

    /// Whether a handshake was begun.
    fn admit(&self, incoming: Incoming) -> bool {
        // What lingers may be of addresses that were made up, too: then they must be shown.
        let under_way = self.peers.taken() + self.lingering.count();
        let (peer, validated) = (incoming.remote_address().ip(), incoming.remote_address_validated());
        let connections = self.endpoint.open_connections();
        match self.limits.admission(under_way, connections, validated) {
            Admission::Accept if validated && self.shunned.contains(peer) => incoming.refuse(),
            // It may be another's.
            Admission::Accept if !validated && (self.shunned.is_alarmed() || self.shunned.contains(peer)) => {
                drop(incoming.retry());
            }
            Admission::Accept if validated && !self.lingering.admits(peer) => incoming.refuse(),
            Admission::Accept => {
                // An address that may be another's is not held against that one: it has its share of `retry_from`.
                match self.peers.take(peer, validated) {
                    Some(place) => {
                        self.shake_hands(incoming, place);
                        return true;
                    }
                    None => incoming.refuse(),
                }
            }
            Admission::Retry => drop(incoming.retry()),
            Admission::Refuse => incoming.refuse(),
        }
        false
    }

    /// How a connection is run that tells when it is there no more.
    fn config(&self, there: There) -> io::Result<Arc<quinn::ServerConfig>> {
        let (mut config, mut transport) = (self.config.clone(), self.options.stranger()?);
        transport.congestion_controller_factory(Arc::new(Telling { makes: congestion(), _there: there }));
        config.transport_config(Arc::new(transport));
        Ok(Arc::new(config))
    }

    fn shake_hands(&self, incoming: Incoming, place: Place) {
        let (peer, validated) = (incoming.remote_address().ip(), incoming.remote_address_validated());
        let (there, mut of_use) = self.lingering.begin(incoming.remote_address().ip());
        let Ok(config) = self.config(there) else { return };
        let connecting = match incoming.accept_with(config) {
            Ok(connecting) => connecting,
            // quinn keeps nothing of a handshake that fails at once; but this one took a processor's time.
            Err(ConnectionError::TransportError(_)) => return self.lingering.has_failed(validated.then_some(peer)),
            Err(_) => return,
        };
        let (driver, effort) = self.drivers.last().unzip();
        of_use.set_driver(driver);
        let shunned = self.shunned.clone();
        effort.iter().for_each(|effort| {
            let shunned = shunned.clone();
            effort.handshake(move || if validated { shunned.add(peer) } else { shunned.alarm() });
        });
        let (limit, hand_over) = (self.limits.handshake_time, self.hand_over.clone());
        let QuicOptions { send_window, receive_window, lanes, .. } = self.options;
        let key = place.key();
        self.peers.set_use(key, of_use);
        let task = tokio::spawn(async move {
            let Ok(Ok(connection)) = tokio::time::timeout(limit, connecting).await else { return };
            let first_window = send_window.min(u64::from(STRANGER_WINDOW));
            let Ok(mut carrier) = QuicCarrier::new(connection.clone(), peer, first_window, lanes) else { return };
            let judging = Judging {
                carrier: Arc::downgrade(&carrier.sending),
                peer,
                shunned,
                datagrams: 0,
                since: Instant::now(),
            };
            if let Some(effort) = &effort {
                effort.judge_by(judging.into_judge(carrier.is_known.clone()));
            }
            carrier.windows = Some(Windows { receive: VarInt::from_u32(receive_window), send: send_window });
            carrier.of_use = place.take_use().map(Arc::new);
            tokio::select! {
                _ = hand_over.send(carrier) => {}
                _ = connection.closed() => {}
            }
            drop(place);
        });
        self.peers.set_task(key, task.abort_handle());
    }
}

/// Judges what a connection takes of a processor.
struct Judging {
    carrier: Weak<Sending>,
    /// The address that was shown in the handshake. Packets may come from others since, which may be made up.
    peer: IpAddr,
    shunned: Shunned,
    /// What came and went until it was judged last, and when that was.
    datagrams: u64,
    since: Instant,
}

impl Judging {
    /// A connection that takes too much for its datagrams is closed, and its address shunned. A stranger's is so once it is judged
    /// within a minute: his datagrams may be made up to pay for others, and to become known takes a few milliseconds.
    fn into_judge(mut self, is_known: Arc<AtomicBool>) -> impl FnMut(Option<Duration>) -> bool + Send + 'static {
        move |spent| {
            let sending = self.carrier.upgrade();
            let connection = sending.as_ref().map(|sending| sending.connection());
            let Some(connection) = connection.filter(|connection| connection.close_reason().is_none()) else {
                // It takes little to end.
                return spent.is_none();
            };
            let stats = connection.stats();
            let id_frames = stats.frame_rx.retire_connection_id + stats.frame_rx.new_connection_id;
            let is_flood = is_flood(id_frames, stats.udp_rx.datagrams);
            let spent = match spent {
                Some(spent) => spent,
                None if is_flood => Duration::ZERO,
                None => return true,
            };
            let datagrams = stats.udp_rx.datagrams + stats.udp_tx.datagrams;
            let handled = datagrams - std::mem::replace(&mut self.datagrams, datagrams);
            let since = std::mem::replace(&mut self.since, Instant::now());
            let is_busy = since.elapsed() < SHUNNED;
            if is_flood || (is_busy && !is_known.load(Ordering::Relaxed)) || !is_fair(spent, handled) {
                self.shunned.add(self.peer);
                connection.close(EXCESSIVE, b"");
            }
            true
        }
    }
}

/// A QUIC connection.
#[derive(Debug)]
pub struct QuicCarrier {
    connection: quinn::Connection,
    binding: Binding,
    /// Its address at the handshake: where it moves to since is not shown when this is asked for.
    peer: IpAddr,
    sending: Arc<Sending>,
    /// At a server, the most lanes at once that the device is to have, and how many it is allowed now.
    lanes: u32,
    allowed: AtomicU32,
    /// At a server, the windows once the device is known.
    windows: Option<Windows>,
    /// Whose it is has been shown.
    is_known: Arc<AtomicBool>,
    /// At a server, it is counted as long as it or one of its lanes is there.
    of_use: Option<Arc<OfUse>>,
}

/// What a device that is known may send, and what is sent to it ahead of its acknowledgments, in bytes.
#[derive(Clone, Copy, Debug)]
struct Windows {
    receive: VarInt,
    send: u64,
}

impl QuicCarrier {
    fn new(connection: quinn::Connection, peer: IpAddr, send_window: u64, lanes: u32) -> io::Result<Self> {
        let mut binding = [0; 32];
        connection
            .export_keying_material(&mut binding, EXPORTER_LABEL, b"")
            .map_err(|_| io::Error::other("TLS exported no binding"))?;
        let allowed = AtomicU32::new(lanes.min(LANES_FIRST));
        let sending = Arc::new(Sending::new(connection.clone(), send_window));
        let (binding, is_known) = (Binding(binding), Arc::default());
        Ok(Self { connection, binding, peer, sending, lanes, allowed, windows: None, is_known, of_use: None })
    }

    /// Allows the device twice as many lanes if it has half of those that it may have.
    fn allow_lanes(&self) {
        let (allowed, there) = (self.allowed.load(Ordering::Relaxed), Arc::strong_count(&self.sending) - 1);
        if allowed < self.lanes && there >= allowed as usize / 2 {
            let more = allowed.saturating_mul(2).min(self.lanes);
            self.allowed.store(more, Ordering::Relaxed);
            self.connection.set_max_concurrent_bi_streams(VarInt::from_u32(more));
        }
    }

    fn lane(&self, (stream, receive): (quinn::SendStream, quinn::RecvStream)) -> Lane {
        let sender = QuicSender::new(stream, self.sending.clone(), self.of_use.clone());
        let receiver = QuicReceiver { stream: receive, _of_use: self.of_use.clone() };
        Lane { sender: Box::new(sender), receiver: Box::new(receiver) }
    }

    /// The other end's address; it changes when a device moves.
    pub fn peer(&self) -> SocketAddr {
        self.connection.remote_address()
    }

    /// What QUIC has counted.
    pub fn stats(&self) -> ConnectionStats {
        self.connection.stats()
    }
}

impl Carrier for QuicCarrier {
    fn kind(&self) -> Kind {
        Kind::Quic
    }

    fn binding(&self) -> Binding {
        self.binding
    }

    fn peer(&self) -> Option<IpAddr> {
        Some(self.peer)
    }

    fn open(&self) -> Pending<'_, io::Result<Lane>> {
        Box::pin(async { Ok(self.lane(self.connection.open_bi().await.map_err(gone)?)) })
    }

    fn accept(&self) -> Pending<'_, io::Result<Lane>> {
        Box::pin(async {
            let lane = self.lane(self.connection.accept_bi().await.map_err(gone)?);
            self.allow_lanes();
            Ok(lane)
        })
    }

    fn rtt(&self) -> Option<Duration> {
        Some(self.connection.rtt())
    }

    fn silent(&self, limit: Duration) -> Pending<'_, ()> {
        let mut counted = Counted::default();
        Box::pin(until_silent(limit, || self.rtt(), move || counted.sample(&self.connection.stats())))
    }

    fn set_known(&self) {
        self.is_known.store(true, Ordering::Relaxed);
        if let Some(windows) = self.windows {
            self.connection.set_receive_window(windows.receive);
            self.sending.set_window(windows.send);
        }
    }

    fn closed(&self) -> Pending<'_, io::Error> {
        Box::pin(async { gone(self.connection.closed().await) })
    }

    fn close(&self) {
        self.connection.close(CODE, b"");
    }
}

/// What was counted at the last sample.
#[derive(Debug, Default)]
struct Counted {
    datagrams: u64,
    /// Frames that must be answered, sent until something was last heard.
    answered: u64,
}

impl Counted {
    fn sample(&mut self, stats: &ConnectionStats) -> Sample {
        let (datagrams, asked) = (stats.udp_rx.datagrams, asked(stats));
        let heard = datagrams != self.datagrams;
        if heard {
            *self = Self { datagrams, answered: asked };
        }
        Sample { heard, owed: asked > self.answered }
    }
}

/// Frames sent that the other end must acknowledge (RFC 9000 §13.2.1); without the probes for larger packets, which may well be lost. Loss probes count, which are
/// IMMEDIATE_ACKs (draft-ietf-quic-ack-frequency §5) to an end that knows these.
fn asked(stats: &ConnectionStats) -> u64 {
    let sent = &stats.frame_tx;
    let frames = [
        sent.stream,
        sent.ping,
        sent.reset_stream,
        sent.stop_sending,
        sent.max_data,
        sent.max_stream_data,
        sent.max_streams_bidi,
        sent.path_challenge,
    ];
    let probes = stats.path.sent_plpmtud_probes;
    // A probe for larger packets has one of each.
    frames.iter().sum::<u64>().saturating_sub(probes) + sent.immediate_ack.saturating_sub(probes)
}

/// Whether an attempt by QUIC failed, or a carrier of QUIC ended, by what a server said: that it has no room, or does not know the connection, as after its restart. Then QUIC passes.
pub fn is_answer(error: &io::Error) -> bool {
    let error = error.get_ref().and_then(|inner| inner.downcast_ref());
    error.is_some_and(|error| match error {
        ConnectionError::VersionMismatch
        | ConnectionError::TransportError(_)
        | ConnectionError::ConnectionClosed(_)
        | ConnectionError::ApplicationClosed(_)
        | ConnectionError::Reset => true,
        ConnectionError::TimedOut | ConnectionError::LocallyClosed | ConnectionError::CidsExhausted => false,
    })
}

#[derive(Debug)]
struct QuicReceiver {
    stream: quinn::RecvStream,
    _of_use: Option<Arc<OfUse>>,
}

impl LaneReceiver for QuicReceiver {
    fn receive(&mut self, most: usize) -> Pending<'_, io::Result<Option<Bytes>>> {
        Box::pin(async move {
            match self.stream.read_chunk(most, true).await {
                Ok(chunk) => Ok(chunk.map(|chunk| chunk.bytes)),
                Err(error) => Err(unread(error)),
            }
        })
    }

    fn receive_chunks<'a>(&'a mut self, chunks: &'a mut [Bytes]) -> Pending<'a, io::Result<Option<usize>>> {
        Box::pin(async move { self.stream.read_chunks(chunks).await.map_err(unread) })
    }
}

fn unread(error: ReadError) -> io::Error {
    match error {
        ReadError::ConnectionLost(error) => gone(error),
        _ => broken_off(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unproven_address_gets_only_a_retry_among_many_handshakes() {
        let limits = QuicLimits { retry_from: 2, handshakes: 4, connections: 10, ..QuicLimits::default() };
        assert_eq!(limits.admission(1, 9, false), Admission::Accept);
        assert_eq!(limits.admission(2, 9, false), Admission::Retry);
        assert_eq!(limits.admission(2, 9, true), Admission::Accept);
        for (handshakes, connections, shown) in
            [(4, 0, Admission::Accept), (0, 10, Admission::Refuse), (4, 10, Admission::Refuse)]
        {
            assert_eq!(limits.admission(handshakes, connections, false), Admission::Retry);
            assert_eq!(limits.admission(handshakes, connections, true), shown, "others make way, or there is no room");
        }
    }

    #[test]
    fn ten_of_the_largest_packets_fit_into_one_call() {
        assert!(10 * u32::from(MTU_MAX) < 65_507);
    }
}
