//! How far the transfers that run now have come: [`Progress`]. For people on the monitor page; nothing depends on it.

use hoop_units::UploadId;
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// One rate is taken over at least so long: shorter, it would show the socket's buffer rather than the line.
const SAMPLE: Duration = Duration::from_secs(2);

/// A transfer in which nothing moved for so long has no rate.
const STILL: Duration = Duration::from_secs(15);

/// The running transfers; as many as there are slots.
#[derive(Debug, Default)]
pub struct Progress {
    running: Mutex<BTreeMap<UploadId, Running>>,
    /// What was sent of each since somebody asked: outlives the transfer, that its end is counted too.
    sent: Mutex<BTreeMap<UploadId, u64>>,
    /// Counts what moves.
    revision: AtomicU64,
    /// All bytes that sockets took.
    total: AtomicU64,
}

#[derive(Debug)]
struct Running {
    /// Bytes of the message under way that the socket has taken.
    sent: u64,
    /// Bytes since `sampled`.
    sample: u64,
    sampled: Instant,
    rate_bps: Option<u64>,
}

impl Progress {
    /// A message begins.
    pub fn begin(&self, id: UploadId) {
        let fresh = Running { sent: 0, sample: 0, sampled: Instant::now(), rate_bps: None };
        self.running.lock().entry(id).or_insert(fresh).sent = 0;
    }

    /// The socket took so many bytes more.
    pub fn sent(&self, id: UploadId, bytes: u64) {
        self.revision.fetch_add(1, Ordering::Relaxed);
        self.total.fetch_add(bytes, Ordering::Relaxed);
        *self.sent.lock().entry(id).or_default() += bytes;
        let mut running = self.running.lock();
        let Some(running) = running.get_mut(&id) else { return };
        running.sent += bytes;
        running.sample += bytes;
        let elapsed = running.sampled.elapsed();
        if elapsed >= SAMPLE {
            let now = hoop_units::Bitrate::of(running.sample, elapsed).map_or(0, hoop_units::Bitrate::as_bps);
            // A quarter of the new, three of the old: steady to read, and true after a few seconds.
            running.rate_bps = Some(running.rate_bps.map_or(now, |old| (old / 4) * 3 + now / 4));
            (running.sample, running.sampled) = (0, Instant::now());
        }
    }

    /// The message was acknowledged, or came to nothing.
    pub fn acknowledged(&self, id: UploadId) {
        if let Some(running) = self.running.lock().get_mut(&id) {
            running.sent = 0;
        }
    }

    /// Held as long as the transfer runs; however that ends, nothing stays of it.
    pub const fn guard(&self, id: UploadId) -> Guard<'_> {
        Guard { progress: self, id }
    }

    /// Bytes on their way, and the rate in bits per second if they move.
    pub fn of(&self, id: UploadId) -> (u64, Option<u64>) {
        self.running.lock().get(&id).map_or((0, None), |running| {
            let fresh = running.sampled.elapsed() < STILL;
            (running.sent, running.rate_bps.filter(|_| fresh))
        })
    }

    /// All bytes that were sent since this program began, what had to be sent again included.
    pub fn sent_bytes(&self) -> u64 {
        self.total.load(Ordering::Relaxed)
    }

    /// What was sent of each since this was asked last.
    pub fn take_sent(&self) -> BTreeMap<UploadId, u64> {
        std::mem::take(&mut *self.sent.lock())
    }

    /// The transfers that run.
    pub fn running(&self) -> Vec<UploadId> {
        self.running.lock().keys().copied().collect()
    }

    /// Whether it is one of them.
    pub fn is_running(&self, id: UploadId) -> bool {
        self.running.lock().contains_key(&id)
    }

    /// A number that grows whenever something moves.
    pub fn revision(&self) -> u64 {
        self.revision.load(Ordering::Relaxed)
    }
}

/// A transfer that runs.
#[derive(Debug)]
pub struct Guard<'a> {
    progress: &'a Progress,
    id: UploadId,
}

impl Drop for Guard<'_> {
    fn drop(&mut self) {
        self.progress.running.lock().remove(&self.id);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_transfer_that_panics_leaves_no_progress_behind() {
        let (progress, id) = (Progress::default(), UploadId([1; 16]));
        let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            let _running = progress.guard(id);
            progress.begin(id);
            panic!("in the middle");
        }));
        assert!(panicked.is_err());
        assert!(progress.running.lock().is_empty());
    }
}
