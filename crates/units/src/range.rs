//! Byte ranges: one [`ByteRange`], the `Content-Range` it travels in, and a [`RangeSet`] of what is there.

use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt::{self, Write as _};
use core::str::FromStr;

/// The bytes from `start` up to but without `end`. May be empty.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct ByteRange {
    /// The first byte.
    pub start: u64,
    /// The byte after the last.
    pub end: u64,
}

impl ByteRange {
    /// The bytes from `start` up to but without `end`.
    ///
    /// # Panics
    /// If `end` lies before `start`: ranges from outside come through [`ContentRange`].
    pub const fn new(start: u64, end: u64) -> Self {
        assert!(start <= end, "a range ends where it starts or after");
        Self { start, end }
    }

    /// How many bytes.
    pub const fn len(self) -> u64 {
        self.end - self.start
    }

    /// Whether it holds no byte.
    pub const fn is_empty(self) -> bool {
        self.start == self.end
    }

    /// The bytes that both hold; empty if none.
    pub fn intersect(self, other: Self) -> Self {
        let start = self.start.max(other.start);
        Self { start, end: self.end.min(other.end).max(start) }
    }
}

impl fmt::Display for ByteRange {
    /// `first-last` as in RFC 9110 §14.1.1. An empty range has no such form; it is written `start-` .
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.is_empty() {
            true => write!(f, "{}-", self.start),
            false => write!(f, "{}-{}", self.start, self.end - 1),
        }
    }
}

/// A `Content-Range: bytes first-last/total` (RFC 9110 §14.4): not empty, within the total, total known.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ContentRange {
    /// The bytes that the message carries.
    pub range: ByteRange,
    /// The length of the whole.
    pub total: u64,
}

/// The text is no range that Hoop can use.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum ParseRangeError {
    /// Not of the form.
    #[error("expected `bytes first-last/total`, each a decimal number")]
    Form,
    /// The last byte comes before the first.
    #[error("the last byte, {last}, comes before the first, {first}")]
    Backwards {
        /// The first byte as given.
        first: u64,
        /// The last byte as given.
        last: u64,
    },
    /// The last byte lies past the end.
    #[error("the last byte, {last}, lies past the total of {total} bytes")]
    PastTotal {
        /// The last byte as given.
        last: u64,
        /// The total as given.
        total: u64,
    },
}

impl FromStr for ContentRange {
    type Err = ParseRangeError;

    fn from_str(text: &str) -> Result<Self, ParseRangeError> {
        let spec = text.strip_prefix("bytes ").ok_or(ParseRangeError::Form)?;
        let (range, total) = spec.split_once('/').ok_or(ParseRangeError::Form)?;
        let (first, last) = range.split_once('-').ok_or(ParseRangeError::Form)?;
        let (first, last, total) = (number(first)?, number(last)?, number(total)?);
        if last < first {
            return Err(ParseRangeError::Backwards { first, last });
        }
        if last >= total {
            return Err(ParseRangeError::PastTotal { last, total });
        }
        Ok(Self { range: ByteRange::new(first, last + 1), total })
    }
}

impl fmt::Display for ContentRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "bytes {}/{}", self.range, self.total)
    }
}

/// Digits only, no sign, no blank: what `u64::from_str` alone would let pass (`+1`) is refused.
fn number(text: &str) -> Result<u64, ParseRangeError> {
    if text.is_empty() || !text.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(ParseRangeError::Form);
    }
    text.parse().map_err(|_| ParseRangeError::Form)
}

/// A set of bytes, kept as disjoint ranges that do not touch.
///
/// Memory grows with the number of gaps, not with the number of bytes; whoever feeds it from outside bounds the
/// gaps ([`RangeSet::spans`]).
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct RangeSet {
    /// start → end
    spans: BTreeMap<u64, u64>,
}

impl RangeSet {
    /// The empty set.
    pub const fn new() -> Self {
        Self { spans: BTreeMap::new() }
    }

    /// Adds all bytes of `range`.
    pub fn insert(&mut self, range: ByteRange) {
        if range.is_empty() {
            return;
        }
        let (mut start, mut end) = (range.start, range.end);
        // Everything that overlaps or touches melts into one span.
        while let Some((&s, &e)) = self.spans.range(..=end).next_back() {
            if e < start {
                break;
            }
            self.spans.remove(&s);
            start = start.min(s);
            end = end.max(e);
        }
        self.spans.insert(start, end);
    }

    /// Takes all bytes of `range` out.
    pub fn remove(&mut self, range: ByteRange) {
        if range.is_empty() {
            return;
        }
        while let Some((&s, &e)) = self.spans.range(..range.end).next_back() {
            if e <= range.start {
                break;
            }
            self.spans.remove(&s);
            if e > range.end {
                self.spans.insert(range.end, e);
            }
            if s < range.start {
                self.spans.insert(s, range.start);
            }
        }
    }

    /// Whether every byte of `range` is in the set.
    pub fn contains(&self, range: ByteRange) -> bool {
        range.is_empty() || self.spans.range(..=range.start).next_back().is_some_and(|(_, &end)| end >= range.end)
    }

