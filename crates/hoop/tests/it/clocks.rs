//! Clocks that jump under real processes (`docs/time.md`): a gateway and a service, each on a machine whose clocks the test sets (`tests/clocks/shim.c`),
//! by minutes to decades, either way. Some processes go on meanwhile, some are killed, some machines are started anew.
//!
//! `HOOP_JUMPS` is how many jumps there are, 20 if it is not set.

use crate::common::{App, PATIENCE, Server, curl, eventually, free_port, hoop, noise, post, run};
use crate::flows;
use serde_json::Value;
use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant, SystemTime};

const HOUR: i64 = 3_600;
const DAY: i64 = 24 * HOUR;
const YEAR: i64 = 365 * DAY;

/// What NTP has to say for the time to be set by it, and a little more.
const SETTLE: i64 = 16 * 60;
/// Running processes look at their clocks so often, and a little more.
const LOOK: Duration = Duration::from_secs(12);

/// How far a clock jumps: in turn, so that each meets each [`How`] at each end.
const JUMPS: [i64; 11] =
    [180, -180, 2 * HOUR, -2 * HOUR, 40 * DAY, -40 * DAY, 3 * YEAR, -3 * YEAR, 20 * YEAR, -20 * YEAR, TO_1970];
const TO_1970: i64 = i64::MIN;

/// What happens to the process whose machine's clock jumps.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum How {
    /// It goes on.
    InPlace,
    /// It is stopped before, and started after.
    Restart,
    /// It is killed.
    Kill,
    /// The machine is switched off, and starts with its clock so.
    Reboot,
    /// NTP says the same until it is believed.
    Believed,
}

/// A machine with a server on it, and clocks of its own.
struct Machine {
    name: &'static str,
    port: u16,
    path: PathBuf,
    clocks: File,
    shim: PathBuf,
    /// Seconds that it has slept.
    slept: i64,
    off: i64,
    server: Option<Server>,
    boots: u32,
}

impl Machine {
    fn new(folder: &Path, name: &'static str, shim: &Path) -> Self {
        let path = folder.join(format!("{name}.clocks"));
        let clocks = File::options().read(true).write(true).create_new(true).open(&path).unwrap();
        let shim = shim.to_owned();
        let machine = Self { name, port: free_port(), path, clocks, shim, slept: 0, off: 0, server: None, boots: 0 };
        machine.set(false);
        machine
    }

    /// Its clocks say this from now on.
    fn set(&self, ntp: bool) {
        let words = [self.slept, self.off, i64::from(ntp)].map(i64::to_ne_bytes);
        self.clocks.write_all_at(words.as_flattened(), 0).unwrap();
    }

