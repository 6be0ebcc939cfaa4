//! What an application holds of a flow: [`FlowStream`] and its halves.

use crate::error::FlowError;
use crate::flow::{FlowInner, Owner};
use crate::options::{FlowEvent, FlowStats, Status};
use crate::park::{ATTACHMENT_MAX, ParkError, Parks, shutting_down};
use bytes::Bytes;
use hoop_flow::{FlowName, Record, ended};
use hoop_units::UnixTime;
use std::collections::VecDeque;
use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::sync::{Arc, Weak};
use std::task::{Context, Poll, ready};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::sync::{broadcast, watch};

/// How many bytes a reader takes over at once, so that small chunks cost no lock each.
const TAKE_MAX: usize = 64 * 1024;

/// The most bytes that one call of [`AsyncWrite::poll_write`] copies.
const COPY_MAX: usize = 64 * 1024;

/// A flow: read from it and write to it; what happens to its connections it survives.
///
/// * Reading gives what came, once and in order, and nothing once the peer has [shut down](tokio::io::AsyncWriteExt::shutdown) its end. What came
///   before the flow ended can be read after that.
/// * Writing takes bytes into memory, at most [`FlowOptions::send_buffer`](crate::FlowOptions) of them, where they stay until the peer has
///   acknowledged them; `flush` waits for nothing ([`FlowStream::finished`] does).
/// * Errors are [`FlowError`]s within an [`io::Error`].
/// * Dropped after it was shut down, it goes on by itself until the peer has everything, and what comes is thrown away. Dropped before that, it is
///   given up, with code 4 ([`ended::GIVEN_UP`]).
#[derive(Debug)]
pub struct FlowStream {
    read: FlowReader,
    write: FlowWriter,
}

/// The half of a [`FlowStream`] that is read.
#[derive(Debug)]
pub struct FlowReader {
    handle: Arc<Handle>,
    /// Taken over and not given out yet.
    chunks: VecDeque<Bytes>,
}

/// The half of a [`FlowStream`] that is written.
#[derive(Debug)]
pub struct FlowWriter {
    handle: Arc<Handle>,
}

/// Looks at what a flow has done, while others read and write it. It holds nothing of it.
#[derive(Clone, Debug)]
pub struct FlowMeter(Weak<FlowInner>);

impl FlowMeter {
    /// What the flow has done; None: it is gone.
    pub fn stats(&self) -> Option<FlowStats> {
        self.0.upgrade().map(|flow| flow.stats())
    }
}

/// Tells what a flow has done, also after the application has dropped it. It holds the flow's memory for so long.
#[derive(Clone, Debug)]
pub struct FlowTally(Arc<FlowInner>);

impl FlowTally {
    /// What the flow has done.
    pub fn stats(&self) -> FlowStats {
        self.0.stats()
    }
}

/// The application's hold on a flow.
struct Handle {
    flow: Arc<FlowInner>,
    /// The endpoint is there as long as one of its flows is held.
    _owner: Arc<dyn Owner>,
    server: Option<Arc<dyn Parks>>,
}

impl std::fmt::Debug for Handle {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.flow.fmt(f)
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        self.flow.abandon();
    }
}

impl FlowStream {
    pub(crate) fn new(flow: Arc<FlowInner>, owner: Arc<dyn Owner>) -> Self {
        Self::with(Handle { flow, _owner: owner, server: None })
    }

    pub(crate) fn of_server(flow: Arc<FlowInner>, server: Arc<dyn Parks>) -> Self {
        Self::with(Handle { flow, _owner: server.clone(), server: Some(server) })
    }

    fn with(handle: Handle) -> Self {
        let handle = Arc::new(handle);
        Self { read: FlowReader { handle: handle.clone(), chunks: VecDeque::new() }, write: FlowWriter { handle } }
    }

    fn flow(&self) -> &Arc<FlowInner> {
        &self.write.handle.flow
    }

