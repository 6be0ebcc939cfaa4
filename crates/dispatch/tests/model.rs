//! The dispatcher against a simulated store and network: random uploads, failures, unreachable destinations, shut gates and a wall
//! clock that jumps, in simulated time.
#![allow(missing_docs)]

mod world;

use hoop_dispatch::{
    ANSWER_TURN, ASKS, ASKS_EACH, BREAK_OFF, DEVICES, DOUBT, Dispatcher, EXTRA, Entry, Failure, Gate, List, Output,
    PER_HOST, SLOT_TURN, SMALL_BYTES, TRANSFERS, TURN_BYTES, WINDOW,
};
use hoop_units::{AddressKey, Bitrate, Timestamp, UnixTime, UploadId};
use proptest::prelude::*;
use std::collections::BTreeMap;
use std::time::Duration;
use world::{FILM, PHOTO, Row, World, device, id};

#[derive(Clone, Debug)]
enum Step {
    Add { device: u8, origin: u8, small: bool, deadline: Option<u32>, failures: Vec<bool> },
    Send { which: usize, roll: u32 },
    Pass,
    SetClock { by: i32 },
    NetworkBack,
    Withdraw { which: usize },
    Gate { gate: Gate },
}

fn step() -> impl Strategy<Value = Step> {
    let failures = prop::collection::vec(any::<bool>(), 0..4);
    let deadline = prop::option::of(0..100_000_u32);
    let gate = prop_oneof![
        4 => Just(Gate::Open),
        1 => Just(Gate::Shut),
        1 => Just(Gate::Urgent { now: UnixTime(0), opens: UnixTime(2_000_000_000), rate: Bitrate::mbps(1) }),
    ];
    prop_oneof![
        6 => (0..5_u8, 0..4_u8, any::<bool>(), deadline, failures)
            .prop_map(|(device, origin, small, deadline, failures)| Step::Add { device, origin, small, deadline, failures }),
        6 => (any::<usize>(), any::<u32>()).prop_map(|(which, roll)| Step::Send { which, roll }),
        2 => Just(Step::Pass),
        1 => (-900_000..900_000).prop_map(|by| Step::SetClock { by }),
        1 => Just(Step::NetworkBack),
        1 => any::<usize>().prop_map(|which| Step::Withdraw { which }),
        1 => gate.prop_map(|gate| Step::Gate { gate }),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]
    #[test]
    fn every_upload_is_sent_in_the_end_never_twice_at_once_and_never_too_many(steps in prop::collection::vec(step(), 1..120)) {
        let mut world = World::new(TRANSFERS);
        for (number, step) in steps.into_iter().enumerate() {
            match step {
                Step::Add { device: from, origin, small, deadline, failures } => {
                    let total = if small { PHOTO } else { 3 * TURN_BYTES };
                    let deadline = deadline.map(|secs| world.wall().plus_secs(secs));
                    let row = Row { failures, deadline, ..Row::new(device(from), &format!("https://s{origin}.example"), total) };
                    world.add(number as u32, row);
                }
                Step::Send { which, roll } => {
                    let running: Vec<_> = world.running.keys().copied().collect();
                    if !running.is_empty() {
                        world.message(running[which % running.len()], roll);
                    }
                }
                Step::Pass => world.pass(),
                Step::SetClock { by } => world.wall_offset += i64::from(by),
                Step::NetworkBack => world.dispatcher.handle_network_back(),
                Step::Withdraw { which } => world.withdraw(which),
                Step::Gate { gate } => world.dispatcher.set_gate(gate),
            }
            world.drain();
            prop_assert!(world.running.len() <= TRANSFERS + EXTRA);
            prop_assert!(world.dispatcher.waiting() <= 3 * WINDOW);
        }
        world.dispatcher.set_gate(Gate::Open);
        world.run(20_000);
        prop_assert!(world.most_at_once <= TRANSFERS + EXTRA);
    }

    /// One destination, and one slot besides the extra ones: then the order is a plain rule, which the reference works out from the
    /// whole store each time.
    #[test]
    fn the_order_is_that_of_a_reference_that_sees_the_whole_store(
        steps in prop::collection::vec((0..4_u8, 1..(3 * TURN_BYTES), prop::option::of(0..50_u32), 0..4_u8), 1..60)
    ) {
        let mut world = World::new(1);
        let mut reference = Reference::default();
        for (number, (from, total, deadline, messages)) in steps.into_iter().enumerate() {
            let deadline = deadline.map(|secs| UnixTime(1_000_000 + secs));
            world.add(number as u32, Row { deadline, ..Row::new(device(from), "https://a.example", total) });
            world.pass_refresh();
            reference.check(&world);
            for message in 0..messages {
                reference.step(&mut world, usize::from(message));
            }
        }
        while world.rows.values().any(|row| !row.done) {
            reference.step(&mut world, 0);
        }
    }

    /// Attempts share the uplink as connections do: none is more than twice as fast as another. Who is served by chance alone may
    /// get any share of the messages, so that is not asked.
    #[test]
    fn devices_that_always_have_something_get_the_same_within_a_few_turns(
        sizes in prop::collection::vec((1_000..(4 * TURN_BYTES), 1_000..(4 * TURN_BYTES)), 40),
        slowness in prop::collection::vec(8_u64..=16, 80)
    ) {
        let mut world = World::new(TRANSFERS);
        for (number, (one, other)) in sizes.iter().enumerate() {
            world.add(2 * number as u32, Row::new(device(1), "https://a.example", *one));
            world.add(2 * number as u32 + 1, Row::new(device(2), "https://a.example", *other));
        }
        let most = (TRANSFERS + EXTRA) as u64 * 2 * TURN_BYTES;
        // When the message of each attempt ends, in bytes at the slowest pace.
        let (mut ends, mut now) = (BTreeMap::new(), 0);
        let left = |world: &World, from| world.rows.values().filter(|row| row.device == device(from) && !row.done).count();
        world.drain();
        while left(&world, 1) > TRANSFERS + EXTRA && left(&world, 2) > TRANSFERS + EXTRA {
            ends.retain(|id, _| world.running.contains_key(id));
            for id in world.running.keys() {
                let slow = slowness[id.0[3] as usize];
                ends.entry(*id).or_insert_with(|| now + world.rows[id].left.min(TURN_BYTES) * slow);
            }
            let first = ends.iter().min_by_key(|(_, at)| **at).map(|(id, at)| (*id, *at));
            let (id, at) = first.expect("somebody is served while both have something");
            (now, _) = (at, ends.remove(&id));
            world.message(id, 0);
            world.pass_refresh();
            let served = |from| world.served.get(&device(from)).copied().unwrap_or_default();
            let (one, other) = (served(1), served(2));
            prop_assert!(one.abs_diff(other) <= most, "{one} and {other}");
        }
    }
}

