//! What an index keeps, and promises: [`Index`], with [`Notes`], [`SavedSettings`] and [`Closed`].

use crate::model::{Change, Marked, Payer, Settings, State, Sum, Tag, Upload};
use hoop_http::{Code, Lines, Problem};
use hoop_timekeeper::Over;
use hoop_units::{UnixTime, UploadId};
use std::io;
use std::time::Duration;

/// What Linux says where a disk or a server of files fails, for which there are no kinds: EIO, ENXIO, ENODATA, EBADMSG, ESTALE
/// and EUCLEAN.
const OF_A_DISK: [i32; 6] = [5, 6, 61, 74, 116, 117];

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
    /// Whether a disk fails, or somebody else reads the index just now: both may be over soon.
    pub fn may_pass(&self) -> bool {
        use rusqlite::ErrorCode::{DatabaseBusy, DatabaseLocked, SystemIoFailure};
        match self {
            Self::Index(error) => {
                matches!(error.sqlite_error_code(), Some(DatabaseBusy | DatabaseLocked | SystemIoFailure))
            }
            Self::Damaged(_) | Self::InUse => false,
            Self::Body(error) => {
                error.kind() == io::ErrorKind::ReadOnlyFilesystem
                    || error.raw_os_error().is_some_and(|number| OF_A_DISK.contains(&number))
            }
        }
    }

    /// Whether there is no room left.
    pub fn is_full(&self) -> bool {
        match self {
            Self::Index(error) => error.sqlite_error_code() == Some(rusqlite::ErrorCode::DiskFull),
            Self::Damaged(_) | Self::InUse => false,
            Self::Body(error) => {
                matches!(
                    error.kind(),
                    io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded | io::ErrorKind::FileTooLarge
                )
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
    pub fn owner(&self) -> Option<Tag> {
        match self {
            Self::Done(upload) | Self::Refused(upload) => upload.facts.as_ref().map(|facts| facts.owner),
            Self::Unknown => None,
        }
    }
}

/// Keeps the facts. Each change is atomic, and synced when the method returns.
pub trait Index: Notes + SavedSettings + Closed + Send + Sync {
    /// Makes sure that no change which was said to have failed shows for whoever opens the index next.
    fn settle(&self) -> Result<(), StoreError>;
    /// What is known of an upload.
    fn load(&self, id: UploadId) -> Result<Option<Upload>, StoreError>;
    /// Adds what was received of an upload ([`Upload::receive`]). With `first`, an unknown upload is put in.
    fn receive(&self, progress: &Upload, first: bool) -> Result<Changed, StoreError>;
    /// Forgets an upload that is still being received and whose record 0 is not here. Returns whether it did. One that is
    /// paused needs a mark that says so, which stays if there is room for one more.
    fn discard(&self, id: UploadId) -> Result<bool, StoreError>;
    /// Applies a change.
    fn apply(&self, id: UploadId, change: Change, now: UnixTime) -> Result<Changed, StoreError>;
    /// Pauses an upload. One of which nothing has come, or no record 0, is marked as `new` in the same transaction: it may
    /// be forgotten, and stays paused. Unknown and without a mark: there is no room for another.
    fn pause(&self, new: Marked, now: UnixTime) -> Result<(Changed, Option<Marked>), StoreError>;
    /// Stops an upload. One of which nothing has come is marked as `new` in the same transaction. Unknown and without a
    /// mark: there is no room for another.
    fn stop(&self, new: Marked, now: UnixTime) -> Result<(Changed, Option<Marked>), StoreError>;
    /// Takes a pause back, and its mark with it.
    fn resume(&self, id: UploadId, now: UnixTime) -> Result<(Changed, Option<Marked>), StoreError>;
    /// Applies [`Change::LetGo`] to each of these at once, and tells what came of each.
    fn let_go(&self, ids: Vec<UploadId>, now: UnixTime) -> Result<Vec<Changed>, StoreError>;
    /// Uploads to replay now, and their payers, in a circle that begins after `last`. Of each payer come the few that
    /// have been due the longest; there may be more.
    fn due(&self, last: Option<Payer>, now: UnixTime) -> Result<Vec<(Option<Payer>, UploadId)>, StoreError>;
    /// When the next replay becomes due.
    fn next_due(&self, now: UnixTime) -> Result<Option<UnixTime>, StoreError>;
    /// Uploads that the index has as being replayed, in the order of their ids, from after this one.
    fn interrupted(&self, after: Option<UploadId>, limit: usize) -> Result<Vec<UploadId>, StoreError>;
    /// The uploads of whoever has one of these tags, newest first, without their answers.
    fn owned(&self, tags: &[Tag], limit: usize) -> Result<Vec<Upload>, StoreError>;
    /// Owners with uploads that come in or wait for replay and are not paused, each once. Named users come first; of
    /// the others, so many of each payer. The circle of tags begins after `turn`.
    fn under_way(&self, turn: Tag, of_payer: usize, limit: usize) -> Result<Vec<UnderWay>, StoreError>;
    /// Uploads that wait for something although their time has run out.
    fn overdue(&self, over: Over, limit: usize) -> Result<Vec<UploadId>, StoreError>;
    /// Uploads whose body is no longer needed but not yet known to be deleted.
    fn disposable(&self, limit: usize) -> Result<Vec<UploadId>, StoreError>;
    /// Ended uploads whose time to be released is over.
    fn kept(&self, over: Over, limit: usize) -> Result<Vec<UploadId>, StoreError>;
    /// Ended uploads that may be released, of this payer or of anybody, the longest kept first.
    fn longest_kept(&self, of: Option<Payer>, limit: usize) -> Result<Vec<UploadId>, StoreError>;
    /// What the uploads whose bodies are kept have on disk, in bytes ([`Upload::room`]).
    fn stored(&self) -> Result<u64, StoreError>;
    /// The same for one payer, with the number of uploads.
    fn paid_by(&self, payer: Payer) -> Result<Sum, StoreError>;
    /// Uploads without record 0 that [`Index::discard`] forgets and that began `secs` before what is over.
    fn headless(&self, over: Over, secs: u32, limit: usize) -> Result<Vec<UploadId>, StoreError>;
    /// How many waiting uploads will expire before `before`, if nothing more happens to them.
    fn ending(&self, before: UnixTime) -> Result<u64, StoreError>;
    /// How many uploads there are in each state.
    fn counts(&self) -> Result<Vec<(State, u64)>, StoreError>;
    /// How many bytes are kept of ended uploads that can go.
    fn ended(&self) -> Result<u64, StoreError>;
    /// Shortens ended uploads while a payer has more than its share, or all have too much. Returns how many of a
    /// bounded number. Each [`Index::apply`] that ends an upload does the same.
    fn shed(&self) -> Result<usize, StoreError>;
    /// Which of these need no body: those that are over and not kept, and those that nobody knows.
    fn need_no_body(&self, ids: Vec<UploadId>) -> Result<Vec<UploadId>, StoreError>;
    /// Notes that bodies were deleted.
    fn disposed(&self, ids: Vec<UploadId>) -> Result<(), StoreError>;
    /// Forgets uploads that nobody may ask for any more, and closes the days on which their tickets end ([`Closed`]).
    /// Returns how many.
    fn forget(&self, over: Over, limit: usize) -> Result<usize, StoreError>;
}

/// A change of what is known of an upload besides its row.
pub type MarkChange = Box<dyn FnOnce(&mut Marked) + Send>;

/// Keeps notes and marks.
pub trait Notes {
    /// What is known of an upload besides its row.
    fn marked(&self, id: UploadId) -> Result<Option<Marked>, StoreError>;
    /// Changes what is known, beginning with `new` if nothing is. None: there is no room for another note or mark.
    /// Taking a mark away needs none.
    fn mark(&self, new: Marked, change: MarkChange) -> Result<Option<Marked>, StoreError>;
    /// The notes of these tags, newest first: `limit` of each tag, and no more once they have `bytes` together.
    fn noted(&self, tags: &[Tag], limit: usize, bytes: usize) -> Result<Vec<Marked>, StoreError>;
    /// Forgets notes and marks whose uploads never came, and closes the days of stopped or paused ones ([`Closed`]).
    /// Returns how many.
    fn forget_marks(&self, over: Over, limit: usize) -> Result<usize, StoreError>;
}

/// Keeps users' settings.
pub trait SavedSettings {
    /// The settings of the first of these tags that has any; that is a use of them, which the next
    /// [`SavedSettings::forget_settings`] notes.
    fn settings(&self, tags: &[Tag], now: UnixTime) -> Result<Option<Settings>, StoreError>;
    /// Saves settings for a tag, which count for `payer` from then on.
    fn save_settings(&self, tag: Tag, payer: Payer, settings: &Settings, now: UnixTime) -> Result<(), StoreError>;
    /// Notes which settings were used, and forgets those that nobody has used for a year. Returns how many.
    fn forget_settings(&self, now: UnixTime, limit: usize) -> Result<usize, StoreError>;
}

/// Knows the days that are closed.
pub trait Closed {
    /// Whether ids of tickets that end on the same day have been forgotten.
    fn is_closed(&self, expires: UnixTime) -> Result<bool, StoreError>;
    /// The end of a ticket that is to last until `wanted`. If that day is closed, the beginning of the next open day.
    /// Days ahead are closed only where the clock has been set back.
    fn open_end(&self, wanted: UnixTime) -> Result<UnixTime, StoreError>;
}

/// A store's failure, as the client is told: there is no room, or the service is at fault.
pub fn store_problem(error: StoreError) -> Problem {
    if error.is_full() {
        // Another program may make room at any time.
        return Problem::new(Code::SpoolFull, "").retry_after(Duration::from_secs(10));
    }
    static LINES: Lines = Lines::new();
    LINES.warn("the store failed", &error);
    Problem::new(Code::Internal, "the store failed")
}
