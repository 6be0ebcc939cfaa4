//! What is WebSocket's own: proxies, strangers, liars.

use crate::common::{
    NAME, TLS, V4, any_port, drain, lane, patient, pour, soon, websocket_device, websocket_listener, websocket_pair,
    websocket_strangers,
};
use bytes::Bytes;
use hoop_carrier::{
    BoundBy, Carrier, Local, Proxy, Refused, SILENCE, WEBSOCKET_PATH, WebSocketDevice, WebSocketLimits,
    WebSocketListener, WebSocketOptions,
};
use hoop_lab::{Host, Lab, Topology};
use rustls::pki_types::ServerName;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, copy_bidirectional};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio_rustls::client::TlsStream;
use tokio_rustls::{TlsAcceptor, TlsConnector};

const TOTAL: usize = 20_000_000;

/// A stranger's TLS connection.
async fn tls(address: SocketAddr) -> TlsStream<TcpStream> {
    let connector = TlsConnector::from(Arc::new(TLS.device.clone()));
    let tcp = TcpStream::connect(address).await.expect("a connection");
    connector.connect(ServerName::try_from(NAME).expect("a name"), tcp).await.expect("TLS")
}

fn request(path: &str) -> String {
    format!(
        "GET {path} HTTP/1.1\r\nHost: {NAME}\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n\
         Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Protocol: hoop-flow.1\r\n\r\n"
    )
}

/// The bytes up to the end of the connection.
async fn to_the_end(stream: &mut (impl tokio::io::AsyncRead + Unpin)) -> Vec<u8> {
    let mut bytes = Vec::new();
    // An end without TLS's goodbye is one, too.
    let _ = soon(stream.read_to_end(&mut bytes)).await;
    bytes
}

#[tokio::test]
async fn a_stranger_gets_a_plain_answer() {
    let listener = websocket_listener(V4, &WebSocketOptions::default(), WebSocketLimits::default()).await;
    let plain = format!("GET {WEBSOCKET_PATH} HTTP/1.1\r\nHost: {NAME}\r\n\r\n");
    let other = request(WEBSOCKET_PATH).replace("hoop-flow.1", "chat");
    let endless = format!("GET / HTTP/1.1\r\nX: {}", "x".repeat(20_000));
    let cases = [(request("/"), "404"), (plain, "426"), (other, "400"), ("\u{1}\r\n\r\n".into(), "400"), (endless, "")];
    for (request, status) in cases {
        let mut stream = tls(listener.local_address()).await;
        let _ = stream.write_all(request.as_bytes()).await;
        let answer = String::from_utf8(to_the_end(&mut stream).await).expect("text");
        assert_eq!(answer.split_whitespace().nth(1).unwrap_or_default(), status, "{request:.60}");
    }
}

#[tokio::test]
async fn a_server_without_a_websocket_there_is_told_by_its_status() {
    let elsewhere = WebSocketOptions { path: "/elsewhere".into(), ..WebSocketOptions::default() };
    let listener = websocket_listener(V4, &elsewhere, WebSocketLimits::default()).await;
    let device = websocket_device(&WebSocketOptions::default());
    let carrier = soon(device.connect(listener.local_address(), NAME)).await.expect("TLS");
    let error = soon(carrier.closed()).await;
    assert_eq!(error.kind(), io::ErrorKind::ConnectionRefused);
    assert_eq!(error.to_string(), Refused::ByServer(404).to_string());
    assert!(soon(carrier.open()).await.is_err());
}

/// The frames of RFC 6455 §5.2 that a device sends, masked by zeros.
fn frame(first: u8, len: &[u8], payload: &[u8]) -> Vec<u8> {
    let (short, long) = len.split_first().expect("a length");
    [&[first, 0x80 | short], long, &[0; 4], payload].concat()
}

