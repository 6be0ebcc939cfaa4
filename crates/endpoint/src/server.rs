//! The server's end: [`Server`].

use crate::carriers::Carriers;
use crate::clock::Clock;
use crate::error::FlowError;
use crate::flow::{Carried, CarrierId, Durable, Owner, Shared, State, first_options, machine_options};
use crate::held::Memory;
use crate::intake::{Intake, Piece};
use crate::keeper::{Found as Looked, Watch, keep};
use crate::lane::{self, RECEIVE_MAX};
use crate::options::{FlowEvent, FlowOptions, Keeps, Network};
use crate::spool::{self, Job};
use crate::stream::FlowStream;
use bytes::Bytes;
use hoop_carrier::{Carrier, Lane, Pending};
use hoop_flow::frame::{Frame, FrameError, Open, Refusal, Resume};
use hoop_flow::{DeviceKey, Flow, FlowKey, FlowName, HostId, LANES_MAX, LaneId, Record, ended};
use hoop_flow_store::{Due, FlowStore, Found, Kept, Life, OctetStore, StoreError, When};
use hoop_flow_table::Ends as Ended;
use hoop_units::{Duration, Timestamp, UnixTime};
use std::collections::HashMap;
use std::hash::RandomState;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use tokio::sync::{Mutex as AsyncMutex, Semaphore, mpsc, watch};
use tokio::time::timeout;

/// How long a lane has to say OPEN or RESUME: some round trips of the worst network.
pub const GREETING_MAX: Duration = Duration::from_secs(10);

/// A flow that is quiet is parked after it has been offline for so long: most come back sooner, if they do at all.
const OFFLINE_QUIET: Duration = Duration::from_secs(30);

/// For so long a server that has no room now asks a device to wait.
const BUSY_SECS: u64 = 5;

/// How often the store is asked what is due.
const TICK: Duration = Duration::from_secs(1);

/// After so many seconds it is asked though nothing was put there: flows expire.
const TICKS_IDLE: u32 = 60;

/// How long a refusal has to be written.
const REFUSE_MAX: Duration = Duration::from_secs(5);

/// Flows are found and put away one after another where their names fall together; few enough that each costs nothing.
const GATES: usize = 64;

/// Whose keys a server knows, and what it offers.
pub trait DeviceKeys: Send + Sync {
    /// The key of a device; None if it is not known. A device is told nothing of which it was.
    fn key(&self, host: HostId) -> Pending<'_, Option<DeviceKey>>;

    /// Whether there is such a service for the device. By default there is.
    fn offers(&self, host: HostId, service: &str) -> bool {
        let _ = (host, service);
        true
    }
}

/// One key for each of these devices.
impl DeviceKeys for HashMap<HostId, DeviceKey> {
    fn key(&self, host: HostId) -> Pending<'_, Option<DeviceKey>> {
        Box::pin(std::future::ready(self.get(&host).copied()))
    }
}

/// What a server's end may hold. What is beyond is refused with the code in brackets; none of it harms flows that are there.
#[derive(Clone, Copy, Debug)]
pub struct ServerLimits {
    /// Flows that are not parked, in all (4, busy). Default 65,536.
    pub flows: usize,
    /// The same of one device (5, full). Default 1,024.
    pub flows_of_device: usize,
    /// Lanes of one carrier that have not said OPEN or RESUME yet; more are not accepted until one has, or [`GREETING_MAX`] has passed. Default 16.
    pub greetings: usize,
    /// Carriers at once. When there is no room, the one that has been longest without that a flow was attached over it is closed; if there is none, the new one. Default 16,384.
    pub carriers: usize,
    /// Carriers from one address (IPv6: one /64) over which no flow was attached yet; more are closed. Default 64.
    pub carriers_of_stranger: usize,
    /// Carriers of one device; more are closed. Default 1,024: each program under `hoop run` has its own.
    pub carriers_of_device: usize,
    /// Flows that nobody has accepted yet (4, busy). Default 1,024.
    pub backlog: usize,
    /// Octets of all flows together, written and not acknowledged or come and not read, those included that came before their turn. Beyond it no flow is opened (4, busy). Each flow
    /// that holds any has its part, and of half of it whoever wants it has what is free; whoever writes waits while its flow has no more. Devices, too, are told that they may send no
    /// more than this in all, shared out in the same way. A flow may write 64 KiB if it holds none, and be sent 64 KiB, nevertheless. So there is never more than twice this and 128 KiB
    /// for each flow, and one window for each that was parked, outlived a restart, or has [`Keeps::Stored`]; and no more than 1 MiB for each flow of buffers that pieces of what came lie in. Default 1 GiB.
    pub octets: u64,
    /// The same of one device, whose flows are opened nevertheless: one that does not read, or is away, or sends what is not read, takes no more of the memory than that, with the same exceptions. Default 128 MiB.
    pub octets_of_device: u64,
    /// Flows of which it is remembered how they ended; the oldest are forgotten first. Default 65,536.
    pub ended: usize,
    /// The same of one device, so that none has those of others forgotten. Default 1,024.
    pub ended_of_device: usize,
    /// For so long a flow may be offline that is not parked and has no deadline; then it ends as expired. Default 30 days.
    pub offline: Duration,
}

