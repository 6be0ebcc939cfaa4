//! Who sent an upload, as far as a gateway can tell: [`AddressKey`].

use core::fmt;
use core::net::{IpAddr, Ipv6Addr};

/// A sender of uploads, known by its address: IPv4 whole, of IPv6 the /64, since a device takes another address in it every
/// day. Sixteen bytes: an IPv6 address, IPv4 mapped into it (RFC 4291 §2.5.5.2).
///
/// Devices behind one address are one device to a gateway. It is written as that address.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct AddressKey(pub [u8; 16]);

impl AddressKey {
    /// Nobody knows whose: the unspecified address, from which nothing is ever sent.
    pub const UNKNOWN: Self = Self([0; 16]);

    /// The device at that address.
    pub fn from_ip(ip: IpAddr) -> Self {
        match ip.to_canonical() {
            IpAddr::V4(ip) => Self(ip.to_ipv6_mapped().octets()),
            IpAddr::V6(ip) => {
                let mut octets = ip.octets();
                octets[8..].fill(0);
                Self(octets)
            }
        }
    }

    /// Whether it is this machine. The loopback address of IPv6 is in the unspecified /64.
    pub fn is_loopback(&self) -> bool {
        let ip = Ipv6Addr::from(self.0).to_canonical();
        ip.is_loopback() || ip.is_unspecified()
    }

    /// The device's sixteen bytes.
    pub const fn as_bytes(&self) -> &[u8; 16] {
        &self.0
    }
}

impl fmt::Display for AddressKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match Ipv6Addr::from(self.0) {
            ip if ip.is_unspecified() => f.write_str("unknown"),
            ip => match IpAddr::V6(ip).to_canonical() {
                IpAddr::V4(ip) => write!(f, "{ip}"),
                IpAddr::V6(ip) => write!(f, "{ip}/64"),
            },
        }
    }
}

impl fmt::Debug for AddressKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::ToString as _;

    fn device(ip: &str) -> AddressKey {
        AddressKey::from_ip(ip.parse().unwrap())
    }

    #[test]
    fn a_device_is_its_ipv4_address_or_its_ipv6_network() {
        assert_eq!(device("192.0.2.7"), device("::ffff:192.0.2.7"), "one address, two spellings");
        assert_ne!(device("192.0.2.7"), device("192.0.2.8"));
        assert_eq!(device("2001:db8:0:7::1"), device("2001:db8:0:7:ffff::2"), "privacy addresses change");
        assert_ne!(device("2001:db8:0:7::1"), device("2001:db8:0:8::1"));
    }

    #[test]
    fn a_device_is_written_as_its_address() {
        assert_eq!(device("192.0.2.7").to_string(), "192.0.2.7");
        assert_eq!(device("2001:db8:0:7::1").to_string(), "2001:db8:0:7::/64");
        assert_eq!(AddressKey::UNKNOWN.to_string(), "unknown");
    }
}
