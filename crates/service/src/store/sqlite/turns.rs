//! Whose uploads are replayed next: payers take turns.
//!
//! Bounds: [`OF_EACH`] uploads of each payer, [`DUE_MAX`] in all. A look costs a few steps in an index for each payer
//! that has something due, however many uploads wait.

use crate::model::Payer;
use crate::store::StoreError;
use hoop_units::{UnixTime, UploadId};
use rusqlite::{Connection, OptionalExtension as _, params};

/// Uploads of one payer in one answer: some that cannot be claimed block no other.
const OF_EACH: usize = 32;

/// Uploads in one answer. The next answer begins after the last payer.
const DUE_MAX: usize = 256;

/// No wait is longer than the longest `Retry-After` that is honoured (6 h, see `replay`). A `next_attempt` beyond that
/// was written before the clock was set back, and is due.
const WAIT_MAX_SECS: u32 = 6 * 3600;

/// Uploads whose time has come that are marked so in one transaction: some 10 µs each.
const RIPE_MAX: usize = 256;

/// A step of the layout: what waits, by payer.
pub const SCHEMA: &str = "
CREATE INDEX uploads_waiting ON uploads (payer, next_attempt, updated) WHERE state = 'received' AND NOT paused;
";

/// Another: due uploads alone, by payer, so that uploads that wait for a later time cost a look nothing. An upload is
/// marked as ripe once its time has come.
pub const RIPE: &str = "
DROP INDEX uploads_waiting;
ALTER TABLE uploads ADD COLUMN ripe INTEGER NOT NULL DEFAULT 0;
CREATE INDEX uploads_ripe ON uploads (payer, coalesce(next_attempt, updated), id)
    WHERE state = 'received' AND NOT paused AND (next_attempt IS NULL OR ripe);
CREATE INDEX uploads_unripe ON uploads (next_attempt) WHERE state = 'received' AND NOT paused AND NOT ripe AND next_attempt IS NOT NULL;
";

/// What is due, as the index on it says it.
const IS_RIPE: &str = "state = 'received' AND NOT paused AND (next_attempt IS NULL OR ripe)";

/// What waits for its time, in the same way.
const IS_UNRIPE: &str = "state = 'received' AND NOT paused AND NOT ripe AND next_attempt IS NOT NULL";

/// Uploads that wait although their time has come (`?1`), or that have a time beyond `?2`, of a clock that was set
/// back.
fn come() -> String {
    let part = |when: &str| {
        format!(
            "SELECT * FROM (SELECT id FROM uploads INDEXED BY uploads_unripe WHERE {IS_UNRIPE} AND next_attempt {when} LIMIT {RIPE_MAX})"
        )
    };
    format!("{} UNION ALL {}", part("<= ?1"), part("> ?2"))
}

/// Whether the time of any upload has come that is not marked as ripe.
pub fn has_come(connection: &Connection, now: UnixTime) -> Result<bool, StoreError> {
    Ok(connection.prepare_cached(&come())?.exists([now.0, now.plus_secs(WAIT_MAX_SECS).0])?)
}

/// Marks those as ripe, some at a time.
pub fn ripen(connection: &Connection, now: UnixTime) -> Result<(), StoreError> {
    let sql = format!("UPDATE uploads SET ripe = 1, next_attempt = min(next_attempt, ?1) WHERE id IN ({})", come());
    connection.prepare_cached(&sql)?.execute([now.0, now.plus_secs(WAIT_MAX_SECS).0])?;
    Ok(())
}

/// When the next waiting upload becomes due.
pub fn next_due(connection: &Connection, now: UnixTime) -> Result<Option<UnixTime>, StoreError> {
    let sql = format!(
        "SELECT min(next_attempt) FROM uploads INDEXED BY uploads_unripe WHERE {IS_UNRIPE} AND next_attempt > ?1"
    );
    let next = connection.prepare_cached(&sql)?.query_row([now.0], |row| row.get::<_, Option<u32>>(0))?;
    Ok(next.map(UnixTime))
}

