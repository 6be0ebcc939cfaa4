//! Messages that two ends might take for different ones, or for several: each is refused, or passed on as one. Requests of programs, answers of web servers over HTTP/1.1, and over HTTP/2.

use crate::entrusted::Ca;
use crate::exchanges::{chunked, get, saying};
use crate::house::{House, origin, relay};
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;
use tokio::task::JoinSet;
use tokio::time::timeout;

/// An origin that shows what came over each of its connections, and says that all is well.
async fn showing() -> (SocketAddr, Arc<Mutex<Vec<String>>>) {
    let asked = Arc::<Mutex<Vec<String>>>::default();
    let shown = asked.clone();
    let address = origin(move |mut stream| {
        let asked = asked.clone();
        async move {
            let (mut bytes, mut request) = (vec![0; 64 << 10], Vec::new());
            while let Ok(Ok(read @ 1..)) = timeout(Duration::from_millis(300), stream.read(&mut bytes)).await {
                request.extend_from_slice(&bytes[..read]);
            }
            // Of a request that breaks off, there may be nothing but the connection.
            if !request.is_empty() {
                asked.lock().unwrap().push(String::from_utf8_lossy(&request).into_owned());
            }
            let _ = stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n").await;
        }
    });
    (address.await, shown)
}

/// Waits for all of them; how many there were.
async fn all(mut judged: JoinSet<()>) -> usize {
    let messages = judged.len();
    let mut failed = Vec::new();
    while let Some(judged) = judged.join_next().await {
        failed.extend(judged.err().map(|error| error.to_string()));
    }
    assert!(failed.is_empty(), "{}", failed.join("\n"));
    messages
}

const SMUGGLED: &str = "GET /smuggled HTTP/1.1\r\nHost: x\r\n\r\n";

