//! A download that is not whole yet: [`Part`], a file and what is known of it, beside the place where it will be.
//!
//! `.FILE.part` has the bytes, and `.FILE.part.json` says of which version they are. No URL gives a name that begins with a dot, so no download is taken for another's beginning. The note is on disk before
//! any byte is, so a process or a machine that stops leaves nothing that could be taken for another version. Nothing is made or moved before there is an answer.
//!
//! Others may write to some folders, such as `/tmp`. Both files are this user's alone while they are there, and one that may not be is refused ([`Part::open`]).

use super::digest::Expected;
use hoop_files::{FILE_MODE, parent, replace};
use hoop_relay::continuation::Version;
use rustix::fs::{CWD, OFlags, RenameFlags, renameat_with};
use rustix::io::Errno;
use rustix::process::geteuid;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::fs::{self, File, OpenOptions, Permissions, TryLockError};
use std::io::{self, ErrorKind, Read as _, Seek as _, SeekFrom, Write as _};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

/// A file that is opened leads nowhere, and waits for nobody, as a FIFO would.
const UNAWAITED: OFlags = OFlags::NOFOLLOW.union(OFlags::NONBLOCK);

/// The group's and everybody's right to write.
const OTHERS_WRITE: u32 = 0o022;

/// Whoever may read, write and run a file. What else a mode says is for the program that was in it.
const MODE: u32 = 0o777;

/// A chain of more symbolic links has no end, as for the kernel (path_resolution(7)).
const LINKS_MAX: usize = 40;

/// The longest note, in bytes: two URLs and a tag.
const NOTE_MAX: u64 = 1 << 20;

/// What is known of the bytes that are there.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize, Debug)]
struct Note {
    url: String,
    /// Where they came from: a tag tells the versions of one place apart.
    source: String,
    /// The strong tag of their version.
    etag: String,
    length: Option<u64>,
    /// They begin with the user's own file, whose place the whole takes.
    #[serde(default)]
    continues: bool,
    /// What the server said of the whole, as `Repr-Digest` has it: a process that ends before it has compared that leaves it to the next.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    digest: Option<String>,
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
    /// The bytes begin with a copy of it.
    continues: bool,
    have: u64,
    version: Option<Version>,
    source: Option<String>,
    /// What the server said of the whole.
    told: Option<Expected>,
}

impl Part {
    /// What there is of a URL's download. `vouched`: a file that is there without a note is its beginning. `replaces`: a whole file takes the place of one that is there.
    ///
    /// # Errors
    /// If a file cannot be read, the target is no file, or what there is of the download may be another user's.
    pub fn open(target: &Path, url: &str, vouched: bool, replaces: bool) -> io::Result<Self> {
        let target = followed(target)?;
        let is_there = match fs::symlink_metadata(&target) {
            Ok(there) if !there.is_file() => return Err(io::Error::other("there is something that is no file")),
            there => there.is_ok(),
        };
        let (bytes, note) = paths(&target);
        let noted = own(&note, File::options().read(true))?.map(read_note).transpose()?.flatten();
        let noted = noted.filter(|note| note.url == url);
        let file = if noted.is_some() || (vouched && !is_there) { open(&bytes)? } else { None };
        let is_own = file.is_none() && vouched && is_there;
        let have = match &file {
            Some(file) => file.metadata()?.len(),
            None if is_own => vouched_for(&target)?.metadata()?.len(),
            None => 0,
        };
        let noted = noted.filter(|_| file.is_some());
        let version = noted.as_ref().and_then(|note| Version::new(&note.etag, note.length));
        let continues = is_there && noted.as_ref().is_some_and(|note| note.continues);
        let told = noted.as_ref().and_then(|note| Expected::read(note.digest.as_deref()?));
        let source = noted.map(|note| note.source);
        Ok(Self { target, url: url.to_owned(), replaces, file, is_own, continues, have, version, source, told })
    }

    /// How many bytes are there.
    pub const fn have(&self) -> u64 {
        self.have
    }

    /// The version that they are of, as far as that is known.
    pub const fn version(&mut self) -> Option<&mut Version> {
        self.version.as_mut()
    }

