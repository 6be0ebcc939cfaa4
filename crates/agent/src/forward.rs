//! Requests (RFC 9112 §3.2.2) that go over a connection of their own: those that ask for another protocol (`Upgrade`), and those that the relay does not make
//! ([`crate::exchange`] is for all others). To an entrusted host the agent speaks TLS itself.

use crate::destination::Destination;
use crate::failure::Failure;
use crate::socket::UnderWay;
use crate::tunnel::{Dialer, Dialled};
use crate::upstream::Upstream;
use bytes::Bytes;
use hoop_http::{
    Body, Stop, Stoppable, UnclearLength, connection_options, end_hop, is_no_answer, limit_interim, settle_length,
    streamed,
};
use hoop_relay::exchange::via;
use http::header::{CONNECTION, CONTENT_LENGTH, HOST, HeaderMap, TRANSFER_ENCODING, UPGRADE, VIA};
use http::uri::{PathAndQuery, Scheme};
use http::{HeaderValue, Request, Response, StatusCode, Uri, Version};
use http_body::{Frame, SizeHint};
use hyper::body::Incoming;
use hyper::client::conn::http1;
use hyper::upgrade::OnUpgrade;
use hyper_util::rt::TokioIo;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use tokio::io::AsyncWriteExt as _;
use tokio::sync::oneshot;
use tokio::time::Instant;

/// The longest head of a request or an answer, with cookies, and the fields in it.
pub(crate) const HEAD_BYTES: usize = 256 << 10;
pub(crate) const FIELDS: usize = 256;

/// Passes a request on, and its answer back.
pub(crate) async fn forward(
    mut request: Request<Incoming>,
    destination: &Destination,
    dialer: &Arc<Dialer>,
    under_way: &UnderWay,
) -> Result<Response<Body>, Failure> {
    let Dialled { flow, listed } = dialer.open(destination)?;
    let mut status = flow.status();
    let mut builder = http1::Builder::new();
    builder.preserve_header_case(true).max_buf_size(HEAD_BYTES).max_headers(FIELDS);
    let (waiting, begun) = (dialer.clone(), Instant::now());
    let upstream = if request.uri().scheme() == Some(&Scheme::HTTPS) {
        let (host, tls) = (destination.host(), dialer.tls.clone().ok_or(Failure::NoTls)?);
        let secured = tokio::select! {
            secured = Upstream::secure(flow, &host, tls) => secured,
            () = dialer.connector.is_in_vain(begun) => return Err(Failure::NoRelay),
        };
        secured.inspect_err(|_| {
            let over = status.borrow_and_update().over;
            over.inspect(|over| dialer.connector.say_refused(&destination.to_string(), *over, false));
        })?
    } else {
        Upstream::Plain(flow)
    };
    let upstream = Stoppable::new(upstream);
    let stop = upstream.stop();
    let (whole, answered) = oneshot::channel();
    let answer = Wanted { stop: stop.clone(), whole: Some(whole) };
    let (mut sender, connection) = builder.handshake(TokioIo::new(upstream)).await.map_err(|_| Failure::Broken)?;
    let carrying = tokio::spawn(async move {
        tokio::select! {
            ended = connection.with_upgrades() => {
                let _ = ended.inspect_err(|error| tracing::debug!(%error, "an exchange broke off"));
            }
            () = waiting.connector.is_in_vain(begun) => {}
            // A write may wait for a destination that takes nothing more.
            Err(_) = answered => {}
        }
        listed
    });
    let wanted = upgrade(request.headers());
    let program = wanted.is_some().then(|| hyper::upgrade::on(&mut request));
    let mut outgoing = outgoing(request, wanted);
    limit_interim(&mut outgoing, move || stop.stop());
    let answered = tokio::select! {
        answered = sender.send_request(outgoing) => answered,
        () = dialer.connector.is_in_vain(begun) => return Err(Failure::NoRelay),
    };
    let mut response = match answered {
        Ok(response) => response,
        Err(error) => {
            tracing::debug!(%error, %destination, "no answer");
            if error.is_user() {
                return Err(Failure::NoRequest);
            }
            // Its flow may have been reset since.
            if is_no_answer(&error) {
                return Err(Failure::NoHttp);
            }
            // Of a flow that broke off there is more to say than that it did.
            let over = status.borrow_and_update().over;
            over.inspect(|over| dialer.connector.say_refused(&destination.to_string(), *over, false));
            return Err(over.map_or(Failure::Broken, Into::into));
        }
    };
    if response.status() == StatusCode::SWITCHING_PROTOCOLS {
        let Some(program) = program else { return Err(Failure::NoHttp) };
        let origin = hyper::upgrade::on(&mut response);
        let (dialer, destination, under_way) = (dialer.clone(), destination.clone(), under_way.clone());
        tokio::spawn(async move {
            let (Ok(program), Ok((upstream, came))) = tokio::join!(program, switched(origin)) else { return };
            // Its connection is over as one of HTTP.
            let Ok(listed) = carrying.await else { return };
            let mut program = TokioIo::new(program);
            let passed = tokio::select! {
                written = program.write_all(&came) => written.is_ok(),
                _ = under_way.program_left() => false,
            };
            if passed {
                dialer.carry_over(program, &under_way, &destination, upstream, listed).await;
            }
        });
    }
    let (mut parts, body) = response.into_parts();
    settle_length(&mut parts.headers).map_err(|UnclearLength| Failure::NoHttp)?;
    let wanted = (parts.status == StatusCode::SWITCHING_PROTOCOLS).then(|| upgrade(&parts.headers)).flatten();
    pass(&mut parts.headers, wanted, parts.version);
    parts.version = Version::HTTP_11;
    Ok(Response::from_parts(parts, streamed(Whole { body, _sender: sender, answer, under_way: under_way.clone() })))
}

