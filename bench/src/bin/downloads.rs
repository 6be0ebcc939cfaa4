//! Downloads of many devices through one relay: what they cost while devices are slow or away.
//!
//! *Slow* (`--only slow`): so many downloads at once (`--downloads N`, default 64,000, as in the published test) of `--kilobytes N` each (default 128), at `--rate N` bytes a second (default 1,000), by devices that have a thousand each.
//! Each minute another tenth of the devices goes away, for half a minute, and comes back. Every byte is checked. What each download got in a second while its device was there is judged by
//! Jain's index; memory is `VmRSS` of the relay with all of them, less what it was before.
//!
//! *Parked* (`--only parked`): `--exchanges N` (default a million) of 80-byte URLs, whose devices left before they had all of the answer; memory as above. A thousand of them are then asked for.
//!
//! Relay, web server and devices are processes of their own, on loopback.

use bytes::Bytes;
use hoop_bench::flows::{NAME, Part, authority, make_certificate, tls_of_device, told};
use hoop_bench::peers::{cpu_seconds, free_address};
use hoop_bench::{Table, Verdict, edge, number, word};
use hoop_carrier::{Carrier, Local, QuicDevice, QuicOptions};
use hoop_endpoint::{
    CarrierId, Device, DeviceConfig, DeviceId, DeviceKey, FlowError, FlowId, FlowOptions, FlowReader, FlowWriter,
    Refusal, Use,
};
use hoop_head::encode_request;
use hoop_relay::codes::PARKED;
use hoop_relay::exchange::{put, read_head};
use hoop_relay::{Introduction, introduce};
use hoop_testbed::Program;
use http::Request;
use parking_lot::Mutex;
use std::io::{self, Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::process::{Command, ExitCode};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::TcpListener;
use tokio::sync::{Semaphore, watch};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

/// Downloads of one device: a relay takes 1,024 flows of each.
const OF_DEVICE: u64 = 1_000;

/// A device reads so much at once.
const STEP: usize = 4 << 10;

/// How much of an answer a device has room for: the relay has the rest.
const WINDOW: u64 = 8 << 10;

/// Exchanges of one device that begin at once.
const BEGUN: usize = 64;

/// Another tenth of the devices goes away so often, and for so long.
const AWAY_EVERY: Duration = Duration::from_secs(60);
const AWAY_FOR: Duration = Duration::from_secs(30);

/// An answer that is parked: more than a window.
const PARKED_BYTES: u64 = 16 << 10;

const JAIN_MIN: f64 = 0.9;
const PARKED_MAX: f64 = 400.0;

fn main() -> ExitCode {
    let runtime =
        || tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().expect("a runtime");
    match word("--role").as_deref() {
        Some("origin") => runtime().block_on(origin()),
        Some("slow") => runtime().block_on(slow()),
        Some(_) => runtime().block_on(leave()),
        None => return conduct(),
    }
    ExitCode::SUCCESS
}

// The conductor.

fn conduct() -> ExitCode {
    let only = word("--only");
    let runs = |part| only.as_deref().is_none_or(|only| only == part);
    let mut verdict = Verdict::default();
    if runs("slow") {
        slow_downloads(&mut verdict);
    }
    if runs("parked") {
        parked_exchanges(&mut verdict);
    }
    verdict.exit()
}

/// A relay, a web server, and a folder with what devices are told.
struct House {
    folder: tempfile::TempDir,
    relay: Program,
    _origin: Part,
    port: String,
    metrics: SocketAddr,
    before: f64,
}

impl House {
    fn new(devices: u64, parks_after: u64) -> Self {
        // Not in memory.
        let folder = tempfile::tempdir_in(word("--disk").unwrap_or_else(|| "/var/tmp".into())).expect("a folder");
        make_certificate(folder.path());
        let introduced: Vec<_> = (0..devices)
            .map(|_| introduce(&folder.path().join("devices.toml"), &format!("{NAME}:1"), None).expect("a device"))
            .map(|Introduction { host, key, .. }| format!("{host} {key}"))
            .collect();
        std::fs::write(folder.path().join("introduced"), introduced.join("\n")).expect("a file");
        let mut origin = Part::beside("origin", folder.path(), &[]);
        let port = origin.expect("port");
        let (listens, metrics) = (free_address().port(), free_address().port());
        let parks_after = format!("{parks_after}s");
        let state = folder.path().join("state").display().to_string();
        let admin = format!("127.0.0.1:{metrics}");
        let more = [
            "--state-dir",
            &state,
            "--max-stored",
            "1T",
            "--device-stored",
            "1T",
            "--cache-memory",
            "0",
            "--cache",
            "0",
            "--park-after",
            &parks_after,
            "--admin",
            &admin,
        ];
        let relay = edge::relay(&|program| Command::new(program), folder.path(), listens, "127.0.0.1", &more);
        let port = format!("{port} 127.0.0.1:{listens}");
        let metrics = (Ipv4Addr::LOCALHOST, metrics).into();
        let before = resident(relay.pid());
        Self { folder, relay, _origin: origin, port, metrics, before }
    }

    fn devices(&self, role: &str, arguments: &[&str]) -> Part {
        Part::beside(role, self.folder.path(), &[&["--ports", &self.port][..], arguments].concat())
    }

    /// How much more memory the relay has than without any device, in bytes.
    fn more(&self) -> f64 {
        resident(self.relay.pid()) - self.before
    }

    /// What the relay tells under this name.
    fn told(&self, name: &str) -> u64 {
        let mut stream = std::net::TcpStream::connect(self.metrics).expect("metrics");
        stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n").expect("asked");
        let mut page = String::new();
        stream.read_to_string(&mut page).expect("told");
        let line = page.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' ')).expect("a figure");
        line.parse().expect("a number")
    }
}

