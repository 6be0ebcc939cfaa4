//! The bytes of a flow: what is sent and not acknowledged ([`SendBuffer`]), and what has come and is not read ([`ReceiveBuffer`]).

use bytes::{Bytes, BytesMut};
use hoop_units::ByteRange;
use std::collections::{BTreeMap, VecDeque};

/// Shorter pieces are copied together: a piece holds the whole buffer that it lies in, and costs a few words by itself.
const PIECE_MIN: usize = 1024;

/// How much is copied together into one piece.
const PIECE_OWN: usize = 64 * 1024;

/// Up to which length a piece grows at its front, where each byte moves all others.
const PIECE_PREPEND: usize = 4 * 1024;

/// The longest buffer that bytes come in: a carrier's, or one of QUIC's packets.
const BUFFER: usize = 64 * 1024;

/// A shorter piece holds a buffer that is much longer. One that comes before its turn is copied out of it.
const PIECE_WHOLE: usize = BUFFER / 2;

/// So many buffers of which shorter pieces wait to be read are held, and further ones are copied together: a mebibyte, half of the usual window, so that little is copied for an
/// application that keeps up.
const BUFFERS_MAX: usize = 16;

/// Bytes that lie together.
#[derive(Debug)]
enum Piece {
    /// As they were given.
    Shared(Bytes),
    /// Copied together.
    Own(Vec<u8>),
}

impl Piece {
    fn len(&self) -> usize {
        match self {
            Self::Shared(bytes) => bytes.len(),
            Self::Own(bytes) => bytes.len(),
        }
    }

    fn slice(&self, from: usize, to: usize) -> Bytes {
        match self {
            Self::Shared(bytes) => bytes.slice(from..to),
            Self::Own(bytes) => Bytes::copy_from_slice(&bytes[from..to]),
        }
    }

    fn into_bytes(self) -> Bytes {
        match self {
            Self::Shared(bytes) => bytes,
            Self::Own(bytes) => bytes.into(),
        }
    }
}

/// What was written and may have to be sent again.
#[derive(Debug)]
pub(crate) struct SendBuffer {
    /// The offset of the first piece.
    start: u64,
    end: u64,
    pieces: VecDeque<Piece>,
}

impl SendBuffer {
    /// Empty, for what lies from `offset` on.
    pub(crate) const fn new(offset: u64) -> Self {
        Self { start: offset, end: offset, pieces: VecDeque::new() }
    }

    /// How many bytes it holds.
    pub(crate) const fn len(&self) -> u64 {
        self.end - self.start
    }

    /// The offset of the first byte.
    pub(crate) const fn start(&self) -> u64 {
        self.start
    }

    /// The offset of the next byte.
    pub(crate) const fn end(&self) -> u64 {
        self.end
    }

    /// Takes bytes over as they are; short ones are copied.
    pub(crate) fn push(&mut self, bytes: Bytes) {
        if bytes.len() < PIECE_MIN {
            return self.copy(&bytes);
        }
        self.end += bytes.len() as u64;
        self.pieces.push_back(Piece::Shared(bytes));
    }

    /// Copies bytes.
    pub(crate) fn copy(&mut self, bytes: &[u8]) {
        self.end += bytes.len() as u64;
        match self.pieces.back_mut() {
            Some(Piece::Own(own)) if own.len() + bytes.len() <= PIECE_OWN => own.extend_from_slice(bytes),
            _ if bytes.len() < PIECE_MIN => self.pieces.push_back(Piece::Own(bytes.to_vec())),
            _ => self.pieces.push_back(Piece::Shared(Bytes::copy_from_slice(bytes))),
        }
    }

    /// Appends the bytes of `range`, all of which it holds.
    pub(crate) fn slices(&self, range: ByteRange, out: &mut Vec<Bytes>) {
        let mut at = self.start;
        for piece in &self.pieces {
            let end = at + piece.len() as u64;
            if at >= range.end {
                return;
            }
            if end > range.start {
                let (from, to) = (range.start.max(at) - at, range.end.min(end) - at);
                out.push(piece.slice(from as usize, to as usize));
            }
            at = end;
        }
    }

    /// Drops what lies before `offset`, whole pieces only.
    pub(crate) fn drop_before(&mut self, offset: u64) {
        while let Some(piece) = self.pieces.front() {
            let end = self.start + piece.len() as u64;
            if end > offset {
                return;
            }
            self.start = end;
            self.pieces.pop_front();
        }
    }

    /// Drops all: none of it is sent again.
    pub(crate) fn clear(&mut self) {
        self.pieces.clear();
        self.start = self.end;
    }
}

/// What has come in order.
#[derive(Debug)]
struct Ready {
    bytes: Bytes,
    /// It is the first of its buffer, and short.
    is_counted: bool,
}

