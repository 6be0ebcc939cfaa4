//! What is kept of uploads that have ended, and what of it goes first: [`shed`].
//!
//! An ended upload keeps its id and state until its ticket can no longer be used: so the application does not get it
//! twice. Its answer, receipt, token, path and note can be much longer. They count for its payer. The payer with most
//! loses its oldest first, while it has more than its share or all have too much. A row of some 150 bytes stays.
//!
//! Bounds: [`ENDED_MAX`] bytes in all, and a share of [`SHARES`]th of that for each payer; [`AT_ONCE`] uploads in one transaction.

use super::rows::FINAL;
use crate::model::Upload;
use crate::store::StoreError;
use hoop_seal::SALT_LEN;
use hoop_units::UploadId;
use rusqlite::{Connection, OptionalExtension as _, params};

/// How many bytes are kept of all ended uploads by default: 60,000 of the longest answers, half a million short ones.
pub const ENDED_MAX: u64 = 1 << 30;

/// So many shares make the whole. A default share has the answers of the last 3,800 uploads at least, and mostly of
/// tens of thousands. Whoever uploads that many has heard of the first long ago.
const SHARES: u64 = 16;

/// Uploads that make room in one transaction: more than a new one needs, and no long wait for the next.
pub const AT_ONCE: usize = 256;

/// What a row and its index entries take, besides what is counted by its length.
const ROW: usize = 300;

/// What is kept of ranges: those of a whole upload are shorter, those of a broken one can be long.
const RECEIVED_KEPT: usize = 48;

/// What is kept of a reason's words.
const DETAIL_KEPT: usize = 80;

/// A step of the layout: what each upload that has ended counts, by payer and in all.
pub fn schema() -> String {
    let add = |sign: &str, row: &str| {
        format!(
            "INSERT INTO ended VALUES (coalesce({row}.payer, x''), {sign}{row}.ended) ON CONFLICT (payer) DO UPDATE SET \
             bytes = bytes + excluded.bytes; \
             DELETE FROM ended WHERE payer = coalesce({row}.payer, x'') AND bytes <= 0; \
             UPDATE stored SET ended = ended + {sign}{row}.ended;"
        )
    };
    let (new, old) = (add("", "new"), add("-", "old"));
    format!(
        "
ALTER TABLE uploads ADD COLUMN ended INTEGER NOT NULL DEFAULT 0;
CREATE INDEX uploads_ended ON uploads (payer, updated) WHERE ended;
CREATE TABLE ended (payer BLOB PRIMARY KEY, bytes INTEGER NOT NULL) STRICT, WITHOUT ROWID;
CREATE INDEX ended_bytes ON ended (bytes);
ALTER TABLE stored ADD COLUMN ended INTEGER NOT NULL DEFAULT 0;
CREATE TRIGGER ended_new AFTER INSERT ON uploads WHEN new.ended BEGIN {new} END;
CREATE TRIGGER ended_changed AFTER UPDATE OF ended, payer ON uploads WHEN new.ended <> old.ended BEGIN {old} {new} END;
CREATE TRIGGER ended_gone AFTER DELETE ON uploads WHEN old.ended BEGIN {old} END;
UPDATE uploads SET ended = {ROW} + length(prelude) + length(received) + {} WHERE state IN {FINAL};
",
        ["method", "path", "reason_detail", "answer", "token", "receipt"]
            .map(|column| format!("coalesce(length(CAST({column} AS BLOB)), 0) + "))
            .concat()
            + &note_len("uploads.id")
    )
}

/// The length of an upload's note, for a query.
pub fn note_len(id: &str) -> String {
    format!("coalesce((SELECT length(CAST(note AS BLOB)) FROM notes WHERE notes.id = {id}), 0)")
}

