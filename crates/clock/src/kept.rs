//! A judged clock and its file: [`Kept`].
//!
//! Promises: what time it is stands on disk, synced, when this returns from [`Kept::open`], and before anybody is told of a time that was set; else it
//! is written each [`SAVE`], so that a crash loses minutes of run time at most. A file that cannot be read is as none: time is then in doubt for a day,
//! or until NTP confirms it. One that cannot be written is said in the log, and time goes on.

use crate::readings::Readings;
use hoop_timekeeper::{Over, Saved, Timekeeper};
use hoop_units::{Timestamp, UnixTime};
use parking_lot::{Mutex, MutexGuard};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// What time it is is written down so often: 288 small writes a day wear out no flash.
const SAVE: Duration = Duration::from_secs(300);

/// A judged clock. Nothing in here panics between two changes that belong together.
pub struct Kept {
    readings: Arc<dyn Readings>,
    boot: String,
    /// None: it is not written down.
    path: Option<PathBuf>,
    keeper: Mutex<Timekeeper>,
    /// When it was written last. Held while it is being written.
    saved: Mutex<Timestamp>,
}

impl Kept {
    /// Begins with what the file says, if there is to be one.
    pub fn open(readings: Arc<dyn Readings>, path: Option<&Path>) -> Self {
        let (boot, reading) = (readings.boot(), readings.read());
        let keeper = Timekeeper::new(path.and_then(load), &boot, reading);
        if !keeper.is_sure() && path.is_some() {
            tracing::warn!(
                time = %keeper.now(),
                "the time is in doubt: nothing that was accepted ends by it until NTP confirms it, or for a day"
            );
        }
        let kept = Self {
            readings,
            boot,
            path: path.map(Path::to_owned),
            keeper: Mutex::new(keeper),
            saved: Mutex::new(reading.mono),
        };
        kept.save(&kept.keeper.lock());
        kept
    }

    /// The machine's clocks.
    pub fn readings(&self) -> &dyn Readings {
        &*self.readings
    }

    pub fn now(&self) -> UnixTime {
        self.passed().now()
    }

    pub fn peak(&self) -> UnixTime {
        self.passed().peak()
    }

    pub fn past(&self, life: Duration) -> UnixTime {
        self.passed().past(life)
    }

    pub fn sure(&self) -> Option<UnixTime> {
        self.passed().sure()
    }

    pub fn run(&self) -> Duration {
        self.passed().run()
    }

    pub fn after(&self, life: Duration) -> UnixTime {
        self.passed().after(life)
    }

    /// Looks at the clocks first.
    pub fn over(&self, life: Duration) -> Option<Over> {
        self.observed().over(life)
    }

    pub fn confirm(&self, date: UnixTime) {
        self.keeper.lock().handle_service(self.readings.mono(), date);
    }

    pub fn look(&self, last: bool) {
        let saved = {
            let keeper = self.observed();
            let since = self.readings.mono().since(*self.saved.lock());
            (last || since >= SAVE).then(|| keeper.saved(&self.boot))
        };
        if let Some(saved) = saved {
            self.write(&saved);
        }
    }

    fn passed(&self) -> MutexGuard<'_, Timekeeper> {
        let mono = self.readings.mono();
        let mut keeper = self.keeper.lock();
        keeper.handle_time(mono);
        keeper
    }

    fn observed(&self) -> MutexGuard<'_, Timekeeper> {
        let mut keeper = self.keeper.lock();
        let (before, was_sure) = (keeper.now(), keeper.is_sure());
        if keeper.observe(self.readings.read()) {
            tracing::info!(%before, now = %keeper.now(), "the time was set");
            self.save(&keeper);
        }
        match (was_sure, keeper.is_sure()) {
            (true, false) => {
                tracing::warn!(now = %keeper.now(), "the wall clock has jumped: nothing that was accepted ends by it until the time is confirmed");
            }
            (false, true) => tracing::info!(now = %keeper.now(), "the time is sure"),
            _ => {}
        }
        keeper
    }

    fn save(&self, keeper: &Timekeeper) {
        self.write(&keeper.saved(&self.boot));
    }

    fn write(&self, saved: &Saved) {
        let Some(path) = &self.path else { return };
        let mut last = self.saved.lock();
        if Timestamp::from_micros(saved.mono_us) < *last {
            // Somebody was faster, and knew more.
            return;
        }
        match serde_json::to_vec(saved).map_err(io::Error::from).and_then(|text| hoop_files::replace(path, &text)) {
            Ok(()) => *last = Timestamp::from_micros(saved.mono_us),
            Err(error) => {
                tracing::error!(%error, path = %path.display(), "what time it is cannot be written down")
            }
        }
    }
}

