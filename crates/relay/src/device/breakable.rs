//! A program's connection that can be broken off so that the program notices it: [`Breakable`].
//!
//! A Unix socket knows no RST: a program reads the end of the stream, whatever there was. But where a socket is closed and bytes wait in it that nobody has read, Linux has the
//! other end's next read fail with `ECONNRESET` (`unix_release_sock`). So one byte is left in it at all times that was passed on already: first the end of the line with the
//! destination, then the last one that has come. A connection that ends well takes it out before.
//!
//! A program may read no more and still write (`SHUT_RD`). Where a network is in between, the other end does not learn that, and what it says is dropped here, too.
//!
//! A byte that the program sends as urgent (`MSG_OOB`) comes in its place among the others.

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::{ioctl_fionread, readv};
use rustix::net::sockopt::set_socket_oobinline;
use rustix::net::{RecvFlags, recv};
use std::io::{self, IoSliceMut};
use std::os::fd::AsFd as _;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, Interest, ReadBuf};
use tokio::net::UnixStream;
use tokio::time::sleep;

/// How often it is looked whether a program that writes no more has closed.
const CLOSED_TICK: Duration = Duration::from_millis(100);

/// The most that is drained at once.
const DRAIN_BYTES: usize = 64 * 1024;

/// A connection in which a byte is left. Dropped, it is broken off.
#[derive(Debug)]
pub(crate) struct Breakable {
    socket: UnixStream,
}

impl Breakable {
    /// Reads the line that a program's library says first, of at most so many bytes; its end is left.
    ///
    /// # Errors
    /// If it is longer, or no text, or the connection ends within it.
    pub(crate) async fn after_line(socket: UnixStream, longest: usize) -> io::Result<(Self, String)> {
        // An urgent byte is otherwise no part of the stream, and is counted as one.
        set_socket_oobinline(&socket, true)?;
        let mut line = vec![0; longest + 1];
        let len = loop {
            socket.readable().await?;
            let looked = socket.try_io(Interest::READABLE, || {
                // Asked first: what comes before the end is seen then.
                let is_at_end = is_at_end(&socket)?;
                let seen = recv(&socket, &mut line[..], RecvFlags::PEEK | RecvFlags::DONTWAIT)?.0;
                match line[..seen].iter().position(|byte| *byte == b'\n') {
                    Some(end) => Ok(end),
                    None if seen > longest => Err(io::ErrorKind::InvalidData.into()),
                    None if seen == 0 || is_at_end => Err(io::ErrorKind::UnexpectedEof.into()),
                    None => Err(io::ErrorKind::WouldBlock.into()),
                }
            });
            match looked {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                looked => break looked?,
            }
        };
        line.truncate(len);
        if len > 0 {
            let taken = recv(&socket, &mut line[..], RecvFlags::DONTWAIT)?.0;
            debug_assert_eq!(taken, len, "it was seen");
        }
        Ok((Self { socket }, String::from_utf8(line).map_err(io::Error::other)?))
    }

    /// Takes so many bytes out that say nothing. The last of them is left.
    ///
    /// # Errors
    /// If the program has closed before it said them all.
    pub(crate) async fn drain(&mut self, mut bytes: usize) -> io::Result<()> {
        let mut some = vec![0; bytes.min(DRAIN_BYTES)];
        while bytes > 0 {
            let room = bytes.min(some.len());
            match self.read(&mut some[..room]).await? {
                0 => return Err(io::ErrorKind::UnexpectedEof.into()),
                taken => bytes -= taken,
            }
        }
        Ok(())
    }

    /// What tells when the program has closed the connection, also while nothing is read from it.
    ///
    /// # Errors
    /// If there is no descriptor for it.
    pub(crate) fn watch(&self) -> io::Result<Watch> {
        // A registration of its own: what this one sees as read must stay readable for the other.
        let copy = self.socket.as_fd().try_clone_to_owned()?;
        Ok(Watch(UnixStream::from_std(copy.into())?))
    }

