//! What has ended and is kept for its owner, who may hand it over again, makes way for the bytes of others: [`make_way`].
//!
//! Bounds: [`ROUND_MAX`] uploads at a time, the longest kept first, and no more than are needed.

use crate::core::Core;
use crate::room::Payer;
use crate::state::{Change, StoreError};
use crate::worker::note;

/// Uploads that are asked for at a time: one is enough for most that come.
const ROUND_MAX: usize = 16;

/// Whether anything is kept, of this payer or of anybody.
///
/// # Errors
/// If the index fails.
pub async fn is_any(core: &Core, of: Option<Payer>) -> Result<bool, StoreError> {
    Ok(!core.store.with(move |index| index.longest_kept(of, 1)).await?.is_empty())
}

/// Lets go of what is kept, of this payer or of anybody, until `over` bytes are free again or a round is done; whether that made any room.
///
/// # Errors
/// If the index fails.
pub async fn make_way(core: &Core, over: u64, of: Option<Payer>) -> Result<bool, StoreError> {
    let before = core.store.with(|index| index.stored()).await?;
    let kept = core.store.with(move |index| index.longest_kept(of, ROUND_MAX)).await?;
    let mut over = over;
    for id in &kept {
        let Some(upload) = core.store.load(*id).await? else { continue };
        note(core, *id, Change::LetGo).await?;
        over = over.saturating_sub(upload.room());
        if over == 0 {
            break;
        }
    }
    // What is let go may not be deleted at once.
    Ok(!kept.is_empty() && core.store.with(|index| index.stored()).await? < before)
}
