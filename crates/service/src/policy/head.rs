//! The sealed request's head: [`RequestHead`], parsed once and checked, so that writing it again cannot do harm.
//!
//! Promises: the method is one that uploads, the target is in origin form, and the body has exactly `Content-Length`
//! bytes. No field belongs to a hop, a proxy or the session, and no byte could end a line. [`crate::policy::fields`]
//! decides, with the route's settings, which of the other fields the application gets.

use crate::policy::fields::{Fate, fate};
use crate::policy::paths::is_target;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use hoop_http::{Code, Problem};

/// The most fields that a sealed head may have (`docs/protocol.md` §4).
pub const FIELDS_MAX: usize = 100;

const METHODS: [&str; 3] = ["POST", "PUT", "PATCH"];

/// A checked request head.
#[derive(Clone, PartialEq, Eq)]
pub struct RequestHead {
    /// `POST`, `PUT` or `PATCH`.
    pub method: String,
    /// Path and query; begins with `/`.
    pub target: String,
    /// The fields that may go on to the application, in order.
    pub fields: Vec<(String, Vec<u8>)>,
    /// The names of those by which only a web server in front may speak.
    pub forged: Vec<String>,
    /// T.
    pub token: Vec<u8>,
    /// The length of the head with its empty line: where the body begins in the plaintext.
    pub head_len: usize,
    /// The length of the body.
    pub body_len: u64,
}

impl RequestHead {
    /// Reads the head at the start of record 0's plaintext; the whole plaintext has `plaintext_len` bytes.
    ///
    /// # Errors
    /// `head-invalid`, `length-mismatch`, or `token-invalid` if there is none.
    pub fn parse(record: &[u8], plaintext_len: u64) -> Result<Self, Problem> {
        let mut fields = [httparse::EMPTY_HEADER; FIELDS_MAX];
        let mut request = httparse::Request::new(&mut fields);
        let head_len = match request.parse(record) {
            Ok(httparse::Status::Complete(len)) => len,
            Ok(httparse::Status::Partial) => return Err(invalid("it does not end within record 0")),
            Err(httparse::Error::TooManyHeaders) => {
                return Err(invalid(format_args!("it has more than {FIELDS_MAX} fields")));
            }
            Err(error) => return Err(invalid(error)),
        };
        let (method, target) = (request.method.unwrap_or_default(), request.path.unwrap_or_default());
        check_line(method, target, request.version)?;
        let (mut kept, mut forged) = (Vec::new(), Vec::new());
        let (mut length, mut token) = (None, None);
        for field in request.headers.iter() {
            let name = field.name.to_ascii_lowercase();
            match name.as_str() {
                "transfer-encoding" => return Err(invalid("it has `Transfer-Encoding`").field("Transfer-Encoding")),
                "content-length" => once(&mut length, field, "Content-Length")?,
                "hoop-token" => once(&mut token, field, "Hoop-Token")?,
                _ => {}
            }
            match fate(&name) {
                Fate::Goes | Fate::Unlisted | Fate::Dropped => kept.push((field.name.to_owned(), field.value.to_vec())),
                Fate::OfTheFront => forged.push(field.name.to_owned()),
                Fate::Ours => {}
            }
        }
        // A field that `Connection` names belongs to the hop, too.
        let named = named_by_connection(request.headers);
        kept.retain(|(name, _)| !named.iter().any(|other| other.eq_ignore_ascii_case(name)));
        let body_len = check_length(length, plaintext_len, head_len)?;
        let token = token.ok_or_else(|| no_token("the sealed request has no `Hoop-Token`"))?;
        let token = URL_SAFE_NO_PAD.decode(token).map_err(|_| no_token("it is not base64url without padding"))?;
        let (method, target) = (method.to_owned(), target.to_owned());
        Ok(Self { method, target, fields: kept, forged, token, head_len, body_len })
    }

    /// The path, without the query.
    pub fn path(&self) -> &str {
        self.target.split_once('?').map_or(&self.target, |(path, _)| path)
    }
}

impl std::fmt::Debug for RequestHead {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RequestHead").field("method", &self.method).field("path", &self.path()).finish_non_exhaustive()
    }
}

