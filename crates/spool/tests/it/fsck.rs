//! The folder seen from outside: what a view shows while a gateway writes, what a check finds, and what it mends.
use hoop_spool::{
    Begin, Change, Checked, Damage, Finding, Intake, Offer, OpenError, Settings, Spool, State, View, check,
};
use hoop_units::{AddressKey, ByteRange, UnixTime, UploadId};
use std::fs::OpenOptions;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};

const NOW: UnixTime = UnixTime(1_000_000);
const PRELUDE: u64 = 7;
const TOTAL: u64 = PRELUDE + 2 * 65_536 + 100;

fn offer(number: u8) -> Offer {
    Offer {
        id: UploadId([number; 16]),
        prelude: b"prelude".to_vec(),
        // So it has a file of its own.
        total: None,
        dest: "https://photos.example/hoop/post".into(),
        expires: UnixTime(NOW.0 + 1_000),
        device: AddressKey([9; 16]),
        deadline: None,
    }
}

fn open(folder: &Path) -> Spool {
    Spool::open(Settings { sync: false, first_record: PRELUDE, ..Settings::new(folder) }).unwrap()
}

fn take(spool: &Spool, number: u8) -> Intake {
    match spool.begin(&offer(number)).unwrap() {
        Begin::Take(intake) => {
            intake.set_total(TOTAL).unwrap();
            intake
        }
        Begin::Complete(upload) => panic!("{upload:?} is complete"),
    }
}

fn put(spool: &Spool, number: u8, end: u64) -> State {
    let mut intake = take(spool, number);
    intake.write_at(0, b"prelude").unwrap();
    intake.write_at(7, &vec![number; end as usize - 7]).unwrap();
    intake.commit(ByteRange::new(0, end), NOW).unwrap()
}

fn file(folder: &Path, number: u8) -> PathBuf {
    folder.join(format!("uploads/{number:02x}/{}.z", UploadId([number; 16])))
}

fn spoil(folder: &Path, number: u8, at: u64) {
    let file = OpenOptions::new().write(true).open(file(folder, number)).unwrap();
    file.write_all_at(&[0xee], at).unwrap();
}

fn sql(folder: &Path, text: &str) {
    rusqlite::Connection::open(folder.join("index.db")).unwrap().execute_batch(text).unwrap();
}

fn run(folder: &Path, repair: bool) -> (Checked, Vec<Finding>) {
    let mut found = Vec::new();
    let checked = check(folder, PRELUDE, repair.then_some(NOW), &mut |finding| found.push(finding.clone())).unwrap();
    (checked, found)
}

/// Everything in a folder, and what is in it.
fn contents(folder: &Path) -> Vec<(PathBuf, Vec<u8>)> {
    let mut all = Vec::new();
    for entry in std::fs::read_dir(folder).unwrap().map(Result::unwrap) {
        match entry.file_type().unwrap().is_dir() {
            true => all.extend(contents(&entry.path())),
            false => all.push((entry.path(), std::fs::read(entry.path()).unwrap())),
        }
    }
    all.sort();
    all
}

#[test]
fn a_spool_that_is_well_has_no_findings_and_is_not_touched() {
    let folder = tempfile::tempdir().unwrap();
    let spool = open(folder.path());
    assert_eq!((put(&spool, 1, TOTAL), put(&spool, 2, PRELUDE + 65_536)), (State::Stored, State::Receiving));
    put(&spool, 3, TOTAL);
    spool.change(offer(3).id, &Change { state: Some(State::Accepted), ..Change::default() }, NOW).unwrap();
    drop(spool);
    let before = contents(folder.path());
    let stored = TOTAL + PRELUDE + 65_536;
    let well = Checked { uploads: 3, stored, findings: 0, repaired: 0 };
    assert_eq!(run(folder.path(), false), (well, vec![]));
    assert!(contents(folder.path()) == before, "looking changes nothing");
    assert_eq!(run(folder.path(), true), (well, vec![]));
}

