//! What a bulk flow leaves to a TCP connection beside it on a full link.
//!
//! The link has 20 Mbit/s and 40 ms there and back, and queues of several lengths: a flow that took losses too lightly would push others aside where the queue is short. Flow and connection
//! begin together, and both are counted from the fifth second to the end. The connection has Cubic. Beside it in the same run, in turns: another of its kind, and one with the kernel's BBR.
//!
//! `--rounds N`; `--try` runs one round; `--queue MS` runs one queue.

use hoop_bench::flows::{self, Part, quic, serve, servers};
use hoop_bench::{ROUNDS, Table, Verdict, median, number, rounds, spread, word};
use hoop_carrier::QuicOptions;
use hoop_endpoint::{FlowOptions, Use};
use hoop_lab::{Host, Lab, Link, LinkConfig, QueueLimit, Topology};
use hoop_units::Bitrate;
use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

const MBPS: u64 = 20;
const DELAY: Duration = Duration::from_millis(20);

/// The queues, in ms of the link's rate: five round trips, one, a quarter, a tenth.
const QUEUES_MS: [u64; 4] = [200, 40, 10, 4];

/// So long both run before they are counted, and so long they are counted.
const BEGINS: Duration = Duration::from_secs(5);
const COUNTED: Duration = Duration::from_secs(20);

/// Of what both carry, a flow may have so much.
const SHARE_MAX: f64 = 0.75;

/// Where the server's TCP listens, by what controls its congestion.
const CONTROLS: [(&str, u16); 2] = [("cubic", 4438), ("bbr", 4439)];

/// Who runs beside the connection.
const RIVALS: [&str; 3] = ["flow", "cubic", "bbr"];

fn main() -> ExitCode {
    if let Some(role) = word("--role") {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build();
        runtime.expect("a runtime").block_on(take_part(&role));
        return ExitCode::SUCCESS;
    }
    hoop_lab::enter().expect("the machine allows namespaces");
    let folder = &tempfile::tempdir().expect("a folder");
    flows::make_certificate(folder.path());
    let mut verdict = Verdict::default();
    let columns = ["queue ms", "beside TCP", "its share, median", "min-max", "limit", "", "both, Mbit/s"];
    let mut table = Table::new(columns);
    let queues = QUEUES_MS.into_iter().filter(|queue| number("--queue").is_none_or(|wanted| wanted == *queue));
    // Their links have nothing to do with each other, and take little of the machine.
    let measured: Vec<_> = thread::scope(|scope| {
        let each: Vec<_> =
            queues.map(|queue| (queue, scope.spawn(move || beside_each_other(folder.path(), queue)))).collect();
        each.into_iter().map(|(queue, runs)| (queue, runs.join().expect("it ends"))).collect()
    });
    for (queue, runs) in measured {
        for (runs, rival) in runs.iter().zip(RIVALS) {
            let (shares, sums): (Vec<f64>, Vec<f64>) = runs.iter().copied().unzip();
            let (share, (low, high)) = (median(&shares), spread(&shares));
            let (name, limit, judged) = match rival {
                "flow" => {
                    let judged = verdict.at_most(&format!("a flow's share, queue {queue} ms"), share, SHARE_MAX);
                    ("a flow", format!("<= {SHARE_MAX}"), judged)
                }
                "cubic" => ("TCP", String::new(), ""),
                _ => ("TCP with BBR", String::new(), ""),
            };
            table.row([
                queue.to_string(),
                name.into(),
                format!("{share:.2}"),
                format!("{low:.2}-{high:.2}"),
                limit,
                judged.into(),
                format!("{:.1}", median(&sums)),
            ]);
        }
    }
    println!("{}", table.render());
    verdict.exit()
}

// The conductor.

/// Of each rival, round by round, what [`measure`] gives.
fn beside_each_other(folder: &Path, queue_ms: u64) -> Vec<Vec<(f64, f64)>> {
    let mut runs: Vec<Vec<(f64, f64)>> = vec![Vec::new(); RIVALS.len()];
    let rounds = if std::env::args().any(|argument| argument == "--try") { 1 } else { rounds().max(ROUNDS) };
    for _ in 0..rounds {
        for (runs, rival) in runs.iter_mut().zip(RIVALS) {
            runs.push(measure(folder, queue_ms, rival));
        }
    }
    runs
}

