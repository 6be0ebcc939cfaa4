//! Fuzz targets: one function for each parser of foreign bytes, and what must hold of it whatever comes.
//!
//! A [`Target`] takes any bytes, hands them to a parser, and panics if a promise does not hold: what was written is read
//! again, what was altered is refused, two ways to the same answer agree. The driver in `fuzz/` runs a target under libFuzzer; the
//! test `replay` runs each over the corpus in `fuzz/corpus`, without any of that. `docs/fuzzing.md` says how, and what was found.

mod bodies;
mod cache;
mod carrier;
mod client;
mod compact;
mod flow;
mod gateway;
mod head;
mod input;
mod lab;
mod mdns;
mod ranges;
mod service;
mod signed;
mod tickets;

/// A parser, and what must hold of it.
#[derive(Clone, Copy, Debug)]
pub struct Target {
    /// Its name, also that of its corpus.
    pub name: &'static str,
    /// What it reads.
    pub about: &'static str,
    /// Runs it over one input; panics if a promise does not hold.
    pub run: fn(&[u8]),
}

/// Every target.
pub const TARGETS: [Target; 24] = [
    Target { name: "tickets", about: "tickets, their labels, tokens, sealed answers", run: tickets::tickets },
    Target { name: "signed", about: "permits, receipts, gateways' proofs", run: signed::signed },
    Target { name: "keyring", about: "a service's key file", run: tickets::keyring },
    Target { name: "prelude", about: "preludes, and the layout of what follows them", run: bodies::prelude },
    Target { name: "bodies", about: "sealed records, one by one and as a stream", run: bodies::bodies },
    Target {
        name: "ranges",
        about: "ranges in headers and in the spool's index, and sets of them",
        run: ranges::ranges,
    },
    Target { name: "head", about: "the request inside the seal", run: head::head },
    Target {
        name: "admission",
        about: "a message to a service: headers, and record 0 with its token",
        run: head::admission,
    },
    Target { name: "offload", about: "a request to a gateway, up to what it announces", run: gateway::offload },
    Target { name: "dest", about: "the address that a gateway is to deliver to", run: gateway::dest },
    Target {
        name: "well_known",
        about: "well-known documents, as gateway and device read them",
        run: gateway::well_known_document,
    },
    Target {
        name: "answers",
        about: "a service's answers, as a gateway and a device read them",
        run: gateway::answers,
    },
    Target { name: "statuses", about: "status documents with sealed answers, and problems", run: client::statuses },
    Target {
        name: "issued",
        about: "requests for tickets, and the tickets as the device gets them",
        run: client::issued,
    },
    Target { name: "pages", about: "notes, settings, actions and forms of a service's pages", run: service::pages },
    Target {
        name: "front",
        about: "a request's headers at a service: who asks, from where, for what",
        run: service::front,
    },
    Target { name: "routes", about: "the routes file, and what its rules make of an answer", run: service::routes },
    Target { name: "upstream", about: "an application's answer on the wire", run: service::upstream },
    Target { name: "mdns", about: "mDNS packets, and the addresses that come of them", run: mdns::mdns },
    Target {
        name: "websocket",
        about: "a WebSocket's frames, and the messages of lanes in them",
        run: carrier::websocket,
    },
    Target { name: "flow", about: "frames of flows, and what both ends make of them", run: flow::flow },
    Target {
        name: "compact_head",
        about: "compact heads of requests and responses, and their lengths",
        run: compact::compact_head,
    },
    Target {
        name: "cache",
        about: "records of a relay's cache, and what an answer is kept as, and for whom",
        run: cache::cache,
    },
    Target { name: "lab", about: "a lab's description, its quantities and its traces", run: lab::lab },
];

/// The target of that name.
pub fn by_name(name: &str) -> Option<Target> {
    TARGETS.into_iter().find(|target| target.name == name)
}
