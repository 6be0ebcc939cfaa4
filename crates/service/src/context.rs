//! What every room needs: [`Context`].

use crate::config::Config;
use crate::model::{Change, LINGER_SECS, State};
use crate::policy::Policy;
use crate::policy::permits::Permits;
use crate::store::{Changed, Store, StoreError};
use hoop_http::{Clock, Current, Lines, Origin};
use hoop_seal::Keyring;
use hoop_timekeeper::Over;
use hoop_units::{UnixTime, UploadId};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Notify;

/// When the service stops: how long it still waits for replays in `committing`, and for messages that are being recorded.
pub const STOP_TIMEOUT: Duration = Duration::from_secs(10);

/// Lines of the log in a minute that say how attempts begin, and of those that are put off: ten a second, 0.2 GB a day. An application that is down has thousands of uploads tried again.
pub const ATTEMPT_LINES: u32 = 600;

/// How long after its ticket's end an upload is known at most.
const AFTERLIFE: Duration = Duration::from_secs(2 * LINGER_SECS as u64);

/// Tickets count as alive for so long at least, whatever `ticket_lifetime` is now: as long as gateways keep any. More
/// costs nothing until a clock is set forward.
const TICKET_LIFE: Duration = Duration::from_secs(30 * 24 * 3600);

/// What every room of a running service needs.
pub struct Context {
    /// Keys, routes and limits; replaced when the configuration is read again.
    policy: Current<Policy>,
    /// Replaced with it.
    permits: Current<Permits>,
    /// The origin that users see.
    pub origin: Origin,
    /// What is known of uploads, and their bodies.
    pub store: Store,
    /// Run time and wall time.
    pub clock: Clock,
    /// Notified when there may be something to replay.
    pub work: Notify,
    /// How long a new ticket is good for.
    pub ticket_lifetime: Duration,
}

impl Context {
    /// What `config` makes of it, with an open store.
    pub fn new(config: &Config, store: Store) -> Self {
        Self {
            policy: Current::new(policy_of(config)),
            permits: Current::new(config.permits.clone()),
            origin: config.origin.clone(),
            store,
            clock: config.clock.clone(),
            work: Notify::new(),
            ticket_lifetime: config.ticket_lifetime,
        }
    }

    /// The longest life of a ticket.
    fn ticket_life(&self) -> Duration {
        self.ticket_lifetime.max(TICKET_LIFE)
    }

    /// The time that has certainly come, to refuse what ended before it. `afterlife` is how many seconds something
    /// lives on after its ticket's end. Nothing has ended by this time before it has lived as long in run time
    /// (`docs/time.md`). An upload that is let in by a shorter afterlife than it then gets also gets the difference in
    /// run time.
    pub fn past(&self, afterlife: u32) -> UnixTime {
        self.clock.past(self.ticket_life() + Duration::from_secs(afterlife.into()))
    }

    /// Which tickets are certainly over, to refuse new uploads. A ticket that would have ended on a closed day ends
    /// later.
    pub async fn ended(&self) -> Result<Over, StoreError> {
        let after = self.clock.after(self.ticket_life());
        let after = self.store.with(move |index| index.open_end(after)).await?;
        Ok(Over { before: self.past(0), after })
    }

    /// What may be expired, deleted and forgotten of uploads and notes.
    pub fn over(&self) -> Over {
        self.clock.over(self.ticket_life() + AFTERLIFE).unwrap_or(Over::NOTHING)
    }

    /// The policy that holds now.
    pub fn policy(&self) -> Arc<Policy> {
        self.policy.get()
    }

    /// Which gateways may hold and bring uploads now.
    pub fn permits(&self) -> Arc<Permits> {
        self.permits.get()
    }

    /// Takes keys, routes, the longest upload and permits from `config` from now on.
    pub fn adopt(&self, config: &Config) {
        let ids = |keys: &Keyring| keys.signing_keys().map(|(id, _)| id.to_string()).collect::<Vec<_>>().join(" ");
        let (before, after) = (ids(&self.policy().keys), ids(&config.keys));
        if before != after {
            tracing::info!(target: "audit", act = "keys", before, after, "the keys were exchanged");
        }
        self.policy.set(policy_of(config));
        self.permits.set(config.permits.clone());
    }

    /// Applies a change, deletes the body of an upload that is over, and tells the worker.
    pub async fn note(&self, id: UploadId, change: Change) -> Result<(), StoreError> {
        match self.store.apply(id, change, self.clock.unix()).await? {
            Changed::Done(upload) => {
                let reason = upload.reason.as_ref().map(|reason| reason.code.name());
                static AGAIN: Lines = Lines::at_most(ATTEMPT_LINES);
                let more = || tracing::info!("more attempts are put off than are written down in this minute");
                let is_new = upload.state != State::Received || upload.attempts == 0;
                if is_new || AGAIN.have_room(std::time::Instant::now(), more) {
                    tracing::info!(%id, state = upload.state.name(), reason, "changed");
                }
                if upload.state.is_final()
                    && !upload.kept
                    && let Err(error) = self.store.dispose(vec![id]).await
                {
                    tracing::warn!(%id, %error, "a body could not be deleted yet");
                }
                self.work.notify_one();
            }
            // Its owner has stopped it, or its time ran out, in between.
            Changed::Refused(upload) => tracing::debug!(%id, state = upload.state.name(), "changed already"),
            Changed::Unknown => {}
        }
        Ok(())
    }
}

fn policy_of(config: &Config) -> Policy {
    Policy {
        keys: config.keys.clone(),
        origin: config.origin.as_str().to_owned(),
        max_bytes: config.max_bytes,
        routes: config.routes.clone(),
    }
}
