//! Crowds of slow connections at each server, and what an honest client has beside them: 2,000 of each kind, for 5 minutes.
//!
//! Each connection of a crowd comes from a loopback address in a network of its own, and comes again 2 s after the server has ended it. Beside it, a client with an address
//! of its own asks every 250 ms, over a new connection. No answer within 10 s, an end without one, or another answer than is due counts as 10 s. 429 and 503 are refusals; they are counted by themselves.
//! Memory is `VmRSS`, descriptors are those in `/proc/PID/fd`, both of `hoop`: before the crowd, at the most, and when they have gone down again, 20 s after it at the latest.
//!
//! A gateway holds no address on loopback to the limits of a device. No address of these crowds comes near them.
//!
//! `--seconds N` of each kind, `--crowd N` connections, `--only TEXT` the cases whose name (`gateway: idle`) has that text in it, `--together N` cases beside one another, each with a
//! server and addresses of its own.

use hoop_bench::peers::{Running, free_address, ordinary_build};
use hoop_bench::posts::SealedBody;
use hoop_bench::{Table, Verdict, median, number, spread, word};
use hoop_testbed::Certificates;
use hoop_units::{UnixTime, UploadId};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use socket2::SockRef;
use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::process::{Command, ExitCode};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _, Interest};
use tokio::net::{TcpSocket, TcpStream};
use tokio::runtime::{Builder, Runtime};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};
use tokio_rustls::TlsConnector;

const CROWD: u64 = 2_000;

const SECONDS: u64 = 300;

/// How often the honest client asks.
const EVERY: Duration = Duration::from_millis(250);

/// The longest segment of each connection, in bytes: Ethernet's.
const MSS: u32 = 1_448;

/// How long the honest client waits.
const PATIENCE: Duration = Duration::from_secs(10);

/// When a connection of a crowd that was ended comes again.
const AGAIN: Duration = Duration::from_secs(2);

/// Cases that run beside one another begin so long after one another, so that no two crowds arrive at once.
const APART: Duration = Duration::from_secs(20);

/// How long a server may take to be as it was.
const AFTER: Duration = Duration::from_secs(20);

/// Limits: the worst answer; descriptors and memory beyond what there was before. An allocator keeps some of what it had.
const WORST_SECONDS: f64 = 1.0;
const MORE_DESCRIPTORS: f64 = 16.0;
const MORE_MIB: f64 = 16.0;

/// The relay's name, which its certificate is for.
const RELAY: &str = "relay.example";

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Kind {
    NoHead,
    EndlessHead,
    EndlessBody,
    Trickle,
    Unread,
    Events,
    Idle,
    /// A part of a TLS handshake's first record.
    HalfHello,
}

impl Kind {
    const HTTP: [Self; 7] =
        [Self::NoHead, Self::EndlessHead, Self::EndlessBody, Self::Trickle, Self::Unread, Self::Events, Self::Idle];
    const TLS: [Self; 2] = [Self::NoHead, Self::HalfHello];

    const fn name(self) -> &'static str {
        match self {
            Self::NoHead => "says nothing",
            Self::EndlessHead => "head never ends",
            Self::EndlessBody => "body never ends",
            Self::Trickle => "body trickles",
            Self::Unread => "answer is not read",
            Self::Events => "events are held",
            Self::Idle => "idle, keep-alive",
            Self::HalfHello => "half a TLS hello",
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Server {
    Service,
    /// With nginx in front, as `docs/services.md` says.
    BehindNginx,
    Gateway,
    Relay,
}

impl Server {
    const ALL: [Self; 4] = [Self::Service, Self::BehindNginx, Self::Gateway, Self::Relay];

    const fn name(self) -> &'static str {
        match self {
            Self::Service => "service",
            Self::BehindNginx => "service behind nginx",
            Self::Gateway => "gateway",
            Self::Relay => "relay",
        }
    }

    fn kinds(self) -> &'static [Kind] {
        match self {
            Self::Relay => &Kind::TLS,
            Self::Service | Self::BehindNginx | Self::Gateway => &Kind::HTTP,
        }
    }

