//! What is kept of uploads that came to their end: their rows and answers, for whoever asks again.
//!
//! Nobody's quota counts them, and a service may answer with 32 KiB. So they have a bound of their own, within the spool's quota. Beyond it the device that has
//! most loses what ended longest ago: answers first, then rows. Whoever asks for an upload whose row is gone is told that it is
//! not known here, and asks the service, which knows it: nothing arrives twice.
//!
//! SQLite uses the pages again that this frees; the file does not become shorter.

use crate::disk::sys;
use crate::index::{Index, read_id};
use crate::model::error::StoreError;
use crate::spool::{BREATH, Spool};
use hoop_units::UploadId;
use rusqlite::{Connection, OptionalExtension as _};

/// So many rows at once lose their answers, or go: some milliseconds, in which nobody else gets at the index.
const TRIM_BATCH: usize = 256;

/// Whose turn it is to lose something.
const MOST: &str = "SELECT device FROM ended ORDER BY bytes DESC LIMIT 1";

/// What a device loses first.
pub const OLDEST: &str = "
SELECT seq, id, answer IS NULL FROM upload INDEXED BY upload_ended
WHERE device = ?1 AND finished_at IS NOT NULL ORDER BY answer IS NULL, finished_at";

impl Index {
    /// What ended uploads take, in bytes.
    pub fn ended(&self) -> Result<u64, rusqlite::Error> {
        ended(self.db())
    }

    /// Lets go of what ended uploads have beyond `goal`, as far as [`TRIM_BATCH`]; not of rows that are `busy`. Returns what they
    /// take then.
    pub fn trim(&mut self, goal: u64, busy: impl Fn(UploadId) -> bool) -> Result<u64, StoreError> {
        let tx = self.transaction()?;
        for _ in 0..TRIM_BATCH {
            if ended(&tx)? <= goal {
                break;
            }
            let Some((seq, has_answer)) = oldest(&tx, &busy)? else { break };
            let sql = match has_answer {
                true => "UPDATE upload SET answer = NULL WHERE seq = ?1",
                false => "DELETE FROM upload WHERE seq = ?1",
            };
            tx.prepare_cached(sql)?.execute([seq])?;
        }
        tx.commit()?;
        Ok(self.ended()?)
    }
}

fn ended(db: &Connection) -> Result<u64, rusqlite::Error> {
    db.prepare_cached("SELECT ended FROM room")?.query_row([], |row| row.get::<_, i64>(0)).map(i64::unsigned_abs)
}

/// The number of the row to go, and whether its answer goes instead.
fn oldest(db: &Connection, busy: &impl Fn(UploadId) -> bool) -> Result<Option<(i64, bool)>, StoreError> {
    let device = db.prepare_cached(MOST)?.query_row([], |row| row.get::<_, Vec<u8>>(0)).optional()?;
    let mut statement = db.prepare_cached(OLDEST)?;
    let mut rows = statement.query([device.unwrap_or_default()])?;
    while let Some(row) = rows.next()? {
        let has_answer = !row.get::<_, bool>(2)?;
        if has_answer || !busy(read_id(row, 1)?) {
            return Ok(Some((row.get(0)?, has_answer)));
        }
    }
    Ok(None)
}

impl Spool {
    /// Brings what ended uploads take within its bound, after one more has ended or gone.
    pub(crate) fn trim(&self) -> Result<(), StoreError> {
        let shared = &self.shared;
        let mut ended = shared.index().ended()?;
        let disk = sys::free(&shared.folder)?;
        let most = shared.room().ended_most(disk);
        // A little more, so that not each that ends costs a transaction more.
        let goal = most - most / 16;
        while ended > most {
            // Locked, so that no sender begins on what is just going.
            let lives = shared.lives();
            let left = shared.index().trim(goal, |id| lives.is_busy(id))?;
            drop(lives);
            std::thread::sleep(BREATH);
            if left == ended {
                break;
            }
            ended = left;
            shared.changed();
        }
        shared.room().ended = ended;
        Ok(())
    }
}
