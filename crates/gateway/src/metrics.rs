//! What a gateway counts, for `/metrics` on the owner's address: [`Metrics`]. docs/operators.md has the table.

use crate::shared::Shared;
use hoop_http::Code;
use hoop_http::metrics::Families;
use hoop_spool::{State, StoreError};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Counters, from the start of the program.
#[derive(Debug)]
pub struct Metrics {
    received_bytes: AtomicU64,
    attempts: AtomicU64,
    /// By the code's place in the table.
    refused: Vec<AtomicU64>,
    failed: Vec<AtomicU64>,
}

impl Default for Metrics {
    fn default() -> Self {
        let by_code = || Code::ALL.iter().map(|_| AtomicU64::new(0)).collect();
        Self { received_bytes: AtomicU64::new(0), attempts: AtomicU64::new(0), refused: by_code(), failed: by_code() }
    }
}

impl Metrics {
    /// Bytes of bodies came from devices.
    pub fn received(&self, bytes: u64) {
        self.received_bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    /// A request was refused.
    pub fn refused(&self, code: Code) {
        add(&self.refused, code);
    }

    /// An attempt to deliver began.
    pub fn attempt(&self) {
        self.attempts.fetch_add(1, Ordering::Relaxed);
    }

    /// An attempt is to be made again, for a reason of this name.
    pub fn failed(&self, code: &str) {
        if let Some(code) = Code::by_name(code) {
            add(&self.failed, code);
        }
    }
}

fn add(counters: &[AtomicU64], code: Code) {
    if let Some(at) = Code::ALL.iter().position(|known| *known == code) {
        counters[at].fetch_add(1, Ordering::Relaxed);
    }
}

fn by_code(counters: &[AtomicU64]) -> Vec<(String, u64)> {
    let counted = Code::ALL.iter().zip(counters).map(|(code, counter)| (code, counter.load(Ordering::Relaxed)));
    counted.filter(|(_, count)| *count > 0).map(|(code, count)| (format!("{{code=\"{code}\"}}"), count)).collect()
}

/// The whole page.
///
/// # Errors
/// If the spool fails.
pub fn page(shared: &Shared) -> Result<String, StoreError> {
    let metrics = &shared.metrics;
    let tally = shared.spool.tally()?;
    let of = |state: State| tally.get(&state).copied().unwrap_or_default();
    let label = |state: State| format!("{{state=\"{}\"}}", state.name());
    let running = shared.progress.running();
    let rate = running.iter().filter_map(|id| shared.progress.of(*id).1).sum();
    let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
    let mut page = Families::new("hoop_gateway_");
    let version = [(format!("{{version=\"{}\"}}", env!("CARGO_PKG_VERSION")), 1)];
    page.add("info", "gauge", "Always 1.", version);
    let up = shared.clock.now().since(shared.started).as_secs();
    page.gauge("uptime_seconds", "Since the gateway was opened.", up);
    let uploads = State::ALL.into_iter().map(|state| (label(state), of(state).uploads));
    page.add("uploads", "gauge", "Uploads that are known, by state.", uploads);
    let bytes = State::ALL.into_iter().map(|state| (label(state), of(state).bytes));
    page.add("upload_bytes", "gauge", "Lengths of the uploads that are known, by state.", bytes);
    page.gauge("spool_kept_bytes", "What the spool holds.", shared.spool.kept_bytes());
    page.gauge("spool_free_bytes", "Room that is left.", shared.spool.free_bytes()?);
    page.counter("received_bytes_total", "Bytes of bodies that came from devices.", read(&metrics.received_bytes));
    page.counter("sent_bytes_total", "Bytes that went to services.", shared.progress.sent_bytes());
    page.gauge("send_bits_per_second", "What goes out now.", rate);
    page.gauge("transfers", "Uploads that are being delivered now.", running.len() as u64);
    page.counter("attempts_total", "Attempts to deliver that began.", read(&metrics.attempts));
    let failed = by_code(&metrics.failed);
    page.add("failed_attempts_total", "counter", "Attempts that are to be made again, by code.", failed);
    let refused = by_code(&metrics.refused);
    page.add("refused_requests_total", "counter", "Requests that were refused, by code.", refused);
    page.gauge("devices", "Devices that were heard of lately.", shared.devices.len() as u64);
    let streams = Arc::strong_count(&shared.streams) - 1;
    page.gauge("event_streams", "Streams of events that are open.", streams as u64);
    page.gauge("paused", "1 while its owner has paused deliveries.", shared.pause.is_on().into());
    Ok(page.into_text())
}
