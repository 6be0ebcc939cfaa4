//! A stream whose reader may not sleep, [`Paced`], and a body whose sender may not, [`PacedBody`].

use crate::message::body::BodyError;
use crate::places::Place;
use crate::server::pace::{LeastRate, Pace};
use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Instant, Sleep};

/// A stream that fails when what is written to it is read more slowly than the least rate, so that a reader that takes a byte a minute holds
/// its connection, and what waits for it, no longer than [`LeastRate::within`].
pub(crate) struct Paced<S> {
    stream: S,
    pace: Option<Pace>,
    timer: Pin<Box<Sleep>>,
    /// The connection's place, if it has one.
    place: Option<Place>,
}

impl<S> Paced<S> {
    pub(crate) fn new(stream: S, least: Option<LeastRate>, place: Option<Place>) -> Self {
        Self { stream, pace: least.map(Pace::new), timer: Box::pin(tokio::time::sleep(Duration::ZERO)), place }
    }

    /// Keeps count of a write's outcome.
    fn count(&mut self, written: Poll<io::Result<usize>>, context: &mut Context<'_>) -> Poll<io::Result<usize>> {
        self.place.iter().for_each(|place| tell(place, &written));
        let Some(pace) = &mut self.pace else { return written };
        match written {
            Poll::Ready(Ok(bytes)) => {
                pace.moved(bytes, Instant::now());
                Poll::Ready(Ok(bytes))
            }
            Poll::Ready(error) => Poll::Ready(error),
            Poll::Pending => {
                self.timer.as_mut().reset(pace.waits(Instant::now()));
                ready!(self.timer.as_mut().poll(context));
                Poll::Ready(Err(io::Error::new(io::ErrorKind::TimedOut, "the reader is too slow")))
            }
        }
    }
}

/// Tells a place how its client gets on: what has moved, or that it is waited for.
fn tell(place: &Place, moved: &Poll<io::Result<usize>>) {
    match moved {
        Poll::Ready(Ok(bytes)) => place.goes(*bytes),
        Poll::Ready(Err(_)) => {}
        Poll::Pending => place.awaits_reader(),
    }
}

/// A body that fails when it comes more slowly than the least rate, so that a sender that is silent, or brings a byte a minute, holds whatever
/// waits for it no longer than [`LeastRate::within`]. Only time in which somebody asks for more counts.
#[derive(Debug)]
pub struct PacedBody<B> {
    body: B,
    pace: Pace,
    timer: Pin<Box<Sleep>>,
    late: Late,
    /// The place of its connection, if it has one.
    place: Option<Place>,
}

/// Says whether a [`PacedBody`] was too slow, or broke off.
#[derive(Clone, Default, Debug)]
pub struct Late {
    late: Arc<AtomicBool>,
    broken: Arc<AtomicBool>,
}

impl Late {
    /// Whether it has failed since it came too slowly.
    pub fn is_late(&self) -> bool {
        self.late.load(Ordering::Relaxed)
    }

    /// Whether it has failed by itself: its sender went away, or what it sent is no body (a malformed chunk, RFC 9112 §7.1).
    pub fn is_broken(&self) -> bool {
        self.broken.load(Ordering::Relaxed)
    }
}

impl<B> PacedBody<B> {
    /// `body`, as long as it comes at that rate. The place of its connection, if it has one, is told how it comes.
    pub fn new(body: B, least: LeastRate, place: Option<Place>) -> Self {
        let timer = Box::pin(tokio::time::sleep(Duration::ZERO));
        place.iter().for_each(Place::is_told_apart);
        Self { body, pace: Pace::new(least), timer, late: Late::default(), place }
    }

    /// Whoever hands the body on can still ask whether it was too slow.
    pub fn late(&self) -> Late {
        self.late.clone()
    }
}

