//! A program that knows nothing of flows, under `hoop run`: its connection outlives an outage, another address, and UDP that is blocked, which ends the same program's
//! connection without. Real curl, real relay, real web server, simulated links.

use hoop_lab::{Change, Direction};
use hoop_testbed::{Program, Roaming, sha256};
use std::ops::Deref;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

/// How long the device is offline, unless `HOOP_OUTAGE_SECS` says otherwise.
const OUTAGE_SECS: u64 = 4;

/// What is downloaded: some 6 s of the link.
const LEN: usize = 6_000_000;

/// The network changes once so much has come.
const FIRST: u64 = 1_500_000;

/// Generous, since machines are busy.
const PATIENCE: Duration = Duration::from_secs(120);

struct World(Roaming);

impl Deref for World {
    type Target = Roaming;

    fn deref(&self) -> &Roaming {
        &self.0
    }
}

impl World {
    fn build() -> Self {
        Self(Roaming::build(LEN).expect("a lab: run as root, or where user namespaces are allowed"))
    }

    /// Downloads the file by curl as it is.
    fn download(&self, into: &Path) -> Program {
        let mut run = self.run("curl");
        run.args(["--silent", "--show-error", "--fail", "--write-out", "curl is done %{http_code}\n"]);
        run.arg("--output").arg(into).arg(format!("http://{}/file", self.lab.address("web")));
        self.start(run)
    }

    /// Starts a program under `hoop run`, and waits until it is carried.
    fn start(&self, mut run: Command) -> Program {
        run.env("HOOP_LOG", "hoop_relay=debug");
        Program::start("hoop run", run, "a carrier is up").unwrap()
    }

    /// The Wi-Fi goes, for some seconds there is nothing, then there is another network with another address.
    fn roam(&self) {
        let secs = std::env::var("HOOP_OUTAGE_SECS").map_or(OUTAGE_SECS, |secs| secs.parse().expect("a number"));
        self.0.leave_wifi().unwrap();
        std::thread::sleep(Duration::from_secs(secs));
        self.0.reach_cell().unwrap();
    }

    fn ip(&self, host: &str, arguments: &str) {
        self.0.ip(host, arguments).unwrap();
    }

