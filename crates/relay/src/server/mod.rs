//! The relay: it connects to where programs want to go, within each device's share.

mod lookups;
mod metered;
mod metrics;
pub(crate) mod rate_limit;
pub(crate) mod relay;
