//! Notes in the index, and marks on uploads of which nothing has come: [`Notes`].
//!
//! One row an upload: its owner, the note if there is one, and whether it is paused or stopped before anything of it has come.
//! Once something has come, `arrived` is set, and the upload's own row says whether it is paused or stopped.
//!
//! Bounds, of rows that wait for their uploads: [`NOTES_MAX`] notes of one owner and [`NOTES_ALL_MAX`] in all; [`MARKS_MAX`] marks of one
//! user and [`MARKS_ALL_MAX`] of strangers. A mark, that an upload is paused or stopped, goes only with its ticket's time: were it to go
//! for a note, what was stopped would be delivered.

use super::sqlite::SqliteIndex;
use super::{LINGER_SECS, StoreError, closed};
use crate::note::Note;
use crate::owner::Tag;
use hoop_http::Code;
use hoop_timekeeper::Over;
use hoop_units::{UnixTime, UploadId};
use rusqlite::{Connection, OptionalExtension as _, Row, Transaction, TransactionBehavior, params};

/// Notes of one owner (`docs/protocol.md` §7, "Notes"); then the oldest of an upload that is not marked goes.
const NOTES_MAX: u32 = 1_000;

/// Notes in all: whoever invents owners fills a gigabyte at the most, and is told then that there is no room.
const NOTES_ALL_MAX: u32 = 16_384;

/// Marks of one user whom the application knows: more than anybody stops or pauses in two weeks, and nobody else's affair.
const MARKS_MAX: u32 = 4_096;

/// Marks, beyond which those of strangers are refused: with notes another gigabyte.
const MARKS_ALL_MAX: u32 = 16_384;

/// The layout's second step.
pub const SCHEMA: &str = "
CREATE TABLE notes (
    id BLOB PRIMARY KEY, owner BLOB NOT NULL, note TEXT, created INTEGER NOT NULL, expires INTEGER NOT NULL,
    paused INTEGER NOT NULL DEFAULT 0, stopped INTEGER NOT NULL DEFAULT 0, arrived INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
CREATE INDEX notes_owner ON notes (owner, created) WHERE note IS NOT NULL;
CREATE INDEX notes_waiting ON notes (owner, created) WHERE NOT arrived AND note IS NOT NULL;
CREATE INDEX notes_marks ON notes (owner) WHERE NOT arrived AND (paused OR stopped);
CREATE INDEX notes_expires ON notes (expires) WHERE NOT arrived;
";

const COLUMNS: &str = "id, owner, note, created, expires, paused, stopped";

/// What is known of an upload from its device or owner alone.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Marked {
    /// Its name.
    pub id: UploadId,
    /// Whose it is, by its token.
    pub owner: Tag,
    /// What its device says of it.
    pub note: Option<Note>,
    /// When it was first heard of.
    pub created: UnixTime,
    /// The ticket's end.
    pub expires: UnixTime,
    /// Paused before anything of it has come.
    pub paused: bool,
    /// Stopped before anything of it has come.
    pub stopped: bool,
}

impl Marked {
    /// One of which nothing is known yet but whose it is.
    pub const fn new(id: UploadId, owner: Tag, created: UnixTime, expires: UnixTime) -> Self {
        Self { id, owner, note: None, created, expires, paused: false, stopped: false }
    }
}

impl Marked {
    /// Why nothing of it may come, if its owner says so.
    pub const fn refusal(&self) -> Option<Code> {
        match (self.stopped, self.paused) {
            (true, _) => Some(Code::UploadStopped),
            (false, true) => Some(Code::UploadPaused),
            (false, false) => None,
        }
    }
}

/// Keeps notes and marks.
pub trait Notes {
    /// What is known of an upload besides its row.
    fn marked(&self, id: UploadId) -> Result<Option<Marked>, StoreError>;
    /// Changes what is known, beginning with `new` if nothing is. `user`: it is of somebody whom the application knows. None: there is
    /// no room for another note or mark; to take a mark away needs none.
    fn mark(&self, new: &Marked, user: bool, change: &dyn Fn(&mut Marked)) -> Result<Option<Marked>, StoreError>;
    /// The notes of whoever has one of these tags, newest first.
    fn noted(&self, tags: &[Tag], limit: usize) -> Result<Vec<Marked>, StoreError>;
    /// Forgets those whose uploads never came, and closes the days of the tickets of those that were stopped or paused ([`super::Closed`]); how many.
    fn forget_marks(&self, over: Over, limit: usize) -> Result<usize, StoreError>;
}

