//! One flow over two links of which one goes bad: is it ever slower than the better of the two alone?
//!
//! Device and server are processes in a lab, with a carrier of QUIC over each link: `a` of 20 Mbit/s and 10 ms, `b` of 8 Mbit/s and 40 ms one way. Half a second into a transfer one of them goes
//! dark, loses, is slow or late, loses and is late, or flaps, in both directions; nobody is told. The same is done to a transfer over each link alone, and the sooner of these two is the better link.
//! Beside them runs the kernel's MPTCP without encryption. All four run at the same time, each in a lab of its own.
//!
//! Goodput is what the application gets, from the opening of the flow to its last byte. A gap is the longest time in which nothing came to it.
//! Whoever is not done once the slower link could have carried all is given up, and so is a link alone once the other link and both together are done.
//!
//! A second table has the echo of a small flow: a device sends a thousand bytes and waits until they are back, again and again, over both links and over each alone.
//!
//! `--rounds N`; `--try` runs one round; `--case TEXT` and `--way down|up` run the cases that have it in them, `--link a|b` those of one link; `--case echo` runs the second table alone.

use hoop_bench::flows::{self, Part, give, is_download, quic, serve, servers};
use hoop_bench::{Table, Verdict, median, mptcp, rounds, spread, word};
use hoop_carrier::QuicOptions;
use hoop_endpoint::{Device, FlowOptions, FlowStream, Use};
use hoop_lab::{Change, Direction, Host, Lab, Link, LinkConfig, Loss, Probability, QueueLimit, Topology};
use hoop_units::Bitrate;
use std::path::Path;
use std::process::ExitCode;
use std::sync::mpsc::RecvTimeoutError;
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

/// Name, Mbit/s, delay in ms one way.
const LINKS: [(&str, u64, u64); 2] = [("a", 20, 10), ("b", 8, 40)];

/// The queue of a link, in ms of its rate.
const QUEUE_MS: u64 = 100;

const WINDOW: u64 = 4 << 20;

/// When the link goes bad.
const AFTER: Duration = Duration::from_millis(500);

/// How long a flapping link is there, and is not.
const FLAP: Duration = Duration::from_secs(3);

/// What a transfer moves: what the faster link carries in five seconds.
const BYTES: usize = 12_500_000;

/// Who takes so much longer than the other link would is given up, and what it may take besides.
const PATIENCE: f64 = 1.3;
const PATIENCE_MORE: Duration = Duration::from_secs(3);

/// How often a conductor looks whether a transfer is still wanted.
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// What a small flow sends, and how often.
const PING: usize = 1_000;
const PINGS: usize = 40;

/// How long all of its echoes may take.
const PINGS_MAX: Duration = Duration::from_secs(20);

/// The limits: of the better link alone; the longest gap, in seconds; the echo, of the faster link's own.
const SHARE_MIN: f64 = 0.9;
const GAP_MAX: f64 = 1.0;
const ECHO_MAX: f64 = 1.2;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Bad {
    Dark,
    Lossy,
    Slow,
    Late,
    LossyAndLate,
    Flapping,
}

impl Bad {
    const ALL: [Self; 6] = [Self::Dark, Self::Lossy, Self::Slow, Self::Late, Self::LossyAndLate, Self::Flapping];

    const fn name(self) -> &'static str {
        match self {
            Self::Dark => "dark",
            Self::Lossy => "loses 30 %",
            Self::Slow => "at a hundredth",
            Self::Late => "2 s late",
            Self::LossyAndLate => "loses 30 %, 2 s late",
            Self::Flapping => "flaps every 3 s",
        }
    }

    /// What becomes of a link of that rate, for so long; then the next.
    fn changes(self, mbps: u64) -> Vec<Change> {
        let connected = |is| Change { connected: Some(is), ..Change::new() };
        let loss = Some(Loss::Independent(Probability::new(0.3).expect("a probability")));
        let delay = Some(Duration::from_secs(2));
        match self {
            Self::Dark => vec![connected(false)],
            Self::Lossy => vec![Change { loss, ..Change::new() }],
            Self::Slow => vec![Change::new().rate(Bitrate::kbps(mbps * 10))],
            Self::Late => vec![Change { delay, ..Change::new() }],
            Self::LossyAndLate => vec![Change { loss, delay, ..Change::new() }],
            Self::Flapping => vec![connected(false), connected(true)],
        }
    }
}

