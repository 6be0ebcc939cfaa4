//! What a relay counts, for `/metrics` on a loopback address of its own: [`Counters`]. Nothing in it names a device or a destination.

use crate::codes;
use hoop_endpoint::Server;
use hoop_http::metrics::Families;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Codes of refused connections, in the order of their counters.
const REFUSALS: [u64; 14] = [
    codes::MALFORMED,
    codes::FORBIDDEN,
    codes::UNKNOWN_NAME,
    codes::UNREACHABLE,
    codes::TOO_MANY,
    codes::REFUSED,
    codes::TIMED_OUT,
    codes::NO_HOST,
    codes::NO_NETWORK,
    codes::NO_HTTP,
    codes::UNKNOWN_EXCHANGE,
    codes::UNTRUSTED,
    codes::NO_TLS,
    codes::OUTCOME_UNKNOWN,
];

/// What has happened since the relay began.
#[derive(Default, Debug)]
pub(crate) struct Counters {
    /// Connections to destinations that were made.
    connections: AtomicU64,
    /// Those that are there now.
    open: AtomicU64,
    /// HTTP exchanges that were begun, and those that are under way.
    exchanges: AtomicU64,
    exchanging: AtomicU64,
    broken: AtomicU64,
    revoked: AtomicU64,
    parked: AtomicU64,
    refused: [AtomicU64; REFUSALS.len()],
    up_bytes: AtomicU64,
    down_bytes: AtomicU64,
}

/// What has become of requests that a cache may answer.
#[derive(Default, Debug)]
pub(crate) struct CacheCounters {
    /// Answered from the cache.
    pub hits: AtomicU64,
    /// Answered from it after the origin was asked.
    pub validated: AtomicU64,
    /// Answered with what came for another.
    pub collapsed: AtomicU64,
    /// Answered by the origin.
    pub misses: AtomicU64,
    /// The same, of those whose answers could not have been kept.
    pub passed: AtomicU64,
}

/// What a cache has, and what it did.
#[derive(Debug)]
pub(crate) struct CacheFigures<'a> {
    pub counters: &'a CacheCounters,
    /// Bytes.
    pub disk: u64,
    pub memory: u64,
    pub entries: u64,
}

/// A connection that is counted until this is dropped.
#[derive(Debug)]
pub(crate) struct Open(Arc<Counters>);

impl Drop for Open {
    fn drop(&mut self) {
        self.0.open.fetch_sub(1, Ordering::Relaxed);
    }
}

/// An exchange that is counted until this is dropped.
#[derive(Debug)]
pub(crate) struct Exchanging(Arc<Counters>);

impl Drop for Exchanging {
    fn drop(&mut self) {
        self.0.exchanging.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Counters {
    /// An exchange begins.
    pub fn exchange(self: &Arc<Self>) -> Exchanging {
        self.exchanges.fetch_add(1, Ordering::Relaxed);
        self.exchanging.fetch_add(1, Ordering::Relaxed);
        Exchanging(self.clone())
    }

    /// A connection was made.
    pub fn open(self: &Arc<Self>) -> Open {
        self.connections.fetch_add(1, Ordering::Relaxed);
        self.open.fetch_add(1, Ordering::Relaxed);
        Open(self.clone())
    }

    /// A flow ended with this code.
    pub fn ended(&self, code: u64) {
        if code == codes::PARKED {
            self.parked.fetch_add(1, Ordering::Relaxed);
            return;
        }
        let refused = REFUSALS.iter().position(|refusal| *refusal == code).map(|at| &self.refused[at]);
        refused.unwrap_or(&self.broken).fetch_add(1, Ordering::Relaxed);
    }

    /// Flows of a device that was shut out have ended.
    pub fn revoked(&self, flows: usize) {
        self.revoked.fetch_add(flows as u64, Ordering::Relaxed);
    }

    /// Bytes went to a destination.
    pub fn up(&self, bytes: usize) {
        self.up_bytes.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    /// Bytes came from a destination.
    pub fn down(&self, bytes: usize) {
        self.down_bytes.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    /// The whole page. `stored`: bytes that are on disk, and of how many devices, if there is a store.
    pub fn text(
        &self,
        server: &Server,
        known: usize,
        stored: Option<(u64, usize)>,
        cache: Option<CacheFigures<'_>>,
    ) -> String {
        let of = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let mut page = Families::new("hoop_relay_");
        let version = [(format!("{{version=\"{}\"}}", env!("CARGO_PKG_VERSION")), 1)];
        page.add("info", "gauge", "Always 1.", version);
        page.gauge("devices_known", "Devices in the file of devices.", known as u64);
        page.gauge("devices", "Devices that have flows here.", server.devices().len() as u64);
        page.gauge("carriers", "Carriers, those of strangers included.", server.carriers() as u64);
        page.gauge("flows", "Flows that are here.", server.flows() as u64);
        page.gauge("held_bytes", "What flows hold that was not taken or acknowledged yet.", server.bytes());
        page.gauge("connections", "Connections to destinations.", of(&self.open));
        page.counter("connections_total", "Connections to destinations that were made.", of(&self.connections));
        page.gauge("exchanges", "HTTP exchanges that are under way.", of(&self.exchanging));
        page.counter("exchanges_total", "HTTP exchanges that were begun.", of(&self.exchanges));
        if let Some((bytes, devices)) = stored {
            let parked = of(&self.parked);
            page.counter(
                "parked_total",
                "Exchanges that were left to wait on disk, for devices that were away.",
                parked,
            );
            page.gauge("stored_bytes", "Bytes on disk of answers that devices have not taken, and of uploads.", bytes);
            page.gauge("stored_devices", "Devices that have any of these.", devices as u64);
        }
        if let Some(CacheFigures { counters, disk, memory, entries }) = cache {
            page.gauge("cache_entries", "Answers in the cache.", entries);
            page.gauge("cache_disk_bytes", "Bytes of the cache on disk.", disk);
            page.gauge("cache_memory_bytes", "Bytes of the cache in memory.", memory);
            let CacheCounters { hits, validated, collapsed, misses, passed } = counters;
            let counted = [("hit", hits), ("validated", validated), ("collapsed", collapsed), ("miss", misses)];
            let counted = counted.into_iter().chain([("pass", passed)]);
            let counted = counted.map(|(what, counter)| (format!("{{result=\"{what}\"}}"), of(counter)));
            page.add(
                "cache_requests_total",
                "counter",
                "Requests that the cache has seen, by what became of them.",
                counted,
            );
        }
        page.counter("broken_total", "Connections that broke off.", of(&self.broken));
        let refused = REFUSALS.iter().zip(&self.refused);
        let refused = refused.map(|(code, count)| (format!("{{code=\"{code:#x}\"}}"), of(count)));
        page.add("refused_total", "counter", "Flows that got no connection, by code (docs/run.md).", refused);
        page.counter("revoked_total", "Flows of devices that were shut out.", of(&self.revoked));
        page.counter("up_bytes_total", "Bytes that went to destinations.", of(&self.up_bytes));
        page.counter("down_bytes_total", "Bytes that came from destinations.", of(&self.down_bytes));
        page.into_text()
    }
}
