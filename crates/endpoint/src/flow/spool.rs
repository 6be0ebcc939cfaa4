//! What devices send goes to disk before it is acknowledged ([`Keeps::Stored`](crate::Keeps)): what of a flow is on its way there ([`Spool`]), and who brings it
//! ([`spool`]).
//!
//! One task takes what there is of all flows, has a thread append it and sync once, and tells the flows; what comes meanwhile waits for the next round. So a busy disk makes
//! rounds larger and not more. What waits is bounded: of each flow there is no more than its window that is not acknowledged.

use crate::buffer::ReceiveBuffer;
use crate::flow::Shared;
use bytes::Bytes;
use hoop_flow::{FlowName, ended};
use hoop_flow_store::{FlowStore, OctetStore, StoreError};
use hoop_units::Duration;
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use tokio::sync::mpsc;
use tokio::task::spawn_blocking;
use tokio::time::{Instant, sleep, sleep_until};

/// How much of one flow is brought at once, so that others have their turn.
const ROUND_MAX: usize = 1 << 20;

/// When a store is full, or its disk fails, it is tried again after so long, or once the application needs less.
const AGAIN: Duration = Duration::from_secs(1);

/// How much is read at once of what an earlier server has left, and held for the application.
pub(crate) const LOAD_MAX: u64 = 256 * 1024;

/// What of a flow is on its way to disk.
#[derive(Debug)]
pub(crate) struct Spool {
    /// What has come and is not taken up.
    queue: ReceiveBuffer,
    /// What is taken up, in order, and not known to be on disk; from `offset` on.
    pending: VecDeque<Bytes>,
    offset: u64,
    /// What lies before it the application needs no more.
    consumed: u64,
    /// The store does not know that.
    is_news: bool,
    /// Somebody brings it.
    is_busy: bool,
    /// The store took no more.
    is_stuck: bool,
    /// What lies before it an earlier server has left.
    left: u64,
    /// Some of that is being read.
    is_loading: bool,
}

/// What is brought in one round.
#[derive(Debug)]
pub(crate) struct Portion {
    consumed: u64,
    offset: u64,
    octets: Vec<Bytes>,
}

impl Spool {
    /// What lies before `kept` is on disk.
    pub(crate) fn new(kept: u64) -> Self {
        Self {
            queue: ReceiveBuffer::for_long(kept),
            pending: VecDeque::new(),
            offset: kept,
            consumed: 0,
            is_news: false,
            is_busy: false,
            is_stuck: false,
            left: kept,
            is_loading: false,
        }
    }

    /// Octets that have not come before.
    pub(crate) fn insert(&mut self, offset: u64, octets: Bytes) {
        self.queue.insert(offset, octets);
    }

    /// The application needs nothing before `offset` any more.
    pub(crate) fn consume(&mut self, offset: u64) {
        self.is_news |= offset > self.consumed;
        self.consumed = self.consumed.max(offset);
    }

    /// How many octets wait.
    pub(crate) fn len(&self) -> u64 {
        self.queue.read() - self.offset + self.queue.held()
    }

    /// Whether somebody is to bring what there is, from now on.
    pub(crate) fn begins(&mut self) -> bool {
        let has_octets = !self.pending.is_empty() || self.queue.has_ready();
        let begins = !self.is_busy && (self.is_news || (has_octets && !self.is_stuck));
        self.is_busy |= begins;
        begins
    }

    /// What the application needs no more, to be told to the store.
    pub(crate) const fn take_consumed(&mut self) -> u64 {
        self.is_news = false;
        self.consumed
    }

    fn take(&mut self) -> Portion {
        let mut len: usize = self.pending.iter().map(Bytes::len).sum();
        while len < ROUND_MAX
            && let Some(octets) = self.queue.next(ROUND_MAX - len)
        {
            len += octets.len();
            self.pending.push_back(octets);
        }
        let octets = self.pending.iter().cloned().collect();
        Portion { consumed: self.take_consumed(), offset: self.offset, octets }
    }

    /// What lies before `end` is on disk.
    fn done(&mut self, end: u64, is_stuck: bool) {
        while let Some(first) = self.pending.front()
            && self.offset + first.len() as u64 <= end
        {
            self.offset += first.len() as u64;
            self.pending.pop_front();
        }
        (self.is_busy, self.is_stuck) = (false, is_stuck);
    }

    /// What is to be read of what an earlier server has left, where the application has come to `whole` and `ready` octets wait for it.
    pub(crate) fn begins_to_load(&mut self, whole: u64, ready: u64) -> bool {
        let begins = !self.is_loading && whole < self.left && ready < LOAD_MAX / 2;
        self.is_loading |= begins;
        begins
    }

    /// How much is to be read from `whole` on.
    pub(crate) fn to_load(&self, whole: u64) -> usize {
        self.left.saturating_sub(whole).min(LOAD_MAX) as usize
    }

    pub(crate) const fn loaded(&mut self) {
        self.is_loading = false;
    }

    /// It may be tried again.
    const fn try_again(&mut self) {
        self.is_stuck = false;
    }
}

/// What is to be done with the stores, in order.
pub(crate) enum Job {
    /// What there is of a flow is to be brought.
    Bring(Arc<Shared>),
    /// A flow has ended with this code: nothing of it is brought any more.
    Remove(FlowName, u64),
}

/// What has come of a flow's portion.
struct Brought {
    flow: Arc<Shared>,
    /// Where it began, and how far it was appended.
    start: u64,
    end: u64,
    is_stuck: bool,
}

