//! The index's connections, and how changes are committed together: [`SqliteIndex::in_group`].
//!
//! One caller leads: it takes all waiting changes into its transaction, syncs them, and tells each caller the outcome.
//!
//! Bounds: [`GROUP_MAX`] changes in one transaction.

use crate::model::Tag;
use crate::store::StoreError;
use hoop_units::UnixTime;
use parking_lot::{Mutex, MutexGuard};
use rusqlite::{Connection, TransactionBehavior};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;

/// Changes in one transaction: each takes some 50 µs, so that whoever comes last waits no longer than for the sync.
const GROUP_MAX: usize = 256;

/// The index in one SQLite file.
pub struct SqliteIndex {
    connection: Mutex<Connection>,
    /// Sees what is committed.
    reader: Mutex<Connection>,
    queue: Mutex<Queue>,
    /// Whether what was said to have failed may be in the log all the same, for whoever opens the index next.
    is_doubtful: AtomicBool,
    /// Settings that were used, and when, until the next change of settings notes it.
    pub(super) used: Mutex<BTreeMap<Tag, UnixTime>>,
    /// What is kept of all uploads that have ended, in bytes.
    pub(super) ended_max: u64,
}

/// A change within a transaction. It leaves its result elsewhere.
type Work = Box<dyn FnOnce(&Connection) -> Result<(), StoreError> + Send>;

/// Changes that wait for the next transaction. As many as there are callers.
#[derive(Default)]
struct Queue {
    waiting: Vec<Waiting>,
    /// Whether a caller leads a transaction for all, or was told to.
    leading: bool,
}

/// A waiting change, and how its caller is woken: alone, since many may wait.
struct Waiting {
    work: Work,
    /// It takes each word before the next comes.
    tell: mpsc::SyncSender<Told>,
}

/// What a caller hears that waits.
enum Told {
    /// Its change is synced, or failed.
    Outcome(Result<(), StoreError>),
    /// It is the first that waits, and leads the next transaction.
    Lead,
}

impl SqliteIndex {
    /// The index over these connections; `reader` sees what is committed.
    pub(super) fn new(connection: Connection, reader: Connection, ended_max: u64) -> Self {
        let (connection, reader) = (Mutex::new(connection), Mutex::new(reader));
        let (queue, used) = (Mutex::default(), Mutex::default());
        Self { connection, reader, queue, is_doubtful: AtomicBool::new(false), used, ended_max }
    }

    /// The connection that reads.
    pub(super) fn reader(&self) -> MutexGuard<'_, Connection> {
        self.reader.lock()
    }

    /// Makes a change together with those that wait, and returns once it is synced. One of the callers leads.
    pub(super) fn in_group<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Connection) -> Result<T, StoreError> + Send + 'static,
    ) -> Result<T, StoreError> {
        // A channel without bound takes memory for 31 results at once.
        let (put, made) = mpsc::sync_channel(1);
        self.wait_for(Box::new(move |transaction| {
            // The caller waits.
            let _ = put.send(work(transaction)?);
            Ok(())
        }))?;
        made.recv().map_err(|_| StoreError::Damaged("a change that was not made"))
    }

    /// Makes sure that what was said to have failed is in no log.
    pub(super) fn settle_doubt(&self) -> Result<(), StoreError> {
        match self.is_doubtful.load(Ordering::Acquire) {
            true => self.in_group(|_| Ok(())),
            false => Ok(()),
        }
    }

    /// Has the change made, and waits until it is synced.
    fn wait_for(&self, work: Work) -> Result<(), StoreError> {
        let (tell, told) = mpsc::sync_channel(1);
        let leads = {
            let mut queue = self.queue();
            queue.waiting.push(Waiting { work, tell });
            !std::mem::replace(&mut queue.leading, true)
        };
        if leads {
            self.lead();
        }
        loop {
            match told.recv() {
                Ok(Told::Outcome(outcome)) => return outcome,
                Ok(Told::Lead) => self.lead(),
                Err(_) => return Err(StoreError::Damaged("a transaction was given up")),
            }
        }
    }

    /// Makes the waiting changes in one transaction and tells their callers. The first of those that came meanwhile
    /// leads the next.
    fn lead(&self) {
        let group: Vec<_> = {
            let mut queue = self.queue();
            let len = queue.waiting.len().min(GROUP_MAX);
            queue.waiting.drain(..len).collect()
        };
        let (works, callers): (Vec<_>, Vec<_>) = group.into_iter().map(|one| (one.work, one.tell)).unzip();
        let outcomes = commit(&mut self.lock(), works, &self.is_doubtful);
        // Each waits for what it is told.
        callers.into_iter().zip(outcomes).for_each(|(tell, outcome)| drop(tell.send(Told::Outcome(outcome))));
        let mut queue = self.queue();
        match queue.waiting.first() {
            Some(next) => drop(next.tell.send(Told::Lead)),
            None => queue.leading = false,
        }
    }

    fn queue(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock()
    }

    /// A thread that panicked in here has rolled back what it did not commit.
    pub(in crate::store) fn lock(&self) -> MutexGuard<'_, Connection> {
        self.connection.lock()
    }
}

