//! A bounded HTTP/1.1 server loop: [`Server`].

pub(crate) mod events;
mod gate;
pub(crate) mod interim;
pub mod metrics;
pub(crate) mod pace;
pub(crate) mod paced;
pub(crate) mod presence;
pub(crate) mod request_body;
pub(crate) mod splice;
mod turns;

use crate::message::body::{Body, until_gone};
use crate::message::lines::Lines;
use crate::message::problem::{Code, Problem};
use crate::places::{Place, Places, Share};
use crate::process::shutdown::Shutdown;
use crate::server::gate::{Gate, HeadLimits, Resting, Watch};
use crate::server::interim::{InterimIo, Outbox};
use crate::server::pace::LeastRate;
use crate::server::paced::Paced;
use crate::server::presence::Presence;
use crate::server::request_body::{RawSocket, SharedStream};
use crate::server::turns::Turns;
use hoop_tls::{Above, Allowance, Below};
use hoop_units::Prefix;
use http::{HeaderValue, Request, Response, StatusCode, Version, header};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use rustls::ServerConfig;
use rustls::server::Acceptor;
use socket2::SockRef;
use std::convert::Infallible;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::JoinSet;
use tokio_rustls::LazyConfigAcceptor;
use tokio_rustls::server::TlsStream;

/// Connections that the kernel keeps for us until they are accepted: as many as it will, 4,096 unless `net.core.somaxconn` says otherwise. Who finds no room there comes again only after
/// a second.
pub const BACKLOG: i32 = i32::MAX;

/// What TLS holds of an answer whose reader is slow, beside [`ServerLimits::buffer_bytes`]: a record of the longest length (RFC 8446 §5.1). Its default is four times that.
const TLS_BUFFER_BYTES: usize = 16 * 1024;

/// How long a connection that makes way may still bring a request that it has sent.
const LAST_MOMENT: Duration = Duration::from_millis(50);

/// As many such moments if the request has come and only was not read yet, as when the cores are busy.
const LAST_MOMENTS: usize = 20;

/// What bounds a server, whatever arrives.
#[derive(Clone, Debug)]
pub struct ServerLimits {
    /// Connections at once; more wait in the kernel's backlog. Default 512: with an idle connection's 10 KiB or so, 5 MiB.
    pub connections: usize,
    /// The largest read, and what of an answer waits to be written, in bytes. Default 256 KiB: large reads are what makes intake fast.
    pub buffer_bytes: usize,
    /// The longest head of a request, in bytes; no longer than [`ServerLimits::buffer_bytes`]. Default 256 KiB.
    pub head_bytes: usize,
    /// Header fields in a head. Default 256: some proxies and sign-on systems add dozens, and their bytes are bounded besides.
    pub headers: usize,
    /// How long a head may take to arrive, from its first byte, and how long the first may let us wait. Default 15 s.
    pub head_timeout: Duration,
    /// How long a connection may rest between two requests. Default 15 s: a connection that rests keeps its place from others.
    pub idle_timeout: Duration,
    /// How long a TLS handshake may take. Default 10 s.
    pub handshake_timeout: Duration,
    /// How places for connections are shared, by what each is used for; [`ServerLimits::connections`] does not count then. Default: none.
    pub crowd: Option<Crowd>,
    /// How slowly an answer may be read. Default: none.
    pub least_read: Option<LeastRate>,
    /// How long a stopping server waits for requests that are under way. Default 10 s.
    pub drain_timeout: Duration,
}

impl Default for ServerLimits {
    fn default() -> Self {
        Self {
            connections: 512,
            buffer_bytes: 256 * 1024,
            head_bytes: 256 * 1024,
            headers: 256,
            head_timeout: Duration::from_secs(15),
            idle_timeout: Duration::from_secs(15),
            handshake_timeout: Duration::from_secs(10),
            crowd: None,
            least_read: None,
            drain_timeout: Duration::from_secs(10),
        }
    }
}

