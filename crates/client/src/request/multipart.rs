//! `multipart/form-data` (RFC 7578) as curl makes it: [`Part`] and its layout.
//!
//! ```text
//! --boundary CRLF
//! Content-Disposition: form-data; name="file"; filename="a.jpg" CRLF
//! Content-Type: image/jpeg CRLF
//! CRLF
//! …bytes… CRLF
//! --boundary-- CRLF
//! ```

use crate::request::plaintext::Plaintext;
use crate::request::source::{Content, Segment, SourceError};
use hoop_http::Rng;
use std::path::Path;

/// One field of a form.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Part {
    /// The field's name.
    pub name: String,
    /// Its value.
    pub content: Content,
    /// Its file name; `None` makes it a text field.
    pub file_name: Option<String>,
    /// Its media type; `None`: none is written.
    pub content_type: Option<String>,
}

impl Part {
    /// A text field.
    pub fn text(name: impl Into<String>, value: impl Into<String>) -> Self {
        let content = Content::Bytes(value.into().into());
        Self { name: name.into(), content, file_name: None, content_type: None }
    }

    /// A file under its own name, with the media type that its ending says.
    pub fn file(name: impl Into<String>, path: impl AsRef<Path>) -> Self {
        let path = path.as_ref();
        let file_name = path.file_name().map_or_else(String::new, |name| name.to_string_lossy().into_owned());
        let content_type = Some(content_type_of(&file_name).to_owned());
        Self { name: name.into(), content: Content::File(path.to_owned()), file_name: Some(file_name), content_type }
    }

    fn head(&self, boundary: &str) -> String {
        let mut head = format!("--{boundary}\r\nContent-Disposition: form-data; name=\"{}\"", escaped(&self.name));
        if let Some(file_name) = &self.file_name {
            head += &format!("; filename=\"{}\"", escaped(file_name));
        }
        if let Some(content_type) = &self.content_type {
            head += &format!("\r\nContent-Type: {content_type}");
        }
        head + "\r\n\r\n"
    }
}

/// Opens the parts' files and lays everything out; returns the body and its `Content-Type`.
///
/// # Errors
/// If a file cannot be opened or measured.
pub(crate) fn lay_out(parts: &[Part], rng: Rng) -> Result<(Plaintext, String), SourceError> {
    let boundary = boundary(rng);
    let mut body = Plaintext::default();
    for part in parts {
        body.push(Segment::Bytes(part.head(&boundary).into()));
        body.push(Segment::open(&part.content)?);
        body.push(Segment::Bytes("\r\n".into()));
    }
    body.push(Segment::Bytes(format!("--{boundary}--\r\n").into()));
    Ok((body, format!("multipart/form-data; boundary={boundary}")))
}

/// 24 dashes and 16 random bytes in hexadecimal: that no file holds it by chance is all that RFC 2046 §5.1.1 asks.
fn boundary(rng: Rng) -> String {
    format!("{:->24}{}", "", hex::encode(rng.bytes::<16>()))
}

/// As browsers and curl write names: only what would end the parameter is percent-encoded.
fn escaped(name: &str) -> String {
    name.replace('"', "%22").replace('\r', "%0D").replace('\n', "%0A")
}

/// The media type that a file name's ending says; curl's table, and what phones and scanners make.
pub fn content_type_of(file_name: &str) -> &'static str {
    const TABLE: &[(&str, &str)] = &[
        ("gif", "image/gif"),
        ("jpg", "image/jpeg"),
        ("jpeg", "image/jpeg"),
        ("png", "image/png"),
        ("svg", "image/svg+xml"),
        ("webp", "image/webp"),
        ("heic", "image/heic"),
        ("mp4", "video/mp4"),
        ("mov", "video/quicktime"),
        ("txt", "text/plain"),
        ("htm", "text/html"),
        ("html", "text/html"),
        ("pdf", "application/pdf"),
        ("xml", "application/xml"),
        ("json", "application/json"),
    ];
    let ending = file_name.rsplit_once('.').map_or("", |(_, ending)| ending);
    let known = TABLE.iter().find(|(known, _)| known.eq_ignore_ascii_case(ending));
    known.map_or("application/octet-stream", |(_, media_type)| media_type)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::request::plaintext::tests::read_all;

    /// A parser of its own: what stands between the boundaries, as (head, value).
    fn parse<'a>(body: &'a [u8], boundary: &str) -> Vec<(&'a str, &'a [u8])> {
        let find = |haystack: &[u8], needle: &[u8]| haystack.windows(needle.len()).position(|window| window == needle);
        let first = format!("--{boundary}\r\n");
        let mut rest = body.strip_prefix(first.as_bytes()).expect("begins with the boundary");
        let mut parts = Vec::new();
        loop {
            let head_end = find(rest, b"\r\n\r\n").expect("a head ends");
            let head = std::str::from_utf8(&rest[..head_end]).unwrap();
            let value = &rest[head_end + 4..];
            let end = find(value, format!("\r\n--{boundary}").as_bytes()).expect("a part ends");
            parts.push((head, &value[..end]));
            let after = &value[end + 4 + boundary.len()..];
            match after.strip_prefix(b"\r\n") {
                Some(next) => rest = next,
                None => {
                    assert_eq!(after, b"--\r\n", "the body ends after the last boundary");
                    return parts;
                }
            }
        }
    }

    #[test]
    fn a_parser_finds_every_part_as_it_went_in() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("holiday \"1\".JPG");
        std::fs::write(&path, b"\r\n--bytes\0").unwrap();
        let parts = [
            Part::text("act", "bput"),
            Part::text("empty", ""),
            Part::file("f", &path),
            Part { content_type: Some("text/x".into()), ..Part::text("note", "ü") },
        ];
        let (body, content_type) = lay_out(&parts, Rng).unwrap();
        let boundary = content_type.strip_prefix("multipart/form-data; boundary=").unwrap();
        let body = read_all(&body);
        assert_eq!(
            parse(&body, boundary),
            [
                ("Content-Disposition: form-data; name=\"act\"", &b"bput"[..]),
                ("Content-Disposition: form-data; name=\"empty\"", b""),
                (
                    "Content-Disposition: form-data; name=\"f\"; filename=\"holiday %221%22.JPG\"\r\n\
                     Content-Type: image/jpeg",
                    b"\r\n--bytes\0"
                ),
                ("Content-Disposition: form-data; name=\"note\"\r\nContent-Type: text/x", "ü".as_bytes()),
            ]
        );
    }

    #[test]
    fn two_bodies_never_share_a_boundary() {
        assert_ne!(boundary(Rng), boundary(Rng));
        assert!(boundary(Rng).len() <= 70, "RFC 2046 §5.1.1");
    }

    #[test]
    fn an_unknown_ending_is_bytes() {
        assert_eq!(content_type_of("a.JPEG"), "image/jpeg");
        assert_eq!(content_type_of("a.tar.gz"), "application/octet-stream");
        assert_eq!(content_type_of("noending"), "application/octet-stream");
    }
}
