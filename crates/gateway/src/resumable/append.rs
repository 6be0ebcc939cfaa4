//! Taking one part of a resumable upload: [`Append`].

use super::{Kind, RESOURCE_SECS, Refusal, Turn, fields, remaining, tail_of};
use crate::door::{self, Offered};
use crate::intake::{Frames, Sink};
use crate::offload::{Taken, begin, commit_problem, layout, record, sealed_offer, whole_records, with_deadline};
use crate::shared::{Shared, store_problem};
use bytes::{Bytes, BytesMut};
use hoop_http::{Code, Interim, Problem, RequestBody};
use hoop_seal::{Layout, Prelude, PreludeError};
use hoop_spool::{Begin, Intake, Offer, Resource, State, Token, Upload};
use hoop_units::{ByteRange, UnixTime};
use http::{HeaderMap, StatusCode};
use std::sync::Arc;

/// After so many octets whole records are recorded while more come: what a break costs at most, and rare enough for the disk.
const STEP_BYTES: u64 = 8 << 20;

/// A part on its way to the spool.
pub struct Append {
    pub shared: Arc<Shared>,
    pub token: Token,
    pub resource: Resource,
    pub total: u64,
    /// As recorded before.
    pub upload: Option<Upload>,
    pub turn: Turn,
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
                let dropped = self.shared.blocking(move |shared| shared.spool.drop_resource(token)).await;
                dropped.map_err(|error| store_problem(&error))?;
            }
            body.linger_apart();
        }
        result
    }

    async fn take(&mut self, body: &mut RequestBody) -> Result<Appended, Refusal> {
        let layout = layout(&self.shared, self.total)?;
        let (start, tail) = self.remaining();
        let ahead = (!tail.is_empty()).then(|| Bytes::copy_from_slice(tail));
        let mut frames = Frames::new(&self.shared, body);
        frames.ahead = ahead;
        let offer = match self.upload.as_ref().filter(|upload| !upload.is_early()) {
            Some(upload) => again(upload),
            None => match self.open(&mut frames).await? {
                Opening::Prelude(prelude) => {
                    let dest = self.resource.dest.clone();
                    let offer = sealed_offer(&self.shared, &prelude, Some(self.total), dest)?;
                    Offer { device: self.resource.device, ..offer }
                }
                Opening::Short(seen, ended) => return self.keep_short(seen, ended).await,
            },
        };
        let offer = with_deadline(offer, self.deadline);
        let (id, prelude) = (offer.id, offer.prelude.clone());
        let valid = self.consent(&offer).await?;
        let (begun, _promise) = begin(&self.shared, offer, Some(ByteRange::new(start, self.total)), valid).await?;
        let intake = match begun {
            Begin::Take(intake) => intake,
            Begin::Complete(upload) => {
                frames.body.linger().await;
                self.finish().await?;
                return Ok(Appended::Whole(Taken::whole(&upload)?));
            }
        };
        if self.resource.upload != Some(id) {
            self.resource.upload = Some(id);
            self.keep().await?;
        }
        // It steps for itself, since its sender is told of each.
        let sink = Sink::new(intake, prelude, start, self.total);
        self.receive(sink, &mut frames, layout, start).await
    }

    /// Where the next record to be written begins, and what is there of it.
    fn remaining(&self) -> (u64, &[u8]) {
        remaining(&self.resource, self.upload.as_ref())
    }

    /// Checks the service's permit as for any other upload. Returns until when the upload may begin.
    async fn consent(&self, offer: &Offer) -> Result<UnixTime, Problem> {
        let dest = self.shared.destinations.get().check(&offer.dest)?;
        let permit = self.permit.as_deref();
        let device = self.resource.device;
        let offered = Offered { dest: &dest, device, id: offer.id, total: Some(self.total), early: false, permit };
        let permit = door::consent(&self.shared, &offered).await?;
        Ok(permit.map_or(offer.expires, |permit| permit.expires.min(offer.expires)))
    }

    /// Reads on until the prelude is there; its octets come again from `frames`.
    async fn open(&mut self, frames: &mut Frames<'_>) -> Result<Opening, Problem> {
        let mut seen = Bytes::new();
        loop {
            match Prelude::parse(&seen) {
                Ok(prelude) => {
                    frames.ahead = Some(seen);
                    return Ok(Opening::Prelude(prelude));
                }
                Err(PreludeError::Incomplete { .. }) => {}
                Err(error) => return Err(Problem::new(Code::BodyNotSealed, error)),
            }
            match self.next(frames).await {
                Ok(Some(bytes)) => seen = [seen, bytes].concat().into(),
                Ok(None) => return Ok(Opening::Short(seen, Ok(()))),
                Err(problem) => return Ok(Opening::Short(seen, Err(problem))),
            }
        }
    }

    /// The next octets, unless another request has come meanwhile.
    async fn next(&mut self, frames: &mut Frames<'_>) -> Result<Option<Bytes>, Problem> {
        tokio::select! {
            biased;
            () = self.turn.is_over() => {
                Err(Problem::new(Code::RequestTimeout, "another request for the same upload came meanwhile"))
            }
            next = frames.next() => next,
        }
    }

    /// Less than a prelude has come by now.
    async fn keep_short(&mut self, seen: Bytes, ended: Result<(), Problem>) -> Result<Appended, Refusal> {
        if ended.is_ok() && self.complete {
            let detail = format!("it ends after {} octets, within its prelude", seen.len());
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

    /// Takes octets from `start` on. A record's are held until all of them are here: the upload's file is not written anew for each part of
    /// a few octets.
    async fn receive(
        &mut self,
        mut sink: Sink,
        frames: &mut Frames<'_>,
        layout: Layout,
        start: u64,
    ) -> Result<Appended, Refusal> {
        let border = layout.record_at(start.max(layout.prelude_len())).map_or(self.total, |at| layout.record(at).end);
        let (mut held, mut recorded, mut overrun) = (BytesMut::new(), start, false);
        let ended = loop {
            let mut bytes = match self.next(frames).await {
                Ok(Some(bytes)) => bytes,
                Ok(None) => break Ok(()),
                Err(problem) => break Err(problem),
            };
            overrun = sink.at + (held.len() + bytes.len()) as u64 > self.total;
            if sink.at == start {
                held.extend_from_slice(&bytes);
                if start + (held.len() as u64) < border {
                    continue;
                }
                bytes = std::mem::take(&mut held).freeze();
            }
            if let Err(problem) = sink.push(&bytes) {
                break Err(problem);
            }
            if let Err(problem) = sink.settle(&self.shared).await {
                break Err(problem);
            }
            if sink.at - recorded >= STEP_BYTES && sink.at < self.total {
                recorded = sink.at;
                let stepped;
                (sink, stepped) = self.step(sink, layout, start).await;
                if let Err(problem) = stepped {
                    break Err(problem);
                }
            }
        };
        let ended = sink.flush().and(ended);
        // Unless there is more of it, what has been told of stays.
        let told = start + self.remaining().1.len() as u64;
        let (end, taken) = match sink.written() {
            // Nothing is in the file.
            at if at == start => {
                self.shared.blocking(move |_| drop(sink)).await;
                let end = told.max(start + held.len() as u64);
                if end > told {
                    self.keep_tail(start, held.into()).await?;
                }
                (end, None)
            }
            end => {
                let kept = whole_records(layout, ByteRange::new(start, end));
                (end, self.record(sink.intake, kept, tail_of(kept, start, end)).await?)
            }
        };
        if overrun {
            // The draft wants no more of such an upload.
            let mut refusal = Refusal::length(format_args!("more came than the {} octets that there are", self.total));
            refusal.complete = true;
            return Err(refusal);
        }
        ended?;
        match taken {
            Some(taken) if taken.state != State::Receiving => Ok(Appended::Whole(taken)),
            _ if self.complete => {
                let problem = Problem::new(
                    Code::LengthInconsistent,
                    format_args!("it ended after {end} octets of {}", self.total),
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
    async fn step(&self, mut sink: Sink, layout: Layout, start: u64) -> (Sink, Result<(), Problem>) {
        if let Err(problem) = sink.flush() {
            return (sink, Err(problem));
        }
        let Some(range) = whole_records(layout, ByteRange::new(start, sink.at)) else { return (sink, Ok(())) };
        let total = self.total;
        let (sink, recorded) = self
            .shared
            .blocking(move |shared| {
                let recorded = record(shared, &sink.intake, range, total);
                (sink, recorded)
            })
            .await;
        if recorded.is_ok()
            && let Some((interim, version)) = &self.progress
        {
            let headers =
                HeaderMap::from_iter([(fields::OFFSET, range.end.into()), (fields::INTEROP, (*version).into())]);
            resumption_supported(interim, &headers);
        }
        (sink, recorded.map(|_| ()).map_err(commit_problem))
    }

    /// Records whole records, and then what is left as the resource's tail.
    async fn record(
        &mut self,
        intake: Intake,
        kept: Option<ByteRange>,
        tail: ByteRange,
    ) -> Result<Option<Taken>, Problem> {
        let total = self.total;
        let recorded = self.shared.blocking(move |shared| {
            let taken = kept.map(|range| record(shared, &intake, range, total)).transpose().map_err(commit_problem)?;
            // Read while this holds the upload, whose file goes with the last sender if nothing of it was recorded.
            let mut octets = vec![0; tail.len() as usize];
            if !octets.is_empty() {
                intake.read_at(tail.start, &mut octets).map_err(|error| store_problem(&error.into()))?;
            }
            Ok((taken, octets))
        });
        let (taken, octets) = recorded.await?;
        if taken.as_ref().is_some_and(|taken| taken.state != State::Receiving) {
            self.finish().await?;
            return Ok(taken);
        }
        self.keep_tail(tail.start, octets).await?;
        Ok(taken)
    }

    /// Puts on disk what has come of the record that is not whole.
    async fn keep_tail(&mut self, at: u64, octets: Vec<u8>) -> Result<(), Problem> {
        (self.resource.tail_at, self.resource.tail) = (at, octets);
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
            self.resource.expires = self.shared.clock.unix().plus_secs(RESOURCE_SECS);
        }
        let (token, resource) = (self.token, self.resource.clone());
        let kept = self.shared.blocking(move |shared| shared.spool.keep_resource(token, &resource)).await;
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
