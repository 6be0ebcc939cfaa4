//! The formats of `docs/protocol.md` once more, from ring's primitives: able to make what the library refuses to make,
//! and a second opinion on what it does make.

use ring::aead::{AES_128_GCM, AES_256_GCM, Aad, LessSafeKey, Nonce, UnboundKey};
use ring::digest::{SHA256, digest};
use ring::hkdf::{HKDF_SHA256, KeyType, Salt};
use ring::signature::{Ed25519KeyPair, KeyPair as _};

pub const RECORD_SIZE: u32 = 65_536;
pub const ORIGIN: &str = "https://photos.example";
pub const OTHER_ORIGIN: &str = "https://other.example";

/// `len` bytes that follow from `seed`: SHA-256 of the seed and a counter.
pub fn seeded(seed: &str, len: usize) -> Vec<u8> {
    let blocks =
        (0u32..).flat_map(|n| digest(&SHA256, format!("hoop vectors {seed} {n}").as_bytes()).as_ref().to_vec());
    blocks.take(len).collect()
}

pub fn sha256(bytes: &[u8]) -> String {
    hex::encode(digest(&SHA256, bytes))
}

struct Len(usize);

impl KeyType for Len {
    fn len(&self) -> usize {
        self.0
    }
}

pub fn hkdf(salt: &[u8], ikm: &[u8], info: &[u8], len: usize) -> Vec<u8> {
    let mut out = vec![0; len];
    let info = [info];
    let prk = Salt::new(HKDF_SHA256, salt).extract(ikm);
    prk.expand(&info, Len(len)).and_then(|okm| okm.fill(&mut out)).expect("a short length");
    out
}

/// AES-GCM with a key of 16 or 32 bytes; the tag is at the end.
pub fn aead(key: &[u8], nonce: &[u8], aad: &[u8], plaintext: &[u8]) -> Vec<u8> {
    let algorithm = if key.len() == 16 { &AES_128_GCM } else { &AES_256_GCM };
    let key = LessSafeKey::new(UnboundKey::new(algorithm, key).expect("16 or 32 octets"));
    let mut sealed = plaintext.to_vec();
    let nonce = Nonce::try_assume_unique_for_key(nonce).expect("12 octets");
    key.seal_in_place_append_tag(nonce, Aad::from(aad), &mut sealed).expect("short enough");
    sealed
}

fn ed25519(seed: &[u8]) -> Ed25519KeyPair {
    Ed25519KeyPair::from_seed_unchecked(seed).expect("32 octets")
}

pub fn ed25519_public(seed: &[u8]) -> Vec<u8> {
    ed25519(seed).public_key().as_ref().to_vec()
}

pub fn ed25519_sign(seed: &[u8], message: &[u8]) -> Vec<u8> {
    ed25519(seed).sign(message).as_ref().to_vec()
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Suite {
    Aes256,
    Aes128,
}

impl Suite {
    pub const BOTH: [Self; 2] = [Self::Aes256, Self::Aes128];

    pub fn name(self) -> &'static str {
        if self == Self::Aes256 { "aes256gcm" } else { "aes128gcm" }
    }

    pub fn byte(self) -> u8 {
        if self == Self::Aes256 { 1 } else { 2 }
    }

    fn key_len(self) -> usize {
        if self == Self::Aes256 { 32 } else { 16 }
    }
}

/// What a body is made of.
#[derive(Clone)]
pub struct Body {
    pub suite: Suite,
    pub key: Vec<u8>,
    pub salt: Vec<u8>,
    pub record_size: u32,
    pub key_id: Vec<u8>,
}

impl Body {
    pub fn prelude(&self) -> Vec<u8> {
        let idlen = u8::try_from(self.key_id.len()).expect("a short key id");
        [&self.salt[..], &self.record_size.to_be_bytes(), &[idlen], &self.key_id].concat()
    }

