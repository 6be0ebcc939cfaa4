//! Connections to an [`Origin`]: [`Connector`].

use super::interim::{INTERIM_MAX, limit_interim};
use crate::message::body::{Body, BodyError, streamed};
use crate::message::origin::Origin;
use bytes::Bytes;
use hoop_tls::Allowance;
use http::{Request, Response};
use http_body::{Frame, SizeHint};
use hyper::body::{Body as _, Incoming};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use std::collections::BTreeMap;
use std::fmt;
use std::io::{self, IoSlice};
use std::net::{IpAddr, SocketAddr};
#[cfg(target_os = "linux")]
use std::os::fd::AsRawFd as _;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::sync::Notify;
use tokio::task::JoinSet;
use tokio_rustls::TlsConnector;
use url::Host;

/// Says whether a connection to an address may be opened. Asked after the name was resolved, for the very address
/// that is then used, so that a name cannot change its mind in between.
pub type AddressGuard = Arc<dyn Fn(&Origin, SocketAddr) -> bool + Send + Sync>;

/// Told of each TCP connection as it comes about. What it returns is held as long as the connection lives.
pub type ConnectionWatch = Arc<dyn Fn(&TcpStream) -> Box<dyn Send> + Send + Sync>;

/// Opens connections; cheap to clone.
#[derive(Clone)]
pub struct Connector {
    tls: Arc<ClientConfig>,
    guard: Option<AddressGuard>,
    watch: Option<ConnectionWatch>,
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
        /// Its name and port.
        host: String,
        /// The first of the addresses.
        address: IpAddr,
    },
    /// Nobody answers.
    #[error("cannot connect to {host}: {source}")]
    Connect {
        /// Its name and port.
        host: String,
        /// Why.
        source: io::Error,
    },
    /// The other end is not who it should be, or speaks no TLS.
    #[error("no TLS with {host}: {source}")]
    Tls {
        /// Its name and port.
        host: String,
        /// Why.
        source: io::Error,
    },
    /// The HTTP connection could not begin.
    #[error("no HTTP with {host}: {source}")]
    Http {
        /// Its name and port.
        host: String,
        /// Why.
        source: hyper::Error,
    },
    /// It took too long.
    #[error("no connection to {host} within {} s", timeout.as_secs())]
    Timeout {
        /// Its name and port.
        host: String,
        /// The time allowed.
        timeout: Duration,
    },
}

/// Who was to be connected to, for people: a wrong port is a common mistake.
fn end(origin: &Origin) -> String {
    format!("{}:{}", origin.host(), origin.port())
}

impl Connector {
    /// Connections with this TLS configuration, to any address, with 10 s to come about.
    pub fn new(tls: Arc<ClientConfig>) -> Self {
        Self {
            tls,
            guard: None,
            watch: None,
            addresses: Arc::default(),
            timeout: Duration::from_secs(10),
            write_buffer: 64 * 1024,
        }
    }

    /// The same, with another TLS configuration.
    pub fn trusting(mut self, tls: Arc<ClientConfig>) -> Self {
        self.tls = tls;
        self
    }

    /// The same, only to addresses that `guard` permits.
    pub fn guarded(mut self, guard: AddressGuard) -> Self {
        self.guard = Some(guard);
        self
    }

    /// The same, with somebody who is told of each connection.
    pub fn watched(mut self, watch: ConnectionWatch) -> Self {
        self.watch = Some(watch);
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
        let host = || end(origin);
        match tokio::time::timeout(self.timeout, self.attempt(origin)).await {
            Ok(result) => result,
            Err(_) => Err(ConnectError::Timeout { host: host(), timeout: self.timeout }),
        }
    }

    async fn attempt(&self, origin: &Origin) -> Result<Connection, ConnectError> {
        let host = || end(origin);
        let candidates = self.resolve(origin).await?;
        let guard = self.guard.as_ref();
        let permitted: Vec<SocketAddr> =
            candidates.iter().copied().filter(|address| guard.is_none_or(|guard| guard(origin, *address))).collect();
        if permitted.is_empty() {
            return Err(ConnectError::Forbidden { host: host(), address: candidates[0].ip() });
        }
        let stream = race(interleave(permitted)).await;
        let stream = stream.map_err(|source| ConnectError::Connect { host: host(), source })?;
        tune(&stream).map_err(|source| ConnectError::Connect { host: host(), source })?;
        let address = stream.peer_addr().map_err(|source| ConnectError::Connect { host: host(), source })?;
        let watched = self.watch.as_ref().map(|watch| watch(&stream));
        let resets = Arc::<AtomicBool>::default();
        let stream = Resetting { stream, resets: resets.clone(), has_ended: false };
        if !origin.is_https() {
            return self.handshake(stream, watched, origin, address, resets).await;
        }
        let name = match origin.host() {
            Host::Domain(name) => ServerName::try_from(name.clone())
                .map_err(|error| ConnectError::Tls { host: host(), source: io::Error::other(error) })?,
            Host::Ipv4(address) => ServerName::from(IpAddr::from(*address)),
            Host::Ipv6(address) => ServerName::from(IpAddr::from(*address)),
        };
        let allowance = Allowance::default();
        let stream = TlsConnector::from(self.tls.clone())
            .connect(name, allowance.below(stream))
            .await
            .map_err(|source| ConnectError::Tls { host: host(), source })?;
        self.handshake(allowance.above(stream), watched, origin, address, resets).await
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
        let found = tokio::net::lookup_host((name.as_str(), port)).await.map_err(fail)?;
        let found = to_try(found.collect());
        match found.is_empty() {
            true => Err(fail(io::Error::new(io::ErrorKind::NotFound, "the name has no address"))),
            false => Ok(found),
        }
    }

