//! Room that is promised and not used yet: [`Promises`]. Pure: the time comes in.
//!
//! Promises are in memory alone. After a restart a sender that goes on asks again. A promise lapses [`LAPSE`] after the
//! last new byte. Once no message of its upload comes, it is bounded by what has come. So each promised byte costs its
//! sender a sent byte, or a message under way.
//!
//! Bounds: [`PROMISES_MAX`] uploads, and [`OF_ONE_MAX`] of one payer; of each some 200 bytes.

use crate::model::{Payer, Sum};
use hoop_units::{Timestamp, UploadId};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// How long an upload keeps unused room after its last byte: longer than a slow sender's silence, or a gateway's wait
/// before it tries again.
pub const LAPSE: Duration = Duration::from_secs(300);

/// What is promised to an upload at first: most photos.
pub const FIRST: u64 = 1 << 20;

/// The most that is promised ahead of what has come.
pub const AHEAD_MAX: u64 = 16 << 20;

/// Uploads with a promise: 13 MiB of memory.
pub const PROMISES_MAX: usize = 65_536;

/// Those of one payer: a gateway that delivers a full camera sends four at a time.
pub const OF_ONE_MAX: usize = 1_024;

/// For how many bytes in all an upload of `total` bytes has room, once `come` have come: as much again, within bounds.
/// So room by promises alone costs about as many sent bytes.
pub fn reach(come: u64, total: u64) -> u64 {
    come.saturating_add(come.clamp(FIRST, AHEAD_MAX)).min(total)
}

/// For how many bytes an upload has room where there is little.
pub fn least(come: u64, total: u64) -> u64 {
    come.saturating_add(FIRST).min(total)
}

#[derive(Clone, Copy, Debug)]
struct Promise {
    payer: Payer,
    bytes: u64,
    lapses: Timestamp,
}

/// The promises that hold now.
#[derive(Debug, Default)]
pub struct Promises {
    of: BTreeMap<UploadId, Promise>,
    by_time: BTreeSet<(Timestamp, UploadId)>,
    by_payer: BTreeMap<Payer, Sum>,
    all: u64,
}

impl Promises {
    /// Promises so much to an upload, in place of what it was promised before.
    pub fn put(&mut self, id: UploadId, payer: Payer, bytes: u64, now: Timestamp) {
        self.give_back(id);
        let lapses = now + LAPSE;
        self.of.insert(id, Promise { payer, bytes, lapses });
        self.by_time.insert((lapses, id));
        let sum = self.by_payer.entry(payer).or_default();
        (sum.uploads, sum.bytes) = (sum.uploads + 1, sum.bytes.saturating_add(bytes));
        self.all = self.all.saturating_add(bytes);
    }

    /// Whether it was promised anything that holds.
    pub fn has(&self, id: UploadId) -> bool {
        self.of.contains_key(&id)
    }

    /// What it was promised that holds, in bytes, if that payer pays for it.
    pub fn to(&self, id: UploadId, payer: Payer) -> Option<u64> {
        self.of.get(&id).filter(|promise| promise.payer == payer).map(|promise| promise.bytes)
    }

    /// New bytes of it have come: the promise lapses later.
    pub fn touch(&mut self, id: UploadId, now: Timestamp) {
        if let Some(promise) = self.of.get(&id).copied() {
            self.put(id, promise.payer, promise.bytes, now);
        }
    }

    /// Bounds an upload's promise by so many bytes. The rest counts as stored now, or is let go.
    pub fn keep(&mut self, id: UploadId, bytes: u64, now: Timestamp) {
        match self.of.get(&id).copied() {
            Some(_) if bytes == 0 => self.give_back(id),
            Some(promise) => self.put(id, promise.payer, promise.bytes.min(bytes), now),
            None => {}
        }
    }

