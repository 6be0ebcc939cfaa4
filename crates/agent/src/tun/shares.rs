//! How many connections each machine of a LAN has: [`Shares`].

use parking_lot::Mutex;
use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;

/// So many at once of each machine. It knows those that have any, which are no more than there are connections.
#[derive(Debug)]
pub(super) struct Shares {
    of_machine: usize,
    taken: Mutex<HashMap<IpAddr, usize>>,
}

/// A connection of a machine's. It goes with this.
#[derive(Debug)]
pub(super) struct Share {
    shares: Arc<Shares>,
    machine: IpAddr,
}

impl Shares {
    pub(super) fn new(of_machine: usize) -> Arc<Self> {
        Arc::new(Self { of_machine, taken: Mutex::default() })
    }

    /// One more of this machine's; none: it has all of its share.
    pub(super) fn take(self: &Arc<Self>, machine: IpAddr) -> Option<Share> {
        let mut taken = self.taken.lock();
        let of_machine = taken.entry(machine).or_default();
        if *of_machine >= self.of_machine {
            return None;
        }
        *of_machine += 1;
        Some(Share { shares: self.clone(), machine })
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        let mut taken = self.shares.taken.lock();
        let left = taken.get_mut(&self.machine).map_or(0, |of_machine| {
            *of_machine -= 1;
            *of_machine
        });
        if left == 0 {
            taken.remove(&self.machine);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
