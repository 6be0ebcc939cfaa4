//! Handing an upload over: [`Client::push`] conducts gateway, ticket, seal and transfer.
//!
//! ```text
//!  measure ─┬─▶ find the gateway ─┬─▶ records, early
//!           └─▶ ticket ───────────┴─▶ gateway ──▶ stored ──▶ follow, as far as asked
//!                  │ no Hoop          ▲  │ absent, full, refuses, dies            │ the gateway lies, or gets on with nothing
//!                  ▼          another └──┤◀──────────────────────────────────────┘
//!               plain request            ▼ none
//!                                     service, directly ──▶ received ──▶ follow
//! ```
//!
//! What a gateway has acknowledged is its to deliver: whoever comes next is sent the rest. A device that stays finds out if that does
//! not come, and sends it itself. What the service has is the measure; nobody is believed against it.

mod admit;
mod early;
mod resume;

use self::admit::Asker;
use self::early::{Completed, Early};
use crate::ahead;
use crate::client::Client;
use crate::discovery;
use crate::error::PushError;
use crate::follow::{Followed, Follower};
use crate::identity::Met;
use crate::known::Known;
use crate::outcome::{Event, OnEvent, Outcome, PushOptions, Timings, WaitFor, Way};
use crate::plain::{self, PlainError};
use crate::receipt::BodyPiece;
use crate::saved::Saved;
use crate::sealed::Sealed;
use crate::status::{Reason, State, Status};
use crate::store::{SecretText, UploadRecord};
use crate::tags::Tags;
use crate::ticket::{self, IssuedTicket, TicketRequest, TicketsError};
use crate::told::Told;
use crate::transfer::{Held, OnBreak, OnSent, Target, Transfer, TransferError};
use crate::upload::{Measured, Upload};
use crate::wire::{Link, Refusal, field};
use bytes::Bytes;
use hoop_http::{Code, Dice, Origin, empty};
use hoop_seal::{ContentKey, Prelude, RECORD_SIZE, Suite, UploadKey};
use hoop_units::{Backoff, ByteRange, RangeSet, UploadId};
use http::{HeaderValue, Method, Response, StatusCode};
use serde::Deserialize;
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::sync::Arc;
use std::time::Duration;
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::Instant;
use url::Url;

/// Requests for a ticket that are tried, and the wait between them: somebody is standing there.
const TICKET_ATTEMPTS: u32 = 3;
/// The longest wait that a service's `Retry-After` can impose on somebody who stands there with a device. It asks for a minute at most when it
/// has issued too many.
const TICKET_WAIT_MAX: Duration = Duration::from_secs(60);
/// Told why a ticket is waited for.
type OnWait<'a> = &'a (dyn Fn(&str) + Send + Sync);
const TICKET_BACKOFF: Backoff = Backoff { base: Duration::from_millis(500), cap: Duration::from_secs(2) };

/// The longest that a service may keep us waiting for a final state (`docs/protocol.md` section 7).
const PREFER_WAIT_SECS: u32 = 30;

/// Gateways that one upload is tried at, once it is stored and the first of them gets on with nothing: a liar on every address of a LAN
/// must not keep the device from the service.
const GATEWAYS_MAX: usize = 4;

/// Gateways that it is tried at in all: as many as one search finds on a LAN, for where most of them are not the service's to use.
const TRIED_MAX: usize = 16;

/// One push under way.
struct Push<'a> {
    client: &'a Client,
    options: &'a PushOptions,
    on_event: OnEvent,
    timings: Timings,
    bytes: u64,
    /// How the body is put together.
    body: Vec<BodyPiece>,
    /// Whether it was handed over early.
    early: bool,
    /// What gateways have acknowledged, and are relied on to deliver.
    held: BTreeMap<Origin, Held>,
    /// What the service is known to have.
    at_service: RangeSet,
    /// The gateways that were tried.
    tried: Vec<Origin>,
    /// Who was met where.
    met: BTreeMap<Origin, Met>,
    /// Whose identity was told.
    told: BTreeSet<Origin>,
    /// Those that an upload may be left with.
    relied: BTreeSet<Origin>,
    /// Those that were met before.
    known: Known,
    /// When it should be at the service, in seconds since 1970.
    deadline: Option<u32>,
}

