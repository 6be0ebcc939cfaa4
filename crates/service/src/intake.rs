//! Uploads that are coming in now: [`Live`], shared by all who send octets of one, and the [`Registry`] of them.
//!
//! Promises: a byte is written only after its record has opened; what is written is never overwritten, whoever sends
//! something else for it; what [`Live::flush`] returns is synced. Many senders may work on one upload. Whoever has seen a prelude may say
//! something else of its upload; until a record has opened that keeps nobody out who says otherwise, and then it is settled ([`Claim`]).
//!
//! Bounds: an upload has at most [`SPANS_MAX`] separate spans; the registry holds those uploads that somebody sends, once for each thing that is
//! said of one, and so no more than there are messages.

use crate::admit::{Admission, Policy, inspect};
use crate::core::{Core, store_problem};
use crate::owner::Tag;
use crate::room::{self, Payer, Wants};
use crate::state::{Changed, Facts, LINGER_SECS, Sealed, State, Store, StoreError, Upload, blocking};
use hoop_http::{Code, Problem, Rng};
use hoop_seal::Layout;
use hoop_units::{Backoff, ByteRange, RangeSet, UnixTime, UploadId};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use std::time::Duration;

/// The most spans that an upload may have in mid-way: each is 40 bytes of memory and in the index.
const SPANS_MAX: usize = 4096;

/// Parts of the registry. Whoever lets an upload in may wait for the disk meanwhile, and keeps out only those in the same part.
const PARTS: usize = 32;

/// Beyond so many entries a part of the registry drops those that nobody uses any more.
const SWEEP_AT: usize = 16;

/// When it is worth asking again for an upload that is paused: soon at first, for a pause is often short; then each minute or so, which its
/// owner will not notice, and a thousand of them cost nothing. Where in that time is thrown with dice, so that they do not all come at once.
const PAUSED_WAITS: Backoff = Backoff { base: Duration::from_secs(8), cap: Duration::from_secs(60) };

/// Uploads that somebody sends now.
#[derive(Default)]
pub struct Registry {
    parts: [tokio::sync::Mutex<BTreeMap<UploadId, Vec<Weak<Live>>>>; PARTS],
}

/// What an upload is, prelude and total: as said by whoever's record opened first. All that are [`Live`] under one id share it.
type Claim = Arc<OnceLock<(Vec<u8>, u64)>>;

/// Those of the same id that somebody sends.
fn alive(lives: &[Weak<Live>]) -> impl Iterator<Item = Arc<Live>> + '_ {
    lives.iter().filter_map(Weak::upgrade)
}

/// What there is to do with a message.
pub enum Entered {
    /// Take its octets.
    Live(Arc<Live>),
    /// Nothing more is needed; this is how it stands.
    Known(Box<Upload>),
}

impl Registry {
    /// The part in which an upload is. Ids are hashes.
    pub(crate) fn part(&self, id: UploadId) -> &tokio::sync::Mutex<BTreeMap<UploadId, Vec<Weak<Live>>>> {
        &self.parts[usize::from(id.0[0]) % PARTS]
    }

