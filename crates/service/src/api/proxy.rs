//! Passes every request that is not for the service's own paths to the application: [`Proxy`].
//!
//! Promises: bodies stream both ways and are never collected; what has a length keeps it, what was chunked stays chunked;
//! an answer whose length is not clear, or whose status is above 599, is a 502;
//! `Host` stays; hop-by-hop fields end here (RFC 9110 §7.6.1); no answer of the application has a `Hoop-*` field, which would be this service's
//! word; WebSocket passes, and no other upgrade; when the client goes away, the
//! application's connection is closed, too.
//!
//! Bounds: a connection to the application for each request under way, and for each upgraded one (`crowd` says how many); a sender that is slower than
//! [`PIECE`] in its time is cut off, and so is a tunnel in which nothing moves.

use crate::api::crowd::{self, Use};
use crate::api::tunnel::Tunnel;
use crate::config::Config;
use crate::policy::forwarded::Client;
use crate::policy::told::is_told;
use crate::receive::source::PIECE;
use crate::replay::application::Application;
use crate::replay::left_behind::LeftBehind;
use hoop_http::{
    Body, Code, Joined, Late, LeastRate, Lines, PacedBody, Place, Presence, Problem, Shutdown, connection_options,
    empty, end_hop, settle_length, streamed,
};
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, Response, StatusCode, Uri, header};
use hyper::body::{Body as _, Incoming};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The way to the application.
pub struct Proxy {
    application: Arc<Application>,
    /// How long nothing may move in a tunnel.
    tunnel_idle: Duration,
    /// What each sender has to bring.
    pace: LeastRate,
    /// What is told of fields that the application does not get.
    left_behind: Arc<LeftBehind>,
}

impl Proxy {
    /// The way to `application`.
    pub fn new(config: &Config, application: Arc<Application>, left_behind: Arc<LeftBehind>) -> Self {
        let pace = LeastRate { bytes: PIECE as usize, within: config.body_timeout };
        Self { application, tunnel_idle: config.tunnel_idle, pace, left_behind }
    }

    /// Hands a request on, and the answer back.
    /// `place` is the connection's, and already one for what is asked for; a tunnel ends at `shutdown`.
    pub async fn forward(
        &self,
        request: Request<Incoming>,
        client: &Client,
        place: Option<Place>,
        shutdown: &Shutdown,
    ) -> Response<Body> {
        self.exchange(request, client, place, shutdown).await.unwrap_or_else(Problem::into_response)
    }

