//! The index: what is recorded of each upload, in SQLite.
//!
//! One transaction is open over many changes, and all that is asked sees them. What makes a change safe is its record in the
//! [`journal`]; SQLite commits (write-ahead log, `synchronous = FULL`) when the journal or the page cache has enough, and for changes that the journal
//! cannot repeat. All that the gateway asks at run time goes through an index of SQLite (`EXPLAIN QUERY PLAN` in the tests), so that nothing grows with the
//! length of the queue.

pub mod committer;
mod journal;
pub mod operation;
pub mod resource;
pub mod schema;

use crate::disk::checksums::{self, Checksums, Part};
use crate::disk::segments::{Extent, Segment};
use crate::index::journal::Journal;
use crate::index::operation::{Operation, Stored};
use crate::index::schema::{FORMAT, STEPS};
use crate::model::error::StoreError;
use crate::model::life::Overdue;
use crate::model::limits::KEEP_SECS;
use crate::model::state::State;
use crate::model::upload::{Change, Reason, Upload, decode_ranges, encode_ranges, undelivered};
use hoop_units::{AddressKey, RangeSet, UnixTime, UploadId};
use rusqlite::config::DbConfig;
use rusqlite::{Connection, ErrorCode, OptionalExtension as _, Row, Transaction, named_params, params};
use std::cell::Cell;
use std::collections::BTreeMap;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// Uploads shorter than this are in [`Queue::Small`] too.
pub const SMALL_BYTES: u64 = 1 << 20;

/// The longest that an upload is ever put off, in seconds: 6 h (`docs/protocol.md` §6). What is due later than that
/// was put off before the clock was set back, and is due now.
const LONGEST_WAIT_SECS: u32 = 6 * 60 * 60;

/// So many uploads at once are moved from those that wait to those that are due: one transaction of some 100 KiB.
const RIPEN_BATCH: usize = 512;

/// So many statements are kept compiled: all that are run again and again, some 40, of 7 KiB each. With fewer places than statements
/// each would be thrown out before it comes round again, and to compile one takes longer than to run it.
const STATEMENTS: usize = 64;

/// What is due, seen in one of three ways.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Queue {
    /// To be sent: `stored`, `delivering`, and what is there of `receiving` ones.
    Send,
    /// Those of them that are shorter than [`SMALL_BYTES`].
    Small,
    /// The service has them and is to be asked what became of them: `received` and `held`.
    Ask,
}

/// How many uploads are in one state, and how long they are together.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Tally {
    /// Uploads.
    pub uploads: u64,
    /// The sum of their lengths, in bytes of Z.
    pub bytes: u64,
}

/// A place in the order of what one device has due: earliest deadline first, those without last; then oldest first.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Place {
    deadline: i64,
    seq: i64,
}

impl Place {
    /// Before everything.
    pub const START: Self = Self { deadline: i64::MIN, seq: i64::MIN };
}

/// One upload that a device has due.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DueOf {
    /// Its name.
    pub id: UploadId,
    /// The service's post URL.
    pub dest: String,
    /// The length of Z.
    pub total: u64,
    /// Where it stands.
    pub state: State,
    /// When it should be at the service.
    pub deadline: Option<UnixTime>,
    /// When its ticket ends.
    pub expires: UnixTime,
    /// When its first bytes were recorded.
    pub created: UnixTime,
    /// Its place in the order of arrival.
    pub seq: u64,
    /// Where to go on from here.
    pub place: Place,
}

/// What a device has here.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Held {
    /// Uploads that keep their bytes.
    pub uploads: u64,
    /// Bytes of them.
    pub bytes: u64,
    /// Uploads that are at their services and have not ended: nothing is kept of them but their rows.
    pub away: u64,
    /// Uploads that wait for their preludes, the one that is asked about aside.
    pub early: usize,
    /// Bytes of the one that is asked about which are promised, or written and not recorded, whosever they are.
    pub own: u64,
}

/// An upload whose time is over.
pub struct Over {
    pub id: UploadId,
    pub state: State,
    /// Its prelude never came.
    pub early: bool,
}

/// What became of a record: the upload's state, or the one that it had come to its end in.
pub type Outcome = Result<Result<State, State>, StoreError>;

/// A file that counts.
pub struct KeptFile {
    pub seq: i64,
    /// Where its bytes are; `None`: in a file of its own.
    pub extent: Option<Extent>,
    pub prelude: Vec<u8>,
    pub total: u64,
}

/// What a change came to.
pub struct Changed {
    /// The upload's state now.
    pub state: State,
    /// What no longer counts, if the payload is to be removed.
    pub freed: Option<Freed>,
    /// Whether it came to its end with this.
    pub ended: bool,
    /// Whether it was at its service before, and nothing but its row here; and whether it is now.
    pub away: [bool; 2],
}

/// An upload whose time was over.
#[derive(Debug)]
pub struct TimedOut {
    /// What no longer counts, if its payload is to be removed.
    pub freed: Option<Freed>,
    /// Whether it was at its service, and nothing but its row here.
    pub was_away: bool,
}

/// Bytes that no longer count, and where they are.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Freed {
    /// How many counted.
    pub bytes: u64,
    /// The length of Z.
    pub total: u64,
    /// Where they are; `None`: in a file of the upload's own.
    pub extent: Option<Extent>,
}

/// The open transaction is committed when the page cache has so many bytes: it is not written out before, so that a full disk
/// cannot take half of it.
const CACHE_MAX: i32 = 512 << 10;

pub struct Index {
    db: Connection,
    rules: Rules,
    journal: Journal,
    /// Whether what SQLite's log said as this was opened is in the database, and on disk.
    is_checkpointed: bool,
    health: Arc<Health>,
    /// Commits that were refused, for tests.
    #[cfg(test)]
    pub refused: Arc<AtomicU64>,
}

/// How the index's disk does, also for who does not have the index.
#[derive(Default)]
pub struct Health {
    is_doubtful: AtomicBool,
    failures: AtomicU64,
}

impl Health {
    /// Whether what was said to have failed may be recorded all the same for whoever opens the index next. Once the index has
    /// [settled](Index::settle), it is not.
    pub fn is_doubtful(&self) -> bool {
        self.is_doubtful.load(Ordering::Acquire)
    }

    /// How many commits of SQLite have failed.
    pub fn failures(&self) -> u64 {
        self.failures.load(Ordering::Acquire)
    }

    fn doubts(&self, doubts: bool) {
        self.is_doubtful.fetch_or(doubts, Ordering::AcqRel);
    }
}

/// Whether all that was recorded is on disk.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Durable {
    Yes,
    /// It is written, and waits for the next sync.
    Later,
}

/// How a step is committed.
#[derive(Debug)]
pub struct Terms {
    /// What the journal is to have of it; `None`: it is not repeated, so SQLite commits it.
    pub news: Option<Vec<u8>>,
    /// It counts only once this is on disk.
    pub segment: Option<Arc<Segment>>,
    /// Whether whoever brings it waits until it is on disk.
    pub is_urgent: bool,
}

/// What is committed whole or not at all.
pub trait Step: Send + Sync {
    /// How it is to be committed.
    fn terms(&self) -> &Terms;

    /// Does it within a transaction; whether it could be done. If the transaction fails, it is done again in another.
    fn run(&self, tx: &Connection, rules: &Rules) -> bool;

    /// Notes that it could not be committed.
    fn fail(&self, error: StoreError);

    /// Wakes whoever waits for it.
    fn tell(&self, turn: Turn);
}

/// Where whoever brought a step stands.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Turn {
    /// It waits.
    Waits,
    /// It commits what waits, its own step first.
    Leads,
    /// Its step is done.
    Done,
}

/// What rows are changed by.
pub struct Rules {
    /// Whether what is stored is due before all of it is.
    cut_through: bool,
    /// At this time nothing that waits was ripe, and nothing has been put off since.
    ripened: Cell<Option<UnixTime>>,
}

/// An index could not be opened.
pub enum IndexOpenError {
    Later(u32),
    Sqlite(rusqlite::Error),
    /// The journal beside it.
    Journal(io::Error),
}

impl From<io::Error> for IndexOpenError {
    fn from(error: io::Error) -> Self {
        Self::Journal(error)
    }
}