/// Which link goes bad how, and which way the transfer goes.
#[derive(Clone, Copy, Debug)]
struct Case {
    link: usize,
    bad: Bad,
    way: &'static str,
}

/// What carries a transfer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Rival {
    Both,
    Alone(usize),
    Mptcp,
}

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
    bad_links(folder.path(), &mut verdict);
    if is_wanted("--case", "echo") {
        echoes(folder.path(), &mut verdict);
    }
    verdict.exit()
}

fn is_wanted(option: &str, name: &str) -> bool {
    word(option).is_none_or(|word| name.contains(&word))
}

fn times() -> usize {
    if std::env::args().any(|argument| argument == "--try") { 1 } else { rounds() }
}

fn bad_links(folder: &Path, verdict: &mut Verdict) {
    let mut table = Table::new([
        "the link",
        "way",
        "both, Mbit/s",
        "min-max",
        "a alone",
        "b alone",
        "MPTCP",
        "of the better",
        "limit 0.9",
        "longest gap, s",
        "limit 1",
    ]);
    for bad in Bad::ALL.into_iter().filter(|bad| is_wanted("--case", bad.name())) {
        for (link, way) in [(0, "down"), (0, "up"), (1, "down"), (1, "up")] {
            if !is_wanted("--way", way) || !is_wanted("--link", LINKS[link].0) {
                continue;
            }
            let case = Case { link, bad, way };
            let runs: Vec<_> = (0..times()).map(|_| run(folder, case)).collect();
            let of = |rival: usize| runs.iter().map(|run| run[rival].mbps).collect::<Vec<_>>();
            let (both, alone) = (of(0), [of(1), of(2)].map(|mbps| median(&mbps)));
            let gap = median(&runs.iter().map(|run| run[0].gap).collect::<Vec<_>>());
            let share = median(&both) / alone[0].max(alone[1]);
            let (low, high) = spread(&both);
            let name = format!("{} {} {way}", LINKS[link].0, bad.name());
            table.row([
                format!("{} {}", LINKS[link].0, bad.name()),
                way.into(),
                format!("{:.2}", median(&both)),
                format!("{low:.2}-{high:.2}"),
                shown(alone[0]),
                shown(alone[1]),
                shown(median(&of(3))),
                format!("{share:.2}"),
                verdict.at_least(&name, share, SHARE_MIN).into(),
                format!("{gap:.2}"),
                verdict.at_most(&format!("{name}, gap"), gap, GAP_MAX).into(),
            ]);
            eprintln!("{name}: {:.2} Mbit/s, {share:.2} of the better link, a gap of {gap:.2} s", median(&both));
        }
    }
    println!("{}", table.render());
}

/// Megabits a second, if there were any.
fn shown(mbps: f64) -> String {
    if mbps > 0.0 { format!("{mbps:.2}") } else { "given up".into() }
}

fn echoes(folder: &Path, verdict: &mut Verdict) {
    let mut table = Table::new(["echo of a small flow, ms", "median", "min-max", "of a alone", "limit 1.2"]);
    let rivals = [("both", Rival::Both), ("a alone", Rival::Alone(0)), ("b alone", Rival::Alone(1))];
    let runs = rivals.map(|(_, rival)| (0..times()).map(|_| echo_of(folder, rival)).collect::<Vec<_>>());
    let first = median(&runs[1]);
    for ((name, rival), runs) in rivals.into_iter().zip(&runs) {
        let (low, high) = spread(runs);
        let share = median(runs) / first;
        let limit = match rival {
            Rival::Both => verdict.at_most("echo", share, ECHO_MAX),
            _ => "",
        };
        let (median, spread) = (format!("{:.1}", median(runs)), format!("{low:.1}-{high:.1}"));
        table.row([name.into(), median, spread, format!("{share:.2}"), limit.into()]);
    }
    println!("{}", table.render());
}