/// Fields of a POST to `/first`, and what follows them. `@` is the origin's address.
const REQUESTS: &[(&str, &str)] = &[
    // Two lengths, or a length and chunks.
    ("Content-Length: 5\r\nTransfer-Encoding: chunked\r\n", "0\r\n\r\nGET /smuggled HTTP/1.1\r\n\r\n"),
    ("Transfer-Encoding: chunked\r\nContent-Length: 5\r\n", "0\r\n\r\nGET /smuggled HTTP/1.1\r\n\r\n"),
    ("Content-Length: 0\r\nTransfer-Encoding: chunked\r\n", "3\r\nabc\r\n0\r\n\r\n"),
    ("Content-Length: 5\r\nContent-Length: 6\r\n", "GET /smuggled"),
    ("Content-Length: 3\r\nContent-Length: 3\r\n", "abcGET /smuggled"),
    ("Content-Length: 3, 3\r\n", "abcGET /smuggled"),
    ("Content-Length: 3, 4\r\n", "abcGET /smuggled"),
    ("Content-Length: +5\r\n", "GET /smuggled"),
    ("Content-Length: -5\r\n", "GET /smuggled"),
    ("Content-Length: 0x5\r\n", "GET /smuggled"),
    ("Content-Length: 5 5\r\n", "GET /smuggled"),
    ("Content-Length: 5_0\r\n", "GET /smuggled"),
    ("Content-Length: 3\u{b}\r\n", "abcGET /smuggled"),
    ("Content-Length:\r\n", "GET /smuggled"),
    ("Content-Length: \r\n 5\r\n", "GET /smuggled"),
    ("Content-Length: 00000000000000000003\r\n", "abcGET /smuggled"),
    ("Content-Length: 18446744073709551616\r\n", "GET /smuggled"),
    ("Content-Length: 99999999999999999999999\r\n", "GET /smuggled"),
    ("Content-Length : 5\r\n", "GET /smuggled"),
    ("Content-Length\t: 5\r\n", "GET /smuggled"),
    (" Content-Length: 5\r\n", "GET /smuggled"),
    ("Content-Length: 3\r\nContent_Length: 9\r\n", "abcGET /smuggled"),
    // Codings.
    ("Transfer-Encoding: xchunked\r\n", "0\r\n\r\nGET /smuggled"),
    ("Transfer-Encoding: gzip, chunked\r\n", "3\r\nabc\r\n0\r\n\r\n"),
    ("Transfer-Encoding: chunked, identity\r\n", "0\r\n\r\nGET /smuggled"),
    ("Transfer-Encoding: chunked, chunked\r\n", "0\r\n\r\nGET /smuggled"),
    ("Transfer-Encoding: identity\r\nContent-Length: 3\r\n", "abcGET /smuggled"),
    ("Transfer-Encoding: chunked\r\nTransfer-Encoding: x\r\n", "0\r\n\r\nGET /smuggled"),
    ("Transfer-Encoding: x\r\nTransfer-Encoding: chunked\r\n", "0\r\n\r\nGET /smuggled"),
    ("Transfer-Encoding: \"chunked\"\r\n", "0\r\n\r\nGET /smuggled"),
    ("Transfer-Encoding: chunked;q=1\r\n", "0\r\n\r\nGET /smuggled"),
    ("Transfer-Encoding: \u{b}chunked\r\n", "0\r\n\r\nGET /smuggled"),
    ("Transfer-Encoding: chunked\u{b}\r\n", "0\r\n\r\nGET /smuggled"),
    ("Transfer-Encoding:\tchunked\r\n", "3\r\nabc\r\n0\r\n\r\n"),
    ("Transfer-Encoding: CHUNKED\r\n", "3\r\nabc\r\n0\r\n\r\n"),
    ("Transfer-Encoding : chunked\r\n", "0\r\n\r\nGET /smuggled"),
    ("Transfer_Encoding: chunked\r\n", "0\r\n\r\nGET /smuggled"),
    ("Transfer-Encoding:\r\n chunked\r\n", "0\r\n\r\nGET /smuggled"),
    ("X: 1\r\n Transfer-Encoding: chunked\r\n", "0\r\n\r\nGET /smuggled"),
    ("X: 1\rTransfer-Encoding: chunked\r\n", "0\r\n\r\nGET /smuggled"),
    ("X: 1\nTransfer-Encoding: chunked\r\n", "3\r\nabc\r\n0\r\n\r\n"),
    ("X: a\0b\r\nContent-Length: 3\r\n", "abc"),
    ("X\0: a\r\nContent-Length: 3\r\n", "abc"),
    (": a\r\nContent-Length: 3\r\n", "abc"),
    ("no field\r\nContent-Length: 3\r\n", "abc"),
    // Chunks.
    ("Transfer-Encoding: chunked\r\n", "5;x\r\nGET /\r\n0\r\n\r\n"),
    ("Transfer-Encoding: chunked\r\n", "5;x=\"\r\n\"\r\nGET /\r\n0\r\n\r\n"),
    ("Transfer-Encoding: chunked\r\n", "-5\r\nGET /smuggled"),
    ("Transfer-Encoding: chunked\r\n", "0x3\r\nabc\r\n0\r\n\r\n"),
    ("Transfer-Encoding: chunked\r\n", "3\nabc\n0\n\n"),
    ("Transfer-Encoding: chunked\r\n", "3\r\nabcd\r\n0\r\n\r\n"),
    ("Transfer-Encoding: chunked\r\n", "3 \r\nabc\r\n0\r\n\r\n"),
    ("Transfer-Encoding: chunked\r\n", "\r\nabc\r\n0\r\n\r\n"),
    ("Transfer-Encoding: chunked\r\n", "ffffffffffffffff\r\nabc\r\n0\r\n\r\n"),
    ("Transfer-Encoding: chunked\r\n", "10000000000000003\r\nabc\r\n0\r\n\r\n"),
    ("Transfer-Encoding: chunked\r\n", "3\r\nabc\r\n0\r\nContent-Length: 9\r\nX-Trailer: 1\r\n\r\n"),
    ("Transfer-Encoding: chunked\r\n", "3\r\nabc\r\n"),
    ("Transfer-Encoding: chunked\r\n", "3\r\na"),
    // What the hop decides.
    ("Connection: Content-Length\r\nContent-Length: 3\r\n", "abc"),
    ("Connection: Host, Transfer-Encoding\r\nTransfer-Encoding: chunked\r\n", "3\r\nabc\r\n0\r\n\r\n"),
    ("Host: third.example\r\nContent-Length: 3\r\n", "abc"),
    ("Upgrade: h2c\r\nConnection: Upgrade, HTTP2-Settings\r\nHTTP2-Settings: AAMAAABk\r\nContent-Length: 3\r\n", "abc"),
    ("Expect: 100-continue\r\nContent-Length: 3\r\n", "abc"),
    ("Expect: 200-ok\r\nContent-Length: 3\r\n", "abc"),
];

