//! The scheduler of deliveries ([`run`]): feeds the dispatcher from the spool, starts the attempts it asks for, and records how they ended.

use super::state::Delivery;
use super::transfer::{Ended, attempt, put_off};
use crate::core::blocking::blocking;
use crate::core::state::Core;
use hoop_dispatch::{Dispatcher, Entry, Failure, List, Output};
use hoop_http::{Code, Lines, Rng, Shutdown};
use hoop_spool::{DueOf, Place, Queue, Reason, SMALL_BYTES, StoreError};
use hoop_units::{AddressKey, UnixTime, UploadId};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::task::{Id, JoinError, JoinSet};
use tokio::time::Instant;

const _: () = assert!(SMALL_BYTES == hoop_dispatch::SMALL_BYTES, "spool and dispatcher agree on what is small");

/// So many uploads, or devices, are read from the spool at a time: a page of its index.
const PAGE: usize = 64;

/// The bytes that were sent are counted so often: an upload makes way a second too late at worst.
const COUNT: Duration = Duration::from_secs(1);

/// The scheduler rests so long between two searches of the spool, so that devices that send many small uploads one after the other do not cause a
/// search for each. Nobody sees it beside an uplink's round trip.
const GATHER: Duration = Duration::from_millis(20);

/// After a search that took long, since devices keep the disk or the processor busy, it rests so many times as long. Searching then takes a tenth of the time.
const GATHER_LOOKS: u32 = 9;

/// The scheduler rests no longer than this.
const GATHER_MAX: Duration = Duration::from_millis(200);

/// The scheduler searches at least so often, so that it notices a wall clock that jumped.
const TICK: Duration = Duration::from_secs(30);

/// When the end of an attempt could not be recorded, nothing is started for so long. The upload is still due in the spool, and would begin again at
/// once. This is long enough not to wear out a full or failing disk, and short enough that nobody misses it once the disk is well.
const SPOOL_REST: Duration = Duration::from_secs(5);

/// Lines of the log in a minute that say how attempts ended, of each kind: ten a second, 0.3 GB a day. A service that is made to refuse has
/// hundreds fail in a second.
const ATTEMPT_LINES: u32 = 600;

/// Delivers until `shutdown`. Attempts under way then are dropped; what they achieved is recorded.
pub async fn run(delivery: Arc<Delivery>, mut shutdown: Shutdown) {
    let mut scheduler = DeliveryScheduler::new(delivery.clone());
    loop {
        let paused = delivery.pause.is_on();
        scheduler.count();
        let begun = Instant::now();
        let due = scheduler.drain().await;
        let gathered = Instant::now() + (begun.elapsed() * GATHER_LOOKS).clamp(GATHER, GATHER_MAX);
        let next = if scheduler.attempts.is_empty() { due } else { due.min(Instant::now() + COUNT) };
        tokio::select! {
            () = shutdown.requested() => return,
            () = delivery.pause.until(!paused) => scheduler.dispatcher.handle_more(),
            () = delivery.core.stored.notified() => {
                tokio::time::sleep_until(gathered).await;
                scheduler.dispatcher.handle_more();
            }
            Some(ended) = scheduler.attempts.join_next_with_id() => scheduler.ended(ended).await,
            () = tokio::time::sleep_until(next) => if next == due { scheduler.dispatcher.handle_more() },
        }
    }
}

struct DeliveryScheduler {
    core: Arc<Core>,
    delivery: Arc<Delivery>,
    dispatcher: Dispatcher<Place>,
    /// `None`: it was told to end before its time.
    attempts: JoinSet<Option<Ended>>,
    ids: BTreeMap<Id, UploadId>,
    /// Nothing is started before, since the spool could not be written.
    rest: Option<Instant>,
}

impl DeliveryScheduler {
    fn new(delivery: Arc<Delivery>) -> Self {
        let dispatcher = Dispatcher::new(delivery.transfers);
        Self {
            core: delivery.core.clone(),
            delivery,
            dispatcher,
            attempts: JoinSet::new(),
            ids: BTreeMap::new(),
            rest: None,
        }
    }

    /// Does all that the dispatcher asks for; returns when to look again.
    async fn drain(&mut self) -> Instant {
        if let Some(rest) = self.rest.filter(|rest| Instant::now() < *rest) {
            return rest;
        }
        self.rest = None;
        if self.delivery.pause.is_on() {
            return Instant::now() + TICK;
        }
        let pacer = &self.delivery.pacer;
        pacer.set_demand(self.dispatcher.has_to_send(), self.dispatcher.deadlines());
        self.dispatcher.set_gate(pacer.gate());
        while let Some(output) = self.dispatcher.poll_output(self.core.clock.now()) {
            match output {
                Output::Start { id, list } => self.start(id, list),
                Output::Yield { id } => self.delivery.slots.make_way(id),
                Output::Stop { id } => self.delivery.slots.stop(id),
                Output::Devices { list, after } => {
                    let page = self.read(move |core, now| core.spool.due_devices(now, queue(list), after, PAGE));
                    match page.await {
                        Ok(page) => self.dispatcher.handle_devices(list, &page, page.len() < PAGE),
                        Err(error) => self.unreadable(list, &error),
                    }
                }
                Output::Load { list, device, after } => match self.load(list, device, after).await {
                    Ok(()) => {}
                    Err(error) => self.unreadable(list, &error),
                },
            }
        }
        self.next_look().await
    }

