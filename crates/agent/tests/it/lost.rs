//! Answers whose relay goes, or whose origin breaks off, before the program has all of them.

use crate::house::{House, head, keeping_relay, origin};
use hoop_relay::{Relay, RelayConfig};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, copy_bidirectional};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Notify, watch};
use tokio::time::{sleep, timeout};

/// More than what is on its way between relay and agent, and between agent and program.
const LEN: usize = 24 << 20;

fn body(seed: u8) -> Vec<u8> {
    (0..LEN).map(|at| ((at / 251) ^ at) as u8 ^ seed).collect()
}

/// A house whose relay can be killed, and begun anew.
pub struct Relayed {
    pub house: House,
    pub config: RelayConfig,
    pub state: Option<PathBuf>,
}

impl Relayed {
    pub async fn new(has_state: bool) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let state = has_state.then(|| folder.path().join("state"));
        let (introduction, relay, config) = keeping_relay(folder.path(), state.clone()).await;
        Self { house: House::by(folder, (introduction, relay), |_| {}).await, config, state }
    }

    pub async fn kill(&mut self) {
        self.house.relay.abort();
        let _ = (&mut self.house.relay).await;
    }

    pub async fn begin(&mut self) {
        let relay = timeout(Duration::from_secs(20), async {
            loop {
                match Relay::bind(&self.config).await {
                    Ok(relay) => return relay,
                    // The one before has not let go of everything yet.
                    Err(_) => sleep(Duration::from_millis(50)).await,
                }
            }
        });
        self.house.relay = tokio::spawn(relay.await.expect("it begins").run());
    }

    async fn get(&self, to: SocketAddr) -> TcpStream {
        let mut program = self.house.program().await;
        program.write_all(format!("GET http://{to}/ HTTP/1.1\r\nHost: {to}\r\n\r\n").as_bytes()).await.unwrap();
        program
    }

    /// The files in the relay's folder that are called so.
    fn files(&self, kind: &str) -> usize {
        let objects = self.state.as_ref().unwrap().join("objects");
        let entries = |path: &Path| std::fs::read_dir(path).into_iter().flatten().flatten().collect::<Vec<_>>();
        let files = entries(&objects).iter().flat_map(|device| entries(&device.path())).collect::<Vec<_>>();
        files.iter().filter(|file| file.path().extension().is_some_and(|of| of == kind)).count()
    }

    async fn until_files(&self, kind: &str, count: usize) {
        until(|| self.files(kind) == count).await;
    }
}

/// Waits for what is to come about by itself.
pub async fn until(has_come: impl Fn() -> bool) {
    let coming = async {
        while !has_come() {
            sleep(Duration::from_millis(20)).await;
        }
    };
    timeout(Duration::from_secs(30), coming).await.expect("it comes about");
}

/// What an origin does with a connection after the request's head.
#[derive(Clone)]
struct Origin {
    body: Arc<Mutex<Vec<u8>>>,
    /// Its versions have names, and a part may be asked for.
    is_versioned: bool,
    /// How much of an answer's body it sends before it breaks off.
    breaks_after: usize,
    asked: Arc<AtomicUsize>,
}

impl Origin {
    fn new(body: Vec<u8>, is_versioned: bool) -> Self {
        Self { body: Arc::new(Mutex::new(body)), is_versioned, breaks_after: usize::MAX, asked: Arc::default() }
    }

    async fn run(&self) -> SocketAddr {
        let this = self.clone();
        origin(move |stream| {
            let this = this.clone();
            async move { this.answer(stream).await }
        })
        .await
    }

    async fn answer(&self, mut stream: TcpStream) {
        let request = head(&mut stream).await;
        self.asked.fetch_add(1, Ordering::SeqCst);
        let body = self.body.lock().unwrap().clone();
        let tag = format!("\"{}\"", body[0]);
        let field = |name: &str| request.lines().find_map(|line| line.strip_prefix(name));
        let from = field("Range: bytes=").and_then(|range| range.strip_suffix('-')?.parse::<usize>().ok());
        let from = from.filter(|_| self.is_versioned && field("If-Range: ") == Some(&tag));
        let (status, range) = match from {
            Some(from) => ("206 Partial Content", format!("Content-Range: bytes {from}-{}/{}\r\n", LEN - 1, LEN)),
            None => ("200 OK", String::new()),
        };
        let tag = if self.is_versioned { format!("ETag: {tag}\r\n") } else { String::new() };
        let rest = &body[from.unwrap_or(0)..];
        let head = format!("HTTP/1.1 {status}\r\nContent-Length: {}\r\n{tag}{range}\r\n", rest.len());
        let sent = rest.len().min(self.breaks_after);
        let _ = stream.write_all(head.as_bytes()).await;
        let _ = stream.write_all(&rest[..sent]).await;
    }

