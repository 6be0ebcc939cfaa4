//! Where a program wants to go: [`Destination`].

use hoop_relay::is_host_name;
use std::fmt;
use std::net::{IpAddr, Ipv6Addr};

/// A host and a port. The relay looks names up.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Destination {
    host: Host,
    port: u16,
}

#[derive(Clone, PartialEq, Eq, Debug)]
enum Host {
    Address(IpAddr),
    Name(String),
}

impl Destination {
    /// A host, and a port; an IPv6 address may be in brackets. None: it is no host that a name server or a network could know.
    pub(crate) fn new(host: &str, port: u16) -> Option<Self> {
        let host = match host.strip_prefix('[').and_then(|host| host.strip_suffix(']')) {
            Some(v6) => Host::Address(v6.parse::<Ipv6Addr>().ok()?.into()),
            None => match host.parse() {
                Ok(address) => Host::Address(address),
                Err(_) => Host::Name(is_host_name(host).then(|| host.to_owned())?),
            },
        };
        (port != 0).then_some(Self { host, port })
    }

    /// An address and a port.
    pub(crate) const fn address(address: IpAddr, port: u16) -> Self {
        Self { host: Host::Address(address), port }
    }

    /// `HOST:PORT`, or a host and the port that its scheme has by default.
    pub(crate) fn parse(authority: &str, default_port: Option<u16>) -> Option<Self> {
        let (host, port) = match authority.rsplit_once(':') {
            Some((host, port)) if !port.ends_with(']') => {
                let digits = port.bytes().all(|byte| byte.is_ascii_digit());
                (host, port.parse().ok().filter(|_| digits)?)
            }
            _ => (authority, default_port?),
        };
        // An IPv6 address without brackets could end anywhere.
        let is_clear = !host.contains(':') || host.starts_with('[');
        Self::new(host, port).filter(|_| is_clear)
    }

    /// Its name, as it was written; none if it is an address.
    pub(crate) fn name(&self) -> Option<&str> {
        match &self.host {
            Host::Name(name) => Some(name),
            Host::Address(_) => None,
        }
    }

    /// Its name or address, by which a certificate is checked.
    pub(crate) fn host(&self) -> String {
        match &self.host {
            Host::Name(name) => name.clone(),
            Host::Address(address) => address.to_string(),
        }
    }

    pub(crate) const fn port(&self) -> u16 {
        self.port
    }

    /// Whether both are the same, however their names are written.
    pub(crate) fn is_same_as(&self, other: &Self) -> bool {
        match (self.name(), other.name()) {
            (Some(one), Some(another)) => self.port == other.port && one.eq_ignore_ascii_case(another),
            _ => self == other,
        }
    }

    /// Whether the relay has to look its name up. It then tries all of its addresses, and a program has no other to try.
    pub(crate) const fn is_name(&self) -> bool {
        matches!(self.host, Host::Name(_))
    }
}

impl fmt::Display for Destination {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.host {
            Host::Address(IpAddr::V6(v6)) => write!(f, "[{v6}]:{}", self.port),
            Host::Address(v4) => write!(f, "{v4}:{}", self.port),
            Host::Name(name) => write!(f, "{name}:{}", self.port),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_destination_is_a_host_and_a_port() {
        for (authority, default_port, written, is_name) in [
            ("example.com:443", None, "example.com:443", true),
            ("example.com", Some(80), "example.com:80", true),
            ("example.com.", Some(80), "example.com.:80", true),
            ("_dns.Example-1.com:1", None, "_dns.Example-1.com:1", true),
            ("192.0.2.7:8080", None, "192.0.2.7:8080", false),
            ("[2001:db8::1]:443", None, "[2001:db8::1]:443", false),
            ("[2001:db8::1]", Some(80), "[2001:db8::1]:80", false),
        ] {
            let destination = Destination::parse(authority, default_port).unwrap();
            assert_eq!((&destination.to_string()[..], destination.is_name()), (written, is_name), "{authority}");
        }
    }

    #[test]
    fn what_is_none_is_refused() {
        let long = format!("{}:1", vec!["a".repeat(63); 4].join("."));
        for wrong in [
            "",
            ":80",
            "example.com",
            "example.com:",
            "example.com:0",
            "example.com:65536",
            "example.com:-1",
            "example.com:+80",
            "user@example.com:80",
            "user:word@example.com:80",
            "exa mple.com:80",
            "example..com:80",
            ".example.com:80",
            "example.com:80:80",
            "2001:db8::1:80",
            "[2001:db8::1",
            "[2001:db8::1]80",
            "[example.com]:80",
            "[]:80",
            "ex\u{e4}mple.com:80",
            "example.com/:80",
            "a\r\nb:80",
            "a%2e:80",
            "127.1:80",
            "2130706433:80",
            "0x7f.0x1:80",
            &long,
        ] {
            assert_eq!(Destination::parse(wrong, None), None, "{wrong}");
        }
    }
}
