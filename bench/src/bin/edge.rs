//! What `hoop agent` and `hoop relay` cost: bytes of one download, hits of the relay's cache, and the time to the first byte.
//!
//! *Bulk*: `curl` loads a file from nginx, through agent and relay, by an `http://` address and by CONNECT, beside a flow of the same carrier between two processes that do nothing else, and beside a chain of two nginx in the
//! places of agent and relay, with and without TLS between them. All are on loopback, and once more over a lab link of 300 Mbit/s and 20 ms, where the two cores are not the limit. CPU is that of agent and relay, of
//! both nginx, or of both ends of the flow.
//!
//! *Hits*: sixteen kept connections ask agent and relay for what the relay's cache has, or nginx with `proxy_cache`, alone and behind another nginx in the agent's place with TLS between the two.
//!
//! *First byte*: on kept connections on loopback, and on new connections over a link of 100 ms.
//!
//! `--rounds N`; `--megabytes N` for another file on loopback (1,000); `--only bulk|hits|first` for one of the three.

use hoop_bench::edge::{self, NAME};
use hoop_bench::flows::{self, Part, quic, serve, websocket};
use hoop_bench::peers::cpu_seconds;
use hoop_bench::{Table, Verdict, median, number, rounds, spread, word};
use hoop_carrier::QuicOptions;
use hoop_endpoint::{FlowOptions, Use};
use hoop_lab::{Host, Lab, Link, LinkConfig, Topology};
use hoop_testbed::Program;
use hoop_units::Bitrate;
use std::fs::{self, File};
use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::process::ExitCode;
use std::time::{Duration, Instant};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::task::JoinSet;

/// The limits: of a bare flow's rate; of nginx's hits; milliseconds; round trips saved, of which a tenth may be the machines' time.
const BULK_MIN: f64 = 0.85;
const HITS_MIN: f64 = 0.5;
const FIRST_MS_MAX: f64 = 1.0;
const SAVED_MIN: f64 = 0.9;

const LINK_MBPS: u64 = 300;
const LINK_RTT_MS: u64 = 20;
const LINK_MEGABYTES: u64 = 200;

const FAR_RTT_MS: u64 = 100;

/// What the cache is asked for, and for how long.
const OBJECTS: [(&str, u64); 3] = [("1 kB", 1_000), ("100 kB", 100_000), ("10 MB", 10_000_000)];
const HITS_TIME: Duration = Duration::from_secs(2);
const CONNECTIONS: usize = 16;

/// Requests of one client for the first byte, and the pause between them.
const REQUESTS: usize = 40;
const REQUESTS_FAR: usize = 7;
const PAUSE: Duration = Duration::from_millis(10);

/// Answers' heads are smaller.
const HEAD_MAX: usize = 16 * 1024;

const ORIGIN: u16 = 8080;
const SECOND: u16 = 8081;
const SECOND_TLS: u16 = 8443;
const FIRST: u16 = 8082;
const FIRST_TLS: u16 = 8083;
const CACHE: u16 = 8084;
const CACHE_TLS: u16 = 8445;
const CACHE_BEHIND: u16 = 8085;
const QUIC: u16 = 4669;
const WEBSOCKET: u16 = 4670;
const QUIC_AGENT: u16 = 4673;
const WEBSOCKET_AGENT: u16 = 4674;

fn main() -> ExitCode {
    if let Some(role) = word("--role") {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        runtime.block_on(take_part(&role));
        return ExitCode::SUCCESS;
    }
    hoop_lab::enter().expect("the machine allows namespaces");
    let is_wanted = |name: &str| word("--only").is_none_or(|only| only == name);
    let mut verdict = Verdict::default();
    if is_wanted("bulk") {
        let megabytes = number("--megabytes").unwrap_or(1_000).max(1);
        bulk(&World::on_loopback(Relays::Plain, megabytes), megabytes, &mut verdict);
        let link = LinkConfig::new().rate(Bitrate::mbps(LINK_MBPS)).delay(Duration::from_millis(LINK_RTT_MS / 2));
        bulk(&World::over("300 Mbit/s, 20 ms", link, LINK_MEGABYTES), LINK_MEGABYTES, &mut verdict);
    }
    if is_wanted("hits") {
        hits(&World::on_loopback(Relays::WithDisk, 1), &mut verdict);
    }
    if is_wanted("first") {
        first_byte(&mut verdict);
    }
    verdict.exit()
}

