//! What a lab is made of: [`Topology`], its [`Host`]s and [`Link`]s.
//!
//! This is the description as typed, in Rust or through [`Topology::from_toml`]; whether it makes sense is found out by
//! [`Plan::new`](crate::plan::Plan::new), which [`Lab::build`](crate::Lab::build) calls.

use hoop_netem::LinkConfig;
use std::net::Ipv4Addr;

/// The MTU unless told otherwise: Ethernet's.
pub const MTU_DEFAULT: u32 = 1_500;

/// Hosts, and the links between them.
///
/// ```
/// use hoop_lab::{Host, Link, LinkConfig, Topology};
/// use hoop_units::{Bitrate, Duration};
///
/// let wlan = LinkConfig::new().rate(Bitrate::mbps(30)).delay(Duration::from_millis(1));
/// let dsl = LinkConfig::new().delay(Duration::from_millis(10));
/// let topology = Topology::new()
///     .host(Host::new("device"))
///     .host(Host::new("gateway").forwarding())
///     .host(Host::new("service").named("photos.example"))
///     .link(Link::new("lan", "device", "gateway").both(wlan))
///     .link(
///         Link::new("dsl", "gateway", "service")
///             .up(dsl.clone().rate(Bitrate::kbps(1_150)))
///             .down(dsl.rate(Bitrate::mbps(12))),
///     );
/// ```
#[derive(Clone, PartialEq, Debug)]
pub struct Topology {
    /// The hosts.
    pub hosts: Vec<Host>,
    /// The links, in the order in which addresses are given and ties between routes are broken.
    pub links: Vec<Link>,
    /// What all dice of all links come from. Default: 1.
    pub seed: u64,
}

impl Topology {
    /// No host, no link.
    pub fn new() -> Self {
        Self { hosts: Vec::new(), links: Vec::new(), seed: 1 }
    }

    /// With this host.
    #[must_use]
    pub fn host(mut self, host: Host) -> Self {
        self.hosts.push(host);
        self
    }

    /// With this link.
    #[must_use]
    pub fn link(mut self, link: Link) -> Self {
        self.links.push(link);
        self
    }

    /// With this seed.
    #[must_use]
    pub fn seed(self, seed: u64) -> Self {
        Self { seed, ..self }
    }
}

impl Default for Topology {
    fn default() -> Self {
        Self::new()
    }
}

/// A machine of its own: a network namespace, its loopback and its ends of links.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Host {
    /// Its name, which resolves on every host.
    pub name: String,
    /// Further names that resolve to it, such as `photos.example`.
    pub names: Vec<String>,
    /// Whether it passes on packets between its links.
    pub forwarding: bool,
}

impl Host {
    /// A host that does not forward.
    pub fn new(name: impl Into<String>) -> Self {
        Self { name: name.into(), names: Vec::new(), forwarding: false }
    }

    /// With a further name.
    #[must_use]
    pub fn named(mut self, name: impl Into<String>) -> Self {
        self.names.push(name.into());
        self
    }

    /// That forwards.
    #[must_use]
    pub fn forwarding(self) -> Self {
        Self { forwarding: true, ..self }
    }
}

/// A wire between two hosts. *Up* is the direction from the first to the second.
#[derive(Clone, PartialEq, Debug)]
pub struct Link {
    /// Its name, and that of the interface at both ends.
    pub name: String,
    /// The names of the two hosts.
    pub between: [String; 2],
    /// The addresses of the two ends, in one /24 of their own. Default: `10.77.n.1` and `10.77.n.2` for the n-th link,
    /// counted from 1.
    pub addresses: Option<[Ipv4Addr; 2]>,
    /// From the first host to the second.
    pub up: LinkConfig,
    /// From the second host to the first.
    pub down: LinkConfig,
    /// Most bytes of an IP packet. Default: [`MTU_DEFAULT`].
    pub mtu: u32,
    /// Whether packets move one by one, each when it is due, and not a handful at a time; at several times the cost in CPU. For links whose full queue is shared by unlike transports:
    /// of a handful, whoever answers at once (TCP, in the kernel) stands at the end, where there is no room left.
    pub prompt: bool,
}

impl Link {
    /// A perfect link between two hosts.
    pub fn new(name: impl Into<String>, first: impl Into<String>, second: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            between: [first.into(), second.into()],
            addresses: None,
            up: LinkConfig::new(),
            down: LinkConfig::new(),
            mtu: MTU_DEFAULT,
            prompt: false,
        }
    }

    /// With both directions so.
    #[must_use]
    pub fn both(self, config: LinkConfig) -> Self {
        Self { up: config.clone(), down: config, ..self }
    }

    /// With the direction from the first host to the second so.
    #[must_use]
    pub fn up(self, config: LinkConfig) -> Self {
        Self { up: config, ..self }
    }

    /// With the direction from the second host to the first so.
    #[must_use]
    pub fn down(self, config: LinkConfig) -> Self {
        Self { down: config, ..self }
    }

    /// With these addresses at the ends.
    #[must_use]
    pub fn addresses(self, first: Ipv4Addr, second: Ipv4Addr) -> Self {
        Self { addresses: Some([first, second]), ..self }
    }

    /// With this MTU.
    #[must_use]
    pub fn mtu(self, mtu: u32) -> Self {
        Self { mtu, ..self }
    }

    /// With packets that move one by one.
    #[must_use]
    pub fn prompt(self) -> Self {
        Self { prompt: true, ..self }
    }
}
