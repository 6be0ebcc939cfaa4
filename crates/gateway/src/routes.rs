//! Which request is answered by what: [`answer`].

use crate::monitor;
use crate::offload::{Taken, offload};
use crate::shared::{FULL_RETRY_AFTER, Shared, store_problem};
use crate::status::{Status, write_headers};
use hoop_http::{Body, Code, Peer, Problem, empty, full, json};
use hoop_spool::{State, Upload};
use hoop_units::UploadId;
use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode, header};
use hyper::body::Incoming;
use serde::Serialize;
use std::net::IpAddr;
use std::sync::Arc;
use url::{Host, Url};

/// Less room than this counts as none: a photo.
const ROOM_MIN: u64 = 1 << 20;

#[derive(Serialize)]
struct Test {
    hoop: &'static str,
    version: &'static str,
    free_bytes: u64,
}

#[derive(Serialize)]
struct Receipt {
    id: String,
    state: &'static str,
    stored: u64,
    total: u64,
    monitor: String,
}

/// Answers one request.
pub async fn answer(shared: Arc<Shared>, request: Request<Incoming>, peer: Peer) -> Response<Body> {
    route(&shared, request, peer).await.unwrap_or_else(Problem::into_response)
}

async fn route(shared: &Arc<Shared>, request: Request<Incoming>, peer: Peer) -> Result<Response<Body>, Problem> {
    let (head, body) = request.into_parts();
    check_origin(shared, &head.headers)?;
    let base = base(shared, &head.headers, peer);
    let query = head.uri.query();
    let path = head.uri.path();
    let upload = path.strip_prefix("/offload/");
    match (&head.method, path) {
        (&Method::GET | &Method::HEAD, "/test") => test(shared).await,
        (&Method::POST, "/offload") => Ok(receipt(&offload(shared, None, query, &head.headers, body).await?, &base)),
        (&Method::GET | &Method::HEAD, "/monitor") => monitor(shared, query, &head.headers).await,
        (&Method::GET | &Method::HEAD, "/") => Ok(html(monitor::front(&base))),
        (&Method::PUT, _) if upload.is_some() => {
            Ok(receipt(&offload(shared, upload, query, &head.headers, body).await?, &base))
        }
        (&Method::HEAD, _) if upload.is_some() => standing(shared, upload.unwrap_or_default()).await,
        (_, "/test" | "/monitor" | "/") => Ok(not_allowed("GET, HEAD")),
        (_, "/offload") => Ok(not_allowed("POST")),
        _ if upload.is_some() => Ok(not_allowed("PUT, HEAD")),
        _ => Err(Problem::new(Code::NotFound, format_args!("no resource `{path}` at a gateway"))),
    }
}

fn not_allowed(allow: &'static str) -> Response<Body> {
    let mut response = Problem::new(Code::MethodNotAllowed, format_args!("allowed: {allow}")).into_response();
    response.headers_mut().insert(header::ALLOW, HeaderValue::from_static(allow));
    response
}

/// Pages of other origins may not use a gateway: a browser would lend them its place on the LAN.
fn check_origin(shared: &Shared, headers: &HeaderMap) -> Result<(), Problem> {
    let Some(origin) = headers.get(header::ORIGIN) else { return Ok(()) };
    let own = origin.to_str().ok().and_then(|origin| Url::parse(origin).ok()).is_some_and(|origin| {
        let same = |url: &Url| url.origin() == origin.origin();
        let host = host(headers).and_then(|host| Url::parse(&format!("http://{host}")).ok());
        // A name that anyone could point at us does not make a page ours.
        shared.public_url.as_ref().is_some_and(same) || host.is_some_and(|host| same(&host) && is_local_name(&host))
    });
    match own {
        true => Ok(()),
        false => {
            let detail = "requests by pages of other origins are not taken";
            Err(Problem::new(Code::OriginForbidden, detail).field("Origin"))
        }
    }
}

fn is_local_name(url: &Url) -> bool {
    match url.host() {
        Some(Host::Domain(name)) => name == "localhost" || name.ends_with(".local"),
        Some(Host::Ipv4(_) | Host::Ipv6(_)) => true,
        None => false,
    }
}

fn host(headers: &HeaderMap) -> Option<&str> {
    headers.get(header::HOST)?.to_str().ok()
}

/// Where the sender reached this gateway.
fn base(shared: &Shared, headers: &HeaderMap, peer: Peer) -> String {
    if let Some(url) = &shared.public_url {
        return url.as_str().trim_end_matches('/').to_owned();
    }
    let named = host(headers).and_then(|host| Url::parse(&format!("http://{host}")).ok());
    let local = || {
        let ip = match peer.local.ip().to_canonical() {
            IpAddr::V4(ip) => ip.to_string(),
            IpAddr::V6(ip) => format!("[{ip}]"),
        };
        format!("http://{ip}:{}", peer.local.port())
    };
    named.map_or_else(local, |url| url.origin().ascii_serialization())
}

