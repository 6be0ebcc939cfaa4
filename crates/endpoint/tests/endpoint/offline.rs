//! Outages, restarts and deadlines, in paused time: weeks pass in a moment.

use crate::common::*;
use hoop_carrier::{Carrier, Kind, Lane, LaneReceiver, Pending};
use hoop_endpoint::{
    AckPolicy, Clock, DEADLINE_GRACE, Device, FlowError, FlowEvent, FlowOptions, Networks, Server, ServerConfig, Use,
    ended,
};
use hoop_flow::Binding;
use hoop_flow_store::{FlowStore, MemoryStore, Settings, Store};
use hoop_units::UnixTime;
use std::io;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::sync::watch;
use tokio::time::{Instant, sleep, timeout};

const HOUR: Duration = Duration::from_secs(3_600);

/// Long enough for whatever does not wait for the time.
const SOON: Duration = Duration::from_secs(20);

/// A server whose flows outlive it.
fn durable(store: Arc<dyn FlowStore>) -> ServerConfig {
    let options = FlowOptions { ack_policy: AckPolicy::WhenTold, ..FlowOptions::default() };
    ServerConfig { store: Some(store), options, ..server_config() }
}

#[tokio::test(start_paused = true)]
async fn a_flow_goes_on_after_8_hours_offline_with_a_server_restart_in_between() {
    let memory = Arc::new(MemoryStore::default());
    outage_and_restart(|| memory.clone()).await;
    // On disk, as another process would find it.
    let folder = tempfile::tempdir().unwrap();
    outage_and_restart(|| Arc::new(Store::open(&Settings::new(folder.path())).unwrap())).await;
}

/// The server's store is opened once for each of its lives.
async fn outage_and_restart(open: impl Fn() -> Arc<dyn FlowStore>) {
    let mut world = World::with(durable(open()));
    world.connect("wifi");
    let (mut device, mut server) = world.flow(FlowOptions::default()).await;
    device.write_all(&bytes(1, 0, 100_000)).await.unwrap();
    let mut some = vec![0; 60_000];
    server.read_exact(&mut some).await.unwrap();
    assert!(some == bytes(1, 0, 60_000));
    server.keep(50_000);
    server.set_attachment(*b"file 7").unwrap();
    server.write_all(&bytes(2, 0, 300_000)).await.unwrap();
    let mut read = vec![0; 40_000];
    device.read_exact(&mut read).await.unwrap();
    assert!(read == bytes(2, 0, 40_000));
    sleep(Duration::from_secs(1)).await;
    assert_eq!(device.stats().acknowledged, 50_000, "what is kept is acknowledged, and no more");
    world.server.shutdown();
    assert!(world.server.accept().await.is_none());
    sleep(4 * HOUR).await;
    drop((server, world.server));
    sleep(SOON).await;
    world.server = Server::new(durable(open()));
    sleep(4 * HOUR).await;
    device.write_all(&bytes(1, 100_000, 1_000)).await.unwrap();

    world.connect("mobile");
    let mut server = timeout(SOON, world.server.accept()).await.expect("it is resumed").unwrap();
    assert_eq!((server.service(), server.attachment().map(|bytes| &bytes[..])), ("test", Some(&b"file 7"[..])));
    assert_eq!(server.position(), 50_000);
    let mut rest = vec![0; 51_000];
    timeout(SOON, server.read_exact(&mut rest)).await.expect("it comes again").unwrap();
    assert!(rest == bytes(1, 50_000, 51_000));
    server.keep(101_000);
    // The application has what it sent, and gives it again.
    let from = server.written();
    assert!(from <= 300_000);
    let down = tokio::spawn(async move {
        server.write_all(&bytes(2, from, 400_000 - from as usize)).await.unwrap();
        server.shutdown().await.unwrap();
        server.finished().await.unwrap();
        let mut none = [0];
        assert_eq!(server.read(&mut none).await.unwrap(), 0);
    });
    let mut read = Vec::new();
    device.shutdown().await.unwrap();
    timeout(SOON, device.read_to_end(&mut read)).await.expect("the rest comes").unwrap();
    assert!(read == bytes(2, 40_000, 360_000));
    timeout(SOON, device.finished()).await.expect("all is kept").unwrap();
    timeout(SOON, down).await.unwrap().unwrap();
}

