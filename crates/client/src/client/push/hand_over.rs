//! Bringing all of Z to gateways, one after the other, or to the service: [`Push::hand_over`].

use super::context::{HandedOver, PreparedUpload, Push};
use crate::client::error::PushError;
use crate::outcome::{Event, WaitFor, Way};
use crate::send::transfer::{Held, TransferError};
use crate::wire::status::State;
use crate::wire::told::Told;
use crate::wire::{Link, Refusal};
use bytes::Bytes;
use hoop_http::{Code, Origin, empty};
use hoop_units::{ByteRange, RangeSet};
use http::{HeaderValue, Method, Response, StatusCode};

/// The longest that a service may keep us waiting for a final state (`docs/protocol.md` section 7).
const PREFER_WAIT_SECS: u32 = 30;

/// Gateways that one upload is tried at, once it is stored and the first of them gets on with nothing: a liar on every address of a LAN
/// must not keep the device from the service.
const GATEWAYS_MAX: usize = 4;

impl Push<'_> {
    /// By gateways, one after the other, as long as one is found that takes it or what is left of it; else directly. `known`: what the
    /// first is known to lack.
    pub(super) async fn hand_over(
        &mut self,
        mut gateway: Result<Link, String>,
        mut known: Option<RangeSet>,
        prepared: &mut PreparedUpload,
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
                    return self.hand_over_directly(because, prepared).await;
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
            let permit = match self.admit(&mut link, prepared).await {
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
            let target = prepared.ticket.at_gateway(permit, self.deadline);
            // What this one has, it says itself.
            let elsewhere = self.elsewhere(Some(&origin));
            let held = self.held.entry(origin.clone()).or_default().clone();
            let sent = self.transfer(&mut link, target, prepared, elsewhere, held, patience).run(known.take()).await;
            let reason = match sent {
                Ok(answer) => return Ok(HandedOver { way, answer, link }),
                Err(TransferError::Source(error)) => return Err(crate::UploadError::from(error).into()),
                Err(TransferError::Refused(refusal)) => format!("the gateway does not take it: {refusal}"),
                Err(TransferError::Unusable(reason)) => format!("that is no gateway to rely on: {reason}"),
                Err(TransferError::GaveUp { reason, .. }) => format!("the gateway has gone: {reason}"),
            };
            if self.elsewhere(None).contains(prepared.sealed.whole()) {
                // Only the answer was lost.
                return Ok(HandedOver { way, answer: said(State::Stored), link });
            }
            self.keep(prepared).await;
            because = Some(reason);
            gateway = self.another().await;
        }
    }

    async fn hand_over_directly(
        &mut self,
        because: String,
        prepared: &PreparedUpload,
    ) -> Result<HandedOver, PushError> {
        let (config, total) = (self.client.config(), prepared.sealed.layout().total());
        self.tell(Event::Way { way: Way::Direct, because: Some(because) });
        self.tell(Event::Progress { sent: 0, total });
        let post = Origin::of(&prepared.ticket.post).expect("checked with the ticket");
        let mut service = Link::new(self.client.connector(), post);
        let elsewhere = self.elsewhere(None);
        // Where others have a part, it is not final when this device has sent its own.
        let alone = self.held.values().all(|held| held.ranges().is_empty());
        let wait = self.options.wait == WaitFor::Accepted && alone;
        let wait_secs = if wait { PREFER_WAIT_SECS } else { 0 };
        let wait_secs = self.options.timeout.map_or(wait_secs, |timeout| {
            u32::try_from(timeout.as_secs()).map_or(wait_secs, |secs| secs.min(wait_secs))
        });
        let target = prepared.ticket.at_service(wait_secs);
        let patience = config.retry_max_time;
        let mut sent: RangeSet = [prepared.sealed.whole()].into_iter().collect();
        elsewhere.iter().for_each(|range| sent.remove(range));
        let transfer = self.transfer(&mut service, target, prepared, elsewhere, Held::default(), patience);
        let outcome = transfer.run(None).await;
        match outcome {
            Ok(answer) => {
                sent.iter().for_each(|range| self.at_service.insert(range));
                Ok(HandedOver { way: Way::Direct, answer, link: service })
            }
            Err(TransferError::Source(error)) => Err(crate::UploadError::from(error).into()),
            Err(TransferError::Refused(refusal)) if is_done(&refusal) => {
                self.at_service.insert(prepared.sealed.whole());
                Ok(HandedOver { way: Way::Direct, answer: said(State::Received), link: service })
            }
            Err(TransferError::Refused(refusal)) => Err(PushError::Refused(refusal)),
            Err(TransferError::GaveUp { refusal: Some(refusal), .. }) => Err(PushError::NotNow(refusal)),
            Err(TransferError::Unusable(reason) | TransferError::GaveUp { reason, .. }) => {
                Err(PushError::Unreachable(reason))
            }
        }
    }

    /// Sends what the service lacks by another way: no gateway is relied on any longer.
    pub(super) async fn take_over(
        &mut self,
        because: String,
        prepared: &mut PreparedUpload,
    ) -> Result<HandedOver, PushError> {
        self.held.clear();
        self.at_service = self.ask_service(prepared).await.unwrap_or_default();
        let next = match self.tried.len() < GATEWAYS_MAX {
            true => self.another().await,
            false => Err(because.clone()),
        };
        self.hand_over(next.map_err(|_| because), None, prepared).await
    }

    /// What the service has; `None` if it cannot be asked.
    pub(super) async fn ask_service(&self, prepared: &PreparedUpload) -> Option<RangeSet> {
        let post = &prepared.ticket.post;
        let mut service = Link::new(self.client.connector(), Origin::of(post).ok()?);
        let request = service.request(Method::HEAD, &format!("{}/{}", post.path(), prepared.ticket.id), empty());
        let answer = service.ask(request, self.client.config().stall_timeout).await.ok()?;
        let total = prepared.sealed.layout().total();
        let mut has: RangeSet = [ByteRange::new(0, total)].into_iter().collect();
        match answer.status() {
            StatusCode::OK => {
                let told = Told::read(answer.headers(), prepared.ticket.id, total).ok()?;
                told.missing.iter().for_each(|span| has.remove(span));
            }
            StatusCode::NOT_FOUND => has = RangeSet::new(),
            _ => return None,
        }
        Some(has)
    }
}

/// What the last answer would have said.
pub(super) fn said(state: State) -> Response<Bytes> {
    let mut answer = Response::new(Bytes::new());
    answer.headers_mut().insert("hoop-state", HeaderValue::from_static(state.name()));
    answer
}

/// The service has everything already, and the application too.
fn is_done(refusal: &Refusal) -> bool {
    refusal.problem.as_ref().is_some_and(|problem| problem.code == Code::UploadDone)
}
