//! A page of 150 images of 1,517 bytes over a link with delay: through `hoop agent` and `hoop relay`, by QUIC and by WebSocket, beside HTTP/1.1 with six connections and HTTP/2 (nginx), HTTP/3 (Caddy) and
//! multiplexing over WebSocket (v2ray's mux, VLESS and TLS).
//!
//! ```text
//!  device: client, agent ═══ 10 or 2 Mbit/s, 10 to 600 ms round trip, queue of 256 KiB ═══ server: relay, nginx, Caddy, v2ray
//! ```
//!
//! The client asks for all at once. *Cold* is the first load: with agent or v2ray just started, or from the first connection on. *Warm* is a second load over the same connections right after that. Images say `no-store`,
//! so the relay asks nginx for each. For *WebSocket*, the server drops the UDP of its relay, so that cold has the time that QUIC is waited for. A peer that is not installed is left out.
//!
//! The limit of a warm load is 1.25 round trips and the transmission: 150 images with a head of 150 bytes each at the link's rate, and nothing of what packets add.
//!
//! `--rounds N`; `--together N` links at once (2); `--quick` for two links and no loss; `--link 10/100` for those that have it in their name; `--chart FILE.svg` draws throughput against delay, 5 to 300 ms, instead.

use hoop_bench::chart::{Axis, Figure, Panel, Series};
use hoop_bench::clients::{Client, IMAGE_BYTES, IMAGES, Protocol, Target};
use hoop_bench::edge::{self, NAME};
use hoop_bench::flows::{self, Part, told};
use hoop_bench::{Table, Verdict, median, number, rounds, spread, word};
use hoop_lab::{Host, Lab, Link, LinkConfig, Loss, Probability, Topology};
use hoop_testbed::Program;
use hoop_units::Bitrate;
use std::fs;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::process::ExitCode;
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

const MBPS: [u64; 2] = [10, 2];
const ROUND_TRIPS_MS: [u64; 5] = [10, 50, 100, 300, 600];

/// In percent, at this round trip.
const LOSSES: [u8; 2] = [1, 3];
const LOSSY_MS: u64 = 100;

/// The links of the chart, as in the published figure, and of `--quick`.
const CHART_MS: [u64; 6] = [5, 25, 50, 100, 200, 300];
const QUICK_MS: [u64; 2] = [50, 300];

/// An answer's head, as HTTP/1.1 has it at the least.
const HEAD_BYTES: usize = 150;

/// The limit of a warm load, in round trips, besides the transmission.
const ROUND_TRIPS_MAX: f64 = 1.25;

/// Links at once: most of their time they wait.
const TOGETHER: u64 = 2;

/// No load takes longer.
const LOAD_MAX: Duration = Duration::from_secs(180);

const QUIC_PORT: u16 = 4669;
const WEBSOCKET_PORT: u16 = 4670;
const CADDY_PORT: u16 = 8443;
const V2RAY_PORT: u16 = 8444;

/// Where agent and v2ray listen on the device.
const PROXY_PORT: u16 = 4673;

/// What is between client and server.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Rival {
    Quic,
    WebSocket,
    Http1,
    Http2,
    Http3,
    V2ray,
}

impl Rival {
    const ALL: [Self; 6] = [Self::Quic, Self::WebSocket, Self::Http1, Self::Http2, Self::Http3, Self::V2ray];

    const fn name(self) -> &'static str {
        match self {
            Self::Quic => "hoop, QUIC",
            Self::WebSocket => "hoop, WebSocket",
            Self::Http1 => "HTTP/1.1, six",
            Self::Http2 => "HTTP/2",
            Self::Http3 => "HTTP/3",
            Self::V2ray => "v2ray mux",
        }
    }

    const fn is_ours(self) -> bool {
        matches!(self, Self::Quic | Self::WebSocket)
    }

    fn is_there(self) -> bool {
        match self {
            Self::Http3 => edge::is_installed("caddy", "version"),
            Self::V2ray => edge::is_installed("v2ray", "-version"),
            Self::Quic | Self::WebSocket | Self::Http1 | Self::Http2 => true,
        }
    }

    const fn protocol(self) -> &'static str {
        match self {
            Self::Quic | Self::WebSocket | Self::V2ray => "proxy",
            Self::Http1 => "http1",
            Self::Http2 => "http2",
            Self::Http3 => "http3",
        }
    }

    /// Where the client connects to.
    fn at(self, server: Ipv4Addr) -> SocketAddr {
        match self {
            Self::Quic | Self::WebSocket | Self::V2ray => (Ipv4Addr::LOCALHOST, PROXY_PORT).into(),
            Self::Http1 | Self::Http2 => (server, 443).into(),
            Self::Http3 => (server, CADDY_PORT).into(),
        }
    }
}

