//! Between the library's end of a pair and a flow: [`connect`], then [`carry`].

use crate::library::Library;
use crate::library::lock;
use crate::socket::{Socket, meaning};
use bytes::Bytes;
use hoop_endpoint::{FlowError, FlowStream, Status, ended};
use hoop_relay::codes;
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::socket::{MsgFlags, Shutdown, recv, shutdown};
use std::future::poll_fn;
use std::io;
use std::os::fd::{AsFd as _, AsRawFd as _};
use std::pin::{Pin, pin};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::io::{AsyncWrite as _, Interest};
use tokio::net::UnixStream;
use tokio::sync::watch;
use tokio::time::timeout;

/// What is copied at once, each way.
const COPY_BYTES: usize = 64 * 1024;

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

    async fn read(&self) -> io::Result<Option<Bytes>> {
        // Beginning to read anew costs nothing and loses nothing.
        self.each(|flow, cx| pin!(flow.get_mut().read_chunk(COPY_BYTES)).poll(cx)).await
    }

    async fn write(&self, mut octets: &[u8]) -> io::Result<()> {
        while !octets.is_empty() {
            let written = self.each(|flow, cx| flow.poll_write(cx, octets)).await?;
            octets = &octets[written..];
        }
        Ok(())
    }

    async fn end(&self) -> io::Result<()> {
        self.each(|flow, cx| flow.poll_shutdown(cx)).await
    }
}

/// Why a pair is not copied any more.
enum End {
    /// The program has closed it.
    Closed,
    /// The flow has failed.
    Failed(Errno),
}

/// Waits until the flow is attached, `within` so long, and carries it. The pair is `filled` with octets that are nobody's.
pub async fn connect(
    library: &'static Library,
    socket: Arc<Socket>,
    local: UnixStream,
    flow: FlowStream,
    filled: usize,
    within: Duration,
) {
    let mut status = flow.status();
    let attached = async {
        let attached = status.wait_for(|status| status.network.is_some() || status.over.is_some()).await;
        attached.map_or(Some(Errno::ENETDOWN), |status| status.over.map(meaning))
    };
    let closed = async {
        while !socket.is_closed.load(Ordering::Acquire) {
            socket.changed.notified().await;
        }
    };
    let failed = tokio::select! {
        attached = timeout(within, attached) => attached.unwrap_or(Some(Errno::ETIMEDOUT)),
        () = closed => return library.forget(&socket),
    };
    if let Some(error) = failed {
        // The octets that fill the pair are what makes the kernel tell.
        return socket.fail(error);
    }
    let held = Held::new(flow);
    // Before it becomes writable: who waits for that looks at once.
    socket.attached(&held);
    if drain(&local, filled).await.is_err() {
        return library.forget(&socket);
    }
    carry(library, socket, local, held).await;
}

