//! `/hoop/post`: whole bodies and ranges come in (`docs/protocol.md` §5, §7). Authority comes from the seal alone.
//!
//! Promises: a 2xx means that all bytes of the message are opened, written and synced ([`message`]).
//!
//! Bounds: `intakes` messages at once; a sender that is silent for `body_timeout`, or slower than `source` says, is cut off.

use super::crowd::Use;
use super::{Api, status};
use crate::model::{State, Upload};
use crate::receive::in_flight::refused;
use crate::receive::message;
use crate::receive::source::Source;
use crate::store::store_problem;
use hoop_http::{Body, Code, Place, Problem};
use hoop_units::UploadId;
use http::{HeaderMap, Request, Response, StatusCode, header};
use hyper::body::Incoming;
use std::net::IpAddr;
use std::time::Duration;

/// The longest wait that `Prefer: wait` gets (`docs/protocol.md` §7).
const WAIT_MAX: Duration = Duration::from_secs(30);

/// Answers `POST /hoop/post` (without `id`) and `PUT /hoop/post/{id}`, from `sender` on the connection with that place.
pub async fn receive(
    api: &Api,
    request: Request<Incoming>,
    (sender, place): (IpAddr, Option<Place>),
    id: Option<UploadId>,
) -> Response<Body> {
    let (parts, body) = request.into_parts();
    let headers = parts.headers;
    let (wait, waits_for_leave) = (wait(&headers), headers.contains_key(header::EXPECT));
    let mut source = Source::new(body, api.receive.body_timeout);
    let (answer, source) = match api.receive.intakes.begin(sender).await {
        Some(slot) => {
            source.takes_place(slot.place.clone());
            message::accept_apart(api.receive.clone(), headers, source, sender, id, slot).await
        }
        None => {
            let problem = Problem::new(Code::TooManyRequests, "too many senders at once");
            (Err((problem.retry_after(Duration::from_secs(2)), None)), Some(source))
        }
    };
    // A sender that waits for `100 Continue` (RFC 9110 §10.1.1) has sent nothing that could be thrown away. The answer
    // goes out meanwhile: a sender that reads it stops, and saves its uplink.
    if let Some(mut source) = source.filter(|source| source.has_begun() || !waits_for_leave) {
        tokio::spawn(async move { source.drain().await });
    }
    match answer {
        Ok(upload) => {
            // A client that waits for news holds its connection as a stream of events does, if there is a place for one
            // more.
            let waits = !wait.is_zero() && !upload.state.is_settled();
            let wait = match place {
                Some(place) if waits && !place.changed(Use::Events as usize, sender, Duration::ZERO).await => {
                    Duration::ZERO
                }
                _ => wait,
            };
            // Most ranges leave their upload incomplete, and their senders wait for nothing: no second look at the index.
            let is_partial = upload.state == State::Receiving;
            if is_partial && wait.is_zero() {
                return report(api, &upload);
            }
            let upload = match api.context.store.settled(upload.id, wait).await {
                Ok(Some(settled)) if !is_partial => settled,
                _ => upload,
            };
            report(api, &upload)
        }
        Err((problem, upload)) => refuse(api, problem, upload.as_ref()),
    }
}

/// The answer to a message that is refused, with how its upload stands if that is known.
fn refuse(api: &Api, problem: Problem, upload: Option<&Upload>) -> Response<Body> {
    api.receive.counters.refuse(problem.code);
    tracing::debug!(code = %problem.code, "a message was refused");
    let mut response = problem.into_response();
    if let Some(upload) = upload {
        status::add_headers(response.headers_mut(), upload);
    }
    response
}

/// The answer to a message whose bytes are all here.
fn report(api: &Api, upload: &Upload) -> Response<Body> {
    let gone = match upload.state {
        State::Stopped => Code::UploadStopped,
        State::Expired => Code::UploadExpired,
        State::Receiving if upload.paused => Code::UploadPaused,
        state if state.is_final() => return status::response(StatusCode::OK, upload),
        _ => return status::response(StatusCode::ACCEPTED, upload),
    };
    refuse(api, refused(gone, api.context.clock.unix().since(upload.updated)), Some(upload))
}

/// `HEAD /hoop/post/{id}`.
///
/// # Errors
/// `upload-unknown`, or the store's.
pub async fn head(api: &Api, id: UploadId) -> Result<Response<Body>, Problem> {
    let upload = api.context.store.load(id).await.map_err(store_problem)?;
    let upload = upload.ok_or_else(|| Problem::new(Code::UploadUnknown, "nothing of it has come"))?;
    let mut response = Response::new(hoop_http::empty());
    response.headers_mut().insert(header::CACHE_CONTROL, header::HeaderValue::from_static("no-store"));
    status::add_headers(response.headers_mut(), &upload);
    Ok(response)
}

/// The time that `Prefer: wait=N` asks for (RFC 7240 §4.3), within our bound.
pub fn wait(headers: &HeaderMap) -> Duration {
    let values = headers.get_all("prefer").iter().filter_map(|value| value.to_str().ok());
    let mut preferences = values.flat_map(|value| value.split(',')).map(str::trim);
    let secs = preferences.find_map(|preference| preference.strip_prefix("wait=")?.trim_matches('"').parse().ok());
    Duration::from_secs(secs.unwrap_or(0)).min(WAIT_MAX)
}
