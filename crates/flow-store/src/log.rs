//! A log of entries in segments: [`Log`]. `docs/flow-store.md` §4 has the format byte by byte.
//!
//! Only the last segment may hold bytes that are not synced: a new one begins once the one before it is. What is not needed any more goes with the oldest
//! segment, after what is still needed of it was appended again: so nothing comes back whose removal was written down later.

use hoop_flow::{DeviceId, FlowId, FlowName};
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io;
#[cfg(target_os = "linux")]
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::{FileExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The format of segments.
pub const VERSION: u16 = 1;

const MAGIC: &[u8; 8] = b"hoopflow";

/// Bytes of a segment's head.
const HEAD: u32 = 32;

/// Bytes before what an entry holds.
const ENTRY_HEAD: usize = 12;

/// Entries begin at multiples of it.
pub const ALIGN: u64 = 16;

/// The most that an entry holds: 64 KiB of a stream, and what they are.
pub const ENTRY_MAX: usize = 65_536 + 64;

/// Positions count this much for each segment, which may be shorter.
const SEGMENT_BITS: u32 = 24;

/// The longest segment.
pub const SEGMENT_MAX: u32 = 1 << SEGMENT_BITS;

/// So many segments there may be: places of 31 bits in units of 16 bytes reach over 2,048.
const SEGMENTS_MAX: usize = 1_500;

/// So much is written at once; what waits for that is in memory.
const BUFFER: usize = 256 * 1024;

/// What is read at once of entries that are read one after another, and of others: most records are shorter.
const READ_AHEAD: usize = 64 * 1024;
const READ_ONE: usize = 512;

/// Bytes that are nothing: a hole that a power cut has left.
const PAD: u8 = 0;

/// What lies before an offset of this segment is synced. It tells what a power cut may have left from what the disk has spoilt.
const MARK: u8 = 1;

// Numbers from 2 on are the owner's.

/// One of the two logs, so that a file in the wrong folder is noticed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// Flows.
    Flows = 1,
    /// What devices have sent.
    Bytes = 2,
}

/// An entry that was read.
#[derive(Debug)]
pub struct Entry<'a> {
    pub position: u64,
    pub kind: u8,
    pub bytes: &'a [u8],
}

impl Entry<'_> {
    /// What it takes in the log.
    pub fn len(&self) -> u64 {
        entry_len(self.bytes.len())
    }
}

/// What names are in both logs: host(20), flow(8).
pub fn name_of(bytes: &[u8; 28]) -> FlowName {
    let (mut host, mut flow) = ([0; 20], [0; 8]);
    host.copy_from_slice(&bytes[..20]);
    flow.copy_from_slice(&bytes[20..]);
    FlowName { device: DeviceId(host), flow: FlowId(u64::from_be_bytes(flow)) }
}

/// What an entry of so many bytes takes.
pub fn entry_len(bytes: usize) -> u64 {
    ((ENTRY_HEAD + bytes) as u64).next_multiple_of(ALIGN)
}

/// What is not as it was written.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Damage {
    /// Where.
    pub file: PathBuf,
    /// From which byte on.
    pub offset: u64,
    /// How many.
    pub bytes: u64,
    /// What.
    pub what: &'static str,
}

/// A log cannot be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// A folder or a file cannot be used.
    #[error("cannot use {}: {source}", path.display())]
    Folder {
        /// Which.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// Another process has it.
    #[error("{} is in use by another process", .0.display())]
    Locked(PathBuf),
    /// Made by a later version.
    #[error("{} has format {found}, and this version knows formats up to {VERSION}", path.display())]
    Later {
        /// The file.
        path: PathBuf,
        /// Its format.
        found: u16,
    },
    /// It is no file of this store.
    #[error("{} is of another log", .0.display())]
    Foreign(PathBuf),
}

impl OpenError {
    pub(crate) fn at(path: &Path) -> impl FnOnce(io::Error) -> Self {
        move |source| Self::Folder { path: path.into(), source }
    }
}