/// What the order should be, without windows, pages and places: looks at every row each time. One slot, and the extra ones for
/// devices with nothing under way.
#[derive(Default)]
struct Reference {
    tags: BTreeMap<AddressKey, u64>,
    virtual_time: u64,
    /// What runs, what it has paid, and how much of that ahead.
    running: BTreeMap<UploadId, (u64, u64)>,
    checked: usize,
    broken_off: usize,
}

impl Reference {
    fn tag(&self, device: AddressKey) -> u64 {
        self.tags.get(&device).copied().unwrap_or_default().max(self.virtual_time)
    }

    fn charge(&mut self, device: AddressKey, bytes: u64) {
        self.tags.insert(device, self.tag(device) + bytes);
    }

    /// Whether each that has begun since the last look was first in the order then.
    fn check(&mut self, world: &World) {
        for begun in &world.started[self.checked..] {
            let mine = |device| self.running.keys().any(|id| world.rows[id].device == device);
            let has_slot = |row: &Row| self.running.is_empty() || (self.running.len() <= EXTRA && !mine(row.device));
            let open = world.rows.values().filter(|row| !row.done && !self.running.contains_key(&row.id));
            let first =
                open.filter(|row| has_slot(row)).min_by_key(|row| (self.tag(row.device), row.place(), row.device));
            assert_eq!(first.map(|row| row.id), Some(*begun), "it was another one's turn");
            let row = &world.rows[begun];
            let prepaid = row.total.min(TURN_BYTES);
            self.charge(row.device, prepaid);
            self.running.insert(*begun, (prepaid, prepaid));
        }
        self.checked = world.started.len();
        // Who is broken off has had its turn, whatever was sent.
        for id in &world.broken_off[self.broken_off..] {
            let (paid, prepaid) = self.running[id];
            self.charge(world.rows[id].device, TURN_BYTES - prepaid);
            self.running.insert(*id, (paid + TURN_BYTES - prepaid, 0));
        }
        self.broken_off = world.broken_off.len();
    }

