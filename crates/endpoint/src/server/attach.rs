//! Lanes that come: what they begin with, and the flow that each is attached to, be it here, in the store, or new.

use super::inner::ServerInner;
use super::parking::unpack;
use crate::flow::{Carried, FlowInner, Signals, first_options, machine_options};
use crate::lane::{self, RECEIVE_MAX};
use crate::memory::decoder::{FrameDecoder, Piece};
use bytes::Bytes;
use hoop_carrier::Lane;
use hoop_flow::frame::{Frame, FrameError, Open, Refusal, Resume};
use hoop_flow::{DeviceId, DeviceKey, Flow, FlowKey, FlowName, LANES_MAX, LaneId};
use hoop_flow_store::{Found, Kept, Life, StoreError, When};
use hoop_units::Duration;
use std::sync::{Arc, Weak};
use tokio::sync::{Semaphore, mpsc};
use tokio::time::timeout;

/// How long a lane has to say OPEN or RESUME: some round trips of the worst network.
pub const GREETING_MAX: Duration = Duration::from_secs(10);

/// How long a refusal has to be written.
const REFUSE_MAX: Duration = Duration::from_secs(5);

/// For so long a server that has no room now asks a device to wait.
const BUSY_SECS: u64 = 5;

/// Lanes of a flow at once, those included that close: a device that attaches it again and again, and lets none of them go, is told to wait.
const LANES_HERE_MAX: usize = 2 * LANES_MAX;

pub(super) async fn accept_lanes(server: Weak<ServerInner>, on: Carried, greetings: usize) {
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
        server.carriers.lock().remove(on.id);
    }
}

/// The first frame of a lane. None: it is none that a lane begins with.
async fn greeting(lane: &mut Lane, decoder: &mut FrameDecoder) -> Option<Result<Bytes, Refusal>> {
    loop {
        match decoder.next() {
            Ok(Some(Piece::Frame(frame))) => return Some(Ok(frame)),
            Ok(None) => decoder.push(lane.receiver.receive(RECEIVE_MAX).await.ok()??),
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
type Started = (Arc<FlowInner>, LaneId, Arc<Signals>);

impl ServerInner {
    async fn greet(self: Arc<Self>, on: Carried, mut lane: Lane) {
        let mut decoder = FrameDecoder::default();
        let Ok(Some(greeting)) = timeout(GREETING_MAX, greeting(&mut lane, &mut decoder)).await else { return };
        let frame = match greeting {
            Ok(frame) => frame,
            Err(refusal) => return refuse(lane, refusal).await,
        };
        let (host, answer) = match Frame::take(&mut &frame[..]) {
            Ok(Some(Frame::Open(open))) => {
                // Of a device that is not known the proof is looked at as well, so that it takes as long.
                let (host, key) = (open.name.device, self.config.keys.key(open.name.device).await);
                let greeting = Greeting::Open(open, key.unwrap_or(DeviceKey([0xff; 32])));
                (host, self.attach(greeting, key.is_some(), &on).await)
            }
            Ok(Some(Frame::Resume(resume))) => {
                (resume.name.device, self.attach(Greeting::Resume(resume), false, &on).await)
            }
            _ => return,
        };
        match answer {
            Ok((flow, id, signals)) => {
                let most = self.config.limits.carriers_of_device;
                if let Some(out) = self.carriers.lock().assign_to_device(on.id, flow.name.device, most) {
                    tracing::debug!(device = %flow.name.device, "a device has as many carriers as it may");
                    out.close();
                }
                lane::run(&flow, id, signals, lane, decoder);
            }
            Err(refusal) => {
                tracing::debug!(device = %host, ?refusal, "a device is refused");
                refuse(lane, refusal).await;
            }
        }
    }

    /// Attaches a flow that there is, or a new one.
    async fn attach(&self, greeting: Greeting<'_>, may_open: bool, on: &Carried) -> Result<Started, Refusal> {
        let name = greeting.name();
        // Until the flow is here: of two that open it at once the second finds it, and writes nothing down over what the first has.
        let _gate = self.gate(name).lock().await;
        let here = self.flows.lock().here.get(&name).cloned();
        if let Some(flow) = here {
            return Self::attach_to(flow, &greeting, on);
        }
        let ended = self.flows.lock().ended.get(name).copied();
        if let Some((key, code)) = ended {
            return match greeting.is_proven(&key, on) {
                true => Err(Refusal::Ended { code }),
                false => Err(Refusal::Unknown),
            };
        }
        match self.find(name).await {
            Err(()) => return Err(Refusal::Busy { secs: BUSY_SECS }),
            Ok(Found::Kept(kept)) => {
                // A device that is known no more goes on with nothing that was put away.
                let is_known = self.config.keys.key(name.device).await.is_some();
                let started = if is_known { self.go_on(&kept, &greeting, on) } else { Err(Refusal::Unknown) };
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
        self.may_hold(kept.record.name.device)?;
        let permit = self.opened.try_reserve().map_err(|_| Refusal::Busy { secs: BUSY_SECS })?;
        let Some((service, attachment)) = unpack(&kept.attachment) else { return Err(Refusal::Unknown) };
        let options = self.config.options.clone();
        if kept.spools && self.jobs.is_none() {
            tracing::error!(flow = %kept.record.name.flow, "bytes of it are on disk, and the server was given no store of bytes");
            return Err(Refusal::Busy { secs: BUSY_SECS });
        }
        let mut record = kept.record.clone();
        if !kept.spools {
            record.consumed = record.kept;
        }
        let mut machine = Flow::restore(&record, machine_options(&options));
        machine.supply_again();
        let flow = self.flow(machine, service, Some(attachment), options, kept.spools);
        flow.peek().durability.rest();
        let started = Self::attach_to(flow.clone(), greeting, on)?;
        self.admit(&flow, permit);
        Ok(started)
    }

    /// Attaches a flow that there is.
    fn attach_to(flow: Arc<FlowInner>, greeting: &Greeting<'_>, on: &Carried) -> Result<Started, Refusal> {
        let (binding, rtt) = (on.carrier.binding(), on.carrier.rtt());
        let (lane, signals) = flow.act(|state, now| {
            if state.lanes.len() >= LANES_HERE_MAX {
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
                    state.lanes.remove(lane);
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
        if !self.config.keys.offers(open.name.device, open.service) {
            return Err(Refusal::NoService);
        }
        self.may_hold(open.name.device)?;
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
            flow.act(|state, _| state.durability.rest());
        }
        self.admit(&flow, permit);
        flow.act(|_, _| ());
        Ok((flow, lane, signals))
    }

    /// Whether one more flow of this device may be here.
    fn may_hold(&self, host: DeviceId) -> Result<(), Refusal> {
        let (flows, limits) = (self.flows.lock(), &self.config.limits);
        if flows.of_device.get(&host).is_some_and(|device| device.flows >= limits.flows_of_device) {
            return Err(Refusal::Full);
        }
        if flows.here.len() >= limits.flows || self.memory.is_full() {
            return Err(Refusal::Busy { secs: BUSY_SECS });
        }
        Ok(())
    }

    /// Gives a flow to who accepts. To be called with the gate of its name.
    fn admit(&self, flow: &Arc<FlowInner>, permit: mpsc::Permit<'_, Arc<FlowInner>>) {
        self.flows.lock().insert(flow);
        permit.send(flow.clone());
        self.watch.look(flow);
    }
}
