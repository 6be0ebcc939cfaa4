//! The part of a push that does not wait for its ticket: [`Push::prepare`] sends records to the gateway while the ticket is on its
//! way, [`Push::complete`] sends the rest once it is there.
//!
//! ```text
//!  gateway found first ──▶ records 1 … last ─────────────────────┬──▶ stored
//!  ticket ── as predicted ──▶ record 0, on a second connection ──┘
//!     └── otherwise: begun anew, under another key       what broke or was refused: as ever
//! ```

use super::context::{HandedOver, PreparedUpload, Push};
use super::sealing::{seal, within_limit};
use crate::client::error::PushError;
use crate::config::GatewayChoice;
use crate::gateway::identity::Met;
use crate::outcome::{Event, Way};
use crate::request::upload::{Measured, Upload};
use crate::seal::seal_guard::SealGuard;
use crate::seal::sealed::Sealed;
use crate::send::draft::{Draft, Sending, SentEarly, added_up};
use crate::send::transfer::{Held, OnSent, Transfer, TransferError};
use crate::ticket::IssuedTicket;
use crate::ticket::target::Target;
use crate::wire::Link;
use hoop_http::{Connector, Origin, Rng};
use hoop_seal::UploadKey;
use hoop_units::{ByteRange, RangeSet, UploadId};
use std::pin::pin;
use std::sync::Arc;
use tokio::task::{JoinError, JoinSet};

/// The search for a gateway.
pub(super) type Search = JoinSet<Found>;

/// What it comes to.
type Found = Result<(Link, Met), String>;

/// Records on their way to a gateway.
pub(super) struct Early {
    pub(super) origin: Origin,
    sending: Sending,
    /// What the gateway has acknowledged.
    held: Held,
    /// Told of what record 0 adds.
    on_sent: OnSent,
}

/// An upload that is sealed, and where it can go.
pub(super) struct SealedUpload {
    pub(super) ticket: IssuedTicket,
    pub(super) sealed: Sealed,
    pub(super) gateway: Gateway,
}

/// How far things are with the gateway when the ticket is there.
pub(super) enum Gateway {
    /// It was found, or is not there.
    Found(Result<Link, String>),
    /// It is being sent records.
    Early(Early),
}

impl Gateway {
    pub(super) const fn origin(&self) -> Option<&Origin> {
        match self {
            Self::Found(Ok(link)) => Some(link.origin()),
            Self::Found(Err(_)) => None,
            Self::Early(early) => Some(&early.origin),
        }
    }
}

/// What could be done before the ticket came.
enum Begun {
    Nothing(Result<Link, String>),
    Early(Box<Draft>, Early),
}

/// What came of it.
pub(super) enum Completed {
    /// All of it is stored.
    Stored(HandedOver),
    /// To be done as ever: the gateway, or why it is not to be used, and what it is known to lack.
    Rest(Result<Link, String>, Option<RangeSet>),
}

