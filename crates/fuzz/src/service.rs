//! What a service reads: what pages send, who asks, the operator's routes, and the application's answers.

use crate::input::{self, Input};
use hoop_http::{Origin, Peer, Problem};
use hoop_service::Routes;
use hoop_service::fuzzing::{
    Answer, AnswerError, BODY_KEPT, Client, Form, Note, Representation, Seen, Settings, action, hoop_version, judge,
    judge_head, own_form, own_page, read_answer, wait,
};
use http::header;
use std::net::{IpAddr, Ipv4Addr};
use std::pin::Pin;
use std::task::{Context, Poll, Waker};
use tokio::io::{AsyncRead, ReadBuf};

/// What a page sends: what is read is written and read again as the same.
pub fn pages(bytes: &[u8]) {
    let mut input = Input::new(bytes);
    match input.byte() {
        0 => note(input.rest()),
        1 => settings(Settings::parse(input.rest())),
        2 => settings(Settings::of_form(&Form::parse(input.rest()))),
        3 => acts(action(input.rest(), true)),
        _ => acts(action(input.rest(), false)),
    }
}

fn note(body: &[u8]) {
    match Note::parse(body) {
        Ok(note) => {
            let kept = serde_json::to_vec(&note).expect("a note has a JSON form");
            assert_eq!(Note::parse(&kept).as_ref(), Ok(&note));
            assert!(note.files.len() <= 20 && note.file_count >= note.files.len() && i64::try_from(note.total).is_ok());
            let monitor = note.monitor.unwrap_or_else(|| "http://a".to_owned());
            assert!(matches!(url::Url::parse(&monitor).expect("a URL").scheme(), "http" | "https"), "{monitor}");
        }
        Err(problem) => readable(&problem),
    }
}

fn settings(read: Result<Settings, Problem>) {
    match read {
        Ok(settings) => {
            let kept = serde_json::to_vec(&settings).expect("settings have a JSON form");
            assert_eq!(Settings::parse(&kept).as_ref(), Ok(&settings));
            assert!(settings.min_bytes < 1 << 53 && settings.types.len() <= 32);
            assert!(settings.types.keys().all(|media| media.contains('/') && *media == media.to_ascii_lowercase()));
        }
        Err(problem) => readable(&problem),
    }
}

fn acts(read: Result<String, Problem>) {
    match read {
        Ok(action) => assert!(["release", "pause", "resume", "stop"].contains(&action.as_str()), "{action}"),
        Err(problem) => readable(&problem),
    }
}

/// The headers of a request: a page of another origin gets nowhere, and no sender names itself.
pub fn front(bytes: &[u8]) {
    let mut input = Input::new(bytes);
    let (trusts, tls) = (input.coin(), input.coin());
    let Some(request) = input::request(input.rest()) else { return };
    let (headers, origin) = (&request.headers, "https://photos.example".parse::<Origin>().expect("an origin"));
    let origins: Vec<&[u8]> = headers.get_all(header::ORIGIN).iter().map(|value| value.as_bytes()).collect();
    if own_page(headers, &origin).is_ok() {
        assert!(origins.iter().all(|named| *named == b"https://photos.example"));
    }
    if own_form(headers, &origin).is_ok() {
        assert!(!origins.is_empty());
    }
    assert_eq!(hoop_version(headers).is_ok(), headers.get("hoop-version").is_some_and(|value| value == "1"));
    assert!(wait(headers).as_secs() <= 30);
    let _ = Representation::by(headers);
    let near = IpAddr::V4(Ipv4Addr::LOCALHOST);
    let peer = Peer { address: (near, 9).into(), local: (near, 80).into(), tls };
    let trusted = if trusts { vec![near.into()] } else { Vec::new() };
    let client = Client::of(&peer, headers, &trusted, &origin);
    assert!(client.trusted == trusts && client.chain.ends_with("127.0.0.1"));
    assert!(!client.chain.contains(['\r', '\n']) && !client.host.contains(['\r', '\n']));
    if !trusts {
        assert_eq!((client.address, client.chain.as_str(), client.proto.as_str()), (near, "127.0.0.1", "https"));
    }
}

