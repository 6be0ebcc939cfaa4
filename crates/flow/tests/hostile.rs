//! What a stranger, a thief and a liar get: a refusal or a closed lane, and a flow that goes on for who owns it.

use hoop_flow::frame::{
    Attached, DATA_MAX, Frame, FrameError, Front, Open, Refusal, Resume, Use, put_data_head, take_data_head,
};
use hoop_flow::{
    Binding, CREDIT_FIRST, DeviceId, DeviceKey, Event, Flow, FlowId, FlowName, GAPS_MAX, LaneId, Options, Transmit,
    Violation, ended,
};
use hoop_units::{ByteRange, Timestamp};

const KEY: DeviceKey = DeviceKey([9; 32]);
const NAME: FlowName = FlowName { device: DeviceId([1; 20]), flow: FlowId(7) };
const NONCE: [u8; 32] = [3; 32];
const NOW: Timestamp = Timestamp::from_secs(1);

const fn binding(n: u8) -> Binding {
    Binding([n; 32])
}

fn device() -> Flow {
    Flow::open(NAME, KEY, NONCE, "test".into(), Options::default())
}

/// What a flow has to say on a lane, now or a moment later, as bytes of frames alone.
fn said(flow: &mut Flow, lane: LaneId) -> Vec<u8> {
    let now = flow.poll_transmit(lane, 0, NOW);
    let later = |flow: &mut Flow| flow.lane_timeout(lane).and_then(|at| flow.poll_transmit(lane, 0, at));
    match now.or_else(|| later(flow)) {
        Some(Transmit::Frames(bytes)) => bytes,
        other => panic!("{other:?}"),
    }
}

fn frame(bytes: &[u8]) -> Frame<'_> {
    Frame::take(&mut &bytes[..]).unwrap().unwrap()
}

fn open_of(bytes: &[u8]) -> Open<'_> {
    match frame(bytes) {
        Frame::Open(open) => open,
        other => panic!("{other:?}"),
    }
}

/// Both ends, attached by lane 1.
fn pair() -> (Flow, Flow) {
    let mut device = device();
    device.attach(LaneId(1), binding(1), Use::Normal, true);
    let greeting = said(&mut device, LaneId(1));
    let mut server = Flow::accept(&open_of(&greeting), &KEY, LaneId(1), binding(1), Options::default()).unwrap();
    let answer = said(&mut server, LaneId(1));
    device.handle(LaneId(1), &frame(&answer), NOW).unwrap();
    assert!(device.is_attached() && server.is_attached());
    (device, server)
}

