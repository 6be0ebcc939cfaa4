//! Requests to origins, and the connections that are kept for a device's next one: [`Origins`].
//!
//! Rooms, each importing only those before it: `dial`, `frames`, `multiplexed`, and this.
//!
//! Each device has connections of its own: another device's requests must never be taken for those of a client that an origin knows by its connection. Where a request asks to be known
//! in that way (NTLM), its connection is not kept, since several programs may use one device.
//!
//! Bounds: before an answer, so many interim ones may come ([`limit_interim`], and over HTTP/2 [`frames`]), and then their connection ends. A connection counts as its device's ([`Egress`]). One is kept only while places are plenty ([`Places::are_plenty`](super::places::Places)), and [`IDLE_OF_ORIGIN`] for one origin.

mod dial;
mod frames;
mod multiplexed;

use self::dial::{Dial, HasAnswered, IDLE_MAX, NotReached};
pub(crate) use self::multiplexed::InUse;
use self::multiplexed::{Multiplexed, NoAnswer};
use super::egress::Egress;
use super::heads::Heads;
use super::places::Places;
use crate::codes;
use crate::exchange::HEAD_BYTES;
use hoop_endpoint::DeviceId;
use hoop_http::{Body, Stop, empty, is_no_answer, limit_interim};
use http::header::{AUTHORIZATION, HOST};
use http::uri::{PathAndQuery, Scheme};
use http::{Extensions, HeaderMap, HeaderValue, Method, Request, Response, StatusCode};
use hyper::body::Incoming;
use hyper::client::conn::http1;
use hyper_util::client::legacy::connect::capture_connection;
use hyper_util::client::legacy::{Client, Error};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use parking_lot::Mutex;
use rustls::ClientConfig;
use std::collections::HashMap;
use std::io::{self, ErrorKind};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;
use tokio::task::JoinSet;

/// How many are kept idle for one origin: as many as browsers open.
const IDLE_OF_ORIGIN: usize = 6;

/// What sends requests to origins.
#[derive(Debug)]
pub(crate) struct Origins {
    pub egress: Arc<Egress>,
    /// Who may have large requests.
    pub heads: Heads,
    /// Which of its device's answers each is, of those under way.
    pub answers: Arc<Places>,
    /// Whom it believes, of those that speak TLS.
    trust: Mutex<Arc<ClientConfig>>,
    clients: Mutex<HashMap<DeviceId, Used>>,
}

/// What sends a device's requests over connections that are kept.
#[derive(Debug)]
struct Used {
    sender: Arc<Sender>,
    at: Instant,
}

/// The ways to a device's origins.
#[derive(Debug)]
struct Sender {
    /// Over HTTP/1.1.
    client: Client<Dial, Body>,
    /// Over HTTP/2.
    multiplexed: Multiplexed,
    dial: Dial,
}

/// An answer, and what is to end with it.
#[derive(Debug)]
pub(crate) struct Answered {
    pub response: Response<Incoming>,
    /// A connection that is not kept. It ends when this is dropped, also where its origin neither reads nor closes.
    pub connection: Option<JoinSet<()>>,
    /// It came over a connection of HTTP/1.1 that has brought another before. What a web server sent too much of that would be taken for this one.
    pub was_used: bool,
    /// A connection that others use, too, by HTTP/2. It is kept at least until this is dropped.
    pub in_use: Option<InUse>,
}

/// Whether a body has come to its end that gives no more. A stream of HTTP/2 that was reset ends as if it had, if its origin says that nothing is wrong: hyper makes no error of that.
///
/// # Errors
/// [`codes::BROKEN`]: it was reset.
pub(crate) fn ended(body: &Incoming, in_use: Option<&InUse>) -> Result<(), u64> {
    match in_use {
        Some(_) if !http_body::Body::is_end_stream(body) => Err(codes::BROKEN),
        _ => Ok(()),
    }
}

impl Origins {
    /// `trust`: whom it believes, of those that speak TLS.
    pub fn new(egress: Arc<Egress>, trust: Arc<ClientConfig>) -> Self {
        let answers = Places::new(usize::MAX, usize::MAX);
        Self { egress, heads: Heads::new(), answers, trust: Mutex::new(trust), clients: Mutex::default() }
    }

