//! A program's connections through an agent and a relay, over real sockets on loopback.
#![allow(missing_docs)]

use hoop_carrier::{Listener, server_tls};
use hoop_endpoint::{FlowError, FlowOptions, FlowStream, Refusal, Server, ServerConfig, ended};
use hoop_relay::preload::{Notice, PreloadServer};
use hoop_relay::{
    Allowed, CacheConfig, Devices, Introduction, Link, NetworkPath, Relay, RelayConfig, ShareLimits, codes, introduce,
};
use rcgen::{BasicConstraints, CertificateParams, IsCa, KeyPair};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use std::future::pending;
use std::net::IpAddr;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, Interest};
use tokio::net::{TcpListener, TcpStream, UnixStream};
use tokio::sync::oneshot;
use tokio::task::JoinSet;
use tokio::time::timeout;

const LEN: usize = 3_000_000;

/// What a device may begin in a minute.
const BEGUN: u32 = 20;

/// A relay on loopback, and what a new device is told of it.
async fn relay(folder: &Path) -> Introduction {
    relay_with(folder, |_| {}).await
}

/// A self-signed certificate, and its key.
fn signed(change: impl FnOnce(&mut CertificateParams)) -> (String, String) {
    let mut params = CertificateParams::new(vec!["localhost".to_owned()]).unwrap();
    change(&mut params);
    let key = KeyPair::generate().unwrap();
    (params.self_signed(&key).unwrap().pem(), key.serialize_pem())
}

/// The same, with a certificate that is made otherwise.
async fn relay_with(folder: &Path, change: impl FnOnce(&mut CertificateParams)) -> Introduction {
    let (certificate, key) = (folder.join("cert.pem"), folder.join("key.pem"));
    let (cert_pem, key_pem) = signed(change);
    std::fs::write(&certificate, &cert_pem).unwrap();
    std::fs::write(&key, key_pem).unwrap();
    let devices = folder.join("devices.toml");
    introduce(&devices, "another.example:1", None).unwrap();
    let allowed = Allowed { addresses: [IpAddr::from([127, 0, 0, 1]).into()].into(), ..Allowed::default() };
    let config = RelayConfig {
        listen: "127.0.0.1:0".parse().unwrap(),
        plain_listen: None,
        certificate,
        key,
        devices: devices.clone(),
        allowed,
        shares: ShareLimits { begun_per_minute: BEGUN, ..ShareLimits::default() },
        ca: vec![],
        store: None,
        cache: CacheConfig::default(),
        admin: Some("127.0.0.1:0".parse().unwrap()),
        access_log: false,
    };
    let relay = Relay::bind(&config).await.unwrap();
    std::fs::write(folder.join("admin"), relay.admin_address().unwrap().to_string()).unwrap();
    let server = format!("localhost:{}", relay.address().port());
    tokio::spawn(relay.run());
    let mut introduction = introduce(&devices, &server, None).unwrap();
    // As it was when the device was introduced: it may have expired since.
    introduction.certificate = Some(cert_pem);
    introduction.addresses = vec![[127, 0, 0, 1].into()];
    introduction
}

/// Sends everything back, and ends when the sender does.
async fn echo() -> std::net::SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            tokio::spawn(async move {
                let (mut read, mut write) = stream.split();
                tokio::io::copy(&mut read, &mut write).await.map(drop)
            });
        }
    });
    address
}

