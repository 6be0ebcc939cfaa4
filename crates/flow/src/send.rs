//! What a flow sends: [`Outgoing`], one direction as its sender sees it.

use crate::record::Record;
use hoop_units::{ByteRange, RangeSet};

/// The bytes that a peer may be sent before it has said anything: enough for a request, little enough to lose.
pub const CREDIT_FIRST: u64 = 64 * 1024;

/// One direction, at its sender. The bytes themselves are the caller's: it hands over offsets, and is told which bytes to send.
#[derive(Clone, Debug)]
pub struct Outgoing {
    /// All before it is kept by the peer; one more than `end` once it has the end too.
    acked: u64,
    /// What lies before it the caller has no more.
    available: u64,
    /// The first byte that was never sent, as far as is known.
    next: u64,
    /// What may have been sent lies before it: before a restart, anything that was written.
    reach: u64,
    /// The first byte that is not written yet.
    end: u64,
    /// What lies from here on the owner has written once, but has not at hand yet: it was restarted, and supplies it again. Otherwise `end`.
    ready: u64,
    /// Whether more may have been sent than is known to be written: this end was restarted from a record that may be older.
    is_unsure: bool,
    /// Whether nothing is written any more.
    finished: bool,
    /// The first byte that the peer does not want yet.
    credit: u64,
    /// Whether the owner has said that it writes more as soon as the peer wants any.
    has_more: bool,
    /// What was sent over a lane that is gone, and is not acknowledged.
    again: RangeSet,
}

/// The peer says what cannot be.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Impossible {
    /// It has what was never sent.
    Unsent,
    /// It lacks what it had acknowledged and is gone.
    Gone,
}

impl Outgoing {
    /// A stream of which nothing is written yet.
    pub(crate) const fn new() -> Self {
        Self {
            acked: 0,
            available: 0,
            next: 0,
            reach: 0,
            end: 0,
            ready: 0,
            is_unsure: false,
            finished: false,
            credit: CREDIT_FIRST,
            has_more: false,
            again: RangeSet::new(),
        }
    }

    /// A stream as it was kept: nothing is under way. `is_unsure`: since then more may have been written and sent.
    pub(crate) const fn restored(record: &Record, is_unsure: bool) -> Self {
        let Record { acked, available, written: end, finished, .. } = *record;
        let next = if acked < end { acked } else { end };
        let credit = if record.credit < acked { acked } else { record.credit };
        Self {
            acked,
            available,
            next,
            reach: end,
            end,
            ready: end,
            is_unsure,
            finished,
            credit,
            has_more: false,
            again: RangeSet::new(),
        }
    }

    /// All before it is kept by the peer, and will not be asked for again.
    pub const fn acked(&self) -> u64 {
        if self.acked < self.end { self.acked } else { self.end }
    }

    /// The same, where the end counts as one byte more.
    pub(crate) const fn received(&self) -> u64 {
        self.acked
    }

    /// How much is written.
    pub const fn end(&self) -> u64 {
        self.end
    }

    /// What the peer has said that it wants.
    pub const fn credit(&self) -> u64 {
        self.credit
    }

    /// What lies before it the caller has no more.
    pub const fn available(&self) -> u64 {
        self.available
    }

    /// What lies before it the caller has at hand: all that is written, but for [`crate::Flow::supply_again`].
    pub const fn ready(&self) -> u64 {
        self.ready
    }

    /// Whether nothing is written any more.
    pub const fn is_finished(&self) -> bool {
        self.finished
    }

    /// Whether the peer keeps all of it, and knows that it ends there.
    pub const fn is_done(&self) -> bool {
        self.finished && self.acked > self.end
    }

    /// The caller has `bytes` more to send.
    pub(crate) const fn write(&mut self, bytes: u64) {
        self.ready += bytes;
        // What ends before that is all that there is for now.
        self.has_more &= self.ready >= self.credit;
        if self.ready <= self.end {
            return;
        }
        match self.finished {
            true => self.ready = self.end,
            false => self.end = self.ready,
        }
    }

    /// The caller has nothing at hand from what is [available](Self::available) on, and [writes](Self::write) it again.
    pub(crate) const fn supply_again(&mut self) {
        self.ready = self.available;
    }

    /// The caller writes more as soon as the peer wants any.
    pub(crate) const fn expect_more(&mut self) {
        self.has_more = true;
    }

    /// Whether no more than `bytes` are left to be acknowledged, and no more follow soon.
    pub(crate) const fn is_little_left(&self, bytes: u64) -> bool {
        !self.has_more && self.end - self.acked() <= bytes
    }

