//! Taking an upload from a device: `POST /offload`, `PUT /offload/{id}`.
//!
//! Frames of the body go to the file as they come, by a plain `pwrite` from the connection's own task: into the page
//! cache, without a copy of ours and without a change of thread. Two steps wait for the disk and are done where they may:
//! beginning, and the sync and index commit at the end. A 2xx is sent after the second. What waits for the disk of a short body that is all here
//! when it would begin is done in one go. A long body is committed in steps
//! while it comes ([`Steps`]), and whatever was whole of one that breaks off, however its request ends.
//!
//! What is checked is form: the prelude and the ticket's label parse, the lengths are those of a sealed body, ranges are cut
//! at record borders. Records may come before the prelude does (*early*), since its length is known. What the records hold is for the service to check; this gateway could not.

use crate::destination::Dest;
use crate::devices::{Holding, Need, Promise};
use crate::door::{self, Offered};
use crate::intake::{Frames, Sink};
use crate::open_ended::OpenEnded;
use crate::shared::{Shared, full_problem, store_problem};
use crate::status;
use crate::steps::Steps;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use bytes::Bytes;
use hoop_http::{Code, Problem, RequestBody};
use hoop_seal::{Layout, Prelude, RECORD_SIZE, TICKET_LEN, TicketLabel};
use hoop_spool::{
    Begin, BeginError, Change, CommitError, EARLY_SECS, Held, HeldBy, Intake, KEEP_SECS, Offer, Reason, State,
    StoreError, Upload,
};
use hoop_units::{ByteRange, ContentRange, DeviceId, RangeSet, UnixTime, UploadId};
use http::{HeaderMap, header};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use tokio::sync::OwnedSemaphorePermit;

/// Octets before record 0: salt, record size, the ticket's length and the ticket, which always has the same.
pub const PRELUDE_LEN: usize = 21 + TICKET_LEN;

/// A body up to this is short: hyper holds as much of it anyway.
const SHORT_BYTES: u32 = 256 * 1024;

/// So many octets of short bodies are held until they are on disk, of all senders together; more are written as they come.
pub const SHORT_ROOM: usize = 2 << 20;

/// What became of a request that took bytes.
pub struct Taken {
    pub id: UploadId,
    pub state: State,
    pub total: u64,
    pub stored: RangeSet,
}

impl Taken {
    pub fn of(upload: &Upload) -> Self {
        Self { id: upload.id, state: upload.state, total: upload.total, stored: upload.stored.clone() }
    }

    /// The receipt of an upload that takes no more octets, unless it has ended without them.
    pub fn whole(upload: &Upload) -> Result<Self, Problem> {
        match given_up(upload.state, upload.reason.as_ref()) {
            Some(problem) => Err(problem),
            None => Ok(Self::of(upload)),
        }
    }
}

/// The refusal of more of an upload that has come to its end and will not be delivered, for the reason that is known: nothing of it is kept.
fn given_up(state: State, reason: Option<&Reason>) -> Option<Problem> {
    match state {
        State::Stopped => Some(Problem::new(Code::UploadStopped, "")),
        State::Expired => Some(Problem::new(Code::UploadExpired, "")),
        State::Refused => {
            let code = reason.and_then(|reason| Code::by_name(&reason.code)).unwrap_or(Code::UploadConflict);
            Some(Problem::new(code, reason.map_or("the service has refused it", |reason| &reason.detail)))
        }
        _ => None,
    }
}

/// What a request says of itself before its body comes.
struct Announced {
    device: DeviceId,
    dest: Dest,
    /// `Hoop-Permit`.
    permit: Option<Vec<u8>>,
    /// `Hoop-Deadline`.
    deadline: Option<UnixTime>,
    /// `Content-Length`.
    length: Option<u64>,
    /// Of a `PUT`.
    part: Option<Part>,
    /// Whether it waits for a 100 before it sends the body (RFC 9110 §10.1.1).
    expects_continue: bool,
}

