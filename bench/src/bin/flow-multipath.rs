//! One flow over two and over four links at once, of unlike rates and delays: how much of their sum it carries.
//!
//! Device and server are processes in a lab, with a carrier of QUIC over each link; every link has a queue of 100 ms. Goodput is what the application gets, from the opening of the
//! flow to its last byte, in a transfer that takes `--seconds N` (default 15) at the links' rates. Of a packet of 1,500 bytes 1,428 or so are an application's (IP 20, UDP 8, QUIC and
//! its encryption 40, the flow's heads less than one), so 0.95 of a link's rate is the most there is, and 0.93 where 2 % of the packets are lost. Beside it in the same run:
//! the same flow over each link alone, and, once, the kernel's MPTCP without encryption.
//!
//! Where packets are lost at random, MPTCP has BBR at both ends, if the kernel has it: its Cubic takes each loss for a full queue.
//!
//! `--rounds N`; `--try` runs one round; `--way`, `--loss` and `--links` run one setting; `--mptcp no`. `FLOW_VERBOSE=1` tells what each link carried.

use hoop_bench::flows::{self, Part, give, is_download, quic, serve, servers};
use hoop_bench::number;
use hoop_bench::{ROUNDS, Table, Verdict, median, mptcp, rounds, spread, word};
use hoop_carrier::QuicOptions;
use hoop_endpoint::{FlowOptions, Use};
use hoop_lab::{Host, Lab, Link, LinkConfig, Loss, Probability, QueueLimit, Topology};
use hoop_units::Bitrate;
use std::path::Path;
use std::process::ExitCode;
use std::thread;
use std::time::{Duration, Instant};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

/// Name, Mbit/s, delay in ms one way.
const LINKS: [(&str, u64, u64); 4] = [("a", 20, 10), ("b", 8, 40), ("c", 5, 25), ("d", 3, 80)];

/// The queue of a link, in ms of its rate.
const QUEUE_MS: u64 = 100;

const LOSS: f64 = 0.02;

/// The limits, of the sum of the links' rates: without loss, and with it.
const SHARE_MIN: [f64; 2] = [0.9, 0.85];

/// What a flow may have under way and out of order, in bytes: the sum of the rates for 1.8 s, since the slowest link needs 0.7 s for a round trip with a full queue and for what waits
/// before it, and again as long for what is lost there.
const WINDOW: u64 = 8 << 20;

/// So much slower than the links MPTCP may be before it is given up.
const MPTCP_SLOWER_MAX: u32 = 4;

/// How long a transfer takes at the links' rates, if nothing else is asked for.
const SECONDS: u64 = 15;

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
    let mut table = Table::new([
        "links",
        "way",
        "loss",
        "sum Mbit/s",
        "goodput, median",
        "min-max",
        "of the sum",
        "limit",
        "",
        "each link alone, summed",
        "MPTCP, of the sum",
    ]);
    let wanted = |option: &str, name: &str| word(option).is_none_or(|word| word == name);
    for (loss, limit) in
        [("0", SHARE_MIN[0]), ("2 %", SHARE_MIN[1])].into_iter().filter(|(loss, _)| wanted("--loss", &loss[..1]))
    {
        let both = thread::scope(|scope| {
            let ways = ["down", "up"].into_iter().filter(|way| wanted("--way", way));
            let both: Vec<_> =
                ways.map(|way| (way, scope.spawn(|| measure(folder.path(), way, loss != "0")))).collect();
            both.into_iter().map(|(way, one)| (way, one.join().expect("it ends"))).collect::<Vec<_>>()
        });
        for (way, runs) in both {
            for run in runs {
                let sum = run.sum();
                let goodput = median(&run.together);
                let (low, high) = spread(&run.together);
                let share = goodput / sum;
                let name = format!("{} links, {way}, loss {loss}", run.links);
                table.row([
                    run.links.to_string(),
                    way.into(),
                    loss.into(),
                    format!("{sum:.0}"),
                    format!("{goodput:.2}"),
                    format!("{low:.2}-{high:.2}"),
                    format!("{share:.3}"),
                    format!(">= {limit}"),
                    verdict.at_least(&name, share, limit).into(),
                    format!("{:.2}", median(&run.alone)),
                    run.mptcp.map_or("not there".into(), |mptcp| format!("{:.3}", mptcp / sum)),
                ]);
            }
        }
    }
    println!("{}", table.render());
    verdict.exit()
}

