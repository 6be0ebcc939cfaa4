//! The HTTP/1.1 around a WebSocket: heads of messages that come, the request and its answer (RFC 6455 §4), CONNECT (RFC 9110 §9.3.6).

use bytes::BytesMut;
use hoop_units::Forwarded;
use http::{Request, StatusCode};
use httparse::Status;
use std::fmt;
use std::io;
use tokio::io::{AsyncRead, AsyncReadExt as _};
use tungstenite::handshake::client::generate_key;
use tungstenite::handshake::derive_accept_key;
use tungstenite::handshake::server::{create_response, write_response};

/// The protocol that both ends name (`Sec-WebSocket-Protocol`).
pub const WEBSOCKET_PROTOCOL: &str = "hoop-flow.1";

/// Where a server has its WebSocket, unless it is told otherwise (RFC 8615).
pub const WEBSOCKET_PATH: &str = "/.well-known/hoop-flow";

/// The longest head of a request or an answer, in bytes; what proxies add fits many times.
const HEAD_MAX: usize = 8 * 1024;

/// Its most fields.
const FIELDS_MAX: usize = 64;

/// The way was refused, by HTTP.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Refused {
    /// The proxy does not connect to the server.
    #[error("the proxy refused to connect: HTTP status {0}{hint}", hint = Hint(*.0))]
    ByProxy(u16),
    /// The server, or what stands in front of it, has no WebSocket there.
    #[error("the server refused the WebSocket: HTTP status {0}{hint}", hint = Hint(*.0))]
    ByServer(u16),
    /// Whoever answered does not speak the flows' protocol.
    #[error("what answered is no WebSocket of the protocol {WEBSOCKET_PROTOCOL}")]
    OtherProtocol,
    /// What came is no HTTP/1.1.
    #[error("what answered does not speak HTTP/1.1")]
    NoHttp,
}

/// What a status means to whoever has to do something about it.
struct Hint(u16);

impl fmt::Display for Hint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.0 {
            401 | 407 => " (it wants a name and a password)",
            403 => " (it is forbidden)",
            404 => " (there is nothing at that path)",
            426 => " (it wants another protocol)",
            429 | 503 => " (not now)",
            502 | 504 => " (it cannot reach the server)",
            _ => "",
        })
    }
}

impl From<Refused> for io::Error {
    fn from(refused: Refused) -> Self {
        Self::new(io::ErrorKind::ConnectionRefused, refused)
    }
}

/// Reads a head of HTTP up to its empty line; what came behind it stays in `buffer`.
///
/// # Errors
/// If it ends early, or is longer than [`HEAD_MAX`].
async fn read_head(stream: &mut (impl AsyncRead + Unpin), buffer: &mut BytesMut) -> io::Result<BytesMut> {
    let len = head_len(stream, buffer).await?;
    Ok(buffer.split_to(len))
}

/// Reads until all of a head is in `buffer`, and says how many bytes it has.
async fn head_len(stream: &mut (impl AsyncRead + Unpin), buffer: &mut BytesMut) -> io::Result<usize> {
    let mut searched = 0;
    loop {
        if let Some(at) = buffer[searched..].windows(4).position(|bytes| bytes == b"\r\n\r\n") {
            return Ok(searched + at + 4);
        }
        searched = buffer.len().saturating_sub(3);
        if buffer.len() >= HEAD_MAX {
            return Err(Refused::NoHttp.into());
        }
        buffer.reserve(1_024);
        if stream.read_buf(buffer).await? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
    }
}

