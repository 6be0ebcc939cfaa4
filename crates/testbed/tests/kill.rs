//! `kill -9` of gateway, service and both at random moments of running transfers, over an uplink that loses packets: what was answered
//! 2xx arrives exactly once.
//!
//! `HOOP_SEED` repeats a run's choices, `HOOP_CYCLES` makes it longer (`make kill CYCLES=1000`).

use hoop_testbed::{House, HouseConfig, ORIGIN, Program, sha256};
use hoop_units::Bitrate;
use rand_core::{Rng as _, SeedableRng as _};
use rand_pcg::Pcg64Mcg;
use serde_json::Value;
use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant, SystemTime};

/// How often something is killed before the application that can be asked again, unless `HOOP_CYCLES` says otherwise.
const KILLS: u32 = 50;

/// How often before the application that cannot: fewer, for the time that it takes.
const KILLS_FORGETFUL: u32 = 50;

/// How many of 100 packets the uplink loses, each way.
const LOSS_PERCENT: u8 = 1;

/// After so many kills in which no upload got through, one is let through: a slow machine must not make the test mean less.
const KILLS_IN_A_ROW: u32 = 8;

/// How long that may take.
const BREATH: Duration = Duration::from_secs(120);

/// How long nothing may arrive after the last kill while something is still queued: longer than the back-off that a service which was killed in
/// many a replay of the same upload has come to.
const SETTLE: Duration = Duration::from_secs(20 * 60);

/// One upload that the device was told is safe.
struct Promised {
    id: String,
    sha256: String,
}

#[test]
fn every_2xx_upload_arrives_exactly_once_though_gateway_and_service_die() {
    // The photo wall honours Idempotency-Key, so an answer that was lost may be asked for again.
    let run = run("on_unknown = \"retry\"", &[], cycles(KILLS));
    let repeats = run.wall.text().matches("\"event\":\"repeat\"").count();
    println!("the application was asked again {repeats} times");
    for upload in &run.promised {
        let times = run.arrived.get(&upload.sha256).copied().unwrap_or(0);
        assert_eq!(times, 1, "upload {} arrived {times} times; {}", upload.id, status(&run.house, &upload.id));
    }
}

#[test]
fn non_idempotent_applications_get_no_upload_twice_and_losses_are_unknown() {
    let run = run("on_unknown = \"hold\"", &[("FORGETFUL", "1")], cycles(KILLS_FORGETFUL));
    let mut unknown = 0;
    for upload in &run.promised {
        let times = run.arrived.get(&upload.sha256).copied().unwrap_or(0);
        let says_unknown = is_unknown(&run.house, &upload.id);
        unknown += u32::from(says_unknown);
        assert!(times == 1 || (times == 0 && says_unknown), "upload {} arrived {times} times", upload.id);
    }
    println!("{unknown} of {} are called unknown", run.promised.len());
}

/// How often something is killed.
fn cycles(default: u32) -> u32 {
    std::env::var("HOOP_CYCLES").map_or(default, |cycles| cycles.parse().expect("HOOP_CYCLES is a number"))
}

/// What is left when all is quiet again.
struct Run {
    promised: Vec<Promised>,
    /// How often each picture arrived.
    arrived: BTreeMap<String, u32>,
    wall: Program,
    _gateway: Program,
    _service: Program,
    house: House,
}

