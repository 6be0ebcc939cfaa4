//! Flows: frames, and both ends' machines that are told whatever comes.

use crate::input::Input;
use hoop_flow::frame::{Frame, Use};
use hoop_flow::{Binding, DeviceId, DeviceKey, Flow, FlowId, FlowName, LaneId, Options, Transmit};
use hoop_units::{Duration, Timestamp};

const KEY: DeviceKey = DeviceKey([9; 32]);
const NAME: FlowName = FlowName { device: DeviceId([1; 20]), flow: FlowId(7) };
const LANE: LaneId = LaneId(1);
const BINDING: Binding = Binding([5; 32]);
const WINDOW: u64 = 100_000;

/// Two ends that are attached to each other, and the lane between them.
fn attached() -> [Flow; 2] {
    let options = Options { window: WINDOW, keeps_at_once: true };
    let now = Timestamp::from_secs(1);
    let mut device = Flow::open(NAME, KEY, [3; 32], "fuzz".into(), options);
    device.attach(LANE, BINDING, Use::Normal, true);
    let greeting = transmitted(&mut device, now);
    let Ok(Some(Frame::Open(open))) = Frame::take(&mut &greeting[..]) else { panic!("an OPEN is first") };
    let mut server = Flow::accept(&open, &KEY, LANE, BINDING, options).expect("the key is right");
    let answer = transmitted(&mut server, now);
    let agreed = Frame::take(&mut &answer[..]).expect("our own frames are frames").expect("and whole");
    device.handle(LANE, &agreed, now).expect("the server has the key");
    device.write(WINDOW / 2);
    server.write(WINDOW / 2);
    [device, server]
}

/// What a flow says first, now or a moment later.
fn transmitted(flow: &mut Flow, now: Timestamp) -> Vec<u8> {
    let first = flow.poll_transmit(LANE, 65_536, now);
    let later = |flow: &mut Flow| flow.lane_timeout(LANE).and_then(|at| flow.poll_transmit(LANE, 65_536, at));
    match first.or_else(|| later(flow)) {
        Some(Transmit::Frames(bytes)) => bytes,
        other => panic!("{other:?} is no greeting"),
    }
}

/// What is taken for a frame is written again as it was, however much of it came first; whatever a peer says, an end accepts no more than it granted, believes no more than it sent,
/// and comes to rest.
pub fn flow(bytes: &[u8]) {
    let mut input = Input::new(bytes);
    let mut ends = attached();
    let (mut alive, mut now) = ([true; 2], Timestamp::from_secs(2));
    let who = usize::from(input.byte() % 2);
    let step = Duration::from_millis(u64::from(input.short()));
    let mut rest = input.take(usize::MAX);
    while !rest.is_empty() && alive[who] {
        let before = rest;
        let Ok(Some(frame)) = Frame::take(&mut rest) else { break };
        let mut again = Vec::new();
        frame.put(&mut again);
        // Frames of unknown types may have stood before it.
        let taken = &before[..before.len() - rest.len()];
        assert!(taken.ends_with(&again), "a frame has one form");
        for cut in [1, again.len() / 2, again.len() - 1] {
            assert_eq!(Frame::take(&mut &again[..cut]), Ok(None), "what is cut off may yet become a frame");
        }
        let end = &mut ends[who];
        let granted = end.incoming().granted();
        match end.handle(LANE, &frame, now) {
            Ok(new) => assert!(new.iter().all(|range| range.end <= granted), "no more than was granted"),
            Err(_) => {
                end.detach(LANE);
                alive[who] = false;
            }
        }
        assert!(end.outgoing().acked() <= end.outgoing().end(), "no more than was written");
        let consumed = end.incoming().whole();
        end.consume(consumed, now);
        now += step;
        // Each turn says what is due, once.
        for _ in 0..8 {
            if end.poll_transmit(LANE, 4_096, now).is_none() {
                break;
            }
        }
        let mut events = 0;
        while end.poll_event().is_some() {
            events += 1;
            assert!(events < 64, "a frame makes few events");
        }
    }
}
