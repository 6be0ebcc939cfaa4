//! Which flows there are: [`Table`].

use crate::devices::Devices;
use crate::ends::Ends;
use crate::expiry::{Expiry, Ranks};
use crate::image::{Body, Image};
use crate::index::Index;
use crate::slab::{CHUNK_BYTES, Slab};
use crate::tails::Tails;
use alloc::collections::BTreeSet;
use core::hash::BuildHasher;
use hoop_flow::{DeviceId, FlowId, FlowName};
use hoop_units::UnixTime;

/// Where on a disk a record is; what the number means is the caller's.
pub type Place = u32;

/// The highest place. The bit above says that a flow is in memory.
pub const PLACE_MAX: Place = (1 << 31) - 2;

const IN_MEMORY: u32 = 1 << 31;

/// No place, no neighbour.
const NONE: u32 = u32::MAX;

/// Of an entry that was never written and is not in memory yet.
const NOWHERE: u32 = PLACE_MAX + 1;

/// The time at which what is attached expires.
const NEVER: u32 = u32::MAX;

/// Beyond this share of the memory, in 256ths, attached flows that are quiet are to be parked at once.
const CROWDED: usize = 224;

/// Where a flow stands in its life while it is in memory.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum Life {
    /// Attached, and busy.
    #[default]
    Live,
    /// Attached, and nothing is to be said.
    Quiet,
    /// Attached to nothing.
    Parked,
}

/// What time it is for what. By a clock that is right all are the same.
#[derive(Clone, Copy, Debug)]
pub struct Times {
    /// The time.
    pub now: UnixTime,
    /// What expired before this has expired, beyond doubt.
    pub past: UnixTime,
    /// The same for what is known of how flows ended.
    pub ended: UnixTime,
}

impl From<UnixTime> for Times {
    fn from(now: UnixTime) -> Self {
        Self { now, past: now, ended: now }
    }
}

/// How many and how much.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Flows in all.
    pub flows: usize,
    /// Flows of one device.
    pub flows_per_host: u32,
    /// Bytes of memory for flows that are not spilled: 144 each, and what is kept with it, rounded up to 16.
    pub memory: usize,
    /// Flows of which is known how they ended.
    pub ends: usize,
    /// The same of one device, which does not push out others with them.
    pub ends_per_host: usize,
}

/// How long, in seconds.
#[derive(Clone, Copy, Debug)]
pub struct Lifetimes {
    /// How long an attached flow is quiet before it is to be parked.
    pub quiet: u32,
    /// How long after its deadline a flow expires.
    pub grace: u32,
    /// How long a flow is parked before it expires.
    pub age: u32,
    /// How long it is known how a flow ended.
    pub ends: u32,
}

/// There is no room for a new flow, or to take one from the disk.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Full {
    /// There are as many as there may be.
    #[error("as many flows as there may be")]
    Flows,
    /// The device has as many as it may have.
    #[error("as many flows as one device may have")]
    Host,
    /// The memory is full of flows that are attached, or that are not on disk.
    #[error("as many flows in memory as there may be")]
    Memory,
}

/// What time has made due.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Due {
    /// This attached flow is to be parked.
    Park(FlowName),
    /// This one has expired; it is to be removed.
    Expired(Id),
}

/// A flow of the table, until it is removed.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Id(u32);

/// What a table holds.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Usage {
    /// Flows in all.
    pub flows: usize,
    /// Of these in memory.
    pub resident: usize,
    /// Devices that have any.
    pub hosts: usize,
    /// Flows of which is known how they ended.
    pub ends: usize,
    /// Bytes that count against [`Limits::memory`].
    pub memory: usize,
    /// Bytes of everything, what is empty in chunks and hash tables included; not of how flows ended.
    pub allocated: usize,
}

/// What is kept of every flow: 12 bytes.
#[derive(Clone, Copy, Default, Debug)]
struct Entry {
    /// 32 bits of the name's hash.
    print: u32,
    /// Its slot and [`IN_MEMORY`], or its place.
    at: u32,
    /// In the order of expiry.
    rank: u32,
}

/// What is kept of a flow in memory: 144 bytes.
#[derive(Clone, Copy, Default, Debug)]
struct Slot {
    body: Body,
    entry: u32,
    host: u32,
    /// Where it was written last, or [`NONE`].
    place: u32,
    since: u32,
    /// Neighbours among the quiet or the parked.
    before: u32,
    after: u32,
    tail: u32,
    tail_len: u16,
    life: Life,
    /// What is at its place is not what is here.
    is_dirty: bool,
}

