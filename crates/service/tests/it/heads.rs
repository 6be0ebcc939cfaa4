//! Heads that two programs could read differently end here; those that are only unusual reach the application.

use crate::support::upstream::Upstream;
use crate::support::wire::{self, read_until};
use crate::support::{PATIENCE, Sidecar, played};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

/// What comes back for these bytes until the connection ends, and what the application saw.
async fn outcome(bytes: &[u8]) -> (Option<wire::Reply>, Vec<String>) {
    let upstream = Upstream::willing().await;
    let sidecar = Sidecar::before(upstream.address).await;
    let reply = tokio::time::timeout(PATIENCE, wire::exchange(sidecar.address, bytes)).await.expect("it ends");
    (reply, upstream.arrivals().into_iter().map(|arrival| arrival.head).collect())
}

/// Each hides a second request, or another host, from whoever reads it in the other way.
#[tokio::test]
async fn no_smuggled_request_reaches_the_application() {
    let hidden = "GET /hidden HTTP/1.1\r\nHost: photos.example\r\n\r\n";
    let len = hidden.len();
    for fields in [
        format!("Content-Length: {len}\r\nContent-Length: 0"),
        format!("Content-Length: 0\r\nContent-Length: {len}"),
        format!("Content-Length: {len}\r\nContent-Length: {len}"),
        format!("Content-Length: {len}, 0"),
        format!("Content-Length: +{len}"),
        format!("Content-Length : {len}"),
        format!("Content_Length: {len}"),
        format!("Content-Length: {len}\r\nTransfer-Encoding: chunked"),
        "Transfer-Encoding: chunked\r\nContent-Length: 0".to_owned(),
        "Transfer-Encoding: xchunked".to_owned(),
        "Transfer-Encoding : chunked".to_owned(),
        "Transfer-Encoding: chunked\r\nTransfer-Encoding: identity".to_owned(),
        "Transfer-Encoding: chunked, identity".to_owned(),
        "Transfer-Encoding: gzip, chunked".to_owned(),
        "Transfer-Encoding:\r\n chunked".to_owned(),
        "X: y\r\n\tTransfer-Encoding: chunked".to_owned(),
        "X: y\nTransfer-Encoding: chunked".to_owned(),
        "X: y\rTransfer-Encoding: chunked".to_owned(),
        "X: y\0".to_owned(),
        "Host: evil.example".to_owned(),
        "host: photos.example".to_owned(),
    ] {
        let head = format!("POST / HTTP/1.1\r\nHost: photos.example\r\n{fields}\r\n\r\n0\r\n\r\n{hidden}");
        let (reply, seen) = outcome(head.as_bytes()).await;
        assert_eq!(seen, [""; 0], "{fields:?}");
        assert_eq!(reply.expect("a refusal").problem(), (400, "request-invalid".into()), "{fields:?}");
    }
    for line in ["GET http://evil.example/ HTTP/1.1", "GET / HTTP/1.1\nX: y", "GET /a b HTTP/1.1", "GET /a#b HTTP/1.1"]
    {
        let (reply, seen) = outcome(format!("{line}\r\nHost: photos.example\r\n\r\n{hidden}").as_bytes()).await;
        assert_eq!((reply.expect("a refusal").problem(), seen.len()), ((400, "request-invalid".into()), 0), "{line}");
    }
}

#[tokio::test]
async fn a_second_request_after_a_chunked_body_is_not_taken() {
    let second = "GET /second HTTP/1.1\r\nHost: photos.example\r\n\r\n";
    let first =
        "POST /first HTTP/1.1\r\nHost: photos.example\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n";
    let (reply, seen) = outcome(format!("{first}{second}").as_bytes()).await;
    let reply = reply.expect("an answer");
    assert_eq!((reply.status, reply.field("connection")), (201, Some("close")));
    assert!(seen.len() == 1 && seen[0].starts_with("POST /first "), "{seen:?}");
}

/// Of a body in chunks nobody knows how much is missing, so its connection would never make way for others.
#[tokio::test]
async fn what_is_sent_to_the_service_itself_has_a_length() {
    let head = "POST /hoop/tickets HTTP/1.1\r\nHost: photos.example\r\nHoop-Version: 1\r\nContent-Type: \
                application/json\r\nTransfer-Encoding: chunked\r\n\r\n";
    let (reply, _) = outcome(head.as_bytes()).await;
    assert_eq!(reply.expect("at once").problem(), (411, "length-required".into()));
}

