//! A topology that makes sense: [`Plan`], with an address for every end and a route for every way.

use crate::topology::{Host, Link, Topology};
use std::collections::VecDeque;
use std::collections::btree_map::{BTreeMap, Entry};
use std::net::Ipv4Addr;

/// Most hosts of a lab: a packet's default time to live would not get it past more. It also keeps every route's metric
/// within the 15 bits that the kernel's interface has for it.
pub const HOSTS_MAX: usize = 64;

/// Most links of a lab: each has a thread of its own, and one of 254 networks `10.77.n.0/24`.
pub const LINKS_MAX: usize = 254;

/// Longest name of a link, since it names an interface too: Linux's `IFNAMSIZ`, without the final zero.
pub const LINK_NAME_MAX: usize = 15;

/// The prefix of every link's network.
pub const PREFIX_LENGTH: u8 = 24;

/// Least MTU: what every IPv4 link must carry (RFC 791 §3.2).
const MTU_MIN: u32 = 68;

/// Largest MTU: the longest IPv4 packet.
const MTU_MAX: u32 = 65_535;

/// Why a topology makes no sense.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum TopologyError {
    /// There is no host.
    #[error("hosts: there is none")]
    NoHost,
    /// More hosts than [`HOSTS_MAX`].
    #[error("hosts: {count} are more than {HOSTS_MAX}")]
    TooManyHosts {
        /// How many.
        count: usize,
    },
    /// More links than [`LINKS_MAX`].
    #[error("links: {count} are more than {LINKS_MAX}")]
    TooManyLinks {
        /// How many.
        count: usize,
    },
    /// A name that could not stand in a hosts file.
    #[error("hosts: `{name}` is no host name (letters, digits, `-` and `.`, at most 253)")]
    HostName {
        /// The name as given.
        name: String,
    },
    /// Two hosts, or a host and a further name, that are called the same.
    #[error("hosts: the name `{name}` is given twice")]
    DuplicateName {
        /// The name.
        name: String,
    },
    /// A name that could not be an interface's.
    #[error("links: `{name}` is no link name (letters, digits and `-`, at most {LINK_NAME_MAX}; not `lo`)")]
    LinkName {
        /// The name as given.
        name: String,
    },
    /// Two links that are called the same.
    #[error("links: the name `{name}` is given twice")]
    DuplicateLink {
        /// The name.
        name: String,
    },
    /// A link to a host that there is not.
    #[error("link `{link}`: between: there is no host `{host}`")]
    UnknownHost {
        /// The link.
        link: String,
        /// The host as given.
        host: String,
    },
    /// A link from a host to itself.
    #[error("link `{link}`: between: both ends are `{host}`")]
    Loop {
        /// The link.
        link: String,
        /// The host at both ends.
        host: String,
    },
    /// Addresses that cannot be those of a link's two ends.
    #[error("link `{link}`: addresses: {first} and {second} are not two hosts' addresses in one /{PREFIX_LENGTH}")]
    Addresses {
        /// The link.
        link: String,
        /// The first as given.
        first: Ipv4Addr,
        /// The second as given.
        second: Ipv4Addr,
    },
    /// Two links in the same network.
    #[error("link `{link}`: addresses: the network {network}/{PREFIX_LENGTH} belongs to link `{other}` already")]
    NetworkTaken {
        /// The link.
        link: String,
        /// The network.
        network: Ipv4Addr,
        /// The link that has it.
        other: String,
    },
    /// An MTU that IPv4 does not know.
    #[error("link `{link}`: mtu: {mtu} does not lie between {MTU_MIN} and {MTU_MAX}")]
    Mtu {
        /// The link.
        link: String,
        /// The MTU as given.
        mtu: u32,
    },
}

/// A checked topology: hosts and links by index, with addresses and routes.
#[derive(Clone, Debug)]
pub struct Plan {
    pub(crate) hosts: Vec<Host>,
    pub(crate) links: Vec<PlannedLink>,
    pub(crate) seed: u64,
}

/// A link whose hosts exist and whose ends have addresses.
#[derive(Clone, Debug)]
pub(crate) struct PlannedLink {
    pub(crate) spec: Link,
    pub(crate) ends: [End; 2],
}

/// One end of a link.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct End {
    pub(crate) host: usize,
    pub(crate) address: Ipv4Addr,
}

/// A route of one host to one address.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Route {
    pub(crate) to: Ipv4Addr,
    /// The link by which packets leave.
    pub(crate) link: usize,
    /// The neighbour that passes them on; `None` if the address is at the link's other end.
    pub(crate) gateway: Option<Ipv4Addr>,
    /// Fewer hops are better; among equals the link that was described first. At most 32,640, which fits.
    pub(crate) metric: u16,
}