    /// Lets a message in, if its upload is new, in time and cannot have been forgotten, or known and the same, and there is room. Until it is
    /// known whose the upload is, `sender` pays.
    ///
    /// # Errors
    /// `ticket-early`, `ticket-expired`, `upload-conflict`, `spool-full`, or the store's.
    pub async fn enter(&self, core: &Core, admission: Admission, sender: Payer) -> Result<Entered, Problem> {
        let id = admission.id();
        let mut live = self.part(id).lock().await;
        let others: Vec<_> = live.get(&id).map(|lives| alive(lives).collect()).unwrap_or_default();
        // One whose record has opened is what the upload is; of the others each may yet be.
        let settled = others.iter().find(|other| other.is_settled());
        if let Some(other) = settled {
            if other.admission.layout.total() != admission.layout.total() && !other.is_proven() {
                let detail = "another total is being sent for this upload now";
                return Err(Problem::new(Code::RangeInvalid, detail).field("Content-Range"));
            }
            same(&admission, &other.admission.prelude.encode(), other.admission.layout.total())?;
        }
        let one = settled.or_else(|| others.iter().find(|other| other.says(&admission))).cloned();
        if let Some(one) = one {
            if let Some(code) = one.halted() {
                let known = core.store.load(id).await.map_err(store_problem)?;
                let upload = known.unwrap_or_else(|| unbegun(&admission, core.clock.unix(), code));
                return Ok(Entered::Known(Box::new(upload)));
            }
            one.begin_in_room(core).await?;
            return Ok(Entered::Live(one));
        }
        // What is settled and of which nobody sends any more is for the index to know.
        let open = others.iter().find(|other| other.claim.get().is_none());
        let claim = open.map(|other| other.claim.clone()).unwrap_or_default();
        let now = core.clock.unix();
        let known = core.store.load(id).await.map_err(store_problem)?;
        let entered = match known {
            None => {
                let over = core.ended().await.map_err(store_problem)?;
                admission.check_time(over, core.clock.peak())?;
                check_open(core, &admission).await?;
                let marked = core.store.with(move |index| index.marked(id)).await.map_err(store_problem)?;
                if let Some((code, marked)) = marked.and_then(|marked| Some((marked.refusal()?, marked))) {
                    return Ok(Entered::Known(Box::new(unbegun(&admission, marked.created, code))));
                }
                Live::new(admission, now, Progress::paid_by(sender), None, claim)
            }
            Some(upload) if upload.paused => {
                same(&admission, &upload.prelude, upload.total)?;
                return Ok(Entered::Known(Box::new(upload)));
            }
            Some(upload) if is_doubtful(&admission, &upload) => {
                core.store.with(move |index| index.discard(id)).await.map_err(store_problem)?;
                Live::new(admission, upload.created, Progress::paid_by(sender), None, claim)
            }
            Some(upload) => {
                same(&admission, &upload.prelude, upload.total)?;
                if upload.state != State::Receiving {
                    return Ok(Entered::Known(Box::new(upload)));
                }
                if core.past(LINGER_SECS) > upload.ends() {
                    return Err(Problem::new(Code::UploadExpired, "it was not complete in time"));
                }
                let bodies = core.store.bodies().clone();
                let body = blocking(move || bodies.open(id)).await.flatten();
                let body = body.map_err(|error| store_problem(error.into()))?;
                let noted = Some((upload.received.len(), upload.payer));
                let progress = Progress {
                    received: upload.received,
                    facts: upload.facts,
                    body: Some(body),
                    noted,
                    ..Progress::paid_by(upload.payer.unwrap_or(sender))
                };
                let flushed = progress.received.clone();
                Live::new(admission, upload.created, progress, Some(flushed), claim)
            }
        };
        entered.begin_in_room(core).await?;
        let entered = Arc::new(entered);
        if live.len() > SWEEP_AT {
            live.retain(|_, lives| alive(lives).next().is_some());
        }
        let lives = live.entry(id).or_default();
        lives.retain(|other| other.strong_count() > 0);
        lives.push(Arc::downgrade(&entered));
        Ok(Entered::Live(entered))
    }

    /// What somebody sends under this id: one, unless others say something else of it and no record has opened.
    async fn all_of(&self, id: UploadId) -> Vec<Arc<Live>> {
        self.part(id).lock().await.get(&id).map(|lives| alive(lives).collect()).unwrap_or_default()
    }

    /// What somebody sends of this upload, of which a record has opened.
    pub async fn of(&self, id: UploadId) -> Option<Arc<Live>> {
        self.all_of(id).await.into_iter().find(|live| live.is_settled())
    }

    /// Ends the messages of an upload that are under way, with this code, and refuses others; none: no longer. To be called
    /// once the index says so: whoever is let in after that asks the index.
    pub async fn halt(&self, id: UploadId, code: Option<Code>) {
        for live in self.all_of(id).await {
            live.progress().halted = code;
        }
    }

