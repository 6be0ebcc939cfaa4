//! Where a field's value stands in a body: [`find`], in `multipart/form-data` (RFC 7578), `application/x-www-form-urlencoded` and JSON.
//!
//! Bounds: it sees the first and the last [`WINDOW`] bytes of a body, so that a file before or after the token need not
//! be read. It returns the first [`PLACES_MAX`] places.

use std::ops::Range;

/// What is looked at of a body, at each end: the fields of a form without its files.
pub const WINDOW: u64 = 256 * 1024;

/// The most places that are told: a form has its token once. Each may get a token of kilobytes.
pub const PLACES_MAX: usize = 64;

/// How a value has to be written.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Form {
    /// As it is.
    Multipart,
    /// Percent-encoded.
    Urlencoded,
    /// As a JSON string, without the quotes.
    Json,
}

impl Form {
    /// The form of a body with this `Content-Type`.
    pub fn of(content_type: &str) -> Option<Self> {
        match content_type.split(';').next().unwrap_or_default().trim().to_ascii_lowercase().as_str() {
            "multipart/form-data" => Some(Self::Multipart),
            "application/x-www-form-urlencoded" => Some(Self::Urlencoded),
            "application/json" => Some(Self::Json),
            _ => None,
        }
    }

    /// A value, written.
    pub fn write(self, value: &str) -> Vec<u8> {
        match self {
            Self::Multipart => value.as_bytes().to_vec(),
            Self::Urlencoded => url::form_urlencoded::byte_serialize(value.as_bytes()).collect::<String>().into_bytes(),
            Self::Json => {
                let quoted = serde_json::to_string(value).expect("a text has a JSON form");
                quoted.as_bytes()[1..quoted.len() - 1].to_vec()
            }
        }
    }
}

/// A piece of a body.
#[derive(Clone, Copy, Debug)]
pub struct Piece<'a> {
    /// Where it begins in the body.
    pub at: u64,
    /// Its bytes.
    pub bytes: &'a [u8],
    /// Whether the body ends with it.
    pub last: bool,
}

/// Where values of `field` stand in a body with this `Content-Type`, as far as these pieces show.
pub fn find(content_type: &str, field: &str, pieces: &[Piece<'_>]) -> Vec<Range<u64>> {
    let Some(form) = Form::of(content_type) else { return Vec::new() };
    let found = pieces.iter().flat_map(|piece| {
        let places = match form {
            Form::Multipart => in_parts(content_type, field, *piece),
            Form::Urlencoded => in_pairs(field, *piece),
            Form::Json => in_object(field, *piece),
        };
        places.into_iter().map(|range| piece.at + range.start as u64..piece.at + range.end as u64)
    });
    found.take(PLACES_MAX).collect()
}

/// A parameter of a header's value; quotes are taken off, and what they escape is left as it is.
fn parameter<'a>(value: &'a str, wanted: &str) -> Option<&'a str> {
    let mut rest = value;
    while let Some(at) = rest.find(';') {
        rest = rest[at + 1..].trim_start();
        let (name, after) = rest.split_once('=')?;
        let (text, after) = match after.strip_prefix('"') {
            Some(quoted) => {
                let end = (0..quoted.len())
                    .find(|at| quoted.as_bytes()[*at] == b'"' && (*at == 0 || quoted.as_bytes()[*at - 1] != b'\\'))?;
                (&quoted[..end], &quoted[end + 1..])
            }
            None => {
                let end = after.find(';').unwrap_or(after.len());
                (after[..end].trim_end(), &after[end..])
            }
        };
        if name.trim().eq_ignore_ascii_case(wanted) {
            return Some(text);
        }
        rest = after;
    }
    None
}

fn position(bytes: &[u8], wanted: &[u8], from: usize) -> Option<usize> {
    let found = bytes.get(from..)?.windows(wanted.len()).position(|window| window == wanted)?;
    Some(from + found)
}

fn in_parts(content_type: &str, field: &str, piece: Piece<'_>) -> Vec<Range<usize>> {
    let Some(boundary) = parameter(content_type, "boundary").filter(|text| (1..=70).contains(&text.len())) else {
        return Vec::new();
    };
    let delimiter = format!("\r\n--{boundary}").into_bytes();
    let bytes = piece.bytes;
    let ends = |after: usize| bytes.get(after).is_none_or(|byte| matches!(byte, b'\r' | b' ' | b'\t' | b'-'));
    // Each delimiter: where its CRLF begins, and where what follows it does.
    let mut delimiters = Vec::new();
    let first = delimiter.len() - 2;
    if piece.at == 0 && bytes.starts_with(&delimiter[2..]) && ends(first) {
        delimiters.push((0, first));
    }
    let mut from = 0;
    while let Some(at) = position(bytes, &delimiter, from) {
        from = at + delimiter.len();
        if ends(from) {
            delimiters.push((at, from));
        }
    }
    let parts = delimiters.windows(2).map(|pair| pair[0].1..pair[1].0);
    parts.filter_map(|part| value_of(bytes, part, field)).collect()
}

