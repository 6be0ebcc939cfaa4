//! What losses say of how full a path is: [`Losses`].
//!
//! Cubic takes each loss for congestion. Radio links lose packets without being full, and with 3 % of loss a window of Cubic stays at some seven packets, whatever the link could
//! carry (RFC 9438 §5.2). A link that is full shows it otherwise as well: its queue makes round trips longer, or, where there is hardly a queue, it loses much of what is sent.
//!
//! So a loss that comes with neither leaves the window as it is. With a queue it leaves what the path holds without one, as TCP Westwood and H-TCP have it (Mascolo et al., MobiCom 2001;
//! Leith and Shorten, 2004), and never less than CUBIC's share. Where much is lost, it leaves that share. BBR tolerates more, whatever the queue, and takes nearly all of a link that it shares
//! (`bench/src/bin/fair.rs`).

use super::cubic::BETA;
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

    /// What was lost before says nothing of the path any more.
    pub(super) const fn forget(&mut self) {
        (self.sent, self.lost) = (0, 0);
    }

    const fn count(&mut self, sent: u64, lost: u64) {
        (self.sent, self.lost) = (self.sent.saturating_add(sent), self.lost.saturating_add(lost));
        while self.sent >= 2 * LATELY {
            (self.sent, self.lost) = (self.sent / 2, self.lost / 2);
        }
    }

    /// What a loss leaves of the window: 1 is all of it, and [`BETA`] the least.
    pub(super) fn left(&self) -> f64 {
        let is_much = self.lost > self.sent / TOLERATED + CHANCE;
        // Without any round trip the path is not known.
        let least = self.least.into_iter().chain(self.least_before).min();
        match least {
            Some(least) if !is_much && self.shortest >= SHORT => {
                let is_queue = least > self.shortest + NOISE.max(self.shortest / EIGHTH);
                if is_queue { self.shortest.div_duration_f64(least).max(BETA) } else { 1.0 }
            }
            _ => BETA,
        }
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
    fn a_few_percent_without_a_queue_take_nothing_and_many_take_what_cubic_says() {
        for (packets, lost, left) in [(100, 0, 1.0), (100, 3, 1.0), (100, 5, 1.0), (100, 9, BETA), (100, 50, BETA)] {
            assert_eq!(after(20, packets, ROUND_TRIP, lost, ROUND_TRIP).left(), left, "{lost} of {packets}");
        }
    }

    #[test]
    fn with_a_queue_what_the_path_holds_without_one_is_left() {
        let millis = Duration::from_millis;
        for (took, shortest, left) in [
            (112, 100, 1.0),
            (125, 100, 0.8),
            (140, 100, 100.0 / 140.0),
            (200, 100, BETA),
            (14, 10, 1.0),
            (15, 10, BETA),
        ] {
            let losses = after(3, 50, millis(took), 1, millis(shortest));
            assert!((losses.left() - left).abs() < 1e-9, "{took} where {shortest} would do: {}", losses.left());
        }
    }

    #[test]
    fn a_queue_that_is_gone_counts_no_more_after_two_rounds() {
        let mut losses = after(5, 50, ROUND_TRIP * 2, 1, ROUND_TRIP);
        assert_eq!(losses.left(), BETA);
        let sent = losses.since + ROUND_TRIP;
        losses.acked(sent + ROUND_TRIP, sent, PACKET, ROUND_TRIP);
        assert_eq!(losses.left(), 1.0);
    }

    #[test]
    fn a_few_losses_among_few_packets_are_chance_and_many_are_not() {
        assert_eq!(after(1, 10, ROUND_TRIP, 2, ROUND_TRIP).left(), 1.0);
        assert_eq!(after(1, 10, ROUND_TRIP, 4, ROUND_TRIP).left(), BETA);
    }

    #[test]
    fn losses_on_a_short_path_and_before_any_answer_count_in_full() {
        let short = Duration::from_millis(3);
        assert_eq!(after(3, 100, short, 1, short).left(), BETA);
        let mut unknown = Losses::new(Instant::now());
        unknown.lost(PACKET);
        assert_eq!(unknown.left(), BETA);
    }

    #[test]
    fn what_was_lost_long_ago_is_forgotten() {
        let mut losses = after(1, 100, ROUND_TRIP, 50, ROUND_TRIP);
        assert_eq!(losses.left(), BETA);
        let sent = losses.since;
        (0..2_000).for_each(|_| losses.acked(sent + ROUND_TRIP, sent, PACKET, ROUND_TRIP));
        assert_eq!(losses.left(), 1.0);
    }
}
