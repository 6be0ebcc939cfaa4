//! What is signed: permits, receipts, gateways' proofs.

use super::format::{self, Class, Octets, PermitContent, ProofContent, Reason, ReceiptContent, Vector};
use super::raw::{ORIGIN, OTHER_ORIGIN, ServiceKey, ed25519_public, ed25519_sign, hkdf, seeded};
use ring::digest::{SHA256, digest};
use std::collections::BTreeMap;

type Add<'a> = &'a mut dyn FnMut(String, Vector);

pub fn make(add: Add) {
    permits(add);
    receipts(add);
    proofs(add);
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

fn flipped(octets: &[u8], at: usize) -> Vec<u8> {
    let mut octets = octets.to_vec();
    octets[at] ^= 0x10;
    octets
}

/// `body` and the signature over word, origin and it.
fn signed(by: &ServiceKey, word: &str, origin: &str, body: &[u8]) -> Vec<u8> {
    let message = [word.as_bytes(), &[0], origin.as_bytes(), &[0], body].concat();
    [body, &ed25519_sign(&by.derive("signatures"), &message)].concat()
}

/// A permit's or receipt's octets, with what must come of them.
struct Case<'a, T> {
    name: &'a str,
    about: &'a str,
    octets: Vec<u8>,
    origin: &'a str,
    keys: Vec<ServiceKey>,
    outcome: Result<T, Reason>,
}

/// What goes wrong in the same way for permits and receipts.
fn refusals<'a, T>(sealed: &[u8], other_key: Vec<u8>, other_word: Vec<u8>, later: Vec<u8>) -> Vec<Case<'a, T>> {
    let both = || vec![new_key(), old_key()];
    let case =
        |name, about, octets, reason| Case { name, about, octets, origin: ORIGIN, keys: both(), outcome: Err(reason) };
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
            octets: sealed.to_vec(),
            origin: OTHER_ORIGIN,
            keys: both(),
            outcome: Err(Reason::Unauthentic),
        },
        Case {
            name: "unknown-key",
            about: "signed with a key that is not published",
            octets: sealed.to_vec(),
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
    let success = |name, about, octets, outcome| Case {
        name,
        about,
        octets,
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
            permit: Octets(case.octets),
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
    let success = |name, about, octets, outcome| Case {
        name,
        about,
        octets,
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
            receipt: Octets(case.octets),
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
    for (name, about, octets, outcome) in [
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
            receipt: Octets(octets),
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
