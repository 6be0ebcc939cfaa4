//! Whose uploads are replayed next: payers take turns.
//!
//! Bounds: [`OF_EACH`] uploads of each payer, [`DUE_MAX`] in all. Each payer costs a few steps in an index, however many uploads wait.

use super::StoreError;
use crate::room::Payer;
use hoop_units::{UnixTime, UploadId};
use rusqlite::{Connection, OptionalExtension as _, params};

/// Uploads of one payer that are told at once: some that cannot be claimed hold up no other.
const OF_EACH: usize = 32;

/// Uploads that are told at once; the turn of others comes when it goes on from whoever was last.
const DUE_MAX: usize = 256;

/// No wait is longer than the longest `Retry-After` that is honoured (6 h, see `replay`). A `next_attempt` beyond that
/// was written before the clock was set back, and is due.
const WAIT_MAX_SECS: u32 = 6 * 3600;

/// A step of the layout: what waits, by payer.
pub const SCHEMA: &str = "
CREATE INDEX uploads_waiting ON uploads (payer, next_attempt, updated) WHERE state = 'received' AND NOT paused;
";

/// Uploads to replay now, by payer: those of whoever comes after `last` first. Of each payer, those that have been due the longest first.
pub fn due(
    connection: &Connection,
    last: Option<Payer>,
    now: UnixTime,
) -> Result<Vec<(Option<Payer>, UploadId)>, StoreError> {
    let mut found = Vec::new();
    let mut add = |payer: Option<Payer>| {
        add_due(connection, payer, now, &mut found)?;
        Ok::<_, StoreError>(found.len() >= DUE_MAX)
    };
    let mut at = last;
    while let Some(payer) = after(connection, at, None)? {
        at = Some(payer);
        if add(at)? {
            return Ok(found);
        }
    }
    // An upload of an older version has no payer.
    let mut full = add(None)?;
    at = None;
    while let Some(payer) = after(connection, at, last)?.filter(|_| last.is_some() && !full) {
        at = Some(payer);
        full = add(at)?;
    }
    Ok(found)
}

const NEXT_PAYER: &str = "SELECT payer FROM uploads INDEXED BY uploads_waiting WHERE state = 'received' AND NOT paused AND \
                          payer > coalesce(?1, x'') AND payer <= coalesce(?2, x'ff') ORDER BY payer LIMIT 1";

/// The next payer, as far as to `end`, who has anything that waits.
fn after(connection: &Connection, payer: Option<Payer>, end: Option<Payer>) -> Result<Option<Payer>, StoreError> {
    Ok(connection.prepare_cached(NEXT_PAYER)?.query_row(params![payer, end], |row| row.get(0)).optional()?)
}

/// The parts of what is due of a payer (`?1`), each in the order of the index: what has not been tried, what is tried again, and what has a time of a clock that was
/// set back.
fn parts() -> [String; 3] {
    [("updated", "IS NULL"), ("next_attempt", "<= ?2"), ("?2", "> ?3")].map(|(at, when)| {
        format!(
            "SELECT id, {at} AS at FROM uploads INDEXED BY uploads_waiting WHERE state = 'received' AND NOT paused AND payer IS ?1 AND next_attempt {when} \
             ORDER BY next_attempt, updated LIMIT {OF_EACH}"
        )
    })
}