    /// Record `index` around `inner`: plaintext, delimiter and padding.
    pub fn record(&self, index: u64, inner: &[u8]) -> Vec<u8> {
        let ikm = &self.key[..self.suite.key_len()];
        let info = format!("Content-Encoding: {}\0", self.suite.name());
        let key = hkdf(&self.salt, ikm, info.as_bytes(), self.suite.key_len());
        let mut nonce = hkdf(&self.salt, ikm, b"Content-Encoding: nonce\0", 12);
        nonce[4..].iter_mut().zip(index.to_be_bytes()).for_each(|(byte, number)| *byte ^= number);
        aead(&key, &nonce, b"", inner)
    }

    /// The records of `plaintext`, as full as they can be.
    pub fn records(&self, plaintext: &[u8]) -> Vec<Vec<u8>> {
        let pieces: Vec<_> = if plaintext.is_empty() { vec![plaintext] } else { self.pieces(plaintext).collect() };
        let seal = |(index, piece): (usize, &&[u8])| {
            let delimiter = if index + 1 == pieces.len() { 2 } else { 1 };
            self.record(index as u64, &[piece, &[delimiter][..]].concat())
        };
        pieces.iter().enumerate().map(seal).collect()
    }

    pub fn pieces<'a>(&self, plaintext: &'a [u8]) -> impl Iterator<Item = &'a [u8]> {
        plaintext.chunks(self.record_size as usize - 17)
    }

    pub fn seal(&self, plaintext: &[u8]) -> Vec<u8> {
        [self.prelude(), self.records(plaintext).concat()].concat()
    }
}

/// One of a service's keys.
#[derive(Clone)]
pub struct ServiceKey {
    pub id: [u8; 4],
    pub secret: Vec<u8>,
}

impl ServiceKey {
    pub fn seeded(name: &str) -> Self {
        let id = seeded(&format!("kws id {name}"), 4);
        Self { id: id.try_into().expect("four octets"), secret: seeded(&format!("kws {name}"), 32) }
    }

    pub fn derive(&self, info: &str) -> Vec<u8> {
        hkdf(b"hoop-kws-v1", &self.secret, info.as_bytes(), 32)
    }
}

/// A ticket's fields, as they stand in it.
#[derive(Clone)]
pub struct Ticket {
    pub version: u8,
    pub upload_id: Vec<u8>,
    pub expires: u32,
    pub nonce: Vec<u8>,
    pub key: Vec<u8>,
    pub not_before: u32,
    pub max_bytes: u64,
    pub route: Vec<u8>,
    pub suite: u8,
    pub flags: u8,
}

impl Ticket {
    pub fn seal(&self, by: &ServiceKey, origin: &str) -> Vec<u8> {
        let label = [&[self.version][..], &by.id, &self.upload_id, &self.expires.to_be_bytes()].concat();
        let aad = [b"hoop-ticket-v1", &label[..], origin.as_bytes()].concat();
        let (not_before, max_bytes) = (self.not_before.to_be_bytes(), self.max_bytes.to_be_bytes());
        let body = [&self.key[..], &not_before, &max_bytes, &self.route, &[self.suite, self.flags]].concat();
        [&label[..], &self.nonce, &aead(&by.derive("tickets"), &self.nonce, &aad, &body)].concat()
    }
}

/// A token; `purpose` is `tokens`, unless something is to be wrong.
pub fn token(by: &ServiceKey, purpose: &str, origin: &str, upload_id: &[u8], nonce: &[u8], content: &[u8]) -> Vec<u8> {
    let aad = [b"hoop-token-v1", upload_id, origin.as_bytes()].concat();
    [&[1][..], &by.id, nonce, &aead(&by.derive(purpose), nonce, &aad, content)].concat()
}

pub fn answer(key: &[u8], upload_id: &[u8], nonce: &[u8], content: &[u8]) -> Vec<u8> {
    [nonce, &aead(&hkdf(upload_id, key, b"hoop-answer-v1", 32), nonce, upload_id, content)].concat()
}