    /// What the `n`th connection of a crowd sends at first.
    fn opening(self, kind: Kind, n: u16, body: &SealedBody) -> Vec<u8> {
        let get = |path: &str, more: &str| format!("GET {path} HTTP/1.1\r\nHost: 127.0.0.1\r\n{more}\r\n").into_bytes();
        let gateway = self == Self::Gateway;
        match kind {
            Kind::NoHead => Vec::new(),
            Kind::EndlessHead => b"GET / HTTP/1.1\r\nHost: 127.0".to_vec(),
            Kind::EndlessBody | Kind::Trickle if gateway => upload(n, body),
            Kind::EndlessBody | Kind::Trickle => {
                b"POST /up HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 1000000\r\n\r\nbegin".to_vec()
            }
            // A gateway has no long answer: its page, many times.
            Kind::Unread if gateway => get("/", "").repeat(200),
            Kind::Unread => get("/film", ""),
            Kind::Events if gateway => get("/", "Accept: text/event-stream\r\n"),
            Kind::Events => get("/events", ""),
            Kind::Idle if gateway => get("/test", ""),
            Kind::Idle => get("/", ""),
            // A record of 512 bytes in which a ClientHello of 508 begins.
            Kind::HalfHello => [&[0x16, 3, 1, 2, 0, 1, 0, 1, 0xfc, 3, 3][..], &[7; 100]].concat(),
        }
    }
}

/// The head of a post to a gateway, and the beginning of a sealed upload of its own.
fn upload(n: u16, body: &SealedBody) -> Vec<u8> {
    let mut id = [0x5a; 16];
    id[..2].copy_from_slice(&n.to_be_bytes());
    let mut post = format!(
        "POST /offload?dest=https%3A%2F%2F127.0.0.1%3A9%2Fhoop%2Fpost HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: {}\r\n\r\n",
        body.len
    )
    .into_bytes();
    post.extend_from_slice(&body.offer(UploadId(id), "", UnixTime(0)).prelude);
    post
}

fn main() -> ExitCode {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().expect("a runtime");
    runtime.block_on(all())
}

async fn all() -> ExitCode {
    let crowd = u16::try_from(number("--crowd").unwrap_or(CROWD)).expect("a small number");
    let time = Duration::from_secs(number("--seconds").unwrap_or(SECONDS));
    let only = word("--only").unwrap_or_default();
    let together = usize::try_from(number("--together").unwrap_or(1)).expect("a small number").clamp(1, 100);
    let mut verdict = Verdict::default();
    let mut table = Table::new([
        "server",
        "each connection",
        "held at the end",
        "honest requests",
        "ms, median",
        "worst",
        "refused",
        "no answer",
        "MiB before, most, after",
        "descriptors before, most, after",
        "limits",
    ]);
    let cases =
        Server::ALL.iter().flat_map(|server| server.kinds().iter().map(|kind| Case { server: *server, kind: *kind }));
    let cases: Vec<_> = cases.filter(|case| case.name().contains(&only)).collect();
    let mut lanes: Vec<u8> = (1..=u8::try_from(together).expect("100 at most")).collect();
    let (mut running, mut seen) = (JoinSet::new(), BTreeMap::new());
    let mut waiting = cases.iter().copied().enumerate();
    loop {
        while !lanes.is_empty()
            && let Some((index, case)) = waiting.next()
        {
            let lane = lanes.pop().expect("it is not empty");
            let begins = APART * u32::try_from(if index < together { index } else { 0 }).expect("100 at most");
            running.spawn(async move {
                sleep(begins).await;
                (index, lane, measure(case, lane, crowd, time).await)
            });
        }
        let Some(done) = running.join_next().await else { break };
        let (index, lane, result) = done.expect("measuring does not panic");
        eprintln!("{}: done", cases[index].name());
        lanes.push(lane);
        seen.insert(index, result);
    }
    for (index, seen) in seen {
        let name = cases[index].name();
        let [low, most, after] = seen.used;
        let holds = [
            verdict.at_most(&format!("{name}, worst s"), seen.honest.worst(), WORST_SECONDS),
            verdict.at_most(&format!("{name}, refused"), seen.honest.refused as f64, 0.0),
            verdict.at_most(&format!("{name}, more MiB"), after.mib - low.mib, MORE_MIB),
            verdict.at_most(
                &format!("{name}, more descriptors"),
                after.descriptors - low.descriptors,
                MORE_DESCRIPTORS,
            ),
        ];
        table.row([
            cases[index].server.name().to_owned(),
            cases[index].kind.name().to_owned(),
            seen.held.to_string(),
            seen.honest.asked().to_string(),
            format!("{:.1}", seen.honest.median() * 1e3),
            format!("{:.0}", seen.honest.worst() * 1e3),
            seen.honest.refused.to_string(),
            seen.honest.unanswered.to_string(),
            format!("{:.1}, {:.1}, {:.1}", low.mib, most.mib, after.mib),
            format!("{}, {}, {}", low.descriptors, most.descriptors, after.descriptors),
            holds.into_iter().find(|word| *word != "holds").unwrap_or("holds").to_owned(),
        ]);
    }
    println!("{}", table.render());
    println!("{crowd} connections of each kind, {} s each, {together} cases beside one another.", time.as_secs());
    verdict.exit()
}

