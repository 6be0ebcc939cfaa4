//! Bytes of devices that are on disk before they are acknowledged (`AckPolicy::Stored`), in paused time.

use crate::common::*;
use hoop_endpoint::{
    AckPolicy, Device, FlowError, FlowEvent, FlowName, FlowOptions, FlowStream, Server, ServerConfig, ended,
};
use hoop_flow_store::{ByteStore, FlowStore, Found, MemoryStore, Settings, Store, StoreError, When};
use hoop_units::ByteRange;
use std::io;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::time::Duration;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::task::yield_now;
use tokio::time::{sleep, timeout};

/// Long enough for whatever does not wait for the time.
const SOON: Duration = Duration::from_secs(20);

fn stored(flows: Arc<dyn FlowStore>, bytes: Arc<dyn ByteStore>) -> ServerConfig {
    let options = FlowOptions { ack_policy: AckPolicy::Stored, ..FlowOptions::default() };
    ServerConfig { store: Some(flows), byte_store: Some(bytes), options, ..server_config() }
}

async fn is_over(flow: &FlowStream) {
    let mut status = flow.status();
    let over = timeout(SOON, status.wait_for(|status| status.over.is_some())).await.expect("it ends").unwrap().over;
    assert_eq!(over, Some(FlowError::Ended(ended::FINISHED)));
}

/// Reads bytes of stream 1 from `from` to `to`.
async fn read(flow: &mut FlowStream, from: u64, to: u64) {
    let mut some = vec![0; (to - from) as usize];
    timeout(SOON, flow.read_exact(&mut some)).await.expect("they come").unwrap();
    assert!(some == bytes(1, from, some.len()), "bytes {from} to {to}");
}

#[tokio::test(start_paused = true)]
async fn acknowledged_bytes_that_nobody_read_are_read_at_the_next_server() {
    let folder = tempfile::tempdir().unwrap();
    let open = || {
        let store = Arc::new(Store::open(&Settings::new(folder.path())).unwrap());
        stored(store.clone(), store)
    };
    let mut world = World::with(open());
    world.connect("wifi");
    let (mut device, mut server) = world.flow(FlowOptions::default()).await;
    device.write_all(&bytes(1, 0, 900_000)).await.unwrap();
    device.shutdown().await.unwrap();
    timeout(SOON, device.finished()).await.expect("all of it is on disk, and so is acknowledged").unwrap();
    read(&mut server, 0, 500_000).await;
    server.keep(60_000);
    server.shutdown().await.unwrap();
    sleep(SOON).await;
    assert_eq!(device.status().borrow().over, None, "the application has not done with it");

    world.server.shutdown();
    drop((server, world.server));
    sleep(SOON).await;
    world.server = Server::new(open());
    world.connect("mobile");
    let mut server = timeout(SOON, world.server.accept()).await.expect("it is resumed").unwrap();
    assert_eq!(server.position(), 60_000);
    read(&mut server, 60_000, 900_000).await;
    assert_eq!(server.read(&mut [0]).await.unwrap(), 0);
    sleep(SOON).await;
    assert_eq!(device.status().borrow().over, None, "the application has not done with it");
    server.keep(900_000);
    server.shutdown().await.unwrap();
    is_over(&device).await;
    is_over(&server).await;
    drop((server, world));
    sleep(SOON).await;
    let store = Store::open(&Settings::new(folder.path())).unwrap();
    assert_eq!((store.usage().bytes, store.held(device.name())), (0, None), "nothing of it is left");
}

#[tokio::test(start_paused = true)]
async fn a_parked_flow_has_what_was_not_read_when_it_is_resumed() {
    let store = Arc::new(MemoryStore::default());
    let world = World::with(stored(store.clone(), store));
    world.connect("wifi");
    let (mut device, mut server) = world.flow(FlowOptions::default()).await;
    device.write_all(&bytes(1, 0, 100_000)).await.unwrap();
    read(&mut server, 0, 50_000).await;
    server.keep(40_000);
    sleep(SOON).await;
    assert_eq!(device.stats().acknowledged, 100_000);
    server.park(b"here").await.unwrap();
    assert_eq!(world.server.flows(), 0);
    device.write_all(&bytes(1, 100_000, 1_000)).await.unwrap();
    let mut server = timeout(SOON, world.server.accept()).await.expect("it is resumed").unwrap();
    assert_eq!(server.position(), 40_000);
    read(&mut server, 40_000, 101_000).await;
}

