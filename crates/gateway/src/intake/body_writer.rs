//! A request's body on its way to the file: [`BodyWriter`].

use super::body_reader::{BodyReader, Came};
use super::checkpoints::Checkpoints;
use super::open_ended::OpenEnded;
use super::refusals::write_problem;
use crate::core::blocking::{DropBlocking, blocking};
use bytes::{Bytes, BytesMut};
use hoop_http::{Code, Problem, SpliceChunk};
use hoop_spool::{Intake, Source, WriteError};
use std::fs::File;
use std::io;
use std::sync::Arc;
use tokio::sync::Semaphore;
use tokio::task::JoinHandle;

/// Frames below this are collected before they are written, so that a sender's 1 KiB chunks do not cost a system call each. Each sender may hold
/// that much memory.
const WRITE_BYTES: usize = 16 * 1024;

/// Writes one body to its upload's file, frame by frame.
pub struct BodyWriter {
    pub intake: DropBlocking<Intake>,
    /// What the first bytes must be.
    prelude: Vec<u8>,
    /// Where the next byte belongs.
    at: u64,
    /// The end of what may come.
    pub limit: u64,
    /// Moves `limit`, if the sender did not tell its length.
    pub open_ended: Option<OpenEnded>,
    /// Bytes that come before here are held in memory until all of them are here.
    pub held_until: u64,
    /// What is to be written together, small frames or held: the bytes before `at`.
    collected: BytesMut,
    /// Commit what has come, while more comes.
    pub checkpoints: Checkpoints,
    /// Whether more came than may.
    pub overrun: bool,
    /// A permit for each sender that waits for the disk.
    disk_turns: Arc<Semaphore>,
    /// What the disk is writing.
    settling: Option<JoinHandle<Result<(), WriteError>>>,
}

impl BodyWriter {
    /// Takes bytes from `at` on, before `limit`.
    pub fn new(intake: Intake, prelude: Vec<u8>, at: u64, limit: u64, disk_turns: Arc<Semaphore>) -> Self {
        Self {
            intake: DropBlocking::new(intake),
            prelude,
            at,
            limit,
            open_ended: None,
            held_until: 0,
            collected: BytesMut::new(),
            checkpoints: Checkpoints::Never,
            overrun: false,
            disk_turns,
            settling: None,
        }
    }

    /// Takes the body to its end.
    ///
    /// # Errors
    /// Why not all of it could be taken. What came before is in the file, or collected.
    pub async fn pump(&mut self, reader: &mut BodyReader<'_>) -> Result<(), Problem> {
        while let Some(came) = self.next(reader).await? {
            match came {
                Came::Bytes(bytes) => {
                    self.promise(bytes.len() as u64).await?;
                    self.push(&bytes)?;
                }
                Came::InSocket => self.pipe(reader)?,
            }
            self.checkpoint_beside()?;
            self.settle().await?;
            self.checkpoint_and_tell().await?;
        }
        Ok(())
    }

    /// Begins a timed checkpoint if one is due.
    fn checkpoint_beside(&mut self) -> Result<(), Problem> {
        let written = self.written();
        match &mut self.checkpoints {
            Checkpoints::Timed(checkpointer) => checkpointer.look(&self.intake, written),
            Checkpoints::Never | Checkpoints::Told(_) => Ok(()),
        }
    }

    /// Makes a checkpoint of which the sender is told, if one is due.
    async fn checkpoint_and_tell(&mut self) -> Result<(), Problem> {
        if !matches!(&self.checkpoints, Checkpoints::Told(checkpoints) if checkpoints.is_due(self.at)) {
            return Ok(());
        }
        self.flush()?;
        match &mut self.checkpoints {
            Checkpoints::Told(checkpoints) => checkpoints.make(self.intake.another(), self.at).await,
            Checkpoints::Never | Checkpoints::Timed(_) => Ok(()),
        }
    }

