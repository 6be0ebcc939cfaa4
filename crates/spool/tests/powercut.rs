//! Power cuts: a child process works on a spool, all that it writes and syncs is recorded, and the folder is built anew as a cut at any
//! point may leave it (`hoop-powercut` says what that may be). What was acknowledged before must be there, byte for byte.
//!
//! `HOOP_SEED` repeats a run, `HOOP_CYCLES` makes it longer.
#![allow(missing_docs)]

use hoop_powercut::{Trial, note};
use hoop_spool::{Begin, Change, Offer, Settings, Spool, State, Token};
use hoop_units::{AddressKey, ByteRange, UnixTime, UploadId};
use rand_core::{Rng as _, SeedableRng as _};
use rand_pcg::Pcg64Mcg;
use std::path::Path;

const UPLOADS: u32 = 8;
const TOTAL: u64 = 24 * PIECE;
const PIECE: u64 = 1_500;
const PRELUDE: u64 = 7;

/// Threads of the child, each with so many steps.
const THREADS: u64 = 3;
const STEPS: u32 = 30;

/// Records, unless `HOOP_CYCLES` says otherwise: some seconds.
const CYCLES: u64 = 3;

/// So many cuts find what a missing sync loses.
const CUTS_THAT_BITE: u64 = 400;

fn id(number: u32) -> UploadId {
    UploadId([number as u8 ^ 0x5a; 16])
}

fn offer(number: u32, early: bool) -> Offer {
    Offer {
        id: id(number),
        prelude: if early { Vec::new() } else { vec![0; PRELUDE as usize] },
        // Of a length that is known before, it shares a segment; otherwise it has a file of its own.
        total: number.is_multiple_of(2).then_some(TOTAL),
        dest: "https://photos.example/hoop/post".into(),
        expires: UnixTime(u32::MAX),
        device: AddressKey::UNKNOWN,
        deadline: None,
    }
}

/// No byte of it is zero, behind the prelude: a hole shows.
fn content(number: u32, range: ByteRange) -> Vec<u8> {
    let byte = |at: u64| if at < PRELUDE { 0 } else { ((at * 31 + at / 512) as u8 ^ number as u8) | 1 };
    (range.start..range.end).map(byte).collect()
}

/// The child: takes ranges in, and takes states on, until its steps are done; and says what it was told.
#[test]
#[ignore = "run by the tests below, as a process of its own"]
fn victim() {
    let (folder, seed) = hoop_powercut::victim();
    let spool = Spool::open(Settings::new(folder)).unwrap();
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let spool = &spool;
            scope.spawn(move || {
                let mut rng = Pcg64Mcg::seed_from_u64(seed ^ thread << 40);
                (0..STEPS).for_each(|_| step(spool, &mut rng));
            });
        }
    });
}

fn step(spool: &Spool, rng: &mut Pcg64Mcg) {
    let number = rng.next_u32() % UPLOADS;
    match rng.next_u32() % 16 {
        0 => drop(spool.sweep(id(number).0[0])),
        // SQLite commits all that there is for what the journal cannot repeat.
        15 => spool.drop_resource(Token([0; 16])).unwrap(),
        1..4 => advance(spool, number, rng),
        _ => take(spool, number, rng),
    }
}

fn take(spool: &Spool, number: u32, rng: &mut Pcg64Mcg) {
    let early = rng.next_u32().is_multiple_of(4);
    let Ok(Begin::Take(mut intake)) = spool.begin(&offer(number, early)) else { return };
    intake.set_total(TOTAL).unwrap();
    let first = u64::from(rng.next_u32()) % (TOTAL / PIECE - 1) + u64::from(early);
    let range = ByteRange::new(first * PIECE, TOTAL.min((first + 1 + u64::from(rng.next_u32() % 4)) * PIECE));
    for start in (range.start..range.end).step_by(PIECE as usize) {
        if intake.write_at(start, &content(number, ByteRange::new(start, start + PIECE))).is_err() {
            return;
        }
    }
    if intake.commit(range, UnixTime(1)).is_ok() {
        note(&format!("stored {number} {} {}", range.start, range.end));
    }
}

fn advance(spool: &Spool, number: u32, rng: &mut Pcg64Mcg) {
    let Some(upload) = spool.get(id(number)).unwrap() else { return };
    // Mostly a step, seldom an end.
    let at = rng.next_u32() as usize % if rng.next_u32().is_multiple_of(8) { State::ALL.len() } else { 4 };
    let delivered = rng.next_u32().is_multiple_of(2).then_some(upload.stored);
    let change = Change { state: Some(State::ALL[at]), delivered, ..Change::default() };
    let is_urgent = rng.next_u32().is_multiple_of(2);
    let changed = match is_urgent {
        true => spool.change(id(number), &change, UnixTime(2)),
        false => spool.change_soon(id(number), &change, UnixTime(2)),
    };
    // What may be taken back is told only once it cannot.
    if let Ok(Some(state)) = changed
        && (is_urgent || (rng.next_u32().is_multiple_of(2) && spool.settle().is_ok()))
    {
        note(&format!("state {number} {state}"));
    }
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
        let mut bytes = vec![0; range.len() as usize];
        payload.read_at(range.start, &mut bytes).map_err(|error| format!("{range} of {number}: {error}"))?;
        if bytes != content(number, range) {
            return Err(format!("{range} of {number} is recorded, and its bytes are others"));
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
        intake.set_total(TOTAL).map_err(|error| error.to_string())?;
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

const TRIAL: Trial = Trial { cuts: 12, rounds: 2, check };

#[test]
fn acknowledged_data_survives_any_power_cut_and_the_spool_goes_on() {
    TRIAL.run(CYCLES);
}

#[test]
fn a_cut_loses_acknowledged_data_if_payload_folder_or_index_is_not_synced() {
    for (what, ignored) in [
        (
            "payloads",
            (|path: &Path, _| path.extension().is_some_and(|ending| ending == "z" || ending == "segment"))
                as fn(&Path, bool) -> bool,
        ),
        ("shards", |path, is_folder| is_folder && path.parent().is_some_and(|above| above.ends_with("uploads"))),
        ("the folder", |path, is_folder| is_folder && path == Path::new("")),
        ("the index's log", |path, _| path.to_string_lossy().ends_with("-wal")),
        ("the journal", |path, _| path.ends_with("journal")),
    ] {
        let lost = TRIAL.fails_without(ignored, CUTS_THAT_BITE);
        println!("without the sync of {what}: {lost:?}");
        assert!(lost.is_some(), "the sync of {what} would not be missed");
    }
}
