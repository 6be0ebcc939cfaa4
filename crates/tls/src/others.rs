//! Others' turn: [`Others`].

use parking_lot::Mutex;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use tokio::task::yield_now;

/// Is over once the runtime has run what else is ready. Who is pending may be asked again within the same run of its task, by a handshake that got something or a reader that goes on; so a waker of
/// its own says when that was.
#[derive(Debug)]
pub(crate) struct Others(Arc<Mutex<Turn>>);

#[derive(Debug)]
enum Turn {
    Theirs(Waker),
    Over,
}

struct Ends(Arc<Mutex<Turn>>);

impl Wake for Ends {
    fn wake(self: Arc<Self>) {
        if let Turn::Theirs(waker) = std::mem::replace(&mut *self.0.lock(), Turn::Over) {
            waker.wake();
        }
    }
}

impl Others {
    /// It is their turn, and the task is woken afterwards.
    pub(crate) fn have_their_turn(cx: &Context<'_>) -> Self {
        let turn = Arc::new(Mutex::new(Turn::Theirs(cx.waker().clone())));
        let ends = Waker::from(Arc::new(Ends(turn.clone())));
        // Only its waker matters: the runtime wakes it after all others.
        let _ = pin!(yield_now()).poll(&mut Context::from_waker(&ends));
        Self(turn)
    }

    /// Whether it is over.
    pub(crate) fn poll(&self, cx: &Context<'_>) -> Poll<()> {
        match &mut *self.0.lock() {
            Turn::Theirs(waker) => {
                waker.clone_from(cx.waker());
                Poll::Pending
            }
            Turn::Over => Poll::Ready(()),
        }
    }
}
