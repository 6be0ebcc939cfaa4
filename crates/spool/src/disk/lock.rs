//! The folder's lock: [`Lock`].

use crate::model::error::OpenError;
use hoop_files::LockError;
use std::fs::File;
use std::path::Path;

/// The folder's lock, released by the kernel however the process ends.
pub struct Lock(File);

impl Lock {
    pub fn take(folder: &Path) -> Result<Self, OpenError> {
        let failed = |source| OpenError::Folder { path: folder.to_owned(), source };
        let path = folder.join("hoop.lock");
        match hoop_files::lock(&path) {
            Ok(file) => Ok(Self(file)),
            Err(LockError::Held) => Err(OpenError::Locked(folder.to_owned())),
            Err(LockError::File(source)) => Err(failed(source)),
        }
    }
}

impl Drop for Lock {
    /// Closing it is not enough: a child process that begins just now has it too, until it runs its program.
    fn drop(&mut self) {
        let _ = self.0.unlock();
    }
}
