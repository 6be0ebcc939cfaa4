//! Power cuts: the service works in a process under record, and its state folder is built anew as a cut at any point may leave it
//! (`hoop-powercut` says what that may be). What was answered 2xx before is there, and no application gets an upload twice.
//!
//! `HOOP_SEED` repeats a run's choices, `HOOP_CYCLES` makes it longer.

#[path = "it/support/mod.rs"]
mod support;

use hoop_powercut::{Journal, Recorder, Rules, folder, note, number_of, seed};
use hoop_units::{ByteRange, RangeSet};
use rand_core::{Rng as _, SeedableRng as _};
use rand_pcg::Pcg64Mcg;
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use support::device::{self, Sealed, seal};
use support::{Sidecar, bytes, wire};
use tempfile::TempDir;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;

/// How the child is told where everything is: state folder, address, application.
const CHILD: &str = "HOOP_POWERCUT_SERVICE";

/// Uploads of one record.
const UPLOADS: u64 = 3;

/// Cuts of one record.
const CUTS: u32 = 6;

/// Records, unless `HOOP_CYCLES` says otherwise: some seconds.
const CYCLES: u64 = 3;

/// So many cuts find what a missing sync loses.
const CUTS_THAT_BITE: u64 = 150;

/// Not a claim of its own: in the child process, this is the service.
#[test]
#[ignore = "run by the tests below, as a process of its own"]
fn child() {
    let told = std::env::var(CHILD).expect("the test says where");
    let [dir, listen, upstream] = told.split('|').collect::<Vec<_>>()[..] else { panic!("{told}") };
    let runtime = tokio::runtime::Runtime::new().unwrap();
    runtime.block_on(async {
        let mut config = support::config(upstream.parse().unwrap(), PathBuf::from(dir));
        config.listen = listen.parse().unwrap();
        let (_never, stop) = hoop_http::shutdown();
        let service = hoop_service::Service::open(config).await.unwrap();
        note("open");
        service.run(stop).await;
    });
}

/// An application that accepts everything, and says what came whole before it answers.
struct Application {
    address: SocketAddr,
    task: tokio::task::JoinHandle<()>,
}

