//! Many flows of one server: whether each gets its share, and what an idle one costs in memory.
//!
//! *Fair*: every flow downloads without end, all at once, over loopback. Two seconds to settle, and then until they have got `--kilobytes N` each on average (default 1,300: a turn of the
//! server's is 64); what each got is judged by Jain's index, `J = (x1 + … + xn)² / (n · (x1² + … + xn²))`: 1 if all got the same, `1/n` if one got all. `--carriers N` for the case of
//! one flow on each (default 10,000).
//!
//! *Beside TCP*: in a lab, 100 flows on a QUIC carrier each and 100 connections of TCP with TLS share a link for `--seconds N` (default 30), Cubic all of them; Jain's index over the 200.
//!
//! *Memory*: a server in a process of its own; its `VmRSS` once flows are attached and idle for some seconds, less what it was before, for each.
//!
//! `--only fair|tcp|memory` runs one of the three, and `--case 0|1|2` one row of the first.

use bytes::Bytes;
use hoop_bench::flows::{NAME, Part, make_certificate, tls_of_device, tls_of_server};
use hoop_bench::{Table, Verdict, median, number, spread, word};
use hoop_carrier::{
    Carrier, Local, QuicDevice, QuicLimits, QuicListener, QuicOptions, WebSocketDevice, WebSocketLimits,
    WebSocketListener, WebSocketOptions,
};
use hoop_endpoint::{
    Device, DeviceConfig, DeviceId, DeviceKey, FlowOptions, FlowStream, Server, ServerConfig, ServerLimits, Use,
};
use hoop_lab::{Host, Lab, Link, LinkConfig, QueueLimit, Topology};
use hoop_units::Bitrate;
use socket2::SockRef;
use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Barrier, Semaphore, mpsc};
use tokio::time::{sleep, timeout};
use tokio_rustls::{TlsAcceptor, TlsConnector};

const KEY: DeviceKey = DeviceKey([2; 32]);
const BODY: usize = 64 * 1024;

/// Devices whose keys the server knows.
const DEVICES: u32 = 20_000;

/// Devices have a socket each; here five of them share one where there are ten thousand, since a process may have so many descriptors.
const SOCKETS: u64 = 2_000;

/// Handshakes under way at once: a server takes 32 of one address.
const HANDSHAKES: usize = 16;

/// However slow the machine is.
const PERIOD_MAX: Duration = Duration::from_secs(120);

/// However slow the machine is, until all are attached.
const ATTACH_MAX: Duration = Duration::from_secs(90);

/// For each flow on average: twenty turns of 64 KiB.
const KILOBYTES: u64 = 1_300;

/// Before the period begins.
const SETTLE: Duration = Duration::from_secs(2);

const JAIN_MIN: f64 = 0.95;
const JAIN_TCP_MIN: f64 = 0.9;

/// The link that flows share with TCP: 40 ms there and back, and as much again of queue at most twice over.
const SHARED: Bitrate = Bitrate::mbps(200);
const SHARED_DELAY_MS: u64 = 20;
const SHARED_QUEUE: usize = 2_000_000;
const SHARED_EACH: u64 = 100;

fn main() -> ExitCode {
    let runtime = || tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    match word("--role").as_deref() {
        Some("server") => runtime().block_on(serve()),
        Some(_) => runtime().block_on(take()),
        None => return conduct(),
    }
    ExitCode::SUCCESS
}

// The conductor.

fn conduct() -> ExitCode {
    let only = word("--only");
    let runs = |part| only.as_deref().is_none_or(|only| only == part);
    if runs("tcp") {
        hoop_lab::enter().expect("the machine allows namespaces");
    }
    let folder = tempfile::tempdir().expect("a folder");
    make_certificate(folder.path());
    let (mut verdict, begin) = (Verdict::default(), Conductor { lab: None, folder: folder.path() });
    if runs("fair") {
        fair(&begin, &mut verdict);
    }
    if runs("tcp") {
        beside_tcp(&begin, &mut verdict);
    }
    if runs("memory") {
        memory(&begin);
    }
    verdict.exit()
}

