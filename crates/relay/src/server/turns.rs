//! Who of several devices is next where there is not enough for all: [`Turns`]. Pure.
//!
//! Whoever has something keeps it for as long as it likes, so a few devices that take all they can would leave nothing to the next. Hence the less is free, the less a device may have: a part of what is free, and one
//! more. Of those that wait, whoever has fewest is next; of equals, whoever has waited for longest.
//!
//! What takes long is *slow*, where its owner says so: as much of it as of the other a device may have besides. While a device has any, its newest request takes turns with its oldest, which may be as slow.
//!
//! Bounds: what waits is a ticket for each connection that a device begins, of which it has a share.

use hoop_endpoint::DeviceId;
use std::collections::{BTreeMap, VecDeque};

/// Who has how many, and who waits.
#[derive(Debug)]
pub(super) struct Turns<T> {
    free: usize,
    of_device: usize,
    /// A device may have one of so many parts of what is free, and one more.
    part: usize,
    /// Whether nobody waits for a ticket any more.
    is_over: fn(&T) -> bool,
    /// Of those that have any, or wait.
    devices: BTreeMap<DeviceId, Device<T>>,
    /// How many have asked.
    asked: u64,
    /// How many tickets there are.
    waiting: usize,
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
    /// So many for all, of which a device has `of_device` at most, and one in `part` of those that are free.
    pub(super) const fn new(free: usize, of_device: usize, part: usize, is_over: fn(&T) -> bool) -> Self {
        Self { free, of_device, part, is_over, devices: BTreeMap::new(), asked: 0, waiting: 0 }
    }

    /// How many are free.
    pub(super) const fn free(&self) -> usize {
        self.free
    }

    /// Whether nobody has any, or waits.
    #[cfg(test)]
    pub(super) fn is_unused(&self) -> bool {
        self.devices.is_empty()
    }

    /// How many a device has that are not slow.
    pub(super) fn has(&self, host: DeviceId) -> usize {
        self.devices.get(&host).map_or(0, |device| device.has)
    }

    /// The most that a device may have now.
    const fn most(&self) -> usize {
        1 + self.free / self.part
    }

    /// This device wants one more.
    pub(super) fn ask(&mut self, host: DeviceId, ticket: T) {
        let device = self.devices.entry(host).or_insert_with(Device::new);
        self.waiting -= device.forget(self.is_over);
        device.waiting.push_back((self.asked, ticket));
        (self.asked, self.waiting) = (self.asked + 1, self.waiting + 1);
    }

    /// Whose turn it is, if it is anybody's: of those that wait and may have one more, who has fewest.
    pub(super) fn next(&mut self) -> Option<(DeviceId, T)> {
        if self.free == 0 || self.waiting == 0 {
            return None;
        }
        self.devices.retain(|_, device| {
            self.waiting -= device.forget(self.is_over);
            device.is_there()
        });
        let (of_device, most) = (self.of_device, self.most());
        let may = self.devices.iter_mut().filter(|(_, device)| device.has < of_device && device.all() < most);
        let first = may.filter_map(|(host, device)| Some(((device.all(), device.waiting.front()?.0), host, device)));
        let (_, host, device) = first.min_by_key(|(order, ..)| *order)?;
        device.was_newest = device.slow > 0 && !device.was_newest;
        let next = if device.was_newest { device.waiting.pop_back() } else { device.waiting.pop_front() };
        let (_, ticket) = next?;
        device.has += 1;
        (self.free, self.waiting) = (self.free - 1, self.waiting - 1);
        Some((*host, ticket))
    }

    /// One for this device, if it may have one more. Those that wait may not, or it would have been their turn.
    pub(super) fn take_now(&mut self, host: DeviceId) -> bool {
        let has = self.devices.get(&host).map_or((0, 0), |device| (device.has, device.all()));
        let may = self.free > 0 && has.0 < self.of_device && has.1 < self.most();
        if may {
            self.devices.entry(host).or_insert_with(Device::new).has += 1;
            self.free -= 1;
        }
        may
    }

    /// Whether this device wants more than it may have now.
    pub(super) fn waits(&mut self, host: DeviceId) -> bool {
        let Some(device) = self.devices.get_mut(&host) else { return false };
        self.waiting -= device.forget(self.is_over);
        let (waits, is_there) = (!device.waiting.is_empty(), device.is_there());
        if !is_there {
            self.devices.remove(&host);
        }
        waits
    }

    /// One of this device's takes long. Whether it counts as slow from now on: there are not too many.
    pub(super) fn slows(&mut self, host: DeviceId) -> bool {
        let slow = self.devices.get_mut(&host).filter(|device| device.slow < self.of_device);
        slow.is_some_and(|device| {
            (device.has, device.slow) = (device.has - 1, device.slow + 1);
            true
        })
    }

    /// This device has one less.
    pub(super) fn give_back(&mut self, host: DeviceId, was_slow: bool) {
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

    /// Forgets the first that nobody waits for any more: who asked first gives up first, mostly. Returns how many.
    fn forget(&mut self, is_over: fn(&T) -> bool) -> usize {
        let before = self.waiting.len();
        while self.waiting.back().is_some_and(|(_, ticket)| is_over(ticket)) {
            self.waiting.pop_back();
        }
        while self.waiting.front().is_some_and(|(_, ticket)| is_over(ticket)) {
            self.waiting.pop_front();
        }
        before - self.waiting.len()
    }

    fn is_there(&self) -> bool {
        self.all() > 0 || !self.waiting.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn host(number: usize) -> DeviceId {
        DeviceId(std::array::from_fn(|at| (number >> (8 * (at % 4))) as u8))
    }

    /// Nothing is ever given back.
    #[test]
    fn devices_that_take_all_they_can_leave_others_theirs() {
        for (all, of_device, part, counts) in [(256, 16, 8, [1, 16, 100, 240]), (512, 512, 4, [1, 2, 8, 24])] {
            for devices in counts {
                let mut turns = Turns::new(all, of_device, part, |()| false);
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
    }

    #[test]
    fn devices_that_come_one_after_the_other_each_leave_some() {
        let mut turns = Turns::new(512, 512, 4, |()| false);
        let taken: Vec<_> = (0..16).map(|number| (0..512).filter(|_| turns.take_now(host(number))).count()).collect();
        assert_eq!((taken[0], taken[1], taken[15]), (103, 82, 4), "{taken:?}");
        assert_eq!(turns.free(), 512 - taken.iter().sum::<usize>());
    }

    #[test]
    fn a_device_that_is_alone_has_its_share_and_is_forgotten() {
        let mut turns = Turns::new(256, 16, 8, |ticket| *ticket == 99);
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
        assert!(turns.devices.is_empty() && turns.free == 256 && turns.waiting == 0, "{turns:?}");
        assert!((0..16).all(|_| turns.take_now(host(1))) && !turns.take_now(host(1)) && turns.take_now(host(2)));
    }

    #[test]
    fn who_has_as_many_as_others_is_next_if_it_has_waited_for_longest() {
        let mut turns = Turns::new(1, 1, 8, |()| false);
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
    fn what_takes_long_leaves_a_devices_other_requests_theirs() {
        let mut turns = Turns::new(256, 16, 8, |_| false);
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
}
