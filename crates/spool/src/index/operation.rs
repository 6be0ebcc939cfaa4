//! What the journal can repeat: [`Operation`].
//!
//! An operation is written as its fields in order, all numbers big-endian. What has no fixed length has it in front, in four bytes; what may be absent has
//! a byte in front, 0 or 1. The first byte says which operation it is. `docs/spool.md` has the fields.

use crate::disk::checksums::{self, Checksums, PART_RECORDS};
use crate::disk::segments::Extent;
use crate::model::error::StoreError;
use crate::model::state::State;
use crate::model::upload::{Change, Offer, Reason, decode_ranges, encode_ranges};
use hoop_units::{AddressKey, RangeSet, UnixTime, UploadId};

/// Bytes that are on disk and synced, to be recorded.
pub struct Stored {
    pub offer: Offer,
    /// Where they are; `None`: in a file of the upload's own.
    pub extent: Option<Extent>,
    pub total: u64,
    /// All that is stored with them.
    pub stored: RangeSet,
    /// How many they are.
    pub added: u64,
    /// The checksums of records that they complete.
    pub sums: Checksums,
    pub now: UnixTime,
}

/// A change to the index that can be repeated.
pub enum Operation {
    /// Bytes are on disk.
    Record(Stored),
    /// Delivery, or an owner, changed an upload.
    Change { id: UploadId, change: Change, now: UnixTime },
}

const RECORD: u8 = 1;
const CHANGE: u8 = 2;

/// What a record of stored bytes is in the journal.
pub fn encode_record(stored: &Stored) -> Vec<u8> {
    let Stored { offer, extent, total, stored, added, sums, now } = stored;
    let mut writer = Writer(vec![RECORD]);
    writer.bytes(offer.id.as_bytes());
    writer.text(&offer.prelude);
    writer.maybe(offer.total, Writer::long);
    writer.text(offer.dest.as_bytes());
    writer.word(offer.expires.0);
    writer.bytes(offer.device.as_bytes());
    writer.maybe(offer.deadline, |writer, at| writer.word(at.0));
    writer.maybe(*extent, |writer, extent| {
        writer.long(extent.segment);
        writer.long(extent.base);
    });
    writer.long(*total);
    writer.text(&encode_ranges(stored));
    writer.long(*added);
    for (number, part) in sums.parts() {
        writer.byte(1);
        writer.long(number);
        writer.text(&checksums::encode(part));
    }
    writer.byte(0);
    writer.word(now.0);
    writer.0
}

/// What a change is in the journal.
pub fn encode_change(id: UploadId, change: &Change, now: UnixTime) -> Vec<u8> {
    let Change { state, delivered, attempts, next_attempt, reason, deadline, answer } = change;
    let mut writer = Writer(vec![CHANGE]);
    writer.bytes(id.as_bytes());
    writer.maybe(*state, |writer, state| writer.byte(state.number()));
    writer.maybe(delivered.as_ref(), |writer, ranges| writer.text(&encode_ranges(ranges)));
    writer.maybe(*attempts, Writer::word);
    writer.maybe(*next_attempt, |writer, at| writer.word(at.0));
    writer.maybe(reason.as_ref(), |writer, reason| {
        writer.maybe(reason.as_ref(), |writer, reason| {
            writer.text(reason.code.as_bytes());
            writer.text(reason.detail.as_bytes());
        });
    });
    writer.maybe(*deadline, |writer, at| writer.word(at.0));
    writer.maybe(answer.as_ref(), |writer, answer| writer.text(answer));
    writer.word(now.0);
    writer.0
}

/// Reads an operation.
///
/// # Errors
/// If it is none. A record whose checksum is right holds one, so that is damage, or a later version's.
pub fn decode(bytes: &[u8]) -> Result<Operation, StoreError> {
    let mut reader = Reader(bytes);
    let operation = match reader.byte()? {
        RECORD => Operation::Record(record(&mut reader)?),
        CHANGE => change(&mut reader)?,
        _ => return Err(MEANINGLESS),
    };
    if reader.0.is_empty() { Ok(operation) } else { Err(MEANINGLESS) }
}

