//! How many handshakes each peer has under way: [`Peers`].

use hoop_units::DeviceId;
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError};

/// Counts by address, IPv6 by its /64; there are as many entries at most as there are places.
#[derive(Clone, Default, Debug)]
pub(crate) struct Peers(Arc<Mutex<BTreeMap<DeviceId, usize>>>);

/// A place that a peer has taken; it is free again once this is dropped.
#[derive(Debug)]
pub(crate) struct Place {
    peers: Peers,
    peer: DeviceId,
}

impl Peers {
    /// A place, unless the peer has `most`.
    pub(crate) fn take(&self, peer: IpAddr, most: usize) -> Option<Place> {
        let peer = DeviceId::from_ip(peer);
        let mut counts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let count = counts.entry(peer).or_default();
        if *count >= most {
            return None;
        }
        *count += 1;
        Some(Place { peers: self.clone(), peer })
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut counts = self.peers.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(count) = counts.get_mut(&self.peer) {
            *count -= 1;
            if *count == 0 {
                counts.remove(&self.peer);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_peer_has_its_places_and_no_more_and_takes_none_of_anothers() {
        let peers = Peers::default();
        let take = |peer: &str| peers.take(peer.parse().unwrap(), 2);
        let first = [take("192.0.2.1").unwrap(), take("192.0.2.1").unwrap()];
        assert!(take("192.0.2.1").is_none());
        assert!(take("::ffff:192.0.2.1").is_none(), "the same address");
        let [_first, _second] = [take("2001:db8::1").unwrap(), take("2001:db8::2").unwrap()];
        assert!(take("2001:db8::ffff:3").is_none() && take("2001:db8:0:1::1").is_some(), "a /64 is one peer");
        drop(first);
        assert!(take("192.0.2.1").is_some());
    }
}
