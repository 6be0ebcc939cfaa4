//! One message of sealed bytes comes in: a whole Z, or a range of one (`docs/protocol.md` §5). Authority comes from the seal alone.
//!
//! Promises: an accepted message is opened, written and synced. A message that breaks off, or has a bad record, keeps
//! the complete records before that, even if its sender has gone away.
//!
//! Bounds: [`BATCH`] bytes of each message in memory.

use super::Receive;
use super::arrival::Arrival;
use super::in_flight::{Entered, refused};
use super::intakes::Slot;
use super::source::Source;
use crate::model::{Payer, Upload};
use crate::policy::Policy;
use crate::policy::admit::Admission;
use crate::store::{blocking, store_problem};
use hoop_http::{Code, Problem};
use hoop_seal::{Layout, Prelude, PreludeError};
use hoop_units::{ByteRange, ContentRange, UploadId};
use http::{HeaderMap, header};
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// Records that are opened and written in one go: as much as the server's read buffer holds.
const BATCH_RECORDS: u64 = 4;

/// [`BATCH_RECORDS`] in bytes.
const BATCH: usize = BATCH_RECORDS as usize * hoop_seal::RECORD_SIZE as usize;

/// A message is synced after each so many bytes: a crash then costs some seconds at 10 Mbit/s.
const CHECKPOINT: u64 = 16 << 20;

/// How long an upload may come in before the index knows of it. It is noted with the next [`BATCH`], and its owner can
/// then see, pause and stop it.
const HIDDEN_MAX: Duration = Duration::from_secs(1);

/// How long the first bytes of a whole Z, its prelude, may take: as a request's head.
const PRELUDE_TIMEOUT: Duration = Duration::from_secs(15);

/// Why a message is refused, and how its upload stands if that is known.
pub type Refusal = (Problem, Option<Upload>);

/// What came of noting a message's records.
type Flushed = Result<Option<Upload>, Problem>;

/// Accepts a message in a task of its own. The server drops the handler of a sender that has gone away, at any point.
/// What was written must be noted all the same, and the worker told. The task ends when the message's body does.
pub async fn accept_apart(
    receive: Arc<Receive>,
    headers: HeaderMap,
    mut source: Source,
    sender: IpAddr,
    id: Option<UploadId>,
    slot: Slot,
) -> (Result<Upload, Refusal>, Option<Source>) {
    let task = tokio::spawn(async move {
        let answer = accept(&receive, &headers, &mut source, sender, id).await;
        source.leaves_place();
        drop(slot);
        (answer, Some(source))
    });
    let broken = |_| (Err((Problem::new(Code::Internal, "the message could not be taken"), None)), None);
    task.await.unwrap_or_else(broken)
}

async fn accept(
    receive: &Arc<Receive>,
    headers: &HeaderMap,
    source: &mut Source,
    sender: IpAddr,
    id: Option<UploadId>,
) -> Result<Upload, Refusal> {
    let alone = |problem| (problem, None);
    let message = match id {
        Some(id) => Message::range(&receive.context.policy(), headers, id),
        None => Message::whole(receive, headers, source).await,
    };
    let mut message = message.map_err(alone)?;
    let admission = message.admission.take().expect("each message is made with one");
    receive
        .context
        .permits()
        .check_sender(&receive.context.policy(), headers, admission.id(), receive.context.clock.wall_unix())
        .map_err(alone)?;
    let sender = Payer::at(&receive.context.policy(), sender);
    let says_whose = records(&admission.layout, message.range).map_err(alone)?.0 == 0;
    let entering = receive.in_flight.enter(&receive.context, &receive.room, admission, sender, says_whose);
    let arrival = match entering.await.map_err(alone)? {
        Entered::Open(arrival) => arrival,
        Entered::Known(upload) => return Ok(*upload),
    };
    let before = arrival.come();
    let (taken, flushed) = message.take(receive, &arrival, source).await;
    // Also after a failure: complete records are kept.
    let upload = match flushed {
        Some(flushed) => flushed,
        None => arrival.flush(&receive.context, &receive.room).await,
    };
    let upload = upload.map_err(alone)?;
    arrival.rest(&receive.room, before);
    match (taken, upload) {
        (Ok(bytes), Some(upload)) => {
            receive.counters.messages.fetch_add(1, Ordering::Relaxed);
            receive.counters.bytes.fetch_add(bytes, Ordering::Relaxed);
            Ok(upload)
        }
        (Ok(_), None) => Err(alone(Problem::new(Code::Internal, "nothing was received"))),
        (Err(problem), upload) => Err((problem, upload)),
    }
}

/// What the headers of `PUT /hoop/post/{id}` say of their message: its upload, and which range of it comes.
///
/// # Errors
/// What is wrong with them.
pub fn range(policy: &Policy, headers: &HeaderMap, id: UploadId) -> Result<(Admission, ByteRange), Problem> {
    let message = Message::range(policy, headers, id)?;
    Ok((message.admission.expect("each message is made with one"), message.range))
}

