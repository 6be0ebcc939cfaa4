//! Power cuts: a child process works on a spool, all that it writes and syncs is recorded, and the folder is built anew as a cut at any
//! point may leave it (`hoop-powercut` says what that may be). What was acknowledged before must be there, octet for octet.
//!
//! `HOOP_SEED` repeats a run, `HOOP_CYCLES` makes it longer.
#![allow(missing_docs)]

use hoop_powercut::{Journal, Recorder, Rules, note};
use hoop_spool::{Begin, Change, Offer, Settings, Spool, State};
use hoop_units::{ByteRange, DeviceId, UnixTime, UploadId};
use rand_core::{Rng as _, SeedableRng as _};
use rand_pcg::Pcg64Mcg;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{SystemTime, UNIX_EPOCH};

const FOLDER: &str = "HOOP_POWERCUT_FOLDER";
const SEED: &str = "HOOP_POWERCUT_SEED";

const UPLOADS: u32 = 8;
const TOTAL: u64 = 24 * PIECE;
const PIECE: u64 = 1_500;
const PRELUDE: u64 = 7;

/// Threads of the child, each with so many steps.
const THREADS: u64 = 3;
const STEPS: u32 = 30;

/// Cuts of one record; and how many times the spool that the last one left is worked on and cut again.
const CUTS: u32 = 12;
const ROUNDS: u32 = 2;

/// Records, unless `HOOP_CYCLES` says otherwise: some seconds.
const CYCLES: u32 = 3;

/// So many cuts find what a missing sync loses.
const CUTS_THAT_BITE: u64 = 400;

fn id(number: u32) -> UploadId {
    UploadId([number as u8 ^ 0x5a; 16])
}

fn offer(number: u32, early: bool) -> Offer {
    Offer {
        id: id(number),
        prelude: if early { Vec::new() } else { vec![0; PRELUDE as usize] },
        total: Some(TOTAL),
        dest: "https://photos.example/hoop/post".into(),
        expires: UnixTime(u32::MAX),
        device: DeviceId::UNKNOWN,
        deadline: None,
    }
}

/// No octet of it is zero, behind the prelude: a hole shows.
fn content(number: u32, range: ByteRange) -> Vec<u8> {
    let octet = |at: u64| if at < PRELUDE { 0 } else { ((at * 31 + at / 512) as u8 ^ number as u8) | 1 };
    (range.start..range.end).map(octet).collect()
}

/// The child: takes ranges in, and takes states on, until its steps are done; and says what it was told.
#[test]
#[ignore = "run by the tests below, as a process of its own"]
fn victim() {
    let folder = std::env::var(FOLDER).expect("the test says where");
    let seed: u64 = std::env::var(SEED).expect("the test says how").parse().unwrap();
    let spool = Spool::open(Settings::new(folder)).unwrap();
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let spool = &spool;
            scope.spawn(move || {
                let mut dice = Pcg64Mcg::seed_from_u64(seed ^ thread << 40);
                (0..STEPS).for_each(|_| step(spool, &mut dice));
            });
        }
    });
}

fn step(spool: &Spool, dice: &mut Pcg64Mcg) {
    let number = dice.next_u32() % UPLOADS;
    match dice.next_u32() % 16 {
        0 => drop(spool.sweep(id(number).0[0])),
        1..4 => advance(spool, number, dice),
        _ => take(spool, number, dice),
    }
}

fn take(spool: &Spool, number: u32, dice: &mut Pcg64Mcg) {
    let early = dice.next_u32().is_multiple_of(4);
    let Ok(Begin::Take(mut intake)) = spool.begin(&offer(number, early)) else { return };
    let first = u64::from(dice.next_u32()) % (TOTAL / PIECE - 1) + u64::from(early);
    let range = ByteRange::new(first * PIECE, TOTAL.min((first + 1 + u64::from(dice.next_u32() % 4)) * PIECE));
    for start in (range.start..range.end).step_by(PIECE as usize) {
        if intake.write_at(start, &content(number, ByteRange::new(start, start + PIECE))).is_err() {
            return;
        }
    }
    if intake.commit(range, UnixTime(1)).is_ok() {
        note(&format!("stored {number} {} {}", range.start, range.end));
    }
}

