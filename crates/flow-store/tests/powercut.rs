//! Power cuts: a child process works on a store, all that it writes and syncs is recorded, and the folder is built anew as a cut at any
//! point may leave it (`hoop-powercut` says what that may be). What was said to outlive a restart must be there.
//!
//! `HOOP_SEED` repeats a run, `HOOP_CYCLES` makes it longer.
#![allow(missing_docs)]

use hoop_flow::{DeviceId, FlowId, FlowKey, FlowName, Record};
use hoop_flow_store::{ByteStore, FlowStore, Found, Kept, Life, Settings, Store, When};
use hoop_powercut::{Trial, note};
use rand_core::{Rng as _, SeedableRng as _};
use rand_pcg::Pcg64Mcg;
use std::path::Path;

/// Flows of each of the child's threads; no flow has two.
const FLOWS: u64 = 6;

const THREADS: u64 = 3;
const STEPS: u32 = 250;

/// Records, unless `HOOP_CYCLES` says otherwise: some seconds.
const CYCLES: u64 = 3;

/// So many cuts find what a missing sync loses.
const CUTS_THAT_BITE: u64 = 200;

fn settings(folder: &Path) -> Settings {
    // Files of 128 KiB, and memory for all flows once, since all may be attached.
    let mut settings = Settings { segment_len: 1, ..Settings::new(folder) };
    settings.limits.memory = 20_000;
    settings
}

fn name(number: u64) -> FlowName {
    FlowName { device: DeviceId([number as u8; 20]), flow: FlowId(number) }
}

fn kept(number: u64, written: u64) -> Kept {
    let record = Record { written, ..Record::of_server(name(number), FlowKey([7; 32])) };
    Kept { record, attachment: vec![written as u8; (written % 900) as usize], spools: true }
}

/// No byte of it is zero: a hole shows.
fn byte(number: u64, offset: u64) -> u8 {
    ((offset * 31 + offset / 512) as u8 ^ number as u8) | 1
}

/// The child: puts flows and bytes until its steps are done; and says what it was told.
#[test]
#[ignore = "run by the tests below, as a process of its own"]
fn victim() {
    let (folder, seed) = hoop_powercut::victim();
    let store = Store::open(&settings(&folder)).unwrap();
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let store = &store;
            scope.spawn(move || {
                let mut rng = Pcg64Mcg::seed_from_u64(seed ^ thread << 40);
                for at in 0..STEPS {
                    step(store, thread * FLOWS + rng.next_u64() % FLOWS, &mut rng);
                    if at % 16 == 0 {
                        store.tick().unwrap();
                    }
                }
            });
        }
    });
    // A process that is cut off tidies nothing up.
    std::mem::forget(store);
}

fn step(store: &Store, number: u64, rng: &mut Pcg64Mcg) {
    let mut some = |most: u64| rng.next_u64() % most;
    let found = store.take(name(number)).unwrap();
    let Found::Kept(mut found) = found else {
        store.put(&kept(number, 1), Life::Live, When::Synced).unwrap();
        return note(&format!("written {number} 1"));
    };
    match some(16) {
        0 => {
            note(&format!("removing {number} 0"));
            store.remove(name(number), 9).unwrap();
        }
        1..6 => {
            let written = found.record.written + 1;
            let mut kept = kept(number, written);
            (kept.record.kept, kept.record.consumed) = (found.record.kept, found.record.consumed);
            note(&format!("writing {number} {written}"));
            store.put(&kept, Life::Parked, When::Synced).unwrap();
            note(&format!("written {number} {written}"));
        }
        6..8 => {
            found.record.acked = some(100);
            store.put(&found, [Life::Quiet, Life::Parked][some(2) as usize], When::Later).unwrap();
        }
        8..13 => {
            let from = found.record.kept;
            let bytes: Vec<u8> = (from..from + 1 + some(6_000)).map(|at| byte(number, at)).collect();
            let Ok(end) = store.append(name(number), from, &bytes) else { return };
            store.sync().unwrap();
            note(&format!("kept {number} {end}"));
        }
        13 => {
            store.spill().unwrap();
        }
        _ => {
            let offset = found.record.consumed + some(found.record.kept - found.record.consumed + 1);
            // Whoever reads is told no more than this, whatever is cut.
            note(&format!("consuming {number} {offset}"));
            store.consume(name(number), offset).unwrap();
        }
    }
}

