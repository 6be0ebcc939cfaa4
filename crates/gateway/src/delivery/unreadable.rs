//! Uploads that the disk gives nothing back of: [`Unreadable`].
//!
//! A read error may pass: a cable, a controller that starts anew, a file system on a network. A bad sector stays, and
//! the upload would wait until it expires, although its device may still have it. So failing counts for so long, and
//! then it is the device's turn.

use hoop_units::{Timestamp, UploadId};
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::time::Duration;

/// What cannot be read for so long of the gateway's run time counts as spoilt: longer than it takes to start a disk or
/// a machine anew.
const GIVEN_UP: Duration = Duration::from_secs(60 * 60);

/// From one failed read to the next counts as so much at most: the longest wait between two attempts. Nothing is read
/// while a service is away.
const GAP_MAX: Duration = Duration::from_secs(15 * 60);

/// So many uploads are remembered, 64 KiB of them. One more is tried again for as long as it is none of them.
const UPLOADS_MAX: usize = 1024;

/// An upload that has not failed for so long makes way: it has ended, or can be read. A service asks to wait for 6
/// hours at most.
const FORGOTTEN: Duration = Duration::from_secs(12 * 60 * 60);

/// Since when reads of which uploads fail.
#[derive(Debug, Default)]
pub struct Unreadable {
    uploads: Mutex<BTreeMap<UploadId, Failing>>,
}

#[derive(Clone, Copy, Debug)]
struct Failing {
    last: Timestamp,
    lasted: Duration,
}

impl Unreadable {
    /// A read of an upload has failed. Whether reads of it have failed for so long that what cannot be read counts as
    /// spoilt.
    pub fn failed(&self, id: UploadId, now: Timestamp) -> bool {
        let mut uploads = self.uploads.lock();
        if uploads.len() >= UPLOADS_MAX && !uploads.contains_key(&id) {
            uploads.retain(|_, failing| now.since(failing.last) < FORGOTTEN);
            if uploads.len() >= UPLOADS_MAX {
                return false;
            }
        }
        let failing = uploads.entry(id).or_insert(Failing { last: now, lasted: Duration::ZERO });
        failing.lasted += now.since(failing.last).min(GAP_MAX);
        failing.last = now;
        failing.lasted >= GIVEN_UP
    }

    /// All that an upload was to be read of was there, or what was not counts as spoilt.
    pub fn settled(&self, id: UploadId) {
        self.uploads.lock().remove(&id);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MINUTE: Duration = Duration::from_secs(60);

    fn id(number: u32) -> UploadId {
        let mut id = [0; 16];
        id[..4].copy_from_slice(&number.to_be_bytes());
        UploadId(id)
    }

    fn at(minutes: u32) -> Timestamp {
        Timestamp::ZERO + MINUTE * minutes
    }

    #[test]
    fn reads_that_fail_for_an_hour_are_given_up() {
        let unreadable = Unreadable::default();
        assert!((0..60).step_by(10).all(|minute| !unreadable.failed(id(1), at(minute))));
        assert!(!unreadable.failed(id(2), at(60)), "another upload");
        assert!(unreadable.failed(id(1), at(60)));
        unreadable.settled(id(1));
        assert!(!unreadable.failed(id(1), at(61)), "it begins anew");
    }

    #[test]
    fn hours_without_a_read_count_as_one_wait() {
        let unreadable = Unreadable::default();
        let failures = [0, 300, 600, 900].map(|minute| unreadable.failed(id(1), at(minute)));
        assert_eq!(failures, [false; 4]);
        assert!(unreadable.failed(id(1), at(1200)));
    }

    #[test]
    fn uploads_beyond_the_limit_wait_until_others_are_forgotten() {
        let unreadable = Unreadable::default();
        let most = u32::try_from(UPLOADS_MAX).unwrap();
        (0..most).for_each(|number| assert!(!unreadable.failed(id(number), at(0))));
        assert!((0..=600).step_by(10).all(|minute| !unreadable.failed(id(most), at(minute))));
        assert_eq!(unreadable.uploads.lock().len(), UPLOADS_MAX);
        assert!((720..780).step_by(10).all(|minute| !unreadable.failed(id(most), at(minute))));
        assert!(unreadable.failed(id(most), at(780)));
    }
}