    /// Those of the uploads that are coming in that are wanted, by name and by whose they are if that is known, with what has come of each, on disk or not. Others are
    /// not looked into: all readers of events ask each second.
    pub async fn coming(&self, now: UnixTime, is_wanted: impl Fn(UploadId, Option<Tag>) -> bool) -> Vec<Upload> {
        let mut coming = Vec::new();
        for part in &self.parts {
            let lives: Vec<_> = part.lock().await.values().flat_map(|lives| alive(lives)).collect();
            let wanted = lives.into_iter().filter(|live| is_wanted(live.admission.id(), live.owner()));
            coming.extend(wanted.filter_map(|live| live.coming(now)));
        }
        coming
    }

    /// One of those.
    pub async fn coming_of(&self, id: UploadId, now: UnixTime) -> Option<Upload> {
        self.of(id).await?.coming(now)
    }

    /// Forgets an upload whose record 0 has not come, unless somebody sends it now. Whoever goes on begins anew.
    ///
    /// # Errors
    /// The store's.
    pub async fn discard(&self, core: &Core, id: UploadId) -> Result<(), StoreError> {
        {
            let live = self.part(id).lock().await;
            if is_alive(&live, id) {
                return Ok(());
            }
            core.store.with(move |index| index.discard(id)).await?;
            core.room.give_back(id);
        }
        self.remove_orphan(core, id).await
    }

    /// Deletes a body unless an upload has it, now that nobody can begin one under that id.
    ///
    /// # Errors
    /// The store's.
    pub async fn remove_orphan(&self, core: &Core, id: UploadId) -> Result<(), StoreError> {
        let live = self.part(id).lock().await;
        if !is_alive(&live, id) && core.store.load(id).await?.is_none() {
            let bodies = core.store.bodies().clone();
            blocking(move || bodies.remove(id)).await??;
        }
        Ok(())
    }
}

fn is_alive(live: &BTreeMap<UploadId, Vec<Weak<Live>>>, id: UploadId) -> bool {
    live.get(&id).is_some_and(|lives| alive(lives).next().is_some())
}

/// Whether ids of tickets that end on the same day have not been forgotten yet: this one could be among them.
async fn check_open(core: &Core, admission: &Admission) -> Result<(), Problem> {
    let expires = admission.ticket.label.expires;
    match core.store.with(move |index| index.is_closed(expires)).await.map_err(store_problem)? {
        true => Err(Problem::new(Code::TicketExpired, "what ended on that day has been forgotten")),
        false => Ok(()),
    }
}

/// Whether what is known of an upload was begun with another total that nothing has proven: whoever has any one of its
/// records can send that with a wrong total. Such a lie costs what has come so far, and not the upload.
fn is_doubtful(admission: &Admission, known: &Upload) -> bool {
    let layout = Layout::for_total(admission.prelude.len(), admission.prelude.record_size(), known.total);
    known.state == State::Receiving
        && known.total != admission.layout.total()
        && known.prelude == admission.prelude.encode()
        && !layout.is_ok_and(|layout| proves_total(&layout, &known.received, known.facts.as_ref()))
}

/// Record 0 names the length of the request, and the last record opens as the last.
fn proves_total(layout: &Layout, received: &RangeSet, facts: Option<&Facts>) -> bool {
    facts.is_some() || received.contains(layout.record(layout.records() - 1))
}

/// An upload of which nothing has come, and nothing may.
fn unbegun(admission: &Admission, now: UnixTime, code: Code) -> Upload {
    let mut upload = upload(admission, Progress::default(), now, now);
    match code {
        Code::UploadStopped => upload.state = State::Stopped,
        _ => upload.paused = true,
    }
    upload
}

/// The refusal of what its owner has paused, so many seconds ago, or stopped, or what is over.
pub fn refused(code: Code, paused_secs: u32) -> Problem {
    let problem = Problem::new(code, "");
    match code {
        Code::UploadPaused => problem.retry_after(paused_wait(paused_secs, Rng.roll())),
        _ => problem,
    }
}

/// How long to wait for an upload that has been paused for so long: about half of that, within bounds.
fn paused_wait(paused_secs: u32, roll: u32) -> Duration {
    let doubled = (u64::from(paused_secs) / PAUSED_WAITS.base.as_secs()).max(1).ilog2();
    PAUSED_WAITS.delay(doubled, roll)
}