    /// Its two halves, for two tasks. The flow is dropped with the second.
    pub fn into_split(self) -> (FlowReader, FlowWriter) {
        (self.read, self.write)
    }

    /// Its name: whose it is, and which.
    pub fn name(&self) -> FlowName {
        self.flow().name
    }

    /// What it is for, as the device said; empty at a device that was restarted.
    pub fn service(&self) -> &str {
        &self.flow().service
    }

    /// At a server: what the application [kept](FlowStream::set_attachment) beside a flow that was in the store, if it goes on after that. None for a new flow.
    pub fn attachment(&self) -> Option<&Bytes> {
        self.flow().attachment.as_ref()
    }

    /// How it is, and how that changes.
    pub fn status(&self) -> watch::Receiver<Status> {
        self.flow().status()
    }

    /// What happens to it from now on. Who falls behind misses the oldest.
    pub fn events(&self) -> broadcast::Receiver<FlowEvent> {
        self.flow().events()
    }

    /// What it has done.
    pub fn stats(&self) -> FlowStats {
        self.flow().stats()
    }

    /// What tells [the same](FlowStream::stats) while the flow is read and written elsewhere.
    pub fn meter(&self) -> FlowMeter {
        FlowMeter(Arc::downgrade(self.flow()))
    }

    /// What tells [the same](FlowStream::stats) when the flow is over, too.
    pub fn tally(&self) -> FlowTally {
        FlowTally(self.flow().clone())
    }

    /// The offset of the next byte to be read.
    pub fn position(&self) -> u64 {
        self.read.position()
    }

    /// The offset of the next byte to be written. 0 for a new flow; one that is restored, or goes on after it was parked, is written again from here.
    pub fn written(&self) -> u64 {
        self.write.written()
    }

    /// When it should be done, if that was said.
    pub fn deadline(&self) -> Option<UnixTime> {
        self.flow().peek().machine.deadline()
    }

    /// At a device: says when it should be done. At a server it has no effect.
    pub fn set_deadline(&self, at: Option<UnixTime>) {
        self.flow().act(|state, _| state.set_deadline(at));
    }

    /// Says how many bytes this end will send.
    pub fn set_size(&self, size: Option<u64>) {
        self.flow().act(|state, _| state.set_size(size));
    }

    /// Sets how many bytes of what came wait to be read, at most, and to how few that must fall before more is asked for
    /// ([`FlowOptions::low`](crate::FlowOptions::low)). What was asked for before still comes.
    pub fn set_window(&self, window: u64, low: Option<u64>) {
        self.flow().act(|state, now| state.set_window(window, low, now));
    }

    /// With [`AckPolicy::WhenTold`](crate::AckPolicy::WhenTold): what was read before `offset` outlives a restart; the peer may forget it. With
    /// [`AckPolicy::Stored`](crate::AckPolicy::Stored): it is needed no more, and the store may forget it.
    pub fn keep(&self, offset: u64) {
        self.read.keep(offset);
    }

    /// At a server with a store, for a flow that outlives a restart ([`AckPolicy::WhenTold`](crate::AckPolicy::WhenTold)): what the application wants to find
    /// again with it; written down soon.
    ///
    /// # Errors
    /// If it has more than [`ATTACHMENT_MAX`] bytes.
    pub fn set_attachment(&self, attachment: impl Into<Vec<u8>>) -> Result<(), ParkError> {
        let attachment = attachment.into();
        if attachment.len() > ATTACHMENT_MAX {
            return Err(ParkError::Attachment);
        }
        self.flow().act(|state, _| state.durability.set_attachment(attachment));
        Ok(())
    }

