//! Several lanes of one flow: which bytes go over which.

use hoop_flow::frame::{DATA_MAX, Frame, Use};
use hoop_flow::{Binding, DeviceId, DeviceKey, Flow, FlowId, FlowName, LaneId, Options, Transmit};
use hoop_units::{ByteRange, Duration, Timestamp};

const KEY: DeviceKey = DeviceKey([7; 32]);
const NAME: FlowName = FlowName { device: DeviceId([1; 20]), flow: FlowId(2) };
const FAST: LaneId = LaneId(0);
const SLOW: LaneId = LaneId(1);
const FAST_RTT: Duration = Duration::from_millis(20);
const SLOW_RTT: Duration = Duration::from_millis(200);

fn at(millis: u64) -> Timestamp {
    Timestamp::from_millis(millis)
}

fn binding(lane: LaneId) -> Binding {
    Binding([lane.0 as u8; 32])
}

/// What a flow says on a lane, but for DATA, of which the ranges are given.
fn said(flow: &mut Flow, lane: LaneId, room: usize, now: Timestamp) -> (Vec<u8>, Vec<ByteRange>) {
    let (mut frames, mut data) = (Vec::new(), Vec::new());
    while let Some(transmit) = flow.poll_transmit(lane, room, now) {
        match transmit {
            Transmit::Frames(bytes) => frames.extend(bytes),
            Transmit::Data(range) => data.push(range),
        }
    }
    (frames, data)
}

fn hear(flow: &mut Flow, lane: LaneId, mut frames: &[u8], now: Timestamp) {
    while let Some(frame) = Frame::take(&mut frames).expect("a frame") {
        flow.handle(lane, &frame, now).expect("no violation");
    }
}

/// Attaches one more lane, and returns what goes over it at once.
fn join(device: &mut Flow, server: &mut Flow, lane: LaneId, now: Timestamp) -> Vec<ByteRange> {
    device.attach(lane, binding(lane), Use::Normal, false);
    let (greeting, mut data) = said(device, lane, DATA_MAX, now);
    let Some(Frame::Resume(resume)) = Frame::take(&mut &greeting[..]).expect("a frame") else { panic!("no RESUME") };
    server.resume(&resume, lane, binding(lane)).expect("it is attached");
    let (answer, _) = said(server, lane, DATA_MAX, now);
    hear(device, lane, &answer, now);
    // With what is due to be told on a new lane.
    data.extend(said(device, lane, DATA_MAX, now).1);
    data
}

/// A device and a server with both lanes attached, at time 0.
fn attached(window: u64) -> (Flow, Flow) {
    let options = Options { window, ..Options::default() };
    let mut device = Flow::open(NAME, KEY, [3; 32], "test".to_owned(), options);
    device.attach(FAST, binding(FAST), Use::Normal, false);
    let (greeting, _) = said(&mut device, FAST, DATA_MAX, at(0));
    let Some(Frame::Open(open)) = Frame::take(&mut &greeting[..]).expect("a frame") else { panic!("no OPEN") };
    let mut server = Flow::accept(&open, &KEY, FAST, binding(FAST), options).expect("it is accepted");
    assert!(said(&mut server, FAST, DATA_MAX, at(0)).0.is_empty(), "it waits for bytes to go with");
    let (answer, _) = said(&mut server, FAST, DATA_MAX, at(25));
    hear(&mut device, FAST, &answer, at(0));
    // Each lane is told everything.
    assert_eq!(said(&mut device, FAST, DATA_MAX, at(0)).1, []);
    assert_eq!(join(&mut device, &mut server, SLOW, at(0)), []);
    device.set_rtt(FAST, FAST_RTT);
    device.set_rtt(SLOW, SLOW_RTT);
    (device, server)
}