/// Adds what is due of a payer.
fn add_due(
    connection: &Connection,
    payer: Option<Payer>,
    now: UnixTime,
    found: &mut Vec<(Option<Payer>, UploadId)>,
) -> Result<(), StoreError> {
    let parts = parts().map(|part| format!("SELECT * FROM ({part})")).join(" UNION ALL ");
    let mut statement = connection.prepare_cached(&format!("{parts} ORDER BY at, id LIMIT {OF_EACH}"))?;
    let params = params![payer, now.0, now.plus_secs(WAIT_MAX_SECS).0];
    for id in statement.query_map(params, |row| row.get::<_, [u8; 16]>(0))? {
        found.push((payer, UploadId(id?)));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::sqlite::SqliteIndex;
    use super::super::{ENDED_MAX, Index as _};
    use super::*;

    fn index() -> (tempfile::TempDir, SqliteIndex) {
        let dir = tempfile::tempdir().unwrap();
        let index = SqliteIndex::open(&dir.path().join("index.sqlite"), ENDED_MAX).unwrap();
        (dir, index)
    }

    fn payer(n: u8) -> Option<Payer> {
        Some(Payer::Address([n; 16]))
    }

    /// So many uploads that wait, in SQL; the first came at `updated`, each other a second later.
    fn waiting(index: &SqliteIndex, payer: Option<Payer>, count: u32, updated: u32, next: Option<u32>) {
        let sql = "INSERT INTO uploads (id, prelude, total, received, state, created, updated, expires, attempts, next_attempt, payer) \
                   WITH RECURSIVE n (i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM n WHERE i + 1 < ?1) \
                   SELECT randomblob(16), x'00', 9, '0-8', 'received', 1, ?2 + i, 9000, 0, ?3, ?4 FROM n";
        index.lock().execute(sql, params![count, updated, next, payer]).unwrap();
    }

    /// Who is told, and how many of theirs.
    fn told(index: &SqliteIndex, last: Option<Payer>, now: u32) -> Vec<(Option<Payer>, usize)> {
        let due = index.due(last, UnixTime(now)).unwrap();
        due.chunk_by(|one, other| one.0 == other.0).map(|of| (of[0].0, of.len())).collect()
    }

    #[test]
    fn payers_take_turns_and_nobodys_backlog_keeps_another_waiting() {
        let (_dir, index) = index();
        waiting(&index, payer(2), 5_000, 100, None);
        waiting(&index, payer(3), 1, 9_000, None);
        waiting(&index, payer(1), 2, 9_000, Some(8_000));
        waiting(&index, None, 1, 9_500, None);
        let all = [(payer(1), 2), (payer(2), OF_EACH), (payer(3), 1), (None, 1)];
        for (last, turn) in [(None, 0), (payer(1), 1), (payer(2), 2), (payer(3), 3)] {
            let mut expected = all.to_vec();
            expected.rotate_left(turn);
            assert_eq!(told(&index, last, 8_500), expected, "after {last:?}");
        }
        (4..=30).for_each(|n| waiting(&index, payer(n), 100, 100, None));
        let some = told(&index, payer(10), 8_500);
        assert_eq!((some.len(), some[0].0), (DUE_MAX / OF_EACH, payer(11)), "the others come in their turn");
    }

    #[test]
    fn of_a_payers_uploads_those_that_have_been_due_the_longest_are_first() {
        let (_dir, index) = index();
        waiting(&index, payer(1), 40, 300, None);
        waiting(&index, payer(1), 1, 900, Some(250));
        let all = index.due(None, UnixTime(1_000)).unwrap();
        let first = index.load(all[0].1).unwrap().unwrap();
        assert_eq!(
            first.next_attempt,
            Some(UnixTime(250)),
            "what is tried again does not wait for all that came since"
        );
        assert_eq!(index.load(all[1].1).unwrap().unwrap().updated, UnixTime(300));
        waiting(&index, payer(4), 1, 900, Some(2_000));
        waiting(&index, payer(5), 1, 900, Some(1_000 + WAIT_MAX_SECS + 1));
        assert_eq!(
            told(&index, payer(1), 1_000)[0].0,
            payer(5),
            "its time is of a clock that was set back; the other's will come"
        );
    }

    #[test]
    fn a_look_costs_the_same_however_much_waits() {
        let (_dir, index) = index();
        let connection = index.lock();
        for sql in parts().iter().map(String::as_str).chain([NEXT_PAYER]) {
            let mut plan = connection.prepare(&format!("EXPLAIN QUERY PLAN {sql}")).unwrap();
            let params = rusqlite::params_from_iter(std::iter::repeat_n(1, plan.parameter_count()));
            let steps = plan.query_map(params, |row| row.get::<_, String>("detail")).unwrap();
            let steps: Vec<String> = steps.map(Result::unwrap).collect();
            let along = |step: &String| step.contains("SEARCH") && step.contains("INDEX uploads_waiting");
            assert!(steps.iter().all(along), "{sql}: {steps:?}");
        }
    }
}
