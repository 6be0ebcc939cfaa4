//! What has become of an upload: [`State`], [`Status`] (`docs/protocol.md` section 8), and the application's [`Answer`].

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use hoop_seal::UploadKey;
use hoop_units::{RangeSet, UploadId, plain};
use serde::{Deserialize, Deserializer};
use std::fmt;

/// How far an upload has come.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum State {
    /// The service knows of it by a note alone: nothing of it has come.
    Announced,
    /// Some of it is there.
    Receiving,
    /// The gateway has all of it on disk.
    Stored,
    /// The gateway sends it on.
    Delivering,
    /// The service has all of it.
    Received,
    /// The application has taken it. Final.
    Accepted,
    /// The service keeps it until its owner has signed in again.
    Held,
    /// The application has refused it. Final.
    Rejected,
    /// The application had the whole request, and its answer was lost. Final.
    Unknown,
    /// Its owner has stopped it. Final.
    Stopped,
    /// Its time was over. Final.
    Expired,
    /// The service does not take it. Final.
    Refused,
}

// Their names on the wire.
hoop_units::names!(State:
    Announced = "announced", Receiving = "receiving", Stored = "stored", Delivering = "delivering",
    Received = "received", Accepted = "accepted", Held = "held", Rejected = "rejected", Unknown = "unknown",
    Stopped = "stopped", Expired = "expired", Refused = "refused"
);

impl State {
    /// The state of that name. What a service does inside (`replaying`, `committing`) is `received` to others.
    pub fn by_name(name: &str) -> Option<Self> {
        match name {
            "replaying" | "committing" => Some(Self::Received),
            _ => Self::ALL.into_iter().find(|state| state.name() == name),
        }
    }

    /// Whether nothing more will happen by itself.
    pub const fn is_settled(self) -> bool {
        match self {
            Self::Announced | Self::Receiving | Self::Stored | Self::Delivering | Self::Received => false,
            Self::Accepted | Self::Held | Self::Rejected | Self::Unknown => true,
            Self::Stopped | Self::Expired | Self::Refused => true,
        }
    }

    /// Whether whoever says so will not deliver it any more.
    pub const fn is_given_up(self) -> bool {
        matches!(self, Self::Stopped | Self::Expired | Self::Refused)
    }

    /// Whether its owner may have the service hand it to the application again: then it does not stay so for ever.
    pub const fn may_be_released(self) -> bool {
        matches!(self, Self::Held | Self::Rejected | Self::Unknown)
    }

    /// Whether nothing more will happen at all.
    pub const fn is_final(self) -> bool {
        self.is_settled() && !matches!(self, Self::Held)
    }
}

impl fmt::Display for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// The status of an upload, as a gateway or a service tells it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Status {
    /// How far it has come.
    pub state: State,
    /// The length of Z.
    pub total: Option<u64>,
    /// Bytes of Z that are there.
    pub received: Option<u64>,
    /// What is missing of Z there, as far as it was told.
    pub missing: Option<RangeSet>,
    /// Bytes of Z that the gateway has delivered.
    pub delivered: Option<u64>,
    /// When the ticket ends.
    pub expires: Option<u32>,
    /// When the gateway had all of it.
    pub stored_at: Option<u32>,
    /// When the service had all of it.
    pub received_at: Option<u32>,
    /// When it became final.
    pub finished_at: Option<u32>,
    /// When this status last changed.
    pub updated: Option<u32>,
    /// What is in the way: code and words.
    pub reason: Option<Reason>,
    /// Attempts so far.
    pub attempts: u32,
    /// When the next one comes.
    pub next_attempt: Option<u32>,
    /// How fast the gateway delivers, in bits a second.
    pub rate_bps: Option<u64>,
    /// The application's answer, opened.
    pub answer: Option<Answer>,
    /// Whether the service itself has said so: directly, or in an answer that opens with the upload's key. What a
    /// gateway says alone is hearsay.
    pub proven: bool,
    /// Whether the gateway is not relied on for this upload any longer, since the service was asked and does not have all of it: the
    /// gateway claims that it has, has given it up, or has forgotten it.
    pub denied: bool,
}