#[tokio::test]
async fn a_device_that_breaks_the_protocol_is_told_how_and_others_go_on() {
    let listener = websocket_listener(V4, &WebSocketOptions::default(), WebSocketLimits::default()).await;
    let device = websocket_device(&WebSocketOptions::default());
    let address = listener.local_address();
    let (good, good_end) = soon(async { tokio::join!(device.connect(address, NAME), listener.accept()) }).await;
    let (good, good_end) = (good.expect("a carrier"), good_end.expect("a carrier"));
    let cases: [(Vec<u8>, u16); 7] = [
        (frame(0x81, &[2], b"hi"), 1003),
        (frame(0x82, &[127, 0, 0, 0, 0, 0, 2, 0, 1], b""), 1009),
        (vec![0x82, 0x01, 0x00], 1002),
        (frame(0x82, &[1], &[0x04]), 1002),
        (frame(0x82, &[2], &[0x01, 0x00]), 1002),
        (frame(0x82, &[0], b""), 1002),
        (b"\xff\xffgarbage that is no frame at all".to_vec(), 1002),
    ];
    for (bytes, code) in cases {
        let mut stream = tls(address).await;
        stream.write_all(request(WEBSOCKET_PATH).as_bytes()).await.expect("it is sent");
        let bad_end = soon(listener.accept()).await.expect("a carrier");
        stream.write_all(&bytes).await.expect("it is sent");
        let error = soon(bad_end.closed()).await;
        assert_eq!(error.kind(), io::ErrorKind::InvalidData, "{bytes:x?}: {error}");
        assert!(soon(bad_end.accept()).await.is_err());
        let answer = to_the_end(&mut stream).await;
        let [high, low] = code.to_be_bytes();
        assert!(answer.ends_with(&[0x88, 2, high, low]), "{bytes:x?}: {answer:x?}");
        soon(lane(&good, &good_end)).await;
    }
}

#[tokio::test]
async fn a_server_that_breaks_the_protocol_is_left() {
    let listener = TcpListener::bind(any_port(V4)).await.expect("a listener");
    let address = listener.local_addr().expect("an address");
    let strange = tokio::spawn(async move {
        let acceptor = TlsAcceptor::from(Arc::new(TLS.server.clone()));
        let tcp = listener.accept().await.expect("a connection").0;
        let mut stream = acceptor.accept(tcp).await.expect("TLS");
        let answer = "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Accept: wrong\r\n\r\n";
        stream.write_all(answer.as_bytes()).await.expect("it is sent");
        to_the_end(&mut stream).await
    });
    let carrier = soon(websocket_device(&WebSocketOptions::default()).connect(address, NAME)).await.expect("TLS");
    assert_eq!(soon(carrier.closed()).await.to_string(), Refused::OtherProtocol.to_string());
    soon(strange).await.expect("it ends");
}

#[tokio::test]
async fn handshakes_that_never_end_are_bounded_for_each_peer_and_given_up() {
    let limits = WebSocketLimits {
        handshakes: 8,
        handshakes_per_peer: 3,
        handshake_time: Duration::from_millis(500),
        ..WebSocketLimits::default()
    };
    let listener = websocket_listener(V4, &WebSocketOptions::default(), limits).await;
    let address = listener.local_address();
    let mut silent = Vec::new();
    for _ in 0..3 {
        silent.push(TcpStream::connect(address).await.expect("a connection"));
    }
    // For one more of the same peer's its oldest makes way; for another peer's none does.
    let more = TcpStream::connect(address).await.expect("a connection");
    assert!(to_the_end(&mut silent.remove(0)).await.is_empty());
    silent.push(more);
    assert_eq!(listener.handshakes(), 3);
    let local = Local { address: Some("127.0.0.8".parse().expect("an address")), ..Local::default() };
    let other = WebSocketDevice::new(local, &TLS.device, WebSocketOptions::default(), None);
    let (device, server) = soon(async { tokio::join!(other.connect(address, NAME), listener.accept()) }).await;
    assert_eq!(device.expect("a carrier").binding(), server.expect("a carrier").binding());
    for stream in &mut silent {
        assert!(to_the_end(stream).await.is_empty(), "it was given up");
    }
    let device = websocket_device(&WebSocketOptions::default());
    let (device, server) = soon(async { tokio::join!(device.connect(address, NAME), listener.accept()) }).await;
    assert_eq!(device.expect("a carrier").binding(), server.expect("a carrier").binding());
}

/// What a TLS connection begins with.
fn client_hello() -> Vec<u8> {
    let name = ServerName::try_from(NAME).expect("a name");
    let mut client = rustls::ClientConnection::new(Arc::new(TLS.device.clone()), name).expect("TLS");
    let mut hello = Vec::new();
    client.write_tls(&mut hello).expect("it is written");
    hello
}

