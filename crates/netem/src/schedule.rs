//! Changes to come: a [`Change`], and the [`Schedule`] that says when.

use crate::{Loss, Rate};
use alloc::vec::Vec;
use core::time::Duration;

/// What becomes different about a link. What is `None` stays as it was.
///
/// ```
/// use hoop_netem::Change;
/// use hoop_units::Bitrate;
/// let out_of_reach = Change::new().connected(false);
/// let back_but_slow = Change::new().connected(true).rate(Bitrate::kbps(64));
/// ```
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Change {
    /// The rate from now on. The packet being transmitted goes on at the new rate with the bits it still has.
    pub rate: Option<Rate>,
    /// The one-way delay of packets that leave from now on.
    pub delay: Option<Duration>,
    /// The jitter of packets that leave from now on.
    pub jitter: Option<Duration>,
    /// The loss from now on. A [`Loss::GilbertElliott`] starts in its good state.
    pub loss: Option<Loss>,
    /// Whether the link carries anything. Once it does not, the queue is dropped.
    pub connected: Option<bool>,
}

impl Change {
    /// No change.
    pub fn new() -> Self {
        Self::default()
    }

    /// To this rate: a [`hoop_units::Bitrate`], a [`crate::Trace`] or a [`Rate`].
    #[must_use]
    pub fn rate(self, rate: impl Into<Rate>) -> Self {
        Self { rate: Some(rate.into()), ..self }
    }

    /// To this one-way delay.
    #[must_use]
    pub fn delay(self, delay: Duration) -> Self {
        Self { delay: Some(delay), ..self }
    }

    /// To this jitter.
    #[must_use]
    pub fn jitter(self, jitter: Duration) -> Self {
        Self { jitter: Some(jitter), ..self }
    }

    /// To this loss.
    #[must_use]
    pub fn loss(self, loss: Loss) -> Self {
        Self { loss: Some(loss), ..self }
    }

    /// To connected, or not.
    #[must_use]
    pub fn connected(self, connected: bool) -> Self {
        Self { connected: Some(connected), ..self }
    }
}

/// Changes in order of time, each so long after the link's start.
///
/// Of two changes at the same time the one inserted later comes later.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Schedule {
    changes: Vec<(Duration, Change)>,
}

impl Schedule {
    /// Adds a change, in whatever order.
    pub fn insert(&mut self, after: Duration, change: Change) {
        let place = self.changes.partition_point(|(at, _)| *at <= after);
        self.changes.insert(place, (after, change));
    }

    /// The changes in order.
    pub fn iter(&self) -> impl Iterator<Item = &(Duration, Change)> {
        self.changes.iter()
    }

    /// Whether nothing will change.
    pub fn is_empty(&self) -> bool {
        self.changes.is_empty()
    }

    pub(crate) fn into_changes(self) -> alloc::vec::IntoIter<(Duration, Change)> {
        self.changes.into_iter()
    }
}

impl FromIterator<(Duration, Change)> for Schedule {
    fn from_iter<I: IntoIterator<Item = (Duration, Change)>>(changes: I) -> Self {
        let mut schedule = Self::default();
        changes.into_iter().for_each(|(after, change)| schedule.insert(after, change));
        schedule
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changes_come_in_order_of_time_and_then_of_insertion() {
        let at = Duration::from_secs;
        let schedule: Schedule = [(2, true), (1, true), (2, false), (0, false)]
            .map(|(secs, connected)| (at(secs), Change::new().connected(connected)))
            .into_iter()
            .collect();
        let order: Vec<(u64, Option<bool>)> = schedule.iter().map(|(t, c)| (t.as_secs(), c.connected)).collect();
        assert_eq!(order, [(0, Some(false)), (1, Some(true)), (2, Some(true)), (2, Some(false))]);
    }
}
