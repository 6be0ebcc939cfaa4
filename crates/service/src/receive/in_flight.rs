//! Uploads that are coming in now: the registry [`InFlight`], and one [`Arrival`] for each, which all its senders
//! share.
//!
//! Promises: a byte is written only after its record has opened. A written byte is never overwritten, whatever another
//! sender says. What [`Arrival::flush`] returns is synced.
//!
//! Many senders may work on one upload. Anybody who has seen its prelude may claim another prelude or total for it.
//! Until a record opens, such a claim keeps nobody out; the first record that opens settles it ([`Claim`]).
//!
//! Bounds: an upload has at most [`SPANS_MAX`] separate spans. The registry holds one entry for each upload and claim
//! that somebody sends, and so no more than there are messages.

use crate::context::Context;
use crate::model::{Facts, LINGER_SECS, Payer, State, Tag, Upload};
use crate::policy::Policy;
use crate::policy::admit::{Admission, inspect};
use crate::receive::room::{Room, Wants, least, reach};
use crate::store::{Changed, Sealed, Store, StoreError, blocking, store_problem};
use hoop_http::{Code, Problem, Rng};
use hoop_seal::Layout;
use hoop_units::{Backoff, ByteRange, RangeSet, UnixTime, UploadId};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use std::time::Duration;

/// The most spans that an upload may have in mid-way: each is 40 bytes of memory and in the index.
const SPANS_MAX: usize = 4096;

/// Parts of the registry. A message that enters may wait for the disk; it keeps out only those of the same part.
const PARTS: usize = 32;

/// Beyond so many entries a part of the registry drops those that nobody uses.
const SWEEP_AT: usize = 16;

/// When a gateway may ask again for a paused upload: soon at first, since a pause is often short, and then about each
/// minute. Rng choose the moment, so that not all ask at once.
const PAUSED_WAITS: Backoff = Backoff { base: Duration::from_secs(8), cap: Duration::from_secs(60) };

/// Uploads that somebody sends now.
#[derive(Default)]
pub struct InFlight {
    parts: [tokio::sync::Mutex<BTreeMap<UploadId, Vec<Weak<Arrival>>>>; PARTS],
}

/// The prelude and total of an upload, as the first sender whose record opened has said them. Every [`Arrival`] of one
/// id shares it.
type Claim = Arc<OnceLock<(Vec<u8>, u64)>>;

/// Those that somebody still sends.
fn alive(arrivals: &[Weak<Arrival>]) -> impl Iterator<Item = Arc<Arrival>> + '_ {
    arrivals.iter().filter_map(Weak::upgrade)
}

/// What a message has to do once it was let in.
pub enum Entered {
    /// Bring its bytes here.
    Open(Arc<Arrival>),
    /// Nothing more: the upload is known, and takes no bytes.
    Known(Box<Upload>),
}

impl InFlight {
    /// The part that has an upload. Ids are hashes, so the parts fill evenly.
    pub(crate) fn part(&self, id: UploadId) -> &tokio::sync::Mutex<BTreeMap<UploadId, Vec<Weak<Arrival>>>> {
        &self.parts[usize::from(id.0[0]) % PARTS]
    }