impl Announced {
    /// Refuses what cannot be delivered, before anything of the body is read.
    async fn vet(&self, shared: &Arc<Shared>) -> Result<(), Problem> {
        let early = self.part.as_ref().is_some_and(|part| part.prelude.is_none());
        door::vet(shared, &self.dest, self.device, self.permit.as_deref(), early).await
    }
}

/// Which part of an upload a `PUT` carries.
pub struct Part {
    pub id: UploadId,
    pub range: ContentRange,
    /// `None`: early, the device does not have it yet.
    pub prelude: Option<Prelude>,
}

/// `POST /offload` (without `id`) and `PUT /offload/{id}`.
pub async fn offload(
    shared: &Arc<Shared>,
    id: Option<&str>,
    query: Option<&str>,
    headers: &HeaderMap,
    device: DeviceId,
    mut body: RequestBody,
) -> Result<Taken, Problem> {
    let result = match announced(shared, id, query, headers, device) {
        Ok(announced) => match announced.vet(shared).await {
            Ok(()) => take(shared, announced, &mut body).await,
            Err(problem) => Err(problem),
        },
        Err(problem) => Err(problem),
    };
    body.linger_apart();
    result
}

fn announced(
    shared: &Shared,
    id: Option<&str>,
    query: Option<&str>,
    headers: &HeaderMap,
    device: DeviceId,
) -> Result<Announced, Problem> {
    let dest = shared.destinations.get().check(&dest_of(query)?)?;
    let length = content_length(headers)?;
    let part = id.map(|id| part(id, headers)).transpose()?;
    if !shared.early && part.as_ref().is_some_and(|part| part.prelude.is_none()) {
        return Err(early_problem("this gateway takes no records before the prelude"));
    }
    if let Some(Part { range: ContentRange { range, .. }, .. }) = &part
        && length.is_some_and(|length| length != range.len())
    {
        let detail = format!("Content-Range names {} bytes, Content-Length {}", range.len(), length.unwrap_or(0));
        return Err(Problem::new(Code::RangeInvalid, detail).field("Content-Range"));
    }
    let expects_continue = headers.contains_key(header::EXPECT);
    let (permit, deadline) = (permit(headers)?, deadline(headers)?);
    Ok(Announced { device, dest, permit, deadline, length, part, expects_continue })
}

/// The one `dest` of a query.
pub fn dest_of(query: Option<&str>) -> Result<String, Problem> {
    let pairs = url::form_urlencoded::parse(query.unwrap_or_default().as_bytes());
    let mut dests = pairs.filter(|(name, _)| name == "dest").map(|(_, value)| value.into_owned());
    match (dests.next(), dests.next()) {
        (Some(dest), None) => Ok(dest),
        (None, _) => Err(Problem::new(Code::DestMissing, "add ?dest= and the service's post URL").field("dest")),
        (Some(_), Some(_)) => Err(Problem::new(Code::DestInvalid, "`dest` is given twice").field("dest")),
    }
}

/// What `Hoop-Permit` says, if it is there.
pub fn permit(headers: &HeaderMap) -> Result<Option<Vec<u8>>, Problem> {
    let Some(value) = headers.get(status::PERMIT) else { return Ok(None) };
    let invalid = || Problem::new(Code::PermitInvalid, "Hoop-Permit is not base64url").field("Hoop-Permit");
    URL_SAFE_NO_PAD.decode(value.as_bytes()).map(Some).map_err(|_| invalid())
}

/// What `Hoop-Deadline` says, if it is there: until when the upload should be at its service, in seconds since 1970.
pub fn deadline(headers: &HeaderMap) -> Result<Option<UnixTime>, Problem> {
    let mut values = headers.get_all(status::DEADLINE).iter();
    let Some(value) = values.next() else { return Ok(None) };
    let digits = value.to_str().ok().filter(|text| text.bytes().all(|octet| octet.is_ascii_digit()));
    let seconds = digits.and_then(|text| text.parse().ok()).filter(|_| values.next().is_none());
    let detail = "Hoop-Deadline is one number of seconds since 1970";
    let invalid = || Problem::new(Code::RequestInvalid, detail).field("Hoop-Deadline");
    seconds.map(|seconds| Some(UnixTime(seconds))).ok_or_else(invalid)
}