/// Each has its only handshake, and answers nothing.
#[tokio::test]
async fn strangers_of_many_addresses_that_answer_nothing_make_way_at_once() {
    let limits = WebSocketLimits { handshakes: 8, handshakes_per_peer: 4, ..WebSocketLimits::default() };
    let listener = websocket_listener(V4, &WebSocketOptions::default(), limits).await;
    let (address, hello) = (listener.local_address(), client_hello());
    let mut strangers = Vec::new();
    for number in 1..=40 {
        let socket = TcpSocket::new_v4().expect("a socket");
        socket.bind(([127, 0, 1, number], 0).into()).expect("an address");
        let mut stream = socket.connect(address).await.expect("a connection");
        stream.write_all(&hello).await.expect("it is sent");
        strangers.push(stream);
    }
    let (device, begun) = (websocket_device(&WebSocketOptions::default()), Instant::now());
    let (device, server) = soon(async { tokio::join!(device.connect(address, NAME), listener.accept()) }).await;
    assert_eq!(device.expect("a carrier").binding(), server.expect("a carrier").binding());
    // Where each had two seconds, it waited for eight.
    assert!(begun.elapsed() < Duration::from_secs(2), "{:?}", begun.elapsed());
}

/// A device that came by another way has left the one that waits for the server.
#[tokio::test]
async fn a_connection_that_its_device_has_left_costs_no_handshake() {
    let listener = websocket_listener(V4, &WebSocketOptions::default(), WebSocketLimits::default()).await;
    let mut left = std::net::TcpStream::connect(listener.local_address()).expect("a connection");
    std::io::Write::write_all(&mut left, &client_hello()).expect("it is sent");
    left.shutdown(std::net::Shutdown::Write).expect("it is ended");
    left.set_nonblocking(true).expect("a socket");
    let mut left = TcpStream::from_std(left).expect("a socket");
    assert!(to_the_end(&mut left).await.is_empty(), "it is not answered");
}

/// Each takes a descriptor and some 60 KB for as long as its other end says nothing, a second at most.
#[tokio::test]
async fn strangers_whose_connections_are_over_are_waited_for_a_few_at_a_time() {
    let limits = WebSocketLimits { goodbyes_per_peer: 3, ..WebSocketLimits::default() };
    let listener = websocket_listener(V4, &WebSocketOptions::default(), limits).await;
    let (mut strangers, mut carriers) = (Vec::new(), Vec::new());
    for _ in 0..12 {
        let mut stream = tls(listener.local_address()).await;
        stream.write_all(request(WEBSOCKET_PATH).as_bytes()).await.expect("it is sent");
        carriers.push(soon(listener.accept()).await.expect("a carrier"));
        strangers.push(stream);
    }
    carriers[0].set_known();
    carriers.iter().for_each(Carrier::close);
    tokio::time::sleep(Duration::from_millis(300)).await;
    assert_eq!(listener.connections(), 4, "a device's, and as many strangers' as an address may have");
    for stream in &mut strangers {
        assert!(to_the_end(stream).await.ends_with(&[0x88, 2, 3, 232]), "it is told");
    }
    tokio::time::sleep(Duration::from_millis(100)).await;
    drop(strangers);
    soon(async {
        while listener.connections() > 0 {
            tokio::time::sleep(Duration::from_millis(10)).await
        }
    })
    .await;
}

#[tokio::test]
async fn connections_are_bounded_and_one_that_ends_makes_room() {
    let limits = WebSocketLimits { connections: 1, ..WebSocketLimits::default() };
    let listener = websocket_listener(V4, &WebSocketOptions::default(), limits).await;
    let (address, device) = (listener.local_address(), websocket_device(&WebSocketOptions::default()));
    let (first, first_end) = soon(async { tokio::join!(device.connect(address, NAME), listener.accept()) }).await;
    let (first, first_end) = (first.expect("a carrier"), first_end.expect("a carrier"));
    assert!(soon(device.connect(address, NAME)).await.is_err());
    first.close();
    soon(first_end.closed()).await;
    soon(async {
        while listener.connections() > 0 {
            tokio::task::yield_now().await
        }
    })
    .await;
    let (next, next_end) = soon(async { tokio::join!(device.connect(address, NAME), listener.accept()) }).await;
    assert_eq!(next.expect("a carrier").binding(), next_end.expect("a carrier").binding());
}