    /// At a server with a store: puts the flow there, and closes its lanes; nothing of it stays in memory but what the store keeps. Once the device has
    /// something to say, or resumes it, [`Server::accept`](crate::Server::accept) gives it again, with this attachment of at most [`ATTACHMENT_MAX`] bytes. What was
    /// written and is not acknowledged is to be written again then, from [`FlowStream::written`] on.
    ///
    /// # Errors
    /// With the flow, which goes on, if it cannot be parked now: see [`ParkError`].
    pub async fn park(self, attachment: &[u8]) -> Result<(), (Self, ParkError)> {
        let parked = match &self.write.handle.server {
            None => Err(ParkError::NoStore),
            Some(_) if self.read.taken() > 0 && self.flow().peek().durability.spool.is_none() => Err(ParkError::Unread),
            Some(_) if attachment.len() > ATTACHMENT_MAX => Err(ParkError::Attachment),
            Some(server) => {
                let (server, flow, attachment) = (server.clone(), self.flow().clone(), attachment.to_vec());
                // Whoever waits no longer does not leave it half done.
                let parking = tokio::spawn(async move { server.park_with(&flow, &attachment).await });
                parking.await.unwrap_or_else(|_| Err(shutting_down().into()))
            }
        };
        parked.map_err(|error| (self, error))
    }

    /// What a restarted process needs: see [`Device::restore`](crate::Device::restore). An old record costs only repeated bytes, with one exception. If it
    /// does not show that a stream has ended, the peer may have forgotten the flow, which is then lost. So store the record after shutting down, and
    /// before keeping the peer's last bytes.
    pub fn record(&self) -> Record {
        self.read.record()
    }

    /// Gives the flow up: both ends drop it, and what is under way. Codes from [`ended::APPLICATION`] on are the applications' own.
    pub fn reset(self, code: u64) {
        self.flow().reset(code);
    }

    /// Waits until the peer has acknowledged all that was written, and that it ends there: after
    /// [`shutdown`](tokio::io::AsyncWriteExt::shutdown).
    ///
    /// # Errors
    /// If the flow ends before that.
    pub async fn finished(&self) -> io::Result<()> {
        self.write.finished().await
    }

    /// The next bytes that came, as they lie in memory, at most `most`; none: the stream is at its end.
    ///
    /// # Errors
    /// As reading.
    pub async fn read_chunk(&mut self, most: usize) -> io::Result<Option<Bytes>> {
        self.read.read_chunk(most).await
    }

    /// Writes bytes without copying them, all of them.
    ///
    /// # Errors
    /// As writing.
    pub async fn write_chunk(&mut self, bytes: Bytes) -> io::Result<()> {
        self.write.write_chunk(bytes).await
    }

    /// As [`FlowWriter::wanted`], for who polls.
    ///
    /// # Errors
    /// As writing.
    pub fn poll_wanted(&mut self, cx: &Context<'_>) -> Poll<io::Result<u64>> {
        self.flow().poll_wanted(cx).map_err(Into::into)
    }
}

impl FlowReader {
    /// As [`FlowStream::read_chunk`].
    ///
    /// # Errors
    /// As reading.
    pub async fn read_chunk(&mut self, most: usize) -> io::Result<Option<Bytes>> {
        poll_fn(|cx| self.poll_chunk(cx, most)).await
    }

    /// As [`FlowStream::read_chunk`], for who polls.
    ///
    /// # Errors
    /// As reading.
    pub fn poll_chunk(&mut self, cx: &mut Context<'_>, most: usize) -> Poll<io::Result<Option<Bytes>>> {
        if self.chunks.is_empty() {
            ready!(self.handle.flow.poll_read(cx, most.max(TAKE_MAX), &mut self.chunks))?;
        }
        Poll::Ready(Ok(self.take(most)))
    }

    /// As [`FlowStream::reset`].
    pub fn reset(&self, code: u64) {
        self.handle.flow.reset(code);
    }

    /// As [`FlowStream::position`].
    pub fn position(&self) -> u64 {
        self.handle.flow.peek().position() - self.taken()
    }

    /// As [`FlowStream::keep`].
    pub fn keep(&self, offset: u64) {
        self.handle.flow.act(|state, now| state.keep(offset, now));
    }

    /// As [`FlowStream::record`].
    pub fn record(&self) -> Record {
        self.handle.flow.peek().record()
    }

