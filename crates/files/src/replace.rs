//! A file that is written anew: [`replace`].

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

/// Puts a file with these bytes in `path`'s place, for its owner alone. After a crash or a power cut the old one is there, or all of the new one.
///
/// # Errors
/// If it cannot be written: then the old one is as it was.
pub fn replace(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let beside = beside(path, ".new");
    // What a crash left.
    let _ = fs::remove_file(&beside);
    replace_by(&beside, path, bytes, |_| Ok(()))
}

/// As [`replace`], by way of a file that is not there yet, on the same disk. `prepare` gives it its owner and mode while it is empty.
///
/// # Errors
/// As [`replace`], or if there is a file at `beside`, or if `prepare` fails.
pub fn replace_by(
    beside: &Path,
    path: &Path,
    bytes: &[u8],
    prepare: impl FnOnce(&File) -> io::Result<()>,
) -> io::Result<()> {
    let mut file = create_new(beside)?;
    let write = || {
        prepare(&file)?;
        file.write_all(bytes)?;
        file.sync_all()?;
        fs::rename(beside, path)
    };
    write().inspect_err(|_| drop(fs::remove_file(beside)))?;
    #[cfg(unix)]
    File::open(parent(path))?.sync_all()?;
    Ok(())
}

/// Makes a file that is not there yet, for its owner alone.
///
/// # Errors
/// If it is there, or cannot be made.
pub fn create_new(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.write(true).create_new(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, crate::FILE_MODE);
    options.open(path)
}

/// The file beside another whose name is longer by this.
pub fn beside(path: &Path, more: &str) -> PathBuf {
    let mut beside = path.as_os_str().to_owned();
    beside.push(more);
    beside.into()
}

/// The folder that a file is in.
pub fn parent(path: &Path) -> &Path {
    path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_replaced_whole_or_stays_as_it_was() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("file");
        fs::write(beside(&path, ".new"), "left by a crash").unwrap();
        for text in ["one", "two"] {
            replace(&path, text.as_bytes()).unwrap();
            assert_eq!(fs::read_to_string(&path).unwrap(), text);
        }
        let refuses = |_: &File| Err(io::Error::other("no"));
        replace_by(&beside(&path, ".x"), &path, b"three", refuses).unwrap_err();
        assert_eq!(fs::read_to_string(&path).unwrap(), "two");
        assert_eq!(fs::read_dir(place.path()).unwrap().count(), 1, "nothing is left beside it");
    }

    #[cfg(unix)]
    #[test]
    fn replace_makes_a_file_for_its_owner_only_and_follows_no_link() {
        use std::os::unix::fs::{PermissionsExt as _, symlink};
        let place = tempfile::tempdir().unwrap();
        let (path, target) = (place.path().join("file"), place.path().join("target"));
        symlink(&target, beside(&path, ".new")).unwrap();
        symlink(&target, &path).unwrap();
        replace(&path, b"x").unwrap();
        assert!(!target.exists() && fs::symlink_metadata(&path).unwrap().is_file());
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    }
}
