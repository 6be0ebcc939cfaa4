//! Takes sealed uploads on the LAN and delivers them over the uplink.
//!
//! A [`Gateway`] is opened with a [`Config`] and runs until it is told to stop. Two of them, with two spools, live in one
//! process. `docs/gateway.md` is the operator's page.

mod access;
mod admin;
mod announce;
mod bridge;
mod core;
mod crowd;
mod delivery;
#[doc(hidden)]
pub mod fuzzing;
mod gateway;
mod house;
mod intake;
mod lookup;
mod metrics;
mod monitor;
mod peer;
mod reload;
mod routes;
mod shared;
mod status;

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
