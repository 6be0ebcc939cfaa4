//! A gateway's word to a device, signed with the gateway's own key: who it is ([`Nonce`], [`who`]), and what it has stored
//! ([`StoredReceipt`]).
//!
//! ```text
//! answer  public key(32) | signature(64)                                                                                     96
//! stored  version(1) | public key(32) | upload_id(16) | state(1) | time(4) | total(8) | missing(0 … 1344) | signature(64)    126 …
//! ```
//!
//! Both carry the public key, and a gateway's name follows from it ([`GatewayId::of`]): who knows the name knows whose word it is.
//! What is signed is, as with all signatures (`docs/protocol.md` §9), a word, a zero byte, a text, a zero byte and a body:
//!
//! - the answer: `hoop-gateway-here-v1`, the authority that the device asked at, and its nonce;
//! - the receipt: `hoop-stored-v1`, the service's origin, and what stands before the signature.

use crate::signing::{GatewayId, GatewayKey, PublicKey, SignedError};
use alloc::string::String;
use alloc::vec::Vec;
use hoop_units::{UnixTime, UploadId};

/// How long an answer is.
pub const ANSWER_LEN: usize = KEY_LEN + SIGNATURE_LEN;

/// How long a nonce is: nobody meets one twice.
pub const NONCE_LEN: usize = 24;

/// The longest `missing` that a receipt holds: 32 spans of two numbers with 20 digits, and what stands between.
pub const MISSING_MAX: usize = 32 * (2 * 20 + 2);

const KEY_LEN: usize = 32;
const SIGNATURE_LEN: usize = 64;
const STORED_FIXED_LEN: usize = 1 + KEY_LEN + 16 + 1 + 4 + 8;
const VERSION: u8 = 1;

const HERE: &[u8] = b"hoop-gateway-here-v1";
const STORED: &[u8] = b"hoop-stored-v1";

/// What a device asks a gateway to sign, from a cryptographic generator. Written as 32 characters of base64url.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Nonce(pub [u8; NONCE_LEN]);

impl Nonce {
    /// The nonce of that text.
    pub fn from_text(text: &str) -> Option<Self> {
        crate::signing::from_text(text)?.try_into().ok().map(Self)
    }

    /// Its text.
    pub fn to_text(&self) -> String {
        crate::signing::to_text(&self.0)
    }
}

/// Who answered at `authority` (host, and port unless it is the scheme's own), if it has answered this nonce there.
///
/// # Errors
/// If it is no answer, or to another nonce or at another place.
pub fn who(answer: &[u8], authority: &str, nonce: &Nonce) -> Result<GatewayId, SignedError> {
    let answer: &[u8; ANSWER_LEN] =
        answer.try_into().map_err(|_| SignedError::Length { expected: ANSWER_LEN, came: answer.len() })?;
    let (key, signature) = answer.split_first_chunk().expect("fixed lengths");
    let key = PublicKey(*key);
    match key.has_signed(HERE, authority, &nonce.0, signature) {
        true => Ok(GatewayId::of(&key)),
        false => Err(SignedError::Unauthentic),
    }
}

/// How far an upload is at the gateway that signs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum StoredState {
    /// Some of it is there.
    Receiving,
    /// All of it is.
    Stored,
    /// It is on its way to the service.
    Delivering,
}

impl StoredState {
    const fn code(self) -> u8 {
        match self {
            Self::Receiving => 1,
            Self::Stored => 2,
            Self::Delivering => 3,
        }
    }

    const fn of_code(code: u8) -> Option<Self> {
        match code {
            1 => Some(Self::Receiving),
            2 => Some(Self::Stored),
            3 => Some(Self::Delivering),
            _ => None,
        }
    }
}

/// A gateway's word that it has an upload, or all of it but some ranges, on its disk.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct StoredReceipt {
    /// The upload.
    pub upload_id: UploadId,
    /// How far it is.
    pub state: StoredState,
    /// When, by the gateway's clock.
    pub time: UnixTime,
    /// The length of Z.
    pub total: u64,
    /// What is missing of it there, as `Hoop-Missing` writes it.
    pub missing: String,
}

impl StoredReceipt {
    /// Checks the receipt of an upload to the service of that origin, and reads it and the name of the gateway that signed it.
    ///
    /// # Errors
    /// If it is none, or was not signed so.
    pub fn open(bytes: &[u8], origin: &str) -> Result<(GatewayId, Self), SignedError> {
        let least = STORED_FIXED_LEN + SIGNATURE_LEN;
        let (expected, came) = (bytes.len().clamp(least, least + MISSING_MAX), bytes.len());
        if came != expected {
            return Err(SignedError::Length { expected, came });
        }
        let (body, signature) = bytes.split_at(came - SIGNATURE_LEN);
        let (&[version], rest) = body.split_first_chunk().expect("the length was checked");
        if version != VERSION {
            return Err(SignedError::Version(version));
        }
        let (key, rest) = rest.split_first_chunk().expect("the length was checked");
        let key = PublicKey(*key);
        if !key.has_signed(STORED, origin, body, signature) {
            return Err(SignedError::Unauthentic);
        }
        let (upload_id, rest) = rest.split_first_chunk().expect("the length was checked");
        let (&[state], rest) = rest.split_first_chunk().expect("the length was checked");
        let (time, rest) = rest.split_first_chunk().expect("the length was checked");
        let (total, missing) = rest.split_first_chunk().expect("the length was checked");
        let receipt = Self {
            upload_id: UploadId(*upload_id),
            state: StoredState::of_code(state).ok_or(SignedError::Unsupported(state))?,
            time: UnixTime(u32::from_be_bytes(*time)),
            total: u64::from_be_bytes(*total),
            missing: String::from_utf8(missing.to_vec()).map_err(|_| SignedError::Unauthentic)?,
        };
        Ok((GatewayId::of(&key), receipt))
    }
}

