//! Connections of programs to entrusted hosts: the agent speaks TLS for the host ([`serve`]), and the relay makes the requests.
//!
//! Bounds: a handshake has [`TLS_TIME`], and a connection carries [`STREAMS_MAX`] requests at once. One without any ends after [`IDLE_MAX`] to twice that.

use crate::authority::Authority;
use crate::destination::Destination;
use crate::forward::HEAD_BYTES;
use crate::socket::UnderWay;
use crate::spoken::http1;
use hoop_http::Body;
use hoop_tls::Allowance;
use http::header::{COOKIE, HOST, HeaderMap, HeaderValue};
use http::uri::{Authority as UriAuthority, PathAndQuery, Scheme};
use http::{Request, Response, Uri};
use hyper::body::Incoming;
use hyper::server::conn::http2;
use hyper::service::service_fn;
use hyper::upgrade::OnUpgrade;
use hyper_util::rt::{TokioExecutor, TokioIo};
use std::convert::Infallible;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use tokio::time::{sleep, timeout};
use tokio_rustls::TlsAcceptor;

/// How long a program may take for its handshake, which is on this machine.
const TLS_TIME: Duration = Duration::from_secs(10);

/// How many requests a program may make at once over one connection: more than browsers make, and each is a flow.
const STREAMS_MAX: u32 = 256;

/// How long a connection over HTTP/2 may rest, and up to twice that.
const IDLE_MAX: Duration = Duration::from_secs(60);

/// How much of an answer waits in a connection to a program that does not read, in bytes.
const SEND_BYTES: usize = 256 << 10;

/// Serves what a program says over a tunnel to this host, as the host. `answer` has the answers to its requests, whose addresses are absolute.
pub(crate) async fn serve<F: Future<Output = Response<Body>> + Send + 'static>(
    program: OnUpgrade,
    destination: &Destination,
    authority: &Authority,
    under_way: UnderWay,
    answer: impl Fn(Result<Request<Incoming>, NotFor>) -> F + Clone + Send + Sync + 'static,
) {
    let Some(name) = destination.name() else { return };
    // It has gone before it was answered.
    let Ok(program) = program.await else { return };
    let config = match authority.speak_as(name) {
        Ok(config) => config,
        Err(error) => return tracing::warn!(%error, "a program cannot be served"),
    };
    let allowance = Allowance::default();
    let speaking = TlsAcceptor::from(config).accept(allowance.below(TokioIo::new(program)));
    let stream = match timeout(TLS_TIME, speaking).await {
        Ok(Ok(stream)) => stream,
        Ok(Err(error)) => {
            return tracing::debug!(%error, %destination, "a program does not take the agent for the host");
        }
        Err(_) => return,
    };
    let speaks_h2 = stream.get_ref().1.alpn_protocol() == Some(b"h2");
    let stream = TokioIo::new(allowance.above(stream));
    let (requests, destination) = (Arc::<Requests>::default(), destination.clone());
    let counted = requests.clone();
    let service = service_fn(move |request| {
        let (begun, answer) = (counted.begin(), answer.clone());
        let request = within(request, &destination);
        async move {
            let answered = answer(request).await;
            drop(begun);
            Ok::<_, Infallible>(answered)
        }
    });
    let serving = async {
        if !speaks_h2 {
            return http1().serve_connection(stream, service).with_upgrades().await;
        }
        let mut builder = http2::Builder::new(TokioExecutor::new());
        builder
            .max_concurrent_streams(STREAMS_MAX)
            .max_header_list_size(HEAD_BYTES as u32)
            .max_send_buf_size(SEND_BYTES);
        let mut serving = pin!(builder.serve_connection(stream, service));
        loop {
            tokio::select! {
                served = &mut serving => return served,
                () = requests.rest() => serving.as_mut().graceful_shutdown(),
            }
        }
    };
    tokio::select! {
        served = serving => drop(served.inspect_err(|error| tracing::debug!(%error, "a program's connection broke off"))),
        _ = under_way.program_left() => {}
    }
}

/// A request that is not for the host that its connection is to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct NotFor;

/// The request with an absolute address: that of its connection's host.
fn within(mut request: Request<Incoming>, destination: &Destination) -> Result<Request<Incoming>, NotFor> {
    let of_field = request.headers().get(HOST).map(|host| UriAuthority::try_from(host.as_bytes()));
    let told = match (request.uri().authority().cloned(), of_field) {
        (Some(authority), _) => authority,
        (None, Some(Ok(authority))) => authority,
        (None, _) => return Err(NotFor),
    };
    let is_it = Destination::parse(told.as_str(), Some(443)).is_some_and(|told| told.is_same_as(destination));
    let is_https = request.uri().scheme().is_none_or(|scheme| *scheme == Scheme::HTTPS);
    let mut parts = std::mem::take(request.uri_mut()).into_parts();
    parts.path_and_query.get_or_insert(PathAndQuery::from_static("/"));
    (parts.scheme, parts.authority) = (Some(Scheme::HTTPS), Some(told));
    *request.uri_mut() = Uri::from_parts(parts).map_err(|_| NotFor)?;
    join_cookies(request.headers_mut());
    if is_it && is_https { Ok(request) } else { Err(NotFor) }
}

/// By HTTP/2 each cookie may be a field of its own. Otherwise there is one field (RFC 9113 §8.2.3).
fn join_cookies(headers: &mut HeaderMap) {
    let cookies: Vec<_> = headers.get_all(COOKIE).iter().map(HeaderValue::as_bytes).collect();
    if cookies.len() > 1
        && let Ok(joined) = HeaderValue::from_bytes(&cookies.join(&b"; "[..]))
    {
        headers.insert(COOKIE, joined);
    }
}

/// How many requests a connection has had, and how many are being answered.
#[derive(Default, Debug)]
struct Requests {
    had: AtomicUsize,
    answering: Arc<()>,
}

impl Requests {
    fn begin(&self) -> Arc<()> {
        self.had.fetch_add(1, Ordering::Relaxed);
        self.answering.clone()
    }

    /// Returns when there has been none for some time.
    async fn rest(&self) {
        loop {
            let had = self.had.load(Ordering::Relaxed);
            sleep(IDLE_MAX).await;
            if self.had.load(Ordering::Relaxed) == had && Arc::strong_count(&self.answering) == 1 {
                return;
            }
        }
    }
}
