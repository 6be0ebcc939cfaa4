//! A configuration that is read again while the gateway runs: [`Reload`].

use crate::access::cors::Cors;
use crate::core::config::{Config, Permits};
use crate::web::state::Web;
use hoop_http::Fixed;
use hoop_http::tls::{self, TlsError};
use std::sync::{Arc, Weak};

/// Gives a running gateway another configuration, without a connection or an upload being dropped. Destinations, trusted certificates, addresses given by hand, names
/// and permits are those of the new one from the next request and the next connection to a service on. All else is as it was until a restart.
#[derive(Clone)]
pub struct Reload {
    /// A gateway that has stopped lets go of its spool, whoever may still reload it.
    web: Weak<Web>,
    /// What cannot change, as it was at the beginning.
    fixed: Fixed,
}

impl Reload {
    pub(crate) fn new(web: &Arc<Web>, fixed: Fixed) -> Self {
        Self { web: Arc::downgrade(web), fixed }
    }

    /// Takes over what can be, and returns the flags that differ and need a restart. May wait for a disk.
    ///
    /// # Errors
    /// If a file of certificates cannot be used: then all is as it was.
    pub fn adopt(&self, config: &Config) -> Result<Vec<&'static str>, TlsError> {
        let trust = tls::client_config(&config.ca)?;
        let Some(web) = self.web.upgrade() else { return Ok(Vec::new()) };
        let connector = (*web.consent.services.connector.get()).clone().trusting(trust);
        web.consent.services.adopt(config, connector);
        web.cors.set(Cors::new(&config.hosts, config.public_url.as_ref()));
        web.consent.permits_required.set(config.permits == Permits::Required);
        Ok(self.fixed.differing(&fixed(config)))
    }
}

/// What a running gateway does not change.
pub fn fixed(config: &Config) -> Fixed {
    // Each field is named, so that a new one is not forgotten.
    let Config {
        listen,
        spool,
        quota_bytes,
        reserve_bytes,
        max_uploads,
        device,
        body_timeouts: _,
        permits: _,
        admin,
        max_upload_bytes,
        early,
        cut_through,
        ca: _,
        allow_dest: _,
        resolve: _,
        public_url,
        hosts: _,
        mdns,
        instance,
        sync: _,
        transfers,
        pacing,
        limits: _,
        clock: _,
    } = config;
    Fixed::new(&[
        ("listen", listen),
        ("spool", spool),
        ("quota", quota_bytes),
        ("reserve", reserve_bytes),
        ("max-uploads", max_uploads),
        ("device-*", device),
        ("admin", admin),
        ("max-upload", max_upload_bytes),
        ("no-early", early),
        ("no-cut-through", cut_through),
        ("public-url", public_url),
        ("no-mdns", mdns),
        ("instance", instance),
        ("transfers", transfers),
        ("rate, window, background, budget", pacing),
    ])
}