/// Whether a method may be offloaded.
pub fn is_method(text: &str) -> bool {
    METHODS.contains(&text)
}

fn check_line(method: &str, target: &str, version: Option<u8>) -> Result<(), Problem> {
    if !is_method(method) {
        return Err(invalid("the method must be POST, PUT or PATCH").field("method"));
    }
    if !is_target(target) {
        return Err(invalid("the target must be a path that begins with `/` and leads to one place for all readers")
            .field("target"));
    }
    match version {
        Some(1) => Ok(()),
        _ => Err(invalid("the version must be HTTP/1.1").field("version")),
    }
}

fn once<'a>(slot: &mut Option<&'a [u8]>, field: &httparse::Header<'a>, name: &str) -> Result<(), Problem> {
    match slot.replace(field.value) {
        None => Ok(()),
        Some(_) => Err(invalid(format_args!("`{name}` stands there more than once")).field(name)),
    }
}

fn check_length(length: Option<&[u8]>, plaintext_len: u64, head_len: usize) -> Result<u64, Problem> {
    let length = length.ok_or_else(|| invalid("`Content-Length` is missing").field("Content-Length"))?;
    let digits = std::str::from_utf8(length).ok().filter(|text| text.bytes().all(|byte| byte.is_ascii_digit()));
    let announced: u64 = digits
        .and_then(|text| text.parse().ok())
        .ok_or_else(|| invalid("`Content-Length` is no number").field("Content-Length"))?;
    let there = plaintext_len.saturating_sub(head_len as u64);
    match announced == there {
        true => Ok(there),
        false => {
            let detail = format!("`Content-Length` says {announced}, and {there} bytes follow the head");
            Err(Problem::new(Code::LengthMismatch, detail).field("Content-Length"))
        }
    }
}

