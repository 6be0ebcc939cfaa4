//! Carriers on WebSocket (RFC 6455) over TLS 1.3, where UDP does not pass: [`WebSocketDevice`] and [`WebSocketListener`]. `docs/flow.md` §7 has the messages.
//!
//! One task for each connection reads and writes; lanes leave messages with it and find what came. A lane that nobody reads from stops the whole connection once it holds a
//! mebibyte (flows are always read from: their credit is what bounds them), and is broken off if that lasts for longer than [`WebSocketOptions::patience`]. So it is with all lanes
//! together at two mebibytes, and with those that were not accepted yet at 64 KiB: the one that holds most is broken off. A server's lanes hold 128 KiB together until it is known whose the
//! carrier is ([`Carrier::set_known`]). With the buffers that it reads into, a connection never holds
//! more than five mebibytes of what came.
//!
//! A device sends what its lanes have right behind its request, without awaiting the answer. RFC 6455 §4.1 has it wait, for the sake of proxies that see what is sent; where TLS ends at
//! the server none does, and it saves a round trip. Where TLS ends in front of the server, the device waits.

mod buffers;
mod carrier;
mod device;
mod driver;
mod frames;
pub(crate) mod fuzzing;
mod lanes;
mod server;
mod shared;
mod upgrade;

use std::time::Duration;

pub use carrier::WebSocketCarrier;
pub use device::{Proxy, WebSocketDevice};
pub use server::{WebSocketLimits, WebSocketListener};
pub use upgrade::{Refused, WEBSOCKET_PATH, WEBSOCKET_PROTOCOL};

/// What binds proofs to a carrier; both ends must be set alike.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum BoundBy {
    /// The TLS exporter: TLS ends at the two ends.
    #[default]
    Exporter,
    /// HELLO and CHALLENGE (`docs/flow.md` §3): TLS ends in front of the server. It costs two round trips.
    Nonces,
}

/// How connections are run, at either end.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct WebSocketOptions {
    /// The path; default: [`WEBSOCKET_PATH`].
    pub path: String,
    /// What binds proofs; default: the exporter.
    pub bound_by: BoundBy,
    /// A carrier is gone once nothing has come for so long; default: 25 s, as for QUIC.
    pub idle: Duration,
    /// A ping is sent whenever nothing was for so long; default: never, since that keeps a radio awake.
    pub keep_alive: Option<Duration>,
    /// How long a lane that nobody reads from may hold up the others of its carrier; default: 5 s, a disk's worst sync.
    pub patience: Duration,
}

impl Default for WebSocketOptions {
    fn default() -> Self {
        Self {
            path: WEBSOCKET_PATH.to_owned(),
            bound_by: BoundBy::Exporter,
            idle: Duration::from_secs(25),
            keep_alive: None,
            patience: Duration::from_secs(5),
        }
    }
}
