//! The end of handing over: what is stored is followed, what is not can be gone on with. [`Push::conclude`].

use super::context::{HandedOver, PreparedUpload, Push};
use crate::client::error::PushError;
use crate::client::follow::{Followed, Follower};
use crate::gateway::discovery;
use crate::outcome::{Event, Outcome, WaitFor, Way};
use crate::wire::status::{State, Status};
use crate::wire::{Link, field};
use bytes::Bytes;
use hoop_http::Origin;
use hoop_units::UploadId;
use http::Response;
use serde::Deserialize;
use tokio::time::Instant;
use url::Url;

impl Push<'_> {
    /// The end of handing over, whatever it is: what is stored is followed, what is not can be gone on with.
    pub(super) async fn conclude(
        mut self,
        handed: Result<HandedOver, PushError>,
        mut prepared: PreparedUpload,
    ) -> Result<Outcome, PushError> {
        match handed {
            Ok(handed) => {
                self.timings.stored_ms = Some(self.now_ms());
                self.finish(handed, prepared).await
            }
            Err(error) => {
                self.keep(&mut prepared).await;
                if prepared.record.is_resumable() && error.may_pass() {
                    self.tell(Event::Resumable { id: prepared.ticket.id });
                }
                Err(error)
            }
        }
    }

    /// Stored: tells so, follows as far as asked, and writes the end down.
    async fn finish(mut self, handed: HandedOver, mut prepared: PreparedUpload) -> Result<Outcome, PushError> {
        let mut way = handed.way.clone();
        let whole = prepared.sealed.whole();
        let mut monitor = self.stored(&handed, &mut prepared);
        let first = Status::read(handed.answer.body(), prepared.ticket.id, &prepared.ticket.key);
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
                let (id, key, record) = (prepared.ticket.id, &prepared.ticket.key, &prepared.record);
                let follower = Follower { client: self.client, id, key, record };
                let (wait, state) = (wait(&self), followed.state);
                followed = follower.until(wait, deadline, state, link.take(), doubting, &self.on_event).await;
                let Some(doubt) = followed.doubt.take() else { break };
                self.tell(Event::Doubt { reason: doubt.clone() });
                if followed.denied {
                    prepared.record.deny_gateway();
                }
                match self.take_over(doubt, &mut prepared).await {
                    Ok(handed) => {
                        way.clone_from(&handed.way);
                        doubting = matches!(way, Way::Gateway(_));
                        (followed.state, followed.proven) = self.state_of(&handed, None);
                        monitor = self.stored(&handed, &mut prepared);
                        link = doubting.then_some(handed.link);
                    }
                    // Nobody has it whose word counts.
                    Err(error) => {
                        self.keep(&mut prepared).await;
                        if prepared.record.is_resumable() && error.may_pass() {
                            self.tell(Event::Resumable { id: prepared.ticket.id });
                        }
                        return Err(error);
                    }
                }
            }
        }
        self.timings.done_ms = Some(self.now_ms());
        prepared.record.state = followed.state.name().to_owned();
        prepared.record.finished = followed.is_proven_final();
        if let Err(error) = self.client.clone().save(prepared.record).await {
            self.tell(Event::Forgotten { reason: error.to_string() });
        }
        let (reason, answer) = followed.status.map_or((None, None), |status| (status.reason, status.answer));
        Ok(Outcome {
            id: Some(prepared.ticket.id),
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
    fn stored(&mut self, handed: &HandedOver, prepared: &mut PreparedUpload) -> Option<String> {
        let (id, whole, record) = (prepared.ticket.id, prepared.sealed.whole(), &mut prepared.record);
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