impl Notes for SqliteIndex {
    fn marked(&self, id: UploadId) -> Result<Option<Marked>, StoreError> {
        load(&self.reader(), id)
    }

    fn mark(&self, new: &Marked, user: bool, change: &dyn Fn(&mut Marked)) -> Result<Option<Marked>, StoreError> {
        let mut connection = self.lock();
        let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
        let before = load(&transaction, new.id)?.unwrap_or_else(|| new.clone());
        let mut marked = before.clone();
        change(&mut marked);
        // What belongs to an upload that has begun to come is as bounded as uploads are.
        let waits = super::sqlite::load(&transaction, new.id)?.is_none();
        let noted = waits && marked.note.is_some() && before.note.is_none();
        let held = waits && marked.refusal().is_some() && before.refusal().is_none();
        if noted && !make_room(&transaction, marked.owner)? || held && !may_mark(&transaction, marked.owner, user)? {
            return Ok(None);
        }
        save(&transaction, &marked)?;
        let sql = "DELETE FROM notes WHERE id = ?1 AND NOT arrived AND note IS NULL AND NOT paused AND NOT stopped";
        transaction.prepare_cached(sql)?.execute([marked.id.0])?;
        transaction.commit()?;
        Ok(Some(marked))
    }

    fn noted(&self, tags: &[Tag], limit: usize) -> Result<Vec<Marked>, StoreError> {
        let sql =
            format!("SELECT {COLUMNS} FROM notes WHERE owner = ?1 AND note IS NOT NULL ORDER BY created DESC LIMIT ?2");
        let connection = self.reader();
        let mut statement = connection.prepare_cached(&sql)?;
        let mut notes = Vec::new();
        for tag in tags {
            for row in statement.query_map(params![tag, super::sqlite::rows(limit)], |row| Ok(read(row)))? {
                notes.push(row??);
            }
        }
        notes.sort_by_key(|marked| std::cmp::Reverse(marked.created));
        notes.truncate(limit);
        Ok(notes)
    }

    fn forget_marks(&self, over: Over, limit: usize) -> Result<usize, StoreError> {
        let which =
            "SELECT id FROM notes WHERE NOT arrived AND (expires < ?1 OR expires > ?2) ORDER BY expires, id LIMIT ?3";
        let mut connection = self.lock();
        let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
        let (before, after) = super::sqlite::tickets_ended(&transaction, over, LINGER_SECS)?;
        let params = params![before, after, super::sqlite::rows(limit)];
        closed::close(
            &transaction,
            "notes",
            &format!("SELECT id FROM ({which}) JOIN notes USING (id) WHERE paused OR stopped"),
            params,
        )?;
        let forgotten =
            transaction.prepare_cached(&format!("DELETE FROM notes WHERE id IN ({which})"))?.execute(params)?;
        transaction.commit()?;
        Ok(forgotten)
    }
}

/// Makes room for one more note of this owner; false if there is none.
fn make_room(transaction: &Transaction<'_>, owner: Tag) -> Result<bool, StoreError> {
    let waiting = "NOT arrived AND note IS NOT NULL";
    let own = count(transaction, &format!("{waiting} AND owner = ?1"), &[&owner])?;
    if own >= NOTES_MAX {
        let sql = format!(
            "DELETE FROM notes WHERE id = (SELECT id FROM notes WHERE {waiting} AND owner = ?1 AND NOT paused AND NOT \
             stopped ORDER BY created LIMIT 1)"
        );
        return Ok(transaction.prepare_cached(&sql)?.execute([owner])? > 0);
    }
    Ok(count(transaction, waiting, &[])? < NOTES_ALL_MAX)
}

