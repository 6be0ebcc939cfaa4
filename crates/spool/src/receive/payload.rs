//! The stored bytes of an upload, for reading: [`Payload`].

use crate::disk::checksums::{self, Grid, PART_RECORDS, Part};
use crate::disk::segments::Body;
use crate::index::KeptFile;
use crate::model::error::{ReadError, StoreError};
use crate::model::spoilt::Spoilt;
use hoop_units::ByteRange;
use parking_lot::Mutex;
use std::fmt;
use std::io;
use std::sync::Arc;

/// The stored bytes of an upload, for reading. They stay readable while this is held, even if the upload ends. If somebody
/// sends it then, a file of its own is given back at once, and reads as damaged.
///
/// What is read is what was written: every record is compared with its checksum, and the prelude is the index's. A record that
/// was stored before checksums were (formats 1 to 5) is read as it is.
pub struct Payload {
    // Before `sealed`, which holds the folder's lock: the last to go may give an extent back.
    pub(crate) body: Body,
    sealed: Arc<dyn Sealed>,
    kept: KeptFile,
    /// The part of the checksums that was needed last. An upload is mostly read in order.
    part: Mutex<Option<(u64, Part)>>,
}

/// Where checksums are.
pub trait Sealed: Send + Sync {
    fn grid(&self) -> Grid;
    fn sums(&self, seq: i64, part: u64) -> Result<Part, StoreError>;
}

impl Payload {
    pub(crate) fn new(sealed: Arc<dyn Sealed>, body: Body, kept: KeptFile) -> Self {
        Self { body, sealed, kept, part: Mutex::default() }
    }

    /// Fills `buffer` with the bytes of Z at `offset`. Cheapest from one border of records to another
    /// ([`Payload::border_before_end`]); of a record that is asked for in part, the rest is read besides.
    ///
    /// # Errors
    /// If the disk has spoilt some of it, or so many bytes are not there: the first such record. If it gives nothing
    /// back, which may pass: why. Then the buffer is not to be used.
    pub fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<(), ReadError> {
        let range = ByteRange::new(offset, offset + buffer.len() as u64);
        if let Err(error) = self.body.read_exact_at(buffer, offset) {
            return Err(self.unreadable(range, error));
        }
        let prelude_end = self.kept.prelude.len().min(self.sealed.grid().prelude as usize);
        let prelude = self.kept.prelude[..prelude_end].get(offset as usize..).unwrap_or_default();
        let common = prelude.len().min(buffer.len());
        buffer[..common].copy_from_slice(&prelude[..common]);
        for record in self.sealed.grid().records_in(range) {
            let bytes = self.sealed.grid().record(record, self.kept.total);
            let Some(expected) = self.sum(record)? else { continue };
            let found = match range.intersect(bytes) == bytes && !bytes.is_empty() {
                true => {
                    Some(checksums::sum_of(&buffer[(bytes.start - offset) as usize..(bytes.end - offset) as usize]))
                }
                false => self.sum_on_disk(bytes).map_err(StoreError::from)?,
            };
            if found != Some(expected) {
                return Err(ReadError::Damaged(bytes));
            }
        }
        Ok(())
    }

    /// Everything in `range` that the disk does not give back as it was written, as whole records.
    ///
    /// # Errors
    /// If the index fails.
    pub fn spoilt(&self, range: ByteRange) -> Result<Spoilt, StoreError> {
        let mut spoilt = Spoilt::default();
        for record in self.sealed.grid().records_in(range) {
            let bytes = self.sealed.grid().record(record, self.kept.total);
            let expected = self.sum(record)?;
            match self.sum_on_disk(bytes) {
                Ok(found) if expected.is_some() && found != expected => spoilt.wrong.insert(bytes),
                Ok(_) => {}
                Err(_) => spoilt.unreadable.insert(bytes),
            }
        }
        Ok(spoilt)
    }

    /// Where the record begins that a byte is in; of the prelude, Z itself.
    pub(crate) fn border_at(&self, offset: u64) -> u64 {
        let grid = self.sealed.grid();
        grid.record_at(offset).map_or(0, |record| grid.record(record, self.kept.total).start)
    }

    /// The last border of records in `range`, or its end if there is none in it.
    pub fn border_before_end(&self, range: ByteRange) -> u64 {
        let Some(last) = self.sealed.grid().record_at(range.end) else { return range.end };
        let border = self.sealed.grid().record(last, self.kept.total).start;
        if border > range.start && range.end < self.kept.total { border } else { range.end }
    }

    /// `None`: the file ends before it does.
    fn sum_on_disk(&self, bytes: ByteRange) -> io::Result<Option<u32>> {
        let mut record = vec![0; bytes.len() as usize];
        match self.body.read_exact_at(&mut record, bytes.start) {
            Ok(()) => Ok(Some(checksums::sum_of(&record))),
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(None),
            Err(error) => Err(error),
        }
    }

    fn sum(&self, record: u64) -> Result<Option<u32>, StoreError> {
        let (number, place) = (record / PART_RECORDS, (record % PART_RECORDS) as usize);
        let mut part = self.part.lock();
        let sums = match part.take().filter(|(known, _)| *known == number) {
            Some((_, sums)) if sums[place] != 0 => sums,
            // It may have been recorded since.
            _ => self.sealed.sums(self.kept.seq, number)?,
        };
        let sum = sums[place];
        *part = Some((number, sums));
        Ok((sum != 0).then_some(sum))
    }

    /// A file that is cut off is damage to the records behind its end. Any other error is the disk's, and may pass.
    fn unreadable(&self, range: ByteRange, error: io::Error) -> ReadError {
        let whole = |record| self.sealed.grid().record(record, self.kept.total);
        let is_cut_off = |bytes: &ByteRange| !bytes.is_empty() && matches!(self.sum_on_disk(*bytes), Ok(None));
        let cut_off = match error.kind() {
            io::ErrorKind::UnexpectedEof => self.sealed.grid().records_in(range).map(whole).find(is_cut_off),
            _ => None,
        };
        match cut_off {
            Some(bytes) => ReadError::Damaged(bytes),
            None => ReadError::Store(error.into()),
        }
    }
}

impl fmt::Debug for Payload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Payload").field("body", &self.body).finish_non_exhaustive()
    }
}
