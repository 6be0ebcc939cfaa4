//! Origins of a device that speak TLS: which version of HTTP each has, and the one connection to each that speaks HTTP/2 ([`Multiplexed`]).
//!
//! One connection at a time is made to an origin of which neither is known, whoever asks meanwhile: all of them wait for it, and hear the same if it fails.
//!
//! Bounds: [`ORIGINS_MAX`] origins are known of a device, and to each there is one connection. It holds at most what its [`Windows`] say that was not read, and closes as those of HTTP/1.1 do.

use super::super::places::WIDE;
use super::dial::{Dial, IDLE_MAX, Reached, SILENT_MAX, destination};
use super::frames::FrameLimit;
use crate::codes;
use crate::exchange::HEAD_BYTES;
use h2::Reason;
use hoop_http::{Body, is_no_answer};
use http::header::{HOST, TRANSFER_ENCODING};
use http::{Request, Response, Uri, Version};
use hyper::body::Incoming;
use hyper::client::conn::http2::{Builder, SendRequest};
use hyper_util::rt::{TokioExecutor, TokioIo};
use parking_lot::Mutex;
use std::collections::HashMap;
use std::error::Error as _;
use std::io::ErrorKind;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::time::Instant;
use tokio::time::sleep;

/// A device that uses more origins within some seconds forgets of the rest which version they speak.
const ORIGINS_MAX: usize = 256;

/// How much comes before it is read. As one connection brings all answers of its origin, several that nobody reads must leave room for others.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Windows {
    /// Of one answer, in bytes.
    stream: u32,
    /// Of all answers over a connection, in bytes.
    connection: u32,
}

/// At 50 ms to the origin an answer has 80 Mbit/s. 32 that nobody reads keep the device's others over this connection waiting.
const FIRST: Windows = Windows { stream: 512 << 10, connection: 16 << 20 };

/// For a device's connections after its first [`FIRST_MAX`], each of which may fill its window while the device reads nothing.
const FURTHER: Windows = Windows { stream: 256 << 10, connection: 4 << 20 };

/// For those whose places are not wide.
const NARROW: Windows = Windows { stream: 64 << 10, connection: 1 << 20 };

/// So many of a device's connections have the largest windows.
const FIRST_MAX: usize = 4;

impl Windows {
    /// Those of a connection that is made when its device has so many, with it.
    const fn of(rank: usize) -> Self {
        if rank <= FIRST_MAX {
            FIRST
        } else if rank <= WIDE {
            FURTHER
        } else {
            NARROW
        }
    }
}

/// How much of a request's body waits to be sent, in bytes.
const SEND_BYTES: usize = 256 << 10;

/// What is known of each origin, by host and port.
#[derive(Default, Debug)]
pub(super) struct Multiplexed(Mutex<HashMap<String, Arc<Origin>>>);

type Origin = tokio::sync::Mutex<State>;

#[derive(Debug)]
enum State {
    Unknown,
    /// It was not reached, at that time.
    NotReached(u64, Instant),
    /// It speaks HTTP/1.1 alone.
    One,
    Many(Many),
}

/// A connection that speaks HTTP/2.
#[derive(Clone, Debug)]
struct Many {
    sender: SendRequest<Body>,
    /// Each exchange has one, and so do the map and the connection.
    uses: Arc<()>,
    has_answered: Arc<AtomicBool>,
}

/// What holds a connection, as long as an answer over it is read.
#[derive(Debug)]
pub(crate) struct InUse {
    _uses: Arc<()>,
}

/// There is no answer over HTTP/2.
pub(super) enum NoAnswer {
    /// The origin has not seen the request, or speaks HTTP/1.1: it may go over a connection of its own.
    NotTaken(Box<Request<Body>>),
    /// The origin says that it has done nothing with the request (RFC 9113 §8.7): it may be sent again, whatever it is.
    Refused,
    /// The origin has closed the connection. It may have seen the request.
    Closed,
    /// With this code.
    Failed(u64),
}

