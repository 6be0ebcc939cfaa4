//! A disk that gives back something else than was written.

use crate::{folder, kept, name, settings};
use hoop_flow_store::{ByteStore, FlowStore, Found, Life, OpenError, Settings, Store, When, check};
use std::fs;
use std::path::{Path, PathBuf};

/// The only file of a log that has entries.
fn file(folder: &Path, log: &str) -> PathBuf {
    let files = fs::read_dir(folder.join(log)).unwrap().map(|entry| entry.unwrap().path());
    files.max_by_key(|path| path.metadata().unwrap().len()).unwrap()
}

/// Three flows, of which each was synced, and so is what the second sent.
fn filled(settings: &Settings) {
    let store = Store::open(settings).unwrap();
    for number in 1..4 {
        store.put(&kept(number, number, number == 2), Life::Parked, When::Synced).unwrap();
        store.append(name(2), (number - 1) * 10, b"0123456789").unwrap();
        store.sync().unwrap();
    }
}

#[test]
fn each_damaged_byte_of_a_record_is_noticed_and_harms_no_other_flow() {
    let folder = folder();
    let settings = settings(folder.path());
    filled(&settings);
    let path = file(folder.path(), "flows");
    let whole = fs::read(&path).unwrap();
    let key = [2; 33];
    // The head of an entry, and what stands in a record before the key; the flow's number ends in a 2 as well.
    let start = whole.windows(33).position(|bytes| bytes == key).unwrap() + 1 - 12 - 40;
    let attachment = whole.windows(24).position(|bytes| bytes.ends_with(b"films.example/2")).unwrap() + 24;
    for byte in start..attachment {
        let mut damaged = whole.clone();
        damaged[byte] ^= 0x10;
        fs::write(&path, &damaged).unwrap();
        let report = check(folder.path()).unwrap();
        assert_eq!(report.damages.len(), 1, "byte {byte}: {report:?}");
        assert!(report.damages[0].offset as usize <= byte, "byte {byte}: {report:?}");
        let store = Store::open(&settings).unwrap();
        assert_eq!(store.damages(), report.damages, "byte {byte}");
        let found: Vec<bool> =
            (1..4).map(|number| matches!(store.take(name(number)).unwrap(), Found::Kept(_))).collect();
        assert_eq!(found, [true, false, true], "byte {byte}");
        drop(store);
        clean_up(folder.path(), &path, &whole);
    }
}

/// As it was.
fn clean_up(folder: &Path, path: &Path, whole: &[u8]) {
    for log in ["flows", "octets"] {
        for entry in fs::read_dir(folder.join(log)).unwrap().map(|entry| entry.unwrap().path()) {
            if fs::metadata(&entry).unwrap().len() <= 32 {
                fs::remove_file(entry).unwrap();
            }
        }
    }
    fs::write(path, whole).unwrap();
}

#[test]
fn a_log_that_is_cut_off_anywhere_has_all_that_lies_before() {
    let folder = folder();
    let settings = settings(folder.path());
    filled(&settings);
    let path = file(folder.path(), "flows");
    let whole = fs::read(&path).unwrap();
    let mut before = 0;
    for len in 32..whole.len() {
        clean_up(folder.path(), &path, &whole[..len]);
        let store = Store::open(&settings).unwrap();
        let found = (1..4).take_while(|number| matches!(store.take(name(*number)).unwrap(), Found::Kept(_))).count();
        assert_eq!(store.usage().flows, found, "cut at {len}");
        assert!(found >= before, "cut at {len}");
        before = found;
        drop(store);
        // It goes on behind that.
        let store = Store::open(&settings).unwrap();
        store.put(&kept(9, 9, false), Life::Parked, When::Synced).unwrap();
        drop(store);
        let store = Store::open(&settings).unwrap();
        assert!(matches!(store.take(name(9)).unwrap(), Found::Kept(_)), "cut at {len}");
        drop(store);
        fs::remove_dir_all(folder.path().join("flows")).unwrap();
        fs::create_dir(folder.path().join("flows")).unwrap();
    }
    assert_eq!(before, 3);
}

#[test]
fn bytes_damaged_on_disk_are_never_given_out_and_are_asked_for_again() {
    let folder = folder();
    let settings = settings(folder.path());
    filled(&settings);
    let path = file(folder.path(), "octets");
    let whole = fs::read(&path).unwrap();
    let second = whole.windows(10).enumerate().filter(|(_, bytes)| *bytes == b"0123456789").nth(1).unwrap().0;
    let mut damaged = whole.clone();
    damaged[second + 3] ^= 1;

    // While it runs.
    let store = Store::open(&settings).unwrap();
    fs::write(&path, &damaged).unwrap();
    let mut bytes = [0; 30];
    assert_eq!(store.read(name(2), 0, &mut bytes[..10]).unwrap(), 10);
    assert!(store.read(name(2), 5, &mut bytes).unwrap_err().to_string().contains("not what was written"));
    drop(store);

    // And afterwards.
    let store = Store::open(&settings).unwrap();
    assert_eq!(store.damages().len(), 1);
    let Found::Kept(found) = store.take(name(2)).unwrap() else { panic!("the flow is there") };
    assert_eq!((found.record.consumed, found.record.kept), (0, 10));
    assert_eq!(store.append(name(2), 10, b"0123456789").unwrap(), 20);
}

#[test]
fn a_later_format_a_foreign_log_and_a_second_process_are_refused_by_name() {
    let folder = folder();
    let settings = settings(folder.path());
    filled(&settings);
    let store = Store::open(&settings).unwrap();
    assert!(matches!(Store::open(&settings), Err(OpenError::Locked(_))));
    drop(store);
    let path = file(folder.path(), "flows");
    let whole = fs::read(&path).unwrap();

    let mut later = whole.clone();
    later[9] = 2;
    let sum = crc32c::crc32c(&later[..28]);
    later[28..32].copy_from_slice(&sum.to_be_bytes());
    fs::write(&path, &later).unwrap();
    let error = Store::open(&settings).unwrap_err();
    assert!(matches!(error, OpenError::Later { found: 2, .. }), "{error}");
    assert!(error.to_string().contains(path.to_str().unwrap()), "{error}");
    assert!(check(folder.path()).is_err());

    fs::copy(file(folder.path(), "octets"), &path).unwrap();
    assert!(matches!(Store::open(&settings), Err(OpenError::Foreign(_))));

    fs::write(&path, &whole).unwrap();
    assert_eq!(check(folder.path()).unwrap().damages, []);
    let mut damaged = whole;
    damaged[3] ^= 1;
    fs::write(&path, &damaged).unwrap();
    assert_eq!(check(folder.path()).unwrap().damages.len(), 1);
    assert_eq!(Store::open(&settings).unwrap().usage().flows, 0);
    assert_eq!(fs::read(&path).unwrap(), damaged, "what is damaged stays as it is");
}
