//! What a request's head has to be before anybody acts on it: [`inspect`].
//!
//! Two programs that read one head differently can be played against each other (request smuggling): one takes for a body what the
//! other takes for the next request. So there is one reading here, the strict one of RFC 9112, and whatever could be read in another way is
//! refused with a reason: two lengths, a length beside a coding, a coding other than `chunked`, folded lines, lines that end without
//! CR, two `Host` fields, a target that names another host than `Host` does; and a `Connection` that names a field which is not one hop's own, since whoever
//! passes a request on drops what `Connection` names (RFC 9110 §7.6.1): a client would choose which fields of a proxy reach the application.
//!
//! Request targets are the exception. Browsers and curl send `<`, `"`, a backtick or raw UTF-8 in them, every application server takes these,
//! and the URI type behind us does not. They are percent-encoded, which means the same (RFC 3986 §2.1).

use crate::message::hop_by_hop::HOP_BY_HOP;
use crate::message::problem::{Code, Problem};
use std::fmt::Write as _;

/// The longest target, encoded: what `http::Uri` takes.
const TARGET_MAX: usize = u16::MAX as usize - 1;

/// What `Connection` may name besides the fields that concern one hop alone: what is said of the connection itself, and nothing. Nothing else is sent by browsers, curl or
/// proxies.
const OPTIONS: [&str; 3] = ["close", "trailers", ""];

/// A head that may be acted on.
#[derive(Debug)]
pub(crate) struct Head {
    /// The head as it is passed on, if that is not as it came.
    pub rewritten: Option<Vec<u8>>,
    /// What follows it.
    pub body: Framing,
    /// Its sender would go on in another protocol (RFC 9110 §7.8), and sends no body before that.
    pub upgrades: bool,
}

/// How long a body is (RFC 9112 §6.3).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Framing {
    /// So many bytes; mostly none.
    Length(u64),
    /// In chunks.
    Chunked,
}

