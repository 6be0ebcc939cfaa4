//! Handing over before the ticket has come: real processes on loopback, and between device and service a gate that holds the
//! request for a ticket back, or alters it.

use crate::common::{self, App, Breaker, Server, eventually, gateway, gateway_at, noise_file, service_at};
use hoop_client::{
    Client, ClientConfig, Content, Event, GatewayChoice, Outcome, Payload, PushOptions, State, Upload, WaitFor, Way,
};
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

const LEN: usize = 3_000_000;

/// What a resent upload would exceed: heads, and the records of a connection or two.
const ONCE: u64 = LEN as u64 + 300_000;

/// What the gate does with the request for a ticket before it passes it on.
type Act = Box<dyn FnMut(Vec<u8>) -> Vec<u8> + Send>;

/// A TCP proxy before the service, at the service's own origin.
fn gate(listener: TcpListener, target: SocketAddr, act: Act) {
    let act = Arc::new(Mutex::new(act));
    std::thread::spawn(move || {
        for client in listener.incoming().flatten() {
            let act = act.clone();
            std::thread::spawn(move || pass(client, target, &act));
        }
    });
}

fn pass(mut client: TcpStream, target: SocketAddr, act: &Mutex<Act>) {
    let mut first = Vec::new();
    let mut piece = [0; 16 * 1024];
    let is_ticket = |bytes: &[u8]| bytes.starts_with(b"POST /hoop/tickets");
    while first.is_empty() || is_ticket(&first) && !first.ends_with(b"}") {
        let Ok(len @ 1..) = client.read(&mut piece) else { return };
        first.extend_from_slice(&piece[..len]);
    }
    if is_ticket(&first) {
        first = act.lock().unwrap()(first);
    }
    let Ok(mut server) = TcpStream::connect(target) else { return };
    let (mut back_from, mut back_to) = (server.try_clone().unwrap(), client.try_clone().unwrap());
    std::thread::spawn(move || {
        let _ = std::io::copy(&mut back_from, &mut back_to);
        let _ = back_to.shutdown(std::net::Shutdown::Write);
    });
    if server.write_all(&first).is_ok() {
        let _ = std::io::copy(&mut client, &mut server);
    }
    let _ = server.shutdown(std::net::Shutdown::Write);
}

/// The one file in the gateway's spool, once it has come to its end.
fn whole_file(folder: &Path) -> PathBuf {
    eventually("early records at the gateway", || {
        let shards = std::fs::read_dir(folder.join("spool/uploads")).ok()?;
        let files = shards.flatten().filter_map(|shard| std::fs::read_dir(shard.path()).ok()).flatten().flatten();
        let mut files = files.filter(|file| file.metadata().is_ok_and(|data| data.len() > LEN as u64));
        files.next().map(|file| file.path())
    })
}

struct World {
    folder: tempfile::TempDir,
    app: App,
    origin: String,
    _service: Server,
    bytes: Vec<u8>,
}

impl World {
    fn new(act: impl FnMut(Vec<u8>) -> Vec<u8> + Send + 'static, folder: tempfile::TempDir) -> Self {
        let app = App::start();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let origin = format!("http://{}", listener.local_addr().unwrap());
        let port = common::free_port();
        let service = service_at(folder.path(), &app, port, &origin, &[]);
        gate(listener, ([127, 0, 0, 1], port).into(), Box::new(act));
        let bytes = noise_file(folder.path(), "file", LEN);
        Self { folder, app, origin, _service: service, bytes }
    }

