//! Who has how much of the disk: [`Room`]. It asks the index and the disk what is taken; `promises` and `quota` are pure and judge.
//!
//! Promises: an upload that is let in has room for [`promises::FIRST`] more than has come, or for all of it. No payer
//! gets more than a share, whatever it begins. An unused promise lapses [`promises::LAPSE`] after the last byte.
//! Uploads that are kept for their owners make way for bytes that have come, but not for promises.
//!
//! Bounds: those of [`promises`]. One upload asks at a time.

mod make_way;
mod promises;
mod quota;

use crate::model::{Payer, Sum};
use crate::store::{Store, store_problem};
use parking_lot::{Mutex, MutexGuard};
use promises::Promises;
use quota::{Asked, Taken};

use hoop_files::Space;
use hoop_http::{Clock, Code, Problem};
use hoop_units::UploadId;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

pub use promises::{least, reach};
pub use quota::{Full, Limits};

/// When a sender may come back: deliveries make room by the minute.
const FULL_RETRY_AFTER: Duration = Duration::from_secs(60);

/// The same of a full disk, where another program may make room at any time.
const DISK_RETRY_AFTER: Duration = Duration::from_secs(10);

/// What is promised, and the limits.
pub struct Room {
    limits: Limits,
    /// The state folder.
    dir: PathBuf,
    store: Store,
    clock: Clock,
    promises: Mutex<Promises>,
    /// Held while one upload asks for room, so that no two get the same.
    turn: tokio::sync::Mutex<()>,
    /// Held while kept uploads make way, so that no more go than have to. That waits for the disk; an upload that finds
    /// room does not wait for it.
    way: tokio::sync::Mutex<()>,
    refused: Mutex<BTreeMap<Full, u64>>,
}

/// An upload that asks for room.
#[derive(Clone, Copy, Debug)]
pub struct Wants {
    /// Its name.
    pub id: UploadId,
    /// Who pays from now on.
    pub payer: Payer,
    /// What the index counts of it, in bytes.
    pub noted: u64,
    /// What of that the payer has paid for.
    pub paid: u64,
    /// How many bytes it wants room for, in all.
    pub reach: u64,
    /// How many bytes it is promised at least, unless kept uploads of others would have to make way for it.
    pub least: u64,
    /// How many bytes are here: stored, or waiting to be.
    pub here: u64,
}

impl Room {
    /// Room within `limits` on the disk of `dir`, where `store` is.
    pub fn new(limits: Limits, dir: PathBuf, store: Store, clock: Clock) -> Self {
        let (promises, refused) = (Mutex::default(), Mutex::default());
        let (turn, way) = (tokio::sync::Mutex::default(), tokio::sync::Mutex::default());
        Self { limits, dir, store, clock, promises, turn, way, refused }
    }

    /// The most that all uploads may have, in bytes.
    pub const fn max(&self) -> u64 {
        self.limits.all
    }

    /// Refuses a new row of the index (settings, a note) if the disk has no more left than its reserve.
    ///
    /// # Errors
    /// `spool-full`.
    pub fn row(&self) -> Result<(), Problem> {
        match hoop_files::space(&self.dir) {
            Ok(space) if space.bytes < self.limits.reserve => Err(self.refuse(Full::Disk)),
            _ => Ok(()),
        }
    }

    /// What is promised and has not come, in bytes.
    pub fn promised(&self) -> u64 {
        let now = self.clock.now();
        let mut promises = self.promises();
        promises.lapse(now);
        promises.all()
    }

    /// How often there was no room, by why.
    pub fn refusals(&self) -> Vec<(Full, u64)> {
        let refused = self.refused.lock();
        Full::ALL.iter().map(|full| (*full, refused.get(full).copied().unwrap_or_default())).collect()
    }

    /// Whether anything is promised to an upload.
    pub fn is_promised(&self, id: UploadId) -> bool {
        let now = self.clock.now();
        let mut promises = self.promises();
        promises.lapse(now);
        promises.has(id)
    }

