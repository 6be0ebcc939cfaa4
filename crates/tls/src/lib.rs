//! TLS whose peer has to bring data: [`Allowance`].

mod allowance;

pub use allowance::{Above, Allowance, Below};
