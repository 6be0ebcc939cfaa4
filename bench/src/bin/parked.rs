//! A million flows that are attached to nothing: what they take in memory and on disk, and how fast they are spilled, found after a restart, and taken again.
//!
//! Each round of each rival is a process of its own, which does all of it in a new folder: *park* (made up, and put into memory and the log), *spill* (the same less the making, synced, and out of memory), *open* (another process, until it answers),
//! *reload* (each taken once, in the order in which they were parked; *in any order*, in another process, as devices come). Memory is `VmRSS` less what the process had before, once free pages were given back. *boxed* is a `HashMap` of boxed records; *SQLite* keeps a row for each, WAL, one transaction of all, synced; neither checks
//! what it reads. A flow has an attachment of 80 bytes; ten belong to a device, which a column of its own also shows for one to a device.
//!
//! `--flows N` takes another number, `--rounds N` more rounds.

use hoop_bench::{Table, Verdict, median, number, rounds, spread, word};
use hoop_flow::{DeviceId, FlowId, FlowKey, FlowName, Record};
use hoop_flow_store::{FlowStore, Found, Kept, Life, Limits, Settings, Store, When};
use hoop_units::UnixTime;
use rusqlite::{Connection, params};
use std::collections::HashMap;
use std::fmt::Write as _;
use std::path::Path;
use std::process::{Command, ExitCode};
use std::time::Instant;

/// Flows, unless `--flows` says otherwise: what the limits are for.
const FLOWS: u64 = 1_000_000;

/// A flow in memory, its attachment aside.
const PARKED_BYTES: f64 = 200.0;

/// A flow on disk.
const SPILLED_BYTES: f64 = 32.0;

/// A device that has flows: 24, and a place in a hash table.
const DEVICE_BYTES: f64 = 24.0 + 6.5;

/// A million in memory, with their attachments.
const RESIDENT_MB: f64 = 300.0;

/// To spill a million, and to reload them.
const SECONDS: f64 = 2.0;

const ATTACHMENT: usize = 80;

/// What a process of one round prints.
#[derive(Clone, Copy, Default)]
struct Round {
    park: f64,
    spill: f64,
    open: f64,
    reload: f64,
    /// Taken in an order of chance.
    any: f64,
    /// Bytes of memory for a flow.
    parked: f64,
    spilled: f64,
    /// The same after a restart.
    opened: f64,
    disk: f64,
}

impl Round {
    fn numbers(&self) -> [f64; 9] {
        [self.park, self.spill, self.open, self.reload, self.any, self.parked, self.spilled, self.opened, self.disk]
    }

    fn of(numbers: &[f64]) -> Self {
        let [park, spill, open, reload, any, parked, spilled, opened, disk] = numbers[..] else {
            panic!("nine numbers")
        };
        Self { park, spill, open, reload, any, parked, spilled, opened, disk }
    }
}

