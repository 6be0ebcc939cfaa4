//! Whose socket the other end of a connection on loopback is: [`Owners`].
//!
//! The kernel is asked for that one socket (`NETLINK_SOCK_DIAG`, sock_diag(7)), which takes some microseconds however many sockets there are. A kernel that cannot say has a table of all
//! (`/proc/net/tcp`). That is read beside everything else, and by one at a time.
//!
//! A socket that no process has any more is there for a while: it waits for the other end (`FIN_WAIT2`), or for what is late (`TIME_WAIT`). Its user is then 0, as if it were root's, and its
//! inode is 0, which no process's socket has.
//!
//! ```text
//! question = length (4) | 20 (2) | 1 (2) | 0 (8) | family (1) | 6 (1) | 0 (2) | all states (4) | socket
//! socket   = port (2, as on the wire) | port of the other end | address (16) | address of the other end | 0 (4) | no cookie (8)
//! answer   = length (4) | 20 (2) | 10 bytes | family (1) | state (1) | 2 bytes | socket | 12 bytes | user (4) | inode (4)
//! failure  = length (4) | 2 (2) | 10 bytes | error, negative (4)
//! ```

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use tokio::sync::Mutex;

/// Looks up whose sockets are.
#[derive(Debug, Default)]
pub struct Owners {
    /// The kernel has named a socket, so one that it does not know is none.
    answers: AtomicBool,
    /// Whoever reads the table of all sockets.
    reads: Arc<Mutex<()>>,
}

impl Owners {
    /// The user of the process that has the other end of a connection. None: no process has it, as when it has closed it already.
    ///
    /// # Errors
    /// If the kernel does not say.
    pub async fn of(&self, program: SocketAddr, ours: SocketAddr) -> io::Result<Option<u32>> {
        let (program, ours) = (canonical(program), canonical(ours));
        match self.ask(program, ours) {
            Ok(owner) => Ok(owner),
            Err(error) => {
                tracing::debug!(%error, "the kernel is not asked for one socket");
                let _reads = self.reads.clone().lock_owned().await;
                tokio::task::spawn_blocking(move || in_tables(program, ours)).await?
            }
        }
    }

    /// Asks for the socket. A kernel without that part says of each that it does not know it; it knows our own.
    fn ask(&self, program: SocketAddr, ours: SocketAddr) -> io::Result<Option<u32>> {
        let owner = ask(program, ours)?;
        let answers = owner.is_some() || self.answers.load(Ordering::Relaxed) || ask(ours, program)?.is_some();
        self.answers.fetch_or(answers, Ordering::Relaxed);
        answers.then_some(owner).ok_or_else(|| io::ErrorKind::Unsupported.into())
    }
}

/// Programs may have sockets of IPv6 for IPv4.
fn canonical(address: SocketAddr) -> SocketAddr {
    (address.ip().to_canonical(), address.port()).into()
}

#[cfg(target_os = "linux")]
fn ask(end: SocketAddr, other: SocketAddr) -> io::Result<Option<u32>> {
    use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, netlink, recv, send, socket_with};
    // The answer is there when the question was taken: nothing waits for it.
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = socket_with(AddressFamily::NETLINK, SocketType::DGRAM, flags, Some(netlink::SOCK_DIAG))?;
    send(&socket, &question(end, other), SendFlags::empty())?;
    let mut answer = [0; 512];
    let (read, _) = recv(&socket, &mut answer, RecvFlags::empty())?;
    owner_in_answer(&answer[..read], end, other)
}

#[cfg(not(target_os = "linux"))]
fn ask(_: SocketAddr, _: SocketAddr) -> io::Result<Option<u32>> {
    Err(io::ErrorKind::Unsupported.into())
}

const BY_FAMILY: u16 = 20;
const ERROR: u16 = 2;
const REQUEST: u16 = 1;
const TCP: u8 = 6;
const V4: u8 = 2;
const V6: u8 = 10;
const HEADER: usize = 16;
const QUESTION: usize = HEADER + 56;

