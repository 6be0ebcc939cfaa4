//! Reading the key file: [`load_keyring`].

use hoop_seal::{KeyLineError, Keyring};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use zeroize::Zeroizing;

/// A key file cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum KeyFileError {
    /// It cannot be read.
    #[error("cannot read the key file {}: {source}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// It holds something else than keys.
    #[error("the key file {} cannot be used: {source}", path.display())]
    Content {
        /// The file.
        path: PathBuf,
        /// Where and why. Shows no key.
        source: KeyLineError,
    },
}

/// Loads the keys of a service from a file: a key a line, the newest first. Warns if others than its owner may read it.
///
/// # Errors
/// If it cannot be read, or a line is no key.
pub fn load_keyring(path: &Path) -> Result<Keyring, KeyFileError> {
    let text = fs::read_to_string(path)
        .map(Zeroizing::new)
        .map_err(|source| KeyFileError::Read { path: path.to_owned(), source })?;
    if is_exposed(path) {
        tracing::warn!(path = %path.display(), "others can read the key file: chmod 600 it, and make a new key first");
    }
    Keyring::parse(&text).map_err(|source| KeyFileError::Content { path: path.to_owned(), source })
}

/// Whether others than the file's owner may read or write it.
#[cfg(unix)]
fn is_exposed(path: &Path) -> bool {
    use std::os::unix::fs::PermissionsExt as _;
    fs::metadata(path).is_ok_and(|meta| meta.permissions().mode() & 0o077 != 0)
}

#[cfg(not(unix))]
fn is_exposed(_path: &Path) -> bool {
    false
}

#[cfg(test)]
mod tests {
    use super::*;
    use hoop_seal::{KwsId, ServiceKey};

    #[test]
    fn a_key_file_loads_and_a_bad_line_is_named_without_showing_it() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("keys");
        let key = ServiceKey::new(KwsId([1; 4]), [2; 32]);
        fs::write(&path, format!("# newest first\n{}\n", key.to_line())).unwrap();
        assert_eq!(load_keyring(&path).unwrap().primary().id(), key.id());
        fs::write(&path, format!("{}secret", key.to_line())).unwrap();
        let error = load_keyring(&path).unwrap_err().to_string();
        assert!(error.contains("line 1") && !error.contains("secret"), "{error}");
        assert!(matches!(load_keyring(&dir.path().join("none")), Err(KeyFileError::Read { .. })));
    }

    #[cfg(unix)]
    #[test]
    fn a_key_file_that_others_can_read_is_noticed() {
        use std::os::unix::fs::PermissionsExt as _;
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("keys");
        fs::write(&path, "").unwrap();
        for (mode, exposed) in [(0o600, false), (0o400, false), (0o640, true), (0o604, true)] {
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
            assert_eq!(is_exposed(&path), exposed, "{mode:o}");
        }
    }
}
