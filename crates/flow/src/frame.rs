//! The frames of a lane, byte by byte as `docs/flow.md` §4 has them: [`Frame`].
//!
//! Every frame is a type, the length of what follows, and that: two varints and a payload. A number has one spelling, a
//! field of choices knows its choices, and a payload ends where its length says.

use crate::id::{DeviceId, FlowId, FlowName};
use crate::proof::{Binding, DeviceKey, FlowKey, PROOF_LEN};
use crate::varint::{VARINT_MAX, VarintError, put_varint, take_varint};
use alloc::vec::Vec;
use hoop_units::UnixTime;

/// The version of the protocol that OPEN and RESUME name.
pub const VERSION: u8 = 1;

/// The most bytes of a DATA frame's own: large, so that its head costs nothing; small, so that an ACK behind it waits little.
pub const DATA_MAX: usize = 64 * 1024;

/// The longest payload of any other frame: an OPEN with the longest service name takes less than half.
pub const PAYLOAD_MAX: usize = 1024;

/// The longest name of a service, in bytes of UTF-8.
pub const SERVICE_MAX: usize = 255;

/// Types from here on are for experiments: who does not know them passes over them.
pub const FIRST_UNKNOWN: u64 = 0x40;

/// One frame. What is borrowed lies in the buffer that it was read from.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Frame<'a> {
    /// 0x00, device: where TLS ends before the server, the device's share of the carrier's binding.
    Hello {
        /// Drawn for this carrier.
        nonce: [u8; 32],
    },
    /// 0x01, server: its share.
    Challenge {
        /// Drawn for this carrier.
        nonce: [u8; 32],
    },
    /// 0x02, device: a new flow, or one whose ATTACHED never came.
    Open(Open<'a>),
    /// 0x03, device: a flow that the server knows is carried by this lane too, or from now on.
    Resume(Resume),
    /// 0x04, server: the flow is attached to this lane.
    Attached(Attached),
    /// 0x05, server: it is not.
    Refused(Refusal),
    /// 0x06: bytes of the flow.
    Data {
        /// Where the first of them belongs.
        offset: u64,
        /// At least one, at most [`DATA_MAX`].
        bytes: &'a [u8],
    },
    /// 0x07: all before `received` is kept, and the peer may send what lies before `credit`. The end of the stream counts as one byte more.
    Ack {
        /// The first byte that is not kept.
        received: u64,
        /// The first byte that must not be sent.
        credit: u64,
    },
    /// 0x08: the stream ends here.
    Fin {
        /// How long it is.
        end: u64,
    },
    /// 0x09, device: it gives the flow up; the server answers END.
    Reset {
        /// Why.
        code: u64,
    },
    /// 0x0a, server: the flow is over for good; the device may forget it.
    End {
        /// How it ended; 0: both streams are whole.
        code: u64,
    },
    /// 0x0b, device: when the flow should be done.
    Deadline(Option<UnixTime>),
    /// 0x0c: how long the sender's stream will be, as far as it knows.
    Size(Option<u64>),
    /// 0x0d, server: the lane closes for want of traffic; the flow stays.
    Park,
    /// 0x0e, device: what the lane is for.
    Use(Use),
}

/// What a device asks of a lane.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Use {
    /// 0: bytes go over it.
    #[default]
    Normal,
    /// 1: only if no normal lane is attached.
    Backup,
}

/// A flow that begins.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Open<'a> {
    /// Its name.
    pub name: FlowName,
    /// Which attachment of the flow this is, from 1 on.
    pub epoch: u64,
    /// Attachments of a lower epoch are gone.
    pub since: u64,
    /// As in an ACK: not 0 if the device was restarted and no longer knows that it was attached.
    pub received: u64,
    /// As in an ACK.
    pub credit: u64,
    /// When it should be done.
    pub deadline: Option<UnixTime>,
    /// How long the device's stream will be.
    pub size: Option<u64>,
    /// What the lane is for.
    pub lane_use: Use,
    /// The flow key's share that travels.
    pub nonce: [u8; 32],
    /// What the flow is for: a name of the server's choosing, at most [`SERVICE_MAX`] bytes.
    pub service: &'a str,
    /// That the device has its key.
    pub proof: [u8; PROOF_LEN],
}

