//! How a device names a connection to its relay, and which ports it is not taken to.

/// What a service's name begins with when it is a TCP connection's destination: `tcp:HOST:PORT`.
pub const TCP: &str = "tcp:";

/// As [`TCP`], for a device that waits for the result: `connect:HOST:PORT`. On success, the relay's stream begins with [`MADE`]. On failure, the flow ends with a code that says why,
/// as the answer to CONNECT does (RFC 9110 §9.3.6).
pub const CONNECT: &str = "connect:";

/// The first byte of a flow that waits for its connection: it is made.
pub const MADE: u8 = 0;

/// The service of a flow that is one HTTP exchange (`docs/edge.md`).
pub const HTTP: &str = "http";

/// Ports that no device is taken to unless they are listed. 25 is where mail servers speak to each other: a device that is taken over would send its spam under the relay's address,
/// which is then on every block list. Mail programs use 465 and 587, which ask for a password.
pub const NEVER_PORTS: [u16; 1] = [25];
