//! Downloads and uploads by `hoop agent` whose relay is killed (SIGKILL) at random moments, again and again; and downloads of `hoop get`, which is killed itself, as its agent is. Each download is
//! whole. Each upload is posted once, or its program hears that nobody knows. Real programs: nginx, curl, `hoop relay`, `hoop agent`, `hoop get`.
//!
//! `HOOP_KILLS=200` kills the relay so often; by default 20. At least as many files are downloaded meanwhile, and half as many uploaded.

use hoop_testbed::{Certificates, Program, program_beside, sha256};
use rand_core::{Rng as _, SeedableRng as _};
use rand_pcg::Pcg64Mcg;
use std::collections::HashMap;
use std::fs;
use std::io::{self, BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// More than what is under way between relay and program.
const LEN: u32 = 6_000_000;

/// Downloads at once, and uploads.
const AT_ONCE: usize = 8;
const UPLOADS_AT_ONCE: usize = 4;

/// What an upload has, in bytes.
const UPLOAD_LEN: usize = 2_000_000;

/// How long it takes at most: generous, since machines are busy. And so much more for each kill.
const PATIENCE: Duration = Duration::from_secs(600);
const PATIENCE_PER_KILL: Duration = Duration::from_secs(10);

/// A relay and an agent on loopback, and a web server.
struct World {
    folder: TempDir,
    relay: u16,
    agent: u16,
    web: u16,
    /// The same by https.
    tls: u16,
    _web: Program,
}

/// How often the relay is killed at least.
fn kills() -> usize {
    std::env::var("HOOP_KILLS").map_or(20, |kills| kills.parse().expect("HOOP_KILLS is a number"))
}

/// A port that is free.
fn port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

impl World {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        let [relay, agent, web, tls] = [port(), port(), port(), port()];
        let certificates = Certificates::make(folder.path(), &["relay.example", "localhost"]).unwrap();
        let introduced = Command::new(program_beside("hoop"))
            .args(["introduce", &format!("relay.example:{relay}"), "--address", "127.0.0.1"])
            .arg("--devices")
            .arg(path("devices.toml"))
            .arg("--cert")
            .arg(&certificates.authority)
            .output()
            .unwrap();
        assert!(introduced.status.success(), "{}", String::from_utf8_lossy(&introduced.stderr));
        fs::write(path("relay.toml"), introduced.stdout).unwrap();
        fs::create_dir(path("www")).unwrap();
        let file: Vec<u8> = (0..LEN).map(|at| (at.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
        fs::write(path("www/file"), file).unwrap();
        let www = path("www");
        // One process, so that nothing of it stays when it is killed. It takes some seconds for a file, so that the relay is killed also while it fetches.
        let config = format!(
            "daemon off; master_process off; pid {pid}; error_log stderr notice; events {{}} http {{ access_log off; client_body_temp_path {temp}; proxy_temp_path {temp}; fastcgi_temp_path {temp}; \
             uwsgi_temp_path {temp}; scgi_temp_path {temp}; server {{ listen 127.0.0.1:{web}; listen 127.0.0.1:{tls} ssl http2; ssl_certificate {certificate}; ssl_certificate_key {key}; \
             location / {{ root {www}; limit_rate 4m; }} location /slow/ {{ alias {www}/; limit_rate 400k; }} }} }}",
            certificate = certificates.certificate.display(),
            key = certificates.key.display(),
            pid = path("nginx.pid").display(),
            temp = path("temp").display(),
            www = www.display(),
        );
        fs::write(path("nginx.conf"), config).unwrap();
        let mut nginx = Command::new("nginx");
        nginx.arg("-e").arg("stderr").arg("-c").arg(path("nginx.conf"));
        let web_server = Program::start("nginx", nginx, "using the").unwrap();
        let mut trust = Command::new(program_beside("hoop"));
        let made = trust.args(["agent", "trust", &format!("localhost:{tls}"), "-o"]).arg(path("authority")).output();
        assert!(made.unwrap().status.success());
        Self { folder, relay, agent, web, tls, _web: web_server }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn start_relay(&self) -> Program {
        let mut relay = Command::new(program_beside("hoop"));
        relay.args(["relay", "--listen", &format!("127.0.0.1:{}", self.relay), "--allow", "127.0.0.0/8"]);
        relay.arg("--tls-cert").arg(self.path("certificate.pem")).arg("--tls-key").arg(self.path("key.pem"));
        relay.arg("--devices").arg(self.path("devices.toml")).arg("--state-dir").arg(self.path("state"));
        relay.arg("--ca").arg(self.path("ca.pem"));
        Program::start("hoop relay", relay, "listening on").unwrap()
    }

    /// `entrusts`: the relay makes the requests by https.
    fn start_agent(&self, entrusts: bool) -> Program {
        let mut agent = Command::new(program_beside("hoop"));
        agent.args(["agent", "--listen", &format!("127.0.0.1:{}", self.agent), "--relay"]).arg(self.path("relay.toml"));
        agent.env("XDG_RUNTIME_DIR", self.folder.path());
        if entrusts {
            agent.arg("--authority").arg(self.path("authority"));
        }
        Program::start("hoop agent", agent, "listening on").unwrap()
    }

    /// `hoop get` of a URL.
    fn get(&self, url: &str, into: &Path) -> Command {
        let mut get = Command::new(program_beside("hoop"));
        get.args(["get", url, "--agent", &format!("127.0.0.1:{}", self.agent), "--quiet", "--output"]).arg(into);
        get.arg("--ca").arg(self.path("ca.pem"));
        get
    }

    /// Begins the relay and kills it after so many milliseconds, until it is enough. Returns how often.
    fn kill_again_and_again(&self, after: Range<u32>, seed: u64, is_enough: impl Fn(usize) -> bool) -> usize {
        let (begun, mut rng, mut killed) = (Instant::now(), Pcg64Mcg::seed_from_u64(seed), 0);
        while !is_enough(killed) {
            assert!(begun.elapsed() < PATIENCE + PATIENCE_PER_KILL * killed as u32, "{killed} kills");
            let relay = self.start_relay();
            let millis = after.start + rng.next_u32() % (after.end - after.start);
            thread::sleep(Duration::from_millis(millis.into()));
            // Dropped, it is killed.
            drop(relay);
            killed += 1;
        }
        killed
    }

    /// Downloads the file, no faster than a slow device does; `by_tls`: by https, from an agent that shows itself as the web server.
    fn download(&self, into: &Path, by_tls: bool) -> Result<(), String> {
        let mut curl = Command::new("curl");
        curl.args(["--silent", "--show-error", "--fail", "--limit-rate", "2M", "--proxy"]);
        curl.arg(format!("http://127.0.0.1:{}", self.agent)).arg("--output").arg(into);
        match by_tls {
            false => curl.arg(format!("http://127.0.0.1:{}/file", self.web)),
            true => {
                curl.arg(format!("https://localhost:{}/file", self.tls)).arg("--cacert").arg(self.path("authority.crt"))
            }
        };
        let done = curl.output().unwrap();
        let told = String::from_utf8_lossy(&done.stderr).into_owned();
        if done.status.success() { Ok(()) } else { Err(told) }
    }
}

/// A web server that counts what was posted whole to each path, and takes its time to answer.
struct Counting {
    port: u16,
    posted: Arc<Mutex<HashMap<String, usize>>>,
}

impl Counting {
    fn new(whole: Vec<u8>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let counting = Self { port: listener.local_addr().unwrap().port(), posted: Arc::default() };
        let (posted, whole) = (counting.posted.clone(), Arc::new(whole));
        // It ends with the process.
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let (posted, whole) = (posted.clone(), whole.clone());
                thread::spawn(move || drop(serve(stream, &posted, &whole)));
            }
        });
        counting
    }

    fn posted(&self, path: &str) -> usize {
        self.posted.lock().unwrap().get(path).copied().unwrap_or(0)
    }
}