fn fair(begin: &Conductor<'_>, verdict: &mut Verdict) {
    let many = number("--carriers").unwrap_or(10_000);
    let cases = [("QUIC", 100, 100), ("WebSocket", 100, 100), ("QUIC", many, 1)];
    let mut table = Table::new([
        "carriers",
        "flows on each",
        "KB each, median",
        "min-max",
        "s",
        "MB/s in all",
        "Jain of carriers",
        "Jain of flows",
        "limit",
    ]);
    let case = number("--case");
    for (_, (kind, carriers, flows)) in (0..).zip(cases).filter(|(at, _)| case.is_none_or(|case| case == *at)) {
        let (server, ports) = begin.server();
        let mut device = begin.device(&[kind], carriers, flows, &ports);
        device.expect("attached");
        device.say("go");
        let mut got = numbers(&device.expect("got"));
        let secs = got.remove(0);
        drop((server, device));
        let index = jain(&got);
        let holds = verdict.at_least(&format!("Jain's index, {carriers} x {flows}, {kind}"), index, JAIN_MIN);
        let (low, high) = spread(&got);
        table.row([
            format!("{carriers} of {kind}"),
            flows.to_string(),
            format!("{:.0}", median(&got) / 1e3),
            format!("{:.0}-{:.0}", low / 1e3, high / 1e3),
            format!("{secs:.0}"),
            format!("{:.0}", got.iter().sum::<f64>() / 1e6 / secs),
            format!("{:.3}", jain(&got.chunks(flows as usize).map(|of_one| of_one.iter().sum()).collect::<Vec<f64>>())),
            format!("{index:.3}"),
            format!("{JAIN_MIN} {holds}"),
        ]);
    }
    println!("{}", table.render());
}

fn beside_tcp(begin: &Conductor<'_>, verdict: &mut Verdict) {
    let way = LinkConfig::new().delay(hoop_units::Duration::from_millis(SHARED_DELAY_MS));
    let link = Link::new("shared", "device", "server")
        .up(way.clone())
        .down(way.rate(SHARED).queue(QueueLimit::bytes(SHARED_QUEUE)))
        .prompt();
    let topology = Topology::new().host(Host::new("device")).host(Host::new("server")).link(link);
    let lab = Lab::build(&topology).expect("a lab");
    let begin = Conductor { lab: Some(&lab), ..*begin };
    let (server, ports) = begin.server();
    let mut device = begin.device(&["QUIC", "TLS"], SHARED_EACH, 1, &ports);
    device.expect("attached");
    device.say("go");
    let [flows, rivals] = [(); 2].map(|()| numbers(&device.expect("got"))[1..].to_vec());
    drop((server, device));
    let all = [flows.clone(), rivals.clone()].concat();
    let index = jain(&all);
    let holds = verdict.at_least("Jain's index beside TCP", index, JAIN_TCP_MIN);
    let mut table = Table::new(["100 each", "kbit/s, median", "min-max", "of the link", "Jain", "limit"]);
    for (what, got) in [("flows on QUIC", &flows), ("TCP with TLS", &rivals), ("all", &all)] {
        let kbps = |bytes: f64| bytes * 8.0 / 1e3 / period().as_secs_f64();
        let (low, high) = spread(got);
        let is_all = what == "all";
        table.row([
            what.into(),
            format!("{:.0}", kbps(median(got))),
            format!("{:.0}-{:.0}", kbps(low), kbps(high)),
            format!("{:.2}", kbps(got.iter().sum()) * 1e3 / SHARED.as_bps() as f64),
            format!("{:.3}", jain(got)),
            if is_all { format!("{JAIN_TCP_MIN} {holds}") } else { String::new() },
        ]);
    }
    println!("{}", table.render());
}

fn memory(begin: &Conductor<'_>) {
    let cases = [("QUIC", 100, 1), ("QUIC", 100, 100), ("QUIC", 2_000, 1), ("WebSocket", 2_000, 1)];
    let mut table = Table::new(["idle at the server", "flows", "MB more", "KB a flow"]);
    let mut first = 0.0;
    for (kind, carriers, flows) in cases {
        let (server, ports) = begin.server();
        let before = resident(server.id());
        let mut device = begin.device(&[kind], carriers, flows, &ports);
        device.expect("attached");
        // Whatever is given back after a second of rest is given back.
        std::thread::sleep(Duration::from_secs(4));
        let more = resident(server.id()) - before;
        drop((server, device));
        let all = (carriers * flows) as f64;
        let what = match (carriers, flows) {
            (100, 1) => {
                first = more;
                continue;
            }
            (_, 1) => format!("one flow on each carrier of {kind}"),
            _ => format!("99 flows more on each of {carriers} carriers of {kind}"),
        };
        let (all, more) = if flows > 1 { (all - carriers as f64, more - first) } else { (all, more) };
        table.row([what, format!("{all:.0}"), format!("{:.1}", more / 1e6), format!("{:.1}", more / all / 1e3)]);
    }
    println!("{}", table.render());
}

