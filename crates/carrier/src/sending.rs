//! How the lanes of a QUIC connection send: short messages together, and long ones in turns.
//!
//! **Together.** quinn sends as soon as anything is written. Each of a hundred lanes that says a few bytes would have a packet of its own, with a packet's overhead, and each packet that is
//! lost makes the window smaller. So what is short waits until all that is ready to run has run, which takes some microseconds, and is then written at once.
//!
//! **In turns.** Where there is room for some lanes only, quinn wakes all who wait for it, the latest first, and who is first takes all of it, so that many would never have any.

use crate::lingering::OfUse;
use crate::{LaneSender, Pending, broken_off};
use bytes::Bytes;
use quinn::{ConnectionError, SendStream, VarInt, WriteError};
use std::fmt;
use std::io;
use std::pin::pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::Duration;
use tokio::sync::{Mutex, oneshot};
use tokio::task::yield_now;

/// The code that a lane is reset or stopped with, and a connection closed with: whoever needs a reason has had it in a frame.
pub(crate) const CODE: VarInt = VarInt::from_u32(0);

/// What a connection is closed with that takes too much of a processor for what it brings.
pub(crate) const EXCESSIVE: VarInt = VarInt::from_u32(1);

/// How much a lane gives to QUIC before others have their turn, in bytes, and a chunk more.
const TURN: usize = 64 * 1024;

/// How long others wait for a lane's turn: one whose other end takes nothing must not hold them up.
const TURN_TIME: Duration = Duration::from_secs(1);

/// How long a server keeps what a lane that has ended has sent and nobody acknowledged: several round trips of the worst network. Its flow no longer answers for that memory.
const FINISH_MAX: Duration = Duration::from_secs(5);

/// Of its lanes' bytes a connection takes over as many as its congestion window has, a quarter more, and these, up to the window that its owner set: what is under way, and what is
/// ready for when some of it is acknowledged. More would wait there for no use, where neither another lane's bytes can pass them nor another carrier take them.
const AHEAD: u64 = 64 * 1024;

/// What is no longer goes together with what other lanes say, in bytes: two or three packets, an answer of a few kilobytes with its frames.
const SHORT: usize = 4 * 1024;

/// What the lanes of a carrier share as they send.
pub(crate) struct Sending {
    connection: quinn::Connection,
    turn: Mutex<()>,
    /// The most that the connection is to take over, in bytes.
    window: AtomicU64,
    /// What waits to be said together: at most one thing of each lane.
    together: std::sync::Mutex<Vec<Said>>,
}

impl fmt::Debug for Sending {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sending").field("window", &self.window).finish_non_exhaustive()
    }
}

/// What a lane says together with others.
enum Said {
    Bytes(Stream, Vec<Bytes>, oneshot::Sender<Taken>),
    /// Its end. At a server, the connection counts until the other end has it.
    End(Stream, Option<Arc<OfUse>>),
}

/// A lane's stream again, what of its bytes QUIC has not taken yet, and how that went.
type Taken = (Stream, Vec<Bytes>, Result<(), WriteError>);

/// A lane's stream, or none. If it is not ended it is broken off: quinn would finish it.
#[derive(Debug, Default)]
struct Stream(Option<SendStream>);

impl Stream {
    fn get(&mut self) -> io::Result<&mut SendStream> {
        self.0.as_mut().ok_or_else(broken_off)
    }

    /// Takes it out, if it is there.
    fn take(&mut self) -> io::Result<Self> {
        if self.0.is_some() { Ok(std::mem::take(self)) } else { Err(broken_off()) }
    }

    fn end(mut self, of_use: Option<Arc<OfUse>>) {
        let Some(mut stream) = self.0.take() else { return };
        // An error is that of a connection which is gone, or of a stream that the other end has stopped.
        if stream.finish().is_ok()
            && let Some(of_use) = of_use
        {
            tokio::spawn(async move {
                if tokio::time::timeout(FINISH_MAX, stream.stopped()).await.is_err() {
                    let _ = stream.reset(CODE);
                }
                drop(of_use);
            });
        }
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        if let Some(stream) = &mut self.0 {
            let _ = stream.reset(CODE);
        }
    }
}

impl Sending {
    pub(crate) fn new(connection: quinn::Connection, window: u64) -> Self {
        let (turn, together) = (Mutex::default(), std::sync::Mutex::default());
        Self { connection, turn, window: AtomicU64::new(window), together }
    }

    pub(crate) const fn connection(&self) -> &quinn::Connection {
        &self.connection
    }

    /// Sets the most that the connection is to take over, in bytes.
    pub(crate) fn set_window(&self, bytes: u64) {
        self.window.store(bytes, Ordering::Relaxed);
    }

