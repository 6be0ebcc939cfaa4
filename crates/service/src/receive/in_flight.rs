//! Uploads that are coming in now: the registry [`InFlight`], and one [`Arrival`] for each, which all its senders
//! share.
//!
//! Many senders may work on one upload. Anybody who has seen its prelude may claim another prelude or total for it.
//! Until a record opens, such a claim keeps nobody out; the first record that opens settles it.
//!
//! Bounds: one entry for each upload and claim that somebody sends, and so no more than there are messages.

use super::arrival::{Arrival, Progress, proves_total, upload};
use crate::context::Context;
use crate::model::{LINGER_SECS, Payer, State, Tag, Upload};
use crate::policy::admit::Admission;
use crate::receive::room::Room;
use crate::store::{Store, StoreError, blocking, store_problem};
use hoop_http::{Code, Problem, Rng};
use hoop_seal::Layout;
use hoop_units::{Backoff, UnixTime, UploadId};
use std::collections::BTreeMap;
use std::sync::{Arc, Weak};
use std::time::Duration;

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
    /// `sender` pays until it is known whose the upload is. A message that `says_whose` asks for room once record 0 is
    /// here: its sender's address may have none left, and its owner have some.
    ///
    /// # Errors
    /// `ticket-early`, `ticket-expired`, `upload-conflict`, `spool-full`, or the store's.
    pub async fn enter(
        &self,
        context: &Context,
        room: &Room,
        admission: Admission,
        sender: Payer,
        says_whose: bool,
    ) -> Result<Entered, Problem> {
        let id = admission.id();
        let mut part = self.part(id).lock().await;
        let others: Vec<_> = part.get(&id).map(|arrivals| alive(arrivals).collect()).unwrap_or_default();
        // Asked for first: a record may open between the two, and then both say so.
        let open = others.iter().find(|other| other.claim.get().is_none());
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
                return match known {
                    None if code == Code::UploadDone => Err(refused(code, 0)),
                    None => Ok(Entered::Known(Box::new(unbegun(&admission, context.clock.unix(), code)))),
                    Some(upload) => Ok(Entered::Known(Box::new(upload))),
                };
            }
            if !says_whose {
                one.begin_in_room(room).await?;
            }
            return Ok(Entered::Open(one));
        }
        // The index knows what is settled and nobody sends any more.
        let claim = open.map(|other| other.claim.clone()).unwrap_or_default();
        let now = context.clock.unix();
        let known = context.store.load_to_receive(id).await.map_err(store_problem)?;
        let (known, body) = known.map_or((None, None), |(upload, body)| (Some(upload), body));
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
                let progress = Progress::instead_of_another(sender);
                Arrival::new(admission, upload.created, progress, None, claim)
            }
            Some(upload) => {
                same(&admission, &upload.prelude, upload.total)?;
                if upload.state != State::Receiving {
                    return Ok(Entered::Known(Box::new(upload)));
                }
                if context.past(LINGER_SECS) > upload.ends() {
                    return Err(Problem::new(Code::UploadExpired, "it was not complete in time"));
                }
                let body = body.expect("an upload that takes more has one");
                let body = body.map_err(|error| store_problem(error.into()))?;
                let (created, flushed) = (upload.created, upload.received.clone());
                let progress = Progress::noted(upload, body, sender);
                Arrival::new(admission, created, progress, Some(flushed), claim)
            }
        };
        if !says_whose {
            entered.begin_in_room(room).await?;
        }
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
        self.all_of(id).await.iter().for_each(|arrival| arrival.halt(code));
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

    /// Forgets an upload without record 0, unless somebody sends it now. Its sender begins anew. Returns whether it was
    /// forgotten.
    ///
    /// # Errors
    /// The store's.
    pub async fn discard(&self, store: &Store, room: &Room, id: UploadId) -> Result<bool, StoreError> {
        {
            let part = self.part(id).lock().await;
            if is_alive(&part, id) || !store.with(move |index| index.discard(id)).await? {
                return Ok(false);
            }
            room.give_back(id);
        }
        self.remove_orphan(store, id).await?;
        Ok(true)
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
/// send it with a wrong total. Such a lie costs what has come so far, but not the upload. It costs nothing until the
/// record opens.
fn is_doubtful(admission: &Admission, known: &Upload) -> bool {
    let layout = Layout::for_total(admission.prelude.len(), admission.prelude.record_size(), known.total);
    known.state == State::Receiving
        && known.total != admission.layout.total()
        && known.prelude == admission.prelude.encode()
        && !layout.is_ok_and(|layout| proves_total(&layout, &known.received, known.facts.as_ref()))
}

/// An upload of which nothing has come, and nothing may.
fn unbegun(admission: &Admission, now: UnixTime, code: Code) -> Upload {
    let mut upload = upload(admission, Progress::default(), now, now);
    match code {
        Code::UploadStopped => upload.state = State::Stopped,
        Code::UploadExpired => upload.state = State::Expired,
        _ => upload.paused = true,
    }
    upload
}

/// The refusal of an upload that is paused (since so many seconds), stopped or over.
pub fn refused(code: Code, paused_secs: u32) -> Problem {
    let problem = Problem::new(code, "");
    match code {
        Code::UploadPaused => problem.retry_after(paused_wait(paused_secs, Rng.jitter())),
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

#[cfg(test)]
mod tests {
    use super::super::arrival::tests::coming_in;
    use super::*;
    use crate::store::folder::Folder;

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
