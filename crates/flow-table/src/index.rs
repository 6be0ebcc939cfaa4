//! Entries by the prints of their names: [`Index`].

use alloc::vec::Vec;
use hashbrown::HashTable;

/// The widths of the shards, in 256ths of all prints: each is a sixteenth root of two wider than the one before.
const WIDTHS: [usize; 16] = [11, 12, 12, 13, 13, 14, 15, 15, 16, 17, 17, 18, 19, 20, 21, 23];

/// The shard of a print by its first eight bits.
const SHARD_OF: [u8; 256] = {
    let (mut shards, mut at, mut shard) = ([0; 256], 0, 0);
    while shard < WIDTHS.len() {
        let end = at + WIDTHS[shard];
        while at < end {
            shards[at] = shard as u8;
            at += 1;
        }
        shard += 1;
    }
    assert!(at == 256, "each print has a shard");
    shards
};

/// A hash table in shards of unlike widths. A hash table has up to twice the room that it needs, and doubles at once; of these one doubles after another, so that there is never much
/// more room than is needed on average, and never much to move at once.
#[derive(Debug)]
pub struct Index {
    shards: Vec<HashTable<u32>>,
}

impl Index {
    pub fn new() -> Self {
        Self { shards: WIDTHS.iter().map(|_| HashTable::new()).collect() }
    }

    /// What it takes, in bytes.
    pub fn bytes(&self) -> usize {
        self.shards.iter().map(HashTable::allocation_size).sum()
    }

    /// The entries that may have this print.
    pub fn find(&self, print: u32) -> impl Iterator<Item = u32> {
        self.shards[shard(print)].iter_hash(spread(print)).copied()
    }

    /// All entries.
    pub fn iter(&self) -> impl Iterator<Item = u32> {
        self.shards.iter().flat_map(HashTable::iter).copied()
    }

    /// Adds an entry; `print_of` knows those of all that are there.
    pub fn insert(&mut self, print: u32, entry: u32, print_of: impl Fn(u32) -> u32) {
        self.shards[shard(print)].insert_unique(spread(print), entry, |entry| spread(print_of(*entry)));
    }

    pub fn remove(&mut self, print: u32, entry: u32) {
        if let Ok(known) = self.shards[shard(print)].find_entry(spread(print), |known| *known == entry) {
            known.remove();
        }
    }
}

const fn shard(print: u32) -> usize {
    SHARD_OF[(print >> 24) as usize] as usize
}

/// A hash of 64 bits for a hash table, which looks at those at either end.
const fn spread(print: u32) -> u64 {
    (print as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_is_never_much_more_room_than_is_needed() {
        let print = |entry: u32| entry.wrapping_mul(0x9e37_79b9) ^ entry >> 7;
        let mut index = Index::new();
        for entry in 0..300_000 {
            index.insert(print(entry), entry, print);
            let each = index.bytes() as f64 / f64::from(entry + 1);
            assert!(entry < 20_000 || each < 9.5, "{each} bytes for each of {entry}");
        }
        assert!((0..300_000).all(|entry| index.find(print(entry)).any(|known| known == entry)));
        assert_eq!(index.iter().count(), 300_000);
        (0..300_000).for_each(|entry| index.remove(print(entry), entry));
        assert_eq!(index.iter().count(), 0);
    }
}
