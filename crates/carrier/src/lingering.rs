//! Connections of QUIC that are over and still take memory: [`Lingering`].
//!
//! QUIC keeps a connection that has ended for three probe timeouts (RFC 9000 §10.2), so that late packets are answered: three seconds where no round trip was measured, and some 45 KB
//! each. A client that acknowledges late makes these timeouts as long as it likes; so a server ends such a connection after [`LINGER_MAX`]. A late packet is answered by a stateless
//! reset then. Whoever begins handshakes and leaves them, or has them make way, pays nothing for what lingers; so it is counted against his address.

use crate::datagrams::Datagrams;
use crate::effort::{Effort, Measured};
use hoop_units::AddressKey;
use parking_lot::Mutex;
use quinn::{AsyncTimer, AsyncUdpSocket, Runtime, TokioRuntime};
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::io;
use std::net::IpAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use tokio::runtime::Handle;
use tokio::task::AbortHandle;

/// How long a connection lingers at most: three probe timeouts where no round trip was measured.
pub(crate) const LINGER_MAX: Duration = Duration::from_secs(3);

/// Counts the connections of each address (IPv6: of a /64), and those of them that are of use: a handshake that goes on, or a carrier. The others linger.
#[derive(Clone, Debug)]
pub(crate) struct Lingering {
    all: usize,
    of_peer: usize,
    counted: Arc<Mutex<Counted>>,
}

#[derive(Default, Debug)]
struct Counted {
    all: Count,
    peers: HashMap<AddressKey, Count>,
}

#[derive(Clone, Copy, Default, Debug)]
struct Count {
    there: usize,
    of_use: usize,
}

impl Count {
    const fn lingering(self) -> usize {
        self.there.saturating_sub(self.of_use)
    }
}

/// A connection takes memory, until this is dropped.
#[derive(Debug)]
pub(crate) struct There {
    /// None: the address may be another's.
    peer: Option<AddressKey>,
    counted: Arc<Mutex<Counted>>,
}

/// A connection is of use, until this is dropped. It is forgotten [`LINGER_MAX`] later.
#[derive(Debug)]
pub(crate) struct OfUse {
    peer: AddressKey,
    counted: Arc<Mutex<Counted>>,
    driver: Option<AbortHandle>,
}

impl OfUse {
    /// The task that runs the connection.
    pub(crate) fn set_driver(&mut self, driver: Option<AbortHandle>) {
        self.driver = driver;
    }
}

/// Runs a listener's endpoint and connections as tokio does, but measured, and tells which task it began last.
#[derive(Default, Debug)]
pub(crate) struct Drivers {
    last: Mutex<Option<(AbortHandle, Arc<Effort>)>>,
    /// The first task is the endpoint's own.
    has_endpoint: AtomicBool,
}

impl Drivers {
    /// The task that was begun last, and what it takes, once.
    pub(crate) fn last(&self) -> Option<(AbortHandle, Arc<Effort>)> {
        self.last.lock().take()
    }
}

impl Runtime for Drivers {
    fn new_timer(&self, at: Instant) -> Pin<Box<dyn AsyncTimer>> {
        TokioRuntime.new_timer(at)
    }

    fn spawn(&self, driver: Pin<Box<dyn Future<Output = ()> + Send>>) {
        if !self.has_endpoint.swap(true, Ordering::Relaxed) {
            tokio::spawn(driver);
            return;
        }
        let effort = Arc::<Effort>::default();
        let task = tokio::spawn(Measured::new(driver, effort.clone())).abort_handle();
        *self.last.lock() = Some((task, effort));
    }

    fn wrap_udp_socket(&self, socket: std::net::UdpSocket) -> io::Result<Arc<dyn AsyncUdpSocket>> {
        Datagrams::open(socket)
    }
}

