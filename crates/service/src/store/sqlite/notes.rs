//! Notes in the index, and marks on uploads of which nothing has come: [`Notes`].
//!
//! One row for each upload: its owner, its note, and whether it was paused or stopped before anything of it came. Once
//! something has come, `arrived` is set, and the upload's own row has the state.
//!
//! Bounds, for rows that wait for their uploads:
//!
//! - [`NOTES_MAX`] notes of one payer, and [`NOTES_ALL_MAX`] in all; then the payer with most loses its oldest.
//!
//! - [`MARKS_MAX`] marks of one user; [`MARKS_ALL_MAX`] of anonymous owners, of which one address has at most
//!   [`MARKS_OF_ADDRESS`], and a part of what is free.
//!
//! A mark (paused or stopped) goes only with its ticket's time: otherwise a stopped upload would be delivered. The note
//! of a marked upload may go for a note of a payer with fewer; the mark stays. One pause is lost: that of an upload which
//! is forgotten without its record 0 ([`let_go`]), if its payer has as many marks as it may.

use super::group::SqliteIndex;
use super::{closed, ended};
use crate::model::{LINGER_SECS, Marked, Note, Payer, Tag};
use crate::store::{MarkChange, Notes, StoreError};
use hoop_timekeeper::Over;
use hoop_units::{UnixTime, UploadId};
use rusqlite::{Connection, OptionalExtension as _, Row, params};

/// Notes of one payer (`docs/protocol.md` §7, "Notes"). Beyond that, the oldest note of an unmarked upload goes.
const NOTES_MAX: u32 = 1_000;

/// Notes in all: a gigabyte at most. Beyond that, the payer with most loses its oldest.
const NOTES_ALL_MAX: u32 = 16_384;

/// Marks of one named user: more than anybody stops or pauses in two weeks.
const MARKS_MAX: u32 = 4_096;

/// Marks of the anonymous owners at one address: more than a household stops or pauses before the uploads come.
const MARKS_OF_ADDRESS: u32 = 1_024;

/// Marks of all anonymous owners together.
const MARKS_ALL_MAX: u32 = 16_384;

/// An address may mark while it has less than this part of what is free of [`MARKS_ALL_MAX`]. So sixteen addresses that
/// take all they get leave a third, of which each other has hundreds.
const MARKS_OF_FREE: u32 = 8;

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

/// The part of a later one: who pays.
pub const PAYERS: &str = "
ALTER TABLE notes ADD COLUMN payer BLOB;
CREATE INDEX notes_paid ON notes (payer, created) WHERE NOT arrived AND note IS NOT NULL;
CREATE INDEX notes_marks_paid ON notes (payer) WHERE NOT arrived AND (paused OR stopped);
";

/// Counts that SQLite's triggers keep, whatever version writes, so that they need no step of the layout: how many rows
/// each payer has. An index has the rows that may go. Counting the rows themselves takes seconds, since SQLite reads
/// each row with its note.
const COUNTS: &str = "
CREATE INDEX IF NOT EXISTS notes_paid_may_go ON notes (payer, created)
    WHERE NOT arrived AND note IS NOT NULL AND NOT paused AND NOT stopped;
