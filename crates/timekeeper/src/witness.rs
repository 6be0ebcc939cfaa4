//! Who says how far off steady time is, and for how long: [`Witnesses`].

use crate::{AGREE, DAY, SETTLE};
use core::time::Duration;

/// Who says what time it is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Source {
    /// The wall clock alone.
    Wall,
    /// The kernel, whose clock is synchronised (`adjtimex`).
    Ntp,
    /// A service, in its `Date`, over TLS.
    Service,
}

/// What one says.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Word {
    /// How far steady time is behind, in microseconds, when it was said first. Kept, so that one who creeps contradicts itself in the end.
    offset: i64,
    /// The run time when it was said first.
    since: Duration,
    /// And last.
    last: Duration,
}

/// What each says.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Witnesses([Option<Word>; 3]);

impl Witnesses {
    /// One says at this run time that steady time is behind by so many microseconds. Whoever says something else than before begins anew.
    pub fn say(&mut self, source: Source, offset: i64, run: Duration) {
        let word = &mut self.0[source as usize];
        match word {
            Some(word) if agree(word.offset, offset) => word.last = run,
            _ => *word = Some(Word { offset, since: run, last: run }),
        }
    }

    /// One says nothing any more.
    pub fn hush(&mut self, source: Source) {
        self.0[source as usize] = None;
    }

    /// Steady time was set: what all say is by so much less.
    pub fn set(&mut self, by: i64) {
        self.0.iter_mut().flatten().for_each(|word| word.offset = word.offset.saturating_sub(by));
    }

    /// What is believed at this run time: what one has said long enough whom no other contradicts. Where the wall clock was `behind` the last good
    /// time at the start, it alone is believed only once somebody has set it forward.
    pub fn believed(&self, run: Duration, behind: bool) -> Option<i64> {
        let fresh = |word: &Word| run.saturating_sub(word.last) < DAY;
        let [wall, ntp, service] = self.0.map(|word| word.filter(fresh));
        let stood = |word: &Word, long: Duration| word.last.saturating_sub(word.since) >= long;
        let contradicted =
            |word: &Word, other: Option<Word>| other.is_some_and(|other| !agree(word.offset, other.offset));
        let by_ntp = ntp.filter(|word| stood(word, SETTLE) && !contradicted(word, service));
        let by_service = service.filter(|word| stood(word, SETTLE) && !contradicted(word, ntp));
        let by_wall = wall.filter(|word| stood(word, DAY) && !(behind && word.offset < 0));
        // A service is believed only where the wall clock says so, too: anybody may run a service.
        let by_service = by_service.filter(|word| wall.is_some_and(|wall| agree(word.offset, wall.offset)));
        by_ntp.or(by_service).or(by_wall).map(|word| word.offset)
    }
}

fn agree(one: i64, other: i64) -> bool {
    u128::from(one.abs_diff(other)) <= AGREE.as_micros()
}
