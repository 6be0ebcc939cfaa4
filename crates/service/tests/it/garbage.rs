//! Whatever comes in: a clear refusal, never a crash, and never anything but the true request at the application.

use crate::support::device::{seal, ticket};
use crate::support::upstream::Upstream;
use crate::support::{self, Sidecar, bytes, wire};
use std::time::Duration;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

/// A small generator, so that a run can be repeated from its seed.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % bound as u64) as usize
    }
}

fn seed() -> u64 {
    let given = std::env::var("HOOP_TEST_SEED").ok().and_then(|text| text.parse().ok());
    let since = std::time::SystemTime::now().duration_since(std::time::SystemTime::UNIX_EPOCH).unwrap();
    let seed = given.unwrap_or(since.as_nanos() as u64) | 1;
    println!("HOOP_TEST_SEED={seed}");
    seed
}

/// Changes bytes somewhere: flips, cuts, repeats, or puts noise.
fn spoil(bytes: &mut Vec<u8>, random: &mut Random) {
    let at = random.below(bytes.len());
    match random.below(4) {
        0 => bytes[at] ^= 1 << random.below(8),
        1 => bytes.truncate(at.max(1)),
        2 => {
            let piece = bytes[at..(at + 1 + random.below(70_000)).min(bytes.len())].to_vec();
            bytes.splice(at..at, piece);
        }
        _ => {
            let noise = support::bytes(1 + random.below(300), random.0);
            let end = (at + noise.len()).min(bytes.len());
            bytes.splice(at..end, noise);
        }
    }
}

#[tokio::test]
async fn spoilt_bodies_are_refused_and_the_true_one_arrives() {
    let mut random = Random(seed());
    let upstream = Upstream::willing().await;
    let sidecar = Sidecar::before(upstream.address).await;
    for round in 0..12 {
        let ticket = ticket(&sidecar).await;
        let body = bytes(random.below(300_000), random.0);
        let sealed = seal(&ticket, &body);
        for _ in 0..12 {
            let mut z = sealed.z.clone();
            spoil(&mut z, &mut random);
            if z == sealed.z {
                continue;
            }
            let reply = sidecar.send("POST", "/hoop/post", &[], &z).await;
            // What is spoilt in a record that is here already does no harm: together, several may make the whole.
            match reply.status {
                200 | 202 => break,
                status => assert!((400..500).contains(&status), "round {round}: {:?}", reply.problem()),
            }
        }
        let reply = sealed.post(&sidecar).await;
        assert!(matches!(reply.status, 200 | 202), "{reply:?}");
        sidecar.reaches(&ticket.id, "accepted").await;
        assert_eq!(upstream.arrivals().len(), round + 1);
        assert!(upstream.whole()[round].body == body, "round {round}");
    }
}

#[tokio::test]
async fn spoilt_requests_of_every_kind_leave_the_service_as_it_was() {
    let mut random = Random(seed());
    let upstream = Upstream::willing().await;
    let sidecar = Sidecar::before(upstream.address).await;
    let ticket = ticket(&sidecar).await;
    let sealed = seal(&ticket, &bytes(100_000, 3));
    let id = ticket.id.as_str();
    let version = [("Hoop-Version", "1"), ("Content-Type", "application/json"), ("Hoop-Token", ticket.token.as_str())];
    let requests = [
        sealed.put_request(sealed.records(1, 2)),
        wire::request("POST", "/hoop/tickets", &version, br#"{"method":"PUT","target":"/x?y","count":2}"#),
        wire::request("HEAD", &format!("/hoop/post/{id}"), &[], b""),
        wire::request("GET", &format!("/hoop/uploads/{id}"), &[("Prefer", "wait=0")], b""),
        wire::request("POST", &format!("/hoop/uploads/{id}"), &version, b""),
        wire::request("GET", "/.well-known/hoop", &[], b""),
    ];
    const ROUNDS: usize = 400;
    // Some wait for what never comes: several at once.
    const AT_ONCE: usize = 20;
    let mut answered = 0;
    for round in (0..ROUNDS).step_by(AT_ONCE) {
        let mut asked = tokio::task::JoinSet::new();
        for round in round..round + AT_ONCE {
            let mut request = requests[round % requests.len()].clone();
            let head = request.windows(4).position(|window| window == b"\r\n\r\n").unwrap();
            let at = random.below(head);
            request[at] = random.below(256) as u8;
            asked.spawn(ask(sidecar.address, request, head));
        }
        answered += asked.join_all().await.into_iter().filter(|answered| *answered).count();
    }
    assert!(answered * 10 >= ROUNDS * 9, "only {answered} of {ROUNDS} were answered");
    sealed.post(&sidecar).await;
    sidecar.reaches(&ticket.id, "accepted").await;
    let own = upstream.whole().into_iter().filter(|arrival| !arrival.fields("idempotency-key").is_empty());
    assert_eq!(own.map(|arrival| arrival.body).collect::<Vec<_>>(), [bytes(100_000, 3)]);
}

/// Sends a request with a head of so many bytes; whether it was answered, which must be without a fault of the service's.
async fn ask(address: std::net::SocketAddr, request: Vec<u8>, head: usize) -> bool {
    let stream = tokio::net::TcpStream::connect(address).await.unwrap();
    let (mut reader, mut writer) = stream.into_split();
    let _ = writer.write_all(&request).await;
    let mut answer = Vec::new();
    // A request that announces more than it has, or keeps its connection, is waited for: it is cut off by closing.
    // Only then, since a half-closed connection is dropped unanswered.
    let _ = tokio::time::timeout(Duration::from_secs(1), reader.read_to_end(&mut answer)).await;
    let _ = writer.shutdown().await;
    let _ = reader.read_to_end(&mut answer).await;
    if !answer.is_empty() {
        let status = wire::Reply::parse(&answer).status;
        assert!(status < 500, "{status} for {:?}", String::from_utf8_lossy(&request[..head]));
    }
    !answer.is_empty()
}
