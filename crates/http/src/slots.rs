//! Which connections are served, and which wait for their turn: [`Slots`].
//!
//! A server that just stops to accept when it is full can be held by one peer that opens as many connections as there are. Here each peer (an
//! IPv4 address, or the /64 of an IPv6 one) is served so many at once, and more of its connections wait. When all slots are taken and
//! a peer comes that has fewer than its share, the busiest peer loses one: one that carries no request if there is, else its latest.

use hoop_units::DeviceId;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::Notify;

/// Connections of one peer that wait; beyond it they are refused. Enough for a program with 64 workers.
const WAITING_PER_PEER: usize = 64;

/// Connections that wait in all: accepted, and not read from, each is a socket and a kilobyte.
const WAITING_MAX: usize = 256;

/// How many connections each peer is served at once.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PeerLimit {
    /// So many.
    pub connections: usize,
    /// Whether that holds for this machine's own programs, too: a proxy among them may speak for many.
    pub loopback: bool,
}

/// The slots of a server.
#[derive(Debug)]
pub(crate) struct Slots {
    total: usize,
    limit: PeerLimit,
    inner: Mutex<Inner>,
    /// A slot became free.
    freed: Notify,
}

#[derive(Default, Debug)]
struct Inner {
    next: u64,
    served: BTreeMap<u64, Served>,
    waiting: BTreeMap<DeviceId, usize>,
}

#[derive(Debug)]
struct Served {
    peer: DeviceId,
    handle: Handle,
}

/// What a connection and its slot tell each other.
#[derive(Clone, Default, Debug)]
pub(crate) struct Handle {
    /// A request is under way.
    busy: Arc<AtomicBool>,
    evicted: Arc<Notify>,
}

impl Handle {
    pub(crate) fn set_busy(&self, busy: bool) {
        self.busy.store(busy, Ordering::Relaxed);
    }

    /// Returns when the connection has to make room.
    pub(crate) async fn evicted(&self) {
        self.evicted.notified().await;
    }
}

/// A slot that is held.
#[derive(Debug)]
pub(crate) struct Slot {
    slots: Arc<Slots>,
    number: u64,
    pub(crate) handle: Handle,
}

impl Drop for Slot {
    fn drop(&mut self) {
        self.slots.lock().served.remove(&self.number);
        self.slots.freed.notify_waiters();
    }
}

/// A place in the queue.
struct Waiting<'a>(&'a Slots, DeviceId);

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        let mut inner = self.0.lock();
        if let Some(count) = inner.waiting.get_mut(&self.1) {
            *count -= 1;
        }
        inner.waiting.retain(|_, count| *count > 0);
    }
}

impl Slots {
    pub(crate) fn new(total: usize, limit: PeerLimit) -> Arc<Self> {
        Arc::new(Self { total, limit, inner: Mutex::default(), freed: Notify::new() })
    }

    /// A slot for a connection of `peer`, once there is one; `None` if too many wait already.
    pub(crate) async fn enter(self: &Arc<Self>, peer: DeviceId) -> Option<Slot> {
        let mut waiting = None;
        loop {
            let freed = self.freed.notified();
            {
                let mut inner = self.lock();
                if let Some(slot) = self.take(&mut inner, peer) {
                    return Some(slot);
                }
                if waiting.is_none() {
                    waiting = Some(inner.wait(self, peer)?);
                }
            }
            freed.await;
        }
    }

    fn take(self: &Arc<Self>, inner: &mut Inner, peer: DeviceId) -> Option<Slot> {
        let mine = inner.count(peer);
        let free_of_limit = !self.limit.loopback && is_loopback(peer);
        if mine >= self.limit.connections && !free_of_limit {
            return None;
        }
        if inner.served.len() >= self.total {
            let victim = inner.victim(mine)?;
            if let Some(served) = inner.served.remove(&victim) {
                served.handle.evicted.notify_one();
            }
        }
        let (number, handle) = (inner.next, Handle::default());
        inner.next += 1;
        inner.served.insert(number, Served { peer, handle: handle.clone() });
        Some(Slot { slots: self.clone(), number, handle })
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Inner {
    fn count(&self, peer: DeviceId) -> usize {
        self.served.values().filter(|served| served.peer == peer).count()
    }

    /// The connection that makes room for a peer that has `mine`: of whoever has most, if that is two more.
    fn victim(&self, mine: usize) -> Option<u64> {
        let mut counts = BTreeMap::<DeviceId, usize>::new();
        for served in self.served.values() {
            *counts.entry(served.peer).or_default() += 1;
        }
        let (busiest, _) = counts.into_iter().filter(|(_, count)| *count > mine + 1).max_by_key(|(_, count)| *count)?;
        let theirs = self.served.iter().filter(|(_, served)| served.peer == busiest);
        theirs
            .max_by_key(|(number, served)| (!served.handle.busy.load(Ordering::Relaxed), **number))
            .map(|(number, _)| *number)
    }

    fn wait<'a>(&mut self, slots: &'a Slots, peer: DeviceId) -> Option<Waiting<'a>> {
        if self.waiting.values().sum::<usize>() >= WAITING_MAX {
            return None;
        }
        let count = self.waiting.entry(peer).or_default();
        if *count >= WAITING_PER_PEER {
            return None;
        }
        *count += 1;
        Some(Waiting(slots, peer))
    }
}

