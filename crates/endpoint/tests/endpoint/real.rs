//! Over QUIC and WebSocket, on loopback.

use crate::common::*;
use hoop_carrier::{
    Carrier, Local, QuicDevice, QuicLimits, QuicListener, QuicOptions, WebSocketDevice, WebSocketLimits,
    WebSocketListener, WebSocketOptions, device_tls, server_tls,
};
use hoop_endpoint::{Device, FlowOptions, Server, Use};
use rand_core::Rng as _;
use rustls::pki_types::PrivateKeyDer;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Arc, LazyLock};
use std::time::Duration;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::UdpSocket;
use tokio::sync::watch;
use tokio::time::{Instant, sleep, timeout};

const NAME: &str = "endpoint.test";
const SOON: Duration = Duration::from_secs(30);

static TLS: LazyLock<(rustls::ClientConfig, rustls::ServerConfig)> = LazyLock::new(|| {
    let made = rcgen::generate_simple_self_signed([NAME.to_owned()]).expect("a certificate");
    let certificate = made.cert.der().clone();
    let mut roots = rustls::RootCertStore::empty();
    roots.add(certificate.clone()).expect("a root");
    let key = PrivateKeyDer::try_from(made.signing_key.serialize_der()).expect("a key");
    (device_tls(roots).expect("TLS"), server_tls(vec![certificate], key).expect("TLS"))
});

fn any_port() -> SocketAddr {
    (Ipv4Addr::LOCALHOST, 0).into()
}

/// A device and a server that listens for both kinds of carriers.
struct Net {
    device: Device,
    server: Arc<Server>,
    quic: QuicDevice,
    web: WebSocketDevice,
    quic_address: SocketAddr,
    web_address: SocketAddr,
}

impl Net {
    async fn new() -> Self {
        let (client, served) = &*TLS;
        let server = Arc::new(Server::new(server_config()));
        let listener = QuicListener::bind(any_port(), served, &QuicOptions::server(), QuicLimits::default()).unwrap();
        let quic_address = listener.local_address().unwrap();
        let serve = server.clone();
        tokio::spawn(async move {
            while let Ok(carrier) = listener.accept().await {
                serve.serve(Arc::new(carrier), "quic");
            }
        });
        let options = WebSocketOptions::default();
        let listener = WebSocketListener::bind(any_port(), Some(served), options.clone(), WebSocketLimits::default());
        let listener = listener.await.unwrap();
        let web_address = listener.local_address();
        let serve = server.clone();
        tokio::spawn(async move {
            while let Ok(carrier) = listener.accept().await {
                serve.serve(Arc::new(carrier), "websocket");
            }
        });
        let quic = QuicDevice::new(Local::default(), client, &QuicOptions::device()).unwrap();
        let web = WebSocketDevice::new(Local::default(), client, options, None);
        Self { device: Device::new(device_config()), server, quic, web, quic_address, web_address }
    }

