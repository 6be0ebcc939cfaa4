//! What of a flow is on its way to disk, before it is acknowledged ([`AckPolicy::Stored`](crate::AckPolicy)): [`Spool`]. What waits is bounded: of each flow there is no
//! more than its window that is not acknowledged.

use crate::memory::buffer::ReceiveBuffer;
use bytes::Bytes;
use std::collections::VecDeque;

/// How much of one flow is brought at once, so that others have their turn.
const ROUND_MAX: usize = 1 << 20;

/// How much is read at once of what an earlier server has left, and held for the application.
pub(crate) const LOAD_MAX: u64 = 256 * 1024;

/// What of a flow is on its way to disk.
#[derive(Debug)]
pub(crate) struct Spool {
    /// What has come and is not taken up.
    queue: ReceiveBuffer,
    /// What is taken up, in order, and not known to be on disk; from `offset` on.
    pending: VecDeque<Bytes>,
    offset: u64,
    /// What lies before it the application needs no more.
    consumed: u64,
    /// The store does not know that.
    is_news: bool,
    /// Somebody brings it.
    is_busy: bool,
    /// The store took no more.
    is_stuck: bool,
    /// What lies before it an earlier server has left.
    left: u64,
    /// Some of that is being read.
    is_loading: bool,
}

/// What is brought in one round.
#[derive(Debug)]
pub(crate) struct Portion {
    pub(crate) consumed: u64,
    pub(crate) offset: u64,
    pub(crate) bytes: Vec<Bytes>,
}

impl Spool {
    /// What lies before `kept` is on disk.
    pub(crate) fn new(kept: u64) -> Self {
        Self {
            queue: ReceiveBuffer::for_long(kept),
            pending: VecDeque::new(),
            offset: kept,
            consumed: 0,
            is_news: false,
            is_busy: false,
            is_stuck: false,
            left: kept,
            is_loading: false,
        }
    }

    /// Bytes that have not come before.
    pub(crate) fn insert(&mut self, offset: u64, bytes: Bytes) {
        self.queue.insert(offset, bytes);
    }

    /// The application needs nothing before `offset` any more.
    pub(crate) fn consume(&mut self, offset: u64) {
        self.is_news |= offset > self.consumed;
        self.consumed = self.consumed.max(offset);
    }

    /// How many bytes wait.
    pub(crate) fn len(&self) -> u64 {
        self.queue.read() - self.offset + self.queue.held()
    }

    /// Whether somebody is to bring what there is, from now on.
    pub(crate) fn begins(&mut self) -> bool {
        let has_bytes = !self.pending.is_empty() || self.queue.has_ready();
        let begins = !self.is_busy && (self.is_news || (has_bytes && !self.is_stuck));
        self.is_busy |= begins;
        begins
    }

    /// What the application needs no more, to be told to the store.
    pub(crate) const fn take_consumed(&mut self) -> u64 {
        self.is_news = false;
        self.consumed
    }

    /// What is to be brought now.
    pub(crate) fn take(&mut self) -> Portion {
        let mut len: usize = self.pending.iter().map(Bytes::len).sum();
        while len < ROUND_MAX
            && let Some(bytes) = self.queue.next(ROUND_MAX - len)
        {
            len += bytes.len();
            self.pending.push_back(bytes);
        }
        let bytes = self.pending.iter().cloned().collect();
        Portion { consumed: self.take_consumed(), offset: self.offset, bytes }
    }

    /// What lies before `end` is on disk.
    pub(crate) fn done(&mut self, end: u64, is_stuck: bool) {
        while let Some(first) = self.pending.front()
            && self.offset + first.len() as u64 <= end
        {
            self.offset += first.len() as u64;
            self.pending.pop_front();
        }
        (self.is_busy, self.is_stuck) = (false, is_stuck);
    }

    /// What is to be read of what an earlier server has left, where the application has come to `whole` and `ready` bytes wait for it.
    pub(crate) fn begins_to_load(&mut self, whole: u64, ready: u64) -> bool {
        let begins = !self.is_loading && whole < self.left && ready < LOAD_MAX / 2;
        self.is_loading |= begins;
        begins
    }

    /// How much is to be read from `whole` on.
    pub(crate) fn to_load(&self, whole: u64) -> usize {
        self.left.saturating_sub(whole).min(LOAD_MAX) as usize
    }

    pub(crate) const fn loaded(&mut self) {
        self.is_loading = false;
    }

    /// It may be tried again.
    pub(crate) const fn try_again(&mut self) {
        self.is_stuck = false;
    }
}