/// What the other end said when it had everything.
struct HandedOver {
    way: Way,
    answer: Response<Bytes>,
    link: Link,
}

/// An upload that is sealed, and where it can go.
struct Prepared {
    ticket: IssuedTicket,
    sealed: Sealed,
    gateway: Gateway,
}

/// How far things are with the gateway when the ticket is there.
enum Gateway {
    /// It was found, or is not there.
    Found(Result<Link, String>),
    /// It is being sent records.
    Early(Early),
}

impl Gateway {
    const fn origin(&self) -> Option<&Origin> {
        match self {
            Self::Found(Ok(link)) => Some(link.origin()),
            Self::Found(Err(_)) => None,
            Self::Early(early) => Some(&early.origin),
        }
    }
}

impl Client {
    /// Hands `upload` over and follows it as far as `options` ask.
    ///
    /// # Errors
    /// [`PushError`] if it is not known to be stored anywhere. Whatever happened to it later is in the [`Outcome`].
    pub async fn push(&self, upload: &Upload, options: &PushOptions, on_event: OnEvent) -> Result<Outcome, PushError> {
        let measured = measure(upload).await?;
        let bytes = measured.body_len();
        on_event(Event::Measured { bytes });
        Push::new(self, options, on_event, bytes, measured.pieces()).run(upload, measured).await
    }

    /// Seals `upload` and hands it to `write`, frame by frame, with a ticket of its own: the whole of Z, for whoever
    /// carries it. Returns the upload's record. `write` returns false to stop.
    ///
    /// # Errors
    /// If there is no ticket, or a file cannot be read.
    pub async fn seal(
        &self,
        upload: &Upload,
        suite: Suite,
        write: impl FnMut(&[u8]) -> bool,
    ) -> Result<UploadRecord, PushError> {
        let measured = measure(upload).await?;
        let bytes = measured.body_len();
        let mut service = Link::new(self.connector(), upload.origin().map_err(crate::UploadError::from)?);
        let ticket = match self.ticket_at_hand(upload, suite, service.origin()) {
            Some(ticket) => ticket,
            None => self.fetch_ticket(upload, suite, &mut service, None, &|_| ()).await?,
        };
        let sealed = seal(&ticket, measured, Tags::default())?;
        sealed.write_to(write).map_err(crate::UploadError::from)?;
        let record = record(upload, &ticket, bytes, sealed.layout().total(), self.config().clock.unix().as_secs());
        self.clone().save(record.clone()).await.map_err(PushError::State)?;
        Ok(record)
    }

    /// A ticket for `upload` that was fetched ahead.
    fn ticket_at_hand(&self, upload: &Upload, suite: Suite, origin: &Origin) -> Option<IssuedTicket> {
        let target = upload.target();
        let (method, target, credentials) = (&upload.method, Some(&*target), &upload.credentials);
        let request = TicketRequest { method, target, count: 1, suite, credentials, key: None, gateway: None };
        self.pouch()?.take(&ahead::fit(origin, &request), self.config().clock.unix())
    }

    /// A new ticket for `upload`, for `key` if the service takes keys.
    async fn fetch_ticket(
        &self,
        upload: &Upload,
        suite: Suite,
        service: &mut Link,
        key: Option<&UploadKey>,
        on_wait: OnWait<'_>,
    ) -> Result<IssuedTicket, PushError> {
        let target = upload.target();
        let (method, target, credentials) = (&upload.method, Some(&*target), &upload.credentials);
        let request = TicketRequest { method, target, count: 1, suite, credentials, key, gateway: None };
        Ok(self.patient_tickets(service, request, on_wait).await?.remove(0))
    }

