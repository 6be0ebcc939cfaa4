//! The service's keys: [`Keyring`].

use crate::kws_id::KwsId;
use crate::record::expand;
use crate::signing::{PERMIT_LEN, Permit, PublicKey, Receipt, SigningKey};
use crate::ticket::{BODY_LEN, Grant, LABEL_LEN, NONCE_LEN, TAG_LEN, TICKET_LEN, Ticket, TicketError, TicketLabel};
use alloc::string::String;
use alloc::vec::Vec;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use core::fmt;
use hoop_units::UploadId;
use ring::aead::{AES_256_GCM, Aad, LessSafeKey, Nonce, UnboundKey};
use ring::{hkdf, hmac};
use zeroize::Zeroizing;

/// K_ws: one of a service's keys. Tickets, tokens, owners and signatures each use a key derived from it, so that no two uses share
/// nonces. Its `Debug` shows the id alone.
#[derive(Clone)]
pub struct ServiceKey {
    id: KwsId,
    /// Wiped from memory when the key is dropped.
    secret: Zeroizing<[u8; 32]>,
    tickets: LessSafeKey,
    tokens: LessSafeKey,
    owners: hmac::Key,
    signatures: SigningKey,
}

impl fmt::Debug for ServiceKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ServiceKey({})", self.id)
    }
}

/// A line of a key file is no key.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum KeyLineError {
    /// Not of the form.
    #[error("line {line}: expected `hoop-kws-v1 KWS_ID KEY`, an id of 8 hexadecimal digits and 32 bytes in base64url")]
    Form {
        /// Which line, from 1.
        line: usize,
    },
    /// Two keys of one id.
    #[error("line {line}: the key id {id} stands there already")]
    Twice {
        /// Which line, from 1.
        line: usize,
        /// The id.
        id: KwsId,
    },
    /// No key at all.
    #[error("the file holds no key")]
    Empty,
}

/// The word that begins each line of a key file.
const LINE_TAG: &str = "hoop-kws-v1";

impl ServiceKey {
    /// A key from 36 bytes, which must come from a cryptographic generator: its id and its secret.
    pub fn new(id: KwsId, secret: [u8; 32]) -> Self {
        let secret = Zeroizing::new(secret);
        let prk = hkdf::Salt::new(hkdf::HKDF_SHA256, b"hoop-kws-v1").extract(&*secret);
        let derive = |info: &[u8]| {
            let mut key = Zeroizing::new([0; 32]);
            expand(&prk, info, &mut *key);
            key
        };
        let aead = |info| {
            LessSafeKey::new(UnboundKey::new(&AES_256_GCM, &*derive(info)).expect("the key has the right length"))
        };
        let owners = hmac::Key::new(hmac::HMAC_SHA256, &*derive(b"owners"));
        let signatures = SigningKey::from_seed(&derive(b"signatures"));
        Self { id, secret, tickets: aead(b"tickets"), tokens: aead(b"tokens"), owners, signatures }
    }

    /// The key's id.
    pub const fn id(&self) -> KwsId {
        self.id
    }

    /// The public half of what it signs with.
    pub fn public(&self) -> PublicKey {
        self.signatures.public()
    }

    #[cfg(test)]
    pub(crate) const fn signatures(&self) -> &SigningKey {
        &self.signatures
    }

    /// The key's line in a key file. It is a secret.
    pub fn to_line(&self) -> String {
        alloc::format!("{LINE_TAG} {} {}", self.id, URL_SAFE_NO_PAD.encode(*self.secret))
    }
}

/// Token contents are padded to multiples of so many bytes, so that their length says little of the credentials'.
pub const TOKEN_CONTENT_STEP: usize = 256;

/// What a token's content has besides the credentials, at most: names, quotes, expiry, the longest address.
const TOKEN_FRAME_LEN: usize = 160;

/// The length of a token's content for `Cookie` and `Authorization` of `credentials_len` bytes together, unless JSON has to
/// escape some of them (`docs/protocol.md` §3).
pub const fn token_content_len(credentials_len: usize) -> usize {
    (TOKEN_FRAME_LEN + credentials_len).next_multiple_of(TOKEN_CONTENT_STEP)
}

/// The length of a token for such credentials: so a device knows it before it has the token.
pub const fn token_len(credentials_len: usize) -> usize {
    TOKEN_HEAD_LEN + token_content_len(credentials_len) + TAG_LEN
}