#[derive(Clone, Debug)]
struct Segment {
    file: Arc<File>,
    /// Of the salt and the number: where the checksums of its entries begin.
    seed: u32,
    /// Bytes that were written.
    len: u32,
}

/// See the module.
#[derive(Debug)]
pub struct Log {
    folder: PathBuf,
    kind: Kind,
    segment_len: u32,
    segments: BTreeMap<u32, Segment>,
    /// Of the last segment, behind what was written.
    buffer: Vec<u8>,
    synced: u64,
    mark_is_due: bool,
    /// Nothing may be written behind what the last segment has any more.
    is_broken: bool,
    /// A sync failed at a segment's end, and what was written since the one before is lost: nobody was told yet.
    has_failed: bool,
    /// The last segment once more: a kernel tells each opened file once that it could not write, and this one syncs beside others.
    roller: Option<File>,
    live: u64,
    /// Its last copies are synced once this position is: then it may go.
    leaving: Option<(u32, u64)>,
    salt: fn() -> u64,
    window: RefCell<Window>,
}

/// What was read last of a segment. What is written there stays as it is.
#[derive(Default, Debug)]
struct Window {
    number: u32,
    begin: u32,
    bytes: Vec<u8>,
}

impl Window {
    /// What it has from an offset on.
    fn from(&self, number: u32, offset: u32) -> &[u8] {
        let at = offset.checked_sub(self.begin).filter(|_| number == self.number);
        at.and_then(|at| self.bytes.get(at as usize..)).unwrap_or_default()
    }

    /// Whether what lies at an offset follows on what it has, or lies near its end.
    fn is_followed_by(&self, number: u32, offset: u32) -> bool {
        let end = self.begin + self.bytes.len() as u32;
        number == self.number && offset > self.begin && offset <= end
    }
}

/// A file's head, read.
struct Head {
    seed: u32,
    before: u32,
}

