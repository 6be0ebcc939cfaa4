//! What expires first: [`Expiry`].

use alloc::vec::Vec;

/// Where the order notes the rank of each entry.
pub trait Ranks {
    /// The rank that was noted last.
    fn rank(&self, entry: u32) -> u32;
    /// Notes it.
    fn set_rank(&mut self, entry: u32, rank: u32);
}

/// Each has so many below it: a million are ten levels, and those below one lie side by side.
const BELOW: usize = 4;

#[derive(Clone, Copy, Debug)]
struct Item {
    expires: u32,
    entry: u32,
}

/// A heap of entries, of which each knows its rank, so that any can be moved or taken out in O(log n).
#[derive(Debug, Default)]
pub struct Expiry {
    heap: Vec<Item>,
}

impl Expiry {
    /// The one that expires first, and when.
    pub fn first(&self) -> Option<(u32, u32)> {
        self.heap.first().map(|item| (item.entry, item.expires))
    }

    /// One that expires after this, but before `never`. Looks at all of them if there is none.
    pub fn later(&self, after: u32, never: u32) -> Option<u32> {
        let later = |item: &&Item| item.expires > after && item.expires < never;
        self.heap.iter().rev().find(later).map(|item| item.entry)
    }

    pub fn bytes(&self) -> usize {
        self.heap.capacity() * size_of::<Item>()
    }

    pub fn insert(&mut self, entry: u32, expires: u32, ranks: &mut impl Ranks) {
        if self.heap.len() == self.heap.capacity() {
            // Not to twice the size: that would be eight bytes a flow for nothing.
            self.heap.reserve_exact(self.heap.len() / 16 + 64);
        }
        self.heap.push(Item { expires, entry });
        self.rise(self.heap.len() - 1, ranks);
    }

    pub fn remove(&mut self, entry: u32, ranks: &mut impl Ranks) {
        let rank = ranks.rank(entry) as usize;
        self.heap.swap_remove(rank);
        if rank < self.heap.len() {
            self.settle(rank, ranks);
        }
        if self.heap.len() < self.heap.capacity() / 4 {
            self.heap.shrink_to(self.heap.len() * 2);
        }
    }

    /// It expires at another time than was said.
    pub fn change(&mut self, entry: u32, expires: u32, ranks: &mut impl Ranks) {
        let rank = ranks.rank(entry) as usize;
        self.heap[rank].expires = expires;
        self.settle(rank, ranks);
    }

    fn settle(&mut self, rank: usize, ranks: &mut impl Ranks) {
        let risen = self.rise(rank, ranks);
        self.sink(risen, ranks);
    }

    fn rise(&mut self, mut rank: usize, ranks: &mut impl Ranks) -> usize {
        let item = self.heap[rank];
        while rank > 0 {
            let above = (rank - 1) / BELOW;
            if self.heap[above].expires <= item.expires {
                break;
            }
            self.set(rank, self.heap[above], ranks);
            rank = above;
        }
        self.set(rank, item, ranks);
        rank
    }

    fn sink(&mut self, mut rank: usize, ranks: &mut impl Ranks) {
        let item = self.heap[rank];
        loop {
            let first = BELOW * rank + 1;
            let below = first..(first + BELOW).min(self.heap.len());
            let Some(least) = below.min_by_key(|below| self.heap[*below].expires) else { break };
            if self.heap[least].expires >= item.expires {
                break;
            }
            self.set(rank, self.heap[least], ranks);
            rank = least;
        }
        self.set(rank, item, ranks);
    }

    fn set(&mut self, rank: usize, item: Item, ranks: &mut impl Ranks) {
        self.heap[rank] = item;
        ranks.set_rank(item.entry, rank as u32);
    }
}
