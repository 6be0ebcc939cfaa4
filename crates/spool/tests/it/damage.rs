//! What the disk spoils is noticed before anyone gets it, goes missing, and may be brought again.
use hoop_spool::{
    Begin, BeginError, Change, CommitError, Damage, Finding, Intake, Offer, Place, Queue, ReadError, Reason, Settings,
    Source, Spool, State, StoreError, Upload, check,
};
use hoop_units::{AddressKey, ByteRange, RangeSet, UnixTime, UploadId};
use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};

const NOW: UnixTime = UnixTime(1_000_000);
const RECORD: u64 = 65_536;
const PRELUDE: u64 = 7;
const TOTAL: u64 = PRELUDE + 3 * RECORD + 100;
const ID: UploadId = UploadId([1; 16]);

fn offer() -> Offer {
    Offer {
        id: ID,
        prelude: b"prelude".to_vec(),
        total: Some(TOTAL),
        dest: "https://photos.example/hoop/post".into(),
        expires: UnixTime(NOW.0 + 1_000),
        device: AddressKey::UNKNOWN,
        deadline: None,
    }
}

fn z(range: ByteRange) -> Vec<u8> {
    (range.start..range.end).map(|at| b"prelude".get(at as usize).copied().unwrap_or((at / 7) as u8)).collect()
}

fn record(number: u64) -> ByteRange {
    ByteRange::new(PRELUDE + number * RECORD, (PRELUDE + (number + 1) * RECORD).min(TOTAL))
}

/// What is written to a folder that somebody has removed nobody finds after the next start.
#[test]
fn nothing_new_is_taken_once_another_folder_has_the_spools_name() {
    let place = tempfile::tempdir().unwrap();
    let (folder, away) = (place.path().join("spool"), place.path().join("away"));
    let spool = open(&folder);
    // It leaves a file open that has room for others.
    assert_eq!(put(&spool, ByteRange::new(0, TOTAL)), State::Stored);
    let other = Offer { id: UploadId([2; 16]), ..offer() };
    std::fs::rename(&folder, &away).unwrap();
    assert!(spool.begin(&other).is_err(), "there is none");
    std::fs::create_dir(&folder).unwrap();
    let refused = spool.begin(&other).unwrap_err();
    assert!(matches!(refused, BeginError::Store(StoreError::File(_))), "{refused}");
    std::fs::remove_dir(&folder).unwrap();
    std::fs::rename(&away, &folder).unwrap();
    assert!(spool.begin(&other).is_ok(), "it is back");
}

fn open(folder: &Path) -> Spool {
    Spool::open(Settings { sync: false, first_record: PRELUDE, cut_through: true, ..Settings::new(folder) }).unwrap()
}

fn take(spool: &Spool) -> Intake {
    match spool.begin(&offer()).unwrap() {
        Begin::Take(intake) => intake,
        Begin::Complete(upload) => panic!("{upload:?} is complete"),
    }
}

fn put(spool: &Spool, range: ByteRange) -> State {
    let mut intake = take(spool);
    write(&mut intake, range, 10_000);
    intake.commit(range, NOW).unwrap()
}

fn write(intake: &mut Intake, range: ByteRange, step: usize) {
    for start in (range.start..range.end).step_by(step) {
        intake.write_at(start, &z(ByteRange::new(start, (start + step as u64).min(range.end)))).unwrap();
    }
}

fn row(spool: &Spool) -> Upload {
    spool.get(ID).unwrap().unwrap()
}

/// The file that the only upload's bytes are in: the first segment, or its own.
fn file(folder: &Path) -> File {
    OpenOptions::new().read(true).write(true).open(path(folder)).unwrap()
}

fn path(folder: &Path) -> PathBuf {
    let own = folder.join("uploads/01").join(format!("{ID}.z"));
    if own.exists() { own } else { folder.join("uploads/segments/0.segment") }
}

fn spoil_disk(folder: &Path, at: u64) {
    let file = file(folder);
    let mut byte = [0];
    file.read_exact_at(&mut byte, at).unwrap();
    file.write_all_at(&[byte[0] ^ 4], at).unwrap();
}

fn read(spool: &Spool, range: ByteRange) -> Result<Vec<u8>, ReadError> {
    let mut bytes = vec![0; range.len() as usize];
    spool.payload(ID).unwrap().read_at(range.start, &mut bytes).map(|()| bytes)
}

