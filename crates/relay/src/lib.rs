//! TCP connections as flows: what a device and a server are told of each other ([`Introduction`]), how a device keeps carriers to its server ([`Link`]), and the two ends
//! that carry connections: an [`agent`] beside a program, and a [`Relay`] which connects to where the program wanted to go.
//!
//! Rooms, each importing only those before it: `codes`, `wire`, `copy`, `diagnostics`, `introduction`, `device` | `server`.

pub mod codes;
mod copy;
mod device;
pub mod diagnostics;
mod introduction;
mod server;
mod wire;

pub use device::agent;
pub use device::link::{Link, LinkError, Way};
pub use hoop_endpoint::FlowOptions;
pub use hoop_units::Prefix;
pub use introduction::{Devices, Introduction, IntroductionError, introduce, introduce_as, introduce_for};
pub use server::relay::{Allowed, NotTaken, OFFLINE_MAX, Relay, RelayConfig, RelayError, Reload};
pub use server::share::ShareLimits;
pub use wire::NEVER_PORTS;