#[test]
fn the_end_of_a_short_stream_goes_with_its_bytes_before_the_server_answers() {
    let options = Options::default();
    let mut device = Flow::open(NAME, KEY, [3; 32], "test".to_owned(), options);
    device.attach(FAST, binding(FAST), Use::Normal, false);
    device.write(100);
    let (greeting, data) = said(&mut device, FAST, DATA_MAX, at(0));
    assert_eq!(data, [ByteRange::new(0, 100)]);
    assert!(!device.wants(FAST));
    device.finish();
    assert!(device.wants(FAST));
    let (end, _) = said(&mut device, FAST, DATA_MAX, at(0));
    assert!(!device.wants(FAST));

    let Some(Frame::Open(open)) = Frame::take(&mut &greeting[..]).expect("a frame") else { panic!("no OPEN") };
    let mut server = Flow::accept(&open, &KEY, FAST, binding(FAST), options).expect("it is accepted");
    server.handle_data(FAST, data[0], at(50)).expect("no violation");
    hear(&mut server, FAST, &end, at(50));
    assert!(server.incoming().is_done());
}

/// A server's flow whose OPEN came at time 0, and the frames that it says within a moment.
fn accepted() -> (Flow, Vec<u8>) {
    accepted_with(Options::default())
}

fn accepted_with(options: Options) -> (Flow, Vec<u8>) {
    let mut device = Flow::open(NAME, KEY, [3; 32], "test".to_owned(), Options::default());
    device.attach(FAST, binding(FAST), Use::Normal, false);
    let (greeting, _) = said(&mut device, FAST, DATA_MAX, at(0));
    let Some(Frame::Open(open)) = Frame::take(&mut &greeting[..]).expect("a frame") else { panic!("no OPEN") };
    let mut server = Flow::accept(&open, &KEY, FAST, binding(FAST), options).expect("it is accepted");
    let (frames, _) = said(&mut server, FAST, DATA_MAX, at(0));
    (server, frames)
}

/// The kinds of frames, by their types (`docs/flow.md` §4).
fn types(mut frames: &[u8]) -> Vec<u8> {
    let mut types = Vec::new();
    while let Some(first) = frames.first().copied() {
        types.push(first);
        Frame::take(&mut frames).expect("a frame");
    }
    types
}

#[test]
fn attached_goes_with_the_answer_and_acknowledges_the_request() {
    let (mut server, frames) = accepted();
    assert_eq!(frames, [], "it waits for the answer");
    assert!(!server.wants(FAST));
    server.handle_data(FAST, ByteRange::new(0, 100), at(5)).expect("no violation");
    server.handle(FAST, &Frame::Fin { end: 100 }, at(5)).expect("no violation");
    assert!(!server.wants(FAST) && said(&mut server, FAST, DATA_MAX, at(5)).0.is_empty());
    server.write(1_000);
    assert!(server.wants(FAST));
    server.finish();
    let (frames, data) = said(&mut server, FAST, DATA_MAX, at(20));
    assert_eq!((types(&frames), data), (vec![4, 8], vec![ByteRange::new(0, 1_000)]), "no ACK of its own");
    let Some(Frame::Attached(attached)) = Frame::take(&mut &frames[..]).expect("a frame") else {
        panic!("no ATTACHED")
    };
    assert_eq!(attached.received, 101, "the end, too");
    assert_eq!(server.lane_timeout(FAST), None, "there is nothing left to acknowledge");
}

#[test]
fn attached_waits_for_an_answer_no_longer_than_an_ack() {
    let (mut server, _) = accepted();
    assert_eq!((server.lane_timeout(FAST), server.poll_timeout()), (Some(at(25)), Some(at(25))));
    assert!(said(&mut server, FAST, DATA_MAX, at(24)).0.is_empty());
    assert_eq!(types(&said(&mut server, FAST, DATA_MAX, at(25)).0), [4]);
}