impl From<StoreError> for IndexOpenError {
    fn from(error: StoreError) -> Self {
        match error {
            StoreError::Index(error) => Self::Sqlite(error),
            StoreError::File(error) => Self::Journal(error),
            StoreError::Damaged(what) => Self::Journal(io::Error::other(what)),
        }
    }
}

impl From<rusqlite::Error> for IndexOpenError {
    fn from(error: rusqlite::Error) -> Self {
        Self::Sqlite(error)
    }
}

impl Index {
    /// Opens the index at `path`, making it if it is not there.
    pub fn open(path: &Path, sync: bool, cut_through: bool) -> Result<Self, IndexOpenError> {
        // SQLite makes its log with the mode of the database. What is wrong with the file, it says itself.
        let _ = hoop_files::touch(path);
        let db = Connection::open(path)?;
        // Or statements are compiled anew for the values that are bound to them.
        db.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_QPSG, true)?;
        // Exclusive before anything is read: then the log's index lives on the heap and no shared memory is mapped.
        // 256 KiB of page cache is enough for the B-trees' upper levels with 100,000 uploads.
        db.execute_batch("PRAGMA locking_mode = EXCLUSIVE; PRAGMA cache_size = -256; PRAGMA temp_store = MEMORY;")?;
        // What a transaction changes stays in memory until it is committed: `CACHE_MAX`.
        db.execute_batch("PRAGMA cache_spill = OFF")?;
        db.query_row("PRAGMA journal_mode = WAL", [], |_| Ok(()))?;
        db.execute_batch(if sync { "PRAGMA synchronous = FULL" } else { "PRAGMA synchronous = OFF" })?;
        db.execute_batch("PRAGMA wal_autocheckpoint = 256")?;
        let found = db.query_row("PRAGMA user_version", [], |row| row.get::<_, u32>(0))?;
        let steps = STEPS.get(found as usize..).ok_or(IndexOpenError::Later(found))?;
        if !steps.is_empty() {
            db.execute_batch(&format!("BEGIN; {} PRAGMA user_version = {FORMAT}; COMMIT;", steps.concat()))?;
        }
        db.set_prepared_statement_cache_capacity(STATEMENTS);
        let journal = Journal::open(&path.with_file_name("journal"), sync)?;
        let rules = Rules { cut_through, ripened: Cell::default() };
        let mut index = Self {
            db,
            rules,
            journal,
            is_checkpointed: false,
            health: Arc::default(),
            #[cfg(test)]
            refused: Arc::default(),
        };
        // On a disk that is full now, before the first commit.
        let _ = index.checkpoint();
        let committed = index.db.query_row("SELECT epoch FROM room", [], |row| row.get::<_, i64>(0))?.unsigned_abs();
        index.journal.begin(committed + 1);
        index.journal.load()?;
        index.repeat()?;
        // Also if nothing is there: what the file has behind a record that is torn, or was forgotten, is not to stand behind one that comes now. So none
        // does before SQLite has committed the epoch; on a full disk nothing new is taken until then.
        index.journal.close();
        let _ = index.flush();
        Ok(index)
    }

    pub const fn db(&self) -> &Connection {
        &self.db
    }

    /// A transaction of its own: what is open is committed first.
    pub fn transaction(&mut self) -> Result<Transaction<'_>, StoreError> {
        self.flush()?;
        Ok(self.db.transaction()?)
    }

    /// Opens the transaction that many changes share, unless it is open.
    fn open_transaction(&self) -> Result<(), StoreError> {
        // What the journal has of this epoch was in a transaction that SQLite could not commit.
        if self.db.is_autocommit() { self.repeat() } else { Ok(()) }
    }

    /// Opens a transaction, and repeats in it what the journal has.
    fn repeat(&self) -> Result<(), StoreError> {
        self.execute("BEGIN IMMEDIATE")?;
        let repeated = self.journal.bodies().try_for_each(|body| {
            let done = match operation::decode(body)? {
                Operation::Record(stored) => record(&self.db, &self.rules, &stored).map(drop),
                Operation::Change { id, change, now } => {
                    self::change(&self.db, &self.rules, id, &change, now).map(drop)
                }
            };
            // A row that means nothing was left alone then, too.
            if let Err(StoreError::Damaged(_)) = done { Ok(()) } else { done }
        });
        repeated.inspect_err(|_| _ = self.execute("ROLLBACK"))
    }

    /// Puts what SQLite's log says into the database, and on disk, once for each opening. Where a process before this one could not sync, its log may be in memory alone, and
    /// SQLite would go on behind that.
    fn checkpoint(&mut self) -> Result<(), StoreError> {
        if !self.is_checkpointed {
            self.db.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(()))?;
            self.is_checkpointed = true;
        }
        Ok(())
    }

    /// Commits what is open, and begins the journal anew.
    ///
    /// # Errors
    /// If SQLite cannot. Then all of it is still there, in the journal and for all that is asked.
    pub fn flush(&mut self) -> Result<(), StoreError> {
        if self.db.is_autocommit() && self.journal.is_empty() && !self.health.is_doubtful() {
            return Ok(());
        }
        if !self.is_checkpointed {
            // No transaction may be open meanwhile. What was in one is in the journal.
            self.roll_back();
            if let Err(error) = self.checkpoint() {
                self.fails(true);
                return Err(error);
            }
        }
        self.open_transaction()?;
        let epoch = self.journal.epoch();
        let noted = self.db.prepare_cached("UPDATE room SET epoch = ?1");
        let noted = noted.and_then(|mut note| note.execute([signed(epoch)]));
        match noted.and_then(|_| self.execute("COMMIT")) {
            Ok(()) => {
                self.journal.begin(epoch + 1);
                self.health.is_doubtful.store(false, Ordering::Release);
                Ok(())
            }
            Err(error) => {
                // What a commit has written last makes it one, and that did not fit.
                self.fails(error.sqlite_error_code() != Some(ErrorCode::DiskFull));
                Err(error.into())
            }
        }
    }

    /// A commit has failed; `doubts`: and may be recorded all the same.
    fn fails(&mut self, doubts: bool) {
        self.health.doubts(doubts);
        self.health.failures.fetch_add(1, Ordering::AcqRel);
        self.journal.close();
        self.undo();
    }

    /// After an error SQLite may have taken the open transaction back, so that it shows what was.
    fn current(&self) -> Result<(), StoreError> {
        match self.db.is_autocommit() && !self.journal.is_empty() {
            true => Err(StoreError::Damaged("what was recorded last cannot be read just now")),
            false => Ok(()),
        }
    }

    /// Repeats the journal if SQLite has taken the open transaction back.
    pub fn recover(&mut self) {
        if self.current().is_err() {
            self.undo();
        }
    }

    /// After a transaction that failed: all that the journal has is repeated in another.
    fn undo(&mut self) {
        self.roll_back();
        // If that fails as well, the next change tries again.
        let _ = self.open_transaction();
    }

    fn roll_back(&self) {
        if !self.db.is_autocommit() {
            let _ = self.execute("ROLLBACK");
        }
        self.rules.ripened.set(None);
    }

    /// How its disk does.
    pub fn health(&self) -> Arc<Health> {
        self.health.clone()
    }

    /// Waits until all that is recorded is on disk.
    pub fn settle(&mut self) -> Result<(), StoreError> {
        // A kernel tells once that a sync failed: the next one says nothing of what was lost by then.
        if !self.journal.is_closed() && self.journal.sync().is_ok() {
            return Ok(());
        }
        // What the journal could not do, SQLite may.
        self.journal.close();
        self.flush()
    }

    fn execute(&self, sql: &str) -> Result<(), rusqlite::Error> {
        self.db.prepare_cached(sql)?.execute([]).map(drop)
    }

    /// The number after the last segment that has an upload.
    pub fn next_segment(&self) -> Result<u64, rusqlite::Error> {
        let last = self.db.query_row(LAST_SEGMENT, [], |row| row.get::<_, Option<i64>>(0))?;
        Ok(last.map_or(0, |last| last.unsigned_abs() + 1))
    }

    /// Whether an upload has its bytes in a segment.
    pub fn has_segment(&self, number: u64) -> Result<bool, StoreError> {
        self.current()?;
        let mut statement = self.db.prepare_cached(IN_SEGMENT)?;
        Ok(statement.exists([signed(number)])?)
    }

    /// The sum of what is stored.
    pub fn kept(&self) -> Result<u64, rusqlite::Error> {
        self.db.query_row("SELECT kept FROM room", [], |row| Ok(row.get::<_, i64>(0)?.unsigned_abs()))
    }

    /// How many uploads are kept, and how many are at their services.
    pub fn uploads(&self) -> Result<[i64; 2], rusqlite::Error> {
        let sql = "SELECT coalesce(sum(uploads), 0), coalesce(sum(away), 0) FROM holding";
        self.db.query_row(sql, [], |row| Ok([row.get(0)?, row.get(1)?]))
    }

    /// The uploads whose prelude has not come: as many as there may be at most.
    pub fn early(&self) -> Result<BTreeMap<UploadId, AddressKey>, rusqlite::Error> {
        let sql = "SELECT id, device FROM upload INDEXED BY upload_early WHERE prelude = x''";
        let mut statement = self.db.prepare(sql)?;
        let ids = statement.query_map([], |row| Ok((UploadId(row.get(0)?), AddressKey(row.get(1)?))))?;
        ids.collect()
    }

    /// What is recorded of an upload.
    pub fn get(&self, id: UploadId) -> Result<Option<Upload>, StoreError> {
        self.current()?;
        let mut statement = self.db.prepare_cached("SELECT * FROM upload WHERE id = ?1")?;
        let mut rows = statement.query([id.as_bytes().as_slice()])?;
        rows.next()?.map(read_upload).transpose()
    }

    /// The next row after `seq`: its own, whether its file counts, and what is recorded, or why it means nothing.
    pub fn after(&self, seq: i64) -> Result<Option<Row3>, StoreError> {
        let mut statement = self.db.prepare_cached(AFTER)?;
        let mut rows = statement.query([seq])?;
        let Some(row) = rows.next()? else { return Ok(None) };
        Ok(Some((row.get("seq")?, row.get("payload")?, read_upload(row))))
    }

    /// What SQLite finds wrong with its file; empty: nothing.
    pub fn integrity(&self) -> Result<Vec<String>, StoreError> {
        let mut statement = self.db.prepare("PRAGMA integrity_check(100)")?;
        let lines = statement.query_map([], |row| row.get::<_, String>(0))?.collect::<Result<Vec<_>, _>>()?;
        Ok(lines.into_iter().filter(|line| line != "ok").collect())
    }

    /// The tables of sums that are not what the rows come to. Reads all rows.
    pub fn wrong_sums(&self) -> Result<Vec<&'static str>, StoreError> {
        let mut wrong = Vec::new();
        for (name, table, rows) in SUMS_OF {
            let sql = format!(
                "SELECT count(*) FROM (SELECT * FROM ({table} EXCEPT {rows}) UNION ALL SELECT * FROM ({rows} EXCEPT {table}))"
            );
            if self.db.query_row(&sql, [], |row| row.get::<_, i64>(0))? > 0 {
                wrong.push(name);
            }
        }
        Ok(wrong)
    }

    /// Counts all sums anew.
    pub fn recount(&mut self) -> Result<(), StoreError> {
        let tx = self.transaction()?;
        for (name, _, rows) in SUMS_OF {
            let sql = match name {
                "sums" => "DELETE FROM sums WHERE upload NOT IN (SELECT seq FROM upload WHERE payload = 1);".to_owned(),
                "room" => format!("UPDATE room SET (kept, ended) = ({rows});"),
                name => format!("DELETE FROM {name}; INSERT INTO {name} {rows};"),
            };
            tx.execute_batch(&sql)?;
        }
        Ok(tx.commit()?)
    }

    /// What reading an upload's file needs to know; `None` if it does not count.
    pub fn kept_file(&self, id: UploadId) -> Result<Option<KeptFile>, StoreError> {
        self.current()?;
        let mut statement = self
            .db
            .prepare_cached("SELECT seq, prelude, total, segment, base FROM upload WHERE id = ?1 AND payload = 1")?;
        let kept = statement.query_row([id.as_bytes().as_slice()], |row| {
            let total = row.get::<_, i64>(2)?.unsigned_abs();
            Ok(KeptFile { seq: row.get(0)?, extent: read_extent(row)?, prelude: row.get(1)?, total })
        });
        Ok(kept.optional()?)
    }

    /// The checksums of an upload's records in part `part`.
    pub fn sums(&self, seq: i64, part: u64) -> Result<Part, StoreError> {
        Ok(read_sums(&self.db, seq, part)?)
    }

    /// Whether an upload's own file counts; not if there is no such upload.
    pub fn has_own_file(&self, id: UploadId) -> Result<bool, StoreError> {
        self.current()?;
        let mut statement =
            self.db.prepare_cached("SELECT payload = 1 AND segment IS NULL FROM upload WHERE id = ?1")?;
        let payload = statement.query_row([id.as_bytes().as_slice()], |row| row.get(0)).optional()?;
        Ok(payload.unwrap_or(false))
    }

    /// Records all steps together. If one of them fails, each is recorded alone, so that none is harmed by another.
    pub fn commit_all(&mut self, steps: &[Arc<dyn Step>]) -> Durable {
        let mut all = Durable::Later;
        match self.commit_together(steps) {
            Ok(Some(durable)) => return durable,
            Ok(None) if steps.len() > 1 => {}
            Ok(None) => return all,
            Err(error) => {
                fail(steps, &error);
                return all;
            }
        }
        for (at, step) in steps.iter().enumerate() {
            match self.commit_together(std::slice::from_ref(step)) {
                Ok(durable) => all = durable.unwrap_or(all),
                Err(error) => {
                    fail(&steps[at..], &error);
                    break;
                }
            }
        }
        all
    }

    /// `None`: a step failed, and none is recorded.
    fn commit_together(&mut self, steps: &[Arc<dyn Step>]) -> Result<Option<Durable>, StoreError> {
        self.open_transaction()?;
        self.execute("SAVEPOINT steps")?;
        if !steps.iter().all(|step| step.run(&self.db, &self.rules)) {
            // A failure may have taken the whole transaction with it.
            if self.execute("ROLLBACK TO steps").and_then(|()| self.execute("RELEASE steps")).is_err() {
                self.undo();
            }
            return Ok(None);
        }
        self.execute("RELEASE steps").inspect_err(|_| self.undo())?;
        let news: Option<Vec<&[u8]>> = steps.iter().map(|step| step.terms().news.as_deref()).collect();
        let Some(news) = news.filter(|news| self.journal.has_room(news.iter().copied())) else {
            return self.flush().map(|()| Some(Durable::Yes));
        };
        let is_urgent = steps.iter().any(|step| step.terms().is_urgent);
        let before = self.journal.at();
        let written = self.journal.append(news);
        let synced = written.and_then(|()| if is_urgent { self.journal.sync() } else { Ok(()) });
        if synced.is_err() {
            // What the journal could not do, SQLite may. If it cannot either, these steps are not recorded.
            let forgot = self.journal.forget(before);
            self.health.doubts(forgot.is_err());
            self.journal.close();
            return self.flush().map(|()| Some(Durable::Yes));
        }
        if self.cached().is_ok_and(|cached| cached > CACHE_MAX) && self.flush().is_ok() {
            return Ok(Some(Durable::Yes));
        }
        Ok(Some(if is_urgent { Durable::Yes } else { Durable::Later }))
    }

    /// Bytes of the page cache.
    #[allow(unsafe_code)]
    fn cached(&self) -> Result<i32, StoreError> {
        let (mut used, mut highest) = (0, 0);
        let status = rusqlite::ffi::SQLITE_DBSTATUS_CACHE_USED;
        // SAFETY: the connection is open, and the two numbers outlive the call.
        let code =
            unsafe { rusqlite::ffi::sqlite3_db_status(self.db.handle(), status, &raw mut used, &raw mut highest, 0) };
        if code == rusqlite::ffi::SQLITE_OK { Ok(used) } else { Err(StoreError::Damaged("SQLite does not count")) }
    }

    /// Takes `spoilt` out of what is stored, and says why. Returns the bytes that no longer count; `None` if the upload keeps none.
    pub fn spoil(
        &mut self,
        id: UploadId,
        spoilt: &RangeSet,
        reason: &Reason,
        now: UnixTime,
    ) -> Result<Option<u64>, StoreError> {
        let cut_through = self.rules.cut_through;
        let tx = self.transaction()?;
        let id = id.as_bytes().as_slice();
        let known = tx.prepare_cached("SELECT * FROM upload WHERE id = ?1")?.query_row([id], read_known).optional()?;
        let Some(known) = known.filter(|known| known.payload) else { return Ok(None) };
        let state = State::by_number(known.state).ok_or(StoreError::Damaged("a state that does not exist"))?;
        let before = decode_ranges(&known.stored)?;
        let stored = undelivered(&before, spoilt);
        let lost = before.len() - stored.len();
        // From `stored`, of which that is no longer true, there is only the way forward.
        let state = if state == State::Stored { State::Delivering } else { state };
        let delivered = decode_ranges(&known.delivered)?;
        let due = is_due(state, cut_through, &known, &stored, &delivered);
        tx.prepare_cached(
            "UPDATE upload SET state = :state, stored = :stored, stored_bytes = :bytes, updated = :now,
                 due = CASE WHEN :due THEN coalesce(due, :now) ELSE NULL END, ready = :due AND (ready OR due IS NULL),
                 reason_code = :code, reason = :reason
             WHERE id = :id",
        )?
        .execute(named_params! {
            ":id": id,
            ":state": state.number(),
            ":stored": encode_ranges(&stored),
            ":bytes": signed(stored.len()),
            ":now": now.0,
            ":due": due,
            ":code": reason.code,
            ":reason": reason.detail,
        })?;
        tx.prepare_cached("UPDATE room SET kept = kept - ?1")?.execute([signed(lost)])?;
        tx.commit()?;
        Ok(Some(lost))
    }

    /// Moves uploads whose time has come at `now` from those that wait to those that are due, at most [`RIPEN_BATCH`]. Whether
    /// there may be more.
    pub fn ripen(&mut self, now: UnixTime) -> Result<bool, StoreError> {
        if self.rules.ripened.get() == Some(now) {
            return Ok(false);
        }
        let late = i64::from(now.0) + i64::from(LONGEST_WAIT_SECS);
        let mut ripe = Vec::new();
        for (sql, time) in ripe_queries().iter().zip([i64::from(now.0), late]) {
            let mut statement = self.db.prepare_cached(sql)?;
            let rows = statement.query_map(params![time, signed(RIPEN_BATCH as u64)], |row| row.get::<_, i64>(0))?;
            ripe.extend(rows.collect::<Result<Vec<_>, _>>()?);
        }
        let more = ripe.len() >= RIPEN_BATCH;
        if !ripe.is_empty() {
            // The journal has none of it: what is not ready after a crash ripens again.
            self.open_transaction()?;
            for seq in &ripe {
                self.db.prepare_cached("UPDATE upload SET ready = 1 WHERE seq = ?1")?.execute([seq])?;
            }
            if self.cached()? > CACHE_MAX {
                self.flush()?;
            }
        }
        self.rules.ripened.set((!more).then_some(now));
        Ok(more)
    }

    /// The next devices after `after` that have something ready in `queue`, ascending.
    pub fn ready_devices(
        &self,
        queue: Queue,
        after: Option<AddressKey>,
        limit: usize,
    ) -> Result<Vec<AddressKey>, StoreError> {
        let mut statement = self.db.prepare_cached(&ready_device(queue))?;
        let mut found: Vec<AddressKey> = Vec::new();
        while found.len() < limit {
            let last = found.last().copied().or(after);
            // An empty one is before all others.
            let last = last.as_ref().map_or(&[][..], |device| device.as_bytes().as_slice());
            let next = statement.query_row([last], |row| row.get::<_, [u8; 16]>(0).map(AddressKey)).optional()?;
            let Some(next) = next else { break };
            found.push(next);
        }
        Ok(found)
    }

    /// What `device` has ready in `queue`, after `from`.
    pub fn ready_of(
        &self,
        queue: Queue,
        device: AddressKey,
        from: Place,
        limit: usize,
    ) -> Result<Vec<DueOf>, StoreError> {
        let mut statement = self.db.prepare_cached(&ready_of(queue))?;
        let limit = signed(limit as u64);
        let mut rows = statement.query(params![device.as_bytes().as_slice(), from.deadline, from.seq, limit])?;
        let mut found = Vec::new();
        while let Some(row) = rows.next()? {
            // By number: to find columns by their names takes longer than all else here.
            let place = Place { deadline: row.get(4)?, seq: row.get(7)? };
            found.push(DueOf {
                id: read_id(row, 0)?,
                dest: row.get(1)?,
                total: row.get::<_, i64>(2)?.unsigned_abs(),
                state: State::by_number(row.get(3)?).ok_or(StoreError::Damaged("a state that does not exist"))?,
                deadline: read_deadline(place.deadline),
                expires: UnixTime(row.get(5)?),
                created: UnixTime(row.get(6)?),
                seq: place.seq.unsigned_abs(),
                place,
            });
        }
        Ok(found)
    }

    /// What `device` has here.
    pub fn held_by(&self, device: AddressKey) -> Result<Held, StoreError> {
        let mut statement = self.db.prepare_cached(HELD_BY)?;
        let held = statement.query_row([device.as_bytes().as_slice()], |row| {
            let sum = |at| row.get::<_, i64>(at).map(i64::unsigned_abs);
            Ok(Held { uploads: sum(0)?, bytes: sum(1)?, away: sum(2)?, early: 0, own: 0 })
        });
        Ok(held.optional()?.unwrap_or_default())
    }

    /// When the next upload will be due that is not due at `now`.
    pub fn next_due(&self, now: UnixTime) -> Result<Option<UnixTime>, StoreError> {
        let mut statement = self.db.prepare_cached(NEXT_DUE)?;
        Ok(statement.query_row([now.0], |row| row.get(0)).map(|due: Option<u32>| due.map(UnixTime))?)
    }

    /// How many uploads are in each state, states without any left out.
    pub fn tally(&self) -> Result<BTreeMap<State, Tally>, StoreError> {
        let mut statement = self.db.prepare_cached("SELECT state, uploads, bytes FROM tally WHERE uploads > 0")?;
        let mut rows = statement.query([])?;
        let mut tally = BTreeMap::new();
        while let Some(row) = rows.next()? {
            let state = State::by_number(row.get(0)?).ok_or(StoreError::Damaged("a state that does not exist"))?;
            let (uploads, bytes) = (row.get::<_, i64>(1)?.unsigned_abs(), row.get::<_, i64>(2)?.unsigned_abs());
            tally.insert(state, Tally { uploads, bytes });
        }
        Ok(tally)
    }

    /// What `map` makes of the uploads that came last before the one with this number, newest first, and the number of the last of them.
    /// One at a time, since a row may have 64 KiB.
    pub fn recent<T>(
        &self,
        before: i64,
        limit: usize,
        map: impl Fn(&Upload) -> T,
    ) -> Result<(Vec<T>, Option<i64>), StoreError> {
        let mut statement = self.db.prepare_cached(RECENT)?;
        let mut rows = statement.query([before, signed(limit as u64)])?;
        let (mut found, mut last) = (Vec::new(), None);
        while let Some(row) = rows.next()? {
            found.push(map(&read_upload(row)?));
            last = Some(row.get("seq")?);
        }
        Ok((found, last))
    }

    /// Uploads whose time is over: open ones to expire, final ones to forget.
    pub fn over(&self, time: &Overdue, limit: usize) -> Result<Vec<Over>, StoreError> {
        let mut found = self.over_by(OVER_BEFORE, [time.early.before, time.kept.before], limit)?;
        if [time.early.after, time.kept.after] != [UnixTime(u32::MAX); 2] {
            found.extend(self.over_by(OVER_AFTER, [time.early.after, time.kept.after], limit - found.len())?);
        }
        Ok(found)
    }

    fn over_by(&self, sql: &str, [early, kept]: [UnixTime; 2], limit: usize) -> Result<Vec<Over>, StoreError> {
        let mut statement = self.db.prepare_cached(sql)?;
        let mut rows = statement.query(params![early.0, kept.0, signed(limit as u64)])?;
        let mut found = Vec::new();
        while let Some(row) = rows.next()? {
            let state = State::by_number(row.get(1)?).ok_or(StoreError::Damaged("a state that does not exist"))?;
            found.push(Over { id: read_id(row, 0)?, state, early: row.get(2)? });
        }
        Ok(found)
    }

    /// Spoils a row, for tests.
    #[cfg(test)]
    pub fn damage(&self, id: UploadId) {
        let sql = "UPDATE upload SET delivered = x'00' WHERE id = ?1";
        self.db.execute(sql, [id.as_bytes().as_slice()]).unwrap();
    }

    /// The disk does not take the journal, for tests.
    #[cfg(test)]
    pub const fn fail_journal(&mut self, fails: bool) {
        self.journal.fails = fails;
    }

    /// SQLite takes a transaction back instead of committing it, for tests.
    #[cfg(test)]
    #[allow(unsafe_code)]
    pub fn refuse_commits(&self, refuses: bool) {
        unsafe extern "C" fn refuse(refused: *mut std::ffi::c_void) -> std::ffi::c_int {
            // SAFETY: it is a number that lives at least as long as the connection.
            unsafe { &*refused.cast::<AtomicU64>() }.fetch_add(1, Ordering::AcqRel);
            1
        }
        let hook = refuses.then_some(refuse as unsafe extern "C" fn(_) -> _);
        // SAFETY: the connection is open, and the number is dropped after it.
        unsafe {
            rusqlite::ffi::sqlite3_commit_hook(self.db.handle(), hook, Arc::as_ptr(&self.refused).cast_mut().cast())
        };
    }
}

