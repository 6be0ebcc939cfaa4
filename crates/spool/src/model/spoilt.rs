//! What a disk does not give back as it was written: [`Spoilt`].

use hoop_units::RangeSet;

/// What a disk does not give back as it was written, as whole records.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Spoilt {
    /// Bytes that were read and are not what was written, or that lie behind the file's end. They are lost.
    pub wrong: RangeSet,
    /// Bytes that the disk gives nothing back of: a read error. They may be there all the same, and the error may pass.
    pub unreadable: RangeSet,
}

impl Spoilt {
    /// Whether all is as it was written.
    pub fn is_empty(&self) -> bool {
        self.wrong.is_empty() && self.unreadable.is_empty()
    }

    /// All of it, whatever the reason.
    pub fn all(&self) -> RangeSet {
        self.wrong.iter().chain(self.unreadable.iter()).collect()
    }
}

/// Bytes that are wrong.
impl From<RangeSet> for Spoilt {
    fn from(wrong: RangeSet) -> Self {
        Self { wrong, unreadable: RangeSet::new() }
    }
}
