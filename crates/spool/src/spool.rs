//! The store: [`Spool`].

#[cfg(test)]
mod cost;
pub mod ended;

use crate::disk::checksums::Grid;
use crate::disk::lock::Lock;
use crate::disk::segments::{Body, Segments};
use crate::disk::sys::{self, Disk};
use crate::index::committer::Committer;
use crate::index::resource::{self, Resource, Token};
use crate::index::schema::FORMAT;
use crate::index::{
    self, DueOf, Freed, Held, Index, IndexOpenError, KeptFile, Over, Place, Queue, Tally, TimedOut, Unfinished,
};
use crate::model::error::{BeginError, OpenError, StoreError};
use crate::model::life::Overdue;
use crate::model::limits::{EARLY_MAX, SPANS_MAX};
use crate::model::spoilt::Spoilt;
use crate::model::state::State;
use crate::model::upload::{Change, Offer, Reason, Upload};
use crate::receive::intake::{Intake, PAYLOAD_GONE, PAYLOAD_NOT_PLAIN, PROMISED_MAX};
use crate::receive::live::Live;
use crate::receive::lives::Lives;
use crate::receive::payload::Payload;
use crate::receive::room::Room;
use crate::receive::shared::Shared;
use hoop_units::{AddressKey, ByteRange, RangeSet, UnixTime, UploadId};
use parking_lot::{Condvar, Mutex, MutexGuard};
use std::collections::BTreeMap;
use std::fmt;
use std::fs::{self, DirBuilder, OpenOptions};
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// How many uploads are read at a time by who looks at many: each may have a thousand spans.
const PAGE: usize = 8;

/// So long whoever reads pages keeps away from the index in between: a mutex that is taken again at once goes to nobody else.
pub const BREATH: Duration = Duration::from_micros(100);

/// How a spool is opened.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Settings {
    /// The folder; made if absent, for this user's eyes only.
    pub folder: PathBuf,
    /// The most bytes of uploads to keep; `None`: as many as the disk has room for.
    pub quota_bytes: Option<u64>,
    /// Bytes of the disk to leave alone.
    pub reserve_bytes: u64,
    /// Whether to wait for the disk. Without, a power cut loses what was acknowledged; only for measurements.
    pub sync: bool,
    /// Whether what is stored of an upload is due for sending before all of it is.
    pub cut_through: bool,
    /// Where Z's first record begins, in every upload. What is in front of it is the prelude.
    pub first_record: u64,
}

impl Settings {
    /// No quota, no reserve, synced, sent when whole, records from the first byte on.
    pub fn new(folder: impl Into<PathBuf>) -> Self {
        Self {
            folder: folder.into(),
            quota_bytes: None,
            reserve_bytes: 0,
            sync: true,
            cut_through: false,
            first_record: 0,
        }
    }
}

/// The store; cheap to clone.
#[derive(Clone)]
pub struct Spool {
    pub(crate) shared: Arc<Shared>,
}

/// Tells what a device has here.
pub type HeldBy<'a> = dyn Fn(AddressKey) -> Result<Held, StoreError> + 'a;

/// The beginning of an intake.
#[derive(Debug)]
pub enum Begin {
    /// Some of it is missing: write it.
    Take(Intake),
    /// All of it was stored before.
    Complete(Box<Upload>),
}

impl Spool {
    /// Opens the folder, making it if absent. What was acknowledged before is all there; nothing is read but the index's
    /// first pages.
    ///
    /// # Errors
    /// If the folder is in use, of a later format, or cannot be used.
    pub fn open(settings: Settings) -> Result<Self, OpenError> {
        let Settings { folder: path, quota_bytes: quota, reserve_bytes: reserve, sync, cut_through, first_record } =
            settings;
        let folder = |source| OpenError::Folder { path: path.clone(), source };
        let disk = Disk::default();
        make_folder(&path, sync.then_some(&disk)).map_err(folder)?;
        let lock = Lock::take(&path)?;
        lay_out(&path, sync.then_some(&disk)).map_err(folder)?;
        let index = Index::open(&path.join("index.db"), sync, cut_through).map_err(|error| match error {
            IndexOpenError::Later(found) => OpenError::Later { path: path.clone(), found, known: FORMAT },
            IndexOpenError::Sqlite(source) => OpenError::Index { path: path.clone(), source },
            IndexOpenError::Journal(source) => folder(source),
        })?;
        let unreadable = |source| OpenError::Index { path: path.clone(), source };
        let kept = index.kept().map_err(unreadable)?;
        let [uploads, away] = index.uploads().map_err(unreadable)?;
        let early = index.early().map_err(unreadable)?;
        let ended = index.ended().map_err(unreadable)?;
        let segments = Segments::new(path.join("uploads").join(SEGMENTS), index.next_segment().map_err(unreadable)?);
        let room = Room { quota, reserve, kept, uploads, away, ended, ..Room::default() };
        let shared = Shared {
            identity: identity(&path).map_err(folder)?,
            folder: path,
            sync,
            disk,
            grid: Grid { prelude: first_record },
            lives: Mutex::default(),
            left: Condvar::new(),
            health: index.health(),
            index: Mutex::new(index),
            committer: Committer::default(),
            segments,
            going: Mutex::default(),
            room: Mutex::new(room),
            early: Mutex::new(early),
            revision: AtomicU64::new(0),
            _lock: lock,
        };
        Ok(Self { shared: Arc::new(shared) })
    }

    /// Begins to take an upload, or goes on with one. An offer without a prelude fits any that is known under the same id;
    /// the first prelude that comes is the upload's.
    ///
    /// # Errors
    /// If there is no room for what is missing, the same id is known with something else or, without a prelude, from another device, or too
    /// many uploads wait for their preludes.
    pub fn begin(&self, offer: &Offer) -> Result<Begin, BeginError> {
        self.begin_if(offer, |_, _| Ok(())).map(|(begun, ())| begun)
    }

