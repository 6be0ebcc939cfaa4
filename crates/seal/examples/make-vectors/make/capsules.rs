//! Tickets, tokens and answers, and whole uploads that a ticket opens.

use super::format::{self, Class, Content, Octets, Reason, Vector};
use super::raw::{Body, ORIGIN, OTHER_ORIGIN, RECORD_SIZE, ServiceKey, Suite, Ticket, answer, seeded, sha256, token};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;

type Add<'a> = &'a mut dyn FnMut(String, Vector);

const TOKEN_CONTENT: &str = r#"{"expires":1795604800,"address":"198.51.100.7","cookie":"session=alice"}"#;
const ANSWER_CONTENT: &str = "HTTP/1.1 201 Created\r\nContent-Type: application/json\r\n\r\n{\"ok\":true}";

pub fn make(add: Add) {
    tickets(add);
    tokens(add);
    answers(add);
    uploads(add);
}

fn upload_id() -> Vec<u8> {
    seeded("upload id", 16)
}

fn new_key() -> ServiceKey {
    ServiceKey::seeded("new")
}

fn old_key() -> ServiceKey {
    ServiceKey::seeded("old")
}

pub fn lines(keys: &[ServiceKey]) -> Vec<String> {
    keys.iter()
        .map(|key| format!("hoop-kws-v1 {} {}", hex::encode(key.id), URL_SAFE_NO_PAD.encode(&key.secret)))
        .collect()
}

fn flipped(bytes: &[u8], at: usize) -> Vec<u8> {
    let mut bytes = bytes.to_vec();
    bytes[at] ^= 0x10;
    bytes
}

fn genuine() -> Ticket {
    Ticket {
        version: 1,
        upload_id: upload_id(),
        expires: 1_795_604_800,
        nonce: seeded("ticket nonce", 12),
        key: seeded("ticket key", 32),
        not_before: 1_795_000_000,
        max_bytes: 10_737_418_240,
        route: seeded_route(),
        suite: 1,
        flags: 0,
    }
}

/// The route of `POST /`.
fn seeded_route() -> Vec<u8> {
    ring::digest::digest(&ring::digest::SHA256, b"POST /").as_ref()[..8].to_vec()
}

fn tickets(add: Add) {
    let ring = lines(&[new_key(), old_key()]);
    let mut ticket = |name: &str, about: &str, ticket: Vec<u8>, origin: &str, keyring: &[String], outcome| {
        let (class, reason, content) = match outcome {
            Ok(content) => (Class::Success, None, Some(content)),
            Err(reason) => (Class::TicketFailure, Some(reason), None),
        };
        let (about, origin, keyring) = (about.into(), origin.into(), keyring.to_vec());
        let vector = format::Ticket { about, class, reason, origin, keyring, ticket: Octets(ticket), content };
        add(format!("ticket-{name}"), Vector::Ticket(vector));
    };
    let sealed = genuine().seal(&new_key(), ORIGIN);
    for (name, about, fields, key) in [
        ("valid", "a ticket", genuine(), new_key()),
        ("aes128gcm", "a ticket for the other suite", Ticket { suite: 2, ..genuine() }, new_key()),
        ("any-route", "a ticket for any route", Ticket { route: vec![0; 8], ..genuine() }, new_key()),
        ("old-key", "a ticket under an older key of the ring", genuine(), old_key()),
    ] {
        let content = content_of(&fields, &key);
        ticket(name, about, fields.seal(&key, ORIGIN), ORIGIN, &ring, Ok(content));
    }
    for (name, at, reason) in [
        ("version", 0, Reason::Version),
        ("kws-id", 1, Reason::UnknownKey),
        ("upload-id", 5, Reason::Unauthentic),
        ("expires", 21, Reason::Unauthentic),
        ("nonce", 25, Reason::Unauthentic),
        ("key", 37, Reason::Unauthentic),
        ("not-before", 69, Reason::Unauthentic),
        ("max-bytes", 73, Reason::Unauthentic),
        ("route", 81, Reason::Unauthentic),
        ("suite", 89, Reason::Unauthentic),
        ("flags", 90, Reason::Unauthentic),
        ("tag", 91, Reason::Unauthentic),
    ] {
        let about = format!("a flipped bit in the ticket's {}", name.replace('-', " "));
        ticket(&format!("{name}-flipped"), &about, flipped(&sealed, at), ORIGIN, &ring, Err(reason));
    }
    let relabelled = [&sealed[..1], &old_key().id, &sealed[5..]].concat();
    let later = Ticket { version: 2, ..genuine() }.seal(&new_key(), ORIGIN);
    let unauthentic = Err(Reason::Unauthentic);
    ticket("wrong-origin", "a ticket of another service", sealed.clone(), OTHER_ORIGIN, &ring, unauthentic.clone());
    ticket("other-key", "a ticket that names another key of the ring", relabelled, ORIGIN, &ring, unauthentic);
    let alone = lines(&[old_key()]);
    ticket(
        "unknown-key",
        "a ticket under a key not in the ring",
        sealed.clone(),
        ORIGIN,
        &alone,
        Err(Reason::UnknownKey),
    );
    ticket("version-2", "a ticket of a later version, well sealed", later, ORIGIN, &ring, Err(Reason::Version));
    for (name, about, bytes) in [
        ("empty", "no octet at all", vec![]),
        ("short", "an octet too few", sealed[..106].to_vec()),
        ("long", "an octet too many", [&sealed[..], &[0]].concat()),
    ] {
        ticket(name, about, bytes, ORIGIN, &ring, Err(Reason::Length));
    }
    for (name, about, fields) in [
        ("flags-1", "flags that this version does not know", Ticket { flags: 1, ..genuine() }),
        ("suite-0", "a suite that is none", Ticket { suite: 0, ..genuine() }),
        ("suite-3", "a suite that this version does not know", Ticket { suite: 3, ..genuine() }),
    ] {
        ticket(name, about, fields.seal(&new_key(), ORIGIN), ORIGIN, &ring, Err(Reason::Unsupported));
    }
}