#[derive(Clone, Copy, Debug)]
struct Way {
    mbps: u64,
    ms: u64,
    loss: u8,
}

impl Way {
    fn name(self) -> String {
        match self.loss {
            0 => format!("{}/{}", self.mbps, self.ms),
            loss => format!("{}/{}/{loss}%", self.mbps, self.ms),
        }
    }

    fn transmission(self) -> f64 {
        (IMAGES * (IMAGE_BYTES + HEAD_BYTES) * 8) as f64 / (self.mbps * 1_000_000) as f64
    }

    fn limit(self) -> f64 {
        ROUND_TRIPS_MAX * self.ms as f64 / 1e3 + self.transmission()
    }
}

/// Seconds of both loads, and the bytes that the warm one took on the link, both ways.
#[derive(Clone, Copy, Debug)]
struct Loads {
    cold: f64,
    warm: f64,
    bytes: [u64; 2],
}

/// The loads of a link, by rival and round.
type Measured = Vec<(Rival, Vec<Loads>)>;

fn main() -> ExitCode {
    if word("--role").is_some() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        runtime.block_on(load());
        return ExitCode::SUCCESS;
    }
    hoop_lab::enter().expect("the machine allows namespaces");
    let rivals: Vec<Rival> = Rival::ALL.into_iter().filter(|rival| rival.is_there()).collect();
    for missing in Rival::ALL.iter().filter(|rival| !rivals.contains(rival)) {
        println!("{} is left out: it is not installed.\n", missing.name());
    }
    if let Some(file) = word("--chart") {
        return chart(&rivals, Path::new(&file));
    }
    let is_quick = std::env::args().any(|argument| argument == "--quick");
    let delays = if is_quick { &QUICK_MS[..] } else { &ROUND_TRIPS_MS };
    let mut links: Vec<(u64, u8)> = delays.iter().map(|ms| (*ms, 0)).collect();
    if !is_quick {
        links.extend(LOSSES.map(|loss| (LOSSY_MS, loss)));
    }
    let mut ways: Vec<Way> = links.into_iter().flat_map(|(ms, loss)| MBPS.map(|mbps| Way { mbps, ms, loss })).collect();
    ways.retain(|way| word("--link").is_none_or(|part| way.name().contains(&part)));
    // The longest is the first to be taken.
    ways.sort_by_key(|way| way.ms);
    let (ways, measured) = (Mutex::new(ways), Mutex::new(Vec::new()));
    thread::scope(|scope| {
        for _ in 0..number("--together").unwrap_or(TOGETHER) {
            scope.spawn(|| {
                let take = || ways.lock().unwrap_or_else(PoisonError::into_inner).pop();
                while let Some(way) = take() {
                    let loads = measure(way, &rivals);
                    measured.lock().unwrap_or_else(PoisonError::into_inner).push((way, loads));
                }
            });
        }
    });
    let mut measured: Vec<(Way, Measured)> = measured.into_inner().unwrap_or_else(PoisonError::into_inner);
    measured.sort_by_key(|(way, _)| (way.loss, u64::MAX - way.mbps, way.ms));
    let mut verdict = Verdict::default();
    warm(&measured, &rivals, &mut verdict);
    cold(&measured, &rivals, &mut verdict);
    bytes(&measured, &rivals);
    verdict.exit()
}

// The tables.

fn head(way: Way) -> Vec<String> {
    let loss = if way.loss == 0 { "-".to_owned() } else { format!("{} %", way.loss) };
    vec![way.mbps.to_string(), way.ms.to_string(), loss]
}