/// Request lines, `@` for the origin's address.
const LINES: &[&str] = &[
    "POST http://@/first HTTP/1.1 ",
    "POST  http://@/first HTTP/1.1",
    "POST http://@/first  HTTP/1.1",
    "POST http://@/fi rst HTTP/1.1",
    "POST http://@/first HTTP/1.2",
    "POST http://@/first HTTP/2.0",
    "POST http://@/first http/1.1",
    "POST http://@/first",
    "POST http://@\\first HTTP/1.1",
    "POST http://@/first#part HTTP/1.1",
    "POST http://x@@/first HTTP/1.1",
    "POST http://@@x/first HTTP/1.1",
    "POST http:@/first HTTP/1.1",
    "P\tOST http://@/first HTTP/1.1",
    "POST\thttp://@/first\tHTTP/1.1",
    "POST http://@/\u{1}first HTTP/1.1",
    "POST http://@/first%0d%0aX:%201 HTTP/1.1",
    "\r\nPOST http://@/first HTTP/1.1",
];

#[tokio::test]
async fn a_request_that_is_no_single_request_is_refused_or_made_as_one() {
    let house = Arc::new(House::new().await);
    let (to, _) = showing().await;
    assert!(house.says(&get(to)).await.starts_with("HTTP/1.1 200 "), "the relay is known to make requests");
    let of_lines = LINES.iter().map(|line| (*line, "Content-Length: 3\r\n", "abc"));
    let of_fields = REQUESTS.iter().map(|(fields, body)| ("POST http://@/first HTTP/1.1", *fields, *body));
    let mut judged = JoinSet::new();
    for (line, fields, body) in of_lines.chain(of_fields) {
        let house = house.clone();
        judged.spawn(async move {
            let (to, shown) = showing().await;
            let line = line.replace('@', &to.to_string());
            let request = format!("{line}\r\nHost: other.example\r\n{fields}\r\n{body}");
            let answer = house.says(&request).await;
            let name = request.escape_debug().to_string();
            for request in shown.lock().unwrap().drain(..) {
                judge(&request, &name);
            }
            // Interim ones may come before.
            let status =
                answer.rsplit("HTTP/1.1 ").next().and_then(|answer| answer.split(' ').next()).unwrap_or_default();
            assert!(["200", "400", "417", "501", "505"].contains(&status) || answer.is_empty(), "{name}: {answer}");
            assert!(!answer.contains(SMUGGLED), "{name}: {answer}");
        });
    }
    let messages = all(judged).await;
    println!("{messages} requests");
    assert!(messages >= 80);
}

/// What an origin got is one request, which ends where its head says.
fn judge(request: &str, name: &str) {
    assert!(request.starts_with("POST /first"), "{name}: {request}");
    let (head, body) = request.split_once("\r\n\r\n").unwrap();
    assert_eq!(head.matches('\n').count(), head.matches("\r\n").count(), "{name}: {head}");
    assert!(!head.replace("\r\n", "").contains(|byte: char| byte.is_control()), "{name}: {head}");
    let head = head.to_lowercase();
    let framings = head.matches("\r\ncontent-length:").count() + head.matches("\r\ntransfer-encoding:").count();
    assert!(framings <= 1, "{name}: {head}");
    assert_eq!(head.matches("\r\nhost:").count(), 1, "{name}: {head}");
    assert!(!head.contains("\r\nx:%201") && !head.contains("\r\nx-trailer"), "{name}: {head}");
    assert!(framings == 1 || body.is_empty(), "{name}: {body}");
    let length = head.lines().find_map(|line| line.strip_prefix("content-length: ")?.parse::<usize>().ok());
    assert!(length.is_none_or(|length| body.len() <= length), "{name}: {body}");
    assert!(!body.ends_with("smuggled") && !body.contains("GET /smuggled HTTP"), "{name}: {body}");
}

