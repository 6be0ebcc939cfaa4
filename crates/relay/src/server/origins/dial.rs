//! Connections to origins, over TCP or TLS: [`Dial`] makes them for one device.

use super::super::egress::Egress;
use super::super::metered::Metered;
use crate::codes;
use hoop_endpoint::DeviceId;
use hoop_http::Stop;
use hoop_tls::{Above, Allowance, Below};
use hoop_units::plain;
use http::Uri;
use http::uri::Scheme;
use hyper_util::client::legacy::connect::{Connected, Connection};
use hyper_util::rt::TokioIo;
use parking_lot::Mutex;
use rustls::ClientConfig;
use rustls::client::Resumption;
use rustls::pki_types::ServerName;
use std::collections::HashMap;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::timeout;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tower_service::Service;

/// How long a connection is kept for the next request, and up to twice that. Servers keep theirs for 5 s (Apache) to 75 s (nginx).
pub(super) const IDLE_MAX: Duration = Duration::from_secs(15);

/// A kept connection may have been forgotten on its way. So long what is sent over it may stay without an acknowledgement.
pub(super) const SILENT_MAX: Duration = Duration::from_secs(20);

/// How long an origin has for the TLS handshake, which takes two round trips.
const TLS_MAX: Duration = Duration::from_secs(20);

/// How many TLS sessions of a device are remembered, so that the next connection takes one round trip less: some KiB each.
const SESSIONS: usize = 32;

/// HTTP/2 by its name in TLS (RFC 9113 §3.1).
const H2: &[u8] = b"h2";

/// Why there is no connection.
#[derive(Debug, thiserror::Error)]
#[error("no connection, code {0:#x}")]
pub(super) struct NotReached(pub(super) u64);

/// Whether a kept connection has brought an answer.
#[derive(Clone, Default, Debug)]
pub(super) struct HasAnswered(pub(super) Arc<AtomicBool>);

/// Connects for one device.
#[derive(Clone, Debug)]
pub(super) struct Dial {
    egress: Arc<Egress>,
    device: DeviceId,
    /// Offers HTTP/1.1 alone. No other device shares its sessions: an origin would know one by another's.
    tls: Arc<ClientConfig>,
    /// Offers HTTP/2 as well.
    tls_h2: Arc<ClientConfig>,
    /// Connections over HTTP/1.1 that were made before it was known that they would be, by origin, each for the request that made it.
    spares: Arc<Spares>,
}

type Spares = Mutex<HashMap<String, Reached>>;

/// Closes a connection that was kept and not needed.
pub(super) struct ClosesSpare(Arc<Spares>, String);

impl Drop for ClosesSpare {
    fn drop(&mut self) {
        self.0.lock().remove(&self.1);
    }
}

impl Dial {
    /// `trust`: whom it believes.
    pub(super) fn new(egress: Arc<Egress>, device: DeviceId, trust: &ClientConfig) -> Self {
        let mut tls = trust.clone();
        tls.resumption = Resumption::in_memory_sessions(SESSIONS);
        tls.alpn_protocols = vec![b"http/1.1".to_vec()];
        let mut tls_h2 = tls.clone();
        tls_h2.alpn_protocols.insert(0, H2.to_vec());
        Self { egress, device, tls: Arc::new(tls), tls_h2: Arc::new(tls_h2), spares: Arc::default() }
    }

    /// A connection that speaks HTTP/1.1 to the origin of this URI.
    pub(super) async fn connect(&self, origin: &Uri) -> Result<Reached, u64> {
        let spare = self.spares.lock().remove(&spare_of(origin));
        match spare {
            Some(spare) => Ok(spare),
            None => self.reach(origin, &self.tls).await,
        }
    }

    /// A connection that may speak HTTP/2 to the origin of this `https` URI ([`Reached::speaks_h2`]).
    pub(super) async fn connect_either(&self, origin: &Uri) -> Result<Reached, u64> {
        self.reach(origin, &self.tls_h2).await
    }

    /// Keeps a connection over HTTP/1.1 for the next call of [`Dial::connect`].
    pub(super) fn keep(&self, origin: &Uri, spare: Reached) {
        self.spares.lock().insert(spare_of(origin), spare);
    }

    /// Closes what is kept for an origin once this is dropped, if it was not needed.
    pub(super) fn closes_spare(&self, origin: &Uri) -> ClosesSpare {
        ClosesSpare(self.spares.clone(), spare_of(origin))
    }