fn of(measured: &Measured, rival: Rival, what: fn(&Loads) -> f64) -> Option<Vec<f64>> {
    let (_, loads) = measured.iter().find(|(own, _)| *own == rival)?;
    Some(loads.iter().map(what).collect())
}

/// The median of the ratios of each round.
fn ratio(own: &[f64], other: &[f64]) -> f64 {
    median(&own.iter().zip(other).map(|(own, other)| own / other).collect::<Vec<_>>())
}

/// How long it takes of what the fastest of the peers takes, and who that is.
fn of_best(measured: &Measured, rival: Rival, what: fn(&Loads) -> f64) -> (f64, &'static str) {
    let own = of(measured, rival, what).expect("it was measured");
    let peers = measured.iter().filter(|(peer, _)| !peer.is_ours());
    let ratios = peers.map(|(peer, loads)| (ratio(&own, &loads.iter().map(what).collect::<Vec<_>>()), peer.name()));
    ratios.max_by(|one, other| one.0.total_cmp(&other.0)).expect("there is nginx")
}

fn shown(seconds: &[f64]) -> String {
    let (low, high) = spread(seconds);
    format!("{:.3} ({low:.2}-{high:.2})", median(seconds))
}

fn warm(measured: &[(Way, Measured)], rivals: &[Rival], verdict: &mut Verdict) {
    let mut columns = vec!["Mbit/s".to_owned(), "RTT ms".into(), "loss".into()];
    columns.extend(rivals.iter().map(|rival| rival.name().to_owned()));
    columns
        .extend(["limit s", "QUIC", "WebSocket", "QUIC of the best peer", "WebSocket", "limit < 1"].map(String::from));
    let mut table = Table::of(columns);
    for (way, loads) in measured {
        let mut row = head(*way);
        row.extend(rivals.iter().map(|rival| shown(&of(loads, *rival, |loads| loads.warm).expect("measured"))));
        let name = way.name();
        let ours = [Rival::Quic, Rival::WebSocket];
        let best = ours.map(|rival| of_best(loads, rival, |loads| loads.warm));
        if way.loss == 0 {
            row.push(format!("{:.3}", way.limit()));
            row.extend(ours.map(|rival| {
                let seconds = median(&of(loads, rival, |loads| loads.warm).expect("measured"));
                verdict.at_most(&format!("{name}, {}, warm", rival.name()), seconds, way.limit()).to_owned()
            }));
        } else {
            row.extend(["", "", ""].map(String::from));
        }
        row.extend(best.map(|(ratio, peer)| format!("{ratio:.2} ({peer})")));
        // Where packets are lost, QUIC alone has to be ahead.
        let judged = if way.loss == 0 { 2 } else { 1 };
        let held = ours.iter().zip(best).take(judged).map(|(rival, (ratio, peer))| {
            verdict.at_most(&format!("{name}, {} beside {peer}, warm", rival.name()), ratio, ONE)
        });
        row.push(held.collect::<Vec<_>>().join(", "));
        table.push(row);
    }
    println!("Warm, seconds: median (least-most)\n\n{}", table.render());
}

/// Just less than as long.
const ONE: f64 = 0.999_999;

fn cold(measured: &[(Way, Measured)], rivals: &[Rival], verdict: &mut Verdict) {
    let mut columns = vec!["Mbit/s".to_owned(), "RTT ms".into(), "loss".into()];
    columns.extend(rivals.iter().map(|rival| rival.name().to_owned()));
    columns.extend(["QUIC of HTTP/3", "limit <= 1"].map(String::from));
    let mut table = Table::of(columns);
    for (way, loads) in measured {
        let mut row = head(*way);
        row.extend(rivals.iter().map(|rival| shown(&of(loads, *rival, |loads| loads.cold).expect("measured"))));
        let own = of(loads, Rival::Quic, |loads| loads.cold).expect("measured");
        let Some(peer) = of(loads, Rival::Http3, |loads| loads.cold) else {
            row.extend(["", ""].map(String::from));
            table.push(row);
            continue;
        };
        let ratio = ratio(&own, &peer);
        row.push(format!("{ratio:.2}"));
        row.push(verdict.at_most(&format!("{}, cold of HTTP/3", way.name()), ratio, 1.0).into());
        table.push(row);
    }
    println!("Cold, seconds: median (least-most)\n\n{}", table.render());
}

