//! Whether the other end can be reached, and when a flow is looked at again: [`Connectivity`], [`Timing`].

use crate::options::Network;
use hoop_units::Timestamp;

/// Whether the other end can be reached.
#[derive(Debug)]
pub(crate) struct Connectivity {
    pub(crate) was_attached: bool,
    pub(crate) is_parked: bool,
    /// The deadline or the size was told to the machine, and no lane has been attached since.
    pub(super) has_news: bool,
    pub(crate) offline_since: Option<Timestamp>,
    pub(super) network: Option<Network>,
    pub(super) wants_carrier: bool,
}

impl Connectivity {
    /// Not attached yet in this process.
    pub(super) const fn new(was_attached: bool, now: Timestamp) -> Self {
        let offline_since = Some(now);
        Self { was_attached, is_parked: false, has_news: false, offline_since, network: None, wants_carrier: false }
    }
}

/// When a flow is looked at again.
#[derive(Debug)]
pub(super) struct Timing {
    /// When the owner looks at it again by itself, at the latest; None: never.
    pub(super) watched: Option<Timestamp>,
    /// Whether it was active when a device's owner looked last.
    pub(super) was_active: bool,
    /// When something came last.
    pub(super) data_at: Option<Timestamp>,
    /// When the last ACK is to be said again.
    pub(super) pause_at: Option<Timestamp>,
}

impl Timing {
    /// To be looked at now.
    pub(super) const fn new(now: Timestamp) -> Self {
        Self { watched: Some(now), was_active: false, data_at: None, pause_at: None }
    }
}