fn slow_downloads(verdict: &mut Verdict) {
    let downloads = number("--downloads").unwrap_or(64_000);
    let (kilobytes, rate) = (number("--kilobytes").unwrap_or(128), number("--rate").unwrap_or(1_000));
    let house = House::new(downloads.div_ceil(OF_DEVICE), 60);
    let arguments = [downloads, kilobytes, rate].map(|number| number.to_string());
    let [all, len, pace] = &arguments;
    let mut devices = house.devices("slow", &["--downloads", all, "--kilobytes", len, "--rate", pace]);
    let begun = devices.expect("begun");
    let cpu = cpu_seconds(house.relay.pid());
    let mut most = house.more();
    let ended = loop {
        match devices.hear_within(Duration::from_secs(1)) {
            Ok(line) => break line,
            Err(std::sync::mpsc::RecvTimeoutError::Timeout) => most = most.max(house.more()),
            Err(error) => panic!("{error}"),
        }
    };
    let cpu = cpu_seconds(house.relay.pid()) - cpu;
    let told: Vec<f64> = ended.split_whitespace().map(|word| word.parse().expect("a number")).collect();
    let [secs, index, resumed, left] = told[..] else { panic!("it says {ended}") };
    let gigabytes = (downloads * kilobytes) as f64 / 1e6;
    let holds = verdict.at_least("Jain's index of slow downloads", index, JAIN_MIN);
    let mut table = Table::new([
        "downloads",
        "of which away once",
        "begun in s",
        "s",
        "GB",
        "MB more",
        "KB each",
        "CPU s/GB",
        "cores at 10 Gbit/s",
        "went on after parking",
        "Jain",
        "limit",
    ]);
    let each = cpu / gigabytes;
    table.row([
        downloads.to_string(),
        format!("{left:.0}"),
        begun,
        format!("{secs:.0}"),
        format!("{gigabytes:.1}"),
        format!("{:.0}", most / 1e6),
        format!("{:.1}", most / 1e3 / downloads as f64),
        format!("{each:.2}"),
        format!("{:.1}", each * 1.25),
        format!("{resumed:.0}"),
        format!("{index:.3}"),
        format!("{JAIN_MIN} {holds}"),
    ]);
    println!("{}", table.render());
}

fn parked_exchanges(verdict: &mut Verdict) {
    let exchanges = number("--exchanges").unwrap_or(1_000_000);
    let house = House::new(number("--devices").unwrap_or(10), 1);
    let all = exchanges.to_string();
    let begin = Instant::now();
    let mut devices = house.devices("parked", &["--exchanges", &all]);
    let mut parked = 0;
    while parked < exchanges {
        let left = devices.expect("left").parse().expect("a number");
        // However slow the machine is.
        for _ in 0..600 {
            parked = house.told("hoop_relay_parked_total");
            if parked >= left {
                break;
            }
            std::thread::sleep(Duration::from_millis(100));
        }
        assert_eq!(parked, left, "not all of them are parked");
        devices.say("on");
    }
    let (secs, flows) = (begin.elapsed().as_secs_f64(), house.told("hoop_relay_flows"));
    // Whatever is given back after some seconds of rest is given back.
    std::thread::sleep(Duration::from_secs(12));
    let more = house.more();
    let whole = devices.expect("whole");
    let holds = verdict.at_most("MB of parked exchanges", more / 1e6, PARKED_MAX * exchanges as f64 / 1e6);
    let mut table = Table::new([
        "parked exchanges",
        "in s",
        "flows left",
        "MB more",
        "bytes each",
        "limit MB a million",
        "asked for, and whole",
    ]);
    table.row([
        all,
        format!("{secs:.0}"),
        flows.to_string(),
        format!("{:.0}", more / 1e6),
        format!("{:.0}", more / exchanges as f64),
        format!("{PARKED_MAX} {holds}"),
        whole,
    ]);
    println!("{}", table.render());
}

