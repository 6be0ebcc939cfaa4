//! Whose an upload is, as it is stored: a [`Tag`].

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;

/// The MAC by which an owner is known again. It shows neither a user's name nor a cookie.
pub type Tag = [u8; 16];

/// The tag as text: base64url without padding.
pub fn text(tag: Tag) -> String {
    URL_SAFE_NO_PAD.encode(tag)
}