/// An offer with the sender's deadline, which no later counts than the service would take the upload.
pub fn with_deadline(offer: Offer, deadline: Option<UnixTime>) -> Offer {
    let latest = offer.expires.plus_secs(KEEP_SECS);
    Offer { deadline: deadline.map(|deadline| deadline.min(latest)), ..offer }
}

pub fn content_length(headers: &HeaderMap) -> Result<Option<u64>, Problem> {
    let Some(value) = headers.get(header::CONTENT_LENGTH) else { return Ok(None) };
    let length = value.to_str().ok().and_then(|text| text.parse().ok());
    let invalid = || Problem::new(Code::RequestInvalid, "Content-Length is not a number").field("Content-Length");
    length.map(Some).ok_or_else(invalid)
}

/// What the path and the headers of a `PUT` say of its part.
pub fn part(id: &str, headers: &HeaderMap) -> Result<Part, Problem> {
    let id: UploadId = id.parse().map_err(|error| Problem::new(Code::RequestInvalid, error).field("id"))?;
    let text = |name: header::HeaderName| headers.get(name).and_then(|value| value.to_str().ok());
    let range = text(header::CONTENT_RANGE)
        .ok_or_else(|| Problem::new(Code::RangeInvalid, "Content-Range is missing").field("Content-Range"))?
        .parse::<ContentRange>()
        .map_err(|error| Problem::new(Code::RangeInvalid, error).field("Content-Range"))?;
    let prelude = match text(status::PRELUDE) {
        Some(prelude) => Some(
            Prelude::from_header(prelude)
                .map_err(|error| Problem::new(Code::BodyNotSealed, error).field("Hoop-Prelude"))?,
        ),
        // A boolean of RFC 9651 §3.3.6.
        None if text(status::EARLY).map(str::trim) == Some("?1") => None,
        None => return Err(Problem::new(Code::RequestInvalid, "Hoop-Prelude is missing").field("Hoop-Prelude")),
    };
    Ok(Part { id, range, prelude })
}

fn early_problem(detail: impl std::fmt::Display) -> Problem {
    Problem::new(Code::PreludeNeeded, detail).field("Hoop-Early")
}

/// Everything from the first byte of the body on.
async fn take(shared: &Arc<Shared>, announced: Announced, body: &mut RequestBody) -> Result<Taken, Problem> {
    let Announced { device, dest, permit, deadline, length, part, expects_continue } = announced;
    let mut frames = Frames::new(shared, body);
    let (offer, range) = match part {
        Some(part) => {
            let offer = match &part.prelude {
                Some(prelude) => sealed_offer(shared, prelude, Some(part.range.total), dest.url.clone())?,
                None => early_offer(shared, &part, dest.url.clone()),
            };
            if offer.id != part.id {
                let detail = format!("the ticket is for upload {}", offer.id);
                return Err(Problem::new(Code::RequestInvalid, detail).field("Hoop-Prelude"));
            }
            (offer, Some(part.range.range))
        }
        None => (sealed_offer(shared, &frames.prelude().await?, length, dest.url.clone())?, None),
    };
    let offer = with_deadline(Offer { device, ..offer }, deadline);
    let (total, prelude) = (offer.total, offer.prelude.clone());
    let layout = total.map(|total| layout(shared, total)).transpose()?;
    if let Some((layout, range)) = layout.zip(range) {
        check_range(layout, range, offer.is_early())?;
    }
    let (id, early) = (offer.id, offer.is_early());
    let offered = Offered { dest: &dest, device, id, total, early, permit: permit.as_deref() };
    let permit = door::consent(shared, &offered).await?;
    let valid = permit.map_or(offer.expires, |permit| permit.expires.min(offer.expires));
    let from = range.map_or(0, |range| range.start);
    let limit = range.map_or(total.unwrap_or(0), |range| range.end);
    // Who asked first is told by `begin` whether to send.
    if let Some(layout) = layout.filter(|_| !expects_continue)
        && let Some(short) = Short::of(shared, &mut frames, limit - from).await
    {
        return short.take(shared, offer, range, valid, layout).await;
    }
    let (begun, _promise) = begin(shared, offer, range, valid).await?;
    let intake = match begun {
        Begin::Take(intake) => intake,
        Begin::Complete(upload) => {
            // Some senders look for an answer only when they have sent all.
            frames.body.linger().await;
            return Taken::whole(&upload);
        }
    };
    let open_ended = total.is_none().then(|| OpenEnded::new(shared));
    let steps = layout.map(|layout| Steps::new(shared, layout, from));
    let mut sink = Sink::new(intake, prelude, from, limit);
    (sink.open_ended, sink.steps) = (open_ended, steps);
    let receiving = Receiving { shared: shared.clone(), sink: Some(sink), layout, from };
    receiving.run(frames).await
}

