//! One flow at an endpoint: the machine, its octets, its lanes ([`Shared`]).

mod credit;
mod durable;
mod lanes;
mod silence;
pub(crate) mod spool;

use crate::clock::Clock;
use crate::error::FlowError;
use crate::flow::spool::Spool;
use crate::memory::budget::{Lease, MemoryBudget};
use crate::memory::buffer::{ReceiveBuffer, SendBuffer};
use crate::memory::intake::Intake;
use crate::memory::window::{WINDOW_MIN, Window};
use crate::options::{FlowEvent, FlowOptions, FlowStats, Keeps, Network, NetworkStats, Status};
use bytes::Bytes;
use hoop_carrier::Carrier;
use hoop_flow::frame::{FrameError, Refusal};
use hoop_flow::{Event, Flow, FlowName, LaneId, Options, Record, Violation, ended};
use hoop_units::{Duration, Timestamp, UnixTime};
use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::task::{Context, Poll, Waker};
use tokio::sync::{Notify, broadcast, watch};

/// So much a flow that holds nothing may write however little memory there is, in octets.
const WRITE_MIN: u64 = 64 * 1024;

/// Events that a subscriber may lag behind before it misses the oldest.
const EVENTS_MAX: usize = 32;

/// Networks that are counted apart; more are counted with the last. Devices have fewer.
const NETWORKS_MAX: usize = 16;

/// A parked flow is resumed to grant so much more credit, as one that is attached would.
const CREDIT_NEWS: u64 = 64 * 1024;

/// A lane that lived so long did not fail.
const STEADY: Duration = Duration::from_secs(10);

/// The longest wait that a busy server may ask for.
const BUSY_MAX: Duration = Duration::from_secs(3_600);

/// Which carrier, at its endpoint.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct CarrierId(pub(crate) u64);

/// A carrier as an endpoint knows it.
#[derive(Clone, Debug)]
pub(crate) struct Carried {
    pub(crate) id: CarrierId,
    pub(crate) carrier: Arc<dyn Carrier>,
    pub(crate) network: Network,
}

/// The endpoint that a flow belongs to.
pub(crate) trait Owner: Send + Sync {
    /// A lane has come or gone, or the flow is over.
    fn reconcile(&self, flow: &Arc<Shared>);
    /// The flow's [timer](Shared::on_timer) is due sooner than was said.
    fn set_timer(&self, flow: &Arc<Shared>);
    /// The flow is to be [written down](Shared::take_commit).
    fn commit(&self, flow: &Arc<Shared>);
    /// What has come of the flow is to be [brought](crate::server) to disk.
    fn spool(&self, flow: &Arc<Shared>);
    /// What an earlier server has left of it is to be [read](crate::server).
    fn load(&self, flow: &Arc<Shared>);
    /// Whether the endpoint is shut down: its flows are not given up, but left as they are.
    fn is_down(&self) -> bool;
}

/// What wakes the writer of a lane.
#[derive(Default, Debug)]
pub(crate) struct Signals {
    /// There may be something to send.
    pub(crate) wake: Notify,
    /// The lane is closing.
    pub(crate) stop: Notify,
}

#[derive(Debug)]
struct LaneEntry {
    id: LaneId,
    on: Carried,
    signals: Arc<Signals>,
    /// Whether its writer waits, and until when at most.
    idle: Option<Option<Timestamp>>,
    began: Timestamp,
    heard: Timestamp,
    up: Option<Timestamp>,
    is_closing: bool,
    /// The other end, or the carrier, has ended it.
    is_broken: bool,
}

