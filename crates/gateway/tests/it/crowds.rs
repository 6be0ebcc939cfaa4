//! Crowds that hold what they can: more connections than there are, of each kind that costs its sender nothing, which come again whenever they are ended. While a
//! crowd stands, honest requests are answered and uploads are taken. Loopback addresses stand for devices.

use crate::support::service::{Service, Weather};
use crate::support::{GENEROUS, LATER, Running, config, id_of, sealed, start};
use hoop_gateway::{BodyTimeouts, DeviceLimits};
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;
use tempfile::TempDir;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpSocket, TcpStream};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

/// Connections of a crowd: more than all 48 that are served, and all that wait.
const CROWD: u16 = 304;

/// Long enough for a crowd to have come.
const STANDS: Duration = Duration::from_millis(500);

/// When a connection that was ended comes again.
const AGAIN: Duration = Duration::from_millis(500);

const HOUR: Duration = Duration::from_secs(3600);

const HONEST: Ipv4Addr = Ipv4Addr::new(127, 8, 8, 8);

/// What a connection of a crowd does.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Kind {
    SaysNothing,
    HeadNeverEnds,
    RestsAfterARequest,
    BodyNeverEnds,
    BodyDrips,
    AnswerIsNotRead,
    EventsAreHeld,
}

const KINDS: [Kind; 7] = [
    Kind::SaysNothing,
    Kind::HeadNeverEnds,
    Kind::RestsAfterARequest,
    Kind::BodyNeverEnds,
    Kind::BodyDrips,
    Kind::AnswerIsNotRead,
    Kind::EventsAreHeld,
];

impl Kind {
    /// What the `n`th connection sends.
    fn sends(self, n: u16, dest: &str) -> Vec<u8> {
        let get =
            |path: &str, more: &str| format!("GET {path} HTTP/1.1\r\nHost: hoop.local\r\n{more}\r\n").into_bytes();
        match self {
            Self::SaysNothing => Vec::new(),
            Self::HeadNeverEnds => b"GET /test HTTP/1.1\r\nHost: hoop.loc".to_vec(),
            Self::RestsAfterARequest => get("/test", ""),
            Self::BodyNeverEnds | Self::BodyDrips => {
                let head =
                    format!("POST /offload?dest={dest} HTTP/1.1\r\nHost: hoop.local\r\nContent-Length: 900000\r\n\r\n");
                let z = sealed((n % 250) as u8, 10, LATER);
                [head.as_bytes(), &z[..128]].concat()
            }
            Self::AnswerIsNotRead => get("/", "").repeat(200),
            Self::EventsAreHeld => get("/", "Accept: text/event-stream\r\n"),
        }
    }
}

/// A gateway that cuts nobody off for being slow: who comes has to get a place from who is there.
async fn gateway() -> (Running, TempDir) {
    let folder = tempfile::tempdir().unwrap();
    let mut config = config(folder.path());
    config.device = DeviceLimits {
        quota_bytes: Some(0),
        uploads: 0,
        begun_per_minute: 0,
        requests_per_second: 0,
        loopback: true,
        ..DeviceLimits::default()
    };
    config.body_timeouts = BodyTimeouts { silence: HOUR, least_bytes: 1, within: HOUR };
    (config.limits.head_timeout, config.limits.idle_timeout, config.limits.least_read) = (HOUR, HOUR, None);
    (start(config).await, folder)
}

async fn connect(from: Ipv4Addr, to: SocketAddr, receive_buffer: Option<u32>) -> io::Result<TcpStream> {
    let socket = TcpSocket::new_v4()?;
    receive_buffer.map_or(Ok(()), |bytes| socket.set_recv_buffer_size(bytes))?;
    socket.bind((from, 0).into())?;
    socket.connect(to).await
}

/// One connection of a crowd, which tries to stay until it is ended.
async fn holds(kind: Kind, sends: &[u8], from: Ipv4Addr, to: SocketAddr) -> io::Result<()> {
    let mut stream = connect(from, to, Some(4096)).await?;
    stream.write_all(sends).await?;
    loop {
        sleep(Duration::from_millis(50)).await;
        match kind {
            Kind::BodyDrips => stream.write_all(b"x").await?,
            // Reads nothing, not even the end.
            Kind::AnswerIsNotRead if stream.ready(tokio::io::Interest::READABLE).await?.is_read_closed() => {
                return Ok(());
            }
            Kind::AnswerIsNotRead => {}
            _ => match stream.try_read(&mut [0; 4096]) {
                Ok(0) => return Ok(()),
                Err(error) if error.kind() != io::ErrorKind::WouldBlock => return Err(error),
                _ => {}
            },
        }
    }
}

