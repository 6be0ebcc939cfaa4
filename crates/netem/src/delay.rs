//! The delay line: packets on the wire, each due at a time of its own.

use crate::instant::Instant;
use alloc::collections::BTreeMap;
use core::time::Duration;
use rand_core::Rng;
use rand_pcg::Pcg32;

/// Most packets on the wire: 10 Gbit/s of full packets over 150 ms, more than any link that one would simulate here.
/// A packet past it is dropped, and counted with the queue's.
pub const IN_FLIGHT_PACKETS_MAX: usize = 1 << 17;

/// What has left the transmitter and not yet arrived.
#[derive(Debug)]
pub(crate) struct DelayLine<P> {
    delay: Duration,
    jitter: Duration,
    reorder: bool,
    dice: Pcg32,
    /// By due time, then by order of leaving.
    in_flight: BTreeMap<(Instant, u64), P>,
    sequence: u64,
    /// When the last packet sent is due: the next is not due before, unless packets may overtake.
    last_due: Option<Instant>,
}

impl<P> DelayLine<P> {
    pub(crate) fn new(delay: Duration, jitter: Duration, reorder: bool, dice: Pcg32) -> Self {
        Self { delay, jitter, reorder, dice, in_flight: BTreeMap::new(), sequence: 0, last_due: None }
    }

    pub(crate) fn set_delay(&mut self, delay: Duration) {
        self.delay = delay;
    }

    pub(crate) fn set_jitter(&mut self, jitter: Duration) {
        self.jitter = jitter;
    }

    /// Sends a packet whose last bit left at `left`; gives it back if too many are under way.
    pub(crate) fn send(&mut self, packet: P, left: Instant) -> Result<(), P> {
        if self.in_flight.len() >= IN_FLIGHT_PACKETS_MAX {
            return Err(packet);
        }
        let drawn = left + self.delay + self.draw_jitter();
        let due = match self.last_due {
            Some(last) if !self.reorder => drawn.max(last),
            _ => drawn,
        };
        self.last_due = Some(due);
        self.in_flight.insert((due, self.sequence), packet);
        self.sequence += 1;
        Ok(())
    }

    /// The first packet that is due by `now`, and when it was.
    pub(crate) fn pop_due(&mut self, now: Instant) -> Option<(Instant, P)> {
        let entry = self.in_flight.first_entry()?;
        let due = entry.key().0;
        (due <= now).then(|| (due, entry.remove()))
    }

    pub(crate) fn next_due(&self) -> Option<Instant> {
        self.in_flight.first_key_value().map(|((due, _), _)| *due)
    }

    pub(crate) fn len(&self) -> usize {
        self.in_flight.len()
    }

    fn draw_jitter(&mut self) -> Duration {
        if self.jitter.is_zero() {
            return Duration::ZERO;
        }
        // Lemire's multiplication: even enough, and one draw each, so that runs stay comparable.
        let spread = self.jitter.as_nanos().min(u128::from(u64::MAX - 1)) + 1;
        Duration::from_nanos(((u128::from(self.dice.next_u64()) * spread) >> 64) as u64)
    }
}
