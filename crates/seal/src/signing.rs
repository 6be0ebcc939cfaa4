//! What a service and a gateway sign, for others to check without a secret: [`Permit`], [`Receipt`], [`GatewayProof`].
//!
//! ```text
//! permit   version(1) | kws_id(4) | upload_id(16) | max_bytes(8) | expires(4) | gateway(16)               | signature(64)   113
//! receipt  version(1) | kws_id(4) | upload_id(16) | state(1) | time(4) | total(8) | SHA-256 of D(32)      | signature(64)   130
//!   of version 2, the same with another 32 bytes before the signature: which request it was                              162
//! proof    public key(32) | time(4)                                                                       | signature(64)   100
//! ```
//!
//! Signatures are Ed25519 (RFC 8032), over a word that says what is signed, a zero byte, the service's origin, a zero byte, and the bytes
//! before the signature; a gateway's are over the upload's id and the time. So none of the three can be taken for another, or for
//! another service's. A [`crate::Keyring`] signs permits and receipts, a [`GatewayKey`] proofs.

use crate::kws_id::KwsId;
use crate::record::{UploadKey, expand};
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use core::fmt;
use core::str::FromStr;
use hoop_units::{UnixTime, UploadId};
use ring::digest::{SHA256, digest};
use ring::hkdf::{HKDF_SHA256, Salt};
use ring::signature::{ED25519, Ed25519KeyPair, KeyPair as _, UnparsedPublicKey};

/// How long a permit is.
pub const PERMIT_LEN: usize = PERMIT_BODY_LEN + SIGNATURE_LEN;

/// How long a receipt of version 1 is.
pub const RECEIPT_LEN: usize = RECEIPT_BODY_LEN + SIGNATURE_LEN;

/// How long one of version 2 is, which says for which request it is.
pub const RECEIPT_V2_LEN: usize = RECEIPT_V2_BODY_LEN + SIGNATURE_LEN;

/// How long a gateway's proof is.
pub const GATEWAY_PROOF_LEN: usize = PROOF_BODY_LEN + SIGNATURE_LEN;

const SIGNATURE_LEN: usize = 64;
const PERMIT_BODY_LEN: usize = 49;
const RECEIPT_BODY_LEN: usize = 66;
const RECEIPT_V2_BODY_LEN: usize = RECEIPT_BODY_LEN + REQUEST_LEN;
const REQUEST_LEN: usize = 32;
const PROOF_BODY_LEN: usize = 36;

const VERSION: u8 = 1;
const RECEIPT_VERSION_2: u8 = 2;

/// How far clocks may be off, in seconds: as with tickets (`docs/protocol.md` §2).
const GRACE_SECS: u32 = 300;

/// What is signed, as the first word under the signature.
const PERMIT: &[u8] = b"hoop-permit-v1";
const RECEIPT: &[u8] = b"hoop-receipt-v1";
const RECEIPT_V2: &[u8] = b"hoop-receipt-v2";
const REQUEST: &[u8] = b"hoop-request-v1";
const GATEWAY: &[u8] = b"hoop-gateway-v1";

/// The y of the eight points of small order, and those of them that can be written as y + p too (p = 2^255 - 19).
const SMALL_ORDER: [[u8; 32]; 7] = [
    [0; 32],
    y(1, 0, 0),
    [
        0x26, 0xe8, 0x95, 0x8f, 0xc2, 0xb2, 0x27, 0xb0, 0x45, 0xc3, 0xf4, 0x89, 0xf2, 0xef, 0x98, 0xf0, 0xd5, 0xdf,
        0xac, 0x05, 0xd3, 0xc6, 0x33, 0x39, 0xb1, 0x38, 0x02, 0x88, 0x6d, 0x53, 0xfc, 0x05,
    ],
    [
        0xc7, 0x17, 0x6a, 0x70, 0x3d, 0x4d, 0xd8, 0x4f, 0xba, 0x3c, 0x0b, 0x76, 0x0d, 0x10, 0x67, 0x0f, 0x2a, 0x20,
        0x53, 0xfa, 0x2c, 0x39, 0xcc, 0xc6, 0x4e, 0xc7, 0xfd, 0x77, 0x92, 0xac, 0x03, 0x7a,
    ],
    y(0xec, 0xff, 0x7f),
    y(0xed, 0xff, 0x7f),
    y(0xee, 0xff, 0x7f),
];

