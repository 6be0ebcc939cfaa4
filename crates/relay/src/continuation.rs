//! How an answer that broke off goes on: by a request for the rest of the same version (RFC 9110 §13.1.5 and §14).
//!
//! Pure: what is to be asked, and whether what comes is the rest. Both ends use it: a relay when an origin breaks off, a device when a relay was replaced by one that knows nothing.

use http::header::{CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_RANGE, ETAG, IF_RANGE, RANGE};
use http::{HeaderMap, HeaderValue, Method, StatusCode, request, response};

/// What shows that an answer is of the same version as an earlier one.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Version {
    etag: HeaderValue,
    /// How its body is coded: some servers give the same tag to all codings, though that is none that a strong one is for (RFC 9110 §8.8.3.3).
    coding: Option<HeaderValue>,
    /// How long the whole body is, if that was said.
    length: Option<u64>,
}

impl Version {
    /// The version of which `answer` began to give the body; none if nothing would show that a later answer is of the same one. A strong `ETag` does (RFC 9110 §8.8.1). A request for a part is
    /// not asked again.
    pub fn of(request: &request::Parts, answer: &response::Parts) -> Option<Self> {
        let is_whole = request.method == Method::GET
            && answer.status == StatusCode::OK
            && !request.headers.contains_key(RANGE)
            && !request.headers.contains_key(IF_RANGE);
        // What is not ASCII could not be noted.
        let etag = only(&answer.headers, ETAG).filter(|etag| is_strong(etag) && etag.to_str().is_ok())?.clone();
        let coding = answer.headers.get(CONTENT_ENCODING).cloned();
        is_whole.then(|| Self { etag, coding, length: length(&answer.headers) })
    }

    /// A version with this strong tag, as was noted of an earlier answer. None: it is no such tag.
    pub fn new(etag: &str, length: Option<u64>) -> Option<Self> {
        let etag = HeaderValue::try_from(etag).ok().filter(is_strong)?;
        Some(Self { etag, coding: None, length })
    }

    /// Its tag.
    pub fn etag(&self) -> &str {
        self.etag.to_str().unwrap_or_default()
    }

    /// How long its body is, if that is known.
    pub const fn length(&self) -> Option<u64> {
        self.length
    }

    /// Whether so many bytes are the whole body.
    pub fn is_whole(&self, bytes: u64) -> bool {
        self.length == Some(bytes)
    }

    /// Asks for what lies from `from` on, by the same request.
    pub fn rest(&self, request: &request::Parts, from: u64) -> request::Parts {
        let mut rest = request.clone();
        let range = HeaderValue::try_from(format!("bytes={from}-")).expect("digits");
        rest.headers.insert(RANGE, range);
        rest.headers.insert(IF_RANGE, self.etag.clone());
        rest
    }

    /// How many bytes of this answer's body come before `from`: 0 if the server gives what was asked for, `from` if it gives the whole. None: it is no answer of this version. What it says of
    /// the length of the whole is known from then on.
    pub fn before(&mut self, answer: &response::Parts, from: u64) -> Option<u64> {
        // A part need not say it again (RFC 9110 §15.3.7).
        let is_coded_otherwise =
            answer.headers.get(CONTENT_ENCODING).is_some_and(|coding| Some(coding) != self.coding.as_ref());
        if only(&answer.headers, ETAG) != Some(&self.etag) || is_coded_otherwise {
            return None;
        }
        let (before, told) = match answer.status {
            StatusCode::OK => (from, length(&answer.headers)),
            StatusCode::PARTIAL_CONTENT => {
                let (first, last, whole) = range(only(&answer.headers, CONTENT_RANGE)?)?;
                let is_rest = first == from && last.checked_add(1)? == whole;
                (0, Some(is_rest.then_some(whole)?))
            }
            _ => return None,
        };
        let agrees = told.is_none() || self.length.is_none() || told == self.length;
        self.length = self.length.or(told);
        agrees.then_some(before)
    }

    /// Whether so many bytes are less than the whole body, as far as its length is known.
    pub fn is_short(&self, bytes: u64) -> bool {
        self.length.is_some_and(|length| bytes < length)
    }
}

/// A field that is there once.
fn only(headers: &HeaderMap, name: http::HeaderName) -> Option<&HeaderValue> {
    let mut values = headers.get_all(name).iter();
    let first = values.next()?;
    values.next().is_none().then_some(first)
}

fn is_strong(etag: &HeaderValue) -> bool {
    let bytes = etag.as_bytes();
    bytes.len() >= 2 && bytes.starts_with(b"\"") && bytes.ends_with(b"\"")
}

fn length(headers: &HeaderMap) -> Option<u64> {
    only(headers, CONTENT_LENGTH)?.to_str().ok()?.parse().ok()
}

