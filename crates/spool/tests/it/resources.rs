//! Resources: what is kept of uploads that come in pieces of any length.
use hoop_spool::{Begin, Offer, RESOURCES_MAX, RESOURCES_OF_DEVICE_MAX, Resource, Settings, Spool, State, Token};
use hoop_units::{AddressKey, ByteRange, UnixTime, UploadId};

const NOW: UnixTime = UnixTime(1_000_000);

fn token(number: usize) -> Token {
    Token(u128::to_be_bytes(number as u128))
}

fn new(device: usize) -> Resource {
    let device = AddressKey([1 + device as u8; 16]);
    Resource::new(device, "https://photos.example/hoop/post".into(), None, UnixTime(NOW.0 + 600))
}

#[test]
fn what_is_kept_of_a_resource_is_there_after_a_restart_until_it_expires() {
    let folder = tempfile::tempdir().unwrap();
    let spool = Spool::open(Settings::new(folder.path())).unwrap();
    assert!(spool.add_resource(token(1), &new(0), NOW).unwrap());
    let (upload, total) = (Some(UploadId([7; 16])), Some(1 << 40));
    let kept = Resource { upload, total, tail_at: 65_664, tail: vec![9; 60_000], done: true, ..new(0) };
    assert!(spool.keep_resource(token(1), &kept).unwrap());
    drop(spool);
    let spool = Spool::open(Settings::new(folder.path())).unwrap();
    assert_eq!(spool.resource(token(1), NOW).unwrap(), Some(kept.clone()));
    assert_eq!(spool.resource(token(1), UnixTime(NOW.0 + 601)).unwrap(), None, "it has expired");
    assert_eq!(spool.resource(token(2), NOW).unwrap(), None);
    spool.drop_resource(token(1)).unwrap();
    assert!(!spool.keep_resource(token(1), &kept).unwrap(), "what is gone stays so");
}

#[test]
fn a_tail_is_what_came_of_it_in_pieces_of_any_length() {
    let folder = tempfile::tempdir().unwrap();
    let spool = Spool::open(Settings { sync: false, ..Settings::new(folder.path()) }).unwrap();
    assert!(spool.add_resource(token(1), &new(0), NOW).unwrap());
    let mut dice = 0x9e37_79b9_7f4a_7c15_u64;
    let mut roll = |most: u64| {
        dice ^= dice << 13;
        dice ^= dice >> 7;
        dice ^= dice << 17;
        dice % most
    };
    let (mut now, mut ends) = (new(0), 0);
    for _ in 0..2_000 {
        match roll(64) {
            // A record is whole, and the next has begun; or nothing of it has come.
            0 => {
                (now.tail_at, now.tail) =
                    (now.tail_at + now.tail.len() as u64, vec![roll(256) as u8; roll(300) as usize]);
                ends += 1;
            }
            // Others have sent it.
            1 => (now.tail_at, now.tail) = (now.tail_at + 70_000, Vec::new()),
            _ => {
                let most = [2, 100, 9_000][roll(3) as usize];
                now.tail.extend(vec![roll(256) as u8; roll(most) as usize]);
            }
        }
        assert!(spool.keep_resource(token(1), &now).unwrap());
        assert_eq!(spool.resource(token(1), NOW).unwrap().as_ref(), Some(&now));
    }
    assert!(ends > 9);
    spool.drop_resource(token(1)).unwrap();
    drop(spool);
    let db = rusqlite::Connection::open(folder.path().join("index.db")).unwrap();
    let left: u32 = db.query_row("SELECT count(*) FROM tail", [], |row| row.get(0)).unwrap();
    assert_eq!(left, 0, "a tail goes with its resource");
}

#[test]
fn resources_are_limited_per_device_and_in_all_and_ended_ones_make_room() {
    let folder = tempfile::tempdir().unwrap();
    let spool = Spool::open(Settings { sync: false, ..Settings::new(folder.path()) }).unwrap();
    let devices = RESOURCES_MAX / RESOURCES_OF_DEVICE_MAX;
    for device in 0..devices {
        for number in 0..RESOURCES_OF_DEVICE_MAX {
            assert!(spool.add_resource(token(device * 1000 + number), &new(device), NOW).unwrap());
        }
        assert!(!spool.add_resource(token(9999), &new(device), NOW).unwrap(), "device {device} has enough");
    }
    assert!(spool.keep_resource(token(1), &Resource { done: true, ..new(0) }).unwrap());
    assert!(
        !spool.add_resource(token(9999), &new(1), NOW).unwrap(),
        "another device's is no help to one that has enough"
    );
    assert!(spool.add_resource(token(9999), &new(devices), NOW).unwrap());
    assert_eq!(spool.resource(token(1), NOW).unwrap(), None, "what was done has made room");
    assert!(spool.add_resource(token(9998), &new(devices), UnixTime(NOW.0 + 601)).unwrap());
    assert_eq!(spool.resource(token(2), NOW).unwrap(), None, "what had expired is gone");
}

