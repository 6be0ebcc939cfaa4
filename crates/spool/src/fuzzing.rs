//! Doors to what reads the index's bytes, for `hoop-fuzz` alone: nothing here is part of the API.

pub use crate::model::upload::{decode_ranges, encode_ranges};
