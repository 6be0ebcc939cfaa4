//! Copies both ways between two connections: [`copy_both`].
//!
//! A connection that is carried is idle most of the time, and a relay has thousands. So bytes are read into a buffer that all connections of a thread share, and written at once. A
//! connection keeps a buffer of its own only for what the other end does not take yet.
//!
//! Bounds: `READ_BYTES` each way while the other end takes nothing, and `READ_BYTES` for each thread.

use std::cell::RefCell;
use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::task::coop;

/// The most that is read at once, in bytes: a second of 0.5 Mbit/s, and few system calls at a gigabit.
const READ_BYTES: usize = 64 * 1024;

thread_local! {
    /// What was read last by any connection of this thread. It is copied away before the next one reads.
    static SHARED: RefCell<Vec<u8>> = RefCell::new(vec![0; READ_BYTES]);
}

/// Copies both ways until both have ended. The end of one way is passed on as a shutdown, and the other goes on.
///
/// # Errors
/// The first error of either connection. What was not passed on by then is lost.
pub async fn copy_both<A, B>(one: &mut A, other: &mut B) -> io::Result<()>
where
    A: AsyncRead + AsyncWrite + Unpin,
    B: AsyncRead + AsyncWrite + Unpin,
{
    let (mut there, mut back) = (Direction::default(), Direction::default());
    poll_fn(|context| {
        let there = there.poll(context, one, other)?;
        let back = back.poll(context, other, one)?;
        if there.is_ready() && back.is_ready() { Poll::Ready(Ok(())) } else { Poll::Pending }
    })
    .await
}

/// One way.
#[derive(Debug, Default)]
struct Direction {
    stage: Stage,
    /// What was read and is not written, and how much of it is.
    rest: Vec<u8>,
    written: usize,
    needs_flush: bool,
}

#[derive(Clone, Copy, Debug, Default)]
enum Stage {
    #[default]
    Copies,
    ShutsDown,
    Over,
}

impl Direction {
    fn poll<R, W>(&mut self, context: &mut Context<'_>, from: &mut R, to: &mut W) -> Poll<io::Result<()>>
    where
        R: AsyncRead + Unpin,
        W: AsyncWrite + Unpin,
    {
        loop {
            match self.stage {
                Stage::Over => return Poll::Ready(Ok(())),
                Stage::ShutsDown => {
                    ready!(Pin::new(&mut *to).poll_shutdown(context))?;
                    self.stage = Stage::Over;
                }
                Stage::Copies if self.rest.is_empty() => {
                    let progress = ready!(coop::poll_proceed(context));
                    let Poll::Ready(moved) = SHARED.with_borrow_mut(|shared| self.pass(context, from, to, shared))
                    else {
                        return self.poll_flush(context, to);
                    };
                    progress.made_progress();
                    if !moved? {
                        self.stage = Stage::ShutsDown;
                    }
                }
                Stage::Copies => {
                    let bytes = ready!(Pin::new(&mut *to).poll_write(context, &self.rest[self.written..]))?;
                    self.wrote(bytes)?;
                    if self.written == self.rest.len() {
                        (self.rest, self.written) = (Vec::new(), 0);
                    }
                }
            }
        }
    }

    /// Reads into `shared`, and writes as much of it as is taken at once. Whether there was anything.
    fn pass<R, W>(
        &mut self,
        context: &mut Context<'_>,
        from: &mut R,
        to: &mut W,
        shared: &mut [u8],
    ) -> Poll<io::Result<bool>>
    where
        R: AsyncRead + Unpin,
        W: AsyncWrite + Unpin,
    {
        let mut read = ReadBuf::new(shared);
        ready!(Pin::new(from).poll_read(context, &mut read))?;
        let read = read.filled();
        if read.is_empty() {
            return Poll::Ready(Ok(false));
        }
        if let Poll::Ready(bytes) = Pin::new(to).poll_write(context, read) {
            self.wrote(bytes?)?;
        }
        self.rest = read[std::mem::take(&mut self.written)..].to_vec();
        Poll::Ready(Ok(true))
    }

    fn wrote(&mut self, bytes: usize) -> io::Result<()> {
        if bytes == 0 {
            return Err(io::ErrorKind::WriteZero.into());
        }
        self.written += bytes;
        self.needs_flush = true;
        Ok(())
    }

    /// Nothing is there to be read. What was written may still wait in the writer.
    fn poll_flush(&mut self, context: &mut Context<'_>, to: &mut (impl AsyncWrite + Unpin)) -> Poll<io::Result<()>> {
        if self.needs_flush {
            ready!(Pin::new(to).poll_flush(context))?;
            self.needs_flush = false;
        }
        Poll::Pending
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, duplex, split};

    const LEN: usize = 300_000;

    fn bytes(seed: usize) -> Vec<u8> {
        (0..LEN).map(|at| ((at * 7 + seed) % 251) as u8).collect()
    }

    #[tokio::test]
    async fn both_ways_come_whole_and_one_goes_on_after_the_others_end() {
        for pipe in [1_000, 1 << 20] {
            let ((near, mut one), (mut other, far)) = (duplex(pipe), duplex(pipe));
            let ((mut near_read, mut near_write), (mut far_read, mut far_write)) = (split(near), split(far));
            let there = async {
                near_write.write_all(&bytes(1)).await.unwrap();
                near_write.shutdown().await.unwrap();
            };
            let back = async {
                let mut read = Vec::new();
                far_read.read_to_end(&mut read).await.unwrap();
                assert!(read == bytes(1));
                far_write.write_all(&bytes(2)).await.unwrap();
                far_write.shutdown().await.unwrap();
            };
            let answer = async {
                let mut read = Vec::new();
                near_read.read_to_end(&mut read).await.unwrap();
                read
            };
            let (copied, (), (), answer) = tokio::join!(copy_both(&mut one, &mut other), there, back, answer);
            copied.unwrap();
            assert!(answer == bytes(2));
        }
    }

    #[tokio::test]
    async fn an_idle_connection_holds_no_buffer_and_a_stuck_one_what_is_stuck() {
        let ((mut near, mut one), (mut other, mut far)) = (duplex(1_000), duplex(1_000));
        let mut way = Direction::default();
        let mut step = async |way: &mut Direction| {
            let mut is_pending = false;
            poll_fn(|context| {
                is_pending = way.poll(context, &mut one, &mut other).is_pending();
                Poll::Ready(())
            })
            .await;
            assert!(is_pending);
        };
        near.write_all(&[1; 1_000]).await.unwrap();
        step(&mut way).await;
        assert_eq!(way.rest.capacity(), 0, "all of it is on its way");
        near.write_all(&[2; 700]).await.unwrap();
        step(&mut way).await;
        assert_eq!(way.rest.len(), 700, "the other end takes nothing");
        far.read_exact(&mut [0; 1_000]).await.unwrap();
        step(&mut way).await;
        assert_eq!(way.rest.capacity(), 0);
        let mut rest = [0; 700];
        far.read_exact(&mut rest).await.unwrap();
        assert_eq!(rest, [2; 700]);
    }

    #[tokio::test]
    async fn an_end_that_is_gone_is_an_error() {
        let ((mut near, mut one), (mut other, far)) = (duplex(1_000), duplex(1_000));
        drop(far);
        near.write_all(b"for nobody").await.unwrap();
        assert!(copy_both(&mut one, &mut other).await.is_err());
    }
}
