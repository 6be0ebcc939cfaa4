//! Takes sealed uploads on the LAN and delivers them over the uplink.
//!
//! A [`Gateway`] is opened with a [`Config`] and runs until it is told to stop. Two of them, with two spools, live in one
//! process. `docs/gateway.md` is the operator's page.
//!
//! Rooms, each importing only those before it: `core`, `announce`, `peer`, `access`, `intake` | `delivery`, `web`, `housekeeping`, `reload`, `gateway`, `fuzzing`.
//!
//! ```text
//!  web           resources, monitor, owner's page, metrics
//!  intake        taking uploads          delivery   sending them
//!  access        who may do what, consent, receipts
//!  peer          services: destinations, exchanges, verdicts
//!  core          configuration, spool, clock, key, counters, names on the wire
//! ```
//!
//! Intake and delivery do not know of each other. They meet in the spool and in two notifications (`core::state`). Each room has its own state;
//! `gateway` opens the rooms one after the other, and runs them.

mod access;
mod announce;
mod core;
mod delivery;
#[doc(hidden)]
pub mod fuzzing;
mod gateway;
mod housekeeping;
mod intake;
mod peer;
mod reload;
mod web;

pub use crate::core::allow_dest::{AllowDest, AllowDestError};
pub use crate::core::body_timeouts::BodyTimeouts;
pub use crate::core::config::{CONNECTIONS, Config, DEFAULT_PORT, Permits};
pub use crate::core::device_limits::DeviceLimits;
pub use crate::core::pacing::{BudgetConfig, Pacing};
pub use announce::Announcement;
pub use delivery::pacing::is_interface;
pub use gateway::{Gateway, OpenError};
pub use reload::Reload;

/// Where Z's first record begins, in every upload that a gateway takes.
pub const FIRST_RECORD: u64 = crate::core::wire::PRELUDE_LEN as u64;

/// The example of the README compiles and runs.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