/// A small HTTP proxy, which connects for whoever names the password, to one server; returns what it was asked.
async fn proxy(server: SocketAddr) -> (SocketAddr, tokio::sync::mpsc::UnboundedReceiver<String>) {
    let listener = TcpListener::bind(any_port(V4)).await.expect("a listener");
    let address = listener.local_addr().expect("an address");
    let (tell, told) = tokio::sync::mpsc::unbounded_channel();
    tokio::spawn(async move {
        while let Ok((mut device, _)) = listener.accept().await {
            let tell = tell.clone();
            tokio::spawn(async move {
                let mut head = Vec::new();
                while !head.ends_with(b"\r\n\r\n") {
                    head.push(device.read_u8().await.expect("a request"));
                }
                let head = String::from_utf8(head).expect("text");
                let allowed = head.contains("Proxy-Authorization: Basic YTpi\r\n");
                let _ = tell.send(head);
                if !allowed {
                    let answer = b"HTTP/1.1 407 Proxy Authentication Required\r\nContent-Length: 0\r\n\r\n";
                    return device.write_all(answer).await;
                }
                device.write_all(b"HTTP/1.1 200 Connection established\r\n\r\n").await?;
                let mut server = TcpStream::connect(server).await?;
                copy_bidirectional(&mut device, &mut server).await.map(drop)
            });
        }
    });
    (address, told)
}

#[tokio::test]
async fn a_carrier_goes_through_a_proxy_and_its_refusal_is_told() {
    let options = WebSocketOptions::default();
    let listener = websocket_listener(V4, &options, WebSocketLimits::default()).await;
    let (address, mut told) = proxy(listener.local_address()).await;
    let device = |authorization: Option<&str>| {
        let proxy = Proxy { address, authorization: authorization.map(str::to_owned) };
        WebSocketDevice::new(Local::default(), &TLS.device, options.clone(), Some(proxy))
    };
    // A proxy finds the server by its name; where it is does not matter to the device.
    let server: SocketAddr = "192.0.2.1:8443".parse().expect("an address");
    let error = soon(device(None).connect(server, NAME)).await.expect_err("it is refused");
    assert_eq!(error.to_string(), Refused::ByProxy(407).to_string());
    let head = told.recv().await.expect("a request");
    assert!(head.starts_with(&format!("CONNECT {NAME}:8443 HTTP/1.1\r\nHost: {NAME}:8443\r\n")), "{head}");
    let device = device(Some("Basic YTpi"));
    assert!(!format!("{device:?}").contains("YTpi"));
    let (ours, theirs) = soon(async { tokio::join!(device.connect(server, NAME), listener.accept()) }).await;
    let (ours, theirs) = (ours.expect("a carrier"), theirs.expect("a carrier"));
    assert_eq!(ours.binding(), theirs.binding());
    let (at_device, at_server) = soon(lane(&ours, &theirs)).await;
    soon(async { tokio::join!(pour(at_device.sender, 2, TOTAL), drain(at_server.receiver, 2, TOTAL)) }).await;
}

#[tokio::test]
async fn where_tls_ends_in_front_of_the_server_both_ends_still_have_one_binding() {
    let options = WebSocketOptions { bound_by: BoundBy::Nonces, ..WebSocketOptions::default() };
    let listener = WebSocketListener::bind(any_port(V4), None, options.clone(), WebSocketLimits::default())
        .await
        .expect("a listener");
    let front = TcpListener::bind(any_port(V4)).await.expect("a listener");
    let (address, behind) = (front.local_addr().expect("an address"), listener.local_address());
    tokio::spawn(async move {
        let acceptor = TlsAcceptor::from(Arc::new(TLS.server.clone()));
        while let Ok((tcp, _)) = front.accept().await {
            let mut device = acceptor.accept(tcp).await.expect("TLS");
            let mut server = TcpStream::connect(behind).await.expect("a connection");
            let _ = copy_bidirectional(&mut device, &mut server).await;
        }
    });
    let device = websocket_device(&options);
    let (ours, theirs) = soon(async { tokio::join!(device.connect(address, NAME), listener.accept()) }).await;
    let (ours, theirs) = (ours.expect("a carrier"), theirs.expect("a carrier"));
    assert_eq!(ours.binding(), theirs.binding());
    soon(lane(&ours, &theirs)).await;
    let exporter = WebSocketOptions::default();
    let refused = WebSocketListener::bind(any_port(V4), None, exporter, WebSocketLimits::default()).await;
    assert_eq!(refused.expect_err("nothing would bind proofs").kind(), io::ErrorKind::InvalidInput);
}

