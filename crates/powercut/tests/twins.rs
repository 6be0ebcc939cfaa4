//! Twins: what is synced survives every cut, and what is not may be there or not. The programs under record are copies of this one.
#![allow(missing_docs)]

use hoop_powercut::{Journal, Record, Recorder, Rules, note};
use nix::fcntl::{FallocateFlags, fallocate};
use rand_core::SeedableRng as _;
use rand_pcg::Pcg64Mcg;
use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::{Seek as _, SeekFrom, Write as _};
use std::path::Path;
use std::process::Command;

const FOLDER: &str = "POWERCUT_TEST_FOLDER";

/// How often a cut is rolled: so often that what may happen does.
const ROLLS: u64 = 400;

/// Runs one of the programs below under record.
fn record(program: &str) -> Journal {
    let (root, work) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    fs::write(root.path().join("before"), b"was here").unwrap();
    let recorder = Recorder::new(root.path(), work.path()).unwrap();
    let status = Command::new(std::env::current_exe().unwrap())
        .args([program, "--exact", "--ignored"])
        .env(FOLDER, root.path())
        .envs(recorder.environment())
        .status()
        .unwrap();
    assert!(status.success());
    recorder.journal().unwrap()
}

/// What a file holds after the cuts behind the last note; `None`: it is not there.
fn outcomes(journal: &Journal, rules: &Rules, file: &str) -> BTreeSet<Option<Vec<u8>>> {
    let last = journal.records().iter().rposition(|record| matches!(record, Record::Note(_))).unwrap();
    let roll = |seed: u64| {
        let into = tempfile::tempdir().unwrap();
        let mut rng = Pcg64Mcg::seed_from_u64(seed);
        let at = last + 1 + seed as usize % (journal.records().len() - last);
        journal.cut(at, rules, &mut rng, into.path()).unwrap();
        assert_eq!(fs::read(into.path().join("before")).unwrap(), b"was here");
        fs::read(into.path().join(file)).ok()
    };
    (0..ROLLS).map(roll).collect()
}

fn folder() -> String {
    std::env::var(FOLDER).expect("the test says where")
}

fn sync_folder(folder: &Path) {
    File::open(folder).unwrap().sync_all().unwrap();
}

#[test]
#[ignore = "run by the tests below, as a process of its own"]
fn write_sync_and_write_again() {
    let folder = folder();
    let mut file = File::create(Path::new(&folder).join("a")).unwrap();
    file.write_all(b"old").unwrap();
    file.sync_data().unwrap();
    sync_folder(Path::new(&folder));
    note("old");
    file.seek(SeekFrom::Start(0)).unwrap();
    file.write_all(b"new").unwrap();
}

#[test]
fn synced_bytes_survive_every_cut_and_bytes_written_over_them_may() {
    let journal = record("write_sync_and_write_again");
    assert_eq!(outcomes(&journal, &Rules::default(), "a"), [Some(b"old".to_vec()), Some(b"new".to_vec())].into());
}

#[test]
fn a_missing_file_sync_may_lose_bytes_and_a_missing_folder_sync_the_name() {
    let journal = record("write_sync_and_write_again");
    let no_file = outcomes(&journal, &Rules::ignoring(|_, is_folder| !is_folder), "a");
    assert!(no_file.contains(&Some(Vec::new())) && !no_file.contains(&None), "{no_file:?}");
    let no_folder = outcomes(&journal, &Rules::ignoring(|_, is_folder| is_folder), "a");
    assert!(no_folder.contains(&None) && no_folder.contains(&Some(b"old".to_vec())), "{no_folder:?}");
}

#[test]
#[ignore = "run by the tests below, as a process of its own"]
fn replace_by_renaming() {
    let folder = folder();
    let path = |name: &str| Path::new(&folder).join(name);
    for (name, bytes) in [("a", b"old"), ("b", b"new")] {
        let mut file = File::create(path(name)).unwrap();
        file.write_all(bytes).unwrap();
        file.sync_all().unwrap();
    }
    sync_folder(Path::new(&folder));
    note("both");
    fs::rename(path("b"), path("a")).unwrap();
}

