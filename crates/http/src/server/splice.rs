//! From a socket into a file without a copy of ours: [`SpliceChunk`] (Linux, `splice(2)`).
//!
//! A thread has one pipe for all its connections. It is filled from one socket and emptied into one file before anything else runs on the
//! thread, so it never holds bytes of two, and an idle connection has none. Whoever looks at what goes by reads it from a second pipe, which holds
//! the same pages (`tee(2)`): they are near the processor then, and the file's own need not be read back, which a small machine may have written out by then.
//!
//! Where the kernel, the file system or a sandbox cannot do that, bytes are read and written ([`is_possible`]).

use std::cell::Cell;
use std::fs::File;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use system::{Pipes, is_closed_way};

/// What a pipe takes at most: as much as a user without privileges may ask for. Larger moves make nothing faster.
const PIPE_BYTES: usize = 1 << 20;

/// What is looked at, at once.
const LOOK_BYTES: usize = 64 << 10;

thread_local! {
    static PIPES: Cell<Option<Pipes>> = const { Cell::new(None) };
}

/// Something here cannot be spliced: nobody tries again.
static IS_IMPOSSIBLE: AtomicBool = AtomicBool::new(cfg!(not(target_os = "linux")));

/// Whether it is worth trying.
pub(crate) fn is_possible() -> bool {
    !IS_IMPOSSIBLE.load(Ordering::Relaxed)
}

/// Bytes that were taken from a socket, on their way. What is left when this is dropped is lost.
#[derive(Debug)]
pub struct SpliceChunk {
    pipes: Option<Pipes>,
    left: u64,
}

impl SpliceChunk {
    /// Takes what has come, at most so many bytes; none at the end. `WouldBlock`: nothing has. None: there may be something, and this way is closed from now on ([`is_possible`]).
    pub(crate) fn take(socket: &impl std::os::fd::AsFd, most: u64) -> io::Result<Option<Self>> {
        match Self::try_take(socket, most) {
            Err(error) if is_closed_way(&error) => {
                IS_IMPOSSIBLE.store(true, Ordering::Relaxed);
                tracing::info!(%error, "bodies are copied: they cannot be spliced");
                Ok(None)
            }
            taken => taken.map(Some),
        }
    }

