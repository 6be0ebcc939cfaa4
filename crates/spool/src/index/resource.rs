//! Uploads that come in pieces of any length: [`Resource`], what is kept of one besides its records.
//!
//! Clients of the IETF draft "Resumable Uploads for HTTP" know an upload by a URL that they were given before its id was known, and
//! expect that every byte counts that they were told of. So a row in the index leads from the URL's token to the upload,
//! and others hold what has come of a record that is not whole (`docs/protocol.md` §6).
//!
//! These are *pieces*. A part adds one of its own length, which takes in those before it that are less than twice as long. So a byte is
//! written again only when its piece grows by half, some 27 times at most, and a tail is 17 pieces at most: a device that sends byte by byte
//! has the disk write little more than it sends, and never its whole tail for one byte.

use crate::index::{Index, read_id, signed};
use crate::model::error::StoreError;
use hoop_timekeeper::Over;
use hoop_units::{AddressKey, ByteRange, UnixTime, UploadId};
use rusqlite::{Connection, Row, params};

/// The most resources at once: with a [`Resource::tail`] each, 16 MiB of index.
pub const RESOURCES_MAX: usize = 256;

/// What a resource takes at most, in bytes: its tail, which is shorter than a record of the sealing format, and its rows.
const RESOURCE_COST: u64 = 68 << 10;

/// The fewest that there may be, however small the quota is.
const RESOURCES_MIN: usize = 8;

/// The most resources at once with a quota: they take no more than a quarter of it, beside it.
pub fn most(quota: Option<u64>) -> usize {
    let few = quota.map_or(RESOURCES_MAX as u64, |quota| quota / 4 / RESOURCE_COST);
    usize::try_from(few).unwrap_or(RESOURCES_MAX).clamp(RESOURCES_MIN, RESOURCES_MAX)
}

/// The most resources of one device: more than anything uploads at once.
pub const RESOURCES_OF_DEVICE_MAX: usize = 64;

/// The oldest that is done, of one device or of all.
const DROP_DONE: &str = "
DELETE FROM resource WHERE token =
    (SELECT token FROM resource WHERE done = 1 AND (?1 IS NULL OR device = ?1) ORDER BY expires LIMIT 1)";

/// One of the device that has most, if that is more than so many: the oldest that is empty, else the one whose last part came longest ago.
const MAKE_WAY: &str = "
DELETE FROM resource WHERE token = (SELECT token FROM resource WHERE device =
    (SELECT device FROM resource GROUP BY device HAVING count(*) > ?1 ORDER BY count(*) DESC LIMIT 1)
    ORDER BY upload IS NOT NULL, expires LIMIT 1)";

/// The name of a resource: whoever knows it may go on with the upload, so it is drawn at random.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Token(pub [u8; 16]);

/// What is known of an upload that comes in pieces of any length.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Resource {
    /// Who began it.
    pub device: AddressKey,
    /// The service's post URL.
    pub dest: String,
    /// The length of Z, once the sender has told it.
    pub total: Option<u64>,
    /// The upload's name, once its prelude has come.
    pub upload: Option<UploadId>,
    /// Where in Z [`Resource::tail`] begins: 0 or the beginning of a record. All before was stored.
    pub tail_at: u64,
    /// What has come of the record that is not whole; with the prelude, if that is not stored yet.
    pub tail: Vec<u8>,
    /// Whether all of Z has come.
    pub done: bool,
    /// When it is forgotten.
    pub expires: UnixTime,
}

impl Resource {
    /// A new one, of which nothing has come.
    pub const fn new(device: AddressKey, dest: String, total: Option<u64>, expires: UnixTime) -> Self {
        Self { device, dest, total, upload: None, tail_at: 0, tail: Vec::new(), done: false, expires }
    }
}

/// Adds a resource; `false` if there are `most`, and no other device has more.
pub fn add(tx: &Connection, token: Token, new: &Resource, over: Over, most: usize) -> Result<bool, StoreError> {
    let expired = "DELETE FROM resource WHERE expires < ?1 OR expires > ?2";
    tx.prepare_cached(expired)?.execute([over.before.0, over.after.0])?;
    let count = |device: Option<AddressKey>| {
        let device = device.as_ref().map(|device| device.as_bytes().as_slice());
        let sql = "SELECT count(*) FROM resource WHERE ?1 IS NULL OR device = ?1";
        tx.prepare_cached(sql)?.query_row([device], |row| row.get::<_, u32>(0)).map(|count| count as usize)
    };
    // One that is done is only there for whoever missed the answer.
    let drop_done = |device: Option<AddressKey>| tx.prepare_cached(DROP_DONE)?.execute([device.map(|device| device.0)]);
    let own = count(Some(new.device))?;
    if own >= RESOURCES_OF_DEVICE_MAX && drop_done(Some(new.device))? == 0 {
        return Ok(false);
    }
    if count(None)? >= most && drop_done(None)? == 0 && tx.prepare_cached(MAKE_WAY)?.execute([signed(own as u64)])? == 0
    {
        return Ok(false);
    }
    tx.prepare_cached("INSERT INTO resource VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)")?.execute(params![
        token.0.as_slice(),
        new.device.as_bytes().as_slice(),
        new.dest,
        new.total.map(signed),
        new.upload.as_ref().map(|id| id.as_bytes().as_slice()),
        signed(new.tail_at),
        new.done,
        new.expires.0,
    ])?;
    keep_tail(tx, token, new)?;
    Ok(true)
}

