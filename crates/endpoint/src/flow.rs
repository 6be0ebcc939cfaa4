//! One flow at an endpoint: the machine, its bytes, its lanes ([`FlowInner`]).

mod connectivity;
mod credit;
mod durability;
mod lane_io;
mod lanes;
mod persistence;
pub(crate) mod spool;
mod statistics;
mod timer;

pub(crate) use durability::Durable;
pub use lanes::CarrierId;
pub(crate) use lanes::{Carried, Signals};

use self::connectivity::{Connectivity, Timing};
use self::durability::Durability;
use self::lanes::Lanes;
use self::statistics::Statistics;
use crate::clock::Clock;
use crate::error::FlowError;
use crate::memory::budget::{MemoryBudget, MemoryUse};
use crate::memory::buffer::{ReceiveBuffer, SendBuffer};
use crate::memory::decoder::FrameDecoder;
use crate::memory::window::{WINDOW_MIN, Window};
use crate::options::{AckPolicy, FlowEvent, FlowOptions, FlowStats, Status};
use bytes::Bytes;
use hoop_flow::frame::{FrameError, Refusal};
use hoop_flow::{Event, Flow, FlowName, LaneId, Options, Record, Violation, ended};
use hoop_units::{Duration, Timestamp, UnixTime};
use parking_lot::{Mutex, MutexGuard};
use std::collections::VecDeque;
use std::sync::{Arc, Weak};
use std::task::{Context, Poll, Waker};
use tokio::sync::{Notify, broadcast, watch};

/// So much a flow that holds nothing may write however little memory there is, in bytes.
const WRITE_MIN: u64 = 64 * 1024;

/// A parked flow is resumed to grant so much more credit, or a whole window if that is less, as one that is attached would.
const CREDIT_NEWS: u64 = 64 * 1024;

/// A lane that lived so long did not fail.
const STEADY: Duration = Duration::from_secs(10);

/// The longest wait that a busy server may ask for.
const BUSY_MAX: Duration = Duration::from_secs(3_600);

/// The endpoint that a flow belongs to.
pub(crate) trait Owner: Send + Sync {
    /// A lane has come or gone, or the flow is over.
    fn reconcile(&self, flow: &Arc<FlowInner>);
    /// The flow's [timer](FlowInner::on_timer) is due sooner than was said.
    fn set_timer(&self, flow: &Arc<FlowInner>);
    /// The flow is to be [written down](FlowInner::take_commit).
    fn commit(&self, flow: &Arc<FlowInner>);
    /// What has come of the flow is to be [brought](crate::server) to disk.
    fn spool(&self, flow: &Arc<FlowInner>);
    /// What an earlier server has left of it is to be [read](crate::server).
    fn load(&self, flow: &Arc<FlowInner>);
    /// Whether the endpoint is shut down: its flows are not given up, but left as they are.
    fn is_down(&self) -> bool;
}

/// All that changes of a flow, under one lock.
pub(crate) struct State {
    pub(crate) machine: Flow,
    pub(crate) options: FlowOptions,
    send: SendBuffer,
    receive: ReceiveBuffer,
    /// What it takes of the memory, as far as that was told.
    memory_use: MemoryUse,
    /// What a device may send: at a server.
    window: Option<Window>,
    reader: Option<Waker>,
    writer: Option<Waker>,
    pub(crate) over: Option<FlowError>,
    /// The application has dropped its end: what comes is thrown away.
    is_abandoned: bool,
    pub(crate) lanes: Lanes,
    pub(crate) connectivity: Connectivity,
    timing: Timing,
    pub(crate) durability: Durability,
    statistics: Statistics,
    /// What the owner is to do once the lock is released.
    todo: Todo,
}

/// One flow, shared by its application, its lanes and its endpoint.
pub(crate) struct FlowInner {
    pub(crate) name: FlowName,
    pub(crate) service: String,
    pub(crate) attachment: Option<Bytes>,
    pub(crate) clock: Clock,
    is_device: bool,
    owner: Weak<dyn Owner>,
    /// The memory of all flows, and of those of its device: at a server.
    memory: Option<[Arc<MemoryBudget>; 2]>,
    state: Mutex<State>,
    status: watch::Sender<Status>,
    /// Tells that nobody is writing it down any more.
    rested: Notify,
}

