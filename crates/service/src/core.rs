//! What all parts of one service share: [`Core`].

use crate::api::audit::Audit;
use crate::api::crowd::LISTS_MAX;
use crate::api::events::Streams;
use crate::api::metrics::Counters;
use crate::config::Config;
use crate::model::{Change, LINGER_SECS, Upload};
use crate::policy::Policy;
use crate::policy::permits::Permits;
use crate::receive::in_flight::InFlight;
use crate::receive::intakes::Intakes;
use crate::receive::room::{Limits, Room};
use crate::replay::left_behind::LeftBehind;
use crate::store::{Changed, Store, StoreError};
use hoop_http::{Clock, Connector, Current, Origin};
use hoop_seal::Keyring;
use hoop_timekeeper::Over;
use hoop_units::{Backoff, Prefix, UnixTime, UploadId};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{Notify, Semaphore};

/// How long what is under way may still take when the service stops and nobody is connected any more: attempts that are
/// past the gate, and messages that are being noted.
pub const STOP_TIMEOUT: Duration = Duration::from_secs(10);

/// How long after its ticket's end an upload is known at most.
const AFTERLIFE: Duration = Duration::from_secs(2 * LINGER_SECS as u64);

/// Tickets are taken to live so long at least, whatever `ticket_lifetime` is now: as long as gateways keep any. More costs nothing until a clock
/// is set forward.
const TICKET_LIFE: Duration = Duration::from_secs(30 * 24 * 3600);

/// What all parts share.
pub struct Core {
    policy: Current<Policy>,
    permits: Current<Permits>,
    pub counters: Counters,
    /// What owners did.
    pub audit: Audit,
    /// What is told of fields that the application does not get.
    pub left_behind: Arc<LeftBehind>,
    pub origin: Origin,
    pub upstream: Origin,
    /// Connects to the application.
    pub connector: Connector,
    pub store: Store,
    pub in_flight: InFlight,
    /// Readers of events.
    pub streams: Arc<Streams>,
    /// Lists that may still be made at once.
    pub lists: Arc<Semaphore>,
    pub clock: Clock,
    /// Rung when there may be something to replay.
    pub work: Notify,
    pub intakes: Arc<Intakes>,
    /// Who has how much of the disk.
    pub room: Room,
    pub ticket_lifetime: Duration,
    pub connect_timeout: Duration,
    pub answer_timeout: Duration,
    pub body_timeout: Duration,
    pub tunnel_idle: Duration,
    pub replays: usize,
    pub backoff: Backoff,
    pub keep_alive_round: Duration,
    pub trusted_proxies: Vec<Prefix>,
}

impl Core {
    /// What `config` makes of it, with an open store and the way to the application.
    pub fn new(config: Config, store: Store, connector: Connector) -> Self {
        let share = config.share();
        let limits = Limits {
            all: config.max_stored_bytes,
            owner: config.owner_quota_bytes.unwrap_or(share),
            address: config.address_quota_bytes.unwrap_or(share),
            reserve: config.reserve_bytes,
        };
        Self {
            policy: Current::new(policy_of(&config)),
            permits: Current::new(config.permits),
            counters: Counters::default(),
            audit: Audit::default(),
            left_behind: Arc::default(),
            origin: config.origin,
            upstream: config.upstream,
            connector,
            store,
            in_flight: InFlight::default(),
            streams: Arc::default(),
            lists: Arc::new(Semaphore::new(LISTS_MAX)),
            work: Notify::new(),
            intakes: Intakes::new(config.intakes),
            room: Room::new(limits, config.state_dir, config.tickets_per_minute, config.clock.clone()),
            clock: config.clock,
            ticket_lifetime: config.ticket_lifetime,
            connect_timeout: config.connect_timeout,
            answer_timeout: config.answer_timeout,
            body_timeout: config.body_timeout,
            tunnel_idle: config.tunnel_idle,
            replays: config.replays.max(1),
            backoff: config.backoff,
            keep_alive_round: config.keep_alive_round,
            trusted_proxies: config.trusted_proxies,
        }
    }

