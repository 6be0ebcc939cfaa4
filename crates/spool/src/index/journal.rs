//! What the index has not committed yet: [`Journal`].
//!
//! A transaction of SQLite writes every page that it touched, 4 KiB each, for some hundred bytes of news. So the index keeps one transaction open
//! over many changes, and the news itself goes here, and is synced here. When SQLite has committed, the journal begins anew, in the next *epoch*. A
//! crash takes the open transaction away; what the journal has of it is then repeated.
//!
//! The file has a fixed length and is written over in place, so that a sync waits for its bytes alone and not for the file system's own log. It holds records,
//! one after the other from the first byte on, all numbers big-endian:
//!
//! | bytes | what |
//! | --- | --- |
//! | 4 | the length of the body |
//! | 4 | CRC-32C of the epoch and the body |
//! | 8 | the epoch |
//! | any | the body: an operation |
//!
//! The first that is of another epoch, or is not whole, is where the journal ends. Records are written in order, and a sync covers all before it; so what comes
//! after a torn one was never acknowledged. Whole ones may lie behind it, and would count if another came to stand in front of them. So nobody writes into
//! an epoch that an earlier process wrote into: whoever opens the index begins a new one.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt as _, OpenOptionsExt as _};
use std::path::Path;

/// The journal's length: the news of some 600 small uploads, from their first byte to their end. Opening a spool repeats so much at most, in some
/// milliseconds.
pub const JOURNAL_BYTES: u64 = 512 << 10;

const HEAD_BYTES: u64 = 16;

/// It is read in pieces of this size, a page each: what cannot be read behind its end keeps nobody from what is in front of it.
const PIECE_BYTES: usize = 4096;

/// The news of the open transaction.
#[derive(Debug)]
pub struct Journal {
    file: File,
    sync: bool,
    /// Of what is written now.
    epoch: u64,
    /// The records of this epoch, as they were written: after a sync that failed, the file may have fewer.
    records: Vec<u8>,
    /// Some of it may not be on disk.
    is_behind: bool,
    /// Nothing more of this epoch is written: SQLite may have committed what it said it could not, or the disk may have lost some of it.
    is_closed: bool,
    /// Its syncs fail, for tests.
    #[cfg(test)]
    pub fails: bool,
}

impl Journal {
    /// Opens the file at `path`, making it if it is not there, or not as long as it should be. [`Journal::begin`] says what comes next.
    ///
    /// # Errors
    /// If it cannot be made or read.
    pub fn open(path: &Path, sync: bool) -> io::Result<Self> {
        let mut options = OpenOptions::new();
        let options = options.read(true).write(true).create(true).truncate(false).mode(0o600);
        let file = hoop_files::open_plain(path, options)?;
        let len = file.metadata()?.len();
        if len != JOURNAL_BYTES {
            // As a rule nothing is in it: it is as long as this before its first record. A copy of a spool may have lost its end.
            file.set_len(JOURNAL_BYTES)?;
            let missing = JOURNAL_BYTES.saturating_sub(len);
            file.write_all_at(&vec![0; missing as usize], len.min(JOURNAL_BYTES))?;
            if sync {
                file.sync_all()?;
                path.parent().map_or(Ok(()), |folder| File::open(folder)?.sync_all())?;
            }
        }
        Ok(Self {
            file,
            sync,
            epoch: 0,
            records: Vec::new(),
            is_behind: false,
            is_closed: false,
            #[cfg(test)]
            fails: false,
        })
    }

    /// Begins anew, in `epoch`: all that there is of earlier ones is committed.
    pub fn begin(&mut self, epoch: u64) {
        (self.epoch, self.records, self.is_behind, self.is_closed) = (epoch, Vec::new(), false, false);
    }

    /// Has no room until the next epoch.
    pub const fn close(&mut self) {
        self.is_closed = true;
    }

    /// Whether it has no room until then: what it has may not be on disk.
    pub const fn is_closed(&self) -> bool {
        self.is_closed
    }

    /// Where the next record goes.
    pub const fn at(&self) -> u64 {
        self.records.len() as u64
    }

    /// Forgets the records from `at` on, which could not be written: whoever opens the journal next finds none of them.
    ///
    /// # Errors
    /// If the disk does not take that, either. Then nobody knows what the next one finds.
    pub fn forget(&mut self, at: u64) -> io::Result<()> {
        self.records.truncate(at as usize);
        #[cfg(test)]
        if self.fails {
            return Err(io::Error::other("the disk does not take it"));
        }
        let room = JOURNAL_BYTES.saturating_sub(at).min(HEAD_BYTES);
        self.file.write_all_at(&[0; HEAD_BYTES as usize][..room as usize], at)?;
        self.is_behind = true;
        self.sync()
    }

