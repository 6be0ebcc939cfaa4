//! What a gateway is known by: its [`Place`].
//!
//! That is the network of this device's own interface in which the gateway's address lies, whatever its size: whoever is on the same link is in the same
//! network. A gateway in none of them, behind a router, is known by the addresses around it.

use hoop_http::Origin;
use hoop_units::Prefix;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use url::Host;

/// The networks of addresses that are in none of ours. Earlier versions took every network for one of these.
const AROUND_V4_BITS: u32 = 24;
const AROUND_V6_BITS: u32 = 64;

/// Networks that have fewer bits are no neighbourhood: a tunnel through which all goes has an address with 0 or 1, and nobody gets more than a /8 of
/// version 4, or a /19 of version 6.
const NETWORK_V4_BITS_MIN: u32 = 8;
const NETWORK_V6_BITS_MIN: u32 = 19;

/// What a gateway is known by: its network; itself on this machine, or where a certificate vouches for its name.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Place {
    /// As it is written down.
    name: String,
    /// What earlier versions would have written.
    earlier: Option<String>,
    network: Option<Prefix>,
}

impl Place {
    /// Of a gateway that is asked at `here`. `interfaces`: this device's addresses, each with the length of its network's prefix.
    pub(crate) fn of(here: &Origin, interfaces: &[(IpAddr, u32)]) -> Self {
        match here.host() {
            Host::Ipv4(address) => Self::at(IpAddr::V4(*address), here, interfaces),
            Host::Ipv6(address) => Self::at(IpAddr::V6(*address).to_canonical(), here, interfaces),
            Host::Domain(_) => Self::itself(here),
        }
    }

    /// Of a gateway that is known by its own origin.
    pub(crate) fn itself(here: &Origin) -> Self {
        Self { name: here.authority().to_owned(), earlier: None, network: None }
    }

    fn at(address: IpAddr, here: &Origin, interfaces: &[(IpAddr, u32)]) -> Self {
        if address.is_loopback() {
            return Self::itself(here);
        }
        let around = if address.is_ipv4() { AROUND_V4_BITS } else { AROUND_V6_BITS };
        let of_interfaces = interfaces.iter().filter_map(|(own, bits)| Some((*own, usable(*own, *bits)?)));
        let ours = of_interfaces.filter(|(own, bits)| Prefix::new(*own, *bits).contains(address));
        // Of a network within a network, as of a VPN's around the Wi-Fi's, the smaller one.
        let bits = ours.map(|(_, bits)| bits).max().unwrap_or(around);
        let network = Some(Prefix::new(address, bits));
        Self { name: name_of(address, bits), earlier: Some(name_of(address, around)), network }
    }

    /// As it is written down.
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// Whether a name that was written down is of this place: its own; or one from an earlier version, which wrote down a /24 or /64 where the network is
    /// larger, or smaller.
    pub(crate) fn is_named(&self, name: &str) -> bool {
        let is_part = || {
            let (address, bits) = name.split_once('/')?;
            let address: IpAddr = address.parse().ok()?;
            let earlier = bits.parse() == Ok(if address.is_ipv4() { AROUND_V4_BITS } else { AROUND_V6_BITS });
            Some(earlier && self.network?.contains(address))
        };
        self.name == name || self.earlier.as_deref() == Some(name) || is_part() == Some(true)
    }
}

/// The bits of an interface's network, if it is one: an address from DHCPv6 stands alone and has neighbours nonetheless (RFC 4291 §2.5.4); one of version 4 that
/// stands alone has none.
fn usable(own: IpAddr, bits: u32) -> Option<u32> {
    match own {
        IpAddr::V4(_) => (NETWORK_V4_BITS_MIN..Ipv4Addr::BITS).contains(&bits).then_some(bits),
        IpAddr::V6(_) => (bits >= NETWORK_V6_BITS_MIN).then_some(bits.min(AROUND_V6_BITS)),
    }
}

/// A network's name, its first address and its bits.
fn name_of(address: IpAddr, bits: u32) -> String {
    let first = match address {
        IpAddr::V4(address) => {
            let mask = u32::MAX.checked_shl(Ipv4Addr::BITS - bits).unwrap_or(0);
            IpAddr::V4(Ipv4Addr::from_bits(address.to_bits() & mask))
        }
        IpAddr::V6(address) => {
            let mask = u128::MAX.checked_shl(Ipv6Addr::BITS - bits).unwrap_or(0);
            IpAddr::V6(Ipv6Addr::from_bits(address.to_bits() & mask))
        }
    };
    format!("{first}/{bits}")
}

