//! Who works next on its TLS handshake: [`Turns`].
//!
//! A server signs in each full handshake. With RSA-2048 that takes a core for most of a millisecond, and costs its client nothing. So whatever of a handshake comes after the
//! ClientHello is done in turns: first the networks take turns, in each network its clients, and of a client whoever came first. A client is an IPv4 address or an IPv6 /64; a network is an
//! IPv4 /24 or an IPv6 /48. One address with a thousand handshakes has another wait for what runs already, and for one of its own.
//!
//! A turn lasts for one poll, which never waits for the client: a silent client has none. Who waits for its client's answer asks for another turn once it has come, since a client that is asked for another
//! ClientHello (RFC 8446 §4.1.4) has its signature only then. Before each turn is given, all other tasks that are ready run once. So whoever has come meanwhile is known, also where there is one core.
//!
//! Bounds: one turn for each core ([`Turns::of_cores`]); an entry of some 100 bytes for each connection that waits. A server bounds its connections, and the time for which a handshake may take. Who
//! leaves is forgotten at once.

use crate::places::network;
use hoop_units::AddressKey;
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::future::poll_fn;
use std::net::IpAddr;
use std::ops::Bound;
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore, oneshot};

/// Who has it may go on, until it is dropped.
type Turn = OwnedSemaphorePermit;

/// The turns, and who waits for one.
#[derive(Debug)]
pub(crate) struct Turns {
    free: Arc<Semaphore>,
    queue: Mutex<Queue<oneshot::Sender<Turn>>>,
    has_come: Notify,
}

impl Turns {
    /// One turn for each core.
    pub(crate) fn of_cores() -> Arc<Self> {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        Arc::new(Self {
            free: Arc::new(Semaphore::new(cores)),
            queue: Mutex::new(Queue::default()),
            has_come: Notify::new(),
        })
    }

    /// Gives one turn after the other, without end.
    pub(crate) async fn give(self: Arc<Self>) {
        loop {
            let turn = self.free.clone().acquire_owned().await.expect("the semaphore is never closed");
            let next = loop {
                // Whoever is ready comes to the queue before it is decided who is next.
                tokio::task::yield_now().await;
                if let Some(next) = self.queue.lock().take_next() {
                    break next;
                }
                self.has_come.notified().await;
            };
            // The turn of one that has just left is free again.
            let _ = next.send(turn);
        }
    }

    /// Does some work for a client, each step in a turn.
    pub(crate) async fn work<T>(&self, client: IpAddr, work: impl Future<Output = T>) -> T {
        let mut work = pin!(work);
        loop {
            let turn = self.turn(client).await;
            let done = poll_fn(|cx| Poll::Ready(work.as_mut().poll(cx))).await;
            drop(turn);
            match done {
                Poll::Ready(done) => return done,
                Poll::Pending => woken().await,
            }
        }
    }

    /// Waits for the client's turn.
    async fn turn(&self, client: IpAddr) -> Turn {
        let (gives, given) = oneshot::channel();
        let of = (network(client), AddressKey::from_ip(client));
        let _waiting = Waiting { turns: self, of, number: self.queue.lock().enter(of, gives) };
        self.has_come.notify_one();
        given.await.expect("who waits is in the queue until its turn has come")
    }
}

/// One that waits, until this is dropped.
struct Waiting<'a> {
    turns: &'a Turns,
    of: Of,
    number: u64,
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        let _ = self.turns.queue.lock().leave(self.of, self.number);
    }
}

/// Returns when the task that asks is polled again: whoever it waits for has woken it.
async fn woken() {
    let mut is_again = false;
    poll_fn(|_| if std::mem::replace(&mut is_again, true) { Poll::Ready(()) } else { Poll::Pending }).await;
}

/// A network, and a client in it.
type Of = (AddressKey, AddressKey);

/// Who waits, by network and client: a pure machine.
#[derive(Debug)]
struct Queue<T> {
    next: u64,
    networks: Circle<Circle<BTreeMap<u64, T>>>,
}

impl<T> Default for Queue<T> {
    fn default() -> Self {
        Self { next: 0, networks: Circle::default() }
    }
}

impl<T> Queue<T> {
    /// Another waits: by which number it may leave.
    fn enter(&mut self, (network, client): Of, one: T) -> u64 {
        let number = self.next;
        self.next += 1;
        let clients = self.networks.all.entry(network).or_default();
        clients.all.entry(client).or_default().insert(number, one);
        number
    }

