//! A relay, an agent that goes by it, and origins of ours, on loopback.

use hoop_agent::{Agent, AgentConfig};
use hoop_carrier::Listener;
use hoop_endpoint::{FlowStream, Server, ServerConfig};
use hoop_relay::copy::copy_both;
use hoop_relay::{
    Allowed, CacheConfig, Introduction, NetworkPath, Relay, RelayConfig, ShareLimits, StoreConfig, introduce,
};
use hoop_relay::{Devices, codes};
use rustls::pki_types::PrivateKeyDer;
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tokio::time::timeout;

/// A relay on loopback, and what a new device is told of it.
pub async fn relay(folder: &Path) -> (Introduction, JoinHandle<()>) {
    let (introduction, relay, _) = keeping_relay(folder, None).await;
    (introduction, relay)
}

/// The same, with a folder for answers; and how it is begun anew.
pub async fn keeping_relay(folder: &Path, state: Option<PathBuf>) -> (Introduction, JoinHandle<()>, RelayConfig) {
    let signed = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).unwrap();
    let (certificate, key, devices) = (folder.join("cert.pem"), folder.join("key.pem"), folder.join("devices.toml"));
    std::fs::write(&certificate, signed.cert.pem()).unwrap();
    std::fs::write(&key, signed.signing_key.serialize_pem()).unwrap();
    introduce(&devices, "another.example:1", None).unwrap();
    let allowed = Allowed { addresses: [IpAddr::from([127, 0, 0, 1]).into()].into(), ..Allowed::default() };
    let mut config = RelayConfig {
        listen: "127.0.0.1:0".parse().unwrap(),
        plain_listen: None,
        certificate,
        key,
        devices: devices.clone(),
        allowed,
        shares: ShareLimits::default(),
        ca: ca(folder),
        store: state.map(StoreConfig::new),
        cache: CacheConfig::default(),
        admin: None,
        access_log: false,
    };
    let relay = Relay::bind(&config).await.unwrap();
    let server = format!("localhost:{}", relay.address().port());
    config.listen = relay.address();
    let running = tokio::spawn(relay.run());
    let mut introduction = introduce(&devices, &server, Some(signed.cert.pem())).unwrap();
    introduction.addresses = vec![[127, 0, 0, 1].into()];
    (introduction, running, config)
}

/// The authorities that a relay believes whose folder this is.
fn ca(folder: &Path) -> Vec<PathBuf> {
    Some(folder.join("ca.pem")).into_iter().filter(|ca| ca.exists()).collect()
}

/// A relay from before exchanges: it carries connections alone, and counts the exchanges that it was asked for.
pub async fn old_relay(folder: &Path) -> (Introduction, JoinHandle<()>, Arc<AtomicUsize>) {
    let asked = Arc::<AtomicUsize>::default();
    let counted = asked.clone();
    let refuse = move |flow: FlowStream| {
        counted.fetch_add(1, Ordering::SeqCst);
        flow.reset(codes::MALFORMED);
    };
    let (introduction, relay) = odd_relay(folder, refuse).await;
    (introduction, relay, asked)
}

/// A relay that carries connections, and does this with what it is asked for besides.
pub async fn odd_relay(
    folder: &Path,
    exchange: impl Fn(FlowStream) + Send + 'static,
) -> (Introduction, JoinHandle<()>) {
    let signed = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).unwrap();
    let devices = folder.join("devices.toml");
    let key = PrivateKeyDer::try_from(signed.signing_key.serialize_der()).unwrap();
    let tls = hoop_carrier::server_tls(vec![signed.cert.der().clone()], key).unwrap();
    let listener = Listener::bind("127.0.0.1:0".parse().unwrap(), &tls).await.unwrap();
    let to = format!("localhost:{}", listener.local_address().port());
    let mut introduction = introduce(&devices, &to, Some(signed.cert.pem())).unwrap();
    introduction.addresses = vec![[127, 0, 0, 1].into()];
    let server = Server::new(ServerConfig::new(Arc::new(Devices::open(&devices).unwrap())));
    let running = tokio::spawn(async move {
        loop {
            tokio::select! {
                carrier = listener.accept() => server.serve(carrier.unwrap(), "relay"),
                Some(mut flow) = server.accept() => match flow.service().strip_prefix("tcp:").map(str::to_owned) {
                    Some(to) => drop(tokio::spawn(async move {
                        let mut connection = TcpStream::connect(to).await.unwrap();
                        let _ = copy_both(&mut flow, &mut connection).await;
                        let _ = flow.finished().await;
                    })),
                    None => exchange(flow),
                },
            }
        }
    });
    (introduction, running)
}