    /// Sends one message of something that is under way.
    fn step(&mut self, world: &mut World, which: usize) {
        world.pass_refresh();
        self.check(world);
        let running: Vec<_> = world.running.keys().copied().collect();
        if running.is_empty() {
            assert!(world.rows.values().all(|row| row.done), "something waits and nothing is sent");
            return;
        }
        let id = running[which % running.len()];
        let device = world.rows[&id].device;
        let waits: Vec<_> = world.rows.values().filter(|row| !row.done).map(|row| row.device).collect();
        let begun = world.begun[&id];
        let sent = world.message(id, 0);
        let (paid, prepaid) = self.running.get_mut(&id).unwrap();
        let ahead = sent.min(*prepaid);
        *prepaid -= ahead;
        *paid += sent - ahead;
        self.charge(device, sent - ahead);
        let paid_ahead =
            |of| self.running.iter().filter(|(id, _)| world.rows[*id].device == of).map(|(_, (_, n))| n).sum::<u64>();
        let lowest = waits.into_iter().map(|of| self.tag(of) - paid_ahead(of)).min().unwrap();
        self.virtual_time = self.virtual_time.max(lowest);
        if !world.running.contains_key(&id) {
            let (paid, prepaid) = self.running.remove(&id).unwrap();
            let tag = self.tags[&device].saturating_sub(prepaid);
            self.tags.insert(device, tag);
            // So long it has held a slot, and a whole turn of it costs a turn of bytes.
            let held = world.now.since(begun).min(SLOT_TURN).as_millis() as u64;
            let least = TURN_BYTES / SLOT_TURN.as_millis() as u64 * held;
            self.charge(device, least.saturating_sub(paid - prepaid));
        }
    }
}

#[test]
fn a_hundred_thousand_uploads_are_sent_oldest_first_in_bounded_memory() {
    // The model's own pages are slow; so the queue is fed by hand, in order, as the store would.
    let mut dispatcher = Dispatcher::default();
    let (now, from) = (Timestamp::from_secs(1), device(1));
    let (mut most, mut started, mut running, mut done) = (0, Vec::new(), Vec::new(), 0_u32);
    loop {
        while let Some(output) = dispatcher.poll_output(now) {
            match output {
                Output::Start { id, .. } => {
                    started.push(id);
                    running.push(id);
                }
                Output::Devices { list, .. } => {
                    let devices = if list == List::Send && done < 100_000 { vec![from] } else { vec![] };
                    dispatcher.handle_devices(list, &devices, true);
                }
                Output::Load { list, after, .. } => {
                    // What is under way is still in the store.
                    let first = after.map_or(done, |after: u32| after + 1);
                    let next = (first + 64).min(100_000);
                    let entry = |place| Entry {
                        id: id(place),
                        origin: "https://a.example".into(),
                        total: 9,
                        deadline: None,
                        place,
                    };
                    dispatcher.handle_entries(list, from, (first..next).map(entry).collect(), next == 100_000, now);
                    most = most.max(dispatcher.waiting());
                }
                Output::Yield { .. } | Output::Stop { .. } => panic!("nobody else waits"),
            }
        }
        if running.is_empty() {
            break;
        }
        dispatcher.handle_done(running.remove(0), now);
        done += 1;
    }
    assert_eq!(started.len(), 100_000);
    assert!(started.is_sorted(), "oldest first");
    assert!(most <= PER_HOST, "{most} are in memory at most, whatever waits in the store");
}

