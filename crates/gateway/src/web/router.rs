//! Which request is answered by what: [`answer`].

use super::bridge;
use super::connections::{self, Use};
use super::lookup::known;
use super::monitor::{self, Place, Visit};
use super::state::Web;
use super::status::write_wait;
use crate::access::cors::{self, Admission, Page};
use crate::access::host_check::authority;
use crate::access::presence;
use crate::access::receipts::{sign_stored, write_cut_through, write_headers};
use crate::core::blocking::blocking;
use crate::core::problems::{FULL_RETRY_AFTER, store_problem};
use crate::core::wire::dest_of;
use crate::intake::receive::offload;
use crate::intake::resumable::handler;
use hoop_http::{Body, Code, Peer, Problem, RequestBody, Shutdown, empty, json};
use hoop_seal::signing::GatewayId;
use hoop_units::AddressKey;
use http::request::Parts;
use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode, header};
use hyper::body::Incoming;
use serde::Serialize;
use serde_json::Value;
use std::net::IpAddr;
use std::sync::Arc;

/// Names that a page may ask about at once: as many as a service may list.
const NAMES_MAX: usize = 256;

/// Less room than this counts as none: a photo.
const ROOM_MIN: u64 = 1 << 20;

#[derive(Serialize)]
struct Test {
    hoop: &'static str,
    version: &'static str,
    free_bytes: u64,
    /// The gateway's name, for services that bind permits to it; see [`told_name`].
    #[serde(skip_serializing_if = "Option::is_none")]
    gateway: Option<Value>,
    /// That it has the key which the name follows from; see [`presence::answer`].
    #[serde(skip_serializing_if = "Option::is_none")]
    proof: Option<String>,
}

/// Answers one request.
pub async fn answer(web: Arc<Web>, shutdown: Shutdown, request: Request<Incoming>, peer: Peer) -> Response<Body> {
    let place = request.extensions().get::<hoop_http::Place>().cloned();
    let (head, body) = RequestBody::of(request);
    let admission = web.cors.get().admit(&head.method, head.uri.path(), head.uri.query(), &head.headers);
    let answer = async |page: Option<&Page>| {
        let answered = match connections::enter(place.as_ref(), Use::of(&head, &body), peer.address.ip()).await {
            Ok(()) => route(&web, &shutdown, page, head, body, peer).await,
            Err(problem) => Err(problem),
        };
        answered.inspect_err(|problem| web.core.counters.refused(problem.code))
    };
    let admission = admission.inspect_err(|problem| web.core.counters.refused(problem.code));
    let mut response = match admission {
        Ok(Admission::Own) => answer(None).await.unwrap_or_else(Problem::into_response),
        Ok(Admission::Page(page)) => page.answer(answer(Some(&page)).await),
        Ok(Admission::Preflight(page, methods)) => page.preflight(methods),
        Ok(Admission::Refused(page, problem)) => page.answer(Err(problem)),
        Err(problem) => problem.into_response(),
    };
    cors::vary(response.headers_mut());
    response
}