    /// Tickets live no longer than that.
    fn ticket_life(&self) -> Duration {
        self.ticket_lifetime.max(TICKET_LIFE)
    }

    /// The time that has come beyond doubt, for whatever lives for `afterlife` seconds after its ticket's end, to refuse it by: nothing has
    /// ended by this before it has lived as long in run time (`docs/time.md`). What is let in by a shorter afterlife than it then gets, gets the
    /// difference in run time, too.
    pub fn past(&self, afterlife: u32) -> UnixTime {
        self.clock.past(self.ticket_life() + Duration::from_secs(afterlife.into()))
    }

    /// Which tickets have certainly had their time, to refuse what is new by. A ticket that would have ended on a closed day ends later.
    pub async fn ended(&self) -> Result<Over, StoreError> {
        let after = self.clock.after(self.ticket_life());
        let after = self.store.with(move |index| index.open_end(after)).await?;
        Ok(Over { before: self.past(0), after })
    }

    /// What may be expired, deleted and forgotten of uploads and notes.
    pub fn over(&self) -> Over {
        self.clock.over(self.ticket_life() + AFTERLIFE).unwrap_or(Over::NOTHING)
    }

    /// How what comes in is judged now.
    pub fn policy(&self) -> Arc<Policy> {
        self.policy.get()
    }

    /// Which gateways may hold and bring uploads now.
    pub fn permits(&self) -> Arc<Permits> {
        self.permits.get()
    }

    /// From now on keys, routes, the longest upload and permits are those of `config`.
    pub fn adopt(&self, config: &Config) {
        let ids = |keys: &Keyring| keys.signing_keys().map(|(id, _)| id.to_string()).collect::<Vec<_>>().join(" ");
        let (before, after) = (ids(&self.policy().keys), ids(&config.keys));
        if before != after {
            tracing::info!(target: "audit", act = "keys", before, after, "the keys were exchanged");
        }
        self.policy.set(policy_of(config));
        self.permits.set(config.permits.clone());
    }

    /// Notes a change, and deletes the body of an upload that is over.
    pub async fn note(&self, id: UploadId, change: Change) -> Result<(), StoreError> {
        match self.store.apply(id, change, self.clock.unix()).await? {
            Changed::Done(upload) => {
                let reason = upload.reason.as_ref().map(|reason| reason.code.name());
                tracing::info!(%id, state = upload.state.name(), reason, "changed");
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

    /// The public URL of one of our paths.
    pub fn url(&self, path: &str) -> String {
        format!("{}{path}", self.origin)
    }

    /// Returns once no message is being taken: whoever went away may have left one whose records are being noted.
    pub async fn intakes_done(&self) {
        if tokio::time::timeout(STOP_TIMEOUT, self.intakes.done()).await.is_err() {
            tracing::warn!("stopping while messages are being noted");
        }
    }

    /// What is known of an upload, once nothing more happens to it by itself or `wait` is over; one that is announced is
    /// waited for, too.
    ///
    /// # Errors
    /// If the index fails.
    pub async fn settled(&self, id: UploadId, wait: Duration) -> Result<Option<Upload>, StoreError> {
        // Listening begins before looking, so that no change falls in between.
        let mut news = self.store.news();
        let deadline = tokio::time::Instant::now() + wait;
        loop {
            let upload = self.store.load(id).await?;
            let over = match &upload {
                _ if wait.is_zero() => true,
                Some(upload) => upload.state.is_settled(),
                None => self.store.with(move |index| index.marked(id)).await?.is_none_or(|marked| marked.stopped),
            };
            if over {
                return Ok(upload);
            }
            let changed = async {
                // Lagging behind means news, too. Never closed: the sender lives in our own store.
                while news.recv().await.is_ok_and(|changed| changed.id != id) {}
            };
            if tokio::time::timeout_at(deadline, changed).await.is_err() {
                return Ok(upload);
            }
        }
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
