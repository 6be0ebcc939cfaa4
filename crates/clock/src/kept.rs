//! A judged clock and its file: [`Kept`].
//!
//! Promises: what time it is stands on disk, synced, when this returns from [`Kept::open`], and before anybody is told of a time that was set; else it
//! is written each [`SAVE`], so that a crash loses minutes of run time at most. A damaged file is as none: time is then in doubt for a day, or until NTP
//! confirms it. One that cannot be written is said in the log, and time goes on.
//!
//! Only [`Kept::look`] waits for the disk. Whoever else asks meanwhile hears what time it was before, and that nothing is over.

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
    /// Held by whoever may set the time.
    looks: Mutex<()>,
    /// Held while the file is being written.
    writes: Mutex<()>,
    /// When it was written last.
    saved: Mutex<Timestamp>,
}

impl Kept {
    /// Begins with what the file says, if there is to be one.
    ///
    /// # Errors
    /// If the file is there and the disk does not give it. What was accepted by it is not to end by another's time, so it is not written anew.
    pub fn open(readings: Arc<dyn Readings>, path: Option<&Path>) -> io::Result<Self> {
        let (boot, reading) = (readings.boot(), readings.read());
        let saved = path.map_or(Ok(None), load)?;
        let keeper = Timekeeper::new(saved, &boot, reading);
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
            looks: Mutex::default(),
            writes: Mutex::default(),
            saved: Mutex::new(reading.mono),
        };
        let saved = kept.keeper.lock().saved(&kept.boot);
        kept.write(&saved);
        Ok(kept)
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

    /// Looks at the clocks first. While a time that was set is not on disk yet, nothing is over.
    pub fn over(&self, life: Duration) -> Option<Over> {
        let observed = self.observe().ok()?;
        observed.over(life)
    }

    pub fn confirm(&self, date: UnixTime) {
        self.keeper.lock().handle_service(self.readings.mono(), date);
    }

    pub fn look(&self, last: bool) {
        // One at a time: a time that was set is written before another is.
        let _looks = self.looks.lock();
        let set = self.observe().err();
        if let Some(next) = &set {
            self.write(&next.saved(&self.boot));
            let mut keeper = self.keeper.lock();
            tracing::info!(before = %keeper.now(), now = %next.now(), "the time was set");
            tell(&keeper, next);
            // What a service has said meanwhile, the next one says again.
            *keeper = Timekeeper::clone(next);
        }
        let since = self.readings.mono().since(*self.saved.lock());
        if set.is_none() && (last || since >= SAVE) {
            let saved = self.passed().saved(&self.boot);
            self.write(&saved);
        }
    }

    fn passed(&self) -> MutexGuard<'_, Timekeeper> {
        let mono = self.readings.mono();
        let mut keeper = self.keeper.lock();
        keeper.handle_time(mono);
        keeper
    }

    /// Looks at the clocks.
    ///
    /// # Errors
    /// What there would be if the time is to be set, which takes a file that is written before.
    fn observe(&self) -> Result<MutexGuard<'_, Timekeeper>, Box<Timekeeper>> {
        let mut keeper = self.keeper.lock();
        let mut next = keeper.clone();
        if next.observe(self.readings.read()) && self.path.is_some() {
            return Err(Box::new(next));
        }
        tell(&keeper, &next);
        *keeper = next;
        Ok(keeper)
    }

    fn write(&self, saved: &Saved) {
        let Some(path) = &self.path else { return };
        let _writes = self.writes.lock();
        if Timestamp::from_micros(saved.mono_us) < *self.saved.lock() {
            // Somebody was faster, and knew more.
            return;
        }
        match serde_json::to_vec(saved).map_err(io::Error::from).and_then(|text| hoop_files::replace(path, &text)) {
            Ok(()) => *self.saved.lock() = Timestamp::from_micros(saved.mono_us),
            Err(error) => {
                tracing::error!(%error, path = %path.display(), "what time it is cannot be written down")
            }
        }
    }
}

/// Tells whether the time is in doubt now, or is no more.
fn tell(before: &Timekeeper, next: &Timekeeper) {
    match (before.is_sure(), next.is_sure()) {
        (true, false) => {
            tracing::warn!(now = %next.now(), "the wall clock has jumped: nothing that was accepted ends by it until the time is confirmed");
        }
        (false, true) => tracing::info!(now = %next.now(), "the time is sure"),
        _ => {}
    }
}