/// What an origin answers by HTTP/1.1, and the body that a program is given; none: there is no answer that could be passed on.
const ANSWERS: &[(&str, Option<&str>)] = &[
    ("HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: 2\r\n\r\nhi", Some("hi")),
    ("HTTP/1.1 200 OK\r\nContent-Length: 2, 2\r\n\r\nhi", Some("hi")),
    ("HTTP/1.1 200 OK\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhi\r\n0\r\n\r\n", Some("hi")),
    ("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nContent-Length: 9\r\n\r\n2\r\nhi\r\n0\r\n\r\n", Some("hi")),
    ("HTTP/1.1 200 OK\r\nTransfer-Encoding: Chunked\r\n\r\n2\r\nhi\r\n0\r\n\r\n", Some("hi")),
    ("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhiHTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nother", Some("hi")),
    ("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi and more", Some("hi")),
    (
        "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi",
        Some("hi"),
    ),
    ("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhi\r\n0\r\nX-Trailer: 1\r\n\r\n", Some("hi")),
    ("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2;x=y\r\nhi\r\n0\r\n\r\n", Some("hi")),
    ("HTTP/1.0 200 OK\r\n\r\nhi", Some("hi")),
    ("HTTP/1.1 200\r\nContent-Length: 2\r\n\r\nhi", Some("hi")),
    ("HTTP/1.1 200 \r\nContent-Length: 2\r\n\r\nhi", Some("hi")),
    ("HTTP/1.1 200 OK\nContent-Length: 2\n\nhi", Some("hi")),
    ("HTTP/1.1 200 OK\r\nConnection: Content-Length\r\nContent-Length: 2\r\n\r\nhi", Some("hi")),
    ("HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\n\r\n2\r\nhi\r\n0\r\n\r\n", None),
    ("HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip\r\n\r\nhi", None),
    ("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked, chunked\r\n\r\n2\r\nhi\r\n0\r\n\r\n", None),
    ("HTTP/1.1 200 OK\r\nTransfer-Encoding: xchunked\r\n\r\n2\r\nhi\r\n0\r\n\r\n", None),
    ("HTTP/1.1 200 OK\r\nTransfer-Encoding: identity\r\nContent-Length: 2\r\n\r\nhi", None),
    ("HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhi\r\n0\r\n\r\n", None),
    ("HTTP/1.1 200 OK\r\nTransfer-Encoding : chunked\r\n\r\n2\r\nhi\r\n0\r\n\r\n", None),
    ("HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: 3\r\n\r\nhi", None),
    ("HTTP/1.1 200 OK\r\nContent-Length: -2\r\n\r\nhi", None),
    ("HTTP/1.1 200 OK\r\nContent-Length: +2\r\n\r\nhi", None),
    ("HTTP/1.1 200 OK\r\nContent-Length: 0x2\r\n\r\nhi", None),
    ("HTTP/1.1 200 OK\r\nContent-Length: 2, 3\r\n\r\nhi", None),
    ("HTTP/1.1 200 OK\r\nContent-Length: two\r\n\r\nhi", None),
    ("HTTP/1.1 200 OK\r\nContent-Length: 99999999999999999999999\r\n\r\nhi", None),
    ("HTTP/1.1 200 OK\r\nX : 1\r\nContent-Length: 2\r\n\r\nhi", None),
    ("HTTP/1.1 200 OK\r\nX: 1\r\n folded\r\nContent-Length: 2\r\n\r\nhi", None),
    ("HTTP/1.1 200 OK\r\n X: 1\r\nContent-Length: 2\r\n\r\nhi", None),
    ("HTTP/1.1 200 OK\r\nX: a\0b\r\nContent-Length: 2\r\n\r\nhi", None),
    ("HTTP/1.1 200 OK\r\nX: a\rb\r\nContent-Length: 2\r\n\r\nhi", None),
    ("HTTP/1.1 200 OK\r\nno field\r\nContent-Length: 2\r\n\r\nhi", None),
    ("HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: h2c\r\n\r\nhi", None),
    ("HTTP/1.1 20 OK\r\n\r\nhi", None),
    ("HTTP/1.1 2000 OK\r\n\r\nhi", None),
    ("HTTP/1.1 099 X\r\nContent-Length: 2\r\n\r\nhi", None),
    ("HTTP/1.1 600 What\r\nContent-Length: 2\r\n\r\nhi", None),
    ("HTTP/1.1 407 Proxy\r\nProxy-Authenticate: Basic\r\nContent-Length: 2\r\n\r\nhi", None),
    ("HTTP/2 200\r\n\r\nhi", None),
    ("HTTP/1.2.3 200 OK\r\n\r\nhi", None),
    ("ICY 200 OK\r\n\r\nhi", None),
    (" HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi", None),
    ("220 mail.example ESMTP\r\n", None),
    ("SSH-2.0-OpenSSH_9.2\r\n", None),
    ("", None),
];