fn content_of(ticket: &Ticket, key: &ServiceKey) -> Content {
    Content {
        kws_id: hex::encode(key.id),
        upload_id: hex::encode(&ticket.upload_id),
        expires: ticket.expires,
        key: Octets(ticket.key.clone()),
        not_before: ticket.not_before,
        max_bytes: ticket.max_bytes,
        route: hex::encode(&ticket.route),
        suite: Suite::BOTH.into_iter().find(|suite| suite.byte() == ticket.suite).expect("a known suite").name().into(),
    }
}

fn tokens(add: Add) {
    let ring = lines(&[new_key(), old_key()]);
    let nonce = seeded("token nonce", 12);
    let mut vector = |name: &str, about: &str, token: Vec<u8>, at: (&str, &[u8]), reason: Option<Reason>| {
        let vector = format::Token {
            about: about.into(),
            class: if reason.is_none() { Class::Success } else { Class::TokenFailure },
            reason,
            origin: at.0.into(),
            upload_id: hex::encode(at.1),
            keyring: ring.clone(),
            token: Octets(token),
            content: reason.is_none().then(|| TOKEN_CONTENT.into()),
        };
        add(format!("token-{name}"), Vector::Token(vector));
    };
    let id = upload_id();
    let seal = |key: &ServiceKey, purpose| token(key, purpose, ORIGIN, &id, &nonce, TOKEN_CONTENT.as_bytes());
    let sealed = seal(&new_key(), "tokens");
    let here = (ORIGIN, &id[..]);
    let unauthentic = Some(Reason::Unauthentic);
    vector("valid", "a token", sealed.clone(), here, None);
    vector("old-key", "a token under an older key of the ring", seal(&old_key(), "tokens"), here, None);
    vector("version-flipped", "a flipped bit in the version", flipped(&sealed, 0), here, Some(Reason::Version));
    vector("kws-id-flipped", "a flipped bit in the key's id", flipped(&sealed, 1), here, Some(Reason::UnknownKey));
    vector("nonce-flipped", "a flipped bit in the nonce", flipped(&sealed, 5), here, unauthentic);
    vector("content-flipped", "a flipped bit in the ciphertext", flipped(&sealed, 17), here, unauthentic);
    vector("tag-flipped", "a flipped bit in the tag", flipped(&sealed, sealed.len() - 1), here, unauthentic);
    let other_id = seeded("another upload id", 16);
    vector("other-upload", "another upload's token", sealed.clone(), (ORIGIN, &other_id), unauthentic);
    vector("wrong-origin", "another service's token", sealed.clone(), (OTHER_ORIGIN, &id), unauthentic);
    let about = "sealed under the key for tickets, which no token may be";
    vector("under-ticket-key", about, seal(&new_key(), "tickets"), here, unauthentic);
    let other_key = [&sealed[..1], &old_key().id, &sealed[5..]].concat();
    vector("other-key", "a token that names another key of the ring", other_key, here, unauthentic);
    vector("empty", "no octet at all", vec![], here, Some(Reason::Length));
    vector("cut-in-head", "cut in the nonce", sealed[..16].to_vec(), here, Some(Reason::Length));
    vector("cut-in-tag", "an octet too few", sealed[..sealed.len() - 1].to_vec(), here, unauthentic);
    vector("long", "an octet too many", [&sealed[..], &[0]].concat(), here, unauthentic);
}

