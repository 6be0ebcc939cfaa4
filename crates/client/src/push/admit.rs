//! Where a service takes uploads from certain gateways only: [`Push::admit`] asks a gateway who it is, and, if it is one of several, the
//! service for a permit for that one (`docs/protocol.md` section 7).

use super::{Course, Push};
use crate::identity::{self, Shown, Witness};
use crate::outcome::Event;
use crate::ticket::{self, TicketRequest};
use crate::upload::{Credentials, Upload};
use crate::wire::Link;
use hoop_http::Origin;
use hoop_seal::Suite;
use hoop_units::ByteRange;
use http::Method;

/// Whoever can ask the service for another ticket of the same upload.
pub(super) struct Asker {
    service: Link,
    method: Method,
    target: Option<String>,
    credentials: Credentials,
    suite: Suite,
}

impl Asker {
    /// As the user who uploads.
    pub(super) fn of(upload: &Upload, service: Link, suite: Suite) -> Self {
        let (method, target) = (upload.method.clone(), Some(upload.target()));
        Self { service, method, target, credentials: upload.credentials.clone(), suite }
    }

    /// Without credentials, which are never kept. A service that has tickets for users only refuses.
    pub(super) fn of_kept(service: Link, suite: Suite) -> Self {
        Self { service, method: Method::POST, target: None, credentials: Credentials::default(), suite }
    }
}

impl Push<'_> {
    /// The permit for this gateway. There may be none, and whether it takes the upload so is for the gateway to say.
    ///
    /// # Errors
    /// If the service takes no uploads from it, in words.
    pub(super) async fn admit(&mut self, gateway: &mut Link, course: &mut Course) -> Result<Option<String>, String> {
        let listed = course.ticket.gateways.clone().unwrap_or_default();
        let name = self.identify(gateway, &listed).await?;
        match (&listed[..], name) {
            // It takes any, or the names were not kept by an older version; or the gateway does not say who it is.
            ([] | [_], _) | (_, None) => Ok(course.ticket.permit.clone()),
            (_, Some(name)) => Ok(self.permit_for(name, course).await),
        }
    }

    /// Finds out who the gateway is, unless that is known, and whether it is relied on; returns its name. `listed`: those that the service
    /// takes uploads from; empty: any.
    async fn identify(&mut self, gateway: &mut Link, listed: &[String]) -> Result<Option<String>, String> {
        let origin = gateway.origin().clone();
        let met = match self.met.get(&origin) {
            Some(met) => met.clone(),
            None => identity::meet(gateway, self.client.config().meeting_timeout()).await,
        };
        let identity = identity::judge(&met.shown, listed, &self.known.at(&met.place))?;
        let trusted = identity.is_relied_on() || self.options.trust_new_gateway;
        if trusted {
            self.relied.insert(origin.clone());
        }
        if self.told.insert(origin.clone()) {
            self.tell(Event::Identity { origin: origin.clone(), identity, trusted });
        }
        let name = met.shown.name();
        self.met.insert(origin, met);
        Ok(name)
    }

    /// Whether the gateway there has shown that it is one of those that are known, or is to be relied on in any case.
    pub(super) fn is_known(&self, origin: &Origin) -> bool {
        let Some(met) = self.met.get(origin) else { return false };
        let known = met.shown.is_one_of(&self.known.at(&met.place));
        (known || self.options.trust_new_gateway) && !matches!(met.shown, Shown::False(_))
    }

    /// By whom the gateway there has to sign what it stores for that service, if it has shown a key.
    pub(super) fn witness(&self, origin: &Origin, service: Origin) -> Option<Witness> {
        Some(Witness { gateway: self.met.get(origin)?.shown.key()?, service })
    }

    /// Remembers the key of a gateway that has stored an upload, and is relied on.
    pub(super) fn remember_key(&mut self, origin: &Origin) {
        if let Some(met) = self.met.get(origin).filter(|_| self.relied.contains(origin))
            && let Some(key) = met.shown.key()
        {
            self.known.add(&met.place, key);
        }
    }

    /// Whether all of it is at the service, or with gateways that have shown who they are and are to bring it.
    pub(super) fn may_leave(&self, whole: ByteRange) -> bool {
        let mut safe = self.at_service.clone();
        let relied = self.held.iter().filter(|(origin, _)| self.relied.contains(*origin));
        relied.for_each(|(_, held)| held.ranges().iter().for_each(|range| safe.insert(range)));
        safe.contains(whole)
    }

    /// A permit for that one gateway: from a ticket for the same K, of which nothing else is used.
    async fn permit_for(&self, name: String, course: &mut Course) -> Option<String> {
        if let Some(permit) = course.record.permits.get(&name) {
            return Some(permit.clone());
        }
        let Asker { service, method, target, credentials, suite } = &mut course.asker;
        let (target, key, suite) = (target.as_deref(), Some(&course.ticket.key), *suite);
        let request = TicketRequest { method, target, count: 1, suite, credentials, key, gateway: Some(&name) };
        let tickets = match ticket::fetch(service, &request, &self.client.config().clock).await {
            Ok(tickets) => tickets,
            Err(error) => {
                tracing::debug!(%error, "no permit for this gateway");
                return None;
            }
        };
        let ticket = tickets.into_iter().next().filter(|ticket| ticket.id == course.ticket.id)?;
        let permit = ticket.permit?;
        course.record.permits.insert(name, permit.clone());
        // A later process may have nobody's credentials.
        self.keep(course).await;
        Some(permit)
    }
}