/// Where a head ends, as far as it has come.
#[derive(PartialEq, Eq, Debug)]
pub(crate) enum Extent {
    /// With the first so many bytes.
    Ends(usize),
    /// Not yet.
    Open,
    /// It can be none.
    Never(&'static str),
}

/// Looks for the end of a head in what has come, of which the first `seen` bytes were looked at before.
pub(crate) fn extent(bytes: &[u8], seen: usize) -> Extent {
    let start = leading_lines(bytes);
    match bytes.get(start) {
        Some(b'\r' | b'\n') | None => {}
        Some(byte) if is_token(*byte) => {}
        Some(_) => return Extent::Never("it begins with no method; is it TLS?"),
    }
    for at in seen.saturating_sub(3).max(start)..bytes.len() {
        if bytes[at] != b'\n' {
            continue;
        }
        if at == 0 || bytes[at - 1] != b'\r' {
            return Extent::Never("a line ends without CR");
        }
        if at >= start + 3 && bytes[at - 3..at] == *b"\r\n\r" {
            return Extent::Ends(at + 1);
        }
    }
    Extent::Open
}

/// Empty lines before a request mean nothing (RFC 9112 §2.2).
fn leading_lines(bytes: &[u8]) -> usize {
    bytes.chunks_exact(2).take_while(|pair| pair == b"\r\n").count() * 2
}

/// Reads a head that is whole, with at most `fields_max` fields.
///
/// # Errors
/// `request-invalid` or `head-too-large`, with what is at fault.
pub(crate) fn inspect(bytes: &[u8], fields_max: usize) -> Result<Head, Problem> {
    let bytes = &bytes[leading_lines(bytes)..];
    let text = bytes.strip_suffix(b"\r\n\r\n").ok_or_else(|| wrong("the head is not whole"))?;
    let (line, fields) = match find(text, b"\r\n") {
        Some(at) => (&text[..at], &text[at + 2..]),
        None => (text, &b""[..]),
    };
    let Line { method, target, newer } = Line::parse(line)?;
    let fields = Fields::read(fields, fields_max)?;
    let body = fields.framing(newer)?;
    if newer && fields.host.is_none() {
        return Err(wrong("HTTP/1.1 demands a Host field").field("Host"));
    }
    let upgrades = fields.upgrades && body == Framing::Length(0);
    let rewritten = match rewrite(method, target, &fields)? {
        None => None,
        Some(Rewritten { target, host }) => {
            let mut head = Vec::with_capacity(bytes.len() + target.len());
            head.extend_from_slice(method);
            head.push(b' ');
            head.extend_from_slice(target.as_bytes());
            head.extend_from_slice(&line[line.len() - b" HTTP/1.1".len()..]);
            head.extend_from_slice(b"\r\n");
            if let Some(host) = host {
                head.extend_from_slice(format!("Host: {host}\r\n").as_bytes());
            }
            head.extend_from_slice(&bytes[line.len() + 2..]);
            Some(head)
        }
    };
    Ok(Head { rewritten, body, upgrades })
}

fn wrong(detail: impl std::fmt::Display) -> Problem {
    Problem::new(Code::RequestInvalid, detail)
}

fn find(text: &[u8], what: &[u8]) -> Option<usize> {
    text.windows(what.len()).position(|window| window == what)
}

/// RFC 9110 §5.6.2.
const fn is_token(byte: u8) -> bool {
    byte.is_ascii_alphanumeric()
        || matches!(byte, b'!' | b'#'..=b'\'' | b'*' | b'+' | b'-' | b'.' | b'^'..=b'`' | b'|' | b'~')
}

/// Without the spaces and tabs around it: nothing else counts as such (RFC 9110 §5.6.3).
fn trim(value: &[u8]) -> &[u8] {
    let is_space = |byte: &u8| matches!(byte, b' ' | b'\t');
    let start = value.iter().position(|byte| !is_space(byte)).unwrap_or(value.len());
    let end = value.iter().rposition(|byte| !is_space(byte)).map_or(start, |last| last + 1);
    &value[start..end]
}

/// The request line.
struct Line<'a> {
    method: &'a [u8],
    target: &'a [u8],
    /// HTTP/1.1, and not 1.0.
    newer: bool,
}

impl<'a> Line<'a> {
    fn parse(line: &'a [u8]) -> Result<Self, Problem> {
        let mut parts = line.split(|byte| *byte == b' ');
        let (Some(method), Some(target), Some(version), None) =
            (parts.next(), parts.next(), parts.next(), parts.next())
        else {
            return Err(wrong("the request line is no method, target and version with a space between"));
        };
        let newer = match version {
            b"HTTP/1.1" => true,
            b"HTTP/1.0" => false,
            _ => return Err(wrong("only HTTP/1.1 and 1.0 are spoken here")),
        };
        if method.is_empty() || !method.iter().all(|byte| is_token(*byte)) {
            return Err(wrong("the method is no token"));
        }
        match target.iter().all(|byte| *byte > b' ' && *byte != 0x7f) && !target.is_empty() {
            true => Ok(Self { method, target, newer }),
            false => Err(wrong("the request target has control characters")),
        }
    }
}

/// What of the fields decides where a message ends and for whom it is.
#[derive(Default)]
struct Fields<'a> {
    host: Option<&'a str>,
    length: Option<u64>,
    coding: Option<&'a [u8]>,
    upgrade: bool,
    /// `Connection: upgrade`.
    upgrades: bool,
}

impl<'a> Fields<'a> {
    fn read(fields: &'a [u8], fields_max: usize) -> Result<Self, Problem> {
        let mut read = Self::default();
        let mut count = 0;
        let mut rest = Some(fields).filter(|fields| !fields.is_empty());
        while let Some(left) = rest {
            let line;
            (line, rest) = match find(left, b"\r\n") {
                Some(at) => (&left[..at], Some(&left[at + 2..])),
                None => (left, None),
            };
            count += 1;
            if count > fields_max {
                let detail = format!("it has more than {fields_max} fields");
                return Err(Problem::new(Code::HeadTooLarge, detail));
            }
            read.field(line)?;
        }
        read.upgrades &= read.upgrade;
        Ok(read)
    }

