//! What one device may do at a gateway: [`DeviceLimits`].

use hoop_units::AddressKey;

/// How many uploads of a device may be at their services, and not done, for each that may be here: of the 100,000 rows that a gateway keeps by default a tenth.
pub const AWAY: u64 = 5;

/// What one device may do. Zero: without limit.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DeviceLimits {
    /// The most bytes of uploads that a device may have here. `None` (the default): three quarters of what the spool can hold, so that nobody
    /// fills it alone.
    pub quota_bytes: Option<u64>,
    /// Uploads that a device may have here, done ones not counted. Default 2,000: a camera's whole card of photos. Of those that its services have, and of which nothing
    /// but a row is here, it may have `AWAY` times as many: some wait for weeks until their owner signs in.
    pub uploads: u64,
    /// Uploads that a device may begin within a minute. Default 600: ten photos a second, what a gigabit LAN carries.
    pub begun_per_minute: u32,
    /// Requests a second, on average; four seconds' worth may come at once. Default 100: sixteen uploads in ranges, with their pages open.
    pub requests_per_second: u32,
    /// Connections of one device that are served at once. Default 16: two browsers and a program. More wait.
    pub connections: usize,
    /// Whether the limits hold for this machine itself, too. Default false: behind its loopback address may be a proxy with all devices behind it, and
    /// whoever runs programs here needs no gateway to do harm.
    pub loopback: bool,
}

impl Default for DeviceLimits {
    fn default() -> Self {
        Self {
            quota_bytes: None,
            uploads: 2_000,
            begun_per_minute: 600,
            requests_per_second: 100,
            connections: 16,
            loopback: false,
        }
    }
}

impl DeviceLimits {
    /// Whether there are limits for this device.
    pub(crate) fn apply_to(&self, device: AddressKey) -> bool {
        self.loopback || !device.is_loopback()
    }
}
