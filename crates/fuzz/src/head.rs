//! What lies inside the seal, and the message that brings it to a service.

use crate::input::{self, Input};
use hoop_http::{Code, Problem};
use hoop_seal::{Grant, Keyring, KwsId, Layout, Prelude, Route, ServiceKey, Suite, UploadKey};
use hoop_service::fuzzing::{
    Admission, Credentials, FIELDS_MAX, Policy, RequestHead, inspect, is_method, is_target, open_token, range,
};
use hoop_units::{UnixTime, UploadId};

/// What a web server in front, or the replay itself, says to the application: never the sealed head.
const NEVER: [&str; 12] = [
    "cookie",
    "authorization",
    "host",
    "content-length",
    "transfer-encoding",
    "connection",
    "expect",
    "upgrade",
    "te",
    "x-forwarded-for",
    "forwarded",
    "x-real-ip",
];

pub fn head(bytes: &[u8]) {
    let mut input = Input::new(bytes);
    let body_len = input.number();
    let record = input.rest();
    let plaintext_len = (record.len() as u64).saturating_add(body_len);
    let Ok(head) = RequestHead::parse(record, plaintext_len) else { return };
    check(&head, record, plaintext_len);
    // Written again as the replay writes it, it reads the same to whoever reads HTTP.
    let mut again = format!("{} {} HTTP/1.1\r\n", head.method, head.target).into_bytes();
    for (name, value) in &head.fields {
        again.extend_from_slice(format!("{name}: ").as_bytes());
        again.extend_from_slice(value);
        again.extend_from_slice(b"\r\n");
    }
    again.extend_from_slice(b"\r\n");
    let mut fields = [httparse::EMPTY_HEADER; FIELDS_MAX];
    let mut request = httparse::Request::new(&mut fields);
    assert_eq!(request.parse(&again), Ok(httparse::Status::Complete(again.len())));
    assert_eq!((request.method, request.path), (Some(head.method.as_str()), Some(head.target.as_str())));
    let read: Vec<_> = request.headers.iter().map(|field| (field.name.to_owned(), field.value.to_vec())).collect();
    assert_eq!(read, head.fields);
}

