//! The machine: [`Timekeeper`].

use crate::saved::{Saved, Start, Step};
use crate::witness::{Source, Witnesses};
use crate::{DAY, JUMP, LATEST, STEPS_MAX};
use alloc::borrow::ToOwned as _;
use alloc::vec::Vec;
use core::time::Duration;
use hoop_units::{Timestamp, UnixTime};

/// What the machine's clocks say at one moment.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Reading {
    /// A monotonic clock that goes on while the machine sleeps.
    pub mono: Timestamp,
    /// The wall clock, in microseconds since 1970.
    pub wall_us: u64,
    /// The kernel's clock, if the kernel says that it is synchronised.
    pub ntp_us: Option<u64>,
}

/// What is over: all that ends before one time, or after another.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Over {
    /// What ended before this is over.
    pub before: UnixTime,
    /// What ends after this was made while the clock was far ahead, has had its time, and is over, too.
    pub after: UnixTime,
}

impl Over {
    /// Nothing is over.
    pub const NOTHING: Self = Self { before: UnixTime(0), after: UnixTime(u32::MAX) };
}

impl From<UnixTime> for Over {
    /// What has ended at that time, by a clock that is right.
    fn from(now: UnixTime) -> Self {
        Self { before: now, ..Self::NOTHING }
    }
}

/// Judges the time. Give it a [`Reading`] now and then ([`Timekeeper::observe`]); between two of them time goes on with the monotonic clock.
/// Write down what it is ([`Timekeeper::saved`]) once it is made and whenever time was set, before it is used, and each few minutes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Timekeeper {
    mono: Timestamp,
    steady_us: u64,
    run: Duration,
    steps: Vec<Step>,
    back_run: Option<u64>,
    peak: u32,
    /// Since when it is in doubt, in run time.
    doubt: Option<u64>,
    /// Whether it is because of how it started; and then whether the wall clock was behind.
    start: Start,
    witnesses: Witnesses,
}

impl Timekeeper {
    /// Begins with what was saved; none: for the first time.
    pub fn new(saved: Option<Saved>, boot: &str, reading: Reading) -> Self {
        let Some(saved) = saved else { return Self::first(reading) };
        let mut keeper = Self {
            mono: reading.mono,
            steady_us: saved.steady_us,
            run: Duration::from_micros(saved.run_us),
            steps: saved.steps,
            back_run: saved.back_run,
            peak: saved.peak,
            doubt: saved.doubt_run,
            start: saved.start,
            witnesses: Witnesses::default(),
        };
        keeper.steps.truncate(STEPS_MAX);
        let before = keeper.now();
        // Earlier versions let time get there, where it stands still.
        if before == UnixTime(u32::MAX) {
            (keeper.steady_us, keeper.start) = (LATEST_US, Start::Doubtful { ahead_us: 0, run: keeper.run.as_secs() });
            keeper.fell(before);
        }
        let saved_mono = Timestamp::from_micros(saved.mono_us);
        // Who does not know which boot it is takes none for the same.
        if !boot.is_empty() && saved.boot == boot && reading.mono >= saved_mono {
            let passed = reading.mono.since(saved_mono);
            keeper.pass(passed);
            return keeper;
        }
        // The machine was off, nobody knows for how long.
        keeper.start = Start::Known;
        match i128::from(reading.wall_us) - i128::from(keeper.steady_us) {
            // That was no good time, but all that such a wall clock left to guess.
            _ if keeper.steady_us >= LATEST_US => {
                keeper.start = Start::Doubtful { ahead_us: 0, run: keeper.run.as_secs() };
            }
            // It is no help, as one that is behind.
            _ if reading.wall_us > LATEST_US => keeper.start = Start::Behind,
            ahead @ 0.. if ahead <= JUMP.as_micros().cast_signed() => keeper.set(clamp(ahead)),
            ahead @ 0.. => {
                keeper.start = Start::Doubtful { ahead_us: clamp(ahead).unsigned_abs(), run: keeper.run.as_secs() };
            }
            _ => keeper.start = Start::Behind,
        }
        keeper.fell(before);
        keeper.observe(reading);
        keeper
    }

    fn first(reading: Reading) -> Self {
        let mut keeper = Self {
            mono: reading.mono,
            steady_us: reading.wall_us.min(LATEST_US),
            run: Duration::ZERO,
            steps: Vec::new(),
            back_run: None,
            peak: 0,
            doubt: None,
            start: Start::Doubtful { ahead_us: 0, run: 0 },
            witnesses: Witnesses::default(),
        };
        keeper.observe(reading);
        keeper
    }

    /// Looks at the clocks. Returns whether steady time was set, which is worth saving.
    pub fn observe(&mut self, reading: Reading) -> bool {
        self.handle_time(reading.mono);
        for (source, says) in [(Source::Wall, Some(reading.wall_us)), (Source::Ntp, reading.ntp_us)] {
            match says.filter(|time| *time <= LATEST_US) {
                Some(time) => self.witnesses.say(source, self.offset(time), self.run),
                None => self.witnesses.hush(source),
            }
        }
        let set = self.settle();
        self.look(self.offset(reading.wall_us));
        set
    }

    /// A service says over TLS what time it is, in seconds since 1970.
    pub fn handle_service(&mut self, mono: Timestamp, date: UnixTime) {
        self.handle_time(mono);
        if date > LATEST {
            return;
        }
        self.witnesses.say(Source::Service, self.offset(u64::from(date.0) * 1_000_000), self.run);
    }

    /// Time passes.
    pub fn handle_time(&mut self, mono: Timestamp) {
        let passed = mono.since(self.mono);
        self.mono = self.mono.max(mono);
        self.pass(passed);
    }

