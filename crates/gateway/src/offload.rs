//! Taking an upload from a device: `POST /offload`, `PUT /offload/{id}`.
//!
//! Frames of the body go to the file as they come, by a plain `pwrite` from the connection's own task: into the page
//! cache, without a copy of ours and without a change of thread. Two steps wait for the disk and are done where they may:
//! beginning, and the sync and index commit at the end. A 2xx is sent after the second.
//!
//! What is checked is form: the prelude and the ticket's label parse, the lengths are those of a sealed body, ranges are cut
//! at record borders. What the records hold is for the service to check; this gateway could not.

use crate::shared::{IDLE_TIMEOUT, Shared, full_problem, store_problem};
use crate::status;
use bytes::{Bytes, BytesMut};
use hoop_http::{Code, Problem};
use hoop_seal::{Layout, Prelude, PreludeError, RECORD_SIZE, TicketLabel};
use hoop_spool::{Begin, BeginError, CommitError, Intake, KEEP_SECS, Offer, State, Upload, WriteError};
use hoop_units::{ByteRange, ContentRange, RangeSet, UploadId};
use http::{HeaderMap, header};
use http_body_util::BodyExt as _;
use hyper::body::Incoming;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::{Instant, timeout};

/// A ticket's time may be off by so much, in seconds (`docs/protocol.md` §2).
const GRACE_SECS: u32 = 300;

/// Frames below this are collected before they are written: a sender's 1 KiB chunks must not cost a system call each.
const WRITE_BYTES: usize = 64 * 1024;

/// After a refusal so much of the body is still read, and for so long, so that the answer is not lost in a reset
/// connection.
const LINGER_BYTES: u64 = 16 << 20;
const LINGER_TIME: Duration = Duration::from_secs(5);

/// What became of a request that took bytes.
pub struct Taken {
    pub id: UploadId,
    pub state: State,
    pub total: u64,
    pub stored: RangeSet,
}

impl Taken {
    fn of(upload: &Upload) -> Self {
        Self { id: upload.id, state: upload.state, total: upload.total, stored: upload.stored.clone() }
    }
}

/// What a request says of itself before its body comes.
struct Announced {
    dest: String,
    /// `Content-Length`.
    length: Option<u64>,
    /// Of a `PUT`.
    part: Option<Part>,
}

struct Part {
    id: UploadId,
    range: ContentRange,
    prelude: Prelude,
}

/// `POST /offload` (without `id`) and `PUT /offload/{id}`.
pub async fn offload(
    shared: &Arc<Shared>,
    id: Option<&str>,
    query: Option<&str>,
    headers: &HeaderMap,
    mut body: Incoming,
) -> Result<Taken, Problem> {
    let result = match announced(shared, id, query, headers) {
        Ok(announced) => take(shared, announced, &mut body).await,
        Err(problem) => Err(problem),
    };
    if result.is_err() {
        tokio::spawn(linger(body));
    }
    result
}

fn announced(
    shared: &Shared,
    id: Option<&str>,
    query: Option<&str>,
    headers: &HeaderMap,
) -> Result<Announced, Problem> {
    let dest = shared.destinations.check(&dest_of(query)?)?;
    if let Some(why) = shared.well_known.refusal(&dest) {
        return Err(Problem::new(Code::DestNotHoop, why).field("dest"));
    }
    let length = content_length(headers)?;
    let part = id.map(|id| part(id, headers)).transpose()?;
    if let Some(Part { range: ContentRange { range, .. }, .. }) = &part
        && length.is_some_and(|length| length != range.len())
    {
        let detail = format!("Content-Range names {} bytes, Content-Length {}", range.len(), length.unwrap_or(0));
        return Err(Problem::new(Code::RangeInvalid, detail).field("Content-Range"));
    }
    Ok(Announced { dest: dest.url, length, part })
}

fn dest_of(query: Option<&str>) -> Result<String, Problem> {
    let pairs = url::form_urlencoded::parse(query.unwrap_or_default().as_bytes());
    let mut dests = pairs.filter(|(name, _)| name == "dest").map(|(_, value)| value.into_owned());
    match (dests.next(), dests.next()) {
        (Some(dest), None) => Ok(dest),
        (None, _) => Err(Problem::new(Code::DestMissing, "add ?dest= and the service's post URL").field("dest")),
        (Some(_), Some(_)) => Err(Problem::new(Code::DestInvalid, "`dest` is given twice").field("dest")),
    }
}