#[test]
fn when_all_resources_are_taken_the_device_with_most_makes_way() {
    let folder = tempfile::tempdir().unwrap();
    let spool = Spool::open(Settings { sync: false, ..Settings::new(folder.path()) }).unwrap();
    let devices = RESOURCES_MAX / RESOURCES_OF_DEVICE_MAX;
    let later = |secs| Resource { expires: UnixTime(NOW.0 + 600 + secs), ..new(0) };
    for device in 0..devices {
        for number in 0..RESOURCES_OF_DEVICE_MAX - usize::from(device > 0) {
            let resource = Resource { device: new(device).device, ..later(number as u32) };
            assert!(spool.add_resource(token(device * 1000 + number), &resource, NOW).unwrap());
        }
    }
    (1..devices).for_each(|other| assert!(spool.add_resource(token(8000 + other), &new(devices), NOW).unwrap()));
    // The oldest has something, and goes after those that are empty.
    assert!(spool.keep_resource(token(0), &Resource { upload: Some(UploadId([7; 16])), ..new(0) }).unwrap());
    assert!(spool.add_resource(token(9999), &new(devices), NOW).unwrap());
    let is_there = |number| spool.resource(token(number), NOW).unwrap().is_some();
    assert_eq!([0, 1, 2].map(is_there), [true, false, true]);
    assert!((1..devices).all(|other| is_there(8000 + other)), "who has few keeps them");
    // Until all have the same.
    let mut taken = 4;
    while spool.add_resource(token(10_000 + taken), &new(devices), NOW).unwrap() {
        taken += 1;
        assert!(taken <= RESOURCES_OF_DEVICE_MAX, "it has no more than others");
    }
    assert!(taken >= RESOURCES_MAX / (devices + 1), "{taken}");
}

#[test]
fn an_upload_is_abandoned_only_while_it_is_received_and_nobody_sends_it() {
    let folder = tempfile::tempdir().unwrap();
    let spool = Spool::open(Settings::new(folder.path())).unwrap();
    let offer = Offer {
        id: UploadId([7; 16]),
        prelude: b"prelude".to_vec(),
        total: Some(100),
        dest: "https://photos.example/hoop/post".into(),
        expires: UnixTime(NOW.0 + 1000),
        device: AddressKey([1; 16]),
        deadline: None,
    };
    let send = |from, to| {
        let Begin::Take(mut intake) = spool.begin(&offer).unwrap() else { panic!("it is complete") };
        intake.write_at(from, &vec![1; (to - from) as usize]).unwrap();
        intake.commit(ByteRange::new(from, to), NOW).unwrap();
        intake
    };
    let intake = send(7, 50);
    assert!(!spool.abandon(offer.id).unwrap(), "it is being sent");
    drop(intake);
    assert!(spool.abandon(offer.id).unwrap());
    assert_eq!((spool.get(offer.id).unwrap(), spool.kept_bytes()), (None, 0));
    assert!(spool.payload(offer.id).is_err(), "its file is gone");
    assert!(!spool.abandon(offer.id).unwrap());
    drop(send(7, 100));
    assert!(!spool.abandon(offer.id).unwrap(), "all of it has come");
    assert_eq!(spool.get(offer.id).unwrap().unwrap().state, State::Stored);
}

#[test]
fn with_a_small_quota_there_are_fewer() {
    let folder = tempfile::tempdir().unwrap();
    let settings = Settings { quota_bytes: Some(4 << 20), sync: false, ..Settings::new(folder.path()) };
    let spool = Spool::open(settings).unwrap();
    let mut numbers = 0..RESOURCES_MAX;
    let full = numbers.find(|number| !spool.add_resource(token(*number), &new(0), NOW).unwrap());
    assert_eq!(full, Some((4 << 20) / 4 / (68 << 10)));
}
