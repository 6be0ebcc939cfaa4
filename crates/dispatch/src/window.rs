//! The bounded part of the queue that is held in memory: [`Window`].

use crate::destinations::host;
use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::vec::Vec;
use hoop_units::{AddressKey, UnixTime, UploadId};

/// Devices of each list that are held at once: more than a household or an office has. Beyond it they take turns.
pub const DEVICES: usize = 32;

/// Uploads of each of them that are held at once: twice as many as are sent at once, so that the store is not asked for each.
pub const PER_DEVICE: usize = 8;

/// Entries of each list that are held at once: some 50 KiB, which a router has.
pub const WINDOW: usize = DEVICES * PER_DEVICE;

/// Of a device's held uploads so many may be for one host: the rest is room for others, should that one be slow.
pub const PER_HOST: usize = PER_DEVICE / 2;

/// So many of a device's uploads are looked at in one go for some that can be sent: a few milliseconds of a router's. Should these
/// all be for one destination that cannot be reached, the next are looked at a second later.
pub const SCAN_MAX: usize = 256;

/// Uploads shorter than this are small: a photo, a form. They are seconds even on a slow uplink.
pub const SMALL_BYTES: u64 = 1 << 20;

/// Which queue an entry comes from.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum List {
    /// To be sent.
    Send,
    /// To be sent, and small.
    Small,
    /// Sent; the service is to be asked what became of it.
    Ask,
}

impl List {
    /// Every list.
    pub const ALL: [Self; 3] = [Self::Send, Self::Small, Self::Ask];

    pub(crate) const fn index(self) -> usize {
        match self {
            Self::Send => 0,
            Self::Small => 1,
            Self::Ask => 2,
        }
    }
}

/// One upload that is due.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Entry<P> {
    /// Its name.
    pub id: UploadId,
    /// Its destination's origin: uploads for the same origin wait together when it cannot be reached.
    pub origin: String,
    /// Its length.
    pub total: u64,
    /// When it should be there, if anybody said.
    pub deadline: Option<UnixTime>,
    /// Its place in the order of its device: earliest deadline first (none is last), then oldest. The store's, unique.
    pub place: P,
}

/// What is held of one device.
#[derive(Clone, Debug)]
struct Held<P> {
    entries: BTreeMap<P, Entry<P>>,
    /// The last that was looked at.
    at: Option<P>,
    /// Where looking further than the first few goes on, should it have come to [`SCAN_MAX`] before.
    deep: Option<P>,
    scanned: usize,
    /// Some were passed over since enough for their destination are held.
    skipped: bool,
    /// Nothing more is looked at before the next refresh.
    done: bool,
}

impl<P> Held<P> {
    const fn new() -> Self {
        Self { entries: BTreeMap::new(), at: None, deep: None, scanned: 0, skipped: false, done: false }
    }
}

/// What a list asks of the store.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Want<P> {
    Devices { after: Option<AddressKey> },
    Entries { device: AddressKey, after: Option<P> },
}

/// One list's window.
#[derive(Clone, Debug)]
pub struct Window<P> {
    held: BTreeMap<AddressKey, Held<P>>,
    /// The last device that was taken from the store's list; none: begin with the first.
    after: Option<AddressKey>,
    /// The end of the store's list was met so often since the refresh; the second time everybody has been seen.
    ends: u8,
}

impl<P: Copy + Ord> Window<P> {
    pub const fn new() -> Self {
        Self { held: BTreeMap::new(), after: None, ends: 2 }
    }

    pub fn len(&self) -> usize {
        self.held.values().map(|held| held.entries.len()).sum()
    }

    pub fn is_empty(&self) -> bool {
        self.held.values().all(|held| held.entries.is_empty())
    }

    /// The held uploads of each device, in the order of the device.
    pub fn iter(&self) -> impl Iterator<Item = (AddressKey, impl Iterator<Item = &Entry<P>>)> {
        self.held.iter().map(|(device, held)| (*device, held.entries.values()))
    }

