//! The sidecar in front of a web application: it issues tickets, opens what gateways deliver, replays it once as the
//! plain request that it is, and keeps the answer. Everything else passes through to the application.
//!
//! "Rooms" are the top-level modules. Each imports only those before it: `keys`, `model`, `policy`, `store`, `config`, `context`, `receive`, `replay`, `api`, `reload`, `service`, `fuzzing`.
//!
//! - `keys` and `model`: what an upload is, whose, and what its owner says of it;
//! - `policy` (pure): what is let in, where it goes, and what an answer means;
//! - `store`: what is known of uploads, and their sealed bodies, on disk;
//! - `config` and `context`: what an operator sets, and what every room below shares of it;
//! - `receive`: takes in sealed messages, within the disk quotas, and deletes expired uploads;
//! - `replay`: uploads go to the application, and its answers are judged;
//! - `api`: the service's own paths, the pages for people, and the proxy for all else;
//! - `reload` and `service`: all of it as one thing.
//!
//! `docs/protocol.md` has the formats, `docs/services.md` the operator's side.

mod api;
mod config;
mod context;
#[doc(hidden)]
pub mod fuzzing;
mod keys;
mod model;
mod policy;
mod receive;
mod reload;
mod replay;
mod service;
mod store;

pub use config::{Config, TlsFiles};
pub use hoop_seal::signing::GatewayId;
pub use keys::{KeyFileError, load_keyring};
pub use policy::permits::{GATEWAYS_MAX, Permits};
pub use policy::rules_file::{Routes, RoutesError};
pub use reload::Reload;
pub use service::{OpenServiceError, Service};

/// The example of the README compiles and runs.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