/// What the file says; none if there is none, or it says nothing that can be read.
fn load(path: &Path) -> io::Result<Option<Saved>> {
    let text = match fs::read(path) {
        Ok(text) => text,
        Err(error) if matches!(error.kind(), io::ErrorKind::NotFound) => return Ok(None),
        Err(error) => return Err(error),
    };
    Ok(serde_json::from_slice(&text)
        .inspect_err(|error| tracing::warn!(%error, path = %path.display(), "the last good time is damaged"))
        .ok())
}

#[cfg(test)]
mod tests {
    use super::*;
    use hoop_timekeeper::{JUMP, Reading, Start};
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
        drop(Kept::open(faked.clone(), Some(&path)).unwrap());
        faked.set(2, 0, 0);
        let kept = Kept::open(faked.clone(), Some(&path)).unwrap();
        assert_eq!(kept.now(), UnixTime(1_795_000_000), "a box without a battery starts in 1970");
        faked.set(2, 400, 400);
        kept.look(false);
        faked.set(3, 0, 0);
        assert_eq!(
            Kept::open(faked, Some(&path)).unwrap().now(),
            UnixTime(1_795_000_400),
            "written down each five minutes"
        );
    }

    #[test]
    fn a_wall_clock_that_jumps_is_not_what_time_it_is() {
        let folder = tempfile::tempdir().unwrap();
        let faked = Arc::new(Faked::default());
        faked.set(1, 0, 1_795_000_000);
        let kept = Kept::open(faked.clone(), Some(&folder.path().join("clock"))).unwrap();
        assert_eq!(kept.over(LIFE), None, "a new one's time is not confirmed");
        let day = 86_400 + JUMP.as_secs();
        faked.set(1, 1, 1_795_000_001);
        assert_eq!(kept.over(LIFE), None);
        faked.set(1, day, 1_795_000_000 + day);
        assert_eq!(kept.over(LIFE), None, "not before it is on disk");
        kept.look(false);
        assert!(kept.over(LIFE).is_some());
        faked.set(1, day + 9, 1_795_000_000 + 40 * day);
        assert_eq!((kept.over(LIFE), u64::from(kept.now().0)), (None, 1_795_000_009 + day));
    }

    #[test]
    fn a_damaged_file_is_as_none() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("clock");
        fs::write(&path, "{\"steady_us\":").unwrap();
        let faked = Arc::new(Faked::default());
        faked.set(1, 0, 7);
        assert_eq!(Kept::open(faked.clone(), Some(&path)).unwrap().now(), UnixTime(7));
        assert_eq!(
            Kept::open(faked, Some(&folder.path().join("gone/clock"))).unwrap().now(),
            UnixTime(7),
            "nor can it be written"
        );
    }

    /// The disk does not give it: another kind of file stands in for that.
    #[test]
    fn a_file_that_the_disk_does_not_give_is_left_as_it_is() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("clock");
        fs::create_dir(&path).unwrap();
        assert!(Kept::open(Arc::new(Faked::default()), Some(&path)).is_err());
        assert!(path.is_dir());
    }

    #[test]
    fn nobody_waits_for_the_disk_on_which_a_time_that_was_set_is_written() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("clock");
        let faked = Arc::new(Faked::default());
        faked.set(1, 0, 1_795_000_000);
        let kept = Arc::new(Kept::open(faked.clone(), Some(&path)).unwrap());
        let day = 86_400 + JUMP.as_secs();
        // A day confirms the time.
        faked.set(1, day, 1_795_000_000 + day);
        let disk = kept.writes.lock();
        let looking = std::thread::spawn({
            let kept = kept.clone();
            move || kept.look(false)
        });
        while kept.looks.try_lock().is_some() {
            std::thread::yield_now();
        }
        let now = UnixTime(u32::try_from(1_795_000_000 + day).unwrap());
        assert_eq!((kept.now(), kept.over(LIFE), kept.sure()), (now, None, None), "it goes on, and nothing ends");
        drop(disk);
        looking.join().unwrap();
        assert!(kept.over(LIFE).is_some());
        let saved = load(&path).unwrap().unwrap();
        assert_eq!((saved.doubt_run, saved.start), (None, Start::Known), "it is on disk");
    }
}
