//! The task of one connection: reads and writes until either end is done with it.

use super::buffers::Buffers;
use super::frames::{Frames, Item, Kind, Role, Violation, put_frame, put_frame_head, put_masked};
use super::lanes::Key;
use super::shared::{Outgoing, Shared};
use super::upgrade::Asked;
use bytes::{Buf as _, BufMut as _, Bytes, BytesMut};
use ring::rand::{SecureRandom as _, SystemRandom};
use std::collections::VecDeque;
use std::future::poll_fn;
use std::io::{self, IoSlice};
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _, split};
use tokio::task::yield_now;
use tokio::time::timeout;

/// The least room that is read into, in bytes. TLS gives what there is of a record at a time (RFC 8446 §5.1).
const READ_MIN: usize = 4 * 1024;

/// How much is given to TLS at once, in bytes, where there is so much. It encrypts 64 KiB at a time, each with one call of the system; more at once makes neither
/// end faster, and memory that comes from the system and goes back each time.
const WRITE_MAX: usize = 64 * 1024;

/// After so many bytes those who wait for them have their turn: they find them in the processor's cache, and what is read next goes into the same buffers.
const TURN: usize = 64 * 1024;

/// What each frame counts besides its bytes. An empty one takes as long to look at, and a sender of nothing else would never let others have their turn.
const FRAME_COST: usize = 64;

/// A connection on which nothing has come for so long holds no buffers.
const REST: Duration = Duration::from_secs(1);

/// How long a goodbye may take to be written.
const GOODBYE: Duration = Duration::from_secs(1);

/// How a connection is run.
#[derive(Clone, Copy, Debug)]
pub(super) struct ConnConfig {
    pub(super) role: Role,
    pub(super) idle: Duration,
    pub(super) keep_alive: Option<Duration>,
    pub(super) patience: Duration,
}

/// What has come since others had their turn.
#[derive(Debug, Default)]
struct Turn {
    spent: usize,
}

impl Turn {
    /// A frame, or a piece of one, of so many bytes has come. Lets others have their turn after [`TURN`].
    async fn spend(&mut self, len: usize) {
        self.spent += len + FRAME_COST;
        if self.spent >= TURN {
            self.spent = 0;
            yield_now().await;
        }
    }
}

/// Frames over a stream, one message each way at a time: what comes before lanes do.
pub(super) struct Conversation<S> {
    pub(super) stream: S,
    pub(super) buffer: BytesMut,
    pub(super) frames: Frames,
    pub(super) role: Role,
}

impl<S: AsyncRead + AsyncWrite + Unpin> Conversation<S> {
    /// The other end's next message.
    pub(super) async fn message(&mut self) -> io::Result<Bytes> {
        let (mut buffers, mut message, mut turn) = (Buffers::default(), BytesMut::new(), Turn::default());
        loop {
            match next_item(&mut self.stream, &mut buffers, &mut self.buffer, &mut self.frames).await? {
                Item::Binary { last, bytes, .. } => {
                    message.extend_from_slice(&bytes);
                    if last {
                        return Ok(message.freeze());
                    }
                }
                Item::Ping(_) | Item::Pong => {}
                Item::Close(code) => return Err(closed(code)),
            }
            turn.spend(0).await;
        }
    }

    pub(super) async fn say(&mut self, bytes: &[u8]) -> io::Result<()> {
        let mut out = Vec::new();
        put_frame(&mut out, Kind::Binary, new_mask(self.role)?, &[bytes]);
        self.stream.write_all(&out).await?;
        self.stream.flush().await
    }

    /// Says that the connection ends, with this code, and waits until the other end has heard it.
    pub(super) async fn goodbye(&mut self, code: u16) -> io::Result<()> {
        let mut out = Vec::new();
        put_frame(&mut out, Kind::Close, new_mask(self.role)?, &[&code.to_be_bytes()]);
        self.stream.write_all(&out).await?;
        self.stream.shutdown().await?;
        timeout(GOODBYE, discard(&mut self.stream)).await?
    }

