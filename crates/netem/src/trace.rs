//! Traces in mahimahi's form: when the link had an opportunity to deliver.
//!
//! One line each, a whole number of milliseconds since the start, none before the one above it; a number that stands
//! twice is two opportunities. Each may carry [`OPPORTUNITY_BYTES`]: of several small packets, or of a part of a large
//! one. What nobody uses is gone. After the last line the trace begins again, with the last line's time as its zero.

use crate::instant::Instant;
use alloc::vec::Vec;
use core::str::FromStr;
use core::time::Duration;
use hoop_units::Bitrate;

/// What one delivery opportunity carries: one packet at the MTU of Ethernet, as mahimahi has it.
pub const OPPORTUNITY_BYTES: u64 = 1_500;

/// Most lines of a trace: an hour at 14 Mbit/s, in 16 MiB of memory.
pub const TRACE_OPPORTUNITIES_MAX: usize = 1 << 22;

/// A looping list of delivery opportunities. Never empty, and never of no duration.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Trace {
    millis: Vec<u32>,
}

/// The text is no trace that a link could follow.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum TraceError {
    /// A line that is no number.
    #[error("line {line}: expected a whole number of milliseconds below 2^32")]
    Number {
        /// The line, counted from 1.
        line: usize,
    },
    /// A line that goes back in time.
    #[error("line {line}: {millis} ms comes before {previous} ms on the line above")]
    Backwards {
        /// The line, counted from 1.
        line: usize,
        /// The time on it.
        millis: u32,
        /// The time on the line above it.
        previous: u32,
    },
    /// Too many lines.
    #[error("line {line}: a trace has at most {TRACE_OPPORTUNITIES_MAX} lines")]
    TooLong {
        /// The first line too many.
        line: usize,
    },
    /// No line at all.
    #[error("the trace is empty")]
    Empty,
    /// All opportunities at time zero: it would loop for ever without time passing.
    #[error("line {line}: the last opportunity must come after 0 ms")]
    NoTime {
        /// The last line.
        line: usize,
    },
}

impl Trace {
    /// How long it takes until the trace begins again.
    pub fn period(&self) -> Duration {
        Duration::from_millis(self.last_millis())
    }

    /// How many delivery opportunities a period has.
    pub fn opportunities(&self) -> usize {
        self.millis.len()
    }

    /// The rate that it allows in the mean.
    pub fn mean_rate(&self) -> Bitrate {
        let bytes = self.millis.len() as u64 * OPPORTUNITY_BYTES;
        Bitrate::of(bytes, self.period()).expect("the period of a trace is not zero")
    }

    /// How long after the start the opportunity with this index comes, counted on over all rounds.
    fn nanos(&self, index: u64) -> u128 {
        let len = self.millis.len() as u64;
        let (round, place) = (index / len, (index % len) as usize);
        let millis = u128::from(round) * u128::from(self.last_millis()) + u128::from(self.millis[place]);
        millis * NANOS_PER_MILLI
    }

    /// The index of the first opportunity later than so many nanoseconds after the start.
    fn first_after(&self, nanos: u64) -> u64 {
        let millis = nanos / NANOS_PER_MILLI as u64;
        let (round, rest) = (millis / self.last_millis(), millis % self.last_millis());
        // The rounds before this one have passed, their last opportunity at this one's zero.
        let place = self.millis.partition_point(|at| u64::from(*at) <= rest) as u64;
        round * self.millis.len() as u64 + place
    }

    fn last_millis(&self) -> u64 {
        u64::from(*self.millis.last().expect("a trace is never empty"))
    }
}

const NANOS_PER_MILLI: u128 = 1_000_000;

impl FromStr for Trace {
    type Err = TraceError;

    fn from_str(text: &str) -> Result<Self, TraceError> {
        let mut millis: Vec<u32> = Vec::new();
        for (number, content) in (1..).zip(text.lines()) {
            if number > TRACE_OPPORTUNITIES_MAX {
                return Err(TraceError::TooLong { line: number });
            }
            let at = parse_line(content).ok_or(TraceError::Number { line: number })?;
            if let Some(&previous) = millis.last().filter(|previous| at < **previous) {
                return Err(TraceError::Backwards { line: number, millis: at, previous });
            }
            millis.push(at);
        }
        match millis.last() {
            None => Err(TraceError::Empty),
            Some(0) => Err(TraceError::NoTime { line: millis.len() }),
            Some(_) => Ok(Self { millis }),
        }
    }
}

