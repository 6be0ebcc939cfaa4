//! Services, seen from here: which may be delivered to, what they say of themselves, how they are spoken with, and what their answers mean.

pub mod address;
pub mod client;
pub mod destination;
pub mod probes;
pub mod services;
pub mod status;
pub mod verdict;
pub mod well_known;