/// What is to be written down: the record, the attachment, and whether it is to be synced.
pub(crate) type ToCommit = (Record, Vec<u8>, bool);

/// What is to be done once the lock is released.
#[derive(Clone, Copy, Default, Debug)]
struct Todo {
    reconcile: bool,
    commit: bool,
    spool: bool,
    load: bool,
    set_timer: bool,
}

/// How much of what had come over a lane was taken in.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Taken {
    /// All of it.
    All,
    /// As much as may be in one turn.
    Part,
    /// The lane is gone.
    NoLane,
}

/// What a writer does next.
pub(crate) enum Next {
    /// Send what was put into the chunks.
    Send,
    /// Wait to be woken, until then at most.
    Wait(Option<Timestamp>),
    /// The lane is done with.
    Close,
}

/// Why a lane is broken off.
#[derive(Debug, thiserror::Error)]
pub(crate) enum LaneError {
    #[error(transparent)]
    Frame(#[from] FrameError),
    #[error(transparent)]
    Violation(#[from] Violation),
}

/// What the machine is told of the options.
pub(crate) fn machine_options(options: &FlowOptions) -> Options {
    Options { window: options.window, keeps_at_once: options.ack_policy == AckPolicy::OnArrival }
}

/// The same for a flow that a server has not seen before: its window [grows](Window).
pub(crate) fn first_options(options: &FlowOptions) -> Options {
    Options { window: options.window.min(WINDOW_MIN), ..machine_options(options) }
}

impl std::fmt::Debug for FlowInner {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut debug = f.debug_struct("Flow");
        debug.field("name", &self.name);
        if let Some(state) = self.state.try_lock() {
            debug.field("machine", &state.machine).field("lanes", &state.lanes);
            debug.field("over", &state.over);
        }
        debug.finish_non_exhaustive()
    }
}

impl FlowInner {
    /// A flow that begins, or goes on after a restart. At a server it has a part of the `memory`: of all flows', and of its device's.
    pub(crate) fn new(
        mut machine: Flow,
        service: String,
        attachment: Option<Bytes>,
        options: FlowOptions,
        memory: Option<[Arc<MemoryBudget>; 2]>,
        clock: Clock,
        owner: Weak<dyn Owner>,
    ) -> Arc<Self> {
        let now = clock.now();
        let is_device = memory.is_none();
        let incoming = machine.incoming();
        let window = (!is_device).then(|| Window::new(incoming.consumed(), incoming.granted(), now));
        if window.is_some() {
            machine.set_window(WINDOW_MIN.min(options.window), now);
        }
        let (send, receive) =
            (SendBuffer::new(machine.outgoing().available()), ReceiveBuffer::new(machine.incoming().kept()));
        let state = State {
            send,
            receive,
            options,
            memory_use: MemoryUse::default(),
            window,
            reader: None,
            writer: None,
            over: None,
            is_abandoned: false,
            lanes: Lanes::default(),
            connectivity: Connectivity::new(machine.record().opening.is_none(), now),
            timing: Timing::new(now),
            durability: Durability::default(),
            statistics: Statistics::default(),
            todo: Todo::default(),
            machine,
        };
        let (status, _) = watch::channel(Status { offline_since: Some(now), ..Status::default() });
        let name = state.machine.name();
        let flow = Self {
            name,
            service,
            attachment,
            clock,
            is_device,
            owner,
            memory,
            state: Mutex::new(state),
            status,
            rested: Notify::new(),
        };
        Arc::new(flow)
    }

    /// Looks at the state, and changes nothing that others must know of.
    pub(crate) fn peek(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }

    /// Changes the state, and sees to what follows from that.
    pub(crate) fn act<T>(self: &Arc<Self>, act: impl FnOnce(&mut State, Timestamp) -> T) -> T {
        let now = self.clock.now();
        let mut state = self.peek();
        let result = act(&mut state, now);
        let todo = state.settle(self, now);
        drop(state);
        if (todo.reconcile || todo.set_timer || todo.commit || todo.spool || todo.load)
            && let Some(owner) = self.owner.upgrade()
        {
            if todo.set_timer {
                owner.set_timer(self);
            }
            if todo.commit {
                owner.commit(self);
            }
            if todo.spool {
                owner.spool(self);
            }
            if todo.load {
                owner.load(self);
            }
            if todo.reconcile {
                owner.reconcile(self);
            }
        }
        result
    }