/// An y that is all the same but for its ends.
const fn y(first: u8, all: u8, last: u8) -> [u8; 32] {
    let mut bytes = [all; 32];
    (bytes[0], bytes[31]) = (first, last);
    bytes
}

/// The public half of a key that signs. Written as 43 characters of base64url.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct PublicKey(pub [u8; 32]);

impl PublicKey {
    /// Whether the signature at the end of `bytes` is by this key. A key that has no secret has signed nothing.
    pub(crate) fn has_signed(&self, word: &[u8], origin: &str, body: &[u8], signature: &[u8]) -> bool {
        !self.is_of_small_order()
            && UnparsedPublicKey::new(&ED25519, &self.0).verify(&message(word, origin, body), signature).is_ok()
    }
}

impl PublicKey {
    /// Whether the point has order 1, 2, 4 or 8: one signature by such a key fits many messages, and anybody can write it (RFC 8032
    /// leaves the check to those who need it).
    fn is_of_small_order(&self) -> bool {
        let mut y = self.0;
        // The sign of x.
        y[31] &= 0x7f;
        SMALL_ORDER.contains(&y)
    }
}

impl fmt::Display for PublicKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&URL_SAFE_NO_PAD.encode(self.0))
    }
}

impl fmt::Debug for PublicKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// The text is no public key.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("a public key is 32 bytes in base64url")]
pub struct ParsePublicKeyError;

impl FromStr for PublicKey {
    type Err = ParsePublicKeyError;

    fn from_str(text: &str) -> Result<Self, ParsePublicKeyError> {
        let bytes = URL_SAFE_NO_PAD.decode(text).ok().and_then(|bytes| bytes.try_into().ok());
        bytes.map(Self).ok_or(ParsePublicKeyError)
    }
}

/// A key that signs; its `Debug` shows the public half.
#[derive(Clone)]
pub(crate) struct SigningKey(Arc<Ed25519KeyPair>);

impl SigningKey {
    pub(crate) fn from_seed(seed: &[u8; 32]) -> Self {
        Self(Arc::new(Ed25519KeyPair::from_seed_unchecked(seed).expect("every 32 bytes are a seed")))
    }

    pub(crate) fn public(&self) -> PublicKey {
        PublicKey(self.0.public_key().as_ref().try_into().expect("an Ed25519 key has 32 bytes"))
    }

    pub(crate) fn sign(&self, word: &[u8], origin: &str, body: &[u8]) -> [u8; SIGNATURE_LEN] {
        let signature = self.0.sign(&message(word, origin, body));
        signature.as_ref().try_into().expect("an Ed25519 signature has 64 bytes")
    }
}

impl fmt::Debug for SigningKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SigningKey({})", self.public())
    }
}

fn message(word: &[u8], origin: &str, body: &[u8]) -> Vec<u8> {
    [word, &[0], origin.as_bytes(), &[0], body].concat()
}

/// What was signed does not verify.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum SignedError {
    /// Another length.
    #[error("it has {came} bytes, and {expected} are expected")]
    Length {
        /// How many there must be.
        expected: usize,
        /// How many there are.
        came: usize,
    },
    /// Of a later version.
    #[error("it is of version {0}, which is not known")]
    Version(u8),
    /// Signed with a key that is not, or no longer, published.
    #[error("the key {0} that it names is not known")]
    UnknownKey(KwsId),
    /// Altered, or of another service or upload.
    #[error("the signature does not fit: it was altered, or is of another service")]
    Unauthentic,
    /// Genuine, but it says what this version does not know.
    #[error("it says what this version does not know: {0}")]
    Unsupported(u8),
}

/// The key that a permit or a receipt names. Nothing is proven by it.
///
/// # Errors
/// If it is too short, or of another version.
pub fn signer(bytes: &[u8]) -> Result<KwsId, SignedError> {
    match bytes {
        [VERSION | RECEIPT_VERSION_2, a, b, c, d, ..] => Ok(KwsId([*a, *b, *c, *d])),
        [VERSION | RECEIPT_VERSION_2, ..] | [] => Err(SignedError::Length { expected: 5, came: bytes.len() }),
        [version, ..] => Err(SignedError::Version(*version)),
    }
}

