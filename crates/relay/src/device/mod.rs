//! The device's end: an agent beside a program, and the carriers to its relay that it keeps.

pub mod agent;
mod breakable;
pub(crate) mod link;
mod netlink;
mod results;
mod status;
mod upkeep;