/// What became of a transfer. Nothing, if it was given up.
#[derive(Clone, Copy, Debug)]
struct Carried {
    mbps: f64,
    /// In seconds.
    gap: f64,
}

/// Each rival at once.
fn run(folder: &Path, case: Case) -> Vec<Carried> {
    let rivals = [Rival::Both, Rival::Alone(0), Rival::Alone(1), Rival::Mptcp];
    let done = Mutex::new(Vec::new());
    thread::scope(|scope| {
        let done = &done;
        let all: Vec<_> = rivals.map(|rival| scope.spawn(move || carry(folder, case, rival, done))).into();
        all.into_iter().map(|one| one.join().expect("it ends")).collect()
    })
}

fn lab() -> Lab {
    let topology = Topology::new().host(Host::new("device")).host(Host::new("server"));
    let link = |&(name, mbps, ms): &(&str, u64, u64)| {
        let queue = QueueLimit { bytes: (mbps * 125 * QUEUE_MS) as usize, ..QueueLimit::default() };
        let config = LinkConfig::new().rate(Bitrate::mbps(mbps)).delay(Duration::from_millis(ms)).queue(queue);
        Link::new(name, "device", "server").both(config)
    };
    Lab::build(&LINKS.iter().fold(topology, |topology, spec| topology.link(link(spec)))).expect("a lab")
}

/// How long a transfer may take: what it takes over the link that does not go bad, and some more.
fn limit(case: Case) -> Duration {
    let (_, mbps, _) = LINKS[1 - case.link];
    Duration::from_secs_f64(BYTES as f64 * 8e-6 / mbps as f64 * PATIENCE) + PATIENCE_MORE
}

/// Starts a server and a device that uses these links, and waits until it begins.
fn start(lab: &Lab, folder: &Path, rival: Rival, role: &str, way: &str) -> (Part, Part) {
    let mut server = Part::start(lab, "server", "server", folder, &[]);
    server.expect("ready");
    let links = match rival {
        Rival::Alone(link) => &LINKS[link..=link],
        Rival::Both | Rival::Mptcp => &LINKS[..],
    };
    let servers = links.iter().map(|(link, ..)| format!("{link}={}", lab.address_on("server", link)));
    let servers = servers.collect::<Vec<_>>().join(",");
    let mut device = Part::start(lab, "device", role, folder, &["--way", way, "--servers", &servers]);
    device.expect("begins");
    (server, device)
}

/// Moves all over these links of which one goes bad. `done` are the rivals that are.
fn carry(folder: &Path, case: Case, rival: Rival, done: &Mutex<Vec<Rival>>) -> Carried {
    let lab = lab();
    if rival == Rival::Mptcp {
        add_addresses(&lab);
    }
    let role = if rival == Rival::Mptcp { "mptcp" } else { "flow" };
    let (_server, device) = start(&lab, folder, rival, role, case.way);
    let (begin, limit) = (Instant::now(), limit(case));
    let (name, mbps, _) = LINKS[case.link];
    let changes = case.bad.changes(mbps);
    let mut next = (AFTER, 0);
    let line = loop {
        match device.hear_within(LOOK_EVERY) {
            Ok(line) => break Some(line),
            Err(RecvTimeoutError::Disconnected) => break None,
            Err(RecvTimeoutError::Timeout) => {}
        }
        let (at, change) = next;
        if begin.elapsed() >= at && (change == 0 || changes.len() > 1) {
            lab.set_link(name, Direction::Both, changes[change % changes.len()].clone());
            next = (at + FLAP, change + 1);
        }
        if begin.elapsed() >= limit || is_beaten(rival, &done.lock().unwrap_or_else(PoisonError::into_inner)) {
            break None;
        }
    };
    let numbers = line.as_deref().and_then(|line| line.strip_prefix("took "));
    let numbers = numbers.and_then(|line| line.split_once(' '));
    let numbers = numbers.and_then(|(secs, gap)| Some((secs.parse::<f64>().ok()?, gap.parse::<f64>().ok()?)));
    let Some((secs, gap)) = numbers else { return Carried { mbps: 0.0, gap: limit.as_secs_f64() } };
    done.lock().unwrap_or_else(PoisonError::into_inner).push(rival);
    Carried { mbps: BYTES as f64 * 8e-6 / secs, gap }
}

