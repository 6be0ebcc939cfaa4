//! Whose uploads they are: the order in which a device's are due, what it holds here, and what is due before all of it has come.
use hoop_spool::{Begin, BeginError, Change, Held, Intake, Offer, Place, Queue, Settings, Spool, State};
use hoop_units::{AddressKey, ByteRange, RangeSet, UnixTime, UploadId};
use std::path::Path;

const NOW: UnixTime = UnixTime(1_000_000);
const ONE: AddressKey = AddressKey([1; 16]);
const TWO: AddressKey = AddressKey([2; 16]);

fn offer(number: u8, device: AddressKey, deadline: Option<u32>) -> Offer {
    Offer {
        id: UploadId([number; 16]),
        prelude: b"prelude".to_vec(),
        total: Some(100),
        dest: "https://photos.example/hoop/post".into(),
        expires: UnixTime(NOW.0 + 1_000),
        device,
        deadline: deadline.map(|secs| NOW.plus_secs(secs)),
    }
}

fn open(folder: &Path) -> Spool {
    Spool::open(Settings { cut_through: true, sync: false, ..Settings::new(folder) }).unwrap()
}

fn take(spool: &Spool, offer: &Offer) -> Intake {
    match spool.begin(offer).unwrap() {
        Begin::Take(intake) => intake,
        Begin::Complete(upload) => panic!("{upload:?} is complete"),
    }
}

fn put(spool: &Spool, offer: &Offer, start: u64, end: u64) -> State {
    let mut intake = take(spool, offer);
    intake.write_at(start, &vec![7; (end - start) as usize]).unwrap();
    intake.commit(ByteRange::new(start, end), NOW).unwrap()
}

fn store(spool: &Spool, offer: &Offer) {
    assert_eq!(put(spool, offer, 0, 100), State::Stored);
}

fn change(spool: &Spool, number: u8, change: Change) -> State {
    spool.change(UploadId([number; 16]), &change, NOW).unwrap().unwrap()
}

fn due(spool: &Spool, now: UnixTime, device: AddressKey) -> Vec<u8> {
    let page = spool.due_of(now, Queue::Send, device, Place::START, 99).unwrap();
    page.into_iter().map(|due| due.id.as_bytes()[0]).collect()
}

fn ranges(start: u64, end: u64) -> RangeSet {
    [ByteRange::new(start, end)].into_iter().collect()
}

#[test]
fn a_devices_earliest_deadline_is_due_first_then_its_oldest_page_by_page() {
    let folder = tempfile::tempdir().unwrap();
    let spool = open(folder.path());
    for (number, deadline) in [(1, None), (2, Some(50)), (3, None), (4, Some(20)), (5, Some(50))] {
        store(&spool, &offer(number, ONE, deadline));
    }
    let mut seen = Vec::new();
    let mut place = Place::START;
    loop {
        let page = spool.due_of(NOW, Queue::Send, ONE, place, 2).unwrap();
        let Some(last) = page.last() else { break };
        place = last.place;
        seen.extend(page.iter().map(|due| (due.id.as_bytes()[0], due.deadline.map(|at| at.since(NOW)))));
    }
    assert_eq!(seen, [(4, Some(20)), (2, Some(50)), (5, Some(50)), (1, None), (3, None)]);
}

#[test]
fn devices_with_something_due_come_in_order_and_each_once() {
    let folder = tempfile::tempdir().unwrap();
    let spool = open(folder.path());
    for number in 0..9 {
        store(&spool, &offer(number, AddressKey([number % 3; 16]), None));
    }
    let devices = |after, limit| spool.due_devices(NOW, Queue::Small, after, limit).unwrap();
    assert_eq!(devices(None, 9), [AddressKey::UNKNOWN, ONE, TWO]);
    assert_eq!(devices(None, 2), [AddressKey::UNKNOWN, ONE]);
    assert_eq!(devices(Some(ONE), 2), [TWO]);
    assert_eq!(devices(Some(TWO), 2), []);
    assert_eq!(spool.due_devices(NOW, Queue::Ask, None, 9).unwrap(), []);
    for number in [1, 4, 7] {
        change(&spool, number, Change { state: Some(State::Received), ..Change::default() });
    }
    assert_eq!(devices(None, 9), [AddressKey::UNKNOWN, TWO]);
    assert_eq!(spool.due_devices(NOW, Queue::Ask, None, 9).unwrap(), [ONE]);
}