impl Drop for Index {
    /// So that whoever opens it next has nothing to repeat.
    fn drop(&mut self) {
        let _ = self.flush();
    }
}

/// None of these is recorded, since the disk failed. Each alone would wait for it once more, with the index locked, to be told the same.
fn fail(steps: &[Arc<dyn Step>], error: &StoreError) {
    steps.iter().for_each(|step| step.fail(error.again()));
}

/// The first condition is for the index.
const OVER_BEFORE: &str = "
SELECT id, state, prelude = x'' FROM upload INDEXED BY upload_forget
WHERE forget_at < max(?1, ?2) AND forget_at < iif(prelude = x'', ?1, ?2) ORDER BY forget_at LIMIT ?3";

const OVER_AFTER: &str = "
SELECT id, state, prelude = x'' FROM upload INDEXED BY upload_forget
WHERE forget_at > min(?1, ?2) AND forget_at > iif(prelude = x'', ?1, ?2) ORDER BY forget_at DESC LIMIT ?3";

const RECENT: &str = "SELECT * FROM upload WHERE seq < ?1 ORDER BY seq DESC LIMIT ?2";

/// Of which uploads a row may be dropped that are not whole.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Unfinished {
    /// Their preludes have not come.
    Early,
    /// They are being received.
    Receiving,
}