    async fn exchange(
        &self,
        mut request: Request<Incoming>,
        client: &Client,
        place: Option<Place>,
        shutdown: &Shutdown,
    ) -> Result<Response<Body>, Problem> {
        if request.method() == Method::CONNECT {
            return Err(Problem::new(Code::MethodNotAllowed, "this is no forward proxy"));
        }
        // Whatever it waits for: the application, or room for its body there.
        Presence::of(request.extensions()).iter().for_each(Presence::need);
        let protocol = wanted(&request);
        let near = protocol.is_some().then(|| hyper::upgrade::on(&mut request));
        let (outgoing, late) =
            self.paced(outgoing(request, client, protocol.as_ref(), &self.left_behind)?, place.clone());
        static TROUBLE: Lines = Lines::new();
        let more = || tracing::warn!("the application fails more often than is written down in this minute");
        let is_written = || TROUBLE.have_room(Instant::now(), more);
        let unreachable = |error: &dyn std::fmt::Display| {
            if is_written() {
                tracing::warn!(%error, "the application cannot be reached");
            }
            Problem::new(Code::UpstreamUnreachable, "")
        };
        let mut connection = self.application.connect().await.map_err(|error| unreachable(&error))?;
        // Else it would live on with a body that the application does not read.
        let ends = connection.ends_on_drop();
        if protocol.is_none() {
            connection.resets_at_its_end();
        }
        let mut response = connection.send(outgoing).await.map_err(|error| match late.is_late() {
            true => self.too_slow(),
            false if late.is_broken() => {
                tracing::debug!(%error, "a client's body broke off, or is malformed");
                Problem::new(Code::RequestInvalid, "the body broke off, or its chunks are malformed").field("body")
            }
            false => {
                if is_written() {
                    tracing::warn!(%error, "the application gave no answer");
                }
                Problem::new(Code::UpstreamBroken, "")
            }
        })?;
        // Of later classes nobody knows what they mean (RFC 9110 §15).
        if response.status().as_u16() > 599 || settle_length(response.headers_mut()).is_err() {
            if is_written() {
                tracing::warn!("the application's answer has no clear length, or a status that is none");
            }
            return Err(Problem::new(Code::UpstreamBroken, "its length is not clear, or its status is none"));
        }
        drop_own(response.headers_mut());
        if response.status() == StatusCode::SWITCHING_PROTOCOLS {
            let Some(near) = near else {
                return Err(Problem::new(Code::UpstreamBroken, "it switches protocols unasked"));
            };
            let protocol = upgrade_of(response.headers()).filter(is_websocket);
            if protocol.is_none() {
                return Err(Problem::new(Code::UpstreamBroken, "it switches to a protocol that nobody asked for"));
            }
            let far = hyper::upgrade::on(&mut response);
            ends.keep();
            let tunnel = Tunnel { near, far, place, idle: self.tunnel_idle };
            tokio::spawn(tunnel.run(shutdown.clone()));
            let mut response = response.map(|_| empty());
            end_hop(response.headers_mut());
            set_upgrade(response.headers_mut(), protocol.as_ref());
            return Ok(response);
        }
        connection.resets_at_its_end();
        end_hop(response.headers_mut());
        if crowd::is_events(response.headers().get(header::CONTENT_TYPE)) {
            // The oldest stream makes way.
            crowd::enter(place.as_ref(), Use::Events, client.address).await?;
        }
        Ok(response.map(|body| ends.unless_read(body)))
    }

    /// The request with a body in few pieces that ends early if its sender is too slow, and who says so.
    fn paced(&self, request: Request<Incoming>, place: Option<Place>) -> (Request<Body>, Late) {
        let request = request.map(|body| PacedBody::new(Joined::new(body), self.pace, place));
        let late = request.body().late();
        (request.map(streamed), late)
    }

    fn too_slow(&self) -> Problem {
        let LeastRate { bytes, within } = self.pace;
        Problem::new(Code::RequestTimeout, format!("less than {} KiB came in {} s", bytes >> 10, within.as_secs()))
    }
}

/// The request as the application gets it.
fn outgoing(
    request: Request<Incoming>,
    client: &Client,
    protocol: Option<&HeaderValue>,
    left_behind: &LeftBehind,
) -> Result<Request<Incoming>, Problem> {
    let (mut parts, body) = request.into_parts();
    // Absolute form becomes origin form; `*` stays (RFC 9112 §3.2).
    let target = parts.uri.path_and_query().map_or("/", |target| target.as_str()).to_owned();
    parts.uri = target.parse::<Uri>().map_err(|error| Problem::new(Code::RequestInvalid, error))?;
    parts.version = http::Version::HTTP_11;
    end_hop(&mut parts.headers);
    // Nobody asks anything else on this connection, and who closes first keeps its port for a minute.
    parts.headers.insert(header::CONNECTION, HeaderValue::from_static("close"));
    set_upgrade(&mut parts.headers, protocol);
    // We send `100 Continue` ourselves when the application takes the first bytes (RFC 9110 §10.1.1).
    parts.headers.remove(header::EXPECT);
    drop_own(&mut parts.headers);
    drop_made_up(&mut parts.headers, client.trusted, left_behind);
    if parts.headers.contains_key("x-real-ip") {
        let address = HeaderValue::try_from(client.address.to_string()).expect("an address is ASCII");
        parts.headers.insert(HeaderName::from_static("x-real-ip"), address);
    }
    for (name, value) in
        [("x-forwarded-for", &client.chain), ("x-forwarded-proto", &client.proto), ("x-forwarded-host", &client.host)]
    {
        let value =
            HeaderValue::try_from(value).map_err(|error| Problem::new(Code::RequestInvalid, error).field(name))?;
        parts.headers.insert(HeaderName::from_static(name), value);
    }
    if body.size_hint().exact().is_none() {
        // Else hyper sends none with a method that has none as a rule, such as GET.
        parts.headers.insert(header::TRANSFER_ENCODING, HeaderValue::from_static("chunked"));
    }
    if !parts.headers.contains_key(header::HOST) {
        let host = HeaderValue::try_from(&client.host).map_err(|error| Problem::new(Code::RequestInvalid, error))?;
        parts.headers.insert(header::HOST, host);
    }
    Ok(Request::from_parts(parts, body))
}

