//! The heads of `vectors/head.json`, as text of HTTP/1.1 and as sections.

use hoop_head::{decode_request, decode_response, encode_request, encode_response};
use http::{HeaderMap, HeaderName, HeaderValue, Request, Response, StatusCode, header};
use serde::Deserialize;

#[derive(Deserialize)]
struct Vector {
    name: String,
    kind: String,
    text: Vec<String>,
    text_bytes: usize,
    section: String,
    section_bytes: usize,
}

/// How many bytes a head of HTTP/1.1 takes.
pub fn text_len(lines: &[&str]) -> usize {
    lines.iter().map(|line| line.len() + 2).sum::<usize>() + 2
}

/// The section of a head that is given as text of HTTP/1.1. The field `Connection` is not in it, and requests are for https.
pub fn section_of(kind: &str, lines: &[&str]) -> Vec<u8> {
    let (first, fields) = (lines[0], fields(&lines[1..]));
    let mut section = Vec::new();
    if kind == "request" {
        encode_request(&request(first, fields).into_parts().0, &mut section).unwrap();
    } else {
        encode_response(&response(first, fields).into_parts().0, &mut section).unwrap();
    }
    section
}

fn fields(lines: &[&str]) -> HeaderMap {
    let fields = lines.iter().map(|line| {
        let (name, value) = line.split_once(": ").unwrap();
        (name.parse::<HeaderName>().unwrap(), HeaderValue::from_bytes(value.as_bytes()).unwrap())
    });
    let mut map = HeaderMap::new();
    for (name, value) in fields.filter(|(name, _)| name != header::CONNECTION) {
        map.append(name, value);
    }
    map
}

fn request(first: &str, fields: HeaderMap) -> Request<()> {
    let [method, path, "HTTP/1.1"] = first.split(' ').collect::<Vec<_>>()[..] else { panic!("{first}") };
    let uri = format!("https://{}{path}", fields[header::HOST].to_str().unwrap());
    let mut request = Request::builder().method(method).uri(uri).body(()).unwrap();
    *request.headers_mut() = fields;
    request
}

fn response(first: &str, fields: HeaderMap) -> Response<()> {
    let ["HTTP/1.1", status, _] = first.splitn(3, ' ').collect::<Vec<_>>()[..] else { panic!("{first}") };
    let mut response = Response::new(());
    *response.status_mut() = StatusCode::from_bytes(status.as_bytes()).unwrap();
    *response.headers_mut() = fields;
    response
}

#[test]
fn each_vector_is_written_and_read_as_it_says() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../vectors/head.json");
    let vectors: Vec<Vector> = serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap();
    for Vector { name, kind, text, text_bytes, section, section_bytes } in vectors {
        let lines: Vec<_> = text.iter().map(String::as_str).collect();
        assert_eq!(hex::encode(section_of(&kind, &lines)), section, "{name}");

        let section = hex::decode(section).unwrap();
        assert_eq!((text_len(&lines), section.len()), (text_bytes, section_bytes), "{name}");

        let mut fields = fields(&lines[1..]);
        if kind == "request" {
            let (head, expected) = (decode_request(&section).unwrap(), request(lines[0], fields.clone()));
            fields.remove(header::HOST);
            assert_eq!(
                (head.method(), head.uri(), head.headers()),
                (expected.method(), expected.uri(), &fields),
                "{name}"
            );
        } else {
            let (head, expected) = (decode_response(&section).unwrap(), response(lines[0], fields.clone()));
            assert_eq!((head.status(), head.headers()), (expected.status(), &fields), "{name}");
        }
    }
}
