//! A spool's folder seen from outside, as an operator's commands do: [`View`] for looking, [`check`] for finding and mending damage.
//!
//! A view is of a *copy* of the index, made so that it is whole even while a gateway writes: the gateway's own index admits nobody
//! else. So looking changes nothing in the folder, whatever its format. Only mending does, and needs the folder for itself.

use crate::disk::checksums::{Grid, Part};
use crate::disk::lock::Lock;
use crate::disk::segments::{self, Body};
use crate::index::schema::FORMAT;
use crate::index::{Index, IndexOpenError, KeptFile};
use crate::model::error::{OpenError, StoreError};
use crate::model::spoilt::Spoilt;
use crate::model::upload::{Reason, Upload};
use crate::receive::payload::{Payload, Sealed};
use crate::spool::SEGMENTS;
use hoop_units::{ByteRange, RangeSet, UnixTime, UploadId};
use parking_lot::{Mutex, MutexGuard};
use std::fmt;
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Read as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

/// A copy of the index is tried so often. It is in vain only if the gateway begins its log anew in the middle, which it does after a
/// megabyte of changes.
const COPIES_MAX: usize = 20;

/// A spool's folder, for looking.
#[derive(Clone)]
pub struct View {
    outside: Arc<Outside>,
    in_use: bool,
}

/// The folder and an index of it.
struct Outside {
    folder: PathBuf,
    grid: Grid,
    index: Mutex<Index>,
    /// Where the copy of the index lies.
    _copy: Option<Scratch>,
    /// The folder is ours as long as this is open.
    _lock: Option<Lock>,
}

impl Outside {
    fn index(&self) -> MutexGuard<'_, Index> {
        self.index.lock()
    }

    fn file(&self, id: UploadId) -> PathBuf {
        self.folder.join("uploads").join(&id.to_hex()[..2]).join(format!("{id}.z"))
    }

    fn segments(&self) -> PathBuf {
        self.folder.join("uploads").join(SEGMENTS)
    }

    fn body(&self, id: UploadId, kept: &KeptFile) -> io::Result<Body> {
        match kept.extent {
            Some(extent) => Body::look(&self.segments(), extent, kept.total),
            None => hoop_files::open_plain(&self.file(id), OpenOptions::new().read(true)).map(Body::Own),
        }
    }
}

impl Sealed for Outside {
    fn grid(&self) -> Grid {
        self.grid
    }

    fn sums(&self, seq: i64, part: u64) -> Result<Part, StoreError> {
        self.index().sums(seq, part)
    }
}

impl View {
    /// Looks at a folder; `first_record` as in [`crate::Settings`].
    ///
    /// # Errors
    /// If there is no spool, of a later format, or it cannot be read.
    pub fn open(folder: &Path, first_record: u64) -> Result<Self, OpenError> {
        // Held for a moment only, to know whether somebody else has it.
        let in_use = match existing(folder).and_then(|()| Lock::take(folder)) {
            Ok(_) => false,
            Err(OpenError::Locked(_)) => true,
            Err(error) => return Err(error),
        };
        let outside = Outside::of_copy(folder, first_record, None)?;
        Ok(Self { outside: Arc::new(outside), in_use })
    }

    /// Whether a gateway has the folder: then this is how it was a moment ago.
    pub const fn is_in_use(&self) -> bool {
        self.in_use
    }

    /// What is recorded of an upload.
    ///
    /// # Errors
    /// If the index fails.
    pub fn get(&self, id: UploadId) -> Result<Option<Upload>, StoreError> {
        self.outside.index().get(id)
    }

    /// The next upload in the order of arrival after `seq`, and its own `seq`; begin with 0.
    ///
    /// # Errors
    /// If the index fails, or its row means nothing.
    pub fn after(&self, seq: i64) -> Result<Option<(i64, Upload)>, StoreError> {
        match self.outside.index().after(seq)? {
            Some((seq, _, upload)) => Ok(Some((seq, upload?))),
            None => Ok(None),
        }
    }

    /// The stored bytes of an upload that keeps them.
    ///
    /// # Errors
    /// If there is no such file, or the index fails.
    pub fn payload(&self, id: UploadId) -> Result<Payload, StoreError> {
        let kept = self.outside.index().kept_file(id)?.ok_or(crate::receive::intake::PAYLOAD_GONE)?;
        let body = self.outside.body(id, &kept)?;
        Ok(Payload::new(self.outside.clone(), body, kept))
    }
}

