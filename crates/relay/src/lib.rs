//! TCP connections as flows: what a device and a server are told of each other ([`Introduction`]), how a device keeps carriers to its server ([`Link`]), and the two ends
//! that carry connections: an [`agent`] beside a program, and a [`Relay`] which connects to where the program wanted to go.

pub mod agent;
mod introduction;
mod link;
mod netlink;
mod prefix;
mod relay;
pub mod trouble;

pub use hoop_endpoint::FlowOptions;
pub use introduction::{Devices, Introduction, IntroductionError, introduce, introduce_as};
pub use link::{Link, LinkError, Way};
pub use prefix::Prefix;
pub use relay::{Allowed, OFFLINE_MAX, Relay, RelayConfig, RelayError, codes};