/// A way for TCP that can be frozen: nothing is read from either side any more, as if all were lost.
async fn way(server: SocketAddr) -> (SocketAddr, tokio::task::JoinHandle<()>) {
    let front = TcpListener::bind(any_port(V4)).await.expect("a listener");
    let address = front.local_addr().expect("an address");
    let carrying = tokio::spawn(async move {
        let mut device = front.accept().await.expect("a connection").0;
        let mut server = TcpStream::connect(server).await.expect("a connection");
        let _ = copy_bidirectional(&mut device, &mut server).await;
    });
    (address, carrying)
}

#[tokio::test]
async fn a_carrier_is_gone_once_its_way_is_cut_or_it_was_idle_for_long() {
    let options = WebSocketOptions { idle: Duration::from_millis(700), ..WebSocketOptions::default() };
    let listener = websocket_listener(V4, &options, WebSocketLimits::default()).await;
    let (address, carrying) = way(listener.local_address()).await;
    let device = websocket_device(&options);
    let (ours, theirs) = soon(async { tokio::join!(device.connect(address, NAME), listener.accept()) }).await;
    let (ours, theirs) = (ours.expect("a carrier"), theirs.expect("a carrier"));
    tokio::select! {
        () = ours.silent(Duration::from_millis(300)) => panic!("an idle carrier was called silent"),
        () = theirs.silent(Duration::from_millis(300)) => panic!("an idle carrier was called silent"),
        _ = soon(ours.closed()) => {}
    }
    // Whichever end noticed first told the other.
    let kinds = [ours.closed().await.kind(), soon(theirs.closed()).await.kind()];
    assert!(kinds.contains(&io::ErrorKind::TimedOut), "{kinds:?}");
    carrying.abort();
    let idle = Duration::from_millis(1_200);
    let lively = WebSocketOptions { keep_alive: Some(Duration::from_millis(100)), idle, ..options };
    let (ours, theirs) = websocket_pair(V4, &lively).await;
    let quick = WebSocketOptions { idle: 2 * idle, ..WebSocketOptions::default() };
    let (other, _other_end) = websocket_pair(V4, &quick).await;
    tokio::select! {
        _ = ours.closed() => panic!("it was kept alive"),
        _ = theirs.closed() => panic!("it was kept alive"),
        _ = soon(other.closed()) => {}
    }
}

/// The system counts what it could not send as if there were nothing to send.
#[test]
fn a_carrier_whose_address_has_gone_is_silent_once_it_is_asked() {
    let lab = Lab::build(&Topology::new().host(Host::new("phone"))).expect("a lab: run as root");
    let ip =
        |arguments: &str| assert!(lab.command("phone", "ip").args(arguments.split(' ')).status().unwrap().success());
    ip("link set lo up");
    ip("address add 192.0.2.1/32 dev lo");
    ip("address add 192.0.2.2/32 dev lo");
    let scene = async {
        let options = WebSocketOptions::default();
        let listener = websocket_listener([192, 0, 2, 1].into(), &options, WebSocketLimits::default()).await;
        let from = Local { address: Some([192, 0, 2, 2].into()), ..Local::default() };
        let device = WebSocketDevice::new(from, &TLS.device, options, None);
        let address = listener.local_address();
        let (ours, theirs) = soon(async { tokio::join!(device.connect(address, NAME), listener.accept()) }).await;
        let (ours, _theirs) = (ours.expect("a carrier"), theirs.expect("a carrier"));
        // All is acknowledged.
        tokio::time::sleep(Duration::from_millis(300)).await;
        ip("address del 192.0.2.2/32 dev lo");
        ours.probe();
        tokio::select! {
            () = ours.silent(SILENCE) => {}
            _ = ours.closed() => panic!("it was idle for too long, and nobody was told"),
        }
    };
    let runtime = || tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    lab.in_host("phone", || runtime().block_on(scene));
}

