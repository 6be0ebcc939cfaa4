//! What a request is answered from an entry: the whole, a part, or that nothing has changed (RFC 9110 §13 and §14): [`Reply`]. Pure.

use super::entry::Entry;
use http::header::{
    CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_RANGE, CONTENT_TYPE, ETAG, HeaderName, IF_MATCH, IF_MODIFIED_SINCE,
    IF_NONE_MATCH, IF_RANGE, IF_UNMODIFIED_SINCE, LAST_MODIFIED, RANGE,
};
use http::{HeaderMap, HeaderValue, Method, StatusCode, request, response};
use std::ops::Range;
use std::time::SystemTime;

/// What makes a request one for a part, or one under a condition.
const CONDITIONS: [HeaderName; 6] = [RANGE, IF_RANGE, IF_MATCH, IF_UNMODIFIED_SINCE, IF_NONE_MATCH, IF_MODIFIED_SINCE];

/// A head, and which bytes of the entry's body follow it.
#[derive(Debug)]
pub(super) struct Reply {
    pub head: response::Parts,
    pub range: Range<u64>,
}

/// Whether a request is for a part, or under a condition.
pub(super) fn is_conditional(headers: &HeaderMap) -> bool {
    CONDITIONS.iter().any(|name| headers.contains_key(name))
}

impl Reply {
    /// None: only the origin can answer this.
    pub(super) fn of(entry: &Entry, request: &request::Parts, now: SystemTime) -> Option<Self> {
        let (headers, mut head) = (&request.headers, entry.head(now));
        let length = entry.record.length;
        if entry.status != StatusCode::OK {
            // A condition is for what would be a success (RFC 9110 §13.2.1).
            return (!headers.contains_key(RANGE)).then(|| Self::whole(head, length, request));
        }
        if headers.contains_key(IF_MATCH) || headers.contains_key(IF_UNMODIFIED_SINCE) {
            return None;
        }
        if is_unchanged(entry, headers) {
            head.status = StatusCode::NOT_MODIFIED;
            for name in [CONTENT_LENGTH, CONTENT_TYPE, CONTENT_ENCODING] {
                head.headers.remove(name);
            }
            return Some(Self { head, range: 0..0 });
        }
        if !headers.contains_key(RANGE) || request.method != Method::GET || !is_of_range(entry, headers)? {
            return Some(Self::whole(head, length, request));
        }
        let said = match range(headers, length)? {
            Some(range) => {
                head.status = StatusCode::PARTIAL_CONTENT;
                head.headers.insert(CONTENT_LENGTH, HeaderValue::from(range.end - range.start));
                let said = format!("bytes {}-{}/{length}", range.start, range.end - 1);
                return Some(Self::part(head, &said, range));
            }
            None => format!("bytes */{length}"),
        };
        head.status = StatusCode::RANGE_NOT_SATISFIABLE;
        head.headers.insert(CONTENT_LENGTH, HeaderValue::from(0));
        Some(Self::part(head, &said, 0..0))
    }

    fn whole(head: response::Parts, length: u64, request: &request::Parts) -> Self {
        Self { head, range: if request.method == Method::HEAD { 0..0 } else { 0..length } }
    }

    fn part(mut head: response::Parts, said: &str, range: Range<u64>) -> Self {
        HeaderValue::from_str(said).into_iter().for_each(|said| drop(head.headers.insert(CONTENT_RANGE, said)));
        Self { head, range }
    }
}

/// Whether whoever asks has it already (RFC 9110 §13.1.2 and §13.1.3).
fn is_unchanged(entry: &Entry, headers: &HeaderMap) -> bool {
    if headers.contains_key(IF_NONE_MATCH) {
        let etag = text(&entry.headers, &ETAG).map(weak);
        let tags = headers.get_all(IF_NONE_MATCH).iter().filter_map(|line| line.to_str().ok());
        let mut tags = tags.flat_map(super::directives::members);
        return tags.any(|tag| tag == "*" || Some(weak(tag)) == etag);
    }
    let date = |headers, name| httpdate::parse_http_date(text(headers, name)?).ok();
    let since = date(headers, &IF_MODIFIED_SINCE);
    since.zip(date(&entry.headers, &LAST_MODIFIED)).is_some_and(|(since, modified)| modified <= since)
}

/// Whether a range is one of this version (RFC 9110 §13.1.5). None: a date does not show that for sure.
fn is_of_range(entry: &Entry, headers: &HeaderMap) -> Option<bool> {
    let Some(version) = headers.get(IF_RANGE) else { return Some(true) };
    let is_strong = version.as_bytes().starts_with(b"\"");
    if !is_strong && !version.as_bytes().starts_with(b"W/") {
        return None;
    }
    Some(is_strong && entry.headers.get(ETAG) == Some(version))
}

/// The one range that is asked for, as far as there is one. None: there are several, or it is none.
fn range(headers: &HeaderMap, length: u64) -> Option<Option<Range<u64>>> {
    let mut lines = headers.get_all(RANGE).iter();
    let line = lines.next().filter(|_| lines.next().is_none())?.to_str().ok()?;
    let (first, last) = line.strip_prefix("bytes=")?.split_once('-')?;
    let number = |digits: &str| digits.bytes().all(|byte| byte.is_ascii_digit()).then(|| digits.parse().ok()).flatten();
    let range: Range<u64> = match (first, last) {
        ("", last) => length.saturating_sub(number(last)?)..length,
        (first, "") => number(first)?..length,
        (first, last) => {
            let (first, last): (u64, u64) = (number(first)?, number(last)?);
            if last < first {
                return None;
            }
            first..last.saturating_add(1).min(length)
        }
    };
    Some((range.start < range.end).then_some(range))
}

