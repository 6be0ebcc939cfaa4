//! What is signed: permits, receipts, gateways' proofs, and gateways' words to devices.

use super::format::{
    self, Class, Octets, PermitContent, PresenceContent, ProofContent, Reason, ReceiptContent, StoredContent, Vector,
};
use super::raw::{ORIGIN, OTHER_ORIGIN, ServiceKey, ed25519_public, ed25519_sign, hkdf, seeded};
use ring::digest::{SHA256, digest};
use std::collections::BTreeMap;

type Add<'a> = &'a mut dyn FnMut(String, Vector);

pub fn make(add: Add) {
    permits(add);
    receipts(add);
    proofs(add);
    presences(add);
    stored(add);
}

fn new_key() -> ServiceKey {
    ServiceKey::seeded("new")
}

fn old_key() -> ServiceKey {
    ServiceKey::seeded("old")
}

fn upload_id() -> Vec<u8> {
    seeded("upload id", 16)
}

fn published(keys: &[ServiceKey]) -> BTreeMap<String, Octets> {
    keys.iter().map(|key| (hex::encode(key.id), Octets(ed25519_public(&key.derive("signatures"))))).collect()
}

fn flipped(bytes: &[u8], at: usize) -> Vec<u8> {
    let mut bytes = bytes.to_vec();
    bytes[at] ^= 0x10;
    bytes
}

/// `body` and the signature over word, origin and it.
fn signed(by: &ServiceKey, word: &str, origin: &str, body: &[u8]) -> Vec<u8> {
    let message = [word.as_bytes(), &[0], origin.as_bytes(), &[0], body].concat();
    [body, &ed25519_sign(&by.derive("signatures"), &message)].concat()
}

/// A permit's or receipt's bytes, with what must come of them.
struct Case<'a, T> {
    name: &'a str,
    about: &'a str,
    bytes: Vec<u8>,
    origin: &'a str,
    keys: Vec<ServiceKey>,
    outcome: Result<T, Reason>,
}

/// What goes wrong in the same way for permits and receipts.
fn refusals<'a, T>(sealed: &[u8], other_key: Vec<u8>, other_word: Vec<u8>, later: Vec<u8>) -> Vec<Case<'a, T>> {
    let both = || vec![new_key(), old_key()];
    let case =
        |name, about, bytes, reason| Case { name, about, bytes, origin: ORIGIN, keys: both(), outcome: Err(reason) };
    vec![
        case("version-flipped", "a flipped bit in the version", flipped(sealed, 0), Reason::Version),
        case("version-later", "of a later version, well signed", later, Reason::Version),
        case("kws-id-flipped", "a flipped bit in the key's id", flipped(sealed, 1), Reason::UnknownKey),
        case("upload-id-flipped", "a flipped bit in the upload's id", flipped(sealed, 5), Reason::Unauthentic),
        case(
            "signature-flipped",
            "a flipped bit in the signature",
            flipped(sealed, sealed.len() - 64),
            Reason::Unauthentic,
        ),
        case(
            "scalar-flipped",
            "a flipped bit in the signature's second half",
            flipped(sealed, sealed.len() - 1),
            Reason::Unauthentic,
        ),
        case("other-key", "it names another key than the one that signed", other_key, Reason::Unauthentic),
        case("other-word", "signed as something else", other_word, Reason::Unauthentic),
        case("empty", "no octet at all", vec![], Reason::Length),
        case("short", "an octet too few", sealed[..sealed.len() - 1].to_vec(), Reason::Length),
        case("long", "an octet too many", [sealed, &[0]].concat(), Reason::Length),
        Case {
            name: "wrong-origin",
            about: "of another service",
            bytes: sealed.to_vec(),
            origin: OTHER_ORIGIN,
            keys: both(),
            outcome: Err(Reason::Unauthentic),
        },
        Case {
            name: "unknown-key",
            about: "signed with a key that is not published",
            bytes: sealed.to_vec(),
            origin: ORIGIN,
            keys: vec![old_key()],
            outcome: Err(Reason::UnknownKey),
        },
    ]
}

