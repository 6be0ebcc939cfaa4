//! What a gateway's tasks share: [`Shared`].

use crate::access::consent::Consent;
use crate::access::cors::Cors;
use crate::core::blocking::blocking;
use crate::core::body_timeouts::BodyTimeouts;
use crate::core::config::{Config, Permits};
use crate::core::state::Core;
use crate::delivery::pacing::Pacer;
use crate::delivery::state::Delivery;
use crate::devices::Devices;
use crate::intake::DISK_TURNS;
use crate::offload::SHORT_ROOM;
use crate::peer::probes::ServiceProbes;
use crate::peer::services::Services;
use crate::resumable::Turns;
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
    pub services: Arc<Services>,
    /// Services that are being asked what they are.
    pub probes: Arc<ServiceProbes>,
    pub consent: Arc<Consent>,
    pub devices: Arc<Devices>,
    pub body_timeouts: BodyTimeouts,
    /// Uploads that are kept at once; 0: any number.
    pub max_uploads: u64,
    /// So many uploads may begin before they are counted again.
    pub uploads_left: AtomicU64,
    pub delivery: Arc<Delivery>,
    pub max_upload_bytes: u64,
    pub early: bool,
    pub public_url: Option<Url>,
    /// When it was opened.
    pub started: Timestamp,
    /// Each stream of events that is open holds a copy.
    pub streams: Arc<()>,
    pub cors: Current<Cors>,
    /// Whose turn it is at each upload resource.
    pub turns: Turns,
    /// A permit for each octet of short bodies that may be held.
    pub short_room: Arc<Semaphore>,
    /// A permit for each sender of a long body that waits for the disk.
    pub disk_turns: Semaphore,
}

impl Shared {
    pub fn new(config: &Config, spool: Spool, connector: Connector, key: GatewayKey) -> Arc<Self> {
        let folder = config.spool.as_path();
        let pacer = Pacer::new(config.pacing.clone(), folder, config.clock.clone());
        let watch = pacer.clone();
        let connector = connector.watched(Arc::new(move |stream| watch.watch(stream)));
        let core = Arc::new(Core::new(spool, config.clock.clone(), key, config.cut_through));
        let services = Arc::new(Services::new(config, connector));
        let probes = ServiceProbes::new(services.clone(), config.device);
        let required = config.permits == Permits::Required;
        Arc::new(Self {
            consent: Consent::new(core.clone(), services.clone(), probes.clone(), required),
            delivery: Delivery::new(config, core.clone(), services.clone(), pacer),
            services,
            probes,
            core,
            devices: Devices::new(config.device),
            body_timeouts: config.body_timeouts,
            max_uploads: config.max_uploads,
            uploads_left: AtomicU64::new(0),
            max_upload_bytes: config.max_upload_bytes,
            early: config.early,
            public_url: config.public_url.clone(),
            started: config.clock.now(),
            streams: Arc::default(),
            cors: Current::new(Cors::new(&config.hosts, config.public_url.as_ref())),
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
