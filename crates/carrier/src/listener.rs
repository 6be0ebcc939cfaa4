//! Where carriers of both kinds arrive: [`Listener`].

use crate::{
    Carrier, QuicLimits, QuicListener, QuicOptions, ResetKey, WebSocketLimits, WebSocketListener, WebSocketOptions,
};
use hoop_units::Prefix;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

/// How many times a free port is asked for: UDP and TCP are to have the same, and one of them may be taken.
const PORT_ATTEMPTS: usize = 16;

/// How many descriptors this process may have.
pub fn descriptors() -> usize {
    use nix::sys::resource::{Resource, getrlimit};
    getrlimit(Resource::RLIMIT_NOFILE).map_or(1_024, |(soft, _)| usize::try_from(soft).unwrap_or(usize::MAX))
}

/// What WebSockets may have of so many descriptors: each takes one, and the others are for what the program does with what it is sent. Where all places of handshakes are taken one makes way; where all connections are, whoever comes is
/// closed. So handshakes have half of what a server's carriers leave, which take a fifth of the descriptors at most (`hoop_relay`).
fn websocket_limits(descriptors: usize) -> WebSocketLimits {
    let limits = WebSocketLimits::default();
    let connections = limits.connections.min(descriptors / 4);
    let handshakes = (connections / 10).clamp(1, limits.handshakes);
    let handshakes_per_peer = limits.handshakes_per_peer.min(handshakes.div_ceil(2));
    WebSocketLimits { handshakes, handshakes_per_peer, connections, ..limits }
}

/// A server's port: UDP for QUIC, TCP for WebSocket. What a device's [`Dialer`](crate::Dialer) dials. It ends when this is dropped; carriers that have arrived go on.
#[derive(Debug)]
pub struct Listener {
    quic: QuicListener,
    websocket: WebSocketListener,
}

impl Listener {
    /// Listens at an address, within a tokio runtime; port 0 asks for one that is free for both.
    ///
    /// # Errors
    /// If a socket cannot be had.
    pub async fn bind(address: SocketAddr, tls: &rustls::ServerConfig) -> io::Result<Self> {
        Self::bind_again(address, tls, None).await
    }

    /// The same of a server that was there before: with the [`ResetKey`] that it had then, its devices are told at their next packet, and come again at once.
    ///
    /// # Errors
    /// As [`Listener::bind`].
    pub async fn bind_again(
        address: SocketAddr,
        tls: &rustls::ServerConfig,
        resets: Option<ResetKey>,
    ) -> io::Result<Self> {
        let options = QuicOptions { resets, ..QuicOptions::server() };
        let mut bound = Self::bind_once(address, tls, &options).await;
        for _ in 1..PORT_ATTEMPTS {
            if address.port() != 0 || bound.is_ok() {
                break;
            }
            bound = Self::bind_once(address, tls, &options).await;
        }
        bound
    }

    async fn bind_once(address: SocketAddr, tls: &rustls::ServerConfig, options: &QuicOptions) -> io::Result<Self> {
        let quic = QuicListener::bind(address, tls, options, QuicLimits::default())?;
        let (address, options) = (quic.local_address()?, WebSocketOptions::default());
        let websocket = WebSocketListener::bind(address, Some(tls), options, websocket_limits(descriptors())).await?;
        Ok(Self { quic, websocket })
    }

    /// Takes WebSockets at another `address`, too, from web servers that end TLS in front: see [`WebSocketListener::listen_behind`].
    ///
    /// # Errors
    /// If the socket cannot be had.
    pub async fn listen_behind(&mut self, address: SocketAddr, proxies: Vec<Prefix>) -> io::Result<SocketAddr> {
        self.websocket.listen_behind(address, proxies).await
    }

    /// The next carrier that has arrived. Dropping it while it waits loses nothing.
    ///
    /// # Errors
    /// If a socket is gone.
    pub async fn accept(&self) -> io::Result<Arc<dyn Carrier>> {
        tokio::select! {
            carrier = self.quic.accept() => Ok(Arc::new(carrier?)),
            carrier = self.websocket.accept() => Ok(Arc::new(carrier?)),
        }
    }

    /// Where it listens.
    pub fn local_address(&self) -> SocketAddr {
        self.websocket.local_address()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Else nobody makes way for whoever comes: he is closed at once.
    #[test]
    fn handshakes_leave_room_for_one_more_however_few_descriptors_there_are() {
        for descriptors in [64, 256, 1_024, 4_096, 10_240, 20_000, 65_536, 1 << 20] {
            let limits = websocket_limits(descriptors);
            let carriers = (descriptors / 5).min(16_384);
            assert!(limits.connections - limits.handshakes > carriers, "{descriptors}: {limits:?}");
            assert!(limits.handshakes_per_peer <= limits.handshakes && limits.handshakes_per_peer > 0, "{limits:?}");
        }
        assert_eq!(websocket_limits(65_536), WebSocketLimits { connections: 16_384, ..WebSocketLimits::default() });
    }
}
