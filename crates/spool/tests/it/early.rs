//! Uploads whose prelude comes after their records: what is kept of them, for how long, and how many.
use hoop_spool::{
    Begin, BeginError, EARLY_MAX, EARLY_SECS, Intake, KEEP_SECS, Offer, Place, Queue, Reason, Settings, Spool, State,
    UPLOAD_COST,
};
use hoop_units::{AddressKey, ByteRange, UnixTime, UploadId};
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

const NOW: UnixTime = UnixTime(1_000_000);
const PRELUDE: &[u8] = b"prelude";
const TOTAL: u64 = 100;
/// What may come early: all but the prelude and record 0.
const EARLY: ByteRange = ByteRange { start: 40, end: TOTAL };

fn ordinary(number: u8) -> Offer {
    Offer {
        id: UploadId([number; 16]),
        prelude: PRELUDE.to_vec(),
        total: Some(TOTAL),
        dest: "https://photos.example/hoop/post".into(),
        expires: UnixTime(NOW.0 + 1_000_000),
        device: AddressKey::UNKNOWN,
        deadline: None,
    }
}

fn early(number: u8) -> Offer {
    Offer { prelude: Vec::new(), expires: NOW.plus_secs(EARLY_SECS), ..ordinary(number) }
}

fn open(folder: &Path) -> Spool {
    Spool::open(Settings::new(folder)).unwrap()
}

fn take(spool: &Spool, offer: &Offer) -> Intake {
    match spool.begin(offer).unwrap() {
        Begin::Take(intake) => intake,
        Begin::Complete(upload) => panic!("{upload:?} is complete"),
    }
}

fn put(intake: &mut Intake, range: ByteRange) -> State {
    intake.write_at(range.start, &vec![7; range.len() as usize]).unwrap();
    intake.commit(range, NOW).unwrap()
}

fn due(spool: &Spool) -> usize {
    spool.due_of(NOW, Queue::Send, AddressKey::UNKNOWN, Place::START, 9).unwrap().len()
}

/// Blocks of 512 bytes that payloads take on the disk.
fn blocks(folder: &Path) -> u64 {
    let folders = std::fs::read_dir(folder.join("uploads")).unwrap();
    let files = folders.flat_map(|folder| std::fs::read_dir(folder.unwrap().path()).unwrap());
    files.map(|file| file.unwrap().metadata().unwrap().blocks()).sum()
}

#[test]
fn an_upload_is_whole_only_with_its_prelude_in_whatever_order_they_come() {
    for reopened in [false, true] {
        let folder = tempfile::tempdir().unwrap();
        let mut spool = open(folder.path());
        let mut first = Some(take(&spool, &early(1)));
        assert_eq!(put(first.as_mut().unwrap(), EARLY), State::Receiving);
        let known = spool.get(early(1).id).unwrap().unwrap();
        assert!(known.is_early() && due(&spool) == 0);
        assert_eq!(known.stored.to_string(), "40-99");
        if reopened {
            first = None;
            drop(spool);
            spool = open(folder.path());
        }
        let mut second = take(&spool, &ordinary(1));
        assert_eq!(put(&mut second, ByteRange::new(PRELUDE.len() as u64, 40)), State::Stored);
        let known = spool.get(early(1).id).unwrap().unwrap();
        assert_eq!((&known.prelude[..], known.expires), (PRELUDE, ordinary(1).expires));
        assert_eq!((known.stored.to_string().as_str(), due(&spool)), ("0-99", 1));
        let mut bytes = [0; 9];
        spool.payload(known.id).unwrap().read_at(0, &mut bytes).unwrap();
        assert_eq!(&bytes, b"prelude\x07\x07");
        drop((first, second));
        assert!(matches!(spool.begin(&early(1)), Ok(Begin::Complete(_))), "the early records come again");
    }
}

#[test]
fn a_prelude_that_comes_while_the_early_records_do_is_recorded_with_them() {
    let folder = tempfile::tempdir().unwrap();
    let quota = Some(UPLOAD_COST + 1_000);
    let spool = Spool::open(Settings { quota_bytes: quota, ..Settings::new(folder.path()) }).unwrap();
    let mut first = take(&spool, &early(1));
    let mut second = take(&spool, &ordinary(1));
    assert_eq!(put(&mut second, ByteRange::new(7, 40)), State::Receiving);
    assert!(!spool.get(early(1).id).unwrap().unwrap().is_early());
    assert_eq!(put(&mut first, EARLY), State::Stored);
    drop((first, second));
    assert_eq!(spool.free_bytes().unwrap(), 1_000 - TOTAL, "counted once");
}

