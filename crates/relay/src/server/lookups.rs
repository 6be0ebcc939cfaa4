//! Whose name is looked up next: [`Lookups`].
//!
//! A lookup takes a thread until the resolver has answered, and nothing ends it sooner. So a few devices that ask for names whose servers never answer would hold all threads. Hence the fewer threads are
//! free, the fewer a device may have: an eighth of those that are free and one more. 16 devices that take all they can leave some 80 free, and 240 of them leave some. Whoever has fewest is next; of equals,
//! whoever has waited for longest.
//!
//! Bounds: what waits is a ticket for each connection that a device begins, of which it has a share.

use hoop_endpoint::DeviceId;
use parking_lot::Mutex;
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
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
            let _ = ticket.send(Lookup { lookups: self.clone(), host });
        }
    }
}

impl Drop for Lookup {
    fn drop(&mut self) {
        self.lookups.turns.lock().give_back(self.host);
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
    /// By when they asked.
    waiting: VecDeque<(u64, T)>,
}

impl<T> Turns<T> {
    fn new(free: usize, of_device: usize, is_over: fn(&T) -> bool) -> Self {
        Self { free, of_device, is_over, devices: BTreeMap::new(), asked: 0 }
    }

    /// This device wants one more.
    fn ask(&mut self, host: DeviceId, ticket: T) {
        let device = self.devices.entry(host).or_insert_with(|| Device { has: 0, waiting: VecDeque::new() });
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
        let most = self.of_device.min(1 + self.free / PART);
        let may = self.devices.iter_mut().filter(|(_, device)| device.has < most);
        let first = may.filter_map(|(host, device)| Some(((device.has, device.waiting.front()?.0), host, device)));
        let (_, host, device) = first.min_by_key(|(order, ..)| *order)?;
        let (_, ticket) = device.waiting.pop_front()?;
        device.has += 1;
        self.free -= 1;
        Some((*host, ticket))
    }

    /// This device has one less.
    fn give_back(&mut self, host: DeviceId) {
        self.free += 1;
        if let Some(device) = self.devices.get_mut(&host) {
            device.has -= 1;
            if !device.is_there() {
                self.devices.remove(&host);
            }
        }
    }
}

impl<T> Device<T> {
    /// The first that nobody waits for any more: who asked first gives up first, mostly.
    fn forget(&mut self, is_over: fn(&T) -> bool) {
        while self.waiting.front().is_some_and(|(_, ticket)| is_over(ticket)) {
            self.waiting.pop_front();
        }
    }

    fn is_there(&self) -> bool {
        self.has > 0 || !self.waiting.is_empty()
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
        turns.give_back(host(1));
        assert_eq!(turns.next(), Some((host(1), 16)));
        while turns.next().is_some() {}
        (0..3).for_each(|_| turns.give_back(host(1)));
        while turns.next().is_some() {}
        (0..16).for_each(|_| turns.give_back(host(1)));
        assert!(turns.devices.is_empty() && turns.free == 256, "{turns:?}");
    }

    #[test]
    fn who_has_as_many_as_others_is_next_if_it_has_waited_for_longest() {
        let mut turns = Turns::new(1, 1, |()| false);
        [3, 2, 1].into_iter().for_each(|number| turns.ask(host(number), ()));
        let mut served = Vec::new();
        while let Some((next, ())) = turns.next() {
            served.push(next);
            turns.give_back(next);
            if served.len() < 6 {
                turns.ask(next, ());
            }
        }
        assert_eq!(served[..6], [3, 2, 1, 3, 2, 1].map(host));
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