impl Default for ServerLimits {
    fn default() -> Self {
        Self {
            flows: 65_536,
            flows_of_device: 1_024,
            greetings: 16,
            carriers: 16_384,
            carriers_of_stranger: 64,
            carriers_of_device: 1_024,
            backlog: 1_024,
            octets: 1 << 30,
            octets_of_device: 128 << 20,
            ended: 65_536,
            ended_of_device: 1_024,
            offline: Duration::from_secs(30 * 24 * 3_600),
        }
    }
}

/// What a server's end is given.
#[derive(Clone)]
pub struct ServerConfig {
    /// Whose flows it takes.
    pub keys: Arc<dyn DeviceKeys>,
    /// Where flows are that are not here. Without one, flows cannot be parked, and do not outlive the server.
    pub store: Option<Arc<dyn FlowStore>>,
    /// Where octets of devices are before they are acknowledged, for flows with [`Keeps::Stored`]: that of the same store, which forgets them with their flow.
    pub octets: Option<Arc<dyn OctetStore>>,
    /// Whether flows that outlive a restart are [parked](FlowStream::park) without their application, with the attachment that it [set](FlowStream::set_attachment): when nothing of
    /// them is under way, all that has come is kept (consumed, with [`Keeps::Stored`]), and the store says that they have been quiet for long or that memory is wanted; and once
    /// they have been so and offline for 30 s. Who reads or writes such a flow is told [`FlowError::Gone`], and [`Server::accept`] gives it again. Default false: the
    /// application is told [`FlowEvent::MayPark`].
    pub parks: bool,
    /// What each flow is given.
    pub options: FlowOptions,
    /// What it may hold.
    pub limits: ServerLimits,
    /// The time.
    pub clock: Clock,
}

impl ServerConfig {
    /// With everything else as it is by default.
    pub fn new(keys: Arc<dyn DeviceKeys>) -> Self {
        let (options, limits, clock) = (FlowOptions::default(), ServerLimits::default(), Clock::system());
        Self { keys, store: None, octets: None, parks: false, options, limits, clock }
    }
}

/// A server's end: it takes carriers, and gives the flows that devices open over them. It goes when it and the last [`FlowStream`] of it are dropped.
#[derive(Debug)]
pub struct Server {
    shared: Arc<Ends>,
    opened: AsyncMutex<mpsc::Receiver<Arc<Shared>>>,
}

/// Fewer devices are not looked through for those that can be forgotten: they have 100 octets each.
const SWEEP_MIN: usize = 1_024;

/// Lanes of a flow at once, those included that close: a device that attaches it again and again, and lets none of them go, is told to wait.
const LANES_HERE_MAX: usize = 2 * LANES_MAX;

/// What a device has here.
struct OfDevice {
    flows: usize,
    memory: Arc<Memory>,
}

struct Flows {
    here: HashMap<FlowName, Arc<Shared>>,
    of_device: HashMap<HostId, OfDevice>,
    /// Once so many devices are known, those of which nothing is left are forgotten.
    sweep_at: usize,
    /// What one device's flows may hold.
    octets_of_device: u64,
    ended: Ended<(FlowKey, u64), RandomState>,
}

impl Flows {
    fn new(limits: &ServerLimits) -> Self {
        // They are forgotten for want of room alone.
        let ended = Ended::new(limits.ended, limits.ended_of_device, u32::MAX, RandomState::new());
        Self {
            here: HashMap::new(),
            of_device: HashMap::new(),
            sweep_at: SWEEP_MIN,
            octets_of_device: limits.octets_of_device,
            ended,
        }
    }

    fn device(&mut self, host: HostId) -> &mut OfDevice {
        if self.of_device.len() >= self.sweep_at {
            // Flows that are over may still be read, and hold their device's memory until they are dropped.
            self.of_device.retain(|_, device| device.flows > 0 || Arc::strong_count(&device.memory) > 1);
            self.sweep_at = SWEEP_MIN.max(2 * self.of_device.len());
        }
        let limit = self.octets_of_device;
        self.of_device.entry(host).or_insert_with(|| OfDevice { flows: 0, memory: Arc::new(Memory::new(limit)) })
    }

    fn insert(&mut self, flow: &Arc<Shared>) {
        self.here.insert(flow.name, flow.clone());
        self.device(flow.name.host).flows += 1;
    }

    fn is_here(&self, flow: &Arc<Shared>) -> bool {
        self.here.get(&flow.name).is_some_and(|here| Arc::ptr_eq(here, flow))
    }

    fn remove(&mut self, flow: &Arc<Shared>) {
        if !self.is_here(flow) {
            return;
        }
        self.here.remove(&flow.name);
        if let Some(device) = self.of_device.get_mut(&flow.name.host) {
            device.flows -= 1;
        }
    }

