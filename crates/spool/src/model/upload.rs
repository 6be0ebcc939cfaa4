//! What is known of one upload: [`Upload`]; what a sender says of it: [`Offer`]; what delivery makes of it: [`Change`].

use crate::model::error::StoreError;
use crate::model::state::State;
use hoop_units::{AddressKey, ByteRange, RangeSet, UnixTime, UploadId};

/// What a sender says of an upload. All but the last two must be the same whenever the same id comes again.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Offer {
    /// Its name.
    pub id: UploadId,
    /// The bytes of Z before the first record; empty: the sender does not have them yet.
    pub prelude: Vec<u8>,
    /// The length of Z; `None` as long as the sender has not told (a chunked body).
    pub total: Option<u64>,
    /// The service's post URL.
    pub dest: String,
    /// When its ticket ends; without a prelude, when it is dropped.
    pub expires: UnixTime,
    /// Who sends. The first sender's is the upload's.
    pub device: AddressKey,
    /// When it should be at the service; the last that anyone says counts, and `None` changes nothing.
    pub deadline: Option<UnixTime>,
}

impl Offer {
    /// Whether its prelude is still to come.
    pub const fn is_early(&self) -> bool {
        self.prelude.is_empty()
    }
}

/// What is in an upload's way: a code of `docs/protocol.md`, and a sentence.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Reason {
    /// The code.
    pub code: String,
    /// This occurrence, in words.
    pub detail: String,
}

impl Reason {
    /// The longest sentence that is kept, in bytes: a paragraph. Another end may have written it.
    pub const DETAIL_MAX: usize = 512;

    /// A reason; an overlong sentence is cut.
    pub fn new(code: impl Into<String>, detail: impl Into<String>) -> Self {
        let (code, mut detail) = (code.into(), detail.into());
        detail.truncate(detail.floor_char_boundary(Self::DETAIL_MAX));
        Self { code, detail }
    }
}

/// What is known of one upload.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Upload {
    /// Its name.
    pub id: UploadId,
    /// The bytes of Z before the first record; empty: they are still to come.
    pub prelude: Vec<u8>,
    /// The length of Z.
    pub total: u64,
    /// The service's post URL.
    pub dest: String,
    /// When its ticket ends; without a prelude, when it is dropped.
    pub expires: UnixTime,
    /// Who sent its first bytes; [`AddressKey::UNKNOWN`] for those taken by a version that did not write it down.
    pub device: AddressKey,
    /// When it should be at the service.
    pub deadline: Option<UnixTime>,
    /// Where it stands.
    pub state: State,
    /// What is on disk and synced; kept as it was when the payload is removed.
    pub stored: RangeSet,
    /// What the service has, as far as it told us.
    pub delivered: RangeSet,
    /// When its first bytes were recorded.
    pub created: UnixTime,
    /// When anything was recorded last.
    pub updated: UnixTime,
    /// When all of it was stored.
    pub stored_at: Option<UnixTime>,
    /// When the service had all of it.
    pub received_at: Option<UnixTime>,
    /// When its state became final.
    pub finished_at: Option<UnixTime>,
    /// Failed attempts since the last progress.
    pub attempts: u32,
    /// When it is due, in wall time; past: it is due now; `None`: nothing is to be done.
    pub next_attempt: Option<UnixTime>,
    /// What is in its way.
    pub reason: Option<Reason>,
    /// The application's answer, sealed for the device.
    pub answer: Option<Vec<u8>>,
}

impl Upload {
    /// Whether its prelude is still to come.
    pub const fn is_early(&self) -> bool {
        self.prelude.is_empty()
    }

    /// Whether more of it is taken: also once it was whole, if the disk has spoilt some of it since.
    pub fn takes_more(&self) -> bool {
        self.state.takes_bytes() && self.stored.len() < self.total
    }

    /// What is stored and the service lacks, as far as it told us.
    pub fn undelivered(&self) -> RangeSet {
        undelivered(&self.stored, &self.delivered)
    }
}

/// What is in `stored` and not in `delivered`.
pub fn undelivered(stored: &RangeSet, delivered: &RangeSet) -> RangeSet {
    let mut left = stored.clone();
    delivered.iter().for_each(|range| left.remove(range));
    left
}

/// What delivery makes of an upload; `None` leaves a field as it is.
#[derive(Clone, Debug, Default)]
pub struct Change {
    /// Where it stands now. A step backwards is not taken, and is no error.
    pub state: Option<State>,
    /// What the service has.
    pub delivered: Option<RangeSet>,
    /// Failed attempts since the last progress.
    pub attempts: Option<u32>,
    /// When it is due again.
    pub next_attempt: Option<UnixTime>,
    /// What is in its way; `Some(None)`: nothing any more.
    pub reason: Option<Option<Reason>>,
    /// When it should be at the service.
    pub deadline: Option<UnixTime>,
    /// The application's answer.
    pub answer: Option<Vec<u8>>,
}

/// A set of ranges in the index: pairs of first byte and byte after the last, eight bytes each, big-endian, ascending.
pub fn encode_ranges(set: &RangeSet) -> Vec<u8> {
    set.iter().flat_map(|range| [range.start, range.end]).flat_map(u64::to_be_bytes).collect()
}

/// Reads such a set.
pub fn decode_ranges(bytes: &[u8]) -> Result<RangeSet, StoreError> {
    let (pairs, rest) = bytes.as_chunks::<16>();
    if !rest.is_empty() {
        return Err(StoreError::Damaged("a set of ranges is cut off"));
    }
    let number = |word: &[u8]| word.iter().fold(0_u64, |sum, byte| sum << 8 | u64::from(*byte));
    pairs
        .iter()
        .map(|pair| match (number(&pair[..8]), number(&pair[8..])) {
            (start, end) if start < end => Ok(ByteRange::new(start, end)),
            _ => Err(StoreError::Damaged("a range ends before it starts")),
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_survive_their_bytes_and_damaged_ones_are_refused() {
        let set: RangeSet = [ByteRange::new(0, 5), ByteRange::new(1 << 40, u64::MAX)].into_iter().collect();
        let bytes = encode_ranges(&set);
        assert_eq!(decode_ranges(&bytes).unwrap(), set);
        assert!(decode_ranges(&bytes[..31]).is_err());
        assert!(decode_ranges(&[0; 16]).is_err(), "empty range");
    }

    #[test]
    fn an_overlong_reason_is_cut_at_a_character() {
        let reason = Reason::new("x", "ä".repeat(1000));
        assert_eq!(reason.detail.len(), Reason::DETAIL_MAX);
        let reason = Reason::new("x", format!("a{}", "ä".repeat(1000)));
        assert_eq!(reason.detail.len(), Reason::DETAIL_MAX - 1);
    }
}
