//! A request's body on its way to the file: [`BodyWriter`].

use super::body_reader::{BodyReader, Came};
use super::checkpoints::Checkpointer;
use super::open_ended::OpenEnded;
use super::refusals::write_problem;
use crate::core::blocking::blocking;
use bytes::{Bytes, BytesMut};
use hoop_http::{Code, Problem, SpliceChunk};
use hoop_spool::{Intake, Source, WriteError};
use std::fs::File;
use std::io;
use std::sync::Arc;
use tokio::sync::Semaphore;
use tokio::task::JoinHandle;

/// Frames below this are collected before they are written: a sender's 1 KiB chunks must not cost a system call each.
/// As much is held for each sender of short bodies.
const WRITE_BYTES: usize = 16 * 1024;

/// Where the body's bytes go.
pub struct BodyWriter {
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
    pub checkpoints: Option<Checkpointer>,
    /// A permit for each sender that waits for the disk.
    disk_turns: Arc<Semaphore>,
    /// What the disk is at.
    settling: Option<JoinHandle<Result<(), WriteError>>>,
}

impl BodyWriter {
    /// Takes bytes from `at` on, before `limit`.
    pub fn new(intake: Intake, prelude: Vec<u8>, at: u64, limit: u64, disk_turns: Arc<Semaphore>) -> Self {
        let (open_ended, collected, checkpoints, settling) = (None, BytesMut::new(), None, None);
        Self { disk_turns, intake, prelude, at, limit, open_ended, collected, checkpoints, settling }
    }

    pub async fn pump(&mut self, reader: &mut BodyReader<'_>) -> Result<(), Problem> {
        while let Some(came) = self.next(reader).await? {
            match came {
                Came::Bytes(bytes) => {
                    self.promise(bytes.len() as u64).await?;
                    self.push(&bytes)?;
                }
                Came::InSocket => self.pipe(reader)?,
            }
            let written = self.written();
            if let Some(checkpoints) = &mut self.checkpoints {
                checkpoints.look(&self.intake, written);
            }
            self.settle().await?;
        }
        Ok(())
    }

    /// Has the disk write what this sender has brought, and waits if it is still at what came before: its bytes wait in the socket meanwhile. So one
    /// part is written while the next one comes.
    pub async fn settle(&mut self) -> Result<(), Problem> {
        let Some(behind) = self.intake.behind() else { return Ok(()) };
        if let Some(before) = self.settling.take() {
            before.await.map_err(|error| Problem::new(Code::Internal, error))?.map_err(write_problem)?;
        }
        let disk_turns = self.disk_turns.clone();
        self.settling = Some(tokio::spawn(async move {
            let _turn = disk_turns.acquire().await.expect("it is never closed");
            blocking(&disk_turns, move |_| behind.settle()).await
        }));
        Ok(())
    }

    /// What comes next. What has come is committed while it stays away.
    async fn next(&mut self, reader: &mut BodyReader<'_>) -> Result<Option<Came>, Problem> {
        // The prelude's bytes are looked at.
        let unseen = self.at >= self.prelude.len() as u64 && self.at < self.limit;
        let mut frame = std::pin::pin!(reader.next_or_in_socket(unseen));
        loop {
            let due = self.checkpoints.as_ref().and_then(|checkpoints| checkpoints.due(self.at));
            let Some(due) = due else { return frame.await };
            tokio::select! {
                biased;
                frame = &mut frame => return frame,
                () = tokio::time::sleep_until(due) => {}
            }
            self.flush()?;
            let written = self.written();
            if let Some(checkpoints) = &mut self.checkpoints {
                checkpoints.look(&self.intake, written);
            }
        }
    }

    /// Moves what waits in the socket to the file.
    fn pipe(&mut self, reader: &mut BodyReader<'_>) -> Result<(), Problem> {
        self.flush()?;
        let Some(piped) = reader.piped(self.limit - self.at)? else { return Ok(()) };
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