    fn try_take(socket: &impl std::os::fd::AsFd, most: u64) -> io::Result<Self> {
        let pipes = PIPES.take().map_or_else(Pipes::new, Ok)?;
        let most = usize::try_from(most).unwrap_or(PIPE_BYTES).min(PIPE_BYTES);
        match pipes.fill(socket, most) {
            Ok(left) => Ok(Self { pipes: Some(pipes), left }),
            Err(error) => {
                PIPES.set(Some(pipes));
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

    /// Moves the next `len` to `offset` of a file, and shows them to `look`, in order.
    ///
    /// # Errors
    /// If the file does not take them, or there are fewer.
    pub fn put(&mut self, file: &File, offset: u64, len: u64, mut look: impl FnMut(&[u8])) -> io::Result<()> {
        self.spend(len, |pipes, done| pipes.put(file, offset + done, len - done, &mut look))
    }

    /// Drops the next `len`.
    ///
    /// # Errors
    /// If there are fewer.
    pub fn skip(&mut self, len: u64) -> io::Result<()> {
        self.spend(len, |pipes, done| pipes.skip(len - done))
    }

    fn spend(&mut self, len: u64, mut step: impl FnMut(&mut Pipes, u64) -> io::Result<u64>) -> io::Result<()> {
        let pipes = self.pipes.as_mut().filter(|_| len <= self.left).ok_or(io::ErrorKind::UnexpectedEof)?;
        let mut done = 0;
        while done < len {
            match step(pipes, done)? {
                0 => return Err(io::ErrorKind::WriteZero.into()),
                moved => (done, self.left) = (done + moved, self.left - moved),
            }
        }
        Ok(())
    }
}

impl Drop for SpliceChunk {
    fn drop(&mut self) {
        // Those that still hold something are of no use to others.
        PIPES.set(self.pipes.take().filter(|_| self.left == 0));
    }
}

#[cfg(target_os = "linux")]
mod system {
    use super::{LOOK_BYTES, PIPE_BYTES};
    use rustix::io::Errno;
    use rustix::pipe::{PipeFlags, SpliceFlags, fcntl_setpipe_size, pipe_with, splice, tee};
    use std::fs::File;
    use std::io::{self, Read as _};
    use std::os::fd::{AsFd, OwnedFd};
    use std::os::unix::fs::FileExt as _;

    /// The pipe that bytes go through, and the one to look at them.
    #[derive(Debug)]
    pub struct Pipes {
        way: Pipe,
        window: Pipe,
        seen: Vec<u8>,
    }

    #[derive(Debug)]
    struct Pipe {
        read: File,
        write: OwnedFd,
    }

    impl Pipe {
        fn new() -> io::Result<Self> {
            let (read, write) = pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK)?;
            // A user with many pipes gets small ones: slower, and right.
            let _ = fcntl_setpipe_size(&write, PIPE_BYTES);
            Ok(Self { read: read.into(), write })
        }
    }

    impl Pipes {
        pub fn new() -> io::Result<Self> {
            Ok(Self { way: Pipe::new()?, window: Pipe::new()?, seen: vec![0; LOOK_BYTES] })
        }

        pub fn fill(&self, socket: &impl AsFd, most: usize) -> io::Result<u64> {
            let flags = SpliceFlags::MOVE | SpliceFlags::NONBLOCK;
            again(|| splice(socket, None, &self.way.write, None, most, flags))
        }

        pub fn put(
            &mut self,
            file: &File,
            mut offset: u64,
            most: u64,
            look: &mut impl FnMut(&[u8]),
        ) -> io::Result<u64> {
            let most = usize::try_from(most).unwrap_or(PIPE_BYTES);
            let len = match again(|| tee(&self.way.read, &self.window.write, most, SpliceFlags::NONBLOCK)) {
                Err(error) if is_closed_way(&error) => return self.copy(file, offset, most, look),
                seen => seen?,
            };
            let mut left = len;
            while left > 0 {
                let most = usize::try_from(left).unwrap_or(PIPE_BYTES).min(self.seen.len());
                let seen = (&self.window.read).read(&mut self.seen[..most])?;
                look(&self.seen[..seen]);
                left -= seen as u64;
            }
            let mut left = len;
            while left > 0 {
                let most = usize::try_from(left).unwrap_or(PIPE_BYTES);
                match again(|| splice(&self.way.read, None, file, Some(&mut offset), most, SpliceFlags::MOVE)) {
                    // They have been looked at.
                    Err(error) if is_closed_way(&error) => {
                        let copied = self.copy(file, offset, most, &mut |_| ())?;
                        (offset, left) = (offset + copied, left - copied);
                    }
                    moved => match moved? {
                        0 => return Err(io::ErrorKind::WriteZero.into()),
                        moved => left -= moved,
                    },
                }
            }
            Ok(len)
        }

        /// For a file that nothing can be spliced into.
        fn copy(&mut self, file: &File, offset: u64, most: usize, look: &mut impl FnMut(&[u8])) -> io::Result<u64> {
            let most = most.min(self.seen.len());
            let read = (&self.way.read).read(&mut self.seen[..most])?;
            file.write_all_at(&self.seen[..read], offset)?;
            look(&self.seen[..read]);
            Ok(read as u64)
        }

        pub fn skip(&mut self, most: u64) -> io::Result<u64> {
            let most = usize::try_from(most).unwrap_or(usize::MAX).min(self.seen.len());
            (&self.way.read).read(&mut self.seen[..most]).map(|count| count as u64)
        }
    }

    /// Whether an error says that this way is closed, rather than that its end is: no pipes left, no such call (to a sandbox not permitted), or not for this
    /// kind of socket or file.
    pub fn is_closed_way(error: &io::Error) -> bool {
        use Errno as E;
        let closed = [E::MFILE, E::NFILE, E::NOSYS, E::PERM, E::INVAL, E::OPNOTSUPP];
        Errno::from_io_error(error).is_some_and(|errno| closed.contains(&errno))
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

    pub fn is_closed_way(_: &io::Error) -> bool {
        true
    }

    /// There are none.
    #[derive(Debug)]
    pub enum Pipes {}

    impl Pipes {
        pub fn new() -> io::Result<Self> {
            Err(io::ErrorKind::Unsupported.into())
        }

        pub fn fill<S>(&self, _: &S, _: usize) -> io::Result<u64> {
            match *self {}
        }

        pub fn put(&mut self, _: &File, _: u64, _: u64, _: &mut impl FnMut(&[u8])) -> io::Result<u64> {
            match *self {}
        }

        pub fn skip(&mut self, _: u64) -> io::Result<u64> {
            match *self {}
        }
    }
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;
    use std::io::Write as _;
    use std::os::unix::net::UnixStream;

    /// Bytes that are worth looking for.
    fn pattern() -> Vec<u8> {
        (0..200_000_u32).map(|at| (at % 251) as u8).collect()
    }

    #[test]
    fn a_file_that_takes_no_splice_gets_the_bytes_all_the_same() {
        let (mut sender, socket) = UnixStream::pair().unwrap();
        let pattern = self::pattern();
        let folder = tempfile::tempdir().unwrap();
        // The kernel refuses to splice into a file that is open to be appended to.
        let file = File::options().append(true).create(true).read(true).open(folder.path().join("log")).unwrap();
        let (mut at, mut seen) = (0, Vec::new());
        for piece in pattern.chunks(50_000) {
            sender.write_all(piece).unwrap();
            let mut piped = SpliceChunk::try_take(&socket, u64::MAX).unwrap();
            let len = piped.len();
            assert_eq!(len, piece.len() as u64);
            piped.put(&file, at, len, |bytes| seen.extend_from_slice(bytes)).unwrap();
            at += len;
        }
        assert_eq!(std::fs::read(folder.path().join("log")).unwrap(), pattern);
        assert!(seen == pattern, "each is looked at once");
    }

    #[test]
    fn what_cannot_be_spliced_from_is_no_broken_connection() {
        let folder = tempfile::tempdir().unwrap();
        let folder = File::open(folder.path()).unwrap();
        let error = SpliceChunk::try_take(&folder, 1).unwrap_err();
        assert!(is_closed_way(&error), "{error}");
        let gone = io::Error::from_raw_os_error(rustix::io::Errno::CONNRESET.raw_os_error());
        assert!(!is_closed_way(&gone) && !is_closed_way(&io::ErrorKind::WouldBlock.into()));
    }
}
