//! Compact heads of requests and responses, as flows carry them.

use crate::input::Input;
use hoop_head::{HEAD_MAX, decode_request, decode_response, encode_request, encode_response, frame, split};
use http::{HeaderMap, header};

/// What is read of a head is written in a form that reads the same, and that form stays; a length and a head behind it are found however much has come.
pub fn compact_head(bytes: &[u8]) {
    let mut input = Input::new(bytes);
    let what = input.byte() % 3;
    let bytes = input.rest();
    match what {
        0 => request(bytes),
        1 => response(bytes),
        _ => stream(bytes),
    }
}

fn request(section: &[u8]) {
    let Ok(head) = decode_request(section) else { return };
    let uri = head.uri();
    assert!(
        matches!(uri.scheme_str(), Some("http" | "https"))
            && uri.authority().is_some()
            && uri.path_and_query().is_some()
    );
    check(head.headers());
    let head = head.into_parts().0;
    let (mut once, mut twice) = (Vec::new(), Vec::new());
    encode_request(&head, &mut once).expect("what was read can be written");
    assert!(once.len() <= HEAD_MAX);
    let again = decode_request(&once).expect("what was written can be read").into_parts().0;
    assert_eq!((&again.method, &again.uri, &again.headers), (&head.method, &head.uri, &head.headers));
    encode_request(&again, &mut twice).expect("what was read can be written");
    assert_eq!(once, twice, "one head is written in one form");
}

fn response(section: &[u8]) {
    let Ok(head) = decode_response(section) else { return };
    assert!((100..600).contains(&head.status().as_u16()) && head.status() != 101);
    check(head.headers());
    let head = head.into_parts().0;
    let (mut once, mut twice) = (Vec::new(), Vec::new());
    encode_response(&head, &mut once).expect("what was read can be written");
    assert!(once.len() <= HEAD_MAX);
    let again = decode_response(&once).expect("what was written can be read").into_parts().0;
    assert_eq!((&again.status, &again.headers), (&head.status, &head.headers));
    encode_response(&again, &mut twice).expect("what was read can be written");
    assert_eq!(once, twice, "one head is written in one form");
}

/// No field is about a connection, and none could end a line of HTTP/1.1.
fn check(fields: &HeaderMap) {
    for name in [header::HOST, header::CONNECTION, header::TRANSFER_ENCODING, header::UPGRADE] {
        assert!(!fields.contains_key(name));
    }
    for value in fields.values() {
        let bytes = value.as_bytes();
        assert!(!bytes.iter().any(|byte| byte.is_ascii_control() && *byte != b'\t'), "a control character");
        assert_eq!(bytes.trim_ascii(), bytes, "white space around a value");
    }
}

fn stream(bytes: &[u8]) {
    let whole = split(bytes);
    match &whole {
        Ok(Some(at)) => {
            assert!(at.end <= bytes.len() && at.len() <= HEAD_MAX);
            let mut again = Vec::new();
            frame(&bytes[at.clone()], &mut again).expect("it is not too long");
            assert_eq!(again, bytes[..at.end], "a length is written in one form");
            for cut in [0, 1, at.start, at.end - 1].into_iter().filter(|cut| *cut < at.end) {
                assert_eq!(split(&bytes[..cut]), Ok(None), "more must come");
            }
        }
        // More bytes do not mend it, and fewer do not make a head of it.
        Err(_) => {
            assert_eq!(split(&[bytes, b"more"].concat()), whole);
            assert!(
                (0..bytes.len().min(8)).all(|cut| split(&bytes[..cut]) == Ok(None) || split(&bytes[..cut]) == whole)
            );
        }
        Ok(None) => {}
    }
}
