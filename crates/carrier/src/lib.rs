//! Carriers: connections that flows are attached to (`docs/flow.md` §1). A carrier is disposable, and knows nothing of flows: it is bound to its TLS by 32 bytes
//! ([`Carrier::binding`]), and gives [`Lane`]s, which are streams of bytes in both directions.

mod congestion;
mod datagrams;
mod dialer;
mod effort;
mod goodbyes;
mod lingering;
mod listener;
mod memory;
mod peers;
mod quic;
mod race;
mod reachability;
mod resets;
mod sending;
mod silence;
mod socket;
mod tcp;
mod tls;
mod turns;
mod websocket;

use bytes::Bytes;
use hoop_flow::Binding;
use std::fmt::Debug;
use std::future::Future;
use std::io;
use std::net::IpAddr;
use std::pin::Pin;
use std::time::Duration;

pub use dialer::{Dialer, FrontAddress, FrontFailed, ServerAddress};
pub use listener::{Listener, descriptors};
pub use memory::{MemoryCarrier, memory_pair};
pub use quic::{MTU_MAX, QUIC_ALPN, QuicCarrier, QuicDevice, QuicLimits, QuicListener, QuicOptions, is_answer};
pub use resets::ResetKey;
pub use socket::Local;
pub use tls::{device_tls, front_tls, server_tls};
pub use websocket::{
    BoundBy, Proxy, Refused, WEBSOCKET_PATH, WEBSOCKET_PROTOCOL, WebSocketCarrier, WebSocketDevice, WebSocketLimits,
    WebSocketListener, WebSocketOptions,
};

/// What a method of a carrier gives; one allocation for each 64 KiB or so.
pub type Pending<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

#[doc(hidden)]
pub mod fuzzing {
    //! What the fuzz targets of `crates/fuzz` reach into.

    pub use crate::websocket::fuzzing::{Heard, websocket};
}

/// After so long a silence another carrier is worth its cost. Longer than all but the worst queues of a mobile network; half of the three seconds in which a transfer goes on elsewhere.
pub const SILENCE: Duration = Duration::from_millis(1_500);

/// Lanes that a device may have at once on one carrier, of either kind: the 1,024 flows that a server takes of one device by default, and a seventh more. So one flow more has a lane on which it is told
/// that the server is full (`docs/flow.md` §6); quinn gives back lanes that are free in eighths.
pub const LANES_MAX: u32 = 1_200;

/// What a server takes of a carrier, of either kind, before anybody has shown whose it is, in bytes: bytes that come before their turn, or that nobody has read, wait in memory.
const STRANGER_WINDOW: u32 = 128 * 1024;

/// What carries.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Kind {
    /// QUIC (RFC 9000): a lane is a bidirectional stream of the device's.
    Quic,
    /// WebSocket (RFC 6455) over TLS.
    WebSocket,
    /// The same process, for tests.
    Memory,
}

/// A connection between a device and a server.
pub trait Carrier: Send + Sync + Debug {
    /// What it is.
    fn kind(&self) -> Kind;

    /// What proofs on its lanes are bound to: of this carrier alone, and both ends have a share in it.
    fn binding(&self) -> Binding;

    /// A device's new lane. It waits while the server allows no more; dropping it while it waits opens none. The server sees it once something was sent on it.
    ///
    /// # Errors
    /// If the carrier is gone.
    fn open(&self) -> Pending<'_, io::Result<Lane>>;

    /// At a server: the device's next lane.
    ///
    /// # Errors
    /// If the carrier is gone.
    fn accept(&self) -> Pending<'_, io::Result<Lane>>;

    /// The other end's address, if it has one: what strangers are counted by. A proxy's, where there is one.
    fn peer(&self) -> Option<IpAddr> {
        None
    }

    /// The round-trip time, if it is known.
    fn rtt(&self) -> Option<Duration>;

    /// Waits until the other end has sent nothing for `limit`, or for three round trips if they are longer (and up to an eighth of `limit` more), although it owes an answer: something was
    /// sent that its transport must acknowledge.
    /// An idle carrier is not silent. A carrier of which nothing of the kind is known is never silent.
    ///
    /// This is how a way that is shut in mid-transfer is noticed long before the carrier is [gone](Self::closed) (UDP that is blocked from now on: QUIC's idle time is 25 s):
    /// whoever has bytes under way awaits it with [`SILENCE`] beside its lanes, and then attaches its flows to a carrier of the other kind as well; should this one speak
    /// again, nothing is lost. Whoever only receives owes nothing and is owed nothing: it says its last ACK again when nothing has come for half a second, so that there is something to answer.
    fn silent(&self, limit: Duration) -> Pending<'_, ()> {
        let _ = limit;
        Box::pin(std::future::pending())
    }

    /// Has the other end give a sign of life, so that it is noticed if it is [silent](Self::silent) though nothing is under way: for when the machine's networks have changed, and
    /// the way may be gone that an idle carrier took. A carrier of QUIC does so when it moves ([`QuicDevice::rebind`]), and here nothing.
    fn probe(&self) {}

    /// At a server: whose it is has been shown, and the other end may send more than a stranger.
    fn set_known(&self) {}

    /// Waits until the carrier is gone, and says why.
    fn closed(&self) -> Pending<'_, io::Error>;

    /// Ends the carrier with all its lanes. What was sent and has not arrived is lost.
    fn close(&self);
}

/// A stream of bytes in each direction, for one attachment of one flow.
#[derive(Debug)]
pub struct Lane {
    /// To the other end.
    pub sender: Box<dyn LaneSender>,
    /// From the other end.
    pub receiver: Box<dyn LaneReceiver>,
}

/// One direction of a lane; dropping it without [`LaneSender::finish`] breaks it off.
pub trait LaneSender: Send + Debug {
    /// Sends all chunks, in order; waits until the carrier has taken them. Whoever drops it while it waits knows not how much of them has gone, and must end the lane.
    ///
    /// # Errors
    /// If the lane or its carrier is gone.
    fn send<'a>(&'a mut self, chunks: &'a mut [Bytes]) -> Pending<'a, io::Result<()>>;

    /// No more comes: what was sent still arrives.
    ///
    /// # Errors
    /// If the lane or its carrier is gone.
    fn finish(&mut self) -> Pending<'_, io::Result<()>>;
}

/// The other direction; dropping it tells the sender that nobody reads.
pub trait LaneReceiver: Send + Debug {
    /// The next bytes, at most `most`; `None` once the sender has finished. Dropping it while it waits loses nothing.
    ///
    /// # Errors
    /// If the lane was broken off, or its carrier is gone.
    fn receive(&mut self, most: usize) -> Pending<'_, io::Result<Option<Bytes>>>;

    /// The next bytes, and what else of them is there already, as they lie: says how many of `chunks` it has filled, the first and those behind it, at least one; `None` once the
    /// sender has finished. Dropping it while it waits loses nothing.
    ///
    /// # Errors
    /// As [`LaneReceiver::receive`].
    fn receive_chunks<'a>(&'a mut self, chunks: &'a mut [Bytes]) -> Pending<'a, io::Result<Option<usize>>> {
        Box::pin(async move {
            let Some(bytes) = self.receive(RECEIVE_MAX).await? else { return Ok(None) };
            chunks[0] = bytes;
            Ok(Some(1))
        })
    }
}

/// What a carrier that knows nothing better gives as one chunk at most.
const RECEIVE_MAX: usize = 64 * 1024;

/// The other end has broken a lane off, or no longer reads it.
fn broken_off() -> io::Error {
    io::Error::new(io::ErrorKind::ConnectionReset, "the lane was broken off")
}

/// The example of the README compiles and runs.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
