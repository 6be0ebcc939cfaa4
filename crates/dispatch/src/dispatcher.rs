//! The conductor: [`Dispatcher`].

use crate::destinations::{Destinations, host};
use crate::fair::Fair;
use crate::window::{Entry, List, SMALL_BYTES, Want, Window};
use crate::{BACKOFF, RETRY_AFTER_MAX};
use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::vec::Vec;
use core::time::Duration;
use hoop_units::{AddressKey, Bitrate, Timestamp, UnixTime, UploadId};

/// How many uploads are sent at once. Four: one that crawls (a far or busy service) does not hold the others up, and
/// four TCP connections already fill any home uplink; more only take each other's share and the household's.
pub const TRANSFERS: usize = 4;

/// So many more may be sent for devices that have nothing under way: so whoever fills all slots, slow as it may be, leaves some to
/// others. While none of these is taken, one may go to a host to which nothing is under way, whosever it is. Two, at half a megabyte
/// of memory each.
pub const EXTRA: usize = 2;

/// An attempt that was told to make way, and has not done so after so long, is broken off should a device wait that has nothing
/// under way: a service that reads slowly must not decide who else is served. What breaks off is a record and what lies in buffers,
/// so not at once; and ten seconds are no long wait for a photo.
pub const BREAK_OFF: Duration = Duration::from_secs(10);

/// An attempt that has been under way for so long is told to make way, should a device wait that has nothing under way, also if its own device has
/// no other. Five devices, each with one upload that its service hardly reads, would hold all slots otherwise.
pub const SLOT_TURN: Duration = Duration::from_secs(60);

/// One of which all is sent, and that waits for an answer alone, has a shorter turn: the uplink is idle for it, and a service answers once it has the bytes.
pub const ANSWER_TURN: Duration = Duration::from_secs(10);

/// An attempt at a destination that could not be reached before, and goes on for so long without failing, keeps no others from trying as well: longer than it takes to notice that nobody
/// answers. A film's end would be too late.
pub const DOUBT: Duration = Duration::from_secs(12);

/// How many services are asked at once what became of an upload. An answer may take half a minute (`Prefer: wait`) and no
/// bandwidth, so asking has slots of its own.
pub const ASKS: usize = 4;

/// So many of them may be one device's, and so many may ask the same host: half, so that a service that does not answer leaves others
/// theirs.
pub const ASKS_EACH: usize = ASKS / 2;

/// A question that takes longer than an answer may (40 s) and some seconds for what the service is, while a device waits that has
/// none under way and all slots are taken, is broken off.
const ASK_BREAK_OFF: Duration = Duration::from_secs(60);

/// A turn: what a device may be ahead of another before a running upload makes way for it, and what an upload is charged for as it
/// begins. As much as one message carries, since uploads make way between messages.
pub const TURN_BYTES: u64 = 16 << 20;

/// The store is looked through anew so often at most while something waits in memory.
const REFRESH: Duration = Duration::from_secs(1);

/// What to do next. `P` is the store's place in the order of a device.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Output<P> {
    /// Begin with this upload, and report with [`Dispatcher::handle_done`], [`Dispatcher::handle_failure`] or
    /// [`Dispatcher::handle_ended_early`].
    Start {
        /// Which.
        id: UploadId,
        /// Whether to send it, or to ask after it.
        list: List,
    },
    /// Others are to have their turn: end the attempt after the message under way.
    Yield {
        /// Which.
        id: UploadId,
    },
    /// The gate was shut, or it did not make way in time: end the attempt at once.
    Stop {
        /// Which.
        id: UploadId,
    },
    /// Say which devices have something due, in any order that stays, after this one, and answer with
    /// [`Dispatcher::handle_devices`].
    Devices {
        /// Of which list.
        list: List,
        /// None: from the first.
        after: Option<AddressKey>,
    },
    /// Say what this device has due, in the order of their places, after this one, and answer with
    /// [`Dispatcher::handle_entries`].
    Load {
        /// Of which list.
        list: List,
        /// Whose.
        device: AddressKey,
        /// None: from the first.
        after: Option<P>,
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

/// Whether anything may be sent.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Gate {
    /// All that is due.
    #[default]
    Open,
    /// Nothing: questions only.
    Shut,
    /// Only what would otherwise miss its deadline.
    Urgent {
        /// The time it is.
        now: UnixTime,
        /// When the gate opens.
        opens: UnixTime,
        /// How fast an upload goes then, as far as is known.
        rate: Bitrate,
    },
}