/// How many bytes an ended upload counts, without its note. None: it has not ended.
pub fn weight(upload: &Upload) -> Option<i64> {
    let len = |stored: &Option<Vec<u8>>| stored.as_ref().map_or(0, Vec::len);
    let told = upload.facts.as_ref().map_or(0, |facts| facts.method.len() + facts.path.len())
        + upload.reason.as_ref().map_or(0, |reason| reason.detail.len());
    let sealed = len(&upload.answer) + len(&upload.token) + len(&upload.receipt);
    let bytes = ROW + upload.prelude.len() + upload.received.to_string().len() + told + sealed;
    upload.state.is_final().then(|| i64::try_from(bytes).unwrap_or(i64::MAX))
}

/// An upload's note has changed its length. That counts if the upload has ended.
pub fn noted(transaction: &Connection, id: UploadId, before: usize, after: usize) -> Result<(), StoreError> {
    let sql = format!("UPDATE uploads SET ended = max(ended + ?2 - ?3, 0) WHERE id = ?1 AND state IN {FINAL}");
    let [before, after] = [before, after].map(super::rows::rows);
    transaction.prepare_cached(&sql)?.execute(params![id.0, after, before])?;
    Ok(())
}

/// What is kept of all that has ended, in bytes.
pub fn kept(connection: &Connection) -> Result<u64, StoreError> {
    let sum = connection.prepare_cached("SELECT ended FROM stored")?.query_row([], |row| row.get::<_, i64>(0))?;
    u64::try_from(sum).map_err(|_| StoreError::Damaged("a sum below zero"))
}

/// Makes room until no payer has more than its share and all together have at most `max` bytes, or `limit` uploads have
/// made room. Returns how many.
pub fn shed(transaction: &Connection, max: u64, limit: usize) -> Result<usize, StoreError> {
    for made in 0..limit {
        let most = |row: &rusqlite::Row<'_>| Ok((row.get::<_, Vec<u8>>(0)?, row.get::<_, i64>(1)?));
        let sql = "SELECT payer, bytes FROM ended ORDER BY bytes DESC LIMIT 1";
        let Some((payer, bytes)) = transaction.prepare_cached(sql)?.query_row([], most).optional()? else {
            return Ok(made);
        };
        if u64::try_from(bytes).is_ok_and(|bytes| bytes <= max / SHARES) && kept(transaction)? <= max {
            return Ok(made);
        }
        // None: rows of a version that did not say who pays.
        let payer = Some(payer).filter(|payer| !payer.is_empty());
        let sql = "SELECT id FROM uploads WHERE ended AND payer IS ?1 ORDER BY updated LIMIT 1";
        let id = transaction.prepare_cached(sql)?.query_row([payer], |row| row.get::<_, [u8; 16]>(0)).optional()?;
        shorten(transaction, id.ok_or(StoreError::Damaged("a sum of nothing"))?)?;
    }
    Ok(limit)
}

