//! How slowly a request's body may come: [`BodyTimeouts`].

use std::time::Duration;

/// How slowly a body may come. Only the time that is spent waiting for it counts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BodyTimeouts {
    /// How long nothing may come. Default 60 s: longer than a phone takes to change between access points.
    pub silence: Duration,
    /// The bytes that must come within [`BodyTimeouts::within`]. Default 256 KiB.
    pub least_bytes: u64,
    /// The time within which [`BodyTimeouts::least_bytes`] must come. Default 60 s. Together they are 4 KiB/s: a tenth of what is left to one of
    /// twenty phones at Wi-Fi's slowest rate. A body that trickles holds a connection, of which there are few.
    pub within: Duration,
}

impl Default for BodyTimeouts {
    fn default() -> Self {
        let minute = Duration::from_secs(60);
        Self { silence: minute, least_bytes: 256 << 10, within: minute }
    }
}
