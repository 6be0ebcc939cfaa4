//! Programs in C that are compiled against the library, over real sockets on loopback. Each needs a C compiler, as `cc`.
#![allow(missing_docs)]

use hoop_lab::{Host, Lab, Link, LinkConfig, Topology};
use hoop_relay::{Allowed, CacheConfig, Introduction, Relay, RelayConfig, ShareLimits, introduce};
use hoop_units::{Bitrate, Duration};
use std::fs;
use std::io::{BufRead as _, BufReader, Write as _};
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;
use tempfile::TempDir;

/// What the examples send: some windows of a flow.
const LEN: usize = 5_000_000;

fn here(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(path)
}

/// The library as it was built for these tests, beside them, put where C programs look for it: the prefix.
fn library() -> &'static Path {
    static INSTALLED: OnceLock<PathBuf> = OnceLock::new();
    INSTALLED.get_or_init(|| {
        let (prefix, built) =
            (Path::new(env!("CARGO_TARGET_TMPDIR")).join("libd2tp"), std::env::current_exe().unwrap());
        run(Command::new(here("install")).arg(&prefix).env("BUILT", built.parent().unwrap()));
        prefix
    })
}

fn run(command: &mut Command) -> Vec<u8> {
    let output = command.stderr(Stdio::inherit()).output().unwrap();
    assert!(output.status.success(), "{command:?}: {}", output.status);
    output.stdout
}

/// Compiles a program, against the library if it is one of flows.
fn compile(folder: &Path, source: &Path, of_flows: bool) -> PathBuf {
    let program = folder.join(source.file_stem().unwrap());
    let mut cc = Command::new("cc");
    cc.args(["-std=gnu11", "-Wall", "-Wextra", "-Werror", "-O1", "-pthread", "-o"]).arg(&program).arg(source);
    if of_flows {
        let folder = library().join("lib");
        let mut says = Command::new("pkg-config");
        says.args(["--cflags", "--libs", "d2tp"]).env("PKG_CONFIG_PATH", folder.join("pkgconfig"));
        let says = String::from_utf8(run(&mut says)).unwrap();
        // Cargo's LD_LIBRARY_PATH names other folders first: the old kind of path goes before that.
        cc.args(says.split_whitespace()).arg(format!("-Wl,--disable-new-dtags,-rpath,{}", folder.display()));
    }
    run(&mut cc);
    program
}

/// An example, ported by sed.
fn port(folder: &Path, example: &str) -> PathBuf {
    let sed = Command::new("sed").arg("-f").arg(here("examples/port.sed")).arg(here(example)).output().unwrap();
    assert!(sed.status.success());
    let ported = folder.join(format!("ported-{}", Path::new(example).file_name().unwrap().to_str().unwrap()));
    fs::write(&ported, sed.stdout).unwrap();
    compile(folder, &ported, true)
}

/// A server's files, and what a device is told of it.
struct Place {
    folder: TempDir,
    certificate: String,
}

impl Place {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let signed = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).unwrap();
        fs::write(folder.path().join("cert.pem"), signed.cert.pem()).unwrap();
        fs::write(folder.path().join("key.pem"), signed.signing_key.serialize_pem()).unwrap();
        let server = "certificate = \"cert.pem\"\nkey = \"key.pem\"\ndevices = \"devices.toml\"\n";
        fs::write(folder.path().join("server.toml"), server).unwrap();
        let place = Self { folder, certificate: signed.cert.pem() };
        // So that there is a file of devices.
        place.introduce(1);
        place
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// A device of its own, whose server is at this port of this machine.
    fn introduce(&self, port: u16) -> PathBuf {
        self.introduce_at(port, [127, 0, 0, 1].into())
    }

    fn introduce_at(&self, port: u16, address: IpAddr) -> PathBuf {
        static DEVICES: AtomicUsize = AtomicUsize::new(0);
        let server = format!("localhost:{port}");
        let told = introduce(&self.path("devices.toml"), &server, Some(self.certificate.clone())).unwrap();
        let told = Introduction { addresses: vec![address], ..told };
        let file = self.path(&format!("device-{}.toml", DEVICES.fetch_add(1, Ordering::Relaxed)));
        fs::write(&file, toml::to_string(&told).unwrap()).unwrap();
        file
    }
}

