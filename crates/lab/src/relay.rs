//! A TCP relay whose connections share one simulated link: [`Relay`], for machines that allow no namespaces.
//!
//! ```text
//!  client ──▶ reader ──▶ entrance ──▶ up:   hoop_netem::Link ──▶ writer ──▶ target
//!         ◀── writer ◀────────────── down: hoop_netem::Link ◀── entrance ◀── reader
//! ```
//!
//! Bytes travel in chunks of a TCP segment's size, which count with the segment's headers, so that a rate means the same
//! as in a [`Lab`](crate::Lab). Nothing is ever lost: a chunk waits at the entrance until the link's queue has room, and
//! a reader stops when [`WINDOW_BYTES`] of its connection are under way, so that memory stays bounded and TCP's own
//! flow control holds the sender back.
//!
//! Timers of the runtime come up to a millisecond late; the rate is exact all the same. The opening of a connection is
//! not delayed: the client is connected to the relay at once, and its first bytes travel the link.

use hoop_netem::{IN_FLIGHT_PACKETS_MAX, Link, LinkConfig, Loss, Packet};
use hoop_units::Timestamp;

use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};
use tokio::task::JoinSet;
use tokio::time::Instant;

/// Most connections at once; others wait to be accepted. With [`WINDOW_BYTES`] each way this bounds memory to 128 MiB.
pub const CONNECTIONS_MAX: usize = 64;

/// Most bytes of a connection that are under way in each direction: enough for 80 Mbit/s over 100 ms.
pub const WINDOW_BYTES: usize = 1 << 20;

/// Payload of a full TCP segment with timestamps at an MTU of 1,500 bytes.
const CHUNK_BYTES: usize = 1_448;

/// Headers of that segment: IPv4 (20) and TCP with timestamps (32).
const HEADER_BYTES: usize = 52;

/// What a chunk takes of the window at least, so that no more chunks can be under way than the link has room for.
const CHUNK_COST_MIN: usize = 512;
const _: () = assert!(CONNECTIONS_MAX * (WINDOW_BYTES / CHUNK_COST_MIN) <= IN_FLIGHT_PACKETS_MAX);

/// Chunks that wait at a link's entrance: two, so that there is always a next one; the rest waits in sockets.
const ENTRANCE_CHUNKS: usize = 2;

/// How long to wait when the system has no descriptor left for a connection.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// What to relay, and over what link.
#[derive(Clone, Debug)]
pub struct RelayConfig {
    /// Where to listen; port 0 is any that is free ([`Relay::local_address`]).
    pub listen: SocketAddr,
    /// Where connections lead.
    pub to: SocketAddr,
    /// Towards the target.
    pub up: LinkConfig,
    /// From the target.
    pub down: LinkConfig,
}

/// Why there is no relay.
#[derive(Debug, thiserror::Error)]
pub enum RelayError {
    /// The address cannot be listened at.
    #[error("cannot listen at {address}: {source}")]
    Listen {
        /// The address.
        address: SocketAddr,
        /// Why.
        source: io::Error,
    },
    /// The link would lose, cut off or reorder bytes of a stream, which no TCP would then bring again.
    #[error("a relayed link cannot have {0}: there is no TCP beneath it that would make up for it")]
    Unreliable(&'static str),
}

/// A relay that listens.
#[derive(Debug)]
pub struct Relay {
    listener: TcpListener,
    local_address: SocketAddr,
    config: RelayConfig,
}

impl Relay {
    /// Listens.
    ///
    /// # Errors
    /// If the address cannot be listened at, or a link is not reliable.
    pub async fn bind(config: RelayConfig) -> Result<Self, RelayError> {
        check_reliable(&config.up)?;
        check_reliable(&config.down)?;
        let address = config.listen;
        let failed = |source| RelayError::Listen { address, source };
        let listener = TcpListener::bind(address).await.map_err(failed)?;
        let local_address = listener.local_addr().map_err(failed)?;
        Ok(Self { listener, local_address, config })
    }

    /// Relays until `shutdown` is ready; connections that are open then are cut off.
    pub async fn run(self, shutdown: impl Future<Output = ()>) {
        let mut tasks = JoinSet::new();
        let mut entrance = |link: &LinkConfig| {
            let (entrance, chunks) = mpsc::channel(ENTRANCE_CHUNKS);
            tasks.spawn(drive(link.clone(), chunks));
            entrance
        };
        let (up, down) = (entrance(&self.config.up), entrance(&self.config.down));
        let mut connections = JoinSet::new();
        tokio::pin!(shutdown);
        loop {
            tokio::select! {
                () = &mut shutdown => return,
                _ = connections.join_next(), if !connections.is_empty() => {}
                accepted = self.listener.accept(), if connections.len() < CONNECTIONS_MAX => match accepted {
                    Ok((client, _)) => {
                        connections.spawn(connect(client, self.config.to, up.clone(), down.clone()));
                    }
                    Err(error) => {
                        tracing::info!(%error, "no connection could be accepted");
                        tokio::time::sleep(ACCEPT_PAUSE).await;
                    }
                },
            }
        }
    }

