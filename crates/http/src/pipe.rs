//! From a socket into a file without a copy of ours: [`Piped`] (Linux, `splice(2)`).
//!
//! A thread has one pipe for all its connections. It is filled from one socket and emptied into one file before anything else runs on the
//! thread, so it never holds octets of two, and an idle connection has none.

use std::cell::Cell;
use std::fs::File;
use std::io;

/// What a pipe takes at most: as much as a user without privileges may ask for. Larger moves make nothing faster.
const PIPE_BYTES: usize = 1 << 20;

thread_local! {
    static PIPE: Cell<Option<system::Pipe>> = const { Cell::new(None) };
}

/// Octets that were taken from a socket, on their way. What is left when this is dropped is lost.
#[derive(Debug)]
pub struct Piped {
    pipe: Option<system::Pipe>,
    left: u64,
}

impl Piped {
    /// Takes what has come, at most so many octets; none at the end. `WouldBlock`: nothing has.
    pub(crate) fn take(socket: &impl std::os::fd::AsFd, most: u64) -> io::Result<Self> {
        let pipe = PIPE.take().map_or_else(|| system::Pipe::new(PIPE_BYTES), Ok)?;
        let most = usize::try_from(most).unwrap_or(PIPE_BYTES).min(PIPE_BYTES);
        match pipe.fill(socket, most) {
            Ok(left) => Ok(Self { pipe: Some(pipe), left }),
            Err(error) => {
                PIPE.set(Some(pipe));
                Err(error)
            }
        }
    }

    /// How many there are.
    pub const fn len(&self) -> u64 {
        self.left
    }

    /// Whether there are none.
    pub const fn is_empty(&self) -> bool {
        self.left == 0
    }

    /// Moves the next `len` to `offset` of a file.
    ///
    /// # Errors
    /// If the file does not take them, or there are fewer.
    pub fn put(&mut self, file: &File, offset: u64, len: u64) -> io::Result<()> {
        self.spend(len, |pipe, done| pipe.put(file, offset + done, len - done))
    }

    /// Drops the next `len`.
    ///
    /// # Errors
    /// If there are fewer.
    pub fn skip(&mut self, len: u64) -> io::Result<()> {
        self.spend(len, |pipe, done| pipe.skip(len - done))
    }

    fn spend(&mut self, len: u64, mut step: impl FnMut(&system::Pipe, u64) -> io::Result<u64>) -> io::Result<()> {
        let pipe = self.pipe.as_ref().filter(|_| len <= self.left).ok_or(io::ErrorKind::UnexpectedEof)?;
        let mut done = 0;
        while done < len {
            match step(pipe, done)? {
                0 => return Err(io::ErrorKind::WriteZero.into()),
                moved => (done, self.left) = (done + moved, self.left - moved),
            }
        }
        Ok(())
    }
}

impl Drop for Piped {
    fn drop(&mut self) {
        // One that still holds something is of no use to others.
        PIPE.set(self.pipe.take().filter(|_| self.left == 0));
    }
}

#[cfg(target_os = "linux")]
mod system {
    use rustix::io::Errno;
    use rustix::pipe::{PipeFlags, SpliceFlags, fcntl_setpipe_size, pipe_with, splice};
    use std::fs::File;
    use std::io::{self, Read as _};
    use std::os::fd::{AsFd, OwnedFd};

    #[derive(Debug)]
    pub struct Pipe {
        read: File,
        write: OwnedFd,
    }

    impl Pipe {
        pub fn new(bytes: usize) -> io::Result<Self> {
            let (read, write) = pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK)?;
            // A user with many pipes gets small ones: slower, and right.
            let _ = fcntl_setpipe_size(&write, bytes);
            Ok(Self { read: read.into(), write })
        }

        pub fn fill(&self, socket: &impl AsFd, most: usize) -> io::Result<u64> {
            let flags = SpliceFlags::MOVE | SpliceFlags::NONBLOCK;
            again(|| splice(socket, None, &self.write, None, most, flags))
        }

        pub fn put(&self, file: &File, mut offset: u64, most: u64) -> io::Result<u64> {
            let most = usize::try_from(most).unwrap_or(usize::MAX);
            again(|| splice(&self.read, None, file, Some(&mut offset), most, SpliceFlags::MOVE))
        }

        pub fn skip(&self, most: u64) -> io::Result<u64> {
            let mut dropped = [0; 4096];
            let most = usize::try_from(most).unwrap_or(usize::MAX).min(dropped.len());
            (&self.read).read(&mut dropped[..most]).map(|count| count as u64)
        }
    }

    fn again(mut call: impl FnMut() -> Result<usize, Errno>) -> io::Result<u64> {
        loop {
            match call() {
                Err(Errno::INTR) => {}
                moved => return Ok(moved? as u64),
            }
        }
    }
}

#[cfg(not(target_os = "linux"))]
mod system {
    use std::fs::File;
    use std::io;

    /// There is none.
    #[derive(Debug)]
    pub enum Pipe {}

    impl Pipe {
        pub fn new(_: usize) -> io::Result<Self> {
            Err(io::ErrorKind::Unsupported.into())
        }

        pub fn fill<S>(&self, _: &S, _: usize) -> io::Result<u64> {
            match *self {}
        }

        pub fn put(&self, _: &File, _: u64, _: u64) -> io::Result<u64> {
            match *self {}
        }

        pub fn skip(&self, _: u64) -> io::Result<u64> {
            match *self {}
        }
    }
}
