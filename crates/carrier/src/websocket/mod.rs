//! Carriers on WebSocket (RFC 6455) over TLS 1.3, where UDP does not pass: [`WebSocketDevice`] and [`WebSocketListener`]. `docs/flow.md` §7 has the messages.
//!
//! One task for each connection reads and writes; lanes leave messages with it and find what came. A lane that nobody reads from stops the whole connection once it holds a
//! mebibyte (flows are always read from: their credit is what bounds them), and is broken off if that lasts for longer than [`WebSocketOptions::patience`]. So it is with all lanes
//! together at two mebibytes, and with those that were not accepted yet at 64 KiB: the one that holds most is broken off. A server's lanes hold 128 KiB together until it is known whose the
//! carrier is ([`Carrier::is_known`]). With the buffers that it reads into, a connection never holds
//! more than five mebibytes of what came.
//!
//! A device sends what its lanes have right behind its request, without awaiting the answer. RFC 6455 §4.1 has it wait, for the sake of proxies that see what is sent; where TLS ends at
//! the server none does, and it saves a round trip. Where TLS ends in front of the server, the device waits.

mod buffers;
mod device;
mod driver;
mod frames;
pub(crate) mod fuzzing;
mod lanes;
mod server;
mod upgrade;

use crate::silence::until_silent;
use crate::tcp::{Sampler, Watch};
use crate::{Carrier, Kind, Lane, LaneReceiver, LaneSender, Pending, broken_off};
use bytes::Bytes;
use driver::Due;
use frames::Violation;
use hoop_flow::Binding;
use lanes::{Key, Lanes, OCTETS_MAX, Read, Room, Wakers};
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use tokio::sync::{Notify, watch};

pub use device::{Proxy, WebSocketDevice};
pub use server::{WebSocketLimits, WebSocketListener};
pub use upgrade::{Refused, WEBSOCKET_PATH, WEBSOCKET_PROTOCOL};

/// What binds proofs to a carrier; both ends must be set alike.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum BoundBy {
    /// The TLS exporter: TLS ends at the two ends.
    #[default]
    Exporter,
    /// HELLO and CHALLENGE (`docs/flow.md` §3): TLS ends in front of the server. It costs two round trips.
    Nonces,
}

/// How connections are run, at either end.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct WebSocketOptions {
    /// The path; default: [`WEBSOCKET_PATH`].
    pub path: String,
    /// What binds proofs; default: the exporter.
    pub bound_by: BoundBy,
    /// A carrier is gone once nothing has come for so long; default: 25 s, as for QUIC.
    pub idle: Duration,
    /// A ping is sent whenever nothing was for so long; default: never, since that keeps a radio awake.
    pub keep_alive: Option<Duration>,
    /// How long a lane that nobody reads from may hold up the others of its carrier; default: 5 s, a disk's worst sync.
    pub patience: Duration,
}

impl Default for WebSocketOptions {
    fn default() -> Self {
        Self {
            path: WEBSOCKET_PATH.to_owned(),
            bound_by: BoundBy::Exporter,
            idle: Duration::from_secs(25),
            keep_alive: None,
            patience: Duration::from_secs(5),
        }
    }
}

/// A WebSocket connection.
#[derive(Debug)]
pub struct WebSocketCarrier {
    handle: Arc<Handle>,
    binding: Binding,
    watch: Watch,
    peer: SocketAddr,
}

impl WebSocketCarrier {
    fn new(shared: &Arc<Shared>, binding: Binding, watch: Watch, peer: SocketAddr) -> Self {
        Self { handle: Arc::new(Handle(shared.clone())), binding, watch, peer }
    }

    /// The other end of the TCP connection; a proxy's where there is one.
    pub fn peer(&self) -> SocketAddr {
        self.peer
    }

    fn lane(&self, (key, wakers): (Key, Wakers)) -> Lane {
        let half = |waker| Half { handle: self.handle.clone(), key, waker };
        Lane {
            sender: Box::new(WebSocketSender::new(half(wakers.writable))),
            receiver: Box::new(WebSocketReceiver(half(wakers.readable))),
        }
    }
}

impl Carrier for WebSocketCarrier {
    fn kind(&self) -> Kind {
        Kind::WebSocket
    }

    fn binding(&self) -> Binding {
        self.binding
    }

    fn peer(&self) -> Option<IpAddr> {
        Some(self.peer.ip())
    }

    fn open(&self) -> Pending<'_, io::Result<Lane>> {
        Box::pin(async { Ok(self.lane(self.handle.0.next_lane(Lanes::open, &self.handle.0.room).await?)) })
    }

    fn accept(&self) -> Pending<'_, io::Result<Lane>> {
        Box::pin(async { Ok(self.lane(self.handle.0.next_lane(Lanes::accept, &self.handle.0.offered).await?)) })
    }

    fn rtt(&self) -> Option<Duration> {
        self.watch.rtt()
    }

    fn silent(&self, limit: Duration) -> Pending<'_, ()> {
        let mut sampler = Sampler::new(self.watch.clone());
        Box::pin(until_silent(limit, || self.rtt(), move || sampler.sample()))
    }

    fn probe(&self) {
        self.handle.0.probe();
    }

    fn is_known(&self) {
        self.handle.0.is_known.store(true, Ordering::Relaxed);
        self.handle.0.change(Lanes::is_known);
    }

    fn closed(&self) -> Pending<'_, io::Error> {
        Box::pin(self.handle.0.until_gone())
    }

    fn close(&self) {
        self.handle.0.end(closed());
    }
}

