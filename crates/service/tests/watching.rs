//! Whoever watches uploads takes little memory. In a process of its own, so that nothing else counts.

#[path = "it/support/mod.rs"]
mod support;

use serde_json::json;
use support::device::{Ticket, ask};
use support::upstream::Upstream;
use support::{COOKIE, PATIENCE, Sidecar, wire};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

/// Resident memory of this process, in bytes.
fn resident() -> usize {
    let status = std::fs::read_to_string("/proc/self/statm").unwrap();
    status.split(' ').nth(1).unwrap().parse::<usize>().unwrap() * 4096
}

/// Reads a stream of events until so many uploads were told.
async fn told(mut stream: TcpStream, uploads: usize) {
    let (mut piece, mut text, mut seen) = (vec![0; 64 * 1024], Vec::new(), 0);
    while seen < uploads {
        let read = tokio::time::timeout(PATIENCE, stream.read(&mut piece)).await.expect("it keeps coming").unwrap();
        assert!(read > 0, "the stream ended after {seen}");
        text.extend_from_slice(&piece[..read]);
        while let Some(end) = text.windows(2).position(|two| two == b"\n\n") {
            let event = String::from_utf8(text.drain(..end + 2).collect()).unwrap();
            seen += usize::from(event.contains("event: upload\n"));
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn eight_readers_of_112_uploads_with_1000_files_take_little_memory() {
    const NOTES: usize = 112;
    const ALLOWED: usize = 64 << 20;
    let upstream = Upstream::willing().await;
    let sidecar = Sidecar::before(upstream.address).await;
    let mut tickets = Vec::new();
    for _ in 0..NOTES / 16 {
        let reply = ask(sidecar.address, COOKIE, &json!({"count": 16})).await.json();
        tickets.extend(reply["tickets"].as_array().unwrap().iter().map(Ticket::parse));
    }
    let files: Vec<_> = (0..1_000).map(|n| json!({"name": format!("{n}.jpg"), "size": n})).collect();
    let note = json!({"total": 9, "files": files}).to_string();
    let before = resident();
    let mut readers = Vec::new();
    for _ in 0..8 {
        let mut stream = TcpStream::connect(sidecar.address).await.unwrap();
        let fields = [("Cookie", COOKIE), ("Accept", "text/event-stream")];
        stream.write_all(&wire::request("GET", "/hoop/uploads", &fields, b"")).await.unwrap();
        wire::read_until(&mut stream, b"event: uploads\n").await;
        readers.push(tokio::spawn(told(stream, NOTES)));
    }
    for ticket in &tickets {
        let fields = [("Hoop-Version", "1"), ("Hoop-Token", ticket.token.as_str())];
        let reply = sidecar.send("PUT", &format!("/hoop/uploads/{}", ticket.id), &fields, note.as_bytes()).await;
        assert_eq!(reply.status, 204, "{reply:?}");
    }
    for reader in readers {
        reader.await.unwrap();
    }
    let more = resident().saturating_sub(before);
    assert!(more < ALLOWED, "{} MiB more than before", more >> 20);
}
