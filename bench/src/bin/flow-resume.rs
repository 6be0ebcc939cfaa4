//! How soon a flow goes on, in round trips of 50 ms: over a carrier that is there, over one that must be made, and after half a minute without a link.
//!
//! Device and server are processes in a lab. In the first three cases a flow downloads over one link until that carries nothing any more; counted is from when the device knows to
//! the first byte that comes over the other link. After an outage it is counted from when the link is up again to the first byte; beside the flow, which is kept by
//! `hoop_relay::Link` as in `hoop run`, quinn alone and plain TCP wait on the same link. Once the device's interface goes down and comes up, of which the kernel tells; once the
//! network is dark, as a tunnel is: the interface stays up, and nothing comes through. Round trips are those of datagrams over the same link in the same run, when it is idle.
//!
//! `--rounds N`; `--seconds N`: how long the outages are (default 30); `--only outages`, or `dark`.

use hoop_bench::flows::{self, Part, ping, quic, serve, tls_of_device, tls_of_server, told, websocket};
use hoop_bench::{Table, Verdict, median, number, rounds, spread, word};
use hoop_carrier::QuicOptions;
use hoop_endpoint::{FlowOptions, FlowStream, Use};
use hoop_lab::{Change, Direction, Host, Lab, Link, LinkConfig, Topology};
use hoop_units::Bitrate;
use quinn::crypto::rustls::{QuicClientConfig, QuicServerConfig};
use quinn::{TransportConfig, VarInt};
use std::collections::HashMap;
use std::future::Future;
use std::net::Ipv4Addr;
use std::path::Path;
use std::pin::pin;
use std::process::ExitCode;
use std::sync::Arc;
use std::task::Poll;
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

const ONE_WAY: Duration = Duration::from_millis(25);
const RATE: Bitrate = Bitrate::mbps(20);

/// How much has come before the link is cut, in bytes.
const ENOUGH: usize = 1_000_000;

/// How long nothing came if something is said to be back.
const GAP: Duration = Duration::from_secs(3);

/// After so long the others are not waited for: quinn and TCP double their waits, and so may take as long again as the outage.
const BACK_MAX: Duration = Duration::from_secs(60);

/// The outages begin so far apart, so that their ends do not fall together.
const APART: Duration = Duration::from_millis(700);

const QUINN_PORT: u16 = 4435;
const TCP_PORT: u16 = 4436;

/// The limits of the issue, in round trips.
const CASES: [(&str, &str, f64); 4] = [
    ("warm-quic", "on a second carrier, QUIC, that is up", 1.2),
    ("warm-websocket", "on a second carrier, WebSocket, that is up", 1.2),
    ("cold-quic", "on a new carrier, QUIC", 2.2),
    ("cold-websocket", "on a new carrier, WebSocket", 3.2),
];
const OUTAGE_MAX: f64 = 3.0;

/// 0.6 s.
const DARK_MAX: f64 = 12.0;

fn main() -> ExitCode {
    if let Some(role) = word("--role") {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        runtime.block_on(take_part(&role));
        return ExitCode::SUCCESS;
    }
    hoop_lab::enter().expect("the machine allows namespaces");
    let folder = tempfile::tempdir().expect("a folder");
    flows::make_certificate(folder.path());
    let mut verdict = Verdict::default();
    let mut table =
        Table::new(["a flow goes on", "round trip ms", "ms, median", "min-max", "round trips", "limit", ""]);
    let lab = lab(&["first", "second"]);
    let _server = server(&lab, folder.path());
    for (case, text, limit) in CASES.into_iter().filter(|_| word("--only").is_none()) {
        let passes: Vec<Pass> = (0..rounds()).map(|_| resume(&lab, folder.path(), case)).collect();
        row(&mut table, text, &passes, Some(limit), &mut verdict);
    }
    for (kind, of, limit) in [(Kind::Down, "the outage", Some(OUTAGE_MAX)), (Kind::Dark, "the dark", Some(DARK_MAX))] {
        if kind == Kind::Down && word("--only").is_some_and(|only| only == "dark") {
            continue;
        }
        let outages = outages(folder.path(), kind);
        for (who, text, limit) in
            [("flow", "after", limit), ("quinn", "quinn alone, after", None), ("tcp", "plain TCP, after", None)]
        {
            let never = Pass { round_trip_ms: ONE_WAY.as_secs_f64() * 2e3, ms: f64::INFINITY };
            let passes: Vec<Pass> = outages.iter().map(|outage| *outage.get(who).unwrap_or(&never)).collect();
            row(&mut table, &format!("{text} {of}"), &passes, limit, &mut verdict);
        }
    }
    println!("{}", table.render());
    verdict.exit()
}

