//! What is in the cache, on disk and in memory, and what makes way for more: [`Index`]. Pure.
//!
//! Bounds: bytes in memory and on disk, [`ENTRIES_MAX`] in all, and [`VARIANTS_MAX`] of one URI. What was not used for the longest time makes way first. A file that is read takes its bytes on disk until it is let
//! go, whether its entry has made way or not. So it counts until then. What comes for a device and what it has read has one part in [`HELD_PART`] of the rest: it leaves some to the next.

use super::key::{Asker, Digest, Selector};
use hoop_endpoint::DeviceId;
use http::HeaderMap;
use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, HashMap};

/// The most entries. Each takes some 500 bytes of memory besides what is kept of it: 32 MiB.
pub(super) const ENTRIES_MAX: usize = 65_536;

/// The most of one URI: all of them are looked at for each request of it.
const VARIANTS_MAX: usize = 32;

/// What of the whole the entries of one device alone may take: one part in so many, so that it leaves room for what is for all.
const OWN_PART: u64 = 2;

/// What may come and be read for one device at once: one part in so many of what is neither coming nor read. A device that takes nothing has files stay.
const HELD_PART: u64 = 4;

/// How much there may be, in bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Limits {
    pub disk: u64,
    pub memory: u64,
    pub entries: usize,
}

/// A file of the cache, by its number, and what it takes on disk.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct OnDisk {
    pub number: u64,
    pub bytes: u64,
}

#[derive(Debug)]
struct Slot<T> {
    selector: Selector,
    disk: Option<OnDisk>,
    memory: Option<(u64, T)>,
    /// When it was used last, in the order of all uses.
    used: u64,
    /// When it came: of several that a request selects, the latest is meant.
    came: u64,
}

/// A file that is read.
#[derive(Default, Debug)]
struct Held {
    /// For whom, each as often as it is.
    readers: Vec<DeviceId>,
    /// What it takes on disk, as far as that is not counted as coming.
    bytes: u64,
    /// Whether an entry has it.
    is_kept: bool,
}

/// What is kept, by the names of the answers. `T`: what is in memory of one.
#[derive(Debug)]
pub(super) struct Index<T> {
    limits: Limits,
    slots: HashMap<Digest, Slot<T>>,
    targets: HashMap<Digest, Vec<Digest>>,
    /// Those on disk, and those in memory, by when they were used.
    on_disk: BTreeMap<u64, Digest>,
    in_memory: BTreeMap<u64, Digest>,
    disk: u64,
    memory: u64,
    /// Bytes of what is still coming, on disk, or in memory where there is no disk.
    coming: u64,
    /// Bytes of the entries of one device alone, on disk, or in memory where there is no disk.
    devices: HashMap<DeviceId, u64>,
    /// Files that are read, by their numbers.
    held: HashMap<u64, Held>,
    /// Bytes of them, and of those among them that no entry has any more.
    read: u64,
    lingering: u64,
    /// Bytes that come or are read for each device, on disk, or in memory where there is no disk.
    held_by: HashMap<DeviceId, u64>,
    /// URIs of what is being put on disk, and whether it is to be kept still.
    putting: BTreeMap<u64, (Digest, bool)>,
    clock: u64,
}

/// What a request selects.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Found<T> {
    InMemory(T),
    OnDisk(Digest, OnDisk),
    /// Something else of this URI is there.
    Variant,
    Nothing,
}

impl<T: Clone> Index<T> {
    pub(super) fn new(limits: Limits) -> Self {
        Self {
            limits,
            slots: HashMap::new(),
            targets: HashMap::new(),
            on_disk: BTreeMap::new(),
            in_memory: BTreeMap::new(),
            disk: 0,
            memory: 0,
            coming: 0,
            devices: HashMap::new(),
            held: HashMap::new(),
            read: 0,
            lingering: 0,
            held_by: HashMap::new(),
            putting: BTreeMap::new(),
            clock: 0,
        }
    }

    /// Bytes on disk and in memory, and entries.
    pub(super) fn usage(&self) -> (u64, u64, usize) {
        (self.disk + self.lingering, self.memory, self.slots.len())
    }

    /// How much there may be, on disk, or in memory where there is no disk.
    const fn whole(&self) -> u64 {
        if self.limits.disk > 0 { self.limits.disk } else { self.limits.memory }
    }

