//! The service as a process that is killed at any moment: what was answered 2xx is delivered exactly once, or said to be
//! unknown.

use crate::support::device::{self, Sealed, Ticket, seal};
use crate::support::upstream::{Behaviour, Upstream, answer};
use crate::support::{self, bytes, idempotency_key, wire};
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// How the child is told where everything is: state folder, address, application.
const CHILD: &str = "HOOP_TEST_SERVICE";

/// Not a claim of its own: in the child process, this is the service.
#[test]
fn a_child_process_serves_when_it_is_told_to() {
    let Ok(told) = std::env::var(CHILD) else { return };
    let [dir, listen, upstream] = told.split('|').collect::<Vec<_>>()[..] else { panic!("{told}") };
    let runtime = tokio::runtime::Runtime::new().unwrap();
    runtime.block_on(async {
        let mut config = support::config(upstream.parse().unwrap(), PathBuf::from(dir));
        config.listen = listen.parse().unwrap();
        config.answer_timeout = Duration::from_secs(20);
        let (_never, stop) = hoop_http::shutdown();
        hoop_service::Service::open(config).await.unwrap().run(stop).await;
    });
}

/// The service in a process of its own, which can be killed and started again at the same address.
struct Process {
    dir: PathBuf,
    address: SocketAddr,
    upstream: SocketAddr,
    child: Child,
}

impl Process {
    async fn start(dir: &Path, upstream: SocketAddr) -> Self {
        let address = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let child = spawn(dir, address, upstream);
        let process = Self { dir: dir.to_owned(), address, upstream, child };
        process.ready().await;
        process
    }

    /// SIGKILL, and a new one.
    async fn crash(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
        self.child = spawn(&self.dir, self.address, self.upstream);
        self.ready().await;
    }

    async fn ready(&self) {
        let deadline = tokio::time::Instant::now() + support::PATIENCE;
        while tokio::net::TcpStream::connect(self.address).await.is_err() {
            assert!(tokio::time::Instant::now() < deadline, "the child does not listen");
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn spawn(dir: &Path, address: SocketAddr, upstream: SocketAddr) -> Child {
    Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "crash::a_child_process_serves_when_it_is_told_to", "--test-threads=1"])
        .env(CHILD, format!("{}|{address}|{upstream}", dir.display()))
        .stdout(Stdio::null())
        .spawn()
        .unwrap()
}

/// A small generator, so that a run can be repeated from its seed.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % bound
    }
}

fn seed() -> u64 {
    let seed = std::env::var("HOOP_TEST_SEED").ok().and_then(|text| text.parse().ok());
    let seed = seed.unwrap_or_else(|| u64::from_le_bytes(bytes_of_clock()) | 1);
    println!("HOOP_TEST_SEED={seed}");
    seed
}

fn bytes_of_clock() -> [u8; 8] {
    let since = std::time::SystemTime::now().duration_since(std::time::SystemTime::UNIX_EPOCH).unwrap();
    (since.as_nanos() as u64).to_le_bytes()
}

