//! Listeners that connections are led to: [`Intake`].

use super::kernel::{make_transparent, redirected};
use super::rules::Family;
use socket2::{Domain, Protocol, SockRef, Socket, TcpKeepalive, Type};
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream};

/// Connections that the kernel makes before the agent takes them: as many as tokio's own listeners have.
const BACKLOG: i32 = 1_024;

/// A machine that has gone is noticed after some six minutes; and so the kernel does not forget a redirected connection that rests (OpenWrt's does after two hours).
const KEEP_ALIVE: Duration = Duration::from_secs(120);
const KEEP_ALIVE_EVERY: Duration = Duration::from_secs(30);

/// Whose connections.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Source {
    /// Those of programs of this machine, which are redirected.
    Programs,
    /// Those of other machines, which are given to the listener as they are.
    Lan,
}

/// A listener on loopback.
#[derive(Debug)]
pub(super) struct Intake {
    pub(super) source: Source,
    listener: TcpListener,
    address: SocketAddr,
}

impl Intake {
    /// Listens, in a tokio runtime.
    ///
    /// # Errors
    /// If the machine has not that family, or this process may not take others' connections.
    pub(super) fn bind(source: Source, family: Family) -> io::Result<Self> {
        let loopback: IpAddr = match family {
            Family::V4 => Ipv4Addr::LOCALHOST.into(),
            Family::V6 => Ipv6Addr::LOCALHOST.into(),
        };
        let at = SocketAddr::new(loopback, 0);
        let socket = Socket::new(Domain::for_address(at), Type::STREAM, Some(Protocol::TCP))?;
        socket.set_nonblocking(true)?;
        if source == Source::Lan {
            make_transparent(&socket, at.is_ipv4())?;
        }
        socket.bind(&at.into())?;
        socket.listen(BACKLOG)?;
        let listener = TcpListener::from_std(socket.into())?;
        let address = listener.local_addr()?;
        Ok(Self { source, listener, address })
    }

    pub(super) const fn port(&self) -> u16 {
        self.address.port()
    }

    /// The next connection, and who made it.
    pub(super) async fn accept(&self) -> io::Result<(TcpStream, SocketAddr)> {
        let (stream, peer) = self.listener.accept().await?;
        let keep_alive = TcpKeepalive::new().with_time(KEEP_ALIVE).with_interval(KEEP_ALIVE_EVERY);
        // Without, such a connection is there for longer.
        let _ = SockRef::from(&stream).set_tcp_keepalive(&keep_alive);
        Ok((stream, peer))
    }

    /// Where a connection wanted to go. None: to the listener itself, to which nobody has to go.
    pub(super) fn destination(&self, stream: &TcpStream) -> Option<SocketAddr> {
        let destination = match self.source {
            Source::Programs => redirected(stream),
            Source::Lan => stream.local_addr(),
        };
        destination.ok().filter(|destination| *destination != self.address)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_connection_to_the_listener_itself_goes_nowhere() {
        for family in [Family::V4, Family::V6] {
            let intake = Intake::bind(Source::Programs, family).unwrap();
            let _program = TcpStream::connect(intake.address).await.unwrap();
            let (stream, _) = intake.accept().await.unwrap();
            assert_eq!(intake.destination(&stream), None);
        }
    }
}
