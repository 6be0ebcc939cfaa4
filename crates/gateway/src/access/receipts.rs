//! What a sender is told of what is stored (`docs/protocol.md` §5): header fields, the receipt of a request, and this gateway's signature under both.

use crate::core::state::Core;
use crate::core::wire::{CUT_THROUGH, MISSING, MISSING_MAX, RECEIPT, STATE, TOTAL, UPLOAD_ID};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use hoop_http::{Body, Origin, json};
use hoop_seal::word::{StoredReceipt, StoredState};
use hoop_spool::{State, Upload};
use hoop_units::{RangeSet, UploadId};
use http::{HeaderMap, HeaderValue, Response, StatusCode, header};
use serde::Serialize;
use url::Url;

/// What became of a request that took bytes.
pub struct Taken {
    pub id: UploadId,
    pub state: State,
    pub total: u64,
    pub stored: RangeSet,
}

impl Taken {
    /// As is recorded of the upload.
    pub fn of(upload: &Upload) -> Self {
        Self { id: upload.id, state: upload.state, total: upload.total, stored: upload.stored.clone() }
    }

    /// The 2xx for bytes that are on disk, to a sender that reached this gateway at `base`; signed for the service at `dest`.
    pub fn receipt(&self, core: &Core, base: &str, dest: &str) -> Response<Body> {
        let path = format!("/monitor?ID={}", self.id);
        let receipt = Receipt {
            id: self.id.to_hex(),
            state: self.state.name(),
            stored: self.stored.len(),
            total: self.total,
            monitor: format!("{base}{path}"),
        };
        let status = if self.state == State::Receiving { StatusCode::ACCEPTED } else { StatusCode::CREATED };
        let mut response = json(status, &receipt);
        let headers = response.headers_mut();
        headers.insert(header::LOCATION, HeaderValue::try_from(path).expect("a path and hexadecimal digits"));
        write_headers(headers, self.id, self.state, self.total, &self.stored);
        write_cut_through(core, headers);
        sign_stored(core, headers, (self.id, self.state, self.total), dest);
        response
    }
}

#[derive(Serialize)]
struct Receipt {
    id: String,
    state: &'static str,
    stored: u64,
    total: u64,
    monitor: String,
}

/// The header fields of every answer about an upload.
pub fn write_headers(headers: &mut HeaderMap, id: UploadId, state: State, total: u64, stored: &RangeSet) {
    let text = |text: String| HeaderValue::try_from(text).expect("digits, letters and commas");
    headers.insert(UPLOAD_ID, text(id.to_hex()));
    headers.insert(STATE, text(state.name().to_owned()));
    headers.insert(TOTAL, total.into());
    headers.insert(MISSING, text(wanted_text(state, stored, total)));
}

/// Tells devices that what is stored here is delivered even if the rest goes another way.
pub fn write_cut_through(core: &Core, headers: &mut HeaderMap) {
    if core.cut_through {
        headers.insert(CUT_THROUGH, const { HeaderValue::from_static("?1") });
    }
}

/// What this gateway still takes of an upload: nothing once the service has all of it, by whatever way.
pub fn wanted_text(state: State, has: &RangeSet, total: u64) -> String {
    match state {
        // A disk can spoil what was stored; then it is wanted again.
        State::Receiving | State::Stored | State::Delivering => missing_text(has, total),
        _ => String::new(),
    }
}

/// What is missing of `total`, as `Hoop-Missing` has it.
fn missing_text(has: &RangeSet, total: u64) -> String {
    has.missing(total).take(MISSING_MAX).collect::<RangeSet>().to_string()
}

/// Signs what `headers` say is stored here of an upload to `dest`. What was given up, or is for no service, is not signed.
pub fn sign_stored(
    core: &Core,
    headers: &mut HeaderMap,
    (upload_id, state, total): (UploadId, State, u64),
    dest: &str,
) {
    let origin = Url::parse(dest).ok().and_then(|url| Origin::of(&url).ok());
    let missing = headers.get(MISSING).and_then(|missing| missing.to_str().ok()).map(ToOwned::to_owned);
    let (Some(origin), Some(state), Some(missing)) = (origin, stored_state(state), missing) else { return };
    let time = core.clock.unix();
    let receipt = StoredReceipt { upload_id, state, time, total, missing };
    let signed = URL_SAFE_NO_PAD.encode(core.key.sign_stored(origin.as_str(), &receipt));
    headers.insert(RECEIPT, HeaderValue::try_from(signed).expect("base64url is ASCII"));
}

/// What a gateway says of itself. That the service has all of it is for the service to say.
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
