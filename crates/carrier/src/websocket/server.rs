//! A server's end: [`WebSocketListener`].

use super::carrier::WebSocketCarrier;
use super::driver::{ConnConfig, Conversation, violated, violation_of};
use super::frames::{Frames, Role, Violation};
use super::shared::Shared;
use super::upgrade::{asked, forwarding};
use super::{BoundBy, WebSocketOptions};
use crate::goodbyes::Goodbyes;
use crate::peers::{Full, Peers, Place};
use crate::tcp::{Tcp, is_left};
use crate::tls::exported;
use bytes::BytesMut;
use hoop_flow::Binding;
use hoop_flow::frame::Frame;
use hoop_tls::Allowance;
use hoop_units::Prefix;
use parking_lot::Mutex;
use ring::rand::{SecureRandom as _, SystemRandom};
use socket2::SockRef;
use std::collections::VecDeque;
use std::fmt;
use std::future::poll_fn;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::Poll;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, oneshot};
use tokio::task::JoinHandle;
use tokio_rustls::LazyConfigAcceptor;
use tokio_rustls::rustls::server::Acceptor;

/// Connections that the kernel keeps until they are accepted: as many as it will (`net.core.somaxconn`). Who finds no room there comes again only after a second.
const BACKLOG: i32 = i32::MAX;

/// How soon a place for a handshake is looked for again.
const LOOK_AGAIN: Duration = Duration::from_millis(5);

/// After an error of the listening socket (no more descriptors, say) it rests for so long.
const REST: Duration = Duration::from_millis(100);

/// What a server spends on devices that it does not know yet, and on all of them.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct WebSocketLimits {
    /// Handshakes under way at once, TLS and HTTP, with carriers that wait to be accepted; then the oldest of whoever has most makes way for who has fewer. Default: 512, some 40 KB
    /// each.
    pub handshakes: usize,
    /// The same of one address (of IPv6: a /64); default: 32. Behind a proxy all have its address, unless it says whose they are ([`WebSocketListener::listen_behind`]).
    pub handshakes_per_peer: usize,
    /// How long a handshake may take; default: 10 s.
    pub handshake_time: Duration,
    /// Connections at once; more are closed. Default: 20,000, some 60 KB each; a stranger's may have 390 KB while its lanes say who they are, some ten seconds.
    pub connections: usize,
    /// Strangers' connections that are over, and that are given up to a second to say so, too; others are cut off once they were told. Default: 256.
    pub goodbyes: usize,
    /// The same of one address; default: 8.
    pub goodbyes_per_peer: usize,
}

impl Default for WebSocketLimits {
    fn default() -> Self {
        Self {
            handshakes: 512,
            handshakes_per_peer: 32,
            handshake_time: Duration::from_secs(10),
            connections: 20_000,
            goodbyes: 256,
            goodbyes_per_peer: 8,
        }
    }
}

/// A server's end: carriers that devices open. Dropping it takes no more; those that are open stay.
pub struct WebSocketListener {
    address: SocketAddr,
    accepted: tokio::sync::Mutex<mpsc::Receiver<WebSocketCarrier>>,
    entrance: Arc<Entrance>,
    tasks: Vec<JoinHandle<()>>,
}

impl fmt::Debug for WebSocketListener {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WebSocketListener").field("address", &self.address).finish_non_exhaustive()
    }
}

impl Drop for WebSocketListener {
    fn drop(&mut self) {
        self.tasks.iter().for_each(JoinHandle::abort);
    }
}

impl WebSocketListener {
    /// Listens on `address` (`[::]` is of both families); within a tokio runtime. Without TLS it must stand behind something that ends TLS, and be [`BoundBy::Nonces`].
    ///
    /// # Errors
    /// If the socket cannot be had, or neither TLS nor nonces would bind proofs.
    pub async fn bind(
        address: SocketAddr,
        tls: Option<&rustls::ServerConfig>,
        options: WebSocketOptions,
        limits: WebSocketLimits,
    ) -> io::Result<Self> {
        if tls.is_none() && options.bound_by == BoundBy::Exporter {
            let missing = "without TLS, proofs must be bound by nonces";
            return Err(io::Error::new(io::ErrorKind::InvalidInput, missing));
        }
        let tls = tls.map(|tls| {
            let mut tls = tls.clone();
            tls.alpn_protocols = vec![b"http/1.1".to_vec()];
            tls.max_early_data_size = 0;
            Arc::new(tls)
        });
        let (listener, address) = listen(address).await?;
        let (hand_over, accepted) = mpsc::channel(1);
        let admission = Admission {
            connections: Arc::new(Semaphore::new(limits.connections)),
            peers: Peers::new(limits.handshakes, limits.handshakes_per_peer),
            goodbyes: Goodbyes::new(limits.goodbyes, limits.goodbyes_per_peer),
            limits,
            hand_over,
        };
        let entrance = Arc::new(Entrance { tls, options, front: None, admission: Arc::new(admission) });
        let tasks = vec![tokio::spawn(entrance.clone().run(listener))];
        Ok(Self { address, accepted: tokio::sync::Mutex::new(accepted), entrance, tasks })
    }