/// What is in a process's memory, in bytes.
fn resident(process: u32) -> f64 {
    let status = std::fs::read_to_string(format!("/proc/{process}/status")).expect("it runs");
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).expect("a process has memory");
    line.split_whitespace().nth(1).and_then(|text| text.parse::<f64>().ok()).expect("a number") * 1024.0
}

fn folder() -> std::path::PathBuf {
    Path::new(&word("--folder").expect("a folder")).to_owned()
}

/// Ends this process once the conductor is gone.
fn end_with_conductor() {
    std::thread::spawn(|| {
        std::io::stdin().lines().map_while(Result::ok).for_each(drop);
        std::process::exit(1);
    });
}

// The web server.

/// The byte of an answer at this place.
const fn byte(answer: u64, at: u64) -> u8 {
    (answer as u8) ^ (answer >> 8) as u8 ^ (at / 7) as u8 ^ (at >> 11) as u8
}

/// Answers `GET /LENGTH/NUMBER…`.
async fn origin() {
    end_with_conductor();
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.expect("a listener");
    println!("port {}", listener.local_addr().expect("an address").port());
    loop {
        let Ok((stream, _)) = listener.accept().await else {
            sleep(Duration::from_millis(10)).await;
            continue;
        };
        tokio::spawn(async move {
            let mut stream = BufReader::new(stream);
            let mut line = String::new();
            let mut asked = None;
            while stream.read_line(&mut line).await.is_ok_and(|read| read > 0) {
                if let Some(path) = line.strip_prefix("GET /") {
                    let (len, answer) = path.split_once('/')?;
                    let answer = answer.split([' ', '?']).next()?;
                    asked = Some((len.parse::<u64>().ok()?, answer.parse::<u64>().ok()?));
                } else if line == "\r\n" {
                    let (len, answer) = asked.take()?;
                    let head = format!(
                        "HTTP/1.1 200 OK\r\nContent-Length: {len}\r\nETag: \"{answer}\"\r\nCache-Control: no-store\r\n\r\n"
                    );
                    let body: Vec<u8> = (0..len).map(|at| byte(answer, at)).collect();
                    stream.write_all(head.as_bytes()).await.ok()?;
                    stream.write_all(&body).await.ok()?;
                }
                line.clear();
            }
            Some(())
        });
    }
}

// The devices.

/// A device, and its carrier while it is there.
struct Host {
    device: Device,
    /// Where it listens.
    origin: u16,
    relay: SocketAddr,
    carrier: Mutex<Option<(CarrierId, Arc<dyn Carrier>)>>,
    begins: Semaphore,
    /// For how long it was away, in milliseconds.
    away: AtomicU64,
}

/// An exchange that goes on: the flow that it began with, and what it comes over.
struct Coming {
    first: FlowId,
    reader: FlowReader,
    _writer: FlowWriter,
    /// What came with the head.
    rest: Bytes,
}

impl Host {
    fn all() -> Vec<Arc<Self>> {
        let ports = word("--ports").expect("ports");
        let (origin, relay) = ports.split_once(' ').expect("two");
        let introduced = std::fs::read_to_string(folder().join("introduced")).expect("a file");
        let devices = introduced.lines().map(|line| {
            let (host, key) = line.split_once(' ').expect("two");
            let told = Introduction {
                server: format!("{NAME}:1"),
                addresses: vec![],
                host: host.into(),
                key: key.into(),
                certificate: Some(authority()),
                front: None,
                front_certificate: None,
            };
            let (host, key): (DeviceId, DeviceKey) = (told.host().expect("an id"), told.key().expect("a key"));
            Arc::new(Self {
                device: Device::new(DeviceConfig::new(host, key)),
                origin: origin.parse().expect("a port"),
                relay: relay.parse().expect("an address"),
                carrier: Mutex::default(),
                begins: Semaphore::new(BEGUN),
                away: AtomicU64::default(),
            })
        });
        devices.collect()
    }