    /// Lets the connection take over what it can make use of.
    fn make_room(&self) {
        let congestion_window = self.connection.stats().path.cwnd;
        let ahead = congestion_window.saturating_add(congestion_window / 4 + AHEAD);
        self.connection.set_send_window(ahead.min(self.window.load(Ordering::Relaxed)));
    }

    /// Says it with what others say now.
    fn say(self: &Arc<Self>, said: Said) {
        let is_first = {
            let mut together = self.together.lock().unwrap_or_else(PoisonError::into_inner);
            together.push(said);
            together.len() == 1
        };
        if is_first {
            let sending = self.clone();
            tokio::spawn(async move {
                yield_now().await;
                sending.say_all();
            });
        }
    }

    /// Writes all that waits, and waits for nothing meanwhile.
    fn say_all(&self) {
        let all = std::mem::take(&mut *self.together.lock().unwrap_or_else(PoisonError::into_inner));
        self.make_room();
        for said in all {
            match said {
                Said::Bytes(mut stream, mut chunks, back) => {
                    let written = stream.0.as_mut().map_or(Ok(()), |stream| write_now(stream, &mut chunks));
                    chunks.retain(|chunk| !chunk.is_empty());
                    // Its lane may have been given up meanwhile.
                    let _ = back.send((stream, chunks, written));
                }
                Said::End(stream, of_use) => stream.end(of_use),
            }
        }
    }
}

/// Writes what there is room for.
fn write_now(stream: &mut SendStream, chunks: &mut [Bytes]) -> Result<(), WriteError> {
    let mut from = 0;
    while from < chunks.len() {
        match pin!(stream.write_chunks(&mut chunks[from..])).poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(Ok(written)) if written.bytes > 0 => from += written.chunks,
            Poll::Ready(Err(error)) => return Err(error),
            Poll::Ready(Ok(_)) | Poll::Pending => break,
        }
    }
    Ok(())
}

/// A lane's sender.
#[derive(Debug)]
pub(crate) struct QuicSender {
    /// None once it is finished, or given up.
    stream: Stream,
    /// Of all lanes of the carrier.
    sending: Arc<Sending>,
    /// At a server.
    of_use: Option<Arc<OfUse>>,
}

impl QuicSender {
    pub(crate) const fn new(stream: SendStream, sending: Arc<Sending>, of_use: Option<Arc<OfUse>>) -> Self {
        Self { stream: Stream(Some(stream)), sending, of_use }
    }

    async fn send_together(&mut self, chunks: &mut [Bytes]) -> io::Result<()> {
        let stream = self.stream.take()?;
        let (back, taken) = oneshot::channel();
        self.sending.say(Said::Bytes(stream, chunks.iter_mut().map(std::mem::take).collect(), back));
        let (stream, mut rest, written) = taken.await.map_err(|_| broken_off())?;
        self.stream = stream;
        written.map_err(write_error)?;
        self.send_in_turns(&mut rest).await
    }

    async fn send_in_turns(&mut self, mut chunks: &mut [Bytes]) -> io::Result<()> {
        let stream = self.stream.get()?;
        while !chunks.is_empty() {
            let (mut many, mut len) = (0, 0);
            while many < chunks.len() && len < TURN {
                len += chunks[many].len();
                many += 1;
            }
            let (now, later) = chunks.split_at_mut(many);
            chunks = later;
            let turn = self.sending.turn.lock().await;
            self.sending.make_room();
            let write = stream.write_all_chunks(now);
            tokio::pin!(write);
            let written = tokio::select! {
                biased;
                written = &mut write => written,
                () = tokio::time::sleep(TURN_TIME) => {
                    drop(turn);
                    write.await
                }
            };
            written.map_err(write_error)?;
        }
        Ok(())
    }
}

impl LaneSender for QuicSender {
    fn send<'a>(&'a mut self, chunks: &'a mut [Bytes]) -> Pending<'a, io::Result<()>> {
        Box::pin(async move {
            match chunks.iter().map(Bytes::len).sum::<usize>() {
                0..=SHORT => self.send_together(chunks).await,
                _ => self.send_in_turns(chunks).await,
            }
        })
    }

    fn finish(&mut self) -> Pending<'_, io::Result<()>> {
        Box::pin(async {
            let stream = self.stream.take()?;
            self.sending.say(Said::End(stream, self.of_use.clone()));
            Ok(())
        })
    }
}

fn write_error(error: WriteError) -> io::Error {
    match error {
        WriteError::ConnectionLost(error) => gone(error),
        WriteError::Stopped(_) | WriteError::ClosedStream | WriteError::ZeroRttRejected => broken_off(),
    }
}

/// A connection that is there no more.
pub(crate) fn gone(error: ConnectionError) -> io::Error {
    let kind = match error {
        ConnectionError::TimedOut => io::ErrorKind::TimedOut,
        _ => io::ErrorKind::ConnectionAborted,
    };
    io::Error::new(kind, error)
}