// The conductor.

/// What becomes of the link.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// The interface goes down.
    Down,
    /// Nothing comes through, and nobody says so.
    Dark,
}

#[derive(Clone, Copy)]
struct Pass {
    round_trip_ms: f64,
    ms: f64,
}

fn row(table: &mut Table, text: &str, passes: &[Pass], limit: Option<f64>, verdict: &mut Verdict) {
    let all = |of: fn(&Pass) -> f64| passes.iter().map(of).collect::<Vec<_>>();
    let (ms, trips) = (all(|pass| pass.ms), median(&all(|pass| pass.ms / pass.round_trip_ms)));
    let (low, high) = spread(&ms);
    table.row([
        text.into(),
        format!("{:.1}", median(&all(|pass| pass.round_trip_ms))),
        format!("{:.1}", median(&ms)),
        format!("{low:.1}-{high:.1}"),
        format!("{trips:.2}"),
        limit.map_or(String::new(), |limit| format!("<= {limit}")),
        limit.map_or("", |limit| verdict.at_most(text, trips, limit)).into(),
    ]);
}

fn lab(links: &[&str]) -> Lab {
    let link = |name| Link::new(name, "device", "server").both(LinkConfig::new().rate(RATE).delay(ONE_WAY));
    let topology = Topology::new().host(Host::new("device")).host(Host::new("server"));
    Lab::build(&links.iter().fold(topology, |topology, name| topology.link(link(*name)))).expect("a lab")
}

fn server(lab: &Lab, folder: &Path) -> Part {
    let mut server = Part::start(lab, "server", "server", folder, &[]);
    server.expect("ready");
    server
}

fn device(lab: &Lab, folder: &Path, role: &str, links: &[&str], case: &str) -> (Part, f64) {
    let mut arguments = vec!["--case".to_owned(), case.to_owned()];
    for link in links {
        arguments.extend([format!("--{link}"), lab.address_on("server", link).to_string()]);
    }
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let mut device = Part::start(lab, "device", role, folder, &arguments);
    let round_trip = device.expect("round trip").parse().expect("a number");
    device.expect("ready");
    (device, round_trip)
}

fn resume(lab: &Lab, folder: &Path, case: &str) -> Pass {
    let (mut device, round_trip_ms) = device(lab, folder, "resume", &["first", "second"], case);
    lab.set_link("first", Direction::Both, Change::new().connected(false));
    device.say("gone");
    let ms = device.expect("back").parse().expect("a number");
    lab.set_link("first", Direction::Both, Change::new().connected(true));
    Pass { round_trip_ms, ms }
}

/// Each in a lab of its own, all of them side by side: they are idle nearly all the time.
fn outages(folder: &Path, kind: Kind) -> Vec<HashMap<String, Pass>> {
    thread::scope(|scope| {
        let all: Vec<_> =
            (0..rounds() as u32).map(|at| scope.spawn(move || outage(folder, kind, APART * at))).collect();
        all.into_iter().map(|one| one.join().expect("it ends")).collect()
    })
}

