//! What is wrong, and which error says so.

use crate::{literal, request, response};
use hoop_head::HeadError::{self, *};
use hoop_head::{FIELDS_MAX, HEAD_MAX, decode_request, decode_response, encode_request, frame, split};
use http::{Request, Response};

type Field = (&'static [u8], &'static [u8]);

/// GET https://a/
const GET: [u8; 6] = [0xc0 | 17, 0xc0 | 23, 0x50, 1, b'a', 0xc1];
const METHOD: Field = (b":method", b"GET");
const SCHEME: Field = (b":scheme", b"https");
const AUTHORITY: Field = (b":authority", b"a");
const PATH: Field = (b":path", b"/");

fn refused(section: &[u8]) -> HeadError {
    decode_request(section).expect_err("a section that is wrong")
}

#[test]
fn each_fault_of_a_section_has_its_error() {
    for (rest, error) in [
        // Dynamic: indexed, name reference, post-base indexed, post-base name reference.
        (&[0x80][..], DynamicTable),
        (&[0x40, 0], DynamicTable),
        (&[0x10], DynamicTable),
        (&[0x00, 0], DynamicTable),
        (&[0xff, 0xff, 0x01], Index(63 + 255)),
        (&[0x5f, 0xff, 0x7f, 0], Index(15 + 127 + (127 << 7))),
        (&[0xff, 0x80, 0x80, 0x80, 0x80, 0x80, 0x01], Number),
        (&[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x7f], Number),
        (&[0x21, b'x', 0x7f, 0xff, 0xff, 0xff, 0xff, 0xff], Number),
        (&[0xff], Truncated),
        (&[0xff, 0x80], Truncated),
        (&[0x51], Truncated),
        (&[0x51, 2, b'x'], Truncated),
        (&[0x23, b'x'], Truncated),
        (&[0x21, b'x'], Truncated),
        (&[0x21, b'x', 0x7f, 0xff, 0xff, 0xff, 0x7f], Truncated),
        // `x: ` with a Huffman-coded value of EOS, of too much padding, of wrong padding.
        (&[0x21, b'x', 0x84, 0xff, 0xff, 0xff, 0xff], Huffman),
        (&[0x21, b'x', 0x82, 0x1f, 0xff], Huffman),
        (&[0x21, b'x', 0x81, 0x1e], Huffman),
        // No part is 0, 10, 13 or 31; 0x7f is none, either.
        (&[0x21, b'x', 1, 0], Value),
        (&[0x21, b'x', 1, 10], Value),
        (&[0x21, b'x', 1, 13], Value),
        (&[0x21, b'x', 1, 31], Value),
        // A date has four bytes behind that.
        (&[0x21, b'x', 4, 31, b'a', b'b', b'c'], Value),
        (&[0x21, b'x', 6, 31, b'a', b'b', b'c', b'd', b'e'], Value),
        (&[0x21, b'x', 1, 0x7f], Value),
    ] {
        assert_eq!(refused(&[&GET, rest].concat()), error, "{rest:x?}");
    }
    // Parts have no place in Huffman code or in names: symbol 1 is 23 ones and zeros.
    assert_eq!(refused(&[&GET[..], &[0x21, b'x', 0x83, 0xff, 0xff, 0xb1]].concat()), Value);
    assert_eq!(refused(&[&GET[..], &[0x21, 1, 0]].concat()), Name);
}

#[test]
fn each_fault_of_a_field_has_its_error() {
    for (name, value, error) in [
        (&b""[..], &b"x"[..], NameEmpty),
        (b"Accept", b"x", NameUpperCase),
        (b"a b", b"x", Name),
        (b"a:b", b"x", Name),
        (b"a\xff", b"x", Name),
        (b"a", b" x", ValueSpace),
        (b"a", b"x\t", ValueSpace),
        (b"a", b"x\ny", Value),
        (b"a", b"x\ry", Value),
        (b"a", b"x\0y", Value),
        (b"connection", b"close", ConnectionSpecific("connection")),
        (b"keep-alive", b"timeout=5", ConnectionSpecific("keep-alive")),
        (b"proxy-connection", b"keep-alive", ConnectionSpecific("proxy-connection")),
        (b"transfer-encoding", b"chunked", ConnectionSpecific("transfer-encoding")),
        (b"upgrade", b"websocket", ConnectionSpecific("upgrade")),
        (b"te", b"trailers, gzip", Te),
        (b"te", b"gzip", Te),
        (b"host", b"a", Host),
        (b"content-length", b"", ContentLength),
        (b"content-length", b"+5", ContentLength),
        (b"content-length", b"5, 5", ContentLength),
        (b"content-length", b"18446744073709551616", ContentLength),
        (b":path", b"/", PseudoRepeated(":path")),
        (b":status", b"200", PseudoUnknown),
        (b":protocol", b"websocket", PseudoUnknown),
        (b":", b"", PseudoUnknown),
    ] {
        assert_eq!(refused(&[&GET[..], &literal(&[(name, value)])].concat()), error, "{name:?}: {value:?}");
    }
    let fields: [Field; 2] = [(b"content-length", b"5"), (b"content-length", b"6")];
    assert_eq!(refused(&[&GET[..], &literal(&fields)].concat()), ContentLength);
    let fields: [Field; 2] = [(b"content-length", b"5"), (b"content-length", b"5")];
    assert!(decode_request(&[&GET[..], &literal(&fields)].concat()).is_ok());
    assert!(decode_request(&[&GET[..], &literal(&[(b"te", b"trailers")])].concat()).is_ok());
}

