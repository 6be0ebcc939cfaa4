//! The HTTP plumbing that the shells share, so that each of them holds only what is its own.
//!
//! - [`Problem`] and its [`Code`]s: every refusal that crosses the wire (RFC 9457), one table.
//! - [`Server`]: a bounded HTTP/1.1 server loop over TCP or TLS, with graceful shutdown.
//! - [`Interim`]: interim answers, such as 104.
//! - [`Presence`]: has a request end when its client leaves.
//! - [`Joined`]: a body whose short pieces are joined.
//! - [`RequestBody`]: a request's body, which takes little memory however many come at once.
//! - [`events`]: an answer that is a stream of server-sent events.
//! - [`metrics`]: numbers for whoever runs a role, in the text format of Prometheus.
//! - [`Connector`]: connections to an [`Origin`] over TCP or TLS, only to addresses that a guard permits.
//! - [`limit_interim`], [`InterimCount`]: what may come before an answer, and [`Stoppable`] connections.
//! - [`Current`]: what may be exchanged while it is used, as when a configuration is read again; [`Fixed`]: what may not.
//! - [`apart`]: a thread of its own for what must not wait for others' disk.
//! - [`Clock`] and [`Rng`]: the operating system's, behind types that a test can replace. What time it is can be judged, and kept in a file ([`keep_time`]).
//!
//! Rooms, each importing only those before it: `process`, `message`, `places`, `client`, `server`.

mod client;
mod message;
mod places;
mod process;
mod server;

pub use client::connect::{
    AddressGuard, ConnectError, Connection, ConnectionWatch, Connector, EndsOnDrop, SendError, reset_when_dropped,
    to_try,
};
pub use client::interim::{InterimCount, Stop, Stoppable, is_no_answer, limit_interim};
pub use client::location::{is_elsewhere, is_sign_in};
pub use client::tls;
pub use hoop_clock::{Clock, Readings};
pub use message::body::{Body, BodyError, ReadError, empty, full, in_pieces, json, read_limited, streamed, until_gone};
pub use message::hop_by_hop::{HOP_BY_HOP, UnclearLength, connection_options, end_hop, settle_length};
pub use message::joined::Joined;
pub use message::lines::Lines;
pub use message::origin::{Origin, OriginError};
pub use message::problem::{Code, Problem, retry_after};
pub use places::{Place, Places, Share, makes_way};
pub use process::apart::apart;
pub use process::current::{Current, Fixed};
pub use process::shutdown::{Shutdown, ShutdownTrigger, shutdown};
pub use process::system::{Rng, date, keep_time};
pub use server::events::{Event, Events, events};
pub use server::interim::Interim;
pub use server::metrics;
pub use server::pace::LeastRate;
pub use server::paced::{Late, PacedBody};
pub use server::presence::Presence;
pub use server::request_body::RequestBody;
pub use server::splice::SpliceChunk;
pub use server::{BACKLOG, Crowd, Peer, ServeError, Server, ServerLimits};
