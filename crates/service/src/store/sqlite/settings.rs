//! Users' settings in the index: [`SavedSettings`]. One row an owner's tag.
//!
//! Bounds: [`ROWS_MAX`] rows, and [`ROWS_OF_ONE`] of one payer, which then loses those unused for the longest. When all
//! are taken, the payer with most loses one.

use super::group::SqliteIndex;
use super::rows::rows;
use crate::model::{Payer, Settings, Tag};
use crate::store::{SavedSettings, StoreError};
use hoop_units::UnixTime;
use rusqlite::{Connection, OptionalExtension as _, params};
use std::time::Duration;

/// How long settings are kept after their last use (`docs/protocol.md` §7, "Settings").
const KEPT_SECS: u32 = 365 * 24 * 3600;

/// [`KEPT_SECS`] as a duration.
pub const SETTINGS_LIFE: Duration = Duration::from_secs(KEPT_SECS as u64);

/// How exactly the last use is known: reading writes at most that often.
const USED_SECS: u32 = 24 * 3600;

/// Settings of all. Each is 10 KiB at most, so that made-up owners fill 640 MiB.
const ROWS_MAX: u32 = 65_536;

/// Settings of one payer: a sixteenth. A payer may be an address with a school behind it.
const ROWS_OF_ONE: u32 = ROWS_MAX / 16;

/// The part of the layout's second step.
pub const SCHEMA: &str = "
CREATE TABLE settings (owner BLOB PRIMARY KEY, settings TEXT NOT NULL, used INTEGER NOT NULL) STRICT, WITHOUT ROWID;
CREATE INDEX settings_used ON settings (used);
";

/// The part of a later one: who pays.
pub const PAYERS: &str = "
ALTER TABLE settings ADD COLUMN payer BLOB;
CREATE INDEX settings_payer ON settings (payer, used);
";

/// Counts that SQLite's triggers keep, whatever version writes: how many settings each payer has. Counting them at each
/// save took longer the more there were.
const COUNTS: &str = "
CREATE TABLE IF NOT EXISTS setting_counts (payer BLOB PRIMARY KEY, settings INTEGER NOT NULL) STRICT, WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS setting_counts_most ON setting_counts (settings);
CREATE TABLE IF NOT EXISTS setting_total (settings INTEGER NOT NULL) STRICT;
CREATE TRIGGER IF NOT EXISTS settings_counted_in AFTER INSERT ON settings BEGIN
    INSERT INTO setting_counts VALUES (coalesce(new.payer, x''), 1) ON CONFLICT (payer) DO UPDATE SET settings = settings + 1;
    UPDATE setting_total SET settings = settings + 1;
END;
CREATE TRIGGER IF NOT EXISTS settings_counted_out AFTER DELETE ON settings BEGIN
    UPDATE setting_counts SET settings = settings - 1 WHERE payer = coalesce(old.payer, x'');
    DELETE FROM setting_counts WHERE payer = coalesce(old.payer, x'') AND settings = 0;
    UPDATE setting_total SET settings = settings - 1;
END;
CREATE TRIGGER IF NOT EXISTS settings_counted_anew AFTER UPDATE OF payer ON settings WHEN new.payer IS NOT old.payer BEGIN
    UPDATE setting_counts SET settings = settings - 1 WHERE payer = coalesce(old.payer, x'');
    DELETE FROM setting_counts WHERE payer = coalesce(old.payer, x'') AND settings = 0;
    INSERT INTO setting_counts VALUES (coalesce(new.payer, x''), 1) ON CONFLICT (payer) DO UPDATE SET settings = settings + 1;
END;
";

/// Counts all settings, as the triggers would have.
const RECOUNT: &str = "
INSERT INTO setting_counts SELECT coalesce(payer, x''), count(*) FROM settings GROUP BY 1;
INSERT INTO setting_total SELECT count(*) FROM settings;
";

/// How many one payer has.
const OWN: &str = "SELECT settings FROM setting_counts WHERE payer = ?1";

/// How many all have.
const ALL: &str = "SELECT settings FROM setting_total";

/// Whoever has most.
const MOST: &str = "SELECT nullif(payer, x'') FROM setting_counts ORDER BY settings DESC LIMIT 1";

/// Sees to it that settings are counted.
pub fn keep_counts(connection: &Connection) -> Result<(), StoreError> {
    super::rows::keep_up(connection, "setting_counts", COUNTS, RECOUNT)
}