/// What was told of one flow.
#[derive(Clone, Default, Debug)]
struct Told {
    written: u64,
    writing: u64,
    kept: u64,
    consuming: u64,
    was_removed: bool,
}

fn told(notes: &[String]) -> Vec<Told> {
    let mut all = vec![Told::default(); (THREADS * FLOWS) as usize];
    for note in notes {
        let words: Vec<&str> = note.split(' ').collect();
        let (flow, number): (usize, u64) = (words[1].parse().unwrap(), words[2].parse().unwrap());
        let told = &mut all[flow];
        match words[0] {
            // A new one, if it was removed.
            "written" if number == 1 => *told = Told { written: 1, writing: 1, ..Told::default() },
            "written" => told.written = number,
            "writing" => told.writing = number,
            "kept" => told.kept = number,
            "consuming" => told.consuming = told.consuming.max(number),
            "removing" => told.was_removed = true,
            _ => unreachable!("there is no other note"),
        }
    }
    all
}

/// What is wrong with the store in `folder`, if those notes are what was told.
fn check(folder: &Path, notes: &[String]) -> Result<(), String> {
    let store = Store::open(&settings(folder)).map_err(|error| format!("it does not open: {error}"))?;
    if !store.damages().is_empty() {
        return Err(format!("a cut is called damage: {:?}", store.damages()));
    }
    for (number, told) in told(notes).iter().enumerate() {
        let number = number as u64;
        let found = store.take(name(number)).map_err(|error| format!("flow {number}: {error}"))?;
        let Found::Kept(found) = found else {
            if told.written == 0 || told.was_removed {
                continue;
            }
            return Err(format!("flow {number} is gone, and {told:?}"));
        };
        let record = &found.record;
        // Of one that was removed any state may be there, with its bytes; and of the next by this name.
        if told.written == 0 || (told.was_removed && record.written == 1) {
            continue;
        }
        if record.written < told.written || record.written > told.writing.max(told.written) {
            return Err(format!("flow {number}: {} is written, and {told:?}", record.written));
        }
        if found.attachment != kept(number, record.written).attachment {
            return Err(format!("flow {number} has another's attachment"));
        }
        if record.kept < told.kept || record.consumed > told.consuming {
            return Err(format!("flow {number}: {} to {} is held, and {told:?}", record.consumed, record.kept));
        }
        let mut bytes = vec![0; (record.kept - record.consumed) as usize];
        let len = store.read(name(number), record.consumed, &mut bytes).map_err(|error| error.to_string())?;
        if len != bytes.len() || (record.consumed..).zip(&bytes).any(|(at, found)| *found != byte(number, at)) {
            return Err(format!("flow {number}: {len} of {} bytes, or others, and {told:?}", bytes.len()));
        }
    }
    // It goes on.
    store.put(&kept(99, 1), Life::Parked, When::Synced).map_err(|error| error.to_string())?;
    store.tick().map_err(|error| error.to_string())?;
    Ok(())
}

const TRIAL: Trial = Trial { cuts: 25, rounds: 2, check };

#[test]
fn synced_flows_and_bytes_survive_a_power_cut_at_any_point() {
    TRIAL.run(CYCLES);
}

#[test]
fn a_missing_sync_of_the_flows_the_bytes_or_the_folders_loses_some() {
    for (what, ignored) in [
        ("flows", (|path: &Path, is_folder| !is_folder && path.starts_with("flows")) as fn(&Path, bool) -> bool),
        ("octets", |path, is_folder| !is_folder && path.starts_with("octets")),
        ("folders", |_, is_folder| is_folder),
    ] {
        let lost = TRIAL.fails_without(ignored, CUTS_THAT_BITE);
        assert!(lost.is_some(), "the sync of {what} would not be missed");
    }
}