    /// What an entry takes of that.
    fn takes(&self, disk: Option<OnDisk>, memory: Option<&(u64, T)>) -> u64 {
        let (disk, memory) = (disk.map_or(0, |disk| disk.bytes), memory.map_or(0, |(bytes, _)| *bytes));
        if self.limits.disk > 0 { disk } else { memory }
    }

    /// When the latest entry of a URI came, in the order of all uses. 0: there is none.
    pub(super) fn latest(&self, target: Digest) -> u64 {
        let variants = self.targets.get(&target).into_iter().flatten();
        variants.filter_map(|id| self.slots.get(id)).map(|slot| slot.came).max().unwrap_or(0)
    }

    /// When an entry came, in the order of all uses.
    pub(super) fn came(&self, id: Digest) -> Option<u64> {
        Some(self.slots.get(&id)?.came)
    }

    /// Where an entry is on disk.
    pub(super) fn on_disk(&self, id: Digest) -> Option<OnDisk> {
        self.slots.get(&id)?.disk
    }

    /// What there is for a request. It counts as used.
    pub(super) fn find(&mut self, asker: &Asker, request: &HeaderMap) -> Found<T> {
        let Some(variants) = self.targets.get(&asker.target) else { return Found::Nothing };
        let selected = variants.iter().filter_map(|id| Some((id, self.slots.get(id)?)));
        let selected = selected.filter(|(_, slot)| slot.selector.selects(asker, request));
        let Some((&id, _)) = selected.max_by_key(|(_, slot)| slot.came) else { return Found::Variant };
        self.touch(id);
        let Some(slot) = self.slots.get(&id) else { return Found::Variant };
        match (&slot.memory, slot.disk) {
            (Some((_, entry)), _) => Found::InMemory(entry.clone()),
            (None, Some(disk)) => Found::OnDisk(id, disk),
            (None, None) => Found::Variant,
        }
    }

    /// Keeps an entry, on disk or in memory or both, instead of an earlier one of the same name. Returns the files that are not needed any more: the one that is given may be among them.
    pub(super) fn insert(&mut self, selector: Selector, disk: Option<OnDisk>, memory: Option<(u64, T)>) -> Vec<u64> {
        let id = selector.id();
        // A record that was written anew has the file that it had.
        let mut files: Vec<_> =
            self.remove(id).filter(|number| disk.is_none_or(|disk| disk.number != *number)).into_iter().collect();
        self.clock += 1;
        let (target, at) = (selector.target, self.clock);
        let of_device = selector.owner.map(|owner| owner.device);
        let memory = memory.filter(|(bytes, _)| *bytes <= self.limits.memory);
        if disk.is_none() && memory.is_none() {
            return files;
        }
        self.disk += disk.map_or(0, |disk| disk.bytes);
        if let Some(disk) = disk {
            self.set_held(disk.number, disk.bytes, true);
        }
        self.memory += memory.as_ref().map_or(0, |(bytes, _)| *bytes);
        if let Some(device) = of_device {
            let takes = self.takes(disk, memory.as_ref());
            *self.devices.entry(device).or_default() += takes;
        }
        if disk.is_some() {
            self.on_disk.insert(at, id);
        }
        if memory.is_some() {
            self.in_memory.insert(at, id);
        }
        self.slots.insert(id, Slot { selector, disk, memory, used: at, came: at });
        let variants = self.targets.entry(target).or_default();
        variants.push(id);
        let oldest = (variants.len() > VARIANTS_MAX).then(|| variants.iter().copied());
        let oldest = oldest.and_then(|ids| ids.min_by_key(|id| self.slots.get(id).map(|slot| slot.used)));
        files.extend(oldest.and_then(|oldest| self.remove(oldest)));
        of_device.into_iter().for_each(|device| files.extend(self.shrink_device(device)));
        files.extend(self.shrink());
        files
    }

    /// Something of this URI is being put on disk.
    pub(super) fn begin(&mut self, target: Digest) -> u64 {
        self.clock += 1;
        self.putting.insert(self.clock, (target, true));
        self.clock
    }

    /// It is there. Whether it is to be kept still: not if its URI has changed meanwhile.
    pub(super) fn finish(&mut self, begun: u64) -> bool {
        self.putting.remove(&begun).is_some_and(|(_, is_kept)| is_kept)
    }

