//! The shared test vectors, as `vectors/README.md` explains them. The folders are listed, so a new file is a new test;
//! a body is opened whole, in odd pieces, and byte by byte.

#[path = "../examples/make-vectors/make/mod.rs"]
mod make;

use hoop_seal::KwsId;
use hoop_seal::signing::{GatewayKey, GatewayProof, Permit, PublicKey, Receipt, RequestSalt, SignedError};
use hoop_seal::word::{Nonce, StoredReceipt, StoredState, who};
use hoop_seal::{
    ContentKey, Grant, Keyring, OpenError, OpenStreamError, Opener, Prelude, PreludeError, Route, Sealer, Suite,
    TicketError, TokenError, UploadKey, answer,
};
use hoop_units::{UnixTime, UploadId};
use make::format::{
    self, Answer, Body, Class, Content, Octets, PermitContent, PresenceContent, ProofContent, Reason, ReceiptContent,
    StoredContent, Ticket, Token, Upload, Vector, pattern,
};
use ring::digest::{SHA256, digest};
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

/// Written down by others, and not to be made anew.
const GIVEN: [&str; 2] = ["rfc8188/3.1.json", "rfc8188/3.2.json"];

#[test]
fn the_committed_vectors_are_those_that_the_generator_makes() {
    let mut committed = texts();
    for given in GIVEN {
        assert!(committed.remove(given).is_some(), "{given} is missing");
    }
    let made = make::all();
    for (name, text) in &made {
        assert_eq!(committed.get(name), Some(text), "{name}: run `make vectors`");
    }
    assert_eq!(
        committed.keys().find(|name| !made.contains_key(*name)),
        None,
        "a file that the generator does not make"
    );
}

#[test]
fn every_body_ends_as_its_vector_says_however_it_is_cut() {
    for_each(|vector| match vector {
        Vector::Body(body) => Some(check_body(body)),
        _ => None,
    });
}

#[test]
fn a_body_that_is_written_as_ours_is_made_again_octet_by_byte() {
    for_each(|vector| match vector {
        Vector::Body(body) if body.canonical => Some(check_sealing(body)),
        _ => None,
    });
}

#[test]
fn every_upload_opens_with_the_services_keys_or_fails_as_its_vector_says() {
    for_each(|vector| match vector {
        Vector::Upload(upload) => Some(check_upload(upload)),
        _ => None,
    });
}

#[test]
fn every_ticket_opens_or_fails_as_its_vector_says() {
    for_each(|vector| match vector {
        Vector::Ticket(ticket) => Some(check_ticket(ticket)),
        _ => None,
    });
}

#[test]
fn every_token_opens_or_fails_as_its_vector_says() {
    for_each(|vector| match vector {
        Vector::Token(token) => Some(check_token(token)),
        _ => None,
    });
}

#[test]
fn every_answer_opens_or_fails_as_its_vector_says() {
    for_each(|vector| match vector {
        Vector::Answer(answer) => Some(check_answer(answer)),
        _ => None,
    });
}

#[test]
fn every_permit_opens_or_fails_as_its_vector_says() {
    for_each(|vector| match vector {
        Vector::Permit(permit) => Some(check_permit(permit)),
        _ => None,
    });
}

#[test]
fn every_receipt_opens_or_fails_as_its_vector_says() {
    for_each(|vector| match vector {
        Vector::Receipt(receipt) => Some(check_receipt(receipt)),
        _ => None,
    });
}

#[test]
fn every_gateways_proof_opens_or_fails_as_its_vector_says() {
    for_each(|vector| match vector {
        Vector::Proof(proof) => Some(check_proof(proof)),
        _ => None,
    });
}

#[test]
fn every_gateways_answer_to_a_nonce_verifies_or_fails_as_its_vector_says() {
    for_each(|vector| match vector {
        Vector::Presence(presence) => Some(check_presence(presence)),
        _ => None,
    });
}

#[test]
fn every_gateways_word_on_stored_ranges_opens_or_fails_as_its_vector_says() {
    for_each(|vector| match vector {
        Vector::Stored(stored) => Some(check_stored(stored)),
        _ => None,
    });
}

type Verdict = Result<(), String>;

