//! Both kinds at once.

use crate::common::{
    NAME, TLS, V4, V6, Way, lane, quic_device, quic_listener, soon, websocket_device, websocket_listener,
};
use hoop_carrier::{
    Carrier, Dialer, FrontAddress, Kind, Local, QuicDevice, QuicLimits, QuicListener, QuicOptions, SILENCE,
    ServerAddress, WebSocketLimits, WebSocketListener, WebSocketOptions,
};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::AsyncReadExt as _;
use tokio::net::{TcpListener, UdpSocket};

async fn both(address: IpAddr) -> (QuicListener, WebSocketListener) {
    let quic = quic_listener(address, &QuicOptions::server(), QuicLimits::default());
    (quic, websocket_listener(address, &WebSocketOptions::default(), WebSocketLimits::default()).await)
}

fn dialer() -> Dialer {
    let websocket = websocket_device(&WebSocketOptions::default());
    Dialer::new(Some(quic_device(&QuicOptions::device())), Some(websocket))
}

fn server(addresses: &[IpAddr], quic_port: u16, websocket: &WebSocketListener) -> ServerAddress {
    let websocket_port = websocket.local_address().port();
    ServerAddress { name: NAME.into(), addresses: addresses.to_vec(), quic_port, websocket_port, front: None }
}

async fn dial(dialer: &Dialer, server: &ServerAddress) -> Arc<dyn Carrier> {
    soon(dialer.dial("home", server)).await.expect("a carrier")
}

/// A port from which nothing ever comes back, and where what came can be counted.
async fn nowhere() -> (UdpSocket, u16) {
    let socket = UdpSocket::bind((V4, 0)).await.expect("a socket");
    let port = socket.local_addr().expect("an address").port();
    (socket, port)
}

#[tokio::test]
async fn where_both_pass_quic_wins_over_either_family() {
    for address in [V4, V6] {
        let (quic, websocket) = both(address).await;
        let to = server(&[address], quic.local_address().expect("an address").port(), &websocket);
        let dialer = dialer();
        for _ in 0..2 {
            let carrier = dial(&dialer, &to).await;
            let at_server = soon(quic.accept()).await.expect("a carrier");
            assert_eq!((carrier.kind(), carrier.binding()), (Kind::Quic, at_server.binding()));
        }
    }
}

#[tokio::test]
async fn where_udp_is_lost_websocket_wins_and_quic_is_not_tried_next() {
    let (_, websocket) = both(V4).await;
    let (sink, port) = nowhere().await;
    let (to, dialer) = (server(&[V4], port, &websocket), dialer());
    let carrier = dial(&dialer, &to).await;
    let at_server = soon(websocket.accept()).await.expect("a carrier");
    assert_eq!((carrier.kind(), carrier.binding()), (Kind::WebSocket, at_server.binding()));
    soon(lane(&*carrier, &at_server)).await;
    let mut packet = [0; 2_000];
    // The attempt that lost says goodbye at most.
    while sink.try_recv(&mut packet).is_ok() {}
    drop(sink);
    let sink = UdpSocket::bind((V4, port)).await.expect("the port again");
    assert_eq!(dial(&dialer, &to).await.kind(), Kind::WebSocket);
    let hello_came = std::iter::from_fn(|| sink.try_recv(&mut packet).ok()).any(|len| len >= 1_200);
    assert!(!hello_came, "QUIC was tried");
    // On another network nothing is known.
    let elsewhere = soon(dialer.dial("elsewhere", &to)).await.expect("a carrier");
    assert_eq!(elsewhere.kind(), Kind::WebSocket);
    soon(sink.recv(&mut packet)).await.expect("QUIC was tried there");
}

#[tokio::test]
async fn a_server_that_is_full_has_answered_and_quic_is_tried_first_again() {
    let (roomy, websocket) = both(V4).await;
    let full = QuicLimits { connections: 0, ..QuicLimits::default() };
    let full = quic_listener(V4, &QuicOptions::server(), full);
    let dialer = dialer();
    let to = server(&[V4], full.local_address().expect("an address").port(), &websocket);
    assert_eq!(dial(&dialer, &to).await.kind(), Kind::WebSocket);
    let to = server(&[V4], roomy.local_address().expect("an address").port(), &websocket);
    assert_eq!(dial(&dialer, &to).await.kind(), Kind::Quic);
}

