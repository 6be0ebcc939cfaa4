//! Where a gateway may deliver to: [`Destinations`], [`AllowDest`].
//!
//! A gateway stands in a home, and whoever is on its LAN names the address that it connects to. So it delivers over
//! HTTPS, to public addresses, and to nothing else unless its operator lists it. The check has two places: when an
//! upload is offered (scheme, form, address literals), and at every connection, for the very address that is then
//! used (names that resolve to a private address, or change their mind).

use hoop_http::{AddressGuard, Code, Origin, Problem};
use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::str::FromStr;
use std::sync::Arc;
use url::{Host, Url};

/// The longest `dest` that is taken: twice what a service's post URL will ever need.
pub const DEST_MAX: usize = 1024;

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
    Net { base: IpAddr, bits: u32 },
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
            Place::Net { base, bits } if *bits == width(*base) => base.to_string(),
            Place::Net { base, bits } => format!("{base}/{bits}"),
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
        if let Some((base, bits)) = text.split_once('/') {
            let (base, bits): (IpAddr, u32) = (base.parse().ok()?, bits.parse().ok()?);
            return (bits <= width(base)).then_some(Self::Net { base, bits });
        }
        if let Ok(base) = text.parse() {
            return Some(Self::Net { base, bits: width(base) });
        }
        match Host::parse(text).ok()? {
            Host::Domain(name) => Some(Self::Name(name)),
            Host::Ipv4(_) | Host::Ipv6(_) => None,
        }
    }

    fn holds(&self, address: IpAddr) -> bool {
        let Self::Net { base, bits } = self else { return false };
        let prefix = |octets: &[u8]| -> u128 {
            octets
                .iter()
                .fold(0, |sum, octet| sum << 8 | u128::from(*octet))
                .checked_shr(width(*base) - bits)
                .unwrap_or(0)
        };
        match (base, address.to_canonical()) {
            (IpAddr::V4(base), IpAddr::V4(address)) => prefix(&base.octets()) == prefix(&address.octets()),
            (IpAddr::V6(base), IpAddr::V6(address)) => prefix(&base.octets()) == prefix(&address.octets()),
            (IpAddr::V4(_), IpAddr::V6(_)) | (IpAddr::V6(_), IpAddr::V4(_)) => false,
        }
    }
}

const fn width(address: IpAddr) -> u32 {
    match address {
        IpAddr::V4(_) => 32,
        IpAddr::V6(_) => 128,
    }
}

impl AllowDest {
    fn fits_port(&self, port: u16) -> bool {
        self.port.is_none_or(|own| own == port)
    }

    fn lists_host(&self, host: &Host<String>, port: u16) -> bool {
        self.fits_port(port)
            && match host {
                Host::Domain(name) => self.place == Place::Name(name.trim_end_matches('.').to_owned()),
                Host::Ipv4(address) => self.place.holds((*address).into()),
                Host::Ipv6(address) => self.place.holds((*address).into()),
            }
    }

    fn lists_address(&self, address: IpAddr, port: u16) -> bool {
        self.fits_port(port) && self.place.holds(address)
    }
}

/// Which destinations a gateway delivers to.
#[derive(Clone, Debug, Default)]
pub struct Destinations {
    allowed: Arc<[AllowDest]>,
}

/// A destination that an upload may be offered for: the post URL, and its origin.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Dest {
    /// The post URL in its normal form, without a slash at the end.
    pub url: String,
    /// Its origin.
    pub origin: Origin,
}

impl Destinations {
    /// Public addresses over HTTPS, and these.
    pub fn new(allowed: Vec<AllowDest>) -> Self {
        Self { allowed: allowed.into() }
    }

