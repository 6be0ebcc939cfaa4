//! A connection to a destination whose bytes are counted, and no faster than its device's share: [`Metered`].

use super::metrics::{Counters, Open};
use super::places::Place;
use super::rate_limit::Share;
use hoop_http::{Stop, Stoppable};
use std::future::Future as _;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::{Sleep, sleep_until};

/// Counts what is read and written, and pauses both where the share is used up.
#[derive(Debug)]
pub(crate) struct Metered {
    stream: Stoppable<TcpStream>,
    share: Arc<Share>,
    counters: Arc<Counters>,
    /// Until when nothing may be read, and written.
    pauses: [Option<Pin<Box<Sleep>>>; 2],
    /// Whether it is reset if it is dropped before it was shut down: what its other end does not read would stay in the kernel.
    is_reset_by_drop: bool,
    _place: Place,
    _open: Open,
}

impl Drop for Metered {
    fn drop(&mut self) {
        if self.is_reset_by_drop {
            self.abort();
        }
    }
}

const READS: usize = 0;
const WRITES: usize = 1;

impl Metered {
    /// It counts, and keeps its place, as long as it is there.
    pub fn new(stream: TcpStream, share: Arc<Share>, place: Place, counters: Arc<Counters>) -> Self {
        let open = counters.open();
        let stream = Stoppable::new(stream);
        Self { stream, share, counters, pauses: [None, None], is_reset_by_drop: false, _place: place, _open: open }
    }

    /// What ends it.
    pub fn stop(&self) -> Stop {
        self.stream.stop()
    }

    /// Breaks off, without waiting for what was not sent.
    pub fn abort(&self) {
        let _ = self.stream.stream().set_zero_linger();
    }

    /// The same, reset if it is dropped before it was shut down.
    pub fn reset_by_drop(mut self) -> Self {
        self.is_reset_by_drop = true;
        self
    }

    /// Breaks off once what was sent has stayed without an acknowledgement for so long.
    pub fn breaks_after(&self, silence: Duration) {
        let _ = rustix::net::sockopt::set_tcp_user_timeout(self.stream.stream(), silence.as_millis() as u32);
    }

    fn poll_pause(&mut self, way: usize, context: &mut Context<'_>) -> Poll<()> {
        if let Some(pause) = &mut self.pauses[way] {
            ready!(pause.as_mut().poll(context));
            self.pauses[way] = None;
        }
        Poll::Ready(())
    }

    fn moved(&mut self, way: usize, bytes: usize) {
        let until = self.share.moved(bytes, std::time::Instant::now());
        self.pauses[way] = until.map(|until| Box::pin(sleep_until(until.into())));
    }
}

impl AsyncRead for Metered {
    fn poll_read(mut self: Pin<&mut Self>, context: &mut Context<'_>, into: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        ready!(self.poll_pause(READS, context));
        let before = into.filled().len();
        ready!(Pin::new(&mut self.stream).poll_read(context, into))?;
        let bytes = into.filled().len() - before;
        self.counters.down(bytes);
        self.moved(READS, bytes);
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Metered {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, from: &[u8]) -> Poll<io::Result<usize>> {
        ready!(self.poll_pause(WRITES, context));
        let bytes = ready!(Pin::new(&mut self.stream).poll_write(context, from))?;
        self.counters.up(bytes);
        self.moved(WRITES, bytes);
        Poll::Ready(Ok(bytes))
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(Pin::new(&mut self.stream).poll_shutdown(context))?;
        self.is_reset_by_drop = false;
        Poll::Ready(Ok(()))
    }
}
