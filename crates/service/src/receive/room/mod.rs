//! Who has how much of the disk: [`Room`]. It asks the index and the disk what is taken; `payer`, `promises`, `quota` and
//! `rates` (of tickets) are pure and judge.
//!
//! Promises: an upload that is let in has room for [`promises::FIRST`] more than has come of it, or for all of it; no payer gets more than a share,
//! whatever is begun; what is promised and not used is free again [`promises::LAPSE`] after the last byte. What is kept for its owner makes way for
//! bytes that have come, and for no promise.
//!
//! Bounds: those of [`promises`]; who asks waits for its turn.

mod make_way;
mod promises;
mod quota;
mod rates;

use crate::core::Core;
use crate::model::{Payer, Sum};
use crate::store::store_problem;
use promises::Promises;
use quota::{Asked, Taken};
use rates::Rates;

use hoop_files::Space;
use hoop_http::{Clock, Code, Problem};
use hoop_units::UploadId;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

pub use promises::{least, reach};
pub use quota::{Full, Limits};

/// Settings, notes and acts of one payer in a minute: ten a second, each synced to the disk before its answer. A page that uploads a thousand files notes them
/// one after another, and waits when it is told to.
const CHANGES_PER_MINUTE: u32 = 600;

/// When it is worth coming back: deliveries make room by the minute.
const FULL_RETRY_AFTER: Duration = Duration::from_secs(60);

/// What is promised, and the limits.
pub struct Room {
    limits: Limits,
    /// The state folder.
    dir: PathBuf,
    clock: Clock,
    promises: Mutex<Promises>,
    /// Held while somebody asks for room, so that no two get the same.
    turn: tokio::sync::Mutex<()>,
    /// Held while what is kept makes way, so that no more does than has to. It waits for the disk, and whoever finds room does not wait for that.
    way: tokio::sync::Mutex<()>,
    refused: Mutex<BTreeMap<Full, u64>>,
    tickets: Mutex<Rates>,
    changes: Mutex<Rates>,
    /// How often a user, or an address, got no ticket.
    tickets_refused: [AtomicU64; 2],
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
    /// Up to where it wants room.
    pub reach: u64,
    /// Up to where it is promised room at least, unless what is kept for others has to make way for it.
    pub least: u64,
    /// Up to where it is here: what is stored, and what has come and waits to be.
    pub here: u64,
}

impl Room {
    /// Room within `limits` on the disk of `dir`, and so many tickets a minute for each payer.
    pub fn new(limits: Limits, dir: PathBuf, tickets_per_minute: u32, clock: Clock) -> Self {
        let (promises, refused) = (Mutex::default(), Mutex::default());
        let (turn, way) = (tokio::sync::Mutex::default(), tokio::sync::Mutex::default());
        let [tickets, changes] = [tickets_per_minute, CHANGES_PER_MINUTE].map(|rate| Mutex::new(Rates::new(rate)));
        Self { limits, dir, clock, promises, turn, way, refused, tickets, changes, tickets_refused: Default::default() }
    }

    /// The most that all uploads may have, in bytes.
    pub const fn max(&self) -> u64 {
        self.limits.all
    }

