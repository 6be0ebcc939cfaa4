//! Where an upload's bytes come from: files and memory, read at random, so that any record can be sealed again alone.
//!
//! A file stays open from the moment it is measured. It must not change until it has been handed over: a record sealed
//! twice from different bytes would use a nonce twice. So size and modification time are compared after each read, and
//! a file that changed ends the upload ([`SourceError::Changed`]). A file that was *replaced* (renamed over) is another
//! file, and does no harm.

use bytes::Bytes;
use serde::{Deserialize, Serialize};
use std::fs::{File, Metadata};
use std::io::{self, Read, Seek as _, Write as _};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

/// What a part of an upload, or the whole, is made of.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Content {
    /// These bytes.
    Bytes(Bytes),
    /// A file. A pipe or device is first copied to a temporary file, since its length must be known beforehand.
    File(PathBuf),
    /// The standard input, copied to a temporary file likewise.
    Stdin,
}

/// A local file cannot be sent.
#[derive(Debug, thiserror::Error)]
pub enum SourceError {
    /// It cannot be opened or read.
    #[error("cannot read {}: {source}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// It is a directory.
    #[error("{} is a directory", .0.display())]
    Directory(PathBuf),
    /// A pipe or the standard input could not be copied to a temporary file.
    #[error("cannot copy {} to a temporary file: {source}", path.display())]
    Spool {
        /// What was to be copied.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// It changed after it was measured.
    #[error("{} changed while it was being sent", .0.display())]
    Changed(PathBuf),
    /// What was sealed could not be written down.
    #[error("cannot write {}: {source}", path.display())]
    Note {
        /// Where to.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
}

/// A run of bytes of known length.
#[derive(Debug)]
pub(crate) enum Segment {
    Bytes(Bytes),
    File(Opened),
}

/// An open file, and what it looked like when it was measured.
#[derive(Debug)]
pub(crate) struct Opened {
    file: File,
    path: PathBuf,
    len: u64,
    modified: Option<SystemTime>,
    /// What tells it from other files and from itself changed; `None`: it has no name, or the system has no such numbers.
    identity: Option<Identity>,
}

/// What tells one file from another, and from itself with other bytes in it: also by the time of its last change, which nobody can set.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct Identity {
    device: u64,
    inode: u64,
    len: u64,
    /// Seconds and nanoseconds.
    modified: (i64, i64),
    changed: (i64, i64),
}

impl Identity {
    #[cfg(unix)]
    fn of(metadata: &Metadata) -> Option<Self> {
        use std::os::unix::fs::MetadataExt as _;
        Some(Self {
            device: metadata.dev(),
            inode: metadata.ino(),
            len: metadata.len(),
            modified: (metadata.mtime(), metadata.mtime_nsec()),
            changed: (metadata.ctime(), metadata.ctime_nsec()),
        })
    }
}

impl Segment {
    pub(crate) fn open(content: &Content) -> Result<Self, SourceError> {
        match content {
            Content::Bytes(bytes) => Ok(Self::Bytes(bytes.clone())),
            Content::File(path) => Opened::open(path).map(Self::File),
            Content::Stdin => Opened::spool(Path::new("the standard input"), io::stdin().lock()).map(Self::File),
        }
    }

    /// A file that must be as it was.
    pub(crate) fn reopen(path: &Path, identity: &Identity) -> Result<Self, SourceError> {
        let opened = Opened::open(path)?;
        match opened.identity.as_ref() == Some(identity) {
            true => Ok(Self::File(opened)),
            false => Err(SourceError::Changed(path.to_owned())),
        }
    }

    #[cfg(test)]
    pub(crate) fn spooled(reader: impl Read) -> Self {
        Self::File(Opened::spool(Path::new("pipe"), reader).unwrap())
    }

    pub(crate) fn len(&self) -> u64 {
        match self {
            Self::Bytes(bytes) => bytes.len() as u64,
            Self::File(opened) => opened.len,
        }
    }

    /// The file's path.
    pub(crate) fn path(&self) -> Option<&Path> {
        match self {
            Self::Bytes(_) => None,
            Self::File(opened) => Some(&opened.path),
        }
    }

    /// Fills `buffer` with the bytes from `offset` on; they must exist.
    pub(crate) fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<(), SourceError> {
        match self {
            Self::Bytes(bytes) => {
                let start = usize::try_from(offset).expect("an offset within memory");
                buffer.copy_from_slice(&bytes[start..start + buffer.len()]);
                Ok(())
            }
            Self::File(opened) => opened.read_at(offset, buffer),
        }
    }
}

impl Opened {
    /// How long the file was when it was measured.
    pub(crate) const fn len(&self) -> u64 {
        self.len
    }

