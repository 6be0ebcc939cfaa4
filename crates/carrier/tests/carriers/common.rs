//! Certificates, pairs of carriers, and bytes to send.

use bytes::Bytes;
use hoop_carrier::{
    BoundBy, Carrier, Lane, LaneReceiver, LaneSender, Local, QuicCarrier, QuicDevice, QuicLimits, QuicListener,
    QuicOptions, WebSocketCarrier, WebSocketDevice, WebSocketLimits, WebSocketListener, WebSocketOptions, device_tls,
    memory_pair, server_tls,
};
use hoop_flow::Binding;
use rustls::pki_types::PrivateKeyDer;
use std::future::Future;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::{Arc, LazyLock};
use std::time::Duration;
use tokio::net::UdpSocket;
use tokio::sync::watch;

/// What every test's server is called.
pub const NAME: &str = "carrier.test";

pub const V4: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);
pub const V6: IpAddr = IpAddr::V6(Ipv6Addr::LOCALHOST);

pub struct Tls {
    pub device: rustls::ClientConfig,
    pub server: rustls::ServerConfig,
}

pub static TLS: LazyLock<Tls> = LazyLock::new(|| {
    let made = rcgen::generate_simple_self_signed([NAME.to_owned()]).expect("a certificate");
    let certificate = made.cert.der().clone();
    let mut roots = rustls::RootCertStore::empty();
    roots.add(certificate.clone()).expect("a root");
    let key = PrivateKeyDer::try_from(made.signing_key.serialize_der()).expect("a key");
    Tls { device: device_tls(roots).expect("TLS"), server: server_tls(vec![certificate], key).expect("TLS") }
});

/// Hangs are failures: no test takes this long.
pub async fn soon<T>(work: impl Future<Output = T>) -> T {
    tokio::time::timeout(Duration::from_secs(60), work).await.expect("it hangs")
}

pub fn any_port(address: IpAddr) -> SocketAddr {
    SocketAddr::new(address, 0)
}

pub fn quic_listener(address: IpAddr, options: &QuicOptions, limits: QuicLimits) -> QuicListener {
    QuicListener::bind(any_port(address), &TLS.server, options, limits).expect("a listener")
}

pub fn quic_device(options: &QuicOptions) -> QuicDevice {
    QuicDevice::new(Local::default(), &TLS.device, options).expect("an endpoint")
}

pub async fn quic_pair(address: IpAddr) -> (QuicCarrier, QuicCarrier) {
    let (device, server) = quic_strangers(address).await;
    server.set_known();
    (device, server)
}

/// The server does not know yet whose the carrier is.
pub async fn quic_strangers(address: IpAddr) -> (QuicCarrier, QuicCarrier) {
    let listener = quic_listener(address, &QuicOptions::server(), QuicLimits::default());
    let device = quic_device(&QuicOptions::device());
    let (device, server) =
        tokio::join!(device.connect(listener.local_address().expect("an address"), NAME), listener.accept());
    (device.expect("a carrier"), server.expect("a carrier"))
}

pub async fn websocket_listener(
    address: IpAddr,
    options: &WebSocketOptions,
    limits: WebSocketLimits,
) -> WebSocketListener {
    let tls = Some(&TLS.server);
    WebSocketListener::bind(any_port(address), tls, options.clone(), limits).await.expect("a listener")
}

pub fn websocket_device(options: &WebSocketOptions) -> WebSocketDevice {
    WebSocketDevice::new(Local::default(), &TLS.device, options.clone(), None)
}

pub async fn websocket_pair(address: IpAddr, options: &WebSocketOptions) -> (WebSocketCarrier, WebSocketCarrier) {
    let (device, server) = websocket_strangers(address, options).await;
    server.set_known();
    (device, server)
}

/// The server does not know yet whose the carrier is.
pub async fn websocket_strangers(address: IpAddr, options: &WebSocketOptions) -> (WebSocketCarrier, WebSocketCarrier) {
    let listener = websocket_listener(address, options, WebSocketLimits::default()).await;
    let device = websocket_device(options);
    let (device, server) =
        soon(async { tokio::join!(device.connect(listener.local_address(), NAME), listener.accept()) }).await;
    (device.expect("a carrier"), server.expect("a carrier"))
}

pub type Pair = (String, Box<dyn Carrier>, Box<dyn Carrier>);

fn pair(name: &str, (device, server): (impl Carrier + 'static, impl Carrier + 'static)) -> Pair {
    (name.to_owned(), Box::new(device), Box::new(server))
}

/// So that a test need not wait long for a lane to be broken off whose reader sleeps.
pub fn patient() -> WebSocketOptions {
    WebSocketOptions { patience: Duration::from_millis(300), ..WebSocketOptions::default() }
}

