//! Integers of variable length (RFC 9000 §16), in their shortest form only: one number has one spelling.

use alloc::vec::Vec;

/// The largest number that can be written: 2^62 - 1.
pub const VARINT_MAX: u64 = (1 << 62) - 1;

/// How many bytes `value` takes: 1, 2, 4 or 8.
pub const fn varint_len(value: u64) -> usize {
    match value {
        0..0x40 => 1,
        0x40..0x4000 => 2,
        0x4000..0x4000_0000 => 4,
        _ => 8,
    }
}

/// Appends `value`; what is above [`VARINT_MAX`] is written as that.
pub fn put_varint(out: &mut Vec<u8>, value: u64) {
    let value = value.min(VARINT_MAX);
    let len = varint_len(value);
    let bytes = (value | u64::from(len.trailing_zeros()) << (len * 8 - 2)).to_be_bytes();
    out.extend_from_slice(&bytes[8 - len..]);
}

/// The bytes hold no whole number yet, or one in a longer form than it needs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum VarintError {
    /// More bytes may complete it.
    Short,
    /// Not the shortest form.
    Long,
}

/// Takes a number from the front of `bytes`.
///
/// # Errors
/// See [`VarintError`]; `bytes` stay as they were.
pub fn take_varint(bytes: &mut &[u8]) -> Result<u64, VarintError> {
    let first = *bytes.first().ok_or(VarintError::Short)?;
    let len = 1 << (first >> 6);
    let (number, rest) = bytes.split_at_checked(len).ok_or(VarintError::Short)?;
    let value = number[1..].iter().fold(u64::from(first & 0x3f), |value, byte| value << 8 | u64::from(*byte));
    if varint_len(value) != len {
        return Err(VarintError::Long);
    }
    *bytes = rest;
    Ok(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_examples_of_rfc_9000_read_and_write_the_same() {
        let examples: [(&[u8], u64); 4] = [
            (&[0xc2, 0x19, 0x7c, 0x5e, 0xff, 0x14, 0xe8, 0x8c], 151_288_809_941_952_652),
            (&[0x9d, 0x7f, 0x3e, 0x7d], 494_878_333),
            (&[0x7b, 0xbd], 15_293),
            (&[0x25], 37),
        ];
        for (bytes, value) in examples {
            let mut rest = bytes;
            assert_eq!((take_varint(&mut rest), rest), (Ok(value), &[][..]));
            let mut out = Vec::new();
            put_varint(&mut out, value);
            assert_eq!(out, bytes);
            for cut in 0..bytes.len() {
                assert_eq!(take_varint(&mut &bytes[..cut]), Err(VarintError::Short));
            }
        }
        // RFC 9000 allows this second spelling of 37; a flow does not.
        assert_eq!(take_varint(&mut &[0x40, 0x25][..]), Err(VarintError::Long));
    }
}
