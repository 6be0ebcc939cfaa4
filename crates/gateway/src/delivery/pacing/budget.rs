//! A month's budget with a clock, the household's counters and a file: [`BudgetShell`].

use crate::core::pacing::{BudgetConfig, Pacing};
use hoop_dispatch::{Allowance, Budget, INTERVAL_SECS, Interval, Month, Snapshot};
use hoop_units::{Bitrate, Duration, Timestamp, UnixTime};
use serde::{Deserialize, Serialize};
use std::fs;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

/// The file's name in the spool's folder.
const FILE: &str = "budget.json";

/// The longest file that is read: twice what 447 samples take.
const FILE_MAX: u64 = 32 * 1024;

/// How often the interface is asked what it carried.
const LOOK: Duration = Duration::from_secs(1);

/// A month's budget at work.
pub struct BudgetShell {
    config: BudgetConfig,
    budget: Budget,
    file: PathBuf,
    interface: Option<String>,
    /// The interval that is counted.
    interval: u32,
    /// What we, and what all sent in it.
    own: u64,
    all: u64,
    carried: Option<u64>,
    looked: Option<Timestamp>,
    allowance: Option<Bitrate>,
    left_secs: u32,
}

/// The file.
#[derive(Serialize, Deserialize)]
struct Kept {
    format: u8,
    start: u32,
    seen: u32,
    others_over: u32,
    own_over: u32,
    others_last: u64,
    top: Vec<u64>,
}

impl BudgetShell {
    /// The budget with what is known of the month.
    pub fn open(config: BudgetConfig, pacing: &Pacing, folder: &Path, now: UnixTime) -> Self {
        let month = Month::containing(now, config.billing_day);
        let mut shell = Self {
            config,
            budget: Budget::new(config.committed, month),
            file: folder.join(FILE),
            interface: pacing.interface.clone(),
            interval: month.interval(now),
            own: 0,
            all: 0,
            carried: None,
            looked: None,
            allowance: None,
            left_secs: 0,
        };
        match shell.read() {
            Ok(Some(snapshot)) => shell.budget.restore(snapshot),
            Ok(None) => {}
            Err(error) => tracing::warn!(%error, "the month so far cannot be read; it counts as empty"),
        }
        shell.budget.handle_unseen(shell.interval);
        shell
    }

    /// `sent` octets left since the last call. Returns the rate for the rest of the interval; `None`: there is no limit.
    pub fn tick(&mut self, sent: u64, has_queue: bool, forced: u64, now: Timestamp, unix: UnixTime) -> Option<Bitrate> {
        self.own += sent;
        if self.looked.is_some_and(|looked| now.since(looked) < LOOK) {
            return self.allowance;
        }
        self.looked = Some(now);
        self.look();
        self.turn(unix);
        let month = self.budget.month();
        let elapsed = unix.since(month.start).saturating_sub(self.interval * INTERVAL_SECS).min(INTERVAL_SECS);
        self.left_secs = (INTERVAL_SECS - elapsed).max(1);
        let interval = Interval {
            elapsed: Duration::from_secs(elapsed.into()),
            others: self.all.saturating_sub(self.own),
            own: self.own,
            has_queue,
            forced: forced.saturating_mul(INTERVAL_SECS.into()),
        };
        let allowance = self.budget.allowance(interval);
        self.allowance = match allowance {
            Allowance::Free => None,
            Allowance::Within(octets) | Allowance::Forced(octets) => {
                Some(Bitrate::bps(octets * 8 / u64::from(self.left_secs)))
            }
        };
        tracing::trace!(?allowance, ?interval, rate = ?self.allowance, "budget");
        self.allowance
    }

    /// For how many seconds there is less than `least`, if there is.
    pub fn shut_for(&self, least: Bitrate) -> Option<u32> {
        self.allowance.filter(|rate| *rate < least).map(|_| self.left_secs)
    }

    /// Writes the month so far.
    pub fn save(&mut self) {
        if let Err(error) = self.write() {
            tracing::warn!(%error, "the month so far cannot be written");
        }
    }

    /// Counts what the interface carried since the last look.
    fn look(&mut self) {
        let Some(interface) = &self.interface else {
            self.all = self.own;
            return;
        };
        match carried(interface) {
            Ok(carried) => {
                // A counter that is less than before began anew.
                self.all += self.carried.map_or(0, |before| carried.checked_sub(before).unwrap_or(carried));
                self.carried = Some(carried);
            }
            Err(error) => {
                tracing::warn!(%error, interface, "the interface does not say what it carried");
                self.all = self.all.max(self.own);
            }
        }
    }