impl Multiplexed {
    /// Sends a request to an `https` origin, if that speaks HTTP/2.
    pub(super) async fn send(
        &self,
        dial: &Dial,
        request: Request<Body>,
    ) -> Result<(Response<Incoming>, InUse), NoAnswer> {
        let origin = self.origin(request.uri());
        let mut many = match Self::reach(&origin, dial, request.uri()).await {
            Ok(Some(many)) => many,
            Ok(None) => return Err(NoAnswer::NotTaken(Box::new(request))),
            Err(code) => return Err(NoAnswer::Failed(code)),
        };
        let sent = many.sender.try_send_request(over_h2(request));
        match sent.await {
            Ok(response) => {
                many.has_answered.store(true, Ordering::Relaxed);
                Ok((response, InUse { _uses: many.uses }))
            }
            Err(mut error) => {
                tracing::debug!(error = %error.error(), "no answer over HTTP/2");
                Err(match error.take_message() {
                    Some(request) => NoAnswer::NotTaken(Box::new(over_h1(request))),
                    None if was_not_taken(error.error()) => NoAnswer::Refused,
                    None if is_closed(error.error(), many.has_answered.load(Ordering::Relaxed)) => NoAnswer::Closed,
                    None => NoAnswer::Failed(code_of(error.error())),
                })
            }
        }
    }

    fn origin(&self, uri: &Uri) -> Arc<Origin> {
        let mut origins = self.0.lock();
        if origins.len() >= ORIGINS_MAX {
            // Those in use stay known.
            origins.retain(|_, origin| Arc::strong_count(origin) > 1);
        }
        origins.entry(destination(uri)).or_insert_with(|| Arc::new(Origin::new(State::Unknown))).clone()
    }

    /// The connection over which the origin speaks HTTP/2; None: it does not.
    async fn reach(origin: &Arc<Origin>, dial: &Dial, uri: &Uri) -> Result<Option<Many>, u64> {
        let asked = Instant::now();
        let mut state = origin.lock().await;
        match &*state {
            State::One => return Ok(None),
            State::Many(many) if !many.sender.is_closed() => return Ok(Some(many.clone())),
            State::NotReached(code, at) if *at >= asked => return Err(*code),
            _ => {}
        }
        let reached = dial.connect_either(uri).await;
        let (next, result) = match reached {
            Err(code) => (State::NotReached(code, Instant::now()), Err(code)),
            Ok(reached) if !reached.speaks_h2() => {
                dial.keep(uri, reached);
                (State::One, Ok(None))
            }
            Ok(reached) => match begin(reached, Arc::downgrade(origin)).await {
                Ok(many) => (State::Many(many.clone()), Ok(Some(many))),
                Err(code) => (State::NotReached(code, Instant::now()), Err(code)),
            },
        };
        *state = next;
        result
    }
}

/// Speaks HTTP/2 over a connection.
async fn begin(reached: Reached, origin: Weak<Origin>) -> Result<Many, u64> {
    reached.metered().breaks_after(SILENT_MAX);
    let windows = Windows::of(reached.metered().rank());
    let mut builder = Builder::new(TokioExecutor::new());
    builder
        .initial_stream_window_size(windows.stream)
        .initial_connection_window_size(windows.connection)
        .max_send_buf_size(SEND_BYTES)
        .max_header_list_size(HEAD_BYTES as u32);
    let begun = builder.handshake(TokioIo::new(FrameLimit::new(reached))).await;
    let (sender, connection) = begun.map_err(|error| code_of(&error))?;
    let many = Many { sender, uses: Arc::default(), has_answered: Arc::default() };
    let uses = Arc::downgrade(&many.uses);
    tokio::spawn(async move {
        let mut connection = pin!(connection);
        let mut was_idle = false;
        loop {
            tokio::select! {
                ended = &mut connection => {
                    let _ = ended.inspect_err(|error| tracing::debug!(%error, "a connection over HTTP/2 broke off"));
                    return;
                }
                () = sleep(IDLE_MAX) => {}
            }
            let is_idle = uses.strong_count() <= 1;
            // Whoever has it locked begins to use it. Without its sender, the connection ends by itself.
            if is_idle
                && was_idle
                && let Some(Ok(state)) = origin.upgrade().as_deref().map(Origin::try_lock)
            {
                forget(state, &uses);
            }
            was_idle = is_idle;
        }
    });
    Ok(many)
}

