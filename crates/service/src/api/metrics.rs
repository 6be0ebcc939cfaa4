//! Numbers for whoever runs the service: [`Counters`], and `/metrics` in the text format of Prometheus, on a loopback address of its own.
//!
//! Nothing in them names an upload, a user or an application's path.

use crate::core::Core;
use crate::store::store_problem;
use hoop_http::metrics::Families;
use hoop_http::{Code, Problem, Server, Shutdown};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// An upload that is given up in less is told of: time to call whoever could help.
const SOON_SECS: u32 = 86_400;

/// What has happened since the service began.
#[derive(Default)]
pub struct Counters {
    /// Tickets that were issued.
    pub tickets: AtomicU64,
    /// Messages to `/hoop/post` that were taken.
    pub messages: AtomicU64,
    /// Octets of sealed bodies that were opened and written.
    pub octets: AtomicU64,
    /// Attempts to hand an upload to the application.
    pub replays: AtomicU64,
    /// Messages to `/hoop/post` that were refused, by code: as many as there are codes.
    refused: Mutex<BTreeMap<&'static str, u64>>,
}

impl Counters {
    /// One more message was refused.
    pub fn refuse(&self, code: Code) {
        *self.refused.lock().unwrap_or_else(PoisonError::into_inner).entry(code.name()).or_default() += 1;
    }
}

/// Serves `/metrics` until `shutdown`, if there is an address for it.
pub async fn run(server: Option<Server>, core: Arc<Core>, shutdown: Shutdown) {
    let Some(server) = server else { return };
    let told = move || {
        let core = core.clone();
        async move { text(&core).await }
    };
    hoop_http::metrics::serve(server, told, shutdown).await;
}

async fn text(core: &Core) -> Result<String, Problem> {
    let help = "Whether the state is open: 0 where the disk has had no room for it since the start.";
    if !core.store.is_open() {
        let mut families = Families::new("hoop_service_");
        families.add("state_open", "gauge", help, [(String::new(), 0)]);
        return Ok(families.into_text());
    }
    let counts = core.store.with(|index| index.counts()).await.map_err(store_problem)?;
    let stored = core.store.with(|index| index.stored()).await.map_err(store_problem)?;
    let ended = core.store.with(|index| index.ended()).await.map_err(store_problem)?;
    let soon = core.clock.unix().plus_secs(SOON_SECS);
    let ending = core.store.with(move |index| index.ending(soon)).await.map_err(store_problem)?;
    let mut families = Families::new("hoop_service_");
    let mut metric = |name: &str, kind: &str, help: &str, values: &[(String, u64)]| {
        families.add(name, kind, help, values.iter().cloned());
    };
    let one = |value: u64| [(String::new(), value)];
    metric("state_open", "gauge", help, &one(1));
    let counter = |value: &AtomicU64| one(value.load(Ordering::Relaxed));
    let states: Vec<_> = counts.iter().map(|(state, n)| (format!("{{state=\"{}\"}}", state.name()), *n)).collect();
    metric("uploads", "gauge", "Uploads in the index, by state.", &states);
    let help =
        "Uploads that are given up within a day, if their device, the application or their owner does not come back.";
    metric("uploads_ending", "gauge", help, &one(ending));
    metric("stored_bytes", "gauge", "What uploads whose bodies are kept have on disk.", &one(stored));
    let help = "What uploads were promised that has not come; it lapses 5 minutes after the last byte.";
    metric("promised_bytes", "gauge", help, &one(core.room.promised()));
    metric("stored_bytes_max", "gauge", "The most of both together (--max-stored).", &one(core.room.max()));
    let help = "What is kept of uploads that have ended, and can go (--max-ended).";
    metric("ended_bytes", "gauge", help, &one(ended));
    let full: Vec<_> =
        core.room.refusals().iter().map(|(full, n)| (format!("{{why=\"{}\"}}", full.name()), *n)).collect();
    metric("room_refused_total", "counter", "How often an upload got no room, by what was full.", &full);
    let counters = &core.counters;
    metric("tickets_total", "counter", "Tickets issued.", &counter(&counters.tickets));
    let refused: Vec<_> =
        core.room.ticket_refusals().iter().map(|(payer, n)| (format!("{{payer=\"{payer}\"}}"), *n)).collect();
    let help = "Requests for tickets that came too soon, by who pays (--tickets-per-minute).";
    metric("tickets_refused_total", "counter", help, &refused);
    metric("messages_total", "counter", "Messages to /hoop/post that were taken.", &counter(&counters.messages));
    metric("octets_total", "counter", "Octets that came with them.", &counter(&counters.octets));
    metric("replays_total", "counter", "Attempts to hand an upload to the application.", &counter(&counters.replays));
    let left: Vec<_> = core.left_behind.counts().iter().map(|(why, n)| (format!("{{why=\"{why}\"}}"), *n)).collect();
    let help = "Fields of sealed requests that the application did not get.";
    metric("fields_left_behind_total", "counter", help, &left);
    let refused = counters.refused.lock().unwrap_or_else(PoisonError::into_inner).clone();
    let refused: Vec<_> = refused.iter().map(|(code, n)| (format!("{{code=\"{code}\"}}"), *n)).collect();
    metric("refused_total", "counter", "Messages to /hoop/post that were refused, by code.", &refused);
    Ok(families.into_text())
}
