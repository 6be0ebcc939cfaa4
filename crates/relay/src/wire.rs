//! How a device names a connection to its relay, and which ports it is not taken to.

use crate::upload::JournalId;
use hoop_endpoint::FlowId;

/// What a service's name begins with when it is a TCP connection's destination: `tcp:HOST:PORT`.
pub const TCP: &str = "tcp:";

/// As [`TCP`], for a device that waits for the result: `connect:HOST:PORT`. On success, the relay's stream begins with [`MADE`]. On failure, the flow ends with a code that says why,
/// as the answer to CONNECT does (RFC 9110 §9.3.6).
pub const CONNECT: &str = "connect:";

/// The first byte of a flow that waits for its connection: it is made.
pub const MADE: u8 = 0;

/// The service of a flow that is one HTTP exchange (`docs/edge.md`).
pub const HTTP: &str = "http";

/// The service of a flow that goes on with an earlier exchange of the device, `http:FLOW:FROM`: the id of its first flow in hexadecimal, and how many bytes of the answer's body the device has.
pub fn resumption(flow: FlowId, from: u64) -> String {
    format!("{HTTP}:{flow}:{from}")
}

/// What a service goes on with, if it is one of [`resumption`].
pub fn resumed(service: &str) -> Option<(FlowId, u64)> {
    let (flow, from) = service.strip_prefix(HTTP)?.strip_prefix(':')?.split_once(':')?;
    let resumed = (FlowId(u64::from_str_radix(flow, 16).ok()?), from.parse().ok()?);
    // One way of writing it.
    (resumption(resumed.0, resumed.1) == service).then_some(resumed)
}

/// The service of a flow that is one HTTP exchange whose request the relay keeps until it is whole ([`crate::upload`]).
pub const UPLOAD: &str = "upload";

/// The service of a flow that goes on with an earlier upload of the device, `upload:FLOW:JOURNAL`: the id of its first flow, and of the journal of the relay that had it.
pub fn upload_resumption(flow: FlowId, journal: JournalId) -> String {
    format!("{UPLOAD}:{flow}:{journal}")
}

/// What a service goes on with, if it is one of [`upload_resumption`].
pub fn resumed_upload(service: &str) -> Option<(FlowId, JournalId)> {
    let (flow, journal) = service.strip_prefix(UPLOAD)?.strip_prefix(':')?.split_once(':')?;
    let resumed = (FlowId(u64::from_str_radix(flow, 16).ok()?), journal.parse().ok()?);
    // One way of writing it.
    (upload_resumption(resumed.0, resumed.1) == service).then_some(resumed)
}

/// Ports that no device is taken to unless they are listed. 25 is where mail servers speak to each other: a device that is taken over would send its spam under the relay's address,
/// which is then on every block list. Mail programs use 465 and 587, which ask for a password.
pub const NEVER_PORTS: [u16; 1] = [25];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_resumption_is_read_as_it_is_written() {
        for (flow, from) in [(0, 0), (u64::MAX, u64::MAX), (0xab, 70)] {
            assert_eq!(resumed(&resumption(FlowId(flow), from)), Some((FlowId(flow), from)));
        }
        for other in ["http", "http:", "http:ab:70", "http:00000000000000AB:70", "http:00000000000000ab:+70", "tcp:a:1"]
        {
            assert_eq!(resumed(other), None, "{other}");
        }
        let of_upload = (FlowId(0xab), JournalId([7; 16]));
        let service = upload_resumption(of_upload.0, of_upload.1);
        assert_eq!(resumed_upload(&service), Some(of_upload));
        for other in ["upload", "upload:00000000000000ab", &service.to_uppercase(), &service[..service.len() - 1]] {
            assert_eq!(resumed_upload(other), None, "{other}");
        }
    }
}
