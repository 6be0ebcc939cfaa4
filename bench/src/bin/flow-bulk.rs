//! Bytes over one flow, and over one lane of its carrier, beside what carries them: QUIC beside quinn with the same settings, WebSocket beside tokio-rustls over TCP.
//!
//! Two processes on loopback, one thread each, rivals in turns. A sender gives 64 KiB at a time, a lane's with a head, as flows do. `--megabytes N` goes over in each pass (default 2,000: most of a second).

use bytes::Bytes;
use hoop_bench::flows::{NAME, make_certificate, tls_of_device, tls_of_server};
use hoop_bench::{Table, Verdict, median, number, rounds, spread, wait_usage, word};
use hoop_carrier::{
    Carrier, Lane, LaneReceiver, LaneSender, Local, MTU_MAX, QUIC_ALPN, QuicDevice, QuicLimits, QuicListener,
    QuicOptions, WebSocketDevice, WebSocketLimits, WebSocketListener, WebSocketOptions,
};
use hoop_endpoint::{Device, DeviceConfig, DeviceId, DeviceKey, FlowOptions, FlowStream, Server, ServerConfig, Use};
use quinn::crypto::rustls::{QuicClientConfig, QuicServerConfig};
use quinn::{EndpointConfig, MtuDiscoveryConfig, TokioRuntime, TransportConfig, VarInt};
use std::collections::HashMap;
use std::io::{BufRead as _, BufReader, Read as _};
use std::net::{SocketAddr, UdpSocket};
use std::path::Path;
use std::process::{Command, ExitCode, Stdio};
use std::sync::Arc;
use std::time::Instant;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::{TlsAcceptor, TlsConnector};

const HEAD: usize = 11;
const BODY: usize = 64 * 1024;
const ANY: &str = "127.0.0.1:0";

/// A device's socket is of both families, as that of its carriers.
const ANY_OF_BOTH: &str = "[::]:0";

/// Of a lane or a flow: at least so much of the rate of what carries it, and at most so much of its work.
const QUIC_RATE_MIN: f64 = 0.9;
const QUIC_WORK_MAX: f64 = 1.1;
const WEBSOCKET_RATE_MIN: f64 = 0.85;

const QUIC_LANE: &str = "lane of QUIC";
const QUIC_FLOW: &str = "flow over QUIC";
const WEBSOCKET_LANE: &str = "lane of WebSocket";
const WEBSOCKET_FLOW: &str = "flow over WebSocket";

/// What of free memory glibc keeps, of every kind, as in `hoop relay` and `hoop run`: otherwise chance decides, in each process anew, whether it gives back what is wanted again at once.
const TRIM_THRESHOLD: &str = "8388608";

/// No copies by `rep movsb`. AMD's Zen 3 and 4 copy thirty times slower so where source and destination lie 1 to 15 bytes apart within their pages, which chance decides in each process
/// (<https://sourceware.org/bugzilla/show_bug.cgi?id=30994>); glibc 2.40 leaves it by itself. The units of services do the same.
const TUNABLES: &str = "glibc.cpu.x86_rep_movsb_threshold=0x40000000";

/// What carries, a lane of it, and a flow over it.
const KINDS: [&str; 6] = ["quinn", QUIC_LANE, QUIC_FLOW, "TLS", WEBSOCKET_LANE, WEBSOCKET_FLOW];

fn main() -> ExitCode {
    match word("--role") {
        None => conduct(),
        Some(role) => {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
            runtime.block_on(take_part(&role));
            ExitCode::SUCCESS
        }
    }
}

// The conductor.

#[derive(Clone, Copy)]
struct Pass {
    mb_per_s: f64,
    cpu_s_per_gb: f64,
}

