//! Lanes that go dark and come back at random, one always living, with writes and control frames in between.
//!
//! `HOOP_SEED` is the first world's (1), `HOOP_CYCLES` says how many there are. Of the first 4,000 one fails, 2650: what a lane brings that is light for a moment may be older than what another has brought, and the new
//! is said again a few times only.

use crate::world::{DEVICE, SERVER, World};
use hoop_flow::ended;
use hoop_units::{Duration, Timestamp, UnixTime};
use rand_core::{Rng as _, SeedableRng as _};
use rand_pcg::Pcg64Mcg;

/// Worlds, unless `HOOP_CYCLES` says otherwise.
const WORLDS: u64 = 60;

/// What happens in each.
const TURNS: usize = 40;

/// How long a living lane takes at most to bring what another should have: what the slowest carrier holds at its rate, the patience with the other, and some round trips.
const LATE_MAX: Duration = Duration::from_secs(2);

/// How long the rest takes at most, over the slowest lane.
const REST_MAX: Duration = Duration::from_secs(120);

/// What an end said last, and when it should have been heard.
#[derive(Clone, Copy)]
struct Said<T> {
    what: Option<T>,
    until: Timestamp,
}

impl<T> Said<T> {
    const NOTHING: Self = Self { what: None, until: Timestamp::ZERO };
}

struct Life {
    dice: Pcg64Mcg,
    world: World,
    lanes: usize,
    deadline: Said<UnixTime>,
    /// Of each end.
    size: [Said<u64>; 2],
}

impl Life {
    fn new(seed: u64) -> Self {
        let mut dice = Pcg64Mcg::seed_from_u64(seed);
        let lanes = 2 + dice.next_u64() as usize % 3;
        let links: Vec<_> = (0..lanes).map(|_| (2_000 + dice.next_u64() % 18_000, 5 + dice.next_u64() % 95)).collect();
        Self { dice, world: World::new(&links), lanes, deadline: Said::NOTHING, size: [Said::NOTHING; 2] }
    }

    fn below(&mut self, end: u64) -> u64 {
        self.dice.next_u64() % end
    }

    fn turn(&mut self) {
        let until = self.world.now + LATE_MAX;
        let at = self.below(2) as usize;
        match self.below(8) {
            0..=2 => self.switch(),
            3 => {
                self.deadline = Said { what: Some(UnixTime(2_000_000_000 + self.dice.next_u32() % 1_000_000)), until };
                self.world.device().set_deadline(self.deadline.what);
            }
            4 => {
                self.size[at] = Said { what: Some(self.below(1 << 40)), until };
                let flow = self.world.ends[at].as_mut().expect("it is there");
                flow.set_size(self.size[at].what);
            }
            _ => {
                let most = [3_000, 1_000_000][usize::from(self.below(4) == 0)];
                let bytes = self.below(most);
                self.world.ends[at].as_mut().expect("it is there").write(bytes);
            }
        }
        let most = [100, 4_000][self.below(2) as usize];
        let pause = Duration::from_millis(self.below(most));
        self.world.run(self.world.now + pause);
        self.check();
    }

    /// A lane goes dark or comes back, but never the last that lives goes dark.
    fn switch(&mut self) {
        let lane = self.below(self.lanes as u64) as usize;
        let is_dark = !self.world.is_dark(lane);
        let living = (0..self.lanes).filter(|lane| !self.world.is_dark(*lane)).count();
        if !is_dark || living > 1 {
            self.world.darken(lane, is_dark);
            let until = self.world.now + LATE_MAX;
            self.deadline.until = self.deadline.until.max(until);
            self.size.iter_mut().for_each(|size| size.until = size.until.max(until));
        }
    }

    fn check(&self) {
        let (world, now) = (&self.world, self.world.now);
        for to in [DEVICE, SERVER] {
            assert!(world.stall[to] <= LATE_MAX, "{to} waited for {:?}", world.stall[to]);
            let said = self.size[1 - to];
            assert!(now < said.until || said.what == world.size[to], "{to} has not heard of the size");
        }
        let said = self.deadline;
        assert!(now < said.until || said.what == world.deadline, "the server has not heard of the deadline");
    }

    fn end(&mut self) {
        if self.below(4) == 0 {
            self.world.device().reset(ended::GIVEN_UP);
            self.world.run(self.world.now + LATE_MAX);
            assert_eq!(self.world.ended, [Some(ended::GIVEN_UP); 2]);
            return;
        }
        self.world.device().finish();
        self.world.server().finish();
        let until = self.world.now + REST_MAX;
        while self.world.now < until && self.world.ended.contains(&None) {
            self.world.run(self.world.now + Duration::from_millis(100));
            self.check();
        }
        assert_eq!(self.world.ended, [Some(ended::FINISHED); 2]);
    }
}

#[test]
fn whatever_is_written_or_said_comes_while_one_lane_lives() {
    let number = |name: &str| std::env::var(name).ok().map(|text| text.parse::<u64>().expect(name));
    let first = number("HOOP_SEED").unwrap_or(1);
    for seed in first..first + number("HOOP_CYCLES").unwrap_or(WORLDS) {
        let lived = std::panic::catch_unwind(|| {
            let mut life = Life::new(seed);
            (0..TURNS).for_each(|_| life.turn());
            life.end();
        });
        if let Err(why) = lived {
            println!("HOOP_SEED={seed}");
            std::panic::resume_unwind(why);
        }
    }
}
