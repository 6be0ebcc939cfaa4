//! The task of one connection: reads and writes until either end is done with it.

use super::Shared;
use super::buffers::Buffers;
use super::frames::{Frames, Item, Kind, Role, Violation, put_frame, put_frame_head};
use super::lanes::{Key, Message};
use super::upgrade::Asked;
use bytes::{BufMut as _, Bytes, BytesMut};
use ring::rand::{SecureRandom as _, SystemRandom};
use std::io::{self, IoSlice};
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _, split};
use tokio::time::timeout;

/// The least room that is read into, in octets. TLS gives what there is of a record at a time (RFC 8446 §5.1).
const READ_MIN: usize = 4 * 1024;

/// How much of several messages is given to TLS at once, in octets, and one message more. It encrypts 64 KiB at a time, each with one call of the system; more at once makes neither
/// end faster, and memory that comes from the system and goes back each time.
const WRITE_MAX: usize = 64 * 1024;

/// A connection on which nothing has come for so long holds no buffers.
const REST: Duration = Duration::from_secs(1);

/// How long a goodbye may take to be written.
const GOODBYE: Duration = Duration::from_secs(1);

/// How a connection is run.
#[derive(Clone, Copy, Debug)]
pub(super) struct Manner {
    pub(super) role: Role,
    pub(super) idle: Duration,
    pub(super) keep_alive: Option<Duration>,
    pub(super) patience: Duration,
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
        let (mut buffers, mut message) = (Buffers::default(), BytesMut::new());
        loop {
            match next_item(&mut self.stream, &mut buffers, &mut self.buffer, &mut self.frames).await? {
                Item::Binary { last, octets, .. } => {
                    message.extend_from_slice(&octets);
                    if last {
                        return Ok(message.freeze());
                    }
                }
                Item::Ping(_) | Item::Pong => {}
                Item::Close => return Err(violated(Violation::Binding("a message"))),
            }
        }
    }

    pub(super) async fn say(&mut self, octets: &[u8]) -> io::Result<()> {
        let mut out = Vec::new();
        put_frame(&mut out, Kind::Binary, new_mask(self.role)?, &[octets]);
        self.stream.write_all(&out).await?;
        self.stream.flush().await
    }

    /// Lanes from here on, until the carrier is gone. Where the answer to a device's request is outstanding, it comes first.
    pub(super) async fn run(self, shared: Arc<Shared>, manner: Manner, asked: Option<Asked>) {
        let (read, write) = split(self.stream);
        let (buffers, buffer, frames) = (Buffers::default(), self.buffer, self.frames);
        let mut reader = Reader { stream: read, buffers, buffer, frames, shared: &shared, manner };
        let mut writer = Writer { stream: write, shared: &shared, manner, scratch: Vec::new(), is_whole: true };
        let error = tokio::select! {
            biased;
            error = shared.until_gone() => error,
            Err(error) = reader.run(asked) => error,
            Err(error) = writer.run() => error,
        };
        let code = violation_of(&error).map_or(1000, Violation::close_code);
        shared.end(error);
        let _ = timeout(GOODBYE, writer.goodbye(code)).await;
    }
}

pub(super) fn violated(violation: Violation) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, violation)
}

fn violation_of(error: &io::Error) -> Option<&Violation> {
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
        let room = buffer.capacity() - buffer.len();
        if stream.read_buf(&mut buffer.limit(room)).await? == 0 {
            return Err(io::Error::new(io::ErrorKind::ConnectionAborted, "the other end is gone"));
        }
    }
}

struct Reader<'a, S> {
    stream: S,
    buffers: Buffers,
    buffer: BytesMut,
    frames: Frames,
    shared: &'a Shared,
    manner: Manner,
}

