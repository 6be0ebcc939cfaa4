//! What has come of a long body is committed while the rest still comes: [`Checkpointer`].
//!
//! So a crash, or a device that walks off, costs the last moments of it and not the whole message, and what is stored can leave at once.
//! The socket does not wait for the disk: a step runs beside it, one at a time, and the writes go on meanwhile.

use super::commit::{record, whole_records};
use crate::core::state::Core;
use hoop_seal::Layout;
use hoop_spool::Intake;
use hoop_units::ByteRange;
use std::sync::Arc;
use std::time::Duration;
use tokio::task::JoinHandle;
use tokio::time::Instant;

/// The least time between two steps of a body. Each is a sync and a transaction: one a second is nothing to a disk that takes the body
/// itself, and what comes in a second is soon sent again.
const STEP_TIME: Duration = Duration::from_secs(1);

/// A step has so much at least, as long as more comes: a slow sender must not wear a flash chip out with a sync each second.
const STEP_BYTES: u64 = 1 << 20;

/// Whatever there is, a whole record at least, is committed after so long: a sender that has fallen silent may be gone.
const STILL_TIME: Duration = Duration::from_secs(5);

/// The steps of one body whose length is known.
pub struct Checkpointer {
    core: Arc<Core>,
    layout: Layout,
    /// Up to where it is committed, or being so.
    done: u64,
    /// When the last step began, or the body.
    last: Instant,
    under_way: Option<JoinHandle<()>>,
}

impl Checkpointer {
    /// Of a body that begins at `from`.
    pub fn new(core: &Arc<Core>, layout: Layout, from: u64) -> Self {
        Self { core: core.clone(), layout, done: from, last: Instant::now(), under_way: None }
    }

    /// When the next step is due if nothing more comes; `None`: there is nothing for one.
    pub fn due(&self, written: u64) -> Option<Instant> {
        if written <= self.done {
            return None;
        }
        whole_records(self.layout, ByteRange::new(self.done, written))?;
        let wait = if written - self.done >= STEP_BYTES { STEP_TIME } else { STILL_TIME };
        // One that is under way is looked at again in a while.
        let under_way = self.under_way.as_ref().is_some_and(|step| !step.is_finished());
        Some(if under_way { Instant::now().max(self.last) + STEP_TIME } else { self.last + wait })
    }

    /// Begins a step if one is due, now that everything up to `written` is in the file.
    pub fn look(&mut self, intake: &Intake, written: u64) {
        let now = Instant::now();
        if self.due(written).is_none_or(|due| due > now) {
            return;
        }
        let Some(range) = whole_records(self.layout, ByteRange::new(self.done, written)) else { return };
        (self.done, self.last) = (range.end, now);
        let (core, intake, total) = (self.core.clone(), intake.another(), self.layout.total());
        self.under_way = Some(tokio::task::spawn_blocking(move || {
            if let Err(error) = record(&core, &intake, range, total) {
                // The message's own end reports whatever is in the way.
                tracing::debug!(%error, "a step of a long body was not recorded");
            }
        }));
    }
}
