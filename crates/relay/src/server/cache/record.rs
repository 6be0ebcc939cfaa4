//! What the cache has in a file besides the body: [`Record`]. Pure.
//!
//! ```text
//! file:    body | magic (8) | SHA-256 of content (32) | content | length of content (4) | magic (8)
//! content: length of the body (8) | asked, came: milliseconds since 1970 (8 each) | place (16)
//!          flags (1): 1 own, 2 public, 4 authorization | target, fields, values (16 each) | device (20) | credentials (16)
//!          names of Vary, with commas | the answer's head as a section | CRC-32C of each 256 KiB of the body, 4 bytes each
//! ```
//!
//! Numbers are little-endian, and before each of the last three is its length (4). The record is at the end, since it is written last: a file that was not finished has none.

use super::key::{Digest, Owner, Selector};
use bytes::Bytes;
use hoop_endpoint::DeviceId;
use http::header::HeaderName;
use ring::digest::{SHA256, SHA256_OUTPUT_LEN, digest};

const MAGIC: &[u8; 8] = b"HOOPCCH1";
const END: &[u8; 8] = b"HOOPCCHE";

/// What comes after the content: its length, and the magic.
pub(super) const TAIL: usize = 12;

/// The most bytes of a record: a head has 64 KiB, and the sums of 4 GiB take as much.
pub(super) const RECORD_MAX: usize = 256 << 10;

/// So much of a body has one sum, in bytes.
pub(super) const BLOCK: usize = 256 << 10;

/// What is known of an entry besides its body.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Record {
    pub selector: Selector,
    /// Whether the request had `Authorization`.
    pub has_authorization: bool,
    /// Milliseconds since 1970.
    pub asked: u64,
    pub came: u64,
    /// Where the relay connects to, as [`super::disk::Disk`] has it.
    pub place: Digest,
    pub length: u64,
    /// The answer's head.
    pub section: Bytes,
    pub sums: Vec<u32>,
}

impl Record {
    /// As it is at a file's end.
    pub(super) fn encode(&self) -> Vec<u8> {
        let selector = &self.selector;
        let mut content = Vec::with_capacity(256 + self.section.len() + 4 * self.sums.len());
        for number in [self.length, self.asked, self.came] {
            content.extend_from_slice(&number.to_le_bytes());
        }
        content.extend_from_slice(&self.place.0);
        let flags = [selector.owner.is_some(), selector.is_public, self.has_authorization];
        content.push(flags.iter().enumerate().map(|(bit, is)| u8::from(*is) << bit).sum());
        for digest in [selector.target, selector.fields, selector.values] {
            content.extend_from_slice(&digest.0);
        }
        let owner = selector.owner.unwrap_or(Owner { device: DeviceId([0; 20]), credentials: Digest::default() });
        content.extend_from_slice(&owner.device.0);
        content.extend_from_slice(&owner.credentials.0);
        let vary: Vec<_> = selector.vary.iter().map(HeaderName::as_str).collect();
        let sums: Vec<_> = self.sums.iter().flat_map(|sum| sum.to_le_bytes()).collect();
        for part in [vary.join(",").as_bytes(), &self.section, &sums] {
            content.extend_from_slice(&length(part));
            content.extend_from_slice(part);
        }
        Self::sealed(&content)
    }

    /// Content with what tells whether it is whole.
    pub(super) fn sealed(content: &[u8]) -> Vec<u8> {
        [&MAGIC[..], digest(&SHA256, content).as_ref(), content, &length(content), END].concat()
    }

    /// The content of a whole one.
    pub(super) fn content(record: &[u8]) -> &[u8] {
        record.get(MAGIC.len() + SHA256_OUTPUT_LEN..record.len() - TAIL).unwrap_or_default()
    }

    /// How long a whole record is whose last [`TAIL`] bytes are these.
    pub(super) fn len(tail: &[u8; TAIL]) -> Option<usize> {
        let (len, end) = tail.split_first_chunk()?;
        let len = MAGIC.len() + SHA256_OUTPUT_LEN + u32::from_le_bytes(*len) as usize + TAIL;
        (end == END && len <= RECORD_MAX).then_some(len)
    }