/// What a program was answered: the one answer with this status, which ends where its head says, and nothing after it.
fn single<'a>(came: &'a str, name: &str) -> (&'a str, String) {
    let (head, rest) = came.split_once("\r\n\r\n").unwrap_or_else(|| panic!("{name}: {came}"));
    let (status, lower) = (head.split(' ').nth(1).unwrap(), head.to_lowercase());
    let (is_chunked, length) = (
        lower.contains("\r\ntransfer-encoding: chunked"),
        lower.lines().find_map(|line| line.strip_prefix("content-length: ")?.parse::<usize>().ok()),
    );
    assert!(!(is_chunked && length.is_some()), "{name}: {came}");
    if !is_chunked {
        assert!(length.is_none_or(|length| length == rest.len()), "{name}: {came}");
        return (status, rest.to_owned());
    }
    let (mut body, mut rest) = (String::new(), rest);
    loop {
        let (len, after) = rest.split_once("\r\n").unwrap_or_else(|| panic!("{name}: {came}"));
        let len = usize::from_str_radix(len, 16).unwrap();
        body.push_str(&after[..len]);
        rest = after[len..].strip_prefix("\r\n").unwrap_or_else(|| panic!("{name}: {came}"));
        if len == 0 {
            assert_eq!(rest, "", "{name}: {came}");
            return (status, body);
        }
    }
}

#[tokio::test]
async fn an_answer_that_is_no_single_answer_is_refused_or_passed_on_as_one() {
    let house = Arc::new(House::new().await);
    let (to, _) = showing().await;
    assert!(house.says(&get(to)).await.starts_with("HTTP/1.1 200 "), "the relay is known to make requests");
    let long = format!("HTTP/1.1 200 OK\r\nX: {}\r\n\r\n", "~".repeat(70 << 10));
    let many = format!("HTTP/1.1 200 OK\r\n{}\r\n", "X: 1\r\n".repeat(300));
    let large = [(long.clone(), None), (many, None)];
    let mut judged = JoinSet::new();
    for (answer, body) in ANSWERS.iter().map(|(answer, body)| ((*answer).to_owned(), *body)).chain(large) {
        let (house, is_long) = (house.clone(), answer == long);
        judged.spawn(async move {
            let to = saying(answer.as_bytes().to_vec()).await;
            // The second goes over a connection, on which heads may be longer.
            let requests = [get(to), chunked("POST", to)];
            for request in requests.iter().take(if is_long { 1 } else { 2 }) {
                let came = house.says(request).await;
                let name = answer.chars().take(200).collect::<String>().escape_debug().to_string();
                let (status, came) = single(&came, &name);
                match body {
                    Some(body) => assert_eq!((status, &*came), ("200", body), "{name}"),
                    None => assert_eq!(status, "502", "{request}{name}: {came}"),
                }
            }
        });
    }
    let messages = all(judged).await;
    println!("{messages} answers over HTTP/1.1");
    assert!(messages >= 50);
}

// ---- HTTP/2 ----

const DATA: u8 = 0;
const HEADERS: u8 = 1;
const RST_STREAM: u8 = 3;
const PUSH_PROMISE: u8 = 5;
const GOAWAY: u8 = 7;
const WINDOW_UPDATE: u8 = 8;
const END_STREAM: u8 = 1;
const END_HEADERS: u8 = 4;
const PADDED: u8 = 8;