fn question(end: SocketAddr, other: SocketAddr) -> Vec<u8> {
    let mut question = Vec::with_capacity(QUESTION);
    question.extend((QUESTION as u32).to_ne_bytes());
    question.extend(BY_FAMILY.to_ne_bytes());
    question.extend(REQUEST.to_ne_bytes());
    question.extend([0; 8]);
    question.extend([if end.is_ipv4() { V4 } else { V6 }, TCP, 0, 0]);
    question.extend(u32::MAX.to_ne_bytes());
    question.extend(end.port().to_be_bytes());
    question.extend(other.port().to_be_bytes());
    question.extend(address(end.ip()));
    question.extend(address(other.ip()));
    question.extend([0; 4]);
    question.extend([u8::MAX; 8]);
    question
}

fn address(ip: IpAddr) -> [u8; 16] {
    match ip {
        IpAddr::V4(v4) => {
            let mut address = [0; 16];
            address[..4].copy_from_slice(&v4.octets());
            address
        }
        IpAddr::V6(v6) => v6.octets(),
    }
}

fn owner_in_answer(answer: &[u8], end: SocketAddr, other: SocketAddr) -> io::Result<Option<u32>> {
    let number = |at| answer.get(at..at + 4)?.try_into().ok().map(u32::from_ne_bytes);
    let port = |at| answer.get(at..at + 2)?.try_into().ok().map(u16::from_be_bytes);
    let kind = answer.get(4..6).and_then(|kind| kind.try_into().ok()).map(u16::from_ne_bytes);
    match kind {
        Some(BY_FAMILY) => {
            let (user, inode) = number(HEADER + 64).zip(number(HEADER + 68)).ok_or(io::ErrorKind::InvalidData)?;
            // Where there is no such connection, the kernel names who listens at that port.
            let is_it = port(HEADER + 4) == Some(end.port()) && port(HEADER + 6) == Some(other.port());
            Ok((is_it && inode != 0).then_some(user))
        }
        Some(ERROR) => {
            let error = number(HEADER).map_or(0, |error| (error as i32).wrapping_neg());
            match io::Error::from_raw_os_error(error) {
                error if error.kind() == io::ErrorKind::NotFound => Ok(None),
                error => Err(error),
            }
        }
        _ => Err(io::ErrorKind::InvalidData.into()),
    }
}

