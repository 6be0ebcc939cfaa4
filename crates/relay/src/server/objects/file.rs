//! An object's files: its heads, and as much of its body as was put there ([`ObjectFile`]).
//!
//! `ID.head` has the heads, and is written before anything of the body is. `ID.part` has the body, each byte at its own offset: what nobody needs is a hole. Once all of it is there, it is renamed to
//! `ID.whole`. A process that is killed loses none of this; after a power cut nothing is believed, since nothing is synced: the heads name the boot that they were written in.

use super::room::Lease;
use crate::server::places::{Place as FilePlace, PlacedFile};
use bytes::Bytes;
use hoop_endpoint::FlowName;
use hoop_files::{open_plain, read_plain};
use ring::digest::{SHA256, SHA256_OUTPUT_LEN, digest};
use rustix::fs::{FallocateFlags, SeekFrom, fallocate, seek};
use std::fs::{self, File};
use std::io::{self, Write as _};
use std::os::unix::fs::{FileExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

const MAGIC: &[u8; 8] = b"HOOPOBJ1";

/// A head of an exchange has at most 64 KiB, and there are two.
pub(in crate::server) const HEADS_MAX: u64 = 256 << 10;

/// Holes are made in such pieces, in bytes: few system calls, and little more than is needed on disk.
const HOLE: u64 = 1 << 20;

/// What each object takes besides its body, in bytes: two files, and a block of heads.
pub(in crate::server) const FILES_BYTES: u64 = 16 << 10;

/// How many files that is: two, and perhaps the device's folder.
pub(in crate::server) const FILES: u64 = 3;

/// What is known of an object but for its body.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(in crate::server) struct Heads {
    /// The section of the request's head, and of the answer's, as exchanges have them.
    pub request: Bytes,
    pub answer: Bytes,
    /// The body's first byte that was put on disk.
    pub first: u64,
}

impl Heads {
    pub(in crate::server) fn encode(&self, boot: &str) -> Vec<u8> {
        let mut content = self.first.to_le_bytes().to_vec();
        for part in [boot.as_bytes(), &self.request, &self.answer] {
            content.extend_from_slice(&u32::try_from(part.len()).unwrap_or(u32::MAX).to_le_bytes());
            content.extend_from_slice(part);
        }
        [&MAGIC[..], digest(&SHA256, &content).as_ref(), &content].concat()
    }

    /// What they take, in bytes.
    fn len(&self) -> u64 {
        (self.request.len() + self.answer.len()) as u64
    }

    /// Those that were written in this boot.
    pub(in crate::server) fn decode(file: &[u8], boot: &str) -> Option<Self> {
        let (sum, content) = file.strip_prefix(MAGIC)?.split_at_checked(SHA256_OUTPUT_LEN)?;
        if digest(&SHA256, content).as_ref() != sum {
            return None;
        }
        let (first, mut rest) = content.split_first_chunk()?;
        let mut part = || {
            let (len, more) = rest.split_first_chunk()?;
            let (part, more) = more.split_at_checked(u32::from_le_bytes(*len) as usize)?;
            rest = more;
            Some(Bytes::copy_from_slice(part))
        };
        let (of, request, answer) = (part()?, part()?, part()?);
        (of == boot.as_bytes()).then(|| Self { request, answer, first: u64::from_le_bytes(*first) })
    }
}

/// Where an object is.
#[derive(Clone, Debug)]
pub(super) struct Place {
    folder: PathBuf,
    name: FlowName,
}

impl Place {
    pub(super) fn new(folder: &Path, name: FlowName) -> Self {
        Self { folder: folder.join(name.device.to_string()), name }
    }

    fn path(&self, kind: &str) -> PathBuf {
        self.folder.join(format!("{}.{kind}", self.name.flow))
    }

    /// Removes all that there is of it.
    pub(super) fn remove(&self) {
        // Last of all what says that there is one.
        for kind in ["part", "whole", "head"] {
            let _ = fs::remove_file(self.path(kind));
        }
    }
}

/// What a body is read from.
#[derive(Clone, Debug)]
pub(super) enum BodyFile {
    /// More of it may come.
    Open(Arc<PlacedFile>),
    /// It is whole, and opened for each read: devices may be slow, and descriptors are few.
    Whole(PathBuf),
}

impl BodyFile {
    /// Fills `bytes` with what lies from `offset` on.
    ///
    /// # Errors
    /// If the disk fails, or has less.
    pub(super) fn read_exact_at(&self, bytes: &mut [u8], offset: u64) -> io::Result<()> {
        match self {
            Self::Open(file) => file.read_exact_at(bytes, offset),
            Self::Whole(path) => open_plain(path, File::options().read(true))?.read_exact_at(bytes, offset),
        }
    }
}

/// The files of an object that is there.
#[derive(Debug)]
pub(super) struct ObjectFile {
    place: Place,
    /// None: it was removed.
    lease: Option<Lease>,
    body: BodyFile,
    /// All before it is a hole, or was never written. It counts for nothing.
    punched: u64,
    /// The end of what was put there.
    end: u64,
}

