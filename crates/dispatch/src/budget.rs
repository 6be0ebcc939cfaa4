//! Lines that are billed by their 95th percentile: [`Budget`].
//!
//! The carrier counts bytes in intervals of 5 minutes. At the end of the month the highest 5 % of the intervals are left out, and the
//! highest of the rest is the bill ("burstable billing"). So an interval may be filled up to what the bill is anyway, and
//! some 36 hours of a month may be filled beyond it for nothing: those that the household itself fills, and a share for us.

use alloc::vec::Vec;
use core::time::Duration;
use hoop_units::{Bitrate, UnixTime};

/// An interval's length in seconds: what carriers count by.
pub const INTERVAL_SECS: u32 = 300;

/// Of a hundred intervals so many are free.
const FREE_PERCENT: u32 = 5;

/// Of the free intervals so many in a hundred are kept for what the household will do, beside what it did so far; fewer as
/// the month goes by.
const RESERVE_PERCENT: f64 = 15.0;

/// What it does by habit is taken for so much more, and an hour's worth on top, as dice fall: three standard deviations for any number.
const DICE: f64 = 1.3;
const DICE_LEAST: f64 = 12.0;

/// Until the household has been watched for some days it is taken to fill so many intervals in a hundred by itself.
const HOUSEHOLD_PERCENT: f64 = 1.0;
const WATCHED: f64 = 3.0 * 288.0;

/// Free intervals are spent evenly over the month, but so many ahead of that: two hours, so that the first day has some.
const AHEAD: f64 = 24.0;

/// Of an interval that is not free so much is used: others may still send in it.
const USED_SHARE: f64 = 0.97;

/// A billing month in intervals, in UTC.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Month {
    /// Its first second.
    pub start: UnixTime,
    /// How many intervals it has.
    pub intervals: u32,
}

impl Month {
    /// The month that `now` is in, of those that begin on this day (1 to 28).
    pub const fn containing(now: UnixTime, day: u8) -> Self {
        let (year, month, today) = civil(now.0 / 86_400);
        let day = day as u32;
        let (year, month) = match (today >= day, month) {
            (true, _) => (year, month),
            (false, 1) => (year - 1, 12),
            (false, _) => (year, month - 1),
        };
        let (next_year, next_month) = if month == 12 { (year + 1, 1) } else { (year, month + 1) };
        let (from, to) = (days(year, month, day), days(next_year, next_month, day));
        Self { start: UnixTime(from * 86_400), intervals: (to - from) * (86_400 / INTERVAL_SECS) }
    }

    /// Which interval `now` is in; the first is 0.
    pub const fn interval(&self, now: UnixTime) -> u32 {
        now.since(self.start) / INTERVAL_SECS
    }

    /// How many of its intervals are free.
    pub const fn free(&self) -> u32 {
        self.intervals * FREE_PERCENT / 100
    }
}

/// Howard Hinnant's `days_from_civil`, for years from 1970 on.
const fn days(year: u32, month: u32, day: u32) -> u32 {
    let year = if month <= 2 { year - 1 } else { year };
    let era = year / 400;
    let of_era = year - era * 400;
    let from_march = if month > 2 { month - 3 } else { month + 9 };
    let of_year = (153 * from_march + 2) / 5 + day - 1;
    era * 146_097 + of_era * 365 + of_era / 4 - of_era / 100 + of_year - 719_468
}

/// Howard Hinnant's `civil_from_days`: year, month and day.
const fn civil(days: u32) -> (u32, u32, u32) {
    let z = days + 719_468;
    let (era, of_era) = (z / 146_097, z % 146_097);
    let year = (of_era - of_era / 1_460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year + year / 4 - year / 100);
    let from_march = (5 * of_year + 2) / 153;
    let day = of_year - (153 * from_march + 2) / 5 + 1;
    let month = if from_march < 10 { from_march + 3 } else { from_march - 9 };
    let year = year + era * 400;
    (if month <= 2 { year + 1 } else { year }, month, day)
}

/// What is known of the interval that runs.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Interval {
    /// How far it has run.
    pub elapsed: Duration,
    /// Bytes that others sent in it.
    pub others: u64,
    /// Bytes that we sent in it.
    pub own: u64,
    /// Whether anything waits to be sent.
    pub has_queue: bool,
    /// What has to be sent in the whole of it so that no deadline is missed, if each of those to come carries as much.
    pub forced: u64,
}

/// What may be sent in the rest of an interval.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Allowance {
    /// So many bytes: they do not raise the bill.
    Within(u64),
    /// Anything: it is one of the free ones.
    Free,
    /// So many bytes, which may raise the bill: a deadline wants them.
    Forced(u64),
}

/// The month so far, in as much as the bill depends on it: the highest 5 % of its intervals and their number. Some 4 KiB.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Budget {
    /// The bill that is paid anyway, in bytes an interval.
    committed: u64,
    month: Month,
    /// The highest samples, highest first: one more than are free.
    top: Vec<u64>,
    /// Intervals that are over.
    seen: u32,
    /// Those of them that others filled beyond the bill.
    others_over: u32,
    /// Those that we filled, and others had not.
    own_over: u32,
    /// What others sent in the last one.
    others_last: u64,
    /// The running one is free, and was so decided.
    spending: bool,
}

impl Budget {
    /// A month that has just begun, with this rate paid for anyway.
    pub const fn new(committed: Bitrate, month: Month) -> Self {
        let committed = committed.as_bps() / 8 * INTERVAL_SECS as u64;
        Self {
            committed,
            month,
            top: Vec::new(),
            seen: 0,
            others_over: 0,
            own_over: 0,
            others_last: 0,
            spending: false,
        }
    }

