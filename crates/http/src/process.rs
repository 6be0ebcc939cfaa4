//! What a process has once: its shutdown, its clock and random numbers, threads apart, and what may be exchanged while it is used.

pub(crate) mod apart;
pub(crate) mod current;
pub(crate) mod shutdown;
pub(crate) mod system;