/// Places for connections, in shares. A connection without a request under way has a place of share 0, or of share 1 if its peer is one of our own proxies. When a
/// request comes, the handler finds the connection's [`Place`] among the request's extensions, and changes it for one of another share, for whoever the request is from. It
/// changes back once the answer has gone.
#[derive(Clone, Debug)]
pub struct Crowd {
    /// The places. Shares 0 and 1 are to be by age, so that whoever comes gets in.
    pub places: Arc<Places>,
    /// The web servers in front of us.
    pub proxies: Vec<Prefix>,
}

impl Crowd {
    /// So many connections, of which the oldest makes way for the next: for a server of few.
    pub fn of_few(places: usize) -> Self {
        Self { places: Places::new(vec![Share::by_age(places)]), proxies: Vec::new() }
    }

    /// The share of the address while it asks for nothing.
    fn resting(&self, peer: IpAddr) -> usize {
        usize::from(self.proxies.iter().any(|proxy| proxy.contains(peer)))
    }

    /// Connections whose tasks have not ended yet, at most: those that have made way take a moment.
    fn tasks_max(&self) -> usize {
        self.places.total() + 256
    }
}

/// Who sent a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Peer {
    /// The other end's address.
    pub address: SocketAddr,
    /// Our address on this connection.
    pub local: SocketAddr,
    /// Whether the connection is TLS.
    pub tls: bool,
}

/// A server could not be opened.
#[derive(Debug, thiserror::Error)]
#[error("cannot listen on {address}: {source}")]
pub struct ServeError {
    /// The address as asked for.
    pub address: SocketAddr,
    /// Why.
    pub source: io::Error,
}

/// A bound socket, ready to serve. It accepts from the moment it is bound, so a test may connect before it runs.
#[derive(Debug)]
pub struct Server {
    listener: TcpListener,
    address: SocketAddr,
    tls: Option<Arc<ServerConfig>>,
    limits: ServerLimits,
}

impl Server {
    /// Binds `address` (port 0: any free one), with TLS if a configuration is given.
    ///
    /// # Errors
    /// If the address cannot be bound.
    pub async fn bind(
        address: SocketAddr,
        tls: Option<Arc<ServerConfig>>,
        limits: ServerLimits,
    ) -> Result<Self, ServeError> {
        let wrap = |source| ServeError { address, source };
        let listener = TcpListener::bind(address).await.map_err(wrap)?;
        SockRef::from(&listener).listen(BACKLOG).map_err(wrap)?;
        let bound = listener.local_addr().map_err(wrap)?;
        Ok(Self { listener, address: bound, tls, limits })
    }

    /// The address that was bound.
    pub const fn address(&self) -> SocketAddr {
        self.address
    }

