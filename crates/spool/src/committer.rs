//! Group commit: [`Committer`].
//!
//! A transaction of the index costs one sync of its log, however much is in it. So whoever comes while another's is under way
//! waits for its end, as ever, and then the first of those who wait commits what all of them have, in one transaction. Nobody waits for
//! company: who is alone commits at once.

use crate::error::StoreError;
use crate::index::{Index, Rules};
use rusqlite::Connection;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// So many are committed in one transaction: a log of a megabyte or so, which a slow disk takes in a fraction of a second.
const GROUP_MAX: usize = 64;

/// What is committed whole or not at all.
pub trait Step: Send + Sync {
    /// Does it within a transaction; whether it could be done. If the transaction fails, it is done again in another.
    fn run(&self, tx: &Connection, rules: &Rules) -> bool;

    /// Notes that it could not be committed.
    fn fail(&self, error: StoreError);
}

/// Commits what waits.
#[derive(Default)]
pub struct Committer {
    /// In the order of arrival. One of each sender and of each delivery at most.
    waiting: Mutex<Vec<Arc<dyn Step>>>,
}

/// A step, and what it came to last.
pub struct Job<T, W> {
    work: W,
    outcome: Mutex<Option<Result<T, StoreError>>>,
}

impl<T, W: Fn(&Connection, &Rules) -> Result<T, StoreError>> Job<T, W> {
    pub fn new(work: W) -> Self {
        Self { work, outcome: Mutex::default() }
    }

    /// `None`: it is still to be done.
    pub fn take_outcome(&self) -> Option<Result<T, StoreError>> {
        lock(&self.outcome).take()
    }
}

impl<T: Send, W: Fn(&Connection, &Rules) -> Result<T, StoreError> + Send + Sync> Step for Job<T, W> {
    fn run(&self, tx: &Connection, rules: &Rules) -> bool {
        let outcome = (self.work)(tx, rules);
        let done = outcome.is_ok();
        *lock(&self.outcome) = Some(outcome);
        done
    }

    fn fail(&self, error: StoreError) {
        *lock(&self.outcome) = Some(Err(error));
    }
}

impl Committer {
    /// Commits what `work` does, alone or with what others have. `committed` is called after each transaction.
    pub fn commit<T: Send + 'static>(
        &self,
        index: &Mutex<Index>,
        work: impl Fn(&Connection, &Rules) -> Result<T, StoreError> + Send + Sync + 'static,
        committed: impl Fn(),
    ) -> Result<T, StoreError> {
        let job = Arc::new(Job::new(work));
        self.waiting().push(job.clone());
        // Here one waits for the transaction that is under way. What it came to is seen by others only after it.
        let mut index = lock(index);
        loop {
            if let Some(outcome) = job.take_outcome() {
                return outcome;
            }
            let mut waiting = self.waiting();
            let most = waiting.len().min(GROUP_MAX);
            let steps: Vec<Arc<dyn Step>> = waiting.drain(..most).collect();
            drop(waiting);
            index.commit_all(&steps);
            committed();
        }
    }

    /// How many wait.
    #[cfg(test)]
    pub fn len(&self) -> usize {
        self.waiting().len()
    }

    fn waiting(&self) -> MutexGuard<'_, Vec<Arc<dyn Step>>> {
        lock(&self.waiting)
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