fn resume(device: &mut Flow, lane: u8) -> Resume {
    device.attach(LaneId(lane.into()), binding(lane), Use::Normal, true);
    match frame(&said(device, LaneId(lane.into()))) {
        Frame::Resume(resume) => resume,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_flow_is_opened_with_its_devices_key_on_its_own_carrier_alone() {
    let mut device = device();
    device.attach(LaneId(1), binding(1), Use::Normal, true);
    let greeting = said(&mut device, LaneId(1));
    let open = open_of(&greeting);
    let accept = |open: &Open<'_>, key, n| Flow::accept(open, key, LaneId(1), binding(n), Options::default()).err();
    assert_eq!(accept(&open, &DeviceKey([8; 32]), 1), Some(Refusal::Unknown));
    assert_eq!(accept(&open, &KEY, 2), Some(Refusal::Unknown), "replayed on another carrier");
    assert_eq!(accept(&Open { service: "else", ..open }, &KEY, 1), Some(Refusal::Unknown));
    assert_eq!(accept(&open, &KEY, 1), None);
}

#[test]
fn a_forged_replayed_stale_or_foreign_resume_attaches_nothing() {
    let (mut device, mut server) = pair();
    let genuine = resume(&mut device, 2);
    let mut refused = |resume: &Resume, n: u8| server.resume(resume, LaneId(n.into()), binding(n)).err();
    assert_eq!(refused(&genuine, 3), Some(Refusal::Unknown), "replayed on another carrier");
    for forged in [
        Resume { proof: [0; 32], ..genuine },
        Resume { received: genuine.received + 1, ..genuine },
        Resume { epoch: genuine.epoch + 1, ..genuine },
        Resume { name: FlowName { flow: FlowId(8), ..NAME }, ..genuine },
        Resume { name: FlowName { device: DeviceId([2; 20]), ..NAME }, ..genuine },
    ] {
        assert_eq!(refused(&forged, 2), Some(Refusal::Unknown), "{forged:?}");
    }
    assert_eq!(refused(&genuine, 2), None);
    assert_eq!(refused(&genuine, 2), Some(Refusal::Stale { highest: 2 }), "once");
    assert!(server.is_attached());
}

#[test]
fn a_repeated_opening_is_the_same_flow_and_another_nonce_is_refused() {
    let mut device = device();
    device.attach(LaneId(1), binding(1), Use::Normal, true);
    let first = said(&mut device, LaneId(1));
    let mut server = Flow::accept(&open_of(&first), &KEY, LaneId(1), binding(1), Options::default()).unwrap();
    device.attach(LaneId(2), binding(2), Use::Normal, true);
    let again = said(&mut device, LaneId(2));
    server.reopen(&open_of(&again), &KEY, LaneId(2), binding(2)).unwrap();
    let answer = said(&mut server, LaneId(2));
    device.handle(LaneId(2), &frame(&answer), NOW).unwrap();
    let mut thief = Flow::open(NAME, KEY, [4; 32], "test".into(), Options::default());
    thief.attach(LaneId(3), binding(3), Use::Normal, true);
    let other = said(&mut thief, LaneId(3));
    assert_eq!(server.reopen(&open_of(&other), &KEY, LaneId(3), binding(3)), Err(Refusal::Unknown));
}

#[test]
fn a_server_that_lacks_the_flows_key_is_not_believed() {
    let mut device = device();
    device.attach(LaneId(1), binding(1), Use::Normal, true);
    let _ = said(&mut device, LaneId(1));
    let lie = Frame::Attached(Attached { received: 0, credit: 1 << 30, proof: [0; 32] });
    assert_eq!(device.handle(LaneId(1), &lie, NOW), Err(Violation::Proof));
    assert_eq!(device.handle(LaneId(1), &Frame::Ack { received: 0, credit: 1 << 30 }, NOW), Err(Violation::Unexpected));
    assert!(!device.is_attached());
}

#[test]
fn a_peer_that_breaks_the_rules_loses_its_lane_and_the_flow_is_unharmed() {
    let bytes = [0; 100];
    let data = |offset| Frame::Data { offset, bytes: &bytes };
    let (_, mut server) = pair();
    let mut wrong = |frame: &Frame<'_>, violation| {
        assert_eq!(server.handle(LaneId(1), frame, NOW), Err(violation), "{frame:?}");
    };
    wrong(&data(1 << 40), Violation::Credit);
    wrong(&Frame::Ack { received: 1, credit: 0 }, Violation::Unsent);
    wrong(&Frame::End { code: 0 }, Violation::Unexpected);
    wrong(&Frame::Park, Violation::Unexpected);
    server.handle(LaneId(1), &Frame::Fin { end: 300 }, NOW).unwrap();
    let mut wrong = |frame: &Frame<'_>, violation| {
        assert_eq!(server.handle(LaneId(1), frame, NOW), Err(violation), "{frame:?}");
    };
    wrong(&Frame::Fin { end: 301 }, Violation::End);
    wrong(&data(201), Violation::End);
    assert_eq!(server.handle(LaneId(9), &data(0), NOW), Err(Violation::NoLane));
    assert_eq!(server.handle(LaneId(1), &data(0), NOW).unwrap().len(), 1);
    assert_eq!(server.handle(LaneId(1), &data(50), NOW).unwrap()[0].start, 100, "what came before is not new");
    assert_eq!((server.incoming().whole(), server.ended()), (150, None));
}

#[test]
fn gaps_are_bounded() {
    let (_, mut server) = pair();
    let gaps = (0..).map(|n| server.handle(LaneId(1), &Frame::Data { offset: 1 + 2 * n, bytes: b"x" }, NOW));
    let taken = gaps.take(CREDIT_FIRST as usize / 2).take_while(Result::is_ok).count();
    assert_eq!(taken, GAPS_MAX);
    // What lengthens an island or is there already makes none more: a lane that is ahead of another is not closed for it.
    let mut take = |offset, bytes| server.handle(LaneId(1), &Frame::Data { offset, bytes }, NOW);
    let last = 1 + 2 * GAPS_MAX as u64 - 2;
    assert_eq!(take(last, b"x"), Ok(Vec::new()), "it is there");
    assert_eq!(take(last, b"xyz"), Ok(vec![ByteRange::new(last + 1, last + 3)]), "it is longer");
    assert!(take(last + 10, b"x").is_err(), "another island");
    assert_eq!(take(0, b"x").unwrap(), vec![ByteRange::new(0, 1)], "a gap is filled");
    assert!(take(last + 10, b"x").is_ok(), "and there is room for another");
}

