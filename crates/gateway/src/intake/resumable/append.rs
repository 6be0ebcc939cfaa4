//! Taking one part of a resumable upload: [`Append`].

use super::fields;
use super::refusal::Refusal;
use super::standing::{RESOURCE_SECS, remaining, tail_of};
use crate::access::consent::Offered;
use crate::access::receipts::Taken;
use crate::core::blocking::{DropBlocking, blocking};
use crate::core::problems::store_problem;
use crate::intake::body_reader::{BodyReader, Opening};
use crate::intake::body_writer::BodyWriter;
use crate::intake::checkpoints::{Checkpoints, ToldCheckpoints};
use crate::intake::commit::{record, whole_records};
use crate::intake::refusals::{commit_problem, whole};
use crate::intake::request::{sealed_offer, with_deadline};
use crate::intake::resource_lock::ResourceLock;
use crate::intake::state::Receiver;
use bytes::Bytes;
use hoop_http::{Code, Interim, Problem, RequestBody};
use hoop_seal::Layout;
use hoop_spool::{Begin, Intake, Offer, Resource, State, Token, Upload};
use hoop_units::{ByteRange, UnixTime};
use http::{HeaderMap, StatusCode};
use std::sync::Arc;

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

/// Sends a 104.
pub fn resumption_supported(interim: &Interim, headers: &HeaderMap) {
    let status = StatusCode::from_u16(104).expect("three digits");
    interim.send(status, "Upload Resumption Supported", headers);
}

impl Append {
    /// Takes the part to its end, and records what came of it, whole or not.
    pub async fn run(mut self, mut body: RequestBody) -> Result<Appended, Refusal> {
        let result = self.take(&mut body).await;
        // Beside the answer: whoever asks how far the upload is waits for this part's lock.
        body.linger_apart();
        if result.as_ref().is_err_and(|refusal| refusal.complete) {
            let token = self.token;
            let dropped = blocking(&self.receiver.core, move |core| core.spool.drop_resource(token)).await;
            dropped.map_err(|error| store_problem(&error))?;
        }
        result
    }

    async fn take(&mut self, body: &mut RequestBody) -> Result<Appended, Refusal> {
        let layout = self.receiver.admission.layout(self.total)?;
        let (start, tail) = self.remaining();
        let kept = (!tail.is_empty()).then(|| Bytes::copy_from_slice(tail));
        let reader = BodyReader::new(&self.receiver.core, self.receiver.body_timeouts, body);
        let mut reader = reader.of_part(kept, self.lock.superseded());
        let offer = match self.upload.as_ref().filter(|upload| !upload.is_early()) {
            Some(upload) => again(upload),
            None => match reader.opening().await? {
                Opening::Prelude(prelude) => {
                    let dest = self.resource.dest.clone();
                    let offer = sealed_offer(self.receiver.core.clock.unix(), &prelude, Some(self.total), dest)?;
                    Offer { device: self.resource.device, ..offer }
                }
                Opening::Short { seen, ended, .. } => return self.keep_short(seen, ended).await,
            },
        };
        let offer = with_deadline(offer, self.deadline);
        let (id, prelude) = (offer.id, offer.prelude.clone());
        let mut superseded = self.lock.superseded();
        // The service may take its time, which is not another request's.
        let valid = tokio::select! {
            biased;
            problem = superseded.wait() => return Err(problem.into()),
            valid = self.consent(&offer) => valid?,
        };
        let (begun, _promise) =
            self.receiver.admission.begin(offer, Some(ByteRange::new(start, self.total)), valid).await?;
        let intake = match begun {
            Begin::Take(intake) => intake,
            Begin::Complete(upload) => {
                self.finish().await?;
                return Ok(Appended::Whole(whole(&upload)?));
            }
        };
        let mut writer = BodyWriter::new(intake, prelude, start, self.total, self.receiver.disk_turns.clone());
        if self.resource.upload != Some(id) {
            self.resource.upload = Some(id);
            self.keep().await?;
        }
        // A record's bytes are held until all of them are here: the upload's file is not written anew for each part of a few bytes.
        let record = layout.record_at(start.max(layout.prelude_len()));
        writer.held_until = record.map_or(self.total, |record| layout.record(record).end);
        writer.checkpoints = Checkpoints::Told(self.checkpoints(layout, start));
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

    /// Checkpoints of which the sender is told, if it listens.
    fn checkpoints(&self, layout: Layout, start: u64) -> ToldCheckpoints {
        let progress = self.progress.clone();
        ToldCheckpoints::new(&self.receiver.core, layout, start, move |offset| {
            let Some((interim, version)) = &progress else { return };
            let headers = HeaderMap::from_iter([(fields::OFFSET, offset.into()), (fields::INTEROP, (*version).into())]);
            resumption_supported(interim, &headers);
        })
    }

    /// Takes bytes from `start` on.
    async fn receive(
        &mut self,
        mut writer: BodyWriter,
        reader: &mut BodyReader<'_>,
        layout: Layout,
        start: u64,
    ) -> Result<Appended, Refusal> {
        let ended = writer.pump(reader).await;
        let ended = writer.flush().and(ended);
        let overrun = writer.overrun;
        // Unless there is more of it, what has been told of stays.
        let told = start + self.remaining().1.len() as u64;
        let (end, taken) = match writer.written() {
            // Nothing is in the file.
            at if at == start => {
                let held = writer.take_held();
                blocking(&self.receiver.core, move |_| drop(writer.intake.into_inner())).await;
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
            _ if self.complete => Err(Refusal::ended(end, self.total)),
            _ => Ok(Appended::Part { offset: end, expires: self.resource.expires }),
        }
    }

    /// Records whole records, and then what is left as the resource's tail.
    async fn record(
        &mut self,
        intake: DropBlocking<Intake>,
        kept: Option<ByteRange>,
        tail: ByteRange,
    ) -> Result<Option<Taken>, Problem> {
        let total = self.total;
        let core = &self.receiver.core;
        let recorded = core.turns.blocking(core, move |core| {
            let intake = intake.into_inner();
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
        let core = &self.receiver.core;
        let kept = core.turns.blocking(core, move |core| core.spool.keep_resource(token, &resource)).await;
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