    async fn reach(&self, origin: &Uri, tls: &Arc<ClientConfig>) -> Result<Reached, u64> {
        let metered = self.egress.connect(&destination(origin), self.device).await?;
        if origin.scheme() != Some(&Scheme::HTTPS) {
            return Ok(Reached::Plain(metered));
        }
        let host = origin.host().unwrap_or_default().trim_start_matches('[').trim_end_matches(']');
        let host = host.strip_suffix('.').unwrap_or(host).to_owned();
        let name = ServerName::try_from(host).map_err(|_| codes::NO_TLS)?;
        let allowance = Allowance::default();
        let speaking = TlsConnector::from(tls.clone()).connect(name, allowance.below(metered));
        let stream = timeout(TLS_MAX, speaking).await.map_err(|_| codes::TIMED_OUT)?;
        stream.map(|stream| Reached::Tls(Box::new(allowance.above(stream)))).map_err(|error| {
            if self.egress.refusals.are_written(self.device, Instant::now()) {
                let (device, why) = (hex::encode(self.device.0), plain::line(&error.to_string()));
                tracing::info!(device, to = destination(origin), why, "no TLS with a host that a device entrusts");
            }
            refusal_of(&error)
        })
    }
}

/// What a spare connection is for: `http` to the same port is something else.
fn spare_of(origin: &Uri) -> String {
    format!("{} {}", origin.scheme_str().unwrap_or_default(), destination(origin))
}

/// Why an origin is not spoken to by TLS.
fn refusal_of(error: &io::Error) -> u64 {
    match error.get_ref().and_then(|error| error.downcast_ref::<rustls::Error>()) {
        Some(rustls::Error::InvalidCertificate(_)) => codes::UNTRUSTED,
        _ => codes::NO_TLS,
    }
}

/// The host and the port of a URI.
pub(super) fn destination(origin: &Uri) -> String {
    let default = if origin.scheme() == Some(&Scheme::HTTPS) { 443 } else { 80 };
    format!("{}:{}", origin.host().unwrap_or_default(), origin.port_u16().unwrap_or(default))
}

impl Service<Uri> for Dial {
    type Response = TokioIo<Reached>;
    type Error = NotReached;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, NotReached>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), NotReached>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, origin: Uri) -> Self::Future {
        let dial = self.clone();
        Box::pin(async move {
            let connection = dial.connect(&origin).await.map_err(NotReached)?;
            connection.metered().breaks_after(SILENT_MAX);
            Ok(TokioIo::new(connection))
        })
    }
}

/// A connection to an origin.
#[derive(Debug)]
pub(super) enum Reached {
    Plain(Metered),
    Tls(Box<Above<TlsStream<Below<Metered>>>>),
}

impl Reached {
    /// The connection below TLS.
    pub(super) fn metered(&self) -> &Metered {
        match self {
            Self::Plain(metered) => metered,
            Self::Tls(tls) => tls.get_ref().get_ref().0.get_ref(),
        }
    }

    /// Whether the origin chose HTTP/2.
    pub(super) fn speaks_h2(&self) -> bool {
        matches!(self, Self::Tls(tls) if tls.get_ref().get_ref().1.alpn_protocol() == Some(H2))
    }

    /// What ends it.
    pub(super) fn stop(&self) -> Stop {
        self.metered().stop()
    }

    /// The same, reset if it is dropped before it was shut down.
    pub(super) fn reset_by_drop(self) -> Self {
        match self {
            Self::Plain(metered) => Self::Plain(metered.reset_by_drop()),
            Self::Tls(mut tls) => {
                tls.get_mut().get_mut().0.get_mut().resets_by_drop();
                Self::Tls(tls)
            }
        }
    }
}

impl Connection for Reached {
    fn connected(&self) -> Connected {
        Connected::new().extra(HasAnswered::default()).extra(self.stop())
    }
}

/// Calls the method of whichever it is.
macro_rules! either {
    ($self:ident, $method:ident $(, $argument:expr)*) => {
        match $self.get_mut() {
            Reached::Plain(stream) => Pin::new(stream).$method($($argument),*),
            Reached::Tls(stream) => Pin::new(stream).$method($($argument),*),
        }
    };
}

impl AsyncRead for Reached {
    fn poll_read(self: Pin<&mut Self>, context: &mut Context<'_>, into: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        either!(self, poll_read, context, into)
    }
}

impl AsyncWrite for Reached {
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, from: &[u8]) -> Poll<io::Result<usize>> {
        either!(self, poll_write, context, from)
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        either!(self, poll_flush, context)
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        either!(self, poll_shutdown, context)
    }
}
