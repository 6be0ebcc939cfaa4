//! Senders that only want the place.

use crate::support::device::{seal, ticket};
use crate::support::upstream::Upstream;
use crate::support::{PATIENCE, Sidecar, bytes, wire};
use std::time::Duration;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

#[tokio::test]
async fn a_dripping_sender_is_cut_off_and_its_records_are_kept() {
    let upstream = Upstream::willing().await;
    let sidecar = Sidecar::with(upstream.address, |config| config.body_timeout = Duration::from_secs(3)).await;
    let sealed = seal(&ticket(&sidecar).await, &bytes(2 << 20, 1));
    let request = sealed.put_request(sealed.records(0, sealed.layout.records()));
    let stream = TcpStream::connect(sidecar.address).await.unwrap();
    let (mut reader, mut writer) = stream.into_split();
    let begun = request.len() - sealed.z.len() + sealed.layout.record(2).start as usize;
    writer.write_all(&request[..begun]).await.unwrap();
    let mut answer = Vec::new();
    let reading = async { reader.read_to_end(&mut answer).await.unwrap() };
    let dripping = async {
        for byte in &request[begun..] {
            let _ = writer.write_all(&[*byte]).await;
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    };
    let answered = async {
        tokio::select! { len = reading => len, () = dripping => 0 }
    };
    assert_ne!(tokio::time::timeout(PATIENCE, answered).await.expect("it is cut off"), 0);
    let reply = wire::Reply::parse(&answer);
    assert_eq!(reply.problem(), (408, "request-timeout".into()));
    let missing = format!("{}-{}", sealed.layout.record(2).start, sealed.z.len() - 1);
    assert_eq!(reply.field("hoop-missing"), Some(missing.as_str()));
}

#[tokio::test]
async fn a_whole_body_whose_prelude_does_not_come_is_cut_off_at_once() {
    let upstream = Upstream::willing().await;
    let sidecar = Sidecar::with(upstream.address, |config| config.body_timeout = Duration::from_secs(3600)).await;
    let sealed = seal(&ticket(&sidecar).await, &bytes(100_000, 1));
    let request = wire::request("POST", "/hoop/post", &[], &sealed.z);
    let mut stream = TcpStream::connect(sidecar.address).await.unwrap();
    stream.write_all(&request[..request.len() - sealed.z.len() + 20]).await.unwrap();
    let mut answer = Vec::new();
    tokio::time::timeout(PATIENCE, stream.read_to_end(&mut answer)).await.expect("it is cut off").unwrap();
    assert_eq!(wire::Reply::parse(&answer).problem(), (408, "request-timeout".into()));
}