    /// Listens at another `address`, too, without TLS: for web servers that end TLS in front, and pass WebSockets on. Proofs are bound by nonces there ([`BoundBy::Nonces`]). Only who comes
    /// from `proxies` is heard. The peer whose limits count is the client that a proxy names (`X-Forwarded-For`, or `Forwarded` of RFC 7239), or the proxy itself if it names none. The limits
    /// hold for both addresses together. Returns where it listens; within a tokio runtime.
    ///
    /// # Errors
    /// If the socket cannot be had.
    pub async fn listen_behind(&mut self, address: SocketAddr, proxies: Vec<Prefix>) -> io::Result<SocketAddr> {
        let (listener, address) = listen(address).await?;
        let options = WebSocketOptions { bound_by: BoundBy::Nonces, ..self.entrance.options.clone() };
        let admission = self.entrance.admission.clone();
        let unsettled = Arc::new(Semaphore::new(admission.limits.handshakes));
        let [unnamed, unheard] = [(); 2].map(|()| Unnamed::new(admission.limits.handshakes));
        let front = Some(Front { proxies, unnamed, unheard, unsettled, turn: tokio::sync::Mutex::default() });
        let entrance = Arc::new(Entrance { tls: None, options, front, admission });
        self.tasks.push(tokio::spawn(entrance.run(listener)));
        Ok(address)
    }

    /// The next carrier. Dropping it while it waits loses none.
    ///
    /// # Errors
    /// If the listener is gone.
    pub async fn accept(&self) -> io::Result<WebSocketCarrier> {
        self.accepted.lock().await.recv().await.ok_or_else(|| io::Error::other("the listener is gone"))
    }

    /// Where it listens.
    pub fn local_address(&self) -> SocketAddr {
        self.address
    }

    /// Handshakes under way, and carriers that wait to be accepted: at most [`WebSocketLimits::handshakes`].
    pub fn handshakes(&self) -> usize {
        self.entrance.admission.peers.taken()
    }

    /// Connections at once, with those whose handshake is under way: at most [`WebSocketLimits::connections`].
    pub fn connections(&self) -> usize {
        let Admission { limits, connections, .. } = &*self.entrance.admission;
        limits.connections - connections.available_permits()
    }
}

async fn listen(address: SocketAddr) -> io::Result<(TcpListener, SocketAddr)> {
    let listener = TcpListener::bind(address).await?;
    SockRef::from(&listener).listen(BACKLOG)?;
    let address = listener.local_addr()?;
    Ok((listener, address))
}

/// An address where connections come in, and how they are met there.
struct Entrance {
    tls: Option<Arc<rustls::ServerConfig>>,
    options: WebSocketOptions,
    /// None: everybody is heard, for himself.
    front: Option<Front>,
    admission: Arc<Admission>,
}

/// What a server needs where web servers pass connections on.
struct Front {
    /// Who alone is heard, and is asked whose the connection is.
    proxies: Vec<Prefix>,
    /// Connections whose heads have not come.
    unnamed: Unnamed,
    /// Connections whose heads have come, and for which nobody waits for a place yet.
    unheard: Unnamed,
    /// Connections that wait for a place.
    unsettled: Arc<Semaphore>,
    /// Whose turn it is to wait for a place: one asks for all.
    turn: tokio::sync::Mutex<()>,
}

/// Connections that wait, of which the oldest makes way for one more. A proxy sends a head as soon as it has connected, so who is silent is none.
struct Unnamed {
    most: usize,
    waiting: Mutex<VecDeque<oneshot::Sender<()>>>,
}

impl Unnamed {
    fn new(most: usize) -> Self {
        Self { most, waiting: Mutex::default() }
    }

    /// One more. What is returned ends when it has to make way.
    fn add(&self) -> oneshot::Receiver<()> {
        let (ticket, way) = oneshot::channel();
        let mut waiting = self.waiting.lock();
        if waiting.len() >= self.most {
            waiting.retain(|ticket| !ticket.is_closed());
        }
        if waiting.len() >= self.most {
            waiting.pop_front();
        }
        waiting.push_back(ticket);
        way
    }
}

