//! What a file system has left: [`space`].

use std::io;
use std::path::Path;

/// What an ordinary user may still put into a file system.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Space {
    /// Bytes.
    pub bytes: u64,
    /// Files (inodes). A file system that does not count them has as many as anybody wants.
    pub files: u64,
}

/// What the file system of `path` has left. Where the system does not say, there is no end of it.
///
/// # Errors
/// If the system cannot be asked.
pub fn space(path: &Path) -> io::Result<Space> {
    #[cfg(unix)]
    {
        let told = rustix::fs::statvfs(path)?;
        let files = if told.f_files == 0 { u64::MAX } else { told.f_favail };
        Ok(Space { bytes: told.f_bavail.saturating_mul(told.f_frsize), files })
    }
    #[cfg(not(unix))]
    {
        let _ = path;
        Ok(Space { bytes: u64::MAX, files: u64::MAX })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_has_room_and_what_is_not_there_has_none_to_tell() {
        let dir = tempfile::tempdir().unwrap();
        let told = space(dir.path()).unwrap();
        assert!(told.bytes > 0 && told.files > 0, "{told:?}");
        assert!(space(&dir.path().join("missing")).is_err());
    }
}