/// What came of one crowd.
struct Seen {
    /// Connections that were open when its time was over.
    held: usize,
    honest: Honest,
    /// Before, at the most, after.
    used: [Used; 3],
}

/// A server, and a kind of crowd.
#[derive(Clone, Copy, Debug)]
struct Case {
    server: Server,
    kind: Kind,
}

impl Case {
    fn name(self) -> String {
        format!("{}: {}", self.server.name(), self.kind.name())
    }
}

/// `lane` is the last byte of each address.
async fn measure(Case { server, kind }: Case, lane: u8, crowd: u16, time: Duration) -> Seen {
    let world = World::start(server, lane).await;
    // What is set up once is there before it is counted.
    for _ in 0..5 {
        world.client.clone().ask(Instant::now()).await;
    }
    let before = Used::of(&world.hoop);
    let held = Arc::new(AtomicUsize::new(0));
    let body = SealedBody::of_plaintext(1_000_000);
    let mut connections = JoinSet::new();
    for n in 0..crowd {
        let opening = server.opening(kind, n, &body);
        connections.spawn(stay(kind, opening, far(n, lane), world.front, held.clone()));
    }
    let asking = world.apart.spawn(honest_requests(world.client.clone(), time));
    let (honest, most) = tokio::join!(asking, most_used(&world.hoop, time));
    let honest = honest.expect("asking does not panic");
    let held = held.load(Ordering::Relaxed);
    connections.shutdown().await;
    let after = settled(&world.hoop, before).await;
    let World { _application: application, apart, .. } = world;
    application.shutdown_background();
    apart.shutdown_background();
    Seen { held, honest, used: [before, most, after] }
}

/// The `n`th of many addresses in networks of their own.
fn far(n: u16, lane: u8) -> Ipv4Addr {
    let [high, low] = n.to_be_bytes();
    Ipv4Addr::new(127, high + 1, low, lane)
}

// The crowd.

/// A connection that is held for as long as the server lets it, again and again.
async fn stay(kind: Kind, opening: Vec<u8>, from: Ipv4Addr, to: SocketAddr, held: Arc<AtomicUsize>) {
    loop {
        if let Ok(stream) = connect(from, to, Some(4096)).await {
            held.fetch_add(1, Ordering::Relaxed);
            let _ = hold(kind, stream, &opening).await;
            held.fetch_sub(1, Ordering::Relaxed);
        }
        sleep(AGAIN).await;
    }
}

/// Until the server ends it.
async fn hold(kind: Kind, mut stream: TcpStream, opening: &[u8]) -> io::Result<()> {
    stream.write_all(opening).await?;
    loop {
        sleep(Duration::from_secs(1)).await;
        if kind == Kind::Trickle {
            stream.write_all(b"x").await?;
        }
        let Ok(ready) = timeout(Duration::ZERO, stream.ready(Interest::READABLE)).await else { continue };
        if ready?.is_read_closed() {
            return Ok(());
        }
        if kind != Kind::Unread {
            drain(&stream)?;
        }
    }
}

fn drain(stream: &TcpStream) -> io::Result<()> {
    let mut bytes = [0; 4096];
    loop {
        match stream.try_read(&mut bytes) {
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
            Err(error) => return Err(error),
        }
    }
}