fn same(admission: &Admission, prelude: &[u8], total: u64) -> Result<(), Problem> {
    // Of what has ended long ago, its beginning alone may be kept (`state::ended`).
    if !admission.prelude.encode().starts_with(prelude) {
        let detail = "another prelude is known for this upload: was its ticket used for two?";
        return Err(Problem::new(Code::UploadConflict, detail).field("Hoop-Prelude"));
    }
    match admission.layout.total() == total {
        true => Ok(()),
        false => {
            let detail = format!("the upload is known to have {total} bytes, not {}", admission.layout.total());
            Err(Problem::new(Code::UploadConflict, detail).field("Content-Range"))
        }
    }
}

/// One upload that is coming in.
pub struct Live {
    /// Its ticket, layout and keys.
    pub admission: Admission,
    created: UnixTime,
    /// Held for a moment: the runtime's own threads look at it.
    progress: Mutex<Progress>,
    /// Held while records are written, by blocking threads alone.
    writing: Mutex<()>,
    /// What the index knows; none: nothing yet. Held while flushing, so that flushes come one after the other.
    flushed: tokio::sync::Mutex<Option<RangeSet>>,
    claim: Claim,
}

#[derive(Default)]
struct Progress {
    /// What is written.
    received: RangeSet,
    facts: Option<Facts>,
    /// Made at the first record that opens, so that nobody without a key fills the folder.
    body: Option<Arc<dyn Sealed>>,
    /// Why nothing more is taken, if its owner says so.
    halted: Option<Code>,
    /// Who pays for it.
    payer: Option<Payer>,
    /// Up to where it has room, in bytes of what has come.
    reach: u64,
    /// How many bytes of it the index counts, and as whose.
    noted: Option<(u64, Option<Payer>)>,
}

impl Progress {
    /// Nothing has come.
    fn paid_by(payer: Payer) -> Self {
        Self { payer: Some(payer), ..Self::default() }
    }

    /// What is to be told of it.
    fn told(&self) -> Self {
        Self { received: self.received.clone(), facts: self.facts.clone(), payer: self.payer, ..Self::default() }
    }
}

impl Live {
    fn new(
        admission: Admission,
        created: UnixTime,
        progress: Progress,
        flushed: Option<RangeSet>,
        claim: Claim,
    ) -> Self {
        let is_known = progress.body.is_some();
        let live = Self {
            admission,
            created,
            progress: Mutex::new(progress),
            writing: Mutex::default(),
            flushed: tokio::sync::Mutex::new(flushed),
            claim,
        };
        if is_known {
            live.claims();
        }
        live
    }

    /// Says what the upload is, unless another was first; whether that is the same.
    fn claims(&self) -> bool {
        let (prelude, total) =
            self.claim.get_or_init(|| (self.admission.prelude.encode(), self.admission.layout.total()));
        *total == self.admission.layout.total() && *prelude == self.admission.prelude.encode()
    }

    /// Whether a record of it has opened, so that it is what its upload is.
    fn is_settled(&self) -> bool {
        self.claim.get().is_some() && self.claims()
    }

    /// A record of what another says of this upload has opened.
    fn check_claim(&self) -> Result<(), Problem> {
        if self.claim.get().is_none() || self.claims() {
            return Ok(());
        }
        let detail = "something else is being sent for this upload, and came first";
        Err(Problem::new(Code::RangeInvalid, detail).field("Hoop-Prelude"))
    }

    /// Whether that says the same of its upload.
    fn says(&self, admission: &Admission) -> bool {
        self.admission.layout.total() == admission.layout.total()
            && self.admission.prelude.encode() == admission.prelude.encode()
    }

    /// Nothing in here panics between two changes that belong together.
    fn progress(&self) -> MutexGuard<'_, Progress> {
        self.progress.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Why nothing more is taken: `upload-paused` or `upload-stopped`.
    pub fn halted(&self) -> Option<Code> {
        self.progress().halted
    }

    /// Whose it is, if record 0 is here.
    fn owner(&self) -> Option<Tag> {
        self.progress().facts.as_ref().map(|facts| facts.owner)
    }

