//! A device and a server with carriers in memory between them, and bytes that are known by their offset.

use hoop_carrier::{Carrier, memory_pair};
use hoop_endpoint::{
    Clock, Device, DeviceConfig, DeviceId, DeviceKey, FlowName, FlowOptions, FlowStream, Server, ServerConfig, Use,
};
use hoop_flow::Binding;
use hoop_flow_store::{Due, FlowStore, Found, Kept, Life, MemoryStore, StoreError, When};
use hoop_units::UnixTime;
use rand_core::{Rng as _, SeedableRng as _};
use rand_pcg::Pcg64Mcg;
use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};

pub const HOST: DeviceId = DeviceId([1; 20]);
pub const KEY: DeviceKey = DeviceKey([9; 32]);
pub const NOW: UnixTime = UnixTime(1_795_000_000);

/// The seed of a run: that of `HOOP_SEED`, or another each time.
pub fn seed() -> u64 {
    let given = std::env::var("HOOP_SEED").ok().map(|seed| seed.parse().expect("HOOP_SEED"));
    given.unwrap_or_else(|| {
        std::time::SystemTime::now()
            .duration_since(std::time::UNIX_EPOCH)
            .map_or(0, |since| since.subsec_nanos().into())
    })
}

/// So many as an environment variable says, or few.
pub fn number(name: &str, few: u64) -> u64 {
    std::env::var(name).ok().map_or(few, |text| text.parse().expect(name))
}

/// Says the seed if the test fails.
pub struct Seeded(pub u64);

impl Drop for Seeded {
    fn drop(&mut self) {
        if std::thread::panicking() {
            println!("HOOP_SEED={}", self.0);
        }
    }
}

pub fn rng(seed: u64) -> Pcg64Mcg {
    Pcg64Mcg::seed_from_u64(seed)
}

/// Two ends of a carrier that is bound to bytes of its own.
pub fn carrier() -> (Arc<dyn Carrier>, Arc<dyn Carrier>) {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    let mut binding = [0; 32];
    binding[..8].copy_from_slice(&COUNT.fetch_add(1, Ordering::Relaxed).to_be_bytes());
    let (device, server) = memory_pair(Binding(binding));
    (Arc::new(device), Arc::new(server))
}

pub fn device_config() -> DeviceConfig {
    DeviceConfig { clock: Clock::at(NOW), ..DeviceConfig::new(HOST, KEY) }
}

pub fn server_config() -> ServerConfig {
    let keys: HashMap<_, _> = [(HOST, KEY)].into();
    ServerConfig { clock: Clock::at(NOW), ..ServerConfig::new(Arc::new(keys)) }
}

/// Both ends of a server and one device of it.
pub struct World {
    pub device: Device,
    pub server: Server,
}

impl World {
    pub fn new() -> Self {
        Self::with(server_config())
    }

    pub fn with(server: ServerConfig) -> Self {
        Self { device: Device::new(device_config()), server: Server::new(server) }
    }

    /// A new carrier between them; returns the device's end.
    pub fn connect(&self, network: &str) -> Arc<dyn Carrier> {
        let (device, server) = carrier();
        self.server.serve(server, network);
        self.device.add_carrier(device.clone(), Use::Normal, network);
        device
    }

    /// A flow at both ends, which the device knows to be attached.
    pub async fn flow(&self, options: FlowOptions) -> (FlowStream, FlowStream) {
        let device = self.device.open("test", options).unwrap();
        let server = self.server.accept().await.unwrap();
        device.status().wait_for(|status| status.network.is_some()).await.unwrap();
        (device, server)
    }
}

/// The bytes of a stream from an offset on; `of` tells streams apart.
pub fn bytes(of: u64, offset: u64, len: usize) -> Vec<u8> {
    let byte = |at: u64| ((at ^ of.rotate_left(40)).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as u8;
    (offset..offset + len as u64).map(byte).collect()
}

/// Writes a stream of so many bytes, in pieces of any size.
pub async fn write_all(to: &mut (impl AsyncWrite + Unpin), of: u64, len: u64, seed: u64) {
    let (mut rng, mut at) = (rng(seed), 0);
    while at < len {
        let piece = (1 + rng.next_u64() % 100_000).min(len - at) as usize;
        to.write_all(&bytes(of, at, piece)).await.expect("it takes the bytes");
        at += piece as u64;
    }
    to.shutdown().await.expect("it takes the end");
}

/// Reads a stream to its end, and compares each byte.
pub async fn read_all(from: &mut (impl AsyncRead + Unpin), of: u64, len: u64) {
    let (mut buffer, mut at) = (vec![0; 50_000], 0);
    loop {
        let read = from.read(&mut buffer).await.expect("bytes");
        if read == 0 {
            break;
        }
        assert!(buffer[..read] == bytes(of, at, read), "bytes {at} to {}", at + read as u64);
        at += read as u64;
    }
    assert_eq!(at, len, "how long the stream is");
}

/// A store that remembers what it was told, and holds up a flow's next record until it is told to go on, if it is to.
#[derive(Debug, Default)]
pub struct Watched {
    pub store: MemoryStore,
    /// Where each flow stands.
    pub lives: Mutex<HashMap<FlowName, Life>>,
    /// Records whose application has done with more than is kept, and when they are to outlive a restart.
    pub ahead: Mutex<Vec<When>>,
    /// None once it holds one up.
    pub holds: Mutex<Option<mpsc::Receiver<()>>>,
}

impl FlowStore for Watched {
    fn put(&self, kept: &Kept, life: Life, when: When) -> Result<(), StoreError> {
        self.lives.lock().unwrap().insert(kept.record.name, life);
        if kept.record.consumed > kept.record.kept {
            self.ahead.lock().unwrap().push(when);
        }
        let held = self.holds.lock().unwrap().take();
        if let Some(goes_on) = held {
            goes_on.recv().unwrap();
        }
        self.store.put(kept, life, when)
    }

    fn take(&self, name: FlowName) -> Result<Found, StoreError> {
        let found = self.store.take(name)?;
        if let Found::Kept(_) = found {
            self.lives.lock().unwrap().insert(name, Life::Live);
        }
        Ok(found)
    }

    fn remove(&self, name: FlowName, code: u64) -> Result<(), StoreError> {
        self.store.remove(name, code)
    }

    fn tick(&self) -> Result<Vec<Due>, StoreError> {
        self.store.tick()
    }
}
