//! Handing an upload over: [`Client::push`] conducts gateway, ticket, seal and transfer.
//!
//! ```text
//!  measure ─┬─▶ find the gateway ─┬─▶ records, early
//!           └─▶ ticket ───────────┴─▶ gateway ──▶ stored ──▶ follow, as far as asked
//!                  │ no Hoop             │ absent, full, refuses, dies
//!                  ▼                     ▼
//!               plain request         service, directly ──▶ received ──▶ follow
//! ```

mod early;

use self::early::{Completed, Early};
use crate::ahead;
use crate::client::Client;
use crate::discovery;
use crate::error::PushError;
use crate::follow::{Followed, Follower};
use crate::outcome::{Event, OnEvent, Outcome, PushOptions, Timings, WaitFor, Way};
use crate::plain::{self, PlainError};
use crate::receipt::BodyPiece;
use crate::sealed::Sealed;
use crate::status::{Reason, State, Status};
use crate::store::{SecretText, UploadRecord};
use crate::ticket::{self, IssuedTicket, TicketRequest, TicketsError};
use crate::transfer::{OnBreak, OnSent, Target, Transfer, TransferError};
use crate::upload::{Measured, Upload};
use crate::wire::{Link, Refusal, field};
use bytes::Bytes;
use hoop_http::{Code, Dice, Origin};
use hoop_seal::{ContentKey, Prelude, RECORD_SIZE, Suite, UploadKey};
use hoop_units::{Backoff, RangeSet, UploadId};
use http::Response;
use serde::Deserialize;
use std::sync::Arc;
use std::time::Duration;
use tokio::task::JoinSet;
use url::Url;

/// Requests for a ticket that are tried, and the wait between them: somebody is standing there.
const TICKET_ATTEMPTS: u32 = 3;
const TICKET_BACKOFF: Backoff = Backoff { base: Duration::from_millis(500), cap: Duration::from_secs(2) };

/// The longest that a service may keep us waiting for a final state (`docs/protocol.md` section 7).
const PREFER_WAIT_SECS: u32 = 30;

/// One push under way.
struct Push<'a> {
    client: &'a Client,
    upload: &'a Upload,
    options: &'a PushOptions,
    on_event: OnEvent,
    timings: Timings,
    bytes: u64,
    /// How the body is put together.
    body: Vec<BodyPiece>,
    /// Whether it was handed over early.
    early: bool,
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
        let (timings, body) = (Timings::default(), measured.pieces());
        let push = Push { client: self, upload, options, on_event, timings, bytes, body, early: false };
        push.run(measured).await
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
            None => self.fetch_ticket(upload, suite, &mut service, None).await?,
        };
        let sealed = seal(&ticket, measured)?;
        sealed.write_to(write).map_err(crate::UploadError::from)?;
        let record = record(upload, &ticket, bytes, sealed.layout().total(), self.config().clock.unix().as_secs());
        self.clone().save(record.clone()).await.map_err(PushError::State)?;
        Ok(record)
    }

    /// A ticket for `upload` that was fetched ahead.
    fn ticket_at_hand(&self, upload: &Upload, suite: Suite, origin: &Origin) -> Option<IssuedTicket> {
        let target = upload.target();
        let (method, credentials) = (&upload.method, &upload.credentials);
        let request = TicketRequest { method, target: &target, count: 1, suite, credentials, key: None };
        self.pouch()?.take(&ahead::fit(origin, &request), self.config().clock.unix())
    }

    /// A new ticket for `upload`, for `key` if the service takes keys.
    async fn fetch_ticket(
        &self,
        upload: &Upload,
        suite: Suite,
        service: &mut Link,
        key: Option<&UploadKey>,
    ) -> Result<IssuedTicket, PushError> {
        let target = upload.target();
        let (method, credentials) = (&upload.method, &upload.credentials);
        let mut request = TicketRequest { method, target: &target, count: 1, suite, credentials, key };
        let clock = &self.config().clock;
        let mut attempt = 0;
        loop {
            let error = match ticket::fetch(service, &request, clock).await {
                Ok(mut tickets) => return Ok(tickets.remove(0)),
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
                return Err(error.into());
            }
            tokio::time::sleep(TICKET_BACKOFF.delay(attempt - 1, Dice.roll())).await;
        }
    }
}

