//! A flow that tasks and the program's calls share: [`Held`].

use crate::lock::lock;
use bytes::Bytes;
use hoop_endpoint::{FlowError, FlowStream, Status};
use hoop_relay::codes;
use std::future::poll_fn;
use std::io;
use std::pin::{Pin, pin};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};
use tokio::io::AsyncWrite as _;
use tokio::sync::watch;

/// What is read at once.
pub const COPY_BYTES: usize = 64 * 1024;

/// A flow that a task carries and calls of the program look at. The lock is never held while anything is waited for.
#[derive(Clone)]
pub struct Held(Arc<Mutex<Option<FlowStream>>>);

impl Held {
    /// Holds it until it is [reset](Held::reset) or the last is dropped.
    pub fn new(flow: FlowStream) -> Self {
        Self(Arc::new(Mutex::new(Some(flow))))
    }

    /// Looks at it, if it was not given up.
    pub fn with<T>(&self, look: impl FnOnce(&FlowStream) -> T) -> Option<T> {
        lock(&self.0).as_ref().map(look)
    }

    /// Gives it up.
    pub fn reset(&self, code: u64) {
        if let Some(flow) = lock(&self.0).take() {
            flow.reset(code);
        }
    }

    /// How it is, and how that changes; None: it was given up.
    pub fn status(&self) -> Option<watch::Receiver<Status>> {
        self.with(FlowStream::status)
    }

    async fn each<T>(
        &self,
        mut attempt: impl FnMut(Pin<&mut FlowStream>, &mut Context<'_>) -> Poll<io::Result<T>>,
    ) -> io::Result<T> {
        poll_fn(|cx| match &mut *lock(&self.0) {
            Some(flow) => attempt(Pin::new(flow), cx),
            None => Poll::Ready(Err(FlowError::Reset(codes::BROKEN).into())),
        })
        .await
    }

    /// What has come, as soon as there is some; None: that was all.
    pub async fn read(&self) -> io::Result<Option<Bytes>> {
        // Beginning to read anew costs nothing and loses nothing.
        self.each(|flow, cx| pin!(flow.get_mut().read_chunk(COPY_BYTES)).poll(cx)).await
    }

    /// Writes all of it.
    pub async fn write(&self, mut bytes: &[u8]) -> io::Result<()> {
        while !bytes.is_empty() {
            let written = self.each(|flow, cx| flow.poll_write(cx, bytes)).await?;
            bytes = &bytes[written..];
        }
        Ok(())
    }

    /// Says that nothing more is written.
    pub async fn end(&self) -> io::Result<()> {
        self.each(|flow, cx| flow.poll_shutdown(cx)).await
    }
}
