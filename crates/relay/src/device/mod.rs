//! The device's end: connections of programs, and the carriers to its relay that it keeps.

mod breakable;
pub(crate) mod connector;
pub(crate) mod link;
mod netlink;
pub mod preload;
mod results;
pub mod status;
mod upkeep;
