//! Frames of a WebSocket (RFC 6455 §5): [`Frames`] takes them from what came, [`put_frame`] and [`put_head`] write them.
//!
//! The head of a frame is tungstenite's to read and write. What is around it is here because its own stream copies every payload twice to send it: between a lane and TLS there is
//! no copy at a server, and at a device the one that masks it. What comes is unmasked where it lies, and given out as it comes: a frame is never waited for.

use bytes::{Buf as _, BufMut, Bytes, BytesMut};
use std::io::Cursor;
use tungstenite::protocol::frame::FrameHeader;
use tungstenite::protocol::frame::coding::{Control, Data, OpCode};

/// The longest message, in bytes: twice a flow's longest frame, so that one and its head always fit.
pub(super) const MESSAGE_MAX: usize = 128 * 1024;

/// A message's head lies together in the first piece of it that is given out: the longest varint.
const MESSAGE_HEAD_MAX: usize = 8;

/// A shorter piece is copied out of the buffer that it came in, which whoever has it would hold: sixteen times the piece at most. Lanes count a piece as the whole buffer.
pub(super) const PIECE_MIN: usize = super::buffers::BUFFER / 16;

/// The longest payload of a control frame (RFC 6455 §5.5).
const CONTROL_MAX: u64 = 125;

/// A device masks what it sends, and a server does not (RFC 6455 §5.1).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Role {
    Device,
    Server,
}

/// The other end has broken the protocol: the carrier ends.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub(super) enum Violation {
    #[error("a frame that RFC 6455 does not allow: {0}")]
    Frame(&'static str),
    #[error("a text message")]
    Text,
    #[error("a message of {0} bytes")]
    TooLong(u64),
    #[error("a message whose head is malformed")]
    Head,
    #[error("a message of lane {0}, which was not to be the next")]
    Number(u64),
    #[error("a message of lane {0}, which is over")]
    Over(u64),
    #[error("more lanes than there may be at once")]
    Lanes,
    #[error("something else where {0} was due")]
    Binding(&'static str),
}

impl Violation {
    /// What the connection is closed with (RFC 6455 §7.4.1).
    pub(super) fn close_code(&self) -> u16 {
        match self {
            Self::Text => 1003,
            Self::TooLong(_) => 1009,
            Self::Frame(_) | Self::Head | Self::Number(_) | Self::Over(_) | Self::Lanes | Self::Binding(_) => 1002,
        }
    }
}

/// What came.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Item {
    /// A frame of a binary message, or a piece of one.
    Binary {
        /// The message begins with it.
        first: bool,
        /// The message ends with it.
        last: bool,
        /// The payload.
        bytes: Bytes,
    },
    Ping(Bytes),
    Pong,
    /// The connection ends, with this code (RFC 6455 §7.4), if one came.
    Close(Option<u16>),
}

/// The frames that come.
#[derive(Debug)]
pub(super) struct Frames {
    role: Role,
    /// How many bytes of a message its frames have, if the last of them has not come.
    unfinished: Option<u64>,
    /// The data frame whose head has come.
    inside: Option<Inside>,
}

/// What is missing of a data frame.
#[derive(Debug)]
struct Inside {
    missing: usize,
    /// Turned to what comes next.
    mask: Option<[u8; 4]>,
    /// Nothing of its message was given out.
    first: bool,
    /// The message ends with this frame.
    last: bool,
}

impl Frames {
    /// At the end that has this role.
    pub(super) fn new(role: Role) -> Self {
        Self { role, unfinished: None, inside: None }
    }