impl Drop for Application {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Application {
    async fn new(arrived: impl Fn(&str) + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let arrived = Arc::new(arrived);
        let task = tokio::spawn(async move {
            loop {
                let (mut stream, _) = listener.accept().await.unwrap();
                let arrived = arrived.clone();
                tokio::spawn(async move {
                    let mut bytes = Vec::new();
                    while stream.read_buf(&mut bytes).await.is_ok_and(|read| read > 0) {
                        let Some(id) = whole(&bytes) else { continue };
                        arrived(&id);
                        let answer = b"HTTP/1.1 201 Created\r\nContent-Length: 0\r\nConnection: close\r\n\r\n";
                        let _ = stream.write_all(answer).await;
                        return;
                    }
                });
            }
        });
        Self { address, task }
    }
}

/// The key of the upload whose request these bytes are, if all of it has come.
fn whole(bytes: &[u8]) -> Option<String> {
    let end = bytes.windows(4).position(|window| window == b"\r\n\r\n")?;
    let head = String::from_utf8_lossy(&bytes[..end]).to_ascii_lowercase();
    let field = |name: &str| head.lines().find_map(|line| line.strip_prefix(name)).map(|value| value.trim().to_owned());
    let length: usize = field("content-length:")?.parse().ok()?;
    (bytes.len() >= end + 4 + length).then(|| field("idempotency-key:").unwrap_or_default().replace('"', ""))
}

/// Who is not asked to be gentle.
struct Killed(Child);

impl Drop for Killed {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// What a run of the service left: the record, and the uploads.
struct Run {
    journal: Journal,
    uploads: Vec<Sealed>,
    _work: TempDir,
}

/// The service takes some uploads, is seen to hand them on, and is recorded.
async fn run(seed: u64) -> Run {
    let (dir, work) = (folder(), tempfile::tempdir().unwrap());
    let recorder = Arc::new(Recorder::new(dir.path(), work.path()).unwrap());
    let noting = recorder.clone();
    let application = Application::new(move |id| noting.note(&format!("arrived {id}")).unwrap()).await;
    let address = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let told = format!("{}|{address}|{}", dir.path().display(), application.address);
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["child", "--exact", "--ignored", "--test-threads=1"]).env(CHILD, told).envs(recorder.environment());
    let _service = Killed(command.stdout(Stdio::null()).spawn().unwrap());
    let deadline = tokio::time::Instant::now() + support::PATIENCE;
    while tokio::net::TcpStream::connect(address).await.is_err() {
        assert!(tokio::time::Instant::now() < deadline, "the child does not listen");
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    let mut senders = tokio::task::JoinSet::new();
    for n in 0..UPLOADS {
        let mut rng = Pcg64Mcg::seed_from_u64(seed ^ n << 32);
        let recorder = recorder.clone();
        senders.spawn(async move {
            let ticket = device::ticket_at(address, &serde_json::json!({})).await;
            let sealed = seal(&ticket, &bytes((rng.next_u32() % 300_000) as usize, seed + n));
            deliver(address, &sealed, &recorder, &mut rng).await;
            sealed
        });
    }
    let uploads = senders.join_all().await;
    Run { journal: recorder.journal().unwrap(), uploads, _work: work }
}

/// Sends an upload in ranges of any size and order, and follows it to its end; notes all that is answered.
async fn deliver(address: SocketAddr, sealed: &Sealed, recorder: &Recorder, rng: &mut Pcg64Mcg) {
    let mut firsts: Vec<u64> = (0..sealed.layout.records()).collect();
    while !firsts.is_empty() {
        let first = firsts.swap_remove(rng.next_u32() as usize % firsts.len());
        let range = sealed.records(first, first + 1);
        let reply = sealed.put(address, range).await;
        assert!(matches!(reply.status, 200 | 202), "{reply:?}");
        recorder.note(&format!("range {} {} {}", sealed.id, range.start, range.end)).unwrap();
    }
    let path = format!("/hoop/uploads/{}", sealed.id);
    loop {
        let state = wire::send(address, "GET", &path, &[("Prefer", "wait=1")], b"").await.json()["state"].to_string();
        let state = state.trim_matches('"');
        recorder.note(&format!("state {} {state}", sealed.id)).unwrap();
        if !matches!(state, "received" | "receiving") {
            break;
        }
    }
}

/// What was told of one upload.
#[derive(Clone, Default)]
struct Told {
    ranges: RangeSet,
    arrivals: u32,
    state: String,
}

fn told(journal: &Journal, at: usize) -> BTreeMap<String, Told> {
    let mut all = BTreeMap::<String, Told>::new();
    for note in journal.notes(at) {
        let words: Vec<&str> = note.split(' ').collect();
        match words[..] {
            ["arrived", id] => all.entry(id.to_owned()).or_default().arrivals += 1,
            ["range", id, start, end] => {
                let range = ByteRange::new(start.parse().unwrap(), end.parse().unwrap());
                all.entry(id.to_owned()).or_default().ranges.insert(range);
            }
            ["state", id, state] => all.entry(id.to_owned()).or_default().state = state.to_owned(),
            _ => {}
        }
    }
    all
}

/// What is wrong with the state that a cut left, if anything.
async fn check(dir: &Path, run: &Run, at: usize) -> Result<(), String> {
    let told = told(&run.journal, at);
    let arrived = |id: &str| told.get(&support::idempotency_key(id)).map_or(0, |told| told.arrivals);
    let told_of = |sealed: &Sealed| {
        let told = told.get(&sealed.id).cloned().unwrap_or_default();
        Told { arrivals: arrived(&sealed.id), ..told }
    };
    // With no application to hand anything on to, all stays as the cut left it.
    let nobody = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let sidecar = open(nobody, dir).await?;
    let mut wrong = Ok(());
    for sealed in &run.uploads {
        wrong = wrong.and(is_there(&sidecar, sealed, &told_of(sealed)).await);
    }
    sidecar.stop().await;
    std::mem::replace(&mut wrong, Ok(()))?;
    let arrivals = Arc::new(Mutex::new(BTreeMap::<String, u32>::new()));
    let counting = arrivals.clone();
    let application =
        Application::new(move |id| *counting.lock().unwrap().entry(id.to_owned()).or_default() += 1).await;
    let sidecar = open(application.address, dir).await?;
    for sealed in &run.uploads {
        let state = settle(&sidecar, sealed).await;
        let key = support::idempotency_key(&sealed.id);
        let after = arrivals.lock().unwrap().get(&key).copied().unwrap_or(0);
        wrong = wrong.and(judge(sealed, &told_of(sealed), &state, after));
    }
    sidecar.stop().await;
    wrong
}

async fn open(application: SocketAddr, dir: &Path) -> Result<Sidecar, String> {
    let deadline = tokio::time::Instant::now() + support::PATIENCE;
    // It says so itself, rather than panic in the middle of a helper.
    while let Err(error) = hoop_service::Service::open(support::config(application, dir.to_owned())).await {
        let error = error.to_string();
        // A thread of the one before may be about to leave the folder: here that is no process, which ends with all its threads.
        if !error.ends_with("another service is using it") || tokio::time::Instant::now() > deadline {
            return Err(format!("it does not open: {error}"));
        }
        tokio::time::sleep(std::time::Duration::from_millis(10)).await;
    }
    Ok(Sidecar::on(application, dir.to_owned(), |_| {}).await)
}

/// What was told is there, and what is said to be there has its bytes.
async fn is_there(sidecar: &Sidecar, sealed: &Sealed, known: &Told) -> Result<(), String> {
    let head = sidecar.send("HEAD", &format!("/hoop/post/{}", sealed.id), &[], b"").await;
    let missing: RangeSet = match head.status {
        200 => head.field("hoop-missing").unwrap_or_default().parse().map_err(|_| "no ranges".to_owned())?,
        _ => [ByteRange::new(0, sealed.z.len() as u64)].into_iter().collect(),
    };
    let lost = known.ranges.iter().find(|range| missing.iter().any(|gap| !gap.intersect(*range).is_empty()));
    if let Some(lost) = lost {
        return Err(format!("{lost} of {} was answered 2xx, and {missing} is missing", sealed.id));
    }
    match check_bytes(sidecar, sealed, &missing) {
        // What was past the gate is shown as received until the service has found it: then it is unknown, and its body goes.
        Err(_) if !keeps_body(sidecar, sealed).await => Ok(()),
        checked => checked,
    }
}

async fn keeps_body(sidecar: &Sidecar, sealed: &Sealed) -> bool {
    let head = sidecar.send("HEAD", &format!("/hoop/post/{}", sealed.id), &[], b"").await;
    head.status == 200 && matches!(head.field("hoop-state"), Some("receiving" | "received"))
}

/// What is not missing has its bytes in the body's file.
fn check_bytes(sidecar: &Sidecar, sealed: &Sealed, missing: &RangeSet) -> Result<(), String> {
    let bytes =
        std::fs::read(sidecar.dir.join("bodies").join(&sealed.id)).map_err(|error| format!("no body: {error}"))?;
    let mut has: RangeSet = [ByteRange::new(sealed.layout.prelude_len(), sealed.z.len() as u64)].into_iter().collect();
    missing.iter().for_each(|gap| has.remove(gap));
    let right = |range: &ByteRange| {
        let range = range.start as usize..range.end as usize;
        bytes.get(range.clone()) == Some(&sealed.z[range])
    };
    match has.iter().find(|range| !right(range)) {
        Some(range) => Err(format!("{range} of {} is said to be there, and its bytes are others", sealed.id)),
        None => Ok(()),
    }
}

/// Sends the rest, as a gateway would, until the upload is over: its state.
async fn settle(sidecar: &Sidecar, sealed: &Sealed) -> String {
    let deadline = tokio::time::Instant::now() + support::PATIENCE;
    loop {
        let reply = sidecar.send("POST", "/hoop/post", &[("Prefer", "wait=5")], &sealed.z).await;
        let state = reply.field("hoop-state").unwrap_or_default().to_owned();
        if !matches!(state.as_str(), "received" | "receiving") || tokio::time::Instant::now() > deadline {
            return state;
        }
    }
}

fn judge(sealed: &Sealed, known: &Told, state: &str, after: u32) -> Result<(), String> {
    let (id, times) = (&sealed.id, known.arrivals + after);
    let right = match state {
        "accepted" => times == 1,
        "unknown" => times <= 1,
        _ => false,
    };
    if !right {
        return Err(format!("{id} is {state:?}, and came {} times before the cut and {after} after", known.arrivals));
    }
    if known.state == "accepted" && state != "accepted" {
        return Err(format!("{id} was accepted, and is {state}"));
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_power_cut_loses_no_accepted_upload_and_repeats_none() {
    let (seed, mut cuts) = (seed(), 0);
    for seed in seed..seed + number_of("HOOP_CYCLES").unwrap_or(CYCLES) {
        let run = run(seed).await;
        let (mut rng, len) = (Pcg64Mcg::seed_from_u64(seed), run.journal.records().len());
        for _ in 0..CUTS {
            let (at, into) = (rng.next_u32() as usize % (len + 1), folder());
            run.journal.cut(at, &Rules::default(), &mut rng, into.path()).unwrap();
            if let Err(why) = check(into.path(), &run, at).await {
                panic!("HOOP_SEED={seed}, cut {at} of {len}: {why}");
            }
            cuts += 1;
        }
    }
    println!("{cuts} cuts");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_syncs_a_power_cut_loses_accepted_uploads() {
    let run = run(7).await;
    for (what, ignored) in [
        ("bodies", (|path: &Path, is_folder| !is_folder && path.starts_with("bodies")) as fn(&Path, bool) -> bool),
        ("the bodies' names", |path, is_folder| is_folder && path.starts_with("bodies")),
        ("the index's log", |path, _| path.to_string_lossy().ends_with("-wal")),
    ] {
        let mut lost = Ok(());
        for seed in 0..CUTS_THAT_BITE {
            let (mut rng, into) = (Pcg64Mcg::seed_from_u64(seed), folder());
            let at = rng.next_u32() as usize % (run.journal.records().len() + 1);
            run.journal.cut(at, &Rules::ignoring(ignored), &mut rng, into.path()).unwrap();
            lost = check(into.path(), &run, at).await;
            if lost.is_err() {
                break;
            }
        }
        println!("without the sync of {what}: {lost:?}");
        assert!(lost.is_err(), "the sync of {what} would not be missed");
    }
}