fn conduct() -> ExitCode {
    let folder = tempfile::tempdir().expect("a folder");
    make_certificate(folder.path());
    let mut verdict = Verdict::default();
    let mut table = Table::new([
        "way",
        "what",
        "MB/s, median",
        "min-max",
        "of its rival",
        "limit",
        "CPU s/GB, both ends",
        "of its rival",
        "limit",
    ]);
    for way in ["down", "up"] {
        let mut passes: [Vec<Pass>; KINDS.len()] = Default::default();
        for round in 0..rounds() {
            for turn in 0..KINDS.len() {
                let at = (turn + round) % KINDS.len();
                passes[at].push(pass(folder.path(), KINDS[at], way));
            }
        }
        for (at, kind) in KINDS.iter().enumerate() {
            let rates: Vec<f64> = passes[at].iter().map(|pass| pass.mb_per_s).collect();
            let works: Vec<f64> = passes[at].iter().map(|pass| pass.cpu_s_per_gb).collect();
            let rival = &passes[at / 3 * 3];
            let ratio = |of: fn(&Pass) -> f64| {
                median(&passes[at].iter().zip(rival).map(|(own, rival)| of(own) / of(rival)).collect::<Vec<_>>())
            };
            let (rate, work) = (ratio(|pass| pass.mb_per_s), ratio(|pass| pass.cpu_s_per_gb));
            let (rate_limit, work_limit) = match *kind {
                QUIC_LANE | QUIC_FLOW => {
                    verdict.at_least(&format!("{kind} {way}, rate"), rate, QUIC_RATE_MIN);
                    verdict.at_most(&format!("{kind} {way}, CPU"), work, QUIC_WORK_MAX);
                    (QUIC_RATE_MIN.to_string(), QUIC_WORK_MAX.to_string())
                }
                WEBSOCKET_LANE | WEBSOCKET_FLOW => {
                    verdict.at_least(&format!("{kind} {way}, rate"), rate, WEBSOCKET_RATE_MIN);
                    (WEBSOCKET_RATE_MIN.to_string(), String::new())
                }
                _ => (String::new(), String::new()),
            };
            let (low, high) = spread(&rates);
            table.row([
                way.into(),
                (*kind).into(),
                format!("{:.0}", median(&rates)),
                format!("{low:.0}-{high:.0}"),
                format!("{rate:.2}"),
                rate_limit,
                format!("{:.2}", median(&works)),
                format!("{work:.2}"),
                work_limit,
            ]);
        }
    }
    println!("{}", table.render());
    verdict.exit()
}

/// A server and a device, each a process.
fn pass(folder: &Path, kind: &str, way: &str) -> Pass {
    let part = |role: &str, port: u16| {
        let mut command = Command::new(std::env::current_exe().expect("this program has a path"));
        command.args(["--role", role, "--kind", kind, "--way", way, "--port", &port.to_string()]);
        command.args(["--megabytes", &megabytes().to_string(), "--folder"]).arg(folder);
        command.env("MALLOC_TRIM_THRESHOLD_", TRIM_THRESHOLD).env("GLIBC_TUNABLES", TUNABLES);
        command.stdout(Stdio::piped()).spawn().expect("it starts")
    };
    let mut server = part("server", 0);
    let mut server_says = BufReader::new(server.stdout.take().expect("a pipe"));
    let mut line = String::new();
    server_says.read_line(&mut line).expect("a port");
    let mut device = part("device", line.trim().parse().expect("a port"));
    let mut said = String::new();
    device.stdout.take().expect("a pipe").read_to_string(&mut said).expect("it ends");
    server_says.read_to_string(&mut said).expect("it ends");
    let (device, server) = (wait_usage(device).expect("it ends"), wait_usage(server).expect("it ends"));
    assert!(device.status.success() && server.status.success(), "{kind} {way}: {said}");
    let secs: f64 = said.trim().parse().expect("the receiver says how long it took");
    let gigabytes = megabytes() as f64 / 1e3;
    Pass { mb_per_s: megabytes() as f64 / secs, cpu_s_per_gb: (device.cpu + server.cpu).as_secs_f64() / gigabytes }
}

fn megabytes() -> u64 {
    number("--megabytes").unwrap_or(2_000).max(1)
}

fn total() -> usize {
    megabytes() as usize * 1_000_000
}

// The parts.

fn tell(address: SocketAddr) {
    println!("{}", address.port());
}