#[test]
fn a_small_upload_does_not_wait_behind_four_films() {
    let mut world = World::new(TRANSFERS);
    (0..10).for_each(|number| world.add(number, Row::new(device(1), "https://a.example", FILM)));
    world.drain();
    assert_eq!(world.running.len(), TRANSFERS - 1, "one slot is kept");
    world.add(99, Row::new(device(1), "https://a.example", PHOTO));
    world.pass_refresh();
    assert!(world.running.contains_key(&id(99)));
}

#[test]
fn a_small_upload_behind_a_thousand_films_is_found() {
    let mut world = World::new(TRANSFERS);
    (0..1_000).for_each(|number| world.add(number, Row::new(device(1), "https://a.example", FILM)));
    world.add(5_000, Row::new(device(1), "https://a.example", PHOTO));
    world.drain();
    assert!(world.running.contains_key(&id(5_000)));
}

#[test]
fn a_device_with_one_photo_is_not_behind_anothers_hundred_films() {
    let mut world = World::new(TRANSFERS);
    (0..100).for_each(|number| world.add(number, Row::new(device(1), "https://a.example", 100 * TURN_BYTES)));
    world.drain();
    world.add(500, Row::new(device(2), "https://a.example", 100 * TURN_BYTES));
    world.add(501, Row::new(device(2), "https://a.example", PHOTO));
    world.pass_refresh();
    assert!(world.running.contains_key(&id(500)), "its film has a slot at once");
    assert!(world.running.contains_key(&id(501)), "and its photo");
}

#[test]
fn films_of_a_device_that_is_ahead_make_way_between_messages() {
    let mut world = World::new(TRANSFERS);
    (0..10).for_each(|number| world.add(number, Row::new(device(1), "https://a.example", 100 * TURN_BYTES)));
    world.pass_refresh();
    (10..15).for_each(|number| world.add(number, Row::new(device(2), "https://a.example", 100 * TURN_BYTES)));
    world.pass_refresh();
    for _ in 0..40 {
        let running: Vec<_> = world.running.keys().copied().collect();
        running.into_iter().for_each(|id| {
            world.message(id, 0);
        });
        world.pass_refresh();
    }
    let (one, other) = (world.served[&device(1)], world.served[&device(2)]);
    assert!(one.abs_diff(other) <= 8 * TURN_BYTES, "{} and {} turns", one / TURN_BYTES, other / TURN_BYTES);
}

#[test]
fn an_earlier_deadline_goes_first_and_does_not_wait_for_a_films_end() {
    let mut world = World::new(TRANSFERS);
    (0..4).for_each(|number| world.add(number, Row::new(device(1), "https://a.example", 100 * TURN_BYTES)));
    world.drain();
    let soon = Some(world.wall().plus_secs(60));
    world.add(9, Row { deadline: soon, ..Row::new(device(1), "https://a.example", FILM) });
    world.pass_refresh();
    assert!(!world.running.contains_key(&id(9)), "all films' slots are taken");
    let yielding = world.running.iter().find(|(_, told)| **told).map(|(id, _)| *id).expect("one makes way");
    world.message(yielding, 0);
    world.drain();
    assert!(world.running.contains_key(&id(9)));
}

#[test]
fn an_upload_starts_though_another_destination_crawls() {
    for total in [PHOTO, FILM] {
        let mut world = World::new(TRANSFERS);
        (0..100).for_each(|number| world.add(number, Row::new(device(1), "https://slow.example", total)));
        world.drain();
        let held = world.running.len();
        assert!(held >= TRANSFERS - 1);
        (200..203).for_each(|number| world.add(number, Row::new(device(1), "https://fast.example", FILM)));
        world.pass_refresh();
        let fast = world.running.keys().filter(|running| **running >= id(200)).count();
        assert!(fast >= 1, "{total}: of the same device");
        world.add(300, Row::new(device(2), "https://third.example", FILM));
        world.pass_refresh();
        assert!(world.running.contains_key(&id(300)), "{total}: and another's");
    }
}