    /// Counts what was sent as its device's share.
    fn count(&mut self) {
        for (id, bytes) in self.core.progress.take_sent() {
            self.dispatcher.handle_sent(id, bytes);
        }
    }

    fn start(&mut self, id: UploadId, list: List) {
        tracing::debug!(%id, ?list, "an attempt begins");
        let delivery = self.delivery.clone();
        self.core.counters.attempt();
        let mut slot = delivery.slots.begin(id);
        let handle = self.attempts.spawn(async move {
            tokio::select! {
                ended = attempt(&delivery, id) => Some(ended),
                () = slot.over() => None,
            }
        });
        self.ids.insert(handle.id(), id);
    }

    /// Offers a page of what a device has due.
    async fn load(&mut self, list: List, device: AddressKey, after: Option<Place>) -> Result<(), StoreError> {
        let after = after.unwrap_or(Place::START);
        let page = self.read(move |core, now| core.spool.due_of(now, queue(list), device, after, PAGE)).await?;
        let last = page.len() < PAGE;
        let entries = page.into_iter().map(entry).collect();
        self.dispatcher.handle_entries(list, device, entries, last, self.core.clock.now());
        Ok(())
    }

    async fn read<T: Send + 'static>(
        &self,
        read: impl FnOnce(&Core, UnixTime) -> Result<T, StoreError> + Send + 'static,
    ) -> Result<T, StoreError> {
        blocking(&self.core, move |core| read(core, core.clock.unix())).await
    }

    fn unreadable(&mut self, list: List, error: &StoreError) {
        tracing::error!(%error, "cannot read what is due");
        self.dispatcher.handle_unreadable(list);
    }

    /// When something will be due although nothing happens.
    async fn next_look(&self) -> Instant {
        let soon = Instant::now() + TICK;
        let (due, now) = blocking(&self.core, |core| {
            let now = core.clock.unix();
            (core.spool.next_due(now), now)
        })
        .await;
        let due = due.inspect_err(|error| tracing::error!(%error, "cannot read what is due")).ok().flatten();
        // A second's rest at least: wall time counts in whole ones.
        let due = due.map(|due| Instant::now() + Duration::from_secs(due.since(now).max(1).into()));
        let waited = self.dispatcher.poll_timeout().map(|at| self.core.clock.instant(at).into());
        due.into_iter().chain(waited).fold(soon, Instant::min)
    }

    /// Records how an attempt ended.
    async fn ended(&mut self, ended: Result<(Id, Option<Ended>), JoinError>) {
        self.count();
        let (task, ended) = match ended {
            Ok(ended) => ended,
            Err(error) => {
                tracing::error!(%error, "an attempt broke down");
                let reason = Some(Reason::new(Code::Internal.name(), "the gateway failed in the middle"));
                (error.id(), Some(Ended::Retry { failure: Failure { attempts: 6, ..Failure::default() }, reason }))
            }
        };
        let Some(id) = self.ids.remove(&task) else { return };
        let (failure, reason) = match ended {
            None => {
                tracing::debug!(%id, "it made way");
                return self.dispatcher.handle_ended_early(id, self.core.clock.now());
            }
            Some(Ended::Done) => {
                static DONE: Lines = Lines::at_most(ATTEMPT_LINES);
                let more = || tracing::info!("more attempts end than are written down in this minute");
                if DONE.have_room(std::time::Instant::now(), more) {
                    tracing::info!(%id, "delivered as far as it goes");
                }
                return self.dispatcher.handle_done(id, self.core.clock.now());
            }
            Some(Ended::Retry { failure, reason }) => (failure, reason),
        };
        if let Some(reason) = &reason {
            static AGAIN: Lines = Lines::at_most(ATTEMPT_LINES);
            self.core.counters.failed(&reason.code);
            let more = || tracing::info!("more attempts fail than are written down in this minute");
            if AGAIN.have_room(std::time::Instant::now(), more) {
                tracing::info!(%id, code = reason.code, detail = reason.detail, "to be tried again");
            }
        }
        let delay = self.dispatcher.handle_failure(id, failure, Rng.jitter(), self.core.clock.now());
        let recorded = blocking(&self.core, move |core| {
            let now = core.clock.unix();
            core.spool.change_soon(id, &put_off(failure, reason, delay, now), now)
        });
        match recorded.await {
            Ok(_) => self.dispatcher.handle_more(),
            Err(error) => {
                tracing::error!(%error, rest_secs = SPOOL_REST.as_secs(), "cannot record an attempt; nothing is begun");
                self.rest = Some(Instant::now() + SPOOL_REST);
            }
        }
    }
}

const fn queue(list: List) -> Queue {
    match list {
        List::Send => Queue::Send,
        List::Small => Queue::Small,
        List::Ask => Queue::Ask,
    }
}

fn entry(due: DueOf) -> Entry<Place> {
    // In the one spelling that is kept, an origin is what stands before the path.
    let path = due.dest.match_indices('/').nth(2).map_or(due.dest.len(), |(at, _)| at);
    let origin = due.dest[..path].to_owned();
    Entry { id: due.id, origin, total: due.total, deadline: due.deadline, place: due.place }
}