    fn field(&mut self, line: &'a [u8]) -> Result<(), Problem> {
        if matches!(line.first(), Some(b' ' | b'\t')) {
            return Err(wrong("a field is folded over two lines"));
        }
        let colon = line.iter().position(|byte| *byte == b':').ok_or_else(|| wrong("a field has no colon"))?;
        let (name, value) = (&line[..colon], trim(&line[colon + 1..]));
        if name.is_empty() || !name.iter().all(|byte| is_token(*byte)) {
            return Err(wrong("a field's name is no token; is there a space before its colon?"));
        }
        if value.iter().any(|byte| (*byte < b' ' && *byte != b'\t') || *byte == 0x7f) {
            return Err(wrong("a field has control characters"));
        }
        let is = |other: &str| name.eq_ignore_ascii_case(other.as_bytes());
        if is("host") {
            let host = std::str::from_utf8(value).ok().filter(|host| is_host(host));
            let host = host.ok_or_else(|| wrong("Host is no name with a port").field("Host"))?;
            if self.host.replace(host).is_some() {
                return Err(wrong("two Host fields").field("Host"));
            }
        } else if is("content-length") {
            let digits = std::str::from_utf8(value).ok().filter(|text| (1..20).contains(&text.len()));
            let length = digits.filter(|text| text.bytes().all(|byte| byte.is_ascii_digit()));
            let length = length.and_then(|text| text.parse().ok());
            let length = length.ok_or_else(|| wrong("Content-Length is no number").field("Content-Length"))?;
            if self.length.replace(length).is_some() {
                return Err(wrong("two Content-Length fields").field("Content-Length"));
            }
        } else if is("transfer-encoding") {
            if self.coding.replace(value).is_some() {
                return Err(wrong("two Transfer-Encoding fields").field("Transfer-Encoding"));
            }
        } else if is("content_length") || is("transfer_encoding") {
            // Behind CGI and WSGI `_` and `-` are the same.
            return Err(wrong("a field that some would take for the body's length"));
        } else if is("upgrade") {
            self.upgrade = true;
        } else if is("connection") {
            for option in value.split(|byte| *byte == b',').map(trim) {
                let is = |other: &str| option.eq_ignore_ascii_case(other.as_bytes());
                if !OPTIONS.into_iter().chain(HOP_BY_HOP).any(is) {
                    return Err(wrong("Connection names a field that is not one hop's own").field("Connection"));
                }
                self.upgrades |= is("upgrade");
            }
        }
        Ok(())
    }

    fn framing(&self, newer: bool) -> Result<Framing, Problem> {
        let at_fault = |detail: &str| Err(wrong(detail).field("Transfer-Encoding"));
        match (self.coding, self.length) {
            (None, length) => Ok(Framing::Length(length.unwrap_or(0))),
            (Some(_), Some(_)) => at_fault("Transfer-Encoding beside Content-Length"),
            (Some(_), None) if !newer => at_fault("HTTP/1.0 knows no Transfer-Encoding"),
            (Some(coding), None) if coding.eq_ignore_ascii_case(b"chunked") => Ok(Framing::Chunked),
            (Some(_), None) => at_fault("the only Transfer-Encoding taken is chunked"),
        }
    }
}

/// A name or address, with a port or without; empty where there is none (RFC 9110 §7.2).
fn is_host(text: &str) -> bool {
    text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-._~%:[]".contains(&byte))
}

/// A target as it is passed on.
struct Rewritten {
    target: String,
    /// The field that was missing.
    host: Option<String>,
}

