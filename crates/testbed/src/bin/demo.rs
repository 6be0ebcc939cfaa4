//! `make demo`: one photograph, sent as today and through Hoop, over the same thin uplink.
//!
//! Everything is real: an ordinary web application, `hoop service` before it, `hoop gateway`, `hoop push`, `curl`, TLS; only the two links are simulated.

use hoop_testbed::{House, HouseConfig, ORIGIN, Program, sha256};
use std::error::Error;
use std::io::{IsTerminal as _, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::sync::mpsc;
use std::time::{Duration, Instant};

/// Nothing in the demo should take longer with the file that comes with it; a larger one may be given.
const PATIENCE: Duration = Duration::from_secs(3600);

fn main() -> ExitCode {
    if let Err(error) = hoop_lab::enter() {
        eprintln!("demo: {error}");
        return ExitCode::FAILURE;
    }
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("\ndemo: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Bold, dim and green on a terminal, plain text elsewhere.
struct Style {
    live: bool,
}

impl Style {
    fn paint(&self, code: &str, text: impl std::fmt::Display) -> String {
        if self.live { format!("\x1b[{code}m{text}\x1b[0m") } else { text.to_string() }
    }

    fn bold(&self, text: impl std::fmt::Display) -> String {
        self.paint("1", text)
    }

    fn dim(&self, text: impl std::fmt::Display) -> String {
        self.paint("2", text)
    }

    fn good(&self, text: impl std::fmt::Display) -> String {
        self.paint("1;32", text)
    }

    /// Runs `work` while a clock ticks behind `label`, then leaves the line clean.
    fn ticking<T: Send>(&self, label: &str, work: impl FnOnce() -> T + Send) -> T {
        if !self.live {
            return work();
        }
        let (done, finished) = mpsc::channel::<()>();
        std::thread::scope(|scope| {
            scope.spawn(move || {
                let begin = Instant::now();
                let mut frame = 0;
                while let Err(mpsc::RecvTimeoutError::Timeout) = finished.recv_timeout(Duration::from_millis(100)) {
                    let wheel = ["⠋", "⠙", "⠹", "⠸", "⠼", "⠴", "⠦", "⠧", "⠇", "⠏"][frame % 10];
                    print!("\r     {wheel} {label} {:5.1} s ", begin.elapsed().as_secs_f64());
                    let _ = std::io::stdout().flush();
                    frame += 1;
                }
                print!("\r\x1b[2K");
                let _ = std::io::stdout().flush();
            });
            let result = work();
            drop(done);
            result
        })
    }
}

/// What the device knows when it is free.
struct Sent {
    begin: Instant,
    /// Pictures on the wall before.
    before: usize,
    free: Duration,
    said: Vec<u8>,
}

/// What the photo wall has.
struct Arrival {
    after: Duration,
    sha256: String,
}

fn run() -> Result<(), Box<dyn Error>> {
    let file = match std::env::args_os().nth(1) {
        Some(path) => PathBuf::from(path),
        None => Path::new(env!("CARGO_MANIFEST_DIR")).join("../../demo/evening.jpg"),
    };
    let unusable = |why: &str| format!("{}: {why}", file.display());
    let bytes = file.metadata().map_err(|error| unusable(&error.to_string()))?.len();
    if !file.is_file() {
        return Err(unusable("not a file").into());
    }
    let file = file.canonicalize()?;
    let sum = sha256(&file)?;
    let name = file.file_name().unwrap_or_default().to_string_lossy().into_owned();

    let config = HouseConfig::default();
    let house = House::build(config)?;
    let wall = house.start_photo_wall()?;
    let _service = house.start_service(8000, &[])?;
    let _gateway = house.start_gateway(&["--no-mdns"])?;
    let style = Style { live: std::io::stdout().is_terminal() };

    println!("\n  {}  a transfer outlives the connection it began on\n", style.bold("Hoop"));
    println!(
        "     phone  )))  {}  )))  gateway  ───  {} up, {} down, 20 ms  ───  {ORIGIN}",
        config.lan, config.up, config.down
    );
    println!(
        "     {}",
        style.dim("a photo wall that knows nothing of Hoop, real TLS, real processes, simulated links")
    );
    let seconds = 2.0 * config.up.time_for(bytes).as_secs_f64() * 1.04;
    println!("\n     {name}, {}; this takes about {seconds:.0} s\n", size(bytes));

    println!("  {}  straight to the photo wall, as today {}", style.bold("1"), style.dim("(curl)"));
    let straight = style.ticking("the phone must stay", || send(&wall, straight_command(&house, &file)))?;
    let straight_free = straight.free;
    println!("     the phone is free after       {:>7.2} s", straight_free.as_secs_f64());
    let straight = straight.arrival(&wall)?;
    println!("     the photo wall has it after   {:>7.2} s\n", straight.after.as_secs_f64());

    println!("  {}  dropped at the gateway, sealed {}", style.bold("2"), style.dim("(hoop push)"));
    let mut push = house.push(&house.gateway_url());
    push.args(["--json", "-F", &format!("photo=@{}", file.display()), &format!("{ORIGIN}/photos")]);
    let hoop = style.ticking("sealing and handing over", || send(&wall, push))?;
    let hoop_free = hoop.free;
    println!(
        "     the phone is free after       {:>7} s   {}",
        style.good(format!("{:.2}", hoop_free.as_secs_f64())),
        style.dim("on the gateway's disk, synced; it can read none of it")
    );
    let monitor = monitor_link(&hoop.said);
    println!("     follow it                     {monitor}");
    let hoop = style.ticking("the phone has left; the gateway delivers", || hoop.arrival(&wall))?;
    println!("     the photo wall has it after   {:>7.2} s", hoop.after.as_secs_f64());
    println!("     the monitor says              {}\n", receipts(&house, &monitor));

    let factor = straight_free.as_secs_f64() / hoop_free.as_secs_f64();
    let ratio = config.lan.as_bps() as f64 / config.up.as_bps() as f64;
    println!(
        "     The phone was free {} sooner. {}\n",
        style.good(format!("×{factor:.1}")),
        style.dim(format!("The links' rates are ×{ratio:.1} apart."))
    );
    println!("     sha256, the file          {sum}");
    for (way, got) in [("arrived straight", &straight.sha256), ("arrived by Hoop", &hoop.sha256)] {
        let same = if *got == sum { style.good("the same") } else { style.paint("1;31", "ANOTHER") };
        println!("     sha256, {way:<17} {got}  {same}");
    }
    if straight.sha256 != sum || hoop.sha256 != sum {
        return Err("what arrived is not what was sent".into());
    }
    println!();
    Ok(())
}

fn straight_command(house: &House, file: &Path) -> Command {
    let mut curl = house.curl();
    curl.arg("--fail-with-body").arg("-F").arg(format!("photo=@{}", file.display())).arg(format!("{ORIGIN}/photos"));
    curl
}

/// Runs `command` on the device until it ends: then the device is free.
fn send(wall: &Program, mut command: Command) -> Result<Sent, String> {
    let before = pictures(wall);
    let begin = Instant::now();
    let output = command.stdin(Stdio::null()).output().map_err(|error| error.to_string())?;
    let free = begin.elapsed();
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        return Err(format!("{:?} ended with {}: {said}", command.get_program(), output.status));
    }
    Ok(Sent { begin, before, free, said: output.stdout })
}

impl Sent {
    /// Waits until the photo wall has one picture more.
    fn arrival(&self, wall: &Program) -> Result<Arrival, String> {
        let mut seen = 0;
        let arrived = wall.wait_for_matching(PATIENCE, |line| {
            seen += usize::from(picture(line).is_some());
            seen > self.before
        });
        let (at, line) = arrived.ok_or("the photo wall stopped")?;
        Ok(Arrival { after: at.duration_since(self.begin), sha256: picture(&line).unwrap_or_default() })
    }
}

/// How many pictures the wall says it has.
fn pictures(wall: &Program) -> usize {
    wall.lines().iter().filter(|(_, line)| picture(line).is_some()).count()
}

/// The hash of the picture that a line of the wall's is about.
fn picture(line: &str) -> Option<String> {
    let event: serde_json::Value = serde_json::from_str(line).ok()?;
    (event["event"] == "photo").then(|| event["sha256"].as_str().unwrap_or_default().to_owned())
}

fn monitor_link(said: &[u8]) -> String {
    let said: serde_json::Value = serde_json::from_slice(said).unwrap_or_default();
    said["monitor"].as_str().unwrap_or("(none)").to_owned()
}

/// What the monitor says once the upload has ended: the receipt chain.
fn receipts(house: &House, monitor: &str) -> &'static str {
    for _ in 0..100 {
        let mut curl = house.curl();
        let output = curl.args(["-H", "Accept: application/json", monitor]).output();
        let status: serde_json::Value =
            output.ok().and_then(|output| serde_json::from_slice(&output.stdout).ok()).unwrap_or_default();
        if status["state"] == "accepted" {
            return "stored ✓  received ✓  accepted ✓";
        }
        std::thread::sleep(Duration::from_millis(100));
    }
    "(not `accepted` within ten seconds)"
}

/// `2.75 MB`, `11 bytes`.
fn size(bytes: u64) -> String {
    match bytes {
        0..100_000 => format!("{bytes} bytes"),
        _ => format!("{:.2} MB", bytes as f64 / 1e6),
    }
}