impl Push<'_> {
    async fn run(mut self, measured: Measured) -> Result<Outcome, PushError> {
        let origin = self.upload.origin().map_err(crate::UploadError::from)?;
        let mut service = Link::new(self.client.connector(), origin);
        if self.options.plain {
            return self.plain(service, measured, None).await;
        }
        // Aborted when dropped: whoever finds no Hoop need not wait for a gateway.
        let mut search = JoinSet::new();
        let (config, connector) = (self.client.config().clone(), self.client.connector());
        search.spawn(async move { discovery::find(&config, connector).await });
        let Prepared { ticket, sealed, gateway } = match self.prepare(&mut service, search, &measured).await {
            Ok(prepared) => prepared,
            Err(PushError::Tickets(TicketsError::NoHoop(reason))) => {
                let because = format!("the service does not take sealed uploads: {reason}");
                self.timings.sending_ms = None;
                return self.plain(service, measured, Some(because)).await;
            }
            Err(error) => return Err(error),
        };
        let (total, everything) = (sealed.layout().total(), sealed.whole());
        let sealed = Arc::new(sealed);
        let mut record = record(self.upload, &ticket, self.bytes, total, self.client.config().clock.unix().as_secs());
        record.gateway = gateway.origin().map(ToString::to_string);
        let saving = tokio::spawn(self.client.clone().save(record.clone()));
        let handed = match gateway {
            Gateway::Early(early) => match self.complete(early, &ticket, &sealed).await? {
                Completed::Stored(handed) => handed,
                Completed::Rest(link, known) => self.hand_over(Ok(link), known, service, &ticket, sealed).await?,
            },
            Gateway::Found(found) => {
                let known = Some([everything].into_iter().collect());
                self.hand_over(found, known, service, &ticket, sealed).await?
            }
        };
        self.timings.stored_ms = Some(self.now_ms());
        let _ = saving.await;
        self.finish(handed, record, &ticket).await
    }

    /// By the gateway if there is one that takes it, else directly. `known`: what the gateway is known to lack.
    async fn hand_over(
        &mut self,
        gateway: Result<Link, String>,
        mut known: Option<RangeSet>,
        mut service: Link,
        ticket: &IssuedTicket,
        sealed: Arc<Sealed>,
    ) -> Result<HandedOver, PushError> {
        let config = self.client.config();
        let total = sealed.layout().total();
        let now = self.now_ms();
        self.timings.sending_ms.get_or_insert(now);
        let because = match gateway {
            Err(reason) => reason,
            Ok(mut link) => {
                let way = Way::Gateway(link.origin().clone());
                self.tell(Event::Way { way: way.clone(), because: None });
                let patience = config.gateway_patience.min(config.retry_max_time);
                let target = ticket.at_gateway();
                let sent = self.transfer(&mut link, target, ticket.id, &sealed, patience).run(known).await;
                known = None;
                match sent {
                    Ok(answer) => return Ok(HandedOver { way, answer, link }),
                    Err(TransferError::Source(error)) => return Err(crate::UploadError::from(error).into()),
                    Err(TransferError::Refused(refusal)) => format!("the gateway does not take it: {refusal}"),
                    Err(TransferError::GaveUp(reason)) => format!("the gateway has gone: {reason}"),
                }
            }
        };
        self.tell(Event::Way { way: Way::Direct, because: Some(because) });
        self.tell(Event::Progress { sent: 0, total });
        let post = Origin::of(&ticket.post).expect("checked with the ticket");
        if post != *service.origin() {
            service = Link::new(self.client.connector(), post);
        }
        let wait_secs = if self.options.wait == WaitFor::Accepted { PREFER_WAIT_SECS } else { 0 };
        let wait_secs = self.options.timeout.map_or(wait_secs, |timeout| {
            u32::try_from(timeout.as_secs()).map_or(wait_secs, |secs| secs.min(wait_secs))
        });
        let target = ticket.at_service(wait_secs);
        let transfer = self.transfer(&mut service, target, ticket.id, &sealed, config.retry_max_time);
        match transfer.run(known).await {
            Ok(answer) => Ok(HandedOver { way: Way::Direct, answer, link: service }),
            Err(TransferError::Source(error)) => Err(crate::UploadError::from(error).into()),
            Err(TransferError::Refused(refusal)) if is_done(&refusal) => {
                let mut answer = Response::new(Bytes::new());
                answer.headers_mut().insert("hoop-state", const { http::HeaderValue::from_static("received") });
                Ok(HandedOver { way: Way::Direct, answer, link: service })
            }
            Err(TransferError::Refused(refusal)) => Err(PushError::Refused(refusal)),
            Err(TransferError::GaveUp(reason)) => Err(PushError::Unreachable(reason)),
        }
    }

    fn transfer<'b>(
        &'b self,
        link: &'b mut Link,
        target: Target,
        id: UploadId,
        sealed: &Arc<Sealed>,
        patience: Duration,
    ) -> Transfer<'b> {
        let on_sent = self.progress(sealed.layout().total());
        let on_break = self.on_break();
        let config = self.client.config();
        Transfer { config, link, target, id, sealed: sealed.clone(), patience, on_sent, on_break }
    }

    /// Stored: tells so, follows as far as asked, and writes the end down.
    async fn finish(
        mut self,
        handed: HandedOver,
        mut record: UploadRecord,
        ticket: &IssuedTicket,
    ) -> Result<Outcome, PushError> {
        let HandedOver { way, answer, link } = handed;
        let told = field(answer.headers(), "hoop-state").and_then(State::by_name);
        let at_gateway = matches!(way, Way::Gateway(_));
        let state = told.unwrap_or(if at_gateway { State::Stored } else { State::Received });
        let monitor = at_gateway.then(|| monitor_of(&link, &answer, ticket.id));
        record.monitor.clone_from(&monitor);
        match &way {
            Way::Gateway(origin) => discovery::remember(self.client.config(), origin),
            Way::Direct | Way::Plain => record.gateway = None,
        }
        self.tell(Event::Stored { monitor: monitor.clone() });
        let first = Status::read(answer.body(), ticket.id, &ticket.key);
        let mut followed = Followed { state, status: first, timed_out: false };
        if !followed.satisfies(self.options.wait) {
            let follower = Follower { client: self.client, id: ticket.id, key: &ticket.key, record: &record };
            let link = at_gateway.then_some(link);
            followed = follower.until(self.options.wait, self.options.timeout, state, link, &self.on_event).await;
        }
        self.timings.done_ms = Some(self.now_ms());
        record.state = followed.state.name().to_owned();
        record.finished = followed.state.is_final();
        if let Err(error) = self.client.clone().save(record).await {
            self.tell(Event::Forgotten { reason: error.to_string() });
        }
        let (reason, answer) = followed.status.map_or((None, None), |status| (status.reason, status.answer));
        Ok(Outcome {
            id: Some(ticket.id),
            early: self.early,
            way,
            state: followed.state,
            timed_out: followed.timed_out,
            monitor,
            bytes: self.bytes,
            body: self.body,
            reason,
            answer,
            timings: self.timings,
        })
    }

    async fn plain(
        mut self,
        mut service: Link,
        measured: Measured,
        because: Option<String>,
    ) -> Result<Outcome, PushError> {
        self.tell(Event::Way { way: Way::Plain, because });
        self.timings.sending_ms = Some(self.now_ms());
        let on_sent = self.progress(measured.body_len());
        let sent = plain::send(self.client.config(), &mut service, self.upload, measured, on_sent).await;
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

fn seal(ticket: &IssuedTicket, measured: Measured) -> Result<Sealed, PushError> {
    let plaintext = measured.into_plaintext(&ticket.token)?;
    let prelude = Prelude::new(Dice.octets(), RECORD_SIZE, &ticket.ticket).expect("a ticket is shorter than a key id");
    let key = ContentKey::new(ticket.suite, &ticket.key, prelude.salt());
    let len = plaintext.len();
    let sealed =
        Sealed::new(prelude, key, plaintext).map_err(|_| PushError::TooLarge { len, max: ticket.max_bytes })?;
    within_limit(sealed, ticket)
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

/// Where a person can follow the upload: as the gateway says, or as we reached it.
fn monitor_of(link: &Link, answer: &Response<Bytes>, id: UploadId) -> String {
    #[derive(Deserialize)]
    struct Receipt {
        monitor: String,
    }
    let said =
        serde_json::from_slice::<Receipt>(answer.body()).ok().and_then(|receipt| receipt.monitor.parse::<Url>().ok());
    let said = said.filter(|url| Origin::of(url).is_ok());
    said.map_or_else(|| format!("{}/monitor?ID={id}", link.origin()), |url| url.to_string())
}