    /// Reads the query parameter `dest`.
    ///
    /// # Errors
    /// `dest-invalid` if it is no URL of a post path, `dest-forbidden` if it may not be delivered to. A name is not
    /// resolved here.
    pub fn check(&self, text: &str) -> Result<Dest, Problem> {
        let invalid = |detail: &str| Problem::new(Code::DestInvalid, detail).field("dest");
        if text.len() > DEST_MAX {
            return Err(invalid(&format!("`dest` is longer than {DEST_MAX} bytes")));
        }
        let url = Url::parse(text).map_err(|error| invalid(&format!("`dest` is not a URL: {error}")))?;
        let origin = Origin::of(&url).map_err(|error| invalid(&error.to_string()))?;
        if !url.username().is_empty() || url.password().is_some() {
            return Err(invalid("`dest` names a user; authority travels inside the seal"));
        }
        if url.fragment().is_some() || url.query().is_some() {
            return Err(invalid("`dest` has a query or a fragment; a post URL has neither"));
        }
        let listed = self.allowed.iter().any(|allowed| allowed.lists_host(origin.host(), origin.port()));
        if !origin.is_https() && !listed {
            return Err(invalid("`dest` must be https; this gateway's operator has not allowed that host without"));
        }
        let literal = match origin.host() {
            Host::Domain(_) => None,
            Host::Ipv4(address) => Some(IpAddr::V4(*address)),
            Host::Ipv6(address) => Some(IpAddr::V6(*address)),
        };
        if let Some(address) = literal.filter(|address| !self.permits(&origin, *address)) {
            let detail = format!("{address} is not a public address, and this gateway's operator has not listed it");
            return Err(Problem::new(Code::DestForbidden, detail).field("dest"));
        }
        Ok(Dest { url: url.as_str().trim_end_matches('/').to_owned(), origin })
    }

    /// Whether a connection for `origin` may go to `address`.
    pub fn permits(&self, origin: &Origin, address: IpAddr) -> bool {
        let port = origin.port();
        let listed =
            |allowed: &AllowDest| allowed.lists_host(origin.host(), port) || allowed.lists_address(address, port);
        is_public(address) || self.allowed.iter().any(listed)
    }

    /// The same, as the connector asks it.
    pub fn guard(&self) -> AddressGuard {
        let destinations = self.clone();
        Arc::new(move |origin, address| destinations.permits(origin, address.ip()))
    }
}

/// Whether an address is one of the public Internet: none of the special-purpose blocks of RFC 6890 and its registries.
pub fn is_public(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => is_public_v4(address),
        IpAddr::V6(address) => is_public_v6(address),
    }
}

fn is_public_v4(address: Ipv4Addr) -> bool {
    let [a, b, c, _] = address.octets();
    !matches!(
        (a, b, c),
        (0 | 10 | 127, _, _)                       // this network, private use, loopback
            | (100, 64..=127, _)                   // shared by carriers (RFC 6598)
            | (169, 254, _)                        // link-local; where clouds keep their credentials
            | (172, 16..=31, _) | (192, 168, _)    // private use (RFC 1918)
            | (192, 0, 0 | 2) | (198, 51, 100) | (203, 0, 113) // protocol assignments, documentation
            | (192, 88, 99)                        // 6to4 relays, withdrawn
            | (198, 18 | 19, _)                    // benchmarks
            | (224..=255, _, _) // multicast, reserved, broadcast
    )
}

