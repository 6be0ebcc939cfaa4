//! What a program did: [`Record`].

use std::path::PathBuf;

/// Something that a program did below the folder. Paths are relative to it; an inode names a file or a folder.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Record {
    /// A new file.
    Create {
        /// Its path.
        path: PathBuf,
        /// Its inode.
        inode: u64,
    },
    /// Bytes of a file.
    Write {
        /// The file.
        inode: u64,
        /// Where they begin.
        at: u64,
        /// The bytes.
        data: Vec<u8>,
    },
    /// A new length.
    Truncate {
        /// The file.
        inode: u64,
        /// The length.
        len: u64,
    },
    /// Bytes that read as zeroes from now on; the length stays.
    Hole {
        /// The file.
        inode: u64,
        /// Where they begin.
        at: u64,
        /// How many.
        len: u64,
    },
    /// A length, unless it is longer already.
    Extend {
        /// The file.
        inode: u64,
        /// The length.
        len: u64,
    },
    /// Another name.
    Rename {
        /// The name that it had.
        from: PathBuf,
        /// The name that it has now, whatever had it before.
        to: PathBuf,
    },
    /// A name that is gone.
    Remove {
        /// The name.
        path: PathBuf,
    },
    /// A new folder.
    MakeFolder {
        /// Its path.
        path: PathBuf,
        /// Its inode.
        inode: u64,
    },
    /// A sync begins; it covers what stands before this.
    SyncBegin {
        /// The file or the folder.
        inode: u64,
        /// Which sync.
        number: u64,
    },
    /// It has returned.
    SyncEnd {
        /// The file or the folder.
        inode: u64,
        /// Which sync.
        number: u64,
    },
    /// What somebody was told.
    Note(String),
}