async fn test(shared: &Arc<Shared>) -> Result<Response<Body>, Problem> {
    let free = shared.blocking(|shared| shared.spool.free_bytes()).await;
    let free_bytes = free.map_err(|error| store_problem(&error.into()))?;
    let status = if free_bytes < ROOM_MIN { StatusCode::SERVICE_UNAVAILABLE } else { StatusCode::OK };
    let mut response = json(status, &Test { hoop: "gateway", version: env!("CARGO_PKG_VERSION"), free_bytes });
    if free_bytes < ROOM_MIN {
        response.headers_mut().insert(header::RETRY_AFTER, FULL_RETRY_AFTER.as_secs().into());
    }
    Ok(response)
}

/// The 2xx for bytes that are on disk.
fn receipt(taken: &Taken, base: &str) -> Response<Body> {
    let path = format!("/monitor?ID={}", taken.id);
    let receipt = Receipt {
        id: taken.id.to_hex(),
        state: taken.state.name(),
        stored: taken.stored.len(),
        total: taken.total,
        monitor: format!("{base}{path}"),
    };
    let status = if taken.state == State::Receiving { StatusCode::ACCEPTED } else { StatusCode::CREATED };
    let mut response = json(status, &receipt);
    let headers = response.headers_mut();
    headers.insert(header::LOCATION, HeaderValue::try_from(path).expect("a path and hexadecimal digits"));
    write_headers(headers, taken.id, taken.state.name(), taken.total, &taken.stored);
    response
}

async fn known(shared: &Arc<Shared>, id: &str, field: &str) -> Result<Upload, Problem> {
    let id: UploadId = id.parse().map_err(|error| Problem::new(Code::RequestInvalid, error).field(field))?;
    let upload = shared.blocking(move |shared| shared.spool.get(id)).await.map_err(|error| store_problem(&error))?;
    upload.ok_or_else(|| Problem::new(Code::UploadUnknown, format_args!("{id}")).field(field))
}

async fn standing(shared: &Arc<Shared>, id: &str) -> Result<Response<Body>, Problem> {
    let upload = known(shared, id, "id").await?;
    let mut response = Response::new(empty());
    write_headers(response.headers_mut(), upload.id, upload.state.name(), upload.total, &upload.stored);
    response.headers_mut().insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    Ok(response)
}

async fn monitor(shared: &Arc<Shared>, query: Option<&str>, headers: &HeaderMap) -> Result<Response<Body>, Problem> {
    let mut pairs = url::form_urlencoded::parse(query.unwrap_or_default().as_bytes());
    let id = pairs.find(|(name, _)| name.eq_ignore_ascii_case("id")).map(|(_, value)| value.into_owned());
    let wants_json = wants_json(headers);
    let found = match id {
        Some(id) => known(shared, &id, "ID").await,
        None => Err(Problem::new(Code::RequestInvalid, "add ?ID= and the upload's id").field("ID")),
    };
    let upload = match found {
        Ok(upload) => upload,
        Err(problem) if wants_json => return Err(problem),
        Err(problem) => {
            let mut response = html(monitor::problem(&problem));
            *response.status_mut() = problem.code.status();
            return Ok(response);
        }
    };
    let status = Status::of(&upload, &shared.progress);
    let mut response = match wants_json {
        true => json(StatusCode::OK, &status),
        false => html(monitor::upload(&status, shared.clock.unix())),
    };
    response.headers_mut().insert(header::VARY, HeaderValue::from_static("Accept"));
    write_headers(response.headers_mut(), upload.id, upload.state.name(), upload.total, &upload.stored);
    Ok(response)
}

/// Whether a program asks: JSON is named, and no HTML before it.
fn wants_json(headers: &HeaderMap) -> bool {
    let accept = headers.get(header::ACCEPT).and_then(|value| value.to_str().ok()).unwrap_or_default();
    match (accept.find("application/json"), accept.find("text/html")) {
        (Some(json), Some(html)) => json < html,
        (json, _) => json.is_some(),
    }
}

fn html(page: String) -> Response<Body> {
    let mut response = Response::new(full(page));
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("text/html; charset=utf-8"));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    // The pages have neither scripts nor anything from elsewhere, and nobody may frame them.
    let policy = "default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'";
    headers.insert(header::CONTENT_SECURITY_POLICY, HeaderValue::from_static(policy));
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    headers.insert(header::REFERRER_POLICY, HeaderValue::from_static("no-referrer"));
    response
}