    /// Believes others from now on. What is under way goes on.
    pub fn trust(&self, trust: Arc<ClientConfig>) {
        *self.trust.lock() = trust;
        self.clients.lock().clear();
    }

    /// Sends a device's request to the origin that its URI names, over a connection of that device's.
    ///
    /// An origin may close a kept connection just as a request goes over it, and nobody then knows whether it took the request. So only requests that may be sent twice go over kept
    /// connections, and are sent once more then (RFC 9110 §9.2.2). Others have a connection of their own.
    ///
    /// # Errors
    /// The code that says why there is no answer ([`codes`]).
    pub async fn send(&self, device: DeviceId, mut request: Request<Body>) -> Result<Answered, u64> {
        let sender = self.sender(device);
        let may_repeat = may_repeat(&request);
        let _spare = sender.dial.closes_spare(request.uri());
        if request.uri().scheme() == Some(&Scheme::HTTPS) && !asks_for_connection(request.headers()) {
            let is_empty = http_body::Body::is_end_stream(request.body());
            let repeated = is_empty.then(|| copy(&request));
            request = match (sender.multiplexed.send(&sender.dial, request).await, repeated) {
                (Ok((response, in_use)), _) => {
                    return Ok(Answered { response, connection: None, was_used: false, in_use: Some(in_use) });
                }
                (Err(NoAnswer::NotTaken(request)), _) => *request,
                (Err(NoAnswer::Refused), Some(repeated)) => repeated,
                (Err(NoAnswer::Closed), Some(repeated)) if may_repeat => repeated,
                (Err(NoAnswer::Refused | NoAnswer::Closed), _) => return Err(codes::BROKEN),
                (Err(NoAnswer::Failed(code)), _) => return Err(code),
            };
        }
        if !may_repeat || !self.egress.connections.are_plenty(device) {
            return send_apart(&sender.dial, request).await;
        }
        let repeated = copy(&request);
        let connection = capture_connection(&mut request);
        let of_callback = connection.clone();
        // The callback is called while the connection that brought the answer is read.
        limit_interim(&mut request, move || {
            let mut of_connection = Extensions::new();
            of_callback.connection_metadata().as_ref().inspect(|info| info.get_extras(&mut of_connection));
            of_connection.get().inspect(|stop: &&Stop| stop.stop());
        });
        match sender.client.request(request).await {
            Ok(response) => {
                // From now on it is known to answer.
                let has_answered = response.extensions().get::<HasAnswered>();
                let was_used = has_answered.is_some_and(|has| has.0.swap(true, Ordering::Relaxed));
                // Some web servers send bodies here that nobody expects.
                if matches!(response.status(), StatusCode::NO_CONTENT | StatusCode::NOT_MODIFIED) {
                    connection.connection_metadata().as_ref().inspect(|info| info.poison());
                }
                Ok(Answered { response, connection: None, was_used, in_use: None })
            }
            Err(error) if is_closed(&error) => send_apart(&sender.dial, repeated).await,
            Err(error) => {
                tracing::debug!(%error, "no answer of an origin");
                Err(code_of(&error))
            }
        }
    }

    /// Closes what is kept for a device.
    pub fn forget(&self, device: DeviceId) {
        self.clients.lock().remove(&device);
    }

    fn sender(&self, device: DeviceId) -> Arc<Sender> {
        let (now, mut clients) = (Instant::now(), self.clients.lock());
        if let Some(used) = clients.get_mut(&device) {
            used.at = now;
            return used.sender.clone();
        }
        // A connection that is kept for one of these closes sooner than it might.
        clients.retain(|_, used| now.saturating_duration_since(used.at) < IDLE_MAX);
        let dial = Dial::new(self.egress.clone(), device, &self.trust.lock());
        let client = Client::builder(TokioExecutor::new())
            .pool_timer(TokioTimer::new())
            .pool_idle_timeout(IDLE_MAX)
            .pool_max_idle_per_host(IDLE_OF_ORIGIN)
            .http1_title_case_headers(true)
            .http1_max_buf_size(HEAD_BYTES)
            .http1_max_headers(hoop_head::FIELDS_MAX)
            .build(dial.clone());
        let sender = Arc::new(Sender { client, multiplexed: Multiplexed::default(), dial });
        clients.insert(device, Used { sender: sender.clone(), at: now });
        sender
    }
}