/// Does all jobs, until nobody gives any more. A flow has at most one of each kind waiting, so flows bound them.
pub(crate) async fn spool(
    flows: Arc<dyn FlowStore>,
    octets: Arc<dyn OctetStore>,
    mut jobs: mpsc::UnboundedReceiver<Job>,
    is_touched: Arc<AtomicBool>,
) {
    let mut stuck: Vec<Arc<Shared>> = Vec::new();
    let mut again = Instant::now();
    loop {
        let mut round = Vec::new();
        tokio::select! {
            count = jobs.recv_many(&mut round, usize::MAX) => if count == 0 { return },
            () = sleep_until(again), if !stuck.is_empty() => {
                for flow in stuck.drain(..) {
                    flow.act(|state, _| if let Some(spool) = &mut state.spool { spool.try_again() });
                }
                continue;
            }
        }
        let (flows, octets) = (flows.clone(), octets.clone());
        let Ok((brought, synced)) = spawn_blocking(move || bring(round, &*flows, &*octets)).await else { return };
        // After it, for whoever has the store sync what it was told.
        is_touched.store(true, Ordering::Relaxed);
        if let Err(error) = &synced {
            tracing::warn!(%error, "what devices sent cannot be synced");
        }
        for Brought { flow, start, end, is_stuck } in brought {
            let (end, is_stuck) = if synced.is_ok() { (end, is_stuck) } else { (start, true) };
            flow.act(|state, now| {
                if let Some(spool) = &mut state.spool {
                    spool.done(end, is_stuck);
                    state.machine.keep(end, now);
                }
            });
            if is_stuck {
                if stuck.is_empty() {
                    again = Instant::now() + AGAIN;
                }
                stuck.push(flow);
            }
        }
    }
}

/// Tells the store how a flow has ended.
pub(crate) fn remove(name: FlowName, code: u64, flows: &dyn FlowStore) {
    if let Err(error) = flows.remove(name, code) {
        tracing::warn!(%error, "the store of flows cannot be written");
    }
}

fn bring(round: Vec<Job>, flows: &dyn FlowStore, octets: &dyn OctetStore) -> (Vec<Brought>, Result<(), StoreError>) {
    let (mut brought, mut has_octets) = (Vec::new(), false);
    for job in round {
        match job {
            Job::Bring(flow) => {
                let Some(portion) = flow.take_portion() else { continue };
                let (start, name) = (portion.offset, flow.name);
                let (end, done) = append(name, &portion, octets);
                has_octets |= end > start;
                if let Err(error) = &done {
                    tracing::warn!(flow = %name.flow, %error, "what a device sent is not taken");
                }
                brought.push(Brought { flow, start, end, is_stuck: done.is_err() });
            }
            Job::Remove(name, code) => remove(name, code, flows),
        }
    }
    let synced = if has_octets { octets.sync() } else { Ok(()) };
    if synced.is_ok() {
        for brought in &mut brought {
            // Another's sync may have failed since it was appended, and it is lost.
            let held = octets.held(brought.flow.name).map_or(brought.end, |held| held.end);
            if held < brought.end {
                (brought.end, brought.is_stuck) = (held.max(brought.start), true);
            }
        }
    }
    (brought, synced)
}

/// Appends as much as the store takes, and says how far that was.
fn append(name: FlowName, portion: &Portion, octets: &dyn OctetStore) -> (u64, Result<(), StoreError>) {
    let consume = |at| {
        if let Err(error) = octets.consume(name, portion.consumed.min(at)) {
            // The octets are gone nevertheless.
            tracing::warn!(flow = %name.flow, %error, "the store of octets cannot be written");
        }
    };
    let mut at = portion.offset;
    consume(at);
    for chunk in &portion.octets {
        if let Err(error) = octets.append(name, at, chunk) {
            return (at, Err(error));
        }
        let start = at;
        at += chunk.len() as u64;
        // The application may have been faster.
        if portion.consumed > start {
            consume(at);
        }
    }
    (at, Ok(()))
}

/// Reads some of what an earlier server has left of a flow, for its application.
pub(crate) async fn load(octets: Arc<dyn OctetStore>, flow: Arc<Shared>) {
    loop {
        let (name, (from, len)) = (flow.name, flow.peek().to_load());
        let reading = octets.clone();
        let read = spawn_blocking(move || {
            let mut into = vec![0; len];
            let len = reading.read(name, from, &mut into)?;
            into.truncate(len);
            Ok(into)
        });
        match read.await {
            Ok(Ok(octets)) if !octets.is_empty() => return flow.act(|state, _| state.loaded(from, octets.into())),
            Ok(Err(StoreError::Disk(error))) => {
                tracing::warn!(flow = %name.flow, %error, "what a device sent cannot be read");
                sleep(AGAIN).await;
            }
            Ok(read) => {
                tracing::error!(flow = %name.flow, error = ?read.err(), "what a device sent is not there any more");
                return flow.act(|state, _| state.machine.reset(ended::LOST));
            }
            // The runtime is shutting down.
            Err(_) => return,
        }
    }
}

impl Shared {
    /// What is to be brought now; None if the flow is over, or in the store.
    fn take_portion(&self) -> Option<Portion> {
        let mut state = self.peek();
        let is_over = state.machine.ended().is_some() || state.over.is_some();
        let spool = state.spool.as_mut()?;
        if is_over {
            return None;
        }
        Some(spool.take())
    }
}