/// What the entrances of a listener share.
struct Admission {
    limits: WebSocketLimits,
    connections: Arc<Semaphore>,
    peers: Peers,
    goodbyes: Goodbyes,
    hand_over: mpsc::Sender<WebSocketCarrier>,
}

impl Entrance {
    async fn run(self: Arc<Self>, listener: TcpListener) {
        loop {
            match listener.accept().await {
                Ok((stream, peer)) => self.admit(stream, peer).await,
                Err(_) => tokio::time::sleep(REST).await,
            }
        }
    }

    async fn admit(self: &Arc<Self>, stream: TcpStream, peer: SocketAddr) {
        let arrived = Arrived { stream, peer, buffer: BytesMut::new() };
        let Some(front) = &self.front else { return self.clone().settle(arrived).await };
        if !front.proxies.iter().any(|proxy| proxy.contains(peer.ip())) {
            return;
        }
        // Whose it is stands in the head, which a proxy sends when it has all of it.
        let (entrance, unsettled, way) = (self.clone(), front.unsettled.clone(), front.unnamed.add());
        tokio::spawn(async move {
            let limit = entrance.admission.limits.handshake_time;
            let settled = async {
                let aborted = || io::Error::from(io::ErrorKind::ConnectionAborted);
                let named = tokio::select! {
                    named = entrance.named(arrived) => named?,
                    _ = way => return Err(aborted()),
                };
                let way = entrance.front.as_ref().ok_or_else(aborted)?.unheard.add();
                let _unsettled = tokio::select! {
                    unsettled = unsettled.acquire_owned() => unsettled,
                    _ = way => return Err(aborted()),
                };
                entrance.clone().settle(named).await;
                io::Result::Ok(())
            };
            let _ = tokio::time::timeout(limit, settled).await;
        });
    }

    /// The same, of the client that the proxy names.
    async fn named(&self, arrived: Arrived) -> io::Result<Arrived> {
        let Arrived { mut stream, peer, mut buffer } = arrived;
        let forwarded = forwarding(&mut stream, &mut buffer).await?;
        let client = self.front.as_ref().and_then(|front| forwarded.client(&front.proxies));
        let peer = SocketAddr::new(client.unwrap_or_else(|| peer.ip()), peer.port());
        Ok(Arrived { stream, peer, buffer })
    }

    /// Waits for a place, and lets the handshake begin.
    async fn settle(self: Arc<Self>, arrived: Arrived) {
        let admission = self.admission.clone();
        let turn = match &self.front {
            Some(front) => Some(front.turn.lock().await),
            None => None,
        };
        let Ok(connection) = admission.connections.clone().try_acquire_owned() else { return };
        let place = loop {
            // Who came by another way meanwhile, or waited for too long, costs no handshake.
            if is_left(&arrived.stream) {
                return;
            }
            match admission.peers.take_settled(arrived.peer.ip(), roll()) {
                Ok(place) => break place,
                Err(Full::OfPeer) => return,
                // More wait in the kernel's backlog.
                Err(Full::ForAMoment) => tokio::time::sleep(LOOK_AGAIN).await,
            }
        };
        drop(turn);
        let (key, limit) = (place.key(), admission.limits.handshake_time);
        let task = tokio::spawn(async move {
            let shaking = self.shake_hands(arrived, connection, &place);
            let Ok(Ok(carrier)) = tokio::time::timeout(limit, shaking).await else { return };
            place.is_done();
            let shared = carrier.handle.0.clone();
            tokio::select! {
                _ = self.admission.hand_over.send(carrier) => {}
                _ = shared.until_gone() => {}
            }
            drop(place);
        });
        admission.peers.set_task(key, task.abort_handle());
    }

