//! One clock for timers and for lifetimes: [`Clock`].

use hoop_units::{Duration, Timestamp, UnixTime};
use std::time::{SystemTime, UNIX_EPOCH};
use tokio::time::Instant;

/// The time, as of a moment when the wall clock was read once. It goes on with tokio's own clock: whoever sets the wall clock changes no deadline,
/// and a test that pauses tokio's time has weeks pass in a moment. Time that the machine is asleep may not count.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    start: Instant,
    unix: UnixTime,
}

impl Clock {
    /// The wall clock says this now.
    pub fn at(unix: UnixTime) -> Self {
        Self { start: Instant::now(), unix }
    }

    /// As the wall clock says now.
    pub fn system() -> Self {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Self::at(UnixTime(u32::try_from(since.as_secs()).unwrap_or(u32::MAX)))
    }

    /// For timers.
    pub fn now(&self) -> Timestamp {
        Timestamp::ZERO + self.start.elapsed()
    }

    /// For lifetimes.
    pub fn unix(&self) -> UnixTime {
        let passed = u32::try_from(self.start.elapsed().as_secs()).unwrap_or(u32::MAX);
        self.unix.plus_secs(passed)
    }

    /// When a lifetime ends; one that is over, at the clock's first moment.
    pub(crate) fn timestamp(&self, at: UnixTime) -> Timestamp {
        Timestamp::from_secs(at.since(self.unix).into())
    }

    /// The same time for tokio.
    pub(crate) fn instant(&self, at: Timestamp) -> Instant {
        // About 30 years: far enough, and no clock overflows.
        self.start + at.since(Timestamp::ZERO).min(Duration::from_secs(1 << 30))
    }
}

impl Default for Clock {
    fn default() -> Self {
        Self::system()
    }
}
