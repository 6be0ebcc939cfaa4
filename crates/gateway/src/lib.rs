//! Takes sealed uploads on the LAN and delivers them over the uplink.
//!
//! A [`Gateway`] is opened with a [`Config`] and runs until it is told to stop. Two of them, with two spools, live in one
//! process. `docs/gateway.md` is the operator's page.

mod config;
mod destination;
mod gateway;

pub use config::{Config, DEFAULT_PORT};
pub use destination::{AllowDest, AllowDestError};
pub use gateway::{Gateway, OpenError};
