//! How an upload is shown: the headers of `docs/protocol.md` §5 and the document of §8.

use crate::model::{LINGER_SECS, Marked, Reason, State, Upload};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use hoop_http::{Body, Code, json};
use hoop_seal::signing::RECEIPT_LEN;
use hoop_units::{RangeSet, UnixTime};
use http::{HeaderMap, HeaderValue, Response, StatusCode};
use serde_json::{Value, json};

/// The most spans that `Hoop-Missing` names: 32 of two twenty-digit numbers fit any server's limit on a field.
const MISSING_SPANS: usize = 32;

/// The document.
pub fn document(upload: &Upload) -> Value {
    // What is held waits for its owner to sign in, paused or not.
    let pause = (upload.paused && upload.state != State::Held).then(|| Reason::new(Code::UploadPaused, ""));
    let reason = pause.as_ref().or(upload.reason.as_ref());
    let reason = reason.map(|reason| json!({"code": reason.code.name(), "detail": reason.detail}));
    let (first, second) = receipts(upload);
    json!({
        "id": upload.id.to_hex(),
        "state": upload.state.shown(),
        "total": upload.total,
        "received": upload.received.len(),
        "missing": missing(upload),
        "expires": upload.expires.0,
        "ends": ends(upload).map(|at| at.0),
        "kept_until": upload.kept_until().map(|at| at.0),
        "updated": upload.updated.0,
        "reason": reason,
        "attempts": upload.attempts,
        "next_attempt": upload.next_attempt.map(|at| at.0),
        "answer": upload.answer.as_ref().map(|answer| URL_SAFE_NO_PAD.encode(answer)),
        "shortened": is_shortened(upload),
        "receipt": first.map(|receipt| URL_SAFE_NO_PAD.encode(receipt)),
        "receipt_v2": second.map(|receipt| URL_SAFE_NO_PAD.encode(receipt)),
    })
}

/// Whether answer, receipt and note made room for newer ones: whatever the application has answered for good has an answer before.
pub const fn is_shortened(upload: &Upload) -> bool {
    matches!(upload.state, State::Accepted | State::Rejected) && upload.answer.is_none()
}

/// The upload's receipts of version 1 and 2. One that was signed before there was a second has the first alone.
pub fn receipts(upload: &Upload) -> (Option<&[u8]>, Option<&[u8]>) {
    let both = upload.receipt.as_deref().map(|both| both.split_at_checked(RECEIPT_LEN).unwrap_or((both, &[])));
    let (first, second) = both.unzip();
    (first, second.filter(|second| !second.is_empty()))
}

/// The document of an upload of which nothing has come; `state` is `announced` or `stopped`.
pub fn announced(marked: &Marked, state: &str) -> Value {
    json!({
        "id": marked.id.to_hex(),
        "state": state,
        "total": marked.note.as_ref().map(|note| note.total),
        "received": 0,
        "missing": "",
        "expires": marked.expires.0,
        "ends": (state == "announced").then_some(marked.expires.0),
        "kept_until": null,
        "updated": marked.created.0,
        "reason": marked.refusal().map(|code| json!({"code": code.name(), "detail": ""})),
        "attempts": 0,
        "next_attempt": null,
        "answer": null,
        "shortened": false,
        "receipt": null,
        "receipt_v2": null,
    })
}

/// When an upload is given up that waits for something; none: it has ended.
fn ends(upload: &Upload) -> Option<UnixTime> {
    (!upload.state.is_final()).then(|| upload.expires.plus_secs(LINGER_SECS))
}

fn missing(upload: &Upload) -> String {
    match upload.state {
        // What is stopped or expired waits for nothing.
        State::Receiving => upload.received.missing(upload.total).take(MISSING_SPANS).collect::<RangeSet>().to_string(),
        _ => String::new(),
    }
}

/// Adds the headers.
pub fn add_headers(headers: &mut HeaderMap, upload: &Upload) {
    let text = |text: String| HeaderValue::try_from(text).expect("digits, commas and letters are a header's value");
    headers.insert("hoop-upload-id", text(upload.id.to_hex()));
    headers.insert("hoop-state", HeaderValue::from_static(upload.state.shown()));
    headers.insert("hoop-total", upload.total.into());
    headers.insert("hoop-missing", text(missing(upload)));
}

/// An answer about an upload.
pub fn response(status: StatusCode, upload: &Upload) -> Response<Body> {
    let mut response = json(status, &document(upload));
    add_headers(response.headers_mut(), upload);
    response
}