    fn asked(&self) -> usize {
        self.asked.load(Ordering::SeqCst)
    }
}

/// What stands between an agent and its relay, and can be cut. It passes TCP alone.
pub struct Cable {
    pub port: u16,
    is_cut: Arc<watch::Sender<bool>>,
}

impl Cable {
    pub async fn to(relay: SocketAddr) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let is_cut = Arc::new(watch::Sender::new(false));
        let cut = is_cut.clone();
        tokio::spawn(async move {
            while let Ok((mut device, _)) = listener.accept().await {
                let mut cut = cut.subscribe();
                tokio::spawn(async move {
                    let passing = async {
                        let mut relay = TcpStream::connect(relay).await?;
                        copy_bidirectional(&mut device, &mut relay).await
                    };
                    tokio::select! {
                        biased;
                        _ = cut.wait_for(|cut| *cut) => {}
                        _ = passing => {}
                    }
                });
            }
        });
        Self { port, is_cut }
    }

    pub fn cut(&self, is_cut: bool) {
        self.is_cut.send_replace(is_cut);
    }
}

/// A house that a cable connects with its relay, whose answers are parked soon. Returns where the relay tells its metrics.
async fn cabled() -> (Relayed, Cable, SocketAddr) {
    let folder = tempfile::tempdir().unwrap();
    let state = folder.path().join("state");
    let (mut introduction, relay, mut config) = keeping_relay(folder.path(), Some(state.clone())).await;
    relay.abort();
    let _ = relay.await;
    config.store.as_mut().unwrap().parks_after = Duration::from_millis(300);
    config.admin = Some("127.0.0.1:0".parse().unwrap());
    let relay = Relay::bind(&config).await.unwrap();
    let (cable, metrics) = (Cable::to(relay.address()).await, relay.admin_address().unwrap());
    introduction.server = format!("localhost:{}", cable.port);
    let house = House::by(folder, (introduction, tokio::spawn(relay.run())), |_| {}).await;
    (Relayed { house, config, state: Some(state) }, cable, metrics)
}

/// Waits until the metrics have this line.
async fn until_told(metrics: SocketAddr, line: &str) {
    let told = async {
        loop {
            let mut stream = TcpStream::connect(metrics).await.unwrap();
            stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n").await.unwrap();
            let mut page = String::new();
            stream.read_to_string(&mut page).await.unwrap();
            if page.lines().any(|told| told == line) {
                return;
            }
            sleep(Duration::from_millis(50)).await;
        }
    };
    timeout(Duration::from_secs(30), told).await.unwrap_or_else(|_| panic!("{line}"));
}

#[tokio::test]
async fn an_answer_waits_on_disk_alone_for_a_device_that_is_long_away() {
    let (relayed, cable, metrics) = cabled().await;
    let origin = Origin::new(body(3), false);
    let mut program = relayed.get(origin.run().await).await;
    assert!(head(&mut program).await.starts_with("HTTP/1.1 200 "));
    let mut came = read(&mut program, 1 << 20).await;
    for (at, parked) in [(10 << 20, 1), (LEN, 2)] {
        relayed.until_files("whole", 1).await;
        cable.cut(true);
        until_told(metrics, &format!("hoop_relay_parked_total {parked}")).await;
        until_told(metrics, "hoop_relay_flows 0").await;
        assert_eq!(relayed.files("whole"), 1);
        cable.cut(false);
        came.extend(read(&mut program, at - came.len()).await);
    }
    assert!(came == *origin.body.lock().unwrap());
    assert_eq!(origin.asked(), 1, "nothing is asked for again");
    relayed.until_files("whole", 0).await;
    relayed.until_files("head", 0).await;
}

/// Of which each flow had all that a buffer takes: a gigabyte for some thousands of slow devices, and then there was no room for others.
#[tokio::test]
async fn what_a_slow_program_does_not_want_yet_is_on_the_relays_disk_and_not_in_its_memory() {
    let (relayed, _cable, metrics) = cabled().await;
    let origin = Origin::new(body(3), false);
    let mut program = relayed.get(origin.run().await).await;
    assert!(head(&mut program).await.starts_with("HTTP/1.1 200 "));
    relayed.until_files("whole", 1).await;
    until_told(metrics, "hoop_relay_held_bytes 0").await;
    until_told(metrics, "hoop_relay_flows 1").await;
    assert!(read(&mut program, LEN).await == *origin.body.lock().unwrap());
}

