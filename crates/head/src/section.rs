//! A field section: lines, within the limits.

use crate::error::{FIELDS_MAX, HEAD_MAX, HeadError};
use crate::line::{Line, put_line};
use alloc::vec::Vec;

/// What a field takes of [`HEAD_MAX`] beside its name and value (RFC 9114 §4.2.2).
const FIELD_COST: usize = 32;

/// What the fields so far take of the limits.
#[derive(Default)]
struct Extent {
    fields: usize,
    size: usize,
}

impl Extent {
    fn add(&mut self, name: &[u8], value: &[u8]) -> Result<(), HeadError> {
        self.fields += 1;
        self.size += name.len() + value.len() + FIELD_COST;
        match (self.fields, self.size) {
            (..=FIELDS_MAX, ..=HEAD_MAX) => Ok(()),
            (_, ..=HEAD_MAX) => Err(HeadError::TooManyFields),
            _ => Err(HeadError::TooLong),
        }
    }
}

/// Writes a section behind what a buffer has.
pub struct Writer<'a> {
    into: &'a mut Vec<u8>,
    start: usize,
    extent: Extent,
}

impl<'a> Writer<'a> {
    pub fn new(into: &'a mut Vec<u8>) -> Self {
        Self { start: into.len(), into, extent: Extent::default() }
    }

    /// Appends a field that is valid.
    pub fn put(&mut self, name: &[u8], value: &[u8]) -> Result<(), HeadError> {
        self.extent.add(name, value)?;
        put_line(name, value, self.into);
        if self.into.len() - self.start > HEAD_MAX { Err(HeadError::TooLong) } else { Ok(()) }
    }
}

/// The lines of a section, up to the first error.
pub fn lines(section: &[u8]) -> Result<impl Iterator<Item = Result<Line, HeadError>>, HeadError> {
    if section.len() > HEAD_MAX {
        return Err(HeadError::TooLong);
    }
    let (mut rest, mut extent) = (section, Extent::default());
    Ok(core::iter::from_fn(move || {
        if rest.is_empty() {
            return None;
        }
        let line = Line::take(&mut rest).and_then(|line| extent.add(&line.name, &line.value).map(|()| line));
        if line.is_err() {
            rest = &[];
        }
        Some(line)
    }))
}
