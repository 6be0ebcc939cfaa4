//! A true gateway, a true resolver, and a name server that changes its mind between look-ups: the address that is connected to is the one that was
//! judged, at every attempt.

use hoop_lab::{Host, Lab, Link, LinkConfig, Topology};
use hoop_seal::{ContentKey, Grant, Keyring, KwsId, Prelude, RECORD_SIZE, Route, Sealer, ServiceKey, Suite, UploadKey};
use hoop_testbed::{Certificates, Program, program_beside};
use hoop_units::{UnixTime, UploadId};
use serde_json::Value;
use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::net::{Ipv4Addr, TcpListener, UdpSocket};
use std::path::PathBuf;
use std::process::Command;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// Public addresses: the lab is a world of its own.
const GATEWAY: Ipv4Addr = Ipv4Addr::new(11, 0, 0, 1);
const PROVIDER: Ipv4Addr = Ipv4Addr::new(11, 0, 0, 2);
/// Behind the provider: a neighbour of the gateway would be refused.
const SERVICE: Ipv4Addr = Ipv4Addr::new(12, 0, 0, 2);
const LOOPBACK: Ipv4Addr = Ipv4Addr::LOCALHOST;

/// Generous, since machines are busy.
const PATIENCE: Duration = Duration::from_secs(120);

/// A service by every name that it is called by, and a gateway's owner would not know it from a true one.
const ANY_SERVICE: &str = r#"
const [key, cert] = process.argv.slice(1).map(f => require('fs').readFileSync(f));
require('https').createServer({ key, cert }, (request, response) => {
  const origin = 'https://' + request.headers.host;
  request.resume().on('end', () => {
    response.setHeader('Content-Type', 'application/json');
    if (request.url === '/.well-known/hoop')
      return response.end(JSON.stringify({ hoop: 1, origin, post: origin + '/hoop/post', tickets: origin + '/hoop/tickets',
        uploads: origin + '/hoop/uploads', suites: ['aes256gcm'], record_size: 65536, max_bytes: 1e9 }));
    response.setHeader('Hoop-State', 'accepted').setHeader('Hoop-Missing', '');
    response.end(JSON.stringify({ state: 'accepted', missing: '', reason: null, answer: 'c2VhbGVk' }));
  });
}).listen(443, '0.0.0.0', () => console.log('ready'));
"#;

/// What names have, look-up by look-up; the last stays.
type Zone = Arc<Mutex<BTreeMap<String, Vec<Vec<Ipv4Addr>>>>>;

/// Names that are others' aliases.
const ALIASES: [(&str, &str); 1] = [("alias.example", "inner.example")];

/// Answers queries for addresses (RFC 1035 §4), as the zone says when they come. Of other names it knows nothing.
fn serve_names(socket: &UdpSocket, zone: &Zone, looked_up: &Mutex<BTreeMap<String, usize>>) {
    let mut packet = [0; 512];
    while let Ok((len, from)) = socket.recv_from(&mut packet) {
        let query = &packet[..len];
        let Some((name, kind, end)) = question(query) else { continue };
        let alias = ALIASES.iter().find(|(alias, _)| *alias == name).map(|(_, target)| *target);
        let target = alias.unwrap_or(&name).to_owned();
        let is_a = kind == 1;
        let mut zone = zone.lock().unwrap();
        let addresses = zone.get_mut(&target).map(|answers| match is_a {
            true if answers.len() > 1 => answers.remove(0),
            true => answers[0].clone(),
            false => Vec::new(),
        });
        if is_a {
            *looked_up.lock().unwrap().entry(name).or_default() += 1;
        }
        // An answer, recursion available; 3: there is no such name.
        let code = if addresses.is_some() { 0 } else { 3 };
        let addresses = addresses.unwrap_or_default();
        let count = addresses.len() as u16 + u16::from(alias.is_some());
        let mut answer =
            [&query[..2], &[0x81, 0x80 | code, 0, 1], &count.to_be_bytes(), &[0; 4], &query[12..end]].concat();
        // The question's name, again.
        let mut owner = vec![0xc0, 12];
        if alias.is_some() {
            let target = encoded(&target);
            answer.extend(
                [&owner[..], &[0, 5, 0, 1, 0, 0, 0, 0], &(target.len() as u16).to_be_bytes(), &target].concat(),
            );
            owner = target;
        }
        for address in addresses {
            answer.extend([&owner[..], &[0, 1, 0, 1, 0, 0, 0, 0, 0, 4], &address.octets()].concat());
        }
        let _ = socket.send_to(&answer, from);
    }
}

