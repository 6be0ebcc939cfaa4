//! What comes by multicast: packets, as the library that we use parses them, and the addresses that a device makes of them.

use crate::input::Input;
use hoop_client::fuzzing::candidate;
use std::net::{IpAddr, Ipv6Addr};
use url::Host;

pub fn mdns(bytes: &[u8]) {
    let mut input = Input::new(bytes);
    match input.byte() {
        0 => found(IpAddr::V4(input.word().into()), input.short()),
        1 => found(IpAddr::V6(input.array::<16>().into()), input.short()),
        _ => packet(input.rest()),
    }
}

/// A packet. The library's own check of what it has parsed counts the questions of a type that it does not know, which its parser passes over; so
/// packets with questions are left to it only where there is one, of a type that it knows.
fn packet(bytes: &[u8]) {
    const KNOWN: [u8; 11] = [1, 5, 12, 13, 16, 28, 33, 47, 64, 65, 255];
    let questions = bytes.get(4..6).unwrap_or(&[0, 0]);
    let is_known = name_end(bytes, 12)
        .is_some_and(|end| matches!(bytes.get(end..end + 2), Some([0, kind]) if KNOWN.contains(kind)));
    if questions == [0, 0] || (questions == [0, 1] && is_known) {
        mdns_sd::fuzz_api::parse_packet(bytes);
    }
}

/// Behind the name at `at`, if it is one without a pointer (RFC 1035 §3.1).
fn name_end(bytes: &[u8], mut at: usize) -> Option<usize> {
    loop {
        match bytes.get(at)? {
            0 => return Some(at + 1),
            len @ 1..64 => at += 1 + usize::from(*len),
            _ => return None,
        }
    }
}

/// An address that a packet names is either left alone or makes an origin of just that address and port.
fn found(address: IpAddr, port: u16) {
    let address = address.to_canonical();
    let link_local = matches!(address, IpAddr::V6(address) if Ipv6Addr::is_unicast_link_local(&address));
    let broadcast = matches!(address, IpAddr::V4(address) if address.is_broadcast());
    let no_gateways =
        link_local || broadcast || address.is_loopback() || address.is_multicast() || address.is_unspecified();
    let Some((candidate, origin)) = candidate(address, port) else {
        assert!(no_gateways);
        return;
    };
    assert!(!no_gateways && !origin.is_https());
    assert_eq!((candidate.ip(), candidate.port(), origin.port()), (address, port, port));
    let named: IpAddr = match origin.host() {
        Host::Ipv4(address) => (*address).into(),
        Host::Ipv6(address) => (*address).into(),
        Host::Domain(name) => panic!("{name} is no address"),
    };
    assert_eq!(named, address);
}
