//! A disk that has no room, or may not be written: a child process that may write files of no more than so many bytes (`RLIMIT_FSIZE`) is told `EFBIG`,
//! as it is told `ENOSPC` by a disk that is full.

use crate::{kept, name, settings};
use hoop_flow_store::{ByteStore, FlowStore, Found, Life, Store, StoreError, When};
use std::path::Path;
use std::process::Command;

const FOLDER: &str = "HOOP_FLOW_STORE_FOLDER";

/// 20 KiB of each file.
const ROOM: &str = "20480";

#[test]
#[ignore = "run by the test below, as a process of its own"]
fn victim() {
    let folder = std::env::var(FOLDER).expect("the test says where");
    let store = Store::open(&settings(Path::new(&folder))).unwrap();
    let limit = |bytes: &str| {
        let (process, limit) = (std::process::id().to_string(), format!("--fsize={bytes}:unlimited"));
        assert!(Command::new("prlimit").args(["--pid", &process, &limit]).status().unwrap().success());
    };
    limit(ROOM);
    let mut number = 0;
    let error = loop {
        match store.put(&kept(number, 1, true), Life::Live, When::Synced) {
            Ok(()) => number += 1,
            Err(error) => break error,
        }
    };
    assert!(matches!(error, StoreError::Disk(_)), "{error}");
    assert!(number > 50 && number < 200, "{number} flows have room");
    // Nobody has heard of it.
    assert!(matches!(store.take(name(number)).unwrap(), Found::Unknown));
    // One that is known stays in memory, as it is told; others are as they were.
    store.put(&kept(3, 777, true), Life::Parked, When::Synced).unwrap_err();
    store.spill().unwrap_err();
    store.tick().unwrap_err();
    let written = |number| match store.take(name(number)).unwrap() {
        Found::Kept(kept) => kept.record.written,
        other => panic!("flow {number} is {other:?}"),
    };
    assert_eq!((written(2), written(3)), (1, 777));
    store.append(name(1), 0, &[1; 30_000]).and_then(|_| store.sync()).unwrap_err();
    // There is room again.
    limit("unlimited");
    assert!(store.tick().unwrap().is_empty());
    store.put(&kept(number, 1, true), Life::Live, When::Synced).unwrap();
    store.put(&kept(3, 777, true), Life::Parked, When::Later).unwrap();
    store.spill().unwrap();
    store.append(name(5), 0, &[5; 30_000]).unwrap();
    store.sync().unwrap();
    assert_eq!((written(2), written(3), written(number)), (1, 777, 1));
    println!("{number} flows");
}

#[test]
fn a_full_disk_is_an_error_loses_nothing_and_goes_on_once_there_is_room() {
    let folder = tempfile::tempdir().unwrap();
    let output = Command::new("sh")
        // The signal that comes with the limit is ignored, and a child inherits that.
        .args(["-c", "trap '' XFSZ; exec \"$0\" disk::victim --exact --ignored --nocapture"])
        .arg(std::env::current_exe().unwrap())
        .env(FOLDER, folder.path())
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{said}\n{}", String::from_utf8_lossy(&output.stderr));
    let store = Store::open(&settings(folder.path())).unwrap();
    assert_eq!(store.damages(), []);
    let flows = said.lines().find_map(|line| line.rsplit_once(" flows")?.0.rsplit(' ').next()?.parse::<usize>().ok());
    assert_eq!(store.usage().flows, flows.expect("the child says how many") + 1);
    assert!(matches!(store.take(name(3)).unwrap(), Found::Kept(kept) if kept.record.written == 777));
    let mut bytes = vec![0; 30_000];
    assert_eq!(store.read(name(5), 0, &mut bytes).unwrap(), 30_000);
    assert!(bytes.iter().all(|byte| *byte == 5));
}

#[test]
fn a_sync_that_many_wait_for_at_once_is_shared() {
    let folder = tempfile::tempdir().unwrap();
    let store = Store::open(&hoop_flow_store::Settings::new(folder.path())).unwrap();
    std::thread::scope(|scope| {
        for thread in 0..16 {
            let store = &store;
            scope.spawn(move || {
                for at in 0..20 {
                    let end = store.append(name(thread), at * 100, &[thread as u8; 100]).unwrap();
                    store.sync().unwrap();
                    assert_eq!(end, (at + 1) * 100);
                }
            });
        }
    });
    assert_eq!(store.usage().bytes, 16 * 20 * 1_024);
}