/// Whether relays have a folder for what they keep: the cache in memory takes no object of 10 MB.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Relays {
    Plain,
    WithDisk,
}

/// Two hosts with a link, or one that is both, and everything that runs there.
struct World {
    lab: Lab,
    name: &'static str,
    device: &'static str,
    server: &'static str,
    link: &'static str,
    at: Ipv4Addr,
    folder: tempfile::TempDir,
    agents: [Option<Program>; 2],
    relays: [Option<Program>; 2],
    /// Of those that pass on: in the agent's place, in the relay's, and the cache.
    first: Option<Program>,
    second: Option<Program>,
    cache: Option<Program>,
    _origin: Option<Program>,
}

impl World {
    fn on_loopback(relays: Relays, megabytes: u64) -> Self {
        let lab = Lab::build(&Topology::new().host(Host::new("machine"))).expect("a lab");
        Self::of(lab, "loopback", ["machine", "machine", "lo"], Ipv4Addr::LOCALHOST, relays, megabytes)
    }

    fn over(name: &'static str, link: LinkConfig, megabytes: u64) -> Self {
        let hosts = Topology::new().host(Host::new("device")).host(Host::new("server").named(NAME));
        let lab = Lab::build(&hosts.link(Link::new("line", "device", "server").both(link))).expect("a lab");
        let at = lab.address("server");
        Self::of(lab, name, ["device", "server", "line"], at, Relays::Plain, megabytes)
    }

    fn of(
        lab: Lab,
        name: &'static str,
        [device, server, link]: [&'static str; 3],
        at: Ipv4Addr,
        kind: Relays,
        megabytes: u64,
    ) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let programs = (None, None, None, None);
        let (agents, relays) = ([None, None], [None, None]);
        let (first, second, cache, _origin) = programs;
        let mut world =
            Self { lab, name, device, server, link, at, folder, agents, relays, first, second, cache, _origin };
        world.start(kind, megabytes);
        world
    }