#[tokio::test(start_paused = true)]
async fn a_device_with_a_full_share_gets_no_acks_until_some_bytes_are_consumed() {
    const SHARE: u64 = 300_000;
    let folder = tempfile::tempdir().unwrap();
    let store = Store::open(&Settings { bytes_per_host: SHARE, ..Settings::new(folder.path()) }).unwrap();
    let store = Arc::new(store);
    let world = World::with(stored(store.clone(), store.clone()));
    world.connect("wifi");
    let (mut device, mut server) = world.flow(FlowOptions::default()).await;
    device.write_all(&bytes(1, 0, 1_000_000)).await.unwrap();
    device.shutdown().await.unwrap();
    sleep(SOON).await;
    let acknowledged = device.stats().acknowledged;
    assert!(acknowledged > SHARE / 2 && acknowledged <= SHARE, "{acknowledged} are acknowledged");
    assert_eq!(store.held(device.name()), Some(ByteRange::new(0, acknowledged)));
    for at in 0..10 {
        read(&mut server, at * 100_000, (at + 1) * 100_000).await;
        server.keep((at + 1) * 100_000);
    }
    timeout(SOON, device.finished()).await.expect("it goes on").unwrap();
    server.shutdown().await.unwrap();
    is_over(&device).await;
}

/// A store whose disk fails while it is told to.
#[derive(Default, Debug)]
struct Failing {
    store: MemoryStore,
    appends: AtomicBool,
    syncs: AtomicBool,
    /// Another's sync fails just before the next one, which does not: of this flow only what lies before is held.
    loses: Mutex<Option<(FlowName, u64)>>,
}

fn fails(whether: &AtomicBool) -> Result<(), StoreError> {
    match whether.load(Ordering::Relaxed) {
        true => Err(io::Error::from(io::ErrorKind::StorageFull).into()),
        false => Ok(()),
    }
}

impl ByteStore for Failing {
    fn append(&self, name: FlowName, offset: u64, bytes: &[u8]) -> Result<u64, StoreError> {
        fails(&self.appends)?;
        self.store.append(name, offset, bytes)
    }

    fn sync(&self) -> Result<(), StoreError> {
        fails(&self.syncs)?;
        if let Some((name, end)) = self.loses.lock().unwrap().take() {
            let mut left = vec![0; end as usize];
            assert_eq!(self.store.read(name, 0, &mut left)?, left.len());
            self.store.remove(name, 0)?;
            self.store.append(name, 0, &left)?;
        }
        self.store.sync()
    }

    fn read(&self, name: FlowName, offset: u64, into: &mut [u8]) -> Result<usize, StoreError> {
        self.store.read(name, offset, into)
    }

    fn consume(&self, name: FlowName, offset: u64) -> Result<(), StoreError> {
        self.store.consume(name, offset)
    }

    fn held(&self, name: FlowName) -> Option<ByteRange> {
        self.store.held(name)
    }
}

#[tokio::test(start_paused = true)]
async fn while_the_disk_fails_nothing_is_acknowledged_and_afterwards_it_goes_on() {
    let byte_store = Arc::new(Failing::default());
    let world = World::with(stored(Arc::new(MemoryStore::default()), byte_store.clone()));
    world.connect("wifi");
    let (mut device, mut server) = world.flow(FlowOptions::default()).await;
    for (round, failing) in [&byte_store.appends, &byte_store.syncs].into_iter().enumerate() {
        let from = round as u64 * 200_000;
        device.write_all(&bytes(1, from, 100_000)).await.unwrap();
        read(&mut server, from, from + 100_000).await;
        sleep(SOON).await;
        assert_eq!(device.stats().acknowledged, from + 100_000);
        failing.store(true, Ordering::Relaxed);
        device.write_all(&bytes(1, from + 100_000, 100_000)).await.unwrap();
        // The application may have it nevertheless.
        read(&mut server, from + 100_000, from + 200_000).await;
        sleep(SOON).await;
        assert_eq!(device.stats().acknowledged, from + 100_000, "what is not on disk is not acknowledged");
        failing.store(false, Ordering::Relaxed);
        sleep(SOON).await;
        assert_eq!(device.stats().acknowledged, from + 200_000);
    }
    server.keep(400_000);
    device.shutdown().await.unwrap();
    server.shutdown().await.unwrap();
    is_over(&device).await;
    // The device hears of the end before the store does.
    sleep(SOON).await;
    assert_eq!(byte_store.held(device.name()).map_or(0, |held| held.len()), 0);
}