impl Plan {
    /// Checks the topology, gives addresses and finds routes.
    ///
    /// # Errors
    /// If the topology makes no sense; the error names the host or link and its field.
    pub fn new(topology: &Topology) -> Result<Self, TopologyError> {
        check_hosts(&topology.hosts)?;
        let index: BTreeMap<&str, usize> = topology.hosts.iter().map(|h| h.name.as_str()).zip(0..).collect();
        let count = topology.links.len();
        if count > LINKS_MAX {
            return Err(TopologyError::TooManyLinks { count });
        }
        let mut links: Vec<PlannedLink> = Vec::new();
        for (number, spec) in (1..=LINKS_MAX as u8).zip(&topology.links) {
            let planned = plan_link(spec, number, &index)?;
            check_apart(&links, &planned)?;
            links.push(planned);
        }
        Ok(Self { hosts: topology.hosts.clone(), links, seed: topology.seed })
    }

    /// The host with this name.
    pub(crate) fn host(&self, name: &str) -> Option<usize> {
        self.hosts.iter().position(|host| host.name == name)
    }

    /// The link with this name.
    pub(crate) fn link(&self, name: &str) -> Option<usize> {
        self.links.iter().position(|link| link.spec.name == name)
    }

    /// The links of a host, in order: index, which end is the host's, its own end, the other end.
    pub(crate) fn links_of(&self, host: usize) -> impl Iterator<Item = (usize, usize, End, End)> + '_ {
        self.links.iter().enumerate().filter_map(move |(index, link)| {
            let side = link.ends.iter().position(|end| end.host == host)?;
            Some((index, side, link.ends[side], link.ends[1 - side]))
        })
    }

    /// The addresses of a host, in the order of its links.
    pub(crate) fn addresses_of(&self, host: usize) -> impl Iterator<Item = Ipv4Addr> + '_ {
        self.links_of(host).map(|(_, _, own, _)| own.address)
    }

    /// All routes of a host: to each address of each other host, one by every link over which it can be reached, so
    /// that a socket bound to an interface finds its way as well as one that is not.
    ///
    /// As on the Internet, what is sent to an end's address comes in by that end, if there is such a way: so the answer
    /// to a packet that left a host by one of its uplinks comes back by the same.
    pub(crate) fn routes_of(&self, host: usize) -> Vec<Route> {
        let mut routes = Vec::new();
        for (link, _, _, neighbour) in self.links_of(host) {
            let distances = self.distances(neighbour.host, host);
            for (&target, &hops) in &distances {
                for (target_link, _, own, before) in self.links_of(target) {
                    let by_that_end = match distances.get(&before.host) {
                        // A router takes its addresses at any end.
                        _ if self.hosts[target].forwarding || link == target_link => Some(hops),
                        Some(hops) if self.hosts[before.host].forwarding => Some(hops + 1),
                        _ => None,
                    };
                    let cost = by_that_end.unwrap_or(hops + HOSTS_MAX as u16);
                    let gateway = (own.address != neighbour.address).then_some(neighbour.address);
                    let metric = cost * (LINKS_MAX as u16 + 1) + link as u16 + 1;
                    routes.push(Route { to: own.address, link, gateway, metric });
                }
            }
        }
        routes
    }

    /// The address of each host at which packets of `from` arrive by a shortest way. A host reaches itself by loopback;
    /// one that cannot be reached has its first address, and one without links is left out.
    pub(crate) fn addresses_from(&self, from: usize) -> BTreeMap<usize, Ipv4Addr> {
        let mut arrivals = BTreeMap::from([(from, Ipv4Addr::LOCALHOST)]);
        let mut queue = VecDeque::from([from]);
        while let Some(host) = queue.pop_front() {
            if host != from && !self.hosts[host].forwarding {
                continue;
            }
            for (_, _, _, neighbour) in self.links_of(host) {
                if let Entry::Vacant(entry) = arrivals.entry(neighbour.host) {
                    entry.insert(neighbour.address);
                    queue.push_back(neighbour.host);
                }
            }
        }
        for host in 0..self.hosts.len() {
            if let (Entry::Vacant(entry), Some(address)) = (arrivals.entry(host), self.addresses_of(host).next()) {
                entry.insert(address);
            }
        }
        arrivals
    }

    /// How many hops each host is away from `start`, if only forwarding hosts pass packets on and `avoid` does not.
    fn distances(&self, start: usize, avoid: usize) -> BTreeMap<usize, u16> {
        let mut distances = BTreeMap::from([(start, 0)]);
        let mut queue = VecDeque::from([start]);
        while let Some(host) = queue.pop_front() {
            if !self.hosts[host].forwarding {
                continue;
            }
            let next = distances[&host] + 1;
            for (_, _, _, neighbour) in self.links_of(host) {
                if neighbour.host != avoid && !distances.contains_key(&neighbour.host) {
                    distances.insert(neighbour.host, next);
                    queue.push_back(neighbour.host);
                }
            }
        }
        distances
    }
}

