//! [`Clock`].

use crate::kept::Kept;
use crate::readings::{Readings, System};
use hoop_timekeeper::Over;
use hoop_units::{Timestamp, UnixTime};
use std::fmt;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

/// Both times: one that outlives a reboot, for lifetimes, and one for timers.
///
/// A clock is the system's, and believes it, until it is [kept](Clock::keep): then time is judged by a [`Timekeeper`](hoop_timekeeper::Timekeeper),
/// and a wall clock that jumps ends nothing (`docs/time.md`). Cloning shares the origin, so timestamps of one clock can be compared.
#[derive(Clone)]
pub struct Clock {
    origin: Instant,
    source: Source,
}

#[derive(Clone)]
enum Source {
    /// Believed as it is.
    Wall(Arc<dyn Fn() -> SystemTime + Send + Sync>),
    /// To be kept, and believed until then.
    Readings(Arc<dyn Readings>),
    Kept(Arc<Kept>),
}

impl Clock {
    /// The operating system's clock.
    pub fn system() -> Self {
        Self::with_readings(Arc::new(System))
    }

    /// The system's monotonic clock with another wall clock, which is right whatever it says: for tests in which time passes quickly.
    pub fn with_wall(wall: impl Fn() -> SystemTime + Send + Sync + 'static) -> Self {
        Self { origin: Instant::now(), source: Source::Wall(Arc::new(wall)) }
    }

    /// The system's monotonic clock for timers, and other clocks to be judged: for tests in which they jump.
    pub fn with_readings(readings: Arc<dyn Readings>) -> Self {
        Self { origin: Instant::now(), source: Source::Readings(readings) }
    }

    /// This clock, judged from now on, and kept in a file. Whoever opens a store keeps its clock beside it, and [looks](Clock::look)
    /// at it now and then.
    ///
    /// # Errors
    /// If the file is there and the disk does not give it.
    pub fn keep(self, path: &Path) -> io::Result<Self> {
        self.judged(Some(path))
    }

    /// This clock, judged from now on, and not written down: for what does not outlive its process.
    pub fn judge(self) -> Self {
        self.judged(None).expect("there is no file that fails")
    }

    fn judged(self, path: Option<&Path>) -> io::Result<Self> {
        Ok(match self.source {
            Source::Readings(readings) => Self { source: Source::Kept(Arc::new(Kept::open(readings, path)?)), ..self },
            Source::Wall(_) | Source::Kept(_) => self,
        })
    }

    /// Looks at the clocks, and writes down what time it is if that was long ago, or if it is done for the `last` time. Waits for the disk; to be called
    /// some times a minute.
    pub fn look(&self, last: bool) {
        if let Source::Kept(kept) = &self.source {
            kept.look(last);
        }
    }

    /// Monotonic time since this clock was made.
    pub fn now(&self) -> Timestamp {
        Timestamp::from_micros(u64::try_from(self.origin.elapsed().as_micros()).unwrap_or(u64::MAX))
    }

    /// The instant of a timestamp of this clock, for the runtime's timers.
    pub fn instant(&self, at: Timestamp) -> Instant {
        self.origin + at.since(Timestamp::ZERO)
    }

    /// What the wall clock says, right or wrong: for what has only to be fresh, such as proofs, and must agree with others' clocks.
    pub fn wall(&self) -> SystemTime {
        match &self.source {
            Source::Wall(wall) => wall(),
            Source::Readings(readings) => of_micros(readings.read().wall_us),
            Source::Kept(kept) => of_micros(kept.readings().read().wall_us),
        }
    }

    /// The same in whole seconds; before 1970 it is 0, after 2106 it stays.
    pub fn wall_unix(&self) -> UnixTime {
        let since = self.wall().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        UnixTime(u32::try_from(since.as_secs()).unwrap_or(u32::MAX))
    }

    /// The time, as it is judged: steady, whatever the wall clock does. For lifetimes that outlive a reboot.
    pub fn unix(&self) -> UnixTime {
        match &self.source {
            Source::Wall(_) | Source::Readings(_) => self.wall_unix(),
            Source::Kept(kept) => kept.now(),
        }
    }

    /// The time that has come beyond doubt for what lives `life` at most: nothing that was given a time to live is older than that by this before
    /// it has lived as long in run time. To refuse by.
    pub fn past(&self, life: Duration) -> UnixTime {
        match &self.source {
            Source::Wall(_) | Source::Readings(_) => self.wall_unix(),
            Source::Kept(kept) => kept.past(life),
        }
    }

    /// The time, if it is beyond doubt. To refuse what is new by.
    pub fn sure(&self) -> Option<UnixTime> {
        match &self.source {
            Source::Wall(_) | Source::Readings(_) => Some(self.wall_unix()),
            Source::Kept(kept) => kept.sure(),
        }
    }

    /// How long this store has been in use, over restarts; the wall clock's time where it is believed. For what must age also while the clock is
    /// behind.
    pub fn run(&self) -> Duration {
        match &self.source {
            Source::Wall(_) | Source::Readings(_) => Duration::from_secs(self.wall_unix().0.into()),
            Source::Kept(kept) => kept.run(),
        }
    }

    /// The time after which nothing ends that lives `life` at most and has not lived as long in run time: what ends later was made while the clock
    /// was far ahead, and has had its time. 2106 where there is no such time. To refuse by.
    pub fn after(&self, life: Duration) -> UnixTime {
        match &self.source {
            Source::Wall(_) | Source::Readings(_) => UnixTime(u32::MAX),
            Source::Kept(kept) => kept.after(life),
        }
    }

    /// What may be deleted of things that live `life` at most; none: nothing now, as time is in doubt.
    pub fn over(&self, life: Duration) -> Option<Over> {
        match &self.source {
            Source::Wall(_) | Source::Readings(_) => Some(self.wall_unix().into()),
            Source::Kept(kept) => kept.over(life),
        }
    }

    /// The latest time that it ever was here.
    pub fn peak(&self) -> UnixTime {
        match &self.source {
            Source::Wall(_) | Source::Readings(_) => self.wall_unix(),
            Source::Kept(kept) => kept.peak(),
        }
    }

    /// A service said over TLS what time it is.
    pub fn confirm(&self, date: UnixTime) {
        if let Source::Kept(kept) = &self.source {
            kept.confirm(date);
        }
    }
}

fn of_micros(micros: u64) -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::from_micros(micros)
}

impl fmt::Debug for Clock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Clock").field("now", &self.now()).field("unix", &self.unix()).finish()
    }
}