    /// Takes what there is of a frame from the front of `buffer`, a control frame as a whole; `None` if more must come. What is too long is refused by its head.
    pub(super) fn take(&mut self, buffer: &mut BytesMut) -> Result<Option<Item>, Violation> {
        if let Some(inside) = &mut self.inside {
            let item = inside.take(buffer);
            self.inside.take_if(|inside| inside.missing == 0 && item.is_some());
            return Ok(item);
        }
        let mut cursor = Cursor::new(&buffer[..]);
        let parsed = FrameHeader::parse(&mut cursor).map_err(|_| Violation::Frame("a malformed head"))?;
        let Some((header, len)) = parsed else { return Ok(None) };
        self.check(&header, len)?;
        // `check` has bounded it.
        let (head, len) = (cursor.position() as usize, len as usize);
        let OpCode::Control(control) = header.opcode else {
            buffer.advance(head);
            let (first, last) = (self.unfinished.is_none(), header.is_final);
            self.unfinished = (!last).then_some(self.unfinished.unwrap_or(0) + len as u64);
            self.inside = Some(Inside { missing: len, mask: header.mask, first, last });
            return self.take(buffer);
        };
        if buffer.len() < head + len {
            return Ok(None);
        }
        buffer.advance(head);
        let mut payload = buffer.split_to(len);
        if let Some(mask) = header.mask {
            apply_mask(&mut payload, mask);
        }
        let bytes = Bytes::copy_from_slice(&payload);
        Ok(Some(match control {
            Control::Ping => Item::Ping(bytes),
            Control::Close => Item::Close(bytes.first_chunk().copied().map(u16::from_be_bytes)),
            Control::Pong | Control::Reserved(_) => Item::Pong,
        }))
    }

    fn check(&self, header: &FrameHeader, len: u64) -> Result<(), Violation> {
        if header.rsv1 || header.rsv2 || header.rsv3 {
            return Err(Violation::Frame("a reserved bit"));
        }
        if header.mask.is_some() != (self.role == Role::Server) {
            return Err(Violation::Frame("a device's without a mask, or a server's with one"));
        }
        match (header.opcode, self.unfinished) {
            (OpCode::Control(Control::Reserved(_)), _) | (OpCode::Data(Data::Reserved(_)), _) => {
                Err(Violation::Frame("an unknown opcode"))
            }
            (OpCode::Control(_), _) if len > CONTROL_MAX || !header.is_final => {
                Err(Violation::Frame("a control frame that is long or in parts"))
            }
            (OpCode::Control(_), _) => Ok(()),
            (OpCode::Data(Data::Text), _) => Err(Violation::Text),
            (OpCode::Data(Data::Binary), Some(_)) | (OpCode::Data(Data::Continue), None) => {
                Err(Violation::Frame("a message within a message, or one that goes on without having begun"))
            }
            (OpCode::Data(Data::Binary | Data::Continue), before) => {
                let total = before.unwrap_or(0).saturating_add(len);
                if total > MESSAGE_MAX as u64 { Err(Violation::TooLong(total)) } else { Ok(()) }
            }
        }
    }
}

impl Inside {
    /// What there is of the payload, if it is enough to be given out.
    fn take(&mut self, buffer: &mut BytesMut) -> Option<Item> {
        let len = buffer.len().min(self.missing);
        let least = if self.first { MESSAGE_HEAD_MAX } else { 1 };
        if len < self.missing.min(least) {
            return None;
        }
        let mut payload = buffer.split_to(len);
        if let Some(mask) = &mut self.mask {
            apply_mask(&mut payload, *mask);
            mask.rotate_left(len % 4);
        }
        self.missing -= len;
        let bytes = if len < PIECE_MIN { Bytes::copy_from_slice(&payload) } else { payload.freeze() };
        let first = std::mem::take(&mut self.first);
        Some(Item::Binary { first, last: self.last && self.missing == 0, bytes })
    }
}

/// What a frame is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Kind {
    Binary,
    Ping,
    Pong,
    Close,
}

/// Appends the head of a frame with a payload of `len` bytes, which the caller writes behind it: masked, if there is a mask.
pub(super) fn put_frame_head(out: &mut Vec<u8>, kind: Kind, mask: Option<[u8; 4]>, len: usize) {
    let opcode = match kind {
        Kind::Binary => OpCode::Data(Data::Binary),
        Kind::Ping => OpCode::Control(Control::Ping),
        Kind::Pong => OpCode::Control(Control::Pong),
        Kind::Close => OpCode::Control(Control::Close),
    };
    let header = FrameHeader { opcode, mask, ..FrameHeader::default() };
    header.format(len as u64, out).expect("a vector takes what is written");
}

/// Appends a frame.
pub(super) fn put_frame(out: &mut Vec<u8>, kind: Kind, mask: Option<[u8; 4]>, parts: &[&[u8]]) {
    put_frame_head(out, kind, mask, parts.iter().map(|part| part.len()).sum());
    let mut mask = mask.unwrap_or_default();
    parts.iter().for_each(|part| put_masked(out, part, &mut mask));
}

