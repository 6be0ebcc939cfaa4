//! What the tests of the service share: a little application that counts and can misbehave, a service in front of it, and a
//! device that seals.
#![allow(dead_code)]

pub mod device;
pub mod upstream;
pub mod wire;

use hoop_http::{Origin, ShutdownTrigger, shutdown};
use hoop_seal::{Keyring, KwsId, ServiceKey};
use hoop_service::{Config, Service};
use hoop_units::Backoff;
use serde_json::Value;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;
use tempfile::TempDir;
use tokio::net::TcpListener;
use tokio::task::JoinHandle;
use wire::Reply;

pub const ORIGIN: &str = "https://photos.example";
pub const COOKIE: &str = "session=s3cret-of-alice";

/// The most that a test waits for what must come.
pub const PATIENCE: Duration = Duration::from_secs(60);

pub fn keys() -> Keyring {
    Keyring::new(ServiceKey::new(KwsId([1; 4]), [2; 32]))
}

/// What the application tells attempts of an upload by: nobody without the keys can say it.
pub fn idempotency_key(id: &str) -> String {
    let id: hoop_units::UploadId = id.parse().unwrap();
    let tag = keys().owner_tags(b"\0idempotency", id.as_bytes()).next().unwrap();
    tag.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// A configuration that a test can run: any free port, quick retries.
pub fn config(upstream: SocketAddr, state_dir: PathBuf) -> Config {
    let upstream: Origin = format!("http://{upstream}").parse().unwrap();
    Config {
        listen: ([127, 0, 0, 1], 0).into(),
        backoff: Backoff { base: Duration::from_millis(20), cap: Duration::from_millis(20) },
        ..Config::new(upstream, ORIGIN.parse().unwrap(), keys(), state_dir)
    }
}

/// A service in this process.
pub struct Sidecar {
    pub address: SocketAddr,
    pub dir: PathBuf,
    _temporary: Option<TempDir>,
    trigger: ShutdownTrigger,
    task: JoinHandle<()>,
}

impl Sidecar {
    pub async fn before(upstream: SocketAddr) -> Self {
        Self::with(upstream, |_| {}).await
    }

    pub async fn with(upstream: SocketAddr, change: impl FnOnce(&mut Config)) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let mut sidecar = Self::on(upstream, dir.path().to_owned(), change).await;
        sidecar._temporary = Some(dir);
        sidecar
    }

    /// On a state folder that may have been used before.
    pub async fn on(upstream: SocketAddr, dir: PathBuf, change: impl FnOnce(&mut Config)) -> Self {
        let mut config = config(upstream, dir.clone());
        change(&mut config);
        let service = Service::open(config).await.unwrap();
        let address = service.address();
        let (trigger, stop) = shutdown();
        let task = tokio::spawn(service.run(stop));
        Self { address, dir, _temporary: None, trigger, task }
    }

    /// Stops it, and hands the state folder on.
    pub async fn stop(self) -> Option<TempDir> {
        self.trigger.trigger();
        self.task.await.unwrap();
        self._temporary
    }

    pub async fn send(&self, method: &str, path: &str, fields: &[(&str, &str)], body: &[u8]) -> Reply {
        wire::send(self.address, method, path, fields, body).await
    }

    /// The status document of an upload.
    pub async fn status(&self, id: &str) -> Value {
        self.send("GET", &format!("/hoop/uploads/{id}"), &[], b"").await.json()
    }

    /// The status document once the state is `state`.
    pub async fn reaches(&self, id: &str, state: &str) -> Value {
        let path = format!("/hoop/uploads/{id}");
        let deadline = tokio::time::Instant::now() + PATIENCE;
        loop {
            let status = self.send("GET", &path, &[("Prefer", "wait=1")], b"").await.json();
            if status["state"] == state {
                return status;
            }
            assert!(tokio::time::Instant::now() < deadline, "never {state}: {status}");
        }
    }

    /// Returns once no sealed body is kept any more.
    pub async fn forgets_bodies(&self) {
        let deadline = tokio::time::Instant::now() + PATIENCE;
        while !self.bodies().is_empty() {
            assert!(tokio::time::Instant::now() < deadline, "still there: {:?}", self.bodies());
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }

    /// Names of the sealed bodies that are kept.
    pub fn bodies(&self) -> Vec<String> {
        let entries = std::fs::read_dir(self.dir.join("bodies")).unwrap();
        entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
    }
}

/// A service before an application that a test plays itself.
pub async fn played() -> (TcpListener, Sidecar) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let sidecar = Sidecar::before(listener.local_addr().unwrap()).await;
    (listener, sidecar)
}

/// So many bytes that look random and are not: a xorshift from `seed`.
pub fn bytes(len: usize, seed: u64) -> Vec<u8> {
    let mut x = seed | 1;
    let mut bytes = Vec::with_capacity(len + 8);
    while bytes.len() < len {
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
        bytes.extend_from_slice(&x.to_le_bytes());
    }
    bytes.truncate(len);
    bytes
}