impl Counted {
    fn change(&mut self, peer: Option<AddressKey>, change: impl Fn(&mut Count)) {
        change(&mut self.all);
        let Some(peer) = peer else { return };
        let mut entry = match self.peers.entry(peer) {
            Entry::Occupied(entry) => entry,
            Entry::Vacant(entry) => entry.insert_entry(Count::default()),
        };
        change(entry.get_mut());
        if let Count { there: 0, of_use: 0 } = entry.get() {
            entry.remove();
        }
    }
}

impl Lingering {
    /// An address may have `of_peer` that linger. Once `all` do, one that has any begins no more.
    pub(crate) fn new(all: usize, of_peer: usize) -> Self {
        Self { all, of_peer, counted: Arc::default() }
    }

    /// How many linger.
    pub(crate) fn count(&self) -> usize {
        self.counted.lock().all.lingering()
    }

    /// Whether an address may begin another connection.
    pub(crate) fn admits(&self, peer: IpAddr) -> bool {
        let counted = self.counted.lock();
        let own = counted.peers.get(&AddressKey::from_ip(peer)).copied().unwrap_or_default().lingering();
        own == 0 || (own < self.of_peer && counted.all.lingering() < self.all)
    }

    /// A connection begins.
    pub(crate) fn begin(&self, peer: IpAddr) -> (There, OfUse) {
        let (peer, counted) = (AddressKey::from_ip(peer), || self.counted.clone());
        self.counted.lock().change(Some(peer), |count| {
            count.there += 1;
            count.of_use += 1;
        });
        (There { peer: Some(peer), counted: counted() }, OfUse { peer, counted: counted(), driver: None })
    }

    /// A handshake has failed with its first packet. It took some work, and counts as if it lingered: against the address, if that was shown, and among all.
    pub(crate) fn has_failed(&self, peer: Option<IpAddr>) {
        let there = There { peer: peer.map(AddressKey::from_ip), counted: self.counted.clone() };
        self.counted.lock().change(there.peer, |count| count.there += 1);
        tokio::spawn(async move {
            tokio::time::sleep(LINGER_MAX).await;
            drop(there);
        });
    }
}

impl Drop for There {
    fn drop(&mut self) {
        self.counted.lock().change(self.peer, |count| count.there -= 1);
    }
}

impl Drop for OfUse {
    fn drop(&mut self) {
        self.counted.lock().change(Some(self.peer), |count| count.of_use -= 1);
        // Without a runtime, the task has ended with it. quinn forgets a connection whose task is dropped, once nobody else has it.
        if let (Some(driver), Ok(runtime)) = (self.driver.take(), Handle::try_current()) {
            runtime.spawn(async move {
                tokio::time::sleep(LINGER_MAX).await;
                driver.abort();
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ip(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    #[test]
    fn an_address_has_so_many_that_linger_and_others_begin_theirs() {
        let lingering = Lingering::new(3, 2);
        let begin = |peer: &str| lingering.admits(ip(peer)).then(|| lingering.begin(ip(peer)));
        let (first, first_use) = begin("192.0.2.1").unwrap();
        let (second, second_use) = begin("192.0.2.1").unwrap();
        let (third, third_use) = begin("192.0.2.1").unwrap();
        assert_eq!(lingering.count(), 0, "all are of use");
        drop((first_use, second_use));
        assert_eq!(lingering.count(), 2);
        assert!(begin("192.0.2.1").is_none());
        let (_fourth, fourth_use) = begin("192.0.2.2").unwrap();
        drop(fourth_use);
        assert!(begin("192.0.2.2").is_none(), "all that may linger do");
        let (fifth, fifth_use) = begin("192.0.2.3").unwrap();
        drop((first, second));
        assert!(begin("192.0.2.1").is_some(), "they are forgotten");
        drop((third_use, third, fifth_use, fifth));
        assert_eq!(lingering.count(), 1);
        assert_eq!(lingering.counted.lock().peers.len(), 1, "who has none is forgotten");
    }
}