    /// Lets a message in if there is room, and its upload is known and the same, or new, on time and not forgotten.
    /// `sender` pays until it is known whose the upload is.
    ///
    /// # Errors
    /// `ticket-early`, `ticket-expired`, `upload-conflict`, `spool-full`, or the store's.
    pub async fn enter(
        &self,
        context: &Context,
        room: &Room,
        admission: Admission,
        sender: Payer,
    ) -> Result<Entered, Problem> {
        let id = admission.id();
        let mut part = self.part(id).lock().await;
        let others: Vec<_> = part.get(&id).map(|arrivals| alive(arrivals).collect()).unwrap_or_default();
        // The one whose record has opened is the upload. Before that, each may turn out to be.
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
                let known = context.store.load(id).await.map_err(store_problem)?;
                let upload = known.unwrap_or_else(|| unbegun(&admission, context.clock.unix(), code));
                return Ok(Entered::Known(Box::new(upload)));
            }
            one.begin_in_room(room).await?;
            return Ok(Entered::Open(one));
        }
        // The index knows what is settled and nobody sends any more.
        let open = others.iter().find(|other| other.claim.get().is_none());
        let claim = open.map(|other| other.claim.clone()).unwrap_or_default();
        let now = context.clock.unix();
        let known = context.store.load(id).await.map_err(store_problem)?;
        let entered = match known {
            None => {
                let over = context.ended().await.map_err(store_problem)?;
                admission.check_time(over, context.clock.peak())?;
                check_open(&context.store, &admission).await?;
                let marked = context.store.with(move |index| index.marked(id)).await.map_err(store_problem)?;
                if let Some((code, marked)) = marked.and_then(|marked| Some((marked.refusal()?, marked))) {
                    return Ok(Entered::Known(Box::new(unbegun(&admission, marked.created, code))));
                }
                Arrival::new(admission, now, Progress::paid_by(sender), None, claim)
            }
            Some(upload) if upload.paused => {
                same(&admission, &upload.prelude, upload.total)?;
                return Ok(Entered::Known(Box::new(upload)));
            }
            Some(upload) if is_doubtful(&admission, &upload) => {
                context.store.with(move |index| index.discard(id)).await.map_err(store_problem)?;
                Arrival::new(admission, upload.created, Progress::paid_by(sender), None, claim)
            }
            Some(upload) => {
                same(&admission, &upload.prelude, upload.total)?;
                if upload.state != State::Receiving {
                    return Ok(Entered::Known(Box::new(upload)));
                }
                if context.past(LINGER_SECS) > upload.ends() {
                    return Err(Problem::new(Code::UploadExpired, "it was not complete in time"));
                }
                let bodies = context.store.bodies().clone();
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
                Arrival::new(admission, upload.created, progress, Some(flushed), claim)
            }
        };
        entered.begin_in_room(room).await?;
        let entered = Arc::new(entered);
        if part.len() > SWEEP_AT {
            part.retain(|_, arrivals| alive(arrivals).next().is_some());
        }
        let arrivals = part.entry(id).or_default();
        arrivals.retain(|other| other.strong_count() > 0);
        arrivals.push(Arc::downgrade(&entered));
        Ok(Entered::Open(entered))
    }

    /// What somebody sends under this id. There are several only while their senders disagree and no record has opened.
    async fn all_of(&self, id: UploadId) -> Vec<Arc<Arrival>> {
        self.part(id).lock().await.get(&id).map(|arrivals| alive(arrivals).collect()).unwrap_or_default()
    }

    /// The arrival of this upload, once one of its records has opened.
    pub async fn of(&self, id: UploadId) -> Option<Arc<Arrival>> {
        self.all_of(id).await.into_iter().find(|arrival| arrival.is_settled())
    }

    /// Ends the messages of an upload that are under way with this code, and refuses others. With none, lets them in
    /// again. Call it once the index says so: later messages ask the index.
    pub async fn halt(&self, id: UploadId, code: Option<Code>) {
        for arrival in self.all_of(id).await {
            arrival.progress().halted = code;
        }
    }

    /// The wanted ones of the uploads that are coming in, with what has come of each, on disk or not. `is_wanted` gets
    /// the id, and the owner if it is known. Others are not looked into, since all readers of events ask each second.
    pub async fn coming(&self, now: UnixTime, is_wanted: impl Fn(UploadId, Option<Tag>) -> bool) -> Vec<Upload> {
        let mut coming = Vec::new();
        for part in &self.parts {
            let arrivals: Vec<_> = part.lock().await.values().flat_map(|arrivals| alive(arrivals)).collect();
            let wanted = arrivals.into_iter().filter(|arrival| is_wanted(arrival.admission.id(), arrival.owner()));
            coming.extend(wanted.filter_map(|arrival| arrival.coming(now)));
        }
        coming
    }

    /// The upload of that id, if it is coming in.
    pub async fn coming_of(&self, id: UploadId, now: UnixTime) -> Option<Upload> {
        self.of(id).await?.coming(now)
    }

    /// Forgets an upload without record 0, unless somebody sends it now. Its sender begins anew.
    ///
    /// # Errors
    /// The store's.
    pub async fn discard(&self, store: &Store, room: &Room, id: UploadId) -> Result<(), StoreError> {
        {
            let part = self.part(id).lock().await;
            if is_alive(&part, id) {
                return Ok(());
            }
            store.with(move |index| index.discard(id)).await?;
            room.give_back(id);
        }
        self.remove_orphan(store, id).await
    }

    /// Deletes a body that no upload has. Nobody can begin one under that id meanwhile.
    ///
    /// # Errors
    /// The store's.
    pub async fn remove_orphan(&self, store: &Store, id: UploadId) -> Result<(), StoreError> {
        let part = self.part(id).lock().await;
        if !is_alive(&part, id) && store.load(id).await?.is_none() {
            let bodies = store.bodies().clone();
            blocking(move || bodies.remove(id)).await??;
        }
        Ok(())
    }
}