fn permits(add: Add) {
    let (max_bytes, expires) = (10_737_418_240u64, 1_795_604_800u32);
    let gateway = gateway_id(&gateway_seed());
    let body = |version: u8, key: &ServiceKey, gateway: &[u8]| {
        let (max_bytes, expires) = (max_bytes.to_be_bytes(), expires.to_be_bytes());
        [&[version][..], &key.id, &upload_id(), &max_bytes, &expires, gateway].concat()
    };
    let sign =
        |version, key: &ServiceKey, gateway: &[u8]| signed(key, "hoop-permit-v1", ORIGIN, &body(version, key, gateway));
    let content = |gateway: Option<&[u8]>| {
        let gateway = gateway.map(hex::encode);
        Ok(PermitContent { upload_id: hex::encode(upload_id()), max_bytes, expires, gateway })
    };
    let success = |name, about, bytes, outcome| Case {
        name,
        about,
        bytes,
        origin: ORIGIN,
        keys: vec![new_key(), old_key()],
        outcome,
    };
    let sealed = sign(1, &new_key(), &[0; 16]);
    let mut cases = vec![
        success("valid", "a permit for any gateway", sealed.clone(), content(None)),
        success("gateway", "a permit for one gateway", sign(1, &new_key(), &gateway), content(Some(&gateway))),
        success("old-key", "a permit by an older key", sign(1, &old_key(), &[0; 16]), content(None)),
    ];
    for (name, about, at) in [
        ("max-bytes-flipped", "a flipped bit in the length", 21),
        ("expires-flipped", "a flipped bit in the expiry", 29),
        ("gateway-flipped", "a flipped bit in the gateway's name", 33),
    ] {
        cases.push(success(name, about, flipped(&sealed, at), Err(Reason::Unauthentic)));
    }
    let renamed = body(1, &old_key(), &[0; 16]);
    let renamed = [&renamed[..], &signed(&new_key(), "hoop-permit-v1", ORIGIN, &renamed)[49..]].concat();
    let other_word = signed(&new_key(), "hoop-receipt-v1", ORIGIN, &body(1, &new_key(), &[0; 16]));
    cases.extend(refusals(&sealed, renamed, other_word, sign(2, &new_key(), &[0; 16])));
    for case in cases {
        let (content, reason) = (case.outcome.as_ref().ok().cloned(), case.outcome.as_ref().err().copied());
        let vector = format::Permit {
            about: case.about.into(),
            class: if reason.is_none() { Class::Success } else { Class::PermitFailure },
            reason,
            origin: case.origin.into(),
            keyring: super::capsules::lines(&case.keys),
            signing_keys: published(&case.keys),
            permit: Octets(case.bytes),
            content,
        };
        add(format!("permit-{}", case.name), Vector::Permit(vector));
    }
}

fn receipts(add: Add) {
    let (time, total, body_digest) = (1_795_000_042u32, 3_146_021u64, digest(&SHA256, b"hoop vectors body"));
    let body = |version: u8, key: &ServiceKey, state: u8| {
        let (time, total) = (time.to_be_bytes(), total.to_be_bytes());
        [&[version][..], &key.id, &upload_id(), &[state], &time, &total, body_digest.as_ref()].concat()
    };
    let sign = |version, key: &ServiceKey, state| signed(key, "hoop-receipt-v1", ORIGIN, &body(version, key, state));
    let content = |state: &str| {
        let (upload_id, digest) = (hex::encode(upload_id()), hex::encode(body_digest.as_ref()));
        Ok(ReceiptContent { upload_id, state: state.into(), time, total, digest, request: None })
    };
    let success = |name, about, bytes, outcome| Case {
        name,
        about,
        bytes,
        origin: ORIGIN,
        keys: vec![new_key(), old_key()],
        outcome,
    };
    let sealed = sign(1, &new_key(), 1);
    let mut cases = vec![
        success("valid", "the receipt of an accepted upload", sealed.clone(), content("accepted")),
        success("rejected", "the receipt of a rejected upload", sign(1, &new_key(), 2), content("rejected")),
        success("old-key", "a receipt by an older key", sign(1, &old_key(), 1), content("accepted")),
        success("state-0", "a state that is none, well signed", sign(1, &new_key(), 0), Err(Reason::Unsupported)),
        success("state-3", "a state of tomorrow, well signed", sign(1, &new_key(), 3), Err(Reason::Unsupported)),
    ];
    for (name, about, at) in [
        ("state-flipped", "a flipped bit in the state", 21),
        ("time-flipped", "a flipped bit in the time", 22),
        ("total-flipped", "a flipped bit in the length", 26),
        ("digest-flipped", "a flipped bit in the body's digest", 34),
    ] {
        cases.push(success(name, about, flipped(&sealed, at), Err(Reason::Unauthentic)));
    }
    let renamed = body(1, &old_key(), 1);
    let renamed = [&renamed[..], &signed(&new_key(), "hoop-receipt-v1", ORIGIN, &renamed)[66..]].concat();
    let other_word = signed(&new_key(), "hoop-permit-v1", ORIGIN, &body(1, &new_key(), 1));
    cases.extend(refusals(&sealed, renamed, other_word, sign(3, &new_key(), 1)));
    for case in cases {
        let asked = None;
        let (content, reason) = (case.outcome.as_ref().ok().cloned(), case.outcome.as_ref().err().copied());
        let vector = format::Receipt {
            about: case.about.into(),
            class: if reason.is_none() { Class::Success } else { Class::ReceiptFailure },
            reason,
            origin: case.origin.into(),
            keyring: super::capsules::lines(&case.keys),
            signing_keys: published(&case.keys),
            receipt: Octets(case.bytes),
            asked,
            content,
        };
        add(format!("receipt-{}", case.name), Vector::Receipt(vector));
    }
    receipts_of_requests(add, &body(2, &new_key(), 1), content("accepted"));
}

