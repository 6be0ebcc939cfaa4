//! What the task of a connection and its lanes share: [`Shared`].

use super::frames::Violation;
use super::lanes::{Key, Lanes, Message, Wakers};
use bytes::Bytes;
use parking_lot::{Mutex, MutexGuard};
use std::io;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use tokio::sync::{Notify, watch};

/// What there is to write.
pub(super) enum Outgoing {
    Message(Message),
    Pong(Bytes),
    Ping,
}

pub(super) fn closed() -> io::Error {
    io::Error::new(io::ErrorKind::ConnectionAborted, "closed")
}

/// What the application has of a connection; it ends once nothing of it is left.
#[derive(Debug)]
pub(super) struct Handle(pub(super) Arc<Shared>);

impl Drop for Handle {
    fn drop(&mut self) {
        self.0.end(closed());
    }
}

/// What a connection's task and its lanes share.
#[derive(Debug)]
pub(super) struct Shared {
    state: Mutex<State>,
    /// There may be something to write.
    work: Notify,
    /// There may be a lane to accept.
    pub(super) offered: Notify,
    /// There may be room for another lane.
    pub(super) room: Notify,
    /// At a server: whose it is has been shown.
    pub(super) is_known: AtomicBool,
    gone: watch::Sender<Option<Gone>>,
}

#[derive(Debug)]
struct State {
    lanes: Lanes,
    /// The answer to the latest ping.
    pong: Option<Bytes>,
    /// A ping is to be sent.
    probes: bool,
}

/// Why the carrier is gone.
#[derive(Clone, Debug)]
struct Gone(io::ErrorKind, Arc<str>);

impl Gone {
    fn error(&self) -> io::Error {
        io::Error::new(self.0, &*self.1)
    }
}

impl Shared {
    pub(super) fn new(is_device: bool) -> Arc<Self> {
        Arc::new(Self {
            state: Mutex::new(State { lanes: Lanes::new(is_device), pong: None, probes: false }),
            work: Notify::new(),
            offered: Notify::new(),
            room: Notify::new(),
            is_known: AtomicBool::new(false),
            gone: watch::Sender::new(None),
        })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }

    /// Changes lanes, and wakes whoever may now go on.
    pub(super) fn change<T>(&self, change: impl FnOnce(&mut Lanes) -> T) -> T {
        let mut state = self.state();
        let changed = change(&mut state.lanes);
        if state.lanes.has_messages() {
            self.work.notify_one();
        }
        if state.lanes.has_offered() {
            self.offered.notify_one();
        }
        if state.lanes.may_open() {
            self.room.notify_one();
        }
        changed
    }

    pub(super) fn check(&self) -> io::Result<()> {
        match &*self.gone.borrow() {
            Some(gone) => Err(gone.error()),
            None => Ok(()),
        }
    }

    /// Ends the carrier, unless it is gone already.
    pub(super) fn end(&self, error: io::Error) {
        let is_first = self.gone.send_if_modified(|gone| {
            let is_first = gone.is_none();
            gone.get_or_insert_with(|| Gone(error.kind(), error.to_string().into()));
            is_first
        });
        if is_first {
            self.state().lanes.wake_all();
        }
    }

    pub(super) async fn until_gone(&self) -> io::Error {
        let mut gone = self.gone.subscribe();
        let gone = gone.wait_for(Option::is_some).await;
        match gone.as_deref() {
            Ok(Some(gone)) => gone.error(),
            Ok(None) | Err(_) => closed(),
        }
    }

    pub(super) async fn next_lane(
        &self,
        next: impl Fn(&mut Lanes) -> Option<(Key, Wakers)>,
        woken: &Notify,
    ) -> io::Result<(Key, Wakers)> {
        loop {
            self.check()?;
            if let Some(lane) = self.change(&next) {
                return Ok(lane);
            }
            tokio::select! {
                () = woken.notified() => {}
                error = self.until_gone() => return Err(error),
            }
        }
    }

    // What the connection's task does.

    pub(super) fn due(&self) -> Option<Outgoing> {
        {
            let mut state = self.state();
            if let Some(bytes) = state.pong.take() {
                return Some(Outgoing::Pong(bytes));
            }
            if std::mem::take(&mut state.probes) {
                return Some(Outgoing::Ping);
            }
        }
        self.change(Lanes::next_message).map(Outgoing::Message)
    }

    pub(super) async fn until_due(&self) {
        loop {
            {
                let state = self.state();
                if state.pong.is_some() || state.probes || state.lanes.has_messages() {
                    return;
                }
            }
            self.work.notified().await;
        }
    }

    pub(super) fn answer(&self, ping: Bytes) {
        self.state().pong = Some(ping);
        self.work.notify_one();
    }

    pub(super) fn probe(&self) {
        self.state().probes = true;
        self.work.notify_one();
    }

    pub(super) fn hear(&self, first: bool, last: bool, bytes: Bytes) -> Result<Option<Key>, Violation> {
        self.change(|lanes| lanes.hear(first, last, bytes))
    }

    pub(super) async fn until_taken(&self, full: Key) {
        loop {
            let taken = {
                let state = self.state();
                if !state.lanes.is_full(full) {
                    return;
                }
                state.lanes.taken()
            };
            taken.notified().await;
        }
    }

    pub(super) fn break_off(&self, last: Key) {
        self.change(|lanes| lanes.break_off(last));
    }
}
