//! The dispatcher against a simulated store and network: random uploads, failures, unreachable destinations and a wall
//! clock that jumps, in simulated time.
#![allow(missing_docs)]

use hoop_dispatch::{
    Dispatcher, Entry, Failure, List, Offered, Output, RETRY_AFTER_MAX, SMALL_BYTES, TRANSFERS, WINDOW,
};
use hoop_units::{Timestamp, UnixTime, UploadId};
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

const PAGE: usize = 16;

/// What the store knows of an upload.
#[derive(Clone, Debug)]
struct Row {
    origin: String,
    total: u64,
    due: UnixTime,
    attempts: u32,
    /// Attempts that are still going to fail, and whether the destination is at fault.
    failures: Vec<bool>,
    done: bool,
}

/// The store, the clocks and the attempts around a dispatcher.
struct World {
    dispatcher: Dispatcher,
    rows: BTreeMap<UploadId, Row>,
    cursors: [Option<(UnixTime, UploadId)>; 3],
    running: BTreeSet<UploadId>,
    now: Timestamp,
    /// Wall time is this far ahead of monotonic time.
    wall_offset: i64,
    started: Vec<UploadId>,
    most_at_once: usize,
}

fn id(number: u32) -> UploadId {
    let mut octets = [0; 16];
    octets[..4].copy_from_slice(&number.to_be_bytes());
    UploadId(octets)
}

impl World {
    fn new() -> Self {
        Self {
            dispatcher: Dispatcher::default(),
            rows: BTreeMap::new(),
            cursors: [None; 3],
            running: BTreeSet::new(),
            now: Timestamp::from_secs(1),
            wall_offset: 1_700_000_000,
            started: Vec::new(),
            most_at_once: 0,
        }
    }

    fn wall(&self) -> UnixTime {
        let secs = i64::try_from(self.now.as_micros() / 1_000_000).unwrap() + self.wall_offset;
        UnixTime(u32::try_from(secs.max(0)).unwrap())
    }

    fn add(&mut self, number: u32, origin: &str, total: u64, failures: Vec<bool>) {
        let row = Row { origin: origin.to_owned(), total, due: self.wall(), attempts: 0, failures, done: false };
        self.rows.insert(id(number), row);
        self.dispatcher.handle_more();
    }

    /// What the spool's `due` does, clock that was set back included.
    fn page(&self, list: List, from: Option<(UnixTime, UploadId)>) -> Vec<(UploadId, Row)> {
        let now = self.wall();
        let late = now.plus_secs(u32::try_from(RETRY_AFTER_MAX.as_secs()).unwrap());
        let mut due: Vec<_> = self
            .rows
            .iter()
            .filter(|(_, row)| !row.done && (row.due <= now || row.due > late))
            .filter(|(_, row)| match list {
                List::Send => true,
                List::Small => row.total < SMALL_BYTES,
                List::Ask => false,
            })
            .map(|(id, row)| (*id, row.clone()))
            .filter(|(id, row)| from.is_none_or(|from| (row.due, *id) > from))
            .collect();
        due.sort_by_key(|(id, row)| (row.due, *id));
        due.truncate(PAGE);
        due
    }

    fn drain(&mut self) {
        while let Some(output) = self.dispatcher.poll_output(self.now) {
            match output {
                Output::Start { id, .. } => {
                    assert!(self.running.insert(id), "two attempts of one upload at once");
                    assert!(!self.rows[&id].done, "an attempt at what is done");
                    self.started.push(id);
                    self.most_at_once = self.most_at_once.max(self.running.len());
                }
                Output::Load { list, restart } => self.load(list, restart),
            }
        }
    }

    fn load(&mut self, list: List, restart: bool) {
        let slot = list as usize;
        if restart {
            self.cursors[slot] = None;
        }
        let page = self.page(list, self.cursors[slot]);
        let last = page.len() < PAGE;
        for (id, row) in page {
            let entry = Entry { id, origin: row.origin, total: row.total, since: row.due };
            if self.dispatcher.offer(list, entry, self.now) == Offered::Full {
                return;
            }
            self.cursors[slot] = Some((row.due, id));
        }
        if last {
            self.dispatcher.handle_all_seen(list);
        }
    }

