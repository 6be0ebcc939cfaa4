//! The body of an answer that is coming, for all who wait for it: [`Draft`].
//!
//! Bounds: of a body that goes to disk, a block of [`BLOCK`] and one piece are in memory. What stays in memory altogether is bounded by whoever pushes.

use super::record::{BLOCK, Sums};
use crate::server::objects::window::Window;
use crate::server::places::PlacedFile;
use bytes::{Bytes, BytesMut};
use parking_lot::Mutex;
use std::io;
use std::os::unix::fs::FileExt as _;
use std::sync::Arc;
use tokio::sync::watch;
use tokio::task::spawn_blocking;

/// How a body that was coming ends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum End {
    /// All has come.
    Whole,
    /// It breaks off with this code.
    Broken(u64),
    /// It is not kept, and its rest is for whoever asked first.
    NotKept,
}

/// What is there of a body from some offset on.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Next {
    Bytes(Bytes),
    End(End),
}

#[derive(Debug)]
struct State {
    window: Window,
    sums: Sums,
    file: Option<Arc<PlacedFile>>,
    /// All before it is shown.
    shown: u64,
    end: Option<End>,
}

/// A body that is coming.
#[derive(Debug)]
pub(super) struct Draft {
    state: Mutex<State>,
    grown: watch::Sender<()>,
}

impl Draft {
    pub(super) fn new() -> Self {
        let state = State { window: Window::new(0, 0), sums: Sums::default(), file: None, shown: 0, end: None };
        Self { state: Mutex::new(state), grown: watch::Sender::new(()) }
    }

    /// How much has come.
    pub(super) fn len(&self) -> u64 {
        self.state.lock().window.end()
    }

    /// More has come. `is_last`: it is shown once the draft ends, so that whoever has the whole finds it in the cache.
    pub(super) fn push(&self, bytes: Bytes, is_last: bool) {
        let mut state = self.state.lock();
        state.sums.push(&bytes);
        state.window.push(bytes);
        if !is_last {
            state.shown = state.window.end();
        }
        drop(state);
        self.grown.send_replace(());
    }

    /// It ends, unless it has ended.
    pub(super) fn end(&self, end: End) {
        let mut state = self.state.lock();
        state.end.get_or_insert(end);
        state.shown = state.window.end();
        drop(state);
        self.grown.send_replace(());
    }

    /// The sums of what has come.
    pub(super) fn sums(&self) -> Vec<u32> {
        self.state.lock().sums.clone().finish()
    }

    /// All that has come, if all of it is in memory.
    pub(super) fn in_memory(&self) -> Option<Bytes> {
        let state = self.state.lock();
        if state.window.stored() > 0 {
            return None;
        }
        let mut whole = BytesMut::with_capacity(state.window.end() as usize);
        while let Some(piece) = state.window.in_memory(whole.len() as u64) {
            whole.extend_from_slice(&piece);
        }
        Some(whole.freeze())
    }

    /// Puts on disk what is in memory: whole blocks, or all of it.
    ///
    /// # Errors
    /// If the disk fails, or is full. What could not be put there stays in memory.
    pub(super) async fn store(&self, file: &Arc<PlacedFile>, is_all: bool) -> io::Result<()> {
        loop {
            let (start, pieces) = {
                let state = self.state.lock();
                let left = state.window.end() - state.window.stored();
                if left == 0 || (!is_all && left < BLOCK as u64) {
                    return Ok(());
                }
                state.window.unstored(BLOCK)
            };
            let (file, end) = (file.clone(), start + pieces.iter().map(|piece| piece.len() as u64).sum::<u64>());
            let of_window = file.clone();
            let write = move || {
                let mut at = start;
                pieces.iter().try_for_each(|piece| {
                    file.write_all_at(piece, at)?;
                    at += piece.len() as u64;
                    Ok(())
                })
            };
            spawn_blocking(write).await.map_err(io::Error::other).flatten()?;
            let mut state = self.state.lock();
            state.file = Some(of_window);
            state.window.store(end);
        }
    }