    fn open(path: &Path) -> Result<Self, SourceError> {
        let fail = |source| SourceError::Read { path: path.to_owned(), source };
        let file = File::open(path).map_err(fail)?;
        let metadata = file.metadata().map_err(fail)?;
        if metadata.is_dir() {
            return Err(SourceError::Directory(path.to_owned()));
        }
        match metadata.is_file() {
            true => Ok(Self { identity: Identity::of(&metadata), ..Self::measured(file, path, &metadata) }),
            false => Self::spool(path, file),
        }
    }

    /// Where it is and what it is, for a later process.
    pub(crate) fn identity(&self) -> Option<(PathBuf, Identity)> {
        // That may stand in another folder.
        Some((std::path::absolute(&self.path).ok()?, self.identity.clone()?))
    }

    fn measured(file: File, path: &Path, metadata: &Metadata) -> Self {
        let (len, modified) = (metadata.len(), metadata.modified().ok());
        Self { file, path: path.to_owned(), len, modified, identity: None }
    }

    /// Copies what `reader` gives to a file in the system's temporary folder (`TMPDIR`) that has no name any more once
    /// this returns, so that nothing stays behind, however the process ends.
    fn spool(path: &Path, mut reader: impl Read) -> Result<Self, SourceError> {
        let fail = |source| SourceError::Spool { path: path.to_owned(), source };
        let mut file = nameless_file().map_err(fail)?;
        io::copy(&mut reader, &mut file).map_err(fail)?;
        file.flush().and_then(|()| file.rewind()).map_err(fail)?;
        let metadata = file.metadata().map_err(fail)?;
        Ok(Self::measured(file, path, &metadata))
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<(), SourceError> {
        let fail = |source| SourceError::Read { path: self.path.clone(), source };
        let complete = match read_exact_at(&self.file, offset, buffer) {
            Ok(()) => true,
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => false,
            Err(error) => return Err(fail(error)),
        };
        let now = self.file.metadata().map_err(fail)?;
        match complete && now.len() == self.len && now.modified().ok() == self.modified {
            true => Ok(()),
            false => Err(SourceError::Changed(self.path.clone())),
        }
    }
}

fn nameless_file() -> io::Result<File> {
    let name = format!("hoop-{}", hex::encode(hoop_http::Rng.bytes::<12>()));
    let path = std::env::temp_dir().join(name);
    let mut options = File::options();
    options.read(true).write(true).create_new(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    let file = options.open(&path)?;
    std::fs::remove_file(&path)?;
    Ok(file)
}

#[cfg(unix)]
fn read_exact_at(file: &File, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
    std::os::unix::fs::FileExt::read_exact_at(file, buffer, offset)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_grows_shrinks_or_is_touched_is_noticed() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a");
        let later = SystemTime::now() + std::time::Duration::from_secs(60);
        let changes: [&dyn Fn(&File); 3] =
            [&|file| file.set_len(11).unwrap(), &|file| file.set_len(3).unwrap(), &|file| {
                file.set_modified(later).unwrap()
            }];
        for change in changes {
            std::fs::write(&path, "0123456789").unwrap();
            let segment = Segment::open(&Content::File(path.clone())).unwrap();
            let mut buffer = [0; 4];
            segment.read_at(5, &mut buffer).unwrap();
            assert_eq!(&buffer, b"5678");
            change(&File::options().write(true).open(&path).unwrap());
            assert!(matches!(segment.read_at(5, &mut buffer), Err(SourceError::Changed(_))));
        }
    }

    #[test]
    fn a_directory_or_a_missing_file_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let open = |path: &Path| Segment::open(&Content::File(path.to_owned())).unwrap_err().to_string();
        assert!(open(folder.path()).ends_with("is a directory"));
        let missing = folder.path().join("missing");
        assert!(open(&missing).starts_with(&format!("cannot read {}: ", missing.display())));
    }

    #[test]
    fn a_pipe_is_copied_and_can_then_be_read_at_random() {
        let opened = Opened::spool(Path::new("pipe"), &b"0123456789"[..]).unwrap();
        let mut buffer = [0; 2];
        opened.read_at(8, &mut buffer).unwrap();
        assert_eq!((opened.len, &buffer), (10, b"89"));
    }
}