fn content_length(headers: &HeaderMap) -> Result<Option<u64>, Problem> {
    let Some(value) = headers.get(header::CONTENT_LENGTH) else { return Ok(None) };
    let length = value.to_str().ok().and_then(|text| text.parse().ok());
    let invalid = || Problem::new(Code::RequestInvalid, "Content-Length is not a number").field("Content-Length");
    length.map(Some).ok_or_else(invalid)
}

fn part(id: &str, headers: &HeaderMap) -> Result<Part, Problem> {
    let id: UploadId = id.parse().map_err(|error| Problem::new(Code::RequestInvalid, error).field("id"))?;
    let text = |name: header::HeaderName| headers.get(name).and_then(|value| value.to_str().ok());
    let range = text(header::CONTENT_RANGE)
        .ok_or_else(|| Problem::new(Code::RangeInvalid, "Content-Range is missing").field("Content-Range"))?
        .parse::<ContentRange>()
        .map_err(|error| Problem::new(Code::RangeInvalid, error).field("Content-Range"))?;
    let prelude = text(status::PRELUDE)
        .ok_or_else(|| Problem::new(Code::RequestInvalid, "Hoop-Prelude is missing").field("Hoop-Prelude"))?;
    let prelude = Prelude::from_header(prelude)
        .map_err(|error| Problem::new(Code::BodyNotSealed, error).field("Hoop-Prelude"))?;
    Ok(Part { id, range, prelude })
}

/// Everything from the first byte of the body on.
async fn take(shared: &Arc<Shared>, announced: Announced, body: &mut Incoming) -> Result<Taken, Problem> {
    let Announced { dest, length, part } = announced;
    let mut frames = Frames { body, ahead: None };
    let (prelude, range, total) = match part {
        Some(part) => {
            let label = label(&part.prelude)?;
            if label.upload_id != part.id {
                let detail = format!("the ticket is for upload {}", label.upload_id);
                return Err(Problem::new(Code::RequestInvalid, detail).field("Hoop-Prelude"));
            }
            (part.prelude, Some(part.range.range), Some(part.range.total))
        }
        None => (frames.prelude().await?, None, length),
    };
    let label = label(&prelude)?;
    let layout = total.map(|total| layout(shared, &prelude, total)).transpose()?;
    if let Some((layout, range)) = layout.zip(range)
        && layout.records_of(range).is_none()
    {
        let detail = format!("bytes {range} do not begin and end at borders of records");
        return Err(Problem::new(Code::RangeOffGrid, detail).field("Content-Range"));
    }
    let offer = Offer { id: label.upload_id, prelude: prelude.encode(), total, dest, expires: label.expires };
    let intake = match begin(shared, offer).await? {
        Begin::Take(intake) => intake,
        Begin::Complete(upload) => {
            frames.drain(upload.total).await;
            return Ok(Taken::of(&upload));
        }
    };
    let from = range.map_or(0, |range| range.start);
    let limit = range.map_or(total.unwrap_or(shared.max_upload_bytes), |range| range.end);
    let open_ended = total.is_none();
    let sink = Sink { intake, prelude: prelude.encode(), at: from, limit, open_ended, collected: BytesMut::new() };
    receive(shared, sink, frames, layout, from).await
}

fn label(prelude: &Prelude) -> Result<TicketLabel, Problem> {
    if prelude.record_size() != RECORD_SIZE {
        let detail = format!("records have {RECORD_SIZE} bytes in every upload, not {}", prelude.record_size());
        return Err(Problem::new(Code::BodyNotSealed, detail));
    }
    TicketLabel::parse(prelude.key_id()).map_err(|error| Problem::new(Code::BodyNotSealed, error))
}

fn layout(shared: &Shared, prelude: &Prelude, total: u64) -> Result<Layout, Problem> {
    if total > shared.max_upload_bytes {
        let detail = format!("{total} bytes; this gateway takes {} at most", shared.max_upload_bytes);
        return Err(Problem::new(Code::TooLarge, detail));
    }
    Layout::for_total(prelude.len(), RECORD_SIZE, total).map_err(|error| Problem::new(Code::BodyNotSealed, error))
}

