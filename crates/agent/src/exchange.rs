//! Requests for `http://`, and `https://` of entrusted hosts, that the relay makes: each is a flow of its own, so that an answer that is slow keeps nobody waiting.

use crate::destination::Destination;
use crate::failure::Failure;
use crate::question::{Came, Continuation, NoAnswer, ask, length, section};
use crate::socket::UnderWay;
use crate::tunnel::Dialer;
use crate::upload::{Upload, journal};
use bytes::Bytes;
use hoop_endpoint::FlowError;
use hoop_http::{Body, streamed};
use hoop_relay::codes;
use hoop_relay::exchange::FlowBody;
use hoop_units::UnixTime;
use http::header::CONTENT_LENGTH;
use http::uri::Scheme;
use http::{Method, Request, Response, StatusCode, request};
use http_body::{Frame, SizeHint};
use hyper::body::Incoming;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use tokio::sync::oneshot;

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
    deadline: Option<UnixTime>,
    dialer: &Arc<Dialer>,
    under_way: &UnderWay,
) -> Result<Exchanged, Failure> {
    let has_body = !http_body::Body::is_end_stream(request.body());
    let exchanges = &dialer.exchanges;
    let is_https = request.uri().scheme() == Some(&Scheme::HTTPS);
    // Of a relay that may know no exchanges nothing is asked that could not be asked again. Before a body without a length there may be an answer, and the relay would wait for its first
    // bytes.
    let may_wait = has_body && !request.headers().contains_key(CONTENT_LENGTH);
    let journal = match !request.method().is_safe() && !may_wait && !exchanges.are_refused() {
        true => journal(dialer, destination).await?,
        false => None,
    };
    // An entrusted host's certificate is the relay's to check, if it does.
    let is_doubtful = !is_https && (may_wait || (has_body && !exchanges.are_known()));
    if journal.is_none() && (exchanges.are_refused() || is_doubtful) {
        return Ok(Exchanged::NotMade(request));
    }
    let (head, body) = request.into_parts();
    // What heads cannot say, a connection can.
    let Some(section) = section(&head) else { return Ok(Exchanged::NotMade(Request::from_parts(head, body))) };
    if let Some(journal) = journal {
        let upload = Upload { dialer, destination, deadline, head: &head, section: &section, journal };
        let came = upload.make(body).await?;
        exchanges.learn(true);
        let mut continuation =
            Continuation::new(dialer.clone(), destination.clone(), deadline, head.clone(), came.flow);
        continuation.begin(&came);
        return Ok(Exchanged::Answered(answer(came, &head, Some(continuation), under_way)));
    }
    let dialled = dialer.exchange(destination, None)?;
    dialled.flow.set_deadline(deadline);
    let may_continue = head.method == Method::GET && !has_body;
    let mut continuation = may_continue.then(|| {
        let flow = dialled.flow.name().flow;
        Continuation::new(dialer.clone(), destination.clone(), deadline, head.clone(), flow)
    });
    let (body, kept) = if has_body { (Some(body), None) } else { (None, Some(body)) };
    let came = match (ask(dialled, None, &section, body, dialer).await, &mut continuation) {
        (Ok(came), _) => came,
        (Err(no), Some(continuation)) if no.is_lost(exchanges.are_known()) => continuation.go_on(0).await?,
        (Err(NoAnswer { over, .. }), _) => {
            if over == Some(FlowError::Ended(codes::MALFORMED)) {
                // It may have been replaced by an older one.
                exchanges.learn(false);
                if let Some(body) = kept {
                    return Ok(Exchanged::NotMade(Request::from_parts(head, body)));
                }
            }
            over.inspect(|over| dialer.connector.say_refused(&destination.to_string(), *over, false));
            return Err(over.map_or(Failure::Broken, Into::into));
        }
    };
    exchanges.learn(true);
    continuation.iter_mut().for_each(|continuation| continuation.begin(&came));
    Ok(Exchanged::Answered(answer(came, &head, continuation, under_way)))
}

