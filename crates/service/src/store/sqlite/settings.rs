//! Users' settings in the index: [`SavedSettings`]. One row an owner's tag.
//!
//! Bounds: [`ROWS_MAX`] rows with [`BYTES_MAX`] of settings, and [`ROWS_OF_ONE`] with [`BYTES_OF_ONE`] of one payer, which
//! then loses those unused for the longest. When all are taken, the payer with most loses some of its own. [`USED_MAX`] uses
//! wait to be noted.

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

/// How exactly the last use is known: it is noted at most that often.
const USED_SECS: u32 = 24 * 3600;

/// Uses that wait to be noted, some 50 bytes each. Of further ones the next is noted.
const USED_MAX: usize = 4096;

/// Settings of all.
const ROWS_MAX: u32 = 65_536;

/// Settings of one payer: a sixteenth. A payer may be an address with a school behind it.
const ROWS_OF_ONE: u32 = ROWS_MAX / 16;

/// What the settings of all take, in bytes. Those of one user are 10 KiB at most, and mostly 50 bytes: in number alone,
/// those of made-up owners would fill 640 MiB.
const BYTES_MAX: i64 = 64 << 20;

/// What those of one payer take.
const BYTES_OF_ONE: i64 = BYTES_MAX / 256;

/// So many at most are forgotten where others are saved: as many short ones as the longest needs room for. Where an
/// earlier version kept more, each save takes some of it.
const FORGOTTEN_MAX: usize = 256;

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

/// Sums that SQLite's triggers keep, whatever version writes: how many settings each payer has, and their bytes. Adding
/// them up at each save took longer the more there were.
const SUMS: &str = "
CREATE TABLE IF NOT EXISTS setting_sums (payer BLOB PRIMARY KEY, settings INTEGER NOT NULL, bytes INTEGER NOT NULL) STRICT, WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS setting_sums_settings ON setting_sums (settings);
CREATE INDEX IF NOT EXISTS setting_sums_bytes ON setting_sums (bytes);
CREATE TABLE IF NOT EXISTS setting_sum (settings INTEGER NOT NULL, bytes INTEGER NOT NULL) STRICT;
CREATE TRIGGER IF NOT EXISTS settings_added AFTER INSERT ON settings BEGIN
    INSERT INTO setting_sums VALUES (coalesce(new.payer, x''), 1, octet_length(new.settings))
        ON CONFLICT (payer) DO UPDATE SET settings = settings + 1, bytes = bytes + excluded.bytes;
    UPDATE setting_sum SET settings = settings + 1, bytes = bytes + octet_length(new.settings);
END;
CREATE TRIGGER IF NOT EXISTS settings_removed AFTER DELETE ON settings BEGIN
    UPDATE setting_sums SET settings = settings - 1, bytes = bytes - octet_length(old.settings) WHERE payer = coalesce(old.payer, x'');
    DELETE FROM setting_sums WHERE payer = coalesce(old.payer, x'') AND settings = 0;
    UPDATE setting_sum SET settings = settings - 1, bytes = bytes - octet_length(old.settings);
END;
CREATE TRIGGER IF NOT EXISTS settings_changed AFTER UPDATE OF payer, settings ON settings
WHEN new.payer IS NOT old.payer OR new.settings <> old.settings BEGIN
    UPDATE setting_sums SET settings = settings - 1, bytes = bytes - octet_length(old.settings) WHERE payer = coalesce(old.payer, x'');
    DELETE FROM setting_sums WHERE payer = coalesce(old.payer, x'') AND settings = 0;
    INSERT INTO setting_sums VALUES (coalesce(new.payer, x''), 1, octet_length(new.settings))
        ON CONFLICT (payer) DO UPDATE SET settings = settings + 1, bytes = bytes + excluded.bytes;
    UPDATE setting_sum SET bytes = bytes + octet_length(new.settings) - octet_length(old.settings);
END;
";

/// Adds up all settings, as the triggers would have.
const ADD_UP: &str = "
INSERT INTO setting_sums SELECT coalesce(payer, x''), count(*), sum(octet_length(settings)) FROM settings GROUP BY 1;
INSERT INTO setting_sum SELECT count(*), coalesce(sum(octet_length(settings)), 0) FROM settings;
";

/// An earlier version counted settings, and not their bytes. It makes this anew if it needs it.
const BEFORE: &str = "
DROP TRIGGER IF EXISTS settings_counted_in;
DROP TRIGGER IF EXISTS settings_counted_out;
DROP TRIGGER IF EXISTS settings_counted_anew;
DROP TABLE IF EXISTS setting_counts;
DROP TABLE IF EXISTS setting_total;
";

/// What one payer has.
const OWN: &str = "SELECT settings, bytes FROM setting_sums WHERE payer = ?1";

/// What all have.
const ALL: &str = "SELECT settings, bytes FROM setting_sum";

