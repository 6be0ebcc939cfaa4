//! `POST /hoop/tickets`: tickets for the signed-in user (`docs/protocol.md` §7). Nothing is written to disk.

use crate::admit::Policy;
use crate::core::{Core, store_problem};
use crate::guard;
use crate::head;
use crate::owner::{self, Caller};
use crate::paths::is_target;
use crate::request;
use crate::room::Payer;
use crate::token::Credentials;
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

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Wanted {
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
pub async fn issue(core: &Core, request: Request<Incoming>, address: IpAddr) -> Result<Response<Body>, Problem> {
    let (parts, body) = request.into_parts();
    guard::hoop_version(&parts.headers)?;
    guard::own_page(&parts.headers, &core.origin)?;
    if request::media_type(&parts.headers) != "application/json" {
        let detail = "expected `Content-Type: application/json`";
        return Err(Problem::new(Code::RequestInvalid, detail).field("Content-Type"));
    }
    let now = core.clock.unix();
    let lifetime = u32::try_from(core.ticket_lifetime.as_secs()).unwrap_or(u32::MAX);
    let wanted = now.plus_secs(lifetime);
    let expires = core.store.with(move |index| index.open_end(wanted)).await.map_err(store_problem)?;
    let credentials = owner::capture(&parts.headers, address, expires)?;
    let body = request::read(body, REQUEST_MAX).await?;
    let wanted = Wanted::parse(&body)?;
    let (route, limit, suite) = check(&core.policy(), &wanted)?;
    let given = given_key(&wanted)?;
    let gateway = named_gateway(&wanted)?;
    let caller = Caller::of_ticket(core, credentials).await?;
    core.room.take_tickets(Payer::of(&core.policy(), &caller.credentials), wanted.count)?;
    let tickets = (0..wanted.count).map(|_| {
        let key = given.clone().unwrap_or_else(|| UploadKey(Rng.octets()));
        let grant = Grant { key, not_before: now, max_bytes: limit, route, suite };
        let permit = core.permits().of_ticket(&core.policy(), grant.key.upload_id(), limit, expires, gateway);
        ticket(&core.policy(), &caller.credentials, &grant, expires, permit)
    });
    let tickets: Vec<Value> = tickets.collect();
    core.counters.tickets.fetch_add(u64::from(wanted.count), Ordering::Relaxed);
    let owner = caller.tag().map(owner::text);
    let (post, gateways) = (core.url("/hoop/post"), core.permits().listed());
    Ok(json(StatusCode::OK, &json!({"post": post, "tickets": tickets, "owner": owner, "gateways": gateways})))
}

impl Wanted {
    /// Reads a request for tickets; [`check`] and [`given_key`] judge it.
    ///
    /// # Errors
    /// `request-invalid`.
    pub fn parse(body: &[u8]) -> Result<Self, Problem> {
        serde_json::from_slice(body).map_err(|error| Problem::new(Code::RequestInvalid, error).field("body"))
    }
}

/// The route, the most that Z may have, and the suite.
pub fn check(policy: &Policy, wanted: &Wanted) -> Result<(Route, u64, Suite), Problem> {
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

/// The K that the device drew itself, so that it can seal before its ticket comes. The error does not repeat it.
pub fn given_key(wanted: &Wanted) -> Result<Option<UploadKey>, Problem> {
    let Some(text) = &wanted.key else { return Ok(None) };
    let wrong = |detail| Problem::new(Code::RequestInvalid, detail).field("key");
    if wanted.count != 1 {
        return Err(wrong("one key is for one ticket"));
    }
    let key = URL_SAFE_NO_PAD.decode(text).ok().and_then(|octets| octets.try_into().ok());
    key.map(|key| Some(UploadKey(key))).ok_or_else(|| wrong("the key must be base64url of 32 octets, without padding"))
}

/// The gateway that the device means to hand its upload to.
fn named_gateway(wanted: &Wanted) -> Result<Option<GatewayId>, Problem> {
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
    let ticket = policy.keys.seal_ticket(&policy.origin, id, expires, grant, Rng.octets());
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