    async fn come(self: &Arc<Self>) {
        let mut dialled = self.dial().await;
        let this = self.clone();
        tokio::spawn(async move {
            loop {
                let (id, carrier) = dialled;
                let why = carrier.closed().await;
                if this.carrier.lock().take_if(|(current, _)| *current == id).is_none() {
                    // It went by itself.
                    return;
                }
                eprintln!("a device has lost its carrier, and comes again: {why}");
                this.device.remove_carrier(id);
                dialled = this.dial().await;
            }
        });
    }

    async fn dial(&self) -> (CarrierId, Arc<dyn Carrier>) {
        let options = QuicOptions { keep_alive: Some(Duration::from_secs(10)), ..QuicOptions::device() };
        let quic = QuicDevice::new(Local::default(), &tls_of_device(), &options).expect("an endpoint");
        let carrier: Arc<dyn Carrier> = Arc::new(quic.connect(self.relay, NAME).await.expect("a carrier"));
        let id = self.device.add_carrier(carrier.clone(), Use::Normal, "lo");
        *self.carrier.lock() = Some((id, carrier.clone()));
        (id, carrier)
    }

    fn go(&self) {
        let gone = self.carrier.lock().take();
        if let Some((id, carrier)) = gone {
            self.device.remove_carrier(id);
            carrier.close();
        }
    }

    async fn open(&self, service: &str, section: &[u8], first: Option<FlowId>) -> io::Result<Coming> {
        let options = FlowOptions { window: WINDOW, ..FlowOptions::default() };
        let flow = self.device.open(service, options).map_err(io::Error::other)?;
        let first = first.unwrap_or(flow.name().flow);
        let (mut reader, mut writer) = flow.into_split();
        if !section.is_empty() {
            put(section, &mut writer).await?;
        }
        writer.shutdown().await?;
        let (_, rest) = read_head(&mut reader).await?;
        Ok(Coming { first, reader, _writer: writer, rest })
    }

    /// Asks for an answer of so many bytes.
    async fn ask(&self, answer: u64, len: u64) -> io::Result<Coming> {
        let _turn = self.begins.acquire().await.expect("it is never closed");
        let url = format!("http://127.0.0.1:{}/{len}/{answer:010}?", self.origin);
        let (mut section, request) = (Vec::new(), Request::get(format!("{url:x<80}")));
        encode_request(&request.body(()).expect("a request").into_parts().0, &mut section).expect("a head");
        self.open("http", &section, None).await
    }

    /// Goes on behind what has come.
    async fn go_on(&self, first: FlowId, at: u64) -> io::Result<Coming> {
        self.open(&format!("http:{first}:{at}"), &[], Some(first)).await
    }
}

impl Coming {
    async fn next(&mut self) -> io::Result<Option<Bytes>> {
        match self.rest.is_empty() {
            true => self.reader.read_chunk(STEP).await,
            false => Ok(Some(self.rest.split_to(self.rest.len().min(STEP)))),
        }
    }
}

fn check(answer: u64, at: u64, bytes: &[u8]) {
    let is_right = bytes.iter().zip(at..).all(|(is, at)| *is == byte(answer, at));
    assert!(is_right, "answer {answer} is another from {at} on");
}

/// Whether the relay has the answer on disk alone.
fn is_parked(error: &io::Error) -> bool {
    matches!(FlowError::of(error), Some(FlowError::Ended(PARKED) | FlowError::Refused(Refusal::Unknown)))
}