    async fn handshake<S>(
        &self,
        stream: S,
        watched: Option<Box<dyn Send>>,
        origin: &Origin,
        address: SocketAddr,
        resets: Arc<AtomicBool>,
    ) -> Result<Connection, ConnectError>
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let (sender, connection) = http1::Builder::new()
            .max_buf_size(self.write_buffer.max(16 * 1024))
            .handshake(TokioIo::new(stream))
            .await
            .map_err(|source| ConnectError::Http { host: end(origin), source })?;
        let ends = Arc::new(Notify::new());
        let ended = ends.clone();
        tokio::spawn(async move {
            let _watched = watched;
            let result = tokio::select! {
                result = connection.with_upgrades() => result,
                () = ended.notified() => Ok(()),
            };
            if let Err(error) = result {
                tracing::debug!(%error, "connection ended early");
            }
        });
        Ok(Connection { sender, address, ends, resets })
    }
}

impl fmt::Debug for Connector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Connector").field("timeout", &self.timeout).finish_non_exhaustive()
    }
}

/// So many addresses of a name are tried, those of both families: whoever owns a name may give it thousands, each of which is judged and tried.
const ADDRESSES_MAX: usize = 16;

/// Those of a name's addresses that are tried, in this order: 16 at most, those of both families in turn.
pub fn to_try(found: Vec<SocketAddr>) -> Vec<SocketAddr> {
    interleave(found).into_iter().take(ADDRESSES_MAX).collect()
}

/// How long an address has before the next is tried besides it (RFC 8305 §8, "Connection Attempt Delay").
const STAGGER: Duration = Duration::from_millis(250);

/// The addresses with the families in turn, the first one's first (RFC 8305 §4).
fn interleave(addresses: Vec<SocketAddr>) -> Vec<SocketAddr> {
    let first_is_v6 = addresses.first().is_some_and(SocketAddr::is_ipv6);
    let (mut one, mut other) = (Vec::new(), Vec::new());
    for address in addresses {
        if address.is_ipv6() == first_is_v6 { one.push(address) } else { other.push(address) }
    }
    let len = one.len().max(other.len());
    (0..len).flat_map(|index| [one.get(index).copied(), other.get(index).copied()]).flatten().collect()
}

/// Connects to whichever answers first, beginning with the first; the others start one by one, as soon as an attempt fails
/// or has taken too long (RFC 8305 §5). So an address that swallows everything costs a quarter of a second.
async fn race(addresses: Vec<SocketAddr>) -> io::Result<TcpStream> {
    let mut left = addresses.into_iter();
    let mut attempts = JoinSet::new();
    let mut failure = io::Error::new(io::ErrorKind::NotFound, "the name has no address");
    loop {
        if let Some(address) = left.next() {
            attempts.spawn(TcpStream::connect(address));
        }
        tokio::select! {
            ended = attempts.join_next() => match ended {
                Some(Ok(Ok(stream))) => return Ok(stream),
                Some(Ok(Err(error))) => failure = error,
                Some(Err(_)) => {}
                None => return Err(failure),
            },
            () = tokio::time::sleep(STAGGER), if left.len() > 0 => {}
        }
    }
}

/// How long sent bytes may stay without acknowledgement before the connection counts as dead (RFC 5482).
/// A minute and a half: longer than a Wi-Fi hand-over or a router's restart of its line, shorter than patience.
const USER_TIMEOUT: Duration = Duration::from_secs(90);

/// How many bytes may wait unsent in the kernel. Without a bound it takes megabytes, a minute of a slow uplink, and whoever
/// watches progress takes for sent what is not, and for stalled what is.
#[cfg(target_os = "linux")]
const NOTSENT_BYTES: u32 = 128 * 1024;

