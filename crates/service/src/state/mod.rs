//! What is known of each upload, and where it is kept.
//!
//! [`Upload`] is the machine. Two small traits keep it: [`Index`] (facts; [`sqlite`]; with [`Notes`], [`SavedSettings`] and [`Closed`]) and [`Bodies`] (sealed octets;
//! [`folder`]). Every change is on disk and synced when its method returns. [`Store`] lends both to the runtime's
//! blocking threads, and tells who waits for an upload that it changed. `conformance` holds an implementation to what both promise.
//!
//! One service at a time uses a state folder ([`StoreError::InUse`]). What several processes on one state (PostgreSQL and S3, say) would need, is
//! in `docs/services.md`, "More than one node".

mod closed;
#[cfg(test)]
pub mod conformance;
mod ended;
pub mod folder;
#[cfg(test)]
mod jumps;
pub mod notes;
mod payer;
pub mod settings;
pub mod sqlite;
mod store;
mod turns;

use crate::model::{Change, Payer, State, Sum, Tag, Upload};
use hoop_timekeeper::Over;
use hoop_units::{UnixTime, UploadId};
use std::io;
use std::sync::Arc;

pub use closed::Closed;
pub use ended::ENDED_MAX;
pub use notes::Notes;
pub use settings::{SETTINGS_LIFE, SavedSettings};
pub use store::{News, Store, blocking};