fn record(reader: &mut Reader<'_>) -> Result<Stored, StoreError> {
    let offer = Offer {
        id: UploadId(reader.array()?),
        prelude: reader.text()?.to_vec(),
        total: reader.maybe(Reader::long)?,
        dest: reader.string()?,
        expires: UnixTime(reader.word()?),
        device: AddressKey(reader.array()?),
        deadline: reader.maybe(|reader| reader.word().map(UnixTime))?,
    };
    let extent = reader.maybe(|reader| Ok(Extent { segment: reader.long()?, base: reader.long()? }))?;
    let (total, stored, added) = (reader.long()?, reader.ranges()?, reader.long()?);
    let mut sums = Checksums::default();
    while reader.flag()? {
        let (number, part) = (reader.long()?, checksums::decode(reader.text()?));
        let first = number.checked_mul(PART_RECORDS).ok_or(MEANINGLESS)?;
        let known = part.iter().enumerate().filter(|(_, sum)| **sum != 0);
        known.for_each(|(index, sum)| sums.insert(first + index as u64, *sum));
    }
    Ok(Stored { offer, extent, total, stored, added, sums, now: UnixTime(reader.word()?) })
}

fn change(reader: &mut Reader<'_>) -> Result<Operation, StoreError> {
    let id = UploadId(reader.array()?);
    let state = |reader: &mut Reader<'_>| State::by_number(reader.byte()?).ok_or(MEANINGLESS);
    let reason = |reader: &mut Reader<'_>| {
        reader.maybe(|reader| Ok(Reason { code: reader.string()?, detail: reader.string()? }))
    };
    let time = |reader: &mut Reader<'_>| reader.word().map(UnixTime);
    let change = Change {
        state: reader.maybe(state)?,
        delivered: reader.maybe(Reader::ranges)?,
        attempts: reader.maybe(Reader::word)?,
        next_attempt: reader.maybe(time)?,
        reason: reader.maybe(reason)?,
        deadline: reader.maybe(time)?,
        answer: reader.maybe(|reader| reader.text().map(<[u8]>::to_vec))?,
    };
    Ok(Operation::Change { id, change, now: time(reader)? })
}

const MEANINGLESS: StoreError = StoreError::Damaged("an operation in the journal means nothing");

struct Writer(Vec<u8>);

impl Writer {
    fn bytes(&mut self, bytes: &[u8]) {
        self.0.extend_from_slice(bytes);
    }

    fn byte(&mut self, byte: u8) {
        self.0.push(byte);
    }

    fn word(&mut self, number: u32) {
        self.bytes(&number.to_be_bytes());
    }

    fn long(&mut self, number: u64) {
        self.bytes(&number.to_be_bytes());
    }

    fn text(&mut self, bytes: &[u8]) {
        self.word(u32::try_from(bytes.len()).expect("no field has 4 GiB"));
        self.bytes(bytes);
    }

    fn maybe<T>(&mut self, value: Option<T>, write: impl FnOnce(&mut Self, T)) {
        self.byte(u8::from(value.is_some()));
        if let Some(value) = value {
            write(self, value);
        }
    }
}

struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn bytes(&mut self, len: usize) -> Result<&'a [u8], StoreError> {
        let (bytes, rest) = self.0.split_at_checked(len).ok_or(MEANINGLESS)?;
        self.0 = rest;
        Ok(bytes)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], StoreError> {
        self.bytes(N)?.try_into().map_err(|_| MEANINGLESS)
    }

    fn byte(&mut self) -> Result<u8, StoreError> {
        self.array::<1>().map(|[byte]| byte)
    }

    fn flag(&mut self) -> Result<bool, StoreError> {
        match self.byte()? {
            0 => Ok(false),
            1 => Ok(true),
            _ => Err(MEANINGLESS),
        }
    }

    fn word(&mut self) -> Result<u32, StoreError> {
        self.array().map(u32::from_be_bytes)
    }

    fn long(&mut self) -> Result<u64, StoreError> {
        self.array().map(u64::from_be_bytes)
    }

    fn text(&mut self) -> Result<&'a [u8], StoreError> {
        let len = self.word()?;
        self.bytes(usize::try_from(len).map_err(|_| MEANINGLESS)?)
    }

    fn string(&mut self) -> Result<String, StoreError> {
        String::from_utf8(self.text()?.to_vec()).map_err(|_| MEANINGLESS)
    }

    fn ranges(&mut self) -> Result<RangeSet, StoreError> {
        decode_ranges(self.text()?)
    }

    fn maybe<T>(&mut self, read: impl FnOnce(&mut Self) -> Result<T, StoreError>) -> Result<Option<T>, StoreError> {
        if self.flag()? { read(self).map(Some) } else { Ok(None) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use hoop_units::ByteRange;

    fn ranges() -> RangeSet {
        [ByteRange::new(0, 5), ByteRange::new(9, 1 << 40)].into_iter().collect()
    }

    fn records() -> Vec<Vec<u8>> {
        let offer = Offer {
            id: UploadId([7; 16]),
            prelude: vec![1; 128],
            total: None,
            dest: "https://photos.example/hoop/post".into(),
            expires: UnixTime(9),
            device: AddressKey([8; 16]),
            deadline: Some(UnixTime(4)),
        };
        let mut sums = Checksums::default();
        [(0, 5), (3, 6), (PART_RECORDS * 7, 8)].into_iter().for_each(|(record, sum)| sums.insert(record, sum));
        let extent = Some(Extent { segment: 3, base: 4096 });
        let full =
            Stored { offer: offer.clone(), extent, total: 77, stored: ranges(), added: 5, sums, now: UnixTime(1) };
        let offer = Offer { total: Some(5), deadline: None, prelude: Vec::new(), ..offer };
        let (stored, sums) = (RangeSet::new(), Checksums::default());
        let bare = Stored { offer, extent: None, total: 0, stored, added: 0, sums, now: UnixTime(0) };
        [full, bare].iter().map(encode_record).collect()
    }

    fn changes() -> Vec<Vec<u8>> {
        let full = Change {
            state: Some(State::Accepted),
            delivered: Some(ranges()),
            attempts: Some(3),
            next_attempt: Some(UnixTime(5)),
            reason: Some(Some(Reason::new("a", "ä"))),
            deadline: Some(UnixTime(6)),
            answer: Some(vec![9; 300]),
        };
        let cleared = Change { reason: Some(None), ..Change::default() };
        let change = |change: &Change| encode_change(UploadId([7; 16]), change, UnixTime(2));
        [full, cleared, Change::default()].iter().map(change).collect()
    }

    fn again(bytes: &[u8]) -> Result<Vec<u8>, StoreError> {
        Ok(match decode(bytes)? {
            Operation::Record(stored) => encode_record(&stored),
            Operation::Change { id, change, now } => encode_change(id, &change, now),
        })
    }

    #[test]
    fn operations_survive_their_bytes_and_cut_off_ones_are_refused() {
        for bytes in records().into_iter().chain(changes()) {
            assert_eq!(again(&bytes).unwrap(), bytes);
            for len in 0..bytes.len() {
                assert!(again(&bytes[..len]).is_err(), "{len} of {}", bytes.len());
            }
            assert!(again(&[&bytes[..], &[0]].concat()).is_err(), "a byte too many");
        }
    }

    #[test]
    fn an_unknown_operation_is_refused() {
        assert!(matches!(again(&[3; 99]), Err(StoreError::Damaged(_))));
    }
}