/// The one name that a query asks for, the kind of record, and where the question ends.
fn question(query: &[u8]) -> Option<(String, u16, usize)> {
    let (mut at, mut labels) = (12, Vec::new());
    loop {
        let len = usize::from(*query.get(at)?);
        at += 1;
        if len == 0 {
            break;
        }
        labels.push(String::from_utf8(query.get(at..at + len)?.to_vec()).ok()?.to_lowercase());
        at += len;
    }
    let kind = u16::from_be_bytes(query.get(at..at + 2)?.try_into().ok()?);
    Some((labels.join("."), kind, at + 4))
}

fn encoded(name: &str) -> Vec<u8> {
    let labels = name.split('.').flat_map(|label| [&[label.len() as u8], label.as_bytes()].concat());
    labels.chain([0]).collect()
}

/// An upload that nobody can open.
fn sealed(seed: u8) -> (UploadId, Vec<u8>) {
    let (id, key) = (UploadId([seed; 16]), UploadKey([seed; 32]));
    let ring = Keyring::new(ServiceKey::new(KwsId([1; 4]), [1; 32]));
    let (not_before, expires) = (UnixTime(0), UnixTime(4_000_000_000));
    let grant = Grant { key: key.clone(), not_before, max_bytes: 1 << 20, route: Route::ANY, suite: Suite::Aes256Gcm };
    let ticket = ring.seal_ticket("https://photos.example", id, expires, &grant, [seed; 12]);
    let prelude = Prelude::new([seed; 16], RECORD_SIZE, &ticket).unwrap();
    let mut z = Vec::new();
    let mut sealer = Sealer::new(ContentKey::new(Suite::Aes256Gcm, &key, &[seed; 16]), &prelude, &mut z);
    sealer.push(b"a photo", &mut z);
    sealer.finish(&mut z);
    (id, z)
}

struct World {
    lab: Lab,
    folder: TempDir,
    zone: Zone,
    looked_up: Arc<Mutex<BTreeMap<String, usize>>>,
    /// Where nothing may ever connect to.
    wires: Vec<TcpListener>,
    device: Ipv4Addr,
    _programs: Vec<Program>,
}

impl World {
    fn build(names: &[&str]) -> Self {
        let plain = LinkConfig::new();
        let topology = Topology::new()
            .host(Host::new("device"))
            .host(Host::new("gateway"))
            .host(Host::new("provider").forwarding())
            .host(Host::new("service"))
            .link(Link::new("lan", "device", "gateway").both(plain.clone()))
            .link(Link::new("uplink", "gateway", "provider").both(plain.clone()).addresses(GATEWAY, PROVIDER))
            .link(
                Link::new("backbone", "provider", "service").both(plain).addresses(Ipv4Addr::new(12, 0, 0, 1), SERVICE),
            );
        let lab = Lab::build(&topology).expect("a lab: run as root, or where user namespaces are allowed");
        let folder = tempfile::tempdir().unwrap();
        let (zone, looked_up) = (Zone::default(), Arc::default());
        let socket = lab.in_host("gateway", || UdpSocket::bind((LOOPBACK, 53)).unwrap());
        let (own, counted) = (zone.clone(), Arc::clone(&looked_up));
        std::thread::spawn(move || serve_names(&socket, &own, &counted));
        let wires =
            ["gateway", "device"].map(|host| lab.in_host(host, || TcpListener::bind(("0.0.0.0", 443)).unwrap()));
        let device = lab.address_on("device", "lan");
        let mut world = Self { lab, folder, zone, looked_up, wires: wires.into(), device, _programs: Vec::new() };
        world.start(names);
        world
    }

