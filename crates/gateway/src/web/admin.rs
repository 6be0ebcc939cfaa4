//! The owner's page, on an address of this machine alone: every upload with its id, device and destination; deliveries paused and resumed; uploads
//! dropped; `/metrics`.
//!
//! Whoever may use this machine may use it, without a password. So it listens on loopback only, and guards against the one stranger who gets there: a
//! page in a browser on this machine. Its buttons are forms, whose `Origin` must be the page's own, and it answers to no name but loopback's.

use super::metrics;
use super::monitor;
use super::state::Web;
use super::status::Status;
use crate::access::host_check::authority;
use crate::core::blocking::blocking;
use crate::core::problems::store_problem;
use hoop_http::{Body, Code, Origin, Peer, Problem, Server, Shutdown, json, read_limited};
use hoop_pages::shown;
use hoop_spool::{Change, Reason, State, Upload};
use hoop_units::{AddressKey, UnixTime, UploadId};
use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode, header};
use hyper::body::Incoming;
use maud::{DOCTYPE, Markup, html};
use serde::Serialize;
use std::sync::Arc;
use url::Host;

/// Uploads that are listed, the latest: a page that a browser still shows at once.
const LISTED: usize = 500;

/// The longest form: an id or an address.
const FORM_MAX: usize = 1024;

/// Serves until `shutdown`.
pub async fn run(server: Option<Server>, web: Arc<Web>, shutdown: Shutdown) {
    let Some(server) = server else { return };
    let handler = move |request, _: Peer| answer(web.clone(), request);
    server.run(handler, shutdown).await;
}

async fn answer(web: Arc<Web>, request: Request<Incoming>) -> Response<Body> {
    let mut response = route(&web, request).await.unwrap_or_else(Problem::into_response);
    let headers = response.headers_mut();
    let policy = "default-src 'none'; style-src 'self'; form-action 'self'; frame-ancestors 'none'; base-uri 'none'";
    headers.insert(header::CONTENT_SECURITY_POLICY, HeaderValue::from_static(policy));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    // Not `no-referrer`: then browsers would send the page's own forms with the origin `null`.
    headers.insert(header::REFERRER_POLICY, HeaderValue::from_static("same-origin"));
    response
}

async fn route(web: &Arc<Web>, request: Request<Incoming>) -> Result<Response<Body>, Problem> {
    let (head, body) = request.into_parts();
    let may = check_host(&head.headers).and_then(|()| check_origin(&head.method, &head.headers));
    if let (Err(problem), Some(act)) = (&may, act_of(&head)) {
        audit(act, "", 0, problem.code.name());
    }
    may?;
    match (&head.method, head.uri.path()) {
        (&Method::GET, "/") => {
            Ok(hoop_pages::answer(StatusCode::OK, page(&look(web).await?, web.core.clock.unix()), &[]))
        }
        (&Method::GET, "/uploads") => Ok(json(StatusCode::OK, &look(web).await?)),
        (&Method::GET, "/monitor.css") => Ok(monitor::style(&head.headers)),
        (&Method::GET, "/metrics") => {
            let text = blocking(web, metrics::page).await.map_err(|error| store_problem(&error))?;
            Ok(hoop_http::metrics::response(text))
        }
        (&Method::POST, "/pause") => set_pause(web, true),
        (&Method::POST, "/resume") => set_pause(web, false),
        (&Method::POST, "/drop") => {
            let form = read_limited(body, FORM_MAX).await.map_err(|error| Problem::new(Code::RequestInvalid, error))?;
            let asked = asked(&form)?;
            let dropped = drop_uploads(web, asked).await;
            let what = match asked {
                Asked::Upload(id) => format!("upload {id}"),
                Asked::Device(device) => format!("device {device}"),
            };
            let outcome = dropped.as_ref().map_or_else(|problem| problem.code.name(), |_| "done");
            audit("drop", &what, dropped.as_ref().copied().unwrap_or(0), outcome);
            dropped.map(|_| back())
        }
        (_, "/" | "/uploads" | "/metrics" | "/pause" | "/resume" | "/drop") => {
            Err(Problem::new(Code::MethodNotAllowed, "GET to look, POST to change"))
        }
        (_, path) => Err(Problem::new(Code::NotFound, format_args!("no resource `{path}` on the owner's address"))),
    }
}

/// What the owner does, whoever that is: a button of the page.
fn act_of(head: &http::request::Parts) -> Option<&'static str> {
    match (&head.method, head.uri.path()) {
        (&Method::POST, "/pause") => Some("pause"),
        (&Method::POST, "/resume") => Some("resume"),
        (&Method::POST, "/drop") => Some("drop"),
        _ => None,
    }
}

/// Writes down what the owner did (`docs/operators.md`, "What was done"): to what, to how many uploads, and what came of it.
fn audit(act: &'static str, what: &str, uploads: usize, outcome: &'static str) {
    tracing::info!(target: "audit", act, who = "owner's page", what, uploads, outcome, "the owner acts");
}

