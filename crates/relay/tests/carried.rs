//! A program's connections through an agent and a relay, over real sockets on loopback.
#![allow(missing_docs)]

use hoop_endpoint::{FlowError, FlowOptions, Refusal};
use hoop_relay::agent::Agent;
use hoop_relay::{Allowed, Introduction, Link, Relay, RelayConfig, Way, codes, introduce};
use std::path::Path;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, UnixStream};
use tokio::sync::oneshot;

const LEN: usize = 3_000_000;

/// A relay on loopback, and what a new device is told of it.
async fn relay(folder: &Path) -> Introduction {
    let signed = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).unwrap();
    let (certificate, key) = (folder.join("cert.pem"), folder.join("key.pem"));
    std::fs::write(&certificate, signed.cert.pem()).unwrap();
    std::fs::write(&key, signed.signing_key.serialize_pem()).unwrap();
    let devices = folder.join("devices.toml");
    introduce(&devices, "another.example:1", None).unwrap();
    let allowed = Allowed { addresses: [[127, 0, 0, 1].into()].into(), ..Allowed::default() };
    let config =
        RelayConfig { listen: "127.0.0.1:0".parse().unwrap(), certificate, key, devices: devices.clone(), allowed };
    let relay = Relay::bind(&config).await.unwrap();
    let server = format!("localhost:{}", relay.address().port());
    tokio::spawn(relay.run());
    let mut introduction = introduce(&devices, &server, Some(signed.cert.pem())).unwrap();
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
async fn what_a_program_sends_comes_back_from_where_it_wanted_to_go_also_if_it_leaves_at_once() {
    let folder = tempfile::tempdir().unwrap();
    let introduction = relay(folder.path()).await;
    let echo = echo().await;
    let link = Link::start(&introduction, vec![Way::any()]).unwrap();
    let (socket, (end, ended)) = (folder.path().join("agent"), oneshot::channel::<()>());
    let agent = Agent::bind(&socket, FlowOptions::default()).unwrap();
    let running = tokio::spawn(async move { agent.run(&link, async { drop(ended.await) }).await });
    let one = async |number: u8| {
        let mut stream = UnixStream::connect(&socket).await.unwrap();
        stream.write_all(format!("{echo}\n").as_bytes()).await.unwrap();
        let (mut read, mut write) = stream.split();
        let octets: Vec<u8> = (0..LEN).map(|at| (at % 251) as u8 ^ number).collect();
        let sent = async {
            write.write_all(&octets).await.unwrap();
            write.shutdown().await.unwrap();
        };
        let mut back = Vec::new();
        let (_, read) = tokio::join!(sent, read.read_to_end(&mut back));
        read.unwrap();
        assert!(back == octets, "{} octets came back", back.len());
    };
    tokio::join!(one(1), one(2), one(3));
    // One that says where to and leaves; and one to where nobody may go.
    let mut last = UnixStream::connect(&socket).await.unwrap();
    last.write_all(format!("{echo}\nbye").as_bytes()).await.unwrap();
    drop(last);
    let mut forbidden = UnixStream::connect(&socket).await.unwrap();
    forbidden.write_all(b"10.0.0.1:80\n").await.unwrap();
    assert_eq!(forbidden.read(&mut [0]).await.unwrap_or(0), 0);
    drop(end);
    running.await.unwrap();
}

#[tokio::test]
async fn who_was_not_introduced_or_wants_what_there_is_not_is_told_so() {
    let folder = tempfile::tempdir().unwrap();
    let introduction = relay(folder.path()).await;
    let link = Link::start(&introduction, vec![Way::any()]).unwrap();
    for (service, code) in [("tcp:10.0.0.1:1", codes::FORBIDDEN), ("udp:", codes::MALFORMED)] {
        let mut flow = link.device().open(service, FlowOptions::default()).unwrap();
        let error = flow.read(&mut [0]).await.unwrap_err();
        assert_eq!(FlowError::of(&error), Some(FlowError::Ended(code)), "{service}");
    }
    let stranger = Introduction { host: "7".repeat(40), ..introduction.clone() };
    let thief = Introduction { key: "7".repeat(64), ..introduction };
    for wrong in [stranger, thief] {
        let link = Link::start(&wrong, vec![Way::any()]).unwrap();
        let mut flow = link.device().open("tcp:127.0.0.1:1", FlowOptions::default()).unwrap();
        let error = flow.read(&mut [0]).await.unwrap_err();
        assert_eq!(FlowError::of(&error), Some(FlowError::Refused(Refusal::Unknown)));
    }
}