fn load(path: &Path) -> Option<Saved> {
    let read = fs::read(path).and_then(|bytes| serde_json::from_slice(&bytes).map_err(io::Error::from));
    match read {
        Ok(saved) => Some(saved),
        Err(error) if error.kind() == io::ErrorKind::NotFound => None,
        Err(error) => {
            tracing::warn!(%error, path = %path.display(), "the last good time cannot be read");
            None
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use hoop_timekeeper::{JUMP, Reading};
    use std::sync::atomic::{AtomicU64, Ordering};

    /// Clocks that a test sets, in seconds.
    #[derive(Default)]
    struct Faked {
        mono: AtomicU64,
        wall: AtomicU64,
        boot: AtomicU64,
    }

    impl Faked {
        fn set(&self, boot: u64, mono: u64, wall: u64) {
            [(&self.boot, boot), (&self.mono, mono), (&self.wall, wall)]
                .iter()
                .for_each(|(cell, value)| cell.store(*value, Ordering::Relaxed));
        }
    }

    impl Readings for Faked {
        fn mono(&self) -> Timestamp {
            Timestamp::from_secs(self.mono.load(Ordering::Relaxed))
        }

        fn read(&self) -> Reading {
            Reading { mono: self.mono(), wall_us: self.wall.load(Ordering::Relaxed) * 1_000_000, ntp_us: None }
        }

        fn boot(&self) -> String {
            self.boot.load(Ordering::Relaxed).to_string()
        }
    }

    const LIFE: Duration = Duration::from_secs(86_400);

    #[test]
    fn the_last_good_time_is_on_disk_from_the_start_and_outlives_a_boot() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("clock");
        let faked = Arc::new(Faked::default());
        faked.set(1, 0, 1_795_000_000);
        drop(Kept::open(faked.clone(), Some(&path)));
        faked.set(2, 0, 0);
        let kept = Kept::open(faked.clone(), Some(&path));
        assert_eq!(kept.now(), UnixTime(1_795_000_000), "a box without a battery starts in 1970");
        faked.set(2, 400, 400);
        kept.look(false);
        faked.set(3, 0, 0);
        assert_eq!(Kept::open(faked, Some(&path)).now(), UnixTime(1_795_000_400), "written down each five minutes");
    }

    #[test]
    fn a_wall_clock_that_jumps_is_not_what_time_it_is() {
        let folder = tempfile::tempdir().unwrap();
        let faked = Arc::new(Faked::default());
        faked.set(1, 0, 1_795_000_000);
        let kept = Kept::open(faked.clone(), Some(&folder.path().join("clock")));
        assert_eq!(kept.over(LIFE), None, "a new one's time is not confirmed");
        let day = 86_400 + JUMP.as_secs();
        faked.set(1, 1, 1_795_000_001);
        assert_eq!(kept.over(LIFE), None);
        faked.set(1, day, 1_795_000_000 + day);
        assert!(kept.over(LIFE).is_some());
        faked.set(1, day + 9, 1_795_000_000 + 40 * day);
        assert_eq!((kept.over(LIFE), u64::from(kept.now().0)), (None, 1_795_000_009 + day));
    }

    #[test]
    fn a_file_that_cannot_be_read_is_as_none() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("clock");
        fs::write(&path, "{\"steady_us\":").unwrap();
        let faked = Arc::new(Faked::default());
        faked.set(1, 0, 7);
        assert_eq!(Kept::open(faked.clone(), Some(&path)).now(), UnixTime(7));
        assert_eq!(
            Kept::open(faked, Some(&folder.path().join("gone/clock"))).now(),
            UnixTime(7),
            "nor can it be written"
        );
    }
}