#[test]
fn attached_does_not_wait_while_a_long_request_needs_credit() {
    for keeps_at_once in [true, false] {
        let (mut server, _) = accepted_with(Options { keeps_at_once, ..Options::default() });
        server.handle_data(FAST, ByteRange::new(0, 16 << 10), at(1)).expect("no violation");
        assert!(server.wants(FAST));
        assert_eq!(types(&said(&mut server, FAST, DATA_MAX, at(1)).0), [4]);
    }
}

#[test]
fn the_end_of_a_flow_goes_with_attached() {
    let (mut server, _) = accepted();
    server.reset(0x101);
    assert!(server.wants(FAST));
    assert_eq!(types(&said(&mut server, FAST, DATA_MAX, at(1)).0), [4, 10]);
}

#[test]
fn the_end_of_a_stream_is_acknowledged_at_a_moment_that_all_flows_share() {
    let (mut server, _) = accepted();
    assert_eq!(types(&said(&mut server, FAST, DATA_MAX, at(30)).0), [4]);
    server.handle_data(FAST, ByteRange::new(0, 100), at(33)).expect("no violation");
    server.handle(FAST, &Frame::Fin { end: 100 }, at(41)).expect("no violation");
    assert!(!server.wants(FAST));
    assert_eq!(server.lane_timeout(FAST), Some(at(50)), "a multiple of 25 ms");
    assert_eq!(types(&said(&mut server, FAST, DATA_MAX, at(50)).0), [7]);
}

#[test]
fn a_fast_lane_resends_only_the_slow_range_that_blocks_an_open_stream() {
    let window = 1 << 20;
    let (mut device, _) = attached(window);
    device.write(2 * window);
    let mut next = |lane| match device.poll_transmit(lane, DATA_MAX, at(0)) {
        Some(Transmit::Data(range)) => range,
        other => panic!("{other:?}"),
    };
    let [first, _, second] = [SLOW, FAST, SLOW].map(&mut next);
    let (_, fast) = said(&mut device, FAST, DATA_MAX, at(0));
    assert_eq!(fast.last().map(|range| range.end), Some(window), "it waits for credit now");
    assert_eq!(device.lane_timeout(FAST), Some(at(400)), "two round trips of the slow one");
    assert_eq!(said(&mut device, FAST, DATA_MAX, at(399)).1, []);
    assert_eq!(said(&mut device, FAST, DATA_MAX, at(400)).1, [first]);
    device.handle(FAST, &Frame::Ack { received: second.start, credit: window }, at(420)).expect("no violation");
    assert_eq!(said(&mut device, FAST, DATA_MAX, at(420)).1, [second]);
}

/// What is written ends where the credit does, and looked like the last of it.
#[test]
fn what_a_small_window_holds_is_not_taken_for_the_end_where_more_follows() {
    let window = 256 << 10;
    let written = |bytes| {
        let (mut device, _) = attached(window);
        device.expect_more();
        device.write(bytes);
        device
    };
    let mut device = written(window);
    let Some(Transmit::Data(slow)) = device.poll_transmit(SLOW, DATA_MAX, at(0)) else { panic!("nothing") };
    said(&mut device, FAST, DATA_MAX, at(0));
    assert_eq!(said(&mut device, FAST, DATA_MAX, at(399)).1, [], "as of a long stream");
    assert_eq!(said(&mut device, FAST, DATA_MAX, at(400)).1, [slow]);
    let mut device = written(window - 1);
    assert!(device.poll_transmit(SLOW, DATA_MAX, at(0)).is_none(), "that was all");
}