fn is_alive(part: &BTreeMap<UploadId, Vec<Weak<Arrival>>>, id: UploadId) -> bool {
    part.get(&id).is_some_and(|arrivals| alive(arrivals).next().is_some())
}

/// Refuses an upload whose ticket ends on a day that is closed: its id could be among the forgotten ones.
async fn check_open(store: &Store, admission: &Admission) -> Result<(), Problem> {
    let expires = admission.ticket.label.expires;
    match store.with(move |index| index.is_closed(expires)).await.map_err(store_problem)? {
        true => Err(Problem::new(Code::TicketExpired, "what ended on that day has been forgotten")),
        false => Ok(()),
    }
}

/// Whether a known upload was begun with another total that nothing has proven. Anybody who has one of its records can
/// send it with a wrong total. Such a lie costs what has come so far, but not the upload.
fn is_doubtful(admission: &Admission, known: &Upload) -> bool {
    let layout = Layout::for_total(admission.prelude.len(), admission.prelude.record_size(), known.total);
    known.state == State::Receiving
        && known.total != admission.layout.total()
        && known.prelude == admission.prelude.encode()
        && !layout.is_ok_and(|layout| proves_total(&layout, &known.received, known.facts.as_ref()))
}

/// Whether the total is proven: record 0 names the length of the request, and the last record opens as the last.
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

/// The refusal of an upload that is paused (since so many seconds), stopped or over.
pub fn refused(code: Code, paused_secs: u32) -> Problem {
    let problem = Problem::new(code, "");
    match code {
        Code::UploadPaused => problem.retry_after(paused_wait(paused_secs, Rng.roll())),
        _ => problem,
    }
}

/// How long to wait for a paused upload: about half of the time that it has been paused, within bounds.
fn paused_wait(paused_secs: u32, roll: u32) -> Duration {
    let doubled = (u64::from(paused_secs) / PAUSED_WAITS.base.as_secs()).max(1).ilog2();
    PAUSED_WAITS.delay(doubled, roll)
}

