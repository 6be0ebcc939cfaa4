//! A request's body on its way to the file: [`Frames`] as they come, [`Sink`] where they go.

use crate::open_ended::OpenEnded;
use crate::shared::{Shared, full_problem, store_problem};
use crate::steps::Steps;
use bytes::{Bytes, BytesMut};
use hoop_http::{Code, Problem, RequestBody, SpliceChunk};
use hoop_seal::{Prelude, PreludeError};
use hoop_spool::{Intake, Source, WriteError};
use std::collections::VecDeque;
use std::fs::File;
use std::future::poll_fn;
use std::io;
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;
use tokio::task::JoinHandle;
use tokio::time::{Instant, timeout};

/// Frames below this are collected before they are written: a sender's 1 KiB chunks must not cost a system call each.
/// As much is held for each sender of short bodies.
const WRITE_BYTES: usize = 16 * 1024;

/// So many senders of long bodies wait for the disk at once, and have it write: two, so that it is never idle. Whoever has a short one, or its end,
/// synced waits behind what these have under way.
pub const DISK_TURNS: usize = 2;

/// Where the body's bytes go.
pub struct Sink {
    pub intake: Intake,
    pub prelude: Vec<u8>,
    /// Where the next byte belongs.
    pub at: u64,
    /// Where the last byte that may come belongs, and one.
    pub limit: u64,
    /// Moves `limit`, if the sender did not tell its length.
    pub open_ended: Option<OpenEnded>,
    /// Small frames, to be written together: the bytes before `at`.
    pub collected: BytesMut,
    /// Commits what has come, while more comes. `None`: nobody knows of how much it is a part.
    pub steps: Option<Steps>,
    /// What the disk is at.
    settling: Option<JoinHandle<Result<(), WriteError>>>,
}

impl Sink {
    /// Takes octets from `at` on, before `limit`.
    pub fn new(intake: Intake, prelude: Vec<u8>, at: u64, limit: u64) -> Self {
        let (open_ended, collected, steps, settling) = (None, BytesMut::new(), None, None);
        Self { intake, prelude, at, limit, open_ended, collected, steps, settling }
    }

    pub async fn pump(&mut self, frames: &mut Frames<'_>) -> Result<(), Problem> {
        while let Some(came) = self.next(frames).await? {
            match came {
                Came::Octets(bytes) => {
                    self.promise(bytes.len() as u64).await?;
                    self.push(&bytes)?;
                }
                Came::InSocket => self.pipe(frames)?,
            }
            let written = self.written();
            if let Some(steps) = &mut self.steps {
                steps.look(&self.intake, written);
            }
            self.settle(&frames.shared).await?;
        }
        Ok(())
    }

    /// Has the disk write what this sender has brought, and waits if it is still at what came before: its octets wait in the socket meanwhile. So one
    /// part is written while the next one comes.
    pub async fn settle(&mut self, shared: &Arc<Shared>) -> Result<(), Problem> {
        let Some(behind) = self.intake.behind() else { return Ok(()) };
        if let Some(before) = self.settling.take() {
            before.await.map_err(|error| Problem::new(Code::Internal, error))?.map_err(write_problem)?;
        }
        let shared = shared.clone();
        self.settling = Some(tokio::spawn(async move {
            let _turn = shared.disk_turns.acquire().await.expect("it is never closed");
            shared.blocking(move |_| behind.settle()).await
        }));
        Ok(())
    }

    /// What comes next. What has come is committed while it stays away.
    async fn next(&mut self, frames: &mut Frames<'_>) -> Result<Option<Came>, Problem> {
        // The prelude's octets are looked at.
        let unseen = self.at >= self.prelude.len() as u64 && self.at < self.limit;
        let mut frame = std::pin::pin!(frames.next_or_in_socket(unseen));
        loop {
            let due = self.steps.as_ref().and_then(|steps| steps.due(self.at));
            let Some(due) = due else { return frame.await };
            tokio::select! {
                biased;
                frame = &mut frame => return frame,
                () = tokio::time::sleep_until(due) => {}
            }
            self.flush()?;
            let written = self.written();
            if let Some(steps) = &mut self.steps {
                steps.look(&self.intake, written);
            }
        }
    }

    /// Moves what waits in the socket to the file.
    fn pipe(&mut self, frames: &mut Frames<'_>) -> Result<(), Problem> {
        self.flush()?;
        let Some(piped) = frames.piped(self.limit - self.at)? else { return Ok(()) };
        let len = piped.len();
        self.intake.write_from(self.at, len, &mut Socket(piped)).map_err(write_problem)?;
        self.at += len;
        Ok(())
    }

    /// Has room promised for `len` more bytes, if their sender did not tell how many come.
    async fn promise(&mut self, len: u64) -> Result<(), Problem> {
        if self.at + len > self.limit && self.open_ended.is_some() {
            self.flush()?;
            let open_ended = self.open_ended.as_ref().expect("it is there");
            self.limit = open_ended.limit(&self.intake, self.at, len).await?;
        }
        Ok(())
    }

    pub fn push(&mut self, bytes: &Bytes) -> Result<(), Problem> {
        if self.at + bytes.len() as u64 > self.limit {
            let detail = format!("more bytes came than the {} that may", self.limit);
            return Err(Problem::new(Code::RangeInvalid, detail));
        }
        self.compare_prelude(bytes)?;
        // What is large is not copied: what the copy takes would be held as long as the sender sends.
        if bytes.len() >= WRITE_BYTES {
            self.flush()?;
            self.intake.write_at(self.at, bytes).map_err(write_problem)?;
            self.at += bytes.len() as u64;
            return Ok(());
        }
        self.at += bytes.len() as u64;
        self.collected.extend_from_slice(bytes);
        if self.collected.len() >= WRITE_BYTES { self.flush() } else { Ok(()) }
    }

