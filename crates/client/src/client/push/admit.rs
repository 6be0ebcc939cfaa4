//! Where a service takes uploads from certain gateways only: [`Push::admit`] asks a gateway who it is, and, if it is one of several, the
//! service for a permit for that one (`docs/protocol.md` section 7).

use super::asker::Asker;
use super::context::{PreparedUpload, Push};
use crate::config::GatewayChoice;
use crate::gateway::identity::{self, Met, Shown, Witness};
use crate::gateway::place::interfaces;
use crate::outcome::Event;
use crate::ticket::{self, TicketRequest};
use crate::wire::Link;
use hoop_http::Origin;
use hoop_seal::signing::GatewayId;
use hoop_units::ByteRange;

impl Push<'_> {
    /// The permit for this gateway. There may be none, and whether it takes the upload so is for the gateway to say.
    ///
    /// # Errors
    /// If the service takes no uploads from it, in words.
    pub(super) async fn admit(
        &mut self,
        gateway: &mut Link,
        prepared: &mut PreparedUpload,
    ) -> Result<Option<String>, String> {
        let listed = prepared.ticket.gateways.clone().unwrap_or_default();
        let name = self.identify(gateway, &listed).await?;
        match (&listed[..], name) {
            // It takes any, or the names were not kept by an older version; or the gateway does not say who it is.
            ([] | [_], _) | (_, None) => Ok(prepared.ticket.permit.clone()),
            (_, Some(name)) => Ok(self.permit_for(name, prepared).await),
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
        let identity = identity::judge(&met.shown, listed, &self.expected(&met))?;
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

    /// Who is expected where that gateway was met: more where it was found by looking than where its owner named it.
    fn expected(&self, met: &Met) -> Vec<GatewayId> {
        match self.client.config().gateway {
            GatewayChoice::Auto => self.known.expected(&met.place, &interfaces()),
            GatewayChoice::None | GatewayChoice::At(_) | GatewayChoice::AnyOf(_) => self.known.at(&met.place),
        }
    }

    /// Whether the gateway there has shown that it is one of those that are known, or is to be relied on in any case.
    pub(super) fn is_known(&self, origin: &Origin) -> bool {
        let Some(met) = self.met.get(origin) else { return false };
        let known = met.shown.is_one_of(&self.expected(met));
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
    async fn permit_for(&self, name: String, prepared: &mut PreparedUpload) -> Option<String> {
        if let Some(permit) = prepared.record.permits.get(&name) {
            return Some(permit.clone());
        }
        let Asker { service, method, target, credentials, suite } = &mut prepared.asker;
        let (target, key, suite) = (target.as_deref(), Some(&prepared.ticket.key), *suite);
        let request = TicketRequest { method, target, count: 1, suite, credentials, key, gateway: Some(&name) };
        let tickets = match ticket::fetch(service, &request, &self.client.config().clock).await {
            Ok(tickets) => tickets,
            Err(error) => {
                tracing::debug!(%error, "no permit for this gateway");
                return None;
            }
        };
        let ticket = tickets.into_iter().next().filter(|ticket| ticket.id == prepared.ticket.id)?;
        let permit = ticket.permit?;
        prepared.record.permits.insert(name, permit.clone());
        // A later process may have nobody's credentials.
        self.keep(prepared).await;
        Some(permit)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::client::Client;
    use crate::config::ClientConfig;
    use crate::outcome::PushOptions;
    use crate::send::transfer::Held;
    use hoop_units::RangeSet;
    use std::sync::Arc;

    const WHOLE: ByteRange = ByteRange::new(0, 1_000);
    const ONE: &str = "http://192.0.2.1:4667";
    const OTHER: &str = "http://192.0.2.2:4667";

    fn ranges(ranges: &[(u64, u64)]) -> RangeSet {
        ranges.iter().map(|(start, end)| ByteRange::new(*start, *end)).collect()
    }

    /// Whether a device may leave, if these are with the service and with gateways, of which those are relied on.
    fn may_leave(at_service: &[(u64, u64)], held: &[(&str, &[(u64, u64)])], relied: &[&str]) -> bool {
        let client = Client::new(ClientConfig::default()).unwrap();
        let options = PushOptions::default();
        let mut push = Push::new(&client, &options, Arc::new(|_| ()), 900, Vec::new());
        push.at_service = ranges(at_service);
        push.held = held.iter().map(|(at, held)| (at.parse().unwrap(), Held::of(ranges(held)))).collect();
        push.relied = relied.iter().map(|at| at.parse().unwrap()).collect();
        push.may_leave(WHOLE)
    }

    #[test]
    fn an_upload_that_nobody_has_is_not_left() {
        assert!(!may_leave(&[], &[], &[]));
        assert!(!may_leave(&[], &[], &[ONE]));
        assert!(!may_leave(&[], &[(ONE, &[])], &[ONE]), "a gateway whose part does not count");
    }

    /// It may say *accepted*: what counts is what is held, and by whom.
    #[test]
    fn an_upload_is_not_left_with_a_keyless_gateway_while_the_service_is_away() {
        assert!(!may_leave(&[], &[(ONE, &[(0, 1_000)])], &[]));
        assert!(!may_leave(&[], &[(ONE, &[(0, 1_000)])], &[OTHER]));
    }

    #[test]
    fn an_upload_with_a_gateway_that_is_relied_on_is_left_once_it_has_all() {
        assert!(may_leave(&[], &[(ONE, &[(0, 1_000)])], &[ONE]));
        assert!(may_leave(&[], &[(ONE, &[(0, 1_000)]), (OTHER, &[(0, 500)])], &[ONE]), "what a stranger has, too");
        assert!(!may_leave(&[], &[(ONE, &[(0, 999)])], &[ONE]));
        assert!(!may_leave(&[], &[(ONE, &[(1, 1_000)])], &[ONE]));
        assert!(!may_leave(&[], &[(ONE, &[(0, 400), (401, 1_000)])], &[ONE]));
    }

    #[test]
    fn an_upload_in_two_halves_is_left_if_both_gateways_are_relied_on() {
        let halves: [(&str, &[(u64, u64)]); 2] = [(ONE, &[(0, 500)]), (OTHER, &[(500, 1_000)])];
        assert!(!may_leave(&[], &halves, &[]));
        assert!(!may_leave(&[], &halves, &[ONE]));
        assert!(!may_leave(&[], &halves, &[OTHER]));
        assert!(may_leave(&[], &halves, &[ONE, OTHER]));
        assert!(!may_leave(&[(400, 999)], &halves, &[ONE]));
        assert!(may_leave(&[(400, 1_000)], &halves, &[ONE]), "the service has what the stranger has");
    }

    #[test]
    fn an_upload_that_the_service_has_is_left_whoever_else_has_it() {
        assert!(may_leave(&[(0, 1_000)], &[], &[]));
        assert!(may_leave(&[(0, 1_000)], &[(ONE, &[(0, 500)])], &[]));
        assert!(!may_leave(&[(0, 999)], &[(ONE, &[(0, 1_000)])], &[]));
    }
}
