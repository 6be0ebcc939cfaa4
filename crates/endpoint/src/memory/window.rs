//! How far ahead of the application a device may send: [`Window`].

use hoop_flow::CREDIT_FIRST;
use hoop_units::{Duration, Timestamp};

/// What any device may send of any flow, in bytes: it may of itself when a flow begins.
pub(crate) const WINDOW_MIN: u64 = CREDIT_FIRST;

/// A window of which half is used up within this time, or within two round trips, is too small: disks take their time to keep what came, too.
const QUICK: Duration = Duration::from_millis(100);

/// How far a device may send ahead of the reader. The window starts at [`WINDOW_MIN`]. It doubles while it limits the device, as many QUIC servers tune their streams.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Window {
    size: u64,
    /// How far the stream was used up when that was looked at last, and when.
    from: u64,
    since: Timestamp,
    /// How far the device was told that it may send.
    granted_to: u64,
}

impl Window {
    /// For a stream that is used up as far as `from`, and granted as far as `granted_to`.
    pub(crate) const fn new(from: u64, granted_to: u64, now: Timestamp) -> Self {
        Self { size: WINDOW_MIN, from, since: now, granted_to }
    }

    pub(crate) const fn size(&self) -> u64 {
        self.size
    }

    /// Whether half of it is used up since it was [looked at](Self::grow).
    pub(crate) const fn is_due(&self, used_to: u64) -> bool {
        used_to.saturating_sub(self.from) >= self.size / 2
    }

    /// Half of it is used up: it is doubled if that was quick. `rtt`: the lane's; without it is as large as can be at once. It is to be [cut](Self::cut) then.
    pub(crate) fn grow(&mut self, used_to: u64, rtt: Option<Duration>, now: Timestamp) {
        match rtt {
            None => self.size = u64::MAX,
            Some(rtt) if now.since(self.since) < QUICK.max(rtt * 2) => self.size = self.size.saturating_mul(2),
            Some(_) => {}
        }
        (self.from, self.since) = (used_to, now);
    }

    /// It is to be no more than `most`, but never less than [`WINDOW_MIN`].
    pub(crate) fn cut(&mut self, most: u64) {
        self.size = self.size.min(most).max(WINDOW_MIN);
    }

    /// The device may send so far.
    pub(crate) fn granted(&mut self, to: u64) {
        self.granted_to = self.granted_to.max(to);
    }

    pub(crate) const fn granted_to(&self) -> u64 {
        self.granted_to
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    /// The window after `count` halves of it were used up, each in `each`.
    fn after(count: usize, each: Duration, rtt: Duration, most: u64) -> u64 {
        let mut now = Timestamp::ZERO;
        let (mut window, mut used) = (Window::new(0, WINDOW_MIN, now), 0);
        for _ in 0..count {
            now += each;
            used += window.size() / 2;
            assert!(!window.is_due(used - 1) && window.is_due(used));
            window.grow(used, Some(rtt), now);
            window.cut(most);
        }
        window.size()
    }

    #[test]
    fn a_window_grows_only_while_it_holds_back() {
        assert_eq!(after(4, 99 * MS, MS, u64::MAX), 16 * WINDOW_MIN);
        assert_eq!(after(4, 101 * MS, MS, u64::MAX), WINDOW_MIN);
        assert_eq!(after(4, 999 * MS, 500 * MS, u64::MAX), 16 * WINDOW_MIN);
        assert_eq!(after(9, MS, MS, 2 << 20), 2 << 20);
    }

    #[test]
    fn a_window_shrinks_with_the_memory_but_not_below_what_all_may_send() {
        assert_eq!(after(3, MS, MS, 3 * WINDOW_MIN), 3 * WINDOW_MIN);
        let (now, mut window) = (Timestamp::ZERO, Window::new(7, WINDOW_MIN, Timestamp::ZERO));
        window.grow(WINDOW_MIN, Some(MS), now);
        assert_eq!(window.size(), 2 * WINDOW_MIN);
        window.cut(1_000);
        assert_eq!(window.size(), WINDOW_MIN);
        window.grow(3 * WINDOW_MIN, None, now);
        window.cut(2 << 20);
        assert_eq!(window.size(), 2 << 20);
    }

    #[test]
    fn what_was_granted_cannot_be_taken_back() {
        let mut window = Window::new(5, 70_000, Timestamp::ZERO);
        window.granted(5 + WINDOW_MIN);
        assert_eq!(window.granted_to(), 70_000);
        window.granted(1 << 20);
        window.granted(1 << 19);
        assert_eq!(window.granted_to(), 1 << 20);
    }
}
