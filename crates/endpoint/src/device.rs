//! The device's end: [`Device`].

use crate::clock::Clock;
use crate::error::FlowError;
use crate::flow::{Carried, CarrierId, FlowInner, Owner, State, machine_options};
use crate::lane;
use crate::memory::decoder::FrameDecoder;
use crate::options::{FlowOptions, Network, Networks};
use crate::stream::FlowStream;
use crate::timers::{Look, Watch, run_timers};
use hoop_carrier::{Carrier, Kind, SILENCE};
use hoop_flow::frame::{SERVICE_MAX, Use};
use hoop_flow::{DeviceId, DeviceKey, Flow, FlowId, FlowName, Record};
use hoop_units::{Duration, Timestamp};
use parking_lot::Mutex;
use ring::rand::{SecureRandom as _, SystemRandom};
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use tokio::sync::watch;

/// The most flows of a device, those that are ending included, unless it is configured otherwise: each may hold its buffers.
pub const DEVICE_FLOWS_MAX: usize = 4_096;

/// The most carriers of a device at once: more than it has interfaces, a few times over.
pub const CARRIERS_MAX: usize = 32;

/// How long a carrier has to give a lane.
const OPEN_MAX: Duration = Duration::from_secs(10);

/// What a device end is given.
#[derive(Clone, Debug)]
pub struct DeviceConfig {
    /// Who the device is to this server.
    pub host: DeviceId,
    /// The key that it shares with it.
    pub key: DeviceKey,
    /// The most flows at once. Default [`DEVICE_FLOWS_MAX`].
    pub flows_max: usize,
    /// The time.
    pub clock: Clock,
}

impl DeviceConfig {
    /// With everything else as it is by default.
    pub fn new(host: DeviceId, key: DeviceKey) -> Self {
        Self { host, key, flows_max: DEVICE_FLOWS_MAX, clock: Clock::system() }
    }
}

/// Why a flow is not opened.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum OpenError {
    /// The service's name has more than [`SERVICE_MAX`] bytes.
    #[error("the name of a service has at most {SERVICE_MAX} bytes")]
    Service,
    /// There are as many flows as may be.
    #[error("there are as many flows as may be")]
    Full,
    /// A flow of this name is there already.
    #[error("the flow is there already")]
    Twice,
    /// The record is of another device, or of a server.
    #[error("the record is not of this device")]
    Foreign,
    /// The system gives no random numbers.
    #[error("the system gives no random numbers")]
    Rng,
}

/// A device's end towards one server: it opens flows, and keeps them attached to the carriers that are there. Flows and carriers go when it and the
/// last [`FlowStream`] of it are dropped; what was not acknowledged by then is lost, unless it is [restored](Device::restore).
#[derive(Clone, Debug)]
pub struct Device {
    shared: Arc<DeviceInner>,
}

#[derive(Debug)]
struct Entry {
    on: Carried,
    carrier_use: Use,
    since: Timestamp,
}

/// A carrier of a [`Device`], as [`Device::carriers`] tells of it.
#[derive(Clone, PartialEq, Debug)]
pub struct CarrierStatus {
    /// Its network, as it was named.
    pub network: Network,
    /// What it is.
    pub kind: Kind,
    /// How long it has been there.
    pub age: Duration,
    /// How long ago it brought something of a flow that is attached to it now; None: there is no such flow.
    pub heard: Option<Duration>,
    /// The round-trip time, if it is known.
    pub rtt: Option<Duration>,
    /// Whether a flow has found it silent though it owes an answer.
    pub is_silent: bool,
}

#[derive(Default, Debug)]
struct Carriers {
    next: u64,
    entries: Vec<Entry>,
}

pub(crate) struct DeviceInner {
    config: DeviceConfig,
    myself: Weak<DeviceInner>,
    carriers: Mutex<Carriers>,
    flows: Mutex<HashMap<FlowId, Arc<FlowInner>>>,
    watch: Arc<Watch<FlowInner>>,
    wants: watch::Sender<u64>,
    /// Whether it matters that a carrier falls silent.
    active: watch::Sender<bool>,
    is_down: AtomicBool,
}

impl std::fmt::Debug for DeviceInner {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Device").field("host", &self.config.host).finish_non_exhaustive()
    }
}