/// An agent, and what it tells people. It stops with this.
pub struct House {
    pub agent: SocketAddr,
    pub told: Arc<Mutex<Vec<String>>>,
    pub stop: Option<oneshot::Sender<()>>,
    pub running: JoinHandle<()>,
    pub relay: JoinHandle<()>,
    _folder: tempfile::TempDir,
}

impl House {
    pub async fn new() -> Self {
        Self::with(|_| {}).await
    }

    pub async fn with(change: impl FnOnce(&mut AgentConfig)) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let introduced = relay(folder.path()).await;
        Self::by(folder, introduced, change).await
    }

    /// By this relay.
    pub async fn by(
        folder: tempfile::TempDir,
        (introduction, relay): (Introduction, JoinHandle<()>),
        change: impl FnOnce(&mut AgentConfig),
    ) -> Self {
        let mut config = AgentConfig {
            listen: "127.0.0.1:0".parse().unwrap(),
            introduction,
            ways: vec![NetworkPath::any()],
            give_up_after: None,
            waits: false,
            users: vec![],
            entrusted: vec![],
            authority: None,
            ca: ca(folder.path()),
            patient: None,
            runs: None,
            tun: None,
        };
        change(&mut config);
        let told = Arc::<Mutex<Vec<String>>>::default();
        let tells = told.clone();
        let agent = Agent::bind(&config, move |words| tells.lock().unwrap().push(words)).await.unwrap();
        let (address, (stop, stopped)) = (agent.address(), oneshot::channel());
        let running = tokio::spawn(agent.run(async { drop(stopped.await) }));
        Self { agent: address, told, stop: Some(stop), running, relay, _folder: folder }
    }

    pub async fn program(&self) -> TcpStream {
        TcpStream::connect(self.agent).await.unwrap()
    }

    /// What a program is answered that says this and no more.
    pub async fn says(&self, bytes: &str) -> String {
        let mut program = self.program().await;
        program.write_all(bytes.as_bytes()).await.unwrap();
        program.shutdown().await.unwrap();
        let mut answer = Vec::new();
        timeout(Duration::from_secs(20), program.read_to_end(&mut answer)).await.expect("it is answered").unwrap();
        String::from_utf8_lossy(&answer).into_owned()
    }

    /// A tunnel to there, by CONNECT.
    pub async fn tunnel(&self, to: &str) -> TcpStream {
        let mut program = self.program().await;
        program.write_all(format!("CONNECT {to} HTTP/1.1\r\nHost: {to}\r\n\r\n").as_bytes()).await.unwrap();
        let head = head(&mut program).await;
        assert!(head.starts_with("HTTP/1.1 200 "), "{head}");
        program
    }
}

/// Reads a head, byte by byte: what follows it stays.
pub async fn head(stream: &mut (impl tokio::io::AsyncRead + Unpin)) -> String {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(timeout(Duration::from_secs(20), stream.read_u8()).await.expect("a head comes").unwrap());
    }
    String::from_utf8(head).unwrap()
}

/// An origin that does this with each connection.
pub async fn origin<F: Future<Output = ()> + Send + 'static>(
    act: impl Fn(TcpStream) -> F + Send + 'static,
) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            tokio::spawn(act(stream));
        }
    });
    address
}

/// An origin that answers each connection's first request with these bytes, closes, and shows what was asked.
pub async fn answering(answer: &'static str) -> (SocketAddr, Arc<Mutex<Vec<String>>>) {
    let asked = Arc::<Mutex<Vec<String>>>::default();
    let shown = asked.clone();
    let address = origin(move |mut stream| {
        let asked = asked.clone();
        async move {
            let request = head(&mut stream).await;
            asked.lock().unwrap().push(request);
            stream.write_all(answer.as_bytes()).await.unwrap();
        }
    });
    (address.await, shown)
}

/// An origin that sends all back.
pub async fn echo() -> SocketAddr {
    origin(|mut stream| async move {
        let (mut read, mut write) = stream.split();
        let _ = tokio::io::copy(&mut read, &mut write).await;
    })
    .await
}

/// An origin that sends half an answer, and breaks off.
pub async fn breaking() -> SocketAddr {
    origin(|mut stream| async move {
        let _ = stream.read(&mut [0; 1_024]).await;
        stream.write_all(b"HTTP/1.0 200 OK\r\n\r\nhalf").await.unwrap();
        // What it has sent goes first.
        tokio::time::sleep(Duration::from_millis(200)).await;
        stream.set_zero_linger().unwrap();
    })
    .await
}