#[tokio::test(start_paused = true)]
async fn bytes_lost_between_append_and_sync_are_not_acknowledged_but_sent_again() {
    let byte_store = Arc::new(Failing::default());
    let world = World::with(stored(Arc::new(MemoryStore::default()), byte_store.clone()));
    world.connect("wifi");
    let (mut device, mut server) = world.flow(FlowOptions::default()).await;
    device.write_all(&bytes(1, 0, 50_000)).await.unwrap();
    read(&mut server, 0, 50_000).await;
    sleep(SOON).await;
    *byte_store.loses.lock().unwrap() = Some((device.name(), 50_000));
    device.write_all(&bytes(1, 50_000, 40_000)).await.unwrap();
    read(&mut server, 50_000, 90_000).await;
    sleep(Duration::from_millis(500)).await;
    assert_eq!(
        (device.stats().acknowledged, byte_store.held(device.name())),
        (50_000, Some(ByteRange::new(0, 50_000)))
    );
    sleep(SOON).await;
    assert_eq!(
        (device.stats().acknowledged, byte_store.held(device.name())),
        (90_000, Some(ByteRange::new(0, 90_000)))
    );
}

#[tokio::test(start_paused = true)]
async fn what_comes_for_an_application_that_is_gone_is_not_kept_for_a_later_one() {
    let store = Arc::new(MemoryStore::default());
    let world =
        World { device: Device::new(device_config()), server: Server::new(stored(store.clone(), store.clone())) };
    world.connect("wifi");
    let (mut device, mut server) = world.flow(FlowOptions::default()).await;
    server.shutdown().await.unwrap();
    drop(server);
    device.write_all(&bytes(1, 0, 3_000_000)).await.unwrap();
    device.shutdown().await.unwrap();
    is_over(&device).await;
    // The device hears of the end before the store does.
    sleep(SOON).await;
    assert_eq!(store.held(device.name()).map_or(0, |held| held.len()), 0);
}

#[tokio::test(start_paused = true)]
async fn bytes_for_a_gone_application_are_acknowledged_once_that_is_recorded() {
    let store = Arc::new(MemoryStore::default());
    let options = FlowOptions { ack_policy: AckPolicy::WhenTold, ..FlowOptions::default() };
    let world = World::with(ServerConfig { store: Some(store.clone()), options, ..server_config() });
    world.connect("wifi");
    let (mut device, mut server) = world.flow(FlowOptions::default()).await;
    server.shutdown().await.unwrap();
    drop(server);
    device.write_all(&bytes(1, 0, 3_000_000)).await.unwrap();
    sleep(SOON).await;
    let Found::Kept(kept) = store.take(device.name()).unwrap() else { panic!("it is in the store") };
    assert_eq!((device.stats().acknowledged, kept.record.kept), (3_000_000, 3_000_000));
}

#[tokio::test(start_paused = true)]
async fn a_flow_that_the_store_expires_by_age_also_ends_where_it_is_attached() {
    static TIME: AtomicU32 = AtomicU32::new(NOW.0);
    let folder = tempfile::tempdir().unwrap();
    let settings = Settings { clock: right(|| TIME.load(Ordering::Relaxed)), ..Settings::new(folder.path()) };
    let store = Arc::new(Store::open(&settings).unwrap());
    let world = World::with(stored(store.clone(), store.clone()));
    let carrier = world.connect("wifi");
    let (device, server) = world.flow(FlowOptions::default()).await;
    carrier.close();
    sleep(SOON).await;
    // The time of day, and no other clock.
    TIME.fetch_add(31 * 86_400, Ordering::Relaxed);
    sleep(Duration::from_secs(100)).await;
    assert_eq!(server.status().borrow().over, Some(FlowError::Ended(ended::EXPIRED)));
    assert_eq!(world.server.flows(), 0);
    world.connect("wifi");
    let mut status = device.status();
    let over = timeout(SOON, status.wait_for(|status| status.over.is_some())).await.expect("it is told").unwrap().over;
    assert_eq!(over, Some(FlowError::Ended(ended::EXPIRED)));
}