#[test]
fn what_was_put_off_is_not_due_before_its_time_and_waits_for_nobody_then() {
    let folder = tempfile::tempdir().unwrap();
    let spool = open(folder.path());
    (1..=3).for_each(|number| store(&spool, &offer(number, ONE, None)));
    assert_eq!(due(&spool, NOW, ONE), [1, 2, 3]);
    change(&spool, 1, Change { next_attempt: Some(NOW.plus_secs(30)), ..Change::default() });
    assert_eq!(due(&spool, NOW.plus_secs(29), ONE), [2, 3]);
    assert_eq!(spool.next_due(NOW).unwrap(), Some(NOW.plus_secs(30)));
    assert_eq!(due(&spool, NOW.plus_secs(30), ONE), [1, 2, 3]);
    assert_eq!(spool.next_due(NOW).unwrap(), None);
    // Put off before the clock was set back: due now.
    change(&spool, 2, Change { next_attempt: Some(NOW.plus_secs(8 * 3_600)), ..Change::default() });
    assert_eq!(due(&spool, NOW, ONE), [1, 2, 3]);
    // Put off to the very second that was looked at last.
    change(&spool, 3, Change { next_attempt: Some(NOW), ..Change::default() });
    assert_eq!(due(&spool, NOW, ONE), [1, 2, 3]);
}

#[test]
fn more_than_one_batch_ripens_at_once() {
    let folder = tempfile::tempdir().unwrap();
    let spool = open(folder.path());
    for number in 0..1_100_u32 {
        let mut id = [0; 16];
        id[..4].copy_from_slice(&number.to_be_bytes());
        let offer = Offer { id: UploadId(id), ..offer(0, ONE, None) };
        store(&spool, &offer);
        let later = Change { next_attempt: Some(NOW.plus_secs(5)), ..Change::default() };
        spool.change(offer.id, &later, NOW).unwrap();
    }
    let count = |now| spool.due_of(now, Queue::Send, ONE, Place::START, 9_999).unwrap().len();
    assert_eq!((count(NOW), count(NOW.plus_secs(5))), (0, 1_100));
}

#[test]
fn the_first_sender_is_the_device_and_the_last_deadline_counts() {
    let folder = tempfile::tempdir().unwrap();
    let spool = open(folder.path());
    let row = || spool.get(UploadId([1; 16])).unwrap().unwrap();
    let early = Offer { prelude: Vec::new(), ..offer(1, ONE, Some(90)) };
    put(&spool, &early, 60, 70);
    assert_eq!((row().device, row().deadline), (ONE, Some(NOW.plus_secs(90))));
    put(&spool, &offer(1, TWO, None), 7, 20);
    assert_eq!((row().device, row().deadline), (ONE, Some(NOW.plus_secs(90))), "who says none changes none");
    let live = take(&spool, &offer(1, TWO, None));
    put(&spool, &offer(1, TWO, Some(50)), 20, 60);
    drop(live);
    assert_eq!((row().device, row().deadline), (ONE, Some(NOW.plus_secs(50))));
    put(&spool, &offer(1, ONE, None), 70, 100);
    let Begin::Complete(upload) = spool.begin(&offer(1, ONE, Some(10))).unwrap() else { panic!("it is whole") };
    assert_eq!(
        (upload.deadline, row().deadline),
        (Some(NOW.plus_secs(10)), Some(NOW.plus_secs(10))),
        "also when whole"
    );
    assert_eq!(spool.due_of(NOW, Queue::Send, ONE, Place::START, 9).unwrap()[0].deadline, Some(NOW.plus_secs(10)));
    change(&spool, 1, Change { state: Some(State::Accepted), ..Change::default() });
    spool.begin(&offer(1, ONE, Some(20))).unwrap();
    assert_eq!(row().deadline, Some(NOW.plus_secs(10)), "what is over has none to keep");
}