    /// Tells what it takes of the memory now, and took before.
    fn takes(&self, before: MemoryUse, now: MemoryUse) {
        if before != now {
            self.memory.iter().flatten().for_each(|memory| memory.change(before, now));
        }
    }

    /// What each memory allows, where that is least.
    fn least(&self, of: impl Fn(&MemoryBudget) -> u64) -> u64 {
        self.memory.iter().flatten().map(|memory| of(memory)).min().unwrap_or(u64::MAX)
    }

    pub(crate) fn status(&self) -> watch::Receiver<Status> {
        self.status.subscribe()
    }

    // ---- lanes ----

    /// What the writer of a lane does next; what it sends is in `chunks`.
    pub(crate) fn next_output(self: &Arc<Self>, lane: LaneId, chunks: &mut Vec<Bytes>) -> Next {
        self.act(|state, now| state.next_output(lane, chunks, now))
    }

    /// Takes in what has come over a lane.
    pub(crate) fn take_in(self: &Arc<Self>, lane: LaneId, decoder: &mut FrameDecoder) -> Result<Taken, LaneError> {
        self.act(|state, now| state.take_in(lane, decoder, now))
    }

    /// The other end, or the carrier, has ended a lane.
    pub(crate) fn lane_gone(self: &Arc<Self>, lane: LaneId) {
        self.act(|state, _| {
            if let Some(entry) = state.lanes.get_mut(lane) {
                entry.is_broken = !entry.is_closing;
            }
            state.close_lane(lane);
        });
    }

    /// The tasks of a lane have ended.
    pub(crate) fn lane_ended(self: &Arc<Self>, lane: LaneId) {
        self.act(|state, now| {
            state.machine.detach(lane);
            let Some(at) = state.lanes.entries.iter().position(|entry| entry.id == lane) else { return };
            let entry = state.lanes.entries.remove(at);
            state.machine.tell_news_again();
            state.statistics.add_attached(&entry, now);
            match entry.up {
                Some(up) if now.since(up) >= STEADY => state.lanes.forgive(entry.on.id),
                _ if entry.is_broken && self.is_device => state.fail(entry.on.id, Duration::ZERO, now),
                _ => {}
            }
            state.todo.reconcile = true;
        });
    }

    /// Sees to what time brings; says when to look again.
    pub(crate) fn on_timer(self: &Arc<Self>, keep_offline: Option<Duration>) -> Option<Timestamp> {
        self.act(|state, now| state.on_timer(&self.clock, self.is_device, keep_offline, now))
    }

    // ---- the application ----

    /// Takes what has come, at most `most` bytes, into `chunks`.
    pub(crate) fn poll_read(
        self: &Arc<Self>,
        cx: &mut Context<'_>,
        most: usize,
        chunks: &mut VecDeque<Bytes>,
    ) -> Poll<Result<(), FlowError>> {
        self.act(|state, now| {
            let mut room = most;
            while room > 0
                && let Some(bytes) = state.receive.next(room)
            {
                room -= bytes.len();
                chunks.push_back(bytes);
            }
            if room < most {
                state.consumed(now);
                return Poll::Ready(Ok(()));
            }
            if state.machine.incoming().end() == Some(state.receive.read()) {
                return Poll::Ready(Ok(()));
            }
            match state.over {
                Some(FlowError::Ended(ended::FINISHED)) => Poll::Ready(Ok(())),
                Some(error) => Poll::Ready(Err(error)),
                None => {
                    register(&mut state.reader, cx);
                    Poll::Pending
                }
            }
        })
    }

