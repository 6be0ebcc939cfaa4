//! Lines of the log that strangers can bring about: so many in a minute ([`Lines`]).

use parking_lot::Mutex;
use std::fmt::Display;
use std::time::{Duration, Instant};

/// Lines of one kind in a minute: more than come about by mistake, and 86,400 a day, some 15 MB.
const LINES_MAX: u32 = 60;

const MINUTE: Duration = Duration::from_secs(60);

/// How many lines of one kind were written since the minute began.
#[derive(Debug)]
pub struct Lines {
    most: u32,
    written: Mutex<(Option<Instant>, u32)>,
}

impl Default for Lines {
    fn default() -> Self {
        Self::new()
    }
}

impl Lines {
    /// None yet, and 60 a minute at most.
    pub const fn new() -> Self {
        Self::at_most(LINES_MAX)
    }

    /// None yet, and so many a minute at most.
    pub const fn at_most(most: u32) -> Self {
        Self { most, written: Mutex::new((None, 0)) }
    }

    /// Whether one more is written in this minute. Of the first that is not, `more` is told: it says in a line of its own that there are more.
    pub fn have_room(&self, now: Instant, more: impl FnOnce()) -> bool {
        let mut kept = self.written.lock();
        if kept.0.is_none_or(|began| now.saturating_duration_since(began) >= MINUTE) {
            *kept = (Some(now), 0);
        }
        kept.1 = kept.1.saturating_add(1);
        let written = kept.1;
        drop(kept);
        if written == self.most + 1 {
            more();
        }
        written <= self.most
    }

    /// Warns that something failed, in these words, if one more line is written in this minute.
    pub fn warn(&self, words: &str, error: &impl Display) {
        let more = || tracing::warn!("{words}, more often than is written down in this minute");
        if self.have_room(Instant::now(), more) {
            tracing::warn!(%error, "{words}");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn so_many_are_written_in_a_minute_and_that_there_are_more_is_said_once() {
        let (lines, begin, told) = (Lines::new(), Instant::now(), std::cell::Cell::new(0));
        let at = |secs| lines.have_room(begin + Duration::from_secs(secs), || told.set(told.get() + 1));
        assert!((0..LINES_MAX).all(|_| at(5)));
        assert!(!at(5) && !at(64));
        assert_eq!(told.get(), 1);
        assert!(at(65));
    }
}