/// A flow that goes on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Resume {
    /// Its name.
    pub name: FlowName,
    /// Which attachment of the flow this is: higher than any before.
    pub epoch: u64,
    /// Attachments of a lower epoch are gone: what went over them and was not acknowledged is sent again.
    pub since: u64,
    /// As in an ACK.
    pub received: u64,
    /// As in an ACK.
    pub credit: u64,
    /// What the lane is for.
    pub lane_use: Use,
    /// That the device has the flow's key.
    pub proof: [u8; PROOF_LEN],
}

/// The server's agreement.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Attached {
    /// As in an ACK.
    pub received: u64,
    /// As in an ACK.
    pub credit: u64,
    /// That the server has the flow's key.
    pub proof: [u8; PROOF_LEN],
}

/// Why a lane is refused.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Refusal {
    /// 1: no such flow, or the proof is wrong: told alike, so that nobody learns which flows there are.
    Unknown,
    /// 2: the epoch is not higher than this.
    Stale {
        /// The highest so far.
        highest: u64,
    },
    /// 3: the flow is over, and how.
    Ended {
        /// As in END.
        code: u64,
    },
    /// 4: not now.
    Busy {
        /// For so many seconds.
        secs: u64,
    },
    /// 5: the device has as many flows as it may.
    Full,
    /// 6: nobody offers that service to this device.
    NoService,
    /// 7: the server speaks other versions.
    Version,
}

/// The bytes are no frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum FrameError {
    /// A number in a longer form than it needs.
    #[error("a number that is not in its shortest form")]
    Varint,
    /// A type below [`FIRST_UNKNOWN`] that there is not.
    #[error("no frame has type {0:#x}")]
    Type(u64),
    /// A payload longer than frames of its type have.
    #[error("a frame of type {kind:#x} with {len} bytes")]
    TooLong {
        /// The type.
        kind: u64,
        /// The length.
        len: u64,
    },
    /// A payload that ends too early or too late, or with a value that there is not.
    #[error("a frame of type {0:#x} that is malformed")]
    Malformed(u64),
    /// An OPEN or a RESUME of another version of the protocol: its sender is to be told so ([`Refusal::Version`]).
    #[error("version {0} of the protocol, and not {VERSION}")]
    Version(u8),
}

impl<'a> Frame<'a> {
    /// Takes a frame from the front of `bytes`; None if it has not come whole. Frames of unknown types are passed over.
    ///
    /// # Errors
    /// If no bytes to come could make a frame of it. A frame that is too long is refused by its head.
    pub fn take(bytes: &mut &'a [u8]) -> Result<Option<Self>, FrameError> {
        loop {
            let mut rest = *bytes;
            let Some((kind, len)) = head(&mut rest)? else { return Ok(None) };
            let Some((payload, rest)) = usize::try_from(len).ok().and_then(|len| rest.split_at_checked(len)) else {
                return Ok(None);
            };
            *bytes = rest;
            if kind < FIRST_UNKNOWN {
                return parse(kind, payload).map(Some);
            }
        }
    }

    /// Appends the frame.
    pub fn put(&self, out: &mut Vec<u8>) {
        let mut payload = Vec::new();
        let kind = self.payload(&mut payload);
        put_varint(out, kind);
        put_varint(out, payload.len() as u64);
        out.extend_from_slice(&payload);
    }

