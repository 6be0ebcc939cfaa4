//! Another text in the place of some bytes of a body, as the body goes by: [`Edits`].

use std::ops::Range;

/// What to put where. The places are in order and do not overlap.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Edits(Vec<(Range<u64>, Vec<u8>)>);

impl Edits {
    /// These, in any order; one that overlaps another is left out.
    pub fn new(mut edits: Vec<(Range<u64>, Vec<u8>)>) -> Self {
        edits.sort_by_key(|(range, _)| range.start);
        let mut end = 0;
        edits.retain(|(range, _)| {
            let apart = range.start >= end;
            end = end.max(range.end);
            apart
        });
        Self(edits)
    }

    /// How long a body of `len` bytes is with them.
    pub fn len_of(&self, len: u64) -> u64 {
        self.0.iter().fold(len, |len, (range, with)| len + with.len() as u64 - (range.end - range.start))
    }

    /// A piece of the body, which begins at `at`, with them. The pieces come in order and are not empty.
    pub fn apply(&self, at: u64, piece: &[u8]) -> Vec<u8> {
        let end = at + piece.len() as u64;
        let mut out = Vec::with_capacity(piece.len());
        let mut next = at;
        for (range, with) in self.0.iter().filter(|(range, _)| range.start < end && range.end >= at) {
            if range.start >= at {
                out.extend_from_slice(&piece[(next - at) as usize..(range.start - at) as usize]);
                out.extend_from_slice(with);
            }
            next = next.max(range.end.min(end));
        }
        out.extend_from_slice(&piece[(next - at) as usize..]);
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every way to cut a body in three, and places of every length, empty ones among them.
    #[test]
    fn a_body_cut_anywhere_is_edited_like_the_whole() {
        let body: Vec<u8> = (b'a'..=b'l').collect();
        let len = body.len();
        let cases = [
            vec![(2..5, "XYZ!")],
            vec![(0..1, ""), (1..4, "long text"), (11..12, "e")],
            vec![(3..3, "in"), (7..9, "")],
            vec![(0..12, "all")],
        ];
        for case in cases {
            let edits =
                Edits::new(case.iter().map(|(range, with)| (range.clone(), with.as_bytes().to_vec())).collect());
            let mut expected = body.clone();
            for (range, with) in case.iter().rev() {
                expected.splice(range.start as usize..range.end as usize, with.bytes());
            }
            assert_eq!(edits.len_of(len as u64), expected.len() as u64);
            for first in 1..len {
                for second in first..=len {
                    let cuts = [0..first, first..second, second..len].into_iter().filter(|cut| !cut.is_empty());
                    let out: Vec<u8> = cuts.flat_map(|cut| edits.apply(cut.start as u64, &body[cut])).collect();
                    assert_eq!(out, expected, "{case:?} cut at {first} and {second}");
                }
            }
        }
    }
}
