//! Receipts (`docs/protocol.md` section 9): fetching one, keeping it with what it takes to check it later, checking it.
//!
//! What is kept is JSON: the service's origin, the receipt, the service's public keys as they were then, and how the body was put together.
//! The boundaries of a form are drawn by chance, so that without the last nobody could make the same body of the same files again.

use crate::client::Client;
use crate::client::error::StatusError;
use crate::request::pieces::BodyPiece;
use crate::request::plaintext::Plaintext;
use crate::request::source::{Content, Segment, SourceError};
use crate::state::store::UploadRecord;
use crate::wire::Link;
use hoop_http::{Origin, empty};
use hoop_seal::signing::{self, PublicKey, Receipt, RequestSalt, SignedError};
use hoop_seal::{KwsId, UploadKey};
use hoop_units::UploadId;
use http::Method;
use ring::digest::{Context, SHA256};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;
use url::Url;

/// How long a service may think about its keys, or a status.
const TIMEOUT: Duration = Duration::from_secs(20);

/// Bytes of a body that are read at a time.
const FRAME: u64 = 256 * 1024;

/// What a kept receipt calls itself.
const KIND: &str = "receipt";

/// A receipt as it is kept.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct KeptReceipt {
    /// `receipt`.
    hoop: String,
    /// The service's origin.
    pub origin: String,
    /// The receipt, in base64url.
    pub receipt: String,
    /// The service's public keys when it was kept, by their ids.
    pub signing_keys: BTreeMap<String, String>,
    /// How the body was put together; empty: not known.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub body: Vec<BodyPiece>,
    /// Which request it is for; none: not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request: Option<KeptRequest>,
}

/// A request that a receipt is for.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct KeptRequest {
    /// The method.
    pub method: String,
    /// The path, without the query.
    pub path: String,
    /// What the receipt's digest of both was made with, in base64url.
    salt: String,
}

impl KeptRequest {
    fn digest(&self) -> Option<[u8; 32]> {
        let salt = signing::from_text(&self.salt)?.try_into().ok()?;
        Some(RequestSalt(salt).digest(&self.method, &self.path))
    }
}

/// Which request a receipt is for, as far as a kept file tells.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Asked<'a> {
    /// This one.
    Told(&'a KeptRequest),
    /// One that the file does not name.
    Untold,
    /// Any: version 1 of receipts does not say.
    Any,
}