/// The target in origin form and in characters of a URI; `None`: it is that already.
fn rewrite(method: &[u8], target: &[u8], fields: &Fields<'_>) -> Result<Option<Rewritten>, Problem> {
    if target.contains(&b'#') {
        return Err(wrong("the request target has a fragment"));
    }
    let (target, host) = match target {
        b"*" => return Ok(None),
        // To be refused by whoever is asked.
        _ if method == b"CONNECT" => return Ok(None),
        [b'/', ..] => (target, None),
        _ => {
            let (rest, authority) = absolute(target)?;
            let agrees = fields.host.is_none_or(|host| without_default_port(target, host) == authority);
            if !agrees {
                return Err(wrong("the request target names another host than Host does").field("Host"));
            }
            (rest, Some(authority))
        }
    };
    let is_absolute = host.is_some();
    let mut encoded = String::with_capacity(target.len());
    if is_absolute && target.is_empty() {
        // RFC 9112 §3.2.4.
        encoded.push_str(if method == b"OPTIONS" { "*" } else { "/" });
    } else if is_absolute && target.starts_with(b"?") {
        encoded.push('/');
    }
    for byte in target {
        match needs_encoding(*byte) {
            true => drop(write!(encoded, "%{byte:02X}")),
            false => encoded.push(char::from(*byte)),
        }
    }
    if encoded.len() > TARGET_MAX {
        let detail = format!("the request target is longer than {TARGET_MAX} bytes");
        return Err(Problem::new(Code::HeadTooLarge, detail));
    }
    let is_as_it_came = !is_absolute && encoded.len() == target.len();
    Ok((!is_as_it_came).then(|| Rewritten { target: encoded, host: host.filter(|_| fields.host.is_none()) }))
}

/// What stands in no URI (RFC 3986 §2), and what is not ASCII.
const fn needs_encoding(byte: u8) -> bool {
    matches!(byte, b'"' | b'<' | b'>' | b'\\' | b'^' | b'`' | b'{' | b'|' | b'}') || !byte.is_ascii()
}

/// Path and query of a target in absolute form (RFC 9112 §3.2.2), and its authority without a port that goes without saying.
fn absolute(target: &[u8]) -> Result<(&[u8], String), Problem> {
    let form = || wrong("the request target is neither a path nor an http URL");
    let rest = ["http://", "https://"].iter().find_map(|scheme| {
        let (begins, rest) = target.split_at_checked(scheme.len())?;
        begins.eq_ignore_ascii_case(scheme.as_bytes()).then_some(rest)
    });
    let rest = rest.ok_or_else(form)?;
    let end = rest.iter().position(|byte| matches!(byte, b'/' | b'?')).unwrap_or(rest.len());
    let authority = std::str::from_utf8(&rest[..end]).map_err(|_| form())?;
    match !authority.is_empty() && is_host(authority) {
        true => Ok((&rest[end..], without_default_port(target, authority))),
        false => Err(form()),
    }
}

