//! Group commit: [`Committer`].
//!
//! A transaction of the index costs one sync of its log, however much is in it. So whoever comes while another's is under way
//! waits for its end, and then the first of those who wait *leads*: it commits what all of them have, in one transaction, and tells each. Nobody waits for
//! company: who is alone commits at once. Who does not lead never touches the index, so that a group is not as many turns at its lock.

use crate::index::{Index, Rules, Step, Turn};
use crate::model::error::StoreError;
use rusqlite::Connection;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

/// So many are committed in one transaction: a log of a megabyte or so, which a slow disk takes in a fraction of a second.
const GROUP_MAX: usize = 64;

/// Commits what waits.
#[derive(Default)]
pub struct Committer {
    queue: Mutex<Queue>,
}

#[derive(Default)]
struct Queue {
    /// In the order of arrival. One of each sender and of each delivery at most.
    waiting: Vec<Arc<dyn Step>>,
    /// Somebody leads.
    is_led: bool,
}

/// A step, and what it came to last.
pub struct Job<T, W> {
    work: W,
    outcome: Mutex<Option<Result<T, StoreError>>>,
    turn: Mutex<Turn>,
    told: Condvar,
}

impl<T, W: Fn(&Connection, &Rules) -> Result<T, StoreError>> Job<T, W> {
    pub fn new(work: W) -> Self {
        Self { work, outcome: Mutex::default(), turn: Mutex::new(Turn::Waits), told: Condvar::new() }
    }

    /// `None`: it is still to be done.
    pub fn take_outcome(&self) -> Option<Result<T, StoreError>> {
        lock(&self.outcome).take()
    }

    /// Waits until it is done, or leads.
    fn wait(&self) -> Turn {
        let mut turn = lock(&self.turn);
        while *turn == Turn::Waits {
            turn = self.told.wait(turn).unwrap_or_else(PoisonError::into_inner);
        }
        *turn
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

    fn tell(&self, turn: Turn) {
        let before = std::mem::replace(&mut *lock(&self.turn), turn);
        // Who leads does not wait.
        if before == Turn::Waits {
            self.told.notify_one();
        }
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
        let mut queue = lock(&self.queue);
        queue.waiting.push(job.clone());
        if !std::mem::replace(&mut queue.is_led, true) {
            job.tell(Turn::Leads);
        }
        drop(queue);
        if job.wait() == Turn::Leads {
            self.lead(index, committed);
        }
        job.take_outcome().expect("who leads is the first of its group, and others are told when theirs is done")
    }

    /// Commits a group.
    fn lead(&self, index: &Mutex<Index>, committed: impl Fn()) {
        let group = {
            // Here one waits for whoever else uses the index; what comes meanwhile is of the group.
            let mut index = lock(index);
            let mut queue = lock(&self.queue);
            let most = queue.waiting.len().min(GROUP_MAX);
            let group: Vec<Arc<dyn Step>> = queue.waiting.drain(..most).collect();
            drop(queue);
            index.commit_all(&group);
            committed();
            group
        };
        // First the one that leads next, so that the index does not rest meanwhile.
        let mut queue = lock(&self.queue);
        match queue.waiting.first() {
            Some(next) => next.tell(Turn::Leads),
            None => queue.is_led = false,
        }
        drop(queue);
        group.iter().for_each(|step| step.tell(Turn::Done));
    }

    /// How many wait.
    #[cfg(test)]
    pub fn len(&self) -> usize {
        lock(&self.queue).waiting.len()
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