/// Shortens an upload to what refuses it for good, and what its owner's list needs. The salt tells its prelude from
/// that of another upload with the same ticket. Bytes that were kept for a release go with it.
fn shorten(transaction: &Connection, id: [u8; 16]) -> Result<(), StoreError> {
    let sql = format!(
        "UPDATE uploads SET ended = 0, kept = 0, prelude = substr(prelude, 1, {SALT_LEN}), method = substr(method, 1, 0), \
         path = substr(path, 1, 0), reason_detail = substr(reason_detail, 1, {DETAIL_KEPT}), answer = NULL, receipt = NULL, \
         token = NULL, received = CASE WHEN length(received) > {RECEIVED_KEPT} THEN '' ELSE received END WHERE id = ?1"
    );
    transaction.prepare_cached(&sql)?.execute([id])?;
    transaction.prepare_cached("DELETE FROM notes WHERE id = ?1")?.execute([id])?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::group::SqliteIndex;
    use super::*;
    use crate::model::{Change, Marked, Note, Payer, State};
    use crate::store::conformance::{done, progress};
    use crate::store::{Changed, Closed as _, Index as _, Notes as _};
    use hoop_units::UnixTime;
    use std::path::Path;

    /// The longest answer.
    const ANSWER: usize = 17_000;

    fn index(dir: &Path, max: u64) -> SqliteIndex {
        let index = SqliteIndex::open(&dir.join("index.sqlite"), max).unwrap();
        // Thousands of syncs would only take time.
        index.lock().pragma_update(None, "synchronous", "OFF").unwrap();
        index
    }

    /// Ids are drawn, so that they lie anywhere in their order.
    fn id(payer: u8, n: u32) -> UploadId {
        let mut id = [payer; 16];
        id[..8].copy_from_slice(&u64::from(n).wrapping_mul(0x9e37_79b9_7f4a_7c15).to_be_bytes());
        UploadId(id)
    }

    /// An upload of that address with an answer of so many bytes, as the application ends it.
    fn end(index: &SqliteIndex, payer: u8, n: u32, answer: usize, state: State) -> UploadId {
        let id = id(payer, n);
        let upload = Upload { id, payer: Some(Payer::Address([payer; 16])), ..progress(1, 1_000) };
        done(index.receive(&upload, true).unwrap());
        let now = UnixTime(1_000 + n);
        done(index.apply(id, Change::Claim, now).unwrap());
        let receipt = Some(vec![2; 400]);
        let answered = Change::Answered { state, reason: None, answer: vec![1; answer], receipt };
        done(index.apply(id, answered, now).unwrap());
        if state == State::Accepted {
            index.disposed(vec![id]).unwrap();
        }
        id
    }

    fn load(index: &SqliteIndex, id: UploadId) -> Upload {
        index.load(id).unwrap().expect("it is known")
    }

    /// How long the file is, but for pages that are free.
    fn used(index: &SqliteIndex) -> u64 {
        let pragma = |name| index.lock().query_row(&format!("PRAGMA {name}"), [], |row| row.get::<_, u32>(0)).unwrap();
        u64::from(pragma("page_count") - pragma("freelist_count")) * u64::from(pragma("page_size"))
    }

    #[test]
    fn ended_uploads_of_one_address_keep_within_its_share() {
        let dir = tempfile::tempdir().unwrap();
        let max = 16 << 20;
        let index = index(dir.path(), max);
        let other = end(&index, 2, 0, ANSWER, State::Accepted);
        let attacks: Vec<_> = (1..=4_000).map(|n| end(&index, 1, n, ANSWER, State::Accepted)).collect();
        assert!(index.ended().unwrap() <= max / SHARES + 20_000, "{}", index.ended().unwrap());
        // 70 MB of answers have come; a row stays of each.
        let used = used(&index);
        assert!(used < 2 * (max / SHARES) + 4_000 * 400, "{used} bytes");
        assert_eq!(load(&index, other).answer.unwrap().len(), ANSWER, "another's answer stays");
        assert!(load(&index, *attacks.last().unwrap()).answer.is_some(), "and the newest of one's own");
        for id in &attacks {
            assert_eq!(load(&index, *id).state, State::Accepted);
            let again = Upload { id: *id, ..progress(1, 1_000) };
            assert!(matches!(index.receive(&again, true).unwrap(), Changed::Refused(_)), "and is not taken again");
        }
        // Once their time is over they go, and what was counted with them.
        let late = UnixTime(u32::MAX - 1).into();
        while index.forget(late, 256).unwrap() > 0 {}
        assert_eq!(index.ended().unwrap(), 0);
        assert!(index.is_closed(UnixTime(1_000)).unwrap());
    }

    #[test]
    fn the_largest_payer_makes_room_when_all_is_taken() {
        let dir = tempfile::tempdir().unwrap();
        let max = 1 << 20;
        let index = index(dir.path(), max);
        let honest = end(&index, 255, 0, 9_000, State::Accepted);
        for payer in 1..=40 {
            for n in 1..=4 {
                end(&index, payer, n, ANSWER, State::Accepted);
            }
        }
        assert!(index.ended().unwrap() <= max);
        assert!(load(&index, honest).answer.is_some(), "it has less than each of the others");
    }

    #[test]
    fn a_shortened_upload_is_refused_for_good_and_takes_nothing_more() {
        let dir = tempfile::tempdir().unwrap();
        let index = index(dir.path(), 0);
        let id = end(&index, 1, 1, ANSWER, State::Rejected);
        let upload = load(&index, id);
        assert_eq!((upload.state, upload.answer.is_some(), upload.receipt.is_some()), (State::Rejected, false, false));
        assert_eq!((upload.prelude.len(), upload.kept, upload.total), (SALT_LEN, false, 1_000));
        let release = Change::Release { token: vec![1], owner: [1; 16], twice: true };
        for change in [release, Change::Claim, Change::Stop, Change::LetGo, Change::Expire] {
            assert!(matches!(index.apply(id, change, UnixTime(9)).unwrap(), Changed::Refused(_)));
        }
        // Its bytes, which had been kept for its owner, are deleted like others'.
        assert_eq!((index.disposable(9).unwrap(), index.stored().unwrap()), (vec![id], 4_096));
        index.disposed(vec![id]).unwrap();
        assert_eq!(index.stored().unwrap(), 0);
        assert!(load(&index, id) == upload, "and it stays known");
        assert_eq!(index.owned(&[[1; 16]], 9).unwrap().len(), 1);
    }

    #[test]
    fn notes_of_what_has_ended_count_and_go_with_it() {
        let dir = tempfile::tempdir().unwrap();
        let index = index(dir.path(), 1 << 20);
        let note = Note::parse(format!("{{\"total\":9,\"caption\":\"{}\"}}", "c".repeat(60_000)).as_bytes()).unwrap();
        let put = |id| {
            let new = Marked::new(id, [1; 16], Payer::Owner([1; 16]), UnixTime(1), UnixTime(1_000));
            let note = note.clone();
            index.mark(new.clone(), Box::new(move |marked| marked.note = Some(note.clone()))).unwrap();
        };
        let first = end(&index, 1, 1, 10, State::Accepted);
        put(first);
        put(first);
        assert!((60_000..62_000).contains(&index.ended().unwrap()), "once: {}", index.ended().unwrap());
        let second = end(&index, 1, 2, 10, State::Accepted);
        put(second);
        assert!(index.ended().unwrap() < 62_000);
        assert!(index.marked(first).unwrap().is_none() && index.marked(second).unwrap().is_some());
        // One that comes before its upload counts once that has ended.
        put(id(1, 3));
        assert!(index.ended().unwrap() < 62_000);
        let third = end(&index, 1, 3, 10, State::Accepted);
        assert!((60_000..62_000).contains(&index.ended().unwrap()));
        assert!(index.marked(second).unwrap().is_none() && index.marked(third).unwrap().is_some());
    }

    #[test]
    fn answers_of_held_uploads_count_for_their_payer() {
        let dir = tempfile::tempdir().unwrap();
        let index = index(dir.path(), 1 << 20);
        let id = end(&index, 1, 1, ANSWER, State::Held);
        let room = || (index.stored().unwrap(), index.paid_by(Payer::Address([1; 16])).unwrap().bytes);
        let least = 1_000 + ANSWER as u64;
        assert!(room().0 >= least && room().1 >= least, "{:?}", room());
        let release = Change::Release { token: vec![1], owner: [1; 16], twice: false };
        done(index.apply(id, release, UnixTime(9)).unwrap());
        assert_eq!(room(), (8_192, 8_192), "the answer has gone: a block of what came, and one for the token");
    }

    #[test]
    fn a_released_upload_counts_again_only_once_it_has_ended() {
        let dir = tempfile::tempdir().unwrap();
        let index = index(dir.path(), 1 << 20);
        let id = end(&index, 1, 1, ANSWER, State::Rejected);
        assert!(index.ended().unwrap() > ANSWER as u64);
        let release = Change::Release { token: vec![1], owner: [1; 16], twice: false };
        done(index.apply(id, release, UnixTime(9)).unwrap());
        assert_eq!(index.ended().unwrap(), 0);
    }
}