fn same(admission: &Admission, prelude: &[u8], total: u64) -> Result<(), Problem> {
    // Of an upload that ended long ago, only the beginning of the prelude may be kept (`store::sqlite::ended`).
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
pub struct Arrival {
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
    /// The body. It is made when the first record opens, so that nobody without a key fills the folder.
    body: Option<Arc<dyn Sealed>>,
    /// Why nothing more is taken, if its owner says so.
    halted: Option<Code>,
    /// Who pays for it.
    payer: Option<Payer>,
    /// It has room for so many bytes in all.
    reach: u64,
    /// How many of its bytes the index counts, and who pays for them.
    noted: Option<(u64, Option<Payer>)>,
}

impl Progress {
    /// Nothing has come.
    fn paid_by(payer: Payer) -> Self {
        Self { payer: Some(payer), ..Self::default() }
    }

    /// The part of it that goes to the index and to readers.
    fn told(&self) -> Self {
        Self { received: self.received.clone(), facts: self.facts.clone(), payer: self.payer, ..Self::default() }
    }
}

impl Arrival {
    fn new(
        admission: Admission,
        created: UnixTime,
        progress: Progress,
        flushed: Option<RangeSet>,
        claim: Claim,
    ) -> Self {
        let is_known = progress.body.is_some();
        let arrival = Self {
            admission,
            created,
            progress: Mutex::new(progress),
            writing: Mutex::default(),
            flushed: tokio::sync::Mutex::new(flushed),
            claim,
        };
        if is_known {
            arrival.claims();
        }
        arrival
    }

    /// Settles what the upload is, unless another was first. Returns whether both say the same.
    fn claims(&self) -> bool {
        let (prelude, total) =
            self.claim.get_or_init(|| (self.admission.prelude.encode(), self.admission.layout.total()));
        *total == self.admission.layout.total() && *prelude == self.admission.prelude.encode()
    }

    /// Whether a record of it has opened, so that its upload is settled to be this one.
    fn is_settled(&self) -> bool {
        self.claim.get().is_some() && self.claims()
    }

    /// Refuses this arrival if a record has opened of one that says something else of the upload.
    fn check_claim(&self) -> Result<(), Problem> {
        if self.claim.get().is_none() || self.claims() {
            return Ok(());
        }
        let detail = "something else is being sent for this upload, and came first";
        Err(Problem::new(Code::RangeInvalid, detail).field("Hoop-Prelude"))
    }

    /// Whether both have the same prelude and total.
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

    /// Opens whole records, from record `first` on, and writes them. Records before a bad one are kept. Returns how
    /// many bytes are new. Blocking.
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

    /// When the upload began, for its token. It was let in on time, even if the clock was set ahead since its ticket
    /// was issued.
    fn begun(&self) -> UnixTime {
        self.created.min(self.admission.ticket.label.expires)
    }

    /// Writes opened records that no other sender has written. Blocking; readers of the progress do not wait for it.
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

    /// The body. If nothing has come before, it is made with the prelude in it. The caller has the turn to write.
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

    /// Who pays for it, by the records at its beginning. None: they do not say, or it is known already.
    pub fn payer_in(&self, policy: &Policy, records: &[u8]) -> Option<Payer> {
        let len = usize::try_from(self.admission.layout.record(0).len()).ok()?;
        let mut record = records.get(..len).filter(|_| self.progress().facts.is_none())?.to_vec();
        let plaintext = self.admission.open(0, &mut record).ok()?;
        let (_, credentials, _) = inspect(policy, &self.admission, plaintext, self.begun()).ok()?;
        Some(Payer::of(policy, &credentials))
    }

    /// Makes sure of room for `more` bytes. `payer` pays from now on, if it is another than before.
    ///
    /// # Errors
    /// `range-invalid` if the upload is settled to be another, `spool-full`, or the store's.
    pub async fn need_room(&self, room: &Room, more: u64, payer: Option<Payer>) -> Result<(), Problem> {
        self.check_claim()?;
        let has_room = {
            let progress = self.progress();
            self.reach_with(&progress, more) <= progress.reach && (payer.is_none() || payer == progress.payer)
        };
        match has_room && room.is_promised(self.admission.id()) {
            true => Ok(()),
            false => self.ask_room(room, more, payer).await,
        }
    }

    /// How many bytes are here once `more` have come.
    fn reach_with(&self, progress: &Progress, more: u64) -> u64 {
        progress.received.len().saturating_add(more).min(self.admission.layout.total())
    }

    /// A message begins. Asks for room, unless there is some left for one record.
    async fn begin_in_room(&self, room: &Room) -> Result<(), Problem> {
        match self.has_room(room) {
            true => Ok(()),
            false => self.ask_room(room, 0, None).await,
        }
    }

    /// Whether an earlier promise has room left for one more record. Asking for more takes a turn, and a look at the
    /// index and the disk.
    fn has_room(&self, room: &Room) -> bool {
        let mut progress = self.progress();
        let come = progress.received.len();
        let Some(payer) = progress.payer.filter(|payer| progress.noted == Some((come, Some(*payer)))) else {
            return false;
        };
        let reach = come.saturating_add(room.promised_to(self.admission.id(), payer).unwrap_or_default());
        let next = come.saturating_add(hoop_seal::RECORD_SIZE.into()).min(self.admission.layout.total());
        progress.reach = progress.reach.max(reach);
        reach >= next && reach > come
    }

    /// Asks for room for `more` bytes that have come, and for what comes next.
    async fn ask_room(&self, room: &Room, more: u64, payer: Option<Payer>) -> Result<(), Problem> {
        let wants = {
            let progress = self.progress();
            let Some(payer) = payer.or(progress.payer) else { return Ok(()) };
            let (noted, paid_by) = progress.noted.unwrap_or_default();
            let paid = if paid_by == Some(payer) { noted } else { 0 };
            let (come, total) = (progress.received.len(), self.admission.layout.total());
            let (reach, least) = (reach(come, total), least(come, total));
            let here = self.reach_with(&progress, more);
            Wants { id: self.admission.id(), payer, noted, paid, reach, least, here }
        };
        let reach = room.promise(wants).await?;
        let mut progress = self.progress();
        (progress.payer, progress.reach) = (Some(wants.payer), reach);
        Ok(())
    }

    /// How much of it is here, in bytes.
    pub fn come(&self) -> u64 {
        self.progress().received.len()
    }

    /// A message has ended, and what it brought is noted. It found `before` bytes here. If it brought any, an unused
    /// promise stays for a while, bounded by what has come: the next message finds room, and asking alone holds none.
    pub fn rest(&self, room: &Room, before: u64) {
        let left = {
            let mut progress = self.progress();
            let come = progress.received.len();
            let left = if come > before { progress.reach.saturating_sub(come).min(come) } else { 0 };
            progress.reach = come.saturating_add(left);
            left
        };
        room.keep(self.admission.id(), left);
    }

    /// Whether the index knows of it.
    pub fn is_noted(&self) -> bool {
        self.progress().noted.is_some()
    }

    /// Remembers what the index counts now. That part of the promise is no longer needed.
    fn set_noted(&self, room: &Room, upload: &Upload) {
        let len = upload.received.len();
        let left = {
            let mut progress = self.progress();
            progress.noted = Some((len, upload.payer));
            progress.reach.saturating_sub(len)
        };
        match upload.state {
            State::Receiving => room.keep(upload.id, left),
            _ => room.give_back(upload.id),
        }
    }

    /// Syncs what was written and notes it in the index. Returns the upload as it then stands; none if nothing has
    /// come.
    ///
    /// # Errors
    /// `upload-stopped`, `upload-expired`, or the store's.
    pub async fn flush(&self, context: &Context, room: &Room) -> Result<Option<Upload>, Problem> {
        let mut flushed = self.flushed.lock().await;
        let (told, body) = {
            let progress = self.progress();
            (progress.told(), progress.body.clone())
        };
        let (id, received) = (self.admission.id(), told.received.clone());
        let Some(body) = body else {
            // Otherwise the promise may belong to the arrival whose record has opened.
            if self.claim.get().is_none() {
                room.give_back(id);
            }
            return Ok(None);
        };
        if flushed.as_ref() == Some(&received) {
            return context.store.load(id).await.map_err(store_problem);
        }
        let told = upload(&self.admission, told, self.created, context.clock.unix());
        let changed = context.store.receive(body, told, flushed.is_none()).await.map_err(store_problem)?;
        match changed {
            Changed::Done(upload) => {
                *flushed = Some(received);
                self.set_noted(room, &upload);
                if upload.state == State::Received {
                    context.work.notify_one();
                }
                Ok(Some(upload))
            }
            Changed::Refused(upload) => {
                room.give_back(id);
                if flushed.is_none() && upload.state == State::Stopped {
                    // It was stopped before the index knew of it. Nobody else clears its body away.
                    let (bodies, removing) = (context.store.bodies().clone(), id);
                    let removed = blocking(move || bodies.remove(removing)).await;
                    removed.and_then(|removed| removed).map_err(|error| store_problem(error.into()))?;
                }
                Ok(Some(upload))
            }
            Changed::Unknown => Err(Problem::new(Code::UploadExpired, "it was forgotten while it came in")),
        }
    }
}

/// The upload with this progress.
fn upload(admission: &Admission, progress: Progress, created: UnixTime, now: UnixTime) -> Upload {
    let (prelude, total) = (admission.prelude.encode(), admission.layout.total());
    let begun = Upload::begun(admission.id(), prelude, total, admission.ticket.label.expires, created);
    Upload { received: progress.received, facts: progress.facts, payer: progress.payer, updated: now, ..begun }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::rules_file::Routes;
    use crate::store::Bodies;
    use crate::store::folder::Folder;
    use hoop_seal::{Grant, Keyring, KwsId, Prelude, RECORD_SIZE, Route, ServiceKey, Suite, UploadKey};
    use std::sync::mpsc;

    /// An upload that comes in, of that owner, by its records.
    fn coming_in(bodies: &dyn Bodies, n: u8) -> Arc<Arrival> {
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
        Arc::new(Arrival::new(admission, UnixTime(1), progress, None, Claim::default()))
    }

    /// All readers of events ask each second, and an upload may have thousands of spans.
    #[tokio::test]
    async fn readers_of_events_look_only_into_uploads_they_want() {
        let dir = tempfile::tempdir().unwrap();
        let bodies = Folder::open(&dir.path().join("bodies")).unwrap();
        let in_flight = InFlight::default();
        let arrivals = [1, 2, 3].map(|n| coming_in(&bodies, n));
        for arrival in &arrivals {
            let id = arrival.admission.id();
            in_flight.part(id).lock().await.insert(id, vec![Arc::downgrade(arrival)]);
        }
        let coming = in_flight.coming(UnixTime(2), |_, owner| owner == Some([2; 16])).await;
        assert_eq!(coming.iter().map(|upload| upload.id).collect::<Vec<_>>(), [arrivals[1].admission.id()]);
        let third = arrivals[2].admission.id();
        assert_eq!(in_flight.coming(UnixTime(2), |id, _| id == third).await.len(), 1, "one that was shown before");
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
    fn reading_an_uploads_progress_does_not_wait_for_its_writes() {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::open(dir.path(), 1 << 20).unwrap();
        let arrival = coming_in(&**store.bodies(), 1);
        let ((begun, begins), (go_on, done)) = (mpsc::channel(), mpsc::channel());
        arrival.progress().body = Some(Arc::new(Slow { begun, done: Mutex::new(done) }));
        let record = arrival.admission.layout.record(0);
        std::thread::scope(|scope| {
            let write = || arrival.write(&store, &[(record, b"octets")], None);
            let writers = [scope.spawn(write), scope.spawn(write)];
            begins.recv().unwrap();
            let looked = arrival.progress.try_lock().map(|progress| progress.received.contains(record));
            // Before anything is asserted, so that no writer is left.
            drop(go_on);
            writers.into_iter().for_each(|writer| writer.join().unwrap().unwrap());
            assert!(matches!(looked, Ok(false)), "it counts once it is written");
        });
        assert!(arrival.progress().received.contains(record));
        assert_eq!(begins.try_iter().count(), 0, "the other found it there");
    }

    #[tokio::test]
    async fn an_upload_that_waits_for_the_disk_blocks_only_its_own_part() {
        let in_flight = InFlight::default();
        let _waits = in_flight.part(UploadId([0; 16])).lock().await;
        for part in 1..PARTS {
            assert!(in_flight.of(UploadId([u8::try_from(part).unwrap(); 16])).await.is_none());
        }
        assert!(in_flight.part(UploadId([0; 16])).try_lock().is_err(), "who is in the same part waits");
    }

    #[test]
    fn a_paused_upload_is_asked_for_ever_less_often_up_to_a_minute() {
        let secs = |paused, roll| paused_wait(paused, roll).as_secs();
        for (paused, least, most) in
            [(0, 4, 8), (8, 4, 8), (16, 8, 16), (60, 16, 32), (600, 30, 60), (u32::MAX, 30, 60)]
        {
            assert_eq!((secs(paused, 0), secs(paused, u32::MAX)), (least, most), "after {paused} s");
        }
    }
}
