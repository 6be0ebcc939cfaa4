//! What has come of a long body is committed while the rest still comes: [`Checkpoints`].
//!
//! So a crash, or a device that walks off, costs the last moments of it and not the whole message, and what is stored can leave at once.

use super::commit::{record, whole_records};
use super::refusals::commit_problem;
use crate::core::blocking::blocking;
use crate::core::state::Core;
use hoop_http::{Code, Problem};
use hoop_seal::Layout;
use hoop_spool::{CommitError, Intake};
use hoop_units::ByteRange;
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use tokio::task::JoinHandle;
use tokio::time::Instant;

/// When what has come of a body is committed.
pub enum Checkpoints {
    /// At its end alone: nobody knows of how much it is a part.
    Never,
    /// As time passes.
    Timed(Checkpointer),
    /// After each few MiB, and its sender is told of each.
    Told(ToldCheckpoints),
}

/// The least time between two checkpoints of a body. Each costs a sync and a transaction. One a second is little for a disk that takes the body
/// itself, and what comes in a second is soon sent again.
const LEAST_TIME: Duration = Duration::from_secs(1);

/// While more comes, a checkpoint waits for so many bytes: a slow sender must not wear a flash chip out with a sync each second.
const LEAST_BYTES: u64 = 1 << 20;

/// After so long whatever there is gets committed, if it is a whole record at least: a silent sender may be gone.
const STILL_TIME: Duration = Duration::from_secs(5);

/// The checkpoints of one body whose length is known. The socket does not wait for the disk: a checkpoint is made beside it, one at a time, and the
/// writes go on meanwhile.
pub struct Checkpointer {
    core: Arc<Core>,
    layout: Layout,
    /// Up to where it is committed, or is being committed.
    done: u64,
    /// When the last checkpoint began, or the body.
    last: Instant,
    under_way: Option<JoinHandle<()>>,
    /// Why nothing more is needed: what comes would stay on disk, and count for nobody.
    over: Arc<OnceLock<Problem>>,
}

impl Checkpointer {
    /// Of a body that begins at `from`.
    pub fn new(core: &Arc<Core>, layout: Layout, from: u64) -> Self {
        Self { core: core.clone(), layout, done: from, last: Instant::now(), under_way: None, over: Arc::default() }
    }

    /// When the next checkpoint is due if nothing more comes; `None`: there is nothing for one.
    pub fn due(&self, written: u64) -> Option<Instant> {
        if written <= self.done {
            return None;
        }
        whole_records(self.layout, ByteRange::new(self.done, written))?;
        let wait = if written - self.done >= LEAST_BYTES { LEAST_TIME } else { STILL_TIME };
        // While one is under way, the next one waits.
        let under_way = self.under_way.as_ref().is_some_and(|task| !task.is_finished());
        Some(if under_way { Instant::now().max(self.last) + LEAST_TIME } else { self.last + wait })
    }

    /// Begins a checkpoint if one is due, now that everything up to `written` is in the file.
    ///
    /// # Errors
    /// If an earlier one has found that the upload has ended.
    pub fn look(&mut self, intake: &Intake, written: u64) -> Result<(), Problem> {
        if let Some(problem) = self.over.get() {
            return Err(problem.clone());
        }
        let now = Instant::now();
        if self.due(written).is_none_or(|due| due > now) {
            return Ok(());
        }
        let Some(range) = whole_records(self.layout, ByteRange::new(self.done, written)) else { return Ok(()) };
        (self.done, self.last) = (range.end, now);
        let (core, intake, total) = (self.core.clone(), intake.another(), self.layout.total());
        let over = self.over.clone();
        self.under_way = Some(tokio::task::spawn_blocking(move || match record(&core, &intake, range, total) {
            Ok(taken) if taken.state.keeps_payload() => {}
            // The end of the message says how.
            Ok(_) => drop(over.set(Problem::new(Code::UploadConflict, "it was over before all of this came"))),
            Err(error @ CommitError::Ended(_)) => drop(over.set(commit_problem(error))),
            // The end of the message reports what is wrong.
            Err(error) => tracing::debug!(%error, "a checkpoint of a long body was not recorded"),
        }));
        Ok(())
    }
}

/// After so many bytes whole records are recorded while more come: what a break costs at most, and rare enough for the disk.
const TOLD_BYTES: u64 = 8 << 20;

/// The checkpoints of a part whose sender is told of each. It waits for them.
pub struct ToldCheckpoints {
    core: Arc<Core>,
    layout: Layout,
    /// Where the part begins.
    from: u64,
    /// How far the part was at the last checkpoint.
    last: u64,
    /// Tells the sender how far it is.
    tell: Box<dyn Fn(u64) + Send + Sync>,
}

impl ToldCheckpoints {
    /// Of a part that begins at `from`.
    pub fn new(core: &Arc<Core>, layout: Layout, from: u64, tell: impl Fn(u64) + Send + Sync + 'static) -> Self {
        Self { core: core.clone(), layout, from, last: from, tell: Box::new(tell) }
    }

    /// Whether it is time for one, now that the part is so far.
    pub fn is_due(&self, at: u64) -> bool {
        at - self.last >= TOLD_BYTES && at < self.layout.total()
    }

    /// Records the whole records of what is in the file, up to `written`, and says so.
    ///
    /// # Errors
    /// Why they could not be recorded.
    pub async fn make(&mut self, intake: Intake, written: u64) -> Result<(), Problem> {
        self.last = written;
        let Some(range) = whole_records(self.layout, ByteRange::new(self.from, written)) else { return Ok(()) };
        let total = self.layout.total();
        let recorded = blocking(&self.core, move |core| record(core, &intake, range, total)).await;
        recorded.map_err(commit_problem)?;
        (self.tell)(range.end);
        Ok(())
    }
}
