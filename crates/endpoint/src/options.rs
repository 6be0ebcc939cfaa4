//! What an application asks of a flow, and what it is told: [`FlowOptions`], [`Status`], [`FlowEvent`], [`FlowStats`].

use crate::error::FlowError;
use hoop_units::{Duration, Timestamp, UnixTime};
use std::sync::Arc;

/// How long after its deadline a flow ends by itself at the server: for what is under way, and for clocks that differ. At the device, it ends one second after the deadline.
pub const DEADLINE_GRACE: Duration = Duration::from_secs(60);

/// Deadlines and clocks count whole seconds. A flow ends at the device so much later, which is no sooner than its application meant.
pub(crate) const DEADLINE_ROUNDING: Duration = Duration::from_secs(1);

/// A name that carriers of one network share, such as `wifi`.
pub type Network = Arc<str>;

/// Which networks a flow is carried by.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub enum Networks {
    /// Whatever there is.
    #[default]
    Any,
    /// This one where there is a carrier of it; others as long as there is none.
    Prefer(Network),
    /// No other: the flow is offline as long as there is no carrier of it.
    Only(Network),
}

/// When what has come is acknowledged. The other end may drop what is.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum AckPolicy {
    /// As it comes. If this end is restarted, what was not read is lost, and so is the flow.
    #[default]
    OnArrival,
    /// When the application calls [`FlowStream::keep`](crate::FlowStream::keep). A server with a store writes the flow down, and sends a byte only after
    /// that. The flow survives a restart of the server. Its application writes again what was not acknowledged.
    WhenTold,
    /// At a server that has stores for both ([`ServerConfig::store`](crate::ServerConfig), [`ServerConfig::byte_store`](crate::ServerConfig)): once it is on disk and synced there. The
    /// application reads it as ever, says up to where it needs it no more ([`FlowStream::keep`](crate::FlowStream::keep)), which asks for more, and is given the rest again by the next
    /// server. As with [`AckPolicy::WhenTold`] the flow outlives a restart; it is over no sooner than all is said to be needed no more. While the store is full, or the disk fails, nothing is
    /// acknowledged, and nothing is lost. At a device, or without stores, it is [`AckPolicy::WhenTold`].
    Stored,
}

/// What an application asks of a flow.
#[derive(Clone, Debug)]
pub struct FlowOptions {
    /// When it should be done. It ends by itself then, and at the server [`DEADLINE_GRACE`] later. Of the device's choosing: at a server it has no effect.
    pub deadline: Option<UnixTime>,
    /// How many bytes this end will send, as far as it knows.
    pub size: Option<u64>,
    /// How many bytes of what came wait to be read, at most. Default 2 MiB: 168 Mbit/s at 100 ms.
    pub window: u64,
    /// Once the window is full no more is asked for until so few bytes wait to be read: the radio sleeps meanwhile. Default: more is asked for as
    /// soon as something is read.
    pub low: Option<u64>,
    /// How many bytes that are written wait to be acknowledged, at most; all of them are in memory. Fewer at a server that is short of memory (`ServerLimits::memory`). Default 2 MiB.
    pub send_buffer: u64,
    /// Which networks it is carried by. A device's choice.
    pub networks: Networks,
    /// Whether it is carried by all carriers that there are at once. A device's choice.
    pub multipath: bool,
    /// When what has come is acknowledged.
    pub ack_policy: AckPolicy,
}

impl Default for FlowOptions {
    fn default() -> Self {
        Self {
            deadline: None,
            size: None,
            window: 2 << 20,
            low: None,
            send_buffer: 2 << 20,
            networks: Networks::Any,
            multipath: false,
            ack_policy: AckPolicy::OnArrival,
        }
    }
}

/// How a flow is.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Status {
    /// The network that it was attached to last; None if it never was, or is offline.
    pub network: Option<Network>,
    /// Since when it is offline, by the endpoint's clock.
    pub offline_since: Option<Timestamp>,
    /// Whether the peer has acknowledged all that was written, and that it ends there.
    pub is_delivered: bool,
    /// Whether it could use a carrier that is not there: it is offline and has something to say, or the carrier that it has is silent.
    pub wants_carrier: bool,
    /// Why it goes on no more.
    pub over: Option<FlowError>,
}

/// What happens to a flow.
#[derive(Clone, PartialEq, Debug)]
pub enum FlowEvent {
    /// It is attached to one more carrier.
    Attached {
        /// Of this network.
        network: Network,
    },
    /// Its last carrier is gone.
    Offline {
        /// Since then, by the endpoint's clock.
        since: Timestamp,
    },
    /// It is attached again.
    Resumed {
        /// So long after it went offline.
        after: Duration,
    },
    /// It goes on over another network.
    CarrierChanged {
        /// From this one.
        from: Network,
        /// To that one.
        to: Network,
    },
    /// It could use a carrier that is not there.
    WantsCarrier,
    /// The server has closed its lane for want of traffic. It is resumed once there is some.
    Parked,
    /// At a server: it has been quiet for long, and memory is wanted: it may be [parked](crate::FlowStream::park).
    MayPark,
    /// The device has said when it should be done.
    Deadline(Option<UnixTime>),
    /// The peer has said how many bytes it will send.
    Size(Option<u64>),
    /// It goes on no more.
    Over(FlowError),
}

/// What a network has carried of a flow.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct NetworkStats {
    /// Bytes of the stream that were sent over it, those that were sent again included.
    pub sent: u64,
    /// Bytes of the stream that came over it, those that came again included.
    pub received: u64,
    /// How long it was attached, of several carriers together.
    pub attached: Duration,
}

/// What a flow has done, by network.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct FlowStats {
    /// In the order in which they were used first.
    pub networks: Vec<(Network, NetworkStats)>,
    /// How many bytes were written.
    pub written: u64,
    /// How many of these the peer has acknowledged.
    pub acknowledged: u64,
    /// How many bytes were read.
    pub read: u64,
}