    fn environment(&self) -> [(&'static str, &Path); 2] {
        [("LD_PRELOAD", &self.shim), ("CLOCKS", &self.path)]
    }

    fn url(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }

    fn starts(&mut self, folder: &Path, app: &App) {
        let (listen, origin) = (format!("127.0.0.1:{}", self.port), self.url());
        let upstream = app.origin();
        let arguments: &[&str] = match self.name {
            "gateway" => &["--spool", "spool", "--no-mdns", "--allow-dest", "127.0.0.1"],
            _ => &["--keys", "kws", "--state-dir", "service", "--upstream", &upstream, "--origin", &origin],
        };
        let arguments = [&[self.name, "--listen", &listen], arguments].concat();
        self.server = Some(Server::start_with(folder, self.name, &arguments, &self.environment()));
    }

    fn stops(&mut self) {
        assert_eq!(self.server.take().expect("it runs").stop(), 0, "the {}", self.name);
    }

    /// As by `kill -9`.
    fn is_killed(&mut self) {
        drop(self.server.take());
    }

    /// What it has written down of the time.
    fn kept(&self, folder: &Path) -> (PathBuf, Value) {
        let path = folder.join(if self.name == "gateway" { "spool/clock" } else { "service/clock" });
        let kept = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
        (path, kept)
    }

    /// Another boot: the monotonic clock says nothing of the one before.
    fn boots(&mut self, folder: &Path) {
        self.boots += 1;
        let (path, mut kept) = self.kept(folder);
        kept["boot"] = format!("boot {}", self.boots).into();
        std::fs::write(path, kept.to_string()).unwrap();
    }

    /// NTP says so for a quarter of an hour, in which the machine sleeps.
    fn is_believed(&mut self, folder: &Path) {
        self.set(true);
        let begun = Instant::now();
        loop {
            self.slept += SETTLE;
            self.set(true);
            let slept = Instant::now();
            while slept.elapsed() < LOOK {
                let micros = self.kept(folder).1["steady_us"].as_u64().unwrap();
                let wall = i64::try_from(since_1970()).unwrap() + self.slept + self.off;
                if i64::try_from(micros / 1_000_000).unwrap().abs_diff(wall.max(0)) < 300 {
                    return;
                }
                std::thread::sleep(Duration::from_millis(50));
            }
            assert!(begun.elapsed() < PATIENCE, "the {} does not believe that it is {} s off", self.name, self.off);
        }
    }
}

fn since_1970() -> u64 {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap().as_secs()
}

/// An upload that somebody was told is stored, or received.
struct Sent {
    id: String,
    body: Vec<u8>,
    /// What goes over the wire; none: `hoop push` knows.
    z: Option<Vec<u8>>,
}

struct World {
    folder: tempfile::TempDir,
    app: App,
    gateway: Machine,
    service: Machine,
    /// Of the device.
    device: Machine,
    sent: Vec<Sent>,
    made: u64,
}

/// What stands in for the kernel's clocks.
fn shim(folder: &Path) -> PathBuf {
    let shim = folder.join("shim.so");
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/clocks/shim.c");
    let built = Command::new("cc").args(["-shared", "-fPIC", "-O1", "-o"]).arg(&shim).arg(source).status();
    assert!(built.unwrap().success());
    shim
}

impl World {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let shim = shim(folder.path());
        run(folder.path(), &["keygen", "-o", "kws"]).exits(0);
        let [gateway, service, device] =
            ["gateway", "service", "device"].map(|name| Machine::new(folder.path(), name, &shim));
        let mut world = Self { folder, app: App::start(), gateway, service, device, sent: Vec::new(), made: 0 };
        for at_gateway in [true, false] {
            world.starts(at_gateway);
        }
        world
    }

    fn path(&self) -> &Path {
        self.folder.path()
    }

    fn machine(&mut self, at_gateway: bool) -> &mut Machine {
        if at_gateway { &mut self.gateway } else { &mut self.service }
    }

    fn starts(&mut self, at_gateway: bool) {
        let folder = self.folder.path().to_owned();
        let machine = if at_gateway { &mut self.gateway } else { &mut self.service };
        machine.starts(&folder, &self.app);
    }

    /// A file of its own for each upload.
    fn file(&mut self) -> Vec<u8> {
        self.made += 1;
        let body = noise(if self.made.is_multiple_of(7) { 300_000 } else { 3_000 }, self.made);
        std::fs::write(self.path().join("file"), &body).unwrap();
        body
    }

    /// An upload that is sealed now, to be sent later: its body, and what goes over the wire.
    fn sealed(&mut self) -> (Vec<u8>, Vec<u8>) {
        let body = self.file();
        let url = format!("{}/f", self.service.url());
        run(self.path(), &["seal", "-o", "z", "-T", "file", &url]).exits(0);
        (body, std::fs::read(self.path().join("z")).unwrap())
    }

    /// Brings what was sealed to the gateway; it says that it is stored.
    fn stored(&mut self, (body, z): (Vec<u8>, Vec<u8>)) {
        let answer = self.brought_to_gateway(&z);
        let id = answer["id"].as_str().unwrap().to_owned();
        self.sent.push(Sent { id, body, z: Some(z) });
    }

    fn brought_to_gateway(&self, z: &[u8]) -> Value {
        let url = format!("{}/offload?dest={}/hoop/post", self.gateway.url(), self.service.url());
        accepted(&post(&url, z), &["201"])
    }

    fn brought_to_service(&self, z: &[u8]) -> Value {
        accepted(&post(&format!("{}/hoop/post", self.service.url()), z), &["200", "202"])
    }