async fn take_part(role: &str) {
    let is_server = role == "server";
    let sends = is_server == (word("--way").as_deref() == Some("down"));
    let server = SocketAddr::from(([127, 0, 0, 1], number("--port").expect("a port") as u16));
    match (&word("--kind").expect("a kind")[..], is_server) {
        ("quinn", true) => quinn_server(sends).await,
        ("quinn", false) => quinn_device(sends, server).await,
        (kind @ (QUIC_LANE | QUIC_FLOW), true) => {
            let options = QuicOptions::server();
            let any = ANY.parse().expect("an address");
            let listener =
                QuicListener::bind(any, &tls_of_server(), &options, QuicLimits::default()).expect("a listener");
            tell(listener.local_address().expect("an address"));
            serve(kind, Arc::new(listener.accept().await.expect("a carrier")), sends).await;
            listener.close().await;
        }
        (kind @ (QUIC_LANE | QUIC_FLOW), false) => {
            let device =
                QuicDevice::new(Local::default(), &tls_of_device(), &QuicOptions::device()).expect("an endpoint");
            take(kind, Arc::new(device.connect(server, NAME).await.expect("a carrier")), sends).await;
            device.drained().await;
        }
        (kind @ (WEBSOCKET_LANE | WEBSOCKET_FLOW), true) => {
            let (any, options) = (ANY.parse().expect("an address"), WebSocketOptions::default());
            let tls = tls_of_server();
            let listener = WebSocketListener::bind(any, Some(&tls), options, WebSocketLimits::default());
            let listener = listener.await.expect("a listener");
            tell(listener.local_address());
            serve(kind, Arc::new(listener.accept().await.expect("a carrier")), sends).await;
        }
        (kind @ (WEBSOCKET_LANE | WEBSOCKET_FLOW), false) => {
            let device = WebSocketDevice::new(Local::default(), &tls_of_device(), WebSocketOptions::default(), None);
            take(kind, Arc::new(device.connect(server, NAME).await.expect("a carrier")), sends).await;
        }
        (_, true) => tls_server(sends).await,
        (_, false) => tls_device(sends, server).await,
    }
}

/// A lane or a flow, at the server.
async fn serve(kind: &str, carrier: Arc<dyn Carrier>, sends: bool) {
    match kind {
        QUIC_FLOW | WEBSOCKET_FLOW => serve_flow(carrier, sends).await,
        _ => serve_lane(&*carrier, sends).await,
    }
}

/// The same at the device.
async fn take(kind: &str, carrier: Arc<dyn Carrier>, sends: bool) {
    match kind {
        QUIC_FLOW | WEBSOCKET_FLOW => use_flow(carrier.clone(), sends).await,
        _ => use_lane(&*carrier, sends).await,
    }
    carrier.close();
}

/// The pieces that a sender gives, each behind so long a head.
fn pieces(head: usize) -> impl Iterator<Item = [Bytes; 2]> {
    let block = Bytes::from(vec![7; head + BODY]);
    let mut left = total();
    std::iter::from_fn(move || {
        let len = left.min(head + BODY);
        left -= len;
        let head = len.min(head);
        (len > 0).then(|| [block.slice(..head), block.slice(head..len)])
    })
}

/// Says how long it took from the first byte to the last.
struct Count {
    begin: Option<Instant>,
    came: usize,
}

impl Count {
    fn new() -> Self {
        Self { begin: None, came: 0 }
    }

    fn add(&mut self, len: usize) {
        self.begin.get_or_insert_with(Instant::now);
        self.came += len;
    }

    fn tell(&self) {
        assert_eq!(self.came, total(), "all of it comes");
        println!("{}", self.begin.expect("something came").elapsed().as_secs_f64());
    }
}

async fn pour(sender: &mut Box<dyn LaneSender>) {
    for mut chunks in pieces(HEAD) {
        sender.send(&mut chunks).await.expect("it is taken");
    }
    sender.finish().await.expect("it is finished");
}