    /// Whether it was not remembered yet.
    fn remember(&mut self, name: FlowName, key: FlowKey, code: u64) -> bool {
        let is_new = self.ended.get(name).is_none();
        if is_new {
            self.ended.insert(name, (key, code), UnixTime(0));
        }
        is_new
    }
}

pub(crate) struct Ends {
    config: ServerConfig,
    myself: Weak<Ends>,
    flows: Mutex<Flows>,
    carriers: Mutex<Carriers>,
    next_carrier: AtomicU64,
    memory: Arc<Memory>,
    opened: mpsc::Sender<Arc<Shared>>,
    /// To who brings octets to disk.
    jobs: Option<mpsc::UnboundedSender<Job>>,
    gates: [AsyncMutex<()>; GATES],
    watch: Arc<Watch<Shared>>,
    is_down: watch::Sender<bool>,
    /// Whether the store was told something since it was asked last what is due.
    is_touched: Arc<AtomicBool>,
}

impl std::fmt::Debug for Ends {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Server")
    }
}

impl Server {
    /// A server without carriers and flows. It needs a tokio runtime.
    pub fn new(config: ServerConfig) -> Self {
        let (sender, opened) = mpsc::channel(config.limits.backlog.max(1));
        let is_touched = Arc::<AtomicBool>::default();
        let jobs = config.store.clone().zip(config.octets.clone()).map(|(flows, octets)| {
            let (jobs, waiting) = mpsc::unbounded_channel();
            tokio::spawn(spool::spool(flows, octets, waiting, is_touched.clone()));
            jobs
        });
        let flows = Flows::new(&config.limits);
        let shared = Arc::new_cyclic(|myself: &Weak<Ends>| Ends {
            memory: Arc::new(Memory::new(config.limits.octets)),
            config,
            jobs,
            myself: myself.clone(),
            flows: Mutex::new(flows),
            carriers: Mutex::default(),
            next_carrier: AtomicU64::new(0),
            opened: sender,
            gates: [const { AsyncMutex::const_new(()) }; GATES],
            watch: Arc::default(),
            is_down: watch::Sender::new(false),
            is_touched,
        });
        if let Some(store) = shared.config.store.clone() {
            tokio::spawn(tick(Arc::downgrade(&shared), store));
        }
        let (weak, alive) = (Arc::downgrade(&shared), Arc::downgrade(&shared));
        let look = move |flow: &Arc<Shared>| weak.upgrade().map(|ends| ends.look_at(flow)).unwrap_or_default();
        tokio::spawn(keep(shared.watch.clone(), shared.config.clock, look, move |_| alive.upgrade().map(|_| ())));
        Self { shared, opened: AsyncMutex::new(opened) }
    }

    /// Takes a carrier, of whatever listener, and serves its lanes until it is gone. `network`: what its octets are counted under.
    pub fn serve(&self, carrier: Arc<dyn Carrier>, network: impl Into<Network>) {
        let shared = &self.shared;
        let id = CarrierId(shared.next_carrier.fetch_add(1, Ordering::Relaxed));
        {
            let limits = &shared.config.limits;
            let mut carriers = lock(&shared.carriers);
            let out = match shared.is_down() {
                true => Some(carrier.clone()),
                false => carriers.add(id, &carrier, limits.carriers, limits.carriers_of_stranger),
            };
            if let Some(out) = out {
                out.close();
                if Arc::ptr_eq(&out, &carrier) {
                    return;
                }
            }
        }
        let on = Carried { id, carrier, network: network.into() };
        tokio::spawn(accept_lanes(Arc::downgrade(shared), on, shared.config.limits.greetings));
    }

    /// The next flow: one that a device has opened, or one that was parked or outlived a restart and goes on
    /// ([`FlowStream::attachment`]). Dropping it while it waits loses nothing. None: the server is [shut down](Self::shutdown).
    pub async fn accept(&self) -> Option<FlowStream> {
        let mut down = self.shared.is_down.subscribe();
        let next = async { self.opened.lock().await.recv().await };
        let flow = tokio::select! {
            biased;
            _ = down.wait_for(|is_down| *is_down) => None,
            flow = next => flow,
        };
        Some(FlowStream::of_server(flow?, self.shared.clone()))
    }

    /// Closes all carriers, as a process that ends does, and takes no more. Flows are not given up, and go on here no more: those that are in the store
    /// go on at the next server that has it.
    pub fn shutdown(&self) {
        self.shared.is_down.send_replace(true);
        lock(&self.shared.carriers).close();
        let flows: Vec<_> = lock(&self.shared.flows).here.drain().map(|(_, flow)| flow).collect();
        flows.iter().for_each(|flow| flow.dismiss(FlowError::Gone));
    }

    /// How many flows are here: neither parked nor ended.
    pub fn flows(&self) -> usize {
        lock(&self.shared.flows).here.len()
    }