/// What is in the way.
#[derive(Clone, PartialEq, Eq, Debug, Deserialize)]
pub struct Reason {
    /// The code, as in the table of `docs/protocol.md`.
    #[serde(deserialize_with = "safe")]
    pub code: String,
    /// In words, [safe to show](hoop_units::plain).
    #[serde(default, deserialize_with = "safe")]
    pub detail: String,
}

fn safe<'de, D: Deserializer<'de>>(text: D) -> Result<String, D::Error> {
    String::deserialize(text).map(|text| plain::line(&text))
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.detail.is_empty() {
            true => f.write_str(&self.code),
            false => write!(f, "{} ({})", self.detail, self.code),
        }
    }
}

/// The document, in which a member that is not known is passed over and one that is missing is unknown.
#[derive(Deserialize)]
struct Document {
    state: String,
    total: Option<u64>,
    received: Option<u64>,
    missing: Option<String>,
    delivered: Option<u64>,
    expires: Option<u32>,
    stored_at: Option<u32>,
    received_at: Option<u32>,
    finished_at: Option<u32>,
    updated: Option<u32>,
    reason: Option<Reason>,
    #[serde(default)]
    attempts: u32,
    next_attempt: Option<u32>,
    rate_bps: Option<u64>,
    answer: Option<String>,
}

impl Status {
    /// Whether it tells of the service or the application, without proof: a gateway knows of itself alone.
    pub fn is_claim(&self) -> bool {
        !self.proven && self.state > State::Delivering
    }

    /// How far it is known to be: without proof, a gateway is believed of itself alone.
    pub fn believed(&self) -> State {
        match self.is_claim() && !self.state.is_given_up() {
            true if self.denied => State::Receiving,
            true => State::Stored,
            false => self.state,
        }
    }

    /// Whether it is final, by the service's word.
    pub fn is_proven_final(&self) -> bool {
        self.proven && self.state.is_final()
    }

    /// Reads a status document, and opens the answer in it with the upload's key. `None` if it is no status.
    pub fn read(json: &[u8], id: UploadId, key: &UploadKey) -> Option<Self> {
        let document: Document = serde_json::from_slice(json).ok()?;
        let answer = document.answer.and_then(|text| {
            let sealed = URL_SAFE_NO_PAD.decode(text).ok()?;
            Answer::parse(&hoop_seal::answer::open(key, id, &sealed).ok()?)
        });
        // What is inside the seal, the service alone can have written.
        let proven = answer.as_ref().and_then(Answer::state);
        Some(Self {
            state: State::by_name(&document.state).map(|told| proven.unwrap_or(told))?,
            total: document.total,
            received: document.received,
            missing: document.missing.and_then(|missing| missing.parse().ok()),
            delivered: document.delivered,
            expires: document.expires,
            stored_at: document.stored_at,
            received_at: document.received_at,
            finished_at: document.finished_at,
            updated: document.updated,
            reason: document.reason,
            attempts: document.attempts,
            next_attempt: document.next_attempt,
            rate_bps: document.rate_bps,
            answer,
            proven: proven.is_some(),
            denied: false,
        })
    }
}

/// The application's answer: status, some fields, and the beginning of the body.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Answer {
    /// The status code.
    pub status: u16,
    /// `Content-Type` and `Location`, as far as they were there.
    pub fields: Vec<(String, String)>,
    /// At most 16 KiB of body.
    pub body: Vec<u8>,
}