#[test]
fn each_kind_of_damage_is_found_as_what_it_is_and_mended_once() {
    let folder = tempfile::tempdir().unwrap();
    let spool = open(folder.path());
    (1..=4).for_each(|number| assert_eq!(put(&spool, number, TOTAL), State::Stored));
    drop(spool);
    spoil(folder.path(), 1, PRELUDE + 65_536 + 9);
    std::fs::remove_file(file(folder.path(), 2)).unwrap();
    OpenOptions::new().write(true).open(file(folder.path(), 3)).unwrap().set_len(TOTAL - 1).unwrap();
    std::fs::write(file(folder.path(), 7), b"left by a crash").unwrap();
    sql(folder.path(), "UPDATE room SET kept = kept + 1; UPDATE holding SET uploads = 9; UPDATE tally SET bytes = 0;");
    let before = contents(folder.path());
    for repair in [false, true] {
        let (checked, found) = run(folder.path(), repair);
        let kinds: Vec<_> = found.iter().map(|finding| (finding.what, finding.id.map(|id| id.0[0]))).collect();
        let sums = (Damage::Sums, None);
        let expected = [
            (Damage::Spoilt, Some(1)),
            (Damage::FileMissing, Some(2)),
            (Damage::Spoilt, Some(3)),
            (Damage::Orphan, Some(7)),
            sums,
            sums,
            sums,
        ];
        assert_eq!(kinds, expected, "{found:?}");
        assert!(found.iter().all(|finding| finding.repaired == repair));
        assert_eq!((checked.findings, checked.repaired), (7, if repair { 7 } else { 0 }));
        assert_eq!(contents(folder.path()) == before, !repair);
    }
    assert_eq!(run(folder.path(), false).1, []);
    let spool = open(folder.path());
    for number in 1..=3 {
        let upload = spool.get(offer(number).id).unwrap().unwrap();
        assert_eq!(upload.reason.as_ref().map(|reason| reason.code.as_str()), Some("spool-damaged"));
        assert_eq!(put(&spool, number, TOTAL), State::Delivering, "what is missing is brought again");
        let mut bytes = vec![0; TOTAL as usize];
        spool.payload(upload.id).unwrap().read_at(0, &mut bytes).unwrap();
        assert!(bytes.starts_with(b"prelude") && bytes[7..].iter().all(|byte| *byte == number));
    }
    drop(spool);
    assert_eq!(run(folder.path(), false).1, []);
}

#[test]
fn damage_of_segments_is_found_and_mended_once() {
    let folder = tempfile::tempdir().unwrap();
    let segment = |number: u64| folder.path().join(format!("uploads/segments/{number}.segment"));
    let put = |spool: &Spool, number: u8| {
        let Begin::Take(mut intake) = spool.begin(&Offer { total: Some(TOTAL), ..offer(number) }).unwrap() else {
            panic!("some of it is missing")
        };
        intake.write_at(0, b"prelude").unwrap();
        intake.write_at(7, &vec![number; TOTAL as usize - 7]).unwrap();
        intake.commit(ByteRange::new(0, TOTAL), NOW).unwrap()
    };
    let spool = open(folder.path());
    (1..=2).for_each(|number| assert_eq!(put(&spool, number), State::Stored));
    drop(spool);
    let spool = open(folder.path());
    assert_eq!(put(&spool, 3), State::Stored);
    drop(spool);
    let second = TOTAL.next_multiple_of(4096);
    let file = OpenOptions::new().write(true).open(segment(0)).unwrap();
    file.write_all_at(&[0xee], second + PRELUDE + 9).unwrap();
    std::fs::remove_file(segment(1)).unwrap();
    std::fs::write(segment(7), b"left by a crash").unwrap();
    let expected = [(Damage::Spoilt, Some(2)), (Damage::FileMissing, Some(3)), (Damage::Orphan, None)];
    for repair in [false, true] {
        let (_, found) = run(folder.path(), repair);
        let kinds: Vec<_> = found.iter().map(|finding| (finding.what, finding.id.map(|id| id.0[0]))).collect();
        assert_eq!(kinds, expected, "{found:?}");
    }
    assert_eq!(run(folder.path(), false).1, []);
    let spool = open(folder.path());
    for number in 2..=3 {
        assert_eq!(put(&spool, number), State::Delivering, "what is missing is brought again");
        let mut bytes = vec![0; TOTAL as usize];
        spool.payload(offer(number).id).unwrap().read_at(0, &mut bytes).unwrap();
        assert!(bytes.starts_with(b"prelude") && bytes[7..].iter().all(|byte| *byte == number));
    }
}