fn without_default_port(target: &[u8], authority: &str) -> String {
    let is_https = target.get(4).is_some_and(|byte| byte.eq_ignore_ascii_case(&b's'));
    let port = if is_https { ":443" } else { ":80" };
    authority.strip_suffix(port).unwrap_or(authority).to_ascii_lowercase()
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::Uri;

    fn head(text: &str) -> Result<Head, Problem> {
        inspect(text.as_bytes(), 256)
    }

    /// The first line that is passed on for this target.
    fn line(target: &[u8]) -> String {
        let whole = [b"GET ", target, b" HTTP/1.1\r\nHost: photos.example\r\n\r\n"].concat();
        let passed = inspect(&whole, 256).unwrap().rewritten.unwrap_or(whole);
        String::from_utf8(passed).unwrap().lines().next().unwrap().to_owned()
    }

    #[test]
    fn every_target_that_a_browser_sends_is_passed_on_and_means_the_same() {
        for byte in (0x21..=0xff_u8).filter(|byte| !matches!(byte, b'#' | 0x7f)) {
            for (before, after) in [("/a", "b"), ("/a?", "b"), ("/a?b=", "&c"), ("//", "/../x")] {
                let target = [before.as_bytes(), &[byte], after.as_bytes()].concat();
                let line = line(&target);
                let passed = line.strip_prefix("GET ").unwrap().strip_suffix(" HTTP/1.1").unwrap();
                let uri: Uri = passed.parse().unwrap_or_else(|error| panic!("{passed}: {error}"));
                assert_eq!(uri.to_string(), passed);
                let alike =
                    [&target[..], format!("{before}%{byte:02X}{after}").as_bytes()].contains(&passed.as_bytes());
                assert!(alike, "{passed}");
            }
        }
    }

    #[test]
    fn targets_in_absolute_form_become_paths_if_they_name_the_host() {
        for (target, expected) in [
            ("http://photos.example/a?b", Some("/a?b")),
            ("HTTP://Photos.Example:80/a", Some("/a")),
            ("http://photos.example", Some("/")),
            ("http://photos.example?q", Some("/?q")),
            ("http://photos.example/<", Some("/%3C")),
            ("https://photos.example:443/", Some("/")),
            ("http://photos.example:81/", None),
            ("http://evil.example/", None),
            ("http://photos.example@evil.example/", None),
            ("http://user@photos.example/", None),
            ("ftp://photos.example/", None),
            ("http:///a", None),
            ("photos.example/a", None),
            ("", None),
        ] {
            let read = head(&format!("GET {target} HTTP/1.1\r\nHost: photos.example\r\n\r\n"));
            let passed = read.ok().map(|head| String::from_utf8(head.rewritten.unwrap()).unwrap());
            let expected = expected.map(|path| format!("GET {path} HTTP/1.1\r\nHost: photos.example\r\n\r\n"));
            assert_eq!(passed, expected, "{target}");
        }
        let old = head("GET http://a.example/ HTTP/1.0\r\nX: y\r\n\r\n").unwrap().rewritten.unwrap();
        assert_eq!(String::from_utf8(old).unwrap(), "GET / HTTP/1.0\r\nHost: a.example\r\nX: y\r\n\r\n");
        let options = head("OPTIONS http://a.example HTTP/1.1\r\nHost: a.example\r\n\r\n").unwrap().rewritten.unwrap();
        assert!(options.starts_with(b"OPTIONS * HTTP/1.1\r\n"));
    }

    #[test]
    fn what_two_programs_could_read_differently_is_refused() {
        for wrong in [
            "Content-Length: 1\r\nContent-Length: 1",
            "Content-Length: 1\r\ncontent-length: 2",
            "Content-Length: 1\r\nTransfer-Encoding: chunked",
            "Content-Length: +1",
            "Content-Length: 1, 1",
            "Content-Length: 0x1",
            "Content-Length: ",
            "Content-Length: 99999999999999999999",
            "Content-Length : 1",
            "Content_Length: 1",
            "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked",
            "Transfer-Encoding: gzip, chunked",
            "Transfer-Encoding: chunked, identity",
            "Transfer-Encoding: xchunked",
            "Transfer-Encoding: \x0bchunked",
            "Transfer-Encoding\t: chunked",
            "Transfer_Encoding: chunked",
            "X: y\r\n Transfer-Encoding: chunked",
            "X: y\r\n\tfolded",
            "Host: evil.example",
            "Host: ",
            "X",
            ": y",
            "X y: z",
            "X: a\0b",
            "X: a\rb",
            "X: a\r",
            "Content-Length: \x0c5",
        ] {
            let text = format!("POST / HTTP/1.1\r\nHost: photos.example\r\n{wrong}\r\n\r\n");
            assert_eq!(head(&text).unwrap_err().code, Code::RequestInvalid, "{wrong:?}");
        }
        for wrong in [
            "GET / HTTP/1.1\r\n\r\n",
            "GET / HTTP/1.1\r\nHost: a, b\r\n\r\n",
            "GET / HTTP/1.1\r\nHost: a/b\r\n\r\n",
            "GET / HTTP/1.1\r\nHost: u@b\r\n\r\n",
            "GET  / HTTP/1.1\r\nHost: a\r\n\r\n",
            "GET /a b HTTP/1.1\r\nHost: a\r\n\r\n",
            "GET /\tHTTP/1.1\r\nHost: a\r\n\r\n",
            "GET /#x HTTP/1.1\r\nHost: a\r\n\r\n",
            "GET /\x7f HTTP/1.1\r\nHost: a\r\n\r\n",
            "G(T / HTTP/1.1\r\nHost: a\r\n\r\n",
            "GET / HTTP/1.2\r\nHost: a\r\n\r\n",
            "GET / http/1.1\r\nHost: a\r\n\r\n",
            "GET /\r\n\r\n",
            "PRI * HTTP/2.0\r\n\r\n",
            "POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n",
        ] {
            assert_eq!(head(wrong).unwrap_err().code, Code::RequestInvalid, "{wrong:?}");
        }
    }

    #[test]
    fn connection_names_what_is_one_hops_own_and_nothing_else() {
        let with = |value: &str| head(&format!("GET / HTTP/1.1\r\nHost: a\r\nX: y\r\nConnection: {value}\r\n\r\n"));
        for sent in [
            "close",
            "keep-alive",
            "Keep-Alive",
            "keep-alive, Upgrade",
            "Upgrade, HTTP2-Settings",
            "TE",
            "TE, close",
            "close, trailer",
            "keep-alive, Proxy-Connection",
            "close,\tTransfer-Encoding",
            "",
            ", close,,",
        ] {
            assert!(with(sent).is_ok(), "{sent}");
        }
        let end_to_end = "host cookie authorization content-length content-type content-encoding forwarded x-forwarded-for x-forwarded-host \
                          x-real-ip x-auth-role x_auth_role x-csrf-token origin referer sec-fetch-site sec-websocket-key hoop-version hoop-token expect \
                          range if-match date via user-agent accept cache-control closed";
        for named in end_to_end.split_whitespace() {
            for value in
                [named.to_owned(), named.to_uppercase(), format!("close, {named}"), format!("{named}\t,keep-alive")]
            {
                let refused = with(&value).unwrap_err();
                assert_eq!(
                    (refused.code, refused.field.as_deref()),
                    (Code::RequestInvalid, Some("Connection")),
                    "{value}"
                );
            }
            let second =
                head(&format!("GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\nConnection: {named}\r\n\r\n"));
            assert_eq!(second.unwrap_err().code, Code::RequestInvalid, "{named}");
        }
        for odd in ["\"close\"", "close host", "close; host", "\u{e9}"] {
            assert_eq!(with(odd).unwrap_err().code, Code::RequestInvalid, "{odd}");
        }
    }

    #[test]
    fn what_can_be_read_in_one_way_only_stays_as_it_came() {
        for (fields, body, upgrades) in [
            ("", Framing::Length(0), false),
            ("Content-Length: 5\r\n", Framing::Length(5), false),
            ("transfer-encoding: Chunked\r\n", Framing::Chunked, false),
            ("Connection: close, Upgrade\r\nUpgrade: websocket\r\n", Framing::Length(0), true),
            ("Upgrade: websocket\r\n", Framing::Length(0), false),
            ("Connection: Upgrade\r\nUpgrade: websocket\r\nContent-Length: 1\r\n", Framing::Length(1), false),
            ("X-Empty:\r\nX-Latin: \u{e9}\r\n", Framing::Length(0), false),
        ] {
            let head = head(&format!("\r\nPUT /a;b=%20 HTTP/1.1\r\nHost: [::1]:80\r\n{fields}\r\n")).unwrap();
            assert!(head.rewritten.is_none());
            assert_eq!((head.body, head.upgrades), (body, upgrades), "{fields}");
        }
        assert!(head("GET / HTTP/1.0\r\n\r\n").is_ok() && head("CONNECT a:1 HTTP/1.1\r\nHost: a:1\r\n\r\n").is_ok());
    }

    #[test]
    fn more_fields_than_allowed_are_refused_and_as_many_are_not() {
        let with = |count: usize| format!("GET / HTTP/1.1\r\nHost: a\r\n{}\r\n", "X: y\r\n".repeat(count - 1));
        assert!(inspect(with(256).as_bytes(), 256).is_ok());
        assert_eq!(inspect(with(257).as_bytes(), 256).unwrap_err().code, Code::HeadTooLarge);
    }

    #[test]
    fn a_heads_end_is_found_however_it_comes_in_pieces() {
        let text = b"\r\nGET / HTTP/1.1\r\nHost: a\r\n\r\nbody\n\n";
        let end = text.len() - 6;
        for at in 0..text.len() {
            let expected = if at < end { Extent::Open } else { Extent::Ends(end) };
            assert_eq!(extent(&text[..at], 0), expected, "{at}");
            let in_pieces = (1..=at).map(|now| extent(&text[..now], now - 1)).find(|found| *found != Extent::Open);
            assert_eq!(in_pieces.unwrap_or(Extent::Open), expected, "{at}, byte by byte");
        }
        for never in [
            &b"GET / HTTP/1.1\nHost: a\n\n"[..],
            b"\x16\x03\x01",
            b"\nGET",
            b" GET / HTTP/1.1\r\n",
            b"GET / HTTP/1.1\r\nX: y\n",
        ] {
            assert!(matches!(extent(never, 0), Extent::Never(_)), "{never:?}");
        }
    }

    /// Whatever passes here is read by hyper's own parser, with the same target and fields.
    #[test]
    fn no_head_passes_here_that_the_parser_behind_reads_otherwise() {
        let seeds = [
            "GET /a?b=<c> HTTP/1.1\r\nHost: photos.example\r\nContent-Length: 5\r\n\r\n",
            "POST http://photos.example/x HTTP/1.1\r\nhost: photos.example\r\nTransfer-Encoding: chunked\r\n\r\n",
            "GET / HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n",
        ];
        let (mut dice, mut passed) = (1_u64, 0);
        let mut roll = |below: usize| {
            dice ^= dice << 13;
            dice ^= dice >> 7;
            dice ^= dice << 17;
            usize::try_from(dice % below as u64).unwrap()
        };
        for round in 0..60_000 {
            let mut bytes = seeds[round % seeds.len()].as_bytes().to_vec();
            for _ in 0..=roll(3) {
                let at = roll(bytes.len());
                let byte = [b' ', b'\r', b'\n', b':', b'\t', 0, b'/', b'%', b',', b'0', 0xff][roll(11)];
                match roll(3) {
                    0 => bytes[at] = byte,
                    1 => bytes.insert(at, byte),
                    _ => drop(bytes.remove(at)),
                }
            }
            let Extent::Ends(len) = extent(&bytes, 0) else { continue };
            let Ok(head) = inspect(&bytes[..len], 256) else { continue };
            passed += 1;
            let passed_on = head.rewritten.unwrap_or_else(|| bytes[..len].to_vec());
            let mut fields = [httparse::EMPTY_HEADER; 256];
            let mut request = httparse::Request::new(&mut fields);
            let parsed = request.parse(&passed_on).unwrap();
            assert_eq!(parsed, httparse::Status::Complete(passed_on.len()));
            let path = request.path.unwrap();
            assert!(request.method == Some("CONNECT") || path.parse::<Uri>().is_ok(), "{path}");
            let of = |name: &str| -> Vec<String> {
                let named = request.headers.iter().filter(|field| field.name.eq_ignore_ascii_case(name));
                named.map(|field| String::from_utf8_lossy(field.value).into_owned()).collect()
            };
            assert!(of("host").len() <= 1);
            let (lengths, codings) = (of("content-length"), of("transfer-encoding"));
            match head.body {
                Framing::Length(length) => {
                    assert!(codings.is_empty() && lengths.len() <= 1);
                    assert_eq!(lengths.first().map_or(0, |text| text.parse().unwrap()), length);
                }
                Framing::Chunked => assert!(lengths.is_empty() && codings.len() == 1),
            }
        }
        assert!(passed > 5_000, "{passed}");
    }
}