#[tokio::test(start_paused = true)]
async fn between_its_thresholds_a_device_asks_for_nothing() {
    let world = World::new();
    world.connect("wifi");
    let options = FlowOptions { window: 400_000, low: Some(100_000), ..FlowOptions::default() };
    let (mut device, mut server) = world.flow(options).await;
    server.write_all(&bytes(2, 0, 1_000_000)).await.unwrap();
    let mut come = async |server: &hoop_endpoint::FlowStream, len: usize| {
        let mut some = vec![0; len];
        timeout(SOON, device.read_exact(&mut some)).await.expect("it is there").unwrap();
        sleep(SOON).await;
        server.stats().acknowledged
    };
    assert_eq!(come(&server, 1).await, 400_000, "the window is full");
    assert_eq!(come(&server, 299_000).await, 400_000, "more than the lower threshold waits to be read");
    assert_eq!(come(&server, 1_000).await, 700_001, "as much again as was read");
}

#[tokio::test(start_paused = true)]
async fn a_parked_flow_takes_no_server_flow_and_returns_when_the_device_speaks() {
    let store = Arc::new(MemoryStore::default());
    let world = World::with(ServerConfig { store: Some(store), ..server_config() });
    world.connect("wifi");
    let (mut device, mut server) = world.flow(FlowOptions::default()).await;
    device.write_all(b"first").await.unwrap();
    let mut five = [0; 5];
    server.read_exact(&mut five[..4]).await.unwrap();
    let (mut server, error) = server.park(b"here").await.unwrap_err();
    assert_eq!(error.to_string(), "bytes were acknowledged that nobody has read");
    server.read_exact(&mut five[..1]).await.unwrap();
    let mut events = device.events();
    server.park(b"here").await.unwrap();
    assert_eq!(world.server.flows(), 0);
    while timeout(SOON, events.recv()).await.expect("the device is told").unwrap() != FlowEvent::Parked {}
    sleep(HOUR).await;
    assert_eq!(world.server.flows(), 0, "it stays parked");
    device.write_all(b"second").await.unwrap();
    let mut server = timeout(SOON, world.server.accept()).await.expect("it is resumed").unwrap();
    assert_eq!((server.service(), server.attachment().map(|bytes| &bytes[..])), ("test", Some(&b"here"[..])));
    let mut six = [0; 6];
    server.read_exact(&mut six).await.unwrap();
    assert_eq!(&six, b"second");
    server.write_all(b"answer").await.unwrap();
    device.read_exact(&mut six).await.unwrap();
    assert_eq!(&six, b"answer");
}

#[tokio::test(start_paused = true)]
async fn a_deadline_ends_a_flow_at_each_end_by_itself_though_it_is_offline() {
    let world = World::new();
    let carrier = world.connect("wifi");
    let deadline = Some(UnixTime(NOW.0 + 7_200));
    let (device, mut server) = world.flow(FlowOptions { deadline, ..FlowOptions::default() }).await;
    assert_eq!(server.deadline(), deadline);
    let other = world.device.open("test", FlowOptions::default()).unwrap();
    other.set_deadline(deadline);
    carrier.close();
    let begin = Instant::now();
    let (mut at_device, mut at_server, mut at_other) = (device.status(), server.status(), other.status());
    let (due, late) = (2 * HOUR, 2 * HOUR + DEADLINE_GRACE);
    for (status, due) in [(&mut at_device, due), (&mut at_other, due), (&mut at_server, late)] {
        let over =
            timeout(24 * HOUR, status.wait_for(|status| status.over.is_some())).await.expect("it ends").unwrap().over;
        assert_eq!(over, Some(FlowError::Ended(ended::EXPIRED)));
        let passed = begin.elapsed();
        assert!(passed >= due && passed <= due + SOON, "after {passed:?}");
    }
    let error = server.read(&mut [0; 9]).await.unwrap_err();
    assert_eq!(
        (error.kind(), FlowError::of(&error)),
        (io::ErrorKind::TimedOut, Some(FlowError::Ended(ended::EXPIRED)))
    );
}