    /// Takes bytes over as far as there is room for them: `take` is told how much, and puts it into the buffer.
    ///
    /// There is room as far as [the memory](MemoryBudget) goes, or [`WRITE_MIN`] if it holds nothing.
    pub(crate) fn poll_write(
        self: &Arc<Self>,
        cx: &mut Context<'_>,
        take: impl FnOnce(u64, &mut SendBuffer),
    ) -> Poll<Result<u64, FlowError>> {
        self.act(|state, _| {
            if let Some(error) = state.over {
                return Poll::Ready(Err(error));
            }
            let Some(most) = state.may_write() else { return Poll::Ready(Err(FlowError::Ended(ended::FINISHED))) };
            let outgoing = state.machine.outgoing();
            let held = state.send.len();
            let buffer = state.options.send_buffer.saturating_sub(held);
            let room = self.least(|memory| memory.room_to_write(held, outgoing.acked()));
            // Who holds nothing would never be woken.
            let room = if held == 0 { room.max(WRITE_MIN) } else { room };
            let room = room.min(buffer).min(most);
            if room == 0 {
                register(&mut state.writer, cx);
                return Poll::Pending;
            }
            let before = state.send.end();
            take(room, &mut state.send);
            let bytes = state.send.end() - before;
            state.written();
            Poll::Ready(Ok(bytes))
        })
    }

    /// How many bytes more the peer wants than were written, once there are any; or how many are to be written again. Whoever asks has some.
    pub(crate) fn poll_wanted(&self, cx: &Context<'_>) -> Poll<Result<u64, FlowError>> {
        let mut state = self.peek();
        if let Some(error) = state.over {
            return Poll::Ready(Err(error));
        }
        let Some(most) = state.may_write() else { return Poll::Ready(Err(FlowError::Ended(ended::FINISHED))) };
        state.machine.expect_more();
        let outgoing = state.machine.outgoing();
        let wanted = most.min(outgoing.credit().max(outgoing.end()).saturating_sub(state.send.end()));
        if wanted == 0 {
            register(&mut state.writer, cx);
            return Poll::Pending;
        }
        Poll::Ready(Ok(wanted))
    }

    /// The application writes no more.
    pub(crate) fn finish(self: &Arc<Self>) -> Result<(), FlowError> {
        self.act(|state, _| match state.over {
            None | Some(FlowError::Ended(ended::FINISHED)) => {
                state.finish();
                Ok(())
            }
            Some(error) => Err(error),
        })
    }

    /// The application gives the flow up.
    pub(crate) fn reset(self: &Arc<Self>, code: u64) {
        self.act(|state, _| {
            if state.over.is_some() {
                return;
            }
            state.machine.reset(code);
            state.end(FlowError::Reset(code), self);
            state.is_abandoned = true;
            state.todo.reconcile = true;
        });
    }

    /// The application has dropped its end.
    pub(crate) fn abandon(self: &Arc<Self>) {
        if self.owner.upgrade().is_none_or(|owner| owner.is_down()) {
            return self.dismiss(FlowError::Gone);
        }
        let is_finished = self.act(|state, _| {
            state.is_abandoned = true;
            state.machine.outgoing().is_finished() || state.durability.finishes()
        });
        if !is_finished {
            self.reset(ended::GIVEN_UP);
        }
    }

    /// What is to be written down now, if anything is; [`FlowInner::committed`] is to follow.
    pub(crate) fn take_commit(&self) -> Option<ToCommit> {
        let commit = self.peek().take_commit();
        if commit.is_none() {
            self.rested.notify_waiters();
        }
        commit
    }

    /// Waits until nobody writes the flow down, and keeps others from it; [`FlowInner::rest`] is to follow, unless it is put away.
    pub(crate) async fn stop_commits(&self) {
        loop {
            let rested = self.rested.notified();
            if self
                .peek()
                .durability
                .durable
                .as_mut()
                .is_none_or(|durable| !std::mem::replace(&mut durable.is_busy, true))
            {
                return;
            }
            rested.await;
        }
    }

    /// Nobody is writing the flow down any more.
    pub(crate) fn rest(self: &Arc<Self>) {
        self.act(|state, _| state.durability.rest());
        self.rested.notify_waiters();
    }

    /// That is written down, and may be told.
    pub(crate) fn committed(self: &Arc<Self>, record: &Record) {
        self.act(|state, now| state.committed(record, now));
    }

