//! What a server has its store keep: flows that are written down, parked, found again and expired.

use super::inner::ServerInner;
use crate::flow::FlowInner;
use crate::options::FlowEvent;
use crate::park::{ParkError, shutting_down};
use bytes::Bytes;
use hoop_flow::{FlowName, Record, ended};
use hoop_flow_store::{Due, FlowStore, Found, Kept, Life, StoreError, When};
use hoop_units::{Duration, Timestamp};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};

/// A flow that is quiet is parked after it has been offline for so long: most come back sooner, if they do at all.
const OFFLINE_QUIET: Duration = Duration::from_secs(30);

/// How often the store is asked what is due.
const TICK: Duration = Duration::from_secs(1);

/// After so many seconds it is asked though nothing was put there: flows expire.
const TICKS_IDLE: u32 = 60;

/// What the store keeps beside the record: `len (1) | service (len) | attachment`.
fn pack(service: &str, attachment: &[u8]) -> Vec<u8> {
    // A service's name has at most 255 bytes.
    let len = u8::try_from(service.len()).unwrap_or(0);
    [&[len], &service.as_bytes()[..len.into()], attachment].concat()
}

pub(super) fn unpack(packed: &[u8]) -> Option<(String, Bytes)> {
    let (len, rest) = packed.split_first()?;
    let (service, attachment) = rest.split_at_checked((*len).into())?;
    Some((std::str::from_utf8(service).ok()?.to_owned(), Bytes::copy_from_slice(attachment)))
}

/// Has the store do what time brings, once a second while something is put there.
pub(super) async fn tick(server: Weak<ServerInner>, store: Arc<dyn FlowStore>) {
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

impl ServerInner {
    /// Parks a flow that has been quiet and offline for long; says when it will have been.
    pub(super) fn park_offline(&self, flow: &Arc<FlowInner>) -> Option<Timestamp> {
        let since = flow.peek().connectivity.offline_since.filter(|_| self.config.parks)?;
        let (at, now) = (since + OFFLINE_QUIET, self.config.clock.now());
        if at > now {
            return Some(at);
        }
        self.park_quiet(flow);
        // Its application may have something to do still.
        Some(now + OFFLINE_QUIET)
    }

    fn park_quiet(&self, flow: &Arc<FlowInner>) {
        let Some(myself) = self.myself.upgrade().filter(|_| flow.peek().is_quiet()) else { return };
        let flow = flow.clone();
        tokio::spawn(async move {
            if let Err(error) = myself.park(&flow, None).await {
                tracing::debug!(flow = %flow.name.flow, %error, "a quiet flow is not parked");
            }
        });
    }

    /// A flow that was taken from the store and does not go on here is there as it was: it may be spilled, and expire.
    pub(super) async fn put_back(&self, kept: Kept) {
        let Some(store) = self.config.store.clone() else { return };
        let flow = kept.record.name.flow;
        let put = tokio::task::spawn_blocking(move || store.put(&kept, Life::Parked, When::Later)).await;
        if let Ok(Err(error)) = put {
            tracing::warn!(%flow, %error, "a flow cannot be put back into the store");
        }
    }

    pub(super) async fn find(&self, name: FlowName) -> Result<Found, ()> {
        let Some(store) = self.config.store.clone() else { return Ok(Found::Unknown) };
        let bytes = self.config.byte_store.clone();
        let found = tokio::task::spawn_blocking(move || {
            let found = store.take(name)?;
            let (Found::Kept(kept), Some(bytes)) = (&found, bytes) else { return Ok(found) };
            if !kept.spools {
                return Ok(found);
            }
            // What is said to be kept may have been appended a moment ago, and be lost if a sync fails.
            let synced = bytes.sync();
            let is_lost = bytes.held(name).is_some_and(|held| held.end < kept.record.kept);
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

    /// Writes a flow down.
    pub(super) async fn put(
        &self,
        flow: &FlowInner,
        record: Record,
        attachment: &[u8],
        life: Life,
        when: When,
    ) -> Result<(), StoreError> {
        let Some(store) = self.config.store.clone() else { return Ok(()) };
        let spools = flow.peek().durability.spool.is_some();
        let kept = Kept { record, attachment: pack(&flow.service, attachment), spools };
        let put = tokio::task::spawn_blocking(move || store.put(&kept, life, when)).await;
        self.is_touched.store(true, Ordering::Relaxed);
        put.unwrap_or_else(|_| Err(shutting_down()))
    }

    /// Writes a flow down as often as something of it is to be, until nothing is.
    pub(super) async fn write_down(self: Arc<Self>, flow: Arc<FlowInner>) {
        while let Some((record, attachment, syncs)) = flow.take_commit() {
            let life = {
                let state = flow.peek();
                match state.connectivity.offline_since {
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
                    flow.peek().durability.make_stale();
                }
            }
        }
    }

    /// What the store says is due.
    fn due(&self, due: Due) {
        match due {
            Due::Park(name) => {
                let flow = self.flows.lock().here.get(&name).cloned();
                match flow {
                    Some(flow) if self.config.parks => self.park_quiet(&flow),
                    Some(flow) => flow.peek().tell(FlowEvent::MayPark),
                    None => {}
                }
            }
            Due::Expired(kept) => {
                let record = &kept.record;
                let flow = self.flows.lock().here.get(&record.name).cloned();
                // The time of day has jumped: it would have been too late here, too.
                if let Some(flow) = flow {
                    return flow.act(|state, _| state.machine.expire());
                }
                self.flows.lock().remember(record.name, record.key, ended::EXPIRED);
            }
        }
    }

    /// Puts a flow into the store, and closes its lanes. Without an attachment: with the one that was set, and only if it is quiet.
    pub(crate) async fn park(&self, flow: &Arc<FlowInner>, attachment: Option<&[u8]>) -> Result<(), ParkError> {
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
                self.flows.lock().remove(flow);
                self.watch.look(flow);
            }
            Ok(false) | Err(_) => flow.rest(),
        }
        parked.map(|_| ())
    }

    async fn put_away(&self, flow: &Arc<FlowInner>, given: Option<&[u8]>) -> Result<bool, ParkError> {
        let (record, attachment) = {
            let state = flow.peek();
            if state.over.is_some() {
                return Err(ParkError::Over);
            }
            let record = state.record();
            // What was acknowledged and nobody has read would be lost, if it is not on disk.
            if record.kept > state.position() && state.durability.spool.is_none() {
                return Err(ParkError::Unread);
            }
            let set =
                || state.durability.durable.as_ref().map(|durable| durable.attachment.clone()).unwrap_or_default();
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
    async fn consume_now(&self, flow: &FlowInner) -> Result<(), StoreError> {
        let consumed = flow.peek().durability.spool.as_mut().map(|spool| spool.take_consumed());
        let (Some(offset), Some(bytes), name) = (consumed, self.config.byte_store.clone(), flow.name) else {
            return Ok(());
        };
        let told = tokio::task::spawn_blocking(move || bytes.consume(name, offset)).await;
        told.unwrap_or_else(|_| Err(shutting_down()))
    }
}
