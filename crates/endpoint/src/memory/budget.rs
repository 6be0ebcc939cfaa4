//! The memory that flows share ([`MemoryBudget`]): what is held of them, what their peers may send, and how much of it is for each ([`Pool`]).

use std::sync::atomic::{AtomicI64, Ordering};

/// What a flow may hold that begins where memory is not plenty, in bytes: what a lane takes at once.
const FIRST: u64 = 256 * 1024;

/// What one flow takes of the memory, in bytes.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub(crate) struct MemoryUse {
    /// Written and not acknowledged, or come and not read.
    pub(crate) held: u64,
    /// What its peer was told that it may send beyond what was read and what every peer may.
    pub(crate) granted: u64,
}

/// The memory of all flows, or of one device's.
///
/// What peers may send counts by itself: it is seldom there, and does not keep anybody from writing; but all of it may come at once, and cannot be taken back.
#[derive(Debug)]
pub(crate) struct MemoryBudget {
    limit: u64,
    held: Pool,
    granted: Pool,
}

impl MemoryBudget {
    /// So many bytes of either.
    pub(crate) fn new(limit: u64) -> Self {
        Self { limit, held: Pool::default(), granted: Pool::default() }
    }

    /// One flow takes so much now, and took so much before.
    pub(crate) fn change(&self, before: MemoryUse, now: MemoryUse) {
        self.held.change(before.held, now.held);
        self.granted.change(before.granted, now.granted);
    }

    /// What is held.
    pub(crate) fn bytes(&self) -> u64 {
        self.held.bytes()
    }

    /// Whether as much is held as may be.
    pub(crate) fn is_full(&self) -> bool {
        self.bytes() >= self.limit
    }

    /// How much more a flow may hold that holds `held` and of which `acked` bytes were acknowledged.
    pub(crate) fn room_to_write(&self, held: u64, acked: u64) -> u64 {
        self.held.room(self.limit, held, acked)
    }

    /// How much may be granted of a flow of which `granted` is, and `read` bytes were read: less, where others want it.
    pub(crate) fn to_grant(&self, granted: u64, read: u64) -> u64 {
        let free = self.limit.saturating_sub(self.granted.bytes());
        self.granted.part(self.limit, granted, read).min(granted + free)
    }
}

/// Bytes of flows that share a limit.
#[derive(Default, Debug)]
struct Pool {
    bytes: AtomicI64,
    /// Flows of which there are any.
    holders: AtomicI64,
}

impl Pool {
    /// One flow holds `now` bytes, and held `before`.
    fn change(&self, before: u64, now: u64) {
        self.bytes.fetch_add(now as i64 - before as i64, Ordering::Relaxed);
        self.holders.fetch_add(i64::from(now > 0) - i64::from(before > 0), Ordering::Relaxed);
    }

    fn bytes(&self) -> u64 {
        u64::try_from(self.bytes.load(Ordering::Relaxed)).unwrap_or(0)
    }

    /// How many bytes more a flow that holds `held` may have once `acked` were acknowledged, where all together may hold `limit`: what is missing of its [part](Self::part).
    fn room(&self, limit: u64, held: u64, acked: u64) -> u64 {
        self.part(limit, held, acked).saturating_sub(held).min(limit.saturating_sub(self.bytes()))
    }

    /// How many bytes a flow may have.
    ///
    /// A flow may have an equal share of the limit, or half of the limit less what all hold, whichever is more. So a few large flows are not slowed by many small ones, and an early flow
    /// gets no more memory, and with it no more of the rate, than a late one. When more than an eighth is held, a flow gets no more than it has had acknowledged, or [`FIRST`]: a
    /// lane's window grows no faster, and the first of many flows would take most.
    fn part(&self, limit: u64, held: u64, acked: u64) -> u64 {
        let all = self.bytes();
        let others =
            u64::try_from(self.holders.load(Ordering::Relaxed)).unwrap_or(0).saturating_sub(u64::from(held > 0));
        // One part is for whoever comes next.
        let share = (limit / 2).saturating_sub(all).max(limit / (2 + others));
        if all > limit / 8 { share.min(acked.max(FIRST)) } else { share }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What each of a hundred flows holds that want all they can get, one after the other, as long as of what each holds as much is sent as of every other's.
    fn holders(limit: u64) -> Vec<u64> {
        let (all, mut flows) = (Pool::default(), vec![0_u64; 100]);
        for _ in 0..2_000 {
            for flow in &mut flows {
                let full = *flow + all.room(limit, *flow, u64::MAX);
                all.change(*flow, full);
                assert!(all.bytes() <= limit, "{}", all.bytes());
                *flow = full.saturating_sub(500);
                all.change(full, *flow);
            }
        }
        flows
    }

    #[test]
    fn who_came_first_holds_no_more_in_the_end_than_who_came_last() {
        let flows = holders(1_000_000);
        let (least, most) = (flows.iter().min().unwrap(), flows.iter().max().unwrap());
        assert!(*least > 8_000 && most - least <= 1_000, "{least} to {most}");
    }

    #[test]
    fn of_what_was_granted_first_less_is_granted_again_where_others_want_it() {
        let memory = MemoryBudget::new(1_000_000);
        let mut flows = vec![MemoryUse::default(); 20];
        for _ in 0..200 {
            for flow in &mut flows {
                // Half of it is used up, and as much granted anew as there may be.
                let used = MemoryUse { granted: flow.granted / 2, ..*flow };
                memory.change(*flow, used);
                let granted = MemoryUse { granted: memory.to_grant(used.granted, u64::MAX).min(200_000), ..used };
                memory.change(used, granted);
                *flow = granted;
                assert!(memory.granted.bytes() <= 1_000_000);
            }
        }
        let (least, most) =
            (flows.iter().min_by_key(|flow| flow.granted), flows.iter().max_by_key(|flow| flow.granted));
        let (least, most) = (least.unwrap().granted, most.unwrap().granted);
        assert!(least > 40_000 && most < 60_000, "{least} to {most}");
    }

    #[test]
    fn one_flow_alone_has_half_of_the_limit_and_none_has_any_of_what_is_full() {
        let held = Pool::default();
        assert_eq!(held.room(1_000, 0, u64::MAX), 500);
        held.change(0, 400);
        assert_eq!((held.room(1_000, 400, u64::MAX), held.room(1_000, 0, u64::MAX)), (100, 333));
        held.change(0, 600);
        assert_eq!(held.room(1_000, 0, u64::MAX), 0);
        held.change(600, 0);
        held.change(400, 0);
        assert_eq!((held.bytes(), held.room(1_000, 0, u64::MAX)), (0, 500));
    }

    #[test]
    fn many_that_hold_little_leave_one_that_wants_much_half_of_the_limit() {
        let held = Pool::default();
        (0..1_000).for_each(|_| held.change(0, 1));
        assert_eq!(held.room(1_000_000, 0, u64::MAX), 499_000);
    }

    #[test]
    fn a_flow_that_begins_where_much_is_held_has_more_only_as_it_gets_on() {
        let (held, limit) = (Pool::default(), 1 << 30);
        assert_eq!(held.room(limit, 0, 0), limit / 2);
        held.change(0, limit / 4);
        assert_eq!(held.room(limit, 0, 0), FIRST);
        assert_eq!(held.room(limit, FIRST, 3 * FIRST), 2 * FIRST);
    }
}
