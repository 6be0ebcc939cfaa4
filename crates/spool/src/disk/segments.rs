//! Files that small uploads share: [`Segments`].
//!
//! A file of its own costs an upload the making of the file, a sync of the file, a sync of its folder and the removal. In a segment each upload has
//! an [`Extent`] instead, and one sync serves all who have written since the last. An extent begins at a block of its own, so that no write touches a
//! neighbour's bytes, and what is given back is a hole. A segment is never written to again once it is full or the gateway was started anew; it
//! goes when no upload is left in it.

use crate::disk::sys;
use hoop_units::{ByteRange, RangeSet};
use parking_lot::{Mutex, MutexGuard};
use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};

/// Uploads of up to so many bytes of Z share segments: photos on a web page, messages, thumbnails. For what is longer, a file of its own costs little
/// beside its bytes.
pub const SHARED_MAX: u64 = 1 << 20;

/// A segment takes no more uploads once it has so many bytes: names of segments are rarely synced, and one that is almost empty soon goes.
const SEGMENT_BYTES: u64 = 16 << 20;

/// Extents begin at multiples of this: the blocks that file systems give back, and the pages that kernels write.
pub const BLOCK_BYTES: u64 = 4096;

/// Where an upload's bytes lie: from byte `base` of a segment on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Extent {
    /// The segment's number.
    pub segment: u64,
    /// Where Z's first byte lies in it.
    pub base: u64,
}

/// A file that small uploads share.
#[derive(Debug)]
pub struct Segment {
    number: u64,
    file: File,
    /// Its name is on disk.
    named: AtomicBool,
    /// A sync failed: the kernel may have dropped pages of any upload in it, so nothing more of it is recorded.
    broken: AtomicBool,
    /// The extents that somebody writes or reads, by their first bytes. One for each sender and reader at most.
    held: Mutex<BTreeMap<u64, Holders>>,
}

#[derive(Debug, Default)]
struct Holders {
    count: usize,
    /// The last of them gives the extent back.
    is_over: bool,
}

/// An extent that somebody writes or reads: its bytes stay as they are until this is dropped, also if the upload ends.
#[derive(Debug)]
pub struct Held {
    segment: Arc<Segment>,
    base: u64,
    /// The length of Z.
    len: u64,
}

/// Where the bytes of an upload are written and read.
#[derive(Debug)]
pub enum Body {
    /// A file of its own.
    Own(File),
    /// An extent of a segment.
    Shared(Held),
}

#[cfg(test)]
thread_local! {
    /// The byte of each upload that this thread cannot read.
    pub static BAD: std::cell::Cell<Option<u64>> = const { std::cell::Cell::new(None) };
}

/// The segments of a spool.
#[derive(Debug)]
pub struct Segments {
    folder: PathBuf,
    /// The file system gives back what an upload had. Without, a segment would keep all its bytes until the last upload in it ends.
    makes_holes: bool,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    /// The one that takes uploads, and where its next extent begins.
    current: Option<(Arc<Segment>, u64)>,
    /// The number of the next.
    next: u64,
    /// Those that somebody writes to or reads from. One for each sender and reader at most.
    open: BTreeMap<u64, Weak<Segment>>,
}

impl Segments {
    /// The segments in `folder`. Those with numbers from `next` on have no uploads.
    pub fn new(folder: PathBuf, next: u64) -> Self {
        let makes_holes = sys::makes_holes(&folder);
        Self { folder, makes_holes, state: Mutex::new(State { current: None, next, open: BTreeMap::new() }) }
    }

    /// The folder that they are in.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// A segment's file.
    pub fn path(&self, number: u64) -> PathBuf {
        path(&self.folder, number)
    }

    /// Whether uploads of `len` bytes share segments here.
    pub const fn takes(&self, len: u64) -> bool {
        self.makes_holes && len <= SHARED_MAX
    }

