//! What uploads cost the disk: a child process takes them in and delivers them, all that it writes and syncs is recorded, and the syncs and
//! the bytes of the index are counted.
#![allow(missing_docs)]

use hoop_powercut::{Record, Recorder, note};
use hoop_spool::{Begin, Change, Offer, Settings, Spool, State};
use hoop_units::{AddressKey, ByteRange, UnixTime, UploadId};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::Command;
use std::sync::{Arc, Barrier};

const FOLDER: &str = "HOOP_SPOOL_COST_FOLDER";
const SENDERS: &str = "HOOP_SPOOL_COST_SENDERS";
const NOW: UnixTime = UnixTime(1_000_000);

/// Uploads of a child.
const UPLOADS: usize = 256;

/// The length of each: a photo's preview.
const TOTAL: u64 = 100_000;

fn offer(number: usize) -> Offer {
    let mut id = [0; 16];
    // Spread as random ids are.
    id[..8].copy_from_slice(&(number as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15).to_be_bytes());
    Offer {
        id: UploadId(id),
        prelude: vec![7; 250],
        total: Some(TOTAL),
        dest: "https://photos.example/hoop/post".into(),
        expires: UnixTime(u32::MAX),
        device: AddressKey([7; 16]),
        deadline: None,
    }
}

/// From the first byte to `stored`.
fn store(spool: &Spool, number: usize) {
    let Begin::Take(mut intake) = spool.begin(&offer(number)).unwrap() else { panic!("it is new") };
    intake.write_at(250, &vec![number as u8; TOTAL as usize - 250]).unwrap();
    assert_eq!(intake.commit(ByteRange::new(0, TOTAL), NOW).unwrap(), State::Stored);
}

/// From `stored` to `accepted`, as delivery records it.
fn deliver(spool: &Spool, number: usize) {
    let all = Some([ByteRange::new(0, TOTAL)].into_iter().collect());
    let steps = [
        Change { state: Some(State::Delivering), ..Change::default() },
        Change { state: Some(State::Received), delivered: all, ..Change::default() },
        Change { state: Some(State::Accepted), answer: Some(vec![7; 200]), ..Change::default() },
    ];
    steps.iter().for_each(|change| _ = spool.change_soon(offer(number).id, change, NOW).unwrap());
}

/// The child: so many senders at once, each upload delivered once all of a round are stored.
#[test]
#[ignore = "run by the tests below, as a process of its own"]
fn victim() {
    let senders: usize = std::env::var(SENDERS).unwrap().parse().unwrap();
    let spool = Spool::open(Settings::new(std::env::var(FOLDER).unwrap())).unwrap();
    note("open");
    let round = Arc::new(Barrier::new(senders));
    std::thread::scope(|scope| {
        for sender in 0..senders {
            let (spool, round) = (&spool, round.clone());
            scope.spawn(move || {
                for number in (sender..UPLOADS).step_by(senders) {
                    store(spool, number);
                    if round.wait().is_leader() {
                        note("stored");
                    }
                    round.wait();
                    deliver(spool, number);
                    if round.wait().is_leader() {
                        spool.settle().unwrap();
                        note("over");
                    }
                    round.wait();
                }
            });
        }
    });
    note("done");
    drop(spool);
}

/// What a child did.
#[derive(Debug, Default)]
struct Cost {
    /// Syncs until uploads were stored, and after that, round by round.
    syncs: Vec<[u64; 2]>,
    /// Bytes of SQLite's files and of the journal, the end included.
    index: u64,
}

fn cost(senders: usize) -> Cost {
    let (folder, work) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let recorder = Recorder::new(folder.path(), work.path()).unwrap();
    let child = Command::new(std::env::current_exe().unwrap())
        .args(["victim", "--exact", "--ignored"])
        .env(FOLDER, folder.path())
        .env(SENDERS, senders.to_string())
        .envs(recorder.environment())
        .output()
        .unwrap();
    assert!(child.status.success(), "{}", String::from_utf8_lossy(&child.stdout));
    let journal = recorder.journal().unwrap();
    let (mut names, mut cost, mut now, mut is_open) = (BTreeMap::<u64, PathBuf>::new(), Cost::default(), [0; 2], false);
    let mut phase = 0;
    for record in journal.records() {
        match record {
            Record::Create { path, inode } => drop(names.insert(*inode, path.clone())),
            Record::Note(text) => match text.as_str() {
                "open" => is_open = true,
                "stored" => phase = 1,
                "over" => {
                    cost.syncs.push(std::mem::take(&mut now));
                    phase = 0;
                }
                _ => {}
            },
            Record::Write { inode, data, .. } if is_open => {
                let name = names.get(inode).map(|path| path.to_string_lossy().into_owned()).unwrap_or_default();
                cost.index += if name.starts_with("index.db") || name == "journal" { data.len() as u64 } else { 0 };
            }
            Record::SyncBegin { .. } if is_open => now[phase] += 1,
            _ => {}
        }
    }
    println!("{senders} senders: {cost:?}");
    cost
}

#[test]
fn a_small_upload_costs_two_syncs_until_it_is_stored_and_four_in_its_life() {
    let Cost { syncs, index } = cost(1);
    assert_eq!(syncs.len(), UPLOADS);
    // Others are those that begin a segment, and those after which SQLite commits for some hundred of them.
    let usual = syncs.iter().filter(|[stored, later]| *stored <= 2 && stored + later <= 4).count();
    assert!(usual * 10 >= UPLOADS * 9, "{usual} of {UPLOADS}: {syncs:?}");
    let all: u64 = syncs.iter().flatten().sum();
    assert!(all <= 4 * UPLOADS as u64, "{all} syncs of {UPLOADS} uploads");
    let each = index / UPLOADS as u64;
    assert!(each <= 8 << 10, "{each} bytes of the index for each upload");
}

#[test]
fn four_of_sixty_four_uploads_that_come_together_share_a_sync() {
    let until_stored = |syncs: &[[u64; 2]]| syncs.iter().map(|[stored, _]| stored).sum::<u64>();
    // Who has no processor meanwhile comes too late for the sync of the others.
    let costs = (0..3).map(|_| cost(64));
    let Cost { syncs, index } = costs.min_by_key(|cost| until_stored(&cost.syncs)).expect("three");
    let until_stored = until_stored(&syncs);
    assert!(until_stored * 4 <= UPLOADS as u64, "{until_stored} syncs until {UPLOADS} were stored: {syncs:?}");
    let each = index / UPLOADS as u64;
    assert!(each <= 8 << 10, "{each} bytes of the index for each upload");
}
