//! Where a machine is: [`Here`].

use crate::address::leads_to;
use crate::prefix::Prefix;
use alloc::vec::Vec;
use core::net::IpAddr;

/// An address from DHCPv6 or of a point-to-point link stands alone, and is in a /64 with others nonetheless (RFC 4291 §2.5.4).
const LINK_V6_BITS: u32 = 64;

/// Networks that have fewer bits are no neighbourhood: a tunnel through which all goes has an address with 0 or 1, and nobody gets more than a /8 of version 4, or a /19 of
/// version 6.
const NETWORK_V4_BITS_MIN: u32 = 8;
const NETWORK_V6_BITS_MIN: u32 = 19;

/// The addresses of a machine's interfaces, and the networks that they are in.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Here {
    own: Vec<IpAddr>,
    networks: Vec<Prefix>,
}

impl Here {
    /// Of interfaces with these addresses, each with the length of its network's prefix.
    pub fn of(interfaces: impl IntoIterator<Item = (IpAddr, u32)>) -> Self {
        let mut here = Self::default();
        for (address, bits) in interfaces {
            here.own.push(address);
            let network = match address {
                IpAddr::V4(_) => (bits >= NETWORK_V4_BITS_MIN).then_some(bits),
                IpAddr::V6(_) => (bits >= NETWORK_V6_BITS_MIN).then_some(bits.min(LINK_V6_BITS)),
            };
            here.networks.extend(network.map(|bits| Prefix::new(address, bits)));
        }
        here
    }

    /// The same, also known by these addresses, which may be a router's in front of it.
    #[must_use]
    pub fn known_as(mut self, addresses: &[IpAddr]) -> Self {
        self.own.extend(addresses);
        self
    }

    /// Whether packets for an address end at this machine, also by way of a translator or a tunnel.
    pub fn is_own(&self, address: IpAddr) -> bool {
        leads_to(address, &self.own)
    }

    /// Whether packets for an address end at this machine or a neighbour of it. In version 6 the neighbours of a home or an office have
    /// public addresses, too.
    pub fn is_near(&self, address: IpAddr) -> bool {
        let carried = crate::address::carried_in(address);
        let is_in = |address| self.networks.iter().any(|network| network.contains(address));
        self.is_own(address) || is_in(address) || carried.is_some_and(is_in)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ip(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    #[test]
    fn neighbours_share_the_networks_of_a_machines_interfaces() {
        let here = Here::of([
            (ip("2606:4700::5"), 64),
            (ip("2606:4700:0:7::5"), 128),
            (ip("93.184.216.5"), 29),
            (ip("198.41.0.9"), 32),
            (ip("2606:4700:ffff::1"), 0),
            (ip("1.1.1.1"), 1),
        ])
        .known_as(&[ip("203.0.114.1")]);
        for (address, is_near) in [
            ("2606:4700::5", true),
            ("2606:4700::17", true),
            ("2606:4700:0:1::17", false),
            ("2606:4700:0:7::17", true),
            ("2606:4700:ffff::1", true),
            ("2606:4700:ffff::2", false),
            ("93.184.216.7", true),
            ("::ffff:93.184.216.7", true),
            ("64:ff9b::93.184.216.7", true),
            ("2002:5db8:d807::1", true),
            ("93.184.216.8", false),
            ("198.41.0.9", true),
            ("198.41.0.8", false),
            ("1.1.1.1", true),
            ("1.1.1.2", false),
            ("203.0.114.1", true),
            ("203.0.114.2", false),
        ] {
            assert_eq!(here.is_near(ip(address)), is_near, "{address}");
        }
        assert!(here.is_own(ip("64:ff9b::198.41.0.9")) && !here.is_own(ip("2606:4700::17")));
        assert!(!Here::default().is_near(ip("1.1.1.1")));
    }
}
