//! How a device names a connection to its relay, and which ports it is not taken to.

/// What a service's name begins with when it is a TCP connection's destination: `tcp:HOST:PORT`.
pub const TCP: &str = "tcp:";

/// What it begins with where the device waits for the connection: `connect:HOST:PORT`. The relay's stream then begins with [`MADE`] once the destination has taken the connection,
/// and the flow ends with a code of its own for each way in which it has not, as the answer to CONNECT says (RFC 9110 §9.3.6).
pub const CONNECT: &str = "connect:";

/// The first byte of a flow that waits for its connection: it is made.
pub const MADE: u8 = 0;

/// Ports that no device is taken to unless they are listed. 25 is where mail servers speak to each other: a device that is taken over would send its spam under the relay's address,
/// which is then on every block list. Mail programs use 465 and 587, which ask for a password.
pub const NEVER_PORTS: [u16; 1] = [25];