/// Runs a check on each vector that it is for, and names all that fail.
fn for_each(check: impl Fn(&Vector) -> Option<Verdict>) {
    let mut checked = 0;
    let mut wrong = String::new();
    for (name, text) in texts() {
        let vector = serde_json::from_str(&text).unwrap_or_else(|error| panic!("{name}: {error}"));
        let Some(verdict) = check(&vector) else { continue };
        checked += 1;
        if let Err(reason) = verdict {
            wrong += &format!("{name}: {reason}\n");
        }
    }
    assert!(checked > 0, "no vector of that kind");
    assert!(wrong.is_empty(), "{checked} vectors, of which these fail:\n{wrong}");
}

fn texts() -> BTreeMap<String, String> {
    let inside = |folder: &Path| {
        let entries = fs::read_dir(folder).expect("a folder of vectors");
        entries.map(|entry| entry.expect("a readable folder").path()).collect::<Vec<_>>()
    };
    let folders = inside(&folder()).into_iter().filter(|path| path.is_dir());
    let read = |path: PathBuf| {
        let name = path.strip_prefix(folder()).expect("it is inside").to_string_lossy().into_owned();
        (name, fs::read_to_string(&path).expect("a readable vector"))
    };
    folders.flat_map(|kind| inside(&kind)).map(read).collect()
}

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../vectors")
}

fn expect<T: PartialEq + std::fmt::Debug>(what: &str, came: T, expected: T) -> Verdict {
    if came == expected { Ok(()) } else { Err(format!("{what}: expected {expected:?}, came {came:?}")) }
}

fn sha256(bytes: &[u8]) -> String {
    hex::encode(digest(&SHA256, bytes))
}

fn check_body(body: &Body) -> Verdict {
    let z = sealed(body);
    if let Some(made) = &body.made {
        expect("the sealed bytes' SHA-256", sha256(&z), made.sealed_sha256.clone())?;
    }
    let expected = (body.class, body.failed_record, body.released_sha256.clone());
    // A body of megabytes need not come byte by byte.
    let pieces: &[usize] = if z.len() < 1 << 20 { &[usize::MAX, 1, 7, 4_099] } else { &[usize::MAX, 4_099] };
    for &piece in pieces {
        let (released, outcome) = open(body, &z, piece);
        let (class, failed_record) = class_of(outcome)?;
        expect(&format!("in pieces of {piece}"), (class, failed_record, sha256(&released)), expected.clone())?;
    }
    Ok(())
}

/// The bytes of Z, made by rule where they are not stored.
fn sealed(body: &Body) -> Vec<u8> {
    match (&body.sealed, &body.made) {
        (Some(sealed), None) => sealed.0.clone(),
        (None, Some(made)) => {
            let prelude = Prelude::new(array(&made.salt), made.record_size, &made.key_id.0).expect("a prelude");
            let mut z = seal(body, &prelude, &pattern(made.plaintext_length));
            if let Some(flip) = made.flip {
                z[flip] ^= 1;
            }
            z.truncate(made.cut.unwrap_or(z.len()));
            z
        }
        _ => panic!("a body is stored or made"),
    }
}

fn seal(body: &Body, prelude: &Prelude, plaintext: &[u8]) -> Vec<u8> {
    let mut z = Vec::new();
    let mut sealer = Sealer::new(content_key(body, prelude), prelude, &mut z);
    plaintext.chunks(1_000).for_each(|piece| sealer.push(piece, &mut z));
    sealer.finish(&mut z);
    z
}

fn content_key(body: &Body, prelude: &Prelude) -> ContentKey {
    let suite = Suite::by_name(&body.suite).expect("a suite");
    let ikm_len = if suite == Suite::Aes128Gcm { 16 } else { 32 };
    ContentKey::from_keying_material(suite, &body.key.0[..ikm_len], prelude.salt())
}

/// Opens Z in pieces, the prelude included; what was released, and how it ended.
fn open(body: &Body, z: &[u8], piece: usize) -> (Vec<u8>, Result<(), OpenStreamError>) {
    let mut released = Vec::new();
    let outcome = open_into(body, z, piece, &mut released);
    (released, outcome)
}

