//! What is QUIC's own: floods, moving, silence.

use crate::common::{
    NAME, TLS, V4, Way, any_port, drain, lane, pour, quic_device, quic_listener, quic_pair, quic_strangers, soon,
};
use bytes::Bytes;
use hoop_carrier::{Carrier, Local, QuicCarrier, QuicDevice, QuicLimits, QuicListener, QuicOptions, ResetKey, SILENCE};
use rustls::crypto::ring::cipher_suite::TLS13_AES_128_GCM_SHA256;
use rustls::quic::{ClientConnection, Keys, Version};
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Waker};
use std::time::Duration;
use tokio::runtime::Runtime;

const TOTAL: usize = 20_000_000;

#[tokio::test]
async fn a_device_whose_address_must_be_shown_first_gets_in_by_a_retry() {
    let limits = QuicLimits { retry_from: 0, ..QuicLimits::default() };
    let listener = quic_listener(V4, &QuicOptions::server(), limits);
    let device = quic_device(&QuicOptions::device());
    let address = listener.local_address().expect("an address");
    let (device, server) = soon(async { tokio::join!(device.connect(address, NAME), listener.accept()) }).await;
    assert_eq!(device.expect("a carrier").binding(), server.expect("a carrier").binding());
}

/// A device's first handshake message.
fn hello() -> Vec<u8> {
    hello_for(hoop_carrier::QUIC_ALPN)
}

/// The same for this protocol.
fn hello_for(alpn: &[u8]) -> Vec<u8> {
    let mut tls = TLS.device.clone();
    tls.alpn_protocols = vec![alpn.to_vec()];
    // One transport parameter: initial_source_connection_id, empty.
    let parameters = vec![0x0f, 0x00];
    let name = NAME.try_into().expect("a name");
    let mut hello = Vec::new();
    ClientConnection::new(Arc::new(tls), Version::V1, name, parameters).expect("a handshake").write_hs(&mut hello);
    hello
}

/// The first packet of a handshake that never goes on (RFC 9001 §5.2, A.2), of another connection for each number.
fn first_packet(hello: &[u8], number: u32) -> Vec<u8> {
    let mut id = [0xaa; 8];
    id[..4].copy_from_slice(&number.to_be_bytes());
    packet_to(&id, &[], hello)
}

/// The same with what a Retry asks for: the server's number of the connection, and the token (RFC 9000 §17.2.5).
fn packet_after(retry: &[u8], hello: &[u8]) -> Vec<u8> {
    let (ours, rest) = retry[6..].split_at(usize::from(retry[5]));
    assert!(ours.is_empty(), "this end has no number");
    let (id, token) = rest[1..].split_at(usize::from(rest[0]));
    packet_to(id, &token[..token.len() - 16], hello)
}

fn packet_to(id: &[u8], token: &[u8], hello: &[u8]) -> Vec<u8> {
    let mut head = vec![0xc3, 0, 0, 0, 1, id.len() as u8];
    head.extend_from_slice(id);
    head.push(0);
    head.extend_from_slice(&(0x4000 | token.len() as u16).to_be_bytes());
    head.extend_from_slice(token);
    let number_at = head.len() + 2;
    let mut payload = vec![0x06, 0x00];
    payload.extend_from_slice(&(0x4000 | hello.len() as u16).to_be_bytes());
    payload.extend_from_slice(hello);
    payload.resize(1_200 - number_at - 4 - 16, 0);
    head.extend_from_slice(&(0x4000 | (4 + payload.len() + 16) as u16).to_be_bytes());
    head.extend_from_slice(&[0; 4]);
    let suite = TLS13_AES_128_GCM_SHA256.tls13().expect("a suite of TLS 1.3");
    let keys = Keys::initial(Version::V1, suite, suite.quic.expect("QUIC"), id, rustls::Side::Client).local;
    let tag = keys.packet.encrypt_in_place(0, &head, &mut payload).expect("it is sealed");
    let mut packet = [&head[..], &payload, tag.as_ref()].concat();
    let (head, sample) = packet.split_at_mut(number_at + 4);
    let (first, number) = head.split_at_mut(number_at);
    keys.header.encrypt_in_place(&sample[..16], &mut first[0], number).expect("it is masked");
    packet
}

const FLOOD: u32 = 10_000;

