//! A program's connection: [`ProgramSocket`], and whether the program is still there: [`UnderWay`].

use crate::guests::Admitted;
use crate::owner::Owners;
use crate::shares::Share;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{Shutdown, shutdown};
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, Interest, ReadBuf};
use tokio::net::TcpStream;
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::timeout;

/// How often it is looked whether a program is still there that has said all, or of which nothing more is read.
const LOOK_EVERY: Duration = Duration::from_secs(2);

/// A program's connection. If it is dropped while something is [`UnderWay`], it is reset: the program reads `ECONNRESET`, and takes no part for the whole.
#[derive(Debug)]
pub(crate) struct ProgramSocket {
    under_way: UnderWay,
    _place: OwnedSemaphorePermit,
}

/// Whether a program's connection carries something that has not ended, and whether the program is still there. The connection is closed when the last of these is dropped.
#[derive(Clone, Debug)]
pub(crate) struct UnderWay(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    stream: TcpStream,
    /// None: it is on another machine.
    program: Option<LocalProgram>,
    is_under_way: AtomicBool,
    has_ended: AtomicBool,
    /// How often something was read.
    reads: AtomicUsize,
}

/// A program of this machine.
#[derive(Debug)]
struct LocalProgram {
    /// Its end, and the other one as it knows it.
    ends: [SocketAddr; 2],
    owners: Arc<Owners>,
    /// Its user's share, as long as there is the connection, whoever has it by then.
    admitted: Admitted,
}

/// How a program has left.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Left {
    /// It has reset its connection.
    Reset,
    /// It has closed its connection. What it wrote may not have been read yet.
    Closed,
}

impl UnderWay {
    /// Something begins.
    pub(crate) fn begins(&self) {
        self.0.is_under_way.store(true, Ordering::Relaxed);
    }

    /// All of it was passed on.
    pub(crate) fn ends(&self) {
        self.0.is_under_way.store(false, Ordering::Relaxed);
    }

    /// Whether all was read that the program has said.
    pub(crate) fn has_ended(&self) -> bool {
        self.0.has_ended.load(Ordering::Relaxed)
    }

    /// The program's user, unless it is the agent's own.
    pub(crate) fn guest(&self) -> Option<u32> {
        self.0.program.as_ref().and_then(|program| program.admitted.guest())
    }

    /// The share of a program's user for one more flow beside the connection's; none: that user has all of them.
    pub(crate) fn another_flow(&self) -> Option<Share<u32>> {
        self.0.program.as_ref().and_then(|program| program.admitted.another())
    }

    /// Returns when the program has left. One that has said all, and still reads, has not.
    pub(crate) async fn program_left(&self) -> Left {
        loop {
            let reads = self.0.reads.load(Ordering::Relaxed);
            if timeout(LOOK_EVERY, self.0.stream.ready(Interest::ERROR)).await.is_ok() {
                return Left::Reset;
            }
            // The end of one that has closed its connection stays behind what is not read.
            let is_read = self.0.reads.load(Ordering::Relaxed) != reads;
            let may_have_left = if is_read { PollFlags::RDHUP } else { PollFlags::RDHUP | PollFlags::IN };
            if self.has(may_have_left) && self.belongs_to_nobody().await {
                return Left::Closed;
            }
        }
    }

    /// Whether nothing more comes from the program (`RDHUP`), read or not; whether something is there to be read (`IN`).
    fn has(&self, flags: PollFlags) -> bool {
        let mut polled = [PollFd::new(&self.0.stream, flags)];
        poll(&mut polled, Some(&Timespec::default())).is_ok_and(|ready| ready > 0)
    }

    async fn belongs_to_nobody(&self) -> bool {
        // Of one that is elsewhere nobody knows: it answers what it does not read with a reset.
        let Some(LocalProgram { ends: [program, ours], owners, .. }) = &self.0.program else { return false };
        matches!(owners.of(*program, *ours).await, Ok(None))
    }
}

impl ProgramSocket {
    /// `ends`: the program's, and the other one as it knows it. `place` is given back when the connection has ended, whoever has it by then.
    pub(crate) fn new(
        stream: TcpStream,
        ends: [SocketAddr; 2],
        owners: Arc<Owners>,
        admitted: Admitted,
        place: OwnedSemaphorePermit,
    ) -> Self {
        Self::of(stream, Some(LocalProgram { ends, owners, admitted }), place)
    }

    /// That of a program on another machine.
    pub(crate) fn of_machine(stream: TcpStream, place: OwnedSemaphorePermit) -> Self {
        Self::of(stream, None, place)
    }