fn label(prelude: &Prelude) -> Result<TicketLabel, Problem> {
    if prelude.record_size() != RECORD_SIZE {
        let detail = format!("records have {RECORD_SIZE} bytes in every upload, not {}", prelude.record_size());
        return Err(Problem::new(Code::BodyNotSealed, detail));
    }
    TicketLabel::parse(prelude.key_id()).map_err(|error| Problem::new(Code::BodyNotSealed, error))
}

/// What a prelude says of its upload.
pub fn sealed_offer(shared: &Shared, prelude: &Prelude, total: Option<u64>, dest: String) -> Result<Offer, Problem> {
    let label = label(prelude)?;
    let expires = hoop_spool::ticket_end(label.expires, shared.clock.unix());
    let (device, deadline) = (DeviceId::UNKNOWN, None);
    Ok(Offer { id: label.upload_id, prelude: prelude.encode(), total, dest, expires, device, deadline })
}

/// What is known of an upload whose prelude is still to come.
fn early_offer(shared: &Shared, part: &Part, dest: String) -> Offer {
    let expires = shared.clock.unix().plus_secs(EARLY_SECS);
    let (device, deadline) = (DeviceId::UNKNOWN, None);
    Offer { id: part.id, prelude: Vec::new(), total: Some(part.range.total), dest, expires, device, deadline }
}

fn check_range(layout: Layout, range: ByteRange, early: bool) -> Result<(), Problem> {
    let Some((first, _)) = layout.records_of(range) else {
        let detail = format!("bytes {range} do not begin and end at borders of records");
        return Err(Problem::new(Code::RangeOffGrid, detail).field("Content-Range"));
    };
    match early && first == 0 {
        true => Err(early_problem("record 0 comes with the prelude; early ones are those after it")),
        false => Ok(()),
    }
}

pub fn layout(shared: &Shared, total: u64) -> Result<Layout, Problem> {
    if total > shared.max_upload_bytes {
        let detail = format!("{total} bytes; this gateway takes {} at most", shared.max_upload_bytes);
        return Err(Problem::new(Code::TooLarge, detail));
    }
    Layout::for_total(PRELUDE_LEN, RECORD_SIZE, total).map_err(|error| Problem::new(Code::BodyNotSealed, error))
}

/// A short body that is all here.
struct Short {
    octets: Vec<Bytes>,
    /// The memory that they take.
    _room: OwnedSemaphorePermit,
}

impl Short {
    /// What a body of `len` octets has, if it is short and all here, and not too much is held of others.
    async fn of(shared: &Arc<Shared>, frames: &mut Frames<'_>, len: u64) -> Option<Self> {
        let len = u32::try_from(len).ok().filter(|len| *len <= SHORT_BYTES)?;
        let room = shared.short_room.clone().try_acquire_many_owned(len).ok()?;
        frames.at_hand(len.into()).await.map(|octets| Self { octets, _room: room })
    }

