//! The client behind the web servers in front: [`Client`].
//!
//! Forwarding fields are believed only if the peer is a trusted proxy. The client is then the right-most address that
//! is no trusted proxy's. Its sender may have made up what stands left of it.

use hoop_http::{Origin, Peer};
use hoop_units::{Forwarded, Prefix};
use http::HeaderMap;
use std::net::IpAddr;

/// Where a request came from, as far as it can be believed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Client {
    /// Whether the peer's forwarding fields are believed.
    pub trusted: bool,
    /// The address of the client.
    pub address: IpAddr,
    /// What `X-Forwarded-For` is to say to the application.
    pub chain: String,
    /// `https` or `http`.
    pub proto: String,
    /// The host that the client asked for.
    pub host: String,
}

impl Client {
    /// Reads the forwarding fields if the peer is one of `trusted`. Otherwise only its own address counts.
    pub fn of(peer: &Peer, headers: &HeaderMap, trusted: &[Prefix], origin: &Origin) -> Self {
        let peer_address = peer.address.ip().to_canonical();
        let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok()).map(str::to_owned);
        let own_host = text("host").unwrap_or_else(|| origin.authority().to_owned());
        // Without TLS of our own, somebody in front has it, if the origin has: configured as trusted or not.
        let own_proto = if peer.tls { "https" } else { origin.as_str().split(':').next().unwrap_or("http") };
        if !is_trusted(trusted, peer_address) {
            let chain = peer_address.to_string();
            return Self { trusted: false, address: peer_address, chain, proto: own_proto.to_owned(), host: own_host };
        }
        let lines = |name: &str| headers.get_all(name).into_iter().map(http::HeaderValue::as_bytes);
        let named = Forwarded::new(lines("x-forwarded-for"), lines("forwarded"));
        let chain = named.chain.iter().cloned().chain([peer_address.to_string()]).collect::<Vec<_>>().join(", ");
        Self {
            trusted: true,
            address: named.client(trusted).unwrap_or(peer_address),
            chain,
            proto: text("x-forwarded-proto").unwrap_or_else(|| own_proto.to_owned()),
            host: text("x-forwarded-host").unwrap_or(own_host),
        }
    }
}

