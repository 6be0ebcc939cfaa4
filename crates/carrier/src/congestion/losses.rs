//! Whether what a path loses says that it is full: [`Losses`].
//!
//! Cubic takes each loss for congestion. Radio links lose packets without being full, and with 3 % of loss a window of Cubic stays at some seven packets, whatever the link could
//! carry (RFC 9438 §5.2). A link that is full shows it otherwise as well: its queue makes round trips longer, or, where there is hardly a queue, it loses much of what is sent. A loss that
//! comes with neither does not count. BBR and PCC Vivace tolerate more, BBR whatever the queue (draft-ietf-ccwg-bbr; Dong et al., NSDI 2018).

use std::time::{Duration, Instant};

/// Of what was sent lately, one byte in so many may be lost: some 6 %.
const TOLERATED: u64 = 16;

/// And so many bytes more, two packets, since a few losses among few packets are chance.
const CHANCE: u64 = 2 * 1_500;

/// What was sent lately: so many bytes, some 140 packets, and what follows until it is twice that, when all counts half. With 3 % of loss at random, more than is tolerated is lost
/// of so many once in 300 times.
const LATELY: u64 = 192 * 1024;

/// A queue is one that makes round trips so much longer, or by an [`EIGHTH`] if that is more: less is noise.
const NOISE: Duration = Duration::from_millis(4);
const EIGHTH: u32 = 8;

/// Where a round trip is shorter, Cubic is back at once, and what is lost is mostly for want of room in a socket.
const SHORT: Duration = Duration::from_millis(4);

/// What a path lost and brought lately, and its round trips.
#[derive(Clone, Copy, Debug)]
pub(super) struct Losses {
    /// In bytes.
    sent: u64,
    /// In bytes.
    lost: u64,
    /// The shortest round trip of this path.
    shortest: Duration,
    /// The shortest one of the last and of the present round, if there was any.
    least_before: Option<Duration>,
    least: Option<Duration>,
    since: Instant,
}

impl Losses {
    pub(super) const fn new(now: Instant) -> Self {
        Self { sent: 0, lost: 0, shortest: Duration::MAX, least_before: None, least: None, since: now }
    }

    /// `bytes` were acknowledged that had been `sent` then; `shortest`: the path's shortest round trip up to now.
    pub(super) fn acked(&mut self, now: Instant, sent: Instant, bytes: u64, shortest: Duration) {
        let took = now.saturating_duration_since(sent);
        self.shortest = shortest;
        if now.saturating_duration_since(self.since) >= shortest {
            (self.least_before, self.least, self.since) = (self.least, None, now);
        }
        self.least = Some(self.least.map_or(took, |least| least.min(took)));
        self.count(bytes, 0);
    }

    pub(super) const fn lost(&mut self, bytes: u64) {
        self.count(bytes, bytes);
    }

    const fn count(&mut self, sent: u64, lost: u64) {
        (self.sent, self.lost) = (self.sent.saturating_add(sent), self.lost.saturating_add(lost));
        while self.sent >= 2 * LATELY {
            (self.sent, self.lost) = (self.sent / 2, self.lost / 2);
        }
    }

    /// Whether the path is full, as far as its losses say so.
    pub(super) fn are_congestion(&self) -> bool {
        let is_much = self.lost > self.sent / TOLERATED + CHANCE;
        is_much || self.shortest < SHORT || self.is_queue()
    }

    /// Whether all round trips were long lately. Without any the path is not known.
    fn is_queue(&self) -> bool {
        let Some(least) = self.least.into_iter().chain(self.least_before).min() else { return true };
        least > self.shortest + NOISE.max(self.shortest / EIGHTH)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PACKET: u64 = 1_400;
    const ROUND_TRIP: Duration = Duration::from_millis(100);

    /// After rounds of so many packets each, whose acknowledgements take so long, and of which the last ones of each are lost.
    fn after(rounds: u32, packets: u64, took: Duration, lost: u64, shortest: Duration) -> Losses {
        let begun = Instant::now();
        let mut losses = Losses::new(begun);
        for round in 0..rounds {
            let sent = begun + took * round;
            (lost..packets).for_each(|_| losses.acked(sent + took, sent, PACKET, shortest));
            losses.lost(lost * PACKET);
        }
        losses
    }

    #[test]
    fn a_few_percent_without_a_queue_are_no_congestion() {
        for (packets, lost, are_congestion) in
            [(100, 0, false), (100, 3, false), (100, 5, false), (100, 9, true), (100, 50, true)]
        {
            let losses = after(20, packets, ROUND_TRIP, lost, ROUND_TRIP);
            assert_eq!(losses.are_congestion(), are_congestion, "{lost} of {packets}");
        }
    }

    #[test]
    fn any_loss_with_a_queue_is_congestion() {
        let millis = Duration::from_millis;
        for (took, shortest, are_congestion) in
            [(112, 100, false), (113, 100, true), (200, 100, true), (14, 10, false), (15, 10, true)]
        {
            let losses = after(3, 50, millis(took), 1, millis(shortest));
            assert_eq!(losses.are_congestion(), are_congestion, "{took} where {shortest} would do");
        }
    }

    #[test]
    fn a_queue_that_is_gone_counts_no_more_after_two_rounds() {
        let mut losses = after(5, 50, ROUND_TRIP * 2, 1, ROUND_TRIP);
        assert!(losses.are_congestion());
        let sent = losses.since + ROUND_TRIP;
        losses.acked(sent + ROUND_TRIP, sent, PACKET, ROUND_TRIP);
        assert!(!losses.are_congestion());
    }

    #[test]
    fn a_few_losses_among_few_packets_are_chance_and_many_are_not() {
        assert!(!after(1, 10, ROUND_TRIP, 2, ROUND_TRIP).are_congestion());
        assert!(after(1, 10, ROUND_TRIP, 4, ROUND_TRIP).are_congestion());
    }

    #[test]
    fn losses_on_a_short_path_and_before_any_answer_are_congestion() {
        let short = Duration::from_millis(3);
        assert!(after(3, 100, short, 1, short).are_congestion());
        let mut unknown = Losses::new(Instant::now());
        unknown.lost(PACKET);
        assert!(unknown.are_congestion());
    }

    #[test]
    fn what_was_lost_long_ago_is_forgotten() {
        let mut losses = after(1, 100, ROUND_TRIP, 50, ROUND_TRIP);
        assert!(losses.are_congestion());
        let sent = losses.since;
        (0..2_000).for_each(|_| losses.acked(sent + ROUND_TRIP, sent, PACKET, ROUND_TRIP));
        assert!(!losses.are_congestion());
    }
}
