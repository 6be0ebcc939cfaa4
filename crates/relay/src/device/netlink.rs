//! Whether the machine's networks have changed: [`Changes`].

use std::io;
#[cfg(target_os = "linux")]
use std::time::Duration;
#[cfg(target_os = "linux")]
use tokio::time::timeout;

/// Told by the kernel that an interface went up or down, or that an address or a route came or went. Where it tells nobody, as Android tells no application, nothing is ever told:
/// a carrier that is gone is then noticed by its silence.
#[cfg(target_os = "linux")]
pub struct Changes {
    /// None: the kernel does not tell.
    socket: Option<tokio::io::unix::AsyncFd<std::os::fd::OwnedFd>>,
    /// Something has changed that nobody was told of.
    is_pending: bool,
}

#[cfg(target_os = "linux")]
impl Changes {
    /// Listens from now on.
    #[allow(clippy::unnecessary_wraps, reason = "whoever listens is ready for an error")]
    pub fn listen() -> io::Result<Self> {
        let told = Self::socket()
            .inspect_err(|error| tracing::debug!(%error, "the kernel does not tell when networks change"));
        Ok(Self { socket: told.ok(), is_pending: false })
    }

    fn socket() -> io::Result<tokio::io::unix::AsyncFd<std::os::fd::OwnedFd>> {
        use nix::sys::socket::{AddressFamily, NetlinkAddr, SockFlag, SockProtocol, SockType, bind, socket};
        use std::os::fd::AsRawFd as _;
        const LINK: u32 = 0x1;
        const ADDRESS_V4: u32 = 0x10;
        const ROUTE_V4: u32 = 0x40;
        const ADDRESS_V6: u32 = 0x100;
        const ROUTE_V6: u32 = 0x400;
        let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
        let socket = socket(AddressFamily::Netlink, SockType::Raw, flags, SockProtocol::NetlinkRoute)?;
        let groups = LINK | ADDRESS_V4 | ROUTE_V4 | ADDRESS_V6 | ROUTE_V6;
        bind(socket.as_raw_fd(), &NetlinkAddr::new(0, groups))?;
        // SAFETY: the descriptor is owned, so it is the same and open for as long as it is registered.
        #[allow(unsafe_code, reason = "tokio asks for that promise")]
        unsafe { tokio::io::unix::AsyncFd::register(socket) }.map_err(io::Error::from)
    }

    /// Waits for the next change; those that come together are one. Dropping it while it waits loses none.
    pub async fn next(&mut self) -> io::Result<()> {
        if !self.is_pending {
            self.drain().await?;
            self.is_pending = true;
        }
        // An interface comes with its addresses and routes, a message each; it is of no use before its routes are there.
        let together = async { while timeout(QUIET, self.drain()).await.is_ok_and(|drained| drained.is_ok()) {} };
        let _ = timeout(TOGETHER, together).await;
        self.is_pending = false;
        Ok(())
    }

    /// Waits for messages, and reads them all: what they say is not looked at.
    async fn drain(&self) -> io::Result<()> {
        use nix::errno::Errno;
        use std::os::fd::AsRawFd as _;
        let Some(socket) = &self.socket else { return std::future::pending().await };
        let mut guard = socket.readable().await?;
        let mut message = [0; 8192];
        loop {
            match nix::unistd::read(guard.get_inner(), &mut message) {
                // More came than it holds: that is a change, too.
                Ok(_) | Err(Errno::ENOBUFS | Errno::EINTR) => {}
                Err(Errno::EAGAIN) => {
                    guard.clear_ready();
                    return Ok(());
                }
                Err(error) => {
                    tracing::debug!(%error, fd = guard.get_inner().as_raw_fd(), "the kernel tells of no more changes");
                    return Err(error.into());
                }
            }
        }
    }
}

/// Messages that are no further apart come together: the kernel says at once all that follows from one cause. A tenth of a round trip of most networks, since flows wait for it.
#[cfg(target_os = "linux")]
const QUIET: Duration = Duration::from_millis(5);

/// After so long it is told though there is no quiet.
#[cfg(target_os = "linux")]
const TOGETHER: Duration = Duration::from_millis(50);

/// Elsewhere nobody tells.
#[cfg(not(target_os = "linux"))]
pub struct Changes;

#[cfg(not(target_os = "linux"))]
impl Changes {
    /// Listens from now on.
    pub fn listen() -> io::Result<Self> {
        Ok(Self)
    }

    /// Waits for ever.
    pub async fn next(&mut self) -> io::Result<()> {
        std::future::pending().await
    }
}
