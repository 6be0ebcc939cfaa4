//! Group commit: [`Committer`].
//!
//! A transaction of the index costs one sync of its log, however much is in it. So whoever comes while another's is under way
//! waits for its end, as ever, and then the first of those who wait records what all of them have, in one transaction. Nobody waits for
//! company: a sender that is alone records at once.

use crate::error::StoreError;
use crate::index::{Index, Stored};
use crate::state::State;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// So many are recorded in one transaction: a log of a megabyte or so, which a slow disk takes in a fraction of a second.
const GROUP_MAX: usize = 64;

/// What became of a record: the upload's state, or the one that it had come to its end in.
pub type Outcome = Result<Result<State, State>, StoreError>;

/// Takes what waits to be recorded.
#[derive(Default)]
pub struct Committer {
    /// In the order of arrival. One of each sender at most.
    waiting: Mutex<Vec<Job>>,
}

struct Job {
    record: Arc<Stored>,
    outcome: Slot,
}

type Slot = Arc<Mutex<Option<Outcome>>>;

impl Committer {
    /// Records octets that are on disk and synced, alone or with what others have. `recorded` is called after each transaction.
    pub fn record(&self, index: &Mutex<Index>, record: &Arc<Stored>, recorded: impl Fn()) -> Outcome {
        let slot = Slot::default();
        self.waiting().push(Job { record: record.clone(), outcome: slot.clone() });
        // Here one waits for the transaction that is under way.
        let mut index = index.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            if let Some(outcome) = lock(&slot).take() {
                return outcome;
            }
            let mut waiting = self.waiting();
            let most = waiting.len().min(GROUP_MAX);
            let jobs: Vec<Job> = waiting.drain(..most).collect();
            drop(waiting);
            let records: Vec<&Stored> = jobs.iter().map(|job| &*job.record).collect();
            let outcomes = index.record_all(&records);
            recorded();
            for (job, outcome) in jobs.iter().zip(outcomes) {
                *lock(&job.outcome) = Some(outcome);
            }
        }
    }

    /// How many wait.
    #[cfg(test)]
    pub fn len(&self) -> usize {
        self.waiting().len()
    }

    fn waiting(&self) -> MutexGuard<'_, Vec<Job>> {
        lock(&self.waiting)
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