/// Reads a request. If it is whole, it counts, and is answered after a while.
fn serve(stream: TcpStream, posted: &Mutex<HashMap<String, usize>>, whole: &[u8]) -> io::Result<()> {
    let mut reader = BufReader::new(stream);
    let mut lines = Vec::new();
    loop {
        let mut line = String::new();
        if reader.read_line(&mut line)? == 0 {
            return Ok(());
        }
        if line == "\r\n" {
            break;
        }
        lines.push(line);
    }
    let length = lines.iter().find_map(|line| line.strip_prefix("Content-Length: ")?.trim().parse().ok());
    let mut body = vec![0; length.expect("it has a length")];
    reader.read_exact(&mut body)?;
    let path = lines[0].split(' ').nth(1).unwrap().to_owned();
    let number = {
        let mut posted = posted.lock().unwrap();
        // What is not as it was sent counts as many.
        *posted.entry(path).or_default() += if body == whole { 1 } else { 1_000 };
        posted.len() as u64
    };
    thread::sleep(Duration::from_millis(number * 37 % 300));
    reader.get_mut().write_all(b"HTTP/1.1 201 Created\r\nContent-Length: 6\r\nConnection: close\r\n\r\ntaken\n")
}

/// What became of the uploads.
#[derive(Default, Debug)]
struct Uploaded {
    taken: usize,
    unknown: usize,
    failed: Vec<String>,
}

