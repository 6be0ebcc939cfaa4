//! One field line (RFC 9204 §4.5), of the three kinds that refer to no dynamic table.
//!
//! ```text
//!  1 1 | index(6+)                         a field of the table
//!  0 1 N 1 | index(4+) | value             a name of the table, and a value
//!  0 0 1 N H | length(3+) | name | value   a name and a value
//!
//!  value:  H | length(7+) | bytes
//! ```
//!
//! Numbers are those of RFC 7541 §5.1. H says that the bytes are Huffman-coded. Where it is 0, a byte of a value below 0x20 stands for a
//! part of the table, since no value has such bytes itself; and a value of [`DATE`] and four bytes is a date.

use crate::date;
use crate::error::{HEAD_MAX, HeadError};
use crate::huffman;
use crate::table::{self, Found};
use alloc::borrow::Cow;
use alloc::vec::Vec;

/// With this byte begins a date; its seconds since 1970 follow, big-endian.
const DATE: u8 = 0x1f;

/// Bytes that the table has, or that came.
pub type Text = Cow<'static, [u8]>;

/// A name and a value, not yet judged.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Line {
    pub name: Text,
    pub value: Text,
}

impl Line {
    /// Takes a line from the front of `rest`, which is not empty.
    pub fn take(rest: &mut &[u8]) -> Result<Self, HeadError> {
        match first(rest)? {
            0b1100_0000.. => {
                let (name, value) = take_entry(rest, 6)?;
                Ok(Self { name: name.as_bytes().into(), value: value.as_bytes().into() })
            }
            byte if byte & 0b1101_0000 == 0b0101_0000 => {
                let (name, _) = take_entry(rest, 4)?;
                Ok(Self { name: name.as_bytes().into(), value: take_value(rest)?.into() })
            }
            byte if byte & 0b1110_0000 == 0b0010_0000 => {
                let (is_coded, bytes) = take_string(rest, 3)?;
                let name = if is_coded { huffman_decoded(bytes)? } else { bytes.to_vec() };
                Ok(Self { name: name.into(), value: take_value(rest)?.into() })
            }
            _ => Err(HeadError::DynamicTable),
        }
    }
}

/// Appends a line. The name and the value are valid.
pub fn put_line(name: &[u8], value: &[u8], into: &mut Vec<u8>) {
    match table::find(name, value) {
        Found::Field(index) => return put_number(index, 0b1100_0000, 6, into),
        Found::Name(index) => put_number(index, 0b0101_0000, 4, into),
        Found::Nothing => put_string(name, name, 0b0010_0000, 3, into),
    }
    match date::seconds(value) {
        Some(seconds) => {
            put_number(5, 0, 7, into);
            into.push(DATE);
            into.extend_from_slice(&seconds.to_be_bytes());
        }
        None => put_string(value, &in_parts(value), 0, 7, into),
    }
}

/// The value with a byte for each part of the table in it.
fn in_parts(value: &[u8]) -> Vec<u8> {
    let (mut short, mut rest) = (Vec::with_capacity(value.len()), value);
    while let Some((byte, behind)) = rest.split_first() {
        let (byte, behind) = match table::longest_part(rest) {
            Some((byte, part)) => (byte, &rest[part.len()..]),
            None => (*byte, behind),
        };
        short.push(byte);
        rest = behind;
    }
    short
}

/// Appends a string in its shorter form, Huffman-coded or `short`; the bit above the length's `prefix` bits says which.
fn put_string(plain: &[u8], short: &[u8], pattern: u8, prefix: u32, into: &mut Vec<u8>) {
    let coded_len = huffman::coded_len(plain);
    if coded_len < short.len() {
        put_number(coded_len as u64, pattern | 1 << prefix, prefix, into);
        huffman::encode(plain, into);
    } else {
        put_number(short.len() as u64, pattern, prefix, into);
        into.extend_from_slice(short);
    }
}

fn take_value(rest: &mut &[u8]) -> Result<Vec<u8>, HeadError> {
    let (is_coded, bytes) = take_string(rest, 7)?;
    if is_coded {
        return huffman_decoded(bytes);
    }
    if let [DATE, seconds @ ..] = bytes
        && let Ok(seconds) = seconds.try_into()
    {
        return Ok(date::written(u32::from_be_bytes(seconds)).to_vec());
    }
    let mut value = Vec::with_capacity(bytes.len());
    for byte in bytes {
        match table::part(*byte) {
            Some(part) => value.extend_from_slice(part.as_bytes()),
            None => value.push(*byte),
        }
        // A byte may stand for many.
        if value.len() > HEAD_MAX {
            return Err(HeadError::TooLong);
        }
    }
    Ok(value)
}

fn huffman_decoded(coded: &[u8]) -> Result<Vec<u8>, HeadError> {
    let mut plain = Vec::with_capacity(coded.len() * 3 / 2);
    huffman::decode(coded, &mut plain)?;
    Ok(plain)
}

/// Takes a string: whether it is Huffman-coded, and its bytes.
fn take_string<'a>(rest: &mut &'a [u8], prefix: u32) -> Result<(bool, &'a [u8]), HeadError> {
    let is_coded = first(rest)? & 1 << prefix != 0;
    let len = take_number(rest, prefix)?;
    let whole = usize::try_from(len).ok().and_then(|len| rest.split_at_checked(len));
    let (bytes, behind) = whole.ok_or(HeadError::Truncated)?;
    *rest = behind;
    Ok((is_coded, bytes))
}

fn take_entry(rest: &mut &[u8], prefix: u32) -> Result<(&'static str, &'static str), HeadError> {
    let index = take_number(rest, prefix)?;
    table::entry(index).ok_or(HeadError::Index(index))
}

/// Appends a number (RFC 7541 §5.1) whose first byte shares its upper bits with `pattern`.
fn put_number(number: u64, pattern: u8, prefix: u32, into: &mut Vec<u8>) {
    let max = (1 << prefix) - 1;
    if number < max {
        return into.push(pattern | number as u8);
    }
    into.push(pattern | max as u8);
    let mut more = number - max;
    while more >= 0x80 {
        into.push(more as u8 | 0x80);
        more >>= 7;
    }
    into.push(more as u8);
}

/// Takes a number from the lowest `prefix` bits of the first byte, and those after it.
fn take_number(rest: &mut &[u8], prefix: u32) -> Result<u64, HeadError> {
    let max = (1 << prefix) - 1;
    let mut number = u64::from(take_byte(rest)? & max);
    if number < u64::from(max) {
        return Ok(number);
    }
    // Seven bits each: five bytes have all numbers that could be of use, and many that could not.
    for shift in [0, 7, 14, 21, 28] {
        let byte = take_byte(rest)?;
        number += u64::from(byte & 0x7f) << shift;
        if byte < 0x80 {
            return Ok(number);
        }
    }
    Err(HeadError::Number)
}

fn take_byte(rest: &mut &[u8]) -> Result<u8, HeadError> {
    let byte = first(rest)?;
    *rest = &rest[1..];
    Ok(byte)
}

fn first(rest: &[u8]) -> Result<u8, HeadError> {
    rest.first().copied().ok_or(HeadError::Truncated)
}
