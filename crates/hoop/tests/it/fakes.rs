//! Who poses as a gateway is not relied on: a name can be copied, a question passed on, a key cannot. Real processes on loopback.

use crate::common::{self, App, Ran, Server, free_port, gateway, gateway_at, noise_file, run, service_at};
use crate::strangers::{Answer, hoop, stranger};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use hoop_seal::signing::GatewayKey;
use hoop_seal::word::Nonce;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::sync::{Arc, Mutex};

/// Enough that records would go out early.
const LEN: usize = 600_000;

/// A device, a service that lists one gateway and demands permits, and that gateway.
struct World {
    folder: tempfile::TempDir,
    app: App,
    service: Server,
    gateway: Server,
    name: String,
    bytes: Vec<u8>,
}

impl World {
    /// `listed`: whether the service lists the gateway.
    fn new(listed: bool) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let app = App::start();
        let gateway = gateway(folder.path(), &[]);
        let name = test_of(&gateway.url)["gateway"].as_str().unwrap().to_owned();
        let port = free_port();
        let more = ["--gateway", &name, "--permits", "required"];
        let more = if listed { &more[..] } else { &[] };
        let service = service_at(folder.path(), &app, port, &format!("http://127.0.0.1:{port}"), more);
        let bytes = noise_file(folder.path(), "file", LEN);
        Self { folder, app, service, gateway, name, bytes }
    }

    fn path(&self) -> &Path {
        self.folder.path()
    }

    fn push(&self, gateway: &str, more: &[&str]) -> Ran {
        let url = format!("{}/f", self.service.url);
        let own = more.contains(&"--service-patience");
        let patience = ["--gateway-patience", "2s", "--service-patience", "1s"];
        let patience = if own { &patience[..2] } else { &patience[..] };
        run(self.path(), &[&["push", "--gateway", gateway], patience, more, &["-T", "file", &url]].concat())
    }

    /// The application gets it, once.
    fn has_arrived_by(&self, ran: &Ran) {
        assert!(self.app.upload().body == self.bytes, "{ran}");
        assert_eq!(self.app.uploads().len(), 1, "{ran}");
    }
}