impl Gate {
    fn lets<P>(self, entry: &Entry<P>) -> bool {
        match self {
            Self::Open => true,
            Self::Shut => false,
            Self::Urgent { now, opens, rate } => entry.deadline.is_some_and(|deadline| {
                // Twice the time it should take: others are sent at the same time.
                let takes = u32::try_from(rate.time_for(entry.total).as_secs()).unwrap_or(u32::MAX).saturating_mul(2);
                now < deadline && deadline < opens.plus_secs(takes)
            }),
        }
    }
}

/// Decides which upload is sent next, when, and how often. Nothing here reads a clock, a file or a socket.
///
/// The contract: after every call that changes something, drain [`Dispatcher::poll_output`]; call it again at
/// [`Dispatcher::poll_timeout`], and when [`Dispatcher::handle_more`] was called because something new is due.
///
/// - **Fair between devices**, in bytes: the device goes next that has had the least of the uplink lately. A slot costs as
///   bytes do: a turn for a [`SLOT_TURN`] of it, and a turn at most for an attempt. Within a device, the earliest deadline
///   goes first, then the oldest. An upload that is being sent makes way between two messages, once
///   its device is a turn ([`TURN_BYTES`]) ahead of one that waits, or another of its own device has an earlier deadline.
/// - At most [`TRANSFERS`] are sent at once. One of these slots is kept for uploads below [`SMALL_BYTES`], so that a photo does not
///   wait behind four films; and [`EXTRA`] more are for devices that have nothing under way, and one of these, while both are free,
///   for a host that nothing goes to.
/// - A device that has nothing under way and finds no slot takes one of the device that has the most, or of one that is a turn ahead: between two
///   messages, or [`BREAK_OFF`] later wherever it stands.
/// - At most [`ASKS`] services are asked at once, [`ASKS_EACH`] for one device and [`ASKS_EACH`] of one host; the device goes next that has
///   the fewest questions under way, then the one that has asked least.
/// - Never two attempts of one upload at a time.
/// - A failed upload waits [`BACKOFF`], or longer if the service asks (`Retry-After`, at most [`RETRY_AFTER_MAX`]). The
///   store keeps that, and offers the upload again when it is due.
/// - A destination that is at fault is waited for as a whole, and tried by one upload first, for [`DOUBT`] at most.
/// - What is held is bounded ([`crate::WINDOW`] of each list): the store has the queue. Where more than [`crate::DEVICES`] devices
///   wait, they take turns in being held.
///
/// When an upload is given up for its age is the store's to say: it knows the wall time of each.
#[derive(Clone, Debug)]
pub struct Dispatcher<P> {
    transfers: usize,
    windows: [Window<P>; 3],
    running: BTreeMap<UploadId, Running>,
    destinations: Destinations,
    fair: Fair,
    /// Whose question is next, in questions.
    questions: Fair,
    gate: Gate,
    /// Something new may be due.
    more: bool,
    refreshed: Option<Timestamp>,
    /// When something is broken off, should it still be under way and in the way; or keeps others waiting no longer.
    look_again: Option<Timestamp>,
}

/// What an attempt was told.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Told {
    Go,
    /// To end after its message; since when.
    Yield(Timestamp),
    /// To end at once.
    Stop,
}

#[derive(Clone, Debug)]
struct Running {
    device: AddressKey,
    origin: String,
    list: List,
    total: u64,
    deadline: Option<UnixTime>,
    /// What its device was charged, and how much of that is not sent yet.
    charged: u64,
    prepaid: u64,
    sent: u64,
    /// Since when nothing more of it is to be sent.
    out: Option<Timestamp>,
    since: Timestamp,
    told: Told,
}