#[tokio::test]
async fn what_a_program_sends_arrives_also_if_it_leaves_at_once() {
    let folder = tempfile::tempdir().unwrap();
    let introduction = relay(folder.path()).await;
    let echo = echo().await;
    let link = Link::start(&introduction, vec![NetworkPath::any()]).unwrap();
    let (socket, (end, ended)) = (folder.path().join("agent"), oneshot::channel::<()>());
    let agent = PreloadServer::bind(&socket, FlowOptions::default()).unwrap();
    let (notices, tell) = notices();
    let running = tokio::spawn(async move { agent.run(&link, async { drop(ended.await) }, tell).await });
    let one = async |number: u8| {
        let mut stream = UnixStream::connect(&socket).await.unwrap();
        stream.write_all(format!("{echo}\n").as_bytes()).await.unwrap();
        let (mut read, mut write) = stream.split();
        let bytes: Vec<u8> = (0..LEN).map(|at| (at % 251) as u8 ^ number).collect();
        let sent = async {
            write.write_all(&bytes).await.unwrap();
            write.shutdown().await.unwrap();
        };
        let mut back = Vec::new();
        let (_, read) = tokio::join!(sent, read.read_to_end(&mut back));
        read.unwrap();
        assert!(back == bytes, "{} bytes came back", back.len());
    };
    tokio::join!(one(1), one(2), one(3));
    // One that says where to and leaves; and one to where nobody may go.
    let mut last = UnixStream::connect(&socket).await.unwrap();
    last.write_all(format!("{echo}\nbye").as_bytes()).await.unwrap();
    drop(last);
    let mut forbidden = UnixStream::connect(&socket).await.unwrap();
    forbidden.write_all(b"10.0.0.1:80\n").await.unwrap();
    assert_eq!(forbidden.read(&mut [0]).await.unwrap_err().kind(), std::io::ErrorKind::ConnectionReset);
    drop(end);
    running.await.unwrap();
    let notices = notices.lock().unwrap();
    let [Notice::Refused(words)] = &notices[..] else { panic!("{notices:?}") };
    assert_eq!(words, "10.0.0.1:80: the relay does not go there (0x101): it must be run with --allow 10.0.0.1");
}

#[tokio::test]
async fn a_reset_of_the_server_is_one_for_the_program_and_its_end_an_end() {
    let folder = tempfile::tempdir().unwrap();
    let introduction = relay(folder.path()).await;
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let link = Link::start(&introduction, vec![NetworkPath::any()]).unwrap();
    let (socket, (end, ended)) = (folder.path().join("agent"), oneshot::channel::<()>());
    let agent = PreloadServer::bind(&socket, FlowOptions::default()).unwrap();
    let running = tokio::spawn(async move { agent.run(&link, async { drop(ended.await) }, |_| {}).await });
    for (resets, speaks) in [(true, true), (true, false), (false, true), (false, false)] {
        let mut program = UnixStream::connect(&socket).await.unwrap();
        program.write_all(format!("{address}\n{}", if speaks { "a request" } else { "" }).as_bytes()).await.unwrap();
        let (mut server, _) = listener.accept().await.unwrap();
        server.write_all(&[7; 500_000]).await.unwrap();
        let mut half = vec![0; 500_000];
        program.read_exact(&mut half).await.unwrap();
        if resets {
            server.set_zero_linger().unwrap();
        }
        drop(server);
        let read = timeout(Duration::from_secs(30), program.read(&mut half)).await.expect("it ends");
        match resets {
            true => assert_eq!(read.unwrap_err().kind(), std::io::ErrorKind::ConnectionReset, "{speaks}"),
            // What it was sent and did not read is a reset by the server, as everywhere.
            false if speaks => assert_eq!(read.unwrap_err().kind(), std::io::ErrorKind::ConnectionReset),
            false => assert_eq!(read.unwrap(), 0),
        }
    }
    drop(end);
    running.await.unwrap();
}

/// What a program's socket is filled with until it is connected, here.
const FILLED: usize = 1_000;

/// A program that waits until it is connected, as the library has it do; and how that ends.
async fn connecting(socket: &Path, destination: &str, number: u64) -> (UnixStream, i32) {
    let mut program = UnixStream::connect(socket).await.unwrap();
    let line = format!("{destination} {FILLED} {number:016x}\n");
    program.write_all(&[line.as_bytes(), &[0; FILLED]].concat()).await.unwrap();
    let mut asking = UnixStream::connect(format!("{}.asked", socket.display())).await.unwrap();
    asking.write_all(&[&b"w"[..], &number.to_be_bytes()].concat()).await.unwrap();
    let mut answer = [0; 4];
    timeout(Duration::from_secs(60), asking.read_exact(&mut answer)).await.expect("it ends").unwrap();
    (program, i32::from_ne_bytes(answer))
}