fn advance(spool: &Spool, number: u32, dice: &mut Pcg64Mcg) {
    let Some(upload) = spool.get(id(number)).unwrap() else { return };
    // Mostly a step, seldom an end.
    let at = dice.next_u32() as usize % if dice.next_u32().is_multiple_of(8) { State::ALL.len() } else { 4 };
    let delivered = dice.next_u32().is_multiple_of(2).then_some(upload.stored);
    let change = Change { state: Some(State::ALL[at]), delivered, ..Change::default() };
    if let Ok(Some(state)) = spool.change(id(number), &change, UnixTime(2)) {
        note(&format!("state {number} {state}"));
    }
}

/// Has a child work on a folder, and returns what it did.
fn work(folder: &Path, shim: &Path, seed: u64) -> Journal {
    let recorder = Recorder::new(folder, shim).unwrap();
    let output = Command::new(std::env::current_exe().unwrap())
        .args(["victim", "--exact", "--ignored"])
        .env(FOLDER, folder)
        .env(SEED, seed.to_string())
        .envs(recorder.environment())
        .output()
        .unwrap();
    assert!(output.status.success(), "the child failed: {}", String::from_utf8_lossy(&output.stdout));
    recorder.journal().unwrap()
}

/// What is wrong with the spool in `folder`, if those notes are what was told.
fn check(folder: &Path, notes: &[String]) -> Result<(), String> {
    let spool = Spool::open(Settings::new(folder)).map_err(|error| format!("it does not open: {error}"))?;
    for told in notes {
        let words: Vec<&str> = told.split(' ').collect();
        let number: u32 = words[1].parse().unwrap();
        let upload = spool.get(id(number)).map_err(|error| error.to_string())?;
        let upload = upload.ok_or_else(|| format!("nothing is known of {number}, and `{told}` was told"))?;
        match words[..] {
            ["stored", _, start, end] => {
                let range = ByteRange::new(start.parse().unwrap(), end.parse().unwrap());
                if !upload.stored.contains(range) {
                    return Err(format!("`{told}` was told, and {} is recorded", upload.stored));
                }
            }
            ["state", _, name] => {
                let told_state = State::by_name(name).unwrap();
                if told_state != State::Receiving && !told_state.may_become(upload.state) {
                    return Err(format!("`{told}` was told, and it is {}", upload.state));
                }
            }
            _ => unreachable!("notes are of two kinds"),
        }
    }
    (0..UPLOADS).try_for_each(|number| check_content(&spool, number))?;
    goes_on(&spool)
}

/// What the index counts, the file has.
fn check_content(spool: &Spool, number: u32) -> Result<(), String> {
    let upload = spool.get(id(number)).map_err(|error| error.to_string())?;
    let Some(upload) = upload.filter(|upload| upload.state.keeps_payload()) else { return Ok(()) };
    let payload = spool.payload(upload.id).map_err(|error| format!("{number} has no file: {error}"))?;
    for range in upload.stored.iter() {
        let mut octets = vec![0; range.len() as usize];
        payload.read_at(range.start, &mut octets).map_err(|error| format!("{range} of {number}: {error}"))?;
        if octets != content(number, range) {
            return Err(format!("{range} of {number} is recorded, and its octets are others"));
        }
    }
    Ok(())
}

/// What was begun is ended: the rest of each upload is taken.
fn goes_on(spool: &Spool) -> Result<(), String> {
    let whole = ByteRange::new(0, TOTAL);
    for number in 0..UPLOADS {
        let Begin::Take(mut intake) = spool.begin(&offer(number, false)).map_err(|error| error.to_string())? else {
            continue;
        };
        let missing: Vec<_> = intake.stored().missing(TOTAL).collect();
        for gap in missing {
            intake.write_at(gap.start, &content(number, gap)).map_err(|error| error.to_string())?;
        }
        intake.commit(whole, UnixTime(3)).map_err(|error| format!("the rest of {number} is not taken: {error}"))?;
        drop(intake);
        check_content(spool, number)?;
    }
    // One that the service had by another way, before all of it was here, needs no more.
    let is_whole =
        |number| spool.get(id(number)).is_ok_and(|known| known.is_some_and(|upload| upload.state.is_whole()));
    (0..UPLOADS).all(is_whole).then_some(()).ok_or_else(|| "something is still missing".to_owned())
}

