//! One upload that is coming in, shared by all its senders: [`Arrival`].
//!
//! Promises: a byte is written only after its record has opened. A written byte is never overwritten, whatever another
//! sender says. What [`Arrival::flush`] returns is synced.
//!
//! Bounds: [`SPANS_MAX`] separate spans.

use crate::context::Context;
use crate::model::{Facts, Payer, State, Tag, Upload};
use crate::policy::Policy;
use crate::policy::admit::{Admission, inspect};
use crate::receive::room::{Room, Wants, least, reach};
use crate::store::{Changed, Sealed, Store, blocking, store_problem};
use hoop_http::{Code, Problem};
use hoop_seal::Layout;
use hoop_units::{ByteRange, RangeSet, UnixTime};
use parking_lot::{Mutex, MutexGuard};
use std::sync::{Arc, OnceLock};
use tokio::sync::watch;

/// The most spans that an upload may have in mid-way: each is 40 bytes of memory and in the index.
const SPANS_MAX: usize = 4096;

/// Less room is not kept for an upload of which no message is under way, in bytes: one record's.
const PROMISE_MIN: u64 = 64 << 10;

/// The prelude and total of an upload, as the first sender whose record opened has said them. Every [`Arrival`] of one
/// id shares it.
pub(super) type Claim = Arc<OnceLock<(Vec<u8>, u64)>>;

/// One upload that is coming in.
pub struct Arrival {
    /// Its ticket, layout and keys.
    pub admission: Admission,
    created: UnixTime,
    /// Held for a moment: the runtime's own threads look at it.
    progress: Mutex<Progress>,
    /// Held while records are written, by blocking threads alone.
    writing: Mutex<()>,
    /// What the index knows; none: nothing yet. Held while flushing, by blocking threads alone, so that flushes come one
    /// after the other.
    flushed: Mutex<Option<RangeSet>>,
    pub(super) claim: Claim,
    /// Why nothing more is taken: its owner says so, all of it is here, or it is over.
    halted: watch::Sender<Option<Code>>,
}

/// What has come of an upload.
#[derive(Default)]
pub(super) struct Progress {
    /// What is written.
    received: RangeSet,
    facts: Option<Facts>,
    /// The body. It is made when the first record opens, so that nobody without a key fills the folder.
    body: Option<Arc<dyn Sealed>>,
    /// Who pays for it.
    payer: Option<Payer>,
    /// It has room for so many bytes in all.
    reach: u64,
    /// How many of its bytes the index counts, and who pays for them.
    noted: Option<(u64, Option<Payer>)>,
    /// The index has it with another total. That goes once a record opens.
    replaces: bool,
}

impl Progress {
    /// Nothing has come.
    pub(super) fn paid_by(payer: Payer) -> Self {
        Self { payer: Some(payer), ..Self::default() }
    }

    /// Nothing has come, and the index has the upload with another total.
    pub(super) fn instead_of_another(payer: Payer) -> Self {
        Self { replaces: true, ..Self::paid_by(payer) }
    }

    /// What the index knows of an upload, with its body. If nobody has paid, `sender` does.
    pub(super) fn noted(upload: Upload, body: Arc<dyn Sealed>, sender: Payer) -> Self {
        let noted = Some((upload.received.len(), upload.payer));
        let (received, facts, body) = (upload.received, upload.facts, Some(body));
        Self { received, facts, body, noted, ..Self::paid_by(upload.payer.unwrap_or(sender)) }
    }

    /// The part of it that goes to the index and to readers.
    fn told(&self) -> Self {
        Self { received: self.received.clone(), facts: self.facts.clone(), payer: self.payer, ..Self::default() }
    }
}