impl Log {
    /// Opens what is in a folder, or begins there. Tells `visit` each entry, the oldest first. What is torn behind what was synced is cut off or painted over; what is damaged stays and is named.
    pub fn open(
        folder: &Path,
        kind: Kind,
        segment_len: u32,
        salt: fn() -> u64,
        mut visit: impl FnMut(&mut Self, &Entry<'_>),
    ) -> Result<(Self, Vec<Damage>), OpenError> {
        hoop_files::folder(folder).map_err(io::Error::from).map_err(OpenError::at(folder))?;
        let mut log = Self {
            folder: folder.into(),
            kind,
            segment_len: segment_len.clamp(2 * ENTRY_MAX as u32, SEGMENT_MAX),
            segments: BTreeMap::new(),
            buffer: Vec::new(),
            synced: 0,
            mark_is_due: false,
            is_broken: false,
            has_failed: false,
            roller: None,
            live: 0,
            leaving: None,
            salt,
            window: RefCell::default(),
        };
        let mut damages = Vec::new();
        let files = read_folder(folder, kind, &mut damages)?;
        for (at, file) in files.iter().enumerate() {
            let next = files.get(at + 1);
            log.open_segment(file, next, &mut damages, &mut visit).map_err(OpenError::at(&file.path))?;
        }
        log.drop_empty().map_err(OpenError::at(folder))?;
        let last = log.segments.last_key_value().map(|(number, _)| *number);
        let damaged = files.iter().rfind(|file| file.head.is_none()).map(|file| file.number);
        log.begin(last.max(damaged).unwrap_or(0) + 1).map_err(OpenError::at(folder))?;
        Ok((log, damages))
    }

    fn open_segment(
        &mut self,
        found: &Found,
        next: Option<&Found>,
        damages: &mut Vec<Damage>,
        visit: &mut impl FnMut(&mut Self, &Entry<'_>),
    ) -> io::Result<()> {
        let is_last = next.is_none();
        let file = OpenOptions::new().read(true).write(is_last).open(&found.path)?;
        let Some(head) = &found.head else { return Ok(()) };
        let bytes = fs::read(&found.path)?;
        let end = scan_end(&bytes, next);
        let segment = Segment { file: Arc::new(file), seed: head.seed, len: end as u32 };
        self.segments.insert(found.number, segment.clone());
        let mut entries = Vec::new();
        let scan = scan(head.seed, &bytes[..end], |entry| entries.push(entry));
        for (offset, kind, len) in entries {
            let position = position(found.number, offset);
            let bytes = &bytes[offset as usize + ENTRY_HEAD..][..len];
            visit(self, &Entry { position, kind, bytes });
        }
        damages.extend(scan.damages(&found.path, is_last, end));
        if is_last {
            scan.heal(&segment)?;
            let segment = self.segments.get_mut(&found.number).expect("it was put there");
            segment.len = scan.valid_end;
        }
        Ok(())
    }

    /// The last ones in which nothing is need not stay.
    fn drop_empty(&mut self) -> io::Result<()> {
        while let Some((number, segment)) = self.segments.last_key_value()
            && segment.len <= HEAD
        {
            let number = *number;
            fs::remove_file(self.path(number))?;
            self.segments.remove(&number);
        }
        File::open(&self.folder)?.sync_all()
    }

    fn path(&self, number: u32) -> PathBuf {
        self.folder.join(format!("{number:08x}"))
    }

    fn head(&self) -> (u32, &Segment) {
        let (number, segment) = self.segments.last_key_value().expect("a log has a segment");
        (*number, segment)
    }

    /// Begins a segment, behind one that is synced.
    fn begin(&mut self, number: u32) -> io::Result<()> {
        let path = self.path(number);
        let before = self.segments.last_key_value().map_or(0, |(_, segment)| segment.len);
        let salt = (self.salt)();
        let head = head(self.kind, number, salt, before);
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(true)
            .mode(hoop_files::FILE_MODE)
            .open(&path)?;
        let written = file.write_all_at(&head, 0).and_then(|()| file.sync_all());
        let roller = match written.and_then(|()| File::open(&self.folder)?.sync_all()).and_then(|()| File::open(&path))
        {
            Ok(roller) => roller,
            Err(error) => {
                let _ = fs::remove_file(&path);
                return Err(error);
            }
        };
        self.roller = Some(roller);
        self.segments.insert(number, Segment { file: Arc::new(file), seed: seed(number, salt), len: HEAD });
        (self.synced, self.mark_is_due, self.is_broken) = (position(number, HEAD), false, false);
        Ok(())
    }

    /// The position behind the last entry.
    pub fn end(&self) -> u64 {
        let (number, segment) = self.head();
        position(number, segment.len + self.buffer.len() as u32)
    }

    /// All before it outlives a power cut.
    pub const fn synced(&self) -> u64 {
        self.synced
    }

    /// Bytes of all segments.
    pub fn total(&self) -> u64 {
        self.segments.values().map(|segment| u64::from(segment.len)).sum::<u64>() + self.buffer.len() as u64
    }

    /// An entry of so many bytes is needed, after [`Log::open`] has told of it.
    pub const fn needs(&mut self, bytes: u64) {
        self.live += bytes;
    }

    /// So many bytes are needed no more.
    pub const fn release(&mut self, bytes: u64) {
        self.live = self.live.saturating_sub(bytes);
    }

    /// Appends an entry that is needed until it is [released](Log::release). It is written before long, and synced when that is asked for.
    pub fn append(&mut self, kind: u8, parts: &[&[u8]]) -> io::Result<u64> {
        let len: usize = parts.iter().map(|part| part.len()).sum();
        debug_assert!(len <= ENTRY_MAX, "an entry has a bound");
        if self.buffer.len() >= BUFFER {
            self.flush()?;
        }
        let need = entry_len(len) as u32 + ALIGN as u32;
        if self.is_broken || self.head().1.len + self.buffer.len() as u32 + need > self.segment_len {
            self.roll()?;
        }
        if std::mem::take(&mut self.mark_is_due) {
            let synced = (self.synced - position(self.head().0, 0)) as u32;
            self.push(MARK, &[&synced.to_be_bytes()]);
        }
        self.live += entry_len(len);
        Ok(self.push(kind, parts))
    }

    fn push(&mut self, kind: u8, parts: &[&[u8]]) -> u64 {
        let (number, segment) = self.head();
        let (offset, seed, start) = (segment.len + self.buffer.len() as u32, segment.seed, self.buffer.len());
        let len: usize = parts.iter().map(|part| part.len()).sum();
        self.buffer.extend_from_slice(&[0; 4]);
        self.buffer.extend_from_slice(&(len as u32).to_be_bytes());
        self.buffer.extend_from_slice(&[kind, 0, 0, 0]);
        parts.iter().for_each(|part| self.buffer.extend_from_slice(part));
        let sum = checksum(seed, offset, &self.buffer[start + 4..]);
        self.buffer[start..start + 4].copy_from_slice(&sum.to_be_bytes());
        self.buffer.resize(start + entry_len(len) as usize, 0);
        position(number, offset)
    }

    /// Writes what waits. If that fails it waits on, and is written at the same place.
    pub fn flush(&mut self) -> io::Result<()> {
        if self.buffer.is_empty() {
            return Ok(());
        }
        if self.is_broken {
            return self.roll();
        }
        let segment = self.segments.last_entry().expect("a log has a segment").into_mut();
        segment.file.write_all_at(&self.buffer, segment.len.into())?;
        begin_writing(&segment.file, segment.len, self.buffer.len());
        segment.len += self.buffer.len() as u32;
        self.buffer.clear();
        self.buffer.shrink_to(2 * BUFFER);
        Ok(())
    }

    /// Syncs the last segment, and begins another.
    fn roll(&mut self) -> io::Result<()> {
        if self.segments.len() >= SEGMENTS_MAX {
            return Err(io::Error::new(io::ErrorKind::StorageFull, "the log has as many segments as it may"));
        }
        if self.has_failed {
            return Err(io::Error::other("a sync failed at the end of the segment"));
        }
        let number = self.head().0;
        if !self.is_broken {
            self.flush()?;
            let synced = self.roller.as_ref().map_or(Ok(()), File::sync_data);
            self.has_failed |= synced.is_err();
            synced?;
        }
        self.begin(number + 1)
    }

    /// What to sync, and up to where everything is synced then.
    pub fn begin_sync(&mut self) -> io::Result<Option<(Arc<File>, u64)>> {
        self.flush()?;
        let end = self.end();
        Ok((self.synced < end).then(|| (self.head().1.file.clone(), end)))
    }

    /// That was synced.
    pub fn did_sync(&mut self, end: u64) {
        // Another segment has begun meanwhile: it did that itself.
        if end > self.synced {
            (self.synced, self.mark_is_due) = (end, true);
        }
    }

    /// Whether a sync at a segment's end has failed since this was asked last: [`Log::did_not_sync`] is to follow.
    pub const fn take_failure(&mut self) -> bool {
        std::mem::replace(&mut self.has_failed, false)
    }

    /// For tests: a sync has failed.
    #[cfg(test)]
    pub const fn fail(&mut self) {
        self.has_failed = true;
    }

    /// For tests: what is synced at the segment's end; `/dev/null` cannot be.
    #[cfg(test)]
    pub fn sync_at_the_end(&mut self, path: &Path) {
        self.roller = File::open(path).ok();
    }

    /// A sync failed that was begun when all before `synced` was: what was written since is lost, for who knows what the disk has of it. Nothing follows on it.
    pub fn did_not_sync(&mut self) {
        let (number, synced) = (self.head().0, self.synced);
        let segment = self.segments.last_entry().expect("a log has a segment").into_mut();
        if synced >= position(number, HEAD) {
            segment.len = (synced - position(number, 0)) as u32;
            let _ = segment.file.set_len(segment.len.into());
        }
        self.buffer.clear();
        self.window.take();
        (self.is_broken, self.leaving) = (true, None);
    }

    /// Reads the entry at a position. `None`: it is not what was written.
    pub fn read(&self, at: u64) -> io::Result<Option<(u8, Vec<u8>)>> {
        let (number, offset) = split(at);
        let Some(segment) = self.segments.get(&number) else { return Ok(None) };
        let mut window = self.window.borrow_mut();
        self.fill(&mut window, number, segment, offset, ENTRY_HEAD)?;
        let Some((kind, len)) = entry_head(window.from(number, offset)) else { return Ok(None) };
        self.fill(&mut window, number, segment, offset, ENTRY_HEAD + len)?;
        let bytes = window.from(number, offset);
        if !is_valid(segment.seed, offset, bytes, len) {
            return Ok(None);
        }
        Ok(Some((kind, bytes[ENTRY_HEAD..][..len].to_vec())))
    }

    /// Has the window hold so many bytes from an offset on, if there are as many.
    fn fill(&self, window: &mut Window, number: u32, segment: &Segment, offset: u32, least: usize) -> io::Result<()> {
        if window.from(number, offset).len() >= least {
            return Ok(());
        }
        let len = if window.is_followed_by(number, offset) { READ_AHEAD } else { READ_ONE };
        window.bytes.resize(len.max(least), 0);
        let read = self.read_bytes(number, segment, offset, &mut window.bytes);
        window.bytes.truncate(*read.as_ref().unwrap_or(&0));
        (window.number, window.begin) = (number, offset);
        read.map(drop)
    }

    /// What the entry at a position takes in the log.
    pub fn len_at(&self, at: u64) -> u64 {
        let mut bytes = [0; ENTRY_HEAD];
        let (number, offset) = split(at);
        let Some(segment) = self.segments.get(&number) else { return 0 };
        let have = self.read_bytes(number, segment, offset, &mut bytes).unwrap_or_default();
        entry_head(&bytes[..have]).map_or(0, |(_, len)| entry_len(len))
    }

    fn read_bytes(&self, number: u32, segment: &Segment, offset: u32, into: &mut [u8]) -> io::Result<usize> {
        if offset >= segment.len && number == self.head().0 {
            let rest = self.buffer.get((offset - segment.len) as usize..).unwrap_or_default();
            let len = rest.len().min(into.len());
            into[..len].copy_from_slice(&rest[..len]);
            return Ok(len);
        }
        let most = into.len().min(segment.len.saturating_sub(offset) as usize);
        let mut have = 0;
        while have < most {
            match segment.file.read_at(&mut into[have..most], u64::from(offset) + have as u64)? {
                0 => break,
                more => have += more,
            }
        }
        Ok(have)
    }

    /// A place of 31 bits.
    pub const fn place(position: u64) -> u32 {
        (position / ALIGN) as u32 & (u32::MAX >> 1)
    }

    /// The position of a place, of what the log holds now.
    pub fn position(&self, place: u32) -> u64 {
        let first = self.segments.first_key_value().map_or(0, |(number, _)| position(*number, 0) / ALIGN);
        let ahead = place.wrapping_sub(first as u32) & (u32::MAX >> 1);
        (first + u64::from(ahead)) * ALIGN
    }

    // ---- tidying ----

    /// Whether much of what the log holds is needed no more. `more` bytes are needed that were released.
    pub fn is_untidy(&self, more: u64) -> bool {
        let needed = (self.live + more).div_ceil(self.segment_len.into()) as usize;
        self.leaving.is_none() && self.segments.len() > 8 + 2 * needed
    }

    /// The oldest segment's entries, to be appended again if they are needed; the segment goes once these are synced ([`Log::tidied`]).
    pub fn oldest(&self) -> io::Result<Oldest> {
        let (number, segment) = self.segments.first_key_value().expect("a log has a segment");
        let mut bytes = vec![0; segment.len as usize];
        let have = self.read_bytes(*number, segment, 0, &mut bytes)?;
        bytes.truncate(have);
        let mut entries = Vec::new();
        scan(segment.seed, &bytes, |entry| entries.push(entry));
        Ok(Oldest { number: *number, bytes, entries })
    }

    /// All that is needed of the oldest segment is appended again.
    pub fn copied(&mut self, oldest: &Oldest) {
        self.leaving = Some((oldest.number, self.end()));
    }

    /// Takes the oldest segment away, if its copies are synced; whether it did.
    pub fn tidied(&mut self) -> io::Result<bool> {
        let Some((number, _)) = self.leaving.filter(|(_, copied)| *copied <= self.synced) else { return Ok(false) };
        self.leaving = None;
        fs::remove_file(self.path(number))?;
        self.segments.remove(&number);
        // In this order: what a later segment says of this one's entries must not go first.
        File::open(&self.folder)?.sync_all()?;
        Ok(true)
    }
}

/// The oldest segment, read.
pub struct Oldest {
    number: u32,
    bytes: Vec<u8>,
    entries: Vec<(u32, u8, usize)>,
}

impl Oldest {
    /// Its entries, in order.
    pub fn entries(&self) -> impl Iterator<Item = Entry<'_>> {
        self.entries.iter().map(|(offset, kind, len)| Entry {
            position: position(self.number, *offset),
            kind: *kind,
            bytes: &self.bytes[*offset as usize + ENTRY_HEAD..][..*len],
        })
    }
}

/// Says what is damaged in a folder, and changes nothing.
pub fn check(folder: &Path, kind: Kind) -> Result<(u64, Vec<Damage>), OpenError> {
    let (mut damages, mut entries) = (Vec::new(), 0);
    let files = read_folder(folder, kind, &mut damages)?;
    for (at, found) in files.iter().enumerate() {
        let Some(head) = &found.head else { continue };
        let bytes = fs::read(&found.path).map_err(OpenError::at(&found.path))?;
        let end = scan_end(&bytes, files.get(at + 1));
        let scan = scan(head.seed, &bytes[..end], |_| entries += 1);
        damages.extend(scan.damages(&found.path, at + 1 == files.len(), end));
    }
    Ok((entries, damages))
}

/// A file of a folder.
struct Found {
    number: u32,
    path: PathBuf,
    /// If it is one.
    head: Option<Head>,
}

/// Up to where a segment has entries: the next one's head says so.
fn scan_end(bytes: &[u8], next: Option<&Found>) -> usize {
    let told = next.and_then(|next| next.head.as_ref()).map_or(usize::MAX, |head| head.before as usize);
    bytes.len().min(told).max(HEAD as usize).min(bytes.len())
}

fn read_folder(folder: &Path, kind: Kind, damages: &mut Vec<Damage>) -> Result<Vec<Found>, OpenError> {
    let mut files = Vec::new();
    for entry in fs::read_dir(folder).map_err(OpenError::at(folder))? {
        let path = entry.map_err(OpenError::at(folder))?.path();
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        if name.len() == 8
            && let Ok(number) = u32::from_str_radix(name, 16)
        {
            files.push(Found { number, path, head: None });
        }
    }
    files.sort_by_key(|file| file.number);
    // A segment's head is synced before anything follows it: one without is one that a power cut has left half begun, and is begun again.
    let is_half_begun = |file: &Found| {
        let mut bytes = [0; HEAD as usize];
        let opened = File::open(&file.path);
        let len = file.path.metadata().map_or(0, |metadata| metadata.len());
        let read = opened.and_then(|opened| opened.read_exact_at(&mut bytes, 0));
        len < HEAD.into()
            || len == u64::from(HEAD)
                && (read.is_err() || parse_head(&bytes, kind, file.number, &file.path).is_ok_and(|head| head.is_none()))
    };
    files.pop_if(|file| is_half_begun(file));
    for file in &mut files {
        let mut bytes = [0; HEAD as usize];
        let read = File::open(&file.path).and_then(|opened| opened.read_exact_at(&mut bytes, 0));
        if let Err(error) = read
            && error.kind() != io::ErrorKind::UnexpectedEof
        {
            return Err(OpenError::Folder { path: file.path.clone(), source: error });
        }
        file.head = parse_head(&bytes, kind, file.number, &file.path)?;
        if file.head.is_none() {
            let bytes = file.path.metadata().map_or(0, |metadata| metadata.len());
            damages.push(Damage { file: file.path.clone(), offset: 0, bytes, what: "the head of a segment" });
        }
    }
    for pair in files.windows(2) {
        if pair[1].number != pair[0].number + 1 {
            let file = folder.join(format!("{:08x}", pair[0].number + 1));
            damages.push(Damage { file, offset: 0, bytes: 0, what: "a segment is missing" });
        }
        let (len, told) = (pair[0].path.metadata().map_or(0, |metadata| metadata.len()), &pair[1].head);
        if let Some(head) = told.as_ref().filter(|head| u64::from(head.before) > len) {
            let bytes = u64::from(head.before) - len;
            damages.push(Damage { file: pair[0].path.clone(), offset: len, bytes, what: "a segment is cut off" });
        }
    }
    Ok(files)
}

fn head(kind: Kind, number: u32, salt: u64, before: u32) -> [u8; HEAD as usize] {
    let mut head = [0; HEAD as usize];
    head[..8].copy_from_slice(MAGIC);
    head[8..10].copy_from_slice(&VERSION.to_be_bytes());
    head[10..12].copy_from_slice(&(kind as u16).to_be_bytes());
    head[12..16].copy_from_slice(&number.to_be_bytes());
    head[16..24].copy_from_slice(&salt.to_be_bytes());
    head[24..28].copy_from_slice(&before.to_be_bytes());
    let sum = crc32c::crc32c(&head[..28]);
    head[28..].copy_from_slice(&sum.to_be_bytes());
    head
}

fn parse_head(bytes: &[u8; HEAD as usize], kind: Kind, number: u32, path: &Path) -> Result<Option<Head>, OpenError> {
    let sum = u32::from_be_bytes([bytes[28], bytes[29], bytes[30], bytes[31]]);
    if &bytes[..8] != MAGIC || crc32c::crc32c(&bytes[..28]) != sum {
        return Ok(None);
    }
    let found = u16::from_be_bytes([bytes[8], bytes[9]]);
    if found > VERSION {
        return Err(OpenError::Later { path: path.into(), found });
    }
    let named = u32::from_be_bytes([bytes[12], bytes[13], bytes[14], bytes[15]]);
    if u16::from_be_bytes([bytes[10], bytes[11]]) != kind as u16 || named != number {
        return Err(OpenError::Foreign(path.into()));
    }
    let salt = u64::from_be_bytes(bytes[16..24].try_into().expect("eight bytes"));
    let before = u32::from_be_bytes([bytes[24], bytes[25], bytes[26], bytes[27]]);
    Ok(Some(Head { seed: seed(number, salt), before }))
}

/// What a segment was found to hold.
struct Scan {
    /// Bytes that are no entry: from, to.
    holes: Vec<(u32, u32)>,
    /// Behind the last entry.
    valid_end: u32,
    /// The highest mark.
    synced: u32,
}

/// Tells each entry of the owner's: its offset, kind and length.
fn scan(seed: u32, bytes: &[u8], mut tell: impl FnMut((u32, u8, usize))) -> Scan {
    let mut found = Scan { holes: Vec::new(), valid_end: HEAD, synced: HEAD };
    let (mut at, mut hole) = (HEAD as usize, None);
    while at < bytes.len() {
        let entry = entry_head(&bytes[at..]).filter(|(_, len)| is_valid(seed, at as u32, &bytes[at..], *len));
        let Some((kind, len)) = entry else {
            hole.get_or_insert(at as u32);
            at += ALIGN as usize;
            continue;
        };
        if let Some(from) = hole.take() {
            found.holes.push((from, at as u32));
        }
        match kind {
            PAD => {}
            MARK if len == 4 => {
                let bytes = &bytes[at + ENTRY_HEAD..];
                found.synced = found.synced.max(u32::from_be_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]));
            }
            kind => tell((at as u32, kind, len)),
        }
        at += entry_len(len) as usize;
        found.valid_end = at.min(bytes.len()) as u32;
    }
    found
}