    /// The upload as it comes in; none if nothing of it has come.
    fn coming(&self, now: UnixTime) -> Option<Upload> {
        let progress = self.progress();
        progress.body.as_ref()?;
        Some(upload(&self.admission, progress.told(), self.created, now))
    }

    /// Whether its total is beyond doubt.
    fn is_proven(&self) -> bool {
        let progress = self.progress();
        proves_total(&self.admission.layout, &progress.received, progress.facts.as_ref())
    }

    /// Takes whole records, from record `first` on: opens each, then writes it. What comes before a bad one is kept. Returns how many bytes are new.
    /// Blocking.
    ///
    /// # Errors
    /// `record-corrupt`, what [`inspect`] finds in record 0, `range-too-many`, or the store's.
    pub fn take(&self, policy: &Policy, store: &Store, first: u64, octets: &[u8]) -> Result<u64, Problem> {
        let mut scratch = Vec::with_capacity(octets.len().min(hoop_seal::RECORD_SIZE as usize));
        let mut opened = Vec::new();
        let (mut index, mut at, mut facts) = (first, 0, None);
        let mut result = Ok(());
        while at < octets.len() {
            let range = self.admission.layout.record(index);
            let record = &octets[at..at + range.len() as usize];
            if !self.progress().received.contains(range) {
                scratch.clear();
                scratch.extend_from_slice(record);
                match self.open(policy, index, &mut scratch) {
                    Ok(found) => facts = facts.or(found),
                    Err(problem) => {
                        result = Err(problem);
                        break;
                    }
                }
                opened.push((range, record));
            }
            at += record.len();
            index += 1;
        }
        self.write(store, &opened, facts)?;
        result.map(|()| opened.iter().map(|(range, _)| range.len()).sum())
    }

    /// Opens one record, and looks into it if it is the first.
    fn open(&self, policy: &Policy, index: u64, record: &mut [u8]) -> Result<Option<Facts>, Problem> {
        let plaintext = self.admission.open(index, record)?;
        if index > 0 {
            return Ok(None);
        }
        let (_, _, facts) = inspect(policy, &self.admission, plaintext, self.begun())?;
        Ok(Some(facts))
    }

    /// It was let in in time, whatever a clock says that was set ahead since its ticket was issued.
    fn begun(&self) -> UnixTime {
        self.created.min(self.admission.ticket.label.expires)
    }

    /// Writes records that opened, unless another sender was faster. Blocking; whoever looks at what has come does not wait for it.
    fn write(&self, store: &Store, opened: &[(ByteRange, &[u8])], mut facts: Option<Facts>) -> Result<(), Problem> {
        if opened.is_empty() {
            return Ok(());
        }
        let failed = |error: std::io::Error| store_problem(error.into());
        let _turn = self.writing.lock().unwrap_or_else(PoisonError::into_inner);
        let body = self.begun_body(store)?;
        for (range, record) in opened {
            {
                let progress = self.progress();
                if progress.received.contains(*range) {
                    continue;
                }
                if progress.received.spans() >= SPANS_MAX
                    && !progress.received.contains(ByteRange::new(range.start - 1, range.start))
                {
                    return Err(Problem::new(
                        Code::RangeTooMany,
                        format!("it has {SPANS_MAX} spans with gaps between"),
                    ));
                }
            }
            body.write_at(record, range.start).map_err(failed)?;
            let mut progress = self.progress();
            progress.received.insert(*range);
            // Record 0, if it is among them, is the first.
            progress.facts = progress.facts.take().or_else(|| facts.take());
        }
        Ok(())
    }

    /// The body; made, with the prelude in it, if nothing of it has come before. Called with the turn to write.
    fn begun_body(&self, store: &Store) -> Result<Arc<dyn Sealed>, Problem> {
        if let Some(body) = &self.progress().body {
            return Ok(body.clone());
        }
        let failed = |error: std::io::Error| store_problem(error.into());
        self.claims();
        self.check_claim()?;
        let body = store.bodies().create(self.admission.id()).map_err(failed)?;
        let prelude = self.admission.prelude.encode();
        body.write_at(&prelude, 0).map_err(failed)?;
        let mut progress = self.progress();
        progress.received.insert(ByteRange::new(0, prelude.len() as u64));
        Ok(progress.body.insert(body).clone())
    }

