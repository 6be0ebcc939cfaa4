//! Where a service takes uploads from certain gateways only: [`Push::admit`] asks a gateway who it is, and, if it is one of several, the
//! service for a permit for that one (`docs/protocol.md` section 7).

use super::{Course, Push};
use crate::ticket::{self, TicketRequest};
use crate::upload::{Credentials, Upload};
use crate::wire::Link;
use hoop_http::empty;
use hoop_seal::Suite;
use http::Method;
use serde::Deserialize;

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
    pub(super) async fn admit(&self, gateway: &mut Link, course: &mut Course) -> Result<Option<String>, String> {
        let Some(listed) = &course.ticket.gateways else { return Ok(course.ticket.permit.clone()) };
        let name = self.name_of(gateway).await;
        match (&listed[..], name) {
            // Kept by a version that did not keep the names; or it does not say who it is.
            ([], _) | (_, None) => Ok(course.ticket.permit.clone()),
            (_, Some(name)) if !listed.contains(&name) => {
                Err("the service takes no uploads from this gateway".to_owned())
            }
            ([_], Some(_)) => Ok(course.ticket.permit.clone()),
            (_, Some(name)) => Ok(self.permit_for(name, course).await),
        }
    }

    /// The name of a gateway, if it says one.
    async fn name_of(&self, gateway: &mut Link) -> Option<String> {
        #[derive(Deserialize)]
        struct Test {
            gateway: String,
        }
        let request = gateway.request(Method::GET, "/test", empty());
        let answer = gateway.ask(request, self.client.config().gateway_silence).await.ok()?;
        serde_json::from_slice::<Test>(answer.body()).ok().map(|test| test.gateway)
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
