//! How many messages come in at once, and from whom: [`Intakes`].
//!
//! Bounds: so many in all, and half of them from one address, as long as nobody knows whether they bring anything at all: a sender that opens
//! connections and says nothing keeps out itself.

use hoop_units::DeviceId;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// The messages that are being taken.
pub struct Intakes {
    slots: Arc<Semaphore>,
    max: usize,
    /// Of each sender, while it has some; no more than there are slots.
    held: Mutex<BTreeMap<DeviceId, usize>>,
}

impl Intakes {
    /// Room for `max` at once.
    pub fn new(max: usize) -> Arc<Self> {
        Arc::new(Self { slots: Arc::new(Semaphore::new(max)), max, held: Mutex::default() })
    }

    /// A slot for a message of `sender`, if there is one for it.
    pub fn begin(self: &Arc<Self>, sender: DeviceId) -> Option<Slot> {
        let mut senders = self.held();
        let held = senders.get(&sender).copied().unwrap_or_default();
        if held >= self.max.div_ceil(2) {
            return None;
        }
        let permit = self.slots.clone().try_acquire_owned().ok()?;
        senders.insert(sender, held + 1);
        Some(Slot { intakes: self.clone(), sender, _permit: permit })
    }

    /// Returns once no message is being taken.
    pub async fn done(&self) {
        let all = u32::try_from(self.max).unwrap_or(u32::MAX);
        // It is never closed.
        let _ = self.slots.acquire_many(all).await;
    }

    /// Nothing in here panics.
    fn held(&self) -> MutexGuard<'_, BTreeMap<DeviceId, usize>> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A message that is being taken, until this is dropped.
pub struct Slot {
    intakes: Arc<Intakes>,
    sender: DeviceId,
    _permit: OwnedSemaphorePermit,
}

impl Drop for Slot {
    fn drop(&mut self) {
        let mut senders = self.intakes.held();
        match senders.get_mut(&self.sender) {
            Some(held) if *held > 1 => *held -= 1,
            _ => drop(senders.remove(&self.sender)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn half_of_the_slots_are_for_others_and_what_ends_makes_room() {
        let intakes = Intakes::new(5);
        let [one, two, three] = [1, 2, 3].map(|n| DeviceId::from_ip([10, 0, 0, n].into()));
        let mut held: Vec<_> = (0..3).map(|_| intakes.begin(one).unwrap()).collect();
        assert!(intakes.begin(one).is_none());
        let others = [intakes.begin(two).unwrap(), intakes.begin(three).unwrap()];
        assert!(intakes.begin(three).is_none(), "all are taken");
        held.pop();
        assert!(intakes.begin(three).is_some());
        drop((held, others));
        assert!(intakes.held().is_empty());
    }
}
