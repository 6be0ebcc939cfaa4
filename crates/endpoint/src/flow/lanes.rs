//! The lanes of a flow: which there are, on which carriers, which failed and which are silent. [`Lanes`] knows nothing of the streams.

use crate::options::Network;
use hoop_carrier::{Carrier, SILENCE};
use hoop_flow::{Flow, LaneId};
use hoop_units::{Duration, Timestamp};
use std::sync::Arc;
use tokio::sync::Notify;

/// The wait after the second failure in a row; it doubles up to [`RETRY_MAX`].
const RETRY_FIRST: Duration = Duration::from_millis(200);

/// The longest wait after a failure on a carrier that is there: a server that comes back is found within it.
const RETRY_MAX: Duration = Duration::from_secs(60);

/// A lane is silent if nothing came for so many round trips, and for [`SILENCE`], while something waits to be acknowledged.
const SILENT_ROUND_TRIPS: u32 = 3;

/// How long a carrier that was silent is thought to be so.
const SILENT_MEMORY: Duration = Duration::from_secs(30);

/// Which carrier, at its endpoint.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct CarrierId(pub(crate) u64);

/// A carrier as an endpoint knows it.
#[derive(Clone, Debug)]
pub(crate) struct Carried {
    pub(crate) id: CarrierId,
    pub(crate) carrier: Arc<dyn Carrier>,
    pub(crate) network: Network,
}

/// What wakes the writer of a lane.
#[derive(Default, Debug)]
pub(crate) struct Signals {
    /// There may be something to send.
    pub(crate) wake: Notify,
    /// The lane is closing.
    pub(crate) stop: Notify,
}

#[derive(Debug)]
pub(super) struct LaneEntry {
    pub(super) id: LaneId,
    pub(super) on: Carried,
    pub(super) signals: Arc<Signals>,
    /// Whether its writer waits, and until when at most.
    pub(super) idle: Option<Option<Timestamp>>,
    pub(super) began: Timestamp,
    pub(super) heard: Timestamp,
    pub(super) up: Option<Timestamp>,
    pub(super) is_closing: bool,
    /// The other end, or the carrier, has ended it.
    pub(super) is_broken: bool,
}

/// A carrier on which attaching failed.
#[derive(Clone, Copy, Debug)]
struct Failure {
    on: CarrierId,
    /// How often in a row.
    times: u32,
    /// Not again before.
    until: Timestamp,
}

/// The lanes of a flow, and what is known of carriers on which it has none.
#[derive(Default, Debug)]
pub(crate) struct Lanes {
    pub(super) entries: Vec<LaneEntry>,
    next: u64,
    /// Carriers on which a lane is being opened.
    pub(crate) opening: Vec<CarrierId>,
    /// Carriers that did not answer, and when that was noticed.
    silent: Vec<(CarrierId, Timestamp)>,
    failures: Vec<Failure>,
}

impl Lanes {
    /// An attempt to attach came to nothing, or did not last. The first time it is repeated at once.
    pub(super) fn fail(&mut self, on: CarrierId, least: Duration, now: Timestamp) {
        self.failures.retain(|failure| failure.on == on || now.since(failure.until) < RETRY_MAX);
        let at = self.failures.iter().position(|failure| failure.on == on).unwrap_or_else(|| {
            self.failures.push(Failure { on, times: 0, until: now });
            self.failures.len() - 1
        });
        let failure = &mut self.failures[at];
        failure.times += 1;
        let wait = match failure.times {
            1 => Duration::ZERO,
            times => RETRY_FIRST.saturating_mul(1 << (times - 2).min(16)).min(RETRY_MAX),
        };
        failure.until = now + wait.max(least);
    }

    /// Whether a carrier is not to be tried again yet.
    pub(crate) fn is_waiting(&self, on: CarrierId, now: Timestamp) -> bool {
        self.failures.iter().any(|failure| failure.on == on && failure.until > now)
    }

    /// How many lanes there are, with those that close.
    pub(crate) const fn len(&self) -> usize {
        self.entries.len()
    }

    /// A carrier is gone.
    pub(crate) fn forget(&mut self, on: CarrierId) {
        self.failures.retain(|failure| failure.on != on);
        self.silent.retain(|(id, _)| *id != on);
    }

    /// A lane is to be attached; its owner tells the machine.
    pub(super) fn add(&mut self, on: Carried, now: Timestamp) -> (LaneId, Arc<Signals>) {
        let id = LaneId(self.next);
        self.next += 1;
        let signals = Arc::<Signals>::default();
        self.entries.push(LaneEntry {
            id,
            on,
            signals: signals.clone(),
            idle: None,
            began: now,
            heard: now,
            up: None,
            is_closing: false,
            is_broken: false,
        });
        (id, signals)
    }