impl Running {
    fn is_film(&self) -> bool {
        self.list != List::Ask && self.total >= SMALL_BYTES
    }

    fn is_sent(&self) -> bool {
        self.list != List::Ask
    }

    /// When its turn is over.
    fn turn_ends(&self) -> Timestamp {
        self.out.map_or(self.since + SLOT_TURN, |out| out + ANSWER_TURN)
    }
}

impl<P: Copy + Ord> Default for Dispatcher<P> {
    fn default() -> Self {
        Self::new(TRANSFERS)
    }
}

impl<P: Copy + Ord> Dispatcher<P> {
    /// A dispatcher that sends so many uploads at once; one at least.
    pub fn new(transfers: usize) -> Self {
        Self {
            transfers: transfers.max(1),
            windows: [Window::new(), Window::new(), Window::new()],
            running: BTreeMap::new(),
            destinations: Destinations::default(),
            fair: Fair::default(),
            questions: Fair::default(),
            gate: Gate::Open,
            more: true,
            refreshed: None,
            look_again: None,
        }
    }

    /// Devices that have something due; see [`Output::Devices`]. `last`: there are no more after these.
    pub fn handle_devices(&mut self, list: List, devices: &[AddressKey], last: bool) {
        self.windows[list.index()].take_devices(devices, last || devices.is_empty());
    }

    /// What a device has due; see [`Output::Load`]. `last`: it has no more after these.
    pub fn handle_entries(
        &mut self,
        list: List,
        device: AddressKey,
        entries: Vec<Entry<P>>,
        last: bool,
        now: Timestamp,
    ) {
        let (running, destinations) = (&self.running, &self.destinations);
        let may_wait = |entry: &Entry<P>| !running.contains_key(&entry.id) && !destinations.waits(&entry.origin, now);
        self.windows[list.index()].take(device, entries, last, may_wait);
    }

    /// The store could not be read: the list counts as empty until the next [`Dispatcher::handle_more`].
    pub fn handle_unreadable(&mut self, list: List) {
        self.windows[list.index()] = Window::new();
    }

    /// Something new may be due: an upload was stored, or a wait in the store is over.
    pub const fn handle_more(&mut self) {
        self.more = true;
    }

    /// The network came back: no destination is waited for any longer.
    pub fn handle_network_back(&mut self) {
        self.destinations.forget_all();
        self.handle_more();
    }

    /// From now on this may be sent. What is under way and may not, is stopped.
    pub const fn set_gate(&mut self, gate: Gate) {
        self.gate = gate;
    }

    /// An upload is gone: its owner stopped it, or its time is over. An attempt that is under way still has to be reported.
    pub fn withdraw(&mut self, id: UploadId) {
        self.windows.iter_mut().for_each(|window| window.retain(|entry| entry.id != id));
    }

    /// So many bytes more of an upload were sent: its device's share.
    pub fn handle_sent(&mut self, id: UploadId, bytes: u64) {
        let Some(running) = self.running.get_mut(&id) else { return };
        running.sent = running.sent.saturating_add(bytes);
        let paid = running.prepaid.min(bytes);
        running.prepaid -= paid;
        running.charged = running.charged.saturating_add(bytes - paid);
        let device = running.device;
        if bytes > paid {
            self.fair.charge(device, bytes - paid);
        }
        self.advance();
    }

    /// An attempt ended, and the destination answered as it should: whatever is to be done next is in the store.
    pub fn handle_done(&mut self, id: UploadId, now: Timestamp) {
        if let Some(ended) = self.end(id, now) {
            self.destinations.reached(&ended.origin);
        }
    }

    /// An attempt ended because it was told to, by [`Output::Yield`] or [`Output::Stop`]. It is still due.
    pub fn handle_ended_early(&mut self, id: UploadId, now: Timestamp) {
        self.end(id, now);
    }

