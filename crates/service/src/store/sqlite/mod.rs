//! The index in SQLite: a table of uploads, and those of [`notes`] and [`settings`]. It uses WAL and
//! `synchronous=FULL`, so that each change is synced when its method returns.
//!
//! One connection writes, since SQLite has one writer at a time. Another reads, and does not wait for a sync. While one
//! transaction is synced, further changes wait, and the next transaction takes all of them ([`group`]). So a thousand
//! ranges a second do not cost a thousand syncs. Every query uses an index, so that the cost of a start does not grow
//! with the number of uploads.

mod closed;
mod ended;
mod group;
mod notes;
mod payer;
mod rows;
mod settings;
mod turns;

pub use ended::ENDED_MAX;
pub use group::SqliteIndex;
pub use settings::SETTINGS_LIFE;

use crate::model::{Change, KEPT_SECS, LINGER_SECS, Marked, Payer, State, Sum, Tag, Upload};
use crate::store::{Changed, Index, StoreError, UnderWay};
use hoop_timekeeper::Over;
use hoop_units::{RangeSet, UnixTime, UploadId};
use rows::{COLUMNS, FINAL, UNENDED, keep_up, load, read, rows, tickets_ended};
use rusqlite::{Connection, OptionalExtension as _, Row, TransactionBehavior, params};
use std::path::Path;
use std::sync::LazyLock;

/// The first step of the layout. `user_version` counts the steps that were made.
const UPLOADS: &str = "
CREATE TABLE uploads (
    id BLOB PRIMARY KEY, prelude BLOB NOT NULL, total INTEGER NOT NULL, received TEXT NOT NULL, state TEXT NOT NULL,
    method TEXT, path TEXT, owner BLOB,
    created INTEGER NOT NULL, updated INTEGER NOT NULL, expires INTEGER NOT NULL,
    attempts INTEGER NOT NULL, next_attempt INTEGER,
    reason_code TEXT, reason_detail TEXT, answer BLOB, token BLOB,
    has_body INTEGER NOT NULL DEFAULT 1
) STRICT, WITHOUT ROWID;
CREATE INDEX uploads_due ON uploads (state, next_attempt, updated);
CREATE INDEX uploads_owner ON uploads (owner, created) WHERE owner IS NOT NULL;
CREATE INDEX uploads_expires ON uploads (expires);
CREATE INDEX uploads_disposable ON uploads (state) WHERE has_body;
CREATE INDEX uploads_stored ON uploads (total) WHERE has_body;
";

/// The second: uploads can be paused.
const PAUSED: &str = "ALTER TABLE uploads ADD COLUMN paused INTEGER NOT NULL DEFAULT 0;";

/// The third: receipts.
const RECEIPTS: &str = "ALTER TABLE uploads ADD COLUMN receipt BLOB;";

/// The fourth: the room that bodies take or were promised, and its sum, so that nobody adds it up.
const ROOM: &str = "
ALTER TABLE uploads ADD COLUMN room INTEGER NOT NULL DEFAULT 0;
UPDATE uploads SET room = total;
DROP INDEX uploads_stored;
CREATE TABLE stored (room INTEGER NOT NULL) STRICT;
INSERT INTO stored SELECT coalesce(sum(room), 0) FROM uploads WHERE has_body;
CREATE TRIGGER stored_new AFTER INSERT ON uploads BEGIN
    UPDATE stored SET room = room + new.has_body * new.room;
END;
CREATE TRIGGER stored_changed AFTER UPDATE OF room, has_body ON uploads
WHEN new.has_body * new.room <> old.has_body * old.room BEGIN
    UPDATE stored SET room = room + new.has_body * new.room - old.has_body * old.room;
END;
CREATE TRIGGER stored_gone AFTER DELETE ON uploads WHEN old.has_body BEGIN
    UPDATE stored SET room = room - old.room;
END;
";

/// The fifth: what has ended may be kept for its owner, and failures of the application are counted.
const KEPT: &str = "
ALTER TABLE uploads ADD COLUMN kept INTEGER NOT NULL DEFAULT 0;
ALTER TABLE uploads ADD COLUMN failures INTEGER NOT NULL DEFAULT 0;
DROP INDEX uploads_disposable;
CREATE INDEX uploads_disposable ON uploads (state) WHERE has_body AND NOT kept;
CREATE INDEX uploads_kept ON uploads (updated) WHERE kept;
";

/// The sixth: who pays for what is stored. Promises are no longer counted with it; [`count_anew`] follows.
const PAYERS: &str = "
ALTER TABLE uploads ADD COLUMN payer BLOB;
CREATE INDEX uploads_payer ON uploads (payer, room) WHERE has_body AND payer IS NOT NULL;
CREATE INDEX uploads_headless ON uploads (created) WHERE state = 'receiving' AND owner IS NULL;
";

/// Sums that SQLite's triggers keep, whatever version writes, so that they need no step of the layout. `paid` has the
/// uploads and bytes of each payer: adding them up for each message took longer the more there were. An index has the
/// kept uploads by payer. The trigger that is dropped may be of an earlier version, which did for each range what is
/// needed only for another payer.
const SUMS: &str = "
CREATE INDEX IF NOT EXISTS uploads_kept_paid ON uploads (payer, updated) WHERE kept;
CREATE TABLE IF NOT EXISTS paid (payer BLOB PRIMARY KEY, uploads INTEGER NOT NULL, room INTEGER NOT NULL) STRICT, WITHOUT ROWID;
CREATE TRIGGER IF NOT EXISTS paid_new AFTER INSERT ON uploads WHEN new.has_body AND new.payer IS NOT NULL BEGIN
    INSERT INTO paid VALUES (new.payer, 1, new.room)
        ON CONFLICT (payer) DO UPDATE SET uploads = uploads + 1, room = room + excluded.room;
END;
DROP TRIGGER IF EXISTS paid_changed;
CREATE TRIGGER paid_changed AFTER UPDATE OF payer, room, has_body ON uploads
WHEN new.payer IS NOT old.payer OR new.has_body <> old.has_body BEGIN
    UPDATE paid SET uploads = uploads - 1, room = room - old.room WHERE old.has_body AND payer = old.payer;
    INSERT INTO paid SELECT new.payer, 1, new.room WHERE new.has_body AND new.payer IS NOT NULL
        ON CONFLICT (payer) DO UPDATE SET uploads = uploads + 1, room = room + excluded.room;
    DELETE FROM paid WHERE payer = old.payer AND uploads = 0;