    /// How many octets are held of all flows: see [`ServerLimits::octets`].
    pub fn octets(&self) -> u64 {
        self.shared.memory.octets()
    }
}

/// Why a flow is not parked. It goes on.
#[derive(Debug, thiserror::Error)]
pub enum ParkError {
    /// The server has no store.
    #[error("the server has no store")]
    NoStore,
    /// The flow is over.
    #[error("the flow is over")]
    Over,
    /// The attachment is too long.
    #[error("an attachment has at most {} octets", crate::ATTACHMENT_MAX)]
    Attachment,
    /// Octets were acknowledged that nobody has read.
    #[error("octets were acknowledged that nobody has read")]
    Unread,
    /// The store does not take it.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// What was to be done for the store is not done any more.
pub(crate) fn shutting_down() -> StoreError {
    StoreError::Disk(std::io::Error::other("the runtime is shutting down"))
}

/// What the store keeps beside the record: `len (1) | service (len) | attachment`.
fn pack(service: &str, attachment: &[u8]) -> Vec<u8> {
    // A service's name has at most 255 octets.
    let len = u8::try_from(service.len()).unwrap_or(0);
    [&[len], &service.as_bytes()[..len.into()], attachment].concat()
}

fn unpack(packed: &[u8]) -> Option<(String, Bytes)> {
    let (len, rest) = packed.split_first()?;
    let (service, attachment) = rest.split_at_checked((*len).into())?;
    Some((std::str::from_utf8(service).ok()?.to_owned(), Bytes::copy_from_slice(attachment)))
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

async fn accept_lanes(server: Weak<Ends>, on: Carried, greetings: usize) {
    let greeting = Arc::new(Semaphore::new(greetings.max(1)));
    loop {
        let Ok(permit) = greeting.clone().acquire_owned().await else { break };
        let Ok(lane) = on.carrier.accept().await else { break };
        let Some(server) = server.upgrade() else { break };
        let on = on.clone();
        tokio::spawn(async move {
            let _permit = permit;
            server.greet(on, lane).await;
        });
    }
    on.carrier.close();
    if let Some(server) = server.upgrade() {
        lock(&server.carriers).remove(on.id);
    }
}

/// Has the store do what time brings, once a second while something is put there.
async fn tick(server: Weak<Ends>, store: Arc<dyn FlowStore>) {
    let mut idle = 0;
    loop {
        tokio::time::sleep(TICK).await;
        let Some(server) = server.upgrade() else { return };
        idle += 1;
        if !server.is_touched.swap(false, Ordering::Relaxed) && idle < TICKS_IDLE {
            continue;
        }
        idle = 0;
        let ticking = store.clone();
        match tokio::task::spawn_blocking(move || ticking.tick()).await {
            Ok(Ok(due)) => due.into_iter().for_each(|due| server.due(due)),
            Ok(Err(error)) => tracing::warn!(%error, "the store of flows cannot be written"),
            Err(_) => return,
        }
    }
}

/// The first frame of a lane. None: it is none that a lane begins with.
async fn greeting(lane: &mut Lane, intake: &mut Intake) -> Option<Result<Bytes, Refusal>> {
    loop {
        match intake.next() {
            Ok(Some(Piece::Frame(frame))) => return Some(Ok(frame)),
            Ok(None) => intake.push(lane.receiver.receive(RECEIVE_MAX).await.ok()??),
            Err(FrameError::Version(_)) => return Some(Err(Refusal::Version)),
            Ok(Some(Piece::Data { .. })) | Err(_) => return None,
        }
    }
}

async fn refuse(mut lane: Lane, refusal: Refusal) {
    let mut frame = Vec::new();
    Frame::Refused(refusal).put(&mut frame);
    let said = async {
        lane.sender.send(&mut [frame.into()]).await?;
        lane.sender.finish().await?;
        // The device closes the lane once it has read that.
        while lane.receiver.receive(RECEIVE_MAX).await?.is_some() {}
        std::io::Result::Ok(())
    };
    let _ = timeout(REFUSE_MAX, said).await;
}

/// What says which flow a lane is for.
#[derive(Clone, Copy)]
enum Greeting<'a> {
    Open(Open<'a>, DeviceKey),
    Resume(Resume),
}

impl Greeting<'_> {
    fn name(&self) -> FlowName {
        match self {
            Self::Open(open, _) => open.name,
            Self::Resume(resume) => resume.name,
        }
    }

    /// Whether it is by who has the flow's key.
    fn is_proven(&self, key: &FlowKey, on: &Carried) -> bool {
        let binding = on.carrier.binding();
        match self {
            Self::Open(open, device_key) => {
                let same = device_key.flow_key(open.name, &open.nonce).0 == key.0;
                open.is_proven(device_key, binding) && same
            }
            Self::Resume(resume) => resume.is_proven(key, binding),
        }
    }
}

/// A lane that a flow was attached to.
type Started = (Arc<Shared>, LaneId, Arc<crate::flow::Signals>);

impl Ends {
    fn look_at(&self, flow: &Arc<Shared>) -> Looked {
        if !lock(&self.flows).is_here(flow) {
            return Looked::default();
        }
        let next = flow.look_after(Some(self.config.limits.offline));
        Looked { next: next.into_iter().chain(self.park_offline(flow)).min(), is_active: false }
    }