    /// The connection ends well: the program reads the end of the stream.
    pub(crate) fn end(self) {
        // At worst it is told as broken off.
        let _ = recv(&self.socket, &mut [0; 1][..], RecvFlags::DONTWAIT);
    }

    /// How many bytes have come beyond the one that is left, as far as there is room for them.
    fn new_bytes(&self, room: usize) -> io::Result<usize> {
        let waiting = usize::try_from(ioctl_fionread(&self.socket)?).unwrap_or(usize::MAX);
        Ok(waiting.saturating_sub(1).min(room))
    }

    /// Takes what has come beyond the byte that is left, and leaves the last one.
    fn take(&self, buffer: &mut [u8]) -> io::Result<usize> {
        let mut new = self.new_bytes(buffer.len())?;
        if new == 0 {
            if !is_at_end(&self.socket)? {
                return Err(io::ErrorKind::WouldBlock.into());
            }
            // What the program wrote before it ended may have come since the first look.
            new = self.new_bytes(buffer.len())?;
            if new == 0 {
                return self.socket.take_error()?.map_or(Ok(0), Err);
            }
        }
        let mut left = [0; 1];
        let (all_but_last, _) = buffer.split_at_mut(new - 1);
        let taken = readv(&self.socket, &mut [IoSliceMut::new(&mut left), IoSliceMut::new(all_but_last)])?;
        // The byte that was left has been passed on before, and the next one takes its place.
        let last = &mut buffer[taken - 1..taken];
        recv(&self.socket, last, RecvFlags::PEEK | RecvFlags::DONTWAIT)?;
        Ok(taken)
    }
}

/// Tells when a program has closed its connection ([`Breakable::watch`]).
#[derive(Debug)]
pub(crate) struct Watch(UnixStream);

impl Watch {
    /// Returns when it has.
    pub(crate) async fn closed(&self) -> io::Result<()> {
        loop {
            let ready = self.0.ready(Interest::READABLE).await?;
            // What is ready is forgotten first: what happens from here on makes it so again.
            let _ = self.0.try_io(Interest::READABLE, || Err::<(), _>(io::ErrorKind::WouldBlock.into()));
            if is_closed(&self.0)? {
                return Ok(());
            }
            // The end of writing is never forgotten.
            if ready.is_read_closed() {
                sleep(CLOSED_TICK).await;
            }
        }
    }
}

/// Whether the other end writes no more.
fn is_at_end(socket: &UnixStream) -> io::Result<bool> {
    Ok(state(socket)?.intersects(PollFlags::RDHUP | PollFlags::HUP | PollFlags::ERR))
}

/// Whether the other end neither reads nor writes any more.
fn is_closed(socket: &UnixStream) -> io::Result<bool> {
    Ok(state(socket)?.intersects(PollFlags::HUP | PollFlags::ERR))
}

/// What has become of the other end.
fn state(socket: &UnixStream) -> io::Result<PollFlags> {
    let mut asked = [PollFd::new(socket, PollFlags::RDHUP)];
    poll(&mut asked, Some(&Timespec::default()))?;
    Ok(asked[0].revents())
}