const _: () = assert!(size_of::<Entry>() == 12 && size_of::<Slot>() == 144);

impl Ranks for Slab<Entry> {
    fn rank(&self, entry: u32) -> u32 {
        self[entry].rank
    }

    fn set_rank(&mut self, entry: u32, rank: u32) {
        self[entry].rank = rank;
    }
}

/// Flows in the order in which they became what they are.
#[derive(Clone, Copy, Debug)]
struct List {
    first: u32,
    last: u32,
}

/// The flows of a server, by name. See the crate's page for what it costs.
#[derive(Debug)]
pub struct Table<S> {
    hasher: S,
    limits: Limits,
    lifetimes: Lifetimes,
    index: Index,
    entries: Slab<Entry>,
    expiry: Expiry,
    slots: Slab<Slot>,
    tails: Tails,
    tails_used: usize,
    hosts: Devices,
    quiet: List,
    parked: List,
    /// Entries of flows that are to be written. Of those in memory alone.
    dirty: BTreeSet<u32>,
    ends: Ends<u64, S>,
}

impl<S: BuildHasher + Clone> Table<S> {
    /// An empty table. Names are outside input: `hasher` is one that nobody can foresee.
    pub fn new(limits: Limits, lifetimes: Lifetimes, hasher: S) -> Self {
        let empty = List { first: NONE, last: NONE };
        Self {
            ends: Ends::new(limits.ends, limits.ends_per_host, lifetimes.ends, hasher.clone()),
            hasher,
            limits,
            lifetimes,
            index: Index::new(),
            entries: Slab::new(1, CHUNK_BYTES),
            expiry: Expiry::default(),
            slots: Slab::new(1, CHUNK_BYTES),
            tails: Tails::new(),
            tails_used: 0,
            hosts: Devices::new(),
            quiet: empty,
            parked: empty,
            dirty: BTreeSet::new(),
        }
    }

    // ---- finding ----

    /// Finds a flow. Of one that is spilled 32 bits are known: `is_at` reads whether the record at a place has this name.
    ///
    /// # Errors
    /// Those of `is_at`.
    pub fn find<E>(&self, name: FlowName, mut is_at: impl FnMut(Place) -> Result<bool, E>) -> Result<Option<Id>, E> {
        let print = self.print(name);
        for entry in self.index.find(print) {
            let Entry { print: known, at, .. } = self.entries[entry];
            let is_it = known == print
                && match slot_of(at) {
                    Some(slot) => self.name_of(slot) == name,
                    None => is_at(at)?,
                };
            if is_it {
                return Ok(Some(Id(entry)));
            }
        }
        Ok(None)
    }

    /// The flow of that name whose record is at this place.
    pub fn find_at(&self, name: FlowName, place: Place) -> Option<Id> {
        let print = self.print(name);
        let mut known = self.index.find(print).map(Id);
        known.find(|id| self.entries[id.0].print == print && self.place(*id) == Some(place))
    }

    /// How a flow ended, if that is known.
    pub fn ended(&self, name: FlowName) -> Option<u64> {
        self.ends.get(name).copied()
    }

    /// Where a flow was written last.
    pub fn place(&self, id: Id) -> Option<Place> {
        let at = self.entries[id.0].at;
        let place = slot_of(at).map_or(at, |slot| self.slots[slot].place);
        (place != NONE).then_some(place)
    }

    /// A flow as it stands, if it is in memory.
    pub fn image(&self, id: Id) -> Option<Image> {
        let slot = &self.slots[slot_of(self.entries[id.0].at)?];
        Some(Image {
            name: self.name_of_slot(slot),
            since: UnixTime(slot.since),
            is_attached: slot.life != Life::Parked,
            body: slot.body,
            tail: self.tails.get(slot.tail, slot.tail_len.into()).to_vec(),
        })
    }

    /// Where a flow stands; `None` if it is spilled.
    pub fn life(&self, id: Id) -> Option<Life> {
        slot_of(self.entries[id.0].at).map(|slot| self.slots[slot].life)
    }

    /// A flow that is to be written, any.
    pub fn first_dirty(&self) -> Option<Id> {
        self.dirty.first().map(|entry| Id(*entry))
    }

