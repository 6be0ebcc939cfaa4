//! A device and a server in simulated time, with carriers that are cut at any byte, address changes, restarts of either end, and outages of
//! days: what is written at one end comes out at the other, all of it, once, in order.
//!
//! `HOOP_SEED` repeats a run's choices, `HOOP_CYCLES` sets how many worlds there are.

use hoop_flow::frame::{Frame, Refusal, Use, put_data_head};
use hoop_flow::{
    Binding, DeviceId, DeviceKey, Event, Flow, FlowId, FlowName, LaneId, Options, Record, Transmit, ended,
};
use hoop_netem::{Link, LinkConfig, Parcel, QueueLimit};
use hoop_units::{Bitrate, ByteRange, Duration, RangeSet, Timestamp};
use rand_core::{Rng as _, SeedableRng as _};
use rand_pcg::Pcg64Mcg;

const KEY: DeviceKey = DeviceKey([9; 32]);

const NAME: FlowName = FlowName { device: DeviceId([1; 20]), flow: FlowId(7) };

/// Worlds, unless `HOOP_CYCLES` says otherwise.
const WORLDS: u64 = 150;

/// What is done to each.
const MISHAPS: u32 = 60;

/// An end notes its record down once in so many steps: in between an outage begins and ends.
const SAVES_ONE_IN: u32 = 300;

/// What a carrier holds of a lane before it takes no more.
const HELD_MAX: usize = 4;

/// A world that has not come to its end after so many steps never does.
const STEPS_MAX: u32 = 2_000_000;