async fn drain(local: &UnixStream, mut filled: usize) -> io::Result<()> {
    let mut octets = vec![0; COPY_BYTES];
    while filled > 0 {
        local.readable().await?;
        let most = filled.min(octets.len());
        match local.try_read(&mut octets[..most]) {
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(read) => filled -= read,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Copies both ways until the program has closed its end and what it wrote is delivered, or the flow fails.
pub async fn carry(library: &'static Library, socket: Arc<Socket>, local: UnixStream, flow: Held) {
    let Some(mut status) = flow.status() else { return library.forget(&socket) };
    library.carries(socket.key(), status.clone());
    let ended = tokio::try_join!(up(&socket, &local, &flow), down(&socket, &local, &flow, status.clone()));
    match ended {
        Ok((never, ())) => match never {},
        Err(End::Failed(error)) => {
            socket.fail(error);
            library.carried(socket.key());
            // Its error waits to be asked for.
            if socket.is_held() {
                return;
            }
        }
        Err(End::Closed) => {
            let _ = status.wait_for(|status| status.is_delivered || status.over.is_some()).await;
            // What still comes nobody reads: the other end need not go on.
            if !socket.is_at_end.load(Ordering::Acquire) {
                flow.reset(codes::BROKEN);
            }
        }
    }
    library.carried(socket.key());
    library.forget(&socket);
}

/// From the program to the flow. It ends when the program has closed its end.
async fn up(socket: &Socket, local: &UnixStream, flow: &Held) -> Result<std::convert::Infallible, End> {
    let mut octets = vec![0; COPY_BYTES];
    loop {
        // Asked before reading: what was written before the program shut its end is found then.
        let is_shut = socket.is_shut.load(Ordering::Acquire);
        let read = match is_shut {
            // The runtime may not know yet that there is something.
            true => read_now(local, &mut octets),
            false => local.try_io(Interest::READABLE, || read_now(local, &mut octets)),
        };
        match read {
            Ok(0) => break,
            Ok(read) if flow.write(&octets[..read]).await.is_ok() => {}
            // Why not, the other direction tells, after what has come.
            Ok(_) => break,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                if is_shut {
                    break;
                }
                tokio::select! {
                    _ = local.readable() => {}
                    () = socket.changed.notified() => {}
                }
            }
            Err(_) => break,
        }
    }
    let _ = flow.end().await;
    closed(socket, local, &mut octets).await;
    Err(End::Closed)
}

fn read_now(local: &UnixStream, octets: &mut [u8]) -> io::Result<usize> {
    loop {
        match recv(local.as_raw_fd(), octets, MsgFlags::MSG_DONTWAIT) {
            Err(Errno::EINTR) => {}
            read => return Ok(read?),
        }
    }
}

/// Waits until the program has closed its end, which says no more.
async fn closed(socket: &Socket, local: &UnixStream, octets: &mut [u8]) {
    loop {
        match local.try_io(Interest::READABLE, || read_now(local, octets)) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => drop(local.readable().await),
            Ok(1..) => {}
            Ok(0) | Err(_) => break,
        }
    }
    while !is_hung_up(local) {
        // Shut by the kernel's means: from there on it tells when octets are written, and `close` does.
        socket.changed.notified().await;
    }
}

fn is_hung_up(local: &UnixStream) -> bool {
    let mut polled = [PollFd::new(local.as_fd(), PollFlags::empty())];
    let hung_up = |flags: PollFlags| flags.intersects(PollFlags::POLLHUP | PollFlags::POLLERR | PollFlags::POLLNVAL);
    poll(&mut polled, PollTimeout::ZERO).is_ok() && polled[0].revents().is_some_and(hung_up)
}

/// From the flow to the program. It ends when both have said all.
async fn down(
    socket: &Socket,
    local: &UnixStream,
    flow: &Held,
    mut status: watch::Receiver<Status>,
) -> Result<(), End> {
    let mut is_wanted = true;
    loop {
        match flow.read().await {
            Ok(None) => break,
            Ok(Some(octets)) if is_wanted => is_wanted = write(local, &octets).await.is_ok(),
            Ok(Some(_)) => {}
            Err(error) => return Err(End::Failed(FlowError::of(&error).map_or(Errno::ECONNRESET, broken))),
        }
    }
    socket.is_at_end.store(true, Ordering::Release);
    let _ = shutdown(local.as_raw_fd(), Shutdown::Write);
    // It may still fail for what the program writes.
    let over = status.wait_for(|status| status.over.is_some()).await.ok().and_then(|status| status.over);
    match over {
        None | Some(FlowError::Ended(ended::FINISHED)) => Ok(()),
        Some(error) => Err(End::Failed(broken(error))),
    }
}

/// The number for a flow that was attached: a server that does not know it any more has lost it.
fn broken(error: FlowError) -> Errno {
    match error {
        FlowError::Refused(_) => Errno::ECONNRESET,
        error => meaning(error),
    }
}

async fn write(local: &UnixStream, mut octets: &[u8]) -> io::Result<()> {
    while !octets.is_empty() {
        match local.try_write(octets) {
            Ok(written) => octets = &octets[written..],
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => local.writable().await?,
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Waits until what was written is delivered, or the flow is over, or the time has passed.
pub async fn delivered(mut status: watch::Receiver<Status>, within: Duration) {
    let delivered = status.wait_for(|status| status.is_delivered || status.over.is_some());
    let _ = timeout(within, delivered).await;
}
