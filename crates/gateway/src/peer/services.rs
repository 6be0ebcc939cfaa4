//! What is needed to speak with services: [`Services`].

use super::destination::Destinations;
use super::well_known::WellKnownCache;
use crate::core::config::Config;
use hoop_http::{Clock, Connector, Current};

/// Which services may be spoken with, by which connections, and what they have said of themselves.
pub struct Services {
    pub destinations: Current<Destinations>,
    pub connector: Current<Connector>,
    pub well_known: WellKnownCache,
    pub clock: Clock,
}

impl Services {
    /// As the configuration has it; `connector` trusts who is to be trusted.
    pub fn new(config: &Config, connector: Connector) -> Self {
        let destinations = Destinations::new(config.allow_dest.clone(), &config.own_names());
        let connector = connector.guarded(destinations.guard()).with_addresses(config.resolve.clone());
        Self {
            destinations: Current::new(destinations),
            connector: Current::new(connector),
            well_known: WellKnownCache::open(config.spool.join("services.json")),
            clock: config.clock.clone(),
        }
    }

    /// Takes over what a new configuration says of destinations and addresses given by hand; `connector` trusts who is to be trusted now.
    pub fn adopt(&self, config: &Config, connector: Connector) {
        let destinations = Destinations::new(config.allow_dest.clone(), &config.own_names());
        let connector = connector.guarded(destinations.guard()).with_addresses(config.resolve.clone());
        self.connector.set(connector);
        self.destinations.set(destinations);
    }

    /// Writes down what services said, unless that has been done lately.
    pub fn keep_if_due(&self) {
        let now = self.clock.now();
        if self.well_known.is_due(now) {
            self.well_known.keep(now);
        }
    }
}
