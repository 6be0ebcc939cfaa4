//! Lists of uploads cost the service little, whoever asks for them and does not read them.

use crate::support::device::{Ticket, ask};
use crate::support::upstream::Upstream;
use crate::support::{COOKIE, PATIENCE, Sidecar, wire};
use serde_json::json;
use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpSocket, TcpStream};

/// Long enough for whoever is waited for to be behind.
const STANDS: Duration = Duration::from_millis(300);

const HOUR: Duration = Duration::from_secs(3600);

/// A service that nobody is cut off from for being slow, with so many notes of Alice's as long as notes may be.
async fn with_long_notes(upstream: SocketAddr, count: u8) -> Sidecar {
    let sidecar = Sidecar::with(upstream, |config| {
        config.limits.least_read = None;
        config.limits.idle_timeout = HOUR;
    });
    let sidecar = sidecar.await;
    let tickets = ask(sidecar.address, COOKIE, &json!({"count": count})).await.json();
    let file = json!({"name": "é".repeat(1_560), "type": "a/b"});
    let note = json!({"total": 1_000, "files": vec![file; 20]}).to_string();
    for ticket in tickets["tickets"].as_array().unwrap().iter().map(Ticket::parse) {
        let fields = [("Hoop-Version", "1"), ("Hoop-Token", ticket.token.as_str())];
        let reply = sidecar.send("PUT", &format!("/hoop/uploads/{}", ticket.id), &fields, note.as_bytes()).await;
        assert_eq!(reply.status, 204, "{reply:?}");
    }
    sidecar
}

/// Asks for Alice's list from that address.
async fn asks(sidecar: &Sidecar, from: Ipv4Addr, accept: &str) -> TcpStream {
    let socket = TcpSocket::new_v4().unwrap();
    socket.set_recv_buffer_size(4096).unwrap();
    // As in a network, and not as on loopback, where the kernel takes megabytes for who reads nothing.
    socket2::SockRef::from(&socket).set_tcp_mss(536).unwrap();
    socket.bind((from, 0).into()).unwrap();
    let mut stream = socket.connect(sidecar.address).await.unwrap();
    let fields = [("Cookie", COOKIE), ("Accept", accept)];
    stream.write_all(&wire::request("GET", "/hoop/uploads", &fields, b"")).await.unwrap();
    stream
}

/// All that comes, and whether that is a whole answer.
async fn reads(mut stream: TcpStream) -> (Vec<u8>, bool) {
    let mut answer = Vec::new();
    // A connection that made way may end with a reset.
    let _ = tokio::time::timeout(PATIENCE, stream.read_to_end(&mut answer)).await.expect("it ends");
    let text = String::from_utf8_lossy(&answer);
    let (head, _) = text.split_once("\r\n\r\n").unwrap_or_default();
    let length = head.to_ascii_lowercase().lines().find_map(|line| line.strip_prefix("content-length: ")?.parse().ok());
    let whole = length.is_some_and(|length: usize| answer.len() == head.len() + 4 + length);
    (answer, whole)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_that_reads_no_list_gets_two_and_blocks_nobody() {
    let upstream = Upstream::willing().await;
    let sidecar = with_long_notes(upstream.address, 16).await;
    let (one, other) = (Ipv4Addr::new(127, 1, 1, 1), Ipv4Addr::new(127, 2, 2, 2));
    let mut unread = Vec::new();
    for _ in 0..12 {
        unread.push(asks(&sidecar, one, "application/json").await);
        tokio::time::sleep(STANDS).await;
    }
    let is_list = |(answer, whole): &(Vec<u8>, bool)| *whole && answer.starts_with(b"HTTP/1.1 200 ");
    for from in [other, one] {
        let gets = async {
            loop {
                let got = reads(asks(&sidecar, from, "application/json").await).await;
                if is_list(&got) {
                    return got.0.len();
                }
                assert!(got.0.starts_with(b"HTTP/1.1 429 "), "{:?}", String::from_utf8_lossy(&got.0));
            }
        };
        assert!(tokio::time::timeout(PATIENCE, gets).await.expect("a list for whoever reads it") > 400_000);
    }
    let mut kept = 0;
    for stream in unread {
        kept += usize::from(is_list(&reads(stream).await));
    }
    assert!(kept <= 2, "{kept} of 12 were kept");
}

/// One address had hundreds of streams begin with a list at once, and everybody's lists waited behind these.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stream_of_events_takes_its_clients_turn_for_a_list() {
    let upstream = Upstream::willing().await;
    let sidecar = with_long_notes(upstream.address, 16).await;
    let one = Ipv4Addr::new(127, 1, 1, 1);
    let mut unread = Vec::new();
    for _ in 0..2 {
        unread.push(asks(&sidecar, one, "application/json").await);
        tokio::time::sleep(STANDS).await;
    }
    let mut stream = asks(&sidecar, one, "text/event-stream").await;
    let begins = crate::support::wire::read_until(&mut stream, b"\n\n").await;
    assert!(begins.starts_with(b"HTTP/1.1 200 "), "{:?}", String::from_utf8_lossy(&begins[..100]));
    let mut kept = 0;
    for list in unread {
        kept += usize::from(reads(list).await.1);
    }
    assert_eq!(kept, 1, "one has made way: a client has two at once");
}

#[tokio::test]
async fn a_list_has_as_many_entries_as_there_is_room_for_in_each_form() {
    let upstream = Upstream::willing().await;
    let sidecar = with_long_notes(upstream.address, 16).await;
    let list = sidecar.send("GET", "/hoop/uploads", &[("Cookie", COOKIE), ("Accept", "application/json")], b"").await;
    assert_eq!((list.status, list.json()["uploads"].as_array().unwrap().len()), (200, 8));
    assert!(list.body.len() <= 513 * 1024);
    let page = sidecar.send("GET", "/hoop/uploads", &[("Cookie", COOKIE), ("Accept", "text/html")], b"").await;
    let page = String::from_utf8(page.body).unwrap();
    assert_eq!(page.matches("<li class=\"upload card ").count(), 8);
}
