//! The relay: it connects to where programs want to go, within each device's share.
//!
//! Rooms, each importing only those before it: `rate_limit`, `turns`, `lookups`, `places`, `heads`, `reserve`, `refusals`, `access_log`, `metrics`, `metered`, `egress`, `tunnel`, `origins`, `objects`, `uploads`, `fetch`, `cache`, `exchange`, `upload`, `config`, `certificate`, `revocation`, `relay`.

mod access_log;
pub(crate) mod cache;
mod certificate;
pub(crate) mod config;
pub(crate) mod egress;
mod exchange;
mod fetch;
mod heads;
mod lookups;
mod metered;
mod metrics;
pub(crate) mod objects;
mod origins;
mod places;
pub(crate) mod rate_limit;
mod refusals;
pub(crate) mod relay;
mod reserve;
mod revocation;
mod tunnel;
mod turns;
mod upload;
mod uploads;
