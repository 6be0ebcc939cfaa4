//! [`Lab`]: hosts and links that are there, until it is dropped.

use crate::device::{self, EndConfig};
use crate::enter::{WhyNot, available};
use crate::guard::Guard;
use crate::namespace::Namespace;
use crate::plan::{Plan, TopologyError};
use crate::topology::Topology;
use crate::wire::{Clock, Wire};
use crate::{Change, Counters};
use std::ffi::OsStr;
use std::fmt::Write as _;
use std::fs::File;
use std::io;
use std::net::Ipv4Addr;
use std::process::Command;
use std::sync::Arc;

/// Why a lab could not be built.
#[derive(Debug, thiserror::Error)]
pub enum BuildError {
    /// The topology makes no sense.
    #[error(transparent)]
    Topology(#[from] TopologyError),
    /// The machine allows no lab, to this process at least.
    #[error(transparent)]
    Unavailable(#[from] WhyNot),
    /// The machine allows labs, but refused something on the way.
    #[error("{doing}: {source}")]
    System {
        /// What was being done.
        doing: String,
        /// What the system said.
        source: io::Error,
    },
}

/// Which way over a link: *up* is from the first host of [`Link::between`](crate::Link::between) to the second.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Direction {
    /// From the first host to the second.
    Up,
    /// From the second host to the first.
    Down,
    /// Both ways.
    Both,
}

/// What has happened on a link, each way.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LinkCounters {
    /// From the first host to the second.
    pub up: Counters,
    /// From the second host to the first.
    pub down: Counters,
}

/// Hosts and links that are there.
///
/// Names of hosts and links that a method is given must be in the topology; a method panics at one that is not, as an
/// index does. Names from outside are checked with [`Lab::has_host`] and [`Lab::has_link`].
///
/// When a lab is dropped, every process in its hosts is killed, the links' threads end and the devices go. When its
/// process dies, by whatever signal, the kernel does the same.
#[derive(Debug)]
pub struct Lab {
    // In the order in which they must go: programs, then devices, then the namespaces that both are in.
    guard: Option<Guard>,
    wires: Vec<Wire>,
    hosts: Vec<Arc<Namespace>>,
    plan: Plan,
}

impl Lab {
    /// Builds what the topology describes. Schedules and traces begin when all is built.
    ///
    /// # Errors
    /// If the topology makes no sense, or the machine does not allow it. Nothing is left behind then.
    pub fn build(topology: &Topology) -> Result<Self, BuildError> {
        let plan = Plan::new(topology)?;
        available()?;
        let mut lab = Self { guard: None, wires: Vec::new(), hosts: Vec::new(), plan };
        for host in 0..lab.plan.hosts.len() {
            let namespace = build_host(&lab.plan, host).map_err(doing("host", &lab.plan.hosts[host].name))?;
            lab.hosts.push(Arc::new(namespace));
        }
        lab.guard = Some(Guard::start(lab.hosts.iter().map(Arc::as_ref)).map_err(doing("guard of", "the hosts"))?);
        let mut devices = Vec::new();
        for (index, link) in lab.plan.links.iter().enumerate() {
            devices.push(lab.build_devices(index).map_err(doing("link", &link.spec.name))?);
        }
        for (host, namespace) in lab.plan.hosts.iter().zip(0..) {
            lab.build_routes(namespace).map_err(doing("routes of", &host.name))?;
        }
        let clock = Clock::start();
        for (index, ends) in devices.into_iter().enumerate() {
            let spec = &lab.plan.links[index].spec;
            let wire = Wire::start(spec, ends, seeds(lab.plan.seed, index), clock);
            lab.wires.push(wire.map_err(doing("link", &lab.plan.links[index].spec.name))?);
        }
        Ok(lab)
    }

    /// A command whose program will run inside a host: on its network, with its `/etc/hosts`, in the present working
    /// folder.
    ///
    /// The program, and whatever it starts in turn, is killed when the lab is dropped or its process dies.
    ///
    /// # Panics
    /// If there is no such host.
    pub fn command(&self, host: &str, program: impl AsRef<OsStr>) -> Command {
        self.namespace(host).command(program.as_ref())
    }

    /// Runs a closure inside a host, on a thread of its own, and returns what it returns. Sockets that it opens belong
    /// to the host, wherever they are used afterwards.
    ///
    /// # Panics
    /// If the closure does, if there is no such host, or if the system refuses a thread.
    pub fn in_host<T: Send>(&self, host: &str, closure: impl FnOnce() -> T + Send) -> T {
        self.namespace(host).run(closure).expect("a namespace that one holds can be entered")
    }

    /// Changes a link now; its schedule goes on.
    ///
    /// # Panics
    /// If there is no such link.
    pub fn set_link(&self, link: &str, direction: Direction, change: Change) {
        let wire = &self.wires[self.link(link)];
        match direction {
            Direction::Up => wire.change(0, change),
            Direction::Down => wire.change(1, change),
            Direction::Both => {
                wire.change(0, change.clone());
                wire.change(1, change);
            }
        }
    }

