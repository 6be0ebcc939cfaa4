//! The server's end: [`Server`].

mod attach;
mod carriers;
mod config;
mod inner;
mod parking;
mod spooler;

pub use attach::GREETING_MAX;
pub use config::{DeviceKeys, FLOWS_OF_DEVICE, ServerConfig, ServerLimits};

use crate::error::FlowError;
use crate::flow::{Carried, CarrierId, FlowInner, Owner as _};
use crate::memory::budget::MemoryBudget;
use crate::options::Network;
use crate::stream::FlowStream;
use crate::timers::run_timers;
use attach::accept_lanes;
use hoop_carrier::Carrier;
use hoop_flow::DeviceId;
use inner::{Flows, GATES, ServerInner};
use parking::tick;
use parking_lot::Mutex;
use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use tokio::sync::{mpsc, watch};

/// A server's end: it takes carriers, and gives the flows that devices open over them. It goes when it and the last [`FlowStream`] of it are dropped.
#[derive(Debug)]
pub struct Server {
    shared: Arc<ServerInner>,
    opened: tokio::sync::Mutex<mpsc::Receiver<Arc<FlowInner>>>,
}

impl Server {
    /// A server without carriers and flows. It needs a tokio runtime.
    pub fn new(config: ServerConfig) -> Self {
        let (sender, opened) = mpsc::channel(config.limits.backlog.max(1));
        let is_touched = Arc::<AtomicBool>::default();
        let jobs = config.store.clone().zip(config.byte_store.clone()).map(|(flows, bytes)| {
            let (jobs, waiting) = mpsc::unbounded_channel();
            tokio::spawn(spooler::spool(flows, bytes, waiting, is_touched.clone()));
            jobs
        });
        let flows = Flows::new(&config.limits);
        let shared = Arc::new_cyclic(|myself: &Weak<ServerInner>| ServerInner {
            memory: Arc::new(MemoryBudget::new(config.limits.memory)),
            config,
            jobs,
            myself: myself.clone(),
            flows: Mutex::new(flows),
            carriers: Mutex::default(),
            next_carrier: AtomicU64::new(0),
            opened: sender,
            gates: [const { tokio::sync::Mutex::const_new(()) }; GATES],
            watch: Arc::default(),
            is_down: watch::Sender::new(false),
            is_touched,
        });
        if let Some(store) = shared.config.store.clone() {
            tokio::spawn(tick(Arc::downgrade(&shared), store));
        }
        let (weak, alive) = (Arc::downgrade(&shared), Arc::downgrade(&shared));
        let look = move |flow: &Arc<FlowInner>| weak.upgrade().map(|inner| inner.look_at(flow)).unwrap_or_default();
        tokio::spawn(run_timers(shared.watch.clone(), shared.config.clock, look, move |_| alive.upgrade().map(|_| ())));
        Self { shared, opened: tokio::sync::Mutex::new(opened) }
    }

    /// Takes a carrier, of whatever listener, and serves its lanes until it is gone. `network`: what its bytes are counted under.
    pub fn serve(&self, carrier: Arc<dyn Carrier>, network: impl Into<Network>) {
        let shared = &self.shared;
        let id = CarrierId(shared.next_carrier.fetch_add(1, Ordering::Relaxed));
        {
            let limits = &shared.config.limits;
            let mut carriers = shared.carriers.lock();
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
        self.shared.carriers.lock().close();
        let flows: Vec<_> = self.shared.flows.lock().here.drain().map(|(_, flow)| flow).collect();
        flows.iter().for_each(|flow| flow.dismiss(FlowError::Gone));
    }

    /// Shuts a device out whose key [`DeviceKeys`] gives no more: its flows that are here end with this code, at both ends, and its carriers are closed. It may not
    /// go on with flows that are in the store. Returns how many flows were here.
    pub fn revoke(&self, host: DeviceId, code: u64) -> usize {
        let is_its = |flow: &&Arc<FlowInner>| flow.name.device == host;
        let flows: Vec<_> = self.shared.flows.lock().here.values().filter(is_its).cloned().collect();
        flows.iter().for_each(|flow| flow.reset(code));
        // A device that is told nothing before its carrier closes asks again over the next, and is told by then.
        self.shared.carriers.lock().close_of(host);
        flows.len()
    }

    /// The devices that have flows here.
    pub fn devices(&self) -> BTreeSet<DeviceId> {
        self.shared.flows.lock().here.keys().map(|name| name.device).collect()
    }

    /// How many carriers there are.
    pub fn carriers(&self) -> usize {
        self.shared.carriers.lock().len()
    }

    /// How many flows are here: neither parked nor ended.
    pub fn flows(&self) -> usize {
        self.shared.flows.lock().here.len()
    }

    /// How many bytes are held of all flows: see [`ServerLimits::memory`].
    pub fn bytes(&self) -> u64 {
        self.shared.memory.bytes()
    }
}