/// A page could point its own name at loopback. It could not point `localhost` anywhere.
fn check_host(headers: &HeaderMap) -> Result<(), Problem> {
    match authority(headers).as_ref().and_then(url::Url::host).is_some_and(|host| is_loopback(&host.to_owned())) {
        true => Ok(()),
        false => {
            Err(Problem::new(Code::HostForbidden, "reach this page as 127.0.0.1, [::1] or localhost").field("Host"))
        }
    }
}

/// Another page may neither press a button nor read: browsers send `Origin` with each form and each request that a script could read.
fn check_origin(method: &Method, headers: &HeaderMap) -> Result<(), Problem> {
    let forbidden = || Problem::new(Code::OriginForbidden, "only this page's own buttons count").field("Origin");
    if headers.contains_key(header::ORIGIN) {
        let named = headers.get(header::ORIGIN).and_then(|value| value.to_str().ok());
        let own = authority(headers).and_then(|url| Origin::of(&url).ok());
        return match own.is_some_and(|own| named == Some(own.as_str())) {
            true => Ok(()),
            false => Err(forbidden()),
        };
    }
    // A browser that sends no `Origin` with a form is none of today's; but it may send this.
    let site = headers.get("sec-fetch-site").map_or(&b"none"[..], HeaderValue::as_bytes);
    match method == Method::POST && !matches!(site, b"none" | b"same-origin") {
        true => Err(forbidden()),
        false => Ok(()),
    }
}

fn is_loopback(host: &Host) -> bool {
    match host {
        Host::Domain(name) => name == "localhost",
        Host::Ipv4(address) => address.is_loopback(),
        Host::Ipv6(address) => address.is_loopback(),
    }
}

fn set_pause(web: &Web, on: bool) -> Result<Response<Body>, Problem> {
    web.delivery.pause.set(on).map_err(|error| {
        tracing::error!(%error, "cannot write down whether deliveries are paused");
        Problem::new(Code::Internal, "the spool cannot be written; the log says more")
    })?;
    audit(if on { "pause" } else { "resume" }, "all deliveries", 0, "done");
    Ok(back())
}

/// What a form asks to drop.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Asked {
    Upload(UploadId),
    Device(AddressKey),
}

fn asked(form: &[u8]) -> Result<Asked, Problem> {
    let fields: Vec<_> = url::form_urlencoded::parse(form).into_owned().collect();
    let invalid = |field: &str| {
        Problem::new(Code::RequestInvalid, "expected the id of an upload, or a device's address").field(field)
    };
    match &fields[..] {
        [(name, id)] if name == "id" => id.parse().map(Asked::Upload).map_err(|_| invalid("id")),
        [(name, device)] if name == "device" => {
            let address = device.trim_end_matches("/64").parse().map_err(|_| invalid("device"))?;
            Ok(Asked::Device(AddressKey::from_ip(address)))
        }
        _ => Err(invalid("id")),
    }
}

/// Ends what was asked for, as stopped. Returns how many uploads that were.
async fn drop_uploads(web: &Arc<Web>, asked: Asked) -> Result<usize, Problem> {
    let ended = blocking(web, move |web| {
        let of_device = |device| {
            web.core.spool.all(|upload| (upload.device == device && !upload.state.is_final()).then_some(upload.id))
        };
        let ids = match asked {
            Asked::Upload(id) => vec![id],
            Asked::Device(device) => of_device(device)?,
        };
        let reason = Reason::new(Code::UploadStopped.name(), "this gateway's owner dropped it");
        let change = Change { state: Some(State::Stopped), reason: Some(Some(reason)), ..Change::default() };
        let mut ended = Vec::new();
        for id in ids {
            ended.push((id, web.core.spool.change(id, &change, web.core.clock.unix())?));
            // What is on its way ends where it is.
            web.delivery.slots.stop(id);
        }
        Ok(ended)
    });
    let ended = ended.await.map_err(|error: hoop_spool::StoreError| store_problem(&error))?;
    match (&ended[..], asked) {
        ([(id, None)], Asked::Upload(_)) => Err(Problem::new(Code::UploadUnknown, format_args!("{id}")).field("id")),
        ([(_, Some(state))], Asked::Upload(_)) if *state != State::Stopped => {
            Err(Problem::new(Code::UploadConflict, format_args!("it is {} already", state.name())).field("id"))
        }
        _ => Ok(ended.iter().filter(|(_, state)| *state == Some(State::Stopped)).count()),
    }
}

/// What the owner sees.
#[derive(Serialize)]
struct View {
    paused: bool,
    gateway: String,
    kept_bytes: u64,
    free_bytes: u64,
    /// The latest, at most [`LISTED`].
    uploads: Vec<Row>,
}

#[derive(Serialize)]
struct Row {
    device: String,
    #[serde(flatten)]
    status: Status,
}