    /// Whether the disk has more left than its reserve: what is no upload (settings, notes) asks for a row of the index.
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
        let refused = self.refused.lock().unwrap_or_else(PoisonError::into_inner);
        Full::ALL.iter().map(|full| (*full, refused.get(full).copied().unwrap_or_default())).collect()
    }

    /// Whether so many tickets may be issued now.
    ///
    /// # Errors
    /// `too-many-requests`.
    pub fn take_tickets(&self, payer: Payer, count: u8) -> Result<(), Problem> {
        self.take(&self.tickets, payer, count.into(), "has had as many tickets as it gets").inspect_err(|_| {
            self.tickets_refused[usize::from(matches!(payer, Payer::Address(_)))].fetch_add(1, Ordering::Relaxed);
        })
    }

    /// Whether settings, a note or how an upload goes on may be changed now.
    ///
    /// # Errors
    /// `too-many-requests`.
    pub fn take_change(&self, payer: Payer) -> Result<(), Problem> {
        self.take(&self.changes, payer, 1, "has changed as much as it may")
    }

    fn take(&self, rates: &Mutex<Rates>, payer: Payer, count: u32, what: &str) -> Result<(), Problem> {
        let mut rates = rates.lock().unwrap_or_else(PoisonError::into_inner);
        rates.take(payer, count, self.clock.now()).map_err(|wait| {
            let whose = match payer {
                Payer::Owner(_) => "this user",
                Payer::Address(_) => "this address",
            };
            Problem::new(Code::TooManyRequests, format!("{whose} {what} in a minute")).retry_after(wait)
        })
    }

    /// How often that was so, by who paid.
    pub fn ticket_refusals(&self) -> [(&'static str, u64); 2] {
        let of = |at: usize| self.tickets_refused[at].load(Ordering::Relaxed);
        [("owner", of(0)), ("address", of(1))]
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

    /// An upload is noted, or no message of it comes any more; so much of what it was promised still holds.
    pub fn keep(&self, id: UploadId, bytes: u64) {
        let now = self.clock.now();
        self.promises().keep(id, bytes, now);
    }

    /// An upload needs no more.
    pub fn give_back(&self, id: UploadId) {
        self.promises().give_back(id);
    }

    /// Nothing in here panics between two changes that belong together.
    fn promises(&self) -> MutexGuard<'_, Promises> {
        self.promises.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn put(&self, wants: &Wants, reach: u64) {
        let now = self.clock.now();
        self.promises().put(wants.id, wants.payer, wants.asked(reach).more_of_payer, now);
    }

    fn refuse(&self, full: Full) -> Problem {
        *self.refused.lock().unwrap_or_else(PoisonError::into_inner).entry(full).or_default() += 1;
        Problem::new(Code::SpoolFull, full.words()).retry_after(FULL_RETRY_AFTER)
    }

    /// What is taken, this upload's promise aside, and what the disk has left.
    async fn taken(&self, core: &Core, wants: &Wants) -> Result<(Taken, Space), Problem> {
        // From before the index is asked: what is noted meanwhile counts twice for once rather than not at all.
        let promised = {
            let now = self.clock.now();
            let mut promises = self.promises();
            promises.lapse(now);
            promises.besides(wants.id, wants.payer)
        };
        let (payer, dir) = (wants.payer, self.dir.clone());
        let asked = core.store.with(move |index| Ok((index.stored()?, index.paid_by(payer)?, hoop_files::space(&dir))));
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

/// Promises an upload room, and says up to where. Where there is little, it gets the least; where there is none but what is kept for owners, it gets as much of that
/// as has come of it.
///
/// # Errors
/// `spool-full`, or the store's.
pub async fn promise(core: &Core, wants: Wants) -> Result<u64, Problem> {
    let room = &core.room;
    let mut way = None;
    loop {
        let turn = room.turn.lock().await;
        let (taken, space) = room.taken(core, &wants).await?;
        let judge = |reach| room.limits.judge(wants.asked(reach), &taken, space).map(|()| reach);
        let full = match judge(wants.reach).or_else(|_| judge(wants.least)) {
            Ok(reach) => {
                room.put(&wants, reach);
                return Ok(reach);
            }
            Err((full, _)) => full,
        };
        let of = |full: Full| full.is_own().then_some(wants.payer);
        if full == Full::Begun || !make_way::is_any(core, of(full)).await.map_err(store_problem)? {
            return Err(room.refuse(full));
        }
        match judge(wants.here) {
            Ok(reach) => {
                room.put(&wants, reach);
                return Ok(reach);
            }
            Err((Full::Begun, _)) => return Err(room.refuse(Full::Begun)),
            Err((full, over)) => {
                drop(turn);
                if way.is_none() {
                    // Somebody may have made way meanwhile.
                    way = Some(room.way.lock().await);
                    continue;
                }
                if !make_way::make_way(core, over, of(full)).await.map_err(store_problem)? {
                    return Err(room.refuse(full));
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Config;
    use crate::model::{Change, State, Upload};
    use crate::store::Store;
    use hoop_http::Connector;
    use hoop_seal::{Keyring, KwsId, ServiceKey};
    use hoop_units::{ByteRange, UnixTime};
    use std::sync::Arc;

    const MIB: u64 = 1 << 20;

    /// A service that keeps 8 MiB at most, of which one address may have half.
    fn core(dir: &std::path::Path) -> Arc<Core> {
        let (upstream, origin) = ("http://127.0.0.1:9".parse().unwrap(), "https://photos.example".parse().unwrap());
        let keys = Keyring::new(ServiceKey::new(KwsId([1; 4]), [2; 32]));
        let config = Config {
            max_stored_bytes: 8 * MIB,
            address_quota_bytes: Some(4 * MIB),
            reserve_bytes: 0,
            ..Config::new(upstream, origin, keys, dir.to_owned())
        };
        let store = Store::open(dir, config.max_ended_bytes).unwrap();
        let connector = Connector::new(hoop_http::tls::client_config(&[]).unwrap());
        Arc::new(Core::new(config, store, connector))
    }

    fn wants(n: u8) -> Wants {
        let payer = Payer::Address([n; 16]);
        Wants { id: UploadId([n; 16]), payer, noted: 0, paid: 0, reach: MIB, least: MIB, here: MIB }
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn who_finds_room_does_not_wait_for_what_makes_way_for_others() {
        let dir = tempfile::tempdir().unwrap();
        let core = core(dir.path());
        // All that one address may have is kept for its owner.
        let total = 4 * MIB;
        let begun = Upload::begun(UploadId([9; 16]), vec![1; 32], total, UnixTime(u32::MAX - 9), UnixTime(1));
        let kept = Upload {
            received: [ByteRange::new(0, total)].into_iter().collect(),
            payer: Some(Payer::Address([1; 16])),
            ..begun
        };
        let id = kept.id;
        core.store.with(move |index| index.receive(&kept, true)).await.unwrap();
        let rejected = Change::Answered { state: State::Rejected, reason: None, answer: vec![1], receipt: None };
        for change in [Change::Claim, rejected] {
            core.store.apply(id, change, UnixTime(2)).await.unwrap();
        }
        // Whoever changes anything waits for this one.
        let busy = rusqlite::Connection::open(dir.path().join("index.sqlite")).unwrap();
        busy.execute_batch("BEGIN IMMEDIATE").unwrap();
        let first = tokio::spawn({
            let core = core.clone();
            async move { promise(&core, wants(1)).await }
        });
        while core.room.way.try_lock().is_ok() {
            assert!(!first.is_finished(), "it needs what is kept to make way");
            tokio::task::yield_now().await;
        }
        promise(&core, wants(2)).await.unwrap();
        assert!(!first.is_finished(), "another had its room meanwhile");
        busy.execute_batch("ROLLBACK").unwrap();
        assert_eq!(first.await.unwrap().unwrap(), MIB);
    }
}