/// An answer as the program gets it.
fn answer(
    came: Came,
    request: &request::Parts,
    continuation: Option<Continuation>,
    under_way: &UnderWay,
) -> Response<Body> {
    let is_empty = request.method == Method::HEAD
        || came.head.status == StatusCode::NO_CONTENT
        || came.head.status == StatusCode::NOT_MODIFIED;
    let length = if is_empty { Some(0) } else { length(&came.head.headers) };
    let head = came.head.clone();
    let (body, whole) = came.into_body(length);
    let answering = Answer {
        reading: Reading::Comes(body),
        at: 0,
        continuation: continuation.map(Box::new),
        whole: Some(whole),
        under_way: under_way.clone(),
    };
    Response::from_parts(head, streamed(answering))
}

/// An answer's body. When it has come to its end, the program's connection carries nothing any more.
struct Answer {
    reading: Reading,
    /// How much of it the program was given, in bytes.
    at: u64,
    /// Goes on with it where the relay has lost it.
    continuation: Option<Box<Continuation>>,
    /// Whoever sends the request's body is told, and that it was dropped before.
    whole: Option<oneshot::Sender<()>>,
    under_way: UnderWay,
}

enum Reading {
    Comes(FlowBody),
    /// It was lost, and is asked for again.
    Asked(Asking),
}

/// Whatever comes of asking again, and what asks.
type Asking = Pin<Box<dyn Future<Output = (Box<Continuation>, Result<Came, Failure>)> + Send>>;

impl Answer {
    fn ends(&mut self) {
        self.under_way.ends();
        self.whole.take().map(|whole| whole.send(()));
    }

    /// Asks again, if the relay knows nothing of the exchange any more.
    fn go_on(&mut self, error: io::Error) -> Result<(), io::Error> {
        let (at, over) = (self.at, FlowError::of(&error));
        let goes_on = self.continuation.as_ref().is_some_and(|continuation| continuation.goes_on_after(over, at));
        let Some(mut continuation) = self.continuation.take_if(|_| goes_on) else { return Err(error) };
        tracing::debug!(at, destination = %continuation.destination, "an answer goes on at another relay");
        self.reading = Reading::Asked(Box::pin(async move {
            let came = continuation.go_on(at).await;
            (continuation, came)
        }));
        Ok(())
    }
}

impl http_body::Body for Answer {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        loop {
            match &mut self.reading {
                Reading::Comes(body) => match ready!(Pin::new(body).poll_frame(context)) {
                    None => {
                        self.ends();
                        return Poll::Ready(None);
                    }
                    Some(Ok(frame)) => {
                        self.at += frame.data_ref().map_or(0, |data| data.len() as u64);
                        return Poll::Ready(Some(Ok(frame)));
                    }
                    Some(Err(error)) => {
                        if let Err(error) = self.go_on(error) {
                            return Poll::Ready(Some(Err(error)));
                        }
                    }
                },
                Reading::Asked(asked) => {
                    let (continuation, came) = ready!(asked.as_mut().poll(context));
                    let came = came.map_err(|failure| io::Error::other(failure.words()));
                    let (body, whole) = came?.into_body(continuation.left(self.at));
                    (self.reading, self.whole) = (Reading::Comes(body), Some(whole));
                    self.continuation = Some(continuation);
                }
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        matches!(&self.reading, Reading::Comes(body) if body.is_end_stream())
    }

    fn size_hint(&self) -> SizeHint {
        match &self.reading {
            Reading::Comes(body) => body.size_hint(),
            Reading::Asked(_) => SizeHint::new(),
        }
    }
}

impl Drop for Answer {
    fn drop(&mut self) {
        // Nobody asks for the end of a body that has none to give.
        if http_body::Body::is_end_stream(self) {
            self.ends();
        }
    }
}
