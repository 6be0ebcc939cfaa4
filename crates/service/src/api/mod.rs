//! What the service answers: its own paths, the pages for people, and all else from the application.
//!
//! In order: [`request`], [`guard`], [`audit`], `rates`, `allowance`, `streams`, [`crowd`], [`status`] and [`html`], which know nothing of the rest;
//! [`caller`]; [`listing`]; the paths ([`post`], [`tickets`], [`uploads`], [`settings`], [`events`], [`pages`], [`metrics`], [`proxy`]); [`router`].

mod allowance;
pub mod audit;
pub mod caller;
pub mod crowd;
pub mod events;
pub mod guard;
pub mod html;
pub mod listing;
pub mod metrics;
pub mod pages;
pub mod post;
pub mod proxy;
mod rates;
pub mod request;
pub mod router;
pub mod settings;
pub mod status;
mod streams;
pub mod tickets;
pub mod tunnel;
pub mod uploads;

use crate::config::Config;
use crate::context::{Context, STOP_TIMEOUT};
use crate::receive::Receive;
use crate::replay::application::Application;
use allowance::Allowance;
use audit::Audit;
use crowd::LISTS_MAX;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use streams::Streams;
use tokio::sync::{Semaphore, watch};

/// Acts of owners that are done at once.
const ACTS_MAX: usize = 64;

/// What answers requests for the service's own paths.
pub struct Api {
    /// What all rooms share.
    pub context: Arc<Context>,
    /// What takes uploads in.
    pub receive: Arc<Receive>,
    /// Who says which user asks.
    pub application: Arc<Application>,
    /// Logs what owners do.
    pub audit: Audit,
    /// How often payers may ask.
    pub allowance: Allowance,
    /// Readers of events.
    pub streams: Arc<Streams>,
    /// Lists that may still be made at once.
    pub lists: Arc<Semaphore>,
    /// Tickets that were issued since the service began.
    pub tickets: AtomicU64,
    /// Acts of owners that may still be begun: each is done to its end, whoever has left.
    pub acts_at_once: Arc<Semaphore>,
    /// Has a receiver for each act that is being done.
    pub acts: watch::Sender<()>,
}

impl Api {
    /// What `config` makes of it.
    pub fn new(config: &Config, receive: Arc<Receive>, application: Arc<Application>) -> Self {
        Self {
            context: receive.context.clone(),
            receive,
            application,
            audit: Audit::default(),
            allowance: Allowance::new(config.tickets_per_minute, config.clock.clone()),
            streams: Arc::default(),
            lists: Arc::new(Semaphore::new(LISTS_MAX)),
            tickets: AtomicU64::new(0),
            acts_at_once: Arc::new(Semaphore::new(ACTS_MAX)),
            acts: watch::Sender::default(),
        }
    }

    /// Returns once no message is being taken and nothing that an owner asked for is being done. Whoever asked may have
    /// left.
    pub async fn done(&self) {
        let done = async { tokio::join!(self.receive.intakes.done(), self.acts.closed()) };
        if tokio::time::timeout(STOP_TIMEOUT, done).await.is_err() {
            tracing::warn!("stopping while messages are being noted");
        }
    }

    /// The public URL of one of our paths.
    pub fn url(&self, path: &str) -> String {
        format!("{}{path}", self.context.origin)
    }
}