fn open_into(body: &Body, z: &[u8], piece: usize, released: &mut Vec<u8>) -> Result<(), OpenStreamError> {
    let prelude = prelude_of(z, piece)?;
    let mut opener = Opener::new(content_key(body, &prelude), &prelude);
    for piece in z[prelude.len()..].chunks(piece) {
        opener.push(piece, released)?;
    }
    opener.finish(released)
}

/// Reads the prelude as more and more of Z comes.
fn prelude_of(z: &[u8], piece: usize) -> Result<Prelude, PreludeError> {
    let mut end = 0usize;
    loop {
        end = z.len().min(end.saturating_add(piece));
        match Prelude::parse(&z[..end]) {
            Err(PreludeError::Incomplete { needed }) if end < z.len() => assert!(needed > end),
            outcome => return outcome,
        }
    }
}

fn class_of(outcome: Result<(), OpenStreamError>) -> Result<(Class, Option<u64>), String> {
    Ok(match outcome {
        Ok(()) => (Class::Success, None),
        Err(OpenStreamError::Prelude(_)) => (Class::HeaderFailure, None),
        Err(OpenStreamError::Record(error)) => (Class::RecordFailure, Some(record_of(error))),
        Err(OpenStreamError::Truncated) => (Class::Truncated, None),
    })
}

fn record_of(error: OpenError) -> u64 {
    match error {
        OpenError::TooShort { index, .. }
        | OpenError::Unauthentic { index }
        | OpenError::Misplaced { index, .. }
        | OpenError::NoDelimiter { index } => index,
    }
}

fn check_sealing(body: &Body) -> Verdict {
    let z = sealed(body);
    let (plaintext, outcome) = open(body, &z, usize::MAX);
    outcome.map_err(|error| error.to_string())?;
    let prelude = Prelude::parse(&z).map_err(|error| error.to_string())?;
    expect("sealed again", sha256(&seal(body, &prelude, &plaintext)), sha256(&z))
}

fn check_upload(upload: &Upload) -> Verdict {
    let z = &upload.sealed.0;
    let prelude = Prelude::parse(z).map_err(|error| error.to_string())?;
    let ticket = match ring_of(&upload.keyring).open_ticket(&upload.origin, prelude.key_id()) {
        Ok(ticket) => ticket,
        Err(error) => {
            return expect("outcome", (Class::TicketFailure, Some(why(error))), (upload.class, upload.reason));
        }
    };
    let mut released = Vec::new();
    let key = ContentKey::new(ticket.grant.suite, &ticket.grant.key, prelude.salt());
    let mut opener = Opener::new(key, &prelude);
    let outcome = opener.push(&z[prelude.len()..], &mut released).and_then(|()| opener.finish(&mut released));
    let (class, failed_record) = class_of(outcome)?;
    expect("outcome", (class, failed_record), (upload.class, upload.failed_record))?;
    expect("released", sha256(&released), upload.released_sha256.clone())
}

fn check_ticket(vector: &Ticket) -> Verdict {
    let ring = ring_of(&vector.keyring);
    let opened = match ring.open_ticket(&vector.origin, &vector.ticket.0) {
        Err(error) => {
            return expect("outcome", (Class::TicketFailure, Some(why(error))), (vector.class, vector.reason));
        }
        Ok(opened) => opened,
    };
    expect("outcome", Class::Success, vector.class)?;
    let Grant { key, not_before, max_bytes, route, suite } = &opened.grant;
    let content = Content {
        kws_id: opened.label.kws_id.to_string(),
        upload_id: opened.label.upload_id.to_string(),
        expires: opened.label.expires.0,
        key: Octets(key.0.to_vec()),
        not_before: not_before.0,
        max_bytes: *max_bytes,
        route: hex::encode(route.0),
        suite: suite.name().into(),
    };
    expect("content", Some(&content), vector.content.as_ref())?;
    expect("the route fits", route.fits("POST", "/?j"), true)?;
    expect("another route fits", route.fits("PUT", "/"), *route == Route::ANY)?;
    if opened.label.kws_id != ring.primary().id() {
        return Ok(());
    }
    let nonce = array(&Octets(vector.ticket.0[25..37].to_vec()));
    let (id, expires) = (opened.label.upload_id, UnixTime(content.expires));
    let again = ring.seal_ticket(&vector.origin, id, expires, &opened.grant, nonce);
    expect("sealed again", &again[..], &vector.ticket.0[..])
}