/// So much is masked at once: a few of the widest registers.
const BLOCK: usize = 64;

/// Appends bytes of a payload, masked (RFC 6455 §5.3), and turns the mask to what follows.
pub(super) fn put_masked(out: &mut impl BufMut, bytes: &[u8], mask: &mut [u8; 4]) {
    let wide = widened(*mask);
    let (blocks, rest) = bytes.as_chunks::<BLOCK>();
    for block in blocks {
        out.put_slice(&std::array::from_fn::<u8, BLOCK, _>(|at| block[at] ^ wide[at]));
    }
    rest.iter().zip(wide).for_each(|(byte, mask)| out.put_u8(byte ^ mask));
    mask.rotate_left(bytes.len() % 4);
}

/// The same in place.
fn apply_mask(bytes: &mut [u8], mask: [u8; 4]) {
    let wide = widened(mask);
    let (blocks, rest) = bytes.as_chunks_mut::<BLOCK>();
    for block in blocks {
        *block = std::array::from_fn(|at| block[at] ^ wide[at]);
    }
    rest.iter_mut().zip(wide).for_each(|(byte, mask)| *byte ^= mask);
}

fn widened(mask: [u8; 4]) -> [u8; BLOCK] {
    std::array::from_fn(|at| mask[at % 4])
}

#[cfg(test)]
mod tests {
    use super::*;

    const MASK: [u8; 4] = [1, 2, 3, 4];

    fn taken(role: Role, bytes: &[u8]) -> Result<Vec<Item>, Violation> {
        let (mut frames, mut buffer, mut items) = (Frames::new(role), BytesMut::from(bytes), Vec::new());
        while let Some(item) = frames.take(&mut buffer)? {
            items.push(item);
        }
        Ok(items)
    }

    fn frame(kind: Kind, mask: Option<[u8; 4]>, payload: &[u8]) -> Vec<u8> {
        let mut out = Vec::new();
        put_frame(&mut out, kind, mask, &[payload]);
        out
    }

    fn whole(bytes: &[u8]) -> Item {
        Item::Binary { first: true, last: true, bytes: Bytes::copy_from_slice(bytes) }
    }

    /// What pieces say together: whether they are one whole message, and its bytes.
    fn joined(items: &[Item]) -> (bool, Vec<u8>) {
        let mut bytes = Vec::new();
        let mut is_whole = true;
        for (at, item) in items.iter().enumerate() {
            let Item::Binary { first, last, bytes: piece } = item else { panic!("{item:?} is no part of it") };
            is_whole &= *first == (at == 0) && *last == (at + 1 == items.len());
            bytes.extend_from_slice(piece);
        }
        (is_whole, bytes)
    }

    #[test]
    fn what_is_written_is_read_the_same_wherever_it_is_cut() {
        for len in [0, 1, 7, 8, 9, 63, 64, 65, 125, 126, 4_095, 4_097, 65_535, 65_536, MESSAGE_MAX] {
            let payload: Vec<u8> = (0..len).map(|at| (at * 7) as u8).collect();
            for (role, mask) in [(Role::Server, Some(MASK)), (Role::Device, None)] {
                let bytes = frame(Kind::Binary, mask, &payload);
                assert_eq!(taken(role, &bytes), Ok(vec![whole(&payload)]));
                for cut in [0, 1, 2, 7, 13, 14, 15, 22, 23, bytes.len() / 2, bytes.len() - 1] {
                    let (mut frames, mut buffer, mut items) = (Frames::new(role), BytesMut::new(), Vec::new());
                    for part in [&bytes[..cut.min(bytes.len())], &bytes[cut.min(bytes.len())..]] {
                        buffer.extend_from_slice(part);
                        items.extend(std::iter::from_fn(|| frames.take(&mut buffer).expect("no violation")));
                    }
                    assert_eq!(joined(&items), (true, payload.clone()), "{len} at {cut}");
                    let Some(Item::Binary { bytes: first, .. }) = items.first() else { panic!("nothing came") };
                    assert!(first.len() >= len.min(MESSAGE_HEAD_MAX), "a message's head is in pieces: {len} at {cut}");
                }
            }
        }
    }