fn is_public_v6(address: Ipv6Addr) -> bool {
    let segments = address.segments();
    // Where a version 4 address is wrapped in, that one decides: mapped, NAT64, 6to4.
    let wrapped = |high: u16, low: u16| Ipv4Addr::from(u32::from(high) << 16 | u32::from(low));
    match segments {
        [0, 0, 0, 0, 0, 0xffff, high, low] => is_public_v4(wrapped(high, low)),
        [0x64, 0xff9b, 0, 0, 0, 0, high, low] => is_public_v4(wrapped(high, low)),
        [0x2002, high, low, ..] => is_public_v4(wrapped(high, low)),
        // Protocol assignments with Teredo and ORCHID (2001::/23), documentation (two blocks).
        [0x2001, 0..=0x01ff | 0x0db8, ..] => false,
        [0x3fff, 0..=0x0fff, ..] => false,
        // Only 2000::/3 is assigned as global unicast: so neither loopback, unique-local, link-local nor multicast.
        [first, ..] => first & 0xe000 == 0x2000,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn destinations(allowed: &[&str]) -> Destinations {
        Destinations::new(allowed.iter().map(|text| text.parse().unwrap()).collect())
    }

    fn code(destinations: &Destinations, dest: &str) -> Option<Code> {
        destinations.check(dest).err().map(|problem| problem.code)
    }

    #[test]
    fn only_addresses_of_the_public_internet_are_public() {
        for address in ["1.1.1.1", "8.8.8.8", "100.63.0.1", "100.128.0.1", "172.15.0.1", "172.32.0.1", "192.0.1.1"]
            .into_iter()
            .chain(["193.168.0.1", "223.255.255.255", "198.20.0.1", "2606:4700::1111", "2a00:1450::1", "2001:4860::1"])
            .chain(["::ffff:8.8.8.8", "64:ff9b::8.8.8.8", "2002:808:808::1"])
        {
            assert!(is_public(address.parse().unwrap()), "{address}");
        }
        for address in ["0.0.0.0", "0.1.2.3", "10.0.0.1", "127.0.0.1", "127.255.255.254", "100.64.0.1", "100.127.9.9"]
            .into_iter()
            .chain(["169.254.169.254", "172.16.0.1", "172.31.255.255", "192.168.1.1", "192.0.0.8", "192.0.2.1"])
            .chain(["198.51.100.1", "203.0.113.1", "192.88.99.1", "198.18.0.1", "198.19.255.1", "224.0.0.251"])
            .chain(["239.255.255.250", "240.0.0.1", "255.255.255.255", "::", "::1", "::127.0.0.1", "fe80::1"])
            .chain(["fec0::1", "fc00::1", "fd12:3456::1", "ff02::fb", "2001:db8::1", "2001::1", "2001:10::1"])
            .chain(["3fff::1", "100::1", "::ffff:127.0.0.1", "::ffff:192.168.1.1", "64:ff9b::10.0.0.1"])
            .chain(["64:ff9b:1::1", "2002:7f00:1::1", "2002:c0a8:101::", "4000::1", "5f00::1"])
        {
            assert!(!is_public(address.parse().unwrap()), "{address}");
        }
    }

    #[test]
    fn a_destination_that_is_no_post_url_is_refused_as_invalid() {
        let destinations = destinations(&[]);
        for dest in ["", "photos.example", "/hoop/post", "ftp://photos.example/x", "http://photos.example/hoop/post"]
            .into_iter()
            .chain(["https://u@photos.example/p", "https://:p@photos.example/p", "https://photos.example/p#f"])
            .chain(["https://photos.example/p?q", "https://", "javascript:alert(1)", "https://photos.example:99999/p"])
        {
            assert_eq!(code(&destinations, dest), Some(Code::DestInvalid), "{dest}");
        }
        let long = format!("https://photos.example/{}", "a".repeat(DEST_MAX));
        assert_eq!(code(&destinations, &long), Some(Code::DestInvalid));
    }

    #[test]
    fn a_private_address_literal_is_refused_in_every_spelling() {
        let destinations = destinations(&[]);
        for host in
            ["127.0.0.1", "127.1", "2130706433", "0x7f.1", "0177.0.0.1", "192.168.0.1", "[::1]", "[::ffff:10.0.0.1]"]
                .into_iter()
                .chain(["[fe80::1]", "0", "169.254.169.254", "１27.0.0.1"])
        {
            assert_eq!(code(&destinations, &format!("https://{host}/p")), Some(Code::DestForbidden), "{host}");
        }
        assert_eq!(code(&destinations, "https://1.1.1.1/hoop/post"), None);
    }

    #[test]
    fn what_the_operator_lists_is_allowed_and_no_more() {
        let listed = destinations(&["photos.lan", "127.0.0.1:8443", "10.1.0.0/16", "[fd00::/8]:443", "::1"]);
        for dest in
            ["http://photos.lan/p", "https://PHOTOS.LAN:9/p", "https://127.0.0.1:8443/p", "http://10.1.255.255/p"]
                .into_iter()
                .chain(["https://[fd12::1]/p", "http://[::1]:8000/p", "http://127.0.0.1:8443/p"])
        {
            assert_eq!(code(&listed, dest), None, "{dest}");
        }
        for dest in
            ["https://127.0.0.1/p", "https://10.2.0.1/p", "https://[fd12::1]:8443/p", "https://127.0.0.2:8443/p"]
        {
            assert_eq!(code(&listed, dest), Some(Code::DestForbidden), "{dest}");
        }
        assert_eq!(code(&listed, "http://photos.lan.example/p"), Some(Code::DestInvalid));
    }

    #[test]
    fn a_public_name_that_resolves_to_a_private_address_is_not_connected_to() {
        let listed = destinations(&["photos.lan", "10.0.0.7"]);
        let origin = |text: &str| text.parse::<Origin>().unwrap();
        let private: IpAddr = "192.168.1.1".parse().unwrap();
        assert!(!listed.permits(&origin("https://rebound.example"), private));
        assert!(listed.permits(&origin("https://photos.lan"), private), "a listed name may be anywhere");
        assert!(listed.permits(&origin("https://rebound.example"), "10.0.0.7".parse().unwrap()), "a listed address");
        assert!(listed.permits(&origin("https://rebound.example"), "1.1.1.1".parse().unwrap()));
    }

    #[test]
    fn an_entry_of_the_list_survives_its_text() {
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
