//! The folder's lock: [`Lock`].

use crate::model::error::OpenError;
use hoop_files::LockError;
use std::path::Path;

/// The folder's lock, released by the kernel however the process ends.
pub struct Lock(#[expect(dead_code, reason = "held until this is dropped")] hoop_files::Lock);

impl Lock {
    pub fn take(folder: &Path) -> Result<Self, OpenError> {
        let failed = |source| OpenError::Folder { path: folder.to_owned(), source };
        let path = folder.join("hoop.lock");
        match hoop_files::Lock::take(&path) {
            Ok(lock) => Ok(Self(lock)),
            Err(LockError::Held) => Err(OpenError::Locked(folder.to_owned())),
            Err(LockError::File(source)) => Err(failed(source)),
        }
    }
}
