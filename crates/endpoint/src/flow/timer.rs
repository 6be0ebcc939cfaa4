//! What time brings to a flow: deadlines, attempts, carriers that fall silent.

use super::State;
use crate::clock::Clock;
use crate::options::{DEADLINE_GRACE, DEADLINE_ROUNDING};
use hoop_units::{Duration, Timestamp};

/// While something waits to be acknowledged, a device looks no less often whether its lanes are silent.
const LISTEN_EVERY: Duration = Duration::from_secs(3);

/// For so long after something came it is noticed if a carrier falls silent.
const ACTIVE: Duration = Duration::from_secs(4);

impl State {
    pub(super) fn on_timer(
        &mut self,
        clock: &Clock,
        is_device: bool,
        keep_offline: Option<Duration>,
        now: Timestamp,
    ) -> Option<Timestamp> {
        self.timing.watched = None;
        if self.machine.ended().is_some() {
            return None;
        }
        let grace = if is_device { DEADLINE_ROUNDING } else { DEADLINE_GRACE };
        let deadline = self.machine.deadline().map(|at| clock.timestamp(at) + grace);
        let offline = self.connectivity.offline_since.and_then(|since| Some(since + keep_offline?));
        let mut next = deadline.into_iter().chain(offline).min();
        if next.is_some_and(|at| at <= now) {
            self.machine.expire();
            return None;
        }
        if is_device {
            let (has_failed, again) = self.lanes.retry(now);
            let silent = self.lanes.count_silent();
            next = next.into_iter().chain(again).chain(self.lanes.listen(&mut self.machine, now)).min();
            self.todo.reconcile |= silent != self.lanes.count_silent() || has_failed;
            next = next.into_iter().chain(self.mind_pause(now)).min();
            self.timing.was_active = self.is_active(now);
            // As soon as it would be asked for otherwise, again and again.
            next = next.into_iter().chain(self.timing.was_active.then_some(now + LISTEN_EVERY)).min();
        }
        self.timing.watched = next;
        next
    }

    /// Whether a device's owner is to look sooner than it would: what waits to be acknowledged may wait too long, or an ACK is to be said again.
    pub(super) fn is_to_be_watched(&self, now: Timestamp) -> bool {
        let waits = self.machine.outgoing().acked() < self.machine.outgoing().end();
        let listens = if self.timing.was_active { now + LISTEN_EVERY } else { now };
        let until = self.timing.pause_at.into_iter().chain(waits.then_some(listens)).min();
        !self.lanes.is_empty() && until.is_some_and(|until| self.timing.watched.is_none_or(|at| at > until))
    }

    /// Says the last ACK again once there is a pause.
    fn mind_pause(&mut self, now: Timestamp) -> Option<Timestamp> {
        if self.timing.pause_at.is_some_and(|at| at <= now) {
            self.timing.pause_at = None;
            self.machine.repeat_ack();
        }
        let active = self.timing.data_at.map(|at| at + ACTIVE).filter(|at| *at > now);
        self.timing.pause_at.into_iter().chain(active).min()
    }

    /// Whether it matters that a carrier falls silent.
    pub(crate) fn is_active(&self, now: Timestamp) -> bool {
        let waits = self.machine.outgoing().acked() < self.machine.outgoing().end();
        !self.lanes.is_empty() && (waits || self.timing.data_at.is_some_and(|at| now.since(at) < ACTIVE))
    }
}
