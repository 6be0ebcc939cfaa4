//! How a body was put together, to keep with a receipt: [`BodyPiece`].

use crate::request::plaintext::Plaintext;
use crate::request::source::Segment;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::{Deserialize, Serialize};

/// A piece of a body.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum BodyPiece {
    /// Bytes that were not in a file, in base64url.
    Octets(String),
    /// A file: its name, and how long it was.
    File {
        /// The name.
        name: String,
        /// The length in bytes.
        size: u64,
    },
}

/// How a body is put together.
pub(crate) fn pieces(body: &Plaintext) -> Vec<BodyPiece> {
    let piece = |segment: &Segment| match segment {
        Segment::Bytes(bytes) => BodyPiece::Octets(URL_SAFE_NO_PAD.encode(bytes)),
        Segment::File(opened) => {
            let name = segment.path().and_then(|path| path.file_name()).map(|name| name.to_string_lossy().into_owned());
            BodyPiece::File { name: name.unwrap_or_default(), size: opened.len() }
        }
    };
    body.segments().map(piece).collect()
}
