//! Addresses that begin alike: [`Prefix`].

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use core::str::FromStr;

/// One address, or all that share its first bits: `10.9.1.1`, `10.9.2.0/24`, `fd00::/8`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Prefix {
    address: IpAddr,
    len: u32,
}

/// It is neither an address nor a prefix.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("an address is wanted, or a network such as 10.9.2.0/24; no name and no port")]
pub struct NoPrefix;

impl Prefix {
    /// Those whose first `len` bits are this address's.
    pub fn new(address: IpAddr, len: u32) -> Self {
        let whole = Self::from(address);
        Self { len: len.min(whole.len), ..whole }
    }

    /// Whether an address is one of these.
    pub fn contains(&self, address: IpAddr) -> bool {
        match (self.address, address.to_canonical()) {
            (IpAddr::V4(own), IpAddr::V4(other)) => {
                let mask = u32::MAX.checked_shl(Ipv4Addr::BITS - self.len).unwrap_or(0);
                (own.to_bits() ^ other.to_bits()) & mask == 0
            }
            (IpAddr::V6(own), IpAddr::V6(other)) => {
                let mask = u128::MAX.checked_shl(Ipv6Addr::BITS - self.len).unwrap_or(0);
                (own.to_bits() ^ other.to_bits()) & mask == 0
            }
            _ => false,
        }
    }
}

impl From<IpAddr> for Prefix {
    fn from(address: IpAddr) -> Self {
        let address = address.to_canonical();
        Self { address, len: if address.is_ipv4() { Ipv4Addr::BITS } else { Ipv6Addr::BITS } }
    }
}

impl FromStr for Prefix {
    type Err = NoPrefix;

    fn from_str(text: &str) -> Result<Self, NoPrefix> {
        let (address, len) = text.split_once('/').map_or((text, None), |(address, len)| (address, Some(len)));
        let whole = Self::from(address.parse::<IpAddr>().map_err(|_| NoPrefix)?);
        let len = len.map_or(Ok(whole.len), str::parse).map_err(|_| NoPrefix)?;
        if len > whole.len { Err(NoPrefix) } else { Ok(Self { len, ..whole }) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_prefix_has_the_addresses_that_begin_alike_and_no_others() {
        for (prefix, address, is_in) in [
            ("10.9.2.0/24", "10.9.2.255", true),
            ("10.9.2.0/24", "10.9.3.0", false),
            ("10.9.2.0/24", "::ffff:10.9.2.7", true),
            ("10.9.2.1", "10.9.2.1", true),
            ("10.9.2.1", "10.9.2.2", false),
            ("0.0.0.0/0", "255.1.2.3", true),
            ("0.0.0.0/0", "::1", false),
            ("fd00::/8", "fd12::1", true),
            ("fd00::/8", "fe80::1", false),
            ("::/0", "fe80::1", true),
        ] {
            assert_eq!(
                prefix.parse::<Prefix>().unwrap().contains(address.parse().unwrap()),
                is_in,
                "{prefix} {address}"
            );
        }
        for none in ["", "10.9.2.0/33", "10.9.2.0/", "10.9.2/24", "::/129", "relay.example", "10.9.1.1:80", "/8"] {
            assert_eq!(none.parse::<Prefix>(), Err(NoPrefix), "{none}");
        }
    }
}
