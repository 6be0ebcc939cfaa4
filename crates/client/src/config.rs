//! What a [`Client`](crate::Client) is told beforehand: [`ClientConfig`].

use hoop_http::{Clock, Origin};
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::path::PathBuf;
use std::time::Duration;

/// Where to keep state, whom to trust, where the gateway is, and how patient to be.
#[derive(Clone, Debug)]
pub struct ClientConfig {
    /// The folder for uploads under way and tickets fetched ahead; made when first needed. `None`: nothing is kept, and
    /// an upload cannot be asked about later.
    pub state_dir: Option<PathBuf>,
    /// PEM files with certificates to trust besides the system's.
    pub ca: Vec<PathBuf>,
    /// Addresses given by hand for (name, port), as by curl's `--resolve`.
    pub resolve: BTreeMap<(String, u16), Vec<IpAddr>>,
    /// Where the gateway is. Default: look for it.
    pub gateway: GatewayChoice,
    /// How long to look for a gateway on the LAN. Default 1.5 s: mDNS answers within 120 ms (RFC 6762 §6), one question
    /// may be lost and is repeated after a second.
    pub discovery_timeout: Duration,
    /// How long a connection to a gateway may take. Default 3 s: it is on the LAN.
    pub gateway_connect_timeout: Duration,
    /// How long a connection to the service may take. Default 10 s.
    pub connect_timeout: Duration,
    /// How long a connection may neither take nor give a byte before it counts as broken. Default 30 s; must be more
    /// than a gateway's disk takes to sync.
    pub stall_timeout: Duration,
    /// How long to try without progress before giving up. Default 5 min: a router's restart, a lift, a tunnel.
    pub retry_max_time: Duration,
    /// How long a gateway that has died half-way may stay away before the rest goes to the service directly. Default
    /// 15 s; never more than `retry_max_time`.
    pub gateway_patience: Duration,
    /// How long a gateway may neither take a byte nor answer any question beside before it counts as out of reach. Default 10 s: on a LAN
    /// a second is long, and a slow disk may take a few.
    pub gateway_silence: Duration,
    /// How long the service may have no more than before, of what gateways say they have, until this device sends it itself. Default
    /// 2 min. Matters only while the device stays.
    pub service_patience: Duration,
    /// Both clocks; timings count from its origin.
    pub clock: Clock,
}

/// Where the gateway is.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub enum GatewayChoice {
    /// Look for `_hoop._tcp` and `hoop.local` on the LAN.
    #[default]
    Auto,
    /// There.
    At(Origin),
    /// At one of these: the first that takes a connection, and the next of them should that one fail.
    AnyOf(Vec<Origin>),
    /// Use none.
    None,
}

impl ClientConfig {
    /// How long a gateway may take to say who it is.
    pub(crate) fn meeting_timeout(&self) -> Duration {
        self.gateway_silence.min(self.gateway_patience)
    }
}

impl Default for ClientConfig {
    fn default() -> Self {
        Self {
            state_dir: None,
            ca: Vec::new(),
            resolve: BTreeMap::new(),
            gateway: GatewayChoice::Auto,
            discovery_timeout: Duration::from_millis(1500),
            gateway_connect_timeout: Duration::from_secs(3),
            connect_timeout: Duration::from_secs(10),
            stall_timeout: Duration::from_secs(30),
            retry_max_time: Duration::from_secs(5 * 60),
            gateway_patience: Duration::from_secs(15),
            gateway_silence: Duration::from_secs(10),
            service_patience: Duration::from_secs(120),
            clock: Clock::system(),
        }
    }
}
