//! How far a resumable upload is: [`Standing`].

use hoop_spool::{Resource, Upload};
use hoop_units::ByteRange;

/// How long a resource lives after its last part, in seconds: a day, so that a phone may be away over night.
pub const RESOURCE_SECS: u32 = 24 * 60 * 60;

/// How far an upload is, as its client sees it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Standing {
    pub offset: u64,
    pub complete: bool,
}

impl Standing {
    /// `None`: what was there before the tail is gone, and so is the resource.
    pub fn of(resource: &Resource, upload: Option<&Upload>) -> Option<Self> {
        if let Some(upload) = upload.filter(|upload| upload.state.is_whole()) {
            return Some(Self { offset: upload.total, complete: true });
        }
        if resource.done {
            return resource.total.map(|total| Self { offset: total, complete: true });
        }
        let (prefix, (start, tail)) = (upload.map_or(0, prefix), remaining(resource, upload));
        (resource.tail_at <= prefix).then_some(Self { offset: start + tail.len() as u64, complete: false })
    }
}

/// Up to where an upload is stored without a gap.
fn prefix(upload: &Upload) -> u64 {
    upload.stored.iter().next().filter(|span| span.start == 0).map_or(0, |span| span.end)
}

/// Where the next record to be written begins, and what is there of it. Others may have sent it meanwhile.
pub fn remaining<'a>(resource: &'a Resource, upload: Option<&Upload>) -> (u64, &'a [u8]) {
    let prefix = upload.map_or(0, prefix);
    match resource.tail_at + resource.tail.len() as u64 > prefix {
        true => (resource.tail_at, &resource.tail),
        false => (prefix, &[]),
    }
}

/// What of `start..end` is less than a record, after `kept`, which is whole ones.
pub fn tail_of(kept: Option<ByteRange>, start: u64, end: u64) -> ByteRange {
    ByteRange::new(kept.map_or(start, |kept| kept.end), end)
}