/// The protocol that a request may switch to: WebSocket alone (RFC 6455 §4.1). In another protocol, bytes would bypass
/// all that reads HTTP, here and in front of the application. A wish for one is ignored (RFC 9110 §7.8), and the
/// request goes on without.
pub fn wanted(request: &Request<Incoming>) -> Option<HeaderValue> {
    let plain = request.method() == Method::GET && request.body().is_end_stream();
    upgrade_of(request.headers()).filter(|protocol| plain && is_websocket(protocol))
}

fn is_websocket(protocol: &HeaderValue) -> bool {
    protocol.as_bytes().eq_ignore_ascii_case(b"websocket")
}

/// The protocol that a message wants to switch to, if its `Connection` says so (RFC 9110 §7.8).
fn upgrade_of(headers: &HeaderMap) -> Option<HeaderValue> {
    let wants = connection_options(headers).any(|name| name.eq_ignore_ascii_case("upgrade"));
    let mut named = headers.get_all(header::UPGRADE).iter();
    let only = named.next().filter(|_| named.next().is_none());
    only.filter(|_| wants).cloned()
}

fn set_upgrade(headers: &mut HeaderMap, protocol: Option<&HeaderValue>) {
    if let Some(protocol) = protocol {
        headers.insert(header::CONNECTION, HeaderValue::from_static("upgrade"));
        headers.insert(header::UPGRADE, protocol.clone());
    }
}

/// Removes `Hoop-*` fields, which are the service's own word on uploads, proofs and receipts.
fn drop_own(headers: &mut HeaderMap) {
    let names: Vec<HeaderName> = headers.keys().filter(|name| name.as_str().starts_with("hoop-")).cloned().collect();
    names.iter().for_each(|name| drop(headers.remove(name)));
}

/// Removes fields that an application might believe although an untrusted client wrote them. A trusted proxy is
/// believed, except in `Forwarded` where it wrote `X-Forwarded-For`: then its client wrote that. Names with other
/// characters than letters, digits and `-` go from everybody: to CGI, WSGI and PHP, `x_auth_user` and `x.auth.user` are
/// `x-auth-user`, and a proxy that clears that one does not clear these (nginx and Apache drop them as well).
/// `Proxy` goes, too: it is `HTTP_PROXY` to CGI programs.
fn drop_made_up(headers: &mut HeaderMap, trusted: bool, left_behind: &LeftBehind) {
    let names_clients = headers.contains_key("x-forwarded-for");
    let is_made_up = |name: &HeaderName| {
        let name = name.as_str();
        let is_plain = name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-');
        let is_of_nobody = !trusted && is_told(name);
        if is_of_nobody {
            left_behind.tell_plain(name);
        }
        !is_plain || name == "proxy" || is_of_nobody || name == "forwarded" && names_clients
    };
    let names: Vec<HeaderName> = headers.keys().filter(|name| is_made_up(name)).cloned().collect();
    names.iter().for_each(|name| drop(headers.remove(name)));
}