impl<S: AsyncRead + Unpin> Reader<'_, S> {
    async fn run(&mut self, asked: Option<Asked>) -> io::Result<()> {
        if let Some(asked) = asked {
            let answered = asked.answered(&mut self.stream, &mut self.buffer);
            timeout(self.manner.idle, answered).await.map_err(|_| silent())??;
        }
        loop {
            match self.next().await? {
                Item::Binary { first, last, octets } => {
                    if let Some(full) = self.shared.hear(first, last, octets).map_err(violated)? {
                        self.wait_for_room(full).await;
                    }
                }
                Item::Ping(octets) => self.shared.answer(octets),
                Item::Pong => {}
                Item::Close => return Err(io::Error::new(io::ErrorKind::ConnectionAborted, "closed by the other end")),
            }
        }
    }

    async fn next(&mut self) -> io::Result<Item> {
        let (stream, buffers, buffer) = (&mut self.stream, &mut self.buffers, &mut self.buffer);
        let idle = self.manner.idle;
        if let Ok(item) = timeout(REST.min(idle), next_item(stream, buffers, buffer, &mut self.frames)).await {
            return item;
        }
        buffers.release(buffer);
        let next = next_item(stream, buffers, buffer, &mut self.frames);
        timeout(idle.saturating_sub(REST), next).await.map_err(|_| silent())?
    }

    /// Nothing is read while a lane holds as much as it may; one whose receiver sleeps for longer than patience lasts is broken off, for the others' sake.
    async fn wait_for_room(&mut self, full: Key) {
        if timeout(self.manner.patience, self.shared.until_taken(full)).await.is_err() {
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
    manner: Manner,
    /// Heads of frames, and what is masked.
    scratch: Vec<u8>,
    /// No frame is half written.
    is_whole: bool,
}

/// What there is to write.
pub(super) enum Due {
    Message(Message),
    Pong(Bytes),
}

impl<S: AsyncWrite + Unpin> Writer<'_, S> {
    async fn run(&mut self) -> io::Result<()> {
        let mut messages = Vec::new();
        loop {
            while let Some(due) = self.shared.due() {
                self.is_whole = false;
                match due {
                    Due::Message(message) => {
                        messages.push(message);
                        self.gather(&mut messages);
                        self.write_messages(&messages).await?;
                        messages.clear();
                    }
                    Due::Pong(octets) => self.write_small(Kind::Pong, &octets).await?,
                }
                self.is_whole = true;
            }
            self.stream.flush().await?;
            self.wait().await?;
        }
    }

    /// What else is due goes with the first, up to a bound.
    fn gather(&self, messages: &mut Vec<Message>) {
        let mut len: usize = messages.iter().map(Message::len).sum();
        while len < WRITE_MAX
            && let Some(message) = self.shared.next_message()
        {
            len += message.len();
            messages.push(message);
        }
    }

    /// Waits until there is something to write, and keeps the way alive meanwhile if it is to.
    async fn wait(&mut self) -> io::Result<()> {
        let Some(keep_alive) = self.manner.keep_alive else {
            self.shared.until_due().await;
            return Ok(());
        };
        if timeout(keep_alive, self.shared.until_due()).await.is_err() {
            self.is_whole = false;
            self.write_small(Kind::Ping, b"").await?;
            self.is_whole = true;
        }
        Ok(())
    }

    async fn write_messages(&mut self, messages: &[Message]) -> io::Result<()> {
        self.scratch.clear();
        let mut head = Vec::with_capacity(8);
        if self.manner.role == Role::Device {
            for message in messages {
                head.clear();
                message.put_head(&mut head);
                let chunks = message.chunks.iter().map(|chunk| &chunk[..]);
                let parts: Vec<&[u8]> = std::iter::once(&head[..]).chain(chunks).collect();
                put_frame(&mut self.scratch, Kind::Binary, new_mask(self.manner.role)?, &parts);
            }
            return self.stream.write_all(&self.scratch).await;
        }
        let mut ends = Vec::with_capacity(messages.len());
        for message in messages {
            head.clear();
            message.put_head(&mut head);
            put_frame_head(&mut self.scratch, Kind::Binary, None, head.len() + message.len());
            self.scratch.extend_from_slice(&head);
            ends.push(self.scratch.len());
        }
        let (mut slices, mut begin) = (Vec::new(), 0);
        for (message, end) in messages.iter().zip(ends) {
            slices.push(IoSlice::new(&self.scratch[begin..end]));
            slices.extend(message.chunks.iter().map(|chunk| IoSlice::new(chunk)));
            begin = end;
        }
        write_all_vectored(&mut self.stream, &mut slices).await
    }

    async fn write_small(&mut self, kind: Kind, octets: &[u8]) -> io::Result<()> {
        self.scratch.clear();
        put_frame(&mut self.scratch, kind, new_mask(self.manner.role)?, &[octets]);
        self.stream.write_all(&self.scratch).await?;
        self.stream.flush().await
    }

    async fn goodbye(&mut self, code: u16) -> io::Result<()> {
        if self.is_whole {
            self.write_small(Kind::Close, &code.to_be_bytes()).await?;
        }
        self.stream.shutdown().await
    }
}

async fn write_all_vectored(stream: &mut (impl AsyncWrite + Unpin), mut slices: &mut [IoSlice<'_>]) -> io::Result<()> {
    IoSlice::advance_slices(&mut slices, 0);
    while !slices.is_empty() {
        let written = stream.write_vectored(slices).await?;
        if written == 0 {
            return Err(io::ErrorKind::WriteZero.into());
        }
        IoSlice::advance_slices(&mut slices, written);
    }
    Ok(())
}