    /// The tickets that are asked for, after some waiting if that may help: as long as the service asks for, within bounds.
    ///
    /// # Errors
    /// If the service issues none.
    pub(crate) async fn patient_tickets(
        &self,
        service: &mut Link,
        mut request: TicketRequest<'_>,
        on_wait: OnWait<'_>,
    ) -> Result<Vec<IssuedTicket>, TicketsError> {
        let clock = &self.config().clock;
        let mut attempt = 0;
        loop {
            let error = match ticket::fetch(service, &request, clock).await {
                Ok(tickets) => return Ok(tickets),
                Err(error) => error,
            };
            // It may be one that does not know the member.
            if request.key.is_some() && error.is_invalid() {
                request.key = None;
                continue;
            }
            let passing = match &error {
                // A certificate that is not trusted will not be in a second.
                TicketsError::Link(error) => !error.is_distrust(),
                TicketsError::Refused(refusal) => ticket::is_busy(refusal.status),
                TicketsError::NoHoop(_) | TicketsError::Unusable(_) => false,
            };
            attempt += 1;
            if !passing || attempt == TICKET_ATTEMPTS {
                return Err(error);
            }
            let mut wait = TICKET_BACKOFF.delay(attempt - 1, Dice.roll());
            if let TicketsError::Refused(Refusal { retry_after: Some(asked), .. }) = &error {
                wait = wait.max((*asked).min(TICKET_WAIT_MAX));
                on_wait(&format!("{error}; waiting {} s", wait.as_secs()));
            }
            tokio::time::sleep(wait).await;
        }
    }
}

impl<'a> Push<'a> {
    fn new(client: &'a Client, options: &'a PushOptions, on_event: OnEvent, bytes: u64, body: Vec<BodyPiece>) -> Self {
        let (timings, held, at_service) = (Timings::default(), BTreeMap::new(), RangeSet::new());
        let deadline = options.deadline.map(|within| {
            let secs = u32::try_from(within.as_secs()).unwrap_or(u32::MAX);
            client.config().clock.unix().plus_secs(secs).as_secs()
        });
        let (early, tried) = (false, Vec::new());
        let (met, told, relied) = (BTreeMap::new(), BTreeSet::new(), BTreeSet::new());
        let known = Known::read(client.config());
        Self {
            client,
            options,
            on_event,
            timings,
            bytes,
            body,
            early,
            held,
            at_service,
            tried,
            met,
            told,
            relied,
            known,
            deadline,
        }
    }
}

/// What is known of an upload once it can be sent: whatever happens, this stays.
struct Course {
    ticket: IssuedTicket,
    sealed: Arc<Sealed>,
    record: UploadRecord,
    /// The record's first writing, while it is under way: a later one must not be overtaken by it.
    saving: Option<JoinHandle<io::Result<()>>>,
    /// Whoever asks for more permits.
    asker: Asker,
}

impl Course {
    /// Once what was first written down of it is there.
    async fn saved(&mut self) {
        if let Some(saving) = self.saving.take() {
            let _ = saving.await;
        }
    }
}