#[tokio::test]
async fn connecting_ends_as_the_relay_found_it() {
    let folder = tempfile::tempdir().unwrap();
    let introduction = relay(folder.path()).await;
    let (echo, free) = (echo().await, std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap());
    let link = Link::start(&introduction, vec![NetworkPath::any()]).unwrap();
    let (socket, (end, ended)) = (folder.path().join("agent"), oneshot::channel::<()>());
    let agent = PreloadServer::bind(&socket, FlowOptions::default()).unwrap();
    let (notices, tell) = notices();
    let running = tokio::spawn(async move { agent.run(&link, async { drop(ended.await) }, tell).await });
    let (mut made, answer) = connecting(&socket, &echo.to_string(), 1).await;
    assert_eq!(answer, 0);
    made.write_all(b"hello").await.unwrap();
    let mut back = [0; 5];
    made.read_exact(&mut back).await.unwrap();
    assert_eq!(&back, b"hello", "what it was filled with goes nowhere");
    made.shutdown().await.unwrap();
    assert_eq!(made.read(&mut back).await.unwrap(), 0);
    let refused = [(free.to_string(), 111), ("10.0.0.1:80".into(), 101), ("127.0.0.1:25".into(), 101)];
    for ((destination, errno), number) in refused.into_iter().zip(2..) {
        let (mut program, answer) = connecting(&socket, &destination, number).await;
        assert_eq!(answer, errno, "{destination}");
        assert_eq!(program.read(&mut back).await.unwrap_err().kind(), std::io::ErrorKind::ConnectionReset);
    }
    drop((end, made));
    running.await.unwrap();
    let told: Vec<_> = notices.lock().unwrap().iter().map(|notice| format!("{notice:?}")).collect();
    assert_eq!(told.len(), 2, "who is refused by the destination knows it: {told:?}");
}

#[tokio::test]
async fn a_program_that_closes_while_it_connects_leaves_nothing_behind() {
    let folder = tempfile::tempdir().unwrap();
    let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let told = introduce(&folder.path().join("devices.toml"), &format!("localhost:{free}"), None).unwrap();
    let link = Link::start(&Introduction { addresses: vec![[127, 0, 0, 1].into()], ..told }, vec![NetworkPath::any()])
        .unwrap();
    let socket = folder.path().join("agent");
    let agent = PreloadServer::bind(&socket, FlowOptions::default()).unwrap();
    let mut program = UnixStream::connect(&socket).await.unwrap();
    program.write_all(format!("192.0.2.1:80 {FILLED} 0000000000000001\n").as_bytes()).await.unwrap();
    program.write_all(&[0; FILLED]).await.unwrap();
    let (notices, tell) = notices();
    let ends = async {
        while link.device().flows() == 0 {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        drop(program);
    };
    timeout(Duration::from_secs(20), agent.run(&link, ends, tell)).await.expect("nothing is waited for");
    assert_eq!(*notices.lock().unwrap(), []);
}

/// A relay that does with each flow what is said, and is gone once the second is dropped.
async fn relay_that<F: Future<Output = ()> + Send + 'static>(
    folder: &Path,
    act: impl Fn(FlowStream) -> F + Send + 'static,
) -> (Introduction, JoinSet<()>) {
    let (certificate, key) = signed(|_| {});
    let chain = vec![CertificateDer::from_pem_slice(certificate.as_bytes()).unwrap()];
    let tls = server_tls(chain, PrivateKeyDer::from_pem_slice(key.as_bytes()).unwrap()).unwrap();
    let listener = Listener::bind("127.0.0.1:0".parse().unwrap(), &tls).await.unwrap();
    let (server, devices) = (format!("localhost:{}", listener.local_address().port()), folder.join("devices"));
    let told = introduce(&devices, &server, Some(certificate)).unwrap();
    let flows = Server::new(ServerConfig::new(Arc::new(Devices::open(&devices).unwrap())));
    let mut running = JoinSet::new();
    running.spawn(async move {
        let mut acts = JoinSet::new();
        loop {
            tokio::select! {
                carrier = listener.accept() => flows.serve(carrier.unwrap(), "fake"),
                flow = flows.accept() => drop(acts.spawn(act(flow.unwrap()))),
            }
        }
    });
    (Introduction { addresses: vec![[127, 0, 0, 1].into()], ..told }, running)
}