    /// Reads a whole one.
    pub(super) fn decode(record: &[u8]) -> Option<Self> {
        if Self::len(record.last_chunk()?)? != record.len() {
            return None;
        }
        let (sum, content) = record.strip_prefix(MAGIC)?.split_at_checked(SHA256_OUTPUT_LEN)?;
        let content = content.get(..content.len().checked_sub(TAIL)?)?;
        if digest(&SHA256, content).as_ref() != sum {
            return None;
        }
        let mut rest = content;
        let mut numbers = [0; 3];
        for number in &mut numbers {
            *number = u64::from_le_bytes(take(&mut rest)?);
        }
        let place = Digest(take(&mut rest)?);
        let [flags] = take(&mut rest)?;
        let (target, fields, values) = (take(&mut rest)?, take(&mut rest)?, take(&mut rest)?);
        let owner = Owner { device: DeviceId(take(&mut rest)?), credentials: Digest(take(&mut rest)?) };
        let (vary, section, sums) = (part(&mut rest)?, part(&mut rest)?, part(&mut rest)?);
        let vary = std::str::from_utf8(vary).ok()?.split(',').filter(|name| !name.is_empty());
        let vary = vary.map(HeaderName::try_from).collect::<Result<_, _>>().ok()?;
        let selector = Selector {
            target: Digest(target),
            fields: Digest(fields),
            owner: (flags & 1 != 0).then_some(owner),
            is_public: flags & 2 != 0,
            vary,
            values: Digest(values),
        };
        let [length, asked, came] = numbers;
        let (sums, left) = sums.as_chunks();
        let sums: Vec<_> = sums.iter().map(|sum| u32::from_le_bytes(*sum)).collect();
        let is_right =
            rest.is_empty() && left.is_empty() && flags < 8 && sums.len() as u64 == length.div_ceil(BLOCK as u64);
        let section = Bytes::copy_from_slice(section);
        let has_authorization = flags & 4 != 0;
        is_right.then_some(Self { selector, has_authorization, asked, came, place, length, section, sums })
    }
}

fn length(part: &[u8]) -> [u8; 4] {
    u32::try_from(part.len()).unwrap_or(u32::MAX).to_le_bytes()
}

fn take<const N: usize>(rest: &mut &[u8]) -> Option<[u8; N]> {
    let (taken, more) = rest.split_first_chunk()?;
    *rest = more;
    Some(*taken)
}

fn part<'a>(rest: &mut &'a [u8]) -> Option<&'a [u8]> {
    let len = u32::from_le_bytes(take(rest)?) as usize;
    let (part, more) = rest.split_at_checked(len)?;
    *rest = more;
    Some(part)
}

/// The sums of a body that comes piece by piece.
#[derive(Clone, Default, Debug)]
pub(super) struct Sums {
    whole: Vec<u32>,
    last: u32,
    /// How much of a block `last` is of.
    filled: usize,
}

impl Sums {
    pub(super) fn push(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            let (of_block, more) = bytes.split_at(bytes.len().min(BLOCK - self.filled));
            self.last = crc32c::crc32c_append(self.last, of_block);
            self.filled += of_block.len();
            bytes = more;
            if self.filled == BLOCK {
                self.whole.push(self.last);
                (self.last, self.filled) = (0, 0);
            }
        }
    }

    /// Those of all that came.
    pub(super) fn finish(mut self) -> Vec<u32> {
        self.whole.extend((self.filled > 0).then_some(self.last));
        self.whole
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(owner: Option<Owner>, sums: usize) -> Record {
        let [target, fields, values, place] = [1, 2, 3, 4].map(|byte| Digest([byte; 16]));
        let vary = ["accept", "x-a"].map(HeaderName::from_static).to_vec();
        let selector = Selector { target, fields, owner, is_public: owner.is_none(), vary, values };
        let length = (sums * BLOCK) as u64;
        let (section, sums) = (Bytes::from_static(b"section"), (0..sums as u32).collect());
        Record { selector, has_authorization: true, asked: 70, came: 71, place, length, section, sums }
    }

    #[test]
    fn a_record_is_read_as_it_was_written_and_refused_if_anything_is_changed() {
        let owner = Owner { device: DeviceId([7; 20]), credentials: Digest([8; 16]) };
        for record in [record(None, 0), record(Some(owner), 3)] {
            let encoded = record.encode();
            assert_eq!(Record::decode(&encoded).as_ref(), Some(&record));
            assert_eq!(Record::len(encoded.last_chunk().unwrap()), Some(encoded.len()));
            for at in 0..encoded.len() {
                for bit in 0..8 {
                    let mut damaged = encoded.clone();
                    damaged[at] ^= 1 << bit;
                    assert_eq!(Record::decode(&damaged), None, "bit {bit} of byte {at}");
                }
                assert_eq!(Record::decode(&encoded[..at]), None, "{at} bytes");
                assert_eq!(Record::decode(&encoded[at + 1..]), None, "without the first {}", at + 1);
            }
        }
    }

    #[test]
    fn a_record_whose_sums_are_not_those_of_its_length_is_refused() {
        let mut wrong = record(None, 2);
        wrong.length += 1;
        assert_eq!(Record::decode(&wrong.encode()), None);
        wrong.length -= BLOCK as u64;
        assert_eq!(Record::decode(&wrong.encode()).map(|record| record.length), Some(wrong.length));
    }

    #[test]
    fn sums_do_not_depend_on_how_a_body_comes() {
        let body: Vec<u8> = (0..BLOCK * 2 + 1_000).map(|at| (at / 7) as u8).collect();
        let expected: Vec<_> = body.chunks(BLOCK).map(crc32c::crc32c).collect();
        for piece in [1_000, 65_536, BLOCK, body.len()] {
            let mut sums = Sums::default();
            body.chunks(piece).for_each(|piece| sums.push(piece));
            assert_eq!(sums.finish(), expected, "{piece}");
        }
        assert!(Sums::default().finish().is_empty());
    }
}
