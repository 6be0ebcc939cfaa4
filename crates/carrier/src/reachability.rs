//! When a network that carried nothing carries again, though no interface says so: [`Probes`]. Pure; [`Dialer::until_reachable`](crate::Dialer::until_reachable) runs them.
//!
//! ```text
//! dialling ──500 ms──▶ probe ──200 ms──▶ probe ──▶ … each is a TCP SYN, and forgotten after a second
//! the first is answered: it is not dark             some are lost, and then one is answered: reachable again
//! ```
//!
//! What is being dialled waits longer and longer after each packet that is lost: after half a minute for four seconds and more. A probe has 60 bytes, so it can be sent often.

use hoop_units::Timestamp;
use std::time::Duration;

/// Dialling alone has so long first.
const AFTER: Duration = Duration::from_millis(500);

/// Between two probes, on average; a third more or less, so that devices which lost a network together do not come in step.
const EVERY: Duration = Duration::from_millis(200);

/// For so long; then it is no short outage.
const OFTEN: Duration = Duration::from_secs(600);

/// And this from then on.
const SELDOM: Duration = Duration::from_secs(6);

/// So many are lost in a row in the dark; on a bad link fewer are.
const LOST_MIN: u32 = 4;

/// What an answer says.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Answer {
    /// The network carries: whatever keeps the server from being reached, it is not the dark.
    NotDark,
    /// It carries again.
    Reachable,
}

/// When to send the next, and what an answer says.
#[derive(Debug)]
pub(crate) struct Probes {
    begun: Timestamp,
    due: Timestamp,
    sent: u32,
}

impl Probes {
    pub(crate) fn new(now: Timestamp) -> Self {
        Self { begun: now, due: now + AFTER, sent: 0 }
    }

    /// When the next is due.
    pub(crate) const fn due(&self) -> Timestamp {
        self.due
    }

    /// The next one's number, if it is due; `jitter` is any number.
    pub(crate) fn poll(&mut self, now: Timestamp, jitter: u32) -> Option<u32> {
        if now < self.due {
            return None;
        }
        let every = if now.since(self.begun) < OFTEN { EVERY } else { SELDOM };
        self.due = now + every * 2 / 3 + every * 2 / 3 * (jitter % 1_024) / 1_024;
        self.sent = self.sent.saturating_add(1);
        Some(self.sent - 1)
    }

    /// The first answer has come, to this one. On a network that is merely slow the first that was sent is the first that is answered.
    pub(crate) const fn answered(&self, number: u32) -> Answer {
        if number >= LOST_MIN { Answer::Reachable } else { Answer::NotDark }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: u64) -> Timestamp {
        Timestamp::from_millis(millis)
    }

    /// When probes are sent until then, in milliseconds.
    fn sent(until: u64, jitter: u32) -> Vec<u64> {
        let mut probes = Probes::new(at(0));
        (0..until).filter(|now| probes.poll(at(*now), jitter).is_some()).collect()
    }

    #[test]
    fn probes_go_out_3_to_8_times_a_second_for_ten_minutes_and_then_rarely() {
        for jitter in [0, 512, 1_023, u32::MAX] {
            let sent = sent(1_200_000, jitter);
            assert_eq!(sent[0], 500, "an ordinary attempt is over by then");
            let gaps = |of: std::ops::Range<u64>| {
                let pairs = sent.windows(2).filter(move |pair| of.contains(&pair[0]));
                pairs.map(|pair| pair[1] - pair[0]).collect::<Vec<_>>()
            };
            assert!(gaps(0..600_000).iter().all(|gap| (133..=267).contains(gap)), "{jitter}");
            assert!(gaps(601_000..1_100_000).iter().all(|gap| (4_000..=8_000).contains(gap)), "{jitter}");
        }
    }

    #[test]
    fn a_slow_or_bad_network_is_not_dark() {
        let mut probes = Probes::new(at(0));
        let numbers: Vec<_> = (0..3_000).filter_map(|now| probes.poll(at(now), 0)).collect();
        assert_eq!(numbers, (0..numbers.len() as u32).collect::<Vec<_>>());
        assert_eq!(
            [0, 3, 4, 9].map(|number| probes.answered(number)),
            [Answer::NotDark, Answer::NotDark, Answer::Reachable, Answer::Reachable]
        );
    }
}
