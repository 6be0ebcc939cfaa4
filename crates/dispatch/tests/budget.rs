//! The budget over simulated months, beside the carrier's own way to count.
#![allow(missing_docs)]

use hoop_dispatch::{Allowance, Budget, INTERVAL_SECS, Interval, Month, least_rate};
use hoop_units::{Bitrate, Duration, UnixTime};
use proptest::prelude::*;

const START: UnixTime = UnixTime(1_795_000_000);
const MONTH: Month = Month { start: START, intervals: 30 * 288 };

/// What the carrier does: sort, leave out 5 %, take the highest.
fn bill(samples: &[u64]) -> u64 {
    let mut sorted = samples.to_vec();
    sorted.sort_unstable_by(|one, other| other.cmp(one));
    sorted.get(samples.len() * 5 / 100).copied().unwrap_or_default()
}

/// A household: a base, an evening, bursts; in bytes of each interval.
fn household(seed: u64, bursts: u64) -> Vec<u64> {
    let mut state = seed | 1;
    let mut rng = move || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    };
    let evening = |interval: usize| (216..276).contains(&(interval % 288));
    (0..MONTH.intervals as usize)
        .map(|interval| {
            let base = 500_000 + rng() % 500_000 + if evening(interval) { 4_000_000 + rng() % 3_000_000 } else { 0 };
            base + if rng() % 1_000 < bursts { 30_000_000 + rng() % 5_000_000 } else { 0 }
        })
        .collect()
}

/// Sends all it may into each interval, in ten steps; returns what was sent in each by us.
fn spend(budget: &mut Budget, household: &[u64], line: u64, forced: impl Fn(u32) -> u64) -> Vec<u64> {
    let mut sent = Vec::new();
    for (interval, others) in household.iter().enumerate() {
        let mut own = 0;
        for step in 0..10 {
            let now = Interval {
                elapsed: Duration::from_secs(30 * step),
                others: others * step / 10,
                own,
                has_queue: true,
                forced: forced(interval as u32),
            };
            let most = (line / 10).saturating_sub(others / 10);
            own += match budget.allowance(now) {
                Allowance::Free => most,
                Allowance::Within(bytes) | Allowance::Forced(bytes) => most.min(bytes / (10 - step)),
            };
        }
        budget.handle_end(*others, own);
        sent.push(own);
    }
    sent
}

fn sum(one: &[u64], other: &[u64]) -> Vec<u64> {
    one.iter().zip(other).map(|(one, other)| one + other).collect()
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(200) })]
    #[test]
    fn the_bill_is_what_the_carrier_counts(samples in prop::collection::vec(0..1_000_000_u64, 1..400), free in 1..400_u32) {
        let month = Month { start: START, intervals: free * 20 };
        let mut budget = Budget::new(Bitrate::bps(0), month);
        let mut counted = Vec::new();
        for sample in samples.iter().take(month.intervals as usize) {
            budget.handle_end(sample / 3, sample - sample / 3);
            counted.push(*sample);
        }
        counted.resize(month.intervals as usize, 0);
        prop_assert_eq!(budget.bill(), bill(&counted));
        let mut restored = Budget::new(Bitrate::bps(0), month);
        restored.restore(budget.snapshot());
        prop_assert_eq!(restored, budget);
    }
}

#[test]
fn a_month_of_uploads_does_not_raise_the_bill_and_uses_what_is_free() {
    for seed in 1..4 {
        for bursts in [0, 10, 30, 45] {
            let household = household(seed, bursts);
            let committed = Bitrate::kbps(400);
            let mut budget = Budget::new(committed, MONTH);
            let line = 150_000_000;
            let sent = spend(&mut budget, &household, line, |_| 0);
            let committed = committed.as_bps() / 8 * u64::from(INTERVAL_SECS);
            let (without, with) = (bill(&household).max(committed), bill(&sum(&household, &sent)));
            let all: u64 = sent.iter().sum();
            assert!(with <= without, "seed {seed}, {bursts}: {with} instead of {without}");
            let within = committed * u64::from(MONTH.intervals) - household.iter().sum::<u64>().min(committed);
            assert!(all >= within / 2, "seed {seed}, {bursts}: {all} of {within}");
            if bursts <= 10 {
                let used = sum(&household, &sent).iter().filter(|sample| **sample > committed).count();
                assert!(used >= MONTH.free() as usize / 2, "seed {seed}: {used} of the free ones are used");
            }
            assert!(budget.snapshot().top.len() <= MONTH.free() as usize + 1);
        }
    }
}