#[test]
fn the_last_bytes_of_a_finished_stream_are_left_to_the_fast_lane() {
    let (mut device, _) = attached(4 << 20);
    let piece = DATA_MAX as u64;
    device.write(20 * piece);
    device.finish();
    let next = |device: &mut Flow, lane, millis| device.poll_transmit(lane, DATA_MAX, at(millis));
    // The fast lane takes 20 pieces a second, which is 6 in 1.5 round trips of the slow one.
    for _ in 0..4 {
        assert!(next(&mut device, FAST, 0).is_some());
    }
    assert!(next(&mut device, FAST, 200).is_some());
    assert!(device.wants(SLOW) && next(&mut device, SLOW, 200).is_some(), "fourteen are left");
    for _ in 0..8 {
        assert!(next(&mut device, FAST, 200).is_some());
    }
    assert!(device.wants(SLOW) && next(&mut device, SLOW, 200).is_some(), "six are left");
    assert!(!device.wants(SLOW) && next(&mut device, SLOW, 200).is_none(), "five are left");
    device.detach(FAST);
    assert!(next(&mut device, SLOW, 200).is_some(), "no lane is faster");
}

#[test]
fn the_end_of_a_stream_does_not_wait_for_a_slow_lane() {
    let (mut device, _) = attached(1 << 20);
    device.write(500_000);
    device.finish();
    let Some(Transmit::Data(slow)) = device.poll_transmit(SLOW, DATA_MAX, at(0)) else { panic!("nothing") };
    said(&mut device, FAST, DATA_MAX, at(0));
    assert_eq!(device.lane_timeout(FAST), Some(at(40)));
    assert_eq!(said(&mut device, FAST, DATA_MAX, at(40)).1, [slow]);
    assert_eq!(said(&mut device, FAST, DATA_MAX, at(1_000)).1, [], "once is enough");
}

#[test]
fn unacknowledged_bytes_use_each_of_two_lanes_once_and_again_if_one_ends() {
    let (mut device, mut server) = attached(1 << 20);
    device.write(1_000);
    let all = ByteRange::new(0, 1_000);
    assert_eq!(said(&mut device, SLOW, DATA_MAX, at(0)).1, [], "it is little, and the fast one rests");
    assert_eq!(said(&mut device, FAST, DATA_MAX, at(0)).1, [all]);
    let until = |device: &mut Flow, lanes: [LaneId; 2], end: u64| {
        let times = (0..end).step_by(50).flat_map(|millis| lanes.map(|lane| (millis, lane)));
        times.flat_map(|(millis, lane)| said(device, lane, DATA_MAX, at(millis)).1).collect::<Vec<_>>()
    };
    assert_eq!(until(&mut device, [FAST, SLOW], 60_000), [all]);
    device.detach(FAST);
    let other = LaneId(2);
    assert_eq!(join(&mut device, &mut server, other, at(60_000)), [all]);
    assert_eq!(until(&mut device, [other, SLOW], 120_000), []);
}

#[test]
fn a_receiver_never_has_more_gaps_than_it_bears_however_short_the_pieces() {
    let (mut device, mut server) = attached(1 << 20);
    let (mut held_up, mut gone, mut turns, mut last) = (Vec::new(), 0, 0, FAST);
    for piece in 0..3_000 {
        let now = at(piece / 100);
        // Written one after another, so that no two can go together.
        device.write(1);
        let lane = [SLOW, FAST][piece as usize % 2];
        for range in said(&mut device, lane, DATA_MAX, now).1 {
            gone += range.len();
            turns += u64::from(lane != last);
            last = lane;
            match lane {
                SLOW => held_up.push(range),
                _ => drop(server.handle_data(FAST, range, now).expect("no violation")),
            }
        }
    }
    assert!(turns < 1_000, "then all goes over the lane that was last");
    assert!(gone > 2_990, "and does not wait for an acknowledgement");
    // Once the slow lane has brought its pieces all goes on.
    for range in held_up {
        server.handle_data(SLOW, range, at(50)).expect("no violation");
    }
    let (frames, _) = said(&mut server, FAST, DATA_MAX, at(80));
    hear(&mut device, FAST, &frames, at(80));
    let rest: u64 = said(&mut device, FAST, DATA_MAX, at(80)).1.iter().map(|range| range.len()).sum();
    assert_eq!(gone + rest, 3_000);
}
