//! Taking one part of a resumable upload: [`Append`].

use super::fields;
use super::refusal::{Kind, Refusal};
use super::standing::{RESOURCE_SECS, remaining, tail_of};
use crate::access::consent::Offered;
use crate::access::receipts::Taken;
use crate::core::blocking::blocking;
use crate::core::problems::store_problem;
use crate::intake::body_reader::BodyReader;
use crate::intake::body_writer::BodyWriter;
use crate::intake::commit::{record, whole_records};
use crate::intake::refusals::{commit_problem, whole};
use crate::intake::request::{sealed_offer, with_deadline};
use crate::intake::resource_lock::ResourceLock;
use crate::intake::state::Receiver;
use bytes::{Bytes, BytesMut};
use hoop_http::{Code, Interim, Problem, RequestBody};
use hoop_seal::{Layout, Prelude, PreludeError};
use hoop_spool::{Begin, Intake, Offer, Resource, State, Token, Upload};
use hoop_units::{ByteRange, UnixTime};
use http::{HeaderMap, StatusCode};
use std::sync::Arc;

/// After so many bytes whole records are recorded while more come: what a break costs at most, and rare enough for the disk.
const STEP_BYTES: u64 = 8 << 20;

/// A part on its way to the spool.
pub struct Append {
    pub receiver: Arc<Receiver>,
    pub token: Token,
    pub resource: Resource,
    pub total: u64,
    /// As recorded before.
    pub upload: Option<Upload>,
    pub lock: ResourceLock,
    /// Whether Z ends with this part.
    pub complete: bool,
    /// For interim answers, in that version of the draft.
    pub progress: Option<(Interim, u64)>,
    /// `Hoop-Permit`.
    pub permit: Option<Vec<u8>>,
    /// `Hoop-Deadline`.
    pub deadline: Option<UnixTime>,
}

/// What a part came to.
pub enum Appended {
    /// More is to come.
    Part { offset: u64, expires: UnixTime },
    /// That was all of it.
    Whole(Taken),
}

/// How a body's beginning went.
enum Opening {
    Prelude(Prelude),
    /// It ended, or broke off, before there was one.
    Short(Bytes, Result<(), Problem>),
}

/// Sends a 104.
pub fn resumption_supported(interim: &Interim, headers: &HeaderMap) {
    let status = StatusCode::from_u16(104).expect("three digits");
    interim.send(status, "Upload Resumption Supported", headers);
}

impl Append {
    /// Takes the part to its end, and records what came of it, whole or not.
    pub async fn run(mut self, mut body: RequestBody) -> Result<Appended, Refusal> {
        let result = self.take(&mut body).await;
        if let Err(refusal) = &result {
            if refusal.complete {
                let token = self.token;
                let dropped = blocking(&self.receiver.core, move |core| core.spool.drop_resource(token)).await;
                dropped.map_err(|error| store_problem(&error))?;
            }
            body.linger_apart();
        }
        result
    }

    async fn take(&mut self, body: &mut RequestBody) -> Result<Appended, Refusal> {
        let layout = self.receiver.admission.layout(self.total)?;
        let (start, tail) = self.remaining();
        let ahead = (!tail.is_empty()).then(|| Bytes::copy_from_slice(tail));
        let mut reader = BodyReader::new(&self.receiver.core, self.receiver.body_timeouts, body);
        reader.ahead = ahead;
        let offer = match self.upload.as_ref().filter(|upload| !upload.is_early()) {
            Some(upload) => again(upload),
            None => match self.open(&mut reader).await? {
                Opening::Prelude(prelude) => {
                    let dest = self.resource.dest.clone();
                    let offer = sealed_offer(self.receiver.core.clock.unix(), &prelude, Some(self.total), dest)?;
                    Offer { device: self.resource.device, ..offer }
                }
                Opening::Short(seen, ended) => return self.keep_short(seen, ended).await,
            },
        };
        let offer = with_deadline(offer, self.deadline);
        let (id, prelude) = (offer.id, offer.prelude.clone());
        let valid = self.consent(&offer).await?;
        let (begun, _promise) =
            self.receiver.admission.begin(offer, Some(ByteRange::new(start, self.total)), valid).await?;
        let intake = match begun {
            Begin::Take(intake) => intake,
            Begin::Complete(upload) => {
                reader.body.linger().await;
                self.finish().await?;
                return Ok(Appended::Whole(whole(&upload)?));
            }
        };
        if self.resource.upload != Some(id) {
            self.resource.upload = Some(id);
            self.keep().await?;
        }
        // It steps for itself, since its sender is told of each.
        let writer = BodyWriter::new(intake, prelude, start, self.total, self.receiver.disk_turns.clone());
        self.receive(writer, &mut reader, layout, start).await
    }

