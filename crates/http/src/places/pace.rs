//! How a client gets on, as its place is told: [`Pace`], in a [`Sign`].

use parking_lot::{Mutex, MutexGuard};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;
use tokio::sync::Notify;

/// The least pace of a client that is waited for, in bytes a second: what one of twenty phones has at Wi-Fi's slowest rate. To hold a place one has to pay so much for it.
const BYTES_A_SECOND: i64 = 32 * 1024;

/// How long a client may be waited for at first: longer than what it sends at once takes to be read, and so short that a crowd that comes without end leaves room for who comes in between.
pub(super) const AT_FIRST: Duration = Duration::from_millis(20);

/// How long for who has done what was waited for, or reads: longer than most round trips, shorter than a newcomer should wait.
pub(super) const BY_LEAVE: Duration = Duration::from_millis(100);

/// How long at most for who has brought more than the least.
pub(super) const AHEAD: Duration = Duration::from_secs(1);

/// A purse of time. What comes from a client, or goes to it, fills the purse; being waited for empties it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pace {
    /// Since when the client is waited for, if it is.
    since: Option<Duration>,
    /// What is waited for is to come from the client: what goes to it does not end that.
    is_for_more: bool,
    /// The time for which it may still be waited for, in microseconds; below zero: for how long it has been behind.
    left: i64,
}

impl Pace {
    const FRESH: Self = Self { since: None, is_for_more: false, left: micros(AT_FIRST) };

    /// What is left of the time, now.
    fn left(&self, now: Duration) -> i64 {
        self.left.saturating_sub(self.since.map_or(0, |since| micros(now.saturating_sub(since))))
    }

    /// Something has come from the client; nothing is no news.
    pub(super) fn comes(&mut self, bytes: usize, now: Duration) {
        if bytes > 0 {
            *self = Self { since: None, is_for_more: false, left: self.with(bytes, AHEAD, now) };
        }
    }

    /// Something is on its way to the client. What the system has taken nobody has read yet: it earns little.
    pub(super) fn goes(&mut self, bytes: usize, now: Duration) {
        if bytes > 0 {
            let since = if self.is_for_more { self.since.map(|_| now) } else { None };
            *self = Self { since, left: self.with(bytes, BY_LEAVE, now), ..*self };
        }
    }

    /// What is left once so many bytes have moved, at most `most` by these.
    fn with(&self, bytes: usize, most: Duration, now: Duration) -> i64 {
        let left = self.left(now);
        let earned = i64::try_from(bytes).unwrap_or(i64::MAX).saturating_mul(1_000_000) / BYTES_A_SECOND;
        left.saturating_add(earned).min(micros(most).max(left))
    }
}

/// What the holder of a place and the table tell each other.
#[derive(Debug)]
pub(super) struct Sign {
    pace: Mutex<Pace>,
    /// Somebody else than the reader of the connection tells how the client gets on.
    pub is_told_apart: AtomicBool,
    /// Whether it has to make way, and all who wait to hear of it.
    pub is_gone: AtomicBool,
    pub makes_way: Notify,
    /// A request that waits has got its place, or will not get it.
    pub turn: Notify,
    /// What the head of its request takes.
    pub head_bytes: AtomicUsize,
    /// There was no place for its request.
    pub is_refused: AtomicBool,
    /// A request of its connection was answered.
    was_served: AtomicBool,
}

impl Default for Sign {
    fn default() -> Self {
        let [is_told_apart, is_gone, is_refused, was_served] = [false; 4].map(AtomicBool::new);
        let [makes_way, turn] = [(); 2].map(|()| Notify::new());
        let (pace, head_bytes) = (Mutex::new(Pace::FRESH), AtomicUsize::new(0));
        Self { pace, is_told_apart, is_gone, makes_way, turn, head_bytes, is_refused, was_served }
    }
}

impl Sign {
    pub(super) fn pace(&self) -> MutexGuard<'_, Pace> {
        self.pace.lock()
    }

    pub(super) fn awaits(&self, now: Duration, is_for_more: bool) {
        let mut pace = self.pace();
        pace.since.get_or_insert(now);
        pace.is_for_more |= is_for_more;
    }

    /// Its client has begun to shake hands, and is waited for until what was answered has gone there and more has come back.
    pub(super) fn shakes_hands(&self, now: Duration) {
        *self.pace() = Pace { since: Some(now), is_for_more: true, left: micros(AHEAD) };
    }

    pub(super) fn goes_on(&self) {
        let mut pace = self.pace();
        *pace = Pace { since: None, is_for_more: false, left: pace.left.max(micros(BY_LEAVE)) };
    }

    /// Another place was taken, or is waited for.
    pub(super) fn begins(&self) {
        *self.pace() = Pace::FRESH;
        self.is_told_apart.store(false, Ordering::Relaxed);
        self.is_refused.store(false, Ordering::Relaxed);
        self.is_gone.store(false, Ordering::Release);
    }

    pub(super) fn makes_way(&self) {
        self.is_gone.store(true, Ordering::Release);
        self.makes_way.notify_waiters();
        self.turn.notify_one();
    }

    /// A request was answered: whether it is the first.
    pub(super) fn is_served(&self) -> bool {
        !self.was_served.swap(true, Ordering::Relaxed)
    }

    /// For how long its client has been behind, if it is waited for, in microseconds; below zero: for how long it still may be.
    pub(super) fn late(&self, now: Duration) -> Option<i64> {
        let pace = *self.pace();
        pace.since.and(pace.left(now).checked_neg())
    }
}

pub(super) const fn micros(time: Duration) -> i64 {
    // 290,000 years.
    time.as_micros() as i64
}