/// Those of version 2, which say for which request they are; `common` is what both versions have.
fn receipts_of_requests(add: Add, common: &[u8], content: Result<ReceiptContent, Reason>) {
    let (key, method, path) = (seeded("upload key", 32), "POST", "/wiki/Special:Upload");
    let salt = hkdf(&upload_id(), &key, b"hoop-request-v1", 32);
    let request =
        digest(&SHA256, &[b"hoop-request-v1\0", &salt[..], method.as_bytes(), b" ", path.as_bytes()].concat());
    let body = [common, request.as_ref()].concat();
    let valid = signed(&new_key(), "hoop-receipt-v2", ORIGIN, &body);
    let content = content.map(|content| ReceiptContent { request: Some(hex::encode(request.as_ref())), ..content });
    let old_word = signed(&new_key(), "hoop-receipt-v1", ORIGIN, &body);
    let first = [&[1][..], &valid[1..]].concat();
    let cut = signed(&new_key(), "hoop-receipt-v2", ORIGIN, common);
    for (name, about, bytes, outcome) in [
        ("request", "a receipt of version 2, which is for one request", valid.clone(), content),
        ("request-flipped", "a flipped bit in the request's digest", flipped(&valid, 66), Err(Reason::Unauthentic)),
        ("request-old-word", "version 2, signed as version 1", old_word, Err(Reason::Unauthentic)),
        ("request-as-first", "version 2, called version 1", first, Err(Reason::Length)),
        ("request-missing", "version 2 without its request, well signed", cut, Err(Reason::Length)),
    ] {
        let (content, reason) = (outcome.as_ref().ok().cloned(), outcome.err());
        let vector = format::Receipt {
            about: about.into(),
            class: if reason.is_none() { Class::Success } else { Class::ReceiptFailure },
            reason,
            origin: ORIGIN.into(),
            keyring: super::capsules::lines(&[new_key(), old_key()]),
            signing_keys: published(&[new_key(), old_key()]),
            receipt: Octets(bytes),
            asked: reason.is_none().then(|| format::Asked {
                key: Octets(key.clone()),
                method: method.into(),
                path: path.into(),
            }),
            content,
        };
        add(format!("receipt-{name}"), Vector::Receipt(vector));
    }
}

fn gateway_seed() -> Vec<u8> {
    seeded("gateway", 32)
}

fn gateway_id(seed: &[u8]) -> Vec<u8> {
    digest(&SHA256, &ed25519_public(seed)).as_ref()[..16].to_vec()
}