    /// What is written now is of this epoch.
    pub const fn epoch(&self) -> u64 {
        self.epoch
    }

    /// Whether there is anything of this epoch.
    pub const fn is_empty(&self) -> bool {
        self.records.is_empty()
    }

    /// The bodies of this epoch, in order.
    pub fn bodies(&self) -> impl Iterator<Item = &[u8]> {
        let mut rest = &self.records[..];
        std::iter::from_fn(move || {
            let body = record(rest, self.epoch)?;
            rest = &rest[HEAD_BYTES as usize + body.len()..];
            Some(body)
        })
    }

    /// Finds what an earlier process left of this epoch.
    ///
    /// # Errors
    /// If some of it cannot be read, or may be where nothing can be read.
    pub fn load(&mut self) -> io::Result<()> {
        let (mut bytes, mut end) = (Vec::new(), 0);
        loop {
            if let Some(body) = record(&bytes[end..], self.epoch) {
                end += HEAD_BYTES as usize + body.len();
            } else if bytes.len() < JOURNAL_BYTES as usize && may_go_on(&bytes[end..], self.epoch) {
                let mut piece = [0; PIECE_BYTES];
                self.file.read_exact_at(&mut piece, bytes.len() as u64)?;
                bytes.extend_from_slice(&piece);
            } else {
                break;
            }
        }
        bytes.truncate(end);
        self.records = bytes;
        Ok(())
    }

    /// Whether there is room for these bodies.
    pub fn has_room<'a>(&self, bodies: impl IntoIterator<Item = &'a [u8]>) -> bool {
        let len: u64 = bodies.into_iter().map(|body| HEAD_BYTES + body.len() as u64).sum();
        !self.is_closed && self.at() + len <= JOURNAL_BYTES
    }

    /// Writes these bodies, for which there is room; [`Journal::sync`] waits for the disk.
    ///
    /// # Errors
    /// If they cannot be written. Then none of them is.
    pub fn append<'a>(&mut self, bodies: impl IntoIterator<Item = &'a [u8]>) -> io::Result<()> {
        let mut bytes = Vec::new();
        for body in bodies {
            let len = u32::try_from(body.len()).map_err(io::Error::other)?;
            bytes.extend_from_slice(&len.to_be_bytes());
            bytes.extend_from_slice(&sum(self.epoch, body).to_be_bytes());
            bytes.extend_from_slice(&self.epoch.to_be_bytes());
            bytes.extend_from_slice(body);
        }
        self.file.write_all_at(&bytes, self.at())?;
        self.is_behind |= !bytes.is_empty();
        self.records.append(&mut bytes);
        Ok(())
    }

    /// Waits until all that is written is on disk.
    ///
    /// # Errors
    /// If the disk does not take it. Then nobody knows what of it is there.
    pub fn sync(&mut self) -> io::Result<()> {
        #[cfg(test)]
        if self.fails && self.is_behind {
            // The kernel tells it once, and has dropped what it could not write.
            self.is_behind = false;
            return Err(io::Error::other("the disk does not take it"));
        }
        if self.is_behind && self.sync {
            self.file.sync_data()?;
        }
        self.is_behind = false;
        Ok(())
    }
}

/// The body of a record that is whole and of this epoch.
fn record(bytes: &[u8], epoch: u64) -> Option<&[u8]> {
    let (head, rest) = bytes.split_at_checked(HEAD_BYTES as usize)?;
    let len = u32::from_be_bytes(head[..4].try_into().ok()?);
    let body = rest.get(..usize::try_from(len).ok()?)?;
    let is_whole = head[4..8] == sum(epoch, body).to_be_bytes() && head[8..] == epoch.to_be_bytes();
    (is_whole && !body.is_empty()).then_some(body)
}

/// Whether what begins like this may be a whole record of this epoch, with what comes behind.
fn may_go_on(bytes: &[u8], epoch: u64) -> bool {
    let Some((head, rest)) = bytes.split_at_checked(HEAD_BYTES as usize) else { return true };
    let len = u32::from_be_bytes([head[0], head[1], head[2], head[3]]);
    head[8..] == epoch.to_be_bytes() && rest.len() < len as usize
}