/// The value of a part, if it is the field's and no file.
fn value_of(bytes: &[u8], part: Range<usize>, field: &str) -> Option<Range<usize>> {
    let whole = bytes.get(part.clone())?;
    let line = whole.iter().position(|byte| !matches!(byte, b' ' | b'\t'))?;
    let head = whole[line..].strip_prefix(b"\r\n")?;
    let end = position(head, b"\r\n\r\n", 0)?;
    let text = std::str::from_utf8(&head[..end]).ok()?;
    let disposition = text.split("\r\n").find_map(|line| {
        let (name, value) = line.split_once(':')?;
        name.trim().eq_ignore_ascii_case("content-disposition").then_some(value)
    })?;
    let is_field = parameter(disposition, "name") == Some(field) && parameter(disposition, "filename").is_none();
    let start = part.start + line + 2 + end + 4;
    (is_field && start <= part.end).then_some(start..part.end)
}

fn in_pairs(field: &str, piece: Piece<'_>) -> Vec<Range<usize>> {
    let bytes = piece.bytes;
    let mut found = Vec::new();
    let mut start = match piece.at {
        0 => 0,
        _ => bytes.iter().position(|byte| *byte == b'&').map_or(bytes.len(), |at| at + 1),
    };
    while start < bytes.len() {
        let end = bytes[start..].iter().position(|byte| *byte == b'&').map(|at| start + at);
        // What the piece cuts off is not known to its end.
        let Some(end) = end.or(piece.last.then_some(bytes.len())) else { break };
        let pair = &bytes[start..end];
        if let Some(equals) = pair.iter().position(|byte| *byte == b'=') {
            let name = url::form_urlencoded::parse(&pair[..equals]).next();
            if name.is_some_and(|(name, _)| name == field) && equals + 1 < pair.len() {
                found.push(start + equals + 1..end);
            }
        }
        start = end + 1;
    }
    found
}

/// Strings that are members of the outermost object.
fn in_object(field: &str, piece: Piece<'_>) -> Vec<Range<usize>> {
    if piece.at > 0 {
        return Vec::new();
    }
    let bytes = piece.bytes;
    let (mut found, mut depth, mut at) = (Vec::new(), 0_usize, 0);
    // Whether the member that is being read is the field.
    let mut named = false;
    while at < bytes.len() {
        match bytes[at] {
            b'{' | b'[' => depth += 1,
            b'}' | b']' => depth = depth.saturating_sub(1),
            b',' if depth == 1 => named = false,
            b'"' => {
                let Some(end) = end_of_string(bytes, at + 1) else { break };
                let after = bytes[end + 1..].iter().find(|byte| !byte.is_ascii_whitespace());
                match after {
                    Some(b':') if depth == 1 => named = &bytes[at + 1..end] == field.as_bytes(),
                    _ if depth == 1 && named => found.push(at + 1..end),
                    _ => {}
                }
                at = end;
            }
            _ => {}
        }
        at += 1;
    }
    found
}

