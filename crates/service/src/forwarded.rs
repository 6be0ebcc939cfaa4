//! Who asks, seen past the web servers in front of us: [`Client`].

use hoop_http::{Origin, Peer};
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
    /// Reads the forwarding fields if the peer is one of `trusted`; otherwise its own address is all that counts.
    pub fn of(peer: &Peer, headers: &HeaderMap, trusted: &[IpAddr], origin: &Origin) -> Self {
        let peer_address = peer.address.ip().to_canonical();
        let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok()).map(str::to_owned);
        let own_host = text("host").unwrap_or_else(|| origin.authority().to_owned());
        // Without TLS of our own, somebody in front has it, if the origin has: configured as trusted or not.
        let own_proto = if peer.tls { "https" } else { origin.as_str().split(':').next().unwrap_or("http") };
        if !trusted.contains(&peer_address) {
            let chain = peer_address.to_string();
            return Self { trusted: false, address: peer_address, chain, proto: own_proto.to_owned(), host: own_host };
        }
        let before: Vec<&str> = headers
            .get_all("x-forwarded-for")
            .iter()
            .filter_map(|value| value.to_str().ok())
            .flat_map(|value| value.split(','))
            .map(str::trim)
            .collect();
        // From the right: what our own servers wrote comes last; the first address that is not theirs is the client's.
        let parsed = before.iter().rev().map_while(|text| text.parse::<IpAddr>().ok());
        let address = parsed.map(|address| address.to_canonical()).find(|address| !trusted.contains(address));
        let chain =
            before.into_iter().map(str::to_owned).chain([peer_address.to_string()]).collect::<Vec<_>>().join(", ");
        Self {
            trusted: true,
            address: address.unwrap_or(peer_address),
            chain,
            proto: text("x-forwarded-proto").unwrap_or_else(|| own_proto.to_owned()),
            host: text("x-forwarded-host").unwrap_or(own_host),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn client(forwarded: &str, trusted: &[&str]) -> Client {
        let peer = Peer { address: ([127, 0, 0, 1], 9).into(), local: ([127, 0, 0, 1], 80).into(), tls: false };
        let mut headers = HeaderMap::new();
        headers.insert("x-forwarded-for", forwarded.parse().unwrap());
        headers.insert("x-forwarded-proto", "gopher".parse().unwrap());
        let trusted: Vec<_> = trusted.iter().map(|text| text.parse().unwrap()).collect();
        Client::of(&peer, &headers, &trusted, &"https://photos.example".parse().unwrap())
    }

    #[test]
    fn only_a_trusted_proxy_is_believed() {
        let believed = client("192.0.2.1", &[]);
        assert_eq!((believed.address.to_string().as_str(), believed.chain.as_str()), ("127.0.0.1", "127.0.0.1"));
        assert_eq!((believed.proto.as_str(), believed.host.as_str()), ("https", "photos.example"));
    }

    #[test]
    fn the_client_is_the_last_address_that_is_not_one_of_our_servers() {
        let trusted = ["127.0.0.1", "10.0.0.1"];
        let of = |forwarded: &str| client(forwarded, &trusted).address.to_string();
        assert_eq!(of("198.51.100.7, 192.0.2.1, 10.0.0.1"), "192.0.2.1", "the first one may be made up");
        assert_eq!(of("not an address"), "127.0.0.1");
        assert_eq!(client("192.0.2.1", &trusted).chain, "192.0.2.1, 127.0.0.1");
    }
}
