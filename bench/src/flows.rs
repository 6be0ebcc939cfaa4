//! Both ends of flows as processes in a lab: what the benchmarks of flows share.
//!
//! A conductor builds the lab and starts itself again in its hosts, with `--role`. What the processes say to each other goes over standard input and output, a line each.

use crate::word;
use bytes::Bytes;
use hoop_carrier::{
    Carrier, Local, QuicDevice, QuicLimits, QuicListener, QuicOptions, WebSocketDevice, WebSocketLimits,
    WebSocketListener, WebSocketOptions, device_tls, server_tls,
};
use hoop_endpoint::{Device, DeviceConfig, DeviceId, DeviceKey, FlowOptions, FlowStream, Server, ServerConfig};
use hoop_lab::Lab;
use rustls::RootCertStore;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use std::collections::HashMap;
use std::io::{BufRead as _, BufReader, Write as _};
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, mpsc};
use std::time::Duration;
use tokio::io::AsyncWriteExt as _;
use tokio::net::UdpSocket;

/// What the server's certificate is for.
pub const NAME: &str = "server.test";

/// Where it listens: UDP for QUIC, TCP for WebSocket.
pub const PORT: u16 = 4433;

/// Where it sends datagrams back.
pub const ECHO_PORT: u16 = 4434;

const HOST: DeviceId = DeviceId([1; 20]);
const KEY: DeviceKey = DeviceKey([2; 32]);

/// What a source writes at once.
const BLOCK: usize = 64 * 1024;

/// What a trickle writes, and how often.
const DROP: usize = 1_000;
const DROP_EVERY: Duration = Duration::from_millis(20);

/// Makes the server's certificate in `folder`.
pub fn make_certificate(folder: &Path) {
    hoop_testbed::Certificates::make(folder, &[NAME]).expect("certificates");
}

/// This program again in a host of the lab, as `--role ROLE` and with further arguments.
pub struct Part {
    child: Child,
    lines: mpsc::Receiver<String>,
}

impl Part {
    /// Starts it.
    pub fn start(lab: &Lab, host: &str, role: &str, folder: &Path, arguments: &[&str]) -> Self {
        Self::of(lab.command(host, this_program()), role, folder, arguments)
    }

    /// Starts it outside of any lab.
    pub fn beside(role: &str, folder: &Path, arguments: &[&str]) -> Self {
        Self::of(Command::new(this_program()), role, folder, arguments)
    }

    fn of(mut command: Command, role: &str, folder: &Path, arguments: &[&str]) -> Self {
        command.args(["--role", role, "--folder"]).arg(folder).args(arguments);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("it starts");
        let stdout = BufReader::new(child.stdout.take().expect("a pipe"));
        let (sender, lines) = mpsc::channel();
        // It ends with the process, whose only output this is.
        std::thread::spawn(move || stdout.lines().map_while(Result::ok).try_for_each(|line| sender.send(line)));
        Self { child, lines }
    }

    /// The process's number.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// The next line that it says; none once it has ended.
    pub fn hear(&mut self) -> Option<String> {
        self.lines.recv().ok()
    }

    /// The next line that it says within that time.
    ///
    /// # Errors
    /// Whether it says nothing yet, or has ended.
    pub fn hear_within(&self, most: Duration) -> Result<String, mpsc::RecvTimeoutError> {
        self.lines.recv_timeout(most)
    }

    /// What follows `word` in the next line, which must begin with it.
    pub fn expect(&mut self, word: &str) -> String {
        let line = self.hear().unwrap_or_else(|| panic!("it ends, and never says {word}"));
        line.strip_prefix(word).unwrap_or_else(|| panic!("it says {line}, and not {word}")).trim().to_owned()
    }

    /// Says a line to it.
    pub fn say(&mut self, line: &str) {
        writeln!(self.child.stdin.as_mut().expect("a pipe"), "{line}").expect("it listens");
    }
}

