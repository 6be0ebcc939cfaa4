//! The entry: [`Client`].

use crate::ahead::{self, Pouch};
use crate::config::ClientConfig;
use crate::error::PushError;
use crate::follow::{Follower, StatusError};
use crate::status::Status;
use crate::store::{Store, UploadRecord};
use crate::ticket::{TICKETS_MAX, TicketRequest};
use crate::upload::{Upload, UploadError};
use crate::wire::Link;
use hoop_http::Connector;
use hoop_http::tls::{self, TlsError};
use hoop_seal::Suite;
use hoop_units::UploadId;
use std::io;
use std::time::Duration;

/// Tags whose upload was never written down are removed after so long: longer than a push waits for its ticket.
const ORPHAN_AGE: Duration = Duration::from_secs(60 * 60);

/// Hands uploads over, and tells what became of them. Cheap to clone; has no process-wide state.
#[derive(Clone, Debug)]
pub struct Client {
    config: ClientConfig,
    connector: Connector,
}

impl Client {
    /// A client. Reads the certificates to trust; makes no connection.
    ///
    /// # Errors
    /// If a certificate file cannot be read.
    pub fn new(config: ClientConfig) -> Result<Self, TlsError> {
        let connector = Connector::new(tls::client_config(&config.ca)?)
            .with_addresses(config.resolve.clone())
            .with_timeout(config.connect_timeout);
        Ok(Self { config, connector })
    }

    /// What it was told.
    pub const fn config(&self) -> &ClientConfig {
        &self.config
    }

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
        let Some(pouch) = self.pouch() else {
            return Err(PushError::State(io::Error::new(io::ErrorKind::NotFound, "no state folder is set")));
        };
        let mut service = Link::new(self.connector(), upload.origin().map_err(UploadError::from)?);
        let target = upload.target();
        let (method, target, credentials) = (&upload.method, Some(&*target), &upload.credentials);
        let mut left = count;
        let request = TicketRequest { method, target, count: 0, suite, credentials, key: None, gateway: None };
        let fit = ahead::fit(service.origin(), &request);
        while left > 0 {
            let request = TicketRequest { count: left.min(TICKETS_MAX), ..request.clone() };
            let tickets = self.patient_tickets(&mut service, request, on_wait).await?;
            for ticket in &tickets {
                pouch.put(&fit, ticket).map_err(PushError::State)?;
            }
            left = left.saturating_sub(u8::try_from(tickets.len()).unwrap_or(u8::MAX));
        }
        Ok(pouch.count(&fit, self.config.clock.unix()))
    }

    /// What this device remembers of its uploads, the newest first.
    pub fn list(&self) -> Vec<UploadRecord> {
        self.store().map(|store| store.list()).unwrap_or_default()
    }

    /// What this device remembers of one upload.
    ///
    /// # Errors
    /// If it remembers nothing.
    pub fn record(&self, id: UploadId) -> Result<UploadRecord, StatusError> {
        self.store().and_then(|store| store.load(id)).ok_or(StatusError::NotOurs(id))
    }

    /// Asks the gateway, then the service, what has become of an upload of this device, and remembers it. Only the service's word makes it
    /// final; until then it can be gone on with, and a gateway that the service denies is passed over then.
    ///
    /// # Errors
    /// If it is none of this device's, or nobody tells.
    pub async fn status(&self, id: UploadId) -> Result<(UploadRecord, Status), StatusError> {
        let mut record = self.record(id)?;
        let key = record.key.key().ok_or(StatusError::NotOurs(id))?;
        let (status, denied) = Follower { client: self, id, key: &key, record: &record }.once().await;
        if denied {
            record.deny_gateway();
        }
        if let Ok(status) = &status {
            record.state = status.believed().name().to_owned();
            record.finished = status.is_proven_final();
        }
        if (status.is_ok() || denied)
            && let Err(error) = self.clone().save(record.clone()).await
        {
            tracing::debug!(%error, "cannot update the record of an upload");
        }
        status.map(|status| (record, status))
    }

    pub(crate) fn connector(&self) -> Connector {
        self.connector.clone()
    }

    pub(crate) fn pouch(&self) -> Option<Pouch> {
        Some(Pouch(self.config.state_dir.as_ref()?.join("tickets")))
    }

    pub(crate) fn store(&self) -> Option<Store> {
        Some(Store(self.config.state_dir.as_ref()?.join("uploads")))
    }

    /// Writes a record on a thread that may block.
    pub(crate) async fn save(self, record: UploadRecord) -> io::Result<()> {
        let Some(store) = self.store() else { return Ok(()) };
        let written = tokio::task::spawn_blocking(move || {
            store.prune();
            store.sweep(ORPHAN_AGE);
            store.save(&record)
        });
        written.await.map_err(io::Error::other)?
    }
}
