//! Posts of sealed uploads at full speed: the sender costs as little as can be, so that the server is what is measured.

use crate::peers::{Peer, Running};
use hoop_seal::{Grant, KwsId, Layout, Prelude, RECORD_SIZE, Route, ServiceKey, Suite, UploadKey};
use hoop_spool::Offer;
use hoop_units::{AddressKey, UnixTime, UploadId};
use std::fs::{self, File};
use std::io::{self, BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::os::fd::AsRawFd as _;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Instant, SystemTime};

/// What lies in memory of a body; longer ones are sent from it again and again.
const BLOCK_BYTES: u64 = 64 << 20;

/// What has the form of a sealed upload: a prelude with a ticket, then bytes. A gateway has no key, so it could not tell
/// the difference.
#[derive(Debug)]
pub struct SealedBody {
    /// In memory, the bytes after the prelude: all, or [`BLOCK_BYTES`] of them.
    file: File,
    block: u64,
    prelude: Vec<u8>,
    /// Bytes of Z.
    pub len: u64,
}

impl SealedBody {
    /// One with so many bytes of plaintext.
    ///
    /// # Panics
    /// If memory has no room.
    pub fn of_plaintext(len: u64) -> Self {
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).expect("a clock after 1970").as_secs();
        let expires = UnixTime(u32::try_from(now).unwrap_or(u32::MAX)).plus_secs(86_400);
        let grant = Grant {
            key: UploadKey([1; 32]),
            not_before: UnixTime(0),
            max_bytes: u64::MAX,
            route: Route::ANY,
            suite: Suite::Aes256Gcm,
        };
        let ring = hoop_seal::Keyring::new(ServiceKey::new(KwsId([1; 4]), [1; 32]));
        let ticket = ring.seal_ticket("https://bench.example", UploadId([0; 16]), expires, &grant, [1; 12]);
        let prelude = Prelude::new([1; 16], RECORD_SIZE, &ticket).expect("a valid prelude");
        let layout = Layout::for_plaintext(prelude.len(), RECORD_SIZE, len).expect("a length that can be");
        let path = Path::new("/dev/shm").join(format!("hoop-posts-{}-{len}", std::process::id()));
        let mut file = File::options().create_new(true).read(true).write(true).open(&path).expect("a file in memory");
        fs::remove_file(&path).expect("the file just made");
        let block = BLOCK_BYTES.min(layout.total());
        let bytes = vec![0xa5; usize::try_from(block).expect("a block fits into memory")];
        file.write_all(&bytes).expect("room in memory");
        Self { file, block, prelude: prelude.encode(), len: layout.total() }
    }

    /// What a store is offered of an upload of its own.
    pub fn offer(&self, id: UploadId, dest: &str, expires: UnixTime) -> Offer {
        Offer {
            id,
            prelude: self.prelude(id.0),
            total: Some(self.len),
            dest: dest.to_owned(),
            expires,
            device: AddressKey::from_ip(std::net::Ipv4Addr::LOCALHOST.into()),
            deadline: None,
        }
    }

    /// The prelude of an upload of its own.
    fn prelude(&self, id: [u8; 16]) -> Vec<u8> {
        let mut prelude = self.prelude.clone();
        // Salt 16, record size 4, length 1; then the ticket's version 1, key id 4, and the upload id.
        prelude[16 + 4 + 1 + 1 + 4..][..16].copy_from_slice(&id);
        prelude
    }
}

/// What a run cost.
#[derive(Clone, Copy, Debug)]
pub struct Cost {
    /// From the first byte to the last answer.
    pub seconds: f64,
    /// The server's processor time.
    pub cpu_seconds: f64,
    /// The server's peak.
    pub resident_kib: f64,
}