#[tokio::test(start_paused = true)]
async fn what_was_closed_offline_is_delivered_weeks_later() {
    let world = World::new();
    let mut device = world.device.open("test", FlowOptions::default()).unwrap();
    device.write_all(&bytes(1, 0, 500_000)).await.unwrap();
    device.shutdown().await.unwrap();
    drop(device);
    sleep(24 * 14 * HOUR).await;
    assert_eq!(world.device.flows(), 1);
    world.connect("wifi");
    let mut server = world.server.accept().await.unwrap();
    server.write_all(b"nobody reads this").await.unwrap();
    server.shutdown().await.unwrap();
    timeout(SOON, read_all(&mut server, 1, 500_000)).await.unwrap();
    timeout(SOON, server.finished()).await.unwrap().unwrap();
    sleep(SOON).await;
    assert_eq!((world.device.flows(), world.server.flows()), (0, 0));
}

#[tokio::test(start_paused = true)]
async fn a_flow_that_is_dropped_before_its_end_is_given_up_at_the_other() {
    let world = World::new();
    world.connect("wifi");
    let (mut device, server) = world.flow(FlowOptions::default()).await;
    drop(server);
    let error = timeout(SOON, device.read(&mut [0; 9])).await.unwrap().unwrap_err();
    assert_eq!((error.kind(), FlowError::of(&error)), (io::ErrorKind::ConnectionReset, Some(FlowError::Ended(4))));
    let (device, mut server) = world.flow(FlowOptions::default()).await;
    drop(device);
    let error = timeout(SOON, server.read(&mut [0; 9])).await.unwrap().unwrap_err();
    assert_eq!(FlowError::of(&error), Some(FlowError::Ended(ended::GIVEN_UP)));
    let (device, mut server) = world.flow(FlowOptions::default()).await;
    device.reset(0x123);
    let error = timeout(SOON, server.read(&mut [0; 9])).await.unwrap().unwrap_err();
    assert_eq!(FlowError::of(&error), Some(FlowError::Ended(0x123)));
    sleep(SOON).await;
    assert_eq!((world.device.flows(), world.server.flows()), (0, 0));
}

#[tokio::test(start_paused = true)]
async fn what_happens_to_a_flow_is_told_in_order() {
    let world = World::new();
    let mut device = world.device.open("test", FlowOptions::default()).unwrap();
    let mut events = device.events();
    let mut next = async || timeout(SOON, events.recv()).await.expect("an event").unwrap();
    let mut wants = world.device.wants();
    device.write_all(b"x").await.unwrap();
    let carrier = world.connect("wifi");
    let server = world.server.accept().await.unwrap();
    loop {
        match next().await {
            FlowEvent::WantsCarrier => {}
            event => break assert_eq!(event, FlowEvent::Attached { network: "wifi".into() }),
        }
    }
    sleep(SOON).await;
    wants.borrow_and_update();
    carrier.close();
    let offline = next().await;
    assert!(matches!(offline, FlowEvent::Offline { .. }), "{offline:?}");
    sleep(HOUR).await;
    device.write_all(b"y").await.unwrap();
    timeout(SOON, wants.changed()).await.expect("the flow wants a carrier").unwrap();
    assert_eq!(next().await, FlowEvent::WantsCarrier);
    world.connect("mobile");
    assert_eq!(next().await, FlowEvent::Attached { network: "mobile".into() });
    let resumed = next().await;
    assert!(matches!(resumed, FlowEvent::Resumed { after } if after >= HOUR && after < HOUR + SOON), "{resumed:?}");
    assert_eq!(next().await, FlowEvent::CarrierChanged { from: "wifi".into(), to: "mobile".into() });
    server.reset(0x200);
    assert_eq!(next().await, FlowEvent::Over(FlowError::Ended(0x200)));
    assert_eq!(device.stats().networks.iter().map(|(network, _)| &**network).collect::<Vec<_>>(), ["wifi", "mobile"]);
}

