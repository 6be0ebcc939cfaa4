//! Octets over one flow on QUIC, beside the same over a stream of quinn's own: `cargo run --release --example throughput [MB]`.
//! Prints throughput and the processor time of both ends together.

use bytes::Bytes;
use hoop_carrier::{Carrier, Local, QuicDevice, QuicLimits, QuicListener, QuicOptions, device_tls, server_tls};
use hoop_endpoint::{Device, DeviceConfig, DeviceKey, FlowOptions, HostId, Server, ServerConfig, Use};
use rustls::pki_types::PrivateKeyDer;
use std::collections::HashMap;
use std::fs;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Instant;
use tokio::io::AsyncWriteExt as _;

const NAME: &str = "throughput.test";
const BLOCK: usize = 64 * 1024;

/// The processor time of this process so far, in seconds.
fn cpu() -> f64 {
    let stat = fs::read_to_string("/proc/self/stat").expect("Linux");
    let fields: Vec<_> = stat.rsplit(')').next().expect("fields").split_whitespace().collect();
    fields[11..13].iter().map(|ticks| ticks.parse::<f64>().expect("ticks") / 100.0).sum()
}

async fn carriers() -> (Arc<dyn Carrier>, Arc<dyn Carrier>) {
    let made = rcgen::generate_simple_self_signed([NAME.to_owned()]).expect("a certificate");
    let certificate = made.cert.der().clone();
    let mut roots = rustls::RootCertStore::empty();
    roots.add(certificate.clone()).expect("a root");
    let key = PrivateKeyDer::try_from(made.signing_key.serialize_der()).expect("a key");
    let (client, server) = (device_tls(roots).expect("TLS"), server_tls(vec![certificate], key).expect("TLS"));
    let any: SocketAddr = (Ipv4Addr::LOCALHOST, 0).into();
    let listener = QuicListener::bind(any, &server, &QuicOptions::server(), QuicLimits::default()).expect("a listener");
    let quic = QuicDevice::new(Local::default(), &client, &QuicOptions::device()).expect("an endpoint");
    let address = listener.local_address().expect("an address");
    let (ours, theirs) = tokio::join!(quic.connect(address, NAME), listener.accept());
    // Both endpoints live as long as the process.
    std::mem::forget((quic, listener));
    (Arc::new(ours.expect("a carrier")), Arc::new(theirs.expect("a carrier")))
}

async fn by_lane(total: usize) {
    let (ours, theirs) = carriers().await;
    let block = Bytes::from(vec![7; BLOCK]);
    let mut lane = ours.open().await.expect("a lane");
    let send = tokio::spawn(async move {
        for _ in 0..total / BLOCK {
            lane.sender.send(&mut [block.clone()]).await.expect("it is taken");
        }
        lane.sender.finish().await.expect("it is finished");
        lane
    });
    let mut lane = theirs.accept().await.expect("a lane");
    let receive = tokio::spawn(async move {
        let mut came = 0;
        while let Some(octets) = lane.receiver.receive(BLOCK).await.expect("octets") {
            came += octets.len();
        }
        assert_eq!(came, total);
    });
    receive.await.expect("it ends");
    drop(send.await);
    ours.close();
}

async fn by_flow(total: usize, window: u64) {
    let (ours, theirs) = carriers().await;
    let (host, key) = (HostId([1; 20]), DeviceKey([2; 32]));
    let options = FlowOptions { window, send_buffer: window, ..FlowOptions::default() };
    let keys = Arc::new(HashMap::from([(host, key)]));
    let server = Server::new(ServerConfig { options: options.clone(), ..ServerConfig::new(keys) });
    let device = Device::new(DeviceConfig::new(host, key));
    server.serve(theirs, "lo");
    device.add_carrier(ours, Use::Normal, "lo");
    let mut flow = device.open("test", options).expect("a flow");
    let block = Bytes::from(vec![7; BLOCK]);
    let send = tokio::spawn(async move {
        for _ in 0..total / BLOCK {
            flow.write_chunk(block.clone()).await.expect("it is taken");
        }
        flow.shutdown().await.expect("it is finished");
        flow
    });
    let mut flow = server.accept().await.expect("a flow");
    let receive = tokio::spawn(async move {
        let mut came = 0;
        while let Some(octets) = flow.read_chunk(BLOCK).await.expect("octets") {
            came += octets.len();
        }
        assert_eq!(came, total);
        flow
    });
    drop((receive.await, send.await));
}

async fn timed(what: &str, total: usize, work: impl Future<Output = ()>) {
    let (begin, before) = (Instant::now(), cpu());
    work.await;
    let (took, cpu) = (begin.elapsed().as_secs_f64(), cpu() - before);
    let gigabytes = total as f64 / 1e9;
    println!("{what:>24}: {:7.1} MB/s, {:.2} CPU seconds per GB", total as f64 / 1e6 / took, cpu / gigabytes);
}

#[tokio::main]
async fn main() {
    let megabytes = std::env::args().nth(1).map_or(500, |text| text.parse().expect("a number of megabytes"));
    let total = megabytes * 1_000_000 / BLOCK * BLOCK;
    for _ in 0..3 {
        timed("a lane of QUIC", total, by_lane(total)).await;
        timed("a flow, window 1 MiB", total, by_flow(total, 1 << 20)).await;
        timed("a flow, window 4 MiB", total, by_flow(total, 4 << 20)).await;
    }
}