#[tokio::test]
async fn with_an_older_relay_connections_are_made_at_once() {
    let folder = tempfile::tempdir().unwrap();
    let act = async |flow: FlowStream| {
        if flow.service() != "tcp:192.0.2.1:80" {
            flow.reset(codes::MALFORMED);
        }
    };
    let (introduction, _relay) = relay_that(folder.path(), act).await;
    let link = Link::start(&introduction, vec![NetworkPath::any()]).unwrap();
    let socket = folder.path().join("agent");
    let agent = PreloadServer::bind(&socket, FlowOptions::default()).unwrap();
    let (notices, tell) = notices();
    tokio::spawn(async move { agent.run(&link, pending(), tell).await });
    for number in [1, 2] {
        assert_eq!(connecting(&socket, "192.0.2.1:80", number).await.1, 0);
    }
    let notices = notices.lock().unwrap();
    let [Notice::Refused(words)] = &notices[..] else { panic!("{notices:?}") };
    assert!(words.starts_with("the relay is older than this device"), "{words}");
}

#[tokio::test]
async fn connections_are_given_up_after_as_long_without_a_relay_as_is_asked_for() {
    let folder = tempfile::tempdir().unwrap();
    let act = async |mut flow: FlowStream| {
        flow.write_all(&[0, 7]).await.unwrap();
        pending::<()>().await;
    };
    let (introduction, relay) = relay_that(folder.path(), act).await;
    let link = Link::start(&introduction, vec![NetworkPath::any()]).unwrap();
    let socket = folder.path().join("agent");
    let agent = PreloadServer::bind(&socket, FlowOptions::default()).unwrap();
    let agent = agent.give_up_after(Some(Duration::from_millis(1_500)));
    let (notices, tell) = notices();
    let (end, ended) = oneshot::channel::<()>();
    let running = tokio::spawn(async move { agent.run(&link, async { drop(ended.await) }, tell).await });
    let (mut program, answer) = connecting(&socket, "192.0.2.1:80", 1).await;
    assert_eq!((answer, program.read_u8().await.unwrap()), (0, 7));
    // With a relay it waits for as long as it takes.
    assert!(timeout(Duration::from_secs(3), program.read_u8()).await.is_err());
    drop(relay);
    let begun = Instant::now();
    let read = timeout(Duration::from_secs(60), program.read_u8()).await.expect("it ends");
    assert_eq!(read.unwrap_err().kind(), std::io::ErrorKind::ConnectionReset);
    assert!(begun.elapsed() >= Duration::from_millis(1_400));
    let begun = Instant::now();
    assert_eq!(connecting(&socket, "192.0.2.1:80", 2).await.1, 110);
    assert!((1_400..30_000).contains(&begun.elapsed().as_millis()), "{:?}", begun.elapsed());
    let mut last = UnixStream::connect(&socket).await.unwrap();
    last.write_all(b"192.0.2.1:80\nlost").await.unwrap();
    drop((last, end));
    timeout(Duration::from_secs(60), running).await.expect("it does not wait on").unwrap();
    let notices = notices.lock().unwrap();
    let [Notice::Refused(words), .., Notice::GivenUp(1)] = &notices[..] else { panic!("{notices:?}") };
    assert_eq!(words, "there was no relay for 1.5 s: connections are given up");
}

/// Where an agent's notices go.
fn notices() -> (Arc<Mutex<Vec<Notice>>>, impl Fn(Notice) + Send + Sync + 'static) {
    let notices = Arc::new(Mutex::new(Vec::new()));
    let told = notices.clone();
    (notices, move |notice| told.lock().unwrap().push(notice))
}

