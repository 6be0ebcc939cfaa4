//! The device's end: connections of programs, and the carriers to its relay that it keeps.

mod breakable;
pub(crate) mod connector;
pub(crate) mod link;
pub(crate) mod names;
mod netlink;
pub mod preload;
mod results;
pub mod status;
mod upkeep;
