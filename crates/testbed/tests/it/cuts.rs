//! A device and a server as processes, and what happens to people on the move: links that go, links that go bad, addresses that change, UDP that is blocked, and either
//! process killed, or both. Whatever was written comes out at the other end: all of it, once, in order.
//!
//! `HOOP_MISHAPS` makes it longer, `HOOP_SEED` repeats a run's choices. With an odd seed the server acknowledges what its store has, with an even one what its application has.

use crate::ends::{self, FAILED, FOLDER, PORT, Plan, STOP, Stream};
use hoop_lab::{Change, Direction, Host, Lab, Link, LinkConfig, Loss, Probability, Topology};
use hoop_relay::introduce;
use hoop_testbed::{Certificates, Program, sha256};
use hoop_units::{Bitrate, Duration as LinkDelay};
use rand_core::{Rng as _, SeedableRng as _};
use rand_pcg::Pcg64Mcg;
use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use std::path::PathBuf;
use std::time::{Duration, Instant, SystemTime};
use tempfile::TempDir;

/// Mishaps, unless `HOOP_MISHAPS` says otherwise: some 15 s.
const MISHAPS: u64 = 12;

/// The longest time between two; and the longest that one lasts, but for a few.
const PAUSE_MS: u64 = 900;
const LASTS_MS: u64 = 700;

/// One in so many lasts longer, up to this.
const LONG_ONE_IN: u32 = 12;
const LONG_MS: u64 = 4_000;

/// After so many in which nothing came through, something is waited for: a slow machine must not make the test mean less.
const IN_A_ROW: u32 = 6;

/// Generous, since machines are busy, and since a device tries again after 15 s at the latest.
const PATIENCE: Duration = Duration::from_secs(120);

struct World {
    lab: Lab,
    folder: TempDir,
    seed: u64,
    server: Program,
    device: Program,
    /// Whether UDP is blocked.
    is_blocked: bool,
    /// The phone's link that is bad now.
    rotten: Option<&'static str>,
}

/// The phone's links: Mbit/s, and ms one way.
const LINKS: [(&str, u64, u64); 2] = [("wifi", 30, 5), ("cell", 10, 25)];

fn config(mbps: u64, ms: u64) -> LinkConfig {
    LinkConfig::new().rate(Bitrate::mbps(mbps)).delay(LinkDelay::from_millis(ms))
}

impl World {
    fn build(seed: u64) -> Self {
        let [wifi, cell] = LINKS.map(|(name, mbps, ms)| Link::new(name, "phone", "net").both(config(mbps, ms)));
        let topology = Topology::new()
            .host(Host::new("phone"))
            .host(Host::new("net").forwarding())
            .host(Host::new("server"))
            .link(wifi)
            .link(cell)
            .link(Link::new("core", "net", "server").both(config(100, 2)));
        let lab = Lab::build(&topology).expect("a lab: run as root, or where user namespaces are allowed");
        let folder = tempfile::Builder::new().prefix("hoop-cuts").tempdir().unwrap();
        let certificates = Certificates::make(folder.path(), &["server.example"]).unwrap();
        let authority = std::fs::read_to_string(certificates.authority).unwrap();
        let server = format!("server.example:{PORT}");
        let mut introduction = introduce(&folder.path().join("devices.toml"), &server, Some(authority)).unwrap();
        introduction.addresses.push(lab.address("server").into());
        let introduction = serde_json::to_vec(&introduction).unwrap();
        std::fs::write(folder.path().join("introduction.json"), introduction).unwrap();
        for name in ["device", "server"] {
            std::fs::create_dir(folder.path().join(name)).unwrap();
        }
        // The phone's addresses are none that the lab knows of.
        let by = format!("route replace default via {}", lab.address_on("net", "core"));
        ip(&lab, "server", &by);
        let server = start(&lab, &folder, seed, "server", "server");
        let device = start(&lab, &folder, seed, "phone", "device");
        Self { lab, folder, seed, server, device, is_blocked: false, rotten: None }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn ip(&self, host: &str, arguments: &str) {
        ip(&self.lab, host, arguments);
    }

    /// The way to the server by one of the phone's links: the kernel forgets it with the link, or its address.
    fn route(&self, link: &str) {
        let (by, metric) = (self.lab.address_on("net", link), if link == "wifi" { 1 } else { 2 });
        let server = self.lab.address("server");
        self.ip("phone", &format!("route replace {server} via {by} dev {link} metric {metric}"));
    }

    /// One thing that happens, and its name.
    fn mishap(&mut self, rng: &mut Pcg64Mcg) -> &'static str {
        let most = if rng.next_u32().is_multiple_of(LONG_ONE_IN) { LONG_MS } else { LASTS_MS };
        let lasts = Duration::from_millis(rng.next_u64() % most);
        let link = ["wifi", "cell"][rng.next_u32() as usize % 2];
        match rng.next_u32() % 13 {
            0 => self.cut(&[link], lasts, "a link that carries nothing"),
            1 => self.cut(&["wifi", "cell", "core"], lasts, "no network at all"),
            2 => {
                self.ip("phone", &format!("link set {link} down"));
                std::thread::sleep(lasts);
                self.ip("phone", &format!("link set {link} up"));
                self.route(link);
                "an interface down and up"
            }
            3 | 4 => {
                let [a, b, c, _] = self.lab.address_on("phone", link).octets();
                let address = Ipv4Addr::new(a, b, c, 10 + (rng.next_u32() % 200) as u8);
                self.ip("phone", &format!("address flush dev {link}"));
                std::thread::sleep(lasts);
                self.ip("phone", &format!("address add {address}/24 dev {link}"));
                self.route(link);
                "another address"
            }
            5 | 6 => {
                let change = if self.is_blocked { "del" } else { "add" };
                self.ip("net", &format!("rule {change} ipproto udp blackhole"));
                self.is_blocked = !self.is_blocked;
                "UDP blocked, or no longer"
            }
            7 => self.restart(true, false, lasts, "the server killed"),
            8 => self.restart(false, true, lasts, "the device killed"),
            9 => self.restart(true, true, lasts, "both killed"),
            _ => self.rot(rng, link),
        }
    }