    /// Who pays for it, by the records at its beginning; none: they do not say, or it is known already.
    pub fn payer_in(&self, policy: &Policy, records: &[u8]) -> Option<Payer> {
        let len = usize::try_from(self.admission.layout.record(0).len()).ok()?;
        let mut record = records.get(..len).filter(|_| self.progress().facts.is_none())?.to_vec();
        let plaintext = self.admission.open(0, &mut record).ok()?;
        let (_, credentials, _) = inspect(policy, &self.admission, plaintext, self.begun()).ok()?;
        Some(Payer::of(policy, &credentials))
    }

    /// Has room for so many more bytes, which `payer` pays for from now on, if it is another than before.
    ///
    /// # Errors
    /// `range-invalid` if the upload is settled to be another, `spool-full`, or the store's.
    pub async fn need_room(&self, core: &Core, more: u64, payer: Option<Payer>) -> Result<(), Problem> {
        self.check_claim()?;
        let has_room = {
            let progress = self.progress();
            self.reach_with(&progress, more) <= progress.reach && (payer.is_none() || payer == progress.payer)
        };
        match has_room && core.room.is_promised(self.admission.id()) {
            true => Ok(()),
            false => self.ask_room(core, more, payer).await,
        }
    }

    /// Up to where it is here once so many more bytes are.
    fn reach_with(&self, progress: &Progress, more: u64) -> u64 {
        progress.received.len().saturating_add(more).min(self.admission.layout.total())
    }

    /// A message begins: asks for room for what it brings, unless there is some for a record of it.
    async fn begin_in_room(&self, core: &Core) -> Result<(), Problem> {
        match self.has_room(core) {
            true => Ok(()),
            false => self.ask_room(core, 0, None).await,
        }
    }

    /// Whether what an earlier message was promised and has not used is room for one record more. To ask for more takes a turn, and a look at the index and the disk.
    fn has_room(&self, core: &Core) -> bool {
        let mut progress = self.progress();
        let come = progress.received.len();
        let Some(payer) = progress.payer.filter(|payer| progress.noted == Some((come, Some(*payer)))) else {
            return false;
        };
        let reach = come.saturating_add(core.room.promised_to(self.admission.id(), payer).unwrap_or_default());
        let next = come.saturating_add(hoop_seal::RECORD_SIZE.into()).min(self.admission.layout.total());
        progress.reach = progress.reach.max(reach);
        reach >= next && reach > come
    }

    /// Asks for room for so many bytes that have come, and for what comes next.
    async fn ask_room(&self, core: &Core, more: u64, payer: Option<Payer>) -> Result<(), Problem> {
        let wants = {
            let progress = self.progress();
            let Some(payer) = payer.or(progress.payer) else { return Ok(()) };
            let (noted, paid_by) = progress.noted.unwrap_or_default();
            let paid = if paid_by == Some(payer) { noted } else { 0 };
            let (come, total) = (progress.received.len(), self.admission.layout.total());
            let (reach, least) = (room::reach(come, total), room::least(come, total));
            let here = self.reach_with(&progress, more);
            Wants { id: self.admission.id(), payer, noted, paid, reach, least, here }
        };
        let reach = room::promise(core, wants).await?;
        let mut progress = self.progress();
        (progress.payer, progress.reach) = (Some(wants.payer), reach);
        Ok(())
    }

    /// How much of it is here, in bytes.
    pub fn come(&self) -> u64 {
        self.progress().received.len()
    }

    /// A message has ended that found `before` bytes here, and all that it brought is noted. What is promised beyond that stays promised for a while if it
    /// brought any, and is no more than there is: the next message finds room, and nobody holds room by asking for it.
    pub fn rest(&self, core: &Core, before: u64) {
        let left = {
            let mut progress = self.progress();
            let come = progress.received.len();
            let left = if come > before { progress.reach.saturating_sub(come).min(come) } else { 0 };
            progress.reach = come.saturating_add(left);
            left
        };
        core.room.keep(self.admission.id(), left);
    }

