//! Group commit: [`Committer`].
//!
//! A sync costs the same, however much is in it. So whoever comes while another's is under way
//! waits for its end, and then the first of those who wait *leads*: it syncs what all of them have, records all of it, and tells each. Nobody waits for
//! company: who is alone commits at once. Who does not lead never touches the index, so that a group is not as many turns at its lock.

use crate::disk::segments::Segment;
use crate::index::{Durable, Index, Rules, Step, Terms, Turn};
use crate::model::error::StoreError;
use parking_lot::{Condvar, Mutex};
use rusqlite::Connection;
use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;

/// So many are committed together: their news is some 40 KiB, which a slow disk takes in a fraction of a second.
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
    terms: Terms,
    outcome: Mutex<Option<Result<T, StoreError>>>,
    turn: Mutex<Turn>,
    told: Condvar,
}

impl<T, W: Fn(&Connection, &Rules) -> Result<T, StoreError>> Job<T, W> {
    pub fn new(terms: Terms, work: W) -> Self {
        Self { work, terms, outcome: Mutex::default(), turn: Mutex::new(Turn::Waits), told: Condvar::new() }
    }

    /// `None`: it is still to be done.
    pub fn take_outcome(&self) -> Option<Result<T, StoreError>> {
        self.outcome.lock().take()
    }

    /// Waits until it is done, or leads.
    fn wait(&self) -> Turn {
        let mut turn = self.turn.lock();
        while *turn == Turn::Waits {
            self.told.wait(&mut turn);
        }
        *turn
    }
}

impl<T: Send, W: Fn(&Connection, &Rules) -> Result<T, StoreError> + Send + Sync> Step for Job<T, W> {
    fn terms(&self) -> &Terms {
        &self.terms
    }

    fn run(&self, tx: &Connection, rules: &Rules) -> bool {
        let outcome = (self.work)(tx, rules);
        let done = outcome.is_ok();
        *self.outcome.lock() = Some(outcome);
        done
    }

    fn fail(&self, error: StoreError) {
        *self.outcome.lock() = Some(Err(error));
    }

    fn tell(&self, turn: Turn) {
        let before = std::mem::replace(&mut *self.turn.lock(), turn);
        // Who leads does not wait.
        if before == Turn::Waits {
            self.told.notify_one();
        }
    }
}

/// What whoever leads asks of the disk, and tells.
pub trait Ground {
    /// Waits until a segment is on disk, and its name.
    fn sync(&self, segment: &Segment) -> io::Result<()>;

    /// A group is recorded; all that was recorded before and with it is on disk if it is `durable`.
    fn recorded(&self, durable: Durable);
}

impl Committer {
    /// Commits what `work` does, alone or with what others have.
    pub fn commit<T: Send + 'static>(
        &self,
        index: &Mutex<Index>,
        ground: &impl Ground,
        terms: Terms,
        work: impl Fn(&Connection, &Rules) -> Result<T, StoreError> + Send + Sync + 'static,
    ) -> Result<T, StoreError> {
        let job = Arc::new(Job::new(terms, work));
        let mut queue = self.queue.lock();
        queue.waiting.push(job.clone());
        if !std::mem::replace(&mut queue.is_led, true) {
            job.tell(Turn::Leads);
        }
        drop(queue);
        if job.wait() == Turn::Leads {
            self.lead(index, ground);
        }
        job.take_outcome().expect("who leads is the first of its group, and others are told when theirs is done")
    }

    /// Commits a group.
    fn lead(&self, index: &Mutex<Index>, ground: &impl Ground) {
        // Here one waits for whoever else uses the index; what comes meanwhile is of the group.
        drop(index.lock());
        let mut queue = self.queue.lock();
        let most = queue.waiting.len().min(GROUP_MAX);
        let group: Vec<Arc<dyn Step>> = queue.waiting.drain(..most).collect();
        drop(queue);
        let synced = sync(&group, ground);
        if !synced.is_empty() {
            let mut index = index.lock();
            let durable = index.commit_all(&synced);
            ground.recorded(durable);
        }
        // First the one that leads next, so that the index does not rest meanwhile.
        let mut queue = self.queue.lock();
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
        self.queue.lock().waiting.len()
    }
}

/// Syncs the segments of a group, each once. Those steps whose bytes are on disk; the others have failed.
fn sync(group: &[Arc<dyn Step>], ground: &impl Ground) -> Vec<Arc<dyn Step>> {
    let of = |step: &Arc<dyn Step>| step.terms().segment.as_ref().map(|segment| segment.number());
    let segments: BTreeMap<u64, &Segment> = group
        .iter()
        .filter_map(|step| step.terms().segment.as_deref())
        .map(|segment| (segment.number(), segment))
        .collect();
    let mut failed = BTreeMap::new();
    for (number, segment) in segments {
        let synced = match segment.is_broken() {
            true => Err(io::Error::other("an earlier sync of this segment failed")),
            false => ground.sync(segment),
        };
        if let Err(error) = synced {
            // The kernel says so once: a later sync would not.
            segment.set_broken();
            failed.insert(number, error);
        }
    }
    let mut synced = Vec::new();
    for step in group {
        match of(step).and_then(|number| failed.get(&number)) {
            Some(error) => step.fail(io::Error::new(error.kind(), error.to_string()).into()),
            None => synced.push(step.clone()),
        }
    }
    synced
}
