//! How a relay's devices come back once it was killed and begun again: 10,000 of them, each with an address and a key of its own, and a connection that it carries.
//!
//! The relay is `hoop relay` as it is, and gets SIGKILL. Its devices are those of `hoop run` (`hoop_relay::Link`), in four processes; each has one connection to a destination of this program's, and begins
//! it again as soon as it hears that the old one is lost. *Back* is a device whose new connection is made. The seconds count from when the new relay begins, which is `--down` (2) seconds after the old one's end.
//!
//! *Resting*: nothing is sent on the connections, so that devices notice by their carriers' keep-alive, within 20 s. *Busy*: a byte each four seconds on each, so that all notice at about the same time.
//!
//! `--devices N` for another number, `--begin N` for so many that begin in a second before the relay is killed (200), `--only resting|busy` for one of the two.

use hoop_bench::flows::{NAME, Part, authority, make_certificate, told};
use hoop_bench::peers::free_address;
use hoop_bench::{Table, Verdict, number, word};
use hoop_carrier::Local;
use hoop_endpoint::{FlowOptions, FlowStream, Use};
use hoop_relay::{Introduction, Link, NetworkPath};
use std::fmt::Write as _;
use std::fs::{self, File};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::Path;
use std::process::{Child, Command, ExitCode, Stdio};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;
use tokio::time::sleep;

const DEVICES: u64 = 10_000;

/// Processes that have devices: each device takes two descriptors, and two more while it dials.
const PARTS: u64 = 4;

/// How many devices begin in a second, before the relay is killed.
const BEGIN_EACH_SECOND: u64 = 200;

/// However slow the machine is.
const BEGIN_MAX: Duration = Duration::from_secs(240);
const BACK_MAX: Duration = Duration::from_secs(240);

/// Keep-alives come every 20 s.
const SETTLE: Duration = Duration::from_secs(25);

/// A device that is refused begins again after so long.
const AGAIN: Duration = Duration::from_millis(500);

const BUSY_EVERY: Duration = Duration::from_secs(4);

/// All are back within this.
const BACK_SECONDS: f64 = 30.0;

/// And the new relay has never had more than this.
const PEAK_MB: f64 = 1_024.0;

fn main() -> ExitCode {
    let runtime = || tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    match word("--role").as_deref() {
        Some("devices") => {
            runtime().block_on(devices());
            ExitCode::SUCCESS
        }
        Some(role) => panic!("there is no role {role}"),
        None => conduct(),
    }
}

// The conductor.

fn conduct() -> ExitCode {
    let mut verdict = Verdict::default();
    let mut table = Table::new([
        "devices",
        "connections",
        "50 % back s",
        "99 %",
        "all",
        "limit 30 s",
        "back in a second, most",
        "relay's CPU s",
        "its peak MB",
        "limit 1,024 MB",
    ]);
    for case in ["resting", "busy"] {
        if word("--only").is_none_or(|only| only == case) {
            let back = measure(case);
            let most = number("--devices").unwrap_or(DEVICES);
            table.row([
                format!("{} of {most}", back.times.len()),
                case.to_owned(),
                format!("{:.1}", back.part(0.5)),
                format!("{:.1}", back.part(0.99)),
                format!("{:.1}", back.part(1.0)),
                verdict.at_most(&format!("{case}: all are back"), back.all(most), BACK_SECONDS).to_owned(),
                back.most_in_a_second().to_string(),
                format!("{:.1}", back.cpu),
                format!("{:.0}", back.peak_mb),
                verdict.at_most(&format!("{case}: peak"), back.peak_mb, PEAK_MB).to_owned(),
            ]);
        }
    }
    println!("{}", table.render());
    verdict.exit()
}

/// How devices came back.
struct Back {
    /// In seconds, the first to come first.
    times: Vec<f64>,
    cpu: f64,
    peak_mb: f64,
}

impl Back {
    fn part(&self, part: f64) -> f64 {
        let at = (self.times.len() as f64 * part).ceil() as usize;
        at.checked_sub(1).and_then(|at| self.times.get(at)).copied().unwrap_or(f64::NAN)
    }

    /// When the last of so many was back.
    fn all(&self, most: u64) -> f64 {
        if self.times.len() as u64 >= most { self.part(1.0) } else { f64::INFINITY }
    }

