//! Two lanes of which one goes dark without anybody being told: what is under way on it, and what was said on it, goes over the other.

use hoop_flow::frame::{Frame, Use, put_data_head};
use hoop_flow::{Binding, DeviceKey, Event, Flow, FlowId, FlowName, HostId, LaneId, Options, Transmit, ended};
use hoop_netem::{Link, LinkConfig, Parcel, QueueLimit};
use hoop_units::{Bitrate, Duration, Timestamp, UnixTime};

const KEY: DeviceKey = DeviceKey([9; 32]);
const NAME: FlowName = FlowName { host: HostId([1; 20]), flow: FlowId(7) };
const BEGIN: Timestamp = Timestamp::from_secs(1);

/// What a carrier takes of a lane before it takes no more: some window of TCP or QUIC, twice what the fastest has under way here.
const HELD_OCTETS: usize = 128 * 1024;

const DEVICE: usize = 0;
const SERVER: usize = 1;

/// A carrier with one lane, which loses nothing: two links, what has arrived at each end and is no whole frame yet.
struct Wire {
    lane: LaneId,
    links: [Link<Parcel<Vec<u8>>>; 2],
    held: [usize; 2],
    inbox: [Vec<u8>; 2],
    /// From then on nothing arrives.
    dark_at: Option<Timestamp>,
    is_closed: [bool; 2],
}

struct World {
    now: Timestamp,
    ends: [Option<Flow>; 2],
    wires: Vec<Wire>,
    /// How much has come to each end, and when; the longest time in which nothing came to who waited.
    come: [u64; 2],
    came_at: [Timestamp; 2],
    gap: [Duration; 2],
    ended: [Option<u64>; 2],
    deadlines: Vec<Option<UnixTime>>,
}

fn binding(lane: LaneId) -> Binding {
    Binding([lane.0 as u8; 32])
}

impl World {
    /// A flow whose lanes have these rates in kbit/s and these delays one way in ms.
    fn new(lanes: &[(u64, u64)]) -> Self {
        let flow = Flow::open(NAME, KEY, [3; 32], "test".into(), Options { window: 2 << 20, ..Options::default() });
        let ends = [Some(flow), None];
        let (wires, come, deadlines) = (Vec::new(), [0; 2], Vec::new());
        let mut world = Self {
            now: BEGIN,
            ends,
            wires,
            come,
            came_at: [BEGIN; 2],
            gap: [Duration::ZERO; 2],
            ended: [None; 2],
            deadlines,
        };
        for (number, (rate, delay)) in lanes.iter().enumerate() {
            let lane = LaneId(number as u64 + 1);
            let delay = Duration::from_millis(*delay);
            let link = |seed| {
                let config =
                    LinkConfig::new().rate(Bitrate::kbps(*rate)).delay(delay).queue(QueueLimit::packets(1_000));
                Link::new(config, seed, BEGIN)
            };
            let links = [link(1), link(2)];
            world.wires.push(Wire {
                lane,
                links,
                held: [0; 2],
                inbox: Default::default(),
                dark_at: None,
                is_closed: [false; 2],
            });
            world.device().attach(lane, binding(lane), Use::Normal, false);
            world.device().set_rtt(lane, delay * 2);
            world.run(world.now + Duration::from_secs(1));
            world.server().set_rtt(lane, delay * 2);
        }
        (world.came_at, world.gap) = ([world.now; 2], [Duration::ZERO; 2]);
        world
    }

    fn device(&mut self) -> &mut Flow {
        self.ends[DEVICE].as_mut().expect("it is there")
    }

    fn server(&mut self) -> &mut Flow {
        self.ends[SERVER].as_mut().expect("it is there")
    }

    fn deliver(&mut self, at: usize, to: usize) {
        let (now, from) = (self.now, 1 - to);
        let wire = &mut self.wires[at];
        wire.links[from].handle_timeout(now);
        let is_dark = wire.dark_at.is_some_and(|at| at <= now);
        while let Some(delivery) = wire.links[from].poll_output() {
            // Who sends into the dark hears of nothing, and holds what it has.
            if !is_dark {
                wire.held[from] -= delivery.packet.content.len();
                wire.inbox[to].extend_from_slice(&delivery.packet.content);
            }
        }
        let inbox = std::mem::take(&mut wire.inbox[to]);
        let (lane, mut rest) = (wire.lane, &inbox[..]);
        while let Some(frame) = Frame::take(&mut rest).expect("a frame") {
            self.handle(lane, to, &frame);
        }
        self.wires[at].inbox[to] = rest.to_vec();
    }

