//! What can go wrong, one enum per operation.

use crate::model::state::State;
use hoop_units::ByteRange;
use std::io;
use std::path::PathBuf;

/// The disk or the index does not do what it should; not the caller's fault, and not the sender's.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// A file.
    #[error("the spool's files: {0}")]
    File(#[from] io::Error),
    /// The index.
    #[error("the spool's index: {0}")]
    Index(#[from] rusqlite::Error),
    /// A row of the index means nothing.
    #[error("the spool's index is damaged: {0}")]
    Damaged(&'static str),
}

/// A spool could not be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The folder cannot be made or used.
    #[error("cannot use the spool folder {}: {source}", path.display())]
    Folder {
        /// The folder.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// Another process has it.
    #[error("the spool folder {} is in use by another gateway", .0.display())]
    Locked(PathBuf),
    /// Made by a later version.
    #[error("the spool folder {} has format {found}, and this version knows formats up to {known}", path.display())]
    Later {
        /// The folder.
        path: PathBuf,
        /// Its format.
        found: u32,
        /// The latest known here.
        known: u32,
    },
    /// The index cannot be read.
    #[error("cannot open the index of the spool folder {}: {source}", path.display())]
    Index {
        /// The folder.
        path: PathBuf,
        /// Why.
        source: rusqlite::Error,
    },
}

/// An upload cannot be taken.
#[derive(Debug, thiserror::Error)]
pub enum BeginError {
    /// There is no room.
    #[error("{need} bytes are needed, and {free} are free")]
    Full {
        /// What is still to come of it.
        need: u64,
        /// What there is, quota and reserve considered.
        free: u64,
    },
    /// The file system has no files (inodes) left but its reserve.
    #[error("the file system has {0} files (inodes) left, which are its reserve")]
    NoFiles(u64),
    /// Known under the same id with something else.
    #[error("another {0} is known under this id")]
    Conflict(&'static str),
    /// Its prelude is still to come, and so are too many others'.
    #[error("{0} uploads wait for their preludes already")]
    TooManyEarly(usize),
    /// Another device began it, and this one shows no prelude.
    #[error("another device has begun this upload: its prelude is needed")]
    NotBegunHere,
    /// In too many pieces.
    #[error("it is stored in {0} separate spans already; send what lies between them first")]
    TooManySpans(usize),
    /// Disk or index.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// Bytes could not be written.
#[derive(Debug, thiserror::Error)]
pub enum WriteError {
    /// The disk, or the quota, is full.
    #[error("the spool is full")]
    Full,
    /// Past the end of the upload.
    #[error("byte {last} lies past the total of {total}")]
    PastTotal {
        /// The last byte given.
        last: u64,
        /// The upload's length.
        total: u64,
    },
    /// The disk.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// Stored bytes could not be read.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// What the disk gives back is not what was written, or the file ends before it.
    #[error("bytes {0} are spoilt on the disk")]
    Damaged(ByteRange),
    /// Disk or index. It may pass.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// What was written could not be recorded. None of it counts as stored.
#[derive(Debug, thiserror::Error)]
pub enum CommitError {
    /// The disk is full.
    #[error("the spool is full")]
    Full,
    /// The upload has come to its end meanwhile.
    #[error("the upload is {0} meanwhile")]
    Ended(State),
    /// Another sender gave another total.
    #[error("another {0} is known under this id")]
    Conflict(&'static str),
    /// It would be in too many pieces.
    #[error("it would be stored in {0} separate spans")]
    TooManySpans(usize),
    /// The caller never wrote some of it.
    #[error("not all of that range was written")]
    NotWritten,
    /// Disk or index.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// Whether an I/O error means that there is no room: on the disk, for this user, or in one file.
fn is_full(error: &io::Error) -> bool {
    use io::ErrorKind::{FileTooLarge, QuotaExceeded, StorageFull};
    matches!(error.kind(), StorageFull | QuotaExceeded | FileTooLarge)
}

/// The same for what SQLite says.
fn is_index_full(error: &rusqlite::Error) -> bool {
    matches!(error, rusqlite::Error::SqliteFailure(failure, _) if failure.code == rusqlite::ErrorCode::DiskFull)
}

impl StoreError {
    /// Whether there is no room.
    pub fn is_full(&self) -> bool {
        match self {
            Self::File(error) => is_full(error),
            Self::Index(error) => is_index_full(error),
            Self::Damaged(_) => false,
        }
    }

    /// The same, for another who is to be told. Of what has no copy, its words.
    pub(crate) fn again(&self) -> Self {
        match self {
            Self::File(error) => io::Error::new(error.kind(), error.to_string()).into(),
            Self::Index(rusqlite::Error::SqliteFailure(failure, words)) => {
                rusqlite::Error::SqliteFailure(*failure, words.clone()).into()
            }
            Self::Index(error) => io::Error::other(error.to_string()).into(),
            Self::Damaged(what) => Self::Damaged(what),
        }
    }
}

impl From<io::Error> for WriteError {
    fn from(error: io::Error) -> Self {
        if is_full(&error) { Self::Full } else { Self::Store(error.into()) }
    }
}

impl From<io::Error> for CommitError {
    fn from(error: io::Error) -> Self {
        if is_full(&error) { Self::Full } else { Self::Store(error.into()) }
    }
}

impl From<rusqlite::Error> for CommitError {
    fn from(error: rusqlite::Error) -> Self {
        if is_index_full(&error) { Self::Full } else { Self::Store(error.into()) }
    }
}

impl From<io::Error> for BeginError {
    fn from(error: io::Error) -> Self {
        match is_full(&error) {
            true => Self::Full { need: 1, free: 0 },
            false => Self::Store(error.into()),
        }
    }
}
