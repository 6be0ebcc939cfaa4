//! A stream whose reader may not sleep: [`Paced`].

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Instant, Sleep};

/// The least that a reader takes while something waits for it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LeastRate {
    /// So many bytes
    pub bytes: usize,
    /// within so long. Only time in which bytes wait for the reader counts.
    pub within: Duration,
}

/// A stream that fails when what is written to it is read more slowly than the least rate, so that a reader that takes an octet a minute holds
/// its connection, and what waits for it, no longer than [`LeastRate::within`].
pub(crate) struct Paced<S> {
    stream: S,
    least: Option<LeastRate>,
    /// Bytes that went while the count runs, and the time that they waited.
    moved: usize,
    waited: Duration,
    /// Since when bytes wait.
    since: Option<Instant>,
    timer: Pin<Box<Sleep>>,
}

impl<S> Paced<S> {
    pub(crate) fn new(stream: S, least: Option<LeastRate>) -> Self {
        Self {
            stream,
            least,
            moved: 0,
            waited: Duration::ZERO,
            since: None,
            timer: Box::pin(tokio::time::sleep(Duration::ZERO)),
        }
    }

    /// Keeps count of a write's outcome.
    fn count(&mut self, written: Poll<io::Result<usize>>, context: &mut Context<'_>) -> Poll<io::Result<usize>> {
        let Some(least) = self.least else { return written };
        match written {
            Poll::Ready(Ok(bytes)) => {
                self.moved += bytes;
                self.waited += self.since.take().map_or(Duration::ZERO, |since| since.elapsed());
                if self.moved >= least.bytes {
                    (self.moved, self.waited) = (0, Duration::ZERO);
                }
                Poll::Ready(Ok(bytes))
            }
            Poll::Ready(error) => Poll::Ready(error),
            Poll::Pending => {
                let since = *self.since.get_or_insert_with(Instant::now);
                self.timer.as_mut().reset(since + least.within.saturating_sub(self.waited));
                match self.timer.as_mut().poll(context) {
                    Poll::Ready(()) => {
                        Poll::Ready(Err(io::Error::new(io::ErrorKind::TimedOut, "the reader is too slow")))
                    }
                    Poll::Pending => Poll::Pending,
                }
            }
        }
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
        Pin::new(&mut self.stream).poll_flush(context)
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
        let mut paced = Paced::new(ours, Some(LEAST));
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
        let mut paced = Paced::new(ours, Some(LEAST));
        for _ in 0..100 {
            paced.write_all(&[0; 10]).await.unwrap();
            theirs.read_exact(&mut [0; 10]).await.unwrap();
            tokio::time::sleep(Duration::from_secs(60)).await;
        }
    }
}
