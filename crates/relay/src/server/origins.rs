//! Connections to origins, kept for a device's next request: [`Origins`].
//!
//! Each device has connections of its own. Some origins know a client by its connection (NTLM), and another device's requests must never be taken for that client's.
//!
//! Bounds: a connection counts as its device's ([`Egress`]) and is kept idle for [`IDLE_MAX`]. So many are kept for each origin, and a client for each device of the relay's file.

use super::egress::Egress;
use super::metered::Metered;
use crate::codes;
use crate::exchange::HEAD_BYTES;
use hoop_endpoint::DeviceId;
use hoop_http::{Body, empty};
use http::{Request, Response, Uri};
use hyper::body::Incoming;
use hyper_util::client::legacy::connect::{Connected, Connection};
use hyper_util::client::legacy::{Client, Error};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use parking_lot::Mutex;
use std::collections::HashMap;
use std::io::{self, ErrorKind};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};
use tower_service::Service;

/// How long a connection is kept for the next request. Servers keep theirs for 5 s (Apache) to 75 s (nginx).
const IDLE_MAX: Duration = Duration::from_secs(30);

/// How many are kept idle for one origin: as many as browsers open.
const IDLE_OF_ORIGIN: usize = 6;

/// What sends requests to origins.
#[derive(Debug)]
pub(crate) struct Origins {
    pub egress: Arc<Egress>,
    clients: Mutex<HashMap<DeviceId, Used>>,
}

#[derive(Debug)]
struct Used {
    clients: Clients,
    at: Instant,
}

/// What sends one device's requests.
#[derive(Clone, Debug)]
struct Clients {
    /// Over connections that are kept.
    kept: Client<Dial, Body>,
    /// Over new ones.
    fresh: Client<Dial, Body>,
}

impl Origins {
    pub fn new(egress: Arc<Egress>) -> Self {
        Self { egress, clients: Mutex::default() }
    }

    /// Sends a device's request to the origin that its URI names, over a connection of that device's.
    ///
    /// An origin may close a kept connection just as a request goes over it, and nobody then knows whether it took the request. So only requests that may be sent twice go over kept
    /// connections, and are sent once more then (RFC 9110 §9.2.2). Others have a new connection.
    ///
    /// # Errors
    /// The code that says why there is no answer ([`codes`]).
    pub async fn send(&self, device: DeviceId, request: Request<Body>) -> Result<Response<Incoming>, u64> {
        let Clients { kept, fresh } = self.clients(device);
        let is_empty = http_body::Body::is_end_stream(request.body());
        let again = (is_empty && request.method().is_idempotent()).then(|| {
            let mut again = Request::new(empty());
            *again.method_mut() = request.method().clone();
            *again.uri_mut() = request.uri().clone();
            again.headers_mut().clone_from(request.headers());
            again
        });
        let answered = match again {
            None => fresh.request(request).await,
            Some(again) => match kept.request(request).await {
                Err(error) if is_closed(&error) => fresh.request(again).await,
                answered => answered,
            },
        };
        answered.map_err(|error| {
            tracing::debug!(%error, "no answer of an origin");
            code_of(&error)
        })
    }

    /// Closes what is kept for a device.
    pub fn forget(&self, device: DeviceId) {
        self.clients.lock().remove(&device);
    }

    fn clients(&self, device: DeviceId) -> Clients {
        let (now, mut clients) = (Instant::now(), self.clients.lock());
        if let Some(used) = clients.get_mut(&device) {
            used.at = now;
            return used.clients.clone();
        }
        // Whoever has sent nothing for so long has no connection that is kept.
        clients.retain(|_, used| now.saturating_duration_since(used.at) < IDLE_MAX);
        let client = |idle: usize| {
            Client::builder(TokioExecutor::new())
                .pool_timer(TokioTimer::new())
                .pool_idle_timeout(IDLE_MAX)
                .pool_max_idle_per_host(idle)
                .http1_max_buf_size(HEAD_BYTES)
                .http1_max_headers(hoop_head::FIELDS_MAX)
                .build(Dial { egress: self.egress.clone(), device })
        };
        let made = Clients { kept: client(IDLE_OF_ORIGIN), fresh: client(0) };
        clients.insert(device, Used { clients: made.clone(), at: now });
        made
    }
}

/// Why there is no connection.
#[derive(Debug, thiserror::Error)]
#[error("no connection, code {0:#x}")]
struct NotReached(u64);

/// An error, and what caused it.
fn causes(error: &Error) -> impl Iterator<Item = &(dyn std::error::Error + 'static)> {
    std::iter::successors(Some(error as &dyn std::error::Error), |error| error.source())
}

/// Whether the origin closed the connection before it answered.
fn is_closed(error: &Error) -> bool {
    let is_reset = |error: &io::Error| matches!(error.kind(), ErrorKind::ConnectionReset | ErrorKind::BrokenPipe);
    causes(error).any(|cause| {
        cause.downcast_ref().is_some_and(|error: &hyper::Error| error.is_incomplete_message() || error.is_canceled())
            || cause.downcast_ref().is_some_and(is_reset)
    })
}

/// What [`Dial`] said. Otherwise the origin was reached, and what came is no answer.
fn code_of(error: &Error) -> u64 {
    let not_reached = causes(error).find_map(|cause| cause.downcast_ref::<NotReached>());
    let is_parse = causes(error).any(|cause| cause.downcast_ref().is_some_and(hyper::Error::is_parse));
    not_reached.map_or(if is_parse { codes::NO_HTTP } else { codes::BROKEN }, |NotReached(code)| *code)
}

/// Connects for one device.
#[derive(Clone, Debug)]
struct Dial {
    egress: Arc<Egress>,
    device: DeviceId,
}

impl Service<Uri> for Dial {
    type Response = TokioIo<Metered>;
    type Error = NotReached;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, NotReached>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), NotReached>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, origin: Uri) -> Self::Future {
        let Self { egress, device } = self.clone();
        Box::pin(async move {
            let destination = format!("{}:{}", origin.host().unwrap_or_default(), origin.port_u16().unwrap_or(80));
            let connection = egress.connect(&destination, device).await.map_err(NotReached)?;
            Ok(TokioIo::new(connection))
        })
    }
}

impl Connection for Metered {
    fn connected(&self) -> Connected {
        Connected::new()
    }
}
