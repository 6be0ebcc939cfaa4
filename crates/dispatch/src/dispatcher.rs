//! The conductor: [`Dispatcher`].

use crate::destinations::Destinations;
use crate::window::{Entry, List, Offered, SMALL_BYTES, Window};
use crate::{BACKOFF, RETRY_AFTER_MAX};
use alloc::collections::BTreeMap;
use alloc::string::String;
use core::time::Duration;
use hoop_units::{Timestamp, UploadId};

/// How many uploads are sent at once. Four: one that crawls (a far or busy service) does not hold the others up, and
/// four TCP connections already fill any home uplink; more only take each other's share and the household's.
pub const TRANSFERS: usize = 4;

/// How many services are asked at once what became of an upload. An answer may take half a minute (`Prefer: wait`) and no
/// bandwidth, so asking has slots of its own.
const ASKS: usize = 4;

/// What to do next.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Output {
    /// Begin with this upload, and report with [`Dispatcher::handle_done`] or [`Dispatcher::handle_failure`].
    Start {
        /// Which.
        id: UploadId,
        /// Whether to send it, or to ask after it.
        list: List,
    },
    /// Offer what is due, a page of it, oldest first: from the start of the list if `restart`, else from where the last
    /// page ended. Call [`Dispatcher::handle_all_seen`] when there is no more.
    Load {
        /// Of which list.
        list: List,
        /// Whether from its start.
        restart: bool,
    },
}

/// How an attempt failed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Failure {
    /// Failed attempts before this one.
    pub attempts: u32,
    /// The service's `Retry-After`.
    pub retry_after: Option<Duration>,
    /// Whether the whole destination is at fault, rather than this upload: it cannot be reached, or is busy.
    pub destination: bool,
}

/// Decides which upload is sent next, when, and how often. Nothing here reads a clock, a file or a socket.
///
/// The contract: after every call that changes something, drain [`Dispatcher::poll_output`]; call it again at
/// [`Dispatcher::poll_timeout`], and when [`Dispatcher::handle_more`] was called because something new is due.
///
/// - At most [`TRANSFERS`] are sent at once, oldest first. One of these slots is kept for uploads below [`SMALL_BYTES`],
///   so that a photo does not wait behind four films.
/// - Never two attempts of one upload at a time.
/// - A failed upload waits [`BACKOFF`], or longer if the service asks (`Retry-After`, at most [`RETRY_AFTER_MAX`]). The
///   store keeps that, and offers the upload again when it is due.
/// - A destination that is at fault is waited for as a whole, and tried by one upload first.
///
/// When an upload is given up for its age is the store's to say: it knows the wall time of each.
#[derive(Clone, Debug)]
pub struct Dispatcher {
    transfers: usize,
    windows: [Window; 3],
    running: BTreeMap<UploadId, Running>,
    destinations: Destinations,
}

#[derive(Clone, Debug)]
struct Running {
    origin: String,
    list: List,
    small: bool,
}

impl Default for Dispatcher {
    fn default() -> Self {
        Self::new(TRANSFERS)
    }
}

impl Dispatcher {
    /// A dispatcher that sends so many uploads at once; one at least.
    pub fn new(transfers: usize) -> Self {
        Self {
            transfers: transfers.max(1),
            windows: [Window::new(), Window::new(), Window::new()],
            running: BTreeMap::new(),
            destinations: Destinations::default(),
        }
    }

    /// Offers an upload that is due; see [`Output::Load`].
    pub fn offer(&mut self, list: List, entry: Entry, now: Timestamp) -> Offered {
        if self.running.contains_key(&entry.id) || self.windows.iter().any(|window| window.contains(entry.id)) {
            return Offered::Known;
        }
        if self.destinations.waits(&entry.origin, now) {
            return Offered::Waits;
        }
        let window = &mut self.windows[list.index()];
        if window.is_full() {
            return Offered::Full;
        }
        window.insert(entry);
        Offered::Taken
    }

    /// The store has no more of this list than was offered since its start.
    pub fn handle_all_seen(&mut self, list: List) {
        self.windows[list.index()].all_seen();
    }

    /// Something new may be due: an upload was stored, or a wait in the store is over.
    pub fn handle_more(&mut self) {
        self.windows.iter_mut().for_each(Window::more);
    }