    fn end(&mut self, id: UploadId, roll: u32) {
        assert!(self.running.remove(&id));
        let (now, wall) = (self.now, self.wall());
        let row = self.rows.get_mut(&id).unwrap();
        let Some(destination) = row.failures.pop() else {
            row.done = true;
            return self.dispatcher.handle_done(id);
        };
        let failure = Failure { attempts: row.attempts, retry_after: None, destination };
        let delay = self.dispatcher.handle_failure(id, failure, roll, now);
        row.attempts += 1;
        row.due = wall.plus_secs(u32::try_from(delay.as_secs()).unwrap() + 1);
        self.dispatcher.handle_more();
    }

    /// Lets time pass until something is due, at most half a minute, as the gateway's tick does.
    fn pass(&mut self) {
        let tick = self.now + Duration::from_secs(30);
        let waited = self.dispatcher.poll_timeout().unwrap_or(Timestamp::MAX);
        let wall = self.wall();
        let due = self.rows.values().filter(|row| !row.done && row.due > wall).map(|row| row.due.since(wall)).min();
        let due = due.map_or(Timestamp::MAX, |secs| self.now + Duration::from_secs(secs.into()));
        self.now = tick.min(waited).min(due).max(self.now + Duration::from_micros(1));
        self.dispatcher.handle_more();
    }

    /// Runs until all is done; `steps` bounds it.
    fn run(&mut self, steps: usize) {
        for step in 0..steps {
            self.drain();
            if self.rows.values().all(|row| row.done) {
                return;
            }
            match self.running.first().copied() {
                Some(id) => self.end(id, (step as u32).wrapping_mul(2_654_435_761)),
                None => self.pass(),
            }
        }
        panic!("after {steps} steps {} uploads are not done", self.rows.values().filter(|row| !row.done).count());
    }
}

#[derive(Clone, Debug)]
enum Step {
    Add { origin: u8, small: bool, failures: Vec<bool> },
    End { which: usize, roll: u32 },
    Pass,
    SetClock { by: i32 },
    NetworkBack,
    Withdraw { which: usize },
}

fn step() -> impl Strategy<Value = Step> {
    let failures = prop::collection::vec(any::<bool>(), 0..4);
    prop_oneof![
        4 => (0..4_u8, any::<bool>(), failures).prop_map(|(origin, small, failures)| Step::Add { origin, small, failures }),
        4 => (any::<usize>(), any::<u32>()).prop_map(|(which, roll)| Step::End { which, roll }),
        2 => Just(Step::Pass),
        1 => (-900_000..900_000).prop_map(|by| Step::SetClock { by }),
        1 => Just(Step::NetworkBack),
        1 => any::<usize>().prop_map(|which| Step::Withdraw { which }),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]
    #[test]
    fn every_upload_is_sent_in_the_end_never_twice_at_once_and_never_too_many(steps in prop::collection::vec(step(), 1..120)) {
        let mut world = World::new();
        for (number, step) in steps.into_iter().enumerate() {
            match step {
                Step::Add { origin, small, failures } => {
                    let total = if small { 1_000 } else { 10 * SMALL_BYTES };
                    world.add(number as u32, &format!("https://s{origin}.example"), total, failures);
                }
                Step::End { which, roll } => {
                    let running: Vec<_> = world.running.iter().copied().collect();
                    if !running.is_empty() {
                        world.end(running[which % running.len()], roll);
                    }
                }
                Step::Pass => world.pass(),
                Step::SetClock { by } => world.wall_offset += i64::from(by),
                Step::NetworkBack => world.dispatcher.handle_network_back(),
                Step::Withdraw { which } => {
                    let waiting: Vec<_> =
                        world.rows.iter().filter(|(id, row)| !row.done && !world.running.contains(id)).map(|(id, _)| *id).collect();
                    if !waiting.is_empty() {
                        let id = waiting[which % waiting.len()];
                        world.rows.get_mut(&id).unwrap().done = true;
                        world.dispatcher.withdraw(id);
                    }
                }
            }
            world.drain();
            prop_assert!(world.running.len() <= TRANSFERS);
        }
        world.run(20_000);
        prop_assert!(world.most_at_once <= TRANSFERS);
    }
}