impl World {
    /// Posts the file, and says what became of that.
    fn upload(&self, number: usize, file: &Path, counting: &Counting, uploaded: &mut Uploaded) {
        let (path, answer) = (format!("/{number}"), self.path(&format!("answer.{number}")));
        let mut curl = Command::new("curl");
        curl.args(["--silent", "--show-error", "--limit-rate", "2M", "--write-out", "%{http_code}", "--data-binary"]);
        curl.arg(format!("@{}", file.display())).arg("--proxy").arg(format!("http://127.0.0.1:{}", self.agent));
        curl.arg("--output").arg(&answer).arg(format!("http://127.0.0.1:{}{path}", counting.port));
        let done = curl.output().unwrap();
        let code = String::from_utf8_lossy(&done.stdout).into_owned();
        let says = fs::read_to_string(&answer).unwrap_or_default();
        let posted = counting.posted(&path);
        match (&code[..], posted) {
            ("201", 1) if says == "taken\n" && done.status.success() => uploaded.taken += 1,
            ("502", 0 | 1) if says.contains("nobody knows") => uploaded.unknown += 1,
            _ => {
                let told = String::from_utf8_lossy(&done.stderr);
                uploaded.failed.push(format!("upload {number}: {code}, posted {posted} times: {says}{told}"));
            }
        }
    }
}

/// Downloads until it is over; says what went wrong.
fn download_until(is_over: &AtomicBool, world: &World, whole: &str, next: &AtomicUsize) -> Vec<String> {
    let mut failed = Vec::new();
    while !is_over.load(Ordering::SeqCst) {
        let number = next.fetch_add(1, Ordering::SeqCst);
        let into = world.path(&format!("came.{number}"));
        match world.download(&into, number % 2 == 1) {
            Ok(()) if sha256(&into).unwrap() == whole => {}
            Ok(()) => failed.push(format!("download {number} has other bytes")),
            Err(told) => failed.push(format!("download {number}: {told}")),
        }
        let _ = fs::remove_file(into);
    }
    failed
}

