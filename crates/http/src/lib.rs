//! The HTTP plumbing that the shells share, so that each of them holds only what is its own.
//!
//! - [`Problem`] and its [`Code`]s: every refusal that crosses the wire (RFC 9457), one table.
//! - [`Server`]: a bounded HTTP/1.1 server loop over TCP or TLS, with graceful shutdown.
//! - [`Interim`]: interim answers, such as 104.
//! - [`Inbound`]: a request's body, which takes little memory however many come at once.
//! - [`events`]: an answer that is a stream of server-sent events.
//! - [`metrics`]: numbers for whoever runs a role, in the text format of Prometheus.
//! - [`page`]: what pages need: text made safe, the reader's language.
//! - [`Connector`]: connections to an [`Origin`] over TCP or TLS, only to addresses that a guard permits.
//! - [`Current`]: what may be exchanged while it is used, as when a configuration is read again.
//! - [`Clock`] and [`Dice`]: the operating system's, behind types that a test can replace. What time it is can be judged, and kept in a file ([`keep_time`]).

mod body;
mod connect;
mod current;
mod events;
mod gate;
mod head;
mod inbound;
mod interim;
mod lines;
mod location;
pub mod metrics;
mod origin;
mod pace;
mod paced;
pub mod page;
mod pipe;
mod places;
mod problem;
mod server;
mod shutdown;
mod system;
pub mod tls;

pub use body::{Body, BodyError, ReadError, empty, full, in_pieces, json, read_limited, streamed};
pub use connect::{AddressGuard, ConnectError, Connection, ConnectionWatch, Connector, SendError};
pub use current::Current;
pub use events::{Event, Events, events};
pub use hoop_clock::{Clock, Readings};
pub use inbound::Inbound;
pub use interim::Interim;
pub use lines::Lines;
pub use location::{is_elsewhere, is_sign_in};
pub use origin::{Origin, OriginError};
pub use pace::LeastRate;
pub use paced::{Late, PacedBody};
pub use pipe::Piped;
pub use places::{Place, Places, Share};
pub use problem::{Code, Problem, retry_after};
pub use server::{Crowd, Peer, ServeError, Server, ServerLimits};
pub use shutdown::{Shutdown, ShutdownTrigger, shutdown};
pub use system::{Dice, date, keep_time};
