//! Where a device's carriers leave from: [`Local`].

use socket2::{Domain, Protocol, SockAddr, Socket, Type};
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};

/// What a UDP socket buffers each way, in bytes: some 60 ms at 300 Mbit/s. It is asked for; the system may grant less, and takes memory only for what waits.
const UDP_BUFFER: usize = 2 << 20;

/// The way out of this machine that carriers take; by default the one that the system finds.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Local {
    /// A local address. Without one, any of either family.
    pub address: Option<IpAddr>,
    /// A network interface by its name (`SO_BINDTODEVICE`; on systems that have no such thing it is an error).
    pub interface: Option<String>,
    /// The mark of its packets, by which the system's routing rules know them (`SO_MARK`; it takes `CAP_NET_ADMIN`, and Linux).
    pub mark: Option<u32>,
}

impl Local {
    /// A fresh UDP socket: of both families where no address is asked for and the system has IPv6.
    pub(crate) fn udp(&self) -> io::Result<UdpSocket> {
        match self.address {
            Some(address) => self.udp_at(address),
            None => self.udp_at(Ipv6Addr::UNSPECIFIED.into()).or_else(|_| self.udp_at(Ipv4Addr::UNSPECIFIED.into())),
        }
    }

    fn udp_at(&self, address: IpAddr) -> io::Result<UdpSocket> {
        let socket = udp_socket(SocketAddr::new(address, 0))?;
        self.choose_way(&socket)?;
        socket.bind(&SocketAddr::new(address, 0).into())?;
        Ok(socket.into())
    }

    /// A TCP socket that is not connected yet.
    pub(crate) fn tcp(&self, server: SocketAddr) -> io::Result<Socket> {
        let socket = Socket::new(Domain::for_address(server), Type::STREAM, Some(Protocol::TCP))?;
        socket.set_nonblocking(true)?;
        self.choose_way(&socket)?;
        if let Some(address) = self.address {
            socket.bind(&SockAddr::from(SocketAddr::new(address, 0)))?;
        }
        Ok(socket)
    }

    #[cfg(any(target_os = "linux", target_os = "android"))]
    fn choose_way(&self, socket: &Socket) -> io::Result<()> {
        self.mark.map_or(Ok(()), |mark| socket.set_mark(mark))?;
        self.interface.as_ref().map_or(Ok(()), |name| socket.bind_device(Some(name.as_bytes())))
    }

    #[cfg(not(any(target_os = "linux", target_os = "android")))]
    fn choose_way(&self, _: &Socket) -> io::Result<()> {
        match (&self.interface, self.mark) {
            (None, None) => Ok(()),
            _ => {
                Err(io::Error::new(io::ErrorKind::Unsupported, "this system binds no socket to an interface or a mark"))
            }
        }
    }
}

/// A UDP socket for this address, not bound yet; for `[::]` of both families.
pub(crate) fn udp_socket(address: SocketAddr) -> io::Result<Socket> {
    let socket = Socket::new(Domain::for_address(address), Type::DGRAM, Some(Protocol::UDP))?;
    if address.ip() == IpAddr::V6(Ipv6Addr::UNSPECIFIED) {
        socket.set_only_v6(false)?;
    }
    // What the system grants is what there is.
    let _ = socket.set_recv_buffer_size(UDP_BUFFER);
    let _ = socket.set_send_buffer_size(UDP_BUFFER);
    Ok(socket)
}
