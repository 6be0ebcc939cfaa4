//! What comes is read into these: [`Buffers`].

use bytes::BytesMut;
use std::collections::VecDeque;

/// The length of a buffer, in bytes: four records of TLS (RFC 8446 §5.1).
pub(super) const BUFFER: usize = 64 * 1024;

/// Buffers that are remembered: those of the two mebibytes that a flow may have under way, and some.
const BUFFERS_MAX: usize = 40;

/// Buffers whose bytes were given away, and which are read into again once nobody holds any: memory that is given back and fetched again costs as much as reading into it does,
/// since the system clears it each time.
#[derive(Default, Debug)]
pub(super) struct Buffers {
    /// The oldest first. Of those that are free the latest is taken: it may still be in the processor's cache.
    given: VecDeque<BytesMut>,
}

impl Buffers {
    /// Makes room for so many bytes behind what `buffer` has, which is little: a frame's head at most.
    pub(super) fn make_room(&mut self, buffer: &mut BytesMut, least: usize) {
        if buffer.capacity() - buffer.len() >= least {
            return;
        }
        let mut next = self.next();
        next.extend_from_slice(buffer);
        buffer.clear();
        self.given.push_back(std::mem::replace(buffer, next));
    }

    fn next(&mut self) -> BytesMut {
        let free = self.given.iter_mut().rposition(|given| given.try_reclaim(BUFFER));
        if let Some(free) = free.and_then(|at| self.given.remove(at)) {
            return free;
        }
        if self.given.len() >= BUFFERS_MAX {
            // Somebody holds it for long: it is freed when they are done.
            self.given.pop_front();
        }
        BytesMut::with_capacity(BUFFER)
    }

    /// Nothing has come for a while: nothing is held, but what others hold.
    pub(super) fn release(&mut self, buffer: &mut BytesMut) {
        self.given = VecDeque::new();
        *buffer = BytesMut::from(&buffer[..]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn buffers_that_nobody_holds_are_read_into_again_and_others_are_not() {
        let (mut buffers, mut buffer) = (Buffers::default(), BytesMut::new());
        let (mut held, mut seen) = (VecDeque::new(), BTreeSet::new());
        for round in 0..1_000_u32 {
            buffers.make_room(&mut buffer, 4_096);
            if buffer.capacity() == BUFFER {
                seen.insert(buffer.as_ptr());
            }
            buffer.extend_from_slice(&[round as u8; 4_096]);
            held.push_back((round as u8, buffer.split().freeze()));
            if held.len() > 100 {
                let (byte, piece) = held.pop_front().expect("there are some");
                assert!(piece.iter().all(|other| *other == byte), "it was written over in round {round}");
            }
        }
        assert!((7..10).contains(&seen.len()), "{} buffers for seven at a time", seen.len());
        buffers.release(&mut buffer);
        assert_eq!(buffer.capacity(), 0);
    }

    #[test]
    fn who_holds_a_buffer_for_long_does_not_make_them_many() {
        let (mut buffers, mut buffer, mut held) = (Buffers::default(), BytesMut::new(), Vec::new());
        for _ in 0..10_000 {
            buffers.make_room(&mut buffer, 4_096);
            buffer.extend_from_slice(&[1; 4_096]);
            held.push(buffer.split().freeze());
            assert!(buffers.given.len() <= BUFFERS_MAX);
        }
    }
}