fn number_of(variable: &str) -> Option<u64> {
    std::env::var(variable).ok().map(|text| text.parse().unwrap_or_else(|_| panic!("{variable} is a number")))
}

fn seed() -> u64 {
    let now = || SystemTime::now().duration_since(UNIX_EPOCH).unwrap().subsec_nanos().into();
    let seed = number_of("HOOP_SEED").unwrap_or_else(now);
    println!("HOOP_SEED={seed}");
    seed
}

/// A folder in memory, where there is one: what is built anew for each cut needs no disk.
fn folder() -> tempfile::TempDir {
    let memory = Path::new("/dev/shm");
    if memory.is_dir() { tempfile::tempdir_in(memory).unwrap() } else { tempfile::tempdir().unwrap() }
}

#[test]
fn after_a_power_cut_at_any_point_what_was_acknowledged_is_there_and_the_spool_goes_on() {
    let (seed, cycles) = (seed(), number_of("HOOP_CYCLES").unwrap_or(CYCLES.into()));
    let (shim, mut cuts) = (tempfile::tempdir().unwrap(), 0);
    for cycle in 0..cycles {
        let seed = seed + cycle;
        let mut dice = Pcg64Mcg::seed_from_u64(seed);
        let (mut left, mut told) = (folder(), Vec::new());
        for round in 0..ROUNDS {
            let journal = work(left.path(), shim.path(), dice.next_u64());
            let len = journal.records().len();
            for cut in 0..CUTS {
                let (at, rolls, into) = (dice.next_u32() as usize % (len + 1), dice.next_u64(), folder());
                let build = |into: &Path| {
                    journal.cut(at, &Rules::default(), &mut Pcg64Mcg::seed_from_u64(rolls), into).unwrap()
                };
                build(into.path());
                let notes: Vec<String> = told.iter().cloned().chain(journal.notes(at).map(str::to_owned)).collect();
                if let Err(why) = check(into.path(), &notes) {
                    let kept = keep(shim.path());
                    panic!(
                        "HOOP_SEED={seed}, round {round}, cut {at} of {len}: {why}; the record is in {}",
                        kept.display()
                    );
                }
                cuts += 1;
                if cut + 1 == CUTS {
                    left = folder();
                    build(left.path());
                    told = notes;
                }
            }
        }
    }
    println!("{cuts} cuts");
}

/// Keeps the record of a failure.
fn keep(shim: &Path) -> PathBuf {
    let kept = std::env::temp_dir().join(format!("hoop-powercut-{}", std::process::id()));
    std::fs::copy(shim.join("journal"), &kept).unwrap();
    kept
}

/// How the spool fails if some syncs were not there.
fn loses(journal: &Journal, rules: Rules) -> Option<String> {
    (0..CUTS_THAT_BITE).find_map(|seed| {
        let (mut dice, into) = (Pcg64Mcg::seed_from_u64(seed), folder());
        let at = dice.next_u32() as usize % (journal.records().len() + 1);
        journal.cut(at, &rules, &mut dice, into.path()).unwrap();
        let notes: Vec<String> = journal.notes(at).map(str::to_owned).collect();
        check(into.path(), &notes).err()
    })
}

#[test]
fn without_the_sync_of_the_payload_the_folders_or_the_index_a_cut_loses_what_was_acknowledged() {
    let (left, shim) = (folder(), tempfile::tempdir().unwrap());
    let journal = work(left.path(), shim.path(), 7);
    for (what, ignored) in [
        (
            "payloads",
            (|path: &Path, _| path.extension().is_some_and(|ending| ending == "z")) as fn(&Path, bool) -> bool,
        ),
        ("shards", |path, is_folder| is_folder && path.parent().is_some_and(|above| above.ends_with("uploads"))),
        ("the folder", |path, is_folder| is_folder && path == Path::new("")),
        ("the index's log", |path, _| path.to_string_lossy().ends_with("-wal")),
    ] {
        let lost = loses(&journal, Rules::ignoring(ignored));
        println!("without the sync of {what}: {lost:?}");
        assert!(lost.is_some(), "the sync of {what} would not be missed");
    }
}