impl Answer {
    /// Reads an HTTP/1.1 response head and what follows it.
    pub fn parse(message: &[u8]) -> Option<Self> {
        let end = message.windows(4).position(|window| window == b"\r\n\r\n")?;
        let head = std::str::from_utf8(&message[..end]).ok()?;
        let mut lines = head.split("\r\n");
        let status = lines.next()?.strip_prefix("HTTP/1.1 ")?.get(..3)?.parse().ok()?;
        let fields = lines
            .filter_map(|line| line.split_once(':'))
            .map(|(name, value)| (name.to_owned(), value.trim().to_owned()))
            .collect();
        Some(Self { status, fields, body: message[end + 4..].to_vec() })
    }

    /// What the service took the answer to mean.
    pub fn state(&self) -> Option<State> {
        State::by_name(self.field("Hoop-State")?)
    }

    /// A field's value; names compare without case.
    pub fn field(&self, name: &str) -> Option<&str> {
        self.fields.iter().find(|(known, _)| known.eq_ignore_ascii_case(name)).map(|(_, value)| value.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_state_survives_its_name() {
        for state in State::ALL {
            assert_eq!(State::by_name(state.name()), Some(state));
        }
        assert_eq!(State::by_name("committing"), Some(State::Received));
        assert_eq!(State::by_name("of-tomorrow"), None);
    }

    #[test]
    fn a_status_is_read_with_its_answer_opened() {
        let (id, key) = (UploadId([1; 16]), UploadKey([2; 32]));
        let answer =
            b"HTTP/1.1 201 Created\r\nHoop-State: accepted\r\nContent-Type: application/json\r\n\r\n{\"ok\":true}";
        let sealed = URL_SAFE_NO_PAD.encode(hoop_seal::answer::seal(&key, id, answer, [3; 12]));
        let json = format!(
            r#"{{"id":"{id}","state":"accepted","total":10,"received":10,"missing":"","expires":9,"updated":8,
            "reason":{{"code":"upstream-busy","detail":"later"}},"attempts":2,"next_attempt":null,"answer":"{sealed}","new":1}}"#
        );
        let status = Status::read(json.as_bytes(), id, &key).unwrap();
        assert_eq!((status.state, status.total, status.attempts), (State::Accepted, Some(10), 2));
        assert_eq!(status.reason.unwrap().to_string(), "later (upstream-busy)");
        let answer = status.answer.unwrap();
        assert_eq!((answer.status, answer.body.as_slice()), (201, &b"{\"ok\":true}"[..]));
        assert_eq!(answer.field("content-type"), Some("application/json"));
        let forged = Status::read(json.as_bytes(), id, &UploadKey([9; 32])).unwrap();
        assert_eq!((&forged.answer, forged.proven), (&None, false));
    }

    #[test]
    fn without_proof_a_gateway_is_believed_of_itself_alone() {
        let read = |state: State| {
            let json = format!(r#"{{"state":"{state}"}}"#);
            Status::read(json.as_bytes(), UploadId([1; 16]), &UploadKey([2; 32])).unwrap()
        };
        for state in State::ALL {
            let told = read(state);
            let of_itself = state <= State::Delivering || state.is_given_up();
            assert_eq!(told.believed(), if of_itself { state } else { State::Stored }, "{state}");
            assert!(!told.is_proven_final(), "{state}");
            let proven = Status { proven: true, ..told.clone() };
            assert_eq!((proven.believed(), proven.is_proven_final()), (state, state.is_final()));
            let denied = Status { denied: true, ..told };
            assert_eq!(denied.believed(), if of_itself { state } else { State::Receiving }, "{state}");
        }
    }

    #[test]
    fn what_is_no_status_is_none() {
        let read = |json: &str| Status::read(json.as_bytes(), UploadId([1; 16]), &UploadKey([2; 32]));
        for wrong in ["", "{}", "[]", r#"{"state":7}"#, r#"{"state":"of-tomorrow"}"#, "<html>"] {
            assert_eq!(read(wrong), None, "{wrong}");
        }
        assert_eq!(Answer::parse(b"HTTP/1.1 2"), None);
        assert_eq!(Answer::parse(b"HTTP/1.1 \xc3\xa4\xc3\xa4\r\n\r\n"), None);
    }
}