impl Device {
    /// A device without carriers and flows. It needs a tokio runtime.
    pub fn new(config: DeviceConfig) -> Self {
        let shared = Arc::new_cyclic(|myself: &Weak<DeviceInner>| DeviceInner {
            config,
            myself: myself.clone(),
            carriers: Mutex::default(),
            flows: Mutex::default(),
            watch: Arc::default(),
            wants: watch::Sender::new(0),
            active: watch::Sender::new(false),
            is_down: AtomicBool::new(false),
        });
        let (weak, telling) = (Arc::downgrade(&shared), Arc::downgrade(&shared));
        let look = move |flow: &Arc<FlowInner>| weak.upgrade().map(|inner| inner.look_at(flow)).unwrap_or_default();
        let tell = move |active| telling.upgrade().map(|inner| inner.set_active(active));
        tokio::spawn(run_timers(shared.watch.clone(), shared.config.clock, look, tell));
        Self { shared }
    }

    /// Begins a flow to a service of the server's, whether there is a carrier or not.
    ///
    /// # Errors
    /// See [`OpenError`].
    pub fn open(&self, service: &str, options: FlowOptions) -> Result<FlowStream, OpenError> {
        if service.len() > SERVICE_MAX {
            return Err(OpenError::Service);
        }
        let (dice, mut flow, mut nonce) = (SystemRandom::new(), [0; 8], [0; 32]);
        dice.fill(&mut flow).and_then(|()| dice.fill(&mut nonce)).map_err(|_| OpenError::Rng)?;
        let name = FlowName { device: self.shared.config.host, flow: FlowId(u64::from_be_bytes(flow)) };
        let mut machine =
            Flow::open(name, self.shared.config.key, nonce, service.to_owned(), machine_options(&options));
        if options.deadline.is_some() {
            machine.set_deadline(options.deadline);
        }
        if options.size.is_some() {
            machine.set_size(options.size);
        }
        self.add_flow(machine, service.to_owned(), options)
    }

    /// Goes on with a flow that an earlier process [saved](FlowStream::record). The application's bytes are the application's: it writes again from
    /// [`FlowStream::written`] on, and reads from [`FlowStream::position`] on. `kept`: how many bytes of what came outlive the earlier process; it
    /// may be more than the record says, where that is older ([`AckPolicy::WhenTold`](crate::AckPolicy::WhenTold)).
    ///
    /// # Errors
    /// See [`OpenError`].
    pub fn restore(&self, mut record: Record, kept: u64, options: FlowOptions) -> Result<FlowStream, OpenError> {
        if !record.is_device || record.name.device != self.shared.config.host {
            return Err(OpenError::Foreign);
        }
        record.kept = record.kept.max(kept);
        record.consumed = record.kept;
        let mut machine = Flow::restore(&record, machine_options(&options));
        machine.supply_again();
        self.add_flow(machine, String::new(), options)
    }

    fn add_flow(&self, machine: Flow, service: String, options: FlowOptions) -> Result<FlowStream, OpenError> {
        let shared = &self.shared;
        let owner: Weak<dyn Owner> = shared.myself.clone();
        let flow = FlowInner::new(machine, service, None, options, None, shared.config.clock, owner);
        {
            let mut flows = shared.flows.lock();
            if flows.len() >= shared.config.flows_max {
                return Err(OpenError::Full);
            }
            if flows.contains_key(&flow.name.flow) {
                return Err(OpenError::Twice);
            }
            flows.insert(flow.name.flow, flow.clone());
        }
        shared.reconcile(&flow);
        shared.watch.look(&flow);
        Ok(FlowStream::new(flow, shared.clone()))
    }

    /// A carrier to the server is there. Flows are attached to it as they want; it is forgotten once it is [closed](Carrier::closed). With more than
    /// [`CARRIERS_MAX`] the oldest is closed. `network`: a name that carriers of one network share.
    pub fn add_carrier(&self, carrier: Arc<dyn Carrier>, carrier_use: Use, network: impl Into<Network>) -> CarrierId {
        let shared = &self.shared;
        let id = {
            let mut carriers = shared.carriers.lock();
            carriers.next += 1;
            let id = CarrierId(carriers.next);
            if carriers.entries.len() >= CARRIERS_MAX {
                carriers.entries.remove(0).on.carrier.close();
            }
            let on = Carried { id, carrier: carrier.clone(), network: network.into() };
            carriers.entries.push(Entry { on, carrier_use, since: shared.config.clock.now() });
            id
        };
        tokio::spawn(listen(Arc::downgrade(shared), carrier, id, shared.active.subscribe()));
        shared.reconcile_all();
        id
    }