fn closed() -> io::Error {
    io::Error::new(io::ErrorKind::ConnectionAborted, "closed")
}

/// What the application has of a connection; it ends once nothing of it is left.
#[derive(Debug)]
struct Handle(Arc<Shared>);

impl Drop for Handle {
    fn drop(&mut self) {
        self.0.end(closed());
    }
}

/// What a connection's task and its lanes share.
#[derive(Debug)]
struct Shared {
    state: Mutex<State>,
    /// There may be something to write.
    work: Notify,
    /// There may be a lane to accept.
    offered: Notify,
    /// There may be room for another lane.
    room: Notify,
    /// At a server: whose it is has been shown.
    is_known: AtomicBool,
    gone: watch::Sender<Option<Gone>>,
}

#[derive(Debug)]
struct State {
    lanes: Lanes,
    /// The answer to the latest ping.
    pong: Option<Bytes>,
    /// A ping is to be sent.
    probes: bool,
}

/// Why the carrier is gone.
#[derive(Clone, Debug)]
struct Gone(io::ErrorKind, Arc<str>);

impl Gone {
    fn error(&self) -> io::Error {
        io::Error::new(self.0, &*self.1)
    }
}

impl Shared {
    fn new(is_device: bool) -> Arc<Self> {
        Arc::new(Self {
            state: Mutex::new(State { lanes: Lanes::new(is_device), pong: None, probes: false }),
            work: Notify::new(),
            offered: Notify::new(),
            room: Notify::new(),
            is_known: AtomicBool::new(false),
            gone: watch::Sender::new(None),
        })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes lanes, and wakes whoever may now go on.
    fn change<T>(&self, change: impl FnOnce(&mut Lanes) -> T) -> T {
        let mut state = self.state();
        let changed = change(&mut state.lanes);
        if state.lanes.has_messages() {
            self.work.notify_one();
        }
        if state.lanes.has_offered() {
            self.offered.notify_one();
        }
        if state.lanes.may_open() {
            self.room.notify_one();
        }
        changed
    }

    fn check(&self) -> io::Result<()> {
        match &*self.gone.borrow() {
            Some(gone) => Err(gone.error()),
            None => Ok(()),
        }
    }

    /// Ends the carrier, unless it is gone already.
    fn end(&self, error: io::Error) {
        let is_first = self.gone.send_if_modified(|gone| {
            let is_first = gone.is_none();
            gone.get_or_insert_with(|| Gone(error.kind(), error.to_string().into()));
            is_first
        });
        if is_first {
            self.state().lanes.wake_all();
        }
    }

    async fn until_gone(&self) -> io::Error {
        let mut gone = self.gone.subscribe();
        let gone = gone.wait_for(Option::is_some).await;
        match gone.as_deref() {
            Ok(Some(gone)) => gone.error(),
            Ok(None) | Err(_) => closed(),
        }
    }

    async fn next_lane(
        &self,
        next: impl Fn(&mut Lanes) -> Option<(Key, Wakers)>,
        woken: &Notify,
    ) -> io::Result<(Key, Wakers)> {
        loop {
            self.check()?;
            if let Some(lane) = self.change(&next) {
                return Ok(lane);
            }
            tokio::select! {
                () = woken.notified() => {}
                error = self.until_gone() => return Err(error),
            }
        }
    }

    // What the connection's task does.

    fn due(&self) -> Option<Due> {
        {
            let mut state = self.state();
            if let Some(octets) = state.pong.take() {
                return Some(Due::Pong(octets));
            }
            if std::mem::take(&mut state.probes) {
                return Some(Due::Ping);
            }
        }
        self.change(Lanes::next_message).map(Due::Message)
    }

    async fn until_due(&self) {
        loop {
            {
                let state = self.state();
                if state.pong.is_some() || state.probes || state.lanes.has_messages() {
                    return;
                }
            }
            self.work.notified().await;
        }
    }

    fn answer(&self, ping: Bytes) {
        self.state().pong = Some(ping);
        self.work.notify_one();
    }

    fn probe(&self) {
        self.state().probes = true;
        self.work.notify_one();
    }

    fn hear(&self, first: bool, last: bool, octets: Bytes) -> Result<Option<Key>, Violation> {
        self.change(|lanes| lanes.hear(first, last, octets))
    }

    async fn until_taken(&self, full: Key) {
        loop {
            let taken = {
                let state = self.state();
                if !state.lanes.is_full(full) {
                    return;
                }
                state.lanes.taken()
            };
            taken.notified().await;
        }
    }

    fn break_off(&self, last: Key) {
        self.change(|lanes| lanes.break_off(last));
    }
}

/// One direction of a lane.
#[derive(Debug)]
struct Half {
    handle: Arc<Handle>,
    key: Key,
    waker: Arc<Notify>,
}

impl Half {
    fn shared(&self) -> &Shared {
        &self.handle.0
    }

