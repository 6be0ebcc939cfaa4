//! Makes way for new bytes: deletes bodies of ended uploads that are kept for their owners ([`make_way`]).
//!
//! Bounds: [`ROUND_MAX`] uploads at a time, the longest kept first, and no more than are needed.

use crate::model::Payer;
use crate::store::{Index, Store, StoreError};
use hoop_units::{UnixTime, UploadId};

/// Uploads that make way at once, in one transaction.
const ROUND_MAX: usize = 256;

/// Whether anything is kept, of this payer or of anybody.
///
/// # Errors
/// If the index fails.
pub async fn is_any(store: &Store, of: Option<Payer>) -> Result<bool, StoreError> {
    Ok(!store.with(move |index| index.longest_kept(of, 1)).await?.is_empty())
}

/// Lets go of kept uploads, of this payer or of anybody, until `over` bytes are free or a round is done. Returns
/// whether that made room.
///
/// # Errors
/// If the index fails.
pub async fn make_way(store: &Store, over: u64, of: Option<Payer>, now: UnixTime) -> Result<bool, StoreError> {
    let (before, ids) = store.with(move |index| Ok((index.stored()?, enough(index, over, of)?))).await?;
    if ids.is_empty() {
        return Ok(false);
    }
    store.let_go(ids, now).await?;
    Ok(store.with(|index| index.stored()).await? < before)
}

/// The uploads that have been kept the longest, until they make room for `over` bytes or a round is full.
fn enough(index: &dyn Index, over: u64, of: Option<Payer>) -> Result<Vec<UploadId>, StoreError> {
    let mut ids = Vec::new();
    let mut over = over;
    for id in index.longest_kept(of, ROUND_MAX)? {
        let Some(upload) = index.load(id)? else { continue };
        ids.push(id);
        over = over.saturating_sub(upload.room());
        if over == 0 {
            break;
        }
    }
    Ok(ids)
}