#[test]
fn the_file_of_a_repaired_upload_stays_when_a_sender_breaks_off() {
    let folder = tempfile::tempdir().unwrap();
    let spool = open(folder.path());
    assert_eq!(put(&spool, 1, TOTAL), State::Stored);
    drop(spool);
    std::fs::remove_file(file(folder.path(), 1)).unwrap();
    assert_eq!(run(folder.path(), true).0.repaired, 1);
    let spool = open(folder.path());
    let intake = take(&spool, 1);
    assert_eq!(spool.held_by(offer(1).device).unwrap().uploads, 1, "it is counted once");
    drop(intake);
    assert!(file(folder.path(), 1).exists(), "its row counts it");
    assert_eq!(put(&spool, 1, TOTAL), State::Delivering);
    drop(spool);
    assert_eq!(run(folder.path(), false).1, []);
}

#[test]
fn a_damaged_index_is_said_and_not_made_worse() {
    let folder = tempfile::tempdir().unwrap();
    let spool = open(folder.path());
    (1..=2).for_each(|number| assert_eq!(put(&spool, number, TOTAL), State::Stored));
    drop(spool);
    sql(folder.path(), &format!("UPDATE upload SET stored = x'00' WHERE id = x'{}'", offer(1).id));
    for repair in [false, true] {
        let (checked, found) = run(folder.path(), repair);
        assert_eq!((found.len(), found[0].what, checked.repaired), (1, Damage::Row, 0), "{found:?}");
    }
}

#[test]
fn who_looks_while_a_gateway_writes_sees_a_whole_index_and_is_told() {
    let folder = tempfile::tempdir().unwrap();
    let spool = open(folder.path());
    put(&spool, 0, TOTAL);
    std::thread::scope(|scope| {
        let writer = scope.spawn(|| (1..200).for_each(|number| assert_eq!(put(&spool, number, TOTAL), State::Stored)));
        let mut rounds = 0;
        while !writer.is_finished() || rounds == 0 {
            let view = View::open(folder.path(), PRELUDE).unwrap();
            assert!(view.is_in_use());
            let (mut seq, mut seen) = (0, 0);
            while let Some((next, upload)) = view.after(seq).unwrap() {
                assert_eq!((upload.id, upload.stored.len()), (offer(seen).id, TOTAL), "in the order of arrival");
                (seq, seen) = (next, seen + 1);
            }
            let mut bytes = [0; 100];
            view.payload(offer(seen - 1).id).unwrap().read_at(PRELUDE, &mut bytes).unwrap();
            assert_eq!(bytes, [seen - 1; 100]);
            rounds += 1;
        }
    });
    assert!(matches!(check(folder.path(), PRELUDE, None, &mut |_| {}), Err(OpenError::Locked(_))));
    drop(spool);
    assert!(!View::open(folder.path(), PRELUDE).unwrap().is_in_use());
}

#[test]
fn where_there_is_no_spool_none_is_made() {
    let folder = tempfile::tempdir().unwrap();
    let nowhere = folder.path().join("spool");
    assert!(matches!(View::open(&nowhere, PRELUDE), Err(OpenError::Folder { .. })));
    assert!(matches!(check(&nowhere, PRELUDE, Some(NOW), &mut |_| {}), Err(OpenError::Folder { .. })));
    assert!(!nowhere.exists());
}