/// The rival's share, and what both carried in Mbit/s.
fn measure(folder: &Path, queue_ms: u64, rival: &str) -> (f64, f64) {
    let topology = Topology::new().host(Host::new("device")).host(Host::new("server"));
    let queue = QueueLimit { bytes: (MBPS * 125 * queue_ms) as usize, ..QueueLimit::default() };
    let config = LinkConfig::new().rate(Bitrate::mbps(MBPS)).delay(DELAY).queue(queue);
    let lab = Lab::build(&topology.link(Link::new("line", "device", "server").both(config))).expect("a lab");
    let mut server = Part::start(&lab, "server", "server", folder, &[]);
    server.expect("ready");
    let at = format!("line={}", lab.address_on("server", "line"));
    let arguments = ["--rival", rival, "--servers", &at];
    let counted = Part::start(&lab, "device", "device", folder, &arguments).expect("counted");
    let (rivals, others) = counted.split_once(' ').expect("two numbers");
    let [rivals, others]: [f64; 2] = [rivals, others].map(|bytes| bytes.parse().expect("a number"));
    (rivals / (rivals + others), (rivals + others) * 8e-6 / COUNTED.as_secs_f64())
}

// The parts.

async fn take_part(role: &str) {
    if role == "server" {
        CONTROLS.into_iter().for_each(|(congestion, port)| drop(thread::spawn(move || serve_tcp(congestion, port))));
        return serve(FlowOptions::default(), &QuicOptions::server()).await;
    }
    let (_, server) = servers()[0];
    let counts: [Arc<AtomicU64>; 2] = Default::default();
    let [rival, other] = counts.clone();
    let [(cubic, cubic_port), (_, bbr_port)] = CONTROLS;
    match &word("--rival").expect("a word")[..] {
        "flow" => drop(tokio::spawn(take_flow(server, rival))),
        congestion => {
            let port = if congestion == cubic { cubic_port } else { bbr_port };
            thread::spawn(move || take_tcp((server, port), &rival));
        }
    }
    thread::spawn(move || take_tcp((server, cubic_port), &other));
    let all = || counts.each_ref().map(|count| count.load(Ordering::Relaxed));
    tokio::time::sleep(BEGINS).await;
    let before = all();
    tokio::time::sleep(COUNTED).await;
    let after = all();
    println!("counted {} {}", after[0] - before[0], after[1] - before[1]);
}

async fn take_flow(server: Ipv4Addr, count: Arc<AtomicU64>) {
    let device = flows::device();
    device.add_carrier(quic("line", server, &QuicOptions::device()).await, Use::Normal, "line");
    let mut flow = device.open("bulk", FlowOptions::default()).expect("a flow");
    while let Some(chunk) = flow.read_chunk(64 * 1024).await.expect("it goes on") {
        count.fetch_add(chunk.len() as u64, Ordering::Relaxed);
    }
}

fn serve_tcp(congestion: &str, port: u16) {
    let socket = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).expect("a socket");
    socket.set_tcp_congestion(congestion.as_bytes()).expect("the kernel has it");
    socket.bind(&SocketAddr::from((Ipv4Addr::UNSPECIFIED, port)).into()).expect("a port");
    socket.listen(8).expect("it listens");
    let listener = TcpListener::from(socket);
    while let Ok((mut stream, _)) = listener.accept() {
        // Until whoever asked is gone.
        thread::spawn(move || while stream.write_all(&[7; 64 * 1024]).is_ok() {});
    }
}

fn take_tcp(server: (Ipv4Addr, u16), count: &AtomicU64) {
    let mut stream = TcpStream::connect(server).expect("it connects");
    let mut buffer = vec![0; 64 * 1024];
    loop {
        let len = stream.read(&mut buffer).expect("it goes on");
        count.fetch_add(len as u64, Ordering::Relaxed);
    }
}