/// Whether one more upload of this owner may be paused or stopped before it has come. A user is counted alone, so that no stranger
/// keeps one from stopping an upload.
fn may_mark(transaction: &Transaction<'_>, owner: Tag, user: bool) -> Result<bool, StoreError> {
    let marks = "NOT arrived AND (paused OR stopped)";
    Ok(match user {
        true => count(transaction, &format!("{marks} AND owner = ?1"), &[&owner])? < MARKS_MAX,
        false => count(transaction, marks, &[])? < MARKS_ALL_MAX,
    })
}

fn count(transaction: &Transaction<'_>, which: &str, params: &[&dyn rusqlite::ToSql]) -> Result<u32, StoreError> {
    let mut statement = transaction.prepare_cached(&format!("SELECT count(*) FROM notes WHERE {which}"))?;
    Ok(statement.query_row(params, |row| row.get(0))?)
}

/// What is known of an upload besides its row.
pub fn load(connection: &Connection, id: UploadId) -> Result<Option<Marked>, StoreError> {
    let mut statement = connection.prepare_cached(&format!("SELECT {COLUMNS} FROM notes WHERE id = ?1"))?;
    statement.query_row([id.0], |row| Ok(read(row))).optional()?.transpose()
}

fn save(transaction: &Transaction<'_>, marked: &Marked) -> Result<(), StoreError> {
    let sql = format!(
        "INSERT INTO notes ({COLUMNS}, arrived) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, EXISTS (SELECT 1 FROM uploads WHERE \
         id = ?1)) ON CONFLICT (id) DO UPDATE SET note = excluded.note, paused = excluded.paused, stopped = \
         excluded.stopped"
    );
    let note = marked.note.as_ref().map(|note| serde_json::to_string(note).expect("a note has a JSON form"));
    transaction.prepare_cached(&sql)?.execute(params![
        marked.id.0,
        marked.owner,
        note,
        marked.created.0,
        marked.expires.0,
        marked.paused,
        marked.stopped,
    ])?;
    Ok(())
}

/// Notes that the upload has begun to come, or is forgotten again.
pub fn set_arrived(connection: &Connection, id: UploadId, arrived: bool) -> Result<(), StoreError> {
    connection.prepare_cached("UPDATE notes SET arrived = ?2 WHERE id = ?1")?.execute(params![id.0, arrived])?;
    Ok(())
}

fn read(row: &Row<'_>) -> Result<Marked, StoreError> {
    let note: Option<String> = row.get("note")?;
    let note = note.map(|text| serde_json::from_str(&text).map_err(|_| StoreError::Damaged("a note that is none")));
    let note = note.transpose()?.map(Note::bounded);
    Ok(Marked {
        id: UploadId(row.get("id")?),
        owner: row.get("owner")?,
        note,
        created: UnixTime(row.get("created")?),
        expires: UnixTime(row.get("expires")?),
        paused: row.get("paused")?,
        stopped: row.get("stopped")?,
    })
}

#[cfg(test)]
mod tests {
    use super::super::Closed as _;
    use super::*;

    fn index() -> (tempfile::TempDir, SqliteIndex) {
        let dir = tempfile::tempdir().unwrap();
        let index = SqliteIndex::open(&dir.path().join("index.sqlite")).unwrap();
        // A thousand syncs would only take time.
        index.lock().pragma_update(None, "synchronous", "OFF").unwrap();
        (dir, index)
    }

    fn note(index: &SqliteIndex, n: u32, owner: u8) -> Option<Marked> {
        let mut id = [0; 16];
        id[..4].copy_from_slice(&n.to_be_bytes());
        let new = Marked::new(UploadId(id), [owner; 16], UnixTime(n), UnixTime(5_000));
        let note = Note::parse(b"{\"total\":9}").unwrap();
        index.mark(&new, false, &|marked| marked.note = Some(note.clone())).unwrap()
    }

    /// Stops, or else pauses, an upload of which nothing is known.
    fn hold(index: &SqliteIndex, n: u32, owner: u8, user: bool, stop: bool) -> Option<Marked> {
        let mut id = [0xff; 16];
        id[..4].copy_from_slice(&n.to_be_bytes());
        let new = Marked::new(UploadId(id), [owner; 16], UnixTime(0), UnixTime(5_000));
        index.mark(&new, user, &|marked| if stop { marked.stopped = true } else { marked.paused = true }).unwrap()
    }