/// Notices when the other end is gone: probes an idle connection, and gives up on one that acknowledges nothing.
pub(crate) fn watch(stream: &TcpStream) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let socket = socket2::SockRef::from(stream);
    let keepalive =
        socket2::TcpKeepalive::new().with_time(Duration::from_secs(20)).with_interval(Duration::from_secs(10));
    socket.set_tcp_keepalive(&keepalive)?;
    #[cfg(target_os = "linux")]
    socket.set_tcp_user_timeout(Some(USER_TIMEOUT))?;
    Ok(())
}

fn tune(stream: &TcpStream) -> io::Result<()> {
    watch(stream)?;
    #[cfg(target_os = "linux")]
    socket2::SockRef::from(stream).set_tcp_notsent_lowat(NOTSENT_BYTES)?;
    Ok(())
}

/// An open HTTP/1.1 connection: one request at a time.
#[derive(Debug)]
pub struct Connection {
    sender: http1::SendRequest<Body>,
    address: SocketAddr,
    /// Ends it at once, whatever it is doing.
    ends: Arc<Notify>,
    /// [`Connection::resets_at_its_end`].
    resets: Arc<AtomicBool>,
}

/// A TCP connection that may be reset instead of shut down.
#[derive(Debug)]
struct Resetting {
    stream: TcpStream,
    resets: Arc<AtomicBool>,
    /// Whether the other end has closed it: then nothing is left behind here.
    has_ended: bool,
}