fn check_hosts(hosts: &[Host]) -> Result<(), TopologyError> {
    let count = hosts.len();
    if count == 0 {
        return Err(TopologyError::NoHost);
    }
    if count > HOSTS_MAX {
        return Err(TopologyError::TooManyHosts { count });
    }
    let mut seen: Vec<&str> = vec!["localhost"];
    for name in hosts.iter().flat_map(|host| std::iter::once(&host.name).chain(&host.names)) {
        let letters = name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'.');
        if name.is_empty() || name.len() > 253 || !letters {
            return Err(TopologyError::HostName { name: name.clone() });
        }
        if seen.contains(&name.as_str()) {
            return Err(TopologyError::DuplicateName { name: name.clone() });
        }
        seen.push(name);
    }
    Ok(())
}

fn plan_link(spec: &Link, number: u8, hosts: &BTreeMap<&str, usize>) -> Result<PlannedLink, TopologyError> {
    let link = || spec.name.clone();
    let letters = spec.name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-');
    if spec.name.is_empty() || spec.name.len() > LINK_NAME_MAX || !letters || spec.name == "lo" {
        return Err(TopologyError::LinkName { name: link() });
    }
    if !(MTU_MIN..=MTU_MAX).contains(&spec.mtu) {
        return Err(TopologyError::Mtu { link: link(), mtu: spec.mtu });
    }
    let find = |host: &String| {
        hosts.get(host.as_str()).copied().ok_or_else(|| TopologyError::UnknownHost { link: link(), host: host.clone() })
    };
    let [first, second] = &spec.between;
    let ends = [find(first)?, find(second)?];
    if ends[0] == ends[1] {
        return Err(TopologyError::Loop { link: link(), host: first.clone() });
    }
    let [first, second] =
        spec.addresses.unwrap_or([Ipv4Addr::new(10, 77, number, 1), Ipv4Addr::new(10, 77, number, 2)]);
    if first == second || network(first) != network(second) || !is_host(first) || !is_host(second) {
        return Err(TopologyError::Addresses { link: link(), first, second });
    }
    let ends = [End { host: ends[0], address: first }, End { host: ends[1], address: second }];
    Ok(PlannedLink { spec: spec.clone(), ends })
}

/// Whether the new link has a name and a network of its own.
fn check_apart(links: &[PlannedLink], new: &PlannedLink) -> Result<(), TopologyError> {
    let link = new.spec.name.clone();
    let own = network(new.ends[0].address);
    for other in links {
        if other.spec.name == link {
            return Err(TopologyError::DuplicateLink { name: link });
        }
        if network(other.ends[0].address) == own {
            return Err(TopologyError::NetworkTaken { link, network: own, other: other.spec.name.clone() });
        }
    }
    Ok(())
}

fn network(address: Ipv4Addr) -> Ipv4Addr {
    let [a, b, c, _] = address.octets();
    Ipv4Addr::new(a, b, c, 0)
}