    /// Lanes from here on, until the carrier is gone. Where the answer to a device's request is outstanding, it comes first.
    pub(super) async fn run(self, shared: Arc<Shared>, config: ConnConfig, asked: Option<Asked>) {
        let (read, write) = split(self.stream);
        let (buffers, buffer, frames) = (Buffers::default(), self.buffer, self.frames);
        let mut reader = Reader { stream: read, buffers, buffer, frames, shared: &shared, config };
        let mut writer = Writer {
            stream: write,
            shared: &shared,
            config,
            out: VecDeque::new(),
            masked: BytesMut::new(),
            waiting: 0,
        };
        let (error, is_closed) = tokio::select! {
            biased;
            error = shared.until_gone() => (error, true),
            Err(error) = reader.run(asked) => (error, false),
            Err(error) = writer.run() => (error, false),
        };
        let code = violation_of(&error).map_or(1000, Violation::close_code);
        shared.end(error);
        let leave = async {
            if is_closed {
                // An application that is done may close the carrier right after its last word.
                writer.write_due().await?;
            }
            writer.goodbye(code).await?;
            discard(&mut reader.stream).await
        };
        let _ = timeout(GOODBYE, leave).await;
    }
}

/// The other end has closed the connection.
fn closed(code: Option<u16>) -> io::Error {
    let why = match code {
        // An end that waits for HELLO gets something else first.
        Some(1002) => {
            "the other end does not take what it was sent (1002): does TLS end in front of the server, and were both ends told so?"
        }
        _ => "closed by the other end",
    };
    io::Error::new(io::ErrorKind::ConnectionAborted, why)
}

pub(super) fn violated(violation: Violation) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, violation)
}

pub(super) fn violation_of(error: &io::Error) -> Option<&Violation> {
    error.get_ref().and_then(|inner| inner.downcast_ref())
}

/// A fresh one for each frame (RFC 6455 §5.3).
fn new_mask(role: Role) -> io::Result<Option<[u8; 4]>> {
    if role == Role::Server {
        return Ok(None);
    }
    let mut mask = [0; 4];
    SystemRandom::new().fill(&mut mask).map_err(|_| io::Error::other("the system has no dice"))?;
    Ok(Some(mask))
}

/// Reads until there is a frame, or a piece of one. Dropping it while it waits loses nothing.
async fn next_item(
    stream: &mut (impl AsyncRead + Unpin),
    buffers: &mut Buffers,
    buffer: &mut BytesMut,
    frames: &mut Frames,
) -> io::Result<Item> {
    loop {
        if let Some(item) = frames.take(buffer).map_err(violated)? {
            return Ok(item);
        }
        buffers.make_room(buffer, READ_MIN);
        if fill(stream, buffer).await? == 0 {
            return Err(io::Error::new(io::ErrorKind::ConnectionAborted, "the other end is gone"));
        }
    }
}

/// Reads what has come, up to the buffer's capacity, once there is something: records of TLS that are there already make one long piece. An error behind something comes with the next call.
async fn fill(stream: &mut (impl AsyncRead + Unpin), buffer: &mut BytesMut) -> io::Result<usize> {
    poll_fn(|cx| {
        let mut filled = 0;
        while buffer.len() < buffer.capacity() {
            let room = buffer.capacity() - buffer.len();
            let mut limited = (&mut *buffer).limit(room);
            match pin!(stream.read_buf(&mut limited)).poll(cx) {
                Poll::Ready(Ok(read)) if read > 0 => filled += read,
                _ if filled > 0 => break,
                other => return other,
            }
        }
        Poll::Ready(Ok(filled))
    })
    .await
}

/// Reads until the other end has closed: a system that has unread bytes drops what it was to send, and says that the connection was broken off (RFC 2525 §2.17).
async fn discard(stream: &mut (impl AsyncRead + Unpin)) -> io::Result<()> {
    let mut bytes = vec![0; READ_MIN];
    while stream.read(&mut bytes).await? > 0 {}
    Ok(())
}

struct Reader<'a, S> {
    stream: S,
    buffers: Buffers,
    buffer: BytesMut,
    frames: Frames,
    shared: &'a Shared,
    config: ConnConfig,
}

