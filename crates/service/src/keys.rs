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
    /// Anybody may write to it. A key that somebody puts into it makes tickets and opens uploads.
    #[error("anybody on this machine may write to {} (mode {mode:o})", path.display())]
    Writable {
        /// The file.
        path: PathBuf,
        /// Its access rights.
        mode: u32,
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
/// If it cannot be read, anybody may write to it, or a line is no key.
pub fn load_keyring(path: &Path) -> Result<Keyring, KeyFileError> {
    let text = fs::read_to_string(path)
        .map(Zeroizing::new)
        .map_err(|source| KeyFileError::Read { path: path.to_owned(), source })?;
    match mode(path) {
        mode if mode & 0o002 != 0 => return Err(KeyFileError::Writable { path: path.to_owned(), mode }),
        mode if mode & 0o077 != 0 => {
            tracing::warn!(path = %path.display(), "others can read the key file: chmod 600 it, and make a new key first");
        }
        _ => {}
    }
    Keyring::parse(&text).map_err(|source| KeyFileError::Content { path: path.to_owned(), source })
}

/// A file's access rights; 0, if there are none of Unix's.
#[cfg(unix)]
fn mode(path: &Path) -> u32 {
    use std::os::unix::fs::PermissionsExt as _;
    fs::metadata(path).map_or(0, |meta| meta.permissions().mode() & 0o777)
}

#[cfg(not(unix))]
fn mode(_path: &Path) -> u32 {
    0
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
    fn a_key_file_that_anybody_may_write_to_is_refused() {
        use std::os::unix::fs::PermissionsExt as _;
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("keys");
        fs::write(&path, ServiceKey::new(KwsId([1; 4]), [2; 32]).to_line()).unwrap();
        for (mode, is_taken) in
            [(0o600, true), (0o400, true), (0o640, true), (0o604, true), (0o606, false), (0o602, false)]
        {
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
            let loaded = load_keyring(&path);
            assert_eq!(loaded.is_ok(), is_taken, "{mode:o}");
            assert!(is_taken || matches!(loaded, Err(KeyFileError::Writable { mode: told, .. }) if told == mode));
        }
    }
}
