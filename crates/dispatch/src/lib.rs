//! Which upload goes over the uplink next, when, and how often.
//!
//! [`Dispatcher`] is pure: it holds a bounded window of what is due, is told what became of each attempt, and says what to
//! start and how long to wait. The whole queue stays in the store, oldest first; no step grows with its length.
#![no_std]

extern crate alloc;

mod destinations;
mod dispatcher;
mod window;

pub use dispatcher::{Dispatcher, Failure, Output, TRANSFERS};
pub use window::{Entry, List, Offered, SMALL_BYTES, WINDOW};

use core::time::Duration;
use hoop_units::Backoff;

/// How long a failed upload waits: 1 s at first, so that a short break of the line costs little, doubling to 15 min, so that
/// a service that is back is noticed within a coffee break (`docs/protocol.md` §6).
pub const BACKOFF: Backoff = Backoff { base: Duration::from_secs(1), cap: Duration::from_secs(15 * 60) };

/// The longest wait that a service's `Retry-After` can ask for. A mistaken "next year" must not lose an upload.
pub const RETRY_AFTER_MAX: Duration = Duration::from_secs(6 * 60 * 60);