    /// A device whose clock is so far off pushes a file, and waits until the service has it.
    fn pushed(&mut self, off: i64) {
        let body = self.file();
        self.device.off = off;
        self.device.set(false);
        let (gateway, url) = (self.gateway.url(), format!("{}/f", self.service.url()));
        let arguments = ["push", "--json", "--wait", "received", "--gateway", &gateway, "-T", "file", &url];
        let mut push = hoop(self.path(), &arguments);
        let ran = crate::common::Ran::from(push.envs(self.device.environment()).output().unwrap()).exits(0);
        let id = ran.json()["id"].as_str().unwrap().to_owned();
        self.sent.push(Sent { id, body, z: None });
    }

    /// One clock jumps.
    fn jump(&mut self, number: usize) {
        let at_gateway = number.is_multiple_of(2);
        let off = JUMPS[number % JUMPS.len()];
        let off = if off == TO_1970 { -i64::try_from(since_1970()).unwrap() } else { off };
        let how = match number % 20 {
            // Tickets of a service that believes it to be decades ago have ended wherever else they come, and all that are new have at a gateway
            // that believes it to be decades later.
            16 | 17 if off.abs() > 6 * HOUR && at_gateway == (off < 0) => How::Believed,
            _ => [How::InPlace, How::Kill, How::Reboot, How::Restart][number / 2 % 4],
        };
        let (is_away, is_undone) = (number % 3 == 1, number % 4 != 3);
        let name = self.machine(at_gateway).name;
        println!("jump {number}: {off} s at the {name}, {how:?}, service away: {is_away}, undone: {is_undone}");

        let [before, during, after] = [(); 3].map(|()| self.sealed());
        if is_away {
            self.service.stops();
        }
        self.stored(before);
        self.shift(at_gateway, off, how, is_away && !at_gateway);
        self.stored(during);
        if is_away {
            self.starts(false);
        }
        // What was stored is brought again, by whoever has kept it.
        self.comes_again(number);
        self.pushed([0, -off.clamp(-40 * DAY, 40 * DAY), off.clamp(-40 * DAY, 40 * DAY)][number % 3]);
        if is_undone {
            let how = if how == How::Reboot { how } else { How::InPlace };
            self.shift(at_gateway, 0, how, false);
        }
        self.brought_to_service(&after.1);
        self.stored(after);
        self.comes_again(number * 5 + 3);
    }

    /// A clock is so far off from now on; if `is_away` its server does not run, and is not started.
    fn shift(&mut self, at_gateway: bool, off: i64, how: How, is_away: bool) {
        let folder = self.path().to_owned();
        let machine = self.machine(at_gateway);
        if !is_away {
            match how {
                How::InPlace | How::Believed => {}
                How::Restart | How::Reboot => machine.stops(),
                How::Kill => machine.is_killed(),
            }
        }
        machine.off = off;
        machine.set(false);
        if how == How::Reboot {
            machine.boots(&folder);
        }
        match how {
            _ if is_away => {}
            How::InPlace => {}
            How::Believed => machine.is_believed(&folder),
            How::Restart | How::Kill | How::Reboot => self.starts(at_gateway),
        }
    }

    /// Some upload of earlier comes again, to either end.
    fn comes_again(&self, number: usize) {
        let kept: Vec<&Vec<u8>> = self.sent.iter().filter_map(|sent| sent.z.as_ref()).collect();
        let z = kept[number * 7 % kept.len()];
        self.brought_to_gateway(z);
        self.brought_to_service(z);
    }

    /// What became of all uploads at the gateway, by their ids.
    fn at_gateway(&self) -> Vec<(String, String)> {
        let listed = run(self.path(), &["spool", "--spool", "spool", "list", "--json"]).exits(0).out;
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let rows = listed.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
        rows.map(|row| (text(&row["id"]), text(&row["state"]))).collect()
    }

    /// All that was acknowledged has arrived once.
    fn ends(&mut self) {
        for at_gateway in [true, false] {
            self.shift(at_gateway, 0, How::Restart, false);
            self.machine(at_gateway).set(true);
        }
        let waits = || self.at_gateway().into_iter().find(|(_, state)| state != "accepted");
        let begun = Instant::now();
        while let Some((id, state)) = waits() {
            assert!(["stored", "delivering", "received"].contains(&state.as_str()), "{id} is {state} at the gateway");
            assert!(begun.elapsed() < 2 * PATIENCE, "{id} is still {state} at the gateway");
            std::thread::sleep(Duration::from_millis(100));
        }
        for sent in &self.sent {
            let Some(z) = &sent.z else { continue };
            assert_eq!(self.brought_to_gateway(z)["state"], "accepted", "{}", sent.id);
            let is_final = || (self.brought_to_service(z)["state"] == "accepted").then_some(());
            eventually("the application's word", is_final);
        }
        let arrived = self.app.uploads();
        for sent in &self.sent {
            let times = arrived.iter().filter(|seen| seen.body == sent.body).count();
            assert_eq!(times, 1, "{} arrived {times} times", sent.id);
        }
        assert_eq!(arrived.len(), self.sent.len());
    }
}

