//! Statuses on the wire (`docs/protocol.md` §5 and §8): what this gateway says of an upload.

use super::state::Web;
use crate::access::receipts::wanted_text;
use crate::peer::status::ReasonDocument;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use hoop_http::Origin;
use hoop_spool::{State, Upload};
use hoop_units::UnixTime;
use http::{HeaderMap, header};
use serde::Serialize;
use url::Url;

/// When an upload that lies here whole is delivered further, if it is not the time for that now (`--window`, `--budget`).
fn goes_on(upload: &Upload, web: &Web) -> Option<UnixTime> {
    let waits = matches!(upload.state, State::Stored | State::Delivering) && !web.core.progress.is_running(upload.id);
    if waits { web.delivery.pacer.opens() } else { None }
}

/// Tells whoever asks about such an upload when: nothing more happens to it before.
pub fn write_wait(headers: &mut HeaderMap, upload: &Upload, web: &Web) {
    if let Some(at) = goes_on(upload, web) {
        headers.insert(header::RETRY_AFTER, at.since(web.core.clock.unix()).into());
    }
}

/// The gateway's status of an upload.
#[derive(Serialize, Debug)]
pub struct Status {
    pub id: String,
    pub role: &'static str,
    pub state: &'static str,
    pub total: u64,
    /// What this gateway has, as `stored`.
    pub received: u64,
    /// What this gateway still takes.
    pub missing: String,
    pub expires: u32,
    pub updated: u32,
    pub reason: Option<ReasonDocument>,
    pub attempts: u32,
    pub next_attempt: Option<u32>,
    pub answer: Option<String>,
    pub dest_origin: String,
    pub stored: u64,
    /// What the service has, or is on its way there.
    pub delivered: u64,
    pub created: u32,
    pub stored_at: Option<u32>,
    pub received_at: Option<u32>,
    pub finished_at: Option<u32>,
    pub rate_bps: Option<u64>,
}

impl Status {
    pub fn of(upload: &Upload, web: &Web) -> Self {
        let (on_its_way, rate_bps) = web.core.progress.of(upload.id);
        let next_attempt = upload.next_attempt.max(goes_on(upload, web));
        let origin = Url::parse(&upload.dest).ok().and_then(|url| Origin::of(&url).ok());
        Self {
            id: upload.id.to_hex(),
            role: "gateway",
            state: upload.state.name(),
            total: upload.total,
            received: upload.stored.len(),
            missing: wanted_text(upload.state, &upload.stored, upload.total),
            expires: upload.expires.0,
            updated: upload.updated.0,
            reason: upload.reason.clone().map(|reason| ReasonDocument { code: reason.code, detail: reason.detail }),
            attempts: upload.attempts,
            next_attempt: next_attempt.map(|at| at.0),
            answer: upload.answer.as_ref().map(|answer| URL_SAFE_NO_PAD.encode(answer)),
            dest_origin: origin.map(|origin| origin.to_string()).unwrap_or_default(),
            stored: upload.stored.len(),
            delivered: (upload.delivered.len() + on_its_way).min(upload.total),
            created: upload.created.0,
            stored_at: upload.stored_at.map(|at| at.0),
            received_at: upload.received_at.map(|at| at.0),
            finished_at: upload.finished_at.map(|at| at.0),
            rate_bps,
        }
    }
}