    /// Writes the payload and returns the type.
    fn payload(&self, out: &mut Vec<u8>) -> u64 {
        match self {
            Self::Hello { nonce } => {
                out.extend_from_slice(nonce);
                0x00
            }
            Self::Challenge { nonce } => {
                out.extend_from_slice(nonce);
                0x01
            }
            Self::Open(open) => {
                open.unproven(out);
                out.extend_from_slice(&open.proof);
                0x02
            }
            Self::Resume(resume) => {
                resume.unproven(out);
                out.extend_from_slice(&resume.proof);
                0x03
            }
            Self::Attached(attached) => {
                attached.unproven(out);
                out.extend_from_slice(&attached.proof);
                0x04
            }
            Self::Refused(refusal) => {
                let (code, more) = refusal.numbers();
                put_varint(out, code);
                more.into_iter().for_each(|number| put_varint(out, number));
                0x05
            }
            Self::Data { offset, bytes } => {
                put_varint(out, *offset);
                out.extend_from_slice(bytes);
                0x06
            }
            Self::Ack { received, credit } => {
                put_varint(out, *received);
                put_varint(out, *credit);
                0x07
            }
            Self::Fin { end } => one(out, *end, 0x08),
            Self::Reset { code } => one(out, *code, 0x09),
            Self::End { code } => one(out, *code, 0x0a),
            Self::Deadline(at) => one(out, deadline_number(*at), 0x0b),
            Self::Size(size) => one(out, size_number(*size), 0x0c),
            Self::Park => 0x0d,
            Self::Use(lane_use) => one(out, lane_use.number(), 0x0e),
        }
    }
}

/// Appends the head of a DATA frame whose `len` bytes, 1 to [`DATA_MAX`], the caller writes behind it.
pub fn put_data_head(out: &mut Vec<u8>, offset: u64, len: usize) {
    put_varint(out, 0x06);
    put_varint(out, (crate::varint::varint_len(offset) + len) as u64);
    put_varint(out, offset);
}

/// What stands at the front of bytes that have come.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Front {
    /// Too little to tell.
    Short,
    /// The head of a DATA frame, which has been taken; `len` bytes of the stream from `offset` on follow it.
    Data {
        /// Where the first of them belongs.
        offset: u64,
        /// 1 to [`DATA_MAX`].
        len: usize,
    },
    /// The head of a frame of an unknown type, which has been taken; so many bytes follow that are passed over.
    Unknown {
        /// At most [`PAYLOAD_MAX`].
        len: usize,
    },
    /// Another frame, for [`Frame::take`].
    Other,
}

/// Takes the head of a DATA frame from the front of `bytes`, so that its bytes need not have come whole, nor lie together; or that of a frame
/// of an unknown type.
///
/// # Errors
/// As [`Frame::take`].
pub fn take_data_head(bytes: &mut &[u8]) -> Result<Front, FrameError> {
    let mut rest = *bytes;
    let (kind, len) = match head(&mut rest)? {
        None => return Ok(Front::Short),
        Some((0x06, len)) => (0x06, len),
        Some((FIRST_UNKNOWN.., len)) => {
            *bytes = rest;
            return Ok(Front::Unknown { len: len as usize });
        }
        Some(_) => return Ok(Front::Other),
    };
    let before = rest.len();
    let offset = match take_varint(&mut rest) {
        Ok(offset) => offset,
        Err(VarintError::Short) if (before as u64) < len.min(8) => return Ok(Front::Short),
        Err(_) => return Err(FrameError::Malformed(kind)),
    };
    let len = len.checked_sub((before - rest.len()) as u64).ok_or(FrameError::Malformed(kind))?;
    if len == 0 || len > DATA_MAX as u64 || offset > VARINT_MAX - DATA_MAX as u64 {
        return Err(FrameError::Malformed(kind));
    }
    *bytes = rest;
    Ok(Front::Data { offset, len: len as usize })
}