impl<B> Body for PacedBody<B>
where
    B: Body<Data = Bytes> + Unpin,
    B::Error: Into<BodyError>,
{
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        let body = &mut *self;
        if let Poll::Ready(frame) = Pin::new(&mut body.body).poll_frame(context) {
            let came = frame.as_ref().and_then(|frame| frame.as_ref().ok()).and_then(Frame::data_ref);
            let came = came.map_or(0, Bytes::len);
            body.pace.moved(came, Instant::now());
            match &body.place {
                Some(place) if frame.is_none() => place.goes_on(),
                Some(place) => place.comes(came),
                None => {}
            }
            if matches!(frame, Some(Err(_))) {
                body.late.broken.store(true, Ordering::Relaxed);
            }
            return Poll::Ready(frame.map(|frame| frame.map_err(Into::into)));
        }
        body.place.iter().for_each(Place::awaits);
        body.timer.as_mut().reset(body.pace.waits(Instant::now()));
        ready!(body.timer.as_mut().poll(context));
        body.late.late.store(true, Ordering::Relaxed);
        Poll::Ready(Some(Err(io::Error::new(io::ErrorKind::TimedOut, "the sender is too slow").into())))
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Paced<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(context, buffer)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Paced<S> {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(context, bytes);
        self.count(written, context)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        pieces: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write_vectored(context, pieces);
        self.count(written, context)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        // What TLS has taken may wait in it.
        let flushed = Pin::new(&mut self.stream).poll_flush(context);
        self.count(flushed.map_ok(|()| 0), context).map_ok(drop)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

    const LEAST: LeastRate = LeastRate { bytes: 1000, within: Duration::from_secs(30) };

    /// Writes without end, while the other side reads `bytes` each second: after how long it ends, if that is within an hour.
    async fn lasts(bytes: usize) -> Option<Duration> {
        let (ours, mut theirs) = tokio::io::duplex(64);
        let mut paced = Paced::new(ours, Some(LEAST), None);
        let begun = Instant::now();
        let writing = async {
            loop {
                if let Err(error) = paced.write_all(&[0; 4096]).await {
                    assert_eq!(error.kind(), io::ErrorKind::TimedOut);
                    return;
                }
            }
        };
        let reading = async {
            let mut buffer = vec![0; bytes];
            loop {
                if bytes > 0 {
                    theirs.read_exact(&mut buffer).await.unwrap();
                }
                tokio::time::sleep(Duration::from_secs(1)).await;
            }
        };
        let hour = tokio::time::sleep(Duration::from_secs(3600));
        tokio::select! {
            () = writing => Some(begun.elapsed()),
            () = reading => None,
            () = hour => None,
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_reader_that_sleeps_or_sips_is_left_and_one_that_drinks_is_not() {
        assert_eq!(lasts(0).await, Some(LEAST.within));
        assert_eq!(lasts(1).await, Some(LEAST.within));
        assert_eq!(lasts(100).await, None);
    }

    #[tokio::test(start_paused = true)]
    async fn a_writer_that_writes_little_is_not_taken_for_a_slow_reader() {
        let (ours, mut theirs) = tokio::io::duplex(64);
        let mut paced = Paced::new(ours, Some(LEAST), None);
        for _ in 0..100 {
            paced.write_all(&[0; 10]).await.unwrap();
            theirs.read_exact(&mut [0; 10]).await.unwrap();
            tokio::time::sleep(Duration::from_secs(60)).await;
        }
    }

    struct Drip(tokio::sync::mpsc::Receiver<Bytes>);

    impl Body for Drip {
        type Data = Bytes;
        type Error = BodyError;

        fn poll_frame(
            mut self: Pin<&mut Self>,
            context: &mut Context<'_>,
        ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
            self.0.poll_recv(context).map(|bytes| bytes.map(|bytes| Ok(Frame::data(bytes))))
        }
    }

    /// A body of which a frame of so many bytes comes each second, and when it failed for its sender, if that is within an hour.
    async fn comes(bytes: usize) -> Option<Duration> {
        let (sender, receiver) = tokio::sync::mpsc::channel(1);
        let mut body = PacedBody::new(Drip(receiver), LEAST, None);
        let (late, begun) = (body.late(), Instant::now());
        let sending = async {
            loop {
                tokio::time::sleep(Duration::from_secs(1)).await;
                match bytes {
                    0 => std::future::pending().await,
                    _ => sender.send(vec![0; bytes].into()).await.unwrap(),
                }
            }
        };
        let reading =
            async { while http_body_util::BodyExt::frame(&mut body).await.is_some_and(|frame| frame.is_ok()) {} };
        tokio::select! {
            () = reading => { assert!(late.is_late()); Some(begun.elapsed()) }
            () = sending => None,
            () = tokio::time::sleep(Duration::from_secs(3600)) => { assert!(!late.is_late()); None }
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_sender_that_sleeps_or_drips_is_left_and_one_that_flows_is_not() {
        assert_eq!(comes(0).await, Some(LEAST.within));
        assert_eq!(comes(1).await, Some(LEAST.within));
        assert_eq!(comes(100).await, None);
    }
}
