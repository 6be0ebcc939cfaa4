//! Takes sealed uploads on the LAN and delivers them over the uplink.
//!
//! A [`Gateway`] is opened with a [`Config`] and runs until it is told to stop. Two of them, with two spools, live in one
//! process. `docs/gateway.md` is the operator's page.

mod announce;
mod bridge;
mod config;
mod delivery;
mod destination;
#[doc(hidden)]
pub mod fuzzing;
mod gateway;
mod hosts;
mod intake;
mod message;
mod monitor;
mod offload;
mod pages;
mod progress;
mod resumable;
mod routes;
mod service;
mod shared;
mod status;
mod transfer;
mod well_known;

pub use config::{CONNECTIONS, Config, DEFAULT_PORT};
pub use destination::{AllowDest, AllowDestError};
pub use gateway::{Gateway, OpenError};