    /// Where the next record to be written begins, and what is there of it.
    fn remaining(&self) -> (u64, &[u8]) {
        remaining(&self.resource, self.upload.as_ref())
    }

    /// Checks the service's permit as for any other upload. Returns until when the upload may begin.
    async fn consent(&self, offer: &Offer) -> Result<UnixTime, Problem> {
        let dest = self.receiver.consent.services.destinations.get().check(&offer.dest)?;
        let permit = self.permit.as_deref();
        let device = self.resource.device;
        let offered = Offered { dest: &dest, device, id: offer.id, total: Some(self.total), early: false, permit };
        let permit = self.receiver.consent.check_permit(&offered).await?;
        Ok(permit.map_or(offer.expires, |permit| permit.expires.min(offer.expires)))
    }

    /// Reads on until the prelude is there; its bytes come again from `reader`.
    async fn open(&mut self, reader: &mut BodyReader<'_>) -> Result<Opening, Problem> {
        let mut seen = Bytes::new();
        loop {
            match Prelude::parse(&seen) {
                Ok(prelude) => {
                    reader.ahead = Some(seen);
                    return Ok(Opening::Prelude(prelude));
                }
                Err(PreludeError::Incomplete { .. }) => {}
                Err(error) => return Err(Problem::new(Code::BodyNotSealed, error)),
            }
            match self.next(reader).await {
                Ok(Some(bytes)) => seen = [seen, bytes].concat().into(),
                Ok(None) => return Ok(Opening::Short(seen, Ok(()))),
                Err(problem) => return Ok(Opening::Short(seen, Err(problem))),
            }
        }
    }

    /// The next bytes, unless another request has come meanwhile.
    async fn next(&mut self, reader: &mut BodyReader<'_>) -> Result<Option<Bytes>, Problem> {
        tokio::select! {
            biased;
            () = self.lock.superseded() => {
                Err(Problem::new(Code::RequestTimeout, "another request for the same upload came meanwhile"))
            }
            next = reader.next() => next,
        }
    }

    /// Less than a prelude has come by now.
    async fn keep_short(&mut self, seen: Bytes, ended: Result<(), Problem>) -> Result<Appended, Refusal> {
        if ended.is_ok() && self.complete {
            let detail = format!("it ends after {} bytes, within its prelude", seen.len());
            return Err(Problem::new(Code::BodyNotSealed, detail).into());
        }
        // What has been told of stays: a request that another one ended may not have come so far.
        if seen.len() > self.resource.tail.len() {
            self.resource.tail = seen.to_vec();
        }
        self.keep().await?;
        ended?;
        Ok(Appended::Part { offset: self.resource.tail.len() as u64, expires: self.resource.expires })
    }

    /// Takes bytes from `start` on. A record's are held until all of them are here: the upload's file is not written anew for each part of
    /// a few bytes.
    async fn receive(
        &mut self,
        mut writer: BodyWriter,
        reader: &mut BodyReader<'_>,
        layout: Layout,
        start: u64,
    ) -> Result<Appended, Refusal> {
        let border = layout.record_at(start.max(layout.prelude_len())).map_or(self.total, |at| layout.record(at).end);
        let (mut held, mut recorded, mut overrun) = (BytesMut::new(), start, false);
        let ended = loop {
            let mut bytes = match self.next(reader).await {
                Ok(Some(bytes)) => bytes,
                Ok(None) => break Ok(()),
                Err(problem) => break Err(problem),
            };
            overrun = writer.at + (held.len() + bytes.len()) as u64 > self.total;
            if writer.at == start {
                held.extend_from_slice(&bytes);
                if start + (held.len() as u64) < border {
                    continue;
                }
                bytes = std::mem::take(&mut held).freeze();
            }
            if let Err(problem) = writer.push(&bytes) {
                break Err(problem);
            }
            if let Err(problem) = writer.settle().await {
                break Err(problem);
            }
            if writer.at - recorded >= STEP_BYTES && writer.at < self.total {
                recorded = writer.at;
                let stepped;
                (writer, stepped) = self.step(writer, layout, start).await;
                if let Err(problem) = stepped {
                    break Err(problem);
                }
            }
        };
        let ended = writer.flush().and(ended);
        // Unless there is more of it, what has been told of stays.
        let told = start + self.remaining().1.len() as u64;
        let (end, taken) = match writer.written() {
            // Nothing is in the file.
            at if at == start => {
                blocking(&self.receiver.core, move |_| drop(writer)).await;
                let end = told.max(start + held.len() as u64);
                if end > told {
                    self.keep_tail(start, held.into()).await?;
                }
                (end, None)
            }
            end => {
                let kept = whole_records(layout, ByteRange::new(start, end));
                (end, self.record(writer.intake, kept, tail_of(kept, start, end)).await?)
            }
        };
        if overrun {
            // The draft wants no more of such an upload.
            let mut refusal = Refusal::length(format_args!("more came than the {} bytes that there are", self.total));
            refusal.complete = true;
            return Err(refusal);
        }
        ended?;
        match taken {
            Some(taken) if taken.state != State::Receiving => Ok(Appended::Whole(taken)),
            _ if self.complete => {
                let problem = Problem::new(
                    Code::LengthInconsistent,
                    format_args!("it ended after {end} bytes of {}", self.total),
                );
                Err(Refusal {
                    problem: problem.field("Upload-Length"),
                    complete: false,
                    offset: Some(end),
                    kind: Kind::Length,
                })
            }
            _ => Ok(Appended::Part { offset: end, expires: self.resource.expires }),
        }
    }

