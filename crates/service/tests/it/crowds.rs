//! Crowds that hold what they can: twice as many connections as there are, of each kind that costs its sender nothing. While a crowd stands, honest
//! requests are answered, to the application and to the service.

use crate::support::device::{plaintext, seal, seal_plaintext, ticket};
use crate::support::upstream::Upstream;
use crate::support::{PATIENCE, Sidecar, bytes, wire};
use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::task::JoinHandle;
use tokio::time::timeout;

/// The service's connections.
const CONNECTIONS: usize = 100;

/// Those of a crowd.
const CROWD: usize = 200;

/// Long enough for whoever is waited for to be behind.
const STANDS: Duration = Duration::from_millis(500);

const HOUR: Duration = Duration::from_secs(3600);

/// What a connection of a crowd does.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Kind {
    SaysNothing,
    HeadNeverEnds,
    RestsAfterARequest,
    BodyNeverEnds,
    BodyDrips,
    AnswerIsNotRead,
    ApplicationNeverAnswers,
    EventsAreHeld,
    WebSocketIsHeld,
    SealedBodyNeverEnds,
    ShortBodyNeverEnds,
}

const KINDS: [Kind; 11] = [
    Kind::SaysNothing,
    Kind::HeadNeverEnds,
    Kind::RestsAfterARequest,
    Kind::BodyNeverEnds,
    Kind::BodyDrips,
    Kind::AnswerIsNotRead,
    Kind::ApplicationNeverAnswers,
    Kind::EventsAreHeld,
    Kind::WebSocketIsHeld,
    Kind::SealedBodyNeverEnds,
    Kind::ShortBodyNeverEnds,
];

impl Kind {
    /// What it sends. `client` is what a proxy says of who it is.
    fn sends(self, client: Ipv4Addr) -> Vec<u8> {
        let long = "Content-Length: 1000000\r\n";
        let (line, fields, body) = match self {
            Self::SaysNothing => return Vec::new(),
            Self::HeadNeverEnds => return b"GET / HTTP/1.1\r\nHost: photos.exam".to_vec(),
            Self::RestsAfterARequest => ("GET /", "", ""),
            Self::BodyNeverEnds | Self::BodyDrips => ("POST /up", long, "begin"),
            Self::AnswerIsNotRead => ("GET /film", "", ""),
            Self::ApplicationNeverAnswers => ("GET /hang", "", ""),
            Self::EventsAreHeld => ("GET /events", "", ""),
            Self::WebSocketIsHeld => ("GET /socket", "Connection: Upgrade\r\nUpgrade: websocket\r\n", ""),
            Self::SealedBodyNeverEnds => ("POST /hoop/post", long, "begin"),
            Self::ShortBodyNeverEnds => ("POST /hoop/tickets", "Hoop-Version: 1\r\nContent-Length: 9\r\n", "{"),
        };
        format!("{line} HTTP/1.1\r\nHost: photos.example\r\nX-Forwarded-For: {client}\r\n{fields}\r\n{body}")
            .into_bytes()
    }
}

/// An application that answers each path in its own way.
async fn application() -> (SocketAddr, JoinHandle<()>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let task = tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            tokio::spawn(async move { drop(answers(stream).await) });
        }
    });
    (address, task)
}

async fn answers(mut stream: TcpStream) -> std::io::Result<()> {
    let mut head = Vec::new();
    while !head.windows(4).any(|end| end == b"\r\n\r\n") {
        if stream.read_buf(&mut head).await? == 0 {
            return Ok(());
        }
    }
    let head = String::from_utf8_lossy(&head).into_owned();
    let answer = match head.split(' ').nth(1).unwrap_or_default() {
        "/" => return stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello").await,
        "/film" => {
            stream.write_all(b"HTTP/1.1 200 OK\r\n\r\n").await?;
            loop {
                stream.write_all(&[0; 1 << 16]).await?;
            }
        }
        "/events" => "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n",
        "/socket" => "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n",
        _ => "",
    };
    stream.write_all(answer.as_bytes()).await?;
    let mut rest = [0; 4096];
    while stream.read(&mut rest).await? > 0 {}
    Ok(())
}