fn outage(folder: &Path, kind: Kind, after: Duration) -> HashMap<String, Pass> {
    // There is no other way, or quinn alone would take it.
    let lab = lab(&["first"]);
    let _server = server(&lab, folder);
    let (mut device, round_trip_ms) = device(&lab, folder, "outage", &["first"], "");
    let connect = |is_up: bool| match kind {
        Kind::Dark => lab.set_link("first", Direction::Both, Change::new().connected(is_up)),
        Kind::Down => {
            let state = if is_up { "up" } else { "down" };
            let done = lab.command("device", "ip").args(["link", "set", "first", state]).status().expect("ip runs");
            assert!(done.success(), "ip link set first {state}");
        }
    };
    thread::sleep(after);
    connect(false);
    thread::sleep(Duration::from_secs(number("--seconds").unwrap_or(30)));
    let up = nanos();
    connect(true);
    let mut passes = HashMap::new();
    while passes.len() < 3
        && let Some(line) = device.hear()
    {
        let (who, at) = line.strip_prefix("back ").and_then(|line| line.split_once(' ')).expect("who and when");
        let at: u128 = at.parse().expect("a number");
        passes.insert(who.to_owned(), Pass { round_trip_ms, ms: at.saturating_sub(up) as f64 / 1e6 });
    }
    passes
}

/// The same clock in all processes.
fn nanos() -> u128 {
    SystemTime::now().duration_since(UNIX_EPOCH).expect("it is later").as_nanos()
}

// The parts.

async fn take_part(role: &str) {
    match role {
        "server" => {
            tokio::spawn(quinn_server());
            tokio::spawn(tcp_server());
            serve(FlowOptions::default(), &QuicOptions::server()).await;
        }
        "resume" => device_resumes(&word("--case").expect("a case")).await,
        _ => device_is_out().await,
    }
}

fn address(link: &str) -> Ipv4Addr {
    word(&format!("--{link}")).expect("an address").parse().expect("an address")
}

async fn device_resumes(case: &str) {
    let (first, second) = (address("first"), address("second"));
    let round_trip = ping(second).await;
    println!("round trip {round_trip}");
    let (device, options) = (flows::device(), QuicOptions::device());
    let old = device.add_carrier(quic("first", first, &options).await, Use::Normal, "first");
    let mut flow = device.open("bulk", FlowOptions::default()).expect("a flow");
    let mut came = 0;
    while came < ENOUGH {
        came += chunk(&mut flow).await;
    }
    match case {
        "warm-quic" => drop(device.add_carrier(quic("second", second, &options).await, Use::Normal, "second")),
        "warm-websocket" => drop(device.add_carrier(websocket("second", second).await, Use::Normal, "second")),
        _ => {}
    }
    tokio::time::sleep(Duration::from_millis(round_trip as u64 * 4)).await;
    println!("ready");
    let mut gone = pin!(told());
    loop {
        tokio::select! {
            biased;
            _ = &mut gone => break,
            _ = chunk(&mut flow) => {}
        }
    }
    let begin = Instant::now();
    device.remove_carrier(old);
    // What had come before that is there at once.
    while now(chunk(&mut flow)).await.is_some() {}
    match case {
        "cold-quic" => drop(device.add_carrier(quic("second", second, &options).await, Use::Normal, "second")),
        "cold-websocket" => drop(device.add_carrier(websocket("second", second).await, Use::Normal, "second")),
        _ => {}
    }
    chunk(&mut flow).await;
    let took = begin.elapsed();
    let by: Vec<String> = flow.stats().networks.iter().map(|(network, _)| network.to_string()).collect();
    assert_eq!(by, ["first", "second"]);
    println!("back {}", took.as_secs_f64() * 1e3);
}

/// How much the next chunk is.
async fn chunk(flow: &mut FlowStream) -> usize {
    flow.read_chunk(64 * 1024).await.expect("it goes on").expect("it has no end").len()
}

/// What a future gives at once.
async fn now<T>(future: impl Future<Output = T>) -> Option<T> {
    let mut future = pin!(future);
    std::future::poll_fn(|cx| match future.as_mut().poll(cx) {
        Poll::Ready(done) => Poll::Ready(Some(done)),
        Poll::Pending => Poll::Ready(None),
    })
    .await
}