/// An object that an earlier process has left.
pub(super) struct Left {
    pub file: ObjectFile,
    pub heads: Heads,
    /// How far its body goes.
    pub end: u64,
    pub is_whole: bool,
}

impl ObjectFile {
    /// Makes it. None: there is no room.
    ///
    /// # Errors
    /// If the disk fails.
    pub(super) fn create(
        place: Place,
        mut lease: Lease,
        of_file: FilePlace,
        heads: &Heads,
        boot: &str,
    ) -> io::Result<Option<Self>> {
        let Some(_promise) = lease.grow(FILES_BYTES + heads.len(), FILES) else { return Ok(None) };
        if !place.folder.exists() {
            hoop_files::folder(&place.folder)?;
        }
        place.remove();
        let written = hoop_files::create(&place.path("head"))?.write_all(&heads.encode(boot));
        let body =
            written.and_then(|()| File::options().read(true).write(true).create_new(true).open(place.path("part")));
        let body = body.inspect_err(|_| place.remove())?;
        let body = BodyFile::Open(Arc::new(PlacedFile::new(body, Some(of_file))));
        Ok(Some(Self { place, lease: Some(lease), body, punched: heads.first, end: heads.first }))
    }

    /// Finds what an earlier process has left of the same boot. None: there is nothing that could be used. `of_file`: none, if it is only looked at.
    pub(super) fn find(place: Place, lease: Lease, of_file: Option<FilePlace>, boot: &str) -> Option<Left> {
        let heads = Heads::decode(&read_plain(&place.path("head"), HEADS_MAX).ok()?, boot)?;
        let open = |kind| open_plain(&place.path(kind), File::options().read(true).write(true)).ok();
        let (body, is_whole) = open("whole").map(|body| (body, true)).or_else(|| Some((open("part")?, false)))?;
        let end = body.metadata().ok().map(|body| body.len()).filter(|end| *end >= heads.first)?;
        // What was released before is a hole, where the file system tells.
        let first = seek(&body, SeekFrom::Data(0)).unwrap_or(0).clamp(heads.first, end);
        let (punched, body) = match is_whole {
            true => (first, BodyFile::Whole(place.path("whole"))),
            false => (first, BodyFile::Open(Arc::new(PlacedFile::new(body, of_file)))),
        };
        Some(Left { file: Self { place, lease: Some(lease), body, punched, end }, heads, end, is_whole })
    }

    /// Counts what there is of it on disk, once it was found.
    pub(super) fn count(&mut self) {
        let body = match &self.body {
            BodyFile::Open(file) => file.metadata(),
            BodyFile::Whole(path) => fs::metadata(path),
        };
        let bytes = body.map_or(0, |body| body.blocks() * 512)
            + fs::metadata(self.place.path("head")).map_or(0, |head| head.len());
        self.lease.iter_mut().for_each(|lease| lease.take_found(FILES_BYTES + bytes));
    }

    /// What reads the body.
    pub(super) fn body(&self) -> BodyFile {
        self.body.clone()
    }

    /// Puts bytes there that lie from `offset` on. False: there is no room.
    ///
    /// # Errors
    /// If the disk fails, or is full.
    pub(super) fn put(&mut self, offset: u64, pieces: &[Bytes]) -> io::Result<bool> {
        let len: u64 = pieces.iter().map(|piece| piece.len() as u64).sum();
        let (Some(lease), BodyFile::Open(file)) = (&mut self.lease, &self.body) else { return Ok(false) };
        // What was passed on in between is not there, and is given back with what is.
        let bytes = len + offset.saturating_sub(self.end.max(self.punched));
        let Some(_promise) = lease.grow(bytes, 0) else { return Ok(false) };
        let mut at = offset;
        let written = pieces.iter().try_for_each(|piece| {
            file.write_all_at(piece, at)?;
            at += piece.len() as u64;
            Ok(())
        });
        // What was written in part is written again.
        written.inspect_err(|_: &io::Error| lease.shrink(bytes))?;
        self.end = self.end.max(offset + len);
        Ok(true)
    }

    /// Nobody needs what lies before `offset`.
    pub(super) fn release(&mut self, offset: u64) {
        let BodyFile::Open(file) = &self.body else { return };
        let to = offset - offset % HOLE;
        if to <= self.punched {
            return;
        }
        let len = to.min(self.end).saturating_sub(self.punched);
        let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        // Where a file system makes no holes, it stays until the object goes.
        let from = self.punched - self.punched % HOLE;
        if fallocate(&***file, flags, from, to - from).is_ok() {
            self.lease.iter_mut().for_each(|lease| lease.shrink(len));
        }
        self.punched = to;
    }

    /// Whether all of the body is there, as far as it is still needed.
    pub(super) const fn is_whole(&self) -> bool {
        matches!(self.body, BodyFile::Whole(_))
    }

    /// All of the body is there that is still needed. It ends at `end`, also where the last of it was passed on and never put here.
    pub(super) fn mark_whole(&mut self, end: u64) {
        let BodyFile::Open(file) = &self.body else { return };
        let whole = self.place.path("whole");
        if file.set_len(end).and_then(|()| fs::rename(self.place.path("part"), &whole)).is_ok() {
            self.body = BodyFile::Whole(whole);
        }
    }