/// The bytes before the signature, once that was checked.
fn verified<'a, const LEN: usize>(
    (word, version): (&[u8], u8),
    origin: &str,
    bytes: &'a [u8],
    key: impl FnOnce(KwsId) -> Option<PublicKey>,
) -> Result<&'a [u8; LEN], SignedError> {
    let expected = LEN + SIGNATURE_LEN;
    if bytes.len() != expected {
        return Err(SignedError::Length { expected, came: bytes.len() });
    }
    let id = signer(bytes)?;
    if bytes[0] != version {
        return Err(SignedError::Version(bytes[0]));
    }
    let (body, signature) = bytes.split_first_chunk::<LEN>().expect("the length was checked");
    let key = key(id).ok_or(SignedError::UnknownKey(id))?;
    match key.has_signed(word, origin, body, signature) {
        true => Ok(body),
        false => Err(SignedError::Unauthentic),
    }
}

/// The name of a gateway: the first 16 bytes of SHA-256 of its public key, written as 32 lower-case hexadecimal digits.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct GatewayId([u8; 16]);

impl GatewayId {
    /// The name that goes with a public key.
    pub fn of(key: &PublicKey) -> Self {
        Self(*digest(&SHA256, &key.0).as_ref().first_chunk().expect("a hash is longer than a name"))
    }

    /// Its bytes.
    pub const fn as_bytes(&self) -> &[u8; 16] {
        &self.0
    }
}

impl fmt::Display for GatewayId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for GatewayId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// The text is no gateway's name.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("a gateway's name is 32 lower-case hexadecimal digits, not all of them 0")]
pub struct ParseGatewayIdError;

impl FromStr for GatewayId {
    type Err = ParseGatewayIdError;

    fn from_str(text: &str) -> Result<Self, ParseGatewayIdError> {
        // Sixteen zeros stand for any gateway, and are nobody's name.
        let id = text.parse::<UploadId>().ok().filter(|id| id.0 != [0; 16]);
        id.map(|id| Self(id.0)).ok_or(ParseGatewayIdError)
    }
}

/// A service's consent to a gateway's disk being filled with one upload.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Permit {
    /// The upload.
    pub upload_id: UploadId,
    /// The most bytes that its Z may have.
    pub max_bytes: u64,
    /// When the permit ends: as the ticket.
    pub expires: UnixTime,
    /// The one gateway that it is for; none: any.
    pub gateway: Option<GatewayId>,
}

/// A genuine permit is not for this.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum PermitMismatch {
    /// It is another upload's.
    #[error("it is for upload {0}")]
    Upload(UploadId),
    /// The upload is longer than permitted.
    #[error("it permits {0} bytes at most")]
    TooLong(u64),
    /// It is for another gateway.
    #[error("it is for gateway {0}")]
    Gateway(GatewayId),
}

impl Permit {
    /// Checks a permit of the service of that origin, whose published keys `key` looks up, and reads it. [`SignedError::UnknownKey`] may mean
    /// that the keys have rotated since they were fetched. Whether it fits an upload is [`Permit::covers`]'s to say.
    ///
    /// # Errors
    /// If it is none, or was not signed there.
    pub fn open(bytes: &[u8], origin: &str, key: impl FnOnce(KwsId) -> Option<PublicKey>) -> Result<Self, SignedError> {
        let [_, _, _, _, _, rest @ ..] = verified::<PERMIT_BODY_LEN>((PERMIT, VERSION), origin, bytes, key)?;
        let (upload_id, rest) = rest.split_first_chunk().expect("fixed lengths");
        let (max_bytes, rest) = rest.split_first_chunk().expect("fixed lengths");
        let (expires, rest) = rest.split_first_chunk().expect("fixed lengths");
        let gateway = *rest.first_chunk().expect("fixed lengths");
        Ok(Self {
            upload_id: UploadId(*upload_id),
            max_bytes: u64::from_be_bytes(*max_bytes),
            expires: UnixTime(u32::from_be_bytes(*expires)),
            gateway: (gateway != [0; 16]).then_some(GatewayId(gateway)),
        })
    }

