//! What each role stands on: what was typed ([`values`]), words for people ([`terminal`]), how it ends ([`exit`]), files with keys ([`output`]), and what no other process may see or take
//! ([`process`]).

#[macro_use]
#[cfg_attr(
    not(all(feature = "device", feature = "gateway", feature = "service", feature = "flow")),
    allow(dead_code, unused_macros, reason = "each role has its own")
)]
pub mod terminal;

pub mod exit;
#[cfg(feature = "flow")]
pub mod output;
pub mod process;
#[cfg_attr(
    not(all(feature = "device", feature = "gateway", feature = "service", feature = "flow")),
    allow(dead_code, reason = "each role has its own")
)]
pub mod values;