#[test]
fn transfers_outlive_a_relay_that_is_killed_again_and_again() {
    let (kills, world) = (kills(), World::new());
    let sha = sha256(&world.path("www/file")).unwrap();
    let whole: Vec<u8> = (0..UPLOAD_LEN).map(|at| (at.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
    let file = world.path("upload");
    fs::write(&file, &whole).unwrap();
    let counting = Counting::new(whole);
    let _agent = world.start_agent(true);
    let (downloads, uploads, is_over) = (AtomicUsize::new(0), AtomicUsize::new(0), AtomicBool::new(false));
    thread::scope(|scope| {
        let downloading: Vec<_> =
            (0..AT_ONCE).map(|_| scope.spawn(|| download_until(&is_over, &world, &sha, &downloads))).collect();
        let uploading: Vec<_> = (0..UPLOADS_AT_ONCE)
            .map(|_| {
                scope.spawn(|| {
                    let mut uploaded = Uploaded::default();
                    while !is_over.load(Ordering::SeqCst) {
                        world.upload(uploads.fetch_add(1, Ordering::SeqCst), &file, &counting, &mut uploaded);
                    }
                    uploaded
                })
            })
            .collect();
        let begun = Instant::now();
        let are_enough = || downloads.load(Ordering::SeqCst) >= kills && uploads.load(Ordering::SeqCst) >= kills / 2;
        let killed = world.kill_again_and_again(200..1_800, 7, |killed| killed >= kills && are_enough());
        is_over.store(true, Ordering::SeqCst);
        let _relay = world.start_relay();
        let mut failed: Vec<String> = downloading.into_iter().flat_map(|one| one.join().unwrap()).collect();
        let (mut taken, mut unknown) = (0, 0);
        for uploaded in uploading.into_iter().map(|one| one.join().unwrap()) {
            (taken, unknown) = (taken + uploaded.taken, unknown + uploaded.unknown);
            failed.extend(uploaded.failed);
        }
        let (downloads, secs) = (downloads.load(Ordering::SeqCst), begun.elapsed().as_secs_f64());
        println!(
            "{downloads} downloads and {taken} uploads taken, of {unknown} uploads nobody knows, the relay killed {killed} times in {secs:.0} s"
        );
        assert!(failed.is_empty(), "{} failed:\n{}", failed.len(), failed.join("\n"));
        assert!(taken > 0);
        // What nobody knew of was not posted afterwards, either.
        let posted = counting.posted.lock().unwrap().clone();
        assert!(posted.values().all(|times| *times == 1), "{posted:?}");
    });
}

#[test]
fn a_file_that_is_got_is_whole_after_fifty_interruptions() {
    let world = World::new();
    let whole = sha256(&world.path("www/file")).unwrap();
    let mut rng = Pcg64Mcg::seed_from_u64(9);
    for (way, scheme, port, entrusts) in [
        ("plain", "http", world.web, false),
        ("tunnel", "https", world.tls, false),
        ("entrusted", "https", world.tls, true),
    ] {
        let url = format!("{scheme}://localhost:{port}/slow/file");
        let into = world.path(way);
        let (mut relay, mut agent) = (Some(world.start_relay()), Some(world.start_agent(entrusts)));
        let (mut get, mut kills) = (world.get(&url, &into).spawn().unwrap(), [0; 3]);
        while kills.iter().sum::<usize>() < 17 {
            thread::sleep(Duration::from_millis(u64::from(100 + rng.next_u32() % 500)));
            assert!(get.try_wait().unwrap().is_none(), "{way}: it has ended before");
            let which = rng.next_u32() as usize % 3;
            kills[which] += 1;
            match which {
                0 => {
                    get.kill().unwrap();
                    get.wait().unwrap();
                    get = world.get(&url, &into).spawn().unwrap();
                }
                1 => {
                    relay = None;
                    relay = relay.or_else(|| Some(world.start_relay()));
                }
                _ => {
                    agent = None;
                    agent = agent.or_else(|| Some(world.start_agent(entrusts)));
                }
            }
        }
        let come = fs::metadata(world.path(&format!(".{way}.part"))).unwrap().len();
        println!("{way}: get, relay and agent killed {kills:?} times, {come} bytes have come");
        assert!(get.wait().unwrap().success());
        assert_eq!(sha256(&into).unwrap(), whole, "{way}");
        drop((relay, agent));
    }
}