fn run(rule: &str, wall: &[(&str, &str)], kills: u32) -> Run {
    let seed = std::env::var("HOOP_SEED")
        .ok()
        .and_then(|seed| seed.parse().ok())
        .unwrap_or_else(|| SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).map_or(0, |since| since.as_secs()));
    println!("HOOP_SEED={seed}");
    let mut dice = Pcg64Mcg::seed_from_u64(seed);

    let (lan, up) = (Bitrate::mbps(200), Bitrate::mbps(30));
    let config = HouseConfig { lan, up, uplink_loss_percent: LOSS_PERCENT, ..HouseConfig::default() };
    let house = House::build(config).expect("a house: run as root, or where user namespaces are allowed");
    let wall = house.start_photo_wall_with(wall).unwrap();
    let routes = house.path("routes.toml");
    std::fs::write(&routes, format!("[[route]]\npath = \"/photos\"\n{rule}\n")).unwrap();
    let start_service = || house.start_service(8000, &["--routes", routes.to_str().unwrap()]).unwrap();
    let start_gateway = || house.start_gateway(&["--no-mdns"]).unwrap();
    let mut service = start_service();
    let mut gateway = start_gateway();

    let sizes = dice.next_u64();
    let stop = AtomicBool::new(false);
    let promised = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        scope.spawn(|| push_all(&house, sizes, &stop, &promised));
        let through = || promised.lock().unwrap().len();
        let (mut last, mut in_a_row) = (0, 0);
        for _ in 0..kills {
            std::thread::sleep(Duration::from_millis(u64::from(dice.next_u32() % 250)));
            let (kills_gateway, kills_service) =
                [(true, false), (false, true), (true, true)][dice.next_u32() as usize % 3];
            // Both are down before either comes up again.
            if kills_gateway {
                gateway.kill();
            }
            if kills_service {
                service.kill();
                service = start_service();
            }
            if kills_gateway {
                gateway = start_gateway();
            }
            in_a_row = if through() > last { 0 } else { in_a_row + 1 };
            last = through();
            if in_a_row == KILLS_IN_A_ROW {
                let end = Instant::now() + BREATH;
                while through() == last && Instant::now() < end {
                    std::thread::sleep(Duration::from_millis(5));
                }
                assert!(through() > last, "no upload got through in {} s without kills", BREATH.as_secs());
            }
        }
        stop.store(true, Ordering::Relaxed);
    });
    let promised = promised.into_inner().unwrap();

    let open = |upload: &&Promised| !pictures(&wall).contains_key(&upload.sha256) && !is_unknown(&house, &upload.id);
    let (mut arrived, mut since) = (0, Instant::now());
    while promised.iter().any(|upload| open(&upload)) && since.elapsed() < SETTLE {
        std::thread::sleep(Duration::from_millis(200));
        let now = pictures(&wall).len();
        if now > arrived {
            (arrived, since) = (now, Instant::now());
        }
    }
    let arrived = pictures(&wall);
    // Also what was never answered 2xx, because the device was interrupted, arrived once at most.
    assert!(arrived.values().all(|times| *times == 1), "something arrived twice: {arrived:?}");
    println!("{} uploads were promised and {} pictures arrived through {kills} kills", promised.len(), arrived.len());
    Run { promised, arrived, wall, _gateway: gateway, _service: service, house }
}

/// Pushes one file after another until told to stop; notes what was answered 2xx.
fn push_all(house: &House, sizes: u64, stop: &AtomicBool, promised: &Mutex<Vec<Promised>>) {
    let mut dice = Pcg64Mcg::seed_from_u64(sizes);
    for index in 0.. {
        if stop.load(Ordering::Relaxed) {
            break;
        }
        let file = house.file(&format!("{index}.bin"), 20_000 + (dice.next_u32() % 1_500_000) as usize).unwrap();
        let mut push = house.push(&house.gateway_url());
        push.args([
            "--wait",
            "stored",
            "--json",
            "-F",
            &format!("photo=@{}", file.display()),
            &format!("{ORIGIN}/photos"),
        ]);
        let output = push.output().unwrap();
        if output.status.success() {
            let said: Value = serde_json::from_slice(&output.stdout).unwrap();
            let id = said["id"].as_str().unwrap_or_default().to_owned();
            promised.lock().unwrap().push(Promised { id, sha256: sha256(&file).unwrap() });
        }
        std::fs::remove_file(&file).unwrap();
    }
}

/// How often each picture arrived, by its hash.
fn pictures(wall: &Program) -> BTreeMap<String, u32> {
    let mut counts = BTreeMap::new();
    for (_, line) in wall.lines() {
        if let Ok(event) = serde_json::from_str::<Value>(&line)
            && event["event"] == "photo"
        {
            *counts.entry(event["sha256"].as_str().unwrap_or_default().to_owned()).or_default() += 1;
        }
    }
    counts
}

fn is_unknown(house: &House, id: &str) -> bool {
    status(house, id).contains("\"state\":\"unknown\"")
}

/// What the service says: a device that found no gateway went to the service itself.
fn status(house: &House, id: &str) -> String {
    let output = house.curl().args(["-H", "Accept: application/json", &format!("{ORIGIN}/hoop/uploads/{id}")]).output();
    output.map(|output| String::from_utf8_lossy(&output.stdout).into_owned()).unwrap_or_default()
}
