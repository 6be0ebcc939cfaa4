//! How fast: [`Bitrate`].

use core::fmt;
use core::time::Duration;

/// A rate in bits per second.
///
/// ```
/// use hoop_units::Bitrate;
/// let uplink = Bitrate::kbps(1_150);
/// assert_eq!(uplink.time_for(1_500).as_micros(), 10_434);
/// ```
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Bitrate(u64);

impl Bitrate {
    /// So many bits per second.
    pub const fn bps(bits_per_second: u64) -> Self {
        Self(bits_per_second)
    }

    /// So many thousand bits per second.
    pub const fn kbps(kilobits_per_second: u64) -> Self {
        Self(kilobits_per_second * 1_000)
    }

    /// So many million bits per second.
    pub const fn mbps(megabits_per_second: u64) -> Self {
        Self(megabits_per_second * 1_000_000)
    }

    /// Bits per second.
    pub const fn as_bps(self) -> u64 {
        self.0
    }

    /// Millions of bits per second, for people.
    pub fn as_mbps(self) -> f64 {
        self.0 as f64 / 1e6
    }

    /// The rate at which `bytes` pass in `time`; `None` when no time passed.
    pub fn of(bytes: u64, time: Duration) -> Option<Self> {
        let bits = u128::from(bytes) * 8 * 1_000_000_000;
        let rate = bits.checked_div(time.as_nanos())?;
        Some(Self(u64::try_from(rate).unwrap_or(u64::MAX)))
    }

    /// How long `bytes` take, rounded down to the nanosecond; [`Duration::MAX`] at rate zero.
    pub fn time_for(self, bytes: u64) -> Duration {
        let nanos = (u128::from(bytes) * 8 * 1_000_000_000).checked_div(u128::from(self.0));
        match nanos {
            None => Duration::MAX,
            Some(nanos) => {
                Duration::new(u64::try_from(nanos / 1_000_000_000).unwrap_or(u64::MAX), (nanos % 1_000_000_000) as u32)
            }
        }
    }
}

impl fmt::Display for Bitrate {
    /// `1.15 Mbit/s`, `64 kbit/s`, `9 bit/s`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            0..1_000 => write!(f, "{} bit/s", self.0),
            1_000..1_000_000 => write!(f, "{} kbit/s", self.0 as f64 / 1e3),
            _ => write!(f, "{} Mbit/s", self.0 as f64 / 1e6),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rate_and_its_time_agree() {
        let rate = Bitrate::mbps(8);
        assert_eq!(rate.time_for(1_000_000), Duration::from_secs(1));
        assert_eq!(Bitrate::of(1_000_000, Duration::from_secs(1)), Some(rate));
        assert_eq!(Bitrate::of(1, Duration::ZERO), None);
        assert_eq!(Bitrate::bps(0).time_for(1), Duration::MAX);
    }
}
