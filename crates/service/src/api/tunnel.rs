//! An upgraded connection between a client and the application: [`Tunnel`].
//!
//! Bounds: two buffers of 8 KiB. It ends when nothing has moved for a while, so that a silent or absent client does not
//! hold it.

use hoop_http::{Place, Shutdown, makes_way};
use hyper::upgrade::{OnUpgrade, Upgraded};
use hyper_util::rt::TokioIo;
use parking_lot::Mutex;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::Instant;

/// Two ends that are to be joined.
pub struct Tunnel {
    /// The client.
    pub near: OnUpgrade,
    /// The application.
    pub far: OnUpgrade,
    /// Its place among all connections.
    pub place: Option<Place>,
    /// How long nothing may move.
    pub idle: Duration,
}

impl Tunnel {
    /// Carries bytes both ways until both ends are done, the service stops, or nothing has moved for too long.
    pub async fn run(self, mut shutdown: Shutdown) {
        let Self { near, far, place, idle } = self;
        let (near, far): (Upgraded, Upgraded) = match tokio::try_join!(near, far) {
            Ok(both) => both,
            Err(error) => return tracing::debug!(%error, "an upgrade came to nothing"),
        };
        let last = Last::now();
        let (mut near, mut far) = (Noted::new(near, &last), Noted::new(far, &last));
        tokio::select! {
            ended = tokio::io::copy_bidirectional(&mut near, &mut far) => {
                if let Err(error) = ended {
                    tracing::debug!(%error, "a tunnel ended early");
                }
            }
            () = last.is_past(idle) => tracing::debug!("a tunnel ends in which nothing has moved"),
            () = makes_way(place.as_ref()) => tracing::debug!("a tunnel makes room for another"),
            () = shutdown.requested() => {}
        }
    }
}

/// When something moved last.
#[derive(Clone)]
struct Last(Arc<Mutex<Instant>>);

impl Last {
    fn now() -> Self {
        Self(Arc::new(Mutex::new(Instant::now())))
    }

    fn get(&self) -> Instant {
        *self.0.lock()
    }

    /// Something moves.
    fn note(&self) {
        *self.0.lock() = Instant::now();
    }

    /// Returns once that is so long ago.
    async fn is_past(&self, idle: Duration) {
        loop {
            let end = self.get() + idle;
            if end <= Instant::now() {
                return;
            }
            tokio::time::sleep_until(end).await;
        }
    }
}

/// A stream that notes when something came over it. Bytes that nobody takes are not read on, so reading alone counts.
struct Noted {
    stream: TokioIo<Upgraded>,
    last: Last,
}

impl Noted {
    fn new(stream: Upgraded, last: &Last) -> Self {
        Self { stream: TokioIo::new(stream), last: last.clone() }
    }
}

impl AsyncRead for Noted {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        ready!(Pin::new(&mut self.stream).poll_read(context, buffer))?;
        self.last.note();
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Noted {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}
