//! `kill -9` of a gateway at random moments, and a disk that becomes full: whatever was answered 2xx is intact. A second copy of
//! this test binary is the gateway that dies.

use crate::support::{
    LATER, border, config, get, head, id_of, post, put, put_request, recorded, sealed, send, start, status,
};
use hoop_gateway::Config;
use hoop_http::{Connector, Origin, full, shutdown, tls};
use hoop_units::{ByteRange, RangeSet, UploadId};
use http::Request;
use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

const FOLDER: &str = "HOOP_GATEWAY_CRASH_FOLDER";
const NOWHERE: &str = "http://127.0.0.1:9/hoop/post";

struct Random(u64);

impl Random {
    fn next(&mut self, below: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % below
    }
}

/// The gateway that dies: says where it listens, and serves until it is killed.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "run by the test below, as a process of its own"]
async fn victim() {
    let folder = std::env::var(FOLDER).expect("the killer says where");
    let gateway = hoop_gateway::Gateway::open(config(Path::new(&folder))).await.unwrap();
    println!("listening {}", gateway.address());
    let (_stop, shutdown) = shutdown();
    gateway.run(shutdown).await;
}

fn spawn(folder: &Path) -> (Child, SocketAddr) {
    spawn_with(folder, &[])
}

/// A gateway in a process of its own, with these variables in its environment.
pub fn spawn_with(folder: &Path, environment: &[(&str, &Path)]) -> (Child, SocketAddr) {
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["crash::victim", "--exact", "--ignored", "--nocapture"])
        .env(FOLDER, folder)
        .envs(environment.iter().copied())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines().map_while(Result::ok);
    let line = lines.find_map(|line| line.split_once("listening ").map(|(_, address)| address.trim().to_owned()));
    let Some(address) = line else {
        let status = child.wait();
        panic!("the gateway did not begin: {status:?}");
    };
    (child, address.parse().unwrap())
}

/// Sends a range; `true` if it was answered 2xx, `false` if the gateway died.
async fn try_put(address: SocketAddr, z: &[u8], range: ByteRange) -> bool {
    let origin: Origin = format!("http://{address}").parse().unwrap();
    let Ok(mut connection) = Connector::new(tls::client_config(&[]).unwrap()).connect(&origin).await else {
        return false;
    };
    let content_range = format!("bytes {range}/{}", z.len());
    let body = full(z[range.start as usize..range.end as usize].to_vec());
    let request = put_request(NOWHERE, z, &content_range).header("host", address.to_string()).body(body).unwrap();
    matches!(connection.send(request).await, Ok(response) if response.status().is_success())
}

fn file(folder: &Path, id: UploadId) -> PathBuf {
    folder.join("uploads").join(&id.to_hex()[..2]).join(format!("{id}.z"))
}

/// `HOOP_SEED` if it is set: a run that failed can be repeated.
fn seed() -> u32 {
    let given = std::env::var("HOOP_SEED").ok().map(|seed| seed.parse().expect("HOOP_SEED is a number"));
    given.unwrap_or_else(|| SystemTime::now().duration_since(UNIX_EPOCH).unwrap().subsec_nanos())
}

