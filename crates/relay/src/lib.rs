//! TCP connections as flows: what a device and a server are told of each other ([`Introduction`]), how a device keeps carriers to its server ([`Link`]), and the two ends
//! that carry connections: an [`agent`] beside a program, and a [`Relay`] which connects to where the program wanted to go.

pub mod agent;
mod breakable;
mod copy;
mod introduction;
mod link;
mod lookups;
mod metered;
mod metrics;
mod netlink;
mod relay;
mod share;
mod status;
pub mod trouble;
mod upkeep;
mod verdicts;

pub use hoop_endpoint::FlowOptions;
pub use hoop_units::Prefix;
pub use introduction::{Devices, Introduction, IntroductionError, introduce, introduce_as, introduce_for};
pub use link::{Link, LinkError, Way};
pub use relay::{Allowed, NEVER_PORTS, NotTaken, OFFLINE_MAX, Relay, RelayConfig, RelayError, Reload, codes};
pub use share::ShareLimits;
