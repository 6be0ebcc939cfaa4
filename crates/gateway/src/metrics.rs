//! What a gateway counts, for `/metrics` on the owner's address: [`Metrics`], in the text format of Prometheus (version 0.0.4).
//!
//! Written by hand: it is some lines of text. Labels are states and codes of our own alone; no id, name, address, key, token, cookie or URL
//! ever stands in one. docs/operators.md has the table.

use crate::shared::Shared;
use hoop_http::Code;
use hoop_spool::{State, StoreError};
use std::fmt::Write as _;
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

/// A family of samples.
fn family(text: &mut String, name: &str, kind: &str, help: &str, samples: impl IntoIterator<Item = (String, u64)>) {
    let _ = writeln!(text, "# HELP {name} {help}\n# TYPE {name} {kind}");
    for (labels, value) in samples {
        let _ = writeln!(text, "{name}{labels} {value}");
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
    let one = |value: u64| [(String::new(), value)];
    let tally = shared.spool.tally()?;
    let of = |state: State| tally.get(&state).copied().unwrap_or_default();
    let label = |state: State| format!("{{state=\"{}\"}}", state.name());
    let running = shared.progress.running();
    let rate = running.iter().filter_map(|id| shared.progress.of(*id).1).sum();
    let mut text = String::new();
    let gauge = "gauge";
    let counter = "counter";
    family(
        &mut text,
        "hoop_gateway_info",
        gauge,
        "Always 1.",
        [(format!("{{version=\"{}\"}}", env!("CARGO_PKG_VERSION")), 1)],
    );
    let up = shared.clock.now().since(shared.started).as_secs();
    family(&mut text, "hoop_gateway_uptime_seconds", gauge, "Since the gateway was opened.", one(up));
    let uploads = State::ALL.into_iter().map(|state| (label(state), of(state).uploads));
    family(&mut text, "hoop_gateway_uploads", gauge, "Uploads that are known, by state.", uploads);
    let bytes = State::ALL.into_iter().map(|state| (label(state), of(state).bytes));
    family(&mut text, "hoop_gateway_upload_bytes", gauge, "Lengths of the uploads that are known, by state.", bytes);
    family(&mut text, "hoop_gateway_spool_kept_bytes", gauge, "What the spool holds.", one(shared.spool.kept_bytes()));
    family(&mut text, "hoop_gateway_spool_free_bytes", gauge, "Room that is left.", one(shared.spool.free_bytes()?));
    let received = metrics.received_bytes.load(Ordering::Relaxed);
    family(
        &mut text,
        "hoop_gateway_received_bytes_total",
        counter,
        "Bytes of bodies that came from devices.",
        one(received),
    );
    family(
        &mut text,
        "hoop_gateway_sent_bytes_total",
        counter,
        "Bytes that went to services.",
        one(shared.progress.sent_bytes()),
    );
    family(&mut text, "hoop_gateway_send_bits_per_second", gauge, "What goes out now.", one(rate));
    family(
        &mut text,
        "hoop_gateway_transfers",
        gauge,
        "Uploads that are being delivered now.",
        one(running.len() as u64),
    );
    let attempts = metrics.attempts.load(Ordering::Relaxed);
    family(&mut text, "hoop_gateway_attempts_total", counter, "Attempts to deliver that began.", one(attempts));
    family(
        &mut text,
        "hoop_gateway_failed_attempts_total",
        counter,
        "Attempts that are to be made again, by code.",
        by_code(&metrics.failed),
    );
    family(
        &mut text,
        "hoop_gateway_refused_requests_total",
        counter,
        "Requests that were refused, by code.",
        by_code(&metrics.refused),
    );
    let devices = shared.devices.len() as u64;
    family(&mut text, "hoop_gateway_devices", gauge, "Devices that were heard of lately.", one(devices));
    let streams = crate::monitor::STREAMS - shared.streams.available_permits();
    family(&mut text, "hoop_gateway_event_streams", gauge, "Streams of events that are open.", one(streams as u64));
    family(
        &mut text,
        "hoop_gateway_paused",
        gauge,
        "1 while its owner has paused deliveries.",
        one(shared.pause.is_on().into()),
    );
    Ok(text)
}