/// Records what a resource is now; `false` if it is gone. A tail that begins where the one before did begins with its bytes.
pub fn keep(tx: &Connection, token: Token, now: &Resource) -> Result<bool, StoreError> {
    let mut statement = tx.prepare_cached(
        "UPDATE resource SET total = ?2, upload = ?3, tail_at = ?4, done = ?5, expires = ?6 WHERE token = ?1",
    )?;
    let changed = statement.execute(params![
        token.0.as_slice(),
        now.total.map(signed),
        now.upload.as_ref().map(|id| id.as_bytes().as_slice()),
        signed(now.tail_at),
        now.done,
        now.expires.0,
    ])?;
    if changed == 0 {
        return Ok(false);
    }
    keep_tail(tx, token, now)?;
    Ok(true)
}

/// Records what a tail has more than before.
fn keep_tail(tx: &Connection, token: Token, now: &Resource) -> Result<(), StoreError> {
    let (token, end) = (token.0.as_slice(), now.tail_at + now.tail.len() as u64);
    let mut pieces = pieces(tx, token)?;
    let goes_on = pieces.first().is_some_and(|first| first.start == now.tail_at)
        && pieces.last().is_some_and(|last| last.end <= end);
    if !goes_on {
        if !pieces.is_empty() {
            tx.prepare_cached("DELETE FROM tail WHERE token = ?1")?.execute([token])?;
        }
        pieces.clear();
    }
    let mut from = pieces.last().map_or(now.tail_at, |last| last.end);
    if from == end {
        return Ok(());
    }
    while let Some(last) = pieces.pop_if(|last| last.len() < 2 * (end - from)) {
        tx.prepare_cached("DELETE FROM tail WHERE token = ?1 AND at = ?2")?
            .execute(params![token, signed(last.start)])?;
        from = last.start;
    }
    let bytes = &now.tail[(from - now.tail_at) as usize..];
    tx.prepare_cached("INSERT INTO tail VALUES (?1, ?2, ?3)")?.execute(params![token, signed(from), bytes])?;
    Ok(())
}

/// Where in Z a tail's pieces are, in order.
fn pieces(tx: &Connection, token: &[u8]) -> Result<Vec<ByteRange>, rusqlite::Error> {
    let mut statement = tx.prepare_cached("SELECT at, length(octets) FROM tail WHERE token = ?1 ORDER BY at")?;
    let pieces = statement.query_map([token], |row| {
        let (at, len) = (row.get::<_, i64>(0)?.unsigned_abs(), row.get::<_, i64>(1)?.unsigned_abs());
        Ok(ByteRange::new(at, at + len))
    })?;
    pieces.collect()
}

/// Forgets a resource.
pub fn drop(tx: &Connection, token: Token) -> Result<(), StoreError> {
    tx.prepare_cached("DELETE FROM resource WHERE token = ?1")?.execute([token.0.as_slice()])?;
    Ok(())
}

impl Index {
    /// What is known of a resource that has not expired.
    pub fn resource(&self, token: Token, now: UnixTime) -> Result<Option<Resource>, StoreError> {
        let mut statement = self.db().prepare_cached("SELECT * FROM resource WHERE token = ?1 AND expires >= ?2")?;
        let mut rows = statement.query(params![token.0.as_slice(), now.0])?;
        let Some(mut resource) = rows.next()?.map(read_resource).transpose()? else { return Ok(None) };
        let mut statement = self.db().prepare_cached("SELECT at, octets FROM tail WHERE token = ?1 ORDER BY at")?;
        let mut rows = statement.query([token.0.as_slice()])?;
        while let Some(row) = rows.next()? {
            if row.get::<_, i64>(0)? != signed(resource.tail_at + resource.tail.len() as u64) {
                return Err(StoreError::Damaged("a tail whose pieces do not follow each other"));
            }
            resource.tail.extend(row.get::<_, Vec<u8>>(1)?);
        }
        Ok(Some(resource))
    }
}

fn read_resource(row: &Row<'_>) -> Result<Resource, StoreError> {
    let upload: Option<Vec<u8>> = row.get("upload")?;
    Ok(Resource {
        device: AddressKey(row.get("device")?),
        dest: row.get("dest")?,
        total: row.get::<_, Option<i64>>("total")?.map(i64::unsigned_abs),
        upload: upload.map(|_| read_id(row, 4)).transpose()?,
        tail_at: row.get::<_, i64>("tail_at")?.unsigned_abs(),
        tail: Vec::new(),
        done: row.get("done")?,
        expires: UnixTime(row.get("expires")?),
    })
}