    /// Removes it.
    pub(super) fn discard(mut self) {
        self.place.remove();
        self.lease = None;
    }
}

impl Drop for ObjectFile {
    /// What is not removed is left: it still counts, and may be asked for.
    fn drop(&mut self) {
        self.lease.take().into_iter().for_each(|lease| lease.leave(self.place.name));
    }
}

#[cfg(test)]
mod tests {
    use super::super::room::{Room, StoreConfig};
    use super::*;
    use crate::server::places::Places;
    use crate::server::reserve::Reserve;
    use hoop_endpoint::{DeviceId, FlowId};

    /// A whole hole was given back of which a hundred bytes had been counted.
    #[test]
    fn what_is_released_gives_back_what_it_took() {
        let folder = tempfile::tempdir().unwrap();
        let room = Room::new(StoreConfig::new(folder.path()), Reserve::of(folder.path()), Places::new(10, 10));
        let name = FlowName { device: DeviceId([1; 20]), flow: FlowId(7) };
        let part = Bytes::from_static(b"part");
        let heads = Heads { request: part.clone(), answer: part, first: HOLE - 100 };
        let of_file = room.file(name.device).unwrap();
        let place = Place::new(folder.path(), name);
        let mut file = ObjectFile::create(place, room.lease(name.device), of_file, &heads, "boot").unwrap().unwrap();
        assert_eq!(room.usage().0, FILES_BYTES + 8);
        assert!(file.put(heads.first, &[vec![1; 2 * HOLE as usize].into()]).unwrap());
        file.release(HOLE + 1);
        assert_eq!(room.usage().0, FILES_BYTES + 8 + 2 * HOLE - 100);
        file.release(2 * HOLE);
        assert_eq!(room.usage().0, FILES_BYTES + 8 + HOLE - 100);
        // Its device catches up, and stalls again.
        let ahead = 100 * HOLE + 1_000;
        file.release(ahead);
        assert_eq!(room.usage().0, FILES_BYTES + 8);
        assert!(file.put(ahead, &[vec![1; HOLE as usize].into()]).unwrap());
        assert_eq!(room.usage().0, FILES_BYTES + 8 + HOLE + 1_000);
        file.release(101 * HOLE);
        assert_eq!(room.usage().0, FILES_BYTES + 8 + 1_000);
        file.discard();
        assert_eq!(room.usage().0, 0);
    }

    #[test]
    fn a_link_or_a_fifo_in_the_place_of_an_objects_file_is_no_object() {
        let folder = tempfile::tempdir().unwrap();
        let room = Room::new(StoreConfig::new(folder.path()), Reserve::of(folder.path()), Places::new(10, 10));
        let name = FlowName { device: DeviceId([1; 20]), flow: FlowId(7) };
        let heads = Heads { request: Bytes::new(), answer: Bytes::new(), first: 0 };
        let place = Place::new(folder.path(), name);
        let lease = || room.lease(name.device);
        let of_file = || room.file(name.device).unwrap();
        let mut file = ObjectFile::create(place.clone(), lease(), of_file(), &heads, "boot").unwrap().unwrap();
        assert!(file.put(0, &[Bytes::from_static(b"body")]).unwrap());
        file.mark_whole(4);
        let reader = file.body();
        drop(file);
        let find = || ObjectFile::find(place.clone(), lease(), Some(of_file()), "boot");
        assert!(find().is_some());
        let elsewhere = folder.path().join("elsewhere");
        for kind in ["whole", "head"] {
            fs::rename(place.path(kind), &elsewhere).unwrap();
            std::os::unix::fs::symlink(&elsewhere, place.path(kind)).unwrap();
            assert!(find().is_none(), "a link to its {kind}");
            assert!(kind == "head" || reader.read_exact_at(&mut [0; 4], 0).is_err());
            fs::remove_file(place.path(kind)).unwrap();
            assert!(std::process::Command::new("mkfifo").arg(place.path(kind)).status().unwrap().success());
            assert!(find().is_none(), "a FIFO instead of its {kind}");
            assert!(kind == "head" || reader.read_exact_at(&mut [0; 4], 0).is_err());
            fs::rename(&elsewhere, place.path(kind)).unwrap();
            assert!(find().is_some());
        }
    }

    #[test]
    fn heads_that_are_damaged_or_of_another_boot_are_none() {
        let (request, answer) = (Bytes::from_static(b"request"), Bytes::from_static(b"answer"));
        let heads = Heads { request, answer, first: 70 };
        let encoded = heads.encode("one");
        assert_eq!(Heads::decode(&encoded, "one"), Some(heads));
        assert_eq!(Heads::decode(&encoded, "two"), None);
        for at in 0..encoded.len() {
            let mut damaged = encoded.clone();
            damaged[at] ^= 1;
            assert_eq!(Heads::decode(&damaged, "one"), None, "byte {at}");
            assert_eq!(Heads::decode(&encoded[..at], "one"), None, "{at} bytes");
        }
    }
}
