//! The server's end of carried connections: [`Relay`].

use crate::introduction::Devices;
use hoop_carrier::{Listener, server_tls};
use hoop_endpoint::{FlowStream, Server, ServerConfig};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use std::collections::BTreeSet;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use tokio::net::{TcpStream, lookup_host};
use tokio::task::JoinSet;
use tokio::time::timeout;

/// What a service's name begins with when it is a TCP connection's destination: `tcp:HOST:PORT`.
pub const TCP: &str = "tcp:";

/// How long a destination has to take a connection.
const CONNECT_MAX: Duration = Duration::from_secs(20);

/// What a flow is copied through, each way.
const COPY_BYTES: usize = 64 * 1024;

/// Why a relay ends a flow (END; `docs/flow.md` §6).
pub mod codes {
    /// The service is not `tcp:HOST:PORT`.
    pub const MALFORMED: u64 = 0x100;
    /// The relay does not go there.
    pub const FORBIDDEN: u64 = 0x101;
    /// There is no such name.
    pub const UNKNOWN_NAME: u64 = 0x102;
    /// Nobody answers there, or refuses.
    pub const UNREACHABLE: u64 = 0x103;
    /// The connection to the destination broke off.
    pub const BROKEN: u64 = 0x104;
}

/// Where a relay connects to.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Allowed {
    /// Anywhere at all.
    pub any: bool,
    /// These, though they are not public.
    pub addresses: BTreeSet<IpAddr>,
}

impl Allowed {
    /// Public addresses that are not this machine's `own`, and those that are listed: a device that was introduced is not let into the server's network by that.
    pub fn allows(&self, address: IpAddr, own: &[IpAddr]) -> bool {
        let is_elsewhere = hoop_units::is_public(address) && !hoop_units::leads_to(address, own);
        self.any || self.addresses.contains(&address.to_canonical()) || is_elsewhere
    }
}

/// What a relay is given.
#[derive(Clone, Debug)]
pub struct RelayConfig {
    /// Where it listens: UDP for QUIC, TCP for WebSocket.
    pub listen: SocketAddr,
    /// Its chain of certificates, in PEM.
    pub certificate: PathBuf,
    /// Their key, in PEM.
    pub key: PathBuf,
    /// Its devices: see [`Devices`].
    pub devices: PathBuf,
    /// Where it connects to.
    pub allowed: Allowed,
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
    /// A socket.
    #[error("cannot listen on {address}: {source}")]
    Listen {
        /// Where.
        address: SocketAddr,
        /// Why.
        source: io::Error,
    },
}

/// Takes devices' flows, and connects each to where its service says.
#[derive(Debug)]
pub struct Relay {
    listener: Listener,
    server: Server,
    allowed: Arc<Allowed>,
}

impl Relay {
    /// Listens; within a tokio runtime.
    ///
    /// # Errors
    /// If a file is missing or malformed, or a socket cannot be had.
    pub async fn bind(config: &RelayConfig) -> Result<Self, RelayError> {
        let devices = Devices::open(&config.devices)?;
        let tls = tls(&config.certificate, &config.key)?;
        let listen = |source| RelayError::Listen { address: config.listen, source };
        let listener = Listener::bind(config.listen, &tls).await.map_err(listen)?;
        let server = Server::new(ServerConfig::new(Arc::new(devices)));
        Ok(Self { listener, server, allowed: Arc::new(config.allowed.clone()) })
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.listener.local_address()
    }

    /// Serves until this is dropped. Connections to destinations end with it, and so do their flows.
    pub async fn run(self) {
        let mut flows = JoinSet::new();
        loop {
            let carrier = tokio::select! {
                carrier = self.listener.accept() => carrier,
                Some(flow) = self.server.accept() => {
                    flows.spawn(relay(flow, self.allowed.clone()));
                    continue;
                }
                Some(_) = flows.join_next() => continue,
            };
            match carrier {
                Ok(carrier) => self.server.serve(carrier, "relay"),
                Err(error) => {
                    tracing::error!(%error, "a listener is gone");
                    return;
                }
            }
        }
    }
}

