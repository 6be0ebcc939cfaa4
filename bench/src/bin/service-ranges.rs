//! Ranges per second at the service: many uploads at once, each over a kept-alive connection of its own, put record by record.
//!
//! A range is a `PUT /hoop/post/{id}` of one whole record (64 KiB): opened, written, synced and noted in the index before its answer. The records
//! were sealed before the clock starts; of each upload the last is left out, so that nothing is replayed. Sender and service share the
//! machine's cores.
//!
//! Beside it, in the same round, the disk alone: as many threads, each writing 64 KiB to a file of its own and syncing that, again and again.
//!
//! `--uploads N` at once (32), `--records N` of each (64); `--rounds N` runs more rounds.

use hoop_bench::peers::{cpu_seconds, free_address};
use hoop_bench::{Table, Verdict, median, number, rounds, spread};
use hoop_seal::{ContentKey, Grant, Keyring, KwsId, Layout, Prelude, RECORD_SIZE, Route, ServiceKey, Suite, UploadKey};
use hoop_units::{ByteRange, UnixTime};
use std::fs::{self, File};
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::process::{Child, Command, ExitCode, Stdio};
use std::sync::{Arc, Barrier};
use std::time::{Duration, Instant, SystemTime};

const ORIGIN: &str = "https://photos.example";

fn main() -> ExitCode {
    let uploads = usize::try_from(number("--uploads").unwrap_or(32)).expect("a small number");
    let records = number("--records").unwrap_or(64);
    let mut verdict = Verdict::default();
    let (mut ranges, mut cpu, mut disk) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..rounds() {
        let (rate, cpu_seconds) = service_round(uploads, records);
        ranges.push(rate);
        cpu.push(cpu_seconds * 1000.0);
        disk.push(disk_round(uploads, records));
    }
    let mut table = Table::new(["what", "per second, median", "min-max", "CPU ms each", "limit"]);
    let span = |values: &[f64]| {
        let (low, high) = spread(values);
        format!("{low:.0}-{high:.0}")
    };
    let limit = verdict.at_least("ranges per second", median(&ranges), 1000.0);
    table.row([
        format!("ranges, {uploads} uploads at once"),
        format!("{:.0}", median(&ranges)),
        span(&ranges),
        format!("{:.2}", median(&cpu)),
        format!("1000 {limit}"),
    ]);
    table.row([
        format!("the disk alone, {uploads} files"),
        format!("{:.0}", median(&disk)),
        span(&disk),
        "-".to_owned(),
        "-".to_owned(),
    ]);
    println!("{}", table.render());
    verdict.exit()
}

/// An upload whose requests are ready to be sent.
struct Ready {
    requests: Vec<Vec<u8>>,
}

/// Seals an upload with keys of the service's own.
fn ready(ring: &Keyring, number: usize, records: u64) -> Ready {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).expect("a clock after 1970").as_secs();
    let now = UnixTime(u32::try_from(now).expect("before 2106"));
    let mut key = [7; 32];
    key[..8].copy_from_slice(&number.to_be_bytes());
    let key = UploadKey(key);
    let (id, expires) = (key.upload_id(), now.plus_secs(86_400));
    let grant = Grant { key, not_before: now, max_bytes: u64::MAX, route: Route::ANY, suite: Suite::Aes256Gcm };
    let ticket = ring.seal_ticket(ORIGIN, id, expires, &grant, [1; 12]);
    let content = format!("{{\"expires\":{},\"cookie\":\"session=bench\"}}", expires.0);
    let token = hoop_seal::signing::to_text(&ring.seal_token(ORIGIN, id, content.as_bytes(), [2; 12]));
    let prelude = Prelude::new([3; 16], RECORD_SIZE, &ticket).expect("a valid prelude");
    // The last record, which is short, stays behind.
    let plaintext_len = (records + 1) * u64::from(RECORD_SIZE - 17) - 1000;
    let head = |body: u64| {
        format!("POST /upload HTTP/1.1\r\nHost: x\r\nContent-Length: {body}\r\nHoop-Token: {token}\r\n\r\n")
    };
    let body = (0..3).fold(plaintext_len, |body, _| plaintext_len - head(body).len() as u64);
    let layout = Layout::for_plaintext(prelude.len(), RECORD_SIZE, plaintext_len).expect("a length that can be");
    let content_key = ContentKey::new(Suite::Aes256Gcm, &grant.key, prelude.salt());
    let request = |index: u64| {
        let mut plaintext = vec![0xa5; layout.plaintext(index).len() as usize];
        if index == 0 {
            let head = head(body);
            plaintext[..head.len()].copy_from_slice(head.as_bytes());
        }
        content_key.seal(index, false, &mut plaintext);
        let ByteRange { start, end } = layout.record(index);
        let mut request = format!(
            "PUT /hoop/post/{id} HTTP/1.1\r\nHost: photos.example\r\nContent-Range: bytes {start}-{}/{}\r\nHoop-Prelude: {}\r\n\
             Content-Length: {}\r\n\r\n",
            end - 1,
            layout.total(),
            prelude.to_header(),
            plaintext.len(),
        )
        .into_bytes();
        request.extend_from_slice(&plaintext);
        request
    };
    Ready { requests: (0..records).map(request).collect() }
}