impl Drop for Part {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn this_program() -> PathBuf {
    std::env::current_exe().expect("this program has a path")
}

/// Waits for a line of the conductor's.
pub async fn told() -> String {
    let line = tokio::task::spawn_blocking(|| {
        let mut line = String::new();
        std::io::stdin().read_line(&mut line).map(|_| line)
    });
    line.await.expect("it is read").expect("a line").trim().to_owned()
}

fn path(name: &str) -> PathBuf {
    Path::new(&word("--folder").expect("a folder")).join(name)
}

/// What a device trusts, in PEM.
pub fn authority() -> String {
    std::fs::read_to_string(path("ca.pem")).expect("a file")
}

/// The device's TLS.
pub fn tls_of_device() -> rustls::ClientConfig {
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_file(path("ca.pem")).expect("a certificate")).expect("a root");
    device_tls(roots).expect("TLS")
}

/// The server's TLS.
pub fn tls_of_server() -> rustls::ServerConfig {
    let chain = vec![CertificateDer::from_pem_file(path("certificate.pem")).expect("a certificate")];
    server_tls(chain, PrivateKeyDer::from_pem_file(path("key.pem")).expect("a key")).expect("TLS")
}

/// Takes carriers of both kinds and answers flows, for ever; says `ready` first. Also sends back datagrams at [`ECHO_PORT`].
///
/// Services: `bulk`, bytes without end; `trickle`, a thousand fifty times a second; `source:N`, so many bytes; `sink`, which says how many came; `timed-sink`, which says that and the longest gap;
/// `echo`, which sends back what comes.
pub async fn serve(options: FlowOptions, quic: &QuicOptions) {
    let (any, tls) = (SocketAddr::from((Ipv4Addr::UNSPECIFIED, PORT)), tls_of_server());
    let quic = QuicListener::bind(any, &tls, quic, QuicLimits::default()).expect("a listener");
    let (settings, limits) = (WebSocketOptions::default(), WebSocketLimits::default());
    let websocket = WebSocketListener::bind(any, Some(&tls), settings, limits).await.expect("a listener");
    let mut config = ServerConfig::new(Arc::new(HashMap::from([(HOST, KEY)])));
    config.options = options;
    let server = Server::new(config);
    tokio::spawn(echo());
    println!("ready");
    loop {
        let carrier: Arc<dyn Carrier> = tokio::select! {
            carrier = quic.accept() => Arc::new(carrier.expect("a carrier")),
            carrier = websocket.accept() => Arc::new(carrier.expect("a carrier")),
            Some(flow) = server.accept() => {
                tokio::spawn(answer(flow));
                continue;
            }
        };
        server.serve(carrier, "lab");
    }
}

async fn echo() {
    let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, ECHO_PORT)).await.expect("a socket");
    let mut datagram = [0; 64];
    while let Ok((len, from)) = socket.recv_from(&mut datagram).await {
        let _ = socket.send_to(&datagram[..len], from).await;
    }
}

/// A flow that breaks off has its device gone: nobody is left to be told.
async fn answer(mut flow: FlowStream) {
    let service = flow.service().to_owned();
    let (what, number) = service.split_once(':').unwrap_or((&service, ""));
    let _ = match what {
        "bulk" => give(&mut flow, usize::MAX).await,
        "trickle" => loop {
            if let Err(error) = flow.write_all(&[7; DROP]).await {
                break Err(error);
            }
            tokio::time::sleep(DROP_EVERY).await;
        },
        "source" => give(&mut flow, number.parse().expect("a number")).await,
        "sink" | "timed-sink" => count(&mut flow, what == "timed-sink").await,
        "echo" => send_back(&mut flow).await,
        other => panic!("there is no service {other}"),
    };
}

/// Writes so many bytes, and ends the stream.
pub async fn give(flow: &mut FlowStream, mut left: usize) -> std::io::Result<()> {
    let block = Bytes::from(vec![7; BLOCK]);
    while left > 0 {
        let len = left.min(BLOCK);
        flow.write_chunk(block.slice(..len)).await?;
        left -= len;
    }
    flow.shutdown().await?;
    flow.finished().await
}