/// Forgets this connection, unless it is used by now, or there is another one.
fn forget(mut state: tokio::sync::MutexGuard<'_, State>, uses: &Weak<()>) {
    let is_this = |many: &Many| Weak::ptr_eq(&Arc::downgrade(&many.uses), uses);
    if matches!(&*state, State::Many(many) if is_this(many) && uses.strong_count() <= 1) {
        *state = State::Unknown;
    }
}

/// A request as HTTP/2 has it (RFC 9113 §8.2.2 and §8.3.1).
fn over_h2(mut request: Request<Body>) -> Request<Body> {
    request.headers_mut().remove(HOST);
    request.headers_mut().remove(TRANSFER_ENCODING);
    *request.version_mut() = Version::HTTP_2;
    request
}

/// The same as [any connection](NoAnswer::NotTaken) takes it.
fn over_h1(mut request: Request<Body>) -> Request<Body> {
    *request.version_mut() = Version::HTTP_11;
    request
}

fn reason(error: &hyper::Error) -> Option<Reason> {
    error.source()?.downcast_ref::<h2::Error>()?.reason()
}

/// Whether the origin says that it has done nothing with the request: it refuses the stream, or ends the connection before it (RFC 9113 §6.8).
fn was_not_taken(error: &hyper::Error) -> bool {
    let Some(error) = error.source().and_then(|cause| cause.downcast_ref::<h2::Error>()) else { return false };
    let is_refused = [Reason::REFUSED_STREAM, Reason::HTTP_1_1_REQUIRED].map(Some).contains(&error.reason());
    error.is_remote() && (is_refused || (error.is_go_away() && error.reason() == Some(Reason::NO_ERROR)))
}

/// Whether the origin has closed a connection that has brought answers.
fn is_closed(error: &hyper::Error, has_answered: bool) -> bool {
    has_answered && code_of(error) == codes::BROKEN
}

/// Whether the connection broke off because of what came ([`FrameLimit`]).
fn has_too_much(error: &hyper::Error) -> bool {
    let of_h2 = error.source().and_then(|cause| cause.downcast_ref::<h2::Error>());
    of_h2.and_then(h2::Error::get_io).is_some_and(|error| error.kind() == ErrorKind::InvalidData)
}

/// Why there is no answer.
fn code_of(error: &hyper::Error) -> u64 {
    let wrong = [Reason::PROTOCOL_ERROR, Reason::COMPRESSION_ERROR, Reason::FRAME_SIZE_ERROR];
    let is_no_http = reason(error).is_some_and(|reason| wrong.contains(&reason)) || has_too_much(error);
    if is_no_http || is_no_answer(error) { codes::NO_HTTP } else { codes::BROKEN }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_windows_of_a_device_are_little_more_than_its_flows_may_hold() {
        // Of so many answers as it has flows, as many as take most.
        let (mut answers, mut all) = (1_024, 0);
        for rank in 1..=1_024 {
            let Windows { stream, connection } = Windows::of(rank);
            assert!(connection / stream >= 16, "few that nobody reads would stop all others: {rank}");
            let of_connection = answers.min(connection / stream);
            answers -= of_connection;
            all += u64::from(of_connection * stream);
        }
        assert!(all < 256 << 20, "{all}");
        assert_eq!((answers, Windows::of(1)), (0, FIRST));
    }

    #[test]
    fn a_request_that_is_not_taken_has_the_version_that_any_connection_takes() {
        let request = || Request::get("https://a.example/").header("x-a", "1").body(hoop_http::empty()).unwrap();
        let again = over_h1(over_h2(request()));
        assert_eq!(
            (again.version(), again.uri(), again.headers()),
            (Version::HTTP_11, request().uri(), request().headers())
        );
    }
}