#[test]
fn each_fault_of_a_requests_pseudo_fields_has_its_error() {
    let all = [METHOD, SCHEME, AUTHORITY, PATH];
    assert!(decode_request(&literal(&all)).is_ok());
    for left_out in 0..4 {
        let mut rest = all.to_vec();
        let name = std::str::from_utf8(rest.remove(left_out).0).unwrap();
        let Err(PseudoMissing(missing)) = decode_request(&literal(&rest)) else { panic!("{name} is missing") };
        assert_eq!(missing, name);
    }
    assert_eq!(refused(&[]), PseudoMissing(":method"));
    assert_eq!(refused(&literal(&[METHOD, SCHEME, AUTHORITY, (b"a", b"b"), PATH])), PseudoLate);
    for (place, value, error) in [
        (0, &b""[..], Method),
        (0, b"G T", Method),
        (0, b"CONNECT", Connect),
        (1, b"ftp", Scheme),
        (1, b"HTTPS", Scheme),
        (1, b"", Scheme),
        (2, b"", Authority),
        (2, b"a b", Authority),
        (2, b"a/b", Authority),
        (2, b"[::1", Authority),
        (2, b":80", Authority),
        (2, b"a:", Authority),
        (2, b"a:x", Authority),
        (2, b"a:65536", Authority),
        (2, b"me@a", UserInfo),
        (2, b"me:secret@a:80", UserInfo),
        (3, b"", Path),
        (3, b"a", Path),
        (3, b"?a", Path),
        (3, b"*", Path),
        (3, b"https://a/", Path),
        (3, b"/a b", Path),
        (3, b"/a#b", Path),
        (3, b"/\x7f", Path),
    ] {
        let mut fields = all;
        fields[place].1 = value;
        assert_eq!(refused(&literal(&fields)), error, "{value:?}");
    }
    let options = [(&b":method"[..], &b"OPTIONS"[..]), SCHEME, AUTHORITY, (b":path", b"*")];
    assert_eq!(decode_request(&literal(&options)).unwrap().uri().path(), "*");
}

#[test]
fn each_fault_of_a_responses_status_has_its_error() {
    for (value, error) in [
        (&b"99"[..], Status),
        (b"099", Status),
        (b"600", Status),
        (b"999", Status),
        (b"0200", Status),
        (b"2x0", Status),
        (b"", Status),
        (b"101", SwitchingProtocols),
    ] {
        assert_eq!(decode_response(&literal(&[(b":status", value)])).unwrap_err(), error, "{value:?}");
    }
    assert_eq!(decode_response(&[]).unwrap_err(), PseudoMissing(":status"));
    assert_eq!(decode_response(&literal(&[METHOD])).unwrap_err(), PseudoUnknown);
    assert!(decode_response(&literal(&[(b":status", b"599")])).is_ok());
}

#[test]
fn a_cut_section_is_not_taken_for_a_whole_field() {
    let whole = literal(&[METHOD, SCHEME, AUTHORITY, PATH, (b"a-name", b"a value")]);
    let last = whole.len() - literal(&[(b"a-name", b"a value")]).len();
    for cut in last + 1..whole.len() {
        assert_eq!(refused(&whole[..cut]), Truncated);
    }
}

