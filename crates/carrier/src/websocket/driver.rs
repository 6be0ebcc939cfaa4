//! The task of one connection: reads and writes until either end is done with it.

use super::Shared;
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

/// What is read at once, in octets: TLS gives a record at a time (RFC 8446 §5.1).
const READ_MAX: usize = 16 * 1024;

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
    /// The other end's next message, which comes in one frame.
    pub(super) async fn message(&mut self) -> io::Result<Bytes> {
        loop {
            match next_item(&mut self.stream, &mut self.buffer, &mut self.frames).await? {
                Item::Binary { first: true, last: true, octets } => return Ok(octets),
                Item::Ping(_) | Item::Pong => {}
                Item::Binary { .. } | Item::Close => {
                    return Err(violated(Violation::Binding("a message in one frame")));
                }
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
        let mut reader = Reader { stream: read, buffer: self.buffer, frames: self.frames, shared: &shared, manner };
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

/// Reads until there is a frame. Dropping it while it waits loses nothing.
async fn next_item(
    stream: &mut (impl AsyncRead + Unpin),
    buffer: &mut BytesMut,
    frames: &mut Frames,
) -> io::Result<Item> {
    loop {
        let missing = match frames.take(buffer).map_err(violated)? {
            Ok(item) => return Ok(item),
            Err(missing) => missing,
        };
        // The rest of a frame goes into one piece of memory, without the next frame behind it: so its octets are never moved.
        let most = if missing == 1 { READ_MAX } else { missing.min(READ_MAX) };
        buffer.reserve(missing.max(most));
        if stream.read_buf(&mut buffer.limit(most)).await? == 0 {
            return Err(io::Error::new(io::ErrorKind::ConnectionAborted, "the other end is gone"));
        }
    }
}

struct Reader<'a, S> {
    stream: S,
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
            let next = next_item(&mut self.stream, &mut self.buffer, &mut self.frames);
            match timeout(self.manner.idle, next).await.map_err(|_| silent())?? {
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
        loop {
            while let Some(due) = self.shared.due() {
                self.is_whole = false;
                match due {
                    Due::Message(message) => self.write_message(&message).await?,
                    Due::Pong(octets) => self.write_small(Kind::Pong, &octets).await?,
                }
                self.is_whole = true;
            }
            self.stream.flush().await?;
            self.wait().await?;
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

    async fn write_message(&mut self, message: &Message) -> io::Result<()> {
        self.scratch.clear();
        match new_mask(self.manner.role)? {
            mask @ Some(_) => {
                let mut head = Vec::with_capacity(8);
                message.put_head(&mut head);
                let chunks = message.chunks.iter().map(|chunk| &chunk[..]);
                let parts: Vec<&[u8]> = std::iter::once(&head[..]).chain(chunks).collect();
                put_frame(&mut self.scratch, Kind::Binary, mask, &parts);
                self.stream.write_all(&self.scratch).await
            }
            None => {
                let mut head = Vec::with_capacity(8);
                message.put_head(&mut head);
                let len = head.len() + message.chunks.iter().map(Bytes::len).sum::<usize>();
                put_frame_head(&mut self.scratch, Kind::Binary, None, len);
                self.scratch.extend_from_slice(&head);
                let slices = std::iter::once(&self.scratch[..]).chain(message.chunks.iter().map(|chunk| &chunk[..]));
                write_all_vectored(&mut self.stream, &mut slices.map(IoSlice::new).collect::<Vec<_>>()).await
            }
        }
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
