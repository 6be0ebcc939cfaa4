//! A configuration that is read again while the service runs: [`Reload`].

use crate::config::Config;
use crate::context::Context;
use hoop_http::Shutdown;
use hoop_http::tls::{NotRenewed, Renewed};
use std::sync::Arc;

/// Gives a running service another configuration, without a connection or a request being dropped. Keys, routes, permits and the longest upload are
/// those of the new one from the next request on; the certificate is what its files hold now. All else is as it was until a restart.
#[derive(Clone)]
pub struct Reload {
    context: Arc<Context>,
    certificate: Option<Arc<Renewed>>,
    /// What cannot change, as it was at the beginning.
    fixed: Arc<[Setting]>,
}

/// A setting's flag, and what it is.
type Setting = (&'static str, String);

impl Reload {
    pub(crate) fn new(context: Arc<Context>, certificate: Option<Arc<Renewed>>, fixed: Arc<[Setting]>) -> Self {
        Self { context, certificate, fixed }
    }

    /// Shows a certificate that is renewed within a minute, until `shutdown`.
    pub(crate) async fn follow(&self, shutdown: Shutdown) {
        if let Some(certificate) = self.certificate.clone() {
            certificate.follow(shutdown).await;
        }
    }

    /// Takes over what can be, and returns the flags that differ and need a restart. May wait for a disk.
    ///
    /// # Errors
    /// If the certificate was changed and cannot be used: then all is as it was.
    pub fn adopt(&self, config: &Config) -> Result<Vec<&'static str>, NotRenewed> {
        self.certificate.as_ref().map_or(Ok(()), |certificate| certificate.look())?;
        self.context.adopt(config);
        let differ = fixed(config).into_iter().zip(&*self.fixed).filter(|(new, old)| new != *old);
        Ok(differ.map(|((flag, _), _)| flag).collect())
    }
}

/// What a running service does not change.
pub fn fixed(config: &Config) -> Vec<Setting> {
    fn of(flag: &'static str, value: &impl std::fmt::Debug) -> Setting {
        (flag, format!("{value:?}"))
    }
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
    vec![
        of("listen", listen),
        of("admin", admin),
        of("tls-cert, tls-key", tls),
        of("upstream", upstream),
        of("origin", origin),
        of("state-dir", state_dir),
        of("max-stored", max_stored_bytes),
        of("owner-quota", owner_quota_bytes),
        of("address-quota", address_quota_bytes),
        of("reserve", reserve_bytes),
        of("max-ended", max_ended_bytes),
        of("tickets-per-minute", tickets_per_minute),
        of("ticket-lifetime", ticket_lifetime),
        of("connect-timeout", connect_timeout),
        of("answer-timeout", answer_timeout),
        of("body-timeout", body_timeout),
        of("tunnel-idle", tunnel_idle),
        of("replays", replays),
        of("intakes", intakes),
        of("trusted-proxy", trusted_proxies),
        of("connections", connections),
    ]
}