/// Whether it is the worse link alone, and the others' figures are known.
fn is_beaten(rival: Rival, done: &[Rival]) -> bool {
    let is_alone = |rival: &Rival| matches!(rival, Rival::Alone(_));
    is_alone(&rival) && done.contains(&Rival::Both) && done.iter().any(is_alone)
}

/// Milliseconds until what was sent is back, the median.
fn echo_of(folder: &Path, rival: Rival) -> f64 {
    let lab = lab();
    let (_server, device) = start(&lab, folder, rival, "echo", "up");
    let line = device.hear_within(PINGS_MAX).ok();
    line.and_then(|line| line.strip_prefix("took ")?.parse().ok()).unwrap_or(PINGS_MAX.as_secs_f64() * 1e3)
}

/// MPTCP's server tells of its address on the second link.
fn add_addresses(lab: &Lab) {
    let ip = |host: &str, arguments: &str| {
        let _ = lab.command(host, "ip").args(arguments.split(' ')).status();
    };
    for host in ["device", "server"] {
        ip(host, "mptcp limits set subflows 8 add_addr_accepted 8");
    }
    ip("server", "mptcp endpoint flush");
    let (link, ..) = LINKS[1];
    ip("server", &format!("mptcp endpoint add {} dev {link} signal", lab.address_on("server", link)));
}

// The parts.

async fn take_part(role: &str) {
    match role {
        "server" => {
            mptcp::serve(false);
            serve(options(), &QuicOptions::server()).await;
        }
        "flow" => flow().await,
        "echo" => echo().await,
        _ => {
            println!("begins");
            if let Ok((took, gap)) = mptcp::transfer(servers()[0].1, BYTES, is_download(), false) {
                tell(took, gap);
            }
        }
    }
}

fn options() -> FlowOptions {
    FlowOptions { multipath: true, window: WINDOW, send_buffer: WINDOW, ..FlowOptions::default() }
}

fn tell(took: Duration, gap: Duration) {
    println!("took {} {}", took.as_secs_f64(), gap.as_secs_f64());
}

/// A device with a carrier over each link.
async fn device() -> Device {
    let device = flows::device();
    println!("begins");
    for (link, server) in servers() {
        device.add_carrier(quic(&link, server, &QuicOptions::device()).await, Use::Normal, link);
    }
    device
}

async fn flow() {
    let device = device().await;
    let begin = Instant::now();
    let gap = if is_download() {
        let mut flow = device.open(&format!("source:{BYTES}"), options()).expect("a flow");
        let gap = take(&mut flow, BYTES).await;
        flow.shutdown().await.expect("it ends");
        gap
    } else {
        let mut flow = device.open("timed-sink", options()).expect("a flow");
        give(&mut flow, BYTES).await.expect("it is taken");
        assert_eq!(flow.read_u64().await.expect("an answer"), BYTES as u64);
        Duration::from_micros(flow.read_u64().await.expect("an answer"))
    };
    tell(begin.elapsed(), gap);
}

/// Reads so many bytes. The longest time in which none came.
async fn take(flow: &mut FlowStream, bytes: usize) -> Duration {
    let (mut came, mut gap, mut last) = (0, Duration::ZERO, None);
    while came < bytes {
        came += flow.read_chunk(64 * 1024).await.expect("it goes on").expect("there is more").len();
        let now = Instant::now();
        gap = last.map_or(gap, |last| gap.max(now - last));
        last = Some(now);
    }
    gap
}

/// Sends a little and waits until it is back, again and again.
async fn echo() {
    let device = device().await;
    let mut flow = device.open("echo", options()).expect("a flow");
    let (sent, mut back, mut took) = ([7; PING], [0; PING], Vec::new());
    for _ in 0..PINGS {
        let begin = Instant::now();
        flow.write_all(&sent).await.expect("it is taken");
        flow.flush().await.expect("it goes");
        flow.read_exact(&mut back).await.expect("it is back");
        took.push(begin.elapsed().as_secs_f64() * 1e3);
    }
    println!("took {}", median(&took));
}