async fn drain(receiver: &mut Box<dyn LaneReceiver>) {
    let mut count = Count::new();
    while let Some(bytes) = receiver.receive(BODY).await.expect("it comes") {
        count.add(bytes.len());
    }
    count.tell();
}

/// The bytes one way; then the other end says that it has them by ending its own.
async fn carry(mut lane: Lane, sends: bool) {
    if sends {
        pour(&mut lane.sender).await;
        let _ = lane.receiver.receive(1).await;
    } else {
        drain(&mut lane.receiver).await;
        lane.sender.finish().await.expect("it is finished");
    }
}

async fn serve_lane(carrier: &dyn Carrier, sends: bool) {
    carrier.set_known();
    let mut lane = carrier.accept().await.expect("a lane");
    lane.receiver.receive(1).await.expect("it begins");
    carry(lane, sends).await;
    if !sends {
        carrier.closed().await;
    }
}

async fn use_lane(carrier: &dyn Carrier, sends: bool) {
    let mut lane = carrier.open().await.expect("a lane");
    lane.sender.send(&mut [Bytes::from_static(b"!")]).await.expect("it is taken");
    carry(lane, sends).await;
    if !sends {
        carrier.closed().await;
    }
}

// Flows.

const HOST: DeviceId = DeviceId([1; 20]);
const KEY: DeviceKey = DeviceKey([2; 32]);

async fn serve_flow(carrier: Arc<dyn Carrier>, sends: bool) {
    let server = Server::new(ServerConfig::new(Arc::new(HashMap::from([(HOST, KEY)]))));
    server.serve(carrier.clone(), "lo");
    let flow = server.accept().await.expect("a flow");
    carry_flow(flow, sends).await;
    // The device says when both have all.
    carrier.closed().await;
}

async fn use_flow(carrier: Arc<dyn Carrier>, sends: bool) {
    let device = Device::new(DeviceConfig::new(HOST, KEY));
    device.add_carrier(carrier, Use::Normal, "lo");
    let flow = device.open("bulk", FlowOptions::default()).expect("a flow");
    carry_flow(flow, sends).await;
}

async fn carry_flow(mut flow: FlowStream, sends: bool) {
    if sends {
        let block = Bytes::from(vec![7; BODY]);
        let mut left = total();
        while left > 0 {
            let len = left.min(BODY);
            flow.write_chunk(block.slice(..len)).await.expect("it is taken");
            left -= len;
        }
        flow.shutdown().await.expect("it is finished");
        while flow.read_chunk(BODY).await.expect("it ends").is_some() {}
        return flow.finished().await.expect("it has come");
    }
    let mut count = Count::new();
    while let Some(bytes) = flow.read_chunk(BODY).await.expect("it comes") {
        count.add(bytes.len());
    }
    count.tell();
    flow.shutdown().await.expect("it is finished");
    flow.finished().await.expect("it has come");
}

// quinn itself, with the carrier's settings.

fn quinn_settings(options: &QuicOptions) -> (EndpointConfig, TransportConfig) {
    let mut endpoint = EndpointConfig::default();
    endpoint.max_udp_payload_size(MTU_MAX).expect("a size");
    let (mut discovery, mut transport) = (MtuDiscoveryConfig::default(), TransportConfig::default());
    discovery.upper_bound(MTU_MAX);
    transport
        .mtu_discovery_config(Some(discovery))
        .send_window(options.send_window)
        .stream_receive_window(VarInt::from_u32(options.lane_window))
        .receive_window(VarInt::from_u32(options.receive_window));
    (endpoint, transport)
}

fn quinn_endpoint(config: EndpointConfig, server: Option<quinn::ServerConfig>) -> quinn::Endpoint {
    let any = if server.is_some() { ANY } else { ANY_OF_BOTH };
    let socket = socket2::Socket::from(UdpSocket::bind(any).expect("a socket"));
    let _ = socket.set_recv_buffer_size(2 << 20);
    let _ = socket.set_send_buffer_size(2 << 20);
    quinn::Endpoint::new(config, server, socket.into(), Arc::new(TokioRuntime)).expect("an endpoint")
}