    /// A link of the phone goes bad, in one direction or both, and stays so until the next one does: it loses a third, is late by up to two seconds, or has a hundredth of its rate.
    fn rot(&mut self, rng: &mut Pcg64Mcg, link: &'static str) -> &'static str {
        if self.mend() && rng.next_u32().is_multiple_of(2) {
            return "a link that is good again";
        }
        let (_, mbps, _) = LINKS.into_iter().find(|(name, ..)| *name == link).expect("it is one of them");
        let direction = [Direction::Up, Direction::Down, Direction::Both][rng.next_u32() as usize % 3];
        let late = LinkDelay::from_millis(100 + rng.next_u64() % 1_900);
        let lossy = Loss::Independent(Probability::new(0.3).expect("a probability"));
        let (change, name) = match rng.next_u32() % 4 {
            0 => (Change::new().loss(lossy), "a link that loses"),
            1 => (Change::new().delay(late), "a link that is late"),
            2 => (Change::new().loss(lossy).delay(late), "a link that loses and is late"),
            _ => (Change::new().rate(Bitrate::kbps(mbps * 10)), "a link at a hundredth"),
        };
        self.lab.set_link(link, direction, change);
        self.rotten = Some(link);
        name
    }

    /// Makes the phone's bad link good again. Returns whether there was one.
    fn mend(&mut self) -> bool {
        let Some(rotten) = self.rotten.take() else { return false };
        let (_, mbps, ms) = LINKS.into_iter().find(|(name, ..)| *name == rotten).expect("it is one of them");
        let good = Change::new().rate(Bitrate::mbps(mbps)).delay(LinkDelay::from_millis(ms)).loss(Loss::None);
        self.lab.set_link(rotten, Direction::Both, good);
        true
    }

    fn cut(&self, links: &[&str], lasts: Duration, name: &'static str) -> &'static str {
        let set = |is_up| {
            links.iter().for_each(|link| self.lab.set_link(link, Direction::Both, Change::new().connected(is_up)));
        };
        set(false);
        std::thread::sleep(lasts);
        set(true);
        name
    }

    /// Kills either process, or both, which are down together.
    fn restart(&mut self, server: bool, device: bool, lasts: Duration, name: &'static str) -> &'static str {
        self.assert_well();
        if server {
            self.server.kill();
        }
        if device {
            self.device.kill();
        }
        std::thread::sleep(lasts);
        if server {
            self.server = start(&self.lab, &self.folder, self.seed, "server", "server");
        }
        if device {
            self.device = start(&self.lab, &self.folder, self.seed, "phone", "device");
        }
        name
    }

    fn assert_well(&self) {
        for (name, program) in [("server", &self.server), ("device", &self.device)] {
            let text = program.text();
            assert!(!text.contains(FAILED), "the {name} failed:\n{}\n{}", self.device.text(), self.server.text());
        }
    }

    /// How many bytes have come, at both ends.
    fn come(&self) -> u64 {
        let files = ["server", "device"].map(|name| std::fs::read_dir(self.path(name)).unwrap());
        let is_stream = |name: &str| name.ends_with(".up") || name.ends_with(".down");
        let streams = files.into_iter().flatten().map(|entry| entry.unwrap());
        let streams = streams.filter(|entry| entry.file_name().to_str().is_some_and(is_stream));
        streams.map(|entry| entry.metadata().unwrap().len()).sum()
    }

    /// Waits until something comes, or a flow that has nothing to send is over.
    fn until_more_than(&self, come: u64) {
        let end = Instant::now() + PATIENCE;
        while self.come() <= come {
            self.assert_well();
            assert!(Instant::now() < end, "nothing came for {} s without a mishap", PATIENCE.as_secs());
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    fn assert_whole(&self, name: &str, stream: Stream) {
        let path = self.path(name);
        assert_eq!(std::fs::metadata(&path).unwrap().len(), stream.len, "how long {name} is");
        let mut sent = ring::digest::Context::new(&ring::digest::SHA256);
        let mut at = 0;
        while at < stream.len {
            let bytes = stream.bytes(at, (stream.len - at).min(1 << 20) as usize);
            sent.update(&bytes);
            at += bytes.len() as u64;
        }
        assert_eq!(sha256(&path).unwrap(), hex::encode(sent.finish()), "{name} is what was sent");
    }
}

fn ip(lab: &Lab, host: &str, arguments: &str) {
    let done = lab.command(host, "ip").args(arguments.split(' ')).output().unwrap();
    assert!(done.status.success(), "ip {arguments}: {}", String::from_utf8_lossy(&done.stderr));
}

fn start(lab: &Lab, folder: &TempDir, seed: u64, host: &str, which: &str) -> Program {
    let mut command = lab.command(host, std::env::current_exe().unwrap());
    command.args([&format!("ends::{which}"), "--exact", "--ignored", "--nocapture"]);
    command.env(FOLDER, folder.path()).env(ends::SEED, seed.to_string());
    Program::start(which, command, &format!("the {which} is up")).unwrap()
}

fn number(variable: &str) -> Option<u64> {
    std::env::var(variable).ok().map(|text| text.parse().unwrap_or_else(|_| panic!("{variable} is a number")))
}

#[test]
fn bytes_arrive_once_whatever_happens_to_links_addresses_and_processes() {
    let since = || SystemTime::UNIX_EPOCH.elapsed().map_or(0, |since| since.as_secs());
    let (seed, mishaps) = (number("HOOP_SEED").unwrap_or_else(since), number("HOOP_MISHAPS").unwrap_or(MISHAPS));
    println!("HOOP_SEED={seed}");
    let (mut rng, begun) = (Pcg64Mcg::seed_from_u64(seed), Instant::now());
    let mut world = World::build(seed);
    world.until_more_than(0);
    let (mut kinds, mut before, mut in_a_row) = (BTreeMap::<_, u32>::new(), 0, 0);
    for _ in 0..mishaps {
        std::thread::sleep(Duration::from_millis(rng.next_u64() % PAUSE_MS));
        *kinds.entry(world.mishap(&mut rng)).or_default() += 1;
        world.assert_well();
        let come = world.come();
        in_a_row = if come > before { 0 } else { in_a_row + 1 };
        if in_a_row == IN_A_ROW {
            world.until_more_than(come);
        }
        before = come;
    }
    // Over a link that loses a third and is late by two seconds, 3 MB take several minutes, which proves nothing more.
    world.mend();
    std::fs::write(world.path(STOP), "").unwrap();
    let over = world.device.wait_for_matching(PATIENCE, |line| line == "all flows are over" || line.contains(FAILED));
    world.assert_well();
    assert!(over.is_some(), "flows do not come to their end: {}{}", world.device.text(), world.server.text());
    let files = std::fs::read_dir(world.path("device")).unwrap().map(|entry| entry.unwrap().file_name());
    let flows: Vec<u64> = files.filter_map(|name| name.to_str()?.strip_suffix(".done")?.parse().ok()).collect();
    for number in &flows {
        let plan = Plan::of(seed, *number);
        world.assert_whole(&format!("server/{number}.up"), plan.up);
        world.assert_whole(&format!("device/{number}.down"), plan.down);
    }
    assert!(!flows.is_empty());
    let (bytes, secs) = (world.come() / 1_000_000, begun.elapsed().as_secs());
    println!("{mishaps} mishaps in {secs} s, {} flows, {bytes} MB: {kinds:?}", flows.len());
}
