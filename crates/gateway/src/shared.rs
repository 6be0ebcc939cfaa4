//! What a gateway's tasks share: [`Shared`].

use crate::core::blocking::blocking;
use crate::core::body_timeouts::BodyTimeouts;
use crate::core::config::{Config, Permits};
use crate::core::state::Core;
use crate::destination::Destinations;
use crate::devices::Devices;
use crate::door::Looks;
use crate::intake::DISK_TURNS;
use crate::offload::SHORT_ROOM;
use crate::pacing::Pacer;
use crate::pages::Pages;
use crate::pause::Pause;
use crate::resumable::Turns;
use crate::slots::Slots;
use crate::well_known::WellKnownCache;
use hoop_http::{Connector, Current};
use hoop_seal::signing::GatewayKey;
use hoop_spool::Spool;
use hoop_units::Timestamp;
use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use tokio::sync::Semaphore;
use url::Url;

/// What a gateway's tasks share.
pub struct Shared {
    pub core: Arc<Core>,
    pub destinations: Current<Destinations>,
    pub connector: Current<Connector>,
    pub well_known: WellKnownCache,
    /// Destinations that are being asked what they are.
    pub looks: Looks,
    pub devices: Arc<Devices>,
    pub body_timeouts: BodyTimeouts,
    /// Uploads that are kept at once; 0: any number.
    pub max_uploads: u64,
    /// So many uploads may begin before they are counted again.
    pub uploads_left: AtomicU64,
    /// Whether no upload is taken without its service's permit.
    pub permits_required: Current<bool>,
    pub pause: Pause,
    pub slots: Arc<Slots>,
    pub pacer: Arc<Pacer>,
    /// One permit: for the attempt that may keep its slot while it waits for more of its upload.
    pub patient: Semaphore,
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
            body_timeouts: config.body_timeouts,
            max_uploads: config.max_uploads,
            uploads_left: AtomicU64::new(0),
            permits_required: Current::new(config.permits == Permits::Required),
            core: Arc::new(Core::new(spool, config.clock.clone(), key, config.cut_through)),
            pause: Pause::open(folder.join("paused")),
            connector: Current::new(connector.guarded(destinations.guard()).with_addresses(config.resolve.clone())),
            destinations: Current::new(destinations),
            slots: Arc::default(),
            pacer,
            // With one slot alone, none may idle.
            patient: Semaphore::new(usize::from(config.transfers > 1)),
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

    /// Runs what waits for the disk where it may wait.
    pub async fn blocking<T: Send + 'static>(self: &Arc<Self>, work: impl FnOnce(&Self) -> T + Send + 'static) -> T {
        blocking(self, work).await
    }
}

impl Deref for Shared {
    type Target = Core;

    fn deref(&self) -> &Core {
        &self.core
    }
}
