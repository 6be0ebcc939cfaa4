//! The conductor of deliveries: feeds the dispatcher from the spool, starts the attempts it asks for, records how they ended,
//! and keeps house (uploads whose time is over, files that a crash left).

use crate::shared::Shared;
use crate::transfer::{Ended, attempt, put_off};
use hoop_dispatch::{Dispatcher, Entry, Failure, List, Offered, Output};
use hoop_http::{Code, Dice, Origin, Shutdown};
use hoop_spool::{Due, DueCursor, Queue, Reason, SMALL_BYTES, StoreError};
use hoop_units::UploadId;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::task::{Id, JoinError, JoinSet};
use tokio::time::Instant;
use url::Url;

const _: () = assert!(SMALL_BYTES == hoop_dispatch::SMALL_BYTES, "spool and dispatcher agree on what is small");

/// Uploads are taken from the spool by so many at a time: a page of index, and half of what the dispatcher's window asks for.
const PAGE: usize = 64;

/// The conductor looks up at least so often: then a wall clock that jumped is noticed, and the house is kept.
const TICK: Duration = Duration::from_secs(30);

/// Nothing is started for so long after an attempt's end could not be recorded: what is due in the spool then is still due, and
/// would be begun again at once. Long enough that a full or failing disk is not worn out, short enough that nobody misses it
/// once the disk is well.
const SPOOL_REST: Duration = Duration::from_secs(5);

/// Uploads that are expired or forgotten in one go.
const END_BATCH: usize = 64;

/// Delivers until `shutdown`. Attempts under way then are dropped; what they achieved is recorded.
pub async fn run(shared: Arc<Shared>, mut shutdown: Shutdown) {
    let mut conductor = Conductor::new(shared.clone());
    let mut house = Instant::now();
    loop {
        if Instant::now() >= house {
            conductor.keep_house().await;
            house = Instant::now() + TICK;
        }
        let paused = shared.pause.is_on();
        let next = conductor.drain().await.min(house);
        tokio::select! {
            () = shutdown.requested() => return,
            () = shared.pause.until(!paused) => conductor.dispatcher.handle_more(),
            () = shared.stored.notified() => conductor.dispatcher.handle_more(),
            Some(ended) = conductor.attempts.join_next_with_id() => conductor.ended(ended).await,
            () = tokio::time::sleep_until(next) => conductor.dispatcher.handle_more(),
        }
    }
}

struct Conductor {
    shared: Arc<Shared>,
    dispatcher: Dispatcher,
    /// How far each list has been offered.
    cursors: [DueCursor; 3],
    attempts: JoinSet<Ended>,
    ids: BTreeMap<Id, UploadId>,
    /// The shard that is swept next.
    shard: u8,
    /// Nothing is started before, since the spool could not be written.
    rest: Option<Instant>,
}

impl Conductor {
    fn new(shared: Arc<Shared>) -> Self {
        let dispatcher = Dispatcher::new(shared.transfers);
        let cursors = [DueCursor::START; 3];
        Self { shared, dispatcher, cursors, attempts: JoinSet::new(), ids: BTreeMap::new(), shard: 0, rest: None }
    }

    /// Does all that the dispatcher asks for; returns when to look again.
    async fn drain(&mut self) -> Instant {
        if let Some(rest) = self.rest.filter(|rest| Instant::now() < *rest) {
            return rest;
        }
        self.rest = None;
        if self.shared.pause.is_on() {
            return Instant::now() + TICK;
        }
        while let Some(output) = self.dispatcher.poll_output(self.shared.clock.now()) {
            match output {
                Output::Start { id, list } => self.start(id, list),
                Output::Load { list, restart } => {
                    if let Err(error) = self.load(list, restart).await {
                        tracing::error!(%error, "cannot read what is due");
                        self.dispatcher.handle_all_seen(list);
                    }
                }
            }
        }
        self.next_look().await
    }

    fn start(&mut self, id: UploadId, list: List) {
        tracing::debug!(%id, ?list, "an attempt begins");
        let shared = self.shared.clone();
        shared.metrics.attempt();
        let handle = self.attempts.spawn(async move { attempt(&shared, id).await });
        self.ids.insert(handle.id(), id);
    }

