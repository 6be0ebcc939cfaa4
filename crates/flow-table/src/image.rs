//! A flow's record in bytes: [`Image`].

use alloc::string::String;
use alloc::vec::Vec;
use hoop_flow::{DeviceId, DeviceKey, FlowId, FlowKey, FlowName, Record};
use hoop_units::UnixTime;

/// The version of the encoding.
const VERSION: u8 = 1;

/// The bytes that every record has.
pub const FIXED_LEN: usize = 136;

/// Where the name stands.
const HOST_AT: usize = 12;

/// The most bytes behind them: four numbers, what an OPEN needs, and an attachment.
pub const TAIL_MAX: usize = 4 * 8 + (64 + 1 + 255) + ATTACHMENT_MAX;

/// The longest attachment.
const ATTACHMENT_MAX: usize = 1024;

const IS_DEVICE: u8 = 1;
const FINISHED: u8 = 1 << 1;
const SPOOLS: u8 = 1 << 2;
const OPENING: u8 = 1 << 3;
const END: u8 = 1 << 4;
const SIZE: u8 = 1 << 5;
const RESET: u8 = 1 << 6;
const ENDED: u8 = 1 << 7;

/// A flow as it is kept: what every one has in fields of their own, what few have and the attachment in a row of bytes, the *tail*.
///
/// `docs/flow-store.md` §3 has the layout.
#[derive(Clone, Debug)]
pub struct Image {
    /// Which flow.
    pub name: FlowName,
    /// Since when it is as it is: parked, if it is not live.
    pub since: UnixTime,
    /// Whether it was attached when this was written.
    pub is_attached: bool,
    pub(crate) body: Body,
    pub(crate) tail: Vec<u8>,
}

/// What the table keeps of each.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct Body {
    pub(crate) flow: u64,
    pub(crate) key: [u8; 32],
    /// Epoch, acked, available, written, credit, kept, consumed, granted.
    pub(crate) numbers: [u64; 8],
    /// 0: none.
    pub(crate) deadline: u32,
    pub(crate) flags: u8,
}

/// Bytes that are no record.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum ImageError {
    /// Made by a later version.
    #[error("a record has version {0}, and this program knows {VERSION}")]
    Later(u8),
    /// Too short, too long, or with a field that means nothing.
    #[error("a record means nothing: {0}")]
    Meaningless(&'static str),
}

impl Image {
    /// Of a record, its attachment, and whether its bytes are spooled.
    ///
    /// # Errors
    /// If the attachment has more than 1024 bytes, or the service more than 255.
    pub fn new(
        record: &Record,
        attachment: &[u8],
        spools: bool,
        is_attached: bool,
        since: UnixTime,
    ) -> Result<Self, ImageError> {
        if attachment.len() > ATTACHMENT_MAX {
            return Err(ImageError::Meaningless("its attachment is too long"));
        }
        let mut flags = 0;
        for (flag, is_set) in [(IS_DEVICE, record.is_device), (FINISHED, record.finished), (SPOOLS, spools)] {
            flags |= if is_set { flag } else { 0 };
        }
        let mut tail = Vec::with_capacity(attachment.len());
        let Record { end, size, reset, ended, .. } = *record;
        for (flag, number) in [(END, end), (SIZE, size), (RESET, reset), (ENDED, ended)] {
            if let Some(number) = number {
                flags |= flag;
                tail.extend_from_slice(&number.to_be_bytes());
            }
        }
        if let Some((key, nonce, service)) = &record.opening {
            flags |= OPENING;
            let len = u8::try_from(service.len()).map_err(|_| ImageError::Meaningless("its service is too long"))?;
            tail.extend_from_slice(&key.0);
            tail.extend_from_slice(nonce);
            tail.push(len);
            tail.extend_from_slice(service.as_bytes());
        }
        tail.extend_from_slice(attachment);
        let numbers = [
            record.epoch,
            record.acked,
            record.available,
            record.written,
            record.credit,
            record.kept,
            record.consumed,
            record.granted,
        ];
        let deadline = record.deadline.map_or(0, UnixTime::as_secs);
        let body = Body { flow: record.name.flow.0, key: record.key.0, numbers, deadline, flags };
        Ok(Self { name: record.name, since, is_attached, body, tail })
    }

