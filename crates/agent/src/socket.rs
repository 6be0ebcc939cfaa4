//! A program's connection: [`ProgramSocket`].

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::sync::OwnedSemaphorePermit;

/// A program's connection. If it is dropped while something is [`UnderWay`], it is reset: the program reads `ECONNRESET`, and takes no part for the whole.
#[derive(Debug)]
pub(crate) struct ProgramSocket {
    stream: TcpStream,
    under_way: UnderWay,
    _place: OwnedSemaphorePermit,
}

/// Whether a program's connection carries something that has not ended.
#[derive(Clone, Debug, Default)]
pub(crate) struct UnderWay(Arc<AtomicBool>);

impl UnderWay {
    /// Something begins.
    pub(crate) fn begins(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    /// All of it was passed on.
    pub(crate) fn ends(&self) {
        self.0.store(false, Ordering::Relaxed);
    }
}

impl ProgramSocket {
    /// `place` is given back when the connection has ended, whoever has it by then.
    pub(crate) fn new(stream: TcpStream, place: OwnedSemaphorePermit) -> Self {
        // A head and the first bytes of a body are writes of their own.
        let _ = stream.set_nodelay(true);
        Self { stream, under_way: UnderWay::default(), _place: place }
    }

    pub(crate) fn under_way(&self) -> UnderWay {
        self.under_way.clone()
    }
}

impl Drop for ProgramSocket {
    fn drop(&mut self) {
        if self.under_way.0.load(Ordering::Relaxed) {
            let _ = self.stream.set_zero_linger();
        }
    }
}

impl AsyncRead for ProgramSocket {
    fn poll_read(mut self: Pin<&mut Self>, context: &mut Context<'_>, into: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(context, into)
    }
}

impl AsyncWrite for ProgramSocket {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, from: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(context, from)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        from: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(context, from)
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
    use tokio::net::TcpListener;
    use tokio::sync::Semaphore;

    async fn pair(at: &str) -> (TcpStream, TcpStream) {
        let listener = TcpListener::bind(at).await.unwrap();
        let program = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        (program, listener.accept().await.unwrap().0)
    }

    #[tokio::test]
    async fn what_is_not_all_reads_as_a_reset_and_what_is_as_an_end() {
        for breaks in [true, false] {
            let (mut program, ours) = pair("127.0.0.1:0").await;
            let place = Arc::new(Semaphore::new(1)).acquire_owned().await.unwrap();
            let mut ours = ProgramSocket::new(ours, place);
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
