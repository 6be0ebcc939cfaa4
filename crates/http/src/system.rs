//! The operating system's clock and dice, behind types that a test can replace.

use hoop_units::{Timestamp, UnixTime};
use std::fmt;
use std::sync::Arc;
use std::time::{Instant, SystemTime};

/// Both times: wall time for lifetimes that outlive a reboot, monotonic time for timers.
///
/// Cloning shares the origin, so timestamps of one clock can be compared.
#[derive(Clone)]
pub struct Clock {
    origin: Instant,
    wall: Arc<dyn Fn() -> SystemTime + Send + Sync>,
}

impl Clock {
    /// The operating system's clock.
    pub fn system() -> Self {
        Self::with_wall(SystemTime::now)
    }

    /// The system's monotonic clock with another wall clock: for tests in which wall time jumps.
    pub fn with_wall(wall: impl Fn() -> SystemTime + Send + Sync + 'static) -> Self {
        Self { origin: Instant::now(), wall: Arc::new(wall) }
    }

    /// Monotonic time since this clock was made.
    pub fn now(&self) -> Timestamp {
        Timestamp::from_micros(u64::try_from(self.origin.elapsed().as_micros()).unwrap_or(u64::MAX))
    }

    /// The instant of a timestamp of this clock, for the runtime's timers.
    pub fn instant(&self, at: Timestamp) -> Instant {
        self.origin + at.since(Timestamp::ZERO)
    }

    /// Wall time.
    pub fn wall(&self) -> SystemTime {
        (self.wall)()
    }

    /// Wall time in whole seconds; before 1970 it is 0, after 2106 it stays.
    pub fn unix(&self) -> UnixTime {
        let since = self.wall().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        UnixTime(u32::try_from(since.as_secs()).unwrap_or(u32::MAX))
    }
}

impl fmt::Debug for Clock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Clock").field("now", &self.now()).field("unix", &self.unix()).finish()
    }
}

/// The operating system's cryptographic random numbers.
#[derive(Clone, Copy, Debug, Default)]
pub struct Dice;

impl Dice {
    /// So many random octets.
    ///
    /// # Panics
    /// If the operating system has none, which leaves nothing safe to do.
    pub fn octets<const N: usize>(self) -> [u8; N] {
        let mut octets = [0; N];
        ring::rand::SecureRandom::fill(&ring::rand::SystemRandom::new(), &mut octets)
            .expect("the operating system has random numbers");
        octets
    }

    /// A uniform number, for jitter.
    pub fn roll(self) -> u32 {
        u32::from_ne_bytes(self.octets())
    }
}