/// A receipt proves nothing.
#[derive(Debug, thiserror::Error)]
pub enum ReceiptError {
    /// It is no kept receipt.
    #[error("it is no kept receipt: {0}")]
    Form(String),
    /// It is not genuine.
    #[error(transparent)]
    Signed(#[from] SignedError),
    /// Another body was accepted.
    #[error("the receipt is for another body: its SHA-256 is {expected}, not {came}")]
    OtherBody {
        /// What the receipt says.
        expected: String,
        /// What the body has.
        came: String,
    },
    /// It is for another request.
    #[error("the receipt is for another request than {method} {path}")]
    OtherRequest {
        /// The method that the file names.
        method: String,
        /// The path.
        path: String,
    },
    /// So many files belong to it.
    #[error("{expected} files belong to it, and {came} are given")]
    Files {
        /// How many it has.
        expected: usize,
        /// How many came.
        came: usize,
    },
    /// A file cannot be read.
    #[error(transparent)]
    Source(#[from] SourceError),
}

impl KeptReceipt {
    /// Reads what was kept.
    ///
    /// # Errors
    /// If it is something else.
    pub fn parse(text: &str) -> Result<Self, ReceiptError> {
        let kept: Self = serde_json::from_str(text).map_err(|error| ReceiptError::Form(error.to_string()))?;
        match kept.hoop == KIND {
            true => Ok(kept),
            false => Err(ReceiptError::Form(format!("`hoop` is `{}`, and not `{KIND}`", kept.hoop))),
        }
    }

    /// The form that is kept.
    pub fn to_json(&self) -> String {
        serde_json::to_string_pretty(self).expect("a receipt has a JSON form") + "\n"
    }

    /// The key that it names.
    ///
    /// # Errors
    /// If it is no receipt.
    pub fn signer(&self) -> Result<KwsId, ReceiptError> {
        Ok(signing::signer(&self.bytes()?)?)
    }

    /// Checks it with these keys, which must come from where the service can be trusted to be, and reads it.
    ///
    /// # Errors
    /// If it is not genuine.
    pub fn check(&self, keys: &BTreeMap<String, String>) -> Result<Receipt, ReceiptError> {
        let key = |id: KwsId| keys.get(&id.to_string()).and_then(|key| key.parse::<PublicKey>().ok());
        Ok(Receipt::open(&self.bytes()?, &self.origin, key)?)
    }

    /// Checks that a receipt is for the request that was kept with it, if one was.
    ///
    /// # Errors
    /// If it is for another.
    pub fn check_request(&self, receipt: &Receipt) -> Result<Asked<'_>, ReceiptError> {
        let Some(bound) = receipt.request else { return Ok(Asked::Any) };
        let Some(request) = &self.request else { return Ok(Asked::Untold) };
        match request.digest() == Some(bound) {
            true => Ok(Asked::Told(request)),
            false => Err(ReceiptError::OtherRequest { method: request.method.clone(), path: request.path.clone() }),
        }
    }

    fn bytes(&self) -> Result<Vec<u8>, ReceiptError> {
        signing::from_text(&self.receipt).ok_or_else(|| ReceiptError::Form("`receipt` is not base64url".to_owned()))
    }

    /// Checks that a receipt is for these files, put together as they were then. Blocking.
    ///
    /// # Errors
    /// If it is not, or they cannot be read.
    pub fn check_files(&self, receipt: &Receipt, files: &[PathBuf]) -> Result<(), ReceiptError> {
        let mut left = files.iter();
        let mut body = Plaintext::default();
        for piece in &self.body {
            let content = match piece {
                BodyPiece::Octets(text) => {
                    let bytes = signing::from_text(text);
                    Content::Bytes(bytes.ok_or_else(|| ReceiptError::Form("`octets` are not base64url".into()))?.into())
                }
                BodyPiece::File { .. } => Content::File(left.next().ok_or_else(|| self.files(files))?.clone()),
            };
            body.push(Segment::open(&content)?);
        }
        if left.next().is_some() {
            return Err(self.files(files));
        }
        check_digest(receipt, &body)
    }

    fn files(&self, given: &[PathBuf]) -> ReceiptError {
        let expected = self.body.iter().filter(|piece| matches!(piece, BodyPiece::File { .. })).count();
        ReceiptError::Files { expected, came: given.len() }
    }
}

/// Checks that a receipt is for this body, as the application was sent it. Blocking.
///
/// # Errors
/// If it is not, or the file cannot be read.
pub fn check_body(receipt: &Receipt, body: PathBuf) -> Result<(), ReceiptError> {
    let mut plaintext = Plaintext::default();
    plaintext.push(Segment::open(&Content::File(body))?);
    check_digest(receipt, &plaintext)
}

fn check_digest(receipt: &Receipt, body: &Plaintext) -> Result<(), ReceiptError> {
    let mut hash = Context::new(&SHA256);
    let mut at = 0;
    while at < body.len() {
        let mut frame = vec![0; usize::try_from(FRAME.min(body.len() - at)).expect("a frame fits in memory")];
        body.read_at(at, &mut frame)?;
        hash.update(&frame);
        at += frame.len() as u64;
    }
    let came = hash.finish();
    match came.as_ref() == receipt.digest {
        true => Ok(()),
        false => Err(ReceiptError::OtherBody { expected: hex::encode(receipt.digest), came: hex::encode(came) }),
    }
}

/// Methods that an upload may have.
const METHODS: [&str; 3] = ["POST", "PUT", "PATCH"];

/// The request of an upload of this device that a receipt is for. What the device knows is the URL; the method is the one that fits.
fn request_of(record: &UploadRecord, key: &UploadKey, receipt: &Receipt) -> Option<KeptRequest> {
    let (salt, url) = (RequestSalt::of(key, receipt.upload_id), Url::parse(&record.url).ok()?);
    let method = METHODS.into_iter().find(|method| Some(salt.digest(method, url.path())) == receipt.request)?;
    Some(KeptRequest { method: method.to_owned(), path: url.path().to_owned(), salt: signing::to_text(&salt.0) })
}

#[derive(Deserialize)]
struct Told {
    /// Of version 1, which does not say for which request it is.
    receipt: Option<String>,
    receipt_v2: Option<String>,
}

#[derive(Deserialize)]
struct WellKnown {
    #[serde(default)]
    signing_keys: BTreeMap<String, String>,
}

impl Client {
    /// The receipt of an upload of this device, from the service itself, checked with the keys that it publishes now. `body` is how the body
    /// was put together, if that is known. None: there is none, yet or at all.
    ///
    /// # Errors
    /// If the service cannot be asked, or its receipt is not genuine.
    pub async fn receipt(&self, id: UploadId, body: Vec<BodyPiece>) -> Result<Option<KeptReceipt>, StatusError> {
        let record = self.record(id)?;
        let unreachable = |error: &dyn std::fmt::Display| StatusError::Unreachable(error.to_string());
        let (mut link, path) = service(self, &record).ok_or(StatusError::NotOurs(id))?;
        let request = link.request(Method::GET, &format!("{path}/{id}"), empty());
        let answer = link.ask(request, TIMEOUT).await.map_err(|error| unreachable(&error))?;
        let told = serde_json::from_slice::<Told>(answer.body()).ok().and_then(|told| told.receipt_v2.or(told.receipt));
        let Some(receipt) = told else { return Ok(None) };
        let origin = link.origin().to_string();
        let signing_keys = ask_keys(&mut link).await?;
        let mut kept = KeptReceipt { hoop: KIND.to_owned(), origin, receipt, signing_keys, body, request: None };
        let receipt = kept.check(&kept.signing_keys);
        let receipt = receipt.map_err(|error| unreachable(&format!("its receipt is not genuine: {error}")))?;
        if receipt.upload_id != id {
            return Err(unreachable(&format!("its receipt is for upload {}", receipt.upload_id)));
        }
        let key = record.key.key();
        kept.request = key.and_then(|key| request_of(&record, &key, &receipt));
        match receipt.request.is_some() && kept.request.is_none() {
            true => Err(unreachable(&"its receipt is for another method or path")),
            false => Ok(Some(kept)),
        }
    }

