//! What a gateway's tasks share: [`Shared`].

use crate::config::{Config, Permits};
use crate::destination::Destinations;
use crate::devices::Devices;
use crate::door::Looks;
use crate::intake::{DISK_TURNS, Patience};
use crate::metrics::Metrics;
use crate::offload::SHORT_ROOM;
use crate::pacing::Pacer;
use crate::pages::Pages;
use crate::pause::Pause;
use crate::progress::Progress;
use crate::resumable::Turns;
use crate::slots::Slots;
use crate::well_known::WellKnownCache;
use hoop_http::{Clock, Code, Connector, Current, Problem};
use hoop_seal::signing::GatewayKey;
use hoop_spool::{Spool, StoreError};
use hoop_units::Timestamp;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;
use tokio::sync::{Notify, Semaphore};
use url::Url;

/// What a gateway's tasks share.
pub struct Shared {
    pub spool: Spool,
    pub destinations: Current<Destinations>,
    pub connector: Current<Connector>,
    pub well_known: WellKnownCache,
    /// Destinations that are being asked what they are.
    pub looks: Looks,
    pub devices: Arc<Devices>,
    pub patience: Patience,
    /// Uploads that are kept at once; 0: any number.
    pub max_uploads: u64,
    /// So many uploads may begin before they are counted again.
    pub uploads_left: AtomicU64,
    /// Whether no upload is taken without its service's permit.
    pub permits_required: Current<bool>,
    /// By which this gateway shows services that it is itself.
    pub key: GatewayKey,
    pub metrics: Metrics,
    pub pause: Pause,
    pub progress: Progress,
    pub slots: Arc<Slots>,
    pub pacer: Arc<Pacer>,
    /// Told when there is something new to send.
    pub stored: Notify,
    /// Told whenever something is stored, for attempts that wait for more.
    pub committed: Notify,
    /// One permit: for the attempt that may keep its slot while it waits for more of its upload.
    pub patient: Semaphore,
    /// Whether what is stored is sent before all of it is.
    pub cut_through: bool,
    pub clock: Clock,
    pub max_upload_bytes: u64,
    pub early: bool,
    pub transfers: usize,
    pub public_url: Option<Url>,
    /// When it was opened.
    pub started: Timestamp,
    /// Each stream of events that is open holds a copy.
    pub streams: Arc<()>,
    pub pages: Current<Pages>,
    /// Whose turn it is at each upload resource.
    pub turns: Turns,
    /// A permit for each octet of short bodies that may be held.
    pub short_room: Arc<Semaphore>,
    /// A permit for each sender of a long body that waits for the disk.
    pub disk_turns: Semaphore,
}

impl Shared {
    pub fn new(config: &Config, spool: Spool, connector: Connector, key: GatewayKey) -> Arc<Self> {
        let destinations = Destinations::new(config.allow_dest.clone(), &config.own_names());
        let folder = config.spool.as_path();
        let pacer = Pacer::new(config.pacing.clone(), folder, config.clock.clone());
        let watch = pacer.clone();
        let connector = connector.watched(Arc::new(move |stream| watch.watch(stream)));
        Arc::new(Self {
            well_known: WellKnownCache::open(folder.join("services.json")),
            looks: Looks::default(),
            devices: Devices::new(config.device),
            patience: config.patience,
            max_uploads: config.max_uploads,
            uploads_left: AtomicU64::new(0),
            permits_required: Current::new(config.permits == Permits::Required),
            key,
            metrics: Metrics::default(),
            pause: Pause::open(folder.join("paused")),
            spool,
            connector: Current::new(connector.guarded(destinations.guard()).with_addresses(config.resolve.clone())),
            destinations: Current::new(destinations),
            progress: Progress::default(),
            slots: Arc::default(),
            pacer,
            stored: Notify::new(),
            committed: Notify::new(),
            // With one slot alone, none may idle.
            patient: Semaphore::new(usize::from(config.transfers > 1)),
            cut_through: config.cut_through,
            clock: config.clock.clone(),
            max_upload_bytes: config.max_upload_bytes,
            early: config.early,
            transfers: config.transfers,
            public_url: config.public_url.clone(),
            started: config.clock.now(),
            streams: Arc::default(),
            pages: Current::new(Pages::new(&config.hosts, config.public_url.as_ref())),
            turns: Turns::default(),
            short_room: Arc::new(Semaphore::new(SHORT_ROOM)),
            disk_turns: Semaphore::new(DISK_TURNS),
        })
    }

    /// A number that grows whenever anything is recorded or moves.
    pub fn revision(&self) -> u64 {
        self.spool.revision().wrapping_add(self.progress.revision())
    }

    /// Runs what waits for the disk where it may wait.
    pub async fn blocking<T: Send + 'static>(self: &Arc<Self>, work: impl FnOnce(&Self) -> T + Send + 'static) -> T {
        let shared = self.clone();
        match tokio::task::spawn_blocking(move || work(&shared)).await {
            Ok(value) => value,
            Err(error) => match error.try_into_panic() {
                Ok(panic) => std::panic::resume_unwind(panic),
                // The runtime is going down, and this task with it.
                Err(_) => std::future::pending().await,
            },
        }
    }
}

/// The answer to whoever asked while our own disk failed. The cause is for the operator's log.
pub fn store_problem(error: &StoreError) -> Problem {
    if error.is_full() {
        return full_problem("the disk is full");
    }
    tracing::error!(%error, "the spool failed");
    // What is damaged stays so; a disk may be well again.
    match error {
        StoreError::Damaged(_) => Problem::new(Code::Internal, "the gateway's spool is damaged; its log says more"),
        StoreError::File(_) | StoreError::Index(_) => {
            let detail = "the gateway's disk cannot be used now; its log says more";
            Problem::new(Code::SpoolFailed, detail).retry_after(FULL_RETRY_AFTER)
        }
    }
}

/// There is no room now; deliveries make some.
pub fn full_problem(detail: impl std::fmt::Display) -> Problem {
    Problem::new(Code::SpoolFull, detail).retry_after(FULL_RETRY_AFTER)
}

/// When to come back to a full gateway: a minute frees 8 MB on a 1 Mbit/s uplink.
pub const FULL_RETRY_AFTER: Duration = Duration::from_secs(60);