impl Arrival {
    pub(super) fn new(
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
            flushed: Mutex::new(flushed),
            claim,
            halted: watch::Sender::new(None),
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
    pub(super) fn is_settled(&self) -> bool {
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
    pub(super) fn says(&self, admission: &Admission) -> bool {
        self.admission.layout.total() == admission.layout.total()
            && self.admission.prelude.encode() == admission.prelude.encode()
    }

    /// Nothing in here panics between two changes that belong together.
    fn progress(&self) -> MutexGuard<'_, Progress> {
        self.progress.lock()
    }

    /// Ends its messages with this code, and refuses others. With none, lets them in again that were paused.
    pub(super) fn halt(&self, code: Option<Code>) {
        self.halted.send_if_modified(|halted| {
            let goes = matches!(halted, None | Some(Code::UploadPaused)) && *halted != code;
            if goes {
                *halted = code;
            }
            goes
        });
    }

    /// Why nothing more is taken: `upload-paused`, `upload-stopped`, `upload-expired`, or `upload-done` if all is here.
    pub fn halted(&self) -> Option<Code> {
        *self.halted.borrow()
    }

    /// Returns once nothing more is taken, with why.
    pub async fn until_halted(&self) -> Code {
        let mut halted = self.halted.subscribe();
        let code = *halted.wait_for(Option::is_some).await.expect("its sender is in this arrival");
        code.expect("it was waited for")
    }

    /// Whose it is, if record 0 is here.
    pub(super) fn owner(&self) -> Option<Tag> {
        self.progress().facts.as_ref().map(|facts| facts.owner)
    }

    /// The upload as it comes in; none if nothing of it has come.
    pub(super) fn coming(&self, now: UnixTime) -> Option<Upload> {
        let progress = self.progress();
        progress.body.as_ref()?;
        Some(upload(&self.admission, progress.told(), self.created, now))
    }

    /// Whether its total is beyond doubt.
    pub(super) fn is_proven(&self) -> bool {
        let progress = self.progress();
        proves_total(&self.admission.layout, &progress.received, progress.facts.as_ref())
    }

    /// Opens whole records, from record `first` on, and writes them. Records before a bad one are kept. Returns how
    /// many bytes are new. Blocking.
    ///
    /// # Errors
    /// `record-corrupt`, what [`inspect`] finds in record 0, `range-too-many`, or the store's.
    pub fn take(&self, policy: &Policy, store: &Store, first: u64, bytes: &[u8]) -> Result<u64, Problem> {
        let mut scratch = Vec::with_capacity(bytes.len().min(hoop_seal::RECORD_SIZE as usize));
        let mut opened = Vec::new();
        let (mut index, mut at, mut facts) = (first, 0, None);
        let mut result = Ok(());
        while at < bytes.len() {
            let range = self.admission.layout.record(index);
            let record = &bytes[at..at + range.len() as usize];
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
        let _turn = self.writing.lock();
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

    /// The body. If nothing has come before, it is made with the prelude in it, in place of what has come with another
    /// total. The caller has the turn to write.
    fn begun_body(&self, store: &Store) -> Result<Arc<dyn Sealed>, Problem> {
        if let Some(body) = &self.progress().body {
            return Ok(body.clone());
        }
        let failed = |error: std::io::Error| store_problem(error.into());
        self.claims();
        self.check_claim()?;
        let replaces = self.progress().replaces;
        if replaces && !store.discard_now(self.admission.id()).map_err(store_problem)? {
            return Err(Problem::new(Code::RangeInvalid, "the upload has another total").field("Content-Range"));
        }
        self.progress().replaces = false;
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
    pub(super) async fn begin_in_room(&self, room: &Room) -> Result<(), Problem> {
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
        loop {
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
            // Another message may have brought record 0 meanwhile, which says who pays: then that one is asked.
            if payer.is_some() || progress.payer == Some(wants.payer) {
                (progress.payer, progress.reach) = (Some(wants.payer), reach);
                return Ok(());
            }
        }
    }

    /// How much of it is here, in bytes.
    pub fn come(&self) -> u64 {
        self.progress().received.len()
    }

    /// A message has ended, and what it brought is noted. It found `before` bytes here. If it brought any, an unused
    /// promise stays for a while, bounded by what has come: the next message finds room, and asking alone holds none. One
    /// of less than [`PROMISE_MIN`] is given back, since each takes one of the places of all uploads that have begun.
    pub fn rest(&self, room: &Room, before: u64) {
        let left = {
            let mut progress = self.progress();
            let come = progress.received.len();
            let left = if come > before { progress.reach.saturating_sub(come).min(come) } else { 0 };
            let left = if left < PROMISE_MIN { 0 } else { left };
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

    /// [`Arrival::flush_now`] on a blocking thread.
    ///
    /// # Errors
    /// Its own.
    pub async fn flush(self: &Arc<Self>, context: &Arc<Context>, room: &Arc<Room>) -> Result<Option<Upload>, Problem> {
        let (arrival, context, room) = (self.clone(), context.clone(), room.clone());
        let flushed = blocking(move || arrival.flush_now(&context, &room)).await;
        flushed.map_err(|error| store_problem(error.into()))?
    }

    /// Syncs what was written and notes it in the index. Returns the upload as it then stands; none if nothing has
    /// come. Blocking.
    ///
    /// # Errors
    /// `upload-stopped`, `upload-expired`, or the store's.
    pub fn flush_now(&self, context: &Context, room: &Room) -> Result<Option<Upload>, Problem> {
        let mut flushed = self.flushed.lock();
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
            return context.store.load_now(id).map_err(store_problem);
        }
        let told = upload(&self.admission, told, self.created, context.clock.unix());
        match context.store.receive(&*body, told, flushed.is_none()).map_err(store_problem)? {
            Changed::Done(upload) => {
                *flushed = Some(received);
                self.set_noted(room, &upload);
                if upload.state == State::Received {
                    // Whoever still sends of it would keep its body open, which counts for nobody once it is replayed.
                    self.halt(Some(Code::UploadDone));
                    context.work.notify_one();
                }
                Ok(Some(upload))
            }
            Changed::Refused(upload) => {
                self.halt(Some(Code::UploadDone));
                room.give_back(id);
                if flushed.is_none() && upload.state == State::Stopped {
                    // It was stopped before the index knew of it. Nobody else clears its body away.
                    context.store.bodies().remove(id).map_err(|error| store_problem(error.into()))?;
                }
                Ok(Some(upload))
            }
            Changed::Unknown => Err(Problem::new(Code::UploadExpired, "it was forgotten while it came in")),
        }
    }
}

/// Whether the total is proven: record 0 names the length of the request, and the last record opens as the last.
pub(super) fn proves_total(layout: &Layout, received: &RangeSet, facts: Option<&Facts>) -> bool {
    facts.is_some() || received.contains(layout.record(layout.records() - 1))
}

/// The upload with this progress.
pub(super) fn upload(admission: &Admission, progress: Progress, created: UnixTime, now: UnixTime) -> Upload {
    let (prelude, total) = (admission.prelude.encode(), admission.layout.total());
    let begun = Upload::begun(admission.id(), prelude, total, admission.ticket.label.expires, created);
    Upload { received: progress.received, facts: progress.facts, payer: progress.payer, updated: now, ..begun }
}

#[cfg(test)]
pub(in crate::receive) mod tests {
    use super::*;
    use crate::policy::rules_file::Routes;
    use crate::store::Bodies;
    use hoop_seal::{Grant, Keyring, KwsId, Prelude, RECORD_SIZE, Route, ServiceKey, Suite, UploadKey};
    use std::sync::mpsc;

    /// An upload that comes in, of that owner, by its records.
    pub fn coming_in(bodies: &dyn Bodies, n: u8) -> Arc<Arrival> {
        let admission = admission(n);
        let facts = Facts { method: "POST".to_owned(), path: "/".to_owned(), owner: [n; 16] };
        let body = bodies.create(admission.id()).unwrap();
        let progress = Progress { body: Some(body), facts: Some(facts), ..Progress::default() };
        Arc::new(Arrival::new(admission, UnixTime(1), progress, None, Claim::default()))
    }

    /// An upload of one record.
    pub fn admission(n: u8) -> Admission {
        let keys = Keyring::new(ServiceKey::new(KwsId([1; 4]), [2; 32]));
        let origin = "https://photos.example".to_owned();
        let key = UploadKey([n; 32]);
        let (id, suite) = (key.upload_id(), Suite::default());
        let grant = Grant { key, not_before: UnixTime(1), max_bytes: 1 << 20, route: Route::ANY, suite };
        let ticket = keys.seal_ticket(&origin, id, UnixTime(9), &grant, [n; 12]);
        let prelude = Prelude::new([3; 16], RECORD_SIZE, &ticket).unwrap();
        let total = prelude.len() as u64 + 40;
        let policy = Policy { keys, origin, max_bytes: 1 << 20, routes: Routes::default() };
        Admission::new(&policy, prelude, total).unwrap()
    }

    /// A body on a disk that takes its time.
    struct Slow {
        begun: mpsc::Sender<()>,
        done: Mutex<mpsc::Receiver<()>>,
    }

    impl Sealed for Slow {
        fn write_at(&self, _: &[u8], _: u64) -> std::io::Result<()> {
            self.begun.send(()).unwrap();
            let _ = self.done.lock().recv();
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
            assert!(looked == Some(false), "it counts once it is written");
        });
        assert!(arrival.progress().received.contains(record));
        assert_eq!(begins.try_iter().count(), 0, "the other found it there");
    }
}