    /// Records whole records while others still come, and says so.
    async fn step(&self, mut writer: BodyWriter, layout: Layout, start: u64) -> (BodyWriter, Result<(), Problem>) {
        if let Err(problem) = writer.flush() {
            return (writer, Err(problem));
        }
        let Some(range) = whole_records(layout, ByteRange::new(start, writer.at)) else { return (writer, Ok(())) };
        let total = self.total;
        let (writer, recorded) = blocking(&self.receiver.core, move |core| {
            let recorded = record(core, &writer.intake, range, total);
            (writer, recorded)
        })
        .await;
        if recorded.is_ok()
            && let Some((interim, version)) = &self.progress
        {
            let headers =
                HeaderMap::from_iter([(fields::OFFSET, range.end.into()), (fields::INTEROP, (*version).into())]);
            resumption_supported(interim, &headers);
        }
        (writer, recorded.map(|_| ()).map_err(commit_problem))
    }

    /// Records whole records, and then what is left as the resource's tail.
    async fn record(
        &mut self,
        intake: Intake,
        kept: Option<ByteRange>,
        tail: ByteRange,
    ) -> Result<Option<Taken>, Problem> {
        let total = self.total;
        let recorded = blocking(&self.receiver.core, move |core| {
            let taken = kept.map(|range| record(core, &intake, range, total)).transpose().map_err(commit_problem)?;
            // Read while this holds the upload, whose file goes with the last sender if nothing of it was recorded.
            let mut bytes = vec![0; tail.len() as usize];
            if !bytes.is_empty() {
                intake.read_at(tail.start, &mut bytes).map_err(|error| store_problem(&error.into()))?;
            }
            Ok((taken, bytes))
        });
        let (taken, bytes) = recorded.await?;
        if taken.as_ref().is_some_and(|taken| taken.state != State::Receiving) {
            self.finish().await?;
            return Ok(taken);
        }
        self.keep_tail(tail.start, bytes).await?;
        Ok(taken)
    }

    /// Puts on disk what has come of the record that is not whole.
    async fn keep_tail(&mut self, at: u64, bytes: Vec<u8>) -> Result<(), Problem> {
        (self.resource.tail_at, self.resource.tail) = (at, bytes);
        self.keep().await
    }

    /// All of Z is here.
    async fn finish(&mut self) -> Result<(), Problem> {
        self.resource.done = true;
        self.resource.tail_at = self.total;
        self.resource.tail = Vec::new();
        self.keep().await
    }

    /// Puts on disk what the resource is now.
    async fn keep(&mut self) -> Result<(), Problem> {
        if self.resource.upload.is_some() {
            self.resource.expires = self.receiver.core.clock.unix().plus_secs(RESOURCE_SECS);
        }
        let (token, resource) = (self.token, self.resource.clone());
        let kept = blocking(&self.receiver.core, move |core| core.spool.keep_resource(token, &resource)).await;
        kept.map(|_| ()).map_err(|error| store_problem(&error))
    }
}

/// The offer of an upload that is known.
fn again(upload: &Upload) -> Offer {
    Offer {
        id: upload.id,
        prelude: upload.prelude.clone(),
        total: Some(upload.total),
        dest: upload.dest.clone(),
        expires: upload.expires,
        device: upload.device,
        deadline: None,
    }
}
