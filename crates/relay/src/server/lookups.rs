//! Whose name is looked up next: [`Lookups`].
//!
//! A lookup takes a thread until the resolver has answered, and nothing ends it sooner. So a few devices that ask for names whose servers never answer would hold all threads. Hence the fewer threads are
//! free, the fewer a device may have: an eighth of those that are free and one more. 16 devices that take all they can leave some 80 free, and 240 of them leave some. Whoever has fewest is next; of equals,
//! whoever has waited for longest.
//!
//! A lookup that takes long, or that nobody waits for any more, is *slow*: as many of these as of the others a device may have besides, so that names whose servers never answer keep its other names waiting for
//! some seconds only. While a device has slow ones, its newest takes turns with its oldest, which may be as slow.
//!
//! Bounds: what waits is a ticket for each connection that a device begins, of which it has a share.

use hoop_endpoint::DeviceId;
use parking_lot::Mutex;
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use tokio::sync::oneshot;

/// A device may have a part of the threads that are free, and one more.
const PART: usize = 8;

/// Threads for lookups, shared by all devices.
#[derive(Debug)]
pub(crate) struct Lookups {
    turns: Mutex<Turns<oneshot::Sender<Lookup>>>,
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
        Arc::new(Self { turns: Mutex::new(Turns::new(all, of_device, oneshot::Sender::is_closed)) })
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

/// Who has how many, and who waits. Pure.
#[derive(Debug)]
struct Turns<T> {
    free: usize,
    of_device: usize,
    /// Whether nobody waits for a ticket any more.
    is_over: fn(&T) -> bool,
    /// Of those that have any, or wait.
    devices: BTreeMap<DeviceId, Device<T>>,
    /// How many have asked.
    asked: u64,
}

#[derive(Debug)]
struct Device<T> {
    has: usize,
    /// Besides, those that take long.
    slow: usize,
    /// It was its newest one's turn last.
    was_newest: bool,
    /// By when they asked.
    waiting: VecDeque<(u64, T)>,
}

impl<T> Turns<T> {
    fn new(free: usize, of_device: usize, is_over: fn(&T) -> bool) -> Self {
        Self { free, of_device, is_over, devices: BTreeMap::new(), asked: 0 }
    }

    /// This device wants one more.
    fn ask(&mut self, host: DeviceId, ticket: T) {
        let device = self.devices.entry(host).or_insert_with(Device::new);
        device.forget(self.is_over);
        device.waiting.push_back((self.asked, ticket));
        self.asked += 1;
    }

    /// Whose turn it is, if it is anybody's: of those that wait and may have one more, who has fewest.
    fn next(&mut self) -> Option<(DeviceId, T)> {
        if self.free == 0 {
            return None;
        }
        self.devices.retain(|_, device| {
            device.forget(self.is_over);
            device.is_there()
        });
        let (of_device, most) = (self.of_device, 1 + self.free / PART);
        let may = self.devices.iter_mut().filter(|(_, device)| device.has < of_device && device.all() < most);
        let first = may.filter_map(|(host, device)| Some(((device.all(), device.waiting.front()?.0), host, device)));
        let (_, host, device) = first.min_by_key(|(order, ..)| *order)?;
        device.was_newest = device.slow > 0 && !device.was_newest;
        let next = if device.was_newest { device.waiting.pop_back() } else { device.waiting.pop_front() };
        let (_, ticket) = next?;
        device.has += 1;
        self.free -= 1;
        Some((*host, ticket))
    }

    /// One of this device's takes long. Whether it counts as slow from now on: there are not too many.
    fn slows(&mut self, host: DeviceId) -> bool {
        let slow = self.devices.get_mut(&host).filter(|device| device.slow < self.of_device);
        slow.is_some_and(|device| {
            (device.has, device.slow) = (device.has - 1, device.slow + 1);
            true
        })
    }

    /// This device has one less.
    fn give_back(&mut self, host: DeviceId, was_slow: bool) {
        self.free += 1;
        if let Some(device) = self.devices.get_mut(&host) {
            *if was_slow { &mut device.slow } else { &mut device.has } -= 1;
            if !device.is_there() {
                self.devices.remove(&host);
            }
        }
    }
}

impl<T> Device<T> {
    const fn new() -> Self {
        Self { has: 0, slow: 0, was_newest: false, waiting: VecDeque::new() }
    }

