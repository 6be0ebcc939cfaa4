//! Fields of one hop: [`HOP_BY_HOP`].

use http::header::{CONNECTION, HeaderMap, HeaderName};

/// Fields that concern one hop alone (RFC 9110 §7.6.1, RFC 7540 §3.2.1, and those that older software sends), in lower case.
pub const HOP_BY_HOP: [&str; 10] = [
    "connection",
    "http2-settings",
    "keep-alive",
    "proxy-connection",
    "proxy-authenticate",
    "proxy-authorization",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
];

/// What `Connection` names (RFC 9110 §7.6.1).
pub fn connection_options(headers: &HeaderMap) -> impl Iterator<Item = &str> {
    let values = headers.get_all(CONNECTION).iter().filter_map(|value| value.to_str().ok());
    values.flat_map(|value| value.split(',')).map(str::trim)
}

/// Takes the fields of one hop out: [`HOP_BY_HOP`], and those that `Connection` names.
pub fn end_hop(headers: &mut HeaderMap) {
    let named: Vec<_> = connection_options(headers).filter_map(|option| HeaderName::try_from(option).ok()).collect();
    named.into_iter().for_each(|name| drop(headers.remove(name)));
    HOP_BY_HOP.iter().for_each(|name| drop(headers.remove(*name)));
}