impl Push<'_> {
    async fn run(mut self, upload: &Upload, measured: Measured) -> Result<Outcome, PushError> {
        let origin = upload.origin().map_err(crate::UploadError::from)?;
        let mut service = Link::new(self.client.connector(), origin);
        if self.options.plain {
            return self.plain(service, upload, measured, None).await;
        }
        // Aborted when dropped: whoever finds no Hoop need not wait for a gateway.
        let mut search = JoinSet::new();
        let (config, connector) = (self.client.config().clone(), self.client.connector());
        search.spawn(async move { discovery::find_and_meet(&config, connector).await });
        let Prepared { ticket, sealed, gateway } = match self.prepare(&mut service, search, upload, &measured).await {
            Ok(prepared) => prepared,
            Err(PushError::Tickets(TicketsError::NoHoop(reason))) => {
                let because = format!("the service does not take sealed uploads: {reason}");
                self.timings.sending_ms = None;
                return self.plain(service, upload, measured, Some(because)).await;
            }
            Err(error) => return Err(error),
        };
        let everything: RangeSet = [sealed.whole()].into_iter().collect();
        let now = self.client.config().clock.unix().as_secs();
        let mut record = record(upload, &ticket, self.bytes, sealed.layout().total(), now);
        record.gateway = gateway.origin().map(ToString::to_string);
        record.deadline = self.deadline;
        record.saved =
            sealed.is_kept().then(|| Saved::of(&ticket, sealed.prelude().salt(), sealed.plaintext())).flatten();
        let saving = Some(tokio::spawn(self.client.clone().save(record.clone())));
        let asker = Asker::of(upload, service, self.options.suite);
        let mut course = Course { ticket, sealed: Arc::new(sealed), record, saving, asker };
        let handed = match gateway {
            Gateway::Early(early) => match self.complete(early, &mut course).await? {
                Completed::Stored(handed) => Ok(handed),
                Completed::Rest(found, known) => self.hand_over(found, known, &mut course).await,
            },
            Gateway::Found(found) => self.hand_over(found, Some(everything), &mut course).await,
        };
        course.saved().await;
        self.conclude(handed, course).await
    }

    /// The end of handing over, whatever it is: what is stored is followed, what is not can be gone on with.
    async fn conclude(
        mut self,
        handed: Result<HandedOver, PushError>,
        mut course: Course,
    ) -> Result<Outcome, PushError> {
        match handed {
            Ok(handed) => {
                self.timings.stored_ms = Some(self.now_ms());
                self.finish(handed, course).await
            }
            Err(error) => {
                self.keep(&mut course).await;
                if course.record.is_resumable() && error.may_pass() {
                    self.tell(Event::Resumable { id: course.ticket.id });
                }
                Err(error)
            }
        }
    }

    /// By gateways, one after the other, as long as one is found that takes it or what is left of it; else directly. `known`: what the
    /// first is known to lack.
    async fn hand_over(
        &mut self,
        mut gateway: Result<Link, String>,
        mut known: Option<RangeSet>,
        course: &mut Course,
    ) -> Result<HandedOver, PushError> {
        let now = self.now_ms();
        self.timings.sending_ms.get_or_insert(now);
        let mut because = None;
        loop {
            let mut link = match gateway {
                Ok(link) => link,
                Err(reason) => {
                    // Why the one before did not take it says more than that there is no other.
                    let because = because.unwrap_or(reason);
                    return self.hand_over_directly(because, course).await;
                }
            };
            let origin = link.origin().clone();
            let way = Way::Gateway(origin.clone());
            if !self.tried.contains(&origin) {
                self.tried.push(origin.clone());
            }
            let config = self.client.config();
            let patience = config.gateway_patience.min(config.retry_max_time);
            // Whoever is waited for no longer than that is not called for longer either.
            link = link.with_timeout(config.gateway_connect_timeout.min(patience));
            let permit = match self.admit(&mut link, course).await {
                Ok(permit) => permit,
                Err(reason) => {
                    // What it has, it cannot bring there.
                    self.held.remove(&origin);
                    because = Some(reason);
                    gateway = self.another().await;
                    continue;
                }
            };
            self.tell(Event::Way { way: way.clone(), because: because.take() });
            let target = course.ticket.at_gateway(permit, self.deadline);
            // What this one has, it says itself.
            let elsewhere = self.elsewhere(Some(&origin));
            let held = self.held.entry(origin.clone()).or_default().clone();
            let sent = self.transfer(&mut link, target, course, elsewhere, held, patience).run(known.take()).await;
            let reason = match sent {
                Ok(answer) => return Ok(HandedOver { way, answer, link }),
                Err(TransferError::Source(error)) => return Err(crate::UploadError::from(error).into()),
                Err(TransferError::Refused(refusal)) => format!("the gateway does not take it: {refusal}"),
                Err(TransferError::Unusable(reason)) => format!("that is no gateway to rely on: {reason}"),
                Err(TransferError::GaveUp { reason, .. }) => format!("the gateway has gone: {reason}"),
            };
            if self.elsewhere(None).contains(course.sealed.whole()) {
                // Only the answer was lost.
                return Ok(HandedOver { way, answer: said(State::Stored), link });
            }
            self.keep(course).await;
            because = Some(reason);
            gateway = self.another().await;
        }
    }

    /// A gateway that was not tried yet.
    async fn another(&self) -> Result<Link, String> {
        if self.tried.len() >= TRIED_MAX {
            return Err(format!("{TRIED_MAX} gateways were tried"));
        }
        discovery::find(self.client.config(), self.client.connector(), &self.tried).await
    }

    async fn hand_over_directly(&mut self, because: String, course: &Course) -> Result<HandedOver, PushError> {
        let (config, total) = (self.client.config(), course.sealed.layout().total());
        self.tell(Event::Way { way: Way::Direct, because: Some(because) });
        self.tell(Event::Progress { sent: 0, total });
        let post = Origin::of(&course.ticket.post).expect("checked with the ticket");
        let mut service = Link::new(self.client.connector(), post);
        let elsewhere = self.elsewhere(None);
        // Where others have a part, it is not final when this device has sent its own.
        let alone = self.held.values().all(|held| held.ranges().is_empty());
        let wait = self.options.wait == WaitFor::Accepted && alone;
        let wait_secs = if wait { PREFER_WAIT_SECS } else { 0 };
        let wait_secs = self.options.timeout.map_or(wait_secs, |timeout| {
            u32::try_from(timeout.as_secs()).map_or(wait_secs, |secs| secs.min(wait_secs))
        });
        let target = course.ticket.at_service(wait_secs);
        let patience = config.retry_max_time;
        let mut sent: RangeSet = [course.sealed.whole()].into_iter().collect();
        elsewhere.iter().for_each(|range| sent.remove(range));
        let transfer = self.transfer(&mut service, target, course, elsewhere, Held::default(), patience);
        let outcome = transfer.run(None).await;
        match outcome {
            Ok(answer) => {
                sent.iter().for_each(|range| self.at_service.insert(range));
                Ok(HandedOver { way: Way::Direct, answer, link: service })
            }
            Err(TransferError::Source(error)) => Err(crate::UploadError::from(error).into()),
            Err(TransferError::Refused(refusal)) if is_done(&refusal) => {
                self.at_service.insert(course.sealed.whole());
                Ok(HandedOver { way: Way::Direct, answer: said(State::Received), link: service })
            }
            Err(TransferError::Refused(refusal)) => Err(PushError::Refused(refusal)),
            Err(TransferError::GaveUp { refusal: Some(refusal), .. }) => Err(PushError::NotNow(refusal)),
            Err(TransferError::Unusable(reason) | TransferError::GaveUp { reason, .. }) => {
                Err(PushError::Unreachable(reason))
            }
        }
    }

    /// What need not be sent to whoever comes next, which is this one.
    fn elsewhere(&self, next: Option<&Origin>) -> RangeSet {
        let mut elsewhere = self.at_service.clone();
        let others = self.held.iter().filter(|(origin, _)| Some(*origin) != next);
        others.for_each(|(_, held)| held.ranges().iter().for_each(|range| elsewhere.insert(range)));
        elsewhere
    }

    /// Writes down who has what, for a later process.
    async fn keep(&self, course: &mut Course) {
        let held = self.held.iter().map(|(origin, held)| (origin.to_string(), held.ranges()));
        let held = held.filter(|(_, ranges)| !ranges.is_empty());
        course.record.held = held.map(|(origin, ranges)| (origin, ranges.to_string())).collect();
        course.saved().await;
        if let Err(error) = self.client.clone().save(course.record.clone()).await {
            tracing::debug!(%error, "cannot write down who has what");
        }
    }

    fn transfer<'b>(
        &'b self,
        link: &'b mut Link,
        target: Target,
        course: &Course,
        elsewhere: RangeSet,
        held: Held,
        patience: Duration,
    ) -> Transfer<'b> {
        let (id, sealed) = (course.ticket.id, course.sealed.clone());
        let on_sent = self.progress(sealed.layout().total());
        let on_break = self.on_break();
        let config = self.client.config();
        let witness = target.service().and_then(|service| self.witness(link.origin(), service));
        Transfer { config, link, target, id, sealed, elsewhere, held, patience, witness, on_sent, on_break }
    }

    /// Stored: tells so, follows as far as asked, and writes the end down.
    async fn finish(mut self, handed: HandedOver, mut course: Course) -> Result<Outcome, PushError> {
        let mut way = handed.way.clone();
        let whole = course.sealed.whole();
        let mut monitor = self.stored(&handed, &mut course);
        let first = Status::read(handed.answer.body(), course.ticket.id, &course.ticket.key);
        let (state, proven) = self.state_of(&handed, first.as_ref());
        let mut followed = Followed { state, status: first, proven, timed_out: false, doubt: None, denied: false };
        // What lies with a gateway that has not shown who it is, or with nobody, is waited for.
        let wait = |push: &Self| {
            if push.may_leave(whole) { push.options.wait } else { push.options.wait.max(WaitFor::Received) }
        };
        if !followed.satisfies(wait(&self)) {
            let deadline = self.options.timeout.map(|timeout| Instant::now() + timeout);
            let mut link = matches!(way, Way::Gateway(_)).then_some(handed.link);
            let mut doubting =
                matches!(way, Way::Gateway(_)) || self.held.values().any(|held| !held.ranges().is_empty());
            loop {
                let (id, key, record) = (course.ticket.id, &course.ticket.key, &course.record);
                let follower = Follower { client: self.client, id, key, record };
                let (wait, state) = (wait(&self), followed.state);
                followed = follower.until(wait, deadline, state, link.take(), doubting, &self.on_event).await;
                let Some(doubt) = followed.doubt.take() else { break };
                self.tell(Event::Doubt { reason: doubt.clone() });
                if followed.denied {
                    course.record.deny_gateway();
                }
                match self.take_over(doubt, &mut course).await {
                    Ok(handed) => {
                        way.clone_from(&handed.way);
                        doubting = matches!(way, Way::Gateway(_));
                        (followed.state, followed.proven) = self.state_of(&handed, None);
                        monitor = self.stored(&handed, &mut course);
                        link = doubting.then_some(handed.link);
                    }
                    // Nobody has it whose word counts.
                    Err(error) => {
                        self.keep(&mut course).await;
                        if course.record.is_resumable() && error.may_pass() {
                            self.tell(Event::Resumable { id: course.ticket.id });
                        }
                        return Err(error);
                    }
                }
            }
        }
        self.timings.done_ms = Some(self.now_ms());
        course.record.state = followed.state.name().to_owned();
        course.record.finished = followed.is_proven_final();
        if let Err(error) = self.client.clone().save(course.record).await {
            self.tell(Event::Forgotten { reason: error.to_string() });
        }
        let (reason, answer) = followed.status.map_or((None, None), |status| (status.reason, status.answer));
        Ok(Outcome {
            id: Some(course.ticket.id),
            early: self.early,
            way,
            state: followed.state,
            may_leave: self.may_leave(whole) || (followed.proven && followed.state >= State::Received),
            timed_out: followed.timed_out,
            monitor,
            bytes: self.bytes,
            body: self.body,
            reason,
            answer,
            timings: self.timings,
        })
    }

    /// How far it is when it was handed over so, and whether the service says so. `status`: what the answer's document told.
    fn state_of(&self, handed: &HandedOver, status: Option<&Status>) -> (State, bool) {
        let told = field(handed.answer.headers(), "hoop-state").and_then(State::by_name);
        match (&handed.way, told) {
            // Others have the rest.
            (_, Some(State::Announced | State::Receiving)) | (Way::Gateway(_), None) => (State::Stored, false),
            (Way::Gateway(_), Some(told)) => match status.filter(|status| status.proven) {
                Some(status) => (status.state, true),
                // Of service and application it has no say.
                None => (told.min(State::Delivering), false),
            },
            (Way::Direct | Way::Plain, told) => (told.unwrap_or(State::Received), true),
        }
    }

    /// Tells that all of it is stored, and returns where it can be followed.
    fn stored(&mut self, handed: &HandedOver, course: &mut Course) -> Option<String> {
        let (id, whole, record) = (course.ticket.id, course.sealed.whole(), &mut course.record);
        let at_gateway = matches!(handed.way, Way::Gateway(_));
        let monitor = at_gateway.then(|| monitor_of(&handed.link, &handed.answer, id));
        record.monitor.clone_from(&monitor);
        record.gateway = None;
        if let Way::Gateway(origin) = &handed.way {
            record.gateway = Some(origin.to_string());
            if self.relied.contains(origin) {
                discovery::remember(self.client.config(), origin);
            }
            self.remember_key(origin);
        }
        self.tell(Event::Stored { monitor: monitor.clone(), may_leave: self.may_leave(whole) });
        monitor
    }

    /// Sends what the service lacks by another way: no gateway is relied on any longer.
    async fn take_over(&mut self, because: String, course: &mut Course) -> Result<HandedOver, PushError> {
        self.held.clear();
        self.at_service = self.ask_service(course).await.unwrap_or_default();
        let next = match self.tried.len() < GATEWAYS_MAX {
            true => self.another().await,
            false => Err(because.clone()),
        };
        self.hand_over(next.map_err(|_| because), None, course).await
    }

    /// What the service has; `None` if it cannot be asked.
    async fn ask_service(&self, course: &Course) -> Option<RangeSet> {
        let post = &course.ticket.post;
        let mut service = Link::new(self.client.connector(), Origin::of(post).ok()?);
        let request = service.request(Method::HEAD, &format!("{}/{}", post.path(), course.ticket.id), empty());
        let answer = service.ask(request, self.client.config().stall_timeout).await.ok()?;
        let total = course.sealed.layout().total();
        let mut has: RangeSet = [ByteRange::new(0, total)].into_iter().collect();
        match answer.status() {
            StatusCode::OK => {
                let told = Told::read(answer.headers(), course.ticket.id, total).ok()?;
                told.missing.iter().for_each(|span| has.remove(span));
            }
            StatusCode::NOT_FOUND => has = RangeSet::new(),
            _ => return None,
        }
        Some(has)
    }

    async fn plain(
        mut self,
        mut service: Link,
        upload: &Upload,
        measured: Measured,
        because: Option<String>,
    ) -> Result<Outcome, PushError> {
        self.tell(Event::Way { way: Way::Plain, because });
        self.timings.sending_ms = Some(self.now_ms());
        let on_sent = self.progress(measured.body_len());
        let sent = plain::send(self.client.config(), &mut service, upload, measured, on_sent).await;
        let (state, reason, answer) = match sent {
            Ok((state, answer)) => (state, None, Some(answer)),
            Err(PlainError::AnswerLost(error)) => {
                let code = Code::AnswerLost.name().to_owned();
                (State::Unknown, Some(Reason { code, detail: error.to_string() }), None)
            }
            Err(PlainError::Connect(error)) => return Err(PushError::Unreachable(error.to_string())),
            Err(PlainError::Broken(error)) => return Err(PushError::Unreachable(error.to_string())),
            Err(PlainError::Source(error)) => return Err(crate::UploadError::from(error).into()),
        };
        let now = self.now_ms();
        (self.timings.stored_ms, self.timings.done_ms) = (Some(now), Some(now));
        Ok(Outcome {
            id: None,
            way: Way::Plain,
            early: false,
            state,
            may_leave: true,
            timed_out: false,
            monitor: None,
            bytes: self.bytes,
            body: Vec::new(),
            reason,
            answer,
            timings: self.timings,
        })
    }

    fn on_break(&self) -> OnBreak {
        let on_event = self.on_event.clone();
        Box::new(move |reason: &str| on_event(Event::Broken { reason: reason.to_owned() }))
    }

    fn progress(&self, total: u64) -> OnSent {
        let on_event = self.on_event.clone();
        Arc::new(move |sent| on_event(Event::Progress { sent, total }))
    }

    fn tell(&self, event: Event) {
        (self.on_event)(event);
    }

    fn now_ms(&self) -> u64 {
        self.client.config().clock.now().as_micros() / 1000
    }
}