    /// Whether it is for an upload of that id and length, at that gateway.
    ///
    /// # Errors
    /// What it is for instead.
    pub fn covers(&self, upload_id: UploadId, total: u64, gateway: GatewayId) -> Result<(), PermitMismatch> {
        if self.upload_id != upload_id {
            return Err(PermitMismatch::Upload(self.upload_id));
        }
        if total > self.max_bytes {
            return Err(PermitMismatch::TooLong(self.max_bytes));
        }
        match self.gateway {
            Some(other) if other != gateway => Err(PermitMismatch::Gateway(other)),
            _ => Ok(()),
        }
    }

    /// Whether its time is over, with the grace that tickets have. An upload that began in time may end later.
    pub const fn has_expired(&self, now: UnixTime) -> bool {
        now.0 > self.expires.plus_secs(GRACE_SECS).0
    }

    pub(crate) fn sign(&self, kws_id: KwsId, key: &SigningKey, origin: &str) -> [u8; PERMIT_LEN] {
        let gateway = self.gateway.map_or([0; 16], |gateway| gateway.0);
        let body = [
            &[VERSION][..],
            &kws_id.0,
            &self.upload_id.0,
            &self.max_bytes.to_be_bytes(),
            &self.expires.0.to_be_bytes(),
            &gateway,
        ];
        signed(PERMIT, origin, &body.concat(), key)
    }
}

fn signed<const LEN: usize>(word: &[u8], origin: &str, body: &[u8], key: &SigningKey) -> [u8; LEN] {
    let signature = key.sign(word, origin, body);
    [body, &signature].concat().try_into().expect("the lengths are fixed")
}

/// What became of an upload, as a receipt says it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Outcome {
    /// 1: the application took it.
    Accepted,
    /// 2: the application refused it.
    Rejected,
}

impl Outcome {
    /// The state's name on the wire.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Accepted => "accepted",
            Self::Rejected => "rejected",
        }
    }

    const fn byte(self) -> u8 {
        match self {
            Self::Accepted => 1,
            Self::Rejected => 2,
        }
    }

    const fn of_byte(byte: u8) -> Option<Self> {
        match byte {
            1 => Some(Self::Accepted),
            2 => Some(Self::Rejected),
            _ => None,
        }
    }
}

/// A service's word on what became of an upload, that can be shown to others.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Receipt {
    /// The upload.
    pub upload_id: UploadId,
    /// What became of it.
    pub outcome: Outcome,
    /// When the application had answered.
    pub time: UnixTime,
    /// The length of Z.
    pub total: u64,
    /// SHA-256 of the body D that the application was sent.
    pub digest: [u8; 32],
    /// Which request it was, as [`RequestSalt::digest`] has it; none in version 1, which left that open.
    pub request: Option<[u8; 32]>,
}

/// What makes the digest of an upload's method and path one that cannot be guessed: receipts are shown to whoever knows the upload's id. It
/// follows from the upload's key, so that the device and the service know it, and whom they tell.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct RequestSalt(pub [u8; 32]);

impl RequestSalt {
    /// That of an upload.
    pub fn of(key: &UploadKey, upload_id: UploadId) -> Self {
        let prk = Salt::new(HKDF_SHA256, upload_id.as_bytes()).extract(&key.0);
        let mut salt = [0; 32];
        expand(&prk, REQUEST, &mut salt);
        Self(salt)
    }

    /// The digest of a request's method and path. As with a ticket's route, a query does not count.
    pub fn digest(&self, method: &str, path: &str) -> [u8; 32] {
        let text = [REQUEST, &[0], &self.0, method.as_bytes(), b" ", path.as_bytes()].concat();
        digest(&SHA256, &text).as_ref().try_into().expect("SHA-256 has 32 bytes")
    }
}

impl Receipt {
    /// Checks a receipt of the service of that origin, whose published keys `key` looks up, and reads it.
    ///
    /// # Errors
    /// If it is none, or was not signed there.
    pub fn open(bytes: &[u8], origin: &str, key: impl FnOnce(KwsId) -> Option<PublicKey>) -> Result<Self, SignedError> {
        if bytes.first() != Some(&RECEIPT_VERSION_2) {
            return Self::read(verified::<RECEIPT_BODY_LEN>((RECEIPT, VERSION), origin, bytes, key)?, None);
        }
        let of_version_2 = (RECEIPT_V2, RECEIPT_VERSION_2);
        let body = verified::<RECEIPT_V2_BODY_LEN>(of_version_2, origin, bytes, key)?;
        let (common, request) = body.split_first_chunk().expect("fixed lengths");
        Self::read(common, Some(request.try_into().expect("fixed lengths")))
    }

