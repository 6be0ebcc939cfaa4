//! Opening and running: [`Gateway`].

use crate::config::Config;
use hoop_http::{Code, Problem, ServeError, Server, Shutdown};
use std::net::{Ipv4Addr, SocketAddr};

/// A gateway with its socket bound: devices may connect from now on, and are answered once it runs.
#[derive(Debug)]
pub struct Gateway {
    server: Server,
}

/// A gateway could not be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The address cannot be bound.
    #[error(transparent)]
    Listen(#[from] ServeError),
}

impl Gateway {
    /// Binds the address.
    ///
    /// # Errors
    /// [`OpenError`] says what is in the way.
    pub async fn open(config: Config) -> Result<Self, OpenError> {
        let server = bind(&config).await?;
        Ok(Self { server })
    }

    /// The address that was bound.
    pub const fn address(&self) -> SocketAddr {
        self.server.address()
    }

    /// Serves until `shutdown`; what is under way then is continued by the next run.
    pub async fn run(self, shutdown: Shutdown) {
        let nothing = |_, _| async { Problem::new(Code::NotFound, "").into_response() };
        self.server.run(nothing, shutdown).await;
    }
}

/// Where the machine has no IPv6, "all addresses" means those of IPv4.
async fn bind(config: &Config) -> Result<Server, ServeError> {
    let any = SocketAddr::from((Ipv4Addr::UNSPECIFIED, config.listen.port()));
    match Server::bind(config.listen, None, config.limits.clone()).await {
        Err(_) if config.listen.ip().is_unspecified() && config.listen.is_ipv6() => {
            Server::bind(any, None, config.limits.clone()).await
        }
        result => result,
    }
}
