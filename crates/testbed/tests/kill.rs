//! `kill -9` of gateway and service at random moments of running transfers: what was answered 2xx arrives exactly once.

use hoop_testbed::{House, HouseConfig, ORIGIN, Program, sha256};
use hoop_units::Bitrate;
use rand_core::{Rng as _, SeedableRng as _};
use rand_pcg::Pcg64Mcg;
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant, SystemTime};

/// How often something is killed.
const KILLS: u32 = 200;

/// How long the queue may take to empty after the last kill: generous, since machines are busy.
const SETTLE: Duration = Duration::from_secs(300);

/// One upload that the device was told is safe.
struct Promised {
    id: String,
    sha256: String,
}

#[test]
fn every_upload_answered_2xx_arrives_exactly_once_though_gateway_and_service_are_killed() {
    let seed = std::env::var("HOOP_SEED")
        .ok()
        .and_then(|seed| seed.parse().ok())
        .unwrap_or_else(|| SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).map_or(0, |since| since.as_secs()));
    println!("HOOP_SEED={seed}");
    let mut dice = Pcg64Mcg::seed_from_u64(seed);

    let config = HouseConfig { lan: Bitrate::mbps(200), up: Bitrate::mbps(30), ..HouseConfig::default() };
    let house = House::build(config).expect("a house: run as root, or where user namespaces are allowed");
    let wall = house.start_photo_wall().unwrap();
    // The photo wall honours Idempotency-Key, so an answer that was lost may be asked for again.
    let routes = house.path("routes.toml");
    std::fs::write(&routes, "[[route]]\npath = \"/photos\"\non_unknown = \"retry\"\n").unwrap();
    let start_service = || house.start_service(8000, &["--routes", routes.to_str().unwrap()]).unwrap();
    let start_gateway = || house.start_gateway(&["--no-mdns"]).unwrap();
    let mut service = start_service();
    let mut gateway = start_gateway();

    let files: Vec<PathBuf> = (0..400)
        .map(|index| house.file(&format!("{index}.bin"), 20_000 + (dice.next_u32() % 1_500_000) as usize).unwrap())
        .collect();
    let stop = AtomicBool::new(false);
    let promised = std::thread::scope(|scope| {
        let pushing = scope.spawn(|| push_all(&house, &files, &stop));
        for kill in 0..KILLS {
            std::thread::sleep(Duration::from_millis(u64::from(dice.next_u32() % 250)));
            if dice.next_u32() % 2 == 0 {
                service.kill();
                service = start_service();
            } else {
                gateway.kill();
                gateway = start_gateway();
            }
            if kill % 50 == 49 {
                println!("{} kills, {} pictures on the wall", kill + 1, pictures(&wall).len());
            }
        }
        stop.store(true, Ordering::Relaxed);
        pushing.join().expect("the pushing thread does not panic")
    });
    assert!(
        promised.len() >= 20,
        "only {} uploads were accepted while things were killed: too few to mean much",
        promised.len()
    );

    let end = Instant::now() + SETTLE;
    let missing = || promised.iter().filter(|upload| !pictures(&wall).contains_key(&upload.sha256)).count();
    while missing() > 0 && Instant::now() < end {
        std::thread::sleep(Duration::from_millis(100));
    }
    let arrived = pictures(&wall);
    for upload in &promised {
        let times = arrived.get(&upload.sha256).copied().unwrap_or(0);
        assert_eq!(times, 1, "upload {} arrived {times} times; {}", upload.id, monitor(&house, &upload.id));
    }
    // Also what was never answered 2xx, because the device was interrupted, arrived once at most.
    assert!(arrived.values().all(|times| *times == 1), "something arrived twice: {arrived:?}");
    println!("{} uploads were promised, {} arrived, each once, through {KILLS} kills", promised.len(), arrived.len());
}

/// Pushes one file after another until told to stop; returns what was answered 2xx.
fn push_all(house: &House, files: &[PathBuf], stop: &AtomicBool) -> Vec<Promised> {
    let mut promised = Vec::new();
    for file in files {
        if stop.load(Ordering::Relaxed) {
            break;
        }
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
            promised.push(Promised {
                id: said["id"].as_str().unwrap_or_default().to_owned(),
                sha256: sha256(file).unwrap(),
            });
        }
    }
    promised
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

fn monitor(house: &House, id: &str) -> String {
    let mut curl = house.curl();
    let output =
        curl.args(["-H", "Accept: application/json", &format!("{}monitor?ID={id}", house.gateway_url())]).output();
    output.map(|output| String::from_utf8_lossy(&output.stdout).into_owned()).unwrap_or_default()
}