    /// Keeps in memory, too, what was read from disk, if it is there still.
    pub(super) fn promote(&mut self, id: Digest, disk: OnDisk, bytes: u64, entry: T) -> Vec<u64> {
        let is_small = bytes <= self.limits.memory;
        let Some(slot) = self.slots.get_mut(&id).filter(|slot| is_small && slot.disk == Some(disk)) else {
            return Vec::new();
        };
        if slot.memory.is_none() {
            self.memory += bytes;
            self.in_memory.insert(slot.used, id);
            slot.memory = Some((bytes, entry));
        }
        self.shrink()
    }

    /// Whether so many bytes may come, on disk, or in memory where there is no disk: what is not used makes way for them, and what comes takes half at most. Returns files that are not
    /// needed any more.
    pub(super) fn reserve(&mut self, device: DeviceId, bytes: u64) -> Option<Vec<u64>> {
        if !self.may_hold(device, bytes) || self.coming.saturating_add(bytes) > self.whole() / 2 {
            return None;
        }
        self.coming += bytes;
        *self.held_by.entry(device).or_default() += bytes;
        Some(self.shrink())
    }

    /// Whether so many bytes may come or be read for a device.
    pub(super) fn may_hold(&self, device: DeviceId, bytes: u64) -> bool {
        let held = self.held_by.get(&device).copied().unwrap_or(0);
        let rest = self.whole().saturating_sub(self.read).saturating_sub(self.coming);
        held.saturating_add(bytes) <= rest / HELD_PART
    }

    /// A file is read for this device until it is [let go](Self::let_go). `bytes`: what it takes, if an entry has it; one that is coming has none yet.
    pub(super) fn hold(&mut self, number: u64, device: DeviceId, bytes: Option<u64>) {
        let held = self.held.entry(number).or_default();
        held.readers.push(device);
        *self.held_by.entry(device).or_default() += held.bytes;
        if let Some(bytes) = bytes {
            self.set_held(number, bytes, true);
        }
    }

    /// A file that [was held](Self::hold) for this device is closed.
    pub(super) fn let_go(&mut self, number: u64, device: DeviceId) {
        let Some(held) = self.held.get_mut(&number) else { return };
        if let Some(at) = held.readers.iter().position(|reader| *reader == device) {
            held.readers.swap_remove(at);
            let bytes = held.bytes;
            self.less_of(device, bytes);
        }
        let is_unread = |held: &mut Held| held.readers.is_empty();
        if let Entry::Occupied(mut held) = self.held.entry(number)
            && is_unread(held.get_mut())
        {
            let held = held.remove();
            self.read -= held.bytes;
            self.lingering -= if held.is_kept { 0 } else { held.bytes };
        }
    }

    /// A file that was coming has so many bytes, which do not come any more. They count until it is let go, or an entry has it.
    pub(super) fn leave(&mut self, device: DeviceId, number: u64, bytes: u64) {
        self.release(device, bytes);
        self.set_held(number, bytes, false);
    }

    /// What a file takes that is read, and whether an entry has it.
    fn set_held(&mut self, number: u64, bytes: u64, is_kept: bool) {
        let Some(held) = self.held.get_mut(&number) else { return };
        let before = if held.is_kept { 0 } else { held.bytes };
        let after = if is_kept { 0 } else { bytes };
        self.lingering = self.lingering - before + after;
        self.read = self.read - held.bytes + bytes;
        for reader in &held.readers {
            let of_device = self.held_by.entry(*reader).or_default();
            *of_device = of_device.saturating_sub(held.bytes) + bytes;
        }
        (held.bytes, held.is_kept) = (bytes, is_kept);
    }

    fn less_of(&mut self, device: DeviceId, bytes: u64) {
        if let Some(of_device) = self.held_by.get_mut(&device) {
            *of_device -= bytes;
            if *of_device == 0 {
                self.held_by.remove(&device);
            }
        }
    }

    /// So many bytes do not come any more, or have come.
    pub(super) fn release(&mut self, device: DeviceId, bytes: u64) {
        self.coming -= bytes.min(self.coming);
        self.less_of(device, bytes);
    }

