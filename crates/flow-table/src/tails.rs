//! Bytes of any length, in cells of multiples of 16: [`Tails`].

use crate::image::TAIL_MAX;
use crate::slab::Slab;
use alloc::vec::Vec;

/// Lengths are rounded up to multiples of it.
const UNIT: usize = 16;

/// About how large a chunk is: there may be one of each length.
const CHUNK_BYTES: usize = 64 * 1024;

/// A slab for each length. There is no word for where something is but its number and its length.
#[derive(Debug)]
pub struct Tails {
    classes: Vec<Slab<[u8; UNIT]>>,
}

impl Tails {
    pub fn new() -> Self {
        Self { classes: (1..=TAIL_MAX.div_ceil(UNIT)).map(|units| Slab::new(units, CHUNK_BYTES)).collect() }
    }

    /// What the chunks take, in bytes.
    pub fn bytes(&self) -> usize {
        self.classes.iter().map(Slab::bytes).sum()
    }

    /// Keeps bytes, at most [`TAIL_MAX`]; they are found by the number and their length.
    pub fn insert(&mut self, bytes: &[u8]) -> u32 {
        let Some(class) = bytes.len().div_ceil(UNIT).checked_sub(1) else { return 0 };
        let class = &mut self.classes[class];
        let cell = class.insert();
        class.get_mut(cell).as_flattened_mut()[..bytes.len()].copy_from_slice(bytes);
        cell
    }

    pub fn get(&self, cell: u32, len: usize) -> &[u8] {
        match len.div_ceil(UNIT).checked_sub(1) {
            Some(class) => &self.classes[class].get(cell).as_flattened()[..len],
            None => &[],
        }
    }

    pub fn remove(&mut self, cell: u32, len: usize) {
        if let Some(class) = len.div_ceil(UNIT).checked_sub(1) {
            self.classes[class].remove(cell);
        }
    }
}