#[tokio::test]
async fn requests_that_come_at_once_are_answered_in_their_order() {
    let with = |path: &str, body: &str, more: &str| {
        format!("POST {path} HTTP/1.1\r\nHost: photos.example\r\nContent-Length: {}\r\n{more}\r\n{body}", body.len())
    };
    let all = [with("/1", "one", ""), with("/2<", "", ""), with("/3", "three", "Connection: close\r\n")].concat();
    for piece in [1, 7, 4096] {
        let upstream = Upstream::willing().await;
        let sidecar = Sidecar::before(upstream.address).await;
        let mut stream = TcpStream::connect(sidecar.address).await.unwrap();
        stream.set_nodelay(true).unwrap();
        for piece in all.as_bytes().chunks(piece) {
            stream.write_all(piece).await.unwrap();
            tokio::task::yield_now().await;
        }
        let mut answers = Vec::new();
        tokio::time::timeout(PATIENCE, stream.read_to_end(&mut answers)).await.expect("it ends").unwrap();
        assert_eq!(String::from_utf8(answers).unwrap().matches("HTTP/1.1 201").count(), 3);
        let seen: Vec<_> =
            upstream.arrivals().iter().map(|arrival| (arrival.line().to_owned(), arrival.body.clone())).collect();
        let expected = [("/1", "one"), ("/2%3C", ""), ("/3", "three")];
        let expected = expected.map(|(path, body)| (format!("POST {path} HTTP/1.1"), body.as_bytes().to_vec()));
        assert_eq!(seen, expected, "in pieces of {piece}");
    }
}

#[tokio::test]
async fn targets_as_browsers_and_curl_send_them_reach_the_application() {
    for (target, expected) in [
        ("/a<b>", "/a%3Cb%3E"),
        ("/a`b\"c", "/a%60b%22c"),
        ("/{x}|y^z\\", "/%7Bx%7D%7Cy%5Ez%5C"),
        ("/search?q=\"a\"&r=<b>`", "/search?q=%22a%22&r=%3Cb%3E%60"),
        ("/caf\u{e9}?\u{1f4f7}", "/caf%C3%A9?%F0%9F%93%B7"),
        ("/a%3Cb?[1]=2&c=%zz", "/a%3Cb?[1]=2&c=%zz"),
        ("http://photos.example/x?y", "/x?y"),
    ] {
        let (reply, seen) = outcome(&wire::request("GET", target, &[], b"")).await;
        assert_eq!(reply.expect("an answer").status, 201, "{target}");
        assert!(seen[0].starts_with(&format!("GET {expected} HTTP/1.1\r\n")), "{seen:?}");
    }
}

#[tokio::test]
async fn heads_of_256_fields_pass_and_longer_ones_are_refused_with_a_reason() {
    let fields = |count: usize| vec![("X-Field", "y"); count - 2];
    let (reply, seen) = outcome(&wire::request("GET", "/", &fields(256), b"")).await;
    assert_eq!((reply.expect("an answer").status, seen[0].matches("x-field: y").count()), (201, 254));
    let (reply, _) = outcome(&wire::request("GET", "/", &fields(257), b"")).await;
    assert_eq!(reply.expect("an answer").problem(), (431, "head-too-large".into()));
    let long = "x".repeat(70_000);
    let (reply, _) = outcome(&wire::request("GET", "/", &[("X", &long)], b"")).await;
    assert_eq!(reply.expect("an answer").problem(), (431, "head-too-large".into()));
}

/// Whoever asks for another protocol talks past everything that reads HTTP, in front of the application and here.
#[tokio::test]
async fn no_protocol_but_websocket_is_tunnelled() {
    for protocol in ["h2c", "tcp", "websocket, h2c", "WebSocket2", "TLS/1.0"] {
        let fields =
            [("Connection", "close, Upgrade, HTTP2-Settings"), ("Upgrade", protocol), ("HTTP2-Settings", "AAMAAABk")];
        let (listener, sidecar) = played().await;
        let mut client = TcpStream::connect(sidecar.address).await.unwrap();
        client.write_all(&wire::request("GET", "/", &fields, b"")).await.unwrap();
        let (mut application, _) = listener.accept().await.unwrap();
        let head = String::from_utf8(read_until(&mut application, b"\r\n\r\n").await).unwrap().to_ascii_lowercase();
        assert!(!head.contains("upgrade") && !head.contains("http2-settings"), "{head}");
        // An application that switches all the same gets nowhere.
        let switch = format!("HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: {protocol}\r\n\r\n");
        application.write_all(switch.as_bytes()).await.unwrap();
        let mut answer = Vec::new();
        tokio::time::timeout(PATIENCE, client.read_to_end(&mut answer)).await.expect("it ends").unwrap();
        assert_eq!(wire::Reply::parse(&answer).problem(), (502, "upstream-broken".into()), "{protocol}");
    }
    let with_body = [("Connection", "close, Upgrade"), ("Upgrade", "websocket"), ("Content-Length", "3")];
    let (_, seen) = outcome(&wire::request("GET", "/", &with_body, b"abc")).await;
    assert!(!seen[0].to_ascii_lowercase().contains("upgrade"), "{seen:?}");
}
