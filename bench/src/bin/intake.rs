//! One 1 GiB post on loopback to disk: the gateway beside nginx (`dav_methods PUT`), with and without a 32 MB memory cgroup.
//!
//! The sender is the same for all: `sendfile` from a file in memory, so that it is never the bottleneck. Servers take turns in
//! each round. CPU seconds are the server's alone (user and system); resident is the peak, `VmHWM`. The gateway's ordinary answer means *synced*;
//! `unsynced` is the gateway with `--no-sync`, to compare like with like, and `nginx, then synced` adds an `fdatasync` of the file.
//!
//! The gateway is the one that routers get: built alone, with the profile `router` (`make router`).
//!
//! `--mib N` sends another size; `--rounds N` runs more rounds.

use hoop_bench::{Table, Verdict, median, number, rounds, spread};
use hoop_seal::{Grant, KwsId, Layout, Prelude, RECORD_SIZE, Route, ServiceKey, Suite, UploadKey};
use hoop_units::{UnixTime, UploadId};
use std::fs::{self, File};
use std::io::{self, BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsRawFd as _;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, Stdio};
use std::time::{Duration, Instant, SystemTime};

/// What serves, and how its answer is made durable.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Rival {
    Gateway,
    GatewayUnsynced,
    Nginx,
    NginxThenSynced,
}

impl Rival {
    const ALL: [Self; 4] = [Self::GatewayUnsynced, Self::Nginx, Self::Gateway, Self::NginxThenSynced];

    const fn name(self) -> &'static str {
        match self {
            Self::Gateway => "gateway (2xx means synced)",
            Self::GatewayUnsynced => "gateway, unsynced",
            Self::Nginx => "nginx dav PUT (unsynced)",
            Self::NginxThenSynced => "nginx, then synced",
        }
    }

    const fn is_gateway(self) -> bool {
        matches!(self, Self::Gateway | Self::GatewayUnsynced)
    }
}

/// What one post cost.
#[derive(Clone, Copy, Debug)]
struct Cost {
    seconds: f64,
    cpu_seconds: f64,
    resident_kib: f64,
}

fn main() -> ExitCode {
    let mib = number("--mib").unwrap_or(1024);
    let mut verdict = Verdict::default();
    let body = SealedBody::of_length(mib << 20);
    let mut table = Table::new([
        "memory",
        "server",
        "MB/s, median",
        "min-max",
        "of nginx",
        "CPU s/GiB",
        "of nginx",
        "resident KiB",
        "limits",
    ]);
    for limit in [None, Some(32 << 20)] {
        let mut costs: Vec<(Rival, Vec<Cost>)> = Rival::ALL.map(|rival| (rival, Vec::new())).to_vec();
        for round in 0..rounds() {
            // The order turns with each round, so that no rival always follows the same other.
            for index in 0..costs.len() {
                let (rival, all) = &mut costs[(index + round) % Rival::ALL.len()];
                all.push(measure(*rival, limit, &body));
            }
        }
        report(&mut table, &mut verdict, limit, &costs, body.len);
    }
    println!("{}", table.render());
    verdict.exit()
}

fn report(table: &mut Table, verdict: &mut Verdict, limit: Option<u64>, costs: &[(Rival, Vec<Cost>)], len: u64) {
    let column = |rival: Rival, value: fn(&Cost) -> f64| -> Vec<f64> {
        costs.iter().filter(|(other, _)| *other == rival).flat_map(|(_, all)| all.iter().map(value)).collect()
    };
    let mega = len as f64 / 1e6;
    let gib = len as f64 / f64::from(1 << 30);
    let memory = limit.map_or("free".to_owned(), |bytes| format!("{} MiB", bytes >> 20));
    for (rival, _) in costs {
        let peer = if matches!(rival, Rival::Gateway | Rival::NginxThenSynced) {
            Rival::NginxThenSynced
        } else {
            Rival::Nginx
        };
        let speeds: Vec<f64> = column(*rival, |cost| cost.seconds).iter().map(|seconds| mega / seconds).collect();
        let speed_of_peer = median(&speeds) * median(&column(peer, |cost| cost.seconds)) / mega;
        let cpu = median(&column(*rival, |cost| cost.cpu_seconds));
        let cpu_of_peer = cpu / median(&column(peer, |cost| cost.cpu_seconds));
        let resident = median(&column(*rival, |cost| cost.resident_kib));
        let mut limits = String::new();
        if rival.is_gateway() {
            let what = |figure: &str| format!("{memory}, {}, {figure}", rival.name());
            limits = [
                format!("speed {}", verdict.at_least(&what("speed of nginx"), speed_of_peer, 1.0)),
                format!("CPU {}", verdict.at_most(&what("CPU of nginx"), cpu_of_peer, 1.0)),
                format!("8 MiB {}", verdict.at_most(&what("resident KiB"), resident, 8192.0)),
            ]
            .join(", ");
        }
        let (low, high) = spread(&speeds);
        table.row([
            memory.clone(),
            rival.name().into(),
            format!("{:.0}", median(&speeds)),
            format!("{low:.0}-{high:.0}"),
            format!("{speed_of_peer:.2}"),
            format!("{:.2}", cpu / gib),
            format!("{cpu_of_peer:.2}"),
            format!("{resident:.0}"),
            limits,
        ]);
    }
}