/// Why a flow waits.
async fn waits_for(introduction: Introduction) -> String {
    let link = Link::start(&introduction, vec![NetworkPath::any()]).unwrap();
    let _flow = link.device().open("tcp:127.0.0.1:1", FlowOptions::default()).unwrap();
    let mut troubles = link.troubles();
    let trouble = troubles.wait_for(Option::is_some).await.unwrap().clone();
    assert!(!link.was_reached());
    trouble.unwrap().cause
}

#[tokio::test]
async fn whoever_waits_for_a_relay_learns_why() {
    let folders = [(); 3].map(|()| tempfile::tempdir().unwrap());
    let good = relay(folders[0].path()).await;
    let expired = relay_with(folders[1].path(), |params| {
        (params.not_before, params.not_after) = (rcgen::date_time_ymd(2019, 1, 1), rcgen::date_time_ymd(2020, 1, 1));
    });
    let authority = relay_with(folders[2].path(), |params| params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained));
    let port = good.server.rsplit_once(':').unwrap().1.to_owned();
    let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let lost = Introduction { server: "no-such-name.invalid:1".into(), addresses: Vec::new(), ..good.clone() };
    let (expired, authority, name, issuer, closed, nowhere) = tokio::join!(
        waits_for(expired.await),
        waits_for(authority.await),
        waits_for(Introduction { server: format!("other.example:{port}"), ..good.clone() }),
        waits_for(Introduction { certificate: Some(signed(|_| {}).0), ..good.clone() }),
        waits_for(Introduction { server: format!("localhost:{free}"), ..good.clone() }),
        waits_for(lost),
    );
    for (cause, words) in [
        (expired, "its certificate has expired"),
        (authority, "an authority's (CA:TRUE)"),
        (name, "its certificate is for another name (localhost)"),
        (issuer, "signed by nobody that this device trusts"),
        (closed, "nobody listens at that port"),
        (nowhere, "its name cannot be looked up"),
    ] {
        assert!(cause.contains(words), "`{cause}` is not `{words}`");
    }
}

#[tokio::test]
async fn a_server_that_closes_each_carrier_is_not_dialled_ever_again_at_once() {
    let folder = tempfile::tempdir().unwrap();
    let (certificate, key) = signed(|_| {});
    let chain = vec![CertificateDer::from_pem_slice(certificate.as_bytes()).unwrap()];
    let tls = server_tls(chain, PrivateKeyDer::from_pem_slice(key.as_bytes()).unwrap()).unwrap();
    let listener = Listener::bind("127.0.0.1:0".parse().unwrap(), &tls).await.unwrap();
    let server = format!("localhost:{}", listener.local_address().port());
    let told = introduce(&folder.path().join("devices.toml"), &server, Some(certificate)).unwrap();
    let link = Link::start(&Introduction { addresses: vec![[127, 0, 0, 1].into()], ..told }, vec![NetworkPath::any()])
        .unwrap();
    let _flow = link.device().open("tcp:127.0.0.1:1", FlowOptions::default()).unwrap();
    listener.accept().await.unwrap().close();
    // It says that it has no room; the second time, the device begins to wait.
    let mut more = 0;
    let closing = async {
        loop {
            listener.accept().await.unwrap().close();
            more += 1;
        }
    };
    let _ = timeout(Duration::from_secs(2), closing).await;
    assert!((1..10).contains(&more), "{more} within two seconds");
}

#[tokio::test]
async fn an_ended_program_whose_relay_was_never_reached_is_given_up() {
    let folder = tempfile::tempdir().unwrap();
    let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let server = format!("localhost:{free}");
    let told = introduce(&folder.path().join("devices.toml"), &server, None).unwrap();
    let link = Link::start(&Introduction { addresses: vec![[127, 0, 0, 1].into()], ..told }, vec![NetworkPath::any()])
        .unwrap();
    let socket = folder.path().join("agent");
    let agent =
        PreloadServer::bind(&socket, FlowOptions::default()).unwrap().reach_within(Duration::from_millis(2_500));
    let mut program = UnixStream::connect(&socket).await.unwrap();
    program.write_all(b"192.0.2.1:80\nbye").await.unwrap();
    drop(program);
    let (notices, tell) = notices();
    agent.run(&link, async {}, tell).await;
    assert_eq!(*notices.lock().unwrap(), [Notice::Undelivered(1), Notice::GivenUp(1)]);
}

