//! Chunks of a lane to frames: [`FrameDecoder`]. Bytes of the stream stay where they lie.

use bytes::{Buf as _, Bytes, BytesMut};
use hoop_flow::frame::{Frame, FrameError, Front, take_data_head};
use std::collections::VecDeque;

/// What came over a lane.
#[derive(PartialEq, Eq, Debug)]
pub(crate) enum Piece {
    /// Bytes of the stream: a DATA frame, or a part of one.
    Data {
        /// Where the first of them belongs.
        offset: u64,
        /// At least one.
        bytes: Bytes,
    },
    /// The bytes of another frame, whole.
    Frame(Bytes),
}

/// The payload that comes next, where it need not lie together.
#[derive(Clone, Copy, Default, Debug)]
enum Payload {
    #[default]
    None,
    Data {
        offset: u64,
        missing: usize,
    },
    Skipped {
        missing: usize,
    },
}

/// What has come over a lane and is not used up.
#[derive(Default, Debug)]
pub(crate) struct FrameDecoder {
    /// The start of a frame that is not whole: never longer than a frame other than DATA may be.
    part: BytesMut,
    chunk: Bytes,
    /// What came behind it.
    more: VecDeque<Bytes>,
    payload: Payload,
}

impl FrameDecoder {
    /// The next chunk has come.
    pub(crate) fn push(&mut self, chunk: Bytes) {
        self.more.push_back(chunk);
    }

    /// The next piece; None: more must come.
    ///
    /// # Errors
    /// If this is no frame; see [`Frame::take`].
    pub(crate) fn next(&mut self) -> Result<Option<Piece>, FrameError> {
        while self.has_chunk() {
            match self.payload {
                Payload::Data { offset, missing } => return Ok(Some(self.data(offset, missing))),
                Payload::Skipped { missing } => self.skip(missing),
                Payload::None if self.part.is_empty() => {
                    let mut rest = &self.chunk[..];
                    let front = take_data_head(&mut rest)?;
                    let head = self.chunk.len() - rest.len();
                    self.chunk.advance(head);
                    if self.begins_payload(front) {
                        continue;
                    }
                    if let Some(len) = whole(&self.chunk)? {
                        return Ok(Some(Piece::Frame(self.chunk.split_to(len))));
                    }
                    self.part.extend_from_slice(&std::mem::take(&mut self.chunk));
                }
                Payload::None => {
                    if let Some(frame) = self.complete()? {
                        return Ok(Some(frame));
                    }
                }
            }
        }
        Ok(None)
    }

    fn has_chunk(&mut self) -> bool {
        while self.chunk.is_empty()
            && let Some(chunk) = self.more.pop_front()
        {
            self.chunk = chunk;
        }
        !self.chunk.is_empty()
    }

    fn data(&mut self, offset: u64, missing: usize) -> Piece {
        let bytes = self.chunk.split_to(missing.min(self.chunk.len()));
        self.payload = match missing - bytes.len() {
            0 => Payload::None,
            missing => Payload::Data { offset: offset + bytes.len() as u64, missing },
        };
        Piece::Data { offset, bytes }
    }

    fn skip(&mut self, missing: usize) {
        let skipped = missing.min(self.chunk.len());
        self.chunk.advance(skipped);
        self.payload = match missing - skipped {
            0 => Payload::None,
            missing => Payload::Skipped { missing },
        };
    }

    fn begins_payload(&mut self, front: Front) -> bool {
        self.payload = match front {
            Front::Data { offset, len } => Payload::Data { offset, missing: len },
            Front::Unknown { len: 0 } => Payload::None,
            Front::Unknown { len } => Payload::Skipped { missing: len },
            Front::Short | Front::Other => return false,
        };
        true
    }

    /// Adds a byte to what is there of a frame. Few frames lie across two chunks, and none of these is long.
    fn complete(&mut self) -> Result<Option<Piece>, FrameError> {
        self.part.extend_from_slice(&self.chunk.split_to(1));
        let mut rest = &self.part[..];
        let front = take_data_head(&mut rest)?;
        if self.begins_payload(front) {
            self.part.clear();
            return Ok(None);
        }
        Ok(whole(&self.part)?.map(|_| Piece::Frame(self.part.split().freeze())))
    }
}

/// How long the frame at the front is, if it is whole.
fn whole(bytes: &[u8]) -> Result<Option<usize>, FrameError> {
    let mut rest = bytes;
    Ok(Frame::take(&mut rest)?.map(|_| bytes.len() - rest.len()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use hoop_flow::frame::put_data_head;

    /// All pieces, those of DATA joined where they adjoin.
    fn pieces<'a>(chunks: impl Iterator<Item = &'a [u8]>) -> Vec<Piece> {
        let (mut decoder, mut all) = (FrameDecoder::default(), Vec::new());
        for chunk in chunks {
            decoder.push(Bytes::copy_from_slice(chunk));
            while let Some(piece) = decoder.next().expect("frames") {
                match (all.last_mut(), piece) {
                    (Some(Piece::Data { offset, bytes }), Piece::Data { offset: next, bytes: more })
                        if *offset + bytes.len() as u64 == next =>
                    {
                        *bytes = [&bytes[..], &more].concat().into();
                    }
                    (_, piece) => all.push(piece),
                }
            }
        }
        all
    }

    #[test]
    fn frames_are_the_same_wherever_their_chunks_end() {
        let mut bytes = Vec::new();
        let data = |bytes: &mut Vec<u8>, offset, len: usize| {
            put_data_head(bytes, offset, len);
            bytes.extend((0..len).map(|at| at as u8));
        };
        Frame::Ack { received: 70, credit: 1 << 20 }.put(&mut bytes);
        data(&mut bytes, 5, 300);
        bytes.extend([0x40, 0x40, 3, 9, 9, 9, 0x40, 0x41, 0]);
        data(&mut bytes, 1 << 33, 1);
        Frame::Fin { end: 12 }.put(&mut bytes);
        Frame::Park.put(&mut bytes);
        data(&mut bytes, 7_000, 2_000);
        let whole = pieces(std::iter::once(&bytes[..]));
        assert_eq!(whole.len(), 6);
        for size in 1..400 {
            assert_eq!(pieces(bytes.chunks(size)), whole, "chunks of {size}");
        }
        for cut in 0..bytes.len() {
            assert_eq!(pieces([&bytes[..cut], &bytes[cut..]].into_iter()), whole, "cut at {cut}");
        }
    }
}