impl fmt::Debug for View {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("View").field("folder", &self.outside.folder).finish_non_exhaustive()
    }
}

impl Outside {
    fn of_copy(folder: &Path, first_record: u64, lock: Option<Lock>) -> Result<Self, OpenError> {
        let failed = |source| OpenError::Folder { path: folder.to_owned(), source };
        let copy = Scratch::new().map_err(failed)?;
        copy_index(folder, &copy.0).map_err(failed)?;
        let index = open_index(folder, &copy.0.join("index.db"), false)?;
        Ok(Self::new(folder, first_record, index, Some(copy), lock))
    }

    fn new(folder: &Path, first_record: u64, index: Index, copy: Option<Scratch>, lock: Option<Lock>) -> Self {
        let (folder, grid) = (folder.to_owned(), Grid { prelude: first_record });
        Self { folder, grid, index: Mutex::new(index), _copy: copy, _lock: lock }
    }
}

fn open_index(folder: &Path, path: &Path, sync: bool) -> Result<Index, OpenError> {
    Index::open(path, sync, false).map_err(|error| match error {
        IndexOpenError::Later(found) => OpenError::Later { path: folder.to_owned(), found, known: FORMAT },
        IndexOpenError::Sqlite(source) => OpenError::Index { path: folder.to_owned(), source },
        IndexOpenError::Journal(source) => OpenError::Folder { path: folder.to_owned(), source },
    })
}

/// Whether there is a spool at all: looking makes none.
fn existing(folder: &Path) -> Result<(), OpenError> {
    let failed = |source| OpenError::Folder { path: folder.to_owned(), source };
    fs::metadata(folder.join("index.db")).map(|_| ()).map_err(failed)
}

/// A folder for a copy, removed with this.
struct Scratch(PathBuf);

impl Scratch {
    fn new() -> io::Result<Self> {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("hoop-spool-{}-{number}", std::process::id()));
        DirBuilder::new().mode(0o700).create(&path)?;
        Ok(Self(path))
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Copies the journal, the index and its log while they may be written. The journal comes first: what it has is in the copy of the index if it was begun anew
/// meanwhile. A log only grows until it is begun anew, with another salt in its header; so
/// whatever moved from the log into the index meanwhile is in the copy of the log too, if that salt stayed.
fn copy_index(folder: &Path, to: &Path) -> io::Result<()> {
    let (index, log) = (folder.join("index.db"), folder.join("index.db-wal"));
    for _ in 0..COPIES_MAX {
        let before = log_salt(&log)?;
        copy_if_there(&folder.join("journal"), &to.join("journal"))?;
        fs::copy(&index, to.join("index.db"))?;
        copy_if_there(&log, &to.join("index.db-wal"))?;
        if log_salt(&log)? == before {
            return Ok(());
        }
    }
    Err(io::Error::other("the index changes too fast to be read"))
}

fn copy_if_there(from: &Path, to: &Path) -> io::Result<()> {
    match fs::copy(from, to) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            let _ = fs::remove_file(to);
            Ok(())
        }
        copied => copied.map(drop),
    }
}

/// The log's header, which holds its salts; `None` without a log.
fn log_salt(log: &Path) -> io::Result<Option<[u8; 32]>> {
    let mut header = [0; 32];
    match File::open(log).and_then(|mut file| file.read_exact(&mut header)) {
        Ok(()) => Ok(Some(header)),
        Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::UnexpectedEof) => Ok(None),
        Err(error) => Err(error),
    }
}

/// One thing that is not as it should be.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Finding {
    /// Which kind.
    pub what: Damage,
    /// The upload that it is about.
    pub id: Option<UploadId>,
    /// This occurrence, in words.
    pub detail: String,
    /// Whether it has been put right.
    pub repaired: bool,
}

