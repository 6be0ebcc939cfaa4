//! The draft's header fields: [`Fields`] that a request has, and those of an answer. All are Structured Fields (RFC 9651); what is
//! not what it should be is as if it were not there, as the draft asks.

use http::{HeaderMap, HeaderName, HeaderValue, Method, header};

pub const COMPLETE: HeaderName = HeaderName::from_static("upload-complete");
pub const OFFSET: HeaderName = HeaderName::from_static("upload-offset");
pub const LENGTH: HeaderName = HeaderName::from_static("upload-length");
pub const LIMIT: HeaderName = HeaderName::from_static("upload-limit");
pub const INTEROP: HeaderName = HeaderName::from_static("upload-draft-interop-version");
/// What `Upload-Complete` was called, turned round, in interop version 3.
pub const INCOMPLETE: HeaderName = HeaderName::from_static("upload-incomplete");

/// The interop versions that are spoken; a request without one speaks the latest.
const INTEROP_FIRST: u64 = 3;
const INTEROP_LAST: u64 = 8;
/// Since this version parts must have their media type.
const INTEROP_MEDIA_TYPE: u64 = 6;

/// A part's media type.
pub const PARTIAL_UPLOAD: &str = "application/partial-upload";

/// What a request says in the draft's fields.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Fields {
    /// Whether the upload ends with this request's content.
    pub complete: Option<bool>,
    pub offset: Option<u64>,
    /// The upload's length, where the client names it.
    pub length: Option<u64>,
    /// The length of this request's content, if known beforehand.
    pub content: Option<u64>,
    /// The version that the client speaks, if it is one that is spoken here too.
    pub interop: Option<u64>,
}

impl Fields {
    pub fn of(headers: &HeaderMap) -> Self {
        let interop = integer(headers, &INTEROP).filter(|version| (INTEROP_FIRST..=INTEROP_LAST).contains(version));
        let incomplete = boolean(headers, &INCOMPLETE).filter(|_| interop == Some(INTEROP_FIRST));
        Self {
            complete: boolean(headers, &COMPLETE).or(incomplete.map(|incomplete| !incomplete)),
            offset: integer(headers, &OFFSET),
            length: integer(headers, &LENGTH),
            content: integer(headers, &header::CONTENT_LENGTH),
            interop,
        }
    }

    /// Whether the client's answers say `Upload-Incomplete`.
    pub fn is_oldest(&self) -> bool {
        self.interop == Some(INTEROP_FIRST)
    }

    /// Whether a part of this client may do without its media type.
    pub fn is_untyped(&self) -> bool {
        self.interop.is_some_and(|version| version < INTEROP_MEDIA_TYPE)
    }

    /// The length of the upload that this request tells, in one way or the other, for content that begins at `offset`.
    ///
    /// # Errors
    /// Two lengths that differ.
    pub fn total(&self, offset: u64) -> Result<Option<u64>, (u64, u64)> {
        let by_end = self.content.filter(|_| self.complete == Some(true)).map(|content| offset.saturating_add(content));
        match (self.length, by_end) {
            (Some(named), Some(found)) if named != found => Err((named, found)),
            (named, found) => Ok(named.or(found)),
        }
    }
}

/// Whether a request to `/offload` begins a resumable upload.
pub fn begins(method: &Method, headers: &HeaderMap) -> bool {
    *method == Method::POST && Fields::of(headers).complete.is_some()
}

/// The one item that a field holds, without its parameters.
fn item<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Option<&'a str> {
    let mut values = headers.get_all(name).iter();
    let (Some(value), None) = (values.next(), values.next()) else { return None };
    let text = value.to_str().ok()?;
    Some(text.split_once(';').map_or(text, |(item, _)| item).trim_matches(' '))
}

fn boolean(headers: &HeaderMap, name: &HeaderName) -> Option<bool> {
    match item(headers, name)? {
        "?0" => Some(false),
        "?1" => Some(true),
        _ => None,
    }
}

/// A whole number that is not negative, of 15 digits at most (RFC 9651 §3.3.1).
fn integer(headers: &HeaderMap, name: &HeaderName) -> Option<u64> {
    let item = item(headers, name)?;
    let digits = item.len() <= 15 && item.bytes().all(|octet| octet.is_ascii_digit());
    item.parse().ok().filter(|_| digits)
}

pub const fn truth(value: bool) -> HeaderValue {
    HeaderValue::from_static(if value { "?1" } else { "?0" })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(lines: &[(&'static str, &'static str)]) -> Fields {
        let lines = lines.iter();
        let mut headers = HeaderMap::new();
        for (name, value) in lines {
            headers.append(HeaderName::from_static(name), HeaderValue::from_static(value));
        }
        Fields::of(&headers)
    }

    #[test]
    fn a_field_that_is_not_what_it_should_be_is_as_if_it_were_not_there() {
        for value in ["1", "true", "?2", "??1", "", "?1, ?1", "\"?1\""] {
            assert_eq!(of(&[("upload-complete", value)]).complete, None, "{value}");
        }
        for value in ["-1", "1.0", "+1", "0x1", "", "1, 2", "1000000000000000", "?1"] {
            assert_eq!(of(&[("upload-offset", value)]).offset, None, "{value}");
        }
        assert_eq!(of(&[("upload-offset", "1"), ("upload-offset", "1")]).offset, None, "an item comes once");
        assert_eq!(of(&[("upload-complete", "?1;why=not")]).complete, Some(true));
        assert_eq!(of(&[("upload-offset", " 999999999999999 ")]).offset, Some(999_999_999_999_999));
    }

    #[test]
    fn versions_that_are_not_spoken_are_none_and_the_oldest_says_it_the_other_way_round() {
        for (version, interop) in [("2", None), ("3", Some(3)), ("8", Some(8)), ("9", None)] {
            assert_eq!(of(&[("upload-draft-interop-version", version)]).interop, interop, "{version}");
        }
        let turned = [("upload-draft-interop-version", "3"), ("upload-incomplete", "?1")];
        assert_eq!(of(&turned).complete, Some(false));
        assert_eq!(of(&turned[1..]).complete, None, "that field is of that version alone");
    }

    #[test]
    fn the_length_is_named_or_follows_from_the_last_content_and_both_must_agree() {
        let fields = |complete, length, content| Fields { complete, length, content, ..Fields::default() };
        assert_eq!(fields(Some(true), None, Some(5)).total(10), Ok(Some(15)));
        assert_eq!(fields(Some(false), None, Some(5)).total(10), Ok(None));
        assert_eq!(fields(Some(false), Some(99), Some(5)).total(10), Ok(Some(99)));
        assert_eq!(fields(Some(true), Some(15), Some(5)).total(10), Ok(Some(15)));
        assert_eq!(fields(Some(true), Some(16), Some(5)).total(10), Err((16, 15)));
    }
}