/// A frame (RFC 9113 §4.1).
fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let mut frame = u32::try_from(payload.len()).unwrap().to_be_bytes()[1..].to_vec();
    frame.extend([kind, flags]);
    frame.extend(stream.to_be_bytes());
    frame.extend(payload);
    frame
}

/// Fields as HPACK has them that knows neither tables nor Huffman's code (RFC 7541 §6.2.2).
fn fields(fields: &[(&str, &str)]) -> Vec<u8> {
    let mut block = Vec::new();
    for (name, value) in fields {
        block.push(0);
        for text in [name, value] {
            block.push(u8::try_from(text.len()).expect("short"));
            block.extend(text.as_bytes());
        }
    }
    block
}

/// The head of an answer on the first stream.
fn answer(more: &[(&str, &str)]) -> Vec<u8> {
    frame(HEADERS, END_HEADERS, 1, &fields(&[&[(":status", "200")], more].concat()))
}

fn data(bytes: &str) -> Vec<u8> {
    frame(DATA, END_STREAM, 1, bytes.as_bytes())
}

/// What it is, its frames, and the body that a program is given.
type AnswerOverH2 = (&'static str, Vec<Vec<u8>>, Option<&'static str>);

/// What an origin answers by HTTP/2.
fn answers_over_h2() -> Vec<AnswerOverH2> {
    let head = |flags, block: &[(&str, &str)]| frame(HEADERS, END_HEADERS | flags, 1, &fields(block));
    vec![
        ("plain", vec![answer(&[]), data("hi")], Some("hi")),
        ("a length", vec![answer(&[("content-length", "2")]), data("hi")], Some("hi")),
        ("an interim answer", vec![head(0, &[(":status", "103")]), answer(&[]), data("hi")], Some("hi")),
        ("padding", vec![answer(&[]), frame(DATA, END_STREAM | PADDED, 1, b"\x03hi\0\0\0")], Some("hi")),
        ("trailers", vec![answer(&[]), frame(DATA, 0, 1, b"hi"), head(END_STREAM, &[("x-trailer", "1")])], Some("hi")),
        ("many frames", vec![answer(&[]), frame(DATA, 0, 1, b"h"), frame(DATA, 0, 1, b""), data("i")], Some("hi")),
        ("an unknown frame", vec![frame(0xbb, 0, 1, b"x"), answer(&[]), data("hi")], Some("hi")),
        ("a shorter length", vec![answer(&[("content-length", "1")]), data("hi")], None),
        ("a longer length", vec![answer(&[("content-length", "3")]), data("hi")], None),
        ("no length", vec![answer(&[("content-length", "+2")]), data("hi")], None),
        ("a field of a hop", vec![answer(&[("transfer-encoding", "chunked")]), data("2\r\nhi\r\n0\r\n\r\n")], None),
        ("another field of a hop", vec![answer(&[("connection", "close")]), data("hi")], None),
        ("an upgrade", vec![answer(&[("upgrade", "h2c")]), data("hi")], None),
        ("capitals", vec![answer(&[("X-Capital", "1")]), data("hi")], None),
        ("a line in a field", vec![answer(&[("x", "a\r\nset-cookie: b=c")]), data("hi")], None),
        ("a zero in a field", vec![answer(&[("x", "a\0b")]), data("hi")], None),
        ("a colon in a name", vec![answer(&[("x:y", "1")]), data("hi")], None),
        ("a space in a name", vec![answer(&[("x ", "1")]), data("hi")], None),
        ("an empty name", vec![answer(&[("", "1")]), data("hi")], None),
        ("no status", vec![head(0, &[("x", "1")]), data("hi")], None),
        ("two statuses", vec![head(0, &[(":status", "200"), (":status", "204")]), data("hi")], None),
        ("a status after a field", vec![head(0, &[("x", "1"), (":status", "200")]), data("hi")], None),
        ("an unknown pseudo field", vec![answer(&[(":what", "1")]), data("hi")], None),
        // It goes no further.
        ("one of requests", vec![answer(&[(":path", "/")]), data("hi")], Some("hi")),
        ("a status of two digits", vec![head(0, &[(":status", "20")]), data("hi")], None),
        ("a status of nobody", vec![head(0, &[(":status", "600")]), data("hi")], None),
        ("a switch of protocols", vec![head(0, &[(":status", "101")]), data("hi")], None),
        ("proxy authentication", vec![head(0, &[(":status", "407")]), data("hi")], None),
        ("no head", vec![data("hi")], None),
        ("a body of nobody", vec![frame(DATA, 0, 0, b"hi")], None),
        ("an answer to nobody", vec![frame(HEADERS, END_HEADERS, 3, &fields(&[(":status", "200")]))], None),
        (
            "a promise",
            vec![frame(PUSH_PROMISE, END_HEADERS, 1, &[&[0, 0, 0, 2][..], &fields(&[(":path", "/x")])].concat())],
            None,
        ),
        ("a window of nothing", vec![frame(WINDOW_UPDATE, 0, 0, &[0; 4])], None),
        ("more padding than frame", vec![answer(&[]), frame(DATA, END_STREAM | PADDED, 1, b"\x09hi")], None),
        ("a broken block", vec![frame(HEADERS, END_HEADERS, 1, &[0x00, 0x7f, 0x80])], None),
        (
            "a block that goes on elsewhere",
            vec![frame(HEADERS, 0, 1, &fields(&[(":status", "200")])), data("hi")],
            None,
        ),
        ("a reset", vec![answer(&[]), frame(DATA, 0, 1, b"h"), frame(RST_STREAM, 0, 1, &[0, 0, 0, 2])], None),
        (
            "a reset that says that nothing is wrong",
            vec![answer(&[]), frame(DATA, 0, 1, b"h"), frame(RST_STREAM, 0, 1, &[0; 4])],
            None,
        ),
        ("an end of all", vec![answer(&[]), frame(DATA, 0, 1, b"h"), frame(GOAWAY, 0, 0, &[0; 8])], None),
        ("no HTTP/2", vec![b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi".to_vec()], None),
    ]
}

#[tokio::test]
async fn an_answer_over_http_2_that_is_no_single_answer_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let ca = Ca::new(folder.path());
    let mut hosts = Vec::new();
    for (name, frames, body) in answers_over_h2() {
        let (tls, listener) = (ca.tls("localhost", &["h2"], |_| {}), TcpListener::bind("127.0.0.1:0").await.unwrap());
        hosts.push((name, listener.local_addr().unwrap().port(), body));
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let Ok(mut stream) = tls.accept(stream).await else { continue };
                let mut came = vec![0; 16 << 10];
                // The preface, settings, and a head, however they are cut.
                let _ = stream.write_all(&frame(4, 0, 0, &[])).await;
                while let Ok(Ok(1..)) = timeout(Duration::from_millis(300), stream.read(&mut came)).await {}
                let _ = stream.write_all(&frame(4, 1, 0, &[])).await;
                let _ = stream.write_all(&frames.concat()).await;
                let _ = timeout(Duration::from_millis(500), stream.read(&mut came)).await;
                let _ = stream.shutdown().await;
            }
        });
    }
    let introduced = relay(folder.path()).await;
    let entrusted = hosts.iter().map(|(_, port, _)| format!("localhost:{port}").parse().unwrap()).collect();
    let house = Arc::new(House::by(folder, introduced, |config| config.entrusted = entrusted).await);
    let mut judged = JoinSet::new();
    for (name, port, body) in hosts {
        let house = house.clone();
        judged.spawn(async move {
            let request = format!("GET https://localhost:{port}/ HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
            let mut program = house.program().await;
            program.write_all(request.as_bytes()).await.unwrap();
            let mut came = Vec::new();
            let read = timeout(Duration::from_secs(20), program.read_to_end(&mut came)).await.expect("it ends");
            let came = String::from_utf8_lossy(&came);
            match (read, body) {
                (Ok(_), Some(body)) => assert_eq!(single(&came, name), ("200", body.to_owned()), "{name}"),
                (Err(error), Some(_)) => panic!("{name}: {error}"),
                (Ok(_), None) => assert_eq!(single(&came, name).0, "502", "{name}: {came}"),
                // It broke off: no program takes that for the whole.
                (Err(_), None) => {}
            }
        });
    }
    let messages = all(judged).await;
    println!("{messages} answers over HTTP/2");
    assert!(messages >= 40);
}
