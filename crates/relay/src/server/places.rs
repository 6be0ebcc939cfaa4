//! How many connections devices have at once: [`Places`].

use hoop_endpoint::DeviceId;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::{Arc, Weak};
use tokio::sync::{AcquireError, OwnedSemaphorePermit, Semaphore};

/// So many of a device's connections may have the kernel's buffers grow as it likes, to some megabytes each. What a destination sends and the
/// device does not take lies there, and counts for nobody.
pub(crate) const WIDE: usize = 32;

/// So many at once, of all devices and of each.
#[derive(Debug)]
pub(crate) struct Places {
    all: Arc<Semaphore>,
    of_all: usize,
    of_device: usize,
    /// Of those that have any.
    devices: Mutex<HashMap<DeviceId, Weak<Semaphore>>>,
}

impl Places {
    pub fn new(all: usize, of_device: usize) -> Arc<Self> {
        Arc::new(Self { all: Arc::new(Semaphore::new(all)), of_all: all, of_device, devices: Mutex::default() })
    }

    /// Waits for one of this device's. It is given back when what is returned is dropped.
    pub async fn take(&self, host: DeviceId) -> Result<Place, AcquireError> {
        let own = {
            let mut devices = self.devices.lock();
            let known = devices.get(&host).and_then(Weak::upgrade);
            known.unwrap_or_else(|| {
                devices.retain(|_, own| own.strong_count() > 0);
                let own = Arc::new(Semaphore::new(self.of_device));
                devices.insert(host, Arc::downgrade(&own));
                own
            })
        };
        let free = own.clone();
        let own = own.acquire_owned().await?;
        let is_wide = self.of_device - free.available_permits() <= WIDE;
        Ok(Place { is_wide, _permits: [own, self.all.clone().acquire_owned().await?] })
    }
}

impl Places {
    /// Whether a connection may keep its place for what comes next: its device has few, and half of all are free.
    pub fn are_plenty(&self, host: DeviceId) -> bool {
        let own = self.devices.lock().get(&host).and_then(Weak::upgrade);
        let taken = own.map_or(0, |own| self.of_device - own.available_permits());
        // Fewer than are wide: what is kept leaves some of those for what is under way.
        taken < (WIDE / 2).min(self.of_device / 2) && self.all.available_permits() > self.of_all / 2
    }
}

/// A connection's place.
#[derive(Debug)]
pub(crate) struct Place {
    /// Whether it is one of the first [`WIDE`].
    pub is_wide: bool,
    _permits: [OwnedSemaphorePermit; 2],
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;
    use tokio::time::timeout;

    #[tokio::test]
    async fn a_device_has_so_many_places_and_leaves_others_theirs() {
        let places = Places::new(3, 2);
        let [one, two] = [1, 2].map(|id| DeviceId([id; 20]));
        let take = async |host| timeout(Duration::from_millis(1), places.take(host)).await.ok().and_then(Result::ok);
        let (first, second) = (take(one).await, take(one).await);
        assert!(first.is_some() && second.is_some() && take(one).await.is_none());
        let other = take(two).await;
        assert!(other.is_some() && take(two).await.is_none(), "all are taken");
        drop(first);
        assert!(take(two).await.is_some());
        drop((second, other));
        let (first, second) = (take(one).await, take(one).await);
        assert!(first.is_some() && second.is_some() && take(one).await.is_none());
        assert_eq!(places.devices.lock().len(), 1, "who has none is forgotten");
    }

    #[tokio::test]
    async fn what_is_kept_leaves_places_for_what_is_under_way() {
        let ([one, two], mut held) = ([1, 2].map(|id| DeviceId([id; 20])), Vec::new());
        let places = Places::new(100, 80);
        for _ in 0..WIDE / 2 {
            assert!(places.are_plenty(one));
            held.push(places.take(one).await.unwrap());
        }
        assert!(!places.are_plenty(one) && places.are_plenty(two), "it has enough");
        while held.len() < 50 {
            held.push(places.take(one).await.unwrap());
        }
        assert!(!places.are_plenty(two), "half of all are taken");
        held.truncate(1);
        assert!(places.are_plenty(one) && places.are_plenty(two));
    }
}