    /// The network came back: no destination is waited for any longer.
    pub fn handle_network_back(&mut self) {
        self.destinations.forget_all();
        self.handle_more();
    }

    /// An upload is gone: its owner stopped it, or its time is over. An attempt that is under way still has to be reported.
    pub fn withdraw(&mut self, id: UploadId) {
        self.windows.iter_mut().for_each(|window| window.remove(id));
    }

    /// An attempt ended, and the destination answered as it should: whatever is to be done next is in the store.
    pub fn handle_done(&mut self, id: UploadId) {
        if let Some(ended) = self.running.remove(&id) {
            self.destinations.reached(&ended.origin);
        }
        // What became due while it ran was passed over as known.
        self.handle_more();
    }

    /// An attempt failed. Returns how long the upload waits; `roll` is the dice's, uniform in `u32`.
    pub fn handle_failure(&mut self, id: UploadId, failure: Failure, roll: u32, now: Timestamp) -> Duration {
        let least = failure.retry_after.unwrap_or_default().min(RETRY_AFTER_MAX);
        if let Some(ended) = self.running.remove(&id) {
            if failure.destination {
                self.destinations.failed(&ended.origin, least, roll, now);
                // They would only be in the way of uploads for others.
                self.windows.iter_mut().for_each(|window| window.retain(|entry| entry.origin != ended.origin));
            } else {
                self.destinations.reached(&ended.origin);
            }
        }
        BACKOFF.delay(failure.attempts, roll).max(least)
    }

    /// What to do next, if anything.
    pub fn poll_output(&mut self, now: Timestamp) -> Option<Output> {
        if self.destinations.wake(now) {
            self.handle_more();
        }
        for list in List::ALL {
            if let Some(restart) = self.windows[list.index()].wants() {
                return Some(Output::Load { list, restart });
            }
        }
        self.start(List::Ask, now).or_else(|| self.start_sending(now))
    }

    /// When to call [`Dispatcher::poll_output`] again although nothing happened.
    pub fn poll_timeout(&self) -> Option<Timestamp> {
        self.destinations.next()
    }

    /// How many attempts are under way.
    pub fn running(&self) -> usize {
        self.running.len()
    }

    /// How many uploads are held that have not begun: at most [`crate::WINDOW`] of each list.
    pub fn waiting(&self) -> usize {
        self.windows.iter().map(Window::len).sum()
    }

    /// The older of the two lists' heads.
    fn start_sending(&mut self, now: Timestamp) -> Option<Output> {
        let head = |list| self.startable(list, now).map(|entry| (entry.since, entry.id, list));
        let (_, _, list) = head(List::Send).into_iter().chain(head(List::Small)).min()?;
        self.start(list, now)
    }

    fn start(&mut self, list: List, now: Timestamp) -> Option<Output> {
        let entry = self.startable(list, now)?.clone();
        self.windows[list.index()].remove(entry.id);
        let running = Running { origin: entry.origin, list, small: entry.total < SMALL_BYTES };
        self.running.insert(entry.id, running);
        Some(Output::Start { id: entry.id, list })
    }

    /// The oldest entry of a list that has a slot and a destination. Looks at [`crate::WINDOW`] entries at most.
    fn startable(&self, list: List, now: Timestamp) -> Option<&Entry> {
        let asking = self.running.values().filter(|running| running.list == List::Ask).count();
        let sending = self.running.len() - asking;
        let films = self.running.values().filter(|running| running.list != List::Ask && !running.small).count();
        // With one slot alone there is none to spare.
        let film_slots = if self.transfers > 1 { self.transfers - 1 } else { 1 };
        self.windows[list.index()].iter().find(|entry| {
            let slot = match list {
                List::Ask => asking < ASKS,
                List::Send | List::Small if entry.total < SMALL_BYTES => sending < self.transfers,
                List::Send | List::Small => sending < self.transfers && films < film_slots,
            };
            slot && self.may_go(&entry.origin, now)
        })
    }

    fn may_go(&self, origin: &str, now: Timestamp) -> bool {
        let alone = || !self.running.values().any(|running| running.origin == origin);
        !self.destinations.waits(origin, now) && (!self.destinations.is_doubtful(origin) || alone())
    }
}
