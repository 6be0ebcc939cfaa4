//! How fast a link is: [`Rate`].

use crate::Trace;
use alloc::sync::Arc;
use hoop_units::Bitrate;

/// How fast the transmitter puts packets on the wire.
#[derive(Clone, PartialEq, Debug, Default)]
pub enum Rate {
    /// At once: packets take no time and never queue.
    #[default]
    Unlimited,
    /// A constant rate, counted in bytes of IP. At zero the link stalls: packets queue, and wait for a change.
    Fixed(Bitrate),
    /// Delivery opportunities of a mahimahi trace, again and again from when the link starts or changes to it.
    Trace(Arc<Trace>),
}

impl From<Bitrate> for Rate {
    fn from(rate: Bitrate) -> Self {
        Self::Fixed(rate)
    }
}

impl From<Trace> for Rate {
    fn from(trace: Trace) -> Self {
        Self::Trace(Arc::new(trace))
    }
}