    /// The flow is in the store now as a record says that has `kept`: its lanes are told so and close. False: it goes on, since it has become busy meanwhile and only a quiet one is to
    /// be put away, or since more was acknowledged.
    pub(crate) fn put_away(self: &Arc<Self>, only_quiet: bool, kept: u64) -> bool {
        self.act(|state, _| {
            let is_behind = state.durability.spool.is_none() && state.machine.incoming().kept() != kept;
            if is_behind || state.over.is_some() || (only_quiet && !state.is_quiet()) {
                state.durability.make_stale();
                return false;
            }
            state.durability.is_put_away = true;
            state.machine.park();
            state.end(FlowError::Gone, self);
            true
        })
    }

    /// The endpoint has done with the flow: nothing of it is sent or taken any more.
    pub(crate) fn dismiss(self: &Arc<Self>, why: FlowError) {
        self.act(|state, _| {
            state.end(why, self);
            state.lanes.ids().into_iter().for_each(|lane| state.close_lane(lane));
        });
    }

    pub(crate) fn events(&self) -> broadcast::Receiver<FlowEvent> {
        self.peek().statistics.subscribe()
    }

    pub(crate) fn stats(&self) -> FlowStats {
        let (state, now) = (self.peek(), self.clock.now());
        let networks = state.statistics.networks(state.lanes.entries.iter(), now);
        let outgoing = state.machine.outgoing();
        FlowStats { networks, written: outgoing.end(), acknowledged: outgoing.acked(), read: state.receive.read() }
    }
}

impl Drop for FlowInner {
    fn drop(&mut self) {
        let memory_use = self.state.get_mut().memory_use;
        self.takes(memory_use, MemoryUse::default());
    }
}

fn register(place: &mut Option<Waker>, cx: &Context<'_>) {
    match place {
        Some(waker) if waker.will_wake(cx.waker()) => {}
        place => *place = Some(cx.waker().clone()),
    }
}

impl State {
    /// How many bytes may be written at all; None: the application has said that it was all. What a restarted end supplies again it may all the same.
    fn may_write(&self) -> Option<u64> {
        let outgoing = self.machine.outgoing();
        if !outgoing.is_finished() && !self.durability.finishes() {
            return Some(u64::MAX);
        }
        Some(outgoing.end() - outgoing.ready()).filter(|again| *again > 0)
    }

    /// Everything that follows from what the machine was told.
    fn settle(&mut self, flow: &FlowInner, now: Timestamp) -> Todo {
        self.pass_over(now);
        while let Some(event) = self.machine.poll_event() {
            self.happened(event, flow, now);
        }
        if self.receive.has_ready() || self.is_at_end() {
            wake(&mut self.reader);
        }
        self.grant(flow, now);
        self.lanes.wake(&mut self.machine);
        let memory_use = self.memory_use();
        flow.takes(std::mem::replace(&mut self.memory_use, memory_use), memory_use);
        if flow.is_device && self.is_to_be_watched(now) {
            self.todo.set_timer = true;
        }
        if self.todo.set_timer {
            self.timing.watched = Some(now);
        }
        if self.connectivity.is_parked && self.has_to_say() {
            (self.connectivity.is_parked, self.todo.reconcile) = (false, true);
        }
        // Whoever is offline and has something to say now asks for a carrier, once.
        let asks = self.over.is_none()
            && !self.connectivity.wants_carrier
            && self.lanes.is_empty()
            && self.lanes.opening.is_empty();
        self.todo.reconcile |= flow.is_device && asks && !self.connectivity.is_parked && self.has_to_say();
        let is_quiet = self.is_quiet();
        self.todo.commit = self.durability.begins(is_quiet, self.machine.ended().is_some());
        if let Some(spool) = self.durability.spool.as_mut().filter(|_| self.over.is_none()) {
            self.todo.spool = spool.begins();
            self.todo.load = spool.begins_to_load(self.receive.whole(), self.receive.len());
        }
        std::mem::take(&mut self.todo)
    }

