//! When to try again: [`Backoff`], capped exponential with jitter.

use core::time::Duration;

/// Capped exponential back-off with "equal" jitter: attempt *k* waits between half and all of min(base · 2^k, cap).
///
/// Half stays fixed, so that a retry never comes at once; half is random, so that senders that failed together do
/// not return together.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Backoff {
    /// The longest first wait.
    pub base: Duration,
    /// The longest wait of all.
    pub cap: Duration,
}

impl Backoff {
    /// The wait after the failed attempt number `attempt` (0 is the first), with `jitter`, a random number, uniform in `u32`.
    pub fn delay(self, attempt: u32, jitter: u32) -> Duration {
        let factor = 1_u32.checked_shl(attempt).unwrap_or(u32::MAX);
        let full = self.base.saturating_mul(factor).min(self.cap);
        let half = full / 2;
        half + half.mul_f64(f64::from(jitter) / f64::from(u32::MAX))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_double_up_to_the_cap_and_keep_at_least_half() {
        let backoff = Backoff { base: Duration::from_secs(1), cap: Duration::from_secs(10) };
        for (attempt, full) in [(0, 1), (1, 2), (2, 4), (3, 8), (4, 10), (31, 10), (32, 10), (u32::MAX, 10)] {
            assert_eq!(backoff.delay(attempt, u32::MAX), Duration::from_secs(full), "attempt {attempt}");
            assert_eq!(backoff.delay(attempt, 0), Duration::from_secs(full) / 2, "attempt {attempt}");
        }
    }
}