#[tokio::test]
async fn a_dead_address_costs_little_and_a_dead_server_is_an_error() {
    let (quic, websocket) = both(V4).await;
    let nobody: IpAddr = "127.0.0.77".parse().expect("an address");
    let to = server(&[nobody, V4], quic.local_address().expect("an address").port(), &websocket);
    dial(&dialer(), &to).await;
    let only = Dialer::new(None, Some(websocket_device(&WebSocketOptions::default())));
    assert_eq!(dial(&only, &to).await.kind(), Kind::WebSocket);
    let error =
        soon(only.dial("home", &ServerAddress { addresses: vec![nobody], ..to })).await.expect_err("nobody is there");
    assert_eq!(error.kind(), std::io::ErrorKind::ConnectionRefused);
}

#[tokio::test]
async fn the_loser_is_closed() {
    let (quic, websocket) = both(V4).await;
    let (_sink, port) = nowhere().await;
    let losing = dialer();
    assert_eq!(dial(&losing, &server(&[V4], port, &websocket)).await.kind(), Kind::WebSocket);
    // QUIC's attempt would go on for ten seconds.
    tokio::time::timeout(Duration::from_secs(8), losing.drained()).await.expect("QUIC's attempt is closed");
    let way = Way::to(quic.local_address().expect("an address")).await;
    way.shut();
    let (late, silent) =
        (server(&[V4], way.address.port(), &websocket), TcpListener::bind((V4, 0)).await.expect("a listener"));
    let late = ServerAddress { websocket_port: silent.local_addr().expect("an address").port(), ..late };
    let dialer = dialer();
    let (carrier, mut stream) = soon(async {
        tokio::join!(dial(&dialer, &late), async {
            let stream = silent.accept().await.expect("WebSocket is tried").0;
            way.reopen();
            stream
        })
    })
    .await;
    assert_eq!(carrier.kind(), Kind::Quic);
    let mut hello = Vec::new();
    let _ = soon(stream.read_to_end(&mut hello)).await;
    assert!(!hello.is_empty(), "WebSocket's attempt had begun, and was closed");
}

/// What the endpoint does when UDP is shut in mid-transfer.
#[tokio::test]
async fn a_carrier_of_quic_that_falls_silent_is_followed_by_a_websocket() {
    let (quic, websocket) = both(V4).await;
    let way = Way::to(quic.local_address().expect("an address")).await;
    let (to, dialer) = (server(&[V4], way.address.port(), &websocket), dialer());
    let carrier = dial(&dialer, &to).await;
    let at_server = soon(quic.accept()).await.expect("a carrier");
    let (mut ours, _theirs) = soon(lane(&*carrier, &at_server)).await;
    way.shut();
    ours.sender.send(&mut [bytes::Bytes::from_static(b"unheard")]).await.expect("it is taken");
    soon(carrier.silent(SILENCE)).await;
    dialer.quic_is_silent("home");
    let next = dial(&dialer, &to).await;
    assert_eq!(next.kind(), Kind::WebSocket);
    let at_server = soon(websocket.accept()).await.expect("a carrier");
    soon(lane(&*next, &at_server)).await;
}

#[tokio::test]
async fn a_link_that_comes_up_moves_carriers_to_a_fresh_socket() {
    let (quic, websocket) = both(V4).await;
    let to = server(&[V4], quic.local_address().expect("an address").port(), &websocket);
    let device = QuicDevice::new(Local::default(), &TLS.device, &QuicOptions::device()).expect("an endpoint");
    let dialer = Dialer::new(Some(device), None);
    let carrier = dial(&dialer, &to).await;
    let at_server = soon(quic.accept()).await.expect("a carrier");
    let before = at_server.peer();
    dialer.link_is_up().expect("a socket");
    soon(lane(&*carrier, &at_server)).await;
    assert_ne!(at_server.peer(), before);
}

#[tokio::test]
async fn a_front_that_is_not_found_is_named_and_keeps_quic_waiting_for_a_moment_only() {
    let (quic, websocket) = both(V4).await;
    let front = Some(FrontAddress { name: "front.invalid".to_owned(), port: 443 });
    let to = server(&[V4], quic.local_address().expect("an address").port(), &websocket);
    let to = ServerAddress { front, ..to };
    assert_eq!(dial(&dialer(), &to).await.kind(), Kind::Quic);
    let only = Dialer::new(None, Some(websocket_device(&WebSocketOptions::default())));
    let error = soon(only.dial("home", &to)).await.expect_err("there is no such name");
    assert!(error.to_string().starts_with("the web server in front (front.invalid:443): "), "{error}");
}