/// Looks for it among all sockets.
fn in_tables(program: SocketAddr, ours: SocketAddr) -> io::Result<Option<u32>> {
    let find = |table, ends: [SocketAddr; 2]| Ok(owner_in(&std::fs::read_to_string(table)?, ends[0], ends[1]));
    let of_ipv4 = if program.is_ipv4() { find("/proc/net/tcp", [program, ours])? } else { None };
    match of_ipv4 {
        // A machine may have no IPv6.
        None => find("/proc/net/tcp6", [program, ours].map(as_ipv6)).or_else(|error: io::Error| {
            let is_none = error.kind() == io::ErrorKind::NotFound && program.is_ipv4();
            if is_none { Ok(None) } else { Err(error) }
        }),
        owner => Ok(owner),
    }
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
    // sl local_address rem_address st queues timer retransmits uid timeout inode
    let line =
        table.lines().skip(1).find(|line| line.split_once(": ").is_some_and(|(_, rest)| rest.starts_with(&wanted)))?;
    let mut fields = line.split_ascii_whitespace().skip(7);
    let (user, inode) = (fields.next()?, fields.nth(1)?);
    if inode == "0" { None } else { user.parse().ok() }
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
    use std::time::Duration;
    use tokio::io::AsyncWriteExt as _;
    use tokio::net::{TcpListener, TcpStream};
    use tokio::time::timeout;

    /// A program's connection, ours, and both ends' addresses.
    async fn connected(listen: &str, is_mapped: bool) -> (TcpStream, TcpStream, [SocketAddr; 2]) {
        let listener = TcpListener::bind(listen).await.unwrap();
        let address = listener.local_addr().unwrap();
        let program = TcpStream::connect(if is_mapped { as_ipv6(address) } else { address }).await.unwrap();
        let (ours, peer) = listener.accept().await.unwrap();
        (program, ours, [peer, address])
    }

    /// By both ways of looking.
    async fn owner_of([program, ours]: [SocketAddr; 2]) -> Option<u32> {
        let owners = Owners::default();
        let asked = owners.of(program, ours).await.unwrap();
        assert_eq!(in_tables(program, ours).unwrap(), asked, "{program}");
        asked
    }

    #[tokio::test]
    async fn a_connections_owner_is_who_runs_the_program() {
        for (listen, is_mapped) in [("127.0.0.1:0", false), ("127.0.0.1:0", true), ("[::1]:0", false)] {
            let (mut program, _ours, [end, other]) = connected(listen, is_mapped).await;
            let user = Some(geteuid().as_raw());
            assert_eq!(owner_of([end, other]).await, user, "{listen}");
            program.shutdown().await.unwrap();
            assert_eq!(owner_of([end, other]).await, user, "it reads still: {listen}");
            assert_eq!(owner_of([other, SocketAddr::new(other.ip(), 1)]).await, None);
        }
    }

    #[tokio::test]
    async fn a_socket_that_no_process_has_is_nobodys_and_not_roots() {
        for listen in ["127.0.0.1:0", "[::1]:0"] {
            let (program, ours, ends) = connected(listen, false).await;
            drop(program);
            assert_eq!(owner_of(ends).await, None, "it waits for our end");
            drop(ours);
            assert_eq!(owner_of(ends).await, None, "it waits for what is late");
        }
    }

    /// A table of all sockets can be long: another user's connections make it so.
    #[cfg(target_os = "linux")]
    #[tokio::test]
    async fn the_kernel_is_asked_for_one_socket_and_not_for_all() {
        let (_program, _ours, [end, other]) = connected("127.0.0.1:0", false).await;
        let owners = Owners::default();
        assert_eq!(owners.ask(end, other).unwrap(), Some(geteuid().as_raw()));
        assert!(owners.answers.load(Ordering::Relaxed));
        // Nobody reads the table for it.
        let _reads = owners.reads.lock().await;
        let nobody = SocketAddr::new(other.ip(), 1);
        for (other, owner) in [(other, Some(geteuid().as_raw())), (nobody, None)] {
            let found = timeout(Duration::from_secs(20), owners.of(end, other)).await.expect("it is found");
            assert_eq!(found.unwrap(), owner);
        }
    }

    #[test]
    fn an_answer_of_the_kernel_names_the_user_or_says_why_not() {
        let (end, other) = ("127.0.0.1:50000".parse().unwrap(), "127.0.0.1:4673".parse().unwrap());
        let mut answer = question(end, other);
        answer.splice(HEADER..HEADER + 8, [V4, 1, 0, 0]);
        answer.extend([0; 12]);
        answer.extend([1_000_u32, 7].map(u32::to_ne_bytes).as_flattened());
        let owner = |answer: &[u8]| owner_in_answer(answer, end, other);
        assert_eq!(owner(&answer).unwrap(), Some(1_000));
        for len in 0..answer.len() {
            assert!(owner(&answer[..len]).is_err(), "{len}");
        }
        let listener = [&answer[..HEADER + 6], &[0, 0], &answer[HEADER + 8..]].concat();
        assert_eq!(owner(&listener).unwrap(), None);
        let orphan = [&answer[..answer.len() - 4], &[0; 4]].concat();
        assert_eq!(owner(&orphan).unwrap(), None);
        answer[4..6].copy_from_slice(&ERROR.to_ne_bytes());
        for (code, is_known) in [(-2_i32, true), (-95, false), (0, false), (i32::MIN, false)] {
            answer[HEADER..HEADER + 4].copy_from_slice(&code.to_ne_bytes());
            assert_eq!(owner(&answer).ok(), is_known.then_some(None), "{code}");
        }
    }

    #[test]
    fn the_owner_is_in_the_line_of_the_programs_end() {
        let table = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n\
            \x20  0: 0100007F:1241 0100007F:C350 01 00000000:00000000 00:00000000 00000000     0        0 1 1\n\
            \x20  1: 0100007F:C350 0100007F:1241 01 00000000:00000000 00:00000000 00000000  1000        0 2 1\n\
            \x20  2: 0100007F:C351 0100007F:1241 06 00000000:00000000 03:00001770 00000000     0        0 0 3 1\n";
        let (program, ours) = ("127.0.0.1:50000".parse().unwrap(), "127.0.0.1:4673".parse().unwrap());
        if cfg!(target_endian = "little") {
            assert_eq!(owner_in(table, program, ours), Some(1000));
            assert_eq!(owner_in(table, "127.0.0.1:50001".parse().unwrap(), ours), None);
        }
        assert_eq!(owner_in("", program, ours), None);
    }
}