    fn most_in_a_second(&self) -> usize {
        let within = |at: usize| self.times[at..].iter().take_while(|time| **time < self.times[at] + 1.0).count();
        (0..self.times.len()).map(within).max().unwrap_or(0)
    }
}

fn measure(case: &str) -> Back {
    let folder = tempfile::tempdir().expect("a folder");
    make_certificate(folder.path());
    let many = number("--devices").unwrap_or(DEVICES);
    write_devices(&folder.path().join("devices.toml"), many);
    let (relay_at, destination) = (free_address(), destination());
    let relay = begin_relay(relay_at, folder.path());
    let rate = number("--begin").unwrap_or(BEGIN_EACH_SECOND).to_string();
    let arguments = [case.to_owned(), relay_at.to_string(), destination.to_string()];
    let (arrived, arrivals) = std::sync::mpsc::channel();
    for at in 0..PARTS {
        let [first, end] = [at, at + 1].map(|at| (at * many / PARTS).to_string());
        let [case, relay, destination] = &arguments;
        let (who, how) = (["--first", &first, "--end", &end], ["--case", case, "--rate", &rate]);
        let flags = [&who[..], &how[..], &["--relay", relay, "--to", destination]].concat();
        let mut part = Part::beside("devices", folder.path(), &flags);
        let arrived = arrived.clone();
        std::thread::spawn(move || {
            while let Some(line) = part.hear() {
                let Ok(at) = line.parse::<f64>() else { continue };
                if arrived.send(at).is_err() {
                    return;
                }
            }
        });
    }
    let begun = Instant::now();
    let mut here = 0;
    while here < many && begun.elapsed() < BEGIN_MAX {
        here += u64::from(arrivals.recv_timeout(Duration::from_secs(1)).is_ok());
    }
    eprintln!("{case}: {here} devices are there after {:.1} s; {}", begun.elapsed().as_secs_f64(), usage(&relay));
    std::thread::sleep(SETTLE);
    eprintln!("{case}: at rest {}", usage(&relay));
    kill(relay);
    std::thread::sleep(Duration::from_secs(number("--down").unwrap_or(2)));
    while arrivals.try_recv().is_ok() {}
    let (relay, begun) = (begin_relay(relay_at, folder.path()), now());
    let mut times = Vec::new();
    while (times.len() as u64) < many && now() < begun + BACK_MAX.as_secs_f64() {
        times.extend(arrivals.recv_timeout(Duration::from_secs(1)).map(|at| at - begun));
    }
    times.sort_by(f64::total_cmp);
    eprintln!("{case}: after the restart {}", usage(&relay));
    let back = Back { times, cpu: cpu(&relay), peak_mb: memory_mb(&relay, "VmHWM:") };
    kill(relay);
    back
}

fn begin_relay(at: SocketAddr, folder: &Path) -> Child {
    let program = std::env::current_exe().expect("this program has a path").with_file_name("hoop");
    let log = File::options().create(true).append(true).open(folder.join("relay.log")).expect("a log");
    let file = |name: &str| folder.join(name);
    let mut command = Command::new(program);
    command.args(["relay", "--listen", &at.to_string(), "--allow", "127.0.0.0/8", "--no-landlock"]);
    command.arg("--tls-cert").arg(file("certificate.pem")).arg("--tls-key").arg(file("key.pem"));
    command.arg("--devices").arg(file("devices.toml"));
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log).spawn().expect("`hoop` is beside this program")
}

fn kill(mut relay: Child) {
    let _ = relay.kill();
    let _ = relay.wait();
}

fn usage(relay: &Child) -> String {
    let (rest, peak) = (memory_mb(relay, "VmRSS:"), memory_mb(relay, "VmHWM:"));
    format!("the relay has {rest:.0} MB, {peak:.0} at most, and took {:.1} s of a core", cpu(relay))
}

fn memory_mb(relay: &Child, name: &str) -> f64 {
    let status = fs::read_to_string(format!("/proc/{}/status", relay.id())).unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix(name)).unwrap_or_default();
    let kib = line.split_whitespace().next().and_then(|kib| kib.parse::<f64>().ok());
    kib.map_or(f64::NAN, |kib| kib * 1_024.0 / 1e6)
}

