//! `/hoop/uploads`: how an upload stands, whose uploads there are, stopping one, and sending a held one again
//! (`docs/protocol.md` §7).

use crate::admit;
use crate::core::{Core, store_problem};
use crate::guard;
use crate::post;
use crate::state::{Change, Changed, State, Upload};
use crate::status;
use crate::token::Credentials;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use hoop_http::{Body, Code, Problem, json};
use hoop_units::UploadId;
use http::{HeaderMap, Response, StatusCode};
use serde_json::json;
use std::net::IpAddr;

/// The most uploads that a list has (`docs/protocol.md` §7).
const LIST_MAX: usize = 100;

/// `GET /hoop/uploads/{id}`: knowing the id is leave enough, and the answer is sealed.
///
/// # Errors
/// `upload-unknown`, or the store's.
pub async fn show(core: &Core, headers: &HeaderMap, id: UploadId) -> Result<Response<Body>, Problem> {
    let upload = core.settled(id, post::wait(headers)).await.map_err(store_problem)?.ok_or_else(unknown)?;
    Ok(status::response(StatusCode::OK, &upload))
}

/// `GET /hoop/uploads`: those of whoever asks.
///
/// # Errors
/// `sign-in-required`, or the store's.
pub async fn list(core: &Core, headers: &HeaderMap, address: IpAddr) -> Result<Response<Body>, Problem> {
    guard::own_page(headers, &core.origin)?;
    let credentials = captured(core, headers, address)?;
    if credentials.is_anonymous() {
        return Err(signed_out());
    }
    let tags = credentials.owner_tags(&core.policy.keys);
    let uploads = core.store.with(move |index| index.owned(&tags, LIST_MAX)).await.map_err(store_problem)?;
    let uploads: Vec<_> = uploads.iter().map(status::document).collect();
    Ok(json(StatusCode::OK, &json!({ "uploads": uploads })))
}

/// `DELETE /hoop/uploads/{id}`: its owner stops it.
///
/// # Errors
/// `upload-unknown`, `not-owner`, `upload-done`, or the store's.
pub async fn stop(core: &Core, headers: &HeaderMap, address: IpAddr, id: UploadId) -> Result<Response<Body>, Problem> {
    let upload = owned(core, headers, address, id).await?;
    let upload = match core.store.apply(upload.id, Change::Stop, core.clock.unix()).await.map_err(store_problem)? {
        Changed::Done(upload) => upload,
        Changed::Refused(upload) if upload.state == State::Stopped => upload,
        Changed::Refused(upload) => {
            let detail = format!("its state is {}", upload.state.shown());
            return Err(Problem::new(Code::UploadDone, detail));
        }
        Changed::Unknown => return Err(unknown()),
    };
    if let Err(error) = core.store.dispose(id).await {
        tracing::warn!(%error, "a body could not be deleted yet");
    }
    tracing::info!(%id, "stopped by its owner");
    Ok(status::response(StatusCode::OK, &upload))
}

/// `POST /hoop/uploads/{id}`: its owner has signed in again; a held upload goes on with this request's credentials.
///
/// # Errors
/// `upload-unknown`, `not-owner`, `sign-in-required` if it brings no credentials to go on with, or the store's.
pub async fn release(
    core: &Core,
    headers: &HeaderMap,
    address: IpAddr,
    id: UploadId,
) -> Result<Response<Body>, Problem> {
    guard::hoop_version(headers)?;
    let upload = owned(core, headers, address, id).await?;
    let credentials = Credentials { expires: upload.expires.0, ..captured(core, headers, address)? };
    if credentials.is_anonymous() {
        return Err(signed_out());
    }
    let token = credentials.seal(&core.policy.keys, &core.policy.origin, id);
    let owner = credentials.owner_tags(&core.policy.keys)[0];
    let change = Change::Release { token, owner };
    match core.store.apply(id, change, core.clock.unix()).await.map_err(store_problem)? {
        Changed::Done(upload) => {
            core.work.notify_one();
            tracing::info!(%id, "released by its owner");
            Ok(status::response(StatusCode::OK, &upload))
        }
        // Nothing to release: how it stands is the answer.
        Changed::Refused(upload) => Ok(status::response(StatusCode::OK, &upload)),
        Changed::Unknown => Err(unknown()),
    }
}

/// The upload, if whoever asks may change it: by T, which only the device that fetched the ticket has, or by the
/// credentials that it was fetched with.
async fn owned(core: &Core, headers: &HeaderMap, address: IpAddr, id: UploadId) -> Result<Upload, Problem> {
    guard::own_page(headers, &core.origin)?;
    let upload = core.store.load(id).await.map_err(store_problem)?.ok_or_else(unknown)?;
    if let Some(token) = headers.get("hoop-token") {
        let token = URL_SAFE_NO_PAD.decode(token.as_bytes()).ok();
        let opened = token.and_then(|token| admit::open_token(&core.policy, id, &token).ok());
        return opened.map(|_| upload).ok_or_else(|| not_owner().field("Hoop-Token"));
    }
    let credentials = captured(core, headers, address)?;
    let owner = upload.facts.as_ref().map(|facts| facts.owner);
    let known = owner.is_some_and(|owner| credentials.owner_tags(&core.policy.keys).contains(&owner));
    // Whoever fetched a ticket without credentials is not told apart by sending none: that takes T.
    match known && !credentials.is_anonymous() {
        true => Ok(upload),
        false => Err(not_owner()),
    }
}

fn captured(core: &Core, headers: &HeaderMap, address: IpAddr) -> Result<Credentials, Problem> {
    Credentials::capture(headers, address, core.clock.unix())
        .map_err(|error| Problem::new(Code::RequestInvalid, &error).field(error.field()))
}

fn unknown() -> Problem {
    Problem::new(Code::UploadUnknown, "")
}

fn signed_out() -> Problem {
    Problem::new(Code::SignInRequired, "neither `Cookie` nor `Authorization` was sent")
}

fn not_owner() -> Problem {
    Problem::new(Code::NotOwner, "send the `Hoop-Token` of its ticket, or the credentials that fetched it")
}
