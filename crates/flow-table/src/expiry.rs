//! What expires first: [`Expiry`].

use alloc::vec::Vec;

/// Where the order notes what it knows of an entry.
pub trait Entries {
    /// When it expires.
    fn expires(&self, entry: u32) -> u32;
    /// Where in the order it is.
    fn rank(&self, entry: u32) -> u32;
    /// Notes where it is.
    fn set_rank(&mut self, entry: u32, rank: u32);
}

/// A binary heap of entries, of which each knows its place, so that any can be moved or taken out in O(log n).
#[derive(Debug, Default)]
pub struct Expiry {
    heap: Vec<u32>,
}

impl Expiry {
    pub fn first(&self) -> Option<u32> {
        self.heap.first().copied()
    }

    pub fn bytes(&self) -> usize {
        self.heap.capacity() * size_of::<u32>()
    }

    pub fn insert(&mut self, entry: u32, entries: &mut impl Entries) {
        if self.heap.len() == self.heap.capacity() {
            // Not to twice the size: that would be four octets a flow for nothing.
            self.heap.reserve_exact(self.heap.len() / 8 + 64);
        }
        self.heap.push(entry);
        self.rise(self.heap.len() - 1, entries);
    }

    pub fn remove(&mut self, entry: u32, entries: &mut impl Entries) {
        let rank = entries.rank(entry) as usize;
        self.heap.swap_remove(rank);
        if rank < self.heap.len() {
            self.settle(rank, entries);
        }
        if self.heap.len() < self.heap.capacity() / 4 {
            self.heap.shrink_to(self.heap.len() * 2);
        }
    }

    /// Its time is another than it was.
    pub fn changed(&mut self, entry: u32, entries: &mut impl Entries) {
        self.settle(entries.rank(entry) as usize, entries);
    }

    fn settle(&mut self, rank: usize, entries: &mut impl Entries) {
        let risen = self.rise(rank, entries);
        self.sink(risen, entries);
    }

    fn rise(&mut self, mut rank: usize, entries: &mut impl Entries) -> usize {
        let entry = self.heap[rank];
        let expires = entries.expires(entry);
        while rank > 0 {
            let above = (rank - 1) / 2;
            if entries.expires(self.heap[above]) <= expires {
                break;
            }
            self.set(rank, self.heap[above], entries);
            rank = above;
        }
        self.set(rank, entry, entries);
        rank
    }

    fn sink(&mut self, mut rank: usize, entries: &mut impl Entries) {
        let entry = self.heap[rank];
        let expires = entries.expires(entry);
        loop {
            let below = [2 * rank + 1, 2 * rank + 2].into_iter().filter(|below| *below < self.heap.len());
            let Some(least) = below.min_by_key(|below| entries.expires(self.heap[*below])) else { break };
            if entries.expires(self.heap[least]) >= expires {
                break;
            }
            self.set(rank, self.heap[least], entries);
            rank = least;
        }
        self.set(rank, entry, entries);
    }

    fn set(&mut self, rank: usize, entry: u32, entries: &mut impl Entries) {
        self.heap[rank] = entry;
        entries.set_rank(entry, rank as u32);
    }
}
