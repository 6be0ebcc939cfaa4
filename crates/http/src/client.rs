//! Connections to others: guarded, over TCP or TLS.

pub(crate) mod connect;
pub(crate) mod interim;
pub(crate) mod location;
pub mod tls;