#[tokio::test]
async fn what_a_tunnels_program_does_not_want_yet_takes_no_memory_of_the_relay() {
    let (relayed, _cable, metrics) = cabled().await;
    let to = origin(|mut stream| async move { while stream.write_all(&[7; 1 << 16]).await.is_ok() {} }).await;
    let mut program = relayed.house.tunnel(&to.to_string()).await;
    read(&mut program, 8 << 20).await;
    until_told(metrics, "hoop_relay_held_bytes 0").await;
    until_told(metrics, "hoop_relay_flows 1").await;
    assert!(read(&mut program, LEN).await.iter().all(|byte| *byte == 7));
}

#[tokio::test]
async fn what_a_program_gives_up_while_the_device_is_away_does_not_stay_at_the_relay() {
    let (relayed, cable, metrics) = cabled().await;
    let origin = Origin::new(body(3), false);
    let to = origin.run().await;
    for parked in 1..=2 {
        let mut program = relayed.get(to).await;
        assert!(head(&mut program).await.starts_with("HTTP/1.1 200 "));
        read(&mut program, 1 << 20).await;
        if parked == 2 {
            // Once it has gone on by another flow, too.
            cable.cut(true);
            until_told(metrics, "hoop_relay_parked_total 2").await;
            cable.cut(false);
            read(&mut program, 4 << 20).await;
        }
        relayed.until_files("whole", 1).await;
        cable.cut(true);
        until_told(metrics, &format!("hoop_relay_parked_total {}", 2 * parked - 1)).await;
        drop(program);
        // The agent looks whether it is there.
        sleep(Duration::from_secs(3)).await;
        cable.cut(false);
        relayed.until_files("whole", 0).await;
        relayed.until_files("head", 0).await;
        until_told(metrics, "hoop_relay_flows 0").await;
    }
}

#[tokio::test]
async fn the_answer_to_an_upload_waits_on_disk_alone_for_a_device_that_is_long_away() {
    let (relayed, cable, metrics) = cabled().await;
    let (posted, may_answer) = (Arc::<AtomicUsize>::default(), Arc::<Notify>::default());
    let (counts, answers) = (posted.clone(), may_answer.clone());
    let to = origin(move |mut stream| {
        let (counts, answers) = (counts.clone(), answers.clone());
        async move {
            head(&mut stream).await;
            read(&mut stream, 5).await;
            counts.fetch_add(1, Ordering::SeqCst);
            answers.notified().await;
            let _ = stream.write_all(b"HTTP/1.1 201 Created\r\nContent-Length: 6\r\n\r\nstored").await;
        }
    })
    .await;
    let mut program = relayed.house.program().await;
    let request = format!("POST http://{to}/ HTTP/1.1\r\nHost: {to}\r\nContent-Length: 5\r\n\r\nphoto");
    program.write_all(request.as_bytes()).await.unwrap();
    until(|| posted.load(Ordering::SeqCst) == 1).await;
    cable.cut(true);
    may_answer.notify_one();
    until_told(metrics, "hoop_relay_parked_total 1").await;
    until_told(metrics, "hoop_relay_flows 0").await;
    cable.cut(false);
    assert!(head(&mut program).await.starts_with("HTTP/1.1 201 "));
    assert_eq!(read(&mut program, 6).await, b"stored");
    assert_eq!(posted.load(Ordering::SeqCst), 1);
    relayed.until_files("head", 0).await;
    let uploads = relayed.state.as_ref().unwrap().join("uploads");
    let entries = |path: &Path| std::fs::read_dir(path).into_iter().flatten().flatten().collect::<Vec<_>>();
    until(|| entries(&uploads).iter().all(|device| entries(&device.path()).is_empty())).await;
}

/// Reads so much of a body, and not a byte more.
async fn read(program: &mut TcpStream, len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    timeout(Duration::from_secs(60), program.read_exact(&mut bytes)).await.expect("it comes").unwrap();
    bytes
}