    /// Closes the interval if it is over, and the month.
    fn turn(&mut self, unix: UnixTime) {
        let month = Month::containing(unix, self.config.billing_day);
        let interval = month.interval(unix);
        let before = self.budget.month();
        if month == before && interval == self.interval {
            return;
        }
        if month == before && interval > self.interval {
            self.budget.handle_end(self.all.saturating_sub(self.own), self.own);
            self.budget.handle_unseen(interval);
        }
        if month != before {
            let bill = Bitrate::bps(self.budget.bill() * 8 / u64::from(INTERVAL_SECS));
            tracing::info!(%bill, month = %before.start, "a month of the bill is over");
            self.budget = Budget::new(self.config.committed, month);
            self.budget.handle_unseen(interval);
        }
        (self.interval, self.own, self.all) = (interval, 0, 0);
        self.save();
    }

    fn read(&self) -> io::Result<Option<Snapshot>> {
        let is_long = match fs::metadata(&self.file) {
            Ok(metadata) => metadata.len() > FILE_MAX,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error),
        };
        if is_long {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "it is too long"));
        }
        let kept: Kept = serde_json::from_slice(&fs::read(&self.file)?)?;
        let Kept { start, seen, others_over, own_over, others_last, top, .. } = kept;
        Ok(Some(Snapshot { start, seen, others_over, own_over, others_last, top }))
    }

    fn write(&self) -> io::Result<()> {
        let Snapshot { start, seen, others_over, own_over, others_last, top } = self.budget.snapshot();
        let kept = Kept { format: 1, start, seen, others_over, own_over, others_last, top };
        let new = self.file.with_extension("new");
        let mut file = hoop_files::create(&new)?;
        file.write_all(&serde_json::to_vec(&kept)?)?;
        // Not synced: at worst a power cut costs the month's figures of a few minutes, or all of them, and no upload.
        fs::rename(&new, &self.file)
    }
}

/// The octets that an interface has sent since it came up. From `/proc/net/dev` rather than `/sys/class/net`: that is
/// always of the network namespace that we are in.
fn carried(interface: &str) -> io::Result<u64> {
    let text = fs::read_to_string("/proc/self/net/dev")?;
    parse(&text, interface).ok_or_else(|| io::Error::new(io::ErrorKind::NotFound, "there is no such interface"))
}

fn parse(text: &str, interface: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.trim_start().strip_prefix(interface)?.strip_prefix(':'))?;
    // Eight columns of what was received come first.
    line.split_whitespace().nth(8)?.parse().ok()
}

/// Whether there is such an interface.
pub fn is_interface(interface: &str) -> bool {
    carried(interface).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    const DAY: UnixTime = UnixTime(1_795_000_000);

    fn shell(folder: &Path, at: UnixTime) -> BudgetShell {
        let config = BudgetConfig { committed: Bitrate::kbps(500), billing_day: 1 };
        BudgetShell::open(config, &Pacing::default(), folder, at)
    }

    #[test]
    fn the_month_so_far_survives_a_restart_and_a_broken_file_is_an_empty_month() {
        let folder = tempfile::tempdir().unwrap();
        let mut before = shell(folder.path(), DAY);
        for interval in 0..10_u32 {
            let unix = DAY.plus_secs(interval * INTERVAL_SECS);
            before.tick(u64::from(interval) * 1_000, false, 0, Timestamp::from_secs((interval * 300).into()), unix);
        }
        let after = shell(folder.path(), DAY.plus_secs(9 * INTERVAL_SECS));
        assert_eq!(after.budget.snapshot(), before.budget.snapshot());
        assert_eq!(
            after.budget.snapshot().top[0],
            9_000,
            "what went since the last look counts for the interval that is over"
        );
        fs::write(folder.path().join(FILE), "{").unwrap();
        assert!(shell(folder.path(), DAY).budget.snapshot().top.is_empty());
    }

    #[test]
    fn an_interfaces_sent_octets_are_the_ninth_number() {
        let text = "Inter-|   Receive\n face |bytes\n    lo: 1 2 3 4 5 6 7 8 99 10\n  eth0:11 2 3 4 5 6 7 8 77 10\n";
        assert_eq!((parse(text, "lo"), parse(text, "eth0"), parse(text, "eth")), (Some(99), Some(77), None));
    }
}