    /// What it holds.
    pub fn usage(&self) -> Usage {
        Usage {
            flows: self.entries.len(),
            resident: self.slots.len(),
            hosts: self.hosts.len(),
            ends: self.ends.len(),
            memory: self.memory(),
            allocated: self.entries.bytes()
                + self.slots.bytes()
                + self.tails.bytes()
                + self.expiry.bytes()
                + self.index.bytes()
                + self.hosts.bytes(),
        }
    }

    // ---- changes ----

    /// Puts a flow as it stands: one that is known, in memory or spilled, or a new one. It is to be written then ([`Table::written`]). For its room others are
    /// spilled, of which `may_spill` says that what is at their places will be found there.
    ///
    /// # Errors
    /// See [`Full`]; never for a flow that is in memory.
    pub fn put(
        &mut self,
        id: Option<Id>,
        image: &Image,
        life: Life,
        may_spill: impl Fn(Place) -> bool,
    ) -> Result<Id, Full> {
        let (id, host) = match id {
            Some(id) => (id, None),
            None => {
                let known = self.admit(image.name.device)?;
                self.make_room(image, &may_spill)?;
                self.ends.remove(image.name);
                let host = self.hosts.add(image.name.device, known, &self.hasher);
                (self.add_entry(image.name, NOWHERE, NEVER), Some(host))
            }
        };
        if self.life(id).is_none() {
            self.make_room(image, &may_spill)?;
            self.bring_in(id, image, host);
        }
        self.update(id, image, life);
        Ok(id)
    }

    /// Takes a flow that is to be attached. One that is spilled comes with what was read at its place.
    ///
    /// # Errors
    /// [`Full::Memory`] alone.
    pub fn take(&mut self, id: Id, read: Option<&Image>, may_spill: impl Fn(Place) -> bool) -> Result<(), Full> {
        if let Some(image) = read.filter(|_| self.life(id).is_none()) {
            self.make_room(image, &may_spill)?;
            self.bring_in(id, image, None);
        }
        let slot = slot_of(self.entries[id.0].at).expect("it is in memory now");
        self.set_life(slot, Life::Live);
        self.set_expires(id, NEVER);
        Ok(())
    }

    /// What is in memory of this flow is at this place now; returns where it was before.
    pub fn written(&mut self, id: Id, place: Place) -> Option<Place> {
        let before = self.moved(id, place);
        self.dirty.remove(&id.0);
        if let Some(slot) = slot_of(self.entries[id.0].at) {
            self.slots[slot].is_dirty = false;
        }
        before
    }

    /// What was at its place is at this one now; returns where it was.
    pub fn moved(&mut self, id: Id, place: Place) -> Option<Place> {
        debug_assert!(place <= PLACE_MAX, "places have 31 bits");
        let before = self.place(id);
        match slot_of(self.entries[id.0].at) {
            Some(slot) => self.slots[slot].place = place,
            None => self.entries[id.0].at = place,
        }
        before
    }

    /// What was written at such places is to be written again.
    pub fn lost(&mut self, is_lost: impl Fn(Place) -> bool) {
        let mut at = [self.parked.first, self.quiet.first];
        // What is live is on no list; there are as many as carriers have room for.
        for entry in self.index.iter() {
            if let Some(slot) = slot_of(self.entries[entry].at)
                && self.slots[slot].life == Life::Live
                && is_lost(self.slots[slot].place)
            {
                self.slots[slot].is_dirty = true;
                self.dirty.insert(entry);
            }
        }
        for at in &mut at {
            while *at != NONE {
                let slot = &mut self.slots[*at];
                if slot.place == NONE || is_lost(slot.place) {
                    slot.is_dirty = true;
                    self.dirty.insert(slot.entry);
                }
                *at = slot.after;
            }
        }
    }

    /// Removes a flow, and remembers how it ended if that is said; returns where it was written last.
    pub fn remove(&mut self, id: Id, name: FlowName, ended: Option<(u64, UnixTime)>) -> Option<Place> {
        let place = self.place(id);
        let entry = self.entries[id.0];
        if let Some(slot) = slot_of(entry.at) {
            self.take_out(slot);
        }
        self.dirty.remove(&id.0);
        self.expiry.remove(id.0, &mut self.entries);
        self.index.remove(entry.print, id.0);
        self.entries.remove(id.0);
        self.hosts.take_off(name.device, &self.hasher);
        if let Some((code, at)) = ended {
            self.ends.insert(name, code, at);
        }
        place
    }