/// Ranges per second, and the service's processor seconds for each.
fn service_round(uploads: usize, records: u64) -> (f64, f64) {
    let folder = tempfile::Builder::new().prefix("hoop-ranges").tempdir_in(".").expect("a folder on disk");
    let key = ServiceKey::new(KwsId([1; 4]), [1; 32]);
    fs::write(folder.path().join("keys"), key.to_line() + "\n").expect("room for a key");
    let ring = Keyring::new(key);
    let address = free_address();
    let mut service = start(folder.path(), address);
    let barrier = Arc::new(Barrier::new(uploads + 1));
    let senders: Vec<_> = (0..uploads)
        .map(|number| {
            let (upload, barrier) = (ready(&ring, number, records), barrier.clone());
            std::thread::spawn(move || {
                let stream = TcpStream::connect(address).expect("the service listens");
                stream.set_nodelay(true).expect("a socket");
                let mut reader = BufReader::new(stream.try_clone().expect("a socket"));
                barrier.wait();
                upload.requests.iter().for_each(|request| put(&stream, &mut reader, request));
            })
        })
        .collect();
    let before = cpu_seconds(service.id());
    barrier.wait();
    let begin = Instant::now();
    senders.into_iter().for_each(|sender| sender.join().expect("a sender ends"));
    let seconds = begin.elapsed().as_secs_f64();
    let cpu = cpu_seconds(service.id()) - before;
    let _ = (service.kill(), service.wait());
    let ranges = uploads as f64 * records as f64;
    (ranges / seconds, cpu / ranges)
}

fn put(mut stream: &TcpStream, reader: &mut BufReader<TcpStream>, request: &[u8]) {
    stream.write_all(request).expect("the service reads");
    let (mut line, mut length) = (String::new(), 0);
    reader.read_line(&mut line).expect("an answer");
    assert!(line.starts_with("HTTP/1.1 202"), "{line}");
    loop {
        let mut field = String::new();
        reader.read_line(&mut field).expect("a head");
        if field == "\r\n" {
            break;
        }
        if let Some(value) = field.to_ascii_lowercase().strip_prefix("content-length:") {
            length = value.trim().parse().expect("a length");
        }
    }
    reader.read_exact(&mut vec![0; length]).expect("a body");
}

/// 64 KiB written and synced, per second.
fn disk_round(files: usize, writes: u64) -> f64 {
    let folder = tempfile::Builder::new().prefix("hoop-ranges").tempdir_in(".").expect("a folder on disk");
    let barrier = Arc::new(Barrier::new(files + 1));
    let writers: Vec<_> = (0..files)
        .map(|number| {
            let file = File::create(folder.path().join(number.to_string())).expect("a file");
            let barrier = barrier.clone();
            std::thread::spawn(move || {
                let block = vec![0x5a; RECORD_SIZE as usize];
                barrier.wait();
                for at in 0..writes {
                    file.write_all_at(&block, at * u64::from(RECORD_SIZE)).expect("room on disk");
                    file.sync_data().expect("a disk that syncs");
                }
            })
        })
        .collect();
    barrier.wait();
    let begin = Instant::now();
    writers.into_iter().for_each(|writer| writer.join().expect("a writer ends"));
    files as f64 * writes as f64 / begin.elapsed().as_secs_f64()
}

fn start(folder: &Path, address: SocketAddr) -> Child {
    let program = std::env::current_exe().expect("this program has a path").with_file_name("hoop");
    let mut command = Command::new(program);
    command.args(["service", "--upstream", "http://127.0.0.1:9", "--origin", ORIGIN, "--listen"]);
    command
        .arg(address.to_string())
        .arg("--keys")
        .arg(folder.join("keys"))
        .arg("--state-dir")
        .arg(folder.join("state"));
    let log = File::create(folder.join("log")).expect("a log file");
    let mut service =
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log).spawn().expect("`hoop` is built beside this");
    for _ in 0..500 {
        if TcpStream::connect(address).is_ok() {
            return service;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    let _ = (service.kill(), service.wait());
    panic!("the service does not listen: {}", fs::read_to_string(folder.join("log")).unwrap_or_default());
}