/// This device's addresses, each with the length of its network's prefix. They come and go, so they are asked for each time. Without an answer of the
/// operating system there are none.
pub(crate) fn interfaces() -> Vec<(IpAddr, u32)> {
    let addresses = if_addrs::get_if_addrs().unwrap_or_else(|error| {
        tracing::debug!(%error, "the machine's own addresses cannot be read");
        Vec::new()
    });
    let bits = |interface: &if_addrs::Interface| match &interface.addr {
        if_addrs::IfAddr::V4(v4) => v4.prefixlen.into(),
        if_addrs::IfAddr::V6(v6) => v6.prefixlen.into(),
    };
    addresses.iter().map(|interface| (interface.ip(), bits(interface))).collect()
}

/// The origin of a gateway at that address.
pub(crate) fn origin_of(address: SocketAddr) -> Origin {
    format!("http://{address}").parse().expect("an address and a port make an origin")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(origin: &str, interfaces: &[(&str, u32)]) -> Place {
        let interfaces: Vec<_> = interfaces.iter().map(|(own, bits)| (own.parse().unwrap(), *bits)).collect();
        Place::of(&origin.parse().unwrap(), &interfaces)
    }

    #[test]
    fn a_gateway_is_known_by_the_network_of_the_interface_that_it_is_in() {
        let home = [("192.168.1.20", 24), ("2001:db8:1:2::20", 64)];
        let hall = [("10.1.2.3", 16), ("172.17.0.1", 16), ("2001:db8:1:2::20", 128), ("2001:db8:2::1", 48)];
        for (origin, interfaces, name) in [
            ("http://192.168.1.7:4667", &home[..], "192.168.1.0/24"),
            ("http://[2001:db8:1:2:3:4:5:6]:4667", &home, "2001:db8:1:2::/64"),
            ("http://10.1.2.9:4667", &hall, "10.1.0.0/16"),
            ("http://10.1.200.9:4667", &hall, "10.1.0.0/16"),
            ("http://[::ffff:10.1.200.9]:4667", &hall, "10.1.0.0/16"),
            ("http://[2001:db8:1:2:3:4:5:6]:4667", &hall, "2001:db8:1:2::/64"),
            ("http://[2001:db8:2:9::6]:4667", &hall, "2001:db8:2::/48"),
            ("http://192.0.2.70:4667", &[("192.0.2.66", 26)], "192.0.2.64/26"),
            // The smaller of two.
            ("http://10.1.200.9:4667", &[("10.1.200.3", 22), ("10.9.9.9", 8)], "10.1.200.0/22"),
            // In none: behind a router, a tunnel through which all goes, an address that stands alone.
            ("http://10.2.2.9:4667", &hall, "10.2.2.0/24"),
            ("http://[2001:db8:9:2:3:4:5:6]:4667", &hall, "2001:db8:9:2::/64"),
            ("http://10.2.2.9:4667", &[("10.2.2.8", 0), ("10.2.2.9", 32)], "10.2.2.0/24"),
            ("http://10.2.2.9:4667", &[], "10.2.2.0/24"),
            // Itself.
            ("http://127.0.0.1:4667", &[("127.0.0.1", 8)], "127.0.0.1:4667"),
            ("http://[::1]:4667", &[("::1", 128)], "[::1]:4667"),
            ("https://box.example", &hall, "box.example"),
        ] {
            assert_eq!(place(origin, interfaces).name(), name, "{origin} {interfaces:?}");
        }
    }

    #[test]
    fn what_an_earlier_version_wrote_down_of_a_network_still_counts() {
        let hall = place("http://10.1.200.9:4667", &[("10.1.2.3", 16)]);
        for (name, is_named) in [
            ("10.1.0.0/16", true),
            ("10.1.200.0/24", true),
            ("10.1.2.0/24", true),
            ("10.2.2.0/24", false),
            ("10.1.128.0/17", false),
            ("10.0.0.0/8", false),
            ("2001:db8:1:2::/64", false),
            ("10.1.200.9:4667", false),
            ("box.example", false),
        ] {
            assert_eq!(hall.is_named(name), is_named, "{name}");
        }
        let small = place("http://192.0.2.70:4667", &[("192.0.2.66", 26)]);
        assert!(small.is_named("192.0.2.0/24") && small.is_named("192.0.2.64/26"));
        assert!(!small.is_named("192.0.2.0/26") && !small.is_named("192.0.3.0/24"));
        let wide = place("http://[2001:db8:2:9::6]:4667", &[("2001:db8:2::1", 48)]);
        assert!(wide.is_named("2001:db8:2:7::/64") && !wide.is_named("2001:db8:3::/64"));
        let itself = place("http://127.0.0.1:4667", &[("127.0.0.1", 8)]);
        assert!(itself.is_named("127.0.0.1:4667") && !itself.is_named("127.0.0.0/24"));
    }

    #[test]
    fn this_device_knows_its_own_interfaces() {
        let own = interfaces();
        assert!(own.iter().any(|(address, bits)| address.is_loopback() && *bits >= 8), "{own:?}");
    }
}
