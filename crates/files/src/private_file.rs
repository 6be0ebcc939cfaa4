//! A file for its owner alone: [`create`], [`open`], [`touch`] and [`lock`].

use std::fs::{File, OpenOptions, TryLockError};
use std::io;
use std::path::Path;

/// A lock cannot be had.
#[derive(Debug, thiserror::Error)]
pub enum LockError {
    /// Another process has it.
    #[error("another process has it")]
    Held,
    /// The file.
    #[error(transparent)]
    File(#[from] io::Error),
}

/// A lock that is a file, held until this is dropped, or the process ends.
#[derive(Debug)]
pub struct Lock(File);

impl Lock {
    /// Takes it. See [`lock`].
    ///
    /// # Errors
    /// [`LockError::Held`] if somebody has it.
    pub fn take(path: &Path) -> Result<Self, LockError> {
        lock(path).map(Self)
    }
}

impl Drop for Lock {
    /// Closing it is not enough: a child process that begins just now has it too, until it runs its program.
    fn drop(&mut self) {
        let _ = self.0.unlock();
    }
}

/// Makes a file, or empties one that is there, to be read and written by its owner alone.
///
/// # Errors
/// If it cannot be, or a link or somebody else's file is in its place.
pub fn create(path: &Path) -> io::Result<File> {
    let file = open_with(path, OpenOptions::new().read(true).write(true).create(true))?;
    // Not before it is known whose it is.
    file.set_len(0)?;
    Ok(file)
}

/// Opens a file to read and write; others' rights to it are taken away.
///
/// # Errors
/// If it is not there, or a link or somebody else's file is in its place.
pub fn open(path: &Path) -> io::Result<File> {
    open_with(path, OpenOptions::new().read(true).write(true))
}

/// Sees to it that a file is there and its owner's alone, for a library that opens it itself: SQLite gives its log the mode of the database.
///
/// # Errors
/// As [`open`].
pub fn touch(path: &Path) -> io::Result<()> {
    open_with(path, OpenOptions::new().read(true).write(true).create(true)).map(drop)
}

/// Takes the lock that is a file, which is made if it is not there: whoever may open it could take it, so nobody else may. It is held until the file is closed or
/// unlocked.
///
/// # Errors
/// [`LockError::Held`] if somebody has it.
pub fn lock(path: &Path) -> Result<File, LockError> {
    let file = open_with(path, OpenOptions::new().read(true).write(true).create(true))?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(TryLockError::WouldBlock) => Err(LockError::Held),
        Err(TryLockError::Error(error)) => Err(error.into()),
    }
}

#[cfg(unix)]
fn open_with(path: &Path, options: &mut OpenOptions) -> io::Result<File> {
    use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _};
    let file = crate::open_plain(path, options.mode(crate::FILE_MODE))?;
    let is = file.metadata()?;
    // Root looks after others' folders, such as with `hoop spool`.
    let me = rustix::process::geteuid();
    if is.uid() != me.as_raw() && !me.is_root() {
        return Err(io::Error::new(io::ErrorKind::PermissionDenied, "it belongs to another user"));
    }
    if is.mode() & 0o077 != 0 {
        tracing::warn!(path = %path.display(), "others could open this file; it is now for its owner alone");
        file.set_permissions(std::fs::Permissions::from_mode(is.mode() & 0o700))?;
    }
    Ok(file)
}

#[cfg(not(unix))]
fn open_with(path: &Path, options: &mut OpenOptions) -> io::Result<File> {
    options.open(path)
}

#[cfg(all(test, unix))]
mod tests {
    use super::*;
    use std::fs::{self, Permissions};
    use std::os::unix::fs::{PermissionsExt as _, symlink};

    fn mode(path: &Path) -> u32 {
        fs::metadata(path).unwrap().permissions().mode() & 0o7777
    }

    #[test]
    fn a_file_is_made_for_its_owner_alone_and_a_wider_one_is_narrowed() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("file");
        assert!(open(&path).is_err(), "there is none");
        for act in [|path: &Path| create(path).map(drop), |path: &Path| open(path).map(drop), touch] {
            act(&path).unwrap();
            assert_eq!(mode(&path), 0o600);
            fs::set_permissions(&path, Permissions::from_mode(0o666)).unwrap();
        }
        lock(&path).unwrap();
        assert_eq!(mode(&path), 0o600);
    }

    #[test]
    fn what_is_no_plain_file_of_ours_is_not_opened_nor_emptied() {
        let place = tempfile::tempdir().unwrap();
        let (target, link) = (place.path().join("target"), place.path().join("link"));
        fs::write(&target, "kept").unwrap();
        symlink(&target, &link).unwrap();
        assert!(create(&link).is_err() && open(&link).is_err() && touch(&link).is_err() && lock(&link).is_err());
        assert_eq!(fs::read(&target).unwrap(), b"kept");
        assert!(open(Path::new("/dev/null")).is_err());
    }

    #[test]
    fn a_lock_is_one_processes_and_is_told_apart_from_an_error() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("lock");
        let held = lock(&path).unwrap();
        assert!(matches!(lock(&path), Err(LockError::Held)));
        drop(held);
        lock(&path).unwrap();
        assert!(matches!(lock(place.path()), Err(LockError::File(_))));
    }
}