/// What has come and is not read.
#[derive(Debug)]
pub(crate) struct ReceiveBuffer {
    /// The offset of the next byte to be read.
    read: u64,
    /// All before it is in order.
    whole: u64,
    ready: VecDeque<Ready>,
    /// How many of these are counted as holding a buffer.
    buffers: usize,
    /// How many may be.
    buffers_max: usize,
    /// Where the latest of those lies: what lies less than a buffer's length behind it holds no other, or one that lies there as well.
    latest: Option<usize>,
    /// Short pieces at the end of what is ready.
    tail: BytesMut,
    /// What came before its turn, by offset. No two overlap.
    early: BTreeMap<u64, Piece>,
    /// Bytes of that.
    early_len: u64,
}

impl ReceiveBuffer {
    /// Empty, for what lies from `offset` on.
    pub(crate) fn new(offset: u64) -> Self {
        Self {
            read: offset,
            whole: offset,
            ready: VecDeque::new(),
            buffers: 0,
            buffers_max: BUFFERS_MAX,
            latest: None,
            tail: BytesMut::new(),
            early: BTreeMap::new(),
            early_len: 0,
        }
    }

    /// The same for what waits for long.
    pub(crate) fn for_long(offset: u64) -> Self {
        Self { buffers_max: 0, ..Self::new(offset) }
    }

    /// The offset of the next byte to be read.
    pub(crate) const fn read(&self) -> u64 {
        self.read
    }

    /// All before it is in order.
    pub(crate) const fn whole(&self) -> u64 {
        self.whole
    }

    /// Whether something can be read.
    pub(crate) const fn has_ready(&self) -> bool {
        self.read < self.whole
    }

    /// Takes in bytes that have not come before.
    pub(crate) fn insert(&mut self, offset: u64, bytes: Bytes) {
        if offset != self.whole {
            return self.insert_early(offset, bytes);
        }
        let is_short = bytes.len() < PIECE_WHOLE;
        self.append(bytes, is_short);
        while let Some(piece) = self.early.remove(&self.whole) {
            self.early_len -= piece.len() as u64;
            self.append(piece.into_bytes(), false);
        }
    }

    fn append(&mut self, bytes: Bytes, is_short: bool) {
        self.whole += bytes.len() as u64;
        let address = bytes.as_ptr().addr();
        let is_counted = is_short && self.latest.is_none_or(|latest| address.wrapping_sub(latest) >= BUFFER);
        if bytes.len() < PIECE_MIN || (is_short && self.buffers + usize::from(is_counted) > self.buffers_max) {
            self.tail.extend_from_slice(&bytes);
            if self.tail.len() >= PIECE_OWN {
                self.end_tail();
            }
            return;
        }
        self.end_tail();
        if is_counted {
            (self.buffers, self.latest) = (self.buffers + 1, Some(address));
        }
        self.ready.push_back(Ready { bytes, is_counted });
    }

    fn end_tail(&mut self) {
        if !self.tail.is_empty() {
            self.ready.push_back(Ready { bytes: self.tail.split().freeze(), is_counted: false });
        }
    }

    fn insert_early(&mut self, offset: u64, bytes: Bytes) {
        self.early_len += bytes.len() as u64;
        if bytes.len() >= PIECE_WHOLE {
            self.early.insert(offset, Piece::Shared(bytes));
            return;
        }
        let (before, end) = (self.early.range_mut(..offset).next_back(), offset + bytes.len() as u64);
        if let Some((at, Piece::Own(own))) = before
            && at + own.len() as u64 == offset
            && own.len() + bytes.len() <= PIECE_OWN
        {
            return own.extend_from_slice(&bytes);
        }
        let mut own = bytes.to_vec();
        if let Some(Piece::Own(next)) = self.early.get(&end)
            && next.len() <= PIECE_PREPEND
        {
            own.extend_from_slice(next);
            self.early.remove(&end);
        }
        self.early.insert(offset, Piece::Own(own));
    }

    /// The next bytes, at most `most`.
    pub(crate) fn next(&mut self, most: usize) -> Option<Bytes> {
        let bytes = match self.ready.front_mut() {
            Some(first) if first.bytes.len() > most => first.bytes.split_to(most),
            Some(_) => {
                let Ready { bytes, is_counted } = self.ready.pop_front()?;
                self.buffers -= usize::from(is_counted);
                bytes
            }
            None if self.tail.is_empty() => return None,
            None => self.tail.split_to(most.min(self.tail.len())).freeze(),
        };
        self.read += bytes.len() as u64;
        Some(bytes)
    }

    /// Drops all that is ready, as if it had been read.
    pub(crate) fn skip(&mut self) {
        (self.ready, self.buffers, self.tail) = (VecDeque::new(), 0, BytesMut::new());
        self.read = self.whole;
    }

    /// How many bytes it holds that are ready.
    pub(crate) const fn len(&self) -> u64 {
        self.whole - self.read
    }

