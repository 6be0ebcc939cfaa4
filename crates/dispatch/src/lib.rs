//! Which upload goes over the uplink next, when, and how often.
//!
//! [`Dispatcher`] is pure: it holds a bounded window of what is due, is told what became of each attempt, and says what to
//! start and how long to wait. The whole queue stays in the store, by device and deadline; no step grows with its length.
//!
//! Beside it stand the machines that say how fast, and in which hours: [`RateLimit`], [`Background`], [`Hours`], [`Budget`].
#![no_std]

extern crate alloc;

mod background;
mod budget;
mod destinations;
mod dispatcher;
mod fair;
mod hours;
mod rate;
mod window;

pub use background::{Background, FLOOR, TARGET};
pub use budget::{Allowance, Budget, INTERVAL_SECS, Interval, Month, Snapshot, least_rate};
pub use dispatcher::{
    ANSWER_TURN, ASKS, ASKS_EACH, BREAK_OFF, DOUBT, Dispatcher, EXTRA, Failure, Gate, Output, SLOT_TURN, TRANSFERS,
    TURN_BYTES,
};
pub use hours::{DAY_MINUTES, DailyWindow, Hours, HoursError, Opening, WINDOWS_MAX};
pub use rate::RateLimit;
pub use window::{DEVICES, Entry, List, PER_DEVICE, PER_HOST, SCAN_MAX, SMALL_BYTES, WINDOW};

use core::time::Duration;
use hoop_units::Backoff;

/// How long a failed upload waits: 1 s at first, so that a short break of the line costs little, doubling to 15 min, so that
/// a service that is back is noticed within a coffee break (`docs/protocol.md` §6).
pub const BACKOFF: Backoff = Backoff { base: Duration::from_secs(1), cap: Duration::from_secs(15 * 60) };

/// The longest wait that a service's `Retry-After` can ask for. A mistaken "next year" must not lose an upload.
pub const RETRY_AFTER_MAX: Duration = Duration::from_secs(6 * 60 * 60);

/// The example of the README compiles and runs.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
