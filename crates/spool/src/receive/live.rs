//! An upload that is being received: [`Live`].

use crate::disk::checksums::Checksums;
use crate::disk::segments::Body;
use crate::model::upload::Offer;
use hoop_units::{RangeSet, UploadId};
use parking_lot::{Mutex, MutexGuard};

/// An upload that is being received: shared by its senders, gone with the last.
pub struct Live {
    pub id: UploadId,
    pub body: Body,
    /// One commit at a time; what changes `stored` otherwise waits for it, too.
    commit: Mutex<()>,
    state: Mutex<LiveState>,
}

pub struct LiveState {
    /// What its senders said of it. The prelude may come later than the first of them.
    pub offer: Offer,
    pub total: Option<u64>,
    /// On disk, synced, recorded. Only a commit changes it, and there is one at a time.
    pub stored: RangeSet,
    /// In the file, `stored` included.
    pub written: RangeSet,
    /// The checksums of records that are written and not recorded.
    pub sums: Checksums,
    /// Bytes that room is promised for.
    pub promised: u64,
    /// Pens there are. The first is counted, and each leaves, while the map of what is being received is locked, so that the last to leave
    /// knows it.
    pub senders: usize,
    /// There is a row for it, whatever that says is stored: a repair may have left nothing.
    pub recorded: bool,
    /// The name of its own file is on disk.
    pub named: bool,
    /// A sync failed: the kernel may have dropped pages, so nothing more is recorded until everyone has left.
    pub broken: bool,
    /// Whether its payload was let go meanwhile: the last sender removes it.
    pub ended: bool,
}

impl Live {
    /// `recorded`: the index knows it, and its file has its name.
    pub fn new(offer: Offer, body: Body, stored: RangeSet, written: RangeSet, recorded: bool) -> Self {
        let (id, total) = (offer.id, offer.total);
        let (promised, senders, sums) = (0, 0, Checksums::default());
        let (named, broken, ended) = (recorded, false, false);
        let state =
            LiveState { offer, total, stored, written, sums, promised, senders, recorded, named, broken, ended };
        Self { id, body, commit: Mutex::new(()), state: Mutex::new(state) }
    }

    /// Until this is dropped, nobody else commits.
    pub fn one_at_a_time(&self) -> MutexGuard<'_, ()> {
        self.commit.lock()
    }

    /// A later message may bring another deadline.
    pub fn set_deadline(&self, offer: &Offer) {
        let mut state = self.state();
        state.offer.deadline = offer.deadline.or(state.offer.deadline);
    }

    pub fn state(&self) -> MutexGuard<'_, LiveState> {
        self.state.lock()
    }
}