#[test]
fn a_contradicting_prelude_total_or_destination_is_a_conflict() {
    let folder = tempfile::tempdir().unwrap();
    let spool = open(folder.path());
    put(&mut take(&spool, &early(1)), EARLY);
    for live in [false, true] {
        let _pen = live.then(|| take(&spool, &early(1)));
        for (offer, what) in [
            (Offer { total: Some(TOTAL + 1), ..ordinary(1) }, "total"),
            (Offer { dest: "https://evil.example/hoop/post".into(), ..ordinary(1) }, "destination"),
            (Offer { total: Some(TOTAL + 1), ..early(1) }, "total"),
        ] {
            assert!(matches!(spool.begin(&offer), Err(BeginError::Conflict(found)) if found == what), "{what}");
        }
        let stranger = Offer { device: AddressKey::from_ip([10, 0, 0, 9].into()), ..early(1) };
        assert!(matches!(spool.begin(&stranger), Err(BeginError::NotBegunHere)), "all that it shows is the id");
    }
    put(&mut take(&spool, &ordinary(1)), ByteRange::new(7, 20));
    let other = Offer { prelude: b"another".to_vec(), ..ordinary(1) };
    assert!(matches!(spool.begin(&other), Err(BeginError::Conflict("prelude"))));
}

#[test]
fn an_early_upload_without_its_prelude_is_dropped_and_gives_its_room_back() {
    let folder = tempfile::tempdir().unwrap();
    let quota = Settings { quota_bytes: Some(UPLOAD_COST + TOTAL + 1), ..Settings::new(folder.path()) };
    let spool = Spool::open(quota).unwrap();
    let pen = {
        let mut pen = take(&spool, &early(1));
        put(&mut pen, EARLY);
        pen
    };
    assert!(matches!(spool.begin(&ordinary(2)), Err(BeginError::Full { .. })));
    let (reason, after) = (Reason::new("upload-expired", ""), NOW.plus_secs(EARLY_SECS + 1));
    assert_eq!(spool.end(&reason, after, 1).unwrap(), 0, "not while a sender is at it");
    drop(pen);
    assert_eq!(spool.end(&reason, NOW.plus_secs(EARLY_SECS), 10).unwrap(), 0);
    assert_eq!((spool.end(&reason, after, 10).unwrap(), blocks(folder.path())), (1, 0));
    assert_eq!(spool.get(early(1).id).unwrap(), None);
    take(&spool, &ordinary(2));
    // With its prelude it would have stayed.
    put(&mut take(&spool, &early(3)), EARLY);
    put(&mut take(&spool, &ordinary(3)), ByteRange::new(7, 20));
    assert_eq!(spool.end(&reason, after, 10).unwrap(), 0);
    assert_eq!(spool.end(&reason, ordinary(3).expires.plus_secs(KEEP_SECS + 1), 10).unwrap(), 1);
}

#[test]
fn so_many_wait_for_their_preludes_and_no_more_also_after_a_restart() {
    let folder = tempfile::tempdir().unwrap();
    let mut spool = open(folder.path());
    let most = EARLY_MAX as u8;
    let full = |spool: &Spool| matches!(spool.begin(&early(most)), Err(BeginError::TooManyEarly(EARLY_MAX)));
    for number in 0..most {
        put(&mut take(&spool, &early(number)), EARLY);
    }
    assert!(full(&spool));
    drop(spool);
    spool = open(folder.path());
    assert!(full(&spool));
    put(&mut take(&spool, &early(0)), EARLY);
    take(&spool, &ordinary(most + 1));
    put(&mut take(&spool, &ordinary(0)), ByteRange::new(7, 20));
    let begun = take(&spool, &early(most));
    assert!(matches!(spool.begin(&early(most + 1)), Err(BeginError::TooManyEarly(_))), "also before its first commit");
    drop(begun);
    take(&spool, &early(most + 1));
}
