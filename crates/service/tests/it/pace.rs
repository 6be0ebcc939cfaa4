//! Who is slow on the way to the application, or back: senders, readers, and both ends of a WebSocket.

use crate::support::upstream::{Behaviour, Upstream};
use crate::support::wire::{self, read_until};
use crate::support::{PATIENCE, Sidecar};
use hoop_http::LeastRate;
use std::time::Duration;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::timeout;

const SHORT: Duration = Duration::from_secs(1);

/// A service before an application that a test plays itself, with a short patience of each kind.
async fn hasty() -> (TcpListener, Sidecar) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let sidecar = Sidecar::with(listener.local_addr().unwrap(), |config| {
        (config.body_timeout, config.tunnel_idle) = (SHORT, SHORT);
        config.limits.least_read = Some(LeastRate { bytes: 16 << 10, within: SHORT });
    });
    (listener, sidecar.await)
}

#[tokio::test]
async fn a_body_that_stops_or_drips_is_cut_off_and_frees_the_application() {
    for drips in [false, true] {
        let upstream = Upstream::new(|_, _| Behaviour::TakeAndKeep).await;
        let sidecar = Sidecar::with(upstream.address, |config| config.body_timeout = SHORT).await;
        let stream = TcpStream::connect(sidecar.address).await.unwrap();
        let (mut reader, mut writer) = stream.into_split();
        let head = "POST /up HTTP/1.1\r\nHost: photos.example\r\nContent-Length: 1000000\r\n\r\nbegin";
        writer.write_all(head.as_bytes()).await.unwrap();
        let mut answer = Vec::new();
        let dripping = async {
            loop {
                tokio::time::sleep(Duration::from_millis(50)).await;
                if drips {
                    let _ = writer.write_all(b"x").await;
                }
            }
        };
        let answered = async {
            tokio::select! { len = reader.read_to_end(&mut answer) => len, () = dripping => unreachable!() }
        };
        timeout(PATIENCE, answered).await.expect("it is cut off").unwrap();
        assert_eq!(wire::Reply::parse(&answer).problem(), (408, "request-timeout".into()), "drips: {drips}");
        upstream.has(1).await;
        assert!(!upstream.arrivals()[0].whole, "its connection has ended, too");
    }
}

#[tokio::test]
async fn an_answer_that_nobody_reads_ends_on_both_sides() {
    let (listener, sidecar) = hasty().await;
    let mut client = TcpStream::connect(sidecar.address).await.unwrap();
    client.write_all(&wire::request("GET", "/film", &[], b"")).await.unwrap();
    let (mut application, _) = listener.accept().await.unwrap();
    read_until(&mut application, b"\r\n\r\n").await;
    application.write_all(b"HTTP/1.1 200 OK\r\n\r\n").await.unwrap();
    let writing = async { while application.write_all(&[0; 1 << 16]).await.is_ok() {} };
    timeout(PATIENCE, writing).await.expect("it is told to stop");
    drop(client);
}

#[tokio::test]
async fn an_idle_websocket_ends_and_a_busy_one_does_not() {
    let (listener, sidecar) = hasty().await;
    let mut client = TcpStream::connect(sidecar.address).await.unwrap();
    let fields = [("Connection", "Upgrade"), ("Upgrade", "websocket")];
    client.write_all(&wire::request("GET", "/socket", &fields, b"")).await.unwrap();
    let (mut application, _) = listener.accept().await.unwrap();
    read_until(&mut application, b"\r\n\r\n").await;
    let switch = "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n";
    application.write_all(switch.as_bytes()).await.unwrap();
    read_until(&mut client, b"\r\n\r\n").await;
    for _ in 0..6 {
        // Longer than the patience in all.
        tokio::time::sleep(SHORT / 4).await;
        application.write_all(b"ping").await.unwrap();
        read_until(&mut client, b"ping").await;
    }
    let ended = timeout(PATIENCE, client.read(&mut [0])).await.expect("it ends");
    assert!(matches!(ended, Ok(0) | Err(_)));
    let ended = timeout(PATIENCE, application.read(&mut [0])).await.expect("on both sides");
    assert!(matches!(ended, Ok(0) | Err(_)));
}