    /// Serves until `shutdown`, then lets requests under way finish within the drain time.
    ///
    /// Upgrades (WebSocket and the like) are possible: the handler may take `hyper::upgrade::on(request)`. Bodies are
    /// read with [`RequestBody`](crate::RequestBody), or as hyper has them.
    pub async fn run<H, F>(self, handler: H, mut shutdown: Shutdown)
    where
        H: Fn(Request<Incoming>, Peer) -> F + Clone + Send + Sync + 'static,
        F: Future<Output = Response<Body>> + Send + 'static,
    {
        let counted = Arc::new(Semaphore::new(self.limits.connections));
        let turns = Turns::of_cores();
        // It ends with this.
        let mut giving = JoinSet::new();
        self.tls.iter().for_each(|_| drop(giving.spawn(turns.clone().give())));
        let (mut connections, lines) = (JoinSet::new(), Lines::new());
        loop {
            let crowd = self.limits.crowd.as_ref();
            let full = crowd.is_some_and(|crowd| connections.len() >= crowd.tasks_max());
            let accepted = tokio::select! {
                () = shutdown.requested() => break,
                // Reap finished connections as they end, so that the set stays as small as what is open.
                Some(_) = connections.join_next() => continue,
                accepted = accept(&self.listener, crowd.is_none().then_some(&counted)), if !full => accepted,
            };
            let (stream, address, counted) = match accepted {
                Ok(accepted) => accepted,
                Err(error) => {
                    // Out of descriptors, mostly: give the open connections time to end rather than spin.
                    lines.warn("cannot accept a connection", &error);
                    tokio::time::sleep(Duration::from_millis(50)).await;
                    continue;
                }
            };
            let held = match (counted, crowd) {
                (Some(counted), _) => Some(Held::Counted(counted)),
                (None, Some(crowd)) => tokio::select! {
                    () = shutdown.requested() => break,
                    // Who has come a moment ago keeps its place; more wait in the kernel's backlog.
                    place = crowd.places.entered(crowd.resting(address.ip()), address.ip()) => place.map(Held::Placed),
                },
                (None, None) => None,
            };
            let local = stream.local_addr().unwrap_or(self.address);
            let peer = Peer { address, local, tls: self.tls.is_some() };
            let (handler, limits, mut shutdown) = (handler.clone(), self.limits.clone(), shutdown.clone());
            let (tls, turns) = (self.tls.clone(), turns.clone());
            connections.spawn(async move {
                let Some(held) = held else { return refuse(&stream) };
                let stream = SharedStream::new(stream);
                let Some(tls) = tls else {
                    let (mut next, mut is_new) = (Some(stream), true);
                    while let Some(stream) = next {
                        let socket = stream.direct();
                        let way = Way { peer, socket: socket.clone(), is_new };
                        let well = converse(stream, way, &handler, &limits, &mut shutdown, &held);
                        next = if well.await { socket.again() } else { None };
                        is_new = false;
                    }
                    return;
                };
                held.place().into_iter().for_each(Place::awaits);
                // Boxed, so that no connection keeps room for it.
                let shaking = Box::pin(shake_hands(stream, peer.address.ip(), tls, &turns, held.place()));
                let shaken = tokio::select! {
                    shaken = tokio::time::timeout(limits.handshake_timeout, shaking) => shaken,
                    () = held.makes_way() => return,
                };
                match shaken {
                    Ok(Ok(mut stream)) => {
                        let (records, tls) = stream.get_mut().get_mut();
                        tls.set_buffer_limit(Some(TLS_BUFFER_BYTES));
                        let way = Way { peer, socket: records.get_ref().direct(), is_new: true };
                        converse(stream, way, &handler, &limits, &mut shutdown, &held).await;
                    }
                    Ok(Err(error)) => tracing::debug!(%error, "TLS handshake failed"),
                    Err(_) => tracing::debug!("TLS handshake took too long"),
                }
            });
        }
        let drained = async { while connections.join_next().await.is_some() {} };
        if tokio::time::timeout(self.limits.drain_timeout, drained).await.is_err() {
            tracing::warn!("connections were still busy when the drain time was over");
        }
    }
}

/// What a connection that is served holds.
enum Held {
    Counted(#[allow(dead_code, reason = "held, not read")] OwnedSemaphorePermit),
    Placed(Place),
}

impl Held {
    const fn place(&self) -> Option<&Place> {
        match self {
            Self::Placed(place) => Some(place),
            Self::Counted(_) => None,
        }
    }