/// Kinds of findings.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Damage {
    /// SQLite finds its file damaged. Cannot be repaired.
    Index,
    /// A row means nothing. Cannot be repaired.
    Row,
    /// A sum that triggers keep is not the rows' own. Repaired by counting.
    Sums,
    /// An upload's file is not there. Repaired: all of it is missing, and may be brought again. What is no plain file
    /// is left in its place, and not repaired.
    FileMissing,
    /// Records are not as they were written, or cannot be read. Repaired: they are missing, and may be brought again.
    /// What the file has of them stays in it.
    Spoilt,
    /// A file that no row counts: left by a crash, and harmless. Repaired by removing it.
    Orphan,
}

impl Damage {
    /// Its name in what `hoop spool check` prints.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Index => "index-damaged",
            Self::Row => "row-damaged",
            Self::Sums => "sums-wrong",
            Self::FileMissing => "file-missing",
            Self::Spoilt => "spoilt",
            Self::Orphan => "orphan",
        }
    }
}

/// What a check came to.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Checked {
    /// Uploads in the index.
    pub uploads: u64,
    /// Bytes of them that are stored here.
    pub stored: u64,
    /// Things that are not as they should be.
    pub findings: u64,
    /// Those of them that have been put right.
    pub repaired: u64,
}

/// Compares everything in a folder with everything else: the index with itself, files with rows, bytes with checksums, sums with what they
/// sum up. Reads all that is stored. With `repair`, what can be is put right; without, nothing in the folder changes. `on` is
/// told each finding.
///
/// # Errors
/// If the folder is in use, or cannot be read at all.
pub fn check(
    folder: &Path,
    first_record: u64,
    repair: Option<UnixTime>,
    on: &mut dyn FnMut(&Finding),
) -> Result<Checked, OpenError> {
    existing(folder)?;
    let lock = Lock::take(folder)?;
    let outside = match repair {
        None => Outside::of_copy(folder, first_record, Some(lock))?,
        Some(_) => {
            let index = open_index(folder, &folder.join("index.db"), true)?;
            Outside::new(folder, first_record, index, None, Some(lock))
        }
    };
    let mut check = Check { outside: Arc::new(outside), repair, on, checked: Checked::default() };
    check.run().map_err(|error| match error {
        StoreError::File(source) => OpenError::Folder { path: folder.to_owned(), source },
        StoreError::Index(source) => OpenError::Index { path: folder.to_owned(), source },
        StoreError::Damaged(what) => OpenError::Folder { path: folder.to_owned(), source: io::Error::other(what) },
    })?;
    Ok(check.checked)
}

struct Check<'a> {
    outside: Arc<Outside>,
    repair: Option<UnixTime>,
    on: &'a mut dyn FnMut(&Finding),
    checked: Checked,
}