    /// An upload needs no promise any more.
    pub fn give_back(&mut self, id: UploadId) {
        let Some(promise) = self.of.remove(&id) else { return };
        self.by_time.remove(&(promise.lapses, id));
        self.all -= promise.bytes;
        let Some(sum) = self.by_payer.get_mut(&promise.payer) else { return };
        (sum.uploads, sum.bytes) = (sum.uploads - 1, sum.bytes - promise.bytes);
        if sum.uploads == 0 {
            self.by_payer.remove(&promise.payer);
        }
    }

    /// Forgets the promises whose uploads have brought nothing for long.
    pub fn lapse(&mut self, now: Timestamp) {
        while let Some((lapses, id)) = self.by_time.first().copied().filter(|(lapses, _)| *lapses <= now) {
            debug_assert!(self.of.get(&id).is_some_and(|promise| promise.lapses == lapses));
            self.give_back(id);
        }
    }

    /// What is promised to other uploads than this: in all, and to this payer.
    pub fn besides(&self, id: UploadId, payer: Payer) -> (Sum, Sum) {
        let mut own = self.by_payer.get(&payer).copied().unwrap_or_default();
        let mut all = Sum { uploads: self.of.len(), bytes: self.all };
        if let Some(promise) = self.of.get(&id) {
            let less = |sum: &mut Sum| (sum.uploads, sum.bytes) = (sum.uploads - 1, sum.bytes - promise.bytes);
            less(&mut all);
            if promise.payer == payer {
                less(&mut own);
            }
        }
        (all, own)
    }

    /// What is promised in all, in bytes.
    pub const fn all(&self) -> u64 {
        self.all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: Payer = Payer::Owner([1; 16]);
    const B: Payer = Payer::Address([1; 16]);

    fn id(n: u8) -> UploadId {
        UploadId([n; 16])
    }

    fn at(secs: u64) -> Timestamp {
        Timestamp::from_secs(secs)
    }

    #[test]
    fn a_promise_is_about_as_much_as_has_come() {
        let mib = |come: u64, total: u64| reach(come << 20, total << 20) >> 20;
        assert_eq!([mib(0, 99), mib(1, 99), mib(3, 99), mib(40, 99), mib(90, 99)], [1, 2, 6, 56, 99]);
        assert_eq!(reach(0, 500), 500);
        assert_eq!(reach(u64::MAX, u64::MAX), u64::MAX);
    }

    #[test]
    fn a_promise_lapses_some_minutes_after_the_last_byte() {
        let mut promises = Promises::default();
        promises.put(id(1), A, 100, at(0));
        promises.put(id(2), A, 10, at(0));
        promises.touch(id(1), at(200));
        promises.lapse(at(299));
        assert_eq!(promises.all(), 110);
        promises.lapse(at(300));
        assert_eq!(promises.all(), 100);
        promises.lapse(at(500));
        assert_eq!((promises.all(), promises.by_payer.len(), promises.by_time.len()), (0, 0, 0));
    }

    #[test]
    fn promises_are_counted_by_payer_without_the_asking_upload() {
        let mut promises = Promises::default();
        promises.put(id(1), A, 100, at(0));
        promises.put(id(2), A, 10, at(0));
        promises.put(id(3), B, 1, at(0));
        let sum = |uploads, bytes| Sum { uploads, bytes };
        assert_eq!(promises.besides(id(9), A), (sum(3, 111), sum(2, 110)));
        assert_eq!(promises.besides(id(1), A), (sum(2, 11), sum(1, 10)));
        assert_eq!(promises.besides(id(1), B), (sum(2, 11), sum(1, 1)));
        promises.put(id(1), B, 5, at(1));
        assert_eq!(promises.besides(id(9), B), (sum(3, 16), sum(2, 6)), "another pays now");
        promises.keep(id(1), 2, at(1));
        promises.keep(id(2), 50, at(1));
        assert_eq!(promises.all(), 13, "what is stored is promised no longer");
        promises.keep(id(3), 0, at(1));
        assert_eq!(promises.besides(id(9), B).1, sum(1, 2), "nor does it count among the uploads");
        (1..=4).for_each(|n| promises.give_back(id(n)));
        assert_eq!((promises.all(), promises.by_payer.len(), promises.by_time.len()), (0, 0, 0));
    }
}