/// IPv6's loopback address is the unspecified /64.
fn is_loopback(peer: DeviceId) -> bool {
    let ip = std::net::IpAddr::from(*peer.as_bytes()).to_canonical();
    ip.is_loopback() || ip.is_unspecified()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::task::Poll;

    fn peer(last: u8) -> DeviceId {
        DeviceId::from_ip([10, 0, 0, last].into())
    }

    fn slots(total: usize, connections: usize) -> Arc<Slots> {
        Slots::new(total, PeerLimit { connections, loopback: false })
    }

    #[tokio::test]
    async fn a_peer_beyond_its_limit_waits_until_one_of_its_own_ends_and_others_do_not() {
        let slots = slots(4, 2);
        let first = slots.enter(peer(1)).await.unwrap();
        let _second = slots.enter(peer(1)).await.unwrap();
        let mut third = Box::pin(slots.enter(peer(1)));
        assert!(futures_poll(&mut third).await.is_pending());
        let _other = slots.enter(peer(2)).await.unwrap();
        assert!(futures_poll(&mut third).await.is_pending());
        drop(first);
        assert!(third.await.is_some());
    }

    #[tokio::test]
    async fn when_all_is_taken_the_busiest_peer_makes_room_with_what_it_uses_least() {
        let slots = slots(4, 4);
        let mut held = Vec::new();
        for _ in 0..4 {
            held.push(slots.enter(peer(1)).await.unwrap());
        }
        held.iter().for_each(|slot| slot.handle.set_busy(true));
        held[1].handle.set_busy(false);
        let _other = slots.enter(peer(2)).await.expect("it has its share");
        held[1].handle.evicted().await;
        let _more = slots.enter(peer(2)).await.expect("three and one are not even yet");
        held[3].handle.evicted().await;
        let mut third = Box::pin(slots.enter(peer(2)));
        assert!(futures_poll(&mut third).await.is_pending(), "two each");
    }

    #[tokio::test]
    async fn so_many_wait_and_no_more_and_whoever_gives_up_waits_no_longer() {
        let slots = slots(1, 1);
        let _served = slots.enter(peer(1)).await.unwrap();
        let mut waiting = Vec::new();
        for _ in 0..WAITING_PER_PEER {
            let mut one = Box::pin(slots.enter(peer(1)));
            assert!(futures_poll(&mut one).await.is_pending());
            waiting.push(one);
        }
        assert!(slots.enter(peer(1)).await.is_none());
        waiting.pop();
        let mut one = Box::pin(slots.enter(peer(1)));
        assert!(futures_poll(&mut one).await.is_pending());
    }

    #[tokio::test]
    async fn this_machine_has_no_limit_of_its_own_unless_that_is_said() {
        let own = DeviceId::from_ip([127, 0, 0, 1].into());
        let open = slots(4, 1);
        let _held = [open.enter(own).await.unwrap(), open.enter(own).await.unwrap()];
        let strict = Slots::new(4, PeerLimit { connections: 1, loopback: true });
        let _one = strict.enter(own).await.unwrap();
        let mut two = Box::pin(strict.enter(own));
        assert!(futures_poll(&mut two).await.is_pending());
    }

    /// Polls once.
    async fn futures_poll<F: Future + Unpin>(future: &mut F) -> Poll<F::Output> {
        std::future::poll_fn(|context| Poll::Ready(std::pin::Pin::new(&mut *future).poll(context))).await
    }
}