#[test]
fn a_device_holds_what_is_kept_of_its_uploads_and_what_it_is_sending() {
    let folder = tempfile::tempdir().unwrap();
    let mut spool = open(folder.path());
    let held = |spool: &Spool| [ONE, TWO].map(|device| spool.held_by(device).unwrap());
    let of = |uploads, bytes| Held { uploads, bytes, ..Held::default() };
    let away = |held, away| Held { away, ..held };
    assert_eq!(held(&spool), [of(0, 0), of(0, 0)]);
    store(&spool, &offer(1, ONE, None));
    store(&spool, &offer(2, ONE, None));
    put(&spool, &offer(3, TWO, None), 0, 40);
    assert_eq!(held(&spool), [of(2, 200), of(1, 40)]);
    let pens = [take(&spool, &offer(3, ONE, None)), take(&spool, &offer(4, TWO, None))];
    assert_eq!(held(&spool), [of(2, 200), of(2, 200)], "room is promised for what is missing, to whoever began");
    drop(pens);
    put(&spool, &offer(3, TWO, None), 40, 60);
    assert_eq!(held(&spool), [of(2, 200), of(1, 60)]);
    change(&spool, 1, Change { state: Some(State::Held), ..Change::default() });
    change(&spool, 2, Change { state: Some(State::Delivering), ..Change::default() });
    drop(spool);
    spool = open(folder.path());
    assert_eq!(held(&spool), [away(of(1, 100), 1), of(1, 60)], "remembered; of one the service has everything");
    change(&spool, 2, Change { state: Some(State::Received), ..Change::default() });
    change(&spool, 3, Change { state: Some(State::Expired), ..Change::default() });
    assert_eq!(held(&spool), [away(of(1, 100), 1), of(0, 0)], "until it says more, its bytes stay");
    change(&spool, 2, Change { state: Some(State::Held), ..Change::default() });
    assert_eq!(held(&spool), [away(of(0, 0), 2), of(0, 0)]);
    change(&spool, 1, Change { state: Some(State::Rejected), ..Change::default() });
    assert_eq!(held(&spool), [away(of(0, 0), 1), of(0, 0)]);
    change(&spool, 2, Change { state: Some(State::Accepted), ..Change::default() });
    assert_eq!(held(&spool), [of(0, 0), of(0, 0)]);
}

#[test]
fn devices_that_begin_at_once_are_weighed_one_after_another() {
    const SENDERS: u8 = 8;
    let folder = tempfile::tempdir().unwrap();
    let spool = open(folder.path());
    for round in 0..200 {
        let start = std::sync::Barrier::new(SENDERS.into());
        let begin = |number| {
            start.wait();
            let begun = spool.begin_if(&offer(number, ONE, None), |_, held_by| match held_by(ONE)?.bytes {
                // The prelude of another that is just beginning is there before its room is.
                0..100 => Ok(()),
                bytes => Err(BeginError::Full { need: 100, free: bytes }),
            });
            begun.ok()
        };
        let begun = std::thread::scope(|scope| {
            let begin = &begin;
            let senders: Vec<_> = (0..SENDERS).map(|number| scope.spawn(move || begin(number))).collect();
            senders.into_iter().filter_map(|sender| sender.join().unwrap()).collect::<Vec<_>>()
        });
        assert_eq!(begun.len(), 1, "round {round}");
    }
}