    /// The spans that have bytes of `range`, in order; also the bytes that they have beside it. It takes as long as there are such spans, and the logarithm of all.
    pub fn overlapping(&self, range: ByteRange) -> impl Iterator<Item = ByteRange> + '_ {
        let before =
            self.spans.range(..range.start).next_back().filter(|(_, end)| **end > range.start && !range.is_empty());
        let within = self.spans.range(range.start..range.end.max(range.start));
        before.into_iter().chain(within).map(|(&start, &end)| ByteRange { start, end })
    }

    /// Whether a span has bytes of `range`, or touches it.
    pub fn touches(&self, range: ByteRange) -> bool {
        self.spans.range(..=range.end).next_back().is_some_and(|(_, &end)| end >= range.start)
    }

    /// The end of the last span; 0 if there is none.
    pub fn end(&self) -> u64 {
        self.spans.last_key_value().map_or(0, |(_, &end)| end)
    }

    /// How many bytes are in the set.
    pub fn len(&self) -> u64 {
        self.iter().map(ByteRange::len).sum()
    }

    /// Whether no byte is in the set.
    pub fn is_empty(&self) -> bool {
        self.spans.is_empty()
    }

    /// How many separate spans there are.
    pub fn spans(&self) -> usize {
        self.spans.len()
    }

    /// The spans in order.
    pub fn iter(&self) -> impl Iterator<Item = ByteRange> + '_ {
        self.spans.iter().map(|(&start, &end)| ByteRange { start, end })
    }

    /// The gaps within `0..total`, in order: what is missing.
    pub fn missing(&self, total: u64) -> impl Iterator<Item = ByteRange> + '_ {
        let ends = core::iter::once(0).chain(self.spans.values().copied());
        let starts = self.spans.keys().copied().chain(core::iter::once(total));
        ends.zip(starts).filter_map(move |(start, end)| {
            let end = end.min(total);
            (start < end).then_some(ByteRange { start, end })
        })
    }
}

impl FromIterator<ByteRange> for RangeSet {
    fn from_iter<I: IntoIterator<Item = ByteRange>>(ranges: I) -> Self {
        let mut set = Self::new();
        ranges.into_iter().for_each(|range| set.insert(range));
        set
    }
}

impl fmt::Display for RangeSet {
    /// `0-499, 1000-1499`: the form of the `Hoop-Missing` header; the empty set is the empty string.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut text = String::new();
        for range in self.iter() {
            if !text.is_empty() {
                text.push_str(", ");
            }
            write!(text, "{range}")?;
        }
        f.write_str(&text)
    }
}

impl FromStr for RangeSet {
    type Err = ParseRangeError;

    fn from_str(text: &str) -> Result<Self, ParseRangeError> {
        let parts: Vec<&str> = text.split(',').map(str::trim).collect();
        if parts == [""] {
            return Ok(Self::new());
        }
        let mut set = Self::new();
        for part in parts {
            let (first, last) = part.split_once('-').ok_or(ParseRangeError::Form)?;
            let (first, last) = (number(first)?, number(last)?);
            if last < first {
                return Err(ParseRangeError::Backwards { first, last });
            }
            set.insert(ByteRange::new(first, last.checked_add(1).ok_or(ParseRangeError::Form)?));
        }
        Ok(set)
    }
}

#[cfg(test)]
mod tests {
    extern crate std;
    use super::*;
    use alloc::string::ToString;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    #[test]
    fn a_content_range_survives_its_text() {
        let range = ContentRange { range: ByteRange::new(5, 10), total: 11 };
        assert_eq!(range.to_string(), "bytes 5-9/11");
        assert_eq!("bytes 5-9/11".parse(), Ok(range));
    }

    #[test]
    fn a_content_range_that_means_nothing_is_refused_with_its_reason() {
        use ParseRangeError::*;
        for (text, error) in [
            ("bytes 5-4/11", Backwards { first: 5, last: 4 }),
            ("bytes 0-11/11", PastTotal { last: 11, total: 11 }),
            ("bytes 0-0/0", PastTotal { last: 0, total: 0 }),
            ("bytes +0-1/2", Form),
            ("bytes 0-1/*", Form),
            ("bytes */2", Form),
            ("items 0-1/2", Form),
            ("bytes 0-1", Form),
            ("bytes 0-18446744073709551616/18446744073709551617", Form),
            ("", Form),
        ] {
            assert_eq!(text.parse::<ContentRange>(), Err(error), "{text}");
        }
    }

    proptest! {
        #[test]
        fn a_range_set_agrees_with_a_set_of_numbers(
            steps in prop::collection::vec((any::<bool>(), 0u64..64, 0u64..16), 0..40),
        ) {
            let (mut set, mut model) = (RangeSet::new(), BTreeSet::new());
            for (add, start, len) in steps {
                let range = ByteRange::new(start, start + len);
                if add {
                    set.insert(range);
                    model.extend(range.start..range.end);
                } else {
                    set.remove(range);
                    (range.start..range.end).for_each(|byte| { model.remove(&byte); });
                }
                prop_assert_eq!(set.len(), model.len() as u64);
                let bytes: BTreeSet<u64> = set.iter().flat_map(|r| r.start..r.end).collect();
                prop_assert_eq!(&bytes, &model);
                let missing: BTreeSet<u64> = set.missing(50).flat_map(|r| r.start..r.end).collect();
                let absent: BTreeSet<u64> = (0..50).filter(|b| !model.contains(b)).collect();
                prop_assert_eq!(missing, absent);
                prop_assert_eq!(set.contains(range), (range.start..range.end).all(|b| model.contains(&b)));
                let overlapping: Vec<_> = set.overlapping(range).collect();
                let expected: Vec<_> = set.iter().filter(|span| !span.intersect(range).is_empty()).collect();
                prop_assert_eq!(overlapping, expected);
                let touches = set.iter().any(|span| span.start <= range.end && range.start <= span.end);
                prop_assert_eq!(set.touches(range), touches);
                prop_assert_eq!(set.end(), model.last().map_or(0, |last| last + 1));
                // Spans never touch.
                let spans: Vec<ByteRange> = set.iter().collect();
                prop_assert!(spans.windows(2).all(|pair| pair[0].end < pair[1].start));
                prop_assert_eq!(set.to_string().parse::<RangeSet>(), Ok(set.clone()));
            }
        }
    }
}