#[tokio::test]
async fn who_was_not_introduced_or_wants_what_there_is_not_is_told_so() {
    let folder = tempfile::tempdir().unwrap();
    let introduction = relay(folder.path()).await;
    let link = Link::start(&introduction, vec![NetworkPath::any()]).unwrap();
    for (service, code) in [("tcp:10.0.0.1:1", codes::FORBIDDEN), ("udp:", codes::MALFORMED)] {
        let mut flow = link.device().open(service, FlowOptions::default()).unwrap();
        let error = flow.read(&mut [0]).await.unwrap_err();
        assert_eq!(FlowError::of(&error), Some(FlowError::Ended(code)), "{service}");
    }
    let stranger = Introduction { host: "7".repeat(40), ..introduction.clone() };
    let thief = Introduction { key: "7".repeat(64), ..introduction };
    for wrong in [stranger, thief] {
        let link = Link::start(&wrong, vec![NetworkPath::any()]).unwrap();
        let mut flow = link.device().open("tcp:127.0.0.1:1", FlowOptions::default()).unwrap();
        let error = flow.read(&mut [0]).await.unwrap_err();
        assert_eq!(FlowError::of(&error), Some(FlowError::Refused(Refusal::Unknown)));
    }
}

#[tokio::test]
async fn what_a_device_gives_up_is_broken_off_also_at_an_end_that_is_stuck() {
    let folder = tempfile::tempdir().unwrap();
    let introduction = relay(folder.path()).await;
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let link = Link::start(&introduction, vec![NetworkPath::any()]).unwrap();
    let service = format!("tcp:{}", listener.local_addr().unwrap());
    let mut flow = link.device().open(&service, FlowOptions::default()).unwrap();
    flow.write_all(b"x").await.unwrap();
    let (sleeper, _) = listener.accept().await.unwrap();
    // Until nothing goes any more: the other end's buffers are full, and the flow's windows.
    let block = vec![0; 1 << 20];
    while let Ok(written) = timeout(Duration::from_secs(1), flow.write_all(&block)).await {
        written.unwrap();
    }
    flow.reset(ended::APPLICATION);
    timeout(Duration::from_secs(30), sleeper.ready(Interest::ERROR)).await.expect("it is broken off").unwrap();
}

/// A destination takes the end of a connection for the end of what is sent.
#[tokio::test]
async fn a_part_of_what_a_program_sends_never_ends_as_if_it_were_all() {
    let folder = tempfile::tempdir().unwrap();
    let introduction = relay(folder.path()).await;
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let link = Link::start(&introduction, vec![NetworkPath::any()]).unwrap();
    let service = format!("tcp:{}", listener.local_addr().unwrap());
    for round in 0..BEGUN - 1 {
        let mut flow = link.device().open(&service, FlowOptions::default()).unwrap();
        flow.write_all(&[7; 50_000]).await.unwrap();
        let (mut destination, _) = listener.accept().await.unwrap();
        destination.read_exact(&mut [0; 1_000]).await.unwrap();
        flow.reset(ended::APPLICATION);
        let read = timeout(Duration::from_secs(30), destination.read_to_end(&mut Vec::new())).await.unwrap();
        assert_eq!(read.map_err(|error| error.kind()), Err(std::io::ErrorKind::ConnectionReset), "round {round}");
    }
}

