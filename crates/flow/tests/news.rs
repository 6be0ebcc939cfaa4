//! What a device says of a flow beside its octets, and a lane that is lost with it.

use hoop_flow::frame::{Frame, Use};
use hoop_flow::{Binding, DeviceKey, Event, Flow, FlowId, FlowName, HostId, LaneId, Options, Transmit};
use hoop_units::{Timestamp, UnixTime};

const KEY: DeviceKey = DeviceKey([9; 32]);
const NOW: Timestamp = Timestamp::from_secs(1);
const LATER: Option<UnixTime> = Some(UnixTime(1_800_000_000));

const fn binding(lane: LaneId) -> Binding {
    Binding([lane.0 as u8; 32])
}

/// All that a flow has to say on a lane.
fn said(flow: &mut Flow, lane: LaneId) -> Vec<u8> {
    let mut all = Vec::new();
    while let Some(Transmit::Frames(octets)) = flow.poll_transmit(lane, 0, NOW) {
        all.extend(octets);
    }
    all
}

fn hear(flow: &mut Flow, lane: LaneId, octets: &[u8]) {
    let mut rest = octets;
    while let Some(frame) = Frame::take(&mut rest).unwrap() {
        flow.handle(lane, &frame, NOW).unwrap();
    }
}

/// A lane that works, which both ends have said everything on.
fn attach(device: &mut Flow, server: &mut Option<Flow>, lane: u64) -> LaneId {
    let lane = LaneId(lane);
    device.attach(lane, binding(lane), Use::Normal, true);
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
    hear(device, lane, &said(server, lane));
    hear(server, lane, &said(device, lane));
    lane
}

/// The last size that the server was told.
fn size(server: &mut Flow) -> Option<u64> {
    let events = std::iter::from_fn(|| server.poll_event());
    events.filter_map(|event| if let Event::Size(size) = event { Some(size) } else { None }).last().expect("a size")
}

#[test]
fn that_there_is_no_deadline_or_size_any_more_is_said_again_when_it_is_lost_with_its_lane() {
    for is_restarted in [false, true] {
        let name = FlowName { host: HostId([1; 20]), flow: FlowId(7) };
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

#[test]
fn a_deadline_that_is_taken_away_before_the_server_has_agreed_is_taken_away_there() {
    let name = FlowName { host: HostId([1; 20]), flow: FlowId(7) };
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
