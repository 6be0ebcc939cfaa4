//! One record, sealed or opened on its own: [`ContentKey`] (RFC 8188 §2).

use alloc::vec::Vec;
use core::fmt;
use ring::aead::{AES_128_GCM, AES_256_GCM, Aad, Algorithm, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use ring::digest::{Context, SHA256};
use ring::hkdf::{HKDF_SHA256, KeyType, Prk, Salt};
use zeroize::Zeroize as _;

use crate::prelude::SALT_LEN;
use hoop_units::UploadId;

/// What a record is longer than its plaintext: a delimiter byte and a 16-byte tag.
pub const RECORD_OVERHEAD: u64 = 17;

const TAG_LEN: usize = 16;

/// After the plaintext of a record that others follow (RFC 8188 §2).
const DELIMITER: u8 = 1;

/// After the plaintext of the last record.
const LAST_DELIMITER: u8 = 2;

/// How records are enciphered.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Suite {
    /// AES-256-GCM with 32 bytes of key material: RFC 8188 with a longer key, under a name of its own. The default.
    #[default]
    Aes256Gcm,
    /// RFC 8188 to the letter, so that its other implementations can check ours.
    Aes128Gcm,
}

impl Suite {
    /// The content coding's name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Aes256Gcm => "aes256gcm",
            Self::Aes128Gcm => "aes128gcm",
        }
    }

    /// The suite of that name.
    pub fn by_name(name: &str) -> Option<Self> {
        [Self::Aes256Gcm, Self::Aes128Gcm].into_iter().find(|suite| suite.name() == name)
    }

    /// The suite's byte in a ticket.
    pub const fn byte(self) -> u8 {
        match self {
            Self::Aes256Gcm => 1,
            Self::Aes128Gcm => 2,
        }
    }

    /// The suite of that byte.
    pub fn by_byte(byte: u8) -> Option<Self> {
        [Self::Aes256Gcm, Self::Aes128Gcm].into_iter().find(|suite| suite.byte() == byte)
    }

    const fn algorithm(self) -> &'static Algorithm {
        match self {
            Self::Aes256Gcm => &AES_256_GCM,
            Self::Aes128Gcm => &AES_128_GCM,
        }
    }

    const fn key_info(self) -> &'static [u8] {
        match self {
            Self::Aes256Gcm => b"Content-Encoding: aes256gcm\0",
            Self::Aes128Gcm => b"Content-Encoding: aes128gcm\0",
        }
    }

    /// How much of K is the input keying material.
    const fn ikm_len(self) -> usize {
        match self {
            Self::Aes256Gcm => 32,
            Self::Aes128Gcm => 16,
        }
    }
}

impl fmt::Display for Suite {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// K: the fresh key of one upload, known to the device and the service alone. Its `Debug` shows nothing of it.
#[derive(Clone, PartialEq, Eq)]
pub struct UploadKey(pub [u8; 32]);

/// It is wiped from memory when it is dropped.
impl Drop for UploadKey {
    fn drop(&mut self) {
        self.0.zeroize();
    }
}

impl UploadKey {
    /// The upload's name: the first 16 bytes of SHA-256(`"hoop-upload-id-v1"` ‖ K). So nobody who does not know K gets a
    /// ticket for that name, and K alone gives it.
    pub fn upload_id(&self) -> UploadId {
        let mut hash = Context::new(&SHA256);
        hash.update(b"hoop-upload-id-v1");
        hash.update(&self.0);
        UploadId(*hash.finish().as_ref().first_chunk().expect("a hash is longer than an id"))
    }
}

impl fmt::Debug for UploadKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("UploadKey(…)")
    }
}

/// A record does not open.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum OpenError {
    /// It is shorter than delimiter and tag.
    #[error("record {index} has {len} bytes, fewer than {RECORD_OVERHEAD}")]
    TooShort {
        /// Which record.
        index: u64,
        /// Its length.
        len: usize,
    },
    /// It was altered, is not this record, or is sealed under another key.
    #[error("record {index} was altered, or is sealed under another key")]
    Unauthentic {
        /// Which record.
        index: u64,
    },
    /// It says that it is the last, and is not; or that it is not, and is (a truncation).
    #[error("record {index} says that it is {}the last", if *.says_last { "" } else { "not " })]
    Misplaced {
        /// Which record.
        index: u64,
        /// What its delimiter says.
        says_last: bool,
    },
    /// It has no delimiter.
    #[error("record {index} has no delimiter")]
    NoDelimiter {
        /// Which record.
        index: u64,
    },
}