/// Reads an answer's status and the fields that are asked for.
async fn read_answer<const N: usize>(
    stream: &mut (impl AsyncRead + Unpin),
    buffer: &mut BytesMut,
    names: [&str; N],
) -> io::Result<(u16, [Option<String>; N])> {
    let head = read_head(stream, buffer).await?;
    let mut fields = [httparse::EMPTY_HEADER; FIELDS_MAX];
    let mut answer = httparse::Response::new(&mut fields);
    let parsed = answer.parse(&head);
    let (Ok(Status::Complete(_)), Some(status)) = (parsed, answer.code) else { return Err(Refused::NoHttp.into()) };
    let field = |name: &str| {
        let field = answer.headers.iter().find(|field| field.name.eq_ignore_ascii_case(name))?;
        String::from_utf8(field.value.to_vec()).ok()
    };
    Ok((status, names.map(field)))
}

/// A request for a WebSocket, and the answer that it must get.
pub(super) struct Asked {
    pub(super) request: String,
    accept: String,
}

impl Asked {
    /// At `path` of `host`, which is a name and, unless it is 443, a port.
    pub(super) fn new(host: &str, path: &str) -> Self {
        let key = generate_key();
        let request = format!(
            "GET {path} HTTP/1.1\r\nHost: {host}\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n\
             Sec-WebSocket-Key: {key}\r\nSec-WebSocket-Protocol: {WEBSOCKET_PROTOCOL}\r\n\r\n"
        );
        Self { request, accept: derive_accept_key(key.as_bytes()) }
    }

    /// Reads the answer; what came behind it stays in `buffer`.
    pub(super) async fn answered(
        &self,
        stream: &mut (impl AsyncRead + Unpin),
        buffer: &mut BytesMut,
    ) -> io::Result<()> {
        let names = ["sec-websocket-accept", "sec-websocket-protocol", "upgrade"];
        let (status, [accept, protocol, upgrade]) = read_answer(stream, buffer, names).await?;
        if status != 101 {
            return Err(Refused::ByServer(status).into());
        }
        let agreed = accept.is_some_and(|accept| accept == self.accept)
            && protocol.is_some_and(|protocol| protocol == WEBSOCKET_PROTOCOL)
            && upgrade.is_some_and(|upgrade| upgrade.eq_ignore_ascii_case("websocket"));
        if agreed { Ok(()) } else { Err(Refused::OtherProtocol.into()) }
    }
}

/// Reads a proxy's answer to CONNECT.
pub(super) async fn connected(stream: &mut (impl AsyncRead + Unpin)) -> io::Result<()> {
    let mut buffer = BytesMut::new();
    let (status, []) = read_answer(stream, &mut buffer, []).await?;
    match status {
        200..300 if buffer.is_empty() => Ok(()),
        // The server speaks second, whoever it is.
        200..300 => Err(Refused::NoHttp.into()),
        _ => Err(Refused::ByProxy(status).into()),
    }
}

/// Reads a request's head, which stays in `buffer`, and says whom it came from by what is written there. A malformed one names nobody, and is refused when it is [`asked`].
pub(super) async fn forwarding(stream: &mut (impl AsyncRead + Unpin), buffer: &mut BytesMut) -> io::Result<Forwarded> {
    let len = head_len(stream, buffer).await?;
    let mut fields = [httparse::EMPTY_HEADER; FIELDS_MAX];
    let mut request = httparse::Request::new(&mut fields);
    if !matches!(request.parse(&buffer[..len]), Ok(Status::Complete(_))) {
        return Ok(Forwarded::default());
    }
    let fields = &*request.headers;
    let lines = |name: &'static str| {
        fields.iter().filter(move |field| field.name.eq_ignore_ascii_case(name)).map(|field| field.value)
    };
    Ok(Forwarded::new(lines("x-forwarded-for"), lines("forwarded")))
}

/// Reads a device's request and says what to answer, and whether it gets its WebSocket.
pub(super) async fn asked(
    stream: &mut (impl AsyncRead + Unpin),
    buffer: &mut BytesMut,
    path: &str,
) -> io::Result<(Vec<u8>, bool)> {
    let head = read_head(stream, buffer).await?;
    Ok(match granted(&head, path) {
        Ok(answer) => (answer, true),
        Err(status) => (refusal(status), false),
    })
}