    /// Parks a flow that has been quiet and offline for long; says when it will have been.
    fn park_offline(&self, flow: &Arc<Shared>) -> Option<Timestamp> {
        let since = flow.peek().offline_since.filter(|_| self.config.parks)?;
        let (at, now) = (since + OFFLINE_QUIET, self.config.clock.now());
        if at > now {
            return Some(at);
        }
        self.park_quiet(flow);
        // Its application may have something to do still.
        Some(now + OFFLINE_QUIET)
    }

    fn park_quiet(&self, flow: &Arc<Shared>) {
        let Some(myself) = self.myself.upgrade().filter(|_| flow.peek().is_quiet()) else { return };
        let flow = flow.clone();
        tokio::spawn(async move {
            if let Err(error) = myself.park(&flow, None).await {
                tracing::debug!(flow = %flow.name.flow, %error, "a quiet flow is not parked");
            }
        });
    }

    async fn greet(self: Arc<Self>, on: Carried, mut lane: Lane) {
        let mut intake = Intake::default();
        let Ok(Some(greeting)) = timeout(GREETING_MAX, greeting(&mut lane, &mut intake)).await else { return };
        let frame = match greeting {
            Ok(frame) => frame,
            Err(refusal) => return refuse(lane, refusal).await,
        };
        let (host, answer) = match Frame::take(&mut &frame[..]) {
            Ok(Some(Frame::Open(open))) => {
                // Of a device that is not known the proof is looked at as well, so that it takes as long.
                let (host, key) = (open.name.host, self.config.keys.key(open.name.host).await);
                let greeting = Greeting::Open(open, key.unwrap_or(DeviceKey([0xff; 32])));
                (host, self.attach(greeting, key.is_some(), &on).await)
            }
            Ok(Some(Frame::Resume(resume))) => {
                (resume.name.host, self.attach(Greeting::Resume(resume), false, &on).await)
            }
            _ => return,
        };
        match answer {
            Ok((flow, id, signals)) => {
                on.carrier.is_known();
                let most = self.config.limits.carriers_of_device;
                if let Some(out) = lock(&self.carriers).is_a_devices(on.id, flow.name.host, most) {
                    tracing::debug!(host = %flow.name.host, "a device has as many carriers as it may");
                    out.close();
                }
                lane::run(&flow, id, signals, lane, intake);
            }
            Err(refusal) => {
                tracing::debug!(%host, ?refusal, "a device is refused");
                refuse(lane, refusal).await;
            }
        }
    }

    /// Attaches a flow that there is, or a new one.
    async fn attach(&self, greeting: Greeting<'_>, may_open: bool, on: &Carried) -> Result<Started, Refusal> {
        let name = greeting.name();
        // Until the flow is here: of two that open it at once the second finds it, and writes nothing down over what the first has.
        let _gate = self.gate(name).lock().await;
        let here = lock(&self.flows).here.get(&name).cloned();
        if let Some(flow) = here {
            return Self::attach_to(flow, &greeting, on);
        }
        let ended = lock(&self.flows).ended.get(name).copied();
        if let Some((key, code)) = ended {
            return match greeting.is_proven(&key, on) {
                true => Err(Refusal::Ended { code }),
                false => Err(Refusal::Unknown),
            };
        }
        match self.find(name).await {
            Err(()) => return Err(Refusal::Busy { secs: BUSY_SECS }),
            Ok(Found::Kept(kept)) => {
                let started = self.go_on(&kept, &greeting, on);
                if started.is_err() {
                    self.put_back(*kept).await;
                }
                return started;
            }
            // The flow's key is gone with it: of a RESUME nobody can say any more whether it was proven.
            Ok(Found::Ended(code)) => {
                return match &greeting {
                    Greeting::Open(open, key) if !open.is_proven(key, on.carrier.binding()) => Err(Refusal::Unknown),
                    _ => Err(Refusal::Ended { code }),
                };
            }
            Ok(Found::Unknown) => {}
        }
        match greeting {
            Greeting::Open(open, key) if may_open => self.open(&open, &key, on).await,
            Greeting::Open(open, key) => {
                let _ = open.is_proven(&key, on.carrier.binding());
                Err(Refusal::Unknown)
            }
            Greeting::Resume(resume) => {
                let _ = resume.is_proven(&FlowKey([0xff; 32]), on.carrier.binding());
                Err(Refusal::Unknown)
            }
        }
    }