/// One connection of a crowd, which tries to stay for ever.
async fn holds(kind: Kind, from: Ipv4Addr, client: Ipv4Addr, to: SocketAddr) -> std::io::Result<()> {
    let socket = TcpSocket::new_v4()?;
    socket.set_recv_buffer_size(4096)?;
    socket.bind((from, 0).into())?;
    let mut stream = socket.connect(to).await?;
    stream.write_all(&kind.sends(client)).await?;
    if kind != Kind::BodyDrips {
        std::future::pending::<()>().await;
    }
    loop {
        stream.write_all(b"x").await?;
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

/// Where a crowd comes from: the address of the `n`th connection, and what a proxy says of its client.
type Source = fn(u16) -> (Ipv4Addr, Ipv4Addr);

/// The `n`th of many addresses in many networks.
fn far(first: u8, n: u16) -> Ipv4Addr {
    let [high, low] = n.to_be_bytes();
    Ipv4Addr::new(first, high, low, 1)
}

const PROXY: Ipv4Addr = Ipv4Addr::new(127, 9, 9, 9);

/// An honest request: answered by whom it is for, if need be when it comes again, as a 429 asks for while a crowd arrives.
async fn is_answered(sidecar: SocketAddr, from: Ipv4Addr, path: &str, what: &str) {
    let asking = async || {
        let socket = TcpSocket::new_v4().unwrap();
        socket.bind((from, 0).into()).unwrap();
        let mut stream = socket.connect(sidecar).await.unwrap();
        let fields = [("X-Forwarded-For", "203.0.113.9")];
        stream.write_all(&wire::request("GET", path, &fields, b"")).await.unwrap();
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).await.unwrap();
        wire::Reply::parse(&answer)
    };
    let answered = async {
        loop {
            match asking().await {
                reply if reply.status == 429 => tokio::time::sleep(STANDS).await,
                reply => return reply,
            }
        }
    };
    let reply = timeout(PATIENCE, answered).await.unwrap_or_else(|_| panic!("no answer to {path} beside: {what}"));
    assert_eq!(reply.status, 200, "{path} beside: {what}: {reply:?}");
}

/// Sends each kind of crowd, and honest requests while it stands.
async fn stand(kinds: &[Kind], source: Source, honest: Ipv4Addr) {
    let (address, application) = application().await;
    let sidecar = Sidecar::with(address, |config| {
        config.connections = CONNECTIONS;
        // As many as there were if nobody made way.
        config.limits.connections = CONNECTIONS;
        config.intakes = 4;
        // Nobody is cut off for being slow: who comes has to get a place from who is there.
        (config.body_timeout, config.tunnel_idle) = (HOUR, HOUR);
        (config.limits.head_timeout, config.limits.idle_timeout) = (HOUR, HOUR);
        config.limits.least_read = None;
        config.trusted_proxies = vec![std::net::IpAddr::from(PROXY).into()];
    });
    let sidecar = sidecar.await;
    for kind in kinds {
        let to = sidecar.address;
        let crowd: Vec<_> =
            (0..CROWD as u16).map(source).map(|(from, client)| tokio::spawn(holds(*kind, from, client, to))).collect();
        for round in 0..3 {
            tokio::time::sleep(STANDS).await;
            let what = format!("{kind:?}, round {round}");
            is_answered(to, honest, "/", &what).await;
            is_answered(to, honest, "/.well-known/hoop", &what).await;
        }
        crowd.iter().for_each(JoinHandle::abort);
    }
    application.abort();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_crowd_of_one_address_keeps_nobody_else_out() {
    stand(&KINDS, |_| (Ipv4Addr::LOCALHOST, Ipv4Addr::LOCALHOST), Ipv4Addr::new(127, 8, 8, 8)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_crowd_of_many_addresses_keeps_nobody_out() {
    // An application that never answers is busy for as many as it lets wait: nobody of them is slow.
    let kinds: Vec<_> = KINDS.into_iter().filter(|kind| *kind != Kind::ApplicationNeverAnswers).collect();
    stand(&kinds, |n| (far(127, n), Ipv4Addr::LOCALHOST), Ipv4Addr::new(127, 8, 8, 8)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_crowd_of_one_client_behind_a_proxy_keeps_no_other_client_out() {
    stand(&KINDS, |_| (PROXY, Ipv4Addr::new(198, 51, 100, 7)), PROXY).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_crowd_of_many_clients_behind_a_proxy_keeps_nobody_out() {
    let kinds: Vec<_> = KINDS.into_iter().filter(|kind| *kind != Kind::ApplicationNeverAnswers).collect();
    stand(&kinds, |n| (PROXY, far(11, n)), PROXY).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_senders_that_hold_every_intake_make_way_for_a_third() {
    let upstream = Upstream::willing().await;
    let sidecar = Sidecar::with(upstream.address, |config| (config.intakes, config.body_timeout) = (4, HOUR)).await;
    let to = sidecar.address;
    let hold = |n: u16| tokio::spawn(holds(Kind::SealedBodyNeverEnds, far(127, n % 2 + 1), Ipv4Addr::LOCALHOST, to));
    let crowd: Vec<_> = (0..20).map(hold).collect();
    tokio::time::sleep(STANDS).await;
    let sealed = seal(&ticket(&sidecar).await, &bytes(1 << 20, 1));
    sealed.is_taken_by(&sidecar).await;
    crowd.iter().for_each(JoinHandle::abort);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn posts_that_wait_for_news_leave_the_services_own_places_to_others() {
    let (address, application) = application().await;
    let sidecar = Sidecar::with(address, |config| config.connections = CONNECTIONS).await;
    let ticket = ticket(&sidecar).await;
    let sealed = seal_plaintext(&ticket, &plaintext(&ticket, "POST /hang", "", b"photo"));
    sealed.is_taken_by(&sidecar).await;
    let post = wire::request("POST", "/hoop/post", &[("Prefer", "wait=30")], &sealed.z);
    // Twice as many as there are places for requests to the service itself.
    let mut crowd = Vec::new();
    for n in 0..20 {
        let socket = TcpSocket::new_v4().unwrap();
        socket.bind((far(127, n), 0).into()).unwrap();
        let mut stream = socket.connect(sidecar.address).await.unwrap();
        stream.write_all(&post).await.unwrap();
        crowd.push(stream);
    }
    tokio::time::sleep(STANDS).await;
    assert_eq!(sidecar.send("GET", "/.well-known/hoop", &[], b"").await.status, 200);
    application.abort();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn silent_senders_make_way_for_a_post_from_their_own_address() {
    let upstream = Upstream::willing().await;
    let sidecar = Sidecar::with(upstream.address, |config| (config.intakes, config.body_timeout) = (4, HOUR)).await;
    let to = sidecar.address;
    let own = Ipv4Addr::LOCALHOST;
    let crowd: Vec<_> = (0..33).map(|_| tokio::spawn(holds(Kind::SealedBodyNeverEnds, own, own, to))).collect();
    for n in 0..3 {
        tokio::time::sleep(STANDS).await;
        let sealed = seal(&ticket(&sidecar).await, &bytes(1 << 20, n));
        sealed.is_taken_by(&sidecar).await;
    }
    crowd.iter().for_each(JoinHandle::abort);
}
