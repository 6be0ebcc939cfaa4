//! Where a gateway may deliver to: [`Destinations`].
//!
//! A gateway stands in a home, and whoever is on its LAN names the address that it connects to. So it delivers over
//! HTTPS, to public addresses other than its own and its neighbours', and to nothing else unless its operator lists it. The check has two places: when an
//! upload is offered (scheme, form, port, address literals, names that mean something local), and at every connection, for the very
//! address that is then used (names that resolve to a private address, or change their mind). `tests/destinations.txt` has what comes of it.

use super::address::here;
use crate::core::allow_dest::AllowDest;
use crate::core::host_names::{is_local, name_of};
use hoop_http::{AddressGuard, Code, Origin, Problem};
use hoop_units::{Here, is_public};
use std::fmt;
use std::io;
use std::net::IpAddr;
use std::sync::Arc;
use url::{Host, Url};

/// The longest `dest` that is taken: twice what a service's post URL will ever need.
pub const DEST_MAX: usize = 1024;

/// Below this a port belongs to another protocol (RFC 6335 §6), which a gateway must not be made to talk to; but for that of HTTPS.
const PORT_MIN: u16 = 1024;
const PORT_HTTPS: u16 = 443;

/// Asks where this machine is, anew each time.
type Whereabouts = Arc<dyn Fn() -> io::Result<Here> + Send + Sync>;

/// Which destinations a gateway delivers to.
#[derive(Clone)]
pub struct Destinations {
    allowed: Arc<[AllowDest]>,
    /// By what this gateway is called, without a dot at the end.
    own_names: Arc<[String]>,
    whereabouts: Whereabouts,
}