/// A token does not open.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum TokenError {
    /// Too short, or of another version.
    #[error("the token is cut off or of another version")]
    Form,
    /// Sealed under a key that is not, or no longer, in the ring.
    #[error("the token's key {0} is not known here")]
    UnknownKey(KwsId),
    /// Altered, or of another service or upload.
    #[error("the token was altered, or belongs to another upload")]
    Unauthentic,
}

const TOKEN_VERSION: u8 = 1;
const TOKEN_HEAD_LEN: usize = 1 + 4 + NONCE_LEN;

/// The keys of a service: it seals with the first, and opens with any.
///
/// To rotate, put a new key first, and take the old one out when the longest expiry of what it sealed has passed.
#[derive(Clone, Debug)]
pub struct Keyring {
    keys: Vec<ServiceKey>,
}

impl Keyring {
    /// A ring with one key.
    pub fn new(key: ServiceKey) -> Self {
        Self { keys: alloc::vec![key] }
    }

    /// Reads a key file: a key a line, the newest first; blank lines and lines that begin with `#` are passed over.
    ///
    /// # Errors
    /// At the first line that is no key, or if there is none.
    pub fn parse(text: &str) -> Result<Self, KeyLineError> {
        let mut keys: Vec<ServiceKey> = Vec::new();
        for (at, content) in text.lines().enumerate() {
            let (line, content) = (at + 1, content.trim());
            if content.is_empty() || content.starts_with('#') {
                continue;
            }
            let key = parse_line(content).ok_or(KeyLineError::Form { line })?;
            if keys.iter().any(|other| other.id == key.id) {
                return Err(KeyLineError::Twice { line, id: key.id });
            }
            keys.push(key);
        }
        match keys.is_empty() {
            true => Err(KeyLineError::Empty),
            false => Ok(Self { keys }),
        }
    }

    /// The key that seals.
    pub fn primary(&self) -> &ServiceKey {
        &self.keys[0]
    }

    fn key(&self, id: KwsId) -> Option<&ServiceKey> {
        self.keys.iter().find(|key| key.id == id)
    }

    /// Seals a ticket for `origin`. `nonce` must be random and fresh; `label.kws_id` is set to the key that seals.
    pub fn seal_ticket(
        &self,
        origin: &str,
        upload_id: UploadId,
        expires: hoop_units::UnixTime,
        grant: &Grant,
        nonce: [u8; NONCE_LEN],
    ) -> [u8; TICKET_LEN] {
        let key = self.primary();
        let label = TicketLabel { kws_id: key.id, upload_id, expires }.encode();
        let mut ticket = [0; TICKET_LEN];
        ticket[..LABEL_LEN].copy_from_slice(&label);
        ticket[LABEL_LEN..LABEL_LEN + NONCE_LEN].copy_from_slice(&nonce);
        let (body, tag) = ticket[LABEL_LEN + NONCE_LEN..].split_at_mut(BODY_LEN);
        body.copy_from_slice(&grant.encode());
        let aad = Aad::from(ticket_aad(&label, origin));
        let sealed = key.tickets.seal_in_place_separate_tag(Nonce::assume_unique_for_key(nonce), aad, body);
        tag.copy_from_slice(sealed.expect("a ticket is far below the cipher's limit").as_ref());
        ticket
    }

    /// Opens a ticket that was issued for `origin`. Whether its time has come is for whoever has a clock to say.
    ///
    /// # Errors
    /// If it is none, or was not issued here.
    pub fn open_ticket(&self, origin: &str, ticket: &[u8]) -> Result<Ticket, TicketError> {
        let label = TicketLabel::parse(ticket)?;
        let key = self.key(label.kws_id).ok_or(TicketError::UnknownKey(label.kws_id))?;
        let (nonce, sealed) = ticket[LABEL_LEN..].split_first_chunk().expect("the label's parser checked the length");
        let mut sealed: [u8; BODY_LEN + TAG_LEN] = sealed.try_into().expect("the label's parser checked the length");
        let aad = Aad::from(ticket_aad(&label.encode(), origin));
        let body = key
            .tickets
            .open_in_place(Nonce::assume_unique_for_key(*nonce), aad, &mut sealed)
            .map_err(|_| TicketError::Unauthentic)?;
        let grant = Grant::decode(body.first_chunk().expect("the length is fixed"))?;
        Ok(Ticket { label, grant })
    }

