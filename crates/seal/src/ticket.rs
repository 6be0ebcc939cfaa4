//! What lets one upload pass: [`Ticket`].
//!
//! ```text
//! 0         1            5               21            25           37                            91        107
//! | version | kws_id (4) | upload_id(16) | expires (4) | nonce (12) | ciphertext (54)             | tag (16)|
//! |----------------- label ---------------------------|
//! plaintext: K(32) | not_before(4) | max_bytes(8) | route(8) | suite(1) | flags(1)
//! ```

use crate::kws_id::KwsId;
use crate::record::{Suite, UploadKey};
use hoop_units::{UnixTime, UploadId};
use ring::digest::{Context, SHA256};

/// How long a ticket is.
pub const TICKET_LEN: usize = LABEL_LEN + NONCE_LEN + BODY_LEN + TAG_LEN;

pub(crate) const LABEL_LEN: usize = 25;
pub(crate) const NONCE_LEN: usize = 12;
pub(crate) const BODY_LEN: usize = 54;
pub(crate) const TAG_LEN: usize = 16;

const VERSION: u8 = 1;

/// The part of a ticket that every hop can read; altered, the ticket no longer opens.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TicketLabel {
    /// The service's key that the ticket is sealed under.
    pub kws_id: KwsId,
    /// The upload that the ticket is for.
    pub upload_id: UploadId,
    /// When the ticket ends.
    pub expires: UnixTime,
}

/// The part of a ticket that only the service can read.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Grant {
    /// K, the upload's key.
    pub key: UploadKey,
    /// When the ticket begins.
    pub not_before: UnixTime,
    /// The most bytes that Z may have.
    pub max_bytes: u64,
    /// The route that the upload may take.
    pub route: Route,
    /// How its records are enciphered.
    pub suite: Suite,
}

/// An opened ticket.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Ticket {
    /// What every hop can read.
    pub label: TicketLabel,
    /// What only the service can.
    pub grant: Grant,
}

/// A method and a path, hashed; or any.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Route(pub [u8; 8]);

impl Route {
    /// Any route.
    pub const ANY: Self = Self([0; 8]);

    /// The route of a method and a request target; a query does not count.
    pub fn of(method: &str, target: &str) -> Self {
        let path = target.split_once('?').map_or(target, |(path, _)| path);
        let mut hash = Context::new(&SHA256);
        [method, " ", path].iter().for_each(|part| hash.update(part.as_bytes()));
        Self(*hash.finish().as_ref().first_chunk().expect("a hash is longer than a route"))
    }

    /// Whether a ticket with this route fits a request by that method to that target.
    pub fn fits(self, method: &str, target: &str) -> bool {
        self == Self::ANY || self == Self::of(method, target)
    }
}

/// The bytes are no ticket, or none of this service.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum TicketError {
    /// Another length.
    #[error("a ticket has {TICKET_LEN} bytes, not {0}")]
    Length(usize),
    /// Of a later version.
    #[error("the ticket is of version {0}, and only {VERSION} is known")]
    Version(u8),
    /// Sealed under a key that is not, or no longer, in the ring.
    #[error("the ticket's key {0} is not known here")]
    UnknownKey(KwsId),
    /// Altered, or issued by another service.
    #[error("the ticket was altered, or issued for another origin")]
    Unauthentic,
    /// Genuine, but of a kind that this version does not know.
    #[error("the ticket asks for what this version does not know: suite {suite}, flags {flags}")]
    Unsupported {
        /// The suite's byte.
        suite: u8,
        /// The flags' byte.
        flags: u8,
    },
}

impl TicketLabel {
    /// Reads the label of a ticket, as a gateway does: nothing is proven by it.
    ///
    /// # Errors
    /// If the length or the version is not a ticket's.
    pub fn parse(ticket: &[u8]) -> Result<Self, TicketError> {
        let ticket: &[u8; TICKET_LEN] = ticket.try_into().map_err(|_| TicketError::Length(ticket.len()))?;
        let [version, rest @ ..] = ticket;
        if *version != VERSION {
            return Err(TicketError::Version(*version));
        }
        let (kws_id, rest) = rest.split_first_chunk().expect("a ticket is longer than its label");
        let (upload_id, rest) = rest.split_first_chunk().expect("a ticket is longer than its label");
        let expires = rest.first_chunk().expect("a ticket is longer than its label");
        Ok(Self {
            kws_id: KwsId(*kws_id),
            upload_id: UploadId(*upload_id),
            expires: UnixTime(u32::from_be_bytes(*expires)),
        })
    }

    pub(crate) fn encode(&self) -> [u8; LABEL_LEN] {
        let mut label = [VERSION; LABEL_LEN];
        label[1..5].copy_from_slice(&self.kws_id.0);
        label[5..21].copy_from_slice(&self.upload_id.0);
        label[21..].copy_from_slice(&self.expires.0.to_be_bytes());
        label
    }
}

impl Grant {
    pub(crate) fn encode(&self) -> [u8; BODY_LEN] {
        let mut body = [0; BODY_LEN];
        body[..32].copy_from_slice(&self.key.0);
        body[32..36].copy_from_slice(&self.not_before.0.to_be_bytes());
        body[36..44].copy_from_slice(&self.max_bytes.to_be_bytes());
        body[44..52].copy_from_slice(&self.route.0);
        body[52] = self.suite.byte();
        body
    }

    pub(crate) fn decode(body: &[u8; BODY_LEN]) -> Result<Self, TicketError> {
        let (key, rest) = body.split_first_chunk().expect("fixed lengths");
        let (not_before, rest) = rest.split_first_chunk().expect("fixed lengths");
        let (max_bytes, rest) = rest.split_first_chunk().expect("fixed lengths");
        let (route, rest) = rest.split_first_chunk().expect("fixed lengths");
        let &[suite, flags] = rest else { unreachable!("fixed lengths") };
        let unsupported = TicketError::Unsupported { suite, flags };
        Ok(Self {
            key: UploadKey(*key),
            not_before: UnixTime(u32::from_be_bytes(*not_before)),
            max_bytes: u64::from_be_bytes(*max_bytes),
            route: Route(*route),
            suite: Suite::by_byte(suite).filter(|_| flags == 0).ok_or(unsupported)?,
        })
    }
}
