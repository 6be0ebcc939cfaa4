//! By which names a gateway may be called: [`Hosts`].
//!
//! A page can point its own name at a gateway's address (DNS rebinding), and is then of the gateway's own origin as far as
//! its browser can tell. What gives it away is the name, which still stands in `Host`. So only such names count that no
//! stranger can register.

use crate::core::host_names::{is_local, name_of};
use hoop_http::{Code, Problem};
use http::{HeaderMap, header};
use std::net::{IpAddr, SocketAddr};
use url::{Host, Url};

/// The names besides addresses and local ones.
#[derive(Clone, Debug, Default)]
pub struct Hosts {
    /// In lower case and ASCII, without a dot at the end.
    names: Vec<String>,
    /// Addresses at which others reach it, where they are not its own: a router in front passes them on.
    addresses: Vec<IpAddr>,
}

impl Hosts {
    /// What the operator lists, and the name of the public URL. What is no name is never matched.
    pub fn new(listed: &[String], public_url: Option<&Url>) -> Self {
        let public = public_url.and_then(Url::host_str);
        let listed = listed.iter().map(String::as_str).chain(public);
        let hosts: Vec<Host> = listed.filter_map(|name| Host::parse(name).ok()).collect();
        let (names, addresses) = (hosts.iter().filter_map(name_of), hosts.iter().filter_map(address_of));
        Self { names: names.collect(), addresses: addresses.collect() }
    }

    /// Whether `place` is this gateway's own: its address on a connection that came to `local`, or a name or an address that its operator
    /// listed. A name that nobody listed may be anybody's.
    pub fn is_own(&self, place: &Url, local: SocketAddr) -> bool {
        let Some(host) = place.host().map(|host| host.to_owned()) else { return false };
        match (name_of(&host), address_of(&host)) {
            (Some(name), _) => self.names.contains(&name),
            (None, Some(address)) => {
                let here = SocketAddr::new(local.ip().to_canonical(), local.port());
                let asked = place.port_or_known_default().map(|port| SocketAddr::new(address, port));
                asked == Some(here) || self.addresses.contains(&address)
            }
            (None, None) => false,
        }
    }

    /// Checks `Host`. A request without one (HTTP/1.0) is no browser's.
    ///
    /// # Errors
    /// `host-forbidden` if a stranger could have registered the name, or if it is none.
    pub fn check(&self, headers: &HeaderMap) -> Result<(), Problem> {
        if !headers.contains_key(header::HOST) {
            return Ok(());
        }
        let known = authority(headers).is_some_and(|url| self.holds(&url));
        match known {
            true => Ok(()),
            false => {
                let detail =
                    "reach this gateway by its address or a local name, or let its operator list the name (--host)";
                Err(Problem::new(Code::HostForbidden, detail).field("Host"))
            }
        }
    }

    fn holds(&self, url: &Url) -> bool {
        let Some(host) = url.host() else { return false };
        // Anything but a name is an address.
        let Some(name) = name_of(&host.to_owned()) else { return true };
        !name.contains('.') || is_local(&name) || self.names.contains(&name)
    }
}

/// Where the request went, by its one `Host`, as a URL.
pub fn authority(headers: &HeaderMap) -> Option<Url> {
    let mut hosts = headers.get_all(header::HOST).iter();
    let (Some(host), None) = (hosts.next(), hosts.next()) else { return None };
    let host = host.to_str().ok()?;
    // What ends an authority, or puts a user before it, belongs to no host.
    let bare = !host.is_empty() && !host.contains(['/', '\\', '?', '#', '@']) && !host.contains(char::is_whitespace);
    bare.then(|| Url::parse(&format!("http://{host}")).ok()).flatten()
}

/// An address, as IPv4 where it is that.
fn address_of(host: &Host) -> Option<IpAddr> {
    match host {
        Host::Domain(_) => None,
        Host::Ipv4(address) => Some((*address).into()),
        Host::Ipv6(address) => Some(IpAddr::from(*address).to_canonical()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(hosts: &[&str]) -> HeaderMap {
        hosts.iter().map(|host| (header::HOST, host.parse().unwrap())).collect()
    }

    #[test]
    fn a_name_that_a_stranger_could_have_registered_is_refused() {
        let public = Url::parse("https://box.family.example:8443/").unwrap();
        let hosts = Hosts::new(&["Hoop.Example.org".to_owned(), "not a name".to_owned()], Some(&public));
        for host in
            ["192.168.1.1", "192.168.1.1:4667", "[fe80::1]:4667", "[::1]", "8.8.8.8", "127.1", "localhost", "HOOP:4667"]
                .into_iter()
                .chain([
                    "hoop.local",
                    "Hoop.Local:4667",
                    "hoop.local.",
                    "a.b.lan",
                    "hoop.home",
                    "x.internal",
                    "hoop.home.arpa",
                ])
                .chain([
                    "router.localdomain",
                    "hoop.fritz.box",
                    "app.localhost:80",
                    "hoop.example.org",
                    "HOOP.example.ORG.:1",
                ])
                .chain(["box.family.example", "box.family.example:4667"])
        {
            assert!(hosts.check(&headers(&[host])).is_ok(), "{host}");
        }
        for host in
            ["evil.example", "hoop.local.evil.example", "evillocal.example", "fritz.box.example", "notfritz.box"]
                .into_iter()
                .chain(["arpa.home.example", "example.org", "x.hoop.example.org", "family.example", "hoop.local.."])
                .chain([
                    "",
                    "/",
                    "evil.example/.local",
                    "evil.example#.local",
                    "hoop.local@evil.example",
                    "a b.local",
                    "?.local",
                ])
                .chain(["evil.example\\.local", "[::1", "hoop.local:x", "hoop.local:99999"])
        {
            let problem = hosts.check(&headers(&[host])).expect_err(host);
            assert_eq!((problem.code, problem.field.as_deref()), (Code::HostForbidden, Some("Host")), "{host}");
        }
        assert!(hosts.check(&headers(&["hoop.local", "evil.example"])).is_err(), "twice");
        assert!(hosts.check(&HeaderMap::new()).is_ok(), "HTTP/1.0");
    }

    #[test]
    fn a_place_is_its_own_by_the_connections_address_or_if_it_is_listed() {
        let public = Url::parse("https://box.family.example/").unwrap();
        let hosts = Hosts::new(&["hoop.example.org".to_owned(), "203.0.113.5".to_owned()], Some(&public));
        let own = |authority: &str, local: &str| {
            hosts.is_own(&Url::parse(&format!("http://{authority}")).unwrap(), local.parse().unwrap())
        };
        let local = "192.168.1.1:4667";
        for (authority, local) in [
            ("192.168.1.1:4667", local),
            ("192.168.1.1:4667", "[::ffff:192.168.1.1]:4667"),
            ("[2001:db8::1]:4667", "[2001:db8::1]:4667"),
            ("192.168.1.1", "192.168.1.1:80"),
            ("hoop.example.org:4667", local),
            ("HOOP.example.org.", local),
            ("box.family.example", local),
            ("203.0.113.5:14667", local),
        ] {
            assert!(own(authority, local), "{authority} at {local}");
        }
        for (authority, local) in [
            ("192.168.1.9:4667", local),
            ("192.168.1.1:4668", local),
            ("192.168.1.1", local),
            ("hoop.local:4667", local),
            ("localhost:4667", "127.0.0.1:4667"),
            ("x.hoop.example.org", local),
        ] {
            assert!(!own(authority, local), "{authority} at {local}");
        }
    }
}