    /// The record, the attachment, and whether its bytes are spooled.
    ///
    /// # Errors
    /// If the tail is not what the flags say.
    pub fn record(&self) -> Result<(Record, Vec<u8>, bool), ImageError> {
        let Body { key, numbers, deadline, flags, .. } = self.body;
        let mut tail = &self.tail[..];
        let mut number = |flag| if flags & flag == 0 { Ok(None) } else { take_number(&mut tail).map(Some) };
        let (end, size, reset, ended) = (number(END)?, number(SIZE)?, number(RESET)?, number(ENDED)?);
        let opening = if flags & OPENING == 0 { None } else { Some(take_opening(&mut tail)?) };
        if tail.len() > ATTACHMENT_MAX {
            return Err(ImageError::Meaningless("its attachment is too long"));
        }
        let [epoch, acked, available, written, credit, kept, consumed, granted] = numbers;
        let record = Record {
            name: self.name,
            key: FlowKey(key),
            is_device: flags & IS_DEVICE != 0,
            epoch,
            acked,
            available,
            written,
            finished: flags & FINISHED != 0,
            credit,
            kept,
            consumed,
            granted,
            end,
            deadline: (deadline != 0).then_some(UnixTime(deadline)),
            size,
            reset,
            ended,
            opening,
        };
        Ok((record, tail.to_vec(), flags & SPOOLS != 0))
    }

    /// When the flow should be done.
    pub fn deadline(&self) -> Option<UnixTime> {
        (self.body.deadline != 0).then_some(UnixTime(self.body.deadline))
    }

    /// How many bytes [`Image::put`] writes.
    pub fn len(&self) -> usize {
        FIXED_LEN + self.tail.len()
    }

    /// Never: there is always what every record has.
    pub const fn is_empty(&self) -> bool {
        false
    }

    /// Writes it behind `out`.
    pub fn put(&self, out: &mut Vec<u8>) {
        let Body { flow, key, numbers, deadline, flags } = self.body;
        out.extend_from_slice(&[VERSION, flags, u8::from(self.is_attached), 0]);
        out.extend_from_slice(&deadline.to_be_bytes());
        out.extend_from_slice(&self.since.as_secs().to_be_bytes());
        out.extend_from_slice(&self.name.device.0);
        out.extend_from_slice(&flow.to_be_bytes());
        out.extend_from_slice(&key);
        numbers.iter().for_each(|number| out.extend_from_slice(&number.to_be_bytes()));
        out.extend_from_slice(&self.tail);
    }

    /// Whether what [`Image::put`] wrote is of this flow.
    pub fn is_of(bytes: &[u8], name: FlowName) -> bool {
        let Some((host, rest)) = bytes.get(HOST_AT..).and_then(|rest| rest.split_first_chunk()) else { return false };
        *host == name.device.0 && rest.first_chunk() == Some(&name.flow.0.to_be_bytes())
    }

    /// Reads what [`Image::put`] wrote.
    ///
    /// # Errors
    /// If it is none.
    pub fn parse(bytes: &[u8]) -> Result<Self, ImageError> {
        let (mut rest, tail) = match bytes.first() {
            Some(&version) if version > VERSION => return Err(ImageError::Later(version)),
            _ => bytes.split_at_checked(FIXED_LEN).ok_or(ImageError::Meaningless("it is cut off"))?,
        };
        let [version, flags, is_attached, zero] = take(&mut rest)?;
        if version != VERSION || is_attached > 1 || zero != 0 || tail.len() > TAIL_MAX {
            return Err(ImageError::Meaningless("a field is out of its range"));
        }
        let deadline = u32::from_be_bytes(take(&mut rest)?);
        let since = UnixTime(u32::from_be_bytes(take(&mut rest)?));
        let host = DeviceId(take(&mut rest)?);
        let flow = take_number(&mut rest)?;
        let key = take(&mut rest)?;
        let mut numbers = [0; 8];
        for number in &mut numbers {
            *number = take_number(&mut rest)?;
        }
        let body = Body { flow, key, numbers, deadline, flags };
        let name = FlowName { device: host, flow: FlowId(flow) };
        let image = Self { name, since, is_attached: is_attached == 1, body, tail: tail.to_vec() };
        let numbers = (flags & (END | SIZE | RESET | ENDED)).count_ones() as usize;
        match flags & OPENING == 0 && (numbers * 8..=numbers * 8 + ATTACHMENT_MAX).contains(&tail.len()) {
            true => Ok(image),
            false => image.record().map(|_| image),
        }
    }
}

