//! What the tests share: a gateway on loopback, a device that speaks to it, sealed uploads, and a service that can be told to
//! behave badly.
#![allow(dead_code, missing_docs, reason = "each test binary uses its own part")]

pub mod service;

use bytes::Bytes;
use hoop_gateway::{Config, Gateway};
use hoop_http::{Body, Connection, Connector, Origin, ShutdownTrigger, empty, full, read_limited, shutdown, tls};
use hoop_seal::{ContentKey, Grant, Keyring, KwsId, Prelude, RECORD_SIZE, Route, Sealer, ServiceKey, Suite, UploadKey};
use hoop_spool::View;
use hoop_units::{ByteRange, ContentRange, UnixTime, UploadId};
use http::request::Builder;
use http::{HeaderMap, Request, StatusCode};
use serde_json::Value;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::time::Duration;
use tokio::task::JoinHandle;

/// Long enough for the slowest machine; nothing waits so long when all is well.
pub const GENEROUS: Duration = Duration::from_secs(60);

/// A ticket's usual end: far from now.
pub const LATER: UnixTime = UnixTime(4_000_000_000);

/// A sealed upload of `len` bytes of plaintext, named by `seed`.
pub fn sealed(seed: u8, len: usize, expires: UnixTime) -> Vec<u8> {
    let origin = "https://photos.example";
    let ring = Keyring::new(ServiceKey::new(KwsId([1, 2, 3, 4]), [7; 32]));
    let key = UploadKey([seed; 32]);
    let grant = Grant {
        key: key.clone(),
        not_before: UnixTime(0),
        max_bytes: u64::MAX,
        route: Route::ANY,
        suite: Suite::Aes256Gcm,
    };
    let ticket = ring.seal_ticket(origin, UploadId([seed; 16]), expires, &grant, [seed; 12]);
    let prelude = Prelude::new([seed; 16], RECORD_SIZE, &ticket).unwrap();
    let mut z = Vec::new();
    let mut sealer = Sealer::new(ContentKey::new(Suite::Aes256Gcm, &key, &[seed; 16]), &prelude, &mut z);
    let plaintext: Vec<u8> = (0..len).map(|i| (i / 7) as u8 ^ seed).collect();
    sealer.push(&plaintext, &mut z);
    sealer.finish(&mut z);
    z
}

/// The prelude of a sealed upload, as a header.
pub fn prelude_header(z: &[u8]) -> String {
    Prelude::parse(z).unwrap().to_header()
}

/// Bytes before the first record.
pub const PRELUDE_LEN: u64 = 128;

/// Where record `index` begins.
pub const fn border(index: u64) -> u64 {
    PRELUDE_LEN + index * RECORD_SIZE as u64
}

/// A gateway that runs on loopback.
pub struct Running {
    pub address: SocketAddr,
    stop: ShutdownTrigger,
    task: JoinHandle<()>,
}

/// A configuration for tests: loopback alone is listened on and delivered to, nothing is announced.
pub fn config(spool: &Path) -> Config {
    Config {
        listen: (Ipv4Addr::LOCALHOST, 0).into(),
        allow_dest: vec!["127.0.0.1".parse().unwrap()],
        reserve_bytes: 0,
        mdns: false,
        ..Config::new(spool)
    }
}

pub async fn start(config: Config) -> Running {
    let gateway = Gateway::open(config).await.unwrap();
    let address = gateway.address();
    let (stop, shutdown) = shutdown();
    Running { address, stop, task: tokio::spawn(gateway.run(shutdown)) }
}

impl Running {
    pub async fn stop(self) {
        self.stop.trigger();
        self.task.await.unwrap();
    }
}

/// An answer, read whole.
#[derive(Debug)]
pub struct Reply {
    pub status: StatusCode,
    pub headers: HeaderMap,
    pub body: Bytes,
}

impl Reply {
    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or(Value::Null)
    }

    /// The problem's code, or nothing.
    pub fn code(&self) -> String {
        self.json()["code"].as_str().unwrap_or_default().to_owned()
    }

    pub fn header(&self, name: &str) -> &str {
        self.headers.get(name).map_or("", |value| value.to_str().unwrap())
    }
}

/// A connection to `address`.
pub async fn connect(address: SocketAddr) -> Connection {
    let origin: Origin = format!("http://{address}").parse().unwrap();
    Connector::new(tls::client_config(&[]).unwrap()).connect(&origin).await.unwrap()
}