CREATE TABLE IF NOT EXISTS note_counts (
    payer BLOB PRIMARY KEY, waits INTEGER NOT NULL, may_go INTEGER NOT NULL, marks INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
CREATE TRIGGER IF NOT EXISTS notes_counted_in AFTER INSERT ON notes BEGIN
    INSERT INTO note_counts SELECT coalesce(new.payer, x''), new.note IS NOT NULL,
        new.note IS NOT NULL AND NOT new.paused AND NOT new.stopped, new.paused OR new.stopped WHERE NOT new.arrived
        ON CONFLICT (payer) DO UPDATE SET
        waits = waits + excluded.waits, may_go = may_go + excluded.may_go, marks = marks + excluded.marks;
END;
CREATE TRIGGER IF NOT EXISTS notes_counted_out AFTER DELETE ON notes BEGIN
    UPDATE note_counts SET waits = waits - (old.note IS NOT NULL),
        may_go = may_go - (old.note IS NOT NULL AND NOT old.paused AND NOT old.stopped),
        marks = marks - (old.paused OR old.stopped) WHERE NOT old.arrived AND payer = coalesce(old.payer, x'');
    DELETE FROM note_counts WHERE payer = coalesce(old.payer, x'') AND waits = 0 AND marks = 0;
END;
CREATE TRIGGER IF NOT EXISTS notes_counted_anew AFTER UPDATE ON notes BEGIN
    UPDATE note_counts SET waits = waits - (old.note IS NOT NULL),
        may_go = may_go - (old.note IS NOT NULL AND NOT old.paused AND NOT old.stopped),
        marks = marks - (old.paused OR old.stopped) WHERE NOT old.arrived AND payer = coalesce(old.payer, x'');
    INSERT INTO note_counts SELECT coalesce(new.payer, x''), new.note IS NOT NULL,
        new.note IS NOT NULL AND NOT new.paused AND NOT new.stopped, new.paused OR new.stopped WHERE NOT new.arrived
        ON CONFLICT (payer) DO UPDATE SET
        waits = waits + excluded.waits, may_go = may_go + excluded.may_go, marks = marks + excluded.marks;
    DELETE FROM note_counts WHERE payer = coalesce(old.payer, x'') AND waits = 0 AND marks = 0;
END;
";

/// Counts all rows, as the triggers would have.
const RECOUNT: &str = "
INSERT INTO note_counts SELECT coalesce(payer, x''), sum(note IS NOT NULL),
    sum(note IS NOT NULL AND NOT paused AND NOT stopped), sum(paused OR stopped) FROM notes WHERE NOT arrived GROUP BY 1;
";

/// Sees to it that rows are counted.
pub fn keep_counts(connection: &Connection) -> Result<(), StoreError> {
    super::rows::keep_up(connection, "note_counts", COUNTS, RECOUNT)
}

const COLUMNS: &str = "id, owner, note, created, expires, paused, stopped, payer";

impl Notes for SqliteIndex {
    fn marked(&self, id: UploadId) -> Result<Option<Marked>, StoreError> {
        // Others do not wait until a note has been parsed.
        let found = found(&self.reader(), id)?;
        found.map(parsed).transpose()
    }

    fn mark(&self, new: Marked, change: MarkChange) -> Result<Option<Marked>, StoreError> {
        let ended_max = self.ended_max;
        self.in_group(move |transaction| marked(transaction, new, change, ended_max))
    }

    fn noted(&self, tags: &[Tag], limit: usize, bytes: usize) -> Result<Vec<Marked>, StoreError> {
        let sql =
            format!("SELECT {COLUMNS} FROM notes WHERE owner = ?1 AND note IS NOT NULL ORDER BY created DESC LIMIT ?2");
        let mut rows = Vec::new();
        for tag in tags {
            let connection = self.reader();
            let mut statement = connection.prepare_cached(&sql)?;
            let mut left = bytes;
            for row in statement.query_map(params![tag, super::rows::rows(limit)], found_in)? {
                let row = row?;
                let len = row.1.as_ref().map_or(0, String::len);
                rows.push(row);
                match left.checked_sub(len) {
                    Some(rest) => left = rest,
                    None => break,
                }
            }
        }
        let mut notes = rows.into_iter().map(parsed).collect::<Result<Vec<_>, _>>()?;
        notes.sort_by_key(|marked| std::cmp::Reverse(marked.created));
        notes.truncate(limit);
        Ok(notes)
    }

    fn forget_marks(&self, over: Over, limit: usize) -> Result<usize, StoreError> {
        let which =
            "SELECT id FROM notes WHERE NOT arrived AND (expires < ?1 OR expires > ?2) ORDER BY expires, id LIMIT ?3";
        self.in_group(move |transaction| {
            let (before, after) = super::rows::tickets_ended(transaction, over, LINGER_SECS)?;
            let params = params![before, after, super::rows::rows(limit)];
            let marked = format!("SELECT id FROM ({which}) JOIN notes USING (id) WHERE paused OR stopped");
            closed::close(transaction, "notes", &marked, params)?;
            Ok(transaction.prepare_cached(&format!("DELETE FROM notes WHERE id IN ({which})"))?.execute(params)?)
        })
    }
}

/// Changes what is known of an upload; none: there is no room for another note or mark, and nothing is changed.
pub fn marked(
    transaction: &Connection,
    new: Marked,
    change: MarkChange,
    ended_max: u64,
) -> Result<Option<Marked>, StoreError> {
    let before = load(transaction, new.id)?.unwrap_or_else(|| new.clone());
    let mut marked = before.clone();
    // A named user pays from now on, whoever paid before.
    marked.payer = marked.payer.filter(|payer| matches!(payer, Payer::Owner(_))).or(new.payer);
    change(&mut marked);
    // A row whose upload has begun to come needs no bound: uploads have one.
    let waits = super::rows::load(transaction, new.id)?.is_none();
    let noted = waits && marked.note.is_some() && before.note.is_none();
    let held = waits && marked.refusal().is_some() && before.refusal().is_none();
    // To make room changes something, so it comes last.
    if held && !may_mark(transaction, &marked)? || noted && !make_room(transaction, &marked)? {
        return Ok(None);
    }
    save(transaction, &marked)?;
    let len = |of: &Marked| text(of).map_or(0, |text| text.len());
    ended::noted(transaction, marked.id, len(&before), len(&marked))?;
    ended::shed(transaction, ended_max, ended::AT_ONCE)?;
    let sql = "DELETE FROM notes WHERE id = ?1 AND NOT arrived AND note IS NULL AND NOT paused AND NOT stopped";
    transaction.prepare_cached(sql)?.execute([marked.id.0])?;
    Ok(Some(marked))
}

/// Notes that wait for their uploads, which are not marked.
const MAY_GO: &str = "NOT arrived AND note IS NOT NULL AND NOT paused AND NOT stopped";

/// Whoever has most notes, and more than `?1`.
const MOST: &str = "SELECT nullif(payer, x'') FROM note_counts WHERE waits > ?1 ORDER BY waits DESC LIMIT 1";

/// The oldest note of a payer's who has none that may go.
const OLDEST_HELD: &str = "SELECT id FROM notes INDEXED BY notes_paid WHERE NOT arrived AND note IS NOT NULL AND payer IS ?1 ORDER BY created LIMIT 1";

/// Makes room for one more note. False: there is none. An anonymous owner shares by its address: all without a cookie
/// are one owner.
fn make_room(transaction: &Connection, new: &Marked) -> Result<bool, StoreError> {
    let own = count(transaction, "waits", Some(&new.payer))?;
    if own >= NOTES_MAX {
        return forget_oldest(transaction, &new.payer);
    }
    if count(transaction, "waits", None)? < NOTES_ALL_MAX {
        return Ok(true);
    }
    let most = transaction.prepare_cached(MOST)?.query_row([own], |row| row.get::<_, Option<Payer>>(0)).optional()?;
    match most {
        Some(most) => Ok(forget_oldest(transaction, &most)? || forget_held(transaction, &most)?),
        None => forget_oldest(transaction, &new.payer),
    }
}

/// Forgets the text of a payer's oldest note, and leaves the mark. Returns whether there was one.
fn forget_held(transaction: &Connection, payer: &Option<Payer>) -> Result<bool, StoreError> {
    let sql = format!("UPDATE notes SET note = NULL WHERE id = ({OLDEST_HELD})");
    Ok(transaction.prepare_cached(&sql)?.execute([payer])? > 0)
}

/// Forgets a payer's oldest note that may go. Returns whether there was one.
fn forget_oldest(transaction: &Connection, payer: &Option<Payer>) -> Result<bool, StoreError> {
    let sql = format!("DELETE FROM notes WHERE id = ({})", oldest());
    Ok(transaction.prepare_cached(&sql)?.execute([payer])? > 0)
}

fn oldest() -> String {
    format!("SELECT id FROM notes INDEXED BY notes_paid_may_go WHERE {MAY_GO} AND payer IS ?1 ORDER BY created LIMIT 1")
}

/// Whether one more upload may be marked before it has come. Each user has a bound of their own, so that no anonymous
/// owner keeps them from stopping an upload. Each address has a share, so that it keeps no other from that.
fn may_mark(transaction: &Connection, new: &Marked) -> Result<bool, StoreError> {
    let own = count(transaction, "marks", Some(&new.payer))?;
    match new.payer {
        Some(Payer::Owner(_)) => Ok(own < MARKS_MAX),
        _ => {
            // Marks of users do not count: each has a bound of its own.
            let sql = "SELECT coalesce(sum(marks), 0) FROM note_counts WHERE payer < x'6f' OR payer >= x'70'";
            let all: u32 = transaction.prepare_cached(sql)?.query_row([], |row| row.get(0))?;
            Ok(own < MARKS_OF_ADDRESS.min(MARKS_ALL_MAX.saturating_sub(all) / MARKS_OF_FREE))
        }
    }
}

/// How many rows of that kind one payer has, or all have together.
fn count(transaction: &Connection, what: &str, of: Option<&Option<Payer>>) -> Result<u32, StoreError> {
    let which = if of.is_some() { "WHERE payer = coalesce(?1, x'')" } else { "WHERE ?1 IS NULL" };
    let mut statement =
        transaction.prepare_cached(&format!("SELECT coalesce(sum({what}), 0) FROM note_counts {which}"))?;
    Ok(statement.query_row([of.cloned().flatten()], |row| row.get(0))?)
}

/// What is known of an upload besides its row.
pub fn load(connection: &Connection, id: UploadId) -> Result<Option<Marked>, StoreError> {
    found(connection, id)?.map(parsed).transpose()
}

/// A row, and its note as it is kept.
type Found = (Marked, Option<String>);

fn found(connection: &Connection, id: UploadId) -> Result<Option<Found>, StoreError> {
    let mut statement = connection.prepare_cached(&format!("SELECT {COLUMNS} FROM notes WHERE id = ?1"))?;
    Ok(statement.query_row([id.0], found_in).optional()?)
}

fn parsed((marked, note): Found) -> Result<Marked, StoreError> {
    let note = note.map(|text| serde_json::from_str(&text).map_err(|_| StoreError::Damaged("a note that is none")));
    Ok(Marked { note: note.transpose()?.map(Note::bounded), ..marked })
}

/// The note, as it is kept.
fn text(marked: &Marked) -> Option<String> {
    marked.note.as_ref().map(|note| serde_json::to_string(note).expect("a note has a JSON form"))
}

fn save(transaction: &Connection, marked: &Marked) -> Result<(), StoreError> {
    let sql = format!(
        "INSERT INTO notes ({COLUMNS}, arrived) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, EXISTS (SELECT 1 FROM uploads WHERE \
         id = ?1)) ON CONFLICT (id) DO UPDATE SET note = excluded.note, paused = excluded.paused, stopped = \
         excluded.stopped, payer = excluded.payer"
    );
    transaction.prepare_cached(&sql)?.execute(params![
        marked.id.0,
        marked.owner,
        text(marked),
        marked.created.0,
        marked.expires.0,
        marked.paused,
        marked.stopped,
        marked.payer,
    ])?;
    Ok(())
}

/// Notes whether the upload has begun to come.
pub fn set_arrived(connection: &Connection, id: UploadId, arrived: bool) -> Result<(), StoreError> {
    connection.prepare_cached("UPDATE notes SET arrived = ?2 WHERE id = ?1")?.execute(params![id.0, arrived])?;
    Ok(())
}

/// An upload that had begun to come is forgotten. Its note goes with it, since nobody has counted that. Its mark stays if
/// there is room for one more.
pub fn let_go(connection: &Connection, id: UploadId) -> Result<(), StoreError> {
    let marked = load(connection, id)?.filter(|marked| marked.refusal().is_some());
    let sql = match marked.map(|marked| may_mark(connection, &marked)).transpose()? {
        Some(true) => "UPDATE notes SET arrived = 0, note = NULL WHERE id = ?1",
        _ => "DELETE FROM notes WHERE id = ?1",
    };
    connection.prepare_cached(sql)?.execute([id.0])?;
    Ok(())
}

fn found_in(row: &Row<'_>) -> rusqlite::Result<Found> {
    let marked = Marked {
        id: UploadId(row.get("id")?),
        owner: row.get("owner")?,
        payer: row.get("payer")?,
        note: None,
        created: UnixTime(row.get("created")?),
        expires: UnixTime(row.get("expires")?),
        paused: row.get("paused")?,
        stopped: row.get("stopped")?,
    };
    Ok((marked, row.get("note")?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::{Closed as _, ENDED_MAX};
    use std::collections::BTreeMap;

    fn index() -> (tempfile::TempDir, SqliteIndex) {
        let dir = tempfile::tempdir().unwrap();
        let index = SqliteIndex::open(&dir.path().join("index.sqlite"), ENDED_MAX).unwrap();
        // A thousand syncs would only take time.
        index.lock().pragma_update(None, "synchronous", "OFF").unwrap();
        (dir, index)
    }

    fn note(index: &SqliteIndex, n: u32, owner: u8) -> Option<Marked> {
        let mut id = [0; 16];
        id[..4].copy_from_slice(&n.to_be_bytes());
        note_at(index, UploadId(id), owner, owner, n)
    }

    /// Notes an upload of that owner at that address.
    fn note_at(index: &SqliteIndex, id: UploadId, owner: u8, address: u8, now: u32) -> Option<Marked> {
        let new = Marked::new(id, [owner; 16], Payer::Address([address; 16]), UnixTime(now), UnixTime(5_000));
        let note = Note::parse(b"{\"total\":9}").unwrap();
        index.mark(new.clone(), Box::new(move |marked| marked.note = Some(note.clone()))).unwrap()
    }

    /// Stops, or else pauses, an upload of which nothing is known.
    fn hold(index: &SqliteIndex, n: u32, owner: u8, user: bool, stop: bool) -> Option<Marked> {
        let mut id = [0xff; 16];
        id[..4].copy_from_slice(&n.to_be_bytes());
        let payer = if user { Payer::Owner([owner; 16]) } else { Payer::Address([owner; 16]) };
        let new = Marked::new(UploadId(id), [owner; 16], payer, UnixTime(0), UnixTime(5_000));
        index
            .mark(new.clone(), Box::new(move |marked| if stop { marked.stopped = true } else { marked.paused = true }))
            .unwrap()
    }

    /// So many uploads, stopped or else noted, of that owner and payer, in SQL, of which nothing else is known.
    fn rows(index: &SqliteIndex, count: u32, stopped: bool, owner: &str, payer: &str) {
        let (note, stopped) = if stopped { ("NULL", 1) } else { ("'{\"total\":9}'", 0) };
        let sql = format!(
            "INSERT INTO notes WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < ?1) \
             SELECT randomblob(16), {owner}, {note}, i, 5000, 0, {stopped}, 0, {payer} FROM n"
        );
        index.lock().execute(&sql, [count]).unwrap();
    }

    #[test]
    fn no_number_of_notes_undoes_a_stop_or_a_pause() {
        let (_dir, index) = index();
        let held = [hold(&index, 1, 1, false, true).unwrap(), hold(&index, 2, 1, false, false).unwrap()];
        let noted = note(&index, 0, 1).unwrap();
        index.mark(noted.clone(), Box::new(move |marked| marked.stopped = true)).unwrap().unwrap();
        for n in 1..=NOTES_MAX + 56 {
            note(&index, n, 1).unwrap();
        }
        for held in held {
            assert_eq!(index.marked(held.id).unwrap(), Some(held));
        }
        assert!(index.marked(noted.id).unwrap().unwrap().stopped);
        assert_eq!(index.noted(&[[1; 16]], usize::MAX, usize::MAX).unwrap().len(), NOTES_MAX as usize);
    }

    /// How SQLite searches, in its own words, and each step that it takes on the table of notes itself (sqlite.org/opcode.html).
    fn search(index: &SqliteIndex, sql: &str) -> (Vec<String>, Vec<String>) {
        let connection = index.lock();
        let root = "SELECT rootpage FROM sqlite_schema WHERE type = 'table' AND name = 'notes'";
        let root: i64 = connection.query_row(root, [], |row| row.get(0)).unwrap();
        let mut statement = connection.prepare(&format!("EXPLAIN QUERY PLAN {sql}")).unwrap();
        let payers = vec![Payer::Address([1; 16]); statement.parameter_count()];
        let plan = statement.query_map(rusqlite::params_from_iter(&payers), |row| row.get("detail")).unwrap();
        let plan = plan.map(Result::unwrap).collect();
        let mut statement = connection.prepare(&format!("EXPLAIN {sql}")).unwrap();
        let steps = statement.query_map(rusqlite::params_from_iter(&payers), |row| {
            Ok((row.get("opcode")?, row.get("p1")?, row.get("p2")?))
        });
        let steps: Vec<(String, i64, i64)> = steps.unwrap().map(Result::unwrap).collect();
        let table = steps.iter().find(|(step, _, page)| step == "OpenRead" && *page == root).map(|step| step.1);
        let reads =
            ["Column", "Found", "Last", "Next", "NotFound", "Prev", "Rewind", "SeekGE", "SeekGT", "SeekLE", "SeekLT"];
        let on_table = steps.into_iter().filter(|(step, cursor, _)| reads.contains(&&**step) && Some(*cursor) == table);
        (plan, on_table.map(|step| step.0).collect())
    }

    /// A row has its note before what says whether it may go: whoever reads a later column reads all of the note. SQLite looks for the row
    /// that it has found, and calls an index covering even when it does; so the steps count, and not the plan alone.
    #[test]
    fn evictable_notes_are_found_without_reading_a_note() {
        let (_dir, index) = index();
        let (plan, steps) = search(&index, &oldest());
        assert_eq!(plan, ["SEARCH notes USING INDEX notes_paid_may_go (payer=?)"]);
        assert_eq!(steps, ["NotFound"], "the one row that goes is looked for, and none of its columns is read");
        let (_, steps) = search(&index, &oldest().replace("notes_paid_may_go", "notes_paid"));
        assert!(steps.iter().any(|step| step == "Column"), "the index that was used before did not suffice: {steps:?}");
    }

    #[test]
    fn the_payer_with_most_notes_is_found_without_reading_a_note() {
        let (_dir, index) = index();
        let (plan, steps) = search(&index, MOST);
        assert_eq!((plan[0].as_str(), steps), ("SCAN note_counts", vec![]));
        let before = "SELECT payer FROM notes WHERE NOT arrived AND note IS NOT NULL AND NOT paused AND NOT stopped GROUP BY \
                      payer ORDER BY count(*) DESC LIMIT 1";
        let (_, steps) = search(&index, before);
        assert!(steps.iter().any(|step| step == "NotFound" || step == "Column"), "as it was: {steps:?}");
    }

    #[test]
    fn counts_of_notes_match_the_rows_after_any_change() {
        let (dir, index) = index();
        let counted = |index: &SqliteIndex, table: &str| {
            let connection = index.lock();
            let sql = format!("SELECT payer, waits, may_go, marks FROM {table} ORDER BY payer");
            let mut statement = connection.prepare(&sql).unwrap();
            let rows = statement.query_map([], |row| {
                Ok((row.get::<_, Vec<u8>>(0)?, [row.get::<_, i64>(1)?, row.get(2)?, row.get(3)?]))
            });
            rows.unwrap().map(Result::unwrap).collect::<Vec<_>>()
        };
        let recount = "(SELECT coalesce(payer, x'') AS payer, sum(note IS NOT NULL) AS waits, sum(note IS NOT NULL AND NOT \
                       paused AND NOT stopped) AS may_go, sum(paused OR stopped) AS marks FROM notes WHERE NOT arrived \
                       GROUP BY 1 HAVING waits > 0 OR marks > 0)";
        let mut random = 7_u32;
        for _ in 0..2_000 {
            random = random.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            let (id, who) = ([u8::try_from(random >> 8 & 31).unwrap(); 16], u8::try_from(random >> 16 & 3).unwrap());
            match random >> 24 & 7 {
                0 | 1 => drop(note_at(&index, UploadId(id), who, who, random & 1_000)),
                2 => drop(hold(&index, random >> 8 & 31, who, who == 3, random & 1 == 0)),
                3 => set_arrived(&index.lock(), UploadId(id), random & 1 == 0).unwrap(),
                4 => let_go(&index.lock(), UploadId(id)).unwrap(),
                5 => drop(index.lock().execute("UPDATE notes SET paused = NOT paused WHERE id = ?1", [id]).unwrap()),
                6 => drop(index.lock().execute("UPDATE notes SET payer = NULL WHERE id = ?1", [id]).unwrap()),
                _ => drop(index.lock().execute("DELETE FROM notes WHERE id = ?1", [id]).unwrap()),
            }
            assert_eq!(counted(&index, "note_counts"), counted(&index, recount));
        }
        // One that an older version has left without counts.
        let before = counted(&index, "note_counts");
        let drops = ["in", "out", "anew"].map(|name| format!("DROP TRIGGER notes_counted_{name};")).concat();
        index.lock().execute_batch(&format!("{drops} DROP TABLE note_counts;")).unwrap();
        drop(index);
        let index = SqliteIndex::open(&dir.path().join("index.sqlite"), ENDED_MAX).unwrap();
        assert_eq!(counted(&index, "note_counts"), before);
        assert!(!before.is_empty());
    }

    #[test]
    fn one_addresss_marks_refuse_no_notes_of_another_address() {
        let (_dir, index) = index();
        // All marks of one address, with notes: none may go.
        let address = format!("x'61{}'", "02".repeat(16));
        rows(&index, NOTES_MAX, false, "zeroblob(16)", &address);
        index.lock().execute("UPDATE notes SET paused = 1", []).unwrap();
        assert_eq!(note_at(&index, UploadId([1; 16]), 0, 2, 9_000), None, "its own");
        assert!(note_at(&index, UploadId([2; 16]), 0, 3, 9_000).is_some());
    }

    #[test]
    fn marks_of_anonymous_owners_are_bounded_and_block_no_user() {
        let (_dir, index) = index();
        rows(&index, MARKS_ALL_MAX - 2 * MARKS_OF_FREE, true, "randomblob(16)", "NULL");
        hold(&index, 0, 7, false, true).unwrap();
        assert_eq!(hold(&index, 2, 7, false, true), None);
        let noted = note(&index, 1, 7).unwrap();
        assert_eq!(
            index.mark(noted.clone(), Box::new(move |marked| marked.paused = true)).unwrap(),
            None,
            "by no detour either"
        );
        rows(&index, MARKS_MAX - 1, true, "zeroblob(16)", &format!("x'6f{}'", "00".repeat(16)));
        hold(&index, 1, 0, true, true).unwrap();
        assert_eq!(hold(&index, 2, 0, true, true), None, "users have a bound of their own");
    }

    #[test]
    fn made_up_users_of_one_address_evict_no_others_notes_or_marks() {
        let (_dir, index) = index();
        // The oldest of all.
        let honest = note_at(&index, UploadId([1; 16]), 1, 1, 0).unwrap().id;
        let address = |n: u8| format!("x'61{}'", format!("{n:02x}").repeat(16));
        let count = |n: u8| {
            let connection = index.lock();
            let sql = "SELECT count(*) FROM notes WHERE payer = ?1";
            connection.query_row(sql, [Payer::Address([n; 16])], |row| row.get::<_, u32>(0)).unwrap()
        };
        rows(&index, NOTES_MAX, false, "randomblob(16)", &address(2));
        note_at(&index, UploadId([2; 16]), 2, 2, 9_000).unwrap();
        assert_eq!(count(2), NOTES_MAX, "one's own make room");
        // Many addresses take all of it; whoever has most makes room.
        (3..=17).for_each(|n| rows(&index, NOTES_MAX - u32::from(n), false, "randomblob(16)", &address(n)));
        rows(&index, NOTES_ALL_MAX - 16 * NOTES_MAX + (3..=17).sum::<u32>() - 1, false, "randomblob(16)", "NULL");
        note_at(&index, UploadId([3; 16]), 3, 77, 9_000).unwrap();
        assert_eq!(count(2), NOTES_MAX - 1);
        assert!(index.marked(honest).unwrap().is_some() && index.marked(UploadId([3; 16])).unwrap().is_some());
        // Marks cannot go; so an address has its share of them.
        rows(&index, MARKS_OF_ADDRESS, true, "randomblob(16)", &address(9));
        assert_eq!(hold(&index, 1, 9, false, true), None);
        assert!(hold(&index, 2, 10, false, true).is_some() && hold(&index, 3, 9, true, true).is_some());
    }

    #[test]
    fn sixteen_addresses_that_pause_their_notes_leave_room_for_others() {
        let (_dir, index) = index();
        let address = |n: u8| format!("x'61{}'", format!("{n:02x}").repeat(16));
        (1..=17).for_each(|n| rows(&index, NOTES_ALL_MAX / 17 + 1, false, "randomblob(16)", &address(n)));
        index.lock().execute("UPDATE notes SET paused = 1", []).unwrap();
        let marks = "SELECT count(*) FROM notes WHERE paused";
        let held: u32 = index.lock().query_row(marks, [], |row| row.get(0)).unwrap();
        assert!(held >= NOTES_ALL_MAX);
        assert!(note_at(&index, UploadId([1; 16]), 99, 99, 9_000).is_some(), "whoever has most gives way");
        for n in 0..100_u8 {
            let mut id = [0xaa; 16];
            id[0] = n;
            drop(note_at(&index, UploadId(id), 17, 17, 9_000));
        }
        assert!(index.marked(UploadId([1; 16])).unwrap().unwrap().note.is_some(), "and takes nothing back");
        assert_eq!(index.lock().query_row(marks, [], |row| row.get::<_, u32>(0)).unwrap(), held, "no mark has gone");
    }

    #[test]
    fn sixteen_addresses_and_four_users_leave_marks_for_others() {
        let (_dir, index) = index();
        (1..=4).for_each(|n| {
            rows(&index, MARKS_MAX, true, "randomblob(16)", &format!("x'6f{}'", format!("{n:02x}").repeat(16)))
        });
        let mut n = 0;
        let mut taken = BTreeMap::new();
        let mut more = true;
        while std::mem::take(&mut more) {
            for address in 1..=16 {
                n += 1;
                if hold(&index, n, address, false, true).is_some() {
                    more = true;
                    *taken.entry(address).or_insert(0) += 1;
                }
            }
        }
        assert!(taken.values().all(|marks| *marks >= 600), "{taken:?}");
        for address in 20..60 {
            for _ in 0..60 {
                n += 1;
                assert!(hold(&index, n, address, false, true).is_some(), "{address}");
            }
        }
    }

    #[test]
    fn a_row_without_note_or_mark_is_deleted() {
        let (_dir, index) = index();
        let held = hold(&index, 1, 1, false, false).unwrap();
        assert!(!index.mark(held.clone(), Box::new(move |marked| marked.paused = false)).unwrap().unwrap().paused);
        assert_eq!(index.marked(held.id).unwrap(), None);
    }

    #[test]
    fn an_owner_with_too_many_notes_loses_the_oldest_alone() {
        let (_dir, index) = index();
        note(&index, 0, 2).unwrap();
        for n in 1..=NOTES_MAX + 2 {
            note(&index, n, 1).unwrap();
        }
        let mut notes = index.noted(&[[1; 16]], usize::MAX, usize::MAX).unwrap();
        assert_eq!((notes.len(), notes.pop().unwrap().created), (NOTES_MAX as usize, UnixTime(3)));
        assert_eq!(index.noted(&[[2; 16]], 9, usize::MAX).unwrap().len(), 1);
    }

    #[test]
    fn a_list_reads_no_more_long_notes_than_it_has_room_for() {
        let (_dir, index) = index();
        for n in 1..=100 {
            let id = note(&index, n, 1).unwrap().id;
            let sql = "UPDATE notes SET note = json_set(note, '$.caption', ?2) WHERE id = ?1";
            index.lock().execute(sql, params![id.0, "x".repeat(60_000)]).unwrap();
        }
        // What lies beyond is not even looked at.
        index.lock().execute("UPDATE notes SET note = 'none' WHERE created < 80", ()).unwrap();
        let notes = index.noted(&[[1; 16]], 100, 512 * 1024).unwrap();
        assert_eq!((notes.len(), notes[0].created, notes[8].created), (9, UnixTime(100), UnixTime(92)));
        assert!(index.noted(&[[1; 16]], 100, usize::MAX).is_err());
    }

    #[test]
    fn a_mark_stays_with_its_note_and_both_are_forgotten_in_time() {
        let (_dir, index) = index();
        let id = note(&index, 7, 1).unwrap().id;
        let new = Marked::new(id, [9; 16], Payer::Address([1; 16]), UnixTime(8), UnixTime(9));
        let marked = index.mark(new.clone(), Box::new(move |marked| marked.stopped = true)).unwrap().unwrap();
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