    /// A lane was not attached after all.
    pub(crate) fn remove(&mut self, lane: LaneId) {
        self.entries.retain(|entry| entry.id != lane);
    }

    /// Whether there is none, not even one that closes.
    pub(crate) const fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// What lane there is on a carrier, and whether it is attached.
    pub(crate) fn on(&self, carrier: CarrierId) -> Option<(LaneId, bool)> {
        let mut open = self.entries.iter().filter(|entry| !entry.is_closing && entry.on.id == carrier);
        open.next().map(|entry| (entry.id, entry.up.is_some()))
    }

    /// When a carrier brought something of this flow last; None: it has no lane there.
    pub(crate) fn heard_on(&self, carrier: CarrierId) -> Option<Timestamp> {
        self.entries.iter().filter(|entry| entry.on.id == carrier).map(|entry| entry.heard).max()
    }

    /// The lanes that are not closing, and the carriers they are on.
    pub(crate) fn open(&self) -> impl Iterator<Item = (LaneId, CarrierId)> {
        self.entries.iter().filter(|entry| !entry.is_closing).map(|entry| (entry.id, entry.on.id))
    }

    /// Closes a lane: what was taken from the machine for it still goes out.
    pub(crate) fn close(&mut self, lane: LaneId) {
        if let Some(entry) = self.entries.iter_mut().find(|entry| entry.id == lane && !entry.is_closing) {
            entry.is_closing = true;
            entry.signals.stop.notify_one();
            entry.signals.wake.notify_one();
        }
    }

    /// Wakes the writers that have something to do before they would look again.
    pub(super) fn wake(&mut self, machine: &mut Flow) {
        for entry in &mut self.entries {
            let Some(until) = entry.idle else { continue };
            let at = machine.lane_timeout(entry.id);
            let sooner = at.is_some_and(|at| until.is_none_or(|until| at < until));
            if sooner || machine.wants(entry.id) {
                entry.idle = None;
                entry.signals.wake.notify_one();
            }
        }
    }

    /// A lane by its name.
    pub(super) fn get_mut(&mut self, lane: LaneId) -> Option<&mut LaneEntry> {
        self.entries.iter_mut().find(|entry| entry.id == lane)
    }

    /// The names of all.
    pub(super) fn ids(&self) -> Vec<LaneId> {
        self.entries.iter().map(|entry| entry.id).collect()
    }

    /// A carrier carried a lane for long: what failed on it before does not count.
    pub(super) fn forgive(&mut self, on: CarrierId) {
        self.failures.retain(|failure| failure.on != on);
    }

    /// Whether any carrier failed, and when the next of them may be tried again.
    pub(super) fn retry(&self, now: Timestamp) -> (bool, Option<Timestamp>) {
        let until = self.failures.iter().map(|failure| failure.until).filter(|until| *until > now).min();
        (!self.failures.is_empty(), until)
    }

    /// How many carriers are silent.
    pub(super) const fn count_silent(&self) -> usize {
        self.silent.len()
    }

    /// Something came over a carrier.
    pub(super) fn heard(&mut self, on: CarrierId) {
        self.silent.retain(|(id, _)| *id != on);
    }

    /// Whether a carrier did not answer a moment ago.
    pub(crate) fn is_silent(&self, carrier: CarrierId, now: Timestamp) -> bool {
        self.silent.iter().any(|(id, at)| *id == carrier && now.since(*at) < SILENT_MEMORY)
    }

    /// A carrier owes an answer and does not give it.
    pub(super) fn set_silent(&mut self, on: CarrierId, now: Timestamp) {
        self.silent.retain(|(id, _)| *id != on);
        self.silent.push((on, now));
    }

    /// Which lanes are silent; when the next may be.
    pub(super) fn listen(&mut self, machine: &mut Flow, now: Timestamp) -> Option<Timestamp> {
        let mut next = None;
        self.silent.retain(|(_, at)| now.since(*at) < SILENT_MEMORY);
        for entry in self.entries.iter().filter(|entry| !entry.is_closing) {
            let rtt = entry.on.carrier.rtt();
            if let Some(rtt) = rtt {
                machine.set_rtt(entry.id, rtt);
            }
            let waits = match entry.up {
                None => Some(entry.began),
                Some(_) => machine.waits_since(entry.id),
            };
            let Some(waits) = waits else { continue };
            let patience = (rtt.unwrap_or_default() * SILENT_ROUND_TRIPS).max(SILENCE);
            let at = waits.max(entry.heard) + patience;
            if at > now {
                next = next.into_iter().chain([at]).min();
            } else if !self.silent.iter().any(|(id, _)| *id == entry.on.id) {
                self.silent.push((entry.on.id, now));
            }
        }
        let forgotten = self.silent.iter().map(|(_, at)| *at + SILENT_MEMORY).min();
        next.into_iter().chain(forgotten).min()
    }
}
