//! Refusals for reasons of this gateway's own disk: [`store_problem`], [`full_problem`].

use hoop_http::{Code, Lines, Problem};
use hoop_spool::StoreError;
use std::time::Duration;

/// The answer to a request during which our own disk failed. The cause is for the operator's log.
pub fn store_problem(error: &StoreError) -> Problem {
    if error.is_full() {
        return full_problem("the disk is full");
    }
    tell(error);
    // Damage stays; a disk may be well again.
    match error {
        StoreError::Damaged(_) => Problem::new(Code::Internal, "the gateway's spool is damaged; its log says more"),
        StoreError::File(_) | StoreError::Index(_) => {
            let detail = "the gateway's disk cannot be used now; its log says more";
            Problem::new(Code::SpoolFailed, detail).retry_after(FULL_RETRY_AFTER)
        }
    }
}

/// Tells the operator that the spool failed. While a disk fails, each request comes here.
pub fn tell(error: &StoreError) {
    static LINES: Lines = Lines::new();
    LINES.warn("the spool failed", error);
}

/// There is no room now; deliveries make some.
pub fn full_problem(detail: impl std::fmt::Display) -> Problem {
    Problem::new(Code::SpoolFull, detail).retry_after(FULL_RETRY_AFTER)
}

/// When to come back to a full gateway: a minute frees 8 MB on a 1 Mbit/s uplink.
pub const FULL_RETRY_AFTER: Duration = Duration::from_secs(60);