    fn of(stream: TcpStream, program: Option<LocalProgram>, place: OwnedSemaphorePermit) -> Self {
        // A head and the first bytes of a body are writes of their own.
        let _ = stream.set_nodelay(true);
        let (is_under_way, has_ended, reads) = Default::default();
        let shared = Shared { stream, program, is_under_way, has_ended, reads };
        Self { under_way: UnderWay(Arc::new(shared)), _place: place }
    }

    pub(crate) fn under_way(&self) -> UnderWay {
        self.under_way.clone()
    }

    fn stream(&self) -> &TcpStream {
        &self.under_way.0.stream
    }

    fn poll_write_by(
        &self,
        context: &mut Context<'_>,
        write: impl Fn(&TcpStream) -> io::Result<usize>,
    ) -> Poll<io::Result<usize>> {
        loop {
            ready!(self.stream().poll_write_ready(context))?;
            match write(self.stream()) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                written => return Poll::Ready(written),
            }
        }
    }
}

impl Drop for ProgramSocket {
    fn drop(&mut self) {
        if self.under_way.0.is_under_way.load(Ordering::Relaxed) {
            let _ = self.stream().set_zero_linger();
        }
    }
}

impl AsyncRead for ProgramSocket {
    fn poll_read(self: Pin<&mut Self>, context: &mut Context<'_>, into: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        loop {
            ready!(self.stream().poll_read_ready(context))?;
            match self.stream().try_read_buf(into) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Ok(0) if into.remaining() > 0 => {
                    self.under_way.0.has_ended.store(true, Ordering::Relaxed);
                    return Poll::Ready(Ok(()));
                }
                read => {
                    self.under_way.0.reads.fetch_add(1, Ordering::Relaxed);
                    return Poll::Ready(read.map(drop));
                }
            }
        }
    }
}

impl AsyncWrite for ProgramSocket {
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, from: &[u8]) -> Poll<io::Result<usize>> {
        self.poll_write_by(context, |stream| stream.try_write(from))
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        from: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.poll_write_by(context, |stream| stream.try_write_vectored(from))
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        match shutdown(self.stream(), Shutdown::Write) {
            // The program has closed it.
            Ok(()) | Err(Errno::NOTCONN) => Poll::Ready(Ok(())),
            Err(error) => Poll::Ready(Err(error.into())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::guests::Guests;
    use rustix::process::geteuid;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::TcpListener;
    use tokio::sync::Semaphore;

    async fn pair(at: &str) -> (TcpStream, TcpStream) {
        let listener = TcpListener::bind(at).await.unwrap();
        let program = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        (program, listener.accept().await.unwrap().0)
    }

    #[tokio::test]
    async fn a_connection_has_its_users_share_until_it_is_closed() {
        let (program, ours) = pair("127.0.0.1:0").await;
        let ends = [program.local_addr().unwrap(), ours.local_addr().unwrap()];
        let guests = Guests::new([geteuid().as_raw() + 1; 2], vec![geteuid().as_raw()]);
        let mut admitted = Vec::new();
        while let Ok(one) = guests.admit(ends[0], ends[1]).await {
            admitted.push(one);
        }
        let place = Arc::new(Semaphore::new(1)).acquire_owned().await.unwrap();
        let ours = ProgramSocket::new(ours, ends, guests.owners.clone(), admitted.pop().unwrap(), place);
        let under_way = ours.under_way();
        assert_eq!(under_way.guest(), Some(geteuid().as_raw()));
        // As when it becomes a tunnel, and whoever served its requests is done.
        let tunnel = ours;
        assert!(under_way.another_flow().is_none() && guests.admit(ends[0], ends[1]).await.is_err());
        drop((tunnel, under_way));
        assert!(admitted[0].another().is_some());
    }

    #[tokio::test]
    async fn what_is_not_all_reads_as_a_reset_and_what_is_as_an_end() {
        for breaks in [true, false] {
            let (mut program, ours) = pair("127.0.0.1:0").await;
            let place = Arc::new(Semaphore::new(1)).acquire_owned().await.unwrap();
            let ends = [program.local_addr().unwrap(), ours.local_addr().unwrap()];
            let guests = Guests::new([geteuid().as_raw(); 2], vec![]);
            let admitted = guests.admit(ends[0], ends[1]).await.unwrap();
            let mut ours = ProgramSocket::new(ours, ends, guests.owners.clone(), admitted, place);
            ours.write_all(b"half").await.unwrap();
            let mut half = [0; 4];
            program.read_exact(&mut half).await.unwrap();
            ours.under_way().begins();
            if !breaks {
                ours.under_way().ends();
            }
            drop(ours);
            let read = program.read(&mut half).await;
            match breaks {
                true => assert_eq!(read.unwrap_err().kind(), io::ErrorKind::ConnectionReset),
                false => assert_eq!(read.unwrap(), 0),
            }
        }
    }
}