/// Sends `posts` uploads over `clients` connections, each an upload of its own.
///
/// # Panics
/// If one is not answered 201.
pub fn run(peer: Peer, server: &Running, folder: &Path, body: &SealedBody, posts: u64, clients: u64) -> Cost {
    let before = server.cpu_seconds();
    let next = AtomicU64::new(0);
    let begin = Instant::now();
    std::thread::scope(|scope| {
        for _ in 0..clients {
            scope.spawn(|| {
                let mut connection = Connection::open(server).expect("a connection");
                while next.fetch_add(1, Ordering::Relaxed) < posts {
                    connection.post(peer, folder, body).expect("the post goes through");
                }
            });
        }
    });
    let seconds = begin.elapsed().as_secs_f64();
    Cost { seconds, cpu_seconds: server.cpu_seconds() - before, resident_kib: server.peak_kib() }
}

/// A connection, and another one where a server has ended it with its answer.
struct Connection {
    address: SocketAddr,
    reader: BufReader<TcpStream>,
    ended: bool,
}

impl Connection {
    fn open(server: &Running) -> io::Result<Self> {
        Ok(Self { address: server.address, reader: connect(server.address)?, ended: false })
    }

    fn post(&mut self, peer: Peer, folder: &Path, body: &SealedBody) -> io::Result<()> {
        let id = rng()?;
        let name = id.iter().fold(String::new(), |name, byte| format!("{name}{byte:02x}"));
        let (method, path) = match peer.is_gateway() {
            true => ("POST", "/offload?dest=https%3A%2F%2F127.0.0.1%3A9%2Fhoop%2Fpost".to_owned()),
            false => ("PUT", format!("/{name}")),
        };
        let mut head =
            format!("{method} {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: {}\r\n\r\n", body.len).into_bytes();
        if self.ended {
            self.reader = connect(self.address)?;
        }
        let prelude = body.prelude(id);
        head.extend_from_slice(&prelude);
        self.reader.get_mut().write_all(&head)?;
        self.send_file(body, prelude.len() as u64)?;
        self.read_answer()?;
        if peer == Peer::NginxThenSynced {
            File::open(folder.join("data").join(name))?.sync_data()?;
            File::open(folder.join("data"))?.sync_all()?;
        }
        Ok(())
    }

    /// Sends bytes `from` to the end.
    #[allow(unsafe_code)] // sendfile: the sender must cost as little as can be
    fn send_file(&mut self, body: &SealedBody, from: u64) -> io::Result<()> {
        let mut left = body.len - from;
        let mut offset: libc::off_t = 0;
        while left > 0 {
            if offset.unsigned_abs() == body.block {
                offset = 0;
            }
            let most = left.min(body.block - offset.unsigned_abs()).min(1 << 20);
            let (socket, file) = (self.reader.get_ref().as_raw_fd(), body.file.as_raw_fd());
            // SAFETY: both descriptors are open, and `offset` is a local of the right type.
            let sent =
                unsafe { libc::sendfile(socket, file, &raw mut offset, usize::try_from(most).unwrap_or(1 << 20)) };
            match u64::try_from(sent) {
                Ok(sent) if sent > 0 => left -= sent,
                _ => return Err(io::Error::last_os_error()),
            }
        }
        Ok(())
    }

    fn read_answer(&mut self) -> io::Result<()> {
        let (mut line, mut status, mut length) = (String::new(), String::new(), 0);
        self.ended = false;
        loop {
            line.clear();
            self.reader.read_line(&mut line)?;
            if status.is_empty() {
                status.clone_from(&line);
            }
            if let Some(value) = line.to_ascii_lowercase().strip_prefix("content-length:") {
                length = value.trim().parse().unwrap_or(0);
            }
            self.ended |= line.trim_end().eq_ignore_ascii_case("connection: close");
            if line.trim_end().is_empty() {
                break;
            }
        }
        let mut body = vec![0; length];
        self.reader.read_exact(&mut body)?;
        match status.contains(" 201 ") {
            true => Ok(()),
            false => Err(io::Error::other(format!("{} {}", status.trim_end(), String::from_utf8_lossy(&body)))),
        }
    }
}

fn connect(address: SocketAddr) -> io::Result<BufReader<TcpStream>> {
    let stream = TcpStream::connect(address)?;
    stream.set_nodelay(true)?;
    Ok(BufReader::new(stream))
}

fn rng() -> io::Result<[u8; 16]> {
    let mut bytes = [0; 16];
    File::open("/dev/urandom")?.read_exact(&mut bytes)?;
    Ok(bytes)
}