/// What a flow's owner finds when it looks.
pub(crate) struct State {
    pub(crate) machine: Flow,
    pub(crate) options: FlowOptions,
    send: SendBuffer,
    receive: ReceiveBuffer,
    /// What it takes of the memory, as far as that was told.
    lease: Lease,
    /// What a device may send: at a server.
    window: Option<Window>,
    lanes: Vec<LaneEntry>,
    next_lane: u64,
    reader: Option<Waker>,
    writer: Option<Waker>,
    pub(crate) over: Option<FlowError>,
    /// The application has dropped its end: what comes is thrown away.
    is_abandoned: bool,
    /// Carriers on which a lane is being opened.
    pub(crate) opening: Vec<CarrierId>,
    pub(crate) was_attached: bool,
    pub(crate) is_parked: bool,
    /// Carriers that did not answer, and when that was noticed.
    silent: Vec<(CarrierId, Timestamp)>,
    failures: Vec<Failure>,
    pub(crate) offline_since: Option<Timestamp>,
    network: Option<Network>,
    /// When the owner looks after the flow again by itself, at the latest; None: never.
    watched: Option<Timestamp>,
    /// Whether it was active when a device's owner looked last.
    was_active: bool,
    /// When something came last.
    data_at: Option<Timestamp>,
    /// When the last ACK is to be said again.
    pause_at: Option<Timestamp>,
    /// What is to be written down before it is told; None: nothing ever is.
    pub(crate) durable: Option<Durable>,
    /// What goes to disk before it is acknowledged; None: nothing does.
    pub(crate) spool: Option<Spool>,
    /// The deadline or the size was told to the machine, and no lane has been attached since.
    has_news: bool,
    /// It is in the store, and not here: what still comes is thrown away, and not acknowledged.
    pub(crate) is_put_away: bool,
    /// What the owner is to do once the lock is released.
    todo: Todo,
    events: Option<broadcast::Sender<FlowEvent>>,
    networks: Vec<(Network, NetworkStats)>,
    wants_carrier: bool,
}

/// One flow, shared by its application, its lanes and its endpoint.
pub(crate) struct Shared {
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

/// A carrier on which attaching failed.
#[derive(Clone, Copy, Debug)]
struct Failure {
    on: CarrierId,
    /// How often in a row.
    times: u32,
    /// Not again before.
    until: Timestamp,
}

/// What of a flow is written down before it is told.
#[derive(Clone, Default, Debug)]
pub(crate) struct Durable {
    /// What the application wants to find again with it.
    pub(crate) attachment: Vec<u8>,
    /// Somebody is writing it down.
    is_busy: bool,
    /// Something is to be written down, if only at leisure.
    is_stale: bool,
    /// The application writes no more, and that is not written down.
    finishes: bool,
    /// What the application has kept beyond what is written down.
    keeps: Option<u64>,
    /// Whether it is to be written down as quiet: see [`State::is_quiet`].
    is_quiet: bool,
}

impl Durable {
    /// To be written down.
    pub(crate) fn new(attachment: Vec<u8>) -> Self {
        // A flow that begins is written down by who accepts it.
        Self { attachment, is_stale: true, is_busy: true, ..Self::default() }
    }
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
    Options { window: options.window, keeps_at_once: options.keeps == Keeps::OnArrival }
}

/// The same for a flow that a server has not seen before: its window [grows](Window).
pub(crate) fn first_options(options: &FlowOptions) -> Options {
    Options { window: options.window.min(WINDOW_MIN), ..machine_options(options) }
}

impl std::fmt::Debug for Shared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut debug = f.debug_struct("Flow");
        debug.field("name", &self.name);
        if let Ok(state) = self.state.try_lock() {
            debug.field("machine", &state.machine).field("lanes", &state.lanes).field("failures", &state.failures);
            debug.field("opening", &state.opening).field("silent", &state.silent).field("over", &state.over);
        }
        debug.finish_non_exhaustive()
    }
}

