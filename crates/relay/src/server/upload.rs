//! A flow that is one request which may be made once alone, and is kept on disk until its answer has arrived: [`carry`]. `docs/edge.md` has what is said over it.

use super::access_log::{asked, asked_nothing};
use super::cache::Cache;
use super::exchange::{Way, normal, pass};
use super::fetch::{is_complete, pass_on, settle, split};
use super::heads::Head;
use super::objects::Object;
use super::origins::Origins;
use super::uploads::{Found, Stores, Upload};
use crate::codes;
use crate::exchange::{FlowBody, READ_BYTES};
use crate::upload::{JournalId, Told, greet};
use crate::wire::resumed_upload;
use bytes::Bytes;
use hoop_endpoint::{FlowError, FlowId, FlowName, FlowReader, FlowStream, FlowWriter, ended};
use hoop_http::{Lines, streamed};
use http::header::CONTENT_LENGTH;
use http::{Request, request};
use std::future::ready;
use std::io;
use std::sync::Arc;
use tokio::io::AsyncWriteExt as _;
use tokio::task::spawn_blocking;

/// So much of a body is written to disk at once, in bytes.
const STEP: usize = 256 << 10;

/// What is on disk of an exchange.
#[derive(Default)]
struct OnDisk {
    upload: Option<Upload>,
    answer: Option<Object>,
}

/// Takes an upload from a flow, passes it on once it is whole, and writes the answer; or goes on with an earlier one.
pub(crate) async fn carry(
    flow: FlowStream,
    origins: &Arc<Origins>,
    stores: Option<&Stores>,
    cache: Option<&Arc<Cache>>,
) {
    let (name, mut way) = (flow.name(), Way::of(&flow));
    let earlier = resumed_upload(flow.service());
    let (reader, mut writer) = flow.into_split();
    let _under_way = origins.egress.counters.exchange();
    let mut over = way.status();
    let mut on_disk = OnDisk::default();
    let with = With { origins, stores, cache };
    let carried = tokio::select! {
        carried = with.carry(name, earlier, reader, &mut writer, &mut way, &mut on_disk) => carried,
        // Nobody waits for it any more.
        _ = over.wait_for(|status| status.over.is_some()) => Ok(()),
    };
    if carried.is_err() && on_disk.upload.as_ref().is_some_and(Upload::is_sent) {
        // Until then it may say its flow again to the next relay, and has to find what became of this one.
        tokio::select! {
            () = way.acknowledged(1) => {}
            _ = over.wait_for(|status| status.over.is_some()) => {}
        }
    }
    let over = over.borrow_and_update().over;
    if carried == Err(codes::PARKED) && over.is_none() {
        drop(on_disk.upload);
        if let Some(answer) = on_disk.answer {
            answer.leave().await;
        }
    // A relay that ends leaves it to the next.
    } else if over != Some(FlowError::Gone) {
        // A device that has not heard of the relay says its flow again to the next, unless it has ended the flow itself.
        let has_ended = matches!(over, Some(FlowError::Ended(code)) if code != ended::EXPIRED);
        let is_over = has_ended || (carried.is_ok() && over.is_none()) || way.has_acknowledged();
        if let Some(upload) = on_disk.upload.filter(|upload| is_over || !upload.is_sent()) {
            let may_ask = upload.is_sent() && may_ask(carried, over);
            upload.discard(may_ask).await;
        }
        if let Some(answer) = on_disk.answer {
            answer.discard().await;
        }
    }
    let Err(code) = carried else { return };
    origins.egress.ended(name.device, code);
    writer.reset(code);
}

/// Whether a device may still ask what became of an upload that was passed on: it has no answer, and has not given it up.
const fn may_ask(carried: Result<(), u64>, over: Option<FlowError>) -> bool {
    match (carried, over) {
        // The device has all of the answer.
        (Ok(()), None | Some(FlowError::Ended(ended::FINISHED))) => false,
        (_, Some(FlowError::Ended(ended::GIVEN_UP | codes::MALFORMED))) => false,
        // With any other code it is known that no server got any of it.
        (Err(code), None) => matches!(code, codes::BROKEN | codes::NO_HTTP | codes::OUTCOME_UNKNOWN),
        _ => true,
    }
}