/// Sends it over a connection that takes no other.
async fn send_apart(dial: &Dial, mut request: Request<Body>) -> Result<Answered, u64> {
    let connection = dial.connect(request.uri()).await?;
    let fail = |error: hyper::Error| {
        tracing::debug!(%error, "no answer of an origin");
        if is_no_answer(&error) { codes::NO_HTTP } else { codes::BROKEN }
    };
    let stop = connection.stop();
    limit_interim(&mut request, move || stop.stop());
    let mut builder = http1::Builder::new();
    builder.title_case_headers(true).max_buf_size(HEAD_BYTES).max_headers(hoop_head::FIELDS_MAX);
    let (mut sender, driver) = builder.handshake(TokioIo::new(connection.reset_by_drop())).await.map_err(fail)?;
    let mut connection = JoinSet::new();
    connection.spawn(async move {
        let _ = driver.await.inspect_err(|error| tracing::debug!(%error, "an exchange broke off"));
    });
    let uri = std::mem::take(request.uri_mut());
    let host = uri.authority().and_then(|authority| HeaderValue::from_str(authority.as_str()).ok());
    host.into_iter().for_each(|host| drop(request.headers_mut().insert(HOST, host)));
    *request.uri_mut() = uri.path_and_query().cloned().unwrap_or(PathAndQuery::from_static("/")).into();
    let response = sender.send_request(request).await.map_err(fail)?;
    // Without the sender, the connection ends after this answer.
    Ok(Answered { response, connection: Some(connection), was_used: false, in_use: None })
}

/// Whether a request may be sent twice, and asks for nothing that would hold for its whole connection. Some web servers answer `HEAD` with a body, which the next answer would begin with.
fn may_repeat(request: &Request<Body>) -> bool {
    request.method() != Method::HEAD
        && http_body::Body::is_end_stream(request.body())
        && request.method().is_idempotent()
        && !asks_for_connection(request.headers())
}

/// Whether a program signs on with a request, for its whole connection.
pub(crate) fn asks_for_connection(headers: &HeaderMap) -> bool {
    headers.get_all(AUTHORIZATION).iter().any(|value| {
        let scheme = value.as_bytes().split(|byte| *byte == b' ').next().unwrap_or_default();
        scheme.eq_ignore_ascii_case(b"ntlm") || scheme.eq_ignore_ascii_case(b"negotiate")
    })
}

/// The same, of a request without a body.
fn copy(request: &Request<Body>) -> Request<Body> {
    let mut copy = Request::new(empty());
    *copy.method_mut() = request.method().clone();
    *copy.uri_mut() = request.uri().clone();
    copy.headers_mut().clone_from(request.headers());
    copy
}

/// An error, and what caused it.
fn causes(error: &Error) -> impl Iterator<Item = &(dyn std::error::Error + 'static)> {
    std::iter::successors(Some(error as &dyn std::error::Error), |error| error.source())
}

/// Whether an origin that has answered over this connection closed it instead of answering again.
fn is_closed(error: &Error) -> bool {
    let mut of_connection = Extensions::new();
    error.connect_info().inspect(|info| info.get_extras(&mut of_connection));
    if !of_connection.get::<HasAnswered>().is_some_and(|has| has.0.load(Ordering::Relaxed)) {
        return false;
    }
    let is_reset = |error: &io::Error| matches!(error.kind(), ErrorKind::ConnectionReset | ErrorKind::BrokenPipe);
    causes(error).any(|cause| {
        cause.downcast_ref().is_some_and(|error: &hyper::Error| error.is_incomplete_message() || error.is_canceled())
            || cause.downcast_ref().is_some_and(is_reset)
    })
}

/// What [`Dial`] said. Otherwise the origin was reached, and what came is no answer.
fn code_of(error: &Error) -> u64 {
    let not_reached = causes(error).find_map(|cause| cause.downcast_ref::<NotReached>());
    let is_no_http = causes(error).any(|cause| cause.downcast_ref().is_some_and(is_no_answer));
    not_reached.map_or(if is_no_http { codes::NO_HTTP } else { codes::BROKEN }, |NotReached(code)| *code)
}