    /// An extent of `len` bytes for a new upload.
    ///
    /// # Errors
    /// If a new segment is needed and cannot be made.
    pub fn reserve(&self, len: u64) -> io::Result<Body> {
        let mut state = self.state();
        let (segment, base) = match state.current.take() {
            Some((segment, at)) if at + len <= SEGMENT_BYTES && !segment.is_broken() => (segment, at),
            _ => (self.make(&mut state)?, 0),
        };
        let next = (base + len.max(1)).next_multiple_of(BLOCK_BYTES);
        state.current = Some((segment.clone(), next));
        Ok(Body::Shared(Held::new(segment, base, len)))
    }

    fn make(&self, state: &mut State) -> io::Result<Arc<Segment>> {
        let number = state.next;
        // One that is there has no uploads: a crash left it before anything in it was recorded.
        let file = hoop_files::create(&path(&self.folder, number))?;
        state.next = number + 1;
        Ok(state.remember(Segment::new(number, file, false)))
    }

    /// The extent of an upload of `len` bytes that is recorded.
    ///
    /// # Errors
    /// If its segment cannot be opened.
    pub fn open(&self, extent: Extent, len: u64) -> io::Result<Body> {
        let mut state = self.state();
        let segment = match state.open.get(&extent.segment).and_then(Weak::upgrade) {
            Some(segment) => segment,
            None => {
                let mut options = OpenOptions::new();
                let path = path(&self.folder, extent.segment);
                let file = hoop_files::open_plain(&path, options.read(true).write(true))?;
                state.remember(Segment::new(extent.segment, file, true))
            }
        };
        Ok(Body::Shared(Held::new(segment, extent.base, len)))
    }

    /// Gives the disk back what an upload of `len` bytes had, once nobody writes or reads it any more.
    pub fn give_back(&self, extent: Extent, len: u64) {
        if let Ok(Body::Shared(held)) = self.open(extent, len) {
            held.segment.held().entry(extent.base).or_default().is_over = true;
        }
    }

    /// No more uploads come: the segment that took them rests, too.
    pub fn close(&self) {
        self.state().current = None;
    }

    /// The segments that nobody writes to or reads from.
    ///
    /// # Errors
    /// If the folder cannot be read.
    pub fn resting(&self) -> io::Result<Vec<u64>> {
        let mut found = numbers(&self.folder)?;
        let state = self.state();
        found.retain(|number| {
            *number < state.next && state.open.get(number).is_none_or(|open| open.strong_count() == 0)
        });
        Ok(found)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }
}

impl State {
    fn remember(&mut self, segment: Segment) -> Arc<Segment> {
        self.open.retain(|_, open| open.strong_count() > 0);
        let segment = Arc::new(segment);
        self.open.insert(segment.number, Arc::downgrade(&segment));
        segment
    }
}

impl Segment {
    const fn new(number: u64, file: File, named: bool) -> Self {
        let (named, broken) = (AtomicBool::new(named), AtomicBool::new(false));
        Self { number, file, named, broken, held: Mutex::new(BTreeMap::new()) }
    }

    fn held(&self) -> MutexGuard<'_, BTreeMap<u64, Holders>> {
        self.held.lock()
    }

    /// Its number.
    pub const fn number(&self) -> u64 {
        self.number
    }

    /// Its file.
    pub const fn file(&self) -> &File {
        &self.file
    }

    /// Whether its name is on disk.
    pub fn is_named(&self) -> bool {
        self.named.load(Ordering::Acquire)
    }

    /// Its name is on disk.
    pub fn set_named(&self) {
        self.named.store(true, Ordering::Release);
    }

    /// Whether a sync of it failed.
    pub fn is_broken(&self) -> bool {
        self.broken.load(Ordering::Acquire)
    }

    /// A sync of it failed.
    pub fn set_broken(&self) {
        self.broken.store(true, Ordering::Release);
    }
}

impl Held {
    fn new(segment: Arc<Segment>, base: u64, len: u64) -> Self {
        segment.held().entry(base).or_default().count += 1;
        Self { segment, base, len }
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        let mut held = self.segment.held();
        let Some(holders) = held.get_mut(&self.base) else { return };
        holders.count -= 1;
        let (is_last, is_over) = (holders.count == 0, holders.is_over);
        if is_last {
            held.remove(&self.base);
        }
        drop(held);
        if is_last && is_over {
            // The rest of its last block is nobody's.
            sys::punch(&self.segment.file, self.base, self.len.next_multiple_of(BLOCK_BYTES));
        }
    }
}

