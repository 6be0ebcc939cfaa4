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
use std::time::{Duration, Instant};
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
    /// Whether it is reset if it is dropped before it was shut down, or if the relay is killed: what its other end does not read would stay in the kernel, and a part would pass for the whole.
    is_reset_by_drop: bool,
    place: Place,
    _open: Open,
}

impl Drop for Metered {
    fn drop(&mut self) {
        if !self.is_reset_by_drop {
            self.breaks_after(ORPHAN_MAX);
        }
    }
}

/// How long the kernel goes on with what a destination does not take of a connection that has ended: it is counted nowhere. The kernel alone would take some six minutes.
const ORPHAN_MAX: Duration = Duration::from_secs(60);

/// Of a connection whose place is not wide so much is read at once, in bytes: buffers above it grow with what one read gives, and stay full where a device takes nothing.
const NARROW_READ: usize = 8 << 10;

const READS: usize = 0;
const WRITES: usize = 1;

impl Metered {
    /// It counts, and keeps its place, as long as it is there.
    pub fn new(stream: TcpStream, share: Arc<Share>, place: Place, counters: Arc<Counters>) -> Self {
        let open = counters.open();
        let stream = Stoppable::new(stream);
        Self { stream, share, counters, pauses: [None, None], is_reset_by_drop: false, place, _open: open }
    }

    /// How many its device had when it was made, with it.
    pub const fn rank(&self) -> usize {
        self.place.rank
    }

    /// What ends it.
    pub fn stop(&self) -> Stop {
        self.stream.stop()
    }

    /// Breaks off when it is closed, without waiting for what was not sent.
    pub fn abort(&self) {
        let _ = self.stream.stream().set_zero_linger();
    }

    /// The same, reset if it is dropped before it was shut down.
    pub fn reset_by_drop(mut self) -> Self {
        self.resets_by_drop();
        self
    }

    /// It is reset if it is dropped before it was shut down.
    pub fn resets_by_drop(&mut self) {
        self.is_reset_by_drop = true;
        self.abort();
    }

    /// Breaks off once what was sent has stayed without an acknowledgement for so long.
    pub fn breaks_after(&self, silence: Duration) {
        let _ = rustix::net::sockopt::set_tcp_user_timeout(self.stream.stream(), silence.as_millis() as u32);
    }

    /// Waits until the device's share lets it move more, whichever of its connections has used it up.
    fn poll_pause(&mut self, way: usize, context: &mut Context<'_>) -> Poll<()> {
        loop {
            if let Some(pause) = &mut self.pauses[way] {
                ready!(pause.as_mut().poll(context));
                self.pauses[way] = None;
            }
            let Some(until) = self.share.pauses_until(Instant::now()) else { return Poll::Ready(()) };
            self.pauses[way] = Some(Box::pin(sleep_until(until.into())));
        }
    }
}

impl AsyncRead for Metered {
    fn poll_read(mut self: Pin<&mut Self>, context: &mut Context<'_>, into: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        ready!(self.poll_pause(READS, context));
        let before = into.filled().len();
        if self.place.is_wide() {
            ready!(Pin::new(&mut self.stream).poll_read(context, into))?;
        } else {
            let mut part = ReadBuf::new(into.initialize_unfilled_to(into.remaining().min(NARROW_READ)));
            ready!(Pin::new(&mut self.stream).poll_read(context, &mut part))?;
            let bytes = part.filled().len();
            into.advance(bytes);
        }
        let bytes = into.filled().len() - before;
        self.counters.down(bytes);
        self.share.moved(bytes, Instant::now());
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Metered {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, from: &[u8]) -> Poll<io::Result<usize>> {
        ready!(self.poll_pause(WRITES, context));
        let bytes = ready!(Pin::new(&mut self.stream).poll_write(context, from))?;
        self.counters.up(bytes);
        self.share.moved(bytes, Instant::now());
        Poll::Ready(Ok(bytes))
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(Pin::new(&mut self.stream).poll_shutdown(context))?;
        if std::mem::take(&mut self.is_reset_by_drop) {
            // It has an end now, which is on its way still.
            rustix::net::sockopt::set_socket_linger(self.stream.stream(), None)?;
        }
        Poll::Ready(Ok(()))
    }
}

#[cfg(test)]
mod tests {
    use super::super::places::{Places, WIDE};
    use super::super::rate_limit::{ShareLimits, Shares};
    use super::*;
    use hoop_endpoint::DeviceId;
    use hoop_units::Bitrate;
    use std::future::poll_fn;
    use std::os::fd::AsFd as _;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::TcpListener;

    #[tokio::test]
    async fn a_new_connection_waits_for_what_others_of_its_device_moved() {
        let device = DeviceId([1; 20]);
        for used in [0, 100_000_000] {
            let shares = Shares::new(ShareLimits { rate: Some(Bitrate::mbps(1)), ..ShareLimits::default() });
            let share = shares.begin(device, Instant::now()).unwrap();
            share.moved(used, Instant::now());
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            let stream = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
            let (mut other, _) = listener.accept().await.unwrap();
            other.write_all(b"hello").await.unwrap();
            stream.readable().await.unwrap();
            let place = Places::new(1, 1).take_now(device).unwrap();
            let mut metered = Metered::new(stream, share, place, Arc::default());
            let mut bytes = [0; 5];
            let [reads, writes] = poll_fn(|context| {
                let reads = Pin::new(&mut metered).poll_read(context, &mut ReadBuf::new(&mut bytes)).is_ready();
                Poll::Ready([reads, Pin::new(&mut metered).poll_write(context, b"x").is_ready()])
            })
            .await;
            assert_eq!([reads, writes], [used == 0; 2], "{used}");
        }
    }

    #[tokio::test]
    async fn one_of_many_connections_of_a_device_reads_little_at_once() {
        let device = DeviceId([1; 20]);
        let places = Places::new(1_000, 1_000);
        let mut others = Vec::new();
        for is_narrow in [false, true] {
            let share = Shares::new(ShareLimits::default()).begin(device, Instant::now()).unwrap();
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            let stream = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
            let (mut other, _) = listener.accept().await.unwrap();
            let mut metered = Metered::new(stream, share, places.take_now(device).unwrap(), Arc::default());
            let bytes: Vec<u8> = (0..30_000_u32).map(|at| (at / 7) as u8).collect();
            other.write_all(&bytes).await.unwrap();
            other.shutdown().await.unwrap();
            let mut read = Vec::with_capacity(64 << 10);
            let mut most = 0;
            loop {
                let bytes = metered.read_buf(&mut read).await.unwrap();
                most = most.max(bytes);
                if bytes == 0 {
                    break;
                }
            }
            assert!(read == bytes);
            assert_eq!(most <= NARROW_READ, is_narrow, "{most}");
            others.extend((0..WIDE).map(|_| places.take_now(device).unwrap()));
        }
    }

    #[tokio::test]
    async fn a_connection_that_has_ended_is_kept_for_a_minute() {
        let device = DeviceId([1; 20]);
        let share = Shares::new(ShareLimits::default()).begin(device, Instant::now()).unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let stream = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        let same = stream.as_fd().try_clone_to_owned().unwrap();
        let place = Places::new(1, 1).take_now(device).unwrap();
        drop(Metered::new(stream, share, place, Arc::default()));
        assert_eq!(rustix::net::sockopt::tcp_user_timeout(same).unwrap(), 60_000);
    }
}