/// A file in memory that has the form of a sealed upload: a prelude with a ticket, then octets. The gateway has no key, so
/// it could not tell the difference.
struct SealedBody {
    file: File,
    len: u64,
}

impl SealedBody {
    fn of_length(len: u64) -> Self {
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).expect("a clock after 1970").as_secs();
        let expires = UnixTime(u32::try_from(now).unwrap_or(u32::MAX)).plus_secs(86_400);
        let grant = Grant {
            key: UploadKey([1; 32]),
            not_before: UnixTime(0),
            max_bytes: u64::MAX,
            route: Route::ANY,
            suite: Suite::Aes256Gcm,
        };
        let ring = hoop_seal::Keyring::new(ServiceKey::new(KwsId([1; 4]), [1; 32]));
        let ticket = ring.seal_ticket("https://bench.example", UploadId([0; 16]), expires, &grant, [1; 12]);
        let prelude = Prelude::new([1; 16], RECORD_SIZE, &ticket).expect("a valid prelude");
        let layout = Layout::for_plaintext(prelude.len(), RECORD_SIZE, len).expect("a length that can be");
        let path = Path::new("/dev/shm").join(format!("hoop-intake-{}", std::process::id()));
        let mut file = File::options().create_new(true).read(true).write(true).open(&path).expect("a file in memory");
        fs::remove_file(&path).expect("the file just made");
        file.write_all(&prelude.encode()).expect("room in memory");
        let block = vec![0xa5; 1 << 20];
        let mut left = layout.total() - prelude.len() as u64;
        while left > 0 {
            let piece = left.min(block.len() as u64);
            file.write_all(&block[..piece as usize]).expect("room in memory");
            left -= piece;
        }
        Self { file, len: layout.total() }
    }

    /// The body's head with an upload id of its own, so that each round is a new upload.
    fn rename(&self, id: [u8; 16]) {
        use std::os::unix::fs::FileExt as _;
        // Salt 16, record size 4, length 1; then the ticket's version 1, key id 4, and the upload id.
        self.file.write_all_at(&id, 16 + 4 + 1 + 1 + 4).expect("the file is in memory");
    }
}

fn measure(rival: Rival, limit: Option<u64>, body: &SealedBody) -> Cost {
    let folder = tempfile::Builder::new().prefix("hoop-intake").tempdir_in(".").expect("a folder on disk");
    let address = free_address();
    let cgroup = limit.map(Cgroup::new);
    let mut server = start(rival, folder.path(), address, cgroup.as_ref());
    body.rename(rand());
    let path = match rival.is_gateway() {
        true => "/offload?dest=https%3A%2F%2F127.0.0.1%3A9%2Fhoop%2Fpost".to_owned(),
        false => "/stored".to_owned(),
    };
    let before = cpu_seconds(server.id());
    let begin = Instant::now();
    let status =
        post(address, if rival.is_gateway() { "POST" } else { "PUT" }, &path, body).expect("the post goes through");
    if rival == Rival::NginxThenSynced {
        File::open(folder.path().join("data/stored")).and_then(|file| file.sync_data()).expect("nginx stored it");
    }
    let seconds = begin.elapsed().as_secs_f64();
    assert!(status.contains(" 201 "), "{}: {status}", rival.name());
    let cpu_seconds = cpu_seconds(server.id()) - before;
    let resident_kib = peak_kib(server.id());
    stop(&mut server);
    drop(folder);
    // What one rival left unsynced is not for the next to pay.
    let _ = Command::new("sync").status();
    Cost { seconds, cpu_seconds, resident_kib }
}