/// Whether a host may have this address: not the network's own nor its broadcast, loopback, multicast or beyond.
fn is_host(address: Ipv4Addr) -> bool {
    let [a, _, _, d] = address.octets();
    a != 0 && a != 127 && a < 224 && d != 0 && d != 255
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ends_get_addresses_and_hosts_get_routes_over_those_that_forward() {
        let plan = Plan::new(&chain()).unwrap();
        let [device, gateway, service] = ["device", "gateway", "service"].map(|name| plan.host(name).unwrap());
        assert_eq!(plan.addresses_of(gateway).collect::<Vec<_>>(), [ip("10.77.1.2"), ip("10.77.2.1")]);
        let ways: Vec<_> = plan.routes_of(device).iter().map(|route| (route.to, route.gateway)).collect();
        let over = Some(ip("10.77.1.2"));
        assert_eq!(ways, [(ip("10.77.1.2"), None), (ip("10.77.2.1"), over), (ip("10.77.2.2"), over)]);
        assert_eq!(plan.routes_of(service).len(), 3);

        let seen = plan.addresses_from(service);
        assert_eq!(seen[&service], Ipv4Addr::LOCALHOST);
        assert_eq!(seen[&gateway], ip("10.77.2.1"), "the end that faces the service");
        assert_eq!(seen[&device], ip("10.77.1.1"));
    }

    #[test]
    fn a_host_that_does_not_forward_is_no_way_through() {
        let mut topology = chain();
        topology.hosts[1].forwarding = false;
        let plan = Plan::new(&topology).unwrap();
        let ends: Vec<_> = plan.routes_of(0).iter().map(|route| route.to).collect();
        assert_eq!(ends, [ip("10.77.1.2"), ip("10.77.2.1")], "the gateway's own addresses, and no further");
    }

    #[test]
    fn a_host_with_two_uplinks_has_a_route_by_each_and_prefers_the_shorter() {
        let topology = chain().link(Link::new("cell", "device", "service"));
        let plan = Plan::new(&topology).unwrap();
        let mut ways: Vec<_> = plan
            .routes_of(0)
            .into_iter()
            .filter(|route| route.to == ip("10.77.3.2"))
            .map(|r| (r.metric, r.link))
            .collect();
        ways.sort_unstable();
        assert_eq!(ways.iter().map(|(_, link)| *link).collect::<Vec<_>>(), [2, 0]);
        assert_eq!(plan.addresses_from(0)[&2], ip("10.77.3.2"));
    }

    #[test]
    fn a_route_to_an_address_takes_its_own_link_though_another_is_shorter() {
        let plan = Plan::new(&chain().link(Link::new("cell", "device", "service"))).unwrap();
        let best =
            |to: &str| plan.routes_of(2).into_iter().filter(|r| r.to == ip(to)).min_by_key(|r| r.metric).unwrap();
        assert_eq!(best("10.77.3.1").link, 2);
        assert_eq!((best("10.77.1.1").link, best("10.77.1.1").gateway), (1, Some(ip("10.77.2.1"))));
    }

    #[test]
    fn a_topology_that_makes_no_sense_is_refused_by_name() {
        let with = |link: Link| chain().link(link);
        let cases = [
            (Topology::new(), "hosts: there is none"),
            (chain().host(Host::new("device")), "hosts: the name `device` is given twice"),
            (chain().host(Host::new("a").named("gateway")), "hosts: the name `gateway` is given twice"),
            (chain().host(Host::new("localhost")), "hosts: the name `localhost` is given twice"),
            (
                chain().host(Host::new("a b")),
                "hosts: `a b` is no host name (letters, digits, `-` and `.`, at most 253)",
            ),
            (with(Link::new("lan", "device", "service")), "links: the name `lan` is given twice"),
            (with(Link::new("x", "device", "nobody")), "link `x`: between: there is no host `nobody`"),
            (with(Link::new("x", "device", "device")), "link `x`: between: both ends are `device`"),
            (
                with(Link::new("lo", "device", "service")),
                "links: `lo` is no link name (letters, digits and `-`, at most 15; not `lo`)",
            ),
            (with(Link::new("x", "device", "service").mtu(10)), "link `x`: mtu: 10 does not lie between 68 and 65535"),
            (
                with(Link::new("x", "device", "service").addresses(ip("10.0.0.1"), ip("10.0.1.2"))),
                "link `x`: addresses: 10.0.0.1 and 10.0.1.2 are not two hosts' addresses in one /24",
            ),
            (
                with(Link::new("x", "device", "service").addresses(ip("10.77.1.3"), ip("10.77.1.4"))),
                "link `x`: addresses: the network 10.77.1.0/24 belongs to link `lan` already",
            ),
        ];
        for (topology, error) in cases {
            assert_eq!(Plan::new(&topology).unwrap_err().to_string(), error);
        }
    }

    #[test]
    fn one_link_too_many_is_refused() {
        let mut topology = chain();
        topology.links = (0..=LINKS_MAX).map(|n| Link::new(format!("l{n}"), "device", "gateway")).collect();
        assert_eq!(Plan::new(&topology).unwrap_err(), TopologyError::TooManyLinks { count: LINKS_MAX + 1 });
        topology.links.pop();
        assert!(Plan::new(&topology).is_ok());
    }

    fn chain() -> Topology {
        Topology::new()
            .host(Host::new("device"))
            .host(Host::new("gateway").forwarding())
            .host(Host::new("service").named("photos.example"))
            .link(Link::new("lan", "device", "gateway"))
            .link(Link::new("dsl", "gateway", "service"))
    }

    fn ip(text: &str) -> Ipv4Addr {
        text.parse().unwrap()
    }
}
