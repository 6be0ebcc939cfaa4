//! The spool's promises, one by one.
use hoop_spool::{
    AWAY_COST, Begin, BeginError, Change, CommitError, DueOf, Intake, KEEP_SECS, Offer, OpenError, Place, Queue,
    Reason, SPANS_MAX, Settings, Spool, State, UPLOAD_COST, WriteError,
};
use hoop_units::{AddressKey, ByteRange, UnixTime, UploadId};
use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

const NOW: UnixTime = UnixTime(1_000_000);

fn offer(number: u32, total: u64) -> Offer {
    let mut id = [0; 16];
    // Spread over the shards as random ids are.
    id[0] = number as u8;
    id[4..8].copy_from_slice(&number.to_be_bytes());
    Offer {
        id: UploadId(id),
        prelude: b"prelude".to_vec(),
        total: Some(total),
        dest: "https://photos.example/hoop/post".into(),
        expires: UnixTime(NOW.0 + 1_000),
        device: AddressKey::UNKNOWN,
        deadline: None,
    }
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

/// Stores all of an upload.
fn store(spool: &Spool, offer: &Offer) {
    let mut intake = take(spool, offer);
    let total = offer.total.unwrap();
    intake.write_at(0, &vec![7; total as usize]).unwrap();
    assert_eq!(intake.commit(ByteRange::new(0, total), NOW).unwrap(), State::Stored);
}

fn change(spool: &Spool, id: UploadId, state: State) -> Option<State> {
    spool.change(id, &Change { state: Some(state), ..Change::default() }, NOW).unwrap()
}

/// What is due, of the one device there is.
fn due(spool: &Spool, now: UnixTime, queue: Queue, from: Place, limit: usize) -> Vec<DueOf> {
    spool.due_of(now, queue, AddressKey::UNKNOWN, from, limit).unwrap()
}

#[test]
fn one_spool_has_one_owner() {
    let folder = tempfile::tempdir().unwrap();
    let spool = open(folder.path());
    assert!(matches!(Spool::open(Settings::new(folder.path())), Err(OpenError::Locked(_))));
    drop(spool);
    open(folder.path());
}

#[test]
fn an_index_that_is_none_is_an_error_and_not_overwritten() {
    let folder = tempfile::tempdir().unwrap();
    drop(open(folder.path()));
    let path = folder.path().join("index.db");
    std::fs::remove_file(folder.path().join("index.db-wal")).ok();
    std::fs::write(&path, vec![b'x'; 8192]).unwrap();
    assert!(matches!(Spool::open(Settings::new(folder.path())), Err(OpenError::Index { .. })));
    assert_eq!(std::fs::read(&path).unwrap(), vec![b'x'; 8192]);
}

#[test]
fn another_prelude_total_or_destination_under_the_same_id_is_a_conflict() {
    let folder = tempfile::tempdir().unwrap();
    let spool = open(folder.path());
    let first = offer(1, 100);
    let others = [
        (Offer { prelude: b"another".to_vec(), ..first.clone() }, "prelude"),
        (Offer { total: Some(101), ..first.clone() }, "total"),
        (Offer { dest: "https://evil.example/hoop/post".into(), ..first.clone() }, "destination"),
    ];
    let check = |spool: &Spool| {
        for (other, what) in &others {
            let error = spool.begin(other).unwrap_err();
            assert!(matches!(error, BeginError::Conflict(found) if found == *what), "{error}");
        }
    };
    let mut intake = take(&spool, &first);
    check(&spool);
    intake.write_at(0, &[7; 50]).unwrap();
    intake.commit(ByteRange::new(0, 50), NOW).unwrap();
    drop(intake);
    check(&spool);
    store(&spool, &first);
    check(&spool);
    assert!(matches!(spool.begin(&first).unwrap(), Begin::Complete(upload) if upload.state == State::Stored));
}

#[test]
fn what_is_not_committed_does_not_count_and_leaves_no_file() {
    let folder = tempfile::tempdir().unwrap();
    let spool = open(folder.path());
    let offer = offer(1, 100);
    let mut intake = take(&spool, &offer);
    intake.write_at(0, &[7; 100]).unwrap();
    assert_eq!(spool.get(offer.id).unwrap(), None);
    drop(intake);
    assert!(spool.payload(offer.id).is_err());
    store(&spool, &offer);
}

#[test]
fn a_range_that_was_never_written_is_not_recorded() {
    let folder = tempfile::tempdir().unwrap();
    let spool = open(folder.path());
    let mut intake = take(&spool, &offer(1, 100));
    intake.write_at(0, &[7; 50]).unwrap();
    assert!(matches!(intake.commit(ByteRange::new(0, 51), NOW), Err(CommitError::NotWritten)));
    assert!(matches!(intake.write_at(90, &[7; 11]), Err(WriteError::PastTotal { last: 100, total: 100 })));
}

#[test]
fn the_quota_counts_what_is_kept_written_and_promised() {
    let folder = tempfile::tempdir().unwrap();
    let settings = Settings { quota_bytes: Some(UPLOAD_COST + 1_000), ..Settings::new(folder.path()) };
    let spool = Spool::open(settings.clone()).unwrap();
    store(&spool, &offer(1, 400));
    assert_eq!(spool.free_bytes().unwrap(), 600);
    let mut coming = take(&spool, &offer(2, 500));
    assert_eq!(spool.free_bytes().unwrap(), 100, "promised");
    coming.write_at(0, &[7; 300]).unwrap();
    assert_eq!(spool.free_bytes().unwrap(), 100, "written");
    let error = spool.begin(&offer(3, 101)).unwrap_err();
    assert!(matches!(error, BeginError::Full { need: 94, free: 93 }), "{error}");
    drop(coming);
    assert_eq!(spool.free_bytes().unwrap(), 600, "given back");
    drop(spool);
    let spool = Spool::open(settings.clone()).unwrap();
    assert_eq!(spool.free_bytes().unwrap(), 600, "remembered");
    change(&spool, offer(1, 400).id, State::Held);
    let row = UPLOAD_COST + 1_000 - AWAY_COST;
    assert_eq!(spool.free_bytes().unwrap(), row, "at its service: a row is left");
    drop(spool);
    let spool = Spool::open(settings.clone()).unwrap();
    assert_eq!(spool.free_bytes().unwrap(), row, "remembered");
    change(&spool, offer(1, 400).id, State::Accepted);
    let free = spool.free_bytes().unwrap();
    assert!((UPLOAD_COST..UPLOAD_COST + 1_000).contains(&free), "freed, but for the row of what has ended: {free}");
    drop(spool);
    assert_eq!(Spool::open(settings).unwrap().free_bytes().unwrap(), free, "remembered");
}

#[test]
fn many_short_uploads_take_no_more_of_the_disk_than_the_quota() {
    const QUOTA: u64 = 1 << 20;
    let folder = tempfile::tempdir().unwrap();
    let settings = Settings { quota_bytes: Some(QUOTA), sync: false, ..Settings::new(folder.path()) };
    let spool = Spool::open(settings).unwrap();
    let empty = occupied(folder.path());
    let full = (0..).find(|number| match spool.begin(&offer(*number, 40)) {
        Ok(Begin::Take(mut intake)) => {
            intake.write_at(0, &[7; 40]).unwrap();
            intake.commit(ByteRange::new(0, 40), NOW).unwrap();
            false
        }
        Err(BeginError::Full { .. }) => true,
        other => panic!("{other:?}"),
    });
    let taken = occupied(folder.path()) - empty;
    assert!(full.is_some_and(|number| u64::from(number) >= QUOTA / 10_000), "{full:?} uploads are few");
    assert!(taken <= QUOTA, "{taken} bytes of the disk");
}

/// What a folder takes of the disk, in bytes.
fn occupied(folder: &Path) -> u64 {
    let sizes =
        fs::read_dir(folder).unwrap().map(|entry| entry.unwrap()).map(|entry| match entry.metadata().unwrap() {
            metadata if metadata.is_dir() => occupied(&entry.path()),
            metadata => metadata.blocks() * 512,
        });
    sizes.sum()
}

#[test]
fn a_huge_claimed_length_takes_little_room_and_sent_bytes_still_find_room() {
    const MIB: u64 = 1 << 20;
    let folder = tempfile::tempdir().unwrap();
    let spool = Spool::open(Settings { quota_bytes: Some(300 * MIB), ..Settings::new(folder.path()) }).unwrap();
    let liars = [take(&spool, &offer(1, 300 * MIB)), take(&spool, &offer(2, 230 * MIB))];
    let preludes = 2 * offer(1, 0).prelude.len() as u64;
    assert_eq!(spool.free_bytes().unwrap(), 172 * MIB - preludes, "64 MiB each");
    assert!(
        matches!(spool.begin(&offer(3, 173 * MIB)), Err(BeginError::Full { .. })),
        "what cannot fit is refused at once"
    );
    let honest = offer(4, 80 * MIB);
    let mut intake = take(&spool, &honest);
    for at in 0..80 {
        intake.write_at(at * MIB, &vec![7; MIB as usize]).unwrap();
    }
    assert_eq!(intake.commit(ByteRange::new(0, 80 * MIB), NOW).unwrap(), State::Stored);
    drop((intake, liars));
    assert_eq!(spool.free_bytes().unwrap(), 220 * MIB - UPLOAD_COST, "only what is stored is taken");
}

#[test]
fn a_sender_that_does_not_tell_its_length_is_held_to_the_quota_too() {
    let folder = tempfile::tempdir().unwrap();
    let quota = Some(UPLOAD_COST + 1_000);
    let spool = Spool::open(Settings { quota_bytes: quota, ..Settings::new(folder.path()) }).unwrap();
    let unknown = Offer { total: None, ..offer(1, 0) };
    let mut intake = take(&spool, &unknown);
    intake.write_at(0, &[7; 900]).unwrap();
    assert!(matches!(intake.write_at(900, &[7; UPLOAD_COST as usize + 200]), Err(WriteError::Full)));
    intake.set_total(900).unwrap();
    assert_eq!(intake.commit(ByteRange::new(0, 900), NOW).unwrap(), State::Stored);
    drop(intake);
    assert_eq!(spool.free_bytes().unwrap(), 100);
}

#[test]
fn two_senders_that_tell_different_lengths_are_told_apart() {
    let folder = tempfile::tempdir().unwrap();
    let spool = open(folder.path());
    let unknown = Offer { total: None, ..offer(1, 0) };
    let (mut one, two) = (take(&spool, &unknown), take(&spool, &unknown));
    one.write_at(0, &[7; 100]).unwrap();
    assert!(matches!(two.set_total(99), Err(CommitError::Conflict("total"))), "there is more already");
    one.set_total(100).unwrap();
    assert!(matches!(two.set_total(101), Err(CommitError::Conflict("total"))));
}

#[test]
fn gaps_beyond_the_limit_are_refused_and_filling_them_is_not() {
    let folder = tempfile::tempdir().unwrap();
    let spool = Spool::open(Settings { sync: false, ..Settings::new(folder.path()) }).unwrap();
    let offer = offer(1, 1_000_000);
    let mut intake = take(&spool, &offer);
    let span = |i: usize| ByteRange::new(100 + 10 * i as u64, 105 + 10 * i as u64);
    for i in 0..SPANS_MAX - 1 {
        intake.write_at(span(i).start, &[7; 5]).unwrap();
        intake.commit(span(i), NOW).unwrap();
    }
    intake.write_at(span(SPANS_MAX).start, &[7; 5]).unwrap();
    let error = intake.commit(span(SPANS_MAX), NOW).unwrap_err();
    assert!(matches!(error, CommitError::TooManySpans(_)), "{error}");
    intake.write_at(105, &[7; 5]).unwrap();
    intake.commit(ByteRange::new(105, 110), NOW).unwrap();
    intake.commit(span(SPANS_MAX), NOW).unwrap();
}

#[test]
fn unrecorded_bytes_take_no_disk_once_their_sender_has_gone() {
    let folder = tempfile::tempdir().unwrap();
    let spool = Spool::open(Settings { sync: false, ..Settings::new(folder.path()) }).unwrap();
    let mut intake = take(&spool, &offer(1, 8 << 20));
    intake.write_at(0, &[7; 65_536]).unwrap();
    intake.commit(ByteRange::new(0, 65_536), NOW).unwrap();
    intake.write_at(1 << 20, &vec![7; 4 << 20]).unwrap();
    let id = offer(1, 0).id;
    let file = folder.path().join("uploads").join(&id.to_hex()[..2]).join(format!("{id}.z"));
    let on_disk = || fs::metadata(&file).unwrap().blocks() * 512;
    assert!(on_disk() >= 4 << 20);
    drop(intake);
    assert!(on_disk() < 1 << 20, "{} bytes are on disk", on_disk());
    assert_eq!(take(&spool, &offer(1, 8 << 20)).stored().len(), 65_536);
}

#[test]
fn a_final_state_stays_and_takes_the_payload_with_it() {
    let folder = tempfile::tempdir().unwrap();
    let spool = open(folder.path());
    let offer = offer(1, 100);
    store(&spool, &offer);
    for state in [State::Delivering, State::Stored, State::Received, State::Delivering] {
        change(&spool, offer.id, state);
    }
    assert_eq!(spool.get(offer.id).unwrap().unwrap().state, State::Received);
    assert!(spool.payload(offer.id).is_ok());
    assert_eq!(change(&spool, offer.id, State::Held), Some(State::Held));
    assert!(spool.payload(offer.id).is_err(), "the service has it and waits for a person");
    assert_eq!(change(&spool, offer.id, State::Rejected), Some(State::Rejected));
    assert_eq!(change(&spool, offer.id, State::Accepted), Some(State::Rejected));
    let upload = spool.get(offer.id).unwrap().unwrap();
    assert_eq!((upload.finished_at, upload.next_attempt), (Some(NOW), None));
    assert_eq!(change(&spool, UploadId([9; 16]), State::Accepted), None);
}

#[test]
fn what_is_due_comes_oldest_first_page_by_page() {
    let folder = tempfile::tempdir().unwrap();
    let spool = Spool::open(Settings { sync: false, ..Settings::new(folder.path()) }).unwrap();
    for number in 0..20 {
        store(&spool, &offer(number, if number % 2 == 0 { 100 } else { 1 << 20 }));
    }
    let first = due(&spool, NOW, Queue::Send, Place::START, 15);
    let rest = due(&spool, NOW, Queue::Send, first[14].place, 15);
    let ids: Vec<UploadId> = first.iter().chain(&rest).map(|due| due.id).collect();
    assert_eq!(ids, (0..20).map(|number| offer(number, 0).id).collect::<Vec<_>>());
    assert_eq!(due(&spool, NOW, Queue::Small, Place::START, 50).len(), 10);
    change(&spool, ids[0], State::Received);
    assert_eq!(due(&spool, NOW, Queue::Ask, Place::START, 50).len(), 1);
    assert_eq!(due(&spool, NOW, Queue::Send, Place::START, 50).len(), 19);
}

#[test]
fn what_a_clock_set_back_made_due_in_years_is_due_now() {
    let folder = tempfile::tempdir().unwrap();
    let spool = open(folder.path());
    store(&spool, &offer(1, 100));
    let soon = Change { next_attempt: Some(UnixTime(NOW.0 + 6 * 3_600)), ..Change::default() };
    spool.change(offer(1, 0).id, &soon, NOW).unwrap();
    let count = |now| due(&spool, now, Queue::Send, Place::START, 9).len();
    assert_eq!(count(NOW), 0, "six hours is a wait that exists");
    assert_eq!(count(UnixTime(NOW.0 - 365 * 1_000)), 1);
}

#[test]
fn an_upload_expires_a_week_after_its_ticket_and_is_forgotten_after_two() {
    let folder = tempfile::tempdir().unwrap();
    let spool = open(folder.path());
    let reason = Reason::new("upload-expired", "too late");
    let offer = offer(1, 100);
    store(&spool, &offer);
    let end = offer.expires.plus_secs(KEEP_SECS);
    spool.end(&reason, end, 10).unwrap();
    assert_eq!(spool.get(offer.id).unwrap().unwrap().state, State::Stored, "a second early");
    let over = end.plus_secs(1);
    spool.end(&reason, over, 10).unwrap();
    let expired = spool.get(offer.id).unwrap().unwrap();
    assert_eq!((expired.state, expired.reason), (State::Expired, Some(reason.clone())));
    assert!(spool.payload(offer.id).is_err());
    spool.end(&reason, over.plus_secs(KEEP_SECS), 10).unwrap();
    assert!(spool.get(offer.id).unwrap().is_some(), "whoever asks again is told for a week");
    spool.end(&reason, over.plus_secs(KEEP_SECS + 1), 10).unwrap();
    assert_eq!(spool.get(offer.id).unwrap(), None);
}

#[test]
fn an_upload_does_not_expire_under_its_senders_pen() {
    let folder = tempfile::tempdir().unwrap();
    let spool = open(folder.path());
    let offer = offer(1, 100);
    let mut intake = take(&spool, &offer);
    intake.write_at(0, &[7; 50]).unwrap();
    intake.commit(ByteRange::new(0, 50), NOW).unwrap();
    let over = offer.expires.plus_secs(KEEP_SECS + 1);
    spool.end(&Reason::new("upload-expired", ""), over, 10).unwrap();
    intake.write_at(50, &[7; 50]).unwrap();
    assert_eq!(intake.commit(ByteRange::new(50, 100), over).unwrap(), State::Stored);
}

#[test]
fn the_sweep_removes_segments_whose_uploads_have_ended_and_no_others() {
    let folder = tempfile::tempdir().unwrap();
    let count = || std::fs::read_dir(folder.path().join("uploads/segments")).unwrap().count();
    let mut spool = open(folder.path());
    // Each start begins another segment.
    for number in 1..=3 {
        store(&spool, &offer(number, 100));
        drop(spool);
        spool = open(folder.path());
    }
    assert_eq!(count(), 3);
    let accepted = Change { state: Some(State::Accepted), ..Change::default() };
    spool.change_soon(offer(2, 100).id, &accepted, NOW).unwrap();
    spool.sweep(0).unwrap();
    assert_eq!(count(), 2);
    assert!([1, 3].into_iter().all(|number| spool.payload(offer(number, 100).id).is_ok()));
    let payload = spool.payload(offer(1, 100).id).unwrap();
    spool.change(offer(1, 100).id, &accepted, NOW).unwrap();
    spool.sweep(0).unwrap();
    assert_eq!(count(), 2, "somebody reads it");
    payload.read_at(0, &mut [0; 100]).unwrap();
    drop(payload);
    spool.sweep(0).unwrap();
    assert_eq!(count(), 1);
}

#[test]
fn the_sweep_removes_files_that_no_row_counts_and_no_others() {
    let folder = tempfile::tempdir().unwrap();
    let spool = open(folder.path());
    let (kept, live, gone) = (offer(0x107, 100), offer(0x207, 100), offer(0x307, 100));
    store(&spool, &kept);
    let mut intake = take(&spool, &live);
    let orphan = folder.path().join("uploads/07").join(format!("{}.z", gone.id));
    std::fs::write(&orphan, b"left by a crash").unwrap();
    let stranger = folder.path().join("uploads/07/README");
    std::fs::write(&stranger, b"not ours").unwrap();
    assert_eq!(spool.sweep(7).unwrap(), 1);
    assert!(!orphan.exists() && stranger.exists() && spool.payload(kept.id).is_ok());
    intake.write_at(0, &[7; 100]).unwrap();
    intake.commit(ByteRange::new(0, 100), NOW).unwrap();
    assert_eq!(spool.sweep(7).unwrap(), 0);
}

#[test]
fn a_row_whose_file_is_missing_is_reported_and_nothing_panics() {
    for total in [Some(100), None] {
        let folder = tempfile::tempdir().unwrap();
        let spool = open(folder.path());
        let offer = Offer { total, ..offer(1, 100) };
        let mut intake = take(&spool, &offer);
        intake.set_total(100).unwrap();
        intake.write_at(0, &[7; 50]).unwrap();
        intake.commit(ByteRange::new(0, 50), NOW).unwrap();
        drop(intake);
        let path = match total {
            Some(_) => folder.path().join("uploads/segments/0.segment"),
            None => folder.path().join("uploads/01").join(format!("{}.z", offer.id)),
        };
        // Nobody has it open any more but this process, until the next start.
        drop(spool);
        std::fs::remove_file(path).unwrap();
        let spool = open(folder.path());
        assert!(matches!(spool.begin(&offer), Err(BeginError::Store(_))));
        assert!(spool.payload(offer.id).is_err());
    }
}

#[test]
fn only_the_owner_can_read_the_folder() {
    use std::os::unix::fs::PermissionsExt as _;
    let parent = tempfile::tempdir().unwrap();
    let folder = parent.path().join("spool");
    let spool = open(&folder);
    store(&spool, &offer(1, 100));
    let mode = |path: &Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o077;
    assert_eq!(mode(&folder), 0);
    assert_eq!(mode(&folder.join("uploads/01")), 0);
}

#[test]
fn two_senders_that_leave_together_leave_nothing_behind() {
    let folder = tempfile::tempdir().unwrap();
    let spool = open(folder.path());
    let path = |offer: &Offer| folder.path().join("uploads/01").join(format!("{}.z", offer.id));
    for round in 0..2_000 {
        let offer = Offer { prelude: format!("prelude {round}").into_bytes(), ..offer(1, 100) };
        let start = std::sync::Barrier::new(2);
        let (one, two) = (take(&spool, &offer), take(&spool, &offer));
        std::thread::scope(|scope| {
            for intake in [one, two] {
                let start = &start;
                scope.spawn(move || {
                    start.wait();
                    drop(intake);
                });
            }
        });
        assert!(!path(&offer).exists(), "nothing of it was recorded (round {round})");
    }
}

#[test]
fn a_reader_of_the_latest_uploads_lets_others_use_the_index_in_between() {
    let folder = tempfile::tempdir().unwrap();
    let spool = open(folder.path());
    (1..=200).for_each(|number| store(&spool, &offer(number, 100)));
    let (begun, others) = (Barrier::new(2), AtomicBool::new(false));
    let looked = std::thread::scope(|threads| {
        threads.spawn(|| {
            begun.wait();
            spool.tally().unwrap();
            others.store(true, Ordering::Relaxed);
        });
        let seen = AtomicUsize::new(0);
        spool.recent(150, |_| {
            if seen.fetch_add(1, Ordering::Relaxed) == 0 {
                begun.wait();
            }
            std::thread::sleep(Duration::from_millis(2));
            others.load(Ordering::Relaxed)
        })
    });
    let looked = looked.unwrap();
    assert_eq!((looked.len(), looked[0], looked[149]), (150, false, true));
}

#[test]
fn the_latest_uploads_come_newest_first_and_each_change_is_a_new_revision() {
    let folder = tempfile::tempdir().unwrap();
    let spool = open(folder.path());
    let mut revision = spool.revision();
    let mut grew = |what: &str| {
        assert!(spool.revision() > revision, "{what}");
        revision = spool.revision();
    };
    for number in 1..=5 {
        store(&spool, &offer(number, 100));
        grew("stored");
    }
    let latest = spool.recent(3, |upload| upload.id.as_bytes()[0]).unwrap();
    assert_eq!(latest, [5, 4, 3]);
    let accepted = Change { state: Some(State::Accepted), ..Change::default() };
    spool.change(offer(5, 100).id, &accepted, NOW).unwrap();
    grew("changed");
    let reason = Reason::new("upload-expired", "over");
    spool.end(&reason, UnixTime(u32::MAX), 9).unwrap();
    grew("ended");
    assert_eq!(spool.kept_bytes(), 0);
}
