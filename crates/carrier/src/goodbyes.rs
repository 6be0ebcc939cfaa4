//! Connections that are over and whose other end is given time to close: [`Goodbyes`].

use hoop_units::AddressKey;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::net::IpAddr;
use std::sync::Arc;

/// So many at once, and so many of each address (IPv6: of a /64). A connection that is over holds a descriptor and some 60 KB until its other end has closed as well. Beyond the bounds nobody is waited for.
#[derive(Clone, Debug)]
pub(crate) struct Goodbyes {
    all: usize,
    of_peer: usize,
    awaited: Arc<Mutex<Awaited>>,
}

#[derive(Default, Debug)]
struct Awaited {
    all: usize,
    peers: HashMap<AddressKey, usize>,
}

/// One whose end is awaited, until this is dropped.
#[derive(Debug)]
pub(crate) struct Goodbye {
    peer: AddressKey,
    awaited: Arc<Mutex<Awaited>>,
}

impl Goodbyes {
    pub(crate) fn new(all: usize, of_peer: usize) -> Self {
        Self { all, of_peer, awaited: Arc::default() }
    }

    /// One more, if there is room for it.
    pub(crate) fn begin(&self, peer: IpAddr) -> Option<Goodbye> {
        let (peer, awaited) = (AddressKey::from_ip(peer), &mut *self.awaited.lock());
        let own = awaited.peers.get(&peer).copied().unwrap_or_default();
        if awaited.all >= self.all || own >= self.of_peer {
            return None;
        }
        awaited.all += 1;
        awaited.peers.insert(peer, own + 1);
        Some(Goodbye { peer, awaited: self.awaited.clone() })
    }
}

impl Drop for Goodbye {
    fn drop(&mut self) {
        let awaited = &mut *self.awaited.lock();
        awaited.all -= 1;
        if let Entry::Occupied(mut own) = awaited.peers.entry(self.peer) {
            *own.get_mut() -= 1;
            if *own.get() == 0 {
                own.remove();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_has_its_share_of_goodbyes_and_all_have_so_many() {
        let goodbyes = Goodbyes::new(3, 2);
        let begin = |peer: &str| goodbyes.begin(peer.parse().unwrap());
        let (first, second) = (begin("192.0.2.1").unwrap(), begin("192.0.2.1").unwrap());
        assert!(begin("192.0.2.1").is_none());
        let _third = begin("192.0.2.2").unwrap();
        assert!(begin("192.0.2.3").is_none());
        drop((first, second));
        assert!(begin("192.0.2.1").is_some());
        assert_eq!(goodbyes.awaited.lock().peers.len(), 1, "who has none is forgotten");
    }
}
