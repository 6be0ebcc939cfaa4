//! A program's connection, and whose it is: [`ProgramSocket`], [`owner`].

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::sync::OwnedSemaphorePermit;

/// A program's connection. If it is dropped while something is [`UnderWay`], it is reset: the program reads `ECONNRESET`, and takes no part for the whole.
#[derive(Debug)]
pub(crate) struct ProgramSocket {
    stream: TcpStream,
    under_way: UnderWay,
    _place: OwnedSemaphorePermit,
}

/// Whether a program's connection carries something that has not ended.
#[derive(Clone, Debug, Default)]
pub(crate) struct UnderWay(Arc<AtomicBool>);

impl UnderWay {
    /// Something begins.
    pub(crate) fn begins(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    /// All of it was passed on.
    pub(crate) fn ends(&self) {
        self.0.store(false, Ordering::Relaxed);
    }
}

impl ProgramSocket {
    /// `place` is given back when the connection has ended, whoever has it by then.
    pub(crate) fn new(stream: TcpStream, place: OwnedSemaphorePermit) -> Self {
        // A head and the first bytes of a body are writes of their own.
        let _ = stream.set_nodelay(true);
        Self { stream, under_way: UnderWay::default(), _place: place }
    }

    pub(crate) fn under_way(&self) -> UnderWay {
        self.under_way.clone()
    }
}

impl Drop for ProgramSocket {
    fn drop(&mut self) {
        if self.under_way.0.load(Ordering::Relaxed) {
            let _ = self.stream.set_zero_linger();
        }
    }
}

impl AsyncRead for ProgramSocket {
    fn poll_read(mut self: Pin<&mut Self>, context: &mut Context<'_>, into: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(context, into)
    }
}

impl AsyncWrite for ProgramSocket {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, from: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(context, from)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        from: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(context, from)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

/// The user of the process at the other end of a connection on loopback, by the kernel's table of sockets. None: it is not there, as when the process has
/// closed it already.
pub(crate) fn owner(program: SocketAddr, ours: SocketAddr) -> Option<u32> {
    let find = |table: &str, ends: [SocketAddr; 2]| owner_in(&std::fs::read_to_string(table).ok()?, ends[0], ends[1]);
    // Some programs, such as Java's, have sockets of IPv6 for IPv4, too.
    let of_ipv4 = || program.is_ipv4().then(|| find("/proc/net/tcp", [program, ours])).flatten();
    of_ipv4().or_else(|| find("/proc/net/tcp6", [program, ours].map(as_ipv6)))
}

/// An address as a socket of IPv6 has it (RFC 4291 §2.5.5.2).
fn as_ipv6(address: SocketAddr) -> SocketAddr {
    let ip = match address.ip() {
        IpAddr::V4(v4) => v4.to_ipv6_mapped(),
        IpAddr::V6(v6) => v6,
    };
    (ip, address.port()).into()
}

fn owner_in(table: &str, program: SocketAddr, ours: SocketAddr) -> Option<u32> {
    let wanted = format!("{} {}", place(program), place(ours));
    // sl local_address rem_address st queues timer retransmits uid
    let line =
        table.lines().skip(1).find(|line| line.split_once(": ").is_some_and(|(_, rest)| rest.starts_with(&wanted)))?;
    line.split_ascii_whitespace().nth(7)?.parse().ok()
}

/// An address as the kernel writes it there: words of the machine's order.
fn place(address: SocketAddr) -> String {
    let ip: String = match address.ip() {
        IpAddr::V4(v4) => format!("{:08X}", u32::from_ne_bytes(v4.octets())),
        IpAddr::V6(v6) => {
            v6.octets().as_chunks::<4>().0.iter().map(|word| format!("{:08X}", u32::from_ne_bytes(*word))).collect()
        }
    };
    format!("{ip}:{:04X}", address.port())
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::process::geteuid;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::TcpListener;
    use tokio::sync::Semaphore;

    async fn pair(at: &str) -> (TcpStream, TcpStream) {
        let listener = TcpListener::bind(at).await.unwrap();
        let program = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        (program, listener.accept().await.unwrap().0)
    }

    #[tokio::test]
    async fn a_program_may_have_a_socket_of_ipv6_for_ipv4() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let _program = TcpStream::connect(as_ipv6(listener.local_addr().unwrap())).await.unwrap();
        let (ours, program) = listener.accept().await.unwrap();
        assert_eq!(owner(program, ours.local_addr().unwrap()), Some(geteuid().as_raw()));
    }

    #[tokio::test]
    async fn what_is_not_all_reads_as_a_reset_and_what_is_as_an_end() {
        for breaks in [true, false] {
            let (mut program, ours) = pair("127.0.0.1:0").await;
            let place = Arc::new(Semaphore::new(1)).acquire_owned().await.unwrap();
            let mut ours = ProgramSocket::new(ours, place);
            ours.write_all(b"half").await.unwrap();
            let mut half = [0; 4];
            program.read_exact(&mut half).await.unwrap();
            ours.under_way().begins();
            if !breaks {
                ours.under_way().ends();
            }
            drop(ours);
            let read = program.read(&mut half).await;
            match breaks {
                true => assert_eq!(read.unwrap_err().kind(), io::ErrorKind::ConnectionReset),
                false => assert_eq!(read.unwrap(), 0),
            }
        }
    }

    #[tokio::test]
    async fn a_connections_owner_is_who_runs_the_program() {
        for at in ["127.0.0.1:0", "[::1]:0"] {
            let (program, ours) = pair(at).await;
            let (program, ours) = (program.local_addr().unwrap(), ours.local_addr().unwrap());
            assert_eq!(owner(program, ours), Some(geteuid().as_raw()), "{at}");
            assert_eq!(owner(ours, SocketAddr::new(ours.ip(), 1)), None);
        }
    }

    #[test]
    fn the_owner_is_in_the_line_of_the_programs_end() {
        let table = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n\
            \x20  0: 0100007F:1241 0100007F:C350 01 00000000:00000000 00:00000000 00000000     0        0 1 1\n\
            \x20  1: 0100007F:C350 0100007F:1241 01 00000000:00000000 00:00000000 00000000  1000        0 2 1\n";
        let (program, ours) = ("127.0.0.1:50000".parse().unwrap(), "127.0.0.1:4673".parse().unwrap());
        if cfg!(target_endian = "little") {
            assert_eq!(owner_in(table, program, ours), Some(1000));
        }
        assert_eq!(owner_in("", program, ours), None);
    }
}