/// Whoever ends TLS between two ends may say END; a device may go on from an older record of its own.
#[test]
fn nobody_is_told_that_a_stream_is_whole_which_is_not() {
    let ended_with = |flow: &mut Flow| {
        std::iter::from_fn(|| flow.poll_event()).find_map(|event| match event {
            Event::Ended { code } => Some(code),
            _ => None,
        })
    };
    let (mut device, mut server) = pair();
    device.handle(LaneId(1), &Frame::End { code: ended::FINISHED }, NOW).unwrap();
    assert_eq!(ended_with(&mut device), Some(ended::LOST));
    server.handle(LaneId(1), &Frame::Reset { code: ended::FINISHED }, NOW).unwrap();
    assert_eq!(ended_with(&mut server), Some(ended::GIVEN_UP));
    let (mut device, mut server) = pair();
    let record = device.record();
    device.finish();
    let mut older = Flow::restore(&record, Options::default());
    resume(&mut older, 2);
    older.handle(LaneId(2), &Frame::Refused(Refusal::Ended { code: ended::FINISHED }), NOW).unwrap();
    assert_eq!(ended_with(&mut older), Some(ended::LOST), "it does not know that it had ended its stream");
    server.reset(ended::FINISHED);
    assert_eq!(ended_with(&mut server), Some(ended::GIVEN_UP), "an application cannot say so either");
}

#[test]
fn an_end_that_lost_what_the_other_has_dropped_ends_the_flow_and_says_so() {
    let (mut device, mut server) = pair();
    server.write(1_000);
    let Some(Transmit::Data(range)) = server.poll_transmit(LaneId(1), 65_536, NOW) else { panic!("nothing is sent") };
    let bytes = vec![0; range.len() as usize];
    device.handle(LaneId(1), &Frame::Data { offset: range.start, bytes: &bytes }, NOW).unwrap();
    server.handle(LaneId(1), &Frame::Ack { received: 1_000, credit: 1 << 20 }, NOW).unwrap();
    server.drop_before(1_000);
    let mut record = device.record();
    (record.kept, record.consumed) = (500, 500);
    let mut device = Flow::restore(&record, Options::default());
    let old = resume(&mut device, 2);
    assert_eq!(server.resume(&old, LaneId(2), binding(2)), Err(Refusal::Ended { code: ended::LOST }));
    let told = Frame::Refused(Refusal::Ended { code: ended::LOST });
    device.handle(LaneId(2), &told, NOW).unwrap();
    assert!(std::iter::from_fn(|| device.poll_event()).any(|event| event == Event::Ended { code: ended::LOST }));
}

#[test]
fn a_data_frame_is_read_as_its_bytes_come_as_it_is_when_it_is_whole() {
    for (offset, len) in [(0, 1), (63, 70), (64, 16_000), (1 << 40, DATA_MAX)] {
        let mut bytes = Vec::new();
        put_data_head(&mut bytes, offset, len);
        let head = bytes.len();
        bytes.resize(head + len, 7);
        for cut in 0..head {
            assert_eq!(take_data_head(&mut &bytes[..cut]), Ok(Front::Short), "{cut} bytes");
        }
        let mut rest = &bytes[..head];
        assert_eq!(take_data_head(&mut rest), Ok(Front::Data { offset, len }));
        assert!(rest.is_empty());
        assert!(matches!(frame(&bytes), Frame::Data { offset: same, bytes } if same == offset && bytes.len() == len));
    }
    // Empty, its offset cut off by its own length, and too far out.
    for bytes in [&[6, 1, 0][..], &[6, 1, 0x40, 0x41], &[6, 9, 255, 255, 255, 255, 255, 255, 255, 255, 0]] {
        assert_eq!(take_data_head(&mut &bytes[..]), Err(FrameError::Malformed(6)), "{bytes:?}");
        assert_eq!(Frame::take(&mut &bytes[..]), Err(FrameError::Malformed(6)), "{bytes:?}");
    }
    assert_eq!(take_data_head(&mut &[7, 2, 0, 0][..]), Ok(Front::Other));
    assert_eq!(take_data_head(&mut &[0x40, 0x40, 9, 1][..]), Ok(Front::Unknown { len: 9 }));
}

