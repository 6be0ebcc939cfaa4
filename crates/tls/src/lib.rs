//! What a TLS peer may cost: its records ([`Allowance`]), and a server's certificates ([`trusting`]).

mod allowance;
mod chain;
mod others;

pub use allowance::{Above, Allowance, Below};
pub use chain::trusting;