/// Drops the row of an upload within a transaction. Returns what no longer counts; `None` if there is no such upload.
pub fn drop_unfinished(tx: &Connection, id: UploadId, which: Unfinished) -> Result<Option<Freed>, StoreError> {
    let sql = match which {
        Unfinished::Early => {
            "DELETE FROM upload WHERE id = ?1 AND prelude = x'' RETURNING stored_bytes, total, segment, base"
        }
        Unfinished::Receiving => {
            "DELETE FROM upload WHERE id = ?1 AND state = 0 RETURNING stored_bytes, total, segment, base"
        }
    };
    let freed = |row: &Row<'_>| {
        let number = |at| row.get::<_, i64>(at).map(i64::unsigned_abs);
        Ok(Freed { bytes: number(0)?, total: number(1)?, extent: read_extent(row)? })
    };
    let freed = tx.prepare_cached(sql)?.query_row([id.as_bytes().as_slice()], freed).optional()?;
    let Some(freed) = freed else { return Ok(None) };
    tx.prepare_cached("UPDATE room SET kept = kept - ?1")?.execute([signed(freed.bytes)])?;
    Ok(Some(freed))
}

/// Ends within a transaction uploads whose time is over: early ones are dropped, final ones forgotten, others expire. Returns of each what no longer
/// counts, if its payload is to be removed. A damaged row harms no other.
pub fn end(
    tx: &Connection,
    rules: &Rules,
    all: &[Over],
    reason: &Reason,
    now: UnixTime,
) -> Result<Vec<Result<TimedOut, StoreError>>, StoreError> {
    let ended = all.iter().map(|over| match end_one(tx, rules, over, reason, now) {
        // It was found before anything was written.
        Err(error @ StoreError::Damaged(_)) => Ok(Err(error)),
        ended => ended.map(Ok),
    });
    ended.collect()
}