    fn start(&mut self, names: &[&str]) {
        let resolver = self.path("resolv.conf");
        std::fs::write(&resolver, "nameserver 127.0.0.1\noptions timeout:2 attempts:2\n").unwrap();
        let mount = self.lab.command("gateway", "mount").arg("--bind").arg(&resolver).arg("/etc/resolv.conf").status();
        assert!(mount.unwrap().success(), "the host's resolver is set");
        let certificates = Certificates::make(self.folder.path(), names).unwrap();
        let mut service = self.lab.command("service", "node");
        service.arg("-e").arg(ANY_SERVICE).arg("--").arg(&certificates.key).arg(&certificates.certificate);
        let mut gateway = self.lab.command("gateway", program_beside("hoop"));
        gateway.args(["gateway", "--listen", "0.0.0.0:4667", "--no-mdns", "--spool"]).arg(self.path("spool"));
        gateway.arg("--ca").arg(&certificates.authority);
        self._programs = vec![
            Program::start("the service", service, "ready").unwrap(),
            Program::start("hoop gateway", gateway, "listening on").unwrap(),
        ];
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn set(&self, name: &str, answers: &[&[Ipv4Addr]]) {
        let answers = answers.iter().map(|addresses| addresses.to_vec()).collect();
        self.zone.lock().unwrap().insert(name.to_owned(), answers);
    }

    fn curl(&self, target: &str) -> Command {
        let mut curl = self.lab.command("device", "curl");
        let url = format!("http://{}:4667{target}", self.lab.address_on("gateway", "lan"));
        curl.args(["--silent", "--show-error", "--max-time", "60", "--header", "Accept: application/json", &url]);
        curl
    }

    fn said(mut curl: Command) -> Value {
        let output = curl.output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        serde_json::from_slice(&output.stdout).unwrap()
    }

    /// Offers an upload to a service of that name.
    fn offer(&self, name: &str, seed: u8) -> (UploadId, Value) {
        let (id, z) = sealed(seed);
        let file = self.path("z");
        std::fs::write(&file, z).unwrap();
        let mut curl = self.curl(&format!("/offload?dest=https://{name}/hoop/post"));
        curl.arg("--data-binary").arg(format!("@{}", file.display()));
        (id, Self::said(curl))
    }

    /// Offers an upload, of which the gateway takes all.
    fn gives(&self, name: &str, seed: u8) -> UploadId {
        let (id, taken) = self.offer(name, seed);
        assert!(taken["stored"].is_u64() && taken["stored"] == taken["total"], "{taken}");
        id
    }

    fn until(&self, id: UploadId, what: &str, holds: impl Fn(&Value) -> bool) {
        let end = Instant::now() + PATIENCE;
        loop {
            let status = Self::said(self.curl(&format!("/monitor?ID={id}")));
            if holds(&status) {
                return;
            }
            assert!(Instant::now() < end, "{what} never came about: {status}");
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    /// Nothing was connected to that must not be.
    fn nothing_tripped(&self) {
        for wire in &self.wires {
            wire.set_nonblocking(true).unwrap();
            let tripped = wire.accept().map(|(_, from)| from);
            assert_eq!(tripped.unwrap_err().kind(), ErrorKind::WouldBlock);
        }
    }
}

#[test]
fn dns_rebinding_never_leads_the_gateway_to_a_private_address() {
    let world =
        World::build(&["both.example", "flip.example", "loop.example", "own.example", "lan.example", "alias.example"]);
    let device = world.device;
    world.set("loop.example", &[&[LOOPBACK]]);
    world.set("lan.example", &[&[device]]);
    world.set("own.example", &[&[GATEWAY]]);
    world.set("inner.example", &[&[device]]);
    for (name, seed) in [("loop.example", 1), ("lan.example", 2), ("own.example", 3), ("alias.example", 4)] {
        let (_, refused) = world.offer(name, seed);
        assert_eq!(refused["code"], "dest-forbidden", "{name}: {refused}");
        assert!(!refused.to_string().contains(&device.to_string()), "{refused}");
    }

    // Of several addresses the public one is used.
    world.set("both.example", &[&[LOOPBACK, SERVICE, device]]);
    let both = world.gives("both.example", 5);
    world.until(both, "delivery to the public address", |status| status["state"] == "accepted");

    // Good when it was looked up at the door, bad at each attempt from then on, until it is good again.
    world.set("flip.example", &[&[SERVICE], &[LOOPBACK], &[device], &[GATEWAY]]);
    let flip = world.gives("flip.example", 6);
    world.until(flip, "refusals", |status| {
        status["reason"]["code"] == "dest-forbidden" && status["attempts"].as_u64() >= Some(2)
    });
    let times = world.looked_up.lock().unwrap()["flip.example"];
    assert!(times >= 3, "{times}: it is looked up at every attempt");
    world.set("flip.example", &[&[SERVICE]]);
    world.until(flip, "delivery in the end", |status| status["state"] == "accepted");

    // What nobody can look up is taken, and waits.
    let nowhere = world.gives("nowhere.example", 7);
    world.until(nowhere, "a reason", |status| status["reason"]["code"] == "dest-unreachable");
    world.nothing_tripped();
}
