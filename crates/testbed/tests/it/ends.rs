//! The two programs of [`cuts`](crate::cuts): a device and a server that carry flows both ways, keep what comes in files, and may be killed at any moment.
//!
//! Both know a flow by its number: how long its streams are and which bytes they have ([`Plan`]), so that whoever was restarted writes the same again.

use hoop_carrier::{Listener, server_tls};
use hoop_endpoint::{
    AckPolicy, DeviceId, FlowError, FlowId, FlowName, FlowOptions, FlowReader, FlowStream, FlowWriter, Record, Server,
    ServerConfig, ended,
};
use hoop_flow_store::{FlowStore, Found, Kept, Life, Settings, Store, When};
use hoop_relay::{Devices, Introduction, Link, NetworkPath};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use std::fs::{File, OpenOptions};
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use tokio::io::AsyncWriteExt as _;
use tokio::task::JoinSet;
use tokio::time::timeout;
use tracing_subscriber::filter::Targets;
use tracing_subscriber::prelude::*;

/// What both programs log, such as `hoop_relay=debug`.
const LOG: &str = "HOOP_LOG";

/// Where both programs have their files.
pub const FOLDER: &str = "HOOP_CUTS_FOLDER";

/// What a run's flows are drawn from.
pub const SEED: &str = "HOOP_CUTS_SEED";

/// What a program says that has found something wrong.
pub const FAILED: &str = "FAILED";

/// Once this file is there the device opens no more flows.
pub const STOP: &str = "stop";

pub const PORT: u16 = 4669;

/// Flows at once.
const SLOTS: usize = 5;

/// A stream's file is synced, and what it has is kept, after so many bytes,
const SYNC_EVERY: u64 = 200_000;

/// and when no more comes for so long.
const SYNC_AFTER: Duration = Duration::from_millis(30);

/// A flow that stands still for so long says how it is, for whoever reads why a test failed.
const STILL: Duration = Duration::from_secs(30);

/// One flow.
pub struct Plan {
    /// The stream from the device.
    pub up: Stream,
    /// The stream from the server.
    pub down: Stream,
    /// Whether it is carried by all carriers at once.
    multipath: bool,
}

/// Bytes that are known by their offset.
#[derive(Clone, Copy)]
pub struct Stream {
    key: u64,
    pub len: u64,
}

