//! Whose name is looked up next: [`Lookups`].
//!
//! A lookup takes a thread until the resolver has answered, and nothing ends it sooner. So a few devices that ask for names whose servers never answer would hold all threads: devices take [turns](Turns), and may have an
//! eighth of those that are free. 16 devices that take all they can leave some 80 free, and 240 of them leave some.
//!
//! A lookup that takes long, or that nobody waits for any more, is *slow*.
//!
//! Bounds: what waits is a ticket for each connection that a device begins, of which it has a share.

use super::turns::Turns;
use hoop_endpoint::DeviceId;
use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use tokio::runtime::{Builder, Runtime};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

/// A device may have a part of the threads that are free, and one more.
const PART: usize = 8;

/// Threads for lookups, shared by all devices. They are no others' threads: those may all wait for a slow disk.
#[derive(Debug)]
pub(crate) struct Lookups {
    turns: Mutex<Turns<oneshot::Sender<Lookup>>>,
    /// None: it ends.
    threads: Option<Runtime>,
}

impl Drop for Lookups {
    fn drop(&mut self) {
        // A lookup that hangs is not waited for.
        if let Some(threads) = self.threads.take() {
            threads.shutdown_background();
        }
    }
}

/// One may be under way, until this is dropped.
#[derive(Debug)]
pub(crate) struct Lookup {
    lookups: Arc<Lookups>,
    host: DeviceId,
    /// [`RUNS`], [`SLOW`] or [`OVER`]; changed while the turns are locked.
    state: Arc<AtomicU8>,
}

const RUNS: u8 = 0;
const SLOW: u8 = 1;
const OVER: u8 = 2;

/// Whoever waits for a lookup. When this is dropped, the lookup is slow, unless it is over.
#[derive(Debug)]
pub(crate) struct Patience {
    lookups: Arc<Lookups>,
    host: DeviceId,
    state: Arc<AtomicU8>,
}

impl Lookup {
    /// Whoever waits for it keeps this for as long as it may take.
    pub(crate) fn patience(&self) -> Patience {
        Patience { lookups: self.lookups.clone(), host: self.host, state: self.state.clone() }
    }
}

impl Drop for Patience {
    fn drop(&mut self) {
        {
            let mut turns = self.lookups.turns.lock();
            if self.state.load(Ordering::Relaxed) != RUNS || !turns.slows(self.host) {
                return;
            }
            self.state.store(SLOW, Ordering::Relaxed);
        }
        self.lookups.hand_out();
    }
}

impl Lookups {
    /// So many at once, of all devices and of each.
    pub(crate) fn new(all: usize, of_device: usize) -> Arc<Self> {
        let turns = Mutex::new(Turns::new(all, of_device, PART, oneshot::Sender::is_closed));
        let threads = Builder::new_current_thread().max_blocking_threads(all).thread_name("lookup").build();
        Arc::new(Self { turns, threads: Some(threads.expect("it has no driver that could fail")) })
    }

    /// Runs a lookup on a thread for such.
    pub(crate) fn run<T: Send + 'static>(&self, work: impl FnOnce() -> T + Send + 'static) -> JoinHandle<T> {
        self.threads.as_ref().expect("until it is dropped").spawn_blocking(work)
    }

    /// Whether this device waits for its turn.
    pub(crate) fn waits(&self, host: DeviceId) -> bool {
        self.turns.lock().waits(host)
    }

    /// Waits for this device's turn. Dropping it while it waits gives the turn up.
    pub(crate) async fn take(self: &Arc<Self>, host: DeviceId) -> Option<Lookup> {
        let (ticket, turn) = oneshot::channel();
        self.turns.lock().ask(host, ticket);
        self.hand_out();
        turn.await.ok()
    }

    fn hand_out(self: &Arc<Self>) {
        loop {
            let Some((host, ticket)) = self.turns.lock().next() else { return };
            // Who stops waiting just now gives it back, and it is the next one's.
            let _ = ticket.send(Lookup { lookups: self.clone(), host, state: Arc::default() });
        }
    }
}

impl Drop for Lookup {
    fn drop(&mut self) {
        {
            let mut turns = self.lookups.turns.lock();
            let was_slow = self.state.swap(OVER, Ordering::Relaxed) == SLOW;
            turns.give_back(self.host, was_slow);
        }
        self.lookups.hand_out();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;
    use tokio::time::timeout;

    fn host(number: usize) -> DeviceId {
        DeviceId(std::array::from_fn(|at| (number >> (8 * (at % 4))) as u8))
    }

    #[tokio::test]
    async fn a_lookup_that_nobody_waits_for_counts_as_slow_until_it_is_over() {
        let lookups = Lookups::new(64, 2);
        let first = lookups.take(host(1)).await.unwrap();
        let second = lookups.take(host(1)).await.unwrap();
        let third = timeout(Duration::from_millis(20), lookups.take(host(1))).await;
        assert!(third.is_err(), "it has two");
        drop(first.patience());
        let third = lookups.take(host(1)).await.unwrap();
        let patience = second.patience();
        drop(second);
        drop(patience);
        let fourth = lookups.take(host(1)).await.unwrap();
        drop((first, third, fourth));
        let turns = lookups.turns.lock();
        assert!(turns.is_unused() && turns.free() == 64, "{turns:?}");
    }

    /// One device's downloads to a slow disk took all threads of the relay, and no name was looked up.
    #[tokio::test]
    async fn names_are_looked_up_while_all_other_threads_wait_for_the_disk() {
        const THREADS: usize = 512;
        let ((goes_on, disk), lookups) = (std::sync::mpsc::channel::<()>(), Lookups::new(4, 2));
        let disk = Arc::new(Mutex::new(disk));
        for _ in 0..THREADS {
            let disk = disk.clone();
            tokio::task::spawn_blocking(move || disk.lock().recv());
        }
        let lookup = lookups.take(host(1)).await.unwrap();
        let found = lookups.run(move || {
            drop(lookup);
            1
        });
        let found = timeout(Duration::from_secs(30), found).await;
        drop(goes_on);
        assert_eq!(found.expect("it is looked up").unwrap(), 1);
    }

    #[tokio::test]
    async fn a_turn_that_nobody_waits_for_any_more_is_the_next_ones() {
        let lookups = Lookups::new(1, 1);
        let take = async |number| timeout(Duration::from_millis(20), lookups.take(host(number))).await.ok().flatten();
        let first = take(1).await.expect("it is free");
        assert!(take(2).await.is_none() && take(1).await.is_none());
        let (_, third) = tokio::join!(async { drop(first) }, lookups.take(host(3)));
        assert!(third.is_some());
        drop(third);
        assert!(lookups.turns.lock().is_unused());
    }
}