    /// What carriers there are, the oldest first.
    pub fn carriers(&self) -> Vec<CarrierStatus> {
        let (flows, now) = (self.shared.all(), self.shared.config.clock.now());
        // No lock is held while a flow's is taken.
        let carriers: Vec<_> =
            self.shared.carriers.lock().entries.iter().map(|entry| (entry.on.clone(), entry.since)).collect();
        let told = carriers.into_iter().map(|(on, since)| CarrierStatus {
            kind: on.carrier.kind(),
            age: now.since(since),
            heard: flows
                .iter()
                .filter_map(|flow| flow.peek().lanes.heard_on(on.id))
                .max()
                .map(|heard| now.since(heard)),
            rtt: on.carrier.rtt(),
            is_silent: flows.iter().any(|flow| flow.peek().lanes.is_silent(on.id, now)),
            network: on.network,
        });
        told.collect()
    }

    /// Closes a carrier and forgets it.
    pub fn remove_carrier(&self, id: CarrierId) {
        self.shared.remove_carrier(id);
    }

    /// Closes all carriers, as when the process ends. Flows are not reset, but they stop here. [`Device::restore`] continues them from their records,
    /// which stay as they were at this call.
    pub fn shutdown(&self) {
        self.shared.is_down.store(true, Ordering::Relaxed);
        self.shared.all().iter().for_each(|flow| flow.dismiss(FlowError::Gone));
        self.shared.carriers.lock().entries.drain(..).for_each(|entry| entry.on.carrier.close());
    }

    /// Gives all flows up, with this code: [`Device::flows`] counts those of which the server has not heard that yet.
    pub fn reset_all(&self, code: u64) {
        self.shared.all().iter().for_each(|flow| flow.reset(code));
    }

    /// Counts how often a flow came to want a carrier that is not there: it is offline and has something to say, or the carrier that it has is silent.
    pub fn wants(&self) -> watch::Receiver<u64> {
        self.shared.wants.subscribe()
    }

    /// How many flows there are, those that are ending included.
    pub fn flows(&self) -> usize {
        self.shared.flows.lock().len()
    }

    /// Whether any flow is under way: neither over nor parked with nothing to say.
    pub fn is_busy(&self) -> bool {
        self.shared.all().iter().any(|flow| flow.act(|state, _| !state.connectivity.is_parked || state.has_to_say()))
    }

    /// The clock that events are told by.
    pub fn clock(&self) -> Clock {
        self.shared.config.clock
    }
}

/// Waits until a carrier is gone; says so when it falls silent, while that matters.
async fn listen(
    device: Weak<DeviceInner>,
    carrier: Arc<dyn Carrier>,
    id: CarrierId,
    mut active: watch::Receiver<bool>,
) {
    let closed = carrier.closed();
    tokio::pin!(closed);
    loop {
        let silent = async {
            while active.wait_for(|active| *active).await.is_ok() {
                tokio::select! {
                    () = carrier.silent(SILENCE) => return,
                    _ = active.wait_for(|active| !*active) => {}
                }
            }
            std::future::pending().await
        };
        let is_closed = tokio::select! {
            _ = &mut closed => true,
            () = silent => false,
        };
        let Some(device) = device.upgrade() else { return };
        if is_closed {
            return device.remove_carrier(id);
        }
        device.silent(id);
        drop(device);
        // A carrier that stays silent is said to be so again and again.
        tokio::time::sleep(SILENCE).await;
    }
}

/// What a flow may be carried by, for [`choose`].
#[derive(Clone, Copy, Debug)]
struct Candidate {
    id: CarrierId,
    is_normal: bool,
    /// Whether it is of the network that the flow prefers.
    is_preferred: bool,
    is_silent: bool,
    /// Whether the flow has a lane there, attached or about to be.
    has_lane: bool,
}

/// The carriers that a flow should have lanes on: all of them, or the best. What it has it keeps, unless another is better.
fn choose(candidates: &[Candidate], multipath: bool) -> Vec<CarrierId> {
    if multipath {
        return candidates.iter().map(|candidate| candidate.id).collect();
    }
    let rank = |candidate: &&Candidate| {
        let Candidate { id, is_normal, is_preferred, is_silent, has_lane } = **candidate;
        (!is_silent, is_preferred, is_normal, has_lane, id)
    };
    candidates.iter().max_by_key(rank).map(|best| best.id).into_iter().collect()
}