#[tokio::test]
async fn a_transfer_that_is_going_on_is_not_silent() {
    let (ours, theirs) = websocket_pair(V4, &WebSocketOptions::default()).await;
    let (at_device, at_server) = soon(lane(&ours, &theirs)).await;
    let (there, back) = (pour(at_device.sender, 1, TOTAL), drain(at_server.receiver, 1, TOTAL));
    tokio::select! {
        () = ours.silent(SILENCE) => panic!("it was called silent while it carried"),
        _ = async { tokio::join!(there, back) } => {}
    }
}

#[tokio::test]
async fn small_messages_of_a_lane_pass_between_large_ones_of_another() {
    let (ours, theirs) = websocket_pair(V4, &WebSocketOptions::default()).await;
    let (large, mut large_end) = soon(lane(&ours, &theirs)).await;
    let (mut small, mut small_end) = soon(lane(&ours, &theirs)).await;
    let pouring = tokio::spawn(pour(large.sender, 1, 100 * TOTAL));
    let mut came = 0;
    soon(async {
        while came < TOTAL {
            came += large_end.receiver.receive(60_000).await.expect("it comes").expect("more").len();
        }
        small.sender.send(&mut [Bytes::from_static(b"small")]).await.expect("it is taken");
        loop {
            tokio::select! {
                bytes = small_end.receiver.receive(9) => break assert_eq!(bytes.expect("it comes").as_deref(), Some(&b"small"[..])),
                bytes = large_end.receiver.receive(60_000) => came += bytes.expect("it comes").expect("more").len(),
            }
        }
    })
    .await;
    assert!(came < 2 * TOTAL, "{came} bytes of the other came first");
    pouring.abort();
}

#[tokio::test]
async fn the_last_word_before_a_goodbye_still_arrives() {
    for is_device in [true, false] {
        let (device, server) = websocket_pair(V4, &WebSocketOptions::default()).await;
        let (mut at_device, mut at_server) = soon(lane(&device, &server)).await;
        let (carrier, speaker, hearer) = match is_device {
            true => (device, &mut at_device, &mut at_server),
            false => (server, &mut at_server, &mut at_device),
        };
        speaker.sender.send(&mut [Bytes::from_static(b"done")]).await.expect("it is taken");
        carrier.close();
        let word = soon(hearer.receiver.receive(9)).await.expect("it comes");
        assert_eq!(word.as_deref(), Some(&b"done"[..]), "of a device: {is_device}");
    }
}

#[tokio::test]
async fn a_probed_carrier_is_answered_and_does_not_end_as_idle() {
    let options = WebSocketOptions { idle: Duration::from_secs(3), ..WebSocketOptions::default() };
    let (device, server) = websocket_pair(V4, &options).await;
    for _ in 0..10 {
        device.probe();
        tokio::time::sleep(Duration::from_millis(500)).await;
    }
    soon(lane(&device, &server)).await;
    // And without it ends, whichever end notices first.
    soon(device.closed()).await;
}

#[tokio::test]
async fn a_strangers_websocket_holds_little_until_it_is_known_whose_it_is() {
    let (device, server) = websocket_strangers(V4, &patient()).await;
    let (mut ours, _unread) = soon(lane(&device, &server)).await;
    for _ in 0..5 {
        soon(ours.sender.send(&mut [Bytes::from_static(&[0; 60_000])])).await.expect("it is taken");
    }
    // It holds up the others, and is broken off for their sake.
    soon(async {
        while ours.sender.send(&mut [Bytes::from_static(&[0])]).await.is_ok() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    })
    .await;
    server.set_known();
    let (ours, theirs) = soon(lane(&device, &server)).await;
    soon(pour(ours.sender, 5, 300_000)).await;
    tokio::time::sleep(3 * patient().patience).await;
    soon(drain(theirs.receiver, 5, 300_000)).await;
}