impl AsyncRead for Breakable {
    fn poll_read(self: Pin<&mut Self>, context: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        loop {
            ready!(self.socket.poll_read_ready(context))?;
            let room = buffer.initialize_unfilled();
            match self.socket.try_io(Interest::READABLE, || Self::take(&self, room)) {
                Ok(taken) => {
                    buffer.advance(taken);
                    return Poll::Ready(Ok(()));
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => return Poll::Ready(Err(error)),
            }
        }
    }
}

impl AsyncWrite for Breakable {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let written = ready!(Pin::new(&mut self.socket).poll_write(context, bytes));
        match written {
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe && !is_closed(&self.socket)? => {
                Poll::Ready(Ok(bytes.len()))
            }
            written => Poll::Ready(written),
        }
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.socket).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.socket).poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::copy::copy_both;
    use rustix::io::Errno;
    use rustix::net::{SendFlags, Shutdown, send, shutdown};
    use tokio::io::AsyncWriteExt as _;

    /// A program's end, and ours, after a line.
    async fn pair() -> (UnixStream, Breakable) {
        let (mut program, ours) = UnixStream::pair().unwrap();
        program.write_all(b"10.9.1.1:80\n").await.unwrap();
        let (ours, line) = Breakable::after_line(ours, 128).await.unwrap();
        assert_eq!(line, "10.9.1.1:80");
        (program, ours)
    }

    async fn read(stream: &mut (impl AsyncRead + Unpin), len: usize) -> Vec<u8> {
        let mut bytes = vec![0; len];
        let read = tokio::time::timeout(Duration::from_secs(10), stream.read_exact(&mut bytes)).await;
        read.expect("it comes").unwrap();
        bytes
    }

    #[tokio::test]
    async fn a_broken_connection_reads_as_a_reset_and_a_good_end_as_an_end() {
        for (breaks, says) in [(true, &b""[..]), (true, b"a request"), (false, b""), (false, b"a request")] {
            let (mut program, mut ours) = pair().await;
            program.write_all(says).await.unwrap();
            assert_eq!(read(&mut ours, says.len()).await, says);
            ours.write_all(b"a half answer").await.unwrap();
            if breaks {
                drop(ours)
            } else {
                ours.end()
            }
            let mut read = Vec::new();
            let ended = program.read_to_end(&mut read).await;
            assert_eq!(read, b"a half answer");
            match breaks {
                true => assert_eq!(ended.unwrap_err().kind(), io::ErrorKind::ConnectionReset),
                false => assert_eq!(ended.unwrap(), read.len()),
            }
        }
    }

    #[tokio::test]
    async fn bytes_come_once_and_in_order_however_they_are_cut_and_then_the_end() {
        const LEN: usize = 1_000_000;
        let wanted: Vec<u8> = (0..LEN).map(|at| (at * 7 % 251) as u8).collect();
        for (pieces, room) in [(1, 1), (1, 64), (3, 2), (1_000, 1), (1_000, 999), (50_000, 65_536)] {
            let (mut program, mut ours) = pair().await;
            let len = if pieces * room < 100_000 { LEN / 100 } else { LEN };
            let all = wanted[..len].to_vec();
            let writing = tokio::spawn(async move {
                for piece in all.chunks(pieces) {
                    program.write_all(piece).await.unwrap();
                }
                program.shutdown().await.unwrap();
                program
            });
            let (mut come, mut buffer) = (Vec::new(), vec![0; room]);
            loop {
                match ours.read(&mut buffer).await.unwrap() {
                    0 => break,
                    bytes => come.extend_from_slice(&buffer[..bytes]),
                }
            }
            assert!(come == wanted[..len], "{pieces}, {room}");
            drop(writing.await.unwrap());
        }
    }

    /// On a thread of its own, so that it ends at any moment of ours.
    #[tokio::test]
    async fn what_a_program_writes_just_before_its_end_is_read() {
        for _ in 0..20_000 {
            let (program, ours) = std::os::unix::net::UnixStream::pair().unwrap();
            ours.set_nonblocking(true).unwrap();
            let ours = UnixStream::from_std(ours).unwrap();
            let started = std::sync::Barrier::new(2);
            std::thread::scope(|scope| {
                scope.spawn(|| {
                    use std::io::Write as _;
                    (&program).write_all(b"\n").unwrap();
                    started.wait();
                    (&program).write_all(b"all").unwrap();
                    program.shutdown(std::net::Shutdown::Write).unwrap();
                });
                started.wait();
                let ours = Breakable { socket: ours };
                let mut come = Vec::new();
                loop {
                    let mut buffer = [0; 8];
                    match Breakable::take(&ours, &mut buffer) {
                        Ok(0) => break,
                        Ok(bytes) => come.extend_from_slice(&buffer[..bytes]),
                        Err(error) => assert_eq!(error.kind(), io::ErrorKind::WouldBlock),
                    }
                }
                assert_eq!(come, b"all");
            });
        }
    }

    #[tokio::test]
    async fn a_close_is_noticed_behind_unread_bytes_and_a_shutdown_is_none() {
        let (mut program, mut ours) = pair().await;
        program.write_all(&[0; 1_000]).await.unwrap();
        program.shutdown().await.unwrap();
        let watch = ours.watch().unwrap();
        let waited = tokio::time::timeout(Duration::from_millis(50), watch.closed()).await;
        assert!(waited.is_err(), "it reads still");
        ours.drain(999).await.unwrap();
        assert_eq!(read(&mut ours, 1).await, [0]);
        drop(program);
        tokio::time::timeout(Duration::from_secs(10), watch.closed()).await.expect("it is noticed").unwrap();
        assert!(ours.drain(1).await.is_err());
    }

    #[tokio::test]
    async fn urgent_bytes_come_in_their_place_and_all_after_them() {
        let (mut program, mut ours) = pair().await;
        let says_urgently = |program: &UnixStream, bytes: &[u8]| match send(program, bytes, SendFlags::OOB) {
            Err(Errno::OPNOTSUPP) => false,
            sent => sent.unwrap() == bytes.len(),
        };
        if !says_urgently(&program, b"a") {
            return println!("not tested: this kernel has no urgent bytes of Unix sockets");
        }
        assert_eq!(read(&mut ours, 1).await, b"a");
        program.write_all(b"bc").await.unwrap();
        assert!(says_urgently(&program, b"de") && says_urgently(&program, b"f"));
        program.write_all(b"gh").await.unwrap();
        assert_eq!(read(&mut ours, 7).await, b"bcdefgh");
        // Also where each comes alone, is the last, or meets a buffer that is small.
        for bytes in [&b"i"[..], b"jk"] {
            assert!(says_urgently(&program, bytes));
            assert_eq!(read(&mut ours, bytes.len()).await, bytes);
        }
        assert!(says_urgently(&program, b"lmn"));
        program.shutdown().await.unwrap();
        for wanted in [&b"l"[..], b"m", b"n", b""] {
            let mut buffer = [0; 1];
            let len = ours.read(&mut buffer).await.unwrap();
            assert_eq!(&buffer[..len], wanted);
        }
        ours.write_all(b"answer").await.unwrap();
        ours.end();
        let mut answer = Vec::new();
        program.read_to_end(&mut answer).await.unwrap();
        assert_eq!(answer, b"answer");
    }

    #[tokio::test]
    async fn a_program_that_reads_no_more_may_still_write() {
        let (mut program, mut ours) = pair().await;
        let (mut flow, mut far) = tokio::io::duplex(1_000);
        let carrying = tokio::spawn(async move { copy_both(&mut ours, &mut flow).await });
        shutdown(&program, Shutdown::Read).unwrap();
        for _ in 0..10 {
            far.write_all(&[0; 10_000]).await.unwrap();
            program.write_all(b"more").await.unwrap();
            assert_eq!(read(&mut far, 4).await, b"more");
        }
        // Nobody is there any more.
        drop(program);
        let _ = far.write_all(&[0; 10_000]).await;
        let carried = tokio::time::timeout(Duration::from_secs(10), carrying).await;
        assert_eq!(carried.expect("it ends").unwrap().unwrap_err().kind(), io::ErrorKind::BrokenPipe);
    }

    #[tokio::test]
    async fn nothing_new_is_waited_for_and_a_line_that_is_none_is_an_error() {
        let (mut program, mut ours) = pair().await;
        let mut buffer = [0; 8];
        let waited = tokio::time::timeout(Duration::from_millis(50), ours.read(&mut buffer)).await;
        assert!(waited.is_err(), "the byte that is left is nothing new");
        program.write_all(b"x").await.unwrap();
        assert_eq!(ours.read(&mut buffer).await.unwrap(), 1);
        for (says, error) in [
            (&[b'1'; 129][..], io::ErrorKind::InvalidData),
            (b"10.9.1.1", io::ErrorKind::UnexpectedEof),
            (b"", io::ErrorKind::UnexpectedEof),
        ] {
            let (mut program, ours) = UnixStream::pair().unwrap();
            program.write_all(says).await.unwrap();
            drop(program);
            assert_eq!(Breakable::after_line(ours, 128).await.unwrap_err().kind(), error);
        }
    }
}
