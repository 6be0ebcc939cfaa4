//! Addresses that begin alike: [`Prefix`].

use core::fmt;
use core::net::IpAddr;
use core::str::FromStr;
use ipnet::IpNet;

/// One address, or all that share its first bits: `10.9.1.1`, `10.9.2.0/24`, `fd00::/8`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Prefix(IpNet);

/// It is neither an address nor a prefix.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("an address is wanted, or a network such as 10.9.2.0/24; no name and no port")]
pub struct NoPrefix;

impl Prefix {
    /// Those whose first `len` bits are this address's.
    pub fn new(address: IpAddr, len: u32) -> Self {
        let whole = Self::from(address);
        let len = u8::try_from(len).unwrap_or(u8::MAX).min(whole.0.prefix_len());
        Self(IpNet::new_assert(whole.0.addr(), len))
    }

    /// Whether an address is one of these. One of version 4 that is mapped into version 6 counts as what it is.
    pub fn contains(&self, address: IpAddr) -> bool {
        self.0.contains(&address.to_canonical())
    }
}

impl From<IpAddr> for Prefix {
    fn from(address: IpAddr) -> Self {
        Self(address.to_canonical().into())
    }
}

impl FromStr for Prefix {
    type Err = NoPrefix;

    fn from_str(text: &str) -> Result<Self, NoPrefix> {
        match text.parse::<IpAddr>() {
            Ok(address) => Ok(address.into()),
            Err(_) => text.parse().map(Self).map_err(|_| NoPrefix),
        }
    }
}

impl fmt::Display for Prefix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            whole if whole.prefix_len() == whole.max_prefix_len() => whole.addr().fmt(f),
            net => net.fmt(f),
        }
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