fn answers(add: Add) {
    let (id, key, nonce) = (upload_id(), seeded("ticket key", 32), seeded("answer nonce", 12));
    let mut vector = |name: &str, about: &str, answer: Vec<u8>, at: (&[u8], &[u8]), content: Option<&str>| {
        let vector = format::Answer {
            about: about.into(),
            class: if content.is_some() { Class::Success } else { Class::AnswerFailure },
            upload_id: hex::encode(at.0),
            key: Octets(at.1.to_vec()),
            answer: Octets(answer),
            content: content.map(Into::into),
        };
        add(format!("answer-{name}"), Vector::Answer(vector));
    };
    let sealed = answer(&key, &id, &nonce, ANSWER_CONTENT.as_bytes());
    let here = (&id[..], &key[..]);
    vector("valid", "an answer", sealed.clone(), here, Some(ANSWER_CONTENT));
    vector("nothing", "an answer that says nothing", answer(&key, &id, &nonce, b""), here, Some(""));
    vector("nonce-flipped", "a flipped bit in the nonce", flipped(&sealed, 0), here, None);
    vector("content-flipped", "a flipped bit in the ciphertext", flipped(&sealed, 12), here, None);
    vector("tag-flipped", "a flipped bit in the tag", flipped(&sealed, sealed.len() - 1), here, None);
    let (other_id, other_key) = (seeded("another upload id", 16), seeded("another key", 32));
    vector("other-upload", "another upload's answer", sealed.clone(), (&other_id, &key), None);
    vector("other-key", "an answer under another upload's key", sealed.clone(), (&id, &other_key), None);
    vector("empty", "no octet at all", vec![], here, None);
    vector("cut-in-nonce", "cut in the nonce", sealed[..11].to_vec(), here, None);
    vector("cut-in-tag", "an octet too few", sealed[..sealed.len() - 1].to_vec(), here, None);
}

fn uploads(add: Add) {
    const PLAINTEXT: &[u8] = b"POST /?j HTTP/1.1\r\nHost: photos.example\r\nContent-Length: 2\r\n\r\nhi";
    let mut vector = |name: &str, about: &str, sealed: Vec<u8>, class, reason, failed_record| {
        let released: &[u8] = if class == Class::Success { PLAINTEXT } else { &[] };
        let vector = format::Upload {
            about: about.into(),
            class,
            reason,
            failed_record,
            origin: ORIGIN.into(),
            keyring: lines(&[new_key(), old_key()]),
            sealed: Octets(sealed),
            released_sha256: sha256(released),
        };
        add(format!("upload-{name}"), Vector::Upload(vector));
    };
    let body = |suite: Suite| {
        let ticket = Ticket { suite: suite.byte(), ..genuine() };
        let key_id = ticket.seal(&new_key(), ORIGIN);
        Body { suite, key: ticket.key, salt: seeded("upload", 16), record_size: RECORD_SIZE, key_id }
    };
    for suite in Suite::BOTH {
        let about = "a ticket opens, and with its key and suite the body does";
        vector(suite.name(), about, body(suite).seal(PLAINTEXT), Class::Success, None, None);
    }
    let z = body(Suite::Aes256).seal(PLAINTEXT);
    let about = "a flipped bit in the ticket where it stands";
    let unauthentic = Some(Reason::Unauthentic);
    vector("ticket-flipped", about, flipped(&z, 21 + 60), Class::TicketFailure, unauthentic, None);
    let other = Ticket { key: seeded("another key", 32), ..genuine() }.seal(&new_key(), ORIGIN);
    let swapped = Body { key_id: other, ..body(Suite::Aes256) }.seal(PLAINTEXT);
    let about = "a genuine ticket before another upload's body";
    vector("ticket-swapped", about, swapped, Class::RecordFailure, None, Some(0));
    let claimed = Body { key_id: body(Suite::Aes128).key_id, ..body(Suite::Aes256) }.seal(PLAINTEXT);
    let about = "a body in another suite than the ticket's";
    vector("suite-swapped", about, claimed, Class::RecordFailure, None, Some(0));
    let short = Body { key_id: genuine().seal(&new_key(), ORIGIN)[..100].to_vec(), ..body(Suite::Aes256) };
    let about = "a key id that is too short for a ticket";
    vector("ticket-short", about, short.seal(PLAINTEXT), Class::TicketFailure, Some(Reason::Length), None);
}
