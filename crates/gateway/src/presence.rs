//! Who this gateway is, shown to whoever asks (`docs/protocol.md`, *Who a gateway is*): [`answer`] to a nonce, and [`sign_stored`] under what it has stored.
//!
//! The answer is for the place that the device asked at, and this gateway answers for no place but its own: its address on that very connection, or what its
//! operator listed. So one that stands elsewhere and passes the nonce on gets no answer that fits.

use crate::core::wire::{MISSING, RECEIPT, parameter};
use crate::hosts;
use crate::shared::Shared;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use hoop_http::{Code, Origin, Peer, Problem};
use hoop_seal::word::{Nonce, StoredReceipt, StoredState};
use hoop_spool::State;
use hoop_units::UploadId;
use http::{HeaderMap, HeaderValue};
use url::Url;

/// The answer to `?nonce=`, in base64url; none if nobody asks, or for a place that is not this gateway's.
///
/// # Errors
/// `request-invalid` if it is no nonce.
pub fn answer(
    shared: &Shared,
    query: Option<&str>,
    headers: &HeaderMap,
    peer: Peer,
) -> Result<Option<String>, Problem> {
    let Some(nonce) = parameter(query, "nonce") else { return Ok(None) };
    let invalid = || Problem::new(Code::RequestInvalid, "a nonce is 24 bytes in base64url").field("nonce");
    let nonce = Nonce::from_text(&nonce).ok_or_else(invalid)?;
    let place = hosts::authority(headers).filter(|place| shared.pages.get().hosts().is_own(place, peer.local));
    let origin = place.and_then(|place| Origin::of(&place).ok());
    Ok(origin.map(|origin| URL_SAFE_NO_PAD.encode(shared.key.answer(origin.authority(), &nonce))))
}

/// Signs what `headers` say is stored here of an upload to `dest`. What was given up, or is for no service, is not signed.
pub fn sign_stored(
    shared: &Shared,
    headers: &mut HeaderMap,
    (upload_id, state, total): (UploadId, State, u64),
    dest: &str,
) {
    let origin = Url::parse(dest).ok().and_then(|url| Origin::of(&url).ok());
    let missing = headers.get(MISSING).and_then(|missing| missing.to_str().ok()).map(ToOwned::to_owned);
    let (Some(origin), Some(state), Some(missing)) = (origin, stored_state(state), missing) else { return };
    let time = shared.clock.unix();
    let receipt = StoredReceipt { upload_id, state, time, total, missing };
    let signed = URL_SAFE_NO_PAD.encode(shared.key.sign_stored(origin.as_str(), &receipt));
    headers.insert(RECEIPT, HeaderValue::try_from(signed).expect("base64url is ASCII"));
}

/// What a gateway says of itself: that the service has it, says the service.
const fn stored_state(state: State) -> Option<StoredState> {
    match state {
        State::Receiving => Some(StoredState::Receiving),
        State::Stored => Some(StoredState::Stored),
        State::Delivering | State::Received | State::Accepted | State::Held | State::Rejected | State::Unknown => {
            Some(StoredState::Delivering)
        }
        State::Stopped | State::Expired | State::Refused => None,
    }
}
