//! What a gateway's tasks share: [`Shared`].

use crate::access::consent::Consent;
use crate::access::cors::Cors;
use crate::core::blocking::blocking;
use crate::core::config::{Config, Permits};
use crate::core::state::Core;
use crate::delivery::pacing::Pacer;
use crate::delivery::state::Delivery;
use crate::intake::state::Receiver;
use crate::peer::probes::ServiceProbes;
use crate::peer::services::Services;
use hoop_http::{Connector, Current};
use hoop_seal::signing::GatewayKey;
use hoop_spool::Spool;
use hoop_units::Timestamp;
use std::ops::Deref;
use std::sync::Arc;
use url::Url;

/// What a gateway's tasks share.
pub struct Shared {
    pub core: Arc<Core>,
    pub services: Arc<Services>,
    /// Services that are being asked what they are.
    pub probes: Arc<ServiceProbes>,
    pub consent: Arc<Consent>,
    pub receiver: Arc<Receiver>,
    pub delivery: Arc<Delivery>,
    pub public_url: Option<Url>,
    /// When it was opened.
    pub started: Timestamp,
    /// Each stream of events that is open holds a copy.
    pub streams: Arc<()>,
    pub cors: Current<Cors>,
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
        let consent = Consent::new(core.clone(), services.clone(), probes.clone(), required);
        Arc::new(Self {
            receiver: Receiver::new(config, core.clone(), consent.clone()),
            consent,
            delivery: Delivery::new(config, core.clone(), services.clone(), pacer),
            services,
            probes,
            core,
            public_url: config.public_url.clone(),
            started: config.clock.now(),
            streams: Arc::default(),
            cors: Current::new(Cors::new(&config.hosts, config.public_url.as_ref())),
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