/// Makes these changes in one transaction, and returns what came of each. A change that fails is undone alone. If the
/// commit fails, none is made. Its frames may be in the log all the same, until others take their place.
fn commit(connection: &mut Connection, group: Vec<Work>, is_doubtful: &AtomicBool) -> Vec<Result<(), StoreError>> {
    let len = group.len();
    let made = || -> Result<Vec<_>, rusqlite::Error> {
        let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
        // Statements that stay prepared; those of [`rusqlite::Savepoint`] are parsed each time.
        let step = |sql| transaction.prepare_cached(sql)?.execute([]);
        let mut outcomes = Vec::with_capacity(len);
        for work in group {
            step("SAVEPOINT change")?;
            let outcome = work(&transaction);
            if outcome.is_err() {
                step("ROLLBACK TO change")?;
            }
            step("RELEASE change")?;
            outcomes.push(outcome);
        }
        if is_doubtful.load(Ordering::Acquire) {
            // A transaction that writes nothing would succeed without a sync. SQLite writes this also if it is the same.
            let layout = transaction.pragma_query_value(None, "user_version", |row| row.get::<_, i64>(0))?;
            transaction.pragma_update(None, "user_version", layout)?;
        }
        transaction.commit()?;
        Ok(outcomes)
    };
    let made = made();
    is_doubtful.store(made.is_err(), Ordering::Release);
    made.unwrap_or_else(|error| (0..len).map(|_| Err(same(&error))).collect())
}

/// The same failure, for each of several callers.
fn same(error: &rusqlite::Error) -> StoreError {
    match error {
        rusqlite::Error::SqliteFailure(code, text) => rusqlite::Error::SqliteFailure(*code, text.clone()).into(),
        _ => StoreError::Damaged("a transaction could not be made"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{Change, Marked, Payer};
    use crate::store::conformance::{done, progress};
    use crate::store::{ENDED_MAX, Index as _, Notes as _, SavedSettings as _};
    use hoop_units::UploadId;

    fn index() -> (tempfile::TempDir, SqliteIndex) {
        let dir = tempfile::tempdir().unwrap();
        let index = SqliteIndex::open(&dir.path().join("index.sqlite"), ENDED_MAX).unwrap();
        (dir, index)
    }

    /// Else each that is small would be synced alone, and whoever sends many of them would keep all others waiting.
    #[test]
    fn waiting_changes_share_one_transaction() {
        let (_dir, index) = index();
        let id = |n| UploadId([n; 16]);
        done(index.receive(&progress(1, 10), true).unwrap());
        let new = Marked::new(id(2), [1; 16], Payer::Owner([1; 16]), UnixTime(1), UnixTime(1_000));
        let settings = crate::model::Settings::default();
        let busy = index.lock();
        std::thread::scope(|scope| {
            // The first of them leads, and has its own change alone.
            scope.spawn(|| index.apply(id(1), Change::Pause, UnixTime(2)).unwrap());
            while !index.queue().leading || !index.queue().waiting.is_empty() {
                std::thread::yield_now();
            }
            scope.spawn(|| index.mark(new, Box::new(|marked| marked.paused = true)).unwrap());
            scope.spawn(|| index.save_settings([1; 16], Payer::Owner([1; 16]), &settings, UnixTime(2)).unwrap());
            scope.spawn(|| index.discard(id(3)).unwrap());
            scope.spawn(|| index.disposed(vec![id(3)]).unwrap());
            scope.spawn(|| index.forget_settings(UnixTime(2), 9).unwrap());
            while index.queue().waiting.len() < 5 {
                std::thread::yield_now();
            }
            drop(busy);
        });
        assert!(index.load(id(1)).unwrap().unwrap().paused && index.marked(id(2)).unwrap().unwrap().paused);
        assert!(index.settings(&[[1; 16]], UnixTime(3)).unwrap().is_some());
    }

    #[test]
    fn a_failed_change_is_undone_alone_in_its_transaction() {
        let (_dir, index) = index();
        let busy = index.lock();
        let outcomes = std::thread::scope(|scope| {
            let make = |n: u8, fails: bool, waiting: usize| {
                let index = &index;
                let made = scope.spawn(move || {
                    index.in_group(move |transaction| {
                        transaction.execute("INSERT INTO closed VALUES (?1)", [n])?;
                        if fails { Err(StoreError::Damaged("on purpose")) } else { Ok(n) }
                    })
                });
                // One after another; the first leads, and is no longer in the queue then.
                while !index.queue().leading || index.queue().waiting.len() != waiting {
                    std::thread::yield_now();
                }
                made
            };
            let made = [(1, false, 0), (2, true, 1), (3, false, 2)].map(|(n, fails, waiting)| make(n, fails, waiting));
            drop(busy);
            made.map(|made| made.join().unwrap().ok())
        });
        assert_eq!(outcomes, [Some(1), None, Some(3)]);
        let count = index.reader().query_row("SELECT count(*), sum(day) FROM closed", [], |row| {
            Ok((row.get::<_, u32>(0)?, row.get::<_, u32>(1)?))
        });
        assert_eq!(count.unwrap(), (2, 4));
    }
}
