//! Which addresses are of the public Internet: [`is_public`].
//!
//! The rule is a list of what is *not* public: every block of the IANA registries of special-purpose addresses (RFC 6890, for IPv4 and
//! IPv6, as of 2025), multicast, and what was never given out. Those blocks that the registries call globally reachable are refused
//! all the same: they are anycast addresses of relays and of the servers that swallow private reverse look-ups (AS112), and no service
//! lives there. So are the public addresses at which clouds serve keys and settings to their own machines; other clouds use private ones. Where an IPv6 address carries one of version 4 that a translator or a tunnel on the way will unwrap, that one is judged, too.

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use ipnet::{Ipv4Net, Ipv6Net};

/// Blocks of IPv4 that are not public: first address, prefix length.
const SPECIAL_V4: &[Ipv4Net] = &[
    v4([0, 0, 0, 0], 8),        // "this network" (RFC 791); Linux takes 0.0.0.0 for itself
    v4([10, 0, 0, 0], 8),       // private use (RFC 1918)
    v4([100, 64, 0, 0], 10),    // shared by carriers (RFC 6598)
    v4([127, 0, 0, 0], 8),      // loopback
    v4([161, 26, 0, 0], 16),    // services of IBM's cloud for its own machines
    v4([166, 8, 0, 0], 14),     // the same
    v4([168, 63, 129, 16], 32), // Azure's for its own machines: agents, their keys, name servers
    v4([169, 254, 0, 0], 16),   // link-local (RFC 3927); where clouds keep their credentials
    v4([172, 16, 0, 0], 12),    // private use
    v4([192, 0, 0, 0], 24),     // protocol assignments (RFC 6890): DS-Lite, NAT64 discovery, PCP and TURN anycast
    v4([192, 0, 2, 0], 24),     // documentation (RFC 5737)
    v4([192, 31, 196, 0], 24),  // AS112 (RFC 7535)
    v4([192, 52, 193, 0], 24),  // AMT relays (RFC 7450)
    v4([192, 88, 99, 0], 24),   // 6to4 relays, withdrawn (RFC 7526)
    v4([192, 168, 0, 0], 16),   // private use
    v4([192, 175, 48, 0], 24),  // AS112 (RFC 7534)
    v4([198, 18, 0, 0], 15),    // benchmarks (RFC 2544)
    v4([198, 51, 100, 0], 24),  // documentation
    v4([203, 0, 113, 0], 24),   // documentation
    v4([224, 0, 0, 0], 4),      // multicast (RFC 5771)
    v4([240, 0, 0, 0], 4),      // reserved (RFC 1112), with the broadcast address
];

const fn v4([a, b, c, d]: [u8; 4], bits: u8) -> Ipv4Net {
    Ipv4Net::new_assert(Ipv4Addr::new(a, b, c, d), bits)
}

/// Blocks within `2000::/3`, the one that is given out, that are not public. What lies outside of it needs no list: loopback,
/// unspecified, IPv4-compatible, local NAT64 (`64:ff9b:1::/48`, RFC 8215), discard-only and dummy (`100::/64`, `100:0:0:1::/64`),
/// SRv6 (`5f00::/16`), unique-local, link-local, site-local, multicast.
const SPECIAL_V6: &[Ipv6Net] = &[
    // Protocol assignments (RFC 2928): Teredo, benchmarks, AMT, AS112, ORCHID, drone identities, PCP and TURN anycast.
    Ipv6Net::new_assert(Ipv6Addr::new(0x2001, 0, 0, 0, 0, 0, 0, 0), 23),
    Ipv6Net::new_assert(Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 0), 32), // documentation (RFC 3849)
    Ipv6Net::new_assert(Ipv6Addr::new(0x2620, 0x4f, 0x8000, 0, 0, 0, 0, 0), 48), // AS112 (RFC 7534)
    Ipv6Net::new_assert(Ipv6Addr::new(0x3ffe, 0, 0, 0, 0, 0, 0, 0), 16),     // 6bone, given back (RFC 3701)
    Ipv6Net::new_assert(Ipv6Addr::new(0x3fff, 0, 0, 0, 0, 0, 0, 0), 20),     // documentation (RFC 9637)
];

/// Whether an address is one of the public Internet.
pub fn is_public(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => is_public_v4(address),
        IpAddr::V6(address) => is_public_v6(address),
    }
}

fn is_public_v4(address: Ipv4Addr) -> bool {
    !SPECIAL_V4.iter().any(|block| block.contains(&address))
}

fn is_public_v6(address: Ipv6Addr) -> bool {
    if !carried(address).is_none_or(is_public_v4) {
        return false;
    }
    match address.segments() {
        // Mapped and translated addresses are the version 4 one that they carry.
        [0, 0, 0, 0, 0, 0xffff, ..] | [0x64, 0xff9b, 0, 0, 0, 0, ..] => true,
        [first, ..] => first & 0xe000 == 0x2000 && !SPECIAL_V6.iter().any(|block| block.contains(&address)),
    }
}