impl GatewayKey {
    /// What shows a device that asked at `authority` who is there.
    pub fn answer(&self, authority: &str, nonce: &Nonce) -> [u8; ANSWER_LEN] {
        let signature = self.key.sign(HERE, authority, &nonce.0);
        [&self.public().0[..], &signature].concat().try_into().expect("the lengths are fixed")
    }

    /// Signs what is stored of an upload to the service of that origin.
    ///
    /// # Panics
    /// If `missing` is longer than [`MISSING_MAX`], which the header has no room for either.
    pub fn sign_stored(&self, origin: &str, receipt: &StoredReceipt) -> Vec<u8> {
        assert!(receipt.missing.len() <= MISSING_MAX, "32 spans are named at most");
        let body = [
            &[VERSION][..],
            &self.public().0,
            &receipt.upload_id.0,
            &[receipt.state.code()],
            &receipt.time.0.to_be_bytes(),
            &receipt.total.to_be_bytes(),
            receipt.missing.as_bytes(),
        ]
        .concat();
        let signature = self.key.sign(STORED, origin, &body);
        [&body[..], &signature].concat()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::ToString as _;

    const AT: &str = "192.0.2.1:4667";
    const ORIGIN: &str = "https://photos.example";
    const NONCE: Nonce = Nonce([7; NONCE_LEN]);

    fn gateway(n: u8) -> GatewayKey {
        GatewayKey::from_seed(&[n; 32])
    }

    fn receipt(missing: &str) -> StoredReceipt {
        let (upload_id, time) = (UploadId([5; 16]), UnixTime(1_795_000_000));
        StoredReceipt { upload_id, state: StoredState::Stored, time, total: 900, missing: missing.to_string() }
    }

    #[test]
    fn who_answers_is_known_by_its_key_for_one_nonce_at_one_place() {
        let answer = gateway(3).answer(AT, &NONCE);
        assert_eq!(who(&answer, AT, &NONCE), Ok(gateway(3).id()));
        assert_eq!(who(&answer, "192.0.2.2:4667", &NONCE), Err(SignedError::Unauthentic), "relayed from elsewhere");
        assert_eq!(who(&answer, AT, &Nonce([8; NONCE_LEN])), Err(SignedError::Unauthentic), "one of before");
        let mut copied = gateway(4).answer(AT, &NONCE);
        copied[..KEY_LEN].copy_from_slice(&gateway(3).public().0);
        assert_eq!(who(&copied, AT, &NONCE), Err(SignedError::Unauthentic), "another's key");
        assert_eq!(Nonce::from_text(&NONCE.to_text()), Some(NONCE));
        assert_eq!(Nonce::from_text("AAAA"), None);
    }

    #[test]
    fn a_receipt_says_who_stored_what_of_which_upload() {
        for missing in ["", "0-127", "0-127, 65664-131199"] {
            let signed = gateway(3).sign_stored(ORIGIN, &receipt(missing));
            assert_eq!(StoredReceipt::open(&signed, ORIGIN), Ok((gateway(3).id(), receipt(missing))));
            assert_eq!(StoredReceipt::open(&signed, "https://other.example"), Err(SignedError::Unauthentic));
        }
        let longest = "9".repeat(MISSING_MAX);
        let signed = gateway(3).sign_stored(ORIGIN, &receipt(&longest));
        assert_eq!(StoredReceipt::open(&signed, ORIGIN).unwrap().1.missing, longest);
        let longer = [&signed[..], &[0]].concat();
        assert!(matches!(StoredReceipt::open(&longer, ORIGIN), Err(SignedError::Length { .. })));
    }

    #[test]
    fn no_flipped_bit_and_no_truncation_of_a_gateways_word_goes_unnoticed() {
        let answer = gateway(3).answer(AT, &NONCE).to_vec();
        let stored = gateway(3).sign_stored(ORIGIN, &receipt("0-127"));
        for bit in 0..answer.len() * 8 {
            let mut flipped = answer.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            assert!(who(&flipped, AT, &NONCE).is_err(), "answer, bit {bit}");
        }
        for bit in 0..stored.len() * 8 {
            let mut flipped = stored.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            assert!(StoredReceipt::open(&flipped, ORIGIN).is_err(), "receipt, bit {bit}");
        }
        (0..answer.len()).for_each(|len| assert!(who(&answer[..len], AT, &NONCE).is_err(), "{len}"));
        (0..stored.len()).for_each(|len| assert!(StoredReceipt::open(&stored[..len], ORIGIN).is_err(), "{len}"));
    }

    #[test]
    fn a_gateways_words_are_not_taken_for_one_another() {
        // The same bytes, signed as the other.
        let body = gateway(3).sign_stored(ORIGIN, &receipt(""))[..STORED_FIXED_LEN].to_vec();
        let signature = gateway(3).key.sign(HERE, ORIGIN, &body);
        let forged = [&body[..], &signature].concat();
        assert_eq!(StoredReceipt::open(&forged, ORIGIN), Err(SignedError::Unauthentic));
        let signature = gateway(3).key.sign(STORED, AT, &NONCE.0);
        let forged = [&gateway(3).public().0[..], &signature].concat();
        assert_eq!(who(&forged, AT, &NONCE), Err(SignedError::Unauthentic));
    }
}