/// What is in a process's memory, in bytes.
fn resident(process: u32) -> f64 {
    let status = std::fs::read_to_string(format!("/proc/{process}/status")).expect("it runs");
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).expect("a process has memory");
    line.split_whitespace().nth(1).and_then(|text| text.parse::<f64>().ok()).expect("a number") * 1024.0
}

fn jain(got: &[f64]) -> f64 {
    let (sum, squares) = got.iter().fold((0.0, 0.0), |(sum, squares), x| (sum + x, x.mul_add(*x, squares)));
    sum * sum / (got.len() as f64 * squares)
}

fn numbers(text: &str) -> Vec<f64> {
    text.split_whitespace().map(|word| word.parse().expect("a number")).collect()
}

fn period() -> Duration {
    Duration::from_secs(number("--seconds").unwrap_or(30))
}

#[derive(Clone, Copy)]
struct Conductor<'a> {
    /// Where the parts are hosts of; otherwise they are on loopback.
    lab: Option<&'a Lab>,
    folder: &'a Path,
}

impl Conductor<'_> {
    fn server(&self) -> (Part, String) {
        let mut server = self.start("server", &[]);
        let ports = server.expect("ports");
        (server, ports)
    }

    fn device(&self, kinds: &[&str], carriers: u64, flows: u64, ports: &str) -> Part {
        let (carriers, flows) = (carriers.to_string(), flows.to_string());
        let server = self.lab.map_or(IpAddr::from(Ipv4Addr::LOCALHOST), |lab| lab.address("server").into()).to_string();
        let sockets = number("--sockets").unwrap_or(SOCKETS).to_string();
        // In a lab a time is asked for, and elsewhere bytes.
        let (seconds, kilobytes) = match self.lab {
            Some(_) => (period(), u64::MAX),
            None => (PERIOD_MAX, number("--kilobytes").unwrap_or(KILOBYTES)),
        };
        let (seconds, kilobytes) = (seconds.as_secs().to_string(), kilobytes.to_string());
        let arguments = ["--kinds", &kinds.join(" "), "--each", &carriers, "--flows", &flows, "--server", &server];
        self.start(
            "device",
            &[
                &arguments[..],
                &["--sockets", &sockets, "--ports", ports, "--seconds", &seconds, "--kilobytes", &kilobytes],
            ]
            .concat(),
        )
    }

    fn start(&self, role: &str, arguments: &[&str]) -> Part {
        match self.lab {
            Some(lab) => Part::start(lab, role, role, self.folder, arguments),
            None => Part::beside(role, self.folder, arguments),
        }
    }
}

// The server.

fn host(number: u32) -> DeviceId {
    let mut host = [1; 20];
    host[..4].copy_from_slice(&number.to_be_bytes());
    DeviceId(host)
}

/// Ends this process once the conductor is gone, however that came about; what it says before is handed over.
fn listen_to_conductor() -> mpsc::UnboundedReceiver<String> {
    let (said, heard) = mpsc::unbounded_channel();
    std::thread::spawn(move || {
        for line in std::io::stdin().lines().map_while(Result::ok) {
            let _ = said.send(line);
        }
        std::process::exit(1);
    });
    heard
}

