//! What stands in a vector's file; `vectors/README.md` tells the same in words.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use std::collections::BTreeMap;

/// One file.
#[derive(Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "lowercase")]
pub enum Vector {
    Body(Body),
    Upload(Upload),
    Ticket(Ticket),
    Token(Token),
    Answer(Answer),
    Permit(Permit),
    Receipt(Receipt),
    Proof(Proof),
    Presence(Presence),
    Stored(Stored),
}

/// What must come of it.
#[derive(Serialize, Deserialize, Clone, Copy, PartialEq, Eq, Debug)]
#[serde(rename_all = "kebab-case")]
pub enum Class {
    Success,
    HeaderFailure,
    RecordFailure,
    Truncated,
    TicketFailure,
    TokenFailure,
    AnswerFailure,
    PermitFailure,
    ReceiptFailure,
    ProofFailure,
    PresenceFailure,
    StoredFailure,
}

/// Why a ticket, a token, or what is signed is refused.
#[derive(Serialize, Deserialize, Clone, Copy, PartialEq, Eq, Debug)]
#[serde(rename_all = "kebab-case")]
pub enum Reason {
    Length,
    Version,
    UnknownKey,
    Unauthentic,
    Unsupported,
}

/// Bytes, as base64url without padding.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Octets(pub Vec<u8>);

impl Serialize for Octets {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&URL_SAFE_NO_PAD.encode(&self.0))
    }
}

impl<'de> Deserialize<'de> for Octets {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        URL_SAFE_NO_PAD.decode(text).map(Self).map_err(de::Error::custom)
    }
}

/// A sealed body, and the key to open it with. Either `sealed` or `made` is there.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Body {
    pub about: String,
    pub class: Class,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub failed_record: Option<u64>,
    #[serde(default, skip_serializing_if = "core::ops::Not::not")]
    pub canonical: bool,
    pub suite: String,
    pub key: Octets,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sealed: Option<Octets>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub made: Option<Made>,
    pub released_sha256: String,
}

/// A rule for a Z that is too large to be stored.
#[derive(Serialize, Deserialize, Clone)]
#[serde(deny_unknown_fields)]
pub struct Made {
    pub salt: Octets,
    pub record_size: u32,
    pub key_id: Octets,
    pub plaintext_length: usize,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub flip: Option<usize>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cut: Option<usize>,
    pub sealed_sha256: String,
}

/// The plaintext of a body that is made by rule.
pub fn pattern(length: usize) -> Vec<u8> {
    // 251 is prime, so no two neighbouring records are alike.
    (0..length).map(|at| (at % 251) as u8).collect()
}

/// A sealed body that is opened with nothing but the service's keys.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Upload {
    pub about: String,
    pub class: Class,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<Reason>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub failed_record: Option<u64>,
    pub origin: String,
    pub keyring: Vec<String>,
    pub sealed: Octets,
    pub released_sha256: String,
}

/// A ticket as a service gets it.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Ticket {
    pub about: String,
    pub class: Class,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<Reason>,
    pub origin: String,
    pub keyring: Vec<String>,
    pub ticket: Octets,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub content: Option<Content>,
}

/// What a ticket says.
#[derive(Serialize, Deserialize, Clone, PartialEq, Eq, Debug)]
#[serde(deny_unknown_fields)]
pub struct Content {
    pub kws_id: String,
    pub upload_id: String,
    pub expires: u32,
    pub key: Octets,
    pub not_before: u32,
    pub max_bytes: u64,
    pub route: String,
    pub suite: String,
}

/// A token as a service gets it.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Token {
    pub about: String,
    pub class: Class,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<Reason>,
    pub origin: String,
    pub upload_id: String,
    pub keyring: Vec<String>,
    pub token: Octets,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub content: Option<String>,
}

/// An answer as a device gets it.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Answer {
    pub about: String,
    pub class: Class,
    pub upload_id: String,
    pub key: Octets,
    pub answer: Octets,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub content: Option<String>,
}

/// A permit as a gateway gets it.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Permit {
    pub about: String,
    pub class: Class,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<Reason>,
    pub origin: String,
    pub keyring: Vec<String>,
    pub signing_keys: BTreeMap<String, Octets>,
    pub permit: Octets,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub content: Option<PermitContent>,
}

/// What a permit says.
#[derive(Serialize, Deserialize, Clone, PartialEq, Eq, Debug)]
#[serde(deny_unknown_fields)]
pub struct PermitContent {
    pub upload_id: String,
    pub max_bytes: u64,
    pub expires: u32,
    pub gateway: Option<String>,
}

/// A receipt as anybody gets it.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Receipt {
    pub about: String,
    pub class: Class,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<Reason>,
    pub origin: String,
    pub keyring: Vec<String>,
    pub signing_keys: BTreeMap<String, Octets>,
    pub receipt: Octets,
    /// K and the request, from which `content.request` follows.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub asked: Option<Asked>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub content: Option<ReceiptContent>,
}

/// What a receipt of version 2 binds.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Asked {
    pub key: Octets,
    pub method: String,
    pub path: String,
}

/// What a receipt says.
#[derive(Serialize, Deserialize, Clone, PartialEq, Eq, Debug)]
#[serde(deny_unknown_fields)]
pub struct ReceiptContent {
    pub upload_id: String,
    pub state: String,
    pub time: u32,
    pub total: u64,
    pub digest: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request: Option<String>,
}

/// A gateway's proof as a service gets it.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Proof {
    pub about: String,
    pub class: Class,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<Reason>,
    pub origin: String,
    pub upload_id: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub seed: Option<Octets>,
    pub proof: Octets,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub content: Option<ProofContent>,
}

/// What a proof says.
#[derive(Serialize, Deserialize, Clone, PartialEq, Eq, Debug)]
#[serde(deny_unknown_fields)]
pub struct ProofContent {
    pub gateway: String,
    pub time: u32,
}

/// A gateway's answer to a nonce, as the device gets it that asked at `authority`.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Presence {
    pub about: String,
    pub class: Class,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<Reason>,
    pub authority: String,
    pub nonce: Octets,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub seed: Option<Octets>,
    pub presence: Octets,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub content: Option<PresenceContent>,
}

/// What such an answer says.
#[derive(Serialize, Deserialize, Clone, PartialEq, Eq, Debug)]
#[serde(deny_unknown_fields)]
pub struct PresenceContent {
    pub gateway: String,
}

/// A gateway's word on what it has stored of an upload to the service of that `origin`.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Stored {
    pub about: String,
    pub class: Class,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<Reason>,
    pub origin: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub seed: Option<Octets>,
    pub stored: Octets,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub content: Option<StoredContent>,
}

/// What it says.
#[derive(Serialize, Deserialize, Clone, PartialEq, Eq, Debug)]
#[serde(deny_unknown_fields)]
pub struct StoredContent {
    pub gateway: String,
    pub upload_id: String,
    pub state: String,
    pub time: u32,
    pub total: u64,
    pub missing: String,
}