    /// The month.
    pub const fn month(&self) -> Month {
        self.month
    }

    /// The bill as it would be if nothing more were sent, in bytes an interval; without what is paid anyway.
    pub fn bill(&self) -> u64 {
        self.top.get(self.month.free() as usize).copied().unwrap_or_default()
    }

    /// What an interval may carry without raising the bill, in bytes.
    pub fn threshold(&self) -> u64 {
        self.committed.max(self.bill())
    }

    /// What may be sent in the rest of the running interval.
    pub fn allowance(&mut self, now: Interval) -> Allowance {
        let threshold = self.threshold();
        if self.spending || now.others > threshold || now.own + now.others > threshold + threshold / 10 {
            // It is over already, by whomsoever.
            return Allowance::Free;
        }
        if now.has_queue && self.may_spend() {
            self.spending = true;
            return Allowance::Free;
        }
        let room = (threshold as f64 * USED_SHARE) as u64;
        let room = room.saturating_sub(self.expected_others(now)).saturating_sub(now.own);
        let wanted = now.forced.saturating_sub(now.own);
        if wanted > room { Allowance::Forced(wanted) } else { Allowance::Within(room) }
    }

    /// The running interval is over, with these bytes of others and of ours.
    pub fn handle_end(&mut self, others: u64, own: u64) {
        let threshold = self.threshold();
        self.seen = (self.seen + 1).min(self.month.intervals);
        if others > threshold {
            self.others_over += 1;
        } else if others + own > threshold {
            self.own_over += 1;
        }
        let at = self.top.partition_point(|sample| *sample >= others + own);
        self.top.insert(at, others + own);
        self.top.truncate(self.month.free() as usize + 1);
        (self.others_last, self.spending) = (others, false);
    }

    /// Intervals passed of which nothing is known, since nobody was there to count: they count as empty.
    pub fn handle_unseen(&mut self, until: u32) {
        self.seen = self.seen.max(until.min(self.month.intervals));
    }

    /// How many intervals are over.
    pub const fn seen(&self) -> u32 {
        self.seen
    }

    /// Those that we filled beyond the bill.
    pub const fn spent(&self) -> u32 {
        self.own_over
    }

    /// Whether another free interval may be ours.
    fn may_spend(&self) -> bool {
        let (free, all) = (f64::from(self.month.free()), f64::from(self.month.intervals));
        let left = (all - f64::from(self.seen)).max(0.0);
        let watched = f64::from(self.seen) + WATCHED;
        let habit = (f64::from(self.others_over) + WATCHED * HOUSEHOLD_PERCENT / 100.0) / watched;
        let to_come = habit * left * DICE + DICE_LEAST.min(left) + free * RESERVE_PERCENT / 100.0 * left / all;
        let ours = free - f64::from(self.others_over) - to_come;
        let by_now = ours * ((f64::from(self.seen) + AHEAD) / all).min(1.0);
        let threshold = self.threshold();
        let used = self.top.partition_point(|sample| *sample > threshold) as f64;
        f64::from(self.own_over) + 1.0 <= by_now && used + 1.0 + to_come <= free
    }

    /// What others will have sent at the interval's end, if they go on as they do, or did.
    fn expected_others(&self, now: Interval) -> u64 {
        let whole = f64::from(INTERVAL_SECS);
        let elapsed = now.elapsed.as_secs_f64().min(whole);
        // Half a minute says little.
        let lately = if elapsed >= 30.0 { now.others as f64 / elapsed } else { 0.0 };
        let rate = lately.max(self.others_last as f64 / whole);
        now.others + (rate * (whole - elapsed)) as u64
    }

    /// What outlives a restart; [`Budget::restore`] takes it back.
    pub fn snapshot(&self) -> Snapshot {
        Snapshot {
            start: self.month.start.0,
            seen: self.seen,
            others_over: self.others_over,
            own_over: self.own_over,
            others_last: self.others_last,
            top: self.top.clone(),
        }
    }

    /// Takes back what was known of the month; nothing, if it is another month's, or makes no sense.
    pub fn restore(&mut self, mut snapshot: Snapshot) {
        let is_sound = snapshot.seen <= self.month.intervals
            && snapshot.top.len() <= self.month.free() as usize + 1
            && snapshot.others_over <= snapshot.seen
            && snapshot.own_over <= snapshot.seen;
        if snapshot.start != self.month.start.0 || !is_sound {
            return;
        }
        snapshot.top.sort_unstable_by(|one, other| other.cmp(one));
        self.top = snapshot.top;
        (self.seen, self.others_over, self.own_over) = (snapshot.seen, snapshot.others_over, snapshot.own_over);
        self.others_last = snapshot.others_last;
    }
}

/// A month so far, as it is kept.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Snapshot {
    /// The month's first second.
    pub start: u32,
    /// Intervals that are over.
    pub seen: u32,
    /// Those that others filled beyond the bill.
    pub others_over: u32,
    /// Those that we did.
    pub own_over: u32,
    /// What others sent in the last, in bytes.
    pub others_last: u64,
    /// The highest samples, in bytes.
    pub top: Vec<u64>,
}

/// The least rate, in bytes a second, that meets every deadline: (when, bytes left) in any order. Those that are missed already
/// do not count.
pub fn least_rate(deadlines: impl Iterator<Item = (UnixTime, u64)>, now: UnixTime) -> u64 {
    let mut deadlines: Vec<_> = deadlines.filter(|(at, _)| *at > now).collect();
    deadlines.sort_unstable();
    let mut sum = 0_u64;
    let rates = deadlines.into_iter().map(|(at, bytes)| {
        sum = sum.saturating_add(bytes);
        sum.div_ceil(u64::from(at.since(now)))
    });
    rates.max().unwrap_or_default()
}