impl SavedSettings for SqliteIndex {
    fn settings(&self, tags: &[Tag], now: UnixTime) -> Result<Option<Settings>, StoreError> {
        let Some((tag, text, used)) = first(&self.reader(), tags)? else { return Ok(None) };
        if now.since(UnixTime(used)) >= USED_SECS {
            self.in_group(move |transaction| {
                let sql = "UPDATE settings SET used = ?2 WHERE owner = ?1";
                Ok(transaction.prepare_cached(sql)?.execute(params![tag, now.0]).map(drop)?)
            })?;
        }
        serde_json::from_str(&text).map(Some).map_err(|_| StoreError::Damaged("settings that are none"))
    }

    fn save_settings(&self, tag: Tag, payer: Payer, settings: &Settings, now: UnixTime) -> Result<(), StoreError> {
        let text = serde_json::to_string(settings).expect("settings have a JSON form");
        self.in_group(move |transaction| save(transaction, tag, payer, &text, now))
    }

    fn forget_settings(&self, now: UnixTime, limit: usize) -> Result<usize, StoreError> {
        let before = now.0.saturating_sub(KEPT_SECS);
        self.in_group(move |transaction| {
            let sql = "DELETE FROM settings WHERE owner IN (SELECT owner FROM settings WHERE used < ?1 LIMIT ?2)";
            Ok(transaction.prepare_cached(sql)?.execute(params![before, rows(limit)])?)
        })
    }
}

/// The settings of the first of these tags that has any: whose they are, their text, and when they were used last.
fn first(connection: &Connection, tags: &[Tag]) -> Result<Option<(Tag, String, u32)>, StoreError> {
    let mut statement = connection.prepare_cached("SELECT settings, used FROM settings WHERE owner = ?1")?;
    for tag in tags {
        let found = statement.query_row([tag], |row| Ok((*tag, row.get(0)?, row.get(1)?))).optional()?;
        if found.is_some() {
            return Ok(found);
        }
    }
    Ok(None)
}

fn save(transaction: &Connection, tag: Tag, payer: Payer, text: &str, now: UnixTime) -> Result<(), StoreError> {
    let sql = "INSERT INTO settings (owner, settings, used, payer) VALUES (?1, ?2, ?3, ?4) ON CONFLICT (owner) DO UPDATE \
                   SET settings = excluded.settings, used = excluded.used, payer = excluded.payer";
    transaction.prepare_cached(sql)?.execute(params![tag, text, now.0, payer])?;
    let count = |sql: &str, params: &[&dyn rusqlite::ToSql]| {
        transaction.prepare_cached(sql)?.query_row(params, |row| row.get::<_, u32>(0))
    };
    if count(OWN, &[&payer])? > ROWS_OF_ONE {
        forget_oldest(transaction, Some(payer))?;
    }
    if count(ALL, &[])? > ROWS_MAX {
        let most = transaction.prepare_cached(MOST)?.query_row([], |row| row.get(0))?;
        forget_oldest(transaction, most)?;
    }
    Ok(())
}

