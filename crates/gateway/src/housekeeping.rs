//! Keeps house beside all else: uploads whose time is over, files that a crash left, and what is known of services.

use crate::core::blocking::blocking;
use crate::core::state::Core;
use crate::peer::services::Services;
use hoop_http::{Code, Shutdown};
use hoop_spool::{Overdue, Reason};
use std::sync::Arc;
use std::time::Duration;

/// The house is kept so often. One of the spool's 256 shards is swept each time: all of them in two hours.
const TICK: Duration = Duration::from_secs(30);

/// Uploads that are expired or forgotten in one go: some milliseconds, in which nobody else gets at the index.
const END_BATCH: usize = 64;

/// What deliveries recorded is on disk after so long: a power cut takes no more back, and the payload of what has ended stays no longer. Long
/// enough that an upload over a fast line costs one sync from its first message to its end.
const SETTLE: Duration = Duration::from_secs(2);

/// Keeps house until `shutdown`. However much there is to do, deliveries and senders go on meanwhile.
pub async fn run(core: Arc<Core>, services: Arc<Services>, mut shutdown: Shutdown) {
    tokio::select! {
        () = shutdown.requested() => {}
        () = keep_all(&core, &services) => {}
        () = settle(&core) => {}
    }
}

async fn keep_all(core: &Arc<Core>, services: &Arc<Services>) {
    for shard in (0..=u8::MAX).cycle() {
        keep(core, services, shard).await;
        tokio::time::sleep(TICK).await;
    }
}

async fn settle(core: &Arc<Core>) {
    loop {
        tokio::time::sleep(SETTLE).await;
        if let Err(error) = blocking(core, |core| core.spool.settle()).await {
            tracing::error!(%error, "cannot write what deliveries recorded");
        }
    }
}

async fn keep(core: &Arc<Core>, services: &Arc<Services>, shard: u8) {
    blocking(services, Services::keep_if_due).await;
    end_all(core, |core| Overdue::by(|life| core.clock.over(Duration::from_secs(life.into())))).await;
    match blocking(core, move |core| core.spool.sweep(shard)).await {
        Ok(0) => {}
        Ok(removed) => tracing::info!(removed, "removed files that a crash had left"),
        Err(error) => tracing::error!(%error, "cannot keep the spool in order"),
    }
}

/// Ends uploads whose time is over, in batches, until one is less than half full: those whose senders are at them, fewer than that, are found
/// again each time, and left out.
pub async fn end_all(core: &Arc<Core>, time: impl Fn(&Core) -> Overdue + Copy + Send + 'static) {
    while end_some(core, time).await >= END_BATCH / 2 {}
}

/// Ends some. Returns how many.
async fn end_some(core: &Arc<Core>, time: impl Fn(&Core) -> Overdue + Send + 'static) -> usize {
    let ended = blocking(core, move |core| {
        let reason = Reason::new(Code::UploadExpired.name(), "its ticket ended more than 7 days ago");
        core.spool.end_overdue(&reason, &time(core), core.clock.unix(), END_BATCH)
    });
    ended.await.unwrap_or_else(|error| {
        tracing::error!(%error, "cannot end uploads whose time is over");
        0
    })
}