/// Answers what is let in, for a program, a person or this `page`.
async fn route(
    web: &Arc<Web>,
    shutdown: &Shutdown,
    page: Option<&Page>,
    head: Parts,
    body: RequestBody,
    peer: Peer,
) -> Result<Response<Body>, Problem> {
    let base = base(web, &head.headers, peer);
    let query = head.uri.query();
    let path = head.uri.path();
    let upload = path.strip_prefix("/offload/");
    let device = AddressKey::from_ip(peer.address.ip());
    web.receiver.admission.devices.request(device, web.core.clock.now())?;
    if handler::concerns(&head) {
        return handler::answer(&web.receiver, page, &base, device, &head, body).await;
    }
    let visit = || Visit { web, shutdown, page, query, headers: &head.headers, place: place(web, &base, peer) };
    match (&head.method, path) {
        (&Method::GET | &Method::HEAD, "/test") => {
            let proof = presence::answer(&web.core.key, web.cors.get().hosts(), query, &head.headers, peer)?;
            test(web, page, query, proof).await
        }
        (&Method::POST, "/offload") => {
            let taken = offload(&web.receiver, None, query, &head.headers, device, body).await?;
            Ok(taken.receipt(&web.core, &base, &dest_of(query)?))
        }
        (&Method::GET | &Method::HEAD, "/monitor") => monitor::show_upload(&visit()).await,
        (&Method::GET | &Method::HEAD, "/") => monitor::overview(&visit()).await,
        (&Method::GET | &Method::HEAD, "/monitor.js") => Ok(monitor::script(&head.headers)),
        (&Method::GET | &Method::HEAD, "/monitor.css") => Ok(monitor::style(&head.headers)),
        (&Method::GET | &Method::HEAD, "/bridge") => Ok(bridge::page(&head.headers)),
        (&Method::GET | &Method::HEAD, "/bridge.js") => Ok(bridge::script(&head.headers)),
        (&Method::GET | &Method::HEAD, "/bridge.css") => Ok(bridge::style(&head.headers)),
        (&Method::PUT, _) if upload.is_some() => {
            let taken = offload(&web.receiver, upload, query, &head.headers, device, body).await?;
            Ok(taken.receipt(&web.core, &base, &dest_of(query)?))
        }
        (&Method::HEAD, _) if upload.is_some() => standing(web, page, upload.unwrap_or_default()).await,
        (_, "/test" | "/monitor" | "/" | "/monitor.js" | "/monitor.css" | "/bridge" | "/bridge.js" | "/bridge.css") => {
            Ok(not_allowed("GET, HEAD"))
        }
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

/// Where the sender reached this gateway.
fn base(web: &Web, headers: &HeaderMap, peer: Peer) -> String {
    if let Some(url) = &web.public_url {
        return url.as_str().trim_end_matches('/').to_owned();
    }
    authority(headers).map_or_else(|| address(peer), |url| url.origin().ascii_serialization())
}

/// This gateway, by its address on the sender's connection.
fn address(peer: Peer) -> String {
    let ip = match peer.local.ip().to_canonical() {
        IpAddr::V4(ip) => ip.to_string(),
        IpAddr::V6(ip) => format!("[{ip}]"),
    };
    format!("http://{ip}:{}", peer.local.port())
}

/// Where other devices reach this gateway: by its address rather than its name, which not every device resolves, unless the
/// address means something only here.
fn place(web: &Web, base: &str, peer: Peer) -> Place {
    let ip = peer.local.ip().to_canonical();
    let only_here = ip.is_loopback() || matches!(ip, IpAddr::V6(ip) if ip.is_unicast_link_local());
    let everywhere = web.public_url.is_some();
    let base = if everywhere || only_here { base.to_owned() } else { address(peer) };
    Place { base, everywhere }
}

async fn test(
    web: &Arc<Web>,
    page: Option<&Page>,
    query: Option<&str>,
    proof: Option<String>,
) -> Result<Response<Body>, Problem> {
    let gateway = told_name(web.core.key.id(), page, query)?;
    // The name follows from it.
    let proof = proof.filter(|_| gateway.as_ref().is_some_and(|name| !name.is_null()));
    let free = blocking(web, |web| web.core.spool.free_bytes()).await;
    let free_bytes = free.map_err(|error| store_problem(&error.into()))?;
    let status = if free_bytes < ROOM_MIN { StatusCode::SERVICE_UNAVAILABLE } else { StatusCode::OK };
    // Two sites shall not know one household again by it.
    let free_bytes = if page.is_some() { rounded_down(free_bytes) } else { free_bytes };
    let mut response =
        json(status, &Test { hoop: "gateway", version: env!("CARGO_PKG_VERSION"), free_bytes, gateway, proof });
    if status != StatusCode::OK {
        response.headers_mut().insert(header::RETRY_AFTER, FULL_RETRY_AFTER.as_secs().into());
    }
    Ok(response)
}

/// What is said of the gateway's name. To pages nothing, since two sites could know a household again by it; but to one that brings the names of gateways whose uploads its
/// service takes (`?gateways=NAME,NAME`), whether this is one of them, null if not.
///
/// # Errors
/// `request-invalid`.
fn told_name(own: GatewayId, page: Option<&Page>, query: Option<&str>) -> Result<Option<Value>, Problem> {
    if page.is_none() {
        return Ok(Some(own.to_string().into()));
    }
    let mut pairs = url::form_urlencoded::parse(query.unwrap_or_default().as_bytes());
    let Some((_, names)) = pairs.find(|(name, _)| name == "gateways") else { return Ok(None) };
    let invalid = |detail: String| Problem::new(Code::RequestInvalid, detail).field("gateways");
    if names.split(',').count() > NAMES_MAX {
        return Err(invalid(format!("{NAMES_MAX} names are the most")));
    }
    let names: Result<Vec<GatewayId>, _> = names.split(',').map(str::parse).collect();
    let names = names.map_err(|error| invalid(error.to_string()))?;
    Ok(Some(names.contains(&own).then(|| own.to_string()).into()))
}

/// To a power of two.
const fn rounded_down(bytes: u64) -> u64 {
    match bytes.checked_ilog2() {
        Some(bits) => 1 << bits,
        None => 0,
    }
}

async fn standing(web: &Arc<Web>, page: Option<&Page>, id: &str) -> Result<Response<Body>, Problem> {
    let upload = known(&web.core, page, id, "id").await?;
    let mut response = Response::new(empty());
    write_headers(response.headers_mut(), upload.id, upload.state, upload.total, &upload.stored);
    write_cut_through(&web.core, response.headers_mut());
    let stands = (upload.id, upload.state, upload.total);
    sign_stored(&web.core, response.headers_mut(), stands, &upload.dest);
    write_wait(response.headers_mut(), &upload, web);
    response.headers_mut().insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    Ok(response)
}