#[test]
fn a_deadline_gets_the_least_that_meets_it_and_no_more() {
    let mut budget = Budget::new(Bitrate::kbps(400), MONTH);
    let threshold = budget.threshold();
    // All free ones are gone: the household had them.
    (0..MONTH.free()).for_each(|_| budget.handle_end(10 * threshold, 0));
    budget.handle_end(0, 0);
    let now = Interval { has_queue: true, ..Interval::default() };
    assert!(matches!(budget.allowance(now), Allowance::Within(_)));
    let forced = 3 * threshold;
    assert_eq!(budget.allowance(Interval { forced, ..now }), Allowance::Forced(forced));
    assert_eq!(budget.allowance(Interval { forced, own: threshold, ..now }), Allowance::Forced(2 * threshold));
    assert!(matches!(budget.allowance(Interval { forced: 1, ..now }), Allowance::Within(_)), "it fits anyway");
    // An interval that the household fills is filled further for nothing.
    assert_eq!(budget.allowance(Interval { others: threshold + 1, ..now }), Allowance::Free);
}

#[test]
fn free_intervals_last_all_month_and_some_are_kept_for_the_household() {
    let quiet = vec![0; MONTH.intervals as usize];
    let mut budget = Budget::new(Bitrate::kbps(400), MONTH);
    let threshold = budget.threshold();
    let sent = spend(&mut budget, &quiet, 150_000_000, |_| 0);
    let over: Vec<usize> = (0..sent.len()).filter(|at| sent[*at] > threshold).collect();
    assert!(over.len() >= 380 && over.len() <= MONTH.free() as usize, "{}", over.len());
    for week in 1..4 {
        let by_then = over.iter().filter(|at| **at < week * 7 * 288).count();
        let even = MONTH.free() as usize * week * 7 / 30;
        assert!(by_then <= even + 30, "after {week} weeks {by_then}");
        assert!(by_then * 2 >= even, "after {week} weeks {by_then}");
    }
}

#[test]
fn the_least_rate_meets_every_deadline_and_a_byte_a_second_less_does_not() {
    let at = |secs: u32| START.plus_secs(secs);
    let deadlines = [(at(100), 1_000), (at(50), 600), (at(200), 1_000), (UnixTime(START.0 - 1), 999_999)];
    assert_eq!(least_rate(deadlines.into_iter(), START), 16, "1,600 bytes within 100 s");
    assert_eq!(least_rate(std::iter::empty(), START), 0);
}

#[test]
fn months_of_the_bill_are_those_of_the_calendar() {
    // 2026-11-18 and 2024-02-10.
    for (now, day, start, days) in [
        (1_795_000_000, 1, "2026-11-01T00:00:00Z", 30),
        (1_795_000_000, 18, "2026-11-18T00:00:00Z", 30),
        (1_795_000_000, 19, "2026-10-19T00:00:00Z", 31),
        (1_707_523_200, 1, "2024-02-01T00:00:00Z", 29),
        (1_704_067_200, 15, "2023-12-15T00:00:00Z", 31),
        (1_704_067_199, 1, "2023-12-01T00:00:00Z", 31),
    ] {
        let month = Month::containing(UnixTime(now), day);
        assert_eq!((month.start.to_string().as_str(), month.intervals), (start, days * 288));
        assert!(month.interval(UnixTime(now)) < month.intervals);
    }
}
