//! What a server's tasks share: [`ServerInner`], with the flows that are here.

use super::carriers::Carriers;
use super::config::{ServerConfig, ServerLimits};
use super::spooler::{self, Job};
use crate::error::FlowError;
use crate::flow::{Durable, FlowInner, Owner, State};
use crate::memory::budget::MemoryBudget;
use crate::options::{AckPolicy, FlowOptions};
use crate::park::{ParkError, Parks};
use crate::timers::{Look, Watch};
use bytes::Bytes;
use hoop_carrier::Pending;
use hoop_flow::{DeviceId, Flow, FlowKey, FlowName};
use hoop_flow_table::Ends;
use hoop_units::UnixTime;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::hash::RandomState;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use tokio::sync::{mpsc, watch};

/// Flows are found and put away one after another where their names fall together; few enough that each costs nothing.
pub(super) const GATES: usize = 64;

/// Fewer devices are not looked through for those that can be forgotten: they have 100 bytes each.
const SWEEP_MIN: usize = 1_024;

/// What a device has here.
pub(super) struct OfDevice {
    pub(super) flows: usize,
    pub(super) memory: Arc<MemoryBudget>,
}

pub(super) struct Flows {
    pub(super) here: HashMap<FlowName, Arc<FlowInner>>,
    pub(super) of_device: HashMap<DeviceId, OfDevice>,
    /// Once so many devices are known, those of which nothing is left are forgotten.
    pub(super) sweep_at: usize,
    /// What one device's flows may hold.
    pub(super) memory_of_device: u64,
    pub(super) ended: Ends<(FlowKey, u64), RandomState>,
}

impl Flows {
    pub(super) fn new(limits: &ServerLimits) -> Self {
        // They are forgotten for want of room alone.
        let ended = Ends::new(limits.ended, limits.ended_of_device, u32::MAX, RandomState::new());
        Self {
            here: HashMap::new(),
            of_device: HashMap::new(),
            sweep_at: SWEEP_MIN,
            memory_of_device: limits.memory_of_device,
            ended,
        }
    }

    fn device(&mut self, host: DeviceId) -> &mut OfDevice {
        if self.of_device.len() >= self.sweep_at {
            // Flows that are over may still be read, and hold their device's memory until they are dropped.
            self.of_device.retain(|_, device| device.flows > 0 || Arc::strong_count(&device.memory) > 1);
            self.sweep_at = SWEEP_MIN.max(2 * self.of_device.len());
        }
        let limit = self.memory_of_device;
        self.of_device.entry(host).or_insert_with(|| OfDevice { flows: 0, memory: Arc::new(MemoryBudget::new(limit)) })
    }

    pub(super) fn insert(&mut self, flow: &Arc<FlowInner>) {
        self.here.insert(flow.name, flow.clone());
        self.device(flow.name.device).flows += 1;
    }

    pub(super) fn is_here(&self, flow: &Arc<FlowInner>) -> bool {
        self.here.get(&flow.name).is_some_and(|here| Arc::ptr_eq(here, flow))
    }

    pub(super) fn remove(&mut self, flow: &Arc<FlowInner>) {
        if !self.is_here(flow) {
            return;
        }
        self.here.remove(&flow.name);
        if let Some(device) = self.of_device.get_mut(&flow.name.device) {
            device.flows -= 1;
        }
    }

    /// Whether it was not remembered yet.
    pub(super) fn remember(&mut self, name: FlowName, key: FlowKey, code: u64) -> bool {
        let is_new = self.ended.get(name).is_none();
        if is_new {
            self.ended.insert(name, (key, code), UnixTime(0));
        }
        is_new
    }
}

pub(crate) struct ServerInner {
    pub(super) config: ServerConfig,
    pub(super) myself: Weak<ServerInner>,
    pub(super) flows: Mutex<Flows>,
    pub(super) carriers: Mutex<Carriers>,
    pub(super) next_carrier: AtomicU64,
    pub(super) memory: Arc<MemoryBudget>,
    pub(super) opened: mpsc::Sender<Arc<FlowInner>>,
    /// To who brings bytes to disk.
    pub(super) jobs: Option<mpsc::UnboundedSender<Job>>,
    pub(super) gates: [tokio::sync::Mutex<()>; GATES],
    pub(super) watch: Arc<Watch<FlowInner>>,
    pub(super) is_down: watch::Sender<bool>,
    /// Whether the store was told something since it was asked last what is due.
    pub(super) is_touched: Arc<AtomicBool>,
}