/// Sends first packets with this message, each when the one before is answered, or lost; returns how many Retries came.
fn flood(server: SocketAddr, hello: &[u8], many: u32) -> usize {
    let socket = UdpSocket::bind(any_port(V4)).expect("a socket");
    socket.connect(server).expect("a way");
    socket.set_read_timeout(Some(Duration::from_millis(100))).expect("a limit");
    let mut answer = [0; 2_000];
    (0..many)
        .filter(|number| {
            socket.send(&first_packet(hello, *number)).expect("it is sent");
            socket.recv(&mut answer).is_ok() && answer[0] & 0xb0 == 0xb0
        })
        .count()
}

/// The kilobytes that this process has in memory.
fn resident_kib() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").expect("Linux");
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).expect("a line of it");
    line.split_whitespace().nth(1).and_then(|kib| kib.parse().ok()).expect("a number")
}

/// Whether this test has its process to itself; if not, it is run in one that it has, where no other test takes memory.
fn is_alone(test: &str) -> bool {
    const ALONE: &str = "HOOP_TEST_IS_ALONE";
    if std::env::var_os(ALONE).is_some() {
        return true;
    }
    let own = std::env::current_exe().expect("a program");
    let done = std::process::Command::new(own).args([test, "--exact"]).env(ALONE, "1").output().expect("it runs");
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stdout));
    false
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ten_thousand_first_packets_get_retries_and_a_device_gets_in() {
    if !is_alone("quic::ten_thousand_first_packets_get_retries_and_a_device_gets_in") {
        return;
    }
    let limits = QuicLimits { retry_from: 8, handshakes: 16, ..QuicLimits::default() };
    let listener = quic_listener(V4, &QuicOptions::server(), limits);
    let address = listener.local_address().expect("an address");
    let before = resident_kib();
    let retries =
        soon(tokio::task::spawn_blocking(move || flood(address, &hello(), FLOOD))).await.expect("the flood ends");
    assert!(retries > FLOOD as usize * 9 / 10, "of {FLOOD} packets {retries} were answered by a Retry");
    let (handshakes, connections) = (listener.handshakes(), listener.connections());
    assert!(handshakes <= 8 && connections <= 8, "{handshakes} handshakes, {connections} connections");
    let grown = resident_kib().saturating_sub(before);
    assert!(grown < 16 * 1024, "{grown} KiB more after the flood");
    let device = quic_device(&QuicOptions::device());
    let (device, server) = soon(async { tokio::join!(device.connect(address, NAME), listener.accept()) }).await;
    assert_eq!(device.expect("a carrier").binding(), server.expect("a carrier").binding());
}

/// Such a handshake leaves nothing behind, but takes as much work as others.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn first_packets_whose_handshake_fails_at_once_get_retries_too() {
    let limits = QuicLimits { retry_from: 8, ..QuicLimits::default() };
    let listener = quic_listener(V4, &QuicOptions::server(), limits);
    let address = listener.local_address().expect("an address");
    let flood = move || flood(address, &hello_for(b"another"), 100);
    let retries = soon(tokio::task::spawn_blocking(flood)).await.expect("the flood ends");
    assert!((50..=92).contains(&retries), "of 100 packets {retries} were answered by a Retry");
    let device = quic_device(&QuicOptions::device());
    let (device, server) = soon(async { tokio::join!(device.connect(address, NAME), listener.accept()) }).await;
    assert_eq!(device.expect("a carrier").binding(), server.expect("a carrier").binding());
}

/// The same from an address that is shown to be its own: others go on, and that one waits.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_address_whose_handshakes_fail_begins_no_more_for_a_while() {
    let limits = QuicLimits { retry_from: 0, lingering_per_peer: 12, ..QuicLimits::default() };
    let listener = quic_listener(V4, &QuicOptions::server(), limits);
    let address = listener.local_address().expect("an address");
    let flood = move || begin_and_leave(address, &hello_for(b"another"), 20);
    soon(tokio::task::spawn_blocking(flood)).await.expect("the flood ends");
    let device = quic_device(&QuicOptions::device());
    assert!(soon(device.connect(address, NAME)).await.is_err(), "there is no room");
    let other = Local { address: Some("127.0.0.9".parse().expect("an address")), ..Local::default() };
    let other = QuicDevice::new(other, &TLS.device, &QuicOptions::device()).expect("an endpoint");
    let (device, server) = soon(async { tokio::join!(other.connect(address, NAME), listener.accept()) }).await;
    assert_eq!(device.expect("at once").binding(), server.expect("a carrier").binding());
}

