//! What is remembered of whoever has had a place before: [`Standings`].
//!
//! Who had to make way because it was behind counts for three places more when it comes again, and so does its network; who was served counts for one less. So in a crowd that comes
//! again and again, whoever is new, or has been served as a rule, is served first. (Priority by history: T. Peng, C. Leckie and K. Ramamohanarao, "Protection from distributed
//! denial of service attacks using history-based IP filtering", ICC 2003; there, whoever has no history is shut out.)
//!
//! Bounds: [`KNOWN_MAX`] at most are remembered, of some 64 bytes each; each is forgotten after five minutes.

use hoop_units::AddressKey;
use std::collections::BTreeMap;
use std::time::Duration;

/// Twice the crowds that we measure with. Beyond that, half is forgotten: who was heard of the longest ago.
const KNOWN_MAX: usize = 4_096;

/// The best that one can be known for, and the worst.
const BEST: i64 = 3;
const WORST: i64 = -30;

/// What having had to make way takes.
const FAULT: i64 = 3;

/// It fades by one in so long.
const FADES: Duration = Duration::from_secs(10);

/// How whoever is known has used its places: below zero, ill.
#[derive(Debug, Default)]
pub(super) struct Standings(BTreeMap<AddressKey, (i64, Duration)>);

impl Standings {
    /// Nobody's is 0.
    pub(super) fn of(&self, id: AddressKey, now: Duration) -> i64 {
        self.0.get(&id).map_or(0, |(value, at)| faded(*value, now.saturating_sub(*at)))
    }

    /// A connection of it was served.
    pub(super) fn is_served(&mut self, id: AddressKey, now: Duration) {
        self.put(id, (self.of(id, now) + 1).min(BEST), now);
    }

    /// It had to make way, since it was behind.
    pub(super) fn is_at_fault(&mut self, id: AddressKey, now: Duration) {
        self.put(id, (self.of(id, now).min(0) - FAULT).max(WORST), now);
    }

    fn put(&mut self, id: AddressKey, value: i64, now: Duration) {
        self.0.insert(id, (value, now));
        if self.0.len() > KNOWN_MAX {
            let mut heard: Vec<_> = self.0.values().map(|(_, at)| *at).collect();
            let (_, middle, _) = heard.select_nth_unstable(KNOWN_MAX / 2);
            let middle = *middle;
            self.0.retain(|_, (_, at)| *at > middle);
        }
    }
}

fn faded(value: i64, after: Duration) -> i64 {
    let by = i64::try_from(after.as_secs() / FADES.as_secs()).unwrap_or(i64::MAX);
    value.signum() * value.abs().saturating_sub(by).max(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn id(n: u16) -> AddressKey {
        let [high, low] = n.to_be_bytes();
        AddressKey::from_ip([10, 0, high, low].into())
    }

    #[test]
    fn faults_weigh_more_than_service_and_both_fade() {
        let mut standings = Standings::default();
        (0..9).for_each(|_| standings.is_served(id(1), SECOND));
        assert_eq!(standings.of(id(1), SECOND), BEST);
        standings.is_at_fault(id(1), SECOND);
        assert_eq!(standings.of(id(1), SECOND), -FAULT, "no service before makes up for it");
        (0..99).for_each(|_| standings.is_at_fault(id(1), SECOND));
        assert_eq!(standings.of(id(1), SECOND), WORST);
        assert_eq!(standings.of(id(1), SECOND + 2 * FADES), WORST + 2);
        assert_eq!(standings.of(id(1), SECOND + 31 * FADES), 0);
        assert_eq!(standings.of(id(2), SECOND), 0);
    }

    #[test]
    fn however_many_come_so_many_are_known_and_the_latest_among_them() {
        let mut standings = Standings::default();
        for n in 0..20_000 {
            standings.is_at_fault(id(n), SECOND + Duration::from_millis(n.into()));
            assert!(standings.0.len() <= KNOWN_MAX);
        }
        let now = 21 * SECOND;
        assert!((18_000..20_000).all(|n| standings.of(id(n), now) < 0));
        assert_eq!(standings.of(id(1), now), 0);
    }
}