async fn connect(from: Ipv4Addr, to: SocketAddr, receive_buffer: Option<u32>) -> io::Result<TcpStream> {
    let socket = TcpSocket::new_v4()?;
    // Over loopback's own, of 64 KiB, Linux takes some megabytes for each connection before it says that nobody reads.
    SockRef::from(&socket).set_tcp_mss(MSS)?;
    if let Some(bytes) = receive_buffer {
        socket.set_recv_buffer_size(bytes)?;
    }
    socket.bind((from, 0).into())?;
    socket.connect(to).await
}

// The honest client.

#[derive(Default)]
struct Honest {
    /// Seconds, of all but those that were refused.
    times: Vec<f64>,
    refused: usize,
    unanswered: usize,
}

impl Honest {
    fn asked(&self) -> usize {
        self.times.len() + self.refused
    }

    fn median(&self) -> f64 {
        if self.times.is_empty() { f64::INFINITY } else { median(&self.times) }
    }

    /// Nobody was answered if all were refused.
    fn worst(&self) -> f64 {
        if self.times.is_empty() { f64::INFINITY } else { spread(&self.times).1 }
    }
}

enum Answer {
    Given(Duration),
    Refused,
    None,
}

async fn honest_requests(client: Client, time: Duration) -> Honest {
    let begun = Instant::now();
    let end = begun + time;
    let mut answers = JoinSet::new();
    while Instant::now() < end {
        answers.spawn(client.clone().ask(begun));
        sleep(EVERY).await;
    }
    let mut honest = Honest::default();
    while let Some(answer) = answers.join_next().await {
        match answer.expect("asking does not panic") {
            Answer::Given(time) => honest.times.push(time.as_secs_f64()),
            Answer::Refused => honest.refused += 1,
            Answer::None => {
                honest.times.push(PATIENCE.as_secs_f64());
                honest.unanswered += 1;
            }
        }
    }
    honest
}

/// Asks once over a new connection: the status of the answer, and what it says.
async fn status(from: Ipv4Addr, to: SocketAddr, path: &str, tls: Option<TlsConnector>) -> io::Result<(u16, String)> {
    let stream = connect(from, to, None).await?;
    match tls {
        None => status_over(stream, path).await,
        Some(tls) => {
            let name = ServerName::try_from(RELAY).map_err(io::Error::other)?;
            status_over(tls.connect(name, stream).await?, path).await
        }
    }
}