#[test]
fn what_is_stored_of_an_upload_is_due_as_long_as_the_service_lacks_it() {
    let folder = tempfile::tempdir().unwrap();
    let spool = open(folder.path());
    let delivered = |set| Change { state: Some(State::Delivering), delivered: Some(set), ..Change::default() };
    let early = Offer { prelude: Vec::new(), ..offer(1, ONE, None) };
    assert_eq!(put(&spool, &early, 60, 70), State::Receiving);
    assert_eq!(due(&spool, NOW, ONE), [], "nothing can be sent without its prelude");
    put(&spool, &offer(1, ONE, None), 7, 20);
    assert_eq!(due(&spool, NOW, ONE), [1]);
    assert_eq!(change(&spool, 1, delivered(ranges(0, 20))), State::Receiving, "it is still received");
    assert_eq!(due(&spool, NOW, ONE), [1], "60-69 are not there");
    let both = [ByteRange::new(0, 20), ByteRange::new(60, 70)].into_iter().collect();
    change(&spool, 1, delivered(both));
    assert_eq!((due(&spool, NOW, ONE), spool.next_due(UnixTime(0)).unwrap()), (vec![], None));
    put(&spool, &offer(1, ONE, None), 20, 30);
    assert_eq!(due(&spool, NOW, ONE), [1], "a commit brought more");
    let idle = Change {
        next_attempt: Some(NOW.plus_secs(60)),
        attempts: Some(0),
        delivered: Some(ranges(0, 70)),
        ..Change::default()
    };
    change(&spool, 1, idle);
    assert_eq!((due(&spool, NOW, ONE), due(&spool, NOW.plus_secs(60), ONE)), (vec![], vec![1]), "to ask now and then");
    change(&spool, 1, Change { next_attempt: Some(NOW.plus_secs(60)), ..Change::default() });
    put(&spool, &offer(1, ONE, None), 70, 75);
    assert_eq!(due(&spool, NOW, ONE), [1], "which a commit does not wait for");
    change(&spool, 1, Change { delivered: Some(ranges(0, 20)), ..Change::default() });
    change(&spool, 1, Change { next_attempt: Some(NOW.plus_secs(9)), attempts: Some(1), ..Change::default() });
    put(&spool, &offer(1, ONE, None), 30, 40);
    assert_eq!(due(&spool, NOW, ONE), [], "put off after a failure, whatever comes meanwhile");
    assert_eq!(due(&spool, NOW.plus_secs(9), ONE), [1]);
    assert_eq!(put(&spool, &offer(1, ONE, None), 40, 60), State::Receiving);
    assert_eq!(put(&spool, &offer(1, ONE, None), 75, 100), State::Delivering, "some of it is there already");
    let whole = spool.get(UploadId([1; 16])).unwrap().unwrap();
    assert_eq!((whole.stored_at, whole.undelivered().to_string()), (Some(NOW), "20-99".into()));
    assert_eq!(due(&spool, NOW.plus_secs(9), ONE), [1]);
}

#[test]
fn a_partial_upload_counts_as_received_if_the_service_got_it_another_way() {
    let folder = tempfile::tempdir().unwrap();
    let spool = open(folder.path());
    put(&spool, &offer(1, ONE, None), 0, 20);
    assert_eq!(change(&spool, 1, Change { delivered: Some(ranges(0, 20)), ..Change::default() }), State::Receiving);
    let received = Change { state: Some(State::Received), delivered: Some(ranges(0, 100)), ..Change::default() };
    assert_eq!(change(&spool, 1, received), State::Received);
    assert_eq!((due(&spool, NOW, ONE), spool.due_devices(NOW, Queue::Ask, None, 9).unwrap()), (vec![], vec![ONE]));
    assert!(matches!(spool.begin(&offer(1, ONE, None)).unwrap(), Begin::Complete(_)));
}

#[test]
fn without_cut_through_only_whole_uploads_are_due() {
    let folder = tempfile::tempdir().unwrap();
    let spool = Spool::open(Settings { sync: false, ..Settings::new(folder.path()) }).unwrap();
    put(&spool, &offer(1, ONE, None), 0, 20);
    assert_eq!(due(&spool, NOW, ONE), []);
    put(&spool, &offer(1, ONE, None), 20, 100);
    assert_eq!(due(&spool, NOW, ONE), [1]);
}