impl AsyncRead for Resetting {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = (buffer.filled().len(), buffer.remaining());
        ready!(Pin::new(&mut self.stream).poll_read(context, buffer))?;
        self.has_ended |= before.1 > 0 && buffer.filled().len() == before.0;
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Resetting {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        parts: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(context, parts)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    /// hyper calls it once an answer is whole and its request was sent, or the other end has closed.
    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.resets.load(Ordering::Acquire) && !self.has_ended && reset_when_dropped(&self.stream) {
            return Poll::Ready(Ok(()));
        }
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

/// Has a connection reset when it is dropped, so that its port is free at once: the end that closes first keeps it for a minute
/// else (TIME-WAIT, RFC 9293 §3.3.2). A reset takes back what the other end does not have yet: false, and nothing is
/// changed, if there is any. Call it once nothing more is wanted of the connection.
pub fn reset_when_dropped(stream: &TcpStream) -> bool {
    is_all_taken(stream) && stream.set_zero_linger().is_ok()
}

/// Whether the other end's kernel has acknowledged all that was sent.
#[cfg(target_os = "linux")]
#[allow(unsafe_code)]
fn is_all_taken(stream: &TcpStream) -> bool {
    let mut left: libc::c_int = 0;
    // SAFETY: the socket is open, and the call writes one int, which outlives it.
    let asked = unsafe { libc::ioctl(stream.as_raw_fd(), libc::TIOCOUTQ, &raw mut left) };
    asked == 0 && left == 0
}

#[cfg(not(target_os = "linux"))]
const fn is_all_taken(_: &TcpStream) -> bool {
    false
}

/// Ends a connection at once when it is dropped.
#[derive(Debug)]
pub struct EndsOnDrop(Option<Arc<Notify>>);

impl EndsOnDrop {
    /// The connection goes on.
    pub fn keep(mut self) {
        self.0 = None;
    }

    /// An answer's body. The connection ends if it is given up before its end, and goes on after that.
    pub fn unless_read(self, answer: Incoming) -> Body {
        let mut body = EndsUnlessRead { body: answer, ends: Some(self) };
        body.look();
        streamed(body)
    }
}

struct EndsUnlessRead {
    body: Incoming,
    ends: Option<EndsOnDrop>,
}

impl EndsUnlessRead {
    /// Lets the connection go on if the body is at its end.
    fn look(&mut self) {
        if self.body.is_end_stream() {
            self.ends.take().into_iter().for_each(EndsOnDrop::keep);
        }
    }
}

impl http_body::Body for EndsUnlessRead {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        let frame = ready!(Pin::new(&mut self.body).poll_frame(context));
        match &frame {
            None => self.ends.take().into_iter().for_each(EndsOnDrop::keep),
            Some(_) => self.look(),
        }
        Poll::Ready(frame.map(|frame| frame.map_err(Into::into)))
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

impl Drop for EndsOnDrop {
    fn drop(&mut self) {
        if let Some(ends) = &self.0 {
            ends.notify_one();
        }
    }
}

/// No answer came.
#[derive(Debug, thiserror::Error)]
pub enum SendError {
    /// The connection broke, or what came is no HTTP.
    #[error(transparent)]
    Http(#[from] hyper::Error),
    /// The server sends interim answers without end.
    #[error("more than {INTERIM_MAX} interim answers (1xx) came and no answer")]
    Interim,
}

impl Connection {
    /// Sends a request and returns the answer's head; its body streams. `Host` must be set by the caller. Interim answers (1xx) are passed over.
    ///
    /// # Errors
    /// If the connection breaks before a head has come, or too many interim answers come: then it ends.
    pub async fn send(&mut self, mut request: Request<Body>) -> Result<Response<Incoming>, SendError> {
        self.sender.ready().await?;
        let too_many = Arc::new(Notify::new());
        let told = too_many.clone();
        limit_interim(&mut request, move || told.notify_one());
        tokio::select! {
            answer = self.sender.send_request(request) => Ok(answer?),
            () = too_many.notified() => {
                self.ends.notify_one();
                Err(SendError::Interim)
            }
        }
    }

    /// Ends the connection when this is dropped, unless it is [kept](EndsOnDrop::keep). Without it, a connection whose other end reads nothing lives on
    /// when its user goes away, with the request's body.
    pub fn ends_on_drop(&self) -> EndsOnDrop {
        EndsOnDrop(Some(self.ends.clone()))
    }

    /// Leaves no port behind at this end if the other end does not close first: the connection is [reset](reset_when_dropped) once its
    /// answer is whole. Not for one that is upgraded.
    pub fn resets_at_its_end(&self) {
        self.resets.store(true, Ordering::Release);
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

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::{TcpListener, TcpSocket};

    #[test]
    fn of_thousands_of_addresses_a_few_of_both_families_are_tried() {
        let many = (0..4_000_u16).map(|n| SocketAddr::from(([0x2001, 0xdb8, 0, 0, 0, 0, 0, n], 443)));
        let tried = to_try(many.chain([SocketAddr::from(([192, 0, 2, 1], 443))]).collect());
        assert_eq!(tried.len(), ADDRESSES_MAX);
        assert!(tried.iter().any(SocketAddr::is_ipv4));
    }

    #[test]
    fn families_take_turns_and_the_first_stays_first() {
        let of = |texts: &[&str]| texts.iter().map(|text| text.parse().unwrap()).collect::<Vec<SocketAddr>>();
        assert_eq!(
            interleave(of(&["[::1]:1", "[::2]:1", "127.0.0.1:1", "[::3]:1"])),
            of(&["[::1]:1", "127.0.0.1:1", "[::2]:1", "[::3]:1"])
        );
        assert_eq!(interleave(of(&["127.0.0.1:1", "[::1]:1"])), of(&["127.0.0.1:1", "[::1]:1"]));
        assert_eq!(interleave(Vec::new()), Vec::new());
    }

    /// A listener whose queue is full answers no SYN, as a network does that swallows IPv6.
    async fn silent() -> (TcpListener, Vec<TcpStream>) {
        let socket = TcpSocket::new_v4().unwrap();
        socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
        let listener = socket.listen(1).unwrap();
        let address = listener.local_addr().unwrap();
        let mut waiting = Vec::new();
        while let Ok(Ok(stream)) = tokio::time::timeout(Duration::from_millis(300), TcpStream::connect(address)).await {
            waiting.push(stream);
            assert!(waiting.len() < 64, "the queue should be full by now");
        }
        (listener, waiting)
    }

    #[tokio::test]
    async fn a_silent_address_does_not_keep_the_next_from_being_tried() {
        let (silent, _waiting) = silent().await;
        let good = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let good_address = good.local_addr().unwrap();
        let stream = race(vec![silent.local_addr().unwrap(), good_address]).await.unwrap();
        assert_eq!(stream.peer_addr().unwrap(), good_address);
    }

    #[tokio::test]
    async fn interim_answers_without_end_end_their_connection() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let origin: Origin = format!("http://{}", listener.local_addr().unwrap()).parse().unwrap();
        let server = tokio::spawn(async move {
            let (mut stream, _) = listener.accept().await.unwrap();
            assert!(stream.read(&mut [0; 1024]).await.unwrap() > 0);
            let mut sent = 0_u32;
            // Bounded, so that a client that passes over them all ends as well.
            while sent < 1_000_000 && stream.write_all(b"HTTP/1.1 103 Early Hints\r\nX: y\r\n\r\n").await.is_ok() {
                sent += 1;
            }
            sent
        });
        let mut connection =
            Connector::new(crate::client::tls::client_config(&[]).unwrap()).connect(&origin).await.unwrap();
        let request = Request::get("/").header("host", "there").body(crate::empty()).unwrap();
        let answer = connection.send(request).await;
        assert!(matches!(answer, Err(SendError::Interim)), "{answer:?}");
        assert!(server.await.unwrap() < 1_000_000, "it is told that nobody listens");
        assert!(!connection.is_open());
    }

    #[tokio::test]
    async fn when_every_address_refuses_the_reason_is_told() {
        let closed = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
        assert_eq!(race(vec![closed, closed]).await.unwrap_err().kind(), io::ErrorKind::ConnectionRefused);
    }
}