/// Begins handshakes from an address that is shown to be its own, and leaves each.
fn begin_and_leave(server: SocketAddr, hello: &[u8], many: usize) {
    let socket = UdpSocket::bind(any_port(V4)).expect("a socket");
    socket.connect(server).expect("a way");
    socket.set_read_timeout(Some(Duration::from_millis(100))).expect("a limit");
    let mut answer = [0; 2_000];
    for number in 0..many {
        socket.send(&first_packet(hello, number as u32)).expect("it is sent");
        // Answers to those before come, too.
        while let Ok(len) = socket.recv(&mut answer) {
            if answer[0] & 0xf0 == 0xf0 {
                socket.send(&packet_after(&answer[..len], hello)).expect("it is sent");
                break;
            }
        }
    }
}

/// What a connection leaves behind it takes as much memory as one that goes on, for three seconds.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn handshakes_that_were_left_are_counted_until_they_are_forgotten() {
    let limits = QuicLimits { retry_from: 0, handshakes_per_peer: 4, lingering_per_peer: 12, ..QuicLimits::default() };
    let most = limits.handshakes_per_peer + limits.lingering_per_peer;
    let listener = quic_listener(V4, &QuicOptions::server(), limits);
    let address = listener.local_address().expect("an address");
    soon(tokio::task::spawn_blocking(move || begin_and_leave(address, &hello(), 200))).await.expect("the flood ends");
    let connections = listener.connections();
    assert!((4..=most).contains(&connections), "{connections} connections are remembered");
    let other = Local { address: Some("127.0.0.9".parse().expect("an address")), ..Local::default() };
    let other = QuicDevice::new(other, &TLS.device, &QuicOptions::device()).expect("an endpoint");
    let (device, server) = soon(async { tokio::join!(other.connect(address, NAME), listener.accept()) }).await;
    assert_eq!(device.expect("at once").binding(), server.expect("a carrier").binding());
    // Whoever shares the address is told that there is no room, until there is.
    let device = quic_device(&QuicOptions::device());
    let again = async {
        loop {
            if let Ok(carrier) = device.connect(address, NAME).await {
                return carrier;
            }
        }
    };
    let (device, server) = soon(async { tokio::join!(again, listener.accept()) }).await;
    assert_eq!(device.binding(), server.expect("a carrier").binding());
}

