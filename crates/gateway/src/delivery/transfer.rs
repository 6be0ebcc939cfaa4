//! One attempt at one upload: sending what is stored and the service lacks, then asking what became of it.
//!
//! An upload that is still coming in is sent as far as it is stored, and its state stays `receiving`. When nothing more is there, the
//! attempt waits a moment for more, and then ends: the next commit makes it due again. A partial upload is sent, too, after its device has
//! left; now and then the service is asked whether the rest has come to it by another way.

use super::message::{MESSAGE_BYTES, PayloadBody, SharedPayload, next_message};
use super::state::Delivery;
use crate::core::blocking::{DropBlocking, blocking};
use crate::core::problems::tell;
use crate::core::state::Core;
use crate::core::wire;
use crate::peer::client::{PREFER_SHORT_WAIT, PREFER_WAIT, ServiceClient};
use crate::peer::status::{ReasonDocument, ServiceStatus, delivered_from_missing};
use crate::peer::verdict::{Answer, Retryable, ServiceVerdict, their_words};
use hoop_dispatch::Failure;
use hoop_http::{Code, streamed};
use hoop_seal::{Layout, Prelude, RECORD_SIZE};
use hoop_spool::{Change, ReadError, Reason, State, StoreError, Upload};
use hoop_units::{ByteRange, ContentRange, RangeSet, UnixTime, UploadId};
use http::{HeaderName, Method, StatusCode, header};
use std::io;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// The upload is given up after so many refusals of a record in a row. What is on our disk, or what the device sent, is damaged then, and
/// sending it again does not help. TLS catches damage on the way.
const CORRUPT_MAX: u32 = 5;

/// The service may take so many messages in a row without having more than ever before in this attempt.
const IDLE_MESSAGES_MAX: u32 = 3;

/// How long an attempt keeps its slot and its connection while it waits for more to be stored: longer than a commit takes. One attempt at a
/// time may wait so.
const MORE_WAIT: Duration = Duration::from_secs(3);

/// How often a message under way looks whether its upload is still there.
const GONE_LOOK: Duration = Duration::from_secs(1);

/// When all that is stored of an unfinished upload has been delivered, the service is asked later what became of the rest. The wait is as long as
/// the upload has been here, within these bounds: a device that went on elsewhere is done in minutes, and one that broke never is.
const IDLE_SECS_MIN: u32 = 60;
const IDLE_SECS_MAX: u32 = 6 * 60 * 60;

/// How an attempt ended.
#[derive(Debug)]
pub enum Ended {
    /// What is to be done next, if anything, is in the store.
    Done,
    /// It failed, or the service has no final word yet.
    Retry { failure: Failure, reason: Option<Reason> },
}

/// What becomes of bytes that the disk gives nothing back of.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Unread {
    /// They stay stored, and are read again.
    Stays,
    /// They count as spoilt.
    IsSpoilt,
}

/// One attempt under way.
struct Transfer<'a> {
    core: &'a Arc<Core>,
    delivery: &'a Delivery,
    upload: Upload,
    /// Whether the attempt before ended with a record that did not open.
    was_corrupt: bool,
    service: ServiceClient<'a>,
    layout: Layout,
    has: RangeSet,
    message_bytes: u64,
    idle_messages: u32,
}

/// Why an attempt goes no further.
enum Stop {
    Retry(Retryable),
    /// The service has it and has no final word yet.
    Wait(Option<Reason>),
    /// All that is stored is sent, and the rest has not come.
    Idle,
    /// A final state is recorded.
    Over,
    Store(StoreError),
}

impl From<StoreError> for Stop {
    fn from(error: StoreError) -> Self {
        Self::Store(error)
    }
}

impl From<Retryable> for Stop {
    fn from(retryable: Retryable) -> Self {
        Self::Retry(retryable)
    }
}