/// One message's place in its upload.
struct Message {
    admission: Option<Admission>,
    /// The bytes of Z that it carries.
    range: ByteRange,
    /// What was read beyond the prelude while looking for that.
    ahead: Vec<u8>,
    /// Bytes of the prelude that are still to come.
    prelude: Vec<u8>,
}

impl Message {
    /// A whole Z: the prelude is read from its beginning.
    async fn whole(receive: &Receive, headers: &HeaderMap, source: &mut Source) -> Result<Self, Problem> {
        let total = content_length(headers)?;
        let limit = receive.context.policy().max_bytes;
        if total > limit {
            return Err(Problem::new(Code::TooLarge, format!("{total} bytes, and at most {limit} are taken")));
        }
        let mut bytes = Vec::new();
        let reading = read_prelude(source, &mut bytes);
        let Ok(prelude) = tokio::time::timeout(PRELUDE_TIMEOUT, reading).await else {
            source.give_up();
            return Err(Problem::new(Code::RequestTimeout, "the prelude did not come in 15 s"));
        };
        let prelude = prelude?;
        let ahead = bytes.split_off(prelude.len());
        let admission = Some(Admission::new(&receive.context.policy(), prelude, total)?);
        Ok(Self { admission, range: ByteRange::new(0, total), ahead, prelude: Vec::new() })
    }

    /// A range: the prelude stands in a header.
    fn range(policy: &Policy, headers: &HeaderMap, id: UploadId) -> Result<Self, Problem> {
        let length = content_length(headers)?;
        let range = text(headers, "Content-Range")?.parse::<ContentRange>();
        let ContentRange { range, total } =
            range.map_err(|error| Problem::new(Code::RangeInvalid, error).field("Content-Range"))?;
        if length != range.len() {
            let detail = format!("the range has {} bytes, and the body {length}", range.len());
            return Err(Problem::new(Code::RangeInvalid, detail).field("Content-Length"));
        }
        let prelude = Prelude::from_header(text(headers, "Hoop-Prelude")?)
            .map_err(|error| Problem::new(Code::BodyNotSealed, error).field("Hoop-Prelude"))?;
        let repeated = if range.start == 0 { prelude.encode() } else { Vec::new() };
        let admission = Admission::new(policy, prelude, total)?;
        if admission.id() != id {
            let detail = format!("the prelude is of upload {}", admission.id());
            return Err(Problem::new(Code::RequestInvalid, detail).field("Hoop-Prelude"));
        }
        records(&admission.layout, range)?;
        Ok(Self { admission: Some(admission), range, ahead: Vec::new(), prelude: repeated })
    }

    /// Takes the message's records as they come, and tells how many bytes those are. If the last of them were noted, too, the second value says what came of that.
    async fn take(
        self,
        receive: &Arc<Receive>,
        arrival: &Arc<Arrival>,
        source: &mut Source,
    ) -> (Result<u64, Problem>, Option<Flushed>) {
        let mut flushed = None;
        let taken = self.take_all(receive, arrival, source, &mut flushed).await;
        (taken, flushed)
    }

    async fn take_all(
        self,
        receive: &Arc<Receive>,
        arrival: &Arc<Arrival>,
        source: &mut Source,
        flushed: &mut Option<Flushed>,
    ) -> Result<u64, Problem> {
        let (mut index, end) = records(&arrival.admission.layout, self.range)?;
        let (mut buffer, mut prelude) = (self.ahead, self.prelude);
        buffer.reserve(BATCH.min(usize::try_from(self.range.len()).unwrap_or(BATCH)));
        // The prelude has come, or comes before the first record.
        let mut bytes = arrival.admission.layout.record(index).start - self.range.start;
        let (begun, mut since_checkpoint) = (Instant::now(), 0);
        while index < end {
            let last = (index + BATCH_RECORDS).min(end) - 1;
            let layout = &arrival.admission.layout;
            let wanted = (layout.record(last).end - layout.record(index).start) as usize;
            // A slow sender would keep a stopped upload's file open, which is deleted and takes its room still.
            let filled = tokio::select! {
                filled = fill(source, &mut buffer, &mut prelude, wanted) => filled,
                code = arrival.until_halted() => Err(refused(code, 0)),
            };
            // What came last is kept of one that is paused. The others need nothing more.
            match arrival.halted() {
                None | Some(Code::UploadPaused) => {}
                Some(Code::UploadDone) => return Ok(bytes),
                Some(code) => return Err(refused(code, 0)),
            }
            let broken = filled.err();
            let (next, len) = whole(&arrival.admission.layout, index, end, buffer.len());
            let rest = buffer.split_off(len);
            let batch = std::mem::replace(&mut buffer, rest);
            (bytes, since_checkpoint) = (bytes + len as u64, since_checkpoint + len as u64);
            let payer = if index == 0 { arrival.payer_in(&receive.context.policy(), &batch) } else { None };
            arrival.need_room(&receive.room, len as u64, payer).await?;
            let is_last = next == end || broken.is_some();
            let (receiver, arriving) = (receive.clone(), arrival.clone());
            let taken = blocking(move || receiver.take(&arriving, index, &batch, is_last))
                .await
                .map_err(|error| store_problem(error.into()))?;
            *flushed = taken.1;
            taken.0?;
            match arrival.halted() {
                None => {}
                Some(Code::UploadDone) => return Ok(bytes),
                Some(code) => return Err(refused(code, 0)),
            }
            index = next;
            if let Some(problem) = broken {
                return Err(problem);
            }
            let is_hidden = !arrival.is_noted() && begun.elapsed() >= HIDDEN_MAX;
            if (since_checkpoint >= CHECKPOINT || is_hidden) && index < end {
                arrival.flush(&receive.context, &receive.room).await?;
                since_checkpoint = 0;
            }
        }
        Ok(bytes)
    }
}