    /// A range from 0 repeats the prelude; another one there would be dropped unseen.
    fn compare_prelude(&self, bytes: &[u8]) -> Result<(), Problem> {
        let Some(expected) = usize::try_from(self.at).ok().and_then(|at| self.prelude.get(at..)) else { return Ok(()) };
        let common = expected.len().min(bytes.len());
        if expected[..common] != bytes[..common] {
            let detail = "the body's first bytes differ from Hoop-Prelude";
            return Err(Problem::new(Code::BodyNotSealed, detail).field("Hoop-Prelude"));
        }
        Ok(())
    }

    pub fn flush(&mut self) -> Result<(), Problem> {
        if self.collected.is_empty() {
            return Ok(());
        }
        self.intake.write_at(self.written(), &self.collected).map_err(write_problem)?;
        self.collected.clear();
        Ok(())
    }

    /// Up to where everything is in the file.
    pub fn written(&self) -> u64 {
        self.at - self.collected.len() as u64
    }
}

/// What comes next of a body.
pub enum Came {
    /// These.
    Octets(Bytes),
    /// What waits in the socket.
    InSocket,
}

/// From a socket to the file.
struct Socket(SpliceChunk);

impl Source for Socket {
    fn put(&mut self, file: &File, offset: u64, len: u64, look: &mut dyn FnMut(&[u8])) -> io::Result<()> {
        self.0.put(file, offset, len, look)
    }

    fn skip(&mut self, len: u64) -> io::Result<()> {
        self.0.skip(len)
    }
}

fn write_problem(error: WriteError) -> Problem {
    match error {
        WriteError::Full => full_problem("the disk became full; what came before is kept"),
        WriteError::PastTotal { .. } => Problem::new(Code::RangeInvalid, error).field("Content-Range"),
        WriteError::Store(error) => store_problem(&error),
    }
}

/// How slowly a body may come. Only the time that is spent waiting for it counts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Patience {
    /// How long nothing may come. Default 60 s: longer than a phone takes to change between access points.
    pub silence: Duration,
    /// So many bytes must come, default 256 KiB,
    pub least_bytes: u64,
    /// within so long, default 60 s. Together 4 KiB/s: a tenth of what is left to one of twenty phones at Wi-Fi's slowest rate. A body that
    /// trickles holds a connection, of which there are few.
    pub within: Duration,
}

impl Default for Patience {
    fn default() -> Self {
        let minute = Duration::from_secs(60);
        Self { silence: minute, least_bytes: 256 << 10, within: minute }
    }
}

/// A body's frames, with limits to how long each may stay away and how slowly they come.
pub struct Frames<'a> {
    pub body: &'a mut RequestBody,
    shared: Arc<Shared>,
    /// Read while looking for the prelude.
    pub ahead: Option<Bytes>,
    /// Read while looking whether all is here; comes after `ahead`.
    looked_at: VecDeque<Bytes>,
    /// What came, and how long it was waited for, since enough had come last.
    came: u64,
    waited: Duration,
}

impl<'a> Frames<'a> {
    pub fn new(shared: &Arc<Shared>, body: &'a mut RequestBody) -> Self {
        Self { body, shared: shared.clone(), ahead: None, looked_at: VecDeque::new(), came: 0, waited: Duration::ZERO }
    }

    /// The next bytes; `None` at the end. A body that breaks off is an error.
    pub async fn next(&mut self) -> Result<Option<Bytes>, Problem> {
        match self.next_or_in_socket(false).await? {
            Some(Came::Octets(bytes)) => Ok(Some(bytes)),
            Some(Came::InSocket) | None => Ok(None),
        }
    }

    /// The same; or, for whoever need not see them, that they have come to the socket, where [`Frames::piped`] has them.
    async fn next_or_in_socket(&mut self, unseen: bool) -> Result<Option<Came>, Problem> {
        if let Some(ahead) = self.ahead.take().or_else(|| self.looked_at.pop_front()) {
            return Ok(Some(Came::Octets(ahead)));
        }
        let patience = self.shared.patience;
        if self.came >= patience.least_bytes {
            (self.came, self.waited) = (0, Duration::ZERO);
        }
        let begun = Instant::now();
        let left = patience.within.saturating_sub(self.waited).min(patience.silence);
        let body = &mut *self.body;
        let next = timeout(left, async {
            match unseen && body.is_in_socket() {
                true => Some(body.in_socket().await.map(|()| Came::InSocket)),
                false => body.data().await.map(|data| data.map(Came::Octets)),
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
        if let Some(Came::Octets(bytes)) = &next {
            self.count(bytes.len() as u64);
        }
        Ok(next)
    }

    /// What has come to the socket, at most so many octets; `None`: nothing has, after all.
    fn piped(&mut self, most: u64) -> Result<Option<SpliceChunk>, Problem> {
        let piped = self.body.piped(most).map_err(|error| Problem::new(Code::BodyTruncated, error))?;
        if let Some(piped) = &piped {
            self.count(piped.len());
        }
        Ok(piped)
    }

    fn count(&mut self, octets: u64) {
        self.came += octets;
        self.shared.metrics.received(octets);
    }

    /// The next `len` octets if they have all come by now. If not, whatever has comes again from [`Frames::next`].
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

    /// Reads on until the prelude is there; its bytes come again from [`Frames::next`].
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
