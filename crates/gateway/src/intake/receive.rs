//! Taking an upload from a device: `POST /offload`, `PUT /offload/{id}`.
//!
//! Frames of the body go to the file as they come, by a plain `pwrite` from the connection's own task: into the page
//! cache, without a copy of ours and without a change of thread. Two steps wait for the disk and are done where they may:
//! beginning, and the sync and index commit at the end. A 2xx is sent after the second. For a short body that is all here when it would begin, both are
//! done in one go. A long body is committed while it comes ([`Checkpointer`]), and the whole records of an interrupted one are kept.
//!
//! What is checked is form: the prelude and the ticket's label parse, the lengths are those of a sealed body, ranges are cut
//! at record borders. Records may come before the prelude does (*early*), since its length is known. What the records hold is for the service to check; this gateway could not.

use super::body_reader::BodyReader;
use super::body_writer::BodyWriter;
use super::checkpoints::{Checkpointer, Checkpoints};
use super::commit::{commit, record, whole_records};
use super::open_ended::OpenEnded;
use super::refusals::{commit_problem, truncated, whole};
use super::request::{Announced, announced, check_range, early_offer, sealed_offer, with_deadline};
use super::state::Receiver;
use crate::access::consent::Offered;
use crate::access::receipts::Taken;
use crate::core::blocking::blocking;
use crate::core::state::Core;
use crate::core::wire::PRELUDE_LEN;
use bytes::Bytes;
use hoop_http::{Code, Problem, RequestBody};
use hoop_seal::{Layout, RECORD_SIZE};
use hoop_spool::{Begin, Offer};
use hoop_units::{AddressKey, ByteRange, UnixTime};
use http::HeaderMap;
use std::sync::Arc;
use tokio::sync::OwnedSemaphorePermit;

/// A body up to this is short: hyper holds as much of it anyway.
const SHORT_BYTES: u32 = 256 * 1024;

/// `POST /offload` (without `id`) and `PUT /offload/{id}`.
pub async fn offload(
    receiver: &Arc<Receiver>,
    id: Option<&str>,
    query: Option<&str>,
    headers: &HeaderMap,
    device: AddressKey,
    mut body: RequestBody,
) -> Result<Taken, Problem> {
    let announced =
        announced(&receiver.consent.services.destinations.get(), receiver.early, id, query, headers, device);
    let result = match announced {
        Ok(announced) => match check(receiver, &announced, &body).await {
            Ok(()) => receive_upload(receiver, announced, &mut body).await,
            Err(problem) => Err(problem),
        },
        Err(problem) => Err(problem),
    };
    body.linger_apart();
    result
}

/// Refuses what brings nothing, and what cannot be delivered, before anything of the body is read. No service is asked for whoever sends nothing: each that waits for an answer keeps a
/// place from others.
async fn check(receiver: &Receiver, announced: &Announced, body: &RequestBody) -> Result<(), Problem> {
    if body.is_over() {
        let code = if announced.part.is_some() { Code::BodyTruncated } else { Code::BodyNotSealed };
        return Err(Problem::new(code, "the request has no body"));
    }
    let Announced { dest, device, permit, .. } = announced;
    receiver.consent.check_destination(dest, *device, permit.as_deref(), announced.is_early()).await
}

/// Everything from the first byte of the body on.
async fn receive_upload(
    receiver: &Arc<Receiver>,
    announced: Announced,
    body: &mut RequestBody,
) -> Result<Taken, Problem> {
    let (core, admission) = (&receiver.core, &receiver.admission);
    let Announced { device, dest, permit, deadline, length, part, expects_continue } = announced;
    let mut reader = BodyReader::new(core, receiver.body_timeouts, body);
    let (offer, range) = match part {
        Some(part) => {
            let offer = match &part.prelude {
                Some(prelude) => sealed_offer(core.clock.unix(), prelude, Some(part.range.total), dest.url.clone())?,
                None => early_offer(core.clock.unix(), &part, dest.url.clone()),
            };
            if offer.id != part.id {
                let detail = format!("the ticket is for upload {}", offer.id);
                return Err(Problem::new(Code::RequestInvalid, detail).field("Hoop-Prelude"));
            }
            (offer, Some(part.range.range))
        }
        None => {
            let prelude = reader.prelude().await?;
            (sealed_offer(core.clock.unix(), &prelude, length, dest.url.clone())?, None)
        }
    };
    let offer = with_deadline(Offer { device, ..offer }, deadline);
    let (total, prelude) = (offer.total, offer.prelude.clone());
    let layout = total.map(|total| admission.layout(total)).transpose()?;
    if let Some((layout, range)) = layout.zip(range) {
        check_range(layout, range, offer.is_early())?;
    }
    let (id, early) = (offer.id, offer.is_early());
    let offered = Offered { dest: &dest, device, id, total, early, permit: permit.as_deref() };
    let permit = receiver.consent.check_permit(&offered).await?;
    let valid = permit.map_or(offer.expires, |permit| permit.expires.min(offer.expires));
    let from = range.map_or(0, |range| range.start);
    let limit = range.map_or(total.unwrap_or(0), |range| range.end);
    // Who asked first is told by `begin` whether to send.
    if let Some(layout) = layout.filter(|_| !expects_continue)
        && let Some(short) = Short::of(receiver, &mut reader, limit - from).await
    {
        return short.take(receiver, offer, range, valid, layout).await;
    }
    let (begun, _promise) = admission.begin(offer, range, valid).await?;
    let intake = match begun {
        Begin::Take(intake) => intake,
        Begin::Complete(upload) => {
            // Some senders read the answer only when they have sent all.
            reader.body.linger().await;
            return whole(&upload);
        }
    };
    let open_ended = total.is_none().then(|| OpenEnded::new(admission));
    let mut writer = BodyWriter::new(intake, prelude, from, limit, receiver.disk_turns.clone());
    writer.open_ended = open_ended;
    if let Some(layout) = layout {
        writer.checkpoints = Checkpoints::Timed(Checkpointer::new(core, layout, from));
    }
    let receiving = Receiving { core: core.clone(), writer: Some(writer), layout, from };
    receiving.run(reader).await
}

