//! One push under way, and what is known of its upload: [`Push`], [`PreparedUpload`].

use super::asker::Asker;
use crate::client::Client;
use crate::gateway::discovery;
use crate::gateway::identity::Met;
use crate::gateway::known::Known;
use crate::outcome::{Event, OnEvent, PushOptions, Timings, Way};
use crate::request::pieces::BodyPiece;
use crate::seal::sealed::Sealed;
use crate::send::transfer::{Held, OnBreak, OnSent, Transfer};
use crate::state::store::UploadRecord;
use crate::ticket::IssuedTicket;
use crate::ticket::target::Target;
use crate::wire::Link;
use bytes::Bytes;
use hoop_http::Origin;
use hoop_units::RangeSet;
use http::Response;
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::sync::Arc;
use std::time::Duration;
use tokio::task::JoinHandle;

/// Gateways that it is tried at in all: as many as one search finds on a LAN, for where most of them are not the service's to use.
const TRIED_MAX: usize = 16;

/// One push under way.
pub(super) struct Push<'a> {
    pub(super) client: &'a Client,
    pub(super) options: &'a PushOptions,
    pub(super) on_event: OnEvent,
    pub(super) timings: Timings,
    pub(super) bytes: u64,
    /// How the body is put together.
    pub(super) body: Vec<BodyPiece>,
    /// Whether it was handed over early.
    pub(super) early: bool,
    /// What gateways have acknowledged, and are relied on to deliver.
    pub(super) held: BTreeMap<Origin, Held>,
    /// What the service is known to have.
    pub(super) at_service: RangeSet,
    /// The gateways that were tried.
    pub(super) tried: Vec<Origin>,
    /// Who was met where.
    pub(super) met: BTreeMap<Origin, Met>,
    /// Whose identity was told.
    pub(super) told: BTreeSet<Origin>,
    /// Those that an upload may be left with.
    pub(super) relied: BTreeSet<Origin>,
    /// Those that were met before.
    pub(super) known: Known,
    /// When it should be at the service, in seconds since 1970.
    pub(super) deadline: Option<u32>,
}

/// What the other end said when it had everything.
pub(super) struct HandedOver {
    pub(super) way: Way,
    pub(super) answer: Response<Bytes>,
    pub(super) link: Link,
}

/// What is known of an upload once it can be sent: whatever happens, this stays.
pub(super) struct PreparedUpload {
    pub(super) ticket: IssuedTicket,
    pub(super) sealed: Arc<Sealed>,
    pub(super) record: UploadRecord,
    /// The record's first writing, while it is under way: a later one must not be overtaken by it.
    pub(super) saving: Option<JoinHandle<io::Result<()>>>,
    /// Whoever asks for more permits.
    pub(super) asker: Asker,
}

impl PreparedUpload {
    /// Once what was first written down of it is there.
    pub(super) async fn written(&mut self) {
        if let Some(saving) = self.saving.take() {
            let _ = saving.await;
        }
    }
}

impl<'a> Push<'a> {
    pub(super) fn new(
        client: &'a Client,
        options: &'a PushOptions,
        on_event: OnEvent,
        bytes: u64,
        body: Vec<BodyPiece>,
    ) -> Self {
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

impl Push<'_> {
    /// A gateway that was not tried yet.
    pub(super) async fn another(&self) -> Result<Link, String> {
        if self.tried.len() >= TRIED_MAX {
            return Err(format!("{TRIED_MAX} gateways were tried"));
        }
        discovery::find(self.client.config(), self.client.connector(), &self.tried).await
    }

    /// What need not be sent to whoever comes next, which is this one.
    pub(super) fn elsewhere(&self, next: Option<&Origin>) -> RangeSet {
        let mut elsewhere = self.at_service.clone();
        let others = self.held.iter().filter(|(origin, _)| Some(*origin) != next);
        others.for_each(|(_, held)| held.ranges().iter().for_each(|range| elsewhere.insert(range)));
        elsewhere
    }

    /// Writes down who has what, for a later process.
    pub(super) async fn keep(&self, prepared: &mut PreparedUpload) {
        let held = self.held.iter().map(|(origin, held)| (origin.to_string(), held.ranges()));
        let held = held.filter(|(_, ranges)| !ranges.is_empty());
        prepared.record.held = held.map(|(origin, ranges)| (origin, ranges.to_string())).collect();
        prepared.written().await;
        if let Err(error) = self.client.clone().save(prepared.record.clone()).await {
            tracing::debug!(%error, "cannot write down who has what");
        }
    }

    pub(super) fn transfer<'b>(
        &'b self,
        link: &'b mut Link,
        target: Target,
        prepared: &PreparedUpload,
        elsewhere: RangeSet,
        held: Held,
        patience: Duration,
    ) -> Transfer<'b> {
        let (id, sealed) = (prepared.ticket.id, prepared.sealed.clone());
        let on_sent = self.progress(sealed.layout().total());
        let on_break = self.on_break();
        let config = self.client.config();
        let witness = target.service().and_then(|service| self.witness(link.origin(), service));
        Transfer { config, link, target, id, sealed, elsewhere, held, patience, witness, on_sent, on_break }
    }

    pub(super) fn on_break(&self) -> OnBreak {
        let on_event = self.on_event.clone();
        Box::new(move |reason: &str| on_event(Event::Broken { reason: reason.to_owned() }))
    }

    pub(super) fn progress(&self, total: u64) -> OnSent {
        let on_event = self.on_event.clone();
        Arc::new(move |sent| on_event(Event::Progress { sent, total }))
    }

    pub(super) fn tell(&self, event: Event) {
        (self.on_event)(event);
    }

    pub(super) fn now_ms(&self) -> u64 {
        self.client.config().clock.now().as_micros() / 1000
    }
}
