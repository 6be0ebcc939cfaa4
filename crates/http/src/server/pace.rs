//! How slowly bytes may come or go: [`LeastRate`], and the count of it, [`Pace`].
//!
//! Only time in which the other end is waited for counts, and each time that enough has moved the count begins anew. So a moment of silence is forgiven, and whoever
//! moves a byte a minute is not.

use std::time::Duration;
use tokio::time::Instant;

/// The least that the other end brings, or takes, while it is waited for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LeastRate {
    /// So many bytes
    pub bytes: usize,
    /// within so long. Only time in which the other end is waited for counts.
    pub within: Duration,
}

/// The count for one direction of one connection.
#[derive(Clone, Debug)]
pub(crate) struct Pace {
    least: LeastRate,
    /// Bytes that moved while the count runs, and the time that was waited for them.
    moved: usize,
    waited: Duration,
    /// Since when the other end is waited for.
    since: Option<Instant>,
}

impl Pace {
    pub(crate) const fn new(least: LeastRate) -> Self {
        Self { least, moved: 0, waited: Duration::ZERO, since: None }
    }

    /// So many bytes have moved.
    pub(crate) fn moved(&mut self, bytes: usize, now: Instant) {
        self.moved = self.moved.saturating_add(bytes);
        self.waited += self.since.take().map_or(Duration::ZERO, |since| now.saturating_duration_since(since));
        if self.moved >= self.least.bytes {
            (self.moved, self.waited) = (0, Duration::ZERO);
        }
    }

    /// The other end is waited for: until when, if nothing moves before.
    pub(crate) fn waits(&mut self, now: Instant) -> Instant {
        *self.since.get_or_insert(now) + self.least.within.saturating_sub(self.waited)
    }
}
