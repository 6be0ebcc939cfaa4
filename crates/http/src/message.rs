//! Messages and their parts: heads, bodies, problems, origins.

pub(crate) mod body;
pub(crate) mod head;
pub(crate) mod hop_by_hop;
pub(crate) mod joined;
pub(crate) mod lines;
pub(crate) mod origin;
pub(crate) mod problem;