/// First and last byte, and how many there are in all (RFC 9110 §14.4).
fn range(value: &HeaderValue) -> Option<(u64, u64, u64)> {
    let (range, whole) = value.to_str().ok()?.strip_prefix("bytes ")?.split_once('/')?;
    let (first, last) = range.split_once('-')?;
    let number = |digits: &str| digits.bytes().all(|byte| byte.is_ascii_digit()).then(|| digits.parse().ok()).flatten();
    Some((number(first)?, number(last)?, number(whole)?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::{Request, Response};

    fn request(fields: &[(&str, &str)]) -> request::Parts {
        let request = fields
            .iter()
            .fold(Request::get("http://a.example/"), |request, (name, value)| request.header(*name, *value));
        request.body(()).unwrap().into_parts().0
    }

    fn answer(status: u16, fields: &[(&str, &str)]) -> response::Parts {
        let answer = fields
            .iter()
            .fold(Response::builder().status(status), |answer, (name, value)| answer.header(*name, *value));
        answer.body(()).unwrap().into_parts().0
    }

    #[test]
    fn only_a_strong_tag_of_a_whole_answer_is_a_version() {
        let plain = request(&[]);
        for (status, fields, is_one) in [
            (200, &[("etag", "\"v1\"")][..], true),
            (200, &[("etag", "W/\"v1\"")], false),
            (200, &[("etag", "v1")], false),
            (200, &[("etag", "\"v1\""), ("etag", "\"v2\"")], false),
            (200, &[("last-modified", "Thu, 01 Jan 1970 00:00:00 GMT")], false),
            (206, &[("etag", "\"v1\"")], false),
            (404, &[("etag", "\"v1\"")], false),
        ] {
            assert_eq!(Version::of(&plain, &answer(status, fields)).is_some(), is_one, "{status} {fields:?}");
        }
        let tagged = answer(200, &[("etag", "\"v1\"")]);
        assert!(Version::of(&request(&[("range", "bytes=5-")]), &tagged).is_none());
        let mut head = request(&[]);
        head.method = Method::HEAD;
        assert!(Version::of(&head, &tagged).is_none());
    }

    #[test]
    fn the_rest_is_asked_for_by_range_under_its_version() {
        let first = request(&[("cookie", "a=b")]);
        let version = Version::of(&first, &answer(200, &[("etag", "\"v1\"")])).unwrap();
        let rest = version.rest(&first, 70);
        for (name, value) in [("range", "bytes=70-"), ("if-range", "\"v1\""), ("cookie", "a=b")] {
            assert_eq!(rest.headers[name], value);
        }
        assert_eq!((&rest.method, &rest.uri), (&first.method, &first.uri));
    }

    #[test]
    fn the_first_part_tells_the_length_of_the_whole() {
        let mut version = Version::new("\"v1\"", None).unwrap();
        assert!(!version.is_short(0));
        let part = answer(206, &[("etag", "\"v1\""), ("content-range", "bytes 70-99/100")]);
        assert_eq!(version.before(&part, 70), Some(0));
        assert!(version.is_short(99) && version.is_whole(100) && !version.is_short(100));
    }

    #[test]
    fn a_part_that_is_coded_in_another_way_is_of_another_version() {
        let (first, gzip, v1) = (request(&[]), ("content-encoding", "gzip"), ("etag", "\"v1\""));
        let range = ("content-range", "bytes 70-99/100");
        for (whole, part, before) in [
            (&[v1][..], &[v1, range, gzip][..], None),
            (&[v1, gzip], &[v1, range, gzip], Some(0)),
            (&[v1, gzip], &[v1, range], Some(0)),
            (&[v1, gzip], &[v1, range, ("content-encoding", "br")], None),
        ] {
            let mut version = Version::of(&first, &answer(200, whole)).unwrap();
            assert_eq!(version.before(&answer(206, part), 70), before, "{whole:?} {part:?}");
        }
    }

    #[test]
    fn only_what_goes_on_where_it_broke_off_is_taken() {
        let first = request(&[]);
        let version = |fields: &[(&str, &str)]| Version::of(&first, &answer(200, fields)).unwrap();
        let tagged = version(&[("etag", "\"v1\"")]);
        let known = version(&[("etag", "\"v1\""), ("content-length", "100")]);
        let v1 = ("etag", "\"v1\"");
        for (status, fields, of_tagged, of_known) in [
            (206, &[v1, ("content-range", "bytes 70-99/100")][..], Some(0), Some(0)),
            (206, &[v1, ("content-range", "bytes 70-98/100")], None, None),
            (206, &[v1, ("content-range", "bytes 60-99/100")], None, None),
            (206, &[v1, ("content-range", "bytes 70-199/200")], Some(0), None),
            (206, &[v1, ("content-range", "bytes 70-99/*")], None, None),
            (206, &[v1, ("content-range", "bytes 70-18446744073709551615/0")], None, None),
            (206, &[v1, ("content-range", "bytes +70-99/100")], None, None),
            (206, &[v1], None, None),
            (206, &[("etag", "\"v2\""), ("content-range", "bytes 70-99/100")], None, None),
            (206, &[("content-range", "bytes 70-99/100")], None, None),
            (200, &[v1, ("content-length", "100")], Some(70), Some(70)),
            (200, &[v1, ("content-length", "90")], Some(70), None),
            (200, &[v1], Some(70), Some(70)),
            (200, &[("etag", "\"v2\"")], None, None),
            (416, &[v1], None, None),
            (304, &[v1], None, None),
        ] {
            let answer = answer(status, fields);
            assert_eq!(tagged.clone().before(&answer, 70), of_tagged, "{status} {fields:?}");
            assert_eq!(known.clone().before(&answer, 70), of_known, "{status} {fields:?}");
        }
    }
}