/// The answer that makes a WebSocket of it (RFC 6455 §4.2), or the status that refuses it.
fn granted(head: &[u8], path: &str) -> Result<Vec<u8>, StatusCode> {
    let mut fields = [httparse::EMPTY_HEADER; FIELDS_MAX];
    let mut parsed = httparse::Request::new(&mut fields);
    if !matches!(parsed.parse(head), Ok(Status::Complete(_))) {
        return Err(StatusCode::BAD_REQUEST);
    }
    let mut request = Request::builder().method(parsed.method.unwrap_or_default()).uri(parsed.path.unwrap_or_default());
    for field in parsed.headers.iter() {
        request = request.header(field.name, field.value);
    }
    let request = request.body(()).map_err(|_| StatusCode::BAD_REQUEST)?;
    if request.uri().path() != path {
        return Err(StatusCode::NOT_FOUND);
    }
    let mut response = create_response(&request).map_err(|_| StatusCode::UPGRADE_REQUIRED)?;
    let offered = request.headers().get_all("sec-websocket-protocol").iter().filter_map(|field| field.to_str().ok());
    if !offered.flat_map(|field| field.split(',')).any(|name| name.trim() == WEBSOCKET_PROTOCOL) {
        return Err(StatusCode::BAD_REQUEST);
    }
    let protocol = http::HeaderValue::from_static(WEBSOCKET_PROTOCOL);
    response.headers_mut().insert("sec-websocket-protocol", protocol);
    let mut answer = Vec::new();
    write_response(&mut answer, &response).map_err(|_| StatusCode::BAD_REQUEST)?;
    Ok(answer)
}

fn refusal(status: StatusCode) -> Vec<u8> {
    let upgrade = match status {
        StatusCode::UPGRADE_REQUIRED => "Upgrade: websocket\r\nSec-WebSocket-Version: 13\r\n",
        _ => "",
    };
    format!("HTTP/1.1 {status}\r\n{upgrade}Connection: close\r\nContent-Length: 0\r\n\r\n").into()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn status(request: &str) -> u16 {
        granted(request.as_bytes(), WEBSOCKET_PATH).map_or_else(|status| status.as_u16(), |_| 101)
    }

    #[test]
    fn a_request_that_lacks_anything_is_refused_by_the_status_that_says_what() {
        let good = Asked::new("carrier.test", WEBSOCKET_PATH).request;
        assert_eq!(status(&good), 101);
        assert_eq!(status(&good.replace("hoop-flow.1", "chat, hoop-flow.1")), 101);
        assert_eq!(status(&good.replace(WEBSOCKET_PATH, "/")), 404);
        for (part, other) in
            [("GET", "POST"), ("Upgrade: websocket", "X: y"), ("Version: 13", "Version: 8"), ("Key: ", "Key: x")]
        {
            assert_eq!(status(&good.replace(part, other)), 426, "{part}");
        }
        assert_eq!(status(&good.replace("hoop-flow.1", "hoop-flow.2")), 400);
        assert_eq!(status("\u{1}\u{2}\r\n\r\n"), 400);
    }

    #[tokio::test]
    async fn what_follows_a_head_stays_and_an_endless_head_is_refused() {
        let mut buffer = BytesMut::new();
        let answer = b"HTTP/1.1 407 No\r\nA: b\r\n\r\nrest";
        let (status, [field]) = read_answer(&mut &answer[..], &mut buffer, ["a"]).await.expect("an answer");
        assert_eq!((status, field.as_deref(), &buffer[..]), (407, Some("b"), &b"rest"[..]));
        let endless = vec![b'x'; 2 * HEAD_MAX];
        let error = read_answer(&mut &endless[..], &mut BytesMut::new(), []).await.expect_err("too long");
        assert_eq!(error.to_string(), Refused::NoHttp.to_string());
        assert_eq!(
            Refused::ByProxy(407).to_string(),
            "the proxy refused to connect: HTTP status 407 (it wants a name and a password)"
        );
    }
}