impl Shared {
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
            lease: Lease::default(),
            window,
            lanes: Vec::new(),
            next_lane: 0,
            reader: None,
            writer: None,
            over: None,
            is_abandoned: false,
            opening: Vec::new(),
            was_attached: machine.record().opening.is_none(),
            is_parked: false,
            silent: Vec::new(),
            failures: Vec::new(),
            offline_since: Some(now),
            network: None,
            watched: Some(now),
            was_active: false,
            data_at: None,
            pause_at: None,
            durable: None,
            spool: None,
            has_news: false,
            is_put_away: false,
            todo: Todo::default(),
            events: None,
            networks: Vec::new(),
            wants_carrier: false,
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
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
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
    fn takes(&self, before: Lease, now: Lease) {
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

    /// Takes in what has come over a lane. False: the lane is closed.
    pub(crate) fn take_in(self: &Arc<Self>, lane: LaneId, intake: &mut Intake) -> Result<bool, LaneError> {
        self.act(|state, now| state.take_in(lane, intake, now))
    }

    /// The other end, or the carrier, has ended a lane.
    pub(crate) fn lane_gone(self: &Arc<Self>, lane: LaneId) {
        self.act(|state, _| {
            if let Some(entry) = state.lanes.iter_mut().find(|entry| entry.id == lane) {
                entry.is_broken = !entry.is_closing;
            }
            state.machine.detach(lane);
            state.close(lane);
        });
    }

    /// The tasks of a lane have ended.
    pub(crate) fn lane_ended(self: &Arc<Self>, lane: LaneId) {
        self.act(|state, now| {
            state.machine.detach(lane);
            let Some(at) = state.lanes.iter().position(|entry| entry.id == lane) else { return };
            let entry = state.lanes.remove(at);
            state.machine.tell_news_again();
            add_attached(&mut state.networks, &entry, now);
            match entry.up {
                Some(up) if now.since(up) >= STEADY => state.failures.retain(|failure| failure.on != entry.on.id),
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

    /// Takes what has come, at most `most` octets, into `chunks`.
    pub(crate) fn poll_read(
        self: &Arc<Self>,
        cx: &mut Context<'_>,
        most: usize,
        chunks: &mut VecDeque<Bytes>,
    ) -> Poll<Result<(), FlowError>> {
        self.act(|state, now| {
            let mut room = most;
            while room > 0
                && let Some(octets) = state.receive.next(room)
            {
                room -= octets.len();
                chunks.push_back(octets);
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

    /// Takes octets over as far as there is room for them: `take` is told how much, and puts it into the buffer.
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
            // What a restarted end supplies again it may, though it said before that it was all.
            let outgoing = state.machine.outgoing();
            let most = match outgoing.is_finished() || state.durable.as_ref().is_some_and(|durable| durable.finishes) {
                true => outgoing.end() - outgoing.ready(),
                false => u64::MAX,
            };
            if most == 0 {
                return Poll::Ready(Err(FlowError::Ended(ended::FINISHED)));
            }
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
            let octets = state.send.end() - before;
            state.written();
            Poll::Ready(Ok(octets))
        })
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
            state.machine.outgoing().is_finished() || state.durable.as_ref().is_some_and(|durable| durable.finishes)
        });
        if !is_finished {
            self.reset(ended::GIVEN_UP);
        }
    }

    /// What is to be written down now, if anything is; [`Shared::committed`] is to follow.
    pub(crate) fn take_commit(&self) -> Option<ToCommit> {
        let commit = self.peek().take_commit();
        if commit.is_none() {
            self.rested.notify_waiters();
        }
        commit
    }

    /// Waits until nobody writes the flow down, and keeps others from it; [`Shared::rest`] is to follow, unless it is put away.
    pub(crate) async fn stop_commits(&self) {
        loop {
            let rested = self.rested.notified();
            if self.peek().durable.as_mut().is_none_or(|durable| !std::mem::replace(&mut durable.is_busy, true)) {
                return;
            }
            rested.await;
        }
    }

    /// Nobody is writing the flow down any more.
    pub(crate) fn rest(self: &Arc<Self>) {
        self.act(|state, _| state.rest());
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
            let is_behind = state.spool.is_none() && state.machine.incoming().kept() != kept;
            if is_behind || state.over.is_some() || (only_quiet && !state.is_quiet()) {
                state.make_stale();
                return false;
            }
            state.is_put_away = true;
            state.machine.park();
            state.end(FlowError::Gone, self);
            true
        })
    }

    /// The endpoint has done with the flow: nothing of it is sent or taken any more.
    pub(crate) fn dismiss(self: &Arc<Self>, why: FlowError) {
        self.act(|state, _| {
            state.end(why, self);
            for lane in state.lanes.iter().map(|entry| entry.id).collect::<Vec<_>>() {
                state.machine.detach(lane);
                state.close(lane);
            }
        });
    }

    pub(crate) fn events(&self) -> broadcast::Receiver<FlowEvent> {
        self.peek().events.get_or_insert_with(|| broadcast::channel(EVENTS_MAX).0).subscribe()
    }

    pub(crate) fn stats(&self) -> FlowStats {
        let (state, now) = (self.peek(), self.clock.now());
        let mut networks = state.networks.clone();
        for entry in &state.lanes {
            add_attached(&mut networks, entry, now);
        }
        let outgoing = state.machine.outgoing();
        FlowStats { networks, written: outgoing.end(), acknowledged: outgoing.acked(), read: state.receive.read() }
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        let lease = self.state.get_mut().unwrap_or_else(PoisonError::into_inner).lease;
        self.takes(lease, Lease::default());
    }
}

fn register(place: &mut Option<Waker>, cx: &Context<'_>) {
    match place {
        Some(waker) if waker.will_wake(cx.waker()) => {}
        place => *place = Some(cx.waker().clone()),
    }
}

fn counted<'a>(networks: &'a mut Vec<(Network, NetworkStats)>, network: &Network) -> &'a mut NetworkStats {
    let at = match networks.iter().position(|(known, _)| known == network) {
        Some(at) => at,
        None if networks.len() < NETWORKS_MAX => {
            networks.push((network.clone(), NetworkStats::default()));
            networks.len() - 1
        }
        None => NETWORKS_MAX - 1,
    };
    &mut networks[at].1
}