    /// Begins, writes and records: one change of thread instead of two, and nobody else's transaction is waited for in between.
    async fn take(
        self,
        shared: &Arc<Shared>,
        offer: Offer,
        range: Option<ByteRange>,
        expires: UnixTime,
        layout: Layout,
    ) -> Result<Taken, Problem> {
        let own = shared.clone();
        let taken = shared.blocking(move |shared| {
            let range_or_all = range.unwrap_or(ByteRange::new(0, layout.total()));
            let (begun, _promise) = begin_now(shared, &offer, range, expires)?;
            let intake = match begun {
                Begin::Take(intake) => intake,
                Begin::Complete(upload) => return Taken::whole(&upload),
            };
            let sink = Sink::new(intake, offer.prelude, range_or_all.start, range_or_all.end);
            // Dropped with an error, it has the whole records recorded that came before.
            let mut receiving =
                Receiving { shared: own, sink: Some(sink), layout: Some(layout), from: range_or_all.start };
            let sink = receiving.sink.as_mut().expect("just made");
            self.octets.iter().try_for_each(|octets| sink.push(octets))?;
            sink.flush()?;
            let sink = receiving.sink.take().expect("nobody took it");
            record(shared, &sink.intake, range_or_all, layout.total()).map_err(commit_problem)
        });
        taken.await
    }
}

/// Begins an upload, or goes on with it, if its device and its time allow it. `expires` is the ticket's end, or its permit's if that is earlier.
pub async fn begin(
    shared: &Arc<Shared>,
    offer: Offer,
    range: Option<ByteRange>,
    expires: UnixTime,
) -> Result<(Begin, Promise), Problem> {
    shared.blocking(move |shared| begin_now(shared, &offer, range, expires)).await
}

/// The same, waiting for the disk here.
fn begin_now(
    shared: &Shared,
    offer: &Offer,
    range: Option<ByteRange>,
    expires: UnixTime,
) -> Result<(Begin, Promise), Problem> {
    let past = |life: u32| shared.clock.past(Duration::from_secs(life.into()));
    let begun = shared.spool.begin_if(offer, |upload, held_by| {
        let known = upload.is_some_and(|upload| !upload.is_early());
        if let Some(late) = hoop_spool::late_by(expires, known, past, shared.clock.sure()) {
            let detail = format!("it ended {late} s ago, by this gateway's clock");
            return Err(Refused::Here(Problem::new(Code::TicketExpired, detail)));
        }
        promised(shared, offer, range, upload, held_by)
    });
    begun.map_err(|refused| match refused {
        Refused::Here(problem) => problem,
        Refused::Spool(error) => begin_problem(error),
    })
}

/// Why an upload may not begin.
enum Refused {
    /// By this gateway's rules.
    Here(Problem),
    /// By the spool.
    Spool(BeginError),
}

impl From<BeginError> for Refused {
    fn from(error: BeginError) -> Self {
        Self::Spool(error)
    }
}

impl From<StoreError> for Refused {
    fn from(error: StoreError) -> Self {
        Self::Spool(error.into())
    }
}

fn begin_problem(error: BeginError) -> Problem {
    match error {
        BeginError::Full { need, free } => full_problem(format_args!("{need} bytes are needed, and {free} are free")),
        BeginError::NoFiles(_) => full_problem(error),
        BeginError::Conflict(what) => {
            let field = match what {
                "prelude" => "Hoop-Prelude",
                "total" => "Content-Range",
                _ => "dest",
            };
            Problem::new(Code::UploadConflict, error).field(field)
        }
        BeginError::TooManySpans(_) => Problem::new(Code::RangeTooMany, error),
        BeginError::TooManyEarly(_) | BeginError::NotBegunHere => early_problem(error),
        BeginError::Store(error) => store_problem(&error),
    }
}

/// Uploads of one device that wait for their preludes: a quarter of all ([`hoop_spool::EARLY_MAX`]), so that nobody has them alone.
const EARLY_OF_ONE: usize = hoop_spool::EARLY_MAX / 4;

/// Whether another upload may begin. They are counted only once as many have begun as there was room for when they were counted last.
fn has_place(shared: &Shared) -> Result<bool, StoreError> {
    let most = shared.max_uploads;
    let taken = shared.uploads_left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1));
    if most == 0 || taken.is_ok() {
        return Ok(true);
    }
    let under_way = shared.spool.tally()?.into_iter().filter(|(state, _)| !state.is_final());
    let left = most.saturating_sub(under_way.map(|(_, sum)| sum.uploads).sum());
    shared.uploads_left.store(left.saturating_sub(1), Ordering::Relaxed);
    Ok(left > 0)
}

