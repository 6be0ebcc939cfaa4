//! Connections to an [`Origin`]: [`Connector`].

use crate::body::Body;
use crate::origin::Origin;
use http::{Request, Response};
use hyper::body::Incoming;
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use url::Host;

/// Says whether a connection to an address may be opened. Asked after the name was resolved, for the very address
/// that is then used, so that a name cannot change its mind in between.
pub type AddressGuard = Arc<dyn Fn(&Origin, SocketAddr) -> bool + Send + Sync>;

/// Opens connections; cheap to clone.
#[derive(Clone)]
pub struct Connector {
    tls: Arc<ClientConfig>,
    guard: Option<AddressGuard>,
    /// Names with addresses given by hand, as by curl's `--resolve`.
    addresses: Arc<BTreeMap<(String, u16), Vec<IpAddr>>>,
    timeout: Duration,
    write_buffer: usize,
}

/// No connection came about.
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    /// The name has no address.
    #[error("cannot find the address of {host}: {source}")]
    Resolve {
        /// The name.
        host: String,
        /// Why.
        source: io::Error,
    },
    /// The guard permits none of its addresses.
    #[error("{host} is at {address}, where connections are not permitted")]
    Forbidden {
        /// The name.
        host: String,
        /// The first of the addresses.
        address: IpAddr,
    },
    /// Nobody answers.
    #[error("cannot connect to {host}: {source}")]
    Connect {
        /// The name.
        host: String,
        /// Why.
        source: io::Error,
    },
    /// The other end is not who it should be, or speaks no TLS.
    #[error("no TLS with {host}: {source}")]
    Tls {
        /// The name.
        host: String,
        /// Why.
        source: io::Error,
    },
    /// The HTTP connection could not begin.
    #[error("no HTTP with {host}: {source}")]
    Http {
        /// The name.
        host: String,
        /// Why.
        source: hyper::Error,
    },
    /// It took too long.
    #[error("no connection to {host} within {} s", timeout.as_secs())]
    Timeout {
        /// The name.
        host: String,
        /// The time allowed.
        timeout: Duration,
    },
}

impl Connector {
    /// Connections with this TLS configuration, to any address, with 10 s to come about.
    pub fn new(tls: Arc<ClientConfig>) -> Self {
        Self { tls, guard: None, addresses: Arc::default(), timeout: Duration::from_secs(10), write_buffer: 64 * 1024 }
    }

    /// The same, only to addresses that `guard` permits.
    pub fn guarded(mut self, guard: AddressGuard) -> Self {
        self.guard = Some(guard);
        self
    }

    /// The same, with addresses given by hand for some (name, port).
    pub fn with_addresses(mut self, addresses: BTreeMap<(String, u16), Vec<IpAddr>>) -> Self {
        self.addresses = Arc::new(addresses);
        self
    }

