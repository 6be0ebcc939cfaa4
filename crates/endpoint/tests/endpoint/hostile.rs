//! Strangers, thieves, liars and those who never read: what they get, what they cost, and that others are unharmed. Time is paused.

use crate::common::*;
use bytes::Bytes;
use hoop_carrier::{Carrier, Lane, Pending};
use hoop_endpoint::{
    AckPolicy, Clock, Device, DeviceConfig, DeviceId, DeviceKey, DeviceKeys, FlowError, FlowId, FlowName, FlowOptions,
    GREETING_MAX, Refusal, Server, ServerConfig, ServerLimits, Use,
};
use hoop_flow::frame::{Attached, Frame, Open, Resume, put_data_head};
use hoop_flow::{Binding, FlowKey};
use hoop_flow_store::{FlowStore, Found, Life, MemoryStore};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, mpsc};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::task::yield_now;
use tokio::time::{sleep, timeout};

const SOON: Duration = Duration::from_secs(20);
const HOUR: Duration = Duration::from_secs(3_600);

/// Frames as bytes.
fn put(frames: &[Frame<'_>]) -> Vec<u8> {
    let mut out = Vec::new();
    frames.iter().for_each(|frame| frame.put(&mut out));
    out
}

fn data(offset: u64, bytes: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    put_data_head(&mut out, offset, bytes.len());
    [out, bytes.to_vec()].concat()
}

/// One end of a carrier, on which frames are said by hand.
struct Raw {
    carrier: Arc<dyn Carrier>,
}

impl Raw {
    fn to(server: &Server) -> Self {
        let (ours, theirs) = carrier();
        server.serve(theirs, "raw");
        Self { carrier: ours }
    }

    fn binding(&self) -> Binding {
        self.carrier.binding()
    }

    /// Says bytes on a new lane.
    async fn say(&self, bytes: &[u8]) -> Said {
        let mut lane = self.carrier.open().await.unwrap();
        lane.sender.send(&mut [Bytes::copy_from_slice(bytes)]).await.unwrap();
        Said { lane, come: Vec::new() }
    }

    /// What is answered to that first; None: nothing, and the lane is closed.
    async fn answer(&self, bytes: &[u8]) -> Option<Refusal> {
        match self.say(bytes).await.next().await? {
            Heard::Refused(refusal) => Some(refusal),
            heard => panic!("{heard:?}"),
        }
    }
}

/// A lane on which something was said.
struct Said {
    lane: Lane,
    come: Vec<u8>,
}

#[derive(Debug)]
enum Heard {
    Refused(Refusal),
    Attached,
    Other,
}

impl Said {
    async fn send(&mut self, bytes: &[u8]) {
        let _ = self.lane.sender.send(&mut [Bytes::copy_from_slice(bytes)]).await;
    }

    /// The next frame; None: the lane is closed.
    async fn next(&mut self) -> Option<Heard> {
        loop {
            let mut rest = &self.come[..];
            if let Some(frame) = Frame::take(&mut rest).expect("a frame") {
                let heard = match frame {
                    Frame::Refused(refusal) => Heard::Refused(refusal),
                    Frame::Attached(_) => Heard::Attached,
                    _ => Heard::Other,
                };
                self.come = rest.to_vec();
                return Some(heard);
            }
            let bytes =
                timeout(HOUR, self.lane.receiver.receive(100_000)).await.expect("an answer or an end").ok()??;
            self.come.extend_from_slice(&bytes);
        }
    }

    async fn until_closed(mut self) {
        while self.next().await.is_some() {}
    }
}

fn name(flow: u64) -> FlowName {
    FlowName { device: HOST, flow: FlowId(flow) }
}

fn open(name: FlowName, key: DeviceKey, binding: Binding) -> Vec<u8> {
    let open = Open {
        name,
        epoch: 1,
        since: 1,
        received: 0,
        credit: 100_000,
        deadline: None,
        size: None,
        lane_use: Use::Normal,
        nonce: [3; 32],
        service: "test",
        proof: [0; 32],
    };
    put(&[Frame::Open(open.proven(&key, binding))])
}

fn resume(name: FlowName, key: FlowKey, epoch: u64, received: u64, binding: Binding) -> Vec<u8> {
    let (lane_use, proof) = (Use::Normal, [0; 32]);
    let resume = Resume { name, epoch, since: epoch, received, credit: 1 << 30, lane_use, proof };
    put(&[Frame::Resume(resume.proven(&key, binding))])
}

/// A flow that goes on between both ends whatever else is going on.
async fn is_unharmed(device: &mut (impl AsyncWrite + Unpin), server: &mut (impl AsyncRead + Unpin)) {
    device.write_all(b"still").await.unwrap();
    is_unharmed_after(server).await;
}

async fn is_unharmed_after(server: &mut (impl AsyncRead + Unpin)) {
    let mut five = [0; 5];
    timeout(SOON, server.read_exact(&mut five)).await.expect("the flow goes on").unwrap();
    assert_eq!(&five, b"still");
}

#[tokio::test(start_paused = true)]
async fn a_stranger_without_the_key_hears_only_unknown_and_the_flow_goes_on() {
    let world = World::new();
    world.connect("wifi");
    let (mut device, mut server) = world.flow(FlowOptions::default()).await;
    is_unharmed(&mut device, &mut server).await;
    let (raw, other) = (Raw::to(&world.server), Raw::to(&world.server));
    let (binding, there) = (raw.binding(), device.name());
    let key = device.record().key;
    let stranger = FlowName { device: DeviceId([8; 20]), ..there };
    let thief = DeviceKey([1; 32]);
    for (what, bytes) in [
        ("a device that is not known", open(stranger, KEY, binding)),
        ("a wrong key", open(name(1), thief, binding)),
        ("the flow that is there, with a wrong key", open(there, thief, binding)),
        ("the flow that is there, with another nonce", open(there, KEY, binding)),
        ("an opening that was heard on another carrier", open(name(1), KEY, other.binding())),
        ("a flow that there is not", resume(name(1), key, 9, 0, binding)),
        ("the flow that is there, with another's key", resume(there, FlowKey([1; 32]), 9, 0, binding)),
        ("a resuming that was heard on another carrier", resume(there, key, 9, 0, other.binding())),
        ("the flow's number at another device", resume(stranger, key, 9, 0, binding)),
    ] {
        assert_eq!(raw.answer(&bytes).await, Some(Refusal::Unknown), "{what}");
    }
    assert!(matches!(raw.answer(&resume(there, key, 1, 0, binding)).await, Some(Refusal::Stale { .. })));
    for bytes in [&b"GET / HTTP/1.1\r\n\r\n"[..], &put(&[Frame::Park]), &data(0, b"x"), &[0x3f, 0]] {
        assert_eq!(raw.answer(bytes).await, None, "{bytes:?}");
    }
    is_unharmed(&mut device, &mut server).await;
    assert_eq!((world.server.flows(), device.stats().networks.len()), (1, 1));
}

#[tokio::test(start_paused = true)]
async fn a_first_frame_that_is_cut_anywhere_opens_nothing() {
    let world = World::new();
    let raw = Raw::to(&world.server);
    let whole = open(name(1), KEY, raw.binding());
    for cut in 0..whole.len() {
        let mut said = raw.say(&whole[..cut]).await;
        said.lane.sender.finish().await.unwrap();
        assert!(said.next().await.is_none(), "{cut} bytes");
    }
    assert_eq!(world.server.flows(), 0);
    assert!(matches!(raw.say(&whole).await.next().await, Some(Heard::Attached)));
}

#[tokio::test(start_paused = true)]
async fn a_device_that_breaks_the_rules_loses_the_lane_and_not_the_flow() {
    let options = FlowOptions { window: 100_000, ..FlowOptions::default() };
    let world = World::with(ServerConfig { options, ..server_config() });
    let raw = Raw::to(&world.server);
    let key = KEY.flow_key(name(1), &[3; 32]);
    let mut first = raw.say(&open(name(1), KEY, raw.binding())).await;
    let mut server = world.server.accept().await.unwrap();
    assert!(matches!(first.next().await, Some(Heard::Attached)));
    let (ack, fin) = (Frame::Ack { received: 5, credit: 1 << 20 }, Frame::Fin { end: 3 });
    let cut: Vec<_> = data(0, b"abcdef")[..5].to_vec();
    for (epoch, (what, bytes)) in (2..).zip([
        ("bytes beyond the credit", data(99_999, b"xx")),
        ("an acknowledgement of what was not sent", put(&[ack])),
        ("bytes past the end", [put(&[fin]), data(2, b"xx")].concat()),
        ("another end", put(&[Frame::Fin { end: 4 }])),
        ("a server's frame", put(&[Frame::Park])),
        ("no frame", vec![0x3f, 0]),
        ("a second opening", open(name(1), KEY, raw.binding())),
        ("a frame that is too long", vec![7, 0x7f, 0xff]),
        ("a number that is too long", vec![0x40, 0x01]),
        ("a frame that breaks off", cut),
    ]) {
        let mut said = raw.say(&resume(name(1), key, epoch, 0, raw.binding())).await;
        assert!(matches!(said.next().await, Some(Heard::Attached)), "{what}");
        said.send(&bytes).await;
        if what == "a frame that breaks off" {
            said.lane.sender.finish().await.unwrap();
        }
        said.until_closed().await;
    }
    let mut said = raw.say(&resume(name(1), key, 20, 0, raw.binding())).await;
    said.send(&data(0, b"abc")).await;
    let mut all = Vec::new();
    timeout(SOON, server.read_to_end(&mut all)).await.unwrap().unwrap();
    assert_eq!(all, b"abc", "what came in order, up to the end that was told first");
}

/// What came may be a mebibyte, and a frame five bytes.
#[tokio::test(start_paused = true)]
async fn who_sends_bytes_one_by_one_leaves_others_their_turn() {
    const FRAMES: u64 = 20_000;
    let world = World::new();
    let raw = Raw::to(&world.server);
    let mut said = raw.say(&open(name(1), KEY, raw.binding())).await;
    let mut flow = world.server.accept().await.unwrap();
    let turns = Arc::new(Mutex::new(0));
    let counted = turns.clone();
    let other = tokio::spawn(async move {
        loop {
            *counted.lock().unwrap() += 1;
            yield_now().await;
        }
    });
    let frames: Vec<u8> = (0..FRAMES).flat_map(|at| data(at, b"x")).collect();
    let before = *turns.lock().unwrap();
    said.send(&frames).await;
    let mut come = vec![0; FRAMES as usize];
    flow.read_exact(&mut come).await.unwrap();
    let turns = *turns.lock().unwrap() - before;
    assert!(turns > 50, "another had {turns} turns meanwhile");
    other.abort();
}

#[tokio::test(start_paused = true)]
async fn floods_of_openings_stop_at_the_limits_and_take_no_other_devices_places() {
    let (a, b) = (DeviceId([1; 20]), DeviceId([2; 20]));
    let keys = HashMap::from([(a, KEY), (b, KEY)]);
    let limits = ServerLimits { flows: 25, flows_of_device: 10, backlog: 15, greetings: 4, ..ServerLimits::default() };
    let server = Server::new(ServerConfig { limits, keys: Arc::new(keys), ..server_config() });
    let raw = Raw::to(&server);
    let (mut attached, mut lanes) = (0, Vec::new());
    for flow in 0..1_000 {
        let name = FlowName { device: a, flow: FlowId(flow) };
        let mut said = raw.say(&open(name, KEY, raw.binding())).await;
        match said.next().await {
            Some(Heard::Attached) => attached += 1,
            Some(Heard::Refused(Refusal::Full)) => {}
            heard => panic!("{heard:?}"),
        }
        lanes.push(said);
    }
    assert_eq!((attached, server.flows()), (10, 10));
    let mut answers = Vec::new();
    for flow in 0..7 {
        let name = FlowName { device: b, flow: FlowId(flow) };
        let mut said = raw.say(&open(name, KEY, raw.binding())).await;
        answers.push(matches!(said.next().await, Some(Heard::Attached)));
        lanes.push(said);
    }
    assert_eq!(answers, [true, true, true, true, true, false, false], "nobody accepts more than 15");
    let accepted = server.accept().await.unwrap();
    let mut said = raw.say(&open(FlowName { device: b, flow: FlowId(9) }, KEY, raw.binding())).await;
    assert!(matches!(said.next().await, Some(Heard::Attached)));
    drop(accepted);
    // Lanes that say nothing hold up others of their carrier alone, and not for long.
    let quiet = Raw::to(&server);
    let mut silent = Vec::new();
    for _ in 0..4 {
        silent.push(quiet.say(&[]).await);
    }
    let started = tokio::time::Instant::now();
    assert_eq!(quiet.answer(&resume(name(77), FlowKey([1; 32]), 1, 0, quiet.binding())).await, Some(Refusal::Unknown));
    assert!(started.elapsed() >= GREETING_MAX, "it waits until the others' time has passed");
    let started = tokio::time::Instant::now();
    assert_eq!(raw.answer(&resume(name(77), FlowKey([1; 32]), 1, 0, raw.binding())).await, Some(Refusal::Unknown));
    assert!(started.elapsed() < GREETING_MAX);
}

#[tokio::test(start_paused = true)]
async fn a_hundred_ended_flows_of_one_device_push_out_none_of_another() {
    let (quiet, busy) = (DeviceId([1; 20]), DeviceId([2; 20]));
    let keys = HashMap::from([(quiet, KEY), (busy, KEY)]);
    let limits = ServerLimits { ended: 20, ended_of_device: 10, ..ServerLimits::default() };
    let server = Server::new(ServerConfig { limits, keys: Arc::new(keys), ..server_config() });
    let raw = Raw::to(&server);
    let name = |host, flow| FlowName { device: host, flow: FlowId(flow) };
    let names: Vec<_> = std::iter::once(name(quiet, 0)).chain((0..100).map(|flow| name(busy, flow))).collect();
    for name in &names {
        let mut said = raw.say(&open(*name, KEY, raw.binding())).await;
        assert!(matches!(said.next().await, Some(Heard::Attached)));
        let _application = server.accept().await.unwrap();
        said.send(&put(&[Frame::Reset { code: 7 }])).await;
        said.until_closed().await;
    }
    let mut known = Vec::new();
    for name in &names {
        let key = KEY.flow_key(*name, &[3; 32]);
        known.push(match raw.answer(&resume(*name, key, 2, 0, raw.binding())).await {
            Some(Refusal::Ended { code: 7 }) => true,
            Some(Refusal::Unknown) => false,
            other => panic!("{other:?}"),
        });
    }
    assert!(known[0], "it was pushed out");
    assert_eq!(known.iter().skip(1).map(|known| usize::from(*known)).sum::<usize>(), 10);
    assert!(known[91..].iter().all(|known| *known), "the latest are known");
}

#[tokio::test(start_paused = true)]
async fn who_speaks_another_version_is_told_so() {
    let world = World::new();
    let raw = Raw::to(&world.server);
    let mut next = open(name(1), KEY, raw.binding());
    // Type, a length of two bytes, and the version.
    assert_eq!((next[0], next[3]), (2, 1));
    next[3] = 2;
    assert_eq!(raw.answer(&next).await, Some(Refusal::Version));
}

#[tokio::test(start_paused = true)]
async fn what_a_peer_that_never_reads_costs_is_bounded_and_others_are_served() {
    let options = FlowOptions { send_buffer: 300_000, window: 200_000, ..FlowOptions::default() };
    let world = World::with(ServerConfig { options, ..server_config() });
    let raw = Raw::to(&world.server);
    let never = raw.say(&open(name(1), KEY, raw.binding())).await;
    let mut server = world.server.accept().await.unwrap();
    let block = bytes(1, 0, 100_000);
    let writes = async {
        loop {
            server.write_all(&block).await.unwrap();
        }
    };
    assert!(timeout(SOON, writes).await.is_err(), "whoever writes waits");
    assert_eq!(world.server.bytes(), 300_000);
    // An application that never reads makes the device wait.
    world.connect("wifi");
    let (mut device, at_server) = world.flow(FlowOptions { send_buffer: 50_000, ..FlowOptions::default() }).await;
    let writes = async {
        loop {
            device.write_all(&block[..10_000]).await.unwrap();
        }
    };
    assert!(timeout(SOON, writes).await.is_err());
    assert_eq!(world.server.bytes(), 300_000 + 64 * 1024, "its window is full");
    assert_eq!(at_server.stats().read, 0);
    let (mut device, mut server) = world.flow(FlowOptions::default()).await;
    is_unharmed(&mut device, &mut server).await;
    drop(never);
}

#[tokio::test(start_paused = true)]
async fn devices_share_the_credit_and_a_greedy_one_leaves_others_their_share() {
    const FLOWS: usize = 60;
    let (greedy, other) = (DeviceId([1; 20]), DeviceId([2; 20]));
    let keys = HashMap::from([(greedy, KEY), (other, KEY)]);
    let limits = ServerLimits { memory: 20_000_000, memory_of_device: 5_000_000, ..ServerLimits::default() };
    let server = Server::new(ServerConfig { limits, keys: Arc::new(keys), ..server_config() });
    let device = |host| {
        let (device, at_server) = carrier();
        server.serve(at_server, "wifi");
        let end = Device::new(DeviceConfig { host, ..device_config() });
        end.add_carrier(device, Use::Normal, "wifi");
        end
    };
    let greedy = device(greedy);
    let (mut flows, block) = (Vec::new(), bytes(3, 0, 100_000));
    for _ in 0..FLOWS {
        let mut flow = greedy.open("test", FlowOptions { send_buffer: 8 << 20, ..FlowOptions::default() }).unwrap();
        let mut at_server = server.accept().await.unwrap();
        // All of it is read, so the window grows.
        let mut read = vec![0; block.len()];
        for _ in 0..20 {
            flow.write_all(&block).await.unwrap();
            timeout(SOON, at_server.read_exact(&mut read)).await.expect("it comes").unwrap();
        }
        flows.push((flow, at_server));
    }
    // And now nothing.
    let ahead = bytes(3, 0, 4_000_000);
    for (flow, _) in &mut flows {
        flow.write_all(&ahead).await.unwrap();
    }
    sleep(SOON).await;
    let held = server.bytes();
    assert!(held > 2_000_000, "flows have more than the least: {held}");
    assert!(held <= limits.memory_of_device + FLOWS as u64 * 64 * 1024, "{held}");
    assert!(flows.iter().all(|(flow, _)| flow.stats().acknowledged >= 2_000_000 + 64 * 1024), "each has the least");
    let other = device(other);
    let mut flow = other.open("test", FlowOptions::default()).unwrap();
    let mut at_server = server.accept().await.unwrap();
    is_unharmed(&mut flow, &mut at_server).await;
    let (alone, mut read) = (bytes(3, 0, 1_500_000), vec![0; 500_000]);
    flow.write_all(&alone).await.unwrap();
    timeout(SOON, at_server.read_exact(&mut read)).await.expect("it comes").unwrap();
    sleep(SOON).await;
    assert!(flow.stats().acknowledged > 700_000, "its window grows: {}", flow.stats().acknowledged);
    // What was held back comes once it is read.
    let (flow, at_server) = &mut flows[FLOWS - 1];
    let mut read = vec![0; ahead.len()];
    timeout(SOON, at_server.read_exact(&mut read)).await.expect("it comes").unwrap();
    assert!(read == ahead);
    flow.shutdown().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn what_nobody_has_read_counts_as_its_devices_after_the_flow_has_ended() {
    const FLOWS: usize = 20;
    let limits = ServerLimits { memory: 40_000_000, memory_of_device: 3_000_000, ..ServerLimits::default() };
    let world = World::with(ServerConfig { limits, ..server_config() });
    world.connect("wifi");
    let (block, mut unread, mut ended) = (bytes(3, 0, 100_000), Vec::new(), 0);
    for _ in 0..FLOWS {
        let mut flow = world.device.open("test", FlowOptions::default()).unwrap();
        let mut at_server = world.server.accept().await.unwrap();
        let mut read = vec![0; block.len()];
        for _ in 0..20 {
            flow.write_all(&block).await.unwrap();
            timeout(SOON, at_server.read_exact(&mut read)).await.expect("it comes").unwrap();
        }
        // And then nothing, and no other flow is there while this one ends.
        flow.write_all(&block.repeat(7)).await.unwrap();
        at_server.shutdown().await.unwrap();
        let end = timeout(SOON, async {
            flow.shutdown().await?;
            flow.finished().await
        });
        ended += usize::from(end.await.is_ok());
        flow.reset(0);
        unread.push(at_server);
    }
    assert!((3..FLOWS).contains(&ended), "{ended} ended as they should");
    let held = world.server.bytes();
    assert!(held > 2_000_000 && held <= limits.memory_of_device + FLOWS as u64 * 64 * 1024, "{held}");
    drop(unread);
    let mut flow = world.device.open("test", FlowOptions::default()).unwrap();
    let mut at_server = world.server.accept().await.unwrap();
    is_unharmed(&mut flow, &mut at_server).await;
}

#[tokio::test(start_paused = true)]
async fn bytes_that_come_before_their_turn_count_until_they_are_read() {
    let limits = ServerLimits { memory: 50_000, ..ServerLimits::default() };
    let world = World::with(ServerConfig { limits, ..server_config() });
    let raw = Raw::to(&world.server);
    let mut said = raw.say(&open(name(1), KEY, raw.binding())).await;
    let mut server = world.server.accept().await.unwrap();
    let stream = bytes(1, 0, 61_000);
    for from in [41_000, 21_000, 1_000] {
        said.send(&data(from, &stream[from as usize..from as usize + 20_000])).await;
    }
    sleep(SOON).await;
    assert_eq!(world.server.bytes(), 60_000);
    let answer = raw.answer(&open(name(2), KEY, raw.binding())).await;
    assert!(matches!(answer, Some(Refusal::Busy { .. })), "{answer:?}");
    said.send(&data(0, &stream[..1_000])).await;
    let mut read = vec![0; stream.len()];
    timeout(SOON, server.read_exact(&mut read)).await.expect("all has come").unwrap();
    assert!(read == stream);
    assert_eq!(world.server.bytes(), 0);
    let mut other = raw.say(&open(name(3), KEY, raw.binding())).await;
    assert!(matches!(other.next().await, Some(Heard::Attached)));
}

#[tokio::test(start_paused = true)]
async fn a_server_over_its_memory_opens_no_flow_makes_writers_wait_and_recovers() {
    let limits = ServerLimits { memory: 150_000, ..ServerLimits::default() };
    let world = World::with(ServerConfig { limits, ..server_config() });
    let carrier = world.connect("wifi");
    let (mut device, mut server) = world.flow(FlowOptions::default()).await;
    let (_second, mut also) = world.flow(FlowOptions::default()).await;
    let (_third, mut third) = world.flow(FlowOptions::default()).await;
    carrier.close();
    let block = bytes(2, 0, 50_000);
    for server in [&mut server, &mut also, &mut third] {
        let writes = async {
            for _ in 0..10 {
                server.write_all(&block).await.unwrap();
            }
        };
        assert!(timeout(SOON, writes).await.is_err());
    }
    assert!((150_000..=200_000).contains(&world.server.bytes()), "{}", world.server.bytes());
    let raw = Raw::to(&world.server);
    let answer = raw.answer(&open(name(1), KEY, raw.binding())).await;
    assert!(matches!(answer, Some(Refusal::Busy { .. })), "{answer:?}");
    let other = world.device.open("test", FlowOptions::default()).unwrap();
    world.connect("wifi");
    let mut some = vec![0; 75_000];
    timeout(SOON, device.read_exact(&mut some)).await.expect("the flow goes on").unwrap();
    timeout(SOON, world.server.accept()).await.expect("and another is opened").unwrap();
    drop(other);
}

#[tokio::test(start_paused = true)]
async fn an_absent_device_holds_at_most_its_share_of_the_servers_memory() {
    let (away, other) = (DeviceId([1; 20]), DeviceId([2; 20]));
    let keys = HashMap::from([(away, KEY), (other, KEY)]);
    let limits = ServerLimits { memory: 10_000_000, memory_of_device: 500_000, ..ServerLimits::default() };
    let server = Server::new(ServerConfig { limits, keys: Arc::new(keys), ..server_config() });
    let raw = Raw::to(&server);
    let mut written = Vec::new();
    for flow in 0..20 {
        let mut said = raw.say(&open(FlowName { device: away, flow: FlowId(flow) }, KEY, raw.binding())).await;
        assert!(matches!(said.next().await, Some(Heard::Attached)), "its flows are opened nevertheless");
        let mut at_server = server.accept().await.unwrap();
        let writes = async {
            loop {
                at_server.write_all(&[7; 100_000]).await.unwrap();
            }
        };
        assert!(timeout(SOON, writes).await.is_err(), "whoever writes waits");
        written.push((said, at_server));
    }
    // What is beyond is one write of each flow.
    assert!((500_000..2_600_000).contains(&server.bytes()), "{}", server.bytes());
    let (device, at_server) = carrier();
    server.serve(at_server, "wifi");
    let device_of_other = Device::new(DeviceConfig { host: other, ..device_config() });
    device_of_other.add_carrier(device, Use::Normal, "wifi");
    let mut device = device_of_other.open("test", FlowOptions::default()).unwrap();
    let mut at_server = server.accept().await.unwrap();
    is_unharmed(&mut device, &mut at_server).await;
}

#[tokio::test(start_paused = true)]
async fn a_parked_flow_that_strangers_ask_for_stays_parked() {
    let store = Arc::new(Watched::default());
    let world = World::with(ServerConfig { store: Some(store.clone()), ..server_config() });
    world.connect("wifi");
    let (mut device, server) = world.flow(FlowOptions::default()).await;
    let name = device.name();
    server.park(b"here").await.unwrap();
    let raw = Raw::to(&world.server);
    let life = || store.lives.lock().unwrap()[&name];
    assert_eq!(life(), Life::Parked);
    for asked in [
        resume(name, FlowKey([1; 32]), 9, 0, raw.binding()),
        resume(name, FlowKey([1; 32]), 10, 0, raw.binding()),
        open(name, KEY, raw.binding()),
    ] {
        assert_eq!(raw.answer(&asked).await, Some(Refusal::Unknown));
        assert_eq!(life(), Life::Parked, "what is live is neither spilled nor does it expire");
    }
    device.write_all(b"still").await.unwrap();
    let mut server = timeout(SOON, world.server.accept()).await.expect("it is there for its device").unwrap();
    is_unharmed_after(&mut server).await;
}

/// Two processes with one identity throw each other out; neither may do so often.
#[tokio::test(start_paused = true)]
async fn two_devices_with_one_identity_do_not_chase_each_other() {
    let world = World::new();
    world.connect("wifi");
    let options = FlowOptions { ack_policy: AckPolicy::WhenTold, ..FlowOptions::default() };
    let (device, server) = world.flow(options.clone()).await;
    sleep(SOON).await;
    let twin = World { device: Device::new(device_config()), server: world.server };
    let copy = twin.device.restore(device.record(), 0, options).unwrap();
    let mut events = server.events();
    twin.connect("mobile");
    let mut attached = 0;
    let count = async {
        loop {
            match events.recv().await {
                Ok(hoop_endpoint::FlowEvent::Attached { .. }) => attached += 1,
                Ok(_) => {}
                Err(error) => panic!("{error}"),
            }
        }
    };
    assert!(timeout(HOUR, count).await.is_err(), "the flow is not over");
    assert!((2..=200).contains(&attached), "attached {attached} times within an hour");
    drop((device, copy));
}

/// A server's end by hand: what it answers to each lane, and how often it is asked.
async fn liar(options: FlowOptions, answer: impl Fn(&Open<'_>, Binding) -> Vec<u8>) -> (usize, Option<FlowError>, u64) {
    let device = Device::new(DeviceConfig { ..device_config() });
    let (ours, theirs) = carrier();
    device.add_carrier(ours, Use::Normal, "wifi");
    let mut flow = device.open("test", options).unwrap();
    flow.write_all(b"hello").await.unwrap();
    let mut lanes = Vec::new();
    let serve = async {
        while let Ok(mut lane) = theirs.accept().await {
            let bytes = lane.receiver.receive(100_000).await.unwrap().unwrap();
            let Ok(Some(frame)) = Frame::take(&mut &bytes[..]) else { panic!("no frame") };
            if let Frame::Open(open) = frame {
                lane.sender.send(&mut [answer(&open, theirs.binding()).into()]).await.unwrap();
            }
            lanes.push(lane);
        }
    };
    let _ = timeout(HOUR, serve).await;
    let over = flow.status().borrow().over;
    (lanes.len(), over, flow.stats().acknowledged)
}

fn attached(open: &Open<'_>, key: DeviceKey, binding: Binding, received: u64) -> Vec<u8> {
    let attached = Attached { received, credit: 1 << 20, proof: [0; 32] };
    put(&[Frame::Attached(attached.proven(&key.flow_key(open.name, &open.nonce), binding, open.epoch))])
}

#[tokio::test(start_paused = true)]
async fn a_server_that_lies_is_not_believed_nor_asked_all_the_time() {
    let wrong = liar(FlowOptions::default(), |open, binding| attached(open, DeviceKey([1; 32]), binding, 5)).await;
    let (lanes, over, acknowledged) = wrong;
    assert!((2..=100).contains(&lanes), "asked {lanes} times within an hour");
    assert_eq!((over, acknowledged), (None, 0), "a server without the key acknowledges nothing");
    let (lanes, over, _) = liar(FlowOptions::default(), |_, _| b"\x3f\x00".to_vec()).await;
    assert!((2..=100).contains(&lanes) && over.is_none(), "{lanes} times");
    let unsent = |open: &Open<'_>, binding| {
        [attached(open, KEY, binding, 0), put(&[Frame::Ack { received: 1 << 20, credit: 1 << 21 }])].concat()
    };
    let (lanes, over, acknowledged) = liar(FlowOptions::default(), unsent).await;
    assert!(lanes >= 2 && over.is_none() && acknowledged == 0, "{lanes} times");
    let refused = liar(FlowOptions::default(), |_, _| put(&[Frame::Refused(Refusal::NoService)])).await;
    assert_eq!((refused.0, refused.1), (1, Some(FlowError::Refused(Refusal::NoService))));
    let busy = liar(FlowOptions::default(), |_, _| put(&[Frame::Refused(Refusal::Busy { secs: 600 })])).await;
    assert!((6..=8).contains(&busy.0) && busy.1.is_none(), "asked {} times", busy.0);
}

#[tokio::test(start_paused = true)]
async fn a_flow_that_takes_more_or_ends_while_it_is_being_parked_is_not_parked() {
    let store = Arc::new(Watched::default());
    let world = World::with(ServerConfig { store: Some(store.clone()), ..server_config() });
    world.connect("wifi");
    for ends in [false, true] {
        let (mut device, server) = world.flow(FlowOptions::default()).await;
        let name = device.name();
        let (goes, parks) = mpsc::channel();
        *store.holds.lock().unwrap() = Some(parks);
        let parking = tokio::spawn(server.park(b"here"));
        // Time stands still until the store has it.
        while store.lives.lock().unwrap().get(&name) != Some(&Life::Parked) {
            yield_now().await;
        }
        if ends {
            let here = world.server.flows();
            device.reset(0x100);
            while world.server.flows() == here {
                yield_now().await;
            }
            goes.send(()).unwrap();
            assert!(parking.await.unwrap().is_err());
            sleep(SOON).await;
            assert!(matches!(store.store.take(name).unwrap(), Found::Ended(_)), "what ended is not there again");
            continue;
        }
        device.write_all(&bytes(1, 0, 50_000)).await.unwrap();
        while device.stats().acknowledged < 50_000 {
            yield_now().await;
        }
        goes.send(()).unwrap();
        let (mut server, error) = parking.await.unwrap().unwrap_err();
        assert_eq!(error.to_string(), "bytes were acknowledged that nobody has read");
        let mut read = vec![0; 50_000];
        timeout(SOON, server.read_exact(&mut read)).await.expect("it goes on").unwrap();
        assert!(read == bytes(1, 0, 50_000));
        is_unharmed(&mut device, &mut server).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_flow_attached_again_and_again_is_limited_in_lanes_and_goes_on_later() {
    let world = World::new();
    let raw = Raw::to(&world.server);
    let key = KEY.flow_key(name(1), &[3; 32]);
    let mut lanes = vec![raw.say(&open(name(1), KEY, raw.binding())).await];
    assert!(matches!(lanes[0].next().await, Some(Heard::Attached)));
    let mut server = world.server.accept().await.unwrap();
    // Those that it takes the place of are closed by the server, and not by the device.
    for epoch in 2..=16 {
        let mut said = raw.say(&resume(name(1), key, epoch, 0, raw.binding())).await;
        assert!(matches!(said.next().await, Some(Heard::Attached)), "{epoch}");
        lanes.push(said);
    }
    let answer = raw.answer(&resume(name(1), key, 17, 0, raw.binding())).await;
    assert!(matches!(answer, Some(Refusal::Busy { secs: 1 })), "{answer:?}");
    let answer = raw.answer(&resume(name(1), FlowKey([9; 32]), 17, 0, raw.binding())).await;
    assert!(matches!(answer, Some(Refusal::Unknown)), "{answer:?}");
    sleep(SOON).await;
    let mut said = raw.say(&resume(name(1), key, 50, 0, raw.binding())).await;
    assert!(matches!(said.next().await, Some(Heard::Attached)), "the others are gone");
    said.send(&data(0, b"still")).await;
    is_unharmed_after(&mut server).await;
}

#[tokio::test(start_paused = true)]
async fn a_device_that_is_shut_out_loses_its_flows_and_others_keep_theirs() {
    const OTHER: DeviceId = DeviceId([2; 20]);
    const SHUT_OUT: u64 = 0x1ff;
    let keys = Arc::new(Revocable(Mutex::new([(HOST, KEY), (OTHER, KEY)].into())));
    let world = World::with(ServerConfig { keys: keys.clone(), ..server_config() });
    let other = Device::new(DeviceConfig { clock: Clock::at(NOW), ..DeviceConfig::new(OTHER, KEY) });
    let (theirs, ours) = carrier();
    world.server.serve(ours, "lan");
    other.add_carrier(theirs, Use::Normal, "lan");
    let first = world.connect("wifi");
    let (mut device, mut server) = world.flow(FlowOptions::default()).await;
    let mut kept = other.open("test", FlowOptions::default()).unwrap();
    let mut kept_here = world.server.accept().await.unwrap();
    assert_eq!(world.server.devices(), [HOST, OTHER].into());

    keys.0.lock().unwrap().remove(&HOST);
    assert_eq!(world.server.revoke(HOST, SHUT_OUT), 1);
    assert!(timeout(SOON, server.read_u8()).await.unwrap().is_err());
    timeout(SOON, first.closed()).await.expect("its carrier is closed");
    // Over another carrier it is told why, and opens nothing.
    world.connect("wifi");
    assert!(timeout(SOON, device.read_u8()).await.unwrap().is_err());
    assert_eq!(device.status().borrow().over, Some(FlowError::Ended(SHUT_OUT)));
    let mut again = world.device.open("test", FlowOptions::default()).unwrap();
    assert!(timeout(SOON, again.read_u8()).await.unwrap().is_err());

    is_unharmed(&mut kept, &mut kept_here).await;
    assert_eq!(world.server.devices(), [OTHER].into());
}

/// Keys of which some are taken away.
struct Revocable(Mutex<HashMap<DeviceId, DeviceKey>>);

impl DeviceKeys for Revocable {
    fn key(&self, host: DeviceId) -> Pending<'_, Option<DeviceKey>> {
        let key = self.0.lock().unwrap().get(&host).copied();
        Box::pin(std::future::ready(key))
    }
}

#[tokio::test(start_paused = true)]
async fn a_device_that_is_shut_out_does_not_go_on_with_a_parked_flow() {
    let keys = Arc::new(Revocable(Mutex::new([(HOST, KEY)].into())));
    let config = ServerConfig { keys: keys.clone(), store: Some(Arc::new(MemoryStore::default())), ..server_config() };
    let world = World::with(config);
    world.connect("wifi");
    let (mut device, server) = world.flow(FlowOptions::default()).await;
    server.park(b"kept").await.unwrap();
    keys.0.lock().unwrap().clear();
    assert_eq!(world.server.revoke(HOST, 1), 0, "it is in the store alone");
    device.write_all(b"hello").await.unwrap();
    world.connect("wifi");
    assert!(timeout(SOON, device.read_u8()).await.unwrap().is_err());
    assert!(timeout(SOON, world.server.accept()).await.is_err(), "nothing goes on");
}