    /// The same, if `admit` lets it in: it is shown what is recorded of the upload, and may ask what a device has here
    /// ([`Spool::held_by`]). Nobody begins anything meanwhile, so it must not wait, nor begin anything itself.
    ///
    /// # Errors
    /// As [`Spool::begin`], and those of `admit`.
    pub fn begin_if<T, E: From<BeginError>>(
        &self,
        offer: &Offer,
        admit: impl FnOnce(Option<&Upload>, &HeldBy<'_>) -> Result<T, E>,
    ) -> Result<(Begin, T), E> {
        let shared = &self.shared;
        let mut lives = shared.lives_without(offer.id);
        if shared.health.is_doubtful() {
            // What comes now is not to take the place of what may be recorded. Whoever settles says when it is over.
            let why = io::Error::other("the disk has failed, and nothing new is taken until it is known what it has");
            return Err(BeginError::from(StoreError::from(why)).into());
        }
        let known = shared.index().get(offer.id).map_err(BeginError::from)?;
        let admitted = admit(known.as_ref(), &|device| shared.held_of(&lives, device, Some(offer.id)))?;
        let live = match self.live(&mut lives, offer, known)? {
            Ok(live) => live,
            Err(upload) => {
                // Nobody who begins waits for the disk.
                drop(lives);
                let upload = self.postpone(upload, offer).map_err(BeginError::from)?;
                return Ok((Begin::Complete(upload), admitted));
            }
        };
        live.state().senders += 1;
        let intake = Intake::new(shared.clone(), live);
        // Before anybody else is weighed.
        let room = self.admit(&intake, offer.total);
        // From here on a failure drops the intake, which gives everything back.
        drop(lives);
        room.map(|()| (Begin::Take(intake), admitted)).map_err(E::from)
    }

    /// What is being received of an upload, begun if need be; or the upload, if all of it is here.
    fn live(
        &self,
        lives: &mut Lives,
        offer: &Offer,
        known: Option<Upload>,
    ) -> Result<Result<Arc<Live>, Box<Upload>>, BeginError> {
        let shared = &self.shared;
        if let Some(live) = lives.receiving.get(&offer.id) {
            let state = live.state();
            same(&state.offer, state.total, offer)?;
            if state.ended {
                // Its senders have not noticed. What they have written is gone.
                return known.map(|upload| Err(Box::new(upload))).ok_or_else(|| PAYLOAD_GONE.into());
            }
            drop(state);
            self.complete_offer(live, offer)?;
            live.set_deadline(offer);
            return Ok(Ok(live.clone()));
        }
        if let Some(upload) = known.as_ref() {
            same_as_known(upload, offer)?;
        }
        if let Some(upload) = known.as_ref().filter(|upload| !upload.takes_more()) {
            return Ok(Err(Box::new(upload.clone())));
        }
        if known.is_none() && offer.is_early() && shared.early().len() >= EARLY_MAX {
            return Err(BeginError::TooManyEarly(EARLY_MAX));
        }
        if known.is_none() {
            // One that is refused is to take no place in a segment.
            let need = offer.total.map_or(0, |total| total.saturating_sub(offer.prelude.len() as u64));
            if need > 0 || offer.total.is_none() {
                drop(self.room_for(need)?);
            }
        }
        let live = Arc::new(self.open_live(offer, known)?);
        self.complete_offer(&live, offer)?;
        live.set_deadline(offer);
        lives.receiving.insert(offer.id, live.clone());
        if live.state().offer.is_early() {
            shared.early().insert(offer.id, offer.device);
        }
        Ok(Ok(live))
    }

    /// Takes the deadline that comes with an upload that is there already. Returns the upload as it is then.
    fn postpone(&self, mut upload: Box<Upload>, offer: &Offer) -> Result<Box<Upload>, StoreError> {
        if upload.state.is_final() || offer.deadline.is_none() || offer.deadline == upload.deadline {
            return Ok(upload);
        }
        let change = Change { deadline: offer.deadline, ..Change::default() };
        // Nothing else has changed, so the time of the last change stays.
        self.shared.change(offer.id, &change, upload.updated, true)?;
        self.shared.changed();
        upload.deadline = offer.deadline;
        Ok(upload)
    }

    fn open_live(&self, offer: &Offer, known: Option<Upload>) -> Result<Live, BeginError> {
        if let Some(upload) = known {
            let kept = self.shared.index().kept_file(offer.id)?.ok_or(PAYLOAD_GONE)?;
            let body = self.open_body(offer.id, &kept, OpenOptions::new().read(true).write(true))?;
            let offer = offer_of(&upload);
            return Ok(Live::new(offer, body, upload.stored.clone(), upload.stored, true));
        }
        let body = match offer.total {
            Some(total) if self.shared.segments.takes(total) && offer.prelude.len() as u64 <= total => {
                self.shared.segments.reserve(total)?
            }
            _ => {
                // A file without a row was left by a crash before its first commit: it is begun anew.
                Body::Own(hoop_files::create(&self.shared.file(offer.id))?)
            }
        };
        self.shared.disk.write(body.file(), &offer.prelude, body.at(0))?;
        let prelude = ByteRange::new(0, offer.prelude.len() as u64);
        self.shared.room().written += prelude.len();
        Ok(Live::new(offer.clone(), body, RangeSet::new(), [prelude].into_iter().collect(), false))
    }

    /// Opens what an upload that is recorded is kept in.
    fn open_body(&self, id: UploadId, kept: &KeptFile, options: &mut OpenOptions) -> Result<Body, StoreError> {
        match kept.extent {
            Some(extent) => self.shared.segments.open(extent, kept.total),
            None => hoop_files::open_plain(&self.shared.file(id), options).map(Body::Own),
        }
        .map_err(gone)
    }

    /// Takes the prelude that `offer` brings, if it has not come before.
    fn complete_offer(&self, live: &Live, offer: &Offer) -> Result<(), BeginError> {
        let mut state = live.state();
        if offer.is_early() || !state.offer.is_early() {
            return Ok(());
        }
        self.shared.disk.write(live.body.file(), &offer.prelude, live.body.at(0))?;
        let before = state.written.len();
        state.written.insert(ByteRange::new(0, offer.prelude.len() as u64));
        let added = state.written.len() - before;
        let promised = added.min(state.promised);
        state.promised -= promised;
        state.offer = Offer { total: state.offer.total, device: state.offer.device, ..offer.clone() };
        let mut room = self.shared.room();
        room.promised -= promised;
        room.written += added;
        Ok(())
    }

    /// Promises room for what is missing, as far as [`PROMISED_MAX`], if there is room for all of it now.
    fn admit(&self, intake: &Intake, total: Option<u64>) -> Result<(), BeginError> {
        let mut live = intake.live.state();
        live.total = live.total.or(total);
        // Written spans can exceed stored ones by one per sender that broke off.
        if live.written.spans() > 2 * SPANS_MAX {
            return Err(BeginError::TooManySpans(live.written.spans()));
        }
        let missing = live.total.map_or(0, |total| total.saturating_sub(live.written.len()));
        let need = missing.saturating_sub(live.promised);
        if need > 0 || total.is_none() {
            let mut room = self.room_for(need)?;
            let promised = need.min(PROMISED_MAX.saturating_sub(live.promised));
            room.promised += promised;
            live.promised += promised;
        }
        Ok(())
    }

    /// The books, if there is room for so many bytes, or for any.
    fn room_for(&self, need: u64) -> Result<MutexGuard<'_, Room>, BeginError> {
        if identity(&self.shared.folder)? != self.shared.identity {
            // What is written now nobody would find.
            return Err(
                StoreError::from(io::Error::other("the folder is another than at the start; start again")).into()
            );
        }
        let disk = sys::free(&self.shared.folder)?;
        let room = self.shared.room();
        if !room.has_files(disk) {
            return Err(BeginError::NoFiles(disk.files));
        }
        match room.free(disk) {
            free if need > free || free == 0 => Err(BeginError::Full { need: need.max(1), free }),
            _ => Ok(room),
        }
    }

    /// What is recorded of an upload.
    ///
    /// # Errors
    /// If the index fails.
    pub fn get(&self, id: UploadId) -> Result<Option<Upload>, StoreError> {
        self.shared.index().get(id)
    }

    /// The stored bytes of an upload that keeps them.
    ///
    /// # Errors
    /// If there is no such file, or the index fails.
    pub fn payload(&self, id: UploadId) -> Result<Payload, StoreError> {
        // Its bytes are not given back between the two.
        let index = self.shared.index();
        let kept = index.kept_file(id)?.ok_or(PAYLOAD_GONE)?;
        let body = self.open_body(id, &kept, OpenOptions::new().read(true))?;
        drop(index);
        Ok(Payload::new(self.shared.clone(), body, kept))
    }

    /// Takes `spoilt`, which the disk does not give back as it was written, out of what is stored, and says why. The upload goes on when
    /// a device brings it again. Bytes that are wrong are given back to the disk. Those that cannot be read stay where
    /// they are: writing them again lets the disk put another sector in place of a bad one.
    ///
    /// # Errors
    /// If the index fails; then nothing changed.
    pub fn spoil(&self, id: UploadId, spoilt: &Spoilt, reason: &Reason, now: UnixTime) -> Result<(), StoreError> {
        // Locked, so that no sender begins meanwhile; and the commit of those there are, which would record it again.
        let lives = self.shared.lives_without(id);
        let live = lives.receiving.get(&id);
        let _commit = live.map(|live| live.one_at_a_time());
        let kept = self.shared.index().kept_file(id)?;
        let all = spoilt.all();
        let Some(lost) = self.shared.index().spoil(id, &all, reason, now)? else { return Ok(()) };
        self.shared.changed();
        self.shared.room().lose(lost);
        // What does not count any more takes no room either. Nobody writes what is stored.
        let punch = |body: &Body, range: ByteRange, stays: &RangeSet| {
            let stays = stays.iter().chain(spoilt.unreadable.iter()).collect();
            self.shared.disk.punch(body.file(), body.whole_blocks(range, &stays));
        };
        match live.map(|live| (live, live.state())) {
            Some((live, mut state)) => {
                // What is written and not stored stays as it is.
                let parts = |set: &RangeSet, stored: &RangeSet| -> Vec<ByteRange> {
                    set.iter().flat_map(|range| parts_of(stored, range)).collect()
                };
                let (wrong, all) = (parts(&spoilt.wrong, &state.stored), parts(&all, &state.stored));
                for range in all {
                    state.stored.remove(range);
                    state.written.remove(range);
                }
                wrong.into_iter().for_each(|range| punch(&live.body, range, &state.written));
            }
            None => {
                let body =
                    kept.and_then(|kept| self.open_body(id, &kept, OpenOptions::new().read(true).write(true)).ok());
                // What cannot be looked up stays as it is.
                let stays = self.shared.index().get(id).ok().flatten().map(|upload| upload.stored);
                for (body, stays) in body.iter().zip(&stays) {
                    spoilt.wrong.iter().for_each(|range| punch(body, range, stays));
                }
            }
        }
        Ok(())
    }

    /// Makes a change, and removes the payload when it is no longer needed. It is on disk when this returns. Returns the state that
    /// came of it; `None` if there is no such upload. An upload whose state is final is left as it is.
    ///
    /// # Errors
    /// If the index fails; then nothing changed.
    pub fn change(&self, id: UploadId, change: &Change, now: UnixTime) -> Result<Option<State>, StoreError> {
        self.change_as(id, change, now, true)
    }