    /// A flow that was in the store is here from now on, if all is as it should be.
    fn go_on(&self, kept: &Kept, greeting: &Greeting<'_>, on: &Carried) -> Result<Started, Refusal> {
        // Who does not have the key changes nothing.
        if !greeting.is_proven(&kept.record.key, on) {
            return Err(Refusal::Unknown);
        }
        self.may_hold(kept.record.name.host)?;
        let permit = self.opened.try_reserve().map_err(|_| Refusal::Busy { secs: BUSY_SECS })?;
        let Some((service, attachment)) = unpack(&kept.attachment) else { return Err(Refusal::Unknown) };
        let options = self.config.options.clone();
        if kept.spools && self.jobs.is_none() {
            tracing::error!(flow = %kept.record.name.flow, "octets of it are on disk, and the server was given no store of octets");
            return Err(Refusal::Busy { secs: BUSY_SECS });
        }
        let mut record = kept.record.clone();
        if !kept.spools {
            record.consumed = record.kept;
        }
        let mut machine = Flow::restore(&record, machine_options(&options));
        machine.supply_again();
        let flow = self.flow(machine, service, Some(attachment), options, kept.spools);
        flow.peek().rest();
        let started = Self::attach_to(flow.clone(), greeting, on)?;
        self.admit(&flow, permit);
        Ok(started)
    }

    /// A flow that was taken from the store and does not go on here is there as it was: it may be spilled, and expire.
    async fn put_back(&self, kept: Kept) {
        let Some(store) = self.config.store.clone() else { return };
        let flow = kept.record.name.flow;
        let put = tokio::task::spawn_blocking(move || store.put(&kept, Life::Parked, When::Later)).await;
        if let Ok(Err(error)) = put {
            tracing::warn!(%flow, %error, "a flow cannot be put back into the store");
        }
    }

    async fn find(&self, name: FlowName) -> Result<Found, ()> {
        let Some(store) = self.config.store.clone() else { return Ok(Found::Unknown) };
        let octets = self.config.octets.clone();
        let found = tokio::task::spawn_blocking(move || {
            let found = store.take(name)?;
            let (Found::Kept(kept), Some(octets)) = (&found, octets) else { return Ok(found) };
            if !kept.spools {
                return Ok(found);
            }
            // What is said to be kept may have been appended a moment ago, and be lost if a sync fails.
            let synced = octets.sync();
            let is_lost = octets.held(name).is_some_and(|held| held.end < kept.record.kept);
            if synced.is_err() || is_lost {
                store.put(kept, Life::Parked, When::Later)?;
            }
            synced?;
            match is_lost {
                true => Err(StoreError::Disk(std::io::Error::other("what was to be kept is lost"))),
                false => Ok(found),
            }
        });
        let found = found.await.map_err(|_| ())?;
        found.map_err(|error| tracing::warn!(%error, "a flow cannot be read from the store"))
    }

    /// Attaches a flow that there is.
    fn attach_to(flow: Arc<Shared>, greeting: &Greeting<'_>, on: &Carried) -> Result<Started, Refusal> {
        let (binding, rtt) = (on.carrier.binding(), on.carrier.rtt());
        let (lane, signals) = flow.act(|state, now| {
            if state.lanes() >= LANES_HERE_MAX {
                return Err(match greeting.is_proven(&state.machine.record().key, on) {
                    true => Refusal::Busy { secs: 1 },
                    false => Refusal::Unknown,
                });
            }
            let (lane, signals) = state.add_lane(on.clone(), now);
            let answer = match greeting {
                Greeting::Open(open, key) => state.machine.reopen(open, key, lane, binding),
                Greeting::Resume(resume) => state.machine.resume(resume, lane, binding),
            };
            match answer {
                Ok(()) => {
                    if let Some(rtt) = rtt {
                        state.machine.set_rtt(lane, rtt);
                    }
                    Ok((lane, signals))
                }
                Err(refusal) => {
                    state.drop_lane(lane);
                    Err(refusal)
                }
            }
        })?;
        Ok((flow, lane, signals))
    }

    /// A new flow, if there is room for it.
    async fn open(&self, open: &Open<'_>, key: &DeviceKey, on: &Carried) -> Result<Started, Refusal> {
        let binding = on.carrier.binding();
        if !open.is_proven(key, binding) {
            return Err(Refusal::Unknown);
        }
        if !self.config.keys.offers(open.name.host, open.service) {
            return Err(Refusal::NoService);
        }
        self.may_hold(open.name.host)?;
        let permit = self.opened.try_reserve().map_err(|_| Refusal::Busy { secs: BUSY_SECS })?;
        let options = self.config.options.clone();
        // The lane that a flow begins with is its first.
        let machine = Flow::accept(open, key, LaneId(0), binding, first_options(&options))?;
        let flow = self.flow(machine, open.service.to_owned(), None, options, false);
        let (lane, signals) = flow.peek().add_lane(on.clone(), self.config.clock.now());
        debug_assert_eq!(lane, LaneId(0));
        // Before ATTACHED leaves: the device forgets the key that it opened the flow with.
        if let Some((record, attachment, _)) = flow.take_commit() {
            self.put(&flow, record, &attachment, Life::Live, When::Synced).await.map_err(|error| match error {
                StoreError::DeviceFull(_) => Refusal::Full,
                _ => Refusal::Busy { secs: BUSY_SECS },
            })?;
            flow.act(|state, _| state.rest());
        }
        self.admit(&flow, permit);
        flow.act(|_, _| ());
        Ok((flow, lane, signals))
    }

