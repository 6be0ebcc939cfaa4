//! How many connections, flows or uploads each user of this machine has, or each machine of a LAN: [`Shares`].

use parking_lot::Mutex;
use std::collections::HashMap;
use std::hash::Hash;
use std::sync::Arc;

/// So many at once of each. It knows those that have any, which are no more than there are of these.
#[derive(Debug)]
pub(crate) struct Shares<K: Copy + Eq + Hash> {
    of_each: usize,
    taken: Mutex<HashMap<K, usize>>,
}

/// One of somebody's. It goes with this.
#[derive(Debug)]
pub(crate) struct Share<K: Copy + Eq + Hash> {
    shares: Arc<Shares<K>>,
    whose: K,
}

impl<K: Copy + Eq + Hash> Shares<K> {
    pub(crate) fn new(of_each: usize) -> Arc<Self> {
        Arc::new(Self { of_each, taken: Mutex::default() })
    }

    /// One more of theirs; none: they have all of their share.
    pub(crate) fn take(self: &Arc<Self>, whose: K) -> Option<Share<K>> {
        let mut taken = self.taken.lock();
        let has = taken.entry(whose).or_default();
        if *has >= self.of_each {
            return None;
        }
        *has += 1;
        Some(Share { shares: self.clone(), whose })
    }
}

impl<K: Copy + Eq + Hash> Share<K> {
    pub(crate) const fn whose(&self) -> K {
        self.whose
    }

    /// One more of theirs; none: they have all of their share.
    pub(crate) fn another(&self) -> Option<Self> {
        self.shares.take(self.whose)
    }
}

impl<K: Copy + Eq + Hash> Drop for Share<K> {
    fn drop(&mut self) {
        let mut taken = self.shares.taken.lock();
        let left = taken.get_mut(&self.whose).map_or(0, |has| {
            *has -= 1;
            *has
        });
        if left == 0 {
            taken.remove(&self.whose);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::IpAddr;

    #[test]
    fn a_machine_with_all_of_its_share_leaves_the_others_theirs() {
        let shares = Shares::new(2);
        let [one, other] = [1, 2].map(|last| IpAddr::from([10, 0, 0, last]));
        let mut taken: Vec<_> = (0..2).filter_map(|_| shares.take(one)).collect();
        assert!(taken.len() == 2 && shares.take(one).is_none());
        let of_other = shares.take(other);
        assert!(of_other.is_some());
        taken.pop();
        assert!(shares.take(one).is_some(), "one has ended");
        drop((taken, of_other));
        assert!(shares.taken.lock().is_empty());
    }
}
