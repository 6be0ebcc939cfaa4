//! Which bytes of a body are in memory, which are on disk, and which nobody needs any more: [`Window`]. Pure.

use bytes::Bytes;
use std::collections::VecDeque;

/// A shorter piece holds a buffer that is much longer: a connection's, of 64 KiB. It is copied out of it.
const PIECE_WHOLE: usize = 32 << 10;

/// A piece of so many bytes that was handed out is not joined with others: whoever has it may hold it for as long as this does, as a flow holds what it has written. Of shorter ones a flow has a copy.
const PIECE_SHARED: usize = 1 << 10;

/// The bytes of a body, from the first that somebody needs to the last that has come. Each is in memory, or on disk, or both.
#[derive(Default, Debug)]
pub(in crate::server) struct Window {
    memory: VecDeque<Bytes>,
    /// The offset of the first byte in memory.
    first: u64,
    end: u64,
    /// All that is needed and lies before it is on disk.
    stored: u64,
    /// What lies before it nobody needs.
    released: u64,
    /// What lies before it was handed out.
    handed_out: u64,
}

impl Window {
    /// Of which what lies from `released` to `end` is on disk.
    pub(in crate::server) const fn new(released: u64, end: u64) -> Self {
        Self { memory: VecDeque::new(), first: end, end, stored: end, released, handed_out: released }
    }

    pub(in crate::server) const fn end(&self) -> u64 {
        self.end
    }

    pub(in crate::server) const fn stored(&self) -> u64 {
        self.stored
    }

    pub(in crate::server) const fn released(&self) -> u64 {
        self.released
    }

    /// More has come. Short pieces are joined, so that few are in memory however short they come: of those shorter than [`PIECE_WHOLE`] that follow each other, each is less than half of the
    /// one before it. A byte is copied a dozen times for that, if it comes alone.
    pub(in crate::server) fn push(&mut self, bytes: Bytes) {
        self.end += bytes.len() as u64;
        if bytes.len() >= PIECE_WHOLE {
            return self.memory.push_back(bytes);
        }
        let mut piece = bytes.to_vec();
        let (end, handed_out) = (self.end, self.handed_out);
        let is_joined = |last: &mut Bytes, piece: &[u8]| {
            let is_shared = last.len() >= PIECE_SHARED && end < handed_out + (last.len() + piece.len()) as u64;
            last.len() < PIECE_WHOLE && last.len() <= 2 * piece.len() && !is_shared
        };
        while let Some(last) = self.memory.pop_back_if(|last| is_joined(last, &piece)) {
            piece = [&last[..], &piece].concat();
        }
        self.memory.push_back(piece.into());
    }

    /// What lies before `offset` was handed out, and may be held elsewhere as long as here.
    pub(in crate::server) fn hand_out(&mut self, offset: u64) {
        self.handed_out = self.handed_out.max(offset);
    }

    /// Nobody needs what lies before `offset`.
    pub(in crate::server) fn release(&mut self, offset: u64) {
        self.released = self.released.max(offset.min(self.end));
        self.forget();
    }

    /// What lies before `offset` is on disk.
    pub(in crate::server) fn store(&mut self, offset: u64) {
        self.stored = self.stored.max(offset.min(self.end));
        self.forget();
    }

    /// Drops from memory what is on disk, or needed by nobody: whole pieces.
    fn forget(&mut self) {
        // What nobody needs is never stored.
        self.stored = self.stored.max(self.released);
        while let Some(piece) = self.memory.front() {
            let end = self.first + piece.len() as u64;
            if end > self.stored {
                return;
            }
            self.first = end;
            self.memory.pop_front();
        }
    }

    /// What is in memory from `offset` on: one piece. None: it is on disk, or has not come.
    pub(in crate::server) fn in_memory(&self, offset: u64) -> Option<Bytes> {
        let mut at = self.first;
        if offset < at || offset >= self.end {
            return None;
        }
        for piece in &self.memory {
            let end = at + piece.len() as u64;
            if offset < end {
                return Some(piece.slice((offset - at) as usize..));
            }
            at = end;
        }
        None
    }

