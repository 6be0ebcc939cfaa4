//! What a TLS peer may send besides data: [`Allowance`].

mod allowance;
mod others;

pub use allowance::{Above, Allowance, Below};
