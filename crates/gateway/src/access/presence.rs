//! Who this gateway is, shown to whoever asks (`docs/protocol.md`, *Who a gateway is*): [`answer`] to a nonce.
//!
//! The answer is for the place that the device asked at, and this gateway answers for no place but its own: its address on that very connection, or what its
//! operator listed. So one that stands elsewhere and passes the nonce on gets no answer that fits.

use super::host_check::{Hosts, authority};
use crate::core::wire::parameter;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use hoop_http::{Code, Origin, Peer, Problem};
use hoop_seal::signing::GatewayKey;
use hoop_seal::word::Nonce;
use http::HeaderMap;

/// The answer to `?nonce=`, in base64url; none if nobody asks, or for a place that is not this gateway's.
///
/// # Errors
/// `request-invalid` if it is no nonce.
pub fn answer(
    key: &GatewayKey,
    hosts: &Hosts,
    query: Option<&str>,
    headers: &HeaderMap,
    peer: Peer,
) -> Result<Option<String>, Problem> {
    let Some(nonce) = parameter(query, "nonce") else { return Ok(None) };
    let invalid = || Problem::new(Code::RequestInvalid, "a nonce is 24 bytes in base64url").field("nonce");
    let nonce = Nonce::from_text(&nonce).ok_or_else(invalid)?;
    let place = authority(headers).filter(|place| hosts.is_own(place, peer.local));
    let origin = place.and_then(|place| Origin::of(&place).ok());
    Ok(origin.map(|origin| URL_SAFE_NO_PAD.encode(key.answer(origin.authority(), &nonce))))
}