impl Body {
    /// The extent that is in `folder`, for reading alone.
    ///
    /// # Errors
    /// If its segment cannot be opened.
    pub fn look(folder: &Path, extent: Extent, len: u64) -> io::Result<Self> {
        let file = hoop_files::open_plain(&path(folder, extent.segment), OpenOptions::new().read(true))?;
        let segment = Arc::new(Segment::new(extent.segment, file, true));
        Ok(Self::Shared(Held::new(segment, extent.base, len)))
    }

    /// The file that the bytes are in.
    pub fn file(&self) -> &File {
        match self {
            Self::Own(file) => file,
            Self::Shared(held) => &held.segment.file,
        }
    }

    /// Where byte `offset` of Z is in that file.
    pub const fn at(&self, offset: u64) -> u64 {
        match self {
            Self::Own(_) => offset,
            Self::Shared(held) => held.base + offset,
        }
    }

    /// Where a range that nobody needs lies in the file, with the rest of the blocks at its ends if nothing of them `stays`: punching leaves a block
    /// that it covers in part.
    pub fn whole_blocks(&self, range: ByteRange, stays: &RangeSet) -> ByteRange {
        let before = stays.iter().take_while(|span| span.end <= range.start).last().map_or(0, |span| span.end);
        let after = stays.iter().map(|span| span.start).find(|start| *start >= range.end);
        let start = self.at(range.start) / BLOCK_BYTES * BLOCK_BYTES;
        let end = self.at(range.end).next_multiple_of(BLOCK_BYTES);
        ByteRange::new(start.max(self.at(before)), after.map_or(end, |after| end.min(self.at(after))))
    }

    /// The segment that it is in; `None`: it has a file of its own.
    pub const fn segment(&self) -> Option<&Arc<Segment>> {
        match self {
            Self::Own(_) => None,
            Self::Shared(held) => Some(&held.segment),
        }
    }

    /// Where it lies; `None`: it has a file of its own.
    pub fn extent(&self) -> Option<Extent> {
        match self {
            Self::Own(_) => None,
            Self::Shared(held) => Some(Extent { segment: held.segment.number, base: held.base }),
        }
    }

    /// Whether nothing more of it may be recorded, since a sync of it failed.
    pub fn is_broken(&self) -> bool {
        self.segment().is_some_and(|segment| segment.is_broken())
    }

    /// Fills `buffer` with the bytes of Z at `offset`.
    ///
    /// # Errors
    /// If the disk fails, or so many bytes are not there.
    pub fn read_exact_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        if let Self::Shared(held) = self
            && offset.saturating_add(buffer.len() as u64) > held.len
        {
            // What comes next is another upload's.
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        #[cfg(test)]
        if BAD.get().is_some_and(|bad| bad < offset + buffer.len() as u64 && offset <= bad) {
            return Err(io::Error::other("a bad sector"));
        }
        self.file().read_exact_at(buffer, self.at(offset))
    }

    /// So many bytes of Z may be there.
    ///
    /// # Errors
    /// If the file system does not say.
    pub fn len(&self) -> io::Result<u64> {
        let in_file = self.file().metadata()?.len();
        Ok(match self {
            Self::Own(_) => in_file,
            Self::Shared(held) => in_file.saturating_sub(held.base).min(held.len),
        })
    }
}

/// The numbers of the segments in a folder, ascending.
///
/// # Errors
/// If it cannot be read.
pub fn numbers(folder: &Path) -> io::Result<Vec<u64>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder)? {
        let name = entry?.file_name();
        let number = name.to_str().and_then(|name| name.strip_suffix(".segment"));
        found.extend(number.and_then(|number| number.parse::<u64>().ok()));
    }
    found.sort_unstable();
    Ok(found)
}