/// A routes file, and an answer after a line of `=`: the rules always come to an outcome, and the head's is the whole's.
pub fn routes(bytes: &[u8]) {
    let (text, answer) = match bytes.windows(5).position(|window| window == b"\n===\n") {
        Some(at) => (&bytes[..at + 1], &bytes[at + 5..]),
        None => (bytes, &b"HTTP/1.1 302 Found\r\nLocation: /login\r\n\r\n{\"status\":\"OK\"}"[..]),
    };
    let Ok(text) = std::str::from_utf8(text) else { return };
    let routes = match Routes::parse(text) {
        Ok(routes) => routes,
        Err(error) => {
            assert!(!error.to_string().is_empty());
            return;
        }
    };
    if let Some(ask) = &routes.user.ask {
        assert!(ask.path.starts_with('/') && !ask.path.starts_with("//"));
        let _ = ask.identify(answer);
    }
    let cookies = routes.user.cookies_of("session=1; theme=dark;realm=a");
    assert!(!cookies.contains(';') || cookies.contains("; ") || cookies.contains("dark;realm"));
    let Some((status, headers, body)) = input::response(answer) else { return };
    let fields: Vec<_> = headers.iter().map(|(name, value)| (name.to_string(), value.as_bytes().to_vec())).collect();
    for (method, path) in [("POST", "/upload"), ("PUT", "/api/files/a"), ("PATCH", "/")] {
        let route = routes.of(method, path);
        let seen = Seen { status: status.as_u16(), fields: &fields, body, own: ["photos.example", "127.0.0.1:8000"] };
        let outcome = judge(&route.rules, seen);
        let early = judge_head(&route.rules, Seen { body: b"", ..seen });
        assert!(early.is_none_or(|early| early == outcome), "the head was judged otherwise");
    }
}

/// Bytes that come in pieces of a length.
struct Pieces<'a> {
    bytes: &'a [u8],
    cut: usize,
}

impl AsyncRead for Pieces<'_> {
    fn poll_read(mut self: Pin<&mut Self>, _: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<std::io::Result<()>> {
        let len = self.cut.min(self.bytes.len()).min(buffer.remaining());
        buffer.put_slice(&self.bytes[..len]);
        self.bytes = &self.bytes[len..];
        Poll::Ready(Ok(()))
    }
}

fn read(bytes: &[u8], cut: usize) -> (Answer, Result<(), AnswerError>) {
    let (mut pieces, mut answer) = (Pieces { bytes, cut }, Answer::default());
    let poll = std::pin::pin!(read_answer(&mut pieces, &mut answer)).poll(&mut Context::from_waker(Waker::noop()));
    let Poll::Ready(result) = poll else { panic!("it waits, and everything is there") };
    (answer, result)
}

/// An application's answer: however it is cut, it means the same.
pub fn upstream(bytes: &[u8]) {
    let mut input = Input::new(bytes);
    let cut = usize::from(input.byte()) + 1;
    let bytes = input.rest();
    let ((whole, result), (pieces, other)) = (read(bytes, usize::MAX), read(bytes, cut));
    let kind = |result: &Result<(), AnswerError>| result.as_ref().err().map(std::mem::discriminant);
    assert_eq!(kind(&result), kind(&other), "in pieces of {cut}");
    assert!(whole == pieces, "in pieces of {cut}");
    assert!(whole.body.len() <= BODY_KEPT && whole.body.len() <= bytes.len());
    assert_eq!(whole.complete, result.is_ok());
    if whole.has_head() {
        assert!((200..600).contains(&whole.status) && whole.fields.len() <= 100);
    }
}

/// A refusal is one that the other end can read.
fn readable(problem: &Problem) {
    assert!(Problem::from_json(&problem.to_json()).is_some_and(|read| read.field == problem.field));
}
