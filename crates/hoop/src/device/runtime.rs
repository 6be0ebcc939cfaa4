//! [`light_runtime`].

use crate::base::exit::{Exit, Failure};

/// The runtime of the device's roles: one thread for sockets, as fast to start as can be. Sealing has threads of its own.
pub fn light_runtime() -> Result<tokio::runtime::Runtime, Failure> {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| Failure::new(Exit::Unexpected, "cannot start", error))
}
