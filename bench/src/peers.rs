//! Servers that take posts to disk, and what they cost: the gateway as routers get it, nginx, and a plain C copy.

use std::fs::{self, File};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// What serves, and how durable its answer is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Peer {
    /// `hoop gateway`: a 2xx means synced.
    Gateway,
    /// The same with `--no-sync`.
    GatewayUnsynced,
    /// nginx, `dav_methods PUT`.
    Nginx,
    /// The same; the sender then syncs file and folder, as part of the post.
    NginxThenSynced,
    /// `bench/peer/splice.c`: socket to file.
    Splice,
    /// The same, with file and folder synced before the answer.
    SpliceSynced,
}

/// Which `hoop gateway`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Build {
    /// The ordinary one, beside this program.
    Ordinary,
    /// What routers get: the gateway alone, small, static with musl (`make router`). Its allocator holds less and is slower.
    Router,
}

impl Peer {
    /// What the tables call it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Gateway => "gateway (2xx means synced)",
            Self::GatewayUnsynced => "gateway, unsynced",
            Self::Nginx => "nginx dav PUT (unsynced)",
            Self::NginxThenSynced => "nginx, then synced",
            Self::Splice => "C splice (unsynced)",
            Self::SpliceSynced => "C splice, synced",
        }
    }

    /// Whether it is ours.
    pub const fn is_gateway(self) -> bool {
        matches!(self, Self::Gateway | Self::GatewayUnsynced)
    }

    /// A server of this kind with its data below `folder`, within a memory limit if there is one.
    ///
    /// # Panics
    /// If it does not start.
    pub fn start(self, folder: &Path, build: Build, cgroup: Option<&Cgroup>) -> Running {
        let folder = folder.canonicalize().expect("the folder is there");
        let address = free_address();
        let mut command = match self {
            Self::Gateway | Self::GatewayUnsynced => gateway(&folder, build, address),
            Self::Nginx | Self::NginxThenSynced => nginx(&folder, address),
            Self::Splice | Self::SpliceSynced => splice(&folder, address),
        };
        match self {
            Self::GatewayUnsynced => command.arg("--no-sync"),
            Self::SpliceSynced => command.arg("sync"),
            Self::Gateway | Self::Nginx | Self::NginxThenSynced | Self::Splice => &mut command,
        };
        if let Some(cgroup) = cgroup {
            cgroup.contain(&mut command);
        }
        Running::start(command, &folder.join("log"), address)
    }
}

/// A process that listens; killed when dropped.
#[derive(Debug)]
pub struct Running {
    child: Child,
    /// Where.
    pub address: SocketAddr,
}