fn check(head: &RequestHead, record: &[u8], plaintext_len: u64) {
    assert!(is_method(&head.method) && is_target(&head.target));
    assert!(head.head_len <= record.len() && record[..head.head_len].ends_with(b"\n"));
    assert_eq!(head.head_len as u64 + head.body_len, plaintext_len);
    assert!(head.fields.len() < FIELDS_MAX, "the token and the length stay behind");
    assert!(head.path().starts_with('/') && !head.path().contains(['?', '#', '\\', ' ']));
    assert!(!head.path().split('/').any(|segment| matches!(segment, "." | "..")));
    let is_encoded = |rest: &str| rest.len() >= 2 && rest.bytes().take(2).all(|digit| digit.is_ascii_hexdigit());
    assert!(head.path().split('%').skip(1).all(is_encoded), "{} is not percent-encoded", head.path());
    for (name, value) in &head.fields {
        let lower = name.to_ascii_lowercase().replace('_', "-");
        assert!(!NEVER.contains(&lower.as_str()) && !lower.starts_with("x-forwarded-"), "{name} goes on");
        assert!(name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-'), "{name}");
        assert!(!value.iter().any(|byte| matches!(byte, b'\r' | b'\n' | 0)), "{name} could end a line");
    }
}

const ORIGIN: &str = "https://photos.example";

fn policy() -> Policy {
    let keys = Keyring::new(ServiceKey::new(KwsId([1; 4]), [2; 32]));
    Policy { keys, origin: ORIGIN.to_owned(), max_bytes: 1 << 34, routes: hoop_service::Routes::default() }
}

/// A prelude with a ticket of ours, good for any route.
fn prelude(policy: &Policy, key: &UploadKey) -> Prelude {
    let grant = Grant {
        key: key.clone(),
        not_before: UnixTime(1_000),
        max_bytes: 1 << 34,
        route: Route::ANY,
        suite: Suite::Aes256Gcm,
    };
    let ticket = policy.keys.seal_ticket(ORIGIN, key.upload_id(), UnixTime(2_000), &grant, [7; 12]);
    Prelude::new([3; 16], hoop_seal::RECORD_SIZE, &ticket).expect("a prelude of ours")
}

pub fn admission(bytes: &[u8]) {
    let mut input = Input::new(bytes);
    match input.byte() {
        0 => message(input.rest()),
        1 => token(input),
        _ => record_0(input),
    }
}

/// The headers of `PUT /hoop/post/{id}`. The word OURS in them stands for a prelude of ours.
fn message(bytes: &[u8]) {
    let (policy, key) = (policy(), UploadKey([5; 32]));
    let ours = prelude(&policy, &key).to_header();
    let bytes = match bytes.windows(4).position(|window| window == b"OURS") {
        Some(at) => [&bytes[..at], ours.as_bytes(), &bytes[at + 4..]].concat(),
        None => bytes.to_vec(),
    };
    let Some(request) = input::request(&bytes) else { return };
    match range(&policy, &request.headers, key.upload_id()) {
        Ok((admission, range)) => {
            assert_eq!(admission.id(), key.upload_id());
            assert!(admission.layout.records_of(range).is_some() && range.end <= admission.layout.total());
            assert!(admission.layout.total() <= policy.max_bytes);
        }
        Err(problem) => documented(&problem),
    }
}

/// What a token holds. It is sealed by the service itself, but an older one may have written it.
fn token(mut input: Input<'_>) {
    let (policy, id) = (policy(), UploadId(input.array()));
    let content = input.rest();
    let token = policy.keys.seal_token(ORIGIN, id, content, [9; 12]);
    match open_token(&policy, id, &token) {
        Ok(credentials) => {
            let written = serde_json::to_vec(&credentials).expect("credentials have a JSON form");
            let again: Credentials = serde_json::from_slice(&written).expect("what we write");
            assert!(again == credentials);
        }
        Err(problem) => assert_eq!(problem.code, Code::TokenInvalid),
    }
}

/// Record 0 of an upload: a head that the input writes, with a token of ours where it says TOKEN.
fn record_0(mut input: Input<'_>) {
    let (policy, key) = (policy(), UploadKey([5; 32]));
    let begun = UnixTime(input.word());
    let record = input.rest();
    let credentials = br#"{"expires":2000,"cookie":"session=alice"}"#;
    let token = policy.keys.seal_token(ORIGIN, key.upload_id(), credentials, [9; 12]);
    let token = base64::Engine::encode(&base64::engine::general_purpose::URL_SAFE_NO_PAD, token);
    let record = match record.windows(5).position(|window| window == b"TOKEN") {
        Some(at) => [&record[..at], token.as_bytes(), &record[at + 5..]].concat(),
        None => record.to_vec(),
    };
    let prelude = prelude(&policy, &key);
    let total =
        Layout::for_plaintext(prelude.len(), hoop_seal::RECORD_SIZE, record.len() as u64).expect("short").total();
    let admission = Admission::new(&policy, prelude, total).expect("a ticket of ours");
    match inspect(&policy, &admission, &record, begun) {
        Ok((head, credentials, facts)) => {
            check(&head, &record, record.len() as u64);
            assert_eq!((credentials.cookie.as_deref(), facts.method), (Some("session=alice"), head.method.clone()));
            assert_eq!(facts.path, head.path());
        }
        Err(problem) => documented(&problem),
    }
}

/// A refusal is one that the other end can read.
fn documented(problem: &Problem) {
    let read = Problem::from_json(&problem.to_json()).expect("a problem of ours");
    assert_eq!((read.code, &read.detail, &read.field), (problem.code, &problem.detail, &problem.field));
}