/// Whoever has most settings.
const MOST: &str = "SELECT nullif(payer, x'') FROM setting_sums ORDER BY settings DESC LIMIT 1";

/// Whoever's take most bytes.
const LONGEST: &str = "SELECT nullif(payer, x'') FROM setting_sums ORDER BY bytes DESC LIMIT 1";

/// Sees to it that settings are summed up.
pub fn keep_sums(connection: &Connection) -> Result<(), StoreError> {
    connection.execute_batch(BEFORE)?;
    super::rows::keep_up(connection, "setting_sums", SUMS, ADD_UP)
}

impl SavedSettings for SqliteIndex {
    fn settings(&self, tags: &[Tag], now: UnixTime) -> Result<Option<Settings>, StoreError> {
        let Some((tag, text, used)) = first(&self.reader(), tags)? else { return Ok(None) };
        if now.since(UnixTime(used)) >= USED_SECS {
            // Whoever reads waits for no sync.
            let mut used = self.used.lock();
            if used.len() < USED_MAX {
                used.insert(tag, now);
            }
        }
        serde_json::from_str(&text).map(Some).map_err(|_| StoreError::Damaged("settings that are none"))
    }

    fn save_settings(&self, tag: Tag, payer: Payer, settings: &Settings, now: UnixTime) -> Result<(), StoreError> {
        let text = serde_json::to_string(settings).expect("settings have a JSON form");
        self.in_group(move |transaction| save(transaction, tag, payer, &text, now))
    }