    /// Seals a token's content for one upload at `origin`. `nonce` must be random and fresh.
    pub fn seal_token(&self, origin: &str, upload_id: UploadId, content: &[u8], nonce: [u8; NONCE_LEN]) -> Vec<u8> {
        let key = self.primary();
        let mut sealed = content.to_vec();
        let aad = Aad::from(token_aad(upload_id, origin));
        key.tokens
            .seal_in_place_append_tag(Nonce::assume_unique_for_key(nonce), aad, &mut sealed)
            .expect("a token is far below the cipher's limit");
        let mut token = Vec::with_capacity(TOKEN_HEAD_LEN + sealed.len());
        token.push(TOKEN_VERSION);
        token.extend_from_slice(&key.id.0);
        token.extend_from_slice(&nonce);
        token.extend_from_slice(&sealed);
        token
    }

    /// Opens a token that was sealed for this upload at `origin`.
    ///
    /// # Errors
    /// If it is none, was not sealed here, or is another upload's.
    pub fn open_token(&self, origin: &str, upload_id: UploadId, token: &[u8]) -> Result<Vec<u8>, TokenError> {
        let [TOKEN_VERSION, rest @ ..] = token else { return Err(TokenError::Form) };
        let (id, rest) = rest.split_first_chunk().ok_or(TokenError::Form)?;
        let (nonce, sealed) = rest.split_first_chunk().ok_or(TokenError::Form)?;
        let key = self.key(KwsId(*id)).ok_or(TokenError::UnknownKey(KwsId(*id)))?;
        let mut sealed = sealed.to_vec();
        let aad = Aad::from(token_aad(upload_id, origin));
        let len = key
            .tokens
            .open_in_place(Nonce::assume_unique_for_key(*nonce), aad, &mut sealed)
            .map_err(|_| TokenError::Unauthentic)?
            .len();
        sealed.truncate(len);
        Ok(sealed)
    }

    /// Signs a permit for `origin`, with the key that seals.
    pub fn sign_permit(&self, origin: &str, permit: &Permit) -> [u8; PERMIT_LEN] {
        let key = self.primary();
        permit.sign(key.id, &key.signatures, origin)
    }

    /// Signs a receipt for `origin`, with the key that seals: of version 2, if it says for which request it is.
    pub fn sign_receipt(&self, origin: &str, receipt: &Receipt) -> Vec<u8> {
        let key = self.primary();
        receipt.sign(key.id, &key.signatures, origin)
    }

    /// What others check signatures with: the public half of each key, the primary first.
    pub fn signing_keys(&self) -> impl Iterator<Item = (KwsId, PublicKey)> {
        self.keys.iter().map(|key| (key.id, key.signatures.public()))
    }

    /// What a service keeps to know an upload's owner again without keeping the credentials: a MAC over them, under
    /// each key of the ring, the primary first.
    pub fn owner_tags(&self, cookie: &[u8], authorization: &[u8]) -> impl Iterator<Item = [u8; 16]> {
        self.keys.iter().map(move |key| {
            let mut mac = hmac::Context::with_key(&key.owners);
            mac.update(&(cookie.len() as u64).to_be_bytes());
            mac.update(cookie);
            mac.update(authorization);
            *mac.sign().as_ref().first_chunk().expect("a MAC is longer than a tag")
        })
    }
}

fn parse_line(line: &str) -> Option<ServiceKey> {
    let mut words = line.split_ascii_whitespace();
    let (tag, id, secret) = (words.next()?, words.next()?, words.next()?);
    if tag != LINE_TAG || words.next().is_some() || id.len() != 8 || !id.bytes().all(|digit| digit.is_ascii_hexdigit())
    {
        return None;
    }
    let id = u32::from_str_radix(id, 16).ok()?.to_be_bytes();
    let secret = Zeroizing::new(URL_SAFE_NO_PAD.decode(secret).ok()?);
    Some(ServiceKey::new(KwsId(id), secret.as_slice().try_into().ok()?))
}

fn ticket_aad(label: &[u8; LABEL_LEN], origin: &str) -> Vec<u8> {
    [b"hoop-ticket-v1", &label[..], origin.as_bytes()].concat()
}

