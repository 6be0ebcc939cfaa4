//! The bounded part of the queue that is held in memory: [`Window`].

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::string::String;
use hoop_units::{UnixTime, UploadId};

/// Entries of each list that are held at once: enough that the store is asked once in a while rather than for each upload,
/// few enough (some 50 KiB a list) for a router.
pub const WINDOW: usize = 256;

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
pub struct Entry {
    /// Its name.
    pub id: UploadId,
    /// Its destination's origin: uploads for the same origin wait together when it cannot be reached.
    pub origin: String,
    /// Its length.
    pub total: u64,
    /// Since when it is due: its place in the order.
    pub since: UnixTime,
}

/// What became of an offer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Offered {
    /// It is in the window.
    Taken,
    /// It was there already, or is being sent.
    Known,
    /// Its destination is waited for; the list is loaded again when that is over.
    Waits,
    /// The window is full; offer it again at the next [`crate::Output::Load`].
    Full,
}

/// How far a list has been loaded from the store.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Walk {
    /// Something may be there: load from the start.
    Restart,
    /// Loaded in part: go on. `again`: and then once more from the start.
    Under { again: bool },
    /// All of it was seen.
    Done,
}

/// One list's window.
#[derive(Clone, Debug)]
pub struct Window {
    entries: BTreeMap<(UnixTime, UploadId), Entry>,
    ids: BTreeSet<UploadId>,
    walk: Walk,
}

impl Window {
    pub const fn new() -> Self {
        Self { entries: BTreeMap::new(), ids: BTreeSet::new(), walk: Walk::Restart }
    }

    pub fn len(&self) -> usize {
        self.entries.len()
    }

    pub fn is_full(&self) -> bool {
        self.len() >= WINDOW
    }

    pub fn contains(&self, id: UploadId) -> bool {
        self.ids.contains(&id)
    }

    pub fn insert(&mut self, entry: Entry) {
        self.ids.insert(entry.id);
        self.entries.insert((entry.since, entry.id), entry);
    }

    /// Oldest first.
    pub fn iter(&self) -> impl Iterator<Item = &Entry> {
        self.entries.values()
    }

    pub fn remove(&mut self, id: UploadId) {
        self.retain(|entry| entry.id != id);
    }

    pub fn retain(&mut self, keep: impl Fn(&Entry) -> bool) {
        let ids = &mut self.ids;
        self.entries.retain(|_, entry| {
            let kept = keep(entry);
            if !kept {
                ids.remove(&entry.id);
            }
            kept
        });
    }

    /// The store may hold what was not seen.
    pub fn more(&mut self) {
        self.walk = match self.walk {
            Walk::Restart | Walk::Done => Walk::Restart,
            Walk::Under { .. } => Walk::Under { again: true },
        };
    }

    /// Whether to load now, and whether from the start. Half empty is early enough, and asks the store seldom.
    pub fn wants(&mut self) -> Option<bool> {
        if self.entries.len() > WINDOW / 2 {
            return None;
        }
        match self.walk {
            Walk::Restart => {
                self.walk = Walk::Under { again: false };
                Some(true)
            }
            Walk::Under { .. } => Some(false),
            Walk::Done => None,
        }
    }

    /// The store has no more.
    pub fn all_seen(&mut self) {
        self.walk = match self.walk {
            Walk::Under { again: true } | Walk::Restart => Walk::Restart,
            Walk::Under { again: false } | Walk::Done => Walk::Done,
        };
    }
}