fn sum(epoch: u64, body: &[u8]) -> u32 {
    crc32c::crc32c_append(crc32c::crc32c(&epoch.to_be_bytes()), body)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn open(folder: &tempfile::TempDir, epoch: u64) -> Journal {
        let mut journal = Journal::open(&folder.path().join("journal"), true).unwrap();
        journal.begin(epoch);
        journal
    }

    /// As the next process finds it.
    fn loaded(folder: &tempfile::TempDir, epoch: u64) -> Journal {
        let mut journal = open(folder, epoch);
        journal.load().unwrap();
        journal
    }

    fn bodies(journal: &Journal) -> Vec<String> {
        journal.bodies().map(|body| String::from_utf8(body.to_vec()).unwrap()).collect()
    }

    fn append(journal: &mut Journal, bodies: &[&[u8]]) {
        journal.append(bodies.iter().copied()).unwrap();
        journal.sync().unwrap();
    }

    #[test]
    fn what_was_written_is_read_by_the_next_process() {
        let folder = tempfile::tempdir().unwrap();
        let mut journal = open(&folder, 7);
        append(&mut journal, &[b"one", b"two"]);
        append(&mut journal, &[b"three"]);
        assert_eq!(bodies(&journal), ["one", "two", "three"]);
        assert_eq!(bodies(&loaded(&folder, 7)), ["one", "two", "three"]);
    }

    #[test]
    fn records_of_another_epoch_are_none() {
        let folder = tempfile::tempdir().unwrap();
        let mut journal = open(&folder, 7);
        append(&mut journal, &[b"one", b"two"]);
        journal.begin(8);
        assert!(journal.is_empty() && bodies(&journal).is_empty() && loaded(&folder, 8).is_empty());
        append(&mut journal, &[b"ONE"]);
        assert_eq!(bodies(&journal), ["ONE"]);
        assert_eq!(bodies(&loaded(&folder, 8)), ["ONE"], "what stands behind it is of epoch 7");
    }

    #[test]
    fn a_torn_record_ends_the_journal() {
        let folder = tempfile::tempdir().unwrap();
        for torn in 0..19 {
            let mut journal = open(&folder, torn);
            append(&mut journal, &[b"one", b"two"]);
            let mut byte = [0];
            journal.file.read_exact_at(&mut byte, 19 + torn).unwrap();
            journal.file.write_all_at(&[!byte[0]], 19 + torn).unwrap();
            assert_eq!(bodies(&loaded(&folder, torn)), ["one"], "byte {torn} of the second");
        }
    }

    #[test]
    fn a_journal_of_another_length_keeps_its_records() {
        let folder = tempfile::tempdir().unwrap();
        for len in [19 + 18, JOURNAL_BYTES - 1, JOURNAL_BYTES + 1] {
            let mut journal = open(&folder, 7);
            append(&mut journal, &[b"one", b"two"]);
            journal.file.set_len(len).unwrap();
            let journal = loaded(&folder, 7);
            assert_eq!(bodies(&journal)[0], "one", "{len} bytes");
            assert_eq!(journal.file.metadata().unwrap().len(), JOURNAL_BYTES);
        }
    }

    #[test]
    fn a_full_journal_has_no_room_for_more() {
        let folder = tempfile::tempdir().unwrap();
        let mut journal = open(&folder, 1);
        let body = vec![1; JOURNAL_BYTES as usize - 20];
        assert!(journal.has_room([&body[..]]) && !journal.has_room([&body[..], &[1]]));
        append(&mut journal, &[&body]);
        assert!(!journal.has_room([&b"12345"[..]]));
        assert_eq!(loaded(&folder, 1).bodies().collect::<Vec<_>>(), [body]);
    }

    #[test]
    fn what_a_failed_sync_takes_from_the_file_is_still_known() {
        let folder = tempfile::tempdir().unwrap();
        let mut journal = open(&folder, 7);
        append(&mut journal, &[b"one"]);
        let at = journal.at();
        append(&mut journal, &[b"two", b"three"]);
        journal.file.write_all_at(&[0; 64], at).unwrap();
        assert_eq!(bodies(&journal), ["one", "two", "three"]);
        journal.forget(at).unwrap();
        assert_eq!(bodies(&journal), ["one"]);
    }

    #[test]
    fn what_cannot_be_read_behind_its_end_is_not_needed() {
        let folder = tempfile::tempdir().unwrap();
        let mut journal = open(&folder, 7);
        append(&mut journal, &[b"one", &[b'2'; 5_000]]);
        // As if all behind this were bad sectors.
        let cut = |journal: &Journal, len| journal.file.set_len(len).unwrap();
        cut(&journal, 8_192);
        journal.load().unwrap();
        assert_eq!(bodies(&journal).len(), 2);
        cut(&journal, 4_096);
        assert!(journal.load().is_err(), "what was acknowledged is not taken for the end");
        journal.begin(8);
        journal.load().unwrap();
        assert!(journal.is_empty(), "all of it was committed");
    }
}