impl Receive {
    /// Opens and writes a batch of records, and notes them if they are a message's last. Blocking.
    fn take(
        &self,
        arrival: &Arrival,
        first: u64,
        batch: &[u8],
        is_last: bool,
    ) -> (Result<(), Problem>, Option<Flushed>) {
        let taken = arrival.take(&self.context.policy(), &self.context.store, first, batch);
        if taken.as_ref().is_ok_and(|new| *new > 0) {
            self.room.touch(arrival.admission.id());
        }
        (taken.map(drop), is_last.then(|| arrival.flush_now(&self.context, &self.room)))
    }
}

/// Reads until `bytes` holds the prelude, and more if more comes at once.
async fn read_prelude(source: &mut Source, bytes: &mut Vec<u8>) -> Result<Prelude, Problem> {
    loop {
        match Prelude::parse(bytes) {
            Ok(prelude) => return Ok(prelude),
            Err(PreludeError::Incomplete { .. }) => {}
            Err(error) => return Err(Problem::new(Code::BodyNotSealed, error)),
        }
        match source.next().await? {
            Some(more) => bytes.extend_from_slice(&more),
            None => return Err(Problem::new(Code::BodyNotSealed, "the body ends within its prelude")),
        }
    }
}

/// Reads until `bytes` holds `wanted`, after the bytes that must repeat the prelude.
async fn fill(source: &mut Source, bytes: &mut Vec<u8>, prelude: &mut Vec<u8>, wanted: usize) -> Result<(), Problem> {
    while bytes.len() < wanted {
        let Some(more) = source.next().await? else {
            return Err(Problem::new(Code::BodyTruncated, "the body ended before its announced length"));
        };
        let repeated = more.len().min(prelude.len());
        if more[..repeated] != prelude[..repeated] {
            let detail = "the body does not begin with the prelude that the header has";
            return Err(Problem::new(Code::RangeInvalid, detail).field("Hoop-Prelude"));
        }
        prelude.drain(..repeated);
        bytes.extend_from_slice(&more[repeated..]);
    }
    Ok(())
}

/// The first record that is not complete in `len` bytes from record `index` on, and the length of the complete ones
/// before it.
fn whole(layout: &Layout, index: u64, end: u64, len: usize) -> (u64, usize) {
    let (mut next, mut whole) = (index, 0);
    while next < end && whole + layout.record(next).len() as usize <= len {
        whole += layout.record(next).len() as usize;
        next += 1;
    }
    (next, whole)
}

/// The records of a range, first and one past the last.
fn records(layout: &Layout, range: ByteRange) -> Result<(u64, u64), Problem> {
    layout.records_of(range).ok_or_else(|| {
        let detail = format!("records begin at {} and every 65536 from there; got {range}", layout.prelude_len());
        Problem::new(Code::RangeOffGrid, detail).field("Content-Range")
    })
}

fn content_length(headers: &HeaderMap) -> Result<u64, Problem> {
    let value = headers.get(header::CONTENT_LENGTH).and_then(|value| value.to_str().ok());
    value
        .and_then(|text| text.parse().ok())
        .ok_or_else(|| Problem::new(Code::LengthRequired, "").field("Content-Length"))
}

fn text<'a>(headers: &'a HeaderMap, name: &'static str) -> Result<&'a str, Problem> {
    let wrong = |detail: &str| Problem::new(Code::RangeInvalid, detail).field(name);
    let mut values = headers.get_all(name).iter();
    let value = values.next().ok_or_else(|| wrong("the header is missing"))?;
    if values.next().is_some() {
        return Err(wrong("the header is there twice"));
    }
    value.to_str().map_err(|_| wrong("the header is not text"))
}