    /// So many stopped uploads of that owner, in SQL, of which nothing else is known.
    fn stopped(index: &SqliteIndex, count: u32, owner: &str) {
        let sql = format!(
            "INSERT INTO notes WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < ?1) \
             SELECT randomblob(16), {owner}, NULL, 0, 5000, 0, 1, 0 FROM n"
        );
        index.lock().execute(&sql, [count]).unwrap();
    }

    #[test]
    fn no_number_of_notes_undoes_a_stop_or_a_pause() {
        let (_dir, index) = index();
        let held = [hold(&index, 1, 1, false, true).unwrap(), hold(&index, 2, 1, false, false).unwrap()];
        let noted = note(&index, 0, 1).unwrap();
        index.mark(&noted, false, &|marked| marked.stopped = true).unwrap().unwrap();
        for n in 1..=NOTES_MAX + 56 {
            note(&index, n, 1).unwrap();
        }
        for held in held {
            assert_eq!(index.marked(held.id).unwrap(), Some(held));
        }
        assert!(index.marked(noted.id).unwrap().unwrap().stopped);
        assert_eq!(index.noted(&[[1; 16]], usize::MAX).unwrap().len(), NOTES_MAX as usize);
    }

    #[test]
    fn strangers_marks_are_bounded_and_keep_no_user_from_stopping_or_noting() {
        let (_dir, index) = index();
        stopped(&index, MARKS_ALL_MAX - 1, "randomblob(16)");
        hold(&index, 0, 7, false, true).unwrap();
        assert_eq!(hold(&index, 2, 7, false, true), None);
        let noted = note(&index, 1, 7).unwrap();
        assert_eq!(index.mark(&noted, false, &|marked| marked.paused = true).unwrap(), None, "by no detour either");
        stopped(&index, MARKS_MAX - 1, "zeroblob(16)");
        hold(&index, 1, 0, true, true).unwrap();
        assert_eq!(hold(&index, 2, 0, true, true), None, "users have a bound of their own");
    }

    #[test]
    fn what_is_neither_noted_nor_held_any_more_is_not_kept() {
        let (_dir, index) = index();
        let held = hold(&index, 1, 1, false, false).unwrap();
        assert!(!index.mark(&held, false, &|marked| marked.paused = false).unwrap().unwrap().paused);
        assert_eq!(index.marked(held.id).unwrap(), None);
    }

    #[test]
    fn of_an_owners_waiting_notes_the_oldest_goes_and_no_others() {
        let (_dir, index) = index();
        note(&index, 0, 2).unwrap();
        for n in 1..=NOTES_MAX + 2 {
            note(&index, n, 1).unwrap();
        }
        let mut notes = index.noted(&[[1; 16]], usize::MAX).unwrap();
        assert_eq!((notes.len(), notes.pop().unwrap().created), (NOTES_MAX as usize, UnixTime(3)));
        assert_eq!(index.noted(&[[2; 16]], 9).unwrap().len(), 1);
    }

    #[test]
    fn a_mark_stays_with_its_note_and_both_are_forgotten_in_time() {
        let (_dir, index) = index();
        let id = note(&index, 7, 1).unwrap().id;
        let new = Marked::new(id, [9; 16], UnixTime(8), UnixTime(9));
        let marked = index.mark(&new, false, &|marked| marked.stopped = true).unwrap().unwrap();
        assert!(marked.stopped && marked.note.is_some());
        assert_eq!((marked.owner, marked.created), ([1; 16], UnixTime(7)), "the first stays");
        assert_eq!(index.marked(id).unwrap(), Some(marked));
        assert_eq!(index.forget_marks(UnixTime(5_000 + LINGER_SECS).into(), 9).unwrap(), 0);
        assert!(!index.is_closed(UnixTime(5_000)).unwrap());
        assert_eq!(index.forget_marks(UnixTime(5_001 + LINGER_SECS).into(), 9).unwrap(), 1);
        assert!(index.is_closed(UnixTime(5_000)).unwrap(), "what was stopped is not taken once the clock is set back");
        assert_eq!(index.marked(id).unwrap(), None);
    }
}