fn text<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Option<&'a str> {
    headers.get(name)?.to_str().ok()
}

/// A tag for a weak comparison (RFC 9110 §8.8.3.2).
fn weak(tag: &str) -> &str {
    tag.trim().trim_start_matches("W/")
}

#[cfg(test)]
mod tests {
    use super::super::entry::{self, Body};
    use super::super::key::{Asker, Digest, Selector};
    use super::super::policy::Times;
    use super::*;
    use bytes::Bytes;
    use hoop_endpoint::DeviceId;
    use http::Request;

    const MODIFIED: &str = "Sun, 06 Nov 1994 08:49:37 GMT";

    fn request(method: &str, fields: &[(&str, &str)]) -> request::Parts {
        let begun = Request::builder().method(method).uri("http://a/");
        let request = fields.iter().fold(begun, |request, (name, value)| request.header(*name, *value));
        request.body(()).unwrap().into_parts().0
    }

    fn entry(status: StatusCode) -> Entry {
        let asker = Asker::of(&request("GET", &[]), DeviceId([1; 20]));
        let headers =
            request("GET", &[("etag", "\"a\""), ("last-modified", MODIFIED), ("content-length", "10")]).headers;
        let selector = Selector::of(&asker, &HeaderMap::new(), &headers, false, false).unwrap();
        let times = Times { asked: SystemTime::now(), came: SystemTime::now() };
        let mut record = entry::record(selector, false, (status, &headers), times, Digest::default()).unwrap();
        record.length = 10;
        Entry::new(record, Body::Memory(Bytes::from_static(b"0123456789"))).unwrap()
    }

    #[test]
    fn parts_and_conditions_are_answered_or_left_to_the_origin() {
        let entry = entry(StatusCode::OK);
        for (method, fields, expected) in [
            ("GET", &[][..], Some((200, 0..10))),
            ("HEAD", &[], Some((200, 0..0))),
            ("GET", &[("range", "bytes=0-1")], Some((206, 0..2))),
            ("GET", &[("range", "bytes=7-")], Some((206, 7..10))),
            ("GET", &[("range", "bytes=-3")], Some((206, 7..10))),
            ("GET", &[("range", "bytes=-30")], Some((206, 0..10))),
            ("GET", &[("range", "bytes=5-99999999999999999999")], None),
            ("GET", &[("range", "bytes=5-18446744073709551615")], Some((206, 5..10))),
            ("GET", &[("range", "bytes=10-")], Some((416, 0..0))),
            ("GET", &[("range", "bytes=-0")], Some((416, 0..0))),
            ("GET", &[("range", "bytes=5-1")], None),
            ("GET", &[("range", "bytes=0-1,5-6")], None),
            ("GET", &[("range", "lines=1-2")], None),
            ("GET", &[("range", "bytes=7-"), ("if-range", "\"a\"")], Some((206, 7..10))),
            ("GET", &[("range", "bytes=7-"), ("if-range", "\"b\"")], Some((200, 0..10))),
            ("GET", &[("range", "bytes=7-"), ("if-range", "W/\"a\"")], Some((200, 0..10))),
            ("GET", &[("range", "bytes=7-"), ("if-range", MODIFIED)], None),
            ("HEAD", &[("range", "bytes=7-")], Some((200, 0..0))),
            ("GET", &[("if-none-match", "\"a\"")], Some((304, 0..0))),
            ("GET", &[("if-none-match", "\"b\", W/\"a\"")], Some((304, 0..0))),
            ("GET", &[("if-none-match", "*")], Some((304, 0..0))),
            ("GET", &[("if-none-match", "\"b\"")], Some((200, 0..10))),
            ("GET", &[("if-modified-since", MODIFIED)], Some((304, 0..0))),
            ("GET", &[("if-modified-since", "Sun, 06 Nov 1994 08:49:36 GMT")], Some((200, 0..10))),
            ("GET", &[("if-none-match", "\"b\""), ("if-modified-since", MODIFIED)], Some((200, 0..10))),
            ("GET", &[("if-match", "\"a\"")], None),
            ("GET", &[("if-unmodified-since", MODIFIED)], None),
        ] {
            let reply = Reply::of(&entry, &request(method, fields), SystemTime::now());
            let reply = reply.map(|reply| {
                let length = reply.head.headers.get(CONTENT_LENGTH).map(|length| length.to_str().unwrap().to_owned());
                match reply.head.status.as_u16() {
                    206 => assert_eq!(length, Some((reply.range.end - reply.range.start).to_string())),
                    304 => assert_eq!(length, None),
                    416 => assert_eq!(reply.head.headers[CONTENT_RANGE], "bytes */10"),
                    _ => assert_eq!(length.as_deref(), Some("10")),
                }
                (reply.head.status.as_u16(), reply.range)
            });
            assert_eq!(reply, expected, "{method} {fields:?}");
        }
    }

    #[test]
    fn a_condition_is_for_what_would_be_a_success() {
        let entry = entry(StatusCode::NOT_FOUND);
        let reply = |fields: &[(&str, &str)]| Reply::of(&entry, &request("GET", fields), SystemTime::now());
        assert_eq!(reply(&[("if-none-match", "\"a\"")]).unwrap().head.status, StatusCode::NOT_FOUND);
        assert!(reply(&[("range", "bytes=0-1")]).is_none());
    }
}