    const fn all(&self) -> usize {
        self.has + self.slow
    }

    /// The first that nobody waits for any more: who asked first gives up first, mostly.
    fn forget(&mut self, is_over: fn(&T) -> bool) {
        while self.waiting.back().is_some_and(|(_, ticket)| is_over(ticket)) {
            self.waiting.pop_back();
        }
        while self.waiting.front().is_some_and(|(_, ticket)| is_over(ticket)) {
            self.waiting.pop_front();
        }
    }

    fn is_there(&self) -> bool {
        self.all() > 0 || !self.waiting.is_empty()
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

    /// Nothing is ever given back.
    #[test]
    fn devices_whose_names_are_never_answered_leave_others_theirs() {
        for devices in [1, 16, 100, 240] {
            let mut turns = Turns::new(256, 16, |()| false);
            for _ in 0..1_000 {
                (0..devices).for_each(|number| turns.ask(host(number), ()));
            }
            while turns.next().is_some() {}
            let held: Vec<_> = turns.devices.values().map(|device| device.has).collect();
            assert!(held.iter().max() <= held.iter().min().map(|least| least + 1).as_ref(), "{held:?}");
            turns.ask(host(devices), ());
            assert_eq!(turns.next().map(|(other, ())| other), Some(host(devices)), "{devices} devices: {turns:?}");
        }
    }

    #[test]
    fn a_device_that_is_alone_has_its_share_and_is_forgotten() {
        let mut turns = Turns::new(256, 16, |ticket| *ticket == 99);
        turns.ask(host(1), 99);
        (0..20).for_each(|ticket| turns.ask(host(1), ticket));
        let taken: Vec<_> = std::iter::from_fn(|| turns.next()).map(|(_, ticket)| ticket).collect();
        assert_eq!(taken, Vec::from_iter(0..16), "in the order in which it asked");
        turns.give_back(host(1), false);
        assert_eq!(turns.next(), Some((host(1), 16)));
        while turns.next().is_some() {}
        (0..3).for_each(|_| turns.give_back(host(1), false));
        while turns.next().is_some() {}
        (0..16).for_each(|_| turns.give_back(host(1), false));
        assert!(turns.devices.is_empty() && turns.free == 256, "{turns:?}");
    }

    #[test]
    fn who_has_as_many_as_others_is_next_if_it_has_waited_for_longest() {
        let mut turns = Turns::new(1, 1, |()| false);
        [3, 2, 1].into_iter().for_each(|number| turns.ask(host(number), ()));
        let mut served = Vec::new();
        while let Some((next, ())) = turns.next() {
            served.push(next);
            turns.give_back(next, false);
            if served.len() < 6 {
                turns.ask(next, ());
            }
        }
        assert_eq!(served[..6], [3, 2, 1, 3, 2, 1].map(host));
    }

    #[test]
    fn names_that_are_never_answered_leave_a_devices_other_names_theirs() {
        let mut turns = Turns::new(256, 16, |_| false);
        (0..40).for_each(|ticket| turns.ask(host(1), ticket));
        let taken =
            |turns: &mut Turns<u32>| Vec::from_iter(std::iter::from_fn(|| turns.next().map(|(_, ticket)| ticket)));
        assert_eq!(taken(&mut turns), Vec::from_iter(0..16));
        turns.ask(host(1), 99);
        assert!(taken(&mut turns).is_empty());
        assert!((0..16).all(|_| turns.slows(host(1))), "all of them take long");
        let next = taken(&mut turns);
        assert_eq!(next[..3], [99, 16, 39], "the newest in turn with the oldest");
        assert_eq!(16 + next.len(), 29, "an eighth of those that are free then");
        assert!(!turns.slows(host(1)), "16 of them at most");
        (0..16).for_each(|_| turns.give_back(host(1), true));
        (0..next.len()).for_each(|_| turns.give_back(host(1), false));
        assert_eq!(turns.free, 256);
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
        assert!(turns.devices.is_empty() && turns.free == 64, "{turns:?}");
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
        assert!(lookups.turns.lock().devices.is_empty());
    }
}