/// A small web server that ends TLS, and passes on what comes as from `client`, which has made up an address of its own.
async fn front(server: SocketAddr, client: &'static str) -> SocketAddr {
    let listener = TcpListener::bind(any_port(V4)).await.expect("a listener");
    let address = listener.local_addr().expect("an address");
    tokio::spawn(async move {
        while let Ok((device, _)) = listener.accept().await {
            tokio::spawn(async move {
                let mut device = TlsAcceptor::from(Arc::new(TLS.server.clone())).accept(device).await?;
                let mut head = Vec::new();
                while !head.ends_with(b"\r\n\r\n") {
                    head.push(device.read_u8().await?);
                }
                head.truncate(head.len() - 2);
                head.extend(format!("X-Forwarded-For: 203.0.113.9, {client}\r\n\r\n").as_bytes());
                let mut server = TcpStream::connect(server).await?;
                server.write_all(&head).await?;
                copy_bidirectional(&mut device, &mut server).await.map(drop)
            });
        }
    });
    address
}

#[tokio::test]
async fn behind_a_web_server_a_peer_is_the_client_that_it_names() {
    let mut listener = websocket_listener(V4, &WebSocketOptions::default(), WebSocketLimits::default()).await;
    let proxies = vec!["127.0.0.0/8".parse().expect("a network")];
    let plain = listener.listen_behind(any_port(V4), proxies).await.expect("a listener");
    let device = websocket_device(&WebSocketOptions { bound_by: BoundBy::Nonces, ..WebSocketOptions::default() });
    let front = front(plain, "198.51.100.7").await;
    let (ours, theirs) = soon(async { tokio::join!(device.connect(front, NAME), listener.accept()) }).await;
    let (ours, theirs) = (ours.expect("a carrier"), theirs.expect("a carrier"));
    assert_eq!(ours.binding(), theirs.binding());
    assert_eq!(Carrier::peer(&theirs), Some([198, 51, 100, 7].into()), "what stands left of it may be made up");
    theirs.set_known();
    let (at_device, at_server) = soon(lane(&ours, &theirs)).await;
    soon(async { tokio::join!(pour(at_device.sender, 2, TOTAL), drain(at_server.receiver, 2, TOTAL)) }).await;
    // One that believes that TLS ends at the server is told that it does not.
    let other = websocket_device(&WebSocketOptions::default());
    let other = soon(other.connect(front, NAME)).await.expect("it does not wait for the answer");
    let mut lane = other.open().await.expect("a lane");
    let _ = lane.sender.send(&mut [Bytes::from_static(b"no HELLO")]).await;
    assert!(soon(other.closed()).await.to_string().contains("does TLS end in front of the server"));
}

#[tokio::test]
async fn at_the_plain_address_nobody_but_a_trusted_web_server_is_heard() {
    let mut listener = websocket_listener(V4, &WebSocketOptions::default(), WebSocketLimits::default()).await;
    let proxies = vec!["127.0.0.2".parse().expect("a network")];
    let plain = listener.listen_behind(any_port(V4), proxies).await.expect("a listener");
    let mut stranger = TcpStream::connect(plain).await.expect("a connection");
    let _ = stranger.write_all(request(WEBSOCKET_PATH).as_bytes()).await;
    assert_eq!(to_the_end(&mut stranger).await, b"");
    let trusted = TcpSocket::new_v4().expect("a socket");
    trusted.bind("127.0.0.2:0".parse().expect("an address")).expect("it is this machine's");
    let mut trusted = trusted.connect(plain).await.expect("a connection");
    trusted.write_all(request(WEBSOCKET_PATH).as_bytes()).await.expect("it is taken");
    let mut answer = [0; 12];
    soon(trusted.read_exact(&mut answer)).await.expect("an answer");
    assert_eq!(&answer, b"HTTP/1.1 101");
}

