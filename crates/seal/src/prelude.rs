//! What stands before the records: [`Prelude`] (RFC 8188 §2.1).

use alloc::string::String;
use alloc::vec::Vec;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;

/// The length of the salt.
pub const SALT_LEN: usize = 16;

/// The bytes before the key id: salt, record size, and the key id's length.
const FIXED_LEN: usize = SALT_LEN + 4 + 1;

/// The smallest record size that RFC 8188 §2 allows: one byte more than delimiter and tag.
const RECORD_SIZE_MIN: u32 = 18;

/// Salt, record size and key id. In Hoop the key id is the ticket.
///
/// ```text
/// 0                16         20      21          21 + idlen
/// | salt (16)      | rs (4)   | idlen | key id    |
/// ```
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Prelude {
    salt: [u8; SALT_LEN],
    record_size: u32,
    key_id: Vec<u8>,
}

/// The bytes are no prelude.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum PreludeError {
    /// More bytes are needed to say anything.
    #[error("the prelude is cut off: it takes {needed} bytes at least")]
    Incomplete {
        /// How many bytes it takes at least, from the first on.
        needed: usize,
    },
    /// No record of that size can exist.
    #[error("a record size of {0} is less than the {RECORD_SIZE_MIN} that RFC 8188 asks for")]
    RecordSize(u32),
    /// The key id does not fit its length byte.
    #[error("a key id of {0} bytes is longer than 255")]
    KeyIdTooLong(usize),
    /// The header's text is not base64url without padding.
    #[error("expected base64url without padding")]
    NotBase64,
    /// Something follows the prelude where nothing may.
    #[error("{0} bytes follow the prelude")]
    Trailing(usize),
}

impl Prelude {
    /// A prelude. `salt` must be random and fresh for each body.
    ///
    /// # Errors
    /// If the record size is below 18 or the key id longer than 255 bytes.
    pub fn new(salt: [u8; SALT_LEN], record_size: u32, key_id: &[u8]) -> Result<Self, PreludeError> {
        if record_size < RECORD_SIZE_MIN {
            return Err(PreludeError::RecordSize(record_size));
        }
        if key_id.len() > 255 {
            return Err(PreludeError::KeyIdTooLong(key_id.len()));
        }
        Ok(Self { salt, record_size, key_id: key_id.to_vec() })
    }

    /// Reads the prelude at the start of `bytes`; what follows it is not looked at.
    ///
    /// # Errors
    /// [`PreludeError::Incomplete`] if `bytes` ends too early: call again with more.
    pub fn parse(bytes: &[u8]) -> Result<Self, PreludeError> {
        let fixed = bytes.first_chunk::<FIXED_LEN>().ok_or(PreludeError::Incomplete { needed: FIXED_LEN })?;
        let (salt, rest) = fixed.split_first_chunk().expect("the fixed part holds the salt");
        let (record_size, idlen) = rest.split_first_chunk().expect("the fixed part holds the record size");
        let needed = FIXED_LEN + usize::from(idlen[0]);
        let key_id = bytes.get(FIXED_LEN..needed).ok_or(PreludeError::Incomplete { needed })?;
        Self::new(*salt, u32::from_be_bytes(*record_size), key_id)
    }

    /// Reads a `Hoop-Prelude` header: base64url, nothing before or after.
    ///
    /// # Errors
    /// If the text is not base64url, or holds less or more than a prelude.
    pub fn from_header(text: &str) -> Result<Self, PreludeError> {
        let bytes = URL_SAFE_NO_PAD.decode(text).map_err(|_| PreludeError::NotBase64)?;
        let prelude = Self::parse(&bytes)?;
        match bytes.len() - prelude.len() {
            0 => Ok(prelude),
            more => Err(PreludeError::Trailing(more)),
        }
    }

    /// The value of a `Hoop-Prelude` header.
    pub fn to_header(&self) -> String {
        URL_SAFE_NO_PAD.encode(self.encode())
    }

    /// The bytes.
    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(self.len());
        bytes.extend_from_slice(&self.salt);
        bytes.extend_from_slice(&self.record_size.to_be_bytes());
        bytes.push(u8::try_from(self.key_id.len()).expect("checked when it was made"));
        bytes.extend_from_slice(&self.key_id);
        bytes
    }

    /// How many bytes it has.
    pub fn len(&self) -> usize {
        FIXED_LEN + self.key_id.len()
    }

    /// Never: there is always a salt.
    pub const fn is_empty(&self) -> bool {
        false
    }

    /// The salt.
    pub const fn salt(&self) -> &[u8; SALT_LEN] {
        &self.salt
    }

    /// Bytes in each record but the last.
    pub const fn record_size(&self) -> u32 {
        self.record_size
    }

    /// The key id: the ticket, in Hoop.
    pub fn key_id(&self) -> &[u8] {
        &self.key_id
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;

    #[test]
    fn a_prelude_survives_its_bytes_and_its_header() {
        let prelude = Prelude::new([7; 16], 65_536, b"ticket").unwrap();
        let mut bytes = prelude.encode();
        assert_eq!(bytes.len(), prelude.len());
        bytes.extend_from_slice(b"records follow");
        assert_eq!(Prelude::parse(&bytes), Ok(prelude.clone()));
        assert_eq!(Prelude::from_header(&prelude.to_header()), Ok(prelude));
    }

    #[test]
    fn every_truncation_says_how_much_it_takes() {
        let bytes = Prelude::new([7; 16], 18, &[1; 255]).unwrap().encode();
        for len in 0..bytes.len() {
            let needed = if len < FIXED_LEN { FIXED_LEN } else { FIXED_LEN + 255 };
            assert_eq!(Prelude::parse(&bytes[..len]), Err(PreludeError::Incomplete { needed }));
        }
    }

    #[test]
    fn what_is_no_prelude_is_refused() {
        assert_eq!(Prelude::new([0; 16], 17, b""), Err(PreludeError::RecordSize(17)));
        assert_eq!(Prelude::new([0; 16], 18, &vec![0; 256]), Err(PreludeError::KeyIdTooLong(256)));
        assert_eq!(Prelude::from_header("%%%"), Err(PreludeError::NotBase64));
        let mut bytes = Prelude::new([0; 16], 18, b"").unwrap().encode();
        bytes.push(0);
        assert_eq!(Prelude::from_header(&URL_SAFE_NO_PAD.encode(bytes)), Err(PreludeError::Trailing(1)));
    }
}
