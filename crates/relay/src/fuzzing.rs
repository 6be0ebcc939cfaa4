//! Doors to this crate's parsers of foreign bytes, for `hoop-fuzz` alone: nothing here is part of the API.

pub use crate::server::cache::fuzzing::{answers_other, record};