fn named_by_connection(fields: &[httparse::Header<'_>]) -> Vec<String> {
    let values = fields.iter().filter(|field| field.name.eq_ignore_ascii_case("connection")).map(|field| field.value);
    let names = values.flat_map(|value| value.split(|byte| *byte == b','));
    names.map(|name| String::from_utf8_lossy(name).trim().to_owned()).collect()
}

fn invalid(detail: impl std::fmt::Display) -> Problem {
    Problem::new(Code::HeadInvalid, detail)
}

fn no_token(detail: &str) -> Problem {
    Problem::new(Code::TokenInvalid, detail).field("Hoop-Token")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(head: &str, body: u64) -> Result<RequestHead, Problem> {
        RequestHead::parse(head.as_bytes(), head.len() as u64 + body)
    }

    fn code(head: &str, body: u64) -> (Code, Option<String>) {
        let problem = parse(head, body).unwrap_err();
        (problem.code, problem.field)
    }

    #[test]
    fn fields_of_a_hop_a_proxy_or_the_session_are_taken_out() {
        let head = parse(
            "PUT /a/b?c=d HTTP/1.1\r\nHost: evil.example\r\nX-Custom: One\r\nCookie: a=1\r\nauthorization: Basic x\r\n\
             Connection: close, X-Hop\r\nX-Hop: 1\r\nForwarded: for=1\r\nX-Forwarded-For: 1.2.3.4\r\nX-Real-IP: 1\r\n\
             X-Forwarded-Anything: 1\r\nContent-Length: 3\r\nHoop-Token: AAAA\r\nx-custom: Two \r\nTE: trailers\r\n\
             Remote-User: admin\r\nX_Forwarded_For: 1.2.3.4\r\nX-Original-URL: /admin\r\nX-Client-IP: 1.2.3.4\r\n\
             X-HTTP-Method-Override: DELETE\r\nContent_Length: 99\r\nPW: secret\r\n\
             Origin: https://photos.example\r\nExpect: 100-continue\r\nIdempotency-Key: 1\r\n\r\n",
            3,
        )
        .unwrap();
        let names: Vec<_> = head.fields.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(names, ["X-Custom", "x-custom", "Remote-User", "X-Client-IP", "PW", "Origin"]);
        let forged =
            ["Forwarded", "X-Forwarded-For", "X-Real-IP", "X-Forwarded-Anything", "X_Forwarded_For", "X-Original-URL"];
        assert_eq!(head.forged, [&forged[..], &["X-HTTP-Method-Override", "Content_Length"]].concat());
        assert_eq!((head.method.as_str(), head.target.as_str(), head.path()), ("PUT", "/a/b?c=d", "/a/b"));
        assert_eq!((head.body_len, &head.token[..]), (3, &[0, 0, 0][..]));
    }

    #[test]
    fn a_head_that_means_something_else_to_the_next_reader_is_refused() {
        let head = |line: &str, fields: &str| format!("{line}\r\n{fields}Hoop-Token: AAAA\r\n\r\n");
        let field = |name: &str| Some(name.to_owned());
        for (line, fields, expected) in [
            ("GET / HTTP/1.1", "Content-Length: 0\r\n", (Code::HeadInvalid, field("method"))),
            ("CONNECT a.example:443 HTTP/1.1", "Content-Length: 0\r\n", (Code::HeadInvalid, field("method"))),
            ("POST http://a.example/ HTTP/1.1", "Content-Length: 0\r\n", (Code::HeadInvalid, field("target"))),
            ("POST * HTTP/1.1", "Content-Length: 0\r\n", (Code::HeadInvalid, field("target"))),
            ("POST /#x HTTP/1.1", "Content-Length: 0\r\n", (Code::HeadInvalid, field("target"))),
            ("POST / HTTP/1.0", "Content-Length: 0\r\n", (Code::HeadInvalid, field("version"))),
            ("POST / HTTP/1.1", "Transfer-Encoding: chunked\r\n", (Code::HeadInvalid, field("Transfer-Encoding"))),
            ("POST / HTTP/1.1", "", (Code::HeadInvalid, field("Content-Length"))),
            ("POST / HTTP/1.1", "Content-Length: 1\r\n", (Code::LengthMismatch, field("Content-Length"))),
            ("POST / HTTP/1.1", "Content-Length: +0\r\n", (Code::HeadInvalid, field("Content-Length"))),
            (
                "POST / HTTP/1.1",
                "Content-Length: 0\r\nContent-Length: 0\r\n",
                (Code::HeadInvalid, field("Content-Length")),
            ),
            ("POST / HTTP/1.1", "Content-Length: 0\r\nX: a\r\n folded\r\n", (Code::HeadInvalid, None)),
            ("POST / HTTP/1.1", "Content-Length : 0\r\n", (Code::HeadInvalid, None)),
            ("POST / HTTP/1.1", "Content-Length: 0\r\nX: a\rb\r\n", (Code::HeadInvalid, None)),
            ("POST / HTTP/1.1", "Content-Length: 0\r\nX: a\0b\r\n", (Code::HeadInvalid, None)),
            ("POST /  HTTP/1.1", "Content-Length: 0\r\n", (Code::HeadInvalid, None)),
        ] {
            assert_eq!(code(&head(line, fields), 0), expected, "{line:?} {fields:?}");
        }
        assert_eq!(code("POST / HTTP/1.1\r\nContent-Length: 0\r\n\r\n", 0), (Code::TokenInvalid, field("Hoop-Token")));
        assert_eq!(code("POST / HTTP/1.1\r\nContent-Length: 0\r\n", 0).0, Code::HeadInvalid);
        let many = "X: 1\r\n".repeat(FIELDS_MAX);
        assert_eq!(code(&head("POST / HTTP/1.1", &many), 0).0, Code::HeadInvalid);
    }

    #[test]
    fn no_bytes_make_it_panic() {
        let whole = b"POST /a HTTP/1.1\r\nContent-Length: 0\r\nHoop-Token: AAAA\r\n\r\n";
        for at in 0..whole.len() {
            for byte in [0, b'\r', b'\n', b' ', b':', 0x7f, 0xff] {
                let mut changed = *whole;
                changed[at] = byte;
                let _ = RequestHead::parse(&changed, changed.len() as u64);
                let _ = RequestHead::parse(&changed[..at], at as u64);
            }
        }
    }
}