/// All come from one web server. A client that opens many and says no more keeps nobody out.
#[tokio::test]
async fn behind_a_web_server_each_client_has_limits_of_its_own() {
    let limits = WebSocketLimits { handshakes: 16, handshakes_per_peer: 4, ..WebSocketLimits::default() };
    let mut listener = websocket_listener(V4, &WebSocketOptions::default(), limits).await;
    let proxies = vec!["127.0.0.0/8".parse().expect("a network")];
    let plain = listener.listen_behind(any_port(V4), proxies).await.expect("a listener");
    let head = request(WEBSOCKET_PATH);
    let head = format!("{}X-Forwarded-For: 192.0.2.66\r\n\r\n", head.strip_suffix("\r\n").expect("an empty line"));
    let mut silent = Vec::new();
    for _ in 0..40 {
        let mut stream = TcpStream::connect(plain).await.expect("a connection");
        stream.write_all(head.as_bytes()).await.expect("it is taken");
        silent.push(stream);
    }
    soon(async {
        while listener.handshakes() < 4 {
            tokio::task::yield_now().await
        }
    })
    .await;
    assert_eq!(listener.handshakes(), 4, "of one client");
    let device = websocket_device(&WebSocketOptions { bound_by: BoundBy::Nonces, ..WebSocketOptions::default() });
    let front = front(plain, "198.51.100.7").await;
    let (ours, theirs) = soon(async { tokio::join!(device.connect(front, NAME), listener.accept()) }).await;
    assert_eq!(ours.expect("a carrier").binding(), theirs.expect("a carrier").binding());
}

/// Any program of the machine may connect there. A web server sends a head as soon as it has connected.
#[tokio::test]
async fn who_is_silent_at_the_plain_address_makes_way() {
    let limits = WebSocketLimits { handshakes: 16, ..WebSocketLimits::default() };
    let options = WebSocketOptions::default();
    let mut listener = websocket_listener(V4, &options, limits).await;
    let proxies = vec!["127.0.0.0/8".parse().expect("a network")];
    let plain = listener.listen_behind(any_port(V4), proxies).await.expect("a listener");
    let mut silent = Vec::new();
    for _ in 0..100 {
        silent.push(TcpStream::connect(plain).await.expect("a connection"));
    }
    assert_eq!(soon(to_the_end(&mut silent[0])).await, b"", "the oldest is closed");
    let device = websocket_device(&WebSocketOptions { bound_by: BoundBy::Nonces, ..options });
    let front = front(plain, "198.51.100.7").await;
    // Less than a silent one may take.
    let met = async { tokio::join!(device.connect(front, NAME), listener.accept()) };
    let (ours, theirs) = tokio::time::timeout(Duration::from_secs(5), met).await.expect("nobody is waited for");
    assert_eq!(ours.expect("a carrier").binding(), theirs.expect("a carrier").binding());
    let mut last = silent.pop().expect("one");
    assert!(tokio::time::timeout(Duration::from_millis(50), last.read_u8()).await.is_err(), "the latest is not");
}

/// Those that wait for a place behind a web server had taken all connections.
#[tokio::test]
async fn who_waits_behind_a_web_server_takes_no_connection_of_others() {
    let limits =
        WebSocketLimits { handshakes: 8, handshakes_per_peer: 4, connections: 20, ..WebSocketLimits::default() };
    let options = WebSocketOptions::default();
    let mut listener = websocket_listener(V4, &options, limits).await;
    let proxies = vec!["127.0.0.0/8".parse().expect("a network")];
    let plain = listener.listen_behind(any_port(V4), proxies).await.expect("a listener");
    let head = request(WEBSOCKET_PATH);
    let mut silent = Vec::new();
    for client in 0..60 {
        let mut stream = TcpStream::connect(plain).await.expect("a connection");
        let head = head.strip_suffix("\r\n").expect("an empty line");
        let named = format!("{head}X-Forwarded-For: 192.0.2.{client}\r\n\r\n");
        stream.write_all(named.as_bytes()).await.expect("it is taken");
        silent.push(stream);
    }
    soon(async {
        while listener.handshakes() < 8 {
            tokio::task::yield_now().await
        }
    })
    .await;
    tokio::time::sleep(Duration::from_millis(100)).await;
    assert!(listener.connections() <= 9, "those with a place, and one that waits: {}", listener.connections());
    let device = websocket_device(&options);
    let to = listener.local_address();
    let (ours, theirs) = soon(async { tokio::join!(device.connect(to, NAME), listener.accept()) }).await;
    assert_eq!(ours.expect("a carrier").binding(), theirs.expect("a carrier").binding());
}