impl DeviceInner {
    fn all(&self) -> Vec<Arc<FlowInner>> {
        self.flows.lock().values().cloned().collect()
    }

    fn reconcile_all(&self) {
        self.all().iter().for_each(|flow| self.reconcile(flow));
    }

    fn look_at(&self, flow: &Arc<FlowInner>) -> Look {
        if !self.flows.lock().get(&flow.name.flow).is_some_and(|here| Arc::ptr_eq(here, flow)) {
            return Look::default();
        }
        let next = flow.on_timer(None);
        Look { next, is_active: flow.peek().is_active(self.config.clock.now()) }
    }

    fn set_active(&self, active: bool) {
        self.active.send_if_modified(|was| std::mem::replace(was, active) != active);
    }

    fn silent(&self, id: CarrierId) {
        for flow in self.all() {
            flow.act(|state, now| {
                if state.lanes.on(id).is_some() {
                    state.set_silent(id, now);
                }
            });
        }
    }

    fn remove_carrier(&self, id: CarrierId) {
        let gone = {
            let mut carriers = self.carriers.lock();
            let at = carriers.entries.iter().position(|entry| entry.on.id == id);
            at.map(|at| carriers.entries.remove(at))
        };
        let Some(gone) = gone else { return };
        gone.on.carrier.close();
        for flow in self.all() {
            flow.act(|state, _| {
                state.lanes.forget(id);
                for (lane, _) in state.lanes.open().filter(|(_, on)| *on == id).collect::<Vec<_>>() {
                    state.close_lane(lane);
                }
            });
            self.reconcile(&flow);
        }
    }

    fn candidates(&self, state: &State, now: Timestamp) -> Vec<Candidate> {
        let carriers = self.carriers.lock();
        let fits = carriers.entries.iter().filter(|entry| match &state.options.networks {
            Networks::Only(network) => *network == entry.on.network,
            Networks::Any | Networks::Prefer(_) => true,
        });
        fits.filter(|entry| !state.lanes.is_waiting(entry.on.id, now))
            .map(|entry| Candidate {
                id: entry.on.id,
                is_normal: entry.carrier_use == Use::Normal,
                is_preferred: matches!(&state.options.networks, Networks::Prefer(network) if *network == entry.on.network),
                is_silent: state.lanes.is_silent(entry.on.id, now),
                has_lane: state.lanes.on(entry.on.id).is_some() || state.lanes.opening.contains(&entry.on.id),
            })
            .collect()
    }

    /// Opens the lanes that a flow should have and closes those that it should not, once one that it should have is attached.
    fn plan(&self, flow: &Arc<FlowInner>, state: &mut State, now: Timestamp) -> Vec<CarrierId> {
        let candidates = self.candidates(state, now);
        // Who is parked and has nothing to say stays so.
        if state.connectivity.is_parked {
            return Vec::new();
        }
        let chosen = choose(&candidates, state.options.multipath);
        let is_served = candidates.iter().any(|candidate| !candidate.is_silent && chosen.contains(&candidate.id));
        // Who was cut off waits for the other end as well as for its own turn.
        if state.want_carrier(!is_served, flow) {
            self.wants.send_modify(|count| *count += 1);
        }
        let is_up = |id: &CarrierId| state.lanes.on(*id).is_some_and(|(_, is_up)| is_up);
        if chosen.iter().any(is_up) {
            let others = state.lanes.open().filter(|(_, on)| !chosen.contains(on)).collect::<Vec<_>>();
            others.into_iter().for_each(|(lane, _)| state.close_lane(lane));
        }
        let missing = |id: &CarrierId| state.lanes.on(*id).is_none() && !state.lanes.opening.contains(id);
        let open = chosen.into_iter().filter(missing).collect::<Vec<_>>();
        state.lanes.opening.extend(&open);
        open
    }