/// Sends an upload until the service says that it is over: in ranges of random size, as a gateway does. Whatever was
/// answered 2xx must never be missing again. Returns the last state.
async fn deliver(address: SocketAddr, sealed: &Sealed, mut random: Random) -> String {
    let path = format!("/hoop/post/{}", sealed.id);
    let records = sealed.layout.records();
    let mut kept = hoop_units::RangeSet::new();
    let mut receipt = false;
    let deadline = tokio::time::Instant::now() + 3 * support::PATIENCE;
    loop {
        assert!(tokio::time::Instant::now() < deadline, "upload {} does not end", sealed.id);
        let Some(head) = wire::exchange(address, &wire::request("HEAD", &path, &[], b"")).await else {
            tokio::time::sleep(Duration::from_millis(5)).await;
            continue;
        };
        let state = head.field("hoop-state").unwrap_or("nothing").to_owned();
        let missing: hoop_units::RangeSet = match head.status {
            404 => [hoop_units::ByteRange::new(0, sealed.z.len() as u64)].into_iter().collect(),
            _ => head.field("hoop-missing").unwrap().parse().unwrap(),
        };
        for span in kept.iter() {
            let lost = missing.iter().any(|gap| !gap.intersect(span).is_empty());
            assert!(!lost, "{span} was answered 2xx and is missing: {missing}");
        }
        assert!(!receipt || state != "receiving", "a receipt went backwards");
        match state.as_str() {
            "nothing" | "receiving" => {
                let gap = missing.iter().next().unwrap();
                let first = sealed.layout.record_at(gap.start).unwrap_or(0);
                let end = (first + 1 + random.below(8)).min(records);
                let range = sealed.records(first, end);
                if let Some(reply) = wire::exchange(address, &sealed.put_request(range)).await {
                    assert!(matches!(reply.status, 200 | 202), "{reply:?}");
                    kept.insert(range);
                    receipt |= reply.field("hoop-state") != Some("receiving");
                }
            }
            "received" => {
                receipt = true;
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
            _ => return state,
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_accepted_upload_arrives_once_or_is_unknown_despite_kills() {
    const UPLOADS: usize = 12;
    const CRASHES: usize = 25;
    let seed = seed();
    let mut random = Random(seed);
    // A slow answer now and then, so that the kill finds the gate passed.
    let upstream = Upstream::new(|number, _| match number % 3 {
        0 => Behaviour::Late(Duration::from_millis(40), b"HTTP/1.1 201 Created\r\nContent-Length: 0\r\n\r\n".to_vec()),
        _ => answer("201 Created", ""),
    })
    .await;
    let dir = tempfile::tempdir().unwrap();
    let mut process = Process::start(dir.path(), upstream.address).await;
    let address = process.address;
    let mut uploads: BTreeMap<String, (Ticket, Vec<u8>)> = BTreeMap::new();
    let mut senders = tokio::task::JoinSet::new();
    for n in 0..UPLOADS {
        let ticket = device::ticket_at(address, &serde_json::json!({})).await;
        let body = bytes(random.below(3 << 20) as usize, seed + n as u64);
        let sealed = seal(&ticket, &body);
        uploads.insert(ticket.id.clone(), (ticket, body));
        let random = Random(seed.wrapping_mul(n as u64 + 3) | 1);
        senders.spawn(async move {
            let state = deliver(address, &sealed, random).await;
            (sealed.id, state)
        });
    }
    for _ in 0..CRASHES {
        tokio::time::sleep(Duration::from_millis(random.below(120))).await;
        process.crash().await;
    }
    let states: BTreeMap<String, String> = senders.join_all().await.into_iter().collect();
    let mut unknown = 0;
    for (id, (_, body)) in &uploads {
        let key = format!("\"{}\"", idempotency_key(id));
        let whole = upstream.whole();
        let arrived: Vec<_> = whole.iter().filter(|arrival| arrival.fields("idempotency-key") == [&key]).collect();
        match states[id].as_str() {
            "accepted" => assert_eq!(arrived.len(), 1, "{id}"),
            "unknown" => {
                unknown += 1;
                assert!(arrived.len() <= 1, "{id} came {} times", arrived.len());
            }
            other => panic!("{id} is {other}"),
        }
        assert!(arrived.iter().all(|arrival| arrival.body == *body), "{id} came altered");
    }
    println!("{} accepted, {unknown} unknown", UPLOADS - unknown);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_kill_while_the_application_has_it_all_makes_an_upload_unknown() {
    let upstream = Upstream::new(|_, _| Behaviour::TakeAndKeep).await;
    let dir = tempfile::tempdir().unwrap();
    let mut process = Process::start(dir.path(), upstream.address).await;
    let ticket = device::ticket_at(process.address, &serde_json::json!({})).await;
    let sealed = seal(&ticket, &bytes(300_000, 1));
    assert_eq!(wire::send(process.address, "POST", "/hoop/post", &[], &sealed.z).await.status, 202);
    upstream.has(1).await;
    process.crash().await;
    let state = deliver(process.address, &sealed, Random(1)).await;
    assert_eq!(state, "unknown");
    assert_eq!(upstream.whole().len(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_kill_before_the_last_bytes_replays_an_upload_from_the_start() {
    // The first connection is never read, so that the replay hangs before its gate.
    let upstream = Upstream::new(|number, _| match number {
        0 => Behaviour::Deaf,
        _ => answer("201 Created", ""),
    })
    .await;
    let dir = tempfile::tempdir().unwrap();
    let mut process = Process::start(dir.path(), upstream.address).await;
    let ticket = device::ticket_at(process.address, &serde_json::json!({})).await;
    // More than the kernel's buffers on both sides hold.
    let body = bytes(24 << 20, 1);
    let sealed = seal(&ticket, &body);
    assert_eq!(wire::send(process.address, "POST", "/hoop/post", &[], &sealed.z).await.status, 202);
    upstream.has(1).await;
    process.crash().await;
    assert_eq!(deliver(process.address, &sealed, Random(1)).await, "accepted");
    let whole = upstream.whole();
    assert_eq!(whole.len(), 1);
    assert!(whole[0].body == body);
}