/// The keys of one sealed body: content key and nonce base. Seals and opens any record on its own, in place.
///
/// It has no state, so records can be worked on in any order and on several cores at once.
pub struct ContentKey {
    key: LessSafeKey,
    nonce_base: [u8; NONCE_LEN],
}

/// A length for HKDF-Expand.
struct Len(usize);

impl KeyType for Len {
    fn len(&self) -> usize {
        self.0
    }
}

/// The only way that HKDF can fail is a length beyond 255 blocks.
pub(crate) fn expand(prk: &Prk, info: &[u8], out: &mut [u8]) {
    prk.expand(&[info], Len(out.len())).and_then(|okm| okm.fill(out)).expect("the length is far below HKDF's limit");
}

impl ContentKey {
    /// The keys that `key` gives with `salt` (RFC 8188 §2.2–2.3).
    pub fn new(suite: Suite, key: &UploadKey, salt: &[u8; SALT_LEN]) -> Self {
        Self::from_keying_material(suite, &key.0[..suite.ikm_len()], salt)
    }

    /// The same from input keying material of any length, as RFC 8188 has it.
    pub fn from_keying_material(suite: Suite, ikm: &[u8], salt: &[u8; SALT_LEN]) -> Self {
        let prk = Salt::new(HKDF_SHA256, salt).extract(ikm);
        let mut key = [0; 32];
        let key = &mut key[..suite.algorithm().key_len()];
        expand(&prk, suite.key_info(), key);
        let mut nonce_base = [0; NONCE_LEN];
        expand(&prk, b"Content-Encoding: nonce\0", &mut nonce_base);
        let key = UnboundKey::new(suite.algorithm(), key).expect("the key has the algorithm's length");
        Self { key: LessSafeKey::new(key), nonce_base }
    }

    /// Turns the plaintext in `record` into the sealed record `index`, in place; it grows by 17 bytes.
    pub fn seal(&self, index: u64, last: bool, record: &mut Vec<u8>) {
        record.reserve(RECORD_OVERHEAD as usize);
        record.push(if last { LAST_DELIMITER } else { DELIMITER });
        let tag = self.key.seal_in_place_separate_tag(self.nonce(index), Aad::empty(), record);
        record.extend_from_slice(tag.expect("a record is far below the cipher's limit").as_ref());
    }

    /// The same in a slice whose last 17 bytes are room for delimiter and tag.
    ///
    /// # Panics
    /// If the slice is shorter than that room.
    pub fn seal_slice(&self, index: u64, last: bool, record: &mut [u8]) {
        let (inner, tag_room) = record.split_at_mut(record.len() - TAG_LEN);
        *inner.last_mut().expect("the slice has room for the delimiter") =
            if last { LAST_DELIMITER } else { DELIMITER };
        let tag = self.key.seal_in_place_separate_tag(self.nonce(index), Aad::empty(), inner);
        tag_room.copy_from_slice(tag.expect("a record is far below the cipher's limit").as_ref());
    }