fn add_attached(networks: &mut Vec<(Network, NetworkStats)>, entry: &LaneEntry, now: Timestamp) {
    if let Some(up) = entry.up {
        counted(networks, &entry.on.network).attached += now.since(up);
    }
}

impl State {
    /// Everything that follows from what the machine was told.
    fn settle(&mut self, flow: &Shared, now: Timestamp) -> Todo {
        self.pass_over(now);
        while let Some(event) = self.machine.poll_event() {
            self.happened(event, flow, now);
        }
        if self.receive.has_ready() || self.is_at_end() {
            wake(&mut self.reader);
        }
        self.grant(flow, now);
        self.wake_lanes();
        let lease = self.lease();
        flow.takes(std::mem::replace(&mut self.lease, lease), lease);
        if flow.is_device && self.is_to_be_watched(now) {
            self.todo.set_timer = true;
        }
        if self.todo.set_timer {
            self.watched = Some(now);
        }
        if self.is_parked && self.has_to_say() {
            (self.is_parked, self.todo.reconcile) = (false, true);
        }
        // Whoever is offline and has something to say now asks for a carrier, once.
        let asks = self.over.is_none() && !self.wants_carrier && self.lanes.is_empty() && self.opening.is_empty();
        self.todo.reconcile |= flow.is_device && asks && !self.is_parked && self.has_to_say();
        let is_quiet = self.is_quiet();
        self.todo.commit = self.durable.as_mut().is_some_and(|durable| {
            durable.is_stale |= std::mem::replace(&mut durable.is_quiet, is_quiet) != is_quiet;
            let begins = durable.is_stale && !durable.is_busy && self.machine.ended().is_none();
            durable.is_busy |= begins;
            begins
        });
        if let Some(spool) = self.spool.as_mut().filter(|_| self.over.is_none()) {
            self.todo.spool = spool.begins();
            self.todo.load = spool.begins_to_load(self.receive.whole(), self.receive.len());
        }
        std::mem::take(&mut self.todo)
    }

    /// What comes for an application that is gone is thrown away.
    fn pass_over(&mut self, now: Timestamp) {
        let incoming = self.machine.incoming();
        let told = if self.spool.is_some() { incoming.consumed() } else { incoming.kept() };
        if !self.is_abandoned || self.is_put_away || (!self.receive.has_ready() && told >= self.receive.read()) {
            return;
        }
        self.receive.skip();
        let read = self.receive.read();
        match &mut self.spool {
            // An earlier server may have said that it is kept, and a later one goes by what is on disk.
            Some(spool) => spool.consume(read),
            None => self.keep_read(read, now),
        }
        self.machine.consume(read, now);
    }

    fn is_at_end(&self) -> bool {
        self.over.is_some() || self.machine.incoming().end() == Some(self.receive.read())
    }

    fn happened(&mut self, event: Event, flow: &Shared, now: Timestamp) {
        match event {
            Event::Acked => self.acked(flow),
            Event::Attached { lane, .. } => {
                self.attached(lane, flow, now);
                self.todo.reconcile = true;
            }
            Event::Close(lane) => self.close(lane),
            Event::Offline => {
                self.went_offline(flow, now);
                self.todo.reconcile = true;
            }
            Event::Parked => {
                self.is_parked = true;
                self.tell(FlowEvent::Parked);
            }
            Event::Deadline(at) => {
                // What is in the store expires by it.
                self.make_stale();
                self.tell(FlowEvent::Deadline(at));
                self.todo.set_timer = true;
            }
            Event::Size(size) => self.tell(FlowEvent::Size(size)),
            Event::Refused { lane, refusal } => {
                self.refused(lane, refusal, now);
                self.todo.reconcile = true;
            }
            Event::Ended { code } => {
                self.end(FlowError::Ended(code), flow);
                if flow.is_device {
                    for lane in self.lanes.iter().map(|entry| entry.id).collect::<Vec<_>>() {
                        self.machine.detach(lane);
                        self.close(lane);
                    }
                }
                self.todo.reconcile = true;
            }
        }
    }

