//! What an operator allows uploads to be delivered to besides public services: [`AllowDest`].

use hoop_units::Prefix;
use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;
use url::Host;

/// One destination that the operator allows although it is not public, or not HTTPS.
///
/// Written `host`, `host:port`, `192.0.2.7`, `10.0.0.0/8`, `[fd00::/8]:8443`; without a port, any port.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct AllowDest {
    place: Place,
    port: Option<u16>,
}

#[derive(Clone, PartialEq, Eq, Debug)]
enum Place {
    /// A name, in lower case; whatever address it has.
    Name(String),
    /// The addresses that begin with these bits.
    Net(Prefix),
}

/// The text names no destination.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("expected a host name, an IP address or a network such as 10.0.0.0/8, with or without a port, not `{0}`")]
pub struct AllowDestError(String);

impl FromStr for AllowDest {
    type Err = AllowDestError;

    fn from_str(text: &str) -> Result<Self, AllowDestError> {
        let error = || AllowDestError(text.to_owned());
        // An address of version 6 has colons of its own: with a port it stands in brackets.
        let (place, port) = match text.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
            Some((inner, "")) => (inner, None),
            Some((inner, port)) => (inner, Some(port.strip_prefix(':').ok_or_else(error)?)),
            None if text.matches(':').count() == 1 => {
                text.split_once(':').map(|(place, port)| (place, Some(port))).ok_or_else(error)?
            }
            None => (text, None),
        };
        let port = port.map(|port| port.parse().map_err(|_| error())).transpose()?;
        let place = Place::parse(place).ok_or_else(error)?;
        Ok(Self { place, port })
    }
}

impl fmt::Display for AllowDest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let place = match &self.place {
            Place::Name(name) => name.clone(),
            Place::Net(prefix) => prefix.to_string(),
        };
        match self.port {
            None => f.write_str(&place),
            Some(port) if place.contains(':') => write!(f, "[{place}]:{port}"),
            Some(port) => write!(f, "{place}:{port}"),
        }
    }
}

impl Place {
    fn parse(text: &str) -> Option<Self> {
        if let Ok(prefix) = text.parse() {
            return Some(Self::Net(prefix));
        }
        match Host::parse(text).ok()? {
            Host::Domain(name) => Some(Self::Name(name)),
            Host::Ipv4(_) | Host::Ipv6(_) => None,
        }
    }

    fn holds(&self, address: IpAddr) -> bool {
        matches!(self, Self::Net(prefix) if prefix.contains(address))
    }
}

impl AllowDest {
    /// Whether it allows addresses, rather than a name.
    pub const fn is_of_addresses(&self) -> bool {
        matches!(self.place, Place::Net(_))
    }

    fn fits_port(&self, port: u16) -> bool {
        self.port.is_none_or(|own| own == port)
    }

    /// Whether it allows that host at that port.
    pub fn lists_host(&self, host: &Host<String>, port: u16) -> bool {
        self.fits_port(port)
            && match host {
                Host::Domain(name) => self.place == Place::Name(name.trim_end_matches('.').to_owned()),
                Host::Ipv4(address) => self.place.holds((*address).into()),
                Host::Ipv6(address) => self.place.holds((*address).into()),
            }
    }

    /// Whether it allows that address at that port.
    pub fn lists_address(&self, address: IpAddr, port: u16) -> bool {
        self.fits_port(port) && self.place.holds(address)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_of_the_list_is_read_as_it_is_written() {
        for text in [
            "photos.lan",
            "photos.lan:8443",
            "10.0.0.0/8",
            "10.0.0.1:80",
            "fd00::/8",
            "[fd00::/8]:443",
            "::1",
            "0.0.0.0/0",
        ] {
            assert_eq!(text.parse::<AllowDest>().unwrap().to_string(), text);
        }
        for wrong in
            ["", "10.0.0.0/33", "a b", "[::1", "[::1]x", "host:", "host:99999", "fd00::/129", "https://x", "/8"]
        {
            assert!(wrong.parse::<AllowDest>().is_err(), "{wrong}");
        }
    }
}