    /// Offers a page of what is due.
    async fn load(&mut self, list: List, restart: bool) -> Result<(), StoreError> {
        let (queue, slot) = match list {
            List::Send => (Queue::Send, 0),
            List::Small => (Queue::Small, 1),
            List::Ask => (Queue::Ask, 2),
        };
        if restart {
            self.cursors[slot] = DueCursor::START;
        }
        let cursor = self.cursors[slot];
        let page =
            self.shared.blocking(move |shared| shared.spool.due(shared.clock.unix(), queue, cursor, PAGE)).await?;
        let now = self.shared.clock.now();
        let last = page.len() < PAGE;
        for due in page {
            let cursor = due.cursor;
            if self.dispatcher.offer(list, entry(due), now) == Offered::Full {
                return Ok(());
            }
            self.cursors[slot] = cursor;
        }
        if last {
            self.dispatcher.handle_all_seen(list);
        }
        Ok(())
    }

    /// When something will be due although nothing happens.
    async fn next_look(&self) -> Instant {
        let soon = Instant::now() + TICK;
        let (due, now) = self
            .shared
            .blocking(|shared| {
                let now = shared.clock.unix();
                (shared.spool.next_due(now), now)
            })
            .await;
        let due = due.inspect_err(|error| tracing::error!(%error, "cannot read what is due")).ok().flatten();
        // A second's rest at least: wall time counts in whole ones.
        let due = due.map(|due| Instant::now() + Duration::from_secs(due.since(now).max(1).into()));
        let waited = self.dispatcher.poll_timeout().map(|at| self.shared.clock.instant(at).into());
        due.into_iter().chain(waited).fold(soon, Instant::min)
    }

    /// Records how an attempt ended.
    async fn ended(&mut self, ended: Result<(Id, Ended), JoinError>) {
        let (task, ended) = match ended {
            Ok(ended) => ended,
            Err(error) => {
                tracing::error!(%error, "an attempt broke down");
                let reason = Some(Reason::new(Code::Internal.name(), "the gateway failed in the middle"));
                (error.id(), Ended::Again { failure: Failure { attempts: 6, ..Failure::default() }, reason })
            }
        };
        let Some(id) = self.ids.remove(&task) else { return };
        let (failure, reason) = match ended {
            Ended::Done => {
                tracing::info!(%id, "delivered as far as it goes");
                return self.dispatcher.handle_done(id);
            }
            Ended::Again { failure, reason } => (failure, reason),
        };
        if let Some(reason) = &reason {
            self.shared.metrics.failed(&reason.code);
            tracing::info!(%id, code = reason.code, detail = reason.detail, "to be tried again");
        }
        let delay = self.dispatcher.handle_failure(id, failure, Dice.roll(), self.shared.clock.now());
        let recorded = self.shared.blocking(move |shared| {
            let now = shared.clock.unix();
            shared.spool.change(id, &put_off(failure, reason, delay, now), now)
        });
        match recorded.await {
            Ok(_) => self.dispatcher.handle_more(),
            Err(error) => {
                tracing::error!(%error, rest_secs = SPOOL_REST.as_secs(), "cannot record an attempt; nothing is begun");
                self.rest = Some(Instant::now() + SPOOL_REST);
            }
        }
    }

    async fn keep_house(&mut self) {
        let shard = self.shard;
        self.shard = self.shard.wrapping_add(1);
        let kept = self.shared.blocking(move |shared| {
            let reason = Reason::new(Code::UploadExpired.name(), "its ticket ended more than 7 days ago");
            while shared.spool.end(&reason, shared.clock.unix(), END_BATCH)? == END_BATCH {}
            shared.spool.sweep(shard)
        });
        match kept.await {
            Ok(0) => {}
            Ok(removed) => tracing::info!(removed, "removed files that a crash had left"),
            Err(error) => tracing::error!(%error, "cannot keep the spool in order"),
        }
    }
}

fn entry(due: Due) -> Entry {
    let origin = Url::parse(&due.dest).ok().and_then(|url| Origin::of(&url).ok());
    let origin = origin.map_or(due.dest, |origin| origin.to_string());
    Entry { id: due.id, origin, total: due.total, since: due.since }
}