/// The connection after an answer 101, and what came with that.
async fn switched(origin: OnUpgrade) -> hyper::Result<(Upstream, Bytes)> {
    let parts = origin.await?.downcast::<TokioIo<Stoppable<Upstream>>>().expect("it was made of one");
    Ok((parts.io.into_inner().into_stream(), parts.read_buf))
}

/// The request as the origin gets it.
fn outgoing(mut request: Request<Incoming>, wanted: Option<HeaderValue>) -> Request<Incoming> {
    let uri = std::mem::take(request.uri_mut());
    let path = uri.path_and_query().cloned().unwrap_or_else(|| PathAndQuery::from_static("/"));
    let version = request.version();
    let has_unknown_length =
        !http_body::Body::is_end_stream(request.body()) && !request.headers().contains_key(CONTENT_LENGTH);
    pass(request.headers_mut(), wanted, version);
    if has_unknown_length {
        // hyper would leave out what it takes for no body.
        request.headers_mut().insert(TRANSFER_ENCODING, HeaderValue::from_static("chunked"));
    }
    // Whatever the program's field says, the request is for what its line says.
    let authority = uri.authority().and_then(|authority| HeaderValue::from_str(authority.as_str()).ok());
    authority.into_iter().for_each(|authority| drop(request.headers_mut().insert(HOST, authority)));
    *request.uri_mut() = Uri::from(path);
    *request.version_mut() = Version::HTTP_11;
    request
}

/// The protocol that a message asks to switch to, if it does.
pub(crate) fn upgrade(headers: &HeaderMap) -> Option<HeaderValue> {
    let named = connection_options(headers).any(|option| option.eq_ignore_ascii_case("upgrade"));
    headers.get(UPGRADE).filter(|_| named).cloned()
}

/// Takes the fields of one hop out (RFC 9110 §7.6.1), and adds `Via` (§7.6.3).
fn pass(headers: &mut HeaderMap, wanted: Option<HeaderValue>, version: Version) {
    end_hop(headers);
    if let Some(protocol) = wanted {
        headers.insert(CONNECTION, HeaderValue::from_static("upgrade"));
        headers.insert(UPGRADE, protocol);
    }
    headers.append(VIA, via(version));
}

/// An answer. Unless all of it has come when this is dropped, its connection ends, and its flow is reset: one that was shut down would go on, and its origin would send for nobody.
struct Wanted {
    stop: Stop,
    whole: Option<oneshot::Sender<()>>,
}

impl Drop for Wanted {
    fn drop(&mut self) {
        // Before the connection is told, so that it cannot shut the flow down.
        if self.whole.is_some() {
            self.stop.stop();
        }
    }
}

/// An answer's body. When it has come to its end, the program's connection carries nothing any more.
struct Whole {
    // It goes before the body, at whose end the connection would shut the flow down.
    answer: Wanted,
    body: Incoming,
    /// Without it, the connection to the origin ends.
    _sender: http1::SendRequest<Incoming>,
    under_way: UnderWay,
}

impl Whole {
    fn ends(&mut self) {
        self.answer.whole.take().map(|whole| whole.send(()));
        self.under_way.ends();
    }
}

impl http_body::Body for Whole {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        let frame = Pin::new(&mut self.body).poll_frame(context);
        if matches!(frame, Poll::Ready(None)) {
            self.ends();
        }
        frame
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

impl Drop for Whole {
    fn drop(&mut self) {
        // Nobody asks for the end of a body that has none to give.
        if http_body::Body::is_end_stream(&self.body) {
            self.ends();
        }
    }
}
