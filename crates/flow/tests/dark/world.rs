//! Both ends of a flow in simulated time, over lanes that go dark and come back without anybody being told.

use hoop_flow::frame::{Frame, Use, put_data_head};
use hoop_flow::{Binding, DeviceId, DeviceKey, Event, Flow, FlowId, FlowName, LaneId, Options, Transmit};
use hoop_netem::{Link, LinkConfig, Parcel, QueueLimit};
use hoop_units::{Bitrate, Duration, Timestamp, UnixTime};

const KEY: DeviceKey = DeviceKey([9; 32]);
const NAME: FlowName = FlowName { device: DeviceId([1; 20]), flow: FlowId(7) };
const BEGIN: Timestamp = Timestamp::from_secs(1);

/// What a carrier takes of a lane before it takes no more: some window of TCP or QUIC, twice what the fastest has under way here.
const HELD_BYTES: usize = 128 * 1024;

pub const DEVICE: usize = 0;
pub const SERVER: usize = 1;

/// A carrier with one lane, which loses nothing: two links, what has arrived at each end and is no whole frame yet.
struct Wire {
    lane: LaneId,
    links: [Link<Parcel<Vec<u8>>>; 2],
    held: [usize; 2],
    inbox: [Vec<u8>; 2],
    /// Whether nothing arrives.
    is_dark: bool,
    /// What would have arrived at each end since it is dark: a carrier sends it again once there is light.
    late: [Vec<Vec<u8>>; 2],
    is_closed: [bool; 2],
}

pub struct World {
    pub now: Timestamp,
    pub ends: [Option<Flow>; 2],
    wires: Vec<Wire>,
    /// How much has come to each end, and when; the longest time in which nothing came to who waited.
    pub come: [u64; 2],
    came_at: [Timestamp; 2],
    pub gap: [Duration; 2],
    /// How much has come to each end without a gap; since when it waits for the next byte, or a lane went dark or came back; the longest such time.
    whole: [u64; 2],
    waits_since: [Option<Timestamp>; 2],
    pub stall: [Duration; 2],
    pub ended: [Option<u64>; 2],
    /// The last that the server heard.
    pub deadline: Option<UnixTime>,
    /// The last that each end heard.
    pub size: [Option<u64>; 2],
}

fn binding(lane: LaneId) -> Binding {
    Binding([lane.0 as u8; 32])
}

impl World {
    /// A flow whose lanes have these rates in kbit/s and these delays one way in ms.
    pub fn new(lanes: &[(u64, u64)]) -> Self {
        let flow = Flow::open(NAME, KEY, [3; 32], "test".into(), Options { window: 2 << 20, ..Options::default() });
        let ends = [Some(flow), None];
        let mut world = Self {
            now: BEGIN,
            ends,
            wires: Vec::new(),
            come: [0; 2],
            came_at: [BEGIN; 2],
            gap: [Duration::ZERO; 2],
            whole: [0; 2],
            waits_since: [None; 2],
            stall: [Duration::ZERO; 2],
            ended: [None; 2],
            deadline: None,
            size: [None; 2],
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
                is_dark: false,
                late: Default::default(),
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

    pub fn device(&mut self) -> &mut Flow {
        self.ends[DEVICE].as_mut().expect("it is there")
    }

    pub fn server(&mut self) -> &mut Flow {
        self.ends[SERVER].as_mut().expect("it is there")
    }

    fn deliver(&mut self, at: usize, to: usize) {
        let (now, from) = (self.now, 1 - to);
        let wire = &mut self.wires[at];
        wire.links[from].handle_timeout(now);
        while let Some(delivery) = wire.links[from].poll_output() {
            wire.late[to].push(delivery.packet.content);
        }
        // Who sends into the dark hears of nothing, and holds what it has.
        if !wire.is_dark {
            for bytes in wire.late[to].drain(..) {
                wire.held[from] -= bytes.len();
                wire.inbox[to].extend_from_slice(&bytes);
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
                Event::Deadline(deadline) => self.deadline = deadline,
                Event::Size(size) => self.size[at] = size,
                _ => {}
            }
        }
    }

    fn transmit(&mut self, at: usize, from: usize) {
        let (now, wire) = (self.now, &mut self.wires[at]);
        let Some(flow) = self.ends[from].as_mut() else { return };
        while !wire.is_closed[from] && wire.held[from] < HELD_BYTES {
            let bytes = match flow.poll_transmit(wire.lane, 1_400, now) {
                Some(Transmit::Frames(bytes)) => bytes,
                Some(Transmit::Data(range)) => {
                    let mut bytes = Vec::new();
                    put_data_head(&mut bytes, range.start, range.len() as usize);
                    bytes.extend(std::iter::repeat_n(7, range.len() as usize));
                    bytes
                }
                None => break,
            };
            let len = bytes.len();
            wire.held[from] += len;
            wire.links[from].handle_input(Parcel::new(bytes, len), now);
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

    pub fn run(&mut self, until: Timestamp) {
        while self.now < until {
            self.settle();
            self.mind_stalls();
            let links = self.wires.iter().flat_map(|wire| &wire.links).filter_map(Link::poll_timeout);
            let lanes = || self.wires.iter().map(|wire| wire.lane);
            let flows = self.ends.iter().flatten();
            let flows = flows.flat_map(|flow| lanes().filter_map(|lane| flow.lane_timeout(lane)));
            // What is due and was not done waits for room on a lane.
            let flows = flows.filter(|at| *at > self.now);
            let next = links.chain(flows).min().unwrap_or(until);
            self.now = next.max(self.now + Duration::from_micros(1)).min(until);
        }
    }

    fn mind_stalls(&mut self) {
        for to in [DEVICE, SERVER] {
            let (Some(sender), Some(receiver)) = (&self.ends[1 - to], &self.ends[to]) else { continue };
            let whole = receiver.incoming().whole();
            let waits = sender.outgoing().end() > whole && self.ended == [None; 2];
            let since = self.waits_since[to].filter(|_| waits && whole == self.whole[to]).unwrap_or(self.now);
            (self.whole[to], self.waits_since[to]) = (whole, waits.then_some(since));
            self.stall[to] = self.stall[to].max(self.now.since(since));
        }
    }

    /// A lane goes dark, or comes back. Nobody is told.
    pub fn darken(&mut self, lane: usize, is_dark: bool) {
        self.wires[lane].is_dark = is_dark;
        self.waits_since = [None; 2];
    }

    pub fn is_dark(&self, lane: usize) -> bool {
        self.wires[lane].is_dark
    }

    /// Until all has come to that end, or too long.
    pub fn run_until_come(&mut self, to: usize, bytes: u64, most: Duration) -> Duration {
        let (began, until) = (self.now, self.now + most);
        while self.come[to] < bytes && self.now < until {
            self.run((self.now + Duration::from_millis(10)).min(until));
        }
        assert_eq!(self.come[to], bytes, "after {most:?}, of which it waited {:?}", self.gap[to]);
        self.now.since(began)
    }
}