impl<S: AsyncRead + Unpin> Reader<'_, S> {
    async fn run(&mut self, asked: Option<Asked>) -> io::Result<()> {
        if let Some(asked) = asked {
            let answered = asked.answered(&mut self.stream, &mut self.buffer);
            timeout(self.config.idle, answered).await.map_err(|_| silent())??;
        }
        let mut turn = Turn::default();
        loop {
            let mut len = 0;
            match self.next().await? {
                Item::Binary { first, last, bytes } => {
                    len = bytes.len();
                    if let Some(full) = self.shared.hear(first, last, bytes).map_err(violated)? {
                        self.wait_for_room(full).await;
                    }
                }
                Item::Ping(bytes) => self.shared.answer(bytes),
                Item::Pong => {}
                Item::Close(code) => return Err(closed(code)),
            }
            turn.spend(len).await;
        }
    }

    async fn next(&mut self) -> io::Result<Item> {
        if let Some(item) = self.frames.take(&mut self.buffer).map_err(violated)? {
            return Ok(item);
        }
        let (stream, buffers, buffer) = (&mut self.stream, &mut self.buffers, &mut self.buffer);
        let idle = self.config.idle;
        if let Ok(item) = timeout(REST.min(idle), next_item(stream, buffers, buffer, &mut self.frames)).await {
            return item;
        }
        buffers.release(buffer);
        let next = next_item(stream, buffers, buffer, &mut self.frames);
        timeout(idle.saturating_sub(REST), next).await.map_err(|_| silent())?
    }

    /// Nothing is read while a lane holds as much as it may, or all together do; if nobody reads from them for longer than patience lasts, the one is broken off, for the others' sake.
    async fn wait_for_room(&mut self, full: Key) {
        if timeout(self.config.patience, self.shared.until_taken(full)).await.is_err() {
            self.shared.break_off(full);
        }
    }
}

fn silent() -> io::Error {
    io::Error::new(io::ErrorKind::TimedOut, "nothing came for too long")
}

struct Writer<'a, S> {
    stream: S,
    shared: &'a Shared,
    config: ConnConfig,
    /// What is to be written: heads of frames, and payloads as they lie in memory, with what they are to be masked with.
    out: VecDeque<(Bytes, Option<[u8; 4]>)>,
    /// At a device: what is written now, masked.
    masked: BytesMut,
    /// How many bytes all that is.
    waiting: usize,
}

