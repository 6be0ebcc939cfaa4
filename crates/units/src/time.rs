//! Two times, kept apart: [`Timestamp`] is monotonic and for timers; [`UnixTime`] outlives a reboot.

use core::fmt;
use core::ops::{Add, AddAssign, Sub};
use core::time::Duration;

/// A moment on a monotonic clock, in microseconds since an origin that only its owner knows.
///
/// It is an integer so that a test can write `Timestamp::from_micros(7)`, and so that two runs agree to the bit.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Timestamp(u64);

impl Timestamp {
    /// The origin.
    pub const ZERO: Self = Self(0);
    /// A moment that never comes.
    pub const MAX: Self = Self(u64::MAX);

    /// The moment `micros` microseconds after the origin.
    pub const fn from_micros(micros: u64) -> Self {
        Self(micros)
    }

    /// The moment `millis` milliseconds after the origin.
    pub const fn from_millis(millis: u64) -> Self {
        Self(millis * 1_000)
    }

    /// The moment `secs` seconds after the origin.
    pub const fn from_secs(secs: u64) -> Self {
        Self(secs * 1_000_000)
    }

    /// Microseconds since the origin.
    pub const fn as_micros(self) -> u64 {
        self.0
    }

    /// How long after `earlier` this is; zero if it is not after.
    pub const fn since(self, earlier: Self) -> Duration {
        Duration::from_micros(self.0.saturating_sub(earlier.0))
    }
}

impl Add<Duration> for Timestamp {
    type Output = Self;

    /// Saturates at [`Timestamp::MAX`].
    fn add(self, rhs: Duration) -> Self {
        Self(self.0.saturating_add(u64::try_from(rhs.as_micros()).unwrap_or(u64::MAX)))
    }
}

impl AddAssign<Duration> for Timestamp {
    fn add_assign(&mut self, rhs: Duration) {
        *self = *self + rhs;
    }
}

impl Sub for Timestamp {
    type Output = Duration;

    /// Saturates at zero.
    fn sub(self, rhs: Self) -> Duration {
        self.since(rhs)
    }
}

/// Wall time, in whole seconds since 1970-01-01T00:00:00Z, for lifetimes that outlive a reboot.
///
/// On the wire it takes four bytes, big-endian, unsigned: good until the year 2106.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct UnixTime(pub u32);

impl UnixTime {
    /// Seconds since 1970.
    pub const fn as_secs(self) -> u32 {
        self.0
    }

    /// This time and `secs` seconds; saturates.
    pub const fn plus_secs(self, secs: u32) -> Self {
        Self(self.0.saturating_add(secs))
    }

    /// Seconds from `earlier` to this time; zero if it is not after.
    pub const fn since(self, earlier: Self) -> u32 {
        self.0.saturating_sub(earlier.0)
    }
}

impl fmt::Display for UnixTime {
    /// `2026-11-21T14:37:08Z` (RFC 3339).
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (days, secs) = (self.0 / 86_400, self.0 % 86_400);
        // Howard Hinnant's `civil_from_days`: years begin in March, so that the leap day comes last.
        let z = days + 719_468;
        let (era, day_of_era) = (z / 146_097, z % 146_097);
        let year_of_era = (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
        let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
        let from_march = (5 * day_of_year + 2) / 153;
        let day = day_of_year - (153 * from_march + 2) / 5 + 1;
        let month = if from_march < 10 { from_march + 3 } else { from_march - 9 };
        let year = year_of_era + era * 400 + u32::from(month <= 2);
        let (hour, minute, second) = (secs / 3_600, secs / 60 % 60, secs % 60);
        write!(f, "{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}Z")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::ToString as _;

    #[test]
    fn sums_saturate_instead_of_wrapping() {
        assert_eq!(Timestamp::MAX + Duration::from_secs(1), Timestamp::MAX);
        assert_eq!(Timestamp::from_secs(1) - Timestamp::from_secs(2), Duration::ZERO);
        assert_eq!(UnixTime(u32::MAX).plus_secs(1), UnixTime(u32::MAX));
    }

    #[test]
    fn times_are_dates_of_the_calendar() {
        for (secs, date) in [
            (0, "1970-01-01T00:00:00Z"),
            (951_782_399, "2000-02-28T23:59:59Z"),
            (951_782_400, "2000-02-29T00:00:00Z"),
            (1_795_000_000, "2026-11-18T11:06:40Z"),
            (4_107_542_399, "2100-02-28T23:59:59Z"),
            (4_107_542_400, "2100-03-01T00:00:00Z"),
            (u32::MAX, "2106-02-07T06:28:15Z"),
        ] {
            assert_eq!(UnixTime(secs).to_string(), date);
        }
    }
}
