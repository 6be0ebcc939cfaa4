//! What a device reads: statuses with sealed answers, problems, tickets.

use crate::input::Input;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use hoop_client::{Answer, State, Status, fuzzing};
use hoop_http::{Connector, Origin, Problem};
use hoop_seal::{Keyring, KwsId, ServiceKey, UploadKey, answer};
use hoop_service::fuzzing::{Policy, ticket_request};
use hoop_units::UploadId;
use std::sync::OnceLock;

const ID: UploadId = UploadId([1; 16]);

pub fn statuses(bytes: &[u8]) {
    let mut input = Input::new(bytes);
    let key = UploadKey([2; 32]);
    match input.byte() {
        0 => problem(input.rest()),
        1 => {
            if let Some(status) = Status::read(input.rest(), ID, &key) {
                // Nobody without K writes an answer that opens.
                assert!(!status.proven && status.answer.is_none());
                assert!(!status.is_proven_final() && !status.denied);
                assert!(status.believed() <= State::Delivering || status.state.is_given_up());
            }
        }
        _ => sealed(&key, input.rest()),
    }
}

/// An answer that the service sealed: what it says counts, whatever stands around it.
fn sealed(key: &UploadKey, message: &[u8]) {
    let read = Answer::parse(message);
    let text = URL_SAFE_NO_PAD.encode(answer::seal(key, ID, message, [3; 12]));
    let document = format!(r#"{{"state":"received","answer":"{text}"}}"#);
    let status = Status::read(document.as_bytes(), ID, key).expect("a status");
    assert_eq!(status.answer, read);
    let said = read.as_ref().and_then(Answer::state);
    assert_eq!((status.proven, status.state), (said.is_some(), said.unwrap_or(State::Received)));
    assert!(Status::read(document.as_bytes(), UploadId([9; 16]), key).is_some_and(|other| other.answer.is_none()));
    let Some(read) = read else { return };
    assert!(message.ends_with(&read.body) && read.status <= 999);
}

fn problem(bytes: &[u8]) {
    let Some(problem) = Problem::from_json(bytes) else { return };
    let again = Problem::from_json(&problem.to_json()).expect("what we write");
    assert_eq!((again.code, &again.detail, &again.field), (problem.code, &problem.detail, &problem.field));
    assert!(problem.to_string().contains(problem.code.name()));
    let response = problem.into_response();
    assert!(!response.status().is_success());
}

/// Where the device asks for tickets, if a document says so: always a request that can be made.
pub fn tickets_path(origin: &Origin, document: &[u8]) {
    static CONNECTOR: OnceLock<Connector> = OnceLock::new();
    let Some(path) = fuzzing::tickets_path(document, origin) else { return };
    let config = || hoop_http::tls::client_config(&[]).expect("the system's roots");
    let connector = CONNECTOR.get_or_init(|| Connector::new(config()));
    let request = fuzzing::request(connector, origin, &path);
    assert_eq!((request.uri().path(), request.uri().query()), (path.as_str(), None));
}

pub fn issued(bytes: &[u8]) {
    let mut input = Input::new(bytes);
    match input.byte() {
        0 => wanted(input.rest()),
        _ => received(input.rest()),
    }
}

/// A device's request, as the service reads it.
fn wanted(body: &[u8]) {
    let keys = Keyring::new(ServiceKey::new(KwsId([1; 4]), [2; 32]));
    let policy = Policy {
        keys,
        origin: "https://photos.example".to_owned(),
        max_bytes: 1 << 34,
        routes: hoop_service::Routes::default(),
    };
    match ticket_request(&policy, body) {
        Ok((_, limit, _, key)) => {
            assert!(limit <= policy.max_bytes);
            if let Some(key) = key {
                let text = URL_SAFE_NO_PAD.encode(key.0);
                assert!(String::from_utf8_lossy(body).contains(&text) || body.contains(&b'\\'));
            }
        }
        Err(problem) => {
            let document = problem.to_json();
            assert!(Problem::from_json(&document).is_some());
        }
    }
}

/// The service's answer, as the device reads it and keeps it.
fn received(body: &[u8]) {
    let Some(Ok(tickets)) = fuzzing::tickets(body) else { return };
    assert!(!tickets.is_empty());
    for ticket in tickets {
        let kept = fuzzing::keep(&ticket);
        let again = fuzzing::tickets(&kept).expect("a document").expect("what we keep").remove(0);
        assert_eq!((again.id, &again.ticket, &again.key), (ticket.id, &ticket.ticket, &ticket.key));
        assert_eq!((&again.token, again.suite, &again.post), (&ticket.token, ticket.suite, &ticket.post));
        let times = |ticket: &hoop_client::IssuedTicket| (ticket.not_before, ticket.expires, ticket.max_bytes);
        assert_eq!(times(&again), times(&ticket));
        let shown = format!("{ticket:?}");
        assert!(!shown.contains(&URL_SAFE_NO_PAD.encode(ticket.key.0)), "a key is shown");
    }
}
