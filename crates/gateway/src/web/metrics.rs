//! `/metrics` on the owner's address: [`page`]. docs/operators.md has the table.

use super::state::Web;
use hoop_http::Code;
use hoop_http::metrics::Families;
use hoop_spool::{State, StoreError};
use std::sync::Arc;

/// The whole page.
///
/// # Errors
/// If the spool fails.
pub fn page(web: &Web) -> Result<String, StoreError> {
    let counters = &web.core.counters;
    let tally = web.core.spool.tally()?;
    let of = |state: State| tally.get(&state).copied().unwrap_or_default();
    let label = |state: State| format!("{{state=\"{}\"}}", state.name());
    let running = web.core.progress.running();
    let rate = running.iter().filter_map(|id| web.core.progress.of(*id).1).sum();
    let mut page = Families::new("hoop_gateway_");
    let version = [(format!("{{version=\"{}\"}}", env!("CARGO_PKG_VERSION")), 1)];
    page.add("info", "gauge", "Always 1.", version);
    let up = web.core.clock.now().since(web.started).as_secs();
    page.gauge("uptime_seconds", "Since the gateway was opened.", up);
    let uploads = State::ALL.into_iter().map(|state| (label(state), of(state).uploads));
    page.add("uploads", "gauge", "Uploads that are known, by state.", uploads);
    let bytes = State::ALL.into_iter().map(|state| (label(state), of(state).bytes));
    page.add("upload_bytes", "gauge", "Lengths of the uploads that are known, by state.", bytes);
    page.gauge("spool_kept_bytes", "What the spool holds.", web.core.spool.kept_bytes());
    page.gauge("spool_free_bytes", "Room that is left.", web.core.spool.free_bytes()?);
    page.counter("received_bytes_total", "Bytes of bodies that came from devices.", counters.received_bytes());
    page.counter("sent_bytes_total", "Bytes that went to services.", web.core.progress.sent_bytes());
    page.gauge("send_bits_per_second", "What goes out now.", rate);
    page.gauge("transfers", "Uploads that are being delivered now.", running.len() as u64);
    page.counter("attempts_total", "Attempts to deliver that began.", counters.attempts());
    let failed = counters.failed_by_code().map(by_code);
    page.add("failed_attempts_total", "counter", "Attempts that are to be made again, by code.", failed);
    let refused = counters.refused_by_code().map(by_code);
    page.add("refused_requests_total", "counter", "Requests that were refused, by code.", refused);
    page.gauge("devices", "Devices that were heard of lately.", web.receiver.admission.devices.len() as u64);
    let streams = Arc::strong_count(&web.streams) - 1;
    page.gauge("event_streams", "Streams of events that are open.", streams as u64);
    page.gauge("paused", "1 while its owner has paused deliveries.", web.delivery.pause.is_on().into());
    Ok(page.into_text())
}

fn by_code((code, count): (Code, u64)) -> (String, u64) {
    (format!("{{code=\"{code}\"}}"), count)
}
