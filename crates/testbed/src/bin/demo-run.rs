//! `make demo-run`: a download that loses its network in the middle, by curl as it is, and by the same curl under `hoop run`.
//!
//! Everything is real: curl, `hoop run`, `hoop relay`, web servers; only the links are simulated.

use hoop_testbed::{Roaming, sha256};
use std::error::Error;
use std::io;
use std::path::Path;
use std::process::{Child, Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

/// What is downloaded: some six seconds of the link.
const LEN: usize = 6_000_000;

/// The Wi-Fi goes once so much has come.
const FIRST: u64 = 1_500_000;

/// How long there is no network at all.
const OUTAGE: Duration = Duration::from_secs(5);

/// Curl gives up once nothing has come for so many seconds; by itself it would wait for a quarter of an hour.
const STALL_SECS: &str = "15";

/// What curl ends with then.
const STALLED: i32 = 28;

/// What curl may still write as it ends, at most: that is not going on.
const LAST: u64 = 64 * 1024;

/// Nothing here takes longer.
const PATIENCE: Duration = Duration::from_secs(120);

fn main() -> ExitCode {
    let done = hoop_lab::enter().map_err(Into::into).and_then(|()| tell());
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("\ndemo: {error}");
            ExitCode::FAILURE
        }
    }
}

fn tell() -> Result<(), Box<dyn Error>> {
    let world = Roaming::build(LEN)?;
    println!("\n  Hoop  a connection outlives the network that it began on\n");
    println!("     phone  )))  Wi-Fi or mobile network, 8 Mbit/s each  )))  relay  ───  web server");
    println!(
        "     a download of {} MB; in the middle of it the Wi-Fi goes, and {} s later there is\n     the mobile network, with another address\n",
        LEN as f64 / 1e6,
        OUTAGE.as_secs()
    );

    println!("  1  curl, as it is");
    let mut curl = world.lab.command("phone", "curl");
    let relay = world.lab.address_on("relay", "core");
    let status = download(&world, &mut curl, &relay.to_string(), &world.path("by-curl"))?;
    let why = if status == Some(STALLED) { format!(": nothing came for {STALL_SECS} s") } else { String::new() };
    println!("     curl ended with {}{why}\n", status.unwrap_or(-1));

    println!("  2  hoop run -- curl");
    let (into, web) = (world.path("by-flow"), world.lab.address("web").to_string());
    let status = download(&world, &mut world.run("curl"), &web, &into)?;
    let is_whole = sha256(&into)? == sha256(&world.path("www/file"))?;
    println!(
        "     curl ended with {}; SHA-256 {}\n",
        status.unwrap_or(-1),
        if is_whole { "as it was sent" } else { "DIFFERS" }
    );
    if status != Some(0) || !is_whole {
        return Err("the download did not outlive the outage".into());
    }
    println!("     To have it yourself, on two machines: docs/run.md.");
    Ok(())
}

/// Downloads by curl, or by what has it for its last argument, while the networks change; gives curl's exit code.
fn download(world: &Roaming, curl: &mut Command, from: &str, into: &Path) -> Result<Option<i32>, Box<dyn Error>> {
    world.enter_wifi()?;
    curl.args(["--silent", "--fail", "--speed-limit", "1", "--speed-time", STALL_SECS, "--output"]).arg(into);
    curl.arg(format!("http://{from}/file")).stdin(Stdio::null());
    let (begin, mut curl) = (Instant::now(), Killed(curl.spawn()?));
    let say = |what: &str| {
        println!("     {:5.1} s  {:4.1} MB  {what}", begin.elapsed().as_secs_f64(), len(into) as f64 / 1e6)
    };
    wait(|| Ok((len(into) >= FIRST).then_some(())))?;
    world.leave_wifi()?;
    say("the Wi-Fi goes");
    std::thread::sleep(OUTAGE);
    world.reach_cell()?;
    let had = len(into);
    say("here is the mobile network");
    let status = wait(|| {
        let status = curl.0.try_wait()?;
        Ok((status.is_some() || len(into) > had + LAST).then_some(status))
    })?;
    let status = match status {
        Some(status) => status,
        None => {
            say("it goes on");
            wait(|| curl.0.try_wait())?
        }
    };
    say(if len(into) == LEN as u64 { "all is here" } else { "that is all that came" });
    Ok(status.code())
}

fn len(file: &Path) -> u64 {
    std::fs::metadata(file).map_or(0, |file| file.len())
}

fn wait<T>(mut until: impl FnMut() -> io::Result<Option<T>>) -> io::Result<T> {
    let end = Instant::now() + PATIENCE;
    while Instant::now() < end {
        if let Some(found) = until()? {
            return Ok(found);
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    Err(io::Error::other("it takes too long"))
}

/// A program that ends with the demo.
struct Killed(Child);

impl Drop for Killed {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