async fn look(web: &Arc<Web>) -> Result<View, Problem> {
    let view = blocking(web, |web| {
        let row = |upload: &Upload| {
            let mut status = Status::of(upload, web);
            // Sealed for the device, and long.
            status.answer = None;
            Row { device: upload.device.to_string(), status }
        };
        Ok(View {
            paused: web.delivery.pause.is_on(),
            gateway: web.core.key.id().to_string(),
            kept_bytes: web.core.spool.kept_bytes(),
            free_bytes: web.core.spool.free_bytes()?,
            uploads: web.core.spool.recent(LISTED, row)?,
        })
    });
    view.await.map_err(|error: hoop_spool::StoreError| store_problem(&error))
}

fn page(view: &View, now: UnixTime) -> Markup {
    let (word, action, label) = match view.paused {
        true => ("Deliveries are paused.", "/resume", "Resume deliveries"),
        false => ("Deliveries run.", "/pause", "Pause all deliveries"),
    };
    html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width";
                title { "Hoop gateway" }
                link rel="stylesheet" href="/monitor.css";
            }
            body {
                main {
                    h1 { "Hoop gateway" }
                    p {
                        (word) " It holds " (view.kept_bytes >> 20) " MiB; " (view.free_bytes >> 20) " MiB are free. Its name is "
                        code { (view.gateway) } "."
                    }
                    form method="post" action=(action) { button { (label) } }
                    table {
                        thead {
                            tr {
                                @for name in ["upload", "state", "device", "for", "bytes", "delivered", "age", "reason", ""] {
                                    th { (name) }
                                }
                            }
                        }
                        tbody { @for row in &view.uploads { (row.html(now)) } }
                    }
                    p { a href="/metrics" { "Metrics" } " · " a href="/uploads" { "JSON" } }
                }
            }
        }
    }
}

impl Row {
    fn html(&self, now: UnixTime) -> Markup {
        let Self { device, status } = self;
        html! {
            tr {
                td { code { (status.id) } }
                td { (status.state) }
                td { (shown(device)) }
                td { (shown(&status.dest_origin)) }
                td { (status.stored) " of " (status.total) }
                td { (status.delivered) }
                td { (now.since(UnixTime(status.created)) / 60) " min" }
                td { @if let Some(reason) = &status.reason { (reason.code) ": " (shown(&reason.detail)) } }
                td {
                    @if State::by_name(status.state).is_some_and(|state| !state.is_final()) {
                        (button("id", &status.id, "Drop"))
                        (button("device", device, "Drop all of this device"))
                    }
                }
            }
        }
    }
}

fn button(field: &str, value: &str, label: &str) -> Markup {
    html! { form method="post" action="/drop" { button name=(field) value=(value) { (label) } } }
}

/// To the page, after a button.
fn back() -> Response<Body> {
    let mut response = Response::new(hoop_http::empty());
    *response.status_mut() = StatusCode::SEE_OTHER;
    response.headers_mut().insert(header::LOCATION, HeaderValue::from_static("/"));
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(lines: &[(&'static str, &str)]) -> HeaderMap {
        let named = lines.iter().map(|(name, value)| (http::HeaderName::from_static(name), value.parse().unwrap()));
        named.collect()
    }

    #[test]
    fn only_loopbacks_names_reach_the_page() {
        for host in ["127.0.0.1:4668", "localhost:4668", "[::1]:4668", "127.1:4668"] {
            assert!(check_host(&headers(&[("host", host)])).is_ok(), "{host}");
        }
        for host in
            ["hoop.local:4668", "evil.example", "localhost.evil.example", "192.168.1.1:4668", "app.localhost", ""]
        {
            assert!(check_host(&headers(&[("host", host)])).is_err(), "{host}");
        }
        assert!(check_host(&HeaderMap::new()).is_err());
    }

    #[test]
    fn no_other_page_presses_its_buttons() {
        let host = ("host", "127.0.0.1:4668");
        let post = |lines: &[(&'static str, &str)]| check_origin(&Method::POST, &headers(&[&[host], lines].concat()));
        assert!(post(&[("origin", "http://127.0.0.1:4668")]).is_ok());
        assert!(post(&[]).is_ok(), "a program of this machine");
        for origin in
            ["https://evil.example", "null", "http://127.0.0.1:8000", "http://localhost:4668", "https://127.0.0.1:4668"]
        {
            assert!(post(&[("origin", origin)]).is_err(), "{origin}");
        }
        assert!(post(&[("sec-fetch-site", "cross-site")]).is_err());
        assert!(
            check_origin(&Method::GET, &headers(&[host, ("origin", "https://evil.example")])).is_err(),
            "nor does it read"
        );
    }

    #[test]
    fn a_form_names_one_upload_or_one_device() {
        let id = UploadId([1; 16]);
        assert_eq!(asked(format!("id={id}").as_bytes()).unwrap(), Asked::Upload(id));
        let device = AddressKey::from_ip("2001:db8:0:7::9".parse().unwrap());
        assert_eq!(asked(b"device=2001%3Adb8%3A0%3A7%3A%3A%2F64").unwrap(), Asked::Device(device));
        for wrong in ["", "id=x", "device=", "id=1&device=2", "all=1"] {
            assert!(asked(wrong.as_bytes()).is_err(), "{wrong}");
        }
    }
}