#[tokio::test(start_paused = true)]
async fn bytes_consumed_before_they_were_kept_are_synced_with_the_record() {
    let (flows, byte_store) = (Arc::new(Watched::default()), Arc::new(Failing::default()));
    let world = World::with(stored(flows.clone(), byte_store.clone()));
    world.connect("wifi");
    byte_store.appends.store(true, Ordering::Relaxed);
    let (mut device, mut server) = world.flow(FlowOptions::default()).await;
    device.write_all(&bytes(1, 0, 50_000)).await.unwrap();
    read(&mut server, 0, 50_000).await;
    server.keep(50_000);
    flows.ahead.lock().unwrap().clear();
    server.park(b"").await.unwrap();
    assert_eq!(flows.ahead.lock().unwrap().last(), Some(&When::Synced));
}

#[tokio::test(start_paused = true)]
async fn parking_what_is_over_or_giving_up_waiting_for_it_holds_up_nobody() {
    let flows = Arc::new(Watched::default());
    let world = World::with(stored(flows.clone(), Arc::new(MemoryStore::default())));
    world.connect("wifi");
    let (device, server) = world.flow(FlowOptions::default()).await;
    device.reset(0x100);
    sleep(SOON).await;
    let (_, error) = timeout(SOON, server.park(b"")).await.expect("it does not wait").unwrap_err();
    assert_eq!(error.to_string(), "the flow is over");

    let (device, server) = world.flow(FlowOptions::default()).await;
    let name = device.name();
    let (goes_on, holds) = mpsc::channel();
    *flows.holds.lock().unwrap() = Some(holds);
    assert!(timeout(Duration::ZERO, server.park(b"")).await.is_err(), "it takes longer");
    goes_on.send(()).unwrap();
    sleep(SOON).await;
    assert_eq!(world.server.flows(), 0);
    assert!(matches!(flows.store.take(name).unwrap(), Found::Ended(_)), "it is given up, and nothing of it stays");
    for number in 0..64 * 4 {
        let device = world.device.open("test", FlowOptions::default()).unwrap();
        let server = timeout(SOON, world.server.accept()).await.unwrap_or_else(|_| panic!("flow {number} is held up"));
        server.unwrap().reset(1);
        drop(device);
    }
}

#[tokio::test(start_paused = true)]
async fn a_flow_that_ends_while_it_is_written_down_is_removed_after_that() {
    let flows = Arc::new(Watched::default());
    let world = World::with(stored(flows.clone(), Arc::new(MemoryStore::default())));
    world.connect("wifi");
    let (device, server) = world.flow(FlowOptions::default()).await;
    sleep(SOON).await;
    let (name, (goes_on, holds)) = (device.name(), mpsc::channel());
    *flows.holds.lock().unwrap() = Some(holds);
    server.set_attachment(*b"to be written down").unwrap();
    // Time stands still until the store has it.
    while flows.holds.lock().unwrap().is_some() {
        yield_now().await;
    }
    device.reset(0x100);
    while world.server.flows() > 0 {
        yield_now().await;
    }
    for _ in 0..1_000 {
        yield_now().await;
        assert!(matches!(flows.store.take(name).unwrap(), Found::Kept(_)), "it would come back");
    }
    goes_on.send(()).unwrap();
    sleep(SOON).await;
    assert!(matches!(flows.store.take(name).unwrap(), Found::Ended(0x100)));
}

/// The store's time of day, which the test moves with tokio's.
static STORE_TIME: AtomicU32 = AtomicU32::new(NOW.0);

async fn pass(secs: u32) {
    STORE_TIME.fetch_add(secs, Ordering::Relaxed);
    sleep(Duration::from_secs(secs.into())).await;
}

