//! What is kept of uploads that came to their end, and whose goes first.
use hoop_spool::{Begin, Change, Offer, Settings, Spool, State};
use hoop_units::{AddressKey, ByteRange, UnixTime, UploadId};
use std::path::Path;

const NOW: UnixTime = UnixTime(1_000_000);
const ONE: AddressKey = AddressKey([1; 16]);
const TWO: AddressKey = AddressKey([2; 16]);

fn open(folder: &Path, quota: u64) -> Spool {
    Spool::open(Settings { sync: false, quota_bytes: Some(quota), ..Settings::new(folder) }).unwrap()
}

fn offer(number: u8, device: AddressKey) -> Offer {
    Offer {
        id: UploadId([number; 16]),
        prelude: b"prelude".to_vec(),
        total: Some(100),
        dest: "https://photos.example/hoop/post".into(),
        expires: NOW.plus_secs(1_000),
        device,
        deadline: None,
    }
}

/// Stores an upload and has it accepted, a second after the one before it, with so long an answer.
fn end(spool: &Spool, number: u8, device: AddressKey, answer: usize) {
    let Begin::Take(mut intake) = spool.begin(&offer(number, device)).unwrap() else { panic!("it is new") };
    intake.write_at(7, &[7; 93]).unwrap();
    intake.commit(ByteRange::new(7, 100), NOW).unwrap();
    drop(intake);
    finish(spool, number, answer);
}

fn finish(spool: &Spool, number: u8, answer: usize) {
    let answer = (answer > 0).then(|| vec![7; answer]);
    let change = Change { state: Some(State::Accepted), answer, ..Change::default() };
    spool.change(UploadId([number; 16]), &change, NOW.plus_secs(number.into())).unwrap();
}

/// The answer's length, if the row is there.
fn answer(spool: &Spool, number: u8) -> Option<usize> {
    spool.get(UploadId([number; 16])).unwrap().map(|upload| upload.answer.map_or(0, |answer| answer.len()))
}

#[test]
fn the_device_with_most_loses_its_oldest_answers_first() {
    let folder = tempfile::tempdir().unwrap();
    let mut spool = open(folder.path(), 400_000);
    end(&spool, 1, TWO, 10_000);
    for number in 2..40 {
        end(&spool, number, ONE, 30_000);
        assert!(spool.free_bytes().unwrap() >= 300_000, "a quarter at most is what has ended");
    }
    assert_eq!(answer(&spool, 1), Some(10_000), "the other device's is older, and stays");
    assert_eq!([2, 20].map(|number| answer(&spool, number)), [Some(0); 2], "their states are known still");
    assert_eq!([38, 39].map(|number| answer(&spool, number)), [Some(30_000); 2]);
    let free = spool.free_bytes().unwrap();
    assert!(free < 400_000, "it counts against the quota");
    drop(spool);
    spool = open(folder.path(), 400_000);
    assert_eq!(spool.free_bytes().unwrap(), free, "remembered");
    drop(spool);
    assert_eq!(hoop_spool::check(folder.path(), 0, None, &mut |_| {}).unwrap().findings, 0);
}

#[test]
fn rows_go_when_no_answers_are_left_and_their_uploads_may_come_again() {
    let folder = tempfile::tempdir().unwrap();
    let spool = open(folder.path(), 20_000);
    end(&spool, 1, TWO, 0);
    for number in 2..40 {
        end(&spool, number, ONE, 100);
    }
    assert_eq!([1, 39].map(|number| answer(&spool, number).is_some()), [true; 2]);
    assert_eq!([2, 20].map(|number| answer(&spool, number)), [None; 2]);
    assert!(matches!(spool.begin(&offer(2, ONE)).unwrap(), Begin::Take(_)), "the service knows that it has it");
}

#[test]
fn a_row_stays_as_long_as_somebody_sends_its_upload() {
    let folder = tempfile::tempdir().unwrap();
    let spool = open(folder.path(), 20_000);
    let Begin::Take(mut intake) = spool.begin(&offer(1, ONE)).unwrap() else { panic!("it is new") };
    intake.write_at(7, &[7; 50]).unwrap();
    intake.commit(ByteRange::new(7, 57), NOW).unwrap();
    finish(&spool, 1, 0);
    (2..40).for_each(|number| end(&spool, number, ONE, 0));
    assert_eq!([1, 2].map(|number| answer(&spool, number)), [Some(0), None]);
    intake.write_at(57, &[7; 43]).unwrap();
    assert!(intake.commit(ByteRange::new(57, 100), NOW).is_err(), "it has ended");
}