END;
CREATE TRIGGER IF NOT EXISTS paid_grown AFTER UPDATE OF room ON uploads
WHEN new.payer IS old.payer AND new.has_body AND old.has_body AND new.room <> old.room BEGIN
    UPDATE paid SET room = room + new.room - old.room WHERE payer = new.payer;
END;
CREATE TRIGGER IF NOT EXISTS paid_gone AFTER DELETE ON uploads WHEN old.has_body AND old.payer IS NOT NULL BEGIN
    UPDATE paid SET uploads = uploads - 1, room = room - old.room WHERE payer = old.payer;
    DELETE FROM paid WHERE payer = old.payer AND uploads = 0;
END;
";

/// Indexes for what is looked for each minute: ended uploads by when they may be forgotten, others by when they expire,
/// and kept ones by both their times.
fn orders() -> String {
    format!(
        "CREATE INDEX IF NOT EXISTS uploads_over ON uploads (expires) WHERE NOT has_body AND state IN {FINAL};
         CREATE INDEX IF NOT EXISTS uploads_unended ON uploads (expires) WHERE state IN {UNENDED};
         CREATE INDEX IF NOT EXISTS uploads_kept_times ON uploads (updated, expires, kept) WHERE kept;"
    )
}

/// Adds up what all payers have, as the triggers would have.
const ADD_UP: &str = "
INSERT INTO paid SELECT payer, count(*), sum(room) FROM uploads WHERE payer IS NOT NULL AND has_body GROUP BY payer;
";

/// What one payer has.
const PAID_BY: &str = "SELECT uploads, room FROM paid WHERE payer = ?1";

/// Uploads without record 0. A pause of one has a mark; earlier versions made none, and theirs stay.
const HEADLESS: &str = "state = 'receiving' AND owner IS NULL
    AND (NOT paused OR EXISTS (SELECT 1 FROM notes WHERE notes.id = uploads.id AND notes.paused))";

/// What has been kept the longest of one payer.
const LONGEST_KEPT_OF: &str =
    "SELECT id FROM uploads INDEXED BY uploads_kept_paid WHERE kept AND payer = ?1 ORDER BY updated LIMIT ?2";

/// What was kept long enough.
const KEPT_LONG: &str = "SELECT id FROM uploads INDEXED BY uploads_kept_times WHERE kept AND \
                         (updated < ?1 OR expires < ?2 OR (updated > ?3 AND expires > ?4)) ORDER BY updated LIMIT ?5";

/// Prepared statements of each connection, some KiB each: room for all that there are. One too many would have each
/// prepared anew, all the time.
const STATEMENTS_MAX: usize = 128;

/// The log's file is cut to so many bytes when it begins anew: at some 4 MiB, if nobody reads then.
const LOG_MAX: i64 = 16 << 20;

impl SqliteIndex {
    /// Opens the index, and makes it if it is not there. It keeps so many bytes at most of what has ended.
    ///
    /// # Errors
    /// If the file cannot be used, or was written by a later version.
    pub fn open(path: &Path, ended_max: u64) -> Result<Self, StoreError> {
        // SQLite makes its log with the mode of the database. What is wrong with the file, it says itself.
        let _ = hoop_files::touch(path);
        let mut connection = Connection::open(path)?;
        connection.pragma_update(None, "journal_mode", "WAL")?;
        connection.pragma_update(None, "synchronous", "FULL")?;
        // Gives back what the log has grown by while a reader was always there.
        connection.pragma_update(None, "journal_size_limit", LOG_MAX)?;
        // Otherwise the undo data of savepoints would go to a shared folder, which a confined role may not write to.
        connection.pragma_update(None, "temp_store", "MEMORY")?;
        lay_out(&mut connection)?;
        // Where a sync failed and the process ended, the log may be in memory alone. What it says counts as kept from here on.
        connection.query_row("PRAGMA wal_checkpoint(PASSIVE)", [], |_| Ok(()))?;
        let reader = Connection::open(path)?;
        reader.pragma_update(None, "query_only", "ON")?;
        reader.pragma_update(None, "temp_store", "MEMORY")?;
        [&connection, &reader].into_iter().for_each(|one| one.set_prepared_statement_cache_capacity(STATEMENTS_MAX));
        Ok(Self::new(connection, reader, ended_max))
    }

    fn ids(&self, sql: &str, params: &[&dyn rusqlite::ToSql]) -> Result<Vec<UploadId>, StoreError> {
        let connection = self.reader();
        let mut statement = connection.prepare_cached(sql)?;
        let ids = statement.query_map(params, |row| row.get::<_, [u8; 16]>(0).map(UploadId))?;
        Ok(ids.collect::<Result<_, _>>()?)
    }

    fn uploads(&self, sql: &str, params: &[&dyn rusqlite::ToSql]) -> Result<Vec<Upload>, StoreError> {
        let connection = self.reader();
        let mut statement = connection.prepare_cached(sql)?;
        let uploads = statement.query_map(params, |row| Ok(read(row)))?;
        uploads.map(|upload| upload?).collect()
    }
}

impl Index for SqliteIndex {
    fn settle(&self) -> Result<(), StoreError> {
        self.settle_doubt()
    }

    fn load(&self, id: UploadId) -> Result<Option<Upload>, StoreError> {
        load(&self.reader(), id)
    }

    fn receive(&self, progress: &Upload, first: bool) -> Result<Changed, StoreError> {
        let progress = progress.clone();
        self.in_group(move |transaction| {
            let (mut upload, is_new) = match (load(transaction, progress.id)?, first) {
                (Some(upload), _) => (upload, false),
                (None, true) => (begin(transaction, &progress)?, true),
                (None, false) => return Ok(Changed::Unknown),
            };
            let (before, updated) = ((is_new, upload.state, upload.payer, upload.facts.is_some()), upload.updated);
            upload.payer = progress.payer.or(upload.payer);
            if upload.receive(&progress.received, progress.facts.as_ref(), progress.updated).is_err() {
                return Ok(Changed::Refused(upload));
            }
            match before == (false, upload.state, upload.payer, upload.facts.is_some()) {
                true => grow(transaction, &upload, updated)?,
                false => save(transaction, &upload)?,
            }
            Ok(Changed::Done(upload))
        })
    }

