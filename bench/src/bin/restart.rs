//! How long a gateway takes to be ready again, with 100,000 uploads queued and with 10: from its start to the first answer to `GET /test`.
//!
//! The uploads are small, whole, and for a service that cannot be reached, so that the gateway has all of them to deliver. The spool is filled through the store itself, unsynced.
//! The gateway is the one that routers get (`make router`).
//!
//! `--uploads N` queues another number.

use hoop_bench::peers::{free_address, router_build};
use hoop_bench::posts::SealedBody;
use hoop_bench::{Table, Verdict, median, number, rounds, spread};
use hoop_spool::{Begin, Settings, Spool};
use hoop_units::{ByteRange, UnixTime, UploadId};
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::process::{Command, ExitCode, Stdio};
use std::time::{Duration, Instant, SystemTime};

/// Ready within this, however much is queued.
const READY_SECONDS: f64 = 1.0;

fn main() -> ExitCode {
    let mut verdict = Verdict::default();
    let mut table = Table::new(["uploads queued", "ready after s, median", "min-max", "of ten's", "limit 1 s"]);
    let mut ten = None;
    for uploads in [10, number("--uploads").unwrap_or(100_000)] {
        let folder = tempfile::Builder::new().prefix("hoop-restart").tempdir_in(".").expect("a folder on disk");
        fill(&folder.path().join("spool"), uploads);
        let times: Vec<f64> = (0..rounds()).map(|_| ready_seconds(folder.path())).collect();
        let (low, high) = spread(&times);
        let ten = *ten.get_or_insert(median(&times));
        table.row([
            uploads.to_string(),
            format!("{:.3}", median(&times)),
            format!("{low:.3}-{high:.3}"),
            format!("{:.2}", median(&times) / ten),
            verdict.at_most(&format!("ready with {uploads}"), median(&times), READY_SECONDS).to_owned(),
        ]);
    }
    println!("{}", table.render());
    verdict.exit()
}

/// Queues so many uploads of one record.
fn fill(spool: &Path, uploads: u64) {
    let spool = Spool::open(Settings { sync: false, ..Settings::new(spool) }).expect("a spool");
    let body = SealedBody::of_plaintext(100);
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).expect("a clock after 1970").as_secs();
    let now = UnixTime(u32::try_from(now).unwrap_or(u32::MAX));
    for index in 0..uploads {
        let mut id = [0x5a; 16];
        id[..8].copy_from_slice(&index.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_be_bytes());
        let offer = body.offer(UploadId(id), "https://127.0.0.1:9/hoop/post", now.plus_secs(86_400));
        let prelude = offer.prelude.len() as u64;
        let Ok(Begin::Take(mut intake)) = spool.begin(&offer) else { panic!("the spool takes it") };
        intake.write_at(prelude, &vec![0xa5; (body.len - prelude) as usize]).expect("room on the disk");
        intake.commit(ByteRange::new(0, body.len), now).expect("it is recorded");
    }
}

fn ready_seconds(folder: &Path) -> f64 {
    let address = free_address();
    let mut command = Command::new(router_build());
    command.args(["gateway", "--no-mdns", "--allow-dest", "127.0.0.1", "--listen"]).arg(address.to_string());
    command.arg("--spool").arg(folder.join("spool")).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let begin = Instant::now();
    let mut child = command.spawn().expect("the gateway starts");
    while !answers(address) {
        assert!(begin.elapsed() < Duration::from_secs(60), "the gateway is not ready within a minute");
        std::thread::sleep(Duration::from_millis(1));
    }
    let seconds = begin.elapsed().as_secs_f64();
    let _ = child.kill();
    let _ = child.wait();
    seconds
}

fn answers(address: SocketAddr) -> bool {
    let Ok(mut stream) = TcpStream::connect(address) else { return false };
    let mut answer = String::new();
    let asked = write!(stream, "GET /test HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n");
    asked.is_ok() && stream.read_to_string(&mut answer).is_ok() && answer.starts_with("HTTP/1.1 200")
}