impl Scan {
    /// Of the last segment, what is not known to have been synced may be torn.
    fn damages(&self, path: &Path, is_last: bool, end: usize) -> Vec<Damage> {
        let tail = (self.valid_end < end as u32).then_some((self.valid_end, end as u32));
        let holes = self.holes.iter().copied().chain(tail);
        let damaged = holes.filter(|(from, _)| !is_last || *from < self.synced);
        let what = "entries that are not what was written";
        let damage =
            |(from, to): (u32, u32)| Damage { file: path.into(), offset: from.into(), bytes: (to - from).into(), what };
        damaged.map(damage).collect()
    }

    /// Cuts off what is torn, and paints over what lies between entries.
    fn heal(&self, segment: &Segment) -> io::Result<()> {
        for (from, to) in &self.holes {
            let len = (to - from) as usize - ENTRY_HEAD;
            let mut head = [0; ENTRY_HEAD];
            head[4..8].copy_from_slice(&(len as u32).to_be_bytes());
            let sum = checksum(segment.seed, *from, &head[4..]);
            head[..4].copy_from_slice(&sum.to_be_bytes());
            segment.file.write_all_at(&head, (*from).into())?;
        }
        segment.file.set_len(self.valid_end.into())?;
        segment.file.sync_all()
    }
}

