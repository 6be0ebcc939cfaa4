//! Fields of one hop: [`HOP_BY_HOP`]; and how long an answer is for the next: [`settle_length`].

use http::header::{CONNECTION, CONTENT_LENGTH, HeaderMap, HeaderName, HeaderValue, TRANSFER_ENCODING};

/// Fields that concern one hop alone (RFC 9110 §7.6.1, RFC 7540 §3.2.1, and those that older software sends), in lower case.
pub const HOP_BY_HOP: [&str; 10] = [
    "connection",
    "http2-settings",
    "keep-alive",
    "proxy-connection",
    "proxy-authenticate",
    "proxy-authorization",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
];

/// What `Connection` names (RFC 9110 §7.6.1).
pub fn connection_options(headers: &HeaderMap) -> impl Iterator<Item = &str> {
    let values = headers.get_all(CONNECTION).iter().filter_map(|value| value.to_str().ok());
    values.flat_map(|value| value.split(',')).map(str::trim)
}

/// An answer has another transfer coding than `chunked`, which hyper does not undo.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct UnknownCoding;

/// Has `Content-Length` of an answer say once how long the body is, or nothing where it came in chunks (RFC 9112 §6.3). hyper has made sure that several are equal. Call it before
/// [`end_hop`].
///
/// # Errors
/// [`UnknownCoding`]: where the body ends is not known.
pub fn settle_length(headers: &mut HeaderMap) -> Result<(), UnknownCoding> {
    if let Some(coding) = headers.get(TRANSFER_ENCODING) {
        if !coding.as_bytes().eq_ignore_ascii_case(b"chunked") || headers.get_all(TRANSFER_ENCODING).iter().count() > 1
        {
            return Err(UnknownCoding);
        }
        headers.remove(CONTENT_LENGTH);
    }
    let length = headers.get(CONTENT_LENGTH).and_then(|length| length.to_str().ok()?.split(',').next());
    if let Some(length) = length.and_then(|length| HeaderValue::from_str(length.trim()).ok()) {
        headers.insert(CONTENT_LENGTH, length);
    }
    Ok(())
}

/// Takes the fields of one hop out: [`HOP_BY_HOP`], and those that `Connection` names.
pub fn end_hop(headers: &mut HeaderMap) {
    let named: Vec<_> = connection_options(headers).filter_map(|option| HeaderName::try_from(option).ok()).collect();
    named.into_iter().for_each(|name| drop(headers.remove(name)));
    HOP_BY_HOP.iter().for_each(|name| drop(headers.remove(*name)));
}