    /// How a flow ended that is not in the table, as it was written down.
    pub fn remember(&mut self, name: FlowName, code: u64, at: UnixTime) {
        self.ends.insert(name, code, at);
    }

    /// Spills the flow that has been parked longest; whether there was one that may be.
    pub fn spill(&mut self, may_spill: impl Fn(Place) -> bool) -> bool {
        let slot = self.parked.first;
        if slot == NONE {
            return false;
        }
        let Slot { place, is_dirty, entry, .. } = self.slots[slot];
        if is_dirty || place == NONE || !may_spill(place) {
            return false;
        }
        self.take_out(slot);
        self.entries[entry].at = place;
        true
    }

    /// A flow that was found on the disk at the start: in place of `id`, of the same name, or a new one. Limits do not count.
    pub fn recovered(&mut self, id: Option<Id>, image: &Image, place: Place, now: UnixTime) -> Id {
        let since = if image.is_attached { now } else { image.since };
        let expires = self.expires(since, image.body.deadline);
        match id {
            Some(id) => {
                self.entries[id.0].at = place;
                self.set_expires(id, expires);
                id
            }
            None => {
                self.ends.remove(image.name);
                let known = self.hosts.find(image.name.device, &self.hasher);
                self.hosts.add(image.name.device, known, &self.hasher);
                self.add_entry(image.name, place, expires)
            }
        }
    }

    /// The next that is due. An attached flow that is to be parked is told once in [`Lifetimes::quiet`]; one that has expired until it is removed.
    pub fn due(&mut self, times: Times) -> Option<Due> {
        let Times { now, past, ended } = times;
        self.ends.forget_before(ended);
        let is_due = |expires: u32| expires != NEVER && expires <= past.as_secs();
        let first = self.expiry.first().filter(|(_, expires)| is_due(*expires));
        if let Some((first, _)) = first {
            return Some(Due::Expired(Id(first)));
        }
        let slot = self.quiet.first;
        if slot == NONE {
            return None;
        }
        let is_crowded = self.memory() / 256 >= self.limits.memory / 256 * CROWDED / 256;
        let since = UnixTime(self.slots[slot].since);
        // One since a time that is still to come has been so since before the clock was set back.
        let is_late = since > now || since.plus_secs(self.lifetimes.quiet) <= now;
        if !(is_late || is_crowded && since < now) {
            return None;
        }
        self.set_life(slot, Life::Quiet);
        self.slots[slot].since = now.as_secs();
        Some(Due::Park(self.name_of(slot)))
    }

    /// A parked flow that expires after this. Looks at all flows if there is none.
    pub fn later(&self, after: UnixTime) -> Option<Id> {
        self.expiry.later(after.as_secs(), NEVER).map(Id)
    }

    // ---- within ----

    fn print(&self, name: FlowName) -> u32 {
        self.hasher.hash_one((name.device.0, name.flow.0)) as u32
    }

    fn name_of(&self, slot: u32) -> FlowName {
        self.name_of_slot(&self.slots[slot])
    }

    fn name_of_slot(&self, slot: &Slot) -> FlowName {
        FlowName { device: self.hosts.id(slot.host), flow: FlowId(slot.body.flow) }
    }

    fn memory(&self) -> usize {
        self.slots.len() * size_of::<Slot>() + self.tails_used
    }

    /// Whether a device may have one flow more; its number, if it has any.
    fn admit(&self, host: DeviceId) -> Result<Option<u32>, Full> {
        if self.entries.len() >= self.limits.flows {
            return Err(Full::Flows);
        }
        let known = self.hosts.find(host, &self.hasher);
        let flows = known.map_or(0, |host| self.hosts.flows(host));
        if flows >= self.limits.flows_per_host { Err(Full::Host) } else { Ok(known) }
    }

    fn make_room(&mut self, image: &Image, may_spill: &impl Fn(Place) -> bool) -> Result<(), Full> {
        let need = size_of::<Slot>() + image.tail.len().next_multiple_of(16);
        while self.memory() + need > self.limits.memory {
            if !self.spill(may_spill) {
                return Err(Full::Memory);
            }
        }
        Ok(())
    }