fn proofs(add: Add) {
    let (seed, time) = (gateway_seed(), 1_795_000_042u32);
    let prove = |word: &str| {
        let time = time.to_be_bytes();
        let message = [word.as_bytes(), &[0], ORIGIN.as_bytes(), &[0], &upload_id(), &time].concat();
        [&ed25519_public(&seed)[..], &time, &ed25519_sign(&seed, &message)].concat()
    };
    let proof = prove("hoop-gateway-v1");
    let mut vector = |name: &str, about: &str, proof: Vec<u8>, at: (&str, &[u8]), reason: Option<Reason>| {
        let content = ProofContent { gateway: hex::encode(gateway_id(&seed)), time };
        let vector = format::Proof {
            about: about.into(),
            class: if reason.is_none() { Class::Success } else { Class::ProofFailure },
            reason,
            origin: at.0.into(),
            upload_id: hex::encode(at.1),
            seed: reason.is_none().then(|| Octets(seed.clone())),
            proof: Octets(proof),
            content: reason.is_none().then_some(content),
        };
        add(format!("proof-{name}"), Vector::Proof(vector));
    };
    let id = upload_id();
    let here = (ORIGIN, &id[..]);
    let unauthentic = Some(Reason::Unauthentic);
    vector("valid", "a gateway's proof", proof.clone(), here, None);
    vector("key-flipped", "a flipped bit in the public key", flipped(&proof, 1), here, unauthentic);
    vector("time-flipped", "a flipped bit in the time", flipped(&proof, 32), here, unauthentic);
    vector("signature-flipped", "a flipped bit in the signature", flipped(&proof, 36), here, unauthentic);
    vector("other-upload", "of another upload", proof.clone(), (ORIGIN, &seeded("another upload id", 16)), unauthentic);
    vector("wrong-origin", "for another service", proof.clone(), (OTHER_ORIGIN, &id), unauthentic);
    vector("other-word", "signed as something else", prove("hoop-permit-v1"), here, unauthentic);
    let other_key = [&ed25519_public(&seeded("another gateway", 32))[..], &proof[32..]].concat();
    vector("other-key", "with another gateway's public key", other_key, here, unauthentic);
    vector("empty", "no octet at all", vec![], here, Some(Reason::Length));
    vector("short", "an octet too few", proof[..99].to_vec(), here, Some(Reason::Length));
    vector("long", "an octet too many", [&proof[..], &[0]].concat(), here, Some(Reason::Length));
}

/// `body` and a gateway's signature over word, text and it.
fn signed_by_gateway(seed: &[u8], word: &str, text: &str, body: &[u8]) -> Vec<u8> {
    ed25519_sign(seed, &[word.as_bytes(), &[0], text.as_bytes(), &[0], body].concat())
}

fn presences(add: Add) {
    const AT: &str = "192.0.2.1:4667";
    let (seed, nonce) = (gateway_seed(), seeded("nonce", 24));
    let answer = |word: &str| [&ed25519_public(&seed)[..], &signed_by_gateway(&seed, word, AT, &nonce)].concat();
    let presence = answer("hoop-gateway-here-v1");
    let mut vector = |name: &str, about: &str, presence: Vec<u8>, at: (&str, &[u8]), reason: Option<Reason>| {
        let content = PresenceContent { gateway: hex::encode(gateway_id(&seed)) };
        let vector = format::Presence {
            about: about.into(),
            class: if reason.is_none() { Class::Success } else { Class::PresenceFailure },
            reason,
            authority: at.0.into(),
            nonce: Octets(at.1.to_vec()),
            seed: reason.is_none().then(|| Octets(seed.clone())),
            presence: Octets(presence),
            content: reason.is_none().then_some(content),
        };
        add(format!("presence-{name}"), Vector::Presence(vector));
    };
    let here = (AT, &nonce[..]);
    let unauthentic = Some(Reason::Unauthentic);
    vector("valid", "a gateway's answer to a nonce", presence.clone(), here, None);
    vector("key-flipped", "a flipped bit in the public key", flipped(&presence, 1), here, unauthentic);
    vector("signature-flipped", "a flipped bit in the signature", flipped(&presence, 40), here, unauthentic);
    vector("other-place", "asked at another place", presence.clone(), ("192.0.2.2:4667", &nonce), unauthentic);
    vector("other-port", "asked at another port", presence.clone(), ("192.0.2.1:4668", &nonce), unauthentic);
    vector("other-nonce", "to another nonce", presence.clone(), (AT, &seeded("another nonce", 24)), unauthentic);
    vector("other-word", "signed as something else", answer("hoop-stored-v1"), here, unauthentic);
    let other_key = [&ed25519_public(&seeded("another gateway", 32))[..], &presence[32..]].concat();
    vector("other-key", "with another gateway's public key", other_key, here, unauthentic);
    vector("empty", "no byte at all", vec![], here, Some(Reason::Length));
    vector("short", "a byte too few", presence[..95].to_vec(), here, Some(Reason::Length));
    vector("long", "a byte too many", [&presence[..], &[0]].concat(), here, Some(Reason::Length));
}