#[test]
fn the_limits_hold_at_the_byte() {
    // A method, a scheme, an authority and a path are four fields.
    let field = literal(&[(b"a", b"b")]);
    let mut section = [&GET[..], &field.repeat(FIELDS_MAX - 4)].concat();
    assert_eq!(decode_request(&section).unwrap().headers().len(), FIELDS_MAX - 4);
    section.extend_from_slice(&field);
    assert_eq!(refused(&section), TooManyFields);

    // Few bytes that stand for many.
    let size = |parts: usize| {
        let mut section = GET.to_vec();
        section.extend([0x21, b'x', 0x7f]);
        let mut rest = parts - 127;
        while rest >= 0x80 {
            section.push(rest as u8 | 0x80);
            rest >>= 7;
        }
        section.push(rest as u8);
        section.extend(std::iter::repeat_n(0x12, parts));
        decode_request(&section).map(|head| head.headers()["x"].len())
    };
    let part = size(1_000).unwrap() / 1_000;
    let most = (HEAD_MAX - 4 * 32 - ":methodGET:schemehttps:authoritya:path/".len() - 33) / part;
    assert_eq!(size(most), Ok(most * part));
    assert_eq!(size(most + 1), Err(TooLong));
    assert_eq!(size(HEAD_MAX - 20), Err(TooLong));
    assert_eq!(refused(&vec![0xc1; HEAD_MAX + 1]), TooLong);
}

#[test]
fn a_writer_refuses_what_a_reader_would_and_appends_nothing() {
    let get = || Request::get("https://a/");
    for (head, error) in [
        (Request::get("/path"), PseudoMissing(":scheme")),
        (Request::get("a:80"), PseudoMissing(":scheme")),
        (Request::get("ftp://a/"), Scheme),
        (Request::get("https://me@a/"), UserInfo),
        (Request::get("https://a:99999/"), Authority),
        (Request::connect("https://a/"), Connect),
        (get().header("connection", "close"), ConnectionSpecific("connection")),
        (get().header("te", "gzip"), Te),
        (get().header("a", " b"), ValueSpace),
        (get().header("content-length", "5").header("content-length", "6"), ContentLength),
        (get().header("a", "b".repeat(HEAD_MAX)), TooLong),
        ((0..FIELDS_MAX).fold(get(), |head, _| head.header("a", "b")), TooManyFields),
    ] {
        let head = head.body(()).unwrap().into_parts().0;
        let mut into = b"before".to_vec();
        assert_eq!(encode_request(&head, &mut into), Err(error));
        assert_eq!(into, b"before");
    }
    assert_eq!(response(Response::builder().status(101)), Err(SwitchingProtocols));
    assert_eq!(response(Response::builder().status(600)), Err(Status));
    assert_eq!(response(Response::builder().header("upgrade", "h2c")), Err(ConnectionSpecific("upgrade")));
}

#[test]
fn a_writer_leaves_host_out() {
    let without = request(Request::get("https://a/")).unwrap();
    assert_eq!(request(Request::get("https://a/").header("host", "b")).unwrap(), without);
    assert_eq!(without, GET);
}

#[test]
fn a_length_is_refused_as_soon_as_it_is_too_long_or_not_shortest() {
    for (bytes, split_as) in [
        (&[][..], Ok(None)),
        (&[0], Ok(Some(1..1))),
        (&[2, 1], Ok(None)),
        (&[2, 1, 1, 9], Ok(Some(1..3))),
        (&[0x40], Ok(None)),
        (&[0x40, 0x3f], Err(Number)),
        (&[0x40, 0x40], Ok(None)),
        (&[0x80, 0, 0x3f], Ok(None)),
        (&[0x80, 0, 0x3f, 0xff], Err(Number)),
        (&[0x80, 4, 0, 0], Ok(None)),
        (&[0x80, 4, 0, 1], Err(TooLong)),
        (&[0xbf, 0xff, 0xff, 0xff], Err(TooLong)),
        (&[0xc0], Err(TooLong)),
    ] {
        assert_eq!(split(bytes), split_as, "{bytes:x?}");
    }
    for len in [0, 1, 63, 64, 16_383, 16_384, HEAD_MAX] {
        let mut bytes = Vec::new();
        frame(&vec![7; len], &mut bytes).unwrap();
        for cut in [0, 1, 2, 3, bytes.len() / 2, bytes.len() - 1] {
            assert_eq!(split(&bytes[..cut.min(bytes.len() - 1)]), Ok(None));
        }
        let at = split(&bytes).unwrap().unwrap();
        assert_eq!((at.len(), at.end), (len, bytes.len()));
    }
    assert_eq!(frame(&vec![7; HEAD_MAX + 1], &mut Vec::new()), Err(TooLong));
}