fn take<const N: usize>(rest: &mut &[u8]) -> Result<[u8; N], ImageError> {
    let (head, tail) = rest.split_first_chunk().ok_or(ImageError::Meaningless("it is cut off"))?;
    *rest = tail;
    Ok(*head)
}

fn take_number(rest: &mut &[u8]) -> Result<u64, ImageError> {
    take(rest).map(u64::from_be_bytes)
}

fn take_opening(rest: &mut &[u8]) -> Result<(DeviceKey, [u8; 32], String), ImageError> {
    let (key, nonce, [len]) = (DeviceKey(take(rest)?), take(rest)?, take(rest)?);
    let (service, tail) = rest.split_at_checked(len.into()).ok_or(ImageError::Meaningless("it is cut off"))?;
    *rest = tail;
    let service = core::str::from_utf8(service).map_err(|_| ImageError::Meaningless("its service is no text"))?;
    Ok((key, nonce, service.into()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::format;
    use alloc::vec;

    fn record(full: bool) -> Record {
        Record {
            name: FlowName { device: DeviceId([7; 20]), flow: FlowId(0x0102_0304_0506_0708) },
            key: FlowKey([9; 32]),
            is_device: full,
            epoch: 1,
            acked: 2,
            available: 3,
            written: u64::MAX,
            finished: full,
            credit: 5,
            kept: 6,
            consumed: 7,
            granted: 8,
            end: full.then_some(u64::MAX),
            deadline: full.then_some(UnixTime(u32::MAX)),
            size: full.then_some(0),
            reset: full.then_some(10),
            ended: full.then_some(11),
            opening: full.then(|| (DeviceKey([12; 32]), [13; 32], "s".repeat(255))),
        }
    }

    #[test]
    fn every_record_comes_back_as_it_was_and_no_truncation_does() {
        for full in [false, true] {
            for attachment in [vec![], vec![1; 80], vec![0xff; ATTACHMENT_MAX]] {
                let image = Image::new(&record(full), &attachment, full, full, UnixTime(77)).unwrap();
                let mut bytes = Vec::new();
                image.put(&mut bytes);
                assert_eq!(bytes.len(), image.len());
                let parsed = Image::parse(&bytes).unwrap();
                assert_eq!((parsed.since, parsed.is_attached, parsed.name), (UnixTime(77), full, image.name));
                let (found, found_attachment, spools) = parsed.record().unwrap();
                // Keys do not show.
                assert_eq!(format!("{found:?}"), format!("{:?}", record(full)));
                assert_eq!((found.key.0, found_attachment, spools), ([9; 32], attachment.clone(), full));
                let least = bytes.len() - attachment.len();
                for len in 0..least {
                    assert!(Image::parse(&bytes[..len]).is_err(), "{len} of {} bytes are a record", bytes.len());
                }
            }
        }
    }

    #[test]
    fn a_later_version_and_what_is_too_long_are_refused_by_name() {
        let image = Image::new(&record(false), b"u", false, false, UnixTime(1)).unwrap();
        let mut bytes = Vec::new();
        image.put(&mut bytes);
        bytes[0] = 2;
        assert_eq!(Image::parse(&bytes).unwrap_err(), ImageError::Later(2));
        bytes[0] = 1;
        bytes.resize(FIXED_LEN + ATTACHMENT_MAX + 1, 0);
        assert!(Image::parse(&bytes).is_err());
        assert!(Image::new(&record(false), &[0; ATTACHMENT_MAX + 1], false, false, UnixTime(1)).is_err());
    }
}
