//! How much may still come in: [`Room`].
//!
//! Checksums of their own, since the disk and the quota count differently: bytes *promised* to senders are not on the disk yet, bytes
//! *written* are and may still be lost, bytes *kept* are recorded in the index, and what has *ended* is in the index itself.

use crate::disk::sys::Free;
use crate::index::{Changed, Freed};
use crate::model::limits::{AWAY_COST, UPLOAD_COST};

/// The most that rows and answers of ended uploads take, in bytes: some 100,000 rows with short answers, as many as there may be
/// uploads. With a quota of less than four times as much, a quarter of that.
pub const ENDED_MAX: u64 = 64 << 20;

/// A file system is made with a file for so many bytes, as ext4 is unless it is told otherwise. So a reserve of bytes is one of files, too.
const BYTES_A_FILE: u64 = 16 << 10;

/// The spool's books on space.
#[derive(Debug, Default)]
pub struct Room {
    /// The most bytes that may be kept.
    pub quota: Option<u64>,
    /// Bytes of the disk to leave alone, and a file for each [`BYTES_A_FILE`] of them.
    pub reserve: u64,
    /// Recorded.
    pub kept: u64,
    /// How many uploads that is: each takes [`UPLOAD_COST`] beside its bytes. Of two changes that are recorded one after the other the second may be counted first, so it may be below zero for a moment.
    pub uploads: i64,
    /// How many are at their services, in the same way: each takes [`AWAY_COST`].
    pub away: i64,
    /// In files, not recorded.
    pub written: u64,
    /// To come.
    pub promised: u64,
    /// Rows and answers of what has ended.
    pub ended: u64,
}

impl Room {
    /// An upload no longer counts.
    pub fn let_go(&mut self, freed: &Freed) {
        self.lose(freed.bytes);
        self.uploads -= 1;
    }

    /// So many bytes no longer count. Below nothing it would pass for full.
    pub const fn lose(&mut self, bytes: u64) {
        self.kept = self.kept.saturating_sub(bytes);
    }

    /// An upload was changed.
    pub fn changes(&mut self, changed: &Changed) {
        changed.freed.iter().for_each(|freed| self.let_go(freed));
        let [was, is] = changed.away.map(i64::from);
        self.away += is - was;
    }

    /// What uploads take that are kept, or at their services.
    pub fn occupied(&self) -> u64 {
        let rows = |count: i64, cost| u64::try_from(count).unwrap_or(0) * cost;
        self.kept + rows(self.uploads, UPLOAD_COST) + rows(self.away, AWAY_COST)
    }

    /// Whether more files may be made.
    pub const fn has_files(&self, disk: Free) -> bool {
        disk.files > self.reserve / BYTES_A_FILE
    }

    /// The most that what has ended may take, with so much free on the disk. Within the reserve it does not grow further; a MiB is left to
    /// what ends just now.
    pub fn ended_most(&self, disk: Free) -> u64 {
        let most = self.quota.map_or(ENDED_MAX, |quota| ENDED_MAX.min(quota / 4));
        if disk.bytes > self.reserve { most } else { most.min(self.ended.max(1 << 20)) }
    }

    /// How many more bytes could be promised, with so much free on the disk.
    pub fn free(&self, disk: Free) -> u64 {
        let disk = disk.bytes.saturating_sub(self.reserve).saturating_sub(self.promised);
        let quota = self.quota.unwrap_or(u64::MAX);
        disk.min(quota.saturating_sub(self.occupied() + self.written + self.promised + self.ended))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::state::State;

    #[test]
    fn written_bytes_count_against_the_quota_and_only_once_against_the_disk() {
        let room = Room {
            quota: Some(1000),
            reserve: 10,
            kept: 50,
            uploads: 0,
            away: 0,
            written: 200,
            promised: 300,
            ended: 50,
        };
        let disk = |bytes| Free { bytes, files: 1 };
        assert_eq!(room.free(disk(10_000)), 400, "the quota decides");
        assert_eq!(room.free(disk(500)), 190, "the disk decides; the written bytes are gone from it already");
        assert_eq!(room.free(disk(300)), 0);
    }

    #[test]
    fn an_upload_counts_even_if_it_is_short() {
        let mut room = Room { quota: Some(2 * UPLOAD_COST), kept: 300, uploads: 2, ..Room::default() };
        let disk = Free { bytes: u64::MAX, files: 1 };
        assert_eq!(room.free(disk), 0);
        let freed = Some(Freed { bytes: 100, total: 100, extent: None });
        room.changes(&Changed { state: State::Received, freed, ended: false, away: [false, true] });
        assert_eq!(room.free(disk), UPLOAD_COST - 200 - AWAY_COST);
        room.changes(&Changed { state: State::Accepted, freed: None, ended: true, away: [true, false] });
        assert_eq!(room.free(disk), UPLOAD_COST - 200);
    }

    #[test]
    fn what_has_ended_grows_no_further_within_the_reserve() {
        let room = |quota, ended| Room { quota, reserve: 10, ended, ..Room::default() };
        let most = |room: Room, bytes| room.ended_most(Free { bytes, files: 1 });
        assert_eq!(most(room(None, 0), 11), ENDED_MAX);
        assert_eq!(most(room(Some(1000), 0), 11), 250);
        assert_eq!([2 << 20, 0].map(|ended| most(room(None, ended), 10)), [2 << 20, 1 << 20]);
    }

    #[test]
    fn a_reserve_of_bytes_is_one_of_files() {
        let has = |reserve, files| Room { reserve, ..Room::default() }.has_files(Free { bytes: 0, files });
        assert_eq!([has(64 << 20, 4_096), has(64 << 20, 4_097), has(0, 0), has(0, 1)], [false, true, false, true]);
    }
}
