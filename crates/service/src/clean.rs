//! What is over is cleared away: [`round`] each minute, [`sweep`] each day.
//!
//! Promises: nothing is over by a wall clock that has jumped (`docs/time.md`); what fails for one upload is logged, tried again the next time, and holds up no other.
//!
//! Bounds: [`ROUND_MAX`] rows of each kind a round; [`SWEEP_MAX`] bodies a sweep.

use crate::core::Core;
use crate::state::{Change, SETTINGS_LIFE, StoreError};
use crate::worker::note;
use hoop_timekeeper::Over;
use hoop_units::UnixTime;
use std::time::Duration;

/// Rows of each kind that are looked at in one round.
const ROUND_MAX: usize = 256;

/// How long an upload lives of which record 0 has not come: nobody knows whose it is, so that nobody can stop it. Senders begin with record 0; one
/// that is slower than that begins anew, as its answers tell it.
const HEADLESS_SECS: u32 = 3600;

/// A body without an upload is deleted when nobody has written to it for a day: a crash left it between two syncs.
const ORPHAN_SECS: u64 = 24 * 3600;

/// Bodies without an upload that one walk through the folder finds: a megabyte of ids.
const SWEEP_MAX: usize = 65_536;

/// Expires what is overdue, forgets what has no beginning, deletes bodies that are no longer needed, forgets what nobody asks for.
pub async fn round(core: &Core) {
    let over = core.over();
    let overdue = core.store.with(move |index| index.overdue(over, ROUND_MAX)).await;
    for id in logged("the index could not be asked for what is overdue", overdue) {
        logged("an upload could not be expired", note(core, id, Change::Expire).await);
    }
    let kept = core.store.with(move |index| index.kept(over, ROUND_MAX)).await;
    for id in logged("the index could not be asked for bodies that were kept long enough", kept) {
        logged("a body that was kept could not be let go", note(core, id, Change::LetGo).await);
    }
    let disposable = core.store.with(|index| index.disposable(ROUND_MAX)).await;
    for id in logged("the index could not be asked for bodies to delete", disposable) {
        logged("a body could not be deleted", core.store.dispose(id).await);
    }
    let past = core.clock.past(Duration::from_secs(HEADLESS_SECS.into()));
    let before = UnixTime(past.0.saturating_sub(HEADLESS_SECS));
    let headless = core.store.with(move |index| index.headless(before, ROUND_MAX)).await;
    for id in logged("the index could not be asked for what has no record 0", headless) {
        logged("what has no record 0 could not be forgotten", core.live.discard(core, id).await);
    }
    let forgotten = core.store.with(move |index| index.forget(over, ROUND_MAX)).await;
    logged("what is long over could not be forgotten", forgotten);
    let forgotten = core.store.with(move |index| index.forget_marks(over, ROUND_MAX)).await;
    logged("notes of what never came could not be forgotten", forgotten);
    let unused = core.clock.over(SETTINGS_LIFE).unwrap_or(Over::NOTHING).before;
    let forgotten = core.store.with(move |index| index.forget_settings(unused, ROUND_MAX)).await;
    logged("settings that nobody uses could not be forgotten", forgotten);
}

/// Deletes bodies that no upload has.
pub async fn sweep(core: &Core) {
    let orphans = core.store.orphans(ORPHAN_SECS, SWEEP_MAX).await;
    for id in logged("the bodies could not be looked through", orphans) {
        logged("a body without an upload could not be deleted", core.live.remove_orphan(core, id).await);
    }
}

fn logged<T: Default>(what: &'static str, result: Result<T, StoreError>) -> T {
    result.unwrap_or_else(|error| {
        tracing::error!(%error, "{what}");
        T::default()
    })
}