    /// How many bytes were taken over and are not given out.
    fn taken(&self) -> u64 {
        self.chunks.iter().map(|chunk| chunk.len() as u64).sum()
    }

    fn take(&mut self, most: usize) -> Option<Bytes> {
        let first = self.chunks.front_mut()?;
        if first.len() > most {
            return Some(first.split_to(most));
        }
        self.chunks.pop_front()
    }
}

impl FlowWriter {
    /// As [`FlowStream::written`].
    pub fn written(&self) -> u64 {
        self.handle.flow.peek().written_to()
    }

    /// As [`FlowStream::record`].
    pub fn record(&self) -> Record {
        self.handle.flow.peek().record()
    }

    /// As [`FlowStream::write_chunk`].
    ///
    /// # Errors
    /// As writing.
    pub async fn write_chunk(&mut self, mut bytes: Bytes) -> io::Result<()> {
        while !bytes.is_empty() {
            poll_fn(|cx| {
                self.handle.flow.poll_write(cx, |room, buffer| {
                    let most = usize::try_from(room).unwrap_or(usize::MAX).min(bytes.len());
                    let mut rest = bytes.split_to(most);
                    while !rest.is_empty() {
                        // In pieces, so that the first can be dropped before the last is acknowledged.
                        buffer.push(rest.split_to(COPY_MAX.min(rest.len())));
                    }
                })
            })
            .await?;
        }
        Ok(())
    }

    /// Returns how many bytes more the peer wants than were written, as soon as it wants any. To be asked by who has some.
    ///
    /// More may be [written](Self::write_chunk), and waits in memory. Who has its bytes elsewhere too, as on disk, writes no more than this, and so holds only what is under way: what a slow peer does
    /// not want yet takes no memory.
    ///
    /// # Errors
    /// As writing.
    pub async fn wanted(&mut self) -> io::Result<u64> {
        Ok(poll_fn(|cx| self.handle.flow.poll_wanted(cx)).await?)
    }

    /// As [`FlowStream::reset`].
    pub fn reset(&self, code: u64) {
        self.handle.flow.reset(code);
    }

    /// As [`FlowStream::finished`].
    ///
    /// # Errors
    /// If the flow ends before that.
    pub async fn finished(&self) -> io::Result<()> {
        let mut status = self.handle.flow.status();
        let status = status.wait_for(|status| status.is_delivered || status.over.is_some()).await;
        let (is_delivered, over) = status.map_or((false, None), |status| (status.is_delivered, status.over));
        match over {
            _ if is_delivered => Ok(()),
            Some(FlowError::Ended(ended::FINISHED)) => Ok(()),
            over => Err(over.unwrap_or(FlowError::Gone).into()),
        }
    }
}

impl AsyncRead for FlowReader {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        if buf.remaining() == 0 {
            return Poll::Ready(Ok(()));
        }
        let Self { handle, chunks } = &mut *self;
        if chunks.is_empty() {
            ready!(handle.flow.poll_read(cx, buf.remaining(), chunks))?;
        }
        while let Some(chunk) = self.take(buf.remaining()).filter(|chunk| !chunk.is_empty()) {
            buf.put_slice(&chunk);
        }
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for FlowWriter {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        if buf.is_empty() {
            return Poll::Ready(Ok(0));
        }
        let taken = ready!(self.handle.flow.poll_write(cx, |room, buffer| {
            let most = usize::try_from(room).unwrap_or(usize::MAX).min(buf.len()).min(COPY_MAX);
            buffer.copy(&buf[..most]);
        }))?;
        Poll::Ready(Ok(taken as usize))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(self.handle.flow.finish().map_err(io::Error::from))
    }
}

impl AsyncRead for FlowStream {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.read).poll_read(cx, buf)
    }
}

impl AsyncWrite for FlowStream {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.write).poll_write(cx, buf)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.write).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.write).poll_shutdown(cx)
    }
}