async fn status_over(mut stream: impl AsyncRead + AsyncWrite + Unpin, path: &str) -> io::Result<(u16, String)> {
    let request = format!("GET {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await?;
    let mut answer = Vec::new();
    // Some servers end TLS without saying so.
    let ended = stream.read_to_end(&mut answer).await;
    match answer.get(9..12).and_then(|digits| std::str::from_utf8(digits).ok()?.parse().ok()) {
        Some(status) => {
            let text = String::from_utf8_lossy(&answer);
            Ok((status, text.rsplit("\r\n").next().unwrap_or_default().chars().take(200).collect()))
        }
        None => Err(ended.err().unwrap_or_else(|| io::ErrorKind::UnexpectedEof.into())),
    }
}

// What the server uses.

#[derive(Clone, Copy, Debug)]
struct Used {
    mib: f64,
    descriptors: f64,
}

impl Used {
    fn of(server: &Running) -> Self {
        Self { mib: server.resident_kib() / 1024.0, descriptors: server.descriptors() as f64 }
    }
}

async fn most_used(server: &Running, time: Duration) -> Used {
    let end = Instant::now() + time;
    let mut most = Used::of(server);
    while Instant::now() < end {
        sleep(Duration::from_millis(500)).await;
        let used = Used::of(server);
        most = Used { mib: most.mib.max(used.mib), descriptors: most.descriptors.max(used.descriptors) };
    }
    most
}

/// When memory and descriptors are back, or [`AFTER`] the crowd.
async fn settled(server: &Running, before: Used) -> Used {
    let end = Instant::now() + AFTER;
    loop {
        sleep(Duration::from_millis(500)).await;
        let used = Used::of(server);
        let back = used.descriptors <= before.descriptors + MORE_DESCRIPTORS && used.mib <= before.mib + MORE_MIB;
        if back || Instant::now() > end {
            return used;
        }
    }
}

// The servers.

/// A server, with what it needs.
struct World {
    hoop: Running,
    _nginx: Option<Running>,
    /// Where clients go.
    front: SocketAddr,
    client: Client,
    /// Where the application runs, so that no crowd's connections keep it from that.
    _application: Runtime,
    /// Where the honest client runs, so that neither the crowd nor the application keeps it from that.
    apart: Runtime,
    _folder: tempfile::TempDir,
}

/// The honest client.
#[derive(Clone)]
struct Client {
    address: Ipv4Addr,
    server: SocketAddr,
    path: &'static str,
    tls: Option<TlsConnector>,
}

impl World {
    async fn start(server: Server, lane: u8) -> Self {
        let runtime = || Builder::new_multi_thread().worker_threads(1).enable_all().build().expect("a runtime");
        let (runs, apart) = (runtime(), runtime());
        let address = runs.spawn(application()).await.expect("an application");
        // It waits until they listen, and others measure meanwhile.
        tokio::task::block_in_place(|| Self::start_with(server, lane, (address, runs), apart))
    }

    fn start_with(server: Server, lane: u8, (application, runs): (SocketAddr, Runtime), apart: Runtime) -> Self {
        let folder = tempfile::Builder::new().prefix("hoop-slow").tempdir_in(".").expect("a folder on disk");
        let at = folder.path().canonicalize().expect("the folder is there");
        let (address, mut tls) = (free_address(), None);
        let command = match server {
            Server::Service | Server::BehindNginx => service(&at, address, application),
            Server::Gateway => gateway(&at, address),
            Server::Relay => {
                let certificates = Certificates::make(&at, &[RELAY]).expect("certificates");
                tls = Some(trusting(&certificates.authority));
                relay(&at, address, &certificates)
            }
        };
        let hoop = Running::start(command, &at.join("log"), address);
        let nginx = (server == Server::BehindNginx).then(|| {
            let front = free_address();
            Running::start(nginx(&at, front, address), &at.join("nginx-output"), front)
        });
        let front = nginx.as_ref().map_or(address, |nginx| nginx.address);
        let path = if server == Server::Gateway { "/test" } else { "/" };
        let honest = Ipv4Addr::new(127, 250, 0, lane);
        let client = Client { address: honest, server: front, path, tls };
        Self { hoop, _nginx: nginx, front, client, _application: runs, apart, _folder: folder }
    }
}

impl Client {
    /// An honest request.
    async fn ask(self, since: Instant) -> Answer {
        let (begun, address) = (Instant::now(), self.address);
        // A relay answers whoever asks for no WebSocket with a status of its own.
        let any = self.tls.is_some();
        let answer = timeout(PATIENCE, status(address, self.server, self.path, self.tls)).await;
        let (took, at) = (begun.elapsed(), since.elapsed().as_secs_f64());
        match answer {
            Ok(Ok((429 | 503, said))) => {
                eprintln!("refused {address} {at:.1} s after the crowd came: {said}");
                Answer::Refused
            }
            Ok(Ok((status, _))) if any || status == 200 => {
                if took.as_secs_f64() > WORST_SECONDS {
                    eprintln!("{:.1} s for {address}, {at:.1} s after the crowd came", took.as_secs_f64());
                }
                Answer::Given(took)
            }
            other => {
                let took = took.as_secs_f64();
                eprintln!("no answer to {address} after {took:.1} s, {at:.1} s after the crowd came: {other:?}");
                Answer::None
            }
        }
    }
}

fn hoop(folder: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(ordinary_build());
    command.args(arguments).current_dir(folder);
    command
}

fn succeeds(mut command: Command) {
    let output = command.output().expect("hoop runs");
    assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
}

fn service(folder: &Path, address: SocketAddr, application: SocketAddr) -> Command {
    succeeds(hoop(folder, &["keygen", "-o", "keys"]));
    let fixed = ["service", "--origin", "https://photos.example", "--keys", "keys", "--state-dir", "state"];
    let mut command = hoop(folder, &fixed);
    command.args(["--trusted-proxy", "127.0.0.1", "--listen"]).arg(address.to_string());
    command.arg("--upstream").arg(format!("http://{application}"));
    command
}

fn gateway(folder: &Path, address: SocketAddr) -> Command {
    let mut command = hoop(folder, &["gateway", "--no-mdns", "--allow-dest", "127.0.0.1", "--spool", "spool"]);
    command.arg("--listen").arg(address.to_string());
    command
}

fn relay(folder: &Path, address: SocketAddr, certificates: &Certificates) -> Command {
    let name = format!("{RELAY}:{}", address.port());
    let mut introduce = hoop(folder, &["introduce", &name, "--devices", "devices.toml", "--address", "127.0.0.1"]);
    introduce.arg("--cert").arg(&certificates.authority);
    succeeds(introduce);
    let mut command = hoop(folder, &["relay", "--devices", "devices.toml", "--listen"]);
    command.arg(address.to_string());
    command.arg("--tls-cert").arg(&certificates.certificate).arg("--tls-key").arg(&certificates.key);
    command
}

/// TLS that trusts one authority.
fn trusting(authority: &Path) -> TlsConnector {
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_file(authority).expect("a certificate")).expect("an authority");
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
    let config = config.expect("versions of TLS").with_root_certificates(roots).with_no_client_auth();
    Arc::new(config).into()
}