/// Makes one attempt at the upload `id`.
pub async fn attempt(delivery: &Delivery, id: UploadId) -> Ended {
    let core = &delivery.core;
    let upload = match blocking(core, move |core| core.spool.get(id)).await {
        Ok(Some(upload)) if !upload.state.is_final() && !upload.is_early() => upload,
        Ok(_) => return Ended::Done,
        Err(error) => return failed_here(&error),
    };
    let attempts = upload.attempts;
    if upload.state.is_whole() && upload.takes_more() {
        // The disk has spoilt some of it: it goes on when that has been brought again.
        let reason = upload.reason;
        return Ended::Retry { failure: Failure { attempts, ..Failure::default() }, reason };
    }
    let before = upload.delivered.len();
    let was_corrupt = upload.reason.as_ref().is_some_and(|reason| reason.code == Code::RecordCorrupt.name());
    let dest = match delivery.services.destinations.get().check(&upload.dest) {
        Ok(dest) => dest,
        // The operator's list has changed since it was taken. He may change it back.
        Err(problem) => return retry(Retryable::new(problem.code, problem.detail), attempts),
    };
    let layout = Prelude::parse(&upload.prelude)
        .ok()
        .and_then(|prelude| Layout::for_total(prelude.len(), RECORD_SIZE, upload.total).ok());
    let Some(layout) = layout else { return failed_here(&StoreError::Damaged("a prelude that is none")) };
    let has = upload.delivered.clone();
    let mut transfer = Transfer {
        core,
        delivery,
        service: ServiceClient::new(&delivery.services, &dest),
        upload,
        was_corrupt,
        layout,
        has,
        message_bytes: MESSAGE_BYTES,
        idle_messages: 0,
    };
    let result = {
        let _ended = core.progress.guard(id);
        tokio::select! {
            result = transfer.run() => result,
            // What the service has of it by then, it has; the rest follows when the owner lets it.
            () = delivery.pause.until(true) => Err(Stop::Wait(None)),
        }
    };
    // Whoever came further starts counting anew.
    let attempts = if transfer.has.len() > before { 0 } else { attempts };
    match result {
        Ok(()) | Err(Stop::Over | Stop::Idle) => Ended::Done,
        Err(Stop::Wait(reason)) => Ended::Retry { failure: Failure { attempts, ..Failure::default() }, reason },
        Err(Stop::Retry(failed)) => retry(failed, attempts),
        Err(Stop::Store(error)) => failed_here(&error),
    }
}

/// Returns once an upload was dropped or has expired: a service that reads slowly must not keep its bytes on disk, which count for nobody by then.
async fn until_gone(core: &Arc<Core>, id: UploadId) {
    loop {
        tokio::time::sleep(GONE_LOOK).await;
        match blocking(core, move |core| core.spool.get(id)).await {
            Ok(Some(upload)) if upload.state != State::Expired => {}
            // The attempt itself meets the error.
            Err(_) => {}
            Ok(_) => return,
        }
    }
}

/// A pause counts as so many failed attempts at most: a wait of four seconds.
const PAUSED_ATTEMPTS: u32 = 2;

fn retry(retryable: Retryable, attempts: u32) -> Ended {
    let reason = Some(Reason::new(retryable.code.name(), retryable.detail));
    // Its owner has paused it, which is no failure: the service says when to ask again, and our own waits stay below that, so that it goes on soon
    // after it is resumed.
    let attempts = if retryable.code == Code::UploadPaused { attempts.min(PAUSED_ATTEMPTS) } else { attempts };
    let failure = Failure { attempts, retry_after: retryable.retry_after, destination: retryable.destination };
    Ended::Retry { failure, reason }
}

/// A service's reason as its own word: of our codes, and of bounded length.
fn their_reason(reason: ReasonDocument) -> Option<Reason> {
    Code::by_name(&reason.code).map(|code| Reason::new(code.name(), their_words(&reason.detail)))
}

/// Why an attempt goes no further when our own disk fails in the middle of a message.
fn store_failed(error: &StoreError) -> Retryable {
    tell(error);
    Retryable::new(Code::SpoolFailed, "this gateway's disk cannot be read")
}

fn failed_here(error: &StoreError) -> Ended {
    tell(error);
    // A disk that fails is not asked again every second.
    let failure = Failure { attempts: 6, ..Failure::default() };
    Ended::Retry { failure, reason: Some(Reason::new(Code::SpoolFailed.name(), "this gateway's disk cannot be used")) }
}

