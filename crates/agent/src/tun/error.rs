//! Why connections cannot be taken in by a TUN interface: [`TunError`].

use std::io;

/// There is no TUN interface, or nothing leads to it.
#[derive(Debug, thiserror::Error)]
pub enum TunError {
    /// The kernel has none.
    #[error("there is no /dev/net/tun: load the module `tun`, or let this container have the device")]
    NoDevice,
    /// This process may not make one.
    #[error("it takes root, or CAP_NET_ADMIN")]
    Denied,
    /// Another agent has it.
    #[error("another `hoop agent --tun` has the interface {0}")]
    Taken(&'static str),
    /// A program is missing.
    #[error("`{program}` is missing: install the package {package}")]
    NoProgram {
        /// Which.
        program: &'static str,
        /// Where Debian has it.
        package: &'static str,
    },
    /// A program failed.
    #[error("`{program}` failed: {said}")]
    Failed {
        /// Which.
        program: &'static str,
        /// What it said.
        said: String,
    },
    /// An interface of a LAN.
    #[error("there is no network interface {0}")]
    NoLan(String),
    /// The interface, or a socket.
    #[error(transparent)]
    System(#[from] io::Error),
}
