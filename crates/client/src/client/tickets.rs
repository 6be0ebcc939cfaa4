//! Tickets for uploads: kept ahead, at hand, or asked for until there is one.

use crate::client::Client;
use crate::client::error::PushError;
use crate::request::upload::{Upload, UploadError};
use crate::ticket::cache::fit;
use crate::ticket::{self, IssuedTicket, TICKETS_MAX, TicketRequest, TicketsError};
use crate::wire::{Link, Refusal};
use hoop_http::{Origin, Rng};
use hoop_seal::{Suite, UploadKey};
use hoop_units::Backoff;
use std::io;
use std::time::Duration;

/// Requests for a ticket that are tried, and the wait between them: somebody is standing there.
const TICKET_ATTEMPTS: u32 = 3;
/// The longest wait that a service's `Retry-After` can impose on somebody who stands there with a device. It asks for a minute at most when it
/// has issued too many.
const TICKET_WAIT_MAX: Duration = Duration::from_secs(60);
/// Told why a ticket is waited for.
type OnWait<'a> = &'a (dyn Fn(&str) + Send + Sync);
const TICKET_BACKOFF: Backoff = Backoff { base: Duration::from_millis(500), cap: Duration::from_secs(2) };

impl Client {
    /// Fetches `count` tickets for uploads like this one and keeps them, so that it can be sealed and dropped while the
    /// service is out of reach. Returns how many are there now that fit. A service that issues only so many a minute is waited for, and
    /// `on_wait` told why.
    ///
    /// # Errors
    /// If the service issues none, or they cannot be kept.
    pub async fn fetch_tickets(
        &self,
        upload: &Upload,
        suite: Suite,
        count: u8,
        on_wait: &(dyn Fn(&str) + Send + Sync),
    ) -> Result<usize, PushError> {
        let Some(cache) = self.ticket_cache() else {
            return Err(PushError::State(io::Error::new(io::ErrorKind::NotFound, "no state folder is set")));
        };
        let mut service = Link::new(self.connector(), upload.origin().map_err(UploadError::from)?);
        let target = upload.target();
        let (method, target, credentials) = (&upload.method, Some(&*target), &upload.credentials);
        let mut left = count;
        let request = TicketRequest { method, target, count: 0, suite, credentials, key: None, gateway: None };
        let fits = fit(service.origin(), &request);
        while left > 0 {
            let request = TicketRequest { count: left.min(TICKETS_MAX), ..request.clone() };
            let tickets = self.patient_tickets(&mut service, request, on_wait).await?;
            for ticket in &tickets {
                cache.put(&fits, ticket).map_err(PushError::State)?;
            }
            left = left.saturating_sub(u8::try_from(tickets.len()).unwrap_or(u8::MAX));
        }
        Ok(cache.count(&fits, self.config.clock.unix()))
    }

    /// A ticket for `upload` that was fetched ahead.
    pub(super) fn ticket_at_hand(&self, upload: &Upload, suite: Suite, origin: &Origin) -> Option<IssuedTicket> {
        let target = upload.target();
        let (method, target, credentials) = (&upload.method, Some(&*target), &upload.credentials);
        let request = TicketRequest { method, target, count: 1, suite, credentials, key: None, gateway: None };
        self.ticket_cache()?.take(&fit(origin, &request), self.config().clock.unix())
    }

    /// A new ticket for `upload`, for `key` if the service takes keys.
    pub(super) async fn fetch_ticket(
        &self,
        upload: &Upload,
        suite: Suite,
        service: &mut Link,
        key: Option<&UploadKey>,
        on_wait: OnWait<'_>,
    ) -> Result<IssuedTicket, PushError> {
        let target = upload.target();
        let (method, target, credentials) = (&upload.method, Some(&*target), &upload.credentials);
        let request = TicketRequest { method, target, count: 1, suite, credentials, key, gateway: None };
        Ok(self.patient_tickets(service, request, on_wait).await?.remove(0))
    }

    /// The tickets that are asked for, after some waiting if that may help: as long as the service asks for, within bounds.
    ///
    /// # Errors
    /// If the service issues none.
    async fn patient_tickets(
        &self,
        service: &mut Link,
        mut request: TicketRequest<'_>,
        on_wait: OnWait<'_>,
    ) -> Result<Vec<IssuedTicket>, TicketsError> {
        let clock = &self.config().clock;
        let mut attempt = 0;
        loop {
            let error = match ticket::fetch(service, &request, clock).await {
                Ok(tickets) => return Ok(tickets),
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
                return Err(error);
            }
            let mut wait = TICKET_BACKOFF.delay(attempt - 1, Rng.jitter());
            if let TicketsError::Refused(Refusal { retry_after: Some(asked), .. }) = &error {
                wait = wait.max((*asked).min(TICKET_WAIT_MAX));
                on_wait(&format!("{error}; waiting {} s", wait.as_secs()));
            }
            tokio::time::sleep(wait).await;
        }
    }
}