impl Push<'_> {
    /// Gets a ticket and the gateway, and seals. Should the gateway be found before a ticket is there, records are sent to it at
    /// once.
    pub(super) async fn prepare(
        &mut self,
        service: &mut Link,
        mut search: Search,
        upload: &Upload,
        measured: &Measured,
    ) -> Result<SealedUpload, PushError> {
        let (client, suite) = (self.client, self.options.suite);
        if let Some(ticket) = client.ticket_at_hand(upload, suite, service.origin()) {
            self.tell_ticket(&ticket, true);
            let gateway = self.found(search.join_next().await);
            return self.seal_for(ticket, measured, gateway);
        }
        let key = UploadKey(Rng.bytes());
        let (ticket, begun) = {
            // Without a gateway nobody needs a key before the ticket.
            let sent_key = (client.config().gateway != GatewayChoice::None).then_some(&key);
            let on_wait = self.on_break();
            let mut fetching = pin!(client.fetch_ticket(upload, suite, service, sent_key, &on_wait));
            tokio::select! {
                ticket = &mut fetching => (ticket?, None),
                gateway = search.join_next() => {
                    let found = self.found(gateway);
                    let begun = self.begin(found, &key, upload, measured);
                    (fetching.await?, Some(begun))
                }
            }
        };
        self.tell_ticket(&ticket, false);
        match begun {
            None => {
                let gateway = self.found(search.join_next().await);
                self.seal_for(ticket, measured, gateway)
            }
            Some(Begun::Nothing(gateway)) => self.seal_for(ticket, measured, gateway),
            Some(Begun::Early(draft, early)) => self.settle(draft, early, ticket, service, (upload, measured)).await,
        }
    }

    /// Sends records at once, if there is a gateway that is known, and enough of them.
    fn begin(&mut self, gateway: Result<Link, String>, key: &UploadKey, upload: &Upload, measured: &Measured) -> Begun {
        if gateway.as_ref().is_ok_and(|link| !self.is_known(link.origin())) {
            return Begun::Nothing(gateway);
        }
        let guard = || self.seal_guard(key.upload_id());
        let draft = Draft::with_guard(key.clone(), self.options.suite, upload, measured, guard);
        let (link, draft) = match (gateway, draft) {
            (Ok(link), Some(draft)) => (link, draft),
            (gateway, _) => return Begun::Nothing(gateway),
        };
        self.timings.sending_ms = Some(self.now_ms());
        let [first, second] = added_up(self.progress(draft.total()));
        let origin = link.origin().clone();
        // Only the whole upload's own place may count: of a draft that comes to nothing nothing is held.
        let held = Held::default();
        let witness = draft.service().and_then(|service| self.witness(&origin, service));
        let config = self.client.config().clone();
        let sending = Sending::begin(&draft, link, config, held.clone(), witness, (first, self.on_break()));
        Begun::Early(Box::new(draft), Early { origin, sending, held, on_sent: second })
    }

    /// Makes the draft whole if the ticket is as it was predicted, and begins anew if not.
    async fn settle(
        &mut self,
        draft: Box<Draft>,
        early: Early,
        mut ticket: IssuedTicket,
        service: &mut Link,
        (upload, measured): (&Upload, &Measured),
    ) -> Result<SealedUpload, PushError> {
        let spent = draft.shares_key(&ticket);
        if let Some(sealed) = draft.complete(&ticket) {
            let sealed = within_limit(sealed, &ticket)?;
            return Ok(SealedUpload { ticket, sealed, gateway: Gateway::Early(early) });
        }
        // What has gone out is of no use.
        let gateway = Link::new(self.gateway_connector(), early.origin.clone());
        drop(early);
        self.timings.sending_ms = None;
        if spent {
            let on_wait = self.on_break();
            ticket = self.client.fetch_ticket(upload, self.options.suite, service, None, &on_wait).await?;
            self.tell_ticket(&ticket, false);
        }
        self.seal_for(ticket, measured, Ok(gateway))
    }

    /// Sends what the ticket was needed for, while the other records may still be on their way.
    pub(super) async fn complete(
        &mut self,
        early: Early,
        prepared: &mut PreparedUpload,
    ) -> Result<Completed, PushError> {
        let Early { origin, mut sending, held, on_sent } = early;
        self.tried.push(origin.clone());
        let way = Way::Gateway(origin.clone());
        let (mut link, mut ended) = (Link::new(self.gateway_connector(), origin.clone()), false);
        if sending.is_over() {
            let Some((free, end)) = sending.end().await else { return Ok(Completed::Rest(Ok(link), None)) };
            (link, ended) = (free, true);
            if let Err(error) = end {
                // Refused: everything is sent with its prelude.
                not_early(error)?;
                return Ok(Completed::Rest(Ok(link), Some([prepared.sealed.whole()].into_iter().collect())));
            }
        }
        let permit = match self.admit(&mut link, prepared).await {
            Ok(permit) => permit,
            Err(reason) => {
                let another = self.another().await.map_err(|_| reason);
                return Ok(Completed::Rest(another, None));
            }
        };
        self.tell(Event::Way { way: way.clone(), because: None });
        self.held.insert(origin, held.clone());
        let target = prepared.ticket.at_gateway(permit, self.deadline);
        let mut end = self.record_0(&mut link, target, (prepared.ticket.id, &prepared.sealed), held, on_sent).await;
        if !ended && matches!(end, Ok(None)) {
            // What is missing is on its way.
            let Some((free, rest)) = sending.end().await else { return Ok(Completed::Rest(Ok(link), None)) };
            (link, end) = (free, rest);
        }
        match end {
            Ok(Some(answer)) => {
                self.early = true;
                Ok(Completed::Stored(HandedOver { way, answer, link }))
            }
            Ok(None) => Ok(Completed::Rest(Ok(link), None)),
            Err(error) => not_early(error).map(|()| Completed::Rest(Ok(link), None)),
        }
    }

    async fn record_0(
        &self,
        link: &mut Link,
        target: Target,
        (id, sealed): (UploadId, &Arc<Sealed>),
        held: Held,
        on_sent: OnSent,
    ) -> SentEarly {
        let range = ByteRange::new(0, sealed.layout().record(0).end);
        let config = self.client.config();
        let (patience, on_break) = (config.gateway_patience, self.on_break());
        let (sealed, elsewhere) = (sealed.clone(), RangeSet::new());
        let witness = target.service().and_then(|service| self.witness(link.origin(), service));
        let transfer =
            Transfer { config, link, target, id, sealed, elsewhere, held, patience, witness, on_sent, on_break };
        transfer.once(range).await
    }

    /// The gateway that was found, and is known from now on as what it has shown to be.
    fn found(&mut self, ended: Option<Result<Found, JoinError>>) -> Result<Link, String> {
        let (link, met) = ended.and_then(Result::ok).unwrap_or_else(|| Err("the search for one failed".to_owned()))?;
        self.met.insert(link.origin().clone(), met);
        Ok(link)
    }

    fn seal_for(
        &self,
        ticket: IssuedTicket,
        measured: &Measured,
        gateway: Result<Link, String>,
    ) -> Result<SealedUpload, PushError> {
        let sealed = seal(&ticket, measured.clone(), self.seal_guard(ticket.id))?;
        Ok(SealedUpload { ticket, sealed, gateway: Gateway::Found(gateway) })
    }

    /// Where what is sealed is remembered: for later processes, too, if that can be.
    fn seal_guard(&self, id: UploadId) -> SealGuard {
        let Some(store) = self.client.store() else { return SealGuard::default() };
        SealGuard::create(&store.seal_guard(id)).unwrap_or_else(|error| {
            tracing::debug!(%error, "this upload cannot be resumed by another process");
            SealGuard::default()
        })
    }

    fn gateway_connector(&self) -> Connector {
        self.client.connector().with_timeout(self.client.config().gateway_connect_timeout)
    }

    fn tell_ticket(&mut self, ticket: &IssuedTicket, ahead: bool) {
        self.timings.ticket_ms = Some(self.now_ms());
        self.tell(Event::Ticket { id: ticket.id, ahead });
    }
}

/// The gateway does not take it so, which the ordinary way finds out too. A local failure is one.
fn not_early(error: TransferError) -> Result<(), PushError> {
    match error {
        TransferError::Source(error) => Err(crate::UploadError::from(error).into()),
        TransferError::Refused(refusal) => {
            tracing::debug!(%refusal, "not early");
            Ok(())
        }
        TransferError::Unusable(_) | TransferError::GaveUp { .. } => Ok(()),
    }
}