#[tokio::test(start_paused = true)]
async fn a_flow_takes_its_preferred_network_and_one_bound_to_a_network_no_other() {
    let world = World::new();
    let likes = |networks| FlowOptions { networks, ..FlowOptions::default() };
    world.connect("mobile");
    let (prefers, _at_server) = world.flow(likes(Networks::Prefer("wifi".into()))).await;
    let only = world.device.open("test", likes(Networks::Only("wifi".into()))).unwrap();
    let mut status = prefers.status();
    timeout(SOON, status.wait_for(|status| status.network.as_deref() == Some("mobile"))).await.unwrap().unwrap();
    sleep(HOUR).await;
    assert_eq!(only.status().borrow().network, None);
    let mut events = prefers.events();
    let wifi = world.connect("wifi");
    for flow in [&prefers, &only] {
        let mut status = flow.status();
        timeout(SOON, status.wait_for(|status| status.network.as_deref() == Some("wifi"))).await.unwrap().unwrap();
    }
    sleep(SOON).await;
    wifi.close();
    timeout(SOON, status.wait_for(|status| status.network.as_deref() == Some("mobile"))).await.unwrap().unwrap();
    sleep(HOUR).await;
    assert!(only.status().borrow().offline_since.is_some());
    let mut all = Vec::new();
    while let Ok(event) = events.try_recv() {
        all.push(event);
    }
    let first_offline = all.iter().position(|event| matches!(event, FlowEvent::Offline { .. }));
    let moved = all.iter().position(|event| matches!(event, FlowEvent::CarrierChanged { .. }));
    assert!(moved < first_offline, "it is attached to the new carrier before it leaves the old: {all:?}");
}

/// A carrier on which nothing arrives at either end while it is mute.
#[derive(Debug)]
struct Mute {
    carrier: Arc<dyn Carrier>,
    mute: watch::Receiver<bool>,
}

#[derive(Debug)]
struct MuteReceiver {
    receiver: Box<dyn LaneReceiver>,
    mute: watch::Receiver<bool>,
}

impl LaneReceiver for MuteReceiver {
    fn receive(&mut self, most: usize) -> Pending<'_, io::Result<Option<bytes::Bytes>>> {
        Box::pin(async move {
            let received = self.receiver.receive(most).await;
            let _ = self.mute.wait_for(|mute| !*mute).await;
            received
        })
    }
}

impl Mute {
    fn lane(&self, lane: Lane) -> Lane {
        let receiver = Box::new(MuteReceiver { receiver: lane.receiver, mute: self.mute.clone() });
        Lane { receiver, ..lane }
    }
}

impl Carrier for Mute {
    fn kind(&self) -> Kind {
        self.carrier.kind()
    }
    fn binding(&self) -> Binding {
        self.carrier.binding()
    }
    fn open(&self) -> Pending<'_, io::Result<Lane>> {
        Box::pin(async { Ok(self.lane(self.carrier.open().await?)) })
    }
    fn accept(&self) -> Pending<'_, io::Result<Lane>> {
        Box::pin(async { Ok(self.lane(self.carrier.accept().await?)) })
    }
    fn rtt(&self) -> Option<Duration> {
        self.carrier.rtt()
    }
    fn closed(&self) -> Pending<'_, io::Error> {
        self.carrier.closed()
    }
    fn close(&self) {
        self.carrier.close();
    }
}

