//! What a device says of a flow beside its bytes, and a lane that is lost with it.

use hoop_flow::frame::{Frame, Use};
use hoop_flow::{Binding, DeviceId, DeviceKey, Event, Flow, FlowId, FlowName, LaneId, Options, Transmit};
use hoop_units::{Timestamp, UnixTime};
use rand_core::{Rng as _, SeedableRng as _};
use rand_pcg::Pcg64Mcg;
use std::collections::VecDeque;

const KEY: DeviceKey = DeviceKey([9; 32]);
const NOW: Timestamp = Timestamp::from_secs(1);
const LATER: Option<UnixTime> = Some(UnixTime(1_800_000_000));

const fn binding(lane: LaneId) -> Binding {
    Binding([lane.0 as u8; 32])
}

/// All that a flow has to say on a lane.
fn said(flow: &mut Flow, lane: LaneId) -> Vec<u8> {
    said_at(flow, lane, NOW)
}

fn said_at(flow: &mut Flow, lane: LaneId, now: Timestamp) -> Vec<u8> {
    let mut all = Vec::new();
    while let Some(Transmit::Frames(bytes)) = flow.poll_transmit(lane, 0, now) {
        all.extend(bytes);
    }
    all
}

fn hear(flow: &mut Flow, lane: LaneId, bytes: &[u8]) {
    let mut rest = bytes;
    while let Some(frame) = Frame::take(&mut rest).unwrap() {
        flow.handle(lane, &frame, NOW).unwrap();
    }
}

/// A lane that works, which both ends have said everything on, in place of others.
fn attach(device: &mut Flow, server: &mut Option<Flow>, lane: u64) -> LaneId {
    attach_as(device, server, lane, true)
}

/// The same beside others.
fn attach_beside(device: &mut Flow, server: &mut Option<Flow>, lane: u64) -> LaneId {
    attach_as(device, server, lane, false)
}

fn attach_as(device: &mut Flow, server: &mut Option<Flow>, lane: u64, replaces: bool) -> LaneId {
    let lane = LaneId(lane);
    device.attach(lane, binding(lane), Use::Normal, replaces);
    let greeting = said(device, lane);
    match (Frame::take(&mut &greeting[..]).unwrap().unwrap(), &mut *server) {
        (Frame::Open(open), None) => {
            *server = Some(Flow::accept(&open, &KEY, lane, binding(lane), Options::default()).unwrap());
        }
        (Frame::Open(open), Some(server)) => server.reopen(&open, &KEY, lane, binding(lane)).unwrap(),
        (Frame::Resume(resume), Some(server)) => server.resume(&resume, lane, binding(lane)).unwrap(),
        other => panic!("{other:?}"),
    }
    let server = server.as_mut().unwrap();
    // The first ATTACHED waits for bytes to go with.
    let mut answer = said(server, lane);
    if let Some(at) = server.lane_timeout(lane).filter(|_| answer.is_empty()) {
        answer = said_at(server, lane, at);
    }
    hear(device, lane, &answer);
    hear(server, lane, &said(device, lane));
    lane
}

/// The last size that the server was told.
fn size(server: &mut Flow) -> Option<u64> {
    let events = std::iter::from_fn(|| server.poll_event());
    events.filter_map(|event| if let Event::Size(size) = event { Some(size) } else { None }).last().expect("a size")
}

#[test]
fn the_removal_of_a_deadline_or_size_is_sent_again_if_lost_with_its_lane() {
    for is_restarted in [false, true] {
        let name = FlowName { device: DeviceId([1; 20]), flow: FlowId(7) };
        let mut device = Flow::open(name, KEY, [3; 32], "test".into(), Options::default());
        let mut server = None;
        device.set_deadline(LATER);
        device.set_size(Some(5));
        let first = attach(&mut device, &mut server, 1);
        let at_server = server.as_mut().unwrap();
        assert_eq!((at_server.deadline(), size(at_server)), (LATER, Some(5)));
        device.set_deadline(None);
        device.set_size(None);
        assert!(!said(&mut device, first).is_empty(), "it is said on the lane that is lost");
        match is_restarted {
            true => device = Flow::restore(&device.record(), Options::default()),
            false => device.detach(first),
        }
        attach(&mut device, &mut server, 2);
        let at_server = server.as_mut().unwrap();
        assert_eq!(at_server.deadline(), None);
        if !is_restarted {
            assert_eq!(size(at_server), None);
        }
    }
}

/// What lanes bring comes in any order, but for that of each lane.
#[test]
fn what_a_slow_lane_brings_late_is_not_the_last_word_on_deadline_and_size() {
    for seed in 0..200 {
        let mut rng = Pcg64Mcg::seed_from_u64(seed);
        let mut roll = |sides: u32| rng.next_u32() % sides;
        let name = FlowName { device: DeviceId([1; 20]), flow: FlowId(7) };
        let mut device = Flow::open(name, KEY, [3; 32], "test".into(), Options::default());
        let mut server = None;
        device.set_size(Some(0));
        let lanes = [attach_beside(&mut device, &mut server, 1), attach_beside(&mut device, &mut server, 2)];
        let server = &mut server.unwrap();
        let mut last = size(server);
        let (mut under_way, mut expected) = ([VecDeque::new(), VecDeque::new()], (None, Some(0)));
        for step in 0..30 {
            let at = roll(2) as usize;
            match roll(4) {
                0 => {
                    expected.0 = Some(UnixTime(1_800_000_000 + step)).filter(|_| step % 5 > 0);
                    device.set_deadline(expected.0);
                }
                1 => {
                    expected.1 = Some(u64::from(step));
                    device.set_size(expected.1);
                }
                2 => under_way[at].push_back(said(&mut device, lanes[at])),
                _ => under_way[at].pop_front().into_iter().for_each(|bytes| hear(server, lanes[at], &bytes)),
            }
        }
        // In the end all comes, the one lane's before the other's.
        let first = roll(2) as usize;
        for at in [first, 1 - first] {
            under_way[at].push_back(said(&mut device, lanes[at]));
        }
        for at in [1 - first, first] {
            under_way[at].drain(..).for_each(|bytes| hear(server, lanes[at], &bytes));
        }
        for event in std::iter::from_fn(|| server.poll_event()) {
            if let Event::Size(size) = event {
                last = size;
            }
        }
        assert_eq!((server.deadline(), last), expected, "seed {seed}");
        assert!(lanes.iter().all(|lane| !device.wants(*lane)), "seed {seed}: it has more to say");
    }
}

#[test]
fn a_deadline_removed_before_the_server_answers_is_removed_there_too() {
    let name = FlowName { device: DeviceId([1; 20]), flow: FlowId(7) };
    let mut device = Flow::open(name, KEY, [3; 32], "test".into(), Options::default());
    device.set_deadline(LATER);
    let first = LaneId(1);
    device.attach(first, binding(first), Use::Normal, true);
    let greeting = said(&mut device, first);
    let Some(Frame::Open(open)) = Frame::take(&mut &greeting[..]).unwrap() else { panic!("no OPEN") };
    // The server hears that, and the device hears no answer.
    let mut server = Some(Flow::accept(&open, &KEY, first, binding(first), Options::default()).unwrap());
    device.set_deadline(None);
    device.detach(first);
    attach(&mut device, &mut server, 2);
    assert_eq!(server.unwrap().deadline(), None);
}