    /// The devices that have something.
    pub fn devices(&self) -> impl Iterator<Item = AddressKey> {
        self.held.iter().filter(|(_, held)| held.skipped || !held.entries.is_empty()).map(|(device, _)| *device)
    }

    pub fn retain(&mut self, keep: impl Fn(&Entry<P>) -> bool) {
        self.held.values_mut().for_each(|held| held.entries.retain(|_, entry| keep(entry)));
        self.drop_spent();
    }

    /// Takes an upload out that begins. Where more devices have something than are held, its device makes room for the next.
    pub fn begin(&mut self, device: AddressKey, id: UploadId) {
        if self.is_crowded() {
            self.held.remove(&device);
        }
        self.retain(|entry| entry.id != id);
    }

    /// The store may hold what was not seen, or in another order.
    pub fn refresh(&mut self) {
        if self.is_crowded() {
            self.held.clear();
        }
        // Begun in the middle, the list's end comes before everybody was seen.
        self.ends = u8::from(self.after.is_none());
        for held in self.held.values_mut() {
            *held = Held { deep: held.deep, ..Held::new() };
        }
    }

    /// What to ask of the store now, if anything. Half empty is early enough.
    pub fn wants(&self) -> Option<Want<P>> {
        if self.held.len() < DEVICES && self.ends < 2 {
            return Some(Want::Devices { after: self.after });
        }
        let hungry = |held: &Held<P>| !held.done && held.entries.len() <= PER_DEVICE / 2;
        let (device, held) = self.held.iter().find(|(_, held)| hungry(held))?;
        Some(Want::Entries { device: *device, after: held.at })
    }

    /// The next devices of the store's list; `last`: it has no more.
    pub fn take_devices(&mut self, devices: &[AddressKey], last: bool) {
        for device in devices {
            if self.held.len() >= DEVICES && !self.held.contains_key(device) {
                return;
            }
            self.held.entry(*device).or_insert_with(Held::new);
            self.after = Some(*device);
        }
        if last {
            self.after = None;
            self.ends += 1;
        }
    }

    /// The next of a device's uploads; `last`: the store has no more. `may_wait` says which are worth holding.
    pub fn take(&mut self, device: AddressKey, page: Vec<Entry<P>>, last: bool, may_wait: impl Fn(&Entry<P>) -> bool) {
        let Some(held) = self.held.get_mut(&device) else { return };
        let is_head = held.at.is_none();
        let before = held.at;
        let mut is_full = false;
        for entry in page {
            if held.entries.len() >= PER_DEVICE {
                is_full = true;
                break;
            }
            held.scanned += 1;
            held.at = Some(entry.place);
            let same = held.entries.values().filter(|other| host(&other.origin) == host(&entry.origin)).count();
            if !may_wait(&entry) {
                continue;
            }
            if same >= PER_HOST {
                held.skipped = true;
                continue;
            }
            held.entries.insert(entry.place, entry);
        }
        if last && !is_full {
            (held.done, held.deep) = (true, None);
        } else if held.at == before || held.scanned >= SCAN_MAX {
            // Or the store gave nothing and said that there was more.
            (held.done, held.deep) = (true, held.at);
        } else if is_head && !is_full {
            held.at = held.at.max(held.deep);
        }
        self.drop_spent();
    }

    /// Whether something was left out that a refresh would come to.
    pub fn is_unfinished(&self) -> bool {
        self.is_crowded()
            || self.held.values().any(|held| held.done && (held.deep.is_some() || held.entries.is_empty()))
    }

    /// More devices may have something than are held.
    pub fn is_crowded(&self) -> bool {
        self.held.len() >= DEVICES && self.ends < 2
    }

    /// A device of which nothing is left gives its place away, unless the store has more of it.
    fn drop_spent(&mut self) {
        self.held.retain(|_, held| !held.entries.is_empty() || !held.done || held.deep.is_some() || held.skipped);
    }
}
