//! When the device is free, through Hoop and straight: LAN of 30 and 100 Mbit/s over a 1.15 Mbit/s uplink.
//!
//! *Straight* is `curl` to the application's own HTTPS, start to end. *Free* is the whole of a `hoop push --wait stored` process: start, ticket, sealing,
//! hand-over, the gateway's answer (which means synced), exit; once with the ticket fetched in that time, and once with one fetched ahead. The limit is a share
//! of what the links' rates allow: 0.95 for 10 MB, 0.97 for 50 MB.
//!
//! A straight upload of 50 MB takes six minutes of waiting and hardly any processor, so those rounds run side by side, each in a house of its
//! own; the pushes come after, one at a time.
//!
//! `--mb 10` and `--lan 100` measure that size and that LAN alone.

use hoop_bench::{Table, Verdict, median, number, rounds, spread};
use hoop_testbed::{House, HouseConfig, ORIGIN, Program};
use hoop_units::Bitrate;
use std::process::{Command, ExitCode, Stdio};
use std::time::Instant;

const SIZES: [(usize, f64); 2] = [(10_000_000, 0.95), (50_000_000, 0.97)];
const LANS: [u64; 2] = [30, 100];

fn main() -> ExitCode {
    hoop_lab::enter().expect("the machine allows namespaces");
    let rounds = rounds();
    let (only_mb, only_lan) = (number("--mb"), number("--lan"));
    let sizes = SIZES.into_iter().filter(|(bytes, _)| only_mb.is_none_or(|mb| mb * 1_000_000 == *bytes as u64));
    let sizes: Vec<(usize, f64)> = sizes.collect();
    let straight: Vec<Vec<f64>> = sizes.iter().map(|(bytes, _)| side_by_side(rounds, *bytes)).collect();
    let mut verdict = Verdict::default();
    let mut table = Table::new([
        "MB",
        "LAN Mbit/s",
        "ticket",
        "straight s",
        "free s, median",
        "min-max",
        "factor",
        "links' ratio",
        "share",
        "limit",
        "",
    ]);
    for lan in LANS.into_iter().filter(|lan| only_lan.is_none_or(|only| only == *lan)) {
        let config = HouseConfig { lan: Bitrate::mbps(lan), ..HouseConfig::default() };
        let ratio = config.lan.as_bps() as f64 / config.up.as_bps() as f64;
        for ((bytes, limit), straight) in sizes.iter().copied().zip(&straight) {
            for ahead in [false, true] {
                let free: Vec<f64> = (0..rounds).map(|_| push_once(config, bytes, ahead)).collect();
                let factor = median(straight) / median(&free);
                let (low, high) = spread(&free);
                let ticket = if ahead { "ahead" } else { "included" };
                let name = format!("{} MB, LAN {lan} Mbit/s, ticket {ticket}", bytes / 1_000_000);
                table.row([
                    (bytes / 1_000_000).to_string(),
                    lan.to_string(),
                    ticket.into(),
                    format!("{:.2}", median(straight)),
                    format!("{:.3}", median(&free)),
                    format!("{low:.3}-{high:.3}"),
                    format!("×{factor:.1}"),
                    format!("×{ratio:.1}"),
                    format!("{:.3}", factor / ratio),
                    limit.to_string(),
                    verdict.at_least(&name, factor / ratio, limit).into(),
                ]);
            }
        }
    }
    println!("{}", table.render());
    verdict.exit()
}

/// A house with its application and service running.
struct Inhabited {
    house: House,
    _wall: Program,
    _service: Program,
}

fn inhabit(config: HouseConfig) -> Inhabited {
    let house = House::build(config).expect("a house");
    let wall = house.start_photo_wall().expect("the photo wall");
    let service = house.start_service(8000, &[]).expect("the service");
    Inhabited { house, _wall: wall, _service: service }
}

/// Straight uploads of `bytes`, all at once, each over its own uplink; seconds each.
fn side_by_side(rounds: usize, bytes: usize) -> Vec<f64> {
    let homes: Vec<Inhabited> = (0..rounds).map(|_| inhabit(HouseConfig::default())).collect();
    std::thread::scope(|scope| {
        let uploads: Vec<_> = homes.iter().map(|home| scope.spawn(|| straight_once(&home.house, bytes))).collect();
        uploads.into_iter().map(|upload| upload.join().expect("an upload that ends")).collect()
    })
}

fn straight_once(house: &House, bytes: usize) -> f64 {
    let file = house.file("data", bytes).expect("room for a file");
    let mut curl = house.curl();
    curl.arg("--fail-with-body").arg("-F").arg(format!("photo=@{}", file.display())).arg(format!("{ORIGIN}/photos"));
    timed(curl)
}

fn push_once(config: HouseConfig, bytes: usize, ahead: bool) -> f64 {
    let home = inhabit(config);
    let house = &home.house;
    let _gateway = house.start_gateway(&["--no-mdns"]).expect("the gateway");
    let file = house.file("data", bytes).expect("room for a file");
    let target = format!("{ORIGIN}/photos");
    if ahead {
        let mut tickets = house.hoop("device");
        tickets.args(["tickets", "--count", "1", "--ca"]).arg(&house.certificates().authority).arg(&target);
        timed(tickets);
    }
    let mut push = house.push(&house.gateway_url());
    // As at a gateway that was met before: only that gets early records.
    push.args([
        "--trust-new-gateway",
        "--wait",
        "stored",
        "--json",
        "-F",
        &format!("photo=@{}", file.display()),
        &target,
    ]);
    timed(push)
}

/// Seconds from start to exit.
fn timed(mut command: Command) -> f64 {
    let begin = Instant::now();
    let output = command.stdin(Stdio::null()).output().expect("the program starts");
    let seconds = begin.elapsed().as_secs_f64();
    assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
    seconds
}