#[test]
fn a_name_that_is_replaced_is_the_old_file_or_the_new_one() {
    let journal = record("replace_by_renaming");
    let expected = [Some(b"old".to_vec()), Some(b"new".to_vec())].into();
    assert_eq!(outcomes(&journal, &Rules::default(), "a"), expected);
    assert_eq!(outcomes(&journal, &Rules::default(), "b"), [None, Some(b"new".to_vec())].into());
}

#[test]
#[ignore = "run by the tests below, as a process of its own"]
fn write_three_sectors() {
    let folder = folder();
    let mut file = File::create(Path::new(&folder).join("a")).unwrap();
    file.write_all(&[1; 1536]).unwrap();
    file.sync_all().unwrap();
    sync_folder(Path::new(&folder));
    note("ones");
    file.seek(SeekFrom::Start(0)).unwrap();
    file.write_all(&[2; 1536]).unwrap();
}

#[test]
fn a_write_is_torn_between_sectors_and_never_within_one() {
    let journal = record("write_three_sectors");
    let seen: BTreeSet<Vec<u8>> = outcomes(&journal, &Rules::default(), "a")
        .into_iter()
        .map(|bytes| bytes.unwrap().chunks(512).map(|sector| sector.iter().fold(sector[0], |a, b| a & b)).collect())
        .collect();
    assert_eq!(seen.len(), 8, "each sector is old or new: {seen:?}");
}

#[test]
#[ignore = "run by the tests below, as a process of its own"]
fn write_while_a_sync_runs() {
    let folder = folder();
    let mut file = File::create(Path::new(&folder).join("a")).unwrap();
    file.write_all(b"a").unwrap();
    sync_folder(Path::new(&folder));
    let other = file.try_clone().unwrap();
    let (begin, begun) = std::sync::mpsc::channel();
    std::thread::scope(|scope| {
        scope.spawn(move || {
            begin.send(()).unwrap();
            other.sync_all().unwrap();
        });
        begun.recv().unwrap();
    });
    note("a");
    file.write_all(b"b").unwrap();
    file.set_len(1 << 12).unwrap();
}

#[test]
fn a_cut_may_keep_a_length_without_bytes_and_bytes_without_earlier_ones() {
    let journal = record("write_while_a_sync_runs");
    let seen = outcomes(&journal, &Rules::default(), "a");
    let mut long = b"a".to_vec();
    long.resize(1 << 12, 0);
    for expected in [b"a".to_vec(), b"ab".to_vec(), b"a\0".to_vec(), long.clone()] {
        assert!(seen.contains(&Some(expected.clone())), "{} bytes", expected.len());
    }
    long[1] = b'b';
    assert!(seen.contains(&Some(long)));
    assert!(seen.iter().all(|bytes| bytes.as_ref().is_some_and(|bytes| bytes[0] == b'a')));
}

#[test]
#[ignore = "run by the test below, as a process of its own"]
fn punch_a_hole() {
    let folder = folder();
    let mut file = File::create(Path::new(&folder).join("a")).unwrap();
    file.write_all(&[7; 1536]).unwrap();
    file.sync_all().unwrap();
    sync_folder(Path::new(&folder));
    note("a");
    let mode = FallocateFlags::FALLOC_FL_PUNCH_HOLE | FallocateFlags::FALLOC_FL_KEEP_SIZE;
    fallocate(&file, mode, 512, 4096).unwrap();
}

#[test]
fn what_a_hole_took_is_there_or_reads_as_zeroes_and_the_length_stays() {
    let journal = record("punch_a_hole");
    let seen = outcomes(&journal, &Rules::default(), "a");
    let whole = vec![7; 1536];
    let mut holed = whole.clone();
    holed[512..].fill(0);
    assert!(seen.contains(&Some(whole.clone())) && seen.contains(&Some(holed)), "both may be");
    assert!(seen.iter().flatten().all(|bytes| bytes.len() == 1536 && bytes[..512] == whole[..512]));
}