async fn quinn_server(sends: bool) {
    let (config, transport) = quinn_settings(&QuicOptions::server());
    let mut tls = tls_of_server();
    tls.alpn_protocols = vec![QUIC_ALPN.to_vec()];
    let mut server = quinn::ServerConfig::with_crypto(Arc::new(QuicServerConfig::try_from(tls).expect("TLS")));
    server.transport_config(Arc::new(transport));
    let endpoint = quinn_endpoint(config, Some(server));
    tell(endpoint.local_addr().expect("an address"));
    let connection = endpoint.accept().await.expect("a packet").await.expect("a connection");
    let (send, mut receive) = connection.accept_bi().await.expect("a stream");
    receive.read_chunk(1, true).await.expect("it begins");
    quinn_carry(&connection, send, receive, sends).await;
    drop(connection);
    endpoint.wait_idle().await;
}

async fn quinn_device(sends: bool, server: SocketAddr) {
    let (config, transport) = quinn_settings(&QuicOptions::device());
    let mut tls = tls_of_device();
    tls.alpn_protocols = vec![QUIC_ALPN.to_vec()];
    let mut client = quinn::ClientConfig::new(Arc::new(QuicClientConfig::try_from(tls).expect("TLS")));
    client.transport_config(Arc::new(transport));
    let endpoint = quinn_endpoint(config, None);
    let connection = endpoint.connect_with(client, server, NAME).expect("a way").await.expect("a connection");
    let (mut send, receive) = connection.open_bi().await.expect("a stream");
    send.write_all(b"!").await.expect("it is taken");
    quinn_carry(&connection, send, receive, sends).await;
    drop(connection);
    endpoint.wait_idle().await;
}

async fn quinn_carry(
    connection: &quinn::Connection,
    mut send: quinn::SendStream,
    mut receive: quinn::RecvStream,
    sends: bool,
) {
    if sends {
        for mut chunks in pieces(0) {
            send.write_all_chunks(&mut chunks).await.expect("it is taken");
        }
        send.finish().expect("it is finished");
        let _ = receive.read_chunk(1, true).await;
        return;
    }
    let mut count = Count::new();
    while let Some(chunk) = receive.read_chunk(BODY, true).await.expect("it comes") {
        count.add(chunk.bytes.len());
    }
    count.tell();
    send.finish().expect("it is finished");
    connection.closed().await;
}

// TLS over TCP itself.

async fn tls_server(sends: bool) {
    let listener = TcpListener::bind(ANY).await.expect("a listener");
    tell(listener.local_addr().expect("an address"));
    let tcp = listener.accept().await.expect("a connection").0;
    tcp.set_nodelay(true).expect("an option");
    let stream = TlsAcceptor::from(Arc::new(tls_of_server())).accept(tcp).await.expect("TLS");
    tls_carry(stream, sends).await;
}

async fn tls_device(sends: bool, server: SocketAddr) {
    let tcp = TcpStream::connect(server).await.expect("a connection");
    tcp.set_nodelay(true).expect("an option");
    let connector = TlsConnector::from(Arc::new(tls_of_device()));
    let stream = connector.connect(NAME.try_into().expect("a name"), tcp).await.expect("TLS");
    tls_carry(stream, sends).await;
}

async fn tls_carry(mut stream: impl tokio::io::AsyncRead + tokio::io::AsyncWrite + Unpin, sends: bool) {
    if sends {
        let block = vec![7; BODY];
        let mut left = total();
        while left > 0 {
            let len = left.min(block.len());
            stream.write_all(&block[..len]).await.expect("it is taken");
            left -= len;
        }
        stream.shutdown().await.expect("it is finished");
        let _ = stream.read(&mut [0]).await;
        return;
    }
    let (mut count, mut buffer) = (Count::new(), vec![0; BODY]);
    loop {
        match stream.read(&mut buffer).await.expect("it comes") {
            0 => break,
            len => count.add(len),
        }
    }
    count.tell();
    stream.shutdown().await.expect("it is finished");
}
