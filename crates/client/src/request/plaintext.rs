//! The plaintext of an upload as one run of bytes that can be read anywhere: [`Plaintext`].

use crate::request::source::{Segment, SourceError};
use hoop_units::ByteRange;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Segments one after the other: the head of the request, boundaries, fields and files.
///
/// Memory: the segments' own bytes, shared with every clone; files are read when they are asked for, never kept.
#[derive(Clone, Debug, Default)]
pub struct Plaintext {
    /// Each with the offset where it begins; none is empty.
    segments: Vec<(u64, Arc<Segment>)>,
    len: u64,
}

impl Plaintext {
    pub(crate) fn push(&mut self, segment: Segment) {
        self.push_shared(Arc::new(segment));
    }

    fn push_shared(&mut self, segment: Arc<Segment>) {
        let len = segment.len();
        if len > 0 {
            self.segments.push((self.len, segment));
            self.len += len;
        }
    }

    /// Puts `head` before everything else.
    pub(crate) fn prepend(self, head: Vec<u8>) -> Self {
        let mut whole = Self::default();
        whole.push(Segment::Bytes(head.into()));
        self.segments.into_iter().for_each(|(_, segment)| whole.push_shared(segment));
        whole
    }

    /// Its segments in order.
    pub(crate) fn segments(&self) -> impl Iterator<Item = &Segment> {
        self.segments.iter().map(|(_, segment)| &**segment)
    }

    /// How many bytes there are.
    pub const fn len(&self) -> u64 {
        self.len
    }

    /// Whether there is none.
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Fills `buffer` with the bytes from `offset` on.
    ///
    /// # Errors
    /// If a file cannot be read, or changed since it was opened.
    ///
    /// # Panics
    /// If there are fewer bytes.
    pub fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<(), SourceError> {
        let wanted = ByteRange::new(offset, offset + buffer.len() as u64);
        assert!(wanted.end <= self.len, "{wanted} of {} bytes", self.len);
        let first = self.segments.partition_point(|(start, segment)| start + segment.len() <= offset);
        let mut rest = buffer;
        for (start, segment) in &self.segments[first..] {
            let piece = wanted.intersect(ByteRange::new(*start, start + segment.len()));
            if piece.is_empty() {
                break;
            }
            let (now, later) = rest.split_at_mut(usize::try_from(piece.len()).expect("it fits the buffer"));
            segment.read_at(piece.start - start, now)?;
            rest = later;
        }
        Ok(())
    }
}

impl Plaintext {
    /// The file that the bytes from `offset` on come from, or the next one after them: what to name when they are not as they were.
    pub(crate) fn path_at(&self, offset: u64) -> PathBuf {
        let first = self.segments.partition_point(|(start, segment)| start + segment.len() <= offset);
        let path = self.segments[first..].iter().find_map(|(_, segment)| segment.path());
        path.map_or_else(|| PathBuf::from("the upload"), Path::to_owned)
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::Content;
    use std::fmt::Write as _;

    /// All of it.
    pub(crate) fn read_all(plaintext: &Plaintext) -> Vec<u8> {
        let mut all = vec![0; usize::try_from(plaintext.len()).unwrap()];
        plaintext.read_at(0, &mut all).unwrap();
        all
    }

    /// A small generator (xorshift), so that a failing case can be run again from its printed seed.
    pub(crate) struct Numbers(pub(crate) u64);

    impl Numbers {
        pub(crate) fn below(&mut self, limit: usize) -> usize {
            self.0 ^= self.0 << 13;
            self.0 ^= self.0 >> 7;
            self.0 ^= self.0 << 17;
            usize::try_from(self.0 % limit as u64).unwrap()
        }
    }

    #[test]
    fn reading_anywhere_equals_reading_the_concatenation() {
        let folder = tempfile::tempdir().unwrap();
        let seed = u64::from_ne_bytes(hoop_http::Rng.bytes()) | 1;
        let mut numbers = Numbers(seed);
        for round in 0..50 {
            let (mut plaintext, mut model) = (Plaintext::default(), Vec::new());
            for part in 0..numbers.below(8) {
                let bytes: Vec<u8> = (0..numbers.below(300)).map(|_| numbers.below(256) as u8).collect();
                model.extend_from_slice(&bytes);
                let mut name = String::new();
                write!(name, "{round}-{part}").unwrap();
                let path = folder.path().join(name);
                let content = match numbers.below(2) {
                    0 => Content::Bytes(bytes.into()),
                    _ => {
                        std::fs::write(&path, &bytes).unwrap();
                        Content::File(path)
                    }
                };
                plaintext.push(Segment::open(&content).unwrap());
            }
            assert_eq!(plaintext.len(), model.len() as u64, "seed {seed}");
            for _ in 0..50 {
                let start = numbers.below(model.len() + 1);
                let end = start + numbers.below(model.len() - start + 1);
                let mut buffer = vec![0; end - start];
                plaintext.read_at(start as u64, &mut buffer).unwrap();
                assert_eq!(buffer, model[start..end], "seed {seed}, {start}..{end}");
            }
            assert_eq!(read_all(&plaintext.prepend(b"head".to_vec())), [b"head", &model[..]].concat());
        }
    }
}
