//! One request at a time for each upload resource, and the latest first: [`ResourceLocks`].
//!
//! A client asks for nothing while it still sends; so when it does ask, what it was sending has broken off, though we may not have heard
//! of that. The request that is under way then ends, records what it has, and makes way.

use hoop_http::{Code, Problem};
use hoop_spool::Token;
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::{Arc, Weak};
use tokio::sync::{OwnedMutexGuard, watch};

/// The resources that are in use. Holds no more than there are requests under way.
#[derive(Default)]
pub struct ResourceLocks(Mutex<BTreeMap<Token, Weak<Slot>>>);

struct Slot {
    queue: Arc<tokio::sync::Mutex<()>>,
    /// How many requests have come.
    come: watch::Sender<u64>,
}

/// The leave to use a resource, for as long as it is held.
pub struct ResourceLock {
    come: watch::Receiver<u64>,
    number: u64,
    /// Released before the slot is.
    _guard: OwnedMutexGuard<()>,
    _slot: Arc<Slot>,
}

impl ResourceLocks {
    /// Ends what uses the resource now, and waits until it has.
    pub async fn take(&self, token: Token) -> ResourceLock {
        let slot = self.slot(token);
        let mut number = 0;
        slot.come.send_modify(|come| {
            *come += 1;
            number = *come;
        });
        let come = slot.come.subscribe();
        let guard = slot.queue.clone().lock_owned().await;
        ResourceLock { come, number, _guard: guard, _slot: slot }
    }

    fn slot(&self, token: Token) -> Arc<Slot> {
        let mut slots = self.0.lock();
        slots.retain(|_, slot| slot.strong_count() > 0);
        if let Some(slot) = slots.get(&token).and_then(Weak::upgrade) {
            return slot;
        }
        let slot = Arc::new(Slot { queue: Arc::default(), come: watch::Sender::new(0) });
        slots.insert(token, Arc::downgrade(&slot));
        slot
    }
}

impl ResourceLock {
    /// What tells when another request has come.
    pub fn superseded(&self) -> Superseded {
        Superseded { come: self.come.clone(), number: self.number }
    }
}

/// Tells when another request for the same resource has come.
pub struct Superseded {
    come: watch::Receiver<u64>,
    number: u64,
}

impl Superseded {
    /// Returns when another request has come, or the lock has been released: what this one is told then.
    pub async fn wait(&mut self) -> Problem {
        let number = self.number;
        // The other end lives as long as the lock.
        let _ = self.come.wait_for(|come| *come > number).await;
        Problem::new(Code::RequestTimeout, "another request for the same upload came meanwhile")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn the_latest_request_ends_the_earlier_one_for_its_own_resource_alone() {
        let locks = ResourceLocks::default();
        let (one, other) = (Token([1; 16]), Token([2; 16]));
        let first = locks.take(one).await;
        let other = locks.take(other).await;
        let mut foreign = other.superseded();
        let end_first = async {
            first.superseded().wait().await;
            drop(first);
        };
        let (second, ()) = tokio::join!(locks.take(one), end_first);
        tokio::select! {
            biased;
            _ = foreign.wait() => panic!("nobody asked for it"),
            () = tokio::task::yield_now() => {}
        }
        drop((second, other));
        locks.take(one).await;
        assert_eq!(locks.0.lock().len(), 1, "what nobody uses is forgotten");
    }
}