    fn discard(&self, id: UploadId) -> Result<bool, StoreError> {
        self.in_group(move |transaction| {
            let sql = format!("DELETE FROM uploads WHERE id = ?1 AND {HEADLESS}");
            let is_gone = transaction.prepare_cached(&sql)?.execute([id.0])? > 0;
            if is_gone {
                notes::let_go(transaction, id)?;
            }
            Ok(is_gone)
        })
    }

    fn apply(&self, id: UploadId, change: Change, now: UnixTime) -> Result<Changed, StoreError> {
        let ended_max = self.ended_max;
        self.in_group(move |transaction| applied(transaction, id, change, now, ended_max))
    }

    fn pause(&self, new: Marked, now: UnixTime) -> Result<(Changed, Option<Marked>), StoreError> {
        let ended_max = self.ended_max;
        self.in_group(move |transaction| {
            let id = new.id;
            let may_go = load(transaction, id)?.is_none_or(|known| known.is_headless());
            let marked = match may_go {
                true => notes::marked(transaction, new, Box::new(|marked| marked.paused = true), ended_max)?,
                false => None,
            };
            Ok((applied(transaction, id, Change::Pause, now, ended_max)?, marked))
        })
    }

    fn stop(&self, new: Marked, now: UnixTime) -> Result<(Changed, Option<Marked>), StoreError> {
        let ended_max = self.ended_max;
        self.in_group(move |transaction| {
            let changed = applied(transaction, new.id, Change::Stop, now, ended_max)?;
            let marked = match changed {
                Changed::Unknown => {
                    notes::marked(transaction, new, Box::new(|marked| marked.stopped = true), ended_max)?
                }
                Changed::Done(_) | Changed::Refused(_) => None,
            };
            Ok((changed, marked))
        })
    }

    fn resume(&self, id: UploadId, now: UnixTime) -> Result<(Changed, Option<Marked>), StoreError> {
        let ended_max = self.ended_max;
        self.in_group(move |transaction| {
            let marked = match notes::load(transaction, id)? {
                Some(marked) => {
                    notes::marked(transaction, marked, Box::new(|marked| marked.paused = false), ended_max)?
                }
                None => None,
            };
            Ok((applied(transaction, id, Change::Resume, now, ended_max)?, marked))
        })
    }

    fn let_go(&self, ids: Vec<UploadId>, now: UnixTime) -> Result<Vec<Changed>, StoreError> {
        let ended_max = self.ended_max;
        self.in_group(move |transaction| {
            ids.into_iter().map(|id| applied(transaction, id, Change::LetGo, now, ended_max)).collect()
        })
    }

    fn due(&self, last: Option<Payer>, now: UnixTime) -> Result<Vec<(Option<Payer>, UploadId)>, StoreError> {
        while turns::has_come(&self.reader(), now)? {
            self.in_group(move |transaction| turns::ripen(transaction, now))?;
        }
        turns::due(&self.reader(), last)
    }

    fn next_due(&self, now: UnixTime) -> Result<Option<UnixTime>, StoreError> {
        turns::next_due(&self.reader(), now)
    }

    fn interrupted(&self, after: Option<UploadId>, limit: usize) -> Result<Vec<UploadId>, StoreError> {
        let sql = "SELECT id FROM uploads WHERE state IN ('replaying', 'committing') AND (?1 IS NULL OR id > ?1) \
                   ORDER BY id LIMIT ?2";
        self.ids(sql, &[&after.map(|id| id.0), &rows(limit)])
    }

    fn owned(&self, tags: &[Tag], limit: usize) -> Result<Vec<Upload>, StoreError> {
        let columns = COLUMNS.replace("answer", "NULL AS answer");
        let sql = format!("SELECT {columns} FROM uploads WHERE owner = ?1 ORDER BY created DESC LIMIT ?2");
        let mut uploads = Vec::new();
        for tag in tags {
            uploads.extend(self.uploads(&sql, &[tag, &rows(limit)])?);
        }
        uploads.sort_by_key(|upload| std::cmp::Reverse(upload.created));
        uploads.truncate(limit);
        Ok(uploads)
    }

    fn under_way(&self, turn: Tag, of_payer: usize, limit: usize) -> Result<Vec<UnderWay>, StoreError> {
        // A payer's first letter says whether the application has named it.
        let sql = "WITH owners AS (SELECT owner, max(id) AS id, max(created) AS began, max(payer) AS payer FROM uploads WHERE state IN \
                   ('receiving', 'received') AND owner IS NOT NULL AND NOT paused GROUP BY owner), \
                   turns AS (SELECT *, row_number() OVER (PARTITION BY coalesce(payer, owner) ORDER BY owner <= ?1, owner) AS turn FROM owners) \
                   SELECT owner, id, began FROM turns WHERE turn <= ?2 ORDER BY substr(payer, 1, 1) IS NOT x'6f', owner <= ?1, owner LIMIT ?3";
        let connection = self.reader();
        let mut statement = connection.prepare_cached(sql)?;
        let found = statement.query_map(params![turn, rows(of_payer), rows(limit)], |row| {
            Ok(UnderWay { owner: row.get(0)?, id: UploadId(row.get(1)?), began: UnixTime(row.get(2)?) })
        })?;
        Ok(found.collect::<Result<_, _>>()?)
    }

    fn overdue(&self, over: Over, limit: usize) -> Result<Vec<UploadId>, StoreError> {
        let (before, after) = tickets_ended(&self.reader(), over, LINGER_SECS)?;
        self.ids(&overdue(), &[&before, &after, &rows(limit)])
    }

    fn ending(&self, before: UnixTime) -> Result<u64, StoreError> {
        let before = before.0.saturating_sub(LINGER_SECS);
        Ok(self.reader().prepare_cached(&ending())?.query_row([before], |row| row.get::<_, u32>(0)).map(u64::from)?)
    }

    fn disposable(&self, limit: usize) -> Result<Vec<UploadId>, StoreError> {
        let sql = format!("SELECT id FROM uploads WHERE has_body AND NOT kept AND state IN {FINAL} LIMIT ?1");
        self.ids(&sql, &[&rows(limit)])
    }