impl Running {
    /// Starts `command` and waits until `address` takes connections.
    ///
    /// # Panics
    /// If it does not within 10 s.
    pub fn start(mut command: Command, log: &Path, address: SocketAddr) -> Self {
        let output = File::create(log).expect("a log file");
        let errors = output.try_clone().expect("a log file");
        let child = command.stdin(Stdio::null()).stdout(output).stderr(errors).spawn().expect("the server starts");
        let running = Self { child, address };
        for _ in 0..1_000 {
            if TcpStream::connect(address).is_ok() {
                return running;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        panic!("{command:?} does not listen: {}", fs::read_to_string(log).unwrap_or_default());
    }

    /// Processor time so far, user and system.
    ///
    /// # Panics
    /// If it does not run.
    pub fn cpu_seconds(&self) -> f64 {
        cpu_seconds(self.child.id())
    }

    /// Peak resident memory, `VmHWM`, program pages included.
    ///
    /// # Panics
    /// If it does not run.
    pub fn peak_kib(&self) -> f64 {
        self.status_kib("VmHWM:")
    }

    /// Resident memory now, `VmRSS`, program pages included.
    ///
    /// # Panics
    /// If it does not run.
    pub fn resident_kib(&self) -> f64 {
        self.status_kib("VmRSS:")
    }

    /// Descriptors that are open.
    ///
    /// # Panics
    /// If it does not run.
    pub fn descriptors(&self) -> usize {
        fs::read_dir(format!("/proc/{}/fd", self.child.id())).expect("the server runs").count()
    }

    fn status_kib(&self, name: &str) -> f64 {
        let status = fs::read_to_string(format!("/proc/{}/status", self.child.id())).expect("the server runs");
        let line = status.lines().find(|line| line.starts_with(name)).expect("a process has memory");
        line.split_ascii_whitespace().nth(1).and_then(|field| field.parse().ok()).expect("a number of KiB")
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn gateway(folder: &Path, build: Build, address: SocketAddr) -> Command {
    let mut command = Command::new(match build {
        Build::Ordinary => ordinary_build(),
        Build::Router => router_build(),
    });
    command.args(["gateway", "--no-mdns", "--allow-dest", "127.0.0.1", "--max-upload", "64GiB", "--listen"]);
    command.arg(address.to_string()).arg("--spool").arg(folder.join("spool"));
    command
}

fn nginx(folder: &Path, address: SocketAddr) -> Command {
    fs::create_dir(folder.join("data")).expect("a folder for nginx");
    let at = folder.display();
    let configuration = format!(
        "daemon off; master_process off; worker_processes 1; user root; pid {at}/pid; error_log {at}/log;
         events {{ worker_connections 256; }}
         http {{ access_log off; client_body_temp_path {at}/temp; client_max_body_size 0; keepalive_requests 1000000;
                 proxy_temp_path {at}/p; fastcgi_temp_path {at}/f; uwsgi_temp_path {at}/u; scgi_temp_path {at}/s;
                 server {{ listen {address}; root {at}/data; location / {{ dav_methods PUT; }} }} }}"
    );
    fs::write(folder.join("conf"), configuration).expect("room for a configuration");
    let mut command = Command::new("nginx");
    command.arg("-c").arg(folder.join("conf"));
    command
}

fn splice(folder: &Path, address: SocketAddr) -> Command {
    let program = folder.join("splice");
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("peer/splice.c");
    let built = Command::new("cc").args(["-O2", "-pthread", "-o"]).arg(&program).arg(source).status();
    assert!(built.is_ok_and(|status| status.success()), "cc builds bench/peer/splice.c");
    fs::create_dir(folder.join("data")).expect("a folder for its files");
    let mut command = Command::new(program);
    command.arg(address.port().to_string()).arg(folder.join("data"));
    command
}

/// A process's time so far, user and system: fields 14 and 15 of `/proc/pid/stat`, in ticks of a hundredth of a second.
///
/// # Panics
/// If it does not run.
pub fn cpu_seconds(pid: u32) -> f64 {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).expect("the server runs");
    let after_name = stat.rsplit_once(')').expect("a name in brackets").1;
    let fields = after_name.split_ascii_whitespace().skip(11).take(2);
    fields.map(|field| field.parse::<f64>().unwrap_or(0.0)).sum::<f64>() / 100.0
}

/// An address on loopback that nobody listens on.
///
/// # Panics
/// If there is none.
pub fn free_address() -> SocketAddr {
    TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr()).expect("a free port")
}

/// `hoop` beside this program.
///
/// # Panics
/// If it is not built.
pub fn ordinary_build() -> PathBuf {
    let path = std::env::current_exe().expect("this program has a path").with_file_name("hoop");
    assert!(path.is_file(), "{} is not built: `bench/run` does", path.display());
    path
}

/// `target/router/hoop` (`make router`), beside the folder that this program was built into.
///
/// # Panics
/// If it is not built.
pub fn router_build() -> PathBuf {
    let this = std::env::current_exe().expect("this program has a path");
    let path = this.ancestors().nth(2).expect("target/PROFILE/PROGRAM").join("router/hoop");
    assert!(path.is_file(), "{} is not built: `make router` does", path.display());
    path
}

/// A memory cgroup (version 1 or 2) that goes with its value.
#[derive(Debug)]
pub struct Cgroup(PathBuf);

impl Cgroup {
    /// One with this limit.
    ///
    /// # Panics
    /// If this is not root.
    pub fn new(bytes: u64) -> Self {
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
