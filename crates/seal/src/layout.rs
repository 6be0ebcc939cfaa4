//! Where each record lies: [`Layout`].

use crate::record::RECORD_OVERHEAD;
use hoop_units::ByteRange;

/// The arithmetic of a sealed body without padding: which bytes of Z are which record, and of which plaintext.
///
/// ```text
/// Z          | prelude | record 0 (rs) | record 1 (rs) | … | last (17 ..= rs) |
/// plaintext            | rs - 17       | rs - 17       | … | 0 ..= rs - 17    |
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Layout {
    prelude_len: u64,
    record_size: u64,
    total: u64,
}

/// No sealed body has that length.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum LayoutError {
    /// There must be one record at least.
    #[error("{total} bytes are too few for a prelude of {prelude_len} and one record")]
    TooShort {
        /// The length as given.
        total: u64,
        /// The prelude's.
        prelude_len: u64,
    },
    /// The last record would be shorter than delimiter and tag.
    #[error("{total} bytes leave {last} for the last record, which takes {RECORD_OVERHEAD} at least")]
    LastRecord {
        /// The length as given.
        total: u64,
        /// What is left for the last record.
        last: u64,
    },
    /// A length that no file has.
    #[error("a body of {0} bytes is too long to count")]
    TooLong(u64),
}

/// 2^60 bytes, an exbibyte: sums of lengths below it cannot overflow.
const TOTAL_MAX: u64 = 1 << 60;

impl Layout {
    /// The layout of `plaintext_len` bytes sealed after a prelude of `prelude_len`, in records of `record_size`.
    ///
    /// # Errors
    /// If the length is beyond an exbibyte.
    ///
    /// # Panics
    /// If the record size is below 18, which no [`crate::Prelude`] has.
    pub fn for_plaintext(prelude_len: usize, record_size: u32, plaintext_len: u64) -> Result<Self, LayoutError> {
        let room = u64::from(record_size).checked_sub(RECORD_OVERHEAD).filter(|room| *room > 0);
        let room = room.expect("a prelude's record size is 18 at least");
        if plaintext_len > TOTAL_MAX / 2 {
            return Err(LayoutError::TooLong(plaintext_len));
        }
        let records = plaintext_len.div_ceil(room).max(1);
        let prelude_len = prelude_len as u64;
        let total = prelude_len + plaintext_len + records * RECORD_OVERHEAD;
        Ok(Self { prelude_len, record_size: record_size.into(), total })
    }

    /// The layout of a body of `total` bytes, prelude included.
    ///
    /// # Errors
    /// If no body has that length.
    pub fn for_total(prelude_len: usize, record_size: u32, total: u64) -> Result<Self, LayoutError> {
        let (prelude_len, record_size) = (prelude_len as u64, u64::from(record_size));
        if total > TOTAL_MAX {
            return Err(LayoutError::TooLong(total));
        }
        let records = total.checked_sub(prelude_len).filter(|records| *records >= RECORD_OVERHEAD);
        let records = records.ok_or(LayoutError::TooShort { total, prelude_len })?;
        let last = records % record_size;
        if last != 0 && last < RECORD_OVERHEAD {
            return Err(LayoutError::LastRecord { total, last });
        }
        Ok(Self { prelude_len, record_size, total })
    }

    /// The length of Z.
    pub const fn total(&self) -> u64 {
        self.total
    }

    /// The length of the prelude: where record 0 begins.
    pub const fn prelude_len(&self) -> u64 {
        self.prelude_len
    }

    /// How many records there are; one at least.
    pub const fn records(&self) -> u64 {
        (self.total - self.prelude_len).div_ceil(self.record_size)
    }

    /// The length of the plaintext.
    pub const fn plaintext_len(&self) -> u64 {
        self.total - self.prelude_len - self.records() * RECORD_OVERHEAD
    }

    /// Whether record `index` is the last.
    pub const fn is_last(&self, index: u64) -> bool {
        index + 1 == self.records()
    }

    /// The bytes of Z that are record `index`.
    ///
    /// # Panics
    /// If there is no such record.
    pub fn record(&self, index: u64) -> ByteRange {
        assert!(index < self.records(), "record {index} of {}", self.records());
        let start = self.prelude_len + index * self.record_size;
        ByteRange::new(start, (start + self.record_size).min(self.total))
    }

