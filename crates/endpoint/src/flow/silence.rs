//! What time brings to a flow: deadlines, attempts, carriers that fall silent.

use super::{CarrierId, State};
use crate::clock::Clock;
use crate::options::{DEADLINE_GRACE, DEADLINE_ROUNDING};
use hoop_carrier::SILENCE;
use hoop_units::{Duration, Timestamp};

/// A lane is silent if nothing came for so many round trips, and for [`SILENCE`], while something waits to be acknowledged.
const SILENT_ROUND_TRIPS: u32 = 3;

/// While something waits to be acknowledged, a device looks no less often whether its lanes are silent.
const LISTEN_EVERY: Duration = Duration::from_secs(3);

/// For so long after something came it is noticed if a carrier falls silent.
const ACTIVE: Duration = Duration::from_secs(4);

/// How long a carrier that was silent is thought to be so.
const SILENT_MEMORY: Duration = Duration::from_secs(30);

impl State {
    pub(super) fn on_timer(
        &mut self,
        clock: &Clock,
        is_device: bool,
        keep_offline: Option<Duration>,
        now: Timestamp,
    ) -> Option<Timestamp> {
        self.watched = None;
        if self.machine.ended().is_some() {
            return None;
        }
        let grace = if is_device { DEADLINE_ROUNDING } else { DEADLINE_GRACE };
        let deadline = self.machine.deadline().map(|at| clock.timestamp(at) + grace);
        let offline = self.offline_since.and_then(|since| Some(since + keep_offline?));
        let mut next = deadline.into_iter().chain(offline).min();
        if next.is_some_and(|at| at <= now) {
            self.machine.expire();
            return None;
        }
        if is_device {
            let again = self.failures.iter().map(|failure| failure.until).filter(|until| *until > now).min();
            let silent = self.silent.len();
            next = next.into_iter().chain(again).chain(self.listen(now)).min();
            self.todo.reconcile |= silent != self.silent.len() || !self.failures.is_empty();
            next = next.into_iter().chain(self.mind_pause(now)).min();
            self.was_active = self.is_active(now);
            // As soon as it would be asked for otherwise, again and again.
            next = next.into_iter().chain(self.was_active.then_some(now + LISTEN_EVERY)).min();
        }
        self.watched = next;
        next
    }

    /// Whether a device's owner is to look sooner than it would: what waits to be acknowledged may wait too long, or an ACK is to be said again.
    pub(super) fn is_to_be_watched(&self, now: Timestamp) -> bool {
        let waits = self.machine.outgoing().acked() < self.machine.outgoing().end();
        let listens = if self.was_active { now + LISTEN_EVERY } else { now };
        let until = self.pause_at.into_iter().chain(waits.then_some(listens)).min();
        !self.lanes.is_empty() && until.is_some_and(|until| self.watched.is_none_or(|at| at > until))
    }

    /// Says the last ACK again once there is a pause.
    fn mind_pause(&mut self, now: Timestamp) -> Option<Timestamp> {
        if self.pause_at.is_some_and(|at| at <= now) {
            self.pause_at = None;
            self.machine.repeat_ack();
        }
        let active = self.data_at.map(|at| at + ACTIVE).filter(|at| *at > now);
        self.pause_at.into_iter().chain(active).min()
    }

    /// Whether it matters that a carrier falls silent.
    pub(crate) fn is_active(&self, now: Timestamp) -> bool {
        let waits = self.machine.outgoing().acked() < self.machine.outgoing().end();
        !self.lanes.is_empty() && (waits || self.data_at.is_some_and(|at| now.since(at) < ACTIVE))
    }

    pub(crate) fn is_silent(&self, carrier: CarrierId, now: Timestamp) -> bool {
        self.silent.iter().any(|(id, at)| *id == carrier && now.since(*at) < SILENT_MEMORY)
    }

    /// A carrier owes an answer and does not give it.
    pub(crate) fn set_silent(&mut self, on: CarrierId, now: Timestamp) {
        self.silent.retain(|(id, _)| *id != on);
        self.silent.push((on, now));
        (self.todo.reconcile, self.todo.set_timer) = (true, true);
    }

    /// Which lanes are silent; when the next may be.
    fn listen(&mut self, now: Timestamp) -> Option<Timestamp> {
        let mut next = None;
        self.silent.retain(|(_, at)| now.since(*at) < SILENT_MEMORY);
        for entry in self.lanes.iter().filter(|entry| !entry.is_closing) {
            let rtt = entry.on.carrier.rtt();
            if let Some(rtt) = rtt {
                self.machine.set_rtt(entry.id, rtt);
            }
            let waits = match entry.up {
                None => Some(entry.began),
                Some(_) => self.machine.waits_since(entry.id),
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