    /// Returns when the connection has to make room for another.
    async fn makes_way(&self) {
        match self {
            Self::Counted(_) => std::future::pending().await,
            Self::Placed(place) => place.makes_way().await,
        }
    }
}

/// The next connection, where connections are counted once there may be one more.
async fn accept(
    listener: &TcpListener,
    counted: Option<&Arc<Semaphore>>,
) -> io::Result<(TcpStream, SocketAddr, Option<OwnedSemaphorePermit>)> {
    let permit = match counted {
        Some(counted) => Some(counted.clone().acquire_owned().await.expect("the semaphore is never closed")),
        None => None,
    };
    let (stream, address) = listener.accept().await?;
    // An error here means that the client has gone already; the connection will say so.
    let _ = crate::client::connect::watch(&stream);
    Ok((stream, address, permit))
}

/// The server's half of a TLS handshake. What comes after the ClientHello waits for its turn: that is what costs.
async fn shake_hands(
    stream: SharedStream,
    client: IpAddr,
    tls: Arc<ServerConfig>,
    turns: &Turns,
    place: Option<&Place>,
) -> io::Result<Above<TlsStream<Below<SharedStream>>>> {
    let allowance = Allowance::default();
    let hello = LazyConfigAcceptor::new(Acceptor::default(), allowance.below(stream)).await?;
    place.into_iter().for_each(Place::shakes_hands);
    let rest = async move {
        // Whoever has reset the connection meanwhile costs no signature.
        match hello.io.get_ref().direct().take_error()? {
            Some(error) => Err(error),
            None => Ok(allowance.above(hello.into_stream(tls).await?)),
        }
    };
    turns.work(client, rest).await
}

/// Tells a peer that too many of its connections wait, if it is there to hear it.
fn refuse(stream: &TcpStream) {
    let problem = Problem::new(Code::TooManyRequests, "too many connections of one device wait");
    let body = problem.to_json();
    let head = format!(
        "HTTP/1.1 429 Too Many Requests\r\nContent-Type: {}\r\nContent-Length: {}\r\nRetry-After: 5\r\nConnection: close\r\n\r\n",
        Problem::MEDIA_TYPE,
        body.len()
    );
    let _ = stream.try_write(&[head.as_bytes(), &body].concat());
}

/// What requests come over.
struct Way {
    peer: Peer,
    /// The connection itself, below TLS if there is any.
    socket: RawSocket,
    /// No request has come over it before.
    is_new: bool,
}

/// Tells the gate that a request was answered, once hyper has all of the answer, and where the connection rests then.
struct Answered {
    watch: Watch,
    rests: Option<Resting>,
}

impl Drop for Answered {
    fn drop(&mut self) {
        self.watch.answered(self.rests.take());
    }
}

/// Serves one connection until it ends or `shutdown` has let its last request finish. Whether it ended as it should, and of itself.
async fn converse<S, H, F>(
    stream: S,
    Way { peer, socket, is_new }: Way,
    handler: &H,
    limits: &ServerLimits,
    shutdown: &mut Shutdown,
    held: &Held,
) -> bool
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    H: Fn(Request<Incoming>, Peer) -> F,
    F: Future<Output = Response<Body>> + Send + 'static,
{
    let (outbox, watch, presence) = (Outbox::default(), Watch::default(), Presence::default());
    let direct = (!peer.tls).then_some(&socket);
    let (place, ip) = (held.place().cloned(), peer.address.ip());
    let resting = limits.crowd.as_ref().map_or(0, |crowd| crowd.resting(ip));
    let heads = HeadLimits {
        bytes: limits.head_bytes.min(limits.buffer_bytes),
        fields: limits.headers,
        time: limits.head_timeout,
        idle: limits.idle_timeout,
    };
    let stream = InterimIo::new(stream, outbox.clone());
    let stream = Gate::new(stream, watch.clone(), heads, is_new, place.clone(), presence.clone());
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        // The gate has an eye on it.
        .header_read_timeout(None)
        .max_buf_size(limits.buffer_bytes)
        .max_headers(limits.headers)
        .serve_connection(
            TokioIo::new(Paced::new(stream, limits.least_read, place.clone())),
            service_fn(|mut request| {
                let refusal = watch.request();
                let (rests, served) =
                    (place.clone().map(|place| Resting { place, share: resting, client: ip }), place.clone());
                let answered = Answered { watch: watch.clone(), rests };
                place.iter().for_each(|place| place.brings(head_bytes(&request)));
                place.iter().for_each(|place| drop(request.extensions_mut().insert(place.clone())));
                request.extensions_mut().insert(presence.clone());
                outbox.open(&mut request);
                direct.iter().for_each(|direct| drop(request.extensions_mut().insert((*direct).clone())));
                let keep_alive = keeps_alive(&request);
                // Boxed, since each move from one future into the next would keep room for it once more.
                let answer = refusal.is_none().then(|| Box::pin(handler(request, peer)));
                let (outbox, watch) = (outbox.clone(), watch.clone());
                async move {
                    let mut answer = match (answer, refusal) {
                        (Some(answer), _) => answer.await,
                        (None, refusal) => refusal.map_or_else(Response::default, Problem::into_response),
                    };
                    outbox.close();
                    if answer.status() == StatusCode::SWITCHING_PROTOCOLS {
                        watch.change_protocol();
                    } else if direct.is_some_and(|direct| direct.ends_with_answer(keep_alive))
                        || watch.is_last()
                        || served.is_some_and(|place| place.ends_with_answer())
                    {
                        answer.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
                    }
                    Ok::<_, Infallible>(answer.map(|body| until_gone(body, answered)))
                }
            }),
        )
        .with_upgrades();
    let is_asked = || watch.is_asked() && !watch.has_changed_protocol();
    let (mut connection, mut lost) = (pin!(connection), pin!(presence.lost(is_asked, &socket)));
    let (result, of_itself) = loop {
        tokio::select! {
            result = &mut connection => break (result, true),
            () = held.makes_way() => {
                // A request that has come, and was not read yet, may get a place of its own.
                let mut ended = tokio::time::timeout(LAST_MOMENT, &mut connection).await;
                for _ in 1..LAST_MOMENTS {
                    let is_unread = !watch.is_asked() && direct.is_some_and(RawSocket::has_unread);
                    if ended.is_ok() || !is_unread {
                        break;
                    }
                    ended = tokio::time::timeout(LAST_MOMENT, &mut connection).await;
                }
                if let Ok(result) = ended {
                    break (result, true);
                }
                if place.as_ref().is_none_or(Place::is_gone) {
                    direct.filter(|_| watch.has_unsent()).into_iter().for_each(RawSocket::forgets);
                    tracing::debug!(peer = %peer.address, "a connection makes room for another");
                    return false;
                }
            }
            () = &mut lost => {
                socket.forgets();
                tracing::debug!(peer = %peer.address, "a client has left before its answer");
                return false;
            }
            () = shutdown.requested() => {
                connection.as_mut().graceful_shutdown();
                break (connection.await, false);
            }
        }
    };
    if let Err(error) = &result {
        direct.filter(|_| watch.is_asked()).into_iter().for_each(RawSocket::forgets);
        tracing::debug!(%error, "connection ended early");
    }
    result.is_ok() && of_itself
}

/// What a request's head takes, in bytes: its own, and what hyper keeps of each field beside them.
fn head_bytes<B>(request: &Request<B>) -> usize {
    const FIELD: usize = 128;
    let target = request.uri().path().len() + request.uri().query().map_or(0, str::len);
    let fields = request.headers().iter().map(|(name, value)| name.as_str().len() + value.len() + FIELD);
    target + fields.sum::<usize>()
}

/// Whether a sender would go on after the answer (RFC 9112 §9.3).
fn keeps_alive<B>(request: &Request<B>) -> bool {
    let options = request.headers().get_all(header::CONNECTION).iter().filter_map(|value| value.to_str().ok());
    let closes =
        options.flat_map(|options| options.split(',')).any(|option| option.trim().eq_ignore_ascii_case("close"));
    request.version() == Version::HTTP_11 && !closes
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{full, shutdown};
    use std::pin::Pin;
    use std::task::{Context, Poll};
    use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWriteExt as _, ReadBuf};

