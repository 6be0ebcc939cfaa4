//! Many flows. `HOOP_FLOWS` sets how many; a million are 300 MB on disk.

use crate::{kept, name, settings};
use hoop_flow_store::{ByteStore, Due, FlowStore, Found, Life, Lifetimes, Limits, Settings, Store, StoreError, When};
use hoop_units::UnixTime;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Instant;

#[test]
fn a_hundred_thousand_flows_are_parked_spilled_and_taken_after_a_restart() {
    let flows = std::env::var("HOOP_FLOWS").map_or(100_000, |number| number.parse().expect("HOOP_FLOWS is a number"));
    let folder = tempfile::tempdir().unwrap();
    let settings = Settings { clock: crate::right(|| 1_000_000), ..Settings::new(folder.path()) };
    let store = Store::open(&settings).unwrap();
    let begun = Instant::now();
    for number in 0..flows {
        store.put(&kept(number, number, false), Life::Parked, When::Later).unwrap();
    }
    println!("parked {:.3} s", begun.elapsed().as_secs_f64());
    assert_eq!(store.spill().unwrap(), 0);
    let usage = store.usage();
    assert_eq!((usage.flows as u64, usage.resident), (flows, 0));
    drop(store);
    let begun = Instant::now();
    let store = Store::open(&settings).unwrap();
    println!("opened {:.3} s", begun.elapsed().as_secs_f64());
    let begun = Instant::now();
    for number in 0..flows {
        // Any order.
        let number = number * 48_271 % flows;
        let Found::Kept(found) = store.take(name(number)).unwrap() else { panic!("flow {number} is gone") };
        assert_eq!((found.record.name, found.record.written % flows), (name(number), number));
    }
    println!("taken {:.3} s", begun.elapsed().as_secs_f64());
    assert!(matches!(store.take(name(flows)).unwrap(), Found::Unknown));
}

#[test]
fn a_device_and_a_server_have_no_more_than_they_may() {
    let folder = crate::folder();
    let settings = settings(folder.path());
    let limits = Limits { flows: 25, flows_per_host: 4, memory: 10 * 176, ends: 3, ends_per_host: 3 };
    let store = Store::open(&Settings { limits, bytes: 20_000, bytes_per_host: 10_000, ..settings }).unwrap();
    let put = |number| store.put(&kept(number, 0, true), Life::Live, When::Later);
    (0..10).for_each(|number| put(number).unwrap());
    assert!(matches!(put(10), Err(StoreError::Full(_))), "memory is full of live flows");
    put(3).unwrap();
    for number in 0..10 {
        store.put(&kept(number, 0, true), Life::Parked, When::Later).unwrap();
    }
    (10..25).for_each(|number| put_parked(&store, number).unwrap());
    assert!(matches!(put_parked(&store, 25), Err(StoreError::Full(_))), "as many flows as it may");
    (0..10).for_each(|number| store.remove(name(number), number).unwrap());
    (0..2).for_each(|number| put_parked(&store, 100 + number * 10).unwrap());
    assert!(matches!(put_parked(&store, 200), Err(StoreError::DeviceFull(_))));
    // How the last three ended is known.
    let ended: Vec<bool> =
        (0..10).map(|at| matches!(store.take(name(at)).unwrap(), Found::Ended(code) if code == at)).collect();
    assert_eq!(ended, [false, false, false, false, false, false, false, true, true, true]);

    // Bytes: small ones count a kibibyte each.
    for at in 0..9 {
        store.append(name(10), at, b"x").unwrap();
    }
    store.append(name(10), 9, &[1; 700]).unwrap_err();
    store.consume(name(10), 9).unwrap();
    store.append(name(10), 9, &[1; 8_000]).unwrap();
    assert!(matches!(store.append(name(20), 0, &[1; 3_000]), Err(StoreError::DeviceFull(_))), "the same device");
    store.append(name(11), 0, &[1; 9_000]).unwrap();
    assert!(matches!(store.append(name(12), 0, &[1; 5_000]), Err(StoreError::Full(_))));
    store.remove(name(11), 0).unwrap();
    store.append(name(12), 0, &[1; 5_000]).unwrap();
}

fn put_parked(store: &Store, number: u64) -> Result<(), StoreError> {
    store.put(&kept(number, 0, true), Life::Parked, When::Later)
}

static NOW: AtomicU32 = AtomicU32::new(1_000);

#[test]
fn any_flow_expires_by_deadline_or_age_and_quiet_ones_come_due_to_park() {
    let folder = crate::folder();
    let settings = Settings {
        clock: crate::right(|| NOW.load(Ordering::Relaxed)),
        lifetimes: Lifetimes { quiet: 30, grace: 100, age: 1_000, ends: 500 },
        ..settings(folder.path())
    };
    let store = Store::open(&settings).unwrap();
    for number in 0..6 {
        let mut kept = kept(number, 0, true);
        kept.record.deadline = (number % 2 == 0).then_some(UnixTime(1_200));
        store.put(&kept, if number < 4 { Life::Parked } else { Life::Quiet }, When::Later).unwrap();
        store.append(name(number), 0, b"octets").unwrap();
    }
    store.spill().unwrap();
    let due = |at| {
        NOW.store(at, Ordering::Relaxed);
        let told = store.tick().unwrap().into_iter().map(|due| match due {
            Due::Park(name) => (false, name.flow.0),
            Due::Expired(kept) => (true, kept.record.name.flow.0),
        });
        let mut told: Vec<_> = told.collect();
        told.sort_unstable();
        told
    };
    assert_eq!(due(1_029), []);
    assert_eq!(due(1_030), [(false, 4), (false, 5)]);
    assert_eq!(due(1_040), [], "it is told once");
    assert_eq!(due(1_299), [(false, 4), (false, 5)], "and again");
    assert_eq!(due(1_300), [(true, 0), (true, 2)]);
    assert!(matches!(store.take(name(0)).unwrap(), Found::Ended(1)));
    assert_eq!(store.held(name(0)), None);
    drop(store);
    let store = Store::open(&settings).unwrap();
    assert!(matches!(store.take(name(2)).unwrap(), Found::Ended(1)), "how it ended outlives a restart");
    NOW.store(2_000, Ordering::Relaxed);
    // What was attached is parked since the restart.
    let expired = store.tick().unwrap().len();
    assert_eq!((expired, store.usage().flows), (3, 1));
    assert!(matches!(store.take(name(5)).unwrap(), Found::Kept(_)));
}