fn end_one(
    tx: &Connection,
    rules: &Rules,
    over: &Over,
    reason: &Reason,
    now: UnixTime,
) -> Result<TimedOut, StoreError> {
    if over.early {
        let freed = drop_unfinished(tx, over.id, Unfinished::Early)?;
        return Ok(TimedOut { freed, was_away: false });
    }
    if over.state.is_final() {
        let forgotten = "DELETE FROM upload WHERE id = ?1 AND payload = 0";
        tx.prepare_cached(forgotten)?.execute([over.id.as_bytes().as_slice()])?;
        return Ok(TimedOut { freed: None, was_away: false });
    }
    let expired = Change { state: Some(State::Expired), reason: Some(Some(reason.clone())), ..Change::default() };
    let changed = change(tx, rules, over.id, &expired, now)?;
    let was_away = changed.as_ref().is_some_and(|changed| changed.away == [true, false]);
    Ok(TimedOut { freed: changed.and_then(|changed| changed.freed), was_away })
}

/// Records within a transaction that bytes are on disk and synced. `Ok(Err(state))`: it has come to its end meanwhile.
pub fn record(tx: &Connection, rules: &Rules, now_stored: &Stored) -> Outcome {
    let Stored { offer, extent, total, stored, added, sums, now } = now_stored;
    let id = offer.id.as_bytes().as_slice();
    let known = tx.prepare_cached("SELECT * FROM upload WHERE id = ?1")?.query_row([id], read_known).optional()?;
    let mut delivered = RangeSet::new();
    let mut before = State::Receiving;
    if let Some(known) = &known {
        before = State::by_number(known.state).ok_or(StoreError::Damaged("a state that does not exist"))?;
        if !before.takes_bytes() || known.bytes == signed(*total) {
            return Ok(Err(before));
        }
        delivered = decode_ranges(&known.delivered)?;
    }
    let whole = stored.len() == *total;
    let state = match before {
        State::Receiving if whole && delivered.is_empty() => State::Stored,
        State::Receiving if whole => State::Delivering,
        // One that was whole, until the disk spoilt some of it, does not go backwards.
        before => before,
    };
    let due = whole || (rules.cut_through && is_sendable(offer.is_early(), stored, &delivered));
    let seq = tx
        .prepare_cached(
            "INSERT INTO upload (id, prelude, total, dest, expires, state, payload, stored, stored_bytes, delivered,
                                 created, updated, stored_at, attempts, due, ready, forget_at, device, deadline,
                                 segment, base)
             VALUES (:id, :prelude, :total, :dest, :expires, :state, 1, :stored, :bytes, x'',
                     :now, :now, :at, 0, :due, :due IS NOT NULL, :forget, :device, coalesce(:deadline, 4294967296),
                     :segment, :base)
             ON CONFLICT (id) DO UPDATE SET
                 prelude = :prelude, expires = :expires, forget_at = :forget, state = :state, stored = :stored,
                 stored_bytes = :bytes, updated = :now, stored_at = coalesce(stored_at, :at),
                 deadline = coalesce(:deadline, deadline),
                 -- What was put off after a failure stays so.
                 ready = CASE WHEN :due IS NOT NULL AND (due IS NULL OR attempts = 0) THEN 1 ELSE ready END,
                 due = CASE WHEN :due IS NOT NULL AND (due IS NULL OR attempts = 0) THEN :due ELSE due END,
                 -- What was spoilt has come again.
                 reason_code = CASE WHEN :again THEN NULL ELSE reason_code END,
                 reason = CASE WHEN :again THEN NULL ELSE reason END
             RETURNING seq",
        )?
        .query_row(
            named_params! {
                ":id": id,
                ":prelude": offer.prelude,
                ":total": signed(*total),
                ":dest": offer.dest,
                ":expires": offer.expires.0,
                ":state": state.number(),
                ":stored": encode_ranges(stored),
                ":bytes": signed(stored.len()),
                ":now": now.0,
                ":at": whole.then_some(now.0),
                ":due": due.then_some(now.0),
                ":again": whole && before != State::Receiving,
                ":device": offer.device.as_bytes().as_slice(),
                ":deadline": offer.deadline.map(|at| at.0),
                ":forget": i64::from(offer.expires.0) + i64::from(if offer.is_early() { 0 } else { KEEP_SECS }),
                ":segment": extent.map(|extent| signed(extent.segment)),
                ":base": extent.map(|extent| signed(extent.base)),
            },
            |row| row.get::<_, i64>(0),
        )?;
    write_sums(tx, seq, sums, known.is_some())?;
    tx.prepare_cached("UPDATE room SET kept = kept + ?1")?.execute([signed(*added)])?;
    Ok(Ok(state))
}

