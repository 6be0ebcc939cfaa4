//! `POST /hoop/tickets`: tickets for the signed-in user (`docs/protocol.md` §7). Nothing is written to disk.

use crate::api::Api;
use crate::api::caller::{self, Caller};
use crate::api::{guard, request};
use crate::model::{Credentials, Payer, tag};
use crate::policy::paths::is_target;
use crate::policy::{Policy, head};
use crate::store::store_problem;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use hoop_http::{Body, Code, Problem, Rng, json};
use hoop_seal::signing::GatewayId;
use hoop_seal::{Grant, RECORD_SIZE, Route, Suite, UploadKey};
use hoop_units::UnixTime;
use http::{Request, Response, StatusCode};
use hyper::body::Incoming;
use serde::Deserialize;
use serde_json::{Value, json};
use std::net::IpAddr;
use std::sync::atomic::Ordering;

/// The most tickets that one request gets: enough for an album's worth of forms, few enough that none is hoarded.
const COUNT_MAX: u8 = 16;

/// The longest request: a target of 8 KiB, escaped.
const REQUEST_MAX: usize = 16 * 1024;

/// What a request for tickets asks for.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TicketRequest {
    #[serde(default = "post")]
    method: String,
    target: Option<String>,
    #[serde(default = "one")]
    count: u8,
    suite: Option<String>,
    key: Option<String>,
    gateway: Option<String>,
}

fn post() -> String {
    "POST".to_owned()
}

const fn one() -> u8 {
    1
}

/// Answers a request for tickets that came from `address`.
///
/// # Errors
/// What is wrong with it.
pub async fn issue(api: &Api, request: Request<Incoming>, address: IpAddr) -> Result<Response<Body>, Problem> {
    let (parts, body) = request.into_parts();
    guard::hoop_version(&parts.headers)?;
    guard::own_page(&parts.headers, &api.context.origin)?;
    if request::media_type(&parts.headers) != "application/json" {
        let detail = "expected `Content-Type: application/json`";
        return Err(Problem::new(Code::RequestInvalid, detail).field("Content-Type"));
    }
    let now = api.context.clock.unix();
    let lifetime = u32::try_from(api.context.ticket_lifetime.as_secs()).unwrap_or(u32::MAX);
    let wanted = now.plus_secs(lifetime);
    let expires = api.context.store.with(move |index| index.open_end(wanted)).await.map_err(store_problem)?;
    let credentials = caller::capture(&parts.headers, address, expires)?;
    let body = request::read(body, REQUEST_MAX).await?;
    let wanted = TicketRequest::parse(&body)?;
    let (route, limit, suite) = check(&api.context.policy(), &wanted)?;
    let given = given_key(&wanted)?;
    let gateway = named_gateway(&wanted)?;
    let caller = Caller::of_ticket(api, credentials).await?;
    api.allowance.take_tickets(Payer::of(&api.context.policy(), &caller.credentials), wanted.count)?;
    let tickets = (0..wanted.count).map(|_| {
        let key = given.clone().unwrap_or_else(|| UploadKey(Rng.bytes()));
        let grant = Grant { key, not_before: now, max_bytes: limit, route, suite };
        let permit =
            api.context.permits().of_ticket(&api.context.policy(), grant.key.upload_id(), limit, expires, gateway);
        ticket(&api.context.policy(), &caller.credentials, &grant, expires, permit)
    });
    let tickets: Vec<Value> = tickets.collect();
    api.tickets.fetch_add(u64::from(wanted.count), Ordering::Relaxed);
    let owner = caller.tag().map(tag::text);
    let (post, gateways) = (api.url("/hoop/post"), api.context.permits().listed());
    Ok(json(StatusCode::OK, &json!({"post": post, "tickets": tickets, "owner": owner, "gateways": gateways})))
}

impl TicketRequest {
    /// Reads a request for tickets; [`check`] and [`given_key`] judge it.
    ///
    /// # Errors
    /// `request-invalid`.
    pub fn parse(body: &[u8]) -> Result<Self, Problem> {
        serde_json::from_slice(body).map_err(|error| Problem::new(Code::RequestInvalid, error).field("body"))
    }
}

/// The route, the most that Z may have, and the suite.
pub fn check(policy: &Policy, wanted: &TicketRequest) -> Result<(Route, u64, Suite), Problem> {
    let wrong = |field: &str, detail: String| Err(Problem::new(Code::RequestInvalid, detail).field(field));
    if !head::is_method(&wanted.method) {
        return wrong("method", format!("the method must be POST, PUT or PATCH, not `{}`", wanted.method));
    }
    if !(1..=COUNT_MAX).contains(&wanted.count) {
        return wrong("count", format!("1 to {COUNT_MAX} tickets, not {}", wanted.count));
    }
    let suite = wanted.suite.as_deref().map_or(Some(Suite::default()), Suite::by_name);
    let Some(suite) = suite else {
        return wrong("suite", "the suite must be aes256gcm or aes128gcm".to_owned());
    };
    let Some(target) = wanted.target.as_deref() else { return Ok((Route::ANY, policy.max_bytes, suite)) };
    if !is_target(target) {
        return wrong("target", "the target must be a path that begins with `/`, in visible ASCII".to_owned());
    }
    let path = target.split_once('?').map_or(target, |(path, _)| path);
    let limit = policy.routes.of(&wanted.method, path).max_bytes.unwrap_or(policy.max_bytes);
    Ok((Route::of(&wanted.method, target), limit.min(policy.max_bytes), suite))
}

/// The key K that the device drew itself, so that it can seal before its ticket comes. An error does not repeat it.
pub fn given_key(wanted: &TicketRequest) -> Result<Option<UploadKey>, Problem> {
    let Some(text) = &wanted.key else { return Ok(None) };
    let wrong = |detail| Problem::new(Code::RequestInvalid, detail).field("key");
    if wanted.count != 1 {
        return Err(wrong("one key is for one ticket"));
    }
    let key = URL_SAFE_NO_PAD.decode(text).ok().and_then(|bytes| bytes.try_into().ok());
    key.map(|key| Some(UploadKey(key))).ok_or_else(|| wrong("the key must be base64url of 32 bytes, without padding"))
}

/// The gateway that the device means to hand its upload to.
fn named_gateway(wanted: &TicketRequest) -> Result<Option<GatewayId>, Problem> {
    let gateway = wanted.gateway.as_deref().map(str::parse).transpose();
    gateway.map_err(|error| Problem::new(Code::RequestInvalid, error).field("gateway"))
}

fn ticket(
    policy: &Policy,
    credentials: &Credentials,
    grant: &Grant,
    expires: UnixTime,
    permit: Option<String>,
) -> Value {
    let id = grant.key.upload_id();
    let ticket = policy.keys.seal_ticket(&policy.origin, id, expires, grant, Rng.bytes());
    let token = credentials.seal(&policy.keys, &policy.origin, id);
    json!({
        "upload_id": id.to_hex(),
        "ticket": URL_SAFE_NO_PAD.encode(ticket),
        "key": URL_SAFE_NO_PAD.encode(grant.key.0),
        "token": URL_SAFE_NO_PAD.encode(token),
        "suite": grant.suite.name(),
        "record_size": RECORD_SIZE,
        "not_before": grant.not_before.0,
        "expires": expires.0,
        "max_bytes": grant.max_bytes,
        "permit": permit,
    })
}
