//! Fields of one hop: [`HOP_BY_HOP`]; and how long an answer is for the next: [`settle_length`].

use http::header::{CONNECTION, CONTENT_LENGTH, HeaderMap, HeaderName, TRANSFER_ENCODING};

/// Fields that concern one hop alone (RFC 9110 §7.6.1 and §11.7.3, RFC 7540 §3.2.1, and those that older software sends), in lower case.
pub const HOP_BY_HOP: [&str; 11] = [
    "connection",
    "http2-settings",
    "keep-alive",
    "proxy-connection",
    "proxy-authenticate",
    "proxy-authentication-info",
    "proxy-authorization",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
];

/// What `Connection` names (RFC 9110 §7.6.1), as far as it is text: something else between two commas hides no other name.
pub fn connection_options(headers: &HeaderMap) -> impl Iterator<Item = &str> {
    let options = headers.get_all(CONNECTION).iter().flat_map(|value| value.as_bytes().split(|byte| *byte == b','));
    options.filter_map(|option| std::str::from_utf8(option).ok()).map(str::trim)
}

/// An answer has another transfer coding than `chunked`, which hyper does not undo, or lengths that disagree or are none.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct UnclearLength;

/// Has `Content-Length` of an answer say once how long the body is, or nothing where it came in chunks (RFC 9112 §6.3). Several equal ones become one (RFC 9110 §8.6).
/// hyper does not look at those of an answer to `HEAD`. Call it before [`end_hop`].
///
/// # Errors
/// [`UnclearLength`]: where the body ends is not known.
pub fn settle_length(headers: &mut HeaderMap) -> Result<(), UnclearLength> {
    if let Some(coding) = headers.get(TRANSFER_ENCODING) {
        if !coding.as_bytes().eq_ignore_ascii_case(b"chunked") || headers.get_all(TRANSFER_ENCODING).iter().count() > 1
        {
            return Err(UnclearLength);
        }
        headers.remove(CONTENT_LENGTH);
    }
    let mut settled = None;
    for lengths in headers.get_all(CONTENT_LENGTH) {
        for length in lengths.to_str().map_err(|_| UnclearLength)?.split(',') {
            let length = number(length.trim()).ok_or(UnclearLength)?;
            if *settled.get_or_insert(length) != length {
                return Err(UnclearLength);
            }
        }
    }
    settled.into_iter().for_each(|length| drop(headers.insert(CONTENT_LENGTH, length.into())));
    Ok(())
}

/// Digits alone: Rust's own numbers may begin with `+`.
fn number(text: &str) -> Option<u64> {
    text.parse().ok().filter(|_| text.bytes().all(|byte| byte.is_ascii_digit()))
}

/// Takes the fields of one hop out: [`HOP_BY_HOP`], and those that `Connection` names.
pub fn end_hop(headers: &mut HeaderMap) {
    let named: Vec<_> = connection_options(headers).filter_map(|option| HeaderName::try_from(option).ok()).collect();
    named.into_iter().for_each(|name| drop(headers.remove(name)));
    HOP_BY_HOP.iter().for_each(|name| drop(headers.remove(*name)));
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::HeaderValue;

    #[test]
    fn fields_that_connection_names_go_whatever_else_it_says() {
        let connection = HeaderValue::from_bytes(b"close, \xe9, x-one,,x\x80y ,X-Two").unwrap();
        let fields =
            ["x-one", "x-two", "x-three"].map(|name| (HeaderName::from_static(name), HeaderValue::from_static("1")));
        let mut headers: HeaderMap = fields.into_iter().chain([(CONNECTION, connection)]).collect();
        end_hop(&mut headers);
        assert_eq!(headers.keys().map(HeaderName::as_str).collect::<Vec<_>>(), ["x-three"]);
    }

    /// Of an answer to HEAD hyper reads no length.
    #[test]
    fn an_answer_says_one_length_or_is_refused() {
        let settled = |lengths: &[&'static str]| {
            let lengths = lengths.iter().map(|length| (CONTENT_LENGTH, HeaderValue::from_static(length)));
            let mut headers: HeaderMap = lengths.collect();
            settle_length(&mut headers).ok()?;
            let settled: Vec<_> =
                headers.get_all(CONTENT_LENGTH).iter().map(|length| length.to_str().unwrap()).collect();
            Some(settled.join("; "))
        };
        for (lengths, expected) in [
            (&[][..], Some("")),
            (&["7"], Some("7")),
            (&["7", "7"], Some("7")),
            (&["7, 7", "7"], Some("7")),
            (&["7", "8"], None),
            (&["7, 8"], None),
            (&["7, 7", "8"], None),
            (&["7", "x"], None),
            (&["7,"], None),
            (&["+7"], None),
            (&["99999999999999999999999"], None),
        ] {
            assert_eq!(settled(lengths).as_deref(), expected, "{lengths:?}");
        }
    }
}