    /// What is needed and not on disk, in order, at most `most` bytes and at least a piece; and where it begins.
    pub(in crate::server) fn unstored(&self, most: usize) -> (u64, Vec<Bytes>) {
        let (mut at, mut bytes, mut pieces) = (self.first, 0, Vec::new());
        for piece in &self.memory {
            let skipped = self.stored.saturating_sub(at).min(piece.len() as u64);
            at += piece.len() as u64;
            let piece = piece.slice(skipped as usize..);
            if piece.is_empty() {
                continue;
            }
            if bytes > 0 && bytes + piece.len() > most {
                break;
            }
            bytes += piece.len();
            pieces.push(piece);
        }
        (self.stored, pieces)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::BytesMut;
    use rand_core::{Rng as _, SeedableRng as _};
    use rand_pcg::Pcg64Mcg;

    fn byte(at: u64) -> u8 {
        (at.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as u8
    }

    #[test]
    fn each_byte_that_is_needed_is_in_memory_or_on_disk() {
        for seed in 0..300 {
            let mut rng = Pcg64Mcg::seed_from_u64(seed);
            let mut window = Window::new(0, 0);
            // What a disk holds, by offset; None where nothing was ever written.
            let mut disk: Vec<Option<u8>> = Vec::new();
            let (mut passed, mut released) = (0, 0);
            for _ in 0..400 {
                match rng.next_u32() % 4 {
                    0 => {
                        let len = u64::from(1 + rng.next_u32() % 9);
                        window.push((window.end()..window.end() + len).map(byte).collect());
                    }
                    1 => {
                        let (start, pieces) = window.unstored(1 + rng.next_u32() as usize % 30);
                        let bytes = pieces.concat();
                        disk.resize(disk.len().max(start as usize + bytes.len()), None);
                        for (at, byte) in bytes.iter().enumerate() {
                            disk[start as usize + at] = Some(*byte);
                        }
                        window.store(start + bytes.len() as u64);
                    }
                    2 => {
                        if let Some(piece) = window.in_memory(passed) {
                            assert!(piece.iter().zip(passed..).all(|(got, at)| *got == byte(at)), "seed {seed}");
                            passed += piece.len() as u64;
                        } else if passed < window.end() {
                            assert_eq!(disk[passed as usize], Some(byte(passed)), "seed {seed}");
                            passed += 1;
                        }
                    }
                    _ => {
                        released += rng.next_u64() % (passed - released + 1);
                        window.release(released);
                    }
                }
                for at in released..window.end() {
                    let in_memory = window.in_memory(at).map(|piece| piece[0]);
                    let on_disk = disk.get(at as usize).copied().flatten();
                    assert_eq!(in_memory.or(on_disk), Some(byte(at)), "seed {seed}, byte {at}");
                }
            }
        }
    }

    #[test]
    fn short_pieces_hold_no_large_buffers() {
        for (len, is_held) in [(1, false), (PIECE_WHOLE - 1, false), (PIECE_WHOLE, true)] {
            let (mut window, mut buffer) = (Window::new(0, 0), BytesMut::with_capacity(64 << 10));
            buffer.resize(len, 7);
            window.push(buffer.split().freeze());
            assert_eq!(!buffer.try_reclaim(64 << 10), is_held, "{len}");
        }
    }

    #[test]
    fn a_body_that_comes_in_short_pieces_has_few_of_them_in_memory() {
        for most in [1, 2, 100, 5_000] {
            let (mut rng, mut window) = (Pcg64Mcg::seed_from_u64(most), Window::new(0, 0));
            while window.end() < 1 << 20 {
                let len = 1 + u64::from(rng.next_u32()) % most;
                window.push((window.end()..window.end() + len).map(byte).collect());
            }
            let pieces = window.memory.len();
            assert!(pieces <= (1 << 20) / PIECE_WHOLE + 16, "{pieces} pieces, each of {most} bytes at most");
            assert!(window.memory.iter().flatten().zip(0..).all(|(got, at)| *got == byte(at)));
        }
    }

    #[test]
    fn a_piece_that_was_handed_out_is_not_copied_into_another() {
        let (mut window, mut held) = (Window::new(0, 0), Vec::new());
        for _ in 0..20 {
            window.push(Bytes::from(vec![7; 8 << 10]));
            let at = held.iter().map(|piece: &Bytes| piece.len() as u64).sum();
            held.push(window.in_memory(at).unwrap());
            window.hand_out(window.end());
        }
        let is_same = |(one, other): (&Bytes, &Bytes)| one.as_ptr() == other.as_ptr();
        assert!(window.memory.len() == held.len() && window.memory.iter().zip(&held).all(is_same));
        // Of what is on its way one byte at a time, few pieces are kept all the same.
        for _ in 0..10_000 {
            window.push(Bytes::from_static(b"x"));
            window.hand_out(window.end());
        }
        assert!(window.memory.len() < 50, "{} pieces", window.memory.len());
    }

    #[test]
    fn what_is_released_in_time_is_never_stored() {
        let mut window = Window::new(0, 0);
        window.push(Bytes::from_static(b"hello "));
        window.push(Bytes::from_static(b"world"));
        window.release(8);
        let (start, pieces) = window.unstored(100);
        assert_eq!((start, pieces.concat()), (8, b"rld".to_vec()));
        window.release(11);
        assert_eq!(window.unstored(100), (11, vec![]));
        assert!(window.memory.is_empty());
    }
}
