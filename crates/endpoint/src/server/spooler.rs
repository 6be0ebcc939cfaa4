//! What devices send goes to disk before it is acknowledged ([`AckPolicy::Stored`](crate::AckPolicy)): who brings it ([`spool`]).
//!
//! One task takes what there is of all flows, has a thread append it and sync once, and tells the flows; what comes meanwhile waits for the next round. So a busy disk makes
//! rounds larger and not more.

use crate::flow::FlowInner;
use crate::flow::spool::Portion;
use hoop_flow::{FlowName, ended};
use hoop_flow_store::{ByteStore, FlowStore, StoreError};
use hoop_units::Duration;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use tokio::sync::mpsc;
use tokio::task::spawn_blocking;
use tokio::time::{Instant, sleep, sleep_until};

/// When a store is full, or its disk fails, it is tried again after so long, or once the application needs less.
const AGAIN: Duration = Duration::from_secs(1);

/// What is to be done with the stores, in order.
pub(super) enum Job {
    /// What there is of a flow is to be brought.
    Bring(Arc<FlowInner>),
    /// A flow has ended with this code: nothing of it is brought any more.
    Remove(FlowName, u64),
}

/// What has come of a flow's portion.
struct Brought {
    flow: Arc<FlowInner>,
    /// Where it began, and how far it was appended.
    start: u64,
    end: u64,
    is_stuck: bool,
}

/// Does all jobs, until nobody gives any more. A flow has at most one of each kind waiting, so flows bound them.
pub(super) async fn spool(
    flows: Arc<dyn FlowStore>,
    bytes: Arc<dyn ByteStore>,
    mut jobs: mpsc::UnboundedReceiver<Job>,
    is_touched: Arc<AtomicBool>,
) {
    let mut stuck: Vec<Arc<FlowInner>> = Vec::new();
    let mut again = Instant::now();
    loop {
        let mut round = Vec::new();
        tokio::select! {
            count = jobs.recv_many(&mut round, usize::MAX) => if count == 0 { return },
            () = sleep_until(again), if !stuck.is_empty() => {
                for flow in stuck.drain(..) {
                    flow.act(|state, _| if let Some(spool) = &mut state.durability.spool { spool.try_again() });
                }
                continue;
            }
        }
        let (flows, bytes) = (flows.clone(), bytes.clone());
        let Ok((brought, synced)) = spawn_blocking(move || bring(round, &*flows, &*bytes)).await else { return };
        // After it, for whoever has the store sync what it was told.
        is_touched.store(true, Ordering::Relaxed);
        if let Err(error) = &synced {
            tracing::warn!(%error, "what devices sent cannot be synced");
        }
        for Brought { flow, start, end, is_stuck } in brought {
            let (end, is_stuck) = if synced.is_ok() { (end, is_stuck) } else { (start, true) };
            flow.act(|state, now| {
                if let Some(spool) = &mut state.durability.spool {
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
pub(super) fn remove(name: FlowName, code: u64, flows: &dyn FlowStore) {
    if let Err(error) = flows.remove(name, code) {
        tracing::warn!(%error, "the store of flows cannot be written");
    }
}

fn bring(round: Vec<Job>, flows: &dyn FlowStore, bytes: &dyn ByteStore) -> (Vec<Brought>, Result<(), StoreError>) {
    let (mut brought, mut has_bytes) = (Vec::new(), false);
    for job in round {
        match job {
            Job::Bring(flow) => {
                let Some(portion) = take_portion(&flow) else { continue };
                let (start, name) = (portion.offset, flow.name);
                let (end, done) = append(name, &portion, bytes);
                has_bytes |= end > start;
                if let Err(error) = &done {
                    tracing::warn!(flow = %name.flow, %error, "what a device sent is not taken");
                }
                brought.push(Brought { flow, start, end, is_stuck: done.is_err() });
            }
            Job::Remove(name, code) => remove(name, code, flows),
        }
    }
    let synced = if has_bytes { bytes.sync() } else { Ok(()) };
    if synced.is_ok() {
        for brought in &mut brought {
            // Another's sync may have failed since it was appended, and it is lost.
            let held = bytes.held(brought.flow.name).map_or(brought.end, |held| held.end);
            if held < brought.end {
                (brought.end, brought.is_stuck) = (held.max(brought.start), true);
            }
        }
    }
    (brought, synced)
}

/// Appends as much as the store takes, and says how far that was.
fn append(name: FlowName, portion: &Portion, bytes: &dyn ByteStore) -> (u64, Result<(), StoreError>) {
    let consume = |at| {
        if let Err(error) = bytes.consume(name, portion.consumed.min(at)) {
            // The bytes are gone nevertheless.
            tracing::warn!(flow = %name.flow, %error, "the store of bytes cannot be written");
        }
    };
    let mut at = portion.offset;
    consume(at);
    for chunk in &portion.bytes {
        if let Err(error) = bytes.append(name, at, chunk) {
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
pub(super) async fn load(bytes: Arc<dyn ByteStore>, flow: Arc<FlowInner>) {
    loop {
        let (name, (from, len)) = (flow.name, flow.peek().to_load());
        let reading = bytes.clone();
        let read = spawn_blocking(move || {
            let mut into = vec![0; len];
            let len = reading.read(name, from, &mut into)?;
            into.truncate(len);
            Ok(into)
        });
        match read.await {
            Ok(Ok(bytes)) if !bytes.is_empty() => return flow.act(|state, _| state.loaded(from, bytes.into())),
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

/// What is to be brought of a flow now; None if it is over, or in the store.
fn take_portion(flow: &FlowInner) -> Option<Portion> {
    let mut state = flow.peek();
    let is_over = state.machine.ended().is_some() || state.over.is_some();
    let spool = state.durability.spool.as_mut()?;
    if is_over {
        return None;
    }
    Some(spool.take())
}