    /// What both versions say.
    fn read(body: &[u8; RECEIPT_BODY_LEN], request: Option<[u8; REQUEST_LEN]>) -> Result<Self, SignedError> {
        let [_, _, _, _, _, rest @ ..] = body;
        let (upload_id, rest) = rest.split_first_chunk().expect("fixed lengths");
        let ([outcome], rest) = rest.split_first_chunk().expect("fixed lengths");
        let (time, rest) = rest.split_first_chunk().expect("fixed lengths");
        let (total, rest) = rest.split_first_chunk().expect("fixed lengths");
        Ok(Self {
            upload_id: UploadId(*upload_id),
            outcome: Outcome::of_byte(*outcome).ok_or(SignedError::Unsupported(*outcome))?,
            time: UnixTime(u32::from_be_bytes(*time)),
            total: u64::from_be_bytes(*total),
            digest: *rest.first_chunk().expect("fixed lengths"),
            request,
        })
    }

    pub(crate) fn sign(&self, kws_id: KwsId, key: &SigningKey, origin: &str) -> Vec<u8> {
        let (word, version) = match self.request {
            None => (RECEIPT, VERSION),
            Some(_) => (RECEIPT_V2, RECEIPT_VERSION_2),
        };
        let body = [
            &[version][..],
            &kws_id.0,
            &self.upload_id.0,
            &[self.outcome.byte()],
            &self.time.0.to_be_bytes(),
            &self.total.to_be_bytes(),
            &self.digest,
            self.request.as_ref().map_or(&[], |request| &request[..]),
        ];
        let body = body.concat();
        let signature = key.sign(word, origin, &body);
        [&body[..], &signature].concat()
    }
}

/// A gateway's own key. Its `Debug` shows the gateway's name.
#[derive(Clone)]
pub struct GatewayKey {
    pub(crate) key: SigningKey,
}

impl GatewayKey {
    /// The key that follows from 32 bytes, which must come from a cryptographic generator, and are a secret.
    pub fn from_seed(seed: &[u8; 32]) -> Self {
        Self { key: SigningKey::from_seed(seed) }
    }

    /// The public half.
    pub fn public(&self) -> PublicKey {
        self.key.public()
    }

    /// The gateway's name.
    pub fn id(&self) -> GatewayId {
        GatewayId::of(&self.public())
    }

    /// What shows the service of that origin that this gateway sends it that upload, now.
    pub fn prove(&self, origin: &str, upload_id: UploadId, now: UnixTime) -> [u8; GATEWAY_PROOF_LEN] {
        let signature = self.key.sign(GATEWAY, origin, &proof_body(upload_id, now));
        let proof = [&self.public().0[..], &now.0.to_be_bytes(), &signature].concat();
        proof.try_into().expect("the lengths are fixed")
    }
}

impl fmt::Debug for GatewayKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "GatewayKey({})", self.id())
    }
}

fn proof_body(upload_id: UploadId, time: UnixTime) -> [u8; 20] {
    let mut body = [0; 20];
    body[..16].copy_from_slice(&upload_id.0);
    body[16..].copy_from_slice(&time.0.to_be_bytes());
    body
}

/// Who sends an upload: a gateway that has shown that it has its key.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct GatewayProof {
    /// The gateway's name.
    pub gateway: GatewayId,
    /// When it said so, by its clock.
    pub time: UnixTime,
}

impl GatewayProof {
    /// Checks what a gateway sent with an upload to the service of that origin.
    ///
    /// # Errors
    /// If it is no proof, or is of another service or upload.
    pub fn open(bytes: &[u8], origin: &str, upload_id: UploadId) -> Result<Self, SignedError> {
        let bytes: &[u8; GATEWAY_PROOF_LEN] =
            bytes.try_into().map_err(|_| SignedError::Length { expected: GATEWAY_PROOF_LEN, came: bytes.len() })?;
        let (key, rest) = bytes.split_first_chunk().expect("fixed lengths");
        let (time, signature) = rest.split_first_chunk().expect("fixed lengths");
        let (key, time) = (PublicKey(*key), UnixTime(u32::from_be_bytes(*time)));
        match key.has_signed(GATEWAY, origin, &proof_body(upload_id, time), signature) {
            true => Ok(Self { gateway: GatewayId::of(&key), time }),
            false => Err(SignedError::Unauthentic),
        }
    }