    /// The same, with another time for a connection to come about: names, TCP and TLS together.
    pub fn with_timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self
    }

    /// A new connection to `origin`.
    ///
    /// # Errors
    /// [`ConnectError`] says at which step it failed.
    pub async fn connect(&self, origin: &Origin) -> Result<Connection, ConnectError> {
        let host = || origin.host().to_string();
        match tokio::time::timeout(self.timeout, self.attempt(origin)).await {
            Ok(result) => result,
            Err(_) => Err(ConnectError::Timeout { host: host(), timeout: self.timeout }),
        }
    }

    async fn attempt(&self, origin: &Origin) -> Result<Connection, ConnectError> {
        let host = || origin.host().to_string();
        let candidates = self.resolve(origin).await?;
        let mut permitted = candidates.iter().filter(|a| self.guard.as_ref().is_none_or(|guard| guard(origin, **a)));
        let Some(first) = permitted.next() else {
            return Err(ConnectError::Forbidden { host: host(), address: candidates[0].ip() });
        };
        let mut stream = TcpStream::connect(first).await;
        for address in permitted {
            if stream.is_ok() {
                break;
            }
            stream = TcpStream::connect(address).await;
        }
        let stream = stream.map_err(|source| ConnectError::Connect { host: host(), source })?;
        tune(&stream).map_err(|source| ConnectError::Connect { host: host(), source })?;
        let address = stream.peer_addr().map_err(|source| ConnectError::Connect { host: host(), source })?;
        if !origin.is_https() {
            return self.handshake(stream, origin, address).await;
        }
        let name = match origin.host() {
            Host::Domain(name) => ServerName::try_from(name.clone())
                .map_err(|error| ConnectError::Tls { host: host(), source: io::Error::other(error) })?,
            Host::Ipv4(address) => ServerName::from(IpAddr::from(*address)),
            Host::Ipv6(address) => ServerName::from(IpAddr::from(*address)),
        };
        let stream = TlsConnector::from(self.tls.clone())
            .connect(name, stream)
            .await
            .map_err(|source| ConnectError::Tls { host: host(), source })?;
        self.handshake(stream, origin, address).await
    }

    /// The addresses to try, never empty.
    async fn resolve(&self, origin: &Origin) -> Result<Vec<SocketAddr>, ConnectError> {
        let port = origin.port();
        let name = match origin.host() {
            Host::Ipv4(address) => return Ok(vec![(*address, port).into()]),
            Host::Ipv6(address) => return Ok(vec![(*address, port).into()]),
            Host::Domain(name) => name,
        };
        if let Some(addresses) = self.addresses.get(&(name.clone(), port)) {
            return Ok(addresses.iter().map(|address| (*address, port).into()).collect());
        }
        let fail = |source| ConnectError::Resolve { host: name.clone(), source };
        let found: Vec<SocketAddr> = tokio::net::lookup_host((name.as_str(), port)).await.map_err(fail)?.collect();
        match found.is_empty() {
            true => Err(fail(io::Error::new(io::ErrorKind::NotFound, "the name has no address"))),
            false => Ok(found),
        }
    }

    async fn handshake<S>(&self, stream: S, origin: &Origin, address: SocketAddr) -> Result<Connection, ConnectError>
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let (sender, connection) = http1::Builder::new()
            .max_buf_size(self.write_buffer.max(16 * 1024))
            .handshake(TokioIo::new(stream))
            .await
            .map_err(|source| ConnectError::Http { host: origin.host().to_string(), source })?;
        tokio::spawn(async move {
            if let Err(error) = connection.with_upgrades().await {
                tracing::debug!(%error, "connection ended early");
            }
        });
        Ok(Connection { sender, address })
    }
}

impl fmt::Debug for Connector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Connector").field("timeout", &self.timeout).finish_non_exhaustive()
    }
}

/// How long sent bytes may stay without acknowledgement before the connection counts as dead (RFC 5482).
/// A minute and a half: longer than a Wi-Fi hand-over or a router's restart of its line, shorter than patience.
const USER_TIMEOUT: Duration = Duration::from_secs(90);

/// How many bytes may wait unsent in the kernel. Without a bound it takes megabytes, a minute of a slow uplink, and whoever
/// watches progress takes for sent what is not, and for stalled what is.
#[cfg(target_os = "linux")]
const NOTSENT_BYTES: u32 = 128 * 1024;

fn tune(stream: &TcpStream) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let socket = socket2::SockRef::from(stream);
    let keepalive =
        socket2::TcpKeepalive::new().with_time(Duration::from_secs(20)).with_interval(Duration::from_secs(10));
    socket.set_tcp_keepalive(&keepalive)?;
    #[cfg(target_os = "linux")]
    {
        socket.set_tcp_user_timeout(Some(USER_TIMEOUT))?;
        socket.set_tcp_notsent_lowat(NOTSENT_BYTES)?;
    }
    Ok(())
}

/// An open HTTP/1.1 connection: one request at a time.
#[derive(Debug)]
pub struct Connection {
    sender: http1::SendRequest<Body>,
    address: SocketAddr,
}

impl Connection {
    /// Sends a request and returns the answer's head; its body streams. `Host` must be set by the caller.
    ///
    /// # Errors
    /// If the connection breaks before a head has come.
    pub async fn send(&mut self, request: Request<Body>) -> Result<Response<Incoming>, hyper::Error> {
        self.sender.ready().await?;
        self.sender.send_request(request).await
    }

    /// Whether another request can be tried on it.
    pub fn is_open(&self) -> bool {
        !self.sender.is_closed()
    }

    /// The address at the other end.
    pub const fn address(&self) -> SocketAddr {
        self.address
    }
}
