//! What is in the cache, on disk and in memory, and what makes way for more: [`Index`]. Pure.
//!
//! Bounds: bytes in memory and on disk, [`ENTRIES_MAX`] in all, and [`VARIANTS_MAX`] of one URI. What was not used for the longest time makes way first.

use super::key::{Asker, Digest, Selector};
use hoop_endpoint::DeviceId;
use http::HeaderMap;
use std::collections::{BTreeMap, HashMap};

/// The most entries. Each takes some 500 bytes of memory besides what is kept of it: 32 MiB.
pub(super) const ENTRIES_MAX: usize = 65_536;

/// The most of one URI: all of them are looked at for each request of it.
const VARIANTS_MAX: usize = 32;

/// What of the whole the entries of one device alone may take: one part in so many, so that it leaves room for what is for all.
const OWN_PART: u64 = 2;

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
    devices: HashMap<DeviceId, u64>,
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
            putting: BTreeMap::new(),
            clock: 0,
        }
    }

    /// Bytes on disk and in memory, and entries.
    pub(super) fn usage(&self) -> (u64, u64, usize) {
        (self.disk, self.memory, self.slots.len())
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
        self.memory += memory.as_ref().map_or(0, |(bytes, _)| *bytes);
        if let Some(device) = of_device {
            *self.devices.entry(device).or_default() += disk.map_or(0, |disk| disk.bytes);
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
    pub(super) fn reserve(&mut self, bytes: u64) -> Option<Vec<u64>> {
        let all = if self.limits.disk > 0 { self.limits.disk } else { self.limits.memory };
        if self.coming.saturating_add(bytes) > all / 2 {
            return None;
        }
        self.coming += bytes;
        Some(self.shrink())
    }

    /// So many bytes do not come any more, or have come.
    pub(super) fn release(&mut self, bytes: u64) {
        self.coming -= bytes.min(self.coming);
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
        self.memory -= slot.memory.map_or(0, |(bytes, _)| bytes);
        let disk = slot.disk?;
        self.on_disk.remove(&slot.used);
        self.disk -= disk.bytes;
        if let Some(owner) = slot.selector.owner
            && let Some(bytes) = self.devices.get_mut(&owner.device)
        {
            *bytes -= disk.bytes;
            if *bytes == 0 {
                self.devices.remove(&owner.device);
            }
        }
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
            self.memory -= slot.memory.take().map_or(0, |(bytes, _)| bytes);
            if slot.disk.is_none() {
                self.remove(id);
            }
        }
        while self.disk + on_disk > self.limits.disk {
            let Some((_, &id)) = self.on_disk.first_key_value() else { break };
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
        while self.devices.get(&device).is_some_and(|bytes| *bytes > self.limits.disk / OWN_PART) {
            let is_its = |id: &&Digest| {
                let slot = self.slots.get(*id);
                slot.and_then(|slot| slot.selector.owner).is_some_and(|owner| owner.device == device)
            };
            let Some(&id) = self.on_disk.values().find(is_its) else { break };
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
        fn check(&self) {
            let disk: u64 = self.slots.values().filter_map(|slot| slot.disk).map(|disk| disk.bytes).sum();
            let memory: u64 = self.slots.values().filter_map(|slot| slot.memory.as_ref()).map(|kept| kept.0).sum();
            assert_eq!((self.disk, self.memory), (disk, memory));
            assert!(disk + self.coming <= self.limits.disk.max(self.coming) && memory <= self.limits.memory);
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

    #[test]
    fn bounds_hold_whatever_comes_and_each_file_goes_once() {
        for seed in 0..200 {
            let (mut rng, mut index) = (Pcg64Mcg::seed_from_u64(seed), Index::<u64>::new(LIMITS));
            let (mut number, mut files, mut reserved) = (0, BTreeSet::new(), Vec::new());
            for _ in 0..500 {
                let uri = rng.next_u64() % 80;
                let owner = (rng.next_u32() % 3 == 0).then_some((rng.next_u32() % 3) as u8);
                let gone = match rng.next_u32() % 8 {
                    0..3 => {
                        number += 1;
                        let disk =
                            (rng.next_u32() % 4 > 0).then(|| on_disk(number, 1 + rng.next_u64() % 120)).flatten();
                        files.extend(disk.map(|disk| disk.number));
                        let memory = (rng.next_u32() % 2 > 0).then(|| (1 + rng.next_u64() % 90, number));
                        index.insert(selector(uri, owner), disk, memory)
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
                        let bytes = rng.next_u64() % 300;
                        let may = index.reserve(bytes);
                        reserved.extend(may.as_ref().map(|_| bytes));
                        may.unwrap_or_default()
                    }
                    6 => {
                        reserved.pop().into_iter().for_each(|bytes| index.release(bytes));
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
                index.check();
                assert_eq!(files.len(), index.on_disk.len(), "seed {seed}");
            }
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