    /// Leaves a message with the connection's task, once there is room.
    async fn leave(&self, message: &mut Vec<Bytes>) -> io::Result<()> {
        loop {
            self.shared().check()?;
            let room = self.shared().change(|lanes| {
                let room = lanes.room(self.key);
                if room == Room::Free {
                    lanes.send(self.key, std::mem::take(message));
                }
                room
            });
            match room {
                Room::Free => return Ok(()),
                Room::Useless => return Err(broken_off()),
                Room::Full => self.waker.notified().await,
            }
        }
    }
}

/// The first message of a lane, and of one that has rested, in octets: its receiver has it within one round trip, since it is a single record of TLS and fits into TCP's first window
/// (RFC 6928). Each that follows is twice as long, up to [`OCTETS_MAX`].
const OCTETS_FIRST: usize = 4 * 1024;

/// After such a rest TCP begins anew, too (RFC 2861).
const REST: Duration = Duration::from_secs(1);

#[derive(Debug)]
struct WebSocketSender {
    half: Half,
    /// How long the next message may be.
    most: usize,
    /// When the last was left.
    last: Instant,
}

impl WebSocketSender {
    fn new(half: Half) -> Self {
        Self { half, most: OCTETS_FIRST, last: Instant::now() }
    }

    async fn leave(&mut self, message: &mut Vec<Bytes>) -> io::Result<()> {
        self.half.leave(message).await?;
        (self.most, self.last) = ((2 * self.most).min(OCTETS_MAX), Instant::now());
        Ok(())
    }
}

impl Drop for WebSocketSender {
    fn drop(&mut self) {
        self.half.shared().change(|lanes| lanes.drop_sender(self.half.key));
    }
}

impl LaneSender for WebSocketSender {
    fn send<'a>(&'a mut self, chunks: &'a mut [Bytes]) -> Pending<'a, io::Result<()>> {
        Box::pin(async {
            if self.last.elapsed() > REST {
                self.most = OCTETS_FIRST;
            }
            let (mut message, mut len) = (Vec::with_capacity(chunks.len()), 0);
            for chunk in chunks {
                while !chunk.is_empty() {
                    let piece = chunk.split_to(chunk.len().min(self.most - len));
                    len += piece.len();
                    message.push(piece);
                    if len == self.most {
                        self.leave(&mut message).await?;
                        len = 0;
                    }
                }
            }
            match message.is_empty() {
                true => Ok(()),
                false => self.leave(&mut message).await,
            }
        })
    }

    fn finish(&mut self) -> Pending<'_, io::Result<()>> {
        Box::pin(async {
            self.half.shared().check()?;
            let finished = self.half.shared().change(|lanes| lanes.finish(self.half.key));
            if finished { Ok(()) } else { Err(broken_off()) }
        })
    }
}

#[derive(Debug)]
struct WebSocketReceiver(Half);

impl Drop for WebSocketReceiver {
    fn drop(&mut self) {
        self.0.shared().change(|lanes| lanes.drop_receiver(self.0.key));
    }
}

impl LaneReceiver for WebSocketReceiver {
    fn receive(&mut self, most: usize) -> Pending<'_, io::Result<Option<Bytes>>> {
        Box::pin(async move {
            let mut chunk = [Bytes::new()];
            let read = self.read(&mut chunk, most).await?;
            let [octets] = chunk;
            Ok(read.map(|_| octets))
        })
    }

    fn receive_chunks<'a>(&'a mut self, chunks: &'a mut [Bytes]) -> Pending<'a, io::Result<Option<usize>>> {
        Box::pin(self.read(chunks, usize::MAX))
    }
}

impl WebSocketReceiver {
    /// Fills chunks, each of `most` octets at most, with what there is, once there is something; `None` at the end.
    async fn read(&mut self, chunks: &mut [Bytes], most: usize) -> io::Result<Option<usize>> {
        loop {
            let (filled, then) = self.0.shared().change(|lanes| {
                let mut filled = 0;
                while let Some(chunk) = chunks.get_mut(filled) {
                    match lanes.read(self.0.key, most) {
                        Read::Octets(octets) => *chunk = octets,
                        then => return (filled, then),
                    }
                    filled += 1;
                }
                (filled, Read::Nothing)
            });
            match then {
                _ if filled > 0 => return Ok(Some(filled)),
                Read::End => return Ok(None),
                Read::BrokenOff => return Err(broken_off()),
                Read::Nothing | Read::Octets(_) => self.0.shared().check()?,
            }
            self.0.waker.notified().await;
        }
    }
}
