//! Doors to what reads the index's octets, for `hoop-fuzz` alone: nothing here is part of the API.

pub use crate::upload::{decode_ranges, encode_ranges};