    /// A flow that is here from now on. `spools`: an earlier server has left octets of it.
    fn flow(
        &self,
        machine: Flow,
        service: String,
        attachment: Option<Bytes>,
        options: FlowOptions,
        spools: bool,
    ) -> Arc<Shared> {
        let owner: Weak<dyn Owner> = self.myself.clone();
        let spools = spools || (self.jobs.is_some() && options.keeps == Keeps::Stored);
        let is_durable = self.config.store.is_some() && (spools || options.keeps != Keeps::OnArrival);
        let found = attachment.clone().unwrap_or_default();
        // One that is refused after all leaves an entry without flows, which goes with the device's next.
        let memory = [self.memory.clone(), lock(&self.flows).device(machine.name().host).memory.clone()];
        let flow = Shared::new(machine, service, attachment, options, Some(memory), self.config.clock, owner);
        if is_durable {
            flow.peek().durable = Some(Durable::new(found.to_vec()));
        }
        if spools {
            flow.peek().begin_spool();
        }
        flow
    }

    /// Writes a flow down.
    async fn put(
        &self,
        flow: &Shared,
        record: Record,
        attachment: &[u8],
        life: Life,
        when: When,
    ) -> Result<(), StoreError> {
        let Some(store) = self.config.store.clone() else { return Ok(()) };
        let spools = flow.peek().spool.is_some();
        let kept = Kept { record, attachment: pack(&flow.service, attachment), spools };
        let put = tokio::task::spawn_blocking(move || store.put(&kept, life, when)).await;
        self.is_touched.store(true, Ordering::Relaxed);
        put.unwrap_or_else(|_| Err(shutting_down()))
    }

    /// Writes a flow down as often as something of it is to be, until nothing is.
    async fn write_down(self: Arc<Self>, flow: Arc<Shared>) {
        while let Some((record, attachment, syncs)) = flow.take_commit() {
            let life = {
                let state = flow.peek();
                match state.offline_since {
                    Some(_) => Life::Parked,
                    None if state.is_quiet() => Life::Quiet,
                    None => Life::Live,
                }
            };
            let when = if syncs { When::Synced } else { When::Later };
            match self.put(&flow, record.clone(), &attachment, life, when).await {
                Ok(()) => flow.committed(&record),
                Err(error) => {
                    tracing::warn!(flow = %flow.name.flow, %error, "a flow cannot be written down");
                    // Nothing of it is told meanwhile.
                    tokio::time::sleep(TICK).await;
                    flow.peek().make_stale();
                }
            }
        }
    }

    /// What the store says is due.
    fn due(&self, due: Due) {
        match due {
            Due::Park(name) => {
                let flow = lock(&self.flows).here.get(&name).cloned();
                match flow {
                    Some(flow) if self.config.parks => self.park_quiet(&flow),
                    Some(flow) => flow.peek().tell(FlowEvent::MayPark),
                    None => {}
                }
            }
            Due::Expired(kept) => {
                let record = &kept.record;
                let flow = lock(&self.flows).here.get(&record.name).cloned();
                // The time of day has jumped: it would have been too late here, too.
                if let Some(flow) = flow {
                    return flow.act(|state, _| state.machine.expire());
                }
                lock(&self.flows).remember(record.name, record.key, ended::EXPIRED);
            }
        }
    }

    /// Puts a flow into the store, and closes its lanes. Without an attachment: with the one that was set, and only if it is quiet.
    pub(crate) async fn park(&self, flow: &Arc<Shared>, attachment: Option<&[u8]>) -> Result<(), ParkError> {
        if self.config.store.is_none() {
            return Err(ParkError::NoStore);
        }
        let _gate = self.gate(flow.name).lock().await;
        // One that is in the store is not written down any more, and who waits for that waits for ever.
        if flow.peek().over.is_some() {
            return Err(ParkError::Over);
        }
        // What is being written down is older.
        flow.stop_commits().await;
        let parked = self.put_away(flow, attachment).await;
        match parked {
            Ok(true) => {
                lock(&self.flows).remove(flow);
                self.watch.look(flow);
            }
            Ok(false) | Err(_) => flow.rest(),
        }
        parked.map(|_| ())
    }