/// The version 4 address to which packets for this one go in the end: mapped, NAT64 (RFC 6052), 6to4 (RFC 3056), ISATAP (RFC 5214).
fn carried(address: Ipv6Addr) -> Option<Ipv4Addr> {
    let of = |high: u16, low: u16| Some(Ipv4Addr::from(u32::from(high) << 16 | u32::from(low)));
    match address.segments() {
        [0, 0, 0, 0, 0, 0xffff, high, low] | [0x64, 0xff9b, 0, 0, 0, 0, high, low] => of(high, low),
        [0x2002, high, low, ..] => of(high, low),
        [_, _, _, _, 0 | 0x200, 0x5efe, high, low] => of(high, low),
        _ => None,
    }
}

/// The version 4 address that one of version 6 leads to in the end, if it does.
pub(crate) fn carried_in(address: IpAddr) -> Option<IpAddr> {
    match address {
        IpAddr::V4(_) => None,
        IpAddr::V6(address) => carried(address).map(IpAddr::V4),
    }
}

/// Whether packets for `address` end at one of `own`, also by way of a translator or a tunnel.
pub fn leads_to(address: IpAddr, own: &[IpAddr]) -> bool {
    let address = address.to_canonical();
    let carried = carried_in(address);
    own.iter().map(IpAddr::to_canonical).any(|own| own == address || Some(own) == carried)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ip(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    #[test]
    fn each_block_ends_where_the_registry_says() {
        for block in SPECIAL_V4 {
            let (first, last) = (block.network(), block.broadcast());
            assert!(block.addr() == first && !is_public_v4(first) && !is_public_v4(last), "{block}");
            for beside in [first.to_bits().wrapping_sub(1), last.to_bits().wrapping_add(1)].map(Ipv4Addr::from) {
                let neighbour = SPECIAL_V4.iter().any(|block| block.contains(&beside));
                assert_eq!(is_public_v4(beside), !neighbour, "beside {block}");
            }
        }
        for block in SPECIAL_V6 {
            assert!(!is_public_v6(block.network()) && !is_public_v6(block.broadcast()), "{block}");
        }
    }

    /// Where clouds serve keys, user data and settings to their own machines.
    #[test]
    fn no_clouds_metadata_service_is_public() {
        for metadata in [
            "169.254.169.254",   // AWS, Google, Azure, DigitalOcean, Hetzner, OpenStack, Vultr, Linode, Oracle, IBM
            "169.254.170.2",     // AWS ECS
            "169.254.170.23",    // AWS EKS
            "169.254.169.123",   // AWS time
            "169.254.42.42",     // Scaleway
            "169.254.0.23",      // Tencent
            "fd00:ec2::254",     // AWS
            "fd00:ec2::253",     // AWS name servers
            "fd00:ec2::23",      // AWS EKS
            "fd20:ce::254",      // Google
            "fd00:42::42",       // Scaleway
            "fd00:a9fe:a9fe::1", // Linode
            "fe80::a9fe:a9fe",   // OpenStack
            "100.100.100.200",   // Alibaba
            "100.100.2.136",     // Alibaba name servers
            "192.0.0.192",       // Oracle
            "168.63.129.16",     // Azure
            "::ffff:168.63.129.16", // Azure, mapped
            "64:ff9b::168.63.129.16", // Azure, by NAT64
            "161.26.0.10",       // IBM name servers
            "166.9.12.1",        // IBM service endpoints
        ] {
            assert!(!is_public(ip(metadata)), "{metadata}");
        }
        for beside in ["168.63.129.15", "168.63.129.17", "161.27.0.1", "166.12.0.1"] {
            assert!(is_public(ip(beside)), "{beside}");
        }
    }

    #[test]
    fn what_is_wrapped_is_judged_and_what_is_not_is_left_alone() {
        for public in
            ["::ffff:8.8.8.8", "64:ff9b::8.8.8.8", "2002:808:808::1", "2606:4700::5efe:808:808", "2606:4700::1"]
        {
            assert!(is_public(ip(public)), "{public}");
        }
        for private in [
            "::ffff:10.0.0.1",
            "64:ff9b::10.0.0.1",
            "2002:a00:1::1",
            "2606:4700::5efe:a00:1",
            "2606:4700::200:5efe:a00:1",
        ] {
            assert!(!is_public(ip(private)), "{private}");
        }
    }

    #[test]
    fn an_address_leads_to_us_also_by_way_of_a_translator() {
        let own = [ip("192.0.32.7"), ip("2606:4700::7")];
        for ours in ["192.0.32.7", "::ffff:192.0.32.7", "64:ff9b::192.0.32.7", "2002:c000:2007::1", "2606:4700::7"] {
            assert!(leads_to(ip(ours), &own), "{ours}");
        }
        for others in ["192.0.32.8", "2606:4700::8", "2002:c000:2008::1"] {
            assert!(!leads_to(ip(others), &own), "{others}");
        }
    }
}