/// What this device may still send.
fn promised(
    shared: &Shared,
    offer: &Offer,
    range: Option<ByteRange>,
    upload: Option<&Upload>,
    held_by: &HeldBy<'_>,
) -> Result<Promise, Refused> {
    let now = shared.clock.now();
    let is_new = upload.is_none();
    if is_new {
        shared.devices.begin(offer.device, now).map_err(Refused::Here)?;
    }
    // Without a length nothing is asked for yet ([`OpenEnded`]).
    let total = offer.total.or_else(|| upload.map(|upload| upload.total)).unwrap_or(0);
    let mut fresh: RangeSet = [range.unwrap_or(ByteRange::new(0, total))].into_iter().collect();
    upload.iter().flat_map(|upload| upload.stored.iter()).for_each(|span| fresh.remove(span));
    // Whose upload it is does not change with whoever sends the rest.
    let device = upload.map_or(offer.device, |upload| upload.device);
    let holding = match shared.devices.is_limited(device) {
        true => {
            let held = held_by(device)?;
            if is_new && offer.is_early() && held.early >= EARLY_OF_ONE {
                return Err(Refused::Here(early_problem(
                    "this device has many uploads here that wait for their preludes",
                )));
            }
            holding(shared, &held)?
        }
        false => Holding { uploads: 0, bytes: 0, away: 0, room: u64::MAX },
    };
    let is_whole = upload.is_some_and(|upload| upload.state.is_whole());
    let need = Need { bytes: if is_whole { 0 } else { fresh.len() }, is_new };
    if is_new && !has_place(shared)? {
        let detail = format!("{} uploads are here, and no more are taken", shared.max_uploads);
        return Err(Refused::Here(full_problem(detail)));
    }
    shared.devices.promise(device, holding, need, now).map_err(|why| Refused::Here(full_problem(why)))
}

/// What a device has here, against all that the spool can hold.
pub fn holding(shared: &Shared, held: &Held) -> Result<Holding, StoreError> {
    let room = shared.spool.kept_bytes().saturating_add(shared.spool.free_bytes()?);
    Ok(Holding { uploads: held.uploads, bytes: held.bytes, away: held.away, room })
}

/// A body that is coming in. Whatever becomes of its request, its whole records are recorded: also if the server drops it because the
/// sender has gone.
struct Receiving {
    shared: Arc<Shared>,
    /// `None` once it is being recorded.
    sink: Option<Sink>,
    layout: Option<Layout>,
    from: u64,
}

impl Receiving {
    /// Reads the body to its end and records what came, whole or not.
    async fn run(mut self, mut frames: Frames<'_>) -> Result<Taken, Problem> {
        let sink = self.sink.as_mut().expect("it is recorded once, below");
        let pumped = sink.pump(&mut frames).await;
        // What broke off is written out just the same.
        let ended = sink.flush().and(pumped);
        let (end, limit, open_ended) = (sink.written(), sink.limit, sink.open_ended.is_some());
        let layout = match (self.layout, open_ended && ended.is_ok()) {
            (Some(layout), _) => layout,
            // Only now is it known how long it is.
            (None, true) => {
                let found = Layout::for_total(PRELUDE_LEN, RECORD_SIZE, end);
                found.map_err(|error| Problem::new(Code::BodyNotSealed, error))?
            }
            // Broken off, and nobody knows of how much: such a body cannot be resumed.
            (None, false) => {
                self.let_go().await;
                return ended.and(Err(truncated(end, None)));
            }
        };
        let ended =
            ended.and_then(|()| if end < limit && !open_ended { Err(truncated(end, Some(limit))) } else { Ok(()) });
        let kept = whole_records(layout, ByteRange::new(self.from, end.max(self.from)));
        let total = layout.total();
        let committed = match (kept, self.sink.take()) {
            (Some(range), Some(sink)) => commit(&self.shared, sink.intake, range, total).await.map(Some),
            (None, sink) => {
                self.sink = sink;
                self.let_go().await;
                Ok(None)
            }
            (Some(_), None) => Ok(None),
        };
        ended?;
        match committed? {
            Some(taken) => Ok(taken),
            None => Err(truncated(end, Some(total))),
        }
    }
}

