//! What looks after flows as time passes: [`keep`].

use crate::clock::Clock;
use hoop_units::{Duration, Timestamp};
use std::sync::Arc;
use tokio::sync::Notify;

/// All flows are looked at no more often than this.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// Asks for a look.
#[derive(Default, Debug)]
pub(crate) struct Watch(Notify);

impl Watch {
    /// Something may be due sooner than was known.
    pub(crate) fn look(&self) {
        self.0.notify_one();
    }
}

/// Looks after all flows whenever something is due, until `look` says that they are gone; it tells when something is due next.
pub(crate) async fn keep(watch: Arc<Watch>, clock: Clock, look: impl Fn() -> Option<Option<Timestamp>>) {
    while let Some(next) = look() {
        match next {
            None => watch.0.notified().await,
            Some(at) => {
                tokio::select! {
                    () = watch.0.notified() => {}
                    () = tokio::time::sleep_until(clock.instant(at)) => {}
                }
            }
        }
        tokio::time::sleep(LOOK_EVERY).await;
    }
}