    /// What has happened on a link so far.
    ///
    /// # Panics
    /// If there is no such link.
    pub fn counters(&self, link: &str) -> LinkCounters {
        let [up, down] = self.wires[self.link(link)].counters();
        LinkCounters { up, down }
    }

    /// The first address of a host. It has one on each of its links ([`Lab::address_on`]), all of which reach it.
    ///
    /// # Panics
    /// If there is no such host, or it has no link.
    pub fn address(&self, host: &str) -> Ipv4Addr {
        let address = self.plan.addresses_of(self.host(host)).next();
        address.unwrap_or_else(|| panic!("host `{host}` has no link, hence no address"))
    }

    /// The address of a host at its end of a link.
    ///
    /// # Panics
    /// If there is no such host or link, or the link does not end there.
    pub fn address_on(&self, host: &str, link: &str) -> Ipv4Addr {
        let (index, host_index) = (self.link(link), self.host(host));
        let end = self.plan.links[index].ends.iter().find(|end| end.host == host_index);
        end.unwrap_or_else(|| panic!("link `{link}` does not end at host `{host}`")).address
    }

    /// The names of the hosts, as described.
    pub fn hosts(&self) -> impl Iterator<Item = &str> {
        self.plan.hosts.iter().map(|host| host.name.as_str())
    }

    /// The names of the links, as described.
    pub fn links(&self) -> impl Iterator<Item = &str> {
        self.plan.links.iter().map(|link| link.spec.name.as_str())
    }

    /// Whether there is a host with this name.
    pub fn has_host(&self, host: &str) -> bool {
        self.plan.host(host).is_some()
    }

    /// Whether there is a link with this name.
    pub fn has_link(&self, link: &str) -> bool {
        self.plan.link(link).is_some()
    }

    fn build_devices(&self, index: usize) -> io::Result<[File; 2]> {
        let link = &self.plan.links[index];
        let build = |side: usize| {
            let end = link.ends[side];
            let config = EndConfig {
                name: &link.spec.name,
                address: end.address,
                mtu: link.spec.mtu,
                // Locally administered (IEEE 802, the second bit), and one for each link.
                hardware_address: [0x02, 0x48, 0x4f, 0x4f, 0x50, index as u8],
            };
            self.hosts[end.host].run(|| device::create(&config))?
        };
        Ok([build(0)?, build(1)?])
    }

    fn build_routes(&self, host: usize) -> io::Result<()> {
        let name = |link: usize| self.plan.links[link].spec.name.as_str();
        self.hosts[host].run(|| {
            for route in self.plan.routes_of(host) {
                device::add_route(&route, name(route.link))?;
            }
            for (link, ..) in self.plan.links_of(host) {
                device::add_multicast_route(link as u16 + 1, name(link))?;
            }
            Ok(())
        })?
    }

    fn namespace(&self, host: &str) -> &Arc<Namespace> {
        &self.hosts[self.host(host)]
    }

    fn host(&self, name: &str) -> usize {
        self.plan.host(name).unwrap_or_else(|| panic!("there is no host `{name}` in this lab"))
    }

    fn link(&self, name: &str) -> usize {
        self.plan.link(name).unwrap_or_else(|| panic!("there is no link `{name}` in this lab"))
    }
}

/// A lab may be shared between threads, such as the tests of one topology.
const _: () = {
    const fn is_shareable<T: Send + Sync>() {}
    is_shareable::<Lab>();
};

fn build_host(plan: &Plan, host: usize) -> io::Result<Namespace> {
    let namespace = Namespace::create(&hosts_file(plan, host), plan.hosts[host].forwarding)?;
    namespace.run(device::raise_loopback)??;
    Ok(namespace)
}

/// The `/etc/hosts` of a host: itself, and every other by the address at which its packets arrive.
fn hosts_file(plan: &Plan, host: usize) -> String {
    let mut text = String::from("127.0.0.1 localhost\n::1 localhost ip6-localhost\n");
    for (other, address) in plan.addresses_from(host) {
        let names = &plan.hosts[other];
        write!(text, "{address} {}", names.name).expect("a string takes all");
        names.names.iter().for_each(|name| text.extend([" ", name]));
        text.push('\n');
    }
    text
}

/// Rng for each direction of each link, so that one link's traffic does not change another's luck.
fn seeds(seed: u64, link: usize) -> [u64; 2] {
    let stream = 2 * link as u64;
    [split_mix(seed, stream), split_mix(seed, stream + 1)]
}

/// SplitMix64 (Steele, Lea, Flood 2014): neighbouring numbers become unrelated seeds.
fn split_mix(seed: u64, stream: u64) -> u64 {
    let mut z = seed.wrapping_add(stream.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15));
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

fn doing(what: &str, name: &str) -> impl FnOnce(io::Error) -> BuildError {
    let doing = format!("{what} `{name}`");
    |source| BuildError::System { doing, source }
}
