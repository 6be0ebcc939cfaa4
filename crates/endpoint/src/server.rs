//! The server's end: [`Server`].

mod attach;
mod parking;

pub use attach::GREETING_MAX;
pub use parking::ParkError;

use crate::carriers::{Carriers, Most};
use crate::clock::Clock;
use crate::error::FlowError;
use crate::flow::{Carried, CarrierId, Durable, Owner, Shared, State};
use crate::held::Memory;
use crate::keeper::{Found as Looked, Watch, keep};
use crate::options::{FlowOptions, Keeps, Network};
use crate::spool::{self, Job};
use crate::stream::FlowStream;
use attach::accept_lanes;
use bytes::Bytes;
use hoop_carrier::{Carrier, Pending};
use hoop_flow::{DeviceKey, Flow, FlowKey, FlowName, HostId};
use hoop_flow_store::{FlowStore, OctetStore, StoreError};
use hoop_flow_table::Ends as Ended;
use hoop_units::{Duration, UnixTime};
use parking::tick;
use std::collections::{BTreeSet, HashMap};
use std::hash::RandomState;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use tokio::sync::{Mutex as AsyncMutex, mpsc, watch};

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
    /// Carriers at once. When there is no room, one over which no flow was attached yet is closed, as with `carriers_of_strangers`; if there is none, the new one. Default 16,384.
    pub carriers: usize,
    /// Those of them that are WebSockets, which take a descriptor each. When there is no room, the oldest of them is closed over which no flow was attached yet; if there is none, the new one.
    /// Default 16,384.
    pub websockets: usize,
    /// Carriers over which no flow was attached yet, whose some 100 to 400 KB of memory each no device's account has. When there are as many, one is closed for each that comes: the oldest of
    /// the address that has most. A device's is one for some round trips. Default 1,024.
    pub carriers_of_strangers: usize,
    /// Carriers from one address (IPv6: one /64) over which no flow was attached yet; more are closed. Default 64.
    pub carriers_of_stranger: usize,
    /// Carriers of one device; more are closed. Default 1,024: each program under `hoop run` has its own. Beyond the first 32 one brings no more at once than 128 KiB.
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

impl ServerLimits {
    const fn carriers_most(&self) -> Most {
        Most {
            all: self.carriers,
            websockets: self.websockets,
            strangers: self.carriers_of_strangers,
            of_address: self.carriers_of_stranger,
        }
    }
}

impl Default for ServerLimits {
    fn default() -> Self {
        Self {
            flows: 65_536,
            flows_of_device: 1_024,
            greetings: 16,
            carriers: 16_384,
            websockets: 16_384,
            carriers_of_strangers: 1_024,
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
    /// application is told [`FlowEvent::MayPark`](crate::FlowEvent::MayPark).
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
                false => carriers.add(id, &carrier, limits.carriers_most()),
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

    /// Shuts a device out whose key [`DeviceKeys`] gives no more: its flows that are here end with this code, at both ends, and its carriers are closed. It may not
    /// go on with flows that are in the store. Returns how many flows were here.
    pub fn revoke(&self, host: HostId, code: u64) -> usize {
        let is_its = |flow: &&Arc<Shared>| flow.name.host == host;
        let flows: Vec<_> = lock(&self.shared.flows).here.values().filter(is_its).cloned().collect();
        flows.iter().for_each(|flow| flow.reset(code));
        // A device that is told nothing before its carrier closes asks again over the next, and is told by then.
        lock(&self.shared.carriers).close_of(host);
        flows.len()
    }

    /// The devices that have flows here.
    pub fn devices(&self) -> BTreeSet<HostId> {
        lock(&self.shared.flows).here.keys().map(|name| name.host).collect()
    }

    /// How many carriers there are.
    pub fn carriers(&self) -> usize {
        lock(&self.shared.carriers).len()
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

/// What was to be done for the store is not done any more.
pub(crate) fn shutting_down() -> StoreError {
    StoreError::Disk(std::io::Error::other("the runtime is shutting down"))
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Ends {
    fn look_at(&self, flow: &Arc<Shared>) -> Looked {
        if !lock(&self.flows).is_here(flow) {
            return Looked::default();
        }
        let next = flow.look_after(Some(self.config.limits.offline));
        Looked { next: next.into_iter().chain(self.park_offline(flow)).min(), is_active: false }
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

    fn gate(&self, name: FlowName) -> &AsyncMutex<()> {
        &self.gates[usize::from(name.flow.0.to_be_bytes()[7]) % GATES]
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
