//! Keeps house beside all else: uploads whose time is over, files that a crash left, and what is known of services.

use crate::shared::Shared;
use hoop_http::{Code, Shutdown};
use hoop_spool::{Overdue, Reason};
use std::sync::Arc;
use std::time::Duration;

/// The house is kept so often. One of the spool's 256 shards is swept each time: all of them in two hours.
const TICK: Duration = Duration::from_secs(30);

/// Uploads that are expired or forgotten in one go: some milliseconds, in which nobody else gets at the index.
const END_BATCH: usize = 64;

/// Keeps house until `shutdown`. However much there is to do, deliveries and senders go on meanwhile.
pub async fn run(shared: Arc<Shared>, mut shutdown: Shutdown) {
    for shard in (0..=u8::MAX).cycle() {
        let kept = async {
            keep(&shared, shard).await;
            tokio::time::sleep(TICK).await;
        };
        tokio::select! {
            () = shutdown.requested() => return,
            () = kept => {}
        }
    }
}

async fn keep(shared: &Arc<Shared>, shard: u8) {
    shared.blocking(|shared| shared.services.keep_if_due()).await;
    end_all(shared, |shared| Overdue::by(|life| shared.clock.over(Duration::from_secs(life.into())))).await;
    match shared.blocking(move |shared| shared.spool.sweep(shard)).await {
        Ok(0) => {}
        Ok(removed) => tracing::info!(removed, "removed files that a crash had left"),
        Err(error) => tracing::error!(%error, "cannot keep the spool in order"),
    }
}

/// Ends uploads whose time is over, in batches, until one is less than half full: those whose senders are at them, fewer than that, are found
/// again each time, and left out.
pub async fn end_all(shared: &Arc<Shared>, time: impl Fn(&Shared) -> Overdue + Copy + Send + 'static) {
    while end_some(shared, time).await >= END_BATCH / 2 {}
}

/// Ends some. Returns how many.
async fn end_some(shared: &Arc<Shared>, time: impl Fn(&Shared) -> Overdue + Send + 'static) -> usize {
    let ended = shared.blocking(move |shared| {
        let reason = Reason::new(Code::UploadExpired.name(), "its ticket ended more than 7 days ago");
        shared.spool.end_overdue(&reason, &time(shared), shared.clock.unix(), END_BATCH)
    });
    ended.await.unwrap_or_else(|error| {
        tracing::error!(%error, "cannot end uploads whose time is over");
        0
    })
}