    /// Removes an entry. Returns its file.
    pub(super) fn remove(&mut self, id: Digest) -> Option<u64> {
        let slot = self.slots.remove(&id)?;
        if let Some(variants) = self.targets.get_mut(&slot.selector.target) {
            variants.retain(|variant| *variant != id);
            if variants.is_empty() {
                self.targets.remove(&slot.selector.target);
            }
        }
        if slot.memory.is_some() {
            self.in_memory.remove(&slot.used);
        }
        let takes = self.takes(slot.disk, slot.memory.as_ref());
        if let Some(owner) = slot.selector.owner
            && let Some(bytes) = self.devices.get_mut(&owner.device)
        {
            *bytes -= takes;
            if *bytes == 0 {
                self.devices.remove(&owner.device);
            }
        }
        self.memory -= slot.memory.map_or(0, |(bytes, _)| bytes);
        let disk = slot.disk?;
        self.on_disk.remove(&slot.used);
        self.disk -= disk.bytes;
        self.set_held(disk.number, disk.bytes, false);
        Some(disk.number)
    }

    /// Removes an entry whose file cannot be read, if it has that file still.
    pub(super) fn remove_damaged(&mut self, id: Digest, disk: OnDisk) -> Option<u64> {
        let is_that = self.slots.get(&id).is_some_and(|slot| slot.disk == Some(disk));
        is_that.then(|| self.remove(id)).flatten()
    }

    /// Removes all of a URI, also what is being put on disk. Returns their files.
    pub(super) fn remove_target(&mut self, target: Digest) -> Vec<u64> {
        self.putting.values_mut().filter(|(of, _)| *of == target).for_each(|(_, is_kept)| *is_kept = false);
        let variants = self.targets.get(&target).cloned().unwrap_or_default();
        variants.into_iter().filter_map(|id| self.remove(id)).collect()
    }

    /// Removes what is of these devices alone. Returns their files.
    pub(super) fn forget(&mut self, is_gone: impl Fn(DeviceId) -> bool) -> Vec<u64> {
        let owned = |slot: &Slot<T>| slot.selector.owner.is_some_and(|owner| is_gone(owner.device));
        let gone: Vec<_> = self.slots.iter().filter(|(_, slot)| owned(slot)).map(|(id, _)| *id).collect();
        gone.into_iter().filter_map(|id| self.remove(id)).collect()
    }

    fn touch(&mut self, id: Digest) {
        let Some(slot) = self.slots.get_mut(&id) else { return };
        self.clock += 1;
        let (before, now) = (std::mem::replace(&mut slot.used, self.clock), self.clock);
        for order in [&mut self.on_disk, &mut self.in_memory] {
            if let Some(id) = order.remove(&before) {
                order.insert(now, id);
            }
        }
    }

    /// Has what was not used for the longest time make way.
    fn shrink(&mut self) -> Vec<u64> {
        let mut files = Vec::new();
        let (on_disk, in_memory) = if self.limits.disk > 0 { (self.coming, 0) } else { (0, self.coming) };
        while self.memory + in_memory > self.limits.memory {
            let Some((_, id)) = self.in_memory.pop_first() else { break };
            let Some(slot) = self.slots.get_mut(&id) else { continue };
            if slot.disk.is_none() {
                self.remove(id);
            } else {
                self.memory -= slot.memory.take().map_or(0, |(bytes, _)| bytes);
            }
        }
        while self.disk + on_disk + self.lingering > self.limits.disk {
            // One that is read makes no room.
            let is_read = |id: &Digest| {
                let disk = self.slots.get(id).and_then(|slot| slot.disk);
                disk.is_some_and(|disk| self.held.contains_key(&disk.number))
            };
            let Some(&id) = self.on_disk.values().find(|id| !is_read(id)) else { break };
            files.extend(self.remove(id));
        }
        while self.slots.len() > self.limits.entries {
            let oldest = [self.on_disk.first_key_value(), self.in_memory.first_key_value()].into_iter().flatten().min();
            let Some((_, &id)) = oldest else { break };
            files.extend(self.remove(id));
        }
        files
    }

    /// The same of what is of this device alone.
    fn shrink_device(&mut self, device: DeviceId) -> Vec<u64> {
        let mut files = Vec::new();
        while self.devices.get(&device).is_some_and(|bytes| *bytes > self.whole() / OWN_PART) {
            let is_its = |id: &&Digest| {
                let slot = self.slots.get(*id);
                slot.and_then(|slot| slot.selector.owner).is_some_and(|owner| owner.device == device)
            };
            let order = if self.limits.disk > 0 { &self.on_disk } else { &self.in_memory };
            let Some(&id) = order.values().find(is_its) else { break };
            files.extend(self.remove(id));
        }
        files
    }
}

