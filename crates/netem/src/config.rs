//! How a link is: [`LinkConfig`] and its [`QueueLimit`].

use crate::{Change, Loss, Rate, Schedule};
use core::time::Duration;

/// The queue's bound unless told otherwise: 256 KiB. That is 1.8 s at 1.15 Mbit/s, about as bloated as the modem of
/// a thin DSL line, and 7 ms at 300 Mbit/s, enough to keep TCP from starving there.
pub const QUEUE_BYTES_DEFAULT: usize = 256 * 1024;

/// How much may wait in the queue: a packet that would exceed either bound is dropped (drop-tail).
///
/// The packet that is being transmitted does not count, so a link passes packets even with a queue of nothing.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct QueueLimit {
    /// Most bytes that may wait. Default: [`QUEUE_BYTES_DEFAULT`].
    pub bytes: usize,
    /// Most packets that may wait. Default: as many as the bytes allow.
    pub packets: usize,
}

impl QueueLimit {
    /// Bounded in bytes only.
    pub const fn bytes(bytes: usize) -> Self {
        Self { bytes, packets: usize::MAX }
    }

    /// Bounded in packets only.
    pub const fn packets(packets: usize) -> Self {
        Self { bytes: usize::MAX, packets }
    }
}

impl Default for QueueLimit {
    fn default() -> Self {
        Self::bytes(QUEUE_BYTES_DEFAULT)
    }
}

/// How one direction of a link is. Default: perfect (unlimited rate, no delay, no loss, connected).
///
/// ```
/// use hoop_netem::{LinkConfig, Loss, Probability};
/// use hoop_units::{Bitrate, Duration};
/// let dsl = LinkConfig::new().rate(Bitrate::kbps(1_150)).delay(Duration::from_millis(10));
/// let radio = dsl.clone().jitter(Duration::from_millis(3)).loss(Loss::Independent(Probability::percent(1)));
/// ```
#[derive(Clone, PartialEq, Debug)]
pub struct LinkConfig {
    /// How fast packets leave. Default: unlimited.
    pub rate: Rate,
    /// The least time from a packet's last bit leaving to its arrival. Default: zero.
    pub delay: Duration,
    /// Each packet's delay is prolonged by a random time from zero up to this, evenly spread. Default: zero.
    pub jitter: Duration,
    /// Whether jitter, or a change of delay, may let a packet overtake another. Default: no; a packet then arrives
    /// no sooner than the one before it.
    pub reorder: bool,
    /// Loss on the wire, after the queue: a lost packet has used its share of the rate. Default: none.
    pub loss: Loss,
    /// How much may wait. Default: [`QUEUE_BYTES_DEFAULT`].
    pub queue: QueueLimit,
    /// Whether the link carries anything. While it does not, what comes and what waits in the queue is dropped; what
    /// was already on the wire arrives. Default: yes.
    pub connected: bool,
    /// Changes to come, by time since the link's start. Default: none.
    pub schedule: Schedule,
}

impl LinkConfig {
    /// A perfect link.
    pub fn new() -> Self {
        Self {
            rate: Rate::Unlimited,
            delay: Duration::ZERO,
            jitter: Duration::ZERO,
            reorder: false,
            loss: Loss::None,
            queue: QueueLimit::default(),
            connected: true,
            schedule: Schedule::default(),
        }
    }

    /// With this rate: a [`Bitrate`](hoop_units::Bitrate), a [`Trace`](crate::Trace) or a [`Rate`].
    #[must_use]
    pub fn rate(self, rate: impl Into<Rate>) -> Self {
        Self { rate: rate.into(), ..self }
    }

    /// With this one-way delay.
    #[must_use]
    pub fn delay(self, delay: Duration) -> Self {
        Self { delay, ..self }
    }

    /// With this much jitter on top of the delay.
    #[must_use]
    pub fn jitter(self, jitter: Duration) -> Self {
        Self { jitter, ..self }
    }

    /// With packets that may overtake one another, or not.
    #[must_use]
    pub fn reorder(self, reorder: bool) -> Self {
        Self { reorder, ..self }
    }

    /// With this loss.
    #[must_use]
    pub fn loss(self, loss: Loss) -> Self {
        Self { loss, ..self }
    }

    /// With this bound on the queue.
    #[must_use]
    pub fn queue(self, queue: QueueLimit) -> Self {
        Self { queue, ..self }
    }

    /// Connected at the start, or not.
    #[must_use]
    pub fn connected(self, connected: bool) -> Self {
        Self { connected, ..self }
    }

    /// With a change so long after the link's start.
    #[must_use]
    pub fn at(mut self, after: Duration, change: Change) -> Self {
        self.schedule.insert(after, change);
        self
    }
}

impl Default for LinkConfig {
    fn default() -> Self {
        Self::new()
    }
}