/// A short body that is all here.
struct Short {
    bytes: Vec<Bytes>,
    /// The memory that they take.
    _room: OwnedSemaphorePermit,
}

impl Short {
    /// What a body of `len` bytes has, if it is short and all here, and not too much is held of others.
    async fn of(receiver: &Receiver, reader: &mut BodyReader<'_>, len: u64) -> Option<Self> {
        let len = u32::try_from(len).ok().filter(|len| *len <= SHORT_BYTES)?;
        let room = receiver.short_room.clone().try_acquire_many_owned(len).ok()?;
        reader.at_hand(len.into()).await.map(|bytes| Self { bytes, _room: room })
    }

    /// Begins, writes and records with one change of thread instead of two, and without waiting for another's transaction in between.
    async fn take(
        self,
        receiver: &Arc<Receiver>,
        offer: Offer,
        range: Option<ByteRange>,
        expires: UnixTime,
        layout: Layout,
    ) -> Result<Taken, Problem> {
        let taken = receiver.core.turns.blocking(receiver, move |receiver| {
            let range_or_all = range.unwrap_or(ByteRange::new(0, layout.total()));
            let (begun, _promise) = receiver.admission.begin_now(&offer, range, expires)?;
            let intake = match begun {
                Begin::Take(intake) => intake,
                Begin::Complete(upload) => return whole(&upload),
            };
            let (from, limit) = (range_or_all.start, range_or_all.end);
            let writer = BodyWriter::new(intake, offer.prelude, from, limit, receiver.disk_turns.clone());
            // Dropped with an error, it has the whole records recorded that came before.
            let mut receiving =
                Receiving { core: receiver.core.clone(), writer: Some(writer), layout: Some(layout), from };
            let writer = receiving.writer.as_mut().expect("just made");
            self.bytes.iter().try_for_each(|bytes| writer.push(bytes))?;
            writer.flush()?;
            let writer = receiving.writer.take().expect("nobody took it");
            let intake = writer.intake.into_inner();
            record(&receiver.core, &intake, range_or_all, layout.total()).map_err(commit_problem)
        });
        taken.await
    }
}

/// A body that is coming in. Its whole records are recorded whatever becomes of its request, also if the server drops it since the sender has
/// gone.
struct Receiving {
    core: Arc<Core>,
    /// `None` once it is being recorded.
    writer: Option<BodyWriter>,
    layout: Option<Layout>,
    from: u64,
}

impl Receiving {
    /// Reads the body to its end and records what came, whole or not.
    async fn run(mut self, mut reader: BodyReader<'_>) -> Result<Taken, Problem> {
        let writer = self.writer.as_mut().expect("it is recorded once, below");
        let pumped = writer.pump(&mut reader).await;
        // What broke off is written out just the same.
        let ended = writer.flush().and(pumped);
        let (end, limit, open_ended) = (writer.written(), writer.limit, writer.open_ended.is_some());
        let layout = match (self.layout, open_ended && ended.is_ok()) {
            (Some(layout), _) => layout,
            // Now its length is known.
            (None, true) => {
                let found = Layout::for_total(PRELUDE_LEN, RECORD_SIZE, end);
                found.map_err(|error| Problem::new(Code::BodyNotSealed, error))?
            }
            // It broke off, and nobody knows its length: such a body cannot be resumed.
            (None, false) => {
                self.give_back().await;
                return ended.and(Err(truncated(end, None)));
            }
        };
        let ended =
            ended.and_then(|()| if end < limit && !open_ended { Err(truncated(end, Some(limit))) } else { Ok(()) });
        let kept = whole_records(layout, ByteRange::new(self.from, end.max(self.from)));
        let total = layout.total();
        let committed = match kept {
            Some(range) => {
                // Until there is one it may be dropped, and then goes another way.
                let turn = self.core.turns.take().await;
                let writer = self.writer.take().expect("nobody took it");
                commit(turn, &self.core, writer.intake.into_inner(), range, total).await.map(Some)
            }
            None => {
                self.give_back().await;
                Ok(None)
            }
        };
        match committed {
            // It was over before all of this came: nothing is missing.
            Ok(Some(taken)) if !taken.state.keeps_payload() => Ok(taken),
            committed => ended.and(committed)?.ok_or_else(|| truncated(end, Some(total))),
        }
    }
}

impl Receiving {
    /// Gives back what is not to be recorded. That may take as long as the disk takes.
    async fn give_back(&mut self) {
        let Some(writer) = self.writer.take() else { return };
        blocking(&self.core, move |_| drop(writer.intake.into_inner())).await;
    }
}

impl Drop for Receiving {
    fn drop(&mut self) {
        let Some(mut writer) = self.writer.take() else { return };
        // If this fails, the sender sends again what was not written.
        let _ = writer.flush();
        let came = ByteRange::new(self.from, writer.written().max(self.from));
        let kept = self.layout.and_then(|layout| Some((whole_records(layout, came)?, layout.total())));
        let (core, intake) = (self.core.clone(), writer.intake);
        tokio::spawn(async move {
            let recorded = core.turns.blocking(&core, move |core| {
                let intake = intake.into_inner();
                kept.map_or(Ok(()), |(range, total)| record(core, &intake, range, total).map(drop))
            });
            if let Err(error) = recorded.await {
                tracing::debug!(%error, "the records of a sender that has gone were not recorded");
            }
        });
    }
}
