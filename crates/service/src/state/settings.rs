//! Users' settings in the index: [`SavedSettings`]. One row an owner's tag.
//!
//! Bounds: [`ROWS_MAX`] rows.

use super::StoreError;
use super::sqlite::{SqliteIndex, rows};
use crate::owner::Tag;
use crate::settings::Settings;
use hoop_units::UnixTime;
use rusqlite::{OptionalExtension as _, TransactionBehavior, params};
use std::time::Duration;

/// How long settings are kept after their last use (`docs/protocol.md` §7, "Settings").
const KEPT_SECS: u32 = 365 * 24 * 3600;

/// The same.
pub const SETTINGS_LIFE: Duration = Duration::from_secs(KEPT_SECS as u64);

/// How exactly the last use is known: reading writes no more often than that.
const USED_SECS: u32 = 24 * 3600;

/// Settings that are kept; then those that were longest unused go. Each is 10 KiB at most, so that whoever invents owners fills
/// 640 MiB.
const ROWS_MAX: u32 = 65_536;

/// The part of the layout's second step.
pub const SCHEMA: &str = "
CREATE TABLE settings (owner BLOB PRIMARY KEY, settings TEXT NOT NULL, used INTEGER NOT NULL) STRICT, WITHOUT ROWID;
CREATE INDEX settings_used ON settings (used);
";

/// Keeps users' settings.
pub trait SavedSettings {
    /// The settings of the first of these tags that has any; that is a use of them.
    fn settings(&self, tags: &[Tag], now: UnixTime) -> Result<Option<Settings>, StoreError>;
    /// Saves settings for a tag.
    fn save_settings(&self, tag: Tag, settings: &Settings, now: UnixTime) -> Result<(), StoreError>;
    /// Forgets what nobody has used for a year; how many.
    fn forget_settings(&self, now: UnixTime, limit: usize) -> Result<usize, StoreError>;
}

impl SavedSettings for SqliteIndex {
    fn settings(&self, tags: &[Tag], now: UnixTime) -> Result<Option<Settings>, StoreError> {
        let connection = self.lock();
        let mut statement = connection.prepare_cached("SELECT settings, used FROM settings WHERE owner = ?1")?;
        for tag in tags {
            let found = statement.query_row([tag], |row| Ok((row.get::<_, String>(0)?, row.get::<_, u32>(1)?)));
            let Some((text, used)) = found.optional()? else { continue };
            if now.since(UnixTime(used)) >= USED_SECS {
                let sql = "UPDATE settings SET used = ?2 WHERE owner = ?1";
                connection.prepare_cached(sql)?.execute(params![tag, now.0])?;
            }
            return serde_json::from_str(&text).map(Some).map_err(|_| StoreError::Damaged("settings that are none"));
        }
        Ok(None)
    }

    fn save_settings(&self, tag: Tag, settings: &Settings, now: UnixTime) -> Result<(), StoreError> {
        let text = serde_json::to_string(settings).expect("settings have a JSON form");
        let mut connection = self.lock();
        let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
        let sql = "INSERT INTO settings (owner, settings, used) VALUES (?1, ?2, ?3) ON CONFLICT (owner) DO UPDATE SET \
                   settings = excluded.settings, used = excluded.used";
        transaction.prepare_cached(sql)?.execute(params![tag, text, now.0])?;
        let sql =
            "DELETE FROM settings WHERE owner IN (SELECT owner FROM settings ORDER BY used DESC LIMIT -1 OFFSET ?1)";
        transaction.prepare_cached(sql)?.execute([ROWS_MAX])?;
        Ok(transaction.commit()?)
    }

    fn forget_settings(&self, now: UnixTime, limit: usize) -> Result<usize, StoreError> {
        let sql = "DELETE FROM settings WHERE owner IN (SELECT owner FROM settings WHERE used < ?1 LIMIT ?2)";
        let before = now.0.saturating_sub(KEPT_SECS);
        Ok(self.lock().prepare_cached(sql)?.execute(params![before, rows(limit)])?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_are_an_owners_own_and_forgotten_a_year_after_their_last_use() {
        let dir = tempfile::tempdir().unwrap();
        let index = SqliteIndex::open(&dir.path().join("index.sqlite")).unwrap();
        let settings = Settings { min_bytes: 7, ..Settings::default() };
        index.save_settings([1; 16], &settings, UnixTime(1_000)).unwrap();
        let used = UnixTime(1_000 + USED_SECS);
        assert_eq!(index.settings(&[[9; 16], [1; 16]], used).unwrap(), Some(settings.clone()));
        assert_eq!(index.settings(&[[9; 16]], used).unwrap(), None);
        assert_eq!(index.forget_settings(UnixTime(used.0 + KEPT_SECS), 9).unwrap(), 0, "the use counts");
        assert_eq!(index.forget_settings(UnixTime(used.0 + KEPT_SECS + 1), 9).unwrap(), 1);
        assert_eq!(index.settings(&[[1; 16]], used).unwrap(), None);
    }
}