/// Uploads of device 1, each for a host of its own that reads next to nothing.
fn hostile(world: &mut World, total: u64) {
    for number in 0..20 {
        world.add(number, Row::new(device(1), &format!("http://s{number}.example:8001"), total));
    }
    world.drain();
}

#[test]
fn a_device_with_many_slow_destinations_leaves_slots_for_new_devices() {
    for total in [PHOTO, FILM, 100 * TURN_BYTES] {
        let mut world = World::new(TRANSFERS);
        hostile(&mut world, total);
        assert!(world.slots(device(1)) <= TRANSFERS + 1, "{total}: one extra slot at most");
        world.add(100, Row::new(device(2), "https://b.example", FILM));
        world.pass_refresh();
        assert!(world.running.contains_key(&id(100)), "{total}: the second device's film");
    }
}

#[test]
fn ports_of_one_host_are_one_destination() {
    let mut world = World::new(TRANSFERS);
    for number in 0..6 {
        world.add(number, Row::new(device(1), &format!("http://10.8.0.1:800{number}"), FILM));
    }
    world.drain();
    assert_eq!(world.running.len(), TRANSFERS - 1);
}

#[test]
fn a_device_holding_several_slots_loses_one_to_a_device_that_has_none() {
    for total in [PHOTO, FILM, 100 * TURN_BYTES] {
        let mut world = World::new(TRANSFERS);
        hostile(&mut world, total);
        // One slot is kept for small uploads: a film that crawls leaves room for four others, and a photo for five.
        let others = if total == PHOTO { 5 } else { 4 };
        for other in 2..2 + others {
            let film = u32::from(other) * 100;
            world.add(film, Row::new(device(other), "https://b.example", 100 * TURN_BYTES));
            world.crawl(BREAK_OFF + Duration::from_secs(3));
            assert!(world.running.contains_key(&id(film)), "{total}: device {other} waits");
        }
        assert_eq!(world.slots(device(1)), 1, "{total}: it keeps one");
    }
}

#[test]
fn devices_with_one_upload_each_that_crawls_give_slots_to_one_that_waits() {
    for total in [PHOTO, FILM, 100 * TURN_BYTES] {
        let mut world = World::new(TRANSFERS);
        let hostile = 1..=if total == PHOTO { 6 } else { 5 };
        for from in hostile.clone() {
            for number in 0..20 {
                let origin = format!("https://s{from}.example");
                world.add(u32::from(from) * 100 + number, Row::new(device(from), &origin, total));
            }
        }
        world.drain();
        assert!(hostile.clone().all(|from| world.slots(device(from)) == 1), "{total}: they have all slots");
        world.crawl(10 * SLOT_TURN);
        assert_eq!(world.started.len(), hostile.clone().count(), "{total}: nobody else waits");
        let honest = id(5_000);
        world.add(5_000, Row::new(device(9), "https://b.example", FILM));
        world.crawl(BREAK_OFF + Duration::from_secs(3));
        assert!(world.running.contains_key(&honest), "{total}: one of them has had its turn");
        world.message(honest, 0);
        world.add(5_001, Row::new(device(9), "https://b.example", FILM));
        world.crawl(SLOT_TURN + BREAK_OFF + Duration::from_secs(3));
        assert!(world.started.contains(&id(5_001)), "{total}: and again");
    }
}

#[test]
fn nothing_is_broken_off_while_nobody_waits_who_has_nothing_under_way() {
    let mut world = World::new(TRANSFERS);
    hostile(&mut world, FILM);
    (100..110).for_each(|number| world.add(number, Row::new(device(2), "https://b.example", FILM)));
    for _ in 0..100 {
        world.pass_refresh();
        assert_eq!(world.broken_off, [], "what is ahead makes way between messages");
    }
    assert_eq!(world.dispatcher.poll_timeout(), None, "nothing is to be broken off");
}

