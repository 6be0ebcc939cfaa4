//! A configuration that is read again while the service runs: [`Reload`].

use crate::config::Config;
use crate::context::Context;
use hoop_http::tls::{NotRenewed, Renewed};
use hoop_http::{Fixed, Shutdown};
use std::sync::Arc;

/// Gives a running service another configuration, without dropping a connection or a request. Keys, routes, permits and
/// the longest upload are the new ones from the next request on. The certificate is what its files hold now. All else
/// stays as it was until a restart.
#[derive(Clone)]
pub struct Reload {
    context: Arc<Context>,
    certificate: Option<Arc<Renewed>>,
    /// What cannot change, as it was at the beginning.
    fixed: Fixed,
}

impl Reload {
    pub(crate) fn new(context: Arc<Context>, certificate: Option<Arc<Renewed>>, fixed: Fixed) -> Self {
        Self { context, certificate, fixed }
    }

    /// Shows a certificate that is renewed within a minute, until `shutdown`.
    pub(crate) async fn follow(&self, shutdown: Shutdown) {
        if let Some(certificate) = self.certificate.clone() {
            certificate.follow(shutdown).await;
        }
    }

    /// Takes over what can change, and returns the flags that differ and need a restart. May wait for a disk.
    ///
    /// # Errors
    /// If the certificate was changed and cannot be used: then all is as it was.
    pub fn adopt(&self, config: &Config) -> Result<Vec<&'static str>, NotRenewed> {
        self.certificate.as_ref().map_or(Ok(()), |certificate| certificate.look())?;
        self.context.adopt(config);
        Ok(self.fixed.differing(&fixed(config)))
    }
}

/// What a running service does not change.
pub fn fixed(config: &Config) -> Fixed {
    // Each field is named, so that a new one is not forgotten.
    let Config {
        listen,
        admin,
        tls,
        upstream,
        origin,
        keys: _,
        state_dir,
        routes: _,
        permits: _,
        max_bytes: _,
        max_stored_bytes,
        owner_quota_bytes,
        address_quota_bytes,
        reserve_bytes,
        max_ended_bytes,
        tickets_per_minute,
        ticket_lifetime,
        connect_timeout,
        answer_timeout,
        body_timeout,
        tunnel_idle,
        replays,
        backoff: _,
        keep_alive_round: _,
        intakes,
        trusted_proxies,
        connections,
        limits: _,
        clock: _,
    } = config;
    Fixed::new(&[
        ("listen", listen),
        ("admin", admin),
        ("tls-cert, tls-key", tls),
        ("upstream", upstream),
        ("origin", origin),
        ("state-dir", state_dir),
        ("max-stored", max_stored_bytes),
        ("owner-quota", owner_quota_bytes),
        ("address-quota", address_quota_bytes),
        ("reserve", reserve_bytes),
        ("max-ended", max_ended_bytes),
        ("tickets-per-minute", tickets_per_minute),
        ("ticket-lifetime", ticket_lifetime),
        ("connect-timeout", connect_timeout),
        ("answer-timeout", answer_timeout),
        ("body-timeout", body_timeout),
        ("tunnel-idle", tunnel_idle),
        ("replays", replays),
        ("intakes", intakes),
        ("trusted-proxy", trusted_proxies),
        ("connections", connections),
    ])
}