    fn pass(&mut self, passed: Duration) {
        self.run = self.run.saturating_add(passed);
        self.steady_us = self.steady_us.saturating_add(micros(passed));
        self.peak = self.peak.max(self.now().0);
    }

    fn offset(&self, time_us: u64) -> i64 {
        clamp(i128::from(time_us) - i128::from(self.steady_us))
    }

    /// Sets steady time as whoever is believed says.
    fn settle(&mut self) -> bool {
        let Some(offset) = self.witnesses.believed(self.run, self.start == Start::Behind) else { return false };
        let news = self.start != Start::Known || offset.unsigned_abs() >= 1_000_000;
        if news {
            self.set(offset);
        }
        news
    }

    fn set(&mut self, by: i64) {
        let before = self.now();
        self.start = Start::Known;
        self.witnesses.set(by);
        self.steady_us = self.steady_us.saturating_add_signed(by);
        if by > 0 {
            self.remember(Step { run: self.run.as_secs(), by: by.unsigned_abs().div_ceil(1_000_000) });
        }
        self.fell(before);
        self.peak = self.peak.max(self.now().0);
    }

    /// Notes that it was `before` a moment ago, if that is later than now.
    fn fell(&mut self, before: UnixTime) {
        if self.now() < before {
            self.back_run = Some(self.run.as_secs());
        }
    }

    fn remember(&mut self, step: Step) {
        if self.steps.len() >= STEPS_MAX {
            let oldest = self.steps.remove(0);
            self.steps[0].by = self.steps[0].by.saturating_add(oldest.by);
        }
        self.steps.push(step);
    }

    /// Whether there is doubt, the wall clock being off by so much.
    fn look(&mut self, offset: i64) {
        let doubtful = u128::from(offset.unsigned_abs()) > JUMP.as_micros() || self.start != Start::Known;
        self.doubt = doubtful.then(|| self.doubt.unwrap_or(self.run.as_secs()));
    }

    /// The time: steady, and as good a guess as can be made. Where the machine was off for long, that is the wall clock as it was at the start.
    pub fn now(&self) -> UnixTime {
        let guess = match self.start {
            Start::Doubtful { ahead_us, .. } => ahead_us,
            Start::Known | Start::Behind => 0,
        };
        secs(self.steady_us.saturating_add(guess))
    }

    /// The latest time that [`Timekeeper::now`] ever was.
    pub const fn peak(&self) -> UnixTime {
        UnixTime(self.peak)
    }

    /// Run time.
    pub const fn run(&self) -> Duration {
        self.run
    }

    /// Whether time is beyond doubt, or has been in doubt for a day of run time, after which things have to end again.
    pub fn is_sure(&self) -> bool {
        self.doubt.is_none_or(|since| self.run.as_secs().saturating_sub(since) >= DAY.as_secs())
    }

    /// The time, if it is beyond doubt. A day in doubt does not make it so: what is refused by a wrong guess was right.
    pub fn sure(&self) -> Option<UnixTime> {
        self.doubt.is_none().then(|| self.now())
    }

    /// The time that has certainly come for whatever lives no longer than `life`: nothing that was given a time to live, of `life` at most, has
    /// come to its end by this before it has lived that long in run time.
    pub fn past(&self, life: Duration) -> UnixTime {
        let recent = self.steps.iter().rev().take_while(|step| !self.has_lived(life, step.run));
        let lag = recent.fold(0_u64, |lag, step| lag.saturating_add(step.by));
        // What was made since the start has the guess in its end. It is a step like others to what was made before.
        let guess = match self.start {
            Start::Doubtful { ahead_us, run } if self.has_lived(life, run) => ahead_us,
            _ => 0,
        };
        let steady = secs(self.steady_us.saturating_add(guess));
        UnixTime(steady.0.saturating_sub(u32::try_from(lag).unwrap_or(u32::MAX)))
    }

    /// The time after which nothing ends that was given a time to live, of `life` at most, and has not lived that long in run time: what ends later
    /// was made while the clock was far ahead, and has had its time. 2106 where the clock was not set back, or less than `life` ago.
    pub fn after(&self, life: Duration) -> UnixTime {
        let secs = u32::try_from(life.as_secs()).unwrap_or(u32::MAX);
        // What had passed since it was saved last is lost with a crash.
        let more = if life < JUMP { JUMP } else { DAY };
        match self.back_run {
            Some(back) if self.has_lived(life, back) => self.now().plus_secs(secs).plus_secs(more.as_secs() as u32),
            _ => UnixTime(u32::MAX),
        }
    }

    /// Whether more than `life` of run time has passed since then.
    fn has_lived(&self, life: Duration, since: u64) -> bool {
        self.run.as_secs().saturating_sub(since) > life.as_secs()
    }

    /// What may be deleted of things that live no longer than `life`; none: nothing, now.
    pub fn over(&self, life: Duration) -> Option<Over> {
        let may = self.is_sure() || life < JUMP;
        may.then(|| Over { before: self.past(life), after: self.after(life) })
    }

    /// What is to be written down now.
    pub fn saved(&self, boot: &str) -> Saved {
        Saved {
            boot: boot.to_owned(),
            mono_us: self.mono.as_micros(),
            steady_us: self.steady_us,
            run_us: micros(self.run),
            steps: self.steps.clone(),
            back_run: self.back_run,
            peak: self.peak,
            doubt_run: self.doubt,
            start: self.start,
        }
    }
}

/// [`LATEST`], in microseconds.
const LATEST_US: u64 = LATEST.0 as u64 * 1_000_000;

fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}

fn secs(micros: u64) -> UnixTime {
    UnixTime(u32::try_from(micros / 1_000_000).unwrap_or(u32::MAX))
}

fn clamp(micros: i128) -> i64 {
    i64::try_from(micros).unwrap_or(if micros < 0 { i64::MIN } else { i64::MAX })
}