// The conductor.

/// Of so many links, in Mbit/s.
struct Run {
    links: usize,
    together: Vec<f64>,
    /// The sum of what each carried alone.
    alone: Vec<f64>,
    mptcp: Option<f64>,
}

impl Run {
    fn sum(&self) -> f64 {
        LINKS[..self.links].iter().map(|(_, mbps, _)| *mbps as f64).sum()
    }
}

fn measure(folder: &Path, way: &str, lossy: bool) -> Vec<Run> {
    let lab = lab(lossy);
    let congestion = if lossy { "bbr" } else { "cubic" };
    let mut server = Part::start(&lab, "server", "server", folder, &["--mptcp-congestion", congestion]);
    server.expect("ready");
    let world = World { lab, folder, way, congestion };
    let counts = [2, 4].into_iter().filter(|links| number("--links").is_none_or(|number| number == *links as u64));
    let mut runs: Vec<Run> = counts.map(|links| Run { links, together: vec![], alone: vec![], mptcp: None }).collect();
    let rounds = if std::env::args().any(|argument| argument == "--try") { 1 } else { rounds().max(ROUNDS) };
    let mut mptcp: Vec<Vec<f64>> = runs.iter().map(|_| Vec::new()).collect();
    for round in 0..rounds {
        let alone = thread::scope(|scope| {
            let each: Vec<_> =
                LINKS.iter().map(|link| scope.spawn(|| world.carry("flow", std::slice::from_ref(link)))).collect();
            each.into_iter().map(|one| one.join().expect("it ends").expect("a flow")).collect::<Vec<f64>>()
        });
        for (run, mptcp) in runs.iter_mut().zip(&mut mptcp) {
            run.alone.push(alone[..run.links].iter().sum());
            run.together.push(world.carry("flow", &LINKS[..run.links]).expect("a flow"));
            // Once is enough for a peer that is no limit, and where packets are lost it takes its time.
            if round == 0 && word("--mptcp").is_none_or(|word| word != "no") {
                mptcp.extend(world.carry("mptcp", &LINKS[..run.links]));
            }
        }
    }
    for (run, mptcp) in runs.iter_mut().zip(mptcp) {
        run.mptcp = (!mptcp.is_empty()).then(|| median(&mptcp));
    }
    runs
}

fn lab(lossy: bool) -> Lab {
    let topology = Topology::new().host(Host::new("device")).host(Host::new("server"));
    let link = |&(name, mbps, ms): &(&str, u64, u64)| {
        let queue = QueueLimit { bytes: (mbps * 125 * QUEUE_MS) as usize, ..QueueLimit::default() };
        let config = LinkConfig::new().rate(Bitrate::mbps(mbps)).delay(Duration::from_millis(ms)).queue(queue);
        let loss = Loss::Independent(Probability::new(LOSS).expect("a probability"));
        Link::new(name, "device", "server").both(if lossy { config.loss(loss) } else { config })
    };
    Lab::build(&LINKS.iter().fold(topology, |topology, spec| topology.link(link(spec)))).expect("a lab")
}

struct World<'a> {
    lab: Lab,
    folder: &'a Path,
    way: &'a str,
    congestion: &'a str,
}

