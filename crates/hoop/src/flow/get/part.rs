//! A download that is not whole yet: [`Part`], a file and what is known of it, beside the place where it will be.
//!
//! `.FILE.part` has the bytes, and `.FILE.part.json` says of which version they are. No URL gives a name that begins with a dot, so no download is taken for another's beginning. The note is on disk before
//! any byte is, so a process or a machine that stops leaves nothing that could be taken for another version. Nothing is made or moved before there is an answer.

use hoop_files::{parent, replace};
use hoop_relay::continuation::Version;
use rustix::fs::{CWD, OFlags, RenameFlags, renameat_with};
use serde::{Deserialize, Serialize};
use std::fs::{self, File, TryLockError};
use std::io::{self, ErrorKind, Seek as _, SeekFrom, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

/// What is known of the bytes that are there.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize, Debug)]
struct Note {
    url: String,
    /// Where they came from: a tag tells the versions of one place apart.
    source: String,
    /// The strong tag of their version.
    etag: String,
    length: Option<u64>,
}

/// The bytes of a download so far.
#[derive(Debug)]
pub struct Part {
    target: PathBuf,
    url: String,
    replaces: bool,
    /// None: nothing is there, or it is still the user's own file.
    file: Option<File>,
    /// The user's own file is the beginning.
    is_own: bool,
    have: u64,
    version: Option<Version>,
    source: Option<String>,
}

impl Part {
    /// What there is of a URL's download. `vouched`: a file that is there without a note is its beginning. `replaces`: a whole file takes the place of one that is there.
    ///
    /// # Errors
    /// If a file cannot be read, or the target is no file.
    pub fn open(target: &Path, url: &str, vouched: bool, replaces: bool) -> io::Result<Self> {
        // Where a link leads, as other programs write.
        let target = fs::canonicalize(target).unwrap_or_else(|_| target.to_owned());
        let is_there = match fs::metadata(&target) {
            Ok(there) if !there.is_file() => return Err(io::Error::other("there is something that is no file")),
            there => there.is_ok(),
        };
        let (bytes, note) = paths(&target);
        let noted = fs::read(&note).ok().and_then(|note| serde_json::from_slice::<Note>(&note).ok());
        let noted = noted.filter(|note| note.url == url);
        let begun = (noted.is_some() || (vouched && !is_there)).then(|| open(&bytes, false)).transpose();
        let file = begun.or_else(|error| if error.kind() == ErrorKind::NotFound { Ok(None) } else { Err(error) })?;
        let is_own = file.is_none() && vouched && is_there;
        let have = match &file {
            Some(file) => file.metadata()?.len(),
            None if is_own => fs::metadata(&target)?.len(),
            None => 0,
        };
        let noted = noted.filter(|_| file.is_some());
        let version = noted.as_ref().and_then(|note| Version::new(&note.etag, note.length));
        let source = noted.map(|note| note.source);
        Ok(Self { target, url: url.to_owned(), replaces, file, is_own, have, version, source })
    }

    /// How many bytes are there.
    pub const fn have(&self) -> u64 {
        self.have
    }

    /// The version that they are of, as far as that is known.
    pub const fn version(&mut self) -> Option<&mut Version> {
        self.version.as_mut()
    }

    /// Whether the bytes that are there came from this place, and it can be said of which version they are.
    pub fn is_from(&self, source: &str) -> bool {
        self.have > 0 && self.version.is_some() && self.source.as_deref() == Some(source)
    }

    /// Begins with this version, and forgets what was there of another.
    ///
    /// # Errors
    /// If the disk fails, or another process downloads to the same place.
    pub fn begin(&mut self, version: Option<Version>, source: &str) -> io::Result<()> {
        let file = match self.file.take() {
            Some(file) => file,
            None => open(&paths(&self.target).0, true)?,
        };
        file.set_len(0)?;
        (self.file, self.have, self.is_own) = (Some(file), 0, false);
        self.note(version, source)
    }

    /// Goes on with the user's own file, which is of this version.
    ///
    /// # Errors
    /// As [`Part::begin`].
    pub fn adopt(&mut self, version: Option<Version>, source: &str) -> io::Result<()> {
        if self.is_own {
            let bytes = paths(&self.target).0;
            fs::rename(&self.target, &bytes)?;
            self.file = Some(open(&bytes, false)?);
            self.is_own = false;
        }
        self.note(version, source)
    }

    fn note(&mut self, version: Option<Version>, source: &str) -> io::Result<()> {
        let path = paths(&self.target).1;
        // Without a tag nobody can continue it after this process.
        match &version {
            Some(version) => {
                let (url, source, etag) = (self.url.clone(), source.to_owned(), version.etag().to_owned());
                let note = Note { url, source, etag, length: version.length() };
                replace(&path, &serde_json::to_vec(&note).map_err(io::Error::other)?)?;
            }
            None => drop(fs::remove_file(path)),
        }
        (self.version, self.source) = (version, Some(source.to_owned()));
        Ok(())
    }

    /// Appends bytes.
    ///
    /// # Errors
    /// If the disk fails.
    pub fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        let file = self.file.as_mut().ok_or(ErrorKind::NotFound)?;
        file.seek(SeekFrom::Start(self.have))?;
        file.write_all(bytes)?;
        self.have += bytes.len() as u64;
        Ok(())
    }

    /// The file, to be looked through: the user's own if nothing was missing.
    ///
    /// # Errors
    /// If it cannot be read.
    pub fn file(&self) -> io::Result<File> {
        self.file.as_ref().map_or_else(|| File::open(&self.target), File::try_clone)
    }

    /// Puts the whole in its place.
    ///
    /// # Errors
    /// If the disk fails, or another file has come to be there.
    pub fn finish(&mut self) -> io::Result<()> {
        let Some(file) = &self.file else { return Ok(()) };
        let (bytes, note) = paths(&self.target);
        file.sync_all()?;
        match self.replaces {
            true => fs::rename(bytes, &self.target)?,
            false => renameat_with(CWD, &bytes, CWD, &self.target, RenameFlags::NOREPLACE)?,
        }
        let _ = fs::remove_file(note);
        Ok(())
    }

    /// Removes what is there: it is of no use.
    pub fn discard(&mut self) {
        let (bytes, note) = paths(&self.target);
        if self.file.take().is_some() {
            let _ = fs::remove_file(bytes);
            let _ = fs::remove_file(note);
        }
    }
}