/// Says how many bytes came; if it is timed, also the longest time in which none did, in microseconds.
async fn count(flow: &mut FlowStream, timed: bool) -> std::io::Result<()> {
    let (mut count, mut gap, mut last) = (0_u64, Duration::ZERO, None);
    while let Some(chunk) = flow.read_chunk(BLOCK).await? {
        if chunk.is_empty() {
            break;
        }
        count += chunk.len() as u64;
        let now = std::time::Instant::now();
        gap = last.map_or(gap, |last| gap.max(now - last));
        last = Some(now);
    }
    flow.write_u64(count).await?;
    if timed {
        flow.write_u64(gap.as_micros() as u64).await?;
    }
    flow.shutdown().await?;
    flow.finished().await
}

async fn send_back(flow: &mut FlowStream) -> std::io::Result<()> {
    while let Some(chunk) = flow.read_chunk(BLOCK).await?.filter(|chunk| !chunk.is_empty()) {
        flow.write_chunk(chunk).await?;
    }
    flow.shutdown().await?;
    flow.finished().await
}

/// Whether a part is to download (`--way down`).
pub fn is_download() -> bool {
    word("--way").expect("a way") == "down"
}

/// The links that a part is to use, and the server's address on each: `--servers a=10.0.0.2,b=10.0.1.2`.
pub fn servers() -> Vec<(String, Ipv4Addr)> {
    let servers = word("--servers").expect("addresses");
    let pair = |pair: &str| {
        let (link, address) = pair.split_once('=').expect("a link and an address");
        (link.to_owned(), address.parse().expect("an address"))
    };
    servers.split(',').map(pair).collect()
}

/// A device without carriers.
pub fn device() -> Device {
    Device::new(DeviceConfig::new(HOST, KEY))
}

/// What [`hoop_relay::Link`] is told of the server at `address`.
pub fn introduction(address: Ipv4Addr) -> hoop_relay::Introduction {
    hoop_relay::Introduction {
        server: format!("{NAME}:{PORT}"),
        addresses: vec![address.into()],
        host: "01".repeat(20),
        key: "02".repeat(32),
        certificate: Some(authority()),
        front: None,
        front_certificate: None,
    }
}

/// The way out by an interface, which is called as its link is.
pub fn by(link: &str) -> Local {
    Local { interface: Some(link.to_owned()), ..Local::default() }
}

/// A new carrier of QUIC over `link`, from a fresh socket.
pub async fn quic(link: &str, server: Ipv4Addr, options: &QuicOptions) -> Arc<dyn Carrier> {
    let device = QuicDevice::new(by(link), &tls_of_device(), options).expect("an endpoint");
    Arc::new(device.connect((server, PORT).into(), NAME).await.expect("a carrier"))
}

/// A new carrier of WebSocket over `link`.
pub async fn websocket(link: &str, server: Ipv4Addr) -> Arc<dyn Carrier> {
    let device = WebSocketDevice::new(by(link), &tls_of_device(), WebSocketOptions::default(), None);
    Arc::new(device.connect((server, PORT).into(), NAME).await.expect("a carrier"))
}

/// The round trip to the server by datagrams over an idle link, in milliseconds: the median of eleven.
pub async fn ping(server: Ipv4Addr) -> f64 {
    let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)).await.expect("a socket");
    socket.connect((server, ECHO_PORT)).await.expect("a way");
    let mut round_trips = Vec::new();
    while round_trips.len() < 11 {
        let begin = std::time::Instant::now();
        socket.send(b"ping").await.expect("it is sent");
        let back = tokio::time::timeout(Duration::from_secs(1), socket.recv(&mut [0; 64])).await;
        if matches!(back, Ok(Ok(_))) {
            round_trips.push(begin.elapsed().as_secs_f64() * 1e3);
        }
    }
    crate::median(&round_trips)
}