fn stored(add: Add) {
    const STATES: [&str; 5] = ["", "receiving", "stored", "delivering", ""];
    let seed = gateway_seed();
    let content = |state: u8, missing: &str| StoredContent {
        gateway: hex::encode(gateway_id(&seed)),
        upload_id: hex::encode(upload_id()),
        state: STATES[usize::from(state)].into(),
        time: 1_795_000_042,
        total: 196_771,
        missing: missing.into(),
    };
    let sign = |version: u8, word: &str, state: u8, missing: &str| {
        let StoredContent { time, total, .. } = content(state, missing);
        let (time, total) = (time.to_be_bytes(), total.to_be_bytes());
        let public = ed25519_public(&seed);
        let body = [&[version], &public[..], &upload_id(), &[state], &time, &total, missing.as_bytes()].concat();
        let signature = signed_by_gateway(&seed, word, ORIGIN, &body);
        [body, signature].concat()
    };
    let right = |state, missing| sign(1, "hoop-stored-v1", state, missing);
    let mut vector =
        |name: &str, about: &str, stored: Vec<u8>, origin: &str, outcome: Result<StoredContent, Reason>| {
            let vector = format::Stored {
                about: about.into(),
                class: if outcome.is_ok() { Class::Success } else { Class::StoredFailure },
                reason: outcome.as_ref().err().copied(),
                origin: origin.into(),
                seed: outcome.is_ok().then(|| Octets(seed.clone())),
                stored: Octets(stored),
                content: outcome.ok(),
            };
            add(format!("stored-{name}"), Vector::Stored(vector));
        };
    let longest = "9".repeat(32 * 42);
    let some = "128-65663, 131200-196770";
    vector("valid", "a gateway has all of an upload", right(2, ""), ORIGIN, Ok(content(2, "")));
    vector("delivering", "and it is on its way", right(3, ""), ORIGIN, Ok(content(3, "")));
    vector("receiving", "a gateway has some of it", right(1, some), ORIGIN, Ok(content(1, some)));
    vector("longest", "the longest text of what is missing", right(1, &longest), ORIGIN, Ok(content(1, &longest)));
    let whole = right(1, some);
    let wrong = Err(Reason::Unauthentic);
    for (name, about, at) in [
        ("key-flipped", "a flipped bit in the public key", 2),
        ("upload-id-flipped", "a flipped bit in the upload's id", 33),
        ("state-flipped", "a flipped bit in the state", 49),
        ("time-flipped", "a flipped bit in the time", 50),
        ("total-flipped", "a flipped bit in the length", 54),
        ("missing-flipped", "a flipped bit in what is missing", 62),
        ("signature-flipped", "a flipped bit in the signature", whole.len() - 1),
    ] {
        vector(name, about, flipped(&whole, at), ORIGIN, wrong.clone());
    }
    vector("version-flipped", "a flipped bit in the version", flipped(&whole, 0), ORIGIN, Err(Reason::Version));
    let later = sign(2, "hoop-stored-v1", 2, "");
    vector("version-later", "of a later version", later, ORIGIN, Err(Reason::Version));
    for (name, about, state) in [("state-0", "of no state", 0), ("state-4", "of a state that is none", 4)] {
        vector(name, about, right(state, ""), ORIGIN, Err(Reason::Unsupported));
    }
    let other_word = sign(1, "hoop-gateway-here-v1", 2, "");
    vector("other-word", "signed as something else", other_word, ORIGIN, wrong.clone());
    let other = ed25519_public(&seeded("another gateway", 32));
    let other_key = [&[1], &other[..], &right(2, "")[33..]].concat();
    vector("other-key", "with another gateway's public key", other_key, ORIGIN, wrong.clone());
    vector("wrong-origin", "for another service", right(2, ""), OTHER_ORIGIN, wrong.clone());
    let less = [&whole[..62 + 9], &whole[whole.len() - 64..]].concat();
    vector("missing-cut", "with less missing than was signed", less, ORIGIN, wrong);
    let length = Err(Reason::Length);
    vector("empty", "no byte at all", vec![], ORIGIN, length.clone());
    vector("short", "a byte too few", right(2, "")[..125].to_vec(), ORIGIN, length.clone());
    let longer = right(1, &[&longest[..], "9"].concat());
    vector("long", "a byte too many", longer, ORIGIN, length);
}