impl World<'_> {
    /// The goodput over these links at once, in Mbit/s; none if the system has no such connections.
    fn carry(&self, role: &str, links: &[(&str, u64, u64)]) -> Option<f64> {
        let mbps: u64 = links.iter().map(|(_, mbps, _)| mbps).sum();
        let bytes = mbps * 125_000 * number("--seconds").unwrap_or(SECONDS);
        let servers = links.iter().map(|(link, ..)| format!("{link}={}", self.lab.address_on("server", link)));
        if role == "mptcp" {
            self.add_addresses(links);
        }
        let arguments = [
            ("--way", self.way.to_owned()),
            ("--mptcp-congestion", self.congestion.to_owned()),
            ("--bytes", bytes.to_string()),
            ("--seconds", number("--seconds").unwrap_or(SECONDS).to_string()),
            ("--servers", servers.collect::<Vec<_>>().join(",")),
        ];
        let arguments: Vec<&str> = arguments.iter().flat_map(|(option, word)| [*option, word.as_str()]).collect();
        let took = Part::start(&self.lab, "device", role, self.folder, &arguments).expect("took");
        let secs: f64 = took.parse().ok()?;
        Some(bytes as f64 * 8e-6 / secs)
    }

    /// MPTCP's server tells of its addresses on all links but the first, which it is reached by.
    fn add_addresses(&self, links: &[(&str, u64, u64)]) {
        let ip = |host: &str, arguments: &str| {
            let _ = self.lab.command(host, "ip").args(arguments.split(' ')).status();
        };
        for host in ["device", "server"] {
            ip(host, "mptcp limits set subflows 8 add_addr_accepted 8");
        }
        ip("server", "mptcp endpoint flush");
        for (link, ..) in &links[1..] {
            let address = self.lab.address_on("server", link);
            ip("server", &format!("mptcp endpoint add {address} dev {link} signal"));
        }
    }
}

// The parts.

async fn take_part(role: &str) {
    match role {
        "server" => {
            mptcp::serve(is_bbr());
            serve(options(), &QuicOptions::server()).await;
        }
        "flow" => println!("took {}", flow().await),
        _ => println!("took {}", mptcp_transfer().map_or("nothing".into(), |took| took.to_string())),
    }
}

fn options() -> FlowOptions {
    FlowOptions { multipath: true, window: WINDOW, send_buffer: WINDOW, ..FlowOptions::default() }
}

fn is_bbr() -> bool {
    word("--mptcp-congestion").expect("a word") == "bbr"
}

fn bytes() -> usize {
    number("--bytes").expect("a number") as usize
}

async fn flow() -> f64 {
    let device = flows::device();
    for (link, server) in servers() {
        device.add_carrier(quic(&link, server, &QuicOptions::device()).await, Use::Normal, link);
    }
    let begin = Instant::now();
    let took = if is_download() {
        let mut flow = device.open(&format!("source:{}", bytes()), options()).expect("a flow");
        let mut came = 0;
        while came < bytes() {
            came += flow.read_chunk(64 * 1024).await.expect("it goes on").expect("there is more").len();
        }
        let took = begin.elapsed();
        report(&flow.stats());
        flow.shutdown().await.expect("it ends");
        took
    } else {
        let mut flow = device.open("sink", options()).expect("a flow");
        give(&mut flow, bytes()).await.expect("it is taken");
        assert_eq!(flow.read_u64().await.expect("an answer"), bytes() as u64);
        let took = begin.elapsed();
        report(&flow.stats());
        took
    };
    took.as_secs_f64()
}

fn report(stats: &hoop_endpoint::FlowStats) {
    if std::env::var("FLOW_VERBOSE").is_ok() {
        eprintln!("{:?}", stats.networks);
    }
}

fn mptcp_transfer() -> std::io::Result<f64> {
    let (_, server) = servers()[0];
    let limit = Duration::from_secs(number("--seconds").unwrap_or(SECONDS)) * MPTCP_SLOWER_MAX;
    thread::spawn(move || {
        thread::sleep(limit);
        println!("took {}", f64::INFINITY);
        std::process::exit(0);
    });
    mptcp::transfer(server, bytes(), is_download(), is_bbr()).map(|(took, _)| took.as_secs_f64())
}