    /// What the server said of the whole.
    pub const fn told(&self) -> Option<&Expected> {
        self.told.as_ref()
    }

    /// The server says what the whole must be.
    ///
    /// # Errors
    /// If the disk fails.
    pub fn tell(&mut self, told: Option<Expected>) -> io::Result<()> {
        if told.is_none() || told == self.told {
            return Ok(());
        }
        self.told = told;
        self.write_note()
    }

    /// Another place says what the whole must be, or says nothing of it.
    pub fn tell_instead(&mut self, told: Option<Expected>) {
        self.told = told;
    }

    /// Whether the bytes that are there came from this place, and it can be said of which version they are.
    pub fn is_from(&self, source: &str) -> bool {
        self.have > 0 && self.version.is_some() && self.source.as_deref() == Some(source)
    }

    /// Begins with this version, and forgets what was there of another.
    ///
    /// # Errors
    /// If the disk fails, another process downloads to the same place, or the user's own file is there and may not be replaced.
    pub fn begin(&mut self, version: Option<Version>, source: &str) -> io::Result<()> {
        let continues = self.continues || self.is_own;
        if continues && self.have > 0 && !self.replaces {
            let why = "the server does not continue the file that is there; -o replaces it";
            return Err(io::Error::new(ErrorKind::AlreadyExists, why));
        }
        let file = match self.file.take() {
            Some(file) => file,
            None => make(&paths(&self.target).0)?,
        };
        file.set_len(0)?;
        // An empty file is the beginning of any.
        self.continues = continues && self.have == 0;
        (self.file, self.have, self.is_own) = (Some(file), 0, false);
        self.note(version, source)
    }

    /// Goes on with a copy of the user's own file, which is of this version. The file itself stays until the whole was checked.
    ///
    /// # Errors
    /// As [`Part::begin`].
    pub fn adopt(&mut self, version: Option<Version>, source: &str) -> io::Result<()> {
        if self.is_own {
            let mut file = make(&paths(&self.target).0)?;
            file.set_len(0)?;
            // Some file systems share the bytes of both.
            if io::copy(&mut self.file()?.take(self.have), &mut file)? != self.have {
                return Err(io::Error::other("the file that is there has become shorter"));
            }
            // The note says that they are there.
            file.sync_all()?;
            (self.file, self.is_own, self.continues) = (Some(file), false, true);
        }
        self.note(version, source)
    }

    fn note(&mut self, version: Option<Version>, source: &str) -> io::Result<()> {
        (self.version, self.source, self.told) = (version, Some(source.to_owned()), None);
        self.write_note()
    }

    fn write_note(&self) -> io::Result<()> {
        let path = paths(&self.target).1;
        // Without a tag nobody can continue it after this process.
        match (&self.version, &self.source) {
            (Some(version), Some(source)) => {
                let (url, source, etag) = (self.url.clone(), source.clone(), version.etag().to_owned());
                let (length, continues) = (version.length(), self.continues);
                let digest = self.told.as_ref().map(Expected::field);
                let note = Note { url, source, etag, length, continues, digest };
                replace(&path, &serde_json::to_vec(&note).map_err(io::Error::other)?)
            }
            _ => {
                let _ = fs::remove_file(path);
                Ok(())
            }
        }
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
        self.file.as_ref().map_or_else(|| vouched_for(&self.target), File::try_clone)
    }

