//! What comes by multicast: packets, as the library that we use parses them, and the addresses that a device makes of them.

use crate::input::Input;
use hoop_client::fuzzing::candidate;
use std::net::{IpAddr, Ipv6Addr};
use url::Host;

pub fn mdns(octets: &[u8]) {
    let mut input = Input::new(octets);
    match input.octet() {
        0 => found(IpAddr::V4(input.word().into()), input.short()),
        1 => found(IpAddr::V6(input.array::<16>().into()), input.short()),
        _ => mdns_sd::fuzz_api::parse_packet(input.rest()),
    }
}

/// An address that a packet names is either left alone or makes an origin of just that address and port.
fn found(address: IpAddr, port: u16) {
    let link_local = matches!(address, IpAddr::V6(address) if Ipv6Addr::is_unicast_link_local(&address));
    let Some((candidate, origin)) = candidate(address, port) else {
        assert!(link_local);
        return;
    };
    assert!(!link_local && !origin.is_https());
    assert_eq!((candidate.ip(), candidate.port(), origin.port()), (address, port, port));
    let named: IpAddr = match origin.host() {
        Host::Ipv4(address) => (*address).into(),
        Host::Ipv6(address) => (*address).into(),
        Host::Domain(name) => panic!("{name} is no address"),
    };
    assert_eq!(named, address);
}
