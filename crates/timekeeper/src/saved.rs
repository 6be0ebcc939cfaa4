//! What outlives a restart: [`Saved`].

use alloc::string::String;
use alloc::vec::Vec;
use serde::{Deserialize, Serialize};

/// What is written down each few minutes, when time was set, and at the end. All times in seconds, but for those that say otherwise.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Saved {
    /// Names the time since the machine was started: within one the monotonic clock goes on.
    pub boot: String,
    /// The monotonic clock, in microseconds.
    pub mono_us: u64,
    /// The last good time: steady time, in microseconds since 1970.
    pub steady_us: u64,
    /// Run time, in microseconds.
    pub run_us: u64,
    /// By how much steady time was set forward, and when: oldest first.
    pub steps: Vec<Step>,
    /// The run time when it was set back the last time.
    pub back_run: Option<u64>,
    /// The latest time that it ever was.
    pub peak: u32,
    /// Since when it is in doubt, in run time.
    pub doubt_run: Option<u64>,
    /// How it began.
    pub start: Start,
}

/// Steady time was set forward.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Step {
    /// The run time then.
    pub run: u64,
    /// By so much.
    pub by: u64,
}

/// How steady time began.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Start {
    /// Where it had ended.
    Known,
    /// With the wall clock, as there is no last good time, or by so many microseconds behind it: the machine was off for long, or the clock is wrong.
    Doubtful {
        /// How far the wall clock was ahead of the last good time.
        ahead_us: u64,
        /// The run time then, in seconds. Not known of files of earlier versions: they count as if it were now.
        #[serde(default = "never")]
        run: u64,
    },
    /// At the last good time, since the wall clock was behind it: it has no battery, and is not believed however long it stands.
    Behind,
}

const fn never() -> u64 {
    u64::MAX
}