#[test]
fn who_was_restarted_without_its_bytes_sends_them_once_it_has_them_again() {
    let (mut device, mut server) = pair();
    device.write(1_000);
    assert_eq!(data(&mut device, 1, 600), Some(ByteRange::new(0, 600)));
    server.handle_data(LaneId(1), ByteRange::new(0, 600), NOW).unwrap();
    let mut device = Flow::restore(&device.record(), Options::default());
    device.supply_again();
    let resume = resume(&mut device, 2);
    server.resume(&resume, LaneId(2), binding(2)).unwrap();
    let answer = said(&mut server, LaneId(2));
    device.handle(LaneId(2), &frame(&answer), NOW).unwrap();
    assert_eq!(device.outgoing().acked(), 600);
    assert_eq!(data(&mut device, 2, 1_000), None, "it has nothing at hand");
    device.write(700);
    assert_eq!(data(&mut device, 2, 1_000), Some(ByteRange::new(600, 700)));
    device.write(600);
    assert_eq!(data(&mut device, 2, 1_000), Some(ByteRange::new(700, 1_300)));
    assert_eq!(device.outgoing().end(), 1_300);
}

/// The owner drops what is acknowledged when it is told so: an ACK that repeats what a RESUME said tells it nothing.
#[test]
fn what_a_resume_acknowledges_is_told_as_what_an_ack_does() {
    let (mut device, mut server) = pair();
    server.write(1_000);
    assert_eq!(data(&mut server, 1, 1_000), Some(ByteRange::new(0, 1_000)));
    device.handle_data(LaneId(1), ByteRange::new(0, 1_000), NOW).unwrap();
    while server.poll_event().is_some() {}
    let resume = resume(&mut device, 2);
    assert_eq!(resume.received, 1_000);
    server.resume(&resume, LaneId(2), binding(2)).unwrap();
    assert!(std::iter::from_fn(|| server.poll_event()).any(|event| event == Event::Acked));
}

/// What bytes of its stream a flow sends next, whatever else it says before.
fn data(flow: &mut Flow, lane: u64, room: usize) -> Option<ByteRange> {
    loop {
        match flow.poll_transmit(LaneId(lane), room, NOW)? {
            Transmit::Data(range) => return Some(range),
            Transmit::Frames(_) => {}
        }
    }
}

#[test]
fn a_lane_wants_what_it_then_gets_and_a_parked_one_is_closed() {
    let (mut device, mut server) = pair();
    while device.poll_transmit(LaneId(1), 0, NOW).is_some() {}
    assert!(!device.wants(LaneId(1)) && device.lane_timeout(LaneId(1)).is_none());
    device.write(10);
    assert!(device.wants(LaneId(1)));
    assert_eq!(data(&mut device, 1, 100), Some(ByteRange::new(0, 10)));
    assert!(!device.wants(LaneId(1)));
    assert_eq!(device.waits_since(LaneId(1)), Some(NOW));
    while server.poll_transmit(LaneId(1), 0, NOW).is_some() {}
    server.park();
    assert!(server.wants(LaneId(1)));
    let said = said(&mut server, LaneId(1));
    let mut rest = &said[..];
    assert!(matches!(Frame::take(&mut rest), Ok(Some(Frame::Ack { .. }))));
    assert_eq!(Frame::take(&mut rest), Ok(Some(Frame::Park)));
    let closed = std::iter::from_fn(|| server.poll_event()).any(|event| event == Event::Close(LaneId(1)));
    assert!(closed && !server.wants(LaneId(1)));
}

#[test]
fn however_often_a_peer_says_what_counts_once_its_owner_hears_it_once() {
    let (_, mut server) = pair();
    while server.poll_event().is_some() {}
    server.write(1_000);
    assert!(server.poll_transmit(LaneId(1), 2_000, NOW).is_some());
    for at in 1..=1_000 {
        server.handle(LaneId(1), &Frame::Size(Some(at)), NOW).unwrap();
        server.handle(LaneId(1), &Frame::Deadline(None), NOW).unwrap();
        server.handle(LaneId(1), &Frame::Ack { received: at, credit: 0 }, NOW).unwrap();
    }
    let events: Vec<_> = std::iter::from_fn(|| server.poll_event()).collect();
    assert_eq!(events, [Event::Size(Some(1_000)), Event::Deadline(None), Event::Acked]);
}
