//! What requests and answers are called on the wire (`docs/protocol.md` §5, §6): header fields, paths and query parameters.

use hoop_http::{Code, Problem};
use hoop_seal::TICKET_LEN;
use http::HeaderName;

pub const UPLOAD_ID: HeaderName = HeaderName::from_static("hoop-upload-id");
pub const STATE: HeaderName = HeaderName::from_static("hoop-state");
pub const TOTAL: HeaderName = HeaderName::from_static("hoop-total");
pub const MISSING: HeaderName = HeaderName::from_static("hoop-missing");
pub const PRELUDE: HeaderName = HeaderName::from_static("hoop-prelude");
pub const PERMIT: HeaderName = HeaderName::from_static("hoop-permit");
pub const DEADLINE: HeaderName = HeaderName::from_static("hoop-deadline");
pub const GATEWAY: HeaderName = HeaderName::from_static("hoop-gateway");
pub const CUT_THROUGH: HeaderName = HeaderName::from_static("hoop-cut-through");
pub const RECEIPT: HeaderName = HeaderName::from_static("hoop-receipt");
pub const EARLY: HeaderName = HeaderName::from_static("hoop-early");

/// The most spans that `Hoop-Missing` names.
pub const MISSING_MAX: usize = 32;

/// Where upload resources are; the token follows.
pub const RESOURCES: &str = "/offload/r/";

/// Bytes before record 0: salt, record size, the ticket's length and the ticket, which always has the same length.
pub const PRELUDE_LEN: usize = 21 + TICKET_LEN;

/// The first value of a query's parameter of that name.
pub fn parameter(query: Option<&str>, name: &str) -> Option<String> {
    let mut pairs = url::form_urlencoded::parse(query.unwrap_or_default().as_bytes());
    pairs.find(|(known, _)| known == name).map(|(_, value)| value.into_owned())
}

/// The one `dest` of a query.
///
/// # Errors
/// `dest-missing`; `dest-invalid` if it is given twice.
pub fn dest_of(query: Option<&str>) -> Result<String, Problem> {
    let pairs = url::form_urlencoded::parse(query.unwrap_or_default().as_bytes());
    let mut dests = pairs.filter(|(name, _)| name == "dest").map(|(_, value)| value.into_owned());
    match (dests.next(), dests.next()) {
        (Some(dest), None) => Ok(dest),
        (None, _) => Err(Problem::new(Code::DestMissing, "add ?dest= and the service's post URL").field("dest")),
        (Some(_), Some(_)) => Err(Problem::new(Code::DestInvalid, "`dest` is given twice").field("dest")),
    }
}