/// Sends one request over a connection of its own.
pub async fn send(address: SocketAddr, request: Builder, body: Body) -> Reply {
    let request: Request<Body> = request.header("host", address.to_string()).body(body).unwrap();
    let mut connection = connect(address).await;
    let response = tokio::time::timeout(GENEROUS, connection.send(request)).await.unwrap().unwrap();
    let (head, body) = response.into_parts();
    Reply { status: head.status, headers: head.headers, body: read_limited(body, 1 << 20).await.unwrap() }
}

pub async fn get(address: SocketAddr, target: &str) -> Reply {
    send(address, Request::get(target).header("accept", "application/json"), empty()).await
}

pub async fn head(address: SocketAddr, id: UploadId) -> Reply {
    send(address, Request::head(format!("/offload/{id}")), empty()).await
}

pub async fn post(address: SocketAddr, dest: &str, z: &[u8]) -> Reply {
    send(address, Request::post(format!("/offload?dest={dest}")), full(z.to_vec())).await
}

/// Puts bytes `range` of `z`.
pub async fn put(address: SocketAddr, dest: &str, z: &[u8], range: ByteRange) -> Reply {
    let content_range = ContentRange { range, total: z.len() as u64 }.to_string();
    let body = full(z[range.start as usize..range.end as usize].to_vec());
    send(address, put_request(dest, z, &content_range), body).await
}

/// Puts bytes `range` of `z` without its prelude.
pub async fn put_early(address: SocketAddr, dest: &str, z: &[u8], range: ByteRange) -> Reply {
    let content_range = ContentRange { range, total: z.len() as u64 }.to_string();
    let request = Request::put(format!("/offload/{}?dest={dest}", id_of(z)))
        .header("content-range", content_range)
        .header("hoop-early", "?1");
    send(address, request, full(z[range.start as usize..range.end as usize].to_vec())).await
}

/// A `PUT` with any `Content-Range`.
pub fn put_request(dest: &str, z: &[u8], content_range: &str) -> Builder {
    Request::put(format!("/offload/{}?dest={dest}", id_of(z)))
        .header("content-range", content_range)
        .header("hoop-prelude", prelude_header(z))
}

pub fn id_of(z: &[u8]) -> UploadId {
    let prelude = Prelude::parse(z).unwrap();
    hoop_seal::TicketLabel::parse(prelude.key_id()).unwrap().upload_id
}

/// The monitor's JSON.
pub async fn status(address: SocketAddr, id: UploadId) -> Value {
    get(address, &format!("/monitor?ID={id}")).await.json()
}

/// Waits until the monitor says so.
pub async fn until(address: SocketAddr, id: UploadId, what: &str, holds: impl Fn(&Value) -> bool) -> Value {
    let end = tokio::time::Instant::now() + GENEROUS;
    loop {
        let status = status(address, id).await;
        if holds(&status) {
            return status;
        }
        assert!(tokio::time::Instant::now() < end, "{what} never came about: {status}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

pub async fn until_state(address: SocketAddr, id: UploadId, state: &str) -> Value {
    until(address, id, state, |status| status["state"] == state).await
}

/// Waits until nothing is known of an upload any more.
pub async fn until_dropped(address: SocketAddr, id: UploadId) {
    let until = tokio::time::Instant::now() + GENEROUS;
    while head(address, id).await.status != 404 {
        assert!(tokio::time::Instant::now() < until, "it is never dropped");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

/// The files that payloads are in: uploads' own, and segments.
pub fn payload_files(spool: &Path) -> Vec<PathBuf> {
    let folders = std::fs::read_dir(spool.join("uploads")).unwrap().map(|folder| folder.unwrap().path());
    folders.flat_map(|folder| std::fs::read_dir(folder).unwrap()).map(|file| file.unwrap().path()).collect()
}

/// The length of the only file that payloads are in; 0: there is none.
pub fn written(spool: &Path) -> u64 {
    payload_files(spool).first().map_or(0, |file| std::fs::metadata(file).map_or(0, |file| file.len()))
}

/// The bytes of an upload that a spool has recorded; zeroes where some are missing.
pub fn recorded(spool: &Path, id: UploadId) -> Vec<u8> {
    let view = View::open(spool, PRELUDE_LEN).unwrap();
    let upload = view.get(id).unwrap().unwrap();
    let mut bytes = vec![0; upload.stored.iter().last().map_or(0, |range| range.end as usize)];
    let payload = view.payload(id).unwrap();
    for range in upload.stored.iter() {
        payload.read_at(range.start, &mut bytes[range.start as usize..range.end as usize]).unwrap();
    }
    bytes
}