    /// An attempt failed. Returns how long the upload waits; `jitter` is a random number, uniform in `u32`.
    pub fn handle_failure(&mut self, id: UploadId, failure: Failure, jitter: u32, now: Timestamp) -> Duration {
        let least = failure.retry_after.unwrap_or_default().min(RETRY_AFTER_MAX);
        if let Some(ended) = self.end(id, now) {
            if failure.destination {
                self.destinations.failed(&ended.origin, least, jitter, now);
                // They would only be in the way of uploads for others.
                self.windows.iter_mut().for_each(|window| window.retain(|entry| entry.origin != ended.origin));
            } else {
                self.destinations.reached(&ended.origin);
            }
        }
        BACKOFF.delay(failure.attempts, jitter).max(least)
    }

    /// What to do next, if anything.
    pub fn poll_output(&mut self, now: Timestamp) -> Option<Output<P>> {
        if self.destinations.wake(now) {
            self.handle_more();
        }
        if self.is_refresh_due(now) {
            self.windows.iter_mut().for_each(Window::refresh);
            (self.more, self.refreshed) = (false, Some(now));
        }
        for list in List::ALL {
            match self.windows[list.index()].wants() {
                Some(Want::Devices { after }) => return Some(Output::Devices { list, after }),
                Some(Want::Entries { device, after }) => return Some(Output::Load { list, device, after }),
                None => {}
            }
        }
        for running in self.running.values_mut() {
            if running.is_sent() && running.sent >= running.total {
                running.out.get_or_insert(now);
            }
            if now >= running.since + DOUBT {
                self.destinations.goes_on(&running.origin, running.since);
            }
        }
        // When others may try a destination as well.
        let tries = self.running.values().filter(|running| self.destinations.is_doubtful(&running.origin));
        self.look_again = tries.map(|running| running.since + DOUBT).filter(|over| now < *over).min();
        self.stop()
            .or_else(|| self.start_asking(now))
            .or_else(|| self.break_off_asking(now))
            .or_else(|| self.start_sending(now))
            .or_else(|| self.break_off_sending(now))
            .or_else(|| self.make_way(now))
    }

    /// When to call [`Dispatcher::poll_output`] again although nothing happened.
    pub fn poll_timeout(&self) -> Option<Timestamp> {
        let unfinished = self.more || self.windows.iter().any(Window::is_unfinished);
        let refresh = self.refreshed.filter(|_| unfinished).map(|at| at + REFRESH);
        refresh.into_iter().chain(self.destinations.next()).chain(self.look_again).min()
    }

    /// How many attempts are under way.
    pub fn running(&self) -> usize {
        self.running.len()
    }

    /// How many uploads are held that have not begun: at most [`crate::WINDOW`] of each list.
    pub fn waiting(&self) -> usize {
        self.windows.iter().map(Window::len).sum()
    }

    /// The deadlines of what is sent now or held in memory to be sent, with the bytes left of each; in no order. Some stand twice
    /// in memory, and once here.
    pub fn deadlines(&self) -> impl Iterator<Item = (UnixTime, u64)> {
        let running = self.running.values().filter(|running| running.is_sent());
        let running = running.filter_map(|r| r.deadline.map(|deadline| (deadline, r.total.saturating_sub(r.sent))));
        let held = self.windows[List::Send.index()].iter().flat_map(|(_, entries)| entries);
        running.chain(held.filter_map(|entry| entry.deadline.map(|deadline| (deadline, entry.total))))
    }

    /// Whether anything is sent, or held in memory to be sent.
    pub fn has_to_send(&self) -> bool {
        self.running.values().any(Running::is_sent) || !self.windows[List::Send.index()].is_empty()
    }

    fn is_refresh_due(&self, now: Timestamp) -> bool {
        let rested = self.refreshed.is_none_or(|at| now >= at + REFRESH);
        let idle = || self.windows.iter().all(Window::is_empty);
        match self.more {
            true => rested || idle(),
            false => rested && self.windows.iter().any(Window::is_unfinished),
        }
    }