fn why(error: TicketError) -> Reason {
    match error {
        TicketError::Length(_) => Reason::Length,
        TicketError::Version(_) => Reason::Version,
        TicketError::UnknownKey(_) => Reason::UnknownKey,
        TicketError::Unauthentic => Reason::Unauthentic,
        TicketError::Unsupported { .. } => Reason::Unsupported,
    }
}

fn check_token(vector: &Token) -> Verdict {
    let id: UploadId = vector.upload_id.parse().map_err(|_| "no upload id")?;
    let ring = ring_of(&vector.keyring);
    match ring.open_token(&vector.origin, id, &vector.token.0) {
        Ok(content) => {
            expect("outcome", Class::Success, vector.class)?;
            expect("content", Some(String::from_utf8_lossy(&content).into_owned()), vector.content.clone())?;
            if vector.token.0[1..5] != ring.primary().id().0 {
                return Ok(());
            }
            let nonce = array(&Octets(vector.token.0[5..17].to_vec()));
            expect("sealed again", ring.seal_token(&vector.origin, id, &content, nonce), vector.token.0.clone())
        }
        Err(error) => {
            let reasons: &[Reason] = match error {
                // The library does not tell these two apart.
                TokenError::Form => &[Reason::Length, Reason::Version],
                TokenError::UnknownKey(_) => &[Reason::UnknownKey],
                TokenError::Unauthentic => &[Reason::Unauthentic],
            };
            expect("outcome", Class::TokenFailure, vector.class)?;
            expect(
                &format!("{error} is the reason"),
                vector.reason.is_some_and(|reason| reasons.contains(&reason)),
                true,
            )
        }
    }
}

fn check_answer(vector: &Answer) -> Verdict {
    let id: UploadId = vector.upload_id.parse().map_err(|_| "no upload id")?;
    let key = UploadKey(array(&vector.key));
    match answer::open(&key, id, &vector.answer.0) {
        Ok(content) => {
            expect("content", Some(String::from_utf8_lossy(&content).into_owned()), vector.content.clone())?;
            let nonce = array(&Octets(vector.answer.0[..12].to_vec()));
            expect("sealed again", answer::seal(&key, id, &content, nonce), vector.answer.0.clone())
        }
        Err(_) => expect("outcome", Class::AnswerFailure, vector.class),
    }
}

fn check_permit(vector: &format::Permit) -> Verdict {
    let permit = Permit::open(&vector.permit.0, &vector.origin, |id| published(&vector.signing_keys, id));
    let permit = match permit {
        Ok(permit) => permit,
        Err(error) => {
            return expect("outcome", (Class::PermitFailure, Some(not_signed(error))), (vector.class, vector.reason));
        }
    };
    let content = PermitContent {
        upload_id: permit.upload_id.to_string(),
        max_bytes: permit.max_bytes,
        expires: permit.expires.0,
        gateway: permit.gateway.map(|gateway| gateway.to_string()),
    };
    expect("content", Some(&content), vector.content.as_ref())?;
    let ring = ring_of(&vector.keyring);
    check_published(&ring, &vector.signing_keys)?;
    match vector.permit.0[1..5] == ring.primary().id().0 {
        true => expect("signed again", &ring.sign_permit(&vector.origin, &permit)[..], &vector.permit.0[..]),
        false => Ok(()),
    }
}

fn check_receipt(vector: &format::Receipt) -> Verdict {
    let receipt = Receipt::open(&vector.receipt.0, &vector.origin, |id| published(&vector.signing_keys, id));
    let receipt = match receipt {
        Ok(receipt) => receipt,
        Err(error) => {
            return expect("outcome", (Class::ReceiptFailure, Some(not_signed(error))), (vector.class, vector.reason));
        }
    };
    let content = ReceiptContent {
        upload_id: receipt.upload_id.to_string(),
        state: receipt.outcome.name().into(),
        time: receipt.time.0,
        total: receipt.total,
        digest: hex::encode(receipt.digest),
        request: receipt.request.map(hex::encode),
    };
    expect("content", Some(&content), vector.content.as_ref())?;
    if let Some(asked) = &vector.asked {
        let key = UploadKey(asked.key.0.clone().try_into().map_err(|_| "no key")?);
        let request = RequestSalt::of(&key, receipt.upload_id).digest(&asked.method, &asked.path);
        expect("request", Some(request), receipt.request)?;
    }
    let ring = ring_of(&vector.keyring);
    check_published(&ring, &vector.signing_keys)?;
    match vector.receipt.0[1..5] == ring.primary().id().0 {
        true => expect("signed again", &ring.sign_receipt(&vector.origin, &receipt)[..], &vector.receipt.0[..]),
        false => Ok(()),
    }
}

