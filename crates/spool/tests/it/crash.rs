//! `kill -9` at random moments: whatever was acknowledged is intact. A second copy of this test binary is the victim; it says
//! what it acknowledges over a pipe.
use hoop_spool::{Begin, Offer, Settings, Spool};
use hoop_units::{AddressKey, ByteRange, UnixTime, UploadId};
use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{SystemTime, UNIX_EPOCH};

const FOLDER: &str = "HOOP_SPOOL_CRASH_FOLDER";
const SEED: &str = "HOOP_SPOOL_CRASH_SEED";
const TOTAL: u64 = 64 * 1024;
const PIECE: u64 = 4 * 1024;

/// A small generator: enough to choose moments and ranges, and the same everywhere.
struct Random(u64);

impl Random {
    fn next(&mut self, below: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % below
    }
}

fn offer(number: u64) -> Offer {
    let mut id = [0; 16];
    id[..8].copy_from_slice(&number.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_be_bytes());
    let prelude = vec![0; 7];
    Offer {
        id: UploadId(id),
        prelude,
        total: Some(TOTAL),
        dest: "https://a.example/p".into(),
        expires: UnixTime(u32::MAX),
        device: AddressKey::UNKNOWN,
        deadline: None,
    }
}

fn content(number: u64, range: ByteRange) -> Vec<u8> {
    (range.start..range.end).map(|at| if at < 7 { 0 } else { (at / 5) as u8 ^ number as u8 }).collect()
}

/// The victim: stores ranges of uploads until it is killed, and writes a line for each that is acknowledged.
#[test]
#[ignore = "run by the test below, as a process of its own"]
fn victim() {
    let folder = std::env::var(FOLDER).expect("the killer says where");
    let mut random = Random(std::env::var(SEED).expect("the killer says how").parse().unwrap());
    let spool = Spool::open(Settings::new(folder)).unwrap();
    let mut out = std::io::stdout();
    loop {
        let number = random.next(12);
        let Begin::Take(mut intake) = spool.begin(&offer(number)).unwrap() else { continue };
        let first = random.next(TOTAL / PIECE);
        let last = first + 1 + random.next(4);
        let range = ByteRange::new(first * PIECE, (last * PIECE).min(TOTAL));
        for start in (range.start..range.end).step_by(PIECE as usize) {
            intake.write_at(start, &content(number, ByteRange::new(start, start + PIECE))).unwrap();
        }
        intake.commit(range, UnixTime(1)).unwrap();
        writeln!(out, "stored {number} {} {}", range.start, range.end).unwrap();
        out.flush().unwrap();
    }
}

fn kill_one(folder: &Path, random: &mut Random, acknowledged: &mut BTreeMap<u64, Vec<ByteRange>>) {
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["crash::victim", "--exact", "--ignored", "--nocapture"])
        .env(FOLDER, folder)
        .env(SEED, random.next(u64::from(u32::MAX)).to_string())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let (mut left, mut spin) = (random.next(40), random.next(200_000));
    for line in lines {
        let line = line.unwrap();
        // The test harness may have begun the line.
        let Some((_, line)) = line.split_once("stored ") else { continue };
        let numbers: Vec<u64> = line.split(' ').map_while(|word| word.parse().ok()).collect();
        let [number, start, end] = numbers[..] else { continue };
        acknowledged.entry(number).or_default().push(ByteRange::new(start, end));
        if left == 0 {
            // Somewhere within the next operation.
            while spin > 0 {
                spin = std::hint::black_box(spin - 1);
            }
            child.kill().unwrap();
            left = u64::MAX;
        }
        left = left.saturating_sub(1);
        if acknowledged.values().map(Vec::len).sum::<usize>() > 5_000 {
            child.kill().unwrap();
        }
    }
    child.wait().unwrap();
}

/// `HOOP_SEED` if it is set: a run that failed can be repeated.
fn seed() -> u32 {
    let given = std::env::var("HOOP_SEED").ok().map(|seed| seed.parse().expect("HOOP_SEED is a number"));
    given.unwrap_or_else(|| SystemTime::now().duration_since(UNIX_EPOCH).unwrap().subsec_nanos())
}

#[test]
fn every_acknowledged_range_survives_kill_9() {
    let seed = seed();
    println!("HOOP_SEED={seed}");
    let mut random = Random(u64::from(seed));
    for _ in 0..3 {
        let folder = tempfile::tempdir().unwrap();
        let mut acknowledged = BTreeMap::new();
        for _ in 0..5 {
            kill_one(folder.path(), &mut random, &mut acknowledged);
            assert!(!acknowledged.is_empty(), "nothing was acknowledged (seed {seed})");
            let spool = Spool::open(Settings::new(folder.path())).unwrap();
            for (number, ranges) in &acknowledged {
                let upload = spool.get(offer(*number).id).unwrap().expect("it was acknowledged");
                let payload = spool.payload(upload.id).unwrap();
                for range in ranges {
                    assert!(upload.stored.contains(*range), "{range} of {number} is not recorded (seed {seed})");
                    let mut bytes = vec![0; range.len() as usize];
                    payload.read_at(range.start, &mut bytes).unwrap();
                    assert_eq!(bytes, content(*number, *range), "{range} of {number} (seed {seed})");
                }
            }
            (0..=255).for_each(|shard| {
                spool.sweep(shard).unwrap();
            });
        }
    }
}