/// The type and length at the front, or None if they have not come whole.
fn head(rest: &mut &[u8]) -> Result<Option<(u64, u64)>, FrameError> {
    let mut number = || match take_varint(rest) {
        Ok(number) => Ok(Some(number)),
        Err(VarintError::Short) => Ok(None),
        Err(VarintError::Long) => Err(FrameError::Varint),
    };
    let Some(kind) = number()? else { return Ok(None) };
    if (0x0f..FIRST_UNKNOWN).contains(&kind) {
        return Err(FrameError::Type(kind));
    }
    let Some(len) = number()? else { return Ok(None) };
    let max = match kind {
        0x06 => DATA_MAX + 8,
        _ => PAYLOAD_MAX,
    };
    if len > max as u64 {
        return Err(FrameError::TooLong { kind, len });
    }
    Ok(Some((kind, len)))
}

fn parse(kind: u64, payload: &[u8]) -> Result<Frame<'_>, FrameError> {
    match (kind, payload) {
        (0x02 | 0x03, [version, ..]) if *version != VERSION => return Err(FrameError::Version(*version)),
        _ => {}
    }
    let mut fields = Fields(payload);
    let frame = fields.frame(kind);
    // What is left over is as wrong as what is missing.
    frame.filter(|_| fields.0.is_empty()).ok_or(FrameError::Malformed(kind))
}

/// What is left of a payload.
struct Fields<'a>(&'a [u8]);

impl<'a> Fields<'a> {
    fn frame(&mut self, kind: u64) -> Option<Frame<'a>> {
        Some(match kind {
            0x00 => Frame::Hello { nonce: self.array()? },
            0x01 => Frame::Challenge { nonce: self.array()? },
            0x02 => Frame::Open(self.open()?),
            0x03 => Frame::Resume(self.resume()?),
            0x04 => {
                Frame::Attached(Attached { received: self.number()?, credit: self.number()?, proof: self.array()? })
            }
            0x05 => Frame::Refused(self.refusal()?),
            0x06 => self.data()?,
            0x07 => Frame::Ack { received: self.number()?, credit: self.number()? },
            0x08 => Frame::Fin { end: self.number()? },
            0x09 => Frame::Reset { code: self.number()? },
            0x0a => Frame::End { code: self.number()? },
            0x0b => Frame::Deadline(self.deadline()?),
            0x0c => Frame::Size(self.size()?),
            0x0d => Frame::Park,
            0x0e => Frame::Use(self.lane_use()?),
            _ => return None,
        })
    }

    fn open(&mut self) -> Option<Open<'a>> {
        self.version()?;
        let (name, (epoch, since)) = (self.name()?, self.epochs()?);
        let (received, credit) = (self.number()?, self.number()?);
        let (deadline, size, lane_use) = (self.deadline()?, self.size()?, self.lane_use()?);
        let nonce = self.array()?;
        let service = self.0.len().checked_sub(PROOF_LEN).filter(|len| *len <= SERVICE_MAX)?;
        let service = core::str::from_utf8(self.slice(service)?).ok()?;
        let proof = self.array()?;
        Some(Open { name, epoch, since, received, credit, deadline, size, lane_use, nonce, service, proof })
    }

    fn resume(&mut self) -> Option<Resume> {
        self.version()?;
        let (name, (epoch, since)) = (self.name()?, self.epochs()?);
        let (received, credit) = (self.number()?, self.number()?);
        Some(Resume { name, epoch, since, received, credit, lane_use: self.lane_use()?, proof: self.array()? })
    }

    fn epochs(&mut self) -> Option<(u64, u64)> {
        let (epoch, since) = (self.number()?, self.number()?);
        (1..=epoch).contains(&since).then_some((epoch, since))
    }

    fn refusal(&mut self) -> Option<Refusal> {
        Some(match self.number()? {
            1 => Refusal::Unknown,
            2 => Refusal::Stale { highest: self.number()? },
            3 => Refusal::Ended { code: self.number()? },
            4 => Refusal::Busy { secs: self.number()? },
            5 => Refusal::Full,
            6 => Refusal::NoService,
            7 => Refusal::Version,
            _ => return None,
        })
    }

    fn data(&mut self) -> Option<Frame<'a>> {
        let offset = self.number()?;
        let bytes = self.slice(self.0.len())?;
        let whole = !bytes.is_empty() && bytes.len() <= DATA_MAX && offset <= VARINT_MAX - DATA_MAX as u64;
        whole.then_some(Frame::Data { offset, bytes })
    }

    fn version(&mut self) -> Option<()> {
        (self.array::<1>()? == [VERSION]).then_some(())
    }

    fn name(&mut self) -> Option<FlowName> {
        Some(FlowName { device: DeviceId(self.array()?), flow: FlowId(u64::from_be_bytes(self.array()?)) })
    }

    fn deadline(&mut self) -> Option<Option<UnixTime>> {
        let secs = u32::try_from(self.number()?).ok()?;
        Some((secs > 0).then_some(UnixTime(secs)))
    }

    fn size(&mut self) -> Option<Option<u64>> {
        Some(self.number()?.checked_sub(1))
    }

    fn lane_use(&mut self) -> Option<Use> {
        match self.number()? {
            0 => Some(Use::Normal),
            1 => Some(Use::Backup),
            _ => None,
        }
    }

    fn number(&mut self) -> Option<u64> {
        take_varint(&mut self.0).ok()
    }

    fn slice(&mut self, len: usize) -> Option<&'a [u8]> {
        let (slice, rest) = self.0.split_at_checked(len)?;
        self.0 = rest;
        Some(slice)
    }

    fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        self.slice(N)?.try_into().ok()
    }
}

