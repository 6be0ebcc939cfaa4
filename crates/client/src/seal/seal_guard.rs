//! What was sealed, record by record: [`SealGuard`]. No record may ever be sealed from two plaintexts, since both would go out under one nonce.
//!
//! Of each record that was sealed half of its tag is kept, eight bytes. In memory that guards one process. For an upload that a later
//! process may go on with, they are also written to a file, each before its record can leave, and the file is locked as long as
//! anybody seals.
//!
//! ```text
//! uploads/{id}.tags:  byte 8·n: half the tag of record n; zeros: not sealed yet
//! ```
//!
//! The file is not synced: it outlives the process, not a power cut. So an upload is resumed only while the machine has not been
//! restarted ([`boot`]).

use crate::private::make_private;
use crate::request::source::SourceError;
use parking_lot::Mutex;
use std::fs::{File, TryLockError};
use std::io;
use std::path::{Path, PathBuf};

/// Half a tag.
type Half = [u8; 8];

/// Which records were sealed, and how they came out.
#[derive(Debug, Default)]
pub(crate) struct SealGuard(Mutex<Inner>);

#[derive(Debug, Default)]
struct Inner {
    halves: Vec<Half>,
    file: Option<(File, PathBuf)>,
}

impl SealGuard {
    /// Kept beside the upload's record, in a new file.
    pub(crate) fn create(path: &Path) -> io::Result<Self> {
        let mut options = File::options();
        options.read(true).write(true).create_new(true);
        #[cfg(unix)]
        std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
        let file = match options.open(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                make_private(path.parent().unwrap_or(Path::new(".")))?;
                options.open(path)?
            }
            opened => opened?,
        };
        lock(&file)?;
        Ok(Self(Mutex::new(Inner { halves: Vec::new(), file: Some((file, path.to_owned())) })))
    }

    /// As another process left them, of an upload of so many records.
    ///
    /// # Errors
    /// `WouldBlock`: a process is at it still.
    pub(crate) fn open(path: &Path, records: u64) -> io::Result<Self> {
        let file = File::options().read(true).write(true).open(path)?;
        lock(&file)?;
        let mut bytes = Vec::new();
        let most = records.saturating_mul(size_of::<Half>() as u64);
        io::Read::read_to_end(&mut io::Read::take(&file, most), &mut bytes)?;
        // A half that is cut off was never followed by its record.
        let halves = bytes.as_chunks().0.to_vec();
        Ok(Self(Mutex::new(Inner { halves, file: Some((file, path.to_owned())) })))
    }

    /// Whether they outlive this process.
    pub(crate) fn are_kept(&self) -> bool {
        self.0.lock().file.is_some()
    }

    /// Whether record `index` was not sealed before, or came out as `record` does, which ends with its tag. When this returns true, that
    /// is written down.
    ///
    /// # Errors
    /// If it can neither be written down nor made sure that nobody goes on from the file as it is.
    pub(crate) fn agree(&self, index: u64, record: &[u8]) -> Result<bool, SourceError> {
        let tag: Half = *record.last_chunk().expect("a record ends with its tag");
        let index = usize::try_from(index).expect("a record's number fits in memory");
        let mut inner = self.0.lock();
        if inner.halves.len() <= index {
            inner.halves.resize(index + 1, [0; 8]);
        }
        let before = inner.halves[index];
        if before != [0; 8] {
            return Ok(before == tag);
        }
        inner.halves[index] = tag;
        if let Some((file, path)) = &inner.file
            && let Err(source) = write_at(file, &tag, (index * tag.len()) as u64)
        {
            // Without the file nobody resumes the upload; with one that lacks this, somebody might.
            let removed = std::fs::remove_file(path);
            removed.map_err(|_| SourceError::Note { path: path.clone(), source })?;
            inner.file = None;
        }
        Ok(true)
    }
}

fn lock(file: &File) -> io::Result<()> {
    file.try_lock().map_err(|error| match error {
        TryLockError::WouldBlock => io::ErrorKind::WouldBlock.into(),
        TryLockError::Error(error) => error,
    })
}

#[cfg(unix)]
fn write_at(file: &File, bytes: &[u8], offset: u64) -> io::Result<()> {
    std::os::unix::fs::FileExt::write_all_at(file, bytes, offset)
}

/// What names this run of the machine; `None` where nothing does, and then no upload is resumed.
pub(crate) fn boot() -> Option<String> {
    let text = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?;
    Some(text.trim().to_owned()).filter(|id| !id.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_later_process_knows_what_was_sealed_and_two_at_once_are_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("uploads/a.tags");
        let guard = SealGuard::create(&path).unwrap();
        assert!(guard.agree(2, &[7; 20]).unwrap());
        assert_eq!(
            SealGuard::open(&path, 9).unwrap_err().kind(),
            io::ErrorKind::WouldBlock,
            "the first is still at it"
        );
        assert_eq!(SealGuard::create(&path).unwrap_err().kind(), io::ErrorKind::AlreadyExists);
        drop(guard);
        let later = SealGuard::open(&path, 9).unwrap();
        assert!(!later.agree(2, &[8; 20]).unwrap(), "from another plaintext");
        assert!(later.agree(2, &[7; 20]).unwrap());
        assert!(later.agree(0, &[9; 20]).unwrap(), "it was not sealed before");
    }

    #[test]
    fn a_half_that_was_cut_off_is_no_half() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.tags");
        std::fs::write(&path, [[7; 8].as_slice(), &[9; 3]].concat()).unwrap();
        let guard = SealGuard::open(&path, 9).unwrap();
        assert!(guard.agree(1, &[5; 20]).unwrap() && !guard.agree(0, &[5; 20]).unwrap());
    }
}
