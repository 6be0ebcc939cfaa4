//! How many tickets a payer gets, or how much it may change, by the minute: [`Rates`]. Pure: the time comes in.
//!
//! A payer that has asked for none lately gets a minute's worth at once, and then one at a time as time passes (a leaky bucket).
//!
//! Bounds: [`PAYERS_MAX`] payers, 1.5 MiB; then those are forgotten that have asked for the least.

use crate::model::Payer;
use hoop_units::Timestamp;
use std::collections::BTreeMap;
use std::time::Duration;

/// Payers that are remembered.
const PAYERS_MAX: usize = 16_384;

const MINUTE: Duration = Duration::from_secs(60);

/// Who has asked for how many lately.
#[derive(Debug)]
pub struct Rates {
    /// What one ticket uses of a minute.
    each: Duration,
    /// When each payer's bucket is empty again.
    empty: BTreeMap<Payer, Timestamp>,
}

impl Rates {
    /// So many tickets a minute, one at least.
    pub fn new(per_minute: u32) -> Self {
        Self { each: MINUTE / per_minute.max(1), empty: BTreeMap::new() }
    }

    /// Whether a payer may have so many tickets now.
    ///
    /// # Errors
    /// How long to wait for them: a minute at most.
    pub fn take(&mut self, payer: Payer, count: u32, now: Timestamp) -> Result<(), Duration> {
        // Who asks for more at once than there are in a minute gets them after a minute of silence.
        let uses = (self.each * count).min(MINUTE);
        let empty = self.empty.get(&payer).copied().unwrap_or(now).max(now) + uses;
        let wait = empty.since(now).saturating_sub(MINUTE);
        if !wait.is_zero() {
            return Err(wait);
        }
        if self.empty.len() >= PAYERS_MAX && !self.empty.contains_key(&payer) {
            self.forget(now);
        }
        self.empty.insert(payer, empty);
        Ok(())
    }

    /// Forgets whoever has an empty bucket; if nobody has, half of the payers, those with the least in theirs.
    fn forget(&mut self, now: Timestamp) {
        self.empty.retain(|_, empty| *empty > now);
        if self.empty.len() < PAYERS_MAX {
            return;
        }
        let mut times: Vec<_> = self.empty.values().copied().collect();
        times.sort_unstable();
        let middle = times[times.len() / 2];
        self.empty.retain(|_, empty| *empty > middle);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn payer(n: u16) -> Payer {
        let mut tag = [0; 16];
        tag[..2].copy_from_slice(&n.to_be_bytes());
        Payer::Address(tag)
    }

    fn at(secs: u64) -> Timestamp {
        Timestamp::from_secs(secs)
    }

    #[test]
    fn a_payer_gets_a_minutes_worth_at_once_and_then_one_by_one() {
        let mut rates = Rates::new(60);
        assert_eq!(rates.take(payer(1), 44, at(5)), Ok(()));
        assert_eq!(rates.take(payer(1), 16, at(5)), Ok(()));
        assert_eq!(rates.take(payer(1), 16, at(5)), Err(Duration::from_secs(16)));
        assert_eq!(rates.take(payer(1), 1, at(5)), Err(Duration::from_secs(1)), "a refusal costs nothing");
        assert_eq!(rates.take(payer(2), 1, at(5)), Ok(()), "another has its own");
        assert_eq!(rates.take(payer(1), 16, at(21)), Ok(()));
        assert_eq!(rates.take(payer(1), 60, at(81)), Ok(()));
    }

    #[test]
    fn a_request_beyond_a_minutes_worth_waits_for_a_minute() {
        let mut rates = Rates::new(4);
        assert_eq!(rates.take(payer(1), 16, at(0)), Ok(()));
        assert_eq!(rates.take(payer(1), 16, at(30)), Err(Duration::from_secs(30)));
        assert_eq!(rates.take(payer(1), 16, at(60)), Ok(()));
    }

    #[test]
    fn a_bounded_number_of_payers_is_remembered_and_the_busiest_are() {
        let mut rates = Rates::new(60);
        rates.take(payer(u16::MAX), 60, at(0)).unwrap();
        for n in 0..40_000 {
            rates.take(payer(n), 1 + u32::from(n % 7), at(0)).unwrap();
            assert!(rates.empty.len() <= PAYERS_MAX);
        }
        assert!(rates.take(payer(u16::MAX), 1, at(0)).is_err());
    }
}