    /// Gets a lane of a carrier, and attaches the flow to it.
    async fn attach(self: Arc<Self>, flow: Arc<FlowInner>, id: CarrierId) {
        let found = self
            .carriers
            .lock()
            .entries
            .iter()
            .find(|entry| entry.on.id == id)
            .map(|entry| (entry.on.clone(), entry.carrier_use));
        let lane = match &found {
            Some((on, _)) => match tokio::time::timeout(OPEN_MAX, on.carrier.open()).await {
                Ok(opened) => opened.ok(),
                Err(_) => {
                    tracing::warn!(flow = %flow.name.flow, network = %on.network, "the carrier has as many lanes as the server allows: a flow waits");
                    None
                }
            },
            None => None,
        };
        let started = flow.act(|state, now| {
            state.lanes.opening.retain(|opening| *opening != id);
            let (on, carrier_use) = found?;
            if lane.is_none() {
                state.fail(id, Duration::ZERO, now);
                return None;
            }
            // What has happened meanwhile decides.
            if state.machine.ended().is_some() || state.lanes.on(id).is_some() {
                return None;
            }
            let works = |(_, on): (_, CarrierId)| {
                !state.lanes.is_silent(on, now) && state.lanes.on(on).is_some_and(|lane| lane.1)
            };
            let replaces = !state.options.multipath && !state.lanes.open().any(works);
            let lane_use = if state.options.multipath { carrier_use } else { Use::Normal };
            let (binding, rtt) = (on.carrier.binding(), on.carrier.rtt());
            let (lane_id, signals) = state.add_lane(on, now);
            state.machine.attach(lane_id, binding, lane_use, replaces);
            if let Some(rtt) = rtt {
                state.machine.set_rtt(lane_id, rtt);
            }
            Some((lane_id, signals))
        });
        if let (Some((lane_id, signals)), Some(lane)) = (started, lane) {
            lane::run(&flow, lane_id, signals, lane, FrameDecoder::default());
        }
        self.reconcile(&flow);
    }

    /// Whether a flow is over and has nothing to tell the server any more.
    fn is_done(state: &State) -> bool {
        // A flow that was given up before the server can have heard of it needs no answer.
        let unheard = || state.machine.record().epoch == 0 && state.lanes.is_empty() && state.lanes.opening.is_empty();
        match state.over {
            None => false,
            Some(FlowError::Reset(_)) => state.machine.ended().is_some() || unheard(),
            Some(_) => true,
        }
    }
}

impl Owner for DeviceInner {
    fn reconcile(&self, flow: &Arc<FlowInner>) {
        let mut is_done = false;
        let open = flow.act(|state, now| {
            is_done = Self::is_done(state);
            match is_done || state.machine.ended().is_some() {
                true => Vec::new(),
                false => self.plan(flow, state, now),
            }
        });
        if is_done {
            self.flows.lock().remove(&flow.name.flow);
            self.watch.look(flow);
        }
        let Some(myself) = self.myself.upgrade() else { return };
        for id in open {
            tokio::spawn(myself.clone().attach(flow.clone(), id));
        }
    }

    fn set_timer(&self, flow: &Arc<FlowInner>) {
        self.watch.look(flow);
    }

    fn commit(&self, _: &Arc<FlowInner>) {}

    fn spool(&self, _: &Arc<FlowInner>) {}

    fn load(&self, _: &Arc<FlowInner>) {}

    fn is_down(&self) -> bool {
        self.is_down.load(Ordering::Relaxed)
    }
}

impl Drop for DeviceInner {
    fn drop(&mut self) {
        let carriers = self.carriers.get_mut();
        carriers.entries.iter().for_each(|entry| entry.on.carrier.close());
        self.watch.wake();
        let flows = self.flows.get_mut();
        flows.values().for_each(|flow| flow.dismiss(FlowError::Gone));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn candidate(id: u64) -> Candidate {
        Candidate { id: CarrierId(id), is_normal: true, is_preferred: false, is_silent: false, has_lane: false }
    }

    #[test]
    fn a_flow_leaves_its_carrier_only_for_a_better_one_or_when_it_is_silent() {
        let here = Candidate { has_lane: true, ..candidate(1) };
        let best = |candidates: &[Candidate]| choose(candidates, false)[0].0;
        assert_eq!(best(&[here, candidate(2)]), 1);
        assert_eq!(best(&[candidate(1), candidate(2)]), 2, "the newest");
        assert_eq!(best(&[Candidate { is_silent: true, ..here }, candidate(2)]), 2);
        assert_eq!(best(&[Candidate { is_silent: true, ..here }]), 1, "there is no other");
        assert_eq!(best(&[here, Candidate { is_preferred: true, ..candidate(2) }]), 2);
        assert_eq!(best(&[Candidate { is_normal: false, ..here }, candidate(2)]), 2);
        assert_eq!(best(&[here, Candidate { is_normal: false, ..candidate(2) }]), 1);
        assert!(choose(&[], false).is_empty());
        assert_eq!(choose(&[here, candidate(2)], true).len(), 2);
    }
}