/// A crowd that comes again and again, until this is dropped.
fn crowd(kind: Kind, dest: &str, source: fn(u16) -> Ipv4Addr, to: SocketAddr) -> JoinSet<()> {
    let mut crowd = JoinSet::new();
    for n in 0..CROWD {
        let (sends, from) = (kind.sends(n, dest), source(n));
        crowd.spawn(async move {
            loop {
                let _ = holds(kind, &sends, from, to).await;
                sleep(AGAIN).await;
            }
        });
    }
    crowd
}

/// One address each, in networks of their own.
fn far(n: u16) -> Ipv4Addr {
    let [high, low] = n.to_be_bytes();
    Ipv4Addr::new(127, 16 + high, low, 1)
}

/// 52 addresses in the honest device's own network.
fn near(n: u16) -> Ipv4Addr {
    Ipv4Addr::new(127, 8, 8, 100 + (n % 52) as u8)
}

/// The status of the answer to an honest request.
async fn asks(to: SocketAddr, head: &str, body: &[u8]) -> String {
    let asking = async {
        let mut stream = connect(HONEST, to, None).await?;
        let length = body.len();
        let head =
            format!("{head} HTTP/1.1\r\nHost: hoop.local\r\nConnection: close\r\nContent-Length: {length}\r\n\r\n");
        stream.write_all(&[head.as_bytes(), body].concat()).await?;
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).await?;
        io::Result::Ok(String::from_utf8_lossy(&answer).into_owned())
    };
    timeout(GENEROUS, asking).await.expect("an answer").unwrap_or_else(|error| error.to_string())
}

/// Sends each kind of crowd, and honest requests and uploads while it stands.
async fn stand(source: fn(u16) -> Ipv4Addr) {
    let service = Service::start(|_, _, _, _| Weather::Fair).await;
    let (gateway, _folder) = gateway().await;
    let to = gateway.address;
    for (index, kind) in KINDS.into_iter().enumerate() {
        let crowd = crowd(kind, &service.dest(), source, to);
        for round in 0..3 {
            sleep(STANDS).await;
            let answer = asks(to, "GET /test", b"").await;
            assert!(answer.starts_with("HTTP/1.1 200 "), "{kind:?}, {round}: {answer}");
            let answer = asks(to, "GET /", b"").await;
            assert!(answer.starts_with("HTTP/1.1 200 "), "{kind:?}, {round}: {answer}");
            // Names that no connection of the crowd has.
            let seed = 251 + round;
            let z = sealed(seed, 60_000 + index, LATER);
            let answer = asks(to, &format!("POST /offload?dest={}", service.dest()), &z).await;
            assert!(
                answer.starts_with("HTTP/1.1 20") || answer.contains("upload-conflict"),
                "{kind:?}, {round}: {answer}"
            );
        }
        drop(crowd);
    }
    gateway.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_crowd_of_many_networks_keeps_no_device_out() {
    stand(far).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_crowd_of_52_addresses_on_the_lan_keeps_no_device_out() {
    stand(near).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_crowd_of_one_address_keeps_no_other_device_out() {
    stand(|_| Ipv4Addr::new(127, 8, 8, 9)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_upload_that_comes_through_a_crowd_of_uploads_comes_whole() {
    let service = Service::start(|_, _, _, _| Weather::Fair).await;
    let (gateway, _folder) = gateway().await;
    let (to, dest) = (gateway.address, service.dest());
    let z = sealed(251, 3_000_000, LATER);
    let crowd = crowd(Kind::BodyDrips, &dest, far, to);
    sleep(STANDS).await;
    let uploading = async {
        let mut stream = connect(HONEST, to, None).await?;
        let head = format!(
            "POST /offload?dest={dest} HTTP/1.1\r\nHost: hoop.local\r\nConnection: close\r\nContent-Length: {}\r\n\r\n",
            z.len()
        );
        stream.write_all(head.as_bytes()).await?;
        for piece in z.chunks(50_000) {
            stream.write_all(piece).await?;
            sleep(Duration::from_millis(30)).await;
        }
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await?;
        io::Result::Ok(answer)
    };
    let answer = timeout(GENEROUS, uploading).await.expect("an answer").unwrap();
    assert!(answer.starts_with("HTTP/1.1 201 "), "{}: {answer}", id_of(&z));
    drop(crowd);
    gateway.stop().await;
}