    async fn connect(&self, quic: bool) -> Arc<dyn Carrier> {
        let carrier: Arc<dyn Carrier> = match quic {
            true => Arc::new(self.quic.connect(self.quic_address, NAME).await.expect("a carrier")),
            false => Arc::new(self.web.connect(self.web_address, NAME).await.expect("a carrier")),
        };
        self.device.add_carrier(carrier.clone(), Use::Normal, if quic { "quic" } else { "websocket" });
        carrier
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn streams_come_whole_over_quic_and_websocket_that_are_cut_and_mixed() {
    let seed = seed();
    let _seeded = Seeded(seed);
    let (mut rng, net) = (rng(seed), Net::new().await);
    for multipath in [false, true] {
        let len = 20_000_000;
        let mut device =
            net.device.open("test", FlowOptions { multipath, ..FlowOptions::default() }).expect("it is opened");
        let mut carriers = vec![net.connect(true).await];
        let mut server = net.server.accept().await.unwrap();
        let work = async {
            let (mut device_read, mut device_write) = tokio::io::split(&mut device);
            let (mut server_read, mut server_write) = tokio::io::split(&mut server);
            tokio::join!(
                write_all(&mut device_write, 1, len, seed),
                write_all(&mut server_write, 2, len, seed),
                read_all(&mut server_read, 1, len),
                read_all(&mut device_read, 2, len),
            );
        };
        let mishaps = async {
            for _ in 0..12 {
                sleep(Duration::from_micros(rng.next_u64() % 40_000)).await;
                if rng.next_u32().is_multiple_of(2) {
                    let at = rng.next_u32() as usize % carriers.len();
                    carriers.swap_remove(at).close();
                }
                carriers.push(net.connect(rng.next_u32().is_multiple_of(2)).await);
            }
        };
        let ended = timeout(SOON, async { tokio::join!(work, mishaps) }).await;
        assert!(ended.is_ok(), "it does not come to its end: {device:#?} {server:#?}");
        timeout(SOON, device.finished()).await.expect("it is told").unwrap();
        carriers.iter().for_each(|carrier| carrier.close());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_thousand_flows_share_one_connection() {
    let net = Net::new().await;
    net.connect(true).await;
    let flows: Vec<_> = (0..1_000)
        .map(|of| {
            let mut device = net.device.open("test", FlowOptions::default()).unwrap();
            tokio::spawn(async move {
                device.write_all(&bytes(of, 0, 3_000)).await.unwrap();
                device.shutdown().await.unwrap();
                read_all(&mut device, of, 3_000).await;
            })
        })
        .collect();
    let server = net.server.clone();
    tokio::spawn(async move {
        while let Some(mut flow) = server.accept().await {
            tokio::spawn(async move {
                let mut all = Vec::new();
                flow.read_to_end(&mut all).await.unwrap();
                flow.write_all(&all).await.unwrap();
                flow.shutdown().await.unwrap();
            });
        }
    });
    for flow in flows {
        timeout(SOON, flow).await.expect("it ends").unwrap();
    }
}

/// A way for UDP that can be shut: what device and server send each other is then dropped.
async fn way(server: SocketAddr) -> (SocketAddr, watch::Sender<bool>) {
    let front = UdpSocket::bind(any_port()).await.expect("a socket");
    let back = UdpSocket::bind(any_port()).await.expect("a socket");
    let address = front.local_addr().expect("an address");
    let (open, is_open) = watch::channel(true);
    tokio::spawn(async move {
        let (mut there, mut here, mut device) = (vec![0; 65_536], vec![0; 65_536], None);
        loop {
            let (bytes, to, socket) = tokio::select! {
                Ok((len, from)) = front.recv_from(&mut there) => {
                    device = Some(from);
                    (&there[..len], Some(server), &back)
                }
                Ok((len, _)) = back.recv_from(&mut here) => (&here[..len], device, &front),
            };
            if let Some(to) = to.filter(|_| *is_open.borrow()) {
                let _ = socket.send_to(bytes, to).await;
            }
        }
    });
    (address, open)
}

/// A download, in which the device only receives: nothing but the repeated ACK lets it notice.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_download_goes_on_over_websocket_after_udp_is_blocked() {
    let mut net = Net::new().await;
    let (address, open) = way(net.quic_address).await;
    net.quic_address = address;
    net.connect(true).await;
    let mut device = net.device.open("test", FlowOptions::default()).unwrap();
    let mut server = net.server.accept().await.unwrap();
    tokio::spawn(async move {
        for at in 0.. {
            if server.write_all(&bytes(2, at * 1_000, 1_000)).await.is_err() {
                break;
            }
            sleep(Duration::from_millis(2)).await;
        }
    });
    let (mut at, mut some) = (0, [0; 1_000]);
    for _ in 0..200 {
        timeout(SOON, device.read_exact(&mut some)).await.expect("bytes").unwrap();
        assert!(some == bytes(2, at, 1_000)[..]);
        at += 1_000;
    }
    let mut wants = net.device.wants();
    wants.borrow_and_update();
    open.send_replace(false);
    let begin = Instant::now();
    let after = async {
        tokio::join!(
            async {
                wants.changed().await.unwrap();
                println!("another carrier is wanted after {:?}", begin.elapsed());
                net.connect(false).await;
            },
            async {
                // What was under way, and then as much as nothing but a new carrier brings.
                for _ in 0..1_000 {
                    device.read_exact(&mut some).await.unwrap();
                    assert!(some == bytes(2, at, 1_000)[..]);
                    at += 1_000;
                }
            }
        );
    };
    timeout(SOON, after).await.expect("it goes on");
    println!("1,000,000 bytes later after {:?}", begin.elapsed());
    assert_eq!(device.status().borrow().network.as_deref(), Some("websocket"));
}