/// Uploads to replay now, by payer, in a circle that begins after `last`. Of each payer, those that have been due the
/// longest come first.
pub fn due(connection: &Connection, last: Option<Payer>) -> Result<Vec<(Option<Payer>, UploadId)>, StoreError> {
    let mut found = Vec::new();
    let mut add = |payer: Option<Payer>| {
        add_due(connection, payer, &mut found)?;
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

/// The next payer with anything due.
fn next_payer() -> String {
    format!(
        "SELECT payer FROM uploads INDEXED BY uploads_ripe WHERE {IS_RIPE} AND payer > coalesce(?1, x'') AND payer <= coalesce(?2, x'ff') \
         ORDER BY payer LIMIT 1"
    )
}

/// What is due of a payer.
fn due_of() -> String {
    format!(
        "SELECT id FROM uploads INDEXED BY uploads_ripe WHERE {IS_RIPE} AND payer IS ?1 ORDER BY coalesce(next_attempt, updated), id LIMIT {OF_EACH}"
    )
}

/// The next payer with anything due, up to `end`.
fn after(connection: &Connection, payer: Option<Payer>, end: Option<Payer>) -> Result<Option<Payer>, StoreError> {
    Ok(connection.prepare_cached(&next_payer())?.query_row(params![payer, end], |row| row.get(0)).optional()?)
}

/// Adds what is due of a payer.
fn add_due(
    connection: &Connection,
    payer: Option<Payer>,
    found: &mut Vec<(Option<Payer>, UploadId)>,
) -> Result<(), StoreError> {
    let mut statement = connection.prepare_cached(&due_of())?;
    for id in statement.query_map(params![payer], |row| row.get::<_, [u8; 16]>(0))? {
        found.push((payer, UploadId(id?)));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::group::SqliteIndex;
    use super::*;
    use crate::store::{ENDED_MAX, Index as _};

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
    fn payers_take_turns_whatever_their_backlog() {
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
    fn a_payers_longest_due_uploads_come_first() {
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
    fn a_look_for_due_uploads_costs_the_same_whatever_waits() {
        let (_dir, index) = index();
        let connection = index.lock();
        let next = format!("SELECT 1 FROM uploads INDEXED BY uploads_unripe WHERE {IS_UNRIPE} AND next_attempt > ?1");
        for sql in [come(), next_payer(), due_of(), next] {
            let mut plan = connection.prepare(&format!("EXPLAIN QUERY PLAN {sql}")).unwrap();
            let params = rusqlite::params_from_iter(std::iter::repeat_n(1, plan.parameter_count()));
            let steps = plan.query_map(params, |row| row.get::<_, String>("detail")).unwrap();
            let steps: Vec<String> = steps.map(Result::unwrap).collect();
            let is_along = |step: &String| step.contains("SEARCH") && step.contains("ripe");
            assert!(steps.iter().any(is_along), "{sql}: {steps:?}");
            let is_slow = |step: &String| step.contains("SCAN uploads") || step.contains("TEMP B-TREE");
            assert!(!steps.iter().any(is_slow), "{sql}: {steps:?}");
        }
    }

    /// As many IPv6 networks as one has for the asking, whose uploads the application does not take yet.
    #[test]
    fn uploads_due_later_cost_a_look_nothing() {
        let (_dir, index) = index();
        waiting(&index, payer(1), 1, 100, None);
        waiting(&index, payer(1), 5_000, 100, Some(2_000));
        index
            .lock()
            .execute(
                "UPDATE uploads SET payer = CAST('a' || substr(hex(id), 1, 16) AS BLOB) WHERE next_attempt IS NOT NULL",
                [],
            )
            .unwrap();
        let began = std::time::Instant::now();
        for _ in 0..8 {
            assert_eq!(told(&index, None, 1_000), [(payer(1), 1)]);
            assert_eq!(index.next_due(UnixTime(1_000)).unwrap(), Some(UnixTime(2_000)));
        }
        let took = began.elapsed();
        assert!(took < std::time::Duration::from_millis(200), "{took:?}");
        assert_eq!(told(&index, payer(1), 2_000).len(), DUE_MAX, "their time has come");
    }

    #[test]
    fn a_retried_upload_is_no_longer_ripe() {
        let (_dir, index) = index();
        waiting(&index, payer(1), 1, 100, Some(500));
        let [(_, id)] = index.due(None, UnixTime(500)).unwrap()[..] else { panic!("it is due") };
        let reason = crate::model::Reason::new(hoop_http::Code::UpstreamBusy, "");
        for change in [crate::model::Change::Claim, crate::model::Change::Retry { at: UnixTime(900), reason }] {
            index.apply(id, change, UnixTime(600)).unwrap();
        }
        assert_eq!(
            (index.due(None, UnixTime(899)).unwrap().len(), index.due(None, UnixTime(900)).unwrap().len()),
            (0, 1)
        );
    }
}