    #[tokio::test]
    async fn a_connection_rests_so_long_however_long_its_answer_took() {
        let limits = ServerLimits { idle_timeout: Duration::from_millis(100), ..ServerLimits::default() };
        let server = Server::bind("127.0.0.1:0".parse().unwrap(), None, limits).await.unwrap();
        let (address, (stop, stopped)) = (server.address(), shutdown());
        let answer = async |request: Request<Incoming>| {
            let took = request.uri().path().trim_start_matches('/').parse().unwrap();
            tokio::time::sleep(Duration::from_millis(took)).await;
            Response::new(full("answered"))
        };
        let serving = tokio::spawn(server.run(move |request, _| answer(request), stopped));
        for asks in ["", "Connection: Upgrade\r\nUpgrade: websocket\r\n"] {
            for took in [0, 50, 500] {
                let mut stream = TcpStream::connect(address).await.unwrap();
                let head = format!("GET /{took} HTTP/1.1\r\nHost: x\r\n{asks}\r\n");
                stream.write_all(head.as_bytes()).await.unwrap();
                let mut answer = String::new();
                let ended = tokio::time::timeout(Duration::from_secs(30), stream.read_to_string(&mut answer)).await;
                assert!(ended.is_ok() && answer.ends_with("answered"), "{asks}{took}: {answer}");
            }
        }
        stop.trigger();
        serving.await.unwrap();
    }

