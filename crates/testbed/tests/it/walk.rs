//! One upload over several ways, with real processes: begun at one gateway and ended at another, over three networks, and past a
//! gateway that lies. What the application got is what was sent, once.
//!
//! ```text
//!            ┌── lan-a ── a ── up-a ──┐
//!  device ───┼── lan-b ── b ── up-b ──┼── service
//!            └───────── cell ─────────┘
//! ```

use hoop_lab::{Change, Direction, Host, Link, LinkConfig, Topology};
use hoop_testbed::{HOOP, House, ORIGIN, Program, SERVICE, program_beside, sha256};
use hoop_units::Bitrate;
use serde_json::Value;
use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant};

/// Generous, since machines are busy; nothing waits so long when all is well.
const PATIENCE: Duration = Duration::from_secs(90);

/// Three seconds of the LAN.
const LEN: usize = 6_000_000;

/// A gateway that has stored so much has done so in two steps, a second apart at least, and the device asks each second: it knows of the first.
const KNOWN: u64 = 3_000_000;

struct Walk {
    house: House,
    wall: Program,
    _service: Program,
    file: PathBuf,
}

impl Walk {
    fn begin() -> Self {
        let at = |rate| LinkConfig::new().rate(rate).delay(Duration::from_millis(1));
        let topology = Topology::new()
            .host(Host::new("device"))
            .host(Host::new("a"))
            .host(Host::new("b"))
            .host(Host::new("service").named(SERVICE))
            .link(Link::new("lan-a", "device", "a").both(at(Bitrate::mbps(16))))
            .link(Link::new("lan-b", "device", "b").both(at(Bitrate::mbps(16))))
            .link(Link::new("cell", "device", "service").both(at(Bitrate::mbps(30))))
            .link(Link::new("up-a", "a", "service").both(at(Bitrate::mbps(50))))
            .link(Link::new("up-b", "b", "service").both(at(Bitrate::mbps(50))));
        let house = House::build_on(&topology).expect("a house: run as root, or where user namespaces are allowed");
        let wall = house.start_photo_wall().unwrap();
        let service = house.start_service(8000, &[]).unwrap();
        let file = house.file("a.bin", LEN).unwrap();
        Self { house, wall, _service: service, file }
    }

    fn gateway(&self, host: &str) -> Program {
        self.house.start_gateway_on(host, &["--no-mdns"]).unwrap()
    }

    fn set(&self, link: &str, change: Change) {
        self.house.lab().set_link(link, Direction::Both, change);
    }

    /// Begins to push to A, then to B; returns the push and the upload's id.
    fn push(&self, more: &[&str]) -> (Program, String) {
        let gateways = [("a", "lan-a"), ("b", "lan-b")].map(|(host, link)| self.house.gateway_url_on(host, link));
        let mut push = self.house.hoop("device");
        push.args([
            "push",
            "-v",
            "--gateway",
            &gateways.join(","),
            "--gateway-patience",
            "1s",
            "--service-patience",
            "2s",
        ]);
        push.args(more).arg("--ca").arg(&self.house.certificates().authority);
        push.args(["-F", &format!("photo=@{}", self.file.display()), &format!("{ORIGIN}/photos")]);
        let push = Program::start("hoop push", push, "hoop: upload ").unwrap();
        let (_, line) = push.wait_for("hoop: upload ", PATIENCE).unwrap();
        let id = line.trim_start_matches("hoop: upload ").chars().take(32).collect();
        (push, id)
    }

    /// What the gateway on `host` says of the upload.
    fn status(&self, host: &str, id: &str) -> Value {
        let mut curl = self.house.command(host, "curl");
        let url = format!("http://127.0.0.1:{HOOP}/monitor?ID={id}");
        let output = curl.args(["--silent", "-H", "Accept: application/json", &url]).output().unwrap();
        serde_json::from_slice(&output.stdout).unwrap_or_default()
    }

    /// Waits until the gateway on `host` has stored so much of it.
    fn until_stored(&self, host: &str, id: &str, bytes: u64) {
        eventually(&format!("{bytes} bytes at {host}"), || self.status(host, id)["stored"].as_u64() >= Some(bytes));
    }

    /// Waits until the application has it; it must be as it was sent, and there once.
    fn arrived(&self) {
        let sha256 = sha256(&self.file).unwrap();
        let found = self.wall.wait_for(&sha256, PATIENCE);
        assert!(found.is_some(), "it did not arrive: {}", self.wall.text());
        assert_eq!(self.wall.text().matches(&sha256).count(), 1, "{}", self.wall.text());
    }

    fn pictures(&self) -> usize {
        self.wall.text().matches("\"event\":\"photo\"").count()
    }
}