fn one(out: &mut Vec<u8>, number: u64, kind: u64) -> u64 {
    put_varint(out, number);
    kind
}

fn deadline_number(at: Option<UnixTime>) -> u64 {
    at.map_or(0, |at| at.0.into())
}

fn size_number(size: Option<u64>) -> u64 {
    size.map_or(0, |size| size.min(VARINT_MAX - 1) + 1)
}

fn put_name(out: &mut Vec<u8>, name: FlowName) {
    out.push(VERSION);
    out.extend_from_slice(&name.device.0);
    out.extend_from_slice(&name.flow.0.to_be_bytes());
}

impl Use {
    const fn number(self) -> u64 {
        match self {
            Self::Normal => 0,
            Self::Backup => 1,
        }
    }
}

impl Refusal {
    const fn numbers(self) -> (u64, Option<u64>) {
        match self {
            Self::Unknown => (1, None),
            Self::Stale { highest } => (2, Some(highest)),
            Self::Ended { code } => (3, Some(code)),
            Self::Busy { secs } => (4, Some(secs)),
            Self::Full => (5, None),
            Self::NoService => (6, None),
            Self::Version => (7, None),
        }
    }
}

impl Open<'_> {
    fn unproven(&self, out: &mut Vec<u8>) {
        put_name(out, self.name);
        put_varint(out, self.epoch);
        put_varint(out, self.since);
        put_varint(out, self.received);
        put_varint(out, self.credit);
        put_varint(out, deadline_number(self.deadline));
        put_varint(out, size_number(self.size));
        put_varint(out, self.lane_use.number());
        out.extend_from_slice(&self.nonce);
        out.extend_from_slice(self.service.as_bytes());
    }

    /// The same with its proof.
    #[must_use]
    pub fn proven(mut self, key: &DeviceKey, binding: Binding) -> Self {
        self.proof = key.opening(binding, &written(|out| self.unproven(out)));
        self
    }

    /// Whether the proof is by who has the key, for this carrier.
    pub fn is_proven(&self, key: &DeviceKey, binding: Binding) -> bool {
        key.is_opening(binding, &written(|out| self.unproven(out)), &self.proof)
    }
}

impl Resume {
    fn unproven(&self, out: &mut Vec<u8>) {
        put_name(out, self.name);
        put_varint(out, self.epoch);
        put_varint(out, self.since);
        put_varint(out, self.received);
        put_varint(out, self.credit);
        put_varint(out, self.lane_use.number());
    }

