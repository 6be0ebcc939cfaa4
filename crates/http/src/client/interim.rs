//! What may come before an answer: [`limit_interim`], and connections that are then broken off: [`Stoppable`].
//!
//! A server may send interim answers (1xx) without end. hyper passes over them as long as there is something to read, and gives no other task its turn meanwhile.
//!
//! Bounds: `INTERIM_MAX` interim answers at once, and one more each `INTERIM_EVERY`. One with long fields counts as several. So at most some 64 KiB come before an answer's head, and 4 KiB a second.
//! A task reads `TURN_BYTES` of a connection, and then others have their turn.

use http::{HeaderMap, Request};
use std::error::Error as _;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// Interim answers that may come at once before the answer. A server has a handful to send: 100, 103, and 102 or 104 every second or so.
pub(crate) const INTERIM_MAX: u64 = 64;

/// As time goes by, one more may come in so long.
const INTERIM_EVERY: Duration = Duration::from_millis(250);

/// Each so many bytes of its fields, an interim answer counts as one more. Links of an early hint (103) take some hundred.
const INTERIM_BYTES: usize = 1 << 10;

/// So much of a connection is read before other tasks have their turn: few reads at a gigabit, and well below a millisecond of a core.
const TURN_BYTES: usize = 256 << 10;

/// Calls `end` for each interim answer to this request that is one too many.
pub fn limit_interim<B>(request: &mut Request<B>, end: impl Fn() + Send + Sync + 'static) {
    let count = InterimCount::default();
    hyper::ext::on_informational(request, move |answer| {
        if !count.takes(bytes_of(answer.headers()), Instant::now()) {
            end();
        }
    });
}

/// Whether an exchange has failed since what came is no HTTP answer, or none came after too many interim ones ([`Stop`]).
pub fn is_no_answer(error: &hyper::Error) -> bool {
    let cause = error.source().and_then(|cause| cause.downcast_ref::<io::Error>());
    error.is_parse() || cause.is_some_and(|cause| cause.kind() == io::ErrorKind::InvalidData)
}

/// The bytes of an answer's fields.
fn bytes_of(fields: &HeaderMap) -> usize {
    fields.iter().map(|(name, value)| name.as_str().len() + value.len()).sum()
}

/// Counts the interim answers to a request, for who reads answers without hyper. [`limit_interim`] does it otherwise.
#[derive(Debug)]
pub struct InterimCount {
    since: Instant,
    count: AtomicU64,
}

impl Default for InterimCount {
    fn default() -> Self {
        Self { since: Instant::now(), count: AtomicU64::new(0) }
    }
}

impl InterimCount {
    /// One more has come, with so many bytes of fields. Whether it may.
    pub fn takes(&self, bytes: usize, now: Instant) -> bool {
        let weight = 1 + (bytes / INTERIM_BYTES) as u64;
        let count = u128::from(self.count.fetch_add(weight, Ordering::Relaxed) + weight);
        let earned = now.duration_since(self.since).as_millis() / INTERIM_EVERY.as_millis();
        count <= u128::from(INTERIM_MAX) + earned
    }
}

/// Ends a [`Stoppable`]; cheap to clone.
#[derive(Clone, Default, Debug)]
pub struct Stop(Arc<AtomicBool>);

impl Stop {
    /// The next read is an error, and so is a shutdown: it is broken off when it is dropped. A read that waits goes on.
    pub fn stop(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    fn looked_at(&self) -> io::Result<()> {
        match self.0.load(Ordering::Relaxed) {
            true => Err(io::Error::new(io::ErrorKind::InvalidData, "its answer is not wanted any more")),
            false => Ok(()),
        }
    }
}

/// A connection that can be told to end, and that lets other tasks have their turn while much comes.
#[derive(Debug)]
pub struct Stoppable<T> {
    stream: T,
    stop: Stop,
    /// What was read since a read last had to wait.
    turn_bytes: usize,
}

impl<T> Stoppable<T> {
    /// Reads until it is told otherwise.
    pub fn new(stream: T) -> Self {
        Self { stream, stop: Stop::default(), turn_bytes: 0 }
    }

    /// What ends it.
    pub fn stop(&self) -> Stop {
        self.stop.clone()
    }

    /// The connection, which nothing ends any more.
    pub fn into_stream(self) -> T {
        self.stream
    }

    /// The connection itself.
    pub const fn stream(&self) -> &T {
        &self.stream
    }
}

impl<T: AsyncRead + Unpin> AsyncRead for Stoppable<T> {
    fn poll_read(mut self: Pin<&mut Self>, context: &mut Context<'_>, into: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        self.stop.looked_at()?;
        if self.turn_bytes >= TURN_BYTES {
            self.turn_bytes = 0;
            context.waker().wake_by_ref();
            return Poll::Pending;
        }
        let before = into.filled().len();
        let read = Pin::new(&mut self.stream).poll_read(context, into);
        self.turn_bytes = if read.is_pending() { 0 } else { self.turn_bytes + into.filled().len() - before };
        read
    }
}

impl<T: AsyncWrite + Unpin> AsyncWrite for Stoppable<T> {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, from: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(context, from)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.stop.looked_at()?;
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::HeaderValue;
    use tokio::io::AsyncReadExt as _;

    #[test]
    fn a_slow_uploads_interim_answers_are_not_too_many() {
        let count = InterimCount::default();
        assert!((0..INTERIM_MAX).all(|_| count.takes(0, count.since)));
        let at = |second| count.since + Duration::from_secs(second);
        assert!((1..10_000).all(|second| count.takes(0, at(second))), "one a second");
        assert!(!(0..40_000).all(|_| count.takes(0, at(10_000))));
    }

    #[test]
    fn few_interim_answers_with_long_fields_are_too_many() {
        let (count, mut fields) = (InterimCount::default(), HeaderMap::new());
        fields.insert("link", HeaderValue::from_bytes(&[b'a'; 20 << 10]).unwrap());
        let taken = (0..INTERIM_MAX).filter(|_| count.takes(bytes_of(&fields), count.since)).count();
        assert_eq!(taken, 3);
    }

    #[tokio::test]
    async fn others_have_their_turn_while_a_connection_brings_bytes_without_end() {
        let mut endless = Stoppable::new(tokio::io::repeat(7));
        let stop = endless.stop();
        // On one thread, the second task runs only if the first one yields.
        let reading = async {
            let mut bytes = vec![0; 64 << 10];
            // Bounded, so that a reader that never yields ends as well.
            for reads in 0..1_000 {
                if endless.read(&mut bytes).await.is_err() {
                    return reads;
                }
            }
            1_000
        };
        let (reads, ()) = tokio::join!(biased; reading, async { stop.stop() });
        assert_eq!(reads, TURN_BYTES / (64 << 10));
    }
}