/// Three probe timeouts of a device whose round trips take two seconds are 18 s.
#[tokio::test]
async fn a_late_device_does_not_choose_how_long_its_ended_connection_lingers() {
    let listener = quic_listener(V4, &QuicOptions::server(), QuicLimits::default());
    let way = Way::late(listener.local_address().expect("an address"), Duration::from_secs(1)).await;
    let device = quic_device(&QuicOptions::device());
    let (carrier, server) = soon(async { tokio::join!(device.connect(way.address, NAME), listener.accept()) }).await;
    let (_carrier, server) = (carrier.expect("a carrier"), server.expect("a carrier"));
    assert_eq!(listener.connections(), 1);
    drop(server);
    let forgotten = async {
        while listener.connections() > 0 {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(12), forgotten).await.expect("it is forgotten after three seconds");
}

#[tokio::test]
async fn what_nobody_acknowledges_of_a_finished_lane_is_given_up() {
    let listener = quic_listener(V4, &QuicOptions::server(), QuicLimits::default());
    let way = Way::to(listener.local_address().expect("an address")).await;
    let device = quic_device(&QuicOptions::device());
    let (carrier, server) = soon(async { tokio::join!(device.connect(way.address, NAME), listener.accept()) }).await;
    let (carrier, server) = (carrier.expect("a carrier"), server.expect("a carrier"));
    let (mut near, mut far) = soon(lane(&carrier, &server)).await;
    way.shut();
    soon(far.sender.send(&mut [vec![7; 20_000].into()])).await.expect("it is taken over");
    soon(far.sender.finish()).await.expect("it ends");
    drop(far);
    tokio::time::sleep(Duration::from_secs(6)).await;
    way.reopen();
    let rest = async {
        while near.receiver.receive(65_536).await?.is_some() {}
        std::io::Result::Ok(())
    };
    soon(rest).await.expect_err("the server no longer had it");
}

#[tokio::test]
async fn a_device_opens_as_many_lanes_as_it_may_and_waits_for_the_next() {
    let listener = quic_listener(V4, &QuicOptions { lanes: 2, ..QuicOptions::server() }, QuicLimits::default());
    let endpoint = quic_device(&QuicOptions::device());
    let address = listener.local_address().expect("an address");
    let (device, server) = soon(async { tokio::join!(endpoint.connect(address, NAME), listener.accept()) }).await;
    let (device, server) = (device.expect("a carrier"), server.expect("a carrier"));
    let first = soon(lane(&device, &server)).await;
    let _second = soon(lane(&device, &server)).await;
    tokio::select! {
        biased;
        _ = device.open() => panic!("a third lane was allowed"),
        () = tokio::task::yield_now() => {}
    }
    drop(first);
    soon(lane(&device, &server)).await;
}

/// A lane carries its bytes while the device moves to fresh sockets; what is begun afterwards works too.
#[tokio::test]
async fn a_transfer_goes_on_from_a_fresh_socket_and_new_carriers_leave_from_it() {
    let listener = quic_listener(V4, &QuicOptions::server(), QuicLimits::default());
    let endpoint = quic_device(&QuicOptions::device());
    let address = listener.local_address().expect("an address");
    let (device, server) = soon(async { tokio::join!(endpoint.connect(address, NAME), listener.accept()) }).await;
    let (device, server) = (device.expect("a carrier"), server.expect("a carrier"));
    let (ours, theirs) = soon(lane(&device, &server)).await;
    let before = (endpoint.local_address().expect("an address").port(), server.peer().port());
    assert_eq!(before.0, before.1);
    let mut receiver = theirs.receiver;
    let pouring = tokio::spawn(pour(ours.sender, 5, TOTAL));
    soon(receiver.receive(1)).await.expect("it comes");
    endpoint.rebind().expect("a socket");
    soon(async { while let Ok(Some(_)) = receiver.receive(60_000).await {} }).await;
    soon(pouring).await.expect("all is sent");
    let after = endpoint.local_address().expect("an address").port();
    assert_ne!(after, before.0);
    assert_eq!(server.peer().port(), after);
    let (next, at_server) = soon(async { tokio::join!(endpoint.connect(address, NAME), listener.accept()) }).await;
    assert_eq!(next.expect("a carrier").binding(), at_server.expect("a carrier").binding());
}

#[tokio::test]
async fn a_sender_notices_a_shut_way_long_before_its_carrier_is_gone() {
    let options = QuicOptions { idle: Duration::from_secs(600), ..QuicOptions::device() };
    let listener = quic_listener(V4, &options, QuicLimits::default());
    let way = Way::to(listener.local_address().expect("an address")).await;
    let endpoint = quic_device(&options);
    let (device, server) = soon(async { tokio::join!(endpoint.connect(way.address, NAME), listener.accept()) }).await;
    let (device, server) = (device.expect("a carrier"), server.expect("a carrier"));
    let (ours, theirs) = soon(lane(&device, &server)).await;
    let (there, back) = (pour(ours.sender, 1, TOTAL), drain(theirs.receiver, 1, TOTAL));
    tokio::select! {
        () = device.silent(SILENCE) => panic!("it was called silent while it carried"),
        _ = async { tokio::join!(there, back) } => {}
    }
    let mut again = soon(lane(&device, &server)).await.0;
    way.shut();
    again.sender.send(&mut [bytes::Bytes::from_static(b"unheard")]).await.expect("it is taken");
    soon(device.silent(SILENCE)).await;
    // It is not gone: once the way is open again, the same carrier goes on from a fresh socket.
    way.reopen();
    endpoint.rebind().expect("a socket");
    soon(lane(&device, &server)).await;
}

#[tokio::test]
async fn an_idle_carrier_ends_by_its_idle_time_and_is_never_called_silent() {
    let options = QuicOptions { idle: Duration::from_secs(1), ..QuicOptions::device() };
    let listener = quic_listener(V4, &options, QuicLimits::default());
    let endpoint = quic_device(&options);
    let address = listener.local_address().expect("an address");
    let (device, server) = soon(async { tokio::join!(endpoint.connect(address, NAME), listener.accept()) }).await;
    let (device, server) = (device.expect("a carrier"), server.expect("a carrier"));
    let _lanes = soon(lane(&device, &server)).await;
    tokio::select! {
        () = device.silent(Duration::from_millis(400)) => panic!("the device was called silent"),
        () = server.silent(Duration::from_millis(400)) => panic!("the server was called silent"),
        error = device.closed() => assert_eq!(error.kind(), std::io::ErrorKind::TimedOut),
    }
}

/// Another thread's.
fn runtime() -> Runtime {
    tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().expect("a runtime")
}

/// The server that was there, begun again.
async fn restarted(runtime: &Runtime, address: SocketAddr, key: &ResetKey) -> QuicListener {
    let options = QuicOptions { resets: Some(key.clone()), ..QuicOptions::server() };
    // The socket of the one that was killed goes when its threads do.
    loop {
        let bound = {
            let _within = runtime.enter();
            QuicListener::bind(address, &TLS.server, &options, QuicLimits::default())
        };
        match bound {
            Ok(listener) => return listener,
            Err(_) => tokio::time::sleep(Duration::from_millis(10)).await,
        }
    }
}

/// A server that has a carrier, and ends without a word to its device, as a killed process does. Returns where it was, and the device's end.
async fn ended(endpoint: &QuicDevice, key: &ResetKey) -> (SocketAddr, QuicCarrier) {
    let options = QuicOptions { resets: Some(key.clone()), ..QuicOptions::server() };
    let killed = runtime();
    let listener = {
        let _within = killed.enter();
        quic_listener(V4, &options, QuicLimits::default())
    };
    let address = listener.local_address().expect("an address");
    let (device, server) = soon(async { tokio::join!(endpoint.connect(address, NAME), listener.accept()) }).await;
    let (device, server) = (device.expect("a carrier"), server.expect("a carrier"));
    soon(lane(&device, &server)).await;
    let end = move || killed.shutdown_timeout(Duration::from_secs(60));
    tokio::task::spawn_blocking(end).await.expect("it ends");
    // Now that its threads have ended, nothing of it sends.
    drop((listener, server));
    (address, device)
}

#[tokio::test]
async fn a_restarted_server_with_the_same_key_tells_its_devices_so() {
    let [key, other] = [b"secret", b"others"].map(|secret| ResetKey::derive(secret, b"place"));
    // A device's idle time is what it waits for else.
    let patient = QuicOptions { idle: Duration::from_secs(600), ..QuicOptions::device() };
    for (key, then, is_told) in [(&key, key.clone(), true), (&other, key.clone(), false)] {
        let idle = if is_told { patient.idle } else { Duration::from_secs(2) };
        let endpoint =
            quic_device(&QuicOptions { idle, keep_alive: Some(Duration::from_millis(200)), ..patient.clone() });
        let (address, device) = ended(&endpoint, key).await;
        let runtime = runtime();
        let _listener = soon(restarted(&runtime, address, &then)).await;
        let error = soon(device.closed()).await;
        let why = error.get_ref().and_then(|why| why.downcast_ref::<quinn::ConnectionError>());
        assert_eq!(matches!(why, Some(quinn::ConnectionError::Reset)), is_told, "{error}");
        runtime.shutdown_background();
    }
}

#[tokio::test]
async fn a_device_may_move_just_when_its_server_tells_it_that_it_was_restarted() {
    let key = ResetKey::derive(b"secret", b"another place");
    let endpoint = Arc::new(quic_device(&QuicOptions::device()));
    for turns in (0..5).cycle().take(20) {
        let (address, device) = ended(&endpoint, &key).await;
        // It answers while this thread does something else.
        let runtime = runtime();
        let listener = soon(restarted(&runtime, address, &key)).await;
        // What is asked after a move is answered by a reset, which has come when it moves again, and got so far or so far.
        let moving = endpoint.clone();
        let moves = async move {
            moving.rebind().expect("a socket");
            tokio::task::yield_now().await;
            std::thread::sleep(Duration::from_millis(20));
            for _ in 0..turns {
                tokio::task::yield_now().await;
            }
            moving.rebind().expect("a socket");
        };
        // A task, so that it takes turns with the endpoint's.
        tokio::spawn(moves).await.expect("it moves");
        soon(device.closed()).await;
        runtime.shutdown_background();
        drop(listener);
    }
}

#[tokio::test]
async fn a_server_of_another_name_or_another_protocol_is_refused() {
    let listener = quic_listener(V4, &QuicOptions::server(), QuicLimits::default());
    let address = listener.local_address().expect("an address");
    let endpoint = quic_device(&QuicOptions::device());
    assert!(soon(endpoint.connect(address, "another.test")).await.is_err());
    let mut strange = TLS.server.clone();
    strange.alpn_protocols = vec![b"h3".to_vec()];
    let crypto = quinn::crypto::rustls::QuicServerConfig::try_from(strange).expect("TLS");
    let config = quinn::ServerConfig::with_crypto(Arc::new(crypto));
    let server = quinn::Endpoint::server(config, any_port(V4)).expect("an endpoint");
    let address = server.local_addr().expect("an address");
    let shaking = tokio::spawn(async move { server.accept().await.expect("a packet").await.is_err() });
    assert!(soon(endpoint.connect(address, NAME)).await.is_err());
    assert!(soon(shaking).await.expect("an answer"));
}

#[tokio::test]
async fn packets_grow_to_the_largest_on_loopback() {
    let (device, server) = quic_pair(V4).await;
    let (ours, theirs) = soon(lane(&device, &server)).await;
    soon(async { tokio::join!(pour(ours.sender, 1, TOTAL), drain(theirs.receiver, 1, TOTAL)) }).await;
    let stats = device.stats();
    assert!(stats.path.current_mtu > 6_000, "{:?}", stats.path);
    assert_eq!(stats.path.black_holes_detected, 0);
}

#[tokio::test]
async fn an_endpoint_leaves_by_the_address_and_the_interface_that_it_was_given() {
    let listener = quic_listener(V4, &QuicOptions::server(), QuicLimits::default());
    let address = listener.local_address().expect("an address");
    let local = Local {
        address: Some("127.0.0.9".parse().expect("an address")),
        interface: Some("lo".into()),
        ..Local::default()
    };
    let endpoint = QuicDevice::new(local.clone(), &TLS.device, &QuicOptions::device()).expect("an endpoint");
    let (_device, server) = soon(async { tokio::join!(endpoint.connect(address, NAME), listener.accept()) }).await;
    assert_eq!(Some(server.expect("a carrier").peer().ip()), local.address);
    let nowhere = Local { interface: Some("no-such-link".into()), ..Local::default() };
    assert!(QuicDevice::new(nowhere, &TLS.device, &QuicOptions::device()).is_err());
}

#[tokio::test]
async fn a_stranger_sends_little_until_it_is_known_whose_the_carrier_is() {
    let (device, server) = quic_strangers(V4).await;
    let (ours, theirs) = soon(lane(&device, &server)).await;
    let sent = tokio::spawn(pour(ours.sender, 5, 1_000_000));
    soon(async {
        while device.stats().frame_tx.data_blocked == 0 {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    })
    .await;
    assert!(server.stats().udp_rx.bytes < 200_000, "{:?}", server.stats().udp_rx);
    server.set_known();
    soon(drain(theirs.receiver, 5, 1_000_000)).await;
    soon(sent).await.expect("all is taken");
}

/// A way on which a device's packets come to `server` from `first`, and from `then` once it has moved.
async fn way_that_moves(server: SocketAddr, first: IpAddr, then: IpAddr) -> (SocketAddr, Arc<AtomicBool>) {
    let socket = async |address| tokio::net::UdpSocket::bind(any_port(address)).await.expect("a socket");
    let (front, first, then) = (socket(V4).await, socket(first).await, socket(then).await);
    let (address, has_moved) = (front.local_addr().expect("an address"), Arc::<AtomicBool>::default());
    let moved = has_moved.clone();
    tokio::spawn(async move {
        let (mut device, mut out) = (None, vec![0; 65_536]);
        let [mut home, mut home_too] = [vec![0; 65_536], vec![0; 65_536]];
        loop {
            tokio::select! {
                Ok((len, from)) = front.recv_from(&mut out) => {
                    device = Some(from);
                    let back = if moved.load(Ordering::Relaxed) { &then } else { &first };
                    let _ = back.send_to(&out[..len], server).await;
                }
                Ok(len) = first.recv(&mut home) => {
                    let _ = front.send_to(&home[..len], device.expect("it spoke first")).await;
                }
                Ok(len) = then.recv(&mut home_too) => {
                    let _ = front.send_to(&home_too[..len], device.expect("it spoke first")).await;
                }
            }
        }
    });
    (address, has_moved)
}

/// Sends a byte at a time, at most so many, until the carrier is ended. How many were sent.
async fn trickle(device: &QuicCarrier, server: &QuicCarrier, most: u32) -> u32 {
    let (mut ours, mut theirs) = soon(lane(device, server)).await;
    let reader = tokio::spawn(async move { while let Ok(Some(_)) = theirs.receiver.receive(9).await {} });
    let mut sent = 0;
    while sent < most && ours.sender.send(&mut [Bytes::from_static(b"x")]).await.is_ok() {
        sent += 1;
        tokio::task::yield_now().await;
    }
    reader.abort();
    sent
}

#[tokio::test]
async fn a_stranger_that_takes_a_processor_is_ended_and_shunned_where_it_shook_hands() {
    const MOST: u32 = 1_000_000;
    let listener = quic_listener(V4, &QuicOptions::server(), QuicLimits::default());
    let server = listener.local_address().expect("an address");
    let elsewhere = IpAddr::from([127, 0, 0, 9]);
    let (address, has_moved) = way_that_moves(server, V4, elsewhere).await;
    let stranger = quic_device(&QuicOptions::device());
    let (device, at_server) = soon(async { tokio::join!(stranger.connect(address, NAME), listener.accept()) }).await;
    let (device, at_server) = (device.expect("a carrier"), at_server.expect("a carrier"));
    has_moved.store(true, Ordering::Relaxed);
    let sent = soon(trickle(&device, &at_server, MOST)).await;
    assert!(sent < MOST);
    soon(at_server.closed()).await;
    assert_eq!(at_server.peer().ip(), elsewhere);
    assert_eq!(Carrier::peer(&at_server), Some(V4), "where it shook hands");
    // Nobody else pays for it.
    assert!(soon(quic_device(&QuicOptions::device()).connect(server, NAME)).await.is_err());
    let local = Local { address: Some(elsewhere), ..Local::default() };
    let other = QuicDevice::new(local, &TLS.device, &QuicOptions::device()).expect("an endpoint");
    let (other, _at_server) = soon(async { tokio::join!(other.connect(server, NAME), listener.accept()) }).await;
    other.expect("a carrier");

    // A device that is known may send as it likes.
    let (device, server) = quic_pair(V4).await;
    assert_eq!(soon(trickle(&device, &server, 2 * sent)).await, 2 * sent);
}

#[tokio::test]
async fn what_many_lanes_say_at_once_goes_in_few_packets() {
    const LANES: usize = 60;
    let (device, server) = quic_pair(V4).await;
    let mut lanes = Vec::new();
    for _ in 0..LANES {
        let mut lane = soon(device.open()).await.expect("a lane");
        lane.sender.send(&mut [Bytes::from_static(b"hello")]).await.expect("it is sent");
        let there = soon(server.accept()).await.expect("a lane");
        lanes.push((lane, there));
    }
    // What QUIC does by itself after a handshake, and its acknowledgements, are over.
    tokio::time::sleep(Duration::from_millis(200)).await;
    let before = device.stats();
    let mut words = vec![[Bytes::from_static(b"again")]; LANES];
    let mut says: Vec<_> = lanes.iter_mut().zip(&mut words).map(|((lane, _), word)| lane.sender.send(word)).collect();
    for say in &mut says {
        let said = say.as_mut().poll(&mut Context::from_waker(Waker::noop()));
        assert!(said.is_pending(), "it waits for what others say");
    }
    for say in says {
        soon(say).await.expect("it is sent");
    }
    for (_, there) in &mut lanes {
        let mut heard = Vec::new();
        while heard.len() < 10 {
            heard.extend(soon(there.receiver.receive(100)).await.expect("bytes").expect("no end"));
        }
        assert_eq!(heard, b"helloagain");
    }
    let packets = device.stats().udp_tx.datagrams - before.udp_tx.datagrams;
    assert!(packets <= 5, "{packets} packets for {LANES} lanes, each of which says a word");
}

#[tokio::test]
async fn a_lane_given_up_while_it_says_something_is_broken_off() {
    let (device, server) = quic_pair(V4).await;
    let mut lane = soon(device.open()).await.expect("a lane");
    lane.sender.send(&mut [Bytes::from_static(b"hello")]).await.expect("it is sent");
    let mut there = soon(server.accept()).await.expect("a lane");
    let mut chunks = [Bytes::from_static(b"never")];
    // Polled once, and given up before it is done.
    assert!(lane.sender.send(&mut chunks).as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
    drop(lane);
    let ended = soon(async {
        loop {
            match there.receiver.receive(100).await {
                Ok(Some(_)) => {}
                ended => break ended,
            }
        }
    });
    assert!(ended.await.is_err(), "not a clean end");
}