#[tokio::test(start_paused = true)]
async fn a_flow_leaves_a_silent_carrier_and_returns_when_the_other_is_gone() {
    let world = World::new();
    let (mute, is_mute) = watch::channel(false);
    let (ours, theirs) = carrier();
    world.server.serve(Arc::new(Mute { carrier: theirs, mute: is_mute.clone() }), "first");
    world.device.add_carrier(Arc::new(Mute { carrier: ours, mute: is_mute }), Use::Normal, "first");
    let (mut device, mut server) = world.flow(FlowOptions::default()).await;
    device.write_all(b"before").await.unwrap();
    let mut six = [0; 6];
    server.read_exact(&mut six).await.unwrap();
    sleep(SOON).await;
    mute.send_replace(true);
    let mut wants = world.device.wants();
    wants.borrow_and_update();
    device.write_all(b"during").await.unwrap();
    let begin = Instant::now();
    timeout(SOON, wants.changed()).await.expect("another carrier is wanted").unwrap();
    assert!(begin.elapsed() < Duration::from_secs(3), "{:?}", begin.elapsed());
    let second = world.connect("second");
    timeout(SOON, server.read_exact(&mut six)).await.expect("it goes on over the other").unwrap();
    assert_eq!(&six, b"during");
    sleep(HOUR).await;
    mute.send_replace(false);
    second.close();
    device.write_all(b"after!").await.unwrap();
    timeout(SOON, server.read_exact(&mut six)).await.expect("the first is taken again").unwrap();
    assert_eq!(&six, b"after!");
}

#[tokio::test(start_paused = true)]
async fn a_restarted_device_resumes_by_its_record_and_what_its_application_kept() {
    let world = World::new();
    world.connect("wifi");
    let options = FlowOptions { ack_policy: AckPolicy::WhenTold, ..FlowOptions::default() };
    let (mut device, mut server) = world.flow(options.clone()).await;
    let record = device.record();
    device.write_all(&bytes(1, 0, 10_000)).await.unwrap();
    server.write_all(&bytes(2, 0, 10_000)).await.unwrap();
    let mut some = vec![0; 10_000];
    server.read_exact(&mut some).await.unwrap();
    device.read_exact(&mut some[..6_000]).await.unwrap();
    device.keep(5_000);
    sleep(SOON).await;
    assert_eq!(server.stats().acknowledged, 5_000);
    // The process dies, and leaves a record that is older than what the application knows.
    let World { device: old, server: listener } = world;
    old.shutdown();
    drop((old, device));
    let world = World { device: Device::new(device_config()), server: listener };
    let mut device = world.device.restore(record, 5_000, options).unwrap();
    assert_eq!((device.position(), device.written()), (5_000, 0));
    world.connect("wifi");
    device.write_all(&bytes(1, 0, 20_000)).await.unwrap();
    device.shutdown().await.unwrap();
    server.shutdown().await.unwrap();
    let mut rest = Vec::new();
    timeout(SOON, server.read_to_end(&mut rest)).await.unwrap().unwrap();
    assert!(rest == bytes(1, 10_000, 10_000));
    rest.clear();
    timeout(SOON, device.read_to_end(&mut rest)).await.unwrap().unwrap();
    assert!(rest == bytes(2, 5_000, 5_000));
}

#[tokio::test(start_paused = true)]
async fn a_server_ends_a_flow_it_forgot_and_a_clock_starts_where_it_is_told() {
    let mut world = World::new();
    world.connect("wifi");
    let (mut device, server) = world.flow(FlowOptions::default()).await;
    device.write_all(b"x").await.unwrap();
    sleep(SOON).await;
    world.server.shutdown();
    drop((server, world.server));
    world.server = Server::new(server_config());
    world.connect("wifi");
    let error = timeout(SOON, device.read(&mut [0; 9])).await.unwrap().unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::ConnectionRefused);
    let clock = Clock::at(NOW);
    sleep(HOUR).await;
    assert_eq!(clock.unix(), UnixTime(NOW.0 + 3_600));
}