fn seed(number: u32, salt: u64) -> u32 {
    crc32c::crc32c_append(crc32c::crc32c(&salt.to_be_bytes()), &number.to_be_bytes())
}

/// Over the offset, the length, the kind and what the entry holds.
fn checksum(seed: u32, offset: u32, bytes: &[u8]) -> u32 {
    crc32c::crc32c_append(crc32c::crc32c_append(seed, &offset.to_be_bytes()), bytes)
}

/// Its kind and length, if it may be one.
fn entry_head(bytes: &[u8]) -> Option<(u8, usize)> {
    let head: &[u8; ENTRY_HEAD] = bytes.first_chunk()?;
    let len = u32::from_be_bytes([head[4], head[5], head[6], head[7]]) as usize;
    let is_one = head[9..] == [0; 3] && (head[8] == PAD || len <= ENTRY_MAX);
    is_one.then_some((head[8], len))
}

/// Whether the checksum is right. A hole has one of its head alone.
fn is_valid(seed: u32, offset: u32, bytes: &[u8], len: usize) -> bool {
    let covered = if bytes[8] == PAD { 0 } else { len };
    let Some(entry) = bytes.get(..ENTRY_HEAD + covered) else { return false };
    let sum = u32::from_be_bytes([entry[0], entry[1], entry[2], entry[3]]);
    ENTRY_HEAD + len <= bytes.len() && checksum(seed, offset, &entry[4..]) == sum
}

/// Has the disk begin with what was written, and waits for nothing: a sync that follows waits the less.
#[cfg(target_os = "linux")]
#[allow(unsafe_code, reason = "one call of the kernel that no crate here wraps")]
fn begin_writing(file: &File, offset: u32, len: usize) {
    // SAFETY: the descriptor is open as long as the file is borrowed, and no memory is passed. An error is none: the sync tells.
    unsafe {
        libc::sync_file_range(file.as_raw_fd(), offset.into(), len as libc::off64_t, libc::SYNC_FILE_RANGE_WRITE);
    }
}

#[cfg(not(target_os = "linux"))]
fn begin_writing(_: &File, _: u32, _: usize) {}

const fn position(number: u32, offset: u32) -> u64 {
    ((number as u64) << SEGMENT_BITS) + offset as u64
}

const fn split(position: u64) -> (u32, u32) {
    ((position >> SEGMENT_BITS) as u32, position as u32 & (SEGMENT_MAX - 1))
}