async fn serve() {
    let _conductor = listen_to_conductor();
    let (any, tls) = (SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0)), tls_of_server());
    let keys: HashMap<DeviceId, DeviceKey> = (0..DEVICES).map(|number| (host(number), KEY)).collect();
    // All devices have one address here, and are attached sixteen at a time.
    let limits = ServerLimits { backlog: 16_384, unauthenticated_carriers_of_address: 512, ..ServerLimits::default() };
    let server = Server::new(ServerConfig { limits, ..ServerConfig::new(Arc::new(keys)) });
    let quic = QuicListener::bind(any, &tls, &QuicOptions::server(), QuicLimits::default()).expect("a listener");
    let limits = WebSocketLimits { handshakes_per_peer: 512, ..WebSocketLimits::default() };
    let websocket = WebSocketListener::bind(any, Some(&tls), WebSocketOptions::default(), limits);
    let websocket = websocket.await.expect("a listener");
    let tcp = TcpListener::bind(any).await.expect("a listener");
    let port = |address: SocketAddr| address.port();
    let quic_port = quic.local_address().map(port).expect("an address");
    println!(
        "ports {quic_port} {} {}",
        port(websocket.local_address()),
        tcp.local_addr().map(port).expect("an address")
    );
    let acceptor = TlsAcceptor::from(Arc::new(tls));
    loop {
        tokio::select! {
            carrier = quic.accept() => server.serve(Arc::new(carrier.expect("a listener")), "lo"),
            carrier = websocket.accept() => server.serve(Arc::new(carrier.expect("a listener")), "lo"),
            connection = tcp.accept() => {
                let (connection, acceptor) = (connection.expect("a connection").0, acceptor.clone());
                SockRef::from(&connection).set_tcp_congestion(b"cubic").expect("the system has Cubic");
                tokio::spawn(async move {
                    let stream = acceptor.accept(connection).await?;
                    pour_tls(stream).await
                });
            }
            flow = server.accept() => drop(tokio::spawn(pour(flow.expect("a server")))),
        }
    }
}

/// Says a byte, and once the device says another, bytes without end.
async fn pour(mut flow: FlowStream) -> std::io::Result<()> {
    flow.write_all(b"!").await?;
    flow.read_u8().await?;
    let block = Bytes::from_static(&[7; BODY]);
    loop {
        flow.write_chunk(block.clone()).await?;
    }
}

async fn pour_tls(mut stream: tokio_rustls::server::TlsStream<TcpStream>) -> std::io::Result<()> {
    stream.write_all(b"!").await?;
    stream.flush().await?;
    stream.read_u8().await?;
    loop {
        stream.write_all(&[7; BODY]).await?;
    }
}

// The devices.

/// What all of one kind share.
struct Kind {
    kind: String,
    server: SocketAddr,
    tls: rustls::ClientConfig,
    /// A socket each.
    quic: Vec<QuicDevice>,
    handshakes: Semaphore,
    /// All are attached; the period begins once all are told.
    attached: Barrier,
    go: Barrier,
    got: Vec<AtomicU64>,
    flows: usize,
}

async fn take() {
    let mut conductor = listen_to_conductor();
    let (each, flows) = (number("--each").expect("a number") as usize, number("--flows").expect("a number") as usize);
    let kinds: Vec<String> = word("--kinds").expect("kinds").split(' ').map(str::to_owned).collect();
    let server: IpAddr = word("--server").expect("an address").parse().expect("an address");
    let ports: Vec<u16> = numbers(&word("--ports").expect("ports")).iter().map(|port| *port as u16).collect();
    let kinds: Vec<Arc<Kind>> =
        kinds.into_iter().map(|kind| Arc::new(kind_of(kind, server, &ports, each, flows))).collect();
    for kind in &kinds {
        (0..each).for_each(|number| drop(tokio::spawn(one(kind.clone(), number))));
    }
    for kind in &kinds {
        let attached = timeout(ATTACH_MAX, kind.attached.wait()).await;
        assert!(attached.is_ok(), "not all are attached: {} wait", kind.handshakes.available_permits());
    }
    println!("attached");
    conductor.recv().await.expect("a word");
    for kind in &kinds {
        kind.go.wait().await;
    }
    sleep(SETTLE).await;
    let count = |kind: &Arc<Kind>| kind.got.iter().map(|got| got.load(Ordering::Relaxed)).collect::<Vec<_>>();
    let before: Vec<_> = kinds.iter().map(count).collect();
    let (begin, most) = (Instant::now(), number("--kilobytes").expect("a number") as f64 * 1e3);
    let mean =
        |now: &[u64], before: &[u64]| (now.iter().sum::<u64>() - before.iter().sum::<u64>()) as f64 / now.len() as f64;
    while begin.elapsed() < period() && mean(&count(&kinds[0]), &before[0]) < most {
        sleep(Duration::from_millis(250)).await;
    }
    let secs = begin.elapsed().as_secs_f64();
    let after: Vec<_> = kinds.iter().map(count).collect();
    for (before, after) in before.iter().zip(after) {
        let got: Vec<String> = before.iter().zip(after).map(|(before, after)| (after - before).to_string()).collect();
        println!("got {secs} {}", got.join(" "));
    }
    std::process::exit(0);
}