fn damaged(spool: &Spool, range: ByteRange) -> ByteRange {
    match read(spool, range) {
        Err(ReadError::Damaged(range)) => range,
        other => panic!("{range} was read: {other:?}"),
    }
}

fn set(ranges: &[ByteRange]) -> RangeSet {
    ranges.iter().copied().collect()
}

fn whole() -> ByteRange {
    ByteRange::new(0, TOTAL)
}

#[test]
fn a_flipped_bit_in_any_record_is_noticed_by_whoever_reads_any_of_it() {
    for total in [Some(TOTAL), None] {
        flip_bits_of(total);
    }
}

/// Of an upload whose length is known before, in a segment; of one whose length is not, in a file of its own.
fn flip_bits_of(total: Option<u64>) {
    let folder = tempfile::tempdir().unwrap();
    let spool = open(folder.path());
    let Begin::Take(mut intake) = spool.begin(&Offer { total, ..offer() }).unwrap() else { panic!("it is new") };
    intake.set_total(TOTAL).unwrap();
    write(&mut intake, whole(), 10_000);
    intake.commit(whole(), NOW).unwrap();
    assert_eq!(read(&spool, whole()).unwrap(), z(whole()));
    for number in 0..4 {
        let bytes = record(number);
        for at in [bytes.start, bytes.start + bytes.len() / 2, bytes.end - 1] {
            spoil_disk(folder.path(), at);
            assert_eq!(damaged(&spool, whole()), bytes);
            assert_eq!(damaged(&spool, ByteRange::new(bytes.start + 3, bytes.start + 9)), bytes, "a part of it");
            let others = [0, 1, 2, 3].map(record).into_iter().filter(|other| *other != bytes);
            others.for_each(|other| assert_eq!(read(&spool, other).unwrap(), z(other)));
            assert_eq!(spool.payload(ID).unwrap().spoilt(whole()).unwrap(), set(&[bytes]).into());
            spoil_disk(folder.path(), at);
        }
    }
    assert!(read(&spool, whole()).is_ok());
}

/// Bytes of Z that are not in memory, from there on.
struct Elsewhere(u64);

impl Source for Elsewhere {
    fn put(&mut self, file: &File, offset: u64, len: u64, look: &mut dyn FnMut(&[u8])) -> io::Result<()> {
        assert_eq!(offset, self.0, "each goes to its place");
        self.0 += len;
        let bytes = z(ByteRange::new(offset, offset + len));
        bytes.chunks(9_999).for_each(look);
        file.write_all_at(&bytes, offset)
    }

    fn skip(&mut self, len: u64) -> io::Result<()> {
        self.0 += len;
        Ok(())
    }
}

#[test]
fn what_came_from_elsewhere_is_summed_up_and_overwrites_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let spool = open(folder.path());
    let (mut first, mut second) = (take(&spool), take(&spool));
    let theirs = record(1).start + 5;
    first.write_at(theirs, &[9; 45]).unwrap();
    second.write_from(0, record(2).end, &mut Elsewhere(0)).unwrap();
    second.write_from(record(2).end, TOTAL - record(2).end, &mut Elsewhere(record(2).end)).unwrap();
    assert!(second.write_from(TOTAL, 1, &mut Elsewhere(TOTAL)).is_err(), "there is no more");
    assert_eq!(second.commit(whole(), NOW).unwrap(), State::Stored);
    let mut expected = z(whole());
    expected[theirs as usize..][..45].fill(9);
    assert!(read(&spool, whole()).unwrap() == expected);
    for number in 0..4 {
        spoil_disk(folder.path(), record(number).end - 1);
        assert_eq!(damaged(&spool, record(number)), record(number));
    }
}

#[test]
fn a_spoilt_prelude_is_read_as_it_was() {
    let folder = tempfile::tempdir().unwrap();
    let spool = open(folder.path());
    put(&spool, whole());
    spoil_disk(folder.path(), 3);
    assert_eq!(read(&spool, whole()).unwrap(), z(whole()));
    assert_eq!(read(&spool, ByteRange::new(2, 5)).unwrap(), b"elu");
}