/// Makes `change` within a transaction; `None` if there is no such upload.
pub fn change(
    tx: &Connection,
    rules: &Rules,
    id: UploadId,
    change: &Change,
    now: UnixTime,
) -> Result<Option<Changed>, StoreError> {
    if change.next_attempt.is_some() {
        rules.ripened.set(None);
    }
    let id = id.as_bytes().as_slice();
    let known = tx.prepare_cached("SELECT * FROM upload WHERE id = ?1")?.query_row([id], read_known).optional()?;
    let Some(known) = known else { return Ok(None) };
    let Known { payload, bytes, expires, extent, total, .. } = known;
    let before = State::by_number(known.state).ok_or(StoreError::Damaged("a state that does not exist"))?;
    if before.is_final() {
        return Ok(Some(Changed { state: before, freed: None, ended: false, away: [false; 2] }));
    }
    let state = change.state.filter(|next| before.may_become(*next)).unwrap_or(before);
    let freed = (payload && !state.keeps_payload()).then_some(Freed { bytes: bytes.unsigned_abs(), total, extent });
    let received = matches!(state, State::Received | State::Held | State::Accepted | State::Rejected | State::Unknown);
    let (due, ready) = match change.next_attempt {
        Some(at) => (Some(at.0), false),
        None => (known.due.or(Some(now.0)), known.due.is_none() || known.ready),
    };
    // What came while it was sent is due again; else whoever commits more says so, unless a time is asked for.
    let asked = change.next_attempt.is_some() && !state.is_final();
    let delivered = change.delivered.clone().map_or_else(|| decode_ranges(&known.delivered), Ok)?;
    let is_due = asked || is_due(state, rules.cut_through, &known, &decode_ranges(&known.stored)?, &delivered);
    tx.prepare_cached(
        "UPDATE upload SET state = :state, updated = :now,
             payload = CASE WHEN :freed THEN 0 ELSE payload END,
             delivered = coalesce(:delivered, delivered),
             attempts = coalesce(:attempts, attempts),
             due = :due, ready = :ready, deadline = coalesce(:deadline, deadline),
             reason_code = CASE WHEN :reasoned THEN :code ELSE reason_code END,
             reason = CASE WHEN :reasoned THEN :reason ELSE reason END,
             answer = coalesce(:answer, answer),
             received_at = CASE WHEN :received THEN coalesce(received_at, :now) ELSE received_at END,
             finished_at = CASE WHEN :final THEN :now ELSE NULL END
         WHERE id = :id",
    )?
    .execute(named_params! {
        ":id": id,
        ":state": state.number(),
        ":now": now.0,
        ":freed": freed.is_some(),
        ":delivered": change.delivered.as_ref().map(encode_ranges),
        ":attempts": change.attempts,
        ":due": due.filter(|_| is_due),
        ":ready": ready && is_due,
        ":deadline": change.deadline.map(|at| at.0),
        ":final": state.is_final(),
        ":reasoned": change.reason.is_some(),
        ":code": change.reason.iter().flatten().map(|reason| &reason.code).next(),
        ":reason": change.reason.iter().flatten().map(|reason| &reason.detail).next(),
        ":answer": change.answer,
        ":received": received,
    })?;
    if state.is_final() {
        // The row is kept for whoever asks again, as long as the ticket's and at least one KEEP_SECS.
        let forget = i64::from(expires.max(now.0)) + i64::from(KEEP_SECS);
        tx.prepare_cached("UPDATE upload SET forget_at = ?2 WHERE id = ?1")?.execute(params![id, forget])?;
    }
    if let Some(freed) = freed {
        tx.prepare_cached("UPDATE room SET kept = kept - ?1")?.execute([signed(freed.bytes)])?;
    }
    let away = [!payload, (!payload || freed.is_some()) && !state.is_final()];
    Ok(Some(Changed { state, freed, ended: state.is_final(), away }))
}

fn write_sums(tx: &Connection, seq: i64, sums: &Checksums, more: bool) -> Result<(), rusqlite::Error> {
    for (number, new) in sums.parts() {
        // A row that is new has none.
        let mut part = if more { read_sums(tx, seq, number)? } else { checksums::decode(&[]) };
        part.iter_mut().zip(new.iter()).filter(|(_, new)| **new != 0).for_each(|(sum, new)| *sum = *new);
        tx.prepare_cached("INSERT OR REPLACE INTO sums VALUES (?1, ?2, ?3)")?.execute(params![
            seq,
            signed(number),
            checksums::encode(&part)
        ])?;
    }
    Ok(())
}

fn read_sums(db: &Connection, seq: i64, part: u64) -> Result<Part, rusqlite::Error> {
    let mut statement = db.prepare_cached(SUMS)?;
    let bytes = statement.query_row(params![seq, signed(part)], |row| row.get::<_, Vec<u8>>(0)).optional()?;
    Ok(checksums::decode(&bytes.unwrap_or_default()))
}

/// A row: its `seq`, whether its file counts, and the upload.
pub type Row3 = (i64, bool, Result<Upload, StoreError>);

const AFTER: &str = "SELECT * FROM upload WHERE seq > ?1 ORDER BY seq LIMIT 1";

/// What triggers and transactions keep: its name, how it stands there, and what the rows come to.
const SUMS_OF: [(&str, &str, &str); 5] = [
    (
        "tally",
        "SELECT state, uploads, bytes FROM tally WHERE uploads <> 0 OR bytes <> 0",
        "SELECT state, count(*), sum(total) FROM upload GROUP BY state",
    ),
    (
        "holding",
        "SELECT device, uploads, bytes, away FROM holding",
        "SELECT device, sum(payload), sum(payload * stored_bytes), sum(payload = 0) FROM upload WHERE payload = 1 OR state < 5 GROUP BY device",
    ),
    (
        "room",
        "SELECT kept, ended FROM room",
        "SELECT coalesce(sum(iif(payload = 1, stored_bytes, 0)), 0), coalesce(sum(weight), 0) FROM upload",
    ),
    (
        "ended",
        "SELECT device, bytes FROM ended",
        "SELECT device, sum(weight) FROM upload WHERE finished_at IS NOT NULL GROUP BY device",
    ),
    (
        "sums",
        "SELECT DISTINCT upload FROM sums",
        "SELECT DISTINCT upload FROM sums WHERE upload IN (SELECT seq FROM upload WHERE payload = 1)",
    ),
];

const LAST_SEGMENT: &str =
    "SELECT max(segment) FROM upload INDEXED BY upload_segment WHERE segment IS NOT NULL AND payload = 1";

const IN_SEGMENT: &str = "SELECT 1 FROM upload INDEXED BY upload_segment WHERE segment = ?1 AND payload = 1 LIMIT 1";

const SUMS: &str = "SELECT sums FROM sums WHERE upload = ?1 AND part = ?2";

/// Whether something is to be done for an upload now: to send what is here and the service lacks, or to ask after it.
fn is_due(state: State, cut_through: bool, known: &Known, stored: &RangeSet, delivered: &RangeSet) -> bool {
    if !state.takes_bytes() {
        return !state.is_final();
    }
    let mut anywhere = stored.clone();
    delivered.iter().for_each(|range| anywhere.insert(range));
    let complete = anywhere.len() == known.total && state != State::Receiving;
    complete || (cut_through && is_sendable(known.early, stored, delivered))
}