/// Opens and measures on a thread that may block: pipes are copied.
async fn measure(upload: &Upload) -> Result<Measured, PushError> {
    let upload = upload.clone();
    let measured = tokio::task::spawn_blocking(move || upload.measure(Dice)).await;
    Ok(measured.map_err(|_| PushError::Internal("reading the files panicked"))??)
}

fn seal(ticket: &IssuedTicket, measured: Measured, tags: Tags) -> Result<Sealed, PushError> {
    let plaintext = measured.into_plaintext(&ticket.token)?;
    let prelude = Prelude::new(Dice.octets(), RECORD_SIZE, &ticket.ticket).expect("a ticket is shorter than a key id");
    let key = ContentKey::new(ticket.suite, &ticket.key, prelude.salt());
    let len = plaintext.len();
    let sealed =
        Sealed::new(prelude, key, plaintext).map_err(|_| PushError::TooLarge { len, max: ticket.max_bytes })?;
    within_limit(sealed.with_tags(tags), ticket)
}

/// What the last answer would have said.
fn said(state: State) -> Response<Bytes> {
    let mut answer = Response::new(Bytes::new());
    answer.headers_mut().insert("hoop-state", HeaderValue::from_static(state.name()));
    answer
}

fn within_limit(sealed: Sealed, ticket: &IssuedTicket) -> Result<Sealed, PushError> {
    match sealed.layout().total() {
        total if total > ticket.max_bytes => Err(PushError::TooLarge { len: total, max: ticket.max_bytes }),
        _ => Ok(sealed),
    }
}

