//! How much may still come in: [`Room`].
//!
//! Three sums, since the disk and the quota count differently: bytes *promised* to senders are not on the disk yet, bytes
//! *written* are and may still be lost, bytes *kept* are recorded in the index.

/// The spool's books on space.
#[derive(Debug, Default)]
pub struct Room {
    /// The most bytes that may be kept.
    pub quota: Option<u64>,
    /// Bytes of the disk to leave alone.
    pub reserve: u64,
    /// Recorded.
    pub kept: u64,
    /// In files, not recorded.
    pub written: u64,
    /// To come.
    pub promised: u64,
}

impl Room {
    /// How many more bytes could be promised, with `disk` bytes free on the disk.
    pub fn free(&self, disk: u64) -> u64 {
        let disk = disk.saturating_sub(self.reserve).saturating_sub(self.promised);
        let quota = self.quota.unwrap_or(u64::MAX);
        disk.min(quota.saturating_sub(self.kept + self.written + self.promised))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_counts_against_the_quota_but_not_twice_against_the_disk() {
        let room = Room { quota: Some(1000), reserve: 10, kept: 100, written: 200, promised: 300 };
        assert_eq!(room.free(10_000), 400, "the quota decides");
        assert_eq!(room.free(500), 190, "the disk decides; the written bytes are gone from it already");
        assert_eq!(room.free(300), 0);
    }
}