fn tls(certificate: &Path, key: &Path) -> Result<rustls::ServerConfig, RelayError> {
    let fail = |path: &Path, why: String| RelayError::Certificate { path: path.to_owned(), why };
    let chain: Result<Vec<_>, _> = CertificateDer::pem_file_iter(certificate).and_then(Iterator::collect);
    let chain = chain.map_err(|error| fail(certificate, error.to_string()))?;
    let private = PrivateKeyDer::from_pem_file(key).map_err(|error| fail(key, error.to_string()))?;
    server_tls(chain, private).map_err(|error| fail(certificate, error.to_string()))
}

async fn relay(mut flow: FlowStream, allowed: Arc<Allowed>) {
    let name = flow.name();
    let code = match connect(flow.service(), &allowed).await {
        Ok(mut connection) => {
            match tokio::io::copy_bidirectional_with_sizes(&mut flow, &mut connection, COPY_BYTES, COPY_BYTES).await {
                Ok(_) => {
                    // Both ends have said all; the device may be away, and is waited for.
                    let _ = flow.finished().await;
                    return;
                }
                Err(error) => {
                    tracing::debug!(?name, %error, "a carried connection broke off");
                    codes::BROKEN
                }
            }
        }
        Err(code) => code,
    };
    flow.reset(code);
}

async fn connect(service: &str, allowed: &Allowed) -> Result<TcpStream, u64> {
    let destination = service.strip_prefix(TCP).ok_or(codes::MALFORMED)?;
    if destination.rsplit_once(':').is_none_or(|(host, port)| host.is_empty() || port.parse::<u16>().is_err()) {
        return Err(codes::MALFORMED);
    }
    let addresses = timeout(CONNECT_MAX, lookup_host(destination)).await.map_err(|_| codes::UNKNOWN_NAME)?;
    let addresses: Vec<_> = addresses.map_err(|_| codes::UNKNOWN_NAME)?.collect();
    // They come and go; without knowing them nothing is public.
    let own = if_addrs::get_if_addrs().map(|own| own.iter().map(if_addrs::Interface::ip).collect::<Vec<_>>());
    let own = own.unwrap_or_else(|_| addresses.iter().map(SocketAddr::ip).collect());
    let (may, may_not): (Vec<_>, Vec<_>) =
        addresses.into_iter().partition(|address| allowed.allows(address.ip(), &own));
    if may.is_empty() {
        return Err(if may_not.is_empty() { codes::UNKNOWN_NAME } else { codes::FORBIDDEN });
    }
    let connection = timeout(CONNECT_MAX, TcpStream::connect(&may[..])).await;
    let connection = connection.ok().and_then(Result::ok).ok_or(codes::UNREACHABLE)?;
    // What a flow brings is as large as it will be.
    let _ = connection.set_nodelay(true);
    Ok(connection)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_device_gets_to_public_addresses_and_to_those_that_are_listed() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let here = format!("tcp:{}", listener.local_addr().unwrap());
        let none = Allowed::default();
        assert_eq!(connect(&here, &none).await.unwrap_err(), codes::FORBIDDEN);
        assert_eq!(connect("tcp:[::ffff:127.0.0.1]:1", &none).await.unwrap_err(), codes::FORBIDDEN);
        assert_eq!(connect("tcp:10.0.0.1:22", &none).await.unwrap_err(), codes::FORBIDDEN);
        let listed = Allowed { addresses: [IpAddr::from([127, 0, 0, 1])].into(), ..none.clone() };
        assert!(connect(&here, &listed).await.is_ok());
        assert_eq!(connect("tcp:127.0.0.2:1", &listed).await.unwrap_err(), codes::FORBIDDEN);
        assert_eq!(connect("tcp:127.0.0.1:1", &listed).await.unwrap_err(), codes::UNREACHABLE);
        for malformed in ["", "udp:127.0.0.1:1", "tcp:127.0.0.1", "tcp::1", "tcp:127.0.0.1:99999", "tcp:x:"] {
            assert_eq!(connect(malformed, &listed).await.unwrap_err(), codes::MALFORMED, "{malformed}");
        }
    }
}