/// What a load takes on the wire, each way, at the first link without loss.
fn bytes(measured: &[(Way, Measured)], rivals: &[Rival]) {
    let Some((way, loads)) = measured.first() else { return };
    let mut table = Table::new(["on the link, warm", "kB down", "kB up", "ms of transmission down"]);
    for rival in rivals {
        let of = |what| median(&of(loads, *rival, what).expect("measured")) / 1e3;
        let (down, up) = (of(|loads| loads.bytes[0] as f64), of(|loads| loads.bytes[1] as f64));
        let ms = down * 8.0 / way.mbps as f64;
        table.row([rival.name().into(), format!("{down:.0}"), format!("{up:.0}"), format!("{ms:.0}")]);
    }
    println!("At {} Mbit/s and {} ms\n\n{}", way.mbps, way.ms, table.render());
}

// The chart.

/// Throughput of warm loads against delay, with what the paper says of 300 ms.
fn chart(rivals: &[Rival], file: &Path) -> ExitCode {
    let ways = CHART_MS.map(|ms| Way { mbps: MBPS[0], ms, loss: 0 });
    let measured = ways.map(|way| measure(way, rivals));
    let kbps = |seconds: f64| (IMAGES * IMAGE_BYTES * 8) as f64 / seconds / 1e3;
    let mut panel = Panel::new(Axis::new("round trip, ms").from(0.0), Axis::new("kbit/s").from(0.0));
    for rival in rivals {
        let points = ways.iter().zip(&measured).map(|(way, loads)| {
            (way.ms as f64, kbps(median(&of(loads, *rival, |loads| loads.warm).expect("measured"))))
        });
        let points: Vec<(f64, f64)> = points.collect();
        println!("{}: {points:.0?}", rival.name());
        panel = panel.series(Series::line(rival.name(), points));
    }
    for (name, kbps) in [("published, 60", 60.0), ("published, 162", 162.0)] {
        panel = panel.series(Series::line(name, vec![(290.0, kbps), (300.0, kbps)]));
    }
    let title = format!("150 images of {IMAGE_BYTES} bytes, {} Mbit/s: throughput against delay", MBPS[0]);
    fs::write(file, Figure::new(&title).panel(panel).render().expect("a figure")).expect("room for a figure");
    ExitCode::SUCCESS
}

// A link.

/// Hosts, and the servers that stay.
struct World {
    lab: Lab,
    folder: tempfile::TempDir,
    server: Ipv4Addr,
    _programs: Vec<Program>,
}

