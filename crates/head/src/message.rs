//! Requests and responses, as sections and back.

use crate::error::HeadError;
use crate::line::Text;
use crate::rules;
use crate::section::{Writer, lines};
use alloc::borrow::Cow;
use alloc::format;
use alloc::vec::Vec;
use http::header::{self, HeaderMap};
use http::uri::{self, Uri};
use http::{Request, Response, request, response};

const REQUEST: [&str; 4] = [":method", ":scheme", ":authority", ":path"];
const RESPONSE: [&str; 1] = [":status"];

/// Appends the head of a request, whose URI has a scheme and an authority. A field `host` is left out.
///
/// # Errors
/// If the URI lacks one of them, the method is CONNECT, or [`decode_request`] would refuse the head. Nothing is appended then.
pub fn encode_request(head: &request::Parts, into: &mut Vec<u8>) -> Result<(), HeadError> {
    let missing = |name| move || HeadError::PseudoMissing(name);
    let method = rules::method(head.method.as_str().as_bytes())?;
    let scheme = head.uri.scheme_str().ok_or_else(missing(":scheme"))?;
    rules::scheme(scheme.as_bytes())?;
    let authority = head.uri.authority().ok_or_else(missing(":authority"))?.as_str();
    rules::authority(authority.as_bytes())?;
    let path = head.uri.path_and_query().map_or("/", |path| path.as_str());
    // `http://a?b` has the path `/`, which the type does not write down (RFC 9114 §4.3.1).
    let path = if path.starts_with('?') { Cow::Owned(format!("/{path}")) } else { Cow::Borrowed(path) };
    rules::path(path.as_bytes(), &method)?;
    write(
        [(":method", method.as_str()), (":scheme", scheme), (":authority", authority), (":path", &path)],
        &head.headers,
        into,
    )
}

/// Appends the head of a response.
///
/// # Errors
/// If [`decode_response`] would refuse the head. Nothing is appended then.
pub fn encode_response(head: &response::Parts, into: &mut Vec<u8>) -> Result<(), HeadError> {
    rules::status(head.status.as_str().as_bytes())?;
    write([(":status", head.status.as_str())], &head.headers, into)
}

/// Reads the head of a request. Its URI is absolute; fields of one name are in their order.
///
/// # Errors
/// If the section is malformed, too large, or no valid head of a request (RFC 9114 §4.3.1).
pub fn decode_request(section: &[u8]) -> Result<Request<()>, HeadError> {
    let ([method, scheme, authority, path], fields) = read(section, REQUEST)?;
    let mut request = Request::new(());
    *request.method_mut() = rules::method(&method)?;
    let mut parts = uri::Parts::default();
    parts.scheme = Some(rules::scheme(&scheme)?);
    parts.authority = Some(rules::authority(&authority)?);
    parts.path_and_query = Some(rules::path(&path, request.method())?);
    *request.uri_mut() = Uri::from_parts(parts).map_err(|_| HeadError::Path)?;
    *request.headers_mut() = fields;
    Ok(request)
}

/// Reads the head of a response. Fields of one name are in their order.
///
/// # Errors
/// If the section is malformed, too large, or no valid head of a response (RFC 9114 §4.3.2).
pub fn decode_response(section: &[u8]) -> Result<Response<()>, HeadError> {
    let ([status], fields) = read(section, RESPONSE)?;
    let mut response = Response::new(());
    *response.status_mut() = rules::status(&status)?;
    *response.headers_mut() = fields;
    Ok(response)
}

/// Appends a section, or leaves `into` as it was.
fn write<const N: usize>(pseudo: [(&str, &str); N], fields: &HeaderMap, into: &mut Vec<u8>) -> Result<(), HeadError> {
    let before = into.len();
    let written = write_all(pseudo, fields, &mut Writer::new(into));
    if written.is_err() {
        into.truncate(before);
    }
    written
}

fn write_all<const N: usize>(
    pseudo: [(&str, &str); N],
    fields: &HeaderMap,
    into: &mut Writer<'_>,
) -> Result<(), HeadError> {
    rules::content_length(fields)?;
    for (name, value) in pseudo {
        into.put(name.as_bytes(), value.as_bytes())?;
    }
    for (name, value) in fields.iter().filter(|(name, _)| *name != header::HOST) {
        rules::field(name, value)?;
        into.put(name.as_str().as_bytes(), value.as_bytes())?;
    }
    Ok(())
}

/// Reads a section: the values of these pseudo-header fields, each of which must be there once, and the regular fields.
fn read<const N: usize>(section: &[u8], pseudo: [&'static str; N]) -> Result<([Text; N], HeaderMap), HeadError> {
    let mut values = [const { None }; N];
    let mut fields = HeaderMap::new();
    for line in lines(section)? {
        let line = line?;
        if line.name.starts_with(b":") {
            let place = pseudo.iter().position(|name| name.as_bytes() == &*line.name);
            let place = place.ok_or(HeadError::PseudoUnknown)?;
            if !fields.is_empty() {
                return Err(HeadError::PseudoLate);
            }
            if values[place].replace(line.value).is_some() {
                return Err(HeadError::PseudoRepeated(pseudo[place]));
            }
            continue;
        }
        let (name, value) = (rules::name(&line.name)?, rules::value(line.value)?);
        rules::field(&name, &value)?;
        if name == header::HOST {
            return Err(HeadError::Host);
        }
        fields.try_append(name, value).map_err(|_| HeadError::TooManyFields)?;
    }
    rules::content_length(&fields)?;
    if let Some(place) = values.iter().position(Option::is_none) {
        return Err(HeadError::PseudoMissing(pseudo[place]));
    }
    Ok((values.map(Option::unwrap_or_default), fields))
}
