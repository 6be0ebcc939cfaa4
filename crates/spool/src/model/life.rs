//! How long a gateway takes and keeps an upload, by whoever judges the time (`docs/time.md`). Pure.

use crate::model::limits::{EARLY_SECS, KEEP_SECS};
use hoop_timekeeper::Over;
use hoop_units::UnixTime;

/// The longest that a ticket counts here, in seconds: services issue them for a week, and this is a month. A label proves nothing to a gateway: a time
/// decades away must not keep the spool full for decades.
const TICKET_SECS: u32 = 30 * 24 * 60 * 60;

/// No upload is kept for longer, in seconds: the latest end of a ticket that counts, and what an upload outlives it by.
pub const LIFE_SECS: u32 = TICKET_SECS + KEEP_SECS;

/// A ticket's time may be off by so much, in seconds (`docs/protocol.md` §2).
const GRACE_SECS: u32 = 300;

/// When a ticket ends here, whose label says that it ends then.
pub fn ticket_end(label: UnixTime, now: UnixTime) -> UnixTime {
    label.min(now.plus_secs(TICKET_SECS))
}

/// For how many seconds a ticket has ended so that nothing more is taken under it; none: it is. An upload that is `known` was begun in time, and may
/// end late. `past` is the time that has certainly come for what lives for so many seconds at most: a clock that is ahead, and in doubt, refuses
/// nobody. A new upload is judged by a ticket's life alone: that is how it gets [`KEEP_SECS`] of run time; and by the time itself once that is
/// `sure`, so that nobody is told that something is stored which its service takes no more.
pub fn late_by(
    expires: UnixTime,
    known: bool,
    past: impl FnOnce(u32) -> UnixTime,
    sure: Option<UnixTime>,
) -> Option<u32> {
    let (life, late) = if known { (LIFE_SECS, KEEP_SECS) } else { (TICKET_SECS, GRACE_SECS) };
    let past = past(life);
    let now = sure.filter(|_| !known).map_or(past, |sure| past.max(sure));
    (now > expires.plus_secs(late)).then(|| now.since(expires))
}

/// What is over.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Overdue {
    /// Of uploads whose prelude has not come, which live for minutes ([`EARLY_SECS`]).
    pub early: Over,
    /// Of all others.
    pub kept: Over,
}

impl Overdue {
    /// By whoever says what may be deleted of things that live for so many seconds at most; none: nothing, now.
    pub fn by(over: impl Fn(u32) -> Option<Over>) -> Self {
        let [early, kept] = [EARLY_SECS, LIFE_SECS].map(|life| over(life).unwrap_or(Over::NOTHING));
        Self { early, kept }
    }
}

impl From<UnixTime> for Overdue {
    /// What is over at that time, by a clock that is right.
    fn from(now: UnixTime) -> Self {
        Self { early: now.into(), kept: now.into() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_new_is_late_by_the_time_that_is_sure_and_what_is_known_is_not() {
        let (end, past) = (UnixTime(1_000_000), |_| UnixTime(900_000));
        let sure = |secs| Some(end.plus_secs(secs));
        assert_eq!(late_by(end, false, past, None), None, "in doubt");
        assert_eq!(late_by(end, false, past, sure(GRACE_SECS)), None);
        assert_eq!(late_by(end, false, past, sure(GRACE_SECS + 1)), Some(GRACE_SECS + 1));
        assert_eq!(late_by(end, true, past, sure(LIFE_SECS)), None, "it was begun in time");
        assert_eq!(late_by(end, false, |_| end.plus_secs(301), Some(past(0))), Some(301));
    }
}