    fn kept(&self, over: Over, limit: usize) -> Result<Vec<UploadId>, StoreError> {
        let sql = KEPT_LONG;
        let (updated, last_updated) = rows::ended(over, KEPT_SECS);
        let (expires, last_expires) = tickets_ended(&self.reader(), over, LINGER_SECS)?;
        self.ids(sql, &[&updated, &expires, &last_updated, &last_expires, &rows(limit)])
    }

    fn longest_kept(&self, of: Option<Payer>, limit: usize) -> Result<Vec<UploadId>, StoreError> {
        match of {
            None => self.ids("SELECT id FROM uploads WHERE kept ORDER BY updated LIMIT ?1", &[&rows(limit)]),
            Some(payer) => self.ids(LONGEST_KEPT_OF, &[&payer, &rows(limit)]),
        }
    }

    fn paid_by(&self, payer: Payer) -> Result<Sum, StoreError> {
        let sum = |row: &Row<'_>| Ok((row.get::<_, u32>(0)?, row.get::<_, i64>(1)?));
        let found = self.reader().prepare_cached(PAID_BY)?.query_row([payer], sum).optional()?;
        let (uploads, bytes) = found.unwrap_or_default();
        let bytes = u64::try_from(bytes).map_err(|_| StoreError::Damaged("a room below zero"))?;
        Ok(Sum { uploads: uploads as usize, bytes })
    }

    fn headless(&self, over: Over, secs: u32, limit: usize) -> Result<Vec<UploadId>, StoreError> {
        let sql = format!(
            "SELECT id FROM uploads WHERE {HEADLESS} AND (created < ?1 OR created > ?2) ORDER BY created LIMIT ?3"
        );
        let (before, after) = rows::ended(over, secs);
        self.ids(&sql, &[&before, &after, &rows(limit)])
    }

    fn stored(&self) -> Result<u64, StoreError> {
        let sql = "SELECT room FROM stored";
        let sum = self.reader().prepare_cached(sql)?.query_row([], |row| row.get::<_, i64>(0))?;
        u64::try_from(sum).map_err(|_| StoreError::Damaged("a room below zero"))
    }

    fn counts(&self) -> Result<Vec<(State, u64)>, StoreError> {
        let connection = self.reader();
        let mut statement = connection.prepare_cached("SELECT count(*) FROM uploads WHERE state = ?1")?;
        let count = |row: &Row<'_>| row.get::<_, u32>(0).map(u64::from);
        State::ALL.into_iter().map(|state| Ok((state, statement.query_row([state.name()], count)?))).collect()
    }

    fn ended(&self) -> Result<u64, StoreError> {
        ended::kept(&self.reader())
    }

    fn shed(&self) -> Result<usize, StoreError> {
        let ended_max = self.ended_max;
        self.in_group(move |transaction| ended::shed(transaction, ended_max, ended::AT_ONCE))
    }

    fn need_no_body(&self, ids: Vec<UploadId>) -> Result<Vec<UploadId>, StoreError> {
        let connection = self.reader();
        let sql = format!("SELECT 1 FROM uploads WHERE id = ?1 AND (kept OR state NOT IN {FINAL})");
        let mut statement = connection.prepare_cached(&sql)?;
        let needs = |id: UploadId| Ok::<_, StoreError>((id, statement.exists([id.0])?));
        let looked = ids.into_iter().map(needs).collect::<Result<Vec<_>, _>>()?;
        Ok(looked.into_iter().filter(|(_, needs)| !needs).map(|(id, _)| id).collect())
    }

    fn disposed(&self, ids: Vec<UploadId>) -> Result<(), StoreError> {
        self.in_group(move |transaction| {
            let sql = format!("UPDATE uploads SET has_body = 0 WHERE id = ?1 AND NOT kept AND state IN {FINAL}");
            let mut statement = transaction.prepare_cached(&sql)?;
            ids.into_iter().try_for_each(|id| Ok(statement.execute([id.0]).map(drop)?))
        })
    }

    fn forget(&self, over: Over, limit: usize) -> Result<usize, StoreError> {
        self.in_group(move |transaction| {
            // Twice the time: an upload that has expired can be asked for a while, too.
            let (before, after) = tickets_ended(transaction, over, 2 * LINGER_SECS)?;
            let gone = {
                let mut statement = transaction.prepare_cached(&forgettable())?;
                let found =
                    statement.query_map(params![before, after, rows(limit)], |row| row.get::<_, [u8; 16]>(0))?;
                found.collect::<Result<Vec<_>, _>>()?
            };
            let mut note = transaction.prepare_cached("DELETE FROM notes WHERE id = ?1")?;
            let mut upload = transaction.prepare_cached("DELETE FROM uploads WHERE id = ?1")?;
            for id in &gone {
                closed::close(transaction, "uploads", "?1", [id])?;
                note.execute([id])?;
                upload.execute([id])?;
            }
            Ok(gone.len())
        })
    }
}

/// Ended uploads that may be forgotten: their tickets ended before `?1`, or after `?2`. Both are found by their times
/// alone, since there may be millions of rows that may not be forgotten yet.
fn forgettable() -> String {
    let part = |when: &str, order: &str| {
        format!(
            "SELECT * FROM (SELECT id, expires FROM uploads INDEXED BY uploads_over WHERE expires {when} AND NOT has_body AND state IN {FINAL} \
             ORDER BY expires{order}, id LIMIT ?3)"
        )
    };
    format!("SELECT id FROM ({} UNION ALL {}) ORDER BY expires, id LIMIT ?3", part("< ?1", ""), part("> ?2", ""))
}

/// Uploads that have not ended although their tickets ended before `?1`, or after `?2`.
fn overdue() -> String {
    let part = |when: &str| {
        format!("SELECT id FROM uploads INDEXED BY uploads_unended WHERE expires {when} AND state IN {UNENDED}")
    };
    format!("{} UNION ALL {} LIMIT ?3", part("< ?1"), part("> ?2"))
}

/// The number of uploads that have not ended and whose tickets end before `?1`.
fn ending() -> String {
    format!("SELECT count(*) FROM uploads INDEXED BY uploads_unended WHERE expires < ?1 AND state IN {UNENDED}")
}

