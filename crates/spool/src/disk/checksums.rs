//! Checksums of records: CRC-32C (RFC 3720 §12.1) of each as it was written.
//!
//! The index keeps one for every record that is stored whole, recorded in the transaction that records the range; so what
//! says that a record is there also says what it was. They are there to notice what a disk has spoilt; whether a record is genuine
//! is for the service to say.

use hoop_units::{ByteRange, RangeSet};
use std::collections::BTreeMap;

/// The length of a record but the last (`docs/protocol.md` §3).
pub const RECORD_BYTES: u64 = 65_536;

/// Checksums are kept so many together: a row of half a page for each 8 MiB.
pub const PART_RECORDS: u64 = 128;

/// Where records begin and end: behind the prelude, each [`RECORD_BYTES`] long, the last shorter.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Grid {
    /// The bytes before the first record.
    pub prelude: u64,
}

impl Grid {
    /// The record that a byte is in; `None`: it is in the prelude.
    pub fn record_at(self, offset: u64) -> Option<u64> {
        Some(offset.checked_sub(self.prelude)? / RECORD_BYTES)
    }

    /// The bytes of a record of a Z with `total` of them.
    pub fn record(self, number: u64, total: u64) -> ByteRange {
        let start = self.prelude + number * RECORD_BYTES;
        ByteRange::new(start.min(total), (start + RECORD_BYTES).min(total))
    }

    /// The records that have a byte in `range`, in order.
    pub fn records_in(self, range: ByteRange) -> impl Iterator<Item = u64> {
        let first = self.record_at(range.start.max(self.prelude)).unwrap_or(0);
        let end = range.end.saturating_sub(self.prelude).div_ceil(RECORD_BYTES);
        first..end.max(first)
    }
}

/// Checksums of some of an upload's records. Zero stands for none.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Checksums(BTreeMap<u64, Part>);

/// Those of [`PART_RECORDS`] records one after the other.
pub type Part = Box<[u32; PART_RECORDS as usize]>;

impl Checksums {
    /// Notes a record's checksum.
    pub fn insert(&mut self, record: u64, sum: u32) {
        let part = self.0.entry(record / PART_RECORDS).or_insert_with(|| Box::new([0; PART_RECORDS as usize]));
        part[(record % PART_RECORDS) as usize] = sum;
    }

    /// Notes all of these.
    pub fn add(&mut self, more: Self) {
        for (number, part) in more.0 {
            let found = part.iter().enumerate().filter(|(_, sum)| **sum != 0);
            found.for_each(|(index, sum)| self.insert(number * PART_RECORDS + index as u64, *sum));
        }
    }

    /// A record's checksum, if it is noted.
    pub fn get(&self, record: u64) -> Option<u32> {
        let sum = self.0.get(&(record / PART_RECORDS))?[(record % PART_RECORDS) as usize];
        (sum != 0).then_some(sum)
    }

    /// Forgets what `done` has.
    pub fn forget(&mut self, done: &Self) {
        for (number, part) in &done.0 {
            let Some(ours) = self.0.get_mut(number) else { continue };
            let gone = ours.iter_mut().zip(part.iter()).filter(|(ours, done)| ours == done);
            gone.for_each(|(ours, _)| *ours = 0);
            if ours.iter().all(|sum| *sum == 0) {
                self.0.remove(number);
            }
        }
    }

    /// The parts in order, each with its number.
    pub fn parts(&self) -> impl Iterator<Item = (u64, &Part)> {
        self.0.iter().map(|(number, part)| (*number, part))
    }
}

/// A part as the index keeps it: four bytes each, big-endian; behind the last that is known nothing.
pub fn encode(part: &Part) -> Vec<u8> {
    let len = part.iter().rposition(|sum| *sum != 0).map_or(0, |last| last + 1);
    part[..len].iter().flat_map(|sum| sum.to_be_bytes()).collect()
}

/// Reads a part. One that is too long or cut off is read as far as it goes: what is not known is not compared.
pub fn decode(bytes: &[u8]) -> Part {
    let mut part = Box::new([0; PART_RECORDS as usize]);
    for (sum, word) in part.iter_mut().zip(bytes.as_chunks::<4>().0) {
        *sum = u32::from_be_bytes(*word);
    }
    part
}

/// The checksum of a whole record. Zero stands for none, so it is one instead.
pub fn sum_of(record: &[u8]) -> u32 {
    finish(crc32c::crc32c(record))
}

const fn finish(sum: u32) -> u32 {
    if sum == 0 { 1 } else { sum }
}

/// The records that are whole in `after` and were not in `before`, where only bytes of `range` came.
pub fn newly_whole(grid: Grid, total: u64, before: &RangeSet, after: &RangeSet, range: ByteRange) -> Vec<u64> {
    let is_new = |record: &u64| {
        let bytes = grid.record(*record, total);
        after.contains(bytes) && !before.contains(bytes)
    };
    grid.records_in(range).filter(is_new).collect()
}

/// Checksums up what one sender writes in order. A record of which it did not write everything, from first to last, has no sum from it.
#[derive(Clone, Debug, Default)]
pub struct Running {
    /// Where the next byte is expected, and the sum of the record's bytes before it.
    at: Option<(u64, u32)>,
}