/// A program that runs until this is dropped, and the port that it said.
struct Running {
    child: Child,
    port: u16,
}

impl Running {
    fn start(command: &mut Command) -> Self {
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        Self { child, port: line.trim().parse().expect("a port") }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn digest(bytes: &[u8]) -> String {
    hex(ring::digest::digest(&ring::digest::SHA256, bytes).as_ref())
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// A file to be fetched.
fn file(place: &Place) -> (PathBuf, String) {
    let bytes: Vec<u8> = (0..LEN as u64).map(|at| (at.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 32) as u8).collect();
    let path = place.path("file");
    fs::write(&path, &bytes).unwrap();
    (path, digest(&bytes))
}

#[test]
fn a_server_and_a_downloader_of_bsd_sockets_are_ported_by_sed() {
    let place = Place::new();
    let (path, wanted) = file(&place);
    let (serve, download) =
        (port(place.folder.path(), "examples/serve.c"), port(place.folder.path(), "examples/download.c"));
    let server = Running::start(Command::new(serve).arg("0").arg(path).env("D2TP_SERVER", place.path("server.toml")));
    let device = place.introduce(server.port);
    for _ in 0..3 {
        let mut download = Command::new(&download);
        download.arg("127.0.0.1").arg(server.port.to_string()).arg("/").env("D2TP_DEVICE", &device);
        let got = run(&mut download);
        assert_eq!((got.len(), digest(&got)), (LEN, wanted.clone()));
    }
}

#[test]
fn a_ported_downloader_reaches_a_server_without_flows_through_a_relay() {
    let place = Place::new();
    let (path, wanted) = file(&place);
    let serve = compile(place.folder.path(), &here("examples/serve.c"), false);
    let download = port(place.folder.path(), "examples/download.c");
    let server = Running::start(Command::new(serve).arg("0").arg(path));
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let relay = runtime.block_on(async {
        let allowed = Allowed { addresses: [IpAddr::from([127, 0, 0, 1]).into()].into(), ..Allowed::default() };
        let (certificate, key, devices) = (place.path("cert.pem"), place.path("key.pem"), place.path("devices.toml"));
        let (listen, shares) = ("127.0.0.1:0".parse().unwrap(), ShareLimits::default());
        let cache = CacheConfig::default();
        let config = RelayConfig {
            listen,
            plain_listen: None,
            certificate,
            key,
            devices,
            allowed,
            shares,
            ca: Vec::new(),
            store: None,
            cache,
            admin: None,
            access_log: false,
        };
        let relay = Relay::bind(&config).await.unwrap();
        let port = relay.address().port();
        tokio::spawn(relay.run());
        port
    });
    let mut download = Command::new(&download);
    download.arg("127.0.0.1").arg(server.port.to_string()).arg("/");
    download.env("D2TP_DEVICE", place.introduce(relay)).env("D2TP_RELAY", "1");
    let got = run(&mut download);
    assert_eq!((got.len(), digest(&got)), (LEN, wanted));
}

#[test]
fn what_the_header_promises_holds_seen_from_c() {
    let place = Place::new();
    let checks = compile(place.folder.path(), &here("tests/checks.c"), true);
    let device = place.path("device.toml");
    let mut running = Running::start(Command::new(checks).arg(place.path("server.toml")).arg(&device));
    fs::copy(place.introduce(running.port), &device).unwrap();
    running.child.stdin.take().unwrap().write_all(b"\n").unwrap();
    let status = running.child.wait().unwrap();
    assert!(status.success(), "{status}");
}

#[test]
fn a_server_that_is_away_is_a_timeout_and_no_refusal() {
    let place = Place::new();
    let checks = compile(place.folder.path(), &here("tests/checks.c"), true);
    // Bound and never answered: nobody else gets the port meanwhile.
    let silent = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    let device = place.introduce(silent.local_addr().unwrap().port());
    run(Command::new(checks).arg("away").arg(device));
}

/// Names that a text declares or defines as functions, `d2tp_` and on.
fn functions(text: &str, after: &str) -> Vec<String> {
    let mut names: Vec<_> = text
        .lines()
        .filter(|line| line.contains(after) && !line.trim_start().starts_with(['#', '*', '/']))
        .filter_map(|line| {
            let at = line.find("d2tp_")?;
            let name = line[at..].split('(').next().filter(|_| line[at..].contains('('))?;
            Some(name.to_owned())
        })
        .collect();
    names.sort();
    names.dedup();
    names
}

#[test]
fn the_header_declares_what_the_library_defines_and_c_uses_all_of_it() {
    let header = fs::read_to_string(here("include/d2tp.h")).unwrap();
    let source = fs::read_to_string(here("src/ffi.rs")).unwrap();
    let (declared, defined) = (functions(&header, "d2tp_"), functions(&source, "extern \"C\" fn d2tp_"));
    assert!(defined.len() > 25, "{defined:?}");
    assert_eq!(declared, defined);
    let sed = fs::read_to_string(here("examples/port.sed")).unwrap();
    let uses = ["tests/checks.c", "examples/serve.c"].map(|path| fs::read_to_string(here(path)).unwrap()).concat();
    for name in defined {
        let bare = &name["d2tp_".len()..];
        let is_ported = sed.contains(&format!("\\|{bare}\\|")) && uses.contains(&format!("{bare}("));
        assert!(is_ported || uses.contains(&format!("{name}(")), "{name} is used nowhere");
    }
    let mut line = Command::new("sed");
    line.arg("-f").arg(here("examples/port.sed")).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut line = line.spawn().unwrap();
    line.stdin
        .take()
        .unwrap()
        .write_all(b"# include <sys/socket.h> /* all */\naccept4 (readv(reads(recvfrom(1))))\n")
        .unwrap();
    let ported = String::from_utf8(line.wait_with_output().unwrap().stdout).unwrap();
    assert_eq!(ported, "# include <d2tp.h> /* all */\nd2tp_accept4 (d2tp_readv(reads(recvfrom(1))))\n");
    let aliases = fs::read_to_string(here("include/dtp.h")).unwrap();
    for line in aliases.lines().filter(|line| line.starts_with("#define dtp_")) {
        let to = line.rsplit(' ').next().unwrap();
        assert!(line.contains("dtp_socket()") || declared.iter().any(|name| name == to), "{line}");
    }
}

/// How long the device is offline, unless `HOOP_OUTAGE_SECS` says otherwise.
const OUTAGE_SECS: u64 = 4;

/// A device that has two networks, and a ported server beyond them.
struct Roaming {
    lab: Lab,
    place: Place,
    server: Running,
    /// What the server gives.
    wanted: String,
    device: PathBuf,
}

impl Roaming {
    /// Both networks have this rate.
    fn new(mbps: u64) -> Self {
        let link = |ms: u64| LinkConfig::new().rate(Bitrate::mbps(mbps)).delay(Duration::from_millis(ms));
        let topology = Topology::new()
            .host(Host::new("phone"))
            .host(Host::new("net").forwarding())
            .host(Host::new("server"))
            .link(Link::new("wifi", "phone", "net").both(link(10)))
            .link(Link::new("cell", "phone", "net").both(link(25)))
            .link(Link::new("core", "net", "server"));
        let lab = Lab::build(&topology).expect("a lab: run as root, or where user namespaces are allowed");
        let place = Place::new();
        let (path, wanted) = file(&place);
        let listen =
            "certificate = \"cert.pem\"\nkey = \"key.pem\"\ndevices = \"devices.toml\"\nlisten = \"0.0.0.0:4668\"\n";
        fs::write(place.path("server.toml"), listen).unwrap();
        let serve = port(place.folder.path(), "examples/serve.c");
        let mut serve = lab.command("server", serve);
        let server = Running::start(serve.arg("0").arg(path).env("D2TP_SERVER", place.path("server.toml")));
        let device = place.introduce_at(4668, lab.address("server").into());
        Self { lab, place, server, wanted, device }
    }

    fn ip(&self, arguments: &str) -> Vec<u8> {
        run(self.lab.command("phone", "ip").args(arguments.split(' ')))
    }

    /// Has what goes to the server leave by the other network, too.
    fn route_by_cell(&self, how: &str) {
        let (server, net) = (self.lab.address("server"), self.lab.address_on("net", "cell"));
        self.ip(&format!("route {how} {server} via {net} dev cell metric 200"));
    }

    /// How many bytes came over a network.
    fn came_over(&self, network: &str) -> usize {
        let told = String::from_utf8(self.ip(&format!("-stats link show dev {network}"))).unwrap();
        let mut words = told.lines().skip_while(|line| !line.trim().starts_with("RX:")).skip(1);
        words.next().and_then(|line| line.split_whitespace().next()?.parse().ok()).expect("a count")
    }

    /// Downloads over the way that an option names, where the kernel says that these interfaces are Wi-Fi.
    fn by_way(&self, checks: &Path, option: &str, wifi: &[&str]) -> String {
        let mut way = self.lab.command("phone", "unshare");
        let says = "mount -t tmpfs none /sys/class/net; for name in $1; do mkdir -p /sys/class/net/$name/wireless; \
                    echo up > /sys/class/net/$name/operstate; done; shift; exec \"$@\"";
        way.args(["--mount", "sh", "-ec", says, "sh", &wifi.join(" ")]).arg(checks).args(["way", option]);
        way.arg(&self.device).arg(self.lab.address("server").to_string()).arg(self.server.port.to_string());
        String::from_utf8(run(&mut way)).unwrap().trim().to_owned()
    }
}

#[test]
fn a_socket_uses_the_interface_that_its_options_name_and_no_other() {
    let world = Roaming::new(80);
    let checks = compile(world.place.folder.path(), &here("tests/checks.c"), true);
    world.route_by_cell("add");
    let came = || (world.came_over("wifi"), world.came_over("cell"));
    let whole = |text: &str| text.parse::<usize>().is_ok_and(|len| len > LEN);
    for (option, wifi, is_cell) in
        [("cell", &[][..], true), ("wifi", &[], false), ("wifi-only", &["cell"], true), ("wifi-only", &["wifi"], false)]
    {
        let before = came();
        let told = world.by_way(&checks, option, wifi);
        assert!(whole(&told), "{option}: {told}");
        let (by_wifi, by_cell) = (came().0 - before.0, came().1 - before.1);
        let (by_it, by_other) = if is_cell { (by_cell, by_wifi) } else { (by_wifi, by_cell) };
        assert!(by_it > LEN && by_other < LEN / 100, "{option} {wifi:?}: {by_wifi} by Wi-Fi, {by_cell} by the other");
    }
    assert_eq!(world.by_way(&checks, "wifi-only", &[]), "ENETUNREACH", "there is no Wi-Fi");
}

#[test]
fn a_ported_downloader_goes_on_after_an_outage_and_with_another_address() {
    let world = Roaming::new(8);
    let download = port(world.place.folder.path(), "examples/download.c");
    let address = world.lab.address("server");
    let ip = |arguments: &str| drop(world.ip(arguments));
    ip("link set cell down");
    let into = world.place.path("downloaded");
    let mut download = world.lab.command("phone", download);
    download.arg(address.to_string()).arg(world.server.port.to_string()).arg("/").env("D2TP_DEVICE", &world.device);
    let mut download = download.stdout(fs::File::create(&into).unwrap()).spawn().unwrap();
    let len = || fs::metadata(&into).unwrap().len();
    let end = Instant::now() + Duration::from_secs(120);
    while len() < LEN as u64 / 4 {
        assert!(Instant::now() < end && download.try_wait().unwrap().is_none(), "{} bytes came", len());
        std::thread::sleep(Duration::from_millis(20));
    }
    ip("link set wifi down");
    let secs = std::env::var("HOOP_OUTAGE_SECS").map_or(OUTAGE_SECS, |secs| secs.parse().expect("a number"));
    std::thread::sleep(Duration::from_secs(secs));
    assert!(len() < LEN as u64, "it was cut in the middle");
    ip("link set cell up");
    world.route_by_cell("replace");
    assert!(download.wait().unwrap().success());
    assert_eq!(digest(&fs::read(&into).unwrap()), world.wanted);
}
