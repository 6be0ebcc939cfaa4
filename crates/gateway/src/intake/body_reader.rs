//! A request's body as it comes: [`BodyReader`].

use super::resource_lock::Superseded;
use crate::core::body_timeouts::BodyTimeouts;
use crate::core::state::Core;
use bytes::Bytes;
use hoop_http::{Code, Problem, RequestBody, SpliceChunk, makes_way};
use hoop_seal::{Prelude, PreludeError};
use std::collections::VecDeque;
use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;
use tokio::time::{Instant, timeout};

/// Why a body ends whose connection has made way, and when its sender may come again.
const MADE_WAY: &str = "it was slow, and makes way for another sender; whole records are kept";
const MADE_WAY_RETRY: Duration = Duration::from_secs(2);

/// What comes next of a body.
pub enum Came {
    Bytes(Bytes),
    /// What waits in the socket.
    InSocket,
}

/// How a body begins.
pub enum Opening {
    Prelude(Prelude),
    /// It ended, or broke off, before there was a prelude.
    Short {
        seen: Bytes,
        /// What the prelude lacks.
        lacks: PreludeError,
        ended: Result<(), Problem>,
    },
}

/// Reads a body frame by frame. A body that is silent too long, or too slow, is an error.
pub struct BodyReader<'a> {
    pub body: &'a mut RequestBody,
    core: Arc<Core>,
    timeouts: BodyTimeouts,
    /// Ends the body when another request for the same upload has come.
    superseded: Option<Superseded>,
    /// What comes first: read while looking for the prelude, or kept of an earlier part.
    ahead: Option<Bytes>,
    /// Comes after `ahead`: read to see whether the whole body was here.
    looked_at: VecDeque<Bytes>,
    /// The bytes that came, and how long they were waited for, since the last time that enough had come.
    came: u64,
    waited: Duration,
}

impl<'a> BodyReader<'a> {
    /// A body from its beginning.
    pub fn new(core: &Arc<Core>, timeouts: BodyTimeouts, body: &'a mut RequestBody) -> Self {
        let (core, looked_at, waited) = (core.clone(), VecDeque::new(), Duration::ZERO);
        Self { body, core, timeouts, superseded: None, ahead: None, looked_at, came: 0, waited }
    }

    /// The body of a part, after what was `kept` of the parts before, until another request for the same upload comes.
    pub fn of_part(self, kept: Option<Bytes>, superseded: Superseded) -> Self {
        Self { ahead: kept, superseded: Some(superseded), ..self }
    }

    /// The next bytes; `None` at the end. A body that breaks off is an error.
    pub async fn next(&mut self) -> Result<Option<Bytes>, Problem> {
        match self.next_or_in_socket(false).await? {
            Some(Came::Bytes(bytes)) => Ok(Some(bytes)),
            Some(Came::InSocket) | None => Ok(None),
        }
    }

    /// The next bytes; or, for whoever need not see them, that they have come to the socket, where [`BodyReader::piped`] has them.
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
        let place = self.body.place().cloned();
        let body = &mut *self.body;
        let next = timeout(left, async {
            match unseen && body.is_in_socket() {
                true => Some(body.in_socket().await.map(|()| Came::InSocket)),
                false => body.data().await.map(|data| data.map(Came::Bytes)),
            }
        });
        let next = async {
            tokio::select! {
                biased;
                // Its connection may have ended: a part that goes on in a task of its own would be counted nowhere.
                () = makes_way(place.as_ref()) => Err(Problem::new(Code::TooManyRequests, MADE_WAY).retry_after(MADE_WAY_RETRY)),
                next = next => Ok(next),
            }
        };
        let next = match &mut self.superseded {
            None => next.await?,
            Some(superseded) => tokio::select! {
                biased;
                problem = superseded.wait() => return Err(problem),
                next = next => next?,
            },
        };
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

    /// Takes what has come to the socket, `most` bytes at most; `None`: nothing has come after all.
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

    /// The next `len` bytes, if all of them have come by now. If not, those that have come are read again by [`BodyReader::next`].
    pub async fn at_hand(&mut self, len: u64) -> Option<Vec<Bytes>> {
        let (mut seen, mut left) = (VecDeque::new(), len);
        while left > 0 {
            let mut next = self.next_now().await;
            if next.is_none() {
                // hyper reads what waits in the socket when its task runs.
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

    /// The next bytes, if they have come by now. An end, or a break, is told to whoever reads on.
    async fn next_now(&mut self) -> Option<Bytes> {
        let mut next = pin!(self.next());
        poll_fn(|cx| match next.as_mut().poll(cx) {
            Poll::Ready(Ok(bytes)) => Poll::Ready(bytes),
            Poll::Ready(Err(_)) | Poll::Pending => Poll::Ready(None),
        })
        .await
    }

    /// Reads on until the prelude is there; its bytes come again from [`BodyReader::next`].
    ///
    /// # Errors
    /// `body-not-sealed`; those of a body that breaks off.
    pub async fn prelude(&mut self) -> Result<Prelude, Problem> {
        match self.opening().await? {
            Opening::Prelude(prelude) => Ok(prelude),
            Opening::Short { ended: Err(problem), .. } => Err(problem),
            Opening::Short { lacks, ended: Ok(()), .. } => Err(Problem::new(Code::BodyNotSealed, lacks)),
        }
    }

    /// Reads on until the prelude is there, or the body is over; the prelude's bytes come again from [`BodyReader::next`].
    ///
    /// # Errors
    /// `body-not-sealed` if the body begins with something else.
    pub async fn opening(&mut self) -> Result<Opening, Problem> {
        let mut seen = Bytes::new();
        loop {
            let lacks = match Prelude::parse(&seen) {
                Ok(prelude) => {
                    self.ahead = Some(seen);
                    return Ok(Opening::Prelude(prelude));
                }
                Err(error @ PreludeError::Incomplete { .. }) => error,
                Err(error) => return Err(Problem::new(Code::BodyNotSealed, error)),
            };
            match self.next().await {
                Ok(Some(bytes)) if seen.is_empty() => seen = bytes,
                Ok(Some(bytes)) => seen = [seen, bytes].concat().into(),
                Ok(None) => return Ok(Opening::Short { seen, lacks, ended: Ok(()) }),
                Err(problem) => return Ok(Opening::Short { seen, lacks, ended: Err(problem) }),
            }
        }
    }
}