    fn start(&mut self, kind: Relays, megabytes: u64) {
        let path = self.folder.path();
        flows::make_certificate(path);
        fs::create_dir(path.join("www")).expect("a folder");
        for (name, bytes) in OBJECTS {
            self.put(name, bytes);
        }
        self.put("bulk", megabytes * 1_000_000);
        self.put("small", 100);
        edge::block_udp(&self.lab, self.server, WEBSOCKET);
        let (at, device) = (self.at, |program: &Path| self.lab.command(self.device, program));
        let server = |program: &Path| self.lab.command(self.server, program);
        let (www, show) = (path.join("www"), path.display());
        let tls = format!("ssl_certificate {show}/certificate.pem; ssl_certificate_key {show}/key.pem;");
        let origin = format!(
            "server {{ listen {ORIGIN}; root {}; add_header Cache-Control no-store;
               location /kept/ {{ alias {}/; add_header Cache-Control max-age=3600; }} }}",
            www.display(),
            www.display()
        );
        let pass = "proxy_http_version 1.1; proxy_set_header Connection ''; proxy_max_temp_file_size 0; proxy_ssl_protocols TLSv1.3;";
        let second = format!(
            "{pass} upstream origin {{ server 127.0.0.1:{ORIGIN}; keepalive 32; }}
             server {{ listen {SECOND}; listen {SECOND_TLS} ssl; {tls} location / {{ proxy_pass http://origin; }} }}"
        );
        let cache = format!(
            "{pass} proxy_cache_path {show}/cache keys_zone=all:10m max_size=1g;
             upstream origin {{ server 127.0.0.1:{ORIGIN}; keepalive 32; }}
             server {{ listen {CACHE}; listen {CACHE_TLS} ssl; {tls}
               location / {{ proxy_cache all; proxy_pass http://origin; }} }}"
        );
        let first = format!(
            "{pass} upstream plain {{ server {at}:{SECOND}; keepalive 32; }}
             upstream tls {{ server {at}:{SECOND_TLS}; keepalive 32; }}
             upstream cache {{ server {at}:{CACHE_TLS}; keepalive 32; }}
             server {{ listen 127.0.0.1:{FIRST}; location / {{ proxy_pass http://plain; }} }}
             server {{ listen 127.0.0.1:{FIRST_TLS}; location / {{ proxy_pass https://tls; }} }}
             server {{ listen 127.0.0.1:{CACHE_BEHIND}; location / {{ proxy_pass https://cache; }} }}"
        );
        let allow = at.to_string();
        let carriers = ["quic", "websocket"];
        let relays = [QUIC, WEBSOCKET];
        let agents = [QUIC_AGENT, WEBSOCKET_AGENT];
        self._origin = Some(edge::nginx(&server, &path.join("origin"), &origin));
        let second = edge::nginx(&server, &path.join("second"), &second);
        let cache = edge::nginx(&server, &path.join("cacher"), &cache);
        let first = edge::nginx(&device, &path.join("first"), &first);
        let files = [0, 1].map(|it| edge::introduce(path, carriers[it], &allow, relays[it]));
        let started = [0, 1].map(|it| {
            let state = path.join(format!("state-{}", carriers[it]));
            fs::create_dir(&state).expect("a folder");
            let state = state.display().to_string();
            let state_dir = ["--state-dir", &state];
            let more: &[&str] = if kind == Relays::WithDisk { &state_dir } else { &[] };
            Some(edge::relay(&server, path, relays[it], &allow, more))
        });
        let agents = [0, 1].map(|it| {
            let own = path.join(format!("agent-{}", carriers[it]));
            fs::create_dir(&own).expect("a folder");
            Some(edge::agent(&device, &own, &files[it], agents[it]))
        });
        (self.first, self.second, self.cache) = (Some(first), Some(second), Some(cache));
        (self.relays, self.agents) = (started, agents);
    }

    fn put(&self, name: &str, bytes: u64) {
        let file = File::create(self.folder.path().join("www").join(name.replace(' ', ""))).expect("a file");
        file.set_len(bytes).expect("room for a file");
    }

    fn cpu(&self, who: &[&Option<Program>]) -> f64 {
        who.iter().filter_map(|program| program.as_ref()).map(|program| cpu_seconds(program.pid())).sum()
    }

    fn part(&self, role: &str, arguments: &[&str]) -> Part {
        Part::start(&self.lab, self.device, role, self.folder.path(), arguments)
    }
}

// Bulk.

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Carried {
    Flow(usize),
    Http(usize),
    Connect(usize),
    Nginx(u16),
}

const PATHS: [(&str, Carried); 8] = [
    ("a flow, QUIC", Carried::Flow(0)),
    ("agent, http, QUIC", Carried::Http(0)),
    ("agent, CONNECT, QUIC", Carried::Connect(0)),
    ("a flow, WebSocket", Carried::Flow(1)),
    ("agent, http, WebSocket", Carried::Http(1)),
    ("agent, CONNECT, WebSocket", Carried::Connect(1)),
    ("two nginx", Carried::Nginx(FIRST)),
    ("two nginx, TLS between", Carried::Nginx(FIRST_TLS)),
];

#[derive(Clone, Copy, Debug)]
struct Pass {
    mb_per_s: f64,
    cpu_s_per_gb: f64,
}

fn bulk(world: &World, megabytes: u64, verdict: &mut Verdict) {
    let mut passes: [Vec<Pass>; PATHS.len()] = Default::default();
    for round in 0..rounds() {
        for turn in 0..PATHS.len() {
            let at = (turn + round) % PATHS.len();
            passes[at].push(pass(world, PATHS[at].1, megabytes));
            eprintln!("{}: {}: {:?}", world.name, PATHS[at].0, passes[at][round]);
        }
    }
    let mut table = Table::new([
        "bulk",
        "MB/s, median",
        "min-max",
        "of the flow",
        "limit 0.85",
        "CPU s/GB",
        "of two nginx",
        "of two nginx with TLS",
    ]);
    let ratio = |own: &[Pass], other: &[Pass], of: fn(&Pass) -> f64| {
        median(&own.iter().zip(other).map(|(own, other)| of(own) / of(other)).collect::<Vec<_>>())
    };
    for ((name, path), own) in PATHS.iter().zip(&passes) {
        let rates: Vec<f64> = own.iter().map(|pass| pass.mb_per_s).collect();
        let (low, high) = spread(&rates);
        let (share, limit) = match path {
            Carried::Http(carrier) | Carried::Connect(carrier) => {
                let share = ratio(own, &passes[carrier * 3], |pass| pass.mb_per_s);
                (format!("{share:.2}"), verdict.at_least(&format!("{}, {name}", world.name), share, BULK_MIN))
            }
            Carried::Flow(_) | Carried::Nginx(_) => (String::new(), ""),
        };
        let work = |peer: usize| format!("{:.2}", ratio(own, &passes[peer], |pass| pass.cpu_s_per_gb));
        table.row([
            (*name).into(),
            format!("{:.0}", median(&rates)),
            format!("{low:.0}-{high:.0}"),
            share,
            limit.into(),
            format!("{:.2}", median(&own.iter().map(|pass| pass.cpu_s_per_gb).collect::<Vec<_>>())),
            work(6),
            work(7),
        ]);
    }
    println!("{}, {megabytes} MB\n\n{}", world.name, table.render());
}

fn pass(world: &World, path: Carried, megabytes: u64) -> Pass {
    let bytes = megabytes * 1_000_000;
    let gigabytes = bytes as f64 / 1e9;
    if let Carried::Flow(carrier) = path {
        let mut server = Part::start(&world.lab, world.server, "server", world.folder.path(), &[]);
        server.expect("ready");
        let (at, carrier, bytes) = (world.at.to_string(), carrier.to_string(), bytes.to_string());
        let mut device =
            world.part("flow", &["--at", &at, "--carrier", &carrier, "--bytes", &bytes, "--by", world.link]);
        let seconds: f64 = device.expect("took ").parse().expect("seconds");
        let cpu = cpu_seconds(server.id()) + cpu_seconds(device.id());
        return Pass { mb_per_s: megabytes as f64 / seconds, cpu_s_per_gb: cpu / gigabytes };
    }
    let mut curl = world.lab.command(world.device, "curl");
    curl.args(["--silent", "--show-error", "--fail", "--output", "/dev/null", "--write-out", "%{time_total}"]);
    let origin = format!("http://{}:{ORIGIN}/bulk", world.at);
    let agent = |carrier: usize| format!("http://127.0.0.1:{}", [QUIC_AGENT, WEBSOCKET_AGENT][carrier]);
    let who = match path {
        Carried::Http(carrier) | Carried::Connect(carrier) => {
            curl.args(["--proxy", &agent(carrier)]).arg(&origin);
            if matches!(path, Carried::Connect(_)) {
                curl.arg("--proxytunnel");
            }
            [&world.agents[carrier], &world.relays[carrier]]
        }
        Carried::Nginx(port) => {
            curl.arg(format!("http://127.0.0.1:{port}/bulk"));
            [&world.first, &world.second]
        }
        Carried::Flow(_) => unreachable!("it has gone by itself"),
    };
    let before = world.cpu(&who);
    let done = curl.output().expect("curl runs");
    assert!(done.status.success(), "{path:?}: {}", String::from_utf8_lossy(&done.stderr));
    let seconds: f64 = String::from_utf8_lossy(&done.stdout).trim().parse().expect("seconds");
    Pass { mb_per_s: megabytes as f64 / seconds, cpu_s_per_gb: (world.cpu(&who) - before) / gigabytes }
}

// Hits.

const HITTERS: [(&str, u16); 4] = [
    ("agent and relay, QUIC", QUIC_AGENT),
    ("agent and relay, WebSocket", WEBSOCKET_AGENT),
    ("nginx", CACHE),
    ("nginx behind nginx, TLS", CACHE_BEHIND),
];

fn hits(world: &World, verdict: &mut Verdict) {
    let mut table = Table::new([
        "object",
        "cache",
        "hits/s, median",
        "min-max",
        "of nginx",
        "limit 0.5",
        "of nginx behind nginx",
        "CPU ms a hit",
    ]);
    for (object, _) in OBJECTS {
        let mut rates: [Vec<f64>; HITTERS.len()] = Default::default();
        let mut works: [Vec<f64>; HITTERS.len()] = Default::default();
        for round in 0..rounds() {
            for turn in 0..HITTERS.len() {
                let at = (turn + round) % HITTERS.len();
                let who: &[&Option<Program>] = match at {
                    0 | 1 => &[&world.agents[at], &world.relays[at]],
                    2 => &[&world.cache],
                    _ => &[&world.first, &world.cache],
                };
                let port = HITTERS[at].1;
                let mut client =
                    world.part("hits", &hits_arguments(world, object, port).each_ref().map(|word| &**word));
                client.expect("warm");
                let before = world.cpu(who);
                client.say("go");
                let hits: f64 = client.expect("hits ").parse().expect("a number");
                works[at].push((world.cpu(who) - before) / hits * 1e3);
                rates[at].push(hits / HITS_TIME.as_secs_f64());
                eprintln!("{object}: {}: {:.0}/s", HITTERS[at].0, rates[at][round]);
            }
        }
        let ratio = |own: usize, other: usize| {
            median(&rates[own].iter().zip(&rates[other]).map(|(own, other)| own / other).collect::<Vec<_>>())
        };
        for (at, (name, _)) in HITTERS.iter().enumerate() {
            let (low, high) = spread(&rates[at]);
            let limit = if at < 2 {
                verdict.at_least(&format!("hits of {object}, {name}"), ratio(at, 2), HITS_MIN)
            } else {
                ""
            };
            table.row([
                object.into(),
                (*name).into(),
                format!("{:.0}", median(&rates[at])),
                format!("{low:.0}-{high:.0}"),
                format!("{:.2}", ratio(at, 2)),
                limit.into(),
                format!("{:.2}", ratio(at, 3)),
                format!("{:.3}", median(&works[at])),
            ]);
        }
    }
    println!("{}", table.render());
}

fn hits_arguments(world: &World, object: &str, port: u16) -> [String; 6] {
    let path = format!("/kept/{}", object.replace(' ', ""));
    let target = match port {
        QUIC_AGENT | WEBSOCKET_AGENT => format!("http://{}:{ORIGIN}{path}", world.at),
        _ => path,
    };
    ["--at".into(), format!("127.0.0.1:{port}"), "--target".into(), target, "--host".into(), world.at.to_string()]
}

// The first byte.

fn first_byte(verdict: &mut Verdict) {
    let mut table =
        Table::new(["kept connections on loopback", "first byte ms, median", "min-max", "added", "limit 1"]);
    let world = World::on_loopback(Relays::Plain, 1);
    let direct = format!("{}:{ORIGIN}", world.at);
    let agents = [QUIC_AGENT, WEBSOCKET_AGENT].map(|port| format!("127.0.0.1:{port}"));
    let url = format!("http://{}:{ORIGIN}/small", world.at);
    let ways = [
        ("straight", direct, "/small".to_owned()),
        ("agent and relay, QUIC", agents[0].clone(), url.clone()),
        ("agent and relay, WebSocket", agents[1].clone(), url),
    ];
    let mut all: [Vec<f64>; 3] = Default::default();
    for round in 0..rounds() {
        for turn in 0..ways.len() {
            let at = (turn + round) % ways.len();
            let (_, proxy, target) = &ways[at];
            all[at].push(first(&world, "kept", proxy, target));
        }
    }
    for (at, (name, ..)) in ways.iter().enumerate() {
        let added: Vec<f64> = all[at].iter().zip(&all[0]).map(|(own, straight)| own - straight).collect();
        let (low, high) = spread(&all[at]);
        let limit =
            if at > 0 { verdict.at_most(&format!("first byte, {name}"), median(&added), FIRST_MS_MAX) } else { "" };
        table.row([
            (*name).into(),
            format!("{:.3}", median(&all[at])),
            format!("{low:.3}-{high:.3}"),
            if at > 0 { format!("{:.3}", median(&added)) } else { String::new() },
            limit.into(),
        ]);
    }
    println!("{}", table.render());

    let mut table =
        Table::new(["new connections, RTT 100 ms", "first byte ms, median", "min-max", "round trips saved", "limit 1"]);
    let delay = Duration::from_millis(FAR_RTT_MS / 2);
    let world = World::over("100 ms", LinkConfig::new().delay(delay), 1);
    let url = format!("http://{NAME}:{ORIGIN}/small");
    let direct = (format!("{}:{ORIGIN}", world.at), "/small".to_owned());
    let ways = [
        ("straight", "new", direct.0, direct.1.clone()),
        ("agent, http, QUIC", "new", agents[0].clone(), url.clone()),
        ("agent, CONNECT, QUIC", "connect", agents[0].clone(), direct.1.clone()),
        ("agent, http, WebSocket", "new", agents[1].clone(), url),
        ("agent, CONNECT, WebSocket", "connect", agents[1].clone(), direct.1),
    ];
    let mut all: [Vec<f64>; 5] = Default::default();
    for round in 0..rounds() {
        for turn in 0..ways.len() {
            let at = (turn + round) % ways.len();
            let (_, how, proxy, target) = &ways[at];
            all[at].push(first(&world, how, proxy, target));
        }
    }
    for (at, (name, ..)) in ways.iter().enumerate() {
        let saved = all[at].iter().zip(&all[0]).map(|(own, straight)| (straight - own) / FAR_RTT_MS as f64);
        let saved = median(&saved.collect::<Vec<_>>());
        let (low, high) = spread(&all[at]);
        let limit = if at > 0 { verdict.at_least(&format!("new connections, {name}"), saved, SAVED_MIN) } else { "" };
        table.row([
            (*name).into(),
            format!("{:.1}", median(&all[at])),
            format!("{low:.1}-{high:.1}"),
            if at > 0 { format!("{saved:.2}") } else { String::new() },
            limit.into(),
        ]);
    }
    println!("{}", table.render());
}

/// Milliseconds to the first byte, the median of one client.
fn first(world: &World, how: &str, at: &str, target: &str) -> f64 {
    let mut client = world.part("first", &["--how", how, "--at", at, "--target", target, "--host", NAME]);
    client.expect("took ").parse().expect("milliseconds")
}

// The parts.

async fn take_part(role: &str) {
    match role {
        "server" => serve(FlowOptions::default(), &QuicOptions::server()).await,
        "flow" => flow().await,
        "hits" => hit().await,
        _ => first_bytes().await,
    }
}

/// One flow that downloads.
async fn flow() {
    let address = word("--at").expect("an address").parse().expect("an address");
    let (by, bytes) = (word("--by").expect("an interface"), number("--bytes").expect("a number") as usize);
    let device = flows::device();
    let carrier = match number("--carrier") {
        Some(0) => quic(&by, address, &QuicOptions::device()).await,
        _ => websocket(&by, address).await,
    };
    device.add_carrier(carrier, Use::Normal, &*by);
    let begin = Instant::now();
    let mut flow = device.open(&format!("source:{bytes}"), FlowOptions::default()).expect("a flow");
    let mut came = 0;
    while came < bytes {
        came += flow.read_chunk(64 * 1024).await.expect("it goes on").expect("there is more").len();
    }
    println!("took {}", begin.elapsed().as_secs_f64());
    // It is looked at before it ends.
    std::future::pending().await
}

fn said(option: &str) -> String {
    word(option).unwrap_or_else(|| panic!("{option} is needed"))
}

fn request() -> String {
    format!("GET {} HTTP/1.1\r\nHost: {}\r\nAccept: */*\r\n\r\n", said("--target"), said("--host"))
}

async fn connect() -> TcpStream {
    let at: SocketAddr = said("--at").parse().expect("an address");
    let stream = TcpStream::connect(at).await.expect("a connection");
    stream.set_nodelay(true).expect("no delay");
    stream
}

/// Asks again and again by several connections for as long.
async fn hit() {
    let mut connections = Vec::new();
    for _ in 0..CONNECTIONS {
        let mut connection = Connection::new(connect().await);
        connection.ask(&request()).await;
        connections.push(connection);
    }
    println!("warm");
    flows::told().await;
    let end = Instant::now() + HITS_TIME;
    let mut all = JoinSet::new();
    for mut connection in connections {
        all.spawn(async move {
            let (request, mut hits) = (request(), 0_u64);
            while Instant::now() < end {
                connection.ask(&request).await;
                hits += 1;
            }
            hits
        });
    }
    println!("hits {}", all.join_all().await.iter().sum::<u64>());
    std::future::pending().await
}

async fn first_bytes() {
    let how = said("--how");
    let mut kept = Connection::new(connect().await);
    // Whatever has to be dialled is there then.
    kept.ask(&if how == "connect" { request_by_proxy() } else { request() }).await;
    let mut took = Vec::new();
    for _ in 0..(if how == "kept" { REQUESTS } else { REQUESTS_FAR }) {
        tokio::time::sleep(PAUSE).await;
        let begin = Instant::now();
        let first = match &how[..] {
            "kept" => kept.ask(&request()).await,
            "new" => Connection::new(connect().await).ask(&request()).await,
            _ => {
                let mut connection = Connection::new(connect().await);
                let name = format!("{}:{ORIGIN}", said("--host"));
                connection.ask(&format!("CONNECT {name} HTTP/1.1\r\nHost: {name}\r\n\r\n")).await;
                connection.ask(&request()).await
            }
        };
        took.push((first - begin).as_secs_f64() * 1e3);
    }
    println!("took {}", median(&took));
    flows::told().await;
}

fn request_by_proxy() -> String {
    let host = said("--host");
    format!("GET http://{host}:{ORIGIN}{} HTTP/1.1\r\nHost: {host}:{ORIGIN}\r\n\r\n", said("--target"))
}

/// A connection, and what has come on it of which nothing is known yet.
struct Connection {
    stream: TcpStream,
    buffer: Vec<u8>,
}

impl Connection {
    fn new(stream: TcpStream) -> Self {
        Self { stream, buffer: vec![0; 256 * 1024] }
    }

    /// Sends a request and reads the whole of a good answer. When its first byte came.
    async fn ask(&mut self, request: &str) -> Instant {
        self.stream.write_all(request.as_bytes()).await.expect("it is taken");
        let (mut first, mut len) = (None, 0);
        let (head, body) = loop {
            let read = self.stream.read(&mut self.buffer[len..]).await.expect("an answer");
            assert!(read > 0 && len < HEAD_MAX, "an answer has a head");
            first.get_or_insert_with(Instant::now);
            len += read;
            let head = self.buffer[..len].windows(4).position(|four| four == b"\r\n\r\n");
            if let Some(head) = head {
                break (head + 4, body_len(&self.buffer[..head]));
            }
        };
        let mut left = body.saturating_sub(len - head);
        while left > 0 {
            let most = left.min(self.buffer.len());
            let read = self.stream.read(&mut self.buffer[..most]).await.expect("a body");
            assert!(read > 0, "the body is whole");
            left -= read;
        }
        first.expect("there was an answer")
    }
}

fn body_len(head: &[u8]) -> usize {
    let head = String::from_utf8_lossy(head).to_ascii_lowercase();
    assert!(head.starts_with("http/1.1 200"), "{head}");
    let field = head.lines().find_map(|line| line.strip_prefix("content-length:"));
    field.map_or(0, |len| len.trim().parse().expect("a length"))
}