#[tokio::test(flavor = "multi_thread")]
async fn an_answer_that_a_killed_relay_had_whole_comes_from_its_disk() {
    let mut relayed = Relayed::new(true).await;
    let origin = Origin::new(body(1), false);
    let mut program = relayed.get(origin.run().await).await;
    let told = head(&mut program).await;
    assert!(told.contains("Content-Length: 25165824\r\n"), "{told}");
    let mut came = read(&mut program, 100).await;
    relayed.until_files("whole", 1).await;
    relayed.kill().await;
    relayed.begin().await;
    came.extend(read(&mut program, LEN - 100).await);
    assert!(came == body(1));
    assert_eq!(origin.asked(), 1, "it was not asked again");
    // What nobody needs is removed.
    relayed.until_files("whole", 0).await;
    relayed.until_files("head", 0).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_relay_that_was_killed_while_it_fetched_fetches_the_rest() {
    let mut relayed = Relayed::new(true).await;
    let origin = Origin { breaks_after: LEN / 2, ..Origin::new(body(2), true) };
    let mut program = relayed.get(origin.run().await).await;
    head(&mut program).await;
    relayed.until_files("part", 1).await;
    relayed.kill().await;
    relayed.begin().await;
    assert!(read(&mut program, LEN).await == body(2));
    assert!(origin.asked() >= 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_relay_without_a_disk_is_asked_for_the_rest_of_the_same_version() {
    let mut relayed = Relayed::new(false).await;
    let origin = Origin::new(body(3), true);
    let mut program = relayed.get(origin.run().await).await;
    head(&mut program).await;
    let mut came = Vec::new();
    for _ in 0..3 {
        came.extend(read(&mut program, LEN / 4).await);
        relayed.kill().await;
        relayed.begin().await;
    }
    came.extend(read(&mut program, LEN - came.len()).await);
    assert!(came == body(3));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_relay_that_has_but_a_part_of_a_rest_is_gone_past() {
    let mut relayed = Relayed::new(true).await;
    let origin = Origin { breaks_after: LEN / 3, ..Origin::new(body(8), true) };
    let mut program = relayed.get(origin.run().await).await;
    head(&mut program).await;
    let came = read(&mut program, 100).await;
    relayed.until_files("part", 1).await;
    relayed.kill().await;
    // The next relay has an empty disk, and the one after that what came of the rest.
    std::fs::remove_dir_all(relayed.state.as_ref().unwrap()).unwrap();
    // Slower than the origin, so that there is something on disk; what is not read at all is not missed.
    let reading = tokio::spawn(async move {
        let mut came = came;
        while came.len() < LEN {
            let piece = (LEN - came.len()).min(256 << 10);
            came.extend(read(&mut program, piece).await);
            sleep(Duration::from_millis(20)).await;
        }
        came
    });
    let asked = origin.asked();
    relayed.begin().await;
    until(|| origin.asked() > asked).await;
    sleep(Duration::from_millis(50)).await;
    relayed.kill().await;
    relayed.begin().await;
    assert!(reading.await.unwrap() == body(8));
}

#[tokio::test(flavor = "multi_thread")]
async fn an_answer_of_another_version_is_never_joined_to_what_was_read() {
    for is_versioned in [true, false] {
        let mut relayed = Relayed::new(false).await;
        let origin = Origin::new(body(4), is_versioned);
        let mut program = relayed.get(origin.run().await).await;
        head(&mut program).await;
        let mut came = read(&mut program, LEN / 4).await;
        *origin.body.lock().unwrap() = body(5);
        relayed.kill().await;
        relayed.begin().await;
        let end = timeout(Duration::from_secs(60), program.read_to_end(&mut came)).await.expect("it ends");
        assert_eq!(end.unwrap_err().kind(), std::io::ErrorKind::ConnectionReset);
        assert!(came == body(4)[..came.len()]);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_origin_that_breaks_off_is_asked_for_the_rest() {
    let relayed = Relayed::new(false).await;
    let origin = Origin { breaks_after: LEN / 3, ..Origin::new(body(6), true) };
    let mut program = relayed.get(origin.run().await).await;
    head(&mut program).await;
    assert!(read(&mut program, LEN).await == body(6));
    assert_eq!(origin.asked(), 3);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_without_an_answer_is_made_again_by_the_next_relay() {
    let mut relayed = Relayed::new(true).await;
    let (may_answer, asked) = (Arc::new(Notify::new()), Arc::<AtomicUsize>::default());
    let (waits, counted) = (may_answer.clone(), asked.clone());
    let to = origin(move |mut stream| {
        let (waits, counted) = (waits.clone(), counted.clone());
        async move {
            head(&mut stream).await;
            if counted.fetch_add(1, Ordering::SeqCst) == 0 {
                waits.notified().await;
            }
            let _ = stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi").await;
        }
    })
    .await;
    let mut program = relayed.get(to).await;
    until(|| asked.load(Ordering::SeqCst) > 0).await;
    relayed.kill().await;
    relayed.begin().await;
    assert!(head(&mut program).await.starts_with("HTTP/1.1 200 OK\r\n"));
    assert_eq!(read(&mut program, 2).await, b"hi");
    assert_eq!(asked.load(Ordering::SeqCst), 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_device_does_not_take_is_fetched_and_let_go_of_with_its_program() {
    let relayed = Relayed::new(true).await;
    let origin = Origin::new(body(7), false);
    let mut program = relayed.get(origin.run().await).await;
    head(&mut program).await;
    relayed.until_files("whole", 1).await;
    drop(program);
    relayed.until_files("head", 0).await;
    assert_eq!((relayed.files("whole"), relayed.files("part")), (0, 0));
}