/// What a gateway says of itself.
fn test_of(url: &str) -> serde_json::Value {
    let address = url.strip_prefix("http://").unwrap();
    let mut stream = TcpStream::connect(address).unwrap();
    write!(stream, "GET /test HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    serde_json::from_str(answer.split_once("\r\n\r\n").unwrap().1).unwrap()
}

/// Takes everything, says that it is stored, and sends nothing.
const KEEPS: Answer = |id, total, method| match method {
    "GET" => hoop("200 OK", id, &[]),
    _ => hoop("201 Created", id, &[("Upload-Id", id), ("State", "stored"), ("Total", total), ("Missing", "")]),
};

/// A fake: whatever concerns `/test` it answers with `test`, of the head of the request; the rest as one that keeps what it gets. Returns its URL, and the heads
/// of the requests that it has seen.
fn fake(test: impl Fn(&str) -> String + Send + Sync + 'static) -> (String, Arc<Mutex<Vec<String>>>) {
    let keeper = stranger(KEEPS);
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let (test, seen) = (Arc::new(test), Arc::<Mutex<Vec<String>>>::default());
    let log = seen.clone();
    std::thread::spawn(move || {
        for client in listener.incoming().flatten() {
            let (test, log) = (test.clone(), log.clone());
            std::thread::spawn(move || play(client, keeper, &*test, &log));
        }
    });
    (url, seen)
}

/// Plays one connection: one request of `/test`, or whatever follows to the keeper.
fn play(client: TcpStream, keeper: SocketAddr, test: &dyn Fn(&str) -> String, log: &Mutex<Vec<String>>) {
    let mut reader = BufReader::new(client);
    let mut head = String::new();
    while !head.ends_with("\r\n\r\n") {
        if reader.read_line(&mut head).unwrap_or(0) == 0 {
            return;
        }
    }
    log.lock().unwrap().push(head.clone());
    if head.starts_with("GET /test") {
        let body = test(&head);
        let answer = format!("HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: {}\r\n\r\n{body}", body.len());
        let _ = reader.get_mut().write_all(answer.as_bytes());
        return;
    }
    let mut server = TcpStream::connect(keeper).unwrap();
    let (mut from, mut to) = (server.try_clone().unwrap(), reader.get_ref().try_clone().unwrap());
    std::thread::spawn(move || std::io::copy(&mut from, &mut to));
    if server.write_all(head.as_bytes()).is_ok() {
        let _ = std::io::copy(&mut reader, &mut server);
    }
}

/// Passes the question on to the true gateway, with this `Host` or the one it came with.
fn relayed(head: &str, truth: &str, host: Option<&str>) -> String {
    let address = truth.strip_prefix("http://").unwrap();
    let target = head.split(' ').nth(1).unwrap();
    let host = host.unwrap_or_else(|| head.lines().find_map(|line| line.strip_prefix("host: ")).unwrap());
    let mut stream = TcpStream::connect(address).unwrap();
    write!(stream, "GET {target} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer.split_once("\r\n\r\n").unwrap().1.to_owned()
}

fn went_early(seen: &Mutex<Vec<String>>) -> bool {
    seen.lock().unwrap().iter().any(|head| head.contains("hoop-early"))
}

#[test]
fn a_gateway_with_a_copied_name_gets_no_early_records_and_is_not_trusted() {
    let world = World::new(true);
    let name = world.name.clone();
    let (url, seen) =
        fake(move |_| format!(r#"{{"hoop":"gateway","version":"0.1.0","free_bytes":9999999999,"gateway":"{name}"}}"#));
    let ran = world.push(&url, &[]).exits(0);
    assert!(ran.err.contains("does not show who it is") && ran.err.contains("by another way"), "{ran}");
    assert!(!ran.out.contains("at the gateway"), "{ran}");
    assert!(!went_early(&seen));
    world.has_arrived_by(&ran);
}

#[test]
fn who_passes_the_question_on_to_the_true_gateway_is_not_taken_for_it() {
    for claimed in [false, true] {
        let world = World::new(true);
        let (truth, listed) = (world.gateway.url.clone(), world.gateway.url.clone());
        let host = claimed.then(|| listed.strip_prefix("http://").unwrap().to_owned());
        let (url, seen) = fake(move |head| relayed(head, &truth, host.as_deref()));
        let ran = world.push(&url, &[]).exits(0);
        // Under its own name it gets no proof; under the true one's, one that does not fit.
        let why = if claimed { "proof of who it is does not fit" } else { "does not show who it is" };
        assert!(ran.err.contains(why), "{claimed}: {ran}");
        assert!(!ran.out.contains("at the gateway"), "{ran}");
        assert!(!went_early(&seen));
        world.has_arrived_by(&ran);
    }
}

#[test]
fn who_has_a_key_and_signs_nothing_that_it_stores_is_passed_over() {
    let world = World::new(false);
    let key = GatewayKey::from_seed(&[7; 32]);
    let (url, _) = fake(move |head| {
        let nonce = head.split(['=', ' ']).nth(2).unwrap();
        let host = head.lines().find_map(|line| line.strip_prefix("host: ")).unwrap();
        let proof = URL_SAFE_NO_PAD.encode(key.answer(host, &Nonce::from_text(nonce).unwrap()));
        format!(r#"{{"hoop":"gateway","gateway":"{}","proof":"{proof}"}}"#, key.id())
    });
    let ran = world.push(&url, &[]).exits(0);
    assert!(ran.err.contains("it does not sign what it says it has stored"), "{ran}");
    world.has_arrived_by(&ran);
    assert!(!world.path().join("state/known_gateways").exists(), "nobody to remember");
}

#[test]
fn a_true_gateway_is_known_after_its_first_use_and_gets_early_records() {
    let world = World::new(false);
    let first = world.push(&world.gateway.url, &[]).exits(0);
    assert!(
        first.out.contains("you may leave") && first.err.contains(&format!("is new here: gateway {}", world.name)),
        "{first}"
    );
    let known = std::fs::read_to_string(world.path().join("state/known_gateways")).unwrap();
    assert_eq!(known, format!("{} {}\n", world.gateway.url.strip_prefix("http://").unwrap(), world.name));
    let again = world.push(&world.gateway.url, &["--json"]).exits(0);
    assert_eq!((&again.json()["may_leave"], &again.json()["via"]), (&true.into(), &"gateway".into()), "{again}");
    let said = world.push(&world.gateway.url, &["-v"]).exits(0);
    assert!(said.err.contains("is known here"), "{said}");
}

#[test]
fn a_listed_gateway_is_used_and_left() {
    let world = World::new(true);
    let ran = world.push(&world.gateway.url, &["-v"]).exits(0);
    assert!(ran.out.contains("you may leave") && ran.err.contains("is a gateway that the service lists"), "{ran}");
}

#[test]
fn a_changed_key_is_warned_of_and_the_device_stays_until_told_to_trust_it() {
    let mut world = World::new(false);
    world.push(&world.gateway.url, &[]).exits(0);
    common::eventually("the first upload", || (world.app.uploads().len() == 1).then_some(()));
    let port = world.gateway.port();
    assert_eq!(world.gateway.stop(), 0);
    std::fs::remove_dir_all(world.path().join("spool")).unwrap();
    world.gateway = gateway_at(world.path(), port);
    let ran = world.push(&world.gateway.url, &[]).exits(0);
    assert!(ran.err.contains("WARNING") && ran.err.contains(&world.name), "{ran}");
    // It stayed until the service had it.
    assert!(ran.out.contains("The service has all of it") || ran.out.contains("has accepted it"), "{ran}");
    let again = world.push(&world.gateway.url, &[]).exits(0);
    assert!(again.err.contains("WARNING"), "staying does not make it known: {again}");
    let trusted = world.push(&world.gateway.url, &["--trust-new-gateway"]).exits(0);
    assert!(trusted.err.contains("WARNING") && trusted.out.contains("you may leave"), "{trusted}");
    let known = world.push(&world.gateway.url, &["-v"]).exits(0);
    assert!(!known.err.contains("WARNING") && known.err.contains("is known here"), "{known}");
}

#[test]
fn a_gateway_that_shows_no_key_is_used_and_the_device_stays() {
    let world = World::new(false);
    // A proxy before it is at another address than it knows of, as an older gateway it shows nothing.
    let breaker = common::Breaker::before(&world.gateway.url, &[]);
    let ran = world.push(&breaker.url(), &["--service-patience", "60s"]).exits(0);
    assert!(ran.err.contains("does not show who it is") && ran.out.contains("at the gateway"), "{ran}");
    assert!(ran.out.contains("The service has all of it") || ran.out.contains("has accepted it"), "{ran}");
    assert!(!world.path().join("state/known_gateways").exists());
}

#[test]
fn a_wait_that_ends_before_the_service_has_it_does_not_say_you_may_leave() {
    let world = World::new(false);
    let (url, _) = fake(|_| "{}".to_owned());
    let patience = ["--service-patience", "60s", "--timeout", "1s"];
    let ran = world.push(&url, &patience).exits(8);
    assert!(ran.out.contains("do not leave yet") && !ran.out.contains("you may leave"), "{ran}");
    let told = world.push(&url, &[&patience[..], &["--json"]].concat()).exits(8);
    assert_eq!((&told.json()["may_leave"], &told.json()["timed_out"]), (&false.into(), &true.into()), "{told}");
}

#[test]
fn a_gateway_that_is_reached_by_name_shows_its_key_for_its_address() {
    let world = World::new(true);
    let ran = world.push(&format!("http://localhost:{}", world.gateway.port()), &["-v"]).exits(0);
    assert!(ran.out.contains("you may leave") && ran.err.contains("is a gateway that the service lists"), "{ran}");
}