fn start(rival: Rival, folder: &Path, address: SocketAddr, cgroup: Option<&Cgroup>) -> Child {
    let mut command = match rival.is_gateway() {
        true => {
            let mut command = Command::new(router_build());
            command.args(["gateway", "--no-mdns", "--allow-dest", "127.0.0.1", "--max-upload", "64GiB", "--listen"]);
            command.arg(address.to_string()).arg("--spool").arg(folder.join("spool"));
            if rival == Rival::GatewayUnsynced {
                command.arg("--no-sync");
            }
            command
        }
        false => nginx(folder, address),
    };
    if let Some(cgroup) = cgroup {
        cgroup.contain(&mut command);
    }
    let log = File::create(folder.join("log")).expect("a log file");
    let errors = log.try_clone().expect("a log file");
    let mut server = command.stdin(Stdio::null()).stdout(log).stderr(errors).spawn().expect("the server starts");
    for _ in 0..500 {
        if TcpStream::connect(address).is_ok() {
            return server;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    stop(&mut server);
    panic!("{} does not listen: {}", rival.name(), fs::read_to_string(folder.join("log")).unwrap_or_default());
}

fn nginx(folder: &Path, address: SocketAddr) -> Command {
    let folder = folder.canonicalize().expect("the folder is there");
    fs::create_dir(folder.join("data")).expect("a folder for nginx");
    let at = folder.display();
    let configuration = format!(
        "daemon off; master_process off; worker_processes 1; user root; pid {at}/pid; error_log {at}/log;
         events {{ worker_connections 64; }}
         http {{ access_log off; client_body_temp_path {at}/temp; client_max_body_size 0; proxy_temp_path {at}/p;
                 fastcgi_temp_path {at}/f; uwsgi_temp_path {at}/u; scgi_temp_path {at}/s;
                 server {{ listen {address}; root {at}/data; location / {{ dav_methods PUT; }} }} }}"
    );
    fs::write(folder.join("conf"), configuration).expect("room for a configuration");
    let mut command = Command::new("nginx");
    command.arg("-c").arg(folder.join("conf"));
    command
}

/// Sends the body by `sendfile` and returns the answer's status line.
#[allow(unsafe_code)] // sendfile: the sender must cost as little as can be
fn post(address: SocketAddr, method: &str, path: &str, body: &SealedBody) -> io::Result<String> {
    let mut stream = TcpStream::connect(address)?;
    stream.set_nodelay(true)?;
    write!(
        stream,
        "{method} {path} HTTP/1.1\r\nHost: {address}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
        body.len
    )?;
    let mut offset: libc::off_t = 0;
    while (offset.unsigned_abs()) < body.len {
        let left = usize::try_from(body.len - offset.unsigned_abs()).unwrap_or(usize::MAX).min(1 << 20);
        // SAFETY: both descriptors are open, and `offset` is a local of the right type.
        let sent = unsafe { libc::sendfile(stream.as_raw_fd(), body.file.as_raw_fd(), &raw mut offset, left) };
        if sent <= 0 {
            return Err(io::Error::last_os_error());
        }
    }
    let mut reader = BufReader::new(stream);
    let mut status = String::new();
    reader.read_line(&mut status)?;
    reader.read_to_end(&mut Vec::new())?;
    Ok(status)
}

fn free_address() -> SocketAddr {
    TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr()).expect("a free port")
}

fn rand() -> [u8; 16] {
    let mut octets = [0; 16];
    File::open("/dev/urandom").and_then(|mut dice| dice.read_exact(&mut octets)).expect("random octets");
    octets
}

/// Fields 14 and 15 of `/proc/pid/stat`, in ticks of a hundredth of a second.
fn cpu_seconds(pid: u32) -> f64 {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).expect("the server runs");
    let after_name = stat.rsplit_once(')').expect("a name in brackets").1;
    let ticks: f64 =
        after_name.split_ascii_whitespace().skip(11).take(2).map(|field| field.parse::<f64>().unwrap_or(0.0)).sum();
    ticks / 100.0
}

fn peak_kib(pid: u32) -> f64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).expect("the server runs");
    let line = status.lines().find(|line| line.starts_with("VmHWM:")).expect("a process has a peak");
    line.split_ascii_whitespace().nth(1).and_then(|field| field.parse().ok()).expect("a number of KiB")
}

fn stop(server: &mut Child) {
    let _ = server.kill();
    let _ = server.wait();
}

/// `target/router/hoop`, beside the folder that this program was built into.
fn router_build() -> PathBuf {
    let this = std::env::current_exe().expect("this program has a path");
    let path = this.ancestors().nth(2).expect("target/PROFILE/PROGRAM").join("router/hoop");
    assert!(path.is_file(), "{} is not built: `make router` does", path.display());
    path
}

/// A memory cgroup (version 1 or 2) that goes with its value.
struct Cgroup(PathBuf);

impl Cgroup {
    fn new(bytes: u64) -> Self {
        let (root, file) = match Path::new("/sys/fs/cgroup/memory").is_dir() {
            true => ("/sys/fs/cgroup/memory", "memory.limit_in_bytes"),
            false => ("/sys/fs/cgroup", "memory.max"),
        };
        let path = Path::new(root).join(format!("hoop-bench-{}", std::process::id()));
        fs::create_dir_all(&path).expect("a cgroup (as root)");
        fs::write(path.join(file), bytes.to_string()).expect("a limit for the cgroup");
        Self(path)
    }

    #[allow(unsafe_code)] // the child must be in the cgroup before its first page is counted
    fn contain(&self, command: &mut Command) {
        let path = self.0.join("cgroup.procs");
        // SAFETY: between fork and exec it only opens and writes one file.
        unsafe { command.pre_exec(move || fs::write(&path, "0")) };
    }
}

impl Drop for Cgroup {
    fn drop(&mut self) {
        // A cgroup can be removed once the kernel has seen its last process off.
        for _ in 0..100 {
            if fs::remove_dir(&self.0).is_ok() {
                return;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}