#[test]
fn a_file_that_was_cut_off_lacks_the_records_behind() {
    let folder = tempfile::tempdir().unwrap();
    let spool = open(folder.path());
    put(&spool, whole());
    file(folder.path()).set_len(record(2).start + 5).unwrap();
    assert_eq!(damaged(&spool, whole()), record(2));
    assert_eq!(spool.payload(ID).unwrap().spoilt(whole()).unwrap(), set(&[record(2), record(3)]).into());
    assert_eq!(read(&spool, record(1)).unwrap(), z(record(1)));
}

#[test]
fn a_link_or_a_fifo_in_the_place_of_a_file_is_damage_and_is_left_alone() {
    for (total, is_link) in [(Some(TOTAL), true), (Some(TOTAL), false), (None, true), (None, false)] {
        let folder = tempfile::tempdir().unwrap();
        let offer = Offer { total, ..offer() };
        let part = ByteRange::new(0, record(1).end);
        let spool = open(folder.path());
        let Begin::Take(mut intake) = spool.begin(&offer).unwrap() else { panic!("it is new") };
        intake.set_total(TOTAL).unwrap();
        write(&mut intake, part, 10_000);
        intake.commit(part, NOW).unwrap();
        drop((intake, spool));
        let (path, target) = (path(folder.path()), folder.path().join("target"));
        std::fs::rename(&path, &target).unwrap();
        let before = std::fs::read(&target).unwrap();
        match is_link {
            true => std::os::unix::fs::symlink(&target, &path).unwrap(),
            false => assert!(std::process::Command::new("mkfifo").arg(&path).status().unwrap().success()),
        }
        let spool = open(folder.path());
        let none = |error: &StoreError| error.to_string().ends_with("is no plain file");
        assert!(none(&spool.payload(ID).unwrap_err()));
        assert!(matches!(spool.begin(&offer).unwrap_err(), BeginError::Store(error) if none(&error)));
        drop(spool);
        let mut found = Vec::new();
        let mut on = |finding: &Finding| found.push((finding.what, finding.repaired));
        check(folder.path(), PRELUDE, Some(NOW), &mut on).unwrap();
        assert_eq!(found, [(Damage::FileMissing, false)]);
        let spool = open(folder.path());
        spool.spoil(ID, &set(&[record(0)]).into(), &Reason::new("spool-damaged", ""), NOW).unwrap();
        assert!(spool.change(ID, &Change { state: Some(State::Stopped), ..Change::default() }, NOW).unwrap().is_some());
        drop(spool);
        assert!(std::fs::read(&target).unwrap() == before);
    }
}

#[test]
fn a_link_in_the_place_of_a_new_file_keeps_its_target() {
    let folder = tempfile::tempdir().unwrap();
    let spool = open(folder.path());
    let target = folder.path().join("target");
    std::fs::write(&target, "kept").unwrap();
    let places = [format!("uploads/01/{ID}.z"), "uploads/segments/0.segment".into(), "uploads/segments/probe".into()];
    for place in &places {
        std::os::unix::fs::symlink(&target, folder.path().join(place)).unwrap();
    }
    for total in [None, Some(TOTAL)] {
        let refused = spool.begin(&Offer { total, ..offer() });
        assert!(matches!(refused, Err(BeginError::Store(StoreError::File(_)))), "{refused:?}");
    }
    drop(spool);
    drop(open(folder.path()));
    assert_eq!(std::fs::read(&target).unwrap(), b"kept");
}

#[test]
fn records_are_summed_up_whoever_wrote_them_in_whatever_pieces() {
    let folder = tempfile::tempdir().unwrap();
    let spool = open(folder.path());
    let (mut one, mut two) = (take(&spool), take(&spool));
    let middle = record(1).start + 1_000;
    write(&mut one, ByteRange::new(PRELUDE, middle), 3_333);
    write(&mut two, ByteRange::new(middle - 500, record(2).end), 50_000);
    one.commit(record(0), NOW).unwrap();
    two.commit(ByteRange::new(record(1).start, record(2).end), NOW).unwrap();
    // A sender that broke off has left some that nobody recorded; the next goes on from there.
    write(&mut one, ByteRange::new(record(3).start, TOTAL - 50), 7);
    drop((one, two));
    assert_eq!(put(&spool, record(3)), State::Stored);
    for number in 0..4 {
        spoil_disk(folder.path(), record(number).start + 30);
        assert_eq!(damaged(&spool, record(number)), record(number));
    }
}