/// Digits only: what `u32::from_str` alone would let pass (`+1`) is refused.
fn parse_line(line: &str) -> Option<u32> {
    let line = line.trim_end();
    line.bytes().all(|byte| byte.is_ascii_digit()).then(|| line.parse().ok())?
}

/// Where a transmitter stands in a trace.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Cursor {
    origin: Instant,
    /// The first opportunity not yet begun.
    next: u64,
    /// What is left of the one before it.
    spare: u64,
    /// When `spare` was granted: it is good for that moment only.
    granted: Instant,
}

impl Cursor {
    /// At the start of a trace that begins at `origin`.
    pub(crate) fn new(origin: Instant) -> Self {
        Self { origin, next: 0, spare: 0, granted: origin }
    }

    /// Takes opportunities for `bytes` that stand ready from `at` on; returns when the last of them has passed, or
    /// `None` if that is past the end of time.
    pub(crate) fn take(&mut self, trace: &Trace, bytes: u64, at: Instant, idle: bool) -> Option<Instant> {
        self.catch_up(trace, at, idle);
        let rest = bytes.saturating_sub(self.spare);
        if rest == 0 {
            self.spare -= bytes;
            return Some(at);
        }
        let opportunities = rest.div_ceil(OPPORTUNITY_BYTES);
        self.spare = opportunities * OPPORTUNITY_BYTES - rest;
        self.next += opportunities;
        self.granted = self.time(trace, self.next - 1)?;
        Some(self.granted)
    }

    /// How many of the bytes that [`Cursor::take`] would take at `since` have passed by `until`.
    pub(crate) fn passed(mut self, trace: &Trace, since: Instant, until: Instant, idle: bool) -> u64 {
        self.catch_up(trace, since, idle);
        let after = trace.first_after(until.nanos_since(self.origin));
        self.spare + after.saturating_sub(self.next) * OPPORTUNITY_BYTES
    }

    /// Lets go what nobody used before `at`. A transmitter that was busy until `at` may still use what is granted at
    /// that very moment; one that was idle has let it pass.
    fn catch_up(&mut self, trace: &Trace, at: Instant, idle: bool) {
        if idle || self.granted != at {
            self.spare = 0;
        }
        if idle {
            self.next = self.next.max(trace.first_after(at.nanos_since(self.origin)));
        }
    }

    fn time(&self, trace: &Trace, index: u64) -> Option<Instant> {
        self.origin.checked_add_nanos(trace.nanos(index))
    }
}

#[cfg(test)]
mod tests {
    extern crate std;
    use super::*;
    use alloc::string::ToString;
    use proptest::prelude::*;

    #[test]
    fn a_bad_trace_is_refused_with_its_line() {
        for (text, error) in [
            ("", "the trace is empty"),
            ("0\n0\n", "line 2: the last opportunity must come after 0 ms"),
            ("1\n2\nthree\n", "line 3: expected a whole number of milliseconds below 2^32"),
            ("1\n\n2\n", "line 2: expected a whole number of milliseconds below 2^32"),
            ("+1\n", "line 1: expected a whole number of milliseconds below 2^32"),
            ("4294967296\n", "line 1: expected a whole number of milliseconds below 2^32"),
            ("5\n7\n6\n", "line 3: 6 ms comes before 7 ms on the line above"),
        ] {
            assert_eq!(text.parse::<Trace>().unwrap_err().to_string(), error, "{text:?}");
        }
    }

    #[test]
    fn a_trace_knows_its_mean_rate() {
        let trace: Trace = "1\n1\r\n2\n".parse().unwrap();
        assert_eq!(trace.period(), Duration::from_millis(2));
        assert_eq!(trace.mean_rate(), Bitrate::mbps(18));
    }

    proptest! {
        #[test]
        fn the_first_opportunity_after_a_time_is_the_first_after_it(
            mut millis in prop::collection::vec(0u32..20, 1..10), nanos in 0u64..100_000_000,
        ) {
            millis.sort_unstable();
            millis.push(millis[millis.len() - 1] + 1);
            let trace = Trace { millis };
            let slow = (0..).find(|index| trace.nanos(*index) > u128::from(nanos)).unwrap();
            prop_assert_eq!(trace.first_after(nanos), slow);
        }
    }
}