/// The store has failed: the disk is full or broken, or the index damaged.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// The index.
    #[error("the index cannot be used: {0}")]
    Index(#[from] rusqlite::Error),
    /// A row that this version cannot read.
    #[error("the index cannot be read: {0}")]
    Damaged(&'static str),
    /// Another process has it.
    #[error("another service is using it")]
    InUse,
    /// The bodies.
    #[error("the bodies cannot be used: {0}")]
    Body(#[from] io::Error),
}

impl StoreError {
    /// Whether there is no room left.
    pub fn is_full(&self) -> bool {
        match self {
            Self::Index(error) => error.sqlite_error_code() == Some(rusqlite::ErrorCode::DiskFull),
            Self::Damaged(_) | Self::InUse => false,
            Self::Body(error) => {
                matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
            }
        }
    }
}

/// An owner who has something under way.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct UnderWay {
    /// Who.
    pub owner: Tag,
    /// One of theirs.
    pub id: UploadId,
    /// When the latest of theirs began.
    pub began: UnixTime,
}

/// What came of a change.
#[derive(Debug)]
pub enum Changed {
    /// It was made; this is the upload now.
    Done(Upload),
    /// The upload's state does not allow it; this is the upload as it stays.
    Refused(Upload),
    /// There is no such upload.
    Unknown,
}

impl Changed {
    /// The upload, if the change was made.
    pub const fn done(&self) -> Option<&Upload> {
        match self {
            Self::Done(upload) => Some(upload),
            Self::Refused(_) | Self::Unknown => None,
        }
    }

    /// Whose the upload is, if that is known.
    fn owner(&self) -> Option<Tag> {
        match self {
            Self::Done(upload) | Self::Refused(upload) => upload.facts.as_ref().map(|facts| facts.owner),
            Self::Unknown => None,
        }
    }
}

/// Keeps the facts. Each change is atomic, and synced when the method returns.
pub trait Index: Notes + SavedSettings + Closed + Send + Sync {
    /// What is known of an upload.
    fn load(&self, id: UploadId) -> Result<Option<Upload>, StoreError>;
    /// Adds what was received of an upload: [`Upload::receive`] on what is known; `first` is put in if nothing is.
    fn receive(&self, progress: &Upload, first: bool) -> Result<Changed, StoreError>;
    /// Forgets an upload that is still being received and whose record 0 is not here.
    fn discard(&self, id: UploadId) -> Result<(), StoreError>;
    /// Applies a change.
    fn apply(&self, id: UploadId, change: Change, now: UnixTime) -> Result<Changed, StoreError>;
    /// Applies [`Change::LetGo`] to each of these at once, and tells what came of each.
    fn let_go(&self, ids: Vec<UploadId>, now: UnixTime) -> Result<Vec<Changed>, StoreError>;
    /// Uploads to replay now and who pays for them: of whoever comes after `last` first, then in a circle. Of each payer those that have been due the longest, the first
    /// few; so there may be more.
    fn due(&self, last: Option<Payer>, now: UnixTime) -> Result<Vec<(Option<Payer>, UploadId)>, StoreError>;
    /// When the next replay is due that is not yet.
    fn next_due(&self, now: UnixTime) -> Result<Option<UnixTime>, StoreError>;
    /// Uploads that are being replayed, as far as the index knows, by id and from after this one.
    fn interrupted(&self, after: Option<UploadId>, limit: usize) -> Result<Vec<UploadId>, StoreError>;
    /// The uploads of whoever has one of these tags, newest first, without their answers.
    fn owned(&self, tags: &[Tag], limit: usize) -> Result<Vec<Upload>, StoreError>;
    /// Whose uploads are coming in or wait to be replayed, and are not paused: each owner once. Those whom the application names first; of the others so many of each
    /// payer; all in a circle of tags, from after `turn` on.
    fn under_way(&self, turn: Tag, of_payer: usize, limit: usize) -> Result<Vec<UnderWay>, StoreError>;
    /// Uploads that wait for something although their time has run out.
    fn overdue(&self, over: Over, limit: usize) -> Result<Vec<UploadId>, StoreError>;
    /// Uploads whose body is no longer needed but not yet known to be deleted.
    fn disposable(&self, limit: usize) -> Result<Vec<UploadId>, StoreError>;
    /// Uploads that have ended and whose bodies their owners may still release, but not for longer.
    fn kept(&self, over: Over, limit: usize) -> Result<Vec<UploadId>, StoreError>;
    /// Those that may be released, of this payer or of anybody, the longest kept first.
    fn longest_kept(&self, of: Option<Payer>, limit: usize) -> Result<Vec<UploadId>, StoreError>;
    /// What the uploads whose bodies are kept have on disk, in bytes ([`Upload::room`]).
    fn stored(&self) -> Result<u64, StoreError>;
    /// That of one payer, and of how many uploads.
    fn paid_by(&self, payer: Payer) -> Result<Sum, StoreError>;
    /// Uploads that began so many seconds before what is over, are not paused, and whose record 0 has not come.
    fn headless(&self, over: Over, secs: u32, limit: usize) -> Result<Vec<UploadId>, StoreError>;
    /// How many uploads that wait for something will be given up before `before`, if nothing more happens to them.
    fn ending(&self, before: UnixTime) -> Result<u64, StoreError>;
    /// How many uploads there are in each state.
    fn counts(&self) -> Result<Vec<(State, u64)>, StoreError>;
    /// What is kept of uploads that have ended, and can go, in bytes.
    fn ended(&self) -> Result<u64, StoreError>;
    /// Lets go of answers and what else is not needed of uploads that have ended, as long as somebody has too much of it, or all have; of how
    /// many, of a bounded number. Each [`Index::apply`] that ends one does the same.
    fn shed(&self) -> Result<usize, StoreError>;
    /// Notes that bodies were deleted.
    fn disposed(&self, ids: Vec<UploadId>) -> Result<(), StoreError>;
    /// Forgets uploads that nobody may ask for any more, and closes the days on which their tickets end ([`Closed`]); how many.
    fn forget(&self, over: Over, limit: usize) -> Result<usize, StoreError>;
}

/// One upload's sealed octets: a file that is exactly Z, with holes where nothing has come.
pub trait Sealed: Send + Sync {
    /// Writes at an offset.
    fn write_at(&self, octets: &[u8], offset: u64) -> io::Result<()>;
    /// Fills the buffer from an offset.
    fn read_at(&self, octets: &mut [u8], offset: u64) -> io::Result<()>;
    /// Syncs what was written. Once that has failed it fails for good, as what is lost may look synced the next time: the body is opened
    /// anew, and what the index does not count is written again.
    fn sync(&self) -> io::Result<()>;
}

/// Keeps the sealed octets.
pub trait Bodies: Send + Sync {
    /// The body of a new upload, empty; it is there for good once its first sync has returned.
    fn create(&self, id: UploadId) -> io::Result<Arc<dyn Sealed>>;
    /// The body of an upload that is there.
    fn open(&self, id: UploadId) -> io::Result<Arc<dyn Sealed>>;
    /// Deletes a body; none: all is well.
    fn remove(&self, id: UploadId) -> io::Result<()>;
    /// Names of bodies that have not been written to for so many seconds, of those that `wanted` wants at most `limit`.
    fn idle(&self, secs: u64, limit: usize, wanted: &dyn Fn(UploadId) -> bool) -> io::Result<Vec<UploadId>>;
}