impl Check<'_> {
    fn run(&mut self) -> Result<(), StoreError> {
        let damage = self.outside.index().integrity()?;
        damage.into_iter().for_each(|detail| self.found(Damage::Index, None, detail, false));
        let mut last = 0;
        loop {
            let next = self.outside.index().after(last)?;
            let Some((seq, has_file, upload)) = next else { break };
            last = seq;
            self.checked.uploads += 1;
            match upload {
                Ok(upload) if has_file => self.payload(&upload)?,
                Ok(_) => {}
                Err(error) => self.found(Damage::Row, None, format!("row {seq}: {error}"), false),
            }
        }
        self.orphans()?;
        let wrong = self.outside.index().wrong_sums()?;
        if !wrong.is_empty() && self.repair.is_some() {
            self.outside.index().recount()?;
        }
        wrong.iter().for_each(|name| {
            let detail = format!("{name} is not what the rows come to");
            self.found(Damage::Sums, None, detail, self.repair.is_some());
        });
        Ok(())
    }

    fn found(&mut self, what: Damage, id: Option<UploadId>, detail: String, repaired: bool) {
        self.checked.findings += 1;
        self.checked.repaired += u64::from(repaired);
        (self.on)(&Finding { what, id, detail, repaired });
    }

    /// An upload's file, and every record in it.
    fn payload(&mut self, upload: &Upload) -> Result<(), StoreError> {
        self.checked.stored += upload.stored.len();
        let kept = self.outside.index().kept_file(upload.id)?.ok_or(crate::receive::intake::PAYLOAD_GONE)?;
        let body = match self.outside.body(upload.id, &kept) {
            Ok(body) => body,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                if self.repair.is_some() {
                    self.make_empty(upload.id, &kept)?;
                }
                return self.missing(Damage::FileMissing, upload, &upload.stored, "its file is not there");
            }
            // It is none of ours, and may lead anywhere.
            Err(error) if hoop_files::is_not_plain(&error) => {
                let detail = "what is in its file's place is no plain file; remove it, and check again".to_owned();
                self.found(Damage::FileMissing, Some(upload.id), detail, false);
                return Ok(());
            }
            Err(error) => return Err(error.into()),
        };
        let len = body.len()?;
        let payload = Payload::new(self.outside.clone(), body, kept);
        let mut spoilt = Spoilt::default();
        for span in upload.stored.iter() {
            let found = payload.spoilt(span)?;
            found.wrong.iter().for_each(|range| spoilt.wrong.insert(range));
            found.unreadable.iter().for_each(|range| spoilt.unreadable.insert(range));
            // Of records without checksums this much can be said.
            if len < span.end {
                let first = payload.border_at(len.max(span.start));
                spoilt.wrong.insert(ByteRange::new(first.max(span.start), span.end));
            }
        }
        if spoilt.is_empty() {
            return Ok(());
        }
        let detail = match (&spoilt.wrong, &spoilt.unreadable) {
            (wrong, unreadable) if unreadable.is_empty() => format!("bytes {wrong} are not as they were written"),
            (wrong, unreadable) if wrong.is_empty() => format!("bytes {unreadable} cannot be read"),
            (wrong, unreadable) => {
                format!("bytes {wrong} are not as they were written, and bytes {unreadable} cannot be read")
            }
        };
        self.missing(Damage::Spoilt, upload, &spoilt.all(), &detail)
    }

    /// Makes an empty file, which what comes again is written to.
    fn make_empty(&self, id: UploadId, kept: &KeptFile) -> io::Result<()> {
        let path = match kept.extent {
            Some(extent) => segments::path(&self.outside.segments(), extent.segment),
            None => self.outside.file(id),
        };
        OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path)?.sync_all()?;
        File::open(path.parent().unwrap_or(&self.outside.folder))?.sync_all()
    }

    fn missing(&mut self, what: Damage, upload: &Upload, lost: &RangeSet, detail: &str) -> Result<(), StoreError> {
        if let Some(now) = self.repair {
            let reason = format!("{detail} on this gateway's disk; they have to be brought again");
            self.outside.index().spoil(upload.id, lost, &Reason::new("spool-damaged", reason), now)?;
        }
        self.found(what, Some(upload.id), detail.to_owned(), self.repair.is_some());
        Ok(())
    }

    /// Files that no row counts.
    fn orphans(&mut self) -> Result<(), StoreError> {
        self.orphaned_segments()?;
        for shard in 0..=255_u8 {
            let folder = self.outside.folder.join("uploads").join(format!("{shard:02x}"));
            let entries = match fs::read_dir(folder) {
                Ok(entries) => entries,
                Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                Err(error) => return Err(error.into()),
            };
            for entry in entries {
                let entry = entry?;
                let name = entry.file_name();
                let id = name.to_str().and_then(|name| name.strip_suffix(".z")).and_then(|id| id.parse().ok());
                let Some(id) = id.filter(|id| !self.outside.index().has_own_file(*id).unwrap_or(true)) else {
                    continue;
                };
                let detail = format!("a file of {} bytes that no upload counts", entry.metadata()?.len());
                if self.repair.is_some() {
                    fs::remove_file(entry.path())?;
                }
                self.found(Damage::Orphan, Some(id), detail, self.repair.is_some());
            }
        }
        Ok(())
    }

    /// Segments that have no upload.
    fn orphaned_segments(&mut self) -> Result<(), StoreError> {
        let numbers = match segments::numbers(&self.outside.segments()) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Vec::new(),
            numbers => numbers?,
        };
        for number in numbers {
            if self.outside.index().has_segment(number)? {
                continue;
            }
            let path = segments::path(&self.outside.segments(), number);
            let detail =
                format!("segment {number} has {} bytes, and no upload counts them", fs::symlink_metadata(&path)?.len());
            if self.repair.is_some() {
                fs::remove_file(path)?;
            }
            self.found(Damage::Orphan, None, detail, self.repair.is_some());
        }
        Ok(())
    }
}