    async fn put_away(&self, flow: &Arc<Shared>, given: Option<&[u8]>) -> Result<bool, ParkError> {
        let (record, attachment) = {
            let state = flow.peek();
            if state.over.is_some() {
                return Err(ParkError::Over);
            }
            let record = state.record();
            // What was acknowledged and nobody has read would be lost, if it is not on disk.
            if record.kept > state.position() && state.spool.is_none() {
                return Err(ParkError::Unread);
            }
            let set = || state.durable.as_ref().map(|durable| durable.attachment.clone()).unwrap_or_default();
            (record, given.map_or_else(set, <[u8]>::to_vec))
        };
        self.consume_now(flow).await?;
        let kept = record.kept;
        // What the application needs no more counts as kept once it is parked, though it may never have come to the disk.
        let when = if record.consumed > kept { When::Synced } else { When::Later };
        self.put(flow, record, &attachment, Life::Parked, when).await?;
        match flow.put_away(given.is_none(), kept) {
            false if flow.peek().over.is_some() => Err(ParkError::Over),
            // Nobody has read what came meanwhile, for the application has parked it.
            false if given.is_some() => Err(ParkError::Unread),
            parked => Ok(parked),
        }
    }

    /// Tells the store what the application needs no more: whoever takes a parked flow from there goes on behind it.
    async fn consume_now(&self, flow: &Shared) -> Result<(), StoreError> {
        let consumed = flow.peek().spool.as_mut().map(|spool| spool.take_consumed());
        let (Some(offset), Some(octets), name) = (consumed, self.config.octets.clone(), flow.name) else {
            return Ok(());
        };
        let told = tokio::task::spawn_blocking(move || octets.consume(name, offset)).await;
        told.unwrap_or_else(|_| Err(shutting_down()))
    }

    fn gate(&self, name: FlowName) -> &AsyncMutex<()> {
        &self.gates[usize::from(name.flow.0.to_be_bytes()[7]) % GATES]
    }

    /// Whether one more flow of this device may be here.
    fn may_hold(&self, host: HostId) -> Result<(), Refusal> {
        let (flows, limits) = (lock(&self.flows), &self.config.limits);
        if flows.of_device.get(&host).is_some_and(|device| device.flows >= limits.flows_of_device) {
            return Err(Refusal::Full);
        }
        if flows.here.len() >= limits.flows || self.memory.is_full() {
            return Err(Refusal::Busy { secs: BUSY_SECS });
        }
        Ok(())
    }

    /// Gives a flow to who accepts. To be called with the gate of its name.
    fn admit(&self, flow: &Arc<Shared>, permit: mpsc::Permit<'_, Arc<Shared>>) {
        lock(&self.flows).insert(flow);
        permit.send(flow.clone());
        self.watch.look(flow);
    }

    /// How a flow has ended, once it has no lane any more.
    fn is_done(state: &State) -> Option<u64> {
        state.machine.ended().filter(|_| !state.has_lanes())
    }
}

impl Owner for Ends {
    fn attend(&self, flow: &Arc<Shared>) {
        let (ended, done, key, spools) = {
            let state = flow.peek();
            if state.is_put_away {
                return;
            }
            (state.machine.ended(), Self::is_done(&state), state.machine.record().key, state.spool.is_some())
        };
        let Some(code) = ended else { return };
        let mut flows = lock(&self.flows);
        let is_new = flows.remember(flow.name, key, code);
        if done.is_some() {
            flows.remove(flow);
            self.watch.look(flow);
        }
        drop(flows);
        let Some(store) = self.config.store.clone().filter(|_| is_new) else { return };
        let Some(myself) = self.myself.upgrade() else { return };
        let (flow, name) = (flow.clone(), flow.name);
        tokio::spawn(async move {
            // Behind what of it is being written down, which would bring it back, and what is being brought of its octets.
            let _gate = myself.gate(name).lock().await;
            flow.stop_commits().await;
            match myself.jobs.as_ref().filter(|_| spools) {
                Some(jobs) => drop(jobs.send(Job::Remove(name, code))),
                None => {
                    let _ = tokio::task::spawn_blocking(move || spool::remove(name, code, &*store)).await;
                    myself.is_touched.store(true, Ordering::Relaxed);
                }
            }
            flow.rest();
        });
    }

    fn commit(&self, flow: &Arc<Shared>) {
        if let Some(myself) = self.myself.upgrade() {
            tokio::spawn(myself.write_down(flow.clone()));
        }
    }

    fn spool(&self, flow: &Arc<Shared>) {
        if let Some(jobs) = &self.jobs {
            let _ = jobs.send(Job::Bring(flow.clone()));
        }
    }

    fn load(&self, flow: &Arc<Shared>) {
        if let Some(octets) = self.config.octets.clone() {
            tokio::spawn(spool::load(octets, flow.clone()));
        }
    }

    fn look_after(&self, flow: &Arc<Shared>) {
        self.watch.look(flow);
    }

    fn is_down(&self) -> bool {
        *self.is_down.borrow()
    }
}

impl Drop for Ends {
    fn drop(&mut self) {
        lock(&self.carriers).close();
        self.watch.wake();
        let flows = self.flows.get_mut().unwrap_or_else(PoisonError::into_inner);
        flows.here.values().for_each(|flow| flow.dismiss(FlowError::Gone));
    }
}