    /// What comes for an application that is gone is thrown away.
    fn pass_over(&mut self, now: Timestamp) {
        let incoming = self.machine.incoming();
        let told = if self.durability.spool.is_some() { incoming.consumed() } else { incoming.kept() };
        if !self.is_abandoned
            || self.durability.is_put_away
            || (!self.receive.has_ready() && told >= self.receive.read())
        {
            return;
        }
        self.receive.skip();
        let read = self.receive.read();
        match &mut self.durability.spool {
            // An earlier server may have said that it is kept, and a later one goes by what is on disk.
            Some(spool) => spool.consume(read),
            None => self.keep_read(read, now),
        }
        self.machine.consume(read, now);
    }

    fn is_at_end(&self) -> bool {
        self.over.is_some() || self.machine.incoming().end() == Some(self.receive.read())
    }

    fn happened(&mut self, event: Event, flow: &FlowInner, now: Timestamp) {
        match event {
            Event::Acked => self.acked(flow),
            Event::Attached { lane, .. } => {
                self.attached(lane, flow, now);
                self.todo.reconcile = true;
            }
            Event::Close(lane) => self.lanes.close(lane),
            Event::Offline => {
                self.went_offline(flow, now);
                self.todo.reconcile = true;
            }
            Event::Parked => {
                self.connectivity.is_parked = true;
                self.statistics.tell(FlowEvent::Parked);
            }
            Event::Deadline(at) => {
                // What is in the store expires by it.
                self.durability.make_stale();
                self.statistics.tell(FlowEvent::Deadline(at));
                self.todo.set_timer = true;
            }
            Event::Size(size) => self.statistics.tell(FlowEvent::Size(size)),
            Event::Refused { lane, refusal } => {
                self.refused(lane, refusal, now);
                self.todo.reconcile = true;
            }
            Event::Ended { code } => {
                self.end(FlowError::Ended(code), flow);
                if flow.is_device {
                    self.lanes.ids().into_iter().for_each(|lane| self.close_lane(lane));
                }
                self.todo.reconcile = true;
            }
        }
    }

    fn publish(&self, flow: &FlowInner) {
        flow.status.send_if_modified(|status| {
            let new = Status {
                network: self.connectivity.network.clone().filter(|_| self.connectivity.offline_since.is_none()),
                offline_since: self.connectivity.offline_since,
                is_delivered: self.machine.outgoing().is_done(),
                wants_carrier: self.connectivity.wants_carrier,
                over: self.over,
            };
            let is_new = *status != new;
            *status = new;
            is_new
        });
    }

    fn acked(&mut self, flow: &FlowInner) {
        self.drop_acked();
        wake(&mut self.writer);
        if self.machine.outgoing().is_done() {
            self.publish(flow);
        }
    }

    /// Nothing more goes over a lane, and its tasks end.
    pub(crate) fn close_lane(&mut self, lane: LaneId) {
        self.machine.detach(lane);
        self.lanes.close(lane);
    }

    fn attached(&mut self, lane: LaneId, flow: &FlowInner, now: Timestamp) {
        let Some(entry) = self.lanes.get_mut(lane) else { return };
        (entry.up, entry.heard) = (Some(now), now);
        let network = entry.on.network.clone();
        if let Some(rtt) = entry.on.carrier.rtt() {
            self.machine.set_rtt(lane, rtt);
        }
        (self.connectivity.was_attached, self.connectivity.is_parked, self.connectivity.wants_carrier) =
            (true, false, false);
        // The store thinks that it is parked.
        self.durability.make_stale();
        self.connectivity.has_news = false;
        let offline_since = self.connectivity.offline_since.take();
        let before = self.connectivity.network.replace(network.clone());
        self.statistics.tell(FlowEvent::Attached { network: network.clone() });
        if let (Some(since), Some(_)) = (offline_since, &before) {
            self.statistics.tell(FlowEvent::Resumed { after: now.since(since) });
        }
        if let Some(from) = before.filter(|from| *from != network) {
            self.statistics.tell(FlowEvent::CarrierChanged { from, to: network });
        }
        self.publish(flow);
    }

    fn drop_acked(&mut self) {
        self.send.drop_before(self.machine.outgoing().acked());
        self.machine.drop_before(self.send.start());
    }

