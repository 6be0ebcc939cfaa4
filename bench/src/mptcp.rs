//! Transfers over the kernel's MPTCP (RFC 8684), as a peer of flows. What is asked for: a letter for the way, and how many bytes.

use std::io::{self, Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

/// Where a server of these listens.
const PORT: u16 = 4437;

const BLOCK: usize = 64 * 1024;

fn socket(bbr: bool) -> io::Result<socket2::Socket> {
    use socket2::{Domain, Protocol, Socket, Type};
    const IPPROTO_MPTCP: i32 = 262;
    let socket = Socket::new(Domain::IPV4, Type::STREAM, Some(Protocol::from(IPPROTO_MPTCP)))?;
    if bbr {
        // Without it, the kernel's own: the table is no judge of MPTCP then.
        let _ = socket.set_tcp_congestion(b"bbr");
    }
    Ok(socket)
}

/// Answers in threads of its own, if the system has such connections.
pub fn serve(bbr: bool) {
    let Ok(socket) = socket(bbr) else { return };
    let listening = socket.bind(&SocketAddr::from((Ipv4Addr::UNSPECIFIED, PORT)).into());
    listening.and_then(|()| socket.listen(8)).expect("it listens");
    let listener = TcpListener::from(socket);
    thread::spawn(move || {
        while let Ok((stream, _)) = listener.accept() {
            // Whoever is gone need not be told.
            thread::spawn(move || answer(stream));
        }
    });
}

fn answer(mut stream: TcpStream) -> io::Result<()> {
    let mut asked = [0; 9];
    stream.read_exact(&mut asked)?;
    let len = u64::from_be_bytes(asked[1..].try_into().expect("eight bytes")) as usize;
    match asked[0] {
        b'd' => give(&mut stream, len),
        _ => {
            let gap = take(&mut stream, len)?;
            stream.write_all(&(gap.as_micros() as u64).to_be_bytes())
        }
    }
}

/// Moves so many bytes, down from the server or up to it. How long that took, and the longest time in which nothing came.
///
/// # Errors
/// If the system has no such connections, or one breaks off.
pub fn transfer(server: Ipv4Addr, bytes: usize, down: bool, bbr: bool) -> io::Result<(Duration, Duration)> {
    let socket = socket(bbr)?;
    let begin = Instant::now();
    socket.connect(&SocketAddr::from((server, PORT)).into())?;
    let mut stream = TcpStream::from(socket);
    let mut asked = vec![if down { b'd' } else { b'u' }];
    asked.extend((bytes as u64).to_be_bytes());
    stream.write_all(&asked)?;
    let gap = if down {
        take(&mut stream, bytes)?
    } else {
        give(&mut stream, bytes)?;
        let mut gap = [0; 8];
        stream.read_exact(&mut gap)?;
        Duration::from_micros(u64::from_be_bytes(gap))
    };
    Ok((begin.elapsed(), gap))
}

fn give(stream: &mut TcpStream, mut left: usize) -> io::Result<()> {
    let block = vec![7; BLOCK];
    while left > 0 {
        let len = left.min(block.len());
        stream.write_all(&block[..len])?;
        left -= len;
    }
    Ok(())
}

fn take(stream: &mut TcpStream, mut left: usize) -> io::Result<Duration> {
    let (mut block, mut gap, mut last) = (vec![0; BLOCK], Duration::ZERO, None);
    while left > 0 {
        match stream.read(&mut block)? {
            0 => return Err(io::ErrorKind::UnexpectedEof.into()),
            len => left -= len,
        }
        let now = Instant::now();
        gap = last.map_or(gap, |last| gap.max(now - last));
        last = Some(now);
    }
    Ok(gap)
}