    /// What is promised to an upload for which that payer pays, in bytes.
    pub fn promised_to(&self, id: UploadId, payer: Payer) -> Option<u64> {
        let now = self.clock.now();
        let mut promises = self.promises();
        promises.lapse(now);
        promises.to(id, payer)
    }

    /// New bytes of an upload have come.
    pub fn touch(&self, id: UploadId) {
        let now = self.clock.now();
        self.promises().touch(id, now);
    }

    /// Keeps no more of an upload's promise than so many bytes: it was noted, or no message of it comes any more.
    pub fn keep(&self, id: UploadId, bytes: u64) {
        let now = self.clock.now();
        self.promises().keep(id, bytes, now);
    }

    /// An upload needs its promise no more.
    pub fn give_back(&self, id: UploadId) {
        self.promises().give_back(id);
    }

    /// Nothing in here panics between two changes that belong together.
    fn promises(&self) -> MutexGuard<'_, Promises> {
        self.promises.lock()
    }

    fn put(&self, wants: &Wants, reach: u64) {
        let now = self.clock.now();
        self.promises().put(wants.id, wants.payer, wants.asked(reach).more_of_payer, now);
    }

    fn refuse(&self, full: Full) -> Problem {
        *self.refused.lock().entry(full).or_default() += 1;
        let after = if matches!(full, Full::Disk | Full::Files) { DISK_RETRY_AFTER } else { FULL_RETRY_AFTER };
        Problem::new(Code::SpoolFull, full.words()).retry_after(after)
    }

    /// Promises an upload room, and returns for how many bytes in all. Where there is little, it gets the least. Where
    /// only kept uploads could make room, it gets room for what has come of it.
    ///
    /// # Errors
    /// `spool-full`, or the store's.
    pub async fn promise(&self, wants: Wants) -> Result<u64, Problem> {
        let mut way = None;
        loop {
            let turn = self.turn.lock().await;
            let (taken, space) = self.taken(&wants).await?;
            let judge = |reach| self.limits.judge(wants.asked(reach), &taken, space).map(|()| reach);
            let full = match judge(wants.reach).or_else(|_| judge(wants.least)) {
                Ok(reach) => {
                    self.put(&wants, reach);
                    return Ok(reach);
                }
                Err((full, _)) => full,
            };
            let of = |full: Full| full.is_own().then_some(wants.payer);
            if full == Full::Begun || !make_way::is_any(&self.store, of(full)).await.map_err(store_problem)? {
                return Err(self.refuse(full));
            }
            match judge(wants.here) {
                Ok(reach) => {
                    self.put(&wants, reach);
                    return Ok(reach);
                }
                Err((Full::Begun, _)) => return Err(self.refuse(Full::Begun)),
                Err((full, over)) => {
                    drop(turn);
                    if way.is_none() {
                        // Others may have made way meanwhile.
                        way = Some(self.way.lock().await);
                        continue;
                    }
                    if !make_way::make_way(&self.store, over, of(full), self.clock.unix())
                        .await
                        .map_err(store_problem)?
                    {
                        return Err(self.refuse(full));
                    }
                }
            }
        }
    }

    /// What is taken, without this upload's own promise, and what the disk has left.
    async fn taken(&self, wants: &Wants) -> Result<(Taken, Space), Problem> {
        // Asked before the index is: bytes that are noted meanwhile count twice rather than not at all.
        let promised = {
            let now = self.clock.now();
            let mut promises = self.promises();
            promises.lapse(now);
            promises.besides(wants.id, wants.payer)
        };
        let (payer, dir) = (wants.payer, self.dir.clone());
        let asked = self.store.with(move |index| Ok((index.stored()?, index.paid_by(payer)?, hoop_files::space(&dir))));
        let (stored, own, space) = asked.await.map_err(store_problem)?;
        let space = space.unwrap_or_else(|error| {
            tracing::warn!(%error, "the disk does not say what it has left");
            Space { bytes: u64::MAX, files: u64::MAX }
        });
        let all = Sum { uploads: 0, bytes: stored.saturating_add(promised.0.bytes) };
        let own = Sum {
            uploads: own.uploads.saturating_add(promised.1.uploads),
            bytes: own.bytes.saturating_add(promised.1.bytes),
        };
        Ok((Taken { all, own, promised }, space))
    }
}