impl std::fmt::Debug for ServerInner {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Server")
    }
}

impl ServerInner {
    pub(super) fn look_at(&self, flow: &Arc<FlowInner>) -> Look {
        if !self.flows.lock().is_here(flow) {
            return Look::default();
        }
        let next = flow.on_timer(Some(self.config.limits.offline));
        Look { next: next.into_iter().chain(self.park_offline(flow)).min(), is_active: false }
    }

    /// A flow that is here from now on. `spools`: an earlier server has left bytes of it.
    pub(super) fn flow(
        &self,
        machine: Flow,
        service: String,
        attachment: Option<Bytes>,
        options: FlowOptions,
        spools: bool,
    ) -> Arc<FlowInner> {
        let owner: Weak<dyn Owner> = self.myself.clone();
        let spools = spools || (self.jobs.is_some() && options.ack_policy == AckPolicy::Stored);
        let is_durable = self.config.store.is_some() && (spools || options.ack_policy != AckPolicy::OnArrival);
        let found = attachment.clone().unwrap_or_default();
        // One that is refused after all leaves an entry without flows, which goes with the device's next.
        let memory = [self.memory.clone(), self.flows.lock().device(machine.name().device).memory.clone()];
        let flow = FlowInner::new(machine, service, attachment, options, Some(memory), self.config.clock, owner);
        if is_durable {
            flow.peek().durability.durable = Some(Durable::new(found.to_vec()));
        }
        if spools {
            flow.peek().begin_spool();
        }
        flow
    }

    pub(super) fn gate(&self, name: FlowName) -> &tokio::sync::Mutex<()> {
        &self.gates[usize::from(name.flow.0.to_be_bytes()[7]) % GATES]
    }

    /// How a flow has ended, once it has no lane any more.
    fn is_done(state: &State) -> Option<u64> {
        state.machine.ended().filter(|_| state.lanes.is_empty())
    }
}

impl Parks for ServerInner {
    fn park_with<'a>(&'a self, flow: &'a Arc<FlowInner>, attachment: &'a [u8]) -> Pending<'a, Result<(), ParkError>> {
        Box::pin(self.park(flow, Some(attachment)))
    }
}

impl Owner for ServerInner {
    fn reconcile(&self, flow: &Arc<FlowInner>) {
        let (ended, done, key, spools) = {
            let state = flow.peek();
            if state.durability.is_put_away {
                return;
            }
            (state.machine.ended(), Self::is_done(&state), state.machine.record().key, state.durability.spool.is_some())
        };
        let Some(code) = ended else { return };
        let mut flows = self.flows.lock();
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
            // Behind what of it is being written down, which would bring it back, and what is being brought of its bytes.
            let _gate = myself.gate(name).lock().await;
            flow.stop_commits().await;
            match myself.jobs.as_ref().filter(|_| spools) {
                Some(jobs) => drop(jobs.send(Job::Remove(name, code))),
                None => {
                    let _ = tokio::task::spawn_blocking(move || spooler::remove(name, code, &*store)).await;
                    myself.is_touched.store(true, Ordering::Relaxed);
                }
            }
            flow.rest();
        });
    }

    fn commit(&self, flow: &Arc<FlowInner>) {
        if let Some(myself) = self.myself.upgrade() {
            tokio::spawn(myself.write_down(flow.clone()));
        }
    }

    fn spool(&self, flow: &Arc<FlowInner>) {
        if let Some(jobs) = &self.jobs {
            let _ = jobs.send(Job::Bring(flow.clone()));
        }
    }

    fn load(&self, flow: &Arc<FlowInner>) {
        if let Some(bytes) = self.config.byte_store.clone() {
            tokio::spawn(spooler::load(bytes, flow.clone()));
        }
    }

    fn set_timer(&self, flow: &Arc<FlowInner>) {
        self.watch.look(flow);
    }

    fn is_down(&self) -> bool {
        *self.is_down.borrow()
    }
}

impl Drop for ServerInner {
    fn drop(&mut self) {
        self.carriers.lock().close();
        self.watch.wake();
        let flows = self.flows.get_mut();
        flows.here.values().for_each(|flow| flow.dismiss(FlowError::Gone));
    }
}