    /// Opens the sealed record `index` in place and returns its plaintext, without delimiter and padding.
    ///
    /// # Errors
    /// If it was altered, or is not the last and should be, or the other way round. `record` then holds no plaintext.
    pub fn open<'a>(&self, index: u64, last: bool, record: &'a mut [u8]) -> Result<&'a mut [u8], OpenError> {
        let (plaintext, says_last) = self.open_any(index, record)?;
        match says_last == last {
            true => Ok(plaintext),
            false => Err(OpenError::Misplaced { index, says_last }),
        }
    }

    /// The same where it is not known whether the record is the last: the second value says what it says of itself.
    ///
    /// # Errors
    /// If it was altered.
    pub fn open_any<'a>(&self, index: u64, record: &'a mut [u8]) -> Result<(&'a mut [u8], bool), OpenError> {
        let len = record.len();
        if len < RECORD_OVERHEAD as usize {
            return Err(OpenError::TooShort { index, len });
        }
        let inner = self
            .key
            .open_in_place(self.nonce(index), Aad::empty(), record)
            .map_err(|_| OpenError::Unauthentic { index })?;
        // Padding is zeros after the delimiter (RFC 8188 §2).
        let delimiter = inner.iter().rposition(|byte| *byte != 0).ok_or(OpenError::NoDelimiter { index })?;
        let says_last = match inner[delimiter] {
            DELIMITER => false,
            LAST_DELIMITER => true,
            _ => return Err(OpenError::NoDelimiter { index }),
        };
        Ok((&mut inner[..delimiter], says_last))
    }

    /// The base XOR the record's number, as a 96-bit big-endian integer (RFC 8188 §2.3).
    fn nonce(&self, index: u64) -> Nonce {
        let mut nonce = self.nonce_base;
        let number = nonce.last_chunk_mut::<8>().expect("a nonce is longer than eight bytes");
        *number = (u64::from_be_bytes(*number) ^ index).to_be_bytes();
        Nonce::assume_unique_for_key(nonce)
    }
}

impl fmt::Debug for ContentKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ContentKey(…)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key() -> ContentKey {
        ContentKey::new(Suite::Aes256Gcm, &UploadKey([1; 32]), &[2; 16])
    }

    fn sealed(index: u64, last: bool, plaintext: &[u8]) -> Vec<u8> {
        let mut record = plaintext.to_vec();
        key().seal(index, last, &mut record);
        record
    }

    #[test]
    fn an_uploads_id_follows_from_its_key() {
        // `printf hoop-upload-id-v1; head -c 32 /dev/zero | tr '\\0' '\\7'`, through `sha256sum`.
        assert_eq!(UploadKey([7; 32]).upload_id().to_hex(), "98de5cf431e22676058ccff3a511aeb3");
        assert_ne!(UploadKey([8; 32]).upload_id(), UploadKey([7; 32]).upload_id());
    }

    #[test]
    fn any_record_opens_alone() {
        let mut record = sealed(1 << 40, false, b"alone");
        assert_eq!(key().open(1 << 40, false, &mut record).unwrap(), b"alone");
    }

    #[test]
    fn both_ways_of_sealing_agree() {
        let mut slice = *b"alone.................";
        key().seal_slice(3, true, &mut slice);
        assert_eq!(slice[..], sealed(3, true, b"alone")[..]);
    }

    #[test]
    fn no_flipped_bit_goes_unnoticed() {
        let record = sealed(5, true, b"some plaintext");
        for bit in 0..record.len() * 8 {
            let mut flipped = record.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(key().open(5, true, &mut flipped), Err(OpenError::Unauthentic { index: 5 }), "bit {bit}");
        }
    }

    #[test]
    fn a_record_opens_at_its_own_place_only() {
        let record = sealed(5, false, b"fifth");
        assert_eq!(key().open(6, false, &mut record.clone()), Err(OpenError::Unauthentic { index: 6 }));
        let misplaced = OpenError::Misplaced { index: 5, says_last: false };
        assert_eq!(key().open(5, true, &mut record.clone()), Err(misplaced), "a body cut at a record border");
        let other = ContentKey::new(Suite::Aes256Gcm, &UploadKey([9; 32]), &[2; 16]);
        assert!(other.open(5, false, &mut record.clone()).is_err());
        let other = ContentKey::new(Suite::Aes128Gcm, &UploadKey([1; 32]), &[2; 16]);
        assert!(other.open(5, false, &mut record.clone()).is_err());
    }

    #[test]
    fn a_record_too_short_or_without_delimiter_is_refused() {
        assert_eq!(key().open(0, true, &mut [0; 16]), Err(OpenError::TooShort { index: 0, len: 16 }));
        let mut zeros = alloc::vec![0; 20];
        let tag = key().key.seal_in_place_separate_tag(key().nonce(0), Aad::empty(), &mut zeros).unwrap();
        zeros.extend_from_slice(tag.as_ref());
        assert_eq!(key().open(0, true, &mut zeros), Err(OpenError::NoDelimiter { index: 0 }));
    }

    #[test]
    fn a_key_is_not_printed() {
        assert_eq!(alloc::format!("{:?}", UploadKey([1; 32])), "UploadKey(…)");
    }
}