#[cfg(test)]
mod tests {
    use super::super::key::Owner;
    use super::*;
    use http::Request;
    use rand_core::{Rng as _, SeedableRng as _};
    use rand_pcg::Pcg64Mcg;
    use std::collections::BTreeSet;

    const LIMITS: Limits = Limits { disk: 1_000, memory: 300, entries: 50 };

    fn asker(uri: u64, device: u8) -> (Asker, HeaderMap) {
        let (head, ()) = Request::get(format!("http://a.example/{uri}")).body(()).unwrap().into_parts();
        (Asker::of(&head, DeviceId([device; 20])), head.headers)
    }

    fn selector(uri: u64, owner: Option<u8>) -> Selector {
        let (asker, headers) = asker(uri, owner.unwrap_or(0));
        Selector::of(&asker, &headers, &HeaderMap::new(), owner.is_some(), false).unwrap()
    }

    fn on_disk(number: u64, bytes: u64) -> Option<OnDisk> {
        Some(OnDisk { number, bytes })
    }

    impl<T: Clone> Index<T> {
        fn check(&self, coming: &HashMap<DeviceId, u64>) {
            let disk: u64 = self.slots.values().filter_map(|slot| slot.disk).map(|disk| disk.bytes).sum();
            let memory: u64 = self.slots.values().filter_map(|slot| slot.memory.as_ref()).map(|kept| kept.0).sum();
            assert_eq!((self.disk, self.memory), (disk, memory));
            let lingering: u64 = self.held.values().filter(|held| !held.is_kept).map(|held| held.bytes).sum();
            let read: u64 = self.held.values().map(|held| held.bytes).sum();
            assert_eq!((self.read, self.lingering), (read, lingering));
            let is_kept =
                |number: u64| self.slots.values().any(|slot| slot.disk.is_some_and(|disk| disk.number == number));
            assert!(
                self.held.iter().all(|(number, held)| !held.readers.is_empty() && held.is_kept == is_kept(*number))
            );
            let mut held_by = coming.clone();
            for held in self.held.values() {
                held.readers.iter().for_each(|reader| *held_by.entry(*reader).or_default() += held.bytes);
            }
            held_by.retain(|_, bytes| *bytes > 0);
            let mut has = self.held_by.clone();
            has.retain(|_, bytes| *bytes > 0);
            assert_eq!(has, held_by);
            assert!(disk + self.coming + lingering <= self.limits.disk && memory <= self.limits.memory);
            assert!(self.slots.len() <= self.limits.entries);
            assert_eq!(self.on_disk.len(), self.slots.values().filter(|slot| slot.disk.is_some()).count());
            assert_eq!(self.in_memory.len(), self.slots.values().filter(|slot| slot.memory.is_some()).count());
            assert_eq!(self.targets.values().map(Vec::len).sum::<usize>(), self.slots.len());
            for (order, is_there) in [(&self.on_disk, true), (&self.in_memory, false)] {
                for (used, id) in order {
                    let slot = &self.slots[id];
                    assert_eq!(slot.used, *used);
                    assert!(if is_there { slot.disk.is_some() } else { slot.memory.is_some() });
                }
            }
        }
    }

    fn coming(reserved: &[(DeviceId, u64)]) -> HashMap<DeviceId, u64> {
        let mut coming = HashMap::new();
        reserved.iter().for_each(|(device, bytes)| *coming.entry(*device).or_default() += bytes);
        coming
    }

