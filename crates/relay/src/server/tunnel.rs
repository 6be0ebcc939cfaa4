//! A flow that is a TCP connection's other half: [`carry`].

use super::egress::Egress;
use crate::codes;
use crate::copy::copy_both;
use crate::wire::{CONNECT, MADE, TCP};
use hoop_endpoint::{FlowError, FlowStream, Status, ended};
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt as _, ReadBuf};
use tokio::sync::watch;

/// How long a destination has to take the rest of what a device wrote who has gone: at most a window, and what the kernel holds.
const OUTLIVES_MAX: Duration = Duration::from_secs(3_600);

/// Where a service leads, and whether its device waits until the connection is made.
fn destination(service: &str) -> Option<(&str, bool)> {
    let awaited = service.strip_prefix(CONNECT).map(|destination| (destination, true));
    awaited.or_else(|| service.strip_prefix(TCP).map(|destination| (destination, false)))
}

/// Connects a flow to where its service says, and carries it to its end.
pub(crate) async fn carry(mut flow: FlowStream, egress: &Egress) {
    let name = flow.name();
    let mut status = flow.status();
    let (destination, is_awaited) = destination(flow.service()).unwrap_or_default();
    let connected = tokio::select! {
        // A connection may outlive its flow, where the destination takes nothing of what is left: it counts until it has ended.
        connected = egress.connect(destination, name.device) => connected,
        // Nobody waits for it any more.
        _ = status.wait_for(|status| status.over.is_some()) => return,
    };
    let code = match connected {
        Ok(mut connection) => {
            // A part of what a program wrote must not pass for all of it.
            connection.resets_by_drop();
            // What is said of a flow that is over reaches nobody.
            if is_awaited && flow.write_all(&[MADE]).await.is_err() {
                return;
            }
            let mut wanted = Wanted(&mut flow);
            let copied = tokio::select! {
                copied = copy_both(&mut wanted, &mut connection) => copied,
                // Where the connection takes nothing and gives nothing, nobody would look at the flow.
                () = is_given_up(&mut status) => {
                    connection.resets_by_drop();
                    return;
                }
            };
            match copied {
                Ok(_) => {
                    // Both ends have said all; the device may be away, and is waited for.
                    let _ = flow.finished().await;
                    return;
                }
                Err(error) => {
                    tracing::debug!(?name, %error, "a carried connection broke off");
                    codes::BROKEN
                }
            }
        }
        Err(code) if is_awaited => code,
        Err(code) => codes::in_general(code),
    };
    egress.ended(name.device, code);
    flow.reset(code);
}

/// A flow that takes no more than its device wants. The rest waits in the kernel, which holds its sender up.
struct Wanted<'a>(&'a mut FlowStream);

impl AsyncRead for Wanted<'_> {
    fn poll_read(mut self: Pin<&mut Self>, context: &mut Context<'_>, into: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut *self.0).poll_read(context, into)
    }
}

impl AsyncWrite for Wanted<'_> {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, from: &[u8]) -> Poll<io::Result<usize>> {
        let wanted = ready!(self.0.poll_wanted(context))?;
        let from = &from[..from.len().min(usize::try_from(wanted).unwrap_or(usize::MAX))];
        Pin::new(&mut *self.0).poll_write(context, from)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut *self.0).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut *self.0).poll_shutdown(context)
    }
}

/// Returns when a flow is over before both ends have said all, or has been over for as long as its connection may go on without it.
async fn is_given_up(status: &mut watch::Receiver<Status>) {
    let over = status.wait_for(|status| status.over.is_some()).await.ok().and_then(|status| status.over);
    if over == Some(FlowError::Ended(ended::FINISHED)) {
        tokio::time::sleep(OUTLIVES_MAX).await;
    }
}