fn token_aad(upload_id: UploadId, origin: &str) -> Vec<u8> {
    [b"hoop-token-v1", &upload_id.0[..], origin.as_bytes()].concat()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Route, Suite, UploadKey};
    use alloc::format;
    use hoop_units::UnixTime;

    const ORIGIN: &str = "https://photos.example";
    const ID: UploadId = UploadId([7; 16]);

    fn key(n: u8) -> ServiceKey {
        ServiceKey::new(KwsId([n; 4]), [n; 32])
    }

    fn grant() -> Grant {
        Grant {
            key: UploadKey([5; 32]),
            not_before: UnixTime(1_000),
            max_bytes: 1 << 33,
            route: Route::of("POST", "/?j"),
            suite: Suite::Aes256Gcm,
        }
    }

    fn ticket(ring: &Keyring) -> [u8; TICKET_LEN] {
        ring.seal_ticket(ORIGIN, ID, UnixTime(2_000), &grant(), [9; 12])
    }

    #[test]
    fn a_ticket_survives_and_its_label_is_readable_without_a_key() {
        let ring = Keyring::new(key(1));
        let opened = ring.open_ticket(ORIGIN, &ticket(&ring)).unwrap();
        assert_eq!(opened.grant, grant());
        assert_eq!(TicketLabel::parse(&ticket(&ring)), Ok(opened.label));
        assert_eq!((opened.label.upload_id, opened.label.expires), (ID, UnixTime(2_000)));
    }

    #[test]
    fn no_flipped_bit_in_a_ticket_goes_unnoticed() {
        let ring = Keyring::new(key(1));
        for bit in 0..TICKET_LEN * 8 {
            let mut flipped = ticket(&ring);
            flipped[bit / 8] ^= 1 << (bit % 8);
            assert!(ring.open_ticket(ORIGIN, &flipped).is_err(), "bit {bit}");
        }
    }

    #[test]
    fn a_ticket_of_another_service_or_length_is_refused() {
        let ring = Keyring::new(key(1));
        assert_eq!(ring.open_ticket("https://other.example", &ticket(&ring)), Err(TicketError::Unauthentic));
        assert_eq!(
            Keyring::new(key(2)).open_ticket(ORIGIN, &ticket(&ring)),
            Err(TicketError::UnknownKey(KwsId([1; 4])))
        );
        for len in 0..TICKET_LEN {
            assert_eq!(ring.open_ticket(ORIGIN, &ticket(&ring)[..len]), Err(TicketError::Length(len)));
        }
    }

    #[test]
    fn an_old_key_opens_and_only_the_first_seals() {
        let old = Keyring::new(key(1));
        let both = Keyring::parse(&format!("# keys\n\n{}\n{}\n", key(2).to_line(), key(1).to_line())).unwrap();
        assert!(both.open_ticket(ORIGIN, &ticket(&old)).is_ok());
        assert_eq!(TicketLabel::parse(&ticket(&both)).unwrap().kws_id, KwsId([2; 4]));
        let token = old.seal_token(ORIGIN, ID, b"content", [3; 12]);
        assert_eq!(both.open_token(ORIGIN, ID, &token).unwrap(), b"content");
        let mut tags = both.owner_tags(b"cookie", b"");
        assert_ne!(tags.next(), old.owner_tags(b"cookie", b"").next());
        assert_eq!(tags.next(), old.owner_tags(b"cookie", b"").next());
    }

    #[test]
    fn a_token_opens_for_its_own_upload_only() {
        let ring = Keyring::new(key(1));
        let token = ring.seal_token(ORIGIN, ID, b"cookie of alice", [3; 12]);
        assert_eq!(ring.open_token(ORIGIN, UploadId([8; 16]), &token), Err(TokenError::Unauthentic));
        assert_eq!(ring.open_token("https://other.example", ID, &token), Err(TokenError::Unauthentic));
        for len in 0..token.len() {
            assert!(ring.open_token(ORIGIN, ID, &token[..len]).is_err());
        }
        for bit in 0..token.len() * 8 {
            let mut flipped = token.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            assert!(ring.open_token(ORIGIN, ID, &flipped).is_err(), "bit {bit}");
        }
    }

    #[test]
    fn owners_differ_by_where_the_cookie_ends_and_the_authorization_begins() {
        let ring = Keyring::new(key(1));
        assert_ne!(ring.owner_tags(b"ab", b"c").next(), ring.owner_tags(b"a", b"bc").next());
    }

    #[test]
    fn a_line_that_is_no_key_is_named() {
        let line = key(1).to_line();
        assert_eq!(Keyring::parse("# none\n").unwrap_err(), KeyLineError::Empty);
        assert_eq!(Keyring::parse(&format!("{line}\nrubbish")).unwrap_err(), KeyLineError::Form { line: 2 });
        assert_eq!(
            Keyring::parse(&format!("{line}\n{line}")).unwrap_err(),
            KeyLineError::Twice { line: 2, id: KwsId([1; 4]) }
        );
        assert_eq!(Keyring::parse(&line[..line.len() - 1]).unwrap_err(), KeyLineError::Form { line: 1 });
        assert_eq!(Keyring::parse(&line.replace(" 01", " +1")).unwrap_err(), KeyLineError::Form { line: 1 });
    }

    #[test]
    fn a_key_prints_its_id_alone() {
        assert_eq!(format!("{:?}", key(1)), "ServiceKey(01010101)");
    }
}
