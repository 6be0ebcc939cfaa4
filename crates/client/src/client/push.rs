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
mod asker;
mod context;
mod early;
mod finish;
mod hand_over;
mod resume;
mod sealing;

use self::asker::Asker;
use self::context::{PreparedUpload, Push};
use self::early::{Completed, Gateway, SealedUpload};
use self::sealing::{measure, record, seal};
use crate::client::Client;
use crate::client::error::PushError;
use crate::gateway::discovery;
use crate::outcome::{Event, OnEvent, Outcome, PushOptions, Way};
use crate::request::upload::{Measured, Upload};
use crate::seal::seal_guard::SealGuard;
use crate::send::plain::{self, PlainError};
use crate::state::resume_state::ResumeState;
use crate::state::store::UploadRecord;
use crate::ticket::TicketsError;
use crate::wire::Link;
use crate::wire::status::{Reason, State};
use hoop_http::Code;
use hoop_seal::Suite;
use hoop_units::RangeSet;
use std::sync::Arc;
use tokio::task::JoinSet;

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
        let sealed = seal(&ticket, measured, SealGuard::default())?;
        sealed.write_to(write).map_err(crate::UploadError::from)?;
        let record = record(upload, &ticket, bytes, sealed.layout().total(), self.config().clock.unix().as_secs());
        self.clone().save(record.clone()).await.map_err(PushError::State)?;
        Ok(record)
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
        let SealedUpload { ticket, sealed, gateway } = match self.prepare(&mut service, search, upload, &measured).await
        {
            Ok(sealed) => sealed,
            Err(PushError::Tickets(TicketsError::NoHoop(reason))) if !self.options.sealed_only => {
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
        record.resume_state =
            sealed.is_kept().then(|| ResumeState::of(&ticket, sealed.prelude().salt(), sealed.plaintext())).flatten();
        let saving = Some(tokio::spawn(self.client.clone().save(record.clone())));
        let asker = Asker::of(upload, service, self.options.suite);
        let mut prepared = PreparedUpload { ticket, sealed: Arc::new(sealed), record, saving, asker };
        let handed = match gateway {
            Gateway::Early(early) => match self.complete(early, &mut prepared).await? {
                Completed::Stored(handed) => Ok(handed),
                Completed::Rest(found, known) => self.hand_over(found, known, &mut prepared).await,
            },
            Gateway::Found(found) => self.hand_over(found, Some(everything), &mut prepared).await,
        };
        prepared.written().await;
        self.conclude(handed, prepared).await
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
}