#[tokio::test(start_paused = true)]
async fn a_flow_becomes_quiet_parked_spilled_and_expired_all_by_itself() {
    let folder = tempfile::tempdir().unwrap();
    let mut settings = Settings::new(folder.path());
    settings.clock = right(|| STORE_TIME.load(Ordering::Relaxed));
    // Memory for some flows that are not spilled.
    settings.limits.memory = 4_000;
    let store = Arc::new(Store::open(&settings).unwrap());
    let world = World::with(ServerConfig { parks: true, ..stored(store.clone(), store.clone()) });
    world.connect("wifi");
    let (mut device, mut server) = world.flow(FlowOptions::default()).await;
    let mut events = device.events();
    device.write_all(&bytes(1, 0, 1_000)).await.unwrap();
    read(&mut server, 0, 1_000).await;
    server.set_attachment(*b"file 7").unwrap();
    pass(300).await;
    assert_eq!(world.server.flows(), 1, "it has not done with what came: it stays live");
    server.keep(1_000);
    pass(10).await;
    assert_eq!(world.server.flows(), 1, "it is quiet, and not yet for long");
    STORE_TIME.fetch_add(300, Ordering::Relaxed);
    let gone = timeout(Duration::from_secs(300), server.read(&mut [0])).await;
    let error = gone.expect("it is parked").unwrap_err();
    assert_eq!(FlowError::of(&error), Some(FlowError::Gone));
    drop(server);
    while timeout(SOON, events.recv()).await.expect("the device is told").unwrap() != FlowEvent::Parked {}
    assert_eq!((world.server.flows(), store.usage().flows), (0, 1));

    // Others come, and are quiet in turn: what is parked longest is spilled.
    let mut others = Vec::new();
    for _ in 0..40 {
        let (mut other, mut server) = world.flow(FlowOptions::default()).await;
        other.write_all(b"x").await.unwrap();
        server.read_exact(&mut [0]).await.unwrap();
        server.keep(1);
        tokio::spawn(async move { server.read(&mut [0]).await });
        others.push(other);
        pass(100).await;
    }
    pass(300).await;
    let usage = store.usage();
    assert_eq!((world.server.flows(), usage.flows), (0, 41));
    assert!(usage.resident < 30, "{usage:?}");
    device.write_all(&bytes(1, 1_000, 1_000)).await.unwrap();
    let mut server = timeout(SOON, world.server.accept()).await.expect("it is resumed").unwrap();
    assert_eq!((server.position(), server.attachment().map(|bytes| &bytes[..])), (1_000, Some(&b"file 7"[..])));
    read(&mut server, 1_000, 2_000).await;
    server.keep(2_000);
    pass(10).await;
    pass(300).await;
    assert_eq!(world.server.flows(), 0);

    STORE_TIME.fetch_add(31 * 24 * 3_600, Ordering::Relaxed);
    pass(100).await;
    assert_eq!(store.usage().flows, 0);
    device.write_all(b"too late").await.unwrap();
    let mut status = device.status();
    let over = timeout(SOON, status.wait_for(|status| status.over.is_some())).await.expect("it ends").unwrap().over;
    assert_eq!(over, Some(FlowError::Ended(ended::EXPIRED)));
}

#[tokio::test(start_paused = true)]
async fn a_quiet_flow_is_parked_offline_and_one_with_something_to_send_is_not() {
    let store = Arc::new(MemoryStore::default());
    let world = World::with(ServerConfig { parks: true, ..stored(store.clone(), store) });
    let carrier = world.connect("wifi");
    let (mut quiet, _quiet) = world.flow(FlowOptions::default()).await;
    let (busy, mut at_server) = world.flow(FlowOptions::default()).await;
    sleep(SOON).await;
    carrier.close();
    at_server.write_all(&bytes(1, 0, 10)).await.unwrap();
    sleep(10 * SOON).await;
    assert_eq!(world.server.flows(), 1);
    world.connect("mobile");
    let mut busy = busy;
    read(&mut busy, 0, 10).await;
    quiet.write_all(b"hello").await.unwrap();
    let mut again = timeout(SOON, world.server.accept()).await.expect("it is resumed").unwrap();
    let mut five = [0; 5];
    again.read_exact(&mut five).await.unwrap();
    assert_eq!(&five, b"hello");
}

/// A store's clock that is right, whatever it says, in seconds since 1970.
fn right(now: fn() -> u32) -> hoop_flow_store::Clock {
    hoop_flow_store::Clock::with_wall(move || std::time::UNIX_EPOCH + std::time::Duration::from_secs(now().into()))
}