/// The seconds of a core that it took.
fn cpu(relay: &Child) -> f64 {
    let stat = fs::read_to_string(format!("/proc/{}/stat", relay.id())).unwrap_or_default();
    // Behind the program's name, whatever that is: the twelfth and thirteenth, in hundredths.
    let fields = stat.rsplit_once(')').map_or("", |(_, rest)| rest);
    let ticks = fields.split_whitespace().skip(11).take(2).filter_map(|ticks| ticks.parse::<f64>().ok());
    ticks.sum::<f64>() / 100.0
}

fn write_devices(path: &Path, many: u64) {
    let mut text = "[devices]\n".to_owned();
    for number in 0..many {
        let _ = writeln!(text, "{} = \"{}\"", host(number), key(number));
    }
    fs::write(path, text).expect("a file");
}

/// Takes connections on every address of this machine, and reads what comes.
fn destination() -> SocketAddr {
    let (told, address) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        runtime.block_on(async move {
            let listener = TcpListener::bind((Ipv4Addr::UNSPECIFIED, 0)).await.expect("a listener");
            let _ = told.send(listener.local_addr().expect("an address"));
            loop {
                let Ok((mut connection, _)) = listener.accept().await else { continue };
                tokio::spawn(async move {
                    let mut bytes = [0; 64];
                    while connection.read(&mut bytes).await.is_ok_and(|read| read > 0) {}
                });
            }
        });
    });
    address.recv().expect("it listens")
}

fn now() -> f64 {
    SystemTime::now().duration_since(UNIX_EPOCH).expect("a clock after 1970").as_secs_f64()
}

fn host(number: u64) -> String {
    format!("{number:040x}")
}

fn key(number: u64) -> String {
    format!("{number:064x}")
}

// The devices.

async fn devices() {
    let authority = authority();
    let relay: SocketAddr = word("--relay").and_then(|at| at.parse().ok()).expect("an address");
    let to: SocketAddr = word("--to").and_then(|at| at.parse().ok()).expect("an address");
    let each_second = number("--rate").unwrap_or(BEGIN_EACH_SECOND);
    let is_busy = word("--case").as_deref() == Some("busy");
    let (first, end) = (number("--first").expect("a number"), number("--end").expect("a number"));
    for number in first..end {
        let introduction = Introduction {
            server: format!("{NAME}:{}", relay.port()),
            addresses: vec![relay.ip()],
            host: host(number),
            key: key(number),
            certificate: Some(authority.clone()),
            front: None,
            front_certificate: None,
        };
        // Few destinations: a machine has so many ports towards each.
        let to = format!("connect:127.0.0.{}:{}", 1 + number % 8, to.port());
        tokio::spawn(device(introduction, address(number), to, is_busy));
        sleep(Duration::from_secs(PARTS) / each_second as u32).await;
    }
    // The conductor says nothing, and ends.
    told().await;
}

/// A device's own.
fn address(number: u64) -> IpAddr {
    let part = |by: u64| (number / by % 250 + 1) as u8;
    Ipv4Addr::new(127, part(62_500) + 1, part(250), part(1)).into()
}

async fn device(introduction: Introduction, address: IpAddr, to: String, is_busy: bool) {
    let local = Local { address: Some(address), ..Local::default() };
    let way = NetworkPath { name: "any".to_owned(), local, carrier_use: Use::Normal };
    let link = Link::start(&introduction, vec![way]).expect("a link");
    loop {
        let Ok(mut flow) = link.device().open(&to, FlowOptions::default()) else { return };
        if flow.read_u8().await.is_err() {
            sleep(AGAIN).await;
            continue;
        }
        println!("{:.3}", now());
        use_it(&mut flow, is_busy).await;
    }
}

/// Until it ends.
async fn use_it(flow: &mut FlowStream, is_busy: bool) {
    if !is_busy {
        let _ = flow.read_u8().await;
        return;
    }
    let (mut reader, mut writer) = tokio::io::split(flow);
    let write = async {
        while writer.write_u8(7).await.is_ok() && writer.flush().await.is_ok() {
            sleep(BUSY_EVERY).await;
        }
    };
    tokio::select! {
        _ = reader.read_u8() => {}
        () = write => {}
    }
}