    #[tokio::test]
    async fn a_request_pipelined_behind_an_upgrade_request_is_answered_at_once() {
        let limits = ServerLimits { idle_timeout: Duration::from_secs(3_600), ..ServerLimits::default() };
        let server = Server::bind("127.0.0.1:0".parse().unwrap(), None, limits).await.unwrap();
        let (address, (stop, stopped)) = (server.address(), shutdown());
        let serving = tokio::spawn(server.run(|_, _| async { Response::new(full("answered")) }, stopped));
        let mut stream = TcpStream::connect(address).await.unwrap();
        let both = b"GET / HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\nGET / HTTP/1.1\r\nHost: x\r\n\r\n";
        stream.write_all(both).await.unwrap();
        let (mut answers, mut bytes) = (String::new(), [0; 1_024]);
        while answers.matches("answered").count() < 2 {
            let some = tokio::time::timeout(Duration::from_secs(30), stream.read(&mut bytes)).await;
            let some = some.unwrap_or_else(|_| panic!("no second answer: {answers}")).unwrap();
            assert!(some > 0, "{answers}");
            answers.push_str(std::str::from_utf8(&bytes[..some]).unwrap());
        }
        stop.trigger();
        serving.await.unwrap();
    }

    #[tokio::test]
    async fn of_few_that_read_nothing_the_oldest_makes_way_for_who_comes() {
        let limits = ServerLimits { crowd: Some(Crowd::of_few(8)), ..ServerLimits::default() };
        let server = Server::bind("127.0.0.1:0".parse().unwrap(), None, limits).await.unwrap();
        let (address, (stop, stopped)) = (server.address(), shutdown());
        let long = vec![7; 16_000_000];
        let answer = move |asks: bool| Response::new(full(if asks { b"honest".to_vec() } else { long.clone() }));
        let serving = tokio::spawn(server.run(
            move |request, _| {
                let answer = answer(request.uri().path() == "/honest");
                async { answer }
            },
            stopped,
        ));
        let mut held = Vec::new();
        for _ in 0..8 {
            let mut stream = TcpStream::connect(address).await.unwrap();
            stream.write_all(&b"GET / HTTP/1.1\r\nHost: x\r\n\r\n".repeat(100)).await.unwrap();
            stream.read_exact(&mut [0; 100]).await.unwrap();
            held.push(stream);
        }
        let mut stream = TcpStream::connect(address).await.unwrap();
        stream.write_all(b"GET /honest HTTP/1.1\r\nHost: x\r\n\r\n").await.unwrap();
        let mut answer = String::new();
        let ended = tokio::time::timeout(Duration::from_secs(30), stream.read_to_string(&mut answer)).await;
        assert!(ended.is_ok() && answer.ends_with("honest"), "{answer}");
        drop(held);
        stop.trigger();
        serving.await.unwrap();
    }

