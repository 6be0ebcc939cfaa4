//! Doors to this crate's parsers of foreign bytes, for `hoop-fuzz` alone: nothing here is part of the API.

use crate::access::cors::{Admission, Cors};
use crate::access::host_check::Hosts;
use crate::core::wire;
use crate::delivery::message;
use crate::intake::request;
use crate::intake::resumable::fields::Fields;
use crate::peer::destination::{Dest, Destinations};
use crate::peer::status::{self, ServiceStatus};
use crate::peer::verdict::{self, Answer, ServiceVerdict};
use crate::peer::well_known::WellKnown;
use bytes::Bytes;
use hoop_http::{Origin, Problem};
use hoop_seal::{Layout, Prelude};
use hoop_spool::State;
use hoop_units::{ByteRange, ContentRange, RangeSet, UploadId};
use http::{HeaderMap, Method, StatusCode};
use std::net::IpAddr;
use std::time::SystemTime;

/// The post URL and the origin of a destination, by the rules of a gateway that lists none.
///
/// # Errors
/// As the gateway answers.
pub fn destination(text: &str) -> Result<(String, Origin), Problem> {
    Destinations::new(Vec::new(), &[]).check(text).map(|Dest { url, origin }| (url, origin))
}

/// Whether an address is one of the public Internet.
pub fn is_public(address: IpAddr) -> bool {
    hoop_units::is_public(address)
}

/// Whether a gateway may be called by the `Host` of these headers.
pub fn host_is_known(headers: &HeaderMap) -> bool {
    Hosts::default().check(headers).is_ok()
}

/// Whether pages of another origin, and which, get at a resource; `None`: the request is no page's.
///
/// # Errors
/// As the gateway answers.
pub fn admit(
    method: &Method,
    path: &str,
    query: Option<&str>,
    headers: &HeaderMap,
) -> Result<Option<&'static str>, Problem> {
    let admission = Cors::default().admit(method, path, query, headers)?;
    Ok(match admission {
        Admission::Own => None,
        Admission::Page(_) => Some("page"),
        Admission::Preflight(_, methods) => Some(methods),
        Admission::Refused(..) => Some("refused"),
    })
}

/// The one `dest` of a query.
///
/// # Errors
/// As the gateway answers.
pub fn dest_of(query: Option<&str>) -> Result<String, Problem> {
    wire::dest_of(query)
}

/// What the headers of a message to `/offload/{id}` say of its part: the upload, the range, the prelude if it is there.
///
/// # Errors
/// As the gateway answers.
pub fn part(id: &str, headers: &HeaderMap) -> Result<(UploadId, ContentRange, Option<Prelude>), Problem> {
    request::content_length(headers)?;
    let part = request::part(id, headers)?;
    Ok((part.id, part.range, part.prelude))
}

/// What a request says in the fields of the resumable-upload draft.
pub fn upload_fields(headers: &HeaderMap) -> Fields {
    Fields::of(headers)
}

/// What a service's answer means: the state that it stands in and what the service has, or `None` if it is to be asked again.
pub fn judge(status: StatusCode, headers: HeaderMap, body: Bytes, total: u64) -> Option<(State, RangeSet)> {
    match verdict::judge(&Answer { status, headers, body }, total, SystemTime::UNIX_EPOCH) {
        ServiceVerdict::Stands { state, has, status: _ } => Some((state, has)),
        ServiceVerdict::Ends { state, .. } => Some((state, RangeSet::new())),
        ServiceVerdict::Unknown
        | ServiceVerdict::AskHow
        | ServiceVerdict::Corrupt { .. }
        | ServiceVerdict::TooLong
        | ServiceVerdict::Retry(_) => None,
    }
}

/// The sealed answer in a service's status, if the status is one: as it is read and kept.
pub fn service_status(bytes: &[u8]) -> Option<Option<Vec<u8>>> {
    ServiceStatus::parse(bytes).map(|status| status.answer())
}

/// What the service has, by its `Hoop-Missing`.
pub fn delivered_from_missing(missing: &str, total: u64) -> Option<RangeSet> {
    status::delivered_from_missing(missing, total)
}

/// The next range that is sent to a service which has that, of an upload that is stored whole.
pub fn next_message(layout: &Layout, has: &RangeSet, most: u64) -> Option<ByteRange> {
    let stored = [ByteRange::new(0, layout.total())].into_iter().collect();
    message::next_message(layout, has, &stored, most)
}

/// What a well-known document says: the post URL and where uploads are asked after.
///
/// # Errors
/// In words of this gateway.
pub fn well_known(bytes: &[u8], origin: &Origin) -> Result<(String, url::Url), String> {
    WellKnown::parse(bytes, origin).map(|document| (document.post, document.uploads))
}