    /// Pushes by the gateway at that URL, with this `Authorization`, until the application has it, and checks that it arrived.
    fn push(&self, gateway: &str, authorization: Option<&str>) -> (Outcome, Vec<Event>) {
        let config = ClientConfig {
            state_dir: Some(self.folder.path().join("state")),
            gateway: GatewayChoice::At(gateway.parse().unwrap()),
            ..ClientConfig::default()
        };
        let content = vec![Content::File(self.folder.path().join("file"))];
        let payload = Payload::Data { content, content_type: None };
        let mut upload = Upload::new(format!("{}/up", self.origin).parse().unwrap(), payload);
        upload.credentials.authorization = authorization.map(|value| value.parse().unwrap());
        // A gateway that nobody has met gets no early records; these are about those that get them.
        let options = PushOptions { wait: WaitFor::Accepted, trust_new_gateway: true, ..PushOptions::default() };
        let events = Arc::<Mutex<Vec<Event>>>::default();
        let log = events.clone();
        let on_event = Arc::new(move |event| log.lock().unwrap().push(event));
        let client = Client::new(config).unwrap();
        let runtime = tokio::runtime::Runtime::new().unwrap();
        let outcome = runtime.block_on(client.push(&upload, &options, on_event)).unwrap();
        assert_eq!((outcome.state, &outcome.way), (State::Accepted, &Way::Gateway(gateway.parse().unwrap())));
        let seen = self.app.uploads();
        assert_eq!(seen.len(), 1, "once");
        assert!(seen[0].body == self.bytes);
        assert_eq!(seen[0].field("authorization"), authorization);
        let events = events.lock().unwrap().clone();
        (outcome, events)
    }
}

#[test]
fn all_but_record_0_is_at_the_gateway_before_the_ticket_and_is_sent_once() {
    let folder = tempfile::tempdir().unwrap();
    let gateway = gateway(folder.path(), &[]);
    let path = folder.path().to_owned();
    let world = World::new(
        move |request| {
            let z = std::fs::read(whole_file(&path)).unwrap();
            assert!(z[..128 + 65_536].iter().all(|byte| *byte == 0), "neither prelude nor record 0 is there");
            request
        },
        folder,
    );
    let breaker = Breaker::before(&gateway.url, &[]);
    let (outcome, events) = world.push(&breaker.url(), Some("Bearer abc"));
    assert!(outcome.early);
    let timings = outcome.timings;
    assert!(timings.sending_ms <= timings.ticket_ms && timings.ticket_ms <= timings.stored_ms, "{timings:?}");
    let sent = events.iter().filter_map(|event| match event {
        Event::Progress { sent, total } => Some((*sent, *total)),
        _ => None,
    });
    let sent: Vec<(u64, u64)> = sent.collect();
    assert!(sent.is_sorted() && sent.last().is_some_and(|(sent, total)| sent == total), "{sent:?}");
    assert!(breaker.passed() < ONCE, "{} bytes passed", breaker.passed());
}

#[test]
fn a_ticket_that_comes_in_mid_push_is_used_and_nothing_is_sent_twice() {
    // No waiting: the ticket comes while records are on their way, or before the gateway is found.
    let folder = tempfile::tempdir().unwrap();
    let gateway = gateway(folder.path(), &[]);
    let world = World::new(|request| request, folder);
    let breaker = Breaker::before(&gateway.url, &[]);
    world.push(&breaker.url(), None);
    assert!(breaker.passed() < ONCE, "{} bytes passed", breaker.passed());
}

#[test]
fn a_service_that_ignores_or_refuses_the_key_gets_the_upload_all_the_same() {
    let ignored = |mut request: Vec<u8>| {
        let at = request.windows(7).position(|window| window == b"\"key\":\"").expect("a key of our own");
        // `"key":"…",` is as long as so many spaces.
        request[at..at + 7 + 43 + 2].fill(b' ');
        request
    };
    let refused = |mut request: Vec<u8>| {
        let at = request.windows(7).position(|window| window == b"\"key\":\"").expect("a key of our own");
        request[at + 3] = b'x';
        request
    };
    let acts: [fn(Vec<u8>) -> Vec<u8>; 2] = [ignored, refused];
    for act in acts {
        let folder = tempfile::tempdir().unwrap();
        let gateway = gateway(folder.path(), &[]);
        let path = folder.path().to_owned();
        let world = World::new(
            move |request| {
                whole_file(&path);
                act(request)
            },
            folder,
        );
        let (outcome, _) = world.push(&gateway.url, None);
        assert!(!outcome.early);
    }
}

