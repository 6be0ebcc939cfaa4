//! Requests for `http://` that the relay makes: each is a flow of its own, so that an answer that is slow keeps nobody waiting.

use crate::destination::Destination;
use crate::failure::Failure;
use crate::socket::UnderWay;
use crate::tunnel::{Dialer, Dialled};
use bytes::Bytes;
use hoop_endpoint::{FlowError, FlowWriter, ended};
use hoop_head::{decode_response, encode_request};
use hoop_http::{Body, end_hop, streamed};
use hoop_relay::codes;
use hoop_relay::exchange::{FlowBody, SECTION_BYTES, put, read_head, via};
use hoop_relay::status::Listed;
use http::header::{CONTENT_LENGTH, VIA};
use http::{Method, Request, Response, StatusCode, request};
use http_body::{Frame, SizeHint};
use http_body_util::BodyExt as _;
use hyper::body::Incoming;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use tokio::io::AsyncWriteExt as _;
use tokio::sync::oneshot;
use tokio::time::Instant;

/// What became of a request.
pub(crate) enum Exchanged {
    /// The relay has an answer.
    Answered(Response<Body>),
    /// The request goes over a connection of its own: the relay makes none, or not such a one.
    NotMade(Request<Incoming>),
}

/// Has the relay make a request, and passes its answer back.
pub(crate) async fn exchange(
    request: Request<Incoming>,
    destination: &Destination,
    dialer: &Arc<Dialer>,
    under_way: &UnderWay,
) -> Result<Exchanged, Failure> {
    let has_body = !http_body::Body::is_end_stream(request.body());
    let exchanges = &dialer.exchanges;
    // Of a relay that may know no exchanges nothing is asked that could not be asked again. Before a body without a length there may be an answer, and the relay would wait for its first
    // bytes.
    let may_wait = has_body && !request.headers().contains_key(CONTENT_LENGTH);
    if exchanges.are_refused() || may_wait || (has_body && !exchanges.are_known()) {
        return Ok(Exchanged::NotMade(request));
    }
    let (head, body) = request.into_parts();
    // What heads cannot say, a connection can.
    let Some(section) = section(&head) else { return Ok(Exchanged::NotMade(Request::from_parts(head, body))) };
    let Dialled { flow, listed } = dialer.exchange(destination)?;
    let mut status = flow.status();
    let (mut reader, mut writer) = flow.into_split();
    put(&section, &mut writer).await.map_err(|_| Failure::Broken)?;
    let (body, kept) = if has_body { (Some(body), None) } else { (None, Some(body)) };
    let (whole, answered) = oneshot::channel();
    tokio::spawn(send(body, writer, answered, dialer.clone(), listed));
    let (section, rest) = match read_head(&mut reader).await {
        Ok(read) => read,
        Err(error) => {
            let over = status.borrow_and_update().over;
            if over == Some(FlowError::Ended(codes::MALFORMED)) {
                // It may have been replaced by an older one.
                exchanges.learn(false);
                if let Some(body) = kept {
                    return Ok(Exchanged::NotMade(Request::from_parts(head, body)));
                }
            }
            tracing::debug!(%error, %destination, "no answer");
            over.inspect(|over| dialer.connector.say_refused(&destination.to_string(), *over, false));
            return Err(over.map_or(Failure::Broken, Into::into));
        }
    };
    exchanges.learn(true);
    let (answer, ()) = decode_response(&section).map_err(|_| Failure::NoHttp)?.into_parts();
    if answer.status.is_informational() {
        return Err(Failure::NoHttp);
    }
    let is_empty = head.method == Method::HEAD
        || answer.status == StatusCode::NO_CONTENT
        || answer.status == StatusCode::NOT_MODIFIED;
    let length = answer.headers.get(CONTENT_LENGTH).and_then(|length| length.to_str().ok()?.parse().ok());
    let length = if is_empty { Some(0) } else { length };
    let body = Answer { body: FlowBody::new(reader, rest, length), whole: Some(whole), under_way: under_way.clone() };
    Ok(Exchanged::Answered(Response::from_parts(answer, streamed(body))))
}

/// The head as the relay gets it; None if heads of exchanges cannot say it.
fn section(head: &request::Parts) -> Option<Vec<u8>> {
    let (mut head, mut section) = (head.clone(), Vec::new());
    end_hop(&mut head.headers);
    head.headers.append(VIA, via(head.version));
    let encoded = encode_request(&head, &mut section);
    encoded.inspect_err(|error| tracing::debug!(%error, "a request goes over a connection of its own")).ok()?;
    (section.len() <= SECTION_BYTES).then_some(section)
}

/// Sends a request's body, and resets the exchange if the body breaks off, if nobody waits for the answer any more, or if there has been no relay for too long. `answered`: the
/// answer is whole, or was dropped.
async fn send(
    body: Option<Incoming>,
    mut writer: FlowWriter,
    mut answered: oneshot::Receiver<()>,
    dialer: Arc<Dialer>,
    _listed: Listed,
) {
    let in_vain = dialer.connector.is_in_vain(Instant::now());
    let carried = async {
        let sent = async {
            let mut body = body;
            while let Some(frame) = next(&mut body).await {
                let data = frame.map_err(io::Error::other)?.into_data().unwrap_or_default();
                writer.write_chunk(data).await?;
            }
            writer.shutdown().await
        };
        tokio::select! {
            sent = sent => match sent {
                Ok(()) => (&mut answered).await.map_err(|_| ended::GIVEN_UP),
                Err(_) => Err(codes::MALFORMED),
            },
            // What nobody has read by the answer's end nobody will.
            _ = &mut answered => Err(ended::GIVEN_UP),
        }
    };
    let carried = tokio::select! {
        carried = carried => carried,
        () = in_vain => Err(ended::GIVEN_UP),
    };
    let _ = carried.inspect_err(|code| writer.reset(*code));
}

async fn next(body: &mut Option<Incoming>) -> Option<Result<Frame<Bytes>, hyper::Error>> {
    body.as_mut()?.frame().await
}

/// An answer's body. When it has come to its end, the program's connection carries nothing any more.
struct Answer {
    body: FlowBody,
    /// Whoever sends the request's body is told, and that it was dropped before.
    whole: Option<oneshot::Sender<()>>,
    under_way: UnderWay,
}

impl Answer {
    fn ends(&mut self) {
        self.under_way.ends();
        self.whole.take().map(|whole| whole.send(()));
    }
}

impl http_body::Body for Answer {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<io::Result<Frame<Bytes>>>> {
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

impl Drop for Answer {
    fn drop(&mut self) {
        // Nobody asks for the end of a body that has none to give.
        if http_body::Body::is_end_stream(&self.body) {
            self.ends();
        }
    }
}