fn check_proof(vector: &format::Proof) -> Verdict {
    let id: UploadId = vector.upload_id.parse().map_err(|_| "no upload id")?;
    let proof = match GatewayProof::open(&vector.proof.0, &vector.origin, id) {
        Ok(proof) => proof,
        Err(error) => {
            return expect("outcome", (Class::ProofFailure, Some(not_signed(error))), (vector.class, vector.reason));
        }
    };
    let content = ProofContent { gateway: proof.gateway.to_string(), time: proof.time.0 };
    expect("content", Some(&content), vector.content.as_ref())?;
    let key = GatewayKey::from_seed(&array(vector.seed.as_ref().ok_or("no seed")?));
    expect("the gateway's name", key.id(), proof.gateway)?;
    expect("proven again", &key.prove(&vector.origin, id, proof.time)[..], &vector.proof.0[..])
}

fn check_presence(vector: &format::Presence) -> Verdict {
    let nonce = Nonce(array(&vector.nonce));
    let gateway = match who(&vector.presence.0, &vector.authority, &nonce) {
        Ok(gateway) => gateway,
        Err(error) => {
            return expect("outcome", (Class::PresenceFailure, Some(not_signed(error))), (vector.class, vector.reason));
        }
    };
    let content = PresenceContent { gateway: gateway.to_string() };
    expect("content", Some(&content), vector.content.as_ref())?;
    let key = GatewayKey::from_seed(&array(vector.seed.as_ref().ok_or("no seed")?));
    expect("answered again", &key.answer(&vector.authority, &nonce)[..], &vector.presence.0[..])
}

fn check_stored(vector: &format::Stored) -> Verdict {
    let (gateway, stored) = match StoredReceipt::open(&vector.stored.0, &vector.origin) {
        Ok(opened) => opened,
        Err(error) => {
            return expect("outcome", (Class::StoredFailure, Some(not_signed(error))), (vector.class, vector.reason));
        }
    };
    let state = match stored.state {
        StoredState::Receiving => "receiving",
        StoredState::Stored => "stored",
        StoredState::Delivering => "delivering",
    };
    let content = StoredContent {
        gateway: gateway.to_string(),
        upload_id: stored.upload_id.to_string(),
        state: state.to_owned(),
        time: stored.time.0,
        total: stored.total,
        missing: stored.missing.clone(),
    };
    expect("content", Some(&content), vector.content.as_ref())?;
    let key = GatewayKey::from_seed(&array(vector.seed.as_ref().ok_or("no seed")?));
    expect("signed again", &key.sign_stored(&vector.origin, &stored)[..], &vector.stored.0[..])
}

fn published(keys: &BTreeMap<String, Octets>, id: KwsId) -> Option<PublicKey> {
    keys.get(&id.to_string()).map(|key| PublicKey(array(key)))
}

/// Whether the published keys are those of the ring.
fn check_published(ring: &Keyring, keys: &BTreeMap<String, Octets>) -> Verdict {
    let ours = ring.signing_keys().map(|(id, key)| (id.to_string(), Octets(key.0.to_vec()))).collect();
    expect("public keys", keys.clone(), ours)
}

fn not_signed(error: SignedError) -> Reason {
    match error {
        SignedError::Length { .. } => Reason::Length,
        SignedError::Version(_) => Reason::Version,
        SignedError::UnknownKey(_) => Reason::UnknownKey,
        SignedError::Unauthentic => Reason::Unauthentic,
        SignedError::Unsupported(_) => Reason::Unsupported,
    }
}

fn ring_of(lines: &[String]) -> Keyring {
    Keyring::parse(&lines.join("\n")).expect("a key file")
}

fn array<const N: usize>(bytes: &Octets) -> [u8; N] {
    bytes.0.as_slice().try_into().expect("the vector gives that many bytes")
}