fn mix(a: u64, b: u64) -> u64 {
    let mut z = (a ^ b.wrapping_mul(0xd134_2543_de82_ef95)).wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

impl Plan {
    pub fn of(seed: u64, number: u64) -> Self {
        let stream = |which: u64| {
            let key = mix(mix(seed, number), which);
            // Some are empty or short: they begin and end often.
            let most = [1, 100, 20_000, 600_000, 3_000_000, 3_000_000][(mix(key, 1) % 6) as usize];
            Stream { key, len: mix(key, 2) % most }
        };
        Self { up: stream(10), down: stream(11), multipath: mix(seed, !number).is_multiple_of(3) }
    }
}

impl Stream {
    pub fn bytes(self, offset: u64, len: usize) -> Vec<u8> {
        let words = offset / 8..=(offset + len as u64) / 8;
        let bytes = words.flat_map(|word| mix(self.key, word).to_le_bytes());
        bytes.skip((offset % 8) as usize).take(len).collect()
    }
}

/// The file of a stream that comes: each byte is written to it once, in order.
struct Sink {
    file: Arc<File>,
    len: u64,
    synced: u64,
    stream: Stream,
}

impl Sink {
    fn open(path: &Path, stream: Stream) -> Self {
        let file = OpenOptions::new().create(true).truncate(false).write(true).open(path).unwrap();
        let len = file.metadata().unwrap().len();
        // What an earlier process wrote may not be synced.
        Self { file: Arc::new(file), len, synced: 0, stream }
    }

    fn take(&mut self, offset: u64, bytes: &[u8]) {
        let end = offset + bytes.len() as u64;
        assert!(offset <= self.len, "byte {} is missing: {offset} came", self.len);
        assert!(end <= self.stream.len, "byte {end} came of {}", self.stream.len);
        assert!(bytes == self.stream.bytes(offset, bytes.len()), "from {offset} to {end} others came than were sent");
        let known = (self.len - offset).min(bytes.len() as u64) as usize;
        self.file.write_all_at(&bytes[known..], self.len).unwrap();
        self.len = self.len.max(end);
    }

    async fn sync(&mut self) {
        let (file, len) = (self.file.clone(), self.len);
        tokio::task::spawn_blocking(move || file.sync_data()).await.unwrap().unwrap();
        self.synced = len;
    }
}

/// Reads a stream into its file; what is synced is kept. `note` writes the flow's record down, at once if that must be.
async fn receive(mut reader: FlowReader, mut sink: Sink, note: impl Fn(&FlowReader, When)) -> FlowReader {
    let (mut at, mut told, mut is_over) = (reader.position(), 0, false);
    while !is_over {
        let read = reader.read_chunk(64 * 1024);
        let read = timeout(if at > told { SYNC_AFTER } else { STILL }, read).await.ok();
        match read {
            Some(Ok(Some(bytes))) => {
                sink.take(at, &bytes);
                at += bytes.len() as u64;
                if at - told < SYNC_EVERY {
                    continue;
                }
            }
            Some(Ok(None)) => is_over = true,
            Some(Err(error)) => panic!("at {at} of {} that come: {error}", sink.stream.len),
            None if at == told => println!("at {at} of {} that come: {reader:?}", sink.stream.len),
            None => {}
        }
        if sink.synced < sink.len {
            sink.sync().await;
        }
        if is_over {
            // Whoever knows no more after a restart that it ended there cannot know that it is whole.
            note(&reader, When::Synced);
        }
        reader.keep(at);
        told = at;
        note(&reader, When::Later);
    }
    assert_eq!(at, sink.stream.len, "how long the stream is that came");
    reader
}

/// Writes a stream, from where that is wanted.
async fn send(mut writer: FlowWriter, stream: Stream, note: impl Fn(&FlowWriter)) -> FlowWriter {
    let mut at = writer.written();
    assert!(at <= stream.len, "{at} bytes were written of {}", stream.len);
    while at < stream.len {
        let bytes = stream.bytes(at, (stream.len - at).min(1 + mix(stream.key, at) % 60_000) as usize);
        at += bytes.len() as u64;
        match writer.write_chunk(bytes.into()).await.map_err(|error| (FlowError::of(&error), error)) {
            Ok(()) => {}
            // The other end had it all before this one was restarted.
            Err((Some(FlowError::Ended(ended::FINISHED)), _)) => return writer,
            Err((_, error)) => panic!("at {at} of {} that are sent: {error}", stream.len),
        }
    }
    writer.shutdown().await.expect("the end is taken");
    // At a device, whose runtime has one thread, before it is said.
    note(&writer);
    writer
}

/// Both streams of a flow, until it is over at this end.
async fn carry(flow: FlowStream, sends: Stream, sink: Sink, note: impl Fn(Record, When)) {
    let mut status = flow.status();
    let (reader, writer) = flow.into_split();
    let receives = receive(reader, sink, |reader, when| note(reader.record(), when));
    let sends = send(writer, sends, |writer| note(writer.record(), When::Synced));
    let (reader, _writer) = tokio::join!(receives, sends);
    let over = loop {
        match timeout(STILL, status.wait_for(|status| status.over.is_some())).await {
            Ok(status) => break status.expect("the flow is held").over,
            Err(_) => println!("all has come, and it is not over: {reader:?}"),
        }
    };
    assert_eq!(over, Some(FlowError::Ended(ended::FINISHED)), "how it ended");
}

fn begin() -> (PathBuf, u64) {
    std::panic::set_hook(Box::new(|why| {
        println!("{FAILED}: {why}");
        std::process::exit(101);
    }));
    if let Ok(targets) = std::env::var(LOG) {
        let targets: Targets = targets.parse().expect("targets and their levels");
        tracing_subscriber::registry().with(tracing_subscriber::fmt::layer()).with(targets).init();
    }
    let variable = |name| std::env::var(name).expect("the test says it");
    (variable(FOLDER).into(), variable(SEED).parse().expect("a number"))
}

#[test]
#[ignore = "run by `cuts`, as a process of its own"]
fn server() {
    let (folder, seed) = begin();
    tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap().block_on(async {
        let certificates = CertificateDer::pem_file_iter(folder.join("certificate.pem")).unwrap().map(Result::unwrap);
        let key = PrivateKeyDer::from_pem_file(folder.join("key.pem")).unwrap();
        let tls = server_tls(certificates.collect(), key).unwrap();
        let store = Arc::new(Store::open(&Settings::new(folder.join("server/store"))).unwrap());
        assert_eq!(store.damages(), []);
        // The application's files are what outlives a restart, or the store is until they are written.
        let keeps = if seed.is_multiple_of(2) { AckPolicy::WhenTold } else { AckPolicy::Stored };
        let options = FlowOptions { ack_policy: keeps, ..FlowOptions::default() };
        let devices = Arc::new(Devices::open(&folder.join("devices.toml")).unwrap());
        let bytes = Some(store.clone() as _);
        let server =
            Server::new(ServerConfig { store: Some(store), byte_store: bytes, options, ..ServerConfig::new(devices) });
        let address = ([0, 0, 0, 0], PORT).into();
        let listener = Listener::bind(address, &tls).await.unwrap();
        println!("the server is up");
        loop {
            tokio::select! {
                carrier = listener.accept() => server.serve(carrier.unwrap(), "server"),
                flow = server.accept() => {
                    let flow = flow.expect("the server is up");
                    let number: u64 = flow.service().parse().expect("a number");
                    let plan = Plan::of(seed, number);
                    let sink = Sink::open(&folder.join(format!("server/{number}.up")), plan.up);
                    assert!(flow.position() <= sink.len, "it acknowledged what it does not have");
                    tokio::spawn(carry(flow, plan.down, sink, |_, _| {}));
                }
            }
        }
    });
}

/// The device: its files are `N.flow` with the name of a flow that there is, `N.done` of one that is over, `N.down` with what came.
struct Opener {
    folder: PathBuf,
    seed: u64,
    host: DeviceId,
    link: Link,
    store: Arc<Store>,
    running: JoinSet<()>,
}

impl Opener {
    fn numbers(&self, ending: &str) -> Vec<u64> {
        let names = std::fs::read_dir(&self.folder).unwrap().map(|entry| entry.unwrap().file_name());
        names.filter_map(|name| name.to_str()?.strip_suffix(ending)?.parse().ok()).collect()
    }

    fn file(&self, number: u64, ending: &str) -> PathBuf {
        self.folder.join(format!("{number}{ending}"))
    }

    fn options(&self, number: u64) -> (Plan, FlowOptions) {
        let plan = Plan::of(self.seed, number);
        let options = FlowOptions {
            ack_policy: AckPolicy::WhenTold,
            multipath: plan.multipath,
            size: Some(plan.up.len),
            ..FlowOptions::default()
        };
        (plan, options)
    }

    /// A new flow: its record is on disk before its OPEN leaves, since this runtime has one thread, which does nothing else meanwhile.
    fn open(&mut self, number: u64) {
        let (plan, options) = self.options(number);
        let flow = self.link.device().open(&number.to_string(), options).unwrap();
        let kept = Kept { record: flow.record(), attachment: Vec::new(), spools: false };
        self.store.put(&kept, Life::Parked, When::Synced).unwrap();
        let part = self.file(number, ".part");
        std::fs::write(&part, flow.name().flow.0.to_string()).unwrap();
        std::fs::rename(part, self.file(number, ".flow")).unwrap();
        self.run(number, flow, plan);
    }

    /// One that an earlier process had.
    fn restore(&mut self, number: u64) {
        let (plan, options) = self.options(number);
        let flow = std::fs::read_to_string(self.file(number, ".flow")).unwrap();
        let name = FlowName { device: self.host, flow: FlowId(flow.parse().expect("a number")) };
        let Found::Kept(kept) = self.store.take(name).unwrap() else { panic!("{number} is not in the store") };
        let come = std::fs::metadata(self.file(number, ".down")).map_or(0, |file| file.len());
        let flow = self.link.device().restore(kept.record, come, options).unwrap();
        assert_eq!(flow.position(), come, "nothing that is in the file comes again");
        self.run(number, flow, plan);
    }

    fn run(&mut self, number: u64, flow: FlowStream, plan: Plan) {
        let (name, store) = (flow.name(), self.store.clone());
        let sink = Sink::open(&self.file(number, ".down"), plan.down);
        let [here, over] = [".flow", ".done"].map(|ending| self.file(number, ending));
        self.running.spawn(async move {
            let note = |record, when| {
                store.put(&Kept { record, attachment: Vec::new(), spools: false }, Life::Parked, when).unwrap();
            };
            carry(flow, plan.up, sink, note).await;
            std::fs::rename(here, over).unwrap();
            store.remove(name, ended::FINISHED).unwrap();
        });
    }
}

#[test]
#[ignore = "run by `cuts`, as a process of its own"]
fn device() {
    let (folder, seed) = begin();
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
        let introduction: Introduction =
            serde_json::from_slice(&std::fs::read(folder.join("introduction.json")).unwrap()).unwrap();
        let link = Link::start(&introduction, ["wifi", "cell"].map(NetworkPath::interface).into()).unwrap();
        let store = Arc::new(Store::open(&Settings::new(folder.join("device/store"))).unwrap());
        let stop = folder.join(STOP);
        let (folder, host) = (folder.join("device"), introduction.host().unwrap());
        let mut opener = Opener { folder, seed, host, link, store, running: JoinSet::new() };
        for number in opener.numbers(".flow") {
            opener.restore(number);
        }
        let mut next =
            opener.numbers(".flow").into_iter().chain(opener.numbers(".done")).max().map_or(0, |max| max + 1);
        println!("the device is up");
        loop {
            while opener.running.len() < SLOTS && !stop.exists() {
                opener.open(next);
                next += 1;
            }
            let Some(done) = opener.running.join_next().await else { break };
            done.unwrap();
        }
        println!("all flows are over");
    });
}