#[test]
fn what_is_spoilt_goes_missing_is_said_and_comes_again() {
    let folder = tempfile::tempdir().unwrap();
    let quota = Settings { quota_bytes: Some(1_000_000), first_record: PRELUDE, ..Settings::new(folder.path()) };
    let mut spool = Spool::open(quota.clone()).unwrap();
    put(&spool, whole());
    let kept = spool.free_bytes().unwrap();
    let reason = Reason::new("spool-damaged", "bytes");
    spoil_disk(folder.path(), record(1).start);
    spool.spoil(ID, &set(&[record(1)]).into(), &reason, NOW).unwrap();
    assert_eq!(spool.free_bytes().unwrap(), kept + RECORD, "its room is free");
    let mut left = vec![7; RECORD as usize];
    file(folder.path()).read_exact_at(&mut left, record(1).start).unwrap();
    assert!(left.iter().all(|byte| *byte == 0), "on the disk as well");
    for reopened in [false, true] {
        if reopened {
            drop(spool);
            spool = Spool::open(quota.clone()).unwrap();
        }
        assert_eq!((row(&spool).state, row(&spool).reason), (State::Delivering, Some(reason.clone())), "not backwards");
        assert_eq!(
            row(&spool).stored,
            set(&[ByteRange::new(0, record(1).start), ByteRange::new(record(2).start, TOTAL)])
        );
        assert_eq!(spool.free_bytes().unwrap(), kept + RECORD);
    }
    assert_eq!(put(&spool, record(1)), State::Delivering);
    assert_eq!((row(&spool).reason, row(&spool).stored.len()), (None, TOTAL));
    assert_eq!(read(&spool, whole()).unwrap(), z(whole()));
    assert!(matches!(spool.begin(&offer()).unwrap(), Begin::Complete(_)));
    assert_eq!(spool.free_bytes().unwrap(), kept);
}

#[test]
fn what_is_left_of_a_spoilt_upload_is_due_and_what_is_not_there_is_not() {
    let folder = tempfile::tempdir().unwrap();
    let spool = open(folder.path());
    let due = || spool.due_of(NOW, Queue::Send, AddressKey::UNKNOWN, Place::START, 9).unwrap().len();
    put(&spool, whole());
    spool.spoil(ID, &set(&[record(3)]).into(), &Reason::new("spool-damaged", ""), NOW).unwrap();
    assert_eq!(due(), 1);
    let delivered = Some(set(&[ByteRange::new(0, record(3).start)]));
    spool.change(ID, &Change { delivered, ..Change::default() }, NOW).unwrap();
    assert_eq!(due(), 0, "the rest has to come first");
    put(&spool, record(3));
    assert_eq!(due(), 1);
}

#[test]
fn a_record_that_is_spoilt_under_a_senders_pen_is_written_anew() {
    let folder = tempfile::tempdir().unwrap();
    let spool = open(folder.path());
    let mut pen = take(&spool);
    write(&mut pen, ByteRange::new(PRELUDE, record(1).end), 65_536);
    pen.commit(record(0), NOW).unwrap();
    spoil_disk(folder.path(), record(0).start);
    spool.spoil(ID, &set(&[record(0)]).into(), &Reason::new("spool-damaged", ""), NOW).unwrap();
    assert!(matches!(pen.commit(record(0), NOW), Err(CommitError::NotWritten)));
    pen.commit(record(1), NOW).unwrap();
    write(&mut pen, record(0), 65_536);
    pen.commit(record(0), NOW).unwrap();
    drop(pen);
    assert_eq!(put(&spool, ByteRange::new(record(2).start, TOTAL)), State::Stored);
    assert_eq!(read(&spool, whole()).unwrap(), z(whole()));
}

#[test]
fn checksums_go_with_their_upload() {
    let folder = tempfile::tempdir().unwrap();
    let spool = open(folder.path());
    put(&spool, whole());
    drop(spool);
    let count = || {
        let db = rusqlite::Connection::open(folder.path().join("index.db")).unwrap();
        db.query_row("SELECT count(*) FROM sums", [], |row| row.get::<_, u32>(0)).unwrap()
    };
    assert_eq!(count(), 1);
    let spool = open(folder.path());
    spool.change(ID, &Change { state: Some(State::Accepted), ..Change::default() }, NOW).unwrap();
    drop(spool);
    assert_eq!(count(), 0);
}
