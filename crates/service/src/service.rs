//! The sidecar as one thing: [`Service`].

use crate::api::Api;
use crate::api::proxy::Proxy;
use crate::api::router::Router;
use crate::api::{crowd, metrics};
use crate::config::Config;
use crate::context::{Context, STOP_TIMEOUT};
use crate::receive::Receive;
use crate::reload::{self, Reload};
use crate::replay::Replay;
use crate::replay::application::Application;
use crate::replay::keep_alive;
use crate::replay::worker::Worker;
use crate::store::{Store, StoreError};
use hoop_http::tls::{self, Renewed};
use hoop_http::{Connector, Origin, ServeError, Server, ServerLimits, Shutdown};
use hoop_units::Prefix;
use rustls::{ClientConfig, RootCertStore};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;

/// A service that listens already and is ready to run.
pub struct Service {
    server: Server,
    /// For `/metrics`.
    admin: Option<Server>,
    api: Arc<Api>,
    replay: Arc<Replay>,
    proxy: Proxy,
    trusted_proxies: Vec<Prefix>,
    reload: Reload,
}

/// A service cannot be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenServiceError {
    /// The application is spoken to over plain HTTP only.
    #[error("the upstream must be http://…, not {0}: the application stands behind us, on the same machine or network")]
    UpstreamScheme(Origin),
    /// The certificate or its key.
    #[error(transparent)]
    Tls(#[from] tls::TlsError),
    /// The state folder.
    #[error("the state folder {} cannot be used: {source}", path.display())]
    State {
        /// The folder.
        path: PathBuf,
        /// Why.
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// An address, or metrics would be told to others than this machine.
    #[error(transparent)]
    Listen(#[from] ServeError),
}

impl Service {
    /// Opens the state folder and the socket. Connections are accepted from now on, and answered once it runs.
    ///
    /// # Errors
    /// [`OpenServiceError`] says what is at fault.
    pub async fn open(mut config: Config) -> Result<Self, OpenServiceError> {
        if config.upstream.is_https() {
            return Err(OpenServiceError::UpstreamScheme(config.upstream));
        }
        let renewed =
            config.tls.as_ref().map(|files| Renewed::open(&files.certificate, &files.key, tls::server_config));
        let (certificate, server_tls) = renewed.transpose()?.unzip();
        let connector = Connector::new(no_trust()?).with_timeout(config.connect_timeout);
        let path = config.state_dir.clone();
        let opened = crate::store::blocking({
            let (path, ended_max) = (path.clone(), config.max_ended_bytes);
            move || Store::open(&path, ended_max)
        });
        let opened = opened.await.map_err(StoreError::from).and_then(|opened| opened);
        let store = opened.map_err(|error| OpenServiceError::State { path, source: Box::new(error) })?;
        let path = config.state_dir.join("clock");
        let kept = config.clock.keep(&path);
        config.clock = kept.map_err(|error| OpenServiceError::State { path, source: Box::new(error) })?;
        let crowd = crowd::crowd(config.connections, config.trusted_proxies.clone());
        let limits = ServerLimits { crowd: Some(crowd), ..config.limits.clone() };
        let server = Server::bind(config.listen, server_tls.map(Arc::new), limits).await?;
        let admin = hoop_http::metrics::bind(config.admin).await?;
        let fixed = reload::fixed(&config);
        let application = Arc::new(Application::new(&config, connector));
        let context = Arc::new(Context::new(&config, store));
        let receive = Arc::new(Receive::new(&config, context.clone()));
        let replay = Arc::new(Replay::new(&config, context.clone(), application.clone()));
        let proxy = Proxy::new(&config, application.clone(), replay.left_behind.clone());
        let api = Arc::new(Api::new(&config, receive, application));
        let (reload, trusted_proxies) = (Reload::new(context, certificate, fixed), config.trusted_proxies);
        Ok(Self { server, admin, reload, api, replay, proxy, trusted_proxies })
    }

    /// The address that it listens on.
    pub const fn address(&self) -> SocketAddr {
        self.server.address()
    }

    /// The address that tells `/metrics`.
    pub fn admin_address(&self) -> Option<SocketAddr> {
        self.admin.as_ref().map(Server::address)
    }

    /// What gives it another configuration while it runs.
    pub fn reload(&self) -> Reload {
        self.reload.clone()
    }

    /// Serves and replays until `shutdown`; then lets what is under way finish, within bounds.
    pub async fn run(self, shutdown: Shutdown) {
        let (api, replay, trusted_proxies) = (self.api, self.replay, self.trusted_proxies);
        let router =
            Arc::new(Router { api: api.clone(), trusted_proxies, proxy: self.proxy, shutdown: shutdown.clone() });
        let handler = move |request, peer| {
            let router = router.clone();
            async move { router.answer(request, peer).await }
        };
        let worker = Worker::new(replay.clone(), api.receive.clone(), shutdown.clone());
        tracing::info!(address = %self.server.address(), "serving");
        let keeping = keep_alive::run(replay.clone(), shutdown.clone());
        let telling = metrics::run(self.admin, api.clone(), replay, shutdown.clone());
        let time = api.context.clock.clone();
        let judging = hoop_http::keep_time(&time, shutdown.clone());
        let renewing = self.reload.follow(shutdown.clone());
        tokio::join!(self.server.run(handler, shutdown), worker.run(), keeping, telling, judging, renewing);
        api.done().await;
        if tokio::time::timeout(STOP_TIMEOUT, api.context.store.close()).await.is_err() {
            tracing::warn!("stopping while the state is being used");
        }
    }
}

/// The connector speaks to the application without TLS, so it trusts nobody. Reading the system's store would be slow.
fn no_trust() -> Result<Arc<ClientConfig>, tls::TlsError> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions()?;
    Ok(Arc::new(builder.with_root_certificates(RootCertStore::empty()).with_no_client_auth()))
}