fn main() -> ExitCode {
    if let Some(part) = word("--part") {
        return run_part(&part);
    }
    let mut verdict = Verdict::default();
    let flows = number("--flows").unwrap_or(FLOWS);
    let rivals = [("hoop", 10), ("hoop", 1), ("boxed", 10), ("SQLite", 10)];
    let mut found: Vec<Vec<Round>> = vec![Vec::new(); rivals.len()];
    for _ in 0..rounds() {
        for ((rival, per_host), found) in rivals.iter().zip(&mut found) {
            found.push(measure(rival, *per_host, flows));
        }
    }
    let mut memory = Table::new([
        "store",
        "flows a device",
        "bytes a flow in memory",
        "less its 80",
        "MB in all",
        "limits",
        "spilled",
        "after a restart",
        "limit",
        "on disk",
    ]);
    let mut time = Table::new([
        "store",
        "flows a device",
        "park s",
        "spill s",
        "min-max",
        "limit",
        "ready after s",
        "reload s",
        "min-max",
        "limit",
    ]);
    for ((rival, per_host), found) in rivals.iter().zip(&found) {
        let of = |part: fn(&Round) -> f64| found.iter().map(part).collect::<Vec<f64>>();
        let middle = |part| median(&of(part));
        let scale = flows as f64 / 1e6;
        let (parked, spilled) = (middle(|round| round.parked), middle(|round| round.spilled.max(round.opened)));
        let is_judged = *rival == "hoop";
        let what = |what: &str| format!("{rival}, {per_host} flows a device: {what}");
        let mut limit = |text: &str, value, most| match is_judged {
            true => format!("{} {}", most, verdict.at_most(&what(text), value, most)),
            false => String::new(),
        };
        let resident = limit("MB in memory", parked * flows as f64 / 1e6, RESIDENT_MB * scale);
        // A device has a record of its own, which is not a flow's.
        let each = if *per_host == 10 {
            limit("bytes a parked flow", parked - ATTACHMENT as f64, PARKED_BYTES)
        } else {
            String::new()
        };
        let on_disk = if *per_host == 10 {
            limit("bytes a spilled flow", spilled - DEVICE_BYTES / 10.0, SPILLED_BYTES)
        } else {
            String::new()
        };
        let blank =
            |value: f64, digits: usize| if value.is_nan() { "-".to_owned() } else { format!("{value:.digits$}") };
        memory.row([
            (*rival).to_owned(),
            per_host.to_string(),
            blank(parked, 0),
            blank(parked - ATTACHMENT as f64, 0),
            blank(parked * flows as f64 / 1e6, 0),
            format!("{each} {resident}").trim().to_owned(),
            blank(middle(|round| round.spilled), 1),
            blank(middle(|round| round.opened), 1),
            on_disk,
            blank(middle(|round| round.disk), 0),
        ]);
        let range = |part: fn(&Round) -> f64| {
            let (low, high) = spread(&of(part));
            if low.is_finite() { format!("{low:.2}-{high:.2}") } else { "-".to_owned() }
        };
        time.row([
            (*rival).to_owned(),
            per_host.to_string(),
            blank(middle(|round| round.park), 2),
            blank(middle(|round| round.spill), 2),
            range(|round| round.spill),
            limit("seconds to spill", middle(|round| round.spill), SECONDS * scale),
            blank(middle(|round| round.open), 2),
            blank(middle(|round| round.reload), 2),
            range(|round| round.reload),
            limit("seconds to reload", middle(|round| round.reload), SECONDS * scale),
            blank(middle(|round| round.any), 2),
        ]);
    }
    println!("{}\n{}", memory.render(), time.render());
    verdict.exit()
}

/// One round: a process that parks and spills, and one that opens and reloads.
fn measure(rival: &str, per_host: u64, flows: u64) -> Round {
    let folder = tempfile::Builder::new().prefix("hoop-parked").tempdir_in(".").expect("a folder on disk");
    let part = |part: &str| {
        let output = Command::new(std::env::current_exe().expect("this program has a file"))
            .args(["--part", part, "--rival", rival, "--per-host", &per_host.to_string()])
            .args(["--flows", &flows.to_string(), "--folder"])
            .arg(folder.path())
            .output()
            .expect("this program runs");
        assert!(output.status.success(), "{rival} {part}: {}", String::from_utf8_lossy(&output.stderr));
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        Round::of(&text.split_whitespace().map(|word| word.parse().expect("a number")).collect::<Vec<f64>>())
    };
    let (first, second, third) = (part("fill"), part("reload"), part("any"));
    Round { open: second.open, reload: second.reload, any: third.reload, opened: second.opened, ..first }
}

fn run_part(part: &str) -> ExitCode {
    let (rival, folder) = (word("--rival").expect("a rival"), word("--folder").expect("a folder"));
    let (flows, per_host) = (number("--flows").expect("a number"), number("--per-host").expect("a number"));
    let folder = Path::new(&folder);
    let round = match (rival.as_str(), part) {
        ("hoop", "fill") => hoop_fill(folder, flows, per_host),
        ("hoop", part) => hoop_reload(folder, flows, per_host, part == "any"),
        ("boxed", "fill") => boxed_fill(flows, per_host),
        ("SQLite", "fill") => sqlite_fill(folder, flows, per_host),
        ("SQLite", part) => sqlite_reload(folder, flows, per_host, part == "any"),
        _ => Round { open: f64::NAN, reload: f64::NAN, opened: f64::NAN, ..Round::default() },
    };
    let mut line = String::new();
    round.numbers().iter().for_each(|number| write!(line, "{number} ").expect("text takes text"));
    println!("{line}");
    ExitCode::SUCCESS
}

