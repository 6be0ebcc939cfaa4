//! Names of hosts: one spelling ([`name_of`]), and which mean something on a local network only ([`is_local`]).

use url::Host;

/// Domains that exist on a LAN only: reserved (RFC 6761, 6762, 8375), kept free by ICANN (`internal`), or a router's own.
const LOCAL_DOMAINS: [&str; 8] =
    ["local", "localhost", "lan", "home", "internal", "home.arpa", "localdomain", "fritz.box"];

/// A name in lower case and ASCII, without a dot at the end; none for an address.
pub fn name_of(host: &Host) -> Option<String> {
    match host {
        Host::Domain(name) => Some(name.strip_suffix('.').unwrap_or(name).to_owned()),
        Host::Ipv4(_) | Host::Ipv6(_) => None,
    }
}

/// Whether a name of several labels means something on a LAN only.
pub fn is_local(name: &str) -> bool {
    LOCAL_DOMAINS.iter().any(|domain| name.strip_suffix(domain).is_some_and(|rest| rest.ends_with('.')))
}