#[test]
fn before_it_is_broken_off_an_attempt_may_end_its_message() {
    let mut world = World::new(TRANSFERS);
    hostile(&mut world, FILM);
    (2..=4).for_each(|other| world.add(u32::from(other) * 100, Row::new(device(other), "https://b.example", FILM)));
    world.pass_refresh();
    let told: Vec<_> = world.running.iter().filter(|(_, told)| **told).map(|(id, _)| *id).collect();
    assert_eq!(told.len(), 1);
    assert_eq!(world.dispatcher.poll_timeout(), Some(world.now + BREAK_OFF));
    world.now += BREAK_OFF - Duration::from_micros(1);
    world.drain();
    assert_eq!(world.broken_off, []);
    world.now += Duration::from_micros(1);
    world.drain();
    assert_eq!(world.broken_off, told);
}

/// Questions of a device, each at a host of its own.
fn questions(world: &mut World, from: u8, numbers: std::ops::Range<u32>) {
    for number in numbers {
        let origin = format!("https://s{number}.example");
        world.add(number, Row { asks: true, ..Row::new(device(from), &origin, PHOTO) });
    }
}

#[test]
fn one_devices_unanswered_probes_take_at_most_half_of_the_slots() {
    let mut world = World::new(TRANSFERS);
    questions(&mut world, 1, 0..20);
    world.drain();
    assert_eq!(world.slots(device(1)), ASKS_EACH);
    questions(&mut world, 2, 100..101);
    world.pass_refresh();
    assert!(world.running.contains_key(&id(100)));
}

#[test]
fn a_host_that_answers_no_question_leaves_half_of_the_slots_to_others() {
    let mut world = World::new(TRANSFERS);
    for number in 0..20 {
        let origin = format!("http://10.8.0.1:80{number:02}");
        world.add(number, Row { asks: true, ..Row::new(device(number as u8), &origin, PHOTO) });
    }
    world.drain();
    assert_eq!(world.running.len(), ASKS_EACH);
    questions(&mut world, 0, 100..101);
    world.pass_refresh();
    assert!(world.running.contains_key(&id(100)), "even of a device that has asked that host");
}

#[test]
fn questions_are_asked_for_each_device_in_turn() {
    let mut world = World::new(TRANSFERS);
    questions(&mut world, 1, 0..200);
    questions(&mut world, 2, 200..400);
    questions(&mut world, 3, 400..410);
    for _ in 0..30 {
        world.pass_refresh();
        // The one that has run longest is answered.
        let oldest = *world.started.iter().find(|id| world.running.contains_key(id)).unwrap();
        world.message(oldest, 0);
    }
    let asked = |from| world.started.iter().filter(|id| world.rows[*id].device == device(from)).count();
    assert_eq!(asked(3), 10, "it does not wait until those before it have asked all of theirs");
    assert!(asked(1).abs_diff(asked(2)) <= ASKS_EACH);
}

#[test]
fn a_probe_that_takes_a_minute_is_broken_off_for_a_device_that_has_none() {
    let mut world = World::new(TRANSFERS);
    questions(&mut world, 1, 0..20);
    questions(&mut world, 2, 100..120);
    world.drain();
    assert_eq!(world.running.len(), ASKS);
    world.crawl(Duration::from_secs(600));
    assert!(world.started.len() == ASKS, "nobody else waits");
    questions(&mut world, 3, 200..201);
    world.crawl(Duration::from_secs(3));
    assert!(world.running.contains_key(&id(200)));
}

