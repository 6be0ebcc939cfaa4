//! A store whose machine's clocks jump (`docs/time.md`): bytes that were acknowledged go with the flow that has expired.

use crate::{kept, name, right};
use hoop_flow_store::{ByteStore as _, Clock, Due, FlowStore as _, Life, Settings, Store, When};
use hoop_timekeeper::simulated::Machine;
use parking_lot::Mutex;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

const DAY: u64 = 86_400;
const START: u64 = 1_795_000_000;

type Shared = Arc<Mutex<Machine>>;

fn open(folder: &Path, machine: &Shared) -> Store {
    let clock = Clock::with_readings(machine.clone());
    Store::open(&Settings { segment_len: 1, clock, ..Settings::new(folder) }).unwrap()
}

/// A store on a machine whose time is beyond doubt.
fn sure(folder: &Path) -> (Shared, Store) {
    let machine = Arc::new(Mutex::new(Machine::new(START)));
    let store = open(folder, &machine);
    pass(&machine, &store, 2 * DAY);
    (machine, store)
}

fn park(store: &Store, number: u64) {
    store.put(&kept(number, 0, true), Life::Parked, When::Synced).unwrap();
    store.append(name(number), 0, b"acknowledged").unwrap();
    store.sync().unwrap();
}

/// So many seconds pass; which flows have expired.
fn pass(machine: &Shared, store: &Store, secs: u64) -> Vec<u64> {
    machine.lock().rests(secs);
    let due = store.tick().unwrap().into_iter().map(|due| match due {
        Due::Expired(kept) => kept.record.name.flow.0,
        Due::Park(name) => panic!("{name:?} is parked"),
    });
    due.collect()
}

fn is_held(store: &Store, number: u64) -> bool {
    store.held(name(number)).is_some_and(|held| held.len() == 12)
}

#[test]
fn a_parked_flow_outlives_clock_jumps_and_expires_when_its_time_is_over() {
    let folder = crate::folder();
    let (machine, mut store) = sure(folder.path());
    park(&store, 1);
    // 40 days, ten years, in 1970: while it runs, and when the machine is started with its clock so.
    for off in [40 * DAY as i64, 3_650 * DAY as i64, -(START as i64)] {
        machine.lock().off = off;
        assert_eq!((pass(&machine, &store, 600), is_held(&store, 1)), (vec![], true), "{off}");
        drop(store);
        machine.lock().is_off(60, off);
        store = open(folder.path(), &machine);
        assert_eq!((pass(&machine, &store, 600), is_held(&store, 1)), (vec![], true), "after a start, {off}");
    }
    drop(store);
    machine.lock().is_off(60, 0);
    let store = open(folder.path(), &machine);
    assert_eq!((pass(&machine, &store, 2 * DAY), is_held(&store, 1)), (vec![], true));
    assert_eq!((pass(&machine, &store, 31 * DAY), is_held(&store, 1)), (vec![1], false));
}

#[test]
fn what_was_parked_while_the_clock_was_ahead_is_not_kept_for_years() {
    let folder = crate::folder();
    let (machine, store) = sure(folder.path());
    let is_set = |off: i64| {
        let mut machine = machine.lock();
        (machine.off, machine.ntp) = (off, Some(off));
    };
    is_set(1_000 * DAY as i64);
    for _ in 0..2 {
        pass(&machine, &store, 3_600);
    }
    park(&store, 1);
    is_set(0);
    for days in [0, 1, 28] {
        assert_eq!((pass(&machine, &store, days * DAY + 3_600), is_held(&store, 1)), (vec![], true));
    }
    assert_eq!((pass(&machine, &store, 3 * DAY), is_held(&store, 1)), (vec![1], false));
}

static NOW: AtomicU32 = AtomicU32::new(10_000_000);

#[test]
fn what_is_quiet_is_to_be_parked_also_after_the_clock_was_set_back() {
    let folder = crate::folder();
    let settings = Settings { clock: right(|| NOW.load(Ordering::Relaxed)), ..crate::settings(folder.path()) };
    let store = Store::open(&settings).unwrap();
    store.put(&kept(1, 0, true), Life::Quiet, When::Later).unwrap();
    assert_eq!(store.tick().unwrap().len(), 0);
    NOW.store(1_000_000, Ordering::Relaxed);
    assert!(matches!(store.tick().unwrap()[..], [Due::Park(_)]));
    assert_eq!(store.tick().unwrap().len(), 0, "it is told once");
}
