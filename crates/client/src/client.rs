//! The entry: [`Client`].

pub(crate) mod error;
pub(crate) mod follow;
mod push;
pub(crate) mod receipt;
pub(crate) mod release;
mod tickets;

use self::error::StatusError;
use crate::config::ClientConfig;
use crate::private;
use crate::state::store::{Store, UploadRecord};
use crate::ticket::cache::TicketCache;
use hoop_http::Connector;
use hoop_http::tls::{self, TlsError};
use hoop_units::UploadId;
use std::io;
use std::time::Duration;

/// What a push left whose upload was never written down is removed after so long: longer than a push waits for its ticket.
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

    pub(crate) fn connector(&self) -> Connector {
        self.connector.clone()
    }

    pub(crate) fn ticket_cache(&self) -> Option<TicketCache> {
        Some(TicketCache(self.config.state_dir.as_ref()?.join("tickets")))
    }

    pub(crate) fn store(&self) -> Option<Store> {
        Some(Store(self.config.state_dir.as_ref()?.join("uploads")))
    }

    /// Writes a record on a thread that may block.
    pub(crate) async fn save(self, record: UploadRecord) -> io::Result<()> {
        let Some(store) = self.store() else { return Ok(()) };
        let tickets = self.ticket_cache();
        let written = tokio::task::spawn_blocking(move || {
            store.prune();
            store.sweep(ORPHAN_AGE);
            tickets.iter().for_each(|cache| private::sweep(&cache.0, ORPHAN_AGE));
            store.save(&record)
        });
        written.await.map_err(io::Error::other)?
    }
}