    /// Makes a change as [`Spool::change`] does, but does not wait for the disk: for what the service can be asked about again. Whatever ends this process
    /// takes nothing of it back. A power cut may, until [`Spool::settle`] or the next change that waits.
    ///
    /// # Errors
    /// If the index fails; then nothing changed.
    pub fn change_soon(&self, id: UploadId, change: &Change, now: UnixTime) -> Result<Option<State>, StoreError> {
        self.change_as(id, change, now, false)
    }

    /// Waits until all that is recorded is on disk, and removes payloads that do not count since. Costs nothing if there is nothing to wait for.
    ///
    /// # Errors
    /// If the disk does not take it.
    pub fn settle(&self) -> Result<(), StoreError> {
        self.shared.settle()
    }

    fn change_as(
        &self,
        id: UploadId,
        change: &Change,
        now: UnixTime,
        is_urgent: bool,
    ) -> Result<Option<State>, StoreError> {
        let Some(changed) = self.shared.change(id, change, now, is_urgent)? else { return Ok(None) };
        self.shared.changed();
        self.shared.room().changes(&changed);
        if let Some(freed) = changed.freed {
            self.shared.let_go(id, freed, is_urgent);
        }
        if changed.ended {
            // The change is made. Should this fail, the next that ends makes up for it.
            let _ = self.trim();
        }
        Ok(Some(changed.state))
    }

    /// The next devices after `after` that have something in a queue that is due at `now`, in ascending order, at most `limit`.
    /// Costs one step into the index for each, however much they have. What became due since this or [`Spool::due_of`] was
    /// last asked is moved to its place in the order first, which is recorded, and costs as much as there is of it.
    ///
    /// # Errors
    /// If the index fails.
    pub fn due_devices(
        &self,
        now: UnixTime,
        queue: Queue,
        after: Option<AddressKey>,
        limit: usize,
    ) -> Result<Vec<AddressKey>, StoreError> {
        self.ripen(now)?;
        self.shared.index().ready_devices(queue, after, limit)
    }

    /// What a device has due in a queue at `now`, after `from`: the earliest deadline first (none is last), then the oldest; at most
    /// `limit`. Costs as [`Spool::due_devices`] does.
    ///
    /// # Errors
    /// If the index fails.
    pub fn due_of(
        &self,
        now: UnixTime,
        queue: Queue,
        device: AddressKey,
        from: Place,
        limit: usize,
    ) -> Result<Vec<DueOf>, StoreError> {
        self.ripen(now)?;
        self.shared.index().ready_of(queue, device, from, limit)
    }

    /// The index is free between the batches, so that no sender waits for them all.
    fn ripen(&self, now: UnixTime) -> Result<(), StoreError> {
        while self.shared.index().ripen(now)? {}
        Ok(())
    }

    /// What a device has here: what is recorded and kept, and what it is sending or has room promised for. Costs the same however
    /// much that is; what is being sent, as many steps as there are senders.
    ///
    /// # Errors
    /// If the index fails.
    pub fn held_by(&self, device: AddressKey) -> Result<Held, StoreError> {
        self.shared.held_of(&self.shared.lives(), device, None)
    }

    /// When the next upload will be due that is not due at `now`.
    ///
    /// # Errors
    /// If the index fails.
    pub fn next_due(&self, now: UnixTime) -> Result<Option<UnixTime>, StoreError> {
        self.shared.index().next_due(now)
    }

    /// Expires uploads whose time is over at `now`, forgets final ones that were kept long enough, and drops those whose prelude never
    /// came, at most `limit`. Returns how many these were: call again while it is `limit`.
    ///
    /// # Errors
    /// If the index fails.
    pub fn end(&self, reason: &Reason, now: UnixTime, limit: usize) -> Result<usize, StoreError> {
        self.end_overdue(reason, &now.into(), now, limit)
    }

    /// The same of what is over by a clock that is not always right (`docs/time.md`).
    ///
    /// # Errors
    /// If the index fails.
    pub fn end_overdue(
        &self,
        reason: &Reason,
        time: &Overdue,
        now: UnixTime,
        limit: usize,
    ) -> Result<usize, StoreError> {
        let shared = &self.shared;
        let over = shared.index().over(time, limit)?;
        // So that no sender begins on what is just going.
        let leaving = shared.leave(over.iter().map(|over| over.id));
        let over: Arc<[Over]> = over.into_iter().filter(|over| leaving.ids().contains(&over.id)).collect();
        if over.is_empty() {
            return Ok(0);
        }
        // One transaction for all: a disk that takes its time for each would keep the house at nothing else.
        let (all, reason) = (over.clone(), reason.clone());
        let ended = shared.commit(move |tx, rules| index::end(tx, rules, &all, &reason, now))?;
        shared.changed();
        let (mut count, mut damage) = (0, None);
        for (over, ended) in over.iter().zip(ended) {
            match ended {
                Ok(TimedOut { freed, was_away }) => {
                    count += 1;
                    shared.room().away -= i64::from(was_away);
                    self.freed(over, freed);
                }
                Err(error) => damage = Some(error),
            }
        }
        drop(leaving);
        shared.remove_ready();
        self.trim()?;
        damage.map_or(Ok(count), Err)
    }

    /// Lets go of the room and the file that an upload had whose time was over.
    fn freed(&self, over: &Over, freed: Option<Freed>) {
        let Some(freed) = freed else { return };
        self.shared.room().let_go(&freed);
        if over.early {
            self.shared.early().remove(&over.id);
        }
        self.shared.remove(over.id, freed.extent, freed.total);
    }

    /// Remembers a resource by its token; `false` if there are too many, of its device or in all. Room is made by what is `over`,
    /// by what is done, and by the device that has most, if this one has fewer.
    ///
    /// # Errors
    /// If the index fails.
    pub fn add_resource(
        &self,
        token: Token,
        resource: &Resource,
        over: impl Into<hoop_timekeeper::Over>,
    ) -> Result<bool, StoreError> {
        let (new, over, most) = (resource.clone(), over.into(), resource::most(self.shared.room().quota));
        self.shared.commit(move |tx, _| resource::add(tx, token, &new, over, most))
    }

    /// What is known of a resource.
    ///
    /// # Errors
    /// If the index fails.
    pub fn resource(&self, token: Token, now: UnixTime) -> Result<Option<Resource>, StoreError> {
        self.shared.index().resource(token, now)
    }

    /// Records what a resource is now; on disk when this returns. `false`: it is gone.
    ///
    /// # Errors
    /// If the index fails.
    pub fn keep_resource(&self, token: Token, resource: &Resource) -> Result<bool, StoreError> {
        let now = resource.clone();
        self.shared.commit(move |tx, _| resource::keep(tx, token, &now))
    }

    /// Forgets a resource.
    ///
    /// # Errors
    /// If the index fails.
    pub fn drop_resource(&self, token: Token) -> Result<(), StoreError> {
        self.shared.commit(move |tx, _| resource::drop(tx, token))
    }

    /// Drops an upload that is still being received, on its sender's wish, unless somebody is sending it now. Whether it did.
    ///
    /// # Errors
    /// If the index fails.
    pub fn abandon(&self, id: UploadId) -> Result<bool, StoreError> {
        // So that no sender begins on what is just going.
        let leaving = self.shared.leave([id]);
        if leaving.ids().is_empty() {
            return Ok(false);
        }
        let dropped = self.shared.commit(move |tx, _| index::drop_unfinished(tx, id, Unfinished::Receiving))?;
        let Some(freed) = dropped else { return Ok(false) };
        self.shared.changed();
        self.shared.room().let_go(&freed);
        self.shared.early().remove(&id);
        self.shared.remove(id, freed.extent, freed.total);
        Ok(true)
    }

    /// Removes segments without uploads, and files that no row counts in one of 256 shards: what a crash left between making a file and recording it,
    /// or between recording an end and removing the file. Returns how many of these it removed.
    ///
    /// # Errors
    /// If the folder cannot be read or the index fails.
    pub fn sweep(&self, shard: u8) -> Result<usize, StoreError> {
        self.shared.sweep_segments()?;
        let mut removed = 0;
        for entry in fs::read_dir(self.shared.folder.join("uploads").join(format!("{shard:02x}")))? {
            let entry = entry?;
            let name = entry.file_name();
            let id = name.to_str().and_then(|name| name.strip_suffix(".z")).and_then(|id| id.parse::<UploadId>().ok());
            let Some(id) = id else { continue };
            // Anew for each file: nobody is to wait for the whole shard.
            let leaving = self.shared.leave([id]);
            if !leaving.ids().is_empty() && !self.shared.index().has_own_file(id)? {
                self.shared.settle()?;
                match fs::remove_file(entry.path()) {
                    Ok(()) => removed += 1,
                    // Who ended it was faster.
                    Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                    Err(error) => return Err(error.into()),
                }
            }
        }
        Ok(removed)
    }

