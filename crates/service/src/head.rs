//! The sealed request's head: [`RequestHead`], parsed once and checked, so that writing it again cannot do harm.
//!
//! Promises: methods that upload, a target in origin form, a body of exactly `Content-Length` octets, no field that
//! belongs to a hop, to a proxy, or to the session; and no octet that could end a line.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use hoop_http::{Code, Problem};

/// The most fields that a sealed head may have (`docs/protocol.md` §4).
pub const FIELDS_MAX: usize = 100;

/// The longest target: as much as common servers take in a request line.
const TARGET_MAX: usize = 8 * 1024;

const METHODS: [&str; 3] = ["POST", "PUT", "PATCH"];

/// Fields that never go on to the application as they came: hop-by-hop ones (RFC 9110 §7.6.1), those that say who asks
/// and from where, which is not the sealed head's to say, and those that the replay writes itself.
const DROPPED: [&str; 21] = [
    "connection",
    "keep-alive",
    "proxy-connection",
    "proxy-authenticate",
    "proxy-authorization",
    "te",
    "trailer",
    "upgrade",
    "http2-settings",
    "expect",
    "forwarded",
    "x-real-ip",
    "cookie",
    "cookie2",
    "authorization",
    "host",
    "content-length",
    "transfer-encoding",
    "accept-encoding",
    "idempotency-key",
    "hoop-token",
];

/// How fields begin by which a web server in front tells the application what it has found out: who asks, from where, for what.
/// Such a server drops them from what comes in; a sealed head never passed it, so they are dropped here. `docs/services.md` says how
/// to add one's own.
const OF_THE_FRONT: [&str; 27] = [
    "x-forwarded-",
    "remote-",
    "x-remote-",
    "x-auth-request-",
    "x-authenticated-",
    "x-authentik-",
    "x-webauth-",
    "x-idp-",
    "x-token-",
    "x-original-",
    "x-rewrite-",
    "x-http-method",
    "x-method-override",
    "x-client-",
    "x-cluster-client-",
    "x-real-",
    "true-client-",
    "client-cert",
    "ssl-client-",
    "x-ssl-",
    "x-accel-",
    "x-sendfile",
    "x-envoy-",
    "x-amzn-",
    "x-goog-",
    "x-ms-client-principal",
    "cf-",
];

/// Whether a field of a sealed head stays behind. So does one whose name has more than letters, digits and hyphens: behind CGI and
/// WSGI, `X_Forwarded_For` and `X-Forwarded-For` are the same variable.
fn stays_behind(name: &str) -> bool {
    DROPPED.contains(&name)
        || OF_THE_FRONT.iter().any(|start| name.starts_with(start))
        || !name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
}

/// A checked request head.
#[derive(Clone, PartialEq, Eq)]
pub struct RequestHead {
    /// `POST`, `PUT` or `PATCH`.
    pub method: String,
    /// Path and query; begins with `/`.
    pub target: String,
    /// The fields that go on to the application, in order.
    pub fields: Vec<(String, Vec<u8>)>,
    /// T.
    pub token: Vec<u8>,
    /// The length of the head with its empty line: where the body begins in the plaintext.
    pub head_len: usize,
    /// The length of the body.
    pub body_len: u64,
}

impl RequestHead {
    /// Reads the head at the start of record 0's plaintext; the whole plaintext has `plaintext_len` octets.
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
        let mut kept = Vec::new();
        let (mut length, mut token) = (None, None);
        for field in request.headers.iter() {
            let name = field.name.to_ascii_lowercase();
            match name.as_str() {
                "transfer-encoding" => return Err(invalid("it has `Transfer-Encoding`").field("Transfer-Encoding")),
                "content-length" => once(&mut length, field, "Content-Length")?,
                "hoop-token" => once(&mut token, field, "Hoop-Token")?,
                _ => {}
            }
            if !stays_behind(&name) {
                kept.push((field.name.to_owned(), field.value.to_vec()));
            }
        }
        // A field that `Connection` names belongs to the hop, too.
        let named = named_by_connection(request.headers);
        kept.retain(|(name, _)| !named.iter().any(|other| other.eq_ignore_ascii_case(name)));
        let body_len = check_length(length, plaintext_len, head_len)?;
        let token = token.ok_or_else(|| no_token("the sealed request has no `Hoop-Token`"))?;
        let token = URL_SAFE_NO_PAD.decode(token).map_err(|_| no_token("it is not base64url without padding"))?;
        Ok(Self { method: method.to_owned(), target: target.to_owned(), fields: kept, token, head_len, body_len })
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

/// Whether a text is a target in origin form (RFC 9112 §3.2.1) that can be written into a request line, and whose path is written
/// in its one plain way: otherwise the sender would choose between the rules of routes by the spelling.
pub fn is_target(text: &str) -> bool {
    text.starts_with('/')
        && text.len() <= TARGET_MAX
        && text.bytes().all(|byte| byte.is_ascii_graphic() && byte != b'#')
        && is_plain(text.split_once('?').map_or(text, |(path, _)| path))
}

/// No empty or dot segments, no backslash, and nothing percent-encoded that need not be (RFC 3986 §6.2.2).
fn is_plain(path: &str) -> bool {
    let segments_are_plain = path.split('/').skip(1).all(|segment| !matches!(segment, "." | ".."));
    // Digits alone: `from_str_radix` would take `+5` for five.
    let octet =
        |hex: &str| hex.bytes().all(|digit| digit.is_ascii_hexdigit()).then(|| u8::from_str_radix(hex, 16).ok())?;
    let encoded = path.split('%').skip(1).map(|rest| rest.get(..2).and_then(octet));
    let needs_encoding = |octet: u8| !octet.is_ascii_alphanumeric() && !b"-._~".contains(&octet);
    let mut encoded_are_plain = encoded.map(|octet| octet.is_some_and(needs_encoding));
    segments_are_plain && !path.contains("//") && !path.contains('\\') && encoded_are_plain.all(|plain| plain)
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
        return Err(invalid("the target must be a path that begins with `/`, in its plain spelling").field("target"));
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
            let detail = format!("`Content-Length` says {announced}, and {there} octets follow the head");
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
    fn what_belongs_to_a_hop_a_proxy_or_the_session_is_dropped_and_the_rest_stays_as_it_was() {
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
        assert_eq!(names, ["X-Custom", "x-custom", "PW", "Origin"]);
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
    fn a_path_has_one_spelling() {
        for plain in ["/", "/a/b", "/a/", "/a%20b", "/a%2Fb", "/~a/b.c?x=//../%61", "/%C3%A9", "/a...b"] {
            assert!(is_target(plain), "{plain}");
        }
        for other in [
            "",
            "a",
            "//a",
            "/a//b",
            "/a/../b",
            "/a/.",
            "/..",
            "/%61",
            "/a%2e%2e/b",
            "/a%",
            "/a%2",
            "/a%zz",
            "/a%+5",
            "/a\\b",
        ] {
            assert!(!is_target(other), "{other}");
        }
    }

    #[test]
    fn no_octets_make_it_panic() {
        let whole = b"POST /a HTTP/1.1\r\nContent-Length: 0\r\nHoop-Token: AAAA\r\n\r\n";
        for at in 0..whole.len() {
            for octet in [0, b'\r', b'\n', b' ', b':', 0x7f, 0xff] {
                let mut changed = *whole;
                changed[at] = octet;
                let _ = RequestHead::parse(&changed, changed.len() as u64);
                let _ = RequestHead::parse(&changed[..at], at as u64);
            }
        }
    }
}
