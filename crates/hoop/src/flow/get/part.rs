//! A download that is not whole yet: [`Part`], a file and what is known of it, beside the place where it will be.
//!
//! `FILE.part` has the bytes, and `FILE.part.json` says of which version they are. The note is on disk before any byte is, so a process or a machine that stops leaves nothing that could be taken for
//! another version.

use hoop_files::{beside, replace};
use hoop_relay::continuation::Version;
use serde::{Deserialize, Serialize};
use std::fs::{self, File};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

/// What is known of the bytes that are there.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize, Debug)]
struct Note {
    url: String,
    /// The strong tag of their version; none if the user vouches for them (`--continue`).
    etag: Option<String>,
    length: Option<u64>,
}

/// The bytes of a download so far.
#[derive(Debug)]
pub struct Part {
    target: PathBuf,
    url: String,
    file: File,
    have: u64,
    version: Option<Version>,
}

impl Part {
    /// What there is of a URL's download. `vouched`: a file at the target that has no note is its beginning.
    ///
    /// # Errors
    /// If a file cannot be read or written, or another process downloads to the same place.
    pub fn open(target: &Path, url: &str, vouched: bool) -> io::Result<Self> {
        let (bytes, note) = paths(target);
        let noted = fs::read(&note).ok().and_then(|note| serde_json::from_slice::<Note>(&note).ok());
        let noted = noted.filter(|note| note.url == url && bytes.exists());
        if noted.is_none() && vouched && target.exists() {
            fs::rename(target, &bytes)?;
        }
        let keeps = noted.is_some() || (vouched && bytes.exists());
        let file = File::options().read(true).write(true).create(true).truncate(false).open(&bytes)?;
        file.try_lock().map_err(|error| match error {
            fs::TryLockError::WouldBlock => {
                io::Error::new(io::ErrorKind::WouldBlock, "another process downloads to this place")
            }
            fs::TryLockError::Error(error) => error,
        })?;
        if !keeps {
            file.set_len(0)?;
        }
        let have = file.metadata()?.len();
        let version = noted.and_then(|note| Version::new(&note.etag?, note.length));
        Ok(Self { target: target.to_owned(), url: url.to_owned(), file, have, version })
    }

    /// How many bytes are there.
    pub const fn have(&self) -> u64 {
        self.have
    }

    /// The version that they are of, as far as that is known.
    pub const fn version(&self) -> Option<&Version> {
        self.version.as_ref()
    }

    /// Begins with this version, and forgets what was there of another.
    ///
    /// # Errors
    /// If the disk fails.
    pub fn begin(&mut self, version: Option<Version>, length: Option<u64>) -> io::Result<()> {
        self.file.set_len(0)?;
        self.have = 0;
        let etag = version.as_ref().map(|version| version.etag().to_owned());
        let (_, path) = paths(&self.target);
        // Without a tag nobody can continue it after this process.
        match &etag {
            Some(_) => {
                let note = Note { url: self.url.clone(), etag, length };
                replace(&path, &serde_json::to_vec(&note).map_err(io::Error::other)?)?;
            }
            None => {
                let _ = fs::remove_file(path);
            }
        }
        self.version = version;
        Ok(())
    }

    /// Appends bytes.
    ///
    /// # Errors
    /// If the disk fails.
    pub fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        io::Seek::seek(&mut self.file, io::SeekFrom::Start(self.have))?;
        self.file.write_all(bytes)?;
        self.have += bytes.len() as u64;
        Ok(())
    }

    /// The file, to be looked through.
    pub const fn file(&mut self) -> &mut File {
        &mut self.file
    }

    /// Puts the whole in its place.
    ///
    /// # Errors
    /// If the disk fails.
    pub fn finish(&mut self) -> io::Result<()> {
        let (bytes, note) = paths(&self.target);
        self.file.sync_all()?;
        fs::rename(bytes, &self.target)?;
        let _ = fs::remove_file(note);
        Ok(())
    }

    /// Removes what is there: it is of no use.
    pub fn discard(&mut self) {
        let (bytes, note) = paths(&self.target);
        let _ = fs::remove_file(bytes);
        let _ = fs::remove_file(note);
    }
}

fn paths(target: &Path) -> (PathBuf, PathBuf) {
    (beside(target, ".part"), beside(target, ".part.json"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const URL: &str = "http://a.example/file";

    #[test]
    fn what_is_there_is_continued_for_the_same_url_and_version_only() {
        let folder = tempfile::tempdir().unwrap();
        let target = folder.path().join("file");
        {
            let mut part = Part::open(&target, URL, false).unwrap();
            assert!(Part::open(&target, URL, false).is_err(), "one process at a time");
            part.begin(Version::new("\"v1\"", Some(11)), Some(11)).unwrap();
            part.append(b"hello ").unwrap();
        }
        let part = Part::open(&target, URL, false).unwrap();
        assert_eq!((part.have(), part.version()), (6, Version::new("\"v1\"", Some(11)).as_ref()));
        drop(part);
        assert_eq!(Part::open(&target, "http://a.example/other", false).unwrap().have(), 0);
        // It was of another URL, and is gone.
        let mut part = Part::open(&target, URL, false).unwrap();
        assert_eq!(part.have(), 0);
        part.begin(None, None).unwrap();
        part.append(b"hello world").unwrap();
        part.finish().unwrap();
        assert_eq!(fs::read(&target).unwrap(), b"hello world");
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1, "nothing is left beside it");
    }

    #[test]
    fn a_file_without_a_note_is_continued_if_its_owner_says_so() {
        let folder = tempfile::tempdir().unwrap();
        let target = folder.path().join("file");
        fs::write(&target, "hello ").unwrap();
        assert_eq!(Part::open(&target, URL, false).unwrap().have(), 0);
        assert_eq!(fs::read(&target).unwrap(), b"hello ", "it is as it was");
        let part = Part::open(&target, URL, true).unwrap();
        assert_eq!((part.have(), part.version()), (6, None));
        assert!(!target.exists());
    }
}
