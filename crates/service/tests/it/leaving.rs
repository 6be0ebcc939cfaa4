//! Clients that leave before they have their answer: their connections to the application end.

use crate::support::wire::{self, read_until};
use crate::support::{PATIENCE, Sidecar};
use socket2::SockRef;
use std::net::SocketAddr;
use std::time::Duration;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::timeout;

/// A service before an application that a test plays itself.
async fn played() -> (TcpListener, Sidecar) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let sidecar = Sidecar::before(listener.local_addr().unwrap()).await;
    (listener, sidecar)
}

/// The request's head has come to the application, which then says what it is told to.
async fn begins(listener: &TcpListener, says: &[u8]) -> TcpStream {
    let (mut application, _) = timeout(PATIENCE, listener.accept()).await.unwrap().unwrap();
    read_until(&mut application, b"\r\n\r\n").await;
    application.write_all(says).await.unwrap();
    application
}

#[tokio::test]
async fn a_client_that_leaves_with_a_byte_behind_its_request_frees_the_application() {
    let (listener, sidecar) = played().await;
    let get = wire::request("GET", "/slow", &[], b"");
    let post = wire::request("POST", "/slow", &[("Transfer-Encoding", "chunked")], b"");
    for request in [[get.as_slice(), b"G"].concat(), [post.as_slice(), b"0\r\n\r\nG"].concat()] {
        for says in ["", "HTTP/1.1 200 OK\r\n\r\nbegun"] {
            let mut client = TcpStream::connect(sidecar.address).await.unwrap();
            client.write_all(&request).await.unwrap();
            let mut application = begins(&listener, says.as_bytes()).await;
            drop(client);
            let mut rest = Vec::new();
            let ended = timeout(PATIENCE, application.read_to_end(&mut rest)).await;
            assert!(ended.is_ok(), "{:?}, {says:?}", String::from_utf8_lossy(&request));
        }
    }
}

/// Whether the service still has its end of a connection.
fn is_held(end: SocketAddr) -> bool {
    let table = std::fs::read_to_string("/proc/net/tcp").unwrap();
    let local = format!(":{:04X}", end.port());
    // The local end, the other one, and the state: established, or its other end has closed.
    let mut rows = table.lines().skip(1).map(|row| row.split_whitespace().skip(1).take(3).collect::<Vec<_>>());
    rows.any(|row| row[0].ends_with(&local) && ["01", "08"].contains(&row[2]))
}

#[tokio::test]
async fn a_body_that_the_application_does_not_read_ends_with_its_client() {
    let (listener, sidecar) = played().await;
    for says in ["", "HTTP/1.1 200 OK\r\n\r\nbegun"] {
        let mut client = TcpStream::connect(sidecar.address).await.unwrap();
        let head = "POST /up HTTP/1.1\r\nHost: photos.example\r\nContent-Length: 1000000000\r\n\r\n";
        client.write_all(head.as_bytes()).await.unwrap();
        let application = begins(&listener, says.as_bytes()).await;
        let piece = vec![7; 1 << 20];
        while timeout(Duration::from_millis(500), client.write_all(&piece)).await.is_ok() {}
        let end = application.peer_addr().unwrap();
        assert!(is_held(end));
        // The end of one that closes would wait behind what is not read.
        SockRef::from(&client).set_linger(Some(Duration::ZERO)).unwrap();
        drop(client);
        let ends = async {
            while is_held(end) {
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        };
        timeout(PATIENCE, ends).await.unwrap_or_else(|_| panic!("it is kept: {says:?}"));
    }
}

#[tokio::test]
async fn an_application_that_has_answered_may_still_read_the_body() {
    let (listener, sidecar) = played().await;
    let mut client = TcpStream::connect(sidecar.address).await.unwrap();
    let head = "POST /up HTTP/1.1\r\nHost: photos.example\r\nContent-Length: 2000000\r\n\r\n";
    client.write_all(head.as_bytes()).await.unwrap();
    let mut application = begins(&listener, b"HTTP/1.1 202 Accepted\r\nContent-Length: 4\r\n\r\nsoon").await;
    read_until(&mut client, b"soon").await;
    let reads = async { application.read_exact(&mut vec![0; 2_000_000]).await.unwrap() };
    let sends = async { client.write_all(&vec![7; 2_000_000]).await.unwrap() };
    timeout(PATIENCE, async { tokio::join!(reads, sends) }).await.expect("all of it comes");
}
