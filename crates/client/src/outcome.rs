//! What a push is asked for and what it tells: [`PushOptions`], [`Event`], [`Outcome`].

use crate::request::pieces::BodyPiece;
use crate::wire::status::{Answer, Reason, State, Status};
use hoop_http::Origin;
use hoop_seal::Suite;
use hoop_units::UploadId;
use std::sync::Arc;
use std::time::Duration;

/// How far to stay.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub enum WaitFor {
    /// Until the gateway has all of it on disk (or, without a gateway, the service): then the device may leave.
    #[default]
    Stored,
    /// Until the service has all of it.
    Received,
    /// Until the application has answered.
    Accepted,
}

/// How to push.
#[derive(Clone, Debug, Default)]
pub struct PushOptions {
    /// How far to stay. Default: stored.
    pub wait: WaitFor,
    /// How long to stay after it was stored. Default: until the upload is settled, which its expiry bounds.
    pub timeout: Option<Duration>,
    /// Send the ordinary request and nothing else.
    pub plain: bool,
    /// Do not send the ordinary request: a service that takes no sealed uploads is an error ([`TicketsError::NoHoop`](crate::TicketsError::NoHoop)). Default: send it.
    pub sealed_only: bool,
    /// How to encipher. Default: `aes256gcm`.
    pub suite: Suite,
    /// How soon it should be at the service: gateways deliver what has the earliest deadline first, and may go outside their hours or
    /// their budget for it. Default: whenever its turn comes; when going on, as was said at first.
    pub deadline: Option<Duration>,
    /// Rely on the gateway that is there although it shows no key, or another than is known here; if it shows one, that is known from now on.
    /// Default: no, so the push stays until the service has the upload.
    pub trust_new_gateway: bool,
}

/// What happens on the way; for a display.
#[derive(Clone, Debug)]
pub enum Event {
    /// The files are open and measured.
    Measured {
        /// The length of the body.
        bytes: u64,
    },
    /// A ticket is there.
    Ticket {
        /// The upload's id.
        id: UploadId,
        /// Whether it was fetched ahead.
        ahead: bool,
    },
    /// Which way it goes, and why not the better one.
    Way {
        /// The way.
        way: Way,
        /// Why not by a gateway, or not sealed.
        because: Option<String>,
    },
    /// Who the gateway has shown to be.
    Identity {
        /// The gateway.
        origin: Origin,
        /// Who it is.
        identity: GatewayIdentity,
        /// Whether it is relied on all the same, as the options say.
        trusted: bool,
    },
    /// So much of Z, or of the plain body, has been sent.
    Progress {
        /// Bytes so far.
        sent: u64,
        /// Bytes in all.
        total: u64,
    },
    /// The connection broke; it goes on after a pause.
    Broken {
        /// Why.
        reason: String,
    },
    /// All of it is stored.
    Stored {
        /// Where to follow it.
        monitor: Option<String>,
        /// Whether the device may leave: each gateway that has some of it has shown who it is.
        may_leave: bool,
    },
    /// How it fares afterwards.
    Status(Box<Status>),
    /// The gateway is not relied on any longer: what the service lacks goes to it by another way.
    Doubt {
        /// Why.
        reason: String,
    },
    /// It did not come to an end, and a later process can go on with it.
    Resumable {
        /// The upload's id.
        id: UploadId,
    },
    /// The upload cannot be asked about later, since it could not be written down.
    Forgotten {
        /// Why.
        reason: String,
    },
}

/// Who a gateway has shown to be (`docs/protocol.md`, *Who a gateway is*). Names follow from keys, as 32 hexadecimal digits.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum GatewayIdentity {
    /// One that the service lists.
    Listed,
    /// One that this device has met here before.
    Known,
    /// The first that shows a key here.
    New {
        /// Its name.
        name: String,
    },
    /// Another than is known here.
    Changed {
        /// Its name.
        name: String,
        /// The names of those that are known here.
        known: Vec<String>,
    },
    /// It shows no key: one of an older version, one behind a router, or none.
    Unproven {
        /// The names of those that are known here.
        known: Vec<String>,
    },
}

impl GatewayIdentity {
    /// Whether a device may leave an upload with it.
    pub const fn is_relied_on(&self) -> bool {
        match self {
            Self::Listed | Self::Known | Self::New { .. } => true,
            Self::Changed { .. } | Self::Unproven { .. } => false,
        }
    }
}

/// Which way an upload goes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Way {
    /// Sealed, by a gateway.
    Gateway(Origin),
    /// Sealed, to the service itself.
    Direct,
    /// As the ordinary request.
    Plain,
}

impl Way {
    /// The gateway, if it goes by one.
    pub const fn gateway(&self) -> Option<&Origin> {
        match self {
            Self::Gateway(origin) => Some(origin),
            Self::Direct | Self::Plain => None,
        }
    }

    /// `gateway`, `direct` or `plain`.
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Gateway(_) => "gateway",
            Self::Direct => "direct",
            Self::Plain => "plain",
        }
    }
}

/// When things were done, in milliseconds since the clock's origin.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Timings {
    /// The ticket was there.
    pub ticket_ms: Option<u64>,
    /// The first byte could leave.
    pub sending_ms: Option<u64>,
    /// All of it was stored.
    pub stored_ms: Option<u64>,
    /// The wait that was asked for was over.
    pub done_ms: Option<u64>,
}

/// What became of a push, as far as it was followed.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// The upload's id; the ordinary request has none.
    pub id: Option<UploadId>,
    /// Which way it went.
    pub way: Way,
    /// Whether it was handed over early: all but record 0 was on its way to the gateway before the ticket was there.
    pub early: bool,
    /// How far it has come.
    pub state: State,
    /// Whether the wait ended before the state that was asked for.
    pub timed_out: bool,
    /// Whether the device may leave: the service has all of it, or gateways that have shown who they are.
    pub may_leave: bool,
    /// Where to follow it.
    pub monitor: Option<String>,
    /// The length of the body.
    pub bytes: u64,
    /// How the body was put together, to keep with a receipt; empty for the ordinary request.
    pub body: Vec<BodyPiece>,
    /// What is in the way, if something is.
    pub reason: Option<Reason>,
    /// The application's answer, if it is known.
    pub answer: Option<Answer>,
    /// When things were done.
    pub timings: Timings,
}

/// Told of every [`Event`]; must return at once.
pub type OnEvent = Arc<dyn Fn(Event) + Send + Sync>;
