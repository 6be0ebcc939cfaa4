//! Doors to this crate's parsers of foreign bytes, for `hoop-fuzz` alone: nothing here is part of the API.

use crate::ticket::{IssuedTicket, TicketsDocument};
use crate::wire::Link;
use hoop_http::{Connector, Origin, empty};
use hoop_units::RangeSet;
use http::{Method, Request};
use std::net::{IpAddr, SocketAddr};

/// The tickets of an answer, and that answer as the device would keep it.
pub fn tickets(body: &[u8]) -> Option<Result<Vec<IssuedTicket>, String>> {
    serde_json::from_slice::<TicketsDocument>(body).ok().map(|document| document.check())
}

/// One ticket as the device keeps it.
pub fn keep(ticket: &IssuedTicket) -> Vec<u8> {
    serde_json::to_vec(&TicketsDocument::of(ticket)).expect("a ticket has a JSON form")
}

/// The path of the tickets resource that a well-known document names.
pub fn tickets_path(document: &[u8], origin: &Origin) -> Option<String> {
    crate::ticket::tickets_path(document, origin)
}

/// A request as the device sends it to `origin`.
pub fn request(connector: &Connector, origin: &Origin, path: &str) -> Request<hoop_http::Body> {
    Link::new(connector.clone(), origin.clone()).request(Method::GET, path, empty())
}

/// What `Hoop-Missing` says of an upload of `total` bytes.
pub fn lacking(text: &str, total: u64) -> Option<RangeSet> {
    crate::wire::told::lacking(text, total)
}

/// Where a gateway that mDNS names may be, as address and as origin.
pub fn candidate(address: IpAddr, port: u16) -> Option<(SocketAddr, Origin)> {
    let candidate = crate::gateway::discovery::candidate(address, port)?;
    Some((candidate, crate::gateway::place::origin_of(candidate)))
}