impl fmt::Debug for Destinations {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Destinations").field("allowed", &self.allowed).finish_non_exhaustive()
    }
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
    /// Public addresses over HTTPS, and these; but not this gateway, which is called so, nor its neighbours.
    pub fn new(allowed: Vec<AllowDest>, own: &[&str]) -> Self {
        let own_names = own.iter().filter_map(|name| name_of(&Host::parse(name).ok()?)).collect();
        let fixed: Vec<IpAddr> = own.iter().filter_map(|host| host.trim_matches(['[', ']']).parse().ok()).collect();
        let whereabouts = Arc::new(move || Ok(here()?.known_as(&fixed)));
        Self { allowed: allowed.into(), own_names, whereabouts }
    }

    /// Those of a machine that is there.
    #[cfg(test)]
    fn on(self, here: Here) -> Self {
        Self { whereabouts: Arc::new(move || Ok(here.clone())), ..self }
    }

    /// Reads the query parameter `dest`.
    ///
    /// # Errors
    /// `dest-invalid` if it is no URL of a post path, `dest-forbidden` if it may not be delivered to. A name is not
    /// resolved here.
    pub fn check(&self, text: &str) -> Result<Dest, Problem> {
        let invalid = |detail: &str| Problem::new(Code::DestInvalid, detail).field("dest");
        let too_long = || invalid(&format!("`dest` is longer than {DEST_MAX} bytes"));
        if text.len() > DEST_MAX {
            return Err(too_long());
        }
        let url = Url::parse(text).map_err(|error| invalid(&format!("`dest` is not a URL: {error}")))?;
        // The one spelling that is kept may be longer than what was sent: a name of another script, as ASCII.
        if url.as_str().len() > DEST_MAX {
            return Err(too_long());
        }
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
        if !listed && origin.port() < PORT_MIN && origin.port() != PORT_HTTPS {
            let detail = format!("port {} belongs to another protocol than HTTPS", origin.port());
            return Err(Problem::new(Code::DestForbidden, detail).field("dest"));
        }
        if let Some(why) = name_of(origin.host()).filter(|_| !listed).and_then(|name| self.refuses_name(&name)) {
            return Err(Problem::new(Code::DestForbidden, why).field("dest"));
        }
        let literal = match origin.host() {
            Host::Domain(_) => None,
            Host::Ipv4(address) => Some(IpAddr::V4(*address)),
            Host::Ipv6(address) => Some(IpAddr::V6(*address)),
        };
        if let Some(address) = literal.filter(|address| !self.permits(&origin, *address)) {
            let detail = match is_public(address) {
                true => format!(
                    "{address} is this gateway's own address or in its network, and its operator has not listed it"
                ),
                false => format!("{address} is not a public address, and this gateway's operator has not listed it"),
            };
            return Err(Problem::new(Code::DestForbidden, detail).field("dest"));
        }
        Ok(Dest { url: url.as_str().trim_end_matches('/').to_owned(), origin })
    }

    /// Whether a connection for `origin` may go to `address`.
    pub fn permits(&self, origin: &Origin, address: IpAddr) -> bool {
        let port = origin.port();
        let listed =
            |allowed: &AllowDest| allowed.lists_host(origin.host(), port) || allowed.lists_address(address, port);
        self.allowed.iter().any(listed) || (is_public(address) && !self.is_near(address))
    }

    /// Why a name is refused although nobody has looked it up: it is this gateway's own, or means something on a LAN only. Where the
    /// operator lists addresses, those under local names are judged by their addresses.
    fn refuses_name(&self, name: &str) -> Option<&'static str> {
        let lists_addresses = self.allowed.iter().any(AllowDest::is_of_addresses);
        if self.own_names.iter().any(|own| own == name) {
            return Some("that is this gateway");
        }
        let local = !name.contains('.') || is_local(name);
        (local && !lists_addresses).then_some(
            "that name means something on a local network only, and this gateway's operator has not listed it",
        )
    }

    /// Whether a connection to `address` would end at this machine, where its own pages and its owner's are, or at a neighbour of it. If it
    /// cannot be known, it does.
    fn is_near(&self, address: IpAddr) -> bool {
        match (self.whereabouts)() {
            Ok(here) => here.is_near(address),
            Err(error) => {
                tracing::error!(%error, "cannot tell this machine's own addresses; nothing is connected to");
                true
            }
        }
    }

    /// The same, as the connector asks it.
    pub fn guard(&self) -> AddressGuard {
        let destinations = self.clone();
        Arc::new(move |origin, address| destinations.permits(origin, address.ip()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use hoop_http::{ConnectError, Connector, tls};
    use parking_lot::Mutex;
    use std::collections::BTreeMap;

    fn destinations(allowed: &[&str]) -> Destinations {
        Destinations::new(allowed.iter().map(|text| text.parse().unwrap()).collect(), &[])
    }

    fn code(destinations: &Destinations, dest: &str) -> Option<Code> {
        destinations.check(dest).err().map(|problem| problem.code)
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

    const TABLE: &str = include_str!("../../tests/destinations.txt");

    /// What comes of an upload for `dest`: why it is refused at once, or the addresses that the connector may use of those that the name has.
    async fn outcome(destinations: &Destinations, dest: &str, has: &str) -> String {
        let dest = match destinations.check(dest) {
            Ok(dest) => dest,
            Err(problem) => return problem.code.name().trim_start_matches("dest-").to_owned(),
        };
        let mut by_hand = BTreeMap::new();
        if let Host::Domain(name) = dest.origin.host() {
            assert_ne!(has, "-", "nothing is looked up here: {name}");
            let addresses = has.split(',').map(|address| address.parse().unwrap()).collect();
            by_hand.insert((name.clone(), dest.origin.port()), addresses);
        }
        // The true connector and the true guard; but that nothing is connected to in the end.
        let (guard, seen) = (destinations.guard(), Arc::new(Mutex::new(Vec::new())));
        let recorded = seen.clone();
        let connector = Connector::new(tls::client_config(&[]).unwrap()).with_addresses(by_hand).guarded(Arc::new(
            move |origin, address| {
                if guard(origin, address) {
                    recorded.lock().push(address.ip().to_string());
                }
                false
            },
        ));
        let failed = connector.connect(&dest.origin).await.expect_err("nothing is permitted in the end");
        assert!(matches!(failed, ConnectError::Forbidden { .. }), "{failed}");
        let usable = seen.lock().join(",");
        if usable.is_empty() { "none".to_owned() } else { usable }
    }

    #[tokio::test]
    async fn every_destination_of_the_table_is_let_in_or_refused_as_it_says() {
        let (mut allowed, mut own, mut machine) = (Vec::new(), Vec::new(), Here::default());
        let (mut tried, mut wrong) = (0, Vec::new());
        for line in TABLE.lines().filter(|line| !line.is_empty() && !line.starts_with('#')) {
            let words: Vec<&str> = line.split_whitespace().collect();
            match words[..] {
                ["operator", ref listed @ ..] => allowed = listed.iter().map(|text| text.parse().unwrap()).collect(),
                ["own", ref names @ ..] => own = names.to_vec(),
                ["machine", ref interfaces @ ..] => {
                    let interface = |text: &&str| {
                        let (ip, bits) = text.split_once('/').unwrap();
                        (ip.parse::<IpAddr>().unwrap(), bits.parse::<u32>().unwrap())
                    };
                    machine = Here::of(interfaces.iter().map(interface));
                }
                [dest, has, expected] => {
                    let own_too: Vec<IpAddr> = own.iter().filter_map(|name| name.parse().ok()).collect();
                    let destinations = Destinations::new(allowed.clone(), &own).on(machine.clone().known_as(&own_too));
                    let is_url = dest.contains(['/', '\\']) || dest.contains("script:") || dest.contains("data:");
                    let dest = if is_url { dest.to_owned() } else { format!("https://{dest}/hoop/post") };
                    let came = outcome(&destinations, &dest, has).await;
                    tried += 1;
                    if came != expected {
                        wrong.push(format!("{dest} ({has}): {came}, not {expected}"));
                    }
                }
                _ => panic!("no line of the table: {line}"),
            }
        }
        assert!(wrong.is_empty(), "{}", wrong.join("\n"));
        assert!(tried >= 200, "{tried}");
    }

    #[test]
    fn without_its_own_addresses_a_gateway_connects_to_listed_ones_alone() {
        let destinations =
            Destinations { whereabouts: Arc::new(|| Err(io::ErrorKind::Other.into())), ..destinations(&["10.0.0.7"]) };
        let origin = "https://photos.example".parse().unwrap();
        assert!(!destinations.permits(&origin, "1.1.1.1".parse().unwrap()));
        assert!(destinations.permits(&origin, "10.0.0.7".parse().unwrap()), "what is listed is the operator's word");
    }
}