    fn forget_settings(&self, now: UnixTime, limit: usize) -> Result<usize, StoreError> {
        let before = now.0.saturating_sub(KEPT_SECS);
        // If this fails, the next use is noted.
        let used = std::mem::take(&mut *self.used.lock());
        self.in_group(move |transaction| {
            let mut note = transaction.prepare_cached("UPDATE settings SET used = ?2 WHERE owner = ?1")?;
            used.iter().try_for_each(|(tag, at)| note.execute(params![tag, at.0]).map(drop))?;
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
    let sums = |sql: &str, params: &[&dyn rusqlite::ToSql]| {
        let sums = |row: &rusqlite::Row<'_>| Ok((row.get::<_, u32>(0)?, row.get::<_, i64>(1)?));
        transaction.prepare_cached(sql)?.query_row(params, sums)
    };
    for _ in 0..FORGOTTEN_MAX {
        let (settings, bytes) = sums(OWN, &[&payer])?;
        if settings <= ROWS_OF_ONE && bytes <= BYTES_OF_ONE {
            break;
        }
        forget_oldest(transaction, Some(payer))?;
    }
    for _ in 0..FORGOTTEN_MAX {
        let whose = match sums(ALL, &[])? {
            (settings, _) if settings > ROWS_MAX => MOST,
            (_, bytes) if bytes > BYTES_MAX => LONGEST,
            _ => break,
        };
        let most = transaction.prepare_cached(whose)?.query_row([], |row| row.get(0))?;
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

    /// Else the readers of settings would have all turns for looks, each for a sync.
    #[test]
    fn settings_are_read_while_a_change_is_synced() {
        let dir = tempfile::tempdir().unwrap();
        let index = SqliteIndex::open(&dir.path().join("index.sqlite"), ENDED_MAX).unwrap();
        index.save_settings([1; 16], Payer::Address([1; 16]), &Settings::default(), UnixTime(1_000)).unwrap();
        std::thread::scope(|scope| {
            let busy = index.lock();
            let (read, reading) = std::sync::mpsc::channel();
            let index = &index;
            scope.spawn(move || read.send(index.settings(&[[1; 16]], UnixTime(1_000 + USED_SECS)).unwrap()));
            let read = reading.recv_timeout(Duration::from_secs(30));
            // Before anything is asserted, so that nobody is left.
            drop(busy);
            assert_eq!(read, Ok(Some(Settings::default())));
        });
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
        assert!(count(2) < ROWS_OF_ONE);
    }

    #[test]
    fn long_settings_of_one_address_take_256_kib_and_of_all_64_mib() {
        let dir = tempfile::tempdir().unwrap();
        let index = SqliteIndex::open(&dir.path().join("index.sqlite"), ENDED_MAX).unwrap();
        index.lock().pragma_update(None, "synchronous", "OFF").unwrap();
        let types = (0..32).map(|n| (format!("image/{n:0>249}"), crate::model::Offload::Ask)).collect();
        let long = Settings { types, ..Settings::default() };
        let is_known = |tag: u8| index.settings(&[[tag; 16]], UnixTime(9)).unwrap().is_some();
        let bytes = |of: &str| {
            let sql = format!("SELECT coalesce(sum(octet_length(settings)), 0) FROM settings {of}");
            index.lock().query_row(&sql, [], |row| row.get::<_, u32>(0)).unwrap()
        };
        index.save_settings([200; 16], Payer::Address([1; 16]), &long, UnixTime(0)).unwrap();
        let one = bytes("");
        (0..99).for_each(|n| {
            index.save_settings([n; 16], Payer::Address([2; 16]), &long, UnixTime(n.into())).unwrap();
        });
        let own = bytes("WHERE used > 0");
        assert!((256 * 1024 - one..=256 * 1024).contains(&own), "{own} bytes, {one} each");
        assert!(is_known(200) && is_known(98) && !is_known(9), "one's own oldest make room");
        // One that is short may have many that are long make room.
        index.save_settings([98; 16], Payer::Address([2; 16]), &Settings::default(), UnixTime(98)).unwrap();
        assert!(bytes("WHERE used > 0") < own);

        index.lock().execute("DELETE FROM settings", []).unwrap();
        for address in 0..=255 {
            let sql = "INSERT INTO settings WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 32) \
                       SELECT randomblob(16), printf('%8192s', '{}'), i, ?1 FROM n";
            index.lock().execute(sql, [Payer::Address([address; 16])]).unwrap();
        }
        assert_eq!(bytes(""), 64 << 20);
        (1..=9).for_each(|n| index.save_settings([n; 16], Payer::Owner([n; 16]), &long, UnixTime(99)).unwrap());
        assert!(bytes("") <= 64 << 20 && (1..=9).all(is_known), "those with most make room");
    }

    #[test]
    fn sums_of_settings_match_the_rows_and_a_save_reads_no_rows() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("index.sqlite");
        let index = SqliteIndex::open(&path, ENDED_MAX).unwrap();
        index.lock().pragma_update(None, "synchronous", "OFF").unwrap();
        let added = |index: &SqliteIndex, sql: &str| {
            let connection = index.lock();
            let mut statement = connection.prepare(sql).unwrap();
            let rows = statement.query_map([], |row| Ok((row.get(0)?, (row.get(1)?, row.get(2)?)))).unwrap();
            rows.map(Result::unwrap).collect::<std::collections::BTreeMap<Vec<u8>, (u32, u32)>>()
        };
        let sums = "SELECT * FROM setting_sums UNION ALL SELECT x'ff', * FROM setting_sum";
        let added_up = "SELECT coalesce(payer, x''), count(*), sum(length(settings)) FROM settings GROUP BY 1 \
                        UNION ALL SELECT x'ff', count(*), coalesce(sum(length(settings)), 0) FROM settings";
        for n in 0..200_u8 {
            let (tag, payer) = ([n % 37; 16], Payer::Address([n % 5; 16]));
            let settings = Settings { min_bytes: 3_u64.pow(u32::from(n % 23)), ..Settings::default() };
            index.save_settings(tag, payer, &settings, UnixTime(n.into())).unwrap();
            match n % 7 {
                0 => drop(index.lock().execute("DELETE FROM settings WHERE owner = ?1", [[n % 31; 16]]).unwrap()),
                1 => drop(index.lock().execute("UPDATE settings SET payer = NULL WHERE owner = ?1", [tag]).unwrap()),
                2 => drop(index.forget_settings(UnixTime(KEPT_SECS + u32::from(n / 2)), 9).unwrap()),
                _ => {}
            }
            assert_eq!(added(&index, sums), added(&index, added_up));
        }
        let before = added(&index, sums);
        let drops = ["added", "removed", "changed"].map(|name| format!("DROP TRIGGER settings_{name};")).concat();
        index.lock().execute_batch(&format!("{drops} DROP TABLE setting_sums; DROP TABLE setting_sum;")).unwrap();
        // What an earlier version left counts no more.
        let earlier = "CREATE TABLE setting_total (settings INTEGER NOT NULL) STRICT;
                       CREATE TRIGGER settings_counted_in AFTER INSERT ON settings BEGIN
                           UPDATE setting_total SET settings = settings + 1;
                       END;";
        index.lock().execute_batch(earlier).unwrap();
        drop(index);
        let index = SqliteIndex::open(&path, ENDED_MAX).unwrap();
        assert_eq!(added(&index, sums), before, "of an index of an older version, too");
        assert!(!index.lock().table_exists(None, "setting_total").unwrap());
        index.save_settings([9; 16], Payer::Address([9; 16]), &Settings::default(), UnixTime(9)).unwrap();
        for sql in [OWN, ALL, MOST, LONGEST] {
            let connection = index.lock();
            let mut statement = connection.prepare(&format!("EXPLAIN QUERY PLAN {sql}")).unwrap();
            let none = vec![rusqlite::types::Null; statement.parameter_count()];
            let plan = statement.query_map(rusqlite::params_from_iter(none), |row| row.get("detail")).unwrap();
            let plan: Vec<String> = plan.map(Result::unwrap).collect();
            assert!(plan.len() == 1 && plan[0].contains(" setting_"), "{plan:?}");
        }
    }
}
