//! Recording what has come, once it is on disk: [`record`].

use super::refusals::{commit_problem, given_up};
use crate::access::receipts::Taken;
use crate::core::blocking::Turn;
use crate::core::state::Core;
use hoop_http::Problem;
use hoop_seal::Layout;
use hoop_spool::{Change, CommitError, Intake, State};
use hoop_units::ByteRange;
use std::sync::Arc;

/// The part of `range` that is whole records, if any. `range` starts at a border.
pub fn whole_records(layout: Layout, range: ByteRange) -> Option<ByteRange> {
    if range.end == layout.total() {
        return Some(range);
    }
    let record = layout.record_at(range.end)?;
    let end = layout.record(record).start;
    (end > range.start && end > layout.prelude_len()).then(|| ByteRange::new(range.start, end))
}

/// Waits until `range` is on disk and recorded, and tells delivery that there is more.
pub fn record(core: &Core, intake: &Intake, range: ByteRange, total: u64) -> Result<Taken, CommitError> {
    intake.set_total(total)?;
    let (state, stored) = match intake.commit(range, core.clock.unix()) {
        Ok(state) => (state, intake.stored()),
        // Another sender completed it while this one was still sending, or the service has it by another way.
        Err(CommitError::Ended(state)) if given_up(state, None).is_none() => {
            (state, [ByteRange::new(0, total)].into_iter().collect())
        }
        Err(error) => return Err(error),
    };
    if state == State::Stored && core.progress.running().contains(&intake.id()) {
        // Some of it is on its way already: the attempt that sends it began before all was here.
        let change = Change { state: Some(State::Delivering), ..Change::default() };
        core.spool.change_soon(intake.id(), &change, core.clock.unix())?;
    }
    if core.cut_through || state != State::Receiving {
        core.stored.notify_one();
    }
    core.committed.notify_waiters();
    Ok(Taken { id: intake.id(), state, total, stored })
}

/// Records it where the disk may be waited for, now that there is a turn.
pub async fn commit(
    turn: Turn,
    core: &Arc<Core>,
    intake: Intake,
    range: ByteRange,
    total: u64,
) -> Result<Taken, Problem> {
    let committed = turn.blocking(core, move |core| record(core, &intake, range, total)).await;
    committed.map_err(commit_problem)
}
