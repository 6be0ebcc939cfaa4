//! Lanes that go dark without anybody being told: what is under way on them, and what was said on them, goes over another.

mod random;
mod world;

use hoop_flow::ended;
use hoop_units::{Duration, UnixTime};
use world::{DEVICE, SERVER, World};

/// How long so many bytes take at that rate, in kbit/s.
fn takes(bytes: u64, kbps: u64) -> Duration {
    Duration::from_micros(bytes * 8_000 / kbps)
}

/// In each direction, whichever of both lanes goes dark.
fn dark(lanes: [(u64, u64); 2], goes: usize) {
    const ALL: u64 = 6_000_000;
    for (from, to) in [(SERVER, DEVICE), (DEVICE, SERVER)] {
        let mut world = World::new(&lanes);
        let flow = world.ends[from].as_mut().expect("it is there");
        flow.write(ALL);
        flow.finish();
        world.run(world.now + Duration::from_secs(1));
        world.darken(goes, true);
        let left = takes(ALL - world.come[to], lanes[1 - goes].0);
        let took = world.run_until_come(to, ALL, left * 4 + Duration::from_secs(60));
        let gap = world.gap[to];
        assert!(
            took <= left * 11 / 10 + Duration::from_secs(1),
            "{from} to {to}: {took:?}, and {left:?} is due, {gap:?} of nothing"
        );
        assert!(gap <= Duration::from_secs(1), "{from} to {to}: nothing came for {gap:?}");
    }
}

#[test]
fn a_transfer_goes_on_over_the_slower_lane_when_the_faster_one_goes_dark() {
    dark([(8_000, 10), (2_000, 40)], 0);
}

#[test]
fn a_transfer_goes_on_over_the_faster_lane_when_the_slower_one_goes_dark() {
    dark([(8_000, 10), (2_000, 40)], 1);
}

#[test]
fn a_transfer_goes_on_over_either_of_two_that_are_alike() {
    dark([(4_000, 20), (4_000, 20)], 0);
}

#[test]
fn what_is_said_once_comes_although_one_lane_is_dark() {
    for goes in [0, 1] {
        let mut world = World::new(&[(8_000, 10), (2_000, 40)]);
        world.darken(goes, true);
        let later = Some(UnixTime(1_800_000_000));
        world.device().set_deadline(later);
        world.run(world.now + Duration::from_millis(200));
        assert_eq!(world.deadline, later, "{goes}");
        world.device().finish();
        world.server().finish();
        world.run(world.now + Duration::from_millis(500));
        assert_eq!(world.ended, [Some(ended::FINISHED); 2], "{goes}");

        let mut world = World::new(&[(8_000, 10), (2_000, 40)]);
        world.darken(goes, true);
        world.device().reset(ended::GIVEN_UP);
        world.run(world.now + Duration::from_millis(500));
        assert_eq!(world.ended, [Some(ended::GIVEN_UP); 2], "{goes}");
    }
}