/// The document of an answer that has one of these statuses.
fn accepted(answer: &str, statuses: &[&str]) -> Value {
    let status = answer.split(' ').nth(1).unwrap_or_default();
    assert!(statuses.contains(&status), "{answer}");
    let (_, body) = answer.split_once("\r\n\r\n").unwrap();
    serde_json::from_str(body).unwrap_or_else(|error| panic!("{error}: {answer}"))
}

#[test]
fn processes_whose_clocks_jump_lose_nothing_and_hand_nothing_over_twice() {
    let jumps = std::env::var("HOOP_JUMPS").map_or(20, |jumps| jumps.parse().expect("HOOP_JUMPS is a number"));
    let mut world = World::new();
    (0..jumps).for_each(|number| world.jump(number));
    world.ends();
    println!("{jumps} jumps, {} uploads", world.sent.len());
}

/// By the wall clock alone, an answer is fresh for longer by as much as that is set back.
#[test]
fn a_relays_cached_answers_age_whatever_its_wall_clock_says() {
    let folder = tempfile::tempdir().unwrap();
    flows::sign(folder.path());
    std::fs::write(folder.path().join("devices.toml"), "").unwrap();
    let mut relay = Machine::new(folder.path(), "relay", &shim(folder.path()));
    let listen = format!("127.0.0.1:{}", relay.port);
    let starts = |relay: &mut Machine| {
        let fixed = ["relay", "--tls-cert", "cert.pem", "--tls-key", "key.pem", "--devices", "devices.toml"];
        let more = ["--listen", &listen, "--allow", "127.0.0.1", "--state-dir", "relay"];
        let arguments = [&fixed[..], &more].concat();
        relay.server = Some(Server::start_with(folder.path(), "relay", &arguments, &relay.environment()));
    };
    starts(&mut relay);
    let name = format!("localhost:{}", relay.port);
    let introduced =
        run(folder.path(), &["introduce", &name, "--devices", "devices.toml", "--cert", "cert.pem"]).exits(0).out;
    std::fs::write(folder.path().join("laptop.toml"), format!("addresses = [\"127.0.0.1\"]\n{introduced}")).unwrap();
    let (_agent, agent) = flows::agent(folder.path(), &[]);
    let asked = Arc::<AtomicUsize>::default();
    let counted = asked.clone();
    let web = flows::web(move |_, _| {
        let body = format!("version {}", counted.fetch_add(1, Ordering::Relaxed) + 1);
        let len = body.len();
        format!(
            "HTTP/1.1 200 OK\r\nCache-Control: max-age=1000\r\nContent-Length: {len}\r\nConnection: close\r\n\r\n{body}"
        )
    });
    // The version that is answered with, and its age.
    let get = || {
        let (proxy, url) = (format!("http://{agent}"), format!("http://{web}/"));
        let ran = curl(&["--include", "--proxy", &proxy, "--noproxy", "", &url]).exits(0);
        let age = ran.out.lines().find_map(|line| line.strip_prefix("Age: ")?.trim().parse().ok());
        (ran.out.lines().last().unwrap_or_default().to_owned(), age.unwrap_or(0_u64))
    };
    assert_eq!(get().0, "version 1");
    // It is 500 s later, and the clock says that it is 50 s later.
    (relay.slept, relay.off) = (500, -450);
    relay.set(false);
    let (version, age) = get();
    assert!(version == "version 1" && (499..600).contains(&age), "{version} is {age} s old");
    // What is on disk is as old for the next process.
    relay.stops();
    starts(&mut relay);
    let (version, age) = get();
    assert!(version == "version 1" && (499..600).contains(&age), "{version} is {age} s old");
    (relay.slept, relay.off) = (1_100, -1_000);
    relay.set(false);
    assert_eq!(get().0, "version 2");
}