impl Transfer<'_> {
    async fn run(&mut self) -> Result<(), Stop> {
        let known = self.service.well_known().await?;
        if matches!(self.upload.state, State::Received | State::Held) {
            return self.ask(known.uploads.path(), PREFER_WAIT).await;
        }
        let first = self.upload.delivered.is_empty() && self.upload.attempts == 0;
        match self.upload.state {
            // The first time: nobody has to be asked what is there already.
            State::Stored if first => self.begin().await?,
            _ => self.find_out(known.uploads.path()).await?,
        }
        self.send_all(known.uploads.path()).await
    }

    /// All of it is here, and is being sent.
    async fn begin(&mut self) -> Result<(), Stop> {
        self.record(Change { state: Some(State::Delivering), ..Change::default() }).await
    }

    /// Learns what the service has.
    async fn find_out(&mut self, uploads: &str) -> Result<(), Stop> {
        let request = self.service.request(Method::HEAD, &self.target());
        let answer = self.service.ask(request).await?;
        if answer.status.is_client_error() && answer.status != StatusCode::NOT_FOUND {
            // A refusal to HEAD has no body to say why.
            return self.ask(uploads, PREFER_SHORT_WAIT).await;
        }
        match self.service.judge(&answer, self.upload.total) {
            ServiceVerdict::Unknown => {
                self.has = RangeSet::new();
                Ok(())
            }
            verdict => self.apply_verdict(verdict).await,
        }
    }

    /// Sends message after message until the service has all, then takes its word for what became of it.
    async fn send_all(&mut self, uploads: &str) -> Result<(), Stop> {
        let payload = self.payload().await?;
        let mut most = self.has.len();
        loop {
            if self.upload.state == State::Stored {
                self.begin().await?;
            }
            let Some(range) = next_message(&self.layout, &self.has, &self.upload.stored, self.message_bytes) else {
                match self.more().await? {
                    true => continue,
                    false => break,
                }
            };
            let answer = self.send(&payload, range).await?;
            self.note_kept(&answer).await?;
            match self.service.judge(&answer, self.upload.total) {
                ServiceVerdict::TooLong if self.message_bytes > u64::from(RECORD_SIZE) => {
                    self.message_bytes = (self.message_bytes.min(range.len()) / 2).max(u64::from(RECORD_SIZE));
                    continue;
                }
                ServiceVerdict::AskHow => break,
                verdict => self.apply_verdict(verdict).await?,
            }
            self.idle_messages = if self.has.len() > most { 0 } else { self.idle_messages + 1 };
            most = most.max(self.has.len());
            if self.idle_messages >= IDLE_MESSAGES_MAX {
                return Err(Retryable::new(Code::DestNotHoop, "it takes messages and has no more than before").into());
            }
        }
        // The service may take its time, and may have ended the upload: its bytes count for nobody then.
        drop(payload);
        // The last answer said that it has all, and no more than that. It was not asked to wait for the application: that the
        // service has it is worth recording at once. An application that takes its time is asked for in a slot for questions.
        self.ask(uploads, PREFER_SHORT_WAIT).await
    }

    /// Whether more has been stored than was known, waiting a moment for it; not if all of it was, or the service has all of it.
    async fn more(&mut self) -> Result<bool, Stop> {
        let (core, delivery) = (self.core, self.delivery);
        let (seen, until) = (self.upload.stored.len(), Instant::now() + MORE_WAIT);
        let patient = delivery.patient.try_acquire().ok();
        loop {
            // Before looking: a commit in between is not missed.
            let mut committed = std::pin::pin!(core.committed.notified());
            committed.as_mut().enable();
            if seen == self.upload.total || self.upload.state >= State::Received {
                return Ok(false);
            }
            self.look_again().await?;
            if self.upload.stored.len() > seen || self.upload.state >= State::Received {
                return Ok(true);
            }
            if patient.is_none() || tokio::time::timeout_at(until, committed).await.is_err() {
                return self.idle(seen).await;
            }
        }
    }

    /// Puts off asking again, unless more was stored meanwhile.
    async fn idle(&mut self, seen: u64) -> Result<bool, Stop> {
        let now = self.core.clock.unix();
        let wait = now.since(self.upload.created).clamp(IDLE_SECS_MIN, IDLE_SECS_MAX);
        let next_attempt = Some(now.plus_secs(wait));
        self.record(Change { attempts: Some(0), next_attempt, reason: Some(None), ..Change::default() }).await?;
        // What was committed before that is seen here; what is committed after it is due again.
        self.look_again().await?;
        match self.upload.stored.len() > seen {
            true => Ok(true),
            false => Err(Stop::Idle),
        }
    }

    /// Reads what is recorded of the upload: senders change it meanwhile.
    async fn look_again(&mut self) -> Result<(), Stop> {
        let id = self.upload.id;
        match blocking(self.core, move |core| core.spool.get(id)).await? {
            Some(upload) if !upload.state.is_final() => {
                self.upload = upload;
                Ok(())
            }
            Some(_) | None => Err(Stop::Over),
        }
    }

    async fn payload(&self) -> Result<SharedPayload, StoreError> {
        let id = self.upload.id;
        blocking(self.core, move |core| core.spool.payload(id).map(DropBlocking::new)).await.map(Arc::new)
    }

    /// Sends one message. It ends within a second once the upload is gone.
    async fn send(&mut self, payload: &SharedPayload, range: ByteRange) -> Result<Answer, Stop> {
        let content_range = ContentRange { range, total: self.upload.total };
        let request = self
            .service
            .request(Method::PUT, &self.target())
            .header(header::CONTENT_RANGE, content_range.to_string())
            .header(header::CONTENT_TYPE, "application/octet-stream")
            .header(wire::GATEWAY, self.proof())
            .header(wire::PRELUDE, base64url(&self.upload.prelude));
        self.delivery.slots.message(self.upload.id).await;
        self.core.progress.begin(self.upload.id);
        let (body, motion) = PayloadBody::new(self.core, payload, self.upload.id, range);
        let fault = body.fault();
        let answer = tokio::select! {
            answer = self.service.exchange(request, streamed(body), &motion) => Some(answer),
            () = until_gone(self.core, self.upload.id) => None,
        };
        self.core.progress.acknowledged(self.upload.id);
        match (fault.get(), answer) {
            (_, None) => Err(Stop::Over),
            (None, Some(answer)) => {
                let answer = answer?;
                if answer.status.is_success() {
                    self.delivery.unreadable.settled(self.upload.id);
                }
                Ok(answer)
            }
            (Some(ReadError::Damaged(_)), _) => Err(self.spoilt(payload, range, Unread::Stays).await.into()),
            (Some(ReadError::Store(error)), _) => Err(self.unreadable(payload, range, error).await.into()),
        }
    }

    /// Our disk does not give back some of `range`. That may pass, so nothing changes yet; what stays so counts as
    /// spoilt.
    async fn unreadable(&self, payload: &SharedPayload, range: ByteRange, error: &StoreError) -> Retryable {
        let failed = store_failed(error);
        let is_read_error = matches!(error, StoreError::File(_));
        match is_read_error && self.delivery.unreadable.failed(self.upload.id, self.core.clock.now()) {
            true => self.spoilt(payload, range, Unread::IsSpoilt).await,
            false => failed,
        }
    }

    /// Our disk has spoilt some of `range`, none of which was sent: it is missing again.
    async fn spoilt(&self, payload: &SharedPayload, range: ByteRange, unread: Unread) -> Retryable {
        let (id, payload) = (self.upload.id, payload.clone());
        if unread == Unread::IsSpoilt {
            self.delivery.unreadable.settled(id);
        }
        let gone = blocking(self.core, move |core| {
            let mut spoilt = payload.spoilt(range)?;
            if unread == Unread::Stays {
                spoilt.unreadable = RangeSet::new();
            }
            if spoilt.is_empty() {
                return Err(io::Error::other("it reads now, and did not a moment ago").into());
            }
            let bytes = spoilt.all();
            let detail = format!("bytes {bytes} are spoilt on this gateway's disk; they have to be brought again");
            let reason = Reason::new(Code::SpoolDamaged.name(), detail);
            core.spool.spoil(id, &spoilt, &reason, core.clock.unix())?;
            let is_kept = core.spool.get(id)?.is_some_and(|upload| upload.state.keeps_payload());
            Ok::<_, StoreError>((reason, is_kept))
        });
        match gone.await {
            Ok((reason, is_kept)) => {
                // Of one that has ended, what is read may have been given back.
                if is_kept {
                    tracing::error!(%id, detail = reason.detail, "the disk has spoilt an upload");
                }
                Retryable::new(Code::SpoolDamaged, reason.detail)
            }
            Err(error) => store_failed(&error),
        }
    }

    /// A refusal can say what the service has all the same: of a message that its owner's pause broke off, say.
    async fn note_kept(&mut self, answer: &Answer) -> Result<(), Stop> {
        let Some(has) = kept_of(answer, self.upload.total) else { return Ok(()) };
        self.has = has.clone();
        self.record(Change { delivered: Some(has), ..Change::default() }).await
    }

    /// Asks what became of it.
    async fn ask(&mut self, uploads: &str, prefer: &'static str) -> Result<(), Stop> {
        let target = format!("{uploads}/{}", self.upload.id);
        let request = self.service.request(Method::GET, &target).header("prefer", prefer);
        let answer = self.service.ask(request).await?;
        let verdict = self.service.judge(&answer, self.upload.total);
        let whole = self.upload.stored.len() == self.upload.total;
        let lost = match &verdict {
            ServiceVerdict::Unknown => true,
            // Of an upload that is not all here, something is still to come to it.
            ServiceVerdict::Stands { state, .. } => *state == State::Receiving && whole,
            ServiceVerdict::Ends { .. }
            | ServiceVerdict::AskHow
            | ServiceVerdict::Corrupt { .. }
            | ServiceVerdict::TooLong
            | ServiceVerdict::Retry(_) => false,
        };
        if lost && self.upload.state.keeps_payload() {
            // The service was restored from a backup, say. We still have it; what came again before a break need not come a third time.
            self.has = match verdict {
                ServiceVerdict::Stands { has, .. } => has,
                _ => RangeSet::new(),
            };
            self.record(Change { delivered: Some(self.has.clone()), ..Change::default() }).await?;
            return Err(self.send_again().await);
        }
        self.apply_verdict(verdict).await?;
        Err(Stop::Wait(self.upload.reason.clone()))
    }

    /// Sends what the service no longer has. Ends in a wait: the next attempt asks again.
    async fn send_again(&mut self) -> Stop {
        let payload = match self.payload().await {
            Ok(payload) => payload,
            Err(error) => return error.into(),
        };
        while let Some(range) = next_message(&self.layout, &self.has, &self.upload.stored, self.message_bytes) {
            let before = self.has.len();
            let verdict = match self.send(&payload, range).await {
                Ok(answer) => self.service.judge(&answer, self.upload.total),
                Err(stop) => return stop,
            };
            if let Err(stop) = self.apply_verdict(verdict).await {
                return stop;
            }
            if self.has.len() <= before {
                break;
            }
        }
        Stop::Wait(None)
    }

    /// Records what the service said.
    async fn apply_verdict(&mut self, verdict: ServiceVerdict) -> Result<(), Stop> {
        match verdict {
            ServiceVerdict::Stands { state, has, status } => self.stands(state, has, status).await,
            ServiceVerdict::Ends { state, code, detail } => {
                let reason = Some(Some(Reason::new(code.name(), detail)));
                self.record(Change { state: Some(state), reason, ..Change::default() }).await?;
                Err(Stop::Over)
            }
            ServiceVerdict::Corrupt { record, detail } => self.corrupt(record, detail).await,
            ServiceVerdict::Retry(retryable) => Err(retryable.into()),
            ServiceVerdict::Unknown => {
                Err(Retryable::new(Code::UploadUnknown, "the service knows nothing at that address").into())
            }
            ServiceVerdict::AskHow => {
                Err(Retryable::new(Code::UploadDone, "the service has it, and does not say how").into())
            }
            ServiceVerdict::TooLong => Err(Retryable::new(Code::TooLarge, "even one record is too long for it").into()),
        }
    }

    async fn stands(&mut self, state: State, has: RangeSet, status: Option<Box<ServiceStatus>>) -> Result<(), Stop> {
        self.has = has;
        let status = status.map(|status| *status);
        let answer = status.as_ref().and_then(ServiceStatus::answer);
        let reason = status.and_then(|status| status.reason).and_then(their_reason);
        // The services' own states before `received` are all `delivering` from here, once all of it is here.
        let state = match (state, self.upload.state) {
            (State::Receiving, here @ (State::Receiving | State::Received)) => here,
            (State::Receiving, _) => State::Delivering,
            (state, _) => state,
        };
        let is_complete = answer.is_some() || reason.is_some();
        if state.is_final() && !is_complete && self.upload.answer.is_none() && state != State::Stopped {
            // A final state without its answer: the status has it. Until then all is there.
            let received = Some(State::Received);
            self.record(Change { state: received, delivered: Some(self.has.clone()), ..Change::default() }).await?;
            return self.fetch_answer(state).await;
        }
        let change = Change {
            state: Some(state),
            delivered: Some(self.has.clone()),
            attempts: Some(0),
            reason: Some(reason.clone()),
            // That of one that waits stays with its service: here nobody would count it.
            answer: answer.filter(|_| state.is_final()),
            ..Change::default()
        };
        self.upload.reason = reason;
        self.record(change).await?;
        if state.is_final() { Err(Stop::Over) } else { Ok(()) }
    }

    /// Fetches the answer that goes with a final state; without one, the state alone is recorded.
    async fn fetch_answer(&mut self, state: State) -> Result<(), Stop> {
        let known = self.service.well_known().await?;
        let target = format!("{}/{}", known.uploads.path(), self.upload.id);
        let answer = self.service.ask(self.service.request(Method::GET, &target)).await?;
        let status = ServiceStatus::parse(&answer.body).filter(|_| answer.status.is_success());
        let sealed = status.as_ref().and_then(ServiceStatus::answer);
        let reason = status.and_then(|status| status.reason).and_then(their_reason);
        let change = Change { state: Some(state), reason: Some(reason), answer: sealed, ..Change::default() };
        self.record(change).await?;
        Err(Stop::Over)
    }

    /// The service could not open a record: a few more tries, then that record is missing here again. Whoever else saw the prelude on the LAN may
    /// have brought it; the device brings its own when it hears. What the service does not name is given up.
    async fn corrupt(&mut self, record: Option<u64>, detail: String) -> Result<(), Stop> {
        let code = Code::RecordCorrupt;
        if !self.was_corrupt || self.upload.attempts + 1 < CORRUPT_MAX {
            return Err(Retryable::new(code, detail).into());
        }
        let reason = Reason::new(code.name(), detail);
        let record = record.filter(|record| *record < self.layout.records());
        let Some(range) = record.map(|record| self.layout.record(record)) else {
            let change = Change { state: Some(State::Refused), reason: Some(Some(reason)), ..Change::default() };
            self.record(change).await?;
            return Err(Stop::Over);
        };
        let (id, again) = (self.upload.id, Retryable::new(code, reason.detail.clone()));
        let gone = blocking(self.core, move |core| {
            core.spool.spoil(id, &RangeSet::from_iter([range]).into(), &reason, core.clock.unix())
        });
        gone.await?;
        Err(again.into())
    }

    async fn record(&mut self, change: Change) -> Result<(), Stop> {
        let id = self.upload.id;
        let state = blocking(self.core, move |core| core.spool.change_soon(id, &change, core.clock.unix())).await?;
        match state {
            Some(state) if !state.is_final() => {
                self.upload.state = state;
                Ok(())
            }
            // As was asked, or elsewhere: its time is over, say.
            Some(_) | None => Err(Stop::Over),
        }
    }

    /// What shows a service that it is this gateway that sends, if it asks for that.
    fn proof(&self) -> String {
        let origin = self.service.dest.origin.as_str();
        let proof = self.core.key.prove(origin, self.upload.id, self.core.clock.wall_unix());
        base64url(&proof)
    }

    /// The request target of `PUT` and `HEAD`.
    fn target(&self) -> String {
        let path = &self.service.dest.url[self.service.dest.origin.as_str().len()..];
        format!("{path}/{}", self.upload.id)
    }
}

/// What the service has of an unfinished upload, by a refusal that tells.
fn kept_of(answer: &Answer, total: u64) -> Option<RangeSet> {
    let text = |name: &HeaderName| answer.headers.get(name)?.to_str().ok();
    let unfinished = !answer.status.is_success() && text(&wire::STATE) == Some(State::Receiving.name());
    text(&wire::MISSING).filter(|_| unfinished).and_then(|missing| delivered_from_missing(missing, total))
}

fn base64url(bytes: &[u8]) -> String {
    use base64::Engine as _;
    base64::engine::general_purpose::URL_SAFE_NO_PAD.encode(bytes)
}

/// What is recorded of an attempt that is to be made again after `delay`.
pub fn put_off(failure: Failure, reason: Option<Reason>, delay: Duration, now: UnixTime) -> Change {
    // Rounded up: a second early is an attempt in vain.
    let secs = u32::try_from(delay.as_secs()).unwrap_or(u32::MAX).saturating_add(u32::from(delay.subsec_nanos() > 0));
    Change {
        attempts: Some(failure.attempts + 1),
        next_attempt: Some(now.plus_secs(secs.max(1))),
        reason: Some(reason),
        ..Change::default()
    }
}