    /// Puts the whole in its place, with the mode of the file that it replaces, or else with this one.
    ///
    /// # Errors
    /// If the disk fails, or another file has come to be there.
    pub fn finish(&mut self, mode: u32) -> io::Result<()> {
        let Some(file) = &self.file else { return Ok(()) };
        let (bytes, note) = paths(&self.target);
        let replaced = fs::symlink_metadata(&self.target).ok().filter(fs::Metadata::is_file);
        // With a stranger's mode, others might write to it.
        let replaced = replaced.filter(|replaced| is_strangers(&self.target, replaced).is_ok_and(|is| !is));
        let mode = replaced.map_or(mode, |replaced| replaced.mode() & MODE);
        // Some file systems have no modes.
        let _ = file.set_permissions(Permissions::from_mode(mode));
        file.sync_all()?;
        match self.replaces || self.continues {
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

/// Where a link leads, as other programs write. Whoever may put a link into a folder must not choose what is overwritten: it is followed if it belongs to this user, to root or to the folder's
/// owner, as where the kernel protects links (`protected_symlinks`, proc_sys_fs(5)).
fn followed(target: &Path) -> io::Result<PathBuf> {
    let mut target = target.to_owned();
    for _ in 0..LINKS_MAX {
        let Some(link) = fs::symlink_metadata(&target).ok().filter(fs::Metadata::is_symlink) else {
            let folder = fs::canonicalize(parent(&target)).ok();
            return Ok(folder.and_then(|folder| Some(folder.join(target.file_name()?))).unwrap_or(target));
        };
        if is_strangers(&target, &link)? {
            return Err(io::Error::other(format!("{} is a link that belongs to another user", target.display())));
        }
        target = parent(&target).join(fs::read_link(&target)?);
    }
    Err(Errno::LOOP.into())
}

/// Whether what is there belongs to somebody else than this user, root and the folder's owner, who may choose what the folder has.
fn is_strangers(path: &Path, there: &fs::Metadata) -> io::Result<bool> {
    Ok(![0, geteuid().as_raw(), fs::metadata(parent(path))?.uid()].contains(&there.uid()))
}

/// Opens the file of which the user says that it is the beginning. It may be a file of theirs alone.
fn vouched_for(path: &Path) -> io::Result<File> {
    let file = File::options().read(true).custom_flags(UNAWAITED.bits().cast_signed()).open(path)?;
    let there = file.metadata()?;
    if !there.is_file() || is_strangers(path, &there)? {
        return Err(io::Error::other("what is there belongs to another user"));
    }
    Ok(file)
}

/// Opens the bytes, for this process alone. None: there are none.
fn open(path: &Path) -> io::Result<Option<File>> {
    let file = own(path, File::options().read(true).write(true))?;
    file.map(locked).transpose()
}

/// Opens the bytes, or makes a file for them that is this user's alone.
fn make(path: &Path) -> io::Result<File> {
    match open(path)? {
        Some(file) => Ok(file),
        None => locked(File::options().read(true).write(true).create_new(true).mode(FILE_MODE).open(path)?),
    }
}

fn locked(file: File) -> io::Result<File> {
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(TryLockError::WouldBlock) => Err(io::Error::other("another process downloads to this place")),
        Err(TryLockError::Error(error)) => Err(error),
    }
}

/// Opens a file that nobody but this user has written to. None: there is none.
fn own(path: &Path, options: &mut OpenOptions) -> io::Result<Option<File>> {
    let refused = |why: &dyn fmt::Display| io::Error::other(format!("{}: {why}", path.display()));
    let file = match options.custom_flags(UNAWAITED.bits().cast_signed()).open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(refused(&error)),
    };
    let there = file.metadata()?;
    let why = match there {
        there if !there.is_file() => "it is no file",
        there if there.uid() != geteuid().as_raw() => "it belongs to another user",
        there if there.nlink() != 1 => "it has another name, too",
        there if there.mode() & OTHERS_WRITE != 0 => "other users may write to it",
        _ => return Ok(Some(file)),
    };
    Err(refused(&format_args!("{why}; remove it, or download to another folder")))
}

/// None: it says nothing.
fn read_note(file: File) -> io::Result<Option<Note>> {
    let mut note = Vec::new();
    file.take(NOTE_MAX).read_to_end(&mut note)?;
    Ok(serde_json::from_slice(&note).ok())
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
        assert_eq!(part.finish(0o644).unwrap_err().kind(), ErrorKind::AlreadyExists);
        fs::remove_file(&target).unwrap();
        part.finish(0o644).unwrap();
        assert_eq!(fs::read(&target).unwrap(), b"hello world");
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1, "nothing is left beside it");
    }

    /// A process may end after the last byte, and before it has compared what has come with what the server said.
    #[test]
    fn what_the_server_said_of_the_whole_outlives_the_process() {
        let folder = tempfile::tempdir().unwrap();
        let target = folder.path().join("file");
        let told = Expected::sha256(&"7".repeat(64)).ok();
        let mut part = Part::open(&target, URL, false, false).unwrap();
        part.begin(version(), URL).unwrap();
        part.tell(told.clone()).unwrap();
        part.append(b"hello world").unwrap();
        drop(part);
        let mut part = Part::open(&target, URL, false, false).unwrap();
        assert_eq!(part.told().cloned(), told);
        part.begin(version(), URL).unwrap();
        assert_eq!(part.told(), None, "of another version nothing is known");
    }

    #[test]
    fn a_users_own_file_stays_until_the_whole_is_there() {
        let folder = tempfile::tempdir().unwrap();
        let target = folder.path().join("file");
        let stays = || assert_eq!(fs::read(&target).unwrap(), b"hello ", "it is as it was");
        fs::write(&target, "hello ").unwrap();
        let mut part = Part::open(&target, URL, true, false).unwrap();
        assert_eq!((part.have(), part.version().is_none(), part.is_from(URL)), (6, true, false));
        assert_eq!(part.begin(version(), URL).unwrap_err().kind(), ErrorKind::AlreadyExists);
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
        for discards in [true, false] {
            let mut part = Part::open(&target, URL, true, false).unwrap();
            part.adopt(version(), URL).unwrap();
            part.append(b"world").unwrap();
            if discards {
                part.discard();
            }
            stays();
        }
        let mut part = Part::open(&target, URL, true, false).unwrap();
        assert_eq!((part.have(), part.is_from(URL)), (11, true));
        assert_eq!(part.begin(version(), URL).unwrap_err().kind(), ErrorKind::AlreadyExists);
        stays();
        part.finish(0o644).unwrap();
        assert_eq!(fs::read(&target).unwrap(), b"hello world");
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1, "nothing is left beside it");
        fs::write(&target, "").unwrap();
        let mut part = Part::open(&target, URL, true, false).unwrap();
        part.begin(version(), URL).unwrap();
        part.finish(0o644).unwrap();
    }

    #[test]
    fn what_others_may_have_written_is_no_beginning() {
        use rustix::fs::{FileType, Mode, mknodat};
        let folder = tempfile::tempdir().unwrap();
        let (target, other) = (folder.path().join("file"), folder.path().join("other"));
        let mut part = Part::open(&target, URL, false, false).unwrap();
        part.begin(version(), URL).unwrap();
        part.append(b"hello ").unwrap();
        drop(part);
        let (bytes, note) = paths(&target);
        for path in [&bytes, &note] {
            let refuses = |why: &str| {
                let error = Part::open(&target, URL, false, false).unwrap_err().to_string();
                assert!(error.contains(why) && error.contains(&path.display().to_string()), "{error}");
            };
            assert_eq!(fs::metadata(path).unwrap().mode() & 0o7777, FILE_MODE);
            for mode in [0o620, 0o602] {
                fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
                refuses("other users may write to it");
            }
            fs::set_permissions(path, Permissions::from_mode(0o644)).unwrap();
            fs::hard_link(path, &other).unwrap();
            refuses("it has another name, too");
            fs::rename(path, folder.path().join("kept")).unwrap();
            fs::remove_file(&other).unwrap();
            // A note is not waited for.
            mknodat(CWD, path, FileType::Fifo, Mode::from_raw_mode(0o600), 0).unwrap();
            refuses("it is no file");
            fs::rename(folder.path().join("kept"), path).unwrap();
            assert_eq!(Part::open(&target, URL, false, false).unwrap().have(), 6);
            fs::set_permissions(path, Permissions::from_mode(FILE_MODE)).unwrap();
        }
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
        part.finish(0o644).unwrap();
        assert_eq!(fs::read(at("victim")).unwrap(), b"written");
        assert!(fs::symlink_metadata(at("link")).unwrap().is_symlink());
    }
}
