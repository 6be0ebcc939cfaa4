//! What is written is read the same.

use crate::{request, response};
use hoop_head::{decode_request, decode_response};
use http::{HeaderName, HeaderValue, Request, Response};
use proptest::collection::vec;
use proptest::prelude::*;

/// Names of the table, and others.
fn name() -> impl Strategy<Value = String> {
    prop_oneof![
        prop::sample::select(vec![
            "accept",
            "cookie",
            "user-agent",
            "sec-ch-ua",
            "set-cookie",
            "content-range",
            "etag"
        ])
        .prop_map(str::to_owned),
        "x-[a-z0-9!#$%&'*+.^_`|~-]{0,20}",
    ]
}

/// Values of the table, values with parts, dates, and any bytes that a value may have.
fn value() -> impl Strategy<Value = Vec<u8>> {
    let date =
        "(Sun|Mon|Tue|Wed|Thu), [0-3][0-9] (Jan|Feb|Nov) (19|20|21)[0-9]{2} [0-2][0-9]:[0-5][0-9]:[0-6][0-9] GMT";
    prop_oneof![3 => mixed(), 1 => date.prop_map(String::into_bytes)]
}

fn mixed() -> impl Strategy<Value = Vec<u8>> {
    const PARTS: [&str; 9] = ["Mozilla/5.0 (", "https://", "\"Not", "; rv:1", "140", "*/*", "bytes 0-1/2", "\t", "?1"];
    let byte = prop_oneof![0x20..0x7f_u8, 0x80..=0xff_u8, Just(b'\t')];
    let mixed = vec(
        prop_oneof![prop::sample::select(&PARTS[..]).prop_map(|part| part.as_bytes().to_vec()), vec(byte, 0..9)],
        0..9,
    );
    mixed.prop_map(|pieces| pieces.concat().trim_ascii().to_vec())
}

proptest! {
    #[test]
    fn a_request_comes_back(
        method in "(GET|POST|OPTIONS|PATCH|[A-Z]{1,9})",
        uri in "https?://[a-z0-9.-]{1,20}(:[1-9][0-9]{0,3})?(/[a-z0-9%._~-]{0,30}){0,3}(\\?[a-z0-9=&]{0,20})?",
        fields in vec((name(), value()), 0..30),
    ) {
        prop_assume!(method != "CONNECT");
        let mut head = Request::builder().method(&*method).uri(&uri);
        for (name, value) in fields {
            head = head.header(HeaderName::try_from(name).unwrap(), HeaderValue::from_bytes(&value).unwrap());
        }
        let (uri, headers) = (head.uri_ref().unwrap().clone(), head.headers_ref().unwrap().clone());
        let section = request(head).unwrap();
        let again = decode_request(&section).unwrap();
        prop_assert_eq!(again.method().as_str(), method);
        prop_assert_eq!(again.uri(), &uri);
        prop_assert_eq!(again.headers(), &headers);
    }

    #[test]
    fn a_response_comes_back(status in 100..600_u16, fields in vec((name(), value()), 0..30)) {
        prop_assume!(status != 101);
        let mut head = Response::builder().status(status);
        for (name, value) in fields {
            head = head.header(HeaderName::try_from(name).unwrap(), HeaderValue::from_bytes(&value).unwrap());
        }
        let headers = head.headers_ref().unwrap().clone();
        let again = decode_response(&response(head).unwrap()).unwrap();
        prop_assert_eq!(again.status(), status);
        prop_assert_eq!(again.headers(), &headers);
    }

    #[test]
    fn any_bytes_are_a_head_or_an_error(bytes in vec(any::<u8>(), 0..200)) {
        let _ = (decode_request(&bytes), decode_response(&bytes), hoop_head::split(&bytes));
    }
}

#[test]
fn a_uri_without_a_path_has_the_path_slash() {
    for (uri, again) in [("http://a", "http://a/"), ("http://a?b", "http://a/?b"), ("HTTP://A:80/x", "http://A:80/x")] {
        assert_eq!(decode_request(&request(Request::get(uri)).unwrap()).unwrap().uri().to_string(), again);
    }
}

#[test]
fn fields_of_one_name_stay_apart_and_in_order() {
    let head = Request::get("https://a/").header("cookie", "b=1").header("cookie", "a=2");
    let again = decode_request(&request(head).unwrap()).unwrap();
    assert_eq!(again.headers().get_all("cookie").iter().collect::<Vec<_>>(), ["b=1", "a=2"]);
}

#[test]
fn pseudo_fields_may_come_in_any_order_and_n_changes_nothing() {
    // :path, :authority with the bit N, :scheme, :method; then `a: b` with the bit N.
    let section = [0xc1, 0x70, 1, b'a', 0xc0 | 23, 0xc0 | 17, 0x31, b'a', 1, b'b'];
    let head = decode_request(&section).unwrap();
    assert_eq!((head.uri().to_string().as_str(), &head.headers()["a"]), ("https://a/", &HeaderValue::from_static("b")));
}
