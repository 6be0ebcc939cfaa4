//! Rows of uploads as they are read, and what several of the index's parts ask of it.

use super::closed;
use crate::model::{Facts, Reason, State, Tag, Upload};
use crate::store::StoreError;
use hoop_http::Code;
use hoop_timekeeper::Over;
use hoop_units::{UnixTime, UploadId};
use rusqlite::types::FromSql;
use rusqlite::{Connection, OptionalExtension as _, Row};
use std::sync::LazyLock;

/// What [`read`] reads, in its order.
pub(super) const COLUMNS: &str = "id, prelude, total, received, state, method, path, owner, created, updated, expires, attempts, \
                       next_attempt, reason_code, reason_detail, answer, token, paused, receipt, failures, kept, payer";

/// The final states, for queries.
pub(super) const FINAL: &str = "('accepted', 'rejected', 'unknown', 'stopped', 'expired')";

/// Those that end when their time is over, for queries.
pub(super) const UNENDED: &str = "('receiving', 'received', 'held')";

/// What is known of an upload.
pub(super) fn load(connection: &Connection, id: UploadId) -> Result<Option<Upload>, StoreError> {
    static SQL: LazyLock<String> = LazyLock::new(|| format!("SELECT {COLUMNS} FROM uploads WHERE id = ?1"));
    let mut statement = connection.prepare_cached(&SQL)?;
    statement.query_row([id.0], |row| Ok(read(row))).optional()?.transpose()
}

/// Reads [`COLUMNS`] in their order: finding each by its name took longer than SQLite itself.
pub(super) fn read(row: &Row<'_>) -> Result<Upload, StoreError> {
    let mut cells = Cells { row, next: 0 };
    let (id, prelude, total, received) = (cells.next()?, cells.next()?, cells.next::<i64>()?, cells.next::<String>()?);
    let state = cells.next::<String>()?;
    let facts = match (cells.next()?, cells.next()?, cells.next::<Option<Tag>>()?) {
        (Some(method), Some(path), Some(owner)) => Some(Facts { method, path, owner }),
        _ => None,
    };
    let [created, updated, expires] = [cells.next()?, cells.next()?, cells.next()?].map(UnixTime);
    let (attempts, next_attempt) = (cells.next()?, cells.next::<Option<u32>>()?.map(UnixTime));
    let code: Option<String> = cells.next()?;
    let code = code.map(|name| Code::by_name(&name).ok_or(StoreError::Damaged("a code that is not known")));
    let detail: Option<String> = cells.next()?;
    Ok(Upload {
        id: UploadId(id),
        prelude,
        total: u64::try_from(total).map_err(|_| StoreError::Damaged("a total below zero"))?,
        received: received.parse().map_err(|_| StoreError::Damaged("ranges that are none"))?,
        state: State::by_name(&state).ok_or(StoreError::Damaged("a state that is not known"))?,
        facts,
        created,
        updated,
        expires,
        attempts,
        next_attempt,
        reason: code.transpose()?.map(|code| Reason { code, detail: detail.unwrap_or_default() }),
        answer: cells.next()?,
        token: cells.next()?,
        paused: cells.next()?,
        receipt: cells.next()?,
        failures: cells.next()?,
        kept: cells.next()?,
        payer: cells.next()?,
    })
}

/// A row's columns in their order.
struct Cells<'a> {
    row: &'a Row<'a>,
    next: usize,
}

impl Cells<'_> {
    fn next<T: FromSql>(&mut self) -> Result<T, rusqlite::Error> {
        self.next += 1;
        self.row.get(self.next - 1)
    }
}

/// A number of rows, as SQLite takes it.
pub(super) fn rows(limit: usize) -> i64 {
    i64::try_from(limit).unwrap_or(i64::MAX)
}

/// The bounds of times that are over since `linger` seconds: before the first, or after the second.
pub(super) fn ended(over: Over, linger: u32) -> (i64, i64) {
    let at = |time: UnixTime| i64::from(time.0) - i64::from(linger);
    // None ends after 2106.
    let after = if over.after == UnixTime(u32::MAX) { i64::MAX } else { at(over.after) };
    (at(over.before), after)
}

/// The same for tickets' ends. A new ticket that would end on a closed day ends later than others.
pub(super) fn tickets_ended(connection: &Connection, over: Over, linger: u32) -> Result<(i64, i64), StoreError> {
    let (before, after) = ended(over, linger);
    let Ok(wanted) = u32::try_from(after.max(0)) else { return Ok((before, after)) };
    Ok((before, closed::open_end(connection, UnixTime(wanted))?.0.into()))
}

/// Makes sure that a table of counts and its triggers are there. If it is new, its rows are counted once.
pub(super) fn keep_up(connection: &Connection, table: &str, schema: &str, count: &str) -> Result<(), StoreError> {
    let is_there = connection.table_exists(None, table)?;
    connection.execute_batch(schema)?;
    if !is_there {
        connection.execute_batch(count)?;
    }
    Ok(())
}