    fn add_entry(&mut self, name: FlowName, at: u32, expires: u32) -> Id {
        let entry = self.entries.insert();
        let print = self.print(name);
        self.entries[entry] = Entry { print, at, rank: 0 };
        let entries = &self.entries;
        self.index.insert(print, entry, |entry| entries[entry].print);
        self.expiry.insert(entry, expires, &mut self.entries);
        Id(entry)
    }

    /// From the disk, or from nowhere, into memory, as a live flow; of a device whose number may be known.
    fn bring_in(&mut self, id: Id, image: &Image, host: Option<u32>) {
        let host = host.or_else(|| self.hosts.find(image.name.device, &self.hasher));
        let at = self.entries[id.0].at;
        let slot = self.slots.insert();
        let tail = self.tails.insert(&image.tail);
        self.tails_used += image.tail.len().next_multiple_of(16);
        self.slots[slot] = Slot {
            body: image.body,
            entry: id.0,
            host: host.expect("who has a flow is known"),
            place: if at == NOWHERE { NONE } else { at },
            since: image.since.as_secs(),
            before: NONE,
            after: NONE,
            tail,
            tail_len: image.tail.len() as u16,
            life: Life::Live,
            is_dirty: false,
        };
        self.entries[id.0].at = slot | IN_MEMORY;
    }

    fn update(&mut self, id: Id, image: &Image, life: Life) {
        let slot = slot_of(self.entries[id.0].at).expect("it is in memory");
        let known = self.slots[slot];
        if self.tails.get(known.tail, known.tail_len.into()) != image.tail {
            self.tails.remove(known.tail, known.tail_len.into());
            self.tails_used -= usize::from(known.tail_len).next_multiple_of(16);
            self.tails_used += image.tail.len().next_multiple_of(16);
            let tail = self.tails.insert(&image.tail);
            (self.slots[slot].tail, self.slots[slot].tail_len) = (tail, image.tail.len() as u16);
        }
        self.set_life(slot, life);
        let kept = &mut self.slots[slot];
        (kept.body, kept.since, kept.is_dirty) = (image.body, image.since.as_secs(), true);
        self.dirty.insert(id.0);
        let expires = match life {
            Life::Live | Life::Quiet => NEVER,
            Life::Parked => self.expires(image.since, image.body.deadline),
        };
        self.set_expires(id, expires);
    }

    fn expires(&self, since: UnixTime, deadline: u32) -> u32 {
        let age = since.plus_secs(self.lifetimes.age);
        let deadline = if deadline == 0 { age } else { UnixTime(deadline).plus_secs(self.lifetimes.grace) };
        age.min(deadline).as_secs().min(NEVER - 1)
    }

    fn set_expires(&mut self, id: Id, expires: u32) {
        self.expiry.change(id.0, expires, &mut self.entries);
    }

    /// Out of memory.
    fn take_out(&mut self, slot: u32) {
        self.unlink(slot);
        let Slot { tail, tail_len, .. } = self.slots[slot];
        self.tails.remove(tail, tail_len.into());
        self.tails_used -= usize::from(tail_len).next_multiple_of(16);
        self.slots.remove(slot);
    }

    /// Behind all others of that life.
    fn set_life(&mut self, slot: u32, life: Life) {
        self.unlink(slot);
        self.slots[slot].life = life;
        let list = match life {
            Life::Live => return,
            Life::Quiet => &mut self.quiet,
            Life::Parked => &mut self.parked,
        };
        let last = core::mem::replace(&mut list.last, slot);
        if last == NONE {
            list.first = slot;
        } else {
            self.slots[last].after = slot;
        }
        self.slots[slot].before = last;
    }

    fn unlink(&mut self, slot: u32) {
        let Slot { before, after, life, .. } = self.slots[slot];
        let list = match life {
            Life::Live => return,
            Life::Quiet => &mut self.quiet,
            Life::Parked => &mut self.parked,
        };
        if before == NONE {
            list.first = after;
        } else {
            self.slots[before].after = after;
        }
        if after == NONE {
            list.last = before;
        } else {
            self.slots[after].before = before;
        }
        let slot = &mut self.slots[slot];
        (slot.before, slot.after, slot.life) = (NONE, NONE, Life::Live);
    }
}

/// The slot of what is in memory.
fn slot_of(at: u32) -> Option<u32> {
    (at & IN_MEMORY != 0).then_some(at & !IN_MEMORY)
}