fn record(upload: &Upload, ticket: &IssuedTicket, bytes: u64, total: u64, now: u32) -> UploadRecord {
    let mut url = upload.url.clone();
    url.set_query(None);
    url.set_fragment(None);
    UploadRecord {
        id: ticket.id.to_hex(),
        key: SecretText::of(&ticket.key),
        url: url.to_string(),
        dest: ticket.post.to_string(),
        uploads: uploads_of(&ticket.post).to_string(),
        gateway: None,
        monitor: None,
        name: upload.label(),
        bytes,
        total,
        created: now,
        expires: ticket.expires.as_secs(),
        state: State::Receiving.name().to_owned(),
        finished: false,
        denied: Vec::new(),
        held: BTreeMap::new(),
        deadline: None,
        permits: BTreeMap::new(),
        token: Some(SecretText::new(&ticket.token)),
        saved: None,
    }
}

/// The uploads resource stands beside the post resource (`docs/protocol.md` section 7).
fn uploads_of(post: &Url) -> Url {
    post.join("uploads").expect("a relative path joins any http URL")
}

/// The service has everything already, and the application too.
fn is_done(refusal: &Refusal) -> bool {
    refusal.problem.as_ref().is_some_and(|problem| problem.code == Code::UploadDone)
}

/// Where a person can follow the upload: the page that the gateway names, if it is its own; else where its pages are.
fn monitor_of(link: &Link, answer: &Response<Bytes>, id: UploadId) -> String {
    #[derive(Deserialize)]
    struct Receipt {
        monitor: String,
    }
    let said =
        serde_json::from_slice::<Receipt>(answer.body()).ok().and_then(|receipt| receipt.monitor.parse::<Url>().ok());
    // A link to elsewhere, under our name, would be a lure.
    let said = said.filter(|url| Origin::of(url).is_ok_and(|origin| &origin == link.origin()));
    said.map_or_else(|| format!("{}/monitor?ID={id}", link.origin()), |url| url.to_string())
}
