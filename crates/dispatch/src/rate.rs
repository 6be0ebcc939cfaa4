//! A bound on bytes over time: [`RateLimit`].

use core::time::Duration;
use hoop_units::{Bitrate, Timestamp};

/// What may be sent at once after a pause: as much as the rate carries in so long. The line's queue smooths that; more would be
/// a queue of its own.
const BURST: Duration = Duration::from_millis(100);

/// And two packets at least, since nothing smaller is sent.
const BURST_BYTES_MIN: u64 = 3_000;

/// A token bucket. What was sent is taken from it, and what is in it says how fast to go on.
#[derive(Clone, Debug)]
pub struct RateLimit {
    rate: Bitrate,
    /// Bytes that may be sent now; below zero: that were sent too early.
    tokens: f64,
    at: Option<Timestamp>,
}

impl RateLimit {
    /// At most `rate` over any time longer than the burst.
    pub const fn new(rate: Bitrate) -> Self {
        Self { rate, tokens: 0.0, at: None }
    }

    /// Another rate from now on. What was sent too early stays owed.
    pub const fn set_rate(&mut self, rate: Bitrate) {
        self.rate = rate;
    }

    /// `bytes` were sent since the last call. Returns the rate to go on with: the limit, or less for as long as more was sent than it
    /// allows; so what goes out between two calls is made good at the next.
    pub fn handle_sent(&mut self, bytes: u64, now: Timestamp) -> Bitrate {
        let passed = self.at.map_or(BURST, |at| now.since(at));
        self.at = Some(now);
        let per_second = self.rate.as_bps() as f64 / 8.0;
        let burst = (per_second * BURST.as_secs_f64()).max(BURST_BYTES_MIN as f64);
        self.tokens = (self.tokens + per_second * passed.as_secs_f64()).min(burst) - bytes as f64;
        if self.tokens >= 0.0 {
            return self.rate;
        }
        // A debt is paid back within a second, at half the rate at worst.
        let owed = (-self.tokens * 8.0) as u64;
        Bitrate::bps(self.rate.as_bps().saturating_sub(owed).max(self.rate.as_bps() / 2))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn over_any_time_no_more_goes_out_than_the_rate_and_a_burst() {
        let mut limit = RateLimit::new(Bitrate::kbps(800));
        let (mut now, mut sent, mut rate) = (Timestamp::ZERO, 0_u64, Bitrate::kbps(800));
        // A kernel that always sends a twentieth more than it is told.
        for tick in 0..20_000_u64 {
            let bytes = rate.as_bps() * 21 / 20 / 8 / 20;
            sent += bytes;
            now += Duration::from_millis(50);
            rate = limit.handle_sent(bytes, now);
            let allowed = 100_000.0 * (tick + 1) as f64 / 20.0 + 20_000.0;
            assert!(sent as f64 <= allowed, "{sent} after {tick} ticks");
        }
        assert!(sent >= 99_000_000, "{sent}: nor much less");
    }

    #[test]
    fn a_pause_saves_up_a_burst_and_no_more() {
        let mut limit = RateLimit::new(Bitrate::mbps(8));
        limit.handle_sent(0, Timestamp::from_secs(1));
        limit.handle_sent(0, Timestamp::from_secs(3_600));
        assert_eq!(
            limit.handle_sent(100_000, Timestamp::from_secs(3_600)),
            Bitrate::mbps(8),
            "a tenth of a second's worth"
        );
        assert!(limit.handle_sent(100_000, Timestamp::from_secs(3_600)) < Bitrate::mbps(8));
    }
}
