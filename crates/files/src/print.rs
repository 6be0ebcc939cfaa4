//! Whether a file is still the one that was read: [`Print`].

use std::path::Path;

/// What a file was when it was looked at: another file, another length or another time of change makes another print.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Print {
    #[cfg(unix)]
    inode: u64,
    length: u64,
    /// Of its content, and of its owner and mode: a file that could not be read is another once these are.
    #[cfg(unix)]
    changed: [i64; 4],
    #[cfg(not(unix))]
    changed: Option<std::time::SystemTime>,
}

impl Print {
    /// None: there is no such file.
    pub fn of(path: &Path) -> Option<Self> {
        let file = std::fs::metadata(path).ok()?;
        #[cfg(unix)]
        {
            use std::os::unix::fs::MetadataExt as _;
            let changed = [file.mtime(), file.mtime_nsec(), file.ctime(), file.ctime_nsec()];
            Some(Self { inode: file.ino(), length: file.len(), changed })
        }
        #[cfg(not(unix))]
        Some(Self { length: file.len(), changed: file.modified().ok() })
    }
}