    /// Waits until a file has so many bytes.
    fn grown(&self, file: &Path, to: u64, program: &Program) {
        let end = Instant::now() + PATIENCE;
        while std::fs::metadata(file).map_or(0, |file| file.len()) < to {
            assert!(Instant::now() < end, "no more comes: {}", program.text());
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Blocks UDP, and waits until enough has come over WebSocket.
    fn outlive_udp(&self, file: &Path, program: &Program) {
        self.ip("net", "rule add ipproto udp blackhole");
        let (before, begun) = (std::fs::metadata(file).unwrap().len(), Instant::now());
        // What was under way has come by then.
        self.grown(file, before + 400_000, program);
        println!("400 kB after UDP was blocked had come {:.1} s later", begun.elapsed().as_secs_f64());
        let told = program.text();
        assert!(told.contains("a carrier is silent") && told.contains("WebSocket"), "before QUIC gives up: {told}");
    }

    fn assert_whole(&self, file: &Path, mut program: Program) {
        let done = program.wait_for("curl is done", PATIENCE);
        assert!(done.is_some_and(|(_, line)| line.ends_with("200")), "{}", program.text());
        assert!(program.wait().unwrap().success(), "{}", program.text());
        assert_eq!(sha256(file).unwrap(), sha256(&self.path("www/file")).unwrap(), "as it was sent");
    }
}

#[test]
fn curl_downloads_through_an_outage_and_a_new_address_without_noticing() {
    let world = World::build();
    world.ip("phone", "link set cell down");
    let into = world.path("by-flow");
    let carried = world.download(&into);
    world.grown(&into, FIRST, &carried);
    world.roam();
    assert!(std::fs::metadata(&into).unwrap().len() < LEN as u64, "it was cut in the middle");
    world.assert_whole(&into, carried);
}

#[test]
fn a_run_by_the_agent_goes_on_in_another_network_without_its_own_relay() {
    let world = World::build();
    world.ip("phone", "link set cell down");
    world.enter_wifi().unwrap();
    let _agent = world.start_agent(&[]).unwrap();
    let asks = "import socket, sys
web = socket.create_connection((sys.argv[1], 80))
web.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
assert web.getpeername() == (sys.argv[1], 80), web.getpeername()";
    let asked =
        world.run_by_agent("python3").args(["-c", asks, &world.lab.address("web").to_string()]).output().unwrap();
    assert!(asked.status.success(), "{}", String::from_utf8_lossy(&asked.stderr));
    let into = world.path("by-agent");
    let mut run = world.run_by_agent("sh");
    run.args(["-c", "echo it begins; exec curl \"$@\"", "curl"]);
    run.args(["--silent", "--show-error", "--fail", "--write-out", "curl is done %{http_code}\n"]);
    run.arg("--output").arg(&into).arg(format!("http://{}/file", world.lab.address("web")));
    let run = Program::start("hoop run", run, "it begins").unwrap();
    world.grown(&into, FIRST, &run);
    world.roam();
    world.assert_whole(&into, run);
}

/// No interface says that nothing comes through, nor that it does again.
#[test]
fn a_dead_network_is_probed_often_and_a_download_goes_on_once_it_is_back() {
    let world = World::build();
    world.ip("phone", "link set cell down");
    let into = world.path("by-flow");
    let carried = world.download(&into);
    world.grown(&into, FIRST, &carried);
    world.lab.set_link("wifi", Direction::Both, Change::new().connected(false));
    let lost = || world.lab.counters("wifi").up.dropped_unconnected;
    // The silence is noticed, and something is dialled.
    std::thread::sleep(Duration::from_secs(6));
    let before = lost();
    std::thread::sleep(Duration::from_secs(5));
    let asked = lost() - before;
    println!("{asked} packets in 5 s of the dark");
    assert!((10..=100).contains(&asked), "two a second at least, and few: {asked} in 5 s");
    world.lab.set_link("wifi", Direction::Both, Change::new().connected(true));
    let found = carried.wait_for_matching(PATIENCE, |line| line.contains("the network carries again"));
    assert!(found.is_some(), "{}", carried.text());
    world.assert_whole(&into, carried);
}

/// An SSH server beside the web server: root's home there is `home`.
pub(crate) fn ssh_server(world: &Roaming) -> (Program, PathBuf) {
    let home = world.path("home");
    std::fs::create_dir_all(home.join(".ssh")).unwrap();
    let key = world.path("ssh-key");
    let made = Command::new("ssh-keygen").args(["-q", "-t", "ed25519", "-N", "", "-f"]).arg(&key).status().unwrap();
    assert!(made.success());
    std::fs::copy(key.with_extension("pub"), home.join(".ssh/authorized_keys")).unwrap();
    let host_key = world.path("host-key");
    let made = Command::new("dropbearkey").args(["-t", "ed25519", "-f"]).arg(&host_key).output().unwrap();
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    let mut server = world.lab.command("web", "unshare");
    let serve = "mount --bind \"$0\" /root && exec dropbear -F -E -s -W 1000000 -r \"$1\" -P \"$1.pid\" -p 22";
    server.args(["--mount", "sh", "-c", serve]).arg(home).arg(host_key);
    (Program::start("dropbear", server, "Not backgrounding").unwrap(), key)
}

#[test]
fn wget_and_ssh_go_on_in_another_network_too() {
    let world = World::build();
    world.ip("phone", "link set cell down");
    let web = world.lab.address("web");
    let (_server, key) = ssh_server(&world);
    let (by_wget, by_ssh) = (world.path("by-wget"), world.path("by-ssh"));
    let mut wget = world.run("wget");
    // It leaves ssh its part of the link.
    wget.args(["--no-verbose", "--limit-rate=300k"])
        .arg("--output-document")
        .arg(&by_wget)
        .arg(format!("http://{web}/file"));
    let wget = world.start(wget);
    world.grown(&by_wget, 500_000, &wget);
    let mut ssh = world.run("sh");
    ssh.args(["-c", "ssh -F none -i \"$1\" -o StrictHostKeyChecking=no -o UserKnownHostsFile=/dev/null \"root@$2\" \"head -c 5000000 '$3'\" > \"$4\""]);
    ssh.arg("sh").arg(key).arg(web.to_string()).arg(world.path("www/file")).arg(&by_ssh);
    let ssh = world.start(ssh);
    world.grown(&by_ssh, 200_000, &ssh);
    world.roam();
    let len = |file: &Path| std::fs::metadata(file).unwrap().len();
    let (wget_has, ssh_has) = (len(&by_wget), len(&by_ssh));
    assert!(wget_has < LEN as u64 && ssh_has < 5_000_000, "both were cut in the middle: {wget_has}, {ssh_has}");
    for mut program in [wget, ssh] {
        assert!(program.wait().unwrap().success(), "{}", program.text());
    }
    assert_eq!(sha256(&by_wget).unwrap(), sha256(&world.path("www/file")).unwrap(), "as it was sent");
    assert_eq!(std::fs::read(&by_ssh).unwrap(), std::fs::read(world.path("www/file")).unwrap()[..5_000_000]);
}

#[test]
fn where_udp_is_blocked_in_the_middle_a_download_goes_on_over_websocket() {
    let world = World::build();
    let into = world.path("by-flow");
    let carried = world.download(&into);
    assert!(carried.text().contains("Quic"), "{}", carried.text());
    world.grown(&into, FIRST, &carried);
    world.outlive_udp(&into, &carried);
    world.assert_whole(&into, carried);
}

#[test]
fn where_udp_is_blocked_in_the_middle_an_upload_goes_on_over_websocket() {
    let world = World::build();
    let (_server, key) = ssh_server(&world);
    let into = world.path("by-ssh");
    let ssh = r#"ssh -F none -i "$1" -o StrictHostKeyChecking=no -o UserKnownHostsFile=/dev/null "root@$2" "cat > '$4'" < "$3""#;
    let mut run = world.run("sh");
    run.args(["-c", ssh, "sh"]).arg(key).arg(world.lab.address("web").to_string());
    run.arg(world.path("www/file")).arg(&into);
    let mut carried = world.start(run);
    world.grown(&into, FIRST, &carried);
    world.outlive_udp(&into, &carried);
    assert!(carried.wait().unwrap().success(), "{}", carried.text());
    assert_eq!(sha256(&into).unwrap(), sha256(&world.path("www/file")).unwrap(), "as it was sent");
}

#[test]
fn an_idle_flow_keeps_its_carrier_and_hears_in_a_new_network_without_udp() {
    let world = World::build();
    world.ip("phone", "link set cell down");
    world.ip("net", "rule add ipproto udp blackhole");
    let (_server, key) = ssh_server(&world);
    let ssh = r#"ssh -F none -i "$1" -o StrictHostKeyChecking=no -o UserKnownHostsFile=/dev/null "root@$2" "echo first; until test -e '$3'; do sleep 0.1; done; echo second" > "$4""#;
    let (go, said) = (world.path("go"), world.path("said"));
    let mut run = world.run("sh");
    run.args(["-c", ssh, "sh"]).arg(key).arg(world.lab.address("web").to_string()).arg(&go).arg(&said);
    let mut carried = world.start(run);
    world.grown(&said, 6, &carried);
    // Longer than a carrier lives that says nothing.
    std::thread::sleep(Duration::from_secs(27));
    assert_eq!(carried.text().matches("a carrier is up").count(), 1, "{}", carried.text());
    world.roam();
    // No program says anything: that the old carrier is silent is found out by a ping.
    let mut ups = 0;
    let is_second = |line: &str| {
        ups += usize::from(line.contains("a carrier is up"));
        ups == 2
    };
    assert!(carried.wait_for_matching(PATIENCE, is_second).is_some(), "{}", carried.text());
    assert!(carried.text().contains("a carrier is silent"), "{}", carried.text());
    std::fs::write(go, "").unwrap();
    assert!(carried.wait().unwrap().success(), "{}", carried.text());
    assert_eq!(std::fs::read_to_string(said).unwrap(), "first\nsecond\n");
}

#[test]
fn a_round_trip_of_four_seconds_is_no_silence() {
    let world = World::build();
    world.ip("phone", "link set cell down");
    world.lab.set_link("wifi", Direction::Both, Change::new().delay(Duration::from_secs(2)));
    let part = std::fs::read(world.path("www/file")).unwrap()[..10_000].to_vec();
    std::fs::write(world.path("www/part"), &part).unwrap();
    let (into, from) = (world.path("parts"), format!("http://{}/part", world.lab.address("web")));
    let mut run = world.run("sh");
    // Between the two all is answered.
    let twice = r#"curl --silent --fail "$0" >> "$1" && sleep 6 && curl --silent --fail "$0" >> "$1""#;
    run.args(["-c", twice, &from]).arg(&into);
    let mut carried = world.start(run);
    assert!(carried.wait().unwrap().success(), "{}", carried.text());
    assert!(std::fs::read(into).unwrap() == part.repeat(2));
    assert!(!carried.text().contains("a carrier is silent"), "{}", carried.text());
}

#[test]
fn git_clones_and_a_program_ends_as_it_does_without() {
    let world = World::build();
    let git = |arguments: &[&str]| {
        let mut git = Command::new("git");
        git.args(["-c", "user.name=A", "-c", "user.email=a@b.example", "-C"]).arg(world.path("www")).args(arguments);
        assert!(git.output().unwrap().status.success(), "git {arguments:?}");
    };
    git(&["init", "--quiet", "project"]);
    std::fs::copy(world.path("www/file"), world.path("www/project/file")).unwrap();
    git(&["-C", "project", "add", "file"]);
    git(&["-C", "project", "commit", "--quiet", "-m", "all"]);
    git(&["-C", "project", "update-server-info"]);
    let web = world.lab.address("web");
    let mut clone = world.run("git");
    clone.args(["clone", "--quiet", &format!("http://{web}/project/.git")]).arg(world.path("clone"));
    let cloned = clone.output().unwrap();
    assert!(cloned.status.success(), "{}", String::from_utf8_lossy(&cloned.stderr));
    assert_eq!(sha256(&world.path("clone/file")).unwrap(), sha256(&world.path("www/file")).unwrap());
    let failed = world.run("curl").args(["--silent", "--fail", &format!("http://{web}/nothing")]).status().unwrap();
    assert_eq!(failed.code(), Some(22), "as curl ends for a 404");
    let killed = world.run("sh").args(["-c", "kill -9 $$"]).status().unwrap();
    assert_eq!(killed.code(), Some(137));
    let missing = world.run("no-such-program").output().unwrap();
    assert!(String::from_utf8_lossy(&missing.stderr).contains("cannot run no-such-program"));
}

#[test]
fn a_signal_to_hoop_run_is_the_programs() {
    let world = World::build();
    for (signal, code) in [("TERM", 7), ("INT", 8), ("HUP", 9)] {
        let mut run = world.run("env");
        // Whoever runs the tests may ignore some, as by nohup, and a shell traps nothing that was ignored when it began.
        run.args(["--default-signal=TERM,INT,HUP", "sh"]);
        let traps = r#"sleep 60 & for trap in 7:TERM 8:INT 9:HUP; do trap "kill $!; exit ${trap%:*}" ${trap#*:}; done"#;
        run.args(["-c", &format!("{traps}; echo ready; wait")]);
        let mut carried = Program::start("hoop run", run, "ready").unwrap();
        let sent = Command::new("kill").args(["-s", signal, &carried.pid().to_string()]).status().unwrap();
        assert!(sent.success());
        assert_eq!(carried.wait().unwrap().code(), Some(code), "{signal}: {}", carried.text());
    }
}

#[test]
fn who_tells_a_program_to_end_does_not_wait_for_ever_for_what_it_wrote() {
    let world = World::build();
    world.ip("phone", "link set cell down");
    let go = world.path("go");
    let write = r#"exec 3<>"/dev/tcp/$0/80"; echo made; until test -e "$1"; do sleep 0.1; done; echo lost >&3; echo written; exec sleep 600"#;
    let mut run = world.run("bash");
    run.args(["-c", write, &world.lab.address("web").to_string()]).arg(&go);
    let mut carried = world.start(run);
    assert!(carried.wait_for("made", PATIENCE).is_some(), "{}", carried.text());
    world.leave_wifi().unwrap();
    std::fs::write(go, "").unwrap();
    assert!(carried.wait_for("written", PATIENCE).is_some(), "{}", carried.text());
    assert!(Command::new("kill").arg(carried.pid().to_string()).status().unwrap().success());
    // It ends; or it does not, and is killed.
    assert!(carried.wait_for("(nothing says this)", PATIENCE).is_none());
    carried.kill();
    assert_eq!(carried.wait().unwrap().code(), Some(128 + 15), "{}", carried.text());
}