/// Whether something of an upload that is not all here can be sent: with its prelude, and what the service lacks.
fn is_sendable(early: bool, stored: &RangeSet, delivered: &RangeSet) -> bool {
    !early && !undelivered(stored, delivered).is_empty()
}

/// When something that waits is due after a time.
const NEXT_DUE: &str = "SELECT min(due) FROM upload INDEXED BY upload_waits WHERE due > ?1 AND ready = 0";

const HELD_BY: &str = "SELECT uploads, bytes, away FROM holding WHERE device = ?1";

/// What waits and is due on time, and what was put off before the clock was set back.
fn ripe_queries() -> [String; 2] {
    ["due <= ?1", "due > ?1"].map(|which| {
        format!("SELECT seq FROM upload INDEXED BY upload_waits WHERE {which} AND ready = 0 ORDER BY due LIMIT ?2")
    })
}

/// The index over what is ready in a queue, and its condition.
const fn ready(queue: Queue) -> (&'static str, &'static str) {
    match queue {
        Queue::Send => ("upload_ready_send", "due IS NOT NULL AND ready = 1 AND state < 3"),
        Queue::Small => ("upload_ready_small", "due IS NOT NULL AND ready = 1 AND state < 3 AND total < 1048576"),
        Queue::Ask => ("upload_ready_ask", "due IS NOT NULL AND ready = 1 AND state >= 3"),
    }
}

/// The first device after another that has something ready: one step down the index, however much the devices have.
fn ready_device(queue: Queue) -> String {
    let (index, only) = ready(queue);
    format!("SELECT device FROM upload INDEXED BY {index} WHERE {only} AND device > ?1 ORDER BY device LIMIT 1")
}

fn ready_of(queue: Queue) -> String {
    let (index, only) = ready(queue);
    format!(
        "SELECT id, dest, total, state, deadline, expires, created, seq FROM upload INDEXED BY {index}
         WHERE {only} AND device = ?1 AND (deadline, seq) > (?2, ?3) ORDER BY deadline, seq LIMIT ?4"
    )
}

