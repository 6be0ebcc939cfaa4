//! Which uploads are leaving: [`Leaving`].
//!
//! A file that goes, a hole that is punched, and a row that is deleted may each take as long as a slow disk does. So nobody holds the map's lock
//! over them: an upload is marked as *leaving*, the lock is given back, and the mark is taken away when all is done. Whoever begins with
//! such an upload waits for that; everybody else goes on.

use crate::receive::live::Live;
use crate::receive::lives::Lives;
use crate::receive::shared::Shared;
use hoop_units::UploadId;
use parking_lot::MutexGuard;

/// Uploads that are leaving, until this is dropped.
pub struct Leaving<'a> {
    shared: &'a Shared,
    ids: Vec<UploadId>,
}

impl Leaving<'_> {
    /// Which they are, in the order in which they were asked for.
    pub fn ids(&self) -> &[UploadId] {
        &self.ids
    }
}

impl Drop for Leaving<'_> {
    fn drop(&mut self) {
        let mut lives = self.shared.lives();
        self.ids.iter().for_each(|id| _ = lives.leaving.remove(id));
        drop(lives);
        self.shared.left.notify_all();
    }
}

impl Shared {
    pub fn lives(&self) -> MutexGuard<'_, Lives> {
        self.lives.lock()
    }

    /// The same, once `id` is not leaving.
    pub fn lives_without(&self, id: UploadId) -> MutexGuard<'_, Lives> {
        let is_leaving = |lives: &mut Lives| lives.leaving.contains(&id);
        let mut lives = self.lives();
        self.left.wait_while(&mut lives, is_leaving);
        lives
    }

    /// Marks those of `ids` that nobody is at as leaving.
    pub fn leave(&self, ids: impl IntoIterator<Item = UploadId>) -> Leaving<'_> {
        let mut lives = self.lives();
        let ids = ids.into_iter().filter(|id| !lives.receiving.contains_key(id) && lives.leaving.insert(*id));
        let ids = ids.collect();
        Leaving { shared: self, ids }
    }

    /// One sender of an upload goes. It is marked as leaving if that was the last.
    pub fn leave_after(&self, live: &Live) -> Option<Leaving<'_>> {
        let mut lives = self.lives();
        let mut state = live.state();
        state.senders -= 1;
        if state.senders > 0 {
            return None;
        }
        lives.leaving.insert(live.id);
        drop((state, lives));
        Some(Leaving { shared: self, ids: vec![live.id] })
    }
}