    async fn shake_hands(
        &self,
        arrived: Arrived,
        connection: OwnedSemaphorePermit,
        place: &Place,
    ) -> io::Result<WebSocketCarrier> {
        let Arrived { stream, peer, buffer } = arrived;
        let tcp = Tcp::new(stream)?;
        let watch = tcp.watch();
        let shared = Shared::new(false);
        let binding = match &self.tls {
            Some(tls) => {
                let allowance = Allowance::default();
                let hello = LazyConfigAcceptor::new(Acceptor::default(), allowance.below(tcp)).await?;
                place.speaks();
                let mut shaking = pin!(hello.into_stream(tls.clone()));
                // What it does before it waits is to answer.
                let answered = poll_fn(|cx| Poll::Ready(shaking.as_mut().poll(cx))).await;
                place.is_answered(watch.clone());
                let stream = match answered {
                    Poll::Ready(stream) => stream?,
                    Poll::Pending => shaking.await?,
                };
                let exported = exported(stream.get_ref().1)?;
                let stream = allowance.above(stream);
                self.begin(stream, buffer, Some(exported), &shared, (peer.ip(), connection)).await?
            }
            None => {
                if self.front.is_some() {
                    place.speaks();
                    // The head has come: what its device says next is awaited.
                    place.is_answered(watch.clone());
                }
                self.begin(tcp, buffer, None, &shared, (peer.ip(), connection)).await?
            }
        };
        Ok(WebSocketCarrier::new(&shared, binding, watch, peer))
    }

    /// Answers the request, and lets the connection run.
    async fn begin(
        &self,
        mut stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
        mut buffer: BytesMut,
        exported: Option<Binding>,
        shared: &Arc<Shared>,
        (peer, connection): (IpAddr, OwnedSemaphorePermit),
    ) -> io::Result<Binding> {
        let (answer, granted) = asked(&mut stream, &mut buffer, &self.options.path).await?;
        stream.write_all(&answer).await?;
        stream.flush().await?;
        if !granted {
            stream.shutdown().await?;
            return Err(io::ErrorKind::Unsupported.into());
        }
        let (role, frames) = (Role::Server, Frames::new(Role::Server));
        let mut conversation = Conversation { stream, buffer, frames, role };
        let binding = match (self.options.bound_by, exported) {
            (BoundBy::Exporter, Some(exported)) => exported,
            (BoundBy::Nonces, _) | (_, None) => match challenge(&mut conversation).await {
                Ok(binding) => binding,
                Err(error) => {
                    if let Some(violation) = violation_of(&error) {
                        let _ = conversation.goodbye(violation.close_code()).await;
                    }
                    return Err(error);
                }
            },
        };
        let WebSocketOptions { idle, keep_alive, patience, .. } = self.options;
        let config = ConnConfig { role, idle, keep_alive, patience };
        let running = conversation.run(shared.clone(), config, None);
        let (goodbyes, shared) = (self.admission.goodbyes.clone(), shared.clone());
        tokio::spawn(async move {
            tokio::select! {
                // First: what is over is told so before it is cut off.
                biased;
                () = running => {}
                () = is_cut_off(&shared, peer, &goodbyes) => {}
            }
            drop(connection);
        });
        Ok(binding)
    }
}

/// A connection before its handshake.
struct Arrived {
    stream: TcpStream,
    /// The peer's address, or that of the client which its proxy names, with the proxy's port.
    peer: SocketAddr,
    /// What was read of it.
    buffer: BytesMut,
}

/// Returns once a stranger's connection is over and there are goodbyes enough: nobody knows whose it is, and it takes memory that no address is charged for.
async fn is_cut_off(shared: &Shared, peer: IpAddr, goodbyes: &Goodbyes) {
    shared.until_gone().await;
    if shared.is_known.load(Ordering::Relaxed) {
        std::future::pending::<()>().await;
    }
    // It counts until the connection's task has ended.
    let goodbye = goodbyes.begin(peer);
    if goodbye.is_some() {
        std::future::pending().await
    }
}

/// By what it is drawn who makes way.
fn roll() -> u64 {
    let mut roll = [0; 8];
    // Without dice the one with the lowest address does.
    let _ = SystemRandom::new().fill(&mut roll);
    u64::from_ne_bytes(roll)
}

/// Hears HELLO and answers CHALLENGE.
async fn challenge<S: AsyncRead + AsyncWrite + Unpin>(conversation: &mut Conversation<S>) -> io::Result<Binding> {
    let message = conversation.message().await?;
    let mut rest = &message[..];
    let Ok(Some(Frame::Hello { nonce: theirs })) = Frame::take(&mut rest) else {
        return Err(violated(Violation::Binding("HELLO")));
    };
    if !rest.is_empty() {
        return Err(violated(Violation::Binding("HELLO alone")));
    }
    let mut ours = [0; 32];
    SystemRandom::new().fill(&mut ours).map_err(|_| io::Error::other("the system has no dice"))?;
    let mut answer = Vec::new();
    Frame::Challenge { nonce: ours }.put(&mut answer);
    conversation.say(&answer).await?;
    Ok(Binding::of_nonces(&theirs, &ours))
}