fn kind_of(kind: String, server: IpAddr, ports: &[u16], each: usize, flows: usize) -> Kind {
    let at = ["QUIC", "WebSocket", "TLS"].iter().position(|known| *known == kind).expect("a kind");
    let tls = tls_of_device();
    // The first wait for longer than a carrier may be idle until the last are there.
    let options = QuicOptions { keep_alive: Some(Duration::from_secs(10)), ..QuicOptions::device() };
    let sockets = number("--sockets").unwrap_or(SOCKETS);
    let quic = (0..sockets.min(each as u64))
        .map(|_| QuicDevice::new(Local::default(), &tls, &options).expect("an endpoint"))
        .collect();
    Kind {
        kind,
        server: (server, ports[at]).into(),
        tls,
        quic,
        handshakes: Semaphore::new(HANDSHAKES),
        attached: Barrier::new(each * flows + 1),
        go: Barrier::new(each * flows + 1),
        got: (0..each * flows).map(|_| AtomicU64::new(0)).collect(),
        flows,
    }
}

/// A device with its flows, or a connection.
async fn one(kind: Arc<Kind>, number: usize) {
    let permit = kind.handshakes.acquire().await.expect("it is open");
    if kind.kind == "TLS" {
        let tcp = TcpStream::connect(kind.server).await.expect("a connection");
        let connector = TlsConnector::from(Arc::new(kind.tls.clone()));
        let stream = connector.connect(NAME.try_into().expect("a name"), tcp).await.expect("TLS");
        drop(permit);
        return drain_tls(&kind, number, stream).await;
    }
    let carrier: Arc<dyn Carrier> = match &kind.kind[..] {
        "QUIC" => Arc::new(kind.quic[number % kind.quic.len()].connect(kind.server, NAME).await.expect("a carrier")),
        _ => {
            let device = WebSocketDevice::new(Local::default(), &kind.tls, WebSocketOptions::default(), None);
            Arc::new(device.connect(kind.server, NAME).await.expect("a carrier"))
        }
    };
    let device = Device::new(DeviceConfig::new(host(number as u32), KEY));
    device.add_carrier(carrier, Use::Normal, "lo");
    // Its carrier is a stranger's to the server until then.
    let mut flows = Vec::new();
    for _ in 0..kind.flows {
        flows.push(device.open("many", FlowOptions::default()).expect("a flow"));
    }
    for flow in &mut flows {
        flow.read_u8().await.expect("it is attached");
    }
    drop(permit);
    let drain = |(at, flow)| {
        let kind = kind.clone();
        tokio::spawn(async move { drain(&kind, number * kind.flows + at, flow).await })
    };
    let draining: Vec<_> = flows.into_iter().enumerate().map(drain).collect();
    for flow in draining {
        flow.await.expect("it goes on");
    }
}

async fn drain(kind: &Kind, at: usize, mut flow: FlowStream) {
    kind.attached.wait().await;
    kind.go.wait().await;
    flow.write_all(b"!").await.expect("it goes on");
    while let Some(bytes) = flow.read_chunk(BODY).await.expect("it comes") {
        kind.got[at].fetch_add(bytes.len() as u64, Ordering::Relaxed);
    }
}

async fn drain_tls(kind: &Kind, at: usize, mut stream: tokio_rustls::client::TlsStream<TcpStream>) {
    stream.read_u8().await.expect("it is there");
    kind.attached.wait().await;
    kind.go.wait().await;
    stream.write_all(b"!").await.expect("it goes on");
    stream.flush().await.expect("it goes on");
    let mut buffer = vec![0; BODY];
    loop {
        let len = stream.read(&mut buffer).await.expect("it comes");
        kind.got[at].fetch_add(len as u64, Ordering::Relaxed);
    }
}
