//! A TCP connection that a carrier can ask about while its task reads and writes: [`Tcp`], [`Watch`].

use crate::silence::Sample;
use bytes::{Buf as _, BytesMut};
use socket2::SockRef;
use std::io::{self, IoSlice};
use std::mem::MaybeUninit;
use std::net::Shutdown;
use std::pin::Pin;
use std::sync::{Arc, Weak};
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;

/// So much is read from the system at once, in bytes: TLS asks for a quarter of a record at a time.
const AHEAD: usize = 64 * 1024;

/// What one task reads and writes, and [`Watch`]es ask about.
#[derive(Debug)]
pub(crate) struct Tcp {
    stream: Arc<TcpStream>,
    /// What was read ahead; no memory of it is held while nothing comes.
    ahead: BytesMut,
}

impl Tcp {
    /// Sends what is written at once; whoever writes does so in large pieces.
    pub(crate) fn new(stream: TcpStream) -> io::Result<Self> {
        stream.set_nodelay(true)?;
        Ok(Self { stream: Arc::new(stream), ahead: BytesMut::new() })
    }

    pub(crate) fn watch(&self) -> Watch {
        Watch(Arc::downgrade(&self.stream))
    }
}

/// Whether the other end of a connection says no more.
pub(crate) fn is_left(stream: &TcpStream) -> bool {
    system::is_left(stream)
}

impl AsyncRead for Tcp {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let Self { stream, ahead } = &mut *self;
        while ahead.is_empty() {
            ready!(stream.poll_read_ready(cx))?;
            ahead.reserve(AHEAD);
            match stream.try_read_buf(ahead) {
                Ok(0) => return Poll::Ready(Ok(())),
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => *ahead = BytesMut::new(),
                Err(error) => return Poll::Ready(Err(error)),
            }
        }
        let len = ahead.len().min(buffer.remaining());
        buffer.put_slice(&ahead[..len]);
        ahead.advance(len);
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Tcp {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.poll_write_vectored(cx, &[IoSlice::new(bytes)])
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        loop {
            ready!(self.stream.poll_write_ready(cx))?;
            match self.stream.try_write_vectored(slices) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                done => return Poll::Ready(done),
            }
        }
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(SockRef::from(&*self.stream).shutdown(Shutdown::Write))
    }
}

/// Tells how the connection is for as long as it is there; does not keep it.
#[derive(Clone, Debug)]
pub(crate) struct Watch(Weak<TcpStream>);

impl Watch {
    /// Of a connection that is gone.
    #[cfg(test)]
    pub(crate) fn of_nobody() -> Self {
        Self(Weak::new())
    }

    /// The smoothed round-trip time (RFC 6298).
    pub(crate) fn rtt(&self) -> Option<Duration> {
        self.counters().map(|counters| counters.rtt)
    }

    /// Whether something has come that nobody has read, if only the end.
    pub(crate) fn has_unread(&self) -> bool {
        let Some(stream) = self.0.upgrade() else { return false };
        SockRef::from(&*stream).peek(&mut [MaybeUninit::uninit()]).is_ok()
    }

    fn counters(&self) -> Option<Counters> {
        system::counters(&*self.0.upgrade()?)
    }
}

/// What the system knows of a connection.
#[derive(Clone, Copy, Debug)]
struct Counters {
    rtt: Duration,
    /// Segments sent that are not acknowledged.
    unacknowledged: u32,
    /// Probes that are not answered. They go out in place of segments that could not be sent: the window is closed (RFC 9293 §3.8.6.1), or the local address is gone.
    probes: u32,
    /// Since data or an acknowledgement came last.
    last_heard: Duration,
}

/// Samples of one connection.
#[derive(Debug)]
pub(crate) struct Sampler {
    watch: Watch,
    last: Instant,
}

impl Sampler {
    pub(crate) fn new(watch: Watch) -> Self {
        Self { watch, last: Instant::now() }
    }

    pub(crate) fn sample(&mut self) -> Sample {
        let now = Instant::now();
        let since = now.duration_since(std::mem::replace(&mut self.last, now));
        let Some(counters) = self.watch.counters() else { return Sample::default() };
        Sample { heard: counters.last_heard < since, owed: counters.unacknowledged > 0 || counters.probes > 0 }
    }
}

#[cfg(target_os = "linux")]
#[allow(unsafe_code)] // one call of the kernel that no crate here wraps
mod system {
    use super::Counters;
    use std::mem::{size_of, zeroed};
    use std::os::fd::AsRawFd;
    use std::time::Duration;

    /// Linux calls that CLOSE-WAIT (RFC 9293 §3.3.2), and CLOSE once the connection was reset.
    pub(super) fn is_left(socket: &impl AsRawFd) -> bool {
        const CLOSE: u8 = 7;
        const CLOSE_WAIT: u8 = 8;
        info(socket).is_some_and(|info| matches!(info.tcpi_state, CLOSE | CLOSE_WAIT))
    }

    fn info(socket: &impl AsRawFd) -> Option<libc::tcp_info> {
        let mut len = size_of::<libc::tcp_info>() as libc::socklen_t;
        // SAFETY: all zero is a valid value of that struct of integers; the kernel writes at most `len` bytes into it.
        unsafe {
            let mut info: libc::tcp_info = zeroed();
            let at = (&raw mut info).cast();
            let asked = libc::getsockopt(socket.as_raw_fd(), libc::IPPROTO_TCP, libc::TCP_INFO, at, &raw mut len);
            (asked >= 0).then_some(info)
        }
    }

    pub(super) fn counters(socket: &impl AsRawFd) -> Option<Counters> {
        let info = info(socket)?;
        Some(Counters {
            rtt: Duration::from_micros(info.tcpi_rtt.into()),
            unacknowledged: info.tcpi_unacked,
            probes: info.tcpi_probes.into(),
            last_heard: Duration::from_millis(info.tcpi_last_ack_recv.min(info.tcpi_last_data_recv).into()),
        })
    }
}

#[cfg(not(target_os = "linux"))]
mod system {
    pub(super) fn is_left<T>(_: &T) -> bool {
        false
    }

    pub(super) fn counters<T>(_: &T) -> Option<super::Counters> {
        None
    }
}