impl Receiving {
    /// Gives back what is not to be recorded, which may take as long as the disk does.
    async fn let_go(&mut self) {
        let Some(sink) = self.sink.take() else { return };
        self.shared.blocking(move |_| drop(sink)).await;
    }
}

impl Drop for Receiving {
    fn drop(&mut self) {
        let Some(mut sink) = self.sink.take() else { return };
        // Should this fail, what was not written is what the sender sends again.
        let _ = sink.flush();
        let came = ByteRange::new(self.from, sink.written().max(self.from));
        let kept = self.layout.and_then(|layout| Some((whole_records(layout, came)?, layout.total())));
        let (shared, intake) = (self.shared.clone(), sink.intake);
        tokio::task::spawn_blocking(move || {
            if let Some((range, total)) = kept
                && let Err(error) = record(&shared, &intake, range, total)
            {
                tracing::debug!(%error, "the records of a sender that has gone were not recorded");
            }
        });
    }
}

fn truncated(end: u64, expected: Option<u64>) -> Problem {
    let detail = match expected {
        Some(expected) => format!("it ended at byte {end} of {expected}; whole records before that are kept"),
        None => {
            format!("it ended at byte {end}, and its length is not known; send Content-Length to be able to resume")
        }
    };
    Problem::new(Code::BodyTruncated, detail)
}

/// The part of `range` that is whole records, if any. `range` starts at a border.
pub fn whole_records(layout: Layout, range: ByteRange) -> Option<ByteRange> {
    if range.end == layout.total() {
        return Some(range);
    }
    let record = layout.record_at(range.end)?;
    let end = layout.record(record).start;
    (end > range.start && end > layout.prelude_len()).then(|| ByteRange::new(range.start, end))
}

/// Waits until `range` is on disk and recorded, and tells delivery that there is more.
pub fn record(shared: &Shared, intake: &Intake, range: ByteRange, total: u64) -> Result<Taken, CommitError> {
    intake.set_total(total)?;
    let (state, stored) = match intake.commit(range, shared.clock.unix()) {
        Ok(state) => (state, intake.stored()),
        // Another sender completed it while this one was still sending, or the service has it by another way.
        Err(CommitError::Ended(state)) if given_up(state, None).is_none() => {
            (state, [ByteRange::new(0, total)].into_iter().collect())
        }
        Err(error) => return Err(error),
    };
    if state == State::Stored && shared.progress.running().contains(&intake.id()) {
        // Some of it is on its way already: the attempt that sends it began before all was here.
        let change = Change { state: Some(State::Delivering), ..Change::default() };
        shared.spool.change(intake.id(), &change, shared.clock.unix())?;
    }
    if shared.cut_through || state != State::Receiving {
        shared.stored.notify_one();
    }
    shared.committed.notify_waiters();
    Ok(Taken { id: intake.id(), state, total, stored })
}

async fn commit(shared: &Arc<Shared>, intake: Intake, range: ByteRange, total: u64) -> Result<Taken, Problem> {
    let committed = shared.blocking(move |shared| record(shared, &intake, range, total)).await;
    committed.map_err(commit_problem)
}

/// Why what has come could not be recorded, for its sender.
pub fn commit_problem(error: CommitError) -> Problem {
    match error {
        CommitError::Full => full_problem("the disk became full"),
        CommitError::Ended(state) if let Some(problem) = given_up(state, None) => problem,
        error @ (CommitError::Ended(_) | CommitError::Conflict(_)) => Problem::new(Code::UploadConflict, error),
        error @ CommitError::TooManySpans(_) => Problem::new(Code::RangeTooMany, error),
        error @ CommitError::NotWritten => {
            tracing::error!(%error, "an intake lost count");
            Problem::new(Code::Internal, error)
        }
        CommitError::Store(error) => store_problem(&error),
    }
}
