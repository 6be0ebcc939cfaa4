//! What has ended and is kept for its owner, who may hand it over again, makes way when others need the room: [`make_way`].
//!
//! Bounds: [`ROUND_MAX`] uploads at a time, the longest kept first, and no more than are needed.

use crate::core::Core;
use crate::state::{Change, StoreError};
use crate::worker::note;

/// Uploads that are asked for at a time: one is enough for most that come.
const ROUND_MAX: usize = 16;

/// Lets go of what is kept until no more than `limit` bytes are stored, or nothing is kept any more; returns what is stored then.
///
/// # Errors
/// If the index fails.
pub async fn make_way(core: &Core, limit: u64) -> Result<u64, StoreError> {
    loop {
        let stored = core.store.with(|index| index.stored()).await?;
        if stored <= limit {
            return Ok(stored);
        }
        let kept = core.store.with(|index| index.longest_kept(ROUND_MAX)).await?;
        let mut over = stored - limit;
        for id in &kept {
            let Some(upload) = core.store.load(*id).await? else { continue };
            note(core, *id, Change::LetGo).await?;
            over = over.saturating_sub(upload.room());
            if over == 0 {
                break;
            }
        }
        let now = core.store.with(|index| index.stored()).await?;
        // Nothing is kept, or what is let go cannot be deleted.
        if now >= stored {
            return Ok(now);
        }
    }
}