    /// How many more bytes the spool takes.
    ///
    /// # Errors
    /// If the file system does not say.
    pub fn free_bytes(&self) -> io::Result<u64> {
        let disk = sys::free(&self.shared.folder)?;
        let room = self.shared.room();
        Ok(if room.has_files(disk) { room.free(disk) } else { 0 })
    }

    /// Bytes of uploads that are recorded and kept.
    pub fn kept_bytes(&self) -> u64 {
        self.shared.room().kept
    }

    /// What uploads take: their bytes, and [`UPLOAD_COST`](crate::UPLOAD_COST) each; and [`AWAY_COST`](crate::AWAY_COST) each that are at their services.
    pub fn occupied_bytes(&self) -> u64 {
        self.shared.room().occupied()
    }

    /// How many uploads are in each state, states without any left out. Costs the same however many there are.
    ///
    /// # Errors
    /// If the index fails.
    pub fn tally(&self) -> Result<BTreeMap<State, Tally>, StoreError> {
        self.shared.index().tally()
    }

    /// What `map` makes of the uploads that came last, newest first, at most `limit`. Others get at the index in between: `PAGE` uploads hold it up at a time. `map` must not use the
    /// spool.
    ///
    /// # Errors
    /// If the index fails.
    pub fn recent<T>(&self, limit: usize, map: impl Fn(&Upload) -> T) -> Result<Vec<T>, StoreError> {
        let mut found = Vec::new();
        self.pages(limit, map, |page| found.extend(page))?;
        Ok(found)
    }

    /// What `map` makes of all uploads, as [`Spool::recent`].
    ///
    /// # Errors
    /// If the index fails.
    pub fn all<T>(&self, map: impl Fn(&Upload) -> Option<T>) -> Result<Vec<T>, StoreError> {
        let mut all = Vec::new();
        self.pages(usize::MAX, map, |page| all.extend(page.into_iter().flatten()))?;
        Ok(all)
    }

    fn pages<T>(
        &self,
        limit: usize,
        map: impl Fn(&Upload) -> T,
        mut take: impl FnMut(Vec<T>),
    ) -> Result<(), StoreError> {
        let (mut left, mut next) = (limit, Some(i64::MAX));
        while let Some(before) = next.filter(|_| left > 0) {
            let (page, last) = self.shared.index().recent(before, PAGE.min(left), &map)?;
            left -= page.len();
            take(page);
            next = last;
            std::thread::sleep(BREATH);
        }
        Ok(())
    }

    /// A number that grows whenever something is recorded: as long as it stays, so does all that the spool says.
    pub fn revision(&self) -> u64 {
        self.shared.revision.load(Ordering::Relaxed)
    }

    /// The folder.
    pub fn folder(&self) -> &Path {
        &self.shared.folder
    }
}

impl fmt::Debug for Spool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Spool").field("folder", &self.shared.folder).finish_non_exhaustive()
    }
}

fn same(known: &Offer, total: Option<u64>, offer: &Offer) -> Result<(), BeginError> {
    let other_total = total.zip(offer.total).is_some_and(|(known, new)| known != new);
    match () {
        () if !known.is_early() && !offer.is_early() && known.prelude != offer.prelude => {
            Err(BeginError::Conflict("prelude"))
        }
        () if other_total => Err(BeginError::Conflict("total")),
        () if known.dest != offer.dest => Err(BeginError::Conflict("destination")),
        // Without a prelude, all that a sender shows is the id, which whoever follows the upload knows.
        () if offer.is_early() && known.device != offer.device => Err(BeginError::NotBegunHere),
        () => Ok(()),
    }
}

fn same_as_known(upload: &Upload, offer: &Offer) -> Result<(), BeginError> {
    let known = offer_of(upload);
    same(&known, known.total, offer)
}

/// What was said of an upload that is recorded.
fn offer_of(upload: &Upload) -> Offer {
    Offer {
        id: upload.id,
        prelude: upload.prelude.clone(),
        total: Some(upload.total),
        dest: upload.dest.clone(),
        expires: upload.expires,
        device: upload.device,
        deadline: upload.deadline,
    }
}

/// What a set has of a range.
fn parts_of(set: &RangeSet, range: ByteRange) -> impl Iterator<Item = ByteRange> {
    set.iter().map(move |span| span.intersect(range)).filter(|part| !part.is_empty())
}

fn gone(error: io::Error) -> StoreError {
    match error.kind() {
        io::ErrorKind::NotFound => PAYLOAD_GONE,
        _ if hoop_files::is_not_plain(&error) => PAYLOAD_NOT_PLAIN,
        _ => error.into(),
    }
}

/// Which folder has this name: its device and inode.
fn identity(folder: &Path) -> io::Result<(u64, u64)> {
    fs::metadata(folder).map(|is| (is.dev(), is.ino()))
}

/// Makes the folder if absent, and puts its name on disk, and those of the folders above it that were made with it.
fn make_folder(folder: &Path, synced: Option<&Disk>) -> io::Result<()> {
    let folder = std::path::absolute(folder)?;
    let made: Vec<&Path> = folder.ancestors().take_while(|folder| !folder.exists()).collect();
    hoop_files::folder(&folder)?;
    let Some(disk) = synced else { return Ok(()) };
    made.into_iter().filter_map(Path::parent).try_for_each(|parent| disk.sync_folder(parent))
}

/// The folder of segments.
pub const SEGMENTS: &str = "segments";

