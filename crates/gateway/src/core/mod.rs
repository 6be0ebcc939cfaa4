//! What every other room needs, and what needs none of them: the configuration, the spool with its clock and key, counters, and the names on the wire.

pub mod allow_dest;
pub mod blocking;
pub mod body_timeouts;
pub mod config;
pub mod counters;
pub mod device_limits;
pub mod host_names;
pub mod identity;
pub mod pacing;
pub mod problems;
pub mod progress;
pub mod state;
pub mod wire;
