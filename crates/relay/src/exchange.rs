//! What both ends of an HTTP exchange do with its flow: heads and bodies (`docs/edge.md`).
//!
//! Each way is a head ([`hoop_head`]), and after it the body as it is, up to the stream's end. An exchange that breaks off ends with a code ([`crate::codes`]), so a body that is cut short
//! is never taken for a whole one.
//!
//! Bounds: a head has at most [`HEAD_BYTES`], as much as a connection holds that is carried and stuck ([`crate::copy`]); of a body, what one read gives.

use bytes::{Bytes, BytesMut};
use hoop_endpoint::{FlowReader, FlowWriter};
use http::{HeaderValue, Version};
use http_body::{Frame, SizeHint};
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

/// How much of a body is read at once, in bytes.
pub(crate) const READ_BYTES: usize = 64 << 10;

/// The most bytes of a head, its length included. A request with a longer one goes over a connection.
pub const HEAD_BYTES: usize = 64 << 10;

/// The most bytes of a section: its length takes up to four.
pub const SECTION_BYTES: usize = HEAD_BYTES - 4;

/// Reads a head. Returns its section, and what came with it of the body.
///
/// # Errors
/// If the stream ends before the head does, or the head is too long.
pub async fn read_head(reader: &mut FlowReader) -> io::Result<(Bytes, Bytes)> {
    read_head_asking(reader, HEAD_BYTES, async || Ok(())).await
}

/// The same; `more` returns when more than `small` bytes of it may be read.
pub(crate) async fn read_head_asking(
    reader: &mut FlowReader,
    small: usize,
    more: impl AsyncFnOnce() -> io::Result<()>,
) -> io::Result<(Bytes, Bytes)> {
    let (mut came, mut most, mut more) = (BytesMut::new(), small, Some(more));
    loop {
        let section = hoop_head::split(&came).map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))?;
        if let Some(section) = section {
            let mut head = came.split_to(section.end).freeze();
            return Ok((head.split_off(section.start), came.freeze()));
        }
        if came.len() >= HEAD_BYTES {
            return Err(io::Error::new(io::ErrorKind::InvalidData, hoop_head::HeadError::TooLong));
        }
        if came.len() >= most
            && let Some(more) = more.take()
        {
            more().await?;
            most = HEAD_BYTES;
        }
        let chunk = reader.read_chunk(most - came.len()).await?;
        came.extend_from_slice(&chunk.ok_or(io::ErrorKind::UnexpectedEof)?);
    }
}

/// Writes a section as a head.
///
/// # Errors
/// If the flow is over, or the section is longer than a head may be.
pub async fn put(section: &[u8], writer: &mut FlowWriter) -> io::Result<()> {
    let mut head = Vec::with_capacity(section.len() + 4);
    hoop_head::frame(section, &mut head).map_err(io::Error::other)?;
    writer.write_chunk(head.into()).await
}

/// The value of `Via` for a message that came in this version (RFC 9110 §7.6.3).
pub const fn via(version: Version) -> HeaderValue {
    HeaderValue::from_static(match version {
        Version::HTTP_10 => "1.0 hoop",
        Version::HTTP_2 => "2 hoop",
        _ => "1.1 hoop",
    })
}

/// What is left of a flow, as a message's body.
#[derive(Debug)]
pub struct FlowBody {
    reader: FlowReader,
    /// What came with the head, or was looked at.
    first: Bytes,
    /// How much is still to come, where `content-length` said.
    left: Option<u64>,
    is_over: bool,
}

impl FlowBody {
    /// `first`: what came of it already. `length`: as `content-length` says. A shorter body is an error, and what comes after it is not looked at.
    pub fn new(reader: FlowReader, first: Bytes, length: Option<u64>) -> Self {
        Self { reader, first, left: length, is_over: length == Some(0) }
    }

    /// Waits until there is something of it; None: it has come to its end without.
    ///
    /// # Errors
    /// As reading.
    pub async fn peeked(mut self) -> io::Result<Option<Self>> {
        if self.first.is_empty() {
            let Some(first) = self.reader.read_chunk(READ_BYTES).await? else { return Ok(None) };
            self.first = first;
        }
        Ok(Some(self))
    }

    /// Takes what came; nothing is the stream's end.
    fn take(&mut self, mut data: Bytes) -> io::Result<Bytes> {
        let Some(left) = self.left else {
            self.is_over = data.is_empty();
            return Ok(data);
        };
        if data.is_empty() && left > 0 {
            return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "the body is shorter than its head says"));
        }
        data.truncate(usize::try_from(left).unwrap_or(usize::MAX));
        let left = left - data.len() as u64;
        self.left = Some(left);
        // Nobody asks for more of a body whose length has come.
        self.is_over = left == 0;
        Ok(data)
    }
}

impl http_body::Body for FlowBody {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        if self.is_over {
            return Poll::Ready(None);
        }
        let mut data = std::mem::take(&mut self.first);
        if data.is_empty() {
            data = ready!(self.reader.poll_chunk(context, READ_BYTES))?.unwrap_or_default();
        }
        let data = self.take(data)?;
        Poll::Ready((!data.is_empty()).then(|| Ok(Frame::data(data))))
    }

    fn is_end_stream(&self) -> bool {
        self.is_over
    }

    fn size_hint(&self) -> SizeHint {
        self.left.map_or_else(SizeHint::new, SizeHint::with_exact)
    }
}
