//! What HTTP permits in a head (RFC 9110 §5, RFC 9114 §4.2 and §4.3).

use crate::error::HeadError;
use crate::line::Text;
use alloc::borrow::Cow;
use bytes::Bytes;
use http::header::{self, HeaderMap, HeaderName, HeaderValue};
use http::uri::{Authority, PathAndQuery, Scheme};
use http::{Method, StatusCode};

/// Fields about a connection (RFC 9114 §4.2). `te` is one of them unless it says `trailers`.
const CONNECTION_SPECIFIC: [&str; 5] = ["connection", "keep-alive", "proxy-connection", "transfer-encoding", "upgrade"];

/// The name of a regular field.
pub fn name(bytes: &[u8]) -> Result<HeaderName, HeadError> {
    if bytes.is_empty() {
        return Err(HeadError::NameEmpty);
    }
    if bytes.iter().any(u8::is_ascii_uppercase) {
        return Err(HeadError::NameUpperCase);
    }
    HeaderName::from_bytes(bytes).map_err(|_| HeadError::Name)
}

/// The value of a regular field.
pub fn value(bytes: Text) -> Result<HeaderValue, HeadError> {
    let bytes = match bytes {
        Cow::Borrowed(fixed) => Bytes::from_static(fixed),
        Cow::Owned(given) => Bytes::from(given),
    };
    let value = HeaderValue::from_maybe_shared(bytes).map_err(|_| HeadError::Value)?;
    trimmed(&value).map(|()| value)
}

/// Whether a field may be in a head at all. `host` may not, either, but whoever writes a head leaves it out.
pub fn field(name: &HeaderName, value: &HeaderValue) -> Result<(), HeadError> {
    trimmed(value)?;
    if let Some(about) = CONNECTION_SPECIFIC.into_iter().find(|about| name == about) {
        return Err(HeadError::ConnectionSpecific(about));
    }
    if name == header::TE && !value.as_bytes().eq_ignore_ascii_case(b"trailers") {
        return Err(HeadError::Te);
    }
    Ok(())
}

/// Whether a value has no white space at either end.
fn trimmed(value: &HeaderValue) -> Result<(), HeadError> {
    let bytes = value.as_bytes();
    let is_space = |byte: Option<&u8>| matches!(byte, Some(b' ' | b'\t'));
    if is_space(bytes.first()) || is_space(bytes.last()) { Err(HeadError::ValueSpace) } else { Ok(()) }
}

/// Whether the fields agree on one length (RFC 9110 §8.6), if they name any.
pub fn content_length(fields: &HeaderMap) -> Result<(), HeadError> {
    let mut lengths = fields.get_all(header::CONTENT_LENGTH).iter();
    let Some(first) = lengths.next() else { return Ok(()) };
    let is_number = first.as_bytes().iter().all(u8::is_ascii_digit)
        && first.to_str().is_ok_and(|digits| digits.parse::<u64>().is_ok());
    if is_number && lengths.all(|length| length == first) { Ok(()) } else { Err(HeadError::ContentLength) }
}

/// The value of `:method`.
pub fn method(bytes: &[u8]) -> Result<Method, HeadError> {
    match Method::from_bytes(bytes) {
        Ok(Method::CONNECT) => Err(HeadError::Connect),
        Ok(method) => Ok(method),
        Err(_) => Err(HeadError::Method),
    }
}

/// The value of `:scheme`.
pub fn scheme(bytes: &[u8]) -> Result<Scheme, HeadError> {
    match bytes {
        b"http" => Ok(Scheme::HTTP),
        b"https" => Ok(Scheme::HTTPS),
        _ => Err(HeadError::Scheme),
    }
}

/// The value of `:authority`.
pub fn authority(bytes: &[u8]) -> Result<Authority, HeadError> {
    if bytes.contains(&b'@') {
        return Err(HeadError::UserInfo);
    }
    let authority = Authority::try_from(bytes).map_err(|_| HeadError::Authority)?;
    let port = authority.as_str().strip_prefix(authority.host()).ok_or(HeadError::Authority)?;
    let is_port = port.is_empty() || authority.port_u16().is_some();
    if authority.host().is_empty() || !is_port { Err(HeadError::Authority) } else { Ok(authority) }
}

/// The value of `:path`, for a request with that method.
pub fn path(bytes: &[u8], method: &Method) -> Result<PathAndQuery, HeadError> {
    let is_path = bytes.starts_with(b"/") || (bytes == b"*" && method == Method::OPTIONS);
    // A fragment is no part of a request; the type would drop it.
    if !is_path || bytes.contains(&b'#') {
        return Err(HeadError::Path);
    }
    PathAndQuery::try_from(bytes).map_err(|_| HeadError::Path)
}

/// The value of `:status`.
pub fn status(bytes: &[u8]) -> Result<StatusCode, HeadError> {
    let status = StatusCode::from_bytes(bytes).map_err(|_| HeadError::Status)?;
    match status.as_u16() {
        101 => Err(HeadError::SwitchingProtocols),
        100..=599 => Ok(status),
        _ => Err(HeadError::Status),
    }
}