impl<S: AsyncWrite + Unpin> Writer<'_, S> {
    async fn run(&mut self) -> io::Result<()> {
        loop {
            self.write_due().await?;
            // At once: a process may end right after its last word.
            while self.waiting > 0 {
                self.write().await?;
            }
            self.stream.flush().await?;
            self.masked = BytesMut::new();
            self.wait().await?;
            // What other lanes are about to say goes along, in one record of TLS and one packet.
            yield_now().await;
        }
    }

    /// Writes what is due, but for a short rest, which goes with what comes next or by itself.
    async fn write_due(&mut self) -> io::Result<()> {
        while let Some(due) = self.shared.due() {
            self.put_due(due)?;
            while self.waiting >= WRITE_MAX {
                self.write().await?;
            }
        }
        Ok(())
    }

    /// Waits until there is something to write, and keeps the way alive meanwhile if it is to.
    async fn wait(&mut self) -> io::Result<()> {
        let Some(keep_alive) = self.config.keep_alive else {
            self.shared.until_due().await;
            return Ok(());
        };
        if timeout(keep_alive, self.shared.until_due()).await.is_err() {
            self.put_small(Kind::Ping, Bytes::new())?;
        }
        Ok(())
    }

    fn put_due(&mut self, due: Outgoing) -> io::Result<()> {
        let message = match due {
            Outgoing::Message(message) => message,
            Outgoing::Pong(bytes) => return self.put_small(Kind::Pong, bytes),
            Outgoing::Ping => return self.put_small(Kind::Ping, Bytes::new()),
        };
        let mut head = Vec::with_capacity(8);
        message.put_head(&mut head);
        let mut mask = self.put_head(Kind::Binary, head.len() + message.len())?;
        self.put(head.into(), &mut mask);
        message.chunks.into_iter().for_each(|chunk| self.put(chunk, &mut mask));
        Ok(())
    }

    fn put_small(&mut self, kind: Kind, bytes: Bytes) -> io::Result<()> {
        let mut mask = self.put_head(kind, bytes.len())?;
        self.put(bytes, &mut mask);
        Ok(())
    }

    /// The head of a frame; what its payload is masked with.
    fn put_head(&mut self, kind: Kind, len: usize) -> io::Result<Option<[u8; 4]>> {
        let (mask, mut head) = (new_mask(self.config.role)?, Vec::with_capacity(14));
        put_frame_head(&mut head, kind, mask, len);
        self.put(head.into(), &mut None);
        Ok(mask)
    }

    fn put(&mut self, bytes: Bytes, mask: &mut Option<[u8; 4]>) {
        let (len, own) = (bytes.len(), *mask);
        self.waiting += len;
        self.out.push_back((bytes, own));
        if let Some(mask) = mask {
            mask.rotate_left(len % 4);
        }
    }

    /// Writes up to [`WRITE_MAX`] bytes of what waits.
    async fn write(&mut self) -> io::Result<()> {
        let written = match self.config.role {
            Role::Server => self.write_as_it_lies().await?,
            Role::Device => self.write_masked().await?,
        };
        if written == 0 {
            return Err(io::ErrorKind::WriteZero.into());
        }
        self.waiting -= written;
        Ok(())
    }

    async fn write_as_it_lies(&mut self) -> io::Result<usize> {
        let (mut slices, mut room) = (Vec::with_capacity(self.out.len()), WRITE_MAX);
        for (bytes, _) in &self.out {
            if room == 0 {
                break;
            }
            let len = bytes.len().min(room);
            slices.push(IoSlice::new(&bytes[..len]));
            room -= len;
        }
        let written = self.stream.write_vectored(&slices).await?;
        let mut done = written;
        while let Some((bytes, _)) = self.out.front_mut()
            && done >= bytes.len()
        {
            done -= bytes.len();
            self.out.pop_front();
        }
        if let Some((bytes, _)) = self.out.front_mut() {
            bytes.advance(done);
        }
        Ok(written)
    }

    /// What is masked lies in one place that stays in the processor's cache.
    async fn write_masked(&mut self) -> io::Result<usize> {
        if self.masked.is_empty() {
            self.masked.reserve(self.waiting.min(WRITE_MAX));
            while self.masked.len() < WRITE_MAX
                && let Some((bytes, mask)) = self.out.front_mut()
            {
                let piece = bytes.split_to(bytes.len().min(WRITE_MAX - self.masked.len()));
                match mask {
                    None => self.masked.extend_from_slice(&piece),
                    Some(mask) => put_masked(&mut self.masked, &piece, mask),
                }
                if bytes.is_empty() {
                    self.out.pop_front();
                }
            }
        }
        let written = self.stream.write(&self.masked).await?;
        self.masked.advance(written);
        Ok(written)
    }

    /// Behind what was begun.
    async fn goodbye(&mut self, code: u16) -> io::Result<()> {
        self.put_small(Kind::Close, Bytes::copy_from_slice(&code.to_be_bytes()))?;
        while self.waiting > 0 {
            self.write().await?;
        }
        self.stream.shutdown().await
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::pin::Pin;
    use std::task::{Context, Waker};
    use tokio::io::ReadBuf;

    /// So many bytes may come in one turn.
    const MOST: usize = 4 * TURN;

    /// A device that has sent frames without payload, as fast as they are read; in all, some MiB.
    struct Flood {
        frame: [u8; 6],
        left: usize,
    }

    impl AsyncRead for Flood {
        fn poll_read(mut self: Pin<&mut Self>, _: &mut Context<'_>, out: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
            if self.left == 0 {
                return Poll::Pending;
            }
            while self.left > 0 && out.remaining() >= self.frame.len() {
                out.put_slice(&self.frame);
                self.left -= 1;
            }
            Poll::Ready(Ok(()))
        }
    }

    impl AsyncWrite for Flood {
        fn poll_write(self: Pin<&mut Self>, _: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
            Poll::Ready(Ok(bytes.len()))
        }

        fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Ready(Ok(()))
        }

        fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Ready(Ok(()))
        }
    }

    #[tokio::test]
    async fn frames_without_payload_let_others_have_their_turn() {
        const FRAMES: usize = 1 << 20;
        // Masked: a ping, a pong, and a part of a message that never ends.
        for head in [0x89, 0x8a, 0x00] {
            for has_lanes in [false, true] {
                let mut flood = Flood { frame: [head, 0x80, 0, 0, 0, 0], left: FRAMES };
                let mut buffer = BytesMut::new();
                if head == 0x00 {
                    buffer.extend_from_slice(&[0x02, 0x80, 0, 0, 0, 0]);
                }
                let frames = Frames::new(Role::Server);
                let shared = Shared::new(false);
                let left = if has_lanes {
                    let long = Duration::from_secs(60);
                    let config = ConnConfig { role: Role::Server, idle: long, keep_alive: None, patience: long };
                    let buffers = Buffers::default();
                    let mut reader = Reader { stream: &mut flood, buffers, buffer, frames, shared: &shared, config };
                    let _ = pin!(reader.run(None)).poll(&mut Context::from_waker(Waker::noop()));
                    flood.left
                } else {
                    let mut conversation = Conversation { stream: flood, buffer, frames, role: Role::Server };
                    let _ = pin!(conversation.message()).poll(&mut Context::from_waker(Waker::noop()));
                    conversation.stream.left
                };
                let came = (FRAMES - left) * 6;
                assert!(came <= MOST, "{came} bytes in one turn: {head:#x}, lanes: {has_lanes}");
            }
        }
    }
}
