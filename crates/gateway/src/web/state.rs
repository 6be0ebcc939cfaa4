//! What the answers of a gateway are made from: [`Web`].

use crate::access::consent::Consent;
use crate::access::cors::Cors;
use crate::core::config::Config;
use crate::core::state::Core;
use crate::delivery::state::Delivery;
use crate::intake::state::Receiver;
use hoop_http::Current;
use hoop_units::Timestamp;
use std::sync::Arc;
use url::Url;

/// What the answers of a gateway are made from.
pub struct Web {
    pub core: Arc<Core>,
    pub consent: Arc<Consent>,
    pub receiver: Arc<Receiver>,
    pub delivery: Arc<Delivery>,
    /// What pages of other origins may ask.
    pub cors: Current<Cors>,
    /// Where people reach this gateway, if its operator says so.
    pub public_url: Option<Url>,
    /// When it was opened.
    pub started: Timestamp,
    /// Each stream of events that is open holds a copy.
    pub streams: Arc<()>,
}

impl Web {
    /// As the configuration has it.
    pub fn new(
        config: &Config,
        core: Arc<Core>,
        consent: Arc<Consent>,
        receiver: Arc<Receiver>,
        delivery: Arc<Delivery>,
    ) -> Arc<Self> {
        Arc::new(Self {
            started: core.clock.now(),
            core,
            consent,
            receiver,
            delivery,
            cors: Current::new(Cors::new(&config.hosts, config.public_url.as_ref())),
            public_url: config.public_url.clone(),
            streams: Arc::default(),
        })
    }
}
