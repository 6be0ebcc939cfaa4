//! Cuts again and again: [`Trial`], the loop that tests of stores share.

use crate::{Journal, Recorder, Rules};
use rand_core::{Rng as _, SeedableRng as _};
use rand_pcg::Pcg64Mcg;
use std::path::{Path, PathBuf};
use std::process::Command;
use tempfile::TempDir;

const FOLDER: &str = "HOOP_POWERCUT_FOLDER";
const SEED: &str = "HOOP_POWERCUT_SEED";

/// A store that is worked on by a process of its own and cut off. That process is the ignored test `victim` of the same test binary, which begins
/// with [`victim`] and [notes](crate::note) what it was told. `HOOP_SEED` repeats a run, `HOOP_CYCLES` makes it longer.
#[derive(Clone, Copy, Debug)]
pub struct Trial {
    /// Cuts of one record.
    pub cuts: u32,
    /// How many times the folder that the last cut left is worked on and cut again.
    pub rounds: u32,
    /// What is wrong with the store in a folder, if those notes are what was told.
    pub check: fn(&Path, &[String]) -> Result<(), String>,
}

impl Trial {
    /// Records so many times, unless `HOOP_CYCLES` says otherwise, and cuts each record; prints how many cuts there were.
    ///
    /// # Panics
    /// If a check finds something wrong: with the seed, and where the record is kept.
    pub fn run(&self, cycles: u64) {
        let (begin, cycles) = (seed(), number_of("HOOP_CYCLES").unwrap_or(cycles));
        let shim = TempDir::new().expect("a folder");
        (begin..begin + cycles).for_each(|seed| self.cycle(seed, shim.path()));
        println!("{} cuts", cycles * u64::from(self.rounds) * u64::from(self.cuts));
    }

    fn cycle(&self, seed: u64, shim: &Path) {
        let mut dice = Pcg64Mcg::seed_from_u64(seed);
        let (mut left, mut told) = (folder(), Vec::new());
        for round in 0..self.rounds {
            let journal = work(left.path(), shim, dice.next_u64());
            let mut last = None;
            for _ in 0..self.cuts {
                let (at, into) = (place(&journal, &mut dice), folder());
                // The check writes there: what is worked on next is built once more.
                let rolls = dice.next_u64();
                let build = |into: &Path| {
                    let rolls = &mut Pcg64Mcg::seed_from_u64(rolls);
                    journal.cut(at, &Rules::default(), rolls, into).expect("a folder can be written");
                };
                build(into.path());
                let notes: Vec<String> = told.iter().cloned().chain(journal.notes(at).map(str::to_owned)).collect();
                if let Err(why) = (self.check)(into.path(), &notes) {
                    let (len, kept) = (journal.records().len(), keep(shim));
                    panic!(
                        "HOOP_SEED={seed}, round {round}, cut {at} of {len}: {why}; the record is {}",
                        kept.display()
                    );
                }
                let next = folder();
                build(next.path());
                last = Some((next, notes));
            }
            (left, told) = last.expect("there is a cut");
        }
    }

    /// How the store fails within so many cuts if syncs of what `ignored` names did nothing: the path below the folder, and whether it is a folder. None: they would not be missed.
    pub fn fails_without(&self, ignored: fn(&Path, bool) -> bool, cuts: u64) -> Option<String> {
        let (seed, begin, shim) = (seed(), folder(), TempDir::new().expect("a folder"));
        let journal = work(begin.path(), shim.path(), seed);
        (0..cuts).find_map(|cut| {
            let (mut dice, into) = (Pcg64Mcg::seed_from_u64(seed ^ cut << 40), folder());
            let at = place(&journal, &mut dice);
            journal.cut(at, &Rules::ignoring(ignored), &mut dice, into.path()).expect("a folder can be written");
            let notes: Vec<String> = journal.notes(at).map(str::to_owned).collect();
            (self.check)(into.path(), &notes).err()
        })
    }
}

/// In the process that is cut off: the folder to work on, and the seed of what it does.
///
/// # Panics
/// Elsewhere.
pub fn victim() -> (PathBuf, u64) {
    let said = |variable| std::env::var(variable).expect("it is run by a trial");
    (said(FOLDER).into(), said(SEED).parse().expect("a number"))
}

/// Has a victim work on a folder, and returns what it did.
fn work(folder: &Path, shim: &Path, seed: u64) -> Journal {
    let recorder = Recorder::new(folder, shim).expect("a recorder");
    let output = Command::new(std::env::current_exe().expect("a test is a program"))
        .args(["victim", "--exact", "--ignored"])
        .env(FOLDER, folder)
        .env(SEED, seed.to_string())
        .envs(recorder.environment())
        .output()
        .expect("a test can be run");
    assert!(output.status.success(), "the victim failed: {}", String::from_utf8_lossy(&output.stdout));
    recorder.journal().expect("a journal")
}

/// Where to cut.
fn place(journal: &Journal, dice: &mut Pcg64Mcg) -> usize {
    dice.next_u32() as usize % (journal.records().len() + 1)
}

/// Keeps the record of a failure.
fn keep(shim: &Path) -> PathBuf {
    let kept = std::env::temp_dir().join(format!("hoop-powercut-{}", std::process::id()));
    std::fs::copy(shim.join("journal"), &kept).expect("a journal can be copied");
    kept
}

/// A folder in memory, where there is one: what is built anew for each cut needs no disk.
///
/// # Panics
/// If none can be made.
pub fn folder() -> TempDir {
    let memory = Path::new("/dev/shm");
    if memory.is_dir() { TempDir::new_in(memory) } else { TempDir::new() }.expect("a folder")
}

/// The number in a variable of the environment, if it is set.
///
/// # Panics
/// If it is something else.
pub fn number_of(variable: &str) -> Option<u64> {
    std::env::var(variable).ok().map(|text| text.parse().unwrap_or_else(|_| panic!("{variable} is a number")))
}

/// Where the dice begin: `HOOP_SEED`, or the clock; printed.
///
/// # Panics
/// As [`number_of`].
pub fn seed() -> u64 {
    let seed = number_of("HOOP_SEED")
        .unwrap_or_else(|| std::time::UNIX_EPOCH.elapsed().map_or(0, |now| now.subsec_nanos().into()));
    println!("HOOP_SEED={seed}");
    seed
}
