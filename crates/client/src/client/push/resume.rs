//! Going on with an upload that another process began, perhaps in another network: [`Client::resume`].
//!
//! The record has the ticket, the salt and the plaintext's parts, and the tags beside it what was sealed, so the very same Z is sealed again,
//! or nothing is. What the service has and gateways have acknowledged is not sent once more.

use super::asker::Asker;
use super::context::{HandedOver, PreparedUpload, Push};
use super::hand_over::said;
use crate::client::Client;
use crate::client::error::PushError;
use crate::outcome::{Event, OnEvent, Outcome, PushOptions, Way};
use crate::seal::seal_guard::SealGuard;
use crate::seal::sealed::Sealed;
use crate::send::transfer::Held;
use crate::state::resume_state::ResumeError;
use crate::state::store::UploadRecord;
use crate::ticket::IssuedTicket;
use crate::wire::Link;
use crate::wire::status::State;
use bytes::Bytes;
use hoop_http::{Origin, empty};
use hoop_seal::{ContentKey, Prelude, RECORD_SIZE};
use hoop_units::{RangeSet, UploadId};
use http::{Method, Response, StatusCode};
use std::io;
use std::sync::Arc;
use url::Url;

impl Client {
    /// Goes on with an upload of this device that did not come to its end, or whose gateway is not to be relied on, from where gateways
    /// and service have it. Its files must be as they were.
    ///
    /// # Errors
    /// [`PushError`] if it cannot be gone on with, or is not known to be stored anywhere.
    pub async fn resume(&self, id: UploadId, options: &PushOptions, on_event: OnEvent) -> Result<Outcome, PushError> {
        let unknown = ResumeError::NotKept("this device remembers no such upload");
        let record = self.record(id).map_err(|_| unknown)?;
        let (ticket, sealed) = self.clone().seal_again(record.clone()).await?;
        on_event(Event::Measured { bytes: record.bytes });
        on_event(Event::Ticket { id, ahead: true });
        let mut push = Push::new(self, options, on_event, record.bytes, Vec::new());
        let read = |(origin, ranges): (&String, &String)| Some((origin.parse().ok()?, Held::of(ranges.parse().ok()?)));
        push.deadline = push.deadline.or(record.deadline);
        push.held = record.held.iter().filter_map(read).collect();
        push.tried = record.denied.iter().filter_map(|origin| origin.parse().ok()).collect();
        let url: Url = record.url.parse().map_err(|_| ResumeError::NotKept("its record is damaged"))?;
        let service = Link::new(self.connector(), Origin::of(&url).map_err(crate::UploadError::from)?);
        let asker = Asker::of_kept(service, ticket.suite);
        let prepared = PreparedUpload { ticket, sealed: Arc::new(sealed), record, saving: None, asker };
        push.go_on(prepared).await
    }

    /// The very same Z.
    async fn seal_again(self, record: UploadRecord) -> Result<(IssuedTicket, Sealed), PushError> {
        let sealed = tokio::task::spawn_blocking(move || {
            let none = ResumeError::NotKept(
                "it is finished, was sealed into a file, or its bytes came from a pipe or a program",
            );
            let (state, store) = record.resume_state.as_ref().zip(self.store()).ok_or(none)?;
            let (ticket, salt) = state.ticket()?;
            let plaintext = state.plaintext().map_err(crate::UploadError::from)?;
            let prelude = Prelude::new(salt, RECORD_SIZE, &ticket.ticket).expect("a ticket is shorter than a key id");
            let key = ContentKey::new(ticket.suite, &ticket.key, &salt);
            let damaged = ResumeError::NotKept("its record is damaged");
            let sealed =
                Sealed::new(prelude, key, plaintext).ok().filter(|sealed| sealed.layout().total() == record.total);
            let sealed = sealed.ok_or(damaged)?;
            let guard =
                SealGuard::open(&store.seal_guard(ticket.id), sealed.layout().records()).map_err(
                    |error| match error.kind() {
                        io::ErrorKind::WouldBlock => ResumeError::InUse,
                        _ => ResumeError::NotKept("what was sealed of it is not known any more"),
                    },
                )?;
            Ok((ticket, sealed.with_guard(guard)))
        });
        sealed.await.unwrap_or(Err(PushError::Internal("sealing it again panicked")))
    }
}

impl Push<'_> {
    /// How it stands at the service, as that tells it.
    async fn status_of(&self, prepared: &PreparedUpload) -> Option<Response<Bytes>> {
        let uploads: Url = prepared.record.uploads.parse().ok()?;
        let mut service = Link::new(self.client.connector(), Origin::of(&uploads).ok()?);
        let path = format!("{}/{}", uploads.path(), prepared.ticket.id);
        let request = service.request(Method::GET, &path, empty());
        let answer = service.ask(request, self.client.config().stall_timeout).await.ok()?;
        (answer.status() == StatusCode::OK).then_some(answer)
    }

    async fn go_on(mut self, mut prepared: PreparedUpload) -> Result<Outcome, PushError> {
        // Nobody is believed against the service: it may have forgotten what a gateway was relied on to deliver.
        let has = self.ask_service(&prepared).await;
        self.at_service = has.clone().unwrap_or_default();
        let whole = prepared.sealed.whole();
        if has.is_some_and(|has| has.contains(whole)) {
            let post = Origin::of(&prepared.ticket.post).expect("checked with the ticket");
            let link = Link::new(self.client.connector(), post);
            // What it has may wait for its owner, or have ended.
            let answer = self.status_of(&prepared).await.unwrap_or_else(|| said(State::Received));
            let handed = HandedOver { way: Way::Direct, answer, link };
            return self.conclude(Ok(handed), prepared).await;
        }
        // All of it lies with gateways, and yet somebody asks to go on: they are not relied on.
        if self.elsewhere(None).contains(whole) {
            self.held.clear();
        }
        let found = self.another().await;
        let known: Option<RangeSet> = None;
        let handed = self.hand_over(found, known, &mut prepared).await;
        self.conclude(handed, prepared).await
    }
}