fn end_of_string(bytes: &[u8], from: usize) -> Option<usize> {
    let mut at = from;
    loop {
        match bytes.get(at)? {
            b'\\' => at += 2,
            b'"' => return Some(at),
            _ => at += 1,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FORM: &str = "multipart/form-data; boundary=XX";

    fn whole(bytes: &[u8]) -> [Piece<'_>; 1] {
        [Piece { at: 0, bytes, last: true }]
    }

    fn values(content_type: &str, field: &str, body: &str) -> Vec<String> {
        let found = find(content_type, field, &whole(body.as_bytes()));
        found.into_iter().map(|range| body[range.start as usize..range.end as usize].to_owned()).collect()
    }

    fn form(parts: &[(&str, &str)]) -> String {
        let parts = parts
            .iter()
            .map(|(more, value)| format!("--XX\r\nContent-Disposition: form-data; {more}\r\n\r\n{value}\r\n"));
        parts.collect::<String>() + "--XX--\r\n"
    }

    #[test]
    fn a_field_of_a_form_is_found_anywhere_but_in_a_file() {
        let file = ("name=\"token\"; filename=\"token\"\r\nContent-Type: text/plain", "--XXX\r\n\r\nname=\"token\"");
        for parts in [
            vec![("name=\"token\"", "abc"), file],
            vec![file, ("name=\"token\"", "abc")],
            vec![("name=\"other\"", "token"), ("NAME=token", "abc"), file],
            vec![("name=\"a\\\";name=token\"", "x"), ("x=\"y;z\"; name=\"token\"", "abc")],
        ] {
            assert_eq!(values(FORM, "token", &form(&parts)), ["abc"], "{parts:?}");
        }
        assert_eq!(values(FORM, "token", &form(&[file])), [""; 0]);
        assert_eq!(values(FORM, "token", &form(&[("name=\"token\"", "")])), [""]);
        let quoted = "Multipart/Form-Data; charset=x; boundary=\"XX\"";
        assert_eq!(values(quoted, "token", &form(&[("name=\"token\"", "abc")])), ["abc"]);
        assert_eq!(values("multipart/form-data", "token", &form(&[("name=\"token\"", "abc")])), [""; 0]);
    }

    #[test]
    fn find_tells_a_bounded_number_of_places() {
        let pair = "application/x-www-form-urlencoded";
        let many = PLACES_MAX + 1;
        assert_eq!(values(pair, "t", &"t=x&".repeat(many)).len(), PLACES_MAX);
        assert_eq!(values(FORM, "t", &form(&vec![("name=\"t\"", "x"); many])).len(), PLACES_MAX);
        assert_eq!(values("application/json", "t", &format!("{{{}}}", "\"t\":\"x\",".repeat(many))).len(), PLACES_MAX);
    }

    #[test]
    fn a_pair_is_found_by_its_name_as_it_is_meant() {
        let form = "application/x-www-form-urlencoded";
        assert_eq!(values(form, "_token", "a=b&_token=x%2B&c=d"), ["x%2B"]);
        assert_eq!(values(form, "_token", "%5ftoken=x"), ["x"]);
        assert_eq!(values(form, "_token", "my_token=x&_tokens=y&z=_token=1"), [""; 0]);
    }

    #[test]
    fn a_member_of_the_outermost_object_is_found_and_none_within() {
        let json = "application/json; charset=utf-8";
        let body = r#"{"a":{"token":"no"},"b":["token","no"],"c":"token","token" : "a\"b","d":{"token":1}}"#;
        assert_eq!(values(json, "token", body), ["a\\\"b"]);
        assert_eq!(values(json, "token", r#"{"token":7,"x":"y"}"#), [""; 0]);
        assert_eq!(Form::Json.write("a\"b"), b"a\\\"b");
        assert_eq!(Form::Urlencoded.write("a+\\ b"), b"a%2B%5C+b");
    }

    /// What is found in a piece is what is found in the whole: whatever is cut off is left alone.
    #[test]
    fn pieces_never_show_a_place_that_the_whole_has_not() {
        let file = ("name=\"f\"; filename=\"f\"", "file\r\n--X\r\ntoken=1&token=2");
        let multipart = form(&[("name=\"token\"", "abc"), file, ("name=\"token\"", "def")]);
        let cases = [
            (FORM, multipart.as_str()),
            ("application/x-www-form-urlencoded", "token=ab&x=y&token=cd&token=ef"),
            ("application/json", r#"{"token":"ab","x":"token\"","token":"cd"}"#),
        ];
        for (content_type, body) in cases {
            let all = find(content_type, "token", &whole(body.as_bytes()));
            assert!(all.len() >= 2, "{content_type}");
            for front in 0..=body.len() {
                for back in front..=body.len() {
                    let bytes = body.as_bytes();
                    let pieces = [
                        Piece { at: 0, bytes: &bytes[..front], last: front == body.len() },
                        Piece { at: back as u64, bytes: &bytes[back..], last: true },
                    ];
                    let pieces = if back == 0 || front == body.len() { &pieces[..1] } else { &pieces };
                    let found = find(content_type, "token", pieces);
                    assert!(found.iter().all(|range| all.contains(range)), "{content_type} {front} {back}: {found:?}");
                }
            }
        }
    }

    #[test]
    fn no_bytes_make_it_panic() {
        let bodies = [form(&[("name=\"token\"", "abc")]), "token=a&b=%".into(), r#"{"token":"a\\"}"#.into()];
        for body in bodies {
            for at in 0..body.len() {
                for byte in [0, b'"', b'\\', b'\r', b'-', b';', b'=', b'&', 0xff] {
                    let mut changed = body.clone().into_bytes();
                    changed[at] = byte;
                    for content_type in [FORM, "application/x-www-form-urlencoded", "application/json"] {
                        let _ = find(content_type, "token", &whole(&changed));
                        let _ = find(content_type, "token", &whole(&changed[..at]));
                    }
                }
            }
        }
        for header in ["a;b", "a;b=\"", "a;=", "a;b=\"\\\"", ";;;", "a; boundary=\"\""] {
            let _ = (parameter(header, "b"), find(&format!("multipart/form-data{header}"), "t", &whole(b"--")));
        }
    }
}