/// What uploads are carried with.
struct With<'a> {
    origins: &'a Arc<Origins>,
    stores: Option<&'a Stores>,
    cache: Option<&'a Arc<Cache>>,
}

impl With<'_> {
    async fn carry(
        &self,
        name: FlowName,
        earlier: Option<(FlowId, JournalId)>,
        mut reader: FlowReader,
        writer: &mut FlowWriter,
        way: &mut Way,
        on_disk: &mut OnDisk,
    ) -> Result<(), u64> {
        // A flow that is over says so itself.
        let over = |_: io::Error| codes::BROKEN;
        let of_upload = FlowName { device: name.device, flow: earlier.map_or(name.flow, |(flow, _)| flow) };
        let (found, journal) = match self.stores {
            Some(stores) => {
                let (uploads, journal) = (stores.uploads.clone(), earlier.map(|(_, journal)| journal));
                // What it is told holds for what it asks then.
                let id = uploads.journal();
                let found = spawn_blocking(move || uploads.take(of_upload, journal)).await;
                (found.unwrap_or(Found::Unknown), id)
            }
            None if earlier.is_some() => return Err(codes::UNKNOWN_EXCHANGE),
            None => (Found::Nothing, JournalId::NONE),
        };
        let (hold, section) = match found {
            Found::Left(mut upload, section) => {
                // A device that has not heard of a relay says its flow again from the first byte on (`docs/flow.md`, 5.1).
                if earlier.is_none() && !upload.is_sent() {
                    let again = spawn_blocking(move || upload.begin_again().map(|()| upload)).await;
                    let again = again.map_err(io::Error::other).flatten().inspect_err(on_failure);
                    upload = again.map_err(|_| codes::BROKEN)?;
                }
                on_disk.upload = Some(upload);
                (None, Some(section))
            }
            Found::New(hold) => (Some(hold), None),
            Found::Nothing if self.stores.is_some() => return Err(codes::UNKNOWN_EXCHANGE),
            Found::Nothing => (None, None),
            Found::Unknown => return Err(codes::OUTCOME_UNKNOWN),
        };
        let has = match &on_disk.upload {
            Some(upload) if upload.is_sent() => Told::Whole,
            Some(upload) => Told::Has(upload.came()),
            None => Told::Has(0),
        };
        greet(journal, has, writer).await.map_err(over)?;
        let mut came = match self.origins.heads.read(&mut reader, name.device).await {
            Ok(came) => came,
            // A device that asks for the journal alone.
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof && earlier.is_none() => {
                asked_nothing();
                writer.shutdown().await.map_err(over)?;
                return writer.finished().await.map_err(over);
            }
            Err(error) => return Err(malformed(error)),
        };
        let place = came.place();
        let (section, rest) = (section.unwrap_or(came.bytes), came.rest);
        let Head { request, place } =
            self.origins.heads.decode(&section, place, name.device).await.map_err(malformed)?;
        let _place = place;
        let (mut head, ()) = request.into_parts();
        head.uri = normal(head.uri).ok_or(codes::MALFORMED)?;
        asked(&head.method, &head.uri);
        let length = match head.headers.get(CONTENT_LENGTH) {
            Some(length) => length.to_str().ok().and_then(|length| length.parse().ok()).ok_or(codes::MALFORMED)?,
            None => 0,
        };
        if let Some(hold) = hold {
            let head = section.clone();
            let made = spawn_blocking(move || hold.create(head, length)).await.map_err(io::Error::other).flatten();
            on_disk.upload = made.inspect_err(on_failure).ok().flatten();
            on_disk.upload.iter_mut().for_each(Upload::own);
        }
        let (Some(upload), Some(stores)) = (&mut on_disk.upload, self.stores) else {
            if let Some(stores) = self.stores {
                let uploads = stores.uploads.clone();
                let renewed = spawn_blocking(move || uploads.renew()).await.map_err(io::Error::other).flatten();
                renewed.inspect_err(on_failure).map_err(|_| codes::BROKEN)?;
            }
            // Until it is acknowledged, the device would say all again to another relay, which would pass it on again.
            way.acknowledged(writer.written()).await;
            Told::Streamed.write(writer).await.map_err(over)?;
            let body = streamed(FlowBody::new(reader, rest, Some(length)));
            let body = if length == 0 { hoop_http::empty() } else { body };
            return pass(Request::from_parts(head, body), name, self.origins, self.cache, writer).await;
        };
        if upload.is_sent() {
            let left = Object::resume(of_upload, 0, &stores.answers).await;
            if let Some(answer) = left {
                let answer = on_disk.answer.insert(answer.placed(self.origins.answers.take_now(name.device)));
                let fetched = async {
                    if !answer.came().1 {
                        let is_complete = is_complete(answer).await;
                        answer.end(is_complete.then_some(()).ok_or(codes::BROKEN)).await;
                    }
                };
                return way.give(answer, fetched, writer).await;
            }
            if !head.method.is_idempotent() {
                return Err(codes::OUTCOME_UNKNOWN);
            }
        } else {
            collect(upload, &mut reader, rest, length, writer).await?;
            upload.mark_sent().await.inspect_err(on_failure).map_err(|_| codes::BROKEN)?;
            Told::Whole.write(writer).await.map_err(over)?;
        }
        let body = upload.body();
        let answer = Object::kept(of_upload, section, stores.answers.clone());
        let answer = on_disk.answer.insert(answer.placed(self.origins.answers.take_now(name.device)));
        way.give(answer, self.post(answer, head, body, name), writer).await
    }

    /// Sends the request, and puts the answer into the object.
    async fn post(&self, answer: &Object, head: request::Parts, body: hoop_http::Body, name: FlowName) {
        let request = Request::from_parts(head.clone(), body);
        let answered = match self.origins.send(name.device, request).await {
            Ok(answered) => answered,
            Err(code) => return answer.end(Err(code)).await,
        };
        let (mut of_answer, source) = split(answered, 0);
        if let Err(code) = settle(&mut of_answer) {
            return answer.end(Err(code)).await;
        }
        if let Some(cache) = self.cache {
            cache.passed(&head.method, &head.uri, &mut of_answer).await;
        }
        pass_on(answer, head, of_answer, source, name.device, self.origins).await;
    }
}