    #[test]
    fn bounds_hold_whatever_comes_and_each_file_goes_once() {
        for seed in 0..200 {
            let (mut rng, mut index) = (Pcg64Mcg::seed_from_u64(seed), Index::<u64>::new(LIMITS));
            let (mut number, mut files, mut reserved, mut readers) = (0, BTreeSet::new(), Vec::new(), Vec::new());
            for _ in 0..500 {
                let uri = rng.next_u64() % 80;
                let owner = (rng.next_u32() % 3 == 0).then_some((rng.next_u32() % 3) as u8);
                let gone = match rng.next_u32() % 10 {
                    8 => {
                        let (asker, headers) = asker(uri, owner.unwrap_or(0));
                        let reader = DeviceId([(rng.next_u32() % 3) as u8; 20]);
                        if let Found::OnDisk(_, disk) = index.find(&asker, &headers)
                            && index.may_hold(reader, disk.bytes)
                        {
                            index.hold(disk.number, reader, Some(disk.bytes));
                            readers.push((disk.number, reader));
                        }
                        Vec::new()
                    }
                    9 => {
                        let at = rng.next_u64() as usize % readers.len().max(1);
                        let reader = (at < readers.len()).then(|| readers.swap_remove(at));
                        reader.into_iter().for_each(|(number, reader)| index.let_go(number, reader));
                        Vec::new()
                    }
                    0..3 => {
                        number += 1;
                        let bytes = 1 + rng.next_u64() % 120;
                        let device = DeviceId([(rng.next_u32() % 3) as u8; 20]);
                        let room = (rng.next_u32() % 4 > 0).then(|| index.reserve(device, bytes)).flatten();
                        let disk = room.as_ref().and_then(|_| on_disk(number, bytes));
                        if disk.is_some() && rng.next_u32() % 4 == 0 {
                            // It was read while it came.
                            index.hold(number, device, None);
                            readers.push((number, device));
                            index.leave(device, number, bytes);
                            if rng.next_u32() % 4 == 0 {
                                // It is not kept after all.
                                assert!(room.unwrap_or_default().iter().all(|file| files.remove(file)), "seed {seed}");
                                index.check(&coming(&reserved));
                                continue;
                            }
                        } else {
                            disk.iter().for_each(|disk| index.release(device, disk.bytes));
                        }
                        files.extend(disk.map(|disk| disk.number));
                        let memory = (rng.next_u32() % 2 > 0).then(|| (1 + rng.next_u64() % 90, number));
                        [room.unwrap_or_default(), index.insert(selector(uri, owner), disk, memory)].concat()
                    }
                    3 => {
                        let (asker, headers) = asker(uri, owner.unwrap_or(0));
                        match index.find(&asker, &headers) {
                            Found::OnDisk(id, disk) => {
                                assert!(files.contains(&disk.number), "seed {seed}");
                                index.promote(id, disk, 50, number)
                            }
                            _ => Vec::new(),
                        }
                    }
                    4 => index.remove_target(selector(uri, None).target),
                    5 => {
                        let (device, bytes) = (DeviceId([(rng.next_u32() % 3) as u8; 20]), rng.next_u64() % 150);
                        let may = index.reserve(device, bytes);
                        reserved.extend(may.as_ref().map(|_| (device, bytes)));
                        may.unwrap_or_default()
                    }
                    6 => {
                        reserved.pop().into_iter().for_each(|(device, bytes)| index.release(device, bytes));
                        Vec::new()
                    }
                    _ => {
                        let gone = DeviceId([(rng.next_u32() % 20) as u8; 20]);
                        index.forget(|device| device == gone)
                    }
                };
                for file in gone {
                    assert!(files.remove(&file), "seed {seed}: {file} goes twice");
                }
                index.check(&coming(&reserved));
                assert_eq!(files.len(), index.on_disk.len(), "seed {seed}");
            }
        }
    }

    #[test]
    fn a_file_that_is_read_counts_until_it_is_let_go() {
        let mut index = Index::<u64>::new(LIMITS);
        let [slow, other] = [1, 2].map(|id| DeviceId([id; 20]));
        for uri in 0..10 {
            index.insert(selector(uri, None), on_disk(uri, 100), None);
        }
        for number in [0, 1] {
            assert!(index.may_hold(slow, 100));
            index.hold(number, slow, Some(100));
        }
        assert!(!index.may_hold(slow, 100) && index.may_hold(other, 100), "a quarter of the rest");
        assert_eq!(index.reserve(other, 100), Some(vec![2]), "what is read stays");
        assert!(!index.may_hold(other, 100), "what comes counts, too");
        index.release(other, 100);
        index.remove_target(selector(0, None).target);
        assert_eq!((index.usage(), index.lingering), ((900, 0, 8), 100), "its bytes are there still");
        for number in 3..10 {
            index.hold(number, DeviceId([number as u8; 20]), Some(100));
        }
        assert_eq!(index.reserve(other, 30), None, "it would leave nothing");
        assert_eq!(index.usage().2, 8, "and nothing has made way");
        index.let_go(0, slow);
        assert_eq!((index.usage(), index.lingering), ((800, 0, 8), 0));
        assert_eq!(index.reserve(other, 50), Some(Vec::new()));
        assert_eq!(index.reserve(other, 10), None);
    }