impl Wants {
    fn asked(&self, reach: u64) -> Asked {
        let (more, more_of_payer) = (reach.saturating_sub(self.noted), reach.saturating_sub(self.paid));
        Asked { payer: self.payer, more, more_of_payer }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{Change, State, Upload};
    use crate::receive::arrival::tests::admission;
    use crate::receive::arrival::{Arrival, Claim, Progress};
    use crate::store::ENDED_MAX;
    use hoop_units::{ByteRange, UnixTime};
    use std::sync::Arc;

    const MIB: u64 = 1 << 20;

    /// Room for 8 MiB at most, of which one address may have half.
    fn room(dir: &std::path::Path, store: &Store) -> Arc<Room> {
        let limits = Limits { all: 8 * MIB, owner: 8 * MIB, address: 4 * MIB, reserve: 0 };
        Arc::new(Room::new(limits, dir.to_owned(), store.clone(), Clock::system()))
    }

    fn wants(n: u8) -> Wants {
        let payer = Payer::Address([n; 16]);
        Wants { id: UploadId([n; 16]), payer, noted: 0, paid: 0, reach: MIB, least: MIB, here: MIB }
    }

    #[tokio::test]
    async fn who_pays_stays_whom_record_0_names_whatever_was_asked_before() {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::open(dir.path(), ENDED_MAX).unwrap();
        let room = room(dir.path(), &store);
        let (sender, owner) = (Payer::Address([1; 16]), Payer::Owner([2; 16]));
        let progress = Progress::paid_by(sender);
        let arrival = Arc::new(Arrival::new(admission(1), UnixTime(1), progress, None, Claim::default()));
        let asks = |payer| {
            let (room, arrival) = (room.clone(), arrival.clone());
            tokio::spawn(async move { arrival.need_room(&room, 1, payer).await.unwrap() })
        };
        let turn = room.turn.lock().await;
        // Both have asked, and wait for their turn.
        let both = [asks(Some(owner)), asks(None)];
        tokio::task::yield_now().await;
        drop(turn);
        for asked in both {
            asked.await.unwrap();
        }
        let id = arrival.admission.id();
        assert_eq!((room.promised_to(id, owner).is_some(), room.promised_to(id, sender)), (true, None));
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn an_upload_that_finds_room_does_not_wait_for_evictions() {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::open(dir.path(), ENDED_MAX).unwrap();
        let room = room(dir.path(), &store);
        // All that one address may have is kept for its owner.
        let total = 4 * MIB;
        let begun = Upload::begun(UploadId([9; 16]), vec![1; 32], total, UnixTime(u32::MAX - 9), UnixTime(1));
        let kept = Upload {
            received: [ByteRange::new(0, total)].into_iter().collect(),
            payer: Some(Payer::Address([1; 16])),
            ..begun
        };
        let id = kept.id;
        store.with(move |index| index.receive(&kept, true)).await.unwrap();
        let rejected = Change::Answered { state: State::Rejected, reason: None, answer: vec![1], receipt: None };
        for change in [Change::Claim, rejected] {
            store.apply(id, change, UnixTime(2)).await.unwrap();
        }
        // Whoever changes anything waits for this one.
        let busy = rusqlite::Connection::open(dir.path().join("index.sqlite")).unwrap();
        busy.execute_batch("BEGIN IMMEDIATE").unwrap();
        let first = tokio::spawn({
            let room = room.clone();
            async move { room.promise(wants(1)).await }
        });
        while room.way.try_lock().is_ok() {
            assert!(!first.is_finished(), "it needs what is kept to make way");
            tokio::task::yield_now().await;
        }
        room.promise(wants(2)).await.unwrap();
        assert!(!first.is_finished(), "another had its room meanwhile");
        busy.execute_batch("ROLLBACK").unwrap();
        assert_eq!(first.await.unwrap().unwrap(), MIB);
    }
}