    #[test]
    fn short_pieces_hold_no_buffer() {
        let mut bytes = frame(Kind::Binary, None, &[7; PIECE_MIN - 1]);
        bytes.extend(frame(Kind::Binary, None, &[7; PIECE_MIN]));
        let mut buffer = BytesMut::with_capacity(bytes.len());
        buffer.extend_from_slice(&bytes);
        let mut frames = Frames::new(Role::Device);
        let short = frames.take(&mut buffer).expect("no violation");
        let begin = buffer.as_ptr();
        let long = frames.take(&mut buffer).expect("no violation");
        let at = |item: &Option<Item>| match item {
            Some(Item::Binary { bytes, .. }) => bytes.as_ptr(),
            other => panic!("{other:?}"),
        };
        assert!(at(&short) > begin || at(&short) < begin.wrapping_sub(bytes.len()), "it lies where it came");
        assert_eq!(at(&long), begin.wrapping_add(4), "it was copied");
    }

    #[test]
    fn the_masked_hello_of_rfc_6455_is_read() {
        // §5.7, as binary.
        let bytes = [0x82, 0x85, 0x37, 0xfa, 0x21, 0x3d, 0x7f, 0x9f, 0x4d, 0x51, 0x58];
        assert_eq!(taken(Role::Server, &bytes), Ok(vec![whole(b"Hello")]));
    }

    #[test]
    fn parts_of_a_message_are_told_apart_and_pings_come_between_them() {
        let bytes = [0x02, 1, b'a', 0x89, 1, b'p', 0x00, 1, b'b', 0x80, 0, 0x8a, 0, 0x88, 0];
        let part = |first, last, bytes: &'static [u8]| Item::Binary { first, last, bytes: Bytes::from_static(bytes) };
        let ping = Item::Ping(Bytes::from_static(b"p"));
        let items = [
            part(true, false, b"a"),
            ping,
            part(false, false, b"b"),
            part(false, true, b""),
            Item::Pong,
            Item::Close(None),
        ];
        assert_eq!(taken(Role::Device, &bytes), Ok(items.to_vec()));
    }

    #[test]
    fn each_violation_is_seen_by_the_head_alone() {
        let cases: [(Role, &[u8], Violation); 12] = [
            (Role::Device, &[0x81, 1], Violation::Text),
            (Role::Device, &[0xc2, 0], Violation::Frame("a reserved bit")),
            (Role::Device, &[0x83, 0], Violation::Frame("a malformed head")),
            (Role::Device, &[0x8b, 0], Violation::Frame("a malformed head")),
            (Role::Device, &[0x80, 0], within()),
            (Role::Device, &[0x02, 0, 0x82, 0], within()),
            (Role::Device, &[0x82, 0x80, 0, 0, 0, 0], masks()),
            (Role::Server, &[0x82, 0], masks()),
            (Role::Device, &[0x09, 0], Violation::Frame("a control frame that is long or in parts")),
            (Role::Device, &[0x89, 126, 0, 126], Violation::Frame("a control frame that is long or in parts")),
            (Role::Device, &[0x82, 127, 0, 0, 0, 0, 0, 2, 0, 1], Violation::TooLong(0x2_0001)),
            (Role::Device, &[0x82, 127, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff], Violation::TooLong(u64::MAX)),
        ];
        for (role, bytes, violation) in cases {
            assert_eq!(taken(role, bytes), Err(violation), "{bytes:x?}");
        }
    }

    #[test]
    fn a_message_in_parts_is_no_longer_than_one_that_is_whole() {
        let part = vec![0; MESSAGE_MAX];
        let mut bytes = frame(Kind::Binary, None, &part);
        bytes[0] = 0x02;
        bytes.extend_from_slice(&[0x80, 1]);
        assert_eq!(taken(Role::Device, &bytes), Err(Violation::TooLong(MESSAGE_MAX as u64 + 1)));
    }

    fn within() -> Violation {
        Violation::Frame("a message within a message, or one that goes on without having begun")
    }

    fn masks() -> Violation {
        Violation::Frame("a device's without a mask, or a server's with one")
    }
}