#[test]
fn a_hundred_thousand_uploads_are_sent_oldest_first_in_bounded_memory() {
    // The model's own pages are slow; so the queue is fed by hand, in order, as the store would.
    let mut dispatcher = Dispatcher::default();
    let now = Timestamp::from_secs(1);
    let (mut next, mut most, mut started, mut running) = (0_u32, 0, Vec::new(), Vec::new());
    loop {
        while let Some(output) = dispatcher.poll_output(now) {
            match output {
                Output::Start { id, .. } => {
                    started.push(id);
                    running.push(id);
                }
                Output::Load { list: List::Send, .. } => {
                    while next < 100_000 {
                        let entry =
                            Entry { id: id(next), origin: "https://a.example".into(), total: 9, since: UnixTime(next) };
                        if dispatcher.offer(List::Send, entry, now) == Offered::Full {
                            break;
                        }
                        next += 1;
                    }
                    most = most.max(dispatcher.waiting());
                    if next == 100_000 {
                        dispatcher.handle_all_seen(List::Send);
                    }
                }
                Output::Load { list, .. } => dispatcher.handle_all_seen(list),
            }
        }
        let Some(id) = running.pop() else { break };
        dispatcher.handle_done(id);
    }
    assert_eq!(started.len(), 100_000);
    assert!(started.is_sorted(), "oldest first");
    assert_eq!(most, WINDOW, "so many are in memory at most, whatever waits in the store");
}

#[test]
fn a_small_upload_does_not_wait_behind_four_films() {
    let mut world = World::new();
    (0..10).for_each(|number| world.add(number, "https://a.example", 10 * SMALL_BYTES, vec![]));
    world.drain();
    assert_eq!(world.running.len(), TRANSFERS - 1, "one slot is kept");
    world.add(99, "https://a.example", 1_000, vec![]);
    world.drain();
    assert!(world.running.contains(&id(99)));
}

#[test]
fn a_small_upload_behind_a_thousand_films_is_found() {
    let mut world = World::new();
    (0..1_000).for_each(|number| world.add(number, "https://a.example", 10 * SMALL_BYTES, vec![]));
    world.add(5_000, "https://a.example", 1_000, vec![]);
    world.drain();
    assert!(world.running.contains(&id(5_000)));
}

#[test]
fn while_a_destination_cannot_be_reached_one_upload_tries_and_others_go_elsewhere() {
    let mut world = World::new();
    (0..500).for_each(|number| world.add(number, "https://dead.example", 1_000, vec![true; 3]));
    (500..600).for_each(|number| world.add(number, "https://alive.example", 1_000, vec![]));
    world.drain();
    let first: Vec<_> = world.running.iter().copied().collect();
    first.into_iter().for_each(|id| world.end(id, 0));
    let before = world.started.len();
    while world.rows.range(id(500)..).any(|(_, row)| !row.done) {
        world.drain();
        let running = world.running.first().copied().expect("the living destination is served");
        world.end(running, 0);
    }
    let tried = world.started[before..].iter().filter(|started| **started < id(500)).count();
    assert_eq!(tried, 0, "no time has passed, so the dead one is left alone");
    world.now += Duration::from_secs(2);
    world.drain();
    assert_eq!(world.running.len(), 1, "then one tries");
}

#[test]
fn a_network_that_came_back_is_used_at_once() {
    let mut world = World::new();
    (0..10)
        .for_each(|number| world.add(number, "https://a.example", 1_000, if number < 4 { vec![true] } else { vec![] }));
    world.drain();
    let first: Vec<_> = world.running.iter().copied().collect();
    first.into_iter().for_each(|id| world.end(id, u32::MAX));
    world.drain();
    assert!(world.running.is_empty());
    world.dispatcher.handle_network_back();
    world.drain();
    assert_eq!(world.running.len(), TRANSFERS);
}

#[test]
fn retry_after_is_the_least_wait_and_six_hours_the_most() {
    let mut dispatcher = Dispatcher::default();
    let mut delay = |attempts, retry_after: u64| {
        let failure = Failure { attempts, retry_after: Some(Duration::from_secs(retry_after)), destination: false };
        dispatcher.handle_failure(id(1), failure, u32::MAX, Timestamp::ZERO).as_secs()
    };
    assert_eq!(delay(0, 0), 1);
    assert_eq!(delay(0, 120), 120);
    assert_eq!(delay(40, 120), 15 * 60, "its own back-off is longer");
    assert_eq!(delay(0, 365 * 86_400), 6 * 60 * 60);
}

#[test]
fn a_clock_that_was_set_back_a_year_delays_nothing() {
    let mut world = World::new();
    world.add(1, "https://a.example", 1_000, vec![false]);
    world.drain();
    world.wall_offset += 365 * 86_400;
    world.end(id(1), 0);
    world.wall_offset -= 365 * 86_400;
    let before = world.now;
    world.run(50);
    assert!(world.now - before <= Duration::from_secs(30), "it took {:?}", world.now - before);
}