/// Makes the folders for payload, and puts their names on disk, once. A folder of an earlier format lacks that of segments.
fn lay_out(folder: &Path, synced: Option<&Disk>) -> io::Result<()> {
    let uploads = folder.join("uploads");
    if folder.join("index.db").exists() && uploads.join(SEGMENTS).exists() {
        return Ok(());
    }
    let shards = (0..=255_u8).map(|shard| format!("{shard:02x}"));
    for name in shards.chain([SEGMENTS.to_owned()]) {
        DirBuilder::new().recursive(true).mode(0o700).create(uploads.join(name))?;
    }
    let Some(disk) = synced else { return Ok(()) };
    disk.sync_folder(&uploads)?;
    disk.sync_folder(folder)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::disk::segments::{BAD, SHARED_MAX};
    use crate::disk::sys::Act;
    use crate::index::committer::Job;
    use crate::index::operation::{self, Stored};
    use crate::index::{Rules, Step, Terms};
    use crate::model::error::{CommitError, ReadError};
    use crate::model::upload::Offer;
    use rusqlite::Connection;

    const NOW: UnixTime = UnixTime(1_000_000);

    fn offer(prelude: &[u8]) -> Offer {
        Offer {
            id: UploadId([0xab; 16]),
            prelude: prelude.to_vec(),
            total: Some(100),
            dest: "https://photos.example/hoop/post".into(),
            expires: UnixTime(NOW.0 + 1_000),
            device: AddressKey::UNKNOWN,
            deadline: None,
        }
    }

    /// Stores a range; returns what the disk had been asked to do before that was acknowledged.
    fn acts(spool: &Spool, offer: &Offer, range: ByteRange) -> Vec<Act> {
        let Begin::Take(mut intake) = spool.begin(offer).unwrap() else { panic!("it is complete") };
        intake.write_at(range.start, &vec![7; range.len() as usize]).unwrap();
        intake.commit(range, NOW).unwrap();
        spool.shared.disk.acts()
    }

    #[test]
    fn what_is_acknowledged_was_written_then_synced_then_named_then_recorded() {
        let folder = tempfile::tempdir().unwrap();
        let spool = Spool::open(Settings::new(folder.path())).unwrap();
        spool.shared.disk.acts();
        let long = Offer { id: UploadId([0xac; 16]), total: Some(SHARED_MAX + 1), ..offer(b"prelude") };
        for (offer, named) in [(offer(b"prelude"), "uploads/segments"), (long, "uploads/ac")] {
            let named = Act::SyncFolder(folder.path().join(named));
            let first = acts(&spool, &offer, ByteRange::new(7, 50));
            assert_eq!(first, [Act::Write, Act::Write, Act::SyncPayload, named, Act::Record]);
            let second = acts(&spool, &offer, ByteRange::new(50, 100));
            assert_eq!(second, [Act::Write, Act::SyncPayload, Act::Record], "its name is on disk already");
        }
    }

    #[test]
    fn the_next_small_upload_syncs_no_name() {
        let folder = tempfile::tempdir().unwrap();
        let spool = Spool::open(Settings::new(folder.path())).unwrap();
        acts(&spool, &offer(b"prelude"), ByteRange::new(7, 100));
        let other = Offer { id: UploadId([0xac; 16]), ..offer(b"prelude") };
        let acts = acts(&spool, &other, ByteRange::new(7, 100));
        assert_eq!(acts, [Act::Write, Act::Write, Act::SyncPayload, Act::Record]);
    }

    #[test]
    fn a_payload_goes_once_it_is_on_disk_that_it_does_not_count() {
        let folder = tempfile::tempdir().unwrap();
        let spool = Spool::open(Settings::new(folder.path())).unwrap();
        let long = Offer { total: Some(SHARED_MAX + 1), ..offer(b"prelude") };
        acts(&spool, &long, ByteRange::new(7, 100));
        let accepted = Change { state: Some(State::Accepted), ..Change::default() };
        spool.change_soon(long.id, &accepted, NOW).unwrap();
        assert!(spool.shared.file(long.id).exists(), "a power cut may take the change back");
        spool.settle().unwrap();
        assert!(!spool.shared.file(long.id).exists());
    }

    /// A device kept a second message open while its service stopped the upload: 700 MiB stayed beside a quota of 100.
    #[test]
    fn an_upload_that_ends_while_somebody_sends_it_leaves_nothing_behind() {
        for len in [100, SHARED_MAX + 1] {
            let folder = tempfile::tempdir().unwrap();
            let spool = Spool::open(Settings::new(folder.path())).unwrap();
            let offer = Offer { total: Some(len), ..offer(b"prelude") };
            acts(&spool, &offer, ByteRange::new(7, 90));
            let Begin::Take(mut intake) = spool.begin(&offer).unwrap() else { panic!("some of it is missing") };
            let stopped = Change { state: Some(State::Stopped), ..Change::default() };
            spool.change_soon(offer.id, &stopped, NOW).unwrap();
            spool.settle().unwrap();
            if len > SHARED_MAX {
                let left = std::fs::metadata(spool.shared.file(offer.id)).unwrap().blocks();
                assert_eq!(left, 0, "nothing of it counts, however long its sender stays");
            }
            intake.write_at(90, &[7; 10]).unwrap();
            assert!(matches!(spool.begin(&offer).unwrap(), Begin::Complete(_)), "nobody joins it");
            drop(intake);
            assert!(!spool.shared.file(offer.id).exists());
            for entry in std::fs::read_dir(folder.path().join("segments")).into_iter().flatten() {
                let bytes = std::fs::read(entry.unwrap().path()).unwrap();
                assert!(!bytes.windows(10).any(|some| some == [7; 10]), "what came after its end");
            }
        }
    }

    #[test]
    fn an_upload_begun_again_keeps_its_bytes_until_its_own_end_is_on_disk() {
        let folder = tempfile::tempdir().unwrap();
        let spool = Spool::open(Settings::new(folder.path())).unwrap();
        let offer = Offer { total: Some(SHARED_MAX + 1), ..offer(b"prelude") };
        let stopped = Change { state: Some(State::Stopped), ..Change::default() };
        acts(&spool, &offer, ByteRange::new(7, 90));
        spool.change_soon(offer.id, &stopped, NOW).unwrap();
        spool.shared.index().trim(0, |_| false).unwrap();
        let Begin::Take(mut intake) = spool.begin(&offer).unwrap() else { panic!("nobody knows it") };
        intake.write_at(7, &[7; 83]).unwrap();
        intake.commit(ByteRange::new(7, 90), NOW).unwrap();
        spool.change_soon(offer.id, &stopped, NOW).unwrap();
        let blocks = || std::fs::metadata(spool.shared.file(offer.id)).unwrap().blocks();
        assert_ne!(blocks(), 0, "a power cut may take its end back");
        spool.settle().unwrap();
        assert_eq!(blocks(), 0);
    }

    /// Three records, the first of which is wrong on the disk, and the second is not to be read. Of an upload in a
    /// segment, or with a file of its own.
    fn bad_disk(spool: &Spool, total: u64) -> (Offer, [ByteRange; 3]) {
        let offer = Offer { total: Some(total), ..offer(b"prelude") };
        acts(spool, &offer, ByteRange::new(7, 7 + 3 * RECORD));
        let kept = spool.shared.index().kept_file(offer.id).unwrap().unwrap();
        let body = spool.open_body(offer.id, &kept, OpenOptions::new().read(true).write(true)).unwrap();
        spool.shared.disk.write(body.file(), &[8], body.at(7 + 9)).unwrap();
        BAD.set(Some(7 + RECORD + 9));
        (offer, [0, 1, 2].map(|record| ByteRange::new(7 + record * RECORD, 7 + (record + 1) * RECORD)))
    }

    const RECORD: u64 = 64 << 10;

    fn with_records(folder: &Path) -> Spool {
        Spool::open(Settings { first_record: 7, ..Settings::new(folder) }).unwrap()
    }

    #[test]
    fn a_read_error_is_no_damage_and_passes() {
        for total in [8 * RECORD, SHARED_MAX + 1] {
            let folder = tempfile::tempdir().unwrap();
            let spool = with_records(folder.path());
            let (offer, [wrong, bad, good]) = bad_disk(&spool, total);
            let payload = spool.payload(offer.id).unwrap();
            let read = |range: ByteRange| payload.read_at(range.start, &mut vec![0; range.len() as usize]);
            assert!(matches!(read(wrong), Err(ReadError::Damaged(range)) if range == wrong));
            for range in [bad, ByteRange::new(bad.start, good.end), ByteRange::new(bad.start + 1, bad.start + 2)] {
                let unread = read(range);
                assert!(matches!(unread, Err(ReadError::Store(StoreError::File(_)))), "{range}: {unread:?}");
            }
            let spoilt = payload.spoilt(ByteRange::new(0, good.end)).unwrap();
            let only = |range| RangeSet::from_iter([range]);
            assert_eq!(spoilt, Spoilt { wrong: only(wrong), unreadable: only(bad) });
            BAD.set(None);
            read(bad).unwrap();
            assert_eq!(payload.spoilt(ByteRange::new(0, good.end)).unwrap(), only(wrong).into());
        }
    }

    #[test]
    fn bytes_that_cannot_be_read_are_never_given_back_to_the_disk() {
        for (total, is_received) in [(8 * RECORD, false), (SHARED_MAX + 1, false), (SHARED_MAX + 1, true)] {
            let folder = tempfile::tempdir().unwrap();
            let spool = with_records(folder.path());
            let (offer, [wrong, bad, good]) = bad_disk(&spool, total);
            let payload = spool.payload(offer.id).unwrap();
            let receiver = is_received.then(|| spool.begin(&offer).unwrap());
            let spoilt = payload.spoilt(ByteRange::new(0, good.end)).unwrap();
            spool.spoil(offer.id, &spoilt, &Reason::new("spool-damaged", ""), NOW).unwrap();
            drop(receiver);
            let left = [ByteRange::new(0, wrong.start), good].into_iter().collect();
            assert_eq!(spool.get(offer.id).unwrap().unwrap().stored, left);
            BAD.set(None);
            let read = |range: ByteRange| {
                let mut bytes = vec![1; range.len() as usize];
                payload.body.read_exact_at(&mut bytes, range.start).unwrap();
                bytes
            };
            let written = spool.payload(offer.id).unwrap();
            assert!(written.read_at(good.start, &mut vec![0; RECORD as usize]).is_ok());
            assert!(read(bad).iter().all(|byte| *byte == 7), "as it was written");
            assert!(read(wrong)[4096..][..4096].iter().all(|byte| *byte == 0), "nobody needs it");
        }
    }

    #[test]
    fn a_repair_gives_no_bytes_back_that_cannot_be_read() {
        let folder = tempfile::tempdir().unwrap();
        let spool = with_records(folder.path());
        let (offer, [wrong, bad, _]) = bad_disk(&spool, SHARED_MAX + 1);
        let path = spool.shared.file(offer.id);
        drop(spool);
        let before = fs::read(&path).unwrap();
        let mut found = Vec::new();
        crate::check(folder.path(), 7, Some(NOW), &mut |finding| found.push(finding.detail.clone())).unwrap();
        assert_eq!(found, [format!("bytes {wrong} are not as they were written, and bytes {bad} cannot be read")]);
        assert!(fs::read(&path).unwrap() == before);
        let stored = with_records(folder.path()).get(offer.id).unwrap().unwrap().stored;
        assert_eq!(
            stored,
            [ByteRange::new(0, wrong.start), ByteRange::new(bad.end, bad.end + RECORD)].into_iter().collect()
        );
    }

    #[test]
    fn messages_that_break_off_leave_no_blocks_behind() {
        const RECORD: u64 = 64 << 10;
        let folder = tempfile::tempdir().unwrap();
        let spool = Spool::open(Settings::new(folder.path())).unwrap();
        let offer = Offer { total: Some(40 * RECORD), ..offer(b"prelude") };
        acts(&spool, &offer, ByteRange::new(7, 90));
        let blocks = || std::fs::metadata(spool.shared.file(offer.id)).unwrap().blocks();
        let before = blocks();
        for record in (1..40).rev() {
            let Begin::Take(mut intake) = spool.begin(&offer).unwrap() else { panic!("most of it is missing") };
            intake.write_at(record * RECORD + 7, &[7]).unwrap();
        }
        assert_eq!(blocks(), before);
        // Neighbours are spoilt one after the other.
        acts(&spool, &offer, ByteRange::new(7, 5 * RECORD + 7));
        for record in 1..5 {
            let range = ByteRange::new(record * RECORD + 7, (record + 1) * RECORD + 7);
            let reason = Reason::new("record-corrupt", "");
            spool.spoil(offer.id, &RangeSet::from_iter([range]).into(), &reason, NOW).unwrap();
        }
        assert_eq!(blocks(), (RECORD + 4096) / 512);
    }

    #[test]
    fn what_is_recorded_already_is_neither_synced_nor_recorded_again() {
        let folder = tempfile::tempdir().unwrap();
        let spool = Spool::open(Settings::new(folder.path())).unwrap();
        let begin = |deadline| {
            let Begin::Take(mut intake) = spool.begin(&Offer { deadline, ..offer(b"prelude") }).unwrap() else {
                panic!("half of it is missing")
            };
            intake.write_at(50, &[7; 10]).unwrap();
            intake
        };
        assert_eq!(begin(None).commit(ByteRange::new(50, 60), NOW).unwrap(), State::Receiving);
        spool.shared.disk.acts();
        assert_eq!(begin(None).commit(ByteRange::new(50, 60), NOW).unwrap(), State::Receiving);
        assert_eq!(spool.shared.disk.acts(), []);
        let deadline = Some(UnixTime(NOW.0 + 9));
        begin(deadline).commit(ByteRange::new(50, 60), NOW).unwrap();
        assert_eq!(spool.get(offer(b"").id).unwrap().unwrap().deadline, deadline, "that is news");
        // Its service has had it by another way meanwhile.
        let intake = begin(deadline);
        let change = Change { state: Some(State::Accepted), ..Change::default() };
        spool.change(intake.id(), &change, NOW).unwrap();
        assert!(matches!(intake.commit(ByteRange::new(50, 60), NOW), Err(CommitError::Ended(State::Accepted))));
    }

    #[test]
    fn a_sender_is_to_wait_for_the_disk_after_each_mebibyte() {
        const MIB: u64 = 1 << 20;
        let folder = tempfile::tempdir().unwrap();
        let spool = Spool::open(Settings::new(folder.path())).unwrap();
        let Begin::Take(mut intake) = spool.begin(&Offer { total: Some(3 * MIB), ..offer(b"") }).unwrap() else {
            panic!("it is new")
        };
        let bytes = vec![7; MIB as usize];
        for (from, to, behind) in [(0, MIB - 1, None), (MIB - 1, MIB, Some(0)), (MIB, 2 * MIB, Some(MIB))] {
            intake.write_at(from, &bytes[..(to - from) as usize]).unwrap();
            spool.shared.disk.acts();
            let written_out = behind.map(|start| Act::WriteOut(ByteRange::new(start, to)));
            intake.behind().into_iter().for_each(|behind| behind.settle().unwrap());
            assert_eq!(spool.shared.disk.acts(), Vec::from_iter(written_out));
        }
        assert!(intake.behind().is_none());
    }

    #[test]
    fn a_commit_beside_a_write_out_that_fails_records_nothing() {
        const LEN: u64 = 2 << 20;
        let folder = tempfile::tempdir().unwrap();
        let spool = Spool::open(Settings::new(folder.path())).unwrap();
        let Begin::Take(mut intake) = spool.begin(&Offer { total: Some(LEN), ..offer(b"") }).unwrap() else {
            panic!("it is new")
        };
        intake.write_at(0, &vec![7; LEN as usize]).unwrap();
        let (behind, other) = (intake.behind().unwrap(), intake.another());
        let (begun, has_begun) = std::sync::mpsc::channel();
        let (over, is_over) = std::sync::mpsc::channel();
        *spool.shared.disk.failing_write_out.lock() = Some(Box::new(move || {
            begun.send(()).unwrap();
            // Time for the commit to go by, if nothing holds it back.
            let _ = is_over.recv_timeout(Duration::from_millis(300));
        }));
        std::thread::scope(|scope| {
            let settled = scope.spawn(|| behind.settle());
            has_begun.recv().unwrap();
            let committed = other.commit(ByteRange::new(0, LEN), NOW);
            let _ = over.send(());
            assert!(committed.is_err(), "the kernel told its error to the write-out alone: {committed:?}");
            assert!(settled.join().unwrap().is_err());
        });
        drop((intake, other));
        assert!(spool.get(offer(b"").id).unwrap().is_none());
    }

    /// The folder as a process finds it that begins after this one was killed.
    fn after_a_kill(folder: &Path) -> tempfile::TempDir {
        fn copy(from: &Path, to: &Path) {
            for entry in fs::read_dir(from).unwrap().map(Result::unwrap) {
                let to = to.join(entry.file_name());
                if entry.file_type().unwrap().is_dir() {
                    fs::create_dir(&to).unwrap();
                    copy(&entry.path(), &to);
                } else {
                    fs::copy(entry.path(), to).unwrap();
                }
            }
        }
        let again = tempfile::tempdir().unwrap();
        copy(folder, again.path());
        again
    }

    #[test]
    fn what_may_be_recorded_though_that_failed_keeps_its_bytes() {
        for len in [60_000, 3 << 20] {
            let folder = tempfile::tempdir().unwrap();
            let spool = Spool::open(Settings::new(folder.path())).unwrap();
            let offer = Offer { total: Some(len), ..offer(b"") };
            let disk_fails = |fails| {
                let mut index = spool.shared.index();
                index.fail_journal(fails);
                index.refuse_commits(fails);
            };
            let Begin::Take(mut intake) = spool.begin(&offer).unwrap() else { panic!("it is new") };
            intake.write_at(0, &vec![7; len as usize]).unwrap();
            disk_fails(true);
            assert!(intake.commit(ByteRange::new(0, len), NOW).is_err());
            drop(intake);
            assert!(spool.begin(&offer).is_err(), "its bytes are not written over");
            let copy = after_a_kill(folder.path());
            let next = Spool::open(Settings::new(copy.path())).unwrap();
            assert_eq!(next.get(offer.id).unwrap().map(|upload| upload.state), Some(State::Stored), "it was written");
            let mut bytes = vec![0; len as usize];
            next.payload(offer.id).unwrap().read_at(0, &mut bytes).unwrap();
            assert!(bytes.iter().all(|byte| *byte == 7));

            disk_fails(false);
            spool.settle().unwrap();
            let Begin::Take(intake) = spool.begin(&offer).unwrap() else { panic!("it is not recorded here") };
            drop(intake);
            let copy = after_a_kill(folder.path());
            assert_eq!(Spool::open(Settings::new(copy.path())).unwrap().get(offer.id).unwrap(), None);
        }
    }

    /// As btrfs does, or a kernel that needs the page.
    #[test]
    fn what_a_failed_sync_drops_of_other_changes_stays_as_it_was_told() {
        let folder = tempfile::tempdir().unwrap();
        let spool = Spool::open(Settings::new(folder.path())).unwrap();
        let journal = folder.path().join("journal");
        let of = |number| Offer { id: UploadId([number; 16]), ..offer(b"prelude") };
        acts(&spool, &of(1), ByteRange::new(7, 100));
        let synced = fs::read(&journal).unwrap();
        let accepted = Change { state: Some(State::Accepted), ..Change::default() };
        assert_eq!(spool.change_soon(of(1).id, &accepted, NOW).unwrap(), Some(State::Accepted));
        let Begin::Take(mut intake) = spool.begin(&of(2)).unwrap() else { panic!("it is new") };
        intake.write_at(7, &[7; 93]).unwrap();
        let disk_fails = |fails| {
            let mut index = spool.shared.index();
            index.fail_journal(fails);
            index.refuse_commits(fails);
        };
        disk_fails(true);
        fs::write(&journal, synced).unwrap();
        assert!(intake.commit(ByteRange::new(7, 100), NOW).is_err());
        drop(intake);
        assert_eq!(spool.get(of(1).id).unwrap().unwrap().state, State::Accepted);
        disk_fails(false);
        spool.settle().unwrap();
        assert_eq!(spool.get(of(1).id).unwrap().unwrap().state, State::Accepted);
        assert_eq!((spool.kept_bytes(), spool.shared.index().kept().unwrap()), (0, 0));
        assert!(spool.shared.index().wrong_sums().unwrap().is_empty());
    }

    #[test]
    fn a_disk_that_fails_is_asked_once_for_all_who_wait() {
        let folder = tempfile::tempdir().unwrap();
        let spool = Spool::open(Settings::new(folder.path())).unwrap();
        let refused = |index: &Index| index.refused.load(Ordering::Acquire);
        let before = spool.shared.health.failures();
        let mut index = spool.shared.index();
        index.fail_journal(true);
        index.refuse_commits(true);
        let outcomes = record_all(&mut index, &[(1, 100), (2, 100), (3, 100)], true);
        assert!(outcomes.iter().all(Result::is_err), "{outcomes:?}");
        assert_eq!(refused(&index), 1, "not once for each of the group");
        drop(index);
        // Three that asked before the index was free, and one that asked after that.
        assert!([before; 3].iter().all(|before| spool.shared.settle_since(*before).is_err()));
        assert_eq!(refused(&spool.shared.index()), 1);
        assert!(spool.settle().is_err());
        assert_eq!(refused(&spool.shared.index()), 2);
    }

    #[test]
    fn nobody_waits_for_a_part_of_a_segment_alone() {
        let folder = tempfile::tempdir().unwrap();
        let spool = Spool::open(Settings::new(folder.path())).unwrap();
        let longest = Offer { total: Some(SHARED_MAX), ..offer(b"") };
        let Begin::Take(mut intake) = spool.begin(&longest).unwrap() else { panic!("it is new") };
        intake.write_at(0, &[7; SHARED_MAX as usize]).unwrap();
        assert!(intake.behind().is_none(), "an error of the disk would not reach the sync that others wait for");
    }

    #[test]
    fn nobody_else_waits_while_what_was_not_recorded_is_given_back() {
        let folder = tempfile::tempdir().unwrap();
        let spool = Spool::open(Settings::new(folder.path())).unwrap();
        let begin = || {
            let Begin::Take(intake) = spool.begin(&offer(b"prelude")).unwrap() else { panic!("half of it is missing") };
            intake
        };
        let mut intake = begin();
        intake.write_at(7, &[7; 93]).unwrap();
        intake.commit(ByteRange::new(7, 50), NOW).unwrap();
        let (sender, receiver) = std::sync::mpsc::channel();
        let other = spool.clone();
        *spool.shared.disk.before_going.lock() = Some(Box::new(move || {
            let is_free = other.shared.lives.try_lock().is_some();
            let again = std::thread::spawn(move || {
                let Begin::Take(mut intake) = other.begin(&offer(b"prelude")).unwrap() else { panic!("it is missing") };
                intake.write_at(50, &[8; 50]).unwrap();
                intake.commit(ByteRange::new(50, 100), NOW).unwrap()
            });
            sender.send((is_free, again)).unwrap();
        }));
        drop(intake);
        let (is_free, again) = receiver.recv().unwrap();
        assert!(is_free, "others may begin");
        assert_eq!(again.join().unwrap(), State::Stored, "who goes on with it does so once that is done");
        let mut bytes = [0; 50];
        spool.payload(offer(b"").id).unwrap().read_at(50, &mut bytes).unwrap();
        assert_eq!(bytes, [8; 50]);
        let room = spool.shared.room();
        assert_eq!((room.kept, room.written, room.promised), (100, 0, 0));
    }

    /// Runs `going` on an upload, and another sender's beginning at the moment when its file goes. Whether others might begin then, and
    /// what the other one is to send.
    fn beside_going(spool: &Spool, going: impl FnOnce()) -> (bool, RangeSet) {
        let (sender, receiver) = std::sync::mpsc::channel();
        let other = spool.clone();
        *spool.shared.disk.before_going.lock() = Some(Box::new(move || {
            let is_free = other.shared.lives.try_lock().is_some();
            let again = std::thread::spawn(move || {
                let Begin::Take(intake) = other.begin(&offer(b"prelude")).unwrap() else { panic!("it is missing") };
                intake.stored()
            });
            sender.send((is_free, again)).unwrap();
        }));
        going();
        let (is_free, again) = receiver.recv().unwrap();
        (is_free, again.join().unwrap())
    }

    #[test]
    fn nobody_else_waits_while_a_file_goes() {
        let folder = tempfile::tempdir().unwrap();
        let spool = Spool::open(Settings::new(folder.path())).unwrap();
        let gone = (true, RangeSet::new());
        let Begin::Take(intake) = spool.begin(&offer(b"prelude")).unwrap() else { panic!("it is new") };
        assert_eq!(beside_going(&spool, || drop(intake)), gone, "nothing of it was recorded");
        acts(&spool, &offer(b"prelude"), ByteRange::new(7, 50));
        assert_eq!(
            beside_going(&spool, || assert!(spool.abandon(offer(b"").id).unwrap())),
            gone,
            "its sender let go of it"
        );
        acts(&spool, &offer(b""), ByteRange::new(50, 100));
        let reason = Reason::new("upload-expired", "");
        let over = UnixTime(offer(b"").expires.0 + 2 * crate::model::limits::KEEP_SECS);
        let end = || assert_eq!(spool.end(&reason, over, 9).unwrap(), 1);
        assert_eq!(beside_going(&spool, end), gone, "its prelude never came");
        assert!(spool.get(offer(b"").id).unwrap().is_none() && spool.shared.early().is_empty());
        let room = spool.shared.room();
        assert_eq!((room.kept, room.written, room.promised), (0, 0, 0));
    }

    #[test]
    fn uploads_that_end_together_are_recorded_together() {
        const UPLOADS: u8 = 200;
        let folder = tempfile::tempdir().unwrap();
        let spool = Spool::open(Settings::new(folder.path())).unwrap();
        let of = |number| Offer { id: UploadId([number; 16]), ..offer(b"prelude") };
        (0..UPLOADS).for_each(|number| drop(acts(&spool, &of(number), ByteRange::new(7, 100))));
        let Begin::Take(_busy) = spool.begin(&of(UPLOADS)).unwrap() else { panic!("it is new") };
        let reason = Reason::new("upload-expired", "");
        spool.shared.disk.acts();
        for times in [2, 4] {
            let over = UnixTime(NOW.0 + times * crate::model::limits::KEEP_SECS);
            let mut ended = Vec::new();
            while ended.last().is_none_or(|count| *count == 64) {
                ended.push(spool.end(&reason, over, 64).unwrap());
            }
            assert_eq!(ended, [64, 64, 64, 8], "first they expire, and then they are forgotten");
            let acts = spool.shared.disk.acts();
            assert_eq!(acts, vec![Act::Record; 4]);
        }
        assert!(spool.tally().unwrap().is_empty() && spool.kept_bytes() == 0);
        let files =
            (0..=255).map(|shard| fs::read_dir(folder.path().join(format!("uploads/{shard:02x}"))).unwrap().count());
        assert_eq!(files.sum::<usize>(), 0, "all of them are small");
        let segments = fs::read_dir(folder.path().join("uploads/segments")).unwrap().count();
        assert_eq!(segments, 1, "that of what is being received");
    }

    #[test]
    fn a_damaged_row_keeps_no_other_from_its_end() {
        let folder = tempfile::tempdir().unwrap();
        let spool = Spool::open(Settings::new(folder.path())).unwrap();
        let of = |number| Offer { id: UploadId([number; 16]), ..offer(b"prelude") };
        (0..3).for_each(|number| drop(acts(&spool, &of(number), ByteRange::new(7, 100))));
        spool.shared.index().damage(of(0).id);
        let over = UnixTime(NOW.0 + 2 * crate::model::limits::KEEP_SECS);
        let ended = spool.end(&Reason::new("upload-expired", ""), over, 9);
        assert!(matches!(ended, Err(StoreError::Damaged(_))), "{ended:?}");
        for number in [1, 2] {
            assert_eq!(spool.get(of(number).id).unwrap().unwrap().state, State::Expired);
        }
    }

    #[test]
    fn nobody_waits_to_begin_while_a_new_deadline_is_recorded() {
        let folder = tempfile::tempdir().unwrap();
        let spool = Spool::open(Settings::new(folder.path())).unwrap();
        acts(&spool, &offer(b"prelude"), ByteRange::new(7, 100));
        let later = Offer { deadline: Some(UnixTime(NOW.0 + 9)), ..offer(b"prelude") };
        let (looked, other) = (std::sync::Barrier::new(2), std::sync::Barrier::new(2));
        std::thread::scope(|scope| {
            let (own, looked, other, later) = (&spool, &looked, &other, &later);
            let begun = scope.spawn(move || {
                own.begin_if(later, |_, _| {
                    looked.wait();
                    other.wait();
                    Ok::<_, BeginError>(())
                })
            });
            looked.wait();
            // As if another transaction were under way.
            let index = spool.shared.index();
            other.wait();
            let end = std::time::Instant::now() + Duration::from_secs(60);
            while spool.shared.committer.len() < 1 {
                assert!(std::time::Instant::now() < end, "it does not come to be recorded");
                std::thread::yield_now();
            }
            assert!(spool.shared.lives.try_lock().is_some(), "others may begin");
            drop(index);
            let (Begin::Complete(upload), ()) = begun.join().unwrap().unwrap() else { panic!("all of it is here") };
            assert_eq!(upload.deadline, later.deadline);
        });
        assert_eq!(spool.get(later.id).unwrap().unwrap().deadline, later.deadline);
    }

    #[test]
    fn concurrent_senders_are_recorded_together_once_all_bytes_are_synced() {
        const SENDERS: usize = 9;
        let folder = tempfile::tempdir().unwrap();
        let spool = Spool::open(Settings::new(folder.path())).unwrap();
        let begin = |number| {
            let offer = Offer { id: UploadId([number; 16]), ..offer(b"prelude") };
            let Begin::Take(mut intake) = spool.begin(&offer).unwrap() else { panic!("it is new") };
            intake.write_at(7, &[number; 93]).unwrap();
            intake
        };
        let intakes: Vec<Intake> = (0..SENDERS as u8).map(begin).collect();
        spool.shared.disk.acts();
        std::thread::scope(|scope| {
            // As if another transaction were under way.
            let index = spool.shared.index();
            let commits: Vec<_> =
                intakes.iter().map(|intake| scope.spawn(|| intake.commit(ByteRange::new(7, 100), NOW))).collect();
            let end = std::time::Instant::now() + Duration::from_secs(60);
            while spool.shared.committer.len() < SENDERS {
                assert!(std::time::Instant::now() < end, "they do not come to be recorded");
                std::thread::yield_now();
            }
            drop(index);
            commits.into_iter().for_each(|commit| assert_eq!(commit.join().unwrap().unwrap(), State::Stored));
        });
        let acts = spool.shared.disk.acts();
        let count = |act: &Act| acts.iter().filter(|other| *other == act).count();
        assert_eq!((count(&Act::SyncPayload), count(&Act::Record), acts.last()), (1, 1, Some(&Act::Record)));
        for number in 0..SENDERS as u8 {
            assert_eq!(spool.get(UploadId([number; 16])).unwrap().unwrap().state, State::Stored);
        }
    }

    /// The first 50 bytes of an upload.
    fn half(number: u8, total: u64) -> Stored {
        Stored {
            offer: Offer { id: UploadId([number; 16]), ..offer(b"prelude") },
            extent: None,
            total,
            stored: [ByteRange::new(0, 50)].into_iter().collect(),
            added: 50,
            sums: crate::disk::checksums::Checksums::default(),
            now: NOW,
        }
    }

    /// Records halves of uploads of these lengths together; if not `in_journal`, the last is not for the journal.
    fn record_all(index: &mut Index, all: &[(u8, u64)], in_journal: bool) -> Vec<index::Outcome> {
        let job = |(at, (number, total)): (usize, &(u8, u64))| {
            let stored = half(*number, *total);
            let news = (in_journal || at + 1 < all.len()).then(|| operation::encode_record(&stored));
            let terms = Terms { news, segment: None, is_urgent: true };
            Arc::new(Job::new(terms, move |tx: &Connection, rules: &Rules| index::record(tx, rules, &stored)))
        };
        let jobs: Vec<_> = all.iter().enumerate().map(job).collect();
        index.commit_all(&jobs.iter().map(|job| job.clone() as Arc<dyn Step>).collect::<Vec<_>>());
        jobs.iter().map(|job| job.take_outcome().unwrap()).collect()
    }

    #[test]
    fn one_that_cannot_be_recorded_harms_none_that_is_recorded_with_it() {
        let folder = tempfile::tempdir().unwrap();
        let mut index = Index::open(&folder.path().join("index.db"), false, false).ok().unwrap();
        record_all(&mut index, &[(2, 100)], true);
        // A range set that means nothing, as a damaged row has.
        index.damage(UploadId([2; 16]));
        let outcomes = record_all(&mut index, &[(1, 100), (2, 100), (3, 50)], true);
        assert!(matches!(outcomes[0], Ok(Ok(State::Receiving))) && matches!(outcomes[2], Ok(Ok(State::Stored))));
        assert!(matches!(outcomes[1], Err(StoreError::Damaged(_))));
        assert_eq!(index.kept().unwrap(), 150, "and none is recorded twice");
    }

    #[test]
    fn a_commit_that_sqlite_refuses_takes_back_only_what_failed() {
        let folder = tempfile::tempdir().unwrap();
        let open = || Index::open(&folder.path().join("index.db"), true, false).ok().unwrap();
        let found = |index: &mut Index| {
            index.recover();
            (1..=7).filter(|number| index.get(UploadId([*number; 16])).unwrap().is_some()).collect::<Vec<_>>()
        };
        let mut index = open();
        record_all(&mut index, &[(1, 100), (2, 100)], true);
        index.refuse_commits(true);
        for group in [&[(3, 100)][..], &[(3, 100), (4, 100)], &[(3, 100), (4, 100), (5, 100)]] {
            let outcomes = record_all(&mut index, group, false);
            assert!(outcomes.iter().all(Result::is_err), "{outcomes:?}");
            assert_eq!(found(&mut index), [1, 2], "what the journal has is there, and no more");
        }
        let closed = record_all(&mut index, &[(3, 100)], true);
        assert!(closed[0].is_err(), "SQLite may have committed what it refused: the journal takes nothing meanwhile");
        index.refuse_commits(false);
        assert!(record_all(&mut index, &[(6, 100)], true)[0].is_ok());
        assert_eq!((found(&mut index), index.kept().unwrap()), (vec![1, 2, 6], 150));
        drop(index);
        let mut index = open();
        assert_eq!((found(&mut index), index.kept().unwrap()), (vec![1, 2, 6], 150));
        record_all(&mut index, &[(7, 100)], true);
        index.refuse_commits(true);
        assert!(record_all(&mut index, &[(3, 100)], false)[0].is_err());
        drop(index);
        assert_eq!(found(&mut open()), [1, 2, 6, 7], "a crash in between takes nothing back either");
    }

    #[test]
    fn an_upload_that_is_refused_takes_no_place_in_a_segment() {
        let folder = tempfile::tempdir().unwrap();
        let spool = Spool::open(Settings { quota_bytes: Some(99), ..Settings::new(folder.path()) }).unwrap();
        for number in 0..9 {
            let refused = spool.begin(&Offer { id: UploadId([number; 16]), ..offer(b"") });
            assert!(matches!(refused, Err(BeginError::Full { need: 100, .. })), "{refused:?}");
        }
        let Begin::Take(intake) = spool.begin(&Offer { total: Some(99), ..offer(b"") }).unwrap() else {
            panic!("it is new")
        };
        assert_eq!(intake.live.body.extent().unwrap().base, 0);
    }

    #[test]
    fn what_the_journal_cannot_write_sqlite_commits() {
        let folder = tempfile::tempdir().unwrap();
        let open = || Index::open(&folder.path().join("index.db"), true, false).ok().unwrap();
        let has = |index: &mut Index, number| {
            index.recover();
            index.get(UploadId([number; 16])).unwrap().is_some()
        };
        let mut index = open();
        record_all(&mut index, &[(1, 100)], true);
        index.fail_journal(true);
        assert!(record_all(&mut index, &[(2, 100)], true)[0].is_ok());
        index.refuse_commits(true);
        let outcomes = record_all(&mut index, &[(3, 100), (4, 100)], true);
        assert!(outcomes.iter().all(Result::is_err), "nobody has it: {outcomes:?}");
        assert_eq!([1, 2, 3, 4].map(|number| has(&mut index, number)), [true, true, false, false]);
        assert!(index.settle().is_err(), "the next sync tells nothing of what was lost by then");
        // As if the process were killed: nothing is committed on the way out.
        drop(index);
        let mut index = open();
        assert_eq!([1, 2].map(|number| has(&mut index, number)), [true, true]);
    }

    #[test]
    fn a_prelude_that_comes_later_is_synced_before_it_is_recorded() {
        let folder = tempfile::tempdir().unwrap();
        let spool = Spool::open(Settings::new(folder.path())).unwrap();
        acts(&spool, &offer(b""), ByteRange::new(50, 100));
        let last = acts(&spool, &offer(b"prelude"), ByteRange::new(7, 50));
        assert_eq!(last, [Act::Write, Act::Write, Act::SyncPayload, Act::Record]);
    }

    #[test]
    fn a_new_spool_folder_is_synced_into_its_parents_and_an_existing_one_not() {
        let parent = tempfile::tempdir().unwrap();
        let (above, folder) = (parent.path().join("above"), parent.path().join("above/spool"));
        let spool = Spool::open(Settings::new(&folder)).unwrap();
        let synced = [above, parent.path().into(), folder.join("uploads"), folder.clone()];
        assert_eq!(spool.shared.disk.acts(), synced.map(Act::SyncFolder));
        drop(spool);
        assert!(Spool::open(Settings::new(&folder)).unwrap().shared.disk.acts().is_empty());
    }
}