    /// The bytes of plaintext in record `index`.
    ///
    /// # Panics
    /// If there is no such record.
    pub fn plaintext(&self, index: u64) -> ByteRange {
        let start = index * (self.record_size - RECORD_OVERHEAD);
        ByteRange::new(start, start + self.record(index).len() - RECORD_OVERHEAD)
    }

    /// The record that byte `offset` of Z belongs to; `None` in the prelude or past the end.
    pub fn record_at(&self, offset: u64) -> Option<u64> {
        (offset < self.total).then(|| offset.checked_sub(self.prelude_len).map(|o| o / self.record_size)).flatten()
    }

    /// The records that `range` of Z is made of, first and one past the last, if it is cut at record borders: it may
    /// also start at 0, and so repeat the prelude. `None` if it is off this grid.
    pub fn records_of(&self, range: ByteRange) -> Option<(u64, u64)> {
        let start = if range.start == 0 { self.prelude_len } else { range.start };
        let border = |offset: u64| {
            let offset = offset.checked_sub(self.prelude_len)?;
            offset.is_multiple_of(self.record_size).then_some(offset / self.record_size)
        };
        let end = if range.end == self.total { Some(self.records()) } else { border(range.end) };
        let (first, end) = (border(start)?, end?);
        (range.end <= self.total && first < end).then_some((first, end))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn lengths_at_the_borders_of_a_record() {
        let layout = |n| Layout::for_plaintext(128, 65_536, n).unwrap();
        for (plaintext, records, total) in [
            (0, 1, 128 + 17),
            (1, 1, 128 + 18),
            (65_519, 1, 128 + 65_536),
            (65_520, 2, 128 + 65_536 + 18),
            (2 * 65_519, 2, 128 + 2 * 65_536),
        ] {
            let layout = layout(plaintext);
            assert_eq!((layout.records(), layout.total()), (records, total), "{plaintext} bytes");
        }
    }

    #[test]
    fn a_length_that_no_body_has_is_refused() {
        let of = |total| Layout::for_total(128, 65_536, total);
        assert_eq!(of(0), Err(LayoutError::TooShort { total: 0, prelude_len: 128 }));
        assert_eq!(of(144), Err(LayoutError::TooShort { total: 144, prelude_len: 128 }));
        assert!(of(145).is_ok());
        assert!(of(128 + 65_536).is_ok());
        assert_eq!(of(128 + 65_536 + 16), Err(LayoutError::LastRecord { total: 128 + 65_536 + 16, last: 16 }));
        assert_eq!(of(u64::MAX), Err(LayoutError::TooLong(u64::MAX)));
    }

    proptest! {
        #[test]
        fn records_tile_the_body_and_the_plaintext(
            prelude_len in 21usize..277, record_size in 18u32..200, plaintext_len in 0u64..5_000,
        ) {
            let layout = Layout::for_plaintext(prelude_len, record_size, plaintext_len).unwrap();
            prop_assert_eq!(Layout::for_total(prelude_len, record_size, layout.total()), Ok(layout));
            prop_assert_eq!(layout.plaintext_len(), plaintext_len);
            let (mut z, mut plain) = (layout.prelude_len(), 0);
            for index in 0..layout.records() {
                let (record, plaintext) = (layout.record(index), layout.plaintext(index));
                prop_assert_eq!((record.start, plaintext.start), (z, plain));
                prop_assert_eq!(record.len(), plaintext.len() + RECORD_OVERHEAD);
                prop_assert_eq!(layout.record_at(record.start), Some(index));
                prop_assert_eq!(layout.record_at(record.end - 1), Some(index));
                prop_assert_eq!(layout.records_of(record), Some((index, index + 1)));
                prop_assert_eq!(layout.records_of(ByteRange::new(0, record.end)), Some((0, index + 1)));
                prop_assert_eq!(layout.records_of(ByteRange::new(record.start + 1, record.end)), None);
                (z, plain) = (record.end, plaintext.end);
            }
            prop_assert_eq!((z, plain), (layout.total(), plaintext_len));
            prop_assert_eq!(layout.record_at(layout.total()), None);
            prop_assert_eq!(layout.record_at(0), None);
        }
    }
}