/// The location of `docs/services.md`.
fn nginx(folder: &Path, address: SocketAddr, sidecar: SocketAddr) -> Command {
    let at = folder.display();
    let configuration = format!(
        "daemon off; master_process off; worker_processes 1; worker_rlimit_nofile 16384; user root; pid {at}/pid; error_log {at}/nginx-log;
         events {{ worker_connections 8192; }}
         http {{ access_log off; client_body_temp_path {at}/temp; proxy_temp_path {at}/p; fastcgi_temp_path {at}/f; uwsgi_temp_path {at}/u; scgi_temp_path {at}/s;
                 map $http_upgrade $connection_upgrade {{ default upgrade; \"\" close; }}
                 server {{ listen {address} backlog=4096; location / {{
                     proxy_pass http://{sidecar};
                     proxy_http_version 1.1;
                     proxy_set_header Host $host;
                     proxy_set_header X-Forwarded-For $proxy_add_x_forwarded_for;
                     proxy_set_header X-Forwarded-Proto $scheme;
                     proxy_set_header X-Forwarded-Host $host;
                     proxy_set_header Upgrade $http_upgrade;
                     proxy_set_header Connection $connection_upgrade;
                     proxy_read_timeout 330s;
                     proxy_max_temp_file_size 0;
                     client_max_body_size 0;
                     proxy_request_buffering off;
                 }} }} }}"
    );
    fs::write(folder.join("conf"), configuration).expect("room for a configuration");
    let mut command = Command::new("nginx");
    command.arg("-c").arg(folder.join("conf"));
    command
}

/// An application that answers each path in its own way.
async fn application() -> SocketAddr {
    let socket = TcpSocket::new_v4().expect("a socket");
    SockRef::from(&socket).set_tcp_mss(MSS).expect("a short segment");
    socket.bind((Ipv4Addr::LOCALHOST, 0).into()).expect("an address");
    let listener = socket.listen(4096).expect("a listener");
    let address = listener.local_addr().expect("an address");
    tokio::spawn(async move {
        let mut answers = JoinSet::new();
        loop {
            tokio::select! {
                Ok((stream, _)) = listener.accept() => drop(answers.spawn(answer(stream))),
                Some(_) = answers.join_next() => {}
            }
        }
    });
    address
}

async fn answer(mut stream: TcpStream) -> io::Result<()> {
    static FILM: [u8; 1 << 16] = [0; 1 << 16];
    let mut request = Vec::new();
    while !request.windows(4).any(|end| end == b"\r\n\r\n") {
        if stream.read_buf(&mut request).await? == 0 {
            return Ok(());
        }
    }
    let path = request.split(|byte| *byte == b' ').nth(1).unwrap_or_default();
    match path {
        b"/" => return stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello").await,
        b"/film" => {
            stream.write_all(b"HTTP/1.1 200 OK\r\n\r\n").await?;
            loop {
                stream.write_all(&FILM).await?;
            }
        }
        b"/events" => {
            stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n").await?;
        }
        _ => {}
    }
    // Whatever else comes, until the other side ends it.
    let mut rest = [0; 4096];
    while stream.read(&mut rest).await? > 0 {}
    Ok(())
}
