//! Days whose tickets' ids may be forgotten: [`Closed`].
//!
//! A forgotten upload could be accepted again if its ticket came to be on time again: a clock may be set back. So
//! before an id is forgotten, the day on which its ticket ends is closed, in the same transaction. A new upload that
//! ends on a closed day is refused, whatever the clock says.
//!
//! Bounds: one row a day, until 2106.

use super::group::SqliteIndex;
use crate::store::{Closed, StoreError};
use hoop_units::UnixTime;
use rusqlite::{Connection, Params};

const DAY: u32 = 24 * 3600;

/// A step of the layout.
pub const SCHEMA: &str = "CREATE TABLE closed (day INTEGER PRIMARY KEY) STRICT;";

impl Closed for SqliteIndex {
    fn is_closed(&self, expires: UnixTime) -> Result<bool, StoreError> {
        let connection = self.reader();
        let mut statement = connection.prepare_cached("SELECT EXISTS (SELECT 1 FROM closed WHERE day = ?1)")?;
        Ok(statement.query_row([expires.0 / DAY], |row| row.get(0))?)
    }

    fn open_end(&self, wanted: UnixTime) -> Result<UnixTime, StoreError> {
        open_end(&self.reader(), wanted)
    }
}

/// [`Closed::open_end`].
pub fn open_end(connection: &Connection, wanted: UnixTime) -> Result<UnixTime, StoreError> {
    let mut statement = connection.prepare_cached("SELECT day FROM closed WHERE day >= ?1 ORDER BY day")?;
    let mut open = wanted.0 / DAY;
    for day in statement.query_map([open], |row| row.get::<_, u32>(0))? {
        if day? != open {
            break;
        }
        open += 1;
    }
    Ok(wanted.max(UnixTime(open.saturating_mul(DAY))))
}

/// Closes the days on which the tickets end whose rows of `table` are `which`.
pub fn close(transaction: &Connection, table: &str, which: &str, params: impl Params) -> Result<(), StoreError> {
    let sql =
        format!("INSERT OR IGNORE INTO closed SELECT DISTINCT expires / {DAY} FROM {table} WHERE id IN ({which})");
    transaction.prepare_cached(&sql)?.execute(params)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::ENDED_MAX;
    use hoop_timekeeper::Over;

    #[test]
    fn a_ticket_ends_on_the_next_day_that_is_open() {
        let dir = tempfile::tempdir().unwrap();
        let index = SqliteIndex::open(&dir.path().join("index.sqlite"), ENDED_MAX).unwrap();
        index.lock().execute_batch("INSERT INTO closed VALUES (5), (6), (8)").unwrap();
        let end = |wanted| index.open_end(UnixTime(wanted)).unwrap().0;
        assert_eq!(
            [5 * DAY - 1, 5 * DAY, 7 * DAY - 1, 7 * DAY + 9, 8 * DAY].map(end),
            [5 * DAY - 1, 7 * DAY, 7 * DAY, 7 * DAY + 9, 9 * DAY]
        );
        assert_eq!(end(u32::MAX), u32::MAX);
        // What ends later for that is not taken for something of a time when the clock was far ahead.
        let over =
            |after| crate::store::sqlite::rows::tickets_ended(&index.reader(), Over { before: UnixTime(9), after }, 9);
        assert_eq!(over(UnixTime(5 * DAY + 9)).unwrap(), (0, i64::from(7 * DAY)));
        assert_eq!(over(UnixTime(7 * DAY + 18)).unwrap(), (0, i64::from(7 * DAY + 9)));
        assert_eq!(over(UnixTime(u32::MAX)).unwrap(), (0, i64::MAX));
        assert_eq!([4, 5, 7].map(|day| index.is_closed(UnixTime(day * DAY + 3)).unwrap()), [false, true, false]);
    }
}
