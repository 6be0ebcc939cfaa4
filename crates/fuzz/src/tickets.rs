//! What a service seals for itself and for the device: tickets, tokens, answers; and the file of its keys.

use crate::input::Input;
use hoop_seal::{Grant, Keyring, KwsId, Route, ServiceKey, Suite, TicketLabel, UploadKey, answer};
use hoop_units::{UnixTime, UploadId};

const ORIGIN: &str = "https://photos.example";

/// Two keys, so that the choice between them is tried: those of the shared vectors, whose tickets and tokens then open.
fn ring() -> Keyring {
    let lines = "hoop-kws-v1 bf30eda0 -uBY2bENYh3a8nQ4NkkPawcO6noqlvDZmgrcXPXu_Ms\n\
                 hoop-kws-v1 22cea8c7 XzxMCXoZDGd4Zee1zdGNCNMj4x41rY3VSgjPzdrRF18\n";
    Keyring::parse(lines).expect("two keys")
}

pub fn tickets(bytes: &[u8]) {
    let mut input = Input::new(bytes);
    match input.byte() {
        0 => foreign_ticket(input.rest()),
        1 => foreign_token(input),
        2 => foreign_answer(input),
        3 => own_ticket(input),
        4 => own_token(input),
        _ => own_answer(input),
    }
}

/// A ticket opens only if it is one that we seal ourselves, to the byte.
fn foreign_ticket(ticket: &[u8]) {
    let (ring, label) = (ring(), TicketLabel::parse(ticket));
    match ring.open_ticket(ORIGIN, ticket) {
        Ok(opened) => {
            assert_eq!(label, Ok(opened.label));
            assert!(ring.open_ticket("https://other.example", ticket).is_err(), "a ticket is its origin's");
            if opened.label.kws_id == ring.primary().id() {
                let nonce = *ticket[25..].first_chunk().expect("a ticket has a nonce");
                let label = opened.label;
                let again = ring.seal_ticket(ORIGIN, label.upload_id, label.expires, &opened.grant, nonce);
                assert_eq!(again, ticket, "there is one way to write a ticket");
            }
        }
        Err(error) => assert!(!error.to_string().is_empty()),
    }
}

fn foreign_token(mut input: Input<'_>) {
    let (ring, id) = (ring(), UploadId(input.array()));
    let token = input.rest();
    let Ok(content) = ring.open_token(ORIGIN, id, token) else { return };
    assert_eq!(token.len(), 33 + content.len());
    assert!(ring.open_token(ORIGIN, UploadId([0xa5; 16]), token).is_err() || id == UploadId([0xa5; 16]));
}

fn foreign_answer(mut input: Input<'_>) {
    let (key, id) = (UploadKey(input.array()), UploadId(input.array()));
    let sealed = input.rest();
    let Ok(content) = answer::open(&key, id, sealed) else { return };
    assert_eq!(sealed.len(), 28 + content.len());
    let nonce = *sealed.first_chunk().expect("an answer has a nonce");
    assert_eq!(answer::seal(&key, id, &content, nonce), sealed);
}

/// Flips a bit that the input chooses.
fn flip(bytes: &mut [u8], bit: u64) {
    let bit = bit as usize % (bytes.len() * 8);
    bytes[bit / 8] ^= 1 << (bit % 8);
}

fn own_ticket(mut input: Input<'_>) {
    let ring = ring();
    let grant = Grant {
        key: UploadKey(input.array()),
        not_before: UnixTime(input.word()),
        max_bytes: input.long(),
        route: Route(input.array()),
        suite: if input.coin() { Suite::Aes256Gcm } else { Suite::Aes128Gcm },
    };
    let (id, expires, nonce) = (UploadId(input.array()), UnixTime(input.word()), input.array());
    let mut ticket = ring.seal_ticket(ORIGIN, id, expires, &grant, nonce);
    let opened = ring.open_ticket(ORIGIN, &ticket).expect("our own ticket opens");
    assert_eq!((&opened.grant, opened.label.upload_id, opened.label.expires), (&grant, id, expires));
    flip(&mut ticket, input.long());
    assert!(ring.open_ticket(ORIGIN, &ticket).is_err(), "an altered ticket opens");
}

fn own_token(mut input: Input<'_>) {
    let (ring, id, nonce, bit) = (ring(), UploadId(input.array()), input.array(), input.long());
    let content = input.rest();
    let mut token = ring.seal_token(ORIGIN, id, content, nonce);
    assert_eq!(ring.open_token(ORIGIN, id, &token).expect("our own token opens"), content);
    flip(&mut token, bit);
    assert!(ring.open_token(ORIGIN, id, &token).is_err(), "an altered token opens");
}

fn own_answer(mut input: Input<'_>) {
    let (key, id, nonce, bit) = (UploadKey(input.array()), UploadId(input.array()), input.array(), input.long());
    let content = input.rest();
    let mut sealed = answer::seal(&key, id, content, nonce);
    assert_eq!(answer::open(&key, id, &sealed).expect("our own answer opens"), content);
    flip(&mut sealed, bit);
    assert!(answer::open(&key, id, &sealed).is_err(), "an altered answer opens");
}

/// A key file: what is read is what its lines say, and each line names one key.
pub fn keyring(bytes: &[u8]) {
    let Some(text) = Input::new(bytes).text() else { return };
    let told = text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#'));
    let first = told.clone().next();
    let Ok(ring) = Keyring::parse(text) else { return };
    let line = ring.primary().to_line();
    let written: Vec<&str> = line.split(' ').collect();
    let read: Vec<&str> = first.expect("a ring has a key").split_ascii_whitespace().collect();
    assert_eq!((read[0], read[1].to_ascii_lowercase().as_str(), read[2]), (written[0], written[1], written[2]));
    let again = Keyring::parse(&line).expect("a line that we write");
    assert_eq!(again.primary().id(), ring.primary().id());
    assert_eq!(ring.owner_tags(b"", b"").count(), told.count(), "each line is a key");
    let other = ServiceKey::new(KwsId([0xff, 0, 0xff, 0]), [0; 32]).to_line();
    assert!(Keyring::parse(&format!("{other}\n{other}")).is_err(), "a key twice");
}