fn eventually(what: &str, holds: impl Fn() -> bool) {
    let end = Instant::now() + PATIENCE;
    while !holds() {
        assert!(Instant::now() < end, "{what} never came about");
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn cut() -> Change {
    Change::new().connected(false)
}

/// Waits for a push to end well; returns what it said.
fn ended(mut push: Program) -> String {
    let status = push.wait().unwrap();
    // It never says that: all that it did say has been read then.
    assert!(push.wait_for("\0", PATIENCE).is_none());
    assert!(status.success(), "{status}: {}", push.text());
    push.text()
}

#[test]
fn an_upload_split_over_two_gateways_arrives_once_though_one_sends_late() {
    let walk = Walk::begin();
    let (_a, _b) = (walk.gateway("a"), walk.gateway("b"));
    // Enough for a handshake, and not for a record.
    walk.set("up-a", Change::new().rate(Bitrate::kbps(40)));
    let (push, id) = walk.push(&["--wait", "stored"]);
    walk.until_stored("a", &id, KNOWN);
    walk.set("lan-a", cut());
    let said = ended(push);
    assert!(said.contains("the gateway has gone"), "{said}");
    let [a, b] = ["a", "b"].map(|host| walk.status(host, &id));
    assert_eq!((&a["state"], &b["state"]), (&"receiving".into(), &"receiving".into()), "each has a part");
    assert!(b["stored"].as_u64() < Some(LEN as u64 - 900_000), "what A acknowledged was not sent again: {b}");
    assert_eq!(walk.pictures(), 0);
    walk.set("up-a", Change::new().rate(Bitrate::mbps(50)));
    walk.arrived();
}

#[test]
fn a_device_that_stays_sends_bytes_that_the_first_gateway_never_delivers() {
    let walk = Walk::begin();
    let (_a, _b) = (walk.gateway("a"), walk.gateway("b"));
    walk.set("up-a", cut());
    let (push, id) = walk.push(&["--wait", "accepted"]);
    walk.until_stored("a", &id, KNOWN);
    walk.set("lan-a", cut());
    let said = ended(push);
    assert!(said.contains("the service has got no more of it") && said.contains("to the service directly"), "{said}");
    walk.arrived();
}

#[test]
fn an_upload_over_three_networks_is_one_upload() {
    let walk = Walk::begin();
    let (_a, _b) = (walk.gateway("a"), walk.gateway("b"));
    let (push, id) = walk.push(&["--wait", "accepted"]);
    walk.until_stored("a", &id, 1_000_000);
    walk.set("lan-a", cut());
    walk.until_stored("b", &id, 1_000_000);
    walk.set("lan-b", cut());
    let said = ended(push);
    assert!(said.contains("to the service directly"), "{said}");
    walk.arrived();
    let cell = walk.house.lab().counters("cell").up.passed_bytes;
    assert!((1_000_000..LEN as u64 - 900_000).contains(&cell), "the device sent {cell} bytes itself");
}

/// Each group has a house of its own, side by side with the others: most of the time passes in waiting for what the liar never does.
const LIES: [&[&str]; 3] = [&["claims", "forgets", "loses"], &["alters", "halves"], &["swaps", "stretches"]];

#[test]
fn whatever_a_gateway_lies_the_upload_arrives_once_by_way_of_another() {
    std::thread::scope(|scope| {
        LIES.map(|lies| scope.spawn(move || past_liars(lies))).map(|liars| liars.join().unwrap())
    });
}

/// Pushes past a gateway that tells each of these lies in turn.
fn past_liars(lies: &[&str]) {
    let mut walk = Walk::begin();
    let _b = walk.gateway("b");
    // The liar's accomplice delivers what it is given, as a true gateway does.
    let mut true_one = walk.house.hoop("a");
    true_one.args(["gateway", "--listen", "127.0.0.1:4700", "--allow-dest", SERVICE, "--no-mdns", "--spool"]);
    true_one.arg(walk.house.path("spool-a")).arg("--ca").arg(&walk.house.certificates().authority);
    let _true_one = Program::start("hoop gateway", true_one, "listening on").unwrap();
    for &lie in lies {
        walk.file = walk.house.file(&format!("{lie}.bin"), 700_000).unwrap();
        let mut liar: Command = walk.house.command("a", program_beside("lying-gateway"));
        liar.args([&format!("0.0.0.0:{HOOP}"), lie, "127.0.0.1:4700"]);
        let liar = Program::start("lying-gateway", liar, "listening on").unwrap();
        let (push, _) = walk.push(&["--wait", "accepted"]);
        let said = ended(push);
        assert!(said.contains("sending what the service lacks by another way"), "{lie}: {said}");
        assert!(said.contains("The application has accepted it."), "{lie}: {said}");
        walk.arrived();
        drop(liar);
    }
}
