//! Carries TCP connections as flows. An [`Introduction`] holds what a device knows of its server, and a [`Link`] keeps a device's carriers. A [`preload`] server takes a program's
//! connections, and a [`Relay`] connects them to their destinations, or makes a request for a device ([`exchange`]).
//!
//! Rooms, each importing only those before it: `codes`, `upload`, `wire`, `copy`, `exchange`, `continuation`, `diagnostics`, `introduction`, `device` | `server`, `fuzzing`.

pub mod codes;
pub mod continuation;
pub mod copy;
mod device;
pub mod diagnostics;
pub mod exchange;
#[doc(hidden)]
pub mod fuzzing;
mod introduction;
mod server;
pub mod upload;
mod wire;

pub use device::connector::{ConnectError, FlowConnector};
pub use device::link::{Link, LinkError, NetworkPath};
pub use device::names::is_host_name;
pub use device::{preload, status};
pub use hoop_endpoint::FlowOptions;
pub use hoop_units::Prefix;
pub use introduction::{Devices, Front, Introduction, IntroductionError, NewDevice, NoFront, introduce};
pub use server::cache::CacheConfig;
pub use server::config::{PlainListen, RelayConfig, RelayError};
pub use server::egress::Allowed;
pub use server::objects::StoreConfig;
pub use server::rate_limit::ShareLimits;
pub use server::relay::{OFFLINE_MAX, Relay, Reload, ReloadError};
pub use wire::NEVER_PORTS;

/// The example of the README compiles.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