#[test]
fn one_upload_tries_an_unreachable_destination_while_others_go_elsewhere() {
    let mut world = World::new(TRANSFERS);
    let dead = |number| (number, Row { failures: vec![true; 9], ..Row::new(device(1), "https://dead.example", PHOTO) });
    (0..500).map(dead).for_each(|(number, row)| world.add(number, row));
    (500..600).for_each(|number| world.add(number, Row::new(device(1), "https://alive.example", PHOTO)));
    world.drain();
    for _ in 0..5_000 {
        if world.rows.range(id(500)..).all(|(_, row)| row.done) {
            break;
        }
        world.drain();
        let dead = world.running.keys().filter(|running| **running < id(500)).count();
        assert!(world.started.len() < 5 || dead <= TRANSFERS);
        match world.running.keys().next().copied() {
            Some(running) => drop(world.message(running, u32::MAX)),
            None => world.pass(),
        }
    }
    assert!(world.rows.range(id(500)..).all(|(_, row)| row.done), "the living destination is served");
    let tried = world.started.iter().filter(|started| **started < id(500)).count();
    assert!(tried <= 40, "the dead one was tried {tried} times in {:?}", world.now - Timestamp::from_secs(1));
}

#[test]
fn a_long_upload_after_a_hiccup_keeps_nobody_waiting_for_its_end() {
    let mut world = World::new(TRANSFERS);
    world.add(1, Row { failures: vec![true], ..Row::new(device(1), "https://a.example", 100 * TURN_BYTES) });
    world.drain();
    world.message(id(1), 0);
    while !world.running.contains_key(&id(1)) {
        world.pass();
        world.drain();
    }
    // As long ones, and more of them than one.
    (3..=5).for_each(|from| world.add(u32::from(from), Row::new(device(from), "https://a.example", 100 * TURN_BYTES)));
    world.add(2, Row::new(device(2), "https://a.example", PHOTO));
    world.pass_refresh();
    assert_eq!(world.running.len(), 1, "one tries first");
    let waits = world.dispatcher.poll_timeout().expect("it is looked at again");
    assert!(waits <= world.now + DOUBT);
    world.now += DOUBT;
    world.drain();
    assert!(world.running.contains_key(&id(2)), "it goes on, and so may others");
}

#[test]
fn who_holds_slots_with_a_few_bytes_is_not_behind_who_sends() {
    // Six devices have 1 KB for services that answer after 50 s; a seventh has sent more than all of them.
    let mut world = World::new(TRANSFERS);
    for from in 1..=6 {
        for number in 0..20 {
            let origin = format!("https://s{from}.example");
            world.add(u32::from(from) * 100 + number, Row::new(device(from), &origin, PHOTO));
        }
    }
    world.drain();
    assert_eq!(world.running.len(), 6);
    for number in 5_000..5_010 {
        world.add(number, Row::new(device(9), "https://b.example", 300_000));
        for _ in 0..51 {
            world.pass_refresh();
        }
        let hostile: Vec<_> = world.running.keys().copied().filter(|running| *running < id(5_000)).collect();
        for running in hostile {
            world.message(running, 0);
            world.drain();
        }
        assert!(world.running.contains_key(&id(number)), "{number}: it has the first slot that is free");
        world.message(id(number), 0);
        world.drain();
    }
}

#[test]
fn who_only_waits_for_answers_has_short_turns() {
    // Of 24 devices all is sent, and no service answers.
    let mut world = World::new(TRANSFERS);
    for from in 1..=24 {
        world.add(from.into(), Row::new(device(from), &format!("https://s{from}.example"), PHOTO));
    }
    let honest = id(5_000);
    world.add(5_000, Row::new(device(99), "https://b.example", PHOTO));
    let mut sent = BTreeMap::new();
    world.drain();
    while !world.running.contains_key(&honest) {
        for running in world.running.keys() {
            let begun = world.begun[running];
            if sent.insert(*running, begun) != Some(begun) {
                world.dispatcher.handle_sent(*running, PHOTO);
            }
        }
        world.crawl(Duration::from_secs(1));
    }
    let waited = world.now - Timestamp::from_secs(1);
    assert!(waited <= 5 * (ANSWER_TURN + Duration::from_secs(3)), "{waited:?}");
}

#[test]
fn a_network_that_came_back_is_used_at_once() {
    let mut world = World::new(TRANSFERS);
    for number in 0..10 {
        let failures = if number < 4 { vec![true] } else { vec![] };
        world.add(number, Row { failures, ..Row::new(device(1), "https://a.example", PHOTO) });
    }
    world.drain();
    let first: Vec<_> = world.running.keys().copied().collect();
    first.into_iter().for_each(|id| {
        world.message(id, u32::MAX);
    });
    world.drain();
    assert!(world.running.is_empty());
    world.dispatcher.handle_network_back();
    world.drain();
    assert_eq!(world.running.len(), TRANSFERS);
}