    /// Whether the index knows of it.
    pub fn is_noted(&self) -> bool {
        self.progress().noted.is_some()
    }

    /// Tells what the index knows now, and that room for it is promised no longer.
    fn set_noted(&self, core: &Core, upload: &Upload) {
        let len = upload.received.len();
        let left = {
            let mut progress = self.progress();
            progress.noted = Some((len, upload.payer));
            progress.reach.saturating_sub(len)
        };
        match upload.state {
            State::Receiving => core.room.keep(upload.id, left),
            _ => core.room.give_back(upload.id),
        }
    }

    /// Syncs what was written and notes it in the index. Returns the upload as it then stands; none if nothing of it
    /// has come.
    ///
    /// # Errors
    /// `upload-stopped`, `upload-expired`, or the store's.
    pub async fn flush(&self, core: &Core) -> Result<Option<Upload>, Problem> {
        let mut flushed = self.flushed.lock().await;
        let (told, body) = {
            let progress = self.progress();
            (progress.told(), progress.body.clone())
        };
        let (id, received) = (self.admission.id(), told.received.clone());
        let Some(body) = body else {
            // What is promised may be another's that says something else of the upload, and whose record has opened.
            if self.claim.get().is_none() {
                core.room.give_back(id);
            }
            return Ok(None);
        };
        if flushed.as_ref() == Some(&received) {
            return core.store.load(id).await.map_err(store_problem);
        }
        let told = upload(&self.admission, told, self.created, core.clock.unix());
        let changed = core.store.receive(body, told, flushed.is_none()).await.map_err(store_problem)?;
        match changed {
            Changed::Done(upload) => {
                *flushed = Some(received);
                self.set_noted(core, &upload);
                if upload.state == State::Received {
                    core.work.notify_one();
                }
                Ok(Some(upload))
            }
            Changed::Refused(upload) => {
                core.room.give_back(id);
                if flushed.is_none() && upload.state == State::Stopped {
                    // It was stopped before the index knew of it, so nobody else will clear it away.
                    let (bodies, removing) = (core.store.bodies().clone(), id);
                    let removed = blocking(move || bodies.remove(removing)).await;
                    removed.and_then(|removed| removed).map_err(|error| store_problem(error.into()))?;
                }
                Ok(Some(upload))
            }
            Changed::Unknown => Err(Problem::new(Code::UploadExpired, "it was forgotten while it came in")),
        }
    }
}