    /// Has the disk write what this sender has brought, and waits until it has written what came before that. So one part is written while the next
    /// one comes, and a sender that is faster than the disk waits at its socket.
    async fn settle(&mut self) -> Result<(), Problem> {
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

    /// Waits for what comes next, and commits meanwhile what has come.
    async fn next(&mut self, reader: &mut BodyReader<'_>) -> Result<Option<Came>, Problem> {
        // The prelude's bytes are looked at, and what is held is in memory.
        let first_unseen = self.held_until.max(self.prelude.len() as u64);
        let unseen = self.at >= first_unseen && self.at < self.limit;
        let mut frame = std::pin::pin!(reader.next_or_in_socket(unseen));
        loop {
            let due = match &self.checkpoints {
                Checkpoints::Timed(checkpointer) => checkpointer.due(self.at),
                Checkpoints::Never | Checkpoints::Told(_) => None,
            };
            let Some(due) = due else { return frame.await };
            tokio::select! {
                biased;
                frame = &mut frame => return frame,
                () = tokio::time::sleep_until(due) => {}
            }
            self.flush()?;
            self.checkpoint_beside()?;
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

    /// Takes these bytes: writes them, or collects them to be written together.
    ///
    /// # Errors
    /// `range-invalid` if they are more than may come; those of the disk.
    pub fn push(&mut self, bytes: &Bytes) -> Result<(), Problem> {
        if self.at + bytes.len() as u64 > self.limit {
            self.overrun = true;
            let detail = format!("more bytes came than the {} that may", self.limit);
            return Err(Problem::new(Code::RangeInvalid, detail));
        }
        self.compare_prelude(bytes)?;
        // A large frame is not copied: the memory for a copy would be held as long as the sender sends.
        if bytes.len() >= WRITE_BYTES && !self.is_holding() {
            self.flush()?;
            self.intake.write_at(self.at, bytes).map_err(write_problem)?;
            self.at += bytes.len() as u64;
            return Ok(());
        }
        self.at += bytes.len() as u64;
        self.collected.extend_from_slice(bytes);
        if self.collected.len() >= WRITE_BYTES { self.flush() } else { Ok(()) }
    }

    /// A range from 0 repeats the prelude. Were it another, the spool would drop it unseen.
    fn compare_prelude(&self, bytes: &[u8]) -> Result<(), Problem> {
        let Some(expected) = usize::try_from(self.at).ok().and_then(|at| self.prelude.get(at..)) else { return Ok(()) };
        let common = expected.len().min(bytes.len());
        if expected[..common] != bytes[..common] {
            let detail = "the body's first bytes differ from Hoop-Prelude";
            return Err(Problem::new(Code::BodyNotSealed, detail).field("Hoop-Prelude"));
        }
        Ok(())
    }

    /// Writes what is collected, unless it is held.
    pub fn flush(&mut self) -> Result<(), Problem> {
        if self.collected.is_empty() || self.is_holding() {
            return Ok(());
        }
        let at = self.written();
        self.intake.write_at(at, &self.collected).map_err(write_problem)?;
        self.collected.clear();
        Ok(())
    }

    /// Whether what has come is held in memory: see [`BodyWriter::held_until`].
    const fn is_holding(&self) -> bool {
        self.at < self.held_until
    }

    /// Takes out what is held, if not all of it has come.
    pub fn take_held(&mut self) -> BytesMut {
        if self.is_holding() { std::mem::take(&mut self.collected) } else { BytesMut::new() }
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

#[cfg(test)]
mod tests {
    use super::*;
    use hoop_spool::{Begin, Offer, Settings, Spool};
    use hoop_units::{AddressKey, UnixTime, UploadId};

    /// Of a part that could not be kept it was given back where connections are served, which is a sync on a disk that fails.
    #[test]
    fn what_was_not_recorded_is_given_back_on_a_thread_that_may_wait() {
        let runtime = tokio::runtime::Builder::new_current_thread().max_blocking_threads(1).build().unwrap();
        runtime.block_on(async {
            let folder = tempfile::tempdir().unwrap();
            let spool = Spool::open(Settings::new(folder.path())).unwrap();
            let offer = Offer {
                id: UploadId([1; 16]),
                prelude: vec![7; 9],
                total: Some(100),
                dest: "https://photos.example/hoop/post".into(),
                expires: UnixTime(2_000),
                device: AddressKey::UNKNOWN,
                deadline: None,
            };
            let Begin::Take(intake) = spool.begin(&offer).unwrap() else { panic!("it is new") };
            let writer = BodyWriter::new(intake, offer.prelude, 0, 100, Arc::new(Semaphore::new(1)));
            let under_way = || spool.held_by(AddressKey::UNKNOWN).unwrap().uploads;
            let (busy, until) = std::sync::mpsc::channel::<()>();
            let thread = tokio::task::spawn_blocking(move || until.recv());
            drop(writer);
            assert_eq!(under_way(), 1, "the only thread that may wait is busy");
            drop(busy);
            assert!(thread.await.unwrap().is_err());
            // What comes last is done last.
            tokio::task::spawn_blocking(|| ()).await.unwrap();
            assert_eq!(under_way(), 0);
        });
    }
}
