//! What passes through takes no memory. In a process of its own, so that nothing else counts.

#[path = "it/support/mod.rs"]
mod support;

use std::time::Duration;
use support::wire::read_until;
use support::{PATIENCE, bytes, played};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

/// Resident memory of this process, in bytes.
fn resident() -> usize {
    let status = std::fs::read_to_string("/proc/self/statm").unwrap();
    status.split(' ').nth(1).unwrap().parse::<usize>().unwrap() * 4096
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn large_bodies_stream_both_ways_in_flat_memory() {
    const SIZE: usize = 400 << 20;
    const ALLOWED: usize = 64 << 20;
    let (listener, sidecar) = played().await;
    let application = tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        read_until(&mut stream, b"\r\n\r\n").await;
        stream.write_all(format!("HTTP/1.1 200 OK\r\nContent-Length: {SIZE}\r\n\r\n").as_bytes()).await.unwrap();
        let (mut reader, mut writer) = stream.split();
        // It ignores `Connection: close`, so that the service resets it in the end.
        let _ = tokio::io::copy(&mut reader, &mut writer).await;
    });
    let client = TcpStream::connect(sidecar.address).await.unwrap();
    let (mut reader, mut writer) = client.into_split();
    let piece = bytes(1 << 20, 5);
    let before = resident();
    let written = piece.clone();
    tokio::spawn(async move {
        let head = format!("POST /echo HTTP/1.1\r\nHost: a\r\nConnection: close\r\nContent-Length: {SIZE}\r\n\r\n");
        writer.write_all(head.as_bytes()).await.unwrap();
        for _ in 0..SIZE >> 20 {
            writer.write_all(&written).await.unwrap();
        }
        // Kept open: a client that closes has gone away.
        std::future::pending::<()>().await;
        drop(writer);
    });
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(reader.read_u8().await.unwrap());
    }
    let (mut got, mut peak) = (vec![0; 1 << 20], 0);
    for n in 0..SIZE >> 20 {
        tokio::time::timeout(PATIENCE, reader.read_exact(&mut got)).await.expect("it keeps coming").unwrap();
        assert!(got == piece, "piece {n}");
        peak = peak.max(resident());
    }
    assert!(peak < before + ALLOWED, "{} MiB more than before", (peak - before) >> 20);
    drop(reader);
    tokio::time::timeout(PATIENCE, application).await.unwrap().unwrap();
    // Nothing else of ours takes so long to stop.
    tokio::time::timeout(Duration::from_secs(30), sidecar.stop()).await.unwrap();
}
