//! The household's latency while the gateway delivers, with and without `--background`: 1.15 Mbit/s up, where one packet takes 10 ms,
//! 20 ms round trip, 200 ms of queue.
//!
//! Three processes' worth of traffic share the uplink's queue: the gateway's uploads, a small datagram every 50 ms from the device to
//! an echo beside the service (the *probe*: what a game, a call or a key stroke meets), and for a while a plain TCP upload from
//! the device, Linux's usual CUBIC (the *foreground*).
//!
//! Draws `docs/figures/background.svg`. `--seconds N` makes each phase N seconds long (default 60).

use hoop_bench::chart::{Axis, Figure, Panel, Series};
use hoop_bench::{Table, Verdict, median, number};
use hoop_testbed::{House, HouseConfig, ORIGIN, Program};
use hoop_units::Bitrate;
use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::os::fd::AsRawFd as _;
use std::process::{ExitCode, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

const UP: Bitrate = Bitrate::kbps(1_150);

/// 200 ms at that rate.
const QUEUE_BYTES: usize = 28_750;

const ROUND_TRIP_MS: f64 = 20.0;
const PROBE_EVERY: Duration = Duration::from_millis(50);
const SAMPLE_EVERY: Duration = Duration::from_millis(250);

/// What a TCP upload's bytes are on the line: packets of 1,500 bytes carry 1,448 of them.
const WIRE: f64 = 1_500.0 / 1_448.0;

/// The limits of the issue.
const ADDED_MS_MAX: f64 = 25.0;
const SHARE_MIN: f64 = 0.85;

/// The foreground's share of what it has alone that it should have beside the background.
const FOREGROUND_MIN: f64 = 0.9;

/// And how soon.
const YIELD_SECS_MAX: f64 = 3.0;

/// How soon after it they have that share of the line again.
const BACK_SECS_MAX: f64 = 10.0;

fn main() -> ExitCode {
    hoop_lab::enter().expect("the machine allows namespaces");
    let phase = Duration::from_secs(number("--seconds").unwrap_or(60).max(20));
    let (with, without) = thread::scope(|scope| {
        let with = scope.spawn(|| run(&["--background"], phase));
        let without = scope.spawn(|| run(&[], phase));
        (with.join().expect("it ends"), without.join().expect("it ends"))
    });
    let mut verdict = Verdict::default();
    let mut table = Table::new(["what", "without", "with --background", "limit", ""]);
    let mut row = |name: &str, of: &dyn Fn(&Run) -> f64, unit: &str, limit: &str, verdict: &str| {
        let show = |run| match of(run) {
            value if value.is_finite() => format!("{value:.2}{unit}"),
            _ => "never".into(),
        };
        table.row([name.into(), show(&without), show(&with), limit.into(), verdict.into()]);
    };
    let share = |run: &Run| run.line_share(run.alone());
    let holds = verdict.at_least("share of the line, alone", share(&with), SHARE_MIN);
    row("share of the idle line that uploads use", &share, "", ">= 0.85", holds);
    let added = |run: &Run| run.added(run.alone(), 0.5);
    let holds = verdict.at_most("added round-trip time, median", added(&with), ADDED_MS_MAX);
    row("round-trip time added to a probe, median", &added, " ms", "<= 25 ms", holds);
    row("the same, 95 of 100 are below", &|run| run.added(run.alone(), 0.95), " ms", "", "");
    row("a TCP upload alone, before", &|run| run.foreground_kbps(run.before()), " kbit/s", "", "");
    let kept = |run: &Run| run.foreground_kbps(run.beside()) / run.foreground_kbps(run.before());
    let holds = verdict.at_least("the foreground keeps", kept(&with), FOREGROUND_MIN);
    row("of that it has beside the gateway's uploads", &kept, "", ">= 0.9", holds);
    let holds = verdict.at_most("yields within", with.yields_within(), YIELD_SECS_MAX);
    row("the gateway's uploads are below a tenth of the line after", &Run::yields_within, " s", "<= 3 s", holds);
    let holds = verdict.at_most("is back within", with.back_within(), BACK_SECS_MAX);
    row("after its end they are back at 0.85 of the line after", &Run::back_within, " s", "<= 10 s", holds);
    println!("{}", table.render());
    draw(&with, &without).expect("the figure can be drawn");
    verdict.exit()
}

/// What one house saw, in seconds since its beginning.
struct Run {
    /// When the foreground was alone, when the gateway's uploads were, when the foreground came back and went.
    marks: [f64; 5],
    /// When, added round-trip time in ms; not a number: lost.
    probes: Vec<(f64, f64)>,
    /// When, rates of all and of the foreground in kbit/s, over the quarter of a second before.
    rates: Vec<(f64, f64, f64)>,
}

impl Run {
    /// The phases, each without its first seconds where things settle.
    fn before(&self) -> (f64, f64) {
        (self.marks[0] + 2.0, self.marks[1])
    }

    fn alone(&self) -> (f64, f64) {
        (self.marks[2] + 10.0, self.marks[3])
    }

    fn beside(&self) -> (f64, f64) {
        (self.marks[3], self.marks[4])
    }

    fn line_share(&self, (from, to): (f64, f64)) -> f64 {
        let all = self.rates.iter().filter(|(at, ..)| *at > from && *at <= to).map(|(_, all, _)| all * 1e3);
        mean(all) / UP.as_bps() as f64
    }

    fn foreground_kbps(&self, (from, to): (f64, f64)) -> f64 {
        mean(self.rates.iter().filter(|(at, ..)| *at > from && *at <= to).map(|(.., foreground)| *foreground))
    }

    fn added(&self, (from, to): (f64, f64), share: f64) -> f64 {
        let probes = self.probes.iter().filter(|(at, ms)| *at > from && *at <= to && ms.is_finite());
        let mut sorted: Vec<f64> = probes.map(|(_, ms)| *ms).collect();
        sorted.sort_by(f64::total_cmp);
        if (share - 0.5).abs() < 0.01 {
            return median(&sorted);
        }
        sorted[((sorted.len() as f64 * share) as usize).min(sorted.len() - 1)]
    }

    /// Our own rate, smoothed over a second: what a foreground's reader waits for until it is sent again comes all at once.
    fn background(&self) -> Vec<(f64, f64)> {
        self.rates
            .windows(4)
            .map(|four| (four[3].0, mean(four.iter().map(|(_, all, fore)| all - fore)).max(0.0)))
            .collect()
    }

    /// Seconds from the foreground's coming until our uploads are, over a second, below a tenth of the line.
    fn yields_within(&self) -> f64 {
        let tenth = UP.as_bps() as f64 / 1e4;
        let (from, to) = self.beside();
        let found = self.background().into_iter().find(|(at, kbps)| *at > from && *at <= to && *kbps < tenth);
        found.map_or(f64::INFINITY, |(at, _)| at - from)
    }

    fn back_within(&self) -> f64 {
        let most = SHARE_MIN * UP.as_bps() as f64 / 1e3;
        let from = self.beside().1;
        let found = self.background().into_iter().find(|(at, kbps)| *at > from + 1.0 && *kbps > most);
        found.map_or(f64::INFINITY, |(at, _)| at - from)
    }
}

fn mean(values: impl Iterator<Item = f64>) -> f64 {
    let (sum, count) = values.fold((0.0, 0.0), |(sum, count), value| (sum + value, count + 1.0));
    sum / count
}

/// One house: the foreground alone, the gateway alone, both, the gateway alone.
fn run(flags: &[&str], phase: Duration) -> Run {
    let config = HouseConfig { up: UP, uplink_queue: QUEUE_BYTES, ..HouseConfig::default() };
    let house = House::build(config).expect("a house");
    let _wall = house.start_photo_wall().expect("the photo wall");
    let _service = house.start_service(8000, &[]).expect("the service");
    let _gateway: Program = house.start_gateway(&[&["--no-mdns"], flags].concat()).expect("the gateway");
    let lab = house.lab();
    let sink = lab.in_host("service", || TcpListener::bind("0.0.0.0:9")).expect("a port");
    let echo = lab.in_host("service", || UdpSocket::bind("0.0.0.0:7")).expect("a port");
    let probe = lab.in_host("device", || UdpSocket::bind("0.0.0.0:0")).expect("a port");
    let service = lab.address_on("service", "uplink");
    probe.connect((service, 7)).expect("an address");
    let (over, arrived, begin) = (AtomicBool::new(false), AtomicU64::new(0), Instant::now());
    let now = || begin.elapsed().as_secs_f64();
    let mut marks = [0.0; 5];
    thread::scope(|scope| {
        scope.spawn(|| reflect(&echo, &over));
        scope.spawn(|| drain(&sink, &arrived, &over));
        let probes = scope.spawn(|| ask(&probe, begin, &over));
        let rates = scope.spawn(|| sample(&house, &arrived, begin, &over));
        let upload = |time: Duration| {
            lab.in_host("device", || fill(TcpStream::connect((service, 9)).expect("a listener"), time));
        };
        marks[0] = now();
        upload(phase / 3);
        marks[1] = now();
        // The queue empties.
        thread::sleep(Duration::from_secs(2));
        let bytes = UP.as_bps() as usize / 8 * (4 * phase.as_secs() as usize);
        let file = house.file("film", bytes).expect("room for a file");
        let mut push = house.push(&house.gateway_url());
        push.args(["--wait", "stored", "-F", &format!("photo=@{}", file.display()), &format!("{ORIGIN}/photos")]);
        let pushed = push.stdin(Stdio::null()).output().expect("hoop starts");
        assert!(pushed.status.success(), "{}", String::from_utf8_lossy(&pushed.stderr));
        marks[2] = now();
        thread::sleep(phase);
        marks[3] = now();
        upload(phase / 2);
        marks[4] = now();
        thread::sleep(phase / 2);
        over.store(true, Ordering::Relaxed);
        // Wakes those that wait for somebody.
        let _ = lab.in_host("device", || TcpStream::connect((service, 9)));
        let (probes, rates) = (probes.join().expect("it ends"), rates.join().expect("it ends"));
        Run { marks, probes, rates }
    })
}

fn reflect(socket: &UdpSocket, over: &AtomicBool) {
    socket.set_read_timeout(Some(Duration::from_millis(200))).expect("a socket");
    let mut buffer = [0; 64];
    while !over.load(Ordering::Relaxed) {
        if let Ok((len, from)) = socket.recv_from(&mut buffer) {
            let _ = socket.send_to(&buffer[..len], from);
        }
    }
}

/// Probes, each with its number, and what each met beyond the line's own round trip.
fn ask(socket: &UdpSocket, begin: Instant, over: &AtomicBool) -> Vec<(f64, f64)> {
    socket.set_nonblocking(true).expect("a socket");
    let mut sent: Vec<(f64, f64)> = Vec::new();
    while !over.load(Ordering::Relaxed) {
        let number = sent.len() as u64;
        sent.push((begin.elapsed().as_secs_f64(), f64::NAN));
        let _ = socket.send(&number.to_be_bytes());
        let next = begin + PROBE_EVERY * (number as u32 + 1);
        while Instant::now() < next {
            let mut answer = [0; 8];
            while let Ok(8) = socket.recv(&mut answer) {
                let probe = &mut sent[u64::from_be_bytes(answer) as usize];
                probe.1 = (begin.elapsed().as_secs_f64() - probe.0) * 1e3 - ROUND_TRIP_MS;
            }
            thread::sleep(Duration::from_micros(500));
        }
    }
    sent
}

fn drain(listener: &TcpListener, arrived: &AtomicU64, over: &AtomicBool) {
    let mut buffer = vec![0; 65_536];
    while let Ok((mut stream, _)) = listener.accept() {
        if over.load(Ordering::Relaxed) {
            return;
        }
        while let Ok(len @ 1..) = stream.read(&mut buffer) {
            arrived.fetch_add(len as u64, Ordering::Relaxed);
        }
    }
}

/// Takes losses as most systems do, whatever this one's default.
#[allow(unsafe_code)] // one call of the kernel that the standard library has not
fn make_cubic(stream: &TcpStream) {
    let name = b"cubic";
    // SAFETY: the descriptor is open, and the pointer is to bytes of the given length.
    let done = unsafe {
        let len = name.len() as libc::socklen_t;
        libc::setsockopt(stream.as_raw_fd(), libc::IPPROTO_TCP, libc::TCP_CONGESTION, name.as_ptr().cast(), len)
    };
    assert_eq!(done, 0, "this kernel has CUBIC");
}

/// What is buffered is dropped as the stream is, and the other end told at once.
#[allow(unsafe_code)] // as above
fn reset_on_close(stream: &TcpStream) {
    let linger = libc::linger { l_onoff: 1, l_linger: 0 };
    // SAFETY: the descriptor is open, and the pointer is to a local of the given size.
    let done = unsafe {
        let len = size_of::<libc::linger>() as libc::socklen_t;
        let at = (&raw const linger).cast();
        libc::setsockopt(stream.as_raw_fd(), libc::SOL_SOCKET, libc::SO_LINGER, at, len)
    };
    assert_eq!(done, 0, "a socket lingers or not");
}

/// Sends for so long, and then cuts the connection rather than sending what is buffered.
fn fill(mut stream: TcpStream, time: Duration) {
    make_cubic(&stream);
    let (end, buffer) = (Instant::now() + time, vec![7; 4_096]);
    stream.set_write_timeout(Some(Duration::from_millis(100))).expect("a socket");
    while Instant::now() < end {
        let _ = stream.write(&buffer);
    }
    reset_on_close(&stream);
}

fn sample(house: &House, arrived: &AtomicU64, begin: Instant, over: &AtomicBool) -> Vec<(f64, f64, f64)> {
    let mut rates = Vec::new();
    let carried = || house.lab().counters("uplink").up.passed_bytes;
    let mut before = (begin.elapsed().as_secs_f64(), carried(), 0);
    while !over.load(Ordering::Relaxed) {
        thread::sleep(SAMPLE_EVERY);
        let now = (begin.elapsed().as_secs_f64(), carried(), arrived.load(Ordering::Relaxed));
        let kbps = |bytes: u64| bytes as f64 * 8.0 / 1e3 / (now.0 - before.0);
        rates.push((now.0, kbps(now.1 - before.1), kbps(now.2 - before.2) * WIRE));
        before = now;
    }
    rates
}

fn draw(with: &Run, without: &Run) -> Result<(), Box<dyn std::error::Error>> {
    let mut figure =
        Figure::new("An uplink of 1.15 Mbit/s while the gateway delivers; shaded: a TCP upload comes and goes");
    for (run, name) in [(without, "without"), (with, "with --background")] {
        // Seconds since the gateway's uploads began.
        let zero = run.marks[2];
        let (from, to) = (run.marks[3] - zero - 20.0, run.marks[4] - zero + 25.0);
        let shift = |points: Vec<(f64, f64)>| -> Vec<(f64, f64)> {
            let points = points.into_iter().map(|(at, value)| (at - zero, value));
            points.filter(|(at, _)| (from..=to).contains(at)).collect()
        };
        let foreground =
            run.rates.windows(4).map(|four| (four[3].0, mean(four.iter().map(|(.., fore)| *fore)))).collect();
        let time = || Axis::new("time, s").from(from).to(to);
        let rates = Panel::new(time(), Axis::new(&format!("{name}: kbit/s")).from(0.0).to(1_500.0))
            .span(run.marks[3] - zero, run.marks[4] - zero)
            .series(Series::line("the gateway's uploads", shift(run.background())))
            .series(Series::line("the household's upload", shift(foreground)))
            .limit("the line", UP.as_bps() as f64 / 1e3)
            .height(230);
        let delay = Panel::new(time(), Axis::new(&format!("{name}: added ms")).from(0.0).to(300.0))
            .span(run.marks[3] - zero, run.marks[4] - zero)
            .series(Series::dots("added round-trip time of a probe", shift(run.probes.clone())).colour(2))
            .limit("25 ms", ADDED_MS_MAX)
            .height(230);
        figure = figure.panel(rates).panel(delay);
    }
    println!("drawn: {}", figure.save("background")?.display());
    Ok(())
}