/// What the relay in this folder tells of itself.
async fn metrics(folder: &Path) -> String {
    let address = std::fs::read_to_string(folder.join("admin")).unwrap();
    let mut stream = TcpStream::connect(&address).await.unwrap();
    let request = format!("GET /metrics HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    answer
}

/// A device's downloads to a stuck disk took all threads, and the device could not be shut out.
#[test]
fn a_device_is_shut_out_while_all_other_threads_wait_for_the_disk() {
    let (goes_on, disk) = std::sync::mpsc::channel::<()>();
    let runtime = tokio::runtime::Builder::new_current_thread().max_blocking_threads(1).enable_all().build();
    let over = runtime.unwrap().block_on(async {
        let folder = tempfile::tempdir().unwrap();
        let introduction = relay(folder.path()).await;
        let echo = echo().await;
        let link = Link::start(&introduction, vec![NetworkPath::any()]).unwrap();
        let mut flow = link.device().open(&format!("tcp:{echo}"), FlowOptions::default()).unwrap();
        flow.write_all(b"hello").await.unwrap();
        flow.read_exact(&mut [0; 5]).await.unwrap();
        tokio::task::spawn_blocking(move || disk.recv());
        std::fs::write(folder.path().join("new"), "").unwrap();
        std::fs::rename(folder.path().join("new"), folder.path().join("devices.toml")).unwrap();
        let ended = timeout(Duration::from_secs(60), flow.read_u8()).await;
        drop(goes_on);
        ended.expect("it ends").unwrap_err();
        flow.status().borrow().over
    });
    assert_eq!(over, Some(FlowError::Ended(codes::REVOKED)));
}

#[tokio::test]
async fn a_device_that_is_taken_out_of_the_file_loses_its_open_connections() {
    let folder = tempfile::tempdir().unwrap();
    let introduction = relay(folder.path()).await;
    let echo = echo().await;
    let link = Link::start(&introduction, vec![NetworkPath::any()]).unwrap();
    let mut flow = link.device().open(&format!("tcp:{echo}"), FlowOptions::default()).unwrap();
    flow.write_all(b"hello").await.unwrap();
    flow.read_exact(&mut [0; 5]).await.unwrap();
    let told = metrics(folder.path()).await;
    for line in ["hoop_relay_devices 1", "hoop_relay_devices_known 2", "hoop_relay_connections 1", "up_bytes_total 5"] {
        assert!(told.contains(line), "{line}: {told}");
    }
    std::fs::write(folder.path().join("new"), "").unwrap();
    std::fs::rename(folder.path().join("new"), folder.path().join("devices.toml")).unwrap();
    assert!(timeout(Duration::from_secs(60), flow.read_u8()).await.expect("it ends").is_err());
    assert_eq!(flow.status().borrow().over, Some(FlowError::Ended(codes::REVOKED)));
    let told = metrics(folder.path()).await;
    for line in ["hoop_relay_devices 0", "hoop_relay_devices_known 0", "hoop_relay_revoked_total 1"] {
        assert!(told.contains(line), "{line}: {told}");
    }
}

#[tokio::test]
async fn a_device_that_begins_more_connections_than_its_share_is_told_so() {
    let folder = tempfile::tempdir().unwrap();
    let introduction = relay(folder.path()).await;
    let echo = echo().await;
    let link = Link::start(&introduction, vec![NetworkPath::any()]).unwrap();
    let open = || link.device().open(&format!("tcp:{echo}"), FlowOptions::default()).unwrap();
    let mut flows: Vec<_> = (0..2 * BEGUN).map(|_| open()).collect();
    let mut refused = 0;
    for flow in &mut flows {
        // One that was refused takes nothing any more.
        let _ = flow.write_all(b"hello").await;
        match timeout(Duration::from_secs(60), flow.read_exact(&mut [0; 5])).await.expect("it is answered") {
            Ok(_) => {}
            Err(_) => {
                assert_eq!(flow.status().borrow().over, Some(FlowError::Ended(codes::TOO_MANY)));
                refused += 1;
            }
        }
    }
    // A slow machine has some more in the time that this takes.
    assert!((1..=BEGUN).contains(&refused), "{refused}");
    assert!(metrics(folder.path()).await.contains(&format!("refused_total{{code=\"0x105\"}} {refused}\n")));
}