/// A flow, quinn and TCP, a trickle each, on one link that goes and comes.
async fn device_is_out() {
    let server = address("first");
    println!("round trip {}", ping(server).await);
    let link = hoop_relay::Link::start(&flows::introduction(server), vec![hoop_relay::NetworkPath::interface("first")]);
    let link = link.expect("a link");
    let mut flow = link.device().open("trickle", FlowOptions::default()).expect("a flow");
    let (endpoint, mut stream) = quinn_device(server).await;
    let mut tcp = TcpStream::connect((server, TCP_PORT)).await.expect("a connection");
    let mut watches = ["flow", "quinn", "tcp"].map(Watch::new);
    let [of_flow, of_quinn, of_tcp] = &mut watches;
    let mut buffer = vec![0; 64 * 1024];
    chunk(&mut flow).await;
    // Until all that was sent meanwhile has come.
    tokio::time::sleep(GAP / 3).await;
    println!("ready");
    let end = tokio::time::sleep(Duration::from_secs(number("--seconds").unwrap_or(30)) + BACK_MAX);
    tokio::pin!(end);
    loop {
        tokio::select! {
            _ = chunk(&mut flow) => of_flow.comes(),
            piece = stream.read_chunk(64 * 1024, true) => {
                piece.expect("it goes on").expect("it has no end");
                of_quinn.comes();
            }
            len = tcp.read(&mut buffer) => {
                assert!(len.expect("it goes on") > 0);
                of_tcp.comes();
            }
            () = &mut end => break,
        }
    }
    drop(endpoint);
}

/// Says when something came after a gap.
struct Watch {
    who: &'static str,
    last: Instant,
}

impl Watch {
    fn new(who: &'static str) -> Self {
        Self { who, last: Instant::now() }
    }

    fn comes(&mut self) {
        let last = std::mem::replace(&mut self.last, Instant::now());
        if self.last.duration_since(last) > GAP {
            println!("back {} {}", self.who, nanos());
        }
    }
}

// quinn alone, which keeps its connection through the outage, and TCP.

const ALPN: &[u8] = b"trickle";

fn patient() -> Arc<TransportConfig> {
    let mut transport = TransportConfig::default();
    transport.max_idle_timeout(Some(VarInt::from_u32(300_000).into()));
    transport.keep_alive_interval(Some(Duration::from_secs(10)));
    Arc::new(transport)
}

async fn quinn_server() {
    let mut tls = tls_of_server();
    tls.alpn_protocols = vec![ALPN.to_vec()];
    let mut config = quinn::ServerConfig::with_crypto(Arc::new(QuicServerConfig::try_from(tls).expect("TLS")));
    config.transport_config(patient());
    let endpoint = quinn::Endpoint::server(config, (Ipv4Addr::UNSPECIFIED, QUINN_PORT).into()).expect("an endpoint");
    while let Some(incoming) = endpoint.accept().await {
        tokio::spawn(async move {
            let connection = incoming.await.expect("a connection");
            let (mut send, _receive) = connection.accept_bi().await.expect("a stream");
            while send.write_all(&[7; 1_000]).await.is_ok() {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        });
    }
}

async fn quinn_device(server: Ipv4Addr) -> ((quinn::Endpoint, quinn::SendStream), quinn::RecvStream) {
    let mut tls = tls_of_device();
    tls.alpn_protocols = vec![ALPN.to_vec()];
    let mut config = quinn::ClientConfig::new(Arc::new(QuicClientConfig::try_from(tls).expect("TLS")));
    config.transport_config(patient());
    let endpoint = quinn::Endpoint::client((Ipv4Addr::UNSPECIFIED, 0).into()).expect("an endpoint");
    let connecting = endpoint.connect_with(config, (server, QUINN_PORT).into(), flows::NAME).expect("a way");
    let (mut send, receive) = connecting.await.expect("a connection").open_bi().await.expect("a stream");
    send.write_all(b"!").await.expect("it is taken");
    ((endpoint, send), receive)
}

async fn tcp_server() {
    let listener = TcpListener::bind((Ipv4Addr::UNSPECIFIED, TCP_PORT)).await.expect("a listener");
    while let Ok((mut stream, _)) = listener.accept().await {
        tokio::spawn(async move {
            while stream.write_all(&[7; 1_000]).await.is_ok() {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        });
    }
}