/// A segment's file in their folder.
pub fn path(folder: &Path, number: u64) -> PathBuf {
    folder.join(format!("{number}.segment"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn segments() -> (tempfile::TempDir, Segments) {
        let folder = tempfile::tempdir().unwrap();
        let segments = Segments::new(folder.path().to_owned(), 0);
        (folder, segments)
    }

    #[test]
    fn extents_share_no_block_and_a_full_segment_takes_no_more() {
        let (_folder, segments) = segments();
        let extents: Vec<Extent> =
            [1, 4096, 4097, SHARED_MAX].map(|len| segments.reserve(len).unwrap().extent().unwrap()).into();
        assert_eq!(extents.iter().map(|extent| extent.base).collect::<Vec<_>>(), [0, 4096, 8192, 16384]);
        let many: Vec<Extent> = (0..32).map(|_| segments.reserve(SHARED_MAX).unwrap().extent().unwrap()).collect();
        assert!(many.iter().all(|extent| extent.base + SHARED_MAX <= SEGMENT_BYTES));
        assert_eq!(many.last().unwrap().segment, 2);
    }

    /// A file system that makes no holes; `None` where mounting is not permitted.
    struct Ramfs(tempfile::TempDir);

    impl Ramfs {
        fn mount() -> Option<Self> {
            let folder = tempfile::tempdir().unwrap();
            let mut mount = std::process::Command::new("mount");
            mount.args(["-t", "ramfs", "ramfs"]).arg(folder.path()).stderr(std::process::Stdio::null());
            mount.status().is_ok_and(|status| status.success()).then_some(Self(folder))
        }
    }

    impl Drop for Ramfs {
        fn drop(&mut self) {
            let _ = std::process::Command::new("umount").arg("-l").arg(self.0.path()).status();
        }
    }

    #[test]
    fn uploads_share_nothing_where_nothing_can_be_given_back() {
        let (folder, segments) = segments();
        assert_eq!([0, SHARED_MAX, SHARED_MAX + 1].map(|len| segments.takes(len)), [true, true, false]);
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0, "nothing is left of the look");
        let Some(ramfs) = Ramfs::mount() else {
            println!("skipped: mounting a file system of its own is not permitted here");
            return;
        };
        assert!(!Segments::new(ramfs.0.path().to_owned(), 0).takes(1));
    }

    #[test]
    fn a_segment_rests_when_nobody_has_it_open() {
        let (_folder, segments) = segments();
        let first = segments.reserve(SEGMENT_BYTES).unwrap();
        let second = segments.reserve(1).unwrap();
        assert_eq!(segments.resting().unwrap(), [0_u64; 0], "the second takes uploads, the first has a sender");
        drop(second);
        drop(first);
        assert_eq!(segments.resting().unwrap(), [0]);
        let again = segments.open(Extent { segment: 0, base: 0 }, 9).unwrap();
        assert_eq!(segments.resting().unwrap(), [0_u64; 0]);
        drop(again);
        assert_eq!(segments.resting().unwrap(), [0]);
    }

    #[test]
    fn an_extent_is_given_back_when_its_last_reader_has_gone() {
        let (_folder, segments) = segments();
        let body = segments.reserve(5).unwrap();
        body.file().write_all_at(b"bytes", body.at(0)).unwrap();
        let extent = body.extent().unwrap();
        segments.give_back(extent, 5);
        let mut buffer = [0; 5];
        body.read_exact_at(&mut buffer, 0).unwrap();
        assert_eq!(&buffer, b"bytes");
        drop(body);
        segments.open(extent, 5).unwrap().read_exact_at(&mut buffer, 0).unwrap();
        assert_eq!(buffer, [0; 5]);
    }

    #[test]
    fn an_extent_gives_none_of_its_neighbours_bytes() {
        let (_folder, segments) = segments();
        let (first, second) = (segments.reserve(5).unwrap(), segments.reserve(5).unwrap());
        for (body, bytes) in [(&first, b"first"), (&second, b"other")] {
            body.file().write_all_at(bytes, body.at(0)).unwrap();
        }
        let mut buffer = [0; 5];
        first.read_exact_at(&mut buffer, 0).unwrap();
        assert_eq!(&buffer, b"first");
        assert_eq!(first.read_exact_at(&mut buffer, 1).unwrap_err().kind(), io::ErrorKind::UnexpectedEof);
        assert_eq!([first.len().unwrap(), second.len().unwrap()], [5, 5]);
    }
}
