//! Cells of one size in chunks: [`Slab`].

use alloc::boxed::Box;
use alloc::vec;
use alloc::vec::Vec;

/// About how large a chunk is where there are many: little beside what all hold, and so much that it is given back to the system whole.
pub const CHUNK_BYTES: usize = 256 * 1024;

/// Cells that a word of the map of a chunk stands for.
const WORD: usize = u64::BITS as usize;

/// Cells of `stride` values each, named by a number that stays theirs. A chunk in which none is left is given back.
#[derive(Debug)]
pub struct Slab<T> {
    stride: usize,
    cells: usize,
    chunks: Vec<Option<Chunk<T>>>,
    /// Chunks with room, each once.
    roomy: Vec<u32>,
    /// Chunks that were given back.
    absent: Vec<u32>,
    len: usize,
}

#[derive(Debug)]
struct Chunk<T> {
    values: Box<[T]>,
    used: Box<[u64]>,
    /// No word before this one has room.
    full: usize,
    len: usize,
    is_roomy: bool,
}

impl<T: Copy + Default> Slab<T> {
    pub fn new(stride: usize, chunk_bytes: usize) -> Self {
        let cells = (chunk_bytes / (size_of::<T>() * stride) / WORD).max(1) * WORD;
        Self { stride, cells, chunks: Vec::new(), roomy: Vec::new(), absent: Vec::new(), len: 0 }
    }

    /// Cells in use.
    pub const fn len(&self) -> usize {
        self.len
    }

    /// What the chunks take, in bytes.
    pub fn bytes(&self) -> usize {
        (self.chunks.len() - self.absent.len()) * self.cells * self.stride * size_of::<T>()
    }

    /// A cell of default values.
    pub fn insert(&mut self) -> u32 {
        let number = self.roomy.last().copied().unwrap_or_else(|| self.add_chunk());
        let chunk = self.chunks[number as usize].as_mut().expect("a chunk with room is there");
        let ahead = chunk.used[chunk.full..].iter().position(|bits| *bits != u64::MAX).expect("it has room");
        chunk.full += ahead;
        let word = chunk.full;
        let bits = &mut chunk.used[word];
        let bit = bits.trailing_ones() as usize;
        *bits |= 1 << bit;
        chunk.len += 1;
        if chunk.len == self.cells {
            chunk.is_roomy = false;
            self.roomy.pop();
        }
        let at = word * WORD + bit;
        chunk.values[at * self.stride..][..self.stride].fill(T::default());
        self.len += 1;
        number * self.cells as u32 + at as u32
    }

    fn add_chunk(&mut self) -> u32 {
        let chunk = Chunk {
            values: vec![T::default(); self.cells * self.stride].into_boxed_slice(),
            used: vec![0; self.cells / WORD].into_boxed_slice(),
            full: 0,
            len: 0,
            is_roomy: true,
        };
        let number = self.absent.pop().unwrap_or_else(|| {
            self.chunks.push(None);
            self.chunks.len() as u32 - 1
        });
        self.chunks[number as usize] = Some(chunk);
        self.roomy.push(number);
        number
    }

    /// Gives a cell back.
    pub fn remove(&mut self, cell: u32) {
        let (number, at) = self.split(cell);
        let chunk = self.chunks[number].as_mut().expect("a cell in use has its chunk");
        debug_assert!(chunk.used[at / WORD] >> (at % WORD) & 1 == 1, "a cell is given back once");
        chunk.used[at / WORD] &= !(1 << (at % WORD));
        chunk.full = chunk.full.min(at / WORD);
        chunk.len -= 1;
        self.len -= 1;
        if !chunk.is_roomy {
            chunk.is_roomy = true;
            self.roomy.push(number as u32);
        }
        // One stays, so that a single cell that comes and goes costs nothing.
        if chunk.len == 0 && self.roomy.len() > 1 {
            self.chunks[number] = None;
            self.roomy.retain(|roomy| *roomy != number as u32);
            self.absent.push(number as u32);
        }
    }

    pub fn get(&self, cell: u32) -> &[T] {
        let (number, at) = self.split(cell);
        let chunk = self.chunks[number].as_ref().expect("a cell in use has its chunk");
        &chunk.values[at * self.stride..][..self.stride]
    }

    pub fn get_mut(&mut self, cell: u32) -> &mut [T] {
        let (number, at) = self.split(cell);
        let chunk = self.chunks[number].as_mut().expect("a cell in use has its chunk");
        &mut chunk.values[at * self.stride..][..self.stride]
    }

    const fn split(&self, cell: u32) -> (usize, usize) {
        (cell as usize / self.cells, cell as usize % self.cells)
    }
}

impl<T: Copy + Default> core::ops::Index<u32> for Slab<T> {
    type Output = T;

    fn index(&self, cell: u32) -> &T {
        &self.get(cell)[0]
    }
}

impl<T: Copy + Default> core::ops::IndexMut<u32> for Slab<T> {
    fn index_mut(&mut self, cell: u32) -> &mut T {
        &mut self.get_mut(cell)[0]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cells_keep_their_numbers_and_empty_chunks_are_given_back() {
        let mut slab = Slab::<u64>::new(2, 65_536);
        let cells: Vec<u32> = (0..10_000).map(|_| slab.insert()).collect();
        for (number, cell) in cells.iter().enumerate() {
            slab.get_mut(*cell).fill(number as u64);
        }
        for (number, cell) in cells.iter().enumerate() {
            assert_eq!(slab.get(*cell), [number as u64; 2]);
        }
        let full = slab.bytes();
        cells[100..].iter().for_each(|cell| slab.remove(*cell));
        assert!(slab.bytes() <= 2 * 65_536 && slab.bytes() < full, "{} bytes are held", slab.bytes());
        for (number, cell) in cells[..100].iter().enumerate() {
            assert_eq!(slab.get(*cell), [number as u64; 2]);
        }
        let again = slab.insert();
        assert_eq!(slab.get(again), [0; 2], "what was there before is not to be seen");
        assert_eq!(slab.len(), 101);
    }
}