async fn begin(shared: &Arc<Shared>, offer: Offer) -> Result<Begin, Problem> {
    let now = shared.clock.unix();
    let expires = offer.expires;
    let begun = shared.blocking(move |shared| {
        // An upload that was begun in time may end late; a new one may not begin.
        let known = shared.spool.get(offer.id)?.is_some();
        let last = expires.plus_secs(if known { KEEP_SECS } else { GRACE_SECS });
        if now > last { Ok(None) } else { shared.spool.begin(&offer).map(Some) }
    });
    match begun.await {
        Ok(Some(begun)) => Ok(begun),
        Ok(None) => {
            let detail = format!("it ended {} s ago, by this gateway's clock", now.since(expires));
            Err(Problem::new(Code::TicketExpired, detail))
        }
        Err(BeginError::Full { need, free }) => {
            Err(full_problem(format_args!("{need} bytes are needed, and {free} are free")))
        }
        Err(error @ BeginError::Conflict(what)) => {
            let field = match what {
                "prelude" => "Hoop-Prelude",
                "total" => "Content-Range",
                _ => "dest",
            };
            Err(Problem::new(Code::UploadConflict, error).field(field))
        }
        Err(error @ BeginError::TooManySpans(_)) => Err(Problem::new(Code::RangeTooMany, error)),
        Err(BeginError::Store(error)) => Err(store_problem(&error)),
    }
}