    /// Several began at once, each of which might have come alone.
    #[test]
    fn what_comes_for_devices_leaves_room_to_the_next() {
        for limits in [LIMITS, Limits { disk: 0, memory: LIMITS.disk, ..LIMITS }] {
            let mut index = Index::<u64>::new(limits);
            let had = (0..4).map(|id| {
                let device = DeviceId([id; 20]);
                (0..1_000).take_while(|_| index.reserve(device, 1).is_some()).count()
            });
            assert_eq!(had.collect::<Vec<_>>(), [200, 160, 128, 12], "and half of all at most: {limits:?}");
            (0..4).for_each(|id| index.release(DeviceId([id; 20]), 12));
            assert_eq!(index.coming, 500 - 4 * 12);
        }
    }

    #[test]
    fn what_was_not_used_for_longest_makes_way() {
        let mut index = Index::<u64>::new(LIMITS);
        for uri in 0..10 {
            assert!(index.insert(selector(uri, None), on_disk(uri, 100), None).is_empty());
        }
        let (first, headers) = asker(0, 0);
        assert!(matches!(index.find(&first, &headers), Found::OnDisk(_, OnDisk { number: 0, .. })));
        assert_eq!(index.insert(selector(10, None), on_disk(10, 150), None), [1, 2]);
        assert_eq!(index.usage(), (950, 0, 9));
    }

    #[test]
    fn what_is_put_on_disk_while_its_uri_changes_is_not_kept() {
        let mut index = Index::<u64>::new(LIMITS);
        let begun = [0, 1].map(|uri| index.begin(selector(uri, None).target));
        index.remove_target(selector(0, None).target);
        assert_eq!(begun.map(|begun| index.finish(begun)), [false, true]);
        assert!(!index.finish(begun[1]) && index.putting.is_empty());
    }

    #[test]
    fn one_device_alone_takes_half_at_most() {
        let mut index = Index::<u64>::new(LIMITS);
        index.insert(selector(0, None), on_disk(100, 300), None);
        for uri in 0..10 {
            index.insert(selector(uri, Some(1)), on_disk(uri, 100), None);
        }
        let (first, headers) = asker(0, 0);
        assert!(matches!(index.find(&first, &headers), Found::OnDisk(..)));
        assert_eq!(index.usage(), (800, 0, 6));
        let mut index = Index::<u64>::new(Limits { disk: 0, memory: 1_000, ..LIMITS });
        index.insert(selector(0, None), None, Some((300, 0)));
        for uri in 0..10 {
            index.insert(selector(uri, Some(1)), None, Some((100, uri)));
        }
        assert!(matches!(index.find(&first, &headers), Found::InMemory(0)));
        assert_eq!(index.usage(), (0, 800, 6), "in memory, too");
        index.forget(|_| true);
        assert!(index.devices.is_empty() && index.usage() == (0, 300, 1));
    }

    #[test]
    fn ten_thousand_entries_stay_within_the_bounds() {
        let mut index = Index::<u64>::new(Limits { disk: 1 << 20, memory: 64 << 10, entries: 1_000 });
        let mut files = 0;
        for uri in 0..10_000 {
            files += 1;
            files -= index.insert(selector(uri, None), on_disk(uri, 700), Some((100, uri))).len();
            let (disk, memory, entries) = index.usage();
            assert!(disk <= 1 << 20 && memory <= 64 << 10 && entries <= 1_000 && files == entries);
        }
        assert_eq!(index.usage(), (700_000, 65_500, 1_000));
    }

    #[test]
    fn a_uri_has_so_many_variants() {
        let mut index = Index::<u64>::new(Limits { disk: 1 << 30, memory: 0, entries: 1_000 });
        for device in 0..VARIANTS_MAX as u8 + 5 {
            index.insert(selector(0, Some(device)), on_disk(device.into(), 1), None);
        }
        assert_eq!(index.usage().2, VARIANTS_MAX);
        let owner = Owner { device: DeviceId([VARIANTS_MAX as u8; 20]), ..selector(0, Some(1)).owner.unwrap() };
        assert_eq!(index.forget(|device| device == owner.device).len(), 1);
    }
}
