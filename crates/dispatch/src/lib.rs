//! Which range goes over which uplink, when, and how often.
#![no_std]

/// How many uploads are sent at once. Four: one that crawls (a far or busy service) does not hold the others up, and
/// four TCP connections already fill any home uplink; more only take each other's share and the household's.
pub const TRANSFERS: usize = 4;