    /// Whether it was made so long before or after `now` that somebody else may have kept it.
    pub const fn is_stale(&self, now: UnixTime) -> bool {
        self.time.since(now) > GRACE_SECS || now.since(self.time) > GRACE_SECS
    }
}

/// The bytes of a header or member that holds a permit, a receipt or a proof: base64url.
pub fn from_text(text: &str) -> Option<Vec<u8>> {
    URL_SAFE_NO_PAD.decode(text).ok()
}

/// The value of such a header or member.
pub fn to_text(bytes: &[u8]) -> String {
    URL_SAFE_NO_PAD.encode(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Keyring, ServiceKey};
    use alloc::format;
    use alloc::string::ToString as _;

    const ORIGIN: &str = "https://photos.example";
    const OTHER: &str = "https://other.example";
    const ID: UploadId = UploadId([7; 16]);

    #[test]
    fn a_key_that_has_no_secret_has_signed_nothing() {
        let mut fitting = 0;
        for y in SMALL_ORDER {
            for sign in [0, 0x80] {
                let mut key = y;
                key[31] |= sign;
                // The signature of that kind: R is the neutral point, S is 0. It fits an eighth of all messages or more.
                let signature = [super::y(1, 0, 0), [0; 32]].concat();
                let fits = |n: u8| UnparsedPublicKey::new(&ED25519, &key).verify(&[n], &signature).is_ok();
                fitting += u32::from((0..=255).any(fits));
                let signed = |n: u8| PublicKey(key).has_signed(GATEWAY, ORIGIN, &[n], &signature);
                assert!(!(0..=255).any(signed), "{key:02x?}");
            }
        }
        assert!(fitting > 0, "ring knows them all by itself now");
    }

    fn ring(n: u8) -> Keyring {
        Keyring::new(ServiceKey::new(KwsId([n; 4]), [n; 32]))
    }

    fn keys(ring: &Keyring) -> impl Fn(KwsId) -> Option<PublicKey> + Copy + '_ {
        |id| ring.signing_keys().find(|(other, _)| *other == id).map(|(_, key)| key)
    }

    fn gateway() -> GatewayKey {
        GatewayKey::from_seed(&[3; 32])
    }

    fn permit() -> Permit {
        Permit { upload_id: ID, max_bytes: 1_000, expires: UnixTime(2_000), gateway: None }
    }

    fn receipt() -> Receipt {
        let (outcome, time) = (Outcome::Accepted, UnixTime(1_500));
        Receipt { upload_id: ID, outcome, time, total: 900, digest: [9; 32], request: None }
    }

    fn bound() -> Receipt {
        Receipt { request: Some(RequestSalt::of(&UploadKey([4; 32]), ID).digest("POST", "/upload")), ..receipt() }
    }

    /// Everything that is signed, and a reader of each.
    fn each(check: impl Fn(&str, &[u8], &dyn Fn(&[u8]) -> Result<(), SignedError>)) {
        let ring = ring(1);
        let keys = keys(&ring);
        check("permit", &ring.sign_permit(ORIGIN, &permit()), &|bytes| Permit::open(bytes, ORIGIN, keys).map(|_| ()));
        check("receipt", &ring.sign_receipt(ORIGIN, &receipt()), &|bytes| {
            Receipt::open(bytes, ORIGIN, keys).map(|_| ())
        });
        check("receipt of version 2", &ring.sign_receipt(ORIGIN, &bound()), &|bytes| {
            Receipt::open(bytes, ORIGIN, keys).map(|_| ())
        });
        check("proof", &gateway().prove(ORIGIN, ID, UnixTime(5)), &|bytes| {
            GatewayProof::open(bytes, ORIGIN, ID).map(|_| ())
        });
    }

    #[test]
    fn what_is_signed_survives_whoever_reads_it() {
        let ring = ring(1);
        for permit in [permit(), Permit { gateway: Some(gateway().id()), ..permit() }] {
            let signed = ring.sign_permit(ORIGIN, &permit);
            assert_eq!(from_text(&to_text(&signed)).as_deref(), Some(&signed[..]));
            assert_eq!(Permit::open(&signed, ORIGIN, keys(&ring)), Ok(permit));
        }
        let outcomes = [Outcome::Accepted, Outcome::Rejected];
        let receipts =
            outcomes.into_iter().flat_map(|outcome| [receipt(), bound()].map(|receipt| Receipt { outcome, ..receipt }));
        for receipt in receipts {
            let signed = ring.sign_receipt(ORIGIN, &receipt);
            assert_eq!(Receipt::open(&signed, ORIGIN, keys(&ring)), Ok(receipt));
            assert_eq!(signer(&signed), Ok(KwsId([1; 4])));
        }
        let proof = gateway().prove(ORIGIN, ID, UnixTime(5));
        let expected = GatewayProof { gateway: gateway().id(), time: UnixTime(5) };
        assert_eq!(GatewayProof::open(&proof, ORIGIN, ID), Ok(expected));
    }

    #[test]
    fn no_flipped_bit_goes_unnoticed_and_no_truncation() {
        each(|name, signed, open| {
            assert_eq!(open(signed), Ok(()), "{name}");
            for bit in 0..signed.len() * 8 {
                let mut flipped = signed.to_vec();
                flipped[bit / 8] ^= 1 << (bit % 8);
                assert!(open(&flipped).is_err(), "{name}, bit {bit}");
            }
            for len in 0..signed.len() {
                assert!(matches!(open(&signed[..len]), Err(SignedError::Length { .. })), "{name}, {len} bytes");
            }
            assert!(open(&[signed, &[0]].concat()).is_err(), "{name}, one more");
        });
    }

    #[test]
    fn another_services_word_is_not_taken_and_nor_is_another_keys() {
        let (ring, other) = (ring(1), ring(2));
        let renamed = Keyring::new(ServiceKey::new(KwsId([1; 4]), [2; 32]));
        let (permit, receipt) = (ring.sign_permit(ORIGIN, &permit()), ring.sign_receipt(ORIGIN, &receipt()));
        assert_eq!(Permit::open(&permit, OTHER, keys(&ring)), Err(SignedError::Unauthentic));
        assert_eq!(Receipt::open(&receipt, OTHER, keys(&ring)), Err(SignedError::Unauthentic));
        assert_eq!(Permit::open(&permit, ORIGIN, keys(&other)), Err(SignedError::UnknownKey(KwsId([1; 4]))));
        assert_eq!(Permit::open(&permit, ORIGIN, keys(&renamed)), Err(SignedError::Unauthentic));
        assert_eq!(Receipt::open(&receipt, ORIGIN, keys(&renamed)), Err(SignedError::Unauthentic));
        let proof = gateway().prove(ORIGIN, ID, UnixTime(5));
        assert_eq!(GatewayProof::open(&proof, OTHER, ID), Err(SignedError::Unauthentic));
        assert_eq!(GatewayProof::open(&proof, ORIGIN, UploadId([8; 16])), Err(SignedError::Unauthentic));
    }

    #[test]
    fn what_was_signed_as_one_thing_is_no_other() {
        let ring = ring(1);
        let body = ring.sign_receipt(ORIGIN, &receipt())[..RECEIPT_BODY_LEN].to_vec();
        let signed: [u8; RECEIPT_LEN] = signed(PERMIT, ORIGIN, &body, ring.primary().signatures());
        assert_eq!(Receipt::open(&signed, ORIGIN, keys(&ring)), Err(SignedError::Unauthentic));
    }

    #[test]
    fn a_receipt_is_for_one_request_and_its_digest_cannot_be_guessed() {
        let (salt, request) = (RequestSalt::of(&UploadKey([4; 32]), ID), bound().request.unwrap());
        assert_eq!(salt.digest("POST", "/upload"), request);
        for (method, path) in [("PUT", "/upload"), ("POST", "/upload/"), ("POST", "/Upload"), ("POST /", "upload")] {
            assert_ne!(salt.digest(method, path), request, "{method} {path}");
        }
        for other in [RequestSalt::of(&UploadKey([5; 32]), ID), RequestSalt::of(&UploadKey([4; 32]), UploadId([8; 16]))]
        {
            assert_ne!(other.digest("POST", "/upload"), request, "only who knows the upload's key can tell");
        }
    }

    #[test]
    fn a_receipt_of_one_version_is_none_of_the_other() {
        let ring = ring(1);
        let (first, second) = (ring.sign_receipt(ORIGIN, &receipt()), ring.sign_receipt(ORIGIN, &bound()));
        assert_eq!((first.len(), second.len()), (RECEIPT_LEN, RECEIPT_V2_LEN));
        let mut raised = [&first[..RECEIPT_BODY_LEN], &second[RECEIPT_BODY_LEN..]].concat();
        assert_eq!(
            Receipt::open(&raised, ORIGIN, keys(&ring)),
            Err(SignedError::Length { expected: RECEIPT_LEN, came: RECEIPT_V2_LEN })
        );
        raised[0] = RECEIPT_VERSION_2;
        assert!(Receipt::open(&raised, ORIGIN, keys(&ring)).is_ok(), "that is the second again");
        let mut lowered = [&second[..RECEIPT_BODY_LEN], &first[RECEIPT_BODY_LEN..]].concat();
        lowered[0] = VERSION;
        assert!(Receipt::open(&lowered, ORIGIN, keys(&ring)).is_ok(), "that is the first again");
        let body = &second[..RECEIPT_V2_BODY_LEN];
        let reworded: [u8; RECEIPT_V2_LEN] = signed(RECEIPT, ORIGIN, body, ring.primary().signatures());
        assert_eq!(Receipt::open(&reworded, ORIGIN, keys(&ring)), Err(SignedError::Unauthentic));
        let as_permit = [&[RECEIPT_VERSION_2][..], &ring.sign_permit(ORIGIN, &permit())[1..]].concat();
        assert_eq!(Permit::open(&as_permit, ORIGIN, keys(&ring)), Err(SignedError::Version(2)));
    }

    #[test]
    fn an_outcome_of_tomorrow_is_genuine_and_not_understood() {
        let ring = ring(1);
        let mut body = ring.sign_receipt(ORIGIN, &receipt())[..RECEIPT_BODY_LEN].to_vec();
        body[21] = 3;
        let signed: [u8; RECEIPT_LEN] = signed(RECEIPT, ORIGIN, &body, ring.primary().signatures());
        assert_eq!(Receipt::open(&signed, ORIGIN, keys(&ring)), Err(SignedError::Unsupported(3)));
    }

    #[test]
    fn a_permit_is_for_one_upload_up_to_a_length_and_maybe_for_one_gateway() {
        let (here, there) = (gateway().id(), GatewayKey::from_seed(&[4; 32]).id());
        assert_eq!(permit().covers(ID, 1_000, there), Ok(()));
        assert_eq!(permit().covers(UploadId([8; 16]), 1, here), Err(PermitMismatch::Upload(ID)));
        assert_eq!(permit().covers(ID, 1_001, here), Err(PermitMismatch::TooLong(1_000)));
        let bound = Permit { gateway: Some(here), ..permit() };
        assert_eq!(bound.covers(ID, 1, here), Ok(()));
        assert_eq!(bound.covers(ID, 1, there), Err(PermitMismatch::Gateway(here)));
        assert!(!permit().has_expired(UnixTime(2_300)) && permit().has_expired(UnixTime(2_301)));
    }

    #[test]
    fn a_proof_is_good_for_five_minutes_either_way() {
        let proof = GatewayProof { gateway: gateway().id(), time: UnixTime(1_000) };
        for (now, stale) in [(699, true), (700, false), (1_300, false), (1_301, true)] {
            assert_eq!(proof.is_stale(UnixTime(now)), stale, "at {now}");
        }
    }

    #[test]
    fn names_and_public_keys_survive_their_text_and_secrets_are_not_shown() {
        let key = gateway();
        assert_eq!(key.id().to_string().parse(), Ok(key.id()));
        assert_eq!("0".repeat(32).parse::<GatewayId>(), Err(ParseGatewayIdError));
        assert_eq!(key.public().to_string().parse(), Ok(key.public()));
        assert_eq!("AAAA".parse::<PublicKey>(), Err(ParsePublicKeyError));
        assert_eq!(format!("{key:?}"), format!("GatewayKey({})", key.id()));
    }
}