    fn handle(&mut self, lane: LaneId, to: usize, frame: &Frame<'_>) {
        let now = self.now;
        match (frame, &mut self.ends[to]) {
            (Frame::Open(open), end @ None) => {
                let options = Options { window: 2 << 20, ..Options::default() };
                *end = Some(Flow::accept(open, &KEY, lane, binding(lane), options).expect("it is accepted"));
            }
            (Frame::Resume(resume), Some(flow)) => flow.resume(resume, lane, binding(lane)).expect("it is attached"),
            (frame, Some(flow)) => {
                let new = match flow.handle(lane, frame, now) {
                    Err(hoop_flow::Violation::NoLane) => Vec::new(),
                    handled => handled.expect("no violation"),
                };
                let new: u64 = new.iter().map(|range| range.len()).sum();
                if new > 0 {
                    self.gap[to] = self.gap[to].max(now.since(self.came_at[to]));
                    self.came_at[to] = now;
                    self.come[to] += new;
                    let whole = flow.incoming().whole();
                    flow.consume(whole, now);
                }
            }
            (_, None) => panic!("no flow"),
        }
        self.events(to);
    }

    fn events(&mut self, at: usize) {
        let Some(flow) = self.ends[at].as_mut() else { return };
        while let Some(event) = flow.poll_event() {
            match event {
                Event::Close(lane) => {
                    self.wires.iter_mut().filter(|wire| wire.lane == lane).for_each(|wire| wire.is_closed[at] = true);
                }
                Event::Ended { code } => self.ended[at] = Some(code),
                Event::Deadline(deadline) => self.deadlines.push(deadline),
                _ => {}
            }
        }
    }

    fn transmit(&mut self, at: usize, from: usize) {
        let (now, wire) = (self.now, &mut self.wires[at]);
        let Some(flow) = self.ends[from].as_mut() else { return };
        while !wire.is_closed[from] && wire.held[from] < HELD_OCTETS {
            let octets = match flow.poll_transmit(wire.lane, 1_400, now) {
                Some(Transmit::Frames(octets)) => octets,
                Some(Transmit::Data(range)) => {
                    let mut octets = Vec::new();
                    put_data_head(&mut octets, range.start, range.len() as usize);
                    octets.extend(std::iter::repeat_n(7, range.len() as usize));
                    octets
                }
                None => break,
            };
            let len = octets.len();
            wire.held[from] += len;
            wire.links[from].handle_input(Parcel::new(octets, len), now);
        }
        self.events(from);
    }

    fn settle(&mut self) {
        for at in 0..self.wires.len() {
            self.deliver(at, DEVICE);
            self.deliver(at, SERVER);
        }
        for at in 0..self.wires.len() {
            self.transmit(at, DEVICE);
            self.transmit(at, SERVER);
        }
    }

    fn run(&mut self, until: Timestamp) {
        while self.now < until {
            self.settle();
            let links = self.wires.iter().flat_map(|wire| &wire.links).filter_map(Link::poll_timeout);
            let flows = self.ends.iter().flatten().filter_map(Flow::poll_timeout).filter(|at| *at > self.now);
            let next = links.chain(flows).min().unwrap_or(until);
            self.now = next.max(self.now + Duration::from_micros(1)).min(until);
        }
    }

    /// Until all has come to that end, or too long.
    fn run_until_come(&mut self, to: usize, octets: u64, most: Duration) -> Duration {
        let (began, until) = (self.now, self.now + most);
        while self.come[to] < octets && self.now < until {
            self.run((self.now + Duration::from_millis(10)).min(until));
        }
        assert_eq!(self.come[to], octets, "after {most:?}, of which it waited {:?}", self.gap[to]);
        self.now.since(began)
    }
}

/// How long so many octets take at that rate, in kbit/s.
fn takes(octets: u64, kbps: u64) -> Duration {
    Duration::from_micros(octets * 8_000 / kbps)
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
        world.wires[goes].dark_at = Some(world.now);
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
        world.wires[goes].dark_at = Some(world.now);
        let later = Some(UnixTime(1_800_000_000));
        world.device().set_deadline(later);
        world.run(world.now + Duration::from_millis(200));
        assert_eq!(world.deadlines.last(), Some(&later), "{goes}");
        world.device().finish();
        world.server().finish();
        world.run(world.now + Duration::from_millis(500));
        assert_eq!(world.ended, [Some(ended::FINISHED); 2], "{goes}");

        let mut world = World::new(&[(8_000, 10), (2_000, 40)]);
        world.wires[goes].dark_at = Some(world.now);
        world.device().reset(ended::GIVEN_UP);
        world.run(world.now + Duration::from_millis(500));
        assert_eq!(world.ended, [Some(ended::GIVEN_UP); 2], "{goes}");
    }
}