/// An upload of which so much has come.
fn upload(admission: &Admission, progress: Progress, created: UnixTime, now: UnixTime) -> Upload {
    let (prelude, total) = (admission.prelude.encode(), admission.layout.total());
    let begun = Upload::begun(admission.id(), prelude, total, admission.ticket.label.expires, created);
    Upload { received: progress.received, facts: progress.facts, payer: progress.payer, updated: now, ..begun }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::routes::Routes;
    use crate::state::Bodies;
    use crate::state::folder::Folder;
    use hoop_seal::{Grant, Keyring, KwsId, Prelude, RECORD_SIZE, Route, ServiceKey, Suite, UploadKey};
    use std::sync::mpsc;

    /// An upload that comes in, of that owner, by its records.
    fn coming_in(bodies: &dyn Bodies, n: u8) -> Arc<Live> {
        let keys = Keyring::new(ServiceKey::new(KwsId([1; 4]), [2; 32]));
        let origin = "https://photos.example".to_owned();
        let key = UploadKey([n; 32]);
        let (id, suite) = (key.upload_id(), Suite::default());
        let grant = Grant { key, not_before: UnixTime(1), max_bytes: 1 << 20, route: Route::ANY, suite };
        let ticket = keys.seal_ticket(&origin, id, UnixTime(9), &grant, [n; 12]);
        let prelude = Prelude::new([3; 16], RECORD_SIZE, &ticket).unwrap();
        let total = prelude.len() as u64 + 40;
        let policy = Policy { keys, origin, max_bytes: 1 << 20, routes: Routes::default() };
        let admission = Admission::new(&policy, prelude, total).unwrap();
        let facts = Facts { method: "POST".to_owned(), path: "/".to_owned(), owner: [n; 16] };
        let progress = Progress { body: Some(bodies.create(id).unwrap()), facts: Some(facts), ..Progress::default() };
        Arc::new(Live::new(admission, UnixTime(1), progress, None, Claim::default()))
    }

    /// All readers of events ask each second, and an upload may have thousands of spans.
    #[tokio::test]
    async fn of_what_comes_in_others_uploads_are_not_looked_into() {
        let dir = tempfile::tempdir().unwrap();
        let bodies = Folder::open(&dir.path().join("bodies")).unwrap();
        let registry = Registry::default();
        let lives = [1, 2, 3].map(|n| coming_in(&bodies, n));
        for live in &lives {
            let id = live.admission.id();
            registry.part(id).lock().await.insert(id, vec![Arc::downgrade(live)]);
        }
        let coming = registry.coming(UnixTime(2), |_, owner| owner == Some([2; 16])).await;
        assert_eq!(coming.iter().map(|upload| upload.id).collect::<Vec<_>>(), [lives[1].admission.id()]);
        let third = lives[2].admission.id();
        assert_eq!(registry.coming(UnixTime(2), |id, _| id == third).await.len(), 1, "one that was shown before");
    }

    /// A body on a disk that takes its time.
    struct Slow {
        begun: mpsc::Sender<()>,
        done: Mutex<mpsc::Receiver<()>>,
    }

    impl Sealed for Slow {
        fn write_at(&self, _: &[u8], _: u64) -> std::io::Result<()> {
            self.begun.send(()).unwrap();
            let _ = self.done.lock().unwrap().recv();
            Ok(())
        }

        fn read_at(&self, _: &mut [u8], _: u64) -> std::io::Result<()> {
            Ok(())
        }

        fn sync(&self) -> std::io::Result<()> {
            Ok(())
        }
    }

    /// The runtime's own threads look at an upload, and whoever else they serve would wait with them.
    #[test]
    fn nobody_who_looks_at_an_upload_waits_for_what_is_written_of_it() {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::open(dir.path(), 1 << 20).unwrap();
        let live = coming_in(&**store.bodies(), 1);
        let ((begun, begins), (go_on, done)) = (mpsc::channel(), mpsc::channel());
        live.progress().body = Some(Arc::new(Slow { begun, done: Mutex::new(done) }));
        let record = live.admission.layout.record(0);
        std::thread::scope(|scope| {
            let write = || live.write(&store, &[(record, b"octets")], None);
            let writers = [scope.spawn(write), scope.spawn(write)];
            begins.recv().unwrap();
            let looked = live.progress.try_lock().map(|progress| progress.received.contains(record));
            // Before anything is asserted, so that no writer is left.
            drop(go_on);
            writers.into_iter().for_each(|writer| writer.join().unwrap().unwrap());
            assert!(matches!(looked, Ok(false)), "it counts once it is written");
        });
        assert!(live.progress().received.contains(record));
        assert_eq!(begins.try_iter().count(), 0, "the other found it there");
    }

    #[tokio::test]
    async fn who_waits_for_the_disk_keeps_out_no_upload_of_another_part() {
        let registry = Registry::default();
        let _waits = registry.part(UploadId([0; 16])).lock().await;
        for part in 1..PARTS {
            assert!(registry.of(UploadId([u8::try_from(part).unwrap(); 16])).await.is_none());
        }
        assert!(registry.part(UploadId([0; 16])).try_lock().is_err(), "who is in the same part waits");
    }

    #[test]
    fn whoever_is_paused_is_asked_for_less_and_less_often_and_never_less_than_each_minute() {
        let secs = |paused, roll| paused_wait(paused, roll).as_secs();
        for (paused, least, most) in
            [(0, 4, 8), (8, 4, 8), (16, 8, 16), (60, 16, 32), (600, 30, 60), (u32::MAX, 30, 60)]
        {
            assert_eq!((secs(paused, 0), secs(paused, u32::MAX)), (least, most), "after {paused} s");
        }
    }
}