    /// Takes an attempt off the list of those that run.
    fn end(&mut self, id: UploadId, now: Timestamp) -> Option<Running> {
        // What became due while it ran was passed over as known.
        self.handle_more();
        let ended = self.running.remove(&id)?;
        if ended.is_sent() {
            self.fair.refund(ended.device, ended.prepaid);
            // Who holds a slot with a few bytes is behind nobody for that.
            let (held, turn) = (now.since(ended.since).min(SLOT_TURN).as_millis() as u64, SLOT_TURN.as_millis() as u64);
            let paid = ended.charged - ended.prepaid;
            self.fair.charge(ended.device, (TURN_BYTES / turn * held).saturating_sub(paid));
        }
        Some(ended)
    }

    fn stop(&mut self) -> Option<Output<P>> {
        let gate = self.gate;
        let (id, running) = self.running.iter_mut().find(|(_, running)| {
            let left = running.total.saturating_sub(running.sent);
            let rest = Entry {
                id: UploadId([0; 16]),
                origin: String::new(),
                total: left,
                deadline: running.deadline,
                place: (),
            };
            running.is_sent() && running.told != Told::Stop && !gate.lets(&rest)
        })?;
        running.told = Told::Stop;
        Some(Output::Stop { id: *id })
    }

    fn asks(&self) -> impl Iterator<Item = (&UploadId, &Running)> {
        self.running.iter().filter(|(_, running)| !running.is_sent())
    }

    fn sends(&self) -> impl Iterator<Item = (&UploadId, &Running)> {
        self.running.iter().filter(|(_, running)| running.is_sent())
    }

    /// The question that each device would ask next, with how many of its own are under way.
    fn next_questions(&self, now: Timestamp) -> impl Iterator<Item = (usize, AddressKey, &Entry<P>)> {
        self.windows[List::Ask.index()].iter().filter_map(move |(device, mut entries)| {
            let own = self.asks().filter(|(_, running)| running.device == device).count();
            let to = |entry: &Entry<P>| {
                self.asks().filter(|(_, running)| host(&running.origin) == host(&entry.origin)).count()
            };
            let entry = entries.find(|entry| self.may_go(&entry.origin, now) && to(entry) < ASKS_EACH);
            entry.filter(|_| own < ASKS_EACH).map(|entry| (own, device, entry))
        })
    }

    fn start_asking(&mut self, now: Timestamp) -> Option<Output<P>> {
        if self.asks().count() >= ASKS {
            return None;
        }
        let order = |(own, device, entry): (usize, AddressKey, &Entry<P>)| {
            (own, self.questions.tag(device), entry.place, device, entry.id)
        };
        let (.., device, id) = self.next_questions(now).map(order).min()?;
        self.questions.charge(device, 1);
        let window = &self.windows[List::Ask.index()];
        if !window.is_crowded() {
            let lowest = window.devices().map(|device| self.questions.tag(device)).min();
            self.questions.advance(lowest.unwrap_or_default());
        }
        self.start(device, id, List::Ask, now)
    }

    /// Breaks off the question that has taken longest, should a device wait that has none under way.
    fn break_off_asking(&mut self, now: Timestamp) -> Option<Output<P>> {
        let is_full = self.asks().count() >= ASKS && !self.asks().any(|(_, running)| running.told == Told::Stop);
        if !is_full || !self.next_questions(now).any(|(own, ..)| own == 0) {
            return None;
        }
        let (since, id) = self.asks().map(|(id, running)| (running.since, *id)).min()?;
        self.break_off(id, since + ASK_BREAK_OFF, now)
    }

    fn start_sending(&mut self, now: Timestamp) -> Option<Output<P>> {
        let extra = self.extra();
        let (device, entry, list) = self
            .next(now, |device, entry| self.has_slot(entry) || (extra < EXTRA && self.slots(device) == 0))
            .or_else(|| self.next(now, |_, entry| extra == 0 && !self.is_sent_to(&entry.origin)))?;
        let id = entry.id;
        self.start(device, id, list, now)
    }

