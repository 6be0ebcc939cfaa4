//! A head within a stream: its length, a varint (RFC 9000 §16) in its shortest form, and its section.

use crate::error::{HEAD_MAX, HeadError};
use alloc::vec::Vec;
use core::ops::Range;

/// Where the section lies in `bytes`, which begin with its length; None if more must come. What follows the head begins where it ends.
///
/// # Errors
/// [`HeadError::TooLong`] as soon as the length exceeds [`HEAD_MAX`], and [`HeadError::Number`] if it is not in its shortest form.
pub fn split(bytes: &[u8]) -> Result<Option<Range<usize>>, HeadError> {
    let Some(first) = bytes.first() else { return Ok(None) };
    let start = 1 << (first >> 6);
    if start == 8 {
        return Err(HeadError::TooLong);
    }
    let Some(number) = bytes.get(..start) else { return Ok(None) };
    let len = number[1..].iter().fold(usize::from(first & 0x3f), |len, byte| len << 8 | usize::from(*byte));
    if len > HEAD_MAX {
        return Err(HeadError::TooLong);
    }
    if length_len(len) != start {
        return Err(HeadError::Number);
    }
    let section = start..start + len;
    Ok((section.end <= bytes.len()).then_some(section))
}

/// Appends a section's length, and the section.
///
/// # Errors
/// [`HeadError::TooLong`] if it is longer than [`HEAD_MAX`].
pub fn frame(section: &[u8], into: &mut Vec<u8>) -> Result<(), HeadError> {
    if section.len() > HEAD_MAX {
        return Err(HeadError::TooLong);
    }
    let len = length_len(section.len());
    let number = section.len() as u64 | u64::from(len.trailing_zeros()) << (len * 8 - 2);
    into.extend_from_slice(&number.to_be_bytes()[8 - len..]);
    into.extend_from_slice(section);
    Ok(())
}

/// How many bytes the varint of a length up to [`HEAD_MAX`] takes.
const fn length_len(len: usize) -> usize {
    match len {
        0..0x40 => 1,
        0x40..0x4000 => 2,
        _ => 4,
    }
}