async fn slow() {
    end_with_conductor();
    let [downloads, kilobytes, rate] =
        ["--downloads", "--kilobytes", "--rate"].map(|name| number(name).expect("a number"));
    let (hosts, len) = (Host::all(), kilobytes * 1_000);
    for host in &hosts {
        host.come().await;
    }
    let begin = Instant::now();
    let (begun, resumed) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
    let (all_have_begun, go) = watch::channel(false);
    let mut coming = JoinSet::new();
    for answer in 0..downloads {
        let mut go = go.clone();
        let (host, begun, resumed) = (hosts[(answer / OF_DEVICE) as usize].clone(), begun.clone(), resumed.clone());
        coming.spawn(async move {
            let mut coming = host.ask(answer, len).await.expect("an answer");
            begun.fetch_add(1, Ordering::Relaxed);
            let _ = go.wait_for(|go| *go).await;
            let (since, away) = (Instant::now(), host.away.load(Ordering::Relaxed));
            let mut at = 0;
            while at < len {
                match coming.next().await {
                    Ok(Some(bytes)) => {
                        check(answer, at, &bytes);
                        at += bytes.len() as u64;
                        sleep(Duration::from_secs_f64(bytes.len() as f64 / rate as f64)).await;
                    }
                    Ok(None) => panic!("answer {answer} ends after {at}"),
                    Err(error) if is_parked(&error) => {
                        coming = host.go_on(coming.first, at).await.expect("it goes on");
                        resumed.fetch_add(1, Ordering::Relaxed);
                    }
                    Err(error) => panic!("answer {answer} after {at}: {error}"),
                }
            }
            let away = host.away.load(Ordering::Relaxed) - away;
            len as f64 / (since.elapsed().as_secs_f64() - away as f64 / 1e3)
        });
    }
    while begun.load(Ordering::Relaxed) < downloads {
        if let Some(ended) = coming.try_join_next() {
            panic!("one has ended before all have begun, or broke off: {ended:?}");
        }
        sleep(Duration::from_millis(100)).await;
    }
    println!("begun {:.0}", begin.elapsed().as_secs_f64());
    all_have_begun.send_replace(true);
    let (since, left) = (Instant::now(), Arc::new(AtomicU64::new(0)));
    let (leaving, counts) = (hosts.clone(), left.clone());
    let leave = async move {
        for tenth in leaving.chunks(leaving.len().div_ceil(10)) {
            sleep(AWAY_EVERY - AWAY_FOR).await;
            for host in tenth {
                host.go();
                counts.fetch_add(OF_DEVICE, Ordering::Relaxed);
            }
            sleep(AWAY_FOR).await;
            for host in tenth {
                host.come().await;
                host.away.fetch_add(AWAY_FOR.as_millis() as u64, Ordering::Relaxed);
            }
        }
    };
    let leaving = tokio::spawn(leave);
    let rates: Vec<f64> = coming.join_all().await;
    leaving.abort();
    let (sum, squares) = rates.iter().fold((0.0, 0.0), |(sum, squares), x| (sum + x, x.mul_add(*x, squares)));
    let index = sum * sum / (rates.len() as f64 * squares);
    let left = left.load(Ordering::Relaxed);
    println!("{} {index} {} {left}", since.elapsed().as_secs_f64(), resumed.load(Ordering::Relaxed));
    std::process::exit(0);
}

async fn leave() {
    let exchanges = number("--exchanges").expect("a number");
    let (mut hosts, mut names) = (Host::all(), Vec::new());
    let every = exchanges.div_ceil(1_000);
    let mut asked = 0;
    while asked < exchanges {
        let wave = (exchanges - asked).min(hosts.len() as u64 * OF_DEVICE);
        let mut coming = JoinSet::new();
        for host in &hosts {
            host.come().await;
        }
        for answer in asked..asked + wave {
            let host = hosts[((answer - asked) / OF_DEVICE) as usize].clone();
            coming.spawn(async move { (answer, host.ask(answer, PARKED_BYTES).await.expect("an answer")) });
        }
        let coming = coming.join_all().await;
        hosts.iter().for_each(|host| host.go());
        for (answer, mut coming) in coming.into_iter().filter(|(answer, _)| answer % every == 0) {
            // What has come it has acknowledged.
            let mut at = 0;
            while let Ok(Ok(Some(bytes))) = timeout(Duration::from_millis(20), coming.next()).await {
                check(answer, at, &bytes);
                at += bytes.len() as u64;
            }
            names.push((answer, ((answer - asked) / OF_DEVICE) as usize, coming.first, at));
        }
        asked += wave;
        println!("left {asked}");
        told().await;
        // As devices that were restarted: the next wave has flows of its own.
        hosts = Host::all();
    }
    for host in &hosts {
        host.come().await;
    }
    let mut whole = 0;
    for (answer, host, first, mut at) in names {
        let mut coming = hosts[host].go_on(first, at).await.expect("it is there");
        while let Some(bytes) = coming.next().await.expect("it comes") {
            check(answer, at, &bytes);
            at += bytes.len() as u64;
        }
        assert_eq!(at, PARKED_BYTES);
        whole += 1;
    }
    println!("whole {whole}");
    std::process::exit(0);
}