    /// Sees to it that a slot becomes free should a device wait that has none: one of the device's that holds the most, or of one that
    /// was to make way as it is, or else the one whose turn ends first ([`SLOT_TURN`], [`ANSWER_TURN`]). First it is asked to make way, then it is broken off.
    fn break_off_sending(&mut self, now: Timestamp) -> Option<Output<P>> {
        if self.sends().any(|(_, running)| running.told == Told::Stop) {
            return None;
        }
        self.next(now, |device, _| self.slots(device) == 0)?;
        // With films in all extra slots, only a film's end frees one.
        let frees = |running: &Running| running.is_film() || self.extra_films() < EXTRA;
        let order = |(id, running): (&UploadId, &Running)| {
            let (slots, is_told) = (self.slots(running.device), running.told != Told::Go);
            let may_end = frees(running) && (slots > 1 || is_told);
            may_end.then(|| ((slots > 1, is_told, slots, self.fair.tag(running.device), running.deadline), *id))
        };
        let first =
            self.sends().filter(|(_, running)| frees(running)).map(|(id, running)| (running.turn_ends(), *id)).min();
        let id = match (self.sends().filter_map(order).max(), first) {
            (Some((_, id)), _) => id,
            (None, Some((end, id))) if self.is_time(end, now) => id,
            (None, _) => return None,
        };
        let running = self.running.get_mut(&id)?;
        let end = match running.told {
            // It has no message to end.
            _ if running.out.is_some() => running.turn_ends(),
            Told::Yield(since) => since + BREAK_OFF,
            _ => {
                running.told = Told::Yield(now);
                return Some(Output::Yield { id });
            }
        };
        let stop = self.break_off(id, end, now)?;
        // The slot was not used, and cost the others a turn. Without a charge its device would be the next again.
        let running = self.running.get_mut(&id)?;
        let prepaid = core::mem::take(&mut running.prepaid);
        let charge = TURN_BYTES.saturating_sub(prepaid);
        running.charged = running.charged.saturating_add(charge);
        self.fair.charge(running.device, charge);
        Some(stop)
    }

    /// Breaks an attempt off at a time.
    fn break_off(&mut self, id: UploadId, at: Timestamp, now: Timestamp) -> Option<Output<P>> {
        if !self.is_time(at, now) {
            return None;
        }
        self.running.get_mut(&id)?.told = Told::Stop;
        Some(Output::Stop { id })
    }

    /// Whether a time has come at which an attempt has to go; looked at again then.
    fn is_time(&mut self, at: Timestamp, now: Timestamp) -> bool {
        if now < at {
            self.look_again = self.look_again.into_iter().chain([at]).min();
        }
        now >= at
    }

    /// The first in order of what could be sent and is `fit`.
    fn next(
        &self,
        now: Timestamp,
        fit: impl Fn(AddressKey, &Entry<P>) -> bool,
    ) -> Option<(AddressKey, &Entry<P>, List)> {
        let heads = [List::Send, List::Small].into_iter().flat_map(|list| {
            let fit = &fit;
            self.windows[list.index()].iter().filter_map(move |(device, mut entries)| {
                let may_go =
                    |entry: &&Entry<P>| self.gate.lets(entry) && self.may_go(&entry.origin, now) && fit(device, entry);
                entries.find(may_go).map(|entry| (device, entry, list))
            })
        });
        heads.min_by_key(|(device, entry, list)| (self.fair.tag(*device), entry.place, *device, *list))
    }

