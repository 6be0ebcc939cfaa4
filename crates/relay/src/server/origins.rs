//! Connections to origins, kept for a device's next request: [`Origins`].
//!
//! Each device has connections of its own. Some origins know a client by its connection (NTLM), and another device's requests must never be taken for that client's.
//!
//! Bounds: a connection counts as its device's ([`Egress`]) and is kept idle for [`IDLE_MAX`]. So many are kept for each origin, and a client for each device of the relay's file.

use super::egress::Egress;
use super::metered::Metered;
use crate::codes;
use hoop_endpoint::DeviceId;
use hoop_http::Body;
use http::{Request, Response, Uri};
use hyper::body::Incoming;
use hyper_util::client::legacy::connect::{Connected, Connection};
use hyper_util::client::legacy::{Client, Error};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use parking_lot::Mutex;
use std::collections::HashMap;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};
use tower_service::Service;

/// How long a connection is kept for the next request. Servers keep theirs for 5 s (Apache) to 75 s (nginx).
const IDLE_MAX: Duration = Duration::from_secs(30);

/// How many are kept idle for one origin: as many as browsers open.
const IDLE_OF_ORIGIN: usize = 6;

/// The most bytes of an answer's head.
const HEAD_BYTES: usize = 256 << 10;

/// What sends requests to origins.
#[derive(Debug)]
pub(crate) struct Origins {
    pub egress: Arc<Egress>,
    clients: Mutex<HashMap<DeviceId, Used>>,
}

#[derive(Debug)]
struct Used {
    client: Client<Dial, Body>,
    at: Instant,
}

impl Origins {
    pub fn new(egress: Arc<Egress>) -> Self {
        Self { egress, clients: Mutex::default() }
    }

    /// Sends a device's request to the origin that its URI names, over a connection of that device's. A request that a kept connection did not take, since the origin closed it, goes over another.
    ///
    /// # Errors
    /// The code that says why there is no answer ([`codes`]).
    pub async fn send(&self, device: DeviceId, request: Request<Body>) -> Result<Response<Incoming>, u64> {
        let client = self.client(device);
        client.request(request).await.map_err(|error| {
            tracing::debug!(%error, "no answer of an origin");
            code_of(&error)
        })
    }

    /// Closes what is kept for a device.
    pub fn forget(&self, device: DeviceId) {
        self.clients.lock().remove(&device);
    }

    fn client(&self, device: DeviceId) -> Client<Dial, Body> {
        let (now, mut clients) = (Instant::now(), self.clients.lock());
        if let Some(used) = clients.get_mut(&device) {
            used.at = now;
            return used.client.clone();
        }
        // Whoever has sent nothing for so long has no connection that is kept.
        clients.retain(|_, used| now.saturating_duration_since(used.at) < IDLE_MAX);
        let client = Client::builder(TokioExecutor::new())
            .pool_timer(TokioTimer::new())
            .pool_idle_timeout(IDLE_MAX)
            .pool_max_idle_per_host(IDLE_OF_ORIGIN)
            .http1_preserve_header_case(true)
            .http1_max_buf_size(HEAD_BYTES)
            .http1_max_headers(hoop_head::FIELDS_MAX)
            .build(Dial { egress: self.egress.clone(), device });
        clients.insert(device, Used { client: client.clone(), at: now });
        client
    }
}

/// Why there is no connection.
#[derive(Debug, thiserror::Error)]
#[error("no connection, code {0:#x}")]
struct NotReached(u64);

/// Looks for what [`Dial`] said. Otherwise the origin was reached, and what came is no answer.
fn code_of(error: &Error) -> u64 {
    let mut cause: Option<&(dyn std::error::Error + 'static)> = Some(error);
    while let Some(error) = cause {
        if let Some(NotReached(code)) = error.downcast_ref() {
            return *code;
        }
        if error.downcast_ref().is_some_and(hyper::Error::is_parse) {
            return codes::NO_HTTP;
        }
        cause = error.source();
    }
    codes::BROKEN
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
