//! A machine whose clocks jump, for tests of whoever goes by a [`Timekeeper`]: [`Machine`].

use crate::{Reading, Saved, Timekeeper};
use alloc::string::{String, ToString as _};
use core::time::Duration;
use hoop_units::{Timestamp, UnixTime};

/// How often a running machine writes down what time it is, as a gateway and a service do.
const SAVE: Duration = Duration::from_secs(300);

/// A machine: its clocks, as far off as somebody has set them, and what is on its disk of them. Times are in seconds.
#[derive(Clone, Debug)]
pub struct Machine {
    /// What time it is, since 1970.
    pub truth: i64,
    /// How far off the wall clock is.
    pub off: i64,
    /// How far off the kernel's clock is that calls itself synchronised.
    pub ntp: Option<i64>,
    /// Seconds that it has run.
    pub run: u64,
    /// Seconds since it was started.
    mono: u64,
    boot: u32,
    keeper: Timekeeper,
    disk: Saved,
}

impl Machine {
    /// One that runs for the first time, with its clock right.
    pub fn new(truth: u64) -> Self {
        let reading = Reading { mono: Timestamp::ZERO, wall_us: truth * 1_000_000, ntp_us: None };
        let keeper = Timekeeper::new(None, "0", reading);
        let disk = keeper.saved("0");
        Self { truth: truth.cast_signed(), off: 0, ntp: None, run: 0, mono: 0, boot: 0, keeper, disk }
    }

    /// What it makes of its clocks.
    pub const fn keeper(&self) -> &Timekeeper {
        &self.keeper
    }

    /// What is on its disk.
    pub const fn disk(&self) -> &Saved {
        &self.disk
    }

    /// What its wall clock says.
    pub fn wall(&self) -> UnixTime {
        UnixTime(u32::try_from((self.truth + self.off).max(0)).unwrap_or(u32::MAX))
    }

    /// What its clocks say.
    pub fn reading(&self) -> Reading {
        let micros = |off: i64| u64::try_from(self.truth + off).unwrap_or(0) * 1_000_000;
        Reading { mono: Timestamp::from_secs(self.mono), wall_us: micros(self.off), ntp_us: self.ntp.map(micros) }
    }

    /// Names the time since it was started.
    pub fn boot(&self) -> String {
        self.boot.to_string()
    }

    /// It looks at its clocks.
    pub fn looks(&mut self) {
        if self.keeper.observe(self.reading()) {
            self.saves();
        }
    }

    /// It writes down what time it is.
    pub fn saves(&mut self) {
        self.disk = self.keeper.saved(&self.boot());
    }

    /// A service says that it is so far off.
    pub fn hears(&mut self, off: i64) {
        let date = UnixTime(u32::try_from((self.truth + off).max(0)).unwrap_or(u32::MAX));
        self.keeper.handle_service(Timestamp::from_secs(self.mono), date);
    }

    /// It runs, looks at its clocks some times, and writes down now and then what time it is: what has passed since is lost with a crash.
    pub fn runs(&mut self, secs: u64) {
        let step = (secs / 20).clamp(10, 3_600);
        let mut left = secs;
        self.looks();
        while left > 0 {
            let passed = step.min(left);
            left -= passed;
            self.mono += passed;
            self.run += passed;
            self.truth += passed.cast_signed();
            self.looks();
            if self.keeper.run() >= Duration::from_micros(self.disk.run_us) + SAVE {
                self.saves();
            }
        }
    }

    /// So much time passes in which no process runs.
    pub fn rests(&mut self, secs: u64) {
        self.mono += secs;
        self.truth += secs.cast_signed();
    }

    /// The process starts anew, from what is on disk; and writes down at once what it made of that.
    pub fn restarts(&mut self) {
        self.keeper = Timekeeper::new(Some(self.disk.clone()), &self.boot(), self.reading());
        self.saves();
    }

    /// It is switched off for so long, and starts with its wall clock so far off.
    pub fn is_off(&mut self, secs: u64, off: i64) {
        self.boot += 1;
        self.truth += secs.cast_signed();
        (self.mono, self.off) = (5, off);
        self.restarts();
    }
}