    fn start(&mut self, device: AddressKey, id: UploadId, list: List, now: Timestamp) -> Option<Output<P>> {
        let entries = self.windows[list.index()].iter().flat_map(|(_, entries)| entries);
        let entry = entries.into_iter().find(|entry| entry.id == id)?.clone();
        let prepaid = if list == List::Ask { 0 } else { entry.total.min(TURN_BYTES) };
        self.windows.iter_mut().for_each(|window| window.begin(device, id));
        self.fair.charge(device, prepaid);
        let Entry { origin, total, deadline, .. } = entry;
        let (charged, out, told) = (prepaid, None, Told::Go);
        let running =
            Running { device, origin, list, total, deadline, charged, prepaid, sent: 0, out, since: now, told };
        self.running.insert(id, running);
        Some(Output::Start { id, list })
    }

    /// How many slots for films there are, besides the extra ones. With one slot alone there is none to spare.
    const fn film_slots(&self) -> usize {
        if self.transfers > 1 { self.transfers - 1 } else { 1 }
    }

    fn films(&self) -> usize {
        self.sends().filter(|(_, running)| running.is_film()).count()
    }

    fn extra_films(&self) -> usize {
        self.films().saturating_sub(self.film_slots())
    }

    /// How many extra slots are taken.
    fn extra(&self) -> usize {
        self.extra_films().max(self.sends().count().saturating_sub(self.transfers))
    }

    /// How many uploads of a device are being sent.
    fn slots(&self, device: AddressKey) -> usize {
        self.sends().filter(|(_, running)| running.device == device).count()
    }

    /// Whether anything is being sent to this origin's host.
    fn is_sent_to(&self, origin: &str) -> bool {
        self.sends().any(|(_, running)| host(&running.origin) == host(origin))
    }

    /// Whether there is a slot for an upload, besides the extra ones.
    fn has_slot(&self, entry: &Entry<P>) -> bool {
        // Films in extra slots do not take those of the small.
        let is_free = self.sends().count() - self.extra_films() < self.transfers;
        is_free && (entry.total < SMALL_BYTES || self.films() < self.film_slots())
    }

    fn may_go(&self, origin: &str, now: Timestamp) -> bool {
        let tries = |running: &Running| running.origin == origin && now < running.since + DOUBT;
        let alone = || !self.running.values().any(tries);
        !self.destinations.waits(origin, now) && (!self.destinations.is_doubtful(origin) || alone())
    }

    /// Ends the attempt of the device that is furthest ahead, should somebody wait who is behind by a turn. One at a time.
    fn make_way(&mut self, now: Timestamp) -> Option<Output<P>> {
        if self.sends().any(|(_, running)| running.told != Told::Go) {
            return None;
        }
        let (device, entry, _) = self.next(now, |_, _| true)?;
        let (tag, deadline, is_small) = (self.fair.tag(device), entry.deadline, entry.total < SMALL_BYTES);
        let ahead = |running: &Running| {
            let fits = running.is_film() || (is_small && running.is_sent());
            match running.device == device {
                true => fits && deadline.is_some_and(|deadline| running.deadline.is_none_or(|other| deadline < other)),
                false => fits && self.fair.tag(running.device) > tag.saturating_add(TURN_BYTES),
            }
        };
        let (_, id) = self
            .running
            .iter()
            .filter(|(_, running)| ahead(running))
            .map(|(id, running)| ((running.device != device, self.fair.tag(running.device), running.deadline), *id))
            .max()?;
        self.running.get_mut(&id)?.told = Told::Yield(now);
        Some(Output::Yield { id })
    }

    /// Virtual time follows the least served of those who send or want to.
    fn advance(&mut self) {
        if self.windows.iter().any(Window::is_crowded) {
            // Nobody knows how the others stand.
            return;
        }
        let prepaid = |device| {
            let running = self.running.values().filter(move |running| running.device == device && running.is_sent());
            running.map(|running| running.prepaid).sum::<u64>()
        };
        let sending = self.running.values().filter(|running| running.is_sent()).map(|running| running.device);
        let waiting = [List::Send, List::Small].into_iter().flat_map(|list| self.windows[list.index()].devices());
        let lowest = sending.chain(waiting).map(|device| self.fair.tag(device).saturating_sub(prepaid(device))).min();
        if let Some(lowest) = lowest {
            self.fair.advance(lowest);
        }
    }
}
