//! Numbers for whoever runs the service: `/metrics` in the text format of Prometheus, on a loopback address of its own.
//!
//! Nothing in them names an upload, a user or an application's path.

use crate::api::Api;
use crate::replay::Replay;
use crate::store::store_problem;
use hoop_http::metrics::Families;
use hoop_http::{Problem, Server, Shutdown};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// An upload that expires in less is counted as ending: time to call somebody who could help.
const SOON_SECS: u32 = 86_400;

/// Serves `/metrics` until `shutdown`, if there is an address for it.
pub async fn run(server: Option<Server>, api: Arc<Api>, replay: Arc<Replay>, shutdown: Shutdown) {
    let Some(server) = server else { return };
    let told = move || {
        let (api, replay) = (api.clone(), replay.clone());
        async move { text(&api, &replay).await }
    };
    hoop_http::metrics::serve(server, told, shutdown).await;
}

async fn text(api: &Api, replay: &Replay) -> Result<String, Problem> {
    let help = "Whether the state is open: 0 where it could not be opened since the start.";
    if !api.context.store.is_open() {
        let mut families = Families::new("hoop_service_");
        families.add("state_open", "gauge", help, [(String::new(), 0)]);
        return Ok(families.into_text());
    }
    let counts = api.context.store.with(|index| index.counts()).await.map_err(store_problem)?;
    let stored = api.context.store.with(|index| index.stored()).await.map_err(store_problem)?;
    let ended = api.context.store.with(|index| index.ended()).await.map_err(store_problem)?;
    let soon = api.context.clock.unix().plus_secs(SOON_SECS);
    let ending = api.context.store.with(move |index| index.ending(soon)).await.map_err(store_problem)?;
    let mut families = Families::new("hoop_service_");
    let mut metric = |name: &str, kind: &str, help: &str, values: &[(String, u64)]| {
        families.add(name, kind, help, values.iter().cloned());
    };
    let received = &api.receive.counters;
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
    metric("promised_bytes", "gauge", help, &one(api.receive.room.promised()));
    metric("stored_bytes_max", "gauge", "The most of both together (--max-stored).", &one(api.receive.room.max()));
    let help = "What is kept of uploads that have ended, and can go (--max-ended).";
    metric("ended_bytes", "gauge", help, &one(ended));
    let full: Vec<_> =
        api.receive.room.refusals().iter().map(|(full, n)| (format!("{{why=\"{}\"}}", full.name()), *n)).collect();
    metric("room_refused_total", "counter", "How often an upload got no room, by what was full.", &full);
    metric("tickets_total", "counter", "Tickets issued.", &counter(&api.tickets));
    let refused: Vec<_> =
        api.allowance.ticket_refusals().iter().map(|(payer, n)| (format!("{{payer=\"{payer}\"}}"), *n)).collect();
    let help = "Requests for tickets that came too soon, by who pays (--tickets-per-minute).";
    metric("tickets_refused_total", "counter", help, &refused);
    metric("messages_total", "counter", "Messages to /hoop/post that were taken.", &counter(&received.messages));
    metric("received_bytes_total", "counter", "Bytes that came with them.", &counter(&received.bytes));
    metric("replays_total", "counter", "Attempts to hand an upload to the application.", &counter(&replay.attempts));
    let left: Vec<_> = replay.left_behind.counts().iter().map(|(why, n)| (format!("{{why=\"{why}\"}}"), *n)).collect();
    let help = "Fields of sealed requests that the application did not get.";
    metric("fields_left_behind_total", "counter", help, &left);
    let refused: Vec<_> = received.refused().iter().map(|(code, n)| (format!("{{code=\"{code}\"}}"), *n)).collect();
    metric("refused_total", "counter", "Messages to /hoop/post that were refused, by code.", &refused);
    Ok(families.into_text())
}