/// The device's end and the server's end, of each kind.
pub async fn pairs() -> Vec<Pair> {
    vec![
        pair("memory", memory_pair(Binding([7; 32]))),
        pair("QUIC, IPv4", quic_pair(V4).await),
        pair("QUIC, IPv6", quic_pair(V6).await),
        pair("WebSocket, IPv4", websocket_pair(V4, &patient()).await),
        pair(
            "WebSocket, IPv6, nonces",
            websocket_pair(V6, &WebSocketOptions { bound_by: BoundBy::Nonces, ..patient() }).await,
        ),
    ]
}

/// As many bytes as anyone likes, another sequence for each seed, whose period is no power of two.
#[derive(Clone)]
pub struct Pattern {
    block: Bytes,
    at: usize,
}

const PERIOD: usize = 65_521;

impl Pattern {
    pub fn new(seed: u8) -> Self {
        let block: Vec<u8> =
            (0..2 * PERIOD).map(|at| ((at % PERIOD).wrapping_mul(2_654_435_761) >> 7) as u8 ^ seed).collect();
        Self { block: block.into(), at: 0 }
    }

    pub fn take(&mut self, len: usize) -> Bytes {
        assert!(len <= PERIOD);
        let bytes = self.block.slice(self.at..self.at + len);
        self.at = (self.at + len) % PERIOD;
        bytes
    }
}

/// Sends so many bytes as a flow does, a short chunk and a long one at a time, and finishes.
pub async fn pour(mut sender: Box<dyn LaneSender>, seed: u8, total: usize) {
    let mut bytes = Pattern::new(seed);
    let mut left = total;
    while left > 0 {
        let (head, body) = (left.min(11), left.saturating_sub(11).min(PERIOD));
        sender.send(&mut [bytes.take(head), bytes.take(body)]).await.expect("it is taken");
        left -= head + body;
    }
    sender.finish().await.expect("it is finished");
}

/// Receives until the end, and checks each byte.
pub async fn drain(mut receiver: Box<dyn LaneReceiver>, seed: u8, total: usize) {
    let mut bytes = Pattern::new(seed);
    let mut came = 0;
    while let Some(piece) = receiver.receive(60_000).await.expect("it comes") {
        assert!(!piece.is_empty() && piece.len() <= 60_000);
        assert!(piece == bytes.take(piece.len()), "a byte of the {} after {came} is wrong", piece.len());
        came += piece.len();
    }
    assert_eq!(came, total);
}

/// A lane that both ends have; the device has said one byte on it.
pub async fn lane(device: &dyn Carrier, server: &dyn Carrier) -> (Lane, Lane) {
    let mut ours = device.open().await.expect("a lane");
    ours.sender.send(&mut [Bytes::from_static(b"!")]).await.expect("it is taken");
    let mut theirs = server.accept().await.expect("a lane");
    assert_eq!(theirs.receiver.receive(9).await.expect("it comes").as_deref(), Some(&b"!"[..]));
    (ours, theirs)
}

/// A way for UDP that can be shut: what device and server send each other is then dropped.
pub struct Way {
    pub address: SocketAddr,
    open: watch::Sender<bool>,
}

impl Way {
    pub async fn to(server: SocketAddr) -> Self {
        Self::late(server, Duration::ZERO).await
    }

    /// Each packet is sent on so much later.
    pub async fn late(server: SocketAddr, delay: Duration) -> Self {
        let front = Arc::new(UdpSocket::bind(any_port(V4)).await.expect("a socket"));
        let back = Arc::new(UdpSocket::bind(any_port(V4)).await.expect("a socket"));
        let (open, is_open) = watch::channel(true);
        let address = front.local_addr().expect("an address");
        tokio::spawn(async move {
            let (mut out, mut home) = (vec![0; 65_536], vec![0; 65_536]);
            let mut device = None;
            loop {
                let (len, from, there) = tokio::select! {
                    Ok((len, from)) = front.recv_from(&mut out) => (len, from, true),
                    Ok((len, from)) = back.recv_from(&mut home) => (len, from, false),
                };
                if there {
                    device = Some(from);
                }
                if !*is_open.borrow() {
                    continue;
                }
                let (socket, packet, to) = match (there, device) {
                    (true, _) => (back.clone(), out[..len].to_vec(), server),
                    (false, Some(device)) => (front.clone(), home[..len].to_vec(), device),
                    (false, None) => continue,
                };
                if delay.is_zero() {
                    let _ = socket.send_to(&packet, to).await;
                    continue;
                }
                tokio::spawn(async move {
                    tokio::time::sleep(delay).await;
                    let _ = socket.send_to(&packet, to).await;
                });
            }
        });
        Self { address, open }
    }

    pub fn shut(&self) {
        self.open.send_replace(false);
    }

    pub fn reopen(&self) {
        self.open.send_replace(true);
    }
}