    /// What lies from `from` on, as soon as there is something.
    ///
    /// # Errors
    /// If the disk fails.
    pub(super) async fn next(&self, from: u64) -> io::Result<Next> {
        let mut grown = self.grown.subscribe();
        loop {
            let on_disk = {
                let state = self.state.lock();
                let is_shown = from < state.shown;
                if let Some(mut bytes) = state.window.in_memory(from).filter(|_| is_shown) {
                    bytes.truncate(usize::try_from(state.shown - from).unwrap_or(usize::MAX));
                    return Ok(Next::Bytes(bytes));
                }
                match (is_shown, state.end) {
                    (true, _) => state.file.clone().map(|file| (file, state.window.stored().min(state.shown) - from)),
                    (false, Some(end)) => return Ok(Next::End(end)),
                    (false, None) => None,
                }
            };
            let Some((file, left)) = on_disk else {
                let _ = grown.changed().await;
                continue;
            };
            let len = usize::try_from(left).unwrap_or(usize::MAX).min(BLOCK);
            let read = spawn_blocking(move || {
                let mut bytes = vec![0; len];
                file.read_exact_at(&mut bytes, from).map(|()| bytes.into())
            });
            return read.await.map_err(io::Error::other).flatten().map(Next::Bytes);
        }
    }

    /// Waits for its end.
    pub(super) async fn ended(&self) -> End {
        let mut grown = self.grown.subscribe();
        loop {
            let end = self.state.lock().end;
            match end {
                Some(end) => return end,
                None => drop(grown.changed().await),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn read(draft: &Draft, mut at: u64) -> (Vec<u8>, End) {
        let mut all = Vec::new();
        loop {
            match draft.next(at).await.unwrap() {
                Next::Bytes(bytes) => {
                    at += bytes.len() as u64;
                    all.extend_from_slice(&bytes);
                }
                Next::End(end) => return (all, end),
            }
        }
    }

    #[tokio::test]
    async fn all_who_wait_read_the_same_whether_it_is_on_disk_or_not() {
        let file = Arc::new(PlacedFile::new(tempfile::tempfile().unwrap(), None));
        let body: Vec<u8> = (0..BLOCK * 3 + 1_000).map(|at| (at / 5) as u8).collect();
        for on_disk in [false, true] {
            let draft = Arc::new(Draft::new());
            let reading: Vec<_> = [0, 70, BLOCK as u64 + 3]
                .map(|at| {
                    let draft = draft.clone();
                    (at, tokio::spawn(async move { read(&draft, at).await }))
                })
                .into();
            for piece in body.chunks(50_000) {
                draft.push(Bytes::copy_from_slice(piece), false);
                if on_disk {
                    draft.store(&file, false).await.unwrap();
                    let state = draft.state.lock();
                    assert!(state.window.end() - state.window.stored() < BLOCK as u64);
                }
            }
            assert_eq!(draft.in_memory().is_some(), !on_disk);
            if on_disk {
                draft.store(&file, true).await.unwrap();
            }
            draft.end(End::Whole);
            draft.end(End::NotKept);
            assert_eq!((draft.len(), draft.ended().await), (body.len() as u64, End::Whole));
            for (at, reading) in reading {
                let (read, end) = reading.await.unwrap();
                assert!(read == body[at as usize..] && end == End::Whole);
            }
            assert_eq!(draft.sums(), body.chunks(BLOCK).map(crc32c::crc32c).collect::<Vec<_>>());
        }
    }

    #[tokio::test]
    async fn the_last_piece_is_shown_with_the_end() {
        let draft = Draft::new();
        draft.push(Bytes::from_static(b"hello "), false);
        draft.push(Bytes::from_static(b"world"), true);
        assert_eq!(draft.in_memory().unwrap(), "hello world");
        assert_eq!(draft.next(2).await.unwrap(), Next::Bytes(Bytes::from_static(b"llo ")));
        let mut next = Box::pin(draft.next(6));
        assert!(std::future::poll_fn(|context| std::task::Poll::Ready(next.as_mut().poll(context).is_pending())).await);
        draft.end(End::Whole);
        assert_eq!(next.await.unwrap(), Next::Bytes(Bytes::from_static(b"world")));
        assert_eq!(read(&draft, 0).await, (b"hello world".to_vec(), End::Whole));
    }

    #[tokio::test]
    async fn what_a_disk_does_not_take_stays_in_memory() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("file"), "").unwrap();
        // It can be read alone.
        let file = Arc::new(PlacedFile::new(std::fs::File::open(folder.path().join("file")).unwrap(), None));
        let draft = Draft::new();
        draft.push(Bytes::from(vec![7; BLOCK + 1]), false);
        assert!(draft.store(&file, false).await.is_err());
        draft.end(End::NotKept);
        assert_eq!(read(&draft, 0).await, (vec![7; BLOCK + 1], End::NotKept));
    }
}