/// Forgets the settings of a payer that were unused for the longest. None: those that an older version kept.
fn forget_oldest(transaction: &Connection, payer: Option<Payer>) -> Result<(), StoreError> {
    let sql = "DELETE FROM settings WHERE owner = (SELECT owner FROM settings WHERE payer IS ?1 ORDER BY used LIMIT 1)";
    transaction.prepare_cached(sql)?.execute([payer])?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::ENDED_MAX;

    #[test]
    fn settings_are_an_owners_own_and_forgotten_a_year_after_their_last_use() {
        let dir = tempfile::tempdir().unwrap();
        let index = SqliteIndex::open(&dir.path().join("index.sqlite"), ENDED_MAX).unwrap();
        let settings = Settings { min_bytes: 7, ..Settings::default() };
        index.save_settings([1; 16], Payer::Address([1; 16]), &settings, UnixTime(1_000)).unwrap();
        let used = UnixTime(1_000 + USED_SECS);
        assert_eq!(index.settings(&[[9; 16], [1; 16]], used).unwrap(), Some(settings.clone()));
        assert_eq!(index.settings(&[[9; 16]], used).unwrap(), None);
        assert_eq!(index.forget_settings(UnixTime(used.0 + KEPT_SECS), 9).unwrap(), 0, "the use counts");
        assert_eq!(index.forget_settings(UnixTime(used.0 + KEPT_SECS + 1), 9).unwrap(), 1);
        assert_eq!(index.settings(&[[1; 16]], used).unwrap(), None);
    }

    /// So many settings of made-up owners at one address, each used a second after the one before.
    fn made_up(index: &SqliteIndex, count: u32, address: u8) {
        let sql = "INSERT INTO settings WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < ?1) \
                   SELECT randomblob(16), '{}', i, ?2 FROM n";
        index.lock().execute(sql, params![count, Payer::Address([address; 16])]).unwrap();
    }

    #[test]
    fn made_up_users_of_one_address_evict_no_others_settings() {
        let dir = tempfile::tempdir().unwrap();
        let index = SqliteIndex::open(&dir.path().join("index.sqlite"), ENDED_MAX).unwrap();
        let save = |tag: u8, address: u8, now| {
            let settings = Settings { min_bytes: 7, ..Settings::default() };
            index.save_settings([tag; 16], Payer::Address([address; 16]), &settings, UnixTime(now)).unwrap();
        };
        let is_known = |tag: u8| index.settings(&[[tag; 16]], UnixTime(9)).unwrap().is_some();
        let count = |of: u8| {
            let sql = "SELECT count(*) FROM settings WHERE payer = ?1";
            index.lock().query_row(sql, [Payer::Address([of; 16])], |row| row.get::<_, u32>(0)).unwrap()
        };
        // Longest unused of all, and so the first to go if all are alike.
        save(1, 1, 0);
        made_up(&index, ROWS_OF_ONE, 2);
        save(2, 2, 9_000);
        assert_eq!((count(2), is_known(2)), (ROWS_OF_ONE, true), "one's own make room");
        // Sixteen addresses take all of it; whoever has most makes room for another's.
        (3..=18).for_each(|address| made_up(&index, ROWS_OF_ONE - u32::from(address), address));
        save(3, 77, 9_000);
        assert!(is_known(1) && is_known(3));
        assert_eq!(count(2), ROWS_OF_ONE - 1);
    }

    #[test]
    fn counts_of_settings_match_the_rows_and_a_save_reads_no_rows() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("index.sqlite");
        let index = SqliteIndex::open(&path, ENDED_MAX).unwrap();
        index.lock().pragma_update(None, "synchronous", "OFF").unwrap();
        let counted = |index: &SqliteIndex, sql: &str| {
            let connection = index.lock();
            let mut statement = connection.prepare(sql).unwrap();
            let rows = statement.query_map([], |row| Ok((row.get(0)?, row.get(1)?))).unwrap();
            rows.map(Result::unwrap).collect::<std::collections::BTreeMap<Vec<u8>, u32>>()
        };
        let counts = "SELECT * FROM setting_counts UNION ALL SELECT x'ff', settings FROM setting_total";
        let recount = "SELECT coalesce(payer, x''), count(*) FROM settings GROUP BY 1 UNION ALL SELECT x'ff', count(*) FROM settings";
        for n in 0..200_u8 {
            let (tag, payer) = ([n % 37; 16], Payer::Address([n % 5; 16]));
            index.save_settings(tag, payer, &Settings::default(), UnixTime(n.into())).unwrap();
            match n % 7 {
                0 => drop(index.lock().execute("DELETE FROM settings WHERE owner = ?1", [[n % 31; 16]]).unwrap()),
                1 => drop(index.lock().execute("UPDATE settings SET payer = NULL WHERE owner = ?1", [tag]).unwrap()),
                2 => drop(index.forget_settings(UnixTime(KEPT_SECS + u32::from(n / 2)), 9).unwrap()),
                _ => {}
            }
            assert_eq!(counted(&index, counts), counted(&index, recount));
        }
        let before = counted(&index, counts);
        let drops = ["in", "out", "anew"].map(|name| format!("DROP TRIGGER settings_counted_{name};")).concat();
        index.lock().execute_batch(&format!("{drops} DROP TABLE setting_counts; DROP TABLE setting_total;")).unwrap();
        drop(index);
        let index = SqliteIndex::open(&path, ENDED_MAX).unwrap();
        assert_eq!(counted(&index, counts), before, "of an index of an older version, too");
        for sql in [OWN, ALL, MOST] {
            let connection = index.lock();
            let mut statement = connection.prepare(&format!("EXPLAIN QUERY PLAN {sql}")).unwrap();
            let none = vec![rusqlite::types::Null; statement.parameter_count()];
            let plan = statement.query_map(rusqlite::params_from_iter(none), |row| row.get("detail")).unwrap();
            let plan: Vec<String> = plan.map(Result::unwrap).collect();
            assert!(plan.len() == 1 && plan[0].contains(" setting_"), "{plan:?}");
        }
    }
}