    /// Where it listens.
    pub fn local_address(&self) -> SocketAddr {
        self.local_address
    }
}

fn check_reliable(link: &LinkConfig) -> Result<(), RelayError> {
    let changes = || link.schedule.iter().map(|(_, change)| change);
    if link.loss != Loss::None || changes().any(|change| change.loss.is_some_and(|loss| loss != Loss::None)) {
        return Err(RelayError::Unreliable("loss"));
    }
    if !link.connected || changes().any(|change| change.connected == Some(false)) {
        return Err(RelayError::Unreliable("a time without connection"));
    }
    if link.reorder {
        return Err(RelayError::Unreliable("reordering"));
    }
    Ok(())
}

/// A piece of a stream on the link; empty at the stream's end.
struct Chunk {
    data: Vec<u8>,
    outlet: mpsc::UnboundedSender<Arrived>,
    permit: OwnedSemaphorePermit,
}

impl Packet for Chunk {
    fn size(&self) -> usize {
        self.data.len() + HEADER_BYTES
    }
}

/// A piece that has left the link, and the part of the window that it takes until it is written.
struct Arrived {
    data: Vec<u8>,
    _permit: OwnedSemaphorePermit,
}

/// Drives one direction of the link until its entrance is closed.
async fn drive(config: LinkConfig, mut entrance: mpsc::Receiver<Chunk>) {
    let start = Instant::now();
    let now = || Timestamp::from_micros(u64::try_from(start.elapsed().as_micros()).unwrap_or(u64::MAX));
    // The seed is of no matter: there is no loss, and jitter is jitter.
    let mut link = Link::new(config, 1, Timestamp::ZERO);
    loop {
        link.handle_timeout(now());
        while let Some(delivery) = link.poll_output() {
            let Chunk { data, outlet, permit } = delivery.packet;
            // Refused if the connection has broken in the meantime.
            let _ = outlet.send(Arrived { data, _permit: permit });
        }
        let deadline = link.poll_timeout();
        let timer = async {
            match deadline {
                Some(deadline) => tokio::time::sleep_until(start + Duration::from_micros(deadline.as_micros())).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            chunk = entrance.recv(), if link.has_room(CHUNK_BYTES + HEADER_BYTES) => match chunk {
                Some(chunk) => link.handle_input(chunk, now()),
                None => return,
            },
            () = timer => {}
        }
    }
}

/// One connection, to its end.
async fn connect(client: TcpStream, to: SocketAddr, up: mpsc::Sender<Chunk>, down: mpsc::Sender<Chunk>) {
    let target = match TcpStream::connect(to).await {
        Ok(target) => target,
        Err(error) => return tracing::info!(%to, %error, "the relay's target cannot be reached"),
    };
    // Chunks are written as they arrive: the link alone decides when.
    let _ = (client.set_nodelay(true), target.set_nodelay(true));
    let (client_read, client_write) = client.into_split();
    let (target_read, target_write) = target.into_split();
    let result = tokio::try_join!(carry(client_read, up, target_write), carry(target_read, down, client_write));
    if let Err(error) = result {
        tracing::debug!(%error, "a relayed connection broke");
    }
}

/// One direction of a connection.
async fn carry(
    from: impl AsyncRead + Unpin,
    entrance: mpsc::Sender<Chunk>,
    to: impl AsyncWrite + Unpin,
) -> io::Result<()> {
    let (outlet, arrived) = mpsc::unbounded_channel();
    tokio::try_join!(read(from, entrance, outlet), write(arrived, to)).map(|_| ())
}

async fn read(
    mut from: impl AsyncRead + Unpin,
    entrance: mpsc::Sender<Chunk>,
    outlet: mpsc::UnboundedSender<Arrived>,
) -> io::Result<()> {
    let window = Arc::new(Semaphore::new(WINDOW_BYTES));
    loop {
        // The window first, so that what it has no room for stays in the socket.
        let whole = (CHUNK_BYTES + HEADER_BYTES) as u32;
        let mut permit = Arc::clone(&window).acquire_many_owned(whole).await.expect("nobody closes the window");
        let mut data = vec![0; CHUNK_BYTES];
        let length = from.read(&mut data).await?;
        data.truncate(length);
        let cost = (length + HEADER_BYTES).max(CHUNK_COST_MIN);
        drop(permit.split(whole as usize - cost));
        let chunk = Chunk { data, outlet: outlet.clone(), permit };
        if entrance.send(chunk).await.is_err() || length == 0 {
            return Ok(());
        }
    }
}

async fn write(mut arrived: mpsc::UnboundedReceiver<Arrived>, mut to: impl AsyncWrite + Unpin) -> io::Result<()> {
    while let Some(Arrived { data, _permit }) = arrived.recv().await {
        if data.is_empty() {
            break;
        }
        to.write_all(&data).await?;
    }
    to.shutdown().await
}