impl Running {
    /// Takes bytes that were written at `offset`. Notes the checksums of records that end among them.
    pub fn feed(&mut self, grid: Grid, total: Option<u64>, mut offset: u64, mut bytes: &[u8], sums: &mut Checksums) {
        // The prelude has none: the index has the prelude itself.
        let skipped = grid.prelude.saturating_sub(offset).min(bytes.len() as u64);
        (offset, bytes) = (offset + skipped, &bytes[skipped as usize..]);
        while !bytes.is_empty() {
            let record = grid.record_at(offset).expect("the prelude is skipped");
            let span = grid.record(record, total.unwrap_or(u64::MAX));
            let (now, later) = bytes.split_at(((span.end - offset) as usize).min(bytes.len()));
            let before = match self.at {
                _ if offset == span.start => Some(0),
                Some((at, sum)) if at == offset => Some(sum),
                _ => None,
            };
            let end = offset + now.len() as u64;
            self.at = before.map(|before| (end, crc32c::crc32c_append(before, now)));
            if let Some((_, sum)) = self.at.filter(|_| end == span.end) {
                sums.insert(record, finish(sum));
            }
            (offset, bytes) = (end, later);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GRID: Grid = Grid { prelude: 10 };
    const TOTAL: u64 = 10 + 2 * RECORD_BYTES + 100;

    fn z() -> Vec<u8> {
        (0..TOTAL).map(|at| (at / 3) as u8).collect()
    }

    fn expected(record: u64) -> u32 {
        let bytes = GRID.record(record, TOTAL);
        sum_of(&z()[bytes.start as usize..bytes.end as usize])
    }

    #[test]
    fn the_checksum_is_crc_32c() {
        // RFC 3720 §B.4: 32 bytes of zeros, and of ones.
        assert_eq!((sum_of(&[0; 32]), sum_of(&[0xff; 32])), (0x8a91_36aa, 0x62a8_ab43));
    }

    #[test]
    fn what_comes_in_order_is_summed_up_however_it_is_cut() {
        let z = z();
        for step in [1_000, 65_536, 65_537, 200_000] {
            let (mut running, mut sums) = (Running::default(), Checksums::default());
            for start in (0..z.len()).step_by(step) {
                let end = (start + step).min(z.len());
                running.feed(GRID, Some(TOTAL), start as u64, &z[start..end], &mut sums);
            }
            for record in 0..3 {
                assert_eq!(sums.get(record), Some(expected(record)), "record {record} in steps of {step}");
            }
        }
    }

    #[test]
    fn a_record_that_was_not_written_in_one_go_has_no_sum() {
        let z = z();
        let (mut running, mut sums) = (Running::default(), Checksums::default());
        running.feed(GRID, Some(TOTAL), 500, &z[500..], &mut sums);
        assert_eq!([0, 1, 2].map(|record| sums.get(record)), [None, Some(expected(1)), Some(expected(2))]);
        let (mut running, mut sums) = (Running::default(), Checksums::default());
        running.feed(GRID, Some(TOTAL), 10, &z[10..500], &mut sums);
        running.feed(GRID, Some(TOTAL), 501, &z[501..70_000], &mut sums);
        assert_eq!(sums.get(0), None, "a byte is missing");
        running.feed(GRID, None, 10 + 2 * RECORD_BYTES, &z[10 + 2 * RECORD_BYTES as usize..], &mut sums);
        assert_eq!(sums.get(2), None, "where it ends is not known yet");
    }

    #[test]
    fn a_part_survives_its_bytes_and_damaged_ones_know_less() {
        let mut sums = Checksums::default();
        [(0, 7), (3, 9), (PART_RECORDS, 8)].into_iter().for_each(|(record, sum)| sums.insert(record, sum));
        let parts: Vec<_> = sums.parts().map(|(number, part)| (number, encode(part))).collect();
        assert_eq!(parts.iter().map(|(number, bytes)| (*number, bytes.len())).collect::<Vec<_>>(), [(0, 16), (1, 4)]);
        let mut part = decode(&parts[0].1);
        assert_eq!((part[0], part[1], part[3]), (7, 0, 9));
        part = decode(&parts[0].1[..14]);
        assert_eq!((part[0], part[3]), (7, 0));
        assert_eq!(decode(&[9; 9_999])[127], 0x0909_0909);
        let done = sums.clone();
        sums.insert(5, 1);
        sums.forget(&done);
        assert_eq!((sums.get(0), sums.get(5), sums.get(PART_RECORDS)), (None, Some(1), None));
    }

    #[test]
    fn only_records_that_a_range_completes_are_newly_whole() {
        let set = |ranges: &[(u64, u64)]| ranges.iter().map(|&(from, to)| ByteRange::new(from, to)).collect();
        let new = |before: &[(u64, u64)], from, to| {
            let before: RangeSet = set(before);
            let mut after = before.clone();
            after.insert(ByteRange::new(from, to));
            newly_whole(GRID, TOTAL, &before, &after, ByteRange::new(from, to))
        };
        assert_eq!(new(&[], 0, TOTAL), [0, 1, 2]);
        assert_eq!(new(&[], 0, 10 + RECORD_BYTES - 1), []);
        assert_eq!(new(&[(0, 500)], 500, 10 + RECORD_BYTES + 5), [0]);
        assert_eq!(new(&[(0, 10 + RECORD_BYTES)], 0, 10 + 2 * RECORD_BYTES), [1]);
        assert_eq!(new(&[], 0, 10), [], "the prelude is no record");
    }
}
