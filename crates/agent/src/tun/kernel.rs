//! What the kernel is asked for: the interface ([`interface`]), and where connections wanted to go ([`redirected`], [`make_transparent`]).

use super::error::TunError;
use socket2::Socket;
use std::fs::File;
use std::io;
use std::net::SocketAddr;
use tokio::net::TcpStream;

/// Where interfaces come from.
#[cfg(target_os = "linux")]
const DEVICE: &str = "/dev/net/tun";

/// Makes a TUN interface. It goes with the file, however this process ends.
///
/// # Errors
/// If the kernel has none, or this process may not.
#[cfg(target_os = "linux")]
pub(super) fn interface(name: &'static str) -> Result<File, TunError> {
    use rustix::fs::{Mode, OFlags, open};
    use rustix::io::Errno;
    use rustix::ioctl::{Updater, ioctl, opcode};
    /// A packet comes without anything before it (`linux/if_tun.h`).
    const TUN_WITHOUT_HEADER: u16 = 0x1001;
    /// As long as the kernel's `struct ifreq`, or longer: a name, and flags.
    const REQUEST: usize = 40;
    const FLAGS: usize = 16;
    const SET: rustix::ioctl::Opcode = opcode::write::<std::ffi::c_int>(b'T', 202);
    let opened = open(DEVICE, OFlags::RDWR | OFlags::NONBLOCK | OFlags::CLOEXEC, Mode::empty());
    let file = opened.map_err(|error| match error {
        Errno::NOENT | Errno::NODEV | Errno::NXIO => TunError::NoDevice,
        Errno::ACCESS | Errno::PERM => TunError::Denied,
        error => TunError::System(error.into()),
    })?;
    let mut request = [0_u8; REQUEST];
    request[..name.len()].copy_from_slice(name.as_bytes());
    request[FLAGS..FLAGS + 2].copy_from_slice(&TUN_WITHOUT_HEADER.to_ne_bytes());
    // SAFETY: TUNSETIFF reads and writes one `struct ifreq`, for which the buffer is long enough; nothing of it is a pointer.
    #[allow(unsafe_code, reason = "no crate of ours has this call")]
    let made = unsafe { ioctl(&file, Updater::<SET, _>::new(&mut request)) };
    made.map_err(|error| match error {
        Errno::PERM => TunError::Denied,
        Errno::BUSY => TunError::Taken(name),
        error => TunError::System(error.into()),
    })?;
    Ok(file.into())
}

/// Where a connection wanted to go that was redirected here.
///
/// # Errors
/// If it was not.
#[cfg(target_os = "linux")]
pub(super) fn redirected(stream: &TcpStream) -> io::Result<SocketAddr> {
    let socket = socket2::SockRef::from(stream);
    let original = if stream.local_addr()?.is_ipv4() { socket.original_dst_v4() } else { socket.original_dst_v6() };
    original?.as_socket().ok_or_else(|| io::ErrorKind::InvalidData.into())
}

/// Has a socket take connections to addresses that are not this machine's. They are then the connections' own addresses.
///
/// # Errors
/// If this process may not.
#[cfg(target_os = "linux")]
pub(super) fn make_transparent(socket: &Socket, is_ipv4: bool) -> io::Result<()> {
    if is_ipv4 { socket.set_ip_transparent_v4(true) } else { socket.set_ip_transparent_v6(true) }
}

/// Other systems do this in other ways.
#[cfg(not(target_os = "linux"))]
mod elsewhere {
    use super::*;

    pub(in super::super) fn interface(_: &'static str) -> Result<File, TunError> {
        Err(TunError::NoDevice)
    }

    pub(in super::super) fn redirected(_: &TcpStream) -> io::Result<SocketAddr> {
        Err(io::ErrorKind::Unsupported.into())
    }

    pub(in super::super) fn make_transparent(_: &Socket, _: bool) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }
}

#[cfg(not(target_os = "linux"))]
pub(super) use elsewhere::{interface, make_transparent, redirected};