    /// The same with its proof.
    #[must_use]
    pub fn proven(mut self, key: &FlowKey, binding: Binding) -> Self {
        self.proof = key.resuming(binding, &written(|out| self.unproven(out)));
        self
    }

    /// Whether the proof is by who has the key, for this carrier.
    pub fn is_proven(&self, key: &FlowKey, binding: Binding) -> bool {
        key.is_resuming(binding, &written(|out| self.unproven(out)), &self.proof)
    }
}

impl Attached {
    fn unproven(&self, out: &mut Vec<u8>) {
        put_varint(out, self.received);
        put_varint(out, self.credit);
    }

    /// The same with its proof, for the attachment of this epoch.
    #[must_use]
    pub fn proven(mut self, key: &FlowKey, binding: Binding, epoch: u64) -> Self {
        self.proof = key.attached(binding, epoch, &written(|out| self.unproven(out)));
        self
    }

    /// Whether the proof is by who has the key, for this carrier and epoch.
    pub fn is_proven(&self, key: &FlowKey, binding: Binding, epoch: u64) -> bool {
        key.is_attached(binding, epoch, &written(|out| self.unproven(out)), &self.proof)
    }
}

fn written(write: impl Fn(&mut Vec<u8>)) -> Vec<u8> {
    let mut out = Vec::new();
    write(&mut out);
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;

    const NAME: FlowName = FlowName { device: DeviceId([7; 20]), flow: FlowId(0x0123_4567_89ab_cdef) };

    fn open() -> Open<'static> {
        Open {
            name: NAME,
            epoch: 1,
            since: 1,
            received: 0,
            credit: 65_536,
            deadline: Some(UnixTime(1_800_000_000)),
            size: Some(0),
            lane_use: Use::Backup,
            nonce: [1; 32],
            service: "tcp:example.org:443",
            proof: [2; 32],
        }
    }

    fn resume() -> Resume {
        let (received, credit) = (1 << 40, (1 << 40) + 5);
        Resume { name: NAME, epoch: 9, since: 4, received, credit, lane_use: Use::Normal, proof: [3; 32] }
    }

    fn frames() -> Vec<Frame<'static>> {
        vec![
            Frame::Hello { nonce: [4; 32] },
            Frame::Challenge { nonce: [5; 32] },
            Frame::Open(open()),
            Frame::Open(Open { deadline: None, size: None, service: "", ..open() }),
            Frame::Resume(resume()),
            Frame::Attached(Attached { received: 0, credit: 1, proof: [6; 32] }),
            Frame::Refused(Refusal::Unknown),
            Frame::Refused(Refusal::Stale { highest: 77 }),
            Frame::Refused(Refusal::Ended { code: 0 }),
            Frame::Refused(Refusal::Busy { secs: 30 }),
            Frame::Refused(Refusal::Full),
            Frame::Refused(Refusal::NoService),
            Frame::Refused(Refusal::Version),
            Frame::Data { offset: 5 << 32, bytes: b"past four gibibytes" },
            Frame::Ack { received: 3, credit: 9 },
            Frame::Fin { end: 0 },
            Frame::Reset { code: 256 },
            Frame::End { code: 0 },
            Frame::Deadline(None),
            Frame::Deadline(Some(UnixTime(1))),
            Frame::Size(None),
            Frame::Size(Some(12)),
            Frame::Park,
            Frame::Use(Use::Backup),
        ]
    }

    fn bytes(frame: &Frame<'_>) -> Vec<u8> {
        written(|out| frame.put(out))
    }

    #[test]
    fn what_is_written_reads_the_same_and_every_cut_is_an_unfinished_frame() {
        for frame in frames() {
            let bytes = bytes(&frame);
            let mut rest = &bytes[..];
            assert_eq!(Frame::take(&mut rest), Ok(Some(frame)));
            assert!(rest.is_empty());
            for cut in 0..bytes.len() {
                let mut rest = &bytes[..cut];
                assert_eq!(Frame::take(&mut rest), Ok(None), "{frame:?} cut at {cut}");
                assert_eq!(rest.len(), cut, "an unfinished frame stays where it is");
            }
        }
    }

    #[test]
    fn a_payload_that_is_longer_or_shorter_than_its_fields_is_malformed() {
        for frame in frames() {
            let mut payload = Vec::new();
            let kind = frame.payload(&mut payload);
            // The last field of DATA is as long as it is, and an OPEN's name of a service too.
            if matches!(frame, Frame::Data { .. } | Frame::Open(_)) {
                continue;
            }
            for wrong in [[&payload[..], &[0]].concat(), payload[..payload.len().saturating_sub(1)].to_vec()] {
                let mut bytes = Vec::new();
                put_varint(&mut bytes, kind);
                put_varint(&mut bytes, wrong.len() as u64);
                bytes.extend_from_slice(&wrong);
                if wrong != payload {
                    assert_eq!(Frame::take(&mut &bytes[..]), Err(FrameError::Malformed(kind)), "{frame:?}");
                }
            }
        }
    }

    #[test]
    fn an_overlong_frame_is_refused_by_its_head_and_an_unknown_one_is_skipped() {
        let mut long = Vec::new();
        put_varint(&mut long, 0x07);
        put_varint(&mut long, PAYLOAD_MAX as u64 + 1);
        assert_eq!(Frame::take(&mut &long[..]), Err(FrameError::TooLong { kind: 7, len: PAYLOAD_MAX as u64 + 1 }));
        assert_eq!(Frame::take(&mut &[0x0f][..]), Err(FrameError::Type(0x0f)));
        let mut passed = Vec::new();
        put_varint(&mut passed, FIRST_UNKNOWN);
        put_varint(&mut passed, 3);
        passed.extend_from_slice(b"new");
        Frame::Park.put(&mut passed);
        assert_eq!(Frame::take(&mut &passed[..]), Ok(Some(Frame::Park)));
        assert_eq!(Frame::take(&mut &[0x06, 0x01, 0x00][..]), Err(FrameError::Malformed(6)), "no bytes");
    }

    #[test]
    fn a_head_of_data_and_its_bytes_are_a_data_frame() {
        let mut bytes = Vec::new();
        put_data_head(&mut bytes, 70_000, 3);
        bytes.extend_from_slice(b"abc");
        assert_eq!(Frame::take(&mut &bytes[..]), Ok(Some(Frame::Data { offset: 70_000, bytes: b"abc" })));
    }

    #[test]
    fn a_proof_holds_for_its_key_its_carrier_and_its_words_alone() {
        let (key, other) = (DeviceKey([1; 32]), DeviceKey([2; 32]));
        let (here, there) = (Binding([3; 32]), Binding([4; 32]));
        let open = open().proven(&key, here);
        assert!(open.is_proven(&key, here) && !open.is_proven(&other, here) && !open.is_proven(&key, there));
        assert!(!Open { service: "tcp:example.org:22", ..open }.is_proven(&key, here));
        let flow = key.flow_key(NAME, &open.nonce);
        let resume = resume().proven(&flow, here);
        assert!(resume.is_proven(&flow, here) && !resume.is_proven(&flow, there));
        assert!(!resume.is_proven(&key.flow_key(NAME, &[9; 32]), here));
        let name = FlowName { flow: FlowId(1), ..NAME };
        assert!(!Resume { name, ..resume }.is_proven(&flow, here), "another flow's");
        assert!(!Resume { epoch: 10, ..resume }.is_proven(&flow, here), "a later attachment");
        let attached = Attached { received: 5, credit: 6, proof: [0; 32] }.proven(&flow, here, 9);
        assert!(attached.is_proven(&flow, here, 9) && !attached.is_proven(&flow, here, 8));
        let given_back = Attached { proof: resume.proof, ..attached };
        assert!(!given_back.is_proven(&flow, here, 9), "a device's own proof given back to it");
    }
}
