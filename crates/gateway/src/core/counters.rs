//! What a gateway counts from its start on: [`Counters`].

use hoop_http::Code;
use std::sync::atomic::{AtomicU64, Ordering};

/// Counters, from the start of the program.
#[derive(Debug)]
pub struct Counters {
    received_bytes: AtomicU64,
    attempts: AtomicU64,
    /// By the code's place in the table.
    refused: Vec<AtomicU64>,
    failed: Vec<AtomicU64>,
}

impl Default for Counters {
    fn default() -> Self {
        let by_code = || Code::ALL.iter().map(|_| AtomicU64::new(0)).collect();
        Self { received_bytes: AtomicU64::new(0), attempts: AtomicU64::new(0), refused: by_code(), failed: by_code() }
    }
}

impl Counters {
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

    /// Bytes of bodies that came from devices.
    pub fn received_bytes(&self) -> u64 {
        self.received_bytes.load(Ordering::Relaxed)
    }

    /// Attempts that began.
    pub fn attempts(&self) -> u64 {
        self.attempts.load(Ordering::Relaxed)
    }

    /// Attempts that are to be made again, by the reason's code; codes that did not occur are left out.
    pub fn failed_by_code(&self) -> impl Iterator<Item = (Code, u64)> {
        by_code(&self.failed)
    }

    /// Requests that were refused, by the problem's code; codes that did not occur are left out.
    pub fn refused_by_code(&self) -> impl Iterator<Item = (Code, u64)> {
        by_code(&self.refused)
    }
}

fn add(counters: &[AtomicU64], code: Code) {
    if let Some(at) = Code::ALL.iter().position(|known| *known == code) {
        counters[at].fetch_add(1, Ordering::Relaxed);
    }
}

fn by_code(counters: &[AtomicU64]) -> impl Iterator<Item = (Code, u64)> {
    let counted = Code::ALL.iter().zip(counters).map(|(code, counter)| (*code, counter.load(Ordering::Relaxed)));
    counted.filter(|(_, count)| *count > 0)
}