fn malformed(error: io::Error) -> u64 {
    tracing::debug!(%error, "a flow brings no request");
    codes::MALFORMED
}

fn on_failure(error: &io::Error) {
    static LINES: Lines = Lines::new();
    LINES.warn("an upload cannot be put on disk", error);
}

/// Puts on disk what comes of a body, and tells how much that is.
async fn collect(
    upload: &mut Upload,
    reader: &mut FlowReader,
    mut rest: Bytes,
    length: u64,
    writer: &mut FlowWriter,
) -> Result<(), u64> {
    while upload.came() < length {
        let mut left = length - upload.came();
        if rest.is_empty() {
            let read = reader.read_chunk(READ_BYTES).await.map_err(malformed)?;
            rest = read.ok_or(io::ErrorKind::UnexpectedEof).map_err(|kind| malformed(kind.into()))?;
        }
        let mut pieces = Vec::new();
        let mut bytes = 0;
        while !rest.is_empty() && left > 0 {
            rest.truncate(usize::try_from(left).unwrap_or(usize::MAX));
            left -= rest.len() as u64;
            bytes += rest.len();
            pieces.push(std::mem::take(&mut rest));
            if bytes < STEP && left > 0 {
                // What has come already, and no more.
                rest = tokio::select! {
                    biased;
                    more = reader.read_chunk(READ_BYTES) => more.map_err(malformed)?.unwrap_or_default(),
                    () = ready(()) => Bytes::new(),
                };
            }
        }
        upload.put(pieces).await.inspect_err(on_failure).map_err(|_| codes::BROKEN)?;
        Told::Has(upload.came()).write(writer).await.map_err(|_| codes::BROKEN)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_who_has_no_answer_and_gave_nothing_up_may_ask() {
        let gone = Some(FlowError::Ended(ended::EXPIRED));
        for (carried, over, is) in [
            (Ok(()), None, false),
            (Ok(()), Some(FlowError::Ended(ended::FINISHED)), false),
            (Ok(()), Some(FlowError::Ended(ended::GIVEN_UP)), false),
            (Ok(()), gone, true),
            (Err(codes::BROKEN), gone, true),
            (Err(codes::BROKEN), None, true),
            (Err(codes::REFUSED), None, false),
            (Err(codes::OUTCOME_UNKNOWN), None, true),
        ] {
            assert_eq!(may_ask(carried, over), is, "{carried:?} {over:?}");
        }
    }
}