/// The byte at an offset of the stream that an end sends.
fn byte(from: Who, offset: u64) -> u8 {
    let mixed = (offset ^ from as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (mixed >> 56) as u8
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Who {
    Device,
    Server,
}

use Who::{Device, Server};

impl Who {
    const fn other(self) -> Self {
        match self {
            Device => Server,
            Server => Device,
        }
    }
}

/// One end: the machine, and what its owner keeps beside it.
struct End {
    flow: Option<Flow>,
    options: Options,
    /// The bytes that have come, and which they are.
    come: Vec<u8>,
    have: RangeSet,
    /// An older record: what is written down at leisure may be out of date.
    saved: Option<Record>,
    /// What it still has to write: for the first time, or again after a restart.
    owed: u64,
    /// Whether nothing follows on that.
    is_last: bool,
}

impl End {
    fn take(&mut self, new: &[ByteRange], offset: u64, bytes: &[u8]) {
        for range in new {
            let missing: Vec<_> = self.have.missing(range.end).map(|gap| gap.intersect(*range)).collect();
            assert_eq!(missing.iter().map(|gap| gap.len()).sum::<u64>(), range.len(), "{range} is said to be new");
            let end = range.end as usize;
            if self.come.len() < end {
                self.come.resize(end, 0);
            }
            let from = (range.start - offset) as usize;
            self.come[range.start as usize..end].copy_from_slice(&bytes[from..from + range.len() as usize]);
            self.have.insert(*range);
        }
    }

    /// The process ends and begins again. What is not known to outlive that does not.
    fn restart(&mut self) {
        let Some(flow) = self.flow.take() else { return };
        let now = flow.record();
        let mut record = now.clone();
        if !self.options.keeps_at_once
            && let Some(saved) = self.saved.clone()
        {
            (record.epoch, record.acked, record.credit, record.end) =
                (saved.epoch, saved.acked.max(now.available), saved.credit, saved.end);
            (record.opening, record.granted) = (saved.opening, saved.granted);
            if now.is_device {
                // Its application can write all of it again, and writes nothing down before it sends it, but where the streams end.
                (record.acked, record.available, record.end) = (saved.acked, saved.available, now.end);
                if !now.finished {
                    record.written = saved.written;
                }
            }
        }
        record.consumed = record.consumed.min(record.kept);
        self.come.truncate(record.kept as usize);
        self.have = [ByteRange::new(0, record.kept)].into_iter().collect();
        self.owed = self.owed + flow.outgoing().ready() - record.available;
        let mut flow = Flow::restore(&record, self.options);
        flow.supply_again();
        self.flow = Some(flow);
    }
}

/// A carrier with one lane: two links, and what has arrived at each end and is not a whole frame yet.
struct Wire {
    lane: LaneId,
    links: [Link<Parcel<Vec<u8>>>; 2],
    inbox: [Vec<u8>; 2],
    /// When each end notices that it is gone.
    gone: [Option<Timestamp>; 2],
    /// Whether each end has closed it, and sends nothing more.
    closed: [bool; 2],
    is_cut: bool,
}

struct World {
    rng: Pcg64Mcg,
    now: Timestamp,
    ends: [End; 2],
    wires: Vec<Wire>,
    lanes: u64,
    mishaps: u32,
    ended: [Option<u64>; 2],
}

fn micros(rng: &mut Pcg64Mcg, most: u64) -> Duration {
    Duration::from_micros(rng.next_u64() % most.max(1))
}

impl World {
    fn new(seed: u64) -> Self {
        let mut rng = Pcg64Mcg::seed_from_u64(seed);
        let mut options =
            || Options { window: 20_000 + rng.next_u64() % 400_000, keeps_at_once: rng.next_u32().is_multiple_of(2) };
        let options = [options(), options()];
        let end = |who: Who, flow| End {
            flow,
            options: options[who as usize],
            come: Vec::new(),
            have: RangeSet::new(),
            saved: None,
            owed: 0,
            is_last: false,
        };
        let flow = Flow::open(NAME, KEY, [3; 32], "test".into(), options[0]);
        let ends = [end(Device, Some(flow)), end(Server, None)];
        Self { rng, now: Timestamp::from_secs(1), ends, wires: Vec::new(), lanes: 0, mishaps: 0, ended: [None; 2] }
    }

    fn attach(&mut self, replaces: bool) {
        self.lanes += 1;
        let lane = LaneId(self.lanes);
        let rate = Bitrate::kbps(200 + self.rng.next_u64() % 30_000);
        let delay = micros(&mut self.rng, 300_000);
        let link = |seed| {
            let config = LinkConfig::new().rate(rate).delay(delay).queue(QueueLimit::packets(1_000));
            Link::new(config, seed, self.now)
        };
        let links = [link(1), link(2)];
        let backup = self.rng.next_u32().is_multiple_of(8);
        let Some(flow) = self.ends[0].flow.as_mut() else { return };
        flow.attach(lane, binding(lane), if backup { Use::Backup } else { Use::Normal }, replaces);
        flow.set_rtt(lane, delay * 2);
        let (inbox, gone, closed) = (<[Vec<u8>; 2]>::default(), [None; 2], [false; 2]);
        self.wires.push(Wire { lane, links, inbox, gone, closed, is_cut: false });
    }

    fn cut(&mut self, at: usize) {
        let notices = [30_000_000, 90_000_000].map(|most| self.now + micros(&mut self.rng, most));
        let wire = &mut self.wires[at];
        if !wire.is_cut {
            (wire.is_cut, wire.gone) = (true, notices.map(Some));
        }
    }

    /// Something that happens to people on the move.
    fn mishap(&mut self) {
        self.mishaps += 1;
        let wires = self.wires.len();
        match self.rng.next_u32() % 16 {
            0..=3 if wires > 0 => {
                let at = self.rng.next_u64() as usize % wires;
                self.cut(at);
            }
            4 => {
                (0..wires).for_each(|at| self.cut(at));
                self.now += micros(&mut self.rng, 30 * 24 * 3_600_000_000);
            }
            5 | 6 => self.restart(Device),
            7 | 8 => self.restart(Server),
            9 | 10 => self.attach(true),
            11 | 12 => self.attach(false),
            _ => {
                for at in 0..2 {
                    let (bytes, is_last) = (self.rng.next_u64() % 300_000, self.rng.next_u32().is_multiple_of(32));
                    let end = &mut self.ends[at];
                    if end.flow.is_some() && !end.is_last {
                        (end.owed, end.is_last) = (end.owed + bytes, is_last);
                    }
                }
            }
        }
    }

    fn restart(&mut self, who: Who) {
        for wire in &mut self.wires {
            wire.is_cut = true;
            wire.gone[who as usize] = None;
            let notices = self.now + micros(&mut self.rng, 60_000_000);
            wire.gone[who.other() as usize].get_or_insert(notices);
            wire.closed[who as usize] = true;
        }
        let end = &mut self.ends[who as usize];
        let ended = end.flow.as_ref().and_then(Flow::ended);
        self.ended[who as usize] = self.ended[who as usize].or(ended);
        end.restart();
    }

    /// Everything that is due now; then what it leads to.
    fn settle(&mut self) {
        for at in 0..self.wires.len() {
            for to in [Device, Server] {
                let (wire, now) = (&mut self.wires[at], self.now);
                if wire.gone[to as usize].is_some_and(|gone| gone <= now) {
                    wire.gone[to as usize] = None;
                    wire.closed[to as usize] = true;
                    let lane = wire.lane;
                    if let Some(flow) = self.ends[to as usize].flow.as_mut() {
                        flow.detach(lane);
                    }
                }
                self.deliver(at, to);
            }
        }
        self.mind();
        for at in 0..self.wires.len() {
            self.transmit(at, Device);
            self.transmit(at, Server);
        }
        self.mind();
        for wire in &mut self.wires {
            // What one end has closed the other notices once all has arrived.
            for (from, to) in [(0, 1), (1, 0)] {
                let drained = wire.links[from].held_packets() == 0;
                if wire.closed[from] && !wire.closed[to] && drained && !wire.is_cut && wire.gone[to].is_none() {
                    wire.gone[to] = Some(self.now);
                }
            }
        }
        for wire in self.wires.extract_if(.., |wire| wire.closed == [true; 2]) {
            for end in &mut self.ends {
                end.flow.iter_mut().for_each(|flow| flow.detach(wire.lane));
            }
        }
    }

    fn deliver(&mut self, at: usize, to: Who) {
        let wire = &mut self.wires[at];
        let link = &mut wire.links[to.other() as usize];
        link.handle_timeout(self.now);
        while let Some(delivery) = link.poll_output() {
            if !wire.is_cut && !wire.closed[to as usize] {
                wire.inbox[to as usize].extend_from_slice(&delivery.packet.content);
            }
        }
        let inbox = std::mem::take(&mut self.wires[at].inbox[to as usize]);
        let (lane, mut rest) = (self.wires[at].lane, &inbox[..]);
        while !self.wires[at].closed[to as usize]
            && let Some(frame) = Frame::take(&mut rest).expect("a frame")
        {
            self.handle(at, to, lane, &frame);
        }
        self.wires[at].inbox[to as usize] = rest.to_vec();
    }

    fn handle(&mut self, at: usize, to: Who, lane: LaneId, frame: &Frame<'_>) {
        let end = &mut self.ends[to as usize];
        let answer = match (to, frame, &mut end.flow) {
            (Server, Frame::Open(open), None) => {
                Flow::accept(open, &KEY, lane, binding(lane), end.options).map(|flow| end.flow = Some(flow))
            }
            (Server, Frame::Open(open), Some(flow)) => flow.reopen(open, &KEY, lane, binding(lane)),
            (Server, Frame::Resume(_), None) => Err(Refusal::Unknown),
            (Server, Frame::Resume(resume), Some(flow)) => flow.resume(resume, lane, binding(lane)),
            (_, frame, Some(flow)) => {
                let new = match flow.handle(lane, frame, self.now) {
                    Ok(new) => new,
                    // It closed the lane before this came.
                    Err(hoop_flow::Violation::NoLane) => Vec::new(),
                    Err(error) => panic!("{to:?}, lane {lane:?}: {error}"),
                };
                if let Frame::Data { offset, bytes } = frame {
                    end.take(&new, *offset, bytes);
                }
                Ok(())
            }
            (_, _, None) => Ok(()),
        };
        if let Err(refusal) = answer {
            let mut bytes = Vec::new();
            Frame::Refused(refusal).put(&mut bytes);
            let len = bytes.len();
            self.wires[at].links[Server as usize].handle_input(Parcel::new(bytes, len), self.now);
            self.wires[at].closed[Server as usize] = true;
        }
    }

    fn transmit(&mut self, at: usize, from: Who) {
        let wire = &mut self.wires[at];
        let Some(flow) = self.ends[from as usize].flow.as_mut() else { return };
        while !wire.closed[from as usize] && wire.links[from as usize].held_packets() < HELD_MAX {
            let mut bytes = match flow.poll_transmit(wire.lane, 16_000, self.now) {
                Some(Transmit::Frames(bytes)) => bytes,
                Some(Transmit::Data(range)) => {
                    let mut bytes = Vec::new();
                    put_data_head(&mut bytes, range.start, range.len() as usize);
                    assert!(range.start >= flow.outgoing().available(), "it is sent what was dropped");
                    bytes.extend((range.start..range.end).map(|offset| byte(from, offset)));
                    bytes
                }
                None => break,
            };
            // A carrier is a stream: its packets end anywhere.
            let second = bytes.split_off(self.rng.next_u64() as usize % bytes.len());
            for part in [bytes, second] {
                let len = part.len().max(1);
                wire.links[from as usize].handle_input(Parcel::new(part, len), self.now);
            }
            while let Some(event) = flow.poll_event() {
                match event {
                    Event::Close(lane) if lane == wire.lane => wire.closed[from as usize] = true,
                    Event::Ended { code } => self.ended[from as usize] = Some(code),
                    _ => {}
                }
            }
        }
    }

    /// What the owners do: take, keep, drop, note down.
    fn mind(&mut self) {
        for at in 0..2 {
            let end = &mut self.ends[at];
            let Some(flow) = end.flow.as_mut() else { continue };
            while let Some(event) = flow.poll_event() {
                match event {
                    Event::Close(lane) => {
                        self.wires.iter_mut().filter(|wire| wire.lane == lane).for_each(|wire| wire.closed[at] = true);
                    }
                    Event::Ended { code } => self.ended[at] = Some(code),
                    _ => {}
                }
            }
            let some = |rng: &mut Pcg64Mcg, most: u64| {
                if rng.next_u32().is_multiple_of(4) { rng.next_u64() % (most + 1) } else { most }
            };
            let hurries = self.mishaps >= MISHAPS;
            if hurries || self.rng.next_u32().is_multiple_of(3) {
                let whole = flow.incoming().whole();
                if !end.options.keeps_at_once {
                    flow.keep(some(&mut self.rng, whole), self.now);
                }
                flow.consume(if hurries { whole } else { some(&mut self.rng, whole) }, self.now);
                if hurries {
                    flow.keep(whole, self.now);
                }
                // Whoever may be restarted to an older state keeps what that may lack.
                let acked = flow.outgoing().acked();
                flow.drop_before(some(&mut self.rng, acked));
            }
            if end.owed > 0 && (hurries || self.rng.next_u32().is_multiple_of(8)) {
                let bytes = if hurries { end.owed } else { some(&mut self.rng, end.owed) };
                flow.write(bytes);
                end.owed -= bytes;
            }
            if end.owed == 0 && end.is_last && !flow.outgoing().is_finished() {
                flow.finish();
            }
            if self.rng.next_u32().is_multiple_of(SAVES_ONE_IN) {
                end.saved = Some(flow.record());
            }
        }
    }

    fn next_time(&self) -> Option<Timestamp> {
        let links = self.wires.iter().flat_map(|wire| &wire.links).filter_map(Link::poll_timeout);
        let gone = self.wires.iter().flat_map(|wire| wire.gone).flatten();
        let flows = self.ends.iter().filter_map(|end| end.flow.as_ref()?.poll_timeout());
        // What is due and was not done waits for room on a lane.
        links.chain(gone).chain(flows.filter(|at| *at > self.now)).min()
    }

    fn run(&mut self, until: Timestamp) {
        let mut steps = 0;
        loop {
            self.settle();
            let next = self.next_time().unwrap_or(until).max(self.now + Duration::from_micros(1));
            if next >= until || self.ended == [Some(ended::FINISHED); 2] {
                self.now = self.now.max(until);
                return;
            }
            self.now = next;
            steps += 1;
            assert!(steps < STEPS_MAX, "it does not come to rest");
        }
    }
}

fn binding(lane: LaneId) -> Binding {
    let mut bytes = [0; 32];
    bytes[..8].copy_from_slice(&lane.0.to_be_bytes());
    Binding(bytes)
}

/// One life of a flow, from its opening to its end.
fn live(seed: u64) {
    let mut world = World::new(seed);
    world.attach(true);
    for _ in 0..MISHAPS {
        let until = world.now + micros(&mut world.rng, 3_000_000);
        world.run(until);
        world.mishap();
        let has_wire = world.wires.iter().any(|wire| !wire.is_cut);
        if !has_wire && world.rng.next_u32().is_multiple_of(2) {
            world.attach(true);
        }
    }
    for end in &mut world.ends {
        end.is_last = true;
    }
    for _ in 0..50 {
        if world.ended == [Some(ended::FINISHED); 2] {
            break;
        }
        if !world.wires.iter().any(|wire| !wire.is_cut && wire.closed == [false; 2]) {
            world.attach(true);
        }
        let until = world.now + Duration::from_secs(600);
        world.run(until);
    }
    assert_eq!(world.ended, [Some(ended::FINISHED); 2]);
    for who in [Device, Server] {
        let end = &world.ends[who as usize];
        // Who was restarted may hear that all has come before it has written all of it again.
        let sent = end.flow.as_ref().unwrap().outgoing().ready() + end.owed;
        let come = &world.ends[who.other() as usize].come;
        assert_eq!(come.len() as u64, sent);
        let wrong = come.iter().zip(0..).position(|(found, offset)| *found != byte(who, offset));
        assert_eq!(wrong, None, "what {who:?} sent");
    }
}

#[test]
fn bytes_arrive_whole_and_once_whatever_happens_to_carriers_and_ends() {
    let number = |name: &str| std::env::var(name).ok().map(|text| text.parse::<u64>().expect(name));
    let first = number("HOOP_SEED").unwrap_or_else(|| {
        std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).map_or(0, |since| since.as_secs())
    });
    for seed in first..first + number("HOOP_CYCLES").unwrap_or(WORLDS) {
        let lived = std::panic::catch_unwind(|| live(seed));
        if let Err(why) = lived {
            println!("HOOP_SEED={seed}");
            std::panic::resume_unwind(why);
        }
    }
}