#[test]
fn a_token_of_unpredicted_length_costs_another_key_and_nothing_else() {
    let folder = tempfile::tempdir().unwrap();
    let gateway = gateway(folder.path(), &[]);
    let path = folder.path().to_owned();
    let mut first = true;
    let world = World::new(
        move |request| {
            whole_file(&path);
            if !std::mem::take(&mut first) {
                return request;
            }
            // A proxy before the service adds a cookie.
            let text = String::from_utf8(request).unwrap();
            let altered = text.replace("accept: application/json", "cookie: aaaaaaaaaaaaaaaa");
            assert_ne!(altered, text);
            altered.into_bytes()
        },
        folder,
    );
    let authorization = format!("Bearer {}", "x".repeat(80));
    let (outcome, events) = world.push(&gateway.url, Some(&authorization));
    assert!(!outcome.early);
    let tickets = events.iter().filter(|event| matches!(event, Event::Ticket { .. })).count();
    assert_eq!(tickets, 2);
}

#[test]
fn when_the_gateway_refuses_early_records_the_push_waits_for_its_ticket() {
    let folder = tempfile::tempdir().unwrap();
    let gateway = gateway(folder.path(), &[]);
    let world = World::new(|request| request, folder);
    // A gateway of before: it asks for the prelude.
    let strict = strict_gateway(gateway.url.strip_prefix("http://").unwrap().parse().unwrap());
    let (outcome, _) = world.push(&format!("http://{strict}"), None);
    assert!(!outcome.early);
}

/// Refuses early records itself and passes everything else on.
fn strict_gateway(target: SocketAddr) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for mut client in listener.incoming().flatten() {
            std::thread::spawn(move || {
                let mut head = Vec::new();
                let mut byte = [0];
                while !head.ends_with(b"\r\n\r\n") {
                    if client.read(&mut byte).unwrap_or(0) == 0 {
                        return;
                    }
                    head.push(byte[0]);
                }
                if String::from_utf8_lossy(&head).contains("hoop-early: ?1") {
                    let body =
                        r#"{"type":"urn:hoop:error:prelude-needed","code":"prelude-needed","title":"","status":428}"#;
                    let head = "HTTP/1.1 428 Precondition Required\r\nContent-Type: application/problem+json\r\n";
                    let _ = write!(client, "{head}Content-Length: {}\r\n\r\n{body}", body.len());
                    let _ = std::io::copy(&mut client, &mut std::io::sink());
                    return;
                }
                let Ok(mut server) = TcpStream::connect(target) else { return };
                let (mut back_from, mut back_to) = (server.try_clone().unwrap(), client.try_clone().unwrap());
                std::thread::spawn(move || std::io::copy(&mut back_from, &mut back_to));
                if server.write_all(&head).is_ok() {
                    let _ = std::io::copy(&mut client, &mut server);
                }
                let _ = server.shutdown(std::net::Shutdown::Write);
            });
        }
    });
    address
}

#[test]
fn a_gateway_killed_before_the_prelude_comes_still_gets_the_early_upload() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().to_owned();
    let port = common::free_port();
    // The test owns the gateway: what the world owns lives in a thread that nobody waits for, and is never dropped.
    let running = Arc::new(Mutex::new(Some(gateway_at(&path, port))));
    let shared = Arc::downgrade(&running);
    let world = World::new(
        move |request| {
            whole_file(&path);
            let Some(running) = shared.upgrade() else { return request };
            let mut running = running.lock().unwrap();
            // SIGKILL.
            drop(running.take());
            *running = Some(gateway_at(&path, port));
            request
        },
        folder,
    );
    world.push(&format!("http://127.0.0.1:{port}"), None);
}