    fn publish(&self, flow: &Shared) {
        flow.status.send_if_modified(|status| {
            let new = Status {
                network: self.network.clone().filter(|_| self.offline_since.is_none()),
                offline_since: self.offline_since,
                is_delivered: self.machine.outgoing().is_done(),
                wants_carrier: self.wants_carrier,
                over: self.over,
            };
            let is_new = *status != new;
            *status = new;
            is_new
        });
    }

    pub(crate) fn tell(&self, event: FlowEvent) {
        if let Some(events) = &self.events {
            // Nobody may be listening any more.
            let _ = events.send(event);
        }
    }

    fn acked(&mut self, flow: &Shared) {
        self.drop_acked();
        wake(&mut self.writer);
        if self.machine.outgoing().is_done() {
            self.publish(flow);
        }
    }

    fn attached(&mut self, lane: LaneId, flow: &Shared, now: Timestamp) {
        let Some(entry) = self.lanes.iter_mut().find(|entry| entry.id == lane) else { return };
        (entry.up, entry.heard) = (Some(now), now);
        let network = entry.on.network.clone();
        if let Some(rtt) = entry.on.carrier.rtt() {
            self.machine.set_rtt(lane, rtt);
        }
        (self.was_attached, self.is_parked, self.wants_carrier) = (true, false, false);
        // The store thinks that it is parked.
        self.make_stale();
        self.has_news = false;
        let offline_since = self.offline_since.take();
        let before = self.network.replace(network.clone());
        self.tell(FlowEvent::Attached { network: network.clone() });
        if let (Some(since), Some(_)) = (offline_since, &before) {
            self.tell(FlowEvent::Resumed { after: now.since(since) });
        }
        if let Some(from) = before.filter(|from| *from != network) {
            self.tell(FlowEvent::CarrierChanged { from, to: network });
        }
        self.publish(flow);
    }

    fn drop_acked(&mut self) {
        self.send.drop_before(self.machine.outgoing().acked());
        self.machine.drop_before(self.send.start());
    }

    fn went_offline(&mut self, flow: &Shared, now: Timestamp) {
        if self.offline_since.is_none() {
            self.offline_since = Some(now);
            self.pause_at = None;
            self.todo.set_timer = true;
            self.make_stale();
            self.tell(FlowEvent::Offline { since: now });
            self.publish(flow);
        }
    }

    fn refused(&mut self, lane: LaneId, refusal: Refusal, now: Timestamp) {
        let is_final = match refusal {
            Refusal::Unknown | Refusal::NoService | Refusal::Version => true,
            Refusal::Full => !self.was_attached,
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
        if let Some(entry) = self.lanes.iter().find(|entry| entry.id == lane) {
            self.fail(entry.on.id, wait, now);
        }
    }

    fn end(&mut self, why: FlowError, flow: &Shared) {
        let over = *self.over.get_or_insert(why);
        self.tell(FlowEvent::Over(over));
        self.send.clear();
        self.wants_carrier = false;
        wake(&mut self.reader);
        wake(&mut self.writer);
        self.publish(flow);
    }

    /// Whether the flow could use a carrier that is not there.
    pub(crate) fn want_carrier(&mut self, wants: bool, flow: &Shared) -> bool {
        if self.wants_carrier == wants {
            return false;
        }
        self.wants_carrier = wants;
        if wants {
            self.tell(FlowEvent::WantsCarrier);
        }
        self.publish(flow);
        wants
    }

    /// Whether there is something to say that a server which parked the flow is to hear.
    pub(crate) fn has_to_say(&self) -> bool {
        let (outgoing, incoming) = (self.machine.outgoing(), self.machine.incoming());
        let sends = outgoing.acked() < outgoing.end() || (outgoing.is_finished() && !outgoing.is_done());
        let wants = incoming.consumed().min(incoming.kept()) + self.options.window >= incoming.granted() + CREDIT_NEWS;
        sends || self.has_news || self.over.is_some() || (wants && incoming.end().is_none())
    }

    /// The offset of the next octet to be read.
    pub(crate) const fn position(&self) -> u64 {
        self.receive.read()
    }

    /// The offset of the next octet to be written.
    pub(crate) const fn written_to(&self) -> u64 {
        self.send.end()
    }

    pub(crate) fn set_deadline(&mut self, at: Option<UnixTime>) {
        self.machine.set_deadline(at);
        self.has_news = true;
        self.todo.set_timer = true;
    }

    pub(crate) fn set_size(&mut self, size: Option<u64>) {
        self.machine.set_size(size);
        self.has_news = true;
    }
}

fn wake(waker: &mut Option<Waker>) {
    if let Some(waker) = waker.take() {
        waker.wake();
    }
}