/// Reads the body to its end and records what came, whole or not.
async fn receive(
    shared: &Arc<Shared>,
    mut sink: Sink,
    mut frames: Frames<'_>,
    layout: Option<Layout>,
    from: u64,
) -> Result<Taken, Problem> {
    let pumped = sink.pump(&mut frames).await;
    // What broke off is written out just the same.
    let ended = sink.flush().and(pumped);
    let (end, open_ended) = (sink.written(), sink.open_ended);
    let layout = match (layout, open_ended && ended.is_ok()) {
        (Some(layout), _) => layout,
        // Only now is it known how long it is.
        (None, true) => {
            let prelude_len = sink.prelude.len();
            let found = Layout::for_total(prelude_len, RECORD_SIZE, end);
            found.map_err(|error| Problem::new(Code::BodyNotSealed, error))?
        }
        // Broken off, and nobody knows of how much: such a body cannot be resumed.
        (None, false) => return ended.and(Err(truncated(end, None))),
    };
    let ended = ended
        .and_then(|()| if end < sink.limit && !open_ended { Err(truncated(end, Some(sink.limit))) } else { Ok(()) });
    let kept = whole_records(layout, ByteRange::new(from, end.max(from)));
    let total = layout.total();
    let committed = match kept {
        Some(range) => commit(shared, sink.intake, range, total).await,
        None => Ok(None),
    };
    ended?;
    match committed? {
        Some(taken) => Ok(taken),
        None => Err(truncated(end, Some(total))),
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
fn whole_records(layout: Layout, range: ByteRange) -> Option<ByteRange> {
    if range.end == layout.total() {
        return Some(range);
    }
    let record = layout.record_at(range.end)?;
    let end = layout.record(record).start;
    (end > range.start && end > layout.prelude_len()).then(|| ByteRange::new(range.start, end))
}

async fn commit(shared: &Arc<Shared>, intake: Intake, range: ByteRange, total: u64) -> Result<Option<Taken>, Problem> {
    let committed = shared.blocking(move |shared| {
        intake.set_total(total)?;
        let (state, stored) = match intake.commit(range, shared.clock.unix()) {
            Ok(state) => (state, intake.stored()),
            // Another sender completed it while this one was still sending.
            Err(CommitError::Ended(state)) => (state, [ByteRange::new(0, total)].into_iter().collect()),
            Err(error) => return Err(error),
        };
        if state == State::Stored {
            shared.stored.notify_one();
        }
        Ok(Taken { id: intake.offer().id, state, total, stored })
    });
    match committed.await {
        Ok(taken) => Ok(Some(taken)),
        Err(CommitError::Full) => Err(full_problem("the disk became full")),
        Err(error @ CommitError::Ended(_)) => Err(Problem::new(Code::UploadConflict, error)),
        Err(error @ CommitError::Conflict(_)) => Err(Problem::new(Code::UploadConflict, error)),
        Err(error @ CommitError::TooManySpans(_)) => Err(Problem::new(Code::RangeTooMany, error)),
        Err(error @ CommitError::NotWritten) => {
            tracing::error!(%error, "an intake lost count");
            Err(Problem::new(Code::Internal, error))
        }
        Err(CommitError::Store(error)) => Err(store_problem(&error)),
    }
}

/// Where the body's bytes go.
struct Sink {
    intake: Intake,
    prelude: Vec<u8>,
    /// Where the next byte belongs.
    at: u64,
    /// Where the last byte that may come belongs, and one.
    limit: u64,
    /// Whether `limit` is only the most that is taken, because the sender did not tell its length.
    open_ended: bool,
    /// Small frames, to be written together: the bytes before `at`.
    collected: BytesMut,
}

impl Sink {
    async fn pump(&mut self, frames: &mut Frames<'_>) -> Result<(), Problem> {
        while let Some(bytes) = frames.next().await? {
            self.push(&bytes)?;
        }
        Ok(())
    }

    fn push(&mut self, bytes: &Bytes) -> Result<(), Problem> {
        if self.at + bytes.len() as u64 > self.limit {
            let code = if self.open_ended { Code::TooLarge } else { Code::RangeInvalid };
            return Err(Problem::new(code, format!("more bytes came than the {} that may", self.limit)));
        }
        self.compare_prelude(bytes)?;
        if self.collected.is_empty() && bytes.len() >= WRITE_BYTES {
            self.intake.write_at(self.at, bytes).map_err(write_problem)?;
            self.at += bytes.len() as u64;
            return Ok(());
        }
        self.at += bytes.len() as u64;
        self.collected.extend_from_slice(bytes);
        if self.collected.len() >= WRITE_BYTES { self.flush() } else { Ok(()) }
    }

    /// A range from 0 repeats the prelude; another one there would be dropped unseen.
    fn compare_prelude(&self, bytes: &[u8]) -> Result<(), Problem> {
        let Some(expected) = usize::try_from(self.at).ok().and_then(|at| self.prelude.get(at..)) else { return Ok(()) };
        let common = expected.len().min(bytes.len());
        if expected[..common] != bytes[..common] {
            let detail = "the body's first bytes differ from Hoop-Prelude";
            return Err(Problem::new(Code::BodyNotSealed, detail).field("Hoop-Prelude"));
        }
        Ok(())
    }

    fn flush(&mut self) -> Result<(), Problem> {
        if self.collected.is_empty() {
            return Ok(());
        }
        self.intake.write_at(self.written(), &self.collected).map_err(write_problem)?;
        self.collected.clear();
        Ok(())
    }

    /// Up to where everything is in the file.
    fn written(&self) -> u64 {
        self.at - self.collected.len() as u64
    }
}

fn write_problem(error: WriteError) -> Problem {
    match error {
        WriteError::Full => full_problem("the disk became full; what came before is kept"),
        WriteError::PastTotal { .. } => Problem::new(Code::RangeInvalid, error).field("Content-Range"),
        WriteError::Store(error) => store_problem(&error),
    }
}

/// A body's frames, with a limit to how long each may stay away.
struct Frames<'a> {
    body: &'a mut Incoming,
    /// Read while looking for the prelude.
    ahead: Option<Bytes>,
}

impl Frames<'_> {
    /// The next bytes; `None` at the end. A body that breaks off is an error.
    async fn next(&mut self) -> Result<Option<Bytes>, Problem> {
        if let Some(ahead) = self.ahead.take() {
            return Ok(Some(ahead));
        }
        loop {
            match timeout(IDLE_TIMEOUT, self.body.frame()).await {
                Ok(None) => return Ok(None),
                Ok(Some(Ok(frame))) => {
                    if let Ok(bytes) = frame.into_data() {
                        return Ok(Some(bytes));
                    }
                }
                Ok(Some(Err(error))) => return Err(Problem::new(Code::BodyTruncated, error)),
                Err(_) => {
                    let detail = format!("nothing came for {} s; whole records are kept", IDLE_TIMEOUT.as_secs());
                    return Err(Problem::new(Code::RequestTimeout, detail));
                }
            }
        }
    }

    /// Reads on until the prelude is there; its bytes come again from [`Frames::next`].
    async fn prelude(&mut self) -> Result<Prelude, Problem> {
        let mut seen = Bytes::new();
        loop {
            let error = match Prelude::parse(&seen) {
                Ok(prelude) => {
                    self.ahead = Some(seen);
                    return Ok(prelude);
                }
                Err(error @ PreludeError::Incomplete { .. }) => error,
                Err(error) => return Err(Problem::new(Code::BodyNotSealed, error)),
            };
            match self.next().await? {
                Some(bytes) if seen.is_empty() => seen = bytes,
                Some(bytes) => seen = [seen, bytes].concat().into(),
                None => return Err(Problem::new(Code::BodyNotSealed, error)),
            }
        }
    }

    /// Reads and drops what a sender sends again.
    async fn drain(&mut self, limit: u64) {
        let mut read = 0;
        while let Ok(Some(bytes)) = self.next().await {
            read += bytes.len() as u64;
            if read > limit {
                return;
            }
        }
    }
}

/// Reads on for a while after a refusal, so that the sender gets to see it.
async fn linger(mut body: Incoming) {
    let until = Instant::now() + LINGER_TIME;
    let mut read = 0;
    while let Ok(Some(Ok(frame))) = tokio::time::timeout_at(until, body.frame()).await {
        read += frame.data_ref().map_or(0, Bytes::len) as u64;
        if read > LINGER_BYTES {
            return;
        }
    }
}
