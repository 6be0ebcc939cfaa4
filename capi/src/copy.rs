//! Between the library's end of a pair and a flow: [`connect`], then [`copy`].

use crate::errors::flow_number;
use crate::held::{COPY_BYTES, Held};
use crate::library::Library;
use crate::socket::Socket;
use hoop_endpoint::{FlowError, FlowStream, Status, ended};
use hoop_relay::codes;
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::socket::{MsgFlags, Shutdown, recv, shutdown};
use std::io;
use std::os::fd::{AsFd as _, AsRawFd as _};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use tokio::io::Interest;
use tokio::net::UnixStream;
use tokio::sync::watch;
use tokio::time::timeout;

/// Why a pair is not copied any more.
enum End {
    /// The program has closed it.
    Closed,
    /// The flow has failed.
    Failed(Errno),
}

/// Waits until the flow is attached, `within` so long, and copies. The pair is `filled` with bytes that are nobody's.
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
        attached.map_or(Some(Errno::ENETDOWN), |status| status.over.map(flow_number))
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
        // The bytes that fill the pair are what makes the kernel tell.
        return socket.fail(error);
    }
    let held = Held::new(flow);
    // Before it becomes writable: who waits for that looks at once.
    socket.attached(&held);
    if drain(&local, filled).await.is_err() {
        return library.forget(&socket);
    }
    copy(library, socket, local, held).await;
}

async fn drain(local: &UnixStream, mut filled: usize) -> io::Result<()> {
    let mut bytes = vec![0; COPY_BYTES];
    while filled > 0 {
        local.readable().await?;
        let most = filled.min(bytes.len());
        match local.try_read(&mut bytes[..most]) {
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(read) => filled -= read,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Copies both ways until the program has closed its end and what it wrote is delivered, or the flow fails.
pub async fn copy(library: &'static Library, socket: Arc<Socket>, local: UnixStream, flow: Held) {
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
    let mut bytes = vec![0; COPY_BYTES];
    loop {
        // Asked before reading: what was written before the program shut its end is found then.
        let is_shut = socket.is_shut.load(Ordering::Acquire);
        let read = match is_shut {
            // The runtime may not know yet that there is something.
            true => read_now(local, &mut bytes),
            false => local.try_io(Interest::READABLE, || read_now(local, &mut bytes)),
        };
        match read {
            Ok(0) => break,
            Ok(read) if flow.write(&bytes[..read]).await.is_ok() => {}
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
    closed(socket, local, &mut bytes).await;
    Err(End::Closed)
}

fn read_now(local: &UnixStream, bytes: &mut [u8]) -> io::Result<usize> {
    loop {
        match recv(local.as_raw_fd(), bytes, MsgFlags::MSG_DONTWAIT) {
            Err(Errno::EINTR) => {}
            read => return Ok(read?),
        }
    }
}

/// Waits until the program has closed its end, which says no more.
async fn closed(socket: &Socket, local: &UnixStream, bytes: &mut [u8]) {
    loop {
        match local.try_io(Interest::READABLE, || read_now(local, bytes)) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => drop(local.readable().await),
            Ok(1..) => {}
            Ok(0) | Err(_) => break,
        }
    }
    while !is_hung_up(local) {
        // Shut by the kernel's means: from there on it tells when bytes are written, and `close` does.
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
            Ok(Some(bytes)) if is_wanted => is_wanted = write(local, &bytes).await.is_ok(),
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
        error => flow_number(error),
    }
}

async fn write(local: &UnixStream, mut bytes: &[u8]) -> io::Result<()> {
    while !bytes.is_empty() {
        match local.try_write(bytes) {
            Ok(written) => bytes = &bytes[written..],
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