    /// How many bytes it holds, those included that came before their turn.
    pub(crate) const fn held(&self) -> u64 {
        self.len() + self.early_len
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand_core::{Rng as _, SeedableRng as _};
    use rand_pcg::Pcg64Mcg;

    fn bytes(range: ByteRange) -> Bytes {
        (range.start..range.end).map(|at| (at.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as u8).collect()
    }

    #[test]
    fn any_order_of_any_pieces_is_read_in_order() {
        for seed in 0..200 {
            let mut rng = Pcg64Mcg::seed_from_u64(seed);
            let mut ranges = Vec::new();
            let mut at = 0;
            while at < 60_000 {
                let most = [2, 600, 5_000][rng.next_u32() as usize % 3];
                let end = at + 1 + rng.next_u64() % most;
                ranges.push(ByteRange::new(at, end));
                at = end;
            }
            for i in 0..ranges.len() {
                let with = (i + rng.next_u32() as usize % 20).min(ranges.len() - 1);
                ranges.swap(i, with);
            }
            let (mut buffer, mut read) = (ReceiveBuffer::new(0), Vec::new());
            for range in ranges {
                buffer.insert(range.start, bytes(range));
                while let Some(some) = buffer.next(1 + rng.next_u32() as usize % 3_000) {
                    read.extend_from_slice(&some);
                }
            }
            assert!(read == bytes(ByteRange::new(0, at)), "seed {seed}");
            assert!(buffer.early.is_empty() && !buffer.has_ready());
            assert_eq!((buffer.held(), buffer.buffers), (0, 0));
        }
    }

    /// How many buffers are held of those that pieces of `len` bytes came in, one in each, if they come in this order.
    fn buffers_held(len: usize, order: impl Iterator<Item = u64>, buffer: &mut ReceiveBuffer) -> usize {
        let mut buffers = Vec::new();
        for at in order {
            let mut packets = BytesMut::with_capacity(BUFFER);
            packets.resize(len, 7);
            buffer.insert(at * len as u64, packets.split().freeze());
            buffers.push(packets);
        }
        assert_eq!(buffer.held(), (buffers.len() * len) as u64);
        buffers.iter_mut().filter_map(|packets| (!packets.try_reclaim(BUFFER)).then_some(())).count()
    }

    #[test]
    fn short_pieces_that_wait_hold_no_large_buffers_in_any_order() {
        const PIECES: u64 = 200;
        for len in [1, PIECE_MIN, 6_400, PIECE_WHOLE - 1] {
            let mut buffer = ReceiveBuffer::new(0);
            assert!(buffers_held(len, 0..PIECES, &mut buffer) <= BUFFERS_MAX, "{len} in order");
            while buffer.next(usize::MAX).is_some() {}
            assert_eq!((buffer.held(), buffer.buffers), (0, 0));
            assert_eq!(buffers_held(len, (1..PIECES).rev(), &mut ReceiveBuffer::new(0)), 0, "{len} before their turn");
            assert_eq!(buffers_held(len, 0..PIECES, &mut ReceiveBuffer::for_long(0)), 0, "{len} for long");
        }
        assert_eq!(buffers_held(PIECE_WHOLE, 0..PIECES, &mut ReceiveBuffer::new(0)), PIECES as usize, "it was copied");
    }

    #[test]
    fn what_an_application_that_keeps_up_reads_was_not_copied() {
        let (mut buffer, mut offset) = (ReceiveBuffer::new(0), 0);
        for _ in 0..100 {
            let mut came = Vec::new();
            for _ in 0..BUFFERS_MAX {
                let mut packets = Bytes::from(vec![7; BUFFER]);
                came.extend(std::iter::from_fn(|| (packets.len() >= 1_200).then(|| packets.split_to(1_200))));
            }
            for bytes in &came {
                buffer.insert(offset, bytes.clone());
                offset += bytes.len() as u64;
            }
            for bytes in &came {
                assert_eq!(buffer.next(usize::MAX).expect("it came").as_ptr(), bytes.as_ptr());
            }
        }
    }

    #[test]
    fn single_bytes_in_any_order_cost_few_pieces() {
        let mut buffer = ReceiveBuffer::new(0);
        (1..100_000).rev().for_each(|at| buffer.insert(at, Bytes::from_static(b"x")));
        assert!(buffer.early.len() < 100, "{} pieces", buffer.early.len());
        let mut buffer = SendBuffer::new(0);
        (0..100_000).for_each(|_| buffer.push(Bytes::from_static(b"x")));
        assert!(buffer.pieces.len() < 10, "{} pieces", buffer.pieces.len());
    }

    #[test]
    fn what_is_sent_again_is_what_was_written() {
        let mut rng = Pcg64Mcg::seed_from_u64(1);
        let mut buffer = SendBuffer::new(10);
        while buffer.end() < 200_000 {
            let range = ByteRange::new(buffer.end(), buffer.end() + 1 + rng.next_u64() % 3_000);
            if rng.next_u32().is_multiple_of(2) { buffer.push(bytes(range)) } else { buffer.copy(&bytes(range)) }
        }
        for _ in 0..1_000 {
            let start = buffer.start + rng.next_u64() % buffer.len();
            let range = ByteRange::new(start, start + 1 + rng.next_u64() % (buffer.end() - start));
            let mut slices = Vec::new();
            buffer.slices(range, &mut slices);
            assert_eq!(slices.concat(), bytes(range));
            buffer.drop_before(buffer.start + rng.next_u64() % 400);
        }
    }
}