    /// Takes out whose turn it is.
    fn take_next(&mut self) -> Option<T> {
        let network = self.networks.next()?;
        let clients = self.networks.all.get_mut(&network)?;
        let client = clients.next()?;
        let number = *clients.all.get(&client)?.keys().next()?;
        (self.networks.last, clients.last) = (Some(network), Some(client));
        self.leave((network, client), number)
    }

    /// Takes out one of a client, if it waits still.
    fn leave(&mut self, (network, client): Of, number: u64) -> Option<T> {
        let clients = self.networks.all.get_mut(&network)?;
        let own = clients.all.get_mut(&client)?;
        let left = own.remove(&number);
        if own.is_empty() {
            clients.all.remove(&client);
        }
        if clients.all.is_empty() {
            self.networks.all.remove(&network);
        }
        left
    }
}

/// Some that take turns.
#[derive(Debug)]
struct Circle<T> {
    all: BTreeMap<AddressKey, T>,
    /// Whose turn was last.
    last: Option<AddressKey>,
}

impl<T> Default for Circle<T> {
    fn default() -> Self {
        Self { all: BTreeMap::new(), last: None }
    }
}

impl<T> Circle<T> {
    /// Whose turn it is.
    fn next(&self) -> Option<AddressKey> {
        let after = self.last.and_then(|last| self.all.range((Bound::Excluded(last), Bound::Unbounded)).next());
        after.or_else(|| self.all.first_key_value()).map(|(key, _)| *key)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    fn of(ip: &str) -> Of {
        let ip = ip.parse().unwrap();
        (network(ip), AddressKey::from_ip(ip))
    }

    #[test]
    fn one_address_with_a_thousand_that_wait_has_others_wait_for_one() {
        let mut queue = Queue::default();
        for _ in 0..1_000 {
            queue.enter(of("192.0.2.9"), 9);
        }
        assert_eq!(queue.take_next(), Some(9));
        for (ip, who) in [("192.0.2.1", 1), ("198.51.100.1", 2), ("2001:db8:0:1::1", 3)] {
            queue.enter(of(ip), who);
        }
        let mut next: Vec<_> = std::iter::from_fn(|| queue.take_next()).take(5).collect();
        next.sort_unstable();
        assert_eq!(next, [1, 2, 3, 9, 9]);
    }

    #[test]
    fn one_network_with_a_thousand_addresses_has_others_wait_for_one() {
        let mut queue = Queue::default();
        for n in 0..1_000 {
            queue.enter(of(&format!("2001:db8:0:{n:x}::1")), 9);
        }
        queue.enter(of("2001:db8:1::1"), 1);
        let next = [queue.take_next(), queue.take_next()];
        assert!(next.contains(&Some(1)), "{next:?}");
    }

    #[test]
    fn who_leaves_is_forgotten_and_of_a_client_the_first_is_next() {
        let mut queue = Queue::default();
        let [first, _, third] = [1, 2, 3].map(|who| queue.enter(of("192.0.2.1"), who));
        assert_eq!((queue.leave(of("192.0.2.1"), first), queue.leave(of("192.0.2.1"), first)), (Some(1), None));
        assert_eq!((queue.take_next(), queue.leave(of("192.0.2.1"), third)), (Some(2), Some(3)));
        assert!(queue.networks.all.is_empty() && queue.take_next().is_none());
    }

    #[tokio::test(start_paused = true)]
    async fn a_turn_is_free_again_once_its_holder_leaves_or_waits_for_its_client() {
        let turns = Turns::of_cores();
        let (cores, mut tasks) = (turns.free.available_permits(), tokio::task::JoinSet::new());
        tasks.spawn(turns.clone().give());
        let ip = IpAddr::from([192, 0, 2, 1]);
        for _ in 0..4 * cores {
            let turns = turns.clone();
            tasks.spawn(async move { turns.work(ip, std::future::pending()).await });
        }
        for rest in [0, 1] {
            let mut leaves = Box::pin(turns.turn(ip));
            assert!(poll_fn(|cx| Poll::Ready(leaves.as_mut().poll(cx))).await.is_pending());
            // Now all others have had their turns, and this one has been given its own.
            tokio::time::sleep(Duration::from_secs(rest)).await;
            drop(leaves);
        }
        assert_eq!(turns.work(ip, async { 7 }).await, 7);
        tokio::time::sleep(Duration::from_secs(1)).await;
        // The next one is in the giver's hand.
        assert_eq!((turns.free.available_permits(), turns.queue.lock().networks.all.len()), (cores - 1, 0));
    }
}