    /// The caller has no more.
    pub(crate) const fn finish(&mut self) {
        self.finished = true;
        self.has_more = false;
        // What the peer acknowledged and was not known to be written was the end, and no byte.
        if self.is_unsure && self.ready + 1 == self.end && self.acked == self.end {
            self.end = self.ready;
            self.next = if self.next < self.end { self.next } else { self.end };
        }
    }

    /// The caller has dropped what lies before `offset`, as it may once it is acknowledged.
    pub(crate) fn drop_before(&mut self, offset: u64) {
        self.available = self.available.max(offset.min(self.acked()));
    }

    /// What the peer keeps and wants.
    pub(crate) fn ack(&mut self, received: u64, credit: u64) -> Result<(), Impossible> {
        self.believe(received, credit)?;
        let sent = self.next.max(if self.is_unsure { self.end } else { self.reach });
        let most = if self.finished && sent == self.end { self.end + 1 } else { sent };
        if received > most {
            return Err(Impossible::Unsent);
        }
        self.credit = self.credit.max(credit);
        self.next = self.next.max(received.min(self.end));
        if received > self.acked {
            self.again.remove(ByteRange::new(self.acked, received));
            self.acked = received;
        }
        Ok(())
    }

    /// What the peer keeps and wants, as it says on a new lane, and whether that lane is the only one. Then it may say less than it once did:
    /// it was restarted, and what it does not have is sent again. Beside other lanes a smaller number is an old one.
    pub(crate) fn resume(&mut self, received: u64, credit: u64, only: bool) -> Result<(), Impossible> {
        // Whoever was restarted does not know what it had sent, but it knows what is written, or believes the peer.
        self.believe(received, credit)?;
        if received > self.end + u64::from(self.finished) {
            return Err(Impossible::Unsent);
        }
        self.next = self.next.max(received.min(self.end));
        if !only {
            // The end alone is cheap to say again, and not everyone writes down at once that it came.
            if self.finished && received == self.end {
                self.acked = self.acked.min(self.end);
            }
            return self.ack(received, credit);
        }
        if received < self.available {
            return Err(Impossible::Gone);
        }
        (self.acked, self.credit) = (received, credit);
        self.again = RangeSet::new();
        self.again.insert(ByteRange::new(self.acked(), self.next));
        Ok(())
    }

    /// What the peer has this end once wrote, though it does not know that any more. Never more than the peer wanted, and the end.
    fn believe(&mut self, received: u64, credit: u64) -> Result<(), Impossible> {
        if !self.is_unsure || self.finished || received <= self.end {
            return Ok(());
        }
        if received > self.credit.max(credit).saturating_add(1) {
            return Err(Impossible::Unsent);
        }
        self.end = received;
        Ok(())
    }

    /// A range that was sent over a lane that is gone.
    pub(crate) fn lost(&mut self, range: ByteRange) {
        let from = range.start.max(self.acked());
        if from < range.end {
            self.again.insert(ByteRange::new(from, range.end));
        }
    }

    /// That range is under way on another lane after all.
    pub(crate) fn not_lost(&mut self, range: ByteRange) {
        self.again.remove(range);
    }

    /// The next bytes to send, at most `max`; what was lost first.
    pub(crate) fn next(&mut self, max: u64) -> Option<ByteRange> {
        if let Some(span) = self.first_again() {
            let range = ByteRange::new(span.start, span.end.min(span.start + max));
            self.again.remove(range);
            return Some(range);
        }
        let end = self.ready.min(self.credit).min(self.next + max);
        if self.next >= end {
            return None;
        }
        let range = ByteRange::new(self.next, end);
        self.next = end;
        Some(range)
    }

    /// What was lost and the peer wants: after a restart it may want less than it did.
    fn first_again(&self) -> Option<ByteRange> {
        let span = self.again.iter().next()?;
        let span = span.intersect(ByteRange::new(0, self.credit.min(self.ready)));
        (!span.is_empty()).then_some(span)
    }

    /// Up to where it was sent, if only over a lane that is gone.
    pub(crate) const fn sent(&self) -> u64 {
        self.next
    }

    /// Whether there is something to send now.
    pub(crate) fn has_next(&self) -> bool {
        self.first_again().is_some() || self.next < self.ready.min(self.credit)
    }

    /// Whether what was lost waits to be sent, and the peer wants it.
    pub(crate) fn has_lost(&self) -> bool {
        self.first_again().is_some()
    }

    /// In how many pieces that is.
    pub(crate) fn lost_spans(&self) -> usize {
        self.again.spans()
    }

    /// Whether nothing is written any more, and all of it is on some lane.
    pub(crate) fn is_all_sent(&self) -> bool {
        self.finished && self.next == self.end && self.again.is_empty()
    }

    /// Whether all bytes are sent, and the end may be told.
    pub(crate) fn may_tell_end(&self) -> bool {
        self.is_all_sent() && !self.is_done()
    }
}
