//! A request's body as it comes: [`BodyReader`].

use crate::core::body_timeouts::BodyTimeouts;
use crate::core::state::Core;
use bytes::Bytes;
use hoop_http::{Code, Problem, RequestBody, SpliceChunk};
use hoop_seal::{Prelude, PreludeError};
use std::collections::VecDeque;
use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;
use tokio::time::{Instant, timeout};

/// What comes next of a body.
pub enum Came {
    /// These.
    Bytes(Bytes),
    /// What waits in the socket.
    InSocket,
}

/// A body's frames, with limits to how long each may stay away and how slowly they come.
pub struct BodyReader<'a> {
    pub body: &'a mut RequestBody,
    core: Arc<Core>,
    timeouts: BodyTimeouts,
    /// Read while looking for the prelude.
    pub ahead: Option<Bytes>,
    /// Read while looking whether all is here; comes after `ahead`.
    looked_at: VecDeque<Bytes>,
    /// What came, and how long it was waited for, since enough had come last.
    came: u64,
    waited: Duration,
}

impl<'a> BodyReader<'a> {
    pub fn new(core: &Arc<Core>, timeouts: BodyTimeouts, body: &'a mut RequestBody) -> Self {
        let (core, looked_at, waited) = (core.clone(), VecDeque::new(), Duration::ZERO);
        Self { body, core, timeouts, ahead: None, looked_at, came: 0, waited }
    }

    /// The next bytes; `None` at the end. A body that breaks off is an error.
    pub async fn next(&mut self) -> Result<Option<Bytes>, Problem> {
        match self.next_or_in_socket(false).await? {
            Some(Came::Bytes(bytes)) => Ok(Some(bytes)),
            Some(Came::InSocket) | None => Ok(None),
        }
    }

    /// The same; or, for whoever need not see them, that they have come to the socket, where [`BodyReader::piped`] has them.
    pub async fn next_or_in_socket(&mut self, unseen: bool) -> Result<Option<Came>, Problem> {
        if let Some(ahead) = self.ahead.take().or_else(|| self.looked_at.pop_front()) {
            return Ok(Some(Came::Bytes(ahead)));
        }
        let timeouts = self.timeouts;
        if self.came >= timeouts.least_bytes {
            (self.came, self.waited) = (0, Duration::ZERO);
        }
        let begun = Instant::now();
        let left = timeouts.within.saturating_sub(self.waited).min(timeouts.silence);
        let body = &mut *self.body;
        let next = timeout(left, async {
            match unseen && body.is_in_socket() {
                true => Some(body.in_socket().await.map(|()| Came::InSocket)),
                false => body.data().await.map(|data| data.map(Came::Bytes)),
            }
        });
        let next = next.await;
        self.waited += begun.elapsed();
        let Ok(next) = next else {
            let (came, secs) = (self.came, self.waited.as_secs());
            let detail = format!("{came} bytes came in {secs} s, which is too slow; whole records are kept");
            return Err(Problem::new(Code::RequestTimeout, detail));
        };
        let next = next.transpose().map_err(|error| Problem::new(Code::BodyTruncated, error))?;
        if let Some(Came::Bytes(bytes)) = &next {
            self.count(bytes.len() as u64);
        }
        Ok(next)
    }

    /// What has come to the socket, at most so many bytes; `None`: nothing has, after all.
    pub fn piped(&mut self, most: u64) -> Result<Option<SpliceChunk>, Problem> {
        let piped = self.body.piped(most).map_err(|error| Problem::new(Code::BodyTruncated, error))?;
        if let Some(piped) = &piped {
            self.count(piped.len());
        }
        Ok(piped)
    }

    fn count(&mut self, bytes: u64) {
        self.came += bytes;
        self.core.counters.received(bytes);
    }

    /// The next `len` bytes if they have all come by now. If not, whatever has comes again from [`BodyReader::next`].
    pub async fn at_hand(&mut self, len: u64) -> Option<Vec<Bytes>> {
        let (mut seen, mut left) = (VecDeque::new(), len);
        while left > 0 {
            let mut next = self.next_now().await;
            if next.is_none() {
                // What waits in the socket, hyper reads when it has its turn.
                tokio::task::yield_now().await;
                next = self.next_now().await;
            }
            let Some(bytes) = next else {
                self.looked_at = seen;
                return None;
            };
            left = left.saturating_sub(bytes.len() as u64);
            seen.push_back(bytes);
        }
        Some(seen.into())
    }

    /// What has come next by now. Whoever reads on is told of an end, or that it broke off, too.
    async fn next_now(&mut self) -> Option<Bytes> {
        let mut next = pin!(self.next());
        poll_fn(|cx| match next.as_mut().poll(cx) {
            Poll::Ready(Ok(bytes)) => Poll::Ready(bytes),
            Poll::Ready(Err(_)) | Poll::Pending => Poll::Ready(None),
        })
        .await
    }

    /// Reads on until the prelude is there; its bytes come again from [`BodyReader::next`].
    pub async fn prelude(&mut self) -> Result<Prelude, Problem> {
        let mut seen = Bytes::new();
        loop {
            let error = match Prelude::parse(&seen) {
                Ok(prelude) => {
                    self.ahead = Some(seen);
                    return Ok(prelude);
                }
                Err(error @ PreludeError::Incomplete { .. }) => error,
                Err(error) => return Err(Problem::new(Code::BodyNotSealed, error)),
            };
            match self.next().await? {
                Some(bytes) if seen.is_empty() => seen = bytes,
                Some(bytes) => seen = [seen, bytes].concat().into(),
                None => return Err(Problem::new(Code::BodyNotSealed, error)),
            }
        }
    }
}
