//! The name of an upload: [`UploadId`].

use alloc::string::String;
use core::fmt;
use core::str::FromStr;

/// The random 128-bit name of one upload, written as 32 lower-case hexadecimal digits.
///
/// The service draws it when it issues the ticket. It names the upload at the gateway, at the service and on the
/// monitor page; knowing it lets one follow the upload's state, and nothing more.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct UploadId(pub [u8; 16]);

impl UploadId {
    /// The id's sixteen bytes.
    pub const fn as_bytes(&self) -> &[u8; 16] {
        &self.0
    }

    /// The id as 32 lower-case hexadecimal digits.
    pub fn to_hex(self) -> String {
        hex::encode(self.0)
    }
}

impl fmt::Display for UploadId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for UploadId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// The text is no upload id.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("an upload id is 32 lower-case hexadecimal digits")]
pub struct ParseIdError;

impl FromStr for UploadId {
    type Err = ParseIdError;

    fn from_str(text: &str) -> Result<Self, ParseIdError> {
        // One spelling only: an id is also a file name and a URL.
        if text.bytes().any(|byte| byte.is_ascii_uppercase()) {
            return Err(ParseIdError);
        }
        let mut id = [0; 16];
        hex::decode_to_slice(text, &mut id).map_err(|_| ParseIdError)?;
        Ok(Self(id))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_survives_its_text_and_has_one_spelling() {
        let id = UploadId([0xa5; 16]);
        assert_eq!(id.to_hex().parse(), Ok(id));
        assert_eq!(id.to_hex().to_uppercase().parse::<UploadId>(), Err(ParseIdError));
        for wrong in ["", "a5", "zz", &"a5".repeat(17), "../../../../../../etc/passwd....."] {
            assert_eq!(wrong.parse::<UploadId>(), Err(ParseIdError), "{wrong}");
        }
    }
}