    /// TLS of a server that is `localhost`, and of a client that believes it.
    fn tls() -> (Arc<ServerConfig>, Arc<rustls::ClientConfig>) {
        let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
        let key = rustls::pki_types::PrivateKeyDer::try_from(made.signing_key.serialize_der()).unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = ServerConfig::builder_with_provider(provider.clone()).with_safe_default_protocol_versions();
        let config =
            config.unwrap().with_no_client_auth().with_single_cert(vec![made.cert.der().clone()], key).unwrap();
        let mut roots = rustls::RootCertStore::empty();
        roots.add(made.cert.der().clone()).unwrap();
        let trust = rustls::ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
        let trust = trust.unwrap().with_root_certificates(roots).with_no_client_auth();
        (Arc::new(config), Arc::new(trust))
    }

    fn name() -> rustls::pki_types::ServerName<'static> {
        "localhost".try_into().unwrap()
    }

    async fn connect_from(from: [u8; 4], to: SocketAddr) -> TcpStream {
        let socket = tokio::net::TcpSocket::new_v4().unwrap();
        socket.bind((from, 0).into()).unwrap();
        socket.connect(to).await.unwrap()
    }

    /// A connection on which nothing comes before that.
    struct Late(TcpStream, Pin<Box<tokio::time::Sleep>>);

    impl AsyncRead for Late {
        fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, into: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
            if !self.1.is_elapsed() {
                std::task::ready!(self.1.as_mut().poll(cx));
            }
            Pin::new(&mut self.0).poll_read(cx, into)
        }
    }

    impl tokio::io::AsyncWrite for Late {
        fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, from: &[u8]) -> Poll<io::Result<usize>> {
            Pin::new(&mut self.0).poll_write(cx, from)
        }

        fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
            Pin::new(&mut self.0).poll_flush(cx)
        }

        fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
            Pin::new(&mut self.0).poll_shutdown(cx)
        }
    }

    #[tokio::test]
    async fn who_shakes_hands_over_a_long_way_does_not_make_way_for_who_says_nothing() {
        let (config, trust) = tls();
        let limits = ServerLimits { crowd: Some(Crowd::of_few(8)), ..ServerLimits::default() };
        let server = Server::bind("127.0.0.1:0".parse().unwrap(), Some(config), limits).await.unwrap();
        let (address, (stop, stopped)) = (server.address(), shutdown());
        let serving = tokio::spawn(server.run(|_, _| async { Response::new(full("answered")) }, stopped));
        let far =
            Late(connect_from([127, 7, 0, 1], address).await, Box::pin(tokio::time::sleep(Duration::from_millis(400))));
        let shaking = tokio::spawn(tokio_rustls::TlsConnector::from(trust).connect(name(), far));
        let silent = async {
            let mut held = Vec::new();
            for n in 0..=60 {
                held.push(connect_from([127, 8, n, 1], address).await);
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
            held
        };
        let _held = silent.await;
        let shaken = tokio::time::timeout(Duration::from_secs(30), shaking).await.unwrap().unwrap();
        let mut far = shaken.unwrap();
        far.write_all(b"GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").await.unwrap();
        let mut answer = String::new();
        let _ = far.read_to_string(&mut answer).await;
        assert!(answer.ends_with("answered"), "{answer}");
        stop.trigger();
        serving.await.unwrap();
    }

    /// They came first, and their ClientHellos are all there before the server begins.
    #[tokio::test]
    async fn an_address_with_many_handshakes_has_another_wait_for_few_of_them() {
        let (config, trust) = tls();
        let mut hello = Vec::new();
        rustls::ClientConnection::new(trust.clone(), name()).unwrap().write_tls(&mut hello).unwrap();

        let server = Server::bind("127.0.0.1:0".parse().unwrap(), Some(config), ServerLimits::default());
        let server = server.await.unwrap();
        let (address, (stop, stopped)) = (server.address(), shutdown());
        let mut strangers = Vec::new();
        for _ in 0..64 {
            let mut stranger = TcpStream::connect(address).await.unwrap();
            stranger.write_all(&hello).await.unwrap();
            strangers.push(stranger);
        }
        let other = connect_from([127, 0, 7, 1], address).await;
        let serving = tokio::spawn(server.run(|_, _| async { Response::new(full("answered")) }, stopped));
        let shaken = tokio_rustls::TlsConnector::from(trust).connect(name(), other);
        let mut other = tokio::time::timeout(Duration::from_secs(30), shaken).await.unwrap().unwrap();
        other.write_all(b"GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").await.unwrap();
        let mut answer = String::new();
        let _ = other.read_to_string(&mut answer).await;
        assert!(answer.ends_with("answered"), "{answer}");
        let answered = strangers.iter().filter(|stranger| stranger.try_read(&mut [0; 1]).is_ok()).count();
        assert!(answered < 32, "{answered} of them came before it");
        for stranger in &mut strangers {
            let answer = tokio::time::timeout(Duration::from_secs(30), stranger.read_exact(&mut [0; 1])).await;
            assert!(answer.is_ok_and(|answer| answer.is_ok()), "a turn for each of them, too");
        }
        stop.trigger();
        drop((strangers, other));
        serving.await.unwrap();
    }

    #[tokio::test]
    async fn who_reads_slowly_makes_way_for_none_that_asks_nothing() {
        let limits = ServerLimits { crowd: Some(Crowd::of_few(8)), ..ServerLimits::default() };
        let server = Server::bind("127.0.0.1:0".parse().unwrap(), None, limits).await.unwrap();
        let (address, (stop, stopped)) = (server.address(), shutdown());
        let long = vec![7; 16_000_000];
        let body = long.clone();
        let serving = tokio::spawn(server.run(
            move |_, _| {
                let answer = Response::new(full(body.clone()));
                async { answer }
            },
            stopped,
        ));
        let socket = tokio::net::TcpSocket::new_v4().unwrap();
        socket.set_recv_buffer_size(4096).unwrap();
        let mut stream = socket.connect(address).await.unwrap();
        stream.write_all(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n").await.unwrap();
        let mut read = vec![0; 1000];
        stream.read_exact(&mut read).await.unwrap();
        let mut idle = Vec::new();
        for _ in 0..8 {
            tokio::time::sleep(Duration::from_millis(30)).await;
            idle.push(TcpStream::connect(address).await.unwrap());
        }
        tokio::time::sleep(2 * LAST_MOMENT).await;
        let ended = tokio::time::timeout(Duration::from_secs(30), async {
            while read.len() < long.len() && stream.read_buf(&mut read).await.is_ok_and(|bytes| bytes > 0) {}
        });
        ended.await.unwrap();
        assert!(read.len() >= long.len(), "{} of {}", read.len(), long.len());
        drop((idle, stream));
        stop.trigger();
        serving.await.unwrap();
    }

    #[tokio::test]
    async fn an_answer_that_is_read_slowly_is_read_to_its_end() {
        let limits = ServerLimits { idle_timeout: Duration::from_millis(100), ..ServerLimits::default() };
        let server = Server::bind("127.0.0.1:0".parse().unwrap(), None, limits).await.unwrap();
        let (address, (stop, stopped)) = (server.address(), shutdown());
        let long = usize::try_from(16_000_000).unwrap();
        let serving = tokio::spawn(server.run(move |_, _| async move { Response::new(full(vec![7; long])) }, stopped));
        let socket = tokio::net::TcpSocket::new_v4().unwrap();
        socket.set_recv_buffer_size(4096).unwrap();
        let mut stream = socket.connect(address).await.unwrap();
        stream.write_all(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n").await.unwrap();
        let mut read = vec![0; 1000];
        stream.read_exact(&mut read).await.unwrap();
        tokio::time::sleep(Duration::from_secs(1)).await;
        stream.read_to_end(&mut read).await.unwrap();
        assert!(read.len() > long, "{} of {long}", read.len());
        stop.trigger();
        serving.await.unwrap();
    }
}