/// What is in memory, in bytes, once free pages are given back.
#[allow(unsafe_code)]
fn resident() -> f64 {
    // SAFETY: it has no arguments that matter, and no other thread runs.
    unsafe { libc::malloc_trim(0) };
    let status = std::fs::read_to_string("/proc/self/status").expect("Linux");
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).expect("a process has memory");
    line.split_whitespace().nth(1).and_then(|text| text.parse::<f64>().ok()).expect("a number") * 1024.0
}

/// The same number for the same flow, and another for each.
const fn mix(number: u64) -> u64 {
    let number = (number ^ number >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    (number ^ number >> 27).wrapping_mul(0x94d0_49bb_1331_11eb)
}

fn name(number: u64, per_host: u64) -> FlowName {
    let mut host = [0; 20];
    host[..8].copy_from_slice(&mix(number / per_host).to_be_bytes());
    FlowName { device: DeviceId(host), flow: FlowId(mix(number + (1 << 40))) }
}

fn kept(number: u64, per_host: u64) -> Kept {
    let mut key = [0; 32];
    key.chunks_mut(8)
        .zip(1..)
        .for_each(|(bytes, salt)| bytes.copy_from_slice(&mix(number + (salt << 50)).to_be_bytes()));
    let offset = mix(number) >> 30;
    let record = Record {
        name: name(number, per_host),
        key: FlowKey(key),
        is_device: false,
        epoch: number % 50,
        acked: offset,
        available: offset,
        written: offset * 2,
        finished: false,
        credit: offset + (1 << 20),
        kept: 500,
        consumed: 500,
        granted: 1 << 20,
        end: None,
        deadline: Some(UnixTime(u32::MAX - (mix(number) >> 40) as u32)),
        size: None,
        reset: None,
        ended: None,
        opening: None,
    };
    let mut attachment = format!("https://films.example/{:016x}/", mix(number)).into_bytes();
    attachment.resize(ATTACHMENT, b'a');
    Kept { record, attachment, spools: false }
}

fn seconds(work: impl FnOnce()) -> f64 {
    let begin = Instant::now();
    work();
    begin.elapsed().as_secs_f64()
}

fn settings(folder: &Path) -> Settings {
    let settings = Settings::new(folder.join("store"));
    Settings { limits: Limits { memory: 1 << 30, ..settings.limits }, ..settings }
}

fn disk(folder: &Path) -> f64 {
    let of = |path: &Path| {
        std::fs::read_dir(path).map_or(0, |entries| {
            entries.flatten().map(|entry| entry.metadata().map_or(0, |metadata| metadata.len())).sum::<u64>()
        })
    };
    (of(&folder.join("store/flows")) + of(folder)) as f64
}

fn hoop_fill(folder: &Path, flows: u64, per_host: u64) -> Round {
    let store = Store::open(&settings(folder)).expect("a store");
    let before = resident();
    let make = seconds(|| (0..flows).for_each(|number| drop(std::hint::black_box(kept(number, per_host)))));
    let park = seconds(|| {
        for number in 0..flows {
            store.put(&kept(number, per_host), Life::Parked, When::Later).expect("there is room");
        }
    });
    let parked = (resident() - before) / flows as f64;
    assert_eq!(store.usage().resident as u64, flows, "all are in memory");
    let spill = park - make + seconds(|| assert_eq!(store.spill().expect("a disk"), 0));
    let spilled = (resident() - before) / flows as f64;
    drop(store);
    Round { park, spill, parked, spilled, disk: disk(folder) / flows as f64, ..Round::default() }
}

fn hoop_reload(folder: &Path, flows: u64, per_host: u64, in_any_order: bool) -> Round {
    let before = resident();
    let begin = Instant::now();
    let store = Store::open(&settings(folder)).expect("a store");
    let open = begin.elapsed().as_secs_f64();
    assert_eq!((store.usage().flows as u64, store.damages().len()), (flows, 0));
    let opened = (resident() - before) / flows as f64;
    let reload = seconds(|| {
        for number in 0..flows {
            let number = if in_any_order { number * 48_271 % flows } else { number };
            let Ok(Found::Kept(found)) = store.take(name(number, per_host)) else { panic!("flow {number} is gone") };
            assert_eq!(found.record.epoch, number % 50);
        }
    });
    Round { open, reload, opened, ..Round::default() }
}

fn boxed_fill(flows: u64, per_host: u64) -> Round {
    let before = resident();
    let mut map = HashMap::new();
    let park = seconds(|| {
        for number in 0..flows {
            let kept = kept(number, per_host);
            map.insert(kept.record.name, Box::new((kept.record, kept.attachment.into_boxed_slice())));
        }
    });
    let parked = (resident() - before) / flows as f64;
    assert_eq!(map.len() as u64, flows);
    Round { park, parked, spill: f64::NAN, spilled: f64::NAN, disk: f64::NAN, ..Round::default() }
}

fn sqlite(folder: &Path) -> Connection {
    let connection = Connection::open(folder.join("flows.sqlite")).expect("a database");
    connection.execute_batch("PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL; CREATE TABLE IF NOT EXISTS flows (name BLOB PRIMARY KEY, record BLOB) WITHOUT ROWID").expect("a table");
    connection
}

/// What a table of SQLite has of a flow: name, and the rest in bytes.
fn row(number: u64, per_host: u64) -> ([u8; 28], Vec<u8>) {
    let kept = kept(number, per_host);
    let mut bytes = kept.record.key.0.to_vec();
    bytes.extend_from_slice(&[number as u8; 72]);
    bytes.extend_from_slice(&kept.attachment);
    (sqlite_name(kept.record.name), bytes)
}

fn sqlite_name(name: FlowName) -> [u8; 28] {
    let mut bytes = [0; 28];
    bytes[..20].copy_from_slice(&name.device.0);
    bytes[20..].copy_from_slice(&name.flow.0.to_be_bytes());
    bytes
}

fn sqlite_fill(folder: &Path, flows: u64, per_host: u64) -> Round {
    let mut connection = sqlite(folder);
    let before = resident();
    let spill = seconds(|| {
        let transaction = connection.transaction().expect("a transaction");
        let mut insert = transaction.prepare("INSERT OR REPLACE INTO flows VALUES (?1, ?2)").expect("it is SQL");
        for number in 0..flows {
            let (name, bytes) = row(number, per_host);
            insert.execute(params![&name[..], bytes]).expect("there is room");
        }
        drop(insert);
        transaction.commit().expect("a disk");
    });
    let spilled = (resident() - before) / flows as f64;
    drop(connection);
    Round { park: f64::NAN, parked: f64::NAN, spill, spilled, disk: disk(folder) / flows as f64, ..Round::default() }
}

fn sqlite_reload(folder: &Path, flows: u64, per_host: u64, in_any_order: bool) -> Round {
    let before = resident();
    let begin = Instant::now();
    let connection = sqlite(folder);
    let mut select = connection.prepare("SELECT record FROM flows WHERE name = ?1").expect("it is SQL");
    let open = begin.elapsed().as_secs_f64();
    let opened = (resident() - before) / flows as f64;
    let reload = seconds(|| {
        for number in 0..flows {
            let number = if in_any_order { number * 48_271 % flows } else { number };
            let name = sqlite_name(name(number, per_host));
            let bytes: Vec<u8> = select.query_row(params![&name[..]], |row| row.get(0)).expect("it is there");
            assert_eq!(bytes[40], number as u8);
        }
    });
    Round { open, reload, opened, ..Round::default() }
}