impl World {
    fn build(way: Way, rivals: &[Rival]) -> Self {
        let loss = match way.loss {
            0 => Loss::None,
            loss => Loss::Independent(Probability::percent(loss)),
        };
        let delay = Duration::from_micros(way.ms * 500);
        let config = LinkConfig::new().rate(Bitrate::mbps(way.mbps)).delay(delay).loss(loss);
        let topology = Topology::new().host(Host::new("device")).host(Host::new("server").named(NAME));
        let lab = Lab::build(&topology.link(Link::new("line", "device", "server").both(config))).expect("a lab");
        for host in ["device", "server"] {
            // No connection is to know what an earlier one learned of the link.
            let parameter = "/proc/sys/net/ipv4/tcp_no_metrics_save";
            lab.in_host(host, || fs::write(parameter, "1")).expect("a parameter of the kernel's");
            // TCP has the congestion control of an ordinary Linux, as QUIC has here, whatever this machine's is.
            let mut routes = lab.command(host, Path::new("sh"));
            routes.args([
                "-ec",
                "ip route show dev line | while read -r route; do ip route replace $route dev line congctl cubic; done",
            ]);
            assert!(routes.status().is_ok_and(|status| status.success()), "a host's routes take no congestion control");
        }
        let folder = tempfile::tempdir().expect("a folder");
        let (path, server) = (folder.path(), lab.address("server"));
        hoop_testbed::Certificates::make(path, &[NAME]).expect("certificates");
        let www = path.join("www");
        fs::create_dir(&www).expect("a folder");
        for image in 0..IMAGES {
            fs::write(www.join(image.to_string()), [image as u8; IMAGE_BYTES]).expect("room for an image");
        }
        edge::introduce(path, "quic", &server.to_string(), QUIC_PORT);
        edge::introduce(path, "websocket", &server.to_string(), WEBSOCKET_PORT);
        let place = |program: &Path| lab.command("server", program);
        edge::block_udp(&lab, "server", WEBSOCKET_PORT);
        let http = format!(
            "server {{ listen 80; listen 443 ssl http2; http2_max_concurrent_streams 256; root {};
             ssl_certificate {}; ssl_certificate_key {}; default_type image/png; add_header Cache-Control no-store; }}",
            www.display(),
            path.join("certificate.pem").display(),
            path.join("key.pem").display()
        );
        let mut programs = vec![edge::nginx(&place, &path.join("nginx"), &http)];
        for port in [QUIC_PORT, WEBSOCKET_PORT] {
            programs.push(edge::relay(&place, path, port, &server.to_string(), &[]));
        }
        if rivals.contains(&Rival::Http3) {
            programs.push(edge::caddy(&place, path, &www, CADDY_PORT));
        }
        if rivals.contains(&Rival::V2ray) {
            programs.push(edge::v2ray_server(&place, path, V2RAY_PORT));
        }
        Self { lab, folder, server, _programs: programs }
    }

    /// What the device runs for this rival, just started.
    fn helper(&self, rival: Rival) -> Option<Program> {
        let (path, server) = (self.folder.path(), self.server.to_string());
        let place = |program: &Path| self.lab.command("device", program);
        match rival {
            Rival::Quic => Some(edge::agent(&place, path, &path.join("quic.toml"), PROXY_PORT)),
            Rival::WebSocket => Some(edge::agent(&place, path, &path.join("websocket.toml"), PROXY_PORT)),
            Rival::V2ray => Some(edge::v2ray_client(&place, path, PROXY_PORT, &server, V2RAY_PORT)),
            Rival::Http1 | Rival::Http2 | Rival::Http3 => None,
        }
    }

    fn passed(&self) -> [u64; 2] {
        let counters = self.lab.counters("line");
        [counters.down.passed_bytes, counters.up.passed_bytes]
    }

    fn run(&self, rival: Rival) -> Loads {
        let _helper = self.helper(rival);
        let at = rival.at(self.server).to_string();
        let arguments = ["--protocol", rival.protocol(), "--at", &at];
        let mut client = Part::start(&self.lab, "device", "client", self.folder.path(), &arguments);
        let mut seconds = || -> f64 {
            let said = client.hear_within(LOAD_MAX);
            let said = said.unwrap_or_else(|error| panic!("{} gets no images: {error}", rival.name()));
            client.say("again");
            said.parse().expect("seconds")
        };
        let cold = seconds();
        let before = self.passed();
        let warm = seconds();
        let after = self.passed();
        Loads { cold, warm, bytes: [after[0] - before[0], after[1] - before[1]] }
    }
}

fn measure(way: Way, rivals: &[Rival]) -> Measured {
    let world = World::build(way, rivals);
    let mut measured: Measured = rivals.iter().map(|rival| (*rival, Vec::new())).collect();
    for round in 0..rounds() {
        for turn in 0..rivals.len() {
            let at = (turn + round) % rivals.len();
            measured[at].1.push(world.run(rivals[at]));
        }
    }
    for (rival, loads) in &measured {
        let of = |what: fn(&Loads) -> f64| shown(&loads.iter().map(what).collect::<Vec<_>>());
        eprintln!("{} {}: cold {}, warm {}", way.name(), rival.name(), of(|loads| loads.cold), of(|loads| loads.warm));
    }
    measured
}

// The client.

async fn load() {
    let protocol = word("--protocol").and_then(|name| Protocol::of(&name)).expect("a protocol");
    let at = word("--at").expect("an address").parse().expect("an address");
    let (target, tls) = (Target { name: NAME.into(), at }, flows::tls_of_device());
    let begin = Instant::now();
    let mut client = Client::connect(protocol, target, tls).await;
    client.load().await;
    println!("{}", begin.elapsed().as_secs_f64());
    told().await;
    let begin = Instant::now();
    client.load().await;
    println!("{}", begin.elapsed().as_secs_f64());
    told().await;
}