    fn went_offline(&mut self, flow: &FlowInner, now: Timestamp) {
        if self.connectivity.offline_since.is_none() {
            self.connectivity.offline_since = Some(now);
            self.timing.pause_at = None;
            self.todo.set_timer = true;
            self.durability.make_stale();
            self.statistics.tell(FlowEvent::Offline { since: now });
            self.publish(flow);
        }
    }

    fn refused(&mut self, lane: LaneId, refusal: Refusal, now: Timestamp) {
        let is_final = match refusal {
            Refusal::Unknown | Refusal::NoService | Refusal::Version => true,
            Refusal::Full => !self.connectivity.was_attached,
            Refusal::Stale { .. } | Refusal::Ended { .. } | Refusal::Busy { .. } => false,
        };
        if is_final && !self.machine.is_attached() {
            self.over = self.over.or(Some(FlowError::Refused(refusal)));
            return self.machine.expire();
        }
        let wait = match refusal {
            Refusal::Busy { secs } => Duration::from_secs(secs.max(1)).min(BUSY_MAX),
            _ => Duration::ZERO,
        };
        if let Some(entry) = self.lanes.entries.iter().find(|entry| entry.id == lane) {
            self.fail(entry.on.id, wait, now);
        }
    }

    fn end(&mut self, why: FlowError, flow: &FlowInner) {
        let over = *self.over.get_or_insert(why);
        self.statistics.tell(FlowEvent::Over(over));
        self.send.clear();
        self.connectivity.wants_carrier = false;
        wake(&mut self.reader);
        wake(&mut self.writer);
        self.publish(flow);
    }

    /// Whether the flow could use a carrier that is not there.
    pub(crate) fn want_carrier(&mut self, wants: bool, flow: &FlowInner) -> bool {
        if self.connectivity.wants_carrier == wants {
            return false;
        }
        self.connectivity.wants_carrier = wants;
        if wants {
            self.statistics.tell(FlowEvent::WantsCarrier);
        }
        self.publish(flow);
        wants
    }

    /// An attempt to attach on a carrier came to nothing, or did not last; it is not repeated before `least` has passed.
    pub(crate) fn fail(&mut self, on: CarrierId, least: Duration, now: Timestamp) {
        self.lanes.fail(on, least, now);
        (self.todo.reconcile, self.todo.set_timer) = (true, true);
    }

    /// A carrier owes an answer and does not give it.
    pub(crate) fn set_silent(&mut self, on: CarrierId, now: Timestamp) {
        self.lanes.set_silent(on, now);
        (self.todo.reconcile, self.todo.set_timer) = (true, true);
    }

    /// A lane is to be attached; its owner tells the machine.
    pub(crate) fn add_lane(&mut self, on: Carried, now: Timestamp) -> (LaneId, Arc<Signals>) {
        self.todo.set_timer = true;
        self.lanes.add(on, now)
    }

    /// Tells the application what has happened.
    pub(crate) fn tell(&self, event: FlowEvent) {
        self.statistics.tell(event);
    }

    /// Whether there is something to say that a server which parked the flow is to hear.
    pub(crate) fn has_to_say(&self) -> bool {
        let (outgoing, incoming, window) = (self.machine.outgoing(), self.machine.incoming(), self.options.window);
        let sends = outgoing.acked() < outgoing.end() || (outgoing.is_finished() && !outgoing.is_done());
        let wants = incoming.consumed().min(incoming.kept()) + window >= incoming.granted() + CREDIT_NEWS.min(window);
        sends || self.connectivity.has_news || self.over.is_some() || (wants && incoming.end().is_none())
    }

    /// The offset of the next byte to be read.
    pub(crate) const fn position(&self) -> u64 {
        self.receive.read()
    }

    /// The offset of the next byte to be written.
    pub(crate) const fn written_to(&self) -> u64 {
        self.send.end()
    }

    pub(crate) fn set_deadline(&mut self, at: Option<UnixTime>) {
        self.machine.set_deadline(at);
        self.connectivity.has_news = true;
        self.todo.set_timer = true;
    }

    pub(crate) fn set_size(&mut self, size: Option<u64>) {
        self.machine.set_size(size);
        self.connectivity.has_news = true;
    }
}

fn wake(waker: &mut Option<Waker>) {
    if let Some(waker) = waker.take() {
        waker.wake();
    }
}