/// The steps of the layout.
fn steps() -> [String; 11] {
    [
        UPLOADS.to_owned(),
        [PAUSED, notes::SCHEMA, settings::SCHEMA].concat(),
        RECEIPTS.to_owned(),
        ROOM.to_owned(),
        KEPT.to_owned(),
        PAYERS.to_owned(),
        closed::SCHEMA.to_owned(),
        ended::schema(),
        [notes::PAYERS, settings::PAYERS].concat(),
        turns::SCHEMA.to_owned(),
        turns::RIPE.to_owned(),
    ]
}

/// Makes the steps of the layout that are still to be made.
fn lay_out(connection: &mut Connection) -> Result<(), StoreError> {
    let steps = steps();
    let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    let made = transaction.query_row("PRAGMA user_version", [], |row| row.get::<_, i64>(0))?;
    let left = usize::try_from(made).ok().and_then(|made| steps.get(made..));
    let left = left.ok_or(StoreError::Damaged("it was written by another version of this program"))?;
    left.iter().try_for_each(|step| transaction.execute_batch(step))?;
    if left.iter().any(|step| step == PAYERS) {
        count_anew(&transaction)?;
    }
    transaction.pragma_update(None, "user_version", rows(steps.len()))?;
    transaction.execute_batch(&orders())?;
    keep_up(&transaction, "paid", SUMS, ADD_UP)?;
    // Nothing asks it since sums are kept, and each range would write it.
    transaction.execute_batch("DROP INDEX IF EXISTS uploads_payer")?;
    notes::keep_counts(&transaction)?;
    settings::keep_sums(&transaction)?;
    Ok(transaction.commit()?)
}

/// Counts for each upload what has come of it, and no longer what it was promised.
fn count_anew(transaction: &Connection) -> Result<(), StoreError> {
    let mut uploads = transaction.prepare("SELECT id, received FROM uploads WHERE has_body")?;
    let mut count = transaction.prepare("UPDATE uploads SET room = ?2 WHERE id = ?1")?;
    let mut rows = uploads.query([])?;
    let mut found = Vec::new();
    while let Some(row) = rows.next()? {
        let received = row.get::<_, String>(1)?.parse::<RangeSet>();
        let len = received.map_err(|_| StoreError::Damaged("ranges that are none"))?.len();
        found.push((row.get::<_, [u8; 16]>(0)?, i64::try_from(len).unwrap_or(i64::MAX)));
    }
    found.into_iter().try_for_each(|(id, len)| count.execute(params![id, len]).map(drop))?;
    Ok(())
}

/// Begins an upload of which at most a pause or a stop was known.
fn begin(transaction: &Connection, progress: &Upload) -> Result<Upload, StoreError> {
    let mut upload = progress.clone();
    if let Some(marked) = notes::load(transaction, progress.id)? {
        upload.paused = marked.paused;
        if marked.stopped {
            upload.state = State::Stopped;
        }
        notes::set_arrived(transaction, progress.id, !marked.stopped)?;
    }
    Ok(upload)
}

/// Makes a change to one upload.
fn applied(
    transaction: &Connection,
    id: UploadId,
    change: Change,
    now: UnixTime,
    ended_max: u64,
) -> Result<Changed, StoreError> {
    let Some(mut upload) = load(transaction, id)? else { return Ok(Changed::Unknown) };
    if upload.apply(change, now).is_err() {
        return Ok(Changed::Refused(upload));
    }
    save(transaction, &upload)?;
    if upload.state.is_final() {
        ended::shed(transaction, ended_max, ended::AT_ONCE)?;
    }
    Ok(Changed::Done(upload))
}

/// Saves what has come of an upload that was last changed at `updated`, if nothing else of it has changed: most ranges
/// change no more. SQLite writes the entries of each index anew that has one of the columns in a statement, so that the
/// statement has those alone that change.
fn grow(transaction: &Connection, upload: &Upload, updated: UnixTime) -> Result<(), StoreError> {
    let (id, received, room) = (upload.id.0, upload.received.to_string(), room(upload)?);
    if upload.updated == updated {
        let sql = "UPDATE uploads SET received = ?2, room = ?3 WHERE id = ?1";
        transaction.prepare_cached(sql)?.execute(params![id, received, room])?;
    } else {
        let sql = "UPDATE uploads SET received = ?2, room = ?3, updated = ?4 WHERE id = ?1";
        transaction.prepare_cached(sql)?.execute(params![id, received, room, upload.updated.0])?;
    }
    Ok(())
}

/// What an upload's body takes, as SQLite takes it.
fn room(upload: &Upload) -> Result<i64, StoreError> {
    i64::try_from(upload.room()).map_err(|_| StoreError::Damaged("a total beyond an exbibyte"))
}