pub fn signed(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

pub fn read_id(row: &Row<'_>, column: usize) -> Result<UploadId, StoreError> {
    let bytes: Vec<u8> = row.get(column)?;
    bytes.try_into().map(UploadId).map_err(|_| StoreError::Damaged("an id of another length"))
}

fn read_upload(row: &Row<'_>) -> Result<Upload, StoreError> {
    let time = |column: &str| row.get::<_, Option<u32>>(column).map(|time| time.map(UnixTime));
    let code: Option<String> = row.get("reason_code")?;
    let detail: Option<String> = row.get("reason")?;
    Ok(Upload {
        id: read_id(row, 1)?,
        prelude: row.get("prelude")?,
        total: row.get::<_, i64>("total")?.unsigned_abs(),
        dest: row.get("dest")?,
        expires: UnixTime(row.get("expires")?),
        device: AddressKey(row.get("device")?),
        deadline: read_deadline(row.get("deadline")?),
        state: State::by_number(row.get("state")?).ok_or(StoreError::Damaged("a state that does not exist"))?,
        stored: decode_ranges(&row.get::<_, Vec<u8>>("stored")?)?,
        delivered: decode_ranges(&row.get::<_, Vec<u8>>("delivered")?)?,
        created: UnixTime(row.get("created")?),
        updated: UnixTime(row.get("updated")?),
        stored_at: time("stored_at")?,
        received_at: time("received_at")?,
        finished_at: time("finished_at")?,
        attempts: row.get("attempts")?,
        next_attempt: time("due")?,
        reason: code.map(|code| Reason { code, detail: detail.unwrap_or_default() }),
        answer: row.get("answer")?,
    })
}

fn read_deadline(seconds: i64) -> Option<UnixTime> {
    u32::try_from(seconds).ok().map(UnixTime)
}

/// What a change looks at.
struct Known {
    state: u8,
    payload: bool,
    total: u64,
    bytes: i64,
    expires: u32,
    early: bool,
    due: Option<u32>,
    ready: bool,
    stored: Vec<u8>,
    delivered: Vec<u8>,
    extent: Option<Extent>,
}

fn read_extent(row: &Row<'_>) -> rusqlite::Result<Option<Extent>> {
    let number = |column: &str| row.get::<_, Option<i64>>(column).map(|number| number.map(i64::unsigned_abs));
    Ok(number("segment")?.zip(number("base")?).map(|(segment, base)| Extent { segment, base }))
}

fn read_known(row: &Row<'_>) -> rusqlite::Result<Known> {
    Ok(Known {
        state: row.get("state")?,
        payload: row.get("payload")?,
        total: row.get::<_, i64>("total")?.unsigned_abs(),
        bytes: row.get("stored_bytes")?,
        expires: row.get("expires")?,
        early: row.get::<_, Vec<u8>>("prelude")?.is_empty(),
        due: row.get("due")?,
        ready: row.get("ready")?,
        stored: row.get("stored")?,
        delivered: row.get("delivered")?,
        extent: read_extent(row)?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::upload::Offer;
    use crate::spool::ended::OLDEST;

    #[test]
    fn a_commit_of_the_index_waits_for_the_disk() {
        let folder = tempfile::tempdir().unwrap();
        let index = Index::open(&folder.path().join("index.db"), true, true).ok().unwrap();
        let pragma =
            |name: &str| index.db.query_row(&format!("PRAGMA {name}"), [], |row| row.get::<_, u32>(0)).unwrap();
        assert_eq!(pragma("synchronous"), 2, "2 is FULL");
    }

    fn open(folder: &tempfile::TempDir) -> Index {
        Index::open(&folder.path().join("index.db"), false, true).ok().unwrap()
    }

    /// Records an upload of 100 bytes, as one that is stored.
    fn record_one(index: &mut Index, number: u8) {
        let stored = Stored {
            offer: Offer {
                id: UploadId([number; 16]),
                prelude: vec![7; 9],
                total: Some(100),
                dest: "https://photos.example/hoop/post".into(),
                expires: UnixTime(2_000),
                device: AddressKey([7; 16]),
                deadline: None,
            },
            extent: Some(Extent { segment: 3, base: u64::from(number) << 12 }),
            total: 100,
            stored: [hoop_units::ByteRange::new(0, 100)].into_iter().collect(),
            added: 100,
            sums: Checksums::default(),
            now: UnixTime(1_000),
        };
        let terms = Terms { news: Some(operation::encode_record(&stored)), segment: None, is_urgent: true };
        commit_one(index, terms, move |tx, rules| record(tx, rules, &stored).map(drop));
    }

    fn accept(index: &mut Index, number: u8) {
        let (id, now) = (UploadId([number; 16]), UnixTime(1_000));
        let accepted = Change { state: Some(State::Accepted), ..Change::default() };
        let news = Some(operation::encode_change(id, &accepted, now));
        let terms = Terms { news, segment: None, is_urgent: false };
        commit_one(index, terms, move |tx, rules| change(tx, rules, id, &accepted, now).map(drop));
    }

    fn commit_one(
        index: &mut Index,
        terms: Terms,
        work: impl Fn(&Connection, &Rules) -> Result<(), StoreError> + Send + Sync + 'static,
    ) {
        let job = Arc::new(committer::Job::new(terms, work));
        index.commit_all(&[job.clone() as Arc<dyn Step>]);
        job.take_outcome().unwrap().unwrap();
    }

    fn states(index: &Index) -> Vec<Option<State>> {
        (0..5).map(|number| index.get(UploadId([number; 16])).unwrap().map(|upload| upload.state)).collect()
    }

    /// What is on disk now, as a process finds it that begins after this one was killed.
    fn after_a_kill(folder: &tempfile::TempDir) -> Vec<Option<State>> {
        let copy = tempfile::tempdir().unwrap();
        for name in ["index.db", "index.db-wal", "journal"] {
            std::fs::copy(folder.path().join(name), copy.path().join(name)).unwrap();
        }
        let again = open(&copy);
        assert!(again.wrong_sums().unwrap().is_empty());
        states(&again)
    }

    const EXPECTED: [Option<State>; 5] =
        [Some(State::Accepted), Some(State::Stored), Some(State::Stored), Some(State::Stored), None];

    #[test]
    fn a_process_that_is_killed_takes_nothing_back() {
        let folder = tempfile::tempdir().unwrap();
        let mut index = open(&folder);
        (0..4).for_each(|number| record_one(&mut index, number));
        accept(&mut index, 0);
        assert!(!index.db.is_autocommit(), "SQLite has committed nothing yet");
        assert_eq!((states(&index), after_a_kill(&folder)), (EXPECTED.into(), EXPECTED.into()));
        index.flush().unwrap();
        assert_eq!(after_a_kill(&folder), EXPECTED, "once SQLite has committed, nothing is repeated");
        drop(index);
        assert_eq!(states(&open(&folder)), EXPECTED);
    }

    /// A group whose first record was forgotten, or lost in a power cut: its others lay whole behind the next that was as long.
    #[test]
    fn records_behind_one_that_is_lost_never_count() {
        let folder = tempfile::tempdir().unwrap();
        let mut index = open(&folder);
        (0..4).for_each(|number| record_one(&mut index, number));
        let copy = tempfile::tempdir().unwrap();
        for name in ["index.db", "index.db-wal", "journal"] {
            std::fs::copy(folder.path().join(name), copy.path().join(name)).unwrap();
        }
        let path = copy.path().join("journal");
        let mut journal = std::fs::read(&path).unwrap();
        journal[..16].fill(0);
        std::fs::write(path, journal).unwrap();
        let mut next = open(&copy);
        assert_eq!(states(&next), [None; 5]);
        record_one(&mut next, 4);
        let only_the_new = [None, None, None, None, Some(State::Stored)];
        assert_eq!((states(&next), after_a_kill(&copy)), (only_the_new.into(), only_the_new.into()));
    }

    /// A sync that failed leaves it in memory alone, as far as anybody knows: what is recorded behind it would go with it.
    #[test]
    fn what_the_log_has_is_in_the_database_once_the_index_is_open() {
        let folder = tempfile::tempdir().unwrap();
        let mut index = open(&folder);
        (0..4).for_each(|number| record_one(&mut index, number));
        index.flush().unwrap();
        let copy = tempfile::tempdir().unwrap();
        for name in ["index.db", "index.db-wal", "journal"] {
            std::fs::copy(folder.path().join(name), copy.path().join(name)).unwrap();
        }
        let next = open(&copy);
        let without_a_log = tempfile::tempdir().unwrap();
        std::fs::copy(copy.path().join("index.db"), without_a_log.path().join("index.db")).unwrap();
        assert_eq!(states(&open(&without_a_log))[..4], [Some(State::Stored); 4]);
        drop(next);
    }

    #[test]
    fn a_commit_that_sqlite_refuses_takes_nothing_back() {
        let folder = tempfile::tempdir().unwrap();
        let mut index = open(&folder);
        (0..4).for_each(|number| record_one(&mut index, number));
        index.refuse_commits(true);
        assert!(index.flush().is_err());
        let stored = |states: Vec<Option<State>>| states == [[Some(State::Stored); 4].as_slice(), &[None]].concat();
        assert!(stored(states(&index)) && stored(after_a_kill(&folder)));
        index.refuse_commits(false);
        accept(&mut index, 0);
        assert_eq!((states(&index), after_a_kill(&folder)), (EXPECTED.into(), EXPECTED.into()));
    }

    #[test]
    fn a_full_journal_is_committed_and_begun_anew() {
        let folder = tempfile::tempdir().unwrap();
        let mut index = open(&folder);
        (0..4).for_each(|number| record_one(&mut index, number));
        let epoch = index.journal.epoch();
        let answer = Change { answer: Some(vec![7; 60_000]), ..Change::default() };
        for _ in 0..9 {
            let (id, now, answer) = (UploadId([1; 16]), UnixTime(1_000), answer.clone());
            let news = Some(operation::encode_change(id, &answer, now));
            let terms = Terms { news, segment: None, is_urgent: true };
            commit_one(&mut index, terms, move |tx, rules| change(tx, rules, id, &answer, now).map(drop));
        }
        assert!(index.journal.epoch() > epoch);
        accept(&mut index, 0);
        assert_eq!((states(&index), after_a_kill(&folder)), (EXPECTED.into(), EXPECTED.into()));
    }

    /// Pages that are read to open an index of so many stored uploads, and to begin delivering them.
    #[allow(unsafe_code)]
    fn pages_to_begin(rows: u32) -> i32 {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("index.db");
        let fill = format!(
            "BEGIN;
             WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < {rows})
             INSERT INTO upload (id, prelude, total, dest, expires, state, payload, stored, stored_bytes, delivered, created, updated,
                                 attempts, due, ready, forget_at, device)
             SELECT randomblob(16), zeroblob(128), 100000, 'https://photos.example/hoop/post', 2000, 1, 1, zeroblob(16), 100000,
                    x'', 1000, 1000, 0, CASE WHEN i % 3 THEN 1000 ELSE 9000 END, i % 3 > 0, 9000, zeroblob(16) FROM n;
             UPDATE room SET kept = {rows} * 100000;
             COMMIT; PRAGMA wal_checkpoint(TRUNCATE);"
        );
        Index::open(&path, false, true).ok().unwrap().db.execute_batch(&fill).unwrap();
        let index = Index::open(&path, false, true).ok().unwrap();
        let now = UnixTime(2_000);
        assert_eq!(index.kept().unwrap(), u64::from(rows) * 100_000);
        assert!(index.early().unwrap().is_empty());
        assert_eq!(index.ready_devices(Queue::Send, None, 8).unwrap(), [AddressKey::UNKNOWN]);
        assert_eq!(index.ready_of(Queue::Send, AddressKey::UNKNOWN, Place::START, 5).unwrap().len(), 5);
        assert_eq!(index.next_due(now).unwrap(), Some(UnixTime(9_000)));
        assert_eq!(index.held_by(AddressKey::UNKNOWN).unwrap().uploads, u64::from(rows));
        assert!(index.over(&now.into(), 64).unwrap().is_empty());
        let (mut missed, mut highest) = (0, 0);
        let status = rusqlite::ffi::SQLITE_DBSTATUS_CACHE_MISS;
        // SAFETY: the connection is open, and the two numbers outlive the call.
        let code = unsafe {
            rusqlite::ffi::sqlite3_db_status(index.db.handle(), status, &raw mut missed, &raw mut highest, 0)
        };
        assert_eq!(code, 0);
        missed
    }

    #[test]
    fn opening_reads_no_more_of_100_000_uploads_than_of_ten() {
        let (few, many) = (pages_to_begin(10), pages_to_begin(100_000));
        // Trees are two storeys higher, and each of the five uploads that is looked at lies on a page of its own.
        assert!(few > 0 && many <= few + 30, "{few} pages of 10, {many} of 100,000");
    }

    #[test]
    fn nothing_that_is_asked_at_run_time_reads_the_whole_table() {
        let folder = tempfile::tempdir().unwrap();
        let index = Index::open(&folder.path().join("index.db"), true, true).ok().unwrap();
        let queries = [
            RECENT.to_owned(),
            "SELECT * FROM upload WHERE id = ?1".to_owned(),
            NEXT_DUE.to_owned(),
            HELD_BY.to_owned(),
            SUMS.to_owned(),
            AFTER.to_owned(),
            OLDEST.to_owned(),
            LAST_SEGMENT.to_owned(),
            IN_SEGMENT.to_owned(),
            "SELECT id FROM upload INDEXED BY upload_forget WHERE forget_at < ?1 ORDER BY forget_at LIMIT 9".to_owned(),
        ];
        let ready = [Queue::Send, Queue::Small, Queue::Ask].map(|queue| [ready_device(queue), ready_of(queue)]);
        for query in queries.into_iter().chain(ready.into_iter().flatten()).chain(ripe_queries()) {
            let mut statement = index.db.prepare(&format!("EXPLAIN QUERY PLAN {query}")).unwrap();
            let count = statement.parameter_count();
            (1..=count).for_each(|i| statement.raw_bind_parameter(i, 1).unwrap());
            let mut rows = statement.raw_query();
            let mut plan = String::new();
            while let Some(row) = rows.next().unwrap() {
                plan += &row.get::<_, String>("detail").unwrap();
            }
            assert!(plan.contains("SEARCH") && !plan.contains("SCAN") && !plan.contains("TEMP"), "{query}: {plan}");
        }
    }
}