#[tokio::test(flavor = "multi_thread")]
async fn every_acknowledged_range_survives_kill_9_of_the_gateway() {
    let seed = seed();
    println!("HOOP_SEED={seed}");
    let mut random = Random(u64::from(seed));
    let folder = tempfile::tempdir().unwrap();
    let uploads: Vec<Vec<u8>> = (1..=6).map(|seed| sealed(seed, 600_000, LATER)).collect();
    let mut acknowledged: BTreeMap<usize, RangeSet> = BTreeMap::new();
    for _round in 0..6 {
        let (mut child, address) = spawn(folder.path());
        let killer = Duration::from_micros(random.next(150_000));
        let kill = tokio::spawn(async move {
            tokio::time::sleep(killer).await;
            child.kill().unwrap();
            child.wait().unwrap();
        });
        loop {
            let number = random.next(uploads.len() as u64) as usize;
            let z = &uploads[number];
            let first = random.next(9);
            let start = if first == 0 { 0 } else { border(first) };
            let range = ByteRange::new(start, border(first + 1 + random.next(3)).min(z.len() as u64));
            if !try_put(address, z, range).await {
                break;
            }
            acknowledged.entry(number).or_default().insert(range);
        }
        kill.await.unwrap();
        let again = start(config(folder.path())).await;
        for (number, ranges) in &acknowledged {
            let z = &uploads[*number];
            let reply = head(again.address, id_of(z)).await;
            let missing: RangeSet = reply.header("hoop-missing").parse().unwrap();
            let bytes = recorded(folder.path(), id_of(z));
            for range in ranges.iter() {
                let lost = missing.iter().any(|gap| !gap.intersect(range).is_empty());
                assert!(!lost, "{range} of {number} is missing (seed {seed})");
                let (from, to) = (range.start as usize, range.end as usize);
                assert!(bytes[from..to] == z[from..to], "{range} of {number} has other bytes (seed {seed})");
            }
        }
        again.stop().await;
    }
    assert!(!acknowledged.is_empty(), "nothing was acknowledged in six rounds (seed {seed})");
    let last = start(config(folder.path())).await;
    for z in &uploads {
        assert_eq!(post(last.address, NOWHERE, z).await.status, 201, "and each can be completed");
        assert!(recorded(folder.path(), id_of(z)) == *z);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn early_records_survive_kill_9_and_the_prelude_may_come_to_the_next_run() {
    let folder = tempfile::tempdir().unwrap();
    let z = sealed(1, 600_000, LATER);
    let (mut child, address) = spawn(folder.path());
    let request = Request::put(format!("/offload/{}?dest={NOWHERE}", id_of(&z)))
        .header("content-range", format!("bytes {}-{}/{}", border(1), z.len() - 1, z.len()))
        .header("hoop-early", "?1");
    assert_eq!(send(address, request, full(z[border(1) as usize..].to_vec())).await.status, 202);
    child.kill().unwrap();
    child.wait().unwrap();
    let again = start(config(folder.path())).await;
    assert_eq!(head(again.address, id_of(&z)).await.header("hoop-missing"), format!("0-{}", border(1) - 1));
    assert_eq!(put(again.address, NOWHERE, &z, ByteRange::new(0, border(1))).await.status, 201);
    assert!(recorded(folder.path(), id_of(&z)) == z);
}

/// A small disk of its own.
struct SmallDisk {
    folder: tempfile::TempDir,
}

impl SmallDisk {
    /// `None` where mounting is not permitted.
    fn mount(options: &str) -> Option<Self> {
        let folder = tempfile::tempdir().unwrap();
        let options = format!("{options},mode=0700");
        let mounted = Command::new("mount")
            .args(["-t", "tmpfs", "-o", &options, "tmpfs"])
            .arg(folder.path())
            .stderr(Stdio::null())
            .status()
            .is_ok_and(|status| status.success());
        mounted.then_some(Self { folder })
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(self.folder.path()).status();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_disk_full_in_mid_upload_is_507_and_the_upload_goes_on_with_new_room() {
    let Some(disk) = SmallDisk::mount("size=8m") else {
        println!("skipped: mounting a file system of its own is not permitted here");
        return;
    };
    let gateway = start(config(disk.folder.path())).await;
    let kept = sealed(1, 300_000, LATER);
    assert_eq!(post(gateway.address, NOWHERE, &kept).await.status, 201);
    let z = sealed(2, 4_000_000, LATER);
    let mut socket = tokio::net::TcpStream::connect(gateway.address).await.unwrap();
    let request =
        format!("POST /offload?dest={NOWHERE} HTTP/1.1\r\nHost: gateway\r\nContent-Length: {}\r\n\r\n", z.len());
    socket.write_all(request.as_bytes()).await.unwrap();
    socket.write_all(&z[..1_000_000]).await.unwrap();
    while std::fs::metadata(file(disk.folder.path(), id_of(&z))).map_or(0, |meta| meta.len()) < 900_000 {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    // Somebody else fills the disk.
    let filler = disk.folder.path().join("filler");
    let error = std::fs::write(&filler, vec![1; 16 << 20]).unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::StorageFull);
    socket.write_all(&z[1_000_000..]).await.unwrap();
    let mut answer = vec![0; 4096];
    let len = socket.read(&mut answer).await.unwrap();
    let answer = String::from_utf8_lossy(&answer[..len]).into_owned();
    assert!(answer.starts_with("HTTP/1.1 507") && answer.contains("spool-full"), "{answer}");
    assert_eq!(get(gateway.address, "/test").await.status, 503);
    let refused = send(gateway.address, Request::post(format!("/offload?dest={NOWHERE}")), full(z.clone())).await;
    assert_eq!(refused.code(), "spool-full");
    std::fs::remove_file(&filler).unwrap();
    assert_eq!(put(gateway.address, NOWHERE, &z, ByteRange::new(0, border(3))).await.status, 202);
    assert_eq!(post(gateway.address, NOWHERE, &z).await.status, 201);
    assert!(std::fs::read(file(disk.folder.path(), id_of(&z))).unwrap() == z);
    assert_eq!(status(gateway.address, id_of(&kept)).await["stored"], kept.len());
    gateway.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_system_that_runs_out_of_files_keeps_its_reserve_of_them() {
    let Some(disk) = SmallDisk::mount("size=256m,nr_inodes=400") else {
        println!("skipped: mounting a file system of its own is not permitted here");
        return;
    };
    // A file for each 16 KiB: 64.
    let gateway = start(Config { reserve_bytes: 1 << 20, ..config(disk.folder.path()) }).await;
    let mut taken = 0;
    let full = loop {
        // Each has a file of its own.
        let z = sealed(taken + 1, 1_100_000, LATER);
        let request = Request::post(format!("/offload?dest={NOWHERE}"));
        let reply = send(gateway.address, request, full(z)).await;
        if reply.status != 201 {
            break reply;
        }
        taken += 1;
        assert!(taken < 200, "the file system has no more files");
    };
    assert_eq!((full.status.as_u16(), full.code()), (507, "spool-full".into()));
    assert!(full.json()["detail"].as_str().unwrap().contains("files (inodes)"), "{full:?}");
    assert!(taken > 0, "{full:?}");
    // Others still have the reserve.
    for n in 0..60 {
        std::fs::write(disk.folder.path().join(format!("log-{n}")), b"").unwrap();
    }
    assert_eq!(get(gateway.address, "/test").await.status, 503);
    gateway.stop().await;
}