#[test]
fn a_shut_gate_stops_transfers_except_those_that_would_miss_a_deadline() {
    let mut world = World::new(TRANSFERS);
    let now = world.wall();
    world.add(1, Row::new(device(1), "https://a.example", FILM));
    world.add(2, Row { deadline: Some(now.plus_secs(3_000)), ..Row::new(device(1), "https://a.example", FILM) });
    world.add(3, Row { deadline: Some(now.plus_secs(90_000)), ..Row::new(device(1), "https://a.example", FILM) });
    world.drain();
    assert_eq!(world.running.len(), 3);
    let opens = now.plus_secs(3_600);
    world.dispatcher.set_gate(Gate::Urgent { now, opens, rate: Bitrate::mbps(1) });
    world.drain();
    let told: Vec<_> = world.running.iter().filter(|(_, told)| **told).map(|(id, _)| *id).collect();
    assert_eq!(told, [id(1), id(3)], "the second would be late");
    told.into_iter().for_each(|id| world.dispatcher_ended_early(id));
    world.dispatcher.set_gate(Gate::Shut);
    world.drain();
    world.dispatcher_ended_early(id(2));
    world.pass_refresh();
    assert!(world.running.is_empty());
    world.dispatcher.set_gate(Gate::Open);
    world.drain();
    assert_eq!(world.running.len(), 3, "all of them are still due");
}

#[test]
fn of_more_devices_than_are_held_each_gets_its_turn() {
    let mut world = World::new(TRANSFERS);
    for number in 0..(5 * DEVICES as u32) {
        for upload in 0..4 {
            let row = Row::new(device((number % 250) as u8), "https://a.example", PHOTO);
            world.add(number * 4 + upload, row);
        }
    }
    while world.rows.values().any(|row| !row.done) {
        world.pass_refresh();
        assert!(world.dispatcher.waiting() <= 3 * WINDOW);
        let longest = *world.started.iter().find(|id| world.running.contains_key(id)).expect("something is sent");
        world.message(longest, 0);
    }
    let mut first = BTreeMap::new();
    for (place, id) in world.started.iter().enumerate() {
        first.entry(world.rows[id].device).or_insert(place);
    }
    assert_eq!(first.len(), 5 * DEVICES, "everybody was served");
    let last = first.values().max().unwrap();
    assert!(*last <= 7 * DEVICES, "the last one after {last} uploads");
}

#[test]
fn retry_after_is_the_least_wait_and_six_hours_the_most() {
    let mut dispatcher = Dispatcher::<u32>::default();
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
    let mut world = World::new(TRANSFERS);
    world.add(1, Row { failures: vec![false], ..Row::new(device(1), "https://a.example", PHOTO) });
    world.drain();
    world.wall_offset += 365 * 86_400;
    world.message(id(1), 0);
    world.wall_offset -= 365 * 86_400;
    let before = world.now;
    world.run(50);
    assert!(world.now - before <= Duration::from_secs(30), "it took {:?}", world.now - before);
}

#[test]
fn deadlines_are_told_with_what_is_left_of_each() {
    let mut world = World::new(1);
    let at = world.wall().plus_secs(600);
    world.add(1, Row { deadline: Some(at), ..Row::new(device(1), "https://a.example", 2 * TURN_BYTES) });
    world.add(2, Row { deadline: Some(at.plus_secs(1)), ..Row::new(device(1), "https://a.example", 2 * SMALL_BYTES) });
    world.drain();
    world.message(id(1), 0);
    let mut deadlines: Vec<_> = world.dispatcher.deadlines().collect();
    deadlines.sort_unstable();
    assert_eq!(deadlines, [(at, TURN_BYTES), (at.plus_secs(1), 2 * SMALL_BYTES)]);
}