    /// The public keys that the service of that origin publishes now.
    ///
    /// # Errors
    /// If it cannot be asked.
    pub async fn signing_keys(&self, origin: &Origin) -> Result<BTreeMap<String, String>, StatusError> {
        ask_keys(&mut Link::new(self.connector(), origin.clone())).await
    }
}

fn service(client: &Client, record: &UploadRecord) -> Option<(Link, String)> {
    let uploads = Url::parse(&record.uploads).ok()?;
    Some((Link::new(client.connector(), Origin::of(&uploads).ok()?), uploads.path().to_owned()))
}

async fn ask_keys(link: &mut Link) -> Result<BTreeMap<String, String>, StatusError> {
    let request = link.request(Method::GET, "/.well-known/hoop", empty());
    let answer = link.ask(request, TIMEOUT).await.map_err(|error| StatusError::Unreachable(error.to_string()))?;
    let told = serde_json::from_slice::<WellKnown>(answer.body());
    told.map(|told| told.signing_keys).map_err(|_| StatusError::Unreachable("it publishes no keys".to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::request::pieces::pieces;
    use hoop_seal::signing::Outcome;
    use hoop_seal::{Keyring, ServiceKey};
    use hoop_units::UnixTime;

    const ORIGIN: &str = "https://photos.example";

    fn kept(ring: &Keyring, body: &Plaintext) -> KeptReceipt {
        let mut all = vec![0; usize::try_from(body.len()).unwrap()];
        body.read_at(0, &mut all).unwrap();
        let digest = ring::digest::digest(&SHA256, &all).as_ref().try_into().unwrap();
        let (upload_id, outcome, time) = (UploadId([7; 16]), Outcome::Accepted, UnixTime(1_500));
        let salt = RequestSalt([5; 32]);
        let request = Some(salt.digest("POST", "/up"));
        let receipt = ring.sign_receipt(ORIGIN, &Receipt { upload_id, outcome, time, total: 900, digest, request });
        KeptReceipt {
            hoop: KIND.into(),
            origin: ORIGIN.into(),
            receipt: signing::to_text(&receipt),
            signing_keys: ring.signing_keys().map(|(id, key)| (id.to_string(), key.to_string())).collect(),
            body: pieces(body),
            request: Some(KeptRequest { method: "POST".into(), path: "/up".into(), salt: signing::to_text(&salt.0) }),
        }
    }

    #[test]
    fn a_kept_receipt_is_for_the_request_that_was_kept_with_it() {
        let ring = Keyring::new(ServiceKey::new(KwsId([1; 4]), [2; 32]));
        let kept = kept(&ring, &Plaintext::default());
        let receipt = kept.check(&kept.signing_keys).unwrap();
        assert_eq!(kept.check_request(&receipt).unwrap(), Asked::Told(kept.request.as_ref().unwrap()));
        let claimed = |method: &str, path: &str| {
            let request = KeptRequest { method: method.into(), path: path.into(), ..kept.request.clone().unwrap() };
            KeptReceipt { request: Some(request), ..kept.clone() }.check_request(&receipt).map(|_| ())
        };
        for (method, path) in [("PUT", "/up"), ("POST", "/votes"), ("POST", "")] {
            assert!(matches!(claimed(method, path), Err(ReceiptError::OtherRequest { .. })), "{method} {path}");
        }
        let untold = KeptReceipt { request: None, ..kept.clone() };
        assert_eq!(untold.check_request(&receipt).unwrap(), Asked::Untold);
        let first = Receipt { request: None, ..receipt };
        assert_eq!(kept.check_request(&first).unwrap(), Asked::Any);
    }

    #[test]
    fn a_kept_receipt_is_for_its_own_files_alone_and_for_no_other_service() {
        let folder = tempfile::tempdir().unwrap();
        let (one, two) = (folder.path().join("a.jpg"), folder.path().join("b.jpg"));
        std::fs::write(&one, b"one").unwrap();
        std::fs::write(&two, b"two").unwrap();
        let mut body = Plaintext::default();
        body.push(Segment::Bytes("--x\r\n\r\n".into()));
        body.push(Segment::open(&Content::File(one.clone())).unwrap());
        body.push(Segment::Bytes("\r\n--x--\r\n".into()));
        let ring = Keyring::new(ServiceKey::new(KwsId([1; 4]), [2; 32]));
        let kept = kept(&ring, &body);
        assert_eq!(KeptReceipt::parse(&kept.to_json()).unwrap(), kept);
        assert_eq!(kept.body[1], BodyPiece::File { name: "a.jpg".into(), size: 3 });
        let receipt = kept.check(&kept.signing_keys).unwrap();
        kept.check_files(&receipt, std::slice::from_ref(&one)).unwrap();
        assert!(matches!(kept.check_files(&receipt, std::slice::from_ref(&two)), Err(ReceiptError::OtherBody { .. })));
        for files in [vec![], vec![one.clone(), two]] {
            let wrong = kept.check_files(&receipt, &files);
            assert!(matches!(wrong, Err(ReceiptError::Files { expected: 1, .. })), "{wrong:?}");
        }
        assert!(matches!(check_body(&receipt, one), Err(ReceiptError::OtherBody { .. })), "the body is the form");
        let elsewhere = KeptReceipt { origin: "https://other.example".into(), ..kept.clone() };
        assert!(matches!(elsewhere.check(&kept.signing_keys), Err(ReceiptError::Signed(SignedError::Unauthentic))));
        assert!(matches!(kept.check(&BTreeMap::new()), Err(ReceiptError::Signed(SignedError::UnknownKey(_)))));
        assert!(KeptReceipt::parse("{}").is_err());
    }
}
