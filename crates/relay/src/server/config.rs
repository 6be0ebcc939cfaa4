//! What a relay is given: [`RelayConfig`], and why it cannot begin with that: [`RelayError`].

use super::cache::CacheConfig;
use super::egress::Allowed;
use super::objects::StoreConfig;
use super::rate_limit::ShareLimits;
use hoop_units::Prefix;
use std::net::SocketAddr;
use std::path::PathBuf;

/// What a relay is given.
#[derive(Clone, Debug)]
pub struct RelayConfig {
    /// Where it listens: UDP for QUIC, TCP for WebSocket.
    pub listen: SocketAddr,
    /// Where it takes WebSockets without TLS, too, from web servers that end TLS in front. None: nowhere.
    pub plain_listen: Option<PlainListen>,
    /// Its chain of certificates, in PEM.
    pub certificate: PathBuf,
    /// Their key, in PEM.
    pub key: PathBuf,
    /// Its devices: see [`Devices`](crate::Devices).
    pub devices: PathBuf,
    /// Where it connects to.
    pub allowed: Allowed,
    /// What each device may use.
    pub shares: ShareLimits,
    /// Whom it believes of the servers that it speaks TLS to, besides those whom its system believes: authorities in PEM files.
    pub ca: Vec<PathBuf>,
    /// Where answers are put that devices do not take at once. None: nowhere, and their origins wait.
    pub store: Option<StoreConfig>,
    /// How much is kept of answers for the next who asks: on disk in the folder of `store`, and in memory.
    pub cache: CacheConfig,
    /// Where `/metrics` are told: an address of this machine alone. None: nowhere.
    pub admin: Option<SocketAddr>,
    /// Whether it logs each flow (target `access`): who went where, how much was carried, how it ended.
    pub access_log: bool,
}

/// Where web servers in front reach a relay.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PlainListen {
    /// Where it listens, without TLS.
    pub address: SocketAddr,
    /// Who alone is heard there, and is believed whom a connection is from.
    pub proxies: Vec<Prefix>,
}

/// A relay cannot begin.
#[derive(Debug, thiserror::Error)]
pub enum RelayError {
    /// Its devices.
    #[error(transparent)]
    Devices(#[from] crate::IntroductionError),
    /// A certificate or its key.
    #[error("{path}: {why}")]
    Certificate {
        /// Which.
        path: PathBuf,
        /// Why.
        why: String,
    },
    /// Whom it believes.
    #[error(transparent)]
    Trust(#[from] hoop_http::tls::TlsError),
    /// The folder of its store.
    #[error("{path}: {source}")]
    Store {
        /// Which.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// A socket, or metrics would be told to others than this machine.
    #[error(transparent)]
    Listen(#[from] hoop_http::ServeError),
}