fn is_trusted(trusted: &[Prefix], address: IpAddr) -> bool {
    trusted.iter().any(|prefix| prefix.contains(address))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn client(fields: &[(&'static str, &str)], trusted: &[&str]) -> Client {
        let peer = Peer { address: ([127, 0, 0, 1], 9).into(), local: ([127, 0, 0, 1], 80).into(), tls: false };
        let mut headers = HeaderMap::new();
        headers.insert("x-forwarded-proto", "gopher".parse().unwrap());
        for (name, value) in fields {
            headers.append(*name, value.parse().unwrap());
        }
        let trusted: Vec<_> = trusted.iter().map(|text| text.parse().unwrap()).collect();
        Client::of(&peer, &headers, &trusted, &"https://photos.example".parse().unwrap())
    }

    #[test]
    fn only_a_trusted_proxy_is_believed() {
        for fields in [[("x-forwarded-for", "192.0.2.1")], [("forwarded", "for=192.0.2.1")]] {
            let believed = client(&fields, &["10.0.0.0/8"]);
            assert_eq!((believed.address.to_string().as_str(), believed.chain.as_str()), ("127.0.0.1", "127.0.0.1"));
            assert_eq!((believed.proto.as_str(), believed.host.as_str()), ("https", "photos.example"));
        }
    }

    #[test]
    fn the_client_is_the_last_address_that_is_not_one_of_our_servers() {
        let trusted = ["127.0.0.1", "10.0.0.0/24", "fd00::/8"];
        let of = |forwarded: &str| client(&[("x-forwarded-for", forwarded)], &trusted).address.to_string();
        assert_eq!(of("198.51.100.7, 192.0.2.1, 10.0.0.1"), "192.0.2.1", "the first one may be made up");
        assert_eq!(of("198.51.100.7, fd00::7, 10.0.0.9"), "198.51.100.7");
        assert_eq!(of("192.0.2.1:4711, 10.0.0.1"), "192.0.2.1");
        assert_eq!(of("[2001:db8::1]:4711"), "2001:db8::1");
        assert_eq!(of("::ffff:192.0.2.1"), "192.0.2.1");
        assert_eq!(of("192.0.2.1, not an address"), "127.0.0.1", "what stands left of it may be made up");
        assert_eq!(client(&[("x-forwarded-for", "192.0.2.1")], &trusted).chain, "192.0.2.1, 127.0.0.1");
        let lines = client(&[("x-forwarded-for", "198.51.100.7"), ("x-forwarded-for", "192.0.2.1")], &trusted);
        assert_eq!(lines.address.to_string(), "192.0.2.1", "two lines are one list");
    }

    #[test]
    fn forwarded_is_read_as_rfc_7239_writes_it() {
        let of = |forwarded: &str| client(&[("forwarded", forwarded)], &["127.0.0.1", "10.0.0.0/8"]);
        assert_eq!(of("for=192.0.2.43").address.to_string(), "192.0.2.43");
        let long = of(r#"for=198.51.100.7, For="[2001:db8:cafe::17]:4711";proto=https;by=10.0.0.1, for=10.0.0.1"#);
        assert_eq!(long.address.to_string(), "2001:db8:cafe::17");
        assert_eq!(long.chain, "198.51.100.7, [2001:db8:cafe::17]:4711, 10.0.0.1, 127.0.0.1");
        assert_eq!(of(r#"for=192.0.2.1;by="a,for=198.51.100.7""#).address.to_string(), "192.0.2.1");
        // A quotation that a client leaves open must not swallow what the proxy adds, in the same line or the next.
        for open in [r#"for=192.0.2.7;x=", for=198.51.100.66"#, r#"for=192.0.2.7;x="\", for=198.51.100.66"#] {
            assert_eq!(of(open).address.to_string(), "127.0.0.1", "{open}");
        }
        let two = [("forwarded", r#"for=192.0.2.7;x=""#), ("forwarded", "for=198.51.100.66")];
        assert_eq!(client(&two, &["127.0.0.1"]).address.to_string(), "198.51.100.66");
        for none in ["for=_hidden", "for=unknown", "by=192.0.2.1", "", r#"for=192.0.2.1, for=""#] {
            assert_eq!(of(none).address.to_string(), "127.0.0.1", "{none}");
        }
    }

    #[test]
    fn a_chain_passes_on_its_last_32_names_and_never_more_than_came() {
        for (field, element, client_name) in [
            ("x-forwarded-for", "a b,", "192.0.2.1"),
            ("x-forwarded-for", ",", "192.0.2.1"),
            ("forwarded", "for=\"a b\",", "for=192.0.2.1"),
        ] {
            let long = format!("{}{client_name}", element.repeat(10_000));
            let named = client(&[(field, &long)], &["127.0.0.1"]);
            assert_eq!(named.address.to_string(), "192.0.2.1");
            assert_eq!(named.chain.split(',').count(), hoop_units::FORWARDED_MAX + 1, "{field}");
            assert!(named.chain.len() < 400, "{field}");
        }
    }

    #[test]
    fn no_field_of_a_clients_own_makes_its_address_the_proxys() {
        let of = |one: &str, other: &str| {
            client(&[("x-forwarded-for", one), ("forwarded", other)], &["127.0.0.1"]).address.to_string()
        };
        for other in ["for=192.0.2.1", "for=198.51.100.7", "proto=https", "for=127.0.0.1", ""] {
            assert_eq!(of("192.0.2.1", other), "192.0.2.1", "{other}");
        }
        let peer = Peer { address: ([127, 0, 0, 1], 9).into(), local: ([127, 0, 0, 1], 80).into(), tls: false };
        let mut headers = HeaderMap::new();
        headers.insert("x-forwarded-for", http::HeaderValue::from_bytes(b"\xe9 x, 192.0.2.1").unwrap());
        let trusted = ["127.0.0.1".parse().unwrap()];
        let named = Client::of(&peer, &headers, &trusted, &"https://photos.example".parse().unwrap());
        assert_eq!(
            (named.address.to_string().as_str(), named.chain.as_str()),
            ("192.0.2.1", "unknown, 192.0.2.1, 127.0.0.1")
        );
    }
}
