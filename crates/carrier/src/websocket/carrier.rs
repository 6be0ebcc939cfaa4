//! A connection as flows see it: [`WebSocketCarrier`], and the two ends of its lanes.

use super::lanes::{BYTES_MAX, Key, Lanes, Read, Room, Wakers};
use super::shared::{Handle, Shared, closed};
use crate::silence::until_silent;
use crate::tcp::{Sampler, Watch};
use crate::{Carrier, Kind, Lane, LaneReceiver, LaneSender, Pending, broken_off};
use bytes::Bytes;
use hoop_flow::Binding;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};
use tokio::sync::Notify;

/// A WebSocket connection.
#[derive(Debug)]
pub struct WebSocketCarrier {
    pub(super) handle: Arc<Handle>,
    binding: Binding,
    watch: Watch,
    peer: SocketAddr,
}

impl WebSocketCarrier {
    pub(super) fn new(shared: &Arc<Shared>, binding: Binding, watch: Watch, peer: SocketAddr) -> Self {
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

    fn set_known(&self) {
        self.handle.0.is_known.store(true, Ordering::Relaxed);
        self.handle.0.change(Lanes::set_known);
    }

    fn closed(&self) -> Pending<'_, io::Error> {
        Box::pin(self.handle.0.until_gone())
    }

    fn close(&self) {
        self.handle.0.end(closed());
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

/// The first message of a lane, and of one that has rested, in bytes: its receiver has it within one round trip, since it is a single record of TLS and fits into TCP's first window
/// (RFC 6928). Each that follows is twice as long, up to [`BYTES_MAX`].
const BYTES_FIRST: usize = 4 * 1024;

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
        Self { half, most: BYTES_FIRST, last: Instant::now() }
    }

    async fn leave(&mut self, message: &mut Vec<Bytes>) -> io::Result<()> {
        self.half.leave(message).await?;
        (self.most, self.last) = ((2 * self.most).min(BYTES_MAX), Instant::now());
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
                self.most = BYTES_FIRST;
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
            let [bytes] = chunk;
            Ok(read.map(|_| bytes))
        })
    }

    fn receive_chunks<'a>(&'a mut self, chunks: &'a mut [Bytes]) -> Pending<'a, io::Result<Option<usize>>> {
        Box::pin(self.read(chunks, usize::MAX))
    }
}

impl WebSocketReceiver {
    /// Fills chunks, each of `most` bytes at most, with what there is, once there is something; `None` at the end.
    async fn read(&mut self, chunks: &mut [Bytes], most: usize) -> io::Result<Option<usize>> {
        loop {
            let (filled, then) = self.0.shared().change(|lanes| {
                let mut filled = 0;
                while let Some(chunk) = chunks.get_mut(filled) {
                    match lanes.read(self.0.key, most) {
                        Read::Data(bytes) => *chunk = bytes,
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
                Read::Nothing | Read::Data(_) => self.0.shared().check()?,
            }
            self.0.waker.notified().await;
        }
    }
}