fn save(transaction: &Connection, upload: &Upload) -> Result<(), StoreError> {
    static SQL: LazyLock<String> = LazyLock::new(|| {
        format!(
            "INSERT INTO uploads ({COLUMNS}, room, ended) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, \
         ?17, ?18, ?19, ?20, ?21, ?22, ?23, coalesce(?24 + {note}, 0)) ON CONFLICT (id) DO UPDATE SET received = excluded.received, state = excluded.state, method = \
         excluded.method, path = excluded.path, owner = excluded.owner, updated = excluded.updated, attempts = \
         excluded.attempts, next_attempt = excluded.next_attempt, reason_code = excluded.reason_code, reason_detail = \
         excluded.reason_detail, answer = excluded.answer, token = excluded.token, paused = excluded.paused, receipt = \
         excluded.receipt, failures = excluded.failures, kept = excluded.kept, payer = excluded.payer, \
         room = excluded.room, ended = excluded.ended, ripe = 0",
            note = ended::note_len("?1"),
        )
    });
    let facts = upload.facts.as_ref();
    let reason = upload.reason.as_ref();
    transaction.prepare_cached(&SQL)?.execute(params![
        upload.id.0,
        upload.prelude,
        i64::try_from(upload.total).map_err(|_| StoreError::Damaged("a total beyond an exbibyte"))?,
        upload.received.to_string(),
        upload.state.name(),
        facts.map(|facts| &facts.method),
        facts.map(|facts| &facts.path),
        facts.map(|facts| facts.owner),
        upload.created.0,
        upload.updated.0,
        upload.expires.0,
        upload.attempts,
        upload.next_attempt.map(|at| at.0),
        reason.map(|reason| reason.code.name()),
        reason.map(|reason| &reason.detail),
        upload.answer,
        upload.token,
        upload.paused,
        upload.receipt,
        upload.failures,
        upload.kept,
        upload.payer,
        room(upload)?,
        ended::weight(upload),
    ])?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::Reason;
    use crate::store::conformance::progress;
    use hoop_http::Code;

    fn done(changed: Result<Changed, StoreError>) -> Upload {
        crate::store::conformance::done(changed.unwrap())
    }

    fn due(index: &SqliteIndex, now: UnixTime) -> Vec<UploadId> {
        index.due(None, now).unwrap().into_iter().map(|(_, id)| id).collect()
    }

    fn index() -> (tempfile::TempDir, SqliteIndex) {
        let dir = tempfile::tempdir().unwrap();
        let index = SqliteIndex::open(&dir.path().join("index.sqlite"), ENDED_MAX).unwrap();
        // A thousand syncs would only take time.
        index.lock().pragma_update(None, "synchronous", "OFF").unwrap();
        (dir, index)
    }

    /// After a sync that failed, the kernel may have in memory alone what the log shows.
    #[test]
    fn what_the_log_has_is_in_the_database_once_the_index_is_open() {
        let (dir, index) = index();
        done(index.receive(&progress(1, 10), true));
        let copy = tempfile::tempdir().unwrap();
        for name in ["index.sqlite", "index.sqlite-wal"] {
            std::fs::copy(dir.path().join(name), copy.path().join(name)).unwrap();
        }
        let opened = SqliteIndex::open(&copy.path().join("index.sqlite"), ENDED_MAX).unwrap();
        let alone = tempfile::tempdir().unwrap();
        std::fs::copy(copy.path().join("index.sqlite"), alone.path().join("index.sqlite")).unwrap();
        drop(opened);
        let index = SqliteIndex::open(&alone.path().join("index.sqlite"), ENDED_MAX).unwrap();
        assert!(index.load(progress(1, 10).id).unwrap().is_some());
    }

    /// A role that is confined may make no files but its own.
    #[test]
    fn sqlite_keeps_temporary_data_in_memory() {
        let (_dir, index) = index();
        for connection in [index.lock(), index.reader()] {
            let kept: u32 = connection.pragma_query_value(None, "temp_store", |row| row.get(0)).unwrap();
            assert_eq!(kept, 2, "MEMORY");
        }
    }

    #[test]
    fn an_uploads_row_survives_a_restart() {
        let (dir, index) = index();
        done(index.receive(&progress(1, 500), true));
        done(index.receive(&progress(1, 1_000), false));
        done(index.apply(UploadId([1; 16]), Change::Claim, UnixTime(200)));
        let reason = Reason::new(Code::UpstreamBusy, "503");
        done(index.apply(UploadId([1; 16]), Change::Retry { at: UnixTime(300), reason }, UnixTime(201)));
        let before = index.load(UploadId([1; 16])).unwrap().unwrap();
        drop(index);
        let index = SqliteIndex::open(&dir.path().join("index.sqlite"), ENDED_MAX).unwrap();
        assert!(index.load(UploadId([1; 16])).unwrap().unwrap() == before);
        assert_eq!((before.attempts, before.next_attempt), (1, Some(UnixTime(300))));
        assert_eq!(index.load(UploadId([2; 16])).unwrap().map(|upload| upload.id), None);
    }

    #[test]
    fn an_index_of_the_first_layout_opens_and_one_of_tomorrow_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("index.sqlite");
        let first = Connection::open(&path).unwrap();
        first.execute_batch(&format!("{UPLOADS} PRAGMA user_version = 1;")).unwrap();
        let sql = "INSERT INTO uploads (id, prelude, total, received, state, created, updated, expires, attempts) VALUES \
                   (?1, x'00', 9, '0-8', 'received', 1, 2, 3, 4)";
        first.execute(sql, [[1_u8; 16]]).unwrap();
        first.execute(&sql.replace("'0-8', 'received'", "'0-2,5-5', 'receiving'"), [[2_u8; 16]]).unwrap();
        let sql = sql.replace("attempts)", "attempts, answer, has_body)").replace("4)", "4, zeroblob(5000), 0)");
        first.execute(&sql.replace("'received'", "'accepted'"), [[3_u8; 16]]).unwrap();
        drop(first);
        for _ in 0..2 {
            let index = SqliteIndex::open(&path, ENDED_MAX).unwrap();
            let upload = index.load(UploadId([1; 16])).unwrap().unwrap();
            assert_eq!((upload.total, upload.attempts, upload.paused), (9, 4, false));
            assert_eq!(due(&index, UnixTime(5)), [UploadId([1; 16])]);
            assert_eq!((index.stored().unwrap(), upload.payer), (9 + 4, None), "what has come, and no promise");
            assert!((5_001..6_000).contains(&index.ended().unwrap()), "what has ended counts");
        }
        Connection::open(&path).unwrap().pragma_update(None, "user_version", 99).unwrap();
        assert!(matches!(SqliteIndex::open(&path, ENDED_MAX), Err(StoreError::Damaged(_))));
    }

    #[test]
    fn an_index_of_the_layout_before_payers_keeps_its_notes_and_settings() {
        use crate::store::{Notes as _, SavedSettings as _};
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("index.sqlite");
        let before = Connection::open(&path).unwrap();
        before.execute_batch(&steps()[..8].concat()).unwrap();
        before.pragma_update(None, "user_version", 8).unwrap();
        let sql = "INSERT INTO notes VALUES (?1, ?1, '{\"total\":7}', 1, 1000, 1, 0, 0)";
        before.execute(sql, [[1_u8; 16]]).unwrap();
        before.execute("INSERT INTO settings VALUES (?1, '{\"min_bytes\":7}', 5)", [[2_u8; 16]]).unwrap();
        drop(before);
        let index = SqliteIndex::open(&path, ENDED_MAX).unwrap();
        let mut marked = index.marked(UploadId([1; 16])).unwrap().unwrap();
        assert_eq!((marked.payer, marked.paused, marked.note.as_ref().unwrap().total), (None, true, 7));
        assert_eq!(index.settings(&[[2; 16]], UnixTime(9)).unwrap().unwrap().min_bytes, 7);
        // Whoever changes them pays from then on.
        marked.payer = Some(Payer::Address([3; 16]));
        let marked = index.mark(marked.clone(), Box::new(move |marked| marked.paused = false)).unwrap().unwrap();
        assert_eq!(index.marked(marked.id).unwrap().unwrap().payer, marked.payer);
        index.save_settings([2; 16], Payer::Address([3; 16]), &crate::model::Settings::default(), UnixTime(9)).unwrap();
        assert_eq!(index.settings(&[[2; 16]], UnixTime(9)).unwrap().unwrap().min_bytes, 0);
    }

    /// How SQLite searches, in its own words.
    fn plan(index: &SqliteIndex, sql: &str) -> Vec<String> {
        let connection = index.lock();
        let mut statement = connection.prepare(&format!("EXPLAIN QUERY PLAN {sql}")).unwrap();
        let none = vec![rusqlite::types::Null; statement.parameter_count()];
        let rows = statement.query_map(rusqlite::params_from_iter(none), |row| row.get("detail")).unwrap();
        rows.map(Result::unwrap).collect()
    }

    /// A day of one address whose uploads are held has hundreds of thousands of rows, and each message asks what it has.
    #[test]
    fn a_payers_sum_is_read_without_its_uploads() {
        let (_dir, index) = index();
        assert_eq!(plan(&index, PAID_BY), ["SEARCH paid USING PRIMARY KEY (payer=?)"]);
        assert_eq!(plan(&index, LONGEST_KEPT_OF), ["SEARCH uploads USING INDEX uploads_kept_paid (payer=?)"]);
    }

    /// Each minute it is looked for, in the one transaction for which all wait: to read all that has ended took ten seconds for each half a million rows.
    #[test]
    fn forgettable_uploads_are_found_without_reading_others() {
        let (_dir, index) = index();
        let plan = plan(&index, &forgettable());
        let searches = |by: &str| {
            let step = format!("SEARCH uploads USING INDEX uploads_over (expires{by}?)");
            plan.iter().filter(|found| **found == step).count()
        };
        assert_eq!((searches("<"), searches(">")), (1, 1), "{plan:?}");
        assert!(!plan.iter().any(|step| step.starts_with("SCAN uploads")), "{plan:?}");
        let kept = self::plan(&index, KEPT_LONG);
        assert_eq!(kept, ["SCAN uploads USING COVERING INDEX uploads_kept_times"]);
    }

    /// Each minute it is looked for, while nobody else reads: 70,000 uploads that had not ended took 0.2 s.
    #[test]
    fn overdue_uploads_are_found_without_reading_others() {
        let (_dir, index) = index();
        let search = |by: &str| format!("SEARCH uploads USING INDEX uploads_unended (expires{by}?)");
        let plan = self::plan(&index, &overdue());
        assert!([search("<"), search(">")].iter().all(|step| plan.contains(step)), "{plan:?}");
        assert!(!plan.iter().any(|step| step.starts_with("SCAN uploads")), "{plan:?}");
        assert_eq!(self::plan(&index, &ending()), [search("<")]);
    }

    #[test]
    fn each_payers_sum_matches_its_uploads_after_any_change() {
        let (dir, index) = index();
        let sums = |index: &SqliteIndex, of: &str| {
            let connection = index.lock();
            let mut statement = connection.prepare(&format!("SELECT * FROM {of} ORDER BY payer")).unwrap();
            let rows = statement.query_map([], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?))).unwrap();
            rows.map(Result::unwrap).collect::<Vec<(Vec<u8>, i64, i64)>>()
        };
        let sum = "(SELECT payer, count(*), sum(room) FROM uploads WHERE payer IS NOT NULL AND has_body GROUP BY 1)";
        let mut random = 7_u32;
        for _ in 0..1_500 {
            random = random.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            let (n, len) = (u8::try_from(random >> 8 & 31).unwrap(), u64::from(random >> 13 & 7) * 100);
            let id = UploadId([n; 16]);
            let payer = Payer::Address([u8::try_from(random >> 16 & 3).unwrap(); 16]);
            match random >> 24 & 7 {
                0..=2 => {
                    let upload = Upload { payer: Some(payer), ..progress(n, len) };
                    drop(index.receive(&upload, random & 1 == 0).unwrap());
                }
                3 => drop(index.apply(id, Change::Stop, UnixTime(9)).unwrap()),
                4 => index.disposed(vec![id]).unwrap(),
                5 => drop(index.lock().execute("DELETE FROM uploads WHERE id = ?1", [id.0]).unwrap()),
                6 => drop(index.lock().execute("UPDATE uploads SET payer = NULL WHERE id = ?1", [id.0]).unwrap()),
                _ => drop(index.discard(id).unwrap()),
            }
            assert_eq!(sums(&index, "paid"), sums(&index, sum));
        }
        let before = sums(&index, "paid");
        assert!(!before.is_empty());
        // An index that an older version has left has no sums.
        let drops = ["new", "changed", "grown", "gone"].map(|name| format!("DROP TRIGGER paid_{name};")).concat();
        index.lock().execute_batch(&format!("{drops} DROP TABLE paid; DROP INDEX uploads_kept_paid;")).unwrap();
        drop(index);
        let index = SqliteIndex::open(&dir.path().join("index.sqlite"), ENDED_MAX).unwrap();
        assert_eq!(sums(&index, "paid"), before);
    }

    #[test]
    fn ranges_count_once_after_a_version_whose_trigger_counted_them() {
        let (dir, index) = index();
        let payer = Payer::Address([1; 16]);
        let receive = |index: &SqliteIndex, len| {
            done(index.receive(&Upload { payer: Some(payer), total: 20_000, ..progress(1, len) }, true));
        };
        receive(&index, 1_000);
        let earlier = "DROP TRIGGER paid_grown; DROP TRIGGER paid_changed;
            CREATE TRIGGER paid_changed AFTER UPDATE OF payer, room, has_body ON uploads WHEN new.room <> old.room BEGIN
                UPDATE paid SET room = room + new.room - old.room WHERE payer = new.payer;
            END;
            CREATE INDEX uploads_payer ON uploads (payer, room) WHERE has_body AND payer IS NOT NULL;";
        index.lock().execute_batch(earlier).unwrap();
        receive(&index, 5_000);
        drop(index);
        for (len, room) in [(9_000, 12_288), (15_000, 16_384)] {
            let index = SqliteIndex::open(&dir.path().join("index.sqlite"), ENDED_MAX).unwrap();
            receive(&index, len);
            assert_eq!(index.paid_by(payer).unwrap().bytes, room);
        }
    }

    #[test]
    fn a_paused_upload_is_not_due_until_it_is_resumed() {
        let (_dir, index) = index();
        let id = UploadId([1; 16]);
        done(index.receive(&progress(1, 1_000), true));
        done(index.apply(id, Change::Pause, UnixTime(200)));
        assert_eq!(due(&index, UnixTime(u32::MAX)), []);
        assert!(index.load(id).unwrap().unwrap().paused);
        done(index.apply(id, Change::Resume, UnixTime(201)));
        assert_eq!(due(&index, UnixTime(201)), [id]);
    }

    #[test]
    fn a_stop_before_arrival_holds_and_so_does_a_pause() {
        use crate::model::Marked;
        use crate::store::Notes as _;
        let (_dir, index) = index();
        let new = |n| Marked::new(UploadId([n; 16]), [1; 16], Payer::Owner([1; 16]), UnixTime(1), UnixTime(1_000));
        index.mark(new(1), Box::new(move |marked| marked.stopped = true)).unwrap();
        index.mark(new(2), Box::new(move |marked| marked.paused = true)).unwrap();
        assert!(matches!(index.receive(&progress(1, 10), true).unwrap(), Changed::Refused(_)));
        assert!(index.load(UploadId([1; 16])).unwrap().is_none());
        assert!(done(index.receive(&progress(2, 10), true)).paused);
        assert_eq!(index.forget_marks(UnixTime(u32::MAX).into(), 9).unwrap(), 1, "the other one goes with its upload");
    }

    #[test]
    fn progress_on_an_upload_that_was_forgotten_or_stopped_changes_nothing() {
        let (_dir, index) = index();
        assert!(matches!(index.receive(&progress(1, 500), false).unwrap(), Changed::Unknown));
        done(index.receive(&progress(1, 500), true));
        done(index.apply(UploadId([1; 16]), Change::Stop, UnixTime(200)));
        assert!(matches!(index.receive(&progress(1, 1_000), true).unwrap(), Changed::Refused(_)));
        assert_eq!(index.load(UploadId([1; 16])).unwrap().unwrap().state, State::Stopped);
    }

    #[test]
    fn a_retry_is_due_at_its_time_and_also_after_the_clock_was_set_back() {
        let (_dir, index) = index();
        done(index.receive(&progress(1, 1_000), true));
        assert_eq!(due(&index, UnixTime(0)), [UploadId([1; 16])]);
        done(index.apply(UploadId([1; 16]), Change::Claim, UnixTime(200)));
        assert_eq!(due(&index, UnixTime(u32::MAX)), []);
        let retry = Change::Retry { at: UnixTime(100_000), reason: Reason::new(Code::UpstreamBusy, "") };
        done(index.apply(UploadId([1; 16]), retry, UnixTime(99_000)));
        assert_eq!(due(&index, UnixTime(99_999)), []);
        assert_eq!(index.next_due(UnixTime(99_999)).unwrap(), Some(UnixTime(100_000)));
        assert_eq!(due(&index, UnixTime(100_000)).len(), 1);
        assert_eq!(due(&index, UnixTime(5)).len(), 1, "the clock was set back by a day");
    }

    #[test]
    fn interrupted_replays_are_found_a_page_at_a_time() {
        let (_dir, index) = index();
        for n in 1..=5 {
            done(index.receive(&progress(n, 1_000), true));
            done(index.apply(UploadId([n; 16]), Change::Claim, UnixTime(200)));
        }
        done(index.apply(UploadId([2; 16]), Change::Commit, UnixTime(201)));
        done(index.apply(UploadId([3; 16]), Change::Recover, UnixTime(201)));
        let page = |after: Option<u8>| {
            let ids = index.interrupted(after.map(|n| UploadId([n; 16])), 2).unwrap();
            ids.iter().map(|id| id.0[0]).collect::<Vec<_>>()
        };
        assert_eq!((page(None), page(Some(2)), page(Some(5))), (vec![1, 2], vec![4, 5], vec![]));
    }

    #[test]
    fn an_owner_gets_their_own_uploads_newest_first() {
        let (_dir, index) = index();
        (1..=6).for_each(|n| drop(done(index.receive(&progress(n, 10), true))));
        let ids = |tags: &[[u8; 16]], limit| {
            index.owned(tags, limit).unwrap().iter().map(|upload| upload.id.0[0]).collect::<Vec<_>>()
        };
        assert_eq!(ids(&[[1; 16]], 9), [5, 3, 1]);
        assert_eq!(ids(&[[1; 16], [0; 16]], 4), [6, 5, 4, 3]);
        assert!(ids(&[[7; 16]], 9).is_empty());
    }

    #[test]
    fn an_upload_that_is_over_is_disposed_of_and_then_forgotten() {
        let (_dir, index) = index();
        done(index.receive(&progress(1, 10), true));
        let ends = UnixTime(1_000 + LINGER_SECS);
        assert_eq!(index.overdue(ends.into(), 9).unwrap(), []);
        assert_eq!(index.overdue(ends.plus_secs(1).into(), 9).unwrap().len(), 1);
        done(index.apply(UploadId([1; 16]), Change::Expire, ends));
        assert_eq!((index.disposable(9).unwrap().len(), index.stored().unwrap()), (1, 4_096));
        assert_eq!(index.forget(UnixTime(u32::MAX).into(), 9).unwrap(), 0, "not while there is a body");
        index.disposed(vec![UploadId([1; 16])]).unwrap();
        assert_eq!((index.disposable(9).unwrap().len(), index.stored().unwrap()), (0, 0));
        assert_eq!(index.forget(ends.into(), 9).unwrap(), 0);
        assert_eq!(index.forget(UnixTime(u32::MAX).into(), 9).unwrap(), 1);
        assert!(index.load(UploadId([1; 16])).unwrap().is_none());
        assert_eq!(RangeSet::new().to_string(), "");
    }
}