/// Opens the bytes, for this process alone, and never where a link leads.
fn open(path: &Path, creates: bool) -> io::Result<File> {
    let mut options = File::options();
    options.read(true).write(true).create(creates).truncate(false);
    let file = options.custom_flags(OFlags::NOFOLLOW.bits().cast_signed()).open(path)?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(TryLockError::WouldBlock) => Err(io::Error::other("another process downloads to this place")),
        Err(TryLockError::Error(error)) => Err(error),
    }
}

fn paths(target: &Path) -> (PathBuf, PathBuf) {
    let name = target.file_name().unwrap_or_default().to_string_lossy();
    let beside = |end: &str| parent(target).join(format!(".{name}{end}"));
    (beside(".part"), beside(".part.json"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const URL: &str = "http://a.example/file";

    fn version() -> Option<Version> {
        Version::new("\"v1\"", Some(11))
    }

    #[test]
    fn what_is_there_is_continued_for_the_same_url_and_version_only() {
        let folder = tempfile::tempdir().unwrap();
        let target = folder.path().join("file");
        {
            let mut part = Part::open(&target, URL, false, false).unwrap();
            assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0, "nothing is made before there is an answer");
            part.begin(version(), URL).unwrap();
            assert!(Part::open(&target, URL, false, false).is_err(), "one process at a time");
            part.append(b"hello ").unwrap();
        }
        let mut part = Part::open(&target, URL, false, false).unwrap();
        assert_eq!((part.have(), part.version().cloned()), (6, version()));
        assert!(part.is_from(URL) && !part.is_from("http://b.example/file"));
        drop(part);
        assert_eq!(Part::open(&target, "http://a.example/other", false, false).unwrap().have(), 0);
        let mut part = Part::open(&target, URL, false, false).unwrap();
        part.append(b"world").unwrap();
        fs::write(&target, "other").unwrap();
        assert_eq!(part.finish().unwrap_err().kind(), ErrorKind::AlreadyExists);
        fs::remove_file(&target).unwrap();
        part.finish().unwrap();
        assert_eq!(fs::read(&target).unwrap(), b"hello world");
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1, "nothing is left beside it");
    }

    #[test]
    fn a_users_own_file_is_moved_only_once_its_rest_comes() {
        let folder = tempfile::tempdir().unwrap();
        let target = folder.path().join("file");
        fs::write(&target, "hello ").unwrap();
        let mut part = Part::open(&target, URL, true, false).unwrap();
        assert_eq!((part.have(), part.version().is_none(), part.is_from(URL)), (6, true, false));
        drop(part);
        assert_eq!(fs::read(&target).unwrap(), b"hello ", "it is as it was");
        let mut part = Part::open(&target, URL, true, false).unwrap();
        part.adopt(version(), URL).unwrap();
        part.append(b"world").unwrap();
        drop(part);
        let mut part = Part::open(&target, URL, false, false).unwrap();
        assert_eq!((part.have(), part.is_from(URL)), (11, true));
        part.finish().unwrap();
        assert_eq!(fs::read(&target).unwrap(), b"hello world");
    }

    #[test]
    fn what_is_no_file_stays_and_links_are_followed_at_the_target_alone() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        fs::create_dir(at("folder")).unwrap();
        assert!(Part::open(&at("folder"), URL, true, true).is_err());
        assert!(Part::open(Path::new("/dev/null"), URL, false, true).is_err());
        fs::write(at("victim"), "untouched").unwrap();
        std::os::unix::fs::symlink(at("victim"), at(".file.part")).unwrap();
        assert!(Part::open(&at("file"), URL, false, true).unwrap().begin(version(), URL).is_err());
        assert_eq!(fs::read(at("victim")).unwrap(), b"untouched");
        std::os::unix::fs::symlink(at("victim"), at("link")).unwrap();
        let mut part = Part::open(&at("link"), URL, false, true).unwrap();
        part.begin(None, URL).unwrap();
        part.append(b"written").unwrap();
        part.finish().unwrap();
        assert_eq!(fs::read(at("victim")).unwrap(), b"written");
        assert!(fs::symlink_metadata(at("link")).unwrap().is_symlink());
    }
}
