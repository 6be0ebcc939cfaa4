//! What a flow receives: [`Incoming`], one direction as its receiver sees it.

use crate::record::Record;
use alloc::vec::Vec;
use hoop_units::{ByteRange, RangeSet};

/// The most gaps in what was received: lanes leave one each; who leaves more spends our memory.
pub const GAPS_MAX: usize = 256;

/// One direction, at its receiver. The bytes themselves go to the caller, who says when they are kept and when they are consumed.
#[derive(Clone, Debug)]
pub struct Incoming {
    /// All before it has come.
    whole: u64,
    /// What has come beyond it.
    beyond: RangeSet,
    /// All before it is kept, and may be acknowledged.
    kept: u64,
    /// All before it is consumed.
    consumed: u64,
    /// How far beyond what is kept and consumed the peer may send. Not beyond what is consumed alone: after a restart it could not be told how far
    /// that was.
    window: u64,
    /// What the peer was told that it may send.
    granted: u64,
    /// How long the stream is, if that was told.
    end: Option<u64>,
    /// Whether what comes is kept at once, or the caller says when.
    keeps_at_once: bool,
}

/// The peer does what it must not.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Overrun {
    /// It sends more than it was granted.
    Credit,
    /// It sends past the end that it told, or tells another.
    End,
    /// It leaves too many gaps.
    Gaps,
}

impl Incoming {
    /// A stream of which nothing has come; `granted` is what the peer may send by itself.
    pub(crate) const fn new(window: u64, granted: u64, keeps_at_once: bool) -> Self {
        let beyond = RangeSet::new();
        Self { whole: 0, beyond, kept: 0, consumed: 0, window, granted, end: None, keeps_at_once }
    }

    /// A stream as it was kept. `granted` may be an old number: what was granted since lies within the window.
    pub(crate) fn restored(record: &Record, window: u64, keeps_at_once: bool) -> Self {
        let Record { kept, granted, end, .. } = *record;
        let (beyond, granted) = (RangeSet::new(), granted.max(kept.saturating_add(window)));
        Self { whole: kept, beyond, kept, consumed: record.consumed.min(kept), window, granted, end, keeps_at_once }
    }

    /// What the peer was told that it may send.
    pub const fn granted(&self) -> u64 {
        self.granted
    }

    /// Takes in that `range` has come; returns what of it is new, in order.
    pub(crate) fn data(&mut self, range: ByteRange) -> Result<Vec<ByteRange>, Overrun> {
        if range.end > self.granted {
            return Err(Overrun::Credit);
        }
        if self.end.is_some_and(|end| range.end > end) {
            return Err(Overrun::End);
        }
        let rest = ByteRange::new(range.start.max(self.whole).min(range.end), range.end);
        if rest.is_empty() {
            return Ok(Vec::new());
        }
        let new = match self.beyond.is_empty() {
            true => [rest].into(),
            false => self.new_in(rest),
        };
        if rest.start == self.whole {
            self.whole = rest.end;
            self.join();
        } else {
            if self.beyond.spans() >= GAPS_MAX && !self.beyond.touches(rest) {
                return Err(Overrun::Gaps);
            }
            self.beyond.insert(rest);
        }
        if self.keeps_at_once {
            self.kept = self.whole;
        }
        Ok(new)
    }

    fn new_in(&self, range: ByteRange) -> Vec<ByteRange> {
        let (mut new, mut at) = (Vec::new(), range.start);
        for span in self.beyond.overlapping(range) {
            new.push(ByteRange::new(at, span.start.max(at)));
            at = span.end;
        }
        new.push(ByteRange::new(at.min(range.end), range.end));
        new.retain(|range| !range.is_empty());
        new
    }

    /// What lay beyond and touches now.
    fn join(&mut self) {
        let touching = |beyond: &RangeSet, whole| beyond.iter().next().filter(|span| span.start <= whole);
        while let Some(span) = touching(&self.beyond, self.whole) {
            self.beyond.remove(span);
            self.whole = self.whole.max(span.end);
        }
    }

    /// The peer says where the stream ends.
    pub(crate) fn fin(&mut self, end: u64) -> Result<(), Overrun> {
        let most = self.beyond.end().max(self.whole);
        match self.end {
            Some(known) if known != end => Err(Overrun::End),
            _ if end < most => Err(Overrun::End),
            _ => {
                self.end = Some(end);
                Ok(())
            }
        }
    }

    /// All before `offset` is kept.
    pub(crate) fn keep(&mut self, offset: u64) {
        self.kept = self.kept.max(offset.min(self.whole));
    }

    /// All before `offset` is consumed.
    pub(crate) fn consume(&mut self, offset: u64) {
        self.consumed = self.consumed.max(offset.min(self.whole));
    }

    /// How far beyond what is consumed the peer may send from now on.
    pub(crate) const fn set_window(&mut self, window: u64) {
        self.window = window;
    }

    /// How far beyond what is consumed the peer may send.
    pub const fn window(&self) -> u64 {
        self.window
    }

    /// What an ACK says: what is kept, the end counting as one byte more, and what the peer may send. It may from now on.
    pub(crate) fn grant(&mut self) -> (u64, u64) {
        self.granted = self.wanted();
        (self.received(), self.granted)
    }

    /// All before it is kept; the end counts as one byte more.
    pub(crate) fn received(&self) -> u64 {
        self.kept + u64::from(self.end == Some(self.kept))
    }

    /// How much more the peer could be granted.
    pub(crate) fn ungranted(&self) -> u64 {
        self.wanted() - self.granted
    }

    fn wanted(&self) -> u64 {
        self.granted.max(self.consumed.min(self.kept).saturating_add(self.window))
    }

    /// All before it has come.
    pub const fn whole(&self) -> u64 {
        self.whole
    }

    /// All before it is consumed.
    pub const fn consumed(&self) -> u64 {
        self.consumed
    }

    /// All before it is kept.
    pub const fn kept(&self) -> u64 {
        self.kept
    }

    /// How long the stream is, if that was told.
    pub const fn end(&self) -> Option<u64> {
        self.end
    }

    /// Whether all of it has come and is kept.
    pub fn is_done(&self) -> bool {
        self.end == Some(self.kept)
    }
}
